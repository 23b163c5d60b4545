"""Cost of adapters: arrays of a simulator that are bound to a TensorEngine, and the state of Newton's worlds."""

from importlib.util import find_spec
from typing import Any

import torch

from benchmarks.timing import wall_and_cpu
from sensorium import BodyStateCfg, ImuCfg, JointSensorCfg, Scene, TensorEngine
from sensorium.demo import model_path
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_WRENCH,
)

Row = tuple[str, str, str]
BODIES = tuple(f"body_{k}" for k in range(13))
JOINTS = tuple(f"joint_{k}" for k in range(12))
PROVIDES = ("pose", "velocity", "acceleration", "gravity", "joint_state")
TICKS = 20
KINEMATIC = (BODY_POSE, BODY_VELOCITY, GRAVITY, JOINT_STATE)
DYNAMIC = (*KINEMATIC, BODY_ACCELERATION, JOINT_EFFORT, JOINT_WRENCH)


def bound(num_envs: int) -> list[Row]:
    """Measure a tick of noisy sensors on a TensorEngine's own arrays, and on bound arrays of a simulator."""
    pose, twist, acceleration = (torch.zeros(num_envs, len(BODIES), size) for size in (7, 6, 6))
    quat = torch.zeros(num_envs, len(BODIES), 4)
    pose[..., 6] = quat[..., 0] = 1.0
    linear, angular = (twist[..., :3], acceleration[..., :3]), (twist[..., 3:], acceleration[..., 3:])
    both = {"body_pos_w": pose[..., :3], "body_ang_vel_w": angular[0], "body_ang_acc_w": angular[1]}
    both |= {name: torch.zeros(num_envs, len(JOINTS)) for name in ("joint_pos", "joint_vel")}
    same = both | {"body_quat_w": quat, "body_lin_vel_w": linear[0], "body_lin_acc_w": linear[1]}
    other = both | {"body_quat": pose[..., 3:], "body_com_lin_vel_w": linear[0], "body_com_lin_acc_w": linear[1]}
    common: dict[str, Any] = {"bodies": BODIES, "joints": JOINTS, "provides": PROVIDES}
    engines = {
        "own arrays": TensorEngine(num_envs, 0.002, **common),
        "bound arrays": TensorEngine(num_envs, 0.002, bound=same, **common),
        "bound arrays, xyzw and at the centre of mass": TensorEngine(
            num_envs, 0.002, bound=other, quat_order="xyzw", com=[[0.01, 0.0, 0.0]] * len(BODIES),
            at_com=("velocity", "acceleration"), **common,
        ),
    }  # fmt: skip
    scenes = {name: Scene(engine, _sensors()) for name, engine in engines.items()}
    times = wall_and_cpu({name: lambda scene=scene: _ticks(scene) for name, scene in scenes.items()}, rounds=40)
    base = times["own arrays"]
    rows = []
    for name, (wall, cpu) in times.items():
        ratio = "baseline" if name == "own arrays" else f"{wall / base[0]:.2f} x own, CPU {cpu / base[1]:.2f} x"
        size = f"{wall / TICKS * 1e6:.0f} us, CPU {cpu / TICKS * 1e6:.0f} us"
        rows.append((f"IMU, encoders, body state, a tick, {num_envs} envs, {name}", size, ratio))
    return rows


def _sensors() -> list[Any]:
    return [
        ImuCfg(name="imu", body="body_0", gyro_noise=0.01, acc_noise=0.1, delay=0.004),
        JointSensorCfg(name="encoders", joints=".*", noise={"position": 1e-4, "velocity": 1e-3}),
        BodyStateCfg(name="state", bodies=".*"),
    ]


def _ticks(scene: Scene) -> None:
    for _ in range(TICKS):
        scene.update()
        for sensor in scene.sensors.values():
            _ = sensor.data


def newton(num_envs: int) -> list[Row]:
    """Measure a tick of Newton's worlds, and what state, accelerations and forces of it add."""
    if find_spec("newton") is None:
        return [("quadruped on Newton", "skipped", "newton is not installed: pip install 'sensorium[newton]'")]
    from sensorium.engines.newton.files import engine_of_file

    calls, rows = {}, []
    for what, needed in (("state", KINEMATIC), ("state, accelerations and forces", DYNAMIC)):
        engine = engine_of_file(model_path(), num_envs, "cpu")
        engine.prepare(dict.fromkeys(needed, "benchmark"))
        calls |= {f"step, {what}": engine.step, what: engine.refresh}
    times = wall_and_cpu(calls, rounds=max(20, 20_000 // num_envs))
    for what, (wall, cpu) in times.items():
        base = times[f"step, {what}"] if f"step, {what}" in times else None
        share = "baseline"
        if base is not None:
            share = f"{100 * wall / base[0]:.2f} % of the step, CPU {100 * cpu / base[1]:.2f} %"
        size = f"{wall * 1e3:.2f} ms, CPU {cpu * 1e3:.2f} ms"
        rows.append((f"quadruped on Newton, a tick, {num_envs} envs: {what}", size, share))
    return rows
