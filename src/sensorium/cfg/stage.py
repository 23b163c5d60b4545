"""Configs of stages: imperfections beyond the standard chain."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import PlainSerializer, PlainValidator

from sensorium.cfg.base import Cfg, bad
from sensorium.errors import ConfigError, nearest, shown
from sensorium.plugins import Plugins, Registry, V
from sensorium.spec import kind_of

if TYPE_CHECKING:
    from torch import Tensor

    from sensorium.measurement.record import Record
    from sensorium.measurement.stages import StageKey
    from sensorium.spec import FieldSpec

Place = Literal["physics", "scale", "noise", "bias", "saturation", "dropout", "post"]
"""Where in the measurement chain a stage works, in this order; quantisation is between saturation and dropout."""
PLACES: tuple[Place, ...] = ("physics", "scale", "noise", "bias", "saturation", "dropout", "post")

SENSOR_PLUGINS = Plugins("sensorium.sensors", "sensor")
"""The installed packages with sensors, stages and patterns; ours announce themselves like the others."""
STAGE_KINDS: Registry[str, type[StageCfg]] = Registry(
    "kind of stage",
    SENSOR_PLUGINS,
    "{cls}, whose kind {key!r} stays that of {other}, has to be called otherwise. Rename the stage class.",
    keeps_ours=True,
)
"""Every stage class by kind; filled where a stage is defined."""


class StageCfg(Cfg):
    """One imperfection beyond the standard chain. Subclass it, set `place`, write `apply`.

    The subclass is config and behaviour in one; it keeps no state on itself. What must survive from one sample to the
    next is declared by `state_specs` and handed to `apply`, so that reset and save reach it.
    """

    place: ClassVar[Place]
    """Where in the chain it works. A subclass may make it a field with a default, for each instance to choose."""
    is_recorded: ClassVar[bool] = False
    """True where `apply` only launches Warp kernels with fixed arguments: it is called once and replayed."""
    observes: ClassVar[bool] = False
    """True where the stage also looks at the ticks between samples, in `observe`."""
    otherwise: ClassVar[str] = ""
    """What to give instead where a sensor cannot be asked between samples: a sentence for the message."""
    on_values: ClassVar[bool] = True
    """False where the stage alters no field, and so takes no `fields`."""

    fields: tuple[str, ...] = ()
    """Fields it works on; empty means all floating-point vector fields of the sensor."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        place = cls.__dict__.get("place")
        if "place" in inspect.get_annotations(cls) and "place" in cls.model_fields:
            place = cls.model_fields["place"].default
        if place is not None:
            if place not in PLACES:
                raise TypeError(f"{cls.__name__}.place is {place!r}; expected one of {', '.join(PLACES)}")
            STAGE_KINDS.add(kind_of(cls), cls)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that were given, with the stage's ``kind``."""
        return {"kind": kind_of(type(self)), **super().to_dict()}

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return name -> shape (after env) of the float32 states this stage keeps.

        Args:
            columns: the fields it works on and their number of columns.
        """
        return {}

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return all states; override it in place of `state_specs` where their shapes need more than columns.

        Args:
            key: has the layout of the fields in `specs`, the period and the tick.
        """
        return self.state_specs(key.columns)

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError`, with what is expected as its text, where the stage cannot work on a sensor.

        Args:
            columns: the fields it works on and their number of columns.
            specs: all fields that `truth` has.
            period: mean time between samples, s.
        """

    def keeps_rotations(self) -> bool:
        """Return whether unit quaternions stay such; where not, a rotation field named in `fields` is refused."""
        return False

    def apply(self, slot: Record, truth: Record, state: Mapping[str, Tensor], key: StageKey) -> None:
        """Alter the measured `slot` in place, once per sample for all mounts and envs.

        Args:
            slot: measured fields, `[env, mount, ...]` each.
            truth: true fields of the same sample, read only.
            state: the declared states, `[env, *shape]` float32, written in place.
            key: random numbers and times of this sample.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    def observe(self, truth: Record, state: Mapping[str, Tensor], key: StageKey) -> None:
        """Look at the true value at a tick between samples; called only where `observes` is true.

        A stage that `is_recorded` only launches Warp kernels with fixed arguments here: they are recorded and replayed.

        Args:
            truth: true fields of the sensor at this tick, before `apply_transform`, read only.
            state: the declared states, written in place.
            key: times of this tick.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define observe")

    def reset(self, state: Mapping[str, Tensor], key: StageKey) -> None:
        """Set the states of the envs in `key.mask` for a new episode; by default to zero."""
        for tensor in state.values():
            tensor.masked_fill_((key.mask > 0).reshape(-1, *(1,) * (tensor.dim() - 1)), 0.0)


def find_kind(value: Mapping[Any, Any], kinds: Registry[str, V]) -> tuple[V | None, Any, dict[str, Any]]:
    """Return what the ``kind`` in a file's fields means, None where it means nothing, that kind, and the other fields.

    Installed plugins are loaded where it is unknown. Raises what a validator may raise where a field has no name.
    """
    fields = dict(value)
    kind = fields.pop("kind", None)
    if odd := [name for name in fields if not isinstance(name, str)]:
        raise bad("fields by name", f"{shown(odd[0])} is no name of a field.")
    return kinds.lookup(kind) if isinstance(kind, str) else None, kind, fields


def _parse_stages(value: Any) -> tuple[StageCfg, ...]:
    if isinstance(value, StageCfg):
        raise bad("a tuple of stages", "Write (stage,) with a comma.")
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise bad("a tuple of stages")
    stages = []
    for number, item in enumerate(value):
        if isinstance(item, Mapping):
            found, kind, fields = find_kind(item, STAGE_KINDS)
            if found is None:
                hint = nearest(str(kind), STAGE_KINDS).strip()
                raise bad(f"stages whose kind is one of {', '.join(sorted(STAGE_KINDS))}", hint)
            try:
                item = found(**fields)
            except ConfigError as error:
                faults = [replace(each, field=f"{number}.{each.field}") for each in error.faults]
                raise ConfigError(error.config, faults) from None
        if not isinstance(item, StageCfg):
            raise bad("a tuple of stages", f"{shown(item)} is none.")
        stages.append(item)
    return tuple(stages)


if TYPE_CHECKING:
    Stages = tuple[StageCfg, ...]
else:
    Stages = Annotated[
        Any, PlainValidator(_parse_stages), PlainSerializer(lambda stages: [stage.to_dict() for stage in stages])
    ]
