"""MuJoCo data for each requirement: fields, and the stage of its forward computation that provides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco

from sensorium.engines.mujoco.contacts import contact_sensors, contacts
from sensorium.engines.mujoco.native import native, sensor_id
from sensorium.engines.mujoco.sleep import is_held
from sensorium.engines.mujoco.tendons import paths_of
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

POS, VEL, ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("POS", "VEL", "ACC"))
"""Stages of MuJoCo's forward computation (mjtStage): position, velocity and acceleration."""


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
    BODY_POSE: Need(("xpos", "xquat"), POS),
    BODY_VELOCITY: Need(("xpos", "cvel", "subtree_com"), VEL),
    BODY_ACCELERATION: Need(("xpos", "cvel", "cacc", "subtree_com"), ACC, True, ("opt.gravity",)),
    GRAVITY: Need(model_fields=("opt.gravity",)),
    MAGNETIC: Need(model_fields=("opt.magnetic",)),
    JOINT_STATE: Need(("qpos", "qvel")),
    JOINT_EFFORT: Need(("qfrc_actuator",), ACC),
    JOINT_TORQUE: Need(
        ("qfrc_actuator", "qfrc_damper", "qacc", "qvel"),
        ACC,
        model_fields=("dof_armature", "dof_frictionloss", "dof_invweight0"),
    ),
    JOINT_WRENCH: Need(("xpos", "subtree_com", "cfrc_int"), ACC, True),
    TENDON_PATHS: Need(("ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"), POS, model_fields=("opt.gravity",)),
}
"""All requirements except NATIVE_SENSOR, CONTACT_REPORT, SHAPES and MODEL_ELEMENTS."""
STATE_SOURCES = ("qpos", "qvel")
"""Fields of the state itself, which mj_step leaves one tick newer than all others."""
FRICTION = "dof_friction"
"""Source of the dry friction at each dof `[env, dof]`, where the engine can read it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """MuJoCo data for all prepared requirements, and the computations that bring it up to date.

    Args:
        fields: MjData fields, in a fixed order.
        model_fields: fields of the model that are read for each env.
        stage: highest mjtStage required; 0 for none.
        sensors: whether native sensors are read.
        wrenches: whether results of mj_rnePostConstraint are read.
        tendons: whether the paths of tendons are read.
        reports: contact reports.
    """

    fields: tuple[str, ...] = ()
    model_fields: tuple[str, ...] = ()
    stage: int = 0
    sensors: bool = False
    wrenches: bool = False
    tendons: bool = False
    reports: tuple[Requirement, ...] = ()

    @property
    def functions(self) -> tuple[str, ...]:
        """MuJoCo's functions that update derived state of a state up to `stage`, in order, as mujoco_warp names them.

        Position, velocity and acceleration build on each other. Without native sensors only the parts that `NEEDS`
        lists are computed. Position sensors need the velocity stage, which recomputes the kinetic energy.
        """
        if self.stage >= ACC:
            return ("forward", "rne_postconstraint") if self.wrenches else ("forward",)
        if self.sensors:
            return ("fwd_position", "sensor_pos", "fwd_velocity", "sensor_vel")
        if self.stage < POS:
            return ()
        moving = self.stage >= VEL
        chosen = {"kinematics": True, "com_pos": moving or self.tendons, "com_vel": moving, "tendon": self.tendons}
        return tuple(name for name, is_needed in chosen.items() if is_needed)


def plan_of(model: Any, requirements: frozenset[Requirement], *, held: bool) -> Plan:
    """Return the data for requirements that a compiled model fulfils.

    Args:
        model: compiled MjModel.
        requirements: granted requirements.
        held: whether native sensors hold values that MuJoCo does not compute for sleeping bodies, see `mujoco.sleep`.
    """
    used = requirements if len(paths_of(model).tendon) else requirements - {TENDON_PATHS}
    needs = [need for requirement, need in NEEDS.items() if requirement in used]
    fields = [name for need in needs for name in need.fields]
    if held and any(map(is_held, used)):
        fields += ["xquat", "sensordata"]
    reports = contacts(used)
    ids = [sensor_id(model, requirement) for requirement in native(used)]
    ids += [i for report in reports for i in contact_sensors(model, report)]
    if ids:
        fields.append("sensordata")
    return Plan(
        fields=tuple(dict.fromkeys(fields)),
        model_fields=tuple(dict.fromkeys(name for need in needs for name in need.model_fields)),
        stage=max([need.stage for need in needs] + [_stage_of_sensor(model, i) for i in ids], default=0),
        sensors=bool(ids),
        wrenches=any(need.wrenches for need in needs),
        tendons=TENDON_PATHS in used,
        reports=tuple(reports),
    )


def _stage_of_sensor(model: Any, i: int) -> int:
    """Return the mjtStage of a sensor; the kinetic energy, nominally a position sensor, needs the velocity stage."""
    stage = int(model.sensor_needstage[i])
    return max(stage, VEL) if int(model.sensor_type[i]) == int(mujoco.mjtSensor.mjSENS_E_KINETIC) else stage


def needs_wrenches(requirement: Requirement) -> bool:
    """Whether a requirement needs results of mj_rnePostConstraint."""
    return requirement in NEEDS and NEEDS[requirement].wrenches
