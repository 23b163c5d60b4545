"""Fit of all terms of IEEE Std 952 to an overlapping Allan variance, weighted by its covariance.

The logarithms of Allan variances are compared, since those of few averages have a skewed distribution. Averages share
their samples; the covariance of two averaging times follows from the spectrum S of the noise,

    cov(m, n) = 1 / M  integral of |H_m|^2 |H_n|^2 S^2,    |H_m|^2 = 4 sin^4(pi m f) / (m^2 sin^2(pi f))

over frequencies f up to half of the sampling rate, with the number M of overlapping pairs of averages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sensorium.readings import Array
from sensorium.view.allan import FEWEST_CLUSTERS, INCREMENTS, INSTABILITY, WALK, WHITE, Term, missing_factor

RAMP = Term("R", "rate ramp", "{}/s")
TERMS = (WHITE, INCREMENTS, INSTABILITY, WALK, RAMP)
OPTIONAL = (INCREMENTS, RAMP)
"""Terms that few devices have. They are fitted only where the data show them, since the noise in the estimate of a term
that is never negative biases the others."""
SURE = 6.63
"""Minimum decrease of the deviance by such a term: the 99 % quantile of chi-squared with one degree of freedom."""
POINTS = 2**13
"""Number of frequencies at which spectra are integrated."""
DEVIANCE = 3.84
"""Increase of the deviance at the ends of a 95 % interval: the quantile of chi-squared with one degree of freedom."""
FLOOR = 1e-12
"""Minimum share of a term in any Allan variance; it counts as absent."""
ROUNDS = 60
"""Maximum number of Gauss-Newton steps."""


def octaves(count: int) -> Array:
    """Return numbers of samples to average over: powers of two up to an eighth of the samples."""
    return 2 ** np.arange(max(int(math.log2(max(count / FEWEST_CLUSTERS, 1))), 0) + 1)


def basis(term: Term, times: Array, period: float) -> Array:
    """Return the Allan variance `[time]` of a term with coefficient 1."""
    return 0.5 * np.square(times) if term == RAMP else term.variance(times, period)


def spectrum(term: Term, x: Array, period: float) -> Array:
    """Return the two-sided spectrum of the samples for coefficient 1, at frequencies x in units of the rate."""
    smooth = 4.0 * np.square(np.sin(np.pi * x))
    if term == WHITE:
        return np.full_like(x, 1.0 / period)
    if term == INCREMENTS:
        return smooth / period**2
    if term == WALK:
        return period / smooth
    return 1.0 / (2.0 * np.pi * x) if term == INSTABILITY else np.zeros_like(x)


@dataclass(frozen=True, slots=True)
class Coefficient:
    """Coefficient of a term, with the ends of its 95 % interval; `low` is 0 where the data do not show the term."""

    value: float
    low: float
    high: float


class TermFit:
    """Fit of terms to Allan variances of series of one length.

    Args:
        noise: `[time, column]`, evenly spaced; NaN where a sample is missing.
        period: time between two samples, s.
    """

    def __init__(self, noise: Array, period: float) -> None:
        self.sizes, self.period = octaves(len(noise)), period
        self.times = self.sizes * period
        self.bases = np.stack([basis(term, self.times, period) for term in TERMS], axis=1)
        x = np.geomspace(0.02 / len(noise), 0.5, POINTS)
        self._weights = x * np.gradient(np.log(x))
        response = np.stack([4.0 * np.sin(np.pi * m * x) ** 4 / np.square(m * np.sin(np.pi * x)) for m in self.sizes])
        self._spectra = np.stack([spectrum(term, x, period) for term in TERMS])
        pairs = (len(noise) - 2.0 * self.sizes + 1.0) * np.isfinite(noise).all(axis=1).mean()
        shared = 1.0 / np.maximum.outer(pairs, pairs)
        pairings = np.einsum("p,ip,jp->ijp", self._weights, self._spectra, self._spectra).reshape(-1, POINTS)
        products = np.einsum("ap,kp,lp->akl", pairings, response, response) * shared
        self._products = products.reshape(len(TERMS), len(TERMS), *shared.shape)
        self._missing = missing_factor(noise, self.sizes)
        self._x, self._length = x, len(noise) * period

    def _weights_at(self, squares: Array) -> tuple[Array, Array, Array]:
        """Return the model and the bias of logarithms, `[time]` each, and the factor of their covariance."""
        model = self.bases @ squares
        covariance = np.einsum("i,j,ijkl->kl", squares, squares, self._products) / np.outer(model, model)
        variance = np.diag(covariance)
        correlation = covariance / np.sqrt(np.outer(variance, variance))
        spread = np.sqrt(np.log1p(np.minimum(variance, 2.0)))
        correlation[np.diag_indices(len(model))] = 1.0 + 1e-6
        factor = np.linalg.cholesky(correlation * np.outer(spread, spread))
        return model, -0.5 * variance, factor

    def _deviance(self, logs: Array, free: Sequence[int], target: Array) -> tuple[float, Array]:
        """Minimise over the logarithms of free squared coefficients; return the deviance and all logarithms."""
        bottom = np.log(FLOOR * np.exp(target.min()) / self.bases.max(axis=0))
        logs = np.maximum(logs, bottom)
        damping = 1e-2

        def rest_of(logs: Array) -> tuple[float, Array, Array, Array]:
            squares = np.exp(logs)
            model, bias, factor = self._weights_at(squares)
            rest = np.linalg.solve(factor, target - np.log(model) - bias)
            slope = np.linalg.solve(factor, self.bases * squares / model[:, None])
            return float(rest @ rest + 2.0 * np.log(np.diag(factor)).sum()), rest, slope, factor

        best, rest, slope, _ = rest_of(logs)
        for _ in range(ROUNDS if len(free) else 0):
            part = slope[:, free]
            normal = part.T @ part
            change = np.linalg.solve(
                normal + damping * (np.diag(np.diag(normal)) + 1e-9 * np.eye(len(free))), part.T @ rest
            )
            trial = logs.copy()
            trial[list(free)] += np.clip(change, -3.0, 3.0)
            trial = np.maximum(trial, bottom)
            found, new_rest, new_slope, _ = rest_of(trial)
            if found < best:
                done = best - found < 1e-4
                logs, best, rest, slope, damping = trial, found, new_rest, new_slope, max(0.3 * damping, 1e-6)
                if done:
                    break
            else:
                damping *= 8.0
                if damping > 1e6:
                    break
        return best, logs

    def fit(self, variance: Array) -> dict[Term, Coefficient]:
        """Return the coefficient of each term, by the likelihood of the Allan variances `[time]` of one column."""
        target = np.log(variance / self._missing)
        start = np.log([np.min(variance / self.bases[:, k]) / len(TERMS) for k in range(len(TERMS))])
        optional = [TERMS.index(term) for term in OPTIONAL]
        free = [k for k in range(len(TERMS)) if k not in optional]
        least, best = self._deviance(np.where(np.isin(range(len(TERMS)), free), start, -np.inf), free, target)
        for k in optional:
            more, logs = sorted([*free, k]), best.copy()
            logs[k] = start[k]
            deviance, logs = self._deviance(logs, more, target)
            if least - deviance > SURE:
                free, least, best = more, deviance, logs
        found = {}
        for k in free:
            ends = [self._end(k, sign, least, best, free, target) for sign in (-1.0, 1.0)]
            low, high = (math.exp(0.5 * each) for each in ends)
            found[TERMS[k]] = Coefficient(math.exp(0.5 * float(best[k])), low, high)
        return found

    def _end(self, k: int, sign: float, least: float, best: Array, free: Sequence[int], target: Array) -> float:
        """Return the logarithm at one end of the interval of squared coefficient k; -inf if 0 is inside."""
        others = [each for each in free if each != k]

        def excess(value: float, start: Array) -> tuple[float, Array]:
            logs = start.copy()
            logs[k] = value
            deviance, logs = self._deviance(logs, others, target)
            return deviance - least - DEVIANCE, logs

        if sign < 0.0 and excess(-np.inf, best)[0] < 0.0:
            return -math.inf
        inner, outer, width, logs = float(best[k]), float(best[k]), 0.05, best
        while True:
            outer = inner + sign * width
            above, other = excess(outer, logs)
            if above > 0.0 or width > 64.0:
                break
            inner, logs, width = outer, other, 2.0 * width
        for _ in range(12):
            middle = 0.5 * (inner + outer)
            above, _ = excess(middle, logs)
            inner, outer = (inner, middle) if above > 0.0 else (middle, outer)
        return 0.5 * (inner + outer)

    def sd_of(self, weights: Array, squares: Array) -> float:
        """Return the standard deviation of a weighted mean over the series, from its squared response at the grid."""
        return math.sqrt(float(2.0 * np.sum(self._weights * weights * (squares @ self._spectra))))

    def slope_sd(self, squares: Array) -> float:
        """Return the standard deviation of the slope of a least-squares line through the noise, per s."""
        y = np.pi * self._x * self._length / self.period
        bessel = np.where(y > 1e-2, (np.sin(y) - y * np.cos(y)) / np.square(y), y / 3.0)
        return self.sd_of(np.square(6.0 / self._length * bessel), squares)

    def mean_sd(self, squares: Array) -> float:
        """Return the standard deviation of the mean of the noise; slower drift than the series does not count."""
        y = np.pi * self._x * self._length / self.period
        return self.sd_of(np.where(self._x * self._length / self.period > 0.5, np.square(np.sin(y) / y), 1.0), squares)
