"""MuJoCo data for each requirement: fields, and the stage of its forward computation that provides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco

from sensorium.engines.mujoco.contacts import contact_sensors, contacts
from sensorium.engines.mujoco.native import native, sensor_id
from sensorium.engines.mujoco.sleep import is_held
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    MAGNETIC,
    TENDON_PATHS,
    Requirement,
)

_POS, _VEL, _ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("POS", "VEL", "ACC"))


@dataclass(frozen=True, slots=True)
class Need:
    """MuJoCo data for one requirement.

    Args:
        fields: MjData fields from which its arrays are computed.
        stage: stage of MuJoCo's forward computation (mjtStage) that updates them; 0 for none.
        wrenches: whether it needs mj_rnePostConstraint, which MuJoCo calls only for certain sensors.
        model_fields: fields of the model that are read for each env.
    """

    fields: tuple[str, ...] = ()
    stage: int = 0
    wrenches: bool = False
    model_fields: tuple[str, ...] = ()


NEEDS: dict[Requirement, Need] = {
    BODY_POSE: Need(("xpos", "xquat"), _POS),
    BODY_VELOCITY: Need(("xpos", "cvel", "subtree_com"), _VEL),
    BODY_ACCELERATION: Need(("xpos", "cvel", "cacc", "subtree_com"), _ACC, True, ("opt.gravity",)),
    GRAVITY: Need(model_fields=("opt.gravity",)),
    MAGNETIC: Need(model_fields=("opt.magnetic",)),
    JOINT_STATE: Need(("qpos", "qvel")),
    JOINT_EFFORT: Need(("qfrc_actuator",), _ACC),
    JOINT_TORQUE: Need(
        ("qfrc_actuator", "qfrc_damper", "qacc", "qvel"),
        _ACC,
        model_fields=("dof_armature", "dof_frictionloss", "dof_invweight0"),
    ),
    JOINT_WRENCH: Need(("xpos", "subtree_com", "cfrc_int"), _ACC, True),
    TENDON_PATHS: Need(("ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"), _POS, model_fields=("opt.gravity",)),
}
"""All requirements except NATIVE_SENSOR, CONTACT_REPORT, SHAPES and MODEL_ELEMENTS."""
STATE_SOURCES = ("qpos", "qvel")
"""Fields of the state itself, which mj_step leaves one tick newer than all others."""
FRICTION = "dof_friction"
"""Source of the dry friction at each dof `[env, dof]`, where the engine can read it."""


def fields_of(requirements: frozenset[Requirement], *, held: bool = False) -> tuple[str, ...]:
    """Return the MjData fields for requirements, in a fixed order.

    Args:
        requirements: granted requirements.
        held: whether native sensors hold values that MuJoCo does not compute for sleeping bodies, see `mujoco.sleep`.
    """
    fields = [name for requirement, need in NEEDS.items() if requirement in requirements for name in need.fields]
    if held and any(map(is_held, requirements)):
        fields += ["xquat", "sensordata"]
    if native(requirements) or contacts(requirements):
        fields.append("sensordata")
    return tuple(dict.fromkeys(fields))


def model_fields_of(requirements: frozenset[Requirement]) -> tuple[str, ...]:
    """Return the fields of the model that requirements read per env."""
    needs = [need for requirement, need in NEEDS.items() if requirement in requirements]
    return tuple(dict.fromkeys(name for need in needs for name in need.model_fields))


def stage_of(model: Any, requirements: frozenset[Requirement]) -> int:
    """Return the highest mjtStage required."""
    stages = [NEEDS[requirement].stage for requirement in requirements if requirement in NEEDS]
    stages += [_stage_of_sensor(model, sensor_id(model, requirement)) for requirement in native(requirements)]
    stages += [_stage_of_sensor(model, i) for report in contacts(requirements) for i in contact_sensors(model, report)]
    return max(stages, default=0)


def _stage_of_sensor(model: Any, i: int) -> int:
    """Return the mjtStage of a sensor; the kinetic energy, nominally a position sensor, needs the velocity stage."""
    stage = int(model.sensor_needstage[i])
    return max(stage, _VEL) if int(model.sensor_type[i]) == int(mujoco.mjtSensor.mjSENS_E_KINETIC) else stage


def needs_wrenches(requirement: Requirement) -> bool:
    """Whether a requirement needs results of mj_rnePostConstraint."""
    return requirement in NEEDS and NEEDS[requirement].wrenches
