"""Quaternions (w, x, y, z): as `wp.vec4` in kernels, of torch tensors, and on the host; products of vectors.

`wp.quat` (xyzw) never crosses a kernel boundary.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import warp as wp
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


@wp.func
def quat_rotate(q: wp.vec4, v: wp.vec3) -> wp.vec3:
    """Rotate v by the unit quaternion q (w, x, y, z)."""
    u = wp.vec3(q[1], q[2], q[3])
    t = 2.0 * wp.cross(u, v)
    return v + q[0] * t + wp.cross(u, t)


@wp.func
def quat_rotate_inverse(q: wp.vec4, v: wp.vec3) -> wp.vec3:
    """Rotate v by the inverse of the unit quaternion q (w, x, y, z): world axes to body axes."""
    u = wp.vec3(-q[1], -q[2], -q[3])
    t = 2.0 * wp.cross(u, v)
    return v + q[0] * t + wp.cross(u, t)


@wp.func
def quat_multiply(a: wp.vec4, b: wp.vec4) -> wp.vec4:
    """Return the Hamilton product a b (w, x, y, z): first b, then a."""
    return wp.vec4(
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@wp.func
def quat_slerp(a: wp.vec4, b: wp.vec4, share: float) -> wp.vec4:
    """Interpolate by a fraction along the shorter arc from a to b, at constant angular velocity (unit quaternions)."""
    other = b
    cosine = wp.dot(a, b)
    if cosine < 0.0:
        other = -b
        cosine = -cosine
    if cosine > 0.9999:  # below 0.03 rad the chord equals the arc to 1e-6 rad, and sines would lose precision
        return wp.normalize(a + share * (other - a))
    angle = wp.acos(cosine)
    return (wp.sin((1.0 - share) * angle) * a + wp.sin(share * angle) * other) / wp.sin(angle)


@wp.func
def quat_heading(q: wp.vec4) -> wp.vec2:
    """Return cosine and sine of the rotation about the world's z axis that maps x to its heading under q.

    If q maps x nearly to the vertical (within a sine of 0.1), the heading is derived from y.
    """
    x = 1.0 - 2.0 * (q[2] * q[2] + q[3] * q[3])
    y = 2.0 * (q[0] * q[3] + q[1] * q[2])
    if x * x + y * y < 0.01:  # use y: rotated back by a right angle, it gives the heading of x
        y = -2.0 * (q[1] * q[2] - q[0] * q[3])
        x = 1.0 - 2.0 * (q[1] * q[1] + q[3] * q[3])
    return wp.normalize(wp.vec2(x, y))


@wp.func
def quat_yaw(q: wp.vec4) -> wp.vec4:
    """Return the rotation of `quat_heading` as a quaternion."""
    heading = quat_heading(q)
    half = 0.5 * wp.atan2(heading[1], heading[0])
    return wp.vec4(wp.cos(half), 0.0, 0.0, wp.sin(half))


# Tensors --------------------------------------------------------------------------------------------------------------


def quat_mul(a: Tensor, b: Tensor) -> Tensor:
    """Return the products a b `[..., 4]`: first b, then a."""
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    return torch.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        dim=-1,
    )


def quat_conjugate(quat: Tensor) -> Tensor:
    """Return the inverses of unit quaternions `[..., 4]`."""
    return quat * quat.new_tensor([1.0, -1.0, -1.0, -1.0])


def quat_apply(quat: Tensor, vectors: Tensor) -> Tensor:
    """Rotate vectors `[..., 3]` by unit quaternions `[..., 4]`."""
    axis, wide = torch.broadcast_tensors(quat[..., 1:], vectors)  # type: ignore[no-untyped-call]
    twice = 2.0 * torch.linalg.cross(axis, wide)
    turned: Tensor = wide + quat[..., :1] * twice + torch.linalg.cross(axis, twice)
    return turned


def quat_from_matrix(matrix: Tensor) -> Tensor:
    """Return the unit quaternions `[..., 4]` of rotation matrices `[..., 3, 3]`, with a positive largest component."""
    m = matrix
    xx, yy, zz = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    # the outer product of the quaternion with itself, times 4: its largest row is the quaternion, well conditioned
    wx, wy, wz = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    xy, xz, yz = m[..., 0, 1] + m[..., 1, 0], m[..., 0, 2] + m[..., 2, 0], m[..., 1, 2] + m[..., 2, 1]
    outer = torch.stack(
        [
            torch.stack([1 + xx + yy + zz, wx, wy, wz], dim=-1),
            torch.stack([wx, 1 + xx - yy - zz, xy, xz], dim=-1),
            torch.stack([wy, xy, 1 - xx + yy - zz, yz], dim=-1),
            torch.stack([wz, xz, yz, 1 - xx - yy + zz], dim=-1),
        ],
        dim=-2,
    )
    largest = outer.diagonal(dim1=-2, dim2=-1).argmax(dim=-1)
    row = outer.gather(-2, largest[..., None, None].expand(*largest.shape, 1, 4)).squeeze(-2)
    quat: Tensor = row / row.norm(dim=-1, keepdim=True)
    return quat


def matrix_from_quat(quat: Tensor) -> Tensor:
    """Return the rotation matrices `[..., 3, 3]` of unit quaternions `[..., 4]`."""
    eye = torch.eye(3, dtype=quat.dtype, device=quat.device)
    return torch.stack([quat_apply(quat, eye[k].expand(*quat.shape[:-1], 3)) for k in range(3)], dim=-1)


def angle_of(y: Tensor, x: Tensor) -> Tensor:
    """Return the angles of vectors (x, y) from the x axis, rad, each a function of its vector alone.

    On the CPU, `torch.atan2` computes the elements that do not fill a SIMD register by another function, so their last
    bit depends on the number of environments.
    """
    wide = torch.where(x == 0.0, torch.finfo(x.dtype).tiny, x)
    return torch.atan(y / wide) + math.pi * (x < 0.0).to(x.dtype).copysign(y)


def quat_level(quat: Tensor) -> Tensor:
    """Return the rotations about the vertical of unit quaternions `[..., 4]`, as `quat_yaw` does."""
    w, x, y, z = quat.unbind(-1)
    c, s = 1.0 - 2.0 * (y * y + z * z), 2.0 * (w * z + x * y)
    is_steep = c * c + s * s < 0.01
    c, s = (torch.where(is_steep, *pair) for pair in ((1.0 - 2.0 * (x * x + z * z), c), (-2.0 * (x * y - w * z), s)))
    half = 0.5 * angle_of(s, c)
    return torch.stack([half.cos(), 0.0 * half, 0.0 * half, half.sin()], dim=-1)


def quat_apply_inverse(quat: Tensor, vectors: Tensor) -> Tensor:
    """Rotate vectors by the inverse of quaternions, e.g. from world axes to body axes."""
    return quat_apply(quat_conjugate(quat), vectors)


def quat_from_euler(euler: Tensor) -> Tensor:
    """Return the quaternions of roll, pitch and yaw `[..., 3]`, rad.

    Roll is about the fixed x axis, then pitch about the fixed y axis, then yaw about the fixed z axis.
    """
    cosines, sines = (0.5 * euler).cos().unbind(-1), (0.5 * euler).sin().unbind(-1)
    zero = torch.zeros_like(cosines[0])
    roll = torch.stack([cosines[0], sines[0], zero, zero], dim=-1)
    pitch = torch.stack([cosines[1], zero, sines[1], zero], dim=-1)
    yaw = torch.stack([cosines[2], zero, zero, sines[2]], dim=-1)
    return quat_mul(yaw, quat_mul(pitch, roll))


def euler_from_quat(quat: Tensor) -> Tensor:
    """Return roll, pitch and yaw `[..., 3]` as for `quat_from_euler`, rad: pitch in [-pi/2, pi/2], others in [-pi, pi].

    At a pitch of +-pi/2 only the sum or the difference of roll and yaw is defined.
    """
    w, x, y, z = quat.unbind(-1)
    roll = torch.atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    pitch = torch.asin((2.0 * (w * y - z * x)).clamp(-1.0, 1.0))
    yaw = torch.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    return torch.stack([roll, pitch, yaw], dim=-1)


def quat_from_rotvec(rotvec: Tensor) -> Tensor:
    """Return the quaternions of rotation vectors `[..., 3]`: axis times angle, rad."""
    half = 0.5 * rotvec.norm(dim=-1, keepdim=True)
    return torch.cat([half.cos(), 0.5 * torch.sinc(half / math.pi) * rotvec], dim=-1)


def rotvec_from_quat(quat: Tensor) -> Tensor:
    """Return the rotation vectors `[..., 3]` of quaternions, of a length of at most pi, rad."""
    w, axis = quat[..., :1], quat[..., 1:]
    sine = axis.norm(dim=-1, keepdim=True)
    angle = 2.0 * torch.atan2(sine, w.abs())
    return torch.where(w < 0.0, -1.0, 1.0) * axis * torch.where(sine > 0.0, angle / sine, 2.0)


def compose_poses(pos: Tensor, quat: Tensor, inner_pos: Tensor, inner_quat: Tensor) -> tuple[Tensor, Tensor]:
    """Return position and quaternion, in the parent frame, of poses given in the frame of an outer pose.

    Args:
        pos: position of the outer frame in the parent frame, m.
        quat: orientation of the outer frame in the parent frame.
        inner_pos: position in the outer frame, m.
        inner_quat: orientation in the outer frame.
    """
    return pos + quat_apply(quat, inner_pos), quat_mul(quat, inner_quat)


def relative_pose(pos: Tensor, quat: Tensor, other_pos: Tensor, other_quat: Tensor) -> tuple[Tensor, Tensor]:
    """Return position and quaternion of another pose in the frame of a pose, both given in the same parent frame.

    Args:
        pos: position of the frame, m.
        quat: orientation of the frame.
        other_pos: position of the other frame, m.
        other_quat: orientation of the other frame.
    """
    inverse = quat_conjugate(quat)
    return quat_apply(inverse, other_pos - pos), quat_mul(inverse, other_quat)


# The host -------------------------------------------------------------------------------------------------------------


def rotation(quat: ArrayLike) -> NDArray[np.float64]:
    """Return the rotation matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = np.asarray(quat, np.float64)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def compose(
    pos: ArrayLike, quat: ArrayLike, inner_pos: ArrayLike, inner_quat: ArrayLike
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the pose of an inner frame, given relative to an outer one, in the parent of the outer one (float64)."""
    q, p = np.asarray(quat, np.float64), np.asarray(inner_quat, np.float64)
    q, p = q / np.linalg.norm(q), p / np.linalg.norm(p)
    v = np.asarray(inner_pos, np.float64)
    t = 2.0 * cross(q[1:], v)
    turned = v + q[0] * t + cross(q[1:], t)
    scalar = q[0] * p[0] - q[1:] @ p[1:]
    vector = q[0] * p[1:] + p[0] * q[1:] + cross(q[1:], p[1:])
    return tuple((np.asarray(pos, np.float64) + turned).tolist()), (float(scalar), *vector.tolist())


def cross(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cross products of vectors `[..., 3]`: the bits of `np.cross`, which takes three times as long."""
    (ax, ay, az), (bx, by, bz) = ((each[..., 0], each[..., 1], each[..., 2]) for each in (a, b))
    found = np.empty(np.broadcast_shapes(a.shape, b.shape))
    found[..., 0], found[..., 1], found[..., 2] = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    return found
