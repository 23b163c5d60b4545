"""Poses: position and orientation, and their composition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, isfinite, sin, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from sensorium.errors import ConfigError

Floats = npt.NDArray[Any]

UNIT_TOLERANCE = 1e-3
"""Maximum deviation of a quaternion's length from 1; larger deviations are not rounding errors."""


@dataclass(frozen=True, slots=True)
class Pose:
    """Position and orientation of a sensor on its body, or of a body in the world.

    Both accept any sequence of numbers. Poses are chained with ``@``: ``body_in_world @ sensor_on_body`` is the pose of
    the sensor in the world.

    Args:
        pos: position, m.
        rot: orientation, unit quaternion (w, x, y, z).

    Raises:
        ConfigError: a number is missing or not finite, or the length of the quaternion is not 1 (within 0.001).
    """

    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rot: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    __array_ufunc__ = None  # ``pose @ array`` is undefined: it raises a TypeError

    def __post_init__(self) -> None:
        object.__setattr__(self, "pos", _numbers("pos", self.pos, 3, "m"))
        object.__setattr__(
            self, "rot", _numbers("rot", self.rot, 4, "wxyz", "Pose.from_euler accepts roll, pitch and yaw.")
        )
        length = sqrt(sum(part * part for part in self.rot))
        if abs(length - 1.0) > UNIT_TOLERANCE:
            raise ConfigError.single(
                "Pose", "rot", self.rot, f"a unit quaternion (w, x, y, z), not one of length {length:.6g}",
                "Divide it by its length; (1, 0, 0, 0) is no rotation.",
            )  # fmt: skip

    @classmethod
    def from_array(cls, array: npt.ArrayLike) -> Pose:
        """Build a pose from seven numbers: position, m, then quaternion wxyz.

        Raises:
            ConfigError: the shape is not (7,), or the numbers are not a pose.
        """
        numbers = np.asarray(array, dtype=np.float64)
        if numbers.shape != (7,):
            raise ConfigError.single(
                "Pose", "from_array", numbers.shape, "an array of shape (7,)", "Give x, y, z, w, x, y, z."
            )
        values = numbers.tolist()
        return cls((values[0], values[1], values[2]), (values[3], values[4], values[5], values[6]))

    @classmethod
    def from_euler(cls, pos: Sequence[float], euler: Sequence[float]) -> Pose:
        """Build a pose from a position and roll, pitch and yaw.

        Args:
            pos: position, m.
            euler: roll about the fixed x axis, then pitch about the fixed y axis, then yaw about the fixed z axis, rad;
                as for `sensorium.math.quat_from_euler`.

        Raises:
            ConfigError: a number is missing or not finite.
        """
        pose = Pose(pos)  # type: ignore[arg-type]
        for axis, angle in reversed([*enumerate(_numbers("euler", euler, 3, "roll, pitch, yaw, rad"), 1)]):
            rot = [cos(0.5 * angle), 0.0, 0.0, 0.0]
            rot[axis] = sin(0.5 * angle)
            pose = pose @ Pose(rot=tuple(rot))  # type: ignore[arg-type]
        return pose

    def to_array(self) -> npt.NDArray[np.float64]:
        """Return position, m, and quaternion wxyz as one float64 array [7]."""
        return np.array((*self.pos, *self.rot), dtype=np.float64)

    def __matmul__(self, other: Pose) -> Pose:
        """Return the pose `other`, given in the frame of this pose, in the outer frame."""
        if not isinstance(other, Pose):
            return NotImplemented
        w, x, y, z = self.rot
        a, b, c, d = other.rot
        product = (
            w * a - x * b - y * c - z * d,
            w * b + x * a + y * d - z * c,
            w * c - x * d + y * a + z * b,
            w * d + x * c - y * b + z * a,
        )
        length = sqrt(sum(part * part for part in product))
        px, py, pz = self.apply(other.pos).tolist()
        return Pose((px, py, pz), (product[0] / length, product[1] / length, product[2] / length, product[3] / length))

    def inverse(self) -> Pose:
        """Return the pose of the outer frame in this frame: ``pose @ pose.inverse()`` is the identity."""
        w, x, y, z = self.rot
        length = sqrt(w * w + x * x + y * y + z * z)
        back = Pose((0.0, 0.0, 0.0), (w / length, -x / length, -y / length, -z / length))
        px, py, pz = back.apply(self.pos).tolist()
        return Pose((-px, -py, -pz), back.rot)

    def apply(self, points: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return points of this frame in the outer frame, float64 `[..., 3]`, m.

        Args:
            points: `[..., 3]`, m.
        """
        rotated: npt.NDArray[np.float64] = np.asarray(points, dtype=np.float64) @ self.matrix().T
        return rotated + self.pos

    def matrix(self) -> npt.NDArray[np.float64]:
        """Return the orientation as a rotation matrix, float64 [3, 3], orthogonal up to rounding."""
        w, x, y, z = self.rot
        s = 2.0 / (w * w + x * x + y * y + z * z)
        return np.array(
            (
                (1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)),
                (s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)),
                (s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)),
            )
        )


def _numbers(field: str, value: Sequence[Any], count: int, unit: str, fix: str = "") -> tuple[float, ...]:
    """Return a sequence as that many floats, or raise a ConfigError that describes the fault."""
    try:
        numbers = tuple(float(part) for part in value)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != count or not all(map(isfinite, numbers)):
        raise ConfigError.single("Pose", field, value, f"{count} finite numbers ({unit})", fix)
    return numbers


def _cross(a: Floats, b: Floats) -> Floats:
    """Return the cross products of vectors `[..., 3]`, as `np.cross`, which takes twice as long."""
    (ax, ay, az), (bx, by, bz) = ((each[..., 0], each[..., 1], each[..., 2]) for each in (a, b))
    found: Floats = np.empty(np.broadcast_shapes(a.shape, b.shape), np.result_type(a, b))
    found[..., 0], found[..., 1], found[..., 2] = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    return found


def rotate(quat: Floats, vectors: Floats) -> Floats:
    """Return vectors `[..., 3]` turned by quaternions `[..., 4]`, wxyz."""
    w, u = quat[..., :1], quat[..., 1:]
    t = 2.0 * _cross(u, vectors)
    turned: Floats = vectors + w * t + _cross(u, t)
    return turned


def composed(pose: Floats, inner: Floats) -> Floats:
    """Return poses `[..., 7]` of frames `inner`, given in frames that have the poses `pose`."""
    w, u = pose[..., 3:4], pose[..., 4:]
    v, x = inner[..., 3:4], inner[..., 4:]
    real = w * v - (u * x).sum(axis=-1, keepdims=True)
    rest = w * x + v * u + _cross(u, x)
    return np.concatenate([pose[..., :3] + rotate(pose[..., 3:], inner[..., :3]), real, rest], axis=-1)
