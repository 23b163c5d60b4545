"""Cost of adapters: arrays of a simulator that are bound to a TensorEngine, and the state of Newton's worlds.

Both sides of a ratio take turns, and the ratio is the median over their rounds.
"""

from importlib.util import find_spec
from typing import Any

import mujoco
import numpy as np
import torch

from benchmarks.timing import wall_and_cpu
from sensorium import BodyStateCfg, ImuCfg, JointSensorCfg, NewtonEngine, Scene, TensorEngine
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
DT = 0.002
TICKS = 20
GROUND = """
<mujoco>
  <worldbody>
    <geom name="ground" type="plane" size="0 0 1" friction="0.9" conaffinity="0" solref="0.01 1"/>
  </worldbody>
</mujoco>
"""
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
    given: dict[str, Any] = {"quat_order": "xyzw", "com": [[0.01, 0.0, 0.0]] * len(BODIES)}
    given["at_com"] = ("velocity", "acceleration")
    engines = {
        "own arrays": TensorEngine(num_envs, DT, **common),
        "bound arrays": TensorEngine(num_envs, DT, bound=same, **common),
        "own arrays, xyzw and at the centre of mass": TensorEngine(num_envs, DT, **given, **common),
        "bound arrays, xyzw and at the centre of mass": TensorEngine(num_envs, DT, bound=other, **given, **common),
    }
    scenes = {name: Scene(engine, _sensors()) for name, engine in engines.items()}
    times = wall_and_cpu({name: lambda scene=scene: _ticks(scene) for name, scene in scenes.items()}, rounds=40)
    rows = []
    for name, taken in times.items():
        wall, cpu = np.median(taken, axis=0)
        own = dict.fromkeys(("own arrays", name.replace("bound", "own")))  # the same conventions too
        ratios = {each: np.median(taken / times[each], axis=0) for each in own if each != name}
        against = [f"{ratio[0]:.2f} x {each}, CPU {ratio[1]:.2f} x" for each, ratio in ratios.items()]
        size = f"{wall / TICKS * 1e6:.0f} us, CPU {cpu / TICKS * 1e6:.0f} us"
        rows.append(
            (f"IMU, encoders, body state, a tick, {num_envs} envs, {name}", size, "\n".join(against) or "baseline")
        )
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
    from newton.solvers import SolverMuJoCo

    calls, rows = {}, []
    model = _quadrupeds(num_envs)
    for what, needed in (("state", KINEMATIC), ("state, accelerations and forces", DYNAMIC)):
        engine = NewtonEngine(model, SolverMuJoCo(model), dt=DT, control="joint_target_q")
        engine.hold()
        engine.forward()
        engine.prepare(dict.fromkeys(needed, "benchmark"))
        calls |= {f"step, {what}": engine.step, what: engine.refresh}
    times = wall_and_cpu(calls, rounds=max(20, 20_000 // num_envs))
    for what, taken in times.items():
        wall, cpu = np.median(taken, axis=0)
        share = "baseline"
        if f"step, {what}" in times:
            ratios = 100 * np.median(taken / times[f"step, {what}"], axis=0)
            share = f"{ratios[0]:.2f} % of the step, CPU {ratios[1]:.2f} %"
        size = f"{wall * 1e3:.2f} ms, CPU {cpu * 1e3:.2f} ms"
        rows.append((f"quadruped on Newton, a tick, {num_envs} envs: {what}", size, share))
    return rows


def _quadrupeds(num_envs: int) -> Any:
    """Return a `newton.Model` of the standing demo quadruped in each world, on one plane that all worlds share."""
    import newton

    robot, builder = newton.ModelBuilder(), newton.ModelBuilder()
    for each in (robot, builder):
        newton.solvers.SolverMuJoCo.register_custom_attributes(each)
    robot.add_mjcf(str(model_path()), force_show_colliders=True, ignore_names=("terrain", "apron_.*"))
    robot.joint_q[7:] = mujoco.MjModel.from_xml_path(str(model_path())).key("home").qpos[7:].tolist()
    builder.replicate(robot, num_envs)
    builder.add_mjcf(GROUND)
    return builder.finalize(device="cpu")
