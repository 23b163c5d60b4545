"""Slow reference for overlapping boxes, in NumPy."""

from __future__ import annotations

import numpy as np

from sensorium.readings import Array

ENDLESS = 1e9
"""Half-extent used for infinite boxes, m, so that sums stay finite."""

_NEXT, _AFTER = np.array([1, 2, 0]), np.array([2, 0, 1])


def matrices(quat: Array) -> Array:
    """Return rotation matrices ``[..., 3, 3]`` of quaternions ``[..., 4]`` (wxyz) of any non-zero length."""
    double = np.einsum("...i,...j->...ij", quat, quat * (2.0 / np.einsum("...i,...i->...", quat, quat)[..., None]))
    out = np.empty((*quat.shape[:-1], 3, 3))
    for i, j, k in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        out[..., i - 1, i - 1] = 1.0 - double[..., j, j] - double[..., k, k]
        out[..., i - 1, j - 1] = double[..., i, j] - double[..., 0, k]
        out[..., j - 1, i - 1] = double[..., i, j] + double[..., 0, k]
    return out


def boxes_overlap(between: Array, turn_a: Array, half_a: Array, turn_b: Array, half_b: Array) -> Array:
    """Return which pairs of rotated boxes overlap or touch, bool ``[pair]``: the separating axis test.

    Two boxes are separate exactly if they are separate along one of 15 axes. These are the three axes of each box, and
    the nine normals to an axis of each. See Gottschalk, Lin and Manocha, OBBTree, SIGGRAPH 1996.

    Args:
        between: vector from the centre of a to the centre of b, world, ``[pair, 3]``.
        turn_a: orientation of a as matrices ``[pair, 3, 3]``.
        half_a: half-extents of a, ``[3]`` or ``[pair, 3]``.
        turn_b: orientation of b.
        half_b: half-extents of b.
    """
    a, b = (np.minimum(np.broadcast_to(half, between.shape), ENDLESS) for half in (half_a, half_b))
    t = np.einsum("kij,ki->kj", turn_a, between)
    r = np.einsum("kij,kil->kjl", turn_a, turn_b)  # the axes of b in a's frame are its columns
    size = np.abs(r)
    slack = 1e-12 * np.minimum(np.maximum(a, b), 1e3).sum(axis=1)[:, None]  # for rounding errors with parallel edges
    meets: Array = (np.abs(t) <= a + np.einsum("kij,kj->ki", size, b) + slack).all(axis=1)
    meets &= (np.abs(np.einsum("ki,kij->kj", t, r)) <= b + np.einsum("kij,ki->kj", size, a) + slack).all(axis=1)
    distance = np.abs(t[:, _AFTER, None] * r[:, _NEXT] - t[:, _NEXT, None] * r[:, _AFTER])
    reach_a = a[:, _NEXT, None] * size[:, _AFTER] + a[:, _AFTER, None] * size[:, _NEXT]
    reach_b = b[:, None, _NEXT] * size[:, :, _AFTER] + b[:, None, _AFTER] * size[:, :, _NEXT]
    meets &= (distance <= reach_a + reach_b + slack[:, :, None]).all(axis=(1, 2))
    return meets  # along each axis; always False for values that are not finite
