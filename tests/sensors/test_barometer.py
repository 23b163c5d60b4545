"""The barometer, checked against standard-atmosphere tables, closed forms of its errors, and float64 NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.testing import check_sensor

Array = NDArray[np.float64]

RHO_0 = 1.225
"""Density of the standard atmosphere at sea level, kg/m^3, from its table."""
STEP = 2.0**-7
"""Steps of float32 between 65.5 and 131 kPa, Pa."""
PA_PER_METRE = 12.013
"""Decrease of pressure with height at sea level: g rho."""


def numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)


def altitude_of(pressure: Array) -> Array:
    """Solve P = 101325 (1 - 0.0065 h / 288.15)^5.255876 for h by Newton's method, in float64."""
    exponent = 9.80665 * 0.0289644 / (8.31432 * 0.0065)
    h = np.zeros_like(pressure)
    for _ in range(30):
        base = 1.0 - 0.0065 * h / 288.15
        p = 101325.0 * base**exponent
        h = h + (p - pressure) / (101325.0 * exponent * base ** (exponent - 1.0) * 0.0065 / 288.15)
    return h


def engine_at(heights: Any, dt: float = 0.01, **kwargs: Any) -> sn.TensorEngine:
    heights = np.atleast_1d(np.asarray(heights, np.float64))
    engine = sn.TensorEngine(len(heights), dt, **{"provides": ("pose", "velocity"), **kwargs})
    engine.body_pos_w[:, 0, 2] = torch.tensor(heights, dtype=torch.float32)
    return engine


def barometer(engine: sn.TensorEngine, **kwargs: Any) -> Any:
    return sn.Scene(engine, [sn.BarometerCfg(**{"body": "body", **kwargs})])["barometer"]


# The standard atmosphere ----------------------------------------------------------------------------------------------

TABLE = {
    0.0: 101325.0,
    1000.0: 89874.6,
    2000.0: 79495.2,
    3000.0: 70108.5,
    5000.0: 54019.9,
    10000.0: 26436.3,
    11000.0: 22632.1,
    15000.0: 12044.6,
    20000.0: 5474.89,
}
"""Geopotential altitude, m, and pressure, Pa, as printed in ISO 2533."""


def test_pressures_match_the_printed_table() -> None:
    """At the heights of the table the pressure has the printed value, to its last digit and a step of float32."""
    pressure = numpy(barometer(engine_at(list(TABLE))).data.pressure)
    np.testing.assert_allclose(pressure, list(TABLE.values()), atol=0.05 + STEP / 2, rtol=2e-6)


def test_inverting_the_pressure_gives_the_height_within_a_millimetre() -> None:
    """From -100 to 3000 m the float32 pressure fixes the height to 0.5 mm, by this package's inverse and by Newton's
    method.
    """
    heights = np.random.default_rng(1).uniform(-100.0, 3000.0, 20000)
    engine = engine_at(heights)
    sensor = barometer(engine, bias=0.0)
    true = numpy(engine.body_pos_w[:, 0, 2])
    by_newton = altitude_of(numpy(sensor.data.pressure)) - true
    assert np.abs(by_newton).max() < 0.5e-3
    assert np.abs(numpy(sensor.data.altitude) - true).max() < 0.5e-3 + 2.0**-13  # and half a step of a float32 height
    assert np.abs(by_newton).max() > 0.3e-3, "the bound is meant to be that of float32, half a step"


def test_the_true_altitude_is_the_height_itself() -> None:
    """Ground truth, and a measurement without errors, is z + altitude_offset, free of the pressure's float32 steps."""
    heights = np.linspace(0.0, 0.002, 41)  # three steps of the pressure
    sensor = barometer(engine_at(heights), altitude_offset=0.25)
    assert numpy(sensor.ground_truth.altitude) == pytest.approx(heights + 0.25, abs=2.0**-25)
    assert len(np.unique(numpy(sensor.ground_truth.pressure))) < 6
    assert torch.equal(sensor.data.altitude, sensor.ground_truth.altitude)


def test_the_offset_is_the_altitude_of_the_worlds_origin() -> None:
    """At z = 12 in a world 488 m above sea level the barometer reads 500 m, with the lever arm of a tilted mount."""
    engine = engine_at([10.0])
    engine.body_quat_w = Rotation.from_euler("y", 90, degrees=True).as_quat(scalar_first=True)
    sensor = barometer(engine, altitude_offset=488.0, offset=sn.OffsetCfg(pos=(-2.0, 0.0, 5.0)))
    assert sensor.data.altitude.item() == pytest.approx(500.0, abs=1e-3)
    assert sensor.ground_truth.altitude.item() == pytest.approx(500.0, abs=1e-4)


def test_the_inverse_is_continuous_at_the_tropopause_and_infinite_without_pressure() -> None:
    """Altitudes beyond 11 km also convert back; a reading that noise drives to zero or below gives an infinite
    altitude.
    """
    heights = np.linspace(10950.0, 20000.0, 200)
    read = numpy(barometer(engine_at(heights), bias=0.0).data.altitude)
    np.testing.assert_allclose(read, heights, atol=2e-3)
    read = numpy(barometer(engine_at([0.0, 0.0]), bias=-101325.0).data.altitude)
    assert np.isposinf(read).all()


# Errors ---------------------------------------------------------------------------------------------------------------


def test_the_measured_altitude_follows_from_the_measured_pressure() -> None:
    """With noise, bias and quantisation, altitude is the exact inverse of the displayed pressure, on its grid."""
    sensor = barometer(engine_at(np.zeros(5000)), noise=2.0, bias=-24.0, resolution=0.25)
    pressure = numpy(sensor.data.pressure)
    assert (pressure / 0.25 == np.rint(pressure / 0.25)).all()
    np.testing.assert_allclose(numpy(sensor.data.altitude), altitude_of(pressure), atol=1e-4)
    error = pressure - 101325.0
    assert error.mean() == pytest.approx(-24.0, abs=5 * 2.0 / math.sqrt(5000))
    assert error.std() == pytest.approx(math.sqrt(4.0 + 0.25**2 / 12), rel=5 / math.sqrt(2 * 5000))
    assert numpy(sensor.data.altitude).mean() == pytest.approx(
        24.0 / PA_PER_METRE, abs=0.01 + 10 / 12 / math.sqrt(5000)
    )
    assert (numpy(sensor.ground_truth.altitude) == 0.0).all()


def test_wind_over_the_port_reads_as_height() -> None:
    """A port with Cp = -0.3 has suction: at 15 m/s it reads 41.3 Pa too little and 3.44 m too high. Cp > 0 reads too
    low.
    """
    engine = engine_at([0.0])
    engine.body_lin_vel_w = (9.0, -12.0, 0.0)
    suction = barometer(engine, position_error=-0.3)
    error = 0.5 * -0.3 * RHO_0 * 15.0**2
    assert suction.data.pressure.item() - 101325.0 == pytest.approx(error, abs=STEP)
    assert suction.data.altitude.item() == pytest.approx(-error / PA_PER_METRE, rel=1e-3)
    assert suction.ground_truth.pressure.item() == 101325.0
    assert barometer(engine, position_error=0.3).data.altitude.item() == pytest.approx(error / PA_PER_METRE, rel=1e-3)


@pytest.mark.parametrize(
    ("wind", "speed"), [((10.0, 0.0, 0.0), 0.0), ((-10.0, 0.0, 0.0), 20.0), ((10.0, 0.0, 5.0), 5.0)]
)
def test_wind_error_depends_on_velocity_relative_to_the_air(wind: Any, speed: float) -> None:
    """At 10 m/s of flight, an equal tail wind removes the error, and an equal head wind quadruples it."""
    engine = engine_at([0.0])
    engine.body_lin_vel_w = (10.0, 0.0, 0.0)
    error = barometer(engine, position_error=-0.5, wind=wind).data.pressure.item() - 101325.0
    assert error == pytest.approx(-0.25 * RHO_0 * speed**2, abs=STEP)


def test_three_coefficients_weigh_the_sensors_own_axes() -> None:
    """A port in a rotated body senses the wind in its own frame, and the speed of its lever arm, in thinner air."""
    turn, d, w = Rotation.from_euler("xyz", (0.4, -0.7, 1.9)), np.array([0.5, 0.0, 0.3]), np.array([1.0, -3.0, 8.0])
    engine = engine_at([2000.0])
    engine.body_quat_w = turn.as_quat(scalar_first=True)
    engine.body_lin_vel_w, engine.body_ang_vel_w = (20.0, -3.0, 4.0), tuple(w)
    mount = Rotation.from_euler("z", 1.0)
    offset = sn.OffsetCfg(pos=tuple(d), rot=tuple(mount.as_quat(scalar_first=True).tolist()))
    cp, wind = np.array([0.8, -0.4, 0.1]), np.array([1.0, -6.0, 2.0])
    sensor = barometer(engine, offset=offset, position_error=tuple(cp), wind=tuple(wind))
    arm = turn.apply(d)
    v = (turn * mount).inv().apply(np.array([20.0, -3.0, 4.0]) + np.cross(w, arm) - wind)
    h = 2000.0 + arm[2]
    rho = RHO_0 * (1.0 - 0.0065 * h / 288.15) ** 4.255876
    error = sensor.data.pressure.item() - sensor.ground_truth.pressure.item()
    assert error == pytest.approx(0.5 * rho * (cp @ v**2), abs=1.5 * STEP, rel=1e-5)


def test_a_warm_sensor_has_an_offset() -> None:
    """0.75 Pa/K reads 15 Pa too much at 45 degrees Celsius, 15 Pa too little at 5 degrees, and is exact at 25
    degrees.
    """
    for celsius, offset in ((45.0, 15.0), (5.0, -15.0), (25.0, 0.0)):
        sensor = barometer(engine_at([0.0]), temperature=celsius, temperature_coefficient=0.75)
        assert sensor.data.pressure.item() - 101325.0 == pytest.approx(offset, abs=STEP)


def test_velocity_is_needed_only_for_the_position_error() -> None:
    """An engine with poses only supports a barometer, but not a port that senses the wind."""
    assert barometer(engine_at([0.0], provides=("pose",)), lag=0.1).data.pressure.item() == 101325.0
    with pytest.raises(sn.UnsupportedError, match="requires BODY_VELOCITY"):
        barometer(engine_at([0.0], provides=("pose",)), position_error=0.1)


# Lag ------------------------------------------------------------------------------------------------------------------


def test_step_response_reaches_63_percent_after_the_time_constant() -> None:
    """After a lift by 50 m the response covers 1 - 1/e of it in 0.5 s; the lift is assumed to last one sample."""
    engine, dt, tau = engine_at([0.0], dt=0.005), 0.005, 0.5
    scene = sn.Scene(engine, [sn.BarometerCfg(body="body", lag=tau)])
    before, after = 101325.0, None
    engine.body_pos_w[..., 2] = 50.0
    for tick in range(1, 301):
        scene.update()
        after = scene["barometer"].ground_truth.pressure.item()
        part = (scene["barometer"].data.pressure.item() - before) / (after - before)
        ramp = (math.exp(dt / tau) - 1.0) * tau / dt  # a ramp over the first sample, then nothing
        assert part == pytest.approx(1.0 - math.exp(-tick * dt / tau) * ramp, abs=3 * STEP / 600.0)
        if tick == 100:
            assert part == pytest.approx(0.632, abs=0.368 * dt / tau / 2 + 1e-3)
        if tick == 300:
            assert part == pytest.approx(0.950, abs=0.001)


@pytest.mark.parametrize("every", [1, 10, 40, 400])
def test_steady_climb_lags_by_the_time_constant(every: int) -> None:
    """During a climb the response lags by the time constant of 0.2 s, at any sample period from 2.5 ms to 1 s."""
    dt, tau, climb = 0.0025, 0.2, 5.0
    engine = sn.TensorEngine(1, dt, motion=lambda t: {"body_pos_w": (0.0, 0.0, climb * t)})
    cfg = sn.BarometerCfg(body="body", lag=tau, update_period=every * dt)
    scene = sn.Scene(engine, [cfg])
    for _ in range(4):
        scene.step(substeps=400)
    late = scene["barometer"].ground_truth.altitude.item() - scene["barometer"].data.altitude.item()
    settled = 1.0 - math.exp(-4.0 / tau)
    # the pressure is not quite linear in height: over the lag its slope changes by 1e-4 of itself
    assert late == pytest.approx(climb * tau * settled, rel=1e-3)


def test_slow_response_does_not_stall_at_float32_resolution() -> None:
    """With 5000 samples per time constant the response reaches the last pascal, at a height that float32 cannot hold
    exactly.
    """
    engine = engine_at([0.1], dt=0.001)
    scene = sn.Scene(engine, [sn.BarometerCfg(body="body", lag=5.0, altitude_offset=1234.567)])
    engine.body_pos_w[..., 2] = 0.6
    for _ in range(2500):
        scene.update()
    part = math.exp(-0.5)
    behind = scene["barometer"].data.pressure.item() - scene["barometer"].ground_truth.pressure.item()
    assert behind == pytest.approx(0.5 * 9.80665 * 1.0868 * part, abs=2 * STEP)


def test_the_wind_error_lags_as_well() -> None:
    """A sudden gust arrives with the time constant of the tube."""
    engine = engine_at([0.0], dt=0.001)
    scene = sn.Scene(engine, [sn.BarometerCfg(body="body", lag=0.1, position_error=1.0)])
    engine.body_lin_vel_w = (20.0, 0.0, 0.0)
    for _ in range(100):
        scene.update()
    full = 0.5 * RHO_0 * 400.0
    part = (scene["barometer"].data.pressure.item() - 101325.0) / full
    assert part == pytest.approx(1.0 - math.exp(-1.0), abs=0.368 * 0.005 + STEP / full)


def test_a_reset_starts_settled() -> None:
    """At a reset, on or off the grid, the response starts at the current pressure; other envs continue."""
    engine = engine_at([0.0, 0.0], dt=0.01)
    scene = sn.Scene(engine, [sn.BarometerCfg(body="body", lag=1.0, update_period=0.05)])
    engine.body_pos_w[..., 2] = 100.0
    for _ in range(7):
        scene.update()
    behind = scene["barometer"].data.pressure[1].item()
    scene.reset([0], body_pos_w=[[[0.0, 0.0, 900.0]]])
    data, truth = scene["barometer"].data, scene["barometer"].ground_truth
    assert data.pressure[0] == truth.pressure[0]
    assert data.pressure[1].item() == behind
    for _ in range(3):
        scene.update()
    assert scene["barometer"].data.pressure[0] == scene["barometer"].ground_truth.pressure[0]
    assert scene["barometer"].data.pressure[1].item() < behind


# Config ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lag": -0.1}, "lag: got -0.1, expected a finite time constant >= 0"),
        (
            {"temperature": 298.15},
            "temperature: got 298.15, expected degrees Celsius, -100 to 200.*298.15 K are 25 deg",
        ),
        ({"altitude_offset": 50000.0}, "altitude_offset: got 50000.0, expected an altitude from -1000 to 20000 m"),
        ({"position_error": (0.1, 0.2)}, "position_error"),
        ({"position_error": math.nan}, "position_error: got nan, expected a finite number, or three"),
        ({"wind": (0.0, math.inf, 0.0)}, "wind: got .*, expected three finite numbers"),
        ({"temperature_coefficient": math.inf}, "temperature_coefficient: got inf, expected a finite number"),
    ],
)
def test_wrong_configs_are_refused(given: dict[str, Any], message: str) -> None:
    """A negative time, a temperature in kelvin or an altitude in space raises an error that states the accepted
    values.
    """
    with pytest.raises(sn.ConfigError, match=message):
        sn.BarometerCfg(body="body", **given)


def test_a_knob_of_the_altitude_is_refused() -> None:
    """Noise is applied to the pressure; the altitude follows."""
    with pytest.raises(sn.ConfigError, match="altitude"):
        sn.Scene(engine_at([0.0]), [sn.BarometerCfg(body="body", noise={"altitude": 1.0})])


def test_non_finite_state_is_flagged() -> None:
    """NaN in one env's velocity makes that env's sample invalid if the port senses it."""
    engine = engine_at([0.0, 0.0])
    scene = sn.Scene(engine, [sn.BarometerCfg(body="body", position_error=0.1)])
    engine.body_lin_vel_w[1] = math.nan
    scene.update()
    with pytest.warns(sn.NonFiniteStateWarning):
        assert scene["barometer"].valid.tolist() == [True, False]


def test_lag_continues_after_a_non_finite_state() -> None:
    """After one sample of NaN the response is the same as if that sample had been skipped."""
    engine, dt, tau = engine_at([0.0, 0.0]), 0.01, 0.1
    scene = sn.Scene(engine, [sn.BarometerCfg(body="body", lag=tau)])
    engine.body_pos_w[..., 2] = 50.0
    scene.update()
    engine.body_pos_w[1, 0, 2] = math.nan
    with pytest.warns(sn.NonFiniteStateWarning):
        scene.update()
    assert scene["barometer"].data.pressure.isnan().tolist() == [False, True]
    assert scene["barometer"].data.altitude.isnan().tolist() == [False, True]
    engine.body_pos_w[1, 0, 2] = 50.0
    scene.update()
    pressure, truth = scene["barometer"].data.pressure, scene["barometer"].ground_truth.pressure
    assert scene["barometer"].valid.all()
    assert pressure[1].item() == pytest.approx(pressure[0].item(), abs=2 * STEP)
    ramp = (math.exp(dt / tau) - 1.0) * tau / dt
    left = (101325.0 - truth[1].item()) * math.exp(-3 * dt / tau) * ramp
    assert pressure[1].item() - truth[1].item() == pytest.approx(left, abs=2 * STEP)


@pytest.mark.parametrize(
    "cfg",
    [
        pytest.param(sn.BarometerCfg(sites="site"), marks=pytest.mark.full),
        sn.BarometerCfg(
            body="body",
            lag=0.03,
            position_error=(-0.3, -0.2, 0.1),
            wind=(3.0, 1.0, 0.0),
            temperature=40.0,
            temperature_coefficient=0.75,
            stages=(sn.stages.GaussMarkov(fields=("pressure",), density=0.1, tau=10.0),),
        ),
    ],
    ids=["plain", "everything"],
)
def test_contract_holds(cfg: sn.BarometerCfg) -> None:
    """Every rule of `check_sensor` holds, without errors and with all of them."""
    check_sensor(cfg)


@pytest.mark.parametrize("count", [3, 4])
def test_three_or_four_mounts_read_the_same_as_one(count: int) -> None:
    """Several barometers side by side read the same as each alone."""
    sites = {f"port_{k}": ("body", (0.0, 0.0, 10.0 * k)) for k in range(count)}
    engine = sn.TensorEngine(2, 0.01, sites=sites)
    alone = [sn.BarometerCfg(name=site, site=site) for site in sites]
    scene = sn.Scene(engine, [sn.BarometerCfg(name="all", sites=tuple(sites)), *alone])
    for k, site in enumerate(sites):
        assert torch.equal(scene["all"].data.pressure[:, k], scene[site].data.pressure)
        assert scene[site].data.altitude.tolist() == pytest.approx([10.0 * k] * 2, abs=1e-3)
