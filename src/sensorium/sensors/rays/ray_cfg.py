"""Config base of sensors that measure distances: the candidate shapes, the limits, and the value of a miss."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import model_validator

from sensorium.cfg import Float, bad, in_unit, must
from sensorium.sensors.frames.targets_cfg import TargetsCfg

DataT = TypeVar("DataT")
LIGHT_SPEED = 299_792_458.0
"""Speed of light, m/s, exact (SI)."""
Distance = Annotated[Float, must(lambda distance: 0.0 <= distance < math.inf, "a finite distance >= 0, m")]
MissValue = Annotated[Float | None, must(lambda value: value == value, "a number, m", "Omit it for +inf.")]
Range = tuple[Float, Float]
Spans = tuple[Range, ...]
AXES: tuple[Literal["x", "y", "z"], ...] = ("x", "y", "z")


def _rise(given: Any) -> bool:
    ranges = given.values() if isinstance(given, dict) else [given]
    return all(-math.inf < low <= high < math.inf for low, high in ranges)


RISING = must(_rise, "a range (low, high) with low <= high, m")
DriftRanges = Annotated[dict[Literal["x", "y", "z"], Range], RISING]
DriftRange = Annotated[Range, RISING] | DriftRanges


class DistanceCfg(TargetsCfg[DataT], Generic[DataT]):
    """Sensor of distances to the shapes of the scene."""

    min_distance: Annotated[Distance, in_unit("m")] = 0.0
    """Smallest measured distance, m; nearer hits are misses."""
    no_hit_value: Annotated[MissValue, in_unit("m")] = None
    """Distance reported for a miss, m; None means +inf."""

    @property
    def miss(self) -> float:
        """Distance reported for a miss, m."""
        return float("inf") if self.no_hit_value is None else self.no_hit_value


class RayCfg(DistanceCfg[DataT], Generic[DataT]):
    """Sensor that casts rays at the shapes of the scene.

    By default it sees all visible shapes of its own environment, except those of the robot that carries it.
    """

    keeps_layout: ClassVar[bool] = False
    """Whether readers get the rays on the axes of the pattern, its `return_shape`, instead of one axis."""

    max_distance: Annotated[Float, in_unit("m")] = 1.0e6
    """Largest measured distance, m; farther hits are misses."""

    @model_validator(mode="after")
    def _rising(self) -> Any:
        if not self.min_distance < self.max_distance < math.inf:
            raise bad(f"max_distance: a finite distance above min_distance = {self.min_distance:g} m")
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """Minimum and maximum measured distance, m."""
        return self.min_distance, self.max_distance

    @property
    def drift_spans(self) -> tuple[Spans | None, Spans | None]:
        """Ranges of the drift of the position, and of the drift of the scan, for x, y and z, m; None: cannot drift.

        A range that was given can change before a reset, even one of zero.
        """
        return self._spans("drift_range"), self._spans("ray_cast_drift_range")

    def _spans(self, name: str) -> Spans | None:
        drift = getattr(self, name, None) or {}
        spans = tuple(drift.get(axis, (0.0, 0.0)) if isinstance(drift, dict) else drift for axis in AXES)
        return spans if name in self.model_fields_set or any(map(any, spans)) else None

    @property
    def drifts(self) -> bool:
        """Whether the measured value is of a different pose than the true one."""
        return any(spans is not None for spans in self.drift_spans)
