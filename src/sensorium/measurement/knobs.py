"""Knobs: the amount of each imperfection per column, shared by all envs until set per env.

A knob of the config is a row of float32 `[1, column]` shared by all envs (stride 0). It is a table `[env, column]` if
it is a distribution (drawn per env at each reset) or was set for some envs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch

from sensorium.cfg import COLUMN_KNOBS, LARGEST, parse_amount
from sensorium.compute import Compute
from sensorium.compute.clock import Clock
from sensorium.errors import ConfigError, Fault, UnknownNameError, shown
from sensorium.measurement.draws import Spread, column_distribution, draw_columns, is_drawn, stream_of
from sensorium.measurement.plan import SensorPlan
from sensorium.random import Normal, normal_table, stream_key
from sensorium.spec import FieldSpec

CHAIN_KNOBS = ("noise", "bias", "random_walk", "resolution")
"""Knobs of the standard chain, per column."""
NON_NEGATIVE = ("noise", "random_walk", "resolution", "delay", "loss")

Row = np.ndarray[Any, np.dtype[np.float32]]


class KnobTable:
    """One knob of one field.

    Args:
        plan: plan of the sensor.
        compute: device and masks.
        knob: name of the knob.
        field: index of the field; 0 for a knob of no field.
        amount: value in the config: a number, one per column, or a distribution.
        columns: number of columns.
        spread: converts a number or a vector to a row.
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
        if not is_drawn(amount):
            self.values = torch.from_numpy(spread(amount)[None].copy()).to(compute.device)
            return
        self.values = torch.zeros((compute.num_envs, columns), dtype=torch.float32, device=compute.device)
        stream = stream_of(field, stream_key(plan.seed, plan.label, f"knob/{knob}"))
        distribution = column_distribution(amount, columns, spread, compute.wp_device)
        self._draw = [distribution, columns, int(knob in NON_NEGATIVE), stream, normal_table(compute.wp_device)]

    @property
    def stride(self) -> int:
        """Number of elements from one env to the next: 0 while all envs share one row."""
        return 0 if self.values.shape[0] == 1 else self.values.shape[1]

    def redraw(self) -> None:
        """Redraw the envs of the active mask if the knob is a distribution."""
        if self._draw is not None:
            self._compute.launch(draw_columns, (self.values.shape[1],), self._draw, [self.values])

    def give_rows(self) -> None:
        """Give each env a separate row; from then on the address of the values is fixed."""
        if self.values.shape[0] != self._compute.num_envs:
            self.values = self.values.expand(self._compute.num_envs, -1).contiguous()
            self._moved()

    def set(self, row: np.ndarray[Any, Any], env_ids: torch.Tensor | None) -> None:
        """Write `[column]` or `[n, column]` values for all envs or some; others keep their values."""
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
        plan: plan of the sensor, with its config and the fields of the chain.
        compute: device and masks.
        clock: clock of the scene.
        moved: called when a table moved in memory.

    Raises:
        ConfigError: knobs have faults, all of which are listed.
    """

    def __init__(self, plan: SensorPlan, compute: Compute, clock: Clock, moved: Callable[[], object]) -> None:
        self._plan, self._compute, self._moved = plan, compute, moved
        self._rate_hz = 1.0 / (clock.dt * plan.rate.period)
        self._names: dict[str, tuple[str, str | None]] = {knob: (knob, None) for knob in COLUMN_KNOBS}
        """Name in the config -> knob, with the field if the name has a prefix."""
        for prefix, field in plan.prefixes.items():
            self._names |= {f"{prefix}_{knob}": (knob, field) for knob in COLUMN_KNOBS}
        self.tables: dict[tuple[str, str], KnobTable] = {}
        written: dict[tuple[str, str], str] = {}
        faults: list[Fault] = []
        for name in self._names:
            for key, amount in self._amounts(name, getattr(plan.cfg, name, None)):
                where = name if key is None else f"{name}[{key!r}]"
                try:
                    for at in self._targets(name, key, amount, plan.chained):
                        if at in written:
                            expected, fix = f"one amount for {at[1]}", f"It is also given as {written[at]}."
                            raise ConfigError.single(plan.cfg.title, where, amount, expected, fix)
                        written[at] = where
                        self.tables[at] = self._table(*at, amount, self._factor(name))
                except UnknownNameError as error:
                    faults.append(Fault(name, repr(key), "a field of this sensor", str(error)))
                except ConfigError as error:
                    faults += error.faults
                except ValueError as error:
                    faults.append(Fault(where, shown(amount), str(error)))
        if faults:
            raise ConfigError(plan.cfg.title, faults)

    def _amounts(self, name: str, value: Any) -> list[tuple[str | None, Any]]:
        """Return the amounts of a knob: by field, or a single one."""
        if isinstance(value, Mapping) and self._names[name][1] is None:
            return list(value.items())
        return [] if value is None else [(None, value)]

    def _targets(self, name: str, key: str | None, amount: Any, fields: Collection[str]) -> list[tuple[str, str]]:
        """Return the knob and the fields that an amount applies to.

        Args:
            name: name of the knob in the config.
            key: field or its prefix; None if it is determined by the name, or not given.
            amount: the amount.
            fields: fields that an amount applies to by default.

        Raises:
            UnknownNameError: there is no such field.
            ConfigError: the name allows a single amount only, or the amount would apply to fields of several units.
        """
        plan, (knob, field) = self._plan, self._names[name]
        knob = knob.removesuffix("_density")
        if field is not None:
            if isinstance(amount, Mapping):
                raise ConfigError.single(plan.cfg.title, name, amount, f"one amount: it applies only to {field!r}")
            if field not in plan.chained:
                fix = f"Add {field!r}."
                raise ConfigError.single(plan.cfg.title, name, amount, f"the field {field!r} among `fields`", fix)
            return [(knob, field)]
        if key is not None:
            field = plan.prefixes.get(key, key)
            if field not in plan.chained:
                raise UnknownNameError(f"field of sensor {plan.label!r}", key, [*plan.chained, *plan.prefixes])
            return [(knob, field)]
        units = sorted({plan.chained[each][1].unit for each in fields})
        if len(units) > 1:
            expected = f"one amount per field, since this sensor's fields have the units {', '.join(units)}"
            fix = f"Write {name}={{{next(iter(fields))!r}: ...}}."
            raise ConfigError.single(plan.cfg.title, name, amount, expected, fix)
        return [(knob, each) for each in fields]

    def _factor(self, name: str) -> float:
        """Return the factor from an amount to a value per sample; for densities it depends on the rate."""
        if not name.endswith("_density"):
            return 1.0
        return float(self._rate_hz ** (-0.5 if name.endswith("random_walk_density") else 0.5))

    def _row(self, spec: FieldSpec, amount: Any, knob: str, factor: float) -> Row:
        """Spread one amount over a field's columns (rotations: rotation vector in rad, then 0).

        Raises:
            ValueError: the amount does not fit, or is negative where that is invalid.
        """
        values, shape = np.asarray(amount, np.float64) * factor, _shape(spec)
        lead = values.shape[: max(values.ndim - len(shape), 0)]
        if spec.kind == "rotation" and knob == "resolution":
            raise ValueError("no resolution: rotations do not support it")
        try:
            full = np.broadcast_to(values, (*lead, *shape))
        except ValueError:
            raise ValueError(f"a number or an array that fits {shape} ({', '.join(spec.axes)})") from None
        if not (np.abs(full) <= LARGEST).all():
            raise ValueError(f"finite numbers of magnitude at most {LARGEST:.3g} per sample")
        if knob in NON_NEGATIVE and full.size and full.min() < 0.0:
            raise ValueError("no negative numbers")
        if spec.kind == "rotation":
            full = np.concatenate([full, np.zeros((*full.shape[:-1], 1))], axis=-1)
        return np.ascontiguousarray(full.reshape(*lead, -1), np.float32)

    def _table(self, knob: str, field: str, amount: Any, factor: float) -> KnobTable:
        index, spec = self._plan.chained[field]
        signed = isinstance(amount, Normal)  # its draws are clipped, so its parameters need no sign check

        def spread(value: Any) -> Row:
            row = self._row(spec, value, "" if signed else knob, factor)
            if row.ndim != 1:
                raise ValueError(f"a number or an array that fits {spec.shape}")
            return row

        return KnobTable(self._plan, self._compute, knob, index, amount, spec.columns, spread, self._moved)

    # At run time ------------------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        """Redraw every distribution for the envs of the active mask."""
        for table in self.tables.values():
            table.redraw()

    def get(self, name: str) -> torch.Tensor:
        """Return a copy of a knob's current amounts, float32 `[env, mount, ...]`; see `Sensor.get`."""
        plan, (knob, _, key) = self._plan, name.partition(".")
        if knob not in self._names:
            raise UnknownNameError(f"knob of sensor {plan.label!r}", name, self._names)
        plain, field = self._names[knob][0].removesuffix("_density"), self._names[knob][1]
        wanted = field or plan.prefixes.get(key, key)
        found = [at for at in self.tables if at[0] == plain and (at[1] == wanted or not wanted)]
        if len(found) != 1:
            given = ", ".join(f"{plain}.{field}" for _, field in found)
            expected = f"one of {given}" if found else "a knob that the config gives"
            raise ConfigError.single(plan.cfg.title, name, "several fields" if found else None, expected)
        values, spec = self.tables[found[0]].values / self._factor(knob), plan.chained[found[0][1]][1]
        full = values.expand(self._compute.num_envs, -1).reshape(self._compute.num_envs, *spec.shape)
        return full[..., :3].clone() if spec.kind == "rotation" else full.clone()

    def set(self, knob: str, value: Any, env_ids: torch.Tensor | None) -> None:
        """Set a knob at run time: an amount, `[n, ...]` amounts for n env ids, or a mapping from field to amounts.

        ``"bias.FIELD"`` sets that of one field.

        Raises:
            UnknownNameError: there is no such knob or field.
            ConfigError: the knob was absent from the config, or the value does not fit.
        """
        plan = self._plan
        knob, _, named = knob.partition(".")
        value = {named: value} if named else value
        if knob not in self._names:
            raise UnknownNameError(f"knob of sensor {plan.label!r}", knob, self._names)
        plain = self._names[knob][0].removesuffix("_density")
        given = [field for known, field in self.tables if known == plain] or list(plan.chained)
        rows = self._compute.num_envs if env_ids is None else len(env_ids)
        for key, amount in self._amounts(knob, value):
            of_all = key is None and self._names[knob][1] is None
            is_absent = of_all and not any(known == plain for known, _ in self.tables)
            targets = [(plain, field) for field in given] if is_absent else self._targets(knob, key, amount, given)
            if not targets:
                expected = "no such knob, since it alters no field of this sensor"
                raise ConfigError.single(plan.cfg.title, knob, amount, expected)
            for at in targets:
                table, spec = self.tables.get(at), plan.chained[at[1]][1]
                if table is None:
                    units = {plan.chained[each][1].unit for _, each in targets}
                    zero = 0.0 if key is None and len(units) == 1 else {each: 0.0 for _, each in targets}
                    raise ConfigError.single(
                        plan.cfg.title, knob, amount, f"a knob that the config gives for {at[1]!r}",
                        f"Absent knobs take no memory: give {knob}={zero} in the config, or use "
                        f"scene.reconfigure({plan.label!r}, {knob}=...).",
                    )  # fmt: skip
                if is_drawn(amount):
                    fix = "A distribution belongs in the config."
                    raise ConfigError.single(plan.cfg.title, knob, amount, "numbers", fix)
                try:
                    table.set(self._row(spec, _array(spec, amount, rows), plain, self._factor(knob)), env_ids)
                except (ValueError, TypeError, RuntimeError) as error:
                    raise ConfigError.single(plan.cfg.title, knob, amount, str(error)) from None


def _shape(spec: FieldSpec) -> tuple[int, ...]:
    """Return the shape of a field's amounts: for a rotation, that of a rotation vector."""
    return (*spec.shape[:-1], 3) if spec.kind == "rotation" else spec.shape


def _array(spec: FieldSpec, amount: Any, rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return an amount set at run time as an array: one for all envs, or one for each of `rows` envs.

    Raises:
        ValueError: an array could be both.
    """
    if isinstance(amount, torch.Tensor):
        amount = amount.detach().cpu().numpy()
    is_array = isinstance(amount, np.ndarray)
    if not is_array:
        parse_amount(amount)
    array, shape = np.asarray(amount, np.float64), _shape(spec)
    is_row = _fits(array.shape, shape)  # the form accepted in a config
    if array.ndim == 0 or len(array) != rows or not _fits(array.shape[1:], shape) or (is_row and not is_array):
        return array
    if is_row and rows > 1:
        per_env, same = (rows, *(1,) * len(shape)), (1, *shape)
        raise ValueError(f"a clear array: of shape {per_env} for one per env, or {same} for the same in all envs")
    return array.reshape(rows, *(1,) * (len(shape) + 1 - array.ndim), *array.shape[1:])


def _fits(part: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether an array of one shape can be repeated to fill another one."""
    ends = zip(part[::-1], shape[::-1], strict=False)
    return len(part) <= len(shape) and all(length in (1, whole) for length, whole in ends)
