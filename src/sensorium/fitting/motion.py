"""Angular velocity and specific force of a body whose poses are known, as the reference of an IMU.

Derivatives amplify the noise of poses, most of all at high frequencies. A Gaussian kernel therefore smooths reference
and sensor alike: y = b + M x holds for smoothed values too. Its width is the least at which the noise of the reference
is small beside the motion. White noise of sd e in poses every h s, after a kernel of sd s, leaves the variance
e^2 h / (4 sqrt(pi) s^3) in first derivatives and 3 e^2 h / (8 sqrt(pi) s^5) in second ones. These are the integrals of
w^2 and w^4 over the squared gain of the kernel.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.fitting.reference import interpolated
from sensorium.fitting.samples import UNITS, Samples
from sensorium.fitting.stamps import stamps_of
from sensorium.pose import rotate
from sensorium.readings import Array

if TYPE_CHECKING:
    from sensorium.engines.trajectory.trajectory import Trajectory

NARROWEST = 1.5
"""Minimum standard deviation of the kernel, in samples of the slower log."""
WIDEST, WIDER = 0.1, 1.2
"""Maximum standard deviation of the kernel, s; ratio of two that are tried."""
CLEAN = 3e-4
"""Maximum variance of the reference's noise, as a share of the variance of the motion: the relative error of scales."""
REACH = 5
"""Half length of the kernel, standard deviations."""


def with_motion(samples: Samples, poses: Trajectory, gravity: float) -> tuple[Samples, Samples]:
    """Return a smoothed sensor, and angular velocity and specific force of the poses, smoothed by the same kernel.

    Args:
        samples: samples of the sensor.
        poses: poses of its frame in a world whose z axis points up.
        gravity: gravity, m/s^2.

    Raises:
        ArgumentError: the poses are too noisy for the motion.
    """
    samples.check()
    stamps = stamps_of(samples.time)
    samples = samples.rows(stamps.rows)
    step = float(np.median(np.diff(poses.times)))
    motion = poses.at(step * np.arange(1, int(poses.duration / step)))
    world = {"ang_vel_b": motion.ang_vel, "lin_acc_b": motion.lin_acc + np.array([0.0, 0.0, gravity])}
    x = {name: rotate(motion.quat * [1.0, -1.0, -1.0, -1.0], each) for name, each in world.items()}
    true = Samples(step * np.arange(1, 1 + len(motion.pos)), x, UNITS, "poses", start=1e-9 * poses.start_ns)
    noise = {"ang_vel_b": 2.0 * _noise(poses.quat), "lin_acc_b": _noise(poses.pos)}
    width = NARROWEST * max(step, stamps.period)
    while width < WIDEST:
        smooth = _smoothed(true, step, width)
        left = {
            "ang_vel_b": noise["ang_vel_b"] ** 2 * step / (4.0 * math.sqrt(math.pi) * width**3),
            "lin_acc_b": 3.0 * noise["lin_acc_b"] ** 2 * step / (8.0 * math.sqrt(math.pi) * width**5),
        }
        if all(left[name] < CLEAN * smooth.values[name].var(axis=0).mean() for name in samples.values if name in left):
            return _smoothed(samples, stamps.period, width), smooth
        width *= WIDER
    raise ArgumentError(
        f"reference: its poses have a noise of {noise['lin_acc_b']:.2g} m and {noise['ang_vel_b']:.2g} rad, expected "
        "less noise or more motion: their derivatives are mostly noise. Move faster, or smooth the poses."
    )


def _noise(values: Array) -> float:
    """Return the sd of white noise on each of three axes, from fourth differences, which show little of a motion."""
    sds = np.median(np.abs(np.diff(values, 4, axis=0)), axis=0) / (0.6745 * math.sqrt(70.0))
    return math.sqrt(float(sds @ sds) / 3.0)


def _smoothed(samples: Samples, step: float, width: float) -> Samples:
    """Return samples on an even grid after a Gaussian kernel, without the ends that it does not cover."""
    reach = math.ceil(REACH * width / step)
    kernel = np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) * step / width))
    time = np.arange(samples.time[0], samples.time[-1], step)
    values = {}
    for name, each in samples.values.items():
        even = interpolated(samples.time, each, time)
        values[name] = np.stack([np.convolve(column, kernel / kernel.sum(), "valid") for column in even.T], axis=1)
    arrival = None if samples.arrival is None else np.interp(time, samples.time, samples.arrival)[reach:-reach]
    return replace(samples, time=time[reach:-reach], values=values, arrival=arrival)
