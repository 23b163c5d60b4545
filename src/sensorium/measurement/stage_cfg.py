"""Configs of stages: imperfections beyond the standard chain."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from sensorium.cfg.base import Cfg, bad
from sensorium.cfg.help import Parsed
from sensorium.errors import ConfigError, nearest, shown
from sensorium.plugins import Plugins, Registry, V
from sensorium.spec import kind_of

if TYPE_CHECKING:
    from torch import Tensor

    from sensorium.measurement.record import Record
    from sensorium.measurement.stage_key import StageKey
    from sensorium.spec import FieldSpec

Place = Literal["physics", "scale", "noise", "bias", "saturation", "dropout", "post"]
"""Places of stages in the measurement chain, in this order; quantisation is between saturation and dropout."""
PLACES: tuple[Place, ...] = ("physics", "scale", "noise", "bias", "saturation", "dropout", "post")

SENSOR_PLUGINS = Plugins("sensorium.sensors", "sensor")
"""The installed packages with sensors, stages and patterns, and the built-in ones."""
STAGE_KINDS: Registry[str, type[StageCfg]] = Registry(
    "kind of stage",
    SENSOR_PLUGINS,
    "{cls} has the kind {key!r}, which belongs to {other}. Rename the stage class.",
    keeps_ours=True,
)
"""Stage classes by kind; a class registers when it is defined."""


class StageCfg(Cfg):
    """One imperfection beyond the standard chain. Subclass it, set `place` and implement `apply`.

    The subclass is config and behaviour in one, and an instance holds no state. State that persists between samples is
    declared by `state_specs` and passed to `apply`, so that reset and save include it.
    """

    place: ClassVar[Place]
    """Place in the chain. A subclass may make it a config field with a default, so that each instance can choose."""
    is_recorded: ClassVar[bool] = False
    """True if `apply` only launches Warp kernels with fixed arguments: it is then called once and replayed."""
    observes: ClassVar[bool] = False
    """True if the stage also needs the ticks between samples, in `observe`."""
    otherwise: ClassVar[str] = ""
    """Alternative for sensors that cannot be evaluated between samples: a sentence for the error message."""
    on_values: ClassVar[bool] = True
    """False if the stage alters no field and so accepts no `fields`."""

    fields: tuple[str, ...] = ()
    """Fields that the stage alters; empty means all floating-point vector fields of the sensor."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        place = cls.__dict__.get("place")
        if "place" in inspect.get_annotations(cls) and "place" in cls.model_fields:
            place = cls.model_fields["place"].default
        if place is not None:
            if place not in PLACES:
                raise TypeError(f"{cls.__name__}.place is {place!r}; expected one of {', '.join(PLACES)}")
            STAGE_KINDS.add(kind_of(cls), cls)

    def to_dict(self) -> dict[str, Any]:
        """Return the given fields, with the stage's ``kind``."""
        return {"kind": kind_of(type(self)), **super().to_dict()}

    def state_specs(self, columns: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
        """Return name -> shape (after env) of the float32 states of this stage.

        Args:
            columns: the altered fields and their numbers of columns.
        """
        return {}

    def state_shapes(self, key: StageKey) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of all states; override it instead of `state_specs` if shapes depend on more than columns.

        Args:
            key: holds the layout of the fields in `specs`, the period and the tick.
        """
        return self.state_specs(key.columns)

    def check(self, columns: Mapping[str, int], specs: Mapping[str, FieldSpec], period: float) -> None:
        """Raise `ValueError` if the stage cannot be used with a sensor; its text states the accepted values.

        Args:
            columns: the altered fields and their numbers of columns.
            specs: all fields of `truth`.
            period: mean time between samples, s.
        """

    def keeps_rotations(self) -> bool:
        """Return whether unit quaternions stay unit quaternions; otherwise rotation fields are rejected in `fields`."""
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
        """Process the true value at a tick between samples; called only if `observes` is true.

        A stage with `is_recorded` only launches Warp kernels with fixed arguments here: they are recorded and replayed.

        Args:
            truth: true fields of the sensor at this tick, before `apply_transform`, read only.
            state: the declared states, written in place.
            key: times of this tick.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define observe")

    def bias(self, field: str, state: Mapping[str, Tensor], key: StageKey) -> Tensor | None:
        """Return what the stage added to a field at the newest sample whatever the value, for recordings of states.

        Args:
            field: one of the altered fields.
            state: the declared states.
            key: times of this sample.

        Returns:
            In the field's unit, `[env, column]` or `[1, column]`; None if it adds nothing, the default.

        Raises:
            ConfigError: the stage has the place ``"bias"`` and does not define this method.
        """
        if self.place == "bias":
            fix = "Define the method `bias` in the stage, or record without states."
            raise ConfigError.single(key.sensor, "stages", kind_of(type(self)), "stages whose bias is known", fix)
        return None

    def reset(self, state: Mapping[str, Tensor], key: StageKey) -> None:
        """Set the states of the envs in `key.mask` for a new episode; by default to zero."""
        for tensor in state.values():
            tensor.masked_fill_((key.mask > 0).reshape(-1, *(1,) * (tensor.dim() - 1)), 0.0)


def find_kind(value: Mapping[Any, Any], kinds: Registry[str, V]) -> tuple[V | None, Any, dict[str, Any]]:
    """Return the class of the ``kind`` in a file's fields (None if unknown), the kind itself, and the other fields.

    Installed plugins are loaded if the kind is unknown. Raises as a validator does if a field name is not text.
    """
    fields = dict(value)
    kind = fields.pop("kind", None)
    if odd := [name for name in fields if not isinstance(name, str)]:
        raise bad("fields by name", f"{shown(odd[0])} is not a field name.")
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
            raise bad("a tuple of stages", f"{shown(item)} is not a stage.")
        stages.append(item)
    return tuple(stages)


if TYPE_CHECKING:
    Stages = tuple[StageCfg, ...]
else:
    Stages = Annotated[
        Any, Parsed("tuple[StageCfg, ...]", _parse_stages, lambda stages: [stage.to_dict() for stage in stages])
    ]
