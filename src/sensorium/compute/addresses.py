"""Views of numbers at an address, for kernels that take addresses instead of arrays.

One struct then serves fields of any number and dtype. Strides of such a view are constants of the compiled kernel, so
it is several times as fast as a slice of an array.
"""

from __future__ import annotations

from typing import Any

import warp as wp


def _view_of(dtype: Any) -> Any:
    """Return a Warp function that views `count` values from value `start` at an address as an array."""
    size = wp.types.type_size_in_bytes(dtype)

    @wp.func
    def view(address: wp.uint64, start: int, count: int):  # type: ignore[no-untyped-def]  # Warp infers it
        return wp.array(ptr=address + wp.uint64(size) * wp.uint64(start), shape=(count,), dtype=dtype)

    return view


floats_at, doubles_at, bytes_at = _view_of(wp.float32), _view_of(wp.float64), _view_of(wp.uint8)
words_at, quads_at = _view_of(wp.int32), _view_of(wp.vec4i)
"""Views of `count` values from value `start` at an address: float32, float64, bytes, words of 4 bytes and of 16."""
