"""The bodies of a model: their entities, bounding boxes and shapes.

For viewers and recordings, `world_file` describes the shapes of all bodies, meshes and height fields as `.npz`. Its
`description` is a JSON text: `bodies`, the names of the bodies, and `shapes`, one entry per shape with its fields as in
`sensorium.engines.Shape`. `mesh` and `hfield` are numbers: `mesh/0/vertices` `[vertex, 3]` and `mesh/0/faces`
`[face, 3]`, `hfield/0/heights` `[row, column]`.
"""

from __future__ import annotations

import io
import json

import numpy as np
from numpy.typing import NDArray

from sensorium.engines.base import Engine
from sensorium.geometry.bounds import placed_box
from sensorium.geometry.transforms import rotation
from sensorium.readings import Array, Bodies, Body
from sensorium.spec import BODY_POSE, SHAPES
from sensorium.world.select import Named, entity_of, root_of


def tree_of(body: int, model: Named) -> tuple[int, frozenset[int]]:
    """Return the root of a body's kinematic tree, and all bodies of the tree, as rows of ``model.names("body")``.

    If the model has no known tree, the root is the body itself, and the other bodies are those of its entity.
    """
    names = model.names("body")
    if (root := root_of(body, model)) is not None:
        return root, frozenset(row for row in range(len(names)) if root_of(row, model) == root)
    entity = entity_of(names[body])
    return body, frozenset(
        row for row, name in enumerate(names) if row == body or (entity and entity_of(name) == entity)
    )


def bodies_of(engine: Engine, reader: str) -> Bodies:
    """Return all bodies of a model; their boxes are 0 if the engine provides no shapes.

    Args:
        engine: the engine; it is prepared for shapes if it still accepts requirements.
        reader: name of the reader, for messages.
    """
    wanted = [need for need in (SHAPES, BODY_POSE) if engine.grants_late(need) and engine.supports(need) is None]
    engine.prepare(dict.fromkeys(wanted, reader))
    names = engine.names("body")
    boxes = body_boxes(engine).tolist() if SHAPES in engine.prepared else [[0.0] * 6] * len(names)
    return Bodies(
        Body(row, name, entity_of(name), tuple(box[:3]), tuple(box[3:]))
        for row, (name, box) in enumerate(zip(names, boxes, strict=True))
    )


def body_boxes(engine: Engine) -> NDArray[np.float32]:
    """Return a box around the shapes of each body, in the frame of the body, along its axes.

    Visual shapes count as well. Planes, height fields and shapes without a known extent (deformables) are ignored. So
    are the shapes of a static body if BODY_POSE was not prepared, since their poses are then known only in the world.

    Returns:
        float32 `[body, 6]`, bodies in the order of ``engine.names("body")``: centre and half the size, m. 0 for a body
        without a shape.

    Raises:
        ModelError: see `Engine.shapes`.
    """
    count = len(engine.names("body"))
    low, high = np.full((count, 3), np.inf), np.full((count, 3), -np.inf)
    poses: NDArray[np.float64] | None = None
    for shape in engine.shapes():
        row = shape.row
        if not 0 <= row < count or shape.fault or shape.kind in ("plane", "hfield"):
            continue
        turn, pos = rotation(shape.quat), np.array(shape.pos)
        if shape.is_static:  # its pose is given in the world
            if BODY_POSE not in engine.prepared:
                continue
            poses = _poses(engine) if poses is None else poses
            body = rotation(poses[row, 3:].tolist())
            turn, pos = body.T @ turn, body.T @ (pos - poses[row, :3])
        least, most = placed_box(shape, turn, pos)
        low[row], high[row] = np.minimum(low[row], least), np.maximum(high[row], most)
    empty = ~np.isfinite(low).all(axis=1)
    low[empty] = high[empty] = 0.0
    return np.concatenate([0.5 * (low + high), 0.5 * (high - low)], axis=1).astype(np.float32)


def _poses(engine: Engine) -> NDArray[np.float64]:
    """Return the poses of the bodies of the first environment, `[body, 7]`; static bodies have them in all."""
    engine.refresh()
    parts = [engine.array(f"body_{what}_w")[0].cpu().numpy().astype(np.float64) for what in ("pos", "quat")]
    return np.concatenate(parts, axis=1)


_FIELDS = (
    "kind",
    "name",
    "size",
    "body",
    "pos",
    "quat",
    "scale",
    "is_static",
    "group",
    "labels",
    "is_visual",
    "is_visible",
    "rgba",
)


def world_file(engine: Engine) -> bytes:
    """Return the contents of the file: the shapes of an engine; none if it was not prepared for them."""
    shapes = engine.shapes() if SHAPES in engine.prepared else ()
    arrays: dict[str, Array] = {}
    numbers: dict[int, int] = {}
    described = []
    for shape in shapes:
        about = {name: getattr(shape, name) for name in _FIELDS}
        if (texture := shape.material.texture) is not None:  # in its mean colour
            mean = texture.pixels.reshape(-1, texture.pixels.shape[-1])[:, :3].mean(axis=0) / 255.0
            about["rgba"] = *(round(a * b, 4) for a, b in zip(shape.rgba, mean.tolist(), strict=False)), shape.rgba[3]
        if shape.mesh is not None:
            about["mesh"] = number = numbers.setdefault(id(shape.mesh), len(numbers))
            arrays[f"mesh/{number}/vertices"] = shape.mesh.vertices
            arrays[f"mesh/{number}/faces"] = shape.mesh.faces
        if shape.hfield is not None:
            about["hfield"] = number = numbers.setdefault(id(shape.hfield), len(numbers))
            about["hfield_size"], about["hfield_base"] = shape.hfield.size, shape.hfield.base
            arrays[f"hfield/{number}/heights"] = shape.hfield.heights
        described.append(about)
    text = json.dumps({"bodies": list(engine.names("body")), "shapes": described})
    out = io.BytesIO()
    np.savez_compressed(out, description=np.array(text), **arrays)  # type: ignore[arg-type]
    return out.getvalue()
