"""The world in three dimensions: instances of a mesh for each geometry, which move with the bodies.

Viser applies poses of nodes in the frame in which they arrive, and all other changes one frame later. Bodies, drawings
and the whole world therefore move by the same kind of change: new coordinates of their items, never poses of nodes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from sensorium.drawing import composed
from sensorium.readings import Array

GROUND, ROBOT = (0.62, 0.6, 0.56), (0.42, 0.48, 0.55)
"""Colours of uncoloured shapes: of the world, and of bodies."""
UNCOLORED = (0.5, 0.5, 0.5, 1.0)
PLANE = 20.0
"""Half size of an unbounded plane, m."""
MOVED = 1e-5
"""Minimum change of a pose that is sent, m or 1."""
AT_ORIGIN = np.array([[0, 0, 0, 1, 0, 0, 0]], np.float32)
Key = tuple[Any, ...]
"""Geometry of shapes: a kind and what distinguishes its meshes besides their scale."""


def add_instances(
    scene: Any, path: str, mesh: tuple[Array, Array], poses: Array, colors: Array, scales: Array | None = None,
    opacity: float = 1.0, *, is_flat: bool = True,
) -> Any:  # fmt: skip
    """Return a new node with a mesh at poses `[n, 7]`, in colours uint8 `[n, 3]`; see `linear`."""
    return scene.add_batched_meshes_simple(
        path, mesh[0].astype(np.float32), mesh[1], poses[:, 3:], poses[:, :3], batched_scales=scales,
        batched_colors=linear(colors), opacity=None if opacity >= 1.0 else opacity, lod="off", flat_shading=is_flat,
        side="double", cast_shadow=False, receive_shadow=False,
    )  # fmt: skip


def linear(colors: Array) -> Array:
    """Return colours uint8 of instances, which viser takes for linear, unlike all other colours."""
    return np.round(255.0 * (colors / 255.0) ** 2.2).astype(np.uint8)


class World3d:
    """Bodies and their shapes.

    Args:
        server: the `viser.ViserServer`.
        data: contents of the description of the world.
    """

    def __init__(self, server: Any, data: bytes) -> None:
        self._arrays: dict[str, Array] = {}
        about: dict[str, Any] = {"bodies": [], "shapes": []}
        if data:
            with np.load(io.BytesIO(data)) as file:
                self._arrays = {name: file[name] for name in file.files}
            about = json.loads(str(self._arrays["description"]))
        shapes = [shape for shape in about["shapes"] if shape.get("is_visible", True)]
        visual = {shape["body"] for shape in shapes if shape["is_visual"]}
        self.moving = sorted({shape["body"] for shape in shapes if not shape["is_static"]})
        """Rows of the bodies that have shapes and move."""
        reach = [np.linalg.norm(each["pos"]) + max(each["size"] or [0.1]) for each in shapes if not each["is_static"]]
        self.size = float(np.clip(2.0 * max(reach, default=1.0), 0.3, 10.0))
        """Size of the moving bodies, m: a distance from which they are visible."""
        self.origin = np.zeros(3, np.float32)
        """The place where the cameras look: all coordinates are sent relative to it, so that no camera has to move."""
        self._shown: Array = np.full((len(about["bodies"]) + 1, 7), np.nan, np.float32)
        self._nodes: list[tuple[Any, Array, Array]] = []
        """Node, body of each instance, and its pose on this body `[instance, 7]`."""
        server.scene.configure_default_lights(enabled=True, cast_shadow=False)
        groups: dict[Key, list[Mapping[str, Any]]] = {}
        for shape in shapes:
            key = self._geometry(shape)
            if key is not None and (shape["is_visual"] or shape["body"] not in visual):
                groups.setdefault((*key, _color(shape)[3]), []).append(shape)
        for number, (group, own) in enumerate(groups.items()):
            body = np.array([-1 if each["is_static"] else each["body"] for each in own])
            poses = np.array([[*each["pos"], *each["quat"]] for each in own], np.float32)
            colors = np.round(255 * np.array([_color(each)[:3] for each in own]))
            scales = np.array([_scale(each) for each in own], np.float32)
            node = add_instances(
                server.scene, f"/world/{number}", self._mesh(group[:-1]), poses, colors, scales, group[-1]
            )
            self._nodes.append((node, body, poses))

    def _geometry(self, shape: Mapping[str, Any]) -> Key | None:
        kind, size = shape["kind"], shape["size"]
        if kind in ("mesh", "hfield"):
            return (kind, shape[kind], *shape.get("hfield_size", ())) if kind in shape else None
        if kind == "capsule":
            return kind, size[0], size[1]
        kind = "sphere" if kind == "ellipsoid" else kind
        return (kind,) if kind in ("plane", "box", "sphere", "cylinder") else None

    def _mesh(self, key: Key) -> tuple[Array, Array]:
        """Return vertices and faces of a geometry at the scale 1."""
        from trimesh import creation

        match key:
            case "mesh", number:
                return self._arrays[f"mesh/{number}/vertices"], self._arrays[f"mesh/{number}/faces"]
            case "hfield", number, *size:
                return _terrain(self._arrays[f"hfield/{number}/heights"], size)
            case ("plane",):
                return np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]), np.array([[0, 1, 2], [0, 2, 3]])
            case "capsule", radius, half:
                mesh = creation.capsule(height=2.0 * half, radius=radius, count=(12, 16))
                mesh.vertices -= [0.0, 0.0, mesh.bounds.mean(axis=0)[2]]
            case ("sphere",):
                mesh = creation.icosphere(subdivisions=2)
            case ("cylinder",):
                mesh = creation.cylinder(radius=1.0, height=2.0, sections=24)
            case _:
                mesh = creation.box((2.0, 2.0, 2.0))
        return np.asarray(mesh.vertices), np.asarray(mesh.faces)

    def show(self, poses: Array, *, follows: bool) -> None:
        """Move the bodies to their poses `[body, 7]`; those that are not finite keep theirs.

        Args:
            poses: the poses, m and wxyz.
            follows: whether the first moving body stays where the cameras look.
        """
        poses = np.concatenate([poses, AT_ORIGIN])  # the last row is the world, which shapes without a body are on
        with np.errstate(invalid="ignore"):
            is_moved = ~(np.abs(poses - self._shown).max(axis=1) <= MOVED) & np.isfinite(poses).all(axis=1)
        self._shown[is_moved] = poses[is_moved]
        place = self._shown[next(iter(self.moving), 0), :3].copy()
        if follows and np.isfinite(place).all() and (place != self.origin).any():
            self.origin = place
            is_moved[:] = True
        for node, body, inner in self._nodes:
            if is_moved[body].any():
                now = composed(np.nan_to_num(self._shown[body]), inner)
                node.batched_positions, node.batched_wxyzs = now[:, :3] - self.origin, now[:, 3:]


def _scale(shape: Mapping[str, Any]) -> Any:
    """Return the factors by which the mesh of a shape's geometry has its size."""
    kind, size = shape["kind"], shape["size"]
    match kind:
        case "mesh":
            return shape["scale"]
        case "plane":
            return *(half or PLANE for half in size[:2]), 1.0
        case "box" | "ellipsoid":
            return size[:3]
        case "sphere":
            return [size[0]] * 3
        case "cylinder":
            return size[0], size[0], size[1]
    return 1.0, 1.0, 1.0


def _color(shape: Mapping[str, Any]) -> tuple[float, ...]:
    rgba = tuple(shape.get("rgba", UNCOLORED))
    return (*(GROUND if shape["is_static"] else ROBOT), 1.0) if rgba == UNCOLORED else rgba


def _terrain(heights: Array, size: Any) -> tuple[Array, Array]:
    """Return the surface of a height field; its cells are split as the rays see them."""
    rows, columns = heights.shape
    x, y = np.meshgrid(np.linspace(-size[0], size[0], columns), np.linspace(-size[1], size[1], rows))
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).reshape(-1)
    faces = [[corner, corner + 1, corner + columns + 1], [corner, corner + columns + 1, corner + columns]]
    return np.stack([x, y, heights], axis=-1).reshape(-1, 3), np.concatenate([np.stack(f, axis=1) for f in faces])
