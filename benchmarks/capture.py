"""Captured steps against separate launches, shards, and many sensors against one sensor with many mounts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.timing import interleaved
from sensorium import (
    ContactMatch,
    ContactSensorCfg,
    FrameTransformerCfg,
    ImuCfg,
    JointSensorCfg,
    OffsetCfg,
    RayCasterCfg,
    Scene,
    SensorCfg,
    TensorEngine,
)
from sensorium.engines import Shape
from sensorium.patterns import GridPatternCfg

Row = tuple[str, str, str]
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
JOINTS = tuple(f"joint_{k}" for k in range(12))
MOUNTS = 100
WARM = 40
"""Steps after which everything due at each of them is captured."""


def robot() -> list[SensorCfg[Any]]:
    """Return the sensors of a walking robot: IMU, joints, frames, contacts of the feet, a height scan of 17 x 11."""
    foot = FrameTransformerCfg.FrameCfg(body=".*_foot")
    scan = {"pattern": GridPatternCfg(size=(1.6, 1.0), resolution=0.1), "ray_alignment": "yaw"}
    return [
        ImuCfg(name="imu", body="base"),
        JointSensorCfg(name="joints", joints=".*", fields=("position", "velocity", "effort")),
        FrameTransformerCfg(name="frames", body="base", target_frames=(foot,)),
        ContactSensorCfg(name="feet", primary=ContactMatch(mode="body", pattern=FEET), fields=("found", "force")),
        RayCasterCfg(name="scan", body="base", offset=OffsetCfg(pos=(0.0, 0.0, 2.0)), **scan),
    ]


def engine_of(num_envs: int) -> TensorEngine:
    """Return tensors for a robot over a plane, without physics, so that a step measures only the sensors."""
    provides = ("pose", "velocity", "acceleration", "gravity", "joint_state", "joint_effort", "contact")
    ground = [Shape("plane", "ground")]
    engine = TensorEngine(num_envs, 0.002, bodies=("base", *FEET), joints=JOINTS, provides=provides, shapes=ground)
    engine.body_pos_w[:, 0, 2] = 0.4
    return engine


def stepper(scene: Scene, reads: bool = True) -> Callable[[], None]:
    """Return a function that takes a tick and reads all sensors, or one sensor, which evaluates all that were read."""
    sensors = list(scene.sensors.values())

    def step() -> None:
        scene.update()
        for sensor in sensors:
            _ = sensor.data

    for _ in range(WARM):
        step()
    if not reads:
        del sensors[1:]
    return step


def step() -> list[Row]:
    """Measure a step of one robot's sensors with all of them read: captured, recorded launches, and plain launches."""
    calls = {}
    for what, capture in (("captured", True), ("recorded launches (capture=False)", False)):
        calls[what] = stepper(Scene(engine_of(1), robot(), capture=capture))
    calls["launched by wp.launch each time"] = stepper(_plain(Scene(engine_of(1), robot(), capture=False)))
    seconds = interleaved(calls, repeats=300, rounds=25)
    captured = seconds["captured"]
    return [
        (
            f"IMU, joints, frames, contacts, height scan, 1 env, a step: {what}",
            f"{value * 1e6:.1f} us",
            "at most 60 us" if what == "captured" else f"{value / captured:.1f} x captured (at least 3)",
        )
        for what, value in seconds.items()
    ]


def _plain(scene: Scene) -> Scene:
    """Launch every kernel of a scene with `wp.launch`, as code without recorded launches does."""
    import warp as wp

    stepper(scene)
    programs = {each.buffers.group.program: None for each in scene.sensors.values() if each.buffers.group}
    for segment in (each for work in programs if work is not None for each in work._segments):

        def run(segment: Any = segment) -> None:
            rows = scene.compute.rows(segment._mask)
            for launch in segment._launches:
                args = [rows, *launch.arguments(scene.compute)]
                wp.launch(launch.kernel, dim=launch.dim, inputs=args, device=scene.compute.wp_device)

        segment.run = run
    return scene


def shards() -> list[Row]:
    """Measure captured scans of growing size: whole, in two shards, and with the automatic choice."""
    rows = []
    tilted = GridPatternCfg(size=(1.6, 1.0), resolution=0.1, direction=(0.3, 0.0, -1.0))
    for num_envs in (16, 64, 256, 1024):
        scenes = {}
        for what, count in (("one shard", 1), ("two shards", 2), ("automatic", None)):
            scene = Scene(engine_of(num_envs), [RayCasterCfg(name="scan", body="base", pattern=tilted)])
            scene.compute.threads, scene.compute.shards = 2, count
            scenes[what] = scene, stepper(scene)
        calls = {what: call for what, (_, call) in scenes.items()}
        seconds = interleaved(calls, repeats=1, rounds=max(200, 100_000 // num_envs))  # both cores must be free
        group = scenes["automatic"][0]["scan"].buffers.group
        assert group is not None and group.program is not None
        count = max(segment.shards for segment in group.program._segments)
        for what, value in seconds.items():
            ratio = "baseline" if what == "one shard" else f"{seconds['one shard'] / value:.2f} x faster"
            more = f": {count} shard(s)" if what == "automatic" else ""
            rows.append((f"187 rays, {num_envs} envs, a captured step, {what}{more}", f"{value * 1e3:.3f} ms", ratio))
    return rows


def many(num_envs: int) -> list[Row]:
    """Compare 100 IMUs with one of 100 mounts, captured: a step and the read that evaluates all, or all reads."""
    names = tuple(f"body_{k}" for k in range(MOUNTS))
    rows, most = [], 2.0 if num_envs == 1 else 1.2
    for noise, knobs in (("clean", {}), ("noisy", {"gyro_noise": 0.01, "acc_noise": 0.1})):
        for reads in (False, True):
            calls = {}
            for layout in ("one IMU with 100 mounts", "100 IMUs"):
                provides = ("pose", "velocity", "acceleration", "gravity")
                engine = TensorEngine(num_envs, 0.002, bodies=names, provides=provides)
                one = [ImuCfg(name="imus", bodies=names, **knobs)]
                each = [ImuCfg(name=name, body=name, **knobs) for name in names]
                calls[layout] = stepper(Scene(engine, one if layout.startswith("one") else each), reads)
            seconds = interleaved(calls, repeats=max(10, 300 // num_envs), rounds=25)
            base = seconds["one IMU with 100 mounts"]
            what = "all read" if reads else "all evaluated"
            for layout, value in seconds.items():
                ratio = "baseline" if layout.startswith("one") else f"{value / base:.2f} x one IMU (at most {most})"
                row = f"{noise} IMUs, {num_envs} env(s), a captured step, {what}: {layout}"
                rows.append((row, f"{value * 1e6:.1f} us", ratio))
    return rows


many_small, many_large = partial(many, 1), partial(many, 1024)
