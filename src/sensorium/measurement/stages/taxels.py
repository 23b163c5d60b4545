"""Layout of taxels in a field, and their imperfections: gains, dead and stuck taxels.

A field of a skin is `[env, mount, probe]` or `[env, mount, row, column]`, with a last axis of three for vectors. Any
other axes that count items are accepted; a field without such axes is one taxel per mount. Taxels are counted row by
row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import warp as wp
from pydantic import field_validator, model_validator

from sensorium.cfg import Amount, amount_bounds, bad, must, numbers_in
from sensorium.compute import Rows, is_first, kernel, masked_tid, tick_now, ticks_since
from sensorium.measurement.draws import converted, is_drawn, parts
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import (
    BEGAN,
    Row,
    amount_row,
    amount_table,
    column_values,
    draw_amount,
    in_ticks,
    launch_start,
    not_drawn,
    row,
    within,
)
from sensorium.random import Uniform
from sensorium.spec import VECTOR_AXES, FieldSpec

# Layout ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaxelColumns:
    """How the elements of a field, or of several fields with the same layout, map to taxels.

    Attributes:
        mounts: number of mounts.
        shape: sizes of the axes of one pad.
        axes: names of those axes.
    """

    mounts: int
    shape: tuple[int, ...]
    axes: tuple[str, ...]

    @property
    def taxels(self) -> int:
        """Number of taxels of one pad."""
        return prod(self.shape)

    @property
    def count(self) -> int:
        """Number of taxels of one environment, over all mounts."""
        return self.mounts * self.taxels

    def __str__(self) -> str:
        if not self.shape:
            return "one taxel"
        return f"{self.taxels} taxels ({' x '.join(map(str, self.shape))}, {', '.join(self.axes)})"


def layout_of(spec: FieldSpec) -> TaxelColumns:
    """Return how a field's elements map to taxels."""
    counts = [(word, size) for word, size in zip(spec.axes, spec.shape, strict=True) if word not in VECTOR_AXES]
    mounts = prod(size for word, size in counts if word == "mount")
    own = [(word, size) for word, size in counts if word != "mount"]
    return TaxelColumns(mounts, tuple(size for _, size in own), tuple(word for word, _ in own))


def common_layout(specs: Mapping[str, FieldSpec]) -> TaxelColumns:
    """Return the common layout of all fields.

    Raises:
        ValueError: the layouts differ.
    """
    layouts = {name: layout_of(spec) for name, spec in specs.items()}
    first, *others = layouts.items()
    for name, layout in others:
        if layout != first[1]:
            raise ValueError(f"fields over the same taxels: {first[0]!r} has {first[1]}, {name!r} has {layout}")
    return first[1]


def check_taxels(layout: TaxelColumns, **amounts: Any) -> None:
    """Raise `ValueError` if an amount is neither one number nor one per taxel; None fits."""
    for name, amount in amounts.items():
        for part in parts(amount) if amount is not None else ():
            if np.size(part) not in (1, layout.taxels):
                raise ValueError(f"{name} with one number, or one for each of {layout}, not {np.size(part)} numbers")


def _flat(state: torch.Tensor) -> torch.Tensor:
    """Return a state `[env, mount, ...]` as `[env, taxel]`."""
    return state.view(state.shape[0], -1)


class TaxelStage(StageCfg):
    """Stage that treats whole taxels alike in all its fields, with one amount per taxel, drawn per env at reset.

    The drawn amounts are a state with the amount's name, float32 `[env, mount, ...]` over the taxels.
    """

    is_recorded: ClassVar[bool] = True
    varies: ClassVar[str]
    """Name of the field that holds the amount."""
    is_non_negative: ClassVar[bool] = False
    """Whether drawn values are clipped at 0."""

    def amount(self, key: StageKey) -> Any:
        """Return the amount in the unit of the kernels."""
        return getattr(self, self.varies)

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if the fields differ in their taxels, or given values do not fit them."""
        amount = {self.varies: getattr(self, self.varies)}
        check_taxels(common_layout({name: specs[name] for name in columns}), **amount)

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return the drawn amounts."""
        layout = common_layout(key.specs)
        return {self.varies: (layout.mounts, *layout.shape)} if is_drawn(getattr(self, self.varies)) else {}

    def table(self, state: Mapping[str, torch.Tensor], key: StageKey) -> Any:
        """Return the amount as a Warp array `[env, taxel]`."""
        drawn = _flat(state[self.varies]) if self.varies in state else None
        return amount_table(key, self.amount(key), common_layout(key.specs).count, drawn)

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Draw the amount."""
        if self.varies in state:
            draw_amount(key, self.varies, self.amount(key), "", _flat(state[self.varies]), self.is_non_negative)


# Gain -----------------------------------------------------------------------------------------------------------------


@kernel
def _amplify(rows: Rows, elements: int, gain: wp.array2d[wp.float32], values: wp.array2d[wp.float32]) -> None:
    env, column = masked_tid(rows)
    x = values[env, column]
    if wp.isfinite(x):
        values[env, column] = gain[env, column / elements] * x


class TaxelGain(TaxelStage):
    """Gain of each taxel: x -> g x, one g for all fields of the stage and all vector components.

    If the gain is drawn, the state `gain`, float32 `[env, mount, ...]` over the taxels, holds it. A value that is not
    finite (the miss of a range sensor) is unchanged.
    """

    place: ClassVar[Place] = "scale"
    varies: ClassVar[str] = "gain"
    is_non_negative: ClassVar[bool] = True

    gain: Annotated[Amount, within(0.0, float("inf"), "factors >= 0")]
    """Gain factor, at least 0: a number, one per taxel (row by row, or nested like the grid), or a distribution drawn
    per env and taxel at reset; a normal distribution is clipped at 0."""

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Multiply (one launch per field)."""
        count, gains = common_layout(key.specs).count, self.table(state, key)
        for field, columns in key.columns.items():
            key.compute.launch(_amplify, (columns,), [columns // count, gains], [column_values(slot[field])])


# Dead and stuck taxels ------------------------------------------------------------------------------------------------


def _nested(mask: Any) -> Any:
    """Return an array of bools as nested tuples."""
    return tuple(map(_nested, mask)) if mask.ndim else bool(mask)


@kernel
def _choose(rows: Rows, chance: wp.array[wp.float32], chosen: wp.array2d[wp.float32]) -> None:
    env, taxel = masked_tid(rows)
    u = chosen[env, taxel]
    chosen[env, taxel] = wp.where(u < chance[taxel], 1.0, 0.0)


class _TaxelFault(TaxelStage):
    """Common base of faults of whole taxels: the selection of faulty taxels."""

    marks: ClassVar[str]
    """Name of the state that marks faulty taxels."""

    probability: (
        Annotated[
            Amount,
            not_drawn("Give fixed numbers, since faults are drawn per env and taxel."),
            within(0.0, 1.0, "a probability in [0, 1]"),
        ]
        | None
    ) = None
    """Probability that a taxel is faulty, drawn per env and taxel at each reset: a number, or one per taxel."""
    taxels: Annotated[tuple[int, ...], must(lambda taxels: min(taxels, default=0) >= 0, "indices of taxels >= 0")] = ()
    """Taxels that are always faulty, in each mount: indices from 0, row by row."""
    mask: Any = None
    """The same as a mask over the taxels: true (1) for faulty ones; row by row, or nested like the grid."""

    @field_validator("mask")
    @classmethod
    def _mask(cls, value: Any) -> Any:
        if value is None:
            return value
        try:
            given = numbers_in(value)
        except ValueError:
            given = np.full(1, np.nan)
        if given.ndim == 0 or not np.isin(given, (0.0, 1.0)).all():
            raise bad("true or false for each taxel")
        return _nested(given > 0.0)

    @model_validator(mode="after")
    def _any(self) -> Any:
        if self.probability is None and not self.taxels and self.mask is None:
            raise bad("probability, taxels, mask: at least one of them", "Give one of them to select faulty taxels.")
        return self

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if the fields differ in their taxels, or given values do not fit them."""
        super().check(columns, specs, period)
        layout = common_layout({name: specs[name] for name in columns})
        check_taxels(layout, probability=self.probability)
        if self.taxels and max(self.taxels) >= layout.taxels:
            raise ValueError(f"taxels below {layout.taxels}, since there are {layout}, not {max(self.taxels)}")
        if self.mask is not None and np.size(self.mask) != layout.taxels:
            raise ValueError(f"a mask over {layout}, not one of {np.size(self.mask)}")

    def chances(self, layout: TaxelColumns) -> Row:
        """Return the fault probability of each taxel of a pad, 1 for given taxels."""
        chance = row(0.0 if self.probability is None else self.probability, layout.taxels)
        chance[list(self.taxels)] = 1.0
        if self.mask is not None:
            chance[np.asarray(self.mask).reshape(-1)] = 1.0
        return chance

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return the marks of faulty taxels, and the drawn amounts."""
        layout = common_layout(key.specs)
        return {self.marks: (layout.mounts, *layout.shape), **super().state_shapes(key)}

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Draw the faulty taxels (two launches), and the amount."""
        layout, chosen = common_layout(key.specs), _flat(state[self.marks])
        draw_amount(key, "chosen", Uniform(0.0, 1.0), "", chosen)
        chance = amount_row(key, np.tile(self.chances(layout), layout.mounts))
        key.compute.launch(_choose, (layout.count,), [chance], [wp.from_torch(chosen)])
        super().reset(state, key)


@kernel
def _silence(
    rows: Rows,
    elements: int,
    dead: wp.array2d[wp.float32],
    shown: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    taxel = column / elements
    if dead[env, taxel] > 0.0:
        values[env, column] = shown[env, taxel]


class DeadTaxels(_TaxelFault):
    """Taxels that are dead for the whole episode: all components of all fields of the stage show one value.

    The stage acts after noise and quantisation, so a dead taxel has no noise. State `dead`, float32 `[env, mount, ...]`
    over the taxels: 1 for taxels that are dead in this episode, else 0; read it as `sensor.stage_state(stage)["dead"]`.
    """

    place: ClassVar[Place] = "dropout"
    marks: ClassVar[str] = "dead"
    varies: ClassVar[str] = "value"

    value: Amount = 0.0
    """Value of a dead taxel, in the field's unit: a number, one per taxel, or a distribution drawn per env and taxel at
    reset."""

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Replace (one launch per field)."""
        count = common_layout(key.specs).count
        inputs = [_flat(state["dead"]), self.table(state, key)]
        for field, columns in key.columns.items():
            key.compute.launch(_silence, (columns,), [columns // count, *inputs], [column_values(slot[field])])


@kernel
def _stick(
    rows: Rows,
    elements: int,
    stuck: wp.array2d[wp.float32],
    start: wp.array2d[wp.float32],
    began: wp.array2d[wp.float32],
    held: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    taxel = column / elements
    since = float(ticks_since(tick_now(rows), began, env))
    if stuck[env, taxel] > 0.0 and since >= start[env, taxel] and not is_first(rows, env):
        values[env, column] = held[env, column]
    else:
        held[env, column] = values[env, column]


class StuckTaxels(_TaxelFault):
    """Taxels that freeze until the reset: all components of all fields hold the last value before.

    A taxel that freezes with the first sample of an episode holds that sample. `StuckFault` instead freezes single
    elements, at random times, and releases them. State `stuck`, float32 `[env, mount, ...]` over the taxels: 1 for
    taxels that freeze in this episode, else 0.
    """

    place: ClassVar[Place] = "dropout"
    marks: ClassVar[str] = "stuck"
    varies: ClassVar[str] = "start"
    is_non_negative: ClassVar[bool] = True

    start: Annotated[Amount, must(lambda start: amount_bounds(start)[0] >= 0.0, "times >= 0 in seconds")] = 0.0
    """Time of freezing after the reset, s; it takes effect with the first sample at or after that time. A number, one
    per taxel, or a distribution drawn per env and taxel at reset."""

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return the marks of stuck taxels, drawn times, the tick of the first sample and the held values."""
        held = {f"held_{field}": (columns,) for field, columns in key.columns.items()}
        return {**super().state_shapes(key), "began": (BEGAN,), **held}

    def amount(self, key: StageKey) -> Any:
        """Return the start in ticks; for numbers, the first tick at or after it."""
        start = converted(self.start, lambda value: in_ticks(value, key))
        if is_drawn(start):
            return start
        return tuple(np.ceil(row(start, common_layout(key.specs).count)).tolist())

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Freeze values (one launch per field, and one that acts only at a reset)."""
        launch_start(key, state["began"])
        count = common_layout(key.specs).count
        inputs = [_flat(state["stuck"]), self.table(state, key), state["began"]]
        for field, columns in key.columns.items():
            outputs = [state[f"held_{field}"], column_values(slot[field])]
            key.compute.launch(_stick, (columns,), [columns // count, *inputs], outputs)

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Set all states to zero, and draw the stuck taxels and their times."""
        StageCfg.reset(self, state, key)
        super().reset(state, key)
