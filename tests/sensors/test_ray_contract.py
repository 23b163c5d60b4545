"""The documented behaviour of Isaac Lab's ray casters and cameras, with its examples, in this package's terms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn

Array = NDArray[np.float64]

GROUND = sn.engines.Shape("plane", "ground")
STEP = sn.engines.Shape("box", "step", (0.5, 2.0, 0.15), pos=(1.5, 2.0, 0.15))
"""A step with its top 0.3 m high, over x from 1 to 2 m and y from 0 to 4 m."""
CUBE = sn.engines.Mesh(
    np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)]),
    [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
     [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]],
    "cube",
)  # fmt: skip
WALL = sn.engines.Shape("box", "wall", (0.5, 9.0, 9.0), pos=(4.5, 0.0, 0.0))
"""A wall with its face at x = 4 m."""
ANGLES = ((0.4, 0.3, -0.2), (-1.1, -0.25, 0.35))
"""Heading, pitch and roll of the robot in two envs, rad."""
PLACES = ((0.9, 1.0, 1.0), (1.2, 2.0, 1.5))


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def heights(x: Array, y: Array) -> Array:
    """Return the height of ground and step."""
    return np.where((np.abs(x - 1.5) < 0.5) & (np.abs(y - 2.0) < 2.0), 0.3, 0.0)


def swaying(cfg: Any) -> sn.Scene:
    """Return a scene of robots that lean in all directions on ground with a step."""
    engine = sn.TensorEngine(2, bodies=("base",), shapes=[GROUND, STEP])
    engine.body_pos_w[:, 0] = torch.tensor(PLACES)
    attitudes = Rotation.from_euler("ZYX", ANGLES).as_quat(scalar_first=True)
    engine.body_quat_w[:, 0] = torch.tensor(attitudes, dtype=torch.float32)
    return sn.Scene(engine, [cfg])


def test_height_map_under_a_robot_follows_its_heading_only() -> None:
    """The rays of a leaning robot are the grid rotated by its heading, straight down on ground and step."""
    pattern = sn.patterns.GridPatternCfg(size=(1.2, 0.8), resolution=0.19)
    cfg = sn.RayCasterCfg(
        prim_path="{ENV_REGEX_NS}/Robot/base", targets=["/World"], ray_alignment="yaw", pattern=pattern,
        offset=sn.RayCasterCfg.OffsetCfg(pos=(0.0, 0.0, 20.0)), exclude_parent_body=True,
    )  # fmt: skip
    scene = swaying(cfg)
    hits, starts = numpy(scene[cfg].data.ray_hits_w), numpy(pattern.rays().starts)
    for env, (angle, place) in enumerate(zip((heading for heading, _, _ in ANGLES), PLACES, strict=True)):
        x = place[0] + math.cos(angle) * starts[:, 0] - math.sin(angle) * starts[:, 1]
        y = place[1] + math.sin(angle) * starts[:, 0] + math.cos(angle) * starts[:, 1]
        expected = heights(x, y)
        assert 0 < (expected > 0.0).sum() < len(x)
        np.testing.assert_allclose(hits[env], np.stack([x, y, expected], axis=1), atol=1e-5)
        np.testing.assert_allclose(numpy(scene[cfg].height_scan(0.5))[env], place[2] - expected - 0.5, atol=1e-5)


def test_a_height_map_by_a_camera_follows_its_heading_only() -> None:
    """For a camera that looks straight down from a leaning robot, a pixel's depth is its height over the hit."""
    image = sn.patterns.PinholeCameraPatternCfg(width=14, height=10, focal_length=10.0, horizontal_aperture=10.0)
    down = (0.0, 1.0, 0.0, 0.0)  # right, down, forward are x, -y, -z
    cfg = sn.RayCasterCameraCfg(
        prim_path="{ENV_REGEX_NS}/Robot/base", targets=["/World"], ray_alignment="yaw", pattern=image,
        offset=sn.RayCasterCameraCfg.OffsetCfg(rot=down, convention="ros"),
    )  # fmt: skip
    data: Any = swaying(cfg)[cfg].data
    depth, k = numpy(data.distance_to_image_plane[..., 0]), numpy(data.intrinsic_matrices)
    v, u = np.mgrid[:10, :14] + 0.5
    for env, (angle, place) in enumerate(zip((heading for heading, _, _ in ANGLES), PLACES, strict=True)):
        ahead, left = depth[env] * (u - 7.0) / k[env, 0, 0], -depth[env] * (v - 5.0) / k[env, 1, 1]
        x = place[0] + math.cos(angle) * ahead - math.sin(angle) * left
        y = place[1] + math.sin(angle) * ahead + math.cos(angle) * left
        is_level = np.abs(np.abs(x - 1.5) - 0.5) > 1e-4  # not on a side of the step
        expected = (place[2] - heights(x, y))[is_level]
        assert is_level.mean() > 0.8 and 0.1 < (expected < place[2]).mean() < 0.9
        np.testing.assert_allclose(depth[env][is_level], expected, atol=1e-5)


def test_camera_measures_distances_to_a_mesh() -> None:
    """The near face of a triangle cube, 1.5 m ahead and 1 m wide, in empty space, gives z-depth, range and normals."""
    shape = sn.engines.Shape("mesh", "cube", mesh=CUBE, pos=(2.0, 0.0, 0.0))
    image = sn.patterns.PinholeCameraPatternCfg(width=31, height=21, focal_length=10.0, horizontal_aperture=10.0)
    cfg = sn.RayCasterCameraCfg(
        body="body", pattern=image, offset={"convention": "world"},
        data_types=["distance_to_image_plane", "distance_to_camera", "normals"],
    )  # fmt: skip
    data: Any = sn.Scene(sn.TensorEngine(1, shapes=[shape]), [cfg])[cfg].data
    v, u = np.mgrid[:21, :31] + 0.5
    right, down = (u - 15.5) / 31.0, (v - 10.5) / 31.0
    is_met = (np.abs(1.5 * right) < 0.5) & (np.abs(1.5 * down) < 0.5)
    assert 0 < is_met.sum() < is_met.size
    expected = np.where(is_met, 1.5, np.inf)
    output = {name: numpy(value[0]) for name, value in data.output.items()}
    np.testing.assert_allclose(output["distance_to_image_plane"][..., 0], expected, rtol=1e-6)
    ranges = expected * np.sqrt(1.0 + right**2 + down**2)
    np.testing.assert_allclose(output["distance_to_camera"][..., 0], ranges, rtol=1e-6)
    np.testing.assert_allclose(output["normals"], np.where(is_met[..., None], [-1.0, 0.0, 0.0], 0.0), atol=1e-6)


@pytest.mark.parametrize(
    ("paths", "depth"),
    [(["/World/wall"], 4.0), (["/World/wall", "{ENV_REGEX_NS}/Robot/drone"], 1.5), (["/World/back"], math.inf)],
    ids=["wall", "wall and drone", "what is behind"],
)
def test_camera_sees_only_the_given_meshes(paths: list[str], depth: float) -> None:
    """A moving cube hides a wall only if both are given; shapes that no path names are not visible."""
    back = sn.engines.Shape("box", "back", (0.5, 9.0, 9.0), pos=(-4.5, 0.0, 0.0))
    shapes = [GROUND, WALL, back, sn.engines.Shape("mesh", "cube", mesh=CUBE, body="drone")]
    engine = sn.TensorEngine(2, bodies=("body", "drone"), shapes=shapes)
    engine.body_pos_w[:] = torch.tensor([[0.0, 0.0, 1.0], [9.0, 9.0, 9.0]])
    image = sn.patterns.PinholeCameraPatternCfg(width=4, height=4, focal_length=100.0, horizontal_aperture=10.0)
    cfg = sn.RayCasterCameraCfg(body="body", pattern=image, targets=paths, offset={"convention": "world"})
    scene = sn.Scene(engine, [cfg])
    before: Any = scene[cfg].data.distance_to_image_plane
    np.testing.assert_allclose(numpy(before), depth if math.isinf(depth) else 4.0, rtol=1e-6)
    engine.body_pos_w[:, 1] = torch.tensor([2.0, 0.0, 1.0])
    scene.update()
    np.testing.assert_allclose(numpy(scene[cfg].data.distance_to_image_plane), depth, rtol=1e-6)
