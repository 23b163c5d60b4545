"""Tests whether values are stationary noise, as that of a sensor at rest, and not motion.

Each test compares variances, and fails only where they differ by a large factor and by far more than chance.
"""

from __future__ import annotations

import warnings

import numpy as np

from sensorium.readings import Array
from sensorium.view.allan import ROUNDING, WHITE, Allan, Series, allan_variance, fit

WINDOWS, SHORTEST_WINDOW = 64, 20
"""Number of windows, and the minimum number of samples of one."""
PACE = 0.2
"""Time over which samples are averaged to find slow motion, s."""
CALM = 8.0
"""Maximum ratio of the variance of a window to that of the calmest tenth of the windows."""
RISE, SLOW = 2.0, 1.0
"""Maximum ratio of Allan variances up to an averaging time, s, to that of single samples, of a sensor at rest."""
DRIFT = 10.0
"""Maximum ratio of Allan variances up to that time to those of the white noise of a sensor at rest."""
MISFIT, DOUBTS = 1.5, 4.0
"""Minimum ratio of variances, and number of standard deviations, that count as different."""


def refusal_of(allan: Allan, series: Series) -> str:
    """Return the reason why values are not stationary noise; empty if they are.

    Without truth, a constant rate and a sensor at rest look the same.

    Args:
        allan: Allan deviation of the values, with its fit.
        series: the values.
    """
    if reason := _unsteady(series):
        return reason
    clusters = series.period * len(series.noise) / allan.times
    sure = MISFIT * np.exp(DOUBTS * np.sqrt(2.0 / np.maximum(clusters, 1.0)))[:, None]
    sizes = np.rint(allan.times / series.period).astype(np.int64)
    variance, least = np.square(allan.deviation), 1e-12 * np.square(allan.deviation)
    white, is_short = np.square(allan.fitted[allan.terms.index(WHITE)]), allan.times <= SLOW
    drift = DRIFT * sure * (white / allan.times[:, None] + _grain(series))
    if series.true is not None:
        rest = allan_variance(_without(series.noise, series.true), sizes)
        if (variance > sure * np.maximum(rest, least)).any():
            return "its error follows the true values, as that of a wrong scale or orientation"
    elif (variance[is_short] > RISE * (variance[0] + _grain(series))).any() or (variance > drift)[is_short].any():
        return "its values change faster than the drift of a sensor at rest, as those of one that moves, or of a filter"
    smooth = 2.0 * allan_variance(series.noise, sizes, hadamard=True)
    if (variance > sure * np.maximum(smooth, least)).any():
        return "its values change more smoothly than a random walk, as those of a sensor that moves"
    bases = np.stack([term.variance(allan.times, allan.period) for term in allan.terms if term != ROUNDING], axis=1)
    wanted = np.ones(bases.shape[1], bool)
    best = [fit(bases, each, 0.5 / np.square(allan.relative_sd), wanted)[0] for each in variance.T]
    model = bases @ np.square(best).T
    if (variance > sure * np.maximum(model, least)).any() or (model > sure * variance)[:, variance.all(axis=0)].any():
        return "its Allan deviation is not that of white noise and drift, but of motion or of a filter"
    return ""


def _grain(series: Series) -> Array:
    """Return the square of the smallest change `[column]`, the variance that the quantisation explains."""
    steps = np.square(np.diff(series.noise if series.true is None else series.noise + series.true, axis=0))
    return np.nanmin(np.where(steps > 0.0, steps, np.inf), axis=0)


def _unsteady(series: Series) -> str:
    """Return the reason if the noise of consecutive samples is larger at some times than at others; empty otherwise.

    Differences of consecutive samples show motion best, since they suppress the drift of a bias.
    """
    grain = _grain(series)
    for mean in sorted({1, max(round(PACE / series.period), 1)}):
        count = len(series.noise) // mean
        with warnings.catch_warnings(action="ignore"):  # of means without a sample
            values = np.nanmean(series.noise[: count * mean].reshape(count, mean, -1), axis=1)
        steps = np.square(np.diff(values, axis=0))
        place = np.flatnonzero(np.isfinite(steps).all(axis=1))
        size = max(SHORTEST_WINDOW, len(place) // WINDOWS)
        place = place[: len(place) // size * size].reshape(-1, size)
        levels = steps[place].mean(axis=1)
        if len(place) and not (is_calm := (levels <= CALM * (np.quantile(levels, 0.1, axis=0) + grain)).all(axis=1)).all():
            edges = np.flatnonzero(np.diff(np.concatenate(([0], is_calm.astype(np.int8), [0])))).reshape(-1, 2)
            first, last = edges[np.argmax(np.ptp(edges, axis=1))] if len(edges) else (0, 1)
            span = series.start + series.period * mean * (place[[first, last - 1], [0, -1]] + [0, 1])
            return f"its noise changes, as that of a sensor that moves. It is steady from {span[0]:.4g} to {span[1]:.4g} s"
    return ""


def _without(noise: Array, true: Array) -> Array:
    """Return noise `[time, column]` without its part that is linear in the true values."""
    known = np.isfinite(noise).all(axis=1) & np.isfinite(true).all(axis=1)
    matrix = np.concatenate((true[known] - true[known].mean(axis=0), np.ones((int(known.sum()), 1))), axis=1)
    found, *_ = np.linalg.lstsq(matrix, noise[known], rcond=None)
    rest = np.full_like(noise, np.nan)
    rest[known] = noise[known] - matrix @ found
    return rest
