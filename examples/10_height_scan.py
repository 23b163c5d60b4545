"""A height scan over terrain for a walking policy, true and measured, and the clearance of the feet."""

import numpy as np
import torch

import sensorium as sn

# Waves along x as a height field, and a crate that slides on them. 32 environments have different headings.
x = np.linspace(-4.0, 4.0, 161)
waves = sn.engines.HeightField(np.tile(0.15 * np.sin(1.3 * x), (41, 1)), size=(4.0, 4.0))
shapes = [
    sn.engines.Shape("hfield", "ground", hfield=waves, labels=("terrain",)),
    sn.engines.Shape("box", "crate", (0.3, 0.3, 0.4), body="crate"),
    sn.engines.Shape("box", "hull", (0.3, 0.15, 0.05), body="trunk"),
]
sites = {"left_foot": ("trunk", (0.0, 0.15, -0.3)), "right_foot": ("trunk", (0.0, -0.15, -0.3))}
engine = sn.TensorEngine(num_envs=32, dt=0.02, bodies=("trunk", "crate"), shapes=shapes, sites=sites)
scan = sn.RayCasterCfg(
    name="scan",
    body="trunk",
    pattern=sn.patterns.GridPatternCfg(size=(1.6, 1.0), resolution=0.1),  # 17 x 11 rays straight down
    ray_alignment="yaw",
    offset=sn.OffsetCfg(pos=(0.3, 0.0, 0.0)),  # shifted forward
    fields="all",
    noise=0.01,
    drift_range=(-0.03, 0.03),  # error of the robot's estimated position
)
feet = sn.TerrainHeightCfg(name="feet", sites=".*_foot", labels="terrain")
scene = sn.Scene(engine, [scan, feet], seed=0)

yaw = 0.5 * torch.rand(32, generator=torch.Generator().manual_seed(0))
for tick in range(50):
    engine.body_pos_w[:, 0] = torch.tensor([0.02 * tick - 0.5, 0.0, 0.6])
    engine.body_quat_w[:, 0] = torch.stack([(yaw / 2).cos(), 0 * yaw, 0 * yaw, (yaw / 2).sin()], dim=-1)
    engine.body_pos_w[:, 1] = torch.tensor([1.2 - 0.01 * tick, 0.1, 0.0])
    scene.update()

# Truth: every ray ends on the waves or on top of the crate, and none on the robot's own hull.
truth, data = scene[scan].ground_truth, scene[scan].data
hit = np.array(scene[scan].geom_names)[truth.geom_ids.numpy()]
print(f"of {hit.size} rays, {(hit == 'ground').sum()} hit the ground and {(hit == 'crate').sum()} the crate")
along, _, up = truth.ray_hits_w.numpy().transpose(2, 0, 1)
expected = np.where(hit == "crate", 0.4, np.interp(along, x, 0.15 * np.sin(1.3 * x)))
assert set(hit.flat) == {"ground", "crate"} and np.abs(up - expected).max() < 1e-4

# Measured: hits are at the noisy distances below the estimated position of the robot.
drift = data.pos_w - truth.pos_w
below = data.pos_w[:, None, 2] - data.distances
print(f"the estimated position differs by up to {drift.abs().max():.3f} m, per environment")
assert drift.abs().max() <= 0.03 and (data.ray_hits_w[..., 2] - below).abs().max() < 1e-5

# Feet: 0.3 m minus the highest wave that a ray of the foot hits.
hits = scene[feet].data.ray_hits_w[..., 0].numpy()  # x, [env, foot, ray]
clearance = scene[feet].data.heights.numpy()  # [env, foot]
print(f"feet are {clearance.min():.3f} to {clearance.max():.3f} m above the ground")
assert np.abs(clearance - (0.3 - np.interp(hits, x, 0.15 * np.sin(1.3 * x))).min(axis=-1)).max() < 1e-4
assert scene["scan"].height_scan(offset=0.5, miss_value=0.0).isfinite().all()
