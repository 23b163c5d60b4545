"""An open-loop trot for the demo quadruped: foot paths as functions of time, turned into joint targets in closed form.

Leg kinematics. Let ``(x, y, z)`` be the foot's centre relative to the leg's abduction axis, in the trunk's axes,
``d`` the signed sideways offset of the flexion axis (positive on the left), ``l1`` the thigh and ``l2`` the shank.
Seen along the abduction axis, the foot lies ``h`` below the flexion axis::

    x = -l1 sin q2 - l2 sin(q2 + q3)        y = d cos q1 + h sin q1
    h =  l1 cos q2 + l2 cos(q2 + q3)        z = d sin q1 - h cos q1

which inverts, for a foot below its hip and a knee that bends backwards, to::

    h  = sqrt(y^2 + z^2 - d^2)              q1 = atan2(y h + z d, y d - z h)
    q3 = -acos((x^2 + h^2 - l1^2 - l2^2) / (2 l1 l2))
    q2 = atan2(-x a - h b, h a - x b)       with a = l1 + l2 cos q3, b = l2 sin q3

Legs are ordered FL, FR, RL, RR and a leg's joints hip (abduction, ``q1``), thigh (``q2``), knee (``q3``), as are the
model's joints and actuators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import pi
from typing import Final

import torch
from torch import Tensor

from sensorium.geometry.transforms import angle_of

LEGS: Final = ("FL", "FR", "RL", "RR")
"""The legs, in the order of the model's joints and actuators."""

HOME_HEIGHT: Final = 0.30
"""Height of the abduction axes above the feet's centres that the model's ``home`` keyframe commands, in m."""

MIDDLE: Final = (4.0, 0.0)
"""Centre of the model's uneven ground, in m."""
STRAIGHT: Final = (5.0, 2.0)
"""Distances from the centre along x and y within which `steer` does not turn, in m."""
BLEND: Final = 0.5
"""Distance over which `steer` goes from not turning to turning, in m."""
TURN_GAIN: Final = 1.0
"""Commanded yaw rate of `steer` per angle between the heading and the centre, in 1/s."""
MAX_TURN_RATE: Final = 0.6
"""Highest yaw rate that `steer` commands, in rad/s."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Lengths of the legs, in m, as in the model file.

    Args:
        hip_x: distance of the abduction joints' centres before and behind the trunk's origin.
        hip_y: distance of the abduction axes to the left and right of the trunk's origin.
        offset: sideways distance from the abduction axis to the flexion axis.
        thigh: distance from the flexion axis to the knee axis.
        shank: distance from the knee axis to the foot's centre.

    """

    hip_x: float = 0.21
    hip_y: float = 0.06
    offset: float = 0.07
    thigh: float = 0.20
    shank: float = 0.22

    def forward(self, joints: Tensor) -> Tensor:
        """Foot centres [..., 4, 3] from the legs' abduction joints, in trunk axes, for joint angles [..., 12]."""
        q1, q2, q3 = joints.reshape(*joints.shape[:-1], 4, 3).unbind(-1)
        d = self._sides(joints) * self.offset
        x = -self.thigh * torch.sin(q2) - self.shank * torch.sin(q2 + q3)
        h = self.thigh * torch.cos(q2) + self.shank * torch.cos(q2 + q3)
        return torch.stack((x, d * torch.cos(q1) + h * torch.sin(q1), d * torch.sin(q1) - h * torch.cos(q1)), dim=-1)

    def inverse(self, feet: Tensor) -> Tensor:
        """Joint angles [..., 12] that put the foot centres at `feet` [..., 4, 3] (frames as in `forward`).

        A foot out of reach is approached with the leg straight (or fully folded) instead.
        """
        x, y, z = feet.unbind(-1)
        d = self._sides(feet) * self.offset
        h = (y * y + z * z - d * d).clamp_min(0.0).sqrt()
        q1 = angle_of(y * h + z * d, y * d - z * h)
        cosine = (x * x + h * h - self.thigh**2 - self.shank**2) / (2.0 * self.thigh * self.shank)
        q3 = -torch.acos(cosine.clamp(-1.0, 1.0))
        a = self.thigh + self.shank * torch.cos(q3)
        b = self.shank * torch.sin(q3)
        q2 = angle_of(-x * a - h * b, h * a - x * b)
        return torch.stack((q1, q2, q3), dim=-1).flatten(-2)

    def _sides(self, like: Tensor) -> Tensor:
        return torch.tensor((1.0, -1.0, 1.0, -1.0), dtype=like.dtype, device=like.device)


@dataclass(frozen=True, slots=True)
class Trot:
    """A trot: diagonal legs step together, the two pairs half a cycle apart.

    In stance a foot moves straight back at the commanded speed. In swing it moves forward along a cubic that leaves and
    reaches the ground at that same speed, lifted by a smooth bump. The step length grows from zero over the first
    `ramp` seconds, starting at the model's ``home`` stance. The gait is open-loop: equal times give equal targets.

    Args:
        frequency: strides per second.
        duty: fraction of the stride that a foot spends on the ground, in (0, 1).
        step_length: distance the trunk travels while a foot is down, in m; negative walks backwards.
        swing_height: height of a foot in mid-swing above its stance path, in m.
        body_height: height of the abduction axes above the stance feet's centres, in m.
        turn_rate: commanded yaw rate in rad/s, positive to the left.
        ramp: duration of the soft start, in s.
        geometry: the leg lengths.

    """

    frequency: float = 2.4
    duty: float = 0.5
    step_length: float = 0.12
    swing_height: float = 0.06
    body_height: float = 0.30
    turn_rate: float = 0.0
    ramp: float = 0.5
    geometry: Geometry = field(default_factory=Geometry)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not self.frequency > 0.0:
            raise ValueError(f"frequency must be positive, got {self.frequency}")
        if not 0.0 < self.duty < 1.0:
            raise ValueError(f"duty must lie in (0, 1), got {self.duty}")
        if not self.ramp >= 0.0:
            raise ValueError(f"ramp must not be negative, got {self.ramp}")

    @property
    def speed(self) -> float:
        """Commanded forward speed, in m/s; slip and servo lag leave about two thirds of it."""
        return self.step_length * self.frequency / self.duty

    def targets(self, t: float | Tensor, turn_rate: Tensor | None = None) -> Tensor:
        """Return joint targets [..., 12] at time `t` in s: a number, or a tensor of any shape [...].

        Args:
            t: time, s.
            turn_rate: commanded yaw rate [...], rad/s; None uses the gait's own.
        """
        time = t if isinstance(t, Tensor) else torch.tensor(float(t), dtype=torch.float64, device="cpu")
        joints = self.geometry.inverse(self.feet(time, turn_rate))
        return joints if isinstance(t, Tensor) else joints.to(torch.get_default_dtype())

    def phase(self, time: Tensor) -> Tensor:
        """Phase of each leg in its stride [..., 4]: stance from 0 to `duty`, swing from there to 1."""
        time = time if time.is_floating_point() else time.to(torch.get_default_dtype())
        start = torch.tensor((0.0, 0.5, 0.5, 0.0), dtype=time.dtype, device=time.device)
        return torch.remainder(time.unsqueeze(-1) * self.frequency + start, 1.0)

    def stance(self, time: Tensor) -> Tensor:
        """Whether each foot is in stance [..., 4]."""
        return self.phase(time) < self.duty

    def feet(self, time: Tensor, turn_rate: Tensor | None = None) -> Tensor:
        """Return commanded foot centres [..., 4, 3] relative to the legs' abduction joints, in trunk axes, in m.

        Args:
            time: time [...], s.
            turn_rate: commanded yaw rate [...], rad/s; None uses the gait's own.
        """
        phase = self.phase(time)
        g = self.geometry
        front = torch.tensor((1.0, 1.0, -1.0, -1.0), dtype=phase.dtype, device=phase.device)
        left = torch.tensor((1.0, -1.0, 1.0, -1.0), dtype=phase.dtype, device=phase.device)

        swing = ((phase - self.duty) / (1.0 - self.duty)).clamp(0.0, 1.0)
        back = (1.0 - self.duty) / self.duty
        forth = -0.5 + swing**2 * (3.0 - 2.0 * swing) - back * swing * (1.0 - swing) * (1.0 - 2.0 * swing)
        along = torch.where(phase < self.duty, 0.5 - phase / self.duty, forth)
        lift = torch.sin(pi * swing) ** 2

        rate = self.turn_rate if turn_rate is None else turn_rate.unsqueeze(-1)
        turn = rate * self.duty / self.frequency
        stride_x = self.step_length - turn * left * (g.hip_y + g.offset)
        stride_y = turn * front * g.hip_x
        grown = self._grown(time).to(phase.dtype).unsqueeze(-1)
        height = HOME_HEIGHT + grown * (self.body_height - HOME_HEIGHT)
        parts = torch.broadcast_tensors(  # type: ignore[no-untyped-call]
            grown * along * stride_x,
            left * g.offset + grown * along * stride_y,
            grown * lift * self.swing_height - height,
        )
        return torch.stack(parts, dim=-1)

    def _grown(self, time: Tensor) -> Tensor:
        u = (time / self.ramp).clamp(0.0, 1.0) if self.ramp > 0.0 else (time >= 0.0).to(torch.get_default_dtype())
        return u * u * (3.0 - 2.0 * u)


def steer(trunk: Tensor) -> Tensor:
    """Return yaw rates [env], rad/s, that keep a trot on the demo's uneven ground.

    The robot walks straight over the centre of the ground. Near its rim it turns to the centre.

    Args:
        trunk: the trunk's position and quaternion (w, x, y, z) in world axes [env, 7], m.
    """
    x, y, _, qw, qx, qy, qz = trunk.unbind(-1)
    away_x, away_y = x - MIDDLE[0], y - MIDDLE[1]
    outside = torch.maximum(away_x.abs() - STRAIGHT[0], away_y.abs() - STRAIGHT[1])
    u = (outside / BLEND).clamp(0.0, 1.0)
    heading = angle_of(2.0 * (qw * qz + qx * qy), 1.0 - 2.0 * (qy * qy + qz * qz))
    error = torch.remainder(angle_of(-away_y, -away_x) - heading + pi, 2.0 * pi) - pi
    return u * u * (3.0 - 2.0 * u) * (TURN_GAIN * error).clamp(-MAX_TURN_RATE, MAX_TURN_RATE)
