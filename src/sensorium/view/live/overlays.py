"""Shapes of sensors, and images in their cameras, as nodes of the page's scene that move as `World3d` describes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from sensorium.client.client import Drawings
from sensorium.drawing import composed, draw, prepared, rotate
from sensorium.readings import Array, DebugShape, Reading
from sensorium.view.images import image_fields, image_of
from sensorium.view.live.world3d import AT_ORIGIN, add_instances, linear
from sensorium.wire.stream_info import StreamInfo

POINT, LINE, ARROW, AXES = 0.015, 0.003, 0.008, 0.1
"""Default diameter of points, thickness of lines and of arrows, and length of axes, m."""
FRUSTUM, CAMERA = 0.1, (0.16, 0.35, 0.63)
"""Default length of the frustum of a camera, m, and its colour."""
MAX_PIXELS = 64
"""Maximum width or height of the image in a frustum; of larger ones every k-th pixel is drawn."""
MAX_ITEMS = 20_000
"""Maximum number of points of one shape; of larger ones every k-th is drawn."""
MAX_BALLS = 4096
"""Number of points up to which they are balls; more are discs, which a surface that they lie on half covers."""
BLOCK = 256
"""Shapes have a multiple of this number of items or, if there are fewer, a power of two."""


class Overlay:
    """Nodes of one sensor.

    Args:
        scene: `viser.SceneApi`.
        name: name of the sensor.
    """

    def __init__(self, scene: Any, name: str) -> None:
        self._scene, self._path = scene, f"/sensors/{name}"
        self._nodes: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._counts: dict[str, int] = {}

    def show(
        self, shapes: Sequence[DebugShape], image: DebugShape | None = None, *, origin: Array | float = 0.0
    ) -> None:
        """Draw shapes and the pixels of an image, as squares, relative to a point; remove the previous ones."""
        shown = set()
        for number, shape in enumerate([*shapes, *([] if image is None else [image])]):
            items = np.array(shape.items, np.float32)
            items[..., :3] -= origin
            colors = np.array([shape.color], np.float32) if shape.colors is None else shape.colors.reshape(-1, 3)
            finite = np.isfinite(items.reshape(len(items), items[:1].size)).all(axis=1)
            every = 1 + len(items) // MAX_ITEMS
            if every > 1 or not finite.all():
                items = items[finite][::every]
                colors = colors if shape.colors is None else colors[finite][::every]
            if len(items):
                shown.add(path := f"{self._path}/{number}")
                colors = (255 * colors).astype(np.uint8)
                count = self._counts[path] = _count(len(items), self._counts.get(path, 0))
                colors = colors[0] if shape.colors is None else _filled(colors, count)
                self._show(path, "image" if shape is image else shape.kind, shape.size, _filled(items, count), colors)
        for path in [path for path in self._nodes if path not in shown]:
            self._nodes.pop(path)[1].remove()

    def remove(self) -> None:
        """Remove all nodes."""
        self.show(())

    def _show(self, path: str, kind: str, size: float | None, items: Array, colors: Array) -> None:
        """Set the values of the node of a path; a node that does not fit is replaced by a new one."""
        scene, values = self._scene, {"points": items, "colors": colors}
        if kind == "points" and len(items) <= MAX_BALLS:
            colors = np.broadcast_to(colors, items.shape)
            values = {"batched_positions": items, "batched_colors": linear(colors)}
            poses = np.concatenate([items, np.broadcast_to(AT_ORIGIN[:, 3:], (len(items), 4))], axis=1)
            vertices, faces = _ball()
            mesh = 0.5 * (size or POINT) * vertices, faces
            add = partial(add_instances, scene, path, mesh, poses, colors, is_flat=False)
        elif kind in ("points", "image"):
            look = ("circle", "gradient") if kind == "points" else ("square", "flat")
            add = partial(scene.add_point_cloud, path, items, colors, point_size=size or POINT, point_shape=look[0],
                          point_shading=look[1], precision="float32")  # fmt: skip
        elif kind == "frames":
            length, values = size or AXES, {"batched_wxyzs": items[:, 3:], "batched_positions": items[:, :3]}
            add = partial(scene.add_batched_axes, path, *values.values(), axes_length=length, axes_radius=0.05 * length)
        elif kind == "arrows":
            width = size or ARROW
            add = partial(scene.add_arrows, path, items, colors, shaft_radius=0.5 * width, head_radius=1.2 * width,
                          head_length=3.0 * width)  # fmt: skip
        else:
            values["colors"] = colors if colors.ndim == 1 else np.repeat(colors[:, None], 2, axis=1)
            add = partial(scene.add_line_segments, path, *values.values(), thickness=size or LINE)
        key = kind, size, len(items)
        before, node = self._nodes.get(path, (None, None))
        if before != key:
            if node is not None:
                node.remove()
            self._nodes[path] = key, add()
            return
        for name, value in values.items():
            setattr(node, name, value)


class Overlays:
    """The drawings of all sensors.

    Args:
        scene: `viser.SceneApi`.
    """

    def __init__(self, scene: Any) -> None:
        self._scene = scene
        self._overlays: dict[str, Overlay] = {}
        self._origin: Array | float = 0.0
        self._sensors: Mapping[str, Mapping[str, Any]] = {}

    def describe(self, streams: Mapping[str, StreamInfo]) -> None:
        """Apply new descriptions of the sensors."""
        self._sensors = {
            name: prepared({"cfg": info.cfg, "constants": dict(info.constants)}) for name, info in streams.items()
        }
        self.keep(streams)

    def keep(self, names: Collection[str]) -> None:
        """Remove the drawings of all other sensors."""
        for name in [name for name in self._overlays if name not in names]:
            self._overlays.pop(name).remove()

    def show(
        self,
        readings: Mapping[str, Reading],
        bodies: Array | None,
        drawings: Drawings,
        shows_truth: Callable[[str], bool],
        drawn: Collection[str],
        changed: Collection[str],
        origin: Array | float = 0.0,
    ) -> None:
        """Draw the newest readings, at the places of their bodies.

        Args:
            readings: newest reading of each sensor.
            bodies: newest poses of all bodies, `[1, body, 7]`; None if they are unknown.
            drawings: mounts of the sensors, and shapes of those that draw themselves.
            shows_truth: returns whether the ground truth of a sensor is drawn instead of its measured values.
            drawn: sensors to draw.
            changed: sensors to draw again; those on bodies move in any case.
            origin: point of the world to which all coordinates are relative.
        """
        self.keep([name for name in drawn if name in readings])
        has_moved, self._origin = not np.array_equal(origin, self._origin), origin
        for name in drawn:
            if (reading := readings.get(name)) is None:
                continue
            about, truth, own = self._sensors[name], shows_truth(name), drawings.shapes.get(name)
            poses = None if bodies is None else _poses_now(reading, drawings.mounts.get(name), bodies)
            moves = own is not None or poses is not None or "frames" in about["constants"].get("drawing", {})
            if not (moves or has_moved) and name in self._overlays and name not in changed:
                continue
            if poses is not None:
                reading = replace(reading, _pose=poses)
            overlay = self._overlays.setdefault(name, Overlay(self._scene, name))
            style = about["cfg"].get("visualizer_cfg") or {}
            frustum = frustum_of(reading, style, truth=truth) if own is None else None
            if frustum is not None:
                overlay.show(*frustum, origin=origin)
            else:
                overlay.show(draw(reading, about, truth=truth, bodies=bodies) if own is None else own, origin=origin)


def _poses_now(reading: Reading, mounts: Array | None, bodies: Array) -> Array | None:
    """Return the poses that the mounts of a reading have now, so that slow sensors are drawn where their bodies are.

    None for rays, whose hits stay where they were when the rays were cast, and without poses.
    """
    pose = reading.pose
    if mounts is None or pose is None or pose.shape[1] != len(mounts):
        return None
    if any("ray" in spec.axes for spec in reading.specs):
        return None
    on = np.where(mounts[:, :1] < 0, [[0, 0, 0, 1, 0, 0, 0]], bodies[0, mounts[:, 0].astype(int)])
    poses: Array = composed(on, mounts[:, 1:]).astype(np.float32)[None]
    return poses


def _count(items: int, before: int) -> int:
    """Return the number of items of a node: the browser builds it anew if the number changes.

    It is filled up to a block, and stays if the items become fewer, down to a half.
    """
    block = min(BLOCK, 1 << (items - 1).bit_length())
    count = items + -items % block
    return before if count <= before <= 2 * count else count


def _filled(items: Array, count: int) -> Array:
    """Return a number of items, with the last one repeated."""
    return np.concatenate([items, items[-1:].repeat(count - len(items), axis=0)])


@cache
def _ball() -> tuple[Array, Array]:
    """Return vertices and faces of an icosahedron of radius 1 whose faces are divided once."""
    from trimesh import creation

    mesh = creation.icosphere(subdivisions=1)
    return mesh.vertices.astype(np.float32), mesh.faces


def frustum_of(
    reading: Reading, style: Mapping[str, Any], *, truth: bool
) -> tuple[list[DebugShape], DebugShape] | None:
    """Return the edges of the first camera of a reading, and its first image as points; None without an image."""
    fields = image_fields(reading.specs)
    if not fields or reading.pose is None or "intrinsic_matrices" not in reading.measured:
        return None
    image = image_of(reading, fields[0], truth=truth)
    lens, pose = np.reshape(reading.measured["intrinsic_matrices"], (-1, 3, 3))[0], reading.pose[0, 0]
    if image is None or not (np.isfinite(pose).all() and np.isfinite(lens).all() and lens[0, 0] * lens[1, 1] > 0.0):
        return None
    spec = next(spec for spec in reading.specs if spec.name == fields[0])
    height, width = spec.shape[-3:-1]
    length, color = float(style.get("size") or FRUSTUM), tuple(style.get("color") or CAMERA)
    shown = image[:: -(-image.shape[0] // MAX_PIXELS), :: -(-image.shape[1] // MAX_PIXELS)]
    rows, columns = shown.shape[:2]

    def at(u: Array, v: Array) -> Array:
        """Return the points of pixels on the far side of the frustum, in the world."""
        side = np.stack([np.ones_like(u), (lens[0, 2] - u) / lens[0, 0], (lens[1, 2] - v) / lens[1, 1]], axis=-1)
        found: Array = pose[:3] + rotate(pose[3:], length * side)
        return found

    corners = at(np.array([0.0, width, width, 0.0]), np.array([0.0, 0.0, height, height]))
    edges = [*((pose[:3], each) for each in corners), *zip(corners, np.roll(corners, -1, axis=0), strict=True)]
    u, v = (np.arange(columns) + 0.5) * width / columns, (np.arange(rows) + 0.5) * height / rows
    pixels = at(np.repeat(u[None], rows, axis=0), np.repeat(v[:, None], columns, axis=1)).reshape(-1, 3)
    size = max(width / columns / lens[0, 0], height / rows / lens[1, 1]) * length
    return (
        [DebugShape("lines", np.array(edges), color=color, size=LINE)],
        DebugShape("points", pixels, colors=shown.reshape(-1, 3) / 255.0, size=float(size)),
    )
