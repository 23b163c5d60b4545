"""JPEG artefacts: baseline compression of an image with the standard tables, and its decompression.

Colours become luma and two chroma planes (ITU-T T.871), chroma at half the resolution in both directions (4:2:0). The
discrete cosine transform of each block of 8 x 8 samples is divided by the tables of ITU-T T.81, Annex K, scaled by the
quality as in libjpeg, rounded, and transformed back. Entropy coding has no loss and is omitted.

The planes of a mount take the three columns per pixel of its image: luma, then both chroma planes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import warp as wp

from sensorium.cameras.render.srgb import decoded, encoded
from sensorium.compute import Rows, kernel, masked_tid

_LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
_CHROMA = (
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99,
    24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
)  # fmt: skip
_Block: Any = wp.types.matrix((8, 8), wp.float32)


def _cosines() -> Any:
    """Return the orthonormal discrete cosine transform of eight samples."""
    k, x = np.mgrid[:8, :8]
    rows = 0.5 * np.cos((2 * x + 1) * k * np.pi / 16)
    rows[0] *= np.sqrt(0.5)
    return rows.astype(np.float32)


_DCT: Any = wp.constant(_Block(*_cosines().reshape(-1).tolist()))


@functools.cache
def tables(quality: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the divisors of luma and chroma for a quality from 1 to 100, `[2, 64]`."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    divisors = np.clip((np.array([_LUMA, _CHROMA]) * scale + 50) // 100, 1, 255)
    return np.asarray(divisors, np.float32)


@kernel(group="image_jpeg")
def to_planes(
    rows: Rows, height: int, width: int, values: wp.array2d[wp.float32], planes: wp.array2d[wp.float32]
) -> None:
    """Turn linear colours into luma and subsampled chroma, whole numbers centred on 0."""
    env, mount, piece = masked_tid(rows)
    row = rows.first + piece
    first = 3 * mount * height * width
    half_width = (width + 1) // 2
    chroma = first + height * width
    for column in range(half_width):
        cb = wp.float32(0.0)
        cr = wp.float32(0.0)
        for k in range(4):
            v = wp.min(2 * row + k // 2, height - 1)
            u = wp.min(2 * column + k % 2, width - 1)
            at = first + 3 * (v * width + u)
            r = wp.floor(255.0 * encoded(values[env, at]) + 0.5)
            g = wp.floor(255.0 * encoded(values[env, at + 1]) + 0.5)
            b = wp.floor(255.0 * encoded(values[env, at + 2]) + 0.5)
            planes[env, first + v * width + u] = wp.floor(0.299 * r + 0.587 * g + 0.114 * b + 0.5) - 128.0
            cb += wp.floor(-0.168735892 * r - 0.331264108 * g + 0.5 * b + 0.5)
            cr += wp.floor(0.5 * r - 0.418687589 * g - 0.081312411 * b + 0.5)
        up = 1.0 + float(column % 2)  # halves are rounded up and down in turn
        at = chroma + row * half_width + column
        planes[env, at] = wp.floor((cb + up) / 4.0)
        planes[env, at + ((height + 1) // 2) * half_width] = wp.floor((cr + up) / 4.0)


@kernel(group="image_jpeg", blocks=2)
def compress(
    rows: Rows, height: int, width: int, divisors: wp.array2d[wp.float32], planes: wp.array2d[wp.float32]
) -> None:
    """Compress and restore a row of blocks: those of luma, then those of both chroma planes."""
    env, mount, piece = masked_tid(rows)
    line = rows.first + piece
    first = 3 * mount * height * width
    tall = height
    wide = width
    which = wp.int32(0)
    if line >= (height + 7) // 8:
        line -= (height + 7) // 8
        first += height * width
        tall = (height + 1) // 2
        wide = (width + 1) // 2
        which = 1
        if line >= (tall + 7) // 8:
            line -= (tall + 7) // 8
            first += tall * wide
    for block in range((wide + 7) // 8):
        samples = _Block()
        for j in range(8):
            v = wp.min(8 * line + j, tall - 1)
            for i in range(8):
                samples[j, i] = planes[env, first + v * wide + wp.min(8 * block + i, wide - 1)]
        waves = _DCT * samples * wp.transpose(_DCT)
        for j in range(8):
            for i in range(8):
                q = divisors[which, 8 * j + i]
                eighths = wp.floor(8.0 * wp.abs(waves[j, i]) + 0.5)  # the resolution of coders
                waves[j, i] = q * wp.sign(waves[j, i]) * wp.floor((eighths + 4.0 * q) / (8.0 * q))
        samples = wp.transpose(_DCT) * waves * _DCT
        for j in range(8):
            for i in range(8):
                v = 8 * line + j
                u = 8 * block + i
                if v < tall and u < wide:
                    planes[env, first + v * wide + u] = wp.clamp(wp.floor(samples[j, i] + 0.5), -128.0, 127.0)


@wp.func
def chroma_at(planes: wp.array2d[wp.float32], env: int, first: int, tall: int, wide: int, u: int, v: int) -> float:
    """Return the chroma of a pixel, interpolated between the four nearest samples with weights 9, 3, 3, 1."""
    near_u = u // 2
    near_v = v // 2
    far_u = wp.clamp(near_u + 2 * (u % 2) - 1, 0, wide - 1)
    far_v = wp.clamp(near_v + 2 * (v % 2) - 1, 0, tall - 1)
    near = 3.0 * planes[env, first + near_v * wide + near_u] + planes[env, first + far_v * wide + near_u]
    far = 3.0 * planes[env, first + near_v * wide + far_u] + planes[env, first + far_v * wide + far_u]
    return float(wp.floor((3.0 * near + far + 8.0 - float(u % 2)) / 16.0))


@kernel(group="image_jpeg")
def from_planes(
    rows: Rows, height: int, width: int, planes: wp.array2d[wp.float32], values: wp.array2d[wp.float32]
) -> None:
    """Turn luma and chroma into linear colours, as decoders do: 8 bits per colour."""
    env, mount, piece = masked_tid(rows)
    v = rows.first + piece
    first = 3 * mount * height * width
    tall = (height + 1) // 2
    wide = (width + 1) // 2
    for u in range(width):
        luma = planes[env, first + v * width + u] + 128.0
        cb = chroma_at(planes, env, first + height * width, tall, wide, u, v)
        cr = chroma_at(planes, env, first + height * width + tall * wide, tall, wide, u, v)
        rgb = wp.vec3(luma + 1.402 * cr, luma - 0.344136286 * cb - 0.714136286 * cr, luma + 1.772 * cb)
        at = first + 3 * (v * width + u)
        for c in range(3):
            values[env, at + c] = decoded(wp.clamp(wp.floor(rgb[c] + 0.5), 0.0, 255.0) / 255.0)
