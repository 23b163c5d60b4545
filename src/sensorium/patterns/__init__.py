"""Patterns: the starts, directions and firing times of rays, and the places of taxels.

Ray patterns are pure functions of configs, in the sensor's frame: x forward, y left, z up. Angles are in degrees:
azimuth is positive to the left of x about z, elevation is positive upwards.
"""

from sensorium.geometry.samples import SurfaceSamples, body_samples, surface_samples
from sensorium.patterns.base import (
    GeneratedPatternCfg,
    OptionalPatternField,
    PatternBaseCfg,
    PatternField,
    Rays,
    parse_pattern,
)
from sensorium.patterns.grid import GridPatternCfg, grid_pattern
from sensorium.patterns.lidar import (
    BpearlPatternCfg,
    LidarPatternCfg,
    SphericalPatternCfg,
    bpearl_pattern,
    lidar_pattern,
    spherical_pattern,
)
from sensorium.patterns.mirror import RotatingMirrorPatternCfg
from sensorium.patterns.pinhole import ImagePlanePatternCfg, PinholeCameraPatternCfg, pinhole_camera_pattern
from sensorium.patterns.ring import Ring, RingPatternCfg, ring_pattern
from sensorium.patterns.risley import RisleyPatternCfg
from sensorium.patterns.scan import ScanPatternCfg, ScanTable, TablePatternCfg, window
from sensorium.patterns.spinning import SpinningPatternCfg
from sensorium.patterns.taxels import (
    TaxelLayout,
    taxel_cylinder,
    taxel_dome,
    taxel_grid,
    taxel_list,
    taxel_patch,
    taxels_on,
)

__all__ = [
    "BpearlPatternCfg", "GeneratedPatternCfg", "GridPatternCfg", "ImagePlanePatternCfg", "LidarPatternCfg",
    "OptionalPatternField", "PatternBaseCfg", "PatternField", "PinholeCameraPatternCfg", "Rays", "Ring",
    "RingPatternCfg", "RisleyPatternCfg", "RotatingMirrorPatternCfg", "ScanPatternCfg", "ScanTable",
    "SphericalPatternCfg", "SpinningPatternCfg", "SurfaceSamples", "TablePatternCfg", "TaxelLayout", "body_samples",
    "bpearl_pattern", "grid_pattern", "lidar_pattern", "parse_pattern", "pinhole_camera_pattern", "ring_pattern",
    "spherical_pattern", "surface_samples", "taxel_cylinder", "taxel_dome", "taxel_grid", "taxel_list",
    "taxel_patch", "taxels_on", "window",
]  # fmt: skip
