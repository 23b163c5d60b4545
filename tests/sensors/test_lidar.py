"""The lidar's geometry and timing: windows, channels, motion distortion and resets, checked against closed forms and
NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from synthetic import same, snapshot

import sensorium as sn
from sensorium.compat.carla import lidar_pattern
from sensorium.geometry.shapes import Shape
from sensorium.patterns import (
    LidarPatternCfg,
    RotatingMirrorPatternCfg,
    SpinningPatternCfg,
    TablePatternCfg,
)
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]

ROOM = (
    Shape("box", "east", (0.1, 20.0, 20.0), pos=(10.1, 0.0, 0.0), labels=("wall",)),
    Shape("box", "west", (0.1, 20.0, 20.0), pos=(-8.1, 0.0, 0.0), labels=("wall",)),
    Shape("plane", "ground", pos=(0.0, 0.0, -1.0)),
)
"""Faces at x = 10 and x = -8, and the ground 1 m below the origin."""
SLOW = SpinningPatternCfg(elevations=(-10.0, 0.0, 10.0), cycle_interval=1e-3, firing_interval=1e-4, rate_hz=10.0)
"""Three lasers, 100 cycles per turn of 0.1 s."""


def engine_of(
    shapes: Any = ROOM, envs: int = 1, dt: float = 0.002, bodies: tuple[str, ...] = ("body",), **kwargs: Any
) -> sn.TensorEngine:
    return sn.TensorEngine(envs, dt, bodies=bodies, shapes=list(shapes), **kwargs)


def scene_of(engine: sn.TensorEngine, seed: int = 1, **kwargs: Any) -> sn.Scene:
    return sn.Scene(engine, [sn.LidarCfg(**{"name": "lidar", "body": "body", "pattern": SLOW, **kwargs})], seed=seed)


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def driving(speed: Any, rate: float, at: Any = (0.0, 0.0, 0.0)) -> Any:
    """Return a motion with constant velocity, m/s, and yaw rate, rad/s, at the origin and level at time 1."""

    def motion(t: float) -> Mapping[str, Any]:
        half = 0.5 * rate * (t - 1.0)
        pos = np.asarray(at) + np.asarray(speed) * (t - 1.0)
        return {"body_pos_w": pos, "body_quat_w": (np.cos(half), 0.0, 0.0, np.sin(half))}

    return motion


# Windows, channels, angles --------------------------------------------------------------------------------------------


def test_vlp16_turn_has_exact_counts_per_channel_and_azimuth() -> None:
    """A scan of 0.1 s has 1808 rays for each of 16 lasers, evenly over the azimuth: 150 or 151 columns in each of
    12.
    """
    scene = scene_of(engine_of(dt=0.01), pattern=SpinningPatternCfg.vlp16(), rate_hz=10.0, fields="all")
    scene.step(substeps=10)
    data = scene["lidar"].data
    channel, azimuth = data.channel[0].numpy(), numpy(data.azimuth[0])
    assert np.bincount(channel).tolist() == [1808] * 16
    for laser in (0, 7, 15):
        counts = np.histogram(azimuth[channel == laser], bins=12, range=(-np.pi - 1e-6, np.pi + 1e-6))[0]
        assert counts.sum() == 1808 and set(counts.tolist()) <= {150, 151}
    degrees = np.degrees(numpy(data.elevation[0]))
    for laser, angle in ((0, -15.0), (1, 1.0), (14, -1.0), (15, 15.0)):
        assert degrees[channel == laser] == pytest.approx(angle, abs=1e-5)
    assert scene["lidar"].channels == 16


def test_rays_fire_at_their_times_before_the_capture() -> None:
    """Time offsets match the table, from -0.1 s up to the last cycle, and never exceed 0."""
    scene = scene_of(engine_of(), rate_hz=10.0, fields="all")
    scene.step(substeps=50)
    expected = (np.arange(100)[:, None] * 1e-3 + np.arange(3)[None] * 1e-4).ravel() - 0.1
    assert numpy(scene["lidar"].data.time_offset[0]) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("pattern", [SLOW, lidar_pattern(channels=4, points_per_second=4000.0)])
def test_sampling_twice_as_often_gives_the_same_points(pattern: Any) -> None:
    """At 20 Hz two scans together equal one scan at 10 Hz, point by point and in order."""
    whole = scene_of(engine_of(), rate_hz=10.0, pattern=pattern, fields="all")
    half = scene_of(engine_of(), rate_hz=20.0, pattern=pattern, fields="all")
    whole.step(substeps=100)
    parts = []
    for _ in range(4):
        half.step(substeps=25)
        parts.append(half["lidar"].read())
    for name in ("points_b", "distances", "channel", "azimuth", "intensity"):
        both = torch.cat([getattr(part, name)[0] for part in parts[2:]])
        assert torch.equal(both, getattr(whole["lidar"].data, name)[0]), name
    late = torch.cat([part.time_offset[0] for part in parts[2:]])
    late[: len(late) // 2] -= 0.05
    assert numpy(late) == pytest.approx(numpy(whole["lidar"].data.time_offset[0]), abs=1e-7)


def test_a_scan_of_a_pattern_that_does_not_repeat_is_a_window_of_it() -> None:
    """Scans of a mirror scanner differ from each other, are contiguous, and cover its whole table."""
    pattern = RotatingMirrorPatternCfg(elevation_range=(-7.0, 52.0), points_per_second=2000.0, period=0.4)
    scene = scene_of(engine_of(), pattern=pattern, rate_hz=10.0, fields="all")
    table, seen, ids = pattern.table(), [], []
    for k in range(1, 9):
        scene.step(substeps=50)
        lidar = scene["lidar"]
        assert lidar.num_rays == 200
        rows = (np.arange(200) + 200 * (k - 1)) % 800
        assert numpy(lidar.data.azimuth[0]) == pytest.approx(np.radians(table.azimuth[rows]), abs=1e-5)
        assert numpy(lidar.data.time_offset[0]) == pytest.approx(table.time[rows % 200] - 0.1, abs=1e-7)
        assert lidar.ray_ids().tolist() == rows.tolist()
        assert lidar.horizontal_angle == pytest.approx(np.radians(table.azimuth[rows[-1]]), abs=1e-6)
        seen.append(lidar.read().points_b[0])
        ids.append(rows)
    assert not torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[4])
    assert sorted(np.concatenate(ids[:4]).tolist()) == list(range(800))


def test_scan_can_be_longer_or_shorter_than_the_sample_period() -> None:
    """`scan_duration` sets how many rays before the capture are shown, up to several turns."""
    for duration, count in ((0.02, 60), (0.1, 300), (0.25, 750)):
        scene = scene_of(engine_of(), rate_hz=20.0, scan_duration=duration, fields="all")
        scene.step(substeps=25)
        offset = numpy(scene["lidar"].data.time_offset[0])
        assert len(offset) == count == scene["lidar"].num_rays
        assert offset[0] == pytest.approx(-duration, abs=1e-7) and (np.diff(offset) > 0).all()


def test_after_many_ticks_windows_are_still_exact() -> None:
    """At tick 2,000,000,000, where the number of rays exceeds an int32, a window has the same rays at the same
    times.
    """
    scene = scene_of(engine_of(dt=0.001), pattern=SLOW, rate_hz=20.0, fields="all")
    late = scene_of(engine_of(dt=0.001), pattern=SLOW, rate_hz=20.0, fields="all")
    ticks = 2_000_000_000
    late.engine.count_ticks(ticks)
    late.allow_gaps = True
    late.update()
    for each in (scene, late):
        each.step(substeps=50)
    assert late.tick == ticks + 50
    for name in ("points_b", "channel"):
        assert torch.equal(getattr(late["lidar"].data, name), getattr(scene["lidar"].data, name))
    offsets = [numpy(each["lidar"].data.time_offset[0]) for each in (scene, late)]
    assert offsets[1] == pytest.approx(offsets[0], abs=1e-6)


def test_points_counts_and_clouds_agree() -> None:
    """The ragged cloud holds only the hits, its channels match `get_point_count`, and misses are +inf."""
    cfg = {"rate_hz": 10.0, "max_distance": 9.0, "fields": "all", "no_hit_value": -1.0}
    scene = scene_of(engine_of(envs=2), **cfg)
    scene.step(substeps=50)
    lidar = scene["lidar"]
    cloud = lidar.point_cloud(1)
    is_hit = lidar.data.distances[1] != -1.0
    assert 0 < is_hit.sum() < 300
    assert torch.isinf(lidar.data.points_b[1][~is_hit]).all() and torch.isinf(lidar.data.points_w[1][~is_hit]).all()
    assert (lidar.data.geom_ids[1][~is_hit] == -1).all() and (lidar.data.intensity[1][~is_hit] == 0).all()
    assert len(cloud["points_b"]) == int(is_hit.sum()) == sum(lidar.get_point_count(k, env=1) for k in range(3))
    assert np.isfinite(cloud["points_b"]).all() and (cloud["distances"] > 0).all()
    with pytest.raises(IndexError, match="channel: got 3, expected 0 to 2"):
        lidar.get_point_count(3)


def test_hits_report_shape_label_and_reflectance() -> None:
    """Labels, shapes, normals and the cosine of incidence match the surfaces."""
    pattern = LidarPatternCfg(
        channels=3, vertical_fov_range=(-30.0, 30.0), horizontal_fov_range=(-180.0, 180.0), horizontal_res=30.0
    )
    scene = scene_of(engine_of(), pattern=pattern, fields="all")
    scene.update()
    lidar, data = scene["lidar"], scene["lidar"].data
    names = [lidar.geom_names[k] if k >= 0 else "" for k in data.geom_ids[0].tolist()]
    labels = [lidar.semantic_names[k] for k in data.semantic_ids[0].tolist()]
    assert set(names) == {"east", "west", "ground", ""}
    assert labels == ["wall" if name in ("east", "west") else "" for name in names]
    normals = {"east": (-1, 0, 0), "west": (1, 0, 0), "ground": (0, 0, 1), "": (0, 0, 0)}
    assert numpy(data.normals_w[0]) == pytest.approx(np.array([normals[name] for name in names]), abs=1e-6)
    d = pattern.rays().directions.numpy()
    cosine = np.array([-np.dot(normals[name], ray) for name, ray in zip(names, d, strict=True)])
    assert numpy(data.cos_incidence[0]) == pytest.approx(cosine, abs=1e-6)
    assert (data.time_offset == 0).all() and not lidar.distorts


# Motion distortion ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lever", [(0.0, 0.0, 0.0), (0.3, -0.2, 0.4)])
def test_a_scan_past_a_wall_matches_the_closed_form(lever: tuple[float, float, float]) -> None:
    """At constant velocity and yaw rate each ray's length matches its firing pose and direction, within 0.1 mm."""
    speed, rate, dt = np.array([6.0, 2.0, 0.5]), 1.5, 0.001
    engine = engine_of(ROOM[:2], dt=dt, motion=driving(speed, rate))
    cfg = {"rate_hz": 10.0, "fields": "all", "offset": sn.OffsetCfg(pos=lever), "exclude_parent_body": False}
    scene = scene_of(engine, **cfg)
    scene.step(substeps=1000)
    data = scene["lidar"].data
    d = SLOW.table().directions()

    def expected(t: Array) -> tuple[Array, Array, Array]:
        angle = rate * t
        c, s = np.cos(angle), np.sin(angle)
        x = speed[0] * t + c * lever[0] - s * lever[1]
        along = c * d[:, 0] - s * d[:, 1]
        length = np.where(along > 0.0, (10.0 - x) / along, (-8.0 - x) / along)
        across = speed[1] * t + s * lever[0] + c * lever[1] + length * (s * d[:, 0] + c * d[:, 1])
        return length, x + length * along, across

    offset = numpy(data.time_offset[0])
    length, x, y = expected(offset)
    near = length < 15.0
    assert near.sum() > 150
    measured = numpy(data.distances[0])
    assert np.abs(measured - length)[near].max() < 1e-4
    assert np.abs(numpy(data.points_w[0])[:, :2] - np.stack([x, y], -1))[near].max() < 1e-4
    assert np.abs(numpy(data.points_b[0])[near] - measured[near, None] * d[near]).max() < 1e-5
    still, _, _ = expected(np.zeros_like(offset))
    assert np.abs(measured - still)[near].max() > 0.3, "the scan is meant to be distorted"


SPARSE = TablePatternCfg(
    time=tuple(0.01 * k for k in range(7)), azimuth=tuple(50.0 * k for k in range(7)), elevation=(0.0,) * 7, period=0.07
)
"""Rays 10 ms apart."""


@pytest.mark.parametrize(
    ("pattern", "dt", "every", "duration", "ticks"),
    [
        (SLOW, 0.003, 0.1, None, 134),  # neither the period nor the rate is whole in ticks
        (SLOW, 0.003, 0.05, 0.1, 134),
        (SLOW, 0.002, 0.024, 0.03, 120),
        (SPARSE, 1.0 / 300.0, 0.0, 0.1, 109),  # ends between two rays that are several ticks apart
        (SPARSE, 0.002, 0.026, 0.03, 117),
    ],
)
def test_rays_of_any_window_start_at_the_sensors_pose_at_their_time(
    pattern: Any, dt: float, every: float, duration: float | None, ticks: int
) -> None:
    """The length of each ray, also the oldest, matches its firing pose and direction, for any ratio of periods."""
    speed, rate = 6.0, 1.5
    engine = engine_of(ROOM[:2], dt=dt, motion=driving((speed, 0.0, 0.0), rate, at=(-0.5 * speed, 0.0, 0.0)))
    scene = scene_of(engine, pattern=pattern, update_period=every, scan_duration=duration, fields="all")
    scene.step(substeps=ticks)
    lidar, data = scene["lidar"], scene["lidar"].data
    offset = numpy(data.time_offset[0])
    assert offset[0] < -0.8 * lidar.window.duration and (np.diff(offset) > 0.0).all() and offset[-1] <= 0.0
    t = int(lidar.capture_tick[0]) * dt + offset
    angle, x = rate * (t - 1.0), -0.5 * speed + speed * (t - 1.0)
    d = pattern.table().directions()[lidar.ray_ids()]
    along = np.cos(angle) * d[:, 0] - np.sin(angle) * d[:, 1]
    length = np.where(along > 0.0, (10.0 - x) / along, (-8.0 - x) / along)
    near = length < 25.0
    assert near.mean() > 0.5 and np.abs(numpy(data.distances[0]) - length)[near].max() < 1e-4


@pytest.mark.parametrize("fresh", [True, False])
def test_unfresh_state_gives_the_scan_of_the_previous_tick(fresh: bool) -> None:
    """On MuJoCo with fresh=False the scan ends a tick earlier and is correct for that time, also after a reset in
    it.
    """
    xml = """<mujoco><option gravity="0 0 0" timestep="0.003"/><worldbody>
      <geom name="east" type="box" size=".1 20 20" pos="10.1 0 0"/>
      <geom name="west" type="box" size=".1 20 20" pos="-8.1 0 0"/>
      <body name="body"><freejoint/><geom type="sphere" size=".1"/></body></worldbody></mujoco>"""
    engine = sn.MujocoEngine(xml, num_envs=2, fresh=fresh)
    scene = sn.Scene(engine, [sn.LidarCfg(name="lidar", body="body", pattern=SLOW, rate_hz=10.0, fields="all")])
    speed, rate = 3.0, 2.0
    qvel = torch.tensor([[speed, 0.0, 0.0, 0.0, 0.0, rate]]).repeat(2, 1)
    scene.reset(qvel=qvel)
    scene.step(substeps=20)
    scene.reset([1], qpos=torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]]), qvel=qvel[1:])
    scene.step(substeps=14)
    lidar, d = scene["lidar"], SLOW.table().directions()
    assert lidar.capture_tick.tolist() == [34 if fresh else 33] * 2
    for env, (begin, x0) in enumerate(((0, 0.0), (20, 1.0))):
        t = 0.003 * (int(lidar.capture_tick[env]) - begin) + numpy(lidar.data.time_offset[env])
        t = np.clip(t, 0.0, None)
        x, angle = x0 + speed * t, rate * t
        along = np.cos(angle) * d[:, 0] - np.sin(angle) * d[:, 1]
        length = np.where(along > 0.0, (10.0 - x) / along, (-8.0 - x) / along)
        near = length < 15.0
        assert near.sum() > 150 and np.abs(numpy(lidar.data.distances[env]) - length)[near].max() < 1e-4


def test_shapes_culled_from_ray_blocks_are_never_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100 rad/s among shapes at 30 m/s, rays cast 32 at a time hit the same as rays cast individually."""
    draws = np.random.default_rng(5)
    count = 60
    shapes = [Shape("sphere", f"ball{k}", (0.2,), body=f"m{k}", pos=(0.4, 0.0, 0.1)) for k in range(count)]
    at, speed = draws.uniform(-2.5, 2.5, (count + 1, 3)), draws.normal(size=(count + 1, 3)) * 17.0
    axis = draws.normal(size=(count + 1, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    at[:, 2] *= 0.3
    at[0] = 0.0

    def motion(t: float) -> Mapping[str, Any]:
        turn = np.concatenate([np.full((count + 1, 1), np.cos(50.0 * t)), np.sin(50.0 * t) * axis], axis=1)
        return {"body_pos_w": at + speed * 0.03 * np.sin(t / 0.03), "body_quat_w": turn}

    def scans(block: int) -> list[torch.Tensor]:
        monkeypatch.setattr("sensorium.shapes.ray_cast.BLOCK", block)
        engine = engine_of(
            [ROOM[2], *shapes], dt=0.01, bodies=("body", *(f"m{k}" for k in range(count))), motion=motion
        )
        offset = sn.OffsetCfg(pos=(0.3, 0.2, 0.1), rot=(0.5, 0.5, -0.5, 0.5))
        wide = {"beam_divergence": 0.05, "returns": "dual"}
        cfg = {"body": "body", "fields": "all", "offset": offset, "update_period": 0.05, "max_distance": 100.0}
        fast = SpinningPatternCfg(elevations=(0.0,), cycle_interval=1e-4)  # narrow blocks, crossed within a tick
        mirror = RotatingMirrorPatternCfg(elevation_range=(-30.0, 30.0), points_per_second=9000.0, period=0.37)
        scene = sn.Scene(
            engine,
            [sn.LidarCfg(name="fast", pattern=fast, **cfg), sn.LidarCfg(name="wide", pattern=mirror, **wide, **cfg)],
        )
        found = []
        for _ in range(10):
            scene.step(substeps=6)
            for name in ("fast", "wide"):
                data = scene[name].read()
                found += [data.geom_ids, data.distances, data.points_w, data.normals_w]
        return found

    together, alone = scans(32), scans(1)
    assert sum(int((ids > 0).sum()) for ids in alone[::4]) > 500, "moving shapes are met"
    assert all(torch.equal(one, other) for one, other in zip(together, alone, strict=True))


def test_the_truth_is_the_distorted_scan_without_errors() -> None:
    """With errors, the truth is bit for bit the scan of a lidar without errors, also while it turns and moves."""
    pattern, engine = (
        {"pattern": SLOW, "rate_hz": 10.0, "fields": "all"},
        engine_of(motion=driving((3.0, 1.0, 0.0), 2.0)),
    )
    errors: dict[str, Any] = {"range_noise": 0.03, "drop_rate": 0.1, "beam_divergence": 1e-3, "no_hit_value": -1.0}
    cfgs = [sn.LidarCfg(name="clean", body="body", no_hit_value=-1.0, **pattern)]
    scene = sn.Scene(engine, [*cfgs, sn.LidarCfg(name="noisy", body="body", **pattern, **errors)], seed=1)
    scene.step(substeps=500)
    clean, noisy = scene["clean"], scene["noisy"]
    for name in ("distances", "points_b", "points_w", "intensity", "normals_w", "time_offset"):
        assert torch.equal(getattr(noisy.ground_truth, name), getattr(clean.data, name)), name
    assert clean.data.points_b.data_ptr() == clean.ground_truth.points_b.data_ptr()
    both = (noisy.data.distances > 0.0) & (noisy.ground_truth.distances > 0.0)
    error = numpy((noisy.data.distances - noisy.ground_truth.distances)[both])
    assert np.median(np.abs(error)) == pytest.approx(0.6745 * 0.03, rel=0.2)


def test_without_distortion_one_cast_serves_both_branches() -> None:
    """`motion_distortion=False` gives the true scan in the measured branch, without storing motion."""
    scene = scene_of(engine_of(motion=driving((3.0, 1.0, 0.0), 2.0)), rate_hz=10.0, motion_distortion=False)
    scene.step(substeps=500)
    lidar = scene["lidar"]
    assert lidar.data.points_b.data_ptr() == lidar.ground_truth.points_b.data_ptr()
    assert not lidar.buffers.plan.watches and lidar.info.notes["motion distortion"] == "no"


def test_a_moving_object_is_skewed() -> None:
    """A plate that recedes at 20 m/s is hit at its position when each ray fired, to half a tick of its motion."""
    dt, speed = 0.001, 20.0
    plate = Shape("box", "plate", (0.05, 30.0, 30.0), body="plate")

    def motion(t: float) -> Mapping[str, Any]:
        return {"body_pos_w": np.array([[0.0, 0.0, 0.0], [5.05 + speed * t, 0.0, 0.0]])}

    engine = engine_of([plate], dt=dt, bodies=("body", "plate"), motion=motion)
    scene = scene_of(engine, rate_hz=10.0, fields="all")
    scene.step(substeps=100)
    data, truth, d = scene["lidar"].data, scene["lidar"].ground_truth, SLOW.table().directions()
    ahead = d[:, 0] > 0.5
    face = 5.0 + speed * (0.1 + numpy(data.time_offset[0]))
    x = numpy(data.points_b[0])[:, 0]
    assert np.abs(x - face)[ahead].max() < 0.5 * speed * dt + 1e-4
    assert np.ptp(x[ahead]) > 0.5
    assert torch.equal(truth.points_b, data.points_b)


def test_a_reset_in_mid_scan_shows_no_pose_from_before() -> None:
    """Right after a reset, and at the next samples, each ray starts from a pose of the new episode."""
    engine = engine_of(ROOM[:2], envs=2)
    scene = scene_of(engine, rate_hz=10.0, fields="all")

    def drive(ticks: int, start: float) -> None:
        for k in range(ticks):
            engine.body_pos_w[:, 0, 0] = start + 0.01 * k
            scene.update()

    drive(80, -6.0)
    before = scene["lidar"].read()
    scene.reset([1], body_pos_w=torch.tensor([[[3.0, 0.0, 0.0]]]))
    lidar = scene["lidar"]
    assert torch.equal(lidar.data.distances[0], before.distances[0])
    assert torch.equal(lidar.data.distances[1], lidar.ground_truth.distances[1])
    drive(20, 3.0)
    assert lidar.frame.tolist() == [3, 2]
    d, data = SLOW.table().directions(), lidar.data
    is_hit = torch.isfinite(data.distances[1]).numpy()
    start = numpy(data.points_w[1])[is_hit, 0] - numpy(data.distances[1])[is_hit] * d[is_hit, 0]
    offset = numpy(data.time_offset[1])[is_hit]
    assert start == pytest.approx(np.clip(3.19 + 5.0 * offset, 3.0, None), abs=1e-3)
    assert (offset < -0.04).sum() > 100, "there are rays from before the reset"


def test_edit_is_visible_immediately_without_motion_distortion() -> None:
    """After an edit update(ticks=0) recasts an instant scan with the same draws. A scan with motion distortion is held:
    no ray uses the edited pose, and the next scan starts from the body's pose at that time.
    """
    engine = engine_of(ROOM[:2])
    common: dict[str, Any] = {"body": "body", "pattern": SLOW, "rate_hz": 10.0, "fields": "all", "range_noise": 0.05}
    cfgs = [sn.LidarCfg(name="lidar", **common), sn.LidarCfg(name="instant", motion_distortion=False, **common)]
    scene = sn.Scene(engine, cfgs, seed=1)
    for _ in range(50):
        scene.update()
    first, held = scene["instant"].read(), snapshot(scene["lidar"])
    scene.update(ticks=0)
    assert torch.equal(scene["instant"].data.distances, first.distances)
    engine.body_pos_w[:, 0, 0] += 1.0
    scene.update(ticks=0)
    same(snapshot(scene["lidar"]), held)
    data, truth = scene["instant"].data, scene["instant"].ground_truth
    d = SLOW.table().directions()
    forward = d[:, 0] > 0.6
    shift = numpy(data.distances[0] - first.distances[0]) * d[:, 0]
    assert shift[forward] == pytest.approx(-1.0, abs=1e-4), "the draws are the same"
    assert numpy(truth.points_b[0])[forward, 0] == pytest.approx(9.0, abs=1e-4)
    assert scene["instant"].frame.tolist() == scene["lidar"].frame.tolist() == [2]
    for _ in range(50):
        scene.update()
    assert numpy(scene["lidar"].ground_truth.points_b[0])[forward, 0] == pytest.approx(9.0, abs=1e-4)
    assert scene["lidar"].frame.tolist() == [3]


@pytest.mark.parametrize("extra", [{}, {"beam_divergence": 0.05, "returns": "dual"}, {"noise": 0.01, "delay": 0.01}])
def test_saved_state_resumes_bit_identically(extra: dict[str, Any]) -> None:
    """A state saved in mid-scan and loaded into another scene gives the same readings from then on."""

    def build() -> sn.Scene:
        engine = engine_of(envs=3, motion=driving((3.0, 1.0, 0.0), 2.0))
        return scene_of(engine, rate_hz=10.0, fields="all", range_noise=0.02, drop_rate=0.1, **extra)

    one, other = build(), build()
    one.step(substeps=130)
    other.step(substeps=7)
    other.load_state(one.state())
    for _ in range(3):
        one.step(substeps=20)
        other.step(substeps=20)
        same(snapshot(one["lidar"]), snapshot(other["lidar"]))


def test_samples_skipped_while_unwanted_are_not_missed() -> None:
    """With evaluate="wanted" poses are still stored: the first scan after a pause equals that of a continuously read
    lidar.
    """
    scenes = [
        scene_of(engine_of(motion=driving((3.0, 1.0, 0.0), 2.0)), rate_hz=50.0, fields="all", evaluate=evaluate,
                 scan_duration=duration)
        for evaluate in ("always", "wanted") for duration in (0.02, 0.05)
    ]  # fmt: skip
    for scene in scenes:
        scene.step(substeps=205)
        scene["lidar"].buffers.wanted = True
        scene.step(substeps=5)
    for busy, lazy in zip(scenes[:2], scenes[2:], strict=True):
        assert int(lazy["lidar"].frame[0]) < int(busy["lidar"].frame[0])
        assert torch.equal(busy["lidar"].data.distances, lazy["lidar"].data.distances)


def test_a_lidar_that_samples_every_tick_shows_the_rays_of_that_tick() -> None:
    """Without a rate each tick produces its part of the turn, distorted within the tick."""
    speed = 10.0
    scene = scene_of(engine_of(ROOM[:2], dt=0.01, motion=driving((speed, 0.0, 0.0), 0.0)), fields="all")
    scene.step(substeps=100)
    lidar = scene["lidar"]
    assert lidar.num_rays == 30 and lidar.distorts
    d, ids = SLOW.table().directions(), lidar.ray_ids()
    assert ids.tolist() == list(range(270, 300))
    start = speed * numpy(lidar.data.time_offset[0])
    expected = (-8.0 - start) / d[ids, 0]
    assert numpy(lidar.data.distances[0]) == pytest.approx(expected, abs=1e-4)


# Contract -------------------------------------------------------------------------------------------------------------


def tumbling(envs: int) -> sn.TensorEngine:
    """Return the engine of `check_sensor` in a room with a wall, a ground, and a ball on the body itself."""
    base = tumbling_engine(envs)
    ball = Shape("sphere", "ball", (0.3,), body="body", pos=(1.5, 0.2, 0.1))
    return sn.TensorEngine(
        envs, base.dt, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))}, shapes=[*ROOM, ball],
        provides=("pose", "velocity", "acceleration", "gravity"), magnetic=(0.2, 0.0, -0.4), motion=base.motion,
    )  # fmt: skip


TURN = SpinningPatternCfg(elevations=(-10.0, 0.0, 5.0), cycle_interval=2e-3, rate_hz=100.0, firing_interval=1e-5)


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({"motion_distortion": False}, marks=pytest.mark.full),
        pytest.param({"exclude_parent_body": False, "noise": 0.02, "no_hit_value": -1.0}, marks=pytest.mark.full),
        {"range_noise": 0.02, "drop_rate": 0.1, "reference_snr": 100.0, "detection_threshold": 3.0,
         "channel_bias": sn.Normal(0.0, 0.01), "intensity_noise": 0.1, "resolution": 0.01},
        pytest.param({"model": "dropoff", "noise_stddev": 0.1}, marks=pytest.mark.full),
        {"beam_divergence": 0.05, "returns": "dual", "delay": 0.004, "history_length": 2, "resolution": 0.001},
    ],
)  # fmt: skip
@pytest.mark.slow
def test_contract_holds(extra: dict[str, Any]) -> None:
    """All rules of `check_sensor` hold, with motion, noise, misses, footprints and delay."""
    check_sensor(sn.LidarCfg(body="body", pattern=TURN, rate_hz=50.0, fields="all", **extra), engine=tumbling, steps=24)


def test_plural_mounts_equal_single_mounts() -> None:
    """Two mounts give a mount axis; the truth of each equals that of a separate lidar, and their noise differs."""
    engine = engine_of(bodies=("body", "other"))
    engine.body_pos_w[:, 1] = torch.tensor([2.0, 0.0, 0.0])
    cfgs = [sn.LidarCfg(name="both", bodies=("body", "other"), pattern=SLOW, rate_hz=10.0, range_noise=0.05)]
    cfgs += [sn.LidarCfg(name=name, body=name, pattern=SLOW, rate_hz=10.0) for name in ("body", "other")]
    scene = sn.Scene(engine, cfgs)
    for _ in range(50):
        scene.update()
    both = scene["both"]
    assert both.data.points_b.shape == (1, 2, 300, 3)
    for k, name in enumerate(("body", "other")):
        assert torch.equal(both.ground_truth.points_b[:, k], scene[name].data.points_b)
    one, other = numpy(both.data.distances - both.ground_truth.distances)[0]
    is_hit = np.isfinite(one) & np.isfinite(other)
    assert is_hit.sum() > 200 and abs(np.corrcoef(one[is_hit], other[is_hit])[0, 1]) < 0.25
    assert len(both.point_cloud(0, mount=1)["points_b"]) == torch.isfinite(both.data.distances[0, 1]).sum()


def test_readings_are_independent_of_env_count() -> None:
    """Env 1 of 2 and env 1 of 5 are the same, draws included."""
    scenes = [
        scene_of(engine_of(envs=envs), rate_hz=10.0, range_noise=0.05, drop_rate=0.2, channel_bias=sn.Normal(0.0, 0.1))
        for envs in (2, 5)
    ]
    for scene in scenes:
        scene.step(substeps=50)
    assert torch.equal(scenes[0]["lidar"].data.points_b[1], scenes[1]["lidar"].data.points_b[1])


BAD: list[tuple[dict[str, Any], str]] = [
    ({"fields": ("intensities",)}, "fields among distances.*Did you mean 'intensity'"),
    ({"fields": ("intensity",)}, "distances or points_b in fields"),
    ({"scan_duration": 0.0}, "scan_duration.*> 0"),
    ({"drop_rate": 1.5}, r"drop_rate.*a share in \[0, 1\]"),
    ({"range_noise": -0.1}, "range_noise.*greater than 0"),
    ({"range_noise": (0.1, 0.2)}, "range_noise_snr with a ratio for each"),
    ({"range_noise": (0.1, 0.2), "range_noise_snr": (9.0,), "reference_snr": 1.0}, "one ratio for each of the 2"),
    ({"range_noise": (0.1, 0.2), "range_noise_snr": (9.0, 9.0), "reference_snr": 1.0}, "distinct ratios"),
    ({"detection_threshold": 3.0}, "detection_threshold: .*reference_snr as well"),
    ({"returns": "dual"}, "returns: .*beam_divergence as well"),
    ({"sub_rays": 19}, "sub_rays: .*beam_divergence as well"),
    ({"pulse_duration": 1e-9}, "pulse_duration: .*beam_divergence as well"),
    ({"detection_sd": 2.0}, "detection_sd: .*detection_threshold as well"),
    ({"beam_divergence": 1.7}, "from 0 to 0.5, rad.*3 mrad"),
    ({"model": "dropoff", "drop_rate": 0.1}, 'drop_rate: .*no such field with model="dropoff".*Give model="physical"'),
    ({"noise_stddev": 0.1}, 'noise_stddev: .*no such field with model="physical".*Give model="dropoff"'),
    ({"reflectance": {"wall": -1.0}}, r"reflectance\.wall: got -1\.0, expected a finite number >= 0"),
    ({"channel_bias": ((0.1, 0.2),)}, "one number per channel"),
]


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_bad_configs_are_refused(fields: dict[str, Any], message: str) -> None:
    """Each fault names the field, the accepted values and the fix."""
    with pytest.raises(sn.ConfigError, match=message):
        sn.LidarCfg(body="body", **fields)


LATE = TablePatternCfg(time=(0.05, 0.06, 0.07), azimuth=(0.0, 1.0, 2.0), elevation=(0.0, 0.0, 0.0), period=0.1)
FLAT = LidarPatternCfg(channels=1, vertical_fov_range=(0.0, 0.0), horizontal_fov_range=(0.0, 9.0), horizontal_res=1.0)
MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"pattern": FLAT, "scan_duration": 0.1}, "scan_duration.*all rays of this pattern fire at once"),
    ({"pattern": FLAT, "motion_distortion": True}, "motion_distortion.*all rays of this pattern fire at once"),
    ({"scan_duration": 1e-5}, "time for at least one ray"),
    ({"pattern": LATE, "rate_hz": 20.0}, "do not fire at even intervals.*scan_duration to 0.1 s"),
    ({"channel_bias": (0.1, 0.2)}, "channel_bias.*one for each of the 3 channels"),
    ({"reflectance": {"wal": 0.5}}, "a semantic label, or the name of a body or a geom.*Did you mean 'wall'"),
    ({"reflectance": {"(": 0.5}}, "The regular expression is invalid"),
]


@pytest.mark.parametrize(("fields", "message"), MISFITS)
def test_mismatch_with_world_or_pattern_is_refused(fields: dict[str, Any], message: str) -> None:
    """Faults that depend on the scene name the sensor, the field and the fix."""
    with pytest.raises((sn.ConfigError, sn.SelectionError), match=message) as caught:
        scene_of(engine_of(), **fields)
    assert "LidarCfg('lidar')" in str(caught.value)


def test_uneven_pattern_requires_whole_periods() -> None:
    """A table whose rays fire in a part of its period is accepted if each scan is one period."""
    scene = scene_of(engine_of(), pattern=LATE, rate_hz=10.0, fields="all")
    scene.step(substeps=50)
    assert numpy(scene["lidar"].data.time_offset[0]) == pytest.approx([-0.05, -0.04, -0.03], abs=1e-8)


def test_config_round_trips_through_a_file() -> None:
    """A config with every kind of field survives JSON and TOML."""
    cfg = sn.LidarCfg(
        body="body", pattern=SLOW, reflectance={"wall": 0.3}, reference_snr=50.0, range_noise=(0.1, 0.01),
        range_noise_snr=(10.0, 100.0), channel_bias=sn.Normal(0.0, 0.01), beam_divergence=(0.003, 0.001),
        fields=("points_b", "channel"),
    )  # fmt: skip
    assert sn.LidarCfg.from_json(cfg.to_json()) == cfg and sn.LidarCfg.from_toml(cfg.to_toml()) == cfg
    assert replace(ROOM[0], reflectance=0.3).reflectance == 0.3


def test_ticks_within_a_jump_have_interpolated_poses() -> None:
    """With allow_gaps a lidar updated every fifth tick equals a lidar updated at all ticks, at constant velocity."""
    plate = Shape("box", "plate", (0.05, 30.0, 30.0), body="plate")

    def motion(t: float) -> Mapping[str, Any]:
        return {"body_pos_w": np.array([[2.0 * t, 0.0, 0.0], [5.0 - 3.0 * t, 0.0, 0.0]])}

    scenes = []
    for ticks in (1, 5):
        engine = engine_of([plate, ROOM[1]], bodies=("body", "plate"), motion=motion)
        scene = sn.Scene(
            engine, [sn.LidarCfg(name="lidar", body="body", pattern=SLOW, rate_hz=10.0, fields="all")], allow_gaps=True
        )
        for _ in range(100 // ticks):
            scene.update(ticks=ticks)
        scenes.append(scene)
    one, other = (numpy(scene["lidar"].data.distances) for scene in scenes)
    near = one < 30.0
    assert near.sum() > 150 and one[near] == pytest.approx(other[near], abs=1e-4)


def test_non_finite_pose_invalidates_the_scan() -> None:
    """One tick without a pose in mid-scan invalidates that scan, not those before and after it; no NaN appears."""
    engine = engine_of(envs=2)
    scene = scene_of(engine, rate_hz=10.0, fields="all", range_noise=0.01)

    def drive(ticks: int) -> None:
        for _ in range(ticks):
            scene.update()

    drive(70)
    engine.body_pos_w[1, 0, 0] = float("nan")
    with pytest.warns(sn.NonFiniteStateWarning):
        scene.update()
    engine.body_pos_w[1, 0, 0] = 0.0
    assert scene["lidar"].valid.tolist() == [True, True]
    drive(29)
    assert scene["lidar"].valid.tolist() == [True, False]
    assert not any(torch.isnan(getattr(scene["lidar"].data, name)).any() for name in ("distances", "points_w"))
    drive(50)
    assert scene["lidar"].valid.tolist() == [True, True]
