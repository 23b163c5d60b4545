"""Shapes of a Newton model that rays can hit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sensorium.engines.newton.layout import NewtonLayout, newton, pose_of, poses
from sensorium.errors import ModelError
from sensorium.geometry.appearance import Lighting, Material, Texture, Varied
from sensorium.geometry.shapes import HeightField, Mesh, Shape, ShapeKind

_KINDS: dict[str, ShapeKind] = {
    "PLANE": "plane", "SPHERE": "sphere", "CAPSULE": "capsule", "ELLIPSOID": "ellipsoid", "CYLINDER": "cylinder",
    "BOX": "box", "MESH": "mesh", "CONVEX_MESH": "mesh", "HFIELD": "hfield",
}  # fmt: skip
_SIZES = {"sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3, "box": 3}
"""Number of Newton's scales that are the size of a shape; those of a plane are its full sides."""


def shapes_of(model: Any, layout: NewtonLayout, element: Literal["geom", "site"] = "geom") -> tuple[Shape, ...]:
    """Return the geoms or the sites of one environment as shapes, in the order of `names(element)`.

    Static shapes that all worlds share, and copies of them in each world, are the same shapes here. Equal meshes and
    height fields are shared.

    Raises:
        ModelError: the worlds have different shapes.
    """
    if element in layout.faults:
        raise ModelError(layout.faults[element])
    names, rows = layout.names(element), layout.rows[element]
    if not names:
        return ()
    place, scale = poses(model.shape_transform), np.asarray(model.shape_scale.numpy(), dtype=np.float64)
    kinds, flags = model.shape_type.numpy(), model.shape_flags.numpy()
    for what, values in (("pose", place), ("size", scale), ("type", kinds), ("flags", flags)):
        differ = (values[rows] != values[rows[:1]]).reshape(*rows.shape, -1).any(axis=-1)
        if differ.any():
            env, k = (int(i) for i in np.argwhere(differ)[0])
            raise ModelError(_different(names[k], what, env))
    sources = model.shape_source
    for k, name in enumerate(names):
        first = sources[rows[0, k]]
        for env, row in enumerate(rows[1:, k], start=1):
            if sources[row] is not first and not _same_source(first, sources[row]):
                raise ModelError(_different(name, "mesh or height field", env))
    package, made, shapes = newton(), dict[Any, Any](), []
    for name, row in zip(names, rows[0].tolist(), strict=True):
        source, word, size = sources[row], package.GeoType(int(kinds[row])).name, scale[row]
        kind = _KINDS.get(word, "mesh")
        pos, quat = pose_of(place[row])
        key, parts = (id(source), tuple(size) if kind == "hfield" else ()), dict[str, Any]()
        if word not in _KINDS:
            parts["fault"] = f"Newton's shapes of type {word} are not supported."
        elif kind in ("mesh", "hfield"):
            if key not in made:
                made[key] = _mesh(source, name) if kind == "mesh" else _height_field(source, size, name)
            parts[kind] = made[key]
            if kind == "mesh":
                parts |= {"scale": tuple(size.tolist()), "material": _material(source, name)}
        elif kind == "plane":
            parts["size"] = (0.5 * size[0], 0.5 * size[1])
        else:
            parts["size"] = tuple(size[: _SIZES[kind]].tolist())
        parts["is_visual"] = parts["is_visible"] = bool(flags[row] & int(package.ShapeFlags.VISIBLE))
        parts["is_collision"] = bool(flags[row] & int(package.ShapeFlags.COLLIDE_SHAPES))
        shapes.append(Shape(kind, name, body=layout.body_of_shape(row), pos=pos, quat=quat, **parts))
    return tuple(shapes)


def sites_of(model: Any, layout: NewtonLayout) -> tuple[Shape, ...]:
    """Return the sites of one environment as shapes, in the order of `names("site")`.

    All are visible, since Newton hides sites in its own viewer. They have a `fault` where worlds have different sites.
    """
    try:
        shapes = shapes_of(model, layout, "site")
    except ModelError as error:
        names = layout.names("site")
        shapes = tuple(Shape("mesh", name, is_static=False, fault=str(error)) for name in names)
    return tuple(replace(shape, element="site", is_visual=True, is_visible=True) for shape in shapes)


def _different(name: str, what: str, env: int) -> str:
    return (
        f"shape {name!r} has a different {what} in world {env}. Rays need equal shapes in every environment: build all "
        "worlds from one model, without spacing, or put the shape on a body and move it."
    )


def _same_source(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if hasattr(a, "vertices"):
        return np.array_equal(a.vertices, b.vertices) and np.array_equal(a.indices, b.indices)
    if hasattr(a, "hx"):
        return (a.hx, a.hy, a.min_z, a.max_z) == (b.hx, b.hy, b.min_z, b.max_z) and np.array_equal(a.data, b.data)
    return bool(a == b)


def _mesh(source: Any, name: str) -> Mesh:
    faces = np.asarray(source.indices, dtype=np.int32).reshape(-1, 3)
    normals, uv = (getattr(source, field, None) for field in ("normals", "uvs"))
    corners = {what: each[faces] for what, each in (("normals", normals), ("uv", uv)) if each is not None}
    return Mesh(source.vertices, faces, name, drop_degenerate=True, **corners)


def colors_of(model: Any, layout: NewtonLayout) -> Varied:
    """Return the colours of the shapes of each world."""
    if getattr(model, "shape_color", None) is None:
        return {}
    rgb = np.asarray(model.shape_color.numpy(), dtype=np.float32)[layout.shapes]
    return {"rgba": np.concatenate([rgb, np.ones_like(rgb[..., :1])], axis=-1)}


def lighting_of(model: Any, layout: NewtonLayout) -> Lighting:
    """Return a headlight, since a Newton model has no lights, and why colours are not available, if so."""
    for name, row in zip(layout.names("geom"), layout.shapes[0] if len(layout.shapes) else (), strict=True):
        if isinstance(getattr(model.shape_source[row], "texture", None), str):
            fault = f"the texture of shape {name!r} is a file: assign its pixels, an array, to mesh.texture"
            return Lighting(fault=fault)
    return Lighting()


def _material(source: Any, name: str) -> Material:
    pixels = getattr(source, "texture", None)
    if pixels is None or isinstance(pixels, str):
        return Material()
    pixels = np.asarray(pixels)
    if pixels.dtype != np.uint8:
        pixels = np.rint(255.0 * np.clip(pixels, 0.0, 1.0)).astype(np.uint8)
    return Material(texture=Texture(pixels, name))


def _height_field(source: Any, scale: NDArray[np.float64], name: str) -> HeightField:
    """Return a height field. Its cells are split as in Newton's collision detection, not as in its ray casts."""
    heights = source.min_z + np.asarray(source.data, dtype=np.float64) * (source.max_z - source.min_z)
    return HeightField(scale[2] * heights, (scale[0] * source.hx, scale[1] * source.hy), None, name)
