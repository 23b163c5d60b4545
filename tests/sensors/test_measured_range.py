"""Measured distances never leave the range of their sensor: rays and cameras report misses, probes saturate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm, truncnorm

import sensorium as sn

LOW, HIGH, NEAR, FAR = 0.5, 2.0, 0.55, 1.9
"""The range of all sensors, and heights close to its ends, m."""
SIGMA = 0.3
"""Deviation of the noise, m: far more than the gaps between the heights and the limits."""
DOWN = sn.CameraCfg.OffsetCfg(rot=(math.sqrt(0.5), 0.0, math.sqrt(0.5), 0.0), convention="world")
RAYS = sn.patterns.GridPatternCfg(size=(1.0, 1.0), resolution=0.05)
IMAGE: dict[str, Any] = {"res": (24, 20), "fov_horizontal": 40.0, "offset": DOWN}
BODY: dict[str, Any] = {"body": "body", "min_distance": LOW, "max_distance": HIGH}
PLACES = tuple((x, y, 0.0) for x in np.linspace(0.0, 1.0, 21) for y in np.linspace(0.0, 1.0, 21))
DISTANCES = ("distance_to_image_plane", "distance_to_camera")
LIDAR = {**BODY, "pattern": RAYS, "fields": "all"}

SENSORS: dict[str, sn.SensorCfg[Any]] = {
    "ray_caster": sn.RayCasterCfg(**LIDAR, noise=SIGMA, history_length=2, delay=0.002),
    "terrain_height": sn.TerrainHeightCfg(**LIDAR, reduction="none", noise=SIGMA),
    "lidar": sn.LidarCfg(**LIDAR, noise=SIGMA),
    "range_noise": sn.LidarCfg(**LIDAR, range_noise=SIGMA, channel_bias=0.0),
    "dropoff": sn.LidarCfg(
        **LIDAR, model="dropoff", dropoff_general_rate=0.0, dropoff_zero_intensity=0.0, noise_stddev=SIGMA
    ),
    "radar": sn.RadarCfg(**BODY, pattern=RAYS, fields="all", reference_snr=1e9, noise={"range": SIGMA}),
    "probe": sn.SurfaceDistanceProbeCfg(
        body="body", probe_local_pos=PLACES, min_distance=LOW, probe_radius=HIGH, fields="all", noise=SIGMA
    ),
    "depth_camera": sn.DepthCameraCfg(**BODY, **IMAGE, data_types=(*DISTANCES, "points_b"), noise=SIGMA),
    "camera": sn.CameraCfg(
        body="body", width=24, height=20, lens={"kind": "pinhole", "fovy": 30.0}, offset=DOWN, noise=SIGMA,
        clipping_range=(LOW, HIGH), data_types=(*DISTANCES, "points_b"),
    ),
}  # fmt: skip


def scene_at(height: float, configs: dict[str, Any], num_envs: int = 4) -> sn.Scene:
    """Return a scene with sensors at a height above the ground, which look down."""
    engine = sn.TensorEngine(num_envs, bodies=("body",), shapes=[sn.engines.Shape("plane", "ground")])
    engine.body_pos_w[:, 0, 2] = height
    return sn.Scene(engine, [cfg.replace(name=name) for name, cfg in configs.items()], seed=3)


def values_of(scene: sn.Scene, name: str) -> torch.Tensor:
    data = scene[name].data
    return next(getattr(data, key) for key in (DISTANCES[0], "distances", "range", "distance") if hasattr(data, key))


@pytest.fixture(scope="module", params=[NEAR, FAR])
def near_a_limit(request: pytest.FixtureRequest) -> tuple[float, sn.Scene]:
    return request.param, scene_at(request.param, SENSORS)


@pytest.mark.parametrize("name", [name for name in SENSORS if name != "depth_camera"])  # its limits vary by pixel
def test_values_in_the_range_keep_their_distribution(name: str, near_a_limit: tuple[float, sn.Scene]) -> None:
    """A normal distribution about the true height, cut at both limits: with misses, or saturated at a limit."""
    height, scene = near_a_limit
    values = values_of(scene, name).flatten().double().numpy()
    ends = (LOW - height) / SIGMA, (HIGH - height) / SIGMA
    inside = np.isfinite(values) & (values > LOW) & (values < HIGH)
    if name == "probe":
        assert np.isfinite(values).all() and values.min() >= LOW and values.max() <= HIGH
        for end, share in ((LOW, norm.cdf(ends[0])), (HIGH, norm.sf(ends[1]))):
            assert abs((values == end).mean() - share) < 4.0 * 0.5 / math.sqrt(len(values))
    else:
        found = values[np.isfinite(values)]
        assert np.isposinf(values[~np.isfinite(values)]).all() and LOW <= found.min() and found.max() <= HIGH
    expected = truncnorm(*ends, loc=height, scale=SIGMA)
    error = expected.std() / math.sqrt(inside.sum())
    assert abs(inside.mean() - np.diff(norm.cdf(ends))[0]) < 4.0 * 0.5 / math.sqrt(len(values))
    assert abs(values[inside].mean() - expected.mean()) < 4.0 * error


@pytest.mark.parametrize("name", ["ray_caster", "terrain_height", "lidar", "range_noise", "dropoff", "radar"])
def test_a_miss_by_noise_is_a_miss_in_every_field(name: str, near_a_limit: tuple[float, sn.Scene]) -> None:
    _, scene = near_a_limit
    data: Any = scene[name].data
    distance = values_of(scene, name)
    is_hit = distance.isfinite()
    assert is_hit.any() and not is_hit.all()
    torch.testing.assert_close((data.points_b[..., 2])[is_hit], -distance[is_hit], rtol=0.0, atol=1e-6)
    for field, none in (
        ("points_b", math.inf), ("points_w", math.inf), ("ray_hits_w", math.inf), ("geom_ids", -1),
        ("body_ids", -2), ("face_ids", -1), ("semantic_ids", 0), ("intensity", 0.0), ("cos_incidence", 0.0),
        ("snr", 0.0), ("velocity", 0.0),
    ):  # fmt: skip
        if hasattr(data, field):
            assert (getattr(data, field)[~is_hit] == none).all(), field
    if hasattr(data, "normals_w"):
        assert torch.equal(data.normals_w.norm(dim=-1), is_hit.float())
    if name == "terrain_height":
        assert torch.equal(data.heights.nan_to_num(posinf=0.0)[~is_hit].unique(), torch.tensor([HIGH]))
    if name == "ray_caster":
        history = scene[name].history.distances
        assert bool((history.isinf() | ((history >= LOW) & (history <= HIGH))).all())


@pytest.mark.parametrize("name", ["depth_camera", "camera"])
def test_fields_of_a_camera_agree(name: str, near_a_limit: tuple[float, sn.Scene]) -> None:
    """Depth, length of the ray and point are those of one measurement, whose range is as the page says."""
    _, scene = near_a_limit
    data: Any = scene[name].data
    depth, length, points = data.distance_to_image_plane[..., 0], data.distance_to_camera[..., 0], data.points_b
    assert torch.equal(depth.isfinite(), points.isfinite().all(dim=-1))
    torch.testing.assert_close(points[..., 2], depth, rtol=0.0, atol=1e-6)
    is_hit = length.isfinite()
    torch.testing.assert_close(points.norm(dim=-1)[is_hit], length[is_hit], rtol=0.0, atol=1e-5)
    assert is_hit.any() and not is_hit.all() and length[is_hit].min() >= LOW - 1e-6 and length[is_hit].max() <= HIGH


@pytest.mark.parametrize("behavior", ["zero", "max"])
def test_a_clipping_camera_shows_the_value_of_a_miss(behavior: Any) -> None:
    cfg = SENSORS["depth_camera"].replace(depth_clipping_behavior=behavior)
    values = values_of(scene_at(NEAR, {"camera": cfg}), "camera")
    shown = {"zero": 0.0, "max": HIGH}[behavior]
    is_miss = values == shown
    assert is_miss.any() and values[~is_miss].min() > LOW * math.cos(math.radians(30.0)) and values.max() <= HIGH


def test_rounding_ends_in_the_range() -> None:
    """A quantised range, and a range on the radar's grid of cells of 0.3 m: 0.6 to 1.8 m, and no 0.3, 0.0 or 2.1."""
    plain, step = {**BODY, "pattern": RAYS}, 0.3
    light = 299_792_458.0
    configs = {
        "ray_caster": sn.RayCasterCfg(**plain, noise=1.0, resolution=step),
        "lidar": sn.LidarCfg(**plain, noise=1.0, resolution=step, no_hit_value=-1.0),
        "radar": sn.RadarCfg(**plain, noise={"range": 1.0}, bandwidth=0.5 * light / step, grid=True),
        "camera": sn.DepthCameraCfg(**BODY, **IMAGE, noise=1.0, resolution=step),
    }
    scene = scene_at(NEAR, configs)
    for name in configs:
        values = values_of(scene, name)
        found = values[values.isfinite() & (values >= 0.0)].unique()
        assert torch.allclose(found, torch.arange(2, 7) * step), (name, found)


def test_faults_and_depth_errors_end_in_the_range() -> None:
    """A spike or a lost value is a miss; a camera shows lost values and holes as 0, which is not a measurement."""
    plain = {**BODY, "pattern": RAYS}
    spike = sn.stages.SpikeFault(probability=1.0, amount=-3.0)
    hole = sn.stages.StereoDepth(baseline=0.05, fov_deg=40.0, max_disparity=2.0, shadow=False)
    configs = {
        "spike": sn.LidarCfg(**plain, stages=(spike,)),
        "zero": sn.RayCasterCfg(**plain, stages=(sn.stages.Dropout(probability=1.0, mode="zero"),)),
        "no depth": sn.DepthCameraCfg(**BODY, **IMAGE, stages=(sn.stages.Dropout(probability=1.0, mode="zero"),)),
        "lost": sn.RayCasterCfg(**plain, fields="all", stages=(sn.stages.Dropout(probability=1.0, mode="miss"),)),
        "hole": sn.DepthCameraCfg(**BODY, **IMAGE, stages=(hole,)),
        "stereo": sn.DepthCameraCfg(**BODY, **IMAGE, stages=(hole.replace(max_disparity=math.inf, noise_px=2.0),)),
    }
    scene = scene_at(NEAR, configs, num_envs=1)
    assert all(values_of(scene, name).isinf().all() for name in ("spike", "zero", "lost"))
    assert (scene["lost"].data.geom_ids == -1).all() and (scene["lost"].data.normals_w == 0.0).all()
    assert (values_of(scene, "hole") == 0.0).all() and (values_of(scene, "no depth") == 0.0).all()
    depth = values_of(scene, "stereo")
    assert depth.isinf().any() and depth[depth.isfinite() & (depth != 0.0)].min() > 0.46


def test_points_of_a_lidar_without_distances_have_the_noise_of_its_knobs() -> None:
    cfg = sn.LidarCfg(body="body", pattern=RAYS, fields=("points_b",), noise=0.1)
    scene = scene_at(1.0, {"lidar": cfg})
    assert abs(float(scene["lidar"].data.points_b[..., 2].std()) - 0.1) < 0.01
