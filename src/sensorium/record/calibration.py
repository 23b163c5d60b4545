"""Calibration that configs of recorded sensors define: the distortion of lenses and the noise of IMUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import hypot, sqrt
from typing import Any

import numpy as np

from sensorium.readings import Array
from sensorium.spec import FieldSpec

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
    """Return the distortion of a camera; None for lenses without a model in ROS, such as panoramas.

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


def centred(matrices: Array, sign: float = -1.0) -> Array:
    """Return intrinsic matrices `[..., 3, 3]`, px, as ROS, OpenCV and Kalibr have them, float64.

    There the centre of the first pixel is at (0, 0), and in `intrinsic_matrices` at (0.5, 0.5). Sources: ROS's
    `image_geometry`, OpenCV's `projectPoints`.

    Args:
        matrices: intrinsic matrices.
        sign: 1.0 converts in the opposite direction.
    """
    out = np.array(matrices, np.float64)
    out[..., :2, 2] += 0.5 * sign
    return out


# Noise ----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class NoiseModel:
    """Noise of one field of an IMU, as Kalibr describes it.

    Attributes:
        density: white noise, unit/sqrt(Hz); 0 without.
        random_walk: noise that drives the bias, unit*sqrt(Hz); 0 without.
        notes: one text for each conversion.
    """

    density: float
    random_walk: float
    notes: list[str]


def noise_of(cfg: Mapping[str, Any], field: FieldSpec, prefix: str, rate_hz: float) -> NoiseModel:
    """Return the noise of one field of an IMU. Amounts per sample are converted with the rate.

    Args:
        cfg: config of the sensor, JSON types.
        field: the field.
        prefix: its prefix in names of knobs, e.g. ``"gyro"``.
        rate_hz: samples per second.
    """
    notes: list[str] = []
    found = {"noise": 0.0, "random_walk": 0.0}
    for knob, factor in (("noise", rate_hz and rate_hz**-0.5), ("random_walk", sqrt(rate_hz))):
        for name, scale in ((knob, factor), (f"{knob}_density", 1.0)):
            amount = _amount(cfg, field, prefix, name)
            if amount is None:
                continue
            value = _number(amount, f"{field.name}, {name}", notes)
            found[knob] = hypot(found[knob], value * scale)
            if scale != 1.0 and value:
                word = "/ sqrt" if knob == "noise" else "* sqrt"
                notes.append(f"{field.name}, {name}: {value:.6g} per sample {word}({rate_hz:g} Hz) = {found[knob]:.6g}")
    for stage in cfg.get("stages", ()):
        if stage.get("kind") == "gauss_markov" and field.name in (stage.get("fields") or (field.name,)):
            value = _number(stage["density"], f"{field.name}, gauss_markov", notes)
            found["random_walk"] = hypot(found["random_walk"], value)
            notes.append(
                f"{field.name}, gauss_markov: its density {value:.6g} is written as random walk, without its "
                f"correlation time of {stage['tau']:g} s"
            )
    return NoiseModel(found["noise"], found["random_walk"], notes)


def white_variances(cfg: Mapping[str, Any], field: FieldSpec, prefix: str, rate_hz: float) -> Array | None:
    """Return the variance of the white noise and of the quantisation of one sample, float64 `[column]`.

    Of a rotation, it is that of the rotation vector in the measured frame, rad^2 `[3]`.

    It is noise^2 + noise_density^2 rate + resolution^2 / 12; the last term is that of an error which is uniform within
    one step (Widrow & Kollar, Quantization Noise, 2008). Biases and walks are not included. None if a knob is drawn per
    environment.

    Args:
        cfg: config of the sensor, JSON types.
        field: the field, without the mount axis.
        prefix: its prefix in names of knobs, e.g. ``"gyro"``; empty for none.
        rate_hz: samples per second.
    """
    total = np.zeros(3 if field.kind == "rotation" else field.columns)
    for name, factor in (("noise", 1.0), ("noise_density", rate_hz), ("resolution", 1.0 / 12.0)):
        amount = _amount(cfg, field, prefix, name)
        if _is_drawn(amount):
            return None
        if amount is not None:
            total += np.square(np.asarray(amount, np.float64).reshape(-1)) * factor
    return total


def _amount(cfg: Mapping[str, Any], field: FieldSpec, prefix: str, name: str) -> Any:
    """Return the amount of a knob for a field; None without one."""
    amount = cfg.get(f"{prefix}_{name}", cfg.get(name))
    if isinstance(amount, Mapping) and not _is_drawn(amount):
        amount = amount.get(field.name, amount.get(prefix))
    return amount


def _is_drawn(amount: Any) -> bool:
    return isinstance(amount, Mapping) and set(amount) <= {"uniform", "normal", "choice"}


def _number(amount: Any, what: str, notes: list[str]) -> float:
    """Return an amount as one number: the maximum over several axes, or the mean of a distribution."""
    if _is_drawn(amount):
        ((kind, values),) = amount.items()
        means = [values[0]] if kind == "normal" else values
        flat = [list(_flat(each)) for each in means]
        amount = [sum(each) / len(each) for each in zip(*flat, strict=True)]
        notes.append(f"{what}: drawn per environment; the mean of its distribution is written")
    numbers = list(_flat(amount))
    if max(numbers) != min(numbers):
        notes.append(f"{what}: differs between the axes; the maximum value is written")
    return max(numbers)


def _flat(amount: Any) -> Iterator[float]:
    if isinstance(amount, list | tuple):
        for each in amount:
            yield from _flat(each)
    else:
        yield float(amount)
