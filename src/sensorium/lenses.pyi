"""The public names of `sensorium.lenses`."""

from sensorium.sensors.cameras.lenses import BrownConradyLensCfg as BrownConradyLensCfg
from sensorium.sensors.cameras.lenses import EquirectangularLensCfg as EquirectangularLensCfg
from sensorium.sensors.cameras.lenses import FThetaLensCfg as FThetaLensCfg
from sensorium.sensors.cameras.lenses import KannalaBrandtLensCfg as KannalaBrandtLensCfg
from sensorium.sensors.cameras.lenses import OrthographicLensCfg as OrthographicLensCfg
from sensorium.sensors.cameras.lenses import PinholeLensCfg as PinholeLensCfg
