"""The slow reference for rays, in float64 NumPy: brute force, written from first principles and without any kernel.

    reference = reference_cast(shapes, starts, directions)
    compare_casts(reference, distance, shape)  # raises AssertionError, naming the worst ray

`random_shapes`, `random_poses` and `random_rays` make scenes of all kinds to compare on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sensorium.geometry.shapes import HeightField, Shape
from sensorium.testing.ray_scenes import at_world, random_poses, random_rays, random_shapes, rotation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Poses = tuple[ArrayLike, ArrayLike]
"""Of every body in the world: positions `[body, 3]`, m, and unit quaternions (w, x, y, z) `[body, 4]`."""
SEAM = 1e-12
"""Parts of one surface overlap by this share of the shape's size, so that rounding opens no seam between them."""
CHUNK = 4_000_000
"""Pairs of a ray and a mesh edge that are worked on at a time."""
TOLERANCE = 1e-4
"""Distances within this are equal, m."""
EDGE = 1e-5
"""Rays that pass a silhouette within this share of the scene's size are left out."""
TANGENT_DEG = 0.1
"""Rays that meet the surface at less than this angle are left out, degrees."""
LEFT_OUT = 1e-3
"""The share of rays that are left out stays below this."""
RING = 8
"""Rays around each ray that look for silhouettes."""


@dataclass(frozen=True, eq=False)
class ReferenceHits:
    """Nearest hits of rays, and what is needed to compare others with them. Arrays are float64 unless said otherwise.

    Attributes:
        distance: `[ray]`, from the start to the hit, m; inf on a miss.
        point: `[ray, 3]`, hit in the world, m; inf on a miss.
        normal: `[ray, 3]`, unit, world; 0 on a miss. Outward for solids, +z for planes, upward for the surface of a
            height field. For meshes that of cross(e1, e2) in the mesh's own frame, which stays on its side of the
            surface when a negative scale mirrors it.
        shape: int64 `[ray]`, index of the shape; -1 on a miss.
        face: int64 `[ray]`, row in the faces that a mesh was given (`Mesh.face_ids`); for the surface of a height field
            2 * cell + 0 or 1, where cell = row * (columns - 1) + column, 0 is the triangle with the corner
            (row, column + 1), right of the diagonal, and 1 the one with (row + 1, column); -1 for all else.
        second: `[ray]`, distance to the nearest other shape, m; inf where there is none.
        tangency: `[ray]`, angle between ray and surface at the hit, rad; pi/2 on a miss.
        starts: `[ray, 3]`, of the rays, world, m.
        directions: `[ray, 3]`, of the rays, unit, world.
        max_distance: nothing beyond it was hit, m.
        size: longest side of the box around all starts and bounded shapes, m.
    """

    distance: Floats
    point: Floats
    normal: Floats
    shape: Ints
    face: Ints
    second: Floats
    tangency: Floats
    starts: Floats
    directions: Floats
    max_distance: float
    size: float
    cast: Callable[[Floats, Floats], _Nearest] = field(repr=False)

    @cached_property
    def ring(self) -> list[_Nearest]:
        """Hits of `RING` parallel rays around each ray, at `EDGE` times the size of the scene, without a limit."""
        return [self.cast(self.starts + shift, self.directions) for shift in self._shifts]

    @cached_property
    def _shifts(self) -> list[Floats]:
        axis = np.eye(3)[np.abs(self.directions).argmin(axis=1)]
        u = np.cross(self.directions, axis)
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        v = np.cross(self.directions, u)
        angles = 2.0 * np.pi * np.arange(RING) / RING
        return [EDGE * self.size * (np.cos(angle) * u + np.sin(angle) * v) for angle in angles]

    @cached_property
    def is_edge(self) -> NDArray[np.bool_]:
        """Bool `[ray]`: a silhouette is so near that a ray of the ring leaves the surface that the ray meets.

        From a hit to one beside it the distance changes with a slope between those of the two tangent planes, along one
        surface, smooth or creased, and where one shape goes over into another. Any other change is a jump.
        """
        here = self.cast(self.starts, self.directions)
        jumps = np.zeros(len(self.starts), bool)
        step = EDGE * self.size
        for shift, there in zip(self._shifts, self.ring, strict=True):
            slopes = np.stack([_slope(hits.normal, shift, self.directions) for hits in (here, there)])
            slack = 0.01 * (step + np.abs(slopes).max(axis=0))
            both = np.isfinite(here.distance) & np.isfinite(there.distance)
            change = np.subtract(there.distance, here.distance, out=np.zeros_like(here.distance), where=both)
            smooth = (change >= slopes.min(axis=0) - slack) & (change <= slopes.max(axis=0) + slack)
            jumps |= np.where(both, ~smooth, np.isfinite(here.distance) != np.isfinite(there.distance))
        return jumps


@dataclass(frozen=True)
class CastComparison:
    """What `compare_casts` found.

    Attributes:
        rays: how many were given.
        hits: how many of them hit something, by the reference.
        edges: left out, for they pass a silhouette.
        tangents: left out, for they touch the surface.
        left_out: both together.
        differing: how many of those that were left out do differ.
        worst: largest difference of distances among those that were compared, m.
    """

    rays: int
    hits: int
    edges: int
    tangents: int
    left_out: int
    differing: int
    worst: float


@dataclass(frozen=True, eq=False)
class _Nearest:
    """Hits of one shape, or the nearest of all; `shape` and `second` only of the latter."""

    distance: Floats
    normal: Floats
    face: Ints
    shape: Ints
    second: Floats


def reference_cast(
    shapes: Sequence[Shape],
    starts: ArrayLike,
    directions: ArrayLike,
    *,
    poses: Poses | None = None,
    max_distance: float = np.inf,
    include: ArrayLike | None = None,
) -> ReferenceHits:
    """Cast rays at shapes, each ray at each of them.

    Both faces are hit, so a ray that starts inside a solid meets its exit; hits have t >= 0.

    Args:
        shapes: what there is.
        starts: `[ray, 3]`, or one `[3]` for all, world, m.
        directions: `[ray, 3]`, or one `[3]` for all, world; of any length but 0. Distances are in m all the same.
        poses: of the bodies; needed where a shape moves with one.
        max_distance: nothing beyond it is hit, m.
        include: bool `[shape]`, those that are seen; None for all.

    Raises:
        ValueError: a direction is 0 or not finite, a shape cannot be hit, or its body has no pose.
    """
    o, d = np.broadcast_arrays(np.atleast_2d(np.asarray(starts, float)), np.atleast_2d(np.asarray(directions, float)))
    length = np.linalg.norm(d, axis=1, keepdims=True)
    if not (np.isfinite(o).all() and np.isfinite(d).all() and (length > 0.0).all()):
        raise ValueError(
            "reference_cast: starts and directions: expected finite numbers, and no direction of length 0."
        )
    d = d / length
    seen = np.ones(len(shapes), bool) if include is None else np.asarray(include)
    if seen.dtype != bool or seen.shape != (len(shapes),):
        raise ValueError(f"reference_cast: include: got {seen.dtype} {seen.shape}, expected bool ({len(shapes)},).")
    parts = [(i, _Part(shape, *at_world(shape, poses))) for i, shape in enumerate(shapes) if seen[i]]

    def cast(starts: Floats, directions: Floats) -> _Nearest:
        count = len(starts)
        best = np.full(count, np.inf)
        second, normal = best.copy(), np.zeros((count, 3))
        shape, face = np.full(count, -1), np.full(count, -1)
        for i, part in parts:
            distance, n, f = part.cast(starts, directions)
            nearer = distance < best
            second = np.where(nearer, best, np.minimum(second, distance))
            best = np.where(nearer, distance, best)
            shape[nearer], face[nearer], normal[nearer] = i, f[nearer], n[nearer]
        return _Nearest(best, normal, face, shape, second)

    found = cast(o, d)
    hit = np.isfinite(found.distance) & (found.distance <= max_distance)
    normal = np.where(hit[:, None], found.normal, 0.0)
    sine = np.abs((normal * d).sum(axis=1)).clip(0.0, 1.0)
    distance = np.where(hit, found.distance, np.inf)
    ends = np.concatenate([o, *(part.corners() for _, part in parts)])
    return ReferenceHits(
        distance=distance,
        point=np.where(hit[:, None], o + np.where(hit, distance, 0.0)[:, None] * d, np.inf),
        normal=normal,
        shape=np.where(hit, found.shape, -1),
        face=np.where(hit, found.face, -1),
        second=np.where(hit, found.second, np.inf),
        tangency=np.where(hit, np.arcsin(sine), 0.5 * np.pi),
        starts=np.array(o),
        directions=d,
        max_distance=float(max_distance),
        size=float(np.ptp(ends, axis=0).max()) or 1.0,
        cast=cast,
    )


def compare_casts(
    reference: ReferenceHits,
    distance: ArrayLike,
    shape: ArrayLike,
    *,
    normal: ArrayLike | None = None,
    face: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    most_left_out: float = LEFT_OUT,
) -> CastComparison:
    """Compare hits with those of the reference, ray by ray.

    Distances agree within the tolerance, rays hit or miss alike, and hit the same shape unless two are within the
    tolerance of each other. Left out are rays that pass a silhouette within `EDGE` of the scene's size, and rays that
    meet the surface at less than `TANGENT_DEG`; they are counted, and must be few.

    Args:
        reference: what `reference_cast` says.
        distance: `[ray]`, m; inf on a miss.
        shape: `[ray]`, index of the shape that was hit; -1 on a miss.
        normal: `[ray, 3]`, unit, world; compared where shapes agree, to 1e-3. At a crease, one of its sides will do.
        face: `[ray]`, face ids, likewise.
        tolerance: for distances, m.
        most_left_out: the share of rays that may be left out stays below this.

    Raises:
        AssertionError: with all about the ray that differs most, or with the count of those left out.
        ValueError: an array has another shape than the reference's, or a distance is NaN or negative.
    """
    got, hit_shape = np.asarray(distance, float), np.asarray(shape).astype(np.int64)
    rays = len(reference.distance)
    for name, array, expected in (
        ("distance", got, (rays,)),
        ("shape", hit_shape, (rays,)),
        ("normal", np.zeros((rays, 3)) if normal is None else np.asarray(normal), (rays, 3)),
        ("face", hit_shape if face is None else np.asarray(face), (rays,)),
    ):
        if array.shape != expected:
            raise ValueError(f"compare_casts: {name}: got an array of shape {array.shape}, expected {expected}.")
    if not (got >= 0.0).all():
        raise ValueError(f"compare_casts: distance: {int((~(got >= 0.0)).sum())} are NaN or negative; a miss is inf.")
    expected_hit, hit = np.isfinite(reference.distance), np.isfinite(got)
    both = expected_hit & hit
    error = np.where(expected_hit | hit, np.inf, 0.0)
    error[both] = np.abs(got[both] - reference.distance[both])
    at_limit = (expected_hit != hit) & (
        np.minimum(reference.distance, got) >= reference.max_distance - tolerance
    )  # a ray that ends on the surface
    error[at_limit] = 0.0
    is_close = reference.second <= reference.distance + tolerance
    wrong = error > tolerance
    other = both & ~wrong & (hit_shape != reference.shape) & ~is_close
    stray = (hit_shape >= 0) != hit
    same = both & ~wrong & (hit_shape == reference.shape)
    around: list[ReferenceHits | _Nearest] = [reference, *(reference.ring if same.any() else [])]
    turned, misnamed = np.zeros(rays, bool), np.zeros(rays, bool)
    if normal is not None:
        found = np.asarray(normal, float)
        away = np.min([np.linalg.norm(found - hits.normal, axis=1) for hits in around], axis=0)
        turned = same & ~(away <= 1e-3)
    if face is not None:
        ids = np.asarray(face)
        misnamed = same & ~np.any([ids == hits.face for hits in around], axis=0)
    bad = wrong | other | stray | turned | misnamed
    tangents = expected_hit & (reference.tangency < np.radians(TANGENT_DEG))
    out = reference.is_edge | tangents
    report = CastComparison(
        rays=rays,
        hits=int(expected_hit.sum()),
        edges=int(reference.is_edge.sum()),
        tangents=int(tangents.sum()),
        left_out=int(out.sum()),
        differing=int((out & bad).sum()),
        worst=float(error[~out & ~bad].max(initial=0.0)),
    )
    bad &= ~out
    if bad.any():
        k = int(np.flatnonzero(bad)[np.argmax(error[bad])])
        what = [
            name
            for name, rows in (
                ("distance", wrong), ("shape", other | stray), ("normal", turned), ("face id", misnamed),
            )
            if rows[k]
        ]  # fmt: skip
        detail = ""
        if turned[k]:
            detail += f"normal {np.asarray(normal)[k].tolist()}, expected {reference.normal[k].tolist()}; "
        if misnamed[k]:
            detail += f"face {int(np.asarray(face)[k])}, expected {reference.face[k]}; "
        raise AssertionError(
            f"{int(bad.sum())} of {rays} rays differ from the reference. The worst is ray {k}, in its "
            f"{' and '.join(what)}: distance {got[k]:.9g} m, expected {reference.distance[k]:.9g}; shape "
            f"{hit_shape[k]}, expected {reference.shape[k]}; {detail}the nearest other shape is at "
            f"{reference.second[k]:.9g} m; it meets the surface at {np.degrees(reference.tangency[k]):.4g} degrees; "
            f"start {reference.starts[k].tolist()}, direction {reference.directions[k].tolist()}."
        )
    if report.left_out and not report.left_out < most_left_out * rays:
        raise AssertionError(
            f"{report.left_out} of {rays} rays are left out ({report.edges} at silhouettes, {report.tangents} "
            f"tangents), expected less than {most_left_out:.2%}. Use more rays, or a scene with fewer edges."
        )
    return report


def _slope(normal: Floats, shift: Floats, directions: Floats) -> Floats:
    """Return by how much the distance to a plane of this normal changes with a shift of the start; 0 for none."""
    along = (normal * directions).sum(axis=1)
    change: Floats = np.divide((normal * shift).sum(axis=1), along, out=np.zeros_like(along), where=along != 0.0)
    return -change


# One shape -----------------------------------------------------------------------------------------------------------


class _Part:
    """One shape where it is in the world."""

    def __init__(self, shape: Shape, pos: Floats, quat: Floats) -> None:
        if shape.fault:
            raise ValueError(f"reference_cast: shape {shape.name!r} cannot be hit: {shape.fault}")
        self.shape, self.pos, self.turn = shape, pos, rotation(quat)
        self.triangles: _Triangles | None = None
        if shape.mesh is not None:
            scale = np.array(shape.scale)
            faces = shape.mesh.faces
            self.triangles = _Triangles(
                shape.mesh.vertices * scale, faces if scale.prod() > 0.0 else faces[:, ::-1], shape.mesh.face_ids
            )
        elif shape.hfield is not None:
            self.triangles = _Triangles(*_solid(shape.hfield))

    def cast(self, starts: Floats, directions: Floats) -> tuple[Floats, Floats, Ints]:
        """Return distance, world normal and face id per ray."""
        o, d = (starts - self.pos) @ self.turn, directions @ self.turn
        if self.triangles is not None:
            distance, normal, face = self.triangles.cast(o, d)
        else:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                distance, normal = _ANALYTIC[self.shape.kind](np.array(self.shape.size), o, d)
            face = np.full(len(o), -1)
        return distance, normal @ self.turn.T, face

    def corners(self) -> Floats:
        """Return corners in the world of a box around the shape; none where it is unbounded."""
        kind, size = self.shape.kind, self.shape.size
        if self.triangles is not None:
            used = self.triangles.points
            ends = np.stack([used.min(axis=0), used.max(axis=0)])
        else:
            half = {
                "plane": (*size, 0.0), "sphere": size * 3, "capsule": (size[0], size[0], sum(size)),
                "ellipsoid": size, "cylinder": (size[0], *size), "box": size,
            }[kind][:3]  # fmt: skip
            if kind == "plane" and 0.0 in size:
                return np.zeros((0, 3))
            ends = np.stack([-np.array(half), np.array(half)])
        corners = np.array([[ends[i, 0], ends[j, 1], ends[k, 2]] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
        moved: Floats = corners @ self.turn.T + self.pos
        return moved


Hits = tuple[Floats, Floats]
"""Distance `[ray]`, inf on a miss, and outward unit normal `[ray, 3]`."""


def _first(*candidates: tuple[Floats, NDArray[np.bool_], Floats]) -> Hits:
    """Return the first of the candidates (t, whether it counts, normal) that is not behind the start."""
    t = np.stack([np.where(counts & (t >= 0.0), t, np.inf) for t, counts, _ in candidates])
    first, rays = t.argmin(axis=0), np.arange(t.shape[1])
    normals = np.stack([normal for _, _, normal in candidates])[first, rays]
    distance = t[first, rays]
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return distance, np.where(np.isfinite(distance)[:, None], normals / length, 0.0)


def _roots(a: Floats, b: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Return both t of a t^2 + 2 b t + c = 0; NaN where there are none."""
    root = np.sqrt(b * b - a * c)
    return (-b - root) / a, (-b + root) / a


def _quadric(o: Floats, d: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return both t at which sum(weight * p^2) is 1; the start is first moved to where the ray is nearest to 0."""
    a = (weight * d * d).sum(axis=1)
    middle = -(weight * o * d).sum(axis=1) / a
    near = o + middle[:, None] * d
    low, high = _roots(a, np.zeros_like(a), (weight * near * near).sum(axis=1) - 1.0)
    return middle + low, middle + high


def _at(o: Floats, d: Floats, t: Floats) -> Floats:
    return o + t[:, None] * d


def _plane(size: Floats, o: Floats, d: Floats) -> Hits:
    t = -o[:, 2] / d[:, 2]
    p = _at(o, d, t)
    inside = np.all((size == 0.0) | (np.abs(p[:, :2]) <= size), axis=1)
    return _first((t, inside, np.broadcast_to([0.0, 0.0, 1.0], o.shape)))


def _ellipsoid(size: Floats, o: Floats, d: Floats) -> Hits:
    weight = 1.0 / np.broadcast_to(size[:3] if len(size) >= 3 else size[:1], 3) ** 2
    every = np.ones(len(o), bool)
    return _first(*((t, every, weight * _at(o, d, t)) for t in _quadric(o, d, weight)))


def _capsule(size: Floats, o: Floats, d: Floats) -> Hits:
    radius, half = size[:2]
    room = SEAM * (radius + half)
    candidates = []
    for t in _quadric(o, d, np.array([1.0, 1.0, 0.0]) / radius**2):
        p = _at(o, d, t)
        candidates.append((t, np.abs(p[:, 2]) <= half + room, p * [1.0, 1.0, 0.0]))
    for end in (-1.0, 1.0):
        centre = np.array([0.0, 0.0, end * half])
        for t in _quadric(o - centre, d, np.ones(3) / radius**2):
            p = _at(o, d, t)
            candidates.append((t, end * p[:, 2] >= half - room, p - centre))
    return _first(*candidates)


def _cylinder(size: Floats, o: Floats, d: Floats) -> Hits:
    radius, half = size[:2]
    room = SEAM * (radius + half)
    candidates = []
    for t in _quadric(o, d, np.array([1.0, 1.0, 0.0]) / radius**2):
        p = _at(o, d, t)
        candidates.append((t, np.abs(p[:, 2]) <= half + room, p * [1.0, 1.0, 0.0]))
    for end in (-1.0, 1.0):
        t = (end * half - o[:, 2]) / d[:, 2]
        inside = np.hypot(*_at(o, d, t)[:, :2].T) <= radius + room
        candidates.append((t, inside, np.broadcast_to([0.0, 0.0, end], o.shape)))
    return _first(*candidates)


def _box(size: Floats, o: Floats, d: Floats) -> Hits:
    candidates = []
    for axis in range(3):
        others = [i for i in range(3) if i != axis]
        for side in (-1.0, 1.0):
            t = (side * size[axis] - o[:, axis]) / d[:, axis]
            inside = np.all(np.abs(_at(o, d, t)[:, others]) <= size[others] + SEAM * size[:3].max(), axis=1)
            candidates.append((t, inside, np.broadcast_to(side * np.eye(3)[axis], o.shape)))
    return _first(*candidates)


_ANALYTIC: dict[str, Callable[[Floats, Floats, Floats], Hits]] = {
    "plane": _plane, "sphere": _ellipsoid, "capsule": _capsule, "ellipsoid": _ellipsoid, "cylinder": _cylinder,
    "box": _box,
}  # fmt: skip


class _Triangles:
    """Triangles that leave no gap between neighbours: both judge their common edge by one and the same number.

    A line passes through a triangle where it passes all three edges on the same side. The side is the sign of the
    product of the Pluecker coordinates of line and edge (K. Shoemake, Pluecker coordinate tutorial, 1998).
    """

    def __init__(self, points: Floats, faces: NDArray[np.int32], ids: NDArray[np.int32]) -> None:
        self.points, merged = np.unique(points[np.unique(faces)], axis=0, return_inverse=True)
        rows = np.zeros(len(points), np.int64)
        rows[np.unique(faces)] = merged.reshape(-1)
        corners = rows[faces]
        self.ids = ids.astype(np.int64)
        self.centre = 0.5 * (self.points.min(axis=0) + self.points.max(axis=0))
        centred = self.points - self.centre
        pairs = np.stack([corners, np.roll(corners, -1, axis=1)], axis=-1).reshape(-1, 2)
        edges, which = np.unique(np.sort(pairs, axis=1), axis=0, return_inverse=True)
        a, b = centred[edges[:, 0]], centred[edges[:, 1]]
        self.lines = np.concatenate([np.cross(a, b), b - a], axis=1)
        turned = (pairs[:, 0] > pairs[:, 1]).reshape(-1, 3)
        edge = which.reshape(-1, 3)
        self.left = np.where(turned, edge + len(edges), edge)
        self.right = np.where(turned, edge, edge + len(edges))
        self.first = self.points[corners[:, 0]]
        normal = np.cross(self.points[corners[:, 1]] - self.first, self.points[corners[:, 2]] - self.first)
        length = np.linalg.norm(normal, axis=1, keepdims=True)
        self.normal = np.divide(normal, length, out=np.zeros_like(normal), where=length > 0.0)

    def cast(self, o: Floats, d: Floats) -> tuple[Floats, Floats, Ints]:
        """Return distance, normal and face id per ray; directions are unit."""
        distance, row = np.full(len(o), np.inf), np.full(len(o), -1)
        near = o - self.centre
        near = near - (near * d).sum(axis=1, keepdims=True) * d
        moments = np.concatenate([d, np.cross(near, d)], axis=1)
        step = max(CHUNK // len(self.lines), 1)
        for start in range(0, len(o), step):
            part = slice(start, start + step)
            side = self.lines @ moments[part].T
            side = np.concatenate([side >= 0.0, side <= 0.0])
            left, right = (side[i[:, 0]] & side[i[:, 1]] & side[i[:, 2]] for i in (self.left, self.right))
            face, ray = np.nonzero(left | right)
            ray += start
            along = (self.normal[face] * d[ray]).sum(axis=1)
            height = (self.normal[face] * (self.first[face] - o[ray])).sum(axis=1)
            t = np.divide(height, along, out=np.full(len(ray), np.inf), where=along != 0.0)
            t[t < 0.0] = np.inf
            order = np.lexsort((face, t, ray))
            firsts = order[np.unique(ray[order], return_index=True)[1]]
            distance[ray[firsts]], row[ray[firsts]] = t[firsts], face[firsts]
        hit = np.isfinite(distance)
        return distance, np.where(hit[:, None], self.normal[row], 0.0), np.where(hit, self.ids[row], -1)


def _solid(hfield: HeightField) -> tuple[Floats, NDArray[np.int32], NDArray[np.int32]]:
    """Return vertices, faces and face ids of a height field; with a base also its walls and its bottom (id -1)."""
    rows, columns = hfield.heights.shape
    x, y = np.linspace(-hfield.size[0], hfield.size[0], columns), np.linspace(-hfield.size[1], hfield.size[1], rows)
    grid = np.stack(np.broadcast_arrays(x[None, :], y[:, None], hfield.heights), axis=-1)
    index = np.arange(rows * columns).reshape(rows, columns)
    here, right, above, across = index[:-1, :-1], index[:-1, 1:], index[1:, :-1], index[1:, 1:]
    faces = np.stack([np.stack([here, right, across], -1), np.stack([here, across, above], -1)], 2).reshape(-1, 3)
    ids = np.arange(len(faces))
    points = grid.reshape(-1, 3)
    if hfield.base is not None:
        rim = np.concatenate([index[0, :-1], index[:-1, -1], index[-1, :0:-1], index[:0:-1, 0]])
        count = len(points)
        foot = points[rim] * [1.0, 1.0, 0.0] - [0.0, 0.0, hfield.base]
        points = np.concatenate([points, foot, [[0.0, 0.0, -hfield.base]]])
        low = count + np.arange(len(rim))
        after, low_after = np.roll(rim, -1), np.roll(low, -1)
        walls = np.concatenate([np.stack([rim, low, low_after], -1), np.stack([rim, low_after, after], -1)])
        bottom = np.stack([low_after, low, np.full(len(rim), count + len(rim))], -1)
        faces = np.concatenate([faces, walls, bottom])
        ids = np.concatenate([ids, np.full(len(faces) - len(ids), -1)])
    return points, faces.astype(np.int32), ids.astype(np.int32)


__all__ = [
    "CastComparison", "ReferenceHits", "compare_casts", "random_poses", "random_rays", "random_shapes",
    "reference_cast",
]  # fmt: skip
