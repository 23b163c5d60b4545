"""Noise of a lidar, found on planes in its scans.

A scan is divided into cells of equal angles about the sensor. With a direction u and the range r of a return, a plane
is linear in gnomonic coordinates (s, t) about the mean direction c of a cell: 1 / (r u.c) = a + b s + c t. Its
least-squares fit, weighted for equal errors of ranges, gives a residual of the range of each return. A residual is
divided by sqrt(1 - leverage), so that its variance is that of the range noise.

A cell counts as a plane if an F test finds no curvature (s^2, s t, t^2). Under normal noise the F statistic does not
depend on the variance of the residuals, so this choice does not bias their deviation. A cell whose residuals are much
larger than those of other cells at its distance, or that is seen at a flat angle, does not count.

The deviation is robust, 1.4826 times the median absolute residual (P. J. Rousseeuw and C. Croux, J. Am. Stat. Assoc.
88, 1993), less the variance step^2 / 12 of rounding. Its interval follows from deviations of groups of cells with
Student's t, so it contains differences between surfaces. The roughness of the surfaces is part of the deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sensorium.errors import ArgumentError
from sensorium.fitting.result import Fit, Parameter
from sensorium.fitting.samples import Samples
from sensorium.readings import Array, Reading
from sensorium.view.figures import step_of

EDGES = (0.5, 1.0, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0)
"""Limits of the distances whose noise is found separately, m."""
CELL = math.radians(4.0)
"""Size of a cell, in azimuth and in elevation, rad."""
MOST = 128
"""Maximum number of returns of a cell that are used."""
FEWEST = 12
"""Minimum number of returns in a cell."""
CURVED = 2.33
"""Limit of the F test as a quantile of the normal distribution: 1 % of planes are lost."""
ROUGH = 2.5
"""Maximum deviation in a cell, relative to the median of cells at that distance."""
FLAT = 0.5
"""Minimum cosine of the angle of incidence."""
GROUPS, T = 16, 2.131
"""Number of groups of cells, and the 97.5 % quantile of Student's t with one less degree of freedom."""
NORMAL = 1.4826
"""Standard deviation of normal noise whose median absolute value is 1."""
STEADY = 0.05
"""Maximum relative difference of ranges around a lost return that counts as one of a surface."""


@dataclass(frozen=True, slots=True)
class Planes:
    """Planes found in scans.

    Attributes:
        distance: `[plane]`, m, mean.
        cosine: `[plane]`, mean cosine of the angle of incidence.
        intensity: `[plane]`, mean; NaN without intensities.
        residuals: `[plane, return]`, m, scaled to the variance of the noise; NaN beyond the returns of a plane.
    """

    distance: Array
    cosine: Array
    intensity: Array
    residuals: Array

    def rows(self, chosen: Array) -> Planes:
        """Return some of the planes."""
        return Planes(self.distance[chosen], self.cosine[chosen], self.intensity[chosen], self.residuals[chosen])


def samples_of_clouds(readings: Iterator[Reading], source: str) -> Samples:
    """Return the points of scans, one row per ray, from readings of point clouds or of a lidar.

    Returned values: `points_b` [3], NaN for no return; `intensity`, `distances` and `ring` where the log has them. The
    rows of an organised cloud are rings. Of several envs, the first one counts.
    """
    times, columns = [], {name: [] for name in ("points_b", "distances", "intensity", "ring")}
    for reading in readings:
        points = np.asarray(reading["points_b"], np.float64)
        ragged = next(spec for spec in reading.specs if spec.name == "points_b").is_ragged
        points = points[reading.rows(0)] if ragged else points[0]
        count = points.size // 3
        found = {"points_b": points.reshape(count, 3)}
        for name, names in (("distances", ("distances",)), ("intensity", ("intensity",)), ("ring", ("ring", "channel"))):
            given = next((each for each in names if each in reading), None)
            if given is not None:
                value = np.asarray(reading[given], np.float64)
                value = value[reading.rows(0)] if ragged else value[0]
                if value.size == count:
                    found[name] = value.reshape(count, 1)
        if "ring" not in found and points.ndim == 3:
            found["ring"] = np.repeat(np.arange(float(points.shape[0])), points.shape[1])[:, None]
        times.append(np.full(count, reading.time))
        for name, values in columns.items():
            values.append(found.get(name))
    whole = {name: values for name, values in columns.items() if values and all(each is not None for each in values)}
    if not whole:
        raise ArgumentError(f"readings of {source}: there is none with points_b. Give those of a lidar.")
    units = {"points_b": "m", "distances": "m", "intensity": "1", "ring": "1"}
    return Samples(np.concatenate(times), {name: np.concatenate(v) for name, v in whole.items()}, units, source)


def planes_of(points: Array, intensity: Array | None) -> Planes:
    """Return the planes in one scan, `points` [point, 3] in the sensor's frame, m."""
    r = np.linalg.norm(points, axis=1)
    used = np.flatnonzero(np.isfinite(r) & (r > EDGES[0]))
    points, r = points[used], r[used]
    u = points / r[:, None]
    azimuth, elevation = np.arctan2(u[:, 1], u[:, 0]), np.arcsin(u[:, 2])
    row = np.floor(elevation / CELL)
    width = CELL / np.maximum(np.cos((row + 0.5) * CELL), 0.1)  # cells of equal area
    key = row * 10_000.0 + np.floor(azimuth / width)
    order = np.argsort(key, kind="stable")
    _, start, count = np.unique(key[order], return_index=True, return_counts=True)
    start, count = start[count >= FEWEST], count[count >= FEWEST]
    kept = np.minimum(count, MOST)
    number = np.arange(int(kept.max(initial=0)))
    mask = number < kept[:, None]
    stride = count[:, None] * number // np.maximum(kept, 1)[:, None]  # spread over a cell with too many
    rows = order[np.where(mask, start[:, None] + stride, 0)] if len(start) else np.zeros((0, 0), int)
    w = mask.astype(float)

    u, r = u[rows], r[rows]  # [cell, return, 3], [cell, return]
    centre = np.sum(u * w[..., None], axis=1)
    centre /= np.linalg.norm(centre, axis=1, keepdims=True)
    across = np.stack([-centre[:, 1], centre[:, 0], np.zeros(len(centre))], axis=1)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    up = np.cross(centre, across)
    depth, s, t = (np.einsum("cpk,ck->cp", u, axis) for axis in (centre, across, up))
    s, t = s / depth / CELL, t / depth / CELL
    basis = np.stack([np.ones_like(s), s, t, s * s, s * t, t * t], axis=-1)
    target = 1.0 / (r * depth)
    fitted, weight = r, w * np.square(r * r * depth)
    for _ in range(2):
        plane, values, degrees = _least_squares(basis[..., :3], target, weight)
        fitted = 1.0 / (np.maximum(values, 1e-9) * depth)
        weight = w * np.square(fitted * fitted * depth)
    error = (r - fitted) * w
    spread = 1.0 - weight * _leverage(basis[..., :3], weight)
    _, curved, more = _least_squares(basis, target, weight)
    rss = np.sum(np.square(error), axis=1)
    rss_curved = np.sum(weight * np.square(target - curved), axis=1)
    free = np.maximum(kept - more, 1.0)
    extra = np.maximum(more - degrees, 1.0)
    f = np.maximum(rss - rss_curved, 0.0) / extra / np.maximum(rss_curved / free, 1e-300)
    # the normal with the same probability: E. Paulson, Ann. Math. Stat. 13, 1942
    a, b, root = 2.0 / (9.0 * extra), 2.0 / (9.0 * free), np.cbrt(f)
    z = ((1.0 - b) * root - (1.0 - a)) / np.sqrt(a + b * root * root)
    # normal of the plane: gradient of 1 / depth over directions
    normal = plane[:, :1] * centre + plane[:, 1:2] / CELL * across + plane[:, 2:3] / CELL * up
    cosine = np.abs(np.einsum("ck,ck->c", normal, centre)) / np.linalg.norm(normal, axis=1)
    good = (z < CURVED) & (cosine > FLAT) & (free >= FEWEST - 6) & (degrees > 2.9)
    residuals = np.where(mask & (spread > 0.05), error / np.sqrt(np.maximum(spread, 0.05)), np.nan)
    light = np.full(len(kept), np.nan)
    if intensity is not None:
        light = np.sum(intensity[used][rows] * w, axis=1) / kept
    padded = np.full((int(good.sum()), MOST), np.nan)
    padded[:, : residuals.shape[1]] = residuals[good]
    return Planes(np.sum(r * w, axis=1)[good] / kept[good], cosine[good], light[good], padded)


def _inverse(basis: Array, weight: Array) -> Array:
    """Return the inverse of the normal equations `[cell, term, term]`; terms that the data do not show get 0."""
    return np.linalg.pinv(np.einsum("cp,cpi,cpj->cij", weight, basis, basis), rcond=1e-9, hermitian=True)


def _leverage(basis: Array, weight: Array) -> Array:
    return np.einsum("cpi,cij,cpj->cp", basis, _inverse(basis, weight), basis)


def _least_squares(basis: Array, target: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Return coefficients `[cell, term]`, fitted values `[cell, return]` and numbers of fitted terms `[cell]`."""
    inverse = _inverse(basis, weight)
    found = np.einsum("cij,cp,cpj,cp->ci", inverse, weight, basis, target, optimize=True)
    terms = np.einsum("cij,cp,cpi,cpj->c", inverse, weight, basis, basis, optimize=True)
    return found, np.einsum("cpi,ci->cp", basis, found), terms


def _sd(residuals: Array) -> float:
    return NORMAL * float(np.nanmedian(np.abs(residuals)))


def _without_rough(planes: Planes) -> Planes:
    sds = np.sqrt(np.nanmean(np.square(planes.residuals), axis=1))
    return planes.rows(sds < ROUGH * np.median(sds))


def noise_of(planes: Planes, step: float, method: str, source: str) -> Parameter:
    """Return the deviation of ranges on planes at similar distances, m, without that of rounding to `step`."""
    planes = _without_rough(planes)

    def before_rounding(sd: float) -> float:
        return math.sqrt(max(sd * sd - step * step / 12.0, 0.0))

    sd = _sd(planes.residuals)
    squares = [_sd(planes.residuals[group::GROUPS]) ** 2 for group in range(GROUPS)]
    half = T * float(np.std(squares, ddof=1)) / math.sqrt(GROUPS)
    ends = [before_rounding(math.sqrt(max(sd * sd + sign * half, 0.0))) for sign in (-1.0, 1.0)]
    return Parameter(before_rounding(sd), "m", *ends, f"{method}; {len(planes.distance)} planes", source)


def loss_of(samples: Samples, r: Array) -> Parameter | str:
    """Return the share of lost returns among rays whose neighbours on the ring see a surface, or why it is not shown."""
    if "ring" not in samples.values:
        return "needs the ring of each ray: an organised cloud, or a field ring or channel"
    if np.isfinite(r).all():
        return "the log has no rows for rays without return"
    ring = samples.values["ring"][:, 0]
    order = np.lexsort((np.arange(len(r)), ring, samples.time))
    r, ring, time = r[order], ring[order], samples.time[order]
    around = np.stack([r[:-4], r[1:-3], r[3:-1], r[4:]])
    is_surface = np.ptp(around, axis=0) < STEADY * around.min(axis=0)
    is_surface &= (ring[:-4] == ring[4:]) & (time[:-4] == time[4:])
    count = int(is_surface.sum())
    if count < 1000:
        return f"{count} rays lie between four returns of a surface; 1000 are needed"
    lost = int((~np.isfinite(r[2:-2]) & is_surface).sum())
    share, z2 = lost / count, 1.96**2
    middle, width = share + z2 / (2 * count), 1.96 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    low, high = ((middle + sign * width) / (1 + z2 / count) for sign in (-1.0, 1.0))
    method = f"share of lost returns among {count} rays whose four neighbours on the ring see a surface; Wilson interval"
    return Parameter(share, "1", max(low, 0.0), high, method, samples.source)


def fit_lidar(samples: Samples, kind: str) -> Fit:
    """Return range noise, quantisation step, drop rate and a bound on the roughness of surfaces.

    Args:
        samples: one row per ray, as `samples_of_clouds` returns them.
        kind: kind of the sensor config, ``"lidar"``.

    Raises:
        ArgumentError: the samples have no points, or no planes.
    """
    points = samples.values.get("points_b")
    if points is None or points.shape[1:] != (3,):
        raise ArgumentError(f"samples of {samples.source}: got {sorted(samples.values)}; a lidar needs points_b [ray, 3].")
    r = samples.values["distances"][:, 0] if "distances" in samples.values else _norm(points)
    r = np.where((r > 0.0) & (r < math.inf), r, np.nan)
    light = samples.values.get("intensity")
    scans = []
    for time in np.unique(samples.time):
        rows = samples.time == time
        scans.append(planes_of(np.where(np.isfinite(r[rows, None]), points[rows], np.nan), None if light is None else light[rows, 0]))
    planes = Planes(*(np.concatenate([getattr(scan, name) for scan in scans]) for name in Planes.__slots__))
    parameters: dict[str, Parameter] = {}
    refused: dict[str, str] = {}
    fields: dict[str, Any] = {}

    hit = r[np.isfinite(r)]
    step = step_of(hit)
    if step:
        half = 0.5 * float(np.spacing(np.float32(hit.max()))) * step / float(np.median(hit))
        method = "greatest common step of the ranges"
        parameters["resolution"] = Parameter(step, "m", step - half, step + half, method, samples.source)
        fields["resolution"] = step
    else:
        refused["resolution"] = "the ranges have no common step"

    ratios = []
    for low, high in zip(EDGES[:-1], EDGES[1:], strict=True):
        name, part = f"range_noise.{low:g}-{high:g}m", planes.rows((planes.distance >= low) & (planes.distance < high))
        if len(part.distance) < 4 * GROUPS:
            refused[name] = f"{len(part.distance)} planes; {4 * GROUPS} are needed"
            continue
        parameters[name] = noise_of(part, step, "robust deviation from planes", samples.source)
        ratios.append((name, float(np.mean(part.cosine) / np.mean(part.distance) ** 2)))
        middle = np.median(part.intensity)
        for word, rows in (("dim", part.intensity <= middle), ("bright", part.intensity > middle)):
            if rows.sum() >= 4 * GROUPS:
                method = f"the same at intensities {'up to' if word == 'dim' else 'above'} {middle:.4g}"
                parameters[f"{name}.{word}"] = noise_of(part.rows(rows), step, method, samples.source)
    if not ratios:
        raise ArgumentError(f"samples of {samples.source}: no distance shows {4 * GROUPS} planes. Give scans of walls or floors.")
    bins = [parameters[name] for name, _ in ratios]
    method = "bound: the whole deviation at the nearest distance"
    parameters["surface_roughness"] = Parameter(bins[0].value, "m", 0.0, bins[0].high, method, samples.source)
    fields |= _noise_fields(bins, [ratio for _, ratio in ratios], planes, step, samples.source)

    loss = loss_of(samples, r)
    if isinstance(loss, str):
        refused["drop_rate"] = loss
    else:
        parameters["drop_rate"] = loss
        fields["drop_rate"] = loss.value
    return Fit(kind, samples.source, parameters, refused, fields, {"Deviation by distance": _drawing(planes, parameters)})


def _norm(points: Array) -> Array:
    """Return ranges of points with the digits of float32, in which messages hold them."""
    return np.linalg.norm(points, axis=1).astype(np.float32).astype(np.float64)


def _noise_fields(bins: list[Parameter], ratios: list[float], planes: Planes, step: float, source: str) -> dict[str, Any]:
    """Return one deviation if it is the same at all distances, else a table over the signal-to-noise ratio.

    Only ratios between distances are known: the ratio of a target of mean reflectance at 1 m is taken as 10,000.
    """
    if all(one.overlaps(other) for one in bins for other in bins):
        return {"range_noise": noise_of(planes, step, "", source).value}
    return {
        "range_noise": [each.value for each in bins],
        "range_noise_snr": [1e4 * ratio for ratio in ratios],
        "reference_snr": 1e4,
        "reference_range": 1.0,
    }


def _drawing(planes: Planes, parameters: dict[str, Parameter]) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        axes.scatter(planes.distance, NORMAL * np.nanmedian(np.abs(planes.residuals), axis=1), s=2, label="planes")
        for name, each in parameters.items():
            if name.startswith("range_noise") and name.endswith("m"):
                ends = [float(end) for end in name[12:-1].split("-")]
                axes.plot(ends, [each.value] * 2, color="black")
                axes.fill_between(ends, each.low, each.high, alpha=0.3)
        axes.set(xscale="log", yscale="log", xlabel="distance (m)", ylabel="deviation (m)")

    return draw
