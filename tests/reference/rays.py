"""Slow reference for rays, in float64 NumPy: brute force from first principles, without any kernel.

    reference = reference_cast(shapes, starts, directions)
    compare_casts(reference, distance, shape)  # raises AssertionError, naming the worst ray

`random_shapes`, `random_poses` and `random_rays` create test scenes of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.ray_parts import Floats, Ints, Part
from reference.ray_scenes import at_world
from sensorium.geometry.shapes import Shape

Poses = tuple[ArrayLike, ArrayLike]
"""Poses of all bodies in the world: positions `[body, 3]`, m, and unit quaternions (w, x, y, z) `[body, 4]`."""
TOLERANCE = 1e-4
"""Tolerance for equal distances, m."""
EDGE = 1e-5
"""Distance to a silhouette within which rays are skipped, relative to the scene's size."""
TANGENT_DEG = 0.1
"""Angle to the surface below which rays are skipped, degrees."""
LEFT_OUT = 1e-3
"""Upper limit of the fraction of skipped rays."""
RING = 8
"""Number of rays around each ray that search for silhouettes."""


@dataclass(frozen=True, eq=False)
class ReferenceHits:
    """Nearest hits of rays, and data for comparison with them. Arrays are float64 unless stated otherwise.

    Attributes:
        distance: `[ray]`, from the start to the hit, m; inf on a miss.
        point: `[ray, 3]`, hit in the world, m; inf on a miss.
        normal: `[ray, 3]`, unit, world; 0 on a miss. Outward for solids, +z for planes, upward for the surface of a
            height field. For meshes, that of cross(e1, e2) in the mesh's own frame, which stays on its side of the
            surface under a mirroring negative scale.
        shape: int64 `[ray]`, index of the shape; -1 on a miss.
        face: int64 `[ray]`, row in the given faces of a mesh (`Mesh.face_ids`). For the surface of a height field
            2 * cell + 0 or 1, where cell = row * (columns - 1) + column, 0 is the triangle with the corner
            (row, column + 1), right of the diagonal, and 1 the one with (row + 1, column). -1 for other shapes.
        second: `[ray]`, distance to the nearest other shape, m; inf without one.
        tangency: `[ray]`, angle between ray and surface at the hit, rad; pi/2 on a miss.
        starts: `[ray, 3]`, starts of the rays, world, m.
        directions: `[ray, 3]`, unit directions of the rays, world.
        max_distance: largest distance of a hit, m.
        size: longest side of the box around all starts and bounded shapes, m.
        nearest: the hits without the limit.
        cast: casts other rays at the same shapes, without a limit.
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
    nearest: _Nearest = field(repr=False)
    cast: Callable[[Floats, Floats], _Nearest] = field(repr=False)

    def about(self, ray: int) -> str:
        """Return the path of a ray and the surroundings of its hit, for messages."""
        return (
            f"the nearest other shape is at {self.second[ray]:.9g} m; it hits the surface at "
            f"{np.degrees(self.tangency[ray]):.4g} degrees; start {self.starts[ray].tolist()}, direction "
            f"{self.directions[ray].tolist()}."
        )

    @cached_property
    def ring(self) -> list[_Nearest]:
        """Hits of `RING` parallel rays around each ray, at `EDGE` times the size of the scene, at any distance."""
        starts = np.concatenate([self.starts + shift for shift in self._shifts])
        found = self.cast(starts, np.tile(self.directions, (RING, 1)))
        each = [np.split(part, RING) for part in (found.distance, found.normal, found.face, found.shape, found.second)]
        return [_Nearest(*parts) for parts in zip(*each, strict=True)]

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
        """Bool `[ray]`: whether a silhouette is so near that a ray of the ring leaves the surface that the ray hits.

        Between neighbouring hits on one surface, smooth or creased, and where two shapes join, the distance changes
        with a slope between those of the two tangent planes. Any other change is a jump.
        """
        here = self.nearest
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
    """Result of `compare_casts`.

    Attributes:
        rays: number of given rays.
        hits: number of hits, by the reference.
        edges: number of rays skipped because they pass a silhouette.
        tangents: number of rays skipped because they are tangent to the surface.
        left_out: number of skipped rays.
        differing: number of skipped rays that differ.
        worst: largest difference of distances among compared rays, m.
    """

    rays: int
    hits: int
    edges: int
    tangents: int
    left_out: int
    differing: int
    worst: float

    def need_few_left_out(self, most: float) -> None:
        """Raise `AssertionError` if the fraction of skipped rays is larger than a limit."""
        if self.left_out and not self.left_out < most * self.rays:
            raise AssertionError(
                f"{self.left_out} of {self.rays} rays are skipped ({self.edges} at silhouettes, {self.tangents} "
                f"tangents), expected less than {most:.2%}. Use more rays, or a scene with fewer edges."
            )


@dataclass(frozen=True, eq=False)
class _Nearest:
    """Hits of one shape, or the nearest of all; only the latter have `shape` and `second`."""

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
    """Cast rays at shapes, each ray at each shape.

    Both faces can be hit, so a ray that starts inside a solid hits its exit; hits have t >= 0.

    Args:
        shapes: the shapes of the scene.
        starts: `[ray, 3]`, or one `[3]` for all, world, m.
        directions: `[ray, 3]`, or one `[3]` for all, world; of any length but 0. Distances are in m in any case.
        poses: poses of the bodies; needed if a shape moves.
        max_distance: largest distance of a hit, m.
        include: bool `[shape]`, shapes that can be hit; None for all.

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
    parts = [(i, Part(shape, *at_world(shape, poses))) for i, shape in enumerate(shapes) if seen[i]]

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
        nearest=found,
        cast=cast,
    )


def compare_casts(
    reference: ReferenceHits,
    distance: ArrayLike,
    shape: ArrayLike,
    *,
    normal: ArrayLike | None = None,
    face: ArrayLike | None = None,
    tolerance: float | Floats = TOLERANCE,
    most_left_out: float = LEFT_OUT,
) -> CastComparison:
    """Compare hits with those of the reference, ray by ray.

    Distances must agree within the tolerance, rays must hit or miss alike, and hit the same shape unless two are within
    the tolerance of each other. Skipped are rays that pass a silhouette within `EDGE` of the scene's size, and rays
    that hit the surface at less than `TANGENT_DEG`; they are counted, and must be few.

    Args:
        reference: result of `reference_cast`.
        distance: `[ray]`, m; inf on a miss.
        shape: `[ray]`, index of the shape that was hit; -1 on a miss.
        normal: `[ray, 3]`, unit, world; compared to 1e-3 if shapes agree. At a crease, either side is accepted.
        face: `[ray]`, face ids, compared if shapes agree.
        tolerance: for distances, m: a number, or `[ray]`.
        most_left_out: upper limit of the fraction of skipped rays.

    Raises:
        AssertionError: with details of the ray that differs most, or with the number of skipped rays.
        ValueError: an array has another shape than the reference's, or a distance is NaN or negative.
    """
    rays = len(reference.distance)
    got, hit_shape = _of_rays("distance", distance, (rays,), float), _of_rays("shape", shape, (rays,), np.int64)
    found = None if normal is None else _of_rays("normal", normal, (rays, 3), float)
    ids = None if face is None else _of_rays("face", face, (rays,), None)
    if not (got >= 0.0).all():
        raise ValueError(f"compare_casts: distance: {int((~(got >= 0.0)).sum())} are NaN or negative; a miss is inf.")
    expected_hit, hit = np.isfinite(reference.distance), np.isfinite(got)
    both = expected_hit & hit
    error = np.where(expected_hit | hit, np.inf, 0.0)
    error[both] = np.abs(got[both] - reference.distance[both])
    ends = np.minimum(reference.distance, got) >= reference.max_distance - tolerance  # on the surface
    error[(expected_hit != hit) & ends] = 0.0
    is_close = reference.second <= reference.distance + tolerance
    wrong = error > tolerance
    other = both & ~wrong & (hit_shape != reference.shape) & ~is_close
    stray = (hit_shape >= 0) != hit
    same = both & ~wrong & (hit_shape == reference.shape)
    around: list[ReferenceHits | _Nearest] = [reference, *(reference.ring if same.any() else [])]
    turned, misnamed = np.zeros(rays, bool), np.zeros(rays, bool)
    if found is not None:
        away = np.min([np.linalg.norm(found - hits.normal, axis=1) for hits in around], axis=0)
        turned = same & ~(away <= 1e-3)
    if ids is not None:
        misnamed = same & ~np.any([ids == hits.face for hits in around], axis=0)
    bad = wrong | other | stray | turned | misnamed
    out = reference.is_edge | (tangents := expected_hit & (reference.tangency < np.radians(TANGENT_DEG)))
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
        what = {"distance": wrong, "shape": other | stray, "normal": turned, "face id": misnamed}
        detail = f"distance {got[k]:.9g} m, expected {reference.distance[k]:.9g}; "
        detail += f"shape {hit_shape[k]}, expected {reference.shape[k]}; "
        if found is not None and turned[k]:
            detail += f"normal {found[k].tolist()}, expected {reference.normal[k].tolist()}; "
        if ids is not None and misnamed[k]:
            detail += f"face {int(ids[k])}, expected {reference.face[k]}; "
        raise AssertionError(
            f"{int(bad.sum())} of {rays} rays differ from the reference. The worst is ray {k}, in its "
            f"{' and '.join(name for name, rows in what.items() if rows[k])}: {detail}{reference.about(k)}"
        )
    report.need_few_left_out(most_left_out)
    return report


def _of_rays(name: str, values: ArrayLike, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"compare_casts: {name}: got an array of shape {array.shape}, expected {shape}.")
    return array.astype(dtype)


def _slope(normal: Floats, shift: Floats, directions: Floats) -> Floats:
    """Return the change of the distance to a plane of this normal with a shift of the start; 0 for a zero normal."""
    along = (normal * directions).sum(axis=1)
    change: Floats = np.divide((normal * shift).sum(axis=1), along, out=np.zeros_like(along), where=along != 0.0)
    return -change
