"""Inertial measurement units.

Every number is given in its source's unit, so that it can be compared with the data sheet; the code converts it. Data
sheets state typical values. Those with a plus-minus sign are taken as one standard deviation of a normal distribution
over devices and power cycles, drawn per env at each reset. Comments mark recalled numbers, which were not checked
against the source.
"""

from __future__ import annotations

from typing import Any

from sensorium.presets.info import DPS, MG, UG, G, described, normal, two_sided

GYRO, ACC, MAG = "ang_vel_b", "lin_acc_b", "mag_b"
SIX_AXES = [GYRO, ACC]


def _stage(kind: str, field: str, **amounts: Any) -> dict[str, Any]:
    return {"kind": kind, "fields": [field], **amounts}


PRESETS = described(
    {
        "bmi088": {
            "fields": SIX_AXES,
            "rate_hz": 400.0,
            "noise_density": {
                GYRO: two_sided(0.014 * DPS),
                ACC: [two_sided(160 * UG), two_sided(160 * UG), two_sided(190 * UG)],
            },
            "bias": {GYRO: normal(1.0 * DPS), ACC: normal(20 * MG)},
            "resolution": {GYRO: 2000 * DPS / 32768, ACC: 24 * G / 32768},
            "stages": [
                _stage("scale_error", GYRO, scale=normal(0.01), cross_axis=normal(0.01)),  # recalled
                _stage("scale_error", ACC, cross_axis=normal(0.005)),  # recalled
                _stage("saturation", GYRO, high=2000 * DPS),
                _stage("saturation", ACC, high=24 * G),
            ],
        },
        "icm42688p": {
            "fields": SIX_AXES,
            "rate_hz": 500.0,
            "noise_density": {
                GYRO: two_sided(0.0028 * DPS),
                ACC: [two_sided(65 * UG), two_sided(65 * UG), two_sided(70 * UG)],
            },
            "bias": {GYRO: normal(0.5 * DPS), ACC: normal(20 * MG)},
            "resolution": {GYRO: 2000 * DPS / 32768, ACC: 16 * G / 32768},  # recalled
            "stages": [
                _stage("scale_error", GYRO, scale=normal(0.005), cross_axis=normal(0.0125)),  # recalled
                _stage("scale_error", ACC, scale=normal(0.005), cross_axis=normal(0.01)),  # recalled
                _stage("saturation", GYRO, high=2000 * DPS),
                _stage("saturation", ACC, high=16 * G),
            ],
        },
        "adis16448": {
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
        },
        "d455": {
            "fields": SIX_AXES,
            "rate_hz": 200.0,
            "noise_density": {GYRO: 1.72e-4, ACC: 1.49e-3},
            "random_walk_density": {GYRO: 9.6e-6, ACC: 1.22e-4},
            "resolution": {GYRO: 1000 * DPS / 32768, ACC: 4 * G / 2048},  # recalled
            "stages": [_stage("saturation", GYRO, high=1000 * DPS), _stage("saturation", ACC, high=4 * G)],
        },
    }
)
