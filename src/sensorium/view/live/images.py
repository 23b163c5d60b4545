"""Fields of images as colours for the page."""

from __future__ import annotations

import numpy as np

from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec
from sensorium.view.images import colored, picture_kind

MAX_PIXELS = 320
"""Maximum width or height of a shown image; of larger ones every k-th pixel is shown."""


def image_fields(specs: tuple[FieldSpec, ...]) -> list[str]:
    """Return the names of a sensor's images, those in colour first."""
    images = [spec for spec in specs if picture_kind(spec.to_dict()) not in ("", "boxes")]
    return [spec.name for spec in sorted(images, key=lambda spec: spec.dtype != "uint8" or spec.kind == "id")]


def image_of(reading: Reading, field: str, *, truth: bool) -> Array | None:
    """Return an image of the first environment and mount as uint8 `[height, width, 3]`; None without pixels."""
    spec = next(spec for spec in reading.specs if spec.name == field)
    values = (reading.truth if truth and reading.truth else reading.measured)[field][0]
    if spec.axes[:1] == ("mount",):
        values = values[0]
    every = 1 + (max(values.shape[:2]) - 1) // MAX_PIXELS
    pixels = values[::every, ::every]
    return np.ascontiguousarray(colored(pixels, spec.to_dict())) if pixels.size else None
