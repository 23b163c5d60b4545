"""Figures of a recorded sensor: rate, gaps, loss, latency, error and quantisation step, found in its data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array
from sensorium.spec import VECTOR_AXES, unit_of
from sensorium.view.knobs import amount_of, columns_of
from sensorium.view.panels import is_miss

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

LONGEST_LATENCY = 1.0
"""Maximum latency of the search, s, or 10 periods of the sensor if that is longer."""
MAX_POINTS = 2**20
"""Maximum number of points of a signal that is correlated."""
ORDER, FEWEST = 10, 32
"""Order of the autoregressive model of the errors of a signal, and the minimum number of samples of its fit."""
ANGLE = 0.2
"""Time over which samples are averaged for that fit, as an angle of the mean frequency of the signal, rad."""
PRECISION = 1e-3
"""Error of the interpolation of a signal, relative to its standard deviation."""
MAX_COLUMNS = 12
"""Most elements of a field that are listed one by one; larger fields have one row for all elements."""
SPREAD = 8.0
"""Minimum effective number of samples that carry the information on a latency; with fewer, it has no interval."""
EDGE = 5.0
"""Error of a range, in robust standard deviations (1.4826 median absolute deviations), from which on it is left out."""
FEWEST_GAPS = 4
"""Minimum number of intervals between different values that show a quantisation step."""
LEVELS = 4096
"""Maximum number of different values that are searched for a quantisation step."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When samples of a sensor were captured and when they arrived, in one environment.

    Attributes:
        samples: number of captures.
        rate_hz: mean rate outside gaps, Hz; NaN with less than two captures.
        gaps: number of gaps between captures.
        longest_gap: interval of the longest one, s; 0 without gaps.
        lost: share of the captures that no reader saw: they were lost, or a later one overtook them.
        delay: mean time from capture to arrival, s.
        delay_sd: its standard deviation, s.
        latency: latency by cross-correlation, s; NaN if the truth changes too little.
        latency_sd: standard deviation of that estimate, s.
    """

    samples: int
    rate_hz: float
    gaps: int
    longest_gap: float
    lost: float
    delay: float
    delay_sd: float
    latency: float
    latency_sd: float


@dataclass(frozen=True, slots=True)
class ErrorFigures:
    """Difference of measured and true values of the same captures, of one element of a field or of all.

    Attributes:
        field: name of the field.
        label: name of the element; empty for all.
        unit: unit of the numbers.
        mean: mean error.
        sd: standard deviation of the error.
        largest: largest error, absolute.
        missed: share of the true values that the measured ones miss, or that differ for ids and flags.
        step: quantisation step found in the measured values; 0 where there is none.
        configured_step: quantisation step in the config; 0 where there is none.
    """

    field: str
    label: str
    unit: str
    mean: float
    sd: float
    largest: float
    missed: float
    step: float
    configured_step: float


# Time -----------------------------------------------------------------------------------------------------------------


def timing_of(sensor: SensorRecording, env: int, dt: float) -> Timing:
    """Return when samples were captured and arrived.

    Args:
        sensor: the recorded sensor.
        env: column of the environment.
        dt: physics time step, s.
    """
    captured = sensor.truth_time[sensor.captures(env), env]
    intervals = np.diff(captured)
    is_gap = intervals > longest_interval(sensor, intervals, dt)
    regular = intervals[~is_gap]
    arrivals = sensor.arrivals(env)
    ages = sensor.age[arrivals, env]
    due = captured[captured <= sensor.time[-1] - ages.max(initial=0.0)] if len(captured) else captured
    seen = np.isin(due, sensor.capture_time[:, env])  # of those that do not arrive after the end
    return Timing(
        len(captured),
        len(regular) / float(regular.sum()) if len(regular) else np.nan,
        int(is_gap.sum()),
        float(intervals[is_gap].max(initial=0.0)),
        float(1.0 - seen.mean()) if len(due) else 0.0,
        float(ages.mean()) if len(ages) else np.nan,
        float(ages.std()) if len(ages) else np.nan,
        *latency_of(sensor, env, dt),
    )


def period_of(sensor: SensorRecording, dt: float) -> float:
    """Return the period of a sensor, s; at least the time step."""
    return max(1.0 / (sensor.info.get("rate_hz") or np.inf), dt)


def longest_interval(sensor: SensorRecording, intervals: Array, dt: float) -> float:
    """Return the maximum interval between two captures without a gap, s.

    It is 1.5 periods, or the period rounded up to time steps. The period is the mean of the intervals that are not much
    longer than most, or the configured one if that is shorter.
    """
    period = period_of(sensor, dt)
    if len(intervals):
        period = min(period, float(intervals[intervals <= 2.5 * np.median(intervals)].mean()))
    return max(1.5 * period, (math.ceil(period / dt - 1e-6) + 0.5) * dt)


def latency_of(sensor: SensorRecording, env: int, dt: float) -> tuple[float, float]:
    """Return the latency of a sensor by cross-correlation, and its standard deviation, s.

    The measured signal, as a reader gets it, is compared with the true one at earlier times, on a grid of time steps.
    The latency is the shift with the largest correlation, interpolated between grid points by a parabola, and refined
    by `_refined`. It contains delays and the lag of filters. Of a field with many elements, 12 are compared. Where the
    elements of a scan or an image were measured at different times, it is the mean over elements, with their standard
    deviation.

    Returns:
        NaN where the true signal changes too little to determine the latency to half a period.
    """
    captures, arrivals, period = sensor.captures(env), sensor.arrivals(env), period_of(sensor, dt)
    signals = [spec for spec in sensor.info.get("fields", ()) if _is_signal(sensor, spec)]
    unknown = (np.nan, np.nan)
    if not signals or len(captures) < 8 or len(arrivals) < 8:
        return unknown
    true_time, seen_time = sensor.truth_time[captures, env], sensor.time[arrivals]
    first, last = max(true_time[0], seen_time[0]), min(true_time[-1], seen_time[-1])
    step = dt * max(1, -(-round((last - first) / dt) // MAX_POINTS))
    most = int(min(max(LONGEST_LATENCY, 10.0 * period), (last - first) / 4.0) / step)
    if most < 2:
        return unknown
    start = first + most * step
    seen_grid = start + step * np.arange(int((last - 2 * step - start) / step) + 1)
    true_grid = start + step * np.arange(-most, len(seen_grid) + 2)
    independent = max(float(np.sum((seen_time >= start) & (seen_time <= last))), 1.0)
    residuals, is_part, pairs = [], [], []
    for spec in signals:
        count = columns_of(spec)
        chosen = np.unique(np.linspace(0, count - 1, min(count, MAX_COLUMNS)).astype(int))
        truth, measured = (
            branch[spec["name"]][rows, env].reshape(len(rows), -1)[:, chosen].astype(np.float64)
            for branch, rows in ((sensor.truth, captures), (sensor.measured, arrivals))
        )
        for true, seen in zip(truth.T, measured.T, strict=True):
            if not (np.isfinite(true).all() and np.isfinite(seen).all()):
                continue
            x, y = np.interp(true_grid, true_time, true), np.interp(seen_grid, seen_time, seen)
            if x.std() > 1e-6 * np.abs(x).max() and y.std() > 0.0:
                residuals.append(_residuals(x, y, most)[::-1])
                is_part.append(count > MAX_COLUMNS)
                pairs.append((true, seen))
    if not residuals:
        return unknown
    each = np.stack(residuals)  # share of the measured variance that the shifted truth does not explain, [signal, lag]
    least = np.maximum(each.min(axis=1), 1e-9)
    weighted = each / least[:, None]
    found, variance = _lowest(np.concatenate((weighted, weighted.sum(axis=0, keepdims=True))))
    latency = step * (found - 2.0)  # the first point is a shift by -2 steps
    deviation = step * np.sqrt(variance / independent)  # of white noise: the Cramer-Rao bound
    parts = latency[:-1][np.array(is_part) & (deviation[:-1] < 0.25 * period)]
    if len(parts) and np.ptp(parts) > 0.5 * period:
        return float(parts.mean()), float(parts.std())
    if not deviation[-1] <= 0.5 * period:
        return unknown
    refined, sd = _refined(pairs, true_time, seen_time, float(latency[-1]), step)
    return (refined, sd) if sd <= 0.5 * period else unknown


def _refined(
    pairs: list[tuple[Array, Array]], true_time: Array, seen_time: Array, latency: float, step: float
) -> tuple[float, float]:
    """Return a latency by generalised least squares, and its standard deviation, s, which holds for coloured errors.

    The measured signal is a multiple of the true one at an earlier time, plus a constant and an autoregressive error.
    Means over a small part of the time in which the signals change are compared, so that a low order suffices. The
    standard deviation is that of the residuals weighted by the slope of the signal (H. White, 1980), summed over
    signals, and so contains the jitter that they share.

    Args:
        pairs: true and measured values of each signal.
        true_time: times of the true values.
        seen_time: times of the measured values.
        latency: first estimate, s.
        step: time over which slopes are computed, s.
    """
    change, order, scores, information = 0.0, 0, np.zeros(1), np.zeros(1)
    for _ in range(3):
        times = seen_time - latency
        times, inside = times[known := (times > true_time[0] + step) & (times < true_time[-1] - step)], known
        if len(times) < FEWEST:
            return np.nan, np.nan
        near = [[np.interp(times + shift, true_time, true) for shift in (-step, 0.0, step)] for true, _ in pairs]
        pace = max((after - before).std() / (2.0 * step * at.std()) for before, at, after in near)  # rad/s
        mean = int(np.clip(ANGLE * len(times) / (pace * (times[-1] - times[0])), 1, len(times) // FEWEST))
        count = len(times) // mean
        order = min(ORDER, count // 8)
        scores, information = np.zeros((2, count - order))
        for (_, seen), (before, at, after) in zip(pairs, near, strict=True):
            columns = np.stack((seen[inside], at - at.mean(), np.ones_like(at), (after - before) / (2.0 * step)))
            columns = columns[:, : count * mean].reshape(4, count, mean).mean(axis=2).T
            rest = columns[:, 0] - columns[:, 1:] @ np.linalg.lstsq(columns[:, 1:], columns[:, 0], rcond=None)[0]
            lags = np.lib.stride_tricks.sliding_window_view(rest, order + 1)[:, ::-1]
            least = np.square(PRECISION * seen.std())  # of the interpolation, whose error is no noise
            power = lags[:, 1:].T @ lags[:, 1:] + len(lags) * least * np.eye(order)
            kernel = np.concatenate(([1.0], -np.linalg.solve(power, lags[:, 1:].T @ lags[:, 0])))
            white = np.stack([np.convolve(column, kernel, "valid") for column in columns.T], axis=1)
            other, both = white[:, 1:3], white[:, ::3]
            error, slope = (both - other @ np.linalg.lstsq(other, both, rcond=None)[0]).T
            if slope @ slope < 1e-6 * (white[:, 3] @ white[:, 3]):  # a ramp, whose delay is an offset
                continue
            weight = 1.0 / (np.mean(np.square(error - slope * (slope @ error) / (slope @ slope))) + least)
            scores, information = scores + weight * slope * error, information + weight * slope * slope
        if not information.any():
            return np.nan, np.nan
        change = scores.sum() / information.sum()
        latency -= change
    share = information / information.sum()
    if 1.0 / (share @ share) < SPREAD:
        return latency, np.nan
    # With leverage (HC3, MacKinnon and White 1985), since few samples may carry much of the information.
    rest = (scores - information * change) / (1.0 - share)
    sd = np.sqrt(np.sum(np.square(rest)) * len(rest) / max(len(rest) - order - 4, 1)) / information.sum()
    return latency, float(sd)


def _lowest(curves: Array) -> tuple[Array, Array]:
    """Return where curves `[curve, point]` are lowest, and the variance of one sample; NaN at an end of the curve."""
    best = np.argmin(curves[:, 1:-1], axis=1)[:, None] + 1
    before, at, after = (np.take_along_axis(curves, best + k, axis=1)[:, 0] for k in (-1, 0, 1))
    bend = before - 2.0 * at + after
    bend[(best[:, 0] == curves.shape[1] - 2) | (bend <= 0.0)] = np.nan
    return best[:, 0] + 0.5 * (before - after) / bend, 2.0 / bend


def _is_signal(sensor: SensorRecording, spec: Mapping[str, Any]) -> bool:
    """Return whether a field holds numbers that vary continuously."""
    fits = np.dtype(spec["dtype"]).kind == "f" and spec["axes"][1:2] != ["event"] and columns_of(spec) > 0
    return fits and spec["name"] in sensor.measured and spec["name"] in sensor.truth


def _residuals(x: Array, y: Array, most: int) -> Array:
    """Return 1 - r^2 of y with each part of x of its length, in the order of the parts `[part]`.

    Args:
        x: the true signal, longer than `y`.
        y: the measured signal.
        most: unused length of `x` before the part that has no shift.
    """
    count, parts = len(y), len(x) - len(y) + 1
    x, y = x - x.mean(), y - y.mean()
    size = 1 << (len(x) + count - 1).bit_length()
    cross = np.fft.irfft(np.fft.rfft(x, size) * np.conj(np.fft.rfft(y, size)), size)[:parts]
    sums, squares = (np.concatenate(([0.0], np.cumsum(values))) for values in (x, x * x))
    part_sum, part_square = sums[count:] - sums[:-count], squares[count:] - squares[:-count]
    variance = np.maximum(part_square - part_sum**2 / count, 1e-300)
    explained = np.maximum(cross, 0.0) ** 2 / (variance * float(y @ y))
    return 1.0 - np.minimum(explained, 1.0)


# Values ---------------------------------------------------------------------------------------------------------------


def errors_of(sensor: SensorRecording, spec: Mapping[str, Any], env: int) -> list[ErrorFigures]:
    """Return the figures of a field, one for each of at most 12 elements; one for all if there are more, or no error.

    Rotations have three elements, the rotation vector from the true to the measured orientation, rad. Errors of images
    of integers are in levels.

    Args:
        sensor: the recorded sensor.
        spec: description of the field, which is not ragged.
        env: column of the environment.
    """
    name = str(spec["name"])
    _, measured, truth = sensor.paired(name, env)
    if not len(measured):
        return []
    if np.dtype(spec["dtype"]).kind == "u" and spec.get("role") == "image" and spec.get("kind") not in ("id", "flag"):
        return [_levels(name, measured, truth)]
    if np.dtype(spec["dtype"]).kind != "f":
        differ = float(np.mean(measured != truth))
        return [ErrorFigures(name, "", "differ", np.nan, np.nan, np.nan, differ, 0.0, 0.0)]
    steps: Array | None = amount_of(sensor.info, spec, "resolution")
    labels = labels_of(sensor.info, spec)
    is_rotation = spec.get("kind") == "rotation"
    if is_rotation:
        errors = rotation_between(truth, measured).reshape(len(truth), -1)
        labels = [f"{label[:-1]}{axis}" for label in labels[::4] for axis in "xyz"]
        lost, known = ~np.isfinite(errors), np.ones(errors.shape, bool)
        found = np.zeros(errors.shape[1])
    else:
        seen, there = (values.reshape(len(values), -1) for values in (measured, truth))
        known = ~is_miss(sensor, spec, there)
        lost = is_miss(sensor, spec, seen) & known
        with np.errstate(invalid="ignore"):
            errors = np.where(known & ~lost, seen.astype(np.float64) - there, np.nan)
        if errors.shape[1] > MAX_COLUMNS and len(spec["unit"].split(", ")) == 1:  # common figures
            errors, lost, known, labels = errors.reshape(-1, 1), lost.reshape(-1, 1), known.reshape(-1, 1), [""]
            found = np.array([step_of(seen[~is_miss(sensor, spec, seen)])])
        else:
            found = np.array([step_of(column[~is_miss(sensor, spec, column)]) for column in seen.T])
    out = []
    for k, label in enumerate(labels):
        error = errors[np.isfinite(errors[:, k]), k]
        largest = float(np.abs(error).max()) if len(error) else np.nan
        if spec.get("role") == "range" and len(error):  # at edges, a ray measures another surface than the true one
            away = np.abs(error - np.median(error))
            error = error[away <= EDGE * (1.4826 * np.median(away) or np.inf)]
        mean, sd = (float(error.mean()), float(error.std())) if len(error) else (np.nan, np.nan)
        missed = float(lost[:, k].sum() / max(int(known[:, k].sum()), 1))
        configured = 0.0 if steps is None else float(steps[min(k, len(steps) - 1)])
        unit = "rad" if is_rotation else unit_of(spec["unit"], spec["shape"], k)
        out.append(ErrorFigures(name, label, unit, mean, sd, largest, missed, float(found[k]), configured))
    if not any(each.largest or each.missed or each.step or each.configured_step for each in out):
        return [replace(each, label="", unit="rad" if is_rotation else str(spec["unit"])) for each in out[:1]]
    return out


def _levels(name: str, measured: Array, truth: Array) -> ErrorFigures:
    """Return the figures of images of integers, from a histogram of the errors, since images are large."""
    most = int(np.iinfo(measured.dtype).max)
    counts = np.zeros(2 * most + 1, np.int64)
    for seen, there in zip(measured, truth, strict=True):
        counts += np.bincount((seen.astype(np.int64) - there + most).ravel(), minlength=len(counts))
    errors, total = np.arange(-most, most + 1), counts.sum()
    mean = float(counts @ errors / total)
    sd = math.sqrt(float(counts @ (errors - mean) ** 2 / total))
    largest = float(np.abs(errors[counts > 0]).max())
    return ErrorFigures(name, "", "levels", mean, sd, largest, 0.0, 0.0, 0.0)


def rotation_between(first: Array, second: Array) -> Array:
    """Return the rotation vectors `[..., 3]`, rad, from quaternions wxyz to others, in the frame of the former."""
    w, x, y, z = np.moveaxis(first.astype(np.float64), -1, 0)
    a, b, c, d = np.moveaxis(second.astype(np.float64), -1, 0)
    real = w * a + x * b + y * c + z * d
    part = np.stack([w * b - x * a - y * d + z * c, w * c - y * a - z * b + x * d, w * d - z * a - x * c + y * b], -1)
    part = np.where(real[..., None] < 0.0, -part, part)
    size = np.linalg.norm(part, axis=-1)
    angle = 2.0 * np.arctan2(size, np.abs(real))
    return part * np.where(size > 0.0, angle / np.maximum(size, 1e-300), 2.0)[..., None]


def step_of(values: Array) -> float:
    """Return the quantisation step of values: their greatest common step; 0 where they have none.

    Float values always are multiples of the step of their format, so only much larger steps count. Values that float32
    represents exactly count as float32.
    """
    levels = np.unique(values)
    if len(levels) <= FEWEST_GAPS:
        return 0.0
    with np.errstate(over="ignore"):
        single = levels.astype(np.float32)
    if (single == levels).all():  # as in messages that hold float32 values as float64
        levels = single
    rounding = float(np.spacing(np.abs(levels).max()))
    if len(levels) > LEVELS:
        middle = len(levels) // 2 - LEVELS // 2
        levels = levels[middle : middle + LEVELS]
    gaps = np.sort(np.diff(levels.astype(np.float64)))
    step, used, checked = float(gaps[0]), 0, 0
    for gap in gaps.tolist():  # Euclid's algorithm, with remainders below the rounding taken as 0
        while step > 16.0 * rounding:
            count = round(gap / step)
            if 16.0 * rounding * count > step:  # the rounding of so many steps hides a remainder
                break
            rest = abs(gap - step * count)
            if rest <= 4.0 * rounding * (1 + count):
                used, checked = used + 1, checked + 1
                break
            step, gap, used = rest, step, 0
    if used < FEWEST_GAPS or 2 * checked < len(gaps):
        return 0.0
    return float(gaps.sum() / np.rint(gaps / step).sum())


def labels_of(info: Mapping[str, Any], spec: Mapping[str, Any]) -> list[str]:
    """Return the names of a field's elements, e.g. ``"left_foot x"``, in their order in memory.

    The constant ``joint_names`` of the description names the items of an axis ``joint``.
    """
    constants, words = info.get("constants", {}), []
    for axis, size in zip(spec["axes"][1:], spec["shape"], strict=True):
        names = info.get("mounts", ()) if axis == "mount" else constants.get(f"{axis}_names", ())
        if axis in VECTOR_AXES and len(axis) == size:
            names = list(axis)
        elif axis == "lla":
            names = ["latitude", "longitude", "altitude"]
        elif axis == "mount" and size == 1:
            names = [""]
        words.append([str(name) for name in names] if len(names) == size else [f"{axis} {k}" for k in range(size)])
    return [" ".join(filter(None, each)) for each in product(*words)]
