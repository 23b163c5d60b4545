"""Knobs: how much of each imperfection, per column, shared by all envs until they are set per env.

A knob that the config gives becomes a row of float32 `[1, column]` that all envs share (stride 0), or a table
`[env, column]` where it is a distribution (drawn per env at each reset) or was set for some envs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from sensorium.cfg import COLUMN_KNOBS, LARGEST, parse_amount
from sensorium.compute import Compute
from sensorium.compute.clock import Clock
from sensorium.errors import ConfigError, Fault, UnknownNameError, shown
from sensorium.measurement.draws import Spread, draw_columns, is_law, law_of, stream_of
from sensorium.measurement.plan import SensorPlan
from sensorium.random import Normal, normal_table, stream_key
from sensorium.spec import FieldSpec

CHAIN_KNOBS = ("noise", "bias", "random_walk", "resolution")
"""The knobs of the standard chain, per column."""
NON_NEGATIVE = ("noise", "random_walk", "resolution", "delay", "loss")

Row = np.ndarray[Any, np.dtype[np.float32]]


class KnobTable:
    """One knob of one field.

    Args:
        plan: whose knob it is.
        compute: device and masks.
        knob: its name.
        field: index of the field; 0 for what belongs to none.
        amount: what the config gives: a number, one for each column, or a distribution.
        columns: number of columns.
        spread: from a number or a vector to a row.
        moved: called when `values` moved in memory.

    Attributes:
        values: float32 `[1, column]` shared by all envs, or `[env, column]`.
    """

    def __init__(
        self,
        plan: SensorPlan,
        compute: Compute,
        knob: str,
        field: int,
        amount: Any,
        columns: int,
        spread: Spread,
        moved: Callable[[], object],
    ) -> None:
        self._compute, self._moved = compute, moved
        self._draw: list[Any] | None = None
        if not is_law(amount):
            self.values = torch.from_numpy(spread(amount)[None].copy()).to(compute.device)
            return
        self.values = torch.zeros((compute.num_envs, columns), dtype=torch.float32, device=compute.device)
        stream = stream_of(field, stream_key(plan.seed, plan.label, f"knob/{knob}"))
        law, table = law_of(amount, columns, spread, compute.wp_device), normal_table(compute.wp_device)
        self._draw = [law, int(knob in NON_NEGATIVE), stream, table]

    @property
    def stride(self) -> int:
        """Elements from one env to the next: 0 while all envs share one row."""
        return 0 if self.values.shape[0] == 1 else self.values.shape[1]

    def redraw(self) -> None:
        """Draw the envs of the active mask anew, where the knob is a distribution."""
        if self._draw is not None:
            self._compute.launch(draw_columns, (self.values.shape[1],), self._draw, [self.values])

    def give_rows(self) -> None:
        """Give each env a row of its own; from then on the address of the values stays."""
        if self.values.shape[0] != self._compute.num_envs:
            self.values = self.values.expand(self._compute.num_envs, -1).contiguous()
            self._moved()

    def set(self, row: np.ndarray[Any, Any], env_ids: torch.Tensor | None) -> None:
        """Write `[column]` or `[n, column]` values for all envs or for some; others keep theirs."""
        values = torch.from_numpy(np.ascontiguousarray(row)).to(self.values)
        if env_ids is not None or values.dim() == 2:
            self.give_rows()
        if env_ids is None:
            self.values.copy_(values.expand_as(self.values))
        else:
            self.values[env_ids] = values


class Knobs:
    """All column knobs of one sensor.

    Args:
        plan: the sensor's plan, with its config and the fields that the chain works on.
        compute: device and masks.
        clock: time.
        moved: called when a table moved in memory.

    Raises:
        ConfigError: every fault of every knob.
    """

    def __init__(self, plan: SensorPlan, compute: Compute, clock: Clock, moved: Callable[[], object]) -> None:
        self._plan, self._compute, self._moved = plan, compute, moved
        self._rate_hz = 1.0 / (clock.dt * plan.rate.period)
        self.tables: dict[tuple[str, str], KnobTable] = {}
        written: dict[tuple[str, str], str] = {}
        faults: list[Fault] = []
        for name in COLUMN_KNOBS:
            knob = name.removesuffix("_density")
            for field, amount, where in self._given(name, faults):
                if other := written.get((knob, field)):
                    fix = f"It is also given as {other}."
                    faults.append(Fault(where, shown(amount), f"one amount for {field}", fix))
                    continue
                written[knob, field] = where
                try:
                    self.tables[knob, field] = self._table(knob, field, amount, self._factor(name))
                except ValueError as error:
                    faults.append(Fault(where, shown(amount), str(error)))
        if faults:
            raise ConfigError(plan.title, faults)

    # What the config says ---------------------------------------------------------------------------------------------

    def _given(self, knob: str, faults: list[Fault]) -> list[tuple[str, Any, str]]:
        """Return field, amount and the config field it was written in, for one knob as the config writes it."""
        plan, value = self._plan, getattr(self._plan.cfg, knob)
        out = []
        if isinstance(value, Mapping):
            for name, amount in value.items():
                try:
                    out.append((self._field_of(name), amount, f"{knob}[{name!r}]"))
                except UnknownNameError as error:
                    faults.append(Fault(knob, repr(name), "a field of this sensor", str(error)))
        elif value is not None:
            units = {spec.unit for _, spec in plan.chained.values()}
            if len(units) > 1:
                units_text, example = ", ".join(sorted(units)), next(iter(plan.chained))
                expected = f"one amount per field, since this sensor's fields have the units {units_text}"
                faults.append(Fault(knob, shown(value), expected, f"Write {knob}={{{example!r}: ...}}."))
            else:
                out.extend((name, value, knob) for name in plan.chained)
        for prefix, field in plan.prefixes.items():
            name = f"{prefix}_{knob}"
            amount = getattr(plan.cfg, name, None)
            if isinstance(amount, Mapping):
                faults.append(Fault(name, shown(amount), f"one amount: it is for {field!r} alone"))
            elif amount is not None and field not in plan.chained:
                faults.append(Fault(name, shown(amount), f"the field {field!r} among `fields`", f"Add {field!r}."))
            elif amount is not None:
                out.append((field, amount, name))
        return out

    def _factor(self, knob: str) -> float:
        """Return the factor from an amount to the number per sample, which depends on the rate for densities."""
        if not knob.endswith("_density"):
            return 1.0
        return float(self._rate_hz ** (0.5 if knob == "noise_density" else -0.5))

    def _field_of(self, name: str) -> str:
        """Return the field that a name or a prefix means."""
        plan = self._plan
        field = plan.prefixes.get(name, name)
        if field not in plan.chained:
            raise UnknownNameError(f"field of sensor {plan.label!r}", name, [*plan.chained, *plan.prefixes])
        return field

    def _row(self, spec: FieldSpec, amount: Any, knob: str, factor: float) -> Row:
        """Spread one amount over a field's columns (rotations: rotation vector in rad, then 0).

        Raises:
            ValueError: it does not fit, or is negative where it must not be.
        """
        values, shape = np.asarray(amount, np.float64) * factor, _shape(spec)
        lead = values.shape[: max(values.ndim - len(shape), 0)]
        if spec.kind == "rotation" and knob == "resolution":
            raise ValueError("no resolution for a rotation")
        try:
            full = np.broadcast_to(values, (*lead, *shape))
        except ValueError:
            raise ValueError(f"a number or an array that fits {shape} ({', '.join(spec.axes)})") from None
        if not (np.abs(full) <= LARGEST).all():
            raise ValueError(f"finite numbers of at most {LARGEST:.3g} in size per sample")
        if knob in NON_NEGATIVE and full.size and full.min() < 0.0:
            raise ValueError("nothing negative")
        if spec.kind == "rotation":
            full = np.concatenate([full, np.zeros((*full.shape[:-1], 1))], axis=-1)
        return np.ascontiguousarray(full.reshape(*lead, -1), np.float32)

    def _table(self, knob: str, field: str, amount: Any, factor: float) -> KnobTable:
        index, spec = self._plan.chained[field]
        signed = isinstance(amount, Normal)  # what it draws is clipped, so its mean and spread need no check

        def spread(value: Any) -> Row:
            row = self._row(spec, value, "" if signed else knob, factor)
            if row.ndim != 1:
                raise ValueError(f"a number or an array that fits {spec.shape}")
            return row

        return KnobTable(self._plan, self._compute, knob, index, amount, spec.columns, spread, self._moved)

    # At run time ------------------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        """Draw every distribution anew for the envs of the active mask."""
        for table in self.tables.values():
            table.redraw()

    def set(self, knob: str, value: Any, env_ids: torch.Tensor | None) -> None:
        """Set a live knob: an amount, `[n, ...]` amounts for n env ids, or a mapping from field to these.

        Raises:
            UnknownNameError: no such knob or field.
            ConfigError: the knob was absent from the config, or the value does not fit.
        """
        plan = self._plan
        knob, field = self._parse_name(knob)
        factor, knob = self._factor(knob), knob.removesuffix("_density")
        if isinstance(value, Mapping):
            amounts = {self._field_of(name): amount for name, amount in value.items()}
        elif field is not None:
            amounts = {field: value}
        else:
            fields = [name for known, name in self.tables if known == knob]
            if len({plan.chained[name][1].unit for name in fields}) > 1:
                raise ConfigError.single(plan.title, knob, value, "one amount per field", f"Fields: {fields}.")
            amounts = dict.fromkeys(fields or plan.chained, value)
        rows = self._compute.num_envs if env_ids is None else len(env_ids)
        for name, amount in amounts.items():
            table = self.tables.get((knob, name))
            if table is None:
                raise ConfigError.single(
                    plan.title, knob, amount, f"a knob that the config gives for {name!r}",
                    f"Absent knobs take no memory: give {knob}=0 in the config, or use "
                    f"scene.reconfigure({plan.label!r}, ...).",
                )  # fmt: skip
            if is_law(amount):
                fix = "A distribution belongs into the config."
                raise ConfigError.single(plan.title, knob, amount, "numbers", fix)
            spec = plan.chained[name][1]
            try:
                table.set(self._row(spec, _array(spec, amount, rows), knob, factor), env_ids)
            except (ValueError, TypeError, RuntimeError) as error:
                raise ConfigError.single(plan.title, knob, amount, str(error)) from None

    def _parse_name(self, knob: str) -> tuple[str, str | None]:
        """Return a knob without its prefix, and the field that the prefix means."""
        prefixes = self._plan.prefixes
        prefix, _, rest = knob.partition("_")
        if knob in COLUMN_KNOBS:
            return knob, None
        if prefix in prefixes and rest in COLUMN_KNOBS:
            return rest, prefixes[prefix]
        names = [*COLUMN_KNOBS, *(f"{prefix}_{name}" for prefix in prefixes for name in COLUMN_KNOBS)]
        raise UnknownNameError(f"knob of sensor {self._plan.label!r}", knob, names)


def _shape(spec: FieldSpec) -> tuple[int, ...]:
    """Return the shape of a field's amounts: a rotation has a rotation vector."""
    return (*spec.shape[:-1], 3) if spec.kind == "rotation" else spec.shape


def _array(spec: FieldSpec, amount: Any, rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return an amount that was set at run time as an array: one for all envs, or for each of `rows` envs."""
    if isinstance(amount, torch.Tensor):
        amount = amount.detach().cpu().numpy()
    if not isinstance(amount, np.ndarray):
        parse_amount(amount)
    array, shape = np.asarray(amount, np.float64), _shape(spec)
    try:
        if np.broadcast_shapes(array.shape, shape) == shape:  # as the config writes it
            return array
    except ValueError:
        pass
    if array.shape == (rows,):
        return array.reshape(-1, *(1,) * len(shape))  # one amount per env
    return array[:, None] if array.shape == (rows, *spec.shape[1:]) else array  # without the axis of a single mount


__all__ = ["CHAIN_KNOBS", "KnobTable", "Knobs"]
