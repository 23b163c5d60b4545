"""mujoco_warp itself: its import, its models, and what their fields are."""

from __future__ import annotations

import functools
import operator
from importlib import metadata
from typing import Any

import mujoco
import warp as wp

from sensorium.compute import graph
from sensorium.engines.mujoco.spec import reason_of
from sensorium.errors import MissingDependencyError, ModelError


@functools.cache
def mujoco_warp() -> Any:
    """Return the module mujoco_warp.

    Raises:
        MissingDependencyError: it is not installed, or does not match the installed MuJoCo.
    """
    versions = {}
    for package in ("mujoco", "mujoco-warp"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    versions["mujoco"] = versions["mujoco"] or mujoco.__version__
    if (fault := pair_fault(versions["mujoco"], versions["mujoco-warp"])) is not None:
        raise MissingDependencyError(fault)
    try:
        import mujoco_warp as module
    except ImportError as error:
        raise MissingDependencyError(
            f"mujoco-warp {versions['mujoco-warp']} cannot be imported beside mujoco {versions['mujoco']}: "
            f"{reason_of(error)}. Install a matching pair: pip install 'sensorium[warp]'."
        ) from error
    return module


def pair_fault(engine: str, warp: str) -> str | None:
    """Return why a version of mujoco and one of mujoco-warp (empty: none) do not work together, or None.

    Both are released together under the same number, and read each other's structures.
    """
    if not warp:
        release = ".".join(engine.split(".")[:2])
        return (
            "MujocoWarpEngine needs mujoco-warp, which is not installed: pip install 'sensorium[warp]', or for the "
            f"installed mujoco {engine}: pip install 'mujoco-warp=={release}.*'."
        )
    if engine.split(".")[:2] == warp.split(".")[:2]:
        return None
    newer = max((engine, warp), key=_numbers)
    release = ".".join(newer.split(".")[:2])
    return (
        f"mujoco {engine} and mujoco-warp {warp} do not match: they work in pairs of the same release. Install one: "
        f"pip install 'mujoco=={release}.*' 'mujoco-warp=={release}.*' (beside mjlab 1.6: 'mujoco==3.11.*' "
        "'mujoco-warp==3.11.*')."
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])


@graph.launching
def put_model(mjm: Any, label: str, device: Any) -> Any:
    """Return a model on a device.

    Raises:
        ModelError: the model uses a feature that mujoco_warp lacks; the message names it.
    """
    module = mujoco_warp()
    try:
        with wp.ScopedDevice(device):
            return module.put_model(mjm)
    except (NotImplementedError, ValueError) as error:
        flags = _lacking_flags(module, mjm.opt)
        why = f"{', '.join(flags)} not supported." if flags else reason_of(error)
        raise ModelError(
            f"mujoco_warp {module.__version__} cannot simulate {label}: {why} MuJoCo on the CPU can: MujocoEngine."
        ) from error


def _lacking_flags(module: Any, options: Any) -> list[str]:
    """Return the names of flags that mujoco_warp does not support."""
    found = []
    for flags, kind, known in (
        (int(options.disableflags), mujoco.mjtDisableBit, module.DisableBit),
        (int(options.enableflags), mujoco.mjtEnableBit, module.EnableBit),
    ):
        bits = (getattr(kind, name) for name in dir(kind) if name.startswith(("mjDSBL_", "mjENBL_")))
        supported = functools.reduce(operator.or_, map(int, known))
        found += [bit.name for bit in bits if flags & int(bit) & ~supported]
    return found


def sizes(mjm: Any, module: Any, nconmax: int | None, njmax: int | None) -> dict[str, int]:
    """Return the numbers of contacts and constraints per world for which memory is allocated.

    The default is mujoco_warp's own estimate from the model, or twice the numbers in the default state and the
    keyframes, whichever is greater.

    Args:
        mjm: the MjModel.
        module: the module mujoco_warp.
        nconmax: number of contacts, or None for the default.
        njmax: number of constraints, or None for the default.
    """
    data = mujoco.MjData(mjm)
    contacts, constraints = 0, 0
    for key in range(-1, mjm.nkey):
        if key >= 0:
            mujoco.mj_resetDataKeyframe(mjm, data, key)
        mujoco.mj_forward(mjm, data)
        contacts, constraints = max(contacts, int(data.ncon)), max(constraints, int(data.nefc))
    with wp.ScopedDevice("cpu"):
        guess = module.make_data(mjm, nworld=1)
    return {
        "nconmax": max(int(guess.naconmax), 2 * contacts) if nconmax is None else nconmax,
        "njmax": max(int(guess.njmax), 2 * constraints) if njmax is None else njmax,
    }
