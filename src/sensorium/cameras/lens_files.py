"""Lenses from calibration files of Kalibr, ROS and EuRoC."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.cameras.lenses import (
    BrownConradyLensCfg,
    DistortedLensCfg,
    FocalLensCfg,
    KannalaBrandtLensCfg,
    PinholeLensCfg,
)
from sensorium.errors import ConfigError, MissingDependencyError, ModelError, listed, nearest, text_in

MODELS: dict[str, type[DistortedLensCfg]] = {
    **dict.fromkeys(("radtan", "radial-tangential", "plumb_bob", "rational_polynomial"), BrownConradyLensCfg),
    **dict.fromkeys(("equidistant", "fisheye"), KannalaBrandtLensCfg),
}
"""Name of a model of distortion -> lens."""


def lens_from_file(path: str | Path, camera: str | None = None) -> FocalLensCfg:
    """Return the lens of a camera in a calibration file; a camera with its image size then has its intrinsic matrix.

    Files are camera chains of Kalibr (``camchain.yaml``), ``camera_info`` of ROS, as `camera_calibration` writes and
    ``ros2 topic echo`` prints it, ``sensor.yaml`` of EuRoC, and those of ``sensorium calib``. The models are pinhole
    with ``radtan``, ``plumb_bob``, ``rational_polynomial`` or no distortion, and ``equidistant``. In these files, the
    centre of the first pixel is at (0, 0), so 0.5 is added to the principal point.

    Args:
        path: the file.
        camera: name of the camera, such as ``"cam0"``, in a file with several.

    Raises:
        ModelError: the file is missing, is not a calibration, has no such camera, or several and none is named; the
            message names camera, field and value.
        MissingDependencyError: the extra `bags` is not installed.
    """
    try:
        from ruamel.yaml import YAML
    except ImportError as error:
        raise MissingDependencyError(
            f"calibration files need {error.name}, which is not installed: pip install 'sensorium[bags]'."
        ) from None
    path = Path(path).expanduser()
    label = f"calibration file {str(path)!r}"
    text = text_in(path, label, (".yaml", ".yml"))
    try:
        found = next(iter(YAML(typ="safe", pure=True).load_all(text)), None)
    except Exception as error:  # YAML raises many kinds
        raise ModelError(f"{label} is not YAML ({type(error).__name__}: {str(error).splitlines()[0]}).") from None
    about = found if isinstance(found, Mapping) else {}
    if {"intrinsics", "camera_matrix", "k", "K"} & about.keys():
        about = {about.get("camera_name", "camera"): about}
    cameras = {str(name): each for name, each in about.items() if isinstance(each, Mapping) and len(each) > 1}
    if camera is None and len(cameras) == 1:
        (camera,) = cameras
    if camera not in cameras:
        fix = "Name one: camera=." if camera is None else nearest(camera, cameras).strip()
        raise ModelError(
            f"{label}: camera: got {camera!r}, expected one of {listed(cameras)}, in a camera chain of Kalibr or "
            f"camera_info of ROS. {fix}".rstrip()
        )
    return _lens(cameras[camera], f"{label}, {camera}")


def _lens(about: Mapping[str, Any], label: str) -> FocalLensCfg:
    """Return the lens of one camera.

    Args:
        about: its entries in the file.
        label: the file and the camera, for messages.

    Raises:
        ModelError: an entry is missing, or has an invalid value.
    """

    def entry(*names: str) -> Any:
        for name in names:
            if (value := about.get(name)) is not None:
                return value["data"] if isinstance(value, Mapping) else value
        raise ModelError(f"{label}: {' or '.join(names)} is missing. Add it.")

    if (model := about.get("camera_model", "pinhole")) != "pinhole":
        raise ModelError(f"{label}: camera_model: got {model!r}, expected 'pinhole'. Calibrate with a supported model.")
    name = str(about.get("distortion_model") or "none")
    if name not in ("none", *MODELS):
        raise ModelError(f"{label}: distortion_model: got {name!r}, expected none, {listed(MODELS)}.")
    try:
        if "intrinsics" in about:
            (fx, fy, cx, cy), (width, height) = entry("intrinsics"), entry("resolution")
            k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
        else:
            k = entry("camera_matrix", "k", "K")
            width, height = entry("image_width", "width"), entry("image_height", "height")
        matrix = np.array(k, np.float64).reshape(3, 3)
        matrix[:2, 2] += 0.5  # to the corner of the image
        given = () if name == "none" else entry("distortion_coeffs", "distortion_coefficients", "d", "D")
        if not any(given) and MODELS.get(name) is not KannalaBrandtLensCfg:  # a pinhole is faster
            return PinholeLensCfg.from_intrinsic_matrix(matrix, width, height)
        return MODELS[name].from_intrinsic_matrix(matrix, width, height, given)
    except ModelError:
        raise
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{label}: a value is invalid: {error}. Correct it.") from None
