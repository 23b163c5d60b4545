"""One shape of the slow reference for rays: its intersection with a ray, from equations, in float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sensorium.geometry.shapes import HeightField, Shape
from sensorium.geometry.transforms import rotation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Hits = tuple[Floats, Floats]
"""Distance `[ray]`, inf on a miss, and outward unit normal `[ray, 3]`."""
SEAM = 1e-12
"""Overlap of the parts of one surface, relative to the shape's size, so that rounding leaves no gap between them."""
SIDE = 1e-14
"""Tolerance for a ray on a mesh edge, which counts for both sides, relative to the rounded products."""
FLAT = 1e-11
"""Minimum sine of the angle between a ray and a triangle that it hits."""
MARGIN = 1e-9
"""Tolerance of bounding spheres, relative to their radius and distance."""
BLOCK = 12
"""Maximum number of triangles with a common bounding sphere."""
CHUNK = 200_000
"""Number of pairs of a ray and a block, or a ray and a triangle, that are processed together."""


class Part:
    """One shape at its pose in the world."""

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
            self.triangles = _Triangles(*solid_of(shape.hfield))
        corners = self.corners()
        self.centre = corners.mean(axis=0) if len(corners) else np.zeros(3)
        self.radius = float(np.linalg.norm(corners - self.centre, axis=1).max(initial=0.0)) if len(corners) else np.inf

    def cast(self, starts: Floats, directions: Floats) -> tuple[Floats, Floats, Ints]:
        """Return distance, world normal and face id of each ray."""
        distance, normal, face = np.full(len(starts), np.inf), np.zeros((len(starts), 3)), np.full(len(starts), -1)
        near = _passes(self.centre[None], np.array([self.radius]), starts, directions)[:, 0]
        o, d = (starts[near] - self.pos) @ self.turn, directions[near] @ self.turn
        if self.triangles is not None:
            distance[near], turned, face[near] = self.triangles.cast(o, d)
        else:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                distance[near], turned = _ANALYTIC[self.shape.kind](np.array(self.shape.size), o, d)
        normal[near] = turned @ self.turn.T
        return distance, normal, face

    def corners(self) -> Floats:
        """Return the corners of a box around the shape, in the world; empty if it is unbounded."""
        kind, size = self.shape.kind, self.shape.size
        if self.triangles is not None:
            used = self.triangles.points
            ends = np.stack([used.min(axis=0), used.max(axis=0)])
        else:
            half = {
                "plane": (*size, 0.0), "sphere": size[:1] * 3, "capsule": (size[0], size[0], sum(size[:2])),
                "ellipsoid": size, "cylinder": (size[0], *size), "box": size,
            }[kind][:3]  # fmt: skip
            if kind == "plane" and 0.0 in size:
                return np.zeros((0, 3))
            ends = np.stack([-np.array(half), np.array(half)])
        corners = np.array([[ends[i, 0], ends[j, 1], ends[k, 2]] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
        moved: Floats = corners @ self.turn.T + self.pos
        return moved


def _first(*candidates: tuple[Floats, NDArray[np.bool_], Floats]) -> Hits:
    """Return the first of the candidates (t, whether it counts, normal) that is not behind the start."""
    t = np.stack([np.where(counts & (t >= 0.0), t, np.inf) for t, counts, _ in candidates])
    first, rays = t.argmin(axis=0), np.arange(t.shape[1])
    normals = np.stack([normal for _, _, normal in candidates])[first, rays]
    distance = t[first, rays]
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return distance, np.where(np.isfinite(distance)[:, None], normals / length, 0.0)


def _roots(a: Floats, b: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Return both roots t of a t^2 + 2 b t + c = 0; NaN without real roots."""
    root = np.sqrt(b * b - a * c)
    return (-b - root) / a, (-b + root) / a


def _quadric(o: Floats, d: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return both t at which sum(weight * p^2) is 1; the start is first moved to the ray's nearest point to 0."""
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
    weight = 1.0 / size[:3] ** 2
    every = np.ones(len(o), bool)
    return _first(*((t, every, weight * _at(o, d, t)) for t in _quadric(o, d, weight)))


def _sphere(size: Floats, o: Floats, d: Floats) -> Hits:
    return _ellipsoid(np.repeat(size[0], 3), o, d)


def _wall(size: Floats, o: Floats, d: Floats, room: float) -> list[tuple[Floats, NDArray[np.bool_], Floats]]:
    """Return the candidates on the wall of a capsule or a cylinder."""
    candidates = []
    for t in _quadric(o, d, np.array([1.0, 1.0, 0.0]) / size[0] ** 2):
        p = _at(o, d, t)
        candidates.append((t, np.abs(p[:, 2]) <= size[1] + room, p * [1.0, 1.0, 0.0]))
    return candidates


def _capsule(size: Floats, o: Floats, d: Floats) -> Hits:
    radius, half = size[:2]
    room = SEAM * (radius + half)
    candidates = _wall(size, o, d, room)
    for end in (-1.0, 1.0):
        centre = np.array([0.0, 0.0, end * half])
        for t in _quadric(o - centre, d, np.ones(3) / radius**2):
            p = _at(o, d, t)
            candidates.append((t, end * p[:, 2] >= half - room, p - centre))
    return _first(*candidates)


def _cylinder(size: Floats, o: Floats, d: Floats) -> Hits:
    radius, half = size[:2]
    room = SEAM * (radius + half)
    candidates = _wall(size, o, d, room)
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
    "plane": _plane, "sphere": _sphere, "capsule": _capsule, "ellipsoid": _ellipsoid, "cylinder": _cylinder,
    "box": _box,
}  # fmt: skip


class _Triangles:
    """Triangles without gaps between neighbours: both evaluate their common edge with the same number.

    At a corner those numbers belong to several edges, so a ray within rounding of a corner counts on both sides. A line
    intersects a triangle if it passes all three edges on the same side. The side is the sign of the product of the
    Pluecker coordinates of line and edge (K. Shoemake, Pluecker coordinate tutorial, 1998).

    A ray is tested against all triangles of a block if its line intersects the bounding sphere of the block.
    """

    def __init__(self, points: Floats, faces: NDArray[np.int32], ids: NDArray[np.int32]) -> None:
        self.points, merged = np.unique(points[np.unique(faces)], axis=0, return_inverse=True)
        rows = np.zeros(len(points), np.int64)
        rows[np.unique(faces)] = merged.reshape(-1)
        corners = rows[faces]
        self.ids = ids.astype(np.int64)
        self.centre = 0.5 * (self.points.min(axis=0) + self.points.max(axis=0))
        centred = self.points - self.centre
        ends = np.stack([corners, np.roll(corners, -1, axis=1)], axis=-1)
        self.is_turned = ends[..., 0] > ends[..., 1]
        a, b = (centred[part] for part in (ends.min(axis=-1), ends.max(axis=-1)))  # an edge has one direction
        self.lines = np.concatenate([np.cross(a, b), b - a], axis=-1)
        reach = np.linalg.norm(centred, axis=1).max()
        self.room = SIDE * reach * (np.linalg.norm(a, axis=-1) + np.linalg.norm(b, axis=-1))
        self.first = self.points[corners[:, 0]]
        normal = np.cross(self.points[corners[:, 1]] - self.first, self.points[corners[:, 2]] - self.first)
        length = np.linalg.norm(normal, axis=1, keepdims=True)
        self.normal = np.divide(normal, length, out=np.zeros_like(normal), where=length > 0.0)
        self.blocks = _blocks(self.points[corners].mean(axis=1))
        around = self.points[corners[self.blocks]].reshape(len(self.blocks), -1, 3)
        self.block_centre = 0.5 * (around.min(axis=1) + around.max(axis=1))
        self.block_radius = np.linalg.norm(around - self.block_centre[:, None], axis=2).max(axis=1)

    def cast(self, o: Floats, d: Floats) -> tuple[Floats, Floats, Ints]:
        """Return distance, normal and face id of each ray; directions have unit length."""
        distance, row = np.full(len(o), np.inf), np.full(len(o), -1)
        near = o - self.centre
        near = near - (near * d).sum(axis=1, keepdims=True) * d
        moments = np.concatenate([d, np.cross(near, d)], axis=1)
        step = max(CHUNK // len(self.blocks), 1)
        for start in range(0, len(o), step):
            part = slice(start, start + step)
            rays, blocks = np.nonzero(_passes(self.block_centre, self.block_radius, o[part], d[part]))
            pairs = [self._met(moments, rays[k : k + CHUNK // BLOCK] + start, blocks[k : k + CHUNK // BLOCK])
                     for k in range(0, len(rays), CHUNK // BLOCK)]  # fmt: skip
            if not pairs:
                continue
            ray, face = (np.concatenate(found) for found in zip(*pairs, strict=True))
            along = (self.normal[face] * d[ray]).sum(axis=1)
            height = (self.normal[face] * (self.first[face] - o[ray])).sum(axis=1)
            t = np.divide(height, along, out=np.full(len(ray), np.inf), where=np.abs(along) > FLAT)
            t[t < 0.0] = np.inf
            order = np.lexsort((face, t, ray))
            firsts = order[np.unique(ray[order], return_index=True)[1]]
            distance[ray[firsts]], row[ray[firsts]] = t[firsts], face[firsts]
        hit = np.isfinite(distance)
        return distance, np.where(hit[:, None], self.normal[row], 0.0), np.where(hit, self.ids[row], -1)

    def _met(self, moments: Floats, rays: Ints, blocks: Ints) -> tuple[Ints, Ints]:
        """Return pairs of rays and triangles that intersect; each ray is tested against one block."""
        faces = self.blocks[blocks]
        side = np.einsum("pfek,pk->pfe", self.lines[faces], moments[rays])
        side = np.where(self.is_turned[faces], -side, side)
        room = self.room[faces]
        pair, which = np.nonzero((side >= -room).all(axis=-1) | (side <= room).all(axis=-1))
        return rays[pair], faces[pair, which]


def _passes(centres: Floats, radii: Floats, o: Floats, d: Floats) -> NDArray[np.bool_]:
    """Return `[ray, sphere]`: whether the line of the ray intersects the sphere, with a margin for rounding."""
    there = np.stack([centres[:, k] - o[:, k, None] for k in range(3)])
    along = sum(there[k] * d[:, k, None] for k in range(3))
    away2 = sum((there[k] - along * d[:, k, None]) ** 2 for k in range(3))
    passes: NDArray[np.bool_] = away2 <= (radii + MARGIN * (radii + np.abs(there).sum(axis=0))) ** 2
    return passes


def _blocks(centres: Floats) -> Ints:
    """Return rows of neighbouring triangles, `[block, at most BLOCK]`; the last of a block may be repeated."""
    parts = [np.arange(len(centres))]
    while len(parts[0]) > BLOCK:
        ordered = [rows[np.argsort(centres[rows, np.ptp(centres[rows], axis=0).argmax()])] for rows in parts]
        parts = [half for rows in ordered for half in np.array_split(rows, 2)]
    most = max(map(len, parts))
    return np.stack([np.pad(rows, (0, most - len(rows)), mode="edge") for rows in parts])


def solid_of(hfield: HeightField) -> tuple[Floats, NDArray[np.int32], NDArray[np.int32]]:
    """Return vertices, faces and face ids of a height field; with a base, also of its walls and bottom (id -1)."""
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
