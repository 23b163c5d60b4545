"""A drone flies through a factory hall: dead reckoning with its IMU, and a map from its lidar; writes hall.xyz."""

import numpy as np
import torch

import sensorium as sn
from sensorium.demo import hall

STEP, GRAVITY = 0.005, np.array([0.0, 0.0, -9.81])  # s, m/s^2
path, world = hall.drone(), hall.shapes()
engine = sn.TrajectoryEngine(path, STEP, world=world)
clean = sn.ImuCfg(name="clean", body="body", fields=("ang_vel_b", "lin_acc_b"))
noisy = clean.replace(name="noisy", gyro_noise=2e-3, acc_noise=2e-2, gyro_bias=2e-4, acc_bias=5e-3)
beams = sn.patterns.SphericalPatternCfg(fov=(360.0, 150.0), n_points=(180, 60))
lidar = sn.LidarCfg(body="body", pattern=beams, rate_hz=1.0, max_distance=40.0, fields=("points_b", "geom_ids"))
scene = sn.Scene(engine, [clean, noisy, lidar], seed=0)


def matrix(quat: np.ndarray) -> np.ndarray:
    """Return the rotation matrix of a quaternion (w, x, y, z)."""
    w, x, y, z = quat
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross


start = path.at(0.0)
states = {name: [start.pos[0], start.lin_vel[0], matrix(start.quat[0])] for name in ("clean", "noisy")}
last = {name: torch.cat([scene[name].data.ang_vel_b[0], scene[name].data.lin_acc_b[0]]) for name in states}
errors, points, parts = {name: [0.0] for name in states}, [], []
while scene.time < 30.0:
    scene.step()
    here = path.at(scene.time)
    for name, (pos, vel, turn) in states.items():  # the rates and forces between two samples are their mean
        sample = torch.cat([scene[name].data.ang_vel_b[0], scene[name].data.lin_acc_b[0]])
        rate, force = (0.5 * (last[name] + sample)).double().numpy().reshape(2, 3)
        coning = np.cross(last[name][:3], sample[:3]) * STEP**2 / 12.0  # the axis turns during the step
        last[name] = sample
        half = 0.25 * (STEP * rate + coning)  # quaternion of the rotation up to the middle of the step
        middle = turn @ matrix(np.array([np.sqrt(1.0 - half @ half), *half]))
        acc = middle @ force + GRAVITY
        whole = 2.0 * half
        turn = turn @ matrix(np.array([np.sqrt(1.0 - whole @ whole), *whole]))
        states[name] = [pos + STEP * vel + 0.5 * STEP**2 * acc, vel + STEP * acc, turn]
        errors[name].append(np.linalg.norm(states[name][0] - here.pos[0]))
    if engine.tick % 200 == 0:  # a new scan
        cloud = scene[lidar].point_cloud()
        points.append(here.pos[0] + cloud["points_b"].astype(float) @ matrix(here.quat[0]).T)
        parts.append(cloud["geom_ids"])
print(f"after {scene.time:.0f} s, dead reckoning is off by {errors['clean'][-1]:.3f} m without noise")
print(f"with noise and bias by {errors['noisy'][2000]:.2f} m after 10 s, and {errors['noisy'][-1]:.1f} m at the end")
assert max(errors["clean"]) < 0.5 and errors["noisy"][-1] > 1.0
cloud, part = np.concatenate(points), np.array([shape.name for shape in world])[np.concatenate(parts)]
height = np.abs(cloud[part == "floor", 2]).max()
print(f"{len(cloud)} points; those on the floor are level within {height:.1e} m")
assert height < 1e-4
np.savetxt("hall.xyz", cloud, "%.3f")  # for viewers of point clouds
