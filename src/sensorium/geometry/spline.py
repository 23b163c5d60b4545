"""Smooth curves through given poses, with analytic first and second derivatives: float64, NumPy and in kernels.

A position is a cubic spline. An orientation is a cubic spline of the four numbers of a quaternion, divided by its norm.
The norm has no effect on the rates, so with a quaternion s(t) of any norm and its conjugate s*:

    ang_vel = 2 Im(s' s*) / |s|^2
    ang_acc = 2 Im(s'' s*) / |s|^2 - 2 (s . s') / |s|^2 ang_vel

The second line is the derivative of the first, because s' s'* is real. A product of unit quaternions is a rotation of
the four numbers, and splines are linear, so a curve in a rotated frame is the rotated curve.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import warp as wp
from numpy.typing import NDArray

from sensorium.geometry.transforms import cross

Array = NDArray[np.float64]


class Motion(NamedTuple):
    """Poses of a frame in the world and their derivatives at some times, float64 `[time, 3 or 4]`.

    Attributes:
        pos: position, m.
        quat: orientation, unit quaternion wxyz.
        lin_vel: linear velocity, m/s.
        ang_vel: angular velocity, rad/s, world axes.
        lin_acc: linear acceleration, m/s^2.
        ang_acc: angular acceleration, rad/s^2, world axes.
    """

    pos: Array
    quat: Array
    lin_vel: Array
    ang_vel: Array
    lin_acc: Array
    ang_acc: Array


class CubicSpline:
    """Cubic spline through points, twice continuously differentiable, with the not-a-knot condition at both ends.

    Args:
        times: times of the points `[n]`, increasing, at least 4.
        values: the points `[n, column]`.

    Attributes:
        bends: second derivatives at the points `[n, column]`.
    """

    def __init__(self, times: Array, values: Array) -> None:
        step = np.diff(times)[:, None]
        self.times, self.values = times, values
        self.bends = _second_derivatives(step, np.diff(values, axis=0) / step)

    def at(self, times: Array) -> tuple[Array, Array, Array]:
        """Return the values and their first and second derivatives at times `[time]`, each `[time, column]`.

        Outside of the points, the first and the last piece continue. `spline_at` does the same in kernels.
        """
        row = np.searchsorted(self.times[1:-1], times, side="right")
        t = (times - self.times[row])[:, None]
        step = (self.times[row + 1] - self.times[row])[:, None]
        a, bend, next_bend = self.values[row], self.bends[row], self.bends[row + 1]
        b = (self.values[row + 1] - a) / step - step * (2.0 * bend + next_bend) / 6.0
        c, d = 0.5 * bend, (next_bend - bend) / (6.0 * step)
        return a + t * (b + t * (c + t * d)), b + t * (2.0 * c + 3.0 * t * d), 2.0 * c + 6.0 * t * d


def _second_derivatives(step: Array, slope: Array) -> Array:
    """Return the second derivatives at the points of a spline, from a tridiagonal system for the inner points.

    The derivatives at the two ends continue those of the two adjacent points, so that the third derivative is
    continuous there.

    Args:
        step: lengths of the pieces `[n - 1, 1]`.
        slope: slopes of their chords `[n - 1, column]`.
    """
    first, last = step[0] / step[1], step[-1] / step[-2]
    right = 6.0 * np.diff(slope, axis=0)
    lower, middle, upper = step[:-1].copy(), 2.0 * (step[:-1] + step[1:]), step[1:].copy()
    middle[0] += step[0] * (1.0 + first)
    upper[0] -= step[0] * first
    middle[-1] += step[-1] * (1.0 + last)
    lower[-1] -= step[-1] * last
    for row in range(1, len(right)):  # Thomas algorithm; the system is diagonally dominant
        factor = lower[row] / middle[row - 1]
        middle[row] -= factor * upper[row - 1]
        right[row] -= factor * right[row - 1]
    bend = np.empty((len(right) + 2, right.shape[1]))
    bend[-2] = right[-1] / middle[-1]
    for row in range(len(right) - 2, -1, -1):
        bend[row + 1] = (right[row] - upper[row] * bend[row + 2]) / middle[row]
    bend[0] = bend[1] + first * (bend[1] - bend[2])
    bend[-1] = bend[-2] + last * (bend[-2] - bend[-3])
    return bend


class PoseSpline:
    """Twice continuously differentiable curve through poses.

    Args:
        times: times of the poses `[n]`, s, increasing, at least 4.
        pos: positions `[n, 3]`, m.
        quat: unit quaternions wxyz `[n, 4]`; their signs are ignored. The turn between two adjacent poses must be below
            180 degrees. In the middle of a turn of more than 120 degrees, the orientation is half way.

    Attributes:
        pos: spline of the positions, a `CubicSpline`.
        quat: spline of the numbers of the quaternions, a `CubicSpline`; it has further points in large turns.
    """

    def __init__(self, times: Array, pos: Array, quat: Array) -> None:
        flips = np.where((quat[1:] * quat[:-1]).sum(axis=1) < 0.0, -1.0, 1.0)
        signs = np.concatenate([[1.0], np.cumprod(flips)])
        quat = signs[:, None] * quat
        self.pos = CubicSpline(times, pos)
        # The norm of the spline is small within a large turn, and the rates are high.
        large = np.flatnonzero((quat[1:] * quat[:-1]).sum(axis=1) < 0.5)
        half = quat[large] + quat[large + 1]
        half /= np.linalg.norm(half, axis=1, keepdims=True)
        knots = np.insert(times, large + 1, 0.5 * (times[large] + times[large + 1]))
        self.quat = CubicSpline(knots, np.insert(quat, large + 1, half, axis=0))

    def at(self, times: Array) -> Motion:
        """Return the motion at times `[time]`, s."""
        pos, lin_vel, lin_acc = self.pos.at(times)
        s, ds, dds = self.quat.at(times)
        square = (s * s).sum(axis=1, keepdims=True)
        ang_vel = 2.0 * _imaginary(ds, s) / square
        stretch = (s * ds).sum(axis=1, keepdims=True) / square
        ang_acc = 2.0 * (_imaginary(dds, s) / square - stretch * ang_vel)
        return Motion(pos, s / np.sqrt(square), lin_vel, ang_vel, lin_acc, ang_acc)


def _imaginary(a: Array, b: Array) -> Array:
    """Return the imaginary part of the quaternion product of `a` and the conjugate of `b`, `[time, 3]`."""
    return b[:, :1] * a[:, 1:] - a[:, :1] * b[:, 1:] - cross(a[:, 1:], b[:, 1:])


# In kernels: the operations of NumPy in the same order, so that the bits are equal ------------------------------------

_HALF: Any = wp.constant(wp.float64(0.5))
_TWO: Any = wp.constant(wp.float64(2.0))
_THREE: Any = wp.constant(wp.float64(3.0))
_SIX: Any = wp.constant(wp.float64(6.0))


@wp.func
def spline_row(times: wp.array[wp.float64], first: int, last: int, time: wp.float64) -> int:
    """Return the row of the point at the start of the piece at a time, between the rows of the end points."""
    low, high = first + 1, last
    while low < high:
        middle = (low + high) // 2
        if times[middle] <= time:
            low = middle + 1
        else:
            high = middle
    return low - 1


@wp.func
def spline_at(t: wp.float64, step: wp.float64, a: Any, end: Any, bend: Any, next_bend: Any) -> tuple[Any, Any, Any]:
    """Return the value and the first two derivatives of a piece, as `CubicSpline.at`.

    Args:
        t: time since the start of the piece.
        step: length of the piece.
        a: point at its start.
        end: point at its end.
        bend: second derivative at its start.
        next_bend: second derivative at its end.
    """
    b = (end - a) / step - step * (_TWO * bend + next_bend) / _SIX
    c = _HALF * bend
    d = (next_bend - bend) / (_SIX * step)
    return a + t * (b + t * (c + t * d)), b + t * (_TWO * c + _THREE * t * d), _TWO * c + _SIX * t * d


@wp.func
def imaginary(a: wp.vec4d, b: wp.vec4d) -> wp.vec3d:
    """Return the imaginary part of the quaternion product of `a` and the conjugate of `b`."""
    u, v = wp.vec3d(a[1], a[2], a[3]), wp.vec3d(b[1], b[2], b[3])
    return b[0] * u - a[0] * v - wp.cross(u, v)


@wp.func
def turning(s: wp.vec4d, ds: wp.vec4d, dds: wp.vec4d) -> tuple[wp.vec4d, wp.vec3d, wp.vec3d]:
    """Return unit quaternion, angular velocity and acceleration of a spline of quaternions, as `PoseSpline.at`."""
    square = wp.dot(s, s)
    ang_vel = _TWO * imaginary(ds, s) / square
    stretch = wp.dot(s, ds) / square
    return s / wp.sqrt(square), ang_vel, _TWO * (imaginary(dds, s) / square - stretch * ang_vel)
