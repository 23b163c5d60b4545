"""Worlds that do not move, from MJCF and URDF files."""

from __future__ import annotations

from pathlib import Path

from sensorium.engines.mujoco.shapes import model_shapes
from sensorium.engines.mujoco.spec import compile_spec, load_spec
from sensorium.errors import ModelError, listed
from sensorium.geometry.shapes import Shape


def model_world(path: Path) -> tuple[Shape, ...]:
    """Return the shapes of a model without joints, all on the world.

    Raises:
        ModelError: the file is missing or invalid, or has joints.
    """
    label = f"world file {str(path)!r}"
    model = compile_spec(load_spec(path), label)
    if model.njnt or model.nmocap:
        moving = [model.joint(i).name for i in range(model.njnt)] or ["a mocap body"]
        raise ModelError(f"{label}: got moving parts ({listed(moving, 5)}), expected none. Remove them.")
    return model_shapes(model, dict.fromkeys(range(model.nbody), -1))
