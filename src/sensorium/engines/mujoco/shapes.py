"""The geoms of a MuJoCo model as shapes that rays can hit.

MuJoCo compiles a mesh into its inertial frame: it moves and turns the vertices, and applies the inverse to the geoms
that use the mesh. The scale is then included in the vertices. Compiled vertices under compiled poses are therefore the
mesh as written in the model.

A geom is visible if its material, or its own colour without a material, has an alpha above 0, as in mj_ray. Its colour
is the one that MuJoCo draws: its own if that is not the default grey, otherwise its material's. The reflectance is that
of this colour, without the texture.
Tendons, sites and skins are decorations that only cameras can see, since MuJoCo's rays do not hit them either.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from sensorium.engines.mujoco.elements import full_names, hidden
from sensorium.engines.mujoco.looks import drawn_rgba, material_of, model_textures
from sensorium.engines.mujoco.tendons import paths_of
from sensorium.errors import ModelError
from sensorium.geometry.shapes import KINDS, HeightField, Mesh, Shape, ShapeKind, reflectance_of, with_edges

_GEOM, _OBJ = mujoco.mjtGeom, mujoco.mjtObj
_KINDS: dict[int, ShapeKind] = {int(getattr(_GEOM, f"mjGEOM_{kind.upper()}")): kind for kind in KINDS}
"""Kind of each type of geom."""
_SIZES = {"plane": 2, "sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3, "mesh": 0, "hfield": 0}
"""Number of sizes of a geom of each kind."""
_SDF = int(_GEOM.mjGEOM_SDF)
_LAST_SHOWN = 2
"""Last group that MuJoCo's viewers show by default (mjv_defaultOption)."""
_SHARED = ("geom_type", "geom_dataid", "geom_size", "geom_pos", "geom_quat", "geom_group", "geom_matid")
_PLACED, _COLOURED = ("body_pos", "body_quat"), ("geom_rgba", "mat_rgba")
"""Fields that a batch may store per environment and that shapes depend on: in full, on static bodies, or by alpha."""
SHAPE_FIELDS = (*_SHARED, *_PLACED, *_COLOURED)
_SAME_SHAPES = "Shapes are shared by all environments: make them equal, or put the element on a body and move it."
_ELEMENTS = {"geom": _OBJ.mjOBJ_GEOM, "body": _OBJ.mjOBJ_BODY, "mat": _OBJ.mjOBJ_MATERIAL}


def model_shapes(model: Any, body_row: Mapping[int, int]) -> tuple[Shape, ...]:
    """Return the shapes of a compiled model: its geoms, then its flexes, each in model order.

    Geoms that were added for sensors, and geoms on such bodies, are omitted. For names see `full_names`; that of a flex
    differs from those of geoms. Geoms of one mesh share one `Mesh`, those of one height field one `HeightField`. Flexes
    and signed distance fields have a `fault`.

    Args:
        model: the MjModel.
        body_row: MuJoCo's body id -> row of the body, -1 for the world.

    Raises:
        ModelError: a mesh has no triangle with an area.
    """
    static = _static_poses(model)
    meshes: dict[int, Mesh] = {}
    fields: dict[int, HeightField] = {}
    textures = model_textures(model)
    paired = {int(i) for i in (*model.pair_geom1, *model.pair_geom2)}
    geoms = visible_geoms(model)
    names = _names_of(model, _OBJ.mjOBJ_GEOM, "geom", model.ngeom)
    flexes = _names_of(model, _OBJ.mjOBJ_FLEX, "flex", model.nflex, names)
    shapes, always = [], np.ones(model.ngeom, dtype=bool)
    for geom in geoms:
        data, code = int(model.geom_dataid[geom]), int(model.geom_type[geom])
        kind, fault = _KINDS.get(code, "mesh"), _fault(code)
        if kind == "mesh" and not fault and data not in meshes:
            meshes[data] = _mesh(model, data)
        if kind == "hfield" and data not in fields:
            fields[data] = _height_field(model, data)
        parts = {
            "mesh": meshes[data] if kind == "mesh" and not fault else None,
            "hfield": fields[data] if kind == "hfield" else None,
            "is_collision": bool(model.geom_contype[geom] or model.geom_conaffinity[geom]) or geom in paired,
            "fault": fault,
            "casts_shadow": bool(getattr(model, "geom_castshadow", always)[geom]),
            "material": material_of(model, int(model.geom_matid[geom]), textures),
        }
        pose = model.geom_pos[geom], model.geom_quat[geom]
        shapes.append(_placed(model, "geom", geom, names[geom], body_row, static, pose, parts))
    for flex, name in enumerate(flexes):
        is_collision = bool(model.flex_contype[flex] or model.flex_conaffinity[flex])
        fault = "it is deformable (a flex), which rays cannot hit"
        look = _appearance(model, "flex", flex)
        shapes.append(Shape("mesh", name, is_static=False, is_collision=is_collision, fault=fault, **look))
    return tuple(shapes)


def _placed(
    model: Any,
    word: str,
    i: int,
    name: str,
    body_row: Mapping[int, int],
    static: Mapping[int, tuple[np.ndarray, np.ndarray]],
    pose: tuple[np.ndarray, np.ndarray],
    parts: dict[str, Any],
) -> Shape:
    """Return a geom or a site as a shape; `pose` is that on its body."""
    body = int(getattr(model, f"{word}_bodyid")[i])
    kind = _KINDS.get(int(getattr(model, f"{word}_type")[i]), "mesh")
    size = getattr(model, f"{word}_size")[i, : _SIZES[kind]]
    pos, quat = _composed(*static[body], *pose) if body in static else pose
    parts = parts | {"is_static": body in static} | _appearance(model, word, i)
    return Shape(kind, name, tuple(size), body_row[body], tuple(pos), tuple(quat), **parts)


def visible_geoms(model: Any) -> list[int]:
    """Return the ids of the geoms that are shapes: all but those that were added for sensors."""
    concealed = _hidden_bodies(model)
    return [
        i
        for i in range(model.ngeom)
        if int(model.geom_bodyid[i]) not in concealed and not hidden(_name(model, _OBJ.mjOBJ_GEOM, i))
    ]


def model_decorations(
    model: Any, body_row: Mapping[int, int], site_poses: tuple[np.ndarray, np.ndarray], tendon_fault: str | None
) -> tuple[Shape, ...]:
    """Return the tendons, sites and skins of a compiled model, in this order.

    Elements that were added for sensors are omitted. Each segment of a spatial tendon is a shape; their order is that
    of `paths_of`. Skins have a `fault`. So do sites whose poses on their bodies differ between environments.

    Args:
        model: the MjModel.
        body_row: MuJoCo's body id -> row of the body, -1 for the world.
        site_poses: positions and orientations of the sites on their bodies, `[1 or env, site, 3]` and `[..., 4]`.
        tendon_fault: why the engine has no paths of tendons; None if it has.

    Raises:
        ModelError: a mesh has no triangle with an area.
    """
    return (*_tendons(model, tendon_fault), *_sites(model, body_row, *site_poses), *_skins(model))


def _names_of(model: Any, kind: Any, word: str, count: int, taken: Sequence[str] = ()) -> list[str]:
    return full_names([_name(model, kind, i) for i in range(count)], word, taken)


def _tendons(model: Any, fault: str | None) -> list[Shape]:
    names, paths = _names_of(model, _OBJ.mjOBJ_TENDON, "tendon", model.ntendon), paths_of(model)
    textures = model_textures(model)
    return [
        Shape(
            "capsule",
            names[i],
            (float(radius) or 1.0, 1.0),
            element="tendon",
            number=i,
            is_collision=False,
            fault="" if fault is None else f"it is a tendon, whose path is unknown: {fault}",
            material=material_of(model, int(model.tendon_matid[i]), textures),
            **_appearance(model, "tendon", i),
        )
        for i, radius in zip(paths.tendon.tolist(), paths.radius, strict=True)
    ]


def _sites(model: Any, body_row: Mapping[int, int], site_pos: np.ndarray, site_quat: np.ndarray) -> list[Shape]:
    static, concealed = _static_poses(model), _hidden_bodies(model)
    names, textures = _names_of(model, _OBJ.mjOBJ_SITE, "site", model.nsite), model_textures(model)
    shapes = []
    for i, name in enumerate(names):
        if int(model.site_bodyid[i]) in concealed or hidden(name):
            continue
        pose = site_pos[0, i].astype(np.float64), site_quat[0, i].astype(np.float64)
        differs = bool((site_pos[:, i] != site_pos[:1, i]).any() or (site_quat[:, i] != site_quat[:1, i]).any())
        parts = {
            "mesh": _mesh(model, int(model.site_dataid[i])) if model.site_type[i] == _GEOM.mjGEOM_MESH else None,
            "is_collision": False,
            "element": "site",
            "number": i,
            "fault": "its pose on its body differs between environments" if differs else "",
            "material": material_of(model, int(model.site_matid[i]), textures),
        }
        shapes.append(_placed(model, "site", i, name, body_row, static, pose, parts))
    return shapes


def _skins(model: Any) -> list[Shape]:
    fault = "it is a skin, which cameras do not draw"
    names = _names_of(model, _OBJ.mjOBJ_SKIN, "skin", model.nskin)
    parts: dict[str, Any] = {"element": "skin", "is_static": False, "is_collision": False, "fault": fault}
    return [Shape("mesh", name, number=i, **parts, **_appearance(model, "skin", i)) for i, name in enumerate(names)]


def shared_model(batch: Any) -> Any:
    """Return a model with the shapes that all environments of a `mujoco.batch.Batch` share.

    Raises:
        ModelError: the environments have different shapes. Colours may differ, but not visibility.
    """
    if isinstance(batch.models, list | tuple) and len({id(model) for model in batch.models}) > 1:
        raise ModelError(f"the environments run different models (batch.set_models). {_SAME_SHAPES}")
    model = batch.get_model(0)
    check_shared(model, batch.expanded)
    return model


def check_shared(
    model: Any, expanded: Callable[[str], np.ndarray | None], built: Mapping[str, np.ndarray] | None = None
) -> None:
    """Raise an error if shapes differ between environments.

    Args:
        model: the MjModel.
        expanded: returns the values `[env, ...]` of a field of the model, or None if all environments share them.
        built: values `[...]` of all fields that the shapes were made from; None if they were made from none.

    Raises:
        ModelError: shapes differ; the message names the element and the field. Colours may differ, but not visibility.
    """
    static: list[int] = []
    for field in SHAPE_FIELDS:
        values = expanded(field)
        if values is None or not values.size:
            continue
        static = static or static_bodies(model)
        values = compared_part(field, values, static)
        compared = [(values[:1], "in env 0", _SAME_SHAPES)]
        if built is not None:
            fix = "Change shapes before the scene is built, or put the element on a body and move it."
            compared.append((compared_part(field, built[field][None], static), "when the sensors were built", fix))
        for same, than, fix in compared:
            differs = (values != same).reshape(*values.shape[:2], -1).any(axis=2)
            if not differs.any():
                continue
            env, row = (int(index) for index in np.argwhere(differs)[0])
            kind, obj = next((word, obj) for word, obj in _ELEMENTS.items() if field.startswith(word))
            i = static[row] if field in _PLACED else row
            what = f"{obj.name.removeprefix('mjOBJ_').lower()} {_name(model, obj, i) or f'{kind}_{i}'!r}"
            raise ModelError(f"{what} has a different {field} in env {env} than {than}. {fix}")


def compared_part(field: str, values: Any, static: Any) -> Any:
    """Return the part of a field that must be the same in all environments for equal shapes.

    Args:
        field: one of `SHAPE_FIELDS`.
        values: values of the field `[env, ...]`, an array or a tensor.
        static: indices of the static bodies.
    """
    if field in _PLACED:
        return values[:, static]
    return values[..., 3] == 0.0 if field in _COLOURED else values


def static_bodies(model: Any) -> list[int]:
    """Return the ids of the bodies that never move, including the world."""
    return sorted(_static_poses(model))


def with_values(model: Any, given: Callable[[str], np.ndarray | None]) -> Any:
    """Return a model with the given values in all fields that shapes depend on.

    Args:
        model: the MjModel; copied where a value differs.
        given: returns float32 or integer values of a field, `[...]` as in the model or `[env, ...]`; None keeps the
            model's.

    Raises:
        ModelError: shapes differ between environments.
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
    """Return world poses of bodies that never move: neither joints nor mocap bodies connect them to the world."""
    poses = {0: (np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))}
    for body in range(1, model.nbody):
        parent = int(model.body_parentid[body])
        if parent in poses and not model.body_jntnum[body] and int(model.body_mocapid[body]) < 0:
            poses[body] = _composed(*poses[parent], model.body_pos[body], model.body_quat[body])
    return poses


def _composed(pos: np.ndarray, quat: np.ndarray, offset: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pose of a frame that is at (offset, turn) in the frame (pos, quat)."""
    moved, turned = np.empty(3), np.empty(4)
    mujoco.mju_rotVecQuat(moved, offset, quat)
    mujoco.mju_mulQuat(turned, quat, turn)
    return pos + moved, turned


def _hidden_bodies(model: Any) -> set[int]:
    """Return the bodies that were added for sensors, with all their descendants."""
    concealed: set[int] = set()
    for body in range(1, model.nbody):
        if int(model.body_parentid[body]) in concealed or hidden(_name(model, _OBJ.mjOBJ_BODY, body)):
            concealed.add(body)
    return concealed


def _name(model: Any, kind: Any, i: int) -> str:
    return mujoco.mj_id2name(model, kind, i) or ""


def _fault(code: int) -> str:
    if code in _KINDS:
        return ""
    if code == _SDF:
        return "it is a signed distance field (SDF), which rays cannot hit; with type='mesh' they hit its surface"
    return f"it is a geom of an unknown type ({code})"


def _mesh(model: Any, i: int) -> Mesh:
    vertex, face, count = (int(values[i]) for values in (model.mesh_vertadr, model.mesh_faceadr, model.mesh_facenum))
    vertices = model.mesh_vert[vertex : vertex + int(model.mesh_vertnum[i])]
    faces = model.mesh_face[face : face + count]
    normals = model.mesh_normal[int(model.mesh_normaladr[i]) + model.mesh_facenormal[face : face + count]]
    start, uv = int(model.mesh_texcoordadr[i]), None
    if start >= 0:
        uv = model.mesh_texcoord[start + model.mesh_facetexcoord[face : face + count]]
    else:  # `Mesh` rejects wrong indices
        normals = with_edges(normals, vertices[faces.clip(0, len(vertices) - 1)])
    name = _name(model, _OBJ.mjOBJ_MESH, i) or f"mesh_{i}"
    return Mesh(vertices, faces, name, drop_degenerate=True, normals=normals, uv=uv)


def _height_field(model: Any, i: int) -> HeightField:
    """Return a height field; MuJoCo stores heights from 0 to 1, rows by increasing y, each by increasing x."""
    rows, columns, start = int(model.hfield_nrow[i]), int(model.hfield_ncol[i]), int(model.hfield_adr[i])
    x, y, top, base = (float(value) for value in model.hfield_size[i])
    heights = np.asarray(model.hfield_data[start : start + rows * columns], dtype=np.float64) * top
    name = _name(model, _OBJ.mjOBJ_HFIELD, i) or f"hfield_{i}"
    return HeightField(heights.reshape(rows, columns), (x, y), base, name)


def _appearance(model: Any, word: str, i: int) -> dict[str, Any]:
    """Return the group and colour attributes of a shape; its reflectance is the luminance of the drawn colour."""
    group, material, own = (getattr(model, f"{word}_{part}")[i] for part in ("group", "matid", "rgba"))
    drawn = drawn_rgba(model, material, own)
    visible = bool((model.mat_rgba[material] if material >= 0 else own)[3] != 0.0)
    return {
        "group": int(group),
        "is_visible": visible,
        "is_visual": visible and int(group) <= _LAST_SHOWN,
        "rgba": tuple(drawn),
        "reflectance": reflectance_of(drawn),
    }
