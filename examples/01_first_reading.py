"""A noisy IMU on a robot at rest, in 64 environments, compared with the expected values."""

import torch

import sensorium as sn
from sensorium.demo import model_path

NOISE = 0.05  # m/s^2 per sample

imu = sn.ImuCfg(name="trunk", site="imu", gyro_noise=0.01, acc_noise=NOISE)
engine = sn.MujocoEngine(model_path(), num_envs=64, keyframe="home")
scene = sn.Scene(engine, sensors=[imu], seed=0)

print(scene[imu])
for _ in range(200):  # 2 s: the robot settles on its feet
    scene.step(substeps=5)

data = scene[imu].data
print(f"t = {scene.time:g} s, {scene.num_envs} environments")
print(f"lin_acc_b {tuple(data.lin_acc_b.shape)}, environment 0: {data.lin_acc_b[0]} m/s^2")
print(f"ang_vel_b {tuple(data.ang_vel_b.shape)}, environment 0: {data.ang_vel_b[0]} rad/s")

# At rest, an accelerometer measures a specific force of 9.81 m/s^2. The mean of 64 noisy readings is eight times as
# accurate as one reading.
force = data.lin_acc_b.mean(dim=0).norm().item()
print(f"mean specific force {force:.3f} m/s^2, expected 9.81")
assert abs(force - 9.81) < 5 * NOISE / 8

# The measured values have the standard deviation of the config. The true values are equal in all environments.
scatter = (data.lin_acc_b - scene[imu].ground_truth.lin_acc_b).std().item()
print(f"standard deviation {scatter:.3f} m/s^2, expected {NOISE}")
assert abs(scatter / NOISE - 1.0) < 0.25
assert torch.equal(scene[imu].ground_truth.lin_acc_b[0], scene[imu].ground_truth.lin_acc_b[63])
