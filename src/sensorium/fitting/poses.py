"""Bias, scale and misalignment of an accelerometer, from its readings at rest in several poses.

Gravity has the same length in all poses: |M^-1 (y - b)| = g for the mean y of each pose (D. Tedaldi, A. Pretto and E.
Menegatti, ICRA 2014). A rotation of the sensor has no effect on lengths, so M is an upper triangle: its axes are those
of the frame of z.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.fitting.result import Fit, Parameter
from sensorium.fitting.samples import Samples
from sensorium.fitting.stamps import stamps_of
from sensorium.readings import Array

STANDARD_GRAVITY = 9.80665
"""Standard gravity, m/s^2 (CGPM 1901); it differs from local gravity by up to 0.3 %."""
FEWEST, FEWEST_OF_ALL = 9, 12
"""Minimum number of poses of bias and scale, and of all parameters: six or nine, and three poses whose residuals give
the intervals.
"""
STILL, QUIET = 0.5, 4.0
"""Length of a window that is at rest or not, s; maximum ratio of its variance to that of the calmest windows."""
TURN = 0.1
"""Minimum distance of the directions of two poses, as a share of gravity."""
WORST = 100.0
"""Maximum condition number of the problem, in relative units."""
PAIRS = ("xy", "xz", "yz")
ROUNDS = 30


def fit_poses(samples: Samples, *, gravity: float = STANDARD_GRAVITY) -> Fit:
    """Return bias, scale and misalignment of an accelerometer that rested in at least 9 different poses.

    Fewer than 12 poses give bias and scale only. A misalignment is then part of the residuals, and so of the intervals.

    Args:
        samples: samples of an IMU with `lin_acc_b`, m/s^2: rests of a second or more, in any directions, with turns
            between them.
        gravity: gravity at the place of the log, m/s^2; an error of it is an error of the scale.

    Raises:
        ArgumentError: the poses are too few or too similar, or values or stamps are damaged.
    """
    if "lin_acc_b" not in samples.values:
        raise ArgumentError(f"poses: got the fields {', '.join(samples.values)}, expected lin_acc_b.")
    samples.check()
    y = _poses(samples)
    bias, matrix = np.zeros(3), np.eye(3)
    upper = np.triu_indices(3) if len(y) >= FEWEST_OF_ALL else np.diag_indices(3)
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(matrix)
        true = (y - bias) @ inverse.T
        size = np.linalg.norm(true, axis=1)
        pull = true / size[:, None] @ inverse  # derivative of the length by y
        # The length falls by pull . (db + dM true); M changes in units of 1 / gravity, for the condition number.
        j = np.concatenate((pull, pull[:, upper[0]] * true[:, upper[1]] / gravity), axis=1)
        rest = size - gravity
        if not (worst := float(np.linalg.cond(j))) < WORST:
            raise ArgumentError(
                f"poses: {len(y)} poses have a condition number of {worst:.3g}, expected at most {WORST:g}: they do "
                "not determine all parameters. Add poses in other directions, also with axes between level and upright."
            )
        change = np.linalg.lstsq(j, rest, rcond=None)[0]
        bias = bias + change[:3]
        matrix[upper] += change[3:] / gravity
    degrees = len(y) - len(change)
    covariance = float(rest @ rest) / degrees * np.linalg.inv(j.T @ j)
    unit = np.array([1.0] * 3 + [1.0 / gravity] * len(upper[0]))
    place = {"xyz"[row] + "xyz"[column]: 3 + k for k, (row, column) in enumerate(zip(*upper, strict=True))}
    return _result(samples, bias, matrix, covariance * np.outer(unit, unit), place, _student(degrees), len(y))


def _poses(samples: Samples) -> Array:
    """Return the means of the rests, one per direction, `[pose, 3]`."""
    stamps = stamps_of(samples.time)
    values = samples.values["lin_acc_b"][stamps.rows]
    size = max(round(STILL / stamps.period), 8)
    count = len(values) // size
    windows = values[: count * size].reshape(count, size, 3)
    level = windows.var(axis=1).sum(axis=1)
    still = level <= QUIET * np.quantile(level, 0.1)
    # The first and the last window of a rest are partly in motion.
    inner = still & np.concatenate(([False], still[:-1])) & np.concatenate((still[1:], [False]))
    edges = np.flatnonzero(np.diff(np.concatenate(([0], inner, [0])))).reshape(-1, 2)
    found: list[Array] = []
    for first, last in edges.tolist():
        mean = windows[first:last].mean(axis=(0, 1))
        if all(np.linalg.norm(mean - other) > TURN * STANDARD_GRAVITY for other in found):
            found.append(mean)
    if len(found) < FEWEST:
        raise ArgumentError(
            f"poses: got {len(found)} rests in different directions, expected at least {FEWEST}. Hold the sensor still "
            "for 2 s or more in each of them."
        )
    return np.array(found)


def _student(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t (Abramowitz & Stegun 26.7.5); 2 % too low for 3 degrees."""
    z, n = 1.959964, float(degrees)
    return (
        z
        + (z**3 + z) / (4.0 * n)
        + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * n**2)
        + (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / (384.0 * n**3)
    )


def _result(
    samples: Samples,
    bias: Array,
    matrix: Array,
    covariance: Array,
    place: Mapping[str, int],
    quantile: float,
    count: int,
) -> Fit:
    """Return parameters and fields of the preset; `place` is the row of each element of M, after those of b."""
    parameters: dict[str, Parameter] = {}
    refused: dict[str, str] = {}

    def add(name: str, value: float, unit: str, gradient: dict[int, float]) -> None:
        rows, slopes = [*gradient], np.array([*gradient.values()])
        half = quantile * math.sqrt(float(slopes @ covariance[np.ix_(rows, rows)] @ slopes))
        method = f"length of gravity in {count} poses (Tedaldi et al. 2014)"
        parameters[f"lin_acc_b.{name}"] = Parameter(
            float(value), unit, float(value) - half, float(value) + half, method, samples.source
        )

    cross = matrix / np.diag(matrix)  # M = T (I + S), as in the stage
    for k, axis in enumerate("xyz"):
        add(f"bias.{axis}", bias[k], "m/s^2", {k: 1.0})
        add(f"scale.{axis}", matrix[k, k] - 1.0, "1", {place[2 * axis]: 1.0})
    for pair in PAIRS:
        if pair not in place:
            refused[f"lin_acc_b.cross_axis.{pair}"] = f"{count} poses are too few, expected at least {FEWEST_OF_ALL}"
            continue
        row, column = ("xyz".index(axis) for axis in pair)
        own = matrix[column, column]
        gradient = {place[pair]: 1.0 / own, place[2 * pair[1]]: -cross[row, column] / own}
        add(f"cross_axis.{pair}", cross[row, column], "1", gradient)
    stage = {
        "kind": "scale_error",
        "fields": ["lin_acc_b"],
        "scale": (np.diag(matrix) - 1.0).tolist(),
        "cross_axis": cross[~np.eye(3, dtype=bool)].tolist(),
    }
    fields = {"fields": ["lin_acc_b"], "bias": {"lin_acc_b": bias.tolist()}, "stages": [stage]}
    return Fit("imu", samples.source, parameters, refused, fields)
