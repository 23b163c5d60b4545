"""Base of ray patterns: a config that defines rays in the sensor's frame, x forward, y left, z up."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Strict, field_validator
from torch import Tensor

from sensorium.cfg import Cfg, Float, Parsed, Vec3, bad, must
from sensorium.errors import ConfigError, RegistrationError, nearest, shown
from sensorium.measurement.stage_cfg import SENSOR_PLUGINS, find_kind
from sensorium.plugins import Registry
from sensorium.spec import snake_case

Device = str | torch.device
Int = Annotated[int, Strict()]
"""A whole number; text and fractions are rejected."""

MAX_RAYS = 100_000_000
"""Maximum number of rays of a pattern; more are rejected as a typing error: the directions would fill 1.2 GB."""
PATTERN_KINDS: Registry[str, type[PatternBaseCfg]] = Registry(
    "kind of pattern",
    SENSOR_PLUGINS,
    "the kind {key!r} of {cls} belongs to the built-in {other}. Rename the class.",
    keeps_ours=True,
)
"""Pattern classes by kind; a class registers when it is defined."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Rays:
    """The rays of a pattern, in the sensor's frame: x forward, y left, z up.

    Attributes:
        starts: float32 `[ray, 3]`, m.
        directions: float32 `[ray, 3]`, unit length.
        return_shape: shape of the rays on their natural axes, e.g. (height, width) of an image; its product is the
            number of rays, and the last axis varies fastest.
        times: float64 `[ray]`, s since the start of the scan, never decreasing; None if all rays fire at once.
        channels: int32 `[ray]`, laser or row of each ray; None if the pattern defines none.
        period: s after which the scan repeats; None if all rays fire at once.
    """

    starts: Tensor
    directions: Tensor
    return_shape: tuple[int, ...]
    times: Tensor | None = None
    channels: Tensor | None = None
    period: float | None = None

    def __len__(self) -> int:
        return len(self.directions)

    def __repr__(self) -> str:
        scan = f", {self.period:g} s" if self.period is not None else ""
        return f"Rays({len(self)} rays, shape {self.return_shape}{scan}, {self.directions.device})"


def pattern_kind(cls: type) -> str:
    """Return the kind of a pattern class in files: ``"grid"`` for ``GridPatternCfg``."""
    return snake_case(cls.__name__.removesuffix("Cfg").removesuffix("Pattern"))


class PatternBaseCfg(Cfg):
    """Pattern of rays. Subclass it and define `func`.

    `func(cfg, device)` returns the starts, m, and the directions, both `[ray, 3]`, in the sensor's frame (x forward, y
    left, z up). It may be a method, a static method, or a class attribute or field that holds a function; in each case
    its first argument is the config. Directions need not have unit length.
    """

    is_abstract: ClassVar[bool] = True
    """True in the body of a base class, which has no kind."""

    if TYPE_CHECKING:
        func: ClassVar[Any]
        """Function of the pattern, see the class."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if cls.__dict__.get("is_abstract", False) or _function(cls) is None:
            return
        PATTERN_KINDS.add(pattern_kind(cls), cls)

    @field_validator("*", mode="after")
    @classmethod
    def _finite(cls, value: Any) -> Any:
        if not _is_finite(value):
            raise bad("finite numbers")
        return value

    @classmethod
    def kind(cls) -> str:
        """Return the kind of this pattern in files."""
        return pattern_kind(cls)

    def to_dict(self) -> dict[str, Any]:
        """Return the given fields, with the pattern's ``kind``.

        Raises:
            ConfigError: a field holds a function or another object that a file cannot hold.
        """
        for name in self.model_fields_set:
            if callable(getattr(self, name)):
                fix = "Define a subclass of PatternBaseCfg with this func, which files can name by its kind."
                raise self._bad(name, getattr(self, name), "a value that a file can hold", fix)
        return {"kind": self.kind(), **super().to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build the pattern from the result of `to_dict`; `PatternBaseCfg.from_dict` builds a pattern of any kind.

        Raises:
            ConfigError: lists every fault at once; also if the kind is that of another class.
        """
        kind = data.get("kind")
        if cls is PatternBaseCfg:
            pattern: Self = parse_pattern(data)
            return pattern
        if kind is not None and kind != cls.kind():
            raise ConfigError.single(cls.__name__, "kind", kind, repr(cls.kind()), "Use PatternBaseCfg.from_dict.")
        return super().from_dict(data)

    def _bad(self, field: str, got: object, expected: str, fix: str = "") -> ConfigError:
        return ConfigError.single(type(self).__name__, field, got, expected, fix)

    # Rays -------------------------------------------------------------------------------------------------------------

    @property
    def return_shape(self) -> tuple[int, ...]:
        """Shape of the rays on their natural axes, the last one varying fastest; by default one axis."""
        return (len(self._starts_and_directions("cpu")[0]),)

    def count_rays(self) -> int | None:
        """Return the number of rays, or an upper bound, without computing them; None if unknown."""
        own = type(self).return_shape
        return None if own is PatternBaseCfg.return_shape else math.prod(self.return_shape)

    def ray_channels(self) -> NDArray[np.int32] | None:
        """Return the laser or row of each ray, `[ray]`; by default None."""
        return None

    def rays(self, device: Device = "cpu") -> Rays:
        """Return the rays, on `device`.

        Raises:
            ConfigError: `func` does not return two float tensors `[ray, 3]`, or a direction is zero or not finite; the
                message gives the ray.
            RegistrationError: the class has no `func`.
        """
        starts, directions = self._starts_and_directions(device)
        has_shape = type(self).return_shape is not PatternBaseCfg.return_shape
        shape = tuple(self.return_shape) if has_shape else (len(starts),)
        if math.prod(shape) != len(starts):
            raise self._bad("return_shape", shape, f"a shape whose product is the number of rays, {len(starts)}")
        channels = self.ray_channels()
        if channels is not None and len(channels) != len(starts):
            expected = f"one channel for each of the {len(starts)} rays"
            raise self._bad("ray_channels", len(channels), expected)
        return Rays(
            starts,
            directions,
            shape,
            channels=None if channels is None else torch.tensor(channels, dtype=torch.int32, device=device),
        )

    def of_model(self, engine: Any) -> PatternBaseCfg:
        """Return the pattern with the values that it takes from the model of an engine; by default itself."""
        return self

    def generate_rays(self, mj_model: object, device: Device) -> tuple[Tensor, Tensor]:
        """Return starts and unit directions, float32 `[ray, 3]`, in mjlab's form, for any model."""
        rays = self.rays(device)
        return rays.starts, rays.directions

    def _starts_and_directions(self, device: Device) -> tuple[Tensor, Tensor]:
        """Return the checked starts and unit directions of `func`, float32 `[ray, 3]`."""
        name = type(self).__name__
        function = _function(type(self), self)
        if function is None:
            raise RegistrationError(
                f"{name} has no func. Write a method: def func(self, device): return starts, directions"
            )
        result = function(self, str(device))
        fix = "Return (starts, directions), both torch float tensors [ray, 3]."
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise ConfigError.single(name, "func", result, "a pair of tensors", fix)
        for what, value in zip(("starts", "directions"), result, strict=True):
            if not isinstance(value, torch.Tensor):
                raise ConfigError.single(name, f"func.{what}", value, "a torch tensor", fix)
            if value.dim() != 2 or value.shape[1] != 3 or not len(value):
                raise ConfigError.single(name, f"func.{what}", tuple(value.shape), "a tensor [ray, 3]", fix)
            if not value.is_floating_point():
                raise ConfigError.single(name, f"func.{what}", value.dtype, "a float tensor", fix)
        starts, directions = (value.detach().to(device) for value in result)
        if len(starts) != len(directions):
            expected = f"as many directions as starts, {len(starts)}"
            raise ConfigError.single(name, "func.directions", len(directions), expected, fix)
        wide = directions.double()
        length = wide.norm(dim=-1, keepdim=True)
        _refuse_rays(name, "starts", starts, torch.isfinite(starts).all(dim=-1), "finite numbers")
        _refuse_rays(
            name, "directions", directions, (torch.isfinite(length) & (length > 0.0))[:, 0], "finite and not all zero"
        )
        return starts.float().contiguous(), (wide / length).float().contiguous()


def _refuse_rays(name: str, what: str, values: Tensor, good: Tensor, expected: str) -> None:
    if bool(good.all()):
        return
    rows = torch.nonzero(~good)[:, 0]
    fix = f"Correct or remove such rays, {len(rows)} of {len(values)}."
    raise ConfigError.single(name, f"func.{what}[{int(rows[0])}]", values[rows[0]].tolist(), expected, fix)


def _function(cls: type[PatternBaseCfg], pattern: PatternBaseCfg | None = None) -> Callable[..., Any] | None:
    """Return the unbound function of a pattern class, or of one pattern; None if there is none."""
    if "func" in cls.model_fields:
        value: Any = cls.model_fields["func"].default if pattern is None else getattr(pattern, "func", None)
    else:
        value = inspect.getattr_static(cls, "func", None)
    if isinstance(value, staticmethod):
        value = value.__func__
    return value if callable(value) else None


def _is_finite(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


# Fields of sensor configs ---------------------------------------------------------------------------------------------


class GeneratedPatternCfg(PatternBaseCfg):
    """Rays of an object with mjlab's method `generate_rays(mj_model, device) -> (starts, directions)`.

    A sensor creates it from such an object. It cannot be written to a file.
    """

    source: Annotated[
        Any,
        must(
            lambda given: callable(getattr(given, "generate_rays", None)),
            "an object with a method generate_rays(mj_model, device)",
        ),
    ]
    """The object. Its method is called with None for the model."""

    def func(self, device: str) -> tuple[Tensor, Tensor]:
        """Return starts and directions, `[ray, 3]`."""
        starts, directions = self.source.generate_rays(None, device)
        return starts, directions

    def to_dict(self) -> dict[str, Any]:
        """Raise an error, since a file cannot hold the object.

        Raises:
            ConfigError: always.
        """
        fix = "Define a subclass of PatternBaseCfg: files can name it by its kind."
        raise ConfigError.single("GeneratedPatternCfg", "source", self.source, "a value that a file can hold", fix)


def parse_pattern(value: Any) -> Any:
    """Return a pattern: one unchanged, or the result of `to_dict`, identified by its ``kind``.

    Raises as a validator does.
    """
    if isinstance(value, PatternBaseCfg):
        return value
    if isinstance(value, Mapping):
        found, kind, fields = find_kind(value, PATTERN_KINDS)
        if found is None:
            known = sorted(name for name in PATTERN_KINDS if name != GeneratedPatternCfg.kind())
            if kind is None:
                raise ConfigError.single("pattern", "kind", None, f"one of {', '.join(known)}", 'Write kind = "grid".')
            raise ConfigError.single(
                "pattern", "kind", kind, f"one of {', '.join(known)}", nearest(str(kind), known).strip()
            )
        return found(**fields)
    if callable(getattr(value, "generate_rays", None)) and not isinstance(value, type):
        return GeneratedPatternCfg(source=value)
    raise bad("a pattern such as GridPatternCfg(size=(1.6, 1.0), resolution=0.1)", f"{shown(value)} is not a pattern.")


def _parse_optional(value: Any) -> Any:
    return None if value is None else parse_pattern(value)


def _dump(pattern: PatternBaseCfg | None) -> dict[str, Any] | None:
    return None if pattern is None else pattern.to_dict()


if TYPE_CHECKING:
    PatternField = PatternBaseCfg
    OptionalPatternField = PatternBaseCfg | None
else:
    PatternField = Annotated[Any, Parsed("PatternBaseCfg", parse_pattern, _dump)]
    """Type of a config field that holds a pattern of any kind."""
    OptionalPatternField = Annotated[Any, Parsed("PatternBaseCfg | None", _parse_optional, _dump)]
    """Type of a config field that holds a pattern of any kind, or None."""


# Helpers --------------------------------------------------------------------------------------------------------------


def tensor(values: ArrayLike, device: Device) -> Tensor:
    """Return values as a float32 tensor on a device."""
    return torch.tensor(np.asarray(values, np.float32), device=device)


def along(azimuth: ArrayLike, elevation: ArrayLike) -> NDArray[np.float64]:
    """Return unit vectors `[..., 3]` for angles in degrees: azimuth left of x about z, elevation upwards."""
    a, e = np.broadcast_arrays(np.radians(azimuth), np.radians(elevation))
    return np.stack([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)], axis=-1)


def wrapped(azimuth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return angles in degrees, wrapped to [-180, 180)."""
    turned: NDArray[np.float64] = np.mod(azimuth + 180.0, 360.0) - 180.0
    return turned


def is_full_turn(span: float) -> bool:
    """Return whether a span of degrees is the whole circle, so that its end equals its start."""
    return abs(span - 360.0) < 1e-6


def stepped(low: float, high: float, step: float) -> NDArray[np.float64]:
    """Return low, low + step, ... up to high, which is included if it is on the grid and less than a full turn away.

    Args:
        low: first angle, deg.
        high: upper bound, deg.
        step: exact step, deg.
    """
    ratio = (high - low) / step
    count = math.ceil(ratio - 1e-9) if is_full_turn(high - low) else math.floor(ratio + 1e-9) + 1
    angles: NDArray[np.float64] = low + step * np.arange(max(count, 1), dtype=np.float64)
    return angles


def check_span(span: tuple[float, float]) -> tuple[float, float]:
    """Return an azimuth range; raise as a validator does if it decreases or exceeds a full turn."""
    low, high = span
    if high < low:
        raise bad("a range (low, high), deg", f"Swap low and high: ({high:g}, {low:g}).")
    if high - low > 360.0 + 1e-6:
        raise bad(f"at most 360 degrees, not {high - low:g}", "Give for example (-180, 180).")
    return span


def check_elevations(values: tuple[float, ...]) -> tuple[float, ...]:
    """Return elevations; raise as a validator does if one is beyond straight up or down."""
    if not all(-90.0 <= value <= 90.0 for value in values):
        raise bad("elevations from -90 to 90, deg")
    return values


AzimuthSpan = Annotated[tuple[Float, Float], AfterValidator(check_span)]
"""Azimuths (low, high), deg, at most a full turn."""
ELEVATIONS = AfterValidator(check_elevations)
Direction = Annotated[Vec3, must(any, "a direction that is not zero", "Give (0, 0, -1) for downwards.")]
Step = Annotated[Float, must(lambda step: not step <= 0.0, "a step greater than 0, deg")]
Positive = Annotated[Float, must(lambda number: not number <= 0.0, "a number greater than 0")]


def check_count(count: float) -> None:
    """Raise as a validator does if a pattern has more rays than `MAX_RAYS`."""
    if count > MAX_RAYS:
        raise bad(f"at most {MAX_RAYS} rays, not {count:.3g}", "Use a coarser or smaller pattern.")
