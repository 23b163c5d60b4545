"""Images as people see them: distances, ids, normals, motion and boxes as colours, and image files.

All functions take NumPy arrays or torch tensors, with any leading axes such as env, and return NumPy arrays. Pixels
without a value, such as misses, are light grey, `MISS`.
"""

from __future__ import annotations

import io
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.errors import ArgumentError, MissingDependencyError, UnknownNameError
from sensorium.readings import Array

MISS = (211, 216, 221)
"""Color of pixels without a value, red, green, blue."""
VIRIDIS = np.array(
    [(68, 1, 84), (71, 45, 123), (59, 82, 139), (44, 114, 142), (33, 145, 140), (40, 174, 128), (94, 201, 98),
     (173, 220, 48), (253, 231, 37)]
)  # fmt: skip
"""Equal steps of the colour map viridis, dark to bright. Source: S. van der Walt and N. Smith, Matplotlib (CC0)."""
ROBUST = 2.0
"""Share of the hits at each end that does not count for the nearest and the farthest distance, percent."""
AT_REST = 0.05
"""Length of a motion in the image that does not count, px."""
CODECS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""Suffix of a file -> its format."""
_SPREAD = 0xBC9A85
"""Factor from ids to colors: odd, so that multiples differ modulo 2^24, and chosen so that the first twenty are far
apart and far from grey, black and white (CIE 1976 L*a*b*)."""
_FITS = {"uint8": (1, 3, 4), "uint16": (1,)}
"""Element type -> numbers of channels of the images that a file can hold."""


# Colours --------------------------------------------------------------------------------------------------------------


def colorize_depth(depth: Any, near: float | None = None, far: float | None = None) -> Array:
    """Return distances as colors: bright yellow is near and dark violet is far.

    The colours are those of viridis, whose brightness falls evenly with the distance.

    Args:
        depth: `[..., height, width, 1]` or `[height, width]`, m. Values that are not finite, and 0, are misses.
        near: distance of the brightest colour, m; None for a distance that all but 2 % of the hits exceed.
        far: distance of the darkest colour, m; None for one that all but 2 % of the hits fall below.

    Returns:
        uint8 `[..., height, width, 3]`; misses are grey.

    Raises:
        ArgumentError: another shape, or `near` is not less than `far`.
    """
    values = _channels(depth, "depth", 1)[..., 0].astype(np.float64)
    low, high = depth_range(values)
    low, high = low if near is None else near, high if far is None else far
    if not low < high:
        raise ArgumentError(f"near, far: got {low:g} and {high:g} m, expected near < far")
    hit = is_hit(values)
    return _filled(viridis(np.where(hit, np.clip((high - values) / (high - low), 0.0, 1.0), 0.0)), hit)


def viridis(places: Array) -> Array:
    """Return the colours from dark to bright, 0 to 255, `[..., 3]`, at places from 0 to 1."""
    steps = np.linspace(0.0, 1.0, len(VIRIDIS))
    return np.stack([np.interp(places, steps, channel) for channel in VIRIDIS.T], axis=-1)


def depth_range(depth: Array) -> tuple[float, float]:
    """Return the distances that contain all hits but 2 % at each end, m; apart by at least 0.1 % of the distance."""
    hits = depth[is_hit(depth)]
    low, high = np.percentile(hits, (ROBUST, 100.0 - ROBUST)).tolist() if hits.size else (0.0, 1.0)
    least = 1e-3 * max(abs(low), abs(high))
    return (low, high) if high - low > least else (low - 0.5 * least, high + 0.5 * least)


def is_hit(depth: Array) -> Array:
    """Return which distances belong to a surface: those that are finite and not 0."""
    hit: Array = np.isfinite(depth) & (depth != 0.0)
    return hit


def colors_of(ids: Any) -> Array:
    """Return the colour of each id, uint8 `[..., 4]` (red, green, blue, alpha), different for all ids from 0 to 2^24.

    The colour depends on the id alone. Id 0, the background of segmentations, is transparent black, and 1, a surface
    without a label, is opaque black. Negative ids are transparent.
    """
    numbers = np.asarray(ids, np.int64)
    mixed = numbers * _SPREAD % (1 << 24)
    colors = np.stack([mixed >> 16, mixed >> 8 & 255, mixed & 255, np.full_like(mixed, 255)], axis=-1)
    colors[numbers < 2, :3] = 0
    colors[numbers < 1] = 0
    return colors.astype(np.uint8)


def colorize_ids(ids: Any, first: int = 2) -> Array:
    """Return ids as colours that depend on the id alone, those of colourised segmentations.

    Args:
        ids: integers, `[..., height, width, 1]` or `[height, width]`.
        first: lowest id of a surface: 2 for segmentations, 0 for `geom_ids` and `face_ids`. Surfaces get the colours of
            a segmentation whose ids count from there.

    Returns:
        uint8 `[..., height, width, 3]`; lesser ids are grey, and surfaces without a label, id 1, are dark grey.

    Raises:
        ArgumentError: another shape, or the ids are not integers.
    """
    values = _channels(ids, "ids", 1)[..., 0]
    if values.dtype.kind not in "iu":
        raise ArgumentError(f"ids: got {values.dtype}, expected integers")
    return composite(colors_of(np.where(values < 0, 0, values.astype(np.int64) + (2 - first))))


def composite(colors: Any) -> Array:
    """Return colours uint8 `[..., 4]` over grey, uint8 `[..., 3]`; opaque black, without a label, is dark grey."""
    values = np.asarray(colors)
    rgb = _filled(values[..., :3], values[..., 3] > 0)
    rgb[(values == (0, 0, 0, 255)).all(axis=-1)] = 128
    return rgb


def colorize_normals(normals: Any) -> Array:
    """Return unit normals as colors: x, y and z from -1 to 1 are red, green and blue from 0 to 255.

    Args:
        normals: `[..., 3]`; (0, 0, 0) is a miss.

    Returns:
        uint8 `[..., 3]`; misses are grey.

    Raises:
        ArgumentError: another shape.
    """
    values = _channels(normals, "normals", 3)
    return _filled(127.5 * (1.0 + values), values.any(axis=-1))


def colorize_flow(flow: Any, largest: float | None = None) -> Array:
    """Return motions in an image as colors: the hue is the direction, and the saturation the length.

    Motion to the right is red, down is yellow-green, to the left is cyan, and up is violet. White is at rest.

    Args:
        flow: `[..., 2]`, right and down, px. Values that are not finite are misses.
        largest: length of the strongest colour, px; None for a length that all but 2 % of the moving pixels fall below.

    Returns:
        uint8 `[..., 3]`; misses are grey.

    Raises:
        ArgumentError: another shape, or `largest` is not above 0.
    """
    values = _channels(flow, "flow", 2).astype(np.float64)
    seen = np.asarray(np.isfinite(values).all(axis=-1))
    right, down = np.moveaxis(np.where(seen[..., None], values, 0.0), -1, 0)
    length = np.hypot(right, down)
    largest = flow_length(values) if largest is None else largest
    if not largest > 0.0:
        raise ArgumentError(f"largest: got {largest:g}, expected a length > 0, px")
    turns = np.arctan2(down, right)[..., None] / (2.0 * np.pi)
    hue = np.clip(np.abs((6.0 * turns + np.array([0.0, 4.0, 2.0])) % 6.0 - 3.0) - 1.0, 0.0, 1.0)
    strength = np.clip(length / largest, 0.0, 1.0)[..., None]
    return _filled(255.0 * (1.0 - strength + strength * hue), seen)


def flow_length(flow: Array) -> float:
    """Return the length that all but 2 % of the moving pixels fall below, px; 1 where nothing moves by `AT_REST`."""
    lengths = np.hypot(flow[..., 0], flow[..., 1])
    moving = lengths[np.isfinite(lengths) & (lengths > AT_REST)]
    return float(np.percentile(moving, 100.0 - ROBUST)) if moving.size else 1.0


def draw_boxes(image: Any, boxes: Any) -> Array:
    """Return a copy of an image with the outlines of 2-D boxes, white within black.

    Args:
        image: uint8 `[height, width, 3]`.
        boxes: `[box, 6]`, rows of a camera's `bounding_box_2d_tight` or `_loose`; rows that start with -1 are omitted.

    Raises:
        ArgumentError: another shape.
    """
    picture = np.array(_channels(image, "image", 3), np.uint8)
    height, width = picture.shape[:2]
    for row in np.asarray(_array(boxes)):
        if row[0] < 0:
            continue
        left, top, right, bottom = (int(number) for number in row[1:5])
        for grow, shade in ((1, 0), (0, 255)):
            x0, y0, x1, y1 = left - grow, top - grow, right + grow, bottom + grow
            across, down = slice(max(x0, 0), max(x1 + 1, 0)), slice(max(y0, 0), max(y1 + 1, 0))
            for y in {y for y in (y0, y1) if 0 <= y < height}:
                picture[y, across] = shade
            for x in {x for x in (x0, x1) if 0 <= x < width}:
                picture[down, x] = shade
    return picture


def draw_lines(image: Any, lines: Any) -> Array:
    """Return a copy of an image with lines, white beside black.

    Args:
        image: uint8 `[height, width, 3]`.
        lines: `[line, point, 2]`, columns and rows of points in their order, px, such as those of `project_points`;
            parts that are not finite are omitted.

    Raises:
        ArgumentError: another shape.
    """
    picture = np.array(_channels(image, "image", 3), np.uint8)
    height, width = picture.shape[:2]
    points = np.asarray(_array(lines), np.float64)
    start, step = points[:, :-1], np.diff(points, axis=1)
    span = np.abs(step[np.isfinite(step)])
    share = np.linspace(0.0, 1.0, 1 + int(min(span.max(initial=1.0), max(height, width))))[:, None]
    dots = (start[:, :, None] + share * step[:, :, None]).reshape(-1, 2)
    columns, rows = np.floor(np.nan_to_num(dots, nan=-1.0, posinf=-1.0, neginf=-1.0)).T
    for beside, shade in ((1, 0), (0, 255)):
        inside = (columns >= 0) & (columns < width) & (rows + beside >= 0) & (rows + beside < height)
        picture[(rows[inside] + beside).astype(np.int64), columns[inside].astype(np.int64)] = shade
    return picture


def box_edges(boxes: Any, points: int = 24) -> Array:
    """Return points along the edges of 3-D boxes in the world, `[box, 12, point, 3]`, m.

    Args:
        boxes: `[box, 24]`, rows of a camera's `bounding_box_3d`; rows that start with -1 are omitted.
        points: number of points on each edge; many points give lenses with distortion smooth curves.
    """
    rows = np.asarray(_array(boxes), np.float64)
    rows = rows[rows[:, 0] >= 0.0]
    is_high = np.array([[corner & bit for bit in (1, 2, 4)] for corner in range(8)], bool)
    corners = np.where(is_high, rows[:, None, 4:7], rows[:, None, 1:4])
    ends = np.array([(a, a ^ bit) for a in range(8) for bit in (1, 2, 4) if not a & bit])
    start, end = corners[:, ends[:, 0], None], corners[:, ends[:, 1], None]
    along = start + np.linspace(0.0, 1.0, points)[:, None] * (end - start)
    matrix = rows[:, 7:23].reshape(-1, 1, 4, 4)
    world: Array = along @ matrix[..., :3, :3] + matrix[..., None, 3, :3]
    return world


# Files ----------------------------------------------------------------------------------------------------------------


def save_image(path: str | os.PathLike[str], image: Any) -> Path:
    """Write an image to a PNG or JPEG file and return its path.

    Args:
        path: the file; its suffix selects the format, ``.png``, ``.jpg`` or ``.jpeg``. Missing folders are created.
        image: uint8 `[height, width]` or `[height, width, 1, 3 or 4]`, or for a PNG uint16 `[height, width]`, from the
            top left.

    Raises:
        UnknownNameError: another suffix.
        ArgumentError: another shape or element type; the message names the function that makes colours of it.
        MissingDependencyError: Pillow is not installed.
    """
    path, values = Path(path), _array(image)
    codec = CODECS.get(path.suffix.lower())
    if codec is None:
        raise UnknownNameError("suffix of an image", path.suffix, CODECS)
    channels = values.shape[2] if values.ndim == 3 else 1
    fits = values.ndim in (2, 3) and channels in _FITS.get(values.dtype.name, ())
    if not fits or (codec == "JPEG" and (values.dtype != np.uint8 or channels == 4)):
        fix = "Choose one image, e.g. image[0]." if values.ndim > 3 else (
            "Use colorize_depth, colorize_ids, colorize_normals or colorize_flow."
        )  # fmt: skip
        expected = "uint8 [height, width] with 1 or 3 channels, for a PNG also 4, or uint16 with 1"
        raise ArgumentError(f"image: got {values.dtype} {list(values.shape)}, expected {expected}. {fix}")
    data = encode_image(values, codec)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def encode_image(pixels: Array, codec: str, **options: Any) -> bytes:
    """Return an image `[height, width]` or `[height, width, channel]` as the bytes of a file.

    Args:
        pixels: the image.
        codec: ``"PNG"`` or ``"JPEG"``.
        options: options of Pillow for this format.

    Raises:
        MissingDependencyError: Pillow is not installed.
    """
    try:
        pillow: Any = import_module("PIL.Image")
    except ImportError:
        raise MissingDependencyError(
            "image files need Pillow, which is not installed. Install it: pip install 'sensorium[record]'"
        ) from None
    out = io.BytesIO()
    flat = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    pillow.fromarray(np.ascontiguousarray(flat)).save(out, codec, **options)
    return out.getvalue()


# Helpers --------------------------------------------------------------------------------------------------------------


def _array(values: Any) -> Array:
    """Return an array or a tensor as an array."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _channels(values: Any, name: str, channels: int) -> Array:
    """Return an array with the given number of channels on its last axis; `[height, width]` gets an axis of one."""
    array = _array(values)
    if channels == 1 and array.ndim == 2:
        array = array[..., None]
    if array.ndim < 2 or array.shape[-1] != channels:
        shape = f"[..., {channels}]" + (" or [height, width]" if channels == 1 else "")
        raise ArgumentError(f"{name}: got the shape {list(array.shape)}, expected {shape}")
    return array


def _filled(colors: Array, seen: Any) -> Array:
    """Return colours as uint8, grey where nothing is seen."""
    filled: Array = np.where(seen[..., None], np.rint(colors), MISS).astype(np.uint8)
    return filled
