"""Deterministic errors: scale factor, cross-axis coupling, g-sensitivity, and saturation at full scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Amount, bad
from sensorium.compute import Rows, kernel, masked_tid
from sensorium.measurement.draws import converted, is_drawn, parts
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import (
    DrawnStage,
    amount_row,
    below_high,
    check_fit,
    column_values,
    ends_row,
    not_drawn,
)
from sensorium.random import Choice
from sensorium.spec import FieldSpec


def _three_axes(field: torch.Tensor) -> Any:
    """Return a field `[env, mount, 3]` as a Warp array `[env, mount]` of vec3 over the same memory."""
    return wp.from_torch(field.view(field.shape[0], -1, 3), dtype=wp.vec3)


def _check_three_axes(stage: str, columns: Mapping[str, int], specs: Mapping[str, FieldSpec]) -> None:
    """Raise `ValueError` if a field has no last axis of three components; adjacent mounts do not count."""
    for field in columns:
        spec = specs[field]
        if spec.axes[-1:] in ((), ("mount",)) or spec.shape[-1] != 3:
            text = f"{' x '.join(map(str, spec.shape))} ({', '.join(spec.axes)})" if spec.shape else "a number"
            raise ValueError(f"three-axis fields for {stage}; {field!r} is {text}")


# Scale and cross-axis -------------------------------------------------------------------------------------------------


@kernel
def _scale(
    rows: Rows, scale_in: wp.array2d[wp.float32], cross_in: wp.array2d[wp.float32], values: wp.array2d[wp.vec3]
) -> None:
    env, mount = masked_tid(rows)
    x = values[env, mount]
    a = 3 * mount
    c = 6 * mount
    s = wp.vec3(
        (1.0 + scale_in[env, a]) * x[0], (1.0 + scale_in[env, a + 1]) * x[1], (1.0 + scale_in[env, a + 2]) * x[2]
    )
    values[env, mount] = wp.vec3(
        s[0] + cross_in[env, c] * s[1] + cross_in[env, c + 1] * s[2],
        s[1] + cross_in[env, c + 2] * s[0] + cross_in[env, c + 3] * s[2],
        s[2] + cross_in[env, c + 4] * s[0] + cross_in[env, c + 5] * s[1],
    )


class ScaleError(DrawnStage):
    """Scale factor error and cross-axis coupling of three-axis fields: x -> T (I + S) x.

    S is diagonal. T has ones on the diagonal and the couplings elsewhere: non-orthogonality and misalignment of the
    sensitive axes together (IEEE Std 1431). A distribution is drawn per env, mount and axis at reset.
    """

    place: ClassVar[Place] = "scale"

    scale: Amount = 0.0
    """Relative error per axis: 0.01 reads 1 % too high. A number, three numbers or a distribution."""
    cross_axis: Amount = 0.0
    """Coupling: a number (for all six), three numbers (axis j couples with c_j into the other axes), six numbers (xy,
    xz, yx, yz, zx, zy) or a distribution (all six drawn)."""

    @field_validator("scale", "cross_axis")
    @classmethod
    def _sizes(cls, value: Any, info: ValidationInfo) -> Any:
        allowed = (1, 3) if info.field_name == "scale" else (1, 3, 6)
        for part in parts(value):
            if np.size(part) not in allowed:
                raise bad(f"{' or '.join(map(str, allowed))} numbers, or a distribution of these")
        if isinstance(value, Choice) and any(np.ndim(part) for part in value.values):
            raise bad("a choice among numbers")
        return value

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if a field does not have three axes."""
        _check_three_axes("ScaleError", columns, specs)

    def amounts(self, columns: int) -> dict[str, tuple[Any, int]]:
        """Return scale errors and couplings."""
        return {"scale": (self.scale, columns), "cross": (converted(self.cross_axis, _couplings), 2 * columns)}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Multiply (one launch per field)."""
        for field, columns in key.columns.items():
            key.compute.launch(_scale, (columns // 3,), self.tables(state, key, field), [_three_axes(slot[field])])


def _couplings(value: Any) -> Any:
    numbers = np.asarray(value, np.float64).reshape(-1)
    if numbers.size == 3:  # c_j couples axis j into the others
        x, y, z = numbers.tolist()
        return (y, z, x, z, x, y)
    return value


# g-sensitivity --------------------------------------------------------------------------------------------------------


@kernel
def _add_product(
    rows: Rows, matrix: wp.array2d[wp.float32], source: wp.array2d[wp.vec3], values: wp.array2d[wp.vec3]
) -> None:
    env, mount = masked_tid(rows)
    f = source[env, mount]
    m = 9 * mount
    values[env, mount] = values[env, mount] + wp.vec3(
        matrix[env, m] * f[0] + matrix[env, m + 1] * f[1] + matrix[env, m + 2] * f[2],
        matrix[env, m + 3] * f[0] + matrix[env, m + 4] * f[1] + matrix[env, m + 5] * f[2],
        matrix[env, m + 6] * f[0] + matrix[env, m + 7] * f[1] + matrix[env, m + 8] * f[2],
    )


class GSensitivity(DrawnStage):
    """Linear-acceleration sensitivity of a gyroscope: x -> x + G f, f the *true* specific force at the same mount.

    G is 3x3 (IEEE Std 1431). Data sheets give degrees per second per g: 0.1 dps/g is 0.1 (pi/180) / 9.80665 =
    1.78e-4 rad/s per m/s^2.
    """

    place: ClassVar[Place] = "scale"

    fields: tuple[str, ...] = ("ang_vel_b",)
    """Fields that the stage alters, three axes each."""
    matrix: Amount
    """G in unit per m/s^2: a number or three numbers for the diagonal, 3x3 (row i for axis i of the gyroscope), or a
    distribution, from which all nine are drawn per env and mount at reset."""
    source: str = "lin_acc_b"
    """Field of the same sensor that holds the specific force."""

    @field_validator("matrix")
    @classmethod
    def _matrix(cls, value: Any) -> Any:
        for part in parts(value):
            shape = np.shape(part)
            if shape not in ((), (9,)) if is_drawn(value) else shape not in ((), (3,), (3, 3)):
                raise bad(
                    "a distribution of numbers or of nine" if is_drawn(value) else "a number, three numbers or 3x3"
                )
        return value

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if the sensor has no such source, or its shape differs from that of a field."""
        _check_three_axes("GSensitivity", columns, specs)
        for field in columns:
            if self.source not in specs:
                raise ValueError(f"a sensor with a field {self.source!r}; this one has {', '.join(specs)}")
            if specs[self.source].shape != specs[field].shape:
                shapes = f"{specs[self.source].shape} and {specs[field].shape}"
                raise ValueError(f"{self.source!r} and {field!r} of the same shape, not {shapes}")

    def amounts(self, columns: int) -> dict[str, tuple[Any, int]]:
        """Return G row by row, or the distribution of its elements."""
        matrix = self.matrix
        if not is_drawn(matrix):
            numbers = np.asarray(matrix, np.float64)
            matrix = tuple((numbers if numbers.ndim == 2 else np.eye(3) * numbers).reshape(-1).tolist())
        return {"matrix": (matrix, 3 * columns)}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Add the product (one launch per field)."""
        for field, columns in key.columns.items():
            inputs = [*self.tables(state, key, field), _three_axes(truth[self.source])]
            key.compute.launch(_add_product, (columns // 3,), inputs, [_three_axes(slot[field])])


# Full scale -----------------------------------------------------------------------------------------------------------


@kernel
def _saturate(
    rows: Rows, low_in: wp.array[wp.float32], high_in: wp.array[wp.float32], values: wp.array2d[wp.float32]
) -> None:
    env, column = masked_tid(rows)
    values[env, column] = wp.clamp(values[env, column], low_in[column], high_in[column])


class Saturation(StageCfg):
    """Full scale: the measured value is clipped to [low, high]."""

    place: ClassVar[Place] = "saturation"
    is_recorded: ClassVar[bool] = True

    high: Annotated[Amount, not_drawn()]
    """Upper end, in the field's unit; a number or one per axis."""
    low: Annotated[Amount | None, not_drawn(), below_high("end")] = PydanticField(default=None, validate_default=True)
    """Lower end; by default minus `high`."""

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return no states; check that the ends fit."""
        check_fit(columns, high=self.high, low=self.low)
        return {}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Clip (one launch per field)."""
        for field, columns in key.columns.items():
            ends = [amount_row(key, end) for end in ends_row(self.low, self.high, columns)]
            key.compute.launch(_saturate, (columns,), ends, [column_values(slot[field])])
