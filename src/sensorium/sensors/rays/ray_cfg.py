"""What every sensor that measures distances has in its config: which shapes it meets, how far, what a miss shows."""

from __future__ import annotations

import math
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import model_validator

from sensorium.cfg import Float, bad, in_unit, must
from sensorium.sensors.frames.targets_cfg import TargetsCfg

DataT = TypeVar("DataT")
LIGHT_SPEED = 299_792_458.0
"""Speed of light, m/s, exact (SI)."""
Distance = Annotated[Float, must(lambda distance: 0.0 <= distance < math.inf, "a finite distance >= 0, m")]
MissValue = Annotated[Float | None, must(lambda value: value == value, "a number, m", "+inf is the default.")]
Range = tuple[Float, Float]
AXES: tuple[Literal["x", "y", "z"], ...] = ("x", "y", "z")


def _rise(given: Any) -> bool:
    ranges = given.values() if isinstance(given, dict) else [given]
    return all(-math.inf < low <= high < math.inf for low, high in ranges)


RISING = must(_rise, "a range (low, high) with low <= high, m")
DriftRanges = Annotated[dict[Literal["x", "y", "z"], Range], RISING]
DriftRange = Annotated[Range, RISING] | DriftRanges


class DistanceCfg(TargetsCfg[DataT], Generic[DataT]):
    """A sensor of distances to the shapes of the scene."""

    min_distance: Annotated[Distance, in_unit("m")] = 0.0
    """A nearer hit is a miss, m."""
    no_hit_value: Annotated[MissValue, in_unit("m")] = None
    """The distance that a miss shows, m; None for +inf."""

    @property
    def miss(self) -> float:
        """The distance that a miss shows, m."""
        return float("inf") if self.no_hit_value is None else self.no_hit_value

    def refuse_idle_knobs(self, where: str, *fields: str) -> None:
        """Raise what a validator may where a knob or a stage has none of the fields that it acts on."""
        knob = self.first_imperfection
        if knob is not None and not {*fields} & {*self.selected}:
            raise bad(f"{knob}: it absent where {where}", f"It acts on {fields[0]}.")


class RayCfg(DistanceCfg[DataT], Generic[DataT]):
    """A sensor that casts rays at the shapes of the scene.

    It sees what a viewer shows, of every environment its own shapes only, and not the robot that it sits on.
    """

    max_distance: Annotated[Float, in_unit("m")] = 1.0e6
    """A farther hit is a miss, m."""

    @model_validator(mode="after")
    def _rising(self) -> Any:
        if not self.min_distance < self.max_distance < math.inf:
            raise bad(f"max_distance: a finite distance above min_distance = {self.min_distance:g} m")
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """Least and greatest distance, m."""
        return self.min_distance, self.max_distance


def spans_of(drift: Any) -> tuple[Range, ...]:
    """Return the ranges of a drift along x, y and z, m."""
    return tuple(drift.get(axis, (0.0, 0.0)) if isinstance(drift, dict) else drift for axis in AXES)


__all__ = [
    "LIGHT_SPEED",
    "DataT",
    "Distance",
    "DistanceCfg",
    "DriftRange",
    "DriftRanges",
    "MissValue",
    "Range",
    "RayCfg",
    "spans_of",
]
