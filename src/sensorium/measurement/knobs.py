"""Knobs: how much of each imperfection, per column, shared by all envs until they are set per env.

A knob that the config gives becomes a row of float32 `[1, column]` that all envs share (stride 0), or a table
`[env, column]` where it is a distribution (drawn per env at each reset) or was set for some envs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import warp as wp

from sensorium.cfg import COLUMN_KNOBS, LARGEST, SimpleSensorCfg, amount_bounds, parse_amount
from sensorium.compute import Compute
from sensorium.compute.clock import Clock
from sensorium.errors import ConfigError, Fault, UnknownNameError, shown
from sensorium.measurement.draws import draw_columns, law_of, stream_of
from sensorium.random import Choice, Distribution, Normal, Uniform, normal_table, stream_key
from sensorium.spec import FieldSpec

CHAIN_KNOBS = ("noise", "bias", "random_walk", "resolution")
"""The knobs of the standard chain, per column."""
NON_NEGATIVE = ("noise", "random_walk", "resolution", "delay", "loss")


class KnobTable:
    """One knob of one field.

    Attributes:
        values: float32 `[1, column]` shared by all envs, or `[env, column]`.
        distribution: what it is redrawn from at each reset, or None.
    """

    def __init__(
        self,
        compute: Compute,
        knob: str,
        field: int,
        row: np.ndarray[Any, np.dtype[np.float32]] | None,
        distribution: tuple[Distribution, int, Callable[[Any], np.ndarray[Any, Any]]] | None,
        key: tuple[int, int],
        changed: Callable[[], None],
    ) -> None:
        self._compute = compute
        self._changed = changed
        self.knob = knob
        self.distribution = distribution[0] if distribution else None
        self._launch: tuple[list[Any], int] | None = None
        if distribution is None:
            assert row is not None
            self.values = torch.from_numpy(row[None].copy()).to(compute.device)
            return
        law, columns, spread = distribution
        self.values = torch.zeros((compute.num_envs, columns), dtype=torch.float32, device=compute.device)
        device = compute.wp_device
        law = law_of(law, columns, spread, device)
        self._launch = [law, int(knob in NON_NEGATIVE), stream_of(field, key), normal_table(device)], columns

    @property
    def stride(self) -> int:
        """Elements from one env to the next: 0 while all envs share one row."""
        return 0 if self.values.shape[0] == 1 and self._launch is None else self.values.shape[1]

    def redraw(self) -> None:
        """Draw the envs of the active mask anew, where the knob is a distribution."""
        if self._launch is not None:
            inputs, columns = self._launch
            self._compute.launch(draw_columns, (columns,), inputs, [wp.from_torch(self.values, dtype=wp.float32)])

    def set(self, row: np.ndarray[Any, np.dtype[np.float32]], env_ids: torch.Tensor | None) -> None:
        """Write `[column]` or `[n, column]` values for all envs or for some; others keep theirs."""
        values = torch.from_numpy(np.ascontiguousarray(row)).to(self.values)
        if env_ids is None and values.dim() == 1:
            self.values.copy_(values.expand_as(self.values))
            return
        if self.values.shape[0] != self._compute.num_envs:
            self.values = self.values.expand(self._compute.num_envs, -1).contiguous()
            self._changed()
        if env_ids is None:
            self.values.copy_(values)
        else:
            self.values[env_ids] = values


class Knobs:
    """All column knobs of one sensor.

    Args:
        cfg: the sensor's config.
        specs: the fields the chain works on, in the order of the data class (with their index there).
        label: the sensor's name.
        seed: the scene's seed.
        prefixes: short prefixes for fields, e.g. ``{"gyro": "ang_vel_b"}``.
        changed: called when a table moved in memory.
    """

    def __init__(
        self,
        compute: Compute,
        clock: Clock,
        cfg: SimpleSensorCfg[Any],
        specs: Mapping[str, tuple[int, FieldSpec]],
        *,
        label: str,
        seed: int,
        rate_hz: float,
        prefixes: Mapping[str, str],
        changed: Callable[[], None],
    ) -> None:
        self.compute = compute
        self.clock = clock
        self.cfg = cfg
        self.label = label
        self.rate_hz = rate_hz
        self.prefixes = dict(prefixes)
        self.specs = dict(specs)
        self.tables: dict[tuple[str, str], KnobTable] = {}
        self._changed = changed
        faults: list[Fault] = []
        for knob in CHAIN_KNOBS:
            for field, (amount, factor, written) in self._given(knob, faults).items():
                try:
                    self.tables[knob, field] = self._table(knob, field, amount, factor, seed)
                except ValueError as error:
                    faults.append(Fault(written, shown(amount), str(error)))
        if faults:
            raise ConfigError(f"{type(cfg).__name__}({label!r})", faults)

    def __repr__(self) -> str:
        return f"Knobs({', '.join(f'{knob}[{field}]' for knob, field in self.tables)})"

    # What the config says ---------------------------------------------------------------------------------------------

    def _given(self, knob: str, faults: list[Fault]) -> dict[str, tuple[Any, float, str]]:
        """Return field -> (amount, factor to per-sample units, the config field it was written in)."""
        found: dict[str, tuple[Any, float, str]] = {}
        density_factor = self.rate_hz**0.5 if knob == "noise" else self.rate_hz**-0.5
        variants = [(knob, 1.0)]
        if knob in ("noise", "random_walk"):
            variants.append((f"{knob}_density", density_factor))
        for written, factor in variants:
            for field, amount, where in self._spread(written, faults):
                if field in found:
                    faults.append(
                        Fault(
                            where, shown(amount), f"one amount for {field}", f"It is also given as {found[field][2]}."
                        )
                    )
                else:
                    found[field] = (amount, factor, where)
        return found

    def _spread(self, written: str, faults: list[Fault]) -> list[tuple[str, Any, str]]:
        value = getattr(self.cfg, written)
        out = []
        if isinstance(value, Mapping):
            for name, amount in value.items():
                try:
                    out.append((self.field_of(name), amount, f"{written}[{name!r}]"))
                except UnknownNameError as error:
                    faults.append(Fault(written, repr(name), "a field of this sensor", str(error)))
        elif value is not None:
            units = {spec.unit for _, spec in self.specs.values()}
            if len(units) > 1:
                example = next(iter(self.specs))
                faults.append(
                    Fault(
                        written,
                        shown(value),
                        f"one amount per field, since this sensor's fields have the units {', '.join(sorted(units))}",
                        f"Write {written}={{{example!r}: ...}}.",
                    )
                )
            else:
                out.extend((name, value, written) for name in self.specs)
        for prefix, field in self.prefixes.items():
            name = f"{prefix}_{written}"
            amount = getattr(self.cfg, name, None)
            if isinstance(amount, Mapping):
                faults.append(Fault(name, shown(amount), f"one amount: it is for {field!r} alone"))
            elif amount is not None:
                if field in self.specs:
                    out.append((field, amount, name))
                else:
                    faults.append(Fault(name, shown(amount), f"the field {field!r} among `fields`", f"Add {field!r}."))
        return out

    def field_of(self, name: str) -> str:
        """Return the field a name or a prefix means.

        Raises:
            UnknownNameError: neither.
        """
        field = self.prefixes.get(name, name)
        if field not in self.specs:
            raise UnknownNameError(f"field of sensor {self.label!r}", name, [*self.specs, *self.prefixes])
        return field

    def row(self, field: str, amount: Any, knob: str, factor: float = 1.0) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Spread one amount over a field's columns (rotations: rotation vector in rad, then 0).

        Raises:
            ValueError: it does not fit, or is negative where it must not be.
        """
        spec = self.specs[field][1]
        values = np.asarray(amount, np.float64) * factor
        lead = values.shape[: max(values.ndim - len(spec.shape), 0)]
        shape = spec.shape
        if spec.kind == "rotation":
            if knob == "resolution":
                raise ValueError("no resolution for a rotation")
            shape = (*shape[:-1], 3)
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

    def _fits(self, field: str, array: np.ndarray[Any, Any]) -> bool:
        """Whether an array can be read as an amount of the config: one for all envs, per column."""
        spec = self.specs[field][1]
        shape = (*spec.shape[:-1], 3) if spec.kind == "rotation" else spec.shape
        try:
            return np.broadcast_shapes(array.shape, shape) == shape
        except ValueError:
            return False

    def _table(self, knob: str, field: str, amount: Any, factor: float, seed: int) -> KnobTable:
        index, spec = self.specs[field]
        key = stream_key(seed, self.label, f"knob/{knob}")
        if isinstance(amount, Uniform | Normal | Choice):
            signed = "" if isinstance(amount, Normal) else knob

            def spread(value: Any) -> Any:
                return self.row(field, value, signed, factor)

            return KnobTable(self.compute, knob, index, None, (amount, spec.columns, spread), key, self._changed)
        row = self.row(field, amount, knob, factor)
        if row.ndim != 1:
            raise ValueError(f"a number or an array that fits {spec.shape}")
        return KnobTable(self.compute, knob, index, row, None, key, self._changed)

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
        knob, field = self._parse_name(knob)
        factor = 1.0
        if knob.endswith("_density"):
            knob = knob.removesuffix("_density")
            factor = self.rate_hz**0.5 if knob == "noise" else self.rate_hz**-0.5
        if isinstance(value, Mapping):
            amounts = {self.field_of(name): amount for name, amount in value.items()}
        elif field is not None:
            amounts = {field: value}
        else:
            fields = [name for known, name in self.tables if known == knob]
            if len({self.specs[name][1].unit for name in fields}) > 1:
                raise ConfigError.single(
                    f"{type(self.cfg).__name__}({self.label!r})",
                    knob,
                    value,
                    "one amount per field",
                    f"Fields: {fields}.",
                )
            amounts = dict.fromkeys(fields or list(self.specs), value)
        for name, amount in amounts.items():
            table = self.tables.get((knob, name))
            title = f"{type(self.cfg).__name__}({self.label!r})"
            if table is None:
                raise ConfigError.single(
                    title, knob, amount, f"a knob that the config gives for {name!r}",
                    f"Absent knobs take no memory: give {knob}=0 in the config, or use "
                    f"scene.reconfigure({self.label!r}, ...).",
                )  # fmt: skip
            if isinstance(amount, Uniform | Normal | Choice):
                raise ConfigError.single(title, knob, amount, "numbers", "A distribution belongs into the config.")
            rows = self.compute.num_envs if env_ids is None else len(env_ids)
            try:
                if isinstance(amount, torch.Tensor):
                    amount = amount.detach().cpu().numpy()
                if not isinstance(amount, np.ndarray):
                    parse_amount(amount)
                array = np.asarray(amount, np.float64)
                if array.shape == (rows,) and not self._fits(name, array):
                    array = array.reshape(-1, *(1,) * len(self.specs[name][1].shape))  # one amount per env
                elif array.shape == (rows, *self.specs[name][1].shape[1:]) and not self._fits(name, array):
                    array = array[:, None]  # per env, without the axis of a single mount
                row = self.row(name, array, knob, factor)
                table.set(row, env_ids)
            except (ValueError, TypeError, RuntimeError) as error:
                raise ConfigError.single(title, knob, amount, str(error)) from None

    def _parse_name(self, knob: str) -> tuple[str, str | None]:
        if knob in COLUMN_KNOBS:
            return knob, None
        prefix, _, rest = knob.partition("_")
        if prefix in self.prefixes and rest in COLUMN_KNOBS:
            return rest, self.prefixes[prefix]
        names = [*COLUMN_KNOBS, *(f"{prefix}_{name}" for prefix in self.prefixes for name in COLUMN_KNOBS)]
        raise UnknownNameError(f"knob of sensor {self.label!r}", knob, names)

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.values.numel() * 4 for table in self.tables.values())


__all__ = ["CHAIN_KNOBS", "KnobTable", "Knobs", "amount_bounds"]
