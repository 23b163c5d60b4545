"""Fields of several sensors gathered into one new tensor for a policy: each field takes a range of columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sensorium.errors import ConfigError, DuplicateNameError, StaleError, UnknownNameError
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.parts import declared_fields
from sensorium.spec import VECTOR_AXES, FieldSpec

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene

TRUE = "truth:"
"""Prefix of the names of ground truth columns."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One measured or true field of one sensor, with the name of its columns."""

    name: str
    sensor: Sensor[Any, Any]
    spec: FieldSpec
    is_measured: bool

    def value(self) -> torch.Tensor:
        return self.sensor.own_tensors(is_measured=self.is_measured)[self.spec.name]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value().shape[1:])

    def bounds(self, far: float) -> tuple[float, float]:
        """Return the lower and the upper bound; infinite where unknown."""
        spec = self.spec
        if spec.dtype == "bool" or spec.kind == "flag":
            return 0.0, 1.0
        if spec.dtype == "uint8":
            return max(0.0, spec.low), min(255.0, spec.high)
        if spec.kind == "rotation" or (spec.role == "pose" and spec.axes[-1:] == ("wxyz",)):
            return -1.0, 1.0
        from sensorium.sensors.rays.ray_cfg import RayCfg  # slow to import, and needed where rays are observed only

        cfg, is_true = self.sensor.cfg, not self.is_measured or self._is_unaltered()
        if isinstance(cfg, RayCfg) and spec.role == "range":
            if not is_true and not (cfg.is_clean and spec.kind == "vector"):
                return -math.inf, math.inf
            miss = far if math.isinf(cfg.miss) else cfg.miss
            return min(0.0, miss), max(cfg.max_distance, miss)
        return (spec.low, spec.high) if is_true or spec.kind != "vector" else (-math.inf, math.inf)

    def _is_unaltered(self) -> bool:
        """Whether the measured field can differ from a true one in age only."""
        buffers = self.sensor.buffers
        plan = buffers.plan
        if buffers.work_out is buffers.truth_out:
            return True
        altered = {field for _, field in plan.knobs}
        return not (plan.has_own_chain or plan.has_branches or plan.hooks.post or self.spec.name in altered)

    def units(self) -> list[str]:
        """Return the unit of each column; the spec lists them where the components of a vector have different units."""
        units, shape = self.spec.unit.split(", "), self.shape
        units = units if shape and len(units) == shape[-1] else [self.spec.unit]
        return units * (math.prod(shape) // len(units))

    def titles(self) -> list[str]:
        """Return a readable name of each column, such as ``imu.ang_vel_b[x]`` or ``feet.force[FL_foot,z]``."""
        words: list[Sequence[object]] = []
        for axis, size in zip(self.spec.axes, self.shape, strict=True):
            mounts = self.sensor.mount.names if axis == "mount" and self.sensor.mount is not None else ()
            named = axis if axis in VECTOR_AXES else mounts
            words.append(named if len(named) == size else range(size))
        return [f"{self.name}[{','.join(map(str, each))}]" for each in product(*words)] if words else [self.name]


class Observer:
    """Fields of a scene's sensors as one float32 tensor `[env, column]`; a call returns the newest one.

    ``look = scene.observer("imu.ang_vel_b", "feet.found", truth=("imu.lin_vel_b",))`` creates an observer. ``look()``
    brings the sensors up to date, as reading them does, and copies all columns into a new tensor that the caller owns.
    Flags, ids and other numbers are converted to float32.

    Args:
        scene: scene of the sensors.
        fields: ``"sensor.field"``, or ``"sensor"`` for all its fields; columns are in this order.
        truth: further fields, taken from the ground truth; their columns follow and are named ``truth:sensor.field``.
            True takes all `fields`.
        replace_inf: finite value that replaces +inf (and, negated, -inf), e.g. the greatest range of a scan; None keeps
            them.

    Attributes:
        names: name -> slice of its columns, in order.
        low: float32 [column], lower bounds for ``gymnasium.spaces.Box(look.low, look.high)``, -inf where unbounded.
        high: float32 [column], upper bounds, +inf where unbounded.
        units: unit of each column.
        shape: `(env, column)`.
        dtype: ``torch.float32``.

    Raises:
        UnknownNameError, SelectionError: a name matches no sensor or field, or several; the message lists the known
            names.
        DuplicateNameError: a field was given twice.
        ConfigError: no field was given, a field is not a tensor with an env axis, or `replace_inf` is not finite.
        StaleError: on a call: a sensor was removed, or its reconfiguration removed or reshaped the field.
    """

    dtype = torch.float32

    def __init__(
        self,
        scene: Scene,
        fields: Iterable[str],
        *,
        truth: bool | str | Iterable[str] = (),
        replace_inf: float | None = None,
    ) -> None:
        if replace_inf is not None and not math.isfinite(replace_inf):
            raise ConfigError.single("Observer", "replace_inf", replace_inf, "a finite number, or None to keep +inf")
        self._scene = scene
        self._far = math.inf if replace_inf is None else float(replace_inf)
        self._parts = _resolve(scene, list(fields), truth)
        self._shapes = {part.name: part.shape for part in self._parts}
        self._bind()
        slices, start = {}, 0
        for name, shape in self._shapes.items():
            slices[name] = slice(start, start + math.prod(shape))
            start = slices[name].stop
        if not start:
            raise ConfigError.single("Observer", "fields", list(slices), "fields with at least one element")
        self.names: Mapping[str, slice] = MappingProxyType(slices)
        self.shape = (scene.num_envs, start)

    # Looking ----------------------------------------------------------------------------------------------------------

    def __call__(self) -> torch.Tensor:
        """Return the current values of the fields, a new float32 tensor `[env, column]`."""
        if self._arrangement != self._scene.arrangement:
            self._bind()
        for sensor, is_measured in self._readers:
            sensor.ensure_current(is_measured=is_measured)
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # tensors made in inference mode cannot be used in a backward pass
                return self._gather()
        return self._gather()

    def _gather(self) -> torch.Tensor:
        """Return all columns in new memory; on the host with NumPy, which does not wake torch's threads."""
        far = self._far
        if not self._scene.compute.is_cpu:
            gathered = torch.cat(self._columns, 1).float()
            return gathered if far == math.inf else gathered.nan_to_num_(math.nan, far, -far)
        out = np.concatenate(self._columns, 1, dtype=np.float32, casting="unsafe")
        if far != math.inf:
            np.copysign(far, out, out=out, where=np.isinf(out))
        return torch.from_numpy(out)

    def _bind(self) -> None:
        """Look up the memory of every field again, after the scene's sensors may have changed."""
        self._parts = parts = [self._current(part) for part in self._parts]
        readers = {part.sensor: part.is_measured for part in sorted(parts, key=lambda part: part.is_measured)}
        self._readers = list(readers.items())  # a sensor read for measured fields is not read again for its truth
        columns = [part.value()[:, None].flatten(1) for part in parts]
        self._columns: list[Any] = [each.numpy() for each in columns] if self._scene.compute.is_cpu else columns
        self._arrangement = self._scene.arrangement

    def _current(self, part: _Part) -> _Part:
        """Return a field of the sensor that has its name now; raise `StaleError` where it no longer exists."""
        name, field, again = part.sensor.name, part.spec.name, "make a new observer: scene.observer(...)"
        if name not in list(self._scene):  # an exact match: another sensor whose name ends in this one does not count
            raise StaleError(
                f"observer: sensor {name!r} is no longer in the scene, so {part.name!r} cannot be observed; {again}"
            )
        sensor = self._scene[name]
        spec = next((spec for spec in sensor.specs if spec.name == field), None)
        changed = f"observer: sensor {name!r} was reconfigured and"
        if spec is None:
            raise StaleError(f"{changed} no longer has the field {field!r}; {again}")
        part = replace(part, sensor=sensor, spec=spec)
        if part.shape != self._shapes[part.name]:
            shape, before = ([self._scene.num_envs, *each] for each in (part.shape, self._shapes[part.name]))
            raise StaleError(f"{changed} its field {field!r} has the shape {shape}, formerly {before}; {again}")
        return part

    # Columns ----------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> slice:
        try:
            return self.names[name]
        except KeyError:
            raise UnknownNameError("observation", name, self.names) from None

    def split(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return name -> view of an observation with the field's own shape, `[env, ...]`.

        Args:
            obs: `[..., column]` with any leading axes, e.g. `[time, env, column]` of a rollout buffer.

        Raises:
            ValueError: the size of the last axis is not the number of columns.
        """
        if obs.shape[-1:] != self.shape[-1:]:
            raise ValueError(f"Observer.split: got shape {tuple(obs.shape)}, expected [..., {self.shape[-1]}]")
        lead = obs.shape[:-1]
        return {name: obs[..., part].view(*lead, *self._shapes[name]) for name, part in self.names.items()}

    @property
    def low(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Lower bound of each column, float32 [column], in its unit; -inf where unknown. See `high`."""
        return self._bounds(0)

    @property
    def high(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Upper bound of each column, float32 [column], in its unit; +inf where unknown.

        Flags, quaternions and true values of bounded fields have bounds. Measured values may exceed those of the truth.
        """
        return self._bounds(1)

    def _bounds(self, side: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        counts = [math.prod(part.shape) for part in self._parts]
        return np.repeat(np.array([part.bounds(self._far)[side] for part in self._parts], np.float32), counts)

    @property
    def units(self) -> list[str]:
        """Unit of each column, as text; ``"1"`` for dimensionless."""
        return [unit for part in self._parts for unit in part.units()]

    @property
    def columns(self) -> list[str]:
        """Readable name of each column, such as ``imu.ang_vel_b[x]`` or ``scan.distances[17]``."""
        return [title for part in self._parts for title in part.titles()]

    def __len__(self) -> int:
        return self.shape[1]

    def __repr__(self) -> str:
        rows = [("columns", "name", "shape", "unit", "bounds")]
        for part in self._parts:
            run = self.names[part.name]
            shape = ", ".join(f"{axis} {size}" for axis, size in zip(part.spec.axes, part.shape, strict=True))
            low, high = part.bounds(self._far)
            bounds = f"{low:g} to {high:g}" if math.isfinite(low) or math.isfinite(high) else "-"
            rows.append((f"{run.start}:{run.stop}", part.name, shape or "-", part.spec.unit, bounds))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        envs, columns = self.shape
        title = f"Observer({envs} env(s), {columns} columns, float32 on {self._scene.compute.device})"
        return "\n  ".join([title, *lines])


# Selection of fields --------------------------------------------------------------------------------------------------


def _resolve(scene: Scene, fields: list[str], truth: bool | str | Iterable[str]) -> list[_Part]:
    """Return the selected parts: measured `fields`, then those of `truth`."""
    true = fields if truth is True else [truth] if isinstance(truth, str) else list(truth or ())
    asked = [(field, True) for field in fields if truth is not True] + [(field, False) for field in true]
    if not asked:
        fix = 'Name at least one: scene.observer("imu.ang_vel_b").'
        raise ConfigError.single("Observer", "fields", (), "fields of sensors", fix)
    found: dict[str, _Part] = {}
    for text, is_measured in asked:
        for part in _named(scene, text, is_measured):
            if part.name in found:
                raise DuplicateNameError(f"Observer: {part.name!r} was given twice; both would be the same columns")
            found[part.name] = part
    return list(found.values())


def _named(scene: Scene, text: object, is_measured: bool) -> Iterator[_Part]:
    """Yield the parts that one name selects: a field, or all fields of a sensor."""
    mark = "" if is_measured else TRUE
    if not isinstance(text, str):
        raise ConfigError.single("Observer", "fields", text, "names such as 'imu.ang_vel_b'")
    if text in scene:
        sensor = scene[text]
        for spec in sensor.specs:
            yield _Part(mark + (text if sensor.single else f"{text}.{spec.name}"), sensor, spec, is_measured)
        return
    head, _, field = text.rpartition(".")
    try:
        sensor = scene[head or text]
    except UnknownNameError:
        described = scene.description().sensors
        known = [f"{name}.{spec['name']}" for name in described for spec in described[name]["fields"]]
        fix = "Write sensor.field, or the name of a sensor."
        raise UnknownNameError("observation", text, [*described, *known], fix) from None
    yield _Part(mark + text, sensor, _field_of(sensor, field), is_measured)


def _field_of(sensor: Sensor[Any, Any], field: str) -> FieldSpec:
    """Return the spec of a sensor's field; a property of its data that is an alias counts as its field."""
    specs, data_class = {spec.name: spec for spec in sensor.specs}, sensor.data_class
    if field in specs:
        return specs[field]
    title, computed = f"Observer of {sensor.name!r}", ", ".join(specs)
    if field in declared_fields(data_class):
        fix = f"Request it in the config: fields=(..., {field!r})."
        raise ConfigError.single(title, "field", field, f"a field that the sensor computes: {computed}", fix)
    is_public = not field.startswith("_") and (hasattr(data_class, field) or field in data_class.__dataclass_fields__)
    if is_public and not sensor.single and isinstance(getattr(data_class, field, None), property):
        shown = sensor.ground_truth
        value = getattr(shown, field)
        for name, spec in specs.items():
            if getattr(shown, name) is value:
                return spec
    if is_public:
        fix = "A value that is the same in every sample cannot be observed."
        raise ConfigError.single(title, "field", field, f"a tensor with an env axis: {computed}", fix)
    raise UnknownNameError("field", field, specs, f"These are the fields of {sensor.name!r}.")
