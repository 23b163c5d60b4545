"""Row scan and RC time constant of a skin: exact skews of ramps, and 63.2 % at tau."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import skin
import synthetic as syn
import torch
from selection import pairs
from skin import BOTH, Array, SkinCfg, readings

import sensorium as sn
from sensorium.testing import check_sensor, tumbling_engine

FORCE = ("force",)
DT = 1.0 / 64.0  # a binary fraction: all skews of a ramp are exact in float32


def ramps(ticks: int, envs: int = 2, taxels: int = 20, pace: float = 64.0) -> Array:
    """Return forces that increase by `pace` per second, each taxel and part from its own start."""
    start = np.arange(envs * taxels * 3).reshape(envs, taxels, 3)
    return start + pace * DT * np.arange(ticks)[:, None, None, None]


# Row scan -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scan", [0.25, 0.5, 1.0, 2.5, 4.0])
@pytest.mark.parametrize("order", [("row", "rising"), ("row", "falling"), ("column", "rising"), ("column", "falling")])
def test_each_row_of_a_ramp_is_delayed_by_its_fraction_of_the_scan(scan: float, order: tuple[Any, Any]) -> None:
    """Row r of n shows t - scan_time (n - 1 - r)/n exactly, whether the scan is shorter or longer than a tick."""
    axis, direction = order
    stage = sn.stages.RowScan(fields=BOTH, scan_time=scan * DT, axis=axis, direction=direction)
    cfg = SkinCfg(name="s", layout=(4, 5) if axis == "row" else (5, 4), update_period=4.0 * DT, stages=(stage,))
    forces = ramps(9)
    out = readings(cfg, forces, dt=DT)
    lags = scan * np.arange(3, -1, -1) / 4.0  # in ticks, of which each is one unit of force
    lags = lags if direction == "rising" else lags[::-1]
    late = lags[:, None, None] if axis == "row" else lags[:, None]
    for tick in (4, 8):
        expected = forces[tick].reshape(2, 1, *cfg.layout, 3) - late
        np.testing.assert_array_equal(out[tick], expected)
        np.testing.assert_array_equal(readings(cfg, forces, "torque", dt=DT)[tick], 2.0 * expected)


def test_any_signal_is_interpolated_between_its_ticks() -> None:
    """Values match NumPy's interpolation over the ticks at t - scan_time (n - 1 - r)/n, for noise and several pads."""
    forces = np.random.default_rng(5).normal(size=(13, 3, 24, 3)).astype(np.float32).astype(np.float64)
    stage = sn.stages.RowScan(fields=FORCE, scan_time=0.037)
    cfg = SkinCfg(name="s", pads=2, rate_hz=25.0, stages=(stage,))
    out = readings(cfg, forces)
    times, flat = 0.01 * np.arange(13), forces.reshape(13, 3, 2, 3, 4, 3)
    for tick in (4, 8, 12):
        for row in range(3):
            at = tick * 0.01 - 0.037 * (2 - row) / 3
            k = int(at // 0.01)
            share = (at - times[k]) / 0.01
            expected = (1.0 - share) * flat[k, :, :, row] + share * flat[k + 1, :, :, row]
            np.testing.assert_allclose(out[tick, :, :, row], expected, atol=1e-6)


@pytest.mark.parametrize("between", ["ticks", "samples"])
def test_scan_of_zero_duration_changes_no_bit(between: Any) -> None:
    """With scan_time=0 all rows are from the instant of capture."""
    forces = np.random.default_rng(5).normal(size=(9, 2, 12, 3)).astype(np.float32).astype(np.float64)
    stage = sn.stages.RowScan(fields=FORCE, scan_time=0.0, between=between)
    out = readings(SkinCfg(name="s", rate_hz=25.0, stages=(stage,)), forces)
    for tick in range(9):
        assert np.array_equal(out[tick].reshape(2, 12, 3), forces[4 * (tick // 4)])


@pytest.mark.parametrize("between", ["ticks", "samples"])
def test_ramp_delay_is_equal_between_samples(between: Any) -> None:
    """A linear signal is the same interpolated over four ticks or over one period."""
    stage = sn.stages.RowScan(fields=FORCE, scan_time=4.0 * DT, between=between)
    cfg, forces = SkinCfg(name="s", layout=(4, 5), update_period=4.0 * DT, stages=(stage,)), ramps(9)
    late = np.arange(3, -1, -1)[:, None, None]
    out = readings(cfg, forces, dt=DT)
    for tick in (4, 8):
        np.testing.assert_array_equal(out[tick], forces[tick].reshape(2, 1, 4, 5, 3) - late)


@pytest.mark.parametrize("between", ["ticks", "samples"])
def test_values_from_before_the_episode_are_its_first_value(between: Any) -> None:
    """The first sample has no skew; after a reset no earlier data appears, and the other env is unaffected."""
    stage = sn.stages.RowScan(fields=FORCE, scan_time=0.04, between=between)
    cfg = SkinCfg(name="s", layout=(4, 3), rate_hz=25.0, stages=(stage,))
    engine = skin.engine_of(cfg, 2)
    engine.body_pos_w[:] = 100.0
    scene = sn.Scene(engine, [cfg])
    assert (scene["s"].data.force == 100.0).all()
    for k in range(1, 7):
        engine.body_pos_w[:] = 100.0 + k
        scene.update()
    before = scene["s"].data.force.clone()
    scene.reset([1], body_pos_w=torch.full((1, 12, 3), -7.0))  # in the middle of a period
    force = scene["s"].data.force
    assert torch.equal(force[0], before[0]) and (force[1] == -7.0).all()
    for k in range(7, 9):
        engine.body_pos_w[:] = torch.tensor([100.0 + k, -7.0 + 6.0 * (k - 6)])[:, None, None]
        scene.update()
    rows = scene["s"].data.force[:, :, 0, 0]
    torch.testing.assert_close(rows[0], torch.tensor([105.0, 106.0, 107.0, 108.0]))
    last = {"ticks": [-7.0, -7.0, -1.0, 5.0], "samples": [-7.0 + 12.0 * (r + 1) / 4 for r in range(4)]}
    torch.testing.assert_close(rows[1], torch.tensor(last[between]))


def test_edit_without_time_is_in_no_scan() -> None:
    """update(ticks=0) after an edit, once or repeatedly, keeps the sample, and no later sample contains the edit."""
    for between in ("ticks", "samples"):
        stage = sn.stages.RowScan(fields=FORCE, scan_time=0.04, between=between)
        cfg = SkinCfg(name="s", layout=(4, 3), rate_hz=25.0, stages=(stage,))
        engine = skin.engine_of(cfg, 1)
        scene = sn.Scene(engine, [cfg])
        for k in range(1, 5):
            engine.body_pos_w[:] = float(k)
            scene.update()
        held = syn.snapshot(scene["s"])
        for _ in range(3):
            engine.body_pos_w[:] = 20.0
            scene.update(ticks=0)
            syn.same(syn.snapshot(scene["s"]), held)
        torch.testing.assert_close(scene["s"].data.force[0, :, 0, 0], torch.tensor([1.0, 2.0, 3.0, 4.0]))
        for k in range(5, 9):
            engine.body_pos_w[:] = float(k)
            scene.update()
        torch.testing.assert_close(scene["s"].data.force[0, :, 0, 0], torch.tensor([5.0, 6.0, 7.0, 8.0]))


def test_a_miss_is_not_interpolated() -> None:
    """Between infinity and a number the nearer value is shown, never NaN."""
    forces = ramps(5, 1, 12)
    forces[3] = math.inf
    stage = sn.stages.RowScan(fields=FORCE, scan_time=2.4 * DT)
    out = readings(SkinCfg(name="s", update_period=4.0 * DT, stages=(stage,)), forces, dt=DT)[4, 0, 0]
    # the rows look back by 1.6, 0.8 and 0 ticks: the nearest of them are 2 (a number), 3 (infinity) and 4
    flat = forces.reshape(5, 3, 4, 3)
    assert np.array_equal(out[0], flat[2, 0]) and np.isposinf(out[1]).all() and np.array_equal(out[2], flat[4, 2])


@pytest.mark.parametrize("between", ["ticks", "samples"])
def test_non_finite_tick_leaves_no_nan_in_later_valid_samples(between: Any) -> None:
    """Sampled at every tick, row 0 looks back two thirds of a tick: at the bad tick, and then from the next tick."""
    forces = ramps(5, 1, 12).astype(np.float32)
    cfg = SkinCfg(name="s", stages=(sn.stages.RowScan(fields=FORCE, scan_time=DT, between=between),))
    engine = skin.engine_of(cfg, 1, DT)
    engine.body_pos_w[:] = torch.tensor(forces[0])
    scene = sn.Scene(engine, [cfg])
    for tick in range(1, 5):
        engine.body_pos_w[:] = torch.tensor(forces[tick]) if tick != 2 else math.nan
        if tick == 2:
            with pytest.warns(sn.NonFiniteStateWarning):
                scene.update()
                assert not scene["s"].valid.any()
            continue
        scene.update()
        assert scene["s"].valid.all() and torch.isfinite(scene["s"].data.force).all()
    late = (scene["s"].ground_truth.force - scene["s"].data.force)[0, :, 0, 0]
    torch.testing.assert_close(late, torch.tensor([2.0, 1.0, 0.0]) / 3.0, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        ({}, "scan_time: got nothing"),
        ({"scan_time": -0.001}, r"scan_time: got -0\.001, expected a finite number of seconds >= 0"),
        ({"scan_time": math.inf}, "a finite number of seconds"),
        ({"scan_time": 0.001, "axis": "diagonal"}, "axis: got 'diagonal'"),
    ],
)
def test_invalid_scan_is_refused(make: dict[str, Any], match: str) -> None:
    with pytest.raises(sn.ConfigError, match=match):
        sn.stages.RowScan(fields=FORCE, **make)


@pytest.mark.parametrize(
    ("layout", "stage", "match"),
    [
        ((12,), sn.stages.RowScan(fields=FORCE, scan_time=0.01), r"a grid of rows and columns; 'force' has 12 taxels"),
        (
            (3, 4),
            sn.stages.RowScan(fields=FORCE, scan_time=0.02),
            r"a scan_time of at most the period, 0\.01 s, not 0\.02 s",
        ),
        ((3, 4), sn.stages.RowScan(fields=("touch",), scan_time=0.01), "fields of float32, not bool"),
    ],
)
def test_mismatch_with_the_skin_is_refused(layout: tuple[int, ...], stage: sn.stages.StageCfg, match: str) -> None:
    """The fault is found when the scene is built."""
    cfg = SkinCfg(name="s", layout=layout, stages=(stage,))
    with pytest.raises(sn.ConfigError, match=match):
        sn.Scene(skin.engine_of(cfg, 1), [cfg])


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("between", ["ticks", "samples"])
def test_env_counts_and_captures_do_not_matter(between: Any) -> None:
    """Env 1 of 2 equals env 1 of 300, bit for bit, launched or captured, with a reset in between."""
    stage = sn.stages.RowScan(fields=BOTH, scan_time=0.025, between=between)
    cfg = SkinCfg(name="s", layout=(6, 5), pads=2, rate_hz=30.0, stages=(stage,))
    scenes = [sn.Scene(skin.moving(cfg)(envs), [cfg], capture=capture) for envs, capture in
              ((2, False), (300, False), (2, True))]  # fmt: skip
    for k in range(14):
        for scene in scenes:
            scene.update()
            if k == 5:
                scene.reset([1])
        few, many, captured = (torch.cat([s["s"].data.force[:2], s["s"].data.torque[:2]]) for s in scenes)
        assert few.numpy().tobytes() == many.numpy().tobytes() == captured.numpy().tobytes()


@pytest.mark.parametrize(("between", "rate"), pairs(["ticks", "samples"], [{}, {"rate_hz": 25.0}]), ids=str)
def test_contract_holds(between: Any, rate: dict[str, float]) -> None:
    """A skin that scans its rows passes every rule, files included."""
    cfg = SkinCfg(stages=(sn.stages.RowScan(fields=BOTH, scan_time=0.008, between=between),), **rate)
    assert SkinCfg.from_toml(cfg.to_toml()) == cfg == SkinCfg.from_json(cfg.to_json())
    assert "resuming_is_exact" in check_sensor(cfg, engine=skin.moving(cfg))


# RC time constant -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [(5,), (3, 4)])
@pytest.mark.parametrize("field", ["force", "pressure"])
def test_a_low_pass_is_the_rc_element_of_a_taxel(layout: tuple[int, ...], field: str) -> None:
    """At time tau after a step the response is 63.2 %, in every taxel and part; before it, the settled first value."""
    tau, count = 0.02, math.prod(layout)
    low = np.random.default_rng(1).normal(size=(1, 2, count, 3)).astype(np.float32).astype(np.float64)
    forces = np.concatenate([low] * 3 + [low + 8.0] * 20)
    stage = sn.stages.LowPass(fields=(field,), time_constant=tau)
    out = readings(SkinCfg(name="s", layout=layout, stages=(stage,)), forces, field, dt=0.001)
    low = low[0] if field == "force" else low[0, ..., 2]
    assert np.array_equal(out[2].reshape(low.shape), low)
    rise = (out[22].reshape(low.shape) - low) / 8.0
    np.testing.assert_allclose(rise, 1.0 - math.exp(-1.0), atol=1e-6)


# A tactile sensor -----------------------------------------------------------------------------------------------------


def pad(**fields: Any) -> sn.KinematicTactileSensorCfg:
    """Return a tactile sensor of 3 x 4 probes, each 0.3 m around."""
    places = [[(0.2 * x, 0.2 * y, 0.0) for x in range(-2, 2)] for y in range(-1, 2)]
    return sn.KinematicTactileSensorCfg(name="pad", body="body", probe_local_pos=places, probe_radius=0.3, **fields)


def floor() -> sn.TensorEngine:
    """Return an engine whose body moves along a floor within reach of its probes."""
    ground = sn.engines.Shape("plane", "floor", size=(5.0, 5.0, 0.1), pos=(0.0, 0.0, -0.2))
    engine = sn.TensorEngine(3, 0.01, bodies=("body",), shapes=(ground,))
    engine.motion = lambda t: {"body_pos_w": (0.0, 0.0, -0.1 * t), "body_lin_vel_w": (0.0, 0.0, -0.1)}
    return engine


def test_sensor_without_observation_interpolates_between_samples() -> None:
    """With anchors the sensor stores contact positions: the ticks are rejected by name, the samples are accepted."""
    ticks = sn.stages.RowScan(fields=BOTH, scan_time=0.04)
    with pytest.raises(sn.ConfigError, match=r"row_scan.*stores earlier samples.*between='samples'\) interpolates"):
        sn.Scene(floor(), [pad(rate_hz=25.0, shear_stiffness=10.0, stages=(ticks,))])
    cfg = pad(rate_hz=25.0, shear_stiffness=10.0, stages=(ticks.replace(between="samples"),))
    scene = sn.Scene(floor(), [cfg])
    for _ in range(4):
        scene.update()
    rows = scene["pad"].data.force[0, :, 0, 2]
    assert rows[0] < rows[1] < rows[2] == scene["pad"].ground_truth.force[0, 2, 0, 2]


def test_a_tactile_sensor_scans_its_rows() -> None:
    """Pressed at 0.1 m/s with k = 1000 N/m, a row is late by 100 N/s times its lag; both scan methods agree."""
    stage = sn.stages.RowScan(fields=("force",), scan_time=0.03)
    cfgs = [pad(rate_hz=25.0, stages=(each,)).replace(name=each.between) for each in
            (stage, stage.replace(between="samples"))]  # fmt: skip
    scene = sn.Scene(floor(), cfgs)
    for _ in range(8):
        scene.update()
    for cfg in cfgs:
        late = (scene[cfg].ground_truth.force - scene[cfg].data.force)[..., 2]
        torch.testing.assert_close(late, torch.tensor([2.0, 1.0, 0.0])[:, None].expand(3, 3, 4), rtol=0.0, atol=1e-3)


def test_scan_of_a_dragged_ball_is_delayed_row_by_row() -> None:
    """Every 8 ms a scan of 7.3 ms: row r shows an unscanned twin's value 7.3 (4 - r) / 5 ms before, between ticks."""
    layout = sn.patterns.taxel_grid(5, 6, 0.004)
    ball = sn.engines.Shape("sphere", "ball", (0.01,), body="ball")
    engine = sn.TensorEngine(1, 0.001, bodies=("pad", "ball"), shapes=(ball,))
    engine.motion = lambda t: {"body_pos_w": ((0, 0, 0), (0.15 * t - 0.01, 0.002 * math.sin(30.0 * t), 0.0098))}
    twin = sn.KinematicTactileSensorCfg(name="twin", body="pad", probe_radius=0.001, **layout.cfg())
    cfg = twin.replace(name="scan", rate_hz=125.0, stages=(sn.stages.RowScan(fields=FORCE, scan_time=0.0073),))
    scene = sn.Scene(engine, [twin, cfg])
    known = [scene[twin].data.force[0].double().numpy().copy()]
    for tick in range(1, 121):
        scene.update()
        known.append(scene[twin].data.force[0].double().numpy().copy())
        if tick % 8 == 0 and tick > 16:
            for row in range(5):
                at = tick - 7.3 * (4 - row) / 5
                share = at - math.floor(at)
                expected = (1.0 - share) * known[math.floor(at)][row] + share * known[math.ceil(at)][row]
                np.testing.assert_allclose(scene[cfg].data.force[0, row].numpy(), expected, rtol=0.0, atol=1e-6)
    assert np.abs(known).max() > 1.0


def test_the_contract_holds_for_a_tactile_sensor_with_every_stage() -> None:
    """One sensor with all skin imperfections passes every rule."""
    stages = (
        sn.stages.RowScan(fields=BOTH, scan_time=0.0015),
        sn.stages.TaxelCrosstalk(fields=BOTH, strength=0.3, sigma=0.2, spacing=0.2),
        sn.stages.Viscoelastic(fields=BOTH, strength=0.1, tau=0.01),
        sn.stages.Play(fields=BOTH, width=0.5, weight=0.5),
        sn.stages.TaxelGain(fields=BOTH, gain=sn.Normal(1.0, 0.1)),
        sn.stages.LowPass(fields=BOTH, time_constant=0.005),
        sn.stages.DeadTaxels(fields=BOTH, probability=0.1),
        sn.stages.StuckTaxels(fields=BOTH, probability=0.1, start=sn.Uniform(0.0, 0.02)),
    )

    def engine(envs: int) -> sn.TensorEngine:
        ground = sn.engines.Shape("plane", "ground", pos=(0.0, 0.0, -0.3))
        words = ("pose", "velocity", "acceleration")
        return sn.TensorEngine(
            envs, 0.002, bodies=("body",), shapes=(ground,), motion=tumbling_engine(envs).motion, provides=words
        )

    assert "resuming_is_exact" in check_sensor(pad(stages=stages), engine)
