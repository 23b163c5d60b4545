"""A drone flies through a factory hall: dead reckoning with its IMU, and a map from its lidar; writes hall.png."""

import numpy as np

import sensorium as sn
from sensorium.demo import hall

STEP, GRAVITY = 0.01, np.array([0.0, 0.0, -9.81])  # s, m/s^2
path, world = hall.drone(), hall.shapes()
engine = sn.TrajectoryEngine(path, STEP, world=world)
clean = sn.ImuCfg(name="clean", body="body", fields=("ang_vel_b", "lin_acc_b"))
noisy = clean.replace(name="noisy", gyro_noise=2e-3, acc_noise=2e-2, gyro_bias=2e-4, acc_bias=5e-3)
beams = sn.SphericalPatternCfg(fov=(360.0, 150.0), n_points=(180, 60))
lidar = sn.LidarCfg(body="body", pattern=beams, rate_hz=1.0, max_distance=40.0, fields=("points_b", "geom_ids"))
scene = sn.Scene(engine, [clean, noisy, lidar], seed=0)


def turned(quat: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return vectors `[..., 3]` turned by a quaternion wxyz."""
    across = 2.0 * np.cross(quat[1:], vectors)
    return vectors + quat[0] * across + np.cross(quat[1:], across)


def sampled(name: str) -> np.ndarray:
    """Return the rates and specific forces of an IMU, `[6]`."""
    data = scene[name].data
    return np.concatenate([data.ang_vel_b[0], data.lin_acc_b[0]]).astype(float)


samples = {name: [sampled(name)] for name in ("clean", "noisy")}
points, parts = [], []
while engine.ticks_left:
    scene.step()
    for name, rows in samples.items():
        rows.append(sampled(name))
    if engine.tick % 100 == 0:  # a new scan
        cloud = scene[lidar].point_cloud()
        here = path.at(scene.time)
        points.append(here.pos[0] + turned(here.quat[0], cloud["points_b"].astype(float)))
        parts.append(cloud["geom_ids"])


def slope(state: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Return the derivative of position, velocity and quaternion under a sample of the IMU."""
    (w, *v), (rate, force) = state[6:], np.split(sample, 2)
    acc = turned(state[6:], force) + GRAVITY
    return np.concatenate([state[3:6], acc, [-0.5 * np.dot(v, rate)], 0.5 * (w * rate + np.cross(v, rate))])


def reckoned(rows: list[np.ndarray]) -> np.ndarray:
    """Return the positions at every second sample, by Runge-Kutta steps over two intervals, `[step, 3]`, m."""
    start = path.at(0.0)
    states = [np.concatenate([start.pos[0], start.lin_vel[0], start.quat[0]])]
    for first, middle, last in zip(rows[:-2:2], rows[1:-1:2], rows[2::2], strict=True):
        state = states[-1]
        a = slope(state, first)
        b = slope(state + STEP * a, middle)
        c = slope(state + STEP * b, middle)
        d = slope(state + 2.0 * STEP * c, last)
        states.append(state + STEP / 3.0 * (a + 2.0 * b + 2.0 * c + d))
    return np.array(states)[:, :3]


tracks = {name: reckoned(rows) for name, rows in samples.items()}
true = path.at(np.arange(len(tracks["clean"])) * 2.0 * STEP).pos
errors = {name: np.linalg.norm(track - true, axis=1) for name, track in tracks.items()}
print(f"after {engine.duration:.0f} s, dead reckoning is off by {errors['clean'][-1]:.4f} m without noise")
print(f"with noise and bias by {errors['noisy'][500]:.2f} m after 10 s, and {errors['noisy'][-1]:.0f} m at the end")
assert errors["clean"].max() < 0.01
assert errors["noisy"][-1] > 1.0

# Points on level surfaces have known heights: the floor, the mezzanine, and the top of the dock.
cloud, part = np.concatenate(points), np.array([shape.name for shape in world])[np.concatenate(parts)]
floor = np.abs(cloud[part == "floor", 2]).max()
dock = cloud[(part == "ramp") & (np.abs(cloud[:, :2] - (-5.0, 9.0)) < (2.5, 1.9)).all(axis=1), 2]
print(f"{len(cloud)} points; the floor is level within {floor:.1e} m, the dock within {np.abs(dock - 1.0).max():.1e} m")
assert floor < 1e-4 and np.abs(dock - 1.0).max() < 1e-4

try:
    import matplotlib
except ImportError:
    print("install matplotlib to draw the map")
else:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
    cut = (cloud[:, 2] > 0.1) & (cloud[:, 2] < 3.0)
    for name in np.unique(part[cut]):
        axes.plot(*cloud[cut & (part == name), :2].T, ".", ms=1.5, label=name)
    axes.plot(*true[:, :2].T, "k", lw=1, label="true path")
    near = errors["noisy"] < 3.0
    axes.plot(*tracks["noisy"][near, :2].T, "r--", lw=1, label="dead reckoning, up to 3 m off")
    axes.set(xlabel="x (m)", ylabel="y (m)", aspect="equal", title="Map of the hall, a cut between 0.1 and 3 m")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=6, frameon=False)
    figure.savefig("hall.png", dpi=100)
