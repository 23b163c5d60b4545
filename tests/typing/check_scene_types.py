# mypy: disallow-untyped-decorators
"""What a type checker must know of a scene. Never run: `tests/test_typing.py` gives it to mypy and pyright."""

from __future__ import annotations

from typing import Any, assert_type

from torch import Tensor

import sensorium as sn


def scene_knows_the_data_of_a_cfg(engine: sn.Engine) -> None:
    imu = sn.ImuCfg(name="imu", site="imu")
    scene = sn.Scene(engine, sensors=[imu])

    assert_type(scene[imu].data, sn.ImuData)
    assert_type(scene[imu].ground_truth, sn.ImuData)
    assert_type(scene[imu].read(), sn.ImuData)
    assert_type(scene[imu].data.lin_acc_b, Tensor)
    assert_type(scene[imu].ground_truth.ang_vel_b, Tensor)


def scene_knows_no_more_of_a_name(scene: sn.Scene) -> None:
    assert_type(scene["imu"], sn.Sensor[Any, Any])


def wrong_use_is_an_error(scene: sn.Scene, imu: sn.ImuCfg) -> None:
    _ = scene[imu].data.no_such_field  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    _ = scene[0]  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
