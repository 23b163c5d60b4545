"""Motion of the demo's arm, which presses its fingertip on an object and strokes it. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import numpy as np
from numpy.typing import ArrayLike, NDArray

SHOULDER, UPPER, FOREARM, HAND = 0.2, 0.25, 0.22, 0.12
"""Height of the shoulder, and lengths of the links up to the centre of the fingertip, m."""
TIP = 0.012
"""Radius of the fingertip, m."""
OBJECT, TOP = (0.35, 0.0), 0.04
"""Place of the object, and the height of its top, m."""


def joints(x: ArrayLike, y: ArrayLike, z: ArrayLike) -> NDArray[np.float64]:
    """Return the angles of the four joints `[..., 4]`, rad, that put the fingertip's centre at points, hand down."""
    reach, height = np.hypot(x, y), np.subtract(z, SHOULDER - HAND)
    far = np.minimum(np.hypot(reach, height), UPPER + FOREARM - 1e-6)
    bend = np.arccos((far**2 - UPPER**2 - FOREARM**2) / (2.0 * UPPER * FOREARM))
    rise = np.arctan2(height, reach) + np.arccos((UPPER**2 + far**2 - FOREARM**2) / (2.0 * UPPER * far))
    return np.stack(np.broadcast_arrays(np.arctan2(y, x), -rise, bend, rise - bend + pi / 2.0), axis=-1)


@dataclass(frozen=True, slots=True)
class Stroke:
    """A stroke: the fingertip comes down on the object and moves over it along a figure of eight.

    Args:
        period: duration of one figure, s; an array `[env]` gives one per environment.
        approach: time until the fingertip is down, s.
        above: height above the object at the start, m.
        press: depth of the targets below the surface, m: the servos' compliance makes it a force.
        width: half size of the figure along x and y, m.
    """

    period: ArrayLike = 3.0
    approach: float = 1.0
    above: float = 0.03
    press: float = 0.012
    width: tuple[float, float] = (0.018, 0.012)

    def targets(self, time: float) -> NDArray[np.float64]:
        """Return the joint targets `[4]` or `[env, 4]` at a time, s."""
        u = min(max(time / self.approach, 0.0), 1.0)
        down = u * u * (3.0 - 2.0 * u)
        phase = 2.0 * pi * max(time - self.approach, 0.0) / np.asarray(self.period)
        x = OBJECT[0] + self.width[0] * np.sin(phase)
        y = OBJECT[1] + self.width[1] * np.sin(2.0 * phase)
        return joints(x, y, TOP + TIP + (1.0 - down) * self.above - down * self.press)
