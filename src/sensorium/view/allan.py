"""Allan deviation of a sensor's noise, and its fit by the terms of IEEE Std 952.

The noise is the measured minus the true value of each capture, so that motion has no effect; without truth it is the
measured value of a sensor at rest. `sensorium.view.stationarity` refuses values that are not noise. Each term is a
variance over the averaging time T, scaled by the square of its coefficient:

    white noise N           1 / T                                 slope -1/2 of the deviation
    rounded samples Q       period / T                            Q = step / sqrt(12)
    rounded increments Q    3 / T^2                               Q = step * period / sqrt(12); slope -1
    rate random walk K      T / 3                                 slope +1/2
    bias instability B      2 ln 2 / pi                           flat, 0.664 B
    Gauss-Markov q, tau     the exact variance of the process     maximum 0.437 q sqrt(tau) at 1.89 tau
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.readings import Array
from sensorium.view.figures import FEWEST_GAPS, step_of
from sensorium.view.knobs import amount_of, columns_of, spread, stages_of

if TYPE_CHECKING:
    from sensorium.record import SensorRecording

FLOOR = 2.0 * math.log(2.0) / math.pi
"""Allan variance of bias instability B = 1."""
PER_DECADE = 8
"""Number of averaging times per factor of ten."""
FEWEST_CLUSTERS = 8
"""Minimum number of averages that do not overlap, at the longest averaging time."""
SHORTEST = 100
"""Minimum number of samples that give an Allan deviation."""
MEANS, AROUND = 200, 32
"""Number of local means, and number of samples on each side that they contain."""
MAX_GAPS = 20
"""Maximum ratio of the periods in a recording to its samples."""
SHARED = PER_DECADE
"""Number of averaging times that count as one, because they share their samples; simulated walks scatter that much."""
DOUBTFUL = 1.0
"""Minimum squared coefficient that is fitted where none is configured, in its own standard deviations."""
SIGNIFICANT = 3.0
"""Minimum squared coefficient that is reported where none is configured, in its own standard deviations."""
ROLES = ("specific_force", "angular_velocity", "magnetic")
"""Roles of fields that always have an Allan deviation; other fields need a configured density or walk."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of an Allan variance.

    Attributes:
        symbol: its letter: N, Q, K, B or q.
        name: what it is, e.g. ``"white noise"``.
        unit: its unit in terms of the field's unit.
        tau: correlation time of a Gauss-Markov process, s; 0 for other terms.
    """

    symbol: str
    name: str
    unit: str
    tau: float = 0.0

    def variance(self, times: Array, period: float) -> Array:
        """Return the Allan variance `[time]` of coefficient 1.

        Args:
            times: averaging times `[time]`, s.
            period: time between two samples, s; a walk that is sampled has slightly more variance.
        """
        if self.symbol == "N":
            return 1.0 / times
        if self.symbol == "Q":
            return 3.0 / np.square(times) if self == INCREMENTS else period / times
        if self.symbol == "B":
            return np.full_like(times, FLOOR)
        sampled: Array = 1.0 + 0.5 * np.square(period / times)
        if self.symbol == "K":
            return sampled * times / 3.0
        x = times / self.tau  # for small x, the terms cancel up to x^2 / 3
        decay = 4.0 * np.expm1(-x) - np.expm1(-2.0 * x)
        exact: Array = self.tau / x * (1.0 + decay / (2.0 * x))
        return sampled * np.where(x < 1e-4, self.tau * x / 3.0, exact)


WHITE = Term("N", "white noise", "{}/√Hz")
ROUNDING = Term("Q", "quantisation", "{}")
"""Rounding of each sample. Its error is white like N, from which only the known step tells it apart."""
INCREMENTS = Term("Q", "quantisation of increments", "{}·s")
"""Rounding of the integral, as by sensors that count increments of an angle or a speed: Q of IEEE Std 952."""
WALK = Term("K", "random walk", "{}·√Hz")
INSTABILITY = Term("B", "bias instability", "{}")


@dataclass(frozen=True, slots=True)
class Allan:
    """Allan deviation of one field of one environment.

    Attributes:
        period: time between two samples, s.
        times: averaging times `[time]`, s.
        deviation: Allan deviation `[time, column]`.
        relative_sd: relative standard deviation of `deviation`, `[time]`.
        terms: terms that were fitted; the first is white noise.
        bases: `[time, term]`, Allan variance of each term with coefficient 1, in a series with its missing samples.
        configured: `[term, column]`, coefficients in the config, 0 where it has none.
        fitted: `[term, column]`, fitted coefficients, 0 where the data show none.
        fitted_sd: `[term, column]`, their standard deviations.
        labels: `[column]`, names of the columns.
        unit: unit of the field.
    """

    period: float
    times: Array
    deviation: Array
    relative_sd: Array
    terms: tuple[Term, ...]
    bases: Array
    configured: Array
    fitted: Array
    fitted_sd: Array
    labels: tuple[str, ...]
    unit: str

    def model(self, coefficients: Array, column: int) -> Array:
        """Return the deviation `[time]` of coefficients `[term, column]`."""
        deviation: Array = np.sqrt(self.bases @ np.square(coefficients[:, column]))
        return deviation


@dataclass(frozen=True, slots=True)
class Series:
    """Noise of a field of one environment at even times.

    Attributes:
        start: time of the first sample, s.
        period: time between two samples, s.
        noise: measured minus true `[time, column]`, measured without truth; NaN where a sample is missing.
        true: true values `[time, column]`; None without truth.
        step: quantisation step of the measured values `[column]`; 0 where they have none.
    """

    start: float
    period: float
    noise: Array
    true: Array | None
    step: Array

    def means(self, column: int) -> Array:
        """Return means of the measured values over a few samples, at times throughout the series, `[n]`."""
        there = np.flatnonzero(np.isfinite(self.noise[:, column]))
        places = there[np.linspace(0, len(there) - 1, min(len(there), MEANS)).astype(int)]
        means: Array = np.array([np.nanmean(self.noise[max(k - AROUND, 0) : k + AROUND, column]) for k in places])
        true: Array | float = 0.0 if self.true is None else self.true[places, column]
        return means + true


def has_allan(sensor: SensorRecording, spec: Mapping[str, Any]) -> bool:
    """Return whether a field has noise over time that an Allan deviation describes."""
    if spec["axes"][1:2] == ["event"] or np.dtype(spec["dtype"]).kind != "f" or spec.get("kind") != "vector":
        return False
    if columns_of(spec) > 64 or not sensor.info.get("rate_hz"):
        return False
    knobs = ("noise_density", "random_walk", "random_walk_density")
    is_set = any(amount_of(sensor.info, spec, knob) is not None for knob in knobs)
    return spec.get("role") in ROLES or is_set or bool(_drifts(sensor.info, spec))


def series_of(sensor: SensorRecording, spec: Mapping[str, Any], env: int, rate: float) -> Series | None:
    """Return a field of one environment (by column) at even times; None with too few samples for an Allan deviation.

    Args:
        sensor: the recorded sensor.
        spec: description of the field.
        env: column of the environment.
        rate: captures per second, Hz.
    """
    name, has_truth = str(spec["name"]), spec["name"] in sensor.truth
    if has_truth:
        time, measured, truth = sensor.paired(name, env)
    else:
        rows = sensor.arrivals(env)
        time, measured = sensor.capture_time[rows, env], sensor.measured[name][rows, env]
        truth = measured
    if len(time) < SHORTEST or np.ptp(time) * rate > MAX_GAPS * len(time):
        return None
    start = float(time.min())
    place = np.rint((time - start) * rate).astype(np.int64)
    seen, true = np.full((2, int(place.max()) + 1, columns_of(spec)), np.nan)
    seen[place], true[place] = measured.reshape(len(time), -1), truth.reshape(len(time), -1)
    step = np.array([grain_of(column) for column in measured.reshape(len(time), -1).T])
    return Series(start, 1.0 / rate, seen - true if has_truth else seen, true if has_truth else None, step)


def grain_of(values: Array) -> float:
    """Return the quantisation step of many values, also where they have so few levels that `step_of` finds none."""
    levels = np.unique(values[np.isfinite(values)])
    return float(np.diff(levels).min()) if 1 < len(levels) <= FEWEST_GAPS else step_of(levels)


def allan_of(series: Series, info: Mapping[str, Any], spec: Mapping[str, Any], labels: Sequence[str]) -> Allan:
    """Return the Allan deviation of the noise of a field, and its fit.

    Steps, such as new biases after a reset, would appear as noise.

    Args:
        series: the noise.
        info: description of the sensor.
        spec: description of the field.
        labels: names of its elements.
    """
    period, sizes = series.period, sizes_for(len(series.noise))
    variance = allan_variance(series.noise, sizes)
    degrees = degrees_of_freedom(len(series.noise), sizes)
    keep = np.isfinite(variance).all(axis=1)
    times, variance, degrees = sizes[keep] * period, variance[keep], degrees[keep]
    terms, configured = terms_of(info, spec)
    if series.step.any():
        added = tuple(term for term in (ROUNDING, INCREMENTS) if term not in terms)
        terms, configured = (*terms, *added), np.concatenate((configured, np.zeros((len(added), configured.shape[1]))))
    bases = np.stack([term.variance(times, period) for term in terms], axis=1)
    missing = missing_factor(series.noise, sizes[keep])
    bases[:, [term in (WHITE, ROUNDING) for term in terms]] *= missing[:, None]
    fitted, deviations = np.zeros((2, *configured.shape))
    for column, step in enumerate(series.step):
        free = np.array([term != ROUNDING and (step > 0.0 or term != INCREMENTS) for term in terms])
        found = fit(bases[:, free], variance[:, column], degrees, configured[free, column] > 0.0)
        fitted[free, column], deviations[free, column] = found
        if step and not fitted[terms.index(INCREMENTS), column]:  # its white error is part of the first term, N
            white = fitted[0, column] + np.array([-1.0, 0.0, 1.0]) * deviations[0, column]
            low, middle, high = sd_before_rounding(np.square(white) / period, step, series.means(column))
            fitted[0, column], deviations[0, column] = np.sqrt(period) * np.array([middle, 0.5 * (high - low)])
            fitted[terms.index(ROUNDING), column] = step / math.sqrt(12.0)
    return Allan(
        period, times, np.sqrt(variance), np.sqrt(0.5 / degrees), terms, bases, configured, fitted, deviations,
        tuple(labels), str(spec["unit"]),
    )  # fmt: skip


def sizes_for(count: int) -> Array:
    """Return the numbers of samples to average over, for a recording of `count` samples."""
    most = max(count // FEWEST_CLUSTERS, 1)
    steps = np.arange(math.floor(PER_DECADE * math.log10(most)) + 1) / PER_DECADE
    return np.unique(np.rint(10.0**steps).astype(np.int64))


def allan_variance(samples: Array, sizes: Sequence[int] | Array, *, hadamard: bool = False) -> Array:
    """Return the overlapping Allan variance over averages of m samples.

    Args:
        samples: `[time, column]`, evenly spaced; NaN where a sample is missing. An average counts if at least half of
            its samples exist.
        sizes: the numbers m.
        hadamard: whether to return the Hadamard variance, of second differences, instead. A ramp has none, white noise
            the same, and a random walk half of the Allan variance (NIST SP 1065).

    Returns:
        float64 `[size, column]`; NaN where no two averages follow each other, three for the Hadamard variance.
    """
    samples = np.asarray(samples)
    out = np.full((len(sizes), samples.shape[1]), np.nan)
    for k, column in enumerate(samples.T):  # a long log has columns of tens of megabytes
        there = np.isfinite(column)
        if not there.any():
            continue
        counts = None if there.all() else np.concatenate(([0], np.cumsum(there)))
        centred = column - column[there].mean(dtype=np.float64)  # keeps the sums small
        sums = np.concatenate(([0.0], np.cumsum(np.where(there, centred, 0.0), dtype=np.float64)))
        for row, m in enumerate(int(size) for size in sizes):
            if (3 if hadamard else 2) * m > len(samples):
                continue
            mean, scale = sums[m:] - sums[:-m], 0.5
            if counts is None:
                scale /= m * m
            else:
                number = counts[m:] - counts[:-m]
                mean = np.where(2 * number >= m, mean / np.maximum(number, 1), np.nan)
            steps = mean[m:] - mean[:-m]
            if hadamard:
                steps, scale = steps[m:] - steps[:-m], scale / 3.0
            if counts is not None:
                steps = steps[np.isfinite(steps)]
            if len(steps):
                out[row, k] = scale * np.einsum("i,i", steps, steps) / len(steps)
    return out


def missing_factor(samples: Array, sizes: Array) -> Array:
    """Return the factor `[size]` on the Allan variance of white noise by missing samples: the mean of m / number.

    Args:
        samples: `[time, column]`; NaN where a sample is missing.
        sizes: the numbers m; of an average at least half of the samples exist, as in `allan_variance`.
    """
    there, factors = np.isfinite(samples).all(axis=1), np.ones(len(sizes))
    if not there.all():
        counts = np.concatenate(([0], np.cumsum(there)))
        for row, m in enumerate(sizes.tolist()):
            number = counts[m:] - counts[:-m]
            factors[row] = np.mean(m / number[2 * number >= m])
    return factors


def degrees_of_freedom(count: int, sizes: Array) -> Array:
    """Return the degrees of freedom of the overlapping Allan variance of white noise (Riley, NIST SP 1065, table 5)."""
    m = np.asarray(sizes, np.float64)
    some = 3.0 * (count - 1) / (2.0 * m) - 2.0 * (count - 2) / count
    return np.maximum(some * 4.0 * m * m / (4.0 * m * m + 5.0), 1.0)


def fit(bases: Array, variance: Array, degrees: Array, wanted: Array) -> tuple[Array, Array]:
    """Fit the coefficients of terms to an Allan variance, by weighted least squares with coefficients >= 0.

    Args:
        bases: Allan variance of each term with coefficient 1, `[time, term]`.
        variance: Allan variance `[time]`.
        degrees: its degrees of freedom `[time]`.
        wanted: bool `[term]`, terms to report even if their coefficient is not significant.

    Returns:
        Coefficients `[term]` and their standard deviations.
    """
    squares, deviations = np.zeros((2, bases.shape[1]))
    if not variance.any():
        return squares, deviations
    expected = variance
    for _ in range(3):  # weights from the fitted variances, which have less noise than the measured ones
        weights = np.sqrt(0.5 * degrees) / expected
        squares, deviations = _non_negative(bases * weights[:, None], variance * weights)
        expected = np.maximum(bases @ squares, 1e-3 * variance)
    ratio = np.where(wanted, np.inf, squares / np.maximum(deviations, 1e-300))
    if ratio.min() < DOUBTFUL:  # noise that is fitted as a term is missing from the others
        used = np.arange(len(ratio)) != np.argmin(ratio)
        coefficients, spreads = np.zeros((2, len(ratio)))
        if used.any():
            coefficients[used], spreads[used] = fit(bases[:, used], variance, degrees, wanted[used])
        return coefficients, spreads
    squares[ratio < SIGNIFICANT] = 0.0
    coefficients = np.sqrt(squares)
    return coefficients, np.where(coefficients > 0.0, 0.5 * deviations / np.maximum(coefficients, 1e-300), 0.0)


def sd_before_rounding(variance: Array, step: float, means: Array) -> Array:
    """Return the standard deviations of Gaussian values before they were rounded, from variances `[k]` afterwards.

    Rounding adds step^2 / 12 to the variance, and terms that depend on the mean and matter for coarse steps (W. F.
    Sheppard; B. Widrow and I. Kollar, Quantization Noise, 2008).

    Args:
        variance: the variances `[k]`.
        step: quantisation step.
        means: means of the values `[n]`, over which the variance is averaged.
    """
    sd = np.geomspace(0.15 * step, max(20.0 * step, 2.0 * float(np.sqrt(variance.max()))), 400)
    rounded, shift, angle = sd**2 + step**2 / 12.0, np.zeros((len(means), len(sd))), 2.0 * np.pi / step * means
    for k in (1, 2, 3):
        decay = (-1) ** k * np.exp(-2.0 * np.square(np.pi * k * sd / step))
        rounded += (4.0 * sd**2 + np.square(step / (np.pi * k))) * decay * np.cos(k * angle).mean()
        shift += step / (np.pi * k) * np.sin(k * angle)[:, None] * decay
    rounded -= np.square(shift).mean(axis=0)
    found: Array = np.interp(variance, np.maximum.accumulate(rounded), sd, left=0.0)
    return found


def _non_negative(matrix: Array, values: Array) -> tuple[Array, Array]:
    """Return the solution >= 0 of least squares with few unknowns, and its standard deviations: the best subset."""
    count = matrix.shape[1]
    least = float(values @ values)
    best, deviations = np.zeros((2, count))
    for size in range(1, count + 1):
        for chosen in map(list, combinations(range(count), size)):
            scale = np.linalg.norm(matrix[:, chosen], axis=0)
            part = matrix[:, chosen] / scale
            found, *_ = np.linalg.lstsq(part, values, rcond=None)
            rest = values - part @ found
            if (found >= 0.0).all() and rest @ rest < least:
                least = float(rest @ rest)
                best, deviations = np.zeros((2, count))
                best[chosen] = found / scale
                deviations[chosen] = np.sqrt(SHARED * np.diag(np.linalg.pinv(part.T @ part))) / scale
    return best, deviations


# Config ---------------------------------------------------------------------------------------------------------------


def _drifts(info: Mapping[str, Any], spec: Mapping[str, Any]) -> list[tuple[Term, Array]]:
    """Return the terms of the stages with a varying bias, and their coefficients `[column]`."""
    found = []
    for stage in stages_of(info, spec):
        if stage["kind"] == "gauss_markov":
            tau = float(stage["tau"])
            term = Term("q", f"Gauss-Markov, τ = {tau:g} s", "{}/s/√Hz", tau)
            found.append((term, spread(spec, stage["density"])))
        elif stage["kind"] == "flicker":
            found.append((INSTABILITY, spread(spec, stage["bias_instability"])))
    return found


def terms_of(info: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[tuple[Term, ...], Array]:
    """Return the terms to fit, and their configured coefficients `[term, column]`.

    These are white noise, quantisation and the configured kinds of drift, which are hard to tell apart in a short
    recording. If no drift is configured, random walk and bias instability are fitted.
    """
    rate = float(info["rate_hz"])
    nothing = np.zeros(columns_of(spec))
    found: dict[Term, Array] = {WHITE: nothing}

    def add(term: Term, amount: Array | None, factor: float = 1.0) -> None:
        if amount is not None:
            found[term] = np.hypot(found.get(term, nothing), factor * amount)

    for knob, term, factor in (
        ("noise", WHITE, rate**-0.5), ("noise_density", WHITE, 1.0), ("resolution", ROUNDING, 12.0**-0.5),
        ("random_walk", WALK, rate**0.5), ("random_walk_density", WALK, 1.0),
    ):  # fmt: skip
        add(term, amount_of(info, spec, knob), factor)
    for term, amount in _drifts(info, spec):
        add(term, amount)
    if not any(found[term].any() for term in found if term.symbol not in "NQ"):
        found |= {WALK: nothing, INSTABILITY: nothing}
    return tuple(found), np.stack([*found.values()])
