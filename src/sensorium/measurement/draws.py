"""Amounts that are distributions, drawn per env and column at the start of an episode: one kernel for all uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import warp as wp

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.compute.rows import words_at_tick
from sensorium.random import Choice, Distribution, draw, normals4

Spread = Callable[[Any], np.ndarray[Any, Any]]
"""Function from an amount (a number, or one per axis) to a row with a number per column."""


@wp.struct
class Stream:
    """A stream of random numbers: field index and the two words of the key."""

    field: wp.uint32
    key0: wp.uint32
    key1: wp.uint32


FIXED: int = wp.constant(-1)
"""Kind of a distribution with fixed values, which are its first parameters."""


@wp.struct
class ColumnDistribution:
    """A distribution per column: kind, parameters, choices, and whether one draw serves all columns."""

    kind: wp.int32
    first: wp.array[wp.float32]
    second: wp.array[wp.float32]
    choices: wp.array2d[wp.float32]
    joint: wp.int32


@wp.func
def stream_words(rows: Rows, env: int, tick: wp.int64, block: int, stream: Stream) -> wp.vec4ui:
    """Return four random words of a stream: one word each for columns `4 * block` to `4 * block + 3`."""
    return words_at_tick(rows, env, tick, (stream.field << wp.uint32(24)) | wp.uint32(block), stream.key0, stream.key1)


@wp.func
def normals_of(rows: Rows, env: int, tick: wp.int64, block: int, stream: Stream, table: wp.array[wp.vec3]) -> wp.vec4:
    """Return four standard normals of a stream."""
    return normals4(stream_words(rows, env, tick, block, stream), table)


@wp.func
def draw_value(dist: ColumnDistribution, column: int, word: wp.uint32, table: wp.array[wp.vec3]) -> float:
    """Return the value of a column's distribution for a random word."""
    return float(draw(dist.kind, dist.first[column], dist.second[column], dist.choices[column], word, table))


@kernel
def draw_columns(
    rows: Rows,
    dist: ColumnDistribution,
    size: int,
    non_negative: int,
    stream: Stream,
    table: wp.array[wp.vec3],
    values_out: wp.array2d[wp.float32],
) -> None:
    """Draw a distribution for each column; the numbers depend on env and episode, not on the tick.

    A choice among vectors picks one vector for each `size` columns.
    """
    env, column = masked_tid(rows)
    drawn = column
    if dist.joint != 0:
        drawn = column - column % size
    words = stream_words(rows, env, wp.int64(0), drawn / 4, stream)
    value = draw_value(dist, column, words[drawn % 4], table)
    if non_negative != 0:
        value = wp.max(value, 0.0)
    values_out[env, column] = value


def stream_of(field: int, key: tuple[int, int]) -> Any:
    """Return a stream for kernels; `key` is the result of `stream_key`."""
    stream = Stream()
    stream.field, stream.key0, stream.key1 = field, *key
    return stream


def column_distribution(distribution: Any, columns: int, spread: Spread, device: Any) -> Any:
    """Return a distribution, or plain numbers, over columns for kernels on a Warp device."""
    out = ColumnDistribution()
    out.kind, out.joint = getattr(distribution, "kind", FIXED), int(getattr(distribution, "joint", False))
    rows, choices = [spread(part) for part in parts(distribution)], np.zeros((columns, 1))
    if isinstance(distribution, Choice):
        choices, rows = np.stack(rows, axis=1), []
    first, second, *_ = *rows, np.zeros(columns), np.zeros(columns)
    out.first, out.second, out.choices = (
        wp.array(values, dtype=wp.float32, device=device) for values in (first, second, choices)
    )
    return out


def is_drawn(amount: Any) -> bool:
    """Whether an amount is a distribution."""
    return isinstance(amount, Distribution)


def parts(amount: Any) -> tuple[Any, ...]:
    """Return the numbers or vectors that an amount consists of."""
    return tuple(amount.rows()) if is_drawn(amount) else (amount,)


def converted(amount: Any, function: Callable[[Any], Any]) -> Any:
    """Return an amount or a distribution with a linear function applied to every number, or vector of numbers."""
    if not is_drawn(amount):
        return function(amount)
    changed = map(function, amount.rows())
    return Choice(tuple(changed)) if isinstance(amount, Choice) else type(amount)(*changed)
