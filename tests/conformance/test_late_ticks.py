"""Ticks beyond 32 bits: readings continue, and time, delays, stages and memories are those of early ticks.

Sensors without random numbers must read the same at all ticks of the same phase. Random numbers depend on the low 32
bits of the tick, so that a scene 2^32 ticks later draws the same ones.
"""

from __future__ import annotations

from typing import Any

import torch
from test_first_env import configs, engine
from two_engines import ENVS, FEET, GROUND, sensors

import sensorium as sn
from sensorium.compat.carla import lidar_pattern
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.testing.trial import snapshot

LIMIT = 2**31
START = LIMIT - 5
PERIODS = 75 * 2**14
"""A multiple, in ticks, of the periods of all sensors below."""
TICKS = 12
DRAWS = ("radar", "probe")
"""Clean sensors with random directions."""
RAMP = sn.DepthCameraCfg.OffsetCfg(rot=(0.97, 0.0, 0.24, 0.0), convention="world")


def remembering() -> list[SensorCfg[Any]]:
    """Return sensors without random numbers whose memory holds ticks."""
    stages = (
        sn.stages.TemperatureDrift(self_heating=20.0, tau=0.01, coefficient=0.1, fields=("lin_acc_b",)),
        sn.stages.Debounce(time=0.008, threshold=0.5, fields=("ang_vel_b",)),
        sn.stages.StuckFault(start=0.012, duration=0.006, fields=("ang_vel_b",)),
    )
    return [
        *(cfg for cfg in sensors() if cfg.label not in DRAWS),
        sn.ImuCfg(name="late", site="imu", delay=0.01, history_length=3, stages=stages),
        sn.ImuCfg(name="slow", site="imu", acceleration="difference", update_period=0.012, delay=0.008),
        sn.ImuCfg(name="sometimes", site="imu", rate_hz=150.0, stages=(sn.stages.ClockError(skew_ppm=50.0),)),
        sn.JointSensorCfg(name="encoder", joints=".*knee", resolution={"position": 1e-3}, velocity_mode="period"),
        sn.BarometerCfg(name="port", site="antenna", lag=0.01),
        sn.ContactCfg(name="bounces", geoms=".*_foot", on_force=5.0, stages=()),
        sn.ContactSensorCfg(name="timers", primary=FEET, secondary=GROUND, track_air_time=True, history_length=4),
        sn.LidarCfg(
            name="sweep", site="antenna", pattern=lidar_pattern(channels=4, rotation_frequency=20.0), rate_hz=125.0,
            fields="all",
        ),
        sn.CameraCfg(
            name="blurred", body="trunk", offset=RAMP, width=6, height=4, data_types=("rgb",), rate_hz=125.0,
            stages=(sn.stages.ImageSensor(exposure_time=0.006, line_time=0.0003),),
        ),
    ]  # fmt: skip


def readings(cfgs: list[SensorCfg[Any]], start: int) -> dict[str, torch.Tensor]:
    """Take some ticks after a reset at a tick, and return all that readers see, with ticks and times relative to it."""
    scene = sn.Scene(engine(ENVS), cfgs, seed=5, discover=False)
    state = scene.state()
    state["tick"] = state["engine"]["tick"] = start
    scene.load_state(state)
    scene.reset()
    shots: dict[str, torch.Tensor] = {}
    for tick in range(TICKS):
        scene.step(torch.full((scene.engine.ctrl.shape[1],), 0.3))
        assert scene.tick == start + tick + 1
        if tick == TICKS // 2:
            scene.load_state(scene.state())
            scene.reset([1])
        for name, sensor in scene.sensors.items():
            shot = snapshot(sensor) | {"capture_tick": sensor.capture_tick - start}
            shot["stamp"] = ((sensor.stamp - start * scene.clock.dt) * 1e6).round()
            for key, values in shot.items():
                shots[f"{name}.{tick}.{key}"] = values - start * (values > 0) if key.endswith(".tick") else values
    return shots


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for key, values in one.items():
        # firing times of rays are differences of float64 times, which are rounded to 2 ns at this tick
        error = 1e-6 if key.startswith("sweep.") else 0.0
        torch.testing.assert_close(values, other[key], rtol=0.0, atol=error, equal_nan=True, msg=key)


def test_memories_of_ticks_continue_beyond_31_bits() -> None:
    """Delays, rates, timers, latches, sweeps and stages read as at an early tick of the same phase."""
    assert_same(readings(remembering(), START % PERIODS), readings(remembering(), START))


def test_random_numbers_continue_beyond_31_bits() -> None:
    """Every kind of sensor with noise, jitter and losses reads as 2^32 ticks later."""
    noisy = [cfg for cfg in configs() if cfg.label != "stereo"]  # its slow noise has a longer period
    assert_same(readings(noisy, START), readings(noisy, START + 2 * LIMIT))


def test_a_recording_holds_late_ticks(tmp_path: Any) -> None:
    path = tmp_path / "late.mcap"
    scene = sn.Scene(sn.TensorEngine(2, 0.01), [sn.BodyStateCfg(name="state", delay=0.02)])
    state = scene.state()
    state["tick"] = state["engine"]["tick"] = START
    scene.load_state(state)
    scene.reset()
    with scene.record(path):
        for _ in range(10):
            scene.step()
    with sn.replay(str(path)) as replay:
        ticks = [reading.capture_tick.tolist() for reading in replay.readings("state")]
    assert ticks[-1] == [START + 8] * 2 and ticks == sorted(ticks)
