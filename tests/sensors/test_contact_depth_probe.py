"""The contact depth probe: known depths, a slow reference, MuJoCo's distances, and radius noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from reference.surfaces import reference_distance

import sensorium as sn
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]

EPS = 2.0**-24
"""Half a unit in the last place of float32, relative: the rounding of one operation."""
BALL = sn.engines.Shape("sphere", "ball", (0.1,), body="thing")
BOX = sn.engines.Shape("box", "block", (0.2, 0.3, 0.1), body="thing")
GROUND = sn.engines.Shape("plane", "ground")
SHELL = sn.engines.Shape("sphere", "shell", (0.05,), body="tip")


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def engine_of(shapes: Any, envs: int = 1, **kwargs: Any) -> sn.TensorEngine:
    return sn.TensorEngine(envs, 0.01, bodies=("tip", "thing"), shapes=shapes, provides=("pose",), **kwargs)


def probing(engine: sn.engines.Engine, **cfg: Any) -> tuple[sn.Scene, sn.ContactDepthProbe]:
    scene = sn.Scene(engine, [sn.ContactDepthProbeCfg(name="skin", **{"link_name": "tip", **cfg})], seed=2)
    return scene, scene["skin"]  # type: ignore[return-value]


def turns(rng: np.random.Generator, *shape: int) -> Array:
    quat = rng.normal(size=(*shape, 4))
    unit: Array = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
    return unit


def back(quat: Array, vector: Array) -> Array:
    """Return a vector in the frame that a quaternion rotates into the world."""
    w, axis = quat[0], -quat[1:]
    twice = 2.0 * np.cross(axis, vector)
    out: Array = vector + w * twice + np.cross(axis, twice)
    return out


def scatter(engine: sn.TensorEngine, rng: np.random.Generator) -> tuple[Array, Array]:
    """Move both bodies to different poses in each env, and return their poses as the engine stores them."""
    envs = engine.num_envs
    engine.body_pos_w[:] = torch.tensor(rng.normal(size=(envs, 2, 3)) * 0.05)
    engine.body_quat_w[:] = torch.tensor(turns(rng, envs, 2))
    return numpy(engine.body_pos_w), numpy(engine.body_quat_w)


# Depth ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("far", "depth"), [(0.15, 0.0), (0.105, 0.005), (0.1, 0.01), (0.075, 0.035), (0.0, 0.11)], ids=str
)
def test_depth_in_a_ball_is_the_sum_of_radii_minus_the_distance(far: float, depth: float) -> None:
    """The depth is exactly 0 without contact, and correct with the probe centre inside the ball or at its centre."""
    engine = engine_of([BALL])
    engine.body_pos_w[0, 1] = torch.tensor([0.6, 0.0, 0.8]) * far
    _, skin = probing(engine)
    assert skin.data.shape == (1, 1) and skin.data.dtype == torch.float32
    assert skin.data.item() == pytest.approx(depth, abs=8 * EPS * 0.1)
    assert depth > 0.0 or skin.data.item() == 0.0


def test_depth_in_a_turned_box_is_per_env() -> None:
    """200 envs, both bodies in random poses, five probes: q = |p| - half, sd = |max(q, 0)| + min(max(q), 0)."""
    rng = np.random.default_rng(0)
    engine = engine_of([BOX], 200)
    pos, quat = scatter(engine, rng)
    places = rng.uniform(-0.3, 0.3, (5, 3)).astype(np.float32).astype(float)
    _, skin = probing(engine, probe_local_pos=places, probe_radius=0.05)
    expected = np.zeros((200, 5))
    for env in range(200):
        conjugate = quat[env, 0] * [1.0, -1.0, -1.0, -1.0]
        world = pos[env, 0] + np.array([back(conjugate, place) for place in places])
        q = np.abs([back(quat[env, 1], point - pos[env, 1]) for point in world]) - BOX.size
        signed = np.linalg.norm(np.maximum(q, 0.0), axis=1) + np.minimum(q.max(axis=1), 0.0)
        expected[env] = np.maximum(0.0, 0.05 - signed)
    np.testing.assert_allclose(numpy(skin.data), expected, atol=32 * EPS)
    assert 0.1 < (expected > 0.0).mean() < 0.9 and expected.max() > 0.1


def test_depth_over_a_slope_is_along_its_normal() -> None:
    """A plane rotated by 30 degrees about y, a probe at height h above its origin: sd = h cos 30."""
    quat = (math.cos(math.pi / 12), 0.0, math.sin(math.pi / 12), 0.0)
    engine = engine_of([sn.engines.Shape("plane", "slope", quat=quat)], 3)
    engine.body_pos_w[:, 0, 2] = torch.tensor([0.02, 0.0, -0.3])
    _, skin = probing(engine, probe_radius=0.04)
    expected = 0.04 - np.array([0.02, 0.0, -0.3]) * math.cos(math.pi / 6)
    np.testing.assert_allclose(numpy(skin.data)[:, 0], expected, atol=16 * EPS)


def cube() -> sn.engines.Mesh:
    """A closed mesh: the cube from -1 to 1."""
    corners = [[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    faces = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
             [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]  # fmt: skip
    return sn.engines.Mesh(corners, faces)


HEIGHTS = np.random.default_rng(5).uniform(0.0, 0.1, (4, 5))
CROWD = (
    sn.engines.Shape("sphere", "sphere", (0.1,), pos=(0.2, 0.0, 0.0)),
    sn.engines.Shape("capsule", "capsule", (0.05, 0.1), pos=(-0.2, 0.0, 0.1), quat=(0.6, 0.8, 0.0, 0.0)),
    sn.engines.Shape(
        "cylinder", "cylinder", (0.1, 0.05), pos=(0.0, 0.25, 0.0), quat=(0.8, 0.0, 0.6, 0.0), body="thing"
    ),
    sn.engines.Shape("ellipsoid", "ellipsoid", (0.1, 0.05, 0.15), pos=(0.0, -0.25, 0.0), body="thing"),
    sn.engines.Shape("box", "box", (0.1, 0.05, 0.08), pos=(0.1, 0.1, 0.25), quat=(0.6, 0.0, 0.0, 0.8)),
    sn.engines.Shape("plane", "plane", (0.0, 0.0), pos=(0.0, 0.0, -0.35)),
    sn.engines.Shape("mesh", "mesh", mesh=cube(), scale=(0.1, 0.1, 0.1), pos=(-0.1, -0.1, -0.2), body="thing"),
    sn.engines.Shape(
        "hfield", "hfield", hfield=sn.engines.HeightField(HEIGHTS, (0.3, 0.3), base=0.05), pos=(0.0, 0.0, -0.1)
    ),
)


def test_deepest_of_all_shapes_matches_the_slow_reference() -> None:
    """In four envs with 100 probes among eight shapes, some moving, depths are within 2e-6 m of brute force in
    float64.
    """
    rng = np.random.default_rng(1)
    engine = engine_of(CROWD, 4)
    pos, quat = scatter(engine, rng)
    places = rng.uniform(-0.35, 0.35, (100, 3)).astype(np.float32).astype(float)
    _, skin = probing(engine, probe_local_pos=places, probe_radius=0.03)
    shapes = [shape if shape.is_static else replace(shape, body=1) for shape in CROWD]
    deepest: set[int] = set()
    for env in range(4):
        conjugate = quat[env, 0] * [1.0, -1.0, -1.0, -1.0]
        world = pos[env, 0] + np.array([back(conjugate, place) for place in places])
        signed = np.array([reference_distance(shape, world, (pos[env], quat[env])).distance for shape in shapes])
        expected = np.maximum(0.0, 0.03 - signed.min(axis=0))
        np.testing.assert_allclose(numpy(skin.data)[env], expected, atol=2e-6)
        deepest |= set(signed.argmin(axis=0)[expected > 0.0].tolist())
    assert deepest == set(range(len(CROWD)))


def test_depth_is_the_radius_minus_the_distance_probes_reading() -> None:
    """Outside, the depth is R - distance; inside a single shape, R + distance. Both sensors touch the same shapes."""
    rng = np.random.default_rng(2)
    engine = engine_of([BOX], 50)
    scatter(engine, rng)
    places = rng.uniform(-0.3, 0.3, (8, 3))
    near = sn.SurfaceDistanceProbeCfg(name="near", body="tip", probe_local_pos=places, probe_radius=0.5)
    skin = sn.ContactDepthProbeCfg(name="skin", body="tip", probe_local_pos=places, probe_radius=0.05)
    scene = sn.Scene(engine, [near, skin])
    distance, depth = numpy(scene["near"].data.distance), numpy(scene["skin"].data)
    is_inside = depth > 0.05
    expected = np.where(is_inside, 0.05 + distance, np.maximum(0.0, 0.05 - distance))
    np.testing.assert_allclose(depth, expected, atol=32 * EPS)
    assert is_inside.any() and ((depth > 0.0) & ~is_inside).any() and (depth == 0.0).any()


WORLD = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="0.1 0.1 1" pos="0 0 -2" euler="10 20 0"/>
    <geom name="box" type="box" size=".2 .3 .4" pos="1 0 0" euler="20 30 40"/>
    <geom name="capsule" type="capsule" size=".1 .3" pos="-1 .2 0" euler="50 10 0"/>
    <body pos="0 1 .5"><freejoint/><geom name="cylinder" type="cylinder" size=".2 .3" euler="10 80 0"/></body>
    <body pos="0 -1 .5"><freejoint/><geom name="ellipsoid" type="ellipsoid" size=".2 .3 .1"/></body>
    <geom name="sphere" size=".25" pos="0 0 1.2"/>
    <body name="tip" pos="0 0 .4"><freejoint/><geom name="probe" size=".05"/></body>
  </worldbody>
</mujoco>
"""


def test_depth_equals_mujocos_penetration_of_a_ball() -> None:
    """Depths match `mj_geomDistance` of a ball of the probe's radius, if its centre is outside the other geom."""
    engine = sn.MujocoEngine(WORLD)
    names = ("floor", "box", "capsule", "cylinder", "ellipsoid", "sphere")
    probes = [sn.ContactDepthProbeCfg(name=name, body="tip", targets=name, probe_radius=0.05) for name in names]
    scene = sn.Scene(engine, probes)
    model = mujoco.MjModel.from_xml_string(WORLD)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(4)
    qpos = engine.qpos[0].numpy().copy()
    touched = dict.fromkeys(names, 0)
    for name in names:
        for _ in range(80):
            for start in (3, 10, 17):
                qpos[start : start + 4] = turns(rng)
            data.qpos[:] = qpos
            mujoco.mj_forward(model, data)
            geom = model.geom(name)
            way = rng.normal(size=3)
            way *= rng.uniform(0.05, 0.45) / np.linalg.norm(way)
            qpos[14:17] = data.geom_xpos[geom.id] + way
            data.qpos[:] = qpos
            mujoco.mj_forward(model, data)
            far = mujoco.mj_geomDistance(model, data, model.geom("probe").id, geom.id, 1.0, None)
            if far < -0.049:  # the centre is inside, or nearly: other rules determine the exit direction there
                continue
            scene.reset(qpos=qpos[None])
            assert scene[name].data.item() == pytest.approx(max(0.0, -far), abs=5e-6), name
            touched[name] += far < 0.0
    assert min(touched.values()) >= 5, touched


# Detected shapes ------------------------------------------------------------------------------------------------------


def test_own_link_is_ignored_and_every_other_shape_detected() -> None:
    """A probe ignores its own link's shell and shapes without collisions."""
    ghost = replace(BALL, name="ghost", is_collision=False)
    engine = engine_of([SHELL, ghost])
    engine.body_pos_w[0, 1, 0] = 0.105
    assert probing(engine)[1].data.item() == pytest.approx(0.005, abs=1e-7)
    assert probing(engine, geometry="collision", exclude_parent_body=False)[1].data.item() == pytest.approx(0.06)
    assert probing(engine, exclude_parent_body=False)[1].data.item() == pytest.approx(0.06)


ARM = """
<mujoco><worldbody><body name="arm"><geom name="arm" size=".1"/>
  <body name="hand" pos=".15 0 0"><geom name="hand" size=".1"/><joint/></body></body></worldbody></mujoco>
"""


def test_other_links_of_the_robot_are_detected_unless_excluded() -> None:
    """The probe at the hand's origin is 0.06 m deep in the arm: R - (0.15 - 0.1), R = 0.11."""
    _, skin = probing(sn.MujocoEngine(ARM), link_name="hand", probe_radius=0.11)
    assert skin.data.item() == pytest.approx(0.06, abs=1e-6)
    _, blind = probing(sn.MujocoEngine(ARM), link_name="hand", probe_radius=0.11, exclude_own_links=True)
    assert blind.data.item() == 0.0


@pytest.mark.parametrize(
    ("selection", "depth"),
    [
        ({}, 0.009),
        ({"targets": "ball"}, 0.005),
        ({"exclude": "ground"}, 0.005),
        ({"exclude": ("ground", "thing")}, 0.0),
        ({"labels": "toy"}, 0.005),
        ({"geometry": "collision"}, 0.005),
        ({"include_geom_groups": (2,)}, 0.009),
    ],
    ids=str,
)
def test_names_labels_groups_and_geometry_select(selection: dict[str, Any], depth: float) -> None:
    """A ball on a body penetrates by 5 mm and a non-colliding ground by 9 mm; a wall is far away."""
    ball = replace(BALL, labels=("toy",))
    ground = replace(GROUND, is_collision=False, group=2)
    engine = engine_of([ball, ground, sn.engines.Shape("box", "wall", (0.1, 0.1, 0.1), pos=(3.0, 0.0, 0.0))])
    engine.body_pos_w[0, 0, 2] = 0.001
    engine.body_pos_w[0, 1] = torch.tensor([0.105, 0.0, 0.001])
    _, skin = probing(engine, **selection)
    assert skin.data.item() == pytest.approx(depth, abs=1e-7)


def test_engine_velocities_are_not_required() -> None:
    assert {need.kind for need in sn.ContactDepthProbe.requires} == {"BODY_POSE", "SHAPES"}


# Layout ---------------------------------------------------------------------------------------------------------------


def test_grids_lists_and_several_links_keep_their_axes() -> None:
    """Radii are given row by row; a probe without a radius keeps its position and reads 0, even inside a solid."""
    engine = engine_of([GROUND], 2)
    grid = np.zeros((2, 3, 3))
    radii = (0.01, 0.02, 0.0, 0.04, 0.05, 0.06)
    _, skin = probing(engine, probe_local_pos=grid, probe_radius=radii)
    np.testing.assert_allclose(numpy(skin.data), [np.reshape(radii, (2, 3))] * 2, rtol=1e-6)
    assert skin.data.shape == (2, 2, 3) and skin.specs[0].axes == ("row", "column") and skin.num_probes == 6
    engine.body_pos_w[:, 1, 2] = -0.01
    _, both = probing(engine, link_name=None, link_names=("thing", "tip"), probe_local_pos=grid, probe_radius=radii)
    assert both.data.shape == (2, 2, 2, 3)
    np.testing.assert_allclose(numpy(both.data)[1, 1].ravel(), radii, rtol=1e-6)
    sunk = np.where(np.array(radii) > 0.0, np.array(radii) + 0.01, 0.0)
    np.testing.assert_allclose(numpy(both.data)[1, 0].ravel(), sunk, rtol=1e-6)


def test_probes_rotate_with_their_link_and_offset() -> None:
    """A link on its side presses its probe, 0.1 m along x of a frame that is 0.2 m along x, to the ground below."""
    engine = engine_of([GROUND])
    half = math.sqrt(0.5)
    engine.body_pos_w[0, 0, 2] = 0.305
    engine.body_quat_w[0, 0] = torch.tensor([half, 0.0, half, 0.0])  # x points down
    _, skin = probing(engine, probe_local_pos=((0.1, 0.0, 0.0),), offset=sn.OffsetCfg(pos=(0.2, 0.0, 0.0)))
    assert skin.data.item() == pytest.approx(0.005, abs=8 * EPS)


# Imperfections --------------------------------------------------------------------------------------------------------


def buried(envs: int = 64, **cfg: Any) -> tuple[sn.Scene, sn.ContactDepthProbe]:
    """Return probes whose centres are in the ground surface, so that the depth is the radius."""
    return probing(engine_of([GROUND], envs), probe_local_pos=np.zeros((4, 4, 3)), probe_radius=0.01, **cfg)


def test_radius_noise_is_uniform_and_independent_from_sample_env_and_probe() -> None:
    """20480 draws pass a Kolmogorov-Smirnov test (p = 1e-4), have the right mean, and no correlation with
    neighbours.
    """
    a = 0.002
    scene, skin = buried(probe_radius_noise=a)
    draws = []
    for _ in range(20):
        scene.update()
        draws.append((numpy(skin.data) - numpy(skin.ground_truth)) / a)
    u = np.stack(draws)  # [sample, env, row, column]
    n = u.size
    assert np.abs(u).max() <= 1.0 + 1e-5
    ranks = np.sort(u.ravel())
    law = 0.5 * (ranks + 1.0)
    distance = max((np.arange(1, n + 1) / n - law).max(), (law - np.arange(n) / n).max())
    assert distance * math.sqrt(n) < 2.23  # 2 exp(-2 x^2) = 1e-4
    assert abs(u.mean()) < 5.0 / math.sqrt(3.0 * n)
    for axis in range(4):
        product = 3.0 * (u * np.roll(u, 1, axis=axis)).mean()  # a correlation: the variance is 1/3
        assert abs(product) < 5.0 / math.sqrt(n), f"axis {axis}"


def test_radius_noise_causes_false_and_missed_contacts() -> None:
    """At a distance g from a probe its mean depth is that of max(0, U a - g): (a - g)^2 / 4a; the truth is 0."""
    a, gap, envs = 0.004, 0.001, 400
    engine = engine_of([GROUND], envs)
    engine.body_pos_w[:, 0, 2] = 0.01 + gap
    _, skin = probing(engine, probe_local_pos=np.zeros((50, 3)), probe_radius_noise=a)
    values = numpy(skin.data).ravel()
    assert (skin.ground_truth == 0.0).all() and (values >= 0.0).all()
    mean, square = (a - gap) ** 2 / (4.0 * a), (a - gap) ** 3 / (6.0 * a)
    assert abs(values.mean() - mean) < 5.0 * math.sqrt((square - mean**2) / values.size)
    assert (values == 0.0).mean() == pytest.approx(0.5 * (1.0 + gap / a), abs=5.0 * 0.5 / math.sqrt(values.size))


def test_a_drawn_radius_is_never_below_zero() -> None:
    """For a radius of 1 mm with noise of 3 mm and the centre in the surface, the depth is the drawn radius."""
    _, skin = probing(engine_of([GROUND], 500), probe_radius=0.001, probe_radius_noise=0.003)
    values = numpy(skin.data)[:, 0]
    assert values.min() == 0.0 and values.max() <= 0.004 + 1e-9
    assert (values == 0.0).mean() == pytest.approx(1.0 / 3.0, abs=5.0 * math.sqrt(2.0 / 9.0 / 500))


def test_radius_noise_is_deterministic_per_seed() -> None:
    first, again = (buried(probe_radius_noise=0.001)[1].read() for _ in range(2))
    assert torch.equal(first, again)
    cfg = sn.ContactDepthProbeCfg(
        name="skin", link_name="tip", probe_local_pos=np.zeros((4, 4, 3)), probe_radius_noise=0.001
    )
    other = sn.Scene(engine_of([GROUND], 64), [cfg], seed=3)["skin"].data
    assert not torch.equal(first, other)


def test_radius_noise_does_not_change_a_bit_of_the_truth() -> None:
    """The same holds among shapes of all kinds, for which the search range is then larger."""
    places = np.random.default_rng(3).uniform(-0.35, 0.35, (300, 3))
    truths = []
    for noise in (0.0, 0.02):
        engine = engine_of(CROWD, 4)
        scatter(engine, np.random.default_rng(1))
        truths.append(probing(engine, probe_local_pos=places, probe_radius_noise=noise)[1].read_ground_truth())
    assert torch.equal(*truths) and (truths[0] > 0.0).any()


def test_the_measured_depth_is_clean_without_knobs() -> None:
    _, skin = buried()
    assert torch.equal(skin.data, skin.ground_truth)


def test_noise_bias_and_stages_act_on_the_depth_but_never_on_a_probe_without_radius() -> None:
    """Row 0 has no radius: it reads 0 with any additional error; the truth is the radius."""
    radii = (0.0, 0.0, 0.01, 0.01)
    _, skin = probing(
        engine_of([GROUND], 200), probe_local_pos=np.zeros((2, 2, 3)), probe_radius=radii, noise=0.001, bias=0.002,
        probe_radius_noise=0.001, stages=(sn.stages.Saturation(low=-1.0, high=0.0125),),
    )  # fmt: skip
    assert (skin.data[:, 0] == 0.0).all()
    row = numpy(skin.data)[:, 1]
    assert row.max() == pytest.approx(0.0125) and row.std() > 2e-4
    np.testing.assert_allclose(numpy(skin.ground_truth), [np.reshape(radii, (2, 2))] * 200, rtol=1e-6)


def test_delay_and_history_show_earlier_samples() -> None:
    engine = engine_of([GROUND])
    scene, skin = probing(engine, delay=0.02, history_length=3)
    for k in range(4):
        engine.body_pos_w[:, 0, 2] = -0.001 * k
        scene.update()
    assert skin.data.item() == pytest.approx(0.011) and skin.ground_truth.item() == pytest.approx(0.013)
    np.testing.assert_allclose(numpy(skin.history)[0, :, 0], [0.013, 0.012, 0.011], rtol=1e-5)


# The contract ---------------------------------------------------------------------------------------------------------


def test_genelab_name_is_an_alias() -> None:
    assert sn.ContactDepthProbeCfg.kind() == "contact_depth_probe"


def test_shape_without_pose_invalidates_the_sample() -> None:
    engine = engine_of([BALL], 2)
    scene, skin = probing(engine)
    assert skin.valid.tolist() == [True, True]
    engine.body_pos_w[1, 1] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="thing"):
        scene.update()
        assert skin.valid.tolist() == [True, False]
    engine.body_pos_w[1, 1] = 0.0
    scene.reset([1])
    assert skin.valid.tolist() == [True, True] and skin.data[1].item() == pytest.approx(0.11)


def test_debug_points_show_touching_probes() -> None:
    engine = engine_of([GROUND], 2)
    engine.body_pos_w[:, 0] = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 5.0]])
    engine.body_quat_w[:, 0] = torch.tensor([0.0, 0.0, 0.0, 1.0])  # half a turn about z
    _, skin = probing(engine, probe_local_pos=((0.1, 0.0, 0.005), (0.1, 0.0, 0.5)))
    (shape,) = skin.debug_draw()
    np.testing.assert_allclose(shape.data, [[-0.1, 0.0, 0.005]], atol=1e-6)
    assert list(shape.counts or ()) == [1, 0]


def tumbling_over_ground(num_envs: int, shift: float = 0.0) -> sn.TensorEngine:
    plain = tumbling_engine(num_envs, shift=shift)
    ground, box = (
        sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -0.5)),
        sn.engines.Shape("box", "box", (0.2, 0.3, 0.4)),
    )
    return sn.TensorEngine(
        num_envs, 0.002, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))}, motion=plain.motion,
        shapes=[ground, box], provides=("pose", "velocity", "acceleration", "gravity"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, marks=pytest.mark.full),
        {"probe_radius_noise": 0.05, "probe_radius": (0.0, 2.0), "noise": 0.01},
        {"rate_hz": 200.0, "delay": 0.01},
    ],
    ids=str,
)
def test_contract_holds(given: dict[str, Any]) -> None:
    check_sensor(sn.ContactDepthProbeCfg.example().replace(**given), engine=tumbling_over_ground)
