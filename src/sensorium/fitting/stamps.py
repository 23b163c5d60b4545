"""Rate, jitter, resolution, drop-outs and drift of time stamps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.readings import Array
from sensorium.view.figures import step_of

FEWEST = 64
"""Minimum number of samples that give a rate."""
SPAN = 4
"""Number of periods whose median gives the first estimate, which a coarse grid of stamps does not bias."""
COHERENT = 256
"""Number of samples in which the first estimate is refined."""
WHOLE = 0.99
"""Minimum step of stamps, in periods, that is the period itself."""
FEWEST_SPANS = 8
"""Number of spans of stamps above which their means give the interval of the period, so that a wander counts."""
SHARED_PLACES = 0.01
"""Maximum share of samples whose place on the grid another sample has."""
Z = 1.96
"""Half width of a 95 % interval, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """Where samples are on an even grid in time.

    Attributes:
        period: time between two samples, s.
        period_sd: standard deviation of that estimate, s.
        place: int64 `[row]`, place of each sample; it increases.
        rows: the rows of these samples; of several samples at one place the first is kept.
        jitter: standard deviation of the stamps around the grid, s.
        resolution: step of the stamps, s; 0 if they have none.
    """

    period: float
    period_sd: float
    place: Array
    rows: Array
    jitter: float
    resolution: float

    @property
    def is_lost(self) -> Array:
        """Whether the sample of each place is missing, bool `[place]`."""
        lost = np.ones(int(self.place[-1]) + 1, bool)
        lost[self.place] = False
        return lost


def stamps_of(time: Array) -> Stamps:
    """Return where samples are on an even grid, of any stamps: with jitter, on a coarse grid, and with samples lost.

    Args:
        time: stamps, s, which do not decrease.

    Raises:
        ArgumentError: the stamps do not give a rate; the message says why.
    """
    period = first_period(time)
    used = min(16, len(time))
    place = np.zeros(0, np.int64)
    while True:  # twice as many samples in each round, so that the error of the period stays below half a place
        turns = np.angle(np.exp(2j * np.pi * (time[:used] - time[0]) / period).mean()) / (2.0 * np.pi)
        place = np.rint((time[:used] - time[0]) / period - turns).astype(np.int64)
        for _ in range(3):
            (period, start), _ = _line(place, time[:used])
            place = np.rint((time[:used] - start) / period).astype(np.int64)
        if used == len(time):
            break
        used = min(2 * used, len(time))
    place = place - place[0]
    kept = np.flatnonzero(np.diff(place, prepend=-1) > 0)
    if len(kept) < (1.0 - SHARED_PLACES) * len(time):
        raise ArgumentError(
            f"time: {len(time) - len(kept)} of {len(time)} stamps are nearer to another sample's place on the grid of "
            f"{1.0 / period:.4g} Hz than half a period, expected stamps with less jitter. Use the stamps of the device."
        )
    place = place[kept]
    (period, _), (period_sd, jitter) = _line(place, time[kept])
    resolution = step_of(time - time[0]) if np.ptp(np.round(np.diff(time), 9)) > 0.0 else 0.0
    if resolution > WHOLE * period:  # the step of exact stamps is their period
        resolution = 0.0
    if resolution:
        period, period_sd = _on_grid(place, time[kept], resolution) or (period, period_sd)
    return Stamps(period, period_sd, place, kept, jitter, resolution)


def first_period(time: Array) -> float:
    """Return the period to a few per cent: near a median of steps, where the stamps are most coherent.

    Raises:
        ArgumentError: there are too few stamps, they decrease, or most are equal.
    """
    if len(time) < FEWEST:
        raise ArgumentError(f"samples: got {len(time)}, expected at least {FEWEST} for a rate. Record for longer.")
    steps = np.diff(time)
    if (steps < 0.0).any():
        row = int(np.argmax(steps < 0.0)) + 1
        raise ArgumentError(
            f"time: the stamp of row {row} is {-steps[row - 1]:.3g} s before that of the row before, expected stamps "
            "that increase. Sort the rows, or cut the log where its clock was set."
        )
    guess = float(np.median(time[SPAN:] - time[:-SPAN])) / SPAN
    if not guess > 0.0:
        raise ArgumentError("time: most stamps are equal, expected stamps that increase. Use the stamps of the device.")
    part = time[:COHERENT] - time[0]
    candidates = guess * np.linspace(0.9, 1.1, 1001)
    coherence = np.abs(np.exp(2j * np.pi * part[:, None] / candidates).mean(axis=0))
    return float(candidates[np.argmax(coherence)])


def _on_grid(place: Array, time: Array, step: float) -> tuple[float, float] | None:
    """Return the period and its standard deviation from stamps that are rounded to a step; None if they also jitter.

    All true times are on one side of their stamps, by less than a step: t <= start + period place < t + step. All
    periods and starts that fulfil this are equally likely, so the density of a period is the width of its starts.
    """
    centre = float(np.ptp(time) / np.ptp(place))
    rest = time - time[0] - centre * place
    if np.ptp(rest) > 5.0 * step:  # no shift below mends that
        return None
    low, high = -2.0 * step / np.ptp(place), 2.0 * step / np.ptp(place)
    for _ in range(5):
        shifts = np.linspace(low, high, 17)
        widths = np.array([step - np.ptp(rest - shift * place) for shift in shifts])
        near = np.flatnonzero((widths > 0.0) | (widths == widths.max()))
        low, high = shifts[max(near[0] - 1, 0)], shifts[min(near[-1] + 1, 16)]
    density = np.maximum(widths, 0.0)
    if not (total := density.sum()):
        return None
    mean = float(density @ shifts / total)
    return centre + mean, math.sqrt(float(density @ np.square(shifts - mean) / total))


def _line(place: Array, time: Array) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return slope and start of a line through stamps, and the standard deviations of its slope and of the stamps.

    That of the stamps is computed within spans of 64 samples, so that a wander of the clock does not count.
    """
    centre = place.mean()
    x = place - centre
    power = float(x @ x)
    slope = float(x @ (time - time.mean())) / power
    rest = time - time.mean() - slope * x
    size = min(64, len(rest))
    spans = rest[: len(rest) // size * size].reshape(-1, size)
    jitter = math.sqrt(float(np.mean(spans.var(axis=1))) * size / max(size - 1, 1))
    blocks, colour = spans.mean(axis=1), 1.0
    if len(blocks) > FEWEST_SPANS and jitter:
        follow = min(max(float(blocks[1:] @ blocks[:-1] / (blocks @ blocks)), 0.0), 0.97)
        colour = math.sqrt(size * blocks.var() * (1.0 + follow) / (1.0 - follow)) / jitter
    return (slope, float(time.mean() - slope * centre)), (colour * jitter / math.sqrt(power), jitter)


def share(count: int, total: int) -> tuple[float, float, float]:
    """Return a probability and its 95 % interval of `count` events in `total` trials (E. B. Wilson, 1927)."""
    value, spread = count / total, Z * Z / total
    middle, half = value + 0.5 * spread, Z * math.sqrt(value * (1.0 - value) / total + 0.25 * spread / total)
    return value, max((middle - half) / (1.0 + spread), 0.0), min((middle + half) / (1.0 + spread), 1.0)


def bursts(lost: Array) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return the probabilities p and r of Gilbert-Elliott losses with their 95 % intervals.

    Args:
        lost: bool `[place]`, neither the first nor the last one lost. Without losses, r is not determined.
    """
    starts = int(np.count_nonzero(lost[1:] & ~lost[:-1]))
    return share(starts, int(np.count_nonzero(~lost[:-1]))), share(starts, max(int(np.count_nonzero(lost)), 1))


def drift_of(time: Array, arrival: Array) -> tuple[float, float]:
    """Return the rate error of a sensor's clock relative to the computer's, ppm, and its standard deviation.

    The least delay of each of 32 spans is compared, since transport only adds to it.
    """
    spans = np.array_split(np.arange(len(time)), 32)
    first = np.array([rows[np.argmin(arrival[rows] - time[rows])] for rows in spans])
    x, y = arrival[first] - arrival[first].mean(), time[first] - arrival[first]
    slope = float(x @ (y - y.mean()) / (x @ x))
    rest = y - y.mean() - slope * x
    return 1e6 * slope, 1e6 * math.sqrt(float(rest @ rest) / (len(x) - 2) / float(x @ x))
