"""Calibration of recorded sensors: distortion of lenses, noise of IMUs, and poses of sensors in each other's frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np

from sensorium.record.export.samples import Floats, Pose

POSES_KEPT = 1000
"""Poses of each sensor among which common times of two sensors are sought."""
RIGID = 1e-3
"""Greatest change, m and rad, of the relative pose of two sensors that count as rigidly connected."""


# Lenses ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Distortion:
    """Distortion of a lens.

    Attributes:
        model: name of the model in ROS: ``"plumb_bob"``, ``"rational_polynomial"`` or ``"equidistant"``.
        coefficients: its coefficients in the order of ROS and OpenCV.
        kalibr: name of the model in Kalibr, which has fewer models; empty if it has none for this lens.
    """

    model: str
    coefficients: tuple[float, ...]
    kalibr: str = ""


def distortion_of(cfg: Mapping[str, Any]) -> Distortion | None:
    """Return the distortion of a camera; None for lenses that ROS has no model for, such as panoramas.

    Args:
        cfg: config of the camera, JSON types. A camera without the field `lens` has no distortion.
    """
    lens = cfg.get("lens") or {}

    def given(*names: str) -> tuple[float, ...]:
        return tuple(float(lens.get(name, 0.0)) for name in names)

    kind = lens.get("kind", "pinhole")
    if kind in ("pinhole", "brown_conrady"):
        four, k3, rational = given("k1", "k2", "p1", "p2"), given("k3"), given("k4", "k5", "k6")
        if any(rational):
            return Distortion("rational_polynomial", (*four, *k3, *rational))
        return Distortion("plumb_bob", (*four, *k3), "" if any(k3) else "radtan")
    if kind == "kannala_brandt":
        return Distortion("equidistant", given("k1", "k2", "k3", "k4"), "equidistant")
    return None
