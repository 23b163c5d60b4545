"""Heights of feet over known terrain: planes, steps, slopes and a height field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]
INF = float("inf")
GROUND = sn.engines.Shape("plane", "ground")
STEP = sn.engines.Shape("box", "step", (0.5, 0.5, 0.1), pos=(0.5, 0.0, 0.1))
"""A step from x = 0 on, 0.2 m high."""
CROSS = sn.patterns.RingPatternCfg.single_ring(radius=0.1, num_samples=4)
"""Rays at the centre, then 0.1 m ahead, left, behind and right of it."""


def engine_of(
    shapes: Sequence[sn.engines.Shape], feet: Mapping[str, Sequence[float]], envs: int = 1
) -> sn.TensorEngine:
    """Return an engine with feet (bodies of that name, and a site at each) at positions."""
    engine = sn.TensorEngine(
        envs, bodies=tuple(feet), sites={f"{name}_sole": name for name in feet}, shapes=shapes
    )  # fmt: skip
    for k, place in enumerate(feet.values()):
        engine.body_pos_w[:, k] = torch.tensor(place)
    return engine


def heights_of(engine: sn.engines.Engine, **fields: Any) -> Array:
    """Return the measured heights."""
    mount = {} if {"site", "sites", "body"} & {*fields} else {"sites": ".*_sole"}
    cfg = sn.TerrainHeightCfg(**{"pattern": CROSS, **mount, **fields})
    return numpy(sn.Scene(engine, [cfg])[cfg].data.heights)


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


EDGE = {"on": (0.3, 0.0, 0.5), "edge": (0.05, 0.0, 0.5), "off": (-0.3, 0.0, 0.5)}
"""Feet 0.5 m up: over the step, 5 cm inside its edge, and beside it."""


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("min", [0.3, 0.3, 0.5]), ("max", [0.3, 0.5, 0.5]), ("mean", [0.3, 0.34, 0.5])],
)
def test_the_rays_of_a_foot_are_reduced_to_one_height(reduction: str, expected: list[float]) -> None:
    """At the edge one ray of five, 0.1 m behind, hits the ground beside the step."""
    heights = heights_of(engine_of([GROUND, STEP], EDGE), reduction=reduction)
    np.testing.assert_allclose(heights, [expected], atol=1e-6)


def test_without_reduction_every_ray_has_its_height() -> None:
    cfg = sn.TerrainHeightCfg(sites=".*_sole", pattern=CROSS, reduction="none")
    sensor = sn.Scene(engine_of([GROUND, STEP], EDGE), [cfg])[cfg]
    expected = [[[0.3] * 5, [0.3, 0.3, 0.3, 0.5, 0.3], [0.5] * 5]]
    np.testing.assert_allclose(numpy(sensor.data.heights), expected, atol=1e-6)
    assert sensor.flat.heights.shape == (1, 15)


def test_a_singular_mount_has_no_mount_axis() -> None:
    engine = engine_of([GROUND], EDGE, envs=3)
    assert heights_of(engine, site="on_sole").shape == (3,)
    assert heights_of(engine, site="on_sole", reduction="none").shape == (3, 5)
    assert heights_of(engine).shape == (3, 3)


def test_the_default_is_a_ring_of_rays_that_follows_the_heading_only() -> None:
    cfg = sn.TerrainHeightCfg(sites=".*")
    assert cfg.ray_alignment == "yaw" and cfg.max_distance == 10.0 and cfg.reduction == "min"
    engine = engine_of([GROUND], {"foot": (0.0, 0.0, 0.5)})
    attitude = Rotation.from_euler("ZY", [50.0, 35.0], degrees=True)
    engine.body_quat_w[:, 0] = torch.tensor(attitude.as_quat(scalar_first=True))
    sensor = sn.Scene(engine, [cfg])[cfg]
    starts = numpy(cfg.pattern.rays("cpu").starts)
    turned = Rotation.from_euler("z", 50.0, degrees=True).apply(starts)
    np.testing.assert_allclose(numpy(sensor.data.ray_hits_w)[0, 0, :, :2], turned[:, :2], atol=1e-6)
    np.testing.assert_allclose(numpy(sensor.data.heights), [[0.5]], atol=1e-6)


def test_heights_are_vertical_for_slanted_offset_rays() -> None:
    """On a slope of 20 degrees the height is z - z_hit of each hit, for inclined rays that start 0.2 m above the
    foot.
    """
    slope = math.radians(20.0)
    plane = sn.engines.Shape("plane", "slope", quat=(math.cos(-slope / 2), 0.0, math.sin(-slope / 2), 0.0))
    pattern = sn.patterns.RingPatternCfg.single_ring(radius=0.1, num_samples=4, direction=(0.5, 0.2, -1.0))
    foot = np.array([0.4, -0.2, 0.9])
    engine = engine_of([plane], {"foot": foot.tolist()})
    fields = {"pattern": pattern, "offset": sn.OffsetCfg(pos=(0.0, 0.0, 0.2))}
    heights = heights_of(engine, reduction="none", **fields)
    normal = np.array([-math.sin(slope), 0.0, math.cos(slope)])
    direction = np.array([0.5, 0.2, -1.0])
    starts = foot + numpy(pattern.rays("cpu").starts) + [0.0, 0.0, 0.2]
    hits = starts - (starts @ normal / (direction @ normal))[:, None] * direction
    np.testing.assert_allclose(heights[0, 0], foot[2] - hits[:, 2], atol=1e-6)


def test_a_foot_inside_the_terrain_has_height_zero() -> None:
    """Rays inside the box hit its bottom from within; those outside keep their height over the ground."""
    engine = engine_of([sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -1.0)), STEP], {"foot": (0.05, 0.0, 0.15)})
    np.testing.assert_allclose(heights_of(engine, reduction="none"), [[[0.0, 0.0, 0.0, 1.15, 0.0]]], atol=1e-6)
    np.testing.assert_allclose(heights_of(engine), [[0.0]], atol=1e-6)


def test_rays_from_above_give_a_foot_in_the_ground_a_negative_height() -> None:
    """From below its surface a plane is not hit; rays that start higher measure how deep the foot is."""
    engine = engine_of([GROUND], {"foot": (0.0, 0.0, -0.01)})
    assert heights_of(engine).tolist() == [[INF]]
    np.testing.assert_allclose(heights_of(engine, offset=sn.OffsetCfg(pos=(0.0, 0.0, 0.1))), [[-0.01]], atol=1e-6)


ISLAND = sn.engines.Shape("box", "island", (0.3, 0.3, 0.1))


@pytest.mark.parametrize(
    ("fields", "edge", "away"),
    [
        ({"reduction": "max", "max_distance": 3.0}, 3.0, INF),
        ({"reduction": "min", "max_distance": 3.0}, 0.9, INF),
        ({"reduction": "mean", "max_distance": 3.0}, (4 * 0.9 + 3.0) / 5, INF),
        ({"no_hit_value": -1.0}, 0.9, -1.0),
        ({"no_hit_value": -1.0, "noise": 0.0}, 0.9, -1.0),
        ({"no_hit_value": -1.0, "reduction": "mean"}, (4 * 0.9 + 10.0) / 5, -1.0),
        ({"mount_height_on_miss": True}, 0.9, 1.0),
        ({"mount_height_on_miss": True, "max_distance": 0.95}, 0.9, 0.95),
        ({"max_distance": 0.5}, INF, INF),
    ],
    ids=str,
)
def test_partial_misses_are_far_and_full_misses_are_no_height(fields: dict[str, Any], edge: float, away: float) -> None:
    """A foot with one ray of five beside an island, and a distant foot, are both 1 m up."""
    engine = engine_of([ISLAND], {"edge": (-0.25, 0.0, 1.0), "away": (5.0, 0.0, 1.0)})
    np.testing.assert_allclose(heights_of(engine, **fields), [[edge, away]], atol=1e-6)


def test_foot_without_any_hit_has_no_height() -> None:
    engine = engine_of([ISLAND], {"edge": (-0.25, 0.0, 1.0), "away": (5.0, 0.0, -1.0)})
    heights = heights_of(engine, reduction="none")
    np.testing.assert_allclose(heights, [[[0.9, 0.9, 0.9, 10.0, 0.9], [INF] * 5]], atol=1e-6)
    legacy = heights_of(engine, reduction="none", mount_height_on_miss=True)
    np.testing.assert_allclose(legacy[0, 1], [0.0] * 5, atol=1e-6)


def test_environments_have_their_own_feet_and_platforms() -> None:
    """A moving platform is under the foot in env 1 only."""
    platform = sn.engines.Shape("box", "platform", (0.3, 0.3, 0.1), body="lift")
    engine = engine_of([GROUND, platform], {"foot": (0.0, 0.0, 1.0), "lift": (5.0, 0.0, 0.2)}, envs=3)
    engine.body_pos_w[1, 1] = torch.tensor([0.0, 0.0, 0.2])
    engine.body_pos_w[2, 0, 2] = 0.6
    np.testing.assert_allclose(heights_of(engine, site="foot_sole"), [1.0, 0.7, 0.6], atol=1e-6)


def test_measured_heights_follow_from_noisy_distances() -> None:
    """Each height of a vertical ray has the error of its distance; the smallest height is reported."""
    cfgs = [sn.TerrainHeightCfg(name=name, site="foot_sole", pattern=CROSS, noise=0.02, reduction=reduction)
            for name, reduction in (("all", "none"), ("least", "min"))]  # fmt: skip
    scene = sn.Scene(engine_of([GROUND], {"foot": (0.0, 0.0, 1.0)}, envs=50), cfgs)
    for name in ("all", "least"):
        sensor = scene[name]
        distances = numpy(sensor.data.distances)
        assert 0.015 < (distances - 1.0).std() < 0.025  # 250 draws: 5.6 standard errors
        expected = distances if name == "all" else distances.min(axis=1)
        np.testing.assert_allclose(numpy(sensor.data.heights), expected, atol=1e-6)
        np.testing.assert_allclose(numpy(sensor.ground_truth.heights), 1.0, atol=1e-6)


def test_position_drift_moves_foot_and_rays_and_scan_drift_moves_hits() -> None:
    engine = engine_of([GROUND], {"foot": (0.0, 0.0, 1.0)}, envs=20)
    cfg = sn.TerrainHeightCfg(site="foot_sole", drift_range=(-0.2, 0.2), ray_cast_drift_range={"z": (0.05, 0.05)},
                              fields=("pos_w",))  # fmt: skip
    sensor = sn.Scene(engine, [cfg])[cfg]
    drift = numpy(sensor.data.pos_w - sensor.ground_truth.pos_w)[:, 2]
    assert np.unique(drift).size == 20
    np.testing.assert_allclose(numpy(sensor.data.heights), 1.0 + drift - 0.05, atol=1e-6)
    np.testing.assert_allclose(numpy(sensor.ground_truth.heights), 1.0, atol=1e-6)


def test_heights_over_a_height_field_are_those_of_its_surface() -> None:
    """On a wave that is linear between its columns, the foot's height is the sum with the surface below it."""
    x = np.linspace(-2.0, 2.0, 21)
    field = sn.engines.HeightField(np.tile(0.3 * np.sin(2.0 * x), (5, 1)), (2.0, 1.0))
    places = np.random.default_rng(0).uniform(-1.5, 1.5, 16)
    engine = engine_of([sn.engines.Shape("hfield", "hills", hfield=field)], {"foot": (0.0, 0.0, 0.0)}, envs=16)
    engine.body_pos_w[:, 0] = torch.tensor(np.stack([places, 0.0 * places, 0.0 * places + 1.0], axis=1))
    heights = heights_of(engine, site="foot_sole", pattern=sn.patterns.RingPatternCfg(rings=()))
    np.testing.assert_allclose(heights, 1.0 - np.interp(places, x, 0.3 * np.sin(2.0 * x)), atol=1e-5)


QUADRUPED = """
<mujoco>
  <worldbody>
    <body name="terrain"><geom type="plane" size="5 5 .1"/><geom type="box" size=".5 1 .05" pos=".5 0 .05"/></body>
    <body name="trunk" pos="0 0 .4"><freejoint/><geom type="box" size=".25 .1 .05" mass="5"/>
      <body name="front" pos=".2 0 -.1"><joint axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02"/><site name="front_foot" pos="0 0 -.2"/></body>
      <body name="rear" pos="-.2 0 -.1"><joint axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".02"/><site name="rear_foot" pos="0 0 -.2"/></body>
    </body>
  </worldbody>
</mujoco>
"""


def test_feet_of_a_falling_quadruped() -> None:
    """Both feet fall with g t^2 / 2; the front foot is over a box of 0.1 m. Only the terrain counts."""
    cfg = sn.TerrainHeightCfg(name="feet", sites=".*_foot", targets="terrain")
    scene = sn.Scene(sn.MujocoEngine(QUADRUPED, num_envs=2), [cfg])
    np.testing.assert_allclose(numpy(scene["feet"].data.heights), [[0.0, 0.1]] * 2, atol=1e-6)
    scene.reset(qpos=np.tile([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], (2, 1)))
    before = numpy(scene["feet"].data.heights)
    np.testing.assert_allclose(before, [[0.6, 0.7]] * 2, atol=1e-6)
    for _ in range(50):
        scene.step()
    fall = 0.5 * 9.81 * 0.1**2
    # semi-implicit Euler falls dt/2 * g * t more
    np.testing.assert_allclose(numpy(scene["feet"].data.heights), before - fall - 0.001 * 9.81 * 0.1, atol=1e-5)


def tumbling(envs: int) -> sn.TensorEngine:
    """Return a tumbling body above ground and a table."""
    model = tumbling_engine(envs)
    shapes = [sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -1.0)),
              sn.engines.Shape("box", "table", (0.3, 0.3, 0.1), pos=(0.0, 0.0, -0.5))]  # fmt: skip
    return sn.TensorEngine(
        envs, model.dt, sites={"site": ("body", (0.1, 0.0, 0.05))}, motion=model.motion, shapes=shapes,
        provides=("pose", "velocity", "acceleration", "gravity"), magnetic=(0.2, 0.0, -0.4),
    )  # fmt: skip


@pytest.mark.parametrize(
    "cfg",
    [
        sn.TerrainHeightCfg(body="body", fields="all"),
        sn.TerrainHeightCfg(sites="site", reduction="none", noise=0.01, drift_range=(-0.1, 0.1), no_hit_value=-1.0),
    ],
    ids=["clean", "noisy"],
)
def test_contract_holds(cfg: sn.SensorCfg[Any]) -> None:
    rules = check_sensor(cfg, tumbling)
    assert {"truth_is_never_altered", "resuming_is_exact", "env_count_does_not_matter"} <= {*rules}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reduction": "median"}, "reduction"),
        ({"fields": ("height",)}, "heights"),
        ({"max_distance": 0.0}, "max_distance"),
        ({"mount_height_on_miss": 3}, "mount_height_on_miss"),
        ({"pattern": "ring"}, "a pattern such as"),
    ],
    ids=str,
)
def test_contradictory_config_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.ConfigError, match=message):
        sn.TerrainHeightCfg(sites=".*", **fields)
