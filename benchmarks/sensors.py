"""Many sensors against one with many mounts, joint encoders at scale, and each kind of sensor against a plain copy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.timing import interleaved
from sensorium import (
    BarometerCfg,
    FrameTransformerCfg,
    GnssCfg,
    ImuCfg,
    JointSensorCfg,
    JointTorqueCfg,
    JointWrenchCfg,
    MagnetometerCfg,
    Scene,
    SensorCfg,
    TensorEngine,
)

Row = tuple[str, str, str]
MOUNTS = 20
JOINTS = 12


def many_imus() -> list[Row]:
    """20 single-mount IMUs in one scene against one IMU with 20 mounts, 1024 envs, all read at every tick."""
    names = tuple(f"body_{k}" for k in range(MOUNTS))
    rows = []
    for what, knobs in (("clean", {}), ("noisy", {"gyro_noise": 0.01, "acc_noise": 0.1})):
        scenes = {}
        for layout in ("one IMU with 20 mounts", "20 IMUs"):
            engine = TensorEngine(1024, 0.002, bodies=names, provides=("pose", "velocity", "acceleration", "gravity"))
            cfgs = (
                [ImuCfg(name="imus", bodies=names, **knobs)]
                if layout.startswith("one")
                else [ImuCfg(name=name, body=name, **knobs) for name in names]
            )
            scenes[layout] = Scene(engine, cfgs)

        seconds = interleaved({layout: partial(step, scene) for layout, scene in scenes.items()}, repeats=50)
        base = seconds["one IMU with 20 mounts"]
        for layout, value in seconds.items():
            ratio = "baseline" if layout.startswith("one") else f"{value / base:.2f} x one IMU (at most 2)"
            rows.append((f"{what} IMUs, 1024 envs, a step: {layout}", f"{value * 1e6:.0f} us", ratio))
    return rows


def encoders() -> list[Row]:
    """A 12-joint encoder with noise, resolution and delay against the same clean one, 4096 envs, read at every tick."""
    joints = tuple(f"joint_{k}" for k in range(JOINTS))
    dirty = {"noise": {"position": 1e-4, "velocity": 1e-3}, "position_resolution": 3.8e-4, "delay": 0.004}
    scenes = {}
    for what, knobs in (("clean", {}), ("noise, resolution, delay", dirty)):
        engine = TensorEngine(4096, 0.002, joints=joints, provides=("joint_state",))
        scenes[what] = Scene(engine, [JointSensorCfg(joints=".*", **knobs)])
    seconds = interleaved({what: partial(step, scene) for what, scene in scenes.items()}, repeats=50)
    rows = []
    for what, value in seconds.items():
        ratio = "baseline" if what == "clean" else f"{value / seconds['clean']:.2f} x clean (under 1 ms)"
        rows.append((f"12 joints, 4096 envs, a step: {what}", f"{value * 1e6:.0f} us", ratio))
    return rows


def kinds(num_envs: int) -> list[Row]:
    """A step of each kind of sensor, clean and read at every tick, against a torch copy of as many numbers."""
    bodies = ("base", *(f"link_{k}" for k in range(JOINTS)))
    joints = tuple(f"joint_{k}" for k in range(JOINTS))
    rows = []
    for what, cfg, provides in KINDS:
        engine = TensorEngine(num_envs, 0.002, bodies=bodies, joints=joints, provides=provides)
        scene = Scene(engine, [cfg])
        fields = scene[cfg].read()
        columns = sum(field.numel() // num_envs for field in _tensors(fields))
        source, target = torch.ones(2, num_envs, columns).unbind()
        seconds = interleaved(
            {"sensor": partial(step, scene), "copy": partial(target.copy_, source)},
            repeats=max(10, min(500, 40_000 // num_envs)),
            rounds=25,
        )
        ratio = f"{seconds['sensor'] / seconds['copy']:.1f} x a copy of {columns} columns"
        rows.append((f"{what}, {num_envs} env(s), a step", f"{seconds['sensor'] * 1e6:.1f} us", ratio))
    return rows


def step(scene: Scene) -> None:
    """Take one tick and read every sensor."""
    scene.update()
    for sensor in scene.sensors.values():
        _ = sensor.data


def _tensors(data: Any) -> list[torch.Tensor]:
    """Return the fields that were asked for; the data of some sensors are one tensor."""
    if isinstance(data, torch.Tensor):
        return [data]
    values = [getattr(data, name) for name in data.__dataclass_fields__]
    return [value for value in values if isinstance(value, torch.Tensor)]


KINDS: Sequence[tuple[str, SensorCfg[Any], Any]] = (
    (
        "frame transformer, 13 targets",
        FrameTransformerCfg(body="base", target_frames=(FrameTransformerCfg.FrameCfg(body=".*"),)),
        ("pose",),
    ),
    ("barometer", BarometerCfg(body="base"), ("pose", "velocity")),
    ("GNSS receiver", GnssCfg(body="base"), ("pose", "velocity")),
    ("magnetometer", MagnetometerCfg(body="base"), ("pose", "magnetic")),
    ("joint wrench, 12 joints", JointWrenchCfg(bodies="link_.*"), ("pose", "joint_wrench")),
    ("joint torque, 12 joints", JointTorqueCfg(joints=".*"), ("joint_state", "joint_torque")),
)
"""Name, config, and what the engine must provide."""
