"""Two slices of 3 environments draw the same bits as a scene of 6, in every kind of sensor.

Environments k and k + 3 have the same state, so their truth is equal and they differ in their random numbers only.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from two_engines import ENVS, MODEL, OPTIONS, sensors, start

import sensorium as sn
from sensorium import registry
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import SensorCfg, SimpleSensorCfg
from sensorium.measurement.stage_cfg import Place, StageCfg
from sensorium.measurement.stage_key import StageKey
from sensorium.random import Normal, Uniform
from sensorium.testing.trial import chained_fields, snapshot

TICKS = 12
OURS = {cfg.kind() for cfg in registry.registered() if cfg.__module__.startswith("sensorium.")}
OF_ITS_OWN: dict[str, dict[str, Any]] = {
    "joint": {"eccentricity": (0.1, 0.05), "gear": 9.0},
    "joint_torque": {"ripple": 1.0},
    "magnetometer": {"hard_iron": Normal(0.0, 1e-6), "soft_iron": Uniform(-0.01, 0.01)},
    "gnss": {"horizontal_sd": 1.0, "vertical_sd": 2.0, "tau": 0.05},
    "lidar": {
        "range_noise": 0.01, "channel_bias": Uniform(-0.1, 0.1), "drop_rate": 0.2, "intensity_noise": 0.1,
        "reference_snr": 100.0,
    },
    "radar": {"clutter_rate": 8.0, "clutter_speed": 10.0, "reference_snr": 100.0, "false_alarm_probability": 0.1},
    "event_camera": {"sigma_positive_threshold": 0.05, "shot_noise_rate_hz": 200.0},
    "ray_caster": {"drift_range": (-0.1, 0.1), "ray_cast_drift_range": {"x": (-0.1, 0.1)}},
    "ray_cast": {"drift_range": (-0.1, 0.1)},
    "contact_depth_probe": {"probe_radius_noise": 0.05},
    "contact_probe": {"probe_radius_noise": 0.05},
    "kinematic_tactile": {"probe_radius_noise": 0.01},
    "proximity_taxel": {"probe_radius_noise": 0.05},
}  # fmt: skip
"""Random options of a kind besides the standard knobs."""
DEPTH = {
    "stereo": sn.stages.StereoDepth(
        fov_deg=80.0, baseline=0.05, noise_px=0.5, slow_share=0.5, slow_time=0.01, grazing=(0.1, 0.9)
    ),
    "kinect": sn.stages.KinectDepth(fov_deg=80.0, baseline=0.05, grazing=(0.1, 0.9)),
    "redwood": sn.stages.KinectDepth(fov_deg=80.0, variant="redwood"),
    "tof": sn.stages.TofDepth(fov_deg=80.0, modulation_hz=2e7, grazing=(0.1, 0.9), window=3),
}


class Drawn(StageCfg):
    """A plugin's stage that draws tensors."""

    place: Place = "post"

    def apply(self, slot: Record, truth: Record, state: Mapping[str, torch.Tensor], key: StageKey) -> None:
        slot.ang_vel_b += key.normal("turn", "ang_vel_b").view(slot.ang_vel_b.shape)
        slot.lin_acc_b += key.uniform("push", "lin_acc_b").view(slot.lin_acc_b.shape)


UNTIMED = ("collision_events", "contact_sensor")
"""Kinds without delay and losses."""
NATIVE = ("builtin",)


def engine(num_envs: int) -> sn.MujocoEngine:
    """Return an engine whose environments k and k + 3 have the same state."""
    three = sn.MujocoEngine(MODEL, ENVS)
    start(three)
    made = sn.MujocoEngine(MODEL, num_envs)
    for name in ("qpos", "qvel", *OPTIONS):
        values = getattr(three, name)
        getattr(made, name)[:] = values.repeat(num_envs // ENVS, *(1,) * (values.dim() - 1))
    made.forward()
    return made


def noisy(cfg: SensorCfg[Any], sensor: Any) -> SensorCfg[Any]:
    """Return a config with all random options."""
    kind = cfg.kind()
    changes: dict[str, Any] = dict(OF_ITS_OWN.get(kind, {}))
    if kind in UNTIMED or not isinstance(cfg, SimpleSensorCfg):
        return cfg.replace(**changes)
    vectors = [name for name, spec in chained_fields(sensor).items() if spec.kind in ("vector", "rotation")]
    given = sensor.buffers.knobs.tables
    for knob, value in (("noise", Uniform(0.01, 0.02)), ("bias", Uniform(-0.1, 0.1)), ("random_walk", 0.01)):
        if fields := [name for name in vectors if (knob, name) not in given]:
            changes[knob] = dict.fromkeys(fields, value)
    if kind not in NATIVE:
        changes |= {"delay": Uniform(0.004, 0.02), "jitter": 0.004, "loss": 0.3}
    return cfg.replace(**changes)


@functools.cache
def configs() -> list[SensorCfg[Any]]:
    """Return the noisy configs of all kinds, and a depth camera for each error model of images."""
    clean = sn.Scene(engine(ENVS), sensors())
    made = [noisy(cfg, clean[cfg]) for cfg in sensors()]
    (camera,) = (cfg for cfg in sensors() if cfg.kind() == "depth_camera")
    made += [camera.replace(name=name, stages=(stage,)) for name, stage in DEPTH.items()]
    made.append(sn.ImuCfg(name="drawn", site="imu", stages=(Drawn(fields=("ang_vel_b", "lin_acc_b")),)))
    made.append(sn.ImuCfg(name="timed", site="imu", gyro_noise=0.1, stages=(sn.stages.ClockError(jitter=1e-4),)))
    return made


def run(num_envs: int, **options: Any) -> dict[str, dict[str, torch.Tensor]]:
    """Take some ticks with a reset in between, and return the readings of all sensors."""
    scene = sn.Scene(engine(num_envs), configs(), seed=5, discover=False, **options)
    home = {name: getattr(scene.engine, name)[[1]].clone() for name in ("qpos", "qvel")}
    generator = torch.Generator().manual_seed(1)
    shots: dict[str, dict[str, torch.Tensor]] = {}
    for tick in range(TICKS):
        ctrl = 2.0 * torch.rand(ENVS, scene.engine.ctrl.shape[1], generator=generator) - 1.0
        scene.step(ctrl.repeat(num_envs // ENVS, 1))
        if tick == TICKS // 2:
            rows = list(range(1, num_envs, ENVS))
            scene.reset(rows, **{name: values.repeat(len(rows), 1) for name, values in home.items()})
        for name, sensor in scene.sensors.items():
            for key, values in (snapshot(sensor) | {"stamp": sensor.stamp}).items():
                shots.setdefault(name, {})[f"{tick}.{key}"] = values.clone()
    return shots


@pytest.fixture(scope="module")
def whole() -> dict[str, dict[str, torch.Tensor]]:
    return run(2 * ENVS)


@pytest.fixture(scope="module")
def slices() -> list[dict[str, dict[str, torch.Tensor]]]:
    return [run(ENVS, first_env=first) for first in (0, ENVS)]


def rows_of(values: torch.Tensor, part: slice = slice(None)) -> bytes:
    return values[part].contiguous().numpy().tobytes()


def test_every_kind_of_sensor_is_covered() -> None:
    assert {cfg.kind() for cfg in sensors()} == OURS


@pytest.mark.parametrize("name", [cfg.label for cfg in sensors()] + [*DEPTH, "drawn", "timed"])
def test_slices_draw_the_numbers_of_the_whole_run(
    name: str, whole: dict[str, dict[str, torch.Tensor]], slices: list[dict[str, dict[str, torch.Tensor]]]
) -> None:
    """All values that a reader sees agree at each tick in both slices; the two slices differ from each other."""
    for k, part in enumerate((slice(0, ENVS), slice(ENVS, 2 * ENVS))):
        for key, values in slices[k][name].items():
            assert rows_of(values) == rows_of(whole[name][key], part), f"slice {k}, tick.field {key}"
    draws = any(rows_of(first) != rows_of(slices[1][name][key]) for key, first in slices[0][name].items())
    kind = next(cfg.kind() for cfg in configs() if cfg.label == name)
    assert draws == (kind not in UNTIMED)
