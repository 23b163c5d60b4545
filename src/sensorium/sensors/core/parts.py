"""Parts of sensors besides the pipeline: their context, the content of `info`, and live parameters."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch

from sensorium.compute import Clock, Compute
from sensorium.engines.base import Engine, FrameOnBody, NameKind
from sensorium.errors import RegistrationError, SensoriumError
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.spec import Field, FieldSpec

ServiceT = TypeVar("ServiceT")


@dataclass
class SensorContext:
    """Context in which a sensor is built: the scene's engine, device, clock, seed and shapes."""

    engine: Engine
    compute: Compute
    clock: Clock
    seed: int
    reset: Callable[[Any, Any], None]
    """Resets one sensor in some envs; the others are unchanged."""
    retake: Callable[[Any], None]
    """Evaluates the current sample of one sensor again, if it has no memory."""
    update: Callable[[Any, float, bool], None]
    """Registers time that has passed at one sensor."""
    arrange: Callable[[], None]
    """Makes the scene record the work of all sensors again; to be called after memory in recorded work was replaced."""
    rebuild: Callable[[Any, Any], Any]
    """Replaces a sensor by one with another config, which it returns."""
    debug: bool
    """Whether readers get copies, which are overwritten once they are outdated."""
    semantics: Mapping[str, str | Sequence[str]] | None
    """Semantic labels of shapes, as in `ShapeScene`."""
    appearance: Sequence[Any] = ()
    """Looks of shapes and lights that are set at reset."""
    _services: dict[Any, Any] = field(default_factory=dict)

    def service(self, kind: Callable[[SensorContext], ServiceT]) -> ServiceT:
        """Return the scene's one object of a class, created from the context on first use."""
        if kind not in self._services:
            self._services[kind] = kind(self)
        return cast(ServiceT, self._services[kind])


@dataclass(frozen=True, slots=True)
class SensorInfo:
    """Facts about a built sensor.

    Attributes:
        specs: fields as returned to readers.
        mounts: names that the selector matched, in mount order.
        bodies: body that each mount is fixed to.
        nbytes: memory of the sensor, bytes.
        rate_hz: mean sampling rate, Hz.
        evaluation: ``"lazy"``, ``"eager"``, ``"wanted"`` or ``"on_access"``.
        why: reason for `evaluation`.
        notes: further choices of the sensor, e.g. the source of accelerations.
    """

    specs: tuple[FieldSpec, ...]
    mounts: tuple[str, ...]
    bodies: tuple[str, ...]
    nbytes: int
    rate_hz: float
    evaluation: str
    why: str
    notes: Mapping[str, str]


class Params:
    """Values of the config for hooks: numbers or, once set per env, float32 `[env, 1]`.

    The second axis broadcasts against `[env, mount]` fields: ``raw.distance.clamp_(max=self.params.max_range)``.
    """

    def __init__(self, cfg: SensorCfg[Any], num_envs: int, device: str) -> None:
        self._cfg, self._num_envs, self._device = cfg, num_envs, device
        self.per_env: dict[str, torch.Tensor] = {}
        self.tables: set[str] = set()
        """The numbers that recorded kernels read from their table."""
        self.used: set[str] = set()
        """The values that hooks have read so far."""

    def rows(self, name: str) -> torch.Tensor:
        """Return a new float32 tensor `[env, 1]` with a number of the config; None becomes NaN."""
        if name not in self.per_env:
            value = getattr(self._cfg, name)
            number = float("nan") if value is None else float(value)
            self.per_env[name] = torch.full((self._num_envs, 1), number, dtype=torch.float32, device=self._device)
        return self.per_env[name]

    def table(self, name: str) -> torch.Tensor:
        """Return `rows` at an address that stays, for a recorded kernel: the number may be set per env at run time."""
        self.tables.add(name)
        return self.rows(name)

    def keep(self, names: Iterable[str]) -> None:
        """Have the numbers of these names per env, to be loaded; others are those of the config again."""
        self.per_env = {name: rows for name, rows in self.per_env.items() if name in self.tables}
        for name in names:
            self.rows(name)

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        return self.per_env[name] if name in self.per_env else getattr(self._cfg, name)


def declared_fields(data_class: type) -> dict[str, Field]:
    """Return the `Field` annotations of a data class in order, without its constants; the caller owns the dict."""
    return dict(declared(data_class)[0])


@functools.cache
def declared(data_class: type) -> tuple[Mapping[str, Field], tuple[str, ...]]:
    """Return `declared_fields`, and the names of fields that are not tensors, which are attributes of the sensor.

    The result is cached: evaluating the annotations, which are text, takes 0.2 ms and is needed on each read. A data
    class with the representation that `dataclass` generates gets `data_text` instead.
    """
    if hasattr(vars(data_class).get("__repr__"), "__wrapped__"):  # generated: it guards against recursion
        data_class.__repr__ = data_text  # type: ignore[method-assign, assignment]
    hints = typing.get_type_hints(data_class, include_extras=True)
    found: dict[str, Field] = {}
    for item in dataclasses.fields(data_class):
        hint = hints[item.name]
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Field)]
        if marks:
            found[item.name] = marks[0]
        elif getattr(hint, "__origin__", hint) is torch.Tensor:
            raise RegistrationError(
                f"{data_class.__qualname__}.{item.name} has no Field: write Annotated[Tensor, Field(unit=..., ...)]"
            )
    return found, tuple(item.name for item in dataclasses.fields(data_class) if item.name not in found)


MOST_SHOWN = 24
"""Elements of the largest tensor whose values `data_text` shows."""


def data_text(data: Any) -> str:
    """Return a sample as text: shape and unit of each field that the config selects, and its values if they are few."""
    data_class: type = type(data)
    fields, constants = declared(data_class)
    lines = [f"{data_class.__qualname__}:"]
    for name, declaration in fields.items():
        value = getattr(data, name)
        if isinstance(value, torch.Tensor):
            values = f": {value.tolist()}" if value.numel() <= MOST_SHOWN else f", {value.dtype}"
            lines.append(f"  {name} {list(value.shape)} {declaration.unit}{values}")
    lines += [f"  {name}: {getattr(data, name)!r}" for name in constants]
    return "\n".join(lines)


def frame_rows(frames: Iterable[FrameOnBody]) -> list[list[float]]:
    """Return frames as rows of numbers: body, position and quaternion on the body; see `Sensor.about_drawing`."""
    return [[frame.body, *frame.pos, *frame.quat] for frame in frames]


def frames_of(engine: Engine, kind: NameKind, names: Iterable[str]) -> dict[str, Any]:
    """Return the frames of elements as `Sensor.about_drawing` does; nothing where the engine does not know one."""
    try:
        return {"frames": frame_rows(engine.frame(kind, name) for name in names)}
    except SensoriumError:
        return {}
