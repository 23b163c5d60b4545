"""Description of the world for viewers and recordings: the shapes of all bodies, meshes and height fields, as `.npz`.

`description` is a JSON text: `bodies`, the names of the bodies, and `shapes`, one entry per shape with its fields as in
`sensorium.engines.Shape`. `mesh` and `hfield` are numbers: `mesh/0/vertices` `[vertex, 3]` and `mesh/0/faces`
`[face, 3]`, `hfield/0/heights` `[row, column]`.
"""

from __future__ import annotations

import io
import json

import numpy as np

from sensorium.engines.base import Engine
from sensorium.readings import Array
from sensorium.spec import SHAPES

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
