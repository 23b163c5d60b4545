"""Faults: samples that drop out, values that stick, spike or saturate; at random, or at a given time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import warp as wp
from pydantic import Field as PydanticField
from pydantic import ValidationInfo, field_validator

from sensorium.cfg import Amount, GilbertElliott, Parsed, amount_bounds, bad, is_within, must, parse_amount
from sensorium.cfg.knobs import dump_amount
from sensorium.compute import Rows, is_first, kernel, masked_tid, tick_now, ticks_since
from sensorium.measurement.draws import ColumnDistribution, Stream, converted, draw_value, is_drawn, stream_words
from sensorium.measurement.record import Record
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.measurement.stages.amounts import (
    BEGAN,
    SHARED,
    amount_distribution,
    amount_row,
    amount_table,
    below_high,
    check_fit,
    column_values,
    draw_amount,
    ends_row,
    in_ticks,
    launch_start,
    not_drawn,
    row,
    within,
)
from sensorium.random import Choice, Normal, normal_table, word_to_uniform
from sensorium.spec import FieldSpec

Per = Literal["element", "sample"]
_ALL = ""
"""Name of the group of all elements of a sample."""


def _groups(per: str, columns: Mapping[str, int]) -> dict[str, int]:
    """Return name -> number of elements of the groups that fail independently; a whole sample is one group."""
    return {_ALL: 1} if per == "sample" else dict(columns)


def _decided(per: str, state: Mapping[str, torch.Tensor], what: str, field: str, columns: int) -> Any:
    """Return the decisions per group as a Warp array `[env, column]`; those of a whole sample have stride 0."""
    return wp.from_torch(state[f"{what}_{_ALL if per == 'sample' else field}"].expand(-1, columns))


NO_JOINT = must(
    lambda amount: not (isinstance(amount, Choice) and any(np.ndim(part) for part in amount.values)),
    "a choice among numbers",
    "Give numbers, since each element draws independently.",
)
"""Rejects a choice among vectors."""


# Dropout --------------------------------------------------------------------------------------------------------------


@kernel
def _decide(
    rows: Rows,
    is_burst: int,
    burst_end: float,
    chance: wp.array2d[wp.float32],
    stream: Stream,
    lost: wp.array2d[wp.float32],
) -> None:
    env, element = masked_tid(rows)
    words = stream_words(rows, env, tick_now(rows), element / 4, stream)
    u = word_to_uniform(words[element % 4])
    was_lost = is_burst != 0 and lost[env, element] > 0.0 and not is_first(rows, env)
    now = wp.float32(0.0)
    if was_lost:
        if u >= burst_end:
            now = 1.0
    elif u < chance[env, element]:
        now = 1.0
    lost[env, element] = now


@kernel
def _replace(
    rows: Rows, value: wp.array[wp.float32], lost: wp.array2d[wp.float32], values: wp.array2d[wp.float32]
) -> None:
    env, column = masked_tid(rows)
    if lost[env, column] > 0.0:
        values[env, column] = value[column]


@kernel
def _hold(
    rows: Rows, struck: wp.array2d[wp.float32], held: wp.array2d[wp.float32], values: wp.array2d[wp.float32]
) -> None:
    env, column = masked_tid(rows)
    if struck[env, column] > 0.0 and not is_first(rows, env):
        values[env, column] = held[env, column]
    else:
        held[env, column] = values[env, column]


def _parse_chance(value: Any) -> Any:
    if isinstance(value, GilbertElliott):
        return value
    if isinstance(value, Mapping) and value.keys() == {"p", "r"}:
        return GilbertElliott(**value)
    return parse_amount(value)


def _is_chance(value: Any) -> bool:
    return isinstance(value, GilbertElliott) or is_within(value, 0.0, 1.0)


if TYPE_CHECKING:
    Chance = Amount | GilbertElliott
else:
    Chance = Annotated[
        Any, Parsed("float | Distribution | GilbertElliott", _parse_chance, dump_amount), NO_JOINT,
        must(_is_chance, "a probability in [0, 1], or GilbertElliott(p, r)"),
    ]  # fmt: skip


class Dropout(StageCfg):
    """Samples whose value is lost: they arrive in time with a normal timestamp, but hold another value.

    The knob `loss` differs: it models a packet that never arrives, so that the reader keeps an older sample.
    """

    place: ClassVar[Place] = "dropout"
    is_recorded: ClassVar[bool] = True

    probability: Chance
    """Probability per sample: a number, one per element, a distribution drawn per env (and element) at reset, or
    ``GilbertElliott(p, r)`` for bursts."""
    per: Per = "element"
    """``"element"``: each number separately, such as a ray of a lidar; ``"sample"``: all fields of the stage
    together."""
    mode: Literal["hold", "zero", "value", "miss", "nan"] = "hold"
    """Reported value: the last good value (the first sample of an episode is always good), 0, `value`, +inf as for a
    ray without a hit, or NaN."""
    value: Annotated[Amount, SHARED] | None = PydanticField(default=None, validate_default=True)
    """Reported value for ``mode="value"``, in the field's unit: a number, or one per element."""

    @field_validator("value")
    @classmethod
    def _value(cls, value: Any, info: ValidationInfo) -> Any:
        if (value is None) == (info.data.get("mode") == "value"):
            raise bad("a value if and only if mode is 'value'")
        return value

    @property
    def _chance(self) -> Any:
        return self.probability.p if isinstance(self.probability, GilbertElliott) else self.probability

    def keeps_rotations(self) -> bool:
        """Return whether whole samples are replaced by an earlier one or a given one."""
        return self.per == "sample" and self.mode in ("hold", "value")

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the lost elements, the last good values, and the drawn probabilities."""
        specs: dict[str, tuple[int, ...]] = {}
        check_fit(columns, value=self.value)
        groups = _groups(self.per, columns)
        check_fit(groups, probability=self._chance)
        for group, count in groups.items():
            specs[f"lost_{group}"] = (count,)
            if is_drawn(self._chance):
                specs[f"chance_{group}"] = (count,)
        good = {f"good_{field}": (count,) for field, count in columns.items()} if self.mode == "hold" else {}
        return {**specs, **good}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Decide which values are lost (a launch per group), and replace them (a launch per field)."""
        burst = self.probability if isinstance(self.probability, GilbertElliott) else None
        for group, count in _groups(self.per, key.columns).items():
            chance = amount_table(key, self._chance, count, state.get(f"chance_{group}"))
            inputs = [int(burst is not None), burst.r if burst else 1.0, chance, key.stream("lost", group)]
            key.compute.launch(_decide, (count,), inputs, [state[f"lost_{group}"]])
        value = self.value if self.mode == "value" else {"zero": 0.0, "miss": math.inf}.get(self.mode, math.nan)
        for field, columns in key.columns.items():
            lost, values = _decided(self.per, state, "lost", field, columns), column_values(slot[field])
            if self.mode == "hold":
                inputs, outputs = [lost], [state[f"good_{field}"]]
                key.compute.launch(_hold, (columns,), inputs, [*outputs, values])
            else:
                key.compute.launch(_replace, (columns,), [amount_row(key, row(value, columns)), lost], [values])

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Draw the probabilities; the first sample is always good."""
        for group in _groups(self.per, key.columns):
            draw_amount(key, "chance", self._chance, group, state.get(f"chance_{group}"))


# Common base of faults ------------------------------------------------------------------------------------------------

OVER, HEALTHY, BEGINS, LASTS = -1.0, 0.0, 1.0, 2.0
"""Phases of an element: its scheduled fault is over, it is healthy, its fault starts with this sample, or continues."""
_FOREVER = 3.0e38


@kernel
def _advance(
    rows: Rows,
    is_scheduled: int,
    strikes: wp.array[wp.float32],
    onset: wp.array2d[wp.float32],
    duration: ColumnDistribution,
    stream: Stream,
    table: wp.array[wp.vec3],
    began: wp.array2d[wp.float32],
    phase: wp.array2d[wp.float32],
    until: wp.array2d[wp.float32],
) -> None:
    env, element = masked_tid(rows)
    if strikes[element] == 0.0:
        return
    since = float(ticks_since(tick_now(rows), began, env))
    now = phase[env, element]
    if is_first(rows, env):
        now = 0.0
    if now > 0.0:
        now = 2.0
        if since >= until[env, element]:
            now = -1.0
            if is_scheduled == 0:
                now = 0.0
    if now == 0.0:
        words = stream_words(rows, env, tick_now(rows), element, stream)
        start = since
        begins = word_to_uniform(words[0]) < onset[env, element]
        if is_scheduled != 0:
            start = onset[env, element]
            begins = since >= start
        if begins:
            now = 1.0
            until[env, element] = start + draw_value(duration, element, words[1], table)
    phase[env, element] = now


SECONDS = within(0.0, math.inf, "times >= 0 in seconds")
Duration = Annotated[Amount, SECONDS, NO_JOINT]


class _Fault(StageCfg):
    """Common base of faults: their start, their duration and the elements they affect."""

    is_recorded: ClassVar[bool] = True

    probability: Annotated[Amount, within(0.0, 1.0, "a probability in [0, 1]")] | None = None
    """Probability per sample that a healthy element becomes faulty: a number, one per element, or a distribution drawn
    per env (and element) at reset."""
    rate: Annotated[Amount, within(0.0, math.inf, "a rate >= 0 in faults per second")] | None = None
    """The same as faults per second of healthy time, independent of the sampling rate: a number, one per element, or a
    distribution."""
    start: Annotated[Amount, SECONDS] | None = PydanticField(default=None, validate_default=True)
    """Time of a single fault after the reset, s, instead of random faults: a number, one per element, or a distribution
    drawn per env (and element) at reset. The fault starts with the first sample at or after that time."""
    duration: Duration | None = None
    """Duration of a fault, s: a number, one per element, or a distribution redrawn for each fault; None lasts until the
    reset. A fault affects at least one sample."""
    per: Per = "element"
    """``"element"``: each number separately; ``"sample"``: all fields of the stage together."""
    elements: Annotated[tuple[int, ...], must(lambda elements: min(elements, default=0) >= 0, "indices >= 0")] = ()
    """Elements that can be affected, as indices into the flattened field (2 is z of a vector); empty means all."""

    @field_validator("start")
    @classmethod
    def _start(cls, value: Any, info: ValidationInfo) -> Any:
        given = [name for name in ("probability", "rate") if info.data.get(name) is not None]
        if len(given) + (value is not None) != 1 and info.data.keys() >= {"probability", "rate"}:
            raise bad("exactly one of probability, rate and start")
        return value

    @field_validator("elements")
    @classmethod
    def _elements(cls, value: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if value and info.data.get("per") == "sample":
            raise bad("no elements with per='sample'", "Omit elements, since a whole sample is affected.")
        return value

    def _onset(self, key: StageKey) -> Any:
        """Return the probability per sample, or the tick after the reset, of the start of a fault."""
        if self.start is not None:
            return converted(self.start, lambda value: in_ticks(value, key))
        if self.rate is None:
            return self.probability
        return converted(self.rate, lambda value: _times(value, key.period))

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if the rate requires more than one fault per sample."""
        if self.rate is not None and not isinstance(self.rate, Normal) and amount_bounds(self.rate)[1] * period > 1.0:
            raise ValueError(f"a rate of at most one fault per sample, {1.0 / period:g} per second")

    @property
    def _written(self) -> Any:
        return next(amount for amount in (self.probability, self.rate, self.start) if amount is not None)

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return phase and end of each element's fault, the tick of the first sample, and the drawn starts."""
        specs: dict[str, tuple[int, ...]] = {"began": (BEGAN,)}
        groups = _groups(self.per, columns)
        check_fit(groups, onset=self._written, duration=self.duration)
        for group, count in groups.items():
            if self.elements and max(self.elements) >= count:
                raise ValueError(f"elements below {count}, the number of columns of {group!r}")
            specs |= {f"phase_{group}": (count,), f"until_{group}": (count,)}
            if is_drawn(self._written):
                specs[f"onset_{group}"] = (count,)
        return specs

    def _advance(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Start and end faults (a launch per group, and one that acts only at a reset)."""
        launch_start(key, state["began"])
        duration = _FOREVER if self.duration is None else converted(self.duration, lambda value: in_ticks(value, key))
        for group, count in _groups(self.per, key.columns).items():
            strikes = np.zeros(count) if self.elements else np.ones(count)
            strikes[list(self.elements)] = 1.0
            onset = self._onset(key)
            if self.start is not None and not is_drawn(onset):
                onset = tuple(np.ceil(row(onset, count)).tolist())
            onsets = amount_table(key, onset, count, state.get(f"onset_{group}"))
            law = [amount_distribution(key, duration, count), key.stream("onset", group)]
            inputs = [int(self.start is not None), amount_row(key, strikes), onsets, *law]
            inputs += [normal_table(key.compute.wp_device), state["began"]]
            key.compute.launch(_advance, (count,), inputs, [state[f"phase_{group}"], state[f"until_{group}"]])

    def reset(self, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Set all states to zero, and draw the starts."""
        super().reset(state, key)
        for group in _groups(self.per, key.columns):
            draw_amount(key, "onset_law", self._onset(key), group, state.get(f"onset_{group}"))


def _times(value: Any, factor: float) -> Any:
    """Return a number or a (nested) vector of numbers times a factor."""
    return tuple(_times(part, factor) for part in value) if isinstance(value, tuple) else value * factor


# The faults -----------------------------------------------------------------------------------------------------------


class StuckFault(_Fault):
    """A value that freezes: during the fault it equals the last value before the fault.

    A fault that starts with the first sample of an episode freezes that sample.
    """

    place: ClassVar[Place] = "dropout"

    def keeps_rotations(self) -> bool:
        """Return whether whole samples freeze."""
        return self.per == "sample"

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the held values in addition to the common states of faults."""
        return {**super().state_specs(columns), **{f"held_{field}": (count,) for field, count in columns.items()}}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Freeze values (one launch per field in addition to those of all faults)."""
        self._advance(state, key)
        for field, columns in key.columns.items():
            outputs = [state[f"held_{field}"], column_values(slot[field])]
            key.compute.launch(_hold, (columns,), [_decided(self.per, state, "phase", field, columns)], outputs)


@kernel
def _spike(
    rows: Rows,
    phase: wp.array2d[wp.float32],
    amount: ColumnDistribution,
    stream: Stream,
    table: wp.array[wp.vec3],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    if phase[env, column] > 0.0:
        words = stream_words(rows, env, tick_now(rows), column / 4, stream)
        values[env, column] = values[env, column] + draw_value(amount, column, words[column % 4], table)


class SpikeFault(_Fault):
    """Outliers: an amount is added to single samples, or to each sample during the fault."""

    place: Place = "bias"  # type: ignore[misc]  # a choice of each instance
    """Place in the chain: ``"bias"`` keeps the full scale and resolution of the device; ``"dropout"`` models errors
    after the device; any other place is allowed."""
    duration: Duration | None = 0.0
    """Duration of a fault, s; 0 affects one sample. A number, one per element, or a distribution redrawn for each
    fault; None lasts until the reset."""
    amount: Annotated[Amount, NO_JOINT]
    """Added amount, in the field's unit: a number, one per element, or a distribution redrawn for each sample and
    element; ``Choice((-5.0, 5.0))`` has a random sign."""

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the common states of faults."""
        check_fit(columns, amount=self.amount)
        return super().state_specs(columns)

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Add the amounts (one launch per field in addition to those of all faults)."""
        self._advance(state, key)
        for field, columns in key.columns.items():
            phase, law = _decided(self.per, state, "phase", field, columns), key.stream("amount", field)
            amount, table = amount_distribution(key, self.amount, columns), normal_table(key.compute.wp_device)
            key.compute.launch(_spike, (columns,), [phase, amount, law, table], [column_values(slot[field])])


@kernel
def _rail(
    rows: Rows,
    phase: wp.array2d[wp.float32],
    high_chance: float,
    low: wp.array[wp.float32],
    high: wp.array[wp.float32],
    stream: Stream,
    rail: wp.array2d[wp.float32],
    values: wp.array2d[wp.float32],
) -> None:
    env, column = masked_tid(rows)
    if phase[env, column] == 1.0:
        words = stream_words(rows, env, tick_now(rows), column / 4, stream)
        end = low[column]
        if word_to_uniform(words[column % 4]) < high_chance:
            end = high[column]
        rail[env, column] = end
    if phase[env, column] > 0.0:
        values[env, column] = rail[env, column]


OF_DEVICE = not_drawn("Give fixed numbers for the device.")


class SaturationFault(_Fault):
    """A value that stays at a rail during the fault, whatever the true value is."""

    place: ClassVar[Place] = "dropout"

    high: Annotated[Amount, OF_DEVICE]
    """Upper rail, in the field's unit: a number, or one per axis."""
    low: Annotated[Amount | None, OF_DEVICE, below_high("rail")] = PydanticField(default=None, validate_default=True)
    """Lower rail; by default minus `high`."""
    rail: Literal["low", "high", "random"] = "random"
    """Rail of the fault; ``"random"`` draws it for each fault and element."""

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return the rail of each element in addition to the common states of faults."""
        check_fit(columns, high=self.high, low=self.low)
        return {**super().state_specs(columns), **{f"rail_{field}": (count,) for field, count in columns.items()}}

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        """Set values to the rail (one launch per field in addition to those of all faults)."""
        self._advance(state, key)
        chance = {"low": 0.0, "high": 1.0, "random": 0.5}[self.rail]
        for field, columns in key.columns.items():
            ends = [amount_row(key, end) for end in ends_row(self.low, self.high, columns)]
            inputs = [_decided(self.per, state, "phase", field, columns), chance, *ends, key.stream("rail", field)]
            outputs = [state[f"rail_{field}"], column_values(slot[field])]
            key.compute.launch(_rail, (columns,), inputs, outputs)
