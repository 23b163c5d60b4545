"""Sleeping bodies (``<flag sleep="enable"/>``): sensors hold values that MuJoCo no longer computes for them.

MuJoCo skips a sleeping tree. The tree keeps its pose and has zero velocity, but its rows of `cacc`, `cfrc_int`, `qacc`
and `qfrc_actuator` are zero or undefined. The output of a native sensor keeps its value from the moment at which the
tree fell asleep. Therefore each body that can move gets hidden sensors, and derived state reads those. At that moment
the acceleration is not zero: the solver's soft contacts still settle, below the tolerance at which a tree falls asleep.

mujoco_warp holds no values. `WarpSource` wakes all trees for one computation instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from sensorium.engines.mujoco.elements import HIDDEN_PREFIX, SCALAR, Elements, hidden
from sensorium.spec import BODY_ACCELERATION, JOINT_EFFORT, JOINT_TORQUE, JOINT_WRENCH, Requirement

_HELD = f"{HIDDEN_PREFIX}held/"
_SENSOR = mujoco.mjtSensor
_ON_BODY = {
    BODY_ACCELERATION: (_SENSOR.mjSENS_FRAMELINACC, _SENSOR.mjSENS_FRAMEANGACC),
    JOINT_WRENCH: (_SENSOR.mjSENS_FORCE, _SENSOR.mjSENS_TORQUE),
}
_ON_JOINT = (JOINT_EFFORT, JOINT_TORQUE)
AWAKE = -(1 + int(getattr(mujoco, "mjMINAWAKE", 10)))
"""Value of `tree_asleep` for a tree that is awake and not about to sleep."""


def sleeps(options: Any) -> bool:
    """Whether bodies of a model may sleep.

    Args:
        options: options of the model, compiled or not.
    """
    return bool(int(options.enableflags) & int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0)))


def disabled(options: Any, flag: str) -> bool:
    """Whether a model's options disable a feature.

    Args:
        options: options of the model, compiled or not.
        flag: end of its mjtDisableBit, e.g. ``"SENSOR"``.
    """
    return bool(int(options.disableflags) & int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}")))


def is_held(requirement: Requirement) -> bool:
    """Whether a requirement needs hidden sensors where bodies may sleep."""
    return requirement in _ON_BODY or requirement in _ON_JOINT


def add_held(spec: Any, requirements: Iterable[Requirement]) -> None:
    """Add the hidden sensors of requirements to an MjSpec whose bodies may sleep; existing ones are not added again.

    Args:
        spec: mujoco.MjSpec; edited in place.
        requirements: requirements of sensors.
    """
    if not sleeps(spec.option):
        return
    wanted = set(requirements)
    kinds = [kind for requirement, pair in _ON_BODY.items() if requirement in wanted for kind in pair]
    present = {element.name for element in (*spec.sensors, *spec.sites)}

    def add(objtype: Any, objname: str, kind: Any, place: str) -> None:
        if (name := f"{place}/{int(kind)}") not in present:
            spec.add_sensor(name=name, type=kind, objtype=objtype, objname=objname)

    def visit(body: Any, moves: bool) -> None:
        moves = moves or bool(body.joints)
        if moves and kinds:
            site = _site(body, present)
            for kind in kinds:
                add(mujoco.mjtObj.mjOBJ_SITE, site, kind, site)
        if wanted.intersection(_ON_JOINT):
            for joint in body.joints:
                if int(joint.type) in SCALAR:
                    add(mujoco.mjtObj.mjOBJ_JOINT, joint.name, _SENSOR.mjSENS_JOINTACTFRC, f"{_HELD}{joint.name}")
        for child in body.bodies:
            visit(child, moves)

    visit(spec.worldbody, False)


def _site(body: Any, present: set[str]) -> str:
    """Return the name of the hidden site in a body's frame, which is added where missing."""
    for site in body.sites:
        if hidden(site.name) and _HELD in site.name:
            return str(site.name)
    number = next(i for i in itertools.count(len(present)) if f"{_HELD}{i}" not in present)
    name = f"{_HELD}{number}"
    present.add(name)
    body.add_site(name=name, group=5, rgba=[0, 0, 0, 0])
    return name


def held_columns(model: Any, requirement: Requirement) -> np.ndarray:
    """Return the columns of sensordata for the sensors of a requirement, -1 for missing sensors.

    Args:
        model: compiled MjModel.
        requirement: requirement for which `is_held` is True.

    Returns:
        int32 `[body, 2]` (linear or force, angular or torque) for a body's requirement, `[joint]` for a joint's.
    """
    kinds = [int(kind) for kind in _ON_BODY.get(requirement, (_SENSOR.mjSENS_JOINTACTFRC,))]
    columns = np.full((model.njnt if requirement in _ON_JOINT else model.nbody, len(kinds)), -1, dtype=np.int32)
    for i in range(model.nsensor):
        kind = int(model.sensor_type[i])
        if kind in kinds and _HELD in (mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_SENSOR, i) or ""):
            item = int(model.sensor_objid[i])
            row = item if requirement in _ON_JOINT else int(model.site_bodyid[item])
            columns[row, kinds.index(kind)] = model.sensor_adr[i]
    return columns[:, 0] if requirement in _ON_JOINT else columns


def lacks_held(model: Any, requirement: Requirement) -> bool:
    """Whether a compiled model whose bodies may sleep lacks hidden sensors of a requirement."""
    columns = held_columns(model, requirement)
    if requirement in _ON_BODY:
        return bool((columns[model.body_treeid >= 0] < 0).any())
    may = may_sleep(model)[model.body_treeid[model.jnt_bodyid]]
    return any(may[joint] and columns[joint] < 0 for joint in Elements(model).joint_ids)


def static_wrench_fault(model: Any, body: int) -> str | None:
    """Return why JOINT_WRENCH of one body is unavailable where bodies may sleep, or None.

    Args:
        model: compiled MjModel.
        body: MuJoCo's id of the body.
    """
    if not sleeps(model.opt) or int(model.body_treeid[body]) >= 0 or not may_sleep(model).any():
        return None
    return (
        f"the body {Elements(model).name('body', body)!r} is static, and MuJoCo omits its contacts with sleeping "
        'bodies: set sleep="never" on the root bodies of all trees, or remove <flag sleep="enable"/>.'
    )


def may_sleep(model: Any) -> np.ndarray:
    """Return bool [tree]: whether a tree may sleep."""
    never = (mujoco.mjtSleepPolicy.mjSLEEP_NEVER, mujoco.mjtSleepPolicy.mjSLEEP_AUTO_NEVER)
    return ~np.isin(model.tree_sleep_policy, [int(policy) for policy in never])
