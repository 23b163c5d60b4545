"""A height scan over terrain: what a walking policy sees of it, true and measured, and how high the feet are."""

import numpy as np
import torch

import sensorium as sn

# Terrain: a height field of gentle hills, and a box that slides to and fro on it. One world, 32 environments.
x = np.linspace(-4.0, 4.0, 161)
xx, yy = np.meshgrid(x, x)
hills = sn.HeightField(0.15 * np.sin(1.3 * xx) * np.cos(0.9 * yy), size=(4.0, 4.0))
shapes = [
    sn.Shape("hfield", "ground", hfield=hills, labels=("terrain",)),
    sn.Shape("box", "crate", (0.3, 0.3, 0.4), body="crate", labels=("obstacle",)),
    sn.Shape("box", "hull", (0.3, 0.15, 0.05), body="trunk"),
]
engine = sn.TensorEngine(
    num_envs=32, dt=0.02, bodies=("trunk", "crate"), shapes=shapes,
    sites={"left_foot": ("trunk", (0.0, 0.15, -0.3)), "right_foot": ("trunk", (0.0, -0.15, -0.3))},
)  # fmt: skip

scan = sn.RayCasterCfg(
    name="scan",
    body="trunk",
    pattern=sn.GridPatternCfg(size=(1.6, 1.0), resolution=0.1),  # 17 x 11 rays down
    ray_alignment="yaw",
    offset=sn.OffsetCfg(pos=(0.3, 0.0, 0.0)),  # looks a little ahead
    fields=("pos_w", "distances", "ray_hits_w", "geom_ids"),
    noise=0.01,
    drift_range=(-0.03, 0.03),  # error of the robot's estimate of its own place
)
feet = sn.TerrainHeightCfg(name="feet", sites=".*_foot", labels="terrain")
scene = sn.Scene(engine, [scan, feet], seed=0)

yaw = 0.5 * torch.rand(32, generator=torch.Generator().manual_seed(0))
for tick in range(50):
    along = 0.02 * tick
    engine.body_pos_w[:, 0] = torch.tensor([along - 0.5, 0.0, 0.6])
    engine.body_quat_w[:, 0] = torch.stack([(yaw / 2).cos(), 0 * yaw, 0 * yaw, (yaw / 2).sin()], dim=-1)
    engine.body_pos_w[:, 1] = torch.tensor([1.2 - 0.5 * along, 0.1, 0.0])
    scene.update()

truth, data = scene[scan].ground_truth, scene[scan].data


def height(points: torch.Tensor) -> np.ndarray:
    """Return the height of the hills below points, by the rule of two triangles per cell of the grid."""
    u, v = ((points[..., k].double().numpy() + 4.0) / 0.05 for k in (0, 1))
    column, row = np.floor(u).astype(int), np.floor(v).astype(int)
    a, b, z = u - column, v - row, hills.heights
    near, far = z[row, column], z[row + 1, column + 1]
    lower, upper = z[row, column + 1], z[row + 1, column]
    return np.where(
        a >= b, near + a * (lower - near) + b * (far - lower), near + b * (upper - near) + a * (far - upper)
    )


names = np.array(scene[scan].geom_names)[truth.geom_ids.numpy()]
ground = names == "ground"
print(f"of {ground.size} rays {ground.sum()} meet the ground and {(names == 'crate').sum()} the crate")
assert set(np.unique(names)) == {"ground", "crate"}  # its own hull is invisible to it
assert np.abs(truth.ray_hits_w[..., 2].numpy() - height(truth.ray_hits_w))[ground].max() < 1e-4
assert np.abs(truth.ray_hits_w[..., 2].numpy()[~ground] - 0.4).max() < 1e-5  # the crate's top, wherever it has got to

drift = data.pos_w - truth.pos_w
measured = data.ray_hits_w[..., 2] - (data.pos_w[:, None, 2] - data.distances)
print(f"the estimate is off by up to {drift.abs().max():.3f} m, and differently in each environment")
assert drift.abs().max() <= 0.03 and measured.abs().max() < 1e-5  # measured hits end where measured distances do

clearance = scene[feet].data.heights  # [env, foot]
expected = np.full((32, 2), 0.3)
for k in range(2):
    rays = scene[feet].data.ray_hits_w[:, k]
    expected[:, k] = (0.3 - height(rays)).min(axis=1)
print(f"feet are {clearance.min():.3f} to {clearance.max():.3f} m above the ground")
assert np.abs(clearance.numpy() - expected).max() < 1e-4

observation = scene["scan"].height_scan(offset=0.5, miss_value=0.0)
assert observation.shape == (32, 187) and observation.isfinite().all()
