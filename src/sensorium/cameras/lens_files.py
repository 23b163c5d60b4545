"""Lenses from calibration files of Kalibr, ROS and EuRoC."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.cameras.lenses import BrownConradyLensCfg, FocalLensCfg, KannalaBrandtLensCfg, PinholeLensCfg
from sensorium.errors import ConfigError, MissingDependencyError, ModelError, file_kind, listed, nearest, shown
from sensorium.spec import CORNER

MODELS: dict[str, type[FocalLensCfg]] = {
    **dict.fromkeys(("", "none"), PinholeLensCfg),
    **dict.fromkeys(("radtan", "radial-tangential", "plumb_bob", "rational_polynomial"), BrownConradyLensCfg),
    **dict.fromkeys(("equidistant", "fisheye"), KannalaBrandtLensCfg),
}
"""Name of a model of distortion -> lens."""


def lens_from_file(path: str | Path, camera: str | None = None) -> FocalLensCfg:
    """Return the lens of a camera in a calibration file; a camera with its image size then has its intrinsic matrix.

    Files are camera chains of Kalibr (``camchain.yaml``), ``camera_info`` of ROS, as `camera_calibration` writes and
    ``ros2 topic echo`` prints it, ``sensor.yaml`` of EuRoC, and those of ``sensorium calib``. The models are pinhole with
    ``radtan``, ``plumb_bob``, ``rational_polynomial`` or no distortion, and ``equidistant``. In these files, the centre of
    the first pixel is at (0, 0), so 0.5 is added to the principal point, except in files that state (0.5, 0.5).

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
    try:
        if kind := file_kind(path):
            raise ModelError(f"{label} is {kind}")
        text = path.read_text(encoding="utf-8")
        found = next(iter(YAML(typ="safe", pure=True).load_all(text)), None)
    except OSError as error:
        folder = path if path.is_dir() else path.absolute().parent
        names = sorted(each.name for each in folder.glob("*.y*ml"))
        if path.is_dir():
            raise ModelError(f"{label} is a folder, expected a file. In it: {listed(names, 8)}.") from None
        raise ModelError(f"{label}: {error.strerror or error}.{nearest(path.name, names)} Check the path.") from None
    except ModelError:
        raise
    except Exception as error:  # YAML raises many kinds
        raise ModelError(f"{label} is not YAML ({type(error).__name__}: {str(error).splitlines()[0]}).") from None
    cameras = _cameras(found)
    if not cameras:
        raise ModelError(
            f"{label} has no camera, expected a camera chain of Kalibr or camera_info of ROS, with intrinsics or "
            f"camera_matrix; got {shown(found)}."
        )
    if camera is None and len(cameras) == 1:
        (camera,) = cameras
    if camera not in cameras:
        fix = "Name one: camera=." if camera is None else nearest(camera, cameras).strip()
        raise ModelError(f"{label}: camera: got {camera!r}, expected one of {listed(cameras)}. {fix}".rstrip())
    return _lens(cameras[camera], f"{label}, {camera}", 0.0 if CORNER in text else 0.5)


def _cameras(found: Any) -> dict[str, Mapping[str, Any]]:
    """Return the cameras in a file by name."""
    if not isinstance(found, Mapping):
        return {}
    if {"intrinsics", "camera_matrix", "k", "K"} & found.keys():
        return {str(found.get("camera_name", "camera")): found}
    return {str(name): each for name, each in found.items() if isinstance(each, Mapping) and "intrinsics" in each}


def _lens(about: Mapping[str, Any], label: str, shift: float) -> FocalLensCfg:
    """Return the lens of one camera.

    Args:
        about: its entries in the file.
        label: the file and the camera, for messages.
        shift: added to the principal point, px.

    Raises:
        ModelError: an entry is missing, or has an invalid value.
    """

    def entry(*names: str) -> Any:
        for name in names:
            if name in about:
                value = about[name]
                return value["data"] if isinstance(value, Mapping) and "data" in value else value
        raise ModelError(f"{label}: {names[0]} is missing, expected one of {listed(names)}. Add it.")

    model = about.get("camera_model", "pinhole")
    if model != "pinhole":
        raise ModelError(f"{label}: camera_model: got {model!r}, expected 'pinhole'. Calibrate with a supported model.")
    name = str(about.get("distortion_model") or "").strip()
    if name not in MODELS:
        raise ModelError(f"{label}: distortion_model: got {name!r}, expected {listed(filter(None, MODELS))}.")
    try:
        if "intrinsics" in about:
            fx, fy, cx, cy = (float(each) for each in entry("intrinsics"))
            width, height = (int(each) for each in entry("resolution"))
            matrix = np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
        else:
            matrix = np.array(entry("camera_matrix", "k", "K"), dtype=np.float64).reshape(3, 3)
            width, height = int(entry("image_width", "width")), int(entry("image_height", "height"))
        matrix[:2, 2] += shift
        distortion = [] if MODELS[name] is PinholeLensCfg else entry(
            "distortion_coeffs", "distortion_coefficients", "d", "D")  # fmt: skip
        lens = MODELS[name] if any(distortion) or MODELS[name] is KannalaBrandtLensCfg else PinholeLensCfg
        return lens.from_intrinsic_matrix(matrix, width, height, distortion)
    except ConfigError as error:
        raise ModelError(f"{label}: {error}") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{label}: a value is invalid: {error}. Correct it.") from None
