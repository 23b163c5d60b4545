"""What sensors are made of besides the pipeline: their context, what `info` says and live parameters."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from sensorium.cfg import SensorCfg
from sensorium.compute import Clock, Compute
from sensorium.engines.base import Engine
from sensorium.errors import RegistrationError
from sensorium.readings import DebugShape
from sensorium.spec import Field, FieldSpec

if TYPE_CHECKING:
    from sensorium.world.ray_scene import RayScene


@dataclass
class SensorContext:
    """What a sensor is built in: the scene's engine, device, clock and seed, and the shapes that rays meet."""

    engine: Engine
    compute: Compute
    clock: Clock
    seed: int
    reset: Callable[[Any, Any], None]
    """Resets one sensor for some envs, with the others as they are."""
    debug: bool
    """Whether readers get copies that are spoilt once they are out of date."""
    semantics: Mapping[str, str | Sequence[str]] | None
    """Labels of shapes, as `RayScene` takes them."""

    @functools.cached_property
    def ray_scene(self) -> RayScene:
        """The scene's shapes; made when the first sensor asks."""
        from sensorium.world.ray_scene import RayScene  # slow to import, and most scenes without rays never ask

        return RayScene(self.engine, self.compute, self.semantics)


@dataclass(frozen=True, slots=True)
class SensorInfo:
    """What a sensor resolved to.

    Attributes:
        specs: its fields as a reader sees them.
        mounts: what the selector matched, in mount order.
        bodies: the body each mount is fixed to.
        nbytes: bytes of memory the sensor holds.
        rate_hz: mean samples per second.
        evaluation: ``"lazy"``, ``"eager"`` or ``"wanted"``.
        why: the reason for that.
        notes: what else the sensor decided, e.g. where accelerations come from.
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
    """The config's own values as hooks read them: numbers, or, once set per env, float32 `[env, 1]`.

    The second axis lets a value meet `[env, mount]` fields: ``raw.distance.clamp_(max=self.params.max_range)``.
    """

    def __init__(self, cfg: SensorCfg[Any], num_envs: int, device: str) -> None:
        self._cfg, self._num_envs, self._device = cfg, num_envs, device
        self.per_env: dict[str, torch.Tensor] = {}
        self.tables: set[str] = set()
        """The numbers that recorded kernels read from their table."""

    def rows(self, name: str) -> torch.Tensor:
        """Return a number of the config as float32 `[env, 1]`, which may be written; None is NaN."""
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
        return self.per_env[name] if name in self.per_env else getattr(self._cfg, name)


def declared_fields(data_class: type) -> dict[str, Field]:
    """Return the `Field` annotations of a data class, in order, without its constants; the dict is the caller's own."""
    return dict(declared(data_class)[0])


@functools.cache
def declared(data_class: type) -> tuple[Mapping[str, Field], tuple[str, ...]]:
    """Return what `declared_fields` does, and the fields that are no tensors: attributes of the sensor by these names.

    Hints are text, which takes 0.2 ms to evaluate, and each reading asks.
    """
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


def arrows(pos: torch.Tensor, vectors: torch.Tensor) -> DebugShape:
    """Return an arrow from each position along its vector, both `[..., 3]`, in the world, m."""
    return DebugShape("arrows", torch.stack([pos, pos + vectors], dim=-2).reshape(-1, 2, 3).cpu().numpy())
