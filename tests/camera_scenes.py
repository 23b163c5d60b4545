"""Scenes for cameras, and a slow render in float64, for the tests of the cameras."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from reference import ReferenceHits, reference_cast
from scipy.spatial.transform import Rotation

import sensorium as sn

Array = NDArray[np.float64]

POSITION = (2.5, 2.5, 2.5)
SAME_CAMERA: dict[Any, Any] = {
    "ros": (-0.17591989, 0.33985114, 0.82047325, -0.42470819),
    "opengl": (0.33985113, 0.17591988, 0.42470818, 0.82047324),
    "world": (-0.3647052, -0.27984815, -0.1159169, 0.88047623),
}
"""A camera at POSITION that looks at the origin, in three conventions."""
OPTICAL = Rotation.from_matrix([[0, 0, 1], [-1, 0, 0], [0, -1, 0]])
"""Rotation from right, down, forward to forward, left, up."""
GROUND = sn.engines.Shape("plane", "ground", (50.0, 50.0))
THINGS = (
    GROUND,
    sn.engines.Shape("box", "box", (0.5, 0.4, 0.3), pos=(0.6, 0.2, 0.3), quat=(0.9, 0.1, -0.2, 0.3)),
    sn.engines.Shape("sphere", "ball", (0.4,), pos=(-0.5, 0.5, 0.4)),
    sn.engines.Shape("capsule", "leg", (0.2, 0.6), pos=(0.1, -0.8, 0.5), quat=(0.8, 0.5, 0.0, 0.2)),
    sn.engines.Shape("cylinder", "drum", (0.3, 0.4), pos=(-0.9, -0.4, 0.4)),
)


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def rays_of(k: Any, height: int, width: int) -> Array:
    """Return the direction of each pixel per metre of depth, `[height, width, 3]`, right, down, forward."""
    inverse = np.linalg.inv(np.asarray(k, np.float64))
    return np.array([[inverse @ [u + 0.5, v + 0.5, 1.0] for u in range(width)] for v in range(height)])


def render(shapes: Any, pos: Any, ros: Any, k: Any, height: int, width: int) -> tuple[ReferenceHits, Array]:
    """Cast all pixels' rays of a camera in float64 at every shape; return the hits and the z-depth per m of ray."""
    rays = rays_of(k, height, width).reshape(-1, 3)
    turn = Rotation.from_quat(np.asarray(ros, np.float64), scalar_first=True)
    return reference_cast(shapes, np.asarray(pos, np.float64), turn.apply(rays)), 1.0 / np.linalg.norm(rays, axis=1)
