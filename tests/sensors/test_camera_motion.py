"""Lenses of the camera and motion in its images, against float64 renders and projections of known motion."""

from __future__ import annotations

import math
from operator import methodcaller
from typing import Any

import numpy as np
import pytest
import torch
from reference import reference_cast
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.cameras.lenses import LensCfg, lens_rays
from sensorium.engines import Shape

WIDTH, HEIGHT = 64, 48
SHAPES = (
    Shape("plane", "ground", (50.0, 50.0)),
    Shape("box", "box", (0.4, 0.3, 0.5), body="box"),
    Shape("cylinder", "drum", (0.3, 0.4), pos=(1.0, 0.8, 0.4)),
)
LENSES: list[LensCfg] = [
    sn.lenses.PinholeLensCfg(fovy=70.0),
    sn.lenses.BrownConradyLensCfg(fovy=70.0, k1=-0.12, k2=0.02, p1=1e-3, p2=-2e-3),
    sn.lenses.KannalaBrandtLensCfg(fovy=70.0, k1=-0.02, k2=0.004),
    sn.lenses.FThetaLensCfg(coefficients=(0.025, 1e-5), nominal_size=(80.0, 60.0)),
    sn.lenses.EquirectangularLensCfg(horizontal_fov_deg=200.0, vertical_fov_deg=120.0),
    sn.lenses.OrthographicLensCfg(view_height=3.0),
]
OPTICAL = Rotation.from_matrix([[0, 0, 1], [-1, 0, 0], [0, -1, 0]])
"""Rotation from right, down, forward to forward, left, up."""
Pose = tuple[Any, Rotation]


def scene_of(lens: LensCfg, *types: str, envs: int = 1, **options: Any) -> sn.Scene:
    engine = sn.TensorEngine(envs, 0.01, bodies=("box", "camera"), shapes=SHAPES)
    cfg = sn.CameraCfg(
        name="camera", body="camera", width=WIDTH, height=HEIGHT, lens=lens, data_types=types,
        offset={"convention": "world"}, **options,
    )  # fmt: skip
    place(engine, *poses(0))
    return sn.Scene(engine, [cfg])


def poses(frame: int) -> tuple[Pose, Pose]:
    """Return the poses of the box and of the camera in a frame; both move and turn."""
    box = np.array([0.1, 0.06 * frame, 0.55]), Rotation.from_euler("xyz", [0.05 * frame, 0.1, 0.3 + 0.04 * frame])
    camera = np.array([-2.0 + 0.05 * frame, 0.1, 1.0]), Rotation.from_euler("xyz", [0.02 * frame, 0.25, 0.03 * frame])
    return box, camera


def place(engine: sn.TensorEngine, *bodies: Pose, env: int = 0) -> None:
    for row, (pos, turn) in enumerate(bodies):
        engine.body_pos_w[env:, row] = torch.tensor(pos, dtype=torch.float32)
        engine.body_quat_w[env:, row] = torch.tensor(turn.as_quat(scalar_first=True), dtype=torch.float32)


def reference(lens: LensCfg, k: Any, frame: int) -> tuple[Any, Any, Any]:
    """Return hits, points in the world, and directions in the world, of all pixels in float64."""
    box, (pos, turn) = poses(frame)
    starts, directions = (rays[0].numpy() for rays in lens_rays(lens, k[None].double(), HEIGHT, WIDTH))
    starts, directions = pos + turn.apply(OPTICAL.apply(starts)), turn.apply(OPTICAL.apply(directions))
    shapes = (SHAPES[0], Shape("box", "box", SHAPES[1].size, pos=box[0], quat=box[1].as_quat(scalar_first=True)),
              SHAPES[2])  # fmt: skip
    hits = reference_cast(shapes, starts, directions)
    distance = np.where(np.isfinite(hits.distance), hits.distance, 0.0)
    return hits, starts + distance[:, None] * directions, directions


@pytest.mark.parametrize("lens", LENSES, ids=methodcaller("kind"))
def test_images_of_every_lens_match_a_float64_render(lens: LensCfg) -> None:
    """Ids equal, and distances to 1e-4 m, but for pixels close to a silhouette: at least 97 % of all."""
    sensor: Any = scene_of(lens, "distance_to_camera", "distance_to_image_plane", "points_b", "geom_ids")["camera"]
    data = sensor.data
    hits, points, _ = reference(lens, data.intrinsic_matrices[0], 0)
    ids = data.geom_ids[0].reshape(-1).numpy()
    equal = ids == hits.shape
    assert equal.mean() > 0.97 and {0, 1, 2} <= set(ids[equal].tolist())
    found = data.distance_to_camera[0].reshape(-1).numpy()
    seen = equal & np.isfinite(hits.distance) & (hits.distance < 20.0)
    assert np.abs(found[seen] - hits.distance[seen]).max() < 1e-4
    pos, turn = poses(0)[1]
    depth = turn.inv().apply(points - pos)[:, 0]
    expected = OPTICAL.inv().apply(turn.inv().apply(points - pos))
    assert np.abs(data.points_b[0].reshape(-1, 3).numpy()[seen] - expected[seen]).max() < 1e-4
    assert np.abs(data.distance_to_image_plane[0].reshape(-1).numpy()[seen] - depth[seen]).max() < 1e-4


@pytest.mark.parametrize("lens", LENSES, ids=methodcaller("kind"))
def test_motion_equals_the_projected_motion_of_the_points(lens: LensCfg) -> None:
    """Points of moving and static shapes seen from a moving camera, to 0.02 px; the flow is minus the motion vectors.

    The expected position is the lens's own projection in float64, which test_lenses compares with the formulas.
    """
    scene = scene_of(lens, "motion_vectors", "optical_flow", "geom_ids")
    sensor: Any = scene["camera"]
    assert not sensor.data.motion_vectors.any() and not sensor.data.optical_flow.any()
    place(scene.engine, *poses(1))
    scene.update()
    data = sensor.data
    k = data.intrinsic_matrices[0]
    hits, points, _ = reference(lens, k, 1)
    (box_then, camera_then), (box_now, _) = poses(0), poses(1)
    moved = box_then[0] + box_then[1].apply(box_now[1].inv().apply(points - box_now[0]))
    then = np.where((hits.shape == 1)[:, None], moved, points)
    seen = OPTICAL.inv().apply(camera_then[1].inv().apply(then - camera_then[0]))
    plane = lens.project(torch.tensor(seen)).numpy()
    before = np.c_[plane, np.ones(len(plane))] @ k.double().numpy().T
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    expected = before[:, :2] - np.c_[columns.reshape(-1), rows.reshape(-1)]
    found = data.motion_vectors[0].reshape(-1, 2).numpy()
    good = (data.geom_ids[0].reshape(-1).numpy() == hits.shape) & np.isfinite(hits.distance) & (hits.distance < 20.0)
    good &= np.isfinite(expected).all(axis=1)
    assert good.sum() > 1000 and set(hits.shape[good].tolist()) == {0, 1, 2}
    assert np.abs(expected[good]).max() > 1.5
    assert np.abs(found - expected)[good].max() < 0.02
    assert torch.equal(data.optical_flow, -data.motion_vectors)


def test_only_pixels_that_the_lens_sees_move() -> None:
    """The background of a turning fisheye moves within 30 degrees of the axis, and nothing beyond."""
    lens = sn.lenses.KannalaBrandtLensCfg(fovy=90.0, max_fov_deg=60.0)
    engine = sn.TensorEngine(1, 0.01, bodies=("head",), shapes=(Shape("sphere", "far", (0.1,), pos=(0.0, 0.0, -9.0)),))
    cfg = sn.CameraCfg(
        body="head", width=40, height=30, data_types=("optical_flow",), lens=lens,
        offset=sn.CameraCfg.OffsetCfg(convention="world"),
    )  # fmt: skip
    scene = sn.Scene(engine, [cfg])
    scene.update()
    engine.body_quat_w[:] = torch.tensor([math.cos(0.02), 0.0, 0.0, math.sin(0.02)])  # to the left
    scene.update()
    flow = scene["camera"].data.optical_flow[0].numpy()
    rows, columns = np.mgrid[:30, :40] + 0.5
    radius = np.hypot(rows - 15.0, columns - 20.0) / 15.0  # the angle to the axis
    assert not flow[radius > math.radians(30.0)].any()
    assert flow[radius < math.radians(30.0)][:, 0].min() > 0.04 * 15.0 * 0.9  # to the right


def test_a_surface_that_moves_left_has_positive_motion_vectors() -> None:
    """One metre to the left at depth 4 m is f / 4 px."""
    engine = sn.TensorEngine(1, 0.01, bodies=("box",), shapes=(Shape("box", "box", (0.1, 2.0, 2.0), body="box"),))
    engine.body_pos_w[:] = torch.tensor([4.1, 0.0, 0.0])
    cfg = sn.CameraCfg(
        name="camera", body="world", width=20, height=20, lens=sn.lenses.PinholeLensCfg(fovy=90.0),
        offset={"convention": "world"}, data_types=("motion_vectors",),
    )  # fmt: skip
    scene = sn.Scene(engine, [cfg])
    engine.body_pos_w[:] = torch.tensor([4.1, 1.0, 0.0])
    scene.update()
    motion: Any = scene["camera"].data.motion_vectors
    assert motion[0, 10, 10].tolist() == [pytest.approx(2.5, abs=1e-5), pytest.approx(0.0, abs=1e-5)]


def test_motion_is_between_due_frames_whether_read_or_not() -> None:
    """A camera at a third of the rate of the physics sees three ticks of motion; unread frames count."""
    cfg = {"rate_hz": 100.0 / 3.0}
    scenes = [scene_of(LENSES[0], "optical_flow", **cfg) for _ in range(2)]
    for number, scene in enumerate(scenes):
        for tick in range(1, 10):
            place(scene.engine, *poses(tick))
            scene.update()
            if number == 0:
                scene["camera"].data.optical_flow.clone()
    first, second = (scene["camera"].data.optical_flow for scene in scenes)
    assert torch.equal(first, second)
    every = scene_of(LENSES[0], "optical_flow")
    place(every.engine, *poses(6))
    every.update()
    place(every.engine, *poses(9))
    every.update()
    assert torch.equal(every["camera"].data.optical_flow, first)


def test_after_a_reset_nothing_has_moved() -> None:
    """Only the reset environment starts again; the other one keeps its motion."""
    scene = scene_of(LENSES[0], "optical_flow", envs=2)
    place(scene.engine, *poses(1))
    scene.update()
    moving = scene["camera"].data.optical_flow.clone()
    place(scene.engine, *poses(5), env=1)
    scene.reset(torch.tensor([1]))
    flow: Any = scene["camera"].data.optical_flow
    assert torch.equal(flow[0], moving[0]) and moving[1].abs().max() > 1.0
    assert not flow[1].any()
    place(scene.engine, *poses(6), env=1)
    scene.update()
    flow = scene["camera"].data.optical_flow
    assert flow[1].abs().max() > 0.1 and flow[0].abs().max() < 1e-4  # px, rounding


def test_the_background_moves_like_a_point_at_infinity() -> None:
    """A camera that turns by an angle sees the sky move by f tan(angle) at the image centre, wherever it stands."""
    engine = sn.TensorEngine(1, 0.01, bodies=("camera",), shapes=(Shape("sphere", "far", (0.1,), pos=(-9, 0, 0)),))
    cfg = sn.CameraCfg(
        name="camera", body="camera", width=21, height=21, lens=sn.lenses.PinholeLensCfg(fovy=90.0),
        offset={"convention": "world"}, data_types=("optical_flow", "depth"),
    )  # fmt: skip
    scene = sn.Scene(engine, [cfg])
    engine.body_pos_w[:] = torch.tensor([0.0, 3.0, 1.0])
    turn = Rotation.from_euler("z", 0.1).as_quat(scalar_first=True)
    engine.body_quat_w[:] = torch.tensor(turn, dtype=torch.float32)
    scene.update()
    data: Any = scene["camera"].data
    assert torch.isinf(data.distance_to_image_plane).all()
    assert data.optical_flow[0, 10, 10, 0].item() == pytest.approx(10.5 * np.tan(0.1), rel=1e-5)


@pytest.mark.parametrize("evaluate", ["auto", "always"])
@pytest.mark.parametrize("lens", [LENSES[2], LENSES[5]], ids=methodcaller("kind"))
def test_intrinsics_of_a_lens_can_differ_between_environments(lens: LensCfg, evaluate: str) -> None:
    """Each environment's image is that of a camera which always had its intrinsic matrix, also in a captured graph.

    The table of directions has one entry until the environments differ.
    """
    scene = scene_of(lens, "depth", "geom_ids", envs=3, evaluate=evaluate)
    sensor: Any = scene["camera"]
    before = sensor.read().distance_to_image_plane
    scene.capture(True)
    for _ in range(8):
        scene.update()
        sensor.read()
    assert sensor.cast.lens.directions.shape[0] == 1
    k = sensor.intrinsic_matrices[1]
    wide = k.clone()
    wide[:2, :2] *= 0.6
    for env in (0, 2):
        sensor.set_intrinsic_matrices(wide, env_ids=[env])
        scene.update()
        data = sensor.data
        assert torch.equal(data.distance_to_image_plane[1], before[1])
        assert not torch.equal(data.distance_to_image_plane[env], before[env])
        hits, _, _ = reference(lens, wide, 0)
        assert (data.geom_ids[env].reshape(-1).numpy() == hits.shape).mean() > 0.97
    state = scene.state()
    other = scene_of(lens, "depth", "geom_ids", envs=3, evaluate=evaluate)
    other.load_state(state)
    other.update()
    same: Any = other["camera"]
    assert torch.equal(same.data.distance_to_image_plane, sensor.data.distance_to_image_plane)
    sensor.set_intrinsic_matrices(k)
    scene.update()
    assert torch.equal(sensor.data.distance_to_image_plane, before)


def test_a_refused_intrinsic_matrix_changes_nothing() -> None:
    """With a shorter focal length the lens would fold over within the image: images and matrices stay."""
    scene = scene_of(sn.lenses.BrownConradyLensCfg(fovy=40.0, k1=-0.25), "depth", envs=2)
    sensor: Any = scene["camera"]
    before = sensor.read()
    wide = before.intrinsic_matrices[1].clone()
    wide[:2, :2] *= 0.2
    with pytest.raises(sn.ConfigError, match=r"lens.*does not fold over"):
        sensor.set_intrinsic_matrices(wide, env_ids=[1])
    scene.update(ticks=0)
    after = sensor.read()
    assert torch.equal(after.intrinsic_matrices, before.intrinsic_matrices)
    assert torch.equal(sensor.intrinsic_matrices, before.intrinsic_matrices)
    assert torch.equal(after.distance_to_image_plane, before.distance_to_image_plane)
    sensor.set_intrinsic_matrices(before.intrinsic_matrices[0] * torch.tensor([[0.9], [0.9], [1.0]]), env_ids=[1])
    assert not torch.equal(sensor.data.distance_to_image_plane[1], before.distance_to_image_plane[1])


def test_a_model_with_an_orthographic_camera() -> None:
    """Its height is the camera's fovy: a box of 0.4 m covers 8 of 40 rows of a view 2 m high."""
    xml = """<mujoco><worldbody><geom name="box" type="box" size=".2 .2 .2" pos="0 0 1"/>
      <camera name="top" pos="0 0 3" projection="orthographic" fovy="2" resolution="40 40"/></worldbody></mujoco>"""
    cfg = sn.CameraCfg(name="top", camera="top", data_types=("depth", "geom_ids"))
    data: Any = sn.Scene(sn.MujocoEngine(xml), [cfg])["top"].data
    assert (data.geom_ids[0, :, :, 0] == 0).sum() == 64
    assert data.distance_to_image_plane[0, 20, 20].item() == pytest.approx(1.8)
    assert data.intrinsic_matrices[0].diagonal().tolist() == [20.0, 20.0, 1.0]
