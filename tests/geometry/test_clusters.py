"""Triangles of height fields for images: closed, of the right size, and short."""

from __future__ import annotations

import numpy as np
import pytest

from sensorium.cameras.render.clusters import triangles_of
from sensorium.geometry.shapes import HeightField


@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (3, 3), (41, 7), (61, 121)])
def test_a_height_field_with_a_base_is_closed_by_short_triangles(shape: tuple[int, int]) -> None:
    """Every edge belongs to two triangles; the volume is that below the surface; no triangle spans the bottom."""
    heights = np.random.default_rng(0).uniform(0.0, 0.3, shape)
    points, faces, ids = triangles_of(HeightField(heights, (3.0, 1.5), base=0.2))
    ends = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    _, counts = np.unique(ends, axis=0, return_counts=True)
    assert (counts == 2).all()
    a, b, c = points[faces].swapaxes(0, 1)
    below = points[faces][..., 2].max(axis=1) < -0.2 + 1e-9
    areas = 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)
    assert areas[below].sum() == pytest.approx(6.0 * 3.0) and areas.min() > 0.0 and (ids[below] == -1).all()
    assert len(faces) - 2 * (shape[0] - 1) * (shape[1] - 1) < 2500  # walls and bottom
    if min(shape) > 30:
        assert np.ptp(points[faces[below]], axis=1).max() < 0.5
