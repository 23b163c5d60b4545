"""Where each block lies in the body of the default serializer: a pure function that both sides know.

First, per env: `capture_tick` i64, `stamp` f64 (s), `age` f64 (s), `captures` i64, `valid` u8, `is_new` u8, and, where
fields are ragged, `offsets` i64 [env + 1]. Then each measured field. With the truth, `truth_tick` i64 per env, and each
field once more. Every block begins at a multiple of 64 bytes; what lies between two blocks is 0.
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
    """One array in a body.

    Attributes:
        offset: where it begins, bytes from the body's first.
        dtype: element type, little endian.
        shape: env (or row of a ragged field) first.
        nbytes: its bytes.
    """

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int

    def view(self, body: Any) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the array in a body (memoryview or np.uint8 array), without a copy; writable where the memory is."""
        return np.ndarray(self.shape, self.dtype, body, self.offset)


@dataclass(frozen=True, slots=True)
class Layout:
    """All blocks of a body.

    Attributes:
        meta: what is said of each env -> its block.
        measured: field -> its block.
        truth: field -> the block of its true value; empty without the truth.
        gaps: (begin, end) of the bytes between blocks.
        nbytes: bytes of the body.
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
    "captures": "<i8",
    "valid": "?",
    "is_new": "?",
}
"""What is said of each env, and its element type."""


@lru_cache(maxsize=512)
def plan(specs: tuple[FieldSpec, ...], num_envs: int, rows: int = 0, truth: bool = False) -> Layout:
    """Return where everything lies in a body.

    Args:
        specs: the sensor's fields, as its readings have them.
        num_envs: envs in the message.
        rows: rows of the ragged fields, of all these envs together.
        truth: whether the ground truth is there, too.
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
