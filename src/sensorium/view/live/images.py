"""Fields of images as colours for the page."""

from __future__ import annotations

import numpy as np

from sensorium.drawing import colors_of
from sensorium.readings import Array, Reading
from sensorium.spec import FieldSpec

MAX_PIXELS = 320
"""Maximum width or height of a shown image; of larger ones every k-th pixel is shown."""


def image_fields(specs: tuple[FieldSpec, ...]) -> list[str]:
    """Return the names of a sensor's images, those in colour first."""
    images = [spec for spec in specs if spec.role == "image"]
    return [spec.name for spec in sorted(images, key=lambda spec: spec.dtype != "uint8" or spec.kind == "id")]


def image_of(reading: Reading, field: str, *, truth: bool) -> Array | None:
    """Return an image of the first environment and mount as uint8 `[height, width, 3]`; None without pixels.

    Colours are shown as they are, numbers from dark (least) to bright (greatest), vectors as their components, and ids
    in a colour each. Pixels without a finite value are grey.
    """
    spec = next(spec for spec in reading.specs if spec.name == field)
    values = (reading.truth if truth and reading.truth else reading.measured)[field][0]
    if spec.axes[:1] == ("mount",):
        values = values[0]
    every = 1 + (max(values.shape[:2]) - 1) // MAX_PIXELS
    pixels = values[::every, ::every]
    if not pixels.size:
        return None
    if pixels.dtype == np.uint8 and pixels.shape[-1] >= 3:
        return np.ascontiguousarray(pixels[..., :3])
    if spec.kind == "id":
        mixed = (pixels[..., 0].astype(np.int64) + 1) * 2654435761
        return np.stack([mixed >> shift & 255 for shift in (8, 16, 24)], axis=-1).astype(np.uint8)
    if pixels.shape[-1] == 3:
        span = float(np.nanmax(np.abs(np.where(np.isfinite(pixels), pixels, 0.0)), initial=1e-9))
        found = 0.5 + 0.5 * np.where(np.isfinite(pixels), pixels, 0.0) / span
    else:
        found = colors_of(pixels[..., 0] if pixels.shape[-1] == 1 else np.linalg.norm(pixels, axis=-1))
    return (255.0 * found).astype(np.uint8)
