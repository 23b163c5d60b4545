"""Many sensors against one with many mounts, and joint encoders at scale."""

from __future__ import annotations

from typing import Any

from benchmarks.timing import interleaved
from sensorium import ImuCfg, JointSensorCfg, Scene, TensorEngine

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

        def step(scene: Scene) -> None:
            scene.update()
            for sensor in scene.sensors.values():
                _ = sensor.data

        calls: dict[str, Any] = {layout: (lambda s=scene: step(s)) for layout, scene in scenes.items()}
        seconds = interleaved(calls, repeats=50)
        base = seconds["one IMU with 20 mounts"]
        for layout, value in seconds.items():
            ratio = "baseline" if layout.startswith("one") else f"{value / base:.2f} x one IMU"
            rows.append((f"{what} IMUs, 1024 envs, a step: {layout}", f"{value * 1e6:.0f} us", ratio))
    return rows


def encoders() -> list[Row]:
    """A 12-joint encoder with noise, resolution and delay against the same clean one, 4096 envs, read at every tick."""
    joints = tuple(f"joint_{k}" for k in range(JOINTS))
    dirty = {"noise": {"position": 1e-4, "velocity": 1e-3}, "position_resolution": 3.8e-4, "delay": 0.004}
    calls: dict[str, Any] = {}
    for what, knobs in (("clean", {}), ("noise, resolution, delay", dirty)):
        scene = Scene(
            TensorEngine(4096, 0.002, joints=joints, provides=("joint_state",)), [JointSensorCfg(joints=".*", **knobs)]
        )

        def step(scene: Scene = scene) -> object:
            scene.update()
            return scene["joint"].data

        calls[what] = step
    seconds = interleaved(calls, repeats=50)
    return [(f"12 joints, 4096 envs, a step: {what}", f"{value * 1e6:.0f} us", "") for what, value in seconds.items()]
