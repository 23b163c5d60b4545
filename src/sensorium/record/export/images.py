"""Images of 8 bits in readings, and their PNG files."""

from __future__ import annotations

import os
from importlib import import_module
from typing import IO, Any

import numpy as np

from sensorium.errors import MissingDependencyError
from sensorium.readings import Array
from sensorium.record.export.samples import Sample
from sensorium.spec import FieldSpec


def is_image(spec: FieldSpec) -> bool:
    """Return whether a field is an image of 8 bits, grey or with colours."""
    return spec.role == "image" and spec.dtype == "uint8" and spec.kind != "id" and spec.shape[-1] in (1, 3, 4)


def is_depth(spec: FieldSpec) -> bool:
    """Return whether a field is an image of distances in m."""
    return spec.role == "image" and spec.unit == "m" and spec.axes[-1:] == ("channel",) and spec.shape[-1] == 1


def image_field(sample: Sample) -> str:
    """Return the name of the first field with images of 8 bits, or an empty text."""
    return next((spec.name for spec in sample.reading.specs if is_image(spec)), "")


def write_png(target: str | os.PathLike[str] | IO[bytes], pixels: Array) -> None:
    """Write an image as a PNG file.

    Args:
        target: the file.
        pixels: uint8 `[height, width, channel]`, or uint16 with one channel.

    Raises:
        MissingDependencyError: Pillow is not installed.
    """
    try:
        pillow: Any = import_module("PIL.Image")
    except ImportError:
        raise MissingDependencyError(
            "images of a data set need Pillow, which is not installed: pip install pillow."
        ) from None
    flat = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    pillow.fromarray(np.ascontiguousarray(flat)).save(target, "PNG", compress_level=1)
