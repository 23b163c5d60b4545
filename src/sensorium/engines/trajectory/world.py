"""Files of worlds that do not move: meshes, and models without joints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sensorium.engines.model_file import SUFFIXES
from sensorium.errors import MissingDependencyError, ModelError, listed, nearest
from sensorium.geometry.shapes import Mesh, Shape

MESHES = (".obj", ".stl", ".ply")
"""Endings of mesh files."""


def world_shapes(path: str | Path) -> tuple[Shape, ...]:
    """Return the shapes in a file, all on the world.

    Args:
        path: a mesh (OBJ, STL, PLY), m, z up, or an MJCF or URDF file without joints. Each object of an OBJ file is one
            shape with the object's name.

    Raises:
        ModelError: the file is missing or invalid, or has joints.
        MissingDependencyError: trimesh is not installed, which reads meshes.
    """
    path = Path(path).expanduser()
    label = f"world file {str(path)!r}"
    if not path.is_file():
        folder = path.absolute().parent
        known = [each.name for each in folder.glob("*") if each.suffix.lower() in (*MESHES, *SUFFIXES)]
        raise ModelError(f"{label} does not exist.{nearest(path.name, known)} Check the path.")
    if path.suffix.lower() in SUFFIXES:
        from sensorium.engines.mujoco.world import model_world

        return model_world(path)
    if path.suffix.lower() not in MESHES:
        raise ModelError(
            f"{label}: got the ending {path.suffix!r}, expected one of {listed((*MESHES, *SUFFIXES))}. Convert the "
            "file, or give shapes: sensorium.Shape('mesh', 'hall', mesh=sensorium.Mesh(vertices, faces))."
        )
    meshes = {name: each for name, each in _loaded(path, label).items() if len(getattr(each, "faces", ()))}
    if not meshes:
        raise ModelError(f"{label}: got no triangles, expected a mesh. Export surfaces, not points or lines.")
    try:
        return tuple(
            Shape("mesh", name, mesh=Mesh(each.vertices, each.faces, name, drop_degenerate=True))
            for name, each in meshes.items()
        )
    except ModelError as error:
        raise ModelError(f"{label}: {error}") from None


def _loaded(path: Path, label: str) -> dict[str, Any]:
    """Return the objects of a mesh file by name, with vertices as in the file."""
    try:
        import trimesh
    except ModuleNotFoundError:
        raise MissingDependencyError(
            f"{label} needs trimesh, which is not installed: pip install 'sensorium[mesh]'."
        ) from None
    try:
        scene: Any = trimesh.load_scene(path, process=False, split_objects=True, skip_materials=True)
    except MemoryError:
        raise
    except Exception as error:  # trimesh raises many kinds for damaged files
        raise ModelError(f"{label} cannot be read: {type(error).__name__}: {error}. Export it again.") from error
    return {name.removesuffix(path.suffix): each for name, each in scene.geometry.items()}
