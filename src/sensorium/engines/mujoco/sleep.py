"""Bodies that sleep (``<flag sleep="enable"/>``): sensors hold what MuJoCo no longer computes of them.

MuJoCo skips a sleeping tree. The tree keeps its pose and has zero velocity, but its rows of `cacc`, `cfrc_int`, `qacc`
and `qfrc_actuator` hold zeros or anything else. The output of a native sensor stays at the value of the moment at which
the tree fell asleep. So each body that can move gets hidden sensors, and derived state reads those. At that moment the
acceleration is not zero: the solver's soft contacts still settle, below the tolerance at which a tree falls asleep.

mujoco_warp holds nothing. `Worlds.forward` wakes all trees for one computation instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import mujoco
import numpy as np

from sensorium.engines.mujoco.elements import SCALAR, Elements
from sensorium.engines.mujoco.hidden import HIDDEN_PREFIX, hidden
from sensorium.spec import BODY_ACCELERATION, JOINT_EFFORT, JOINT_TORQUE, JOINT_WRENCH, Requirement

_HELD = f"{HIDDEN_PREFIX}held/"
_SENSOR = mujoco.mjtSensor
_ON_BODY = {
    BODY_ACCELERATION: (_SENSOR.mjSENS_FRAMELINACC, _SENSOR.mjSENS_FRAMEANGACC),
    JOINT_WRENCH: (_SENSOR.mjSENS_FORCE, _SENSOR.mjSENS_TORQUE),
}
_ON_JOINT = (JOINT_EFFORT, JOINT_TORQUE)
AWAKE = -(1 + int(getattr(mujoco, "mjMINAWAKE", 10)))
"""What `tree_asleep` holds for a tree that is awake and not about to sleep."""


def sleeps(options: Any) -> bool:
    """Return whether bodies of a model may sleep.

    Args:
        options: the model's options, compiled or not.
    """
    return bool(int(options.enableflags) & int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0)))


def disabled(options: Any, flag: str) -> bool:
    """Return whether a model's options switch something off.

    Args:
        options: the model's options, compiled or not.
        flag: the end of its mjtDisableBit, e.g. ``"SENSOR"``.
    """
    return bool(int(options.disableflags) & int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}")))


def is_held(requirement: Requirement) -> bool:
    """Return whether a requirement needs hidden sensors where bodies may sleep."""
    return requirement in _ON_BODY or requirement in _ON_JOINT


def add_held(spec: Any, requirements: Iterable[Requirement]) -> None:
    """Add the hidden sensors that requirements need, where bodies of an MjSpec may sleep; adding twice adds nothing.

    Args:
        spec: the mujoco.MjSpec; edited in place.
        requirements: what sensors require.
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
                if int(joint.type) in SCALAR and joint.name:
                    add(mujoco.mjtObj.mjOBJ_JOINT, joint.name, _SENSOR.mjSENS_JOINTACTFRC, f"{_HELD}{joint.name}")
        for child in body.bodies:
            visit(child, moves)

    visit(spec.worldbody, False)


def _site(body: Any, present: set[str]) -> str:
    """Return the name of the hidden site in a body's frame, which is added where there is none."""
    for site in body.sites:
        if hidden(site.name) and _HELD in site.name:
            return str(site.name)
    number = next(i for i in itertools.count(len(present)) if f"{_HELD}{i}" not in present)
    name = f"{_HELD}{number}"
    present.add(name)
    body.add_site(name=name, group=5, rgba=[0, 0, 0, 0])
    return name


def held_columns(model: Any, requirement: Requirement) -> np.ndarray:
    """Return where the sensors of a requirement write in sensordata, -1 where there is none.

    Args:
        model: the compiled MjModel.
        requirement: one that `is_held`.

    Returns:
        int32 `[body, 2]` (linear or force, angular or torque) of a body's requirement, `[joint]` of a joint's.
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
    """Return whether hidden sensors of a requirement are missing in a compiled model whose bodies may sleep."""
    columns = held_columns(model, requirement)
    if requirement in _ON_BODY:
        return bool((columns[model.body_treeid >= 0] < 0).any())
    may = may_sleep(model)[model.body_treeid[model.jnt_bodyid]]
    return any(may[joint] and columns[joint] < 0 for joint in Elements(model).joint_ids)


def static_wrench_fault(model: Any, body: int) -> str | None:
    """Return why JOINT_WRENCH of one body cannot be told where bodies may sleep, or None.

    Args:
        model: the compiled MjModel.
        body: MuJoCo's id of the body.
    """
    if not sleeps(model.opt) or int(model.body_treeid[body]) >= 0 or not may_sleep(model).any():
        return None
    name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) or f"body_{body}"
    return (
        f"the body {name!r} is static, and MuJoCo forgets its contacts with bodies that sleep: give the root bodies of "
        'all trees sleep="never", or remove <flag sleep="enable"/>.'
    )


def may_sleep(model: Any) -> np.ndarray:
    """Return bool [tree]: whether it may sleep."""
    never = (mujoco.mjtSleepPolicy.mjSLEEP_NEVER, mujoco.mjtSleepPolicy.mjSLEEP_AUTO_NEVER)
    return ~np.isin(model.tree_sleep_policy, [int(policy) for policy in never])
