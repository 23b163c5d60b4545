"""The public names of `sensorium.lenses`."""

from sensorium.cameras.lenses import BrownConradyLensCfg as BrownConradyLensCfg
from sensorium.cameras.lenses import EquirectangularLensCfg as EquirectangularLensCfg
from sensorium.cameras.lenses import FThetaLensCfg as FThetaLensCfg
from sensorium.cameras.lenses import KannalaBrandtLensCfg as KannalaBrandtLensCfg
from sensorium.cameras.lenses import OrthographicLensCfg as OrthographicLensCfg
from sensorium.cameras.lenses import PinholeLensCfg as PinholeLensCfg
