"""A car in a bend scans a square room: motion skews the scan, and a gyroscope and the speed correct it."""

import math

import numpy as np

import sensorium as sn

SPEED, RATE, DT = 10.0, 1.2, 0.002  # m/s, rad/s, s


def bend(time: float) -> dict[str, tuple[float, ...]]:
    """Return the motion at a time: a level circle, nose forward, at the origin at 1 s."""
    a = RATE * (time - 1.0)
    radius = SPEED / RATE
    return {
        "body_pos_w": (radius * math.sin(a), radius * (1.0 - math.cos(a)), 1.5),
        "body_quat_w": (math.cos(a / 2), 0.0, 0.0, math.sin(a / 2)),
        "body_ang_vel_w": (0.0, 0.0, RATE),
    }


walls = [
    sn.engines.Shape("box", f"wall_{k}", (0.1, 20.1, 4.0), pos=(20.1 * math.cos(a), 20.1 * math.sin(a), 2.0),
             quat=(math.cos(a / 2), 0.0, 0.0, math.sin(a / 2)), reflectance=0.2 + 0.2 * k)
    for k, a in enumerate(np.arange(4) * math.pi / 2)
]  # fmt: skip
fields = ("points_b", "points_w", "intensity", "geom_ids", "time_offset")
lidar = sn.LidarCfg(body="body", rate_hz=10.0, range_noise=0.01, fields=fields)
imu = sn.ImuCfg(body="body", fields=("ang_vel_b",))
engine = sn.TensorEngine(1, DT, shapes=walls, motion=bend)
scene = sn.Scene(engine, [lidar, imu], seed=1)
scene.step(substeps=round(1.0 / DT))


def off(points: np.ndarray, shapes: np.ndarray) -> float:
    """Return the rms distance of points from the walls that their ids name, m."""
    normal = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])[shapes]
    return float(np.sqrt((((points[:, :2] * normal).sum(axis=1) - 20.0) ** 2).mean()))


cloud = scene[lidar].point_cloud()
points, shapes, t = cloud["points_b"].astype(float), cloud["geom_ids"], cloud["time_offset"].astype(float)

rate = float(scene[imu].data.ang_vel_b[0, 2])  # undo the motion with the sensor's pose at the time of each point
angle, radius = rate * t, SPEED / rate
c, s = np.cos(angle), np.sin(angle)
x, y = points[:, 0], points[:, 1]
straight = np.stack([c * x - s * y + radius * s, s * x + c * y + radius * (1.0 - c)], axis=1)
true = scene[lidar].point_cloud(measured=False)
skewed, corrected, exact = off(points, shapes), off(straight, shapes), off(true["points_w"], true["geom_ids"])
print(f"distance from the walls: {skewed:.3f} m as scanned, {corrected:.4f} m corrected, {exact:.1e} m in truth")
assert skewed > 0.3 and corrected < 0.012 and exact < 1e-4

# Calibrated intensity is reflectance times the cosine of incidence, at any distance.
for k in range(4):
    brightest = cloud["intensity"][shapes == k].max()
    print(f"wall {k}: brightest {brightest:.3f}")
    assert abs(brightest - (0.2 + 0.2 * k)) < 0.01
