"""Many sensors against one sensor with many mounts, encoders and contacts at scale, each kind against a plain copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import mujoco
import torch

from benchmarks.timing import interleaved
from sensorium import (
    BarometerCfg,
    ContactMatch,
    ContactSensorCfg,
    FrameTransformerCfg,
    GnssCfg,
    ImuCfg,
    JointSensorCfg,
    JointTorqueCfg,
    JointWrenchCfg,
    MagnetometerCfg,
    MujocoEngine,
    Scene,
    SensorCfg,
    TensorEngine,
)
from sensorium.demo import model_path

Row = tuple[str, str, str]
MOUNTS = 20
JOINTS = 12
FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
CONTACT_FIELDS = ("found", "force", "torque", "dist", "pos", "normal", "tangent", "friction")


def many_imus() -> list[Row]:
    """Compare 20 single-mount IMUs with one IMU of 20 mounts, 1024 envs, all read at every tick."""
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
    """Compare a 12-joint encoder with and without noise, resolution and delay, 4096 envs, read at every tick."""
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


def torch_contacts(report: torch.Tensor, dt: float) -> Iterator[dict[str, torch.Tensor]]:
    """Yield what a contact sensor of one slot has after each tick, in plain torch code."""
    found, touched = report[:, :, 0, 0], torch.zeros(report.shape[:2], dtype=torch.bool)
    names = ("current_air_time", "last_air_time", "current_contact_time", "last_contact_time")
    data = {name: torch.zeros_like(found) for name in names}
    data |= {
        "found_history": found.new_zeros(*found.shape, 4), "force_history": found.new_zeros(*found.shape, 4, 3),
    }  # fmt: skip
    while True:
        touches = found > 0.0
        force = torch.where(touches.unsqueeze(2), report[:, :, 0, 1:], 0.0)
        for kind, is_now in (("air", ~touches), ("contact", touches)):
            current, last = data[f"current_{kind}_time"], data[f"last_{kind}_time"]
            data[f"last_{kind}_time"] = torch.where(~is_now & (touches ^ touched), current + dt, last)
            data[f"current_{kind}_time"] = torch.where(is_now, current + dt, 0.0)
        for name, values in (("found", found), ("force", force)):
            history = data[f"{name}_history"]
            data[f"{name}_history"] = torch.cat((values.unsqueeze(2), history[:, :, :-1]), dim=2)
            data[name] = values.clone()
        touched = touches
        yield data


def contacts() -> list[Row]:
    """Measure a tick of the contact sensor of four feet beyond an empty scene, 1024 envs, half of them in contact."""
    listed: dict[str, Any] = {"history_length": 4, "latch": False}
    every: dict[str, Any] = {"fields": CONTACT_FIELDS, "num_slots": 3, "latch": False}
    cases = {
        "found, force, history 4, air time": (listed, "at most 0.25 ms"),
        "found, force, history 4, air time, latches": ({"history_length": 4}, ""),
        "all fields, 3 slots, air time": (every, "at most 1 ms"),
        "all fields, 3 slots, air time, history 4, latches": ({**every, "history_length": 4, "latch": True}, ""),
    }
    rows = []
    for what, (fields, bound) in cases.items():
        engine = TensorEngine(1024, 0.002, bodies=FEET, provides=("pose", "contact"))
        feet = ContactMatch(mode="body", pattern=FEET)
        scene = Scene(engine, [ContactSensorCfg(primary=feet, track_air_time=True, **fields)])
        there = (torch.rand(1024, len(FEET), 1, 1, generator=torch.Generator().manual_seed(1)) < 0.5).float()
        for array in engine.contacts.values():
            array.copy_(there * (1.0 + torch.rand(array.shape)))
        empty = Scene(TensorEngine(1024, 0.002, bodies=FEET, provides=("pose", "contact")), [])
        calls: dict[str, Callable[[], object]] = {"sensor": partial(step, scene), "no sensor": partial(step, empty)}
        if fields is listed:
            (report,) = engine.contacts.values()
            plain = torch_contacts(report, engine.dt)
            for is_on in (True, False, True):
                report[::2, :, :, 0] = float(is_on)
                scene.step()
                found = next(plain)
            for name, values in found.items():
                torch.testing.assert_close(getattr(scene["contact_sensor"].data, name), values)
            calls["torch"] = partial(next, plain)
        seconds = interleaved(calls, repeats=100, rounds=25)
        cost = seconds["sensor"] - seconds["no sensor"]
        if fields is listed:
            bound = f"{cost / seconds['torch']:.2f} x plain torch code for the same outputs"
        rows.append((f"contacts of 4 feet, 1024 envs, a tick: {what}", f"{cost * 1e3:.3f} ms", bound))
    return rows


def contact_physics(num_envs: int) -> list[Row]:
    """Compare a tick of the quadruped with and without a contact sensor on its feet, up to the same stage."""
    feet = ContactMatch(mode="geom", pattern=".*_foot")
    listed = ContactSensorCfg(primary=feet, track_air_time=True, history_length=4, latch=False)
    latched = listed.replace(latch=True)  # needs a second report, of net forces

    def engine(fresh: bool = True) -> MujocoEngine:
        return MujocoEngine(model_path(), num_envs=num_envs, keyframe="home", fresh=fresh)

    def refreshed(each: MujocoEngine) -> None:
        each.step(None, 1)
        each.refresh()

    def whole(scene: Scene) -> None:
        scene.step()
        _ = scene["contact_sensor"].data

    def forward(each: MujocoEngine) -> None:
        each.step(None, 1)
        each.batch.forward(stage=int(mujoco.mjtStage.mjSTAGE_ACC))

    calls = {"plain": partial(engine().step, None, 1), "plain, then forward": partial(forward, engine())}
    for fresh in (True, False):
        mode = f"fresh={fresh}"
        calls[f"{mode}: engine with its report"] = partial(refreshed, Scene(engine(fresh), [listed]).engine)
        calls[f"{mode}: the same, and the sensor"] = partial(whole, Scene(engine(fresh), [listed]))
        calls[f"{mode}: engine with reports for latches"] = partial(refreshed, Scene(engine(fresh), [latched]).engine)
        calls[f"{mode}: the same, and the sensor with latches"] = partial(whole, Scene(engine(fresh), [latched]))
    seconds = interleaved(calls, repeats=max(3, 300 // num_envs), rounds=15)
    rows = []
    for name, value in seconds.items():
        base = "plain, then forward" if name.startswith("fresh=True") else "plain"
        ratio = f"{value / seconds[base]:.2f} x {base}" + " (at most 1.05)" * name.endswith("its report")
        ratio = "baseline" if name == "plain" else ratio
        rows.append((f"quadruped's feet, a tick, {num_envs} env(s): {name}", f"{value * 1e3:.2f} ms", ratio))
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
    """Return the requested fields; the data of some sensors are one tensor."""
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
"""Name, config and requirements on the engine."""
