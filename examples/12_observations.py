"""A rollout of observations: measurements of a walking robot, with privileged columns of truth for training."""

import torch

import sensorium as sn
from sensorium.demo import Trot, model_path
from sensorium.demo.gait import Geometry

ENVS, STEPS = 16, 200

imu = sn.ImuCfg(name="imu", site="imu", fields=("ang_vel_b", "projected_gravity_b", "lin_vel_b"), gyro_noise=0.02)
joints = sn.JointSensorCfg(
    name="joints", joints=".*", fields=("position", "velocity"), noise={"position": 0.002, "velocity": 0.1}, delay=0.01
)
feet = sn.ContactSensorCfg(name="feet", primary=sn.ContactMatch(mode="geom", pattern=".*_foot"), fields=("found",))
down = sn.patterns.GridPatternCfg(size=(0.8, 0.4), resolution=0.2)
scan = sn.RayCasterCfg(name="scan", site="imu", pattern=down, ray_alignment="yaw", max_distance=2.0, noise=0.01)

engine = sn.MujocoEngine(model_path(), num_envs=ENVS, keyframe="home")
scene = sn.Scene(engine, [imu, joints, feet, scan], seed=0)

look = scene.observer(
    "imu.ang_vel_b", "imu.projected_gravity_b", "joints", "feet.found", "scan.distances",
    truth=("imu.lin_vel_b",), replace_inf=2.0,
)  # fmt: skip
print(look)

# Stride lengths differ between environments. The rollout keeps the observations, which are never overwritten.
trots = [Trot(step_length=length) for length in torch.linspace(0.02, 0.14, ENVS).tolist()]
rollout, copies = [], []
for _ in range(STEPS):
    scene.step(torch.stack([trot.targets(scene.time) for trot in trots]), substeps=5)
    rollout.append(look())
    copies.append(rollout[-1].clone())
assert all(torch.equal(obs, copy) for obs, copy in zip(rollout, copies, strict=True))

# One tensor holds all fields. `split` returns each field in its own shape.
parts = look.split(torch.stack(rollout))  # [step, env, ...] each
print({name: tuple(part.shape) for name, part in parts.items()})
assert all(part.isfinite().all() for part in parts.values())  # a ray without a hit reads 2 m

# Leg odometry from measured values: a foot on the ground is at rest, so its velocity in the trunk gives the speed.
angles, rates, legs = parts["joints.position"], parts["joints.velocity"], Geometry()
feet_vel_b = (legs.forward(angles + 1e-3 * rates) - legs.forward(angles)) / 1e-3
is_down = (parts["feet.found"] > 0)[..., None]
speed = (-feet_vel_b * is_down).sum(dim=2) / is_down.sum(dim=2).clamp(min=1)
walking = slice(STEPS // 4, None)
measured, true = (each[walking, :, 0].mean(dim=0) for each in (speed, parts["truth:imu.lin_vel_b"]))
print(f"the fastest walks {true[-1]:.2f} m/s, leg odometry {measured[-1]:.2f} m/s (feet land while moving)")
assert true.diff().min() > 0.0 and torch.corrcoef(torch.stack([measured, true]))[0, 1] > 0.99
assert (measured / true)[ENVS // 2 :].sub(0.85).abs().max() < 0.15
