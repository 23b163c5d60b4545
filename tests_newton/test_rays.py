"""Rays on Newton hit what Newton's own camera hits."""

from __future__ import annotations

import quadruped
import torch
import warp as wp
from newton.sensors import SensorCamera

import sensorium as sn

SCAN = sn.RayCasterCfg(
    name="scan",
    body="world",
    offset=sn.OffsetCfg(pos=(0.05, 0.02, 1.1)),
    pattern=sn.GridPatternCfg(resolution=0.04, size=(0.8, 0.6)),
)


def test_rays_are_those_of_newton() -> None:
    engine = quadruped.engine_of()
    scene = sn.Scene(engine, [SCAN])
    model = engine.model
    camera = SensorCamera(model, load_textures=False)
    pattern = scene["scan"].pattern
    starts, directions = pattern.starts.float(), pattern.directions.float()
    rays = torch.stack([starts, directions], dim=1)[None, :, None].contiguous()
    transform = torch.tensor([[0.05, 0.02, 1.1, 0.0, 0.0, 0.0, 1.0]]).expand(4, 7).contiguous()
    depth, shape = camera.allocate_image_depth(4, len(starts), 1), camera.allocate_image_shape_index(4, len(starts), 1)
    scene.reset(**quadruped.start())
    scene.step(torch.zeros(8), 30)
    model.bvh_refit_shapes(engine.newton_state)
    camera.update(
        engine.newton_state,
        wp.from_torch(transform, dtype=wp.transformf),
        wp.from_torch(rays, dtype=wp.vec3f),
        depth_image=depth,
        shape_index_image=shape,
    )
    theirs, ours = wp.to_torch(depth)[:, 0], scene["scan"].ground_truth.distances
    close = (ours - theirs).abs() < 1e-4
    assert float(close.float().mean()) > 0.99  # edges of shapes may differ by rounding
    assert 10 < int((ours[0] < 0.9).sum()) < 250  # the robot hides part of the floor
