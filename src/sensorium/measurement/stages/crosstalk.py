"""Crosstalk between the elements of a sensor: one matrix over several fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Amount, amount_bounds, bad, must
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.measurement.draws import is_drawn, parts
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import (
    Row,
    amount_row,
    amount_table,
    column_values,
    draw_amount,
    not_drawn,
)
from sensorium.spec import FieldSpec


@kernel
def _stack(
    rows: Rows, elements: int, size: int, first: int, values: wp.array2d[wp.float32], stack: wp.array2d[wp.float32]
) -> None:
    env, column = masked_tid(rows)
    stack[env, column / elements * size + first + column % elements] = values[env, column]


@kernel
def _mix(
    rows: Rows,
    elements: int,
    size: int,
    first: int,
    has_diagonal: int,
    ratio: wp.array[wp.float32],
    matrix: wp.array2d[wp.float32],
    stack: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    mount = column / elements
    k = first + column % elements
    total = stack[env, mount * size + k]
    for j in range(size):
        if j != k or has_diagonal != 0:
            total = (
                total + ratio[k * size + j] * matrix[env, (mount * size + k) * size + j] * stack[env, mount * size + j]
            )
    values[env, column] = total


class Crosstalk(StageCfg):
    """Crosstalk: x -> (I + X) x, where x stacks the elements of the named fields in the order of `fields`.

    For a six-axis force/torque sensor, ``fields=("force", "torque")``, x is (fx, fy, fz, mx, my, mz) and I + X is the
    inverse of its calibration matrix. Each mount of a sensor is mixed separately.
    """

    place: ClassVar[Place] = "scale"
    is_recorded: ClassVar[bool] = True

    matrix: Amount
    """X, with row i for the signal that element i picks up from each element. A square matrix (its diagonal is a
    relative scale error); a number for all elements off the diagonal; or a distribution, from which those are drawn per
    env and mount at reset (vectors of all elements, row by row, include the diagonal). In unit per unit, see
    `full_scale`."""
    full_scale: (
        Annotated[
            Amount,
            not_drawn("Give fixed numbers for the device."),
            must(lambda scale: amount_bounds(scale)[0] > 0.0, "numbers > 0"),
        ]
        | None
    ) = None
    """Full scale of each element, or of each field, in its unit. `matrix` is then in fractions of full scale, as in
    data
    sheets: the element (i, j) is X_ij times full scale i over full scale j."""
    size: int | None = PydanticField(default=None, validate_default=True)
    """Number of elements, if `matrix` does not define it. By default three for each field."""

    @field_validator("matrix")
    @classmethod
    def _matrix(cls, value: Any) -> Any:
        for part in parts(value):
            shape = np.shape(part)
            side = math.isqrt(int(np.size(part)))
            if shape not in ((), (side * side,) if is_drawn(value) else (side, side)):
                raise bad("a distribution of numbers or of whole matrices" if is_drawn(value) else "a square matrix")
        if len({np.size(part) for part in parts(value) if np.ndim(part)}) > 1:
            raise bad("matrices of the same size")
        return value

    @field_validator("size")
    @classmethod
    def _size(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None:
            if value < 2:
                raise bad("a whole number >= 2")
            if "matrix" in info.data and _side(info.data["matrix"]) not in (None, value):
                raise bad("the number of rows of the matrix, or None")
        return value

    def _elements(self, columns: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        """Return the number of elements of one mount, in total and per field."""
        size = _side(self.matrix) or self.size or 3 * len(columns)
        mounts = sum(columns.values()) // size or 1
        return size, {field: count // mounts for field, count in columns.items()}

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if the fields do not have as many elements as the matrix, or fewer than two."""
        counts = {}
        for field in columns:
            spec = specs[field]
            shape = spec.shape[1:] if spec.axes[:1] == ("mount",) else spec.shape
            counts[field] = math.prod(shape)
        total, (size, _) = sum(counts.values()), self._elements(columns)
        if total != size:
            given = "" if _side(self.matrix) else f", so size={total}"
            raise ValueError(f"a matrix over the {total} elements of {', '.join(columns)}{given}, not over {size}")
        if total < 2:
            raise ValueError(f"at least two elements, not the one of {', '.join(columns)}")

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the drawn matrices; check that the full scales fit."""
        size, _ = self._elements(columns)
        self._scales(columns)
        return {"matrix": (sum(columns.values()) * size,)} if is_drawn(self.matrix) else {}

    def _scales(self, columns: Mapping[str, int]) -> Row:
        """Return the full scale of each element, 1 by default."""
        size, counts = self._elements(columns)
        scale = np.asarray(1.0 if self.full_scale is None else self.full_scale, np.float64).reshape(-1)
        if scale.size == len(columns) and scale.size != size:
            scale = np.repeat(scale, list(counts.values()))
        if scale.size not in (1, size):
            raise ValueError(f"a full_scale for each of {size} elements or {len(columns)} fields, not {scale.size}")
        return np.broadcast_to(scale, (size,))

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Collect the elements, then multiply (two launches per field)."""
        size, counts = self._elements(key.columns)
        columns = sum(key.columns.values())
        scales = self._scales(key.columns)
        table = amount_table(key, _flat(self.matrix), columns * size, state.get("matrix"))
        stack = torch.zeros((key.compute.num_envs, columns), dtype=torch.float32, device=key.compute.device)
        firsts = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
        for field, count in key.columns.items():
            inputs = [counts[field], size, firsts[field], column_values(slot[field])]
            key.compute.launch(_stack, (count,), inputs, [stack])
        ratio = amount_row(key, np.outer(scales, 1.0 / scales).reshape(-1))
        for field, count in key.columns.items():
            inputs = [counts[field], size, firsts[field], int(_side(self.matrix) is not None), ratio, table, stack]
            key.compute.launch(_mix, (count,), inputs, [column_values(slot[field])])

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Draw the matrices."""
        for matrix in state.values():
            draw_amount(key, "matrix", self.matrix, "", matrix)


def _side(matrix: Any) -> int | None:
    """Return the number of rows of a matrix, or of the matrices of a distribution; None for numbers."""
    sizes = [int(np.size(part)) for part in parts(matrix) if np.ndim(part)]
    return math.isqrt(sizes[0]) if sizes else None


def _flat(matrix: Any) -> Any:
    return matrix if is_drawn(matrix) else tuple(np.asarray(matrix, np.float64).reshape(-1).tolist())
