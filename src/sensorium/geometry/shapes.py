"""Shapes that rays can hit: plain NumPy data with which an engine describes its world once.

Sizes are those of MuJoCo's geoms: plane (half x, half y; 0 is unbounded), sphere (radius), capsule and cylinder
(radius, half length along z), ellipsoid (radii), box (half sides). Meshes and height fields have their own sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sensorium.errors import ModelError, listed, shown
from sensorium.geometry.appearance import PLAIN, Material

ShapeKind = Literal["plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "hfield"]
Element = Literal["geom", "site", "tendon", "skin"]
KINDS: tuple[ShapeKind, ...] = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "hfield")
"""Kinds of shapes; the index of a kind is its number in kernels."""
_SIZES: dict[str, int] = {"plane": 0, "sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3}
"""Number of sizes of each analytic kind that must be positive."""
SMALLEST_AREA = 1e-12
"""Minimum area of a triangle relative to the square of its mesh's extent; smaller ones are degenerate, without a
normal."""
EDGE = 0.8
"""Cosine of the angle between a normal and that of its face below which an edge is drawn, as in MuJoCo's renderer."""
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
"""Share of red, green and blue in luminance, ITU-R BT.709."""


def reflectance_of(rgba: ArrayLike) -> float:
    """Return the reflectance of a colour, which is its luminance, 0 to 1."""
    return float(np.clip(_LUMINANCE @ np.asarray(rgba, dtype=np.float64)[:3], 0.0, 1.0))


def with_edges(normals: NDArray[Any], corners: NDArray[Any]) -> NDArray[Any]:
    """Return normals at the corners of faces `[face, 3, 3]`, with that of the face where it is far from them."""
    corners = corners.astype(np.float64)
    flat = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-30)
    is_far = np.einsum("fci,fi->fc", normals, flat) < EDGE
    return np.where(is_far[..., None], flat[:, None], normals)


@dataclass(frozen=True, eq=False, slots=True)
class Mesh:
    """Triangles in their own frame. Many shapes may share one mesh, each with its own pose and scale.

    Args:
        vertices: `[vertex, 3]`, m.
        faces: `[face, 3]`, indices into `vertices`.
        name: name for messages.
        drop_degenerate: remove triangles without an area instead of raising. A ray cannot hit them anyway; the others
            keep their face ids.
        normals: normals at the corners of each face for smooth shading, `[face, 3, 3]`; None for flat faces.
        uv: texture coordinates of the corners, `[face, 3, 2]`; None without.

    Attributes:
        vertices: float64 `[vertex, 3]`.
        faces: int32 `[face, 3]`, the remaining faces.
        face_ids: int32 `[face]`, row of each in the given faces.
        normals: float32 `[face, 3, 3]` of the remaining faces, or None.
        uv: float32 `[face, 3, 2]` of the remaining faces, or None.

    Raises:
        ModelError: the mesh is empty, has NaN or infinite vertices, indices beyond the vertices, or degenerate
            triangles.
    """

    vertices: NDArray[np.float64]
    faces: NDArray[np.int32]
    name: str
    face_ids: NDArray[np.int32]
    normals: NDArray[np.float32] | None
    uv: NDArray[np.float32] | None

    def __init__(
        self,
        vertices: ArrayLike,
        faces: ArrayLike,
        name: str = "mesh",
        *,
        drop_degenerate: bool = False,
        normals: ArrayLike | None = None,
        uv: ArrayLike | None = None,
    ) -> None:
        points = np.ascontiguousarray(_array(vertices, f"mesh {name!r}: vertices"), dtype=np.float64)
        given = np.asarray(_array(faces, f"mesh {name!r}: faces"))
        for what, array in (("vertices", points), ("faces", given)):
            if array.ndim != 2 or array.shape[1] != 3 or not len(array):
                raise ModelError(
                    f"mesh {name!r}: {what}: got an array of shape {array.shape}, expected [n, 3] with n > 0."
                )
        if not np.isfinite(points).all():
            rows = np.flatnonzero(~np.isfinite(points).all(axis=1))
            raise ModelError(
                f"mesh {name!r}: vertices: {len(rows)} of {len(points)} are not finite, first row {rows[0]}: "
                f"{points[rows[0]].tolist()}. Remove them and the faces that use them."
            )
        if not np.issubdtype(given.dtype, np.integer):
            raise ModelError(f"mesh {name!r}: faces: got {given.dtype}, expected integers (rows of vertices).")
        if given.min() < 0 or given.max() >= len(points):
            raise ModelError(
                f"mesh {name!r}: faces: indices {int(given.min())} to {int(given.max())}, expected 0 to "
                f"{len(points) - 1} for {len(points)} vertices."
            )
        corners = points[given]
        area = 0.5 * np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        extent = float(np.ptp(points[np.unique(given)], axis=0).max())
        flat = area <= SMALLEST_AREA * extent**2
        if flat.any() and (not drop_degenerate or flat.all()):
            rows = np.flatnonzero(flat)
            fix = "" if flat.all() else " Repair the mesh, or remove them: Mesh(..., drop_degenerate=True)."
            raise ModelError(
                f"mesh {name!r}: faces: {len(rows)} of {len(given)} triangles are degenerate (no area), first "
                f"{listed(map(str, rows[:5]))}.{fix}"
            )
        ids = np.flatnonzero(~flat).astype(np.int32)
        for attribute, value in (
            ("vertices", points),
            ("faces", np.ascontiguousarray(given[ids], dtype=np.int32)),
            ("name", name),
            ("face_ids", ids),
            ("normals", _corners(normals, f"mesh {name!r}: normals", (len(given), 3, 3), ids)),
            ("uv", _corners(uv, f"mesh {name!r}: uv", (len(given), 3, 2), ids)),
        ):
            object.__setattr__(self, attribute, value)
        for each in (self.vertices, self.faces, self.face_ids, self.normals, self.uv):
            if each is not None:
                each.flags.writeable = False

    def __repr__(self) -> str:
        return f"Mesh({self.name!r}, {len(self.vertices)} vertices, {len(self.faces)} faces)"


@dataclass(frozen=True, eq=False, slots=True)
class HeightField:
    """Heights over a regular grid, in its own frame: x to the right (columns), y up (rows), z the height.

    Between the points the surface is two triangles per cell, split by the diagonal from (row, column) to
    (row + 1, column + 1), as in MuJoCo. The field extends from -size to +size.

    Args:
        heights: `[row, column]`, m; at least 2 by 2.
        size: half extent along x and along y, m.
        base: thickness of the solid below height 0, m, with side walls and a bottom, as in MuJoCo; None for a surface
            without a solid.
        name: name for messages.

    Raises:
        ModelError: too few points, heights that are not finite, or sizes that are not positive.
    """

    heights: NDArray[np.float64]
    size: tuple[float, float]
    base: float | None
    name: str

    def __init__(
        self, heights: ArrayLike, size: Sequence[float], base: float | None = None, name: str = "hfield"
    ) -> None:
        grid = np.ascontiguousarray(_array(heights, f"height field {name!r}: heights"), dtype=np.float64)
        if grid.ndim != 2 or min(grid.shape) < 2:
            raise ModelError(
                f"height field {name!r}: heights: got an array of shape {grid.shape}, expected [row, column] with at "
                "least 2 of each."
            )
        if not np.isfinite(grid).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(grid))[0])
            raise ModelError(f"height field {name!r}: heights: row {row}, column {column} is {grid[row, column]}.")
        extent = tuple(float(value) for value in size)
        if len(extent) != 2 or not all(0.0 < value < np.inf for value in extent):
            raise ModelError(
                f"height field {name!r}: size: got {shown(size)}, expected two positive half extents (x, y), m."
            )
        if base is not None and not 0.0 <= base < np.inf:
            raise ModelError(f"height field {name!r}: base: got {base!r}, expected a thickness >= 0, m, or None.")
        if base is not None and grid.min() < -base:
            raise ModelError(
                f"height field {name!r}: base: got {base!r}, expected at least {-grid.min():g} m: the lowest height is "
                f"{grid.min():g} m, below the bottom of the solid. Give base=None for the surface alone."
            )
        grid.flags.writeable = False
        for attribute, value in (("heights", grid), ("size", extent), ("base", base), ("name", name)):
            object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        rows, columns = self.heights.shape
        return f"HeightField({self.name!r}, {rows} x {columns} points, {2 * self.size[0]:g} x {2 * self.size[1]:g} m)"


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of the world: an analytic primitive, or an instance of a mesh or of a height field.

    Args:
        kind: see `KINDS`.
        name: unique among the shapes of an engine.
        size: see the module; empty for a mesh or a height field.
        body: row of its body in `engine.names("body")`, -1 for the world; for a `TensorEngine` also its name.
        pos: origin in the body's frame, m; for a static shape, in the world.
        quat: orientation in the same frame, unit quaternion (w, x, y, z).
        mesh: the triangles, for kind ``"mesh"``.
        scale: factors along the mesh's axes.
        hfield: the heights, for kind ``"hfield"``.
        is_static: whether the shape never moves, because it is on the world or on a body welded to it.
        group: MuJoCo's geom group, 0 to 5.
        labels: semantic labels.
        is_visual: whether a viewer shows it by default.
        is_collision: whether it has contacts.
        is_visible: whether it is visible at all (in MuJoCo: its alpha is not 0).
        reflectance: fraction of light that it scatters back, 0 to 1, for intensities.
        rgba: colour and opacity, 0 to 1, for images.
        material: how it reflects light, for images.
        casts_shadow: whether it blocks light, for images.
        fault: why rays cannot hit it (a deformable), or cameras cannot draw it; empty if they can.
        element: element of the model that the shape shows. Only cameras see other elements than ``"geom"``. A tendon is
            a capsule per segment, all with its name; its length is per environment (`TENDON_PATHS`).
        number: number of that element in the model; -1 for the row of the shape.

    Raises:
        ModelError: an invalid field; the message gives the shape and the field.
    """

    kind: ShapeKind
    name: str
    size: tuple[float, ...] = ()
    body: int | str = -1
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    mesh: Mesh | None = None
    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    hfield: HeightField | None = None
    is_static: bool | None = None
    group: int = 0
    labels: tuple[str, ...] = ()
    is_visual: bool = True
    is_collision: bool = True
    is_visible: bool = True
    reflectance: float = 0.5
    rgba: tuple[float, float, float, float] = (0.5, 0.5, 0.5, 1.0)
    material: Material = PLAIN
    casts_shadow: bool = True
    fault: str = ""
    element: Element = "geom"
    number: int = -1

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        def refuse(name: str, expected: str) -> ModelError:
            return ModelError(f"shape {self.name!r}: {name}: got {shown(getattr(self, name))}, expected {expected}.")

        if self.kind not in KINDS:
            raise refuse("kind", f"one of {listed(KINDS)}")
        for name, count in (("pos", 3), ("quat", 4), ("scale", 3), ("rgba", 4)):
            values = tuple(float(value) for value in getattr(self, name))
            if len(values) != count or not np.isfinite(values).all():
                raise refuse(name, f"{count} finite numbers")
            put(name, values)
        if not isinstance(self.body, str):
            try:
                put("body", index(self.body))
            except TypeError:
                raise refuse("body", "a row of a body (-1 is the world), or a body's name") from None
        length = float(np.linalg.norm(self.quat))
        if not length > 1e-6:
            raise refuse("quat", "a quaternion (w, x, y, z) that is not zero")
        put("quat", tuple(value / length for value in self.quat))
        put("size", tuple(float(value) for value in self.size))
        wanted = _SIZES.get(self.kind, 0)
        if self.kind == "plane":
            put("size", (*self.size, 0.0, 0.0)[:2])
        elif len(self.size) < wanted or not all(0.0 < value < np.inf for value in self.size[:wanted]):
            raise refuse("size", f"{wanted} positive number(s), m, for a {self.kind}")
        if (self.kind == "mesh") != (self.mesh is not None) and not self.fault:
            raise refuse("mesh", "a Mesh for kind='mesh', and for no other kind")
        if (self.kind == "hfield") != (self.hfield is not None) and not self.fault:
            raise refuse("hfield", "a HeightField for kind='hfield', and for no other kind")
        if self.scale != (1.0, 1.0, 1.0) and (self.kind != "mesh" or not all(self.scale)):
            raise refuse("scale", "three non-zero factors for a mesh, and none for other kinds, which have a size")
        if not 0.0 <= self.reflectance <= 1.0:
            raise refuse("reflectance", "a number from 0 to 1")
        if self.is_static is None and self.element == "tendon":
            put("is_static", False)
        elif self.is_static is None:
            put("is_static", self.body == "world" if isinstance(self.body, str) else self.body < 0)
        put("labels", (self.labels,) if isinstance(self.labels, str) else tuple(self.labels))

    @property
    def row(self) -> int:
        """Row of its body in `engine.names("body")`, -1 for the world, for shapes from `engine.shapes()`.

        Raises:
            ModelError: the body is still a name.
        """
        if isinstance(self.body, str):
            raise ModelError(
                f"shape {self.name!r}: body: {self.body!r} has no row. Use the shapes of engine.shapes() instead."
            )
        return self.body


def _array(values: ArrayLike, what: str) -> NDArray[Any]:
    try:
        if (array := np.array(values)).dtype.kind not in "biuf":
            raise TypeError("not only real numbers")
        return array
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what}: got {shown(values)}, expected an array: {error}.") from None


def _corners(
    given: ArrayLike | None, what: str, shape: tuple[int, ...], ids: NDArray[np.int32]
) -> NDArray[np.float32] | None:
    """Return values at the corners of the remaining faces of a mesh."""
    if given is None:
        return None
    array = np.asarray(_array(given, what), dtype=np.float32)
    if array.shape != shape or not np.isfinite(array).all():
        raise ModelError(
            f"{what}: got an array of shape {array.shape}, expected finite numbers of shape {shape}: a row for "
            "each corner of each face."
        )
    return np.ascontiguousarray(array[ids])
