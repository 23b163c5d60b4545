"""Crosstalk: of the taxels of a pad, by a kernel or a matrix, and of the elements of a sensor with several fields."""

# Without `from __future__ import annotations`: Warp has to see the types that a factory is called with.

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator, model_validator

from sensorium.cfg import Amount, Float, Share, amount_bounds, bad, is_finite, must
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.measurement.draws import is_drawn, parts
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import (
    SHARED,
    Row,
    amount_row,
    amount_table,
    column_values,
    draw_amount,
    not_drawn,
)
from sensorium.measurement.stages.taxels import TaxelColumns, layout_of
from sensorium.spec import FieldSpec

REACH = 3.0
"""Number of standard deviations at which a Gaussian kernel is cut off."""


@kernel
def _copy(rows: Rows, values: wp.array2d[wp.float32], before: wp.array2d[wp.float32]) -> None:
    env, column = masked_tid(rows)
    before[env, column] = values[env, column]


@wp.func
def _chosen_parts(chosen: wp.vec3, y: wp.vec3, x: wp.vec3) -> wp.vec3:
    """Return the chosen parts of y, and the others of x."""
    return wp.vec3(
        wp.where(chosen[0] > 0.0, y[0], x[0]),
        wp.where(chosen[1] > 0.0, y[1], x[1]),
        wp.where(chosen[2] > 0.0, y[2], x[2]),
    )


@wp.func
def _whole(chosen: wp.vec3, y: float, x: float) -> float:
    """Return y: a number has no parts."""
    return y


def _kernels(number: Any, picked: Any) -> tuple[Any, Any, Any]:
    """Return the kernels for fields of numbers or of vectors: mixing, spreading along the rows and across them."""
    group = number.__name__

    @kernel(group=f"mix_{group}")
    def mix(
        rows: Rows,
        taxels: int,
        elements: int,
        chosen: wp.vec3,
        start: wp.array[wp.int32],
        source: wp.array[wp.int32],
        weight: wp.array[wp.float32],
        before: wp.array2d[number],
        values: wp.array2d[number],
    ) -> None:
        env, column = masked_tid(rows)
        taxel = (column / elements) % taxels
        first = column - taxel * elements  # the mount's first taxel
        y = number(0.0)
        for k in range(start[taxel], start[taxel + 1]):
            y = y + weight[k] * before[env, first + source[k] * elements]
        values[env, column] = picked(chosen, y, before[env, column])

    @kernel(group=f"along_{group}")
    def spread_along(
        rows: Rows,
        columns: int,
        bell: wp.array[wp.float32],
        scale: wp.array[wp.float32],
        values: wp.array2d[number],
        along: wp.array2d[number],
    ) -> None:
        """Spread each taxel's share along the rows: the first half of a Gaussian, which is separable."""
        env, at = masked_tid(rows)
        taxel = at % scale.shape[0]
        column = taxel % columns
        half = bell.shape[0] / 2
        y = number(0.0)
        for k in range(wp.max(-half, -column), wp.min(half, columns - 1 - column) + 1):
            y = y + bell[k + half] * scale[taxel + k] * values[env, at + k]
        along[env, at] = y

    @kernel(group=f"across_{group}")
    def spread_across(
        rows: Rows,
        columns: int,
        chosen: wp.vec3,
        own: float,
        bell: wp.array[wp.float32],
        scale: wp.array[wp.float32],
        along: wp.array2d[number],
        values: wp.array2d[number],
    ) -> None:
        """Spread the result across the rows, and add the remaining share of each taxel."""
        env, at = masked_tid(rows)
        taxel = at % scale.shape[0]
        row = taxel / columns
        last = scale.shape[0] / columns - 1
        half = bell.shape[0] / 2
        y = number(0.0)
        for k in range(wp.max(-half, -row), wp.min(half, last - row) + 1):
            y = y + bell[k + half] * along[env, at + k * columns]
        x = values[env, at]
        if own > 0.0:
            y = y + own * scale[taxel] * x
        values[env, at] = picked(chosen, y, x)

    return mix, spread_along, spread_across


KERNELS = {wp.float32: _kernels(wp.float32, _whole), wp.vec3: _kernels(wp.vec3, _chosen_parts)}
"""By the type of a field's elements."""


Lengths = Annotated[
    Float | tuple[Float, Float], must(lambda given: is_finite(given) and np.min(given) > 0.0, "finite lengths above 0")
]


class TaxelCrosstalk(StageCfg):
    """Crosstalk between taxels: y_i = sum over j of C_ij x_j, separately for each mount and each vector component.

    Give C as a `matrix`; as a `kernel` that each taxel of a grid spreads over its neighbours; or as a Gaussian kernel:
    (1 - strength) of a taxel itself and `strength` times a Gaussian of standard deviation `sigma` over it and its
    neighbours, up to three of them away, normalised to the sum 1. `coefficients` returns C.

    Stages with other `components`, or on other fields, treat normal force, shear and torque differently. In Genesis'
    order of imperfections, this stage comes before `Viscoelastic`, and that before `TaxelGain`.
    """

    place: ClassVar[Place] = "scale"
    is_recorded: ClassVar[bool] = True

    strength: Share | None = None
    """Fraction of the Gaussian, in [0, 1]."""
    sigma: Lengths | None = None
    """Standard deviation of the Gaussian: a number, or along a column (from row to row) and along a row; in taxels, or
    in m with `spacing`."""
    spacing: Lengths | None = None
    """Distance between neighbours, m: a number, or from row to row and from column to column."""
    kernel: Annotated[Amount, SHARED] | None = None
    """Response to a unit input on one taxel: an odd number of rows of an odd number of weights. The centre weight stays
    on the taxel; the weight below it goes to the taxel of the next row."""
    matrix: Annotated[Amount, SHARED] | None = None
    """C itself, with row i for the signal that taxel i picks up from each. For lists of taxels, and for grids row by
    row."""
    border: Literal["keep", "leak"] = "keep"
    """Treatment of the part of a kernel beyond the border. ``"keep"``: the other weights of that taxel are scaled to
    the kernel's sum, so that the sum over the pad equals the load everywhere. ``"leak"``: it is lost, as in Genesis."""
    components: Annotated[
        tuple[int, ...], must({0, 1, 2}.issuperset, "vector components 0, 1 or 2", "Use 2 for z.")
    ] = ()
    """Vector components that are mixed, e.g. ``(2,)`` for the normal force alone; empty means all."""

    @field_validator("kernel")
    @classmethod
    def _kernel(cls, value: Any) -> Any:
        if value is not None:
            shape = np.shape(value)
            if len(shape) != 2 or not all(size % 2 for size in shape):
                given = f"{' x '.join(map(str, shape))}" if shape else "a number"
                raise bad(
                    f"an odd number of rows of an odd number of weights, not {given}", "Centre the kernel on the taxel."
                )
        return value

    @field_validator("matrix")
    @classmethod
    def _matrix(cls, value: Any) -> Any:
        if value is not None:
            shape = np.shape(value)
            if len(shape) != 2 or shape[0] != shape[1]:
                raise bad(f"a square matrix, not {' x '.join(map(str, shape)) or 'a number'}")
        return value

    @model_validator(mode="after")
    def _one(self) -> Any:
        if sum(value is not None for value in (self.strength, self.kernel, self.matrix)) != 1:
            raise bad("strength, kernel, matrix: exactly one of them")
        if (self.strength is None) != (self.sigma is None):
            raise bad("sigma: a length if and only if strength is given")
        if self.spacing is not None and self.sigma is None:
            raise bad("spacing: None without sigma")
        if self.matrix is not None and self.border == "leak":
            raise bad("border: 'keep' with a matrix", "Omit border, since the matrix defines the losses.")
        return self

    def weights(self) -> Row:
        """Return the kernel, `[row, column]`, or the one defined by strength and sigma.

        Raises:
            ValueError: the stage has a matrix.
        """
        if self.kernel is not None:
            return np.array(self.kernel, np.float64)
        if self.strength is None:
            raise ValueError("TaxelCrosstalk with a matrix has no kernel")
        across, along = self._bells()
        spread: Row = self.strength * np.outer(across, along)
        spread[len(across) // 2, len(along) // 2] += 1.0 - self.strength
        return spread

    def _bells(self) -> tuple[Row, Row]:
        """Return the Gaussian from row to row, and that along a row."""
        sigma = np.broadcast_to(np.array(self.sigma, np.float64), 2)
        sigma = sigma / (1.0 if self.spacing is None else np.array(self.spacing, np.float64))
        sides = []
        for length in sigma:
            at = np.arange(-math.floor(REACH * length + 1e-9), math.floor(REACH * length + 1e-9) + 1)
            bell = np.exp(-0.5 * (at / length) ** 2)
            sides.append(bell / bell.sum())
        return sides[0], sides[1]

    def coefficients(self, shape: tuple[int, ...]) -> Row:
        """Return C `[taxel, taxel]` for a pad.

        Args:
            shape: sizes of its axes: (taxels,) or (rows, columns).

        Raises:
            ValueError: the stage does not fit the pad.
        """
        count = math.prod(shape)
        targets, sources, weights = self._entries(shape)
        matrix = np.zeros((count, count))
        matrix[targets, sources] = weights
        return matrix

    def _entries(self, shape: tuple[int, ...]) -> tuple[Any, Any, Row]:
        """Return the non-zero entries of C, row by row: rows, columns and values."""
        count = math.prod(shape)
        if self.matrix is not None:
            matrix = np.array(self.matrix, np.float64)
            if len(matrix) != count:
                raise ValueError(f"a matrix over {count} taxels, {count} x {count}, not {len(matrix)} x {len(matrix)}")
            targets, sources = np.nonzero(matrix)
            return targets, sources, matrix[targets, sources]
        if len(shape) != 2:
            raise ValueError(
                f"a grid of rows and columns for a kernel, not {count} taxels in a list: "
                "give a matrix, such as matrix=layout.crosstalk(strength, sigma)"
            )
        kernel = self.weights()
        source_row, source_column = np.divmod(np.arange(count), shape[1])
        found = []
        for (down, right), weight in np.ndenumerate(kernel):
            row, column = source_row + down - kernel.shape[0] // 2, source_column + right - kernel.shape[1] // 2
            inside = np.flatnonzero((row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1]))
            if weight != 0.0:
                found.append(((row * shape[1] + column)[inside], inside, np.full(len(inside), weight)))
        none = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        targets, sources, weights = (np.concatenate(parts) for parts in zip(none, *found, strict=True))
        if self.border == "keep":
            kept, total = np.bincount(sources, weights, minlength=count), float(kernel.sum())
            empty = np.flatnonzero(np.abs(kept) < 1e-9 * np.abs(kernel).sum())
            if len(empty) and total != 0.0:
                raise ValueError(f"border='leak': within the border the weights of taxel {empty[0]} sum to 0")
            weights = weights * (total / kept)[sources] if total != 0.0 else weights
        order = np.lexsort((sources, targets))
        return targets[order], sources[order], weights[order]

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if kernel or matrix do not fit the taxels of a field, or a component is missing."""
        for field in columns:
            layout = layout_of(specs[field])
            elements = columns[field] // layout.count
            if self.components and elements != 3:
                raise ValueError(f"components of three-component vectors; {field!r} has {elements} per taxel")
            self._entries(layout.shape)

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Spread along the rows and across them, or copy and mix (two launches per field)."""
        for field, columns in key.columns.items():
            layout = layout_of(key.specs[field])
            elements = columns // layout.count
            if self.strength and elements in (1, 3) and min(map(len, self._bells())) > 1:
                self._spread(slot[field], key, field, layout)
                continue
            before = key.scratch("before", field)
            key.compute.launch(_copy, (columns,), [column_values(slot[field])], [column_values(before)])
            number, (before, values) = _typed(elements, before, slot[field])
            count, each = (layout.count, 1) if number is wp.vec3 else (columns, elements)
            inputs = [layout.taxels, each, self._chosen(), *self._sparse(key, layout), before]
            key.compute.launch(KERNELS[number][0], (count,), inputs, [values])

    def _spread(self, values: torch.Tensor, key: StageKey, field: str, layout: TaxelColumns) -> None:
        """Spread a Gaussian along rows, then across them, with far fewer terms than a sum over all neighbours."""
        assert self.strength is not None
        across, along = self._bells()
        elements = key.columns[field] // layout.count
        scale = amount_row(key, self._scale(layout.shape, across, along))
        bells, own = [amount_row(key, along), amount_row(key, self.strength * across)], 1.0 - self.strength
        number, (half, flat) = _typed(elements, key.scratch("before", field), values)
        (_, along_rows, across_rows), first = KERNELS[number], layout.shape[1]
        key.compute.launch(along_rows, (layout.count,), [first, bells[0], scale, flat], [half])
        key.compute.launch(across_rows, (layout.count,), [first, self._chosen(), own, bells[1], scale, half], [flat])

    def _scale(self, shape: tuple[int, ...], across: Row, along: Row) -> Row:
        """Return factors that compensate for the weights beyond the border, `[taxel]`."""
        assert self.strength is not None
        if self.border == "leak":
            return np.ones(math.prod(shape))
        rows, columns = (
            np.array([bell[max(0, len(bell) // 2 - at) : len(bell) // 2 + count - at].sum() for at in range(count)])
            for count, bell in zip(shape, (across, along), strict=True)
        )
        kept: Row = 1.0 - self.strength + self.strength * np.outer(rows, columns)
        return 1.0 / kept.reshape(-1)

    def _chosen(self) -> wp.vec3:
        """Return 1 for each vector component that is mixed."""
        return wp.vec3(*(float(not self.components or part in self.components) for part in range(3)))

    def _sparse(self, key: StageKey, layout: TaxelColumns) -> list[Any]:
        """Return C in sparse rows: where each row starts, the columns, the values."""
        targets, sources, weights = self._entries(layout.shape)
        start = np.searchsorted(targets, np.arange(layout.taxels + 1))
        return [_integers(key, start), _integers(key, sources), amount_row(key, weights)]


def _typed(elements: int, *fields: torch.Tensor) -> tuple[Any, list[Any]]:
    """Return the type of kernels for taxels of some elements, and fields as Warp arrays of it."""
    if elements != 3:
        return wp.float32, [column_values(field) for field in fields]
    return wp.vec3, [wp.from_torch(field.view(len(field), -1, 3), dtype=wp.vec3) for field in fields]


def _integers(key: StageKey, values: Any) -> Any:
    return wp.array(np.asarray(values, np.int32), dtype=wp.int32, device=key.compute.wp_device)


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
