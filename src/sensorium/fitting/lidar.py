"""Noise of a lidar, found on locally flat surfaces in its scans.

Three successive rays of a ring, at equal angles, see a plane if the outer ranges are similar: on a plane the inverse of
the range is linear over a small angle. The error of the middle range r1 is then e = r1 - 2 r0 r2 / (r0 + r2), with 3/2
of the variance of one range. The condition is on r2 - r0, which is independent of e under normal noise of equal
variance, so it does not bias the deviation.

The deviation is robust, 1.4826 times the median absolute error (P. J. Rousseeuw and C. Croux, J. Am. Stat. Assoc. 88,
1993), less the variance step^2 / 12 of rounding (W. F. Sheppard, Proc. London Math. Soc. 29, 1898). Errors of rounded
ranges are multiples of step / 2, whose median is coarse. Normal noise is added before the median, and its variance is
removed. The interval follows from deviations of successive groups of rays with Student's t, so it contains differences
between surfaces. It is widened by the largest error of Sheppard's correction, for ranges that are all equal before the
noise: the first harmonic of the rounding error, (4 sd^2 + step^2 / pi^2) exp(-2 pi^2 sd^2 / step^2) of the variance.
The roughness of surfaces between neighbouring rays is part of the deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.fitting.result import Fit, Parameter
from sensorium.fitting.samples import Samples
from sensorium.readings import Array, Reading
from sensorium.view.figures import step_of

EDGES = (0.5, 1.0, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0)
"""Limits of the distances whose noise is found separately, m."""
STEADY = 0.03
"""Maximum relative difference of the ranges next to a ray that sees a plane."""
EVEN = 0.2
"""Maximum relative difference of the angles to both neighbours; more means that rays between them are absent."""
FEWEST = 1000
"""Minimum number of rays for a parameter."""
GROUPS, T = 16, 2.131
"""Number of groups of rays, and the 97.5 % quantile of Student's t with one less degree of freedom."""
NORMAL = 1.4826
"""Standard deviation of normal noise whose median absolute value is 1."""
DITHER = 0.3
"""Standard deviation of the noise that is added to rounded errors, in quantisation steps."""
ROUNDED = 0.4
"""Minimum deviation in quantisation steps; below, Sheppard's correction can be a quarter of the variance wrong."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of single ranges against their neighbours on a ring.

    Attributes:
        error: `[ray]`, m.
        distance: `[ray]`, m.
        intensity: `[ray]`; NaN without intensities.
    """

    error: Array
    distance: Array
    intensity: Array

    def rows(self, chosen: Array) -> Errors:
        """Return some of the rays."""
        return Errors(self.error[chosen], self.distance[chosen], self.intensity[chosen])


def lidar_samples(readings: Iterable[Reading], source: str) -> Samples:
    """Return scans as samples with one row per ray, from readings of a lidar or of point clouds of a bag.

    The values are `points_b` [ray, 3], m, NaN for no return; `distances`, m, `intensity` and `ring` [ray, 1] where all
    readings have them. `ring` is the field `ring` or `channel`, or the row of an organised cloud. Of several envs, the
    first one is used.

    Args:
        readings: readings with the field `points_b`, e.g. ``replay.readings("lidar")``.
        source: name of the log, for messages.

    Raises:
        ArgumentError: there are no readings with `points_b`.
    """
    scans: list[dict[str, Array]] = []
    for reading in readings:
        if "points_b" not in reading:
            raise ArgumentError(f"readings of {source}: got {sorted(reading.measured)}; a lidar needs points_b.")
        spec = next(spec for spec in reading.specs if spec.name == "points_b")
        points = np.asarray(reading["points_b"], np.float64)
        points = points[reading.rows(0)] if spec.is_ragged else points[0]
        count = points.size // 3
        scan = {"time": np.full(count, reading.time), "points_b": points.reshape(count, 3)}
        if spec.role == "image":
            scan["ring"] = np.repeat(np.arange(float(len(points))), count // len(points))[:, None]
        for name, field in {
            "distances": "distances",
            "intensity": "intensity",
            "channel": "ring",
            "ring": "ring",
        }.items():
            if name in reading:
                value = np.asarray(reading[name], np.float64)
                value = value[reading.rows(0)] if spec.is_ragged else value[0]
                if value.size == count:
                    scan[field] = value.reshape(count, 1)
        scans.append(scan)
    if not scans:
        raise ArgumentError(f"readings of {source}: there are none. Give those of a lidar.")
    shared = set.intersection(*({*scan} for scan in scans)) - {"time"}
    values = {name: np.concatenate([scan[name] for scan in scans]) for name in sorted(shared)}
    units = {"points_b": "m", "distances": "m", "intensity": "1", "ring": "1"}
    return Samples(np.concatenate([scan["time"] for scan in scans]), values, units, source)


def rings_of(samples: Samples, r: Array) -> Array:
    """Return the rows in the order of scans, rings and rays."""
    return np.lexsort((np.arange(len(r)), samples.values["ring"][:, 0], samples.time))


def errors_of(samples: Samples, r: Array) -> Errors:
    """Return the errors of ranges `r` [ray], m, on locally flat surfaces."""
    order = rings_of(samples, r)
    r, ring, time = r[order], samples.values["ring"][order, 0], samples.time[order]
    points = np.where(np.isfinite(r[:, None]), samples.values["points_b"][order], np.nan)
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    angle = np.linalg.norm(np.diff(units, axis=0), axis=1)
    before, after = angle[:-1], angle[1:]
    flat = np.abs(r[2:] - r[:-2]) < STEADY * r[1:-1]
    flat &= np.abs(after - before) < EVEN * (after + before) / 2.0
    flat &= (ring[2:] == ring[:-2]) & (time[2:] == time[:-2]) & (r[1:-1] > EDGES[0])
    at = np.flatnonzero(flat) + 1
    light = samples.values["intensity"][order, 0][at] if "intensity" in samples.values else np.full(len(at), np.nan)
    return Errors(r[at] - 2.0 * r[at - 1] * r[at + 1] / (r[at - 1] + r[at + 1]), r[at], light)


def noise_of(errors: Errors, step: float, method: str, source: str) -> Parameter:
    """Return the deviation of ranges, m, without that of rounding to `step`."""
    error = errors.error + DITHER * step * np.random.default_rng(0).standard_normal(len(errors.error))
    rounding = (DITHER * step) ** 2 / 1.5 + step * step / 12.0

    def variance(part: Array) -> float:
        return (NORMAL * float(np.median(np.abs(part)))) ** 2 / 1.5 - rounding

    found = variance(error)
    half = T * float(np.std([variance(part) for part in np.array_split(error, GROUPS)], ddof=1)) / math.sqrt(GROUPS)
    if step:
        ratio = max(found, 0.0) / step**2
        half += step**2 * (4.0 * ratio + 1.0 / math.pi**2) * math.exp(-2.0 * math.pi**2 * ratio)
    value, low, high = (math.sqrt(max(found + sign * half, 0.0)) for sign in (0.0, -1.0, 1.0))
    return Parameter(value, "m", low, high, f"{method}; {len(error)} rays", source)


def loss_of(samples: Samples, r: Array) -> Parameter | str:
    """Return the share of lost returns among rays whose neighbours on the ring see a surface, or why it is absent."""
    if np.isfinite(r).all():
        return "the log has no rows for rays without return"
    order = rings_of(samples, r)
    r, ring, time = r[order], samples.values["ring"][order, 0], samples.time[order]
    around = np.stack([r[:-4], r[1:-3], r[3:-1], r[4:]])
    surface = np.ptp(around, axis=0) < STEADY * around.min(axis=0)
    surface &= (ring[:-4] == ring[4:]) & (time[:-4] == time[4:])
    count = int(surface.sum())
    if count < FEWEST:
        return f"{count} rays lie between four returns of a surface; {FEWEST} are needed"
    share, z2 = float((~np.isfinite(r[2:-2]) & surface).sum()) / count, 1.96**2
    middle, width = share + z2 / (2 * count), math.sqrt(z2 * share * (1 - share) / count + (z2 / (2 * count)) ** 2)
    low, high = ((middle + sign * width) / (1 + z2 / count) for sign in (-1.0, 1.0))
    method = f"share of lost returns among {count} rays between four returns of a surface; Wilson's interval"
    return Parameter(share, "1", max(low, 0.0), high, method, samples.source)


def fit_lidar(samples: Samples, kind: str, progress: Callable[[float], None]) -> Fit:
    """Return range noise by distance and intensity, quantisation step, drop rate and a bound on surface roughness.

    Args:
        samples: one row per ray, as `lidar_samples` returns them.
        kind: kind of the sensor config, ``"lidar"``.
        progress: called with the finished fraction, 0 to 1.

    Raises:
        ArgumentError: the samples have no points or no rings, or show too few surfaces.
    """
    if missing := {"points_b", "ring"} - {*samples.values}:
        raise ArgumentError(
            f"samples of {samples.source}: got {sorted(samples.values)} without {', '.join(sorted(missing))}. "
            "Give points_b [ray, 3] and the ring of each ray: an organised cloud, or the field ring or channel."
        )  # fmt: skip
    if "distances" in samples.values:
        r = samples.values["distances"][:, 0]
    else:  # with the digits of float32, in which messages hold points
        r = np.linalg.norm(samples.values["points_b"], axis=1).astype(np.float32).astype(np.float64)
    r = np.where((r > 0.0) & (r < math.inf), r, np.nan)
    parameters: dict[str, Parameter] = {}
    refused: dict[str, str] = {}
    fields: dict[str, Any] = {}

    hits = r[np.isfinite(r)]
    if step := step_of(hits):
        half = 0.5 * float(np.spacing(np.float32(hits.max()))) * step / float(np.median(hits))
        method = "greatest common step of the ranges; interval of their float32 digits"
        parameters["resolution"] = Parameter(step, "m", step - half, step + half, method, samples.source)
        fields["resolution"] = step
    else:
        refused["resolution"] = "the ranges have no common step"

    errors, bins, squares = errors_of(samples, r), dict[str, Parameter](), []
    for k, (low, high) in enumerate(pairwise(EDGES)):
        progress(k / len(EDGES))
        name, part = f"range_noise.{low:g}-{high:g}m", errors.rows((errors.distance >= low) & (errors.distance < high))
        if len(part.error) < FEWEST:
            refused[name] = f"{len(part.error)} rays on flat surfaces; {FEWEST} are needed"
            continue
        found = noise_of(part, step, "robust error against both neighbours", samples.source)
        if found.value < ROUNDED * step:
            refused[name] = f"it is below {ROUNDED:g} of the quantisation step of {step:.3g} m"
            continue
        parameters[name] = found
        bins[name] = found
        squares.append(float(np.median(part.distance)) ** 2)
        middle = float(np.median(part.intensity))
        for word, chosen in (("dim", part.intensity <= middle), ("bright", part.intensity > middle)):
            if chosen.sum() >= FEWEST:
                method = f"the same at intensities {'up to' if word == 'dim' else 'above'} {middle:.4g}"
                parameters[f"{name}.{word}"] = noise_of(part.rows(chosen), step, method, samples.source)
    if not bins:
        raise ArgumentError(
            f"samples of {samples.source}: {len(errors.error)} rays on flat surfaces; at least {FEWEST} at similar "
            "distances are needed. Give scans of walls or floors."
        )
    method = "upper bound: the deviation at the nearest distance"
    near = next(iter(bins.values()))
    parameters["surface_roughness"] = Parameter(near.value, "m", 0.0, near.high, method, samples.source)
    if all(one.overlaps(other) for one in bins.values() for other in bins.values()):
        fields["range_noise"] = noise_of(errors, step, "", "").value
    else:  # only ratios between distances are known: 10,000 at 1 m, and targets of mean reflectance, are assumed
        fields |= {
            "range_noise": [each.value for each in bins.values()],
            "range_noise_snr": [1e4 / square for square in squares],
            "reference_snr": 1e4,
            "reference_range": 1.0,
            "reference_reflectance": 0.5,
        }
    loss = loss_of(samples, r)
    if isinstance(loss, str):
        refused["drop_rate"] = loss
    else:
        parameters["drop_rate"] = loss
        fields["drop_rate"] = loss.value
    return Fit(kind, samples.source, parameters, refused, fields, {"Deviation by distance": _drawing(errors, bins)})


def _drawing(errors: Errors, bins: dict[str, Parameter]) -> Callable[[Any], None]:
    """Return a function that draws the errors, and the fitted deviations with their intervals."""

    def draw(axes: Any) -> None:
        some = slice(None, None, max(len(errors.error) // 20_000, 1))
        axes.scatter(errors.distance[some], np.abs(errors.error[some]), s=1, alpha=0.3, label="errors of single rays")
        for name, each in bins.items():
            ends = [float(end) for end in name.partition(".")[2].removesuffix("m").split("-")]
            axes.plot(ends, [each.value] * 2, color="black")
            axes.fill_between(ends, each.low, each.high, color="black", alpha=0.3)
        axes.set(xscale="log", yscale="log", xlabel="distance (m)", ylabel="error, deviation (m)")

    return draw
