"""Inertial measurement units.

Every number is given in its source's unit, so that it can be compared with the data sheet; the code converts it. Data
sheets state typical values. Those with a plus-minus sign are taken as one standard deviation of a normal distribution
over devices and power cycles, drawn per env at each reset. Comments mark recalled numbers, which were not checked
against the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sensorium.presets.info import DPS, MG, UG, G, PresetInfo, two_sided

GYRO, ACC, MAG = "ang_vel_b", "lin_acc_b", "mag_b"
SIX_AXES = [GYRO, ACC]

ONE_SIDED = "the sheet states the one-sided density ND; noise_density is Allan's two-sided N = ND / sqrt(2)"


def _normal(std: float) -> dict[str, list[float]]:
    return {"normal": [0.0, std]}


def _stage(kind: str, field: str, **amounts: Any) -> dict[str, Any]:
    return {"kind": kind, "fields": [field], **amounts}


def _bmi088() -> Mapping[str, Any]:
    return {
        "fields": SIX_AXES,
        "rate_hz": 400.0,
        "noise_density": {
            GYRO: two_sided(0.014 * DPS),
            ACC: [two_sided(160 * UG), two_sided(160 * UG), two_sided(190 * UG)],
        },
        "bias": {GYRO: _normal(1.0 * DPS), ACC: _normal(20 * MG)},
        "resolution": {GYRO: 2000 * DPS / 32768, ACC: 24 * G / 32768},
        "stages": [
            _stage("scale_error", GYRO, scale=_normal(0.01), cross_axis=_normal(0.01)),  # recalled
            _stage("scale_error", ACC, cross_axis=_normal(0.005)),  # recalled
            _stage("saturation", GYRO, high=2000 * DPS),
            _stage("saturation", ACC, high=24 * G),
        ],
    }


def _icm42688p() -> Mapping[str, Any]:
    return {
        "fields": SIX_AXES,
        "rate_hz": 500.0,
        "noise_density": {
            GYRO: two_sided(0.0028 * DPS),
            ACC: [two_sided(65 * UG), two_sided(65 * UG), two_sided(70 * UG)],
        },
        "bias": {GYRO: _normal(0.5 * DPS), ACC: _normal(20 * MG)},
        "resolution": {GYRO: 2000 * DPS / 32768, ACC: 16 * G / 32768},  # recalled
        "stages": [
            _stage("scale_error", GYRO, scale=_normal(0.005), cross_axis=_normal(0.0125)),  # recalled
            _stage("scale_error", ACC, scale=_normal(0.005), cross_axis=_normal(0.01)),  # recalled
            _stage("saturation", GYRO, high=2000 * DPS),
            _stage("saturation", ACC, high=16 * G),
        ],
    }


def _adis16448() -> Mapping[str, Any]:
    return {
        "fields": [GYRO, ACC, MAG],
        "rate_hz": 204.8,  # 819.2 Hz / 4, recalled
        "noise_density": {
            GYRO: 2 * 35 / 3600 * DPS,  # twice 35 deg/h/sqrt(Hz)
            ACC: 2 * 2.0e-3,
            MAG: 0.4e-3,
        },
        "resolution": {GYRO: 0.04 * DPS, ACC: G / 1200, MAG: 1 / 7000},  # recalled
        "stages": [
            _stage("gauss_markov", GYRO, density=2 * 4 / 3600 * DPS, tau=1000.0, turn_on=0.5 * DPS),
            _stage("gauss_markov", ACC, density=2 * 3.0e-3, tau=300.0, turn_on=20.0e-3 * 9.8),
            _stage("gauss_markov", MAG, density=6.4e-6, tau=600.0),
            _stage("saturation", GYRO, high=1000 * DPS),
            _stage("saturation", ACC, high=18 * G),
            _stage("saturation", MAG, high=1.9),
        ],
    }


def _d455() -> Mapping[str, Any]:
    return {
        "fields": SIX_AXES,
        "rate_hz": 200.0,
        "noise_density": {GYRO: 1.72e-4, ACC: 1.49e-3},
        "random_walk_density": {GYRO: 9.6e-6, ACC: 1.22e-4},
        "resolution": {GYRO: 1000 * DPS / 32768, ACC: 4 * G / 2048},  # recalled
        "stages": [_stage("saturation", GYRO, high=1000 * DPS), _stage("saturation", ACC, high=4 * G)],
    }


PRESETS = (
    PresetInfo(
        name="bmi088",
        kind="imu",
        title="Bosch BMI088: gyroscope +-2000 deg/s, accelerometer +-24 g",
        source="Bosch Sensortec, BMI088 data sheet BST-BMI088-DS001, revision 1.9, typical values",
        convention=(
            f"{ONE_SIDED}. Check: ND = 0.014 deg/s/sqrt(Hz) over 47 Hz is 0.096 deg/s, the sheet's own 0.1 deg/s rms"
        ),
        notes=(
            "Checked: noise densities (older revisions print 175 ug/sqrt(Hz) for all axes), offsets (1 deg/s, 20 mg), "
            "ranges, resolutions.",
            "Recalled, not checked: gyroscope sensitivity 1 % and cross-axis 1 %, accelerometer cross-axis 0.5 %.",
            "The sheet states no in-run bias walk and none is modelled; the flyer says below 2 deg/h. A GaussMarkov "
            "stage adds one.",
            "400 Hz is a rate that both halves have. The noise is white up to half of it: the device's own low-pass "
            "(47 Hz or wider for the gyroscope) is not modelled, nor are temperature (0.015 deg/s/K, 0.2 mg/K) and "
            "g-sensitivity.",
        ),
        fields=_bmi088(),
    ),
    PresetInfo(
        name="icm42688p",
        kind="imu",
        title="TDK ICM-42688-P: gyroscope +-2000 deg/s, accelerometer +-16 g",
        source="TDK InvenSense, ICM-42688-P data sheet DS-000347, revision 1.7, typical values",
        convention=ONE_SIDED,
        notes=(
            "Checked: 2.8 mdeg/s/sqrt(Hz), 70 ug/sqrt(Hz) (z), ranges. From a transcription of the sheet: "
            "65 ug/sqrt(Hz) (x, y), offsets (0.5 deg/s, 20 mg).",
            "Recalled, not checked: sensitivity 0.5 %, cross-axis 1.25 % (gyroscope) and 1 % (accelerometer), and the "
            "resolutions, which are those of the 16-bit registers.",
            "The sheet states no in-run bias walk and none is modelled; a GaussMarkov stage adds one. The device's own "
            "low-pass is not modelled.",
        ),
        fields=_icm42688p(),
    ),
    PresetInfo(
        name="adis16448",
        kind="imu",
        title="Analog Devices ADIS16448: gyroscope +-1000 deg/s, accelerometer +-18 g, magnetometer +-1.9 gauss",
        source=(
            "gyroscope and accelerometer noise: RotorS (Furrer, Burri, Achtelik, Siegwart 2016), gazebo_imu_plugin.h; "
            "magnetometer noise: PX4's simulation, gazebo_magnetometer_plugin; ranges: ADIS16448 data sheet"
        ),
        convention="two-sided, as documented by RotorS (PX4 uses its values in the same way); used unchanged",
        notes=(
            "mag_b is in gauss: give the magnetic field in gauss (1 T = 1e4 gauss).",
            "Checked: noise, walks, correlation times, turn-on biases, ranges (the sheet's minima). Recalled, not "
            "checked: resolutions (0.04 deg/s, 1/1200 g, 1/7000 gauss) and rate (819.2 Hz, here every fourth sample).",
            "The factors of 2 are a margin of RotorS over the device. Recalled: the sheet's magnetometer noise, "
            "0.042 mgauss/sqrt(Hz), is a tenth of PX4's.",
            "RotorS starts the Gauss-Markov biases at 0; here they start in their stationary distribution.",
        ),
        fields=_adis16448(),
    ),
    PresetInfo(
        name="d455",
        kind="imu",
        title="Intel RealSense D455 (BMI055): gyroscope +-1000 deg/s, accelerometer +-4 g",
        source="Allan deviation of one D455, published by a user as parameters for kalibr; ranges: librealsense",
        convention="two-sided (Allan's N and K, as used by kalibr); used unchanged",
        notes=(
            "The figures of one device; others differ by tens of percent. Its chip was changed in 2022.",
            "Recalled, not checked: resolutions (16-bit gyroscope, 12-bit accelerometer), and that the ranges of the "
            "D435i (librealsense #2777) hold here too.",
            "The calibration has no correlation time (the biases walk freely) and no turn-on bias; give bias= for one.",
            "200 Hz is the gyroscope's rate; the device's accelerometer has others (63 or 100, and 250 Hz).",
        ),
        fields=_d455(),
    ),
)
