"""CARLA's names: descriptions of sensor actors, and its lidar, radar and event camera, with CARLA's defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from sensorium.cameras import event_camera as _events
from sensorium.cfg import Positive
from sensorium.compat.actors import ActorAttribute, ActorBlueprint
from sensorium.compat.aliases import AliasedCfg
from sensorium.errors import ConfigError
from sensorium.patterns import PatternField, SpinningPatternCfg
from sensorium.sensors.rays import lidar as _lidar
from sensorium.sensors.rays import radar as _radar
from sensorium.wire.attributes import ActorDescription as FActorDescription
from sensorium.wire.attributes import Attribute
from sensorium.wire.attributes import SensorDefinition as FActorDefinition

_TYPES = {"bool": "boolean", "int": "integer", "float": "number", "string": "string"}


class FActorVariation(Attribute):
    """Attribute of a sensor; its default is the first recommended value.

    Args:
        id: name, an identifier.
        type: ``bool``, ``int``, ``float`` or ``string``.
        recommended_values: sensible values, as text.
        restrict_to_recommended: whether all other values are rejected.

    Raises:
        ConfigError: the id is not an identifier, the type is unknown, or a value is not of the type.
    """

    def __init__(
        self,
        id: str,
        type: str = "string",
        recommended_values: Sequence[str] = (),
        restrict_to_recommended: bool = False,
    ) -> None:
        if type not in _TYPES:
            raise ConfigError.single(f"FActorVariation({id!r})", "type", type, f"one of {', '.join(_TYPES)}")
        schema = {"type": _TYPES[type]}
        values = [Attribute(id, schema).parse(value) for value in recommended_values]
        listed = {"enum" if restrict_to_recommended else "examples": values, "default": values[0]} if values else {}
        super().__init__(id, {**schema, **listed})


def lidar_pattern(
    channels: int = 32,
    upper_fov: float = 10.0,
    lower_fov: float = -30.0,
    points_per_second: float = 56000.0,
    rotation_frequency: float = 10.0,
    horizontal_fov: float = 360.0,
) -> SpinningPatternCfg:
    """Return the geometry of CARLA's lidar.

    Channel i is at upper - i (upper - lower) / (channels - 1); a single channel is at the upper end. All channels fire
    together, points_per_second / channels times per second, and sweep the horizontal field of view clockwise once per
    rotation. CARLA rounds the number of points to each step of its simulation; here time is continuous.

    Args:
        channels: number of lasers.
        upper_fov: elevation of the first channel, deg.
        lower_fov: elevation of the last channel, deg.
        points_per_second: total ray rate of all lasers, 1/s.
        rotation_frequency: sweeps per second.
        horizontal_fov: extent in azimuth, deg.
    """
    for name, value in (("channels", channels), ("points_per_second", points_per_second)):
        if not 1 <= value < math.inf:
            raise ConfigError.single("lidar_pattern", name, value, "a number >= 1")
    return SpinningPatternCfg(
        elevations=tuple(np.linspace(upper_fov, lower_fov, channels).tolist()),
        cycle_interval=channels / points_per_second,
        rate_hz=rotation_frequency,
        horizontal_fov=(-0.5 * horizontal_fov, 0.5 * horizontal_fov),
        sawtooth=True,
    )


class LidarCfg(AliasedCfg, _lidar.LidarCfg):
    """Configuration of a lidar whose intensity depends on distance only."""

    pattern: PatternField = lidar_pattern()
    """Directions and firing times of the rays."""
    model: Literal["physical", "dropoff"] = "dropoff"
    """Model of the returns."""


class RadarData(_radar.RadarData):
    """One scan."""

    __slots__ = ()

    @property
    def depth(self) -> Tensor:
        """`range`."""
        return self.range

    @property
    def azimuth_carla(self) -> Tensor:
        """`azimuth` with CARLA's sign: right positive, rad."""
        return -self.azimuth

    @property
    def raw_data(self) -> Tensor:
        """Velocity, azimuth (right positive), altitude and depth of each ray, ``[..., ray, 4]``."""
        return torch.stack([self.velocity, self.azimuth_carla, self.altitude, self.range], dim=-1)


class RadarCfg(AliasedCfg, _radar.RadarCfg):
    """Configuration of a radar whose rays are denser towards the axis of the cone."""

    data_class: ClassVar[type[Any] | None] = RadarData

    distribution: Literal["area", "central"] = "central"
    """Distribution of the rays in the cone."""


class EventCameraData(_events.EventCameraData):
    """The events since the last sample."""

    __slots__ = ()

    @property
    def pol(self) -> Tensor:
        """`polarity` as bool, True for a brighter pixel."""
        return self.polarity > 0

    @property
    def t(self) -> Tensor:
        """`time_offset` in ns, int64: relative to the capture."""
        return (self.time_offset.double() * 1e9).round().long()


class EventCameraCfg(AliasedCfg, _events.EventCameraCfg):
    """Configuration of an event camera with the thresholds of CARLA's `dvs`."""

    data_class: ClassVar[type[Any] | None] = EventCameraData

    positive_threshold: Positive = 0.3
    """Rise of the brightness that causes an event of polarity 1."""
    negative_threshold: Positive = 0.3
    """Fall of the brightness that causes an event of polarity -1."""


__all__ = [
    "ActorAttribute",
    "ActorBlueprint",
    "EventCameraCfg",
    "EventCameraData",
    "FActorDefinition",
    "FActorDescription",
    "FActorVariation",
    "LidarCfg",
    "RadarCfg",
    "RadarData",
    "lidar_pattern",
]
