"""What every sensor that measures distances has in its config: which shapes it meets, how far, what a miss shows."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from sensorium.cfg import Float
from sensorium.errors import ConfigError, Fault
from sensorium.sensors.frames.targets_cfg import TargetsCfg

DataT = TypeVar("DataT")


class DistanceCfg(TargetsCfg[DataT], Generic[DataT]):
    """A sensor of distances to the shapes of the scene."""

    min_distance: Float = 0.0
    """A nearer hit is a miss, m."""
    no_hit_value: Float | None = None
    """The distance that a miss shows, m; None for +inf."""

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        if faults := self._distance_faults():
            raise ConfigError(f"{type(self).__name__.split('[')[0]}({self.label!r})", faults)

    def _distance_faults(self) -> list[Fault]:
        faults = []
        if not 0.0 <= self.min_distance < float("inf"):
            faults.append(Fault("min_distance", repr(self.min_distance), "a finite distance >= 0, m"))
        if self.no_hit_value is not None and self.no_hit_value != self.no_hit_value:
            faults.append(Fault("no_hit_value", repr(self.no_hit_value), "a number, m", "+inf is the default."))
        return faults

    @property
    def miss(self) -> float:
        """The distance that a miss shows, m."""
        return float("inf") if self.no_hit_value is None else self.no_hit_value


class RayCfg(DistanceCfg[DataT], Generic[DataT]):
    """A sensor that casts rays at the shapes of the scene.

    It sees what a viewer shows, of every environment its own shapes only, and not the robot that it sits on.
    """

    max_distance: Float = 1.0e6
    """A farther hit is a miss, m."""

    def _distance_faults(self) -> list[Fault]:
        faults = super()._distance_faults()
        if 0.0 <= self.min_distance < float("inf") and not self.min_distance < self.max_distance < float("inf"):
            expected = f"a finite distance above min_distance = {self.min_distance:g} m"
            faults.append(Fault("max_distance", repr(self.max_distance), expected))
        return faults

    @property
    def limits(self) -> tuple[float, float]:
        """Least and greatest distance, m."""
        return self.min_distance, self.max_distance


__all__ = ["DistanceCfg", "RayCfg"]
