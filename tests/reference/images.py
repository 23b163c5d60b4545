"""Slow reference for images, in float64 NumPy: one ray of `reference_cast` per pixel.

lines = pinhole_lines(inverse_k, (height, width))
reference = reference_image(shapes, pos, quat, lines, near=0.1)
compare_casts(reference, lengths_of(inverse, lines, near=0.1), shape, face=face)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from reference.ray_parts import Floats
from reference.rays import Poses, ReferenceHits, reference_cast
from sensorium.geometry.shapes import Shape
from sensorium.geometry.transforms import rotation


def pinhole_lines(inverse_k: ArrayLike, image: tuple[int, int]) -> Floats:
    """Return directions of the pixels of a pinhole, row by row, `[pixel, 3]`: x forward and 1, y left, z up.

    Args:
        inverse_k: inverse intrinsic matrix, `[3, 3]`.
        image: height and width, px.
    """
    height, width = image
    v, u = np.divmod(np.arange(height * width), width)
    at = np.stack([u + 0.5, v + 0.5, np.ones(len(u))], axis=1) @ np.asarray(inverse_k, float).T
    return np.stack([np.ones(len(u)), -at[:, 0] / at[:, 2], -at[:, 1] / at[:, 2]], axis=1)


def reference_image(
    shapes: Sequence[Shape],
    pos: ArrayLike,
    quat: ArrayLike,
    lines: ArrayLike,
    *,
    near: float = 0.0,
    starts: ArrayLike | None = None,
    poses: Poses | None = None,
    include: ArrayLike | None = None,
) -> ReferenceHits:
    """Return the nearest surface of every pixel; the part of a line of sight up to `near` is cut away.

    Args:
        shapes: the shapes of the scene.
        pos: position of the camera in the world, m.
        quat: its orientation (w, x, y, z).
        lines: directions in the camera's frame, `[pixel, 3]`.
        near: minimum multiple of a direction at which a surface is visible.
        starts: starts in the camera's frame, `[pixel, 3]`, m; None for all at the camera.
        poses: poses of the bodies, as for `reference_cast`.
        include: bool `[shape]`, the visible shapes; None for all.
    """
    turn, along = rotation(np.asarray(quat, float) / np.linalg.norm(quat)), np.asarray(lines, float)
    begin = near * along + (0.0 if starts is None else np.asarray(starts, float))
    return reference_cast(shapes, np.asarray(pos, float) + begin @ turn.T, along @ turn.T, poses=poses, include=include)


def lengths_of(inverse: ArrayLike, lines: ArrayLike, near: float = 0.0) -> Floats:
    """Return the distances from `near` to the hits, m, along lines of sight; inf for a miss.

    Args:
        inverse: inverse multiple of the direction at each hit, `[pixel]`; 0 for a miss.
        lines: directions, `[pixel, 3]`.
        near: as for `reference_image`.
    """
    with np.errstate(divide="ignore"):
        t = 1.0 / np.asarray(inverse, float)
    lengths: Floats = np.maximum(t - near, 0.0) * np.linalg.norm(np.asarray(lines, float), axis=1)
    return lengths
