"""The ray-casting camera, checked against a brute-force render in float64 and closed forms."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from camera_scenes import GROUND, OPTICAL, POSITION, SAME_CAMERA, THINGS, numpy, rays_of, render
from scipy.spatial.transform import Rotation
from synthetic import same, snapshot

import sensorium as sn
from sensorium.cameras.camera_base_cfg import CameraOffsetCfg
from sensorium.cameras.ray_caster_camera_cfg import UNSUPPORTED
from sensorium.testing import check_sensor

SMALL = sn.patterns.PinholeCameraPatternCfg(width=40, height=30, horizontal_aperture=40.0)
CLIPPED = [[380.08 / 4, 0.0, 467.79 / 4], [0.0, 380.08 / 4, 262.05 / 4], [0.0, 0.0, 1.0]]
ALL = ("distance_to_image_plane", "distance_to_camera", "normals", "points_b", "geom_ids", "face_ids")


def camera(**options: Any) -> sn.RayCasterCameraCfg:
    """Return a camera on the body that looks along the body's x axis."""
    return sn.RayCasterCameraCfg(
        **{"name": "camera", "body": "body", "pattern": SMALL, "offset": {"convention": "world"}, **options}
    )


def scene_of(
    *cfgs: Any, envs: int = 1, shapes: Any = (GROUND,), pos: Any = (0.0, 0.0, 2.0), quat: Any = (1.0, 0.0, 0.0, 0.0)
) -> sn.Scene:
    engine = sn.TensorEngine(envs, 0.01, bodies=("body", "other"), sites={"s": ("body", (0.1, 0, 0))}, shapes=shapes)
    engine.body_pos_w[:, 0] = torch.as_tensor(pos, dtype=torch.float32)
    engine.body_quat_w[:, 0] = torch.nn.functional.normalize(torch.as_tensor(quat, dtype=torch.float32), dim=-1)
    return sn.Scene(engine, list(cfgs), seed=1)


# Fields ---------------------------------------------------------------------------------------------------------------


def test_data_shapes_are_those_of_one_camera() -> None:
    """With one camera per env: poses [env, 3 and 4], K [env, 3, 3], images [env, height, width, channels], info of
    None.
    """
    sensor = scene_of(camera(data_types=ALL), envs=3)["camera"]
    data: Any = sensor.data
    assert isinstance(sensor, sn.RayCasterCamera) and isinstance(sensor, sn.RayCaster)
    assert data.pos_w.shape == (3, 3) and data.intrinsic_matrices.shape == (3, 3, 3)
    assert data.quat_w_world.shape == data.quat_w_ros.shape == data.quat_w_opengl.shape == (3, 4)
    assert sensor.image_shape == data.image_shape == (30, 40)
    assert list(data.output) == list(ALL)
    for name, image in data.output.items():
        assert image.shape == (3, 30, 40, 3 if name in ("normals", "points_b") else 1)
        assert image.dtype == (torch.int32 if name.endswith("ids") else torch.float32)
    assert data.info == [dict.fromkeys(ALL)] * 3
    assert sensor.frame.tolist() == [1, 1, 1] and sensor.num_instances == 3


def test_unrequested_data_types_are_absent() -> None:
    """By default only the distance to the image plane is available; other types are None and not in `output`."""
    sensor = scene_of(sn.RayCasterCameraCfg(body="body", pattern=SMALL))["ray_caster_camera"]
    data: Any = sensor.data
    assert list(data.output) == ["distance_to_image_plane"]
    assert data.distance_to_camera is data.normals is data.points_b is data.geom_ids is data.face_ids is None
    assert [spec.name for spec in sensor.specs] == [
        "pos_w", "quat_w_world", "intrinsic_matrices", "distance_to_image_plane",
    ]  # fmt: skip


def test_output_keeps_the_requested_order() -> None:
    types = ("geom_ids", "normals", "distance_to_image_plane")
    data: Any = scene_of(camera(data_types=list(types)))["camera"].data
    assert tuple(data.output) == types
    assert data.output["distance_to_image_plane"] is data.distance_to_image_plane


def test_each_data_type_is_equal_alone_and_combined() -> None:
    together: Any = scene_of(camera(data_types=ALL), shapes=THINGS, pos=(-2.0, 0.1, 0.8))["camera"].data
    for name in ALL:
        if name != "points_b":
            alone: Any = scene_of(camera(data_types=(name,)), shapes=THINGS, pos=(-2.0, 0.1, 0.8))["camera"].data
            assert torch.equal(getattr(alone, name), getattr(together, name))
    points = camera(data_types=("distance_to_camera", "points_b"))
    data: Any = scene_of(points, shapes=THINGS, pos=(-2.0, 0.1, 0.8))["camera"].data
    assert torch.equal(data.points_b, together.points_b)


# Images against the reference -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_images_match_a_brute_force_render(seed: int) -> None:
    """Distances, points, normals and ids of analytic shapes equal a float64 render through an off-centre lens.

    Pixels whose ray passes a silhouette within 1e-5 of the scene's size are omitted: float32 may hit either side.
    """
    rng = np.random.default_rng(seed)
    k = np.array([[35.0 + 9 * rng.random(), 0, 25.0], [0, 30.0, 11.0], [0, 0, 1.0]])
    eye = torch.tensor([[*(2.0 * rng.normal(size=2)), 1.6]])
    cfg = camera(
        data_types=ALL, pattern=sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(k, 40, 30), body="world"
    )
    scene = scene_of(cfg, shapes=THINGS)
    sensor: Any = scene["camera"]
    sensor.set_world_poses_from_view(eye, torch.tensor([[0.0, 0.0, 0.3]]))
    data = sensor.data
    expected, cosine = render(THINGS, numpy(data.pos_w[0]), numpy(data.quat_w_ros[0]), k, 30, 40)
    ids = data.geom_ids[0].reshape(-1).numpy()
    clear = ~expected.is_edge
    assert clear.mean() > 0.99 and set(ids[clear]) >= {0, 1}
    assert (ids == expected.shape)[clear].all()
    hit = clear & (ids >= 0)
    assert (numpy(data.distance_to_camera).reshape(-1)[clear & (ids < 0)] == math.inf).all()
    r, z = (numpy(each).reshape(-1)[hit] for each in (data.distance_to_camera, data.distance_to_image_plane))
    np.testing.assert_allclose(r, expected.distance[hit], rtol=5e-6, atol=5e-5)
    np.testing.assert_allclose(z, (expected.distance * cosine)[hit], rtol=5e-6, atol=5e-5)
    np.testing.assert_allclose(numpy(data.normals).reshape(-1, 3)[hit], expected.normal[hit], rtol=1e-5, atol=1e-4)
    points = rays_of(k, 30, 40).reshape(-1, 3)[hit] * (expected.distance * cosine)[hit, None]
    np.testing.assert_allclose(numpy(data.points_b).reshape(-1, 3)[hit], points, rtol=1e-5, atol=2e-4)


def test_a_floor_seen_from_above_is_a_flat_image() -> None:
    """Looking straight down from 5 m, every z-depth is 5, and a pixel's ray is longer by its cosine."""
    sensor: Any = scene_of(camera(data_types=("distance_to_image_plane", "distance_to_camera")))["camera"]
    sensor.set_world_poses_from_view(torch.tensor([[0.3, 0.1, 5.0]]), torch.tensor([[0.3, 0.1, 0.0]]))
    np.testing.assert_allclose(numpy(sensor.data.distance_to_image_plane), 5.0, rtol=1e-6)
    length = np.linalg.norm(rays_of(SMALL.intrinsic_matrix, 30, 40), axis=-1)
    np.testing.assert_allclose(numpy(sensor.data.distance_to_camera)[0, :, :, 0], 5.0 * length, rtol=1e-6)


@pytest.mark.parametrize(("focal", "aperture"), [(24.0, 20.955), (1.93, 3.6), (0.193, 20.955), (19.3, 20.955)])
def test_lens_maps_a_floor_by_its_angles(focal: float, aperture: float) -> None:
    """From 5 m up the image's edges see the floor at 5 aperture / (2 focal): the points have the lens's scale."""
    pattern = sn.patterns.PinholeCameraPatternCfg(width=32, height=24, focal_length=focal, horizontal_aperture=aperture)
    sensor: Any = scene_of(
        camera(pattern=pattern, data_types=("distance_to_image_plane", "points_b")),
        shapes=(sn.engines.Shape("plane", "p"),),
    )["camera"]
    sensor.set_world_poses_from_view(torch.tensor([[0.0, 0.0, 5.0]]), torch.tensor([[0.0, 0.0, 0.0]]))
    points = numpy(sensor.data.points_b[0])
    half = 5.0 * aperture / focal / 2.0
    np.testing.assert_allclose(points[..., 2], 5.0, rtol=5e-5)
    np.testing.assert_allclose(points[0, :, 0], half * (2.0 * (np.arange(32) + 0.5) / 32 - 1.0), rtol=5e-5, atol=1e-4)
    np.testing.assert_allclose(points[:, 0, 1], half * (2.0 * (np.arange(24) + 0.5) - 24) / 32, rtol=5e-5, atol=1e-4)


def test_points_are_the_image_in_world_coordinates() -> None:
    """Rotated into the world by the ros pose, all points are on the floor, and z is the depth."""
    sensor: Any = scene_of(camera(data_types=("distance_to_image_plane", "points_b")), quat=(0.95, 0.05, 0.3, 0.1))[
        "camera"
    ]
    data = sensor.data
    turn = Rotation.from_quat(numpy(data.quat_w_ros[0]), scalar_first=True)
    points = numpy(data.points_b[0]).reshape(-1, 3)
    hit = np.isfinite(points).all(axis=1)
    assert 200 < hit.sum() < 1200 and (points[~hit] == math.inf).all()
    np.testing.assert_allclose((turn.apply(points[hit]) + numpy(data.pos_w[0]))[:, 2], 0.0, atol=5e-5)
    np.testing.assert_array_equal(points[:, 2], numpy(data.distance_to_image_plane).reshape(-1))


def test_moving_shape_is_imaged_in_the_same_step() -> None:
    ball = sn.engines.Shape("sphere", "ball", (0.5,), body="other")
    scene = scene_of(
        camera(data_types=("distance_to_image_plane", "geom_ids")), shapes=(ball,), envs=2, pos=(0.0, 0.0, 0.0)
    )
    sensor: Any = scene["camera"]
    for distance in (3.0, 4.0, 7.5):
        scene.engine.body_pos_w[0, 1] = torch.tensor([distance, 0.0, 0.0])
        scene.engine.body_pos_w[1, 1] = torch.tensor([-distance, 0.0, 0.0])  # behind the other env's camera
        scene.update()
        at = (sn.engines.Shape("sphere", "ball", (0.5,), pos=(distance, 0.0, 0.0)),)
        expected, cosine = render(at, (0, 0, 0), OPTICAL.as_quat(scalar_first=True), SMALL.intrinsic_matrix, 30, 40)
        depth, ids = (
            numpy(sensor.data.distance_to_image_plane[0]).reshape(-1),
            sensor.data.geom_ids[0].reshape(-1).numpy(),
        )
        hit = (expected.shape == 0) & ~expected.is_edge
        assert hit.sum() > 5 and (ids[hit] == 0).all() and (ids == 0).sum() <= (expected.shape == 0).sum() + 1
        np.testing.assert_allclose(depth[hit], (expected.distance * cosine)[hit], rtol=1e-5)
        assert (sensor.data.geom_ids[1] == -1).all()
    assert sensor.geom_names == ("ball",)


# Clipping -------------------------------------------------------------------------------------------------------------


@cache
def clipped(behaviour: str, no_hit_value: float | None = None) -> Any:
    """Return data of a camera at (2.5, 2.5, 6) that sees floor, horizon and sky through a wide lens, max 10 m."""
    pattern = sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(CLIPPED, 240, 135)
    cfg = camera(
        body="world", pattern=pattern, max_distance=10.0, depth_clipping_behavior=behaviour,
        data_types=("distance_to_camera", "distance_to_image_plane"), no_hit_value=no_hit_value,
    )  # fmt: skip
    sensor: Any = scene_of(cfg)["camera"]
    quat = torch.tensor([[-0.8, 0.0, -0.1, 0.0]]) / math.hypot(0.8, 0.1)
    sensor.set_world_poses(torch.tensor([[2.5, 2.5, 6.0]]), quat, convention="world")
    return sensor.data


def test_clipping_none_keeps_far_hits_and_infinite_misses() -> None:
    """Both distances are +inf for the sky and for values beyond max_distance; no value is NaN."""
    for image in clipped("none").output.values():
        assert image.isinf().any() and not image.isnan().any()
        assert image[~image.isinf()].max() > 10.0


def test_clipping_zero_and_max_change_only_values_beyond_the_range() -> None:
    """Misses and values beyond 10 m, by each type's own distance, are 0 or exactly 10; all others are unclipped."""
    plain, zero, most = (clipped(word).output for word in ("none", "zero", "max"))
    for name, image in plain.items():
        beyond = image > 10.0
        assert beyond.any() and not beyond.all()
        assert (zero[name][beyond] == 0.0).all() and torch.equal(zero[name][~beyond], image[~beyond])
        assert (most[name][beyond] == 10.0).all() and torch.equal(most[name][~beyond], image[~beyond])
    between = (plain["distance_to_camera"] > 10.0) & (plain["distance_to_image_plane"] <= 10.0)
    assert between.any()  # far along the ray, but not along the axis: each type has its own limit
    assert (most["distance_to_image_plane"][between] < 10.0).all()


def test_miss_value_is_configurable() -> None:
    image = clipped("none", -1.0).output["distance_to_image_plane"]
    plain = clipped("none").output["distance_to_image_plane"]
    assert torch.equal(image == -1.0, plain.isinf()) and torch.equal(image[image > 0], plain[~plain.isinf()])


def test_points_of_clipped_pixels_are_at_their_depth() -> None:
    """A clipped pixel's point is on the far plane with max, at the camera with zero, and at infinity with none."""
    for behaviour, depth in (("max", 3.0), ("zero", 0.0), ("none", math.inf)):
        cfg = camera(
            max_distance=3.0, depth_clipping_behavior=behaviour, data_types=("distance_to_image_plane", "points_b")
        )
        data: Any = scene_of(cfg)["camera"].data
        assert (data.points_b[0, 0, :, 2] == depth).all() and not data.points_b.isnan().any()


def test_a_hit_nearer_than_min_distance_is_a_miss() -> None:
    cfg = camera(min_distance=4.0, data_types=("distance_to_camera",))
    near: Any = scene_of(cfg)["camera"].data.distance_to_camera  # type: ignore[attr-defined]
    plain: Any = scene_of(camera(data_types=("distance_to_camera",)))["camera"].data.distance_to_camera  # type: ignore[attr-defined]
    assert (near[plain < 4.0] == math.inf).all() and torch.equal(near[plain >= 4.0], plain[plain >= 4.0])


# Poses ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", ["ros", "opengl", "world"])
def test_an_offset_in_any_convention_is_the_same_camera(convention: str) -> None:
    """Each offset of the known triple gives the position and all three orientations."""
    offset = {"pos": POSITION, "rot": SAME_CAMERA[convention], "convention": convention}
    data: Any = scene_of(camera(body="world", offset=offset))["camera"].data
    torch.testing.assert_close(data.pos_w[0], torch.tensor(POSITION))
    for name, expected in SAME_CAMERA.items():
        got = getattr(data, f"quat_w_{name}")[0]
        torch.testing.assert_close(
            got * got[0].sign(), torch.tensor(expected) * np.sign(expected[0]), rtol=1e-5, atol=1e-6
        )


def test_the_default_convention_is_world_and_on_a_camera_of_the_model_opengl() -> None:
    """An offset without a convention looks along x; on a MuJoCo camera it looks along that camera's -z."""
    plain = sn.RayCasterCameraCfg(name="plain", body="body", pattern=SMALL, offset=sn.OffsetCfg(pos=(0, 0, 0.1)))
    assert plain.offset == CameraOffsetCfg(pos=(0, 0, 0.1)) and plain.convention == "world"
    engine = sn.MujocoEngine(
        "<mujoco><worldbody><geom type='plane' size='9 9 1'/><body name='b' pos='0 0 2'><freejoint/><geom size='.1'/>"
        "<camera name='down'/></body></worldbody></mujoco>"
    )
    cfgs = [
        sn.RayCasterCameraCfg(name="as_is", camera="down", pattern=SMALL),
        sn.RayCasterCameraCfg(name="ros", camera="down", pattern=SMALL, offset={"convention": "ros"}),
    ]
    scene = sn.Scene(engine, cfgs)
    as_is, ros = (scene[cfg].data.distance_to_image_plane for cfg in cfgs)
    np.testing.assert_allclose(numpy(as_is), 2.0, rtol=1e-6)
    assert (ros == math.inf).all()


def test_a_camera_follows_its_mount_with_its_offset() -> None:
    """The world pose is the mount's pose times the offset, for every mount and env, and matches SciPy."""
    rng = np.random.default_rng(5)
    pos, turn = rng.normal(size=(4, 3)), Rotation.random(4, rng=rng)
    own = Rotation.random(rng=rng)
    offset = {"pos": (0.1, -0.2, 0.3), "rot": tuple(own.as_quat(scalar_first=True)), "convention": "ros"}
    cfg = camera(offset=offset)
    data: Any = scene_of(cfg, envs=4, pos=pos, quat=turn.as_quat(scalar_first=True))["camera"].data
    np.testing.assert_allclose(numpy(data.pos_w), pos + turn.apply(offset["pos"]), atol=1e-6)
    got = Rotation.from_quat(numpy(data.quat_w_ros), scalar_first=True)
    np.testing.assert_allclose(got.as_matrix(), (turn * own).as_matrix(), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, "all"),
        ({"ray_alignment": "yaw"}, "yaw"),
        ({"ray_alignment": "world"}, ""),
    ],
)
def test_alignment_determines_how_a_camera_follows(options: Any, kept: str) -> None:
    """base follows the whole pose, yaw only the rotation about the vertical, and world only the position.

    The image is taken from the reported pose: all points are on the floor.
    """
    turn = Rotation.from_euler("ZYX", [0.7, 0.4, 0.2])
    offset = {"pos": (0.5, 0.0, 0.0), "rot": tuple(Rotation.from_euler("y", 0.5).as_quat(scalar_first=True)),
              "convention": "world"}  # fmt: skip
    cfg = camera(offset=offset, data_types=("distance_to_image_plane", "points_b"), **options)
    data: Any = scene_of(cfg, quat=turn.as_quat(scalar_first=True))["camera"].data
    follows = {"all": turn, "yaw": Rotation.from_euler("z", 0.7), "": Rotation.identity()}[kept]
    np.testing.assert_allclose(numpy(data.pos_w[0]), follows.apply([0.5, 0, 0]) + np.array([0, 0, 2]), atol=1e-6)
    got = Rotation.from_quat(numpy(data.quat_w_world[0]), scalar_first=True)
    np.testing.assert_allclose(got.as_matrix(), (follows * Rotation.from_euler("y", 0.5)).as_matrix(), atol=1e-6)
    points = numpy(data.points_b[0]).reshape(-1, 3)
    points = points[np.isfinite(points).all(axis=1)]
    assert len(points) > 300
    np.testing.assert_allclose((got * OPTICAL).apply(points)[:, 2] + numpy(data.pos_w)[0, 2], 0.0, atol=1e-4)


@pytest.mark.parametrize("convention", ["ros", "opengl", "world"])
def test_set_pose_is_read_back(convention: Any) -> None:
    """`set_world_poses` in any convention, on a tilted mount, sets the given position and orientation."""
    sensor: Any = scene_of(camera(), envs=2, pos=(1.0, 2.0, 3.0), quat=(0.5, 0.5, -0.5, 0.5))["camera"]
    pos, quat = torch.tensor([POSITION] * 2), torch.tensor([SAME_CAMERA[convention]] * 2)
    assert sensor.data.pos_w[0].tolist() == [1.0, 2.0, 3.0]
    sensor.set_world_poses(pos, quat, convention=convention)
    torch.testing.assert_close(sensor.data.pos_w, pos)
    got = sensor.data.quat_w_ros
    torch.testing.assert_close(got * got[:, :1].sign(), -torch.tensor([SAME_CAMERA["ros"]] * 2), rtol=1e-5, atol=1e-6)


def test_rays_lead_from_the_mount_to_the_hits() -> None:
    """On a tilted mount, start plus distance times direction is on the floor, with an own lens and pose in each env."""
    sensor: Any = scene_of(camera(data_types=ALL), envs=2, pos=(1.0, 2.0, 3.0), quat=(0.5, 0.5, -0.5, 0.5))["camera"]
    sensor.set_world_poses_from_view(torch.tensor([POSITION, (4.0, 1.0, 2.0)]), torch.zeros(2, 3))
    sensor.set_intrinsic_matrices(torch.tensor([[60.0, 2.0, 9.0], [0.0, 50.0, 14.0], [0.0, 0.0, 1.0]]), env_ids=[1])
    distances = sensor.data.distance_to_camera.reshape(2, -1)
    mount = Rotation.from_quat((0.5, 0.5, -0.5, 0.5), scalar_first=True)
    assert sensor.ray_starts.shape == sensor.ray_directions.shape == (2, 1200, 3)
    for start, direction, length in zip(sensor.ray_starts, sensor.ray_directions, distances, strict=True):
        hit = torch.isfinite(length)
        points = mount.apply(numpy(start + length[:, None] * direction)[hit.numpy()]) + np.array([1.0, 2.0, 3.0])
        assert len(points) > 100 and np.ptp(points[:, 0]) > 0.5
        np.testing.assert_allclose(points[:, 2], 0.0, atol=1e-4)


def test_set_view_is_read_back() -> None:
    sensor: Any = scene_of(camera(body="world"), envs=2)["camera"]
    sensor.set_world_poses_from_view(torch.tensor([POSITION] * 2), torch.zeros(2, 3))
    got = sensor.data.quat_w_ros
    torch.testing.assert_close(got * got[:, :1].sign(), -torch.tensor([SAME_CAMERA["ros"]] * 2), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(sensor.data.pos_w, torch.tensor([POSITION] * 2))


@pytest.mark.parametrize("alignment", ["base", "yaw", "world"])
def test_repositioned_camera_keeps_following_its_mount(alignment: Any) -> None:
    """When the mount moves on, the camera moves with it and keeps its pose in the alignment's frame."""
    sensor: Any = (scene := scene_of(camera(ray_alignment=alignment), quat=(0.9, 0.1, 0.3, 0.3)))["camera"]
    before = Rotation.from_quat(numpy(scene.engine.body_quat_w[0, 0]), scalar_first=True)
    sensor.set_world_poses(torch.tensor([POSITION]), torch.tensor([SAME_CAMERA["world"]]), convention="world")
    after = Rotation.from_euler("ZYX", [2.0, 0.3, -0.4])
    scene.engine.body_pos_w[0, 0] = torch.tensor([5.0, 0.0, 1.0])
    scene.engine.body_quat_w[0, 0] = torch.tensor(after.as_quat(scalar_first=True))
    scene.update()
    follows = {
        "base": after * before.inv(),
        "yaw": Rotation.from_euler("z", after.as_euler("ZYX")[0] - before.as_euler("ZYX")[0]),
        "world": Rotation.identity(),
    }[alignment]
    expected = np.array([5.0, 0.0, 1.0]) + follows.apply(np.array(POSITION) - [0.0, 0.0, 2.0])
    np.testing.assert_allclose(numpy(sensor.data.pos_w[0]), expected, atol=2e-6)
    got = Rotation.from_quat(numpy(sensor.data.quat_w_world[0]), scalar_first=True)
    own = Rotation.from_quat(SAME_CAMERA["world"], scalar_first=True)
    np.testing.assert_allclose(got.as_matrix(), (follows * own).as_matrix(), atol=2e-6)


def test_setters_affect_only_given_envs_and_skip_none() -> None:
    """Ids or a mask select envs; a position alone keeps the orientation, an orientation alone the position."""
    scene = scene_of(camera(), envs=4)
    sensor: Any = scene["camera"]
    sensor.set_world_poses(torch.tensor([[7.0, 0.0, 1.0]]), env_ids=[2])
    sensor.set_world_poses(
        orientations=torch.tensor([SAME_CAMERA["ros"]]), env_ids=torch.tensor([False, True, False, False])
    )
    sensor.set_intrinsic_matrices(torch.tensor([[[9.0, 0, 20], [0, 9.0, 15], [0, 0, 1]]]), env_ids=[3])
    data = sensor.data
    assert data.pos_w.tolist() == [[0, 0, 2], [0, 0, 2], [7, 0, 1], [0, 0, 2]]
    assert data.quat_w_world[[0, 2, 3], 0].tolist() == [1, 1, 1] and data.quat_w_world[1, 0] < 1
    assert data.intrinsic_matrices[:, 0, 0].tolist() == [24.0, 24.0, 24.0, 9.0]


def test_plural_mounts_have_their_own_axis() -> None:
    """Two mounts give `[env, mount, ...]`, each from its own position; poses are set per mount."""
    cfg = sn.RayCasterCameraCfg(
        name="camera", bodies=("body", "other"), pattern=SMALL, data_types=ALL, offset={"convention": "world"}
    )
    scene = scene_of(cfg, envs=2)
    sensor: Any = scene["camera"]
    scene.engine.body_pos_w[:, 1] = torch.tensor([0.0, 0.0, 1.0])
    scene.update()
    data = sensor.data
    assert data.pos_w.shape == (2, 2, 3) and data.intrinsic_matrices.shape == (2, 2, 3, 3)
    assert data.distance_to_image_plane.shape == (2, 2, 30, 40, 1) and data.normals.shape == (2, 2, 30, 40, 3)
    low = slice(18, 30)  # rows that see the ground within its extent
    torch.testing.assert_close(data.distance_to_image_plane[:, 0, low], 2.0 * data.distance_to_image_plane[:, 1, low])
    eyes = torch.tensor([[[0.0, 0, 3], [0, 0, 4]]] * 2)
    sensor.set_world_poses_from_view(eyes, torch.zeros(3))
    for mount, height in enumerate((3.0, 4.0)):
        np.testing.assert_allclose(numpy(sensor.data.distance_to_image_plane[:, mount]), height, rtol=1e-6)
    with pytest.raises(sn.ConfigError, match=r"positions: got \(2, 3\), expected \[2, 2, 3\]"):
        sensor.set_world_poses(torch.zeros(2, 3))


# Intrinsics -----------------------------------------------------------------------------------------------------------


def test_the_lens_of_the_pattern_is_reported() -> None:
    """A RealSense's matrix at 320 x 240 is unchanged over ten updates."""
    k = [229.31640625, 0.0, 164.810546875, 0.0, 229.826171875, 122.1650390625, 0.0, 0.0, 1.0]
    scene = scene_of(camera(pattern=sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(k, 320, 240)), envs=2)
    sensor: Any = scene["camera"]
    for _ in range(10):
        scene.update()
        torch.testing.assert_close(sensor.data.intrinsic_matrices, torch.tensor(k).view(3, 3).expand(2, 3, 3))
        torch.testing.assert_close(sensor.intrinsic_matrices, torch.tensor(k).view(3, 3).expand(2, 3, 3))


def test_a_camera_rebuilt_from_its_own_matrix_is_the_same() -> None:
    first: Any = scene_of(camera(), shapes=THINGS, pos=(-2.0, 0.1, 0.8))["camera"].data
    k = first.intrinsic_matrices[0].numpy()
    cfg = camera(pattern=sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(k, 40, 30))
    again: Any = scene_of(cfg, shapes=THINGS, pos=(-2.0, 0.1, 0.8))["camera"].data
    torch.testing.assert_close(again.distance_to_image_plane, first.distance_to_image_plane)
    torch.testing.assert_close(again.intrinsic_matrices, first.intrinsic_matrices)


def test_each_env_can_have_its_own_lens() -> None:
    """Three focal lengths give three images, each equal to that of a camera built with that lens."""
    sensor: Any = (scene := scene_of(camera(), shapes=THINGS, envs=3, pos=(-2.0, 0.1, 0.8)))["camera"]
    k = torch.tensor([[[f, 0.0, 18.0], [0.0, f + 2.0, 16.0], [0.0, 0.0, 1.0]] for f in (20.0, 30.0, 45.0)])
    scene.update()
    plain = sensor.data.distance_to_image_plane.clone()
    sensor.set_intrinsic_matrices(k, focal_length=24.0)
    torch.testing.assert_close(sensor.data.intrinsic_matrices, k)
    for env in range(3):
        cfg = camera(pattern=sn.patterns.PinholeCameraPatternCfg.from_intrinsic_matrix(k[env].numpy(), 40, 30))
        own: Any = scene_of(cfg, shapes=THINGS, pos=(-2.0, 0.1, 0.8))["camera"].data
        close = torch.isclose(sensor.data.distance_to_image_plane[env], own.distance_to_image_plane[0], rtol=1e-5)
        assert close.float().mean() > 0.995  # except for pixels on an edge
        assert not torch.equal(sensor.data.distance_to_image_plane[env], plain[env])


def test_widened_lens_images_moving_shapes() -> None:
    """A ball at the border of the view, outside the old lens, is visible through a wider lens."""
    ball = sn.engines.Shape("sphere", "ball", (0.2,), body="other")
    scene = scene_of(camera(data_types=("distance_to_image_plane", "geom_ids")), shapes=(ball,), pos=(0.0, 0.0, 0.0))
    scene.engine.body_pos_w[0, 1] = torch.tensor([1.0, 2.0, 0.0])
    scene.update()
    sensor: Any = scene["camera"]
    assert (sensor.data.geom_ids == -1).all()
    wide = torch.tensor([[6.0, 0.0, 20.0], [0.0, 6.0, 15.0], [0.0, 0.0, 1.0]])
    sensor.set_intrinsic_matrices(wide)
    expected, _ = render(
        (sn.engines.Shape("sphere", "ball", (0.2,), pos=(1.0, 2.0, 0.0)),),
        (0, 0, 0),
        OPTICAL.as_quat(scalar_first=True),
        wide,
        30,
        40,
    )
    assert (expected.shape >= 0).sum() > 3
    got = sensor.data.geom_ids[0].reshape(-1).numpy()
    assert ((got == expected.shape) | expected.is_edge).all()


def test_the_lens_of_one_env_does_not_narrow_the_view_of_another() -> None:
    """Env 0 has a wide lens and then env 1 a narrow lens: env 0 sees the ball at the border as it does alone."""
    ball = sn.engines.Shape("sphere", "ball", (0.2,), body="other")
    scene = scene_of(camera(data_types=("geom_ids",)), envs=2, shapes=(ball,), pos=(0.0, 0.0, 0.0))
    scene.engine.body_pos_w[:, 1] = torch.tensor([1.0, 2.0, 0.0])
    scene.update()
    sensor: Any = scene["camera"]
    wide, narrow = (torch.tensor([[f, 0.0, 20.0], [0.0, f, 15.0], [0.0, 0.0, 1.0]]) for f in (6.0, 300.0))
    sensor.set_intrinsic_matrices(wide)
    alone = sensor.data.geom_ids[0].clone()
    assert (alone == 0).sum() > 3
    sensor.set_intrinsic_matrices(narrow)
    assert (sensor.data.geom_ids == -1).all()
    for lens, env in ((wide, 0), (narrow, 1)):
        sensor.set_intrinsic_matrices(lens, env_ids=[env])
    assert torch.equal(sensor.data.geom_ids[0], alone) and (sensor.data.geom_ids[1] == -1).all()


def test_lens_and_pose_persist_over_reset_and_saved_state() -> None:
    """A reset keeps the intrinsics; `load_state` restores those of the state, and the image with them."""
    scene = scene_of(camera(), shapes=THINGS, envs=2, pos=(-2.0, 0.1, 0.8))
    sensor: Any = scene["camera"]
    sensor.set_intrinsic_matrices(torch.tensor([[30.0, 0, 18], [0, 31.0, 16], [0, 0, 1]]), env_ids=[1])
    sensor.set_world_poses_from_view(torch.tensor([[2.0, 2.0, 1.0]]), torch.zeros(1, 3), env_ids=[1])
    expected = sensor.data.distance_to_image_plane.clone()
    scene.reset()
    assert torch.equal(sensor.data.distance_to_image_plane, expected)
    state = scene.state()
    sensor.set_intrinsic_matrices(torch.tensor([[60.0, 0, 18], [0, 60.0, 16], [0, 0, 1]]))
    sensor.set_world_poses(torch.tensor([0.0, 0.0, 9.0]))
    assert not torch.equal(sensor.data.distance_to_image_plane, expected)
    scene.load_state(state)
    assert torch.equal(sensor.data.distance_to_image_plane, expected)
    other = scene_of(camera(), shapes=THINGS, envs=2, pos=(-2.0, 0.1, 0.8))
    other.load_state(state)
    loaded: Any = other["camera"]
    assert torch.equal(loaded.data.distance_to_image_plane, expected)


def test_change_of_a_camera_with_memory_applies_from_the_next_sample() -> None:
    """A camera with history keeps its sample, also over `update(ticks=0)`, and the next sample has the change."""
    scene = scene_of(camera(history_length=2), envs=1)
    sensor: Any = scene["camera"]
    scene.update()
    sensor.set_world_poses(torch.tensor([[0.0, 0.0, 4.0]]))
    held = snapshot(sensor)
    assert sensor.data.pos_w[0, 2] == 2.0
    scene.update(ticks=0)
    same(snapshot(sensor), held)
    scene.update()
    assert sensor.history.pos_w[0, :, 2].tolist() == [4.0, 2.0]


# Imperfections --------------------------------------------------------------------------------------------------------

ALONG = ("distance_to_image_plane", "distance_to_camera", "points_b", "geom_ids")
ABOVE = (-2.0, 0.1, 0.8)


def test_depth_noise_propagates_to_all_data_types() -> None:
    """The measured depth has the given standard deviation; range and points are consistent with it."""
    scene = scene_of(camera(data_types=ALONG, noise=0.02), shapes=THINGS, envs=4, pos=ABOVE)
    sensor: Any = scene["camera"]
    data, truth = sensor.data, sensor.ground_truth
    hit = torch.isfinite(truth.distance_to_image_plane)
    error = numpy((data.distance_to_image_plane - truth.distance_to_image_plane)[hit])
    assert error.std() == pytest.approx(0.02, rel=5.0 / math.sqrt(2.0 * len(error)))
    assert abs(error.mean()) < 5.0 * 0.02 / math.sqrt(len(error))
    rays = torch.tensor(rays_of(SMALL.intrinsic_matrix, 30, 40), dtype=torch.float32)
    length = rays.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(
        data.distance_to_camera[hit], (data.distance_to_image_plane * length)[hit], rtol=1e-6, atol=0.0
    )
    torch.testing.assert_close(
        data.points_b[hit[..., 0]], (rays * data.distance_to_image_plane)[hit[..., 0]], rtol=1e-5, atol=1e-6
    )
    assert torch.equal(data.geom_ids, truth.geom_ids)
    clean: Any = scene_of(camera(data_types=ALONG), shapes=THINGS, envs=4, pos=ABOVE)["camera"].data
    for name in ALONG:
        assert torch.equal(getattr(truth, name), getattr(clean, name))


def test_without_depth_the_noise_acts_on_the_range() -> None:
    scene = scene_of(camera(data_types=("distance_to_camera", "points_b"), noise=0.02), shapes=THINGS, pos=ABOVE)
    sensor: Any = scene["camera"]
    measured, truth = sensor.data.distance_to_camera, sensor.ground_truth.distance_to_camera
    hit = torch.isfinite(truth)
    error = numpy((measured - truth)[hit])
    assert error.std() == pytest.approx(0.02, rel=5.0 / math.sqrt(2.0 * len(error)))
    torch.testing.assert_close(
        sensor.data.points_b.norm(dim=-1, keepdim=True)[hit], measured[hit], rtol=1e-5, atol=1e-6
    )


def test_noise_never_moves_a_miss() -> None:
    """Noise, bias, walk and resolution keep +inf, and the configured miss value is applied after all of them."""
    knobs = {"noise": 0.1, "bias": 0.2, "random_walk": 0.05, "resolution": 0.01}
    for options, shown in (({}, math.inf), ({"no_hit_value": -1.0}, -1.0), ({"depth_clipping_behavior": "zero"}, 0.0)):
        cfg = camera(data_types=ALONG, **knobs, **options)
        scene = scene_of(cfg, envs=2)
        sensor: Any = scene["camera"]
        for _ in range(3):
            scene.update()
            for data in (sensor.data, sensor.ground_truth):
                miss = data.geom_ids == -1
                assert miss.any() and (data.distance_to_image_plane[miss] == shown).all()
                assert (data.distance_to_camera[miss] == shown).all() and not data.points_b.isnan().any()


def test_clipping_follows_the_noise_in_both_branches() -> None:
    """For a wall at 2.99 m with noise and a limit of 3 m, measured values never exceed 3 m; clipped ones are exactly 3
    m.
    """
    wall = sn.engines.Shape("box", "wall", (0.5, 9.0, 9.0), pos=(3.49, 0.0, 2.0))
    cfg = camera(data_types=ALONG, noise=0.05, max_distance=3.0, depth_clipping_behavior="max")
    sensor: Any = scene_of(cfg, shapes=(wall,))["camera"]
    measured, truth = sensor.data.distance_to_image_plane, sensor.ground_truth.distance_to_image_plane
    np.testing.assert_allclose(numpy(truth), 2.99, atol=1e-5)
    share = (measured == 3.0).float().mean().item()
    expected = 0.5 * math.erfc(0.01 / 0.05 / math.sqrt(2.0))
    assert measured.max() == 3.0
    assert share == pytest.approx(expected, abs=5.0 * math.sqrt(expected * (1 - expected) / measured.numel()))
    assert (sensor.ground_truth.distance_to_camera <= 3.0).all()


def test_stereo_camera_uses_its_lens() -> None:
    """StereoDepth rounds disparities to its quantum, and the range follows from that depth."""
    stage = sn.stages.StereoDepth(baseline=0.05, quantum=0.125, focal_px=40.0, shadow=False)
    sensor: Any = scene_of(
        camera(data_types=ALONG, stages=(stage,), pattern=SMALL.replace(horizontal_aperture=24.0)),
        shapes=THINGS,
        pos=ABOVE,
    )["camera"]
    measured = numpy(sensor.data.distance_to_image_plane).reshape(-1)
    seen = np.isfinite(measured) & (measured > 0.0)
    steps = 40.0 * 0.05 / measured[seen] / 0.125
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-4)
    length = np.linalg.norm(rays_of(sensor.cfg.pinhole.intrinsic_matrix, 30, 40), axis=-1).reshape(-1)
    np.testing.assert_allclose(
        numpy(sensor.data.distance_to_camera).reshape(-1)[seen], (measured * length)[seen], rtol=1e-6
    )
    assert len(np.unique(measured[seen])) < 20


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (sn.stages.StereoDepth(baseline=0.05, focal_px=41.0), r"stages\.0\.focal_px: got 41"),
        (sn.stages.KinectDepth(fov_deg=90.0), r"stages\.0\.focal_px: got 20"),
        (
            sn.stages.StereoDepth(baseline=0.05, focal_px=40.0, principal_point=(10.0, 15.0)),
            r"stages\.0\.principal_point",
        ),
    ],
)
def test_depth_error_stage_of_another_lens_raises(stage: Any, says: str) -> None:
    with pytest.raises(sn.ConfigError, match=f"(?s){says}.*fx 40, fy 40"):
        scene_of(camera(pattern=SMALL.replace(horizontal_aperture=24.0), stages=(stage,)))


def test_measured_image_is_taken_from_a_drifting_position() -> None:
    """Drift is drawn in its range per env and axis at each reset; the measured image is taken from the drifted pose."""
    spans = {"x": (0.1, 0.3), "z": (-0.2, -0.1)}
    scene = scene_of(
        camera(data_types=("distance_to_image_plane",), drift_range=spans, noise=0.0), shapes=THINGS, envs=16, pos=ABOVE
    )
    sensor: Any = scene["camera"]
    drift = numpy(sensor.data.pos_w - sensor.ground_truth.pos_w)
    for axis, (low, high) in enumerate(((0.1, 0.3), (0.0, 0.0), (-0.2, -0.1))):
        assert (drift[:, axis] >= low - 1e-6).all() and (drift[:, axis] <= high + 1e-6).all()
    assert np.ptp(drift[:, 0]) > 0.05
    there: Any = scene_of(
        camera(data_types=("distance_to_image_plane",)), shapes=THINGS, envs=16, pos=np.array(ABOVE) + drift
    )["camera"]
    close = torch.isclose(sensor.data.distance_to_image_plane, there.data.distance_to_image_plane, rtol=1e-4)
    assert close.float().mean() > 0.99
    plain: Any = scene_of(camera(data_types=("distance_to_image_plane",)), shapes=THINGS, envs=16, pos=ABOVE)["camera"]
    assert torch.equal(sensor.ground_truth.distance_to_image_plane, plain.data.distance_to_image_plane)
    scene.reset([3])
    again = numpy(sensor.data.pos_w - sensor.ground_truth.pos_w)
    assert (again[3] != drift[3])[[0, 2]].all() and (np.delete(again, 3, 0) == np.delete(drift, 3, 0)).all()


def test_delay_shows_an_older_image_with_its_own_pose_and_lens() -> None:
    """Two ticks late, image, pose and intrinsics are those of the capture, regardless of later settings."""
    scene = scene_of(camera(data_types=("distance_to_image_plane",), delay=0.02))
    sensor: Any = scene["camera"]
    scene.update()
    first = sensor.ground_truth.distance_to_image_plane.clone()
    scene.engine.body_pos_w[0, 0, 2] = 1.0
    sensor.set_intrinsic_matrices(torch.tensor([[50.0, 0, 20], [0, 50.0, 15], [0, 0, 1]]))
    scene.update(ticks=1)
    scene.update(ticks=1)
    assert torch.equal(sensor.data.distance_to_image_plane, first)
    assert sensor.data.pos_w[0, 2] == 2.0 and sensor.data.intrinsic_matrices[0, 0, 0] == 24.0
    assert sensor.ground_truth.pos_w[0, 2] == 1.0 and sensor.ground_truth.intrinsic_matrices[0, 0, 0] == 50.0


@pytest.mark.parametrize("body", [0, 1])
def test_non_finite_state_invalidates_the_image(body: int) -> None:
    """NaN in the pose of the mount, or of a moving shape, of one env invalidates its image until the pose is finite."""
    scene = scene_of(camera(), envs=3, shapes=(GROUND, sn.engines.Shape("sphere", "ball", (0.5,), body="other")))
    sensor: Any = scene["camera"]
    scene.engine.body_pos_w[1, body, 0] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning):
        scene.update()
        assert sensor.valid.tolist() == [True, False, True]
    scene.engine.body_pos_w[1, body, 0] = 0.0
    scene.update()
    assert sensor.valid.tolist() == [True, True, True]


# The contract, and bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"data_types": ALL}, marks=pytest.mark.full),
        {"data_types": ALL, "noise": 0.02, "depth_clipping_behavior": "max", "max_distance": 9.0},
        {"data_types": ("distance_to_camera",), "drift_range": (-0.1, 0.1), "no_hit_value": -1.0, "resolution": 0.01},
        pytest.param({"data_types": ("normals",), "ray_alignment": "yaw"}, marks=pytest.mark.full),
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

    pattern = sn.patterns.PinholeCameraPatternCfg(width=6, height=4)
    rules = check_sensor(camera(pattern=pattern, **options), engine=engine, steps=6)
    assert {"resuming_is_exact", "config_round_trip"} <= {*rules}
    assert ("lazy_equals_eager" in rules) == ("drift_range" not in options)


def test_config_round_trips_through_a_file() -> None:
    cfg = camera(
        data_types=("distance_to_image_plane", "normals"),
        offset={"pos": (0.1, 0, 0), "convention": "opengl"},
        ray_alignment="yaw",
    )
    assert sn.RayCasterCameraCfg.from_json(cfg.to_json()) == cfg
    assert sn.RayCasterCameraCfg.from_toml(cfg.to_toml()) == cfg


@pytest.mark.parametrize("word", UNSUPPORTED)
def test_unsupported_data_types_are_refused_by_name(word: str) -> None:
    assert word in sn.RayCasterCamera.UNSUPPORTED_TYPES and len(sn.RayCasterCamera.UNSUPPORTED_TYPES) == 14
    with pytest.raises(ValueError, match=rf"data_types.*without {word}, which cast rays do not provide"):
        camera(data_types=("distance_to_camera", word))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"data_types": ("normls",)}, r"data_types.*Did you mean 'normals'\?"),
        ({"data_types": ()}, "data_types.*at least one"),
        ({"data_types": ("normals", "normals")}, "data_types.*each once"),
        ({"data_types": ("points_b", "normals")}, "data_types.*a distance together with points_b"),
        ({"pattern": sn.patterns.GridPatternCfg()}, "pattern.*a PinholeCameraPatternCfg"),
        ({"depth_clipping_behavior": "min"}, "depth_clipping_behavior"),
        (
            {"depth_clipping_behavior": "max", "no_hit_value": 0.0},
            "no_hit_value: got 0.0, expected None, since depth_clipping",
        ),
        ({"data_types": ("normals",), "noise": 0.1}, "noise: got 0.1, expected no such option while no distance"),
        ({"max_distance": -1.0}, "max_distance"),
        ({"drift_range": (0.2, 0.1)}, "drift_range.*low <= high"),
        ({"offset": {"convention": "usd"}}, "offset.convention"),
        ({"offset": {"rot": (2.0, 0.0, 0.0, 0.0)}}, "offset.rot.*unit quaternion"),
    ],
)
def test_bad_config_error_names_the_field(options: Any, says: str) -> None:
    with pytest.raises(sn.ConfigError, match=f"(?s){says}"):
        camera(**options)


def test_camera_without_lens_raises() -> None:
    with pytest.raises(sn.ConfigError, match="pattern: got nothing"):
        sn.RayCasterCameraCfg(body="body")


@pytest.mark.parametrize(
    ("call", "arguments", "says"),
    [
        ("set_intrinsic_matrices", (torch.zeros(2, 3, 3),), r"matrices\[0\].*non-singular"),
        ("set_intrinsic_matrices", (torch.eye(4),), r"matrices: got \(4, 4\)"),
        ("set_intrinsic_matrices", (torch.eye(3).expand(3, 3, 3),), r"\(3, 3, 3\), expected \[2, 3, 3\] for 2 envs"),
        ("set_world_poses", (torch.zeros(3, 3),), r"positions: got \(3, 3\), expected \[2, 3\] for 2 envs"),
        ("set_world_poses", (torch.full((2, 3), math.nan),), "positions.*finite"),
        ("set_world_poses", (None, torch.ones(2, 4)), "orientations.*unit quaternions"),
        ("set_world_poses", (None, None, None, "usd"), "convention: got 'usd'"),
        ("set_world_poses_from_view", (torch.zeros(2, 3), torch.zeros(2, 3)), "two different finite points"),
    ],
)
def test_bad_setter_argument_is_named_and_changes_nothing(call: str, arguments: Any, says: str) -> None:
    sensor: Any = scene_of(camera(), envs=2)["camera"]
    before = {name: tensor.clone() for name, tensor in sensor.tensors().items()}
    with pytest.raises(sn.ConfigError, match=f"(?s)RayCasterCameraCfg.*{says}|look_at.*{says}"):
        getattr(sensor, call)(*arguments)
    assert all(torch.equal(tensor, before[name]) for name, tensor in sensor.tensors().items())


def test_a_camera_has_no_height_scan() -> None:
    with pytest.raises(sn.ConfigError, match=r"data_types.*ray_hits_w.*RayCasterCfg"):
        scene_of(camera())["camera"].height_scan()  # type: ignore[attr-defined]


def test_debug_draw_shows_the_view_pyramid() -> None:
    """The debug shapes are eight lines per camera: four from the eye, four around the image, through the image's
    corners.
    """
    sensor: Any = scene_of(camera(), envs=2)["camera"]
    (shape,) = sensor.debug_draw()
    lines = shape.data.reshape(2, 8, 2, 3)
    np.testing.assert_allclose(lines[:, :4, 0], np.broadcast_to([0, 0, 2], (2, 4, 3)), atol=1e-6)
    half = 0.3 * np.array([20.0, 15.0]) / 24.0
    np.testing.assert_allclose(lines[0, 0, 1], [0.3, half[0], 2.0 + half[1]], atol=1e-6)


def test_cameras_with_equal_selection_share_all_trees() -> None:
    """Cases 27 and 37: meshes are shared; a camera prints its name, its image and its pattern's size."""
    ground = sn.engines.Mesh([[-5, -5, 0], [5, -5, 0], [5, 5, 0], [-5, 5, 0]], [[0, 1, 2], [0, 2, 3]], "ground")
    engine = sn.TensorEngine(2, shapes=[sn.engines.Shape("mesh", "ground", mesh=ground)])
    pattern = sn.patterns.PinholeCameraPatternCfg(width=8, height=6)
    cfgs = [sn.RayCasterCameraCfg(name=name, body="body", pattern=pattern) for name in ("left", "right")]
    scene = sn.Scene(engine, cfgs)
    left, right = (scene[name] for name in ("left", "right"))
    assert left.cast.view is right.cast.view and left.cast.view.most_triangles == 2
    assert "left" in str(left) and "RayCasterCamera" in str(left) and left.image_shape == (6, 8)
