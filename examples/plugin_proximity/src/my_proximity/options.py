"""Data and configuration of the sensor."""

from dataclasses import dataclass
from typing import Annotated

import sensorium as sn
from pydantic import PositiveFloat
from torch import Tensor


@dataclass(frozen=True, slots=True)
class MyProximityData:
    """Data of a proximity sensor."""

    distance: Annotated[Tensor, sn.Field("m", role="range")]
    """Distance from the world's origin, at most `max_range`, m, `[env, mount]`."""


class MyProximityCfg(sn.MountedSensorCfg[MyProximityData]):
    """Configuration of a proximity sensor."""

    max_range: PositiveFloat = 1.0
    """Largest reported distance, m."""
