"""Two sensors that make their values themselves, `beam` and `floor_image`."""

from full_control.beam import BeamCfg, BeamData
from full_control.floor_image import FloorImageCfg, FloorImageData

__all__ = ["BeamCfg", "BeamData", "FloorImageCfg", "FloorImageData"]
