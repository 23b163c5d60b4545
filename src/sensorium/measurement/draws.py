"""Amounts that are distributions, drawn per env and column when an episode begins: one kernel for knobs and stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import warp as wp

from sensorium.compute import Rows, kernel
from sensorium.random import Choice, Distribution, Normal, Uniform, draw, philox

Spread = Callable[[Any], np.ndarray[Any, Any]]
"""From an amount (a number, or one per axis) to a row with a number per column."""


@kernel
def draw_columns(
    rows: Rows,
    kind: int,
    low_in: wp.array[wp.float32],
    high_in: wp.array[wp.float32],
    choices_in: wp.array2d[wp.float32],
    joint: int,
    non_negative: int,
    episode: wp.array[wp.int32],
    field: wp.uint32,
    key0: wp.uint32,
    key1: wp.uint32,
    table: wp.array[wp.vec3],
    values_out: wp.array2d[wp.float32],
) -> None:
    """Draw a distribution for each column; the numbers depend on env and episode, not on the tick."""
    i, column = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    drawn = column
    if joint != 0:
        drawn = 0  # a choice among vectors picks one vector, not one value per column
    element = (field << wp.uint32(24)) | wp.uint32(drawn / 4)
    words = philox(wp.uint32(0), wp.uint32(rows.first_env + env), wp.uint32(episode[env]), element, key0, key1)
    value = draw(kind, low_in[column], high_in[column], choices_in[column], words[drawn % 4], table)
    if non_negative != 0:
        value = wp.max(value, 0.0)
    values_out[env, column] = value


def law_parameters(law: Distribution, columns: int, spread: Spread) -> tuple[Any, Any, Any, int]:
    """Return per-column parameters of a distribution: first, second, choices [column, n], and whether joint."""
    none = np.zeros((columns, 1), np.float32)
    if isinstance(law, Uniform):
        return spread(law.low), spread(law.high), none, 0
    if isinstance(law, Normal):
        return spread(law.mean), spread(law.std), none, 0
    joint = any(isinstance(value, Sequence) for value in law.values)
    choices = np.stack([spread(value) for value in law.values], axis=1)
    zeros = np.zeros(columns, np.float32)
    return zeros, zeros, choices, int(joint)


def is_law(amount: Any) -> bool:
    """Whether an amount is a distribution."""
    return isinstance(amount, Uniform | Normal | Choice)
