"""Colour cameras, alone or with depth that is aligned with the colours."""

from __future__ import annotations

import math
from typing import Any

from sensorium.presets.info import described

DEPTH = "distance_to_image_plane"
ROWS_30_HZ = 1.0 / 30.0
"""Exposure that a camera of 30 Hz can use, s."""


def _camera(
    width: int,
    height: int,
    focal_px: float,
    rate_hz: float,
    sensor: dict[str, Any],
    stereo: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the fields of a camera; the focal length is that of the colour image, px, with square pixels."""
    fields: dict[str, Any] = {
        "width": width,
        "height": height,
        "lens": {"kind": "pinhole", "fovy": 2.0 * math.degrees(math.atan(0.5 * height / focal_px))},
        "data_types": ["rgb"],
        "rate_hz": rate_hz,
        "stages": [{"kind": "image", "fields": ["linear_rgb"], "vignetting": "cos4", **sensor}],
    }
    if stereo is not None:
        fov = 2.0 * math.degrees(math.atan(0.5 * width / focal_px))
        fields["data_types"].append(DEPTH)
        fields["depth_clipping_behavior"] = "zero"
        fields["resolution"] = {DEPTH: 0.001}
        fields["stages"].append({"kind": "stereo_depth", "fields": [DEPTH], "fov_deg": fov, **stereo})
    return fields


def _sensor(well: float, noise: float, bits: int, black: float, line: float, **fields: Any) -> dict[str, Any]:
    """Return the fields of an image sensor with automatic exposure and a colour filter."""
    return {
        "full_well": well,
        "read_noise": noise,
        "bit_depth": bits,
        "black_level": black,
        "line_time": line,
        "subposes": 8,
        "prnu": 0.01,
        "dsnu": 0.5 * noise,
        "dark_current": 10.0,
        "exposure_time": 0.01,
        "white_exposure": 0.01,
        "auto_exposure": {"exposure_time": [1e-4, ROWS_30_HZ], "gain": [1.0, 16.0]},
        "color_filter": "rggb",
        "color_response": [0.6, 1.0, 0.7],
        "blur_radius": 0.5,
        "point_spread": "gaussian",
        **fields,
    }


_GRAZING = [math.cos(math.radians(80.0)), math.cos(math.radians(65.0))]
_REALSENSE = {
    "noise_px": 0.08, "quantum": 1 / 32, "max_disparity": 126.0, "edge_fattening": 0.4, "window": 5,
    "grazing": _GRAZING, "max_range": 10.0, "matched_focal_px": 424.0,
}  # fmt: skip

PRESETS = described({
    "d435_rgbd": _camera(
        1920, 1080, 960.0 / math.tan(math.radians(34.7)), 30.0,
        _sensor(5000.0, 3.0, 10, 64.0, ROWS_30_HZ / 1125), {"baseline": 0.050, **_REALSENSE},
    ),
    "d455_rgbd": _camera(
        1280, 800, 640.0 / math.tan(math.radians(45.0)), 30.0,
        _sensor(10000.0, 5.0, 10, 64.0, 0.0), {"baseline": 0.095, **_REALSENSE},
    ),
    "zed2": _camera(
        1920, 1080, 1060.0, 30.0, _sensor(8000.0, 4.0, 10, 64.0, 25.6e-6),
        {"baseline": 0.120, "noise_px": 0.2, "max_disparity": 424.0, "edge_fattening": 1.0, "window": 9,
         "grazing": _GRAZING, "max_range": 20.0, "matched_focal_px": 1060.0},
    ),
    "oak_d": _camera(
        1920, 1080, 2028.0 / math.tan(math.radians(34.5)) / 2.0, 30.0,
        _sensor(4 * 8180.0, 2 * 3.0, 10, 64.0, ROWS_30_HZ / 1125),
        {"baseline": 0.075, "noise_px": 0.1, "quantum": 1 / 8, "max_disparity": 95.0, "edge_fattening": 0.5,
         "window": 5, "grazing": _GRAZING, "max_range": 20.0, "matched_focal_px": 882.5},
    ),
    "pi_hq": _camera(2028, 1520, 6.0e-3 / 3.1e-6, 30.0, _sensor(4 * 8180.0, 2 * 3.0, 12, 256.0, 12740 / 840e6)),
})  # fmt: skip
"""Presets of colour cameras."""
