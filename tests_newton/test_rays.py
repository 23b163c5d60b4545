"""Rays on Newton hit what Newton's own camera hits."""

from __future__ import annotations

import newton
import numpy as np
import pytest
import quadruped
import torch
import warp as wp
from newton.sensors import SensorCamera

import sensorium as sn

SCAN = sn.RayCasterCfg(
    name="scan",
    body="world",
    offset=sn.OffsetCfg(pos=(0.05, 0.02, 1.1)),
    pattern=sn.patterns.GridPatternCfg(resolution=0.04, size=(0.8, 0.6)),
)


def camera_distances(scene: sn.Scene, height: float) -> torch.Tensor:
    """Return the distances that Newton's camera measures along the rays of the scan, `[env, ray]`."""
    engine = scene.engine
    assert isinstance(engine, sn.NewtonEngine)
    model, envs, pattern = engine.model, engine.num_envs, scene["scan"].pattern
    starts, directions = pattern.starts.float(), pattern.directions.float()
    rays = torch.stack([starts, directions], dim=1)[None, :, None].contiguous()
    transform = torch.tensor([[0.05, 0.02, height, 0.0, 0.0, 0.0, 1.0]]).expand(envs, 7).contiguous()
    camera = SensorCamera(model, load_textures=False)
    depth = camera.allocate_image_depth(envs, len(starts), 1)
    model.bvh_refit_shapes(engine.newton_state)
    camera.update(
        engine.newton_state,
        wp.from_torch(transform, dtype=wp.transformf),
        wp.from_torch(rays, dtype=wp.vec3f),
        depth_image=depth,
    )
    found: torch.Tensor = wp.to_torch(depth)[:, 0]
    return found


def compare(scene: sn.Scene, height: float) -> torch.Tensor:
    """Compare the scan with Newton's camera; edges of shapes may differ by rounding."""
    ours = scene["scan"].ground_truth.distances
    close = (ours - camera_distances(scene, height)).abs() < 1e-4
    assert float(close.float().mean()) > 0.99
    return ours


@pytest.mark.parametrize("num_envs", [4, 64])
def test_rays_are_those_of_newton(num_envs: int) -> None:
    scene = sn.Scene(quadruped.engine_of(num_envs), [SCAN])
    scene.reset(**quadruped.start(num_envs))
    scene.step(torch.zeros(8), 30)
    ours = compare(scene, 1.1)
    assert 10 < int((ours[0] < 0.9).sum()) < 250  # the robot hides part of the floor


def test_every_kind_of_shape() -> None:
    world = newton.ModelBuilder()
    grid = np.linspace(-1.0, 1.0, 9)
    heights = 0.1 * np.sin(3.0 * grid)[:, None] + 0.05 * np.cos(2.0 * grid)  # both ways to split a cell agree
    corners = np.array([[0.0, 0.0, 0.0], [0.2, 0.0, 0.0], [0.0, 0.2, 0.0], [0.0, 0.0, 0.2]], dtype=np.float32)
    faces = np.array([0, 2, 1, 0, 1, 3, 0, 3, 2, 1, 2, 3], dtype=np.int32)
    turn = wp.quat_rpy(0.3, 0.4, 0.5)

    def place(x: float, y: float) -> wp.transform:
        return wp.transform((x, y, 0.3), turn)

    world.add_shape_mesh(-1, xform=place(-0.25, -0.2), mesh=newton.Mesh(corners, faces), scale=(1.0, 1.5, 0.5))
    world.add_shape_capsule(-1, xform=place(0.0, -0.2), radius=0.04, half_height=0.08)
    world.add_shape_cylinder(-1, xform=place(0.25, -0.2), radius=0.05, half_height=0.06)
    world.add_shape_ellipsoid(-1, xform=place(-0.25, 0.15), rx=0.05, ry=0.08, rz=0.1)
    body = world.add_body(xform=place(0.05, 0.15), label="box")
    world.add_shape_box(body, hx=0.05, hy=0.07, hz=0.09)
    world.add_shape_sphere(-1, xform=place(0.3, 0.15), radius=0.06)
    builder = newton.ModelBuilder()
    builder.add_shape_heightfield(heightfield=newton.Heightfield(heights, 9, 9, hx=1.0, hy=1.0), label="terrain")
    builder.replicate(world, 2)
    model = builder.finalize(device="cpu")
    scene = sn.Scene(sn.NewtonEngine(model, newton.solvers.SolverXPBD(model), dt=0.002), [SCAN])
    kinds = {shape.kind for shape in scene.engine.shapes()}
    assert kinds == {"hfield", "mesh", "capsule", "cylinder", "ellipsoid", "box", "sphere"}
    ours = compare(scene, 1.1)
    assert int((ours < 0.95).sum()) > 60


@pytest.mark.parametrize("solver", ["SolverMuJoCo", "SolverXPBD"])
def test_shapes_on_fixed_bodies_stand_elsewhere_in_each_world(solver: str) -> None:
    builder = newton.ModelBuilder()
    builder.add_ground_plane()
    for x in (-0.2, 0.1, 0.25):
        world = newton.ModelBuilder()
        newton.solvers.SolverMuJoCo.register_custom_attributes(world)
        post = world.add_link(label="post")
        world.add_shape_box(post, hx=0.05, hy=0.05, hz=0.2)
        fixed = world.add_joint_fixed(-1, post, parent_xform=wp.transform((x, 0.0, 0.25), wp.quat_identity()))
        world.add_articulation([fixed])
        robot = world.add_body(xform=wp.transform((0.0, 0.0, 5.0), wp.quat_identity()), label="robot")
        world.add_shape_sphere(robot, radius=0.1)
        builder.add_world(world)
    model = builder.finalize(device="cpu")
    scene = sn.Scene(sn.NewtonEngine(model, getattr(newton.solvers, solver)(model), dt=0.002), [SCAN])
    scene.step(substeps=2)
    ours = compare(scene, 1.1)
    points = scene["scan"].pattern.starts[:, 0] + 0.05
    for env, x in enumerate((-0.2, 0.1, 0.25)):
        found = points[ours[env] < 0.8]
        assert len(found) > 2 and float((found - x).abs().max()) < 0.051
