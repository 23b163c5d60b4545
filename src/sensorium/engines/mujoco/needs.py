"""What each requirement takes of MuJoCo: fields, and how far its forward computation must run."""

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
    Requirement,
)

_POS, _VEL, _ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("POS", "VEL", "ACC"))


@dataclass(frozen=True, slots=True)
class Need:
    """What one requirement takes.

    Args:
        fields: the MjData fields that its arrays are computed from.
        stage: the stage of MuJoCo's forward computation (mjtStage) that makes them current; 0 for none.
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
}
"""All requirements but NATIVE_SENSOR, CONTACT_REPORT, SHAPES and MODEL_ELEMENTS."""
STATE_SOURCES = ("qpos", "qvel")
"""Fields that are the state itself: mj_step leaves them one tick newer than all others."""
FRICTION = "dof_friction"
"""Source with the dry friction at each dof `[env, dof]`, where the engine can read it."""


def fields_of(requirements: frozenset[Requirement], *, held: bool = False) -> tuple[str, ...]:
    """Return the MjData fields that requirements are computed from, in a fixed order.

    Args:
        requirements: requirements granted.
        held: whether native sensors hold what MuJoCo does not compute of bodies that sleep, see `mujoco.sleep`.
    """
    fields = [name for requirement, need in NEEDS.items() if requirement in requirements for name in need.fields]
    if held and any(map(is_held, requirements)):
        fields += ["xquat", "sensordata"]
    if native(requirements) or contacts(requirements):
        fields.append("sensordata")
    return tuple(dict.fromkeys(fields))


def model_fields_of(requirements: frozenset[Requirement]) -> tuple[str, ...]:
    """Return the fields of the model that requirements read for each env."""
    needs = [need for requirement, need in NEEDS.items() if requirement in requirements]
    return tuple(dict.fromkeys(name for need in needs for name in need.model_fields))


def stage_of(model: Any, requirements: frozenset[Requirement]) -> int:
    """Return the highest mjtStage that requirements need."""
    stages = [NEEDS[requirement].stage for requirement in requirements if requirement in NEEDS]
    stages += [_stage_of_sensor(model, sensor_id(model, requirement)) for requirement in native(requirements)]
    stages += [_stage_of_sensor(model, i) for report in contacts(requirements) for i in contact_sensors(model, report)]
    return max(stages, default=0)


def _stage_of_sensor(model: Any, i: int) -> int:
    """The kinetic energy, a position sensor to MuJoCo, is computed anew only after a pass through velocities."""
    stage = int(model.sensor_needstage[i])
    return max(stage, _VEL) if int(model.sensor_type[i]) == int(mujoco.mjtSensor.mjSENS_E_KINETIC) else stage


def needs_wrenches(requirement: Requirement) -> bool:
    """Return whether a requirement needs what mj_rnePostConstraint computes."""
    return requirement in NEEDS and NEEDS[requirement].wrenches
