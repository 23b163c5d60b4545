"""Tests whether values are stationary noise, as that of a sensor at rest, and not motion.

Each test compares variances, and fails only where they differ by a large factor and by far more than chance.
"""

from __future__ import annotations

import numpy as np

from sensorium.readings import Array
from sensorium.view.allan import ROUNDING, Allan, Series, allan_variance, fit

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
    if span := _calm_span(series):
        return "its noise changes, as that of a sensor that moves. Its calmest part is from {:.4g} to {:.4g} s".format(
            *span
        )
    times, variance, grain = allan.times[:, None], np.square(allan.deviation), np.square(series.step)
    sure = MISFIT * np.exp(DOUBTS * np.sqrt(2.0 * times / (series.period * len(series.noise))))
    least = 1e-9 * variance.max(axis=0)
    sizes = np.rint(allan.times / series.period).astype(np.int64)
    if series.true is None:
        drift = DRIFT * sure * (np.square(allan.fitted[0]) / times + grain)
        if (variance > np.minimum(RISE * (variance[0] + grain), drift))[allan.times <= SLOW].any():
            return "its values change faster than those of a sensor at rest: it moves, or a filter smooths its noise"
    smooth = 2.0 * allan_variance(series.noise, sizes, hadamard=True)
    if (variance > sure * smooth + least).any():
        return "its values change more smoothly than a random walk, as those of a sensor that moves"
    bases = allan.bases[:, [term != ROUNDING for term in allan.terms]]
    degrees, wanted = 0.5 / np.square(allan.relative_sd), np.ones(bases.shape[1], bool)
    model = bases @ np.square([fit(bases, each, degrees, wanted)[0] for each in variance.T]).T
    if ((variance > sure * model + least) | (model > sure * variance + least)).any():
        return "its Allan deviation is not that of white noise and drift, but of motion or of a filter"
    return ""


def _calm_span(series: Series) -> tuple[float, float] | None:
    """Return the longest span in which the noise of consecutive samples is small, s; None if that is the whole time.

    Differences of consecutive samples show motion best, since they suppress the drift of a bias.
    """
    for mean in sorted({1, max(round(PACE / series.period), 1)}):
        count = len(series.noise) // mean
        steps = np.square(np.diff(series.noise[: count * mean].reshape(count, mean, -1).mean(axis=1), axis=0))
        place: Array = np.flatnonzero(np.isfinite(steps).all(axis=1))
        size = max(SHORTEST_WINDOW, len(place) // WINDOWS)
        place = place[: len(place) // size * size].reshape(-1, size)
        levels = steps[place].mean(axis=1)
        if not len(place) or (levels <= (most := CALM * (np.quantile(levels, 0.1, axis=0) + series.step**2))).all():
            continue
        edges = np.flatnonzero(np.diff(np.concatenate(([0], (levels <= most).all(axis=1), [0])))).reshape(-1, 2)
        first, last = edges[np.argmax(np.ptp(edges, axis=1))] if len(edges) else (0, 1)
        start, end = place[first, 0] * mean, (place[last - 1, -1] + 1) * mean
        return series.start + series.period * start, series.start + series.period * end
    return None
