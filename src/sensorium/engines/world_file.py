"""Files of worlds that do not move: meshes, and models without joints."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.engines.model_file import SUFFIXES
from sensorium.errors import MissingDependencyError, ModelError, SensoriumWarning, listed, nearest
from sensorium.geometry.appearance import Lighting, Material, Texture
from sensorium.geometry.shapes import EDGE, Mesh, Shape, reflectance_of, with_edges

Array = NDArray[Any]
Rgba = tuple[float, float, float, float]
MESHES = (".obj", ".stl", ".ply", ".glb", ".gltf")
"""Endings of mesh files."""
_UPRIGHT = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""Transform from y up, as in glTF, to z up."""
_BLOCK = 4
"""Number of texels along the sides of a triangle with colours at its corners."""


@dataclass(frozen=True, slots=True)
class World:
    """What a file says about a world.

    Args:
        shapes: the shapes, all on the world.
        lighting: lights, sky and fog; a headlight if the file has no lights.
        notice: warning for users of cameras, or an empty text.
    """

    shapes: tuple[Shape, ...]
    lighting: Lighting = field(default_factory=Lighting)
    notice: str = ""


def read_world(path: str | Path) -> World:
    """Return the world in a file.

    Args:
        path: a mesh, m, z up (OBJ, STL, PLY) or y up (GLB, glTF, which are turned), or an MJCF or URDF file without
            joints. Each object of a mesh file is one shape with the object's name, or one for each of its materials.

    Raises:
        ModelError: the file is missing or invalid, or has joints.
        MissingDependencyError: trimesh or Pillow is not installed, which read meshes and their images.

    Warns:
        SensoriumWarning: once per material or image that cannot be read.
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
            "file, or give shapes: sn.engines.Shape('mesh', 'hall', mesh=sn.engines.Mesh(vertices, faces))."
        )
    scene = _loaded(path, label)
    objects = _objects(scene, path.suffix)
    meshes = {name: each for name, each in objects.items() if len(getattr(each[0], "faces", ()))}
    if not meshes:
        raise ModelError(f"{label}: got no triangles, expected a mesh. Export surfaces, not points or lines.")
    textures: dict[tuple[int, str], Texture] = {}
    try:
        shapes = tuple(_shape(name, *each, textures) for name, each in meshes.items())
    except ModelError as error:
        raise ModelError(f"{label}: {error}") from None
    has_lights = "KHR_lights_punctual" in scene.metadata.get("gltf_extensions", {})
    notice = f"{label}: its lights, in lux and candela, are not used: give lighting=sensorium.engines.Lighting(...)."
    return World(shapes, notice=notice if has_lights else "")


def _loaded(path: Path, label: str) -> Any:
    """Return trimesh's scene of a mesh file, with vertices as in the file."""
    try:
        import PIL.Image  # noqa: F401  (trimesh omits images without it)
        import trimesh
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{label} needs trimesh and Pillow, and {error.name} is not installed: pip install 'sensorium[mesh]'."
        ) from None
    lost: list[str] = []

    class Files(trimesh.resolvers.FilePathResolver):  # type: ignore[misc]
        """Files next to a mesh; trimesh omits those that are missing without a warning."""

        def get(self, name: str) -> Any:
            if not (path.parent / name.strip()).is_file():
                lost.append(name.strip())
            return super().get(name)

    try:
        scene: Any = trimesh.load_scene(path, resolver=Files(path), process=False, split_objects=True)
    except MemoryError:
        raise
    except Exception as error:  # trimesh raises many kinds for damaged files
        raise ModelError(f"{label} cannot be read: {type(error).__name__}: {error}. Export it again.") from error
    if lost:
        fix = "Shapes lack these colours: correct the paths in the file."
        warnings.warn(f"{label}: the files {listed(lost)} do not exist. {fix}", SensoriumWarning, stacklevel=4)
    return scene


def _objects(scene: Any, suffix: str) -> dict[str, tuple[Any, Array]]:
    """Return the objects of a mesh file by name, and their transforms to the world."""
    is_gltf, found = suffix.lower() in (".glb", ".gltf"), {}
    for node in scene.graph.nodes_geometry:
        transform, key = scene.graph[node]
        mesh, name = scene.geometry[key], node if is_gltf else key.removesuffix(suffix)
        if mesh.metadata.get("from_gltf_primitive"):  # one of several materials, with a random name
            name = f"{scene.graph.transforms.parents[node]}_{_material_name(mesh)}"
        while name in found:
            name += "_"
        found[name] = mesh, _UPRIGHT @ transform if is_gltf else np.asarray(transform)
    # The name of each object of an OBJ file ends with that of its material.
    plain = {name: name.removesuffix(f"_{_material_name(each)}") for name, (each, _) in found.items()}
    counts = Counter([*plain.values(), *found])
    return {plain[name] if counts[plain[name]] == 1 else name: each for name, each in found.items()}


def _material_name(mesh: Any) -> str:
    return str(getattr(getattr(mesh.visual, "material", None), "name", ""))


def _shape(name: str, mesh: Any, place: Array, textures: dict[tuple[int, str], Texture]) -> Shape:
    """Return an object of a mesh file as a shape in the world.

    Args:
        name: name of the shape.
        mesh: trimesh's mesh.
        place: its transform to the world `[4, 4]`.
        textures: the textures so far, by their images; a new one is added.
    """
    faces, turn, look = np.asarray(mesh.faces), place[:3, :3], mesh.visual
    faces = faces[:, ::-1] if np.linalg.det(turn) < 0.0 else faces  # mirrored
    vertices = np.asarray(mesh.vertices) @ turn.T + place[:3, 3]
    if "vertex_normals" in mesh._cache:  # of the file
        normals = _unit(mesh.vertex_normals @ np.linalg.inv(turn))[faces]
    else:
        normals = _smooth(vertices, faces)
    rgba, image, mode, colors = _appearance(look, faces)
    texture, uv = None, None
    has_uv = look.kind == "texture" and look.uv is not None
    if image is not None and has_uv:
        key = id(image), mode
        if key not in textures:
            textures[key] = Texture(np.asarray(image.convert(mode)), f"{name}/{_material_name(mesh)}")
        texture, uv = textures[key], (look.uv * (1.0, -1.0) + (0.0, 1.0))[faces]
    elif colors is not None:
        pixels, uv = _painted(colors)
        texture = Texture(pixels, f"{name}/colors")
    normals = normals if has_uv else with_edges(normals, vertices[faces])
    made = Mesh(vertices, faces, name, drop_degenerate=True, normals=normals, uv=uv)
    material = Material(texture=texture)
    return Shape("mesh", name, mesh=made, rgba=rgba, reflectance=reflectance_of(rgba), material=material)


def _appearance(look: Any, faces: Array) -> tuple[Rgba, Any, str, Array | None]:
    """Return the colour of an object of a mesh file, its image or None, the image's mode, and colours of corners."""
    if look.kind in ("vertex", "face"):
        colors = look.vertex_colors[faces] if look.kind == "vertex" else look.face_colors[:, None].repeat(3, axis=1)
        return (1.0, 1.0, 1.0, 1.0), None, "", colors
    if look.kind != "texture":
        return (0.5, 0.5, 0.5, 1.0), None, "", None
    own, material = look.vertex_attributes.get("color"), look.material
    colors = None if own is None else np.asarray(own)[faces]
    if hasattr(material, "baseColorFactor"):  # of glTF
        image, factor = material.baseColorTexture, material.baseColorFactor
        red, green, blue, alpha = (1.0,) * 4 if factor is None else (float(each) / 255.0 for each in factor)
        is_clear = material.alphaMode in ("BLEND", "MASK")
        return (red, green, blue, alpha if is_clear else 1.0), image, "RGBA" if is_clear else "RGB", colors
    image, alpha = material.image, float(material.kwargs.get("d", [1.0])[0])
    red, green, blue = np.broadcast_to(1.0 if image is not None else material.kwargs.get("kd", 0.5), 3).tolist()
    return (red, green, blue, alpha), image, "RGB", colors


def _painted(colors: Array) -> tuple[Array, Array]:
    """Return an image of triangles that fade between the colours of their corners, and its texture coordinates.

    Args:
        colors: `[face, 3, 3 or 4]`, integers, or floats from 0 to 1.

    Returns:
        The pixels, uint8 `[row, column, 3]`, and the coordinates of the corners `[face, 3, 2]`.
    """
    most = 1.0 if colors.dtype.kind == "f" else np.iinfo(colors.dtype).max
    count, place = len(colors), np.arange(_BLOCK) / (_BLOCK - 1)
    size = math.isqrt(count - 1) + 1  # blocks along each side of the image
    across, down = np.meshgrid(place, place)
    blocks = np.zeros((size * size, _BLOCK, _BLOCK, 3))
    weights = np.stack([1.0 - across - down, across, down], axis=-1)
    blocks[:count] = weights @ (255.0 / most * colors[:, None, :, :3])
    pixels = np.rint(blocks.clip(0.0, 255.0)).astype(np.uint8).reshape(size, size, _BLOCK, _BLOCK, 3)
    first = np.stack(np.divmod(np.arange(count), size)[::-1], axis=-1)[:, None]
    inside = np.array([[0.5, 0.5], [_BLOCK - 0.5, 0.5], [0.5, _BLOCK - 0.5]]) / _BLOCK
    return pixels.swapaxes(1, 2).reshape(size * _BLOCK, size * _BLOCK, 3), (first + inside) / size


def _smooth(vertices: Array, faces: Array) -> Array:
    """Return normals at the corners of a mesh without normals, `[face, 3, 3]`, as MuJoCo computes them.

    The normal at a vertex is the mean of the faces around it, weighted by area, without those that are far from it.
    """
    corners = vertices[faces]
    face = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    vertex = np.unique(vertices, axis=0, return_inverse=True)[1].reshape(-1)[faces]
    total = np.zeros((int(vertex.max()) + 1, 3))
    np.add.at(total, vertex, face[:, None])
    length = np.linalg.norm(total, axis=1, keepdims=True)
    is_far = np.einsum("fci,fi->fc", _unit(total)[vertex], _unit(face)) < EDGE
    np.add.at(total, vertex[is_far], -face[np.nonzero(is_far)[0]])
    is_none = np.linalg.norm(total, axis=1, keepdims=True) <= 1e-9 * length
    return np.where(is_none, (0.0, 0.0, 1.0), _unit(total))[vertex]


def _unit(vectors: Array) -> Array:
    lengths: Array = np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)
    return vectors / lengths
