"""Two sensors that compute their values in one pass, `beam` and `floor_image`."""

from full_control.beam import BeamCfg, BeamData
from full_control.floor_image import FloorImageCfg, FloorImageData

__all__ = ["BeamCfg", "BeamData", "FloorImageCfg", "FloorImageData"]
