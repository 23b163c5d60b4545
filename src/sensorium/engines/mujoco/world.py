"""Worlds that do not move: the shapes of a mesh file or of a model file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np

from sensorium.engines.model_file import SUFFIXES, model_file
from sensorium.engines.mujoco.shapes import model_shapes
from sensorium.engines.mujoco.spec import compile_spec, load_spec
from sensorium.errors import ModelError, listed
from sensorium.geometry.shapes import Mesh, Shape

MESHES = (".obj", ".stl", ".msh")
"""Endings of mesh files that MuJoCo reads."""


def world_shapes(path: str | Path) -> tuple[Shape, ...]:
    """Return the shapes in a file, all on the world.

    Args:
        path: a mesh (OBJ, binary STL, MSH), m, z up, or an MJCF or URDF file without joints.

    Raises:
        ModelError: the file is missing or invalid, or has joints.
    """
    path = model_file(path)
    label, suffix = f"world file {str(path)!r}", path.suffix.lower()
    if suffix in MESHES:
        return (_mesh_shape(path, label),)
    if suffix not in SUFFIXES:
        raise ModelError(
            f"{label}: got the ending {path.suffix!r}, expected one of {listed((*MESHES, *SUFFIXES))}. Convert it to "
            "OBJ, or load it with another library: sensorium.Shape('mesh', 'hall', mesh=sensorium.Mesh(vertices, "
            "faces))."
        )
    model = compile_spec(load_spec(path), label)
    if model.njnt or model.nmocap:
        moving = [model.joint(i).name or f"joint {i}" for i in range(model.njnt)] or ["a mocap body"]
        raise ModelError(f"{label}: got moving parts ({listed(moving, 5)}), expected none. Remove them.")
    return model_shapes(model, dict.fromkeys(range(model.nbody), -1))


def _mesh_shape(path: Path, label: str) -> Shape:
    """Return the mesh of a file with its vertices in the world frame; MuJoCo moves them to the frame of its inertia."""
    spec = mujoco.MjSpec()
    spec.add_mesh(name=path.stem, file=str(path.absolute()), inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=path.stem, contype=0, conaffinity=0)
    (shape,) = model_shapes(compile_spec(spec, label), {0: -1})
    assert shape.mesh is not None
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, np.array(shape.quat))
    vertices = shape.mesh.vertices @ turn.reshape(3, 3).T + shape.pos
    mesh = Mesh(vertices, shape.mesh.faces, path.stem)
    return replace(shape, name=path.stem, mesh=mesh, pos=(0.0, 0.0, 0.0), quat=(1.0, 0.0, 0.0, 0.0))
