"""Simple shapes that show a reading in space, from its fields, its poses and the description of its sensor alone.

Live sensors, recordings and remote simulations are therefore drawn by the same code. The role, the frame and the axes
of a field determine the drawing:

- images: the frustum of their camera, 0.3 m long
- points of rays: a cloud, coloured by intensity, else by elevation, else by height
- forces and other values of taxels: points coloured by load, with lines of 1 mm per N
- contacts: arrows of the forces at their positions
- vectors: arrows at the mount, in the lengths of `LENGTHS`
- poses and positions: frames and points
- other numbers: a point at each mount, joint or link, coloured by value
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sensorium.pictures import viridis
from sensorium.pose import composed as composed
from sensorium.pose import rotate as rotate
from sensorium.readings import Array, DebugShape, Reading
from sensorium.spec import VECTOR_AXES, FieldSpec

LENGTHS = {"N": 0.01, "m/s^2": 0.05, "m/s": 0.2, "rad/s": 0.1, "N m": 0.1}
"""Length of an arrow per unit, m."""
DIRECTION = 0.2
"""Length of an arrow of which only the direction is drawn, m."""
FRUSTUM = 0.3
"""Length of a camera's frustum, m."""
LARGE_PROBE = 0.01
"""Radius from which probes are drawn in the viewer's own size, m."""
TAXEL_AXES = (("probe",), ("row", "column"), ("x", "y", "z"))
"""Names of the axes that count taxels."""
GREEN, RED, GREY = (0.2, 0.8, 0.2), (1.0, 0.0, 0.0), (0.6, 0.6, 0.6)
IDENTITY, INVERSE = np.array([0, 0, 0, 1, 0, 0, 0], np.float32), np.array([1, -1, -1, -1], np.float32)
STEPS = 1024
"""Number of steps between the colours of the least and of the maximum value."""
_TABLE = np.concatenate([viridis(np.linspace(0.0, 1.0, STEPS + 1)) / 255.0, [[0.5] * 3]]).astype(np.float32)
"""Colour of each step, and at last that of values that are not finite."""


def colors_of(values: Array, low: float | None = None, high: float | None = None) -> Array:
    """Return colours float32 `[..., 3]` of values; those that are not finite are grey.

    Args:
        values: the values.
        low: value of the first colour; None for the least finite value.
        high: value of the last colour; None for the greatest finite value.
    """
    numbers = np.asarray(values, np.float32)
    known = np.isfinite(numbers)
    seen = numbers[known]
    start = float(seen.min()) if low is None and seen.size else low or 0.0
    end = float(seen.max()) if high is None and seen.size else high or 0.0
    place = np.clip((np.where(known, numbers, start) - start) / max(end - start, 1e-12), 0.0, 1.0) * STEPS + 0.5
    found: Array = _TABLE[np.where(known, place, STEPS + 1).astype(np.int16)]
    return found


def _level(quat: Array) -> Array:
    """Return the rotations about the vertical of quaternions; of steep ones, that of their y axis."""
    w, x, y, z = np.moveaxis(quat, -1, 0)
    c, s = 1.0 - 2.0 * (y * y + z * z), 2.0 * (w * z + x * y)
    is_steep = c * c + s * s < 0.01
    c, s = np.where(is_steep, 1.0 - 2.0 * (x * x + z * z), c), np.where(is_steep, -2.0 * (x * y - w * z), s)
    half = 0.5 * np.arctan2(s, c)
    return np.stack([np.cos(half), 0.0 * half, 0.0 * half, np.sin(half)], axis=-1)


def draw(
    reading: Reading, about: Mapping[str, Any], *, truth: bool = True, bodies: Array | None = None
) -> list[DebugShape]:
    """Return the shapes that show a reading; the config's `visualizer_cfg` selects the field, the colour and the size.

    Args:
        reading: the reading, with poses if its sensor has mounts.
        about: description of its sensor, as in `SceneDescription.sensors`.
        truth: whether to draw the ground truth instead of the measured values.
        bodies: poses of all bodies in the world, `[n, body, 7]`, m and wxyz, for sensors without mounts.
    """
    style = about.get("cfg", {}).get("visualizer_cfg") or {}
    drawn = _Drawing(reading, about, truth, bodies, style.get("field"))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return [styled(shape, style) for shape in drawn.shapes()]


def prepared(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a description of a sensor whose rays are arrays, for many calls of `draw`."""
    drawing = about.get("constants", {}).get("drawing", {})
    if not drawing.get("rays"):
        return about
    rays = {**drawing["rays"], "lines": np.asarray(drawing["rays"]["lines"], np.float32)}
    return {**about, "constants": {**about["constants"], "drawing": {**drawing, "rays": rays}}}


def styled(shape: DebugShape, style: Mapping[str, Any]) -> DebugShape:
    """Return a shape in the colour and the size of a `visualizer_cfg`, as a mapping."""
    if style.get("color") is not None:
        shape = replace(shape, color=tuple(style["color"]), colors=None)
    return replace(shape, size=style["size"]) if style.get("size") is not None else shape


class _Drawing:
    """The shapes of one reading.

    Args: see `draw`; `field` is the field to draw, None for the first that can be drawn.
    """

    def __init__(
        self, reading: Reading, about: Mapping[str, Any], truth: bool, bodies: Array | None, field: str | None
    ) -> None:
        values = reading.truth if truth and reading.truth else reading.measured
        self.cfg, self.n = about.get("cfg", {}), len(reading.env_ids)
        self.reading = reading
        self.specs = {spec.name: spec for spec in reading.specs if spec.name in values}
        self.values, self.field = values, field
        self.pose = reading.pose
        about = about.get("constants", {}).get("drawing", {})
        self.rays, self.box = about.get("rays"), about.get("box")
        frames = np.asarray(about.get("frames", ()), np.float32).reshape(-1, 8)
        self.frames: Array | None = None
        """Poses of the frames that the description names, `[n, frame, 7]`."""
        if len(frames) and (bodies is not None or (frames[:, 0] < 0).all()):
            on = [
                IDENTITY[None].repeat(self.n, 0) if b < 0 or bodies is None else bodies[:, int(b)] for b in frames[:, 0]
            ]
            self.frames = composed(np.stack(on, axis=1), frames[None, :, 1:])

    def shapes(self) -> list[DebugShape]:
        rules: tuple[Callable[[], Iterator[DebugShape]], ...] = (
            self._frusta, self._cloud, self._heights, self._nearest, self._taxels, self._contacts, self._events,
            partial(self._arrows, "specific_force", "magnetic"), self._box, self._frames,
            partial(self._arrows, "vector_at", "angular_velocity", "scalar"), self._points, self._numbers,
        )  # fmt: skip
        for rule in rules:
            if found := [shape for shape in rule() if shape is not None]:
                return found
        return []

    # Fields -----------------------------------------------------------------------------------------------------------

    def _fields(self, attribute: str, *values: str) -> list[FieldSpec]:
        """Return the specs whose attribute has one of these values, or only the field that the config selects."""
        fits = [spec for spec in self.specs.values() if getattr(spec, attribute) in values]
        return [spec for spec in fits if self.field in (None, spec.name)]

    def _of(self, spec: FieldSpec) -> Array:
        """Return a field as float32 `[n, mount, ...]`; the mount axis has size 1 where there is none."""
        values = np.asarray(self.values[spec.name], np.float32)
        return values if spec.axes[:1] == ("mount",) else values[:, None]

    def _own(self, spec: FieldSpec) -> tuple[str, ...]:
        """Return the axes of a field after the mount axis."""
        return spec.axes[1:] if spec.axes[:1] == ("mount",) else spec.axes

    def _shape(self, kind: str, items: Array, seen: Array | bool = True, **style: Any) -> DebugShape:
        """Return a shape of the finite items `[n, ..., k]` that a mask `[n, ...]` selects; by default all."""
        tail = {"points": 1, "frames": 1}.get(kind, 2)
        shown: Array = np.asarray(np.isfinite(items).all(axis=tuple(range(items.ndim - tail, items.ndim)))) & seen
        if (colors := style.get("colors")) is not None:
            style["colors"] = np.broadcast_to(colors, (*shown.shape, 3))[shown]
        counts = shown.reshape(self.n, -1).sum(axis=1).tolist()
        return DebugShape(kind, items[shown].astype(np.float32), counts=counts, **style)

    def _world(self, inside: Array) -> Array:
        """Return points `[n, mount, ..., 3]` of the sensor's frame in the world."""
        assert self.pose is not None
        pose = self.pose.reshape(*self.pose.shape[:2], *[1] * (inside.ndim - 3), 7)
        return pose[..., :3] + rotate(pose[..., 3:], inside)

    # Rules ------------------------------------------------------------------------------------------------------------

    def _frusta(self) -> Iterator[DebugShape]:
        images = [spec for spec in self.specs.values() if spec.role == "image"]
        lens = self.specs.get("intrinsic_matrices")
        if not images or lens is None or self.pose is None:
            return
        axes = self._own(images[0])
        height, width = (images[0].shape[len(images[0].axes) - len(axes) + i] for i in range(2))
        edges = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]], np.float32)
        rays = np.einsum("nmij,kj->nmki", np.linalg.pinv(np.nan_to_num(self._of(lens))), edges)
        corners = self._world(FRUSTUM * np.stack([rays[..., 2], -rays[..., 0], -rays[..., 1]], axis=-1))
        eye = np.broadcast_to(self.pose[:, :, None, :3], corners.shape)
        lines = np.concatenate([np.stack([eye, corners], 3), np.stack([corners, np.roll(corners, -1, 2)], 3)], 2)
        yield self._shape("lines", lines)

    def _cloud(self) -> Iterator[DebugShape]:
        rays = [spec for spec in self.specs.values() if self._own(spec)[:1] == ("ray",)]
        points = self._hits(rays) if rays else None
        if points is None:
            return
        seen: Array = np.asarray(np.isfinite(points).all(axis=-1))
        if self.rays is None or self.pose is None:
            tints = [self.specs[name] for name in (self.field, "intensity", "elevation") if name in self.specs]
            tint = tints[0] if tints else None
            by = points[..., 2] if tint is None or self._own(tint) != ("ray",) else self._of(tint)
            yield self._shape("points", points, seen, colors=colors_of(np.where(seen, by, np.nan)))
            return
        yield self._shape("points", points, seen, color=GREEN)
        shows_rays = self.cfg.get("debug_rays")
        is_needed = shows_rays or not seen.all()
        starts, directions = self._cast(self.rays, self.pose) if is_needed else (points, points)
        yield self._shape("points", starts, ~seen, color=RED)
        if shows_rays:
            ends = np.where(seen[..., None], points, starts + directions)
            for mask, color in ((seen, GREEN), (~seen, RED)):
                yield self._shape("lines", np.stack([starts, ends], axis=-2), mask, color=color)

    def _hits(self, rays: list[FieldSpec]) -> Array | None:
        """Return the points that rays hit `[n, mount, ray, 3]`, not finite where they miss; None if not known."""
        at = {spec.frame: self._of(spec) for spec in reversed(rays) if spec.role == "point"}
        if "world" in at:
            return at["world"]
        if "sensor" in at and self.pose is not None:
            return self._world(at["sensor"])
        known = {spec.name: self._of(spec) for spec in rays}
        reach = known.get("distances", known.get("range"))
        if reach is None:
            return None
        if (miss := self.cfg.get("no_hit_value")) is not None:
            reach = np.where(reach == np.float32(miss), np.inf, reach)
        reach = np.where(np.isfinite(reach), reach, np.nan)[..., None]
        if self.rays is not None and self.pose is not None:
            starts, directions = self._cast(self.rays, self.pose)
            hits: Array = starts + reach * directions
            return hits
        if self.pose is None or "azimuth" not in known or not {"altitude", "elevation"} & known.keys():
            return None
        azimuth, up = known["azimuth"], known.get("altitude", known.get("elevation"))
        assert up is not None
        flat = np.cos(up)
        return self._world(reach * np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(up)], axis=-1))

    def _cast(self, rays: Mapping[str, Any], pose: Array) -> tuple[Array, Array]:
        """Return starts and directions in the world `[n, mount, ray, 3]` of the rays that the description lists."""
        offset, lines = np.asarray(rays["offset"], np.float32), np.asarray(rays["lines"], np.float32)
        back = np.concatenate([-rotate(offset[3:] * INVERSE, offset[:3]), offset[3:] * INVERSE])
        mount = composed(pose, back)
        if "pos_w" in self.specs and "quat_w" in self.specs:
            mount = np.concatenate([self._of(self.specs["pos_w"]), self._of(self.specs["quat_w"])], axis=-1)
        turn, alignment = mount[..., 3:], rays["alignment"]
        if alignment != "base":
            turn = _level(turn) if alignment != "world" else np.broadcast_to(IDENTITY[3:], turn.shape)
        turn = turn[:, :, None]
        starts = mount[:, :, None, :3] + rotate(turn, lines[:, :3])
        directions = lines[:, 3:] if alignment == "yaw_starts" else rotate(turn, lines[:, 3:])
        return starts, np.broadcast_to(directions, starts.shape)

    def _heights(self) -> Iterator[DebugShape]:
        for spec in self._fields("name", "heights"):
            if self.pose is not None:
                foot = self.pose[..., :3] - self._of(spec)[..., None] * np.array([0, 0, 1], np.float32)
                yield self._shape("points", foot, color=GREEN)
                lines = np.stack([self.pose[..., :3], foot], axis=-2)
                yield self._shape("lines", lines, color=GREEN)

    def _nearest(self) -> Iterator[DebugShape]:
        for spec in self._fields("name", "nearest_points_w"):
            ends = self._of(spec)
            ends, starts = ends.reshape(*ends.shape[:2], -1, 3), self._probes(("probe",))
            yield self._shape("points", ends)
            if starts is not None and starts.shape == ends.shape:
                yield self._shape("lines", np.stack([starts, ends], axis=-2), color=GREY)

    def _probes(self, axes: tuple[str, ...]) -> Array | None:
        """Return the positions of probes in the world `[n, mount, probe, 3]`; None if they are not known."""
        places = np.asarray(self.cfg.get("probe_local_pos", ((0.0, 0.0, 0.0),)), np.float32).reshape(-1, 3)
        if self.pose is None:
            return None
        if axes == ("x", "y", "z"):
            return None if self.frames is None else self.frames.reshape(*self.pose.shape[:2], -1, 7)[..., :3]
        return self._world(np.broadcast_to(places, (*self.pose.shape[:2], *places.shape)))

    def _taxels(self) -> Iterator[DebugShape]:
        for spec in self._fields("role", "scalar", "range"):
            own = self._own(spec)
            axes = next((axes for axes in TAXEL_AXES if own[: len(axes)] == axes), None)
            if axes is None or own[len(axes) :] not in ((), ("xyz",)):
                continue
            values = self._of(spec)
            starts = self._probes(axes)
            if starts is None or starts.shape[2] != int(np.prod(values.shape[2 : 2 + len(axes)])):
                return
            values = values.reshape(*starts.shape[:3], *values.shape[2 + len(axes) :])
            load = np.linalg.norm(values, axis=-1) if values.ndim == 4 else values
            is_cell = axes == ("x", "y", "z")
            seen = np.isfinite(load) if is_cell else np.abs(load) > 0.0
            radius = float(np.min(self.cfg.get("probe_radius", LARGE_PROBE)))
            size = 2.0 * radius if 0.0 < radius < LARGE_PROBE else None
            yield self._shape("points", starts, seen, colors=colors_of(load, None if is_cell else 0.0), size=size)
            if values.ndim == 4 and self.pose is not None:
                scale = 1.0 if spec.unit == "m" else 1e-3
                ends = starts + scale * rotate(self.pose[:, :, None, 3:], values)
                yield self._shape("lines", np.stack([starts, ends], axis=-2), seen, size=size and 0.2 * size)
            return

    def _contacts(self) -> Iterator[DebugShape]:
        forces = [
            spec
            for spec in self._fields("name", "force", "net_forces_w")
            if spec.axes[0:1] in (("contact",), ("body",))
        ]
        places = [self.specs[name] for name in ("pos", "pos_w") if name in self.specs]
        found = self.specs.get("found")
        if not forces and not (found and places):
            return
        at: Array
        if places:
            at = np.asarray(self.values[places[0].name], np.float32)
        elif self.frames is not None:
            size = np.shape(self.values[forces[0].name])[1]
            at = self.frames[..., :3].repeat(max(1, size // self.frames.shape[1]), axis=1)
        else:
            return
        seen = np.asarray(self.values["found"]) > 0 if found else np.ones(at.shape[:2], bool)
        force = np.asarray(self.values[forces[0].name], np.float32) if forces else None
        if force is not None and forces[0].frame == "contact":
            known = "normal" in self.specs and "tangent" in self.specs
            force = self._unturned(force) if known else None
        if force is None:
            yield self._shape("points", at, seen)
            return
        least = self.cfg.get("force_threshold", 1.0 if "net_forces_w" in self.specs else 0.0)
        seen = seen & (np.linalg.norm(force, axis=-1) > (least or 0.0))
        yield self._shape("arrows", np.stack([at, at + LENGTHS["N"] * force], axis=-2), seen)

    def _unturned(self, force: Array) -> Array:
        """Return forces given along normal, tangent and their cross product in world axes."""
        normal, tangent = (np.asarray(self.values[name], np.float32) for name in ("normal", "tangent"))
        other = np.cross(normal, tangent)
        found: Array = force[..., :1] * normal + force[..., 1:2] * tangent + force[..., 2:] * other
        return found

    def _events(self) -> Iterator[DebugShape]:
        if (spec := self.specs.get("pos_w")) is None or not spec.is_ragged:
            return
        offsets = self.reading.offsets
        assert offsets is not None
        points = np.asarray(self.values["pos_w"], np.float32)
        yield DebugShape("points", points, counts=np.diff(offsets).tolist())

    def _arrows(self, *roles: str) -> Iterator[DebugShape]:
        """Draw the first of the vector fields of these roles at the mounts, or at the frames of the description."""
        specs = [spec for spec in self._fields("role", *roles) if self._own(spec) == ("xyz",)]
        at = self.pose if self.pose is not None else self.frames
        for spec in specs[:1]:
            if at is None or spec.frame not in ("world", "sensor", "parent", "child", "body", "link", ""):
                continue
            vectors = self._of(spec)
            scale = LENGTHS.get(spec.unit)
            if scale is None:
                length = np.linalg.norm(vectors, axis=-1, keepdims=True)
                vectors, scale = vectors / np.maximum(length, 1e-30), DIRECTION
            if spec.frame != "world":
                axes = self.frames if spec.frame in ("parent", "child") and self.frames is not None else at
                vectors = rotate(axes[..., 3:], vectors)
            lines = np.stack([np.broadcast_to(at[..., :3], vectors.shape), at[..., :3] + scale * vectors], axis=-2)
            yield self._shape("arrows", lines)

    def _box(self) -> Iterator[DebugShape]:
        if self.box is None or self.pose is None:
            return
        middle, half = np.reshape(np.array(self.box, np.float32), (2, 3))
        corners = np.array([middle + half * [2 * (k >> axis & 1) - 1 for axis in range(3)] for k in range(8)])
        edges = [(a, a | 1 << axis) for a in range(8) for axis in range(3) if not a >> axis & 1]
        points = self._world(np.broadcast_to(corners.astype(np.float32), (self.n, 1, 8, 3)))
        lines = points[:, :, np.array(edges)]
        is_inside = np.asarray(self.values.get("count", np.ones(self.n))).reshape(-1) > 0
        colors = np.where(is_inside[:, None, None, None], [1.0, 0.1, 0.1], [1.0, 0.75, 0.1])
        yield self._shape("lines", lines, colors=colors)

    def _frames(self) -> Iterator[DebugShape]:
        source = self.pose
        for spec in self._fields("role", "pose"):
            place = self.specs.get(spec.name.replace("quat", "pos"))
            if place is None or place is spec or place.axes[:-1] != spec.axes[:-1]:
                continue
            if spec.frame not in ("world", "sensor"):
                continue
            poses = np.concatenate([self._of(place), self._of(spec)], axis=-1)
            if spec.frame == "sensor" and source is not None:
                poses = composed(source[:, :, None] if poses.ndim == 4 else source, poses)
            if poses.ndim == 4 and source is not None:
                yield self._shape("frames", source)
            yield self._shape("frames", poses, color=GREEN)
            if poses.ndim == 4 and source is not None:
                yield self._links(source, poses[..., :3])
                return

    def _links(self, source: Array, targets: Array) -> DebugShape:
        starts = np.broadcast_to(source[:, :, None, :3], targets.shape)
        return self._shape("lines", np.stack([starts, targets], axis=-2), color=GREY)

    def _points(self) -> Iterator[DebugShape]:
        for spec in self._fields("role", "point"):
            points = self._of(spec)
            if spec.frame == "enu":
                turn = np.radians(self.cfg.get("heading_deg", 0.0))
                east, north = np.cos(turn), np.sin(turn)
                points = points @ np.array([[east, -north, 0], [north, east, 0], [0, 0, 1]], np.float32)
            elif spec.frame == "sensor" and self.pose is not None:
                points = self._world(points)
                if points.ndim == 4:
                    yield self._links(self.pose, points)
            elif spec.frame != "world":
                continue
            yield self._shape("points", points)
            return

    def _numbers(self) -> Iterator[DebugShape]:
        """Draw a point at each mount or named frame, coloured by the first field with one number for each."""
        at = self.pose if self.pose is not None else self.frames
        if at is None:
            return
        for spec in self._fields("role", "scalar", "range", "pose", "vector_at"):
            values = np.asarray(self.values[spec.name], np.float32).reshape(self.n, -1)
            if spec.axes[-1:] and spec.axes[-1] in VECTOR_AXES:
                values = np.linalg.norm(values.reshape(self.n, -1, spec.shape[-1]), axis=-1)
            if values.shape[1] == at.shape[1]:
                is_on = spec.kind == "flag"
                colors = colors_of(values, 0.0 if is_on else None, 1.0 if is_on else None)
                yield self._shape("points", at[..., :3], colors=colors)
                return
        yield self._shape("points", at[..., :3], color=GREY)
