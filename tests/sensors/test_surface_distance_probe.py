"""The surface distance probe: analytic scenes, random scenes against a slow search, and MuJoCo's geom distances."""

from __future__ import annotations

import json
import math
from typing import Any

import mujoco
import numpy as np
import pytest
import surfaces
import torch
from numpy.typing import NDArray
from reference import random_poses, random_shapes

import sensorium as sn
from sensorium.sensors.touch.surface_distance_probe import (
    SurfaceDistanceProbe,
    SurfaceDistanceProbeCfg,
)
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]

EPS = 2.0**-24
"""Half a unit in the last place of float32, relative: the rounding of one operation."""
GROUND = sn.engines.Shape("plane", "ground")
BALL = sn.engines.Shape("sphere", "ball", (0.1,), body="ball")
OWN = sn.engines.Shape("box", "shell", (0.02, 0.02, 0.02), body="hand")


def engine_of(envs: int = 1, shapes: Any = (GROUND, BALL, OWN), **kwargs: Any) -> sn.TensorEngine:
    """Return an engine with two bodies, a metre apart and a metre above ground."""
    engine = sn.TensorEngine(envs, 0.01, bodies=("hand", "ball"), shapes=shapes, **kwargs)
    engine.body_pos_w[:, 0] = torch.tensor([0.0, 0.0, 1.0])
    engine.body_pos_w[:, 1] = torch.tensor([1.0, 0.0, 1.0])
    return engine


def probing(scene_of: sn.TensorEngine, **cfg: Any) -> tuple[sn.Scene, SurfaceDistanceProbe]:
    given = {"body": "hand", "probe_radius": 5.0, **cfg}
    made = SurfaceDistanceProbeCfg(name="probe", **given)
    scene = sn.Scene(scene_of, [made], seed=3)
    return scene, scene["probe"]  # type: ignore[return-value]


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def tumbling_over_ground(num_envs: int, shift: float = 0.0) -> sn.TensorEngine:
    """Return the tumbling body, with a shell, over ground and beside a static box."""
    plain = tumbling_engine(num_envs, shift=shift)
    ground, shell = (
        sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -0.5)),
        sn.engines.Shape("sphere", "shell", (0.05,), body="body"),
    )
    box = sn.engines.Shape("box", "box", (0.2, 0.3, 0.4), pos=(0.9, 0.2, 0.0))
    return sn.TensorEngine(
        num_envs, 0.002, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))}, motion=plain.motion,
        shapes=[ground, box, shell], provides=("pose", "velocity", "acceleration", "gravity"),
    )  # fmt: skip


# Distances and points -------------------------------------------------------------------------------------------------


def test_each_probe_finds_the_nearest_surface() -> None:
    """With ground at 1 m and a ball of 0.1 m at 1 m, a probe measures the ground below it, the other the ball beside
    it.
    """
    _, probe = probing(engine_of(), probe_local_pos=((0, 0, -0.25), (0.5, 0, 0)), fields="all")
    data = probe.data
    np.testing.assert_allclose(numpy(data.distance), [[0.75, 0.4]], rtol=1e-6)
    np.testing.assert_allclose(numpy(data.nearest_points_w), [[[0, 0, 0], [0.9, 0, 1.0]]], atol=1e-6)
    assert [probe.geom_names[i] for i in data.geom_ids[0]] == ["ground", "ball"]
    assert data.value is None
    assert torch.equal(probe.nearest_points, data.nearest_points_w)


def test_probes_rotate_with_body_and_offset() -> None:
    """A body that lies on its side points its probes at the ground."""
    engine = engine_of()
    half = math.sqrt(0.5)
    engine.body_quat_w[0, 0] = torch.tensor([half, 0.0, half, 0.0])  # x points down
    _, probe = probing(engine, probe_local_pos=((0.3, 0, 0),), offset=sn.OffsetCfg(pos=(0.1, 0, 0)), targets="ground")
    np.testing.assert_allclose(numpy(probe.data.distance), [[0.6]], rtol=1e-6)
    np.testing.assert_allclose(numpy(probe.data.nearest_points_w), [[[0, 0, 0]]], atol=1e-6)


def test_a_moving_mesh_is_followed_in_the_same_step() -> None:
    """With different tetrahedra per env, each env measures only its own, at its current pose."""
    mesh = sn.engines.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    engine = engine_of(2, [sn.engines.Shape("mesh", "tetra", mesh=mesh, body="ball", scale=(0.5, 0.5, 0.5))])
    engine.body_pos_w[1, 1, 0] = 3.0
    scene, probe = probing(engine)
    np.testing.assert_allclose(numpy(probe.data.distance)[:, 0], [1.0, 3.0], rtol=1e-6)
    engine.body_pos_w[:, 1, 0] += 0.25
    scene.update()
    np.testing.assert_allclose(numpy(probe.data.distance)[:, 0], [1.25, 3.25], rtol=1e-6)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_random_scenes_match_a_slow_search(seed: int) -> None:
    """24 shapes, two thirds of them moving, meshes scaled unevenly and mirrored; 60 probes in each of two envs."""
    rng = np.random.default_rng(seed)
    shapes = random_shapes(rng, 24, bodies=3)
    names = ("hand", "b", "c")
    named = [shape if shape.is_static else _on(shape, names[shape.row]) for shape in shapes]
    engine = sn.TensorEngine(2, 0.01, bodies=names, shapes=named)
    poses = [random_poses(rng, 3) for _ in range(2)]
    for env, (pos, quat) in enumerate(poses):
        engine.body_pos_w[env], engine.body_quat_w[env] = torch.from_numpy(pos), torch.from_numpy(quat)
    places = rng.uniform(-6.0, 6.0, (60, 3)).astype(np.float32).astype(float)
    _, probe = probing(
        engine, body="world", probe_local_pos=places, probe_radius=3.0, fields="all", exclude_parent_body=False
    )
    data = probe.data
    for env in range(2):
        each = np.stack([surfaces.to_shape(shape, places, poses[env]) for shape in shapes])
        least = each.min(axis=0)
        clear = np.abs(least - 3.0) > 1e-4
        expected = np.where(least <= 3.0, least, np.inf)[clear]
        np.testing.assert_allclose(numpy(data.distance[env])[clear], expected, atol=1e-5)
        hit = clear & (least <= 3.0)
        chosen = each[data.geom_ids[env].numpy()[hit], np.flatnonzero(hit)]
        np.testing.assert_allclose(chosen, least[hit], atol=1e-5)
        assert (data.geom_ids[env].numpy()[clear & ~hit] == -1).all()
        between = np.linalg.norm(numpy(data.nearest_points_w[env]) - places, axis=1)
        np.testing.assert_allclose(between[hit], least[hit], atol=1e-5)
        assert hit.sum() > 30 and len({*data.geom_ids[env].tolist()}) > 8


def _on(shape: sn.engines.Shape, body: str) -> sn.engines.Shape:
    from dataclasses import replace

    return replace(shape, body=body)


def test_distance_over_a_height_field_slope_equals_that_to_a_plane() -> None:
    """For terrain z = 0.5 x + 0.25 y, the distance at height c above it is c / sqrt(1 + 0.5^2 + 0.25^2)."""
    x, y = np.meshgrid(np.linspace(-4, 4, 65), np.linspace(-4, 4, 33))
    field = sn.engines.HeightField(0.5 * x + 0.25 * y, (4.0, 4.0))
    engine = engine_of(1, [sn.engines.Shape("hfield", "slope", hfield=field)])
    rng = np.random.default_rng(0)
    places = np.c_[rng.uniform(-2, 2, (50, 2)), np.zeros(50)]
    above = rng.uniform(-1.0, 1.0, 50)
    places[:, 2] = 0.5 * places[:, 0] + 0.25 * places[:, 1] + above
    _, probe = probing(engine, body="world", probe_local_pos=places)
    normal = np.array([-0.5, -0.25, 1.0]) / math.sqrt(1.3125)
    expected = np.abs(above) / math.sqrt(1.3125)
    np.testing.assert_allclose(numpy(probe.data.distance)[0], expected, atol=32 * EPS * 4.0)
    foot = places - (above / math.sqrt(1.3125))[:, None] * normal
    np.testing.assert_allclose(numpy(probe.data.nearest_points_w)[0], foot, atol=64 * EPS * 4.0)


WORLD = """
<mujoco>
  <worldbody>
    <geom name="box" type="box" size=".2 .3 .4" pos="1 0 0" euler="20 30 40"/>
    <geom name="capsule" type="capsule" size=".1 .3" pos="-1 .2 0" euler="50 10 0"/>
    <body pos="0 1 .5"><freejoint/><geom name="cylinder" type="cylinder" size=".2 .3" euler="10 80 0"/></body>
    <body pos="0 -1 .5"><freejoint/><geom name="ellipsoid" type="ellipsoid" size=".2 .3 .1"/></body>
    <geom name="sphere" size=".25" pos="0 0 1.2"/>
    <body name="tip" pos="0 0 .4"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
      <geom name="dot" size="1e-6"/></body>
  </worldbody>
</mujoco>
"""


def test_distances_match_mujocos_from_a_point() -> None:
    """Distances match `mj_geomDistance` from a ball of 1 um at the probe to each shape, from 40 outside positions."""
    engine = sn.MujocoEngine(WORLD)
    names = ("box", "capsule", "cylinder", "ellipsoid", "sphere")
    probes = [SurfaceDistanceProbeCfg(name=name, body="tip", targets=name, probe_radius=9.0) for name in names]
    scene = sn.Scene(engine, probes)
    model = mujoco.MjModel.from_xml_string(WORLD)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(4)
    qpos = engine.qpos[0].numpy().copy()
    for _ in range(40):
        qpos[:3], qpos[7:10] = [0.0, 1.0, 0.5] + rng.normal(size=3) * 0.1, [0.0, -1.0, 0.5] + rng.normal(size=3) * 0.1
        qpos[14:17] = rng.uniform(-1.5, 1.5, 3)
        for start in (3, 10, 17):
            turn = rng.normal(size=4)
            qpos[start : start + 4] = turn / np.linalg.norm(turn)
        scene.reset(qpos=qpos[None])
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        for name in names:
            fromto = np.zeros(6)
            far = mujoco.mj_geomDistance(model, data, model.geom("dot").id, model.geom(name).id, 10.0, fromto) + 1e-6
            if far > 1e-3:
                assert abs(scene[name].data.distance.item() - far) < 1e-5
                np.testing.assert_allclose(numpy(scene[name].data.nearest_points_w)[0, 0], fromto[3:], atol=1e-3)


# Visibility -----------------------------------------------------------------------------------------------------------


def test_own_body_is_ignored_unless_requested() -> None:
    _, probe = probing(engine_of())
    assert probe.data.distance.item() == pytest.approx(0.9)
    _, seeing = probing(engine_of(), exclude_parent_body=False)
    assert seeing.data.distance.item() == pytest.approx(0.02)


def test_each_mount_ignores_only_its_own_body() -> None:
    """The hand detects the ball, and the ball detects the hand's shell."""
    _, near = probing(
        engine_of(), body=None, bodies=("hand", "ball"), probe_local_pos=((0, 0, 0),), exclude="ground", fields="all"
    )
    assert [[near.geom_names[i] for i in row] for row in near.data.geom_ids[0]] == [["ball"], ["shell"]]
    np.testing.assert_allclose(numpy(near.data.distance)[0], [[0.9], [0.98]], rtol=1e-6)


def test_static_meshes_on_mount_bodies_are_detected_by_other_mounts_only() -> None:
    """A slab of uneven scale, 1.2 m above ground, is on the hand: the ball's probe detects it, the hand's probe the
    ball.
    """
    corners = [[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    faces = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
             [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]  # fmt: skip
    slab = sn.engines.Shape(
        "mesh", "slab", mesh=sn.engines.Mesh(corners, faces), scale=(2.0, 2.0, -0.1), body="hand", pos=(0.0, 0.0, 1.3),
        is_static=True,
    )  # fmt: skip
    _, probe = probing(engine_of(1, (GROUND, slab, BALL)), body=None, bodies=("hand", "ball"), fields="all")
    assert [[probe.geom_names[i] for i in row] for row in probe.data.geom_ids[0]] == [["ball"], ["slab"]]
    np.testing.assert_allclose(numpy(probe.data.distance)[0], [[0.9], [0.2]], rtol=1e-6)


def test_sensors_share_mesh_trees() -> None:
    """Meshes that were scaled beforehand give the same result."""
    mesh = sn.engines.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
    shapes = [
        sn.engines.Shape("mesh", f"m{k}", mesh=mesh, body="ball", scale=scale)
        for k, scale in enumerate([(1.0, 2.0, 3.0), (1.0, 2.0, 3.0), (2.0, 2.0, -2.0)])
    ]
    cfgs = [SurfaceDistanceProbeCfg(name=name, body="hand") for name in "ab"]
    scene = sn.Scene(engine_of(16, shapes), cfgs)
    first, second = (scene[name]._query._trees.mesh.numpy().tolist() for name in "ab")
    assert first == second and first[0] == first[1] != first[2]


@pytest.mark.parametrize(
    ("selection", "distance"),
    [
        ({"targets": "ground"}, 1.0),
        ({"targets": ("ball",)}, 0.9),
        ({"exclude": "ball"}, 1.0),
        ({"labels": "floor"}, 1.0),
        ({"include_geom_groups": (2,)}, 0.9),
    ],
    ids=str,
)
def test_names_groups_and_labels_select_shapes(selection: dict[str, Any], distance: float) -> None:
    shapes = (
        sn.engines.Shape("plane", "ground", labels=("floor",)),
        sn.engines.Shape("sphere", "ball", (0.1,), body="ball", group=2),
    )
    _, probe = probing(engine_of(1, shapes), **selection)
    assert probe.data.distance.item() == pytest.approx(distance)


# Reach and misses -----------------------------------------------------------------------------------------------------


def test_surfaces_beyond_the_radius_are_not_found() -> None:
    """By default a miss is +inf in all fields in metres, and -1 as shape; the radius may differ between probes."""
    places = ((0, 0, 0), (0, 0, -0.25), (0, 0, -0.5))
    _, probe = probing(engine_of(), probe_local_pos=places, probe_radius=(0.5, 0.75, 0.25), fields="all")
    assert probe.data.distance.tolist() == [[math.inf, 0.75, math.inf]]
    assert probe.data.nearest_points_w[0, 0].tolist() == [math.inf] * 3
    assert probe.data.geom_ids.tolist() == [[-1, 0, -1]]
    assert SurfaceDistanceProbeCfg(body="hand").probe_radius == 0.5


@pytest.mark.parametrize("noise", [None, 0.001])
def test_misses_can_be_shown_as_a_number_or_as_in_genesis(noise: float | None) -> None:
    """Noise never changes a miss."""
    places = ((0.0, 0.0, 0.0), (0.0, 0.0, -0.75))
    _, number = probing(engine_of(), probe_local_pos=places, probe_radius=0.5, no_hit_value=-1.0, noise=noise)
    assert number.data.distance[0, 0] == number.ground_truth.distance[0, 0] == -1.0
    assert number.data.nearest_points_w[0, 0].tolist() == [math.inf] * 3
    _, near = probing(engine_of(), probe_local_pos=places, probe_radius=(0.5, 0.4), misses_at_radius=True, noise=noise)
    assert near.data.distance[0, 0] == near.ground_truth.distance[0, 0] == 0.5
    assert near.data.nearest_points_w[0, 0].tolist() == [0.0, 0.0, 1.0]
    for probe in (number, near):
        assert probe.ground_truth.distance[0, 1] == 0.25
        assert abs(probe.data.distance[0, 1] - 0.25) < 0.01


def test_window_with_a_miss_is_a_miss_for_any_miss_value() -> None:
    """A stage that runs at every tick receives misses as infinite and does not average the miss value."""
    engine = engine_of()
    scene, probe = probing(
        engine, targets="ground", probe_radius=1.0, no_hit_value=-7.0, stages=(sn.stages.WindowAverage(),), rate_hz=25.0
    )
    for heights, measured in (((0.25, 2.0, 0.75, 0.5), -7.0), ((0.25, 0.25, 0.75, 0.75), 0.5)):
        for height in heights:
            engine.body_pos_w[:, 0, 2] = height
            scene.update()
        assert probe.data.distance.item() == pytest.approx(measured)
        assert probe.ground_truth.distance.item() == heights[-1]


def test_distance_below_the_minimum_is_a_miss() -> None:
    _, probe = probing(engine_of(), probe_local_pos=((0, 0, -0.5), (0, 0, -0.9)), min_distance=0.2)
    assert probe.data.distance.tolist() == [[0.5, math.inf]]


# Layout ---------------------------------------------------------------------------------------------------------------


def test_a_grid_of_probes_keeps_its_layout() -> None:
    grid = np.zeros((2, 3, 3))
    grid[..., 2] = -np.arange(6).reshape(2, 3) * 0.125
    _, probe = probing(engine_of(4), probe_local_pos=grid, targets="ground")
    assert probe.data.distance.shape == (4, 2, 3) and probe.data.nearest_points_w.shape == (4, 2, 3, 3)
    np.testing.assert_array_equal(numpy(probe.data.distance)[0], 1.0 + grid[..., 2])
    assert probe.specs[0].axes == ("row", "column") and probe.num_probes == 6
    _, plural = probing(engine_of(4), body=None, bodies=("hand",), probe_local_pos=grid)
    assert plural.data.distance.shape == (4, 1, 2, 3)


# Measured -------------------------------------------------------------------------------------------------------------


def test_the_measured_point_is_at_the_measured_distance_along_the_true_direction() -> None:
    """Noise is along the true distance, also if its direction is not an axis; the truth has no noise."""
    _, probe = probing(engine_of(64), probe_local_pos=((0.6, 0.1, 0.1),), noise=0.02, targets="ball", resolution=0.01)
    data, truth = probe.data, probe.ground_truth
    p = np.array([0.6, 0.1, 1.1])
    way = numpy(truth.nearest_points_w) - p
    np.testing.assert_allclose(np.linalg.norm(way, axis=-1), numpy(truth.distance), rtol=1e-6)
    unit = way / np.linalg.norm(way, axis=-1, keepdims=True)
    expected = p + numpy(data.distance)[..., None] * unit
    np.testing.assert_allclose(numpy(data.nearest_points_w), expected, atol=1e-6)
    np.testing.assert_allclose(numpy(data.distance) / 0.01, np.rint(numpy(data.distance) / 0.01), atol=1e-4)
    assert 0.01 < float((data.distance - truth.distance).std()) < 0.03


def test_a_clean_probe_measures_the_truth() -> None:
    _, probe = probing(engine_of(2))
    assert torch.equal(probe.data.distance, probe.ground_truth.distance)


def test_delay_shows_an_earlier_sample() -> None:
    engine = engine_of()
    scene, probe = probing(engine, delay=0.02, targets="ball")
    for step in range(4):
        engine.body_pos_w[:, 1, 0] = 1.5 + step
        scene.update()
    assert probe.data.distance.item() == pytest.approx(2.4)
    assert probe.ground_truth.distance.item() == pytest.approx(4.4)


# Response of a device -------------------------------------------------------------------------------------------------

TABLE = ((0.0, 1000.0, 0.0), (0.1, 1000.0, 0.1), (0.2, 400.0, 0.1), (0.4, 50.0, 0.2))


def test_lookup_converts_distances_to_device_values() -> None:
    """The response is linear between the rows, and the last row's value applies beyond it and for a miss."""
    heights = np.array([0.05, 0.15, 0.3, 0.4, 0.6, 0.9])
    places = np.c_[np.zeros((6, 2)), heights - 1.0]
    _, probe = probing(
        engine_of(), probe_local_pos=places, probe_radius=0.7, targets="ground",
        lookup=[(d, v, 0.0) for d, v, _ in TABLE],
    )  # fmt: skip
    expected = np.interp(heights, [0.0, 0.1, 0.2, 0.4], [1000.0, 1000.0, 400.0, 50.0])
    np.testing.assert_allclose(numpy(probe.data.value)[0], expected, rtol=1e-5)
    assert torch.equal(probe.data.value, probe.ground_truth.value) and probe.data.distance[0, 5] == math.inf


@pytest.mark.parametrize("shown", [{"no_hit_value": 0.0}, {"misses_at_radius": True}], ids=str)
@pytest.mark.parametrize("knobs", [{}, {"noise": 0.0}, {"fields": ("value",)}], ids=str)
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_lookup_responds_to_a_miss_for_any_miss_value(noise: float, knobs: Any, shown: Any) -> None:
    """Beyond the table's last row its value applies: 0.4 V, in truth and measured, though the distance reads 0 m."""
    engine = sn.TensorEngine(2, shapes=[sn.engines.Shape("plane", "ground")])
    engine.body_pos_w[:, 0, 2] = torch.tensor([0.5, 5.0])
    lookup = ((0.1, 2.3, 0.0), (0.5, 1.0, 0.0), (1.6, 0.4, noise))
    probe: Any = sn.Scene(engine, [SurfaceDistanceProbeCfg(body="body", lookup=lookup, **knobs, **shown)], seed=0)[
        "surface_distance_probe"
    ]
    for data in (probe.data, probe.ground_truth):
        np.testing.assert_allclose(numpy(data.value), [[1.0], [0.4]], rtol=1e-6)
        if data.distance is not None:
            np.testing.assert_allclose(numpy(data.distance)[1], shown.get("no_hit_value", 0.5))


def test_the_noise_of_a_lookup_is_relative_to_the_value_and_independent() -> None:
    """For 4000 readings at 0.3 m (225, 15 %) mean and sd are within 5 standard errors; the truth has no noise."""
    n = 4000
    _, probe = probing(engine_of(n), probe_local_pos=((0, 0, -0.7), (0, 0, -1.0)), targets="ground", lookup=TABLE)
    values = numpy(probe.data.value)
    sd = 0.15 * 225.0
    assert abs(values[:, 0].mean() - 225.0) < 5 * sd / math.sqrt(n)
    assert abs(values[:, 0].std() - sd) < 5 * sd / math.sqrt(2 * n)
    np.testing.assert_array_equal(values[:, 1], 1000.0)
    np.testing.assert_allclose(numpy(probe.ground_truth.value)[:, 0], 225.0, rtol=1e-5)


def test_a_lookup_responds_to_the_measured_distance() -> None:
    _, both = probing(
        engine_of(), probe_local_pos=((0, 0, -0.75),), targets="ground", bias=0.05,
        lookup=((0.0, 0.0, 0.0), (1.0, 100.0, 0.0)),
    )  # fmt: skip
    assert both.data.value.item() == pytest.approx(30.0) and both.ground_truth.value.item() == pytest.approx(25.0)


# Faults and bad input -------------------------------------------------------------------------------------------------


def test_non_finite_shape_pose_invalidates_its_env_until_finite() -> None:
    engine = engine_of(3)
    scene, probe = probing(engine)
    assert probe.valid.tolist() == [True] * 3
    engine.body_pos_w[1, 1] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="ball"):
        scene.update()
        assert probe.valid.tolist() == [True, False, True]
    np.testing.assert_allclose(numpy(probe.data.distance)[[0, 2], 0], 0.9, rtol=1e-6)
    engine.body_pos_w[1, 1] = torch.tensor([1.0, 0.0, 1.0])
    scene.reset([1])
    assert probe.valid.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"probe_local_pos": ()}, r"probe_local_pos.*\[probe, 3\] or \[row, column, 3\]"),
        ({"probe_local_pos": ((0, 0, math.nan),)}, "probe_local_pos.*finite positions, m"),
        ({"probe_local_pos": (((0, 0, 0),), ((0, 0, 0), (0, 0, 1)))}, r"probe_local_pos.*all rows of a grid"),
        ({"probe_radius": 0.0}, "probe_radius: got 0.0, expected finite radii above 0, m"),
        ({"probe_radius": math.inf}, "probe_radius: got inf, expected finite radii above 0, m"),
        ({"probe_radius": (1.0, 2.0)}, "one number, or 1, one for each probe; not 2"),
        ({"probe_radius": 1.0, "min_distance": 1.5}, "probe_radius: got 1.0, expected above min_distance = 1.5 m"),
        ({"fields": ("distances",)}, "fields among distance, nearest_points_w.*distance"),
        ({"fields": ()}, "at least one field"),
        ({"fields": ("value",)}, "lookup: got None, expected a table for the field value"),
        (
            {"fields": ("nearest_points_w",), "noise": 0.1},
            "noise: got 0.1, expected no such option while distance is not",
        ),
        (
            {"fields": ("value",), "lookup": ((0, 0, 0), (1, 1, 0)), "bias": 0.1},
            "bias: got 0.1, expected no such option",
        ),
        ({"lookup": ((0.0, 1.0, 0.0),)}, "lookup.*at least two rows"),
        ({"lookup": ((0.0, 1.0, 0.0), (0.0, 2.0, 0.0))}, "lookup.*row 1 has 0 m after 0 m"),
        ({"lookup": ((0.0, 1.0, 0.0), (1.0, 2.0, -0.1))}, "lookup.*noise >= 0"),
        (
            {"misses_at_radius": True, "no_hit_value": 1.0},
            "misses_at_radius, no_hit_value: got True, 1.0, expected one of the two",
        ),
    ],
    ids=str,
)
def test_bad_input_is_refused_by_name(given: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        SurfaceDistanceProbeCfg(body="hand", **given)


def test_unknown_targets_raise() -> None:
    with pytest.raises(sn.SensoriumError, match="bal"):
        probing(engine_of(), targets="bal")


def test_config_round_trips_through_json() -> None:
    cfg = SurfaceDistanceProbeCfg(body="hand", probe_radius=2.0, targets="ball")
    again = SurfaceDistanceProbeCfg.from_json(json.dumps(json.loads(cfg.to_json())))
    assert again == cfg


# The contract ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, marks=pytest.mark.full),
        {"fields": "all", "lookup": ((0.0, 5.0, 0.1), (1.0, 1.0, 0.2)), "rate_hz": 200.0},
        {
            "probe_radius": (0.2, 3.0),
            "misses_at_radius": True,
            "noise": 0.01,
            "probe_local_pos": (((0, 0, 0), (0.1, 0, 0)),),
        },
        pytest.param({"probe_radius": (0.2, 3.0, 2.0), "no_hit_value": 7.0}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_contract_holds(given: dict[str, Any]) -> None:
    places = ((0, 0, 0), (0.1, 0, 0), (0, 0.2, -0.1))
    cfg = SurfaceDistanceProbeCfg(**{"body": "body", "probe_radius": 3.0, "probe_local_pos": places, **given})
    check_sensor(cfg, engine=tumbling_over_ground)


def test_debug_lines_connect_probes_to_nearest_points() -> None:
    _, probe = probing(engine_of(), probe_local_pos=((0.5, 0, 0), (0, 0, 50.0)), probe_radius=2.0)
    (shape,) = (each for each in probe.debug_draw() if each.kind == "lines")
    np.testing.assert_allclose(shape.data, [[[0.5, 0, 1.0], [0.9, 0, 1.0]]], atol=1e-6)
