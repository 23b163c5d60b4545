"""A rollout of observations: what a walking robot measures, beside the truth that only its trainer sees."""

import torch

import sensorium as sn
from sensorium.demo import Trot, model_path

ENVS, STEPS = 16, 200

imu = sn.ImuCfg(name="imu", site="imu", fields=("ang_vel_b", "projected_gravity_b", "lin_vel_b"), gyro_noise=0.02)
joints = sn.JointSensorCfg(
    name="joints", joints=".*", fields=("position", "velocity"), noise={"position": 0.002, "velocity": 0.1}, delay=0.01
)
feet = sn.ContactSensorCfg(name="feet", primary=sn.ContactMatch(mode="geom", pattern=".*_foot"), fields=("found",))
down = sn.GridPatternCfg(size=(0.8, 0.4), resolution=0.2)
scan = sn.RayCasterCfg(name="scan", site="imu", pattern=down, ray_alignment="yaw", max_distance=2.0, noise=0.01)

engine = sn.MujocoEngine(model_path(), num_envs=ENVS, keyframe="home")
scene = sn.Scene(engine, [imu, joints, feet, scan], seed=0)

look = scene.observer(
    "imu.ang_vel_b", "imu.projected_gravity_b", "joints", "feet.found", "scan.distances",
    truth=("imu.lin_vel_b",), replace_inf=2.0,
)  # fmt: skip
print(look)

# Environments walk at other speeds. The rollout keeps what it gets: no copies, and nothing is written again.
trots = [Trot(speed=0.1 + 0.02 * env) for env in range(ENVS)]
rollout, copies = [], []
for _ in range(STEPS):
    scene.step(torch.stack([trot.targets(scene.time) for trot in trots]), substeps=5)
    rollout.append(look())
    copies.append(rollout[-1].clone())
assert all(torch.equal(obs, copy) for obs, copy in zip(rollout, copies, strict=True))

# One tensor has all of it, and each field its own shape.
obs = torch.stack(rollout)
parts = look.split(obs)
print({name: tuple(part.shape) for name, part in parts.items()})
assert obs.isfinite().all() and parts["joints.velocity"].shape == (STEPS, ENVS, 12)
standing = parts["feet.found"][STEPS // 2 :].bool().float().mean()
print(f"feet are on the ground for {100 * standing:.0f} % of the time")
