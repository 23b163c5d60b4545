"""Noise and timing of inertial sensors at rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.fitting.allan import TERMS, Coefficient, TermFit
from sensorium.fitting.result import Fit, Parameter
from sensorium.fitting.samples import Samples
from sensorium.fitting.stamps import Stamps, Z, bursts, drift_of, first_period, stamps_of
from sensorium.readings import Array
from sensorium.view.allan import (
    INSTABILITY,
    WHITE,
    Series,
    allan_of,
    allan_variance,
    grain_of,
    sd_before_rounding,
)
from sensorium.view.stationarity import refusal_of

GRAVITY, GRAVITY_ERROR = 9.81, 0.05
"""Specific force at rest, m/s^2, and its relative error: gravity on Earth, and the offset and scale of a device."""
FASTEST = 0.2
"""Maximum mean angular velocity of a gyroscope at rest, rad/s: offsets of devices, and the rotation of the Earth."""
EARTH_RATE = 7.292e-5
"""Angular velocity of the Earth, rad/s (WGS 84)."""
FEWEST = 512
"""Minimum number of samples of an Allan deviation with intervals."""
HELD, REPEATS = 0.2, 3.0
"""Minimum share of repeated rows of a slower device, and their minimum ratio to rows that are equal by chance."""
CHANCE_LAG = 20
"""Distance of rows that are equal only by chance."""
STILL, QUIET = 0.5, 4.0
"""Length of a window that is at rest or not, s; maximum ratio of its variance to that of the calmest windows."""
FEWEST_LOST = 5
"""Minimum number of bursts of lost samples that give a Gilbert-Elliott model."""
FINEST = 1e-9
"""Minimum jitter of stamps, s; less is rounding."""
FINE = 0.01
"""Minimum quantisation step that is reported, in standard deviations of the values."""
STILLER = "If the sensor moves, use --static; after that, cut the log further by --start and --end."
ROLES = {"ang_vel_b": "angular_velocity", "lin_acc_b": "specific_force", "mag_b": "magnetic"}
AXES = ("x", "y", "z")


def fit_at_rest(samples: Samples, kind: str, progress: Callable[[float], None]) -> Fit:
    """Return noise, bias, quantisation and timing of a sensor at rest; see `sensorium.fit`.

    Args:
        samples: the samples.
        kind: kind of the sensor config.
        progress: called with the finished fraction, 0 to 1.

    Raises:
        ArgumentError: the sensor moved, units are unknown or wrong, or values or stamps are damaged.
    """
    samples.check()
    for name, values in samples.values.items():
        _check_magnitude(name, values)
    stamps = stamps_of(samples.time)
    result = Fit(kind, samples.source, {}, {}, {}, {})
    kept = samples if len(stamps.rows) == len(samples) else samples.rows(stamps.rows)
    _fit_timing(result, stamps, kept)
    fields: dict[str, Any] = result.fields  # type: ignore[assignment]
    share = 1.0 / (len(kept.values) + 1)  # the stamps take about as long as a field
    for k, (name, values) in enumerate(kept.values.items(), 1):

        def show(done: float, before: int = k) -> None:
            progress(share * (before + done))

        _fit_field(result, name, values, stamps, samples.units[name], show)
    fields["fields"] = [*kept.values] if kind == "imu" else []
    if kind != "imu":
        del fields["fields"]
    return result


def _check_magnitude(name: str, values: Array) -> None:
    size = float(np.linalg.norm(values.mean(axis=0)))
    if name == "lin_acc_b" and not abs(size / GRAVITY - 1.0) < GRAVITY_ERROR:
        hint = " It would be 1 g: give --units lin_acc_b=g." if abs(size - 1.0) < GRAVITY_ERROR else ""
        raise ArgumentError(
            f"lin_acc_b: its mean is {size:.4g} m/s^2 long, expected {GRAVITY} m/s^2 of a sensor at rest.{hint} Check "
            f"the unit. {STILLER}"
        )
    if name == "ang_vel_b" and size > FASTEST:
        raise ArgumentError(
            f"ang_vel_b: its mean is {size:.3g} rad/s long, expected less than {FASTEST} rad/s of a sensor at rest. "
            f"Check the unit (--units ang_vel_b=deg/s). {STILLER}"
        )


def _fit_timing(result: Fit, stamps: Stamps, samples: Samples) -> None:
    """Add rate, jitter and resolution of stamps, lost samples, and the drift of the clock."""
    rate, source = 1.0 / stamps.period, samples.source
    parameters: dict[str, Parameter] = result.parameters  # type: ignore[assignment]
    refused: dict[str, str] = result.refused  # type: ignore[assignment]
    fields: dict[str, Any] = result.fields  # type: ignore[assignment]
    half = Z * stamps.period_sd * rate * rate
    parameters["rate_hz"] = Parameter(rate, "Hz", rate - half, rate + half, "line through stamps", source)
    fields["rate_hz"] = float(f"{rate:.6g}")
    if stamps.jitter > FINEST:
        ends = _of_sd(stamps.jitter, len(stamps.place))
        parameters["stamp.jitter"] = Parameter(stamps.jitter, "s", *ends, "deviation from that line", source)
    else:
        refused["stamp.jitter"] = "the stamps are even"
        _limit(result, "stamp.jitter", FINEST, "s")
    if stamps.resolution:
        step = stamps.resolution
        parameters["stamp.resolution"] = Parameter(step, "s", step, step, "greatest common step", source)
    lost = stamps.is_lost
    if samples.dropouts is not None and len(samples.dropouts):
        _keep_logged(lost, (samples.dropouts - samples.time[0]) / stamps.period)
        reason = f"{len(samples.dropouts)} drop-outs of the logger are no losses of the sensor"
        refused["loss during drop-outs"] = reason
    count = int(np.count_nonzero(lost[1:] & ~lost[:-1]))
    for name, found in zip(("p", "r") if count else ("p",), bursts(lost), strict=False):
        parameters[f"loss.{name}"] = Parameter(found[0], "1", *found[1:], "Gilbert-Elliott, counted gaps", source)
    if count < FEWEST_LOST:
        refused["loss"] = f"{count} gaps are too few for a model of losses; {int(lost.sum())} samples are missing"
    else:
        fields["loss"] = {name: parameters[f"loss.{name}"].value for name in ("p", "r")}
    if samples.arrival is None:
        refused["stamp.drift"] = "the log has one clock only"
    else:
        drift, sd = drift_of(samples.time, samples.arrival)
        ends = (drift - Z * sd, drift + Z * sd)
        parameters["stamp.drift"] = Parameter(drift, "ppm", *ends, "line through least delays", source)


def _keep_logged(lost: Array, dropouts: Array) -> None:
    """Mark the gaps of samples that overlap drop-outs of the logger, in places `[dropout, 2]`, as not lost."""
    gaps = np.flatnonzero(np.diff(lost, prepend=False, append=False)).reshape(-1, 2)
    for start, end in dropouts:
        for first, last in gaps[(gaps[:, 0] <= end + 1.0) & (gaps[:, 1] >= start - 1.0)]:
            lost[first:last] = False


def _limit(result: Fit, name: str, most: float, unit: str) -> None:
    """Add the upper end of the interval of a parameter that the samples do not show."""
    result.limits[name] = Parameter(0.0, unit, 0.0, most, "not found", result.source)  # type: ignore[index]


def _of_sd(sd: float, count: int) -> tuple[float, float]:
    half = Z / math.sqrt(2.0 * max(count - 1, 1))
    return sd * (1.0 - half), sd * (1.0 + half)


def is_repeated(values: Array) -> Array:
    """Return whether each row repeats the one before `[row]`; all False unless a slower device holds its values."""
    same = (values[1:] == values[:-1]).all(axis=1)
    chance = float((values[CHANCE_LAG:] == values[:-CHANCE_LAG]).all(axis=1).mean())
    held = same.mean() > max(HELD, REPEATS * chance)
    return np.concatenate(([False], same if held else np.zeros_like(same)))


def _fit_field(
    result: Fit, name: str, values: Array, stamps: Stamps, unit: str, progress: Callable[[float], None]
) -> None:
    """Add the parameters of one field."""
    parameters: dict[str, Parameter] = result.parameters  # type: ignore[assignment]
    refused: dict[str, str] = result.refused  # type: ignore[assignment]
    place, period = stamps.place, stamps.period
    repeated = is_repeated(values)
    if repeated.any():
        try:
            own = stamps_of(place[~repeated] * period)
        except ArgumentError as error:
            refused[name] = f"its rows repeat, and those that differ have no rate: {error}"
            return
        values, place, period = values[~repeated][own.rows], own.place, own.period
        half = Z * own.period_sd / period**2
        parameters[f"{name}.rate_hz"] = Parameter(
            1.0 / period, "Hz", 1.0 / period - half, 1.0 / period + half, "rows that differ from those before",
            result.source,
        )  # fmt: skip
    live = np.ptp(values, axis=0) > 0.0
    labels = AXES[: values.shape[1]] if values.shape[1] > 1 else ("",)
    for label in np.array(labels)[~live]:
        refused[_named(name, "", label)] = "the column is constant"
    values, shown = values if live.all() else values[:, live], np.array(labels)[live].tolist()
    if len(values) < FEWEST:
        refused[name] = f"{len(values)} samples are too few for a noise with intervals, expected at least {FEWEST}"
        return
    if not live.any():
        return
    noise = values
    if place[-1] >= len(place):
        noise = np.full((int(place[-1]) + 1, values.shape[1]), np.nan)
        noise[place] = values
    step = np.array([grain_of(column) for column in values.T])
    step[step < FINE * values.std(axis=0)] = 0.0  # digits of a text
    moving = Series(0.0, period, noise, None, step)
    spec = {
        "name": name, "axes": ["env", "xyz"], "shape": [int(live.sum())], "unit": unit, "kind": "vector",
        "dtype": "float64", "role": ROLES.get(name, "scalar"),
    }  # fmt: skip
    info = {"rate_hz": 1.0 / period, "cfg": {}, "fields": [spec]}
    allan = allan_of(moving, info, spec, shown)
    progress(0.4)
    if reason := refusal_of(allan, moving):
        raise ArgumentError(f"{name}: no noise is fitted, because {reason}, expected a sensor at rest. {STILLER}")
    progress(0.75)
    terms = TermFit(noise, period)
    variance = allan_variance(noise, terms.sizes)
    found = []
    for k, label in enumerate(shown):
        progress(0.85 + 0.05 * k)
        found.append(terms.fit(variance[:, k]))
        one = replace(moving, noise=noise[:, k : k + 1], step=step[k : k + 1])
        _add_column(result, name, label, unit, found[k], terms, one)
    _add_fields(result, name, labels)
    result.drawings[name] = _drawing(terms, variance, found, shown, unit)  # type: ignore[index]


def _named(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _add_column(
    result: Fit, name: str, label: str, unit: str, found: dict[Any, Coefficient], terms: TermFit, series: Series
) -> None:
    """Add the parameters of one column."""
    parameters: dict[str, Parameter] = result.parameters  # type: ignore[assignment]
    refused: dict[str, str] = result.refused  # type: ignore[assignment]
    method, source, period = "Allan variance, weighted by its covariance", result.source, terms.period
    squares = np.array([found[term].value ** 2 if term in found else 0.0 for term in TERMS])
    values, step = series.noise[:, 0], float(series.step[0])
    for term in TERMS:
        key, size = _named(name, term.symbol, label), found.get(term)
        if term.symbol == "R" and size is not None:
            slope = _slope_of(values, period)
            half = Z * terms.slope_sd(squares)
            ends = (slope - half, slope + half)
            parameters[key] = Parameter(slope, f"{unit}/s", *ends, "least-squares line", source)
        elif size is None or size.low <= 0.0:
            refused[key] = f"the {term.name} is hidden by the other terms in {len(values) * period:.4g} s"
            if size is not None:
                _limit(result, key, size.high, term.unit.format(unit))
        else:
            value, low, high = size.value, size.low, size.high
            if term == WHITE and step:
                low, value, high = (
                    sd_before_rounding(np.square([low, value, high]) / period, step, series.means(0))
                    * math.sqrt(period)
                ).tolist()
            if value > 0.0:
                parameters[key] = Parameter(value, term.unit.format(unit), low, high, method, source)
            else:
                refused[key] = f"the quantisation step {step:.3g} {unit} explains all of the noise"
    if step:
        key = _named(name, "resolution", label)
        parameters[key] = Parameter(step, unit, step, step, "greatest common step", source)
    else:
        _limit(result, _named(name, "resolution", label), FINE * float(np.nanstd(values)), unit)
    mean, half = float(np.nanmean(values)), Z * terms.mean_sd(squares)
    if name == "ang_vel_b":
        half += EARTH_RATE
        parameters[_named(name, "bias", label)] = Parameter(mean, unit, mean - half, mean + half, "mean", source)


def _slope_of(values: Array, period: float) -> float:
    there = np.flatnonzero(np.isfinite(values))
    x = (there - there.mean()) * period
    return float(x @ values[there] / (x @ x))


def _add_fields(result: Fit, name: str, labels: tuple[str, ...]) -> None:
    """Add the knobs and stages of one field to those of the preset."""
    fields: dict[str, Any] = result.fields  # type: ignore[assignment]

    def amounts(symbol: str) -> Any:
        found = [result.parameters.get(_named(name, symbol, label)) for label in labels]
        values = [0.0 if each is None else each.value for each in found]
        return (values if len(values) > 1 else values[0]) if any(values) else None

    for symbol, knob in (
        ("N", "noise_density"), ("K", "random_walk_density"), ("resolution", "resolution"), ("bias", "bias"),
    ):  # fmt: skip
        if (amount := amounts(symbol)) is not None:
            fields.setdefault(knob, {})[name] = amount
    if (amount := amounts(INSTABILITY.symbol)) is not None:
        fields.setdefault("stages", []).append({"kind": "flicker", "fields": [name], "bias_instability": amount})


def _drawing(
    terms: TermFit, variance: Array, found: list[dict[Any, Coefficient]], labels: list[str], unit: str
) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        for k, coefficients in enumerate(found):
            squares = np.array([coefficients[term].value ** 2 if term in coefficients else 0.0 for term in TERMS])
            (line,) = axes.loglog(terms.times, np.sqrt(terms.bases @ squares), label=f"fitted {labels[k]}")
            axes.loglog(terms.times, np.sqrt(variance[:, k]), "o", ms=3, color=line.get_color(), label=labels[k])
        axes.set(xlabel="averaging time [s]", ylabel=f"Allan deviation [{unit}]")
        axes.legend()

    return draw


def at_rest(samples: Samples) -> Samples:
    """Return the longest span in which a sensor is at rest, by the variance of its values in windows.

    Raises:
        ArgumentError: no span is long enough.
    """
    calm = np.ones(len(samples), bool)
    size = max(round(STILL / first_period(samples.time)), 8)
    count = len(samples) // size
    for values in samples.values.values():
        windows = values[: count * size].reshape(count, size, -1)
        level, mean = windows.var(axis=1), windows.mean(axis=1)
        quiet = np.quantile(level, 0.1, axis=0) + np.square([grain_of(column) for column in values.T])
        still = (level <= QUIET * quiet).all(axis=1)
        change = np.square(np.diff(mean, axis=0, prepend=mean[:1]))
        still &= (change <= QUIET * quiet).all(axis=1)
        calm[: count * size] &= np.repeat(still, size)
        calm[count * size :] = False
    edges = np.flatnonzero(np.diff(np.concatenate(([0], calm, [0])))).reshape(-1, 2)
    first, last = edges[np.argmax(np.ptp(edges, axis=1))].tolist() if len(edges) else (0, 0)
    first, last = first + (size if first else 0), last - (size if last < len(samples) else 0)
    if last - first < FEWEST:
        raise ArgumentError(
            f"samples: the longest span at rest has {max(last - first, 0)} samples, expected at least {FEWEST}. Record "
            "the sensor at rest."
        )
    return samples.rows(slice(first, last))
