"""Depth cameras: image, rate, unit of the output, and the stages with their errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sensorium.cameras.stages.depth_stereo import KinectDepth, StereoDepth
from sensorium.measurement.stage_cfg import StageCfg
from sensorium.presets.info import DEVICES as TABLES
from sensorium.spec import kind_of

DEPTH = "distance_to_image_plane"


@dataclass(frozen=True, slots=True)
class DepthDevice:
    """Parameters of one depth camera.

    Attributes:
        name: short name.
        title: the device.
        source: source of the numbers.
        notes: numbers that were not checked against a source, and omitted effects.
        width: image width, pixels.
        height: image height, pixels.
        focal_px: focal length, px; pixels are square and the camera's axis passes through the centre of the image.
        rate_hz: samples per second.
        resolution: unit of the reported depth, m.
        stage: class of the stage with its errors.
        errors: fields of that stage, SI, JSON-serialisable.
    """

    name: str
    title: str
    source: str
    notes: tuple[str, ...]
    width: int
    height: int
    focal_px: float
    rate_hz: float
    resolution: float
    stage: type[StageCfg]
    errors: Mapping[str, Any] = field(repr=False)

    @property
    def fov_deg(self) -> float:
        """Horizontal field of view, degrees."""
        return 2.0 * math.degrees(math.atan(0.5 * self.width / self.focal_px))

    def stages(self, width: int | None = None) -> tuple[StageCfg, ...]:
        """Return the stages for a camera with `distance_to_image_plane`, of the device's field of view.

        Args:
            width: image width of the simulated camera, pixels; None uses the device's. A smaller image is treated as
                downscaled after the measurement at the device's resolution: the depth is as accurate as the device's.
        """
        focal = self.focal_px * (1.0 if width is None else width / self.width)
        own = {"focal_px": focal, "matched_focal_px": self.focal_px}
        return (self.stage(fields=(DEPTH,), **own, **self.errors),)

    def camera_fields(self, width: int | None = None) -> dict[str, Any]:
        """Return image, lens, rate, unit and errors, as fields of a `DepthCameraCfg`.

        Args:
            width: image width, pixels, with the height in proportion; None uses the device's.
        """
        width = width or self.width
        return {
            "res": (width, round(self.height * width / self.width)),
            "fx": self.focal_px * width / self.width,
            "rate_hz": self.rate_hz,
            "resolution": {DEPTH: self.resolution},
            "stages": self.stages(width),
        }


def _device(name: str, stage: type[StageCfg]) -> DepthDevice:
    about = TABLES[name]
    texts = {"title": about["title"], "source": about["source"], "notes": tuple(about["notes"])}
    return DepthDevice(name=name, stage=stage, **texts, **about["device"])


D435 = _device("d435", StereoDepth)
"""Intel RealSense D435."""
KINECT_V1 = _device("kinect_v1", KinectDepth)
"""The first Kinect."""

DEVICES = {device.name: device for device in (D435, KINECT_V1)}
"""Depth cameras by name."""


def fields_of(device: DepthDevice) -> dict[str, Any]:
    """Return the fields of the preset of a device: its field of view is fixed, so that `res` can differ."""
    lens = {"fov_deg": device.fov_deg, "matched_focal_px": device.focal_px}
    return {
        "res": [device.width, device.height],
        "fov_horizontal": device.fov_deg,
        "rate_hz": device.rate_hz,
        "max_distance": device.errors["max_range"],
        "depth_clipping_behavior": "zero",
        "resolution": {DEPTH: device.resolution},
        "stages": [{"kind": kind_of(device.stage), "fields": [DEPTH], **lens, **device.errors}],
    }
