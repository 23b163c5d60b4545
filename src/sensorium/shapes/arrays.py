"""Shapes as arrays for kernels, with the trees of meshes and the height fields that all queries share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import warp as wp

from sensorium.geometry.bounds import bounding_sphere, is_upright, ray_tree_of
from sensorium.geometry.hfield import HFields, build_hfields
from sensorium.geometry.ray_structs import Instances
from sensorium.geometry.shapes import KINDS, HeightField, Mesh
from sensorium.geometry.transforms import rotation
from sensorium.geometry.wide_tree import build_wide_tree
from sensorium.shapes.ray_static import building
from sensorium.shapes.scene import SceneView, ShapeScene


def device_array(values: Any, dtype: Any, device: Any) -> Any:
    """Return numbers or vectors of the host, which may be none, as a Warp array `[item]`."""
    width = wp.types.type_size(dtype)
    whole = {wp.int32: np.int32, wp.vec2i: np.int32, wp.uint32: np.uint32, wp.uint64: np.uint64}
    array = np.asarray(values, dtype=whole.get(dtype, np.float32))
    return wp.array(array.reshape((-1, width) if width > 1 else -1), dtype=dtype, device=device)


class ShapeArrays(SceneView):
    """Arrays, meshes and height fields of the shapes of a scene."""

    def __init__(self, scene: ShapeScene) -> None:
        super().__init__(scene)
        self._meshes: dict[tuple[int, tuple[float, ...]], tuple[Mesh, wp.Mesh]] = {}
        self._trees: dict[int, tuple[Mesh, wp.array[wp.float32]]] = {}

    @cached_property
    def fields(self) -> HFields:
        """All height fields."""
        return build_hfields(list(self._field_rows), self.device)

    @cached_property
    def _field_rows(self) -> dict[HeightField, int]:
        fields = dict.fromkeys(shape.hfield for shape in self.scene.shapes if shape.hfield is not None)
        return {each: row for row, each in enumerate(fields) if each is not None}

    def mesh(self, mesh: Mesh, scale: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> wp.Mesh:
        """Return the tree of a mesh in its own frame, scaled on request; equal requests share it."""
        key = (id(mesh), scale)
        known = self._meshes.get(key)
        if known is None:
            with building(f"mesh {mesh.name!r}", len(mesh.faces)):
                points = mesh.vertices * np.array(scale)
                known = self._meshes[key] = (mesh, ray_tree_of(points, mesh.faces, self.device))
        return known[1]

    def trees(self, rows: Sequence[int]) -> Any:
        """Return `Instances.tree` of drawable shapes for casts of many rays."""
        addresses = []
        for mesh in [self.scene.drawable[i].mesh if self.device == "cpu" else None for i in rows]:
            if mesh is not None and id(mesh) not in self._trees:
                with building(f"mesh {mesh.name!r}", len(mesh.faces)):
                    self._trees[id(mesh)] = mesh, build_wide_tree(mesh.vertices, mesh.faces)
            addresses.append(0 if mesh is None else self._trees[id(mesh)][1].ptr)
        return device_array(addresses, wp.uint64, self.device)

    def instances(self, rows: Sequence[int]) -> Instances:
        """Return drawable shapes as the rows of arrays, static ones first."""
        shapes = [self.scene.drawable[i] for i in rows]
        meshes = {id(shape.mesh): shape.mesh for shape in shapes if shape.mesh is not None}
        ids = [np.zeros(0, np.int32), *(mesh.face_ids for mesh in meshes.values())]
        starts = dict(zip(meshes, np.cumsum([len(each) for each in ids]), strict=False))
        spheres = [bounding_sphere(shape) for shape in shapes]

        def array(values: Any, dtype: Any) -> Any:
            return device_array(values, dtype, self.device)

        out = Instances()
        out.kind = array([KINDS.index(shape.kind) for shape in shapes], wp.int32)
        sizes = [shape.scale if shape.mesh is not None else (*shape.size, 0.0, 0.0, 0.0)[:3] for shape in shapes]
        out.size = array(sizes, wp.vec3)
        out.mesh = array([0 if s.mesh is None else self.mesh(s.mesh).id for s in shapes], wp.uint64)
        out.tree = array([0] * len(shapes), wp.uint64)
        out.field = array([-1 if s.hfield is None else self._field_rows[s.hfield] for s in shapes], wp.int32)
        out.upright = array([int(bool(s.is_static) and is_upright(s.quat)) for s in shapes], wp.int32)
        out.heading = array([rotation(shape.quat)[:2, 0] for shape in shapes], wp.vec2)
        out.shape = array(list(rows), wp.int32)
        out.face_start = array([starts.get(id(shape.mesh), 0) for shape in shapes], wp.int32)
        out.face_id = array(np.concatenate(ids), wp.int32)
        out.body = array([-1 if shape.is_static else shape.row for shape in shapes], wp.int32)
        out.pos = array([shape.pos for shape in shapes], wp.vec3)
        out.quat = array([shape.quat for shape in shapes], wp.vec4)
        out.centre = array([centre for centre, _ in spheres], wp.vec3)
        out.radius = array([radius for _, radius in spheres], wp.float32)
        out.moving = sum(bool(shape.is_static) for shape in shapes)
        out.shape_body = array([shape.row for shape in self.scene.drawable], wp.int32)
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of height fields and of the trees of meshes."""
        trees = sum(tree.points.capacity + tree.indices.capacity for _, tree in self._meshes.values())
        trees += sum(tree.capacity for _, tree in self._trees.values())
        return int(self.fields.heights.capacity + self.fields.blocks.capacity + trees)
