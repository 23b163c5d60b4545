"""The geoms of a MuJoCo model as shapes that rays meet.

MuJoCo compiles a mesh into its inertial frame: it moves and turns the vertices, and the geoms that use it the other
way. Scale is in the vertices by then. So compiled vertices under compiled poses are the mesh as it was written.

A geom is visible where its material, or without one its own colour, has an alpha above 0: that is what mj_ray goes by.
Its colour is drawn as MuJoCo draws it: its own where it is not the default grey, else its material's. Textures do not
count. Skins are no shapes: they are decoration, drawn over bodies, which MuJoCo's rays do not meet either.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import mujoco
import numpy as np

from sensorium.engines.mujoco.hidden import hidden
from sensorium.errors import ModelError
from sensorium.geometry.shapes import KINDS, HeightField, Mesh, Shape, ShapeKind

_GEOM, _OBJ = mujoco.mjtGeom, mujoco.mjtObj
_KINDS: dict[int, ShapeKind] = {int(getattr(_GEOM, f"mjGEOM_{kind.upper()}")): kind for kind in KINDS}
"""Kind of each type of geom."""
_SIZES = {"plane": 2, "sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3, "mesh": 0, "hfield": 0}
"""How many of its sizes a geom of each kind has."""
_SDF = int(_GEOM.mjGEOM_SDF)
_GREY = (0.5, 0.5, 0.5, 1.0)
"""Colour of a geom that was given none (MuJoCo's XML reference, geom, rgba)."""
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
"""Share of red, green and blue in luminance, ITU-R BT.709."""
_LAST_SHOWN = 2
"""MuJoCo's viewers show the groups up to this one unless told otherwise (mjv_defaultOption)."""
_SHARED = ("geom_type", "geom_dataid", "geom_size", "geom_pos", "geom_quat", "geom_group", "geom_matid")
_PLACED, _COLOURED = ("body_pos", "body_quat"), ("geom_rgba", "mat_rgba")
"""Fields that a batch may hold for each environment; shapes depend on them: wholly, on static bodies, by the alpha."""
SHAPE_FIELDS = (*_SHARED, *_PLACED, *_COLOURED)
_SAME_SHAPES = "Shapes are shared by all environments: give them the same, or put what differs on a body and move that."
_ELEMENTS = {"geom": _OBJ.mjOBJ_GEOM, "body": _OBJ.mjOBJ_BODY, "mat": _OBJ.mjOBJ_MATERIAL}


def model_shapes(model: Any, body_row: Mapping[int, int]) -> tuple[Shape, ...]:
    """Return the shapes of a compiled model: its geoms, then its flexes, each in the order of the model.

    Geoms that were added for sensors, and those on bodies that were, are left out. A geom without a name is called
    `geom_{id}` (a flex `flex_{id}`), where hidden ones do not count, so that sensors do not change it. Geoms of one
    mesh share one `Mesh`, those of one height field one `HeightField`. Flexes and signed distance fields have a
    `fault`.

    Args:
        model: the MjModel.
        body_row: MuJoCo's body id to the row of the body, -1 for the world.

    Raises:
        ModelError: a mesh has no triangle with an area.
    """
    static, concealed = _static_poses(model), _hidden_bodies(model)
    meshes: dict[int, Mesh] = {}
    fields: dict[int, HeightField] = {}
    paired = {int(i) for i in (*model.pair_geom1, *model.pair_geom2)}
    geoms = [
        i
        for i in range(model.ngeom)
        if int(model.geom_bodyid[i]) not in concealed and not hidden(_name(model, _OBJ.mjOBJ_GEOM, i))
    ]
    names = _unique_names(
        [(_name(model, _OBJ.mjOBJ_GEOM, geom), f"geom_{i}") for i, geom in enumerate(geoms)]
        + [(_name(model, _OBJ.mjOBJ_FLEX, i), f"flex_{i}") for i in range(model.nflex)]
    )
    shapes = []
    for geom, name in zip(geoms, names, strict=False):
        body, data, code = (int(ids[geom]) for ids in (model.geom_bodyid, model.geom_dataid, model.geom_type))
        pos, quat = model.geom_pos[geom], model.geom_quat[geom]
        if body in static:
            pos, quat = _composed(*static[body], pos, quat)
        kind = _KINDS.get(code, "mesh")
        fault = _fault(code)
        if kind == "mesh" and not fault and data not in meshes:
            meshes[data] = _mesh(model, data)
        if kind == "hfield" and data not in fields:
            fields[data] = _height_field(model, data)
        shapes.append(
            Shape(
                kind,
                name,
                tuple(model.geom_size[geom, : _SIZES[kind]]),
                body_row[body],
                tuple(pos),
                tuple(quat),
                mesh=meshes[data] if kind == "mesh" and not fault else None,
                hfield=fields[data] if kind == "hfield" else None,
                is_static=body in static,
                is_collision=bool(model.geom_contype[geom] or model.geom_conaffinity[geom]) or geom in paired,
                fault=fault,
                **_looks(model, int(model.geom_group[geom]), int(model.geom_matid[geom]), model.geom_rgba[geom]),
            )
        )
    for flex, name in enumerate(names[len(geoms) :]):
        shapes.append(
            Shape(
                "mesh",
                name,
                is_static=False,
                is_collision=bool(model.flex_contype[flex] or model.flex_conaffinity[flex]),
                fault="it is deformable (a flex), which rays do not meet",
                **_looks(model, int(model.flex_group[flex]), int(model.flex_matid[flex]), model.flex_rgba[flex]),
            )
        )
    return tuple(shapes)


def shared_model(batch: Any) -> Any:
    """Return the model whose shapes all environments of a `mujoco.batch.Batch` have.

    Raises:
        ModelError: the environments have different shapes. Colours may differ, but for those that make invisible.
    """
    if isinstance(batch.models, list | tuple) and len({id(model) for model in batch.models}) > 1:
        raise ModelError(f"the environments run different models (batch.set_models). {_SAME_SHAPES}")
    model = batch.get_model(0)
    check_shared(model, batch.expanded)
    return model


def check_shared(model: Any, expanded: Callable[[str], np.ndarray | None]) -> None:
    """Raise where environments have shapes of their own.

    Args:
        model: the MjModel.
        expanded: gives the values `[env, ...]` of a field of the model; None where all environments share them.

    Raises:
        ModelError: naming the element and the field. Colours may differ, but for those that make invisible.
    """
    static: list[int] = []
    for field in SHAPE_FIELDS:
        values = expanded(field)
        if values is None or not values.size:
            continue
        static = static or static_bodies(model)
        values = what_counts(field, values, static)
        differs = (values != values[:1]).reshape(*values.shape[:2], -1).any(axis=2)
        if differs.any():
            env, row = (int(index) for index in np.argwhere(differs)[0])
            kind, obj = next((word, obj) for word, obj in _ELEMENTS.items() if field.startswith(word))
            i = static[row] if field in _PLACED else row
            what = f"{obj.name.removeprefix('mjOBJ_').lower()} {_name(model, obj, i) or f'{kind}_{i}'!r}"
            raise ModelError(f"{what} has another {field} in env {env} than in env 0. {_SAME_SHAPES}")


def what_counts(field: str, values: Any, static: Any) -> Any:
    """Return what must be the same in all environments for them to have the same shapes.

    Args:
        field: one of `SHAPE_FIELDS`.
        values: its values `[env, ...]`, an array or a tensor.
        static: the static bodies, as indices.
    """
    if field in _PLACED:
        return values[:, static]
    return values[..., 3] == 0.0 if field in _COLOURED else values


def static_bodies(model: Any) -> list[int]:
    """Return the ids of the bodies that never move, the world among them."""
    return sorted(_static_poses(model))


def with_values(model: Any, given: Callable[[str], np.ndarray | None]) -> Any:
    """Return a model with the values of another place in all fields that shapes come from.

    Args:
        model: the MjModel; copied where a value differs.
        given: gives float32 or integer values of a field, `[...]` as in the model or `[env, ...]`; None for its own.

    Raises:
        ModelError: environments have shapes of their own.
    """
    found = {field: given(field) for field in SHAPE_FIELDS}

    def expanded(field: str) -> np.ndarray | None:
        values = found[field]
        return values if values is not None and values.ndim > getattr(model, field).ndim else None

    check_shared(model, expanded)
    changed = model
    for field, values in found.items():
        if values is None or not values.size:
            continue
        own = getattr(model, field)
        values = values[0] if values.ndim > own.ndim else values
        if not np.array_equal(values, own.astype(values.dtype)):
            changed = copy.copy(model) if changed is model else changed
            getattr(changed, field)[...] = values
    return changed


def _static_poses(model: Any) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Poses in the world of the bodies that never move: no joint between them and the world, and no mocap body."""
    poses = {0: (np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))}
    for body in range(1, model.nbody):
        parent = int(model.body_parentid[body])
        if parent in poses and not model.body_jntnum[body] and int(model.body_mocapid[body]) < 0:
            poses[body] = _composed(*poses[parent], model.body_pos[body], model.body_quat[body])
    return poses


def _composed(pos: np.ndarray, quat: np.ndarray, offset: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pose of a frame that sits at (offset, turn) in the frame (pos, quat)."""
    moved, turned = np.empty(3), np.empty(4)
    mujoco.mju_rotVecQuat(moved, offset, quat)
    mujoco.mju_mulQuat(turned, quat, turn)
    return pos + moved, turned


def _hidden_bodies(model: Any) -> set[int]:
    """Bodies that were added for sensors, and all that descend from them."""
    concealed: set[int] = set()
    for body in range(1, model.nbody):
        if int(model.body_parentid[body]) in concealed or hidden(_name(model, _OBJ.mjOBJ_BODY, body)):
            concealed.add(body)
    return concealed


def _name(model: Any, kind: Any, i: int) -> str:
    return mujoco.mj_id2name(model, kind, i) or ""


def _unique_names(pairs: list[tuple[str, str]]) -> list[str]:
    """Return for each (name, name to give where that is empty or taken) a name that no other has."""
    taken = {name for name, _ in pairs if name}
    names: dict[str, None] = {}
    for own, other in pairs:
        name = own
        if not own or own in names:
            name = other
            while name in taken:
                name += "_"
        names[name] = None
        taken.add(name)
    return list(names)


def _fault(code: int) -> str:
    if code in _KINDS:
        return ""
    if code == _SDF:
        return "it is a signed distance field (SDF), which rays do not meet; as type='mesh' they meet its surface"
    return f"it is a geom of a type that is not known here ({code})"


def _mesh(model: Any, i: int) -> Mesh:
    vertex, face = int(model.mesh_vertadr[i]), int(model.mesh_faceadr[i])
    return Mesh(
        model.mesh_vert[vertex : vertex + int(model.mesh_vertnum[i])],
        model.mesh_face[face : face + int(model.mesh_facenum[i])],
        _name(model, _OBJ.mjOBJ_MESH, i) or f"mesh_{i}",
        drop_degenerate=True,
    )


def _height_field(model: Any, i: int) -> HeightField:
    """MuJoCo keeps heights from 0 to 1, the row of least y first, each from the least x on."""
    rows, columns, start = int(model.hfield_nrow[i]), int(model.hfield_ncol[i]), int(model.hfield_adr[i])
    x, y, top, base = (float(value) for value in model.hfield_size[i])
    heights = np.asarray(model.hfield_data[start : start + rows * columns], dtype=np.float64) * top
    name = _name(model, _OBJ.mjOBJ_HFIELD, i) or f"hfield_{i}"
    return HeightField(heights.reshape(rows, columns), (x, y), base, name)


def _looks(model: Any, group: int, material: int, own: np.ndarray) -> dict[str, Any]:
    """Return what a shape has of its group and colour; its reflectance is the luminance of the colour as drawn."""
    given = model.mat_rgba[material] if material >= 0 else own
    drawn = given if tuple(own) == _GREY else own
    visible = bool(given[3] != 0.0)
    return {
        "group": group,
        "is_visible": visible,
        "is_visual": visible and group <= _LAST_SHOWN,
        "reflectance": float(np.clip(_LUMINANCE @ np.asarray(drawn[:3], dtype=np.float64), 0.0, 1.0)),
    }
