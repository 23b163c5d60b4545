"""Layouts of taxels: pure functions that give the positions and normals of the taxels of a skin.

All are in the frame of the body that carries the skin, as a sensor on that body expects. Lists are `[probe, 3]`, grids
`[row, column, 3]`; a grid's columns run along its x axis and its rows along its y axis, and the normal points outwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sensorium.engines.base import Engine
from sensorium.errors import ConfigError, Fault, SelectionError, UnknownNameError, listed
from sensorium.geometry.samples import SurfaceSamples, covered, scattered, surface_area
from sensorium.geometry.shapes import Mesh, Shape
from sensorium.geometry.transforms import rotation
from sensorium.world.select import resolve_frames

Array = NDArray[np.float64]
Region = tuple[Sequence[float], Sequence[float] | float]
"""A box, (minimum corner, maximum corner), or a ball, (centre, radius), m."""

MAX_TAXELS = 100_000
"""Maximum number of taxels of a layout; more are rejected as a typing error."""
_FIRST, _ENOUGH, _MAX = 20_000, 400_000, 4_000_000
"""Numbers of places on a surface that are tried to find enough in a patch: at first, to find any, and at most."""
_PER_TAXEL, _LEAST_PLACES, _MAX_PLACES = 64, 4096, 16384
"""Candidate places in a patch: number per taxel, and bounds of the total, but never fewer than 8 per taxel."""
_WORK = 100_000_000
"""Maximum number of distances that are computed to even out a layout."""


class _HasEngine(Protocol):
    @property
    def engine(self) -> Engine: ...


@dataclass(frozen=True, slots=True, repr=False)
class TaxelLayout:
    """Positions of taxels as plain numbers, which configs, JSON and TOML can hold.

    Attributes:
        positions: `[probe, 3]` or `[row, column, 3]` as nested tuples, m, in the frame of the carrying body.
        normals: in the same layout, outward unit vectors.
        areas: `[probe]` or `[row, column]`, area of the skin per taxel, m2.
        spacing: minimum distance between two taxels, m; +inf for a single one.
    """

    positions: tuple[Any, ...]
    normals: tuple[Any, ...]
    areas: tuple[Any, ...]
    spacing: float

    @property
    def shape(self) -> tuple[int, ...]:
        """(probes,) for a list, (rows, columns) for a grid."""
        return np.shape(self.areas)

    def __len__(self) -> int:
        return int(np.prod(self.shape))

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        return f"TaxelLayout({size} taxels, {1e3 * self.spacing:.4g} mm apart, {1e4 * np.sum(self.areas):.4g} cm2)"

    def cfg(self, radius: float | None = None) -> dict[str, Any]:
        """Return config fields of tactile sensors: ``KinematicTactileSensorCfg(..., **layout.cfg(radius=0.002))``.

        Args:
            radius: radius of the taxels, m. The taxels are then moved below the skin by this radius, so that they start
                to sense at contact with the skin. With None, they stay on the skin, and the config gives their radius:
                a taxel of radius R then senses objects within R of the skin.

        Raises:
            ConfigError: the radius is not above 0.
        """
        if radius is None:
            return {"probe_local_pos": self.positions, "probe_local_normal": self.normals}
        if isinstance(radius, bool) or not 0.0 < radius < float("inf"):
            raise ConfigError.single("TaxelLayout.cfg", "radius", radius, "a finite radius above 0, m, or None")
        sunk = np.array(self.positions) - radius * np.array(self.normals)
        return {
            "probe_local_pos": _tuples(sunk + 0.0), "probe_local_normal": self.normals, "probe_radius": float(radius),
        }  # fmt: skip

    def placed(
        self, pos: Sequence[float] = (0.0, 0.0, 0.0), quat: Sequence[float] = (1.0, 0.0, 0.0, 0.0)
    ) -> TaxelLayout:
        """Return the layout in another frame, in which the current frame is at `pos`, m, rotated by `quat` (wxyz).

        Raises:
            ConfigError: the quaternion is zero, or a number is not finite.
        """
        where = "TaxelLayout.placed"
        at, turn = _vector(pos, where, "pos"), np.asarray(quat, np.float64)
        if turn.shape != (4,) or not np.isfinite(turn).all() or not np.linalg.norm(turn) > 1e-6:
            raise ConfigError.single(where, "quat", quat, "a quaternion (w, x, y, z) that is not zero")
        matrix = rotation((turn / np.linalg.norm(turn)).tolist())
        return _layout(
            np.array(self.positions) @ matrix.T + at,
            np.array(self.normals) @ matrix.T,
            np.array(self.areas),
            self.spacing,
        )

    def crosstalk(self, strength: float, sigma: float) -> tuple[tuple[float, ...], ...]:
        """Return the argument of ``TaxelCrosstalk(matrix=...)``: each taxel shares with its neighbours, as in a grid.

        A taxel keeps 1 - `strength`. The rest goes to it and to all taxels up to three `sigma` away, by straight-line
        distance, in proportion to exp(-distance^2 / 2 sigma^2). Columns sum to 1, so the sum over the skin is
        preserved.

        Args:
            strength: shared fraction, in [0, 1].
            sigma: standard deviation, m.

        Raises:
            ConfigError: a number is outside its range.
        """
        where = "TaxelLayout.crosstalk"
        if not 0.0 <= strength <= 1.0:
            raise ConfigError.single(where, "strength", strength, "a number in [0, 1]")
        if not 0.0 < sigma < math.inf:
            raise ConfigError.single(where, "sigma", sigma, "a finite length above 0, m")
        places = np.array(self.positions).reshape(-1, 3)
        square = ((places[:, None] - places) ** 2).sum(axis=2) / sigma**2
        bell = np.where(square <= 9.0, np.exp(-0.5 * square), 0.0)
        matrix = (1.0 - strength) * np.eye(len(places)) + strength * bell / bell.sum(axis=0)
        return tuple(tuple(row) for row in matrix.tolist())


# Lists and grids ------------------------------------------------------------------------------------------------------


def taxel_list(
    positions: ArrayLike, normals: ArrayLike = (0.0, 0.0, 1.0), areas: ArrayLike | None = None
) -> TaxelLayout:
    """Return a layout of taxels at given positions.

    Args:
        positions: `[probe, 3]` or `[row, column, 3]`, m.
        normals: in the same layout, or one for all, `[3]`; of any length but zero.
        areas: `[probe]` or `[row, column]`, or one number for all, m2; by default the square of the spacing, 0 for a
            single taxel.

    Raises:
        ConfigError: shapes that do not match, numbers that are not finite, normals of length zero, areas that are not
            positive.
    """
    where = "taxel_list"
    places = _numbers(positions, where, "positions")
    if places.ndim not in (2, 3) or places.shape[-1] != 3 or not places.size:
        raise ConfigError.single(
            where,
            "positions",
            positions,
            "[probe, 3] or [row, column, 3] with at least one",
            "Give all rows the same length.",
        )
    given = _numbers(normals, where, "normals")
    if given.shape not in ((3,), places.shape):
        raise ConfigError.single(where, "normals", normals, f"one normal, or one for each of {places.shape[:-1]}")
    length = np.linalg.norm(given, axis=-1, keepdims=True)
    if not (length > 1e-9).all():
        raise ConfigError.single(where, "normals", normals, "normals that are not zero")
    spacing = _least_distance(places.reshape(-1, 3))
    if areas is None:
        each = np.array(spacing**2 if math.isfinite(spacing) else 0.0)
    else:
        each = _numbers(areas, where, "areas")
        if each.shape not in ((), places.shape[:-1]) or not (each > 0.0).all():
            raise ConfigError.single(where, "areas", areas, f"positive areas, m2, one or {places.shape[:-1]}")
    return _layout(
        places, np.broadcast_to(given / length, places.shape), np.broadcast_to(each, places.shape[:-1]), spacing
    )


def taxel_grid(
    rows: int,
    columns: int,
    spacing: float | tuple[float, float] | None = None,
    *,
    size: tuple[float, float] | None = None,
    origin: Sequence[float] = (0.0, 0.0, 0.0),
    normal: Sequence[float] = (0.0, 0.0, 1.0),
    x_axis: Sequence[float] | None = None,
) -> TaxelLayout:
    """Return a grid on a flat pad, around its centre: column 0 at the least x, row 0 at the least y.

    Args:
        rows: number of taxels along y = normal x x_axis.
        columns: number of taxels along x.
        spacing: distance between neighbours, m: one number, or (along x, along y); or
        size: extent of the pad, m: (along x, along y). Each taxel is at the centre of an equal part.
        origin: centre of the pad, m.
        normal: outward normal of the pad.
        x_axis: direction of the columns; only its component perpendicular to the normal counts. By default the frame's
            x axis, or its y axis if x is along the normal.

    Raises:
        ConfigError: counts, spacing or size that are not positive, neither or both of spacing and size, a normal of
            length zero, an x axis along the normal.
    """
    where = "taxel_grid"
    rows, columns = _whole(rows, where, "rows"), _whole(columns, where, "columns")
    _check_number(rows * columns, where, "rows, columns", (rows, columns))
    if (spacing is None) == (size is None):
        raise ConfigError.single(where, "spacing, size", (spacing, size), "one of the two")
    name, given = ("spacing", spacing) if size is None else ("size", size)
    pair = np.broadcast_to(_numbers(given, where, name), 2) if np.size(cast(Any, given)) in (1, 2) else np.zeros(2)
    if not (pair > 0.0).all():
        raise ConfigError.single(where, name, given, "positive lengths, m: one number, or (along x, along y)")
    dx, dy = pair if size is None else pair / (columns, rows)
    frame = _axes(normal, x_axis, where)
    x, y = np.meshgrid(dx * (np.arange(columns) - 0.5 * (columns - 1)), dy * (np.arange(rows) - 0.5 * (rows - 1)))
    local = np.stack([x, y, np.zeros_like(x)], axis=-1)
    places = local @ frame + _vector(origin, where, "origin")
    return _layout(places, np.broadcast_to(frame[2], places.shape), np.full(x.shape, dx * dy))


def taxel_cylinder(
    radius: float,
    rows: int,
    columns: int,
    *,
    length: float,
    angle_deg: float = 180.0,
    origin: Sequence[float] = (0.0, 0.0, 0.0),
    normal: Sequence[float] = (0.0, 0.0, 1.0),
    x_axis: Sequence[float] | None = None,
) -> TaxelLayout:
    """Return a grid on the outside of a cylinder, such as the skin around a finger or an arm.

    It is a bent flat grid: column 0 at the least x, row 0 at the least y = normal x x_axis.

    Args:
        radius: radius of the cylinder, m.
        rows: number of taxels around the axis.
        columns: number of taxels along the axis.
        length: extent of the skin along the axis, m; each taxel is at the centre of an equal part.
        angle_deg: extent around the axis, degrees, up to 360.
        origin: centre of the axis, m.
        normal: direction from the axis to the centre of the skin.
        x_axis: direction of the axis, as for `taxel_grid`.

    Raises:
        ConfigError: as for `taxel_grid`, or an angle that is not above 0 and up to 360.
    """
    where = "taxel_cylinder"
    rows, columns = _whole(rows, where, "rows"), _whole(columns, where, "columns")
    _check_number(rows * columns, where, "rows, columns", (rows, columns))
    radius, length = _length(radius, where, "radius"), _length(length, where, "length")
    arc = math.radians(_angle(angle_deg, where, "angle_deg", 360.0))
    frame = _axes(normal, x_axis, where)
    turn = arc * ((np.arange(rows) + 0.5) / rows - 0.5)
    x, turns = np.meshgrid(length * ((np.arange(columns) + 0.5) / columns - 0.5), turn)
    local = np.stack([np.zeros_like(x), np.sin(turns), np.cos(turns)], axis=-1)
    normals = local @ frame
    places = radius * normals + x[..., None] * frame[0] + _vector(origin, where, "origin")
    return _layout(places, normals, np.full(x.shape, radius * arc / rows * length / columns))


def taxel_dome(
    radius: float,
    rows: int,
    columns: int,
    *,
    angle_deg: float = 75.0,
    origin: Sequence[float] = (0.0, 0.0, 0.0),
    normal: Sequence[float] = (0.0, 0.0, 1.0),
    x_axis: Sequence[float] | None = None,
) -> TaxelLayout:
    """Return a grid of rings on a spherical cap, such as a domed fingertip.

    Row i is the ring at (i + 1/2) / rows of the cap's angle from its top; column j is at j / columns of a turn from the
    x axis.

    Args:
        radius: radius of the sphere, m.
        rows: number of rings, the innermost first.
        columns: number of taxels in each ring.
        angle_deg: angle from the top of the cap to its rim, degrees, up to 180.
        origin: centre of the sphere, m.
        normal: direction from the centre to the top of the cap.
        x_axis: as for `taxel_grid`.

    Raises:
        ConfigError: as for `taxel_grid`, or an angle that is not above 0 and up to 180.
    """
    where = "taxel_dome"
    rows, columns = _whole(rows, where, "rows"), _whole(columns, where, "columns")
    _check_number(rows * columns, where, "rows, columns", (rows, columns))
    radius = _length(radius, where, "radius")
    rim = math.radians(_angle(angle_deg, where, "angle_deg", 180.0))
    frame = _axes(normal, x_axis, where)
    turn, polar = np.meshgrid(2.0 * np.pi * np.arange(columns) / columns, rim * (np.arange(rows) + 0.5) / rows)
    local = np.stack([np.sin(polar) * np.cos(turn), np.sin(polar) * np.sin(turn), np.cos(polar)], axis=-1)
    normals = local @ frame
    zones = -np.diff(np.cos(rim * np.arange(rows + 1) / rows)) * 2.0 * math.pi * radius**2
    areas = np.repeat(zones[:, None] / columns, columns, axis=1)
    return _layout(radius * normals + _vector(origin, where, "origin"), normals, areas)


# Patches --------------------------------------------------------------------------------------------------------------


def taxel_patch(
    surface: Shape | Mesh | Sequence[Shape],
    *,
    count: int | None = None,
    spacing: float | None = None,
    normal: Sequence[float] = (0.0, 0.0, 1.0),
    max_angle_deg: float = 60.0,
    region: Region | None = None,
    seed: int = 0,
) -> TaxelLayout:
    """Return taxels on the part of a surface that faces a direction, starting from its centre.

    With `count` they are spread evenly (Lloyd's iteration from farthest points). With `spacing`, there are as many as
    fit at this minimum distance. With both, there are `count` of them, none closer than `spacing`. The same arguments
    give the same layout.

    Args:
        surface: a shape, a mesh, or several shapes of one body; parts inside another shape, or inside another part of a
            mesh, are ignored.
        count: number of taxels.
        spacing: minimum straight-line distance between two taxels, m.
        normal: direction that the patch faces.
        max_angle_deg: maximum angle between the surface normal and that direction, degrees, up to 180.
        region: limits the patch to a box, (minimum corner, maximum corner), or a ball, (centre, radius), m.
        seed: selects among equivalent layouts.

    Returns:
        A list, in the frame of a shape's `pos` and `quat` (that of its body), with normals of the surface; on a mesh,
        those of the faces.

    Raises:
        ConfigError: invalid numbers; no surface faces that direction or lies in the region; or the surface is too
            small.
        ModelError: an unbounded plane, or a shape with an unknown surface.
    """
    if isinstance(surface, Mesh):
        surface = Shape("mesh", surface.name, mesh=surface)
    shapes = (surface,) if isinstance(surface, Shape) else tuple(surface)
    return _patch(shapes, count, spacing, normal, max_angle_deg, region, seed, "taxel_patch")


def taxels_on(
    engine: Engine | _HasEngine,
    body: str | None = None,
    *,
    geom: str | Sequence[str] | None = None,
    count: int | None = None,
    spacing: float | None = None,
    normal: Sequence[float] = (0.0, 0.0, 1.0),
    max_angle_deg: float = 60.0,
    region: Region | None = None,
    geometry: Literal["collision", "visual", "all"] = "collision",
    seed: int = 0,
) -> TaxelLayout:
    """Return taxels on the shapes of a body, in the body's frame, such as N of them on a fingertip.

    Args:
        engine: an engine, or a scene.
        body: name or pattern of one body; or
        geom: names or patterns of geoms of one body.
        count: as for `taxel_patch`.
        spacing: as for `taxel_patch`.
        normal: direction that the patch faces, in the body's frame.
        max_angle_deg: as for `taxel_patch`.
        region: as for `taxel_patch`, in the body's frame.
        geometry: which shapes of a body to use: those with contacts, those that a viewer shows, or all. Geoms given by
            name are always used.
        seed: as for `taxel_patch`.

    Returns:
        A list, as from `taxel_patch`.

    Raises:
        SelectionError: not exactly one body is selected.
        ConfigError: the body has no such shape; and as for `taxel_patch`.
        ModelError: an unbounded plane, or a shape with an unknown surface.
    """
    where = "taxels_on"
    source = engine if isinstance(engine, Engine) else engine.engine
    if (body is None) == (geom is None):
        raise ConfigError.single(where, "body, geom", (body, geom), "one of the two")
    if geometry not in ("collision", "visual", "all"):
        raise ConfigError.single(where, "geometry", geometry, "collision, visual or all")
    selector, value = ("body", body) if geom is None else ("geom", geom if isinstance(geom, str) else tuple(geom))
    names, frames = resolve_frames(selector, value, source, config=where, field=selector, exactly_one=geom is None)
    rows = {frame.body for frame in frames}
    if len(rows) > 1:
        bodies = listed("world" if row < 0 else source.names("body")[row] for row in sorted(rows))
        raise SelectionError(
            where, [Fault("geom", repr(geom), "geoms of one body", f"The given geoms are on {bodies}.")]
        )
    on_body = [shape for shape in source.shapes() if shape.row in rows]
    if geom is not None:
        chosen = [shape for shape in on_body if shape.name in names]
    else:
        is_in = {"collision": "is_collision", "visual": "is_visual"}.get(geometry)
        chosen = [shape for shape in on_body if is_in is None or getattr(shape, is_in)]
    if not chosen:
        there = listed(f"{shape.name} ({'collision' if shape.is_collision else 'visual'})" for shape in on_body)
        kind = "" if geometry == "all" or geom is not None else f"{geometry} "
        fix = f"Give geometry='all' to use all of its shapes: {there}." if on_body else ""
        raise ConfigError.single(where, selector, value, f"a body with {kind}shapes in engine {source.name!r}", fix)
    shapes = tuple(_on_its_body(shape, source, where) for shape in chosen)
    return _patch(shapes, count, spacing, normal, max_angle_deg, region, seed, where)


def _on_its_body(shape: Shape, engine: Engine, where: str) -> Shape:
    """Return a shape with its pose on its body; engines give the pose of a static shape in the world."""
    if not shape.is_static or shape.row < 0:
        return shape
    from dataclasses import replace

    try:
        frame = engine.frame("geom", shape.name)
    except UnknownNameError:
        raise ConfigError.single(
            where, "body", engine.names("body")[shape.row], "geoms by name, since the body never moves",
            f"Give the geom of shape {shape.name!r}, whose pose is known only in the world.",
        ) from None  # fmt: skip
    return replace(shape, pos=frame.pos, quat=frame.quat)


def _patch(
    shapes: Sequence[Shape],
    count: int | None,
    spacing: float | None,
    normal: Sequence[float],
    max_angle_deg: float,
    region: Region | None,
    seed: int,
    where: str,
) -> TaxelLayout:
    if not shapes:
        raise ConfigError.single(where, "surface", shapes, "at least one shape")
    if len({shape.body for shape in shapes}) > 1:
        raise ConfigError.single(where, "surface", [shape.name for shape in shapes], "shapes of one body")
    if count is None and spacing is None:
        raise ConfigError.single(where, "count, spacing", None, "one of the two, or both")
    if count is not None:
        count = _whole(count, where, "count")
        _check_number(count, where, "count", count)
    if spacing is not None:
        spacing = _length(spacing, where, "spacing")
    way = _unit(normal, where, "normal")
    limit = _angle(max_angle_deg, where, "max_angle_deg", 180.0)
    places = _places(shapes, count, spacing, way, limit, _within(region, where), seed, where)
    points = places.points
    if count is not None and count > len(points):
        fix = f"Use fewer taxels, or a larger max_angle_deg or region; the patch has {places.area:.3g} m2."
        raise ConfigError.single(where, "count", count, "a patch that is large enough", fix)
    wanted = count or MAX_TAXELS
    chosen, gaps = _farthest(points, wanted, spacing if count is None else None, places.areas)
    if count is not None:
        even = _evened(points, places.areas, chosen)
        if spacing is None or _least_distance(points[even]) >= spacing:
            chosen = even
        elif gaps.min() < spacing:
            fits = 1 + int((np.minimum.accumulate(gaps[1:]) >= spacing).sum())
            room = f"at most {fits}, which fit on {1e4 * places.area:.4g} cm2 at a spacing of {spacing:g} m"
            fix = "Use fewer taxels, a smaller spacing, or a larger max_angle_deg or region."
            raise ConfigError.single(where, "count", count, room, fix)
    elif len(chosen) == MAX_TAXELS:
        raise ConfigError.single(
            where, "spacing", spacing, f"at most {MAX_TAXELS} taxels", "Give the spacing in metres."
        )
    middle = np.average(points, axis=0, weights=places.areas)
    chosen = chosen[np.argsort(((points[chosen] - middle) ** 2).sum(axis=1), kind="stable")]
    cells = np.bincount(_nearest(points, points[chosen]), weights=places.areas, minlength=len(chosen))
    return _layout(points[chosen], places.normals[chosen], cells.astype(np.float64))


def _places(
    shapes: Sequence[Shape],
    count: int | None,
    spacing: float | None,
    way: Array,
    limit: float,
    region: tuple[Array, Array | float] | None,
    seed: int,
    where: str,
) -> SurfaceSamples:
    """Return candidate places for taxels: on the surface, in the direction, in the region, not covered."""
    whole = sum(surface_area(shape) for shape in shapes)
    tried = _FIRST
    while True:
        found = scattered(shapes, tried, seed)
        angle = np.degrees(np.arccos(np.clip(found.normals @ way, -1.0, 1.0)))
        is_in = np.ones(len(found), bool) if region is None else _contains(region, found.points)
        facing = is_in & (angle <= limit)
        kept = found[facing]
        if len(kept):
            kept = kept[~covered(shapes, kept)]
        taxels = count or math.ceil(1.3 * len(kept) / len(found) * whole / cast(float, spacing) ** 2)
        _check_number(taxels, where, "spacing", spacing)
        wanted = max(8 * taxels, min(max(_PER_TAXEL * taxels, _LEAST_PLACES), _MAX_PLACES))
        if len(kept) >= wanted or tried >= max(_MAX, 2 * wanted) or (not len(kept) and tried >= _ENOUGH):
            break
        share = max(len(kept) / len(found), 1e-3)
        most = max(_MAX, 2 * wanted) if len(kept) else _ENOUGH
        tried = min(max(math.ceil(1.1 * wanted / share), 2 * tried), most)
    if len(kept):
        return kept
    names = [shape.name for shape in shapes]
    if not is_in.any():
        low, high = found.points.min(axis=0).tolist(), found.points.max(axis=0).tolist()
        near = f"The surface of {listed(names)} reaches from {_shown(low)} to {_shown(high)} m."
        got = None if region is None else tuple(part if isinstance(part, float) else part.tolist() for part in region)
        raise ConfigError.single(where, "region", got, "a region that contains part of the surface", near)
    if not facing.any():
        raise ConfigError.single(
            where, "normal", tuple(np.round(way, 3).tolist()),
            f"a direction that some surface faces within {limit:g} degrees",
            f"The nearest part of {listed(names)} is {angle[is_in].min():.1f} degrees away.",
        )  # fmt: skip
    raise ConfigError.single(where, "surface", names, "a surface that faces this direction and is not inside another")


def _farthest(points: Array, count: int, spacing: float | None, areas: Array) -> tuple[NDArray[np.int64], Array]:
    """Return points, each the farthest from all previous ones, starting from the centre, and their distances, m.

    Args:
        points: `[place, 3]`.
        count: number of points.
        spacing: stop when no point is as far as this, m.
        areas: weights of the places, for the centre.
    """
    middle = np.average(points, axis=0, weights=areas)
    at = int(((points - middle) ** 2).sum(axis=1).argmin())
    x, y, z = np.ascontiguousarray(points.T)
    left = np.full(len(points), np.inf)
    chosen, gaps = [at], [math.inf]
    while len(chosen) < count:
        np.minimum(left, (x - x[at]) ** 2 + (y - y[at]) ** 2 + (z - z[at]) ** 2, out=left)
        at = int(left.argmax())
        gap = math.sqrt(left[at])
        if spacing is not None and gap < spacing:
            break
        chosen.append(at)
        gaps.append(gap)
    return np.array(chosen), np.array(gaps)


def _evened(points: Array, areas: Array, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return places at the centres of the regions nearest to the chosen ones, after some rounds (Lloyd, 1982)."""
    count, middles = len(chosen), points[chosen]
    for _ in range(int(np.clip(_WORK / (len(points) * count), 8, 60))):
        cell = _nearest(points, middles)
        weight = np.bincount(cell, weights=areas, minlength=count)
        sums = np.stack([np.bincount(cell, weights=areas * axis, minlength=count) for axis in points.T], axis=1)
        middles = np.where(weight[:, None] > 0.0, sums / np.maximum(weight, 1e-300)[:, None], middles)
    off = ((points - middles[cell]) ** 2).sum(axis=1)
    order = np.lexsort((off, cell))
    places = np.searchsorted(cell[order], np.arange(count))
    has = np.bincount(cell, minlength=count) > 0
    return np.where(has, order[np.minimum(places, len(order) - 1)], chosen)


def _nearest(points: Array, chosen: Array) -> NDArray[np.int64]:
    """Return the index of the chosen point nearest to each point."""
    square = 0.5 * (chosen**2).sum(axis=1)
    parts = np.array_split(points, max(1, len(points) * len(chosen) // 4_000_000))
    return np.concatenate([(square - part @ chosen.T).argmin(axis=1) for part in parts])


# Numbers --------------------------------------------------------------------------------------------------------------


def _layout(positions: Array, normals: Array, areas: Array, spacing: float | None = None) -> TaxelLayout:
    if spacing is None:
        spacing = _least_distance(positions.reshape(-1, 3))
    return TaxelLayout(_tuples(positions + 0.0), _tuples(normals + 0.0), _tuples(areas), spacing)  # + 0.0: no -0.0


def _tuples(values: Array) -> tuple[Any, ...]:
    def plain(part: Any) -> Any:
        return tuple(plain(each) for each in part) if isinstance(part, list) else part

    return cast(tuple[Any, ...], plain(values.tolist()))


def _least_distance(points: Array) -> float:
    """Return the minimum distance between two of the points, m; +inf for one."""
    order = np.argsort(points[:, int(np.ptp(points, axis=0).argmax())], kind="stable")
    p, best, step = points[order], math.inf, 1
    along = p[:, int(np.ptp(points, axis=0).argmax())]
    while step < len(p) and (along[step:] - along[:-step]).min() < best:
        best = min(best, float(np.linalg.norm(p[step:] - p[:-step], axis=1).min()))
        step += 1
    return best


def _axes(normal: Sequence[float], x_axis: Sequence[float] | None, where: str) -> Array:
    """Return x, y and normal of a grid as the rows of a matrix."""
    z = _unit(normal, where, "normal")
    if x_axis is None:
        x_axis = (1.0, 0.0, 0.0) if abs(z[0]) < 1.0 - 1e-9 else (0.0, 1.0, 0.0)
    given = _unit(x_axis, where, "x_axis")
    x = given - (given @ z) * z
    length = np.linalg.norm(x)
    if not length > 1e-6:
        raise ConfigError.single(where, "x_axis", tuple(x_axis), "a direction that is not along the normal")
    x = x / length
    return np.stack([x, np.cross(z, x), z])


def _unit(value: Sequence[float], where: str, field: str) -> Array:
    vector = _vector(value, where, field)
    length = float(np.linalg.norm(vector))
    if not length > 1e-9:
        raise ConfigError.single(where, field, value, "a direction that is not zero")
    return np.asarray(vector / length)


def _vector(value: Sequence[float], where: str, field: str) -> Array:
    vector = _numbers(value, where, field)
    if vector.shape != (3,):
        raise ConfigError.single(where, field, value, "three numbers (x, y, z)")
    return vector


def _numbers(value: Any, where: str, field: str) -> Array:
    try:
        array = np.array(value.tolist() if hasattr(value, "tolist") else value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError.single(where, field, value, "numbers, with all rows of a grid of the same length") from None
    if not np.isfinite(array).all():
        raise ConfigError.single(where, field, value, "finite numbers")
    return array


def _length(value: float, where: str, field: str) -> float:
    number = _numbers(value, where, field)
    if number.shape != () or not number > 0.0:
        raise ConfigError.single(where, field, value, "a positive length, m")
    return float(number)


def _angle(value: float, where: str, field: str, most: float) -> float:
    number = _numbers(value, where, field)
    if number.shape != () or not 0.0 < number <= most:
        raise ConfigError.single(where, field, value, f"an angle above 0 and up to {most:g} degrees")
    return float(number)


def _whole(value: int, where: str, field: str) -> int:
    try:
        number = 0 if isinstance(value, bool) else index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ConfigError.single(where, field, value, "a whole number >= 1")
    return number


def _check_number(count: int, where: str, field: str, got: object) -> None:
    if count > MAX_TAXELS:
        raise ConfigError.single(where, field, got, f"at most {MAX_TAXELS} taxels, not {count}", "Give lengths in m.")


def _within(region: Region | None, where: str) -> tuple[Array, Array | float] | None:
    if region is None:
        return None
    expected = "a box, (minimum corner, maximum corner), or a ball, (centre, radius), m"
    if not isinstance(region, Sequence) or len(region) != 2:
        raise ConfigError.single(where, "region", region, expected)
    first, second = (_numbers(part, where, "region") for part in region)
    if first.shape != (3,) or second.shape not in ((), (3,)):
        raise ConfigError.single(where, "region", region, expected)
    if not (second > (first if second.ndim else 0.0)).all():
        raise ConfigError.single(where, "region", region, f"{expected}, that is not empty")
    return first, second if second.ndim else float(second)


def _contains(region: tuple[Array, Array | float], points: Array) -> NDArray[np.bool_]:
    first, second = region
    if isinstance(second, float):
        return np.asarray(np.linalg.norm(points - first, axis=1) <= second)
    return np.asarray(((points >= first) & (points <= second)).all(axis=1))


def _shown(vector: Sequence[float]) -> str:
    return f"({', '.join(f'{value:.3g}' for value in vector)})"
