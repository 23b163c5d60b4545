"""The world in three dimensions: one node for each body, with the meshes of its shapes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from sensorium.readings import Array

ORIGIN = "/origin"
"""Node that holds the world and all drawings."""
GROUND, ROBOT = (0.62, 0.6, 0.56), (0.42, 0.48, 0.55)
"""Colours of uncoloured shapes: of the world, and of bodies."""
UNCOLORED = (0.5, 0.5, 0.5, 1.0)
PLANE = 20.0
"""Half size of an unbounded plane, m."""
MOVED = 1e-5
"""Minimum change of a pose that is sent, m or 1."""


class World3d:
    """Bodies and their shapes.

    Args:
        server: the `viser.ViserServer`.
        data: contents of the description of the world.
    """

    def __init__(self, server: Any, data: bytes) -> None:
        self._server = server
        self._arrays: dict[str, Array] = {}
        about: dict[str, Any] = {"bodies": [], "shapes": []}
        if data:
            with np.load(io.BytesIO(data)) as file:
                self._arrays = {name: file[name] for name in file.files}
            about = json.loads(str(self._arrays["description"]))
        self.bodies: list[str] = about["bodies"]
        """Names of the bodies."""
        shapes = [shape for shape in about["shapes"] if shape.get("is_visible", True)]
        visual = {shape["body"] for shape in shapes if shape["is_visual"]}
        self._shown: Array = np.full((len(self.bodies), 7), np.nan, np.float32)
        self._nodes: dict[int, Any] = {}
        self.moving = sorted({shape["body"] for shape in shapes if not shape["is_static"]})
        """Rows of the bodies that have shapes and move."""
        self._add_lights()
        for row in sorted({-1 if shape["is_static"] else shape["body"] for shape in shapes}):
            self._nodes[row] = server.scene.add_frame(f"{ORIGIN}/world/{row}", show_axes=False)
            own = [shape for shape in shapes if (-1 if shape["is_static"] else shape["body"]) == row]
            self._add_body(row, [shape for shape in own if shape["is_visual"] or shape["body"] not in visual])
        self.size = self._extent(shapes)
        """Size of the moving bodies, m: a distance from which they are visible."""

    def _add_lights(self) -> None:
        self._server.scene.configure_default_lights(enabled=True, cast_shadow=False)

    def _add_body(self, row: int, shapes: list[Mapping[str, Any]]) -> None:
        """Add the meshes of a body, one for each colour."""
        groups: dict[tuple[float, ...], list[tuple[Array, Array]]] = {}
        for shape in shapes:
            mesh = self._mesh(shape)
            if mesh is not None:
                turned = mesh[0] @ _matrix(shape["quat"]).T + np.asarray(shape["pos"])
                groups.setdefault(_color(shape), []).append((turned, mesh[1]))
        for number, (color, meshes) in enumerate(groups.items()):
            starts = np.cumsum([0, *(len(vertices) for vertices, _ in meshes)])
            self._server.scene.add_mesh_simple(
                f"{ORIGIN}/world/{row}/{number}",
                np.concatenate([vertices for vertices, _ in meshes]).astype(np.float32),
                np.concatenate([faces + start for (_, faces), start in zip(meshes, starts, strict=False)]),
                color=color[:3], opacity=None if color[3] >= 1.0 else color[3], flat_shading=True, side="double",
                cast_shadow=False, receive_shadow=False,
            )  # fmt: skip

    def _mesh(self, shape: Mapping[str, Any]) -> tuple[Array, Array] | None:
        """Return vertices and faces of a shape in its own frame."""
        from trimesh import creation

        kind, size = shape["kind"], shape["size"]
        if kind == "mesh" and "mesh" in shape:
            vertices = self._arrays[f"mesh/{shape['mesh']}/vertices"] * np.asarray(shape["scale"])
            return vertices, self._arrays[f"mesh/{shape['mesh']}/faces"]
        if kind == "hfield" and "hfield" in shape:
            return _terrain(self._arrays[f"hfield/{shape['hfield']}/heights"], shape["hfield_size"])
        if kind == "plane":
            x, y = (half or PLANE for half in size[:2])
            return np.array([[-x, -y, 0], [x, -y, 0], [x, y, 0], [-x, y, 0]]), np.array([[0, 1, 2], [0, 2, 3]])
        if kind == "box":
            mesh = creation.box(2.0 * np.asarray(size[:3]))
        elif kind in ("sphere", "ellipsoid"):
            mesh = creation.icosphere(subdivisions=2)
            return mesh.vertices * (np.asarray(size[:3]) if kind == "ellipsoid" else size[0]), mesh.faces
        elif kind == "capsule":
            mesh = creation.capsule(height=2.0 * size[1], radius=size[0], count=(12, 16))
            return mesh.vertices - [0.0, 0.0, mesh.bounds.mean(axis=0)[2]], mesh.faces
        elif kind == "cylinder":
            mesh = creation.cylinder(radius=size[0], height=2.0 * size[1], sections=24)
        else:
            return None
        return np.asarray(mesh.vertices), np.asarray(mesh.faces)

    def _extent(self, shapes: list[Mapping[str, Any]]) -> float:
        reach = [
            np.linalg.norm(shape["pos"]) + max(shape["size"] or [0.1]) for shape in shapes if not shape["is_static"]
        ]
        return float(np.clip(2.0 * max(reach, default=1.0), 0.3, 10.0))

    def show(self, poses: Array) -> None:
        """Move the bodies to their poses `[body, 7]`; those that are not finite keep theirs."""
        with np.errstate(invalid="ignore"):
            is_moved = ~(np.abs(poses - self._shown).max(axis=1) <= MOVED) & np.isfinite(poses).all(axis=1)
        for row in is_moved.nonzero()[0].tolist():
            if (node := self._nodes.get(row)) is not None:
                node.position, node.wxyz = poses[row, :3], poses[row, 3:]
        self._shown[is_moved] = poses[is_moved]

    def remove(self) -> None:
        """Remove all nodes."""
        for node in self._nodes.values():
            node.remove()


def _color(shape: Mapping[str, Any]) -> tuple[float, ...]:
    rgba = tuple(shape.get("rgba", UNCOLORED))
    return (*(GROUND if shape["is_static"] else ROBOT), 1.0) if rgba == UNCOLORED else rgba


def _matrix(quat: Any) -> Array:
    w, x, y, z = quat
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _terrain(heights: Array, size: Any) -> tuple[Array, Array]:
    """Return the surface of a height field; its cells are split as the rays see them."""
    rows, columns = heights.shape
    x, y = np.meshgrid(np.linspace(-size[0], size[0], columns), np.linspace(-size[1], size[1], rows))
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).reshape(-1)
    faces = [[corner, corner + 1, corner + columns + 1], [corner, corner + columns + 1, corner + columns]]
    return np.stack([x, y, heights], axis=-1).reshape(-1, 3), np.concatenate([np.stack(f, axis=1) for f in faces])
