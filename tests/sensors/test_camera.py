"""The camera, checked against a brute-force render in float64, the ray-casting camera and closed forms."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
import torch
from camera_scenes import GROUND, POSITION, SAME_CAMERA, THINGS, numpy, rays_of, render
from reference import random_shapes, reference_cast
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.testing import check_sensor

HITS = ("distance_to_image_plane", "distance_to_camera", "normals", "points_b", "geom_ids", "face_ids")
SEGMENTATIONS = ("semantic_segmentation", "instance_segmentation", "instance_id_segmentation")
ALL = (*HITS, *SEGMENTATIONS, "segmentation")
RAW: dict[str, Any] = {f"colorize_{name}": False for name in SEGMENTATIONS}
K = [[40.0, 0.0, 17.0], [0.0, 35.0, 18.0], [0.0, 0.0, 1.0]]
"""An off-centre lens with pixels that are not square, for images of 40 x 30 px."""
FISHEYE = {"kind": "f_theta", "nominal_size": (64.0, 64.0), "coefficients": (0.05,)}
ROBOT = """
<mujoco><worldbody><geom name="floor" type="plane" size="9 9 1"/>
  <geom name="crate" type="box" size=".3 .3 .3" pos="2 0 .3"/>
  <body name="base" pos="0 0 .5"><freejoint/><geom name="trunk" size=".1" pos="-.3 0 0"/>
    <camera name="head" pos=".1 0 0" xyaxes="0 -1 0 0 0 1" fovy="60" resolution="32 24"/>
    <body name="arm" pos=".5 0 -.2"><joint axis="0 1 0"/><geom name="hand" size=".1"/>
      <body name="tool"><body name="tip" pos=".2 .1 0"><geom name="tip" size=".05"/></body></body></body>
  </body>
  <body name="ball_a" pos="1 .5 .2"><freejoint/><geom name="a" size=".1"/></body>
  <body name="ball_b" pos="1 -.5 .2"><freejoint/><geom name="b" size=".1"/></body>
</worldbody></mujoco>
"""


def camera(**options: Any) -> sn.CameraCfg:
    """Return a camera on the body that looks along the body's x axis, of 40 x 30 px."""
    return sn.CameraCfg(
        **{
            "name": "camera", "body": "body", "width": 40, "height": 30, "offset": {"convention": "world"},
            "lens": sn.lenses.PinholeLensCfg.from_intrinsic_matrix(K, 40, 30), **options,
        }
    )  # fmt: skip


def scene_of(
    *cfgs: Any,
    envs: int = 1,
    shapes: Any = THINGS,
    pos: Any = (-2.0, 0.1, 0.8),
    quat: Any = (1.0, 0.0, 0.0, 0.0),
    **options: Any,
) -> sn.Scene:
    engine = sn.TensorEngine(envs, 0.01, bodies=("body", "other"), shapes=shapes)
    engine.body_pos_w[:, 0] = torch.as_tensor(pos, dtype=torch.float32)
    engine.body_quat_w[:, 0] = torch.nn.functional.normalize(torch.as_tensor(quat, dtype=torch.float32), dim=-1)
    return sn.Scene(engine, list(cfgs), seed=1, **options)


def robot(*cfgs: Any, envs: int = 2, **options: Any) -> sn.Scene:
    return sn.Scene(sn.MujocoEngine(ROBOT, num_envs=envs), list(cfgs), **options)


# Fields ---------------------------------------------------------------------------------------------------------------


def test_a_depth_image_of_a_camera_of_the_model() -> None:
    """The crate's face is 1.6 m before a camera at x = 0.1, and the floor below the horizon is at h / tan(angle)."""
    cfg = sn.CameraCfg(name="cam", camera="head", width=64, height=64, data_types=("distance_to_image_plane",))
    data: Any = robot(cfg, envs=3)["cam"].data
    image = data.output["depth"]
    assert image.shape == (3, 64, 64, 1) and list(data.output) == ["distance_to_image_plane"]
    assert image is data.distance_to_image_plane
    np.testing.assert_allclose(numpy(image[:, 31:36, 31:33]), 1.6, rtol=1e-6)
    slope = (63.5 - 32.0) / (32.0 / math.tan(math.radians(30.0)))
    np.testing.assert_allclose(numpy(image[:, 63, 0]), 0.5 / slope, rtol=1e-5)
    assert (image[:, 0] == math.inf).all()


def test_data_shapes_are_those_of_one_camera() -> None:
    sensor: Any = scene_of(camera(data_types=ALL), envs=3)["camera"]
    data = sensor.data
    assert isinstance(sensor, sn.Camera) and isinstance(data, sn.CameraData)
    assert data.pos_w.shape == (3, 3) and data.intrinsic_matrices.shape == (3, 3, 3)
    assert data.quat_w_world.shape == data.quat_w_ros.shape == data.quat_w_opengl.shape == (3, 4)
    assert sensor.image_shape == data.image_shape == (30, 40)
    assert list(data.output) == list(ALL)
    channels = {"normals": 3, "points_b": 3, "segmentation": 2} | dict.fromkeys(SEGMENTATIONS, 4)
    dtypes = dict.fromkeys(SEGMENTATIONS, torch.uint8) | dict.fromkeys(
        ("geom_ids", "face_ids", "segmentation"), torch.int32
    )
    for name, image in data.output.items():
        assert image.shape == (3, 30, 40, channels.get(name, 1))
        assert image.dtype == dtypes.get(name, torch.float32)
    assert sensor.frame.tolist() == [1, 1, 1] and sensor.num_instances == 3


def test_ids_without_colors_are_int32_with_one_channel() -> None:
    data: Any = scene_of(camera(data_types=SEGMENTATIONS, **RAW))["camera"].data
    for image in data.output.values():
        assert image.shape == (1, 30, 40, 1) and image.dtype == torch.int32


def test_output_has_the_requested_names_in_their_order() -> None:
    """Both names of a data type are found; keys are as requested, and a missing type is named with those computed."""
    types = ("geom_ids", "depth", "instance_segmentation_fast", "distance_to_image_plane", "normals")
    data: Any = scene_of(camera(data_types=list(types)))["camera"].data
    assert tuple(data.output) == types == tuple(data.info[0])
    assert data.output["depth"] is data.output["distance_to_image_plane"] is data.distance_to_image_plane
    assert data.output["instance_segmentation"] is data.instance_segmentation
    assert data.distance_to_camera is data.points_b is data.face_ids is data.semantic_segmentation is None
    with pytest.raises(KeyError, match="distance_to_camera: the camera computes geom_ids, depth"):
        data.output["distance_to_camera"]


def test_each_data_type_is_equal_alone_and_combined() -> None:
    together: Any = scene_of(camera(data_types=ALL))["camera"].data
    for name in ALL:
        alone: Any = scene_of(camera(data_types=(name,)))["camera"].data
        assert torch.equal(getattr(alone, name), getattr(together, name))


def test_all_data_types_of_a_frame_agree_pixel_for_pixel() -> None:
    """A pixel is a hit in every data type or in none."""
    data: Any = scene_of(camera(data_types=ALL, **RAW))["camera"].data
    hit = data.geom_ids >= 0
    assert hit.any() and not hit.all()
    for name in ("distance_to_image_plane", "distance_to_camera"):
        assert torch.equal(data.output[name] < math.inf, hit)
    assert torch.equal(data.points_b.isfinite().all(dim=-1, keepdim=True), hit)
    assert torch.equal(data.normals.norm(dim=-1, keepdim=True) > 0.5, hit)
    for name in SEGMENTATIONS:
        assert torch.equal(data.output[name] > 0, hit)
    assert torch.equal(data.segmentation[..., :1], data.geom_ids)


# Images against the reference -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_images_match_a_brute_force_render(seed: int) -> None:
    """Distances, points, normals and ids of shapes of every kind equal a float64 render.

    Pixels whose ray passes a silhouette within 1e-5 of the scene's size are omitted: float32 may hit either side.
    """
    rng = np.random.default_rng(seed)
    shapes = random_shapes(rng, 24, extent=2.0) if seed else THINGS
    eye = torch.tensor([[*(2.5 * rng.normal(size=2)), 2.6]]) * (1.0 + seed)
    scene = scene_of(camera(data_types=HITS, body="world"), shapes=shapes)
    sensor: Any = scene["camera"]
    sensor.set_world_poses_from_view(eye, torch.tensor([[0.0, 0.0, 0.3]]))
    data = sensor.data
    expected, cosine = render(scene.engine.shapes(), numpy(data.pos_w[0]), numpy(data.quat_w_ros[0]), K, 30, 40)
    ids = data.geom_ids[0].reshape(-1).numpy()
    clear = ~expected.is_edge
    assert clear.mean() > 0.98 and len({*ids[clear]}) > 3
    assert (ids == expected.shape)[clear].all() and (data.face_ids.reshape(-1).numpy() == expected.face)[clear].all()
    hit = clear & (ids >= 0)
    assert (numpy(data.distance_to_camera).reshape(-1)[clear & (ids < 0)] == math.inf).all()
    hit &= expected.distance < 100.0  # beyond, a ray that grazes the floor loses digits
    r, z = (numpy(each).reshape(-1)[hit] for each in (data.distance_to_camera, data.distance_to_image_plane))
    np.testing.assert_allclose(r, expected.distance[hit], rtol=1e-5, atol=5e-5)
    np.testing.assert_allclose(z, (expected.distance * cosine)[hit], rtol=1e-5, atol=5e-5)
    np.testing.assert_allclose(numpy(data.normals).reshape(-1, 3)[hit], expected.normal[hit], rtol=1e-4, atol=2e-3)
    points = rays_of(K, 30, 40).reshape(-1, 3)[hit] * (expected.distance * cosine)[hit, None]
    np.testing.assert_allclose(numpy(data.points_b).reshape(-1, 3)[hit], points, rtol=1e-5, atol=2e-4)


def test_images_equal_those_of_cast_rays() -> None:
    """A `RayCasterCamera` of the same pose and lens sees the same, on a robot with moving parts."""
    pattern = sn.patterns.PinholeCameraPatternCfg(width=32, height=24, fovy=60)
    rays = sn.RayCasterCameraCfg(
        name="rays", camera="head", pattern=pattern, data_types=HITS, exclude_own_links=False, exclude_parent_body=False
    )
    scene = robot(sn.CameraCfg(name="camera", camera="head", data_types=HITS), rays)
    for _ in range(20):
        scene.step()
    mine, other = (scene[name].data.output for name in ("camera", "rays"))
    same = mine["geom_ids"] == other["geom_ids"]
    assert same.float().mean() > 0.99 and len(mine["geom_ids"].unique()) > 4
    for name in ("distance_to_camera", "distance_to_image_plane", "normals", "points_b"):
        torch.testing.assert_close(
            mine[name][same[..., 0]], other[name][same[..., 0]], rtol=1e-5, atol=1e-4, equal_nan=True
        )


def test_normals_of_a_sphere_in_parallel_lines_of_sight() -> None:
    """Each line of sight has its own start, here 0.1 m beside those of its neighbours."""
    lens, ball = (
        sn.lenses.OrthographicLensCfg(view_height=3.0),
        sn.engines.Shape("sphere", "ball", (1.0,), pos=(3.0, 0.2, 0.0)),
    )
    cfg = camera(lens=lens, data_types=("normals", "geom_ids"))
    data: Any = scene_of(cfg, shapes=[ball], pos=(0, 0, 0))["camera"].data
    row, column = np.mgrid[:30, :40] + 0.5
    y, z = 0.1 * (20.0 - column) - 0.2, 0.1 * (15.0 - row)
    inside = 1.0 - y * y - z * z
    hit = inside > 0.0
    assert np.array_equal(data.geom_ids[0, ..., 0].numpy() == 0, hit) and 300 < hit.sum() < 330
    expected = np.stack([-np.sqrt(np.maximum(inside, 0.0)), y, z], axis=-1)
    np.testing.assert_allclose(data.normals[0].numpy()[hit], expected[hit], atol=2e-3)


def test_normals_of_a_mesh_with_dropped_triangles_are_those_of_its_faces() -> None:
    """Face ids count the given triangles, also those without an area; the normal belongs to the right triangle."""
    corners = [[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1], [1, -1, 3]]
    mesh = sn.engines.Mesh(
        corners, [[0, 0, 1], [0, 2, 1], [1, 1, 2], [0, 3, 2], [2, 3, 4]], "wall", drop_degenerate=True
    )
    shapes = [sn.engines.Shape("mesh", "wall", mesh=mesh, pos=(3.0, 0.0, 0.0))]
    data: Any = scene_of(camera(data_types=("normals", "face_ids")), shapes=shapes, pos=(0, 0, 0))["camera"].data
    faces = data.face_ids[0, ..., 0]
    assert {*faces.unique().tolist()} == {-1, 1, 3, 4}
    tilted = torch.tensor([-2.0, 0.0, 1.0]) / math.sqrt(5.0)
    for face, normal in ((1, torch.tensor([-1.0, 0.0, 0.0])), (3, torch.tensor([-1.0, 0.0, 0.0])), (4, tilted)):
        found = data.normals[0][faces == face]
        torch.testing.assert_close(found.abs(), normal.abs().expand_as(found), atol=1e-6, rtol=0.0)
    assert (data.normals[0][faces < 0] == 0.0).all()


@pytest.mark.parametrize("envs", [1, 7, 11, 53])
def test_each_environment_images_only_itself(envs: int) -> None:
    """A ball at another place in each environment is at its own projection; no environment sees another one's ball."""
    ball = sn.engines.Shape("sphere", "ball", (0.05,), body="other")
    cfg = camera(data_types=("geom_ids", "distance_to_image_plane"))
    scene = scene_of(cfg, envs=envs, shapes=(ball,), pos=(0, 0, 0))
    rng = np.random.default_rng(envs)
    u, v, z = rng.integers(4, 36, envs), rng.integers(4, 26, envs), rng.uniform(1.0, 1.5, envs)
    at = z[:, None] * (np.linalg.inv(np.array(K)) @ np.stack([u + 0.5, v + 0.5, np.ones(envs)])).T
    scene.engine.body_pos_w[:, 1] = torch.from_numpy(np.stack([at[:, 2], -at[:, 0], -at[:, 1]], axis=1)).float()  # type: ignore[attr-defined]
    scene.update()
    data: Any = scene["camera"].data
    seen = data.geom_ids[..., 0] == 0
    for env in range(envs):
        rows, columns = seen[env].nonzero(as_tuple=True)
        assert abs(rows.float().mean() - v[env]) < 0.6 and abs(columns.float().mean() - u[env]) < 0.6
        depth = data.distance_to_image_plane[env, v[env], u[env], 0]
        r = z[env] * np.linalg.norm(at[env]) / z[env]
        assert abs(depth - z[env] * (r - 0.05) / r) < 1e-5


def test_a_camera_moved_between_steps_shows_it_in_the_next_frame() -> None:
    scene = scene_of(camera(), shapes=(GROUND,), pos=(0, 0, 2.0), quat=(0.7071068, 0, 0.7071068, 0))
    sensor: Any = scene["camera"]
    for height in (2.0, 3.0, 1.5):
        scene.engine.body_pos_w[:, 0, 2] = height  # type: ignore[attr-defined]
        scene.update()
        np.testing.assert_allclose(numpy(sensor.data.distance_to_image_plane), height, rtol=1e-6)


# Clipping -------------------------------------------------------------------------------------------------------------


def clipped(behaviour: str, **options: Any) -> Any:
    types = ("distance_to_image_plane", "distance_to_camera", "geom_ids")
    cfg = camera(data_types=types, clipping_range=(1.0, 6.0), depth_clipping_behavior=behaviour, **options)
    return scene_of(cfg, shapes=(GROUND,), pos=(0, 0, 1.0))["camera"]


def test_surfaces_outside_the_clipping_range_are_cut_away() -> None:
    """The floor is seen between 1 m and 6 m of depth only, and what lies behind a cut surface is seen through it."""
    data = clipped("none").data
    slope = (np.arange(30) + 0.5 - 18.0) / 35.0
    depth = np.where(slope > 0, 1.0 / np.maximum(slope, 1e-9), np.inf)
    inside = (depth > 1.0) & (depth < 6.0)
    assert 3 < inside.sum() < 15
    seen = numpy(data.distance_to_image_plane)[0, :, :, 0]
    np.testing.assert_allclose(seen[inside], np.broadcast_to(depth[inside, None], (inside.sum(), 40)), rtol=1e-5)
    assert (seen[~inside] == math.inf).all()
    assert (data.geom_ids[0, ..., 0].numpy() == np.where(inside, 0, -1)[:, None]).all()
    near = sn.engines.Shape("box", "near", (0.1, 9.0, 9.0), pos=(0.4, 0.0, 0.0))
    wall = sn.engines.Shape("box", "wall", (0.1, 9.0, 9.0), pos=(3.0, 0.0, 0.0))
    cut: Any = scene_of(camera(clipping_range=(1.0, 6.0)), shapes=(near, wall), pos=(0, 0, 0))["camera"].data
    np.testing.assert_allclose(numpy(cut.distance_to_image_plane), 2.9, rtol=1e-6)


def test_clipping_sets_only_misses_and_distances_beyond_the_range() -> None:
    plain, zero, most = (clipped(word).data for word in ("none", "zero", "max"))
    for name in ("distance_to_image_plane", "distance_to_camera"):
        given = getattr(plain, name)
        miss = given == math.inf
        assert (given[~miss] <= 6.0).all() and miss.any() and (~miss).any()
        assert torch.equal(getattr(zero, name), torch.where(miss, 0.0, given))
        assert torch.equal(getattr(most, name), torch.where(miss, 6.0, given))
    assert torch.equal(plain.geom_ids, most.geom_ids)
    corner = (plain.distance_to_camera == math.inf) & (plain.distance_to_image_plane < 6.0)
    assert corner.any()  # each type by its own distance


def test_clipping_follows_the_noise_in_both_branches() -> None:
    """Misses stay misses, measured depths differ from true ones, and no value exceeds the range."""
    sensor = clipped("max", noise=0.05)
    true, measured = sensor.ground_truth, sensor.data
    for name in ("distance_to_image_plane", "distance_to_camera"):
        a, b = getattr(true, name), getattr(measured, name)
        assert float(a.max()) == float(b.max()) == 6.0
        assert torch.equal(b[a == 6.0], torch.full_like(b[a == 6.0], 6.0)) or name == "distance_to_image_plane"
        between = (a < 5.8) & (b < 5.8)
        assert 0.03 < float((a - b)[between].std()) < 0.08
    slope = measured.distance_to_camera / measured.distance_to_image_plane
    lengths = np.linalg.norm(rays_of(K, 30, 40), axis=-1)
    inside = (measured.distance_to_camera < 6.0)[0, ..., 0].numpy()
    np.testing.assert_allclose(slope[0, ..., 0].numpy()[inside], lengths[inside], rtol=1e-5)


def test_noise_without_clipping_moves_no_miss_and_all_types_follow() -> None:
    cfg = camera(data_types=HITS, noise=0.05)
    sensor: Any = scene_of(cfg)["camera"]
    true, measured = sensor.ground_truth, sensor.data
    z = measured.distance_to_image_plane
    assert torch.equal(z == math.inf, true.distance_to_image_plane == math.inf)
    assert not torch.equal(z, true.distance_to_image_plane)
    hit = z[..., 0] < math.inf
    torch.testing.assert_close(measured.points_b[hit][:, 2], z[..., 0][hit])
    assert torch.equal(measured.geom_ids, true.geom_ids) and torch.equal(measured.normals, true.normals)


# Pose and lens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", SAME_CAMERA)
def test_an_offset_in_any_convention_is_the_same_camera(convention: str) -> None:
    cfg = camera(body="world", offset={"pos": POSITION, "rot": SAME_CAMERA[convention], "convention": convention})
    data: Any = scene_of(cfg)["camera"].data
    torch.testing.assert_close(data.pos_w[0], torch.tensor(POSITION))
    for name, field in (("world", data.quat_w_world), ("ros", data.quat_w_ros), ("opengl", data.quat_w_opengl)):
        torch.testing.assert_close(field[0], torch.tensor(SAME_CAMERA[name]), rtol=1e-5, atol=1e-6)


def test_a_camera_sits_at_a_view_or_a_matrix() -> None:
    """`from_view` looks at a point with an up direction; `from_matrix` takes a pose of the OpenGL convention."""
    offset = sn.CameraCfg.OffsetCfg
    view = offset.from_view(POSITION, (0.0, 0.0, 0.0))
    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_quat(SAME_CAMERA["opengl"], scalar_first=True).as_matrix()
    pose[:3, 3] = POSITION
    for cfg in (camera(body="world", offset=view), camera(body="world", offset=offset.from_matrix(pose))):
        data: Any = scene_of(cfg)["camera"].data
        torch.testing.assert_close(data.pos_w[0], torch.tensor(POSITION))
        torch.testing.assert_close(data.quat_w_world[0], torch.tensor(SAME_CAMERA["world"]), rtol=1e-5, atol=1e-6)
        assert sn.CameraCfg.from_toml(cfg.to_toml()) == cfg
    tilted = offset.from_view((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), up=(0.0, 1.0, 0.0))
    turn = Rotation.from_quat(tilted.rot, scalar_first=True)
    np.testing.assert_allclose(turn.apply([[1, 0, 0], [0, 0, 1]]), [[1, 0, 0], [0, 1, 0]], atol=1e-7)
    down = offset.from_view((0.0, 0.0, 3.0), (0.0, 0.0, 0.0), up=(0.0, 0.0, -2.0))
    np.testing.assert_allclose(
        Rotation.from_quat(down.rot, scalar_first=True).apply([[1, 0, 0], [0, 0, 1]]),
        [[0, 0, -1], [1, 0, 0]],
        atol=1e-7,
    )
    along = offset.from_view((0.0, 0.0, 0.0), (0.0, 1.0, 0.0), up=(0.0, 1.0, 0.0))
    np.testing.assert_allclose(Rotation.from_quat(along.rot, scalar_first=True).apply([1, 0, 0]), [0, 1, 0], atol=1e-7)
    with pytest.raises(sn.ConfigError, match=r"matrix.*rotation and a position"):
        offset.from_matrix(2.0 * np.eye(4))
    with pytest.raises(sn.ConfigError, match="two different finite points"):
        offset.from_view(POSITION, POSITION)


def test_a_camera_of_the_model_defines_what_the_config_omits() -> None:
    whole, small = sn.CameraCfg(name="a", camera="head"), sn.CameraCfg(name="b", camera="head", width=16, height=16)
    lens = sn.CameraCfg(name="c", camera="head", lens=sn.lenses.PinholeLensCfg(fovy=90.0))
    shifted = sn.CameraCfg(name="d", camera="head", lens=sn.lenses.PinholeLensCfg(horizontal_aperture_offset=0.5))
    scene: Any = robot(whole, small, lens, shifted)
    shapes = {name: scene[name].image_shape for name in "abcd"}
    assert shapes == {"a": (24, 32), "b": (16, 16), "c": (24, 32), "d": (24, 32)}
    focal = {"a": 12.0 / math.tan(math.pi / 6), "b": 8.0 / math.tan(math.pi / 6), "c": 12.0, "d": 12.0 * math.sqrt(3)}
    for name, fx in focal.items():
        k = scene[name].data.intrinsic_matrices[0]
        assert float(k[0, 0]) == pytest.approx(fx, rel=1e-6) and float(k[1, 1]) == pytest.approx(fx, rel=1e-6)
    assert float(scene["d"].intrinsic_matrices[0, 0, 2]) == pytest.approx(16.0 + 0.5 * focal["d"], rel=1e-6)
    plain: Any = scene_of(camera(lens=None))["camera"]
    assert float(plain.intrinsic_matrices[0, 0, 0]) == pytest.approx(40 * 24.0 / 20.955, rel=1e-6)


def test_a_fisheye_lens_maps_angles_to_radii() -> None:
    """An equidistant lens of 220 degrees equals a float64 render along its directions; beyond its circle is nothing."""
    lens = sn.lenses.FThetaLensCfg(nominal_size=(80, 60), centre=(42, 28), coefficients=(0.05,), max_fov_deg=220.0)
    scene = scene_of(camera(lens=lens, data_types=ALL, **RAW), quat=(0.9, 0.1, 0.3, 0.2))
    sensor: Any = scene["camera"]
    data = sensor.data
    v, u = np.meshgrid(2.0 * (np.arange(30) + 0.5) - 28.0, 2.0 * (np.arange(40) + 0.5) - 42.0, indexing="ij")
    angle, turn = 0.05 * np.hypot(u, v), np.arctan2(v, u)
    optical = np.stack([np.sin(angle) * np.cos(turn), np.sin(angle) * np.sin(turn), np.cos(angle)], axis=-1)
    pose = Rotation.from_quat(numpy(data.quat_w_ros[0]), scalar_first=True)
    expected = reference_cast(scene.engine.shapes(), numpy(data.pos_w[0]), pose.apply(optical.reshape(-1, 3)))
    lit = (angle <= np.radians(110.0)).reshape(-1)
    assert 0.2 < lit.mean() < 0.9
    ids, ranges = data.geom_ids.reshape(-1).numpy(), numpy(data.distance_to_camera).reshape(-1)
    assert (ids[~lit] == -1).all() and (ranges[~lit] == math.inf).all()
    assert (data.semantic_segmentation.reshape(-1)[torch.from_numpy(~lit)] == 0).all()
    clear = lit & ~expected.is_edge
    assert (ids == expected.shape)[clear].all() and len({*ids[clear]}) > 3
    hit = clear & (ids >= 0) & (expected.distance < 100.0)
    np.testing.assert_allclose(ranges[hit], expected.distance[hit], rtol=1e-4)
    depth = numpy(data.distance_to_image_plane).reshape(-1)[hit]
    np.testing.assert_allclose(depth, (expected.distance * optical[..., 2].reshape(-1))[hit], rtol=1e-4, atol=1e-4)
    points = (expected.distance[:, None] * optical.reshape(-1, 3))[hit]
    np.testing.assert_allclose(numpy(data.points_b).reshape(-1, 3)[hit], points, rtol=1e-4, atol=1e-3)
    k = data.intrinsic_matrices[0]
    torch.testing.assert_close(k, torch.tensor([[10.0, 0.0, 21.0], [0.0, 10.0, 14.0], [0.0, 0.0, 1.0]]))
    with pytest.raises(sn.ConfigError, match=r"stages\.0.*no depth error"):
        scene_of(
            camera(
                lens=lens, stages=(sn.stages.StereoDepth(focal_px=10.0, principal_point=(21.0, 14.0), baseline=0.05),)
            )
        )


def test_setters_move_cameras_and_change_lenses_of_the_given_envs() -> None:
    """Poses and matrices are read back in every convention, images follow, and other envs keep theirs."""
    scene = scene_of(camera(), envs=3, shapes=(GROUND,), pos=(0, 0, 2.0))
    sensor: Any = scene["camera"]
    before = sensor.read()
    eyes = torch.tensor([[0.0, 0.0, 5.0], [1.0, 0.0, 7.0]])
    sensor.set_world_poses_from_view(eyes, eyes * torch.tensor([1.0, 1.0, 0.0]), env_ids=[0, 2])
    data = sensor.read()
    np.testing.assert_allclose(numpy(data.distance_to_image_plane[[0, 2], 0, 0, 0]), [5.0, 7.0], rtol=1e-6)
    assert torch.equal(data.distance_to_image_plane[1], before.distance_to_image_plane[1])
    for convention, quat in SAME_CAMERA.items():
        sensor.set_world_poses(torch.tensor(POSITION), torch.tensor(quat), convention=convention)
        torch.testing.assert_close(sensor.data.pos_w, torch.tensor([POSITION] * 3))
        torch.testing.assert_close(sensor.data.quat_w_world, torch.tensor([SAME_CAMERA["world"]] * 3))
    sensor.set_world_poses(torch.tensor([0.0, 0.0, 4.0]))
    torch.testing.assert_close(sensor.data.quat_w_world, torch.tensor([SAME_CAMERA["world"]] * 3))
    other = torch.tensor([[80.0, 0.0, 3.0], [0.0, 70.0, 27.0], [0.0, 0.0, 1.0]])
    sensor.set_intrinsic_matrices(other, env_ids=[1])
    data = sensor.data
    torch.testing.assert_close(data.intrinsic_matrices, torch.stack([torch.tensor(K), other, torch.tensor(K)]))
    turn = Rotation.from_quat(numpy(data.quat_w_ros[0]), scalar_first=True)
    for env, k in enumerate((K, other.numpy(), K)):
        ray = turn.apply(rays_of(k, 30, 40)[29, 39])
        assert float(data.distance_to_image_plane[env, 29, 39, 0]) == pytest.approx(-4.0 / ray[2], rel=1e-5)


MODES = get_args(sn.SensorCfg.model_fields["evaluate"].annotation)


@pytest.mark.parametrize("debug", [False, True])
def test_setters_act_at_once_in_every_evaluation_mode(debug: bool) -> None:
    """A camera without memory that looks down shows its new height and lens at the same tick, with the same noise.

    A sample of an earlier tick is held, and the change is in the next one. A reset samples its envs at its tick.
    """
    lens = {"width": 4, "height": 3, "lens": sn.lenses.PinholeLensCfg(fovy=60.0), "offset": {"convention": "world"}}
    rays = {"offset": lens["offset"], "pattern": sn.patterns.PinholeCameraPatternCfg(width=4, height=3)}
    each: list[Any] = [camera(name=f"camera {mode}", evaluate=mode, **lens) for mode in MODES]
    each += [sn.RayCasterCameraCfg(name=f"rays {mode}", body="body", evaluate=mode, **rays) for mode in MODES]
    each += [camera(name=f"noisy {mode}", evaluate=mode, noise=0.1, **lens) for mode in ("auto", "always")]
    each += [camera(name=f"slow {mode}", evaluate=mode, update_period=0.04, **lens) for mode in MODES]
    scene = scene_of(*each, shapes=(GROUND,), pos=(0, 0, 2.0), quat=(0.7071068, 0, 0.7071068, 0), envs=2, debug=debug)
    sensors: list[Any] = [scene[cfg] for cfg in each]

    def look(height: float, expected: float, slow: float) -> None:
        """Move env 1, and compare all depths there with `expected`, those of the slow cameras with `slow`."""
        errors = [sensor.data.distance_to_image_plane - sensor.ground_truth.distance_to_image_plane
                  for sensor in sensors]  # fmt: skip
        for sensor, error in zip(sensors, errors, strict=True):
            noise = error.clone()
            sensor.set_world_poses(torch.tensor([[0.0, 0.0, height]]), env_ids=[1])
            wanted = (
                torch.tensor([2.0, slow if "slow" in sensor.name else expected]).view(2, 1, 1, 1).expand(2, 3, 4, 1)
            )
            truth = sensor.ground_truth.distance_to_image_plane
            torch.testing.assert_close(truth, wanted, msg=lambda text, name=sensor.name: f"{name}: {text}")
            torch.testing.assert_close(sensor.data.distance_to_image_plane - truth, noise, atol=2e-6, rtol=0.0)
            assert float(sensor.data.pos_w[1, 2]) == pytest.approx(float(wanted[1, 0, 0]))

    look(3.0, 3.0, 3.0)  # the first sample
    scene.update()
    look(5.0, 5.0, 3.0)  # a sample of this tick, and an earlier one
    frames = [sensor.frame.tolist() for sensor in sensors]
    for sensor in sensors:
        sensor.set_intrinsic_matrices(torch.tensor([[9.0, 0.0, 1.0], [0.0, 9.0, 1.0], [0.0, 0.0, 1.0]]))
        held = "slow" in sensor.name
        assert (float(sensor.data.intrinsic_matrices[1, 0, 0]) == 9.0) is not held, sensor.name
    assert [sensor.frame.tolist() for sensor in sensors] == frames
    scene.reset([1])
    look(4.0, 4.0, 4.0)
    for _ in range(4):
        scene.update()
    look(4.0, 4.0, 4.0)
    assert all(float(sensor.data.intrinsic_matrices[1, 0, 0]) == 9.0 for sensor in sensors)


def test_a_retired_camera_refuses_its_setters() -> None:
    scene = scene_of(camera())
    sensor: Any = scene["camera"]
    scene.remove("camera")
    for call, arguments in (
        (sensor.set_world_poses, (torch.zeros(3),)),
        (sensor.set_world_poses_from_view, (torch.zeros(3), torch.ones(3))),
        (sensor.set_intrinsic_matrices, (torch.tensor(K),)),
    ):
        with pytest.raises(sn.StaleError, match="was removed"):
            call(*arguments)
        with pytest.raises(RuntimeError):
            call(*arguments)


def test_the_reported_pose_can_stay_that_of_the_start() -> None:
    """The image follows the camera; the pose is that of the last reset, per environment."""
    both = [camera(name=name, reported_pose=name) for name in ("frame", "start")]
    scene = scene_of(*both, envs=2, shapes=(GROUND,), pos=(0, 0, 2.0), quat=(0.7071068, 0, 0.7071068, 0))
    frame, start = (scene[name] for name in ("frame", "start"))
    scene.engine.body_pos_w[:, 0, 2] = 3.0  # type: ignore[attr-defined]
    scene.update()
    assert start.data.pos_w[:, 2].tolist() == [2.0, 2.0] and frame.data.pos_w[:, 2].tolist() == [3.0, 3.0]
    assert torch.equal(start.data.distance_to_image_plane, frame.data.distance_to_image_plane)
    scene.reset([1])
    assert start.data.pos_w[:, 2].tolist() == [2.0, 3.0]
    torch.testing.assert_close(start.data.quat_w_world, frame.data.quat_w_world)
    scene.engine.body_pos_w[:, 0, 2] = 4.0  # type: ignore[attr-defined]
    scene.update()
    assert start.data.pos_w[:, 2].tolist() == [2.0, 3.0] and start.is_lazy
    start.set_world_poses(torch.tensor([[1.0, 2.0, 5.0]]), env_ids=[0])  # a pose that is set is reported
    torch.testing.assert_close(start.data.pos_w, torch.tensor([[1.0, 2.0, 5.0], [0.0, 0.0, 3.0]]))


def test_plural_mounts_have_their_own_axis() -> None:
    cfg = sn.CameraCfg(name="c", bodies=["ball_a", "ball_b"], width=8, height=6, data_types=("depth", "geom_ids"))
    data: Any = robot(cfg)["c"].data
    assert data.pos_w.shape == (2, 2, 3) and data.output["depth"].shape == (2, 2, 6, 8, 1)
    assert len(data.info) == 4
    torch.testing.assert_close(data.pos_w[0], torch.tensor([[1.0, 0.5, 0.2], [1.0, -0.5, 0.2]]))


def test_delay_shows_an_older_frame_with_its_own_pose() -> None:
    scene = scene_of(camera(delay=0.02, history_length=3), shapes=(GROUND,), quat=(0.7071068, 0, 0.7071068, 0))
    sensor: Any = scene["camera"]
    for tick in range(1, 6):
        scene.engine.body_pos_w[:, 0, 2] = 1.0 + tick  # type: ignore[attr-defined]
        scene.update()
    data = sensor.data
    assert float(data.pos_w[0, 2]) == 4.0
    np.testing.assert_allclose(numpy(data.distance_to_image_plane), 4.0, rtol=1e-6)
    np.testing.assert_allclose(numpy(sensor.history.distance_to_image_plane[0, :, 0, 0, 0]), [6.0, 5.0, 4.0], rtol=1e-6)
    assert sensor.history.pos_w[0, :, 2].tolist() == [6.0, 5.0, 4.0]


def test_frames_are_stacked_as_channels_oldest_first() -> None:
    """The first frame fills the stack, each env after its own reset; channels of a frame stay together."""
    cfg = camera(history_length=3, data_types=("depth", "segmentation"))
    scene = scene_of(cfg, envs=2, shapes=(GROUND,), quat=(0.7071068, 0, 0.7071068, 0))
    sensor: Any = scene["camera"]
    for height in (1.0, 2.0, 3.0, 4.0):
        scene.engine.body_pos_w[:, 0, 2] = height  # type: ignore[attr-defined]
        scene.update()
    stack = sensor.frame_stack()
    assert list(stack) == ["depth", "segmentation"] and stack["depth"].shape == (2, 30, 40, 3)
    np.testing.assert_allclose(numpy(stack["depth"][:, 3, 5]), [[2.0, 3.0, 4.0]] * 2, rtol=1e-6)
    assert stack["segmentation"][0, 3, 5].tolist() == [0, 5] * 3
    scene.reset([1])
    scene.engine.body_pos_w[:, 0, 2] = 5.0  # type: ignore[attr-defined]
    scene.update()
    found = numpy(sensor.frame_stack()["depth"][:, 3, 5])
    np.testing.assert_allclose(found, [[3.0, 4.0, 5.0], [4.0, 4.0, 5.0]], rtol=1e-6)
    with pytest.raises(sn.ConfigError, match="history_length"):
        scene_of(camera())["camera"].frame_stack()  # type: ignore[attr-defined]


def test_which_shapes_a_camera_sees() -> None:
    """By default it sees its own robot; options exclude it, or select shapes by name."""
    types = {"data_types": ("geom_ids",), "camera": "head"}
    names: Any = {}
    cfgs = {
        "all": {}, "others": {"exclude_own_links": True, "exclude_parent_body": True}, "crate": {"targets": "crate"},
        "labelled": {"labels": "floor"},
    }  # fmt: skip
    sensors = (sn.CameraCfg(name=name, **types, **each) for name, each in cfgs.items())
    scene = robot(*sensors, semantics={"floor": "floor"})
    for name in cfgs:
        sensor: Any = scene[name]
        names[name] = {sensor.geom_names[i] for i in sensor.data.geom_ids.unique().tolist() if i >= 0}
    assert {"floor", "crate", "hand", "a", "b"} <= names["all"] and "hand" not in names["others"]
    assert names["crate"] == {"crate"} and names["labelled"] == {"floor"} and "crate" in names["others"]


# The contract, and bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"data_types": ALL}, marks=pytest.mark.full),
        {"data_types": ALL, "noise": 0.02, "depth_clipping_behavior": "max", "clipping_range": (0.1, 9.0)},
        pytest.param(
            {"data_types": ("distance_to_camera",), "resolution": 0.01, "reported_pose": "start"},
            marks=pytest.mark.full,
        ),
        {"data_types": ("depth", "semantic_segmentation"), "update_period": 0.1, **RAW},
    ],
)
def test_contract_holds(options: Any) -> None:
    def engine(envs: int) -> sn.TensorEngine:
        def motion(t: float) -> dict[str, torch.Tensor]:
            late = t + 0.3 * torch.arange(envs)[:, None, None]
            still = torch.zeros_like(late)
            pos = torch.cat([late.sin(), late.cos(), 1.5 + 0.2 * late.sin()], dim=-1)
            return {"body_pos_w": pos, "body_quat_w": torch.cat([late.cos(), still, still, late.sin()], dim=-1)}

        return sn.TensorEngine(envs, 0.05, sites={"site": "body"}, shapes=THINGS, provides=("pose",), motion=motion)

    rules = check_sensor(camera(width=6, height=4, lens=None, **options), engine=engine, steps=6)
    assert {"resuming_is_exact", "config_round_trip"} <= {*rules}
    assert ("lazy_equals_eager" in rules) == ("update_period" not in options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"data_types": ("dpth",)}, r"data_types: got \('dpth',\).*distance_to_camera.*Did you mean 'depth'\?"),
        ({"data_types": ()}, "data_types.*at least one"),
        ({"data_types": ("depth", "depth")}, "data_types.*each once"),
        ({"width": 0}, "width: got 0, expected at least 1 pixel"),
        ({"height": -3}, "height: got -3"),
        ({"width": None}, "width, height.*both or neither"),
        ({"width": None, "height": None}, "width, height: got nothing"),
        ({"clipping_range": (5.0, 5.0)}, r"clipping_range: got \(5.0, 5.0\).*near < far"),
        ({"clipping_range": (0.0, 5.0)}, "clipping_range.*0 < near"),
        ({"clipping_range": (0.1, math.inf)}, "clipping_range.*finite"),
        ({"depth_clipping_behavior": "min"}, "depth_clipping_behavior"),
        ({"lens": {"fovy": 180.0}}, r"fovy.*between 0 and 180"),
        ({"lens": {**FISHEYE, "coefficients": (0.0, 0.1)}}, "coefficients.*the first above 0"),
        ({"lens": {**FISHEYE, "max_fov_deg": 400.0}}, "max_fov_deg.*up to 360"),
        ({"lens": {"kind": "fisheye"}}, "lens.*kind: got 'fisheye', expected one of pinhole, brown_conrady"),
        ({"lens": {"fovy": 60.0, "focal_length": 3.0}}, "fovy.*either fovy or focal_length"),
        ({"lens": {"focal_length": 0.0}}, r"focal_length"),
        ({"data_types": ("normals",), "noise": 0.1}, "noise: got 0.1, expected no such option while no distance"),
        ({"semantic_filter": "robot"}, "semantic_filter.*'type: label"),
        ({"semantic_filter": "class: a & | b"}, "semantic_filter.*the label ''"),
        ({"semantic_filter": []}, "semantic_filter.*at least one type"),
        ({"reported_pose": "now"}, "reported_pose"),
        ({"offset": {"rot": (2.0, 0.0, 0.0, 0.0)}}, "offset.rot.*unit quaternion"),
    ],
)
def test_bad_config_error_names_the_field(options: Any, says: str) -> None:
    with pytest.raises(sn.ConfigError, match=f"(?s){says}"):
        camera(**options)


@pytest.mark.parametrize("types", [("rgb",), ("semantic_segmentation",), ("normals",)])
def test_the_clock_of_a_camera_may_be_wrong_whatever_it_sees(types: tuple[str, ...]) -> None:
    scene = scene_of(camera(data_types=types, stages=(sn.stages.ClockError(offset=0.004),)))
    scene.update()
    assert (scene["camera"].stamp - scene["camera"].capture_time).numpy() == pytest.approx(0.004)


def test_what_does_not_fit_the_scene_is_named_when_it_is_built() -> None:
    with pytest.raises(sn.ConfigError, match=r"camera.*got 'hed'.*Did you mean 'head'\?"):
        robot(sn.CameraCfg(camera="hed", width=4, height=4))
    with pytest.raises(sn.ConfigError, match=r"width.*at most 100000000 pixels, not 100000 x 80000, 32000 MB"):
        camera(width=100_000, height=80_000)
    with pytest.raises(sn.ConfigError, match=r"height.*needs.*MB"):
        scene_of(camera(width=9000, height=10_000, data_types=ALL), envs=1000)
    with pytest.raises(sn.ConfigError, match=r"matrices\[0\].*non-singular"):
        scene_of(camera())["camera"].set_intrinsic_matrices(torch.zeros(3, 3))  # type: ignore[attr-defined]
    with pytest.raises(sn.ConfigError, match=r"matrices\[0\].*0 below its diagonal"):
        k = torch.tensor([[40.0, 0.0, 17.0], [3.0, 35.0, 18.0], [0.0, 0.0, 1.0]])
        scene_of(camera())["camera"].set_intrinsic_matrices(k)  # type: ignore[attr-defined]
    with pytest.raises(sn.ConfigError, match=r"not finite|finite numbers"):
        sn.lenses.PinholeLensCfg.from_intrinsic_matrix(np.full((3, 3), np.nan), 4, 4)
    for given, says in (("class: rbot", "Did you mean 'robot'"), ("kind: *", "a type of labels")):
        with pytest.raises(sn.SelectionError, match=f"semantic_filter.*{says}"):
            cfg = camera(data_types=("semantic_segmentation",), semantic_filter=given)
            scene_of(cfg, semantics={"robot": "box"})
