"""Layout of the blocks in the body of the default serializer: a pure function that both sides share.

The blocks per env come first: `capture_tick` i64, `stamp` f64 (s), `age` f64 (s), `frame` i64 (number of captures),
`valid` u8 and `is_new` u8. Bodies with ragged fields add `offsets` i64 [env + 1]. The measured fields follow. With the
truth, `truth_tick` i64 per env and the true fields follow. Every block starts at a multiple of 64 bytes; bytes between
blocks are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sensorium.spec import FieldSpec
from sensorium.wire.header import aligned


@dataclass(frozen=True, slots=True)
class Block:
    """Array in a body.

    Attributes:
        offset: start of the array relative to the body's first byte, bytes.
        dtype: element type, little endian.
        shape: env (or row of a ragged field) first.
        nbytes: size, bytes.
    """

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int

    def view(self, body: Any) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the array in a body (memoryview or np.uint8 array), without a copy; writable if the memory is."""
        return np.ndarray(self.shape, self.dtype, body, self.offset)


@dataclass(frozen=True, slots=True)
class Layout:
    """All blocks of a body.

    Attributes:
        meta: name of a value per env -> its block.
        measured: field -> its block.
        truth: field -> the block of its true value; empty without the truth.
        gaps: (start, end) of the bytes between blocks.
        nbytes: size of the body, bytes.
    """

    meta: Mapping[str, Block]
    measured: Mapping[str, Block]
    truth: Mapping[str, Block]
    gaps: tuple[tuple[int, int], ...]
    nbytes: int


META: Mapping[str, str] = {
    "capture_tick": "<i8",
    "stamp": "<f8",
    "age": "<f8",
    "frame": "<i8",
    "valid": "?",
    "is_new": "?",
}
"""Values of a reading sent for each env, and their element types."""


@lru_cache(maxsize=512)
def plan(specs: tuple[FieldSpec, ...], num_envs: int, rows: int = 0, truth: bool = False) -> Layout:
    """Return the layout of a body.

    Args:
        specs: the sensor's fields, as in its readings.
        num_envs: number of envs in the message.
        rows: total number of rows of the ragged fields in all these envs.
        truth: whether the ground truth is included.
    """
    end = 0
    gaps: list[tuple[int, int]] = []

    def block(dtype: str, shape: tuple[int, ...]) -> Block:
        nonlocal end
        element = np.dtype(dtype).newbyteorder("<")
        nbytes = element.itemsize
        for size in shape:
            nbytes *= size
        offset = aligned(end)
        if offset > end:
            gaps.append((end, offset))
        end = offset + nbytes
        return Block(offset, element, shape, nbytes)

    def branch(specs: tuple[FieldSpec, ...]) -> dict[str, Block]:
        return {
            spec.name: block(spec.dtype, (rows, *spec.shape[1:]) if spec.is_ragged else (num_envs, *spec.shape))
            for spec in specs
        }

    meta = {name: block(dtype, (num_envs,)) for name, dtype in META.items()}
    if any(spec.is_ragged for spec in specs):
        meta["offsets"] = block("<i8", (num_envs + 1,))
    measured = branch(specs)
    true: dict[str, Block] = {}
    if truth:
        meta["truth_tick"] = block("<i8", (num_envs,))
        true = branch(specs)
    return Layout(meta, measured, true, tuple(gaps), end)
