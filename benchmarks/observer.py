"""Cost of an observation of many sensors, against concatenating the views."""

from functools import partial

import torch

from benchmarks.timing import interleaved
from sensorium import ImuCfg, JointSensorCfg, MujocoEngine, Scene
from sensorium.demo import model_path

Row = tuple[str, str, str]

IMU = ("ang_vel_b", "lin_acc_b", "projected_gravity_b", "lin_vel_b")
JOINTS = ("position", "velocity")


def gather(num_envs: int) -> list[Row]:
    """Gather twelve current fields of four sensors into new memory."""
    engine = MujocoEngine(model_path(), num_envs=num_envs, keyframe="home")
    sensors = [
        ImuCfg(name="trunk", site="imu", fields=IMU, gyro_noise=0.01),
        ImuCfg(name="foot", site="FL_foot_imu", fields=IMU, gyro_noise=0.01, delay=0.004),
        JointSensorCfg(name="joints", joints=".*", fields=JOINTS, noise={"position": 0.001}),
        JointSensorCfg(name="encoders", joints=".*", fields=JOINTS, resolution={"position": 0.001}),
    ]
    scene = Scene(engine, sensors)
    names = [f"{imu}.{field}" for imu in ("trunk", "foot") for field in IMU]
    names += [f"{joint}.{field}" for joint in ("joints", "encoders") for field in JOINTS]
    look = scene.observer(*names)
    pairs = [tuple(name.split(".")) for name in names]

    def concatenate() -> torch.Tensor:
        return torch.cat([getattr(scene[name].data, field).flatten(1) for name, field in pairs], dim=1)

    assert torch.equal(look(), concatenate())
    calls = {"torch.cat": concatenate, "observer": look, "observer, results kept": partial(_keep, look, [])}
    seconds = interleaved(calls, repeats=500 if num_envs == 1 else 100)
    rows = []
    for name, value in seconds.items():
        what = f"observation, {len(names)} fields, {look.shape[1]} columns, {num_envs} env(s): {name}"
        ratio = "baseline" if name == "torch.cat" else f"{value / seconds['torch.cat']:.2f} x torch.cat"
        rows.append((what, f"{value * 1e6:.1f} us", ratio))
    return rows


def _keep(look: object, kept: list[torch.Tensor], most: int = 24) -> None:
    """Observe and keep the result, as a rollout of `most` steps does."""
    if len(kept) == most:
        kept.clear()
    kept.append(look())  # type: ignore[operator]
