"""Terms of an observation: the selection of values by name, and the processing of these values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sensorium.cfg import COLUMN_KNOBS
from sensorium.errors import ConfigError, StaleError, UnknownNameError
from sensorium.random import Distribution, Normal, Uniform
from sensorium.sensors.core.base import Sensor
from sensorium.sensors.core.parts import declared_fields
from sensorium.spec import VECTOR_AXES, FieldSpec

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene

NAMED_AXES = {
    "joint": "joint_names", "primary": "primary_names", "body": "primary_names", "contact": "primary_names",
    "filter": "filter_names", "target": "target_frame_names",
}  # fmt: skip
"""Axes whose items have names, and the attribute of the sensor that holds them."""
TRUE = "truth:"
"""Prefix of the names of ground truth columns."""
NORMAL_CLIP = 10.0
"""Maximum magnitude of a normalised value."""


@dataclass(frozen=True, slots=True)
class ObsTerm:
    """One term of an observation with its options, which apply in this order.

    Args:
        source: ``"sensor.field"``, ``"sensor"`` for all its fields, ``"sensor.age"``, ``"sensor.valid"`` or
            ``"sensor.is_new"``, a derived value such as ``"scan.height_scan"``, a knob such as ``"imu.gyro_bias"`` as
            in `Sensor.get`, or a function that returns a tensor `[env, ...]`.
        truth: whether to take the ground truth of the fields.
        noise: additive noise per observation, in the unit of the value: a `Uniform`, a `Normal`, or the standard
            deviation of a normal distribution. It adds to the noise of the sensor.
        clip: minimum and greatest value.
        scale: factor, or one factor for each element.
        delay: number of observations by which the value is late, or the minimum and the maximum number, which is drawn
            per env and episode. It adds to the delay of the sensor. The first value is shown until a later one arrives.
        history: number of values in the result, the newest first; 0 for the newest without a history axis.
        normalise: whether to subtract the running mean of all envs and to divide by the running standard deviation of
            each element. The result is within -10 and 10.
        items: names of the elements on the last axis of a function's result, such as joints.
        name: name of the columns; by default that of the source.

    Raises:
        ConfigError: an option has an invalid value.
    """

    source: str | Callable[[], torch.Tensor]
    _: KW_ONLY
    truth: bool = False
    noise: float | Distribution | None = None
    clip: tuple[float, float] | None = None
    scale: float | Sequence[float] | None = None
    delay: int | tuple[int, int] = 0
    history: int = 0
    normalise: bool = False
    items: Sequence[str] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) and not callable(self.source):
            self._fault("source", "a name such as 'imu.ang_vel_b', or a function")
        noise = self.noise
        if isinstance(noise, int | float):
            if not 0.0 <= noise < math.inf:
                self._fault("noise", "a finite standard deviation >= 0")
        elif noise is not None and not isinstance(noise, Uniform | Normal):
            self._fault("noise", "a standard deviation, Uniform(low, high) or Normal(mean, std)")
        clip = _numbers(self.clip)
        if self.clip is not None and not (clip is not None and clip.shape == (2,) and clip[0] <= clip[1]):
            self._fault("clip", "(least, greatest)")
        scale = _numbers(self.scale)
        if self.scale is not None and not (scale is not None and np.isfinite(scale).all()):
            self._fault("scale", "finite factors")
        delays = self.delay if isinstance(self.delay, tuple | list) else (self.delay, self.delay)
        if not (len(delays) == 2 and all(map(_is_count, delays)) and delays[0] <= delays[1]):
            self._fault("delay", "a whole number >= 0, or (least, greatest)")
        if not _is_count(self.history):
            self._fault("history", "a whole number >= 0")

    def _fault(self, name: str, expected: str) -> None:
        raise ConfigError.single(f"ObsTerm({self.title!r})", name, getattr(self, name), expected)

    @property
    def title(self) -> str:
        """Name of the term."""
        own = self.source if isinstance(self.source, str) else getattr(self.source, "__name__", "")
        return self.name or (TRUE * self.truth + own)

    @property
    def delays(self) -> tuple[int, int]:
        """Minimum and maximum delay, in observations."""
        return (self.delay, self.delay) if isinstance(self.delay, int) else self.delay

    @property
    def distribution(self) -> Distribution | None:
        """Distribution of the noise; None for none."""
        noise = self.noise
        return Normal(0.0, float(noise)) if isinstance(noise, int | float) else noise


def _numbers(value: Any) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Return a value as numbers; None if it is not numeric or absent."""
    try:
        return None if value is None else np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True)
class TermPart:
    """One field of one sensor, or one computed value, with the name of its columns."""

    name: str
    term: ObsTerm
    spec: FieldSpec
    sensor: Sensor[Any, Any] | None = None
    is_measured: bool = True
    read: Callable[[Any], torch.Tensor] | None = None
    """Function of the sensor that computes the value; None for a field."""
    buffer: torch.Tensor = field(default_factory=lambda: torch.empty(0, device="cpu"), compare=False)
    """Memory that a computed value is copied into."""

    def value(self) -> torch.Tensor:
        """Return the memory of the value, `[env, ...]`."""
        if self.read is not None:
            return self.buffer
        assert self.sensor is not None
        return self.sensor.own_tensors(is_measured=self.is_measured)[self.spec.name]

    def compute(self) -> None:
        """Bring a computed value up to date.

        Raises:
            ConfigError: the shape that a function returned has changed.
        """
        assert self.read is not None
        value = self.read(self.sensor)
        if value.shape != self.buffer.shape:
            expected = f"a tensor {list(self.buffer.shape)}, as in the first call"
            raise ConfigError.single("Observer", self.name, list(value.shape), expected)
        self.buffer.copy_(value.detach())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value after env."""
        return tuple(self.value().shape[1:])

    def bounds(self, far: float) -> tuple[float, float]:
        """Return the lower and the upper bound of the observed value; infinite where unknown."""
        term = self.term
        if term.normalise:
            return -NORMAL_CLIP, NORMAL_CLIP
        low, high = self._source_bounds(far)
        if (noise := term.distribution) is not None:
            low, high = (low + noise.low, high + noise.high) if isinstance(noise, Uniform) else (-math.inf, math.inf)  # type: ignore[operator]
        if term.clip is not None:
            low, high = max(low, term.clip[0]), min(high, term.clip[1])
        if term.scale is None:
            return low, high
        ends = [end * factor for end in (low, high) for factor in np.ravel(term.scale).tolist() if factor]
        return (min(ends), max(ends)) if np.all(term.scale) else (min([0.0, *ends]), max([0.0, *ends]))

    def _source_bounds(self, far: float) -> tuple[float, float]:
        spec = self.spec
        if spec.dtype == "bool" or spec.kind == "flag":
            return 0.0, 1.0
        if spec.dtype == "uint8":
            return max(0.0, spec.low), min(255.0, spec.high)
        if spec.kind == "rotation" or (spec.role == "pose" and spec.axes[-1:] == ("wxyz",)):
            return -1.0, 1.0
        if self.sensor is None or self.read is not None:
            return spec.low, spec.high
        cfg, is_true = self.sensor.cfg, not self.is_measured or self._is_unaltered()
        if spec.role == "range" and hasattr(cfg, "limits") and hasattr(cfg, "miss"):
            if not is_true and not (cfg.is_clean and spec.kind == "vector"):
                return -math.inf, math.inf
            miss = far if math.isinf(cfg.miss) else cfg.miss
            return min(0.0, miss), max(cfg.limits[1], miss)
        return (spec.low, spec.high) if is_true or spec.kind != "vector" else (-math.inf, math.inf)

    def _is_unaltered(self) -> bool:
        """Whether the measured field can differ from a true one in age only."""
        assert self.sensor is not None
        buffers = self.sensor.buffers
        plan = buffers.plan
        if buffers.work_out is buffers.truth_out:
            return True
        altered = {name for _, name in plan.knobs}
        return not (
            plan.has_own_chain or plan.has_scale or plan.has_branches or plan.hooks.post or self.spec.name in altered
        )

    def units(self) -> list[str]:
        """Return the unit of each column; the spec lists them where the components of a vector have different units."""
        if self.term.scale is not None or self.term.normalise:
            return ["1"] * math.prod(self.shape)
        units, shape = self.spec.unit.split(", "), self.shape
        units = units if shape and len(units) == shape[-1] else [self.spec.unit]
        return units * (math.prod(shape) // len(units))

    def items(self) -> list[Sequence[object]]:
        """Return for each axis the names of its items: mounts, joints, components of a vector, otherwise numbers."""
        words: list[Sequence[object]] = []
        for axis, size in zip(self.spec.axes, self.shape, strict=True):
            named: Sequence[object] = (
                axis if axis in VECTOR_AXES else getattr(self.sensor, NAMED_AXES.get(axis, ""), ())
            )
            if axis == "mount" and self.sensor is not None and self.sensor.mount is not None:
                named = self.sensor.mount.names
            if axis == "contact" and 0 < len(named) < size:  # several slots for each primary
                named = [f"{name}.{slot}" for name in named for slot in range(size // len(named))]
            words.append(named if len(named) == size else range(size))
        if self.term.items and len(self.term.items) == self.shape[-1]:
            words[-1] = self.term.items
        return words

    def titles(self, entries: int) -> list[str]:
        """Return a readable name of each column, such as ``imu.ang_vel_b[x]``, with the age in a history first."""
        words = [*([range(entries)] if entries else []), *self.items()]
        return [f"{self.name}[{','.join(map(str, each))}]" for each in product(*words)] if words else [self.name]

    def current(self, scene: Scene) -> TermPart:
        """Return the part with the sensor that has its name now; raise `StaleError` where it no longer exists."""
        if self.sensor is None:
            return self
        name, again = self.sensor.name, "make a new observer: scene.observer(...)"
        if name not in list(scene):  # an exact match: another sensor whose name ends in this one does not count
            raise StaleError(
                f"observer: sensor {name!r} is no longer in the scene, so {self.name!r} cannot be observed; {again}"
            )
        sensor, shape = scene[name], self.shape
        if self.read is not None:
            return replace(self, sensor=sensor)
        spec = next((spec for spec in sensor.specs if spec.name == self.spec.name), None)
        changed = f"observer: sensor {name!r} was reconfigured and"
        if spec is None:
            raise StaleError(f"{changed} no longer has the field {self.spec.name!r}; {again}")
        part = replace(self, sensor=sensor, spec=spec)
        if part.shape != shape:
            now, before = ([scene.num_envs, *each] for each in (part.shape, shape))
            raise StaleError(f"{changed} its field {spec.name!r} has the shape {now}, formerly {before}; {again}")
        return part


# Selection ------------------------------------------------------------------------------------------------------------


def parts_of(scene: Scene, term: ObsTerm) -> Iterator[TermPart]:
    """Yield the parts that one term selects: a field, all fields of a sensor, or a computed value.

    Raises:
        UnknownNameError, SelectionError: the name matches no sensor or field, or several.
        ConfigError: the value is not a tensor with an env axis.
    """
    source, is_measured = term.source, not term.truth
    if not isinstance(source, str):
        yield _computed(scene, term, term.title, None, lambda _: source(), {})
        return
    mark = TRUE * term.truth
    if source in scene:
        sensor = scene[source]
        for spec in sensor.specs:
            name = source if sensor.single else f"{source}.{spec.name}"
            yield TermPart(_named(term, mark + name, sensor, spec), term, spec, sensor, is_measured)
        return
    sensor, field_name = sensor_in(scene, source)
    is_field = any(spec.name == field_name for spec in sensor.specs)
    if not is_field and field_name in sensor.derived_values:
        yield _derived(scene, term, sensor, field_name)
    elif not is_field and not term.truth and _has_knob(sensor, field_name):
        yield _computed(
            scene, term, term.title, sensor, lambda sensor: sensor.get(field_name), _about_knob(sensor, field_name)
        )
    else:
        yield TermPart(term.name or mark + source, term, _field_of(sensor, field_name), sensor, is_measured)


def sensor_in(scene: Scene, name: str) -> tuple[Sensor[Any, Any], str]:
    """Return the sensor that a name such as ``"robot/imu.bias.ang_vel_b"`` starts with, and the rest.

    Raises:
        UnknownNameError: it starts with no sensor; the message lists the known names.
        SelectionError: it starts with several.
    """
    parts = name.split(".")
    for count in range(max(len(parts) - 1, 1), 0, -1):
        try:
            return scene[".".join(parts[:count])], ".".join(parts[count:])
        except UnknownNameError:
            continue
    described = scene.description().sensors
    known = [f"{each}.{spec['name']}" for each in described for spec in described[each]["fields"]]
    fix = "Write sensor.field, or the name of a sensor."
    raise UnknownNameError("observation", name, [*described, *known], fix) from None


def _named(term: ObsTerm, name: str, sensor: Sensor[Any, Any], spec: FieldSpec) -> str:
    return name if not term.name else term.name if len(sensor.specs) == 1 else f"{term.name}.{spec.name}"


def _derived(scene: Scene, term: ObsTerm, sensor: Sensor[Any, Any], name: str) -> TermPart:
    """Return a property of a sensor, or the result of one of its methods."""
    is_method = callable(inspect.getattr_static(type(sensor), name))
    options: dict[str, Any] = {}
    if term.truth:
        if not is_method or "is_measured" not in inspect.signature(getattr(type(sensor), name)).parameters:
            expected = "a field: this value belongs to the measured data"
            raise ConfigError.single(f"Observer of {sensor.name!r}", "truth", name, expected)
        options["is_measured"] = False

    def read(sensor: Sensor[Any, Any]) -> torch.Tensor:
        with sensor.held():
            value: torch.Tensor = getattr(sensor, name)(**options) if is_method else getattr(sensor, name)
        return value

    return _computed(scene, term, term.title, sensor, read, sensor.derived_values[name])


def _computed(
    scene: Scene, term: ObsTerm, name: str, sensor: Any, read: Callable[[Any], torch.Tensor], about: Mapping[str, Any]
) -> TermPart:
    """Return a part for a function of a sensor; it is called once for its shape."""
    value = read(sensor)
    if not isinstance(value, torch.Tensor) or value.dim() < 1 or len(value) != scene.num_envs or not name:
        expected = "a named function that returns a tensor [env, ...]"
        got = list(value.shape) if isinstance(value, torch.Tensor) else value
        raise ConfigError.single("Observer", name or "name", got, expected)
    shape: tuple[int, ...] = tuple(value.shape[1:])
    axes = next((spec.axes for spec in sensor.specs if spec.shape == shape), None) if sensor is not None else None
    axes = axes or (("xyz",) if shape == (3,) else ()) or tuple(f"axis{number}" for number in range(len(shape)))
    about = {"dtype": "bool" if value.dtype == torch.bool else "float32", "unit": "1", "kind": "derived", **about}
    spec = FieldSpec(name, axes, shape, frame="", role="scalar", **about)
    buffer = value.to(scene.compute.device, torch.float32, copy=True).contiguous()
    return TermPart(name, term, spec, sensor, not term.truth, read, buffer)


def _about_knob(sensor: Sensor[Any, Any], name: str) -> dict[str, Any]:
    """Return the unit of a knob, and the parity of the field that it belongs to."""
    head, _, tail = name.partition(".")
    prefixes = sensor.buffers.plan.prefixes
    field_name = prefixes.get(tail, tail) or next((prefixes[key] for key in prefixes if head.startswith(f"{key}_")), "")
    knobs = [knob for knob in COLUMN_KNOBS if head == knob or head.endswith(f"_{knob}")]
    for spec in sensor.specs:
        if knobs and (spec.name == field_name or (not field_name and len(sensor.specs) == 1)):
            return {"parity": spec.parity, "unit": COLUMN_KNOBS[max(knobs, key=len)].format(spec.unit)}
    return {"unit": "s"} if name in ("delay", "jitter") else {}


def _has_knob(sensor: Sensor[Any, Any], name: str) -> bool:
    try:
        sensor.get(name)
    except (ConfigError, UnknownNameError):
        return False
    return True


def _field_of(sensor: Sensor[Any, Any], name: str) -> FieldSpec:
    """Return the spec of a sensor's field; a property of its data that is an alias counts as its field."""
    specs, data_class = {spec.name: spec for spec in sensor.specs}, sensor.data_class
    if name in specs:
        return specs[name]
    title, computed = f"Observer of {sensor.name!r}", ", ".join(specs)
    if name in declared_fields(data_class):
        fix = f"Request it in the config: fields=(..., {name!r})."
        raise ConfigError.single(title, "field", name, f"a field that the sensor computes: {computed}", fix)
    is_public = not name.startswith("_") and (hasattr(data_class, name) or name in data_class.__dataclass_fields__)
    if is_public and not sensor.single and isinstance(getattr(data_class, name, None), property):
        with sensor.held():
            shown = sensor.ground_truth
        value = getattr(shown, name)
        for known, spec in specs.items():
            if getattr(shown, known) is value:
                return spec
    if is_public:
        fix = "A value that is the same in every sample cannot be observed."
        raise ConfigError.single(title, "field", name, f"a tensor with an env axis: {computed}", fix)
    known_names = [*specs, *sensor.derived_values]
    raise UnknownNameError("field", name, known_names, f"These are the fields of {sensor.name!r}.")
