"""Shapes of sensors, and images in their cameras, as nodes of the page's scene."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sensorium.drawing import draw, prepared
from sensorium.readings import Array, DebugShape, Reading
from sensorium.view.live.frames import Frame
from sensorium.view.live.images import image_fields, image_of
from sensorium.view.live.world3d import ORIGIN

POINT, LINE, ARROW, AXES = 0.015, 0.003, 0.008, 0.1
"""Default diameter of points, thickness of lines and of arrows, and length of axes, m."""
FRUSTUM, CAMERA = 0.1, (0.16, 0.35, 0.63)
"""Default length of the frustum of a camera, m, and its colour."""
MAX = 20_000
"""Maximum number of points of one shape; of larger ones every k-th is drawn."""
BLOCK = 256
"""Shapes have a multiple of this number of items or, if there are fewer, a power of two."""


class Overlay:
    """Nodes of one sensor.

    Args:
        scene: `viser.SceneApi`.
        name: name of the sensor.
    """

    def __init__(self, scene: Any, name: str) -> None:
        self._scene, self._path = scene, f"{ORIGIN}/sensors/{name}"
        self._nodes: dict[str, tuple[tuple[Any, ...], Any]] = {}

    def show(self, shapes: Sequence[DebugShape], frustum: Frustum | None = None) -> None:
        """Draw shapes and remove the previous ones."""
        shown = set()
        for number, shape in enumerate(shapes):
            items = np.asarray(shape.items, np.float32)
            colors = np.array([shape.color], np.float32) if shape.colors is None else shape.colors.reshape(-1, 3)
            finite = np.isfinite(items.reshape(len(items), items[:1].size)).all(axis=1)
            every = 1 + len(items) // MAX
            if every > 1 or not finite.all():
                items = items[finite][::every]
                colors = colors if shape.colors is None else colors[finite][::every]
            if len(items):
                shown.add(path := f"{self._path}/{number}")
                colors = (255 * colors).astype(np.uint8)
                self._show(path, shape, _filled(items), colors[0] if shape.colors is None else _filled(colors))
        if frustum is not None:
            shown.add(path := f"{self._path}/image")
            self._show_image(path, frustum)
        for path in [path for path in self._nodes if path not in shown]:
            self._nodes.pop(path)[1].remove()

    def remove(self) -> None:
        """Remove all nodes."""
        self.show(())

    def _show(self, path: str, shape: DebugShape, items: Array, colors: Array) -> None:
        if shape.kind == "points":
            self._update(path, (shape.kind, shape.size, len(items)), items, colors, lambda: self._scene.add_point_cloud(
                path, items, colors, point_size=shape.size or POINT, point_shape="circle", precision="float32",
            ))  # fmt: skip
        elif shape.kind == "frames":
            key = shape.kind, shape.size, len(items)
            node = self._kept(path, key)
            if node is None:
                length = shape.size or AXES
                self._nodes[path] = (
                    key,
                    self._scene.add_batched_axes(
                        path, items[:, 3:], items[:, :3], axes_length=length, axes_radius=0.05 * length
                    ),
                )
            else:
                node.batched_wxyzs, node.batched_positions = items[:, 3:], items[:, :3]
        elif shape.kind == "arrows":
            width = shape.size or ARROW
            self._update(path, (shape.kind, width, len(items)), items, colors, lambda: self._scene.add_arrows(
                path, items, colors, shaft_radius=0.5 * width, head_radius=1.2 * width, head_length=3.0 * width,
            ))  # fmt: skip
        else:
            both = colors if colors.ndim == 1 else np.repeat(colors[:, None], 2, axis=1)
            self._update(path, (shape.kind, shape.size, len(items)), items, both, lambda: self._scene.add_line_segments(
                path, items, both, thickness=shape.size or LINE
            ))  # fmt: skip

    def _kept(self, path: str, key: tuple[Any, ...]) -> Any:
        """Return the node of a path if it fits, else remove it."""
        found = self._nodes.get(path)
        if found is not None and found[0] == key:
            return found[1]
        if found is not None:
            self._nodes.pop(path)[1].remove()
        return None

    def _update(self, path: str, key: tuple[Any, ...], items: Array, colors: Array, add: Any) -> None:
        node = self._kept(path, key)
        if node is None:
            self._nodes[path] = key, add()
            return
        node.points = items
        if not np.array_equal(node.colors, colors):
            node.colors = colors

    def _show_image(self, path: str, frustum: Frustum) -> None:
        key = "image", frustum.fov, frustum.aspect, frustum.color, frustum.length
        node = self._kept(path, key)
        if node is None:
            self._nodes[path] = key, self._scene.add_camera_frustum(
                path, frustum.fov, frustum.aspect, scale=frustum.length, thickness=LINE, color=frustum.color,
                image=frustum.image, format="jpeg", wxyz=frustum.wxyz, position=frustum.position, cast_shadow=False,
                receive_shadow=False,
            )  # fmt: skip
        else:
            node.position, node.wxyz, node.image = frustum.position, frustum.wxyz, frustum.image


class Overlays:
    """The drawings of all sensors.

    Args:
        scene: `viser.SceneApi`.
    """

    def __init__(self, scene: Any) -> None:
        self._scene = scene
        self._overlays: dict[str, Overlay] = {}
        self._sensors: Mapping[str, Mapping[str, Any]] = {}

    def describe(self, sensors: Mapping[str, Mapping[str, Any]]) -> None:
        """Apply new descriptions of the sensors."""
        self._sensors = {name: prepared(info) for name, info in sensors.items()}
        self.keep(sensors)

    def keep(self, names: Collection[str]) -> None:
        """Remove the drawings of all other sensors."""
        for name in [name for name in self._overlays if name not in names]:
            self._overlays.pop(name).remove()

    def show(
        self,
        frame: Frame,
        readings: Mapping[str, Reading],
        shows_truth: Callable[[str], bool],
        drawn: Collection[str],
        changed: Collection[str] = (),
    ) -> None:
        """Draw a frame.

        Args:
            frame: the frame.
            readings: newest reading of each sensor.
            shows_truth: returns whether the ground truth of a sensor is drawn instead of its measured values.
            drawn: sensors to draw.
            changed: sensors to draw again, even without a new reading.
        """
        self.keep([name for name in drawn if name in readings])
        bodies = None if frame.bodies is None else frame.bodies[None]
        for name in drawn:
            reading = readings.get(name)
            is_known = name in self._overlays
            if reading is None or (is_known and name not in frame.readings and name not in changed):
                continue
            overlay = self._overlays.setdefault(name, Overlay(self._scene, name))
            truth = shows_truth(name)
            style = self._sensors[name].get("cfg", {}).get("visualizer_cfg") or {}
            frustum, shapes = frustum_of(reading, style, truth=truth), frame.shapes.get(name)
            if shapes is None:
                shapes = [] if frustum else draw(reading, self._sensors[name], truth=truth, bodies=bodies)
            overlay.show(shapes, frustum)


def _filled(items: Array) -> Array:
    """Return the items, with the last one repeated to fill a block: viser rebuilds a node if the number changes."""
    block = min(BLOCK, 1 << (len(items) - 1).bit_length())
    missing = -len(items) % block
    return np.concatenate([items, items[-1:].repeat(missing, axis=0)]) if missing else items


class Frustum:
    """A camera with its image.

    Args:
        pose: pose `[7]` in the world, x forward.
        lens: intrinsic matrix `[3, 3]`, px.
        image: uint8 `[height, width, 3]`.
        style: colour and length, as in a `visualizer_cfg`.
    """

    def __init__(self, pose: Array, lens: Array, image: Array, style: Mapping[str, Any]) -> None:
        red, green, blue = style.get("color") or CAMERA
        self.color = round(255 * red), round(255 * green), round(255 * blue)
        self.length = float(style.get("size") or FRUSTUM)
        height, width = image.shape[:2]
        self.image = image
        self.aspect = width / height
        self.fov = round(float(2.0 * np.arctan2(0.5 * height, lens[1, 1])), 4)
        self.position = pose[:3]
        w, x, y, z = pose[3:] / max(float(np.linalg.norm(pose[3:])), 1e-9)
        # times (0.5, -0.5, 0.5, -0.5): from x forward and z up to z forward and y down
        self.wxyz = 0.5 * np.array([w + x - y + z, -w + x - y - z, w + x + y - z, -w + x + y + z])


def frustum_of(reading: Reading, style: Mapping[str, Any], *, truth: bool) -> Frustum | None:
    """Return the first camera of a reading with its first image; None for sensors without images."""
    fields = image_fields(reading.specs)
    if not fields or reading.pose is None or "intrinsic_matrices" not in reading.measured:
        return None
    image = image_of(reading, fields[0], truth=truth)
    lens = np.reshape(reading.measured["intrinsic_matrices"], (-1, 3, 3))[0]
    pose = reading.pose[0, 0]
    is_known = bool(np.isfinite(pose).all() and np.isfinite(lens).all() and lens[1, 1] > 0.0)
    return Frustum(pose, lens, image, style) if is_known and image is not None else None
