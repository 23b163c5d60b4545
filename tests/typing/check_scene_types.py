# mypy: disallow-untyped-decorators
"""What a type checker must know of a scene. Never run: `tests/test_typing.py` gives it to mypy and pyright."""

from __future__ import annotations

from typing import Any, assert_type

from torch import Tensor

import sensorium as sn


def scene_knows_the_data_of_a_cfg(engine: sn.engines.Engine) -> None:
    imu = sn.ImuCfg(name="imu", site="imu")
    scene = sn.Scene(engine, sensors=[imu])

    assert_type(scene[imu].data, sn.ImuData)
    assert_type(scene[imu].ground_truth, sn.ImuData)
    assert_type(scene[imu].read(), sn.ImuData)
    assert_type(scene[imu].data.lin_acc_b, Tensor)
    assert_type(scene[imu].ground_truth.ang_vel_b, Tensor)


def scene_knows_no_more_of_a_name(scene: sn.Scene) -> None:
    assert_type(scene["imu"], sn.Sensor[Any, Any])


def scene_knows_the_class_that_is_asked_for(scene: sn.Scene) -> None:
    assert_type(scene.get("imu", sn.Imu), sn.Imu)
    assert_type(scene.get("imu", sn.Imu).data.lin_acc_b, Tensor)


def configs_have_knobs_with_a_prefix() -> None:
    assert_type(sn.ImuCfg(site="imu", gyro_noise=0.1, fields="all").selected, tuple[str, ...])
    _ = sn.JointSensorCfg(joint="hip", velocity_bias=(0.1, 0.2), bits=12)
    _ = sn.GnssCfg(site="antenna", pos_noise_density=1.0)
    _ = sn.MotorCurrentCfg(joint="hip", current_resolution=sn.Uniform(0.0, 0.1), torque_constant=0.1)


def wrong_names_are_errors() -> None:
    _ = sn.CameraCfg(camera="eye", data_types=("rgb", "depth"))
    _ = sn.CameraCfg(camera="eye", data_types=("rbg",))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = sn.preset("bmi088", site="imu")
    _ = sn.preset("bmi08", site="imu")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def wrong_use_is_an_error(scene: sn.Scene, imu: sn.ImuCfg) -> None:
    _ = sn.ImuCfg(site="imu", gyro_noize=0.1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    _ = scene[imu].data.no_such_field  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    _ = scene[0]  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def arguments_of_presets_are_fields_of_their_config() -> None:
    assert_type(sn.preset("bmi088", site="imu", name="imu", gyro_noise=0.1), sn.ImuCfg)
    assert_type(sn.preset("vlp16", site="top", intensity_mode="raw"), sn.LidarCfg)
    _ = sn.preset("px4_mag", site="imu", unit="G")
    _ = sn.preset("px4_baro", body="base", lag=0.1)
    _ = sn.preset("d435", camera="eye", res=(64, 48))
    _ = sn.preset("zed2", camera="eye", data_types=("rgb", "depth"))
    _ = sn.preset("bmi088", "imu", gyro_noise=0.1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    _ = sn.preset("bmi088", site="imu", gyro_nois=0.1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    _ = sn.preset("px4_mag", site="imu", gyro_noise=0.1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    _ = sn.preset("zed2", camera="eye", data_types=("rbg",))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
