"""Paths of the spatial tendons of a MuJoCo model, as segments.

A path has a point for each site, and two where it wraps around a geom; pulleys interrupt it. The segments of a tendon
are between consecutive points. Between the two points on a geom it follows the surface: an arc with the directions of
the path at both points, as a cubic curve. For a circle this is exact to 0.03 % of the radius over a quarter turn.

A slack string hangs as MuJoCo draws it: a tendon between two sites whose only limit is its greatest length, without
damping or friction. Its curve is a catenary of that length. With v and h the vertical and horizontal distance of its
ends, and L its length, the curve is y = a cosh(x / a), where a = h / (2 u) and sinh(u) / u = sqrt(L^2 - v^2) / h.
"""

# Without `from __future__ import annotations`: Warp must see the types that a factory is called with.

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp
from numpy.typing import NDArray

from sensorium.compute import Rows, kernel, masked_tid

HANGING = 16
"""Number of segments of a slack string."""
ARC = 8
"""Number of segments around a geom."""
_WRAP = mujoco.mjtWrap
_POINTS = {
    int(_WRAP.mjWRAP_SITE): 1,
    int(_WRAP.mjWRAP_PULLEY): 1,
    int(_WRAP.mjWRAP_SPHERE): 2,
    int(_WRAP.mjWRAP_CYLINDER): 2,
}
"""Maximum number of points of a path for each type of its elements; fixed tendons have other types."""


@dataclass(frozen=True)
class Paths:
    """Segments of the tendons of a model, each `[segment]`.

    Attributes:
        tendon: tendon of each segment.
        place: position on the tendon's path; -1 - k for segment k of the parts around geoms.
        radius: m.
        length: length of a string that hangs if slack, m; 0 for other tendons.
    """

    tendon: NDArray[np.int32]
    place: NDArray[np.int32]
    radius: NDArray[np.float64]
    length: NDArray[np.float64]


def paths_of(model: Any) -> Paths:
    """Return the segments of all spatial tendons, in model order."""
    tendon: list[int] = []
    place: list[int] = []
    length: list[float] = []
    for i in range(model.ntendon):
        start, count = int(model.tendon_adr[i]), int(model.tendon_num[i])
        types = [int(each) for each in model.wrap_type[start : start + count]]
        if not set(types) <= set(_POINTS):
            continue
        hangs, points = _string_length(model, i), [_POINTS[each] for each in types]
        places = [*range(HANGING if hangs else sum(points) - 1), *range(-1, -1 - ARC * points.count(2), -1)]
        tendon += [i] * len(places)
        place += places
        length += [hangs] * len(places)
    ids = np.array(tendon, dtype=np.int32)
    return Paths(ids, np.array(place, np.int32), model.tendon_width[ids].reshape(-1), np.array(length))


def _string_length(model: Any, i: int) -> float:
    """Return the length of a tendon that hangs if slack, m; 0 for others."""
    if int(model.tendon_num[i]) != 2 or np.any(model.tendon_damping[i]) or np.any(model.tendon_frictionloss[i]):
        return 0.0
    has_spring = bool(np.any(model.tendon_stiffness[i]))
    low, high = (float(each) for each in (model.tendon_lengthspring if has_spring else model.tendon_range)[i])
    return high if low == 0.0 and high > 0.0 and (has_spring or bool(model.tendon_limited[i])) else 0.0


def _kernel_of(real: Any, vec3: Any) -> Any:
    @wp.func
    def hanging_point(start: vec3, end: vec3, up: vec3, length: real, s: real) -> vec3:
        """Return the point of a slack string at an arc length from its start."""
        rise = wp.dot(end - start, up)
        across = end - start - rise * up
        span = wp.sqrt(length * length - rise * rise)
        h = wp.max(wp.length(across), real(1.0e-6) * span)
        ratio = span / h
        u = real(0.0)
        if ratio < real(3.0):
            u = wp.sqrt(real(6.0) * (ratio - real(1.0)))
        else:
            u = wp.log(real(2.0) * ratio)
            u = u + wp.log(u)
        for _ in range(10):
            u = u - (wp.sinh(u) - ratio * u) / wp.max(wp.cosh(u) - ratio, real(1.0e-12))
        a = real(0.5) * h / u
        ahead = rise / length
        lowest = u - real(0.5) * wp.log((real(1.0) + ahead) / (real(1.0) - ahead))  # x / a of the lowest point
        arc = a * wp.sinh(lowest)
        w = (s - arc) / a
        x = a * (lowest + wp.sign(w) * wp.log(wp.abs(w) + wp.sqrt(w * w + real(1.0))))
        y = a * (wp.sqrt(w * w + real(1.0)) - wp.cosh(lowest))
        return start + (x / h) * across + y * up

    @wp.func
    def arc_point(before: vec3, start: vec3, end: vec3, after: vec3, s: real) -> vec3:
        """Return the point of the arc between two points of a path, at a share of it."""
        chord = end - start
        ahead = wp.normalize(start - before)
        on = wp.normalize(after - end)
        turn = wp.sqrt(wp.max(real(0.5) * (real(1.0) + wp.dot(ahead, on)), real(0.0)))
        if wp.dot(chord, ahead + on) < real(0.0):
            turn = -turn
        reach = wp.length(chord) * real(2.0 / 3.0) / wp.max(real(1.0) + turn, real(0.1))
        a = start + reach * ahead
        b = end - reach * on
        r = real(1.0) - s
        return r * r * r * start + real(3.0) * r * s * (r * a + s * b) + s * s * s * end

    @kernel(group=f"derive_tendons_{real.__name__}")
    def derive_tendons(
        rows: Rows,
        tendon_ids: wp.array[wp.int32],
        places: wp.array[wp.int32],
        radius: wp.array[real],
        lengths: wp.array[real],
        path_start: wp.array2d[wp.int32],
        path_count: wp.array2d[wp.int32],
        wrap_obj: wp.array3d[wp.int32],
        wrap_xpos: wp.array3d[vec3],
        gravity: wp.array[vec3],
        # output
        segments_out: wp.array3d[wp.vec3],
        radii_out: wp.array2d[wp.float32],
    ) -> None:
        """Compute one segment of a path; one that the path does not have is a point of radius 0."""
        env, item = masked_tid(rows)
        first = path_start[env, tendon_ids[item]]
        count = path_count[env, tendon_ids[item]]
        place = places[item]
        length = lengths[item]
        down = gravity[env % gravity.shape[0]]
        at = first + wp.clamp(place, 0, wp.max(count - 1, 0))
        start = wrap_xpos[env, at / 2, at % 2]
        end = start
        width = real(0.0)
        head = wrap_xpos[env, first / 2, first % 2]
        tail = wrap_xpos[env, (first + 1) / 2, (first + 1) % 2]
        if wp.length(tail - head) < length and wp.length(down) > real(0.0):
            width = radius[item]
            step = length / real(wp.static(HANGING))
            start = head
            end = tail
            if place > 0:
                start = hanging_point(head, tail, wp.normalize(-down), length, real(place) * step)
            if place < wp.static(HANGING) - 1:
                end = hanging_point(head, tail, wp.normalize(-down), length, real(place + 1) * step)
        elif place < 0:
            turns = wp.int32(0)  # parts around geoms so far
            for k in range(first + 1, first + count - 2):
                if wrap_obj[env, k / 2, k % 2] >= 0 and wrap_obj[env, (k + 1) / 2, (k + 1) % 2] >= 0:
                    if turns == (-1 - place) / wp.static(ARC):
                        part = (-1 - place) % wp.static(ARC)
                        before = wrap_xpos[env, (k - 1) / 2, (k - 1) % 2]
                        low = wrap_xpos[env, k / 2, k % 2]
                        high = wrap_xpos[env, (k + 1) / 2, (k + 1) % 2]
                        after = wrap_xpos[env, (k + 2) / 2, (k + 2) % 2]
                        start = arc_point(before, low, high, after, real(part) / real(wp.static(ARC)))
                        end = arc_point(before, low, high, after, real(part + 1) / real(wp.static(ARC)))
                        width = radius[item]
                    turns += 1
        elif place + 1 < count:
            kind = wrap_obj[env, at / 2, at % 2]
            other = wrap_obj[env, (at + 1) / 2, (at + 1) % 2]
            if kind != -2 and other != -2 and (kind < 0 or other < 0):
                end = wrap_xpos[env, (at + 1) / 2, (at + 1) % 2]
                width = radius[item]
        segments_out[env, item, 0] = wp.vec3(start)
        segments_out[env, item, 1] = wp.vec3(end)
        radii_out[env, item] = wp.float32(width)

    return derive_tendons


TENDON_KERNELS = {torch.float64: _kernel_of(wp.float64, wp.vec3d), torch.float32: _kernel_of(wp.float32, wp.vec3)}
"""Kernels by type of MuJoCo's fields."""
