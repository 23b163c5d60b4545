"""Engines of model files, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sensorium.errors import UnknownNameError

if TYPE_CHECKING:
    from sensorium.engines.mujoco.engine import MujocoEngine
    from sensorium.engines.mujoco_warp.engine import MujocoWarpEngine
    from sensorium.engines.newton.engine import NewtonEngine

    OwnEngine = MujocoEngine | MujocoWarpEngine | NewtonEngine

EngineName = Literal["mujoco", "mujoco_warp", "newton"]
"""Names of the physics engines that simulate a model file."""


def load_model(model: Path, envs: int, device: str, engine: EngineName = "mujoco") -> OwnEngine:
    """Return the engine of a model; engines of MuJoCo start in its first keyframe if it has one.

    Args:
        model: MJCF or URDF file.
        envs: number of environments.
        device: torch device of the sensors; also of the physics, except for MuJoCo on the CPU.
        engine: name of the engine.

    Raises:
        ModelError: the file is missing or invalid.
    """
    if engine == "newton":
        from sensorium.engines.newton.files import engine_of_file

        return engine_of_file(model, envs, device)
    kind: Callable[..., MujocoEngine | MujocoWarpEngine]
    if engine == "mujoco":
        from sensorium.engines.mujoco.engine import MujocoEngine as kind
    else:
        from sensorium.engines.mujoco_warp.engine import MujocoWarpEngine as kind
    try:
        return kind(model, envs, device=device, keyframe=0)
    except UnknownNameError:
        return kind(model, envs, device=device)
