"""What the sensor gives, and how it is configured."""

from dataclasses import dataclass
from typing import Annotated

import sensorium as sn
from pydantic import PositiveFloat
from torch import Tensor


@dataclass(frozen=True, slots=True)
class MyProximityData:
    """What a proximity sensor reports."""

    distance: Annotated[Tensor, sn.Field("m", role="range")]
    """Distance from the world's origin, at most `max_range`, m, `[env, mount]`."""


class MyProximityCfg(sn.MountedSensorCfg[MyProximityData]):
    """Configuration of a proximity sensor."""

    max_range: PositiveFloat = 1.0
    """Largest distance that is reported, m."""
