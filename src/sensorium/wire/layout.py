"""Layout of the blocks in the body of the default serializer: a pure function that both sides share.

The blocks per env come first: `capture_tick` i64, `stamp` f64 (s), `age` f64 (s), `frame` i64 (number of captures),
`valid` u8 and `is_new` u8. Bodies with ragged fields add `offsets` i64 [env + 1]. The measured fields follow. With the
truth, `truth_tick` i64 per env and the true fields follow. Every block starts at a multiple of 64 bytes; bytes between
blocks are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from sensorium.spec import FieldSpec
from sensorium.wire.header import aligned

Branch = Literal["meta", "measured", "truth"]
"""Kind of a block: a value per env, a measured field or a true field."""


class Block(NamedTuple):
    """Array in a body.

    Attributes:
        branch: see `Branch`.
        name: name of the value or field.
        shape: env (or row of a ragged field) first.
        dtype: element type, little endian.
        offset: start of the array relative to the body's first byte, bytes.
        is_ragged: whether it is a ragged field.
    """

    branch: Branch
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    is_ragged: bool = False


class Layout(NamedTuple):
    """All blocks of a body.

    Attributes:
        blocks: the blocks in order.
        gaps: (start, end) of the bytes between blocks.
        nbytes: size of the body, bytes.
    """

    blocks: tuple[Block, ...]
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


def plan(specs: tuple[FieldSpec, ...], num_envs: int, rows: int = 0, truth: bool = False) -> Layout:
    """Return the layout of a body.

    Args:
        specs: the sensor's fields, as in its readings.
        num_envs: number of envs in the message.
        rows: total number of rows of the ragged fields in all these envs.
        truth: whether the ground truth is included.
    """
    blocks: list[Block] = []
    gaps: list[tuple[int, int]] = []
    end = 0

    def add(branch: Branch, name: str, dtype: str, *shape: int, ragged: bool = False) -> None:
        nonlocal end
        element, offset = np.dtype(dtype).newbyteorder("<"), aligned(end)
        gaps.extend([(end, offset)] if offset > end else [])
        blocks.append(Block(branch, name, shape, element, offset, ragged))
        end = offset + element.itemsize * prod(shape)

    for name, dtype in META.items():
        add("meta", name, dtype, num_envs)
    if any(spec.is_ragged for spec in specs):
        add("meta", "offsets", "<i8", num_envs + 1)
    branches: tuple[Branch, ...] = ("measured", "truth") if truth else ("measured",)
    for branch in branches:
        if branch == "truth":
            add("meta", "truth_tick", "<i8", num_envs)
        for spec in specs:
            shape = (rows, *spec.shape[1:]) if spec.is_ragged else (num_envs, *spec.shape)
            add(branch, spec.name, spec.dtype, *shape, ragged=spec.is_ragged)
    return Layout(tuple(blocks), tuple(gaps), end)
