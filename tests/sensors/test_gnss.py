"""The GNSS receiver, checked against WGS84 in NumPy, error statistics over many envs, and a drive through a tunnel."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.geometry import geodesy
from sensorium.record import NpzRecorder, load
from sensorium.testing import check_sensor

Array = NDArray[np.float64]

ZURICH = (47.3977, 8.5456, 488.0)
ORIGIN = [0.0, 0.0, 0.0]
TUNNEL = sn.SkyZone(low=(10.0, -5.0, -5.0), high=(20.0, 5.0, 5.0))


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def driving(dt: float = 0.1, speed: float = 1.0, envs: int = 1) -> sn.TensorEngine:
    """Return a body that drives along x and passes the origin at time 0."""
    return sn.TensorEngine(
        envs,
        dt,
        provides=("pose", "velocity"),
        motion=lambda t: {"body_pos_w": (speed * t, 0.0, 0.1 * t), "body_lin_vel_w": (speed, 0.0, 0.1)},
    )


def scene_of(engine: sn.TensorEngine, seed: int = 0, **kwargs: Any) -> sn.Scene:
    return sn.Scene(engine, [sn.GnssCfg(**{"body": "body", "origin": ZURICH, **kwargs})], seed=seed)


# Where it is ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heading", [0.0, 30.0, -120.0])
def test_position_and_velocity_of_a_tilted_antenna_mast(heading: float) -> None:
    """ENU is the world rotated by the heading, with the antenna's lever arm in position and velocity."""
    envs, rng = 32, np.random.default_rng(1)
    turn, d = Rotation.random(envs, rng=rng), np.array([0.1, -0.3, 1.2])
    p, v, w = (rng.normal(size=(envs, 3)) * scale for scale in (100.0, 5.0, 2.0))
    engine = sn.TensorEngine(envs, 0.1, provides=("pose", "velocity"))
    engine.body_pos_w, engine.body_lin_vel_w, engine.body_ang_vel_w = p[:, None], v[:, None], w[:, None]
    engine.body_quat_w = turn.as_quat(scalar_first=True)[:, None]
    data = scene_of(engine, heading_deg=heading, offset=sn.OffsetCfg(pos=tuple(d)))["gnss"].data
    to_enu = Rotation.from_euler("z", heading, degrees=True)
    arm = turn.apply(d)
    np.testing.assert_allclose(numpy(data.pos_enu), to_enu.apply(p + arm), atol=1e-4)
    np.testing.assert_allclose(numpy(data.vel_enu), to_enu.apply(v + np.cross(w, arm)), atol=1e-5)


def test_heading_of_90_degrees_points_x_north() -> None:
    """A body 100 m along x of such a world is north of the origin: its latitude increases, its longitude does not."""
    engine = sn.TensorEngine(1, 0.1)
    engine.body_pos_w = (100.0, 0.0, 0.0)
    lla = scene_of(engine, heading_deg=90.0)["gnss"].data.lla[0]
    assert lla[0].item() - ZURICH[0] == pytest.approx(100.0 / 111180.0, rel=1e-3)
    assert lla[1].item() == pytest.approx(ZURICH[1], abs=1e-10)


@pytest.mark.parametrize("origin", [ZURICH, (-77.85, 166.67, 10.0), (90.0, 0.0, 0.0), (0.0, 180.0, -30.0)])
def test_geodetic_coordinates_are_float64_and_exact(origin: Any) -> None:
    """`lla` is float64 and equals WGS84 in NumPy for the displayed position, to 10 nm, with and without noise."""
    engine = sn.TensorEngine(200, 0.1)
    engine.body_pos_w = np.random.default_rng(2).uniform(-5000, 5000, size=(200, 1, 3)) * [1.0, 1.0, 0.1]
    sensor = scene_of(engine, origin=origin, pos_noise=2.0)["gnss"]
    for data in (sensor.data, sensor.ground_truth):
        assert data.lla.dtype == torch.float64
        places = geodesy.geodetic_to_ecef(numpy(data.lla))
        expected = geodesy.geodetic_to_ecef(geodesy.enu_to_geodetic(numpy(data.pos_enu), origin))
        assert np.abs(places - expected).max() < 1e-8
    assert not torch.equal(sensor.data.lla, sensor.ground_truth.lla)


def test_millimetres_show_in_latitude_and_longitude() -> None:
    """Steps of 1 mm are resolved, which float32 degrees could not do: their steps are 0.4 m here."""
    engine = sn.TensorEngine(5, 0.1)
    engine.body_pos_w[:, 0, 1] = torch.arange(5) * 1e-3
    latitude = numpy(scene_of(engine)["gnss"].data.lla)[:, 0]
    np.testing.assert_allclose(np.diff(latitude) * 111180.0, 1e-3, rtol=1e-3)


def test_plural_mounts_have_an_axis() -> None:
    """Two antennas of one config are two receivers with independent errors."""
    engine = sn.TensorEngine(500, 0.1, bodies=("left", "right"))
    data = scene_of(engine, body=None, bodies=".*", horizontal_sd=1.0)["gnss"].data
    assert data.lla.shape == data.pos_enu.shape == (500, 2, 3)
    assert data.fix.shape == (500, 2)
    assert abs(np.corrcoef(numpy(data.pos_enu)[..., 0].T)[0, 1]) < 5 / math.sqrt(500)


# The error ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [4.0, 10.0])
def test_error_decorrelates_in_its_correlation_time(rate: float) -> None:
    """Correlation after 5 s and deviation of 20000 receivers give tau within 10 %, at any sample rate."""
    envs, tau, sd = 20000, 5.0, 1.5
    scene = scene_of(sn.TensorEngine(envs, 0.05), horizontal_sd=sd, vertical_sd=2 * sd, tau=tau, rate_hz=rate)
    first = numpy(scene["gnss"].read().pos_enu) / [sd, sd, 2 * sd]
    scene.step(substeps=100)
    assert scene["gnss"].frame[0].item() == 5 * rate + 1
    last = numpy(scene["gnss"].read().pos_enu) / [sd, sd, 2 * sd]
    for errors in (first, last):
        assert errors.std(axis=0) == pytest.approx(np.ones(3), rel=5 / math.sqrt(2 * envs))
        assert np.abs(np.corrcoef(errors.T) - np.eye(3)).max() < 5 / math.sqrt(envs)
    correlation = (first * last).mean()
    # sd of a correlation r from n pairs: (1 - r^2) / sqrt(n); tau = -5 s / ln r changes by 1 / (r ln(1/r)) as much
    r = math.exp(-1.0)
    chance = 5 * (1 - r * r) / math.sqrt(3 * envs) / r
    assert chance < 0.1
    assert -5.0 / math.log(correlation) == pytest.approx(tau, rel=chance)


def test_a_slow_error_sampled_fast_keeps_its_correlation_time() -> None:
    """Over 20 samples at 1 kHz and tau = 10000 s, the error moves by 2 (1 - exp(-T/tau)) of its variance, in 20000
    envs.
    """
    envs, tau, dt, ticks = 20000, 1e4, 0.001, 20
    scene = scene_of(sn.TensorEngine(envs, dt), horizontal_sd=1.0, vertical_sd=1.0, tau=tau)
    first = numpy(scene["gnss"].read().pos_enu)
    for _ in range(ticks):
        scene.update()
    moved = ((numpy(scene["gnss"].read().pos_enu) - first) ** 2).mean()
    assert moved == pytest.approx(-2.0 * math.expm1(-ticks * dt / tau), rel=5 * math.sqrt(2 / (3 * envs)))


def test_half_of_all_fixes_are_within_the_cep() -> None:
    """The ellipse of the horizontal error is a circle; its median radius is 1.1774 deviations (Rayleigh)."""
    envs, sd = 20000, 2.0
    east, north, _ = numpy(scene_of(sn.TensorEngine(envs, 0.1), horizontal_sd=sd)["gnss"].data.pos_enu).T
    radius = np.hypot(east, north)
    assert (radius < 1.1774 * sd).mean() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(envs))
    assert (radius < 2.4477 * sd).mean() == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / envs))


def test_white_noise_and_velocity_noise_are_the_knobs() -> None:
    """`pos_noise` adds to the correlated error, `vel_noise` has a separate deviation, and the truth has neither."""
    envs = 5000
    sensor = scene_of(driving(envs=envs), horizontal_sd=1.0, pos_noise=0.5, vel_noise=(0.05, 0.05, 0.1))["gnss"]
    bound = 5 / math.sqrt(2 * envs)
    assert numpy(sensor.data.pos_enu).std(axis=0) == pytest.approx([1.118, 1.118, 0.5], rel=bound)
    assert numpy(sensor.data.vel_enu).std(axis=0) == pytest.approx([0.05, 0.05, 0.1], rel=bound)
    assert sensor.ground_truth.pos_enu.tolist() == [ORIGIN] * envs


def test_dilution_of_precision_scales_the_error() -> None:
    """HDOP 3 triples the horizontal error draw by draw, and VDOP scales the vertical error; both are reported."""
    engine = sn.TensorEngine(100, 0.1)
    sd: dict[str, Any] = {"horizontal_sd": 1.0, "vertical_sd": 1.0}
    free = scene_of(engine, **sd)["gnss"].read()
    diluted = scene_of(engine, **sd, hdop=3.0, vdop=5.0)["gnss"].read()
    wood = sn.SkyZone(low=(-1.0, -1.0, -1.0), high=(1.0, 1.0, 1.0), fix="float", dop=2.0)
    zoned = scene_of(engine, **sd, hdop=3.0, vdop=5.0, fix="fixed", zones=(wood,))["gnss"].read()
    np.testing.assert_allclose(numpy(diluted.pos_enu), numpy(free.pos_enu) * [3.0, 3.0, 5.0], rtol=1e-6)
    np.testing.assert_allclose(numpy(zoned.pos_enu), numpy(free.pos_enu) * [6.0, 6.0, 10.0], rtol=1e-6)
    assert (zoned.hdop[0].item(), zoned.vdop[0].item(), zoned.fix[0].item()) == (6.0, 10.0, 4)
    assert (free.hdop[0].item(), free.vdop[0].item(), free.fix[0].item()) == (1.0, 1.0, 3)


# Fix ------------------------------------------------------------------------------------------------------------------


def test_before_the_first_fix_the_position_is_unknown() -> None:
    """For 0.5 s after a reset, fix is 0, valid is false, position the origin, DOP infinite; the truth is available."""
    engine = driving()
    engine.motion = lambda t: {"body_pos_w": (100.0 + t, 0.0, 0.0), "body_lin_vel_w": (1.0, 0.0, 0.0)}
    engine.forward()
    scene = scene_of(engine, time_to_first_fix=0.5, horizontal_sd=1.0, pos_noise=1.0)
    seen = []
    for _ in range(8):
        data, truth = scene["gnss"].data, scene["gnss"].ground_truth
        seen.append((int(data.fix[0]), bool(scene["gnss"].valid[0])))
        if data.fix[0] == 0:
            assert data.pos_enu[0].tolist() == ORIGIN and data.vel_enu[0].tolist() == ORIGIN
            assert numpy(data.lla)[0] == pytest.approx(ZURICH, abs=1e-8)
            assert math.isinf(data.hdop.item())
        else:
            assert data.pos_enu[0, 0].item() == pytest.approx(100.0, abs=10.0)
        assert truth.pos_enu[0, 0].item() >= 100.0
        assert truth.fix[0] == data.fix[0]
        scene.update()
    assert seen == [(0, False)] * 5 + [(3, True)] * 3
    scene.reset()
    assert scene["gnss"].data.pos_enu[0].tolist() == ORIGIN, "nothing of the episode before"
    assert not scene["gnss"].valid.item()


def drive_through(scene: sn.Scene, ticks: int) -> list[tuple[Any, ...]]:
    """Return (measured position, velocity, fix, valid, true x) of every tick, from the start."""
    rows = []
    for _ in range(ticks):
        data = scene["gnss"].read()
        truth = scene["gnss"].ground_truth.pos_enu[0, 0].item()
        rows.append((data.pos_enu[0].tolist(), data.vel_enu[0].tolist(), int(data.fix[0]),
                     bool(scene["gnss"].valid[0]), truth))  # fmt: skip
        scene.update()
    return rows


def test_last_position_is_held_in_a_tunnel() -> None:
    """From x = 10 to 20 there is no fix: the reading keeps its last value, noise included, and is not valid."""
    scene = scene_of(driving(dt=0.5), zones=(TUNNEL,), horizontal_sd=1.0, vel_noise=0.1, pos_noise=0.3)
    rows = drive_through(scene, 60)
    before = rows[19]
    for position, velocity, fix, valid, x in rows:
        inside = 10.0 <= x <= 20.0
        assert (fix, valid) == ((0, False) if inside else (3, True))
        if inside:
            assert (position, velocity) == before[:2]
    assert rows[20][4] == 10.0 and rows[40][4] == 20.0
    assert rows[41][0] != before[0]
    assert abs(rows[41][0][0] - 20.5) < 7.0


def test_fix_returns_with_a_delay_after_an_outage() -> None:
    """With a reacquisition time of 3 s the fix is back 3 s after the last capture in the tunnel."""
    rows = drive_through(scene_of(driving(dt=0.5), zones=(TUNNEL,), reacquisition_time=3.0), 60)
    lost = [x for *_, fix, _, x in rows if fix == 0]
    assert (lost[0], lost[-1]) == (10.0, 22.5)
    assert len(lost) == 26


def test_a_2d_fix_holds_the_height() -> None:
    """With a 2D fix only, east and north continue, the height keeps its last good value, and vertical velocity is
    zero.
    """
    street = TUNNEL.replace(fix="2d")
    rows = drive_through(scene_of(driving(dt=0.5), zones=(street,)), 60)
    for position, velocity, fix, valid, x in rows:
        assert valid
        assert position[0] == pytest.approx(x, abs=1e-5)
        if fix == 2:
            assert position[2] == pytest.approx(0.95, abs=1e-6)
            assert velocity == [1.0, 0.0, 0.0]
        else:
            assert position[2] == pytest.approx(0.1 * x, abs=1e-5)
    assert [fix for *_, fix, _, _ in rows].count(2) == 21


def test_error_keeps_evolving_in_a_tunnel() -> None:
    """The error process belongs to the sky, not the receiver: after the tunnel it is the same as without the tunnel."""
    sd: dict[str, Any] = {"horizontal_sd": 1.0, "vertical_sd": 2.0, "tau": 30.0}
    with_tunnel = drive_through(scene_of(driving(dt=0.5), zones=(TUNNEL,), **sd), 60)
    without = drive_through(scene_of(driving(dt=0.5), **sd), 60)
    assert with_tunnel[41:] == without[41:]


# Time -----------------------------------------------------------------------------------------------------------------


def test_reading_belongs_to_its_capture_time() -> None:
    """At 5 Hz with 120 ms of latency, the position shown is that at `capture_time`, 0.12 to 0.32 s ago."""
    scene = scene_of(driving(dt=0.01, speed=20.0), rate_hz=5.0, delay=0.12)
    ages = set()
    for _ in range(200):
        scene.update()
        gnss = scene["gnss"]
        captured = gnss.capture_time.item()
        if gnss.valid.item():
            ages.add(round(gnss.age.item(), 3))
            assert captured == pytest.approx(round(captured * 5) / 5)
        assert gnss.data.pos_enu[0, 0].item() == pytest.approx(20.0 * captured, abs=1e-4)
        place = geodesy.geodetic_to_enu(numpy(gnss.data.lla), ZURICH)[0]
        assert place[0] == pytest.approx(20.0 * captured, abs=1e-4)
    assert (min(ages), max(ages)) == (0.12, 0.31)


def test_no_fix_is_delayed_with_its_sample() -> None:
    """With a delay, `valid` is false while the shown sample, not the newest, was captured in the tunnel."""
    rows = drive_through(scene_of(driving(dt=0.5), zones=(TUNNEL,), delay=1.0), 60)
    for k, (_, _, fix, valid, x) in enumerate(rows):
        captured = max(x - 1.0, 0.0)
        assert fix == (0 if 10.0 <= captured <= 20.0 else 3)
        assert valid == (k >= 2 and fix == 3)


def test_history_and_recording_keep_the_float64(tmp_path: Path) -> None:
    """`lla` keeps its precision through delay, history and a file."""
    scene = scene_of(driving(dt=0.1), delay=0.2, history_length=3, pos_noise=1.0)
    recorder = NpzRecorder()
    for _ in range(10):
        scene.update()
        for reading in scene.publish().values():
            recorder.add(reading)
    gnss = scene["gnss"]
    history = gnss.history
    assert history.lla.dtype == torch.float64
    expected = geodesy.enu_to_geodetic(numpy(history.pos_enu[0]), ZURICH)
    np.testing.assert_allclose(numpy(history.lla[0]), expected, rtol=0, atol=1e-9)
    assert torch.equal(gnss.data.lla[0], history.lla[0, 2])
    recorder.save(tmp_path / "run.npz", scene.description())
    kept = load(tmp_path / "run.npz")["gnss"].measured
    assert kept["lla"].dtype == np.float64
    np.testing.assert_allclose(
        kept["lla"][-1], geodesy.enu_to_geodetic(kept["pos_enu"][-1].astype(np.float64), ZURICH), rtol=0, atol=1e-9
    )


# Config ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"origin": (8.5, 99.0, 4e6)}, "origin: got .*expected latitude.*Give latitude, longitude and height"),
        ({"origin": (91.0, 0.0, 0.0)}, "origin"),
        ({"tau": 0.0}, r"tau: got 0\.0, expected a finite number > 0"),
        ({"horizontal_sd": -1.0}, r"horizontal_sd: got -1\.0, expected a finite number >= 0"),
        ({"fix": "none"}, "fix: got 'none', expected a kind of fix"),
        ({"fix": "rtk"}, "fix: got 'rtk'"),
        ({"heading_deg": 720.0}, "heading_deg"),
    ],
)
def test_wrong_configs_are_refused(given: dict[str, Any], message: str) -> None:
    """A latitude beyond the pole or a negative time raises an error that states the accepted values."""
    with pytest.raises(sn.ConfigError, match=message):
        sn.GnssCfg(body="body", **given)


def test_inverted_zone_is_refused() -> None:
    """The upper corner of a zone is not below its lower corner."""
    with pytest.raises(sn.ConfigError, match=r"high: got .*expected a corner at or above `low` in each axis"):
        sn.SkyZone(low=(0.0, 0.0, 0.0), high=(1.0, -1.0, 1.0))


def test_zone_better_than_open_sky_is_refused() -> None:
    """A factor below 1 would have no effect, because it is 1 outside all zones and the greatest applies."""
    with pytest.raises(sn.ConfigError, match=r"dop: got 0\.5, expected a finite factor >= 1.*hdop and vdop"):
        sn.SkyZone(low=(0.0, 0.0, 0.0), high=(1.0, 1.0, 1.0), dop=0.5)


def test_non_finite_state_is_flagged() -> None:
    """NaN in one env's velocity makes that env's sample invalid."""
    engine = sn.TensorEngine(2, 0.1)
    scene = scene_of(engine)
    engine.body_lin_vel_w[1] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning, match="env 1, body 'body', at tick 1"):
        scene.update()
    assert scene["gnss"].valid.tolist() == [True, False]


def test_non_finite_position_is_never_held() -> None:
    """In a tunnel right after a sample of NaN, the fix before that sample is held."""
    engine = sn.TensorEngine(1, 0.1)
    scene = scene_of(engine, zones=(TUNNEL,))
    engine.body_pos_w = (9.0, 1.0, 0.0)
    engine.body_lin_vel_w = (1.0, 0.0, 0.0)
    scene.update()
    engine.body_pos_w = (9.5, math.nan, 0.0)
    with pytest.warns(sn.NonFiniteStateWarning):
        scene.update()
    engine.body_pos_w = (11.0, 1.0, 0.0)
    scene.update()
    data = scene["gnss"].data
    assert data.fix.item() == 0
    assert (data.pos_enu[0].tolist(), data.vel_enu[0].tolist()) == ([9.0, 1.0, 0.0], [1.0, 0.0, 0.0])


def test_debug_draw_shows_measured_positions() -> None:
    """Debug points are the measured positions transformed back into world axes."""
    engine = sn.TensorEngine(3, 0.1)
    engine.body_pos_w = (3.0, -1.0, 2.0)
    (points,) = scene_of(engine, heading_deg=77.0)["gnss"].debug_draw()
    np.testing.assert_allclose(points.data, [[3.0, -1.0, 2.0]] * 3, atol=1e-5)


@pytest.mark.parametrize(
    "cfg",
    [
        pytest.param(sn.GnssCfg(sites="site", rate_hz=200.0), marks=pytest.mark.full),
        sn.GnssCfg(
            body="body",
            origin=ZURICH,
            heading_deg=30.0,
            horizontal_sd=1.5,
            vertical_sd=3.0,
            tau=0.05,
            time_to_first_fix=0.006,
            reacquisition_time=0.003,
            zones=(
                sn.SkyZone(low=(-1.0, -1.0, -1.0), high=(0.0, 0.0, 0.0)),
                sn.SkyZone(low=(-1.0, 0.0, -1.0), high=(0.0, 1.0, 0.0), fix="2d", dop=3.0),
            ),
        ),
    ],
    ids=["plain", "everything"],
)
def test_contract_holds(cfg: sn.GnssCfg) -> None:
    """Every rule of `check_sensor` holds, without errors and with all of them."""
    check_sensor(cfg)
