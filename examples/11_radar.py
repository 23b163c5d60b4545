"""A car estimates its own velocity from one radar scan, with other cars and false alarms in view.

A static target in the direction d has the radial velocity -d . v. A quarter of the detections are other cars and false
alarms. A vote among random pairs of detections (RANSAC) finds the static targets.
"""

import numpy as np
import torch

import sensorium as sn

rng = np.random.default_rng(0)
ENVS = 20
speeds, sides = rng.uniform(5.0, 30.0, ENVS), rng.uniform(-1.5, 1.5, ENVS)  # m/s forward and, on ice, sideways

shapes = [sn.engines.Shape("box", "rail", (200.0, 0.1, 0.6), pos=(0.0, 7.0, 0.0))]
shapes += [sn.engines.Shape("cylinder", f"tree_{k}", (0.6, 2.0), pos=(12.0 + 8.0 * k, -8.0, 0.0)) for k in range(8)]
shapes += [sn.engines.Shape("box", name, (2.2, 0.9, 0.7), body=name) for name in ("oncoming", "leading")]
engine = sn.TensorEngine(ENVS, dt=0.05, bodies=("ego", "oncoming", "leading"), shapes=shapes)
engine.body_lin_vel_w[:, 0, :2] = torch.tensor(np.stack([speeds, sides], axis=-1))
engine.body_pos_w[:, 1:, :2] = torch.tensor([(25.0, 3.0), (18.0, -1.0)])
engine.body_lin_vel_w[:, 1, 0], engine.body_lin_vel_w[:, 2, 0] = -12.0, torch.tensor(speeds + 4.0)

radar = sn.RadarCfg(
    body="ego", horizontal_fov_deg=110.0, vertical_fov_deg=4.0, points=400, fields=("geom_ids",),
    bandwidth=500e6, frame_time=0.02, reference_snr=20.0, rcs={"tree_.*": 2.0, "rail": 2.0, "oncoming|leading": 10.0},
    false_alarm_probability=1e-4, clutter_rate=30.0, clutter_speed=40.0, noise={"azimuth": 0.003},
)  # fmt: skip
scene = sn.Scene(engine, [radar], seed=2)
names = scene[radar].geom_names
moving = [names.index(name) for name in ("oncoming", "leading")]

errors, shares = [], []
for env in range(ENVS):
    found = scene[radar].detections(env)
    v, d = found["velocity"], np.stack([np.cos(found["azimuth"]), np.sin(found["azimuth"])], axis=-1)
    best = np.zeros(len(v), dtype=bool)
    for _ in range(200):
        pair = rng.choice(len(v), 2, replace=False)
        if abs(np.linalg.det(d[pair])) > 0.1:
            agrees = np.abs(v + d @ np.linalg.solve(d[pair], -v[pair])) < 0.2
            best = agrees if agrees.sum() > best.sum() else best
    own = np.linalg.lstsq(d[best], -v[best], rcond=None)[0]
    errors.append(own - (speeds[env], sides[env]))
    still = (found["geom_ids"] >= 0) & ~np.isin(found["geom_ids"], moving)
    shares.append((still.mean(), still[best].mean()))

rms, (share, kept) = np.sqrt(np.square(errors).mean(axis=0)), np.mean(shares, axis=0)
print(f"error of the forward speed {rms[0]:.3f} m/s, sideways {rms[1]:.3f} m/s (rms over {ENVS} scans)")
print(f"{share:.0%} of all detections are static, {kept:.0%} of the selected ones")
assert rms[0] < 0.02 and rms[1] < 0.04
assert share < 0.9 and kept > 0.97
