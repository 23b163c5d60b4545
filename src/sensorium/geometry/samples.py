"""Evenly distributed points on surfaces, each with its outward normal and the area it represents: host, float64.

An analytic surface is divided into pieces, each the image of the unit square under an area-preserving map. Each piece
gets a lattice of the golden ratio: u = (i + 1/2) / n, v = i * 0.618... modulo 1. This ratio is the hardest to
approximate by fractions, so no stretching of the square brings two points nearer than 0.874 of the root of the area per
point. Triangles first get many more points than requested. These are halved along their longest side until each part
has the number for one point, and the most central point of each part is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import ConfigError, ModelError
from sensorium.geometry.shapes import HeightField, Shape
from sensorium.geometry.transforms import rotation

Array = NDArray[np.float64]
Piece = tuple[float, Callable[[Array, Array], tuple[Array, Array]]]
"""Area of a piece of a surface, m2, and its map from u and v, each from 0 to 1, to points and normals."""

MAX_SAMPLES = 10_000_000
"""Maximum number of samples; more are rejected as a typing error."""
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
_ASIDE = 1e-7
"""Distance from its surface at which a sample is tested for being covered, relative to the extent of the shapes."""
_GENERIC = (0.5963, 0.2847, -0.6241, 0.4162)
"""Rotation that leaves no edge of a typical mesh along an axis (w, x, y, z), to be normalised."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SurfaceSamples:
    """Points distributed over a surface.

    Attributes:
        points: float64 `[sample, 3]`, m.
        normals: float64 `[sample, 3]`, unit vectors away from the solid.
        areas: float64 `[sample]`, area that each represents, m2; they sum to the surface's area.
        shape: int32 `[sample]`, index of the shape of each, 0 for a single shape.
    """

    points: Array
    normals: Array
    areas: Array
    shape: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"SurfaceSamples({len(self)} points, {self.area:.4g} m2)"

    @property
    def area(self) -> float:
        """Total area, m2."""
        return float(self.areas.sum())

    def __getitem__(self, rows: Any) -> SurfaceSamples:
        """Return some of the samples: a slice, a mask or indices."""
        return SurfaceSamples(self.points[rows], self.normals[rows], self.areas[rows], self.shape[rows])

    def placed(self, pos: Sequence[float], quat: Sequence[float]) -> SurfaceSamples:
        """Return the samples in a frame in which the current frame is at `pos`, m, rotated by `quat` (unit, wxyz)."""
        turn = rotation(quat)
        return SurfaceSamples(
            self.points @ turn.T + np.asarray(pos, np.float64), self.normals @ turn.T, self.areas, self.shape
        )


def surface_area(shape: Shape) -> float:
    """Return the area of a shape's surface, m2; for an ellipsoid to about 1e-5.

    Raises:
        ModelError: an unbounded plane, or a shape with an unknown surface.
    """
    if shape.kind in ("mesh", "hfield"):
        return float(_areas(surface_triangles(shape)).sum())
    return sum(area for area, _ in _pieces(shape))


def surface_samples(
    shape: Shape, *, count: int | None = None, spacing: float | None = None, seed: int = 0
) -> SurfaceSamples:
    """Return evenly distributed points on the surface of a shape, in its own frame; reproducible for equal arguments.

    Planes, and height fields without a base, have only their upper side. A mesh has the normals of its faces, whose
    corners are counter-clockwise seen from outside; a closed mesh with clockwise corners is reversed.

    Args:
        shape: of any kind but an unbounded plane.
        count: number of points; or
        spacing: approximate distance between points, m: one point per square of that side.
        seed: selects among equivalent sets.

    Raises:
        ConfigError: a count or spacing that is not positive, neither of them, or both.
        ModelError: an unbounded plane, or a shape with an unknown surface.
    """
    return _samples(shape, _count(surface_area(shape), count, spacing, "surface_samples"), seed)


def body_samples(
    shapes: Sequence[Shape],
    *,
    count: int | None = None,
    spacing: float | None = None,
    seed: int = 0,
    keep_covered: bool = False,
) -> SurfaceSamples:
    """Return evenly distributed points on all shapes of one body, in the body's frame.

    Args:
        shapes: shapes of one body; `samples.shape` is an index into them.
        count: number of points, on all shapes together, split by area; or
        spacing: as for `surface_samples`.
        seed: as for `surface_samples`.
        keep_covered: whether `covered` points are kept. Otherwise there are fewer than `count`, and their areas sum to
            about that of the union's surface.

    Raises:
        ConfigError: as for `surface_samples`; no shapes; shapes of several bodies; or all points are covered.
        ModelError: an unbounded plane, or a shape with an unknown surface.
    """
    where = "body_samples"
    if not shapes:
        raise ConfigError.single(where, "shapes", shapes, "at least one shape")
    if len({shape.body for shape in shapes}) > 1:
        raise ConfigError.single(where, "shapes", [shape.body for shape in shapes], "shapes of one body")
    areas = np.array([surface_area(shape) for shape in shapes])
    number = _count(float(areas.sum()), count, spacing, where)
    found = _on_shapes(shapes, areas, number, seed)
    if not keep_covered:
        found = found[~covered(shapes, found)]
    if not len(found):
        raise ConfigError.single(where, "shapes", [shape.name for shape in shapes], "a surface that is not covered")
    return found


def covered(shapes: Sequence[Shape], samples: SurfaceSamples) -> NDArray[np.bool_]:
    """Return the mask, bool `[sample]`, of samples inside another shape or another part of their own mesh.

    A sample is tested from just outside its own surface: where two solids touch, both sides are covered. Of flush
    surfaces, such as those of a shape and its copy, all but the first are covered.

    Args:
        shapes: shapes of one body.
        samples: in the body's frame; `samples.shape` is an index into the shapes.
    """
    step = _ASIDE * float(np.ptp(samples.points, axis=0).max(initial=0.0)) * samples.normals
    hidden = np.zeros(len(samples), bool)
    for row, shape in enumerate(shapes):
        is_other = samples.shape != row
        for points, which in (
            (samples.points + step, is_other | (shape.kind == "mesh")),
            (samples.points - step, samples.shape > row),
        ):
            left = np.flatnonzero(which & ~hidden)
            hidden[left] = inside(shape, (points[left] - np.array(shape.pos)) @ rotation(shape.quat))
    return hidden


def scattered(shapes: Sequence[Shape], count: int, seed: int = 0) -> SurfaceSamples:
    """Return samples as `body_samples` does, with covered ones, less even on triangles but much faster."""
    return _on_shapes(shapes, np.array([surface_area(shape) for shape in shapes]), count, seed, is_rough=True)


def _on_shapes(shapes: Sequence[Shape], areas: Array, count: int, seed: int, is_rough: bool = False) -> SurfaceSamples:
    parts = []
    for row, (shape, share) in enumerate(zip(shapes, _split(areas, count).tolist(), strict=True)):
        if share:
            part = _samples(shape, share, seed, is_rough)
            part.shape[:] = row
            parts.append(part.placed(shape.pos, shape.quat))
    whole = sum(part.area for part in parts)
    return SurfaceSamples(
        np.concatenate([part.points for part in parts]),
        np.concatenate([part.normals for part in parts]),
        np.concatenate([part.areas for part in parts]) * (float(areas.sum()) / whole),
        np.concatenate([part.shape for part in parts]),
    )


def _count(area: float, count: int | None, spacing: float | None, where: str) -> int:
    """Return the number of samples for a surface, given a count or a spacing."""
    if (count is None) == (spacing is None):
        raise ConfigError.single(where, "count, spacing", (count, spacing), "one of the two")
    if spacing is not None:
        if not 0.0 < spacing < math.inf:
            raise ConfigError.single(where, "spacing", spacing, "a positive length, m")
        number = max(1, round(area / spacing**2))
        if number > MAX_SAMPLES:
            raise ConfigError.single(
                where,
                "spacing",
                spacing,
                f"at most {MAX_SAMPLES} samples, not {number}",
                "Give the spacing in metres.",
            )
        return number
    try:
        number = index(count)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if isinstance(count, bool) or not 0 < number <= MAX_SAMPLES:
        raise ConfigError.single(where, "count", count, f"a whole number from 1 to {MAX_SAMPLES}")
    return number


def _samples(shape: Shape, count: int, seed: int, is_rough: bool = False) -> SurfaceSamples:
    phase = float(np.random.default_rng(seed).random()) if seed else 0.5
    parts: list[tuple[Array, Array]] = []
    if shape.kind in ("mesh", "hfield"):
        corners = surface_triangles(shape)
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        size = np.linalg.norm(normals, axis=1)
        normals, area = normals / size[:, None], 0.5 * size
        side = np.abs(normals).argmax(axis=1)  # the two sides of a thin sheet are sampled separately
        side = 2 * side + (normals[np.arange(len(side)), side] > 0.0)
        rows = [np.flatnonzero(side == each) for each in range(6)]
        areas = np.array([area[row].sum() for row in rows])
        shares = _split(areas, count)
        for row, share in zip(rows, shares.tolist(), strict=True):
            if share:
                points, face = _on_triangles(corners[row], area[row], share, phase, is_rough)
                parts.append((points, normals[row][face]))
    else:
        pieces = _pieces(shape)
        areas = np.array([area for area, _ in pieces])
        shares = _split(areas, count)
        parts = [
            place(*_lattice(share, phase)) for (_, place), share in zip(pieces, shares.tolist(), strict=True) if share
        ]
    has = shares > 0  # areas of pieces too small for a point are distributed over all others
    each = areas[has] / shares[has] * (areas.sum() / areas[has].sum())
    return SurfaceSamples(
        np.concatenate([points for points, _ in parts]),
        np.concatenate([normals for _, normals in parts]),
        np.repeat(each, shares[has]),
        np.zeros(count, np.int32),
    )


def _split(areas: Array, count: int) -> NDArray[np.int64]:
    """Return the share of each in `count`, in proportion; the remainder from rounding goes to the largest fractions."""
    exact = areas * (count / areas.sum())
    shares: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    most = np.argsort(shares - exact, kind="stable")
    shares[most[: count - int(shares.sum())]] += 1
    return shares


def _lattice(count: int, phase: float) -> tuple[Array, Array]:
    """Return u and v of points in the unit square."""
    i = np.arange(count, dtype=np.float64)
    return (i + 0.5) / count, (i * _GOLDEN + phase) % 1.0


# Analytic shapes ------------------------------------------------------------------------------------------------------


def _pieces(shape: Shape) -> list[Piece]:
    """Return the pieces of an analytic shape's surface."""
    size = shape.size
    if shape.fault:
        raise ModelError(f"shape {shape.name!r}: its surface is unknown: {shape.fault}.")
    if shape.kind == "plane":
        if 0.0 in size:
            raise ModelError(
                f"shape {shape.name!r}: size: got {size}, expected two positive half lengths, since an unbounded plane "
                "has no area. Exclude it, or give it a size."
            )
        return [_rectangle((size[0], size[1], 0.0), 2, 1.0)]
    if shape.kind == "box":
        return [_rectangle(size, axis, sign) for axis in range(3) for sign in (-1.0, 1.0)]
    if shape.kind == "sphere":
        return [_round(size[0], 0.0)]
    if shape.kind == "capsule":
        return [_round(size[0], size[1])]
    if shape.kind == "cylinder":
        return [_side(size[0], size[1]), _disc(size[0], size[1], 1.0), _disc(size[0], size[1], -1.0)]
    return [_ellipsoid(size)]


def _rectangle(half: Sequence[float], axis: int, sign: float) -> Piece:
    """Return the side of a box that is perpendicular to `axis`."""
    first, second = (axis + 1) % 3, (axis + 2) % 3

    def place(u: Array, v: Array) -> tuple[Array, Array]:
        points, normals = np.zeros((len(u), 3)), np.zeros((len(u), 3))
        points[:, first], points[:, second] = half[first] * (2.0 * u - 1.0), half[second] * (2.0 * v - 1.0)
        points[:, axis], normals[:, axis] = sign * half[axis], sign
        return points, normals

    return 4.0 * half[first] * half[second], place


def _round(radius: float, half: float) -> Piece:
    """Return a sphere extended along z, a capsule.

    Slices of equal height have equal area, 2 pi r dz, on a sphere as on a cylinder (Archimedes), so z is linear in u.
    """

    def place(u: Array, v: Array) -> tuple[Array, Array]:
        z = (2.0 * u - 1.0) * (half + radius)
        axis = np.clip(z, -half, half)
        up = (z - axis) / radius
        out = np.sqrt(1.0 - up * up)
        normals = np.stack([out * np.cos(2.0 * np.pi * v), out * np.sin(2.0 * np.pi * v), up], axis=1)
        points = radius * normals
        points[:, 2] += axis
        return points, normals

    return 4.0 * math.pi * radius * (radius + half), place


def _side(radius: float, half: float) -> Piece:
    def place(u: Array, v: Array) -> tuple[Array, Array]:
        normals = np.stack([np.cos(2.0 * np.pi * v), np.sin(2.0 * np.pi * v), np.zeros_like(u)], axis=1)
        points = radius * normals
        points[:, 2] = half * (2.0 * u - 1.0)
        return points, normals

    return 4.0 * math.pi * radius * half, place


def _disc(radius: float, half: float, sign: float) -> Piece:
    def place(u: Array, v: Array) -> tuple[Array, Array]:
        out = radius * np.sqrt(u)
        flat = np.full_like(u, sign * half)
        points = np.stack([out * np.cos(2.0 * np.pi * v), out * np.sin(2.0 * np.pi * v), flat], axis=1)
        return points, np.tile((0.0, 0.0, sign), (len(u), 1))

    return math.pi * radius**2, place


def _ellipsoid(radii: Sequence[float], rings: int = 2048, around: int = 64) -> Piece:
    """Return an ellipsoid as a stretched unit sphere, with numerically summed areas of slices and sectors.

    A piece s of the unit sphere grows by abc |(s_x / a, s_y / b, s_z / c)|. The poles are on the axis that leaves the
    two most similar radii.
    """
    axes = min(
        (((i + 1) % 3, (i + 2) % 3, i) for i in range(3)), key=lambda a: abs(math.log(radii[a[0]] / radii[a[1]]))
    )
    a, b, c = (radii[axis] for axis in axes)

    def growth(polar: Array, turn: NDArray[Any]) -> Array:
        flat = (b * c * np.cos(turn)) ** 2 + (a * c * np.sin(turn)) ** 2
        return np.asarray(np.sqrt(np.sin(polar) ** 2 * flat + (a * b * np.cos(polar)) ** 2) * np.sin(polar))

    quarter = (np.arange(around) + 0.5) * (0.5 * np.pi / around)
    edges = np.linspace(0.0, np.pi, rings + 1)
    slices = growth(0.5 * (edges[1:] + edges[:-1])[:, None], quarter).sum(axis=1)
    slices *= 4.0 * (0.5 * np.pi / around) * (np.pi / rings)
    below = np.concatenate([[0.0], np.cumsum(slices)])

    def place(u: Array, v: Array) -> tuple[Array, Array]:
        polar = np.interp(u * below[-1], below, edges)
        number = np.minimum((4.0 * v).astype(np.int64), 3)
        share = 4.0 * v - number
        turn = np.empty_like(u)
        for start in range(0, len(u), 65536):
            rows = slice(start, start + 65536)
            sums = np.cumsum(growth(polar[rows, None], quarter), axis=1)
            # In every second quarter the growth is reversed.
            goal = np.where(number[rows] % 2 == 0, share[rows], 1.0 - share[rows]) * sums[:, -1]
            cell = np.minimum((sums < goal[:, None]).sum(axis=1), around - 1)
            each = np.arange(len(goal))
            start_of = np.where(cell > 0, sums[each, cell - 1], 0.0)
            angle = (cell + (goal - start_of) / (sums[each, cell] - start_of)) * (0.5 * np.pi / around)
            angle = np.where(number[rows] % 2 == 0, angle, 0.5 * np.pi - angle)
            turn[rows] = angle + 0.5 * np.pi * number[rows]
        unit = np.stack([np.sin(polar) * np.cos(turn), np.sin(polar) * np.sin(turn), np.cos(polar)], axis=1)
        normals = unit / np.array([a, b, c])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        back = np.argsort(axes)
        return (unit * np.array([a, b, c]))[:, back], normals[:, back]

    return float(below[-1]), place


# Triangles ------------------------------------------------------------------------------------------------------------


def surface_triangles(shape: Shape) -> Array:
    """Return the corners `[triangle, 3, 3]` of a mesh or height field, m, in its frame, counter-clockwise from outside.

    Raises:
        ModelError: the shape's surface is unknown.
    """
    if shape.hfield is not None:
        return _hfield_triangles(shape.hfield)
    if shape.mesh is None:
        raise ModelError(f"shape {shape.name!r}: its surface is unknown: {shape.fault or shape.kind}.")
    corners: Array = (shape.mesh.vertices * np.array(shape.scale))[shape.mesh.faces]
    if math.prod(shape.scale) < 0.0:
        corners = corners[:, ::-1]
    is_inverted = (
        float(np.einsum("ij,ij->", corners[:, 0], _crosses(corners))) < 0.0  # six times the volume, where it is closed
        and is_closed(shape.mesh.vertices, shape.mesh.faces)
    )
    return np.ascontiguousarray(corners[:, ::-1] if is_inverted else corners)


def _hfield_triangles(field: HeightField) -> Array:
    rows, columns = field.heights.shape
    x, y = np.linspace(-field.size[0], field.size[0], columns), np.linspace(-field.size[1], field.size[1], rows)
    grid = np.stack([*np.meshgrid(x, y), field.heights], axis=-1)
    p00, p01, p10, p11 = (part.reshape(-1, 3) for part in (grid[:-1, :-1], grid[:-1, 1:], grid[1:, :-1], grid[1:, 1:]))
    found = [np.stack([p00, p01, p11], axis=1), np.stack([p00, p11, p10], axis=1)]
    if field.base is not None:
        rim = np.concatenate([grid[0], grid[1:, -1], grid[-1, -2::-1], grid[-2::-1, 0]])  # closed, seen from above
        floor = rim.copy()
        floor[:, 2] = -field.base
        found += [np.stack([floor[:-1], floor[1:], rim[1:]], 1), np.stack([floor[:-1], rim[1:], rim[:-1]], 1)]
        a, b, c, d = (floor[i] for i in (0, columns - 1, columns + rows - 2, 2 * columns + rows - 3))
        found += [np.stack([a, c, b])[None], np.stack([a, d, c])[None]]
    corners = np.concatenate(found)
    return corners[_areas(corners) > 0.0]


def is_closed(vertices: NDArray[Any], faces: NDArray[Any]) -> bool:
    """Return whether each edge of a mesh is traversed equally often in both directions.

    Vertices at the same position count as one, so that a mesh whose vertices are split by normals or colours is closed.
    """
    used = np.unique(faces)
    _, place = np.unique(vertices[used], axis=0, return_inverse=True)
    corner = place.ravel()[np.searchsorted(used, faces)]
    start, end = corner.ravel(), np.roll(corner, -1, axis=1).ravel()
    number = len(used)
    return bool(np.array_equal(np.sort(start * number + end), np.sort(end * number + start)))


def _crosses(corners: Array) -> Array:
    cross: Array = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    return cross


def _areas(corners: Array) -> Array:
    return np.asarray(0.5 * np.linalg.norm(_crosses(corners), axis=1))


def _on_triangles(
    corners: Array, area: Array, count: int, phase: float, is_rough: bool
) -> tuple[Array, NDArray[np.int64]]:
    """Return points `[count, 3]` distributed over triangles, and the triangle of each."""
    each = 1 if is_rough else max(8, min(64, 4096 // count))
    number = count * each
    ends = np.cumsum(area)
    u, v = _lattice(number, phase)
    goal = u * ends[-1]
    face = np.minimum(np.searchsorted(ends, goal, side="right"), len(area) - 1)
    depth = np.clip((goal - (ends[face] - area[face])) / area[face], 0.0, 1.0)
    a, b, c = (corners[face, i] for i in range(3))
    points = a + np.sqrt(depth)[:, None] * ((1.0 - v)[:, None] * (b - a) + v[:, None] * (c - a))
    if is_rough:
        return points, face
    order = _clusters(points, count, each)
    groups = points[order].reshape(count, each, 3)
    far = ((groups - groups.mean(axis=1, keepdims=True)) ** 2).sum(axis=-1)
    chosen = order.reshape(count, each)[np.arange(count), far.argmin(axis=1)]
    return points[chosen], face[chosen]


def _clusters(points: Array, count: int, each: int) -> NDArray[np.int64]:
    """Return an order of points `[count * each, 3]` in which each run of `each` of them is compact."""
    order = np.arange(len(points))
    sizes = np.array([count])
    while sizes.max() > 1:  # one iteration per halving: 17 for 100,000 points
        starts = each * np.concatenate([[0], np.cumsum(sizes)[:-1]])
        ordered = points[order]
        axis = (np.maximum.reduceat(ordered, starts) - np.minimum.reduceat(ordered, starts)).argmax(axis=1)
        group = np.repeat(np.arange(len(sizes)), sizes * each)
        order = order[np.lexsort((ordered[np.arange(len(ordered)), axis[group]], group))]
        halves = np.stack([sizes - sizes // 2, sizes // 2], axis=1).ravel()
        sizes = halves[halves > 0]
    return order


# Inside ---------------------------------------------------------------------------------------------------------------


def inside(shape: Shape, points: Array) -> NDArray[np.bool_]:
    """Return `[point]` whether each is inside a shape, in the shape's frame.

    The region below an unbounded plane is inside, and so is that below a height field without a base within its
    borders. A bounded plane and an open mesh have no inside.

    Args:
        shape: the shape.
        points: `[point, 3]`, m.
    """
    p, size = np.asarray(points, np.float64), shape.size
    if shape.kind == "plane":
        return np.asarray((p[:, 2] < 0.0) & (0.0 in size))
    if shape.kind == "box":
        return np.asarray((np.abs(p) < np.array(size[:3])).all(axis=1))
    if shape.kind in ("sphere", "ellipsoid"):
        radii = np.broadcast_to(np.array(size[:3]), 3)
        return np.asarray(((p / radii) ** 2).sum(axis=1) < 1.0)
    if shape.kind in ("capsule", "cylinder"):
        across, along = np.hypot(p[:, 0], p[:, 1]), np.abs(p[:, 2])
        if shape.kind == "cylinder":
            return np.asarray((across < size[0]) & (along < size[1]))
        return np.asarray(np.hypot(across, np.maximum(along - size[1], 0.0)) < size[0])
    if shape.hfield is not None:
        field = shape.hfield
        is_below = (np.abs(p[:, :2]) < np.array(field.size)).all(axis=1) & (p[:, 2] < _height(field, p))
        return np.asarray(is_below & (p[:, 2] > (-np.inf if field.base is None else -field.base)))
    corners = surface_triangles(shape)
    assert shape.mesh is not None
    is_solid = is_closed(shape.mesh.vertices, shape.mesh.faces)
    return winding(corners, p) > 0 if is_solid else np.zeros(len(p), bool)


def _height(field: HeightField, p: Array) -> Array:
    """Return the height of a field under points, on its triangles."""
    rows, columns = field.heights.shape
    x = np.clip((p[:, 0] / field.size[0] + 1.0) * 0.5 * (columns - 1), 0.0, columns - 1.0)
    y = np.clip((p[:, 1] / field.size[1] + 1.0) * 0.5 * (rows - 1), 0.0, rows - 1.0)
    i, j = np.minimum(y.astype(int), rows - 2), np.minimum(x.astype(int), columns - 2)
    x, y, h = x - j, y - i, field.heights
    low, high = h[i, j], h[i + 1, j + 1]
    right, left = h[i, j + 1], h[i + 1, j]
    flat = np.where(x > y, (right - low) * x + (high - right) * y, (high - left) * x + (left - low) * y)
    return np.asarray(low + flat)


def winding(corners: Array, points: Array) -> NDArray[np.int64]:
    """Return `[point]` the winding number of closed triangles around each: crossings of a ray, upward minus downward.

    Triangles are sorted into the cells of a grid perpendicular to the ray.
    """
    turn = rotation(tuple(np.array(_GENERIC) / np.linalg.norm(_GENERIC)))
    tri, p = corners @ turn.T, points @ turn.T
    low, high = tri[..., :2].min(axis=(0, 1)), tri[..., :2].max(axis=(0, 1))
    side = max(1, round(math.sqrt(len(tri))))
    pace = side / (high - low)

    def cell(xy: Array) -> NDArray[np.int64]:
        return np.asarray(np.clip(((xy - low) * pace).astype(np.int64), 0, side - 1), np.int64)

    first, last = cell(tri[..., :2].min(axis=1)), cell(tri[..., :2].max(axis=1))
    wide = last - first + 1
    face, k = _ragged(wide.prod(axis=1))
    filed = (first[face, 1] + k // wide[face, 0]) * side + first[face, 0] + k % wide[face, 0]
    order = np.argsort(filed, kind="stable")
    face, ends = face[order], np.cumsum(np.bincount(filed, minlength=side * side))
    turns: NDArray[np.int64] = np.zeros(len(p), np.int64)
    near = np.flatnonzero(((p[:, :2] >= low) & (p[:, :2] <= high)).all(axis=1))
    for rows in np.array_split(near, max(1, len(near) // 20000)):
        at = cell(p[rows, :2])
        where = at[:, 1] * side + at[:, 0]
        begin = np.where(where > 0, ends[where - 1], 0)
        which, k = _ragged(ends[where] - begin)
        t, q = tri[face[begin[which] + k]], p[rows[which]]
        a, b, c = (t[:, i, :2] - q[:, :2] for i in range(3))
        weights = np.stack([_cross2(b, c), _cross2(c, a), _cross2(a, b)], axis=1)
        whole = weights.sum(axis=1)
        hit = (weights * np.sign(whole)[:, None] > 0.0).all(axis=1)
        height = (weights * t[..., 2]).sum(axis=1)
        hit &= (height - q[:, 2] * whole) * np.sign(whole) > 0.0
        np.add.at(turns, rows[which[hit]], np.sign(whole[hit]).astype(np.int64))
    return turns


def _ragged(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each of `counts` its row, repeated that many times, and consecutive numbers from 0 within it."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)


def _cross2(a: Array, b: Array) -> Array:
    return np.asarray(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
