"""The radar, checked against closed forms, statistics with their bounds, and MuJoCo's rays and velocities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.transform import Rotation
from synthetic import same, snapshot

import sensorium as sn
from sensorium import ConfigError, SelectionError
from sensorium.engines import Shape
from sensorium.testing import check_sensor, tumbling_engine

Array = NDArray[np.float64]
INF = float("inf")
C = 299_792_458.0
WALL = Shape("box", "wall", (0.5, 500.0, 500.0), pos=(10.5, 0.0, 0.0), labels=("concrete",))
"""A wall with its face at x = 10."""
BEHIND = Shape("sphere", "behind", (0.1,), pos=(-50.0, 0.0, 0.0))
"""A shape that no ray ahead hits."""
RATIO = 0.5
"""Default reflectance of shapes."""


class AheadPatternCfg(sn.patterns.PatternBaseCfg):
    """Equal rays along x."""

    count: int = 1
    """Number of rays."""
    start: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Start of the rays, m."""

    def func(self, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rays."""
        starts = torch.tensor(self.start, device=device).repeat(self.count, 1)
        return starts, torch.tensor((1.0, 0.0, 0.0), device=device).repeat(self.count, 1)


def quat(rotation: Rotation) -> tuple[float, ...]:
    w, x, y, z = rotation.as_quat(scalar_first=True).tolist()
    return w, x, y, z


def engine_of(shapes: Sequence[Shape], envs: int = 1, dt: float = 0.01, bodies: Sequence[str] = ("body", "target"),
              **kwargs: Any) -> sn.TensorEngine:  # fmt: skip
    return sn.TensorEngine(envs, dt, bodies=tuple(bodies), shapes=list(shapes), **kwargs)


def move(engine: sn.TensorEngine, body: int, pos: Any = None, turn: Rotation | None = None, vel: Any = (0, 0, 0),
         spin: Any = (0, 0, 0), env: Any = slice(None)) -> None:  # fmt: skip
    if pos is not None:
        engine.body_pos_w[env, body] = torch.tensor(pos, dtype=torch.float32)
    if turn is not None:
        engine.body_quat_w[env, body] = torch.tensor(quat(turn), dtype=torch.float32)
    engine.body_lin_vel_w[env, body] = torch.tensor(vel, dtype=torch.float32)
    engine.body_ang_vel_w[env, body] = torch.tensor(spin, dtype=torch.float32)


def radar_of(engine: Any, seed: int = 0, **fields: Any) -> Any:
    """Return the radar of a scene; by default it is mounted on "body" and has 300 rays."""
    selectors = {"site", "sites", "body", "bodies", "frame"}
    defaults: dict[str, Any] = {"name": "radar"} | ({} if selectors & {*fields} else {"body": "body"})
    if not {"points", "points_per_second", "pattern"} & {*fields}:
        defaults["points"] = 300
    cfg = sn.RadarCfg(**{**defaults, **fields})
    return sn.Scene(engine, [cfg], seed=seed)[cfg]


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def directions(data: Any, env: int = 0) -> Array:
    """Return the directions of the rays in the radar's frame, from their angles."""
    a, e = numpy(data.azimuth)[env], numpy(data.altitude)[env]
    return np.stack([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)], axis=-1)


# Velocity -------------------------------------------------------------------------------------------------------------


def test_approaching_sphere_matches_the_closed_form_of_range_and_velocity() -> None:
    """A ray along d hits a ball at d.c - sqrt((d.c)^2 - c^2 + r^2), and its velocity is d.(v_target - v_radar)."""
    centre, own, vel = np.array([12.0, 1.0, -0.5]), np.array([1.0, 0.5, -0.25]), np.array([-6.0, 0.5, 1.0])
    engine = engine_of([Shape("sphere", "ball", (2.0,), body="target")])
    move(engine, 0, vel=own)
    move(engine, 1, pos=centre, vel=vel)
    radar = radar_of(engine, points=2000, fields="all")
    d = directions(radar.data)
    along = d @ centre
    inner = along**2 - centre @ centre + 4.0
    clear = np.abs(inner) > 1e-4  # rays that graze the ball may hit or miss
    expected = np.where(inner > 0.0, along - np.sqrt(np.maximum(inner, 0.0)), INF)
    ranges, velocity = numpy(radar.data.range)[0], numpy(radar.data.velocity)[0]
    assert clear.mean() > 0.99 and 200 < np.isfinite(ranges).sum() < 1800
    assert np.array_equal(np.isfinite(ranges[clear]), np.isfinite(expected[clear]))
    hit = clear & np.isfinite(ranges) & (inner > 0.01)
    assert ranges[hit] == pytest.approx(expected[hit], abs=2e-4)
    assert velocity[hit] == pytest.approx(d[hit] @ (vel - own), abs=1e-5)
    assert (velocity[np.isfinite(ranges)] < -4.0).all()  # negative is approaching
    assert numpy(radar.data.points_b)[0][hit] == pytest.approx(ranges[hit, None] * d[hit], abs=1e-5)
    assert set(radar.data.geom_ids[0][torch.isfinite(radar.data.range[0])].tolist()) == {0}


def test_velocity_of_a_sphere_is_its_central_range_rate() -> None:
    """Along the line of centres the range changes by velocity * time: its sign is that of the range rate."""
    engine = engine_of([Shape("sphere", "ball", (1.0,), body="target")])
    move(engine, 1, pos=(20.0, 0.0, 0.0), vel=(-4.0, 0.0, 0.0))
    scene = sn.Scene(engine, [sn.RadarCfg(name="radar", body="body", pattern=AheadPatternCfg())])
    first = float(scene["radar"].data.range[0, 0])
    assert float(scene["radar"].data.velocity[0, 0]) == -4.0
    engine.body_pos_w[0, 1, 0] -= 4.0 * 0.01
    scene.update()
    assert float(scene["radar"].data.range[0, 0]) - first == pytest.approx(-0.04, abs=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_spinning_plate_gives_the_velocity_of_each_point_that_is_hit(axis: int) -> None:
    """For a face x = 5 that rotates about an axis through (5, 0, 0), the velocity at (5, y, z) is 0, w 5 z / R or -w 5
    y / R.

    A rotation about the line of sight moves no point along it; about y or z one side approaches and the other recedes.
    """
    spin = np.zeros(3)
    spin[axis] = 3.0
    engine = engine_of([Shape("box", "plate", (0.1, 3.0, 3.0), body="target", pos=(0.1, 0.0, 0.0))])
    move(engine, 1, pos=(5.0, 0.0, 0.0), spin=spin)
    radar = radar_of(engine, points=500)
    d = directions(radar.data)
    y, z = (5.0 * d[:, k] / d[:, 0] for k in (1, 2))
    expected = {0: 0.0 * y, 1: 3.0 * z, 2: -3.0 * y}[axis] * d[:, 0]  # 5 / R is the cosine of the ray
    velocity = numpy(radar.data.velocity)[0]
    assert velocity == pytest.approx(expected, abs=2e-6)
    assert axis == 0 or (velocity.min() < -1.0 and velocity.max() > 1.0)


def test_a_tilted_spinning_plate_off_its_bodys_origin_moves_as_a_rigid_body() -> None:
    """The velocity is v + w x (hit - origin), with the hit on the tilted face computed in float64."""
    turn = Rotation.from_euler("ZYX", [35.0, -20.0, 50.0], degrees=True)
    pos, vel, spin = np.array([8.0, 0.5, -0.3]), np.array([2.0, -1.0, 0.7]), np.array([0.4, -1.5, 2.5])
    engine = engine_of([Shape("box", "plate", (0.05, 9.0, 9.0), body="target", pos=(0.6, 0.2, -0.1))])
    move(engine, 1, pos=pos, turn=turn, vel=vel, spin=spin)
    radar = radar_of(engine, points=400, horizontal_fov_deg=20.0, vertical_fov_deg=20.0)
    d = directions(radar.data)
    n = turn.apply([1.0, 0.0, 0.0])
    t = n @ (pos + turn.apply([0.55, 0.2, -0.1])) / (d @ n)
    assert numpy(radar.data.range)[0] == pytest.approx(t, abs=1e-5)
    v = vel + np.cross(spin, t[:, None] * d - pos)
    assert numpy(radar.data.velocity)[0] == pytest.approx((d * v).sum(axis=1), abs=2e-5)


def test_own_motion_past_a_static_wall_gives_minus_d_dot_v_on_every_ray() -> None:
    """Only the radar moves, and its spin about its origin adds nothing."""
    engine = engine_of([WALL])
    move(engine, 0, vel=(20.0, 3.0, -2.0), spin=(0.0, 1.0, 5.0))
    data = radar_of(engine).data
    d = directions(data)
    assert numpy(data.range)[0] == pytest.approx(10.0 / d[:, 0], rel=1e-6)
    assert numpy(data.velocity)[0] == pytest.approx(-d @ [20.0, 3.0, -2.0], abs=1e-5)


def test_a_radar_on_a_turning_body_moves_with_its_lever_arm() -> None:
    """With the arm r on a body that spins with w, v_radar = v + w x (R r), and rays rotate with body and mount."""
    turn, mount = (
        Rotation.from_euler("ZYX", [20.0, 5.0, -8.0], degrees=True),
        Rotation.from_euler("Z", 15, degrees=True),
    )
    arm, vel, spin = np.array([1.5, 0.8, 0.3]), np.array([4.0, 1.0, 0.5]), np.array([0.3, -0.8, 2.0])
    engine = engine_of([WALL], sites={"radar": ("body", arm.tolist(), quat(mount))})
    move(engine, 0, turn=turn, vel=vel, spin=spin)
    data = radar_of(engine, site="radar").data
    d = (turn * mount).apply(directions(data))
    own = vel + np.cross(spin, turn.apply(arm))
    assert numpy(data.velocity)[0] == pytest.approx(-d @ own, abs=1e-5)
    assert numpy(data.range)[0] == pytest.approx((10.0 - turn.apply(arm)[0]) / d[:, 0], rel=1e-5)
    offset = radar_of(engine, body="body", offset=sn.OffsetCfg(pos=arm.tolist(), rot=quat(mount))).data
    assert torch.equal(offset.velocity, data.velocity)


def test_rays_of_a_pattern_with_starts_leave_from_points_that_move_with_the_mount() -> None:
    """An antenna 2 m left of the origin of a radar that yaws by 1.5 rad/s moves back by 3 m/s."""
    engine = engine_of([WALL])
    move(engine, 0, spin=(0.0, 0.0, 1.5))
    radar = radar_of(engine, pattern=AheadPatternCfg(start=(0.0, 2.0, 0.0)), fields="all")
    assert radar.data.velocity.tolist() == [[3.0]]
    assert radar.data.points_b.tolist() == [[[10.0, 2.0, 0.0]]]


MODEL = """
<mujoco><option gravity="0 0 0"/><worldbody>
  <geom name="ground" type="plane" size="0 0 .1" pos="0 0 -3"/>
  <body name="car"><freejoint/><geom size=".3 .2 .1" type="box"/>
    <site name="radar" pos=".35 .1 .05" euler="0 -4 10"/></body>
  <body name="cube" pos="7 .8 .3"><freejoint/><geom name="cube" type="box" size=".5 .9 .7" pos=".2 0 .1"/></body>
  <body name="pillar" pos="5 -1.2 0"><joint name="yaw" axis="0 .2 1"/>
    <geom name="pillar" type="capsule" size=".25 .8"/>
    <body name="arm" pos="0 0 .4"><joint name="pitch" axis="1 .5 0" pos="0 .1 0"/>
      <geom name="arm" type="ellipsoid" size=".3 1.2 .2" pos="0 .7 0"/></body></body>
  <body name="post" pos="9 2 0"><geom name="post" type="cylinder" size=".4 2"/></body>
</worldbody></mujoco>
"""


def test_every_ray_matches_mujoco() -> None:
    """Distance and geom match `mj_ray`; velocity matches `mj_objectVelocity` of both bodies at the hit and the site."""
    envs, rng = 3, np.random.default_rng(5)
    engine = sn.MujocoEngine(MODEL, num_envs=envs)
    cfg = sn.RadarCfg(site="radar", points=400, horizontal_fov_deg=60.0, vertical_fov_deg=40.0, fields="all")
    scene, model = sn.Scene(engine, [cfg]), engine.model
    radar = scene[cfg]
    qpos = np.tile(mujoco.MjData(model).qpos, (envs, 1))
    qpos[:, 7:10] += rng.uniform(-0.3, 0.3, (envs, 3))
    qpos[:, 3:7] = [quat(Rotation.from_rotvec(v)) for v in rng.uniform(-0.1, 0.1, (envs, 3))]
    qpos[:, 10:14] = [quat(each) for each in Rotation.random(envs, random_state=3)]
    qpos[:, 14:] = rng.uniform(-1.0, 1.0, (envs, 2))
    qvel = rng.uniform(-3.0, 3.0, (envs, model.nv))
    scene.reset(qpos=torch.tensor(qpos), qvel=torch.tensor(qvel))
    met: set[str] = set()
    for env in range(envs):
        data = mujoco.MjData(model)
        data.qpos, data.qvel = qpos[env], qvel[env]
        mujoco.mj_forward(model, data)
        site = model.site("radar").id
        start, axes, own = data.site_xpos[site], data.site_xmat[site].reshape(3, 3), np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_SITE, site, own, 0)
        d = directions(radar.data, env) @ axes.T
        ranges, velocity = numpy(radar.data.range)[env], numpy(radar.data.velocity)[env]
        for ray in range(len(d)):
            geom = np.full(1, -1, np.int32)
            t = mujoco.mj_ray(model, data, start, d[ray], None, 1, model.body("car").id, geom)
            name = "" if t < 0 or t > 100.0 else model.geom(geom[0]).name
            row = int(radar.data.geom_ids[env, ray])
            found = radar.geom_names[row] if row >= 0 else ""
            if found != name:  # a silhouette: a ray beside it is on the other side
                aside = d[ray] + 1e-4 * rng.standard_normal((16, 3))
                hits = [mujoco.mj_ray(model, data, start, each, None, 1, model.body("car").id, geom) for each in aside]
                assert np.ptp(hits) > 0.1, (env, ray, found, name)
                continue
            if not name:
                assert ranges[ray] == INF and velocity[ray] == 0.0
                continue
            met.add(name)
            body, twist = model.geom(geom[0]).bodyid[0], np.zeros(6)
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, twist, 0)
            hit = start + t * d[ray]
            v = twist[3:] + np.cross(twist[:3], hit - data.xpos[body])
            graze = 1e-4 * (1.0 + np.linalg.norm(twist)) * 10.0
            assert ranges[ray] == pytest.approx(t, abs=1e-3)
            assert velocity[ray] == pytest.approx(d[ray] @ (v - own[3:]), abs=graze)
    assert met == {"ground", "cube", "pillar", "arm", "post"}


# The cone -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fov", [(30.0, 30.0), (120.0, 10.0), (360.0, 60.0)])
def test_rays_lie_evenly_in_the_ellipse_of_azimuth_and_altitude(fov: tuple[float, float]) -> None:
    """The squared radius in units of the half angles is uniform in [0, 1], and so is the angle (Kolmogorov-Smirnov)."""
    data = radar_of(engine_of([WALL]), points=20_000, horizontal_fov_deg=fov[0], vertical_fov_deg=fov[1]).data
    x, y = (
        np.degrees(numpy(part)[0]) / (0.5 * span) for part, span in zip((data.azimuth, data.altitude), fov, strict=True)
    )
    square = x * x + y * y
    assert square.max() <= 1.0 + 1e-5
    assert stats.kstest(square, "uniform").pvalue > 0.01
    assert stats.kstest((np.arctan2(y, x) / (2.0 * np.pi)) % 1.0, "uniform").pvalue > 0.01


def test_carla_rays_are_uniform_in_radius() -> None:
    """The end of a ray is (R, tan(h/2) R u cos, tan(v/2) R u sin) with u uniform (Kolmogorov-Smirnov)."""
    engine = engine_of([WALL])
    radar = radar_of(engine, points=20_000, horizontal_fov_deg=80.0, vertical_fov_deg=30.0, distribution="central")
    d = directions(radar.data)
    y = d[:, 1] / d[:, 0] / math.tan(math.radians(40.0))
    z = d[:, 2] / d[:, 0] / math.tan(math.radians(15.0))
    u = np.hypot(y, z)
    assert u.max() <= 1.0 + 1e-5
    assert stats.kstest(u, "uniform").pvalue > 0.01
    assert stats.kstest((np.arctan2(z, y) / (2.0 * np.pi)) % 1.0, "uniform").pvalue > 0.01
    assert (u < 0.5).mean() == pytest.approx(0.5, abs=0.02)  # even over the area it would be a quarter


def test_rays_are_redrawn_per_sample_env_episode_and_name_and_reproducible() -> None:
    def scene(seed: int = 0, envs: int = 2) -> sn.Scene:
        cfgs = [sn.RadarCfg(name=name, body="body", points=50) for name in ("one", "two")]
        return sn.Scene(engine_of([WALL], envs), cfgs, seed=seed)

    def azimuth(scene: sn.Scene, name: str = "one") -> Array:
        return numpy(scene[name].data.azimuth)

    first = scene()
    drawn = [azimuth(first), azimuth(first, "two"), azimuth(scene(1))]
    first.update()
    drawn.append(azimuth(first))
    first.reset([1])
    assert np.array_equal(azimuth(first)[0], drawn[-1][0])
    drawn.append(azimuth(first))
    rows = [*(each[env] for each in drawn[:4] for env in range(2)), drawn[4][1]]
    for k, row in enumerate(rows):
        assert all(abs(np.corrcoef(row, other)[0, 1]) < 0.45 for other in rows[:k])  # 0.45: 3.2 sd of 1/sqrt(50)
    again = scene(envs=5)
    assert np.array_equal(azimuth(again)[:2], drawn[0])
    again.update(ticks=0)
    assert np.array_equal(azimuth(again)[:2], drawn[0])


@pytest.mark.parametrize(
    ("dt", "rate", "pps", "count"),
    [(0.01, None, 1500.0, 15), (0.05, None, 1500.0, 75), (0.01, 20.0, 1500.0, 75), (0.01, 30.0, 1000.0, 33)],
)
def test_a_sample_has_the_rays_of_the_time_between_samples(
    dt: float, rate: float | None, pps: float, count: int
) -> None:
    """The number of points is int(points_per_second * period), as in CARLA."""
    radar = radar_of(engine_of([WALL], dt=dt), points_per_second=pps, rate_hz=rate)
    assert radar.data.range.shape == (1, count) and radar.info.notes["rays"] == str(count)


def test_moving_shapes_are_hit_anywhere_in_a_wide_cone() -> None:
    """Static balls all around are hit at their positions: shapes near a block of rays are not culled."""
    rng = np.random.default_rng(1)
    places = rng.standard_normal((40, 3))
    places *= (8.0 / np.linalg.norm(places, axis=1))[:, None]
    names = [f"ball_{k}" for k in range(40)]
    engine = engine_of([Shape("sphere", name, (0.8,), body=name) for name in names], bodies=("body", *names))
    engine.body_pos_w[0, 1:] = torch.tensor(places, dtype=torch.float32)
    still = engine_of(
        [Shape("sphere", name, (0.8,), pos=tuple(p)) for name, p in zip(names, places.tolist(), strict=True)]
    )
    for fov in ((360.0, 180.0), (90.0, 40.0), (40.0, 100.0)):
        options = {"points": 3000, "horizontal_fov_deg": fov[0], "vertical_fov_deg": fov[1], "fields": "all"}
        one, other = radar_of(engine, **options).data, radar_of(still, **options).data
        assert torch.equal(one.azimuth, other.azimuth)
        is_same = one.geom_ids == other.geom_ids
        assert is_same.float().mean() > 0.999 and (one.geom_ids >= 0).float().mean() > 0.02
        assert numpy(one.range[is_same]) == pytest.approx(numpy(other.range[is_same]), abs=2e-3)


# Fields and mounts ----------------------------------------------------------------------------------------------------


def test_miss_is_infinite_and_adds_no_values() -> None:
    radar = radar_of(engine_of([BEHIND]), fields="all", reference_snr=10.0)
    data = radar.data
    assert (data.range == INF).all() and (data.points_b == INF).all()
    assert (data.velocity == 0.0).all() and (data.snr == 0.0).all() and (data.geom_ids == -1).all()
    assert all(len(rows) == 0 for rows in radar.detections().values())


@pytest.mark.parametrize("noise", [None, {"range": 0.1}])
def test_miss_shows_no_hit_value_and_is_not_a_detection(noise: Any) -> None:
    engine = engine_of([Shape("sphere", "ball", (1.0,), body="target")])
    move(engine, 1, pos=(10.0, 0.0, 0.0), vel=(1.0, 0.0, 0.0))
    radar = radar_of(engine, no_hit_value=-1.0, noise=noise, fields="all")
    for data in (radar.data, radar.ground_truth):
        is_hit = data.geom_ids >= 0
        assert 10 < is_hit.sum() < 290
        assert (data.range[~is_hit] == -1.0).all() and (data.range[is_hit] > 8.0).all()
        assert (data.velocity[~is_hit] == 0.0).all() and (data.points_b[~is_hit] == INF).all()
    for measured in (True, False):
        found = radar.detections(measured=measured)
        assert {len(rows) for rows in found.values()} == {int((radar.data.geom_ids >= 0).sum())}
        assert {*found} == {"range", "velocity", "azimuth", "altitude", "points_b", "geom_ids"}


def test_azimuth_is_positive_to_the_left() -> None:
    engine = engine_of([Shape("sphere", "ball", (1.0,), pos=(5.0, 2.0, 1.0))])
    radar = radar_of(engine, horizontal_fov_deg=90.0, vertical_fov_deg=60.0, points=4000)
    found = radar.detections()
    assert found["azimuth"].mean() == pytest.approx(math.atan2(2.0, 5.0), abs=0.02)
    assert found["altitude"].mean() == pytest.approx(math.atan2(1.0, math.hypot(5.0, 2.0)), abs=0.02)


def test_a_plural_selector_has_a_mount_axis_and_all_mounts_have_the_same_rays() -> None:
    engine = engine_of([WALL], sites={"a": ("body", (1.0, 0.0, 0.0)), "b": ("target", (0.0, 0.0, 0.0))})
    move(engine, 0, vel=(2.0, 0.0, 0.0), spin=(0.0, 0.0, 1.0))
    move(engine, 1, pos=(4.0, 0.0, 0.0), vel=(-1.0, 0.0, 0.0))
    radar = radar_of(engine, sites=("a", "b"), noise={"range": 0.1}, fields="all")
    truth = radar.ground_truth
    assert truth.points_b.shape == (1, 2, 300, 3) and torch.equal(truth.azimuth[:, 0], truth.azimuth[:, 1])
    d = directions(sn.RadarData(*(part[:, 0] if part is not None else None for part in fields_of(truth))))
    for k, (near, vel) in enumerate(((9.0, (2.0, 1.0, 0.0)), (6.0, (-1.0, 0.0, 0.0)))):
        assert numpy(truth.range)[0, k] == pytest.approx(near / d[:, 0], rel=1e-6)
        assert numpy(truth.velocity)[0, k] == pytest.approx(-d @ vel, abs=1e-6)
    error = numpy(radar.data.range - truth.range)[0]
    assert abs(np.corrcoef(*error)[0, 1]) < 0.2
    assert len(radar.detections(mount=1)["range"]) == 300


def fields_of(data: Any) -> list[Any]:
    return [getattr(data, name) for name in ("range", "velocity", "azimuth", "altitude", "snr", "points_b", "geom_ids")]


def test_a_radar_does_not_see_the_body_it_sits_on_and_targets_and_limits_select() -> None:
    shapes = [Shape("sphere", "bumper", (0.5,), body="body", pos=(1.0, 0.0, 0.0)),
              Shape("sphere", "near", (0.5,), pos=(4.0, 0.0, 0.0)), WALL]  # fmt: skip
    ahead = {"pattern": AheadPatternCfg()}
    engine = engine_of(shapes)
    assert radar_of(engine, **ahead).data.range.tolist() == [[3.5]]
    assert radar_of(engine, **ahead, exclude_parent_body=False).data.range.tolist() == [[0.5]]
    assert radar_of(engine, **ahead, targets="wall").data.range.tolist() == [[10.0]]
    assert radar_of(engine, **ahead, labels="concrete").data.range.tolist() == [[10.0]]
    assert radar_of(engine, **ahead, min_distance=4.0, exclude="near").data.range.tolist() == [[10.0]]
    assert radar_of(engine, **ahead, max_distance=3.0).data.range.tolist() == [[INF]]


def test_rays_never_hit_shapes_of_other_envs() -> None:
    engine = engine_of([Shape("sphere", "ball", (1.0,), body="target")], envs=3)
    move(engine, 1, pos=(-20.0, 0.0, 0.0))
    move(engine, 1, pos=(10.0, 0.0, 0.0), vel=(-5.0, 0.0, 0.0), env=1)
    data = radar_of(engine).data
    assert torch.isfinite(data.range).sum(dim=1).gt(0).tolist() == [False, True, False]
    assert (data.velocity != 0.0).any(dim=1).tolist() == [False, True, False]


FULL: dict[str, Any] = {
    "fields": "all", "reference_snr": 30.0, "reference_range": 10.0, "false_alarm_probability": 1e-3,
    "bandwidth": 1e9, "frame_time": 0.02, "chirp_time": 5e-5, "channels": (16, 8), "grid": True, "clutter_rate": 4.0,
}  # fmt: skip


def test_readings_are_independent_of_env_count() -> None:
    shots = []
    for envs in (2, 5):
        engine = engine_of([WALL], envs)
        move(engine, 0, vel=(3.0, 1.0, 0.0))
        scene = sn.Scene(engine, [sn.RadarCfg(name="radar", body="body", points=100, **FULL)], seed=3)
        for _ in range(3):
            scene.update()
        shots.append(snapshot(scene["radar"]))
    same(*({name: rows[:2] for name, rows in shot.items()} for shot in shots))


def test_saved_state_resumes_bit_identically() -> None:
    def build() -> sn.Scene:
        engine = engine_of([WALL], 2)
        move(engine, 0, vel=(3.0, 1.0, 0.0))
        cfg = sn.RadarCfg(
            name="radar", body="body", points=60, delay=0.02, history_length=2, noise={"range": 0.1}, **FULL
        )
        return sn.Scene(engine, [cfg], seed=3)

    scene = build()
    for _ in range(5):
        scene.update()
    saved = scene.state()
    for _ in range(4):
        scene.update()
    other = build()
    other.load_state(saved)
    for _ in range(4):
        other.update()
    same(snapshot(scene["radar"]), snapshot(other["radar"]))


def test_non_finite_velocity_of_target_or_radar_is_invalid() -> None:
    """The warning names the body; the other env is unaffected, and the next finite state is valid again."""
    for body, name in ((0, "body"), (1, "target")):
        engine = engine_of([Shape("sphere", "ball", (1.0,), body="target")], 2)
        move(engine, 1, pos=(10.0, 0.0, 0.0))
        scene = sn.Scene(engine, [sn.RadarCfg(name="radar", body="body", points=50)])
        engine.body_ang_vel_w[1, body, 2] = float("nan")
        with pytest.warns(sn.NonFiniteStateWarning, match=name):
            scene.update()
            assert scene["radar"].valid.tolist() == [True, False]
        assert torch.isfinite(scene["radar"].data.velocity[0]).all()
        engine.body_ang_vel_w[1, body, 2] = 0.0
        scene.update()
        assert scene["radar"].valid.tolist() == [True, True]


def test_debug_draw_shows_detections_in_the_world() -> None:
    turn = Rotation.from_euler("Z", 30.0, degrees=True)
    engine = engine_of([WALL])
    move(engine, 0, pos=(1.0, 2.0, 3.0), turn=turn)
    (shape,) = radar_of(engine).debug_draw()
    assert shape.data.shape == (300, 3) and shape.data[:, 0] == pytest.approx(10.0, abs=1e-5)


# Knobs ----------------------------------------------------------------------------------------------------------------


def test_knobs_act_per_field_and_leave_misses_unchanged() -> None:
    """Range noise is in m, velocity noise in m/s, angles in rad; standard deviations are in the 99.9 % interval."""
    sds = {"range": 0.3, "velocity": 0.2, "azimuth": 0.02, "altitude": 0.01}
    engine = engine_of([Shape("box", "half", (0.5, 50.0, 50.0), pos=(10.5, 50.0, 0.0))])  # y > 0 only
    move(engine, 0, vel=(1.0, 0.0, 0.0))
    radar = radar_of(engine, points=8000, noise=sds, bias={"velocity": 1.0}, fields="all")
    data, truth = radar.data, radar.ground_truth
    is_hit = torch.isfinite(truth.range)
    count = int(is_hit.sum())
    assert 3500 < count < 4500 and torch.equal(is_hit, torch.isfinite(data.range))
    low, high = (math.sqrt(stats.chi2.ppf(p, count - 1) / (count - 1)) for p in (0.0005, 0.9995))
    for name, sd in sds.items():
        error = numpy((getattr(data, name) - getattr(truth, name))[is_hit])
        assert low < error.std(ddof=1) / sd < high
        assert error.mean() == pytest.approx(float(name == "velocity"), abs=4.0 * sd / math.sqrt(count))
        assert torch.equal(getattr(data, name)[~is_hit], getattr(truth, name)[~is_hit])
    hit = is_hit[0].numpy()
    assert numpy(data.points_b)[0][hit] == pytest.approx(
        numpy(data.range)[0, hit, None] * directions(data)[hit], abs=1e-5
    )


def test_one_noise_for_fields_of_several_units_is_refused() -> None:
    with pytest.raises(ConfigError, match="noise"):
        radar_of(engine_of([WALL]), noise=0.1)


def test_a_clean_radar_measures_the_truth() -> None:
    radar = radar_of(engine_of([WALL]), fields="all", reference_snr=10.0)
    assert radar.data.range.data_ptr() == radar.ground_truth.range.data_ptr()


# The receiver ---------------------------------------------------------------------------------------------------------


def test_cells_and_limits_are_those_of_a_chirp_radar() -> None:
    """4 GHz gives 3.75 cm, 1 GHz 15 cm, 8 channels 15 degrees; c f_s T_c / 2 B, lambda / 2 T_f, lambda / 4 T_c."""
    assert sn.RadarCfg(body="b", bandwidth=4e9).range_cell == pytest.approx(0.0375, rel=1e-3)
    cfg = sn.RadarCfg(body="b", bandwidth=1e9, chirp_time=5e-5, frame_time=0.02, sampling_rate=1e7, channels=8)
    assert cfg.range_cell == pytest.approx(0.15, rel=1e-3)
    assert cfg.range_limit == pytest.approx(500 * C / 2e9)
    assert cfg.velocity_cell == pytest.approx(C / 77e9 / 0.04) and cfg.velocity_limit == pytest.approx(C / 77e9 / 2e-4)
    assert cfg.angle_cells == (0.25, None) and math.degrees(0.25) == pytest.approx(15.0, abs=0.7)
    notes = radar_of(engine_of([WALL]), bandwidth=1e9, chirp_time=5e-5, frame_time=0.02, sampling_rate=1e7).info.notes
    assert notes["range cell"] == "0.1499 m" and notes["velocity cell"] == "0.09734 m/s"
    assert notes["velocity limit"] == "19.47 m/s" and notes["range limit"] == "74.95 m"


@pytest.mark.parametrize(("factor", "expected"), [(0.5, 0.5), (-0.9, -0.9), (1.25, -0.75), (-1.5, 0.5), (3.25, -0.75)])
def test_velocities_fold_into_the_unambiguous_interval(factor: float, expected: float) -> None:
    """A velocity beyond +- lambda / (4 T_c) folds to the other side; the truth is unchanged."""
    limit = C / 77e9 / (4.0 * 5e-5)
    engine = engine_of([WALL])
    move(engine, 0, vel=(-factor * limit, 0.0, 0.0))
    radar = radar_of(engine, pattern=AheadPatternCfg(), chirp_time=5e-5)
    assert float(radar.data.velocity[0, 0]) == pytest.approx(expected * limit, abs=1e-4)
    assert float(radar.ground_truth.velocity[0, 0]) == pytest.approx(factor * limit, abs=1e-4)


def test_a_grid_rounds_range_velocity_and_angles_to_their_cells() -> None:
    engine = engine_of([WALL])
    move(engine, 0, vel=(6.0, 3.0, 0.0))
    cfg: dict[str, Any] = {"bandwidth": 1e9, "frame_time": 0.02, "chirp_time": 5e-5, "channels": (16, 8), "grid": True}
    radar = radar_of(engine, points=1000, horizontal_fov_deg=90.0, fields="all", **cfg)
    data, truth = radar.data, radar.ground_truth
    cells = {"range": C / 2e9, "velocity": C / 77e9 / 0.04, "azimuth": 2.0 / 16.0, "altitude": 2.0 / 8.0}
    for name, cell in cells.items():
        value, true = numpy(getattr(data, name)), numpy(getattr(truth, name))
        assert value / cell == pytest.approx(np.round(value / cell), abs=1e-4)
        assert np.abs(value - true).max() <= 0.5 * cell * (1.0 + 1e-5) and len(np.unique(value)) >= 3
    assert numpy(data.points_b)[0] == pytest.approx(numpy(data.range)[0, :, None] * directions(data), abs=2e-5)


@pytest.mark.parametrize(("factor", "frame_time"), [(1.0 - 1e-4, 0.02), (1.25, 0.00202), (-3.6, 0.00202)])
def test_a_folded_velocity_lies_on_the_grid_and_below_the_limit(factor: float, frame_time: float) -> None:
    """A value that would round up to the limit is the lowest velocity, and folding precedes rounding."""
    limit, cell = C / 77e9 / (4.0 * 5e-5), C / 77e9 / (2.0 * frame_time)
    engine = engine_of([WALL])
    move(engine, 0, vel=(-factor * limit, 0.0, 0.0))
    radar = radar_of(engine, pattern=AheadPatternCfg(), chirp_time=5e-5, frame_time=frame_time, grid=True)
    velocity = float(radar.data.velocity[0, 0])
    assert velocity / cell == pytest.approx(round(velocity / cell), abs=1e-3)
    expected = -limit if factor < 1.0 and factor > 0.0 else (factor + 1.0) % 2.0 * limit - limit
    assert velocity == pytest.approx(expected, abs=0.5 * cell + 1e-4) and velocity < limit * (1.0 - 1e-3)


def test_targets_beyond_the_maximum_range_are_not_detected() -> None:
    """With f_s T_c = 60 samples of a 0.15 m cell, the limit is 8.99 m: a wall at 10 m is missed, a ball at 8 m is
    not.
    """
    engine = engine_of([WALL, Shape("sphere", "ball", (1.0,), pos=(8.0, 0.0, 0.0))])
    radar = radar_of(engine, bandwidth=1e9, chirp_time=6e-6, sampling_rate=1e7, fields="all")
    assert radar.geom_names == ("wall", "ball")
    is_wall = radar.ground_truth.geom_ids == 0
    assert 0 < is_wall.sum() < 300
    assert (radar.data.range[is_wall] == INF).all() and (radar.data.geom_ids[is_wall] == -1).all()
    far = numpy(radar.ground_truth.range)[0] > 60 * C / 2e9
    assert np.array_equal(np.isfinite(numpy(radar.data.range)[0]), ~far)


def ladder(ranges: Sequence[float], **shape: Any) -> sn.TensorEngine:
    """Return an engine with a plate ahead at a different range in each env."""
    engine = engine_of(
        [Shape("box", "plate", (0.1, 5.0, 5.0), body="target", pos=(0.1, 0.0, 0.0), **shape)], len(ranges)
    )
    for env, far in enumerate(ranges):
        move(engine, 1, pos=(far, 0.0, 0.0), env=env)
    return engine


def test_signal_ratio_falls_with_the_fourth_power_of_range() -> None:
    """SNR = SNR_0 sigma (R_0 / R)^4: the logarithms have slope -4."""
    ranges = (2.0, 5.0, 10.0, 30.0, 80.0)
    options = {"pattern": AheadPatternCfg(), "fields": ("snr",)}
    radar = radar_of(ladder(ranges), **options, reference_snr=40.0, reference_range=20.0)
    snr = numpy(radar.data.snr)[:, 0]
    assert snr == pytest.approx(40.0 * RATIO * (20.0 / np.array(ranges)) ** 4, rel=1e-5)
    assert np.polyfit(np.log(ranges), np.log(snr), 1)[0] == pytest.approx(-4.0, abs=1e-5)
    for word in ("plate", "target", "metal", "pl.*"):
        engine = ladder(ranges, labels=("metal",))
        radar = radar_of(engine, **options, reference_snr=40.0, reference_range=20.0, rcs={word: 30.0})
        assert numpy(radar.data.snr)[:, 0] == pytest.approx(60.0 * snr, rel=1e-5)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 3.0])
def test_the_cross_section_falls_with_the_angle_of_incidence(exponent: float) -> None:
    """The factor is sigma |cos theta|^n, on a plate rotated by 0 to 75 degrees about the foot of the line of sight."""
    angles = np.radians([0.0, 30.0, 60.0, 75.0])
    engine = engine_of([Shape("box", "plate", (0.1, 9.0, 9.0), body="target", pos=(0.1, 0.0, 0.0))], len(angles))
    for env, angle in enumerate(angles):
        move(engine, 1, pos=(10.0, 0.0, 0.0), turn=Rotation.from_euler("Z", angle), env=env)
    radar = radar_of(engine, pattern=AheadPatternCfg(), fields=("snr",), reference_snr=8.0, reference_range=10.0,
                     incidence_exponent=exponent)  # fmt: skip
    assert numpy(radar.data.snr)[:, 0] == pytest.approx(4.0 * np.cos(angles) ** exponent, rel=1e-4)


def test_detection_rates_follow_swerling() -> None:
    """p_d = p_fa^(1 / (1 + SNR)): counts over 320,000 looks at each range lie in the binomial 99 % interval."""
    ranges, p_fa, looks, scans = np.array([10.0, 20.0, 30.0, 45.0, 60.0, 120.0]), 1e-3, 8000, 40
    cfg = sn.RadarCfg(
        name="radar", body="body", pattern=AheadPatternCfg(count=looks), fields="all", max_distance=200.0,
        rcs={"plate": 1.0}, reference_snr=200.0, reference_range=20.0, false_alarm_probability=p_fa,
    )  # fmt: skip
    scene = sn.Scene(ladder(ranges.tolist()), [cfg], seed=0)
    radar, seen = scene["radar"], np.zeros(len(ranges), np.int64)
    for _ in range(scans):
        seen += torch.isfinite(radar.data.range).sum(dim=1).numpy()
        scene.update()
    expected = p_fa ** (1.0 / (1.0 + 200.0 * (20.0 / ranges) ** 4))
    assert expected[0] > 0.99 and expected[-1] < 0.01 and 0.1 < expected[4] < expected[3] < 0.6
    for count, p in zip(seen, expected, strict=True):
        low, high = stats.binom.interval(0.99, scans * looks, p)
        assert low <= count <= high, (count, p)
    # a detection exceeds the threshold by an exponential variable of mean 1 + SNR
    snr = numpy(radar.data.snr)[2]
    excess = (snr[snr > 0.0] + math.log(p_fa)) / (1.0 + 200.0 * (20.0 / 30.0) ** 4)
    assert (excess > 0.0).all() and stats.kstest(excess, "expon").pvalue > 0.01


def test_range_and_velocity_noise_follow_cells_and_signal_ratio() -> None:
    """sd = cell / sqrt(2 SNR), in the 99.9 % interval of its estimate, at several ranges; it is at most one cell."""
    ranges, looks, snr = np.array([10.0, 20.0, 40.0, 90.0]), 6000, 50.0
    engine = ladder(ranges.tolist())
    move(engine, 0, vel=(5.0, 0.0, 0.0))
    options = {"pattern": AheadPatternCfg(count=looks), "bandwidth": 1e9, "frame_time": 0.02, "rcs": {"plate": 1.0}}
    radar = radar_of(engine, **options, reference_snr=snr, reference_range=20.0)
    ratio = snr * (20.0 / ranges) ** 4
    share = 1.0 / np.sqrt(np.maximum(2.0 * ratio, 1.0))
    assert ratio[-1] < 0.5 and (share[:3] < 1.0).all()
    low, high = (math.sqrt(stats.chi2.ppf(p, looks - 1) / (looks - 1)) for p in (0.0005, 0.9995))
    for name, cell in (("range", C / 2e9), ("velocity", C / 77e9 / 0.04)):
        error = numpy(getattr(radar.data, name) - getattr(radar.ground_truth, name))
        for row, sd in zip(error, cell * share, strict=True):
            assert low < row.std(ddof=1) / sd < high
            assert abs(row.mean()) < 4.0 * sd / math.sqrt(looks)
    quiet = radar_of(engine, **options, reference_snr=snr, estimation_noise=False)
    assert torch.equal(quiet.data.range, quiet.ground_truth.range)


def test_false_alarms_are_a_poisson_process_uniform_in_range_and_velocity() -> None:
    """The number per scan has a Poisson distribution (chi-square over 800 scans). False alarms only fill rays without
    a target.
    """
    rate, envs, rays = 6.0, 800, 3000
    radar = radar_of(engine_of([BEHIND], envs), points=rays, clutter_rate=rate, clutter_speed=12.0, min_distance=5.0,
                     fields="all")  # fmt: skip
    is_false = torch.isfinite(radar.data.range)
    counts = is_false.sum(dim=1).numpy()
    edges = [-1, 2, 3, 4, 5, 6, 7, 8, 9, 10**6]
    law = np.diff(stats.poisson.cdf(edges, rate))
    assert stats.chisquare(np.histogram(counts, np.array(edges) + 0.5)[0], envs * law / law.sum()).pvalue > 0.01
    assert (radar.ground_truth.range == INF).all()
    assert (radar.data.geom_ids == -1).all()
    assert stats.kstest((numpy(radar.data.range[is_false]) - 5.0) / 95.0, "uniform").pvalue > 0.01
    assert stats.kstest((numpy(radar.data.velocity[is_false]) + 12.0) / 24.0, "uniform").pvalue > 0.01


def test_false_alarms_do_not_replace_detections_and_exceed_the_threshold() -> None:
    engine = engine_of([Shape("sphere", "ball", (1.0,), body="target")])
    move(engine, 1, pos=(10.0, 0.0, 0.0), vel=(-3.0, 0.0, 0.0))
    options: dict[str, Any] = {"points": 4000, "fields": "all", "reference_snr": 1e9, "false_alarm_probability": 1e-4}
    radar = radar_of(engine, **options, clutter_rate=500.0, chirp_time=5e-5)
    is_ball = radar.ground_truth.geom_ids == 0
    assert torch.equal(radar.data.range[is_ball], radar.ground_truth.range[is_ball])
    is_false = torch.isfinite(radar.data.range) & ~is_ball
    others = int((~is_ball).sum())
    low, high = stats.binom.interval(0.99, others, -math.expm1(-500.0 / 4000.0))
    assert low <= int(is_false.sum()) <= high
    excess = numpy(radar.data.snr[is_false]) + math.log(1e-4)
    assert (excess > 0.0).all() and stats.kstest(excess, "expon").pvalue > 0.01
    limit = C / 77e9 / 2e-4
    assert radar.data.velocity[is_false].abs().max() < limit and radar.data.velocity[is_false].abs().max() > 0.9 * limit


def test_false_alarm_is_independent_of_an_undetected_target() -> None:
    """Half of the looks at a plate fail; the ranges and strengths of false alarms follow their own distributions."""
    options: dict[str, Any] = {"pattern": AheadPatternCfg(count=20_000), "fields": "all", "rcs": {"plate": 1.0}}
    snr = math.log(1e-3) / math.log(0.5) - 1.0
    radar = radar_of(ladder((20.0,)), **options, reference_snr=snr, reference_range=20.0, false_alarm_probability=1e-3,
                     clutter_rate=20_000.0, clutter_speed=5.0)  # fmt: skip
    is_false = (radar.data.geom_ids < 0) & torch.isfinite(radar.data.range)
    count, p = int(is_false.sum()), -math.expm1(-1.0) * 0.5
    low, high = stats.binom.interval(0.99, 20_000, p)
    assert low <= count <= high
    assert stats.kstest(numpy(radar.data.range[is_false]) / 100.0, "uniform").pvalue > 0.01
    assert stats.kstest((numpy(radar.data.velocity[is_false]) + 5.0) / 10.0, "uniform").pvalue > 0.01
    assert stats.kstest(numpy(radar.data.snr[is_false]) + math.log(1e-3), "expon").pvalue > 0.01


def test_receiver_noise_is_redrawn_per_sample_env_and_ray_and_reproducible() -> None:
    def errors(seed: int = 0) -> list[Array]:
        engine = ladder((20.0, 20.0))
        cfg = sn.RadarCfg(
            name="radar", body="body", pattern=AheadPatternCfg(count=400), bandwidth=1e9, reference_snr=9.0
        )
        scene = sn.Scene(engine, [cfg], seed=seed)
        found = []
        for _ in range(2):
            found += list(numpy(scene["radar"].data.range - scene["radar"].ground_truth.range))
            scene.update()
        return found

    first = errors()
    assert np.array_equal(first, errors())
    rows = [*first, *errors(1)]
    for k, row in enumerate(rows):
        assert all(abs(np.corrcoef(row, other)[0, 1]) < 0.2 for other in rows[:k])
    assert abs(np.corrcoef(first[0][:-1], first[0][1:])[0, 1]) < 0.2


# The contract ---------------------------------------------------------------------------------------------------------


def tumbling(envs: int) -> sn.TensorEngine:
    """Return the engine of `check_sensor` in front of a wall and above a ground, with a ball on the body itself."""
    base = tumbling_engine(envs)
    ball = Shape("sphere", "ball", (0.3,), body="body", pos=(1.5, 0.2, 0.1))
    return sn.TensorEngine(
        envs, base.dt, bodies=("body",), sites={"site": ("body", (0.1, 0.0, 0.05))},
        shapes=[WALL, Shape("plane", "ground", pos=(0.0, 0.0, -1.0)), ball],
        provides=("pose", "velocity", "acceleration", "gravity"), magnetic=(0.2, 0.0, -0.4), motion=base.motion,
    )  # fmt: skip


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({"distribution": "central", "points_per_second": 20_000.0}, marks=pytest.mark.full),
        pytest.param(
            {"exclude_parent_body": False, "noise": {"range": 0.1, "velocity": 0.05}, "no_hit_value": -1.0},
            marks=pytest.mark.full,
        ),
        {**FULL, "delay": 0.004, "history_length": 2, "bias": {"velocity": sn.Normal(0.0, 0.1)}, "rate_hz": 100.0},
        {"pattern": AheadPatternCfg(count=5), "chirp_time": 5e-5},
    ],
)
@pytest.mark.slow
def test_contract_holds(extra: dict[str, Any]) -> None:
    """All rules of `check_sensor` hold, with drawn and fixed rays, settings, the receiver, delay and history."""
    points = {} if {"pattern", "points_per_second"} & {*extra} else {"points": 40}
    check_sensor(sn.RadarCfg(body="body", **{"fields": "all", **points, **extra}), engine=tumbling)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"horizontal_fov_deg": 361.0}, "horizontal_fov_deg.*from 0 to 360"),
        ({"vertical_fov_deg": 181.0}, "vertical_fov_deg.*from 0 to 180"),
        ({"horizontal_fov_deg": -1.0}, "from 0 to 360"),
        ({"horizontal_fov_deg": 180.0, "distribution": "central"}, "below 180 degrees"),
        ({"points": 0}, "points.*>= 1"),
        ({"points": 10, "points_per_second": 100.0}, "either points or points_per_second"),
        ({"points_per_second": -5.0}, "points_per_second.*> 0"),
        ({"distribution": "even"}, "distribution"),
        ({"pattern": AheadPatternCfg(), "horizontal_fov_deg": 20.0}, "horizontal_fov_deg.*or pattern"),
        ({"fields": ("speed",)}, "fields among range, velocity"),
        ({"fields": ("snr",)}, "fields.*reference_snr as well"),
        ({"bandwidth": 0.0}, "bandwidth.*> 0"),
        ({"carrier_frequency": float("nan")}, "carrier_frequency"),
        ({"chirp_time": 0.1, "frame_time": 0.01}, "frame_time: .*at least chirp_time"),
        ({"sampling_rate": 1e6}, "sampling_rate: .*bandwidth and chirp_time as well"),
        ({"channels": (8, 0)}, "channels.*>= 1"),
        ({"grid": True}, "grid: .*bandwidth, frame_time or channels as well"),
        ({"false_alarm_probability": 1e-6}, "false_alarm_probability: .*reference_snr as well"),
        ({"false_alarm_probability": 1.0, "reference_snr": 1.0}, "above 0 and below 1"),
        ({"reference_snr": -1.0}, "reference_snr.*> 0"),
        ({"rcs": {"wall": -1.0}, "reference_snr": 1.0}, r"rcs\.wall: got -1\.0, expected a finite number >= 0"),
        ({"rcs": {"wall": 1.0}}, "rcs: .*reference_snr as well"),
        ({"incidence_exponent": -1.0, "reference_snr": 1.0}, "incidence_exponent.*>= 0"),
        ({"clutter_rate": -1.0}, "clutter_rate.*>= 0"),
        ({"clutter_rate": 1.0}, "clutter_rate: .*clutter_speed or chirp_time"),
        ({"clutter_rate": 1.0, "clutter_speed": 0.0}, "clutter_speed.*> 0"),
        ({"max_distance": 0.0}, "max_distance"),
        ({"points_per_second": 50.0}, "points_per_second.*at least one ray"),
        ({"points": 100_000_000}, "points.*at most"),
    ],
)
def test_bad_input_is_refused_by_name(fields: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        sn.Scene(engine_of([WALL]), [sn.RadarCfg(**{"name": "radar", "body": "body", **fields})])


def test_an_empty_world_returns_nothing() -> None:
    scan = radar_of(engine_of([])).data
    assert scan.range.isinf().all() and not scan.velocity.any()


def test_unmatched_cross_section_and_engine_without_velocities_are_refused() -> None:
    with pytest.raises(SelectionError, match=r"rcs\['wal'\].*wall"):
        radar_of(engine_of([WALL]), reference_snr=1.0, rcs={"wal": 2.0})
    with pytest.raises(SelectionError, match="regular expression is invalid"):
        radar_of(engine_of([WALL]), reference_snr=1.0, rcs={"(": 2.0})
    with pytest.raises(sn.UnsupportedError, match="BODY_VELOCITY"):
        radar_of(engine_of([WALL], provides=("pose",)))
