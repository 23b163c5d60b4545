"""Stages: imperfections beyond the standard chain, each with config and behaviour in one class.

They use only the public contract of `StageCfg`, as a plugin's stage would.
"""

from sensorium.measurement.stages.bias import Flicker, GaussMarkov, TemperatureDrift
from sensorium.measurement.stages.clock_error import ClockError
from sensorium.measurement.stages.creep import Creep
from sensorium.measurement.stages.crosstalk import Crosstalk
from sensorium.measurement.stages.debounce import Debounce
from sensorium.measurement.stages.depth_kinect import KinectDepth
from sensorium.measurement.stages.depth_stereo import StereoDepth
from sensorium.measurement.stages.depth_tof import TofDepth
from sensorium.measurement.stages.faults import Dropout, SaturationFault, SpikeFault, StuckFault
from sensorium.measurement.stages.filters import GroupDelay, LowPass
from sensorium.measurement.stages.hysteresis import Play, Viscoelastic
from sensorium.measurement.stages.image_sensor import AutoExposure, ImageSensor
from sensorium.measurement.stages.key import StageKey
from sensorium.measurement.stages.row_scan import RowScan
from sensorium.measurement.stages.saturation import Saturation
from sensorium.measurement.stages.scale import GSensitivity, ScaleError
from sensorium.measurement.stages.taxel_crosstalk import TaxelCrosstalk
from sensorium.measurement.stages.taxels import DeadTaxels, StuckTaxels, TaxelGain
from sensorium.measurement.stages.window import WindowAverage

__all__ = [
    "AutoExposure", "ClockError", "Creep", "Crosstalk", "DeadTaxels", "Debounce", "Dropout", "Flicker", "GSensitivity",
    "GaussMarkov", "GroupDelay", "ImageSensor", "KinectDepth", "LowPass", "Play", "RowScan", "Saturation",
    "SaturationFault", "ScaleError", "SpikeFault", "StageKey", "StereoDepth", "StuckFault", "StuckTaxels",
    "TaxelCrosstalk", "TaxelGain", "TemperatureDrift", "TofDepth", "Viscoelastic", "WindowAverage",
]  # fmt: skip
