"""`Scene.profile` measures where a step's time goes, without changing what the sensors read."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from rich.console import Console

import sensorium as sn
from sensorium.demo import model_path


def scene() -> sn.Scene:
    """Return a robot with sensors that share launches, one that is evaluated on read, and a scan."""
    sensors: list[Any] = [
        sn.ImuCfg(name="imu", site="imu", gyro_noise=0.01, delay=0.004),
        sn.ImuCfg(name="other", site="imu", acc_noise=0.1, delay=0.004),
        sn.JointSensorCfg(name="joints", joints=".*"),
        sn.RayCasterCfg(name="scan", body="trunk", pattern=sn.patterns.GridPatternCfg(size=(0.4, 0.4)), noise=0.01),
    ]
    return sn.Scene(sn.MujocoEngine(str(model_path()), 2), sensors, seed=3, discover=False)


def test_a_profile_names_physics_sensors_and_kernels_and_changes_no_reading() -> None:
    """The parts add up to the step; afterwards all readings have the bits of a scene that was not profiled."""
    measured, plain = scene(), scene()
    engine: Any = measured.engine
    step = engine.step

    def slow(*args: Any, **options: Any) -> None:
        time.sleep(0.002)
        step(*args, **options)

    engine.step = slow
    found = measured.profile(3)
    del engine.step  # of this test; the profile restored it
    assert found.steps == 3 and sum(found.parts.values()) == pytest.approx(found.seconds)
    assert found.parts["", "physics"] >= 0.002 and found.parts["", "host"] > 0.0
    sensors = {sensor for sensor, _ in found.parts}
    assert {"", "imu, other", "joints", "scan"} <= sensors, found.parts
    assert any(part.startswith("cast_") for sensor, part in found.parts if sensor == "scan")
    console = Console(width=160, record=True, quiet=True)
    with console.capture() as shown:
        console.quiet = False
        console.print(found)
    assert "physics" in shown.get() and "█" in shown.get()
    while plain.tick < measured.tick:
        plain.step()
        for sensor in plain.sensors.values():
            _ = sensor.data
    for each in (measured, plain):
        each.step()
    for name in ("imu", "other", "scan"):
        for mine, theirs in zip(vars_of(measured[name].data), vars_of(plain[name].data), strict=True):
            assert torch.equal(mine, theirs), name
    with pytest.raises(sn.ScheduleError, match="steps"):
        measured.profile(0)


def vars_of(data: Any) -> list[torch.Tensor]:
    """Return the tensors of a data object."""
    values = (getattr(data, name) for name in data.__slots__ if hasattr(data, name))
    return [value for value in values if isinstance(value, torch.Tensor)]
