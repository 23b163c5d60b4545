"""Configs of sensors: name, rate and history; the standard knobs; the mount."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal

from pydantic import Field, ValidationInfo, field_validator

from sensorium.cfg.base import Cfg, DataT, Float, ObjRef, OffsetCfg, Vec3, bad, in_unit, must, name_in
from sensorium.cfg.knobs import COLUMN_KNOBS, Amount, GilbertElliott, Knob, amount_bounds, is_within
from sensorium.errors import ConfigError, Fault, RegistrationError, nearest
from sensorium.measurement.stage_cfg import Stages
from sensorium.random import Normal
from sensorium.spec import kind_of

OWNERS: list[Callable[[type], type]] = [lambda cls: cls]
"""Returns the base of a config class that is paired with a sensor; set by the registry, which knows the pairs."""


Evaluate = Literal["auto", "always", "on_read", "wanted", "on_access"]


class VisualizerCfg(Cfg):
    """Style in which viewers draw a sensor; the viewer chooses values that are None."""

    field: str | None = None
    """Field that is drawn; for a cloud also the field that colours it, e.g. ``"intensity"``."""
    color: Annotated[
        Vec3 | None, must(lambda rgb: all(0.0 <= part <= 1.0 for part in rgb), "red, green and blue from 0 to 1")
    ] = None
    """Colour of all its shapes."""
    size: Annotated[
        Float | None, must(lambda size: 0.0 < size < float("inf"), "a finite size > 0, m"), in_unit("m")
    ] = None
    """Diameter of points, thickness of lines and arrows, length of the axes of frames, m."""


class SensorCfg(Cfg, Generic[DataT]):
    """Fields of every sensor: name, rate and history.

    The type parameter is the sensor's data class, so that `scene[cfg].data` is typed.
    """

    name: str = ""
    """Name in the scene; by default the kind, e.g. ``"imu"``."""
    update_period: Annotated[
        Float,
        must(
            lambda seconds: 0.0 <= seconds < math.inf,
            "a finite number of seconds >= 0",
            "Give 0 to sample at every tick.",
        ),
        in_unit("s", minimum=0.0),
    ] = 0.0
    """Seconds between samples; 0 samples at every physics tick. Need not be a multiple of the time step."""
    rate_hz: Annotated[
        Float | None,
        must(lambda rate: 0.0 < rate < math.inf, "a finite number of samples per second > 0"),
        in_unit("Hz", exclusiveMinimum=0.0),
    ] = None
    """Samples per second; an alternative to `update_period`."""
    history_length: Annotated[int, must(lambda length: length >= 0, "a whole number >= 0"), in_unit(minimum=0)] = 0
    """Number of samples kept in `.history`; 0 keeps none."""
    debug_vis: bool = False
    """Whether viewers draw the sensor."""
    visualizer_cfg: VisualizerCfg | None = None
    """Colour, size and field of the drawing; it has an effect where viewers draw the sensor. None for the default."""
    evaluate: Evaluate = "auto"
    """When samples are computed. ``auto``: on first read where the result is the same, else at each due tick.
    ``always``: at each due tick. ``on_read``: only when read. ``wanted``: at due ticks while the sensor has readers.
    ``on_access``: a due sample waits for a read and is of the tick of the read, from which the period runs again;
    outputs do not count as reads, and a sensor whose samples depend on earlier ones is computed as with ``auto``."""

    data_class: ClassVar[type[Any] | None] = None
    """A subclass of the sensor's data class for readings; None uses the data class itself."""
    sensor_class: ClassVar[type[Any] | None] = None
    """A subclass of the paired sensor class that scenes build; None builds the paired class itself."""
    selectable: ClassVar[tuple[str, ...]] = ()
    """Names allowed in a config field `fields`, in the order of the data class. Where set, only the fields in
    `selected` are computed."""
    always: ClassVar[tuple[str, ...]] = ()
    """Selectable fields that are always computed."""

    @field_validator("fields", check_fields=False)
    @classmethod
    def _known_fields(cls, value: Any) -> Any:
        if not cls.selectable or isinstance(value, str):
            return value
        for name in value:
            if name not in cls.selectable:
                raise bad(f"fields among {', '.join(cls.selectable)}", nearest(name, cls.selectable).strip())
        if not value and not cls.always:
            raise bad("at least one field")
        return value

    @property
    def selected(self) -> tuple[str, ...]:
        """The computed fields, in the order of the data class: those in `fields` and `always`."""
        chosen = getattr(self, "fields", ())
        return tuple(name for name in self.selectable if chosen == "all" or name in (*chosen, *self.always))

    def _init_with(self, data: Mapping[str, Any], faults: Sequence[Fault]) -> None:
        """Initialise the config, and raise one error for the faults of its fields and the given ones."""
        try:
            super().__init__(**data)
        except ConfigError as error:
            raise ConfigError(error.config, [*error.faults, *faults]) from None
        if faults:
            raise ConfigError(f"{type(self).__name__.split('[')[0]}{name_in(data)}", faults)

    @field_validator("rate_hz")
    @classmethod
    def _rate(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("update_period"):
            raise bad("either rate_hz or update_period", "Keep one of the two.")
        return value

    @classmethod
    def kind(cls) -> str:
        """Return the kind of this config in files; a class without a paired sensor has the kind of its base."""
        return kind_of(OWNERS[-1](cls))

    @property
    def label(self) -> str:
        """The name in the scene."""
        return self.name or self.kind()

    @property
    def title(self) -> str:
        """The config as shown in messages: its class and the name in the scene."""
        return f"{type(self).__name__.split('[')[0]}({self.label!r})"

    @property
    def prefixed_name(self) -> str:
        """The name in the scene, with the entity's prefix where the sensor has one; by default `label`."""
        return self.label

    def to_dict(self) -> dict[str, Any]:
        """Return the given fields, with the config's ``kind``."""
        return {"kind": self.kind(), **super().to_dict()}


_AT_LEAST_0 = must(
    lambda amount: is_within(amount, 0.0, math.inf),
    "an amount >= 0",
    "Give an amount >= 0; a Normal distribution is clipped at 0.",
)
NonNegativeKnob = Annotated[Knob, _AT_LEAST_0, in_unit(minimum=0.0)]


class SimpleSensorCfg(SensorCfg[DataT], Generic[DataT]):
    """Sensor with the measurement pipeline and the standard knobs.

    A knob that is absent (None) costs no memory and no time. A knob that is given, even as 0, can be set per env at run
    time. `noise` and `random_walk` are per sample; the densities are per sqrt(Hz) and remain valid when the rate
    changes.
    """

    noise: NonNegativeKnob = None
    """Standard deviation of white noise, per sample, in the field's unit (rad for a rotation)."""
    noise_density: NonNegativeKnob = None
    """White noise as a two-sided density (Allan's N), unit/sqrt(Hz): sigma = N * sqrt(sample rate)."""
    bias: Knob = None
    """Constant offset, in the field's unit."""
    random_walk: NonNegativeKnob = None
    """Standard deviation of the bias increment, per sample, in the field's unit."""
    random_walk_density: NonNegativeKnob = None
    """Rate random walk (Allan's K), unit*sqrt(Hz): sigma of the increment = K / sqrt(sample rate)."""
    resolution: NonNegativeKnob = None
    """Quantisation step, in the field's unit; 0 leaves the signal continuous."""
    delay: Annotated[Amount | None, _AT_LEAST_0, in_unit("s", minimum=0.0)] = None
    """Seconds from capture to arrival, rounded to the nearest tick, half up."""
    jitter: Annotated[Amount | None, _AT_LEAST_0, in_unit("s", minimum=0.0)] = None
    """Extra delay, drawn per sample, s. A number means uniform in [0, jitter). At most `delay`."""
    loss: Annotated[
        Float | GilbertElliott | None,
        must(
            lambda loss: not isinstance(loss, float) or 0.0 <= loss < 1.0,
            "a probability in [0, 1), or GilbertElliott(p, r)",
        ),
    ] = None
    """Probability that a sample never arrives, or `GilbertElliott(p, r)` for bursts of loss."""
    stages: Stages = ()
    """Imperfections beyond the standard chain; those with the same `place` run in this order."""

    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Short prefix -> data field and its unit, e.g. ``{"gyro": ("ang_vel_b", "rad/s")}``. A class that defines this has
    a config field for each knob of these data fields, such as `gyro_noise`."""

    @classmethod
    def knob_prefixes(cls) -> dict[str, str]:
        """Return the prefixes allowed in knob names, prefix -> data field: those of `prefixed_knobs`."""
        return {prefix: field for prefix, (field, _) in cls.prefixed_knobs.items()}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        hints: dict[str, Any] = {}
        for own, hint in inspect.get_annotations(cls).items():
            hints[own] = hint
            for prefix, (field, unit) in cls.prefixed_knobs.items() if own == "prefixed_knobs" else ():
                for knob, unit_of_knob in COLUMN_KNOBS.items():
                    named = unit_of_knob.format(unit)
                    extra: Any = {"unit": named} | ({} if knob == "bias" else {"minimum": 0.0})
                    hints[f"{prefix}_{knob}"] = Knob if knob == "bias" else Annotated[Knob, _AT_LEAST_0]
                    described = Field(None, description=f"`{knob}` of {field}, {named}.", json_schema_extra=extra)
                    setattr(cls, f"{prefix}_{knob}", described)
        cls.__annotations__ = hints

    @field_validator("delay", "jitter", mode="after")
    @classmethod
    def _one_for_the_sensor(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name == "jitter" and value is not None and "delay" in info.data:
            delay = info.data["delay"]
            most = amount_bounds(delay)[0] if delay is not None else 0.0
            if not isinstance(value, Normal) and amount_bounds(value)[1] > most:
                raise bad(f"a jitter of at most the delay, {most:g} s", "Increase delay or decrease jitter.")
            if delay is None:
                raise bad("a delay of at least the jitter", "Give delay as well.")
        if isinstance(value, tuple):
            raise bad(f"one number or distribution, since {info.field_name} applies to the sensor and not to a column")
        return value


SELECTORS = ("site", "sites", "body", "bodies", "geom", "geoms", "joint", "joints", "camera", "cameras", "link_name",
             "link_names", "prim_path")  # fmt: skip
Selector = str | ObjRef | None
Selectors = str | ObjRef | tuple[str | ObjRef, ...] | None


def one_place(value: Any) -> Any:
    """Reject a plural selector; a validator for sensors with one mount."""
    if value is not None:
        raise bad("one mount", "Add one sensor for each mount.")
    return value


class MountedSensorCfg(SimpleSensorCfg[DataT], Generic[DataT]):
    """Sensor with a mount. Give exactly one selector.

    A singular selector means exactly one place and gives no mount axis. A plural one (a full-match pattern or a list)
    gives a mount axis after env. ``body="world"``, or an explicit ``body=None``, mounts the sensor on the world.
    """

    site: Selector = None
    """Name (or full-match pattern) of one site."""
    sites: Selectors = None
    """Pattern or list of sites."""
    body: Selector = None
    """Name of one body; ``"world"`` means the world."""
    bodies: Selectors = None
    """Pattern or list of bodies."""
    geom: Selector = None
    """Name of one geom."""
    geoms: Selectors = None
    """Pattern or list of geoms."""
    joint: Selector = None
    """Name of one joint: the frame has its origin at the joint anchor and the axes of the joint's body."""
    joints: Selectors = None
    """Pattern or list of joints."""
    camera: Selector = None
    """Name of one camera of the model."""
    cameras: Selectors = None
    """Pattern or list of cameras."""
    link_name: Selector = None
    """Name of one body, by its URDF term."""
    link_names: Selectors = None
    """Pattern or list of bodies, by their URDF term."""
    prim_path: str | None = None
    """Path of one prim: ``{ENV_REGEX_NS}/Robot/imu`` is looked up as ``Robot/imu`` and then as ``imu``."""
    mount_has_offset: ClassVar[bool] = True
    """Whether `offset` moves the mount's frame; False if the sensor applies `offset` itself."""
    offset: OffsetCfg = OffsetCfg()
    """Pose of the sensor's frame relative to the frame it is mounted on."""

    OffsetCfg: ClassVar[type[OffsetCfg]] = OffsetCfg
    sits_on: ClassVar[tuple[str, tuple[str, ...]] | None] = None
    """Possible mounts of sensors of this class, as text and as selectors; None means anything, including the world."""

    def __init__(self, /, **data: Any) -> None:
        given = [name for name in SELECTORS if name in data]
        wanted = [name for name in given if data[name] is not None]
        if given and not wanted:
            data = {name: value for name, value in data.items() if name not in given} | {"body": "world"}
        faults = []
        if len(wanted) > 1:
            got = ", ".join(f"{name}={data[name]!r}" for name in wanted)
            faults.append(Fault("mount", got, "exactly one selector", "Keep one of the selectors."))
        elif not given:
            expected = f"one of {', '.join(SELECTORS)}"
            faults.append(
                Fault("mount", "no selector", expected, 'To mount the sensor on the world, write body="world".')
            )
        elif self.sits_on is not None:
            what, selectors = self.sits_on
            selector = wanted[0] if wanted else "body"
            names = data[selector] if isinstance(data[selector], tuple | list) else (data[selector],)
            is_world = any(isinstance(name, str) and name == "world" for name in names)
            if is_world or selector not in selectors:
                fix = "Name an element that moves, not the world." if is_world else ""
                faults.append(Fault(selector, repr(data[selector]), f"{what}, by one of {', '.join(selectors)}", fix))
        self._init_with(data, faults)

    def __init_subclass__(cls, **options: Any) -> None:
        for name in SELECTORS[:-1]:  # configs of Isaac Lab give a default for prim_path
            if vars(cls).get(name) is not None:
                raise RegistrationError(
                    f"{cls.__qualname__}.{name} replaces a selector of MountedSensorCfg, which says where the sensor "
                    f"is mounted. Give the field another name, such as {name}_name."
                )
        super().__init_subclass__(**options)

    @property
    def selector(self) -> tuple[str, Any]:
        """The given selector: its field name and value."""
        return next((name, getattr(self, name)) for name in SELECTORS if getattr(self, name) is not None)

    @property
    def is_plural(self) -> bool:
        """Whether the sensor has a mount axis."""
        return self.selector[0].endswith("s") or self.selector[0] == "bodies"
