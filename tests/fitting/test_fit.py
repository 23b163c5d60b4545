"""Fits find the parameters of simulated and of real logs, and refuse logs that do not show them."""

from __future__ import annotations

import math
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag1 import Writer
from rosbags.typesys import Stores, get_typestore

import sensorium as sn
from sensorium.cli import main
from sensorium.errors import ArgumentError, ModelError, UnknownNameError
from sensorium.fitting import Fit, Parameter, compare
from sensorium.fitting.allan import TermFit
from sensorium.fitting.full_scale import add_full_scale
from sensorium.fitting.logs import read_samples
from sensorium.fitting.rest import at_rest, is_repeated
from sensorium.fitting.stamps import bursts, drift_of, stamps_of
from sensorium.presets import presets
from sensorium.view.allan import WALK, WHITE, allan_variance

RATE, COUNT, N = 200.0, 6_000, 0.001
UNITS = {"ang_vel_b": "rad/s", "lin_acc_b": "m/s^2"}
PX4 = Path(os.environ.get("SENSOR_LOGS", "absent"), "pyulog/sample.ulg")
XIO = Path(os.environ.get("SENSOR_LOGS", "absent"), "xio/fusion_sensor_data.csv")


def log(
    seed: int = 0, *, sigma: float = 1.0, rate: float = RATE, lost: float = 0.05, step: float = 0.04, **changes: Any
) -> sn.Samples:
    """Return an IMU at rest: 200 Hz on a 2 ms grid, 5 % of the samples lost, acceleration in steps of 2 sigma."""
    random = np.random.default_rng(seed)
    kept = np.flatnonzero(random.random(COUNT) > lost)
    values = {
        "ang_vel_b": sigma * N * math.sqrt(RATE) * random.normal(size=(COUNT, 3)),
        "lin_acc_b": step * np.rint((random.normal(size=(COUNT, 3)) * 0.02 + [0.01, 0.0, 9.81]) / step),
    }
    values |= {name: values[name] + change for name, change in changes.items()}
    time = 0.002 * np.rint(np.arange(COUNT) / rate / 0.002)
    return sn.Samples(time[kept], {name: each[kept] for name, each in values.items()}, UNITS, "log")


@pytest.fixture(scope="module")
def found() -> Fit:
    return sn.fit(log(), "imu")


def test_a_simulated_log_gives_its_parameters(found: Fit) -> None:
    """Rate on a grid of 4 and 6 ms, losses, N, also below the quantisation step, and the step."""
    true = {"rate_hz": RATE, "loss.p": 0.05, "loss.r": 0.95, "lin_acc_b.resolution.x": 0.04}
    true |= {f"ang_vel_b.N.{axis}": N for axis in "xyz"} | {
        f"lin_acc_b.N.{axis}": 0.02 / math.sqrt(RATE) for axis in "xyz"
    }
    for name, value in true.items():
        each = found.parameters[name]
        slack = (each.high - each.low) + 1e-9 * value  # 12 intervals of 95 % together
        assert each.low - slack <= value <= each.high + slack, name
        assert each.unit and each.method and each.source == "log" and each.low <= each.value <= each.high
    assert found.parameters["ang_vel_b.N.x"].high < 1.05 * N and "ang_vel_b.K.x" in found.refused


def test_a_fit_reports_its_progress_and_needs_little_memory() -> None:
    """Arrays of a fit of many rows, some of them lost, take at most four times the memory of the values."""
    random, done = np.random.default_rng(6), list[float]()
    time = np.flatnonzero(random.random(150_000) > 0.05) / RATE
    values = {name: random.normal(size=(len(time), 3)) * 0.01 for name in ("ang_vel_b", "lin_acc_b")}
    values["lin_acc_b"][:, 2] += 9.81
    tracemalloc.start()
    sn.fit(sn.Samples(time, values, UNITS, "log"), "imu", progress=done.append)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(done) > 8 and done == sorted(done) and 0.0 < done[0] and done[-1] <= 1.0
    assert peak < 4 * sum(each.nbytes for each in values.values())


def test_the_preset_of_a_fit_loads(found: Fit, tmp_path: Path) -> None:
    path = tmp_path / "imu.toml"
    path.write_text(found.to_toml(), encoding="utf-8")
    cfg = sn.preset(str(path), site="imu")
    assert isinstance(cfg, sn.ImuCfg) and cfg.rate_hz == pytest.approx(RATE, rel=1e-5)
    assert cfg.to_dict()["noise_density"]["ang_vel_b"] == pytest.approx([N] * 3, rel=0.05)
    page = found.to_html()
    assert page.count("<img") == 2 and "ang_vel_b.N.x" in page
    path.write_text('kind = "imu"', encoding="utf-8")
    with pytest.raises(ModelError, match="fields: got nothing"):
        sn.preset(str(path), site="imu")
    with pytest.raises(UnknownNameError):  # names from clients of a server open no files
        presets().build(str(path))


def verdicts_of(real: Fit, sim: Fit) -> dict[str, str]:
    return {row[0]: row[-1] for row in compare(real, sim).rows}


def test_most_parameters_of_a_twin_are_the_same() -> None:
    """In pairs of 12 short logs of a gyroscope; 95 % of the differences on average, more where intervals are wide."""
    logs = [log(seed).rows(slice(2000)) for seed in range(12)]
    fits = [sn.fit(replace(each, values={"ang_vel_b": each.values["ang_vel_b"]}), "imu") for each in logs]
    pairs = zip(fits[::2], fits[1::2], strict=True)
    verdicts = [verdict for pair in pairs for verdict in verdicts_of(*pair).values()]
    assert "different" not in verdicts and verdicts.count("same") >= 0.9 * len(verdicts) > 50


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"sigma": 1.3}, "ang_vel_b.N.x ang_vel_b.N.y ang_vel_b.N.z"),
        ({"rate": 200.5}, "rate_hz stamp.jitter"),  # on a grid of 2 ms
        ({"lost": 0.1}, "loss.p loss.r"),  # r of independent losses is 1 - p
        ({"lost": 0.0}, "loss.p"),
        ({"step": 0.05}, "lin_acc_b.resolution.x lin_acc_b.resolution.y lin_acc_b.resolution.z"),
        ({"step": 1e-9}, "lin_acc_b.resolution.x lin_acc_b.resolution.y lin_acc_b.resolution.z"),
    ],
)
def test_a_twin_with_another_parameter_is_different(found: Fit, change: dict[str, float], names: str) -> None:
    verdicts = verdicts_of(found, sn.fit(log(2, **change), "imu"))
    assert {name for name, verdict in verdicts.items() if verdict == "different"} == {*names.split()}
    assert (verdicts["loss.r"] == "only real") == (change.get("lost") == 0.0)


@pytest.mark.parametrize(("distance", "verdict"), [(2.7, "same"), (2.8, "different"), (-2.8, "different")])
def test_a_difference_has_an_interval(distance: float, verdict: str) -> None:
    """Two standard deviations of 1 are one of sqrt(2) of the difference, 2.77 at 95 %, where both intervals overlap."""
    real, sim = (
        Fit("imu", "", {"N": Parameter(x, "", x - 1.96, x + 1.96, "", "")}, {}, {}) for x in (5.0, 5.0 + distance)
    )
    assert verdicts_of(real, sim) == {"N": verdict}


def test_another_delay_is_different() -> None:
    random = np.random.default_rng(0)
    rate = np.stack([np.convolve(each, np.hanning(60), "same") for each in random.normal(size=(3, COUNT))], axis=1)
    time, unit = np.arange(COUNT) / RATE, {"ang_vel_b": "rad/s"}
    reference = sn.Samples(time, {"ang_vel_b": rate}, unit, "reference")

    def fitted(delay: float) -> Fit:
        noisy = {"ang_vel_b": rate + 0.05 * random.normal(size=rate.shape)}
        return sn.fit(sn.Samples(time + delay, noisy, unit, "log"), "imu", reference=reference)

    real = fitted(0.020)
    assert verdicts_of(real, fitted(0.020))["delay"] == "same"
    changed = verdicts_of(real, fitted(0.021))
    assert [name for name, verdict in changed.items() if verdict == "different"] == ["delay"]


MOTION = 0.3 * np.sin(np.arange(COUNT) / RATE)[:, None] * [1.0, 0.3, 0.0]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (log(ang_vel_b=MOTION), "expected a sensor at rest"),
        (log(lin_acc_b=-np.array([0.0, 0.0, 8.81])), r"--units lin_acc_b=g"),
        (log(ang_vel_b=np.array([0.0, 1.0, 0.0])), r"--units ang_vel_b=deg/s"),
        (log(ang_vel_b=np.where(np.arange(COUNT) == 4000, np.nan, 0.0)[:, None]), "NaN or infinity in row"),
        (log().rows(np.array([*range(900), *range(100, 400)])), "before that of the row before"),
        (log().rows(slice(0, 20)), "expected at least 64"),
        (sn.Samples(log().time, log().values, {}, "log"), "its unit is unknown"),
    ],
)
def test_unusable_logs_are_refused(samples: sn.Samples, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        sn.fit(samples, "imu")


def test_constant_columns_and_short_logs_are_named() -> None:
    samples = log()
    samples.values["ang_vel_b"][:, 1] = 0.0
    found = sn.fit(samples.rows(slice(0, 2000)), "imu")
    assert found.refused["ang_vel_b.y"] == "the column is constant" and "ang_vel_b.N.x" in found.parameters
    assert "too few" in sn.fit(samples.rows(slice(0, 400)), "imu").refused["lin_acc_b"]


def test_intervals_contain_the_truth_and_are_as_wide_as_the_scatter() -> None:
    """White noise and a random walk in 12 runs: at least 9 of each are inside, as 11 are on average."""
    random, rate, true = np.random.default_rng(5), 100.0, {WHITE: 0.02, WALK: 0.02}
    terms, inside = TermFit(np.zeros((8000, 1)), 1.0 / rate), dict.fromkeys(true, 0)
    for _ in range(12):
        white, walk = random.normal(size=(2, 8000, 1))
        noise = 0.02 * math.sqrt(rate) * white + np.cumsum(0.02 / math.sqrt(rate) * walk, axis=0)
        found = terms.fit(allan_variance(noise, terms.sizes)[:, 0])
        for term, value in true.items():
            inside[term] += found[term].low <= value <= found[term].high
            assert found[term].high < 2.5 * value
    assert min(inside.values()) >= 9


@pytest.mark.parametrize("grid", [0.002, 0.004, 0.0])
def test_stamps(grid: float) -> None:
    """200 Hz on grids of 2 and 4 ms, and with jitter; a clock that is 50 ppm fast."""
    random = np.random.default_rng(1)
    time = np.arange(5000) / RATE * (1.0 + 50e-6)
    stamps = stamps_of(grid * np.floor(time / grid) if grid else time + 0.0004 * random.normal(size=5000))
    assert 1.0 / stamps.period == pytest.approx(RATE / (1.0 + 50e-6), rel=2e-5) and not stamps.is_lost.any()
    if grid:
        assert stamps.resolution == pytest.approx(grid)
    else:
        assert stamps.jitter == pytest.approx(0.0004, rel=0.05)
    drift, sd = drift_of(time, np.arange(5000) / RATE + random.exponential(0.001, 5000))
    assert drift == pytest.approx(50.0, abs=4.0 * sd) and sd < 5.0


def test_the_step_of_stamps_is_found_if_few_intervals_show_it() -> None:
    """At 244 Hz on a grid of 2 ms, one interval in 20 is 6 ms long, all others 4 ms."""
    assert stamps_of(0.002 * np.floor(np.arange(3000) * 0.0041 / 0.002)).resolution == pytest.approx(0.002)


@pytest.mark.parametrize("jitter", [0.0, 0.0004])
def test_intervals_of_the_period_contain_it(jitter: float) -> None:
    """On a grid of 2 ms or with jitter, 5 % of the samples lost: at least 51 of 60 are inside, as 57 are on average."""
    random, scaled = np.random.default_rng(7), []
    for _ in range(60):
        true = (1.0 + random.uniform(-1e-4, 1e-4)) / RATE
        time = np.arange(3000) * true + random.uniform(0.0, 0.01) + jitter * random.normal(size=3000)
        time = time[random.random(3000) > 0.05]
        stamps = stamps_of(time if jitter else 0.002 * np.floor(time / 0.002))
        scaled.append((stamps.period - true) / stamps.period_sd)
    assert np.sum(np.abs(scaled) < 1.96) >= 51 and np.std(scaled) == pytest.approx(1.0, abs=0.3)


def test_bursts_of_losses() -> None:
    random, bad, lost = np.random.default_rng(2), False, []
    for draw in random.random(20_000):
        bad = draw > 0.25 if bad else draw < 0.02
        lost.append(bad)
    p, r = bursts(np.array([False, *lost, False]))
    assert p[1] < 0.02 < p[2] and r[1] < 0.25 < r[2]


def test_drop_outs_of_the_logger_are_no_losses() -> None:
    """Gaps of 20 samples; the logger states 2 of 8."""
    samples = log(lost=0.0)
    gaps = np.arange(500, 5500, 700)[:, None] + np.arange(20)
    kept = samples.rows(np.setdiff1d(np.arange(COUNT), gaps))
    assert len(gaps) == 8 and sn.fit(kept, "imu").parameters["loss.p"].value == pytest.approx(
        8 / (COUNT - 160), rel=1e-3
    )
    spans = samples.time[gaps[[1, 4]]][:, [0, -1]] + [0.02, -0.02]
    found = sn.fit(replace(kept, dropouts=spans), "imu")
    assert found.parameters["loss.p"].value == pytest.approx(6 / (COUNT - 120), rel=1e-3)
    assert found.parameters["loss.r"].value == pytest.approx(1 / 20)
    assert found.refused["loss during drop-outs"] == "2 drop-outs of the logger are no losses of the sensor"


@pytest.mark.skipif(not PX4.exists(), reason="SENSOR_LOGS names no folder with a log of PX4")
def test_drop_outs_of_a_real_log() -> None:
    """Its summary by ulog_info states 4 of 0.119 s together, the longest of 62 ms. Samples are missing during it."""
    pytest.importorskip("pyulog")
    samples = read_samples(PX4, "imu")
    assert samples.dropouts is not None
    seconds = np.ptp(samples.dropouts, axis=1)
    assert len(seconds) == 4 and seconds.sum() == pytest.approx(0.119) and seconds.max() == pytest.approx(0.062)
    start, end = samples.dropouts[np.argmax(seconds)]
    assert not ((samples.time > start + 0.004) & (samples.time < end)).any()
    magnetic = read_samples(PX4, "magnetometer")
    assert magnetic.units == {"mag_b": "T"} and len(magnetic) == len(samples)
    assert np.linalg.norm(magnetic.values["mag_b"].mean(axis=0)) == pytest.approx(50e-6, rel=0.5)


@pytest.mark.parametrize("lowest", [-15.7, -20.0])
def test_full_scale(lowest: float) -> None:
    """A motion is clipped at both ends or at one; steps, noise, slow motions and pauses have no full scale."""
    random = np.random.default_rng(4)
    motion = 12.0 * random.normal(size=(4000, 1)) * [1.0, 0.5, 0.0] + 0.01 * random.normal(size=(4000, 3))
    seconds = np.arange(4000) / 200.0
    moving = sn.Samples(
        seconds,
        {
            "ang_vel_b": np.clip(motion, lowest, 15.7),
            "lin_acc_b": 0.1 * np.rint(100.0 * np.sin(seconds[:, None] * [1.0, 2.7, 50.0])),
        },
        UNITS,
        "log",
    )
    found = Fit("imu", "log", {}, {}, {})
    add_full_scale(found, moving)
    add_full_scale(found, moving)  # of a log after that of its part at rest
    assert {name: each.value for name, each in found.parameters.items()} == {
        "ang_vel_b.full_scale.x": 15.7 if lowest == -15.7 else 20.0,
        "ang_vel_b.full_scale.y": 15.7,
    }
    (stage,) = found.fields["stages"]
    sn.ImuCfg(site="imu", stages=[stage])
    at_rest = sn.fit(log(lost=0.0), "imu")
    assert not [name for name in at_rest.parameters if "full_scale" in name]


def test_a_slower_device_is_found() -> None:
    values = np.random.default_rng(3).normal(size=(500, 3))
    assert is_repeated(np.repeat(values, 4, axis=0)).mean() == pytest.approx(0.75, abs=0.01)
    assert not is_repeated(np.rint(0.3 * np.random.default_rng(3).normal(size=(2000, 3)))).any()


def test_stamps_are_judged_after_the_cut() -> None:
    """The stamps of the moving half come in pairs, so that the whole log has no even rate."""
    random = np.random.default_rng(5)
    values = random.normal(size=(4000, 3))
    values[2000:] *= 30.0
    time = np.arange(4000) / 100.0
    time[2001::2] = time[2000::2]
    samples = sn.Samples(time, {"mag_b": values}, {"mag_b": "T"}, "log")
    with pytest.raises(ArgumentError, match="stamps are nearer"):
        sn.fit(samples, "magnetometer")
    rest = at_rest(samples)
    assert 1500 < len(rest) <= 2000 and rest.time[0] == 0.0
    assert sn.fit(rest, "magnetometer").parameters["rate_hz"].value == pytest.approx(100.0)


def test_a_slower_device_without_a_rate_is_absent_by_name() -> None:
    """Its values change after 2 to 8 rows at random."""
    random = np.random.default_rng(6)
    values = np.repeat(random.normal(size=(900, 3)), random.integers(2, 9, 900), axis=0)
    samples = sn.Samples(np.arange(len(values)) / 250.0, {"mag_b": values}, {"mag_b": "T"}, "log")
    found = sn.fit(samples, "magnetometer")
    assert found.parameters["rate_hz"].value == pytest.approx(250.0)
    assert "those that differ have no rate" in found.refused["mag_b"] and "mag_b.N.x" not in found.parameters


@pytest.mark.skipif(not XIO.exists(), reason="SENSOR_LOGS names no folder with the log of an x-IMU3")
def test_a_real_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the log of an x-IMU3 in deg/s and g, the static window is cut out; the magnetometer runs at a fifth."""
    samples = at_rest(read_samples(XIO, "imu"))
    assert np.linalg.norm(samples.values["lin_acc_b"].mean(axis=0)) == pytest.approx(9.81, rel=0.02)
    assert np.linalg.norm(samples.values["ang_vel_b"].mean(axis=0)) < 0.01
    magnetic = read_samples(XIO, "magnetometer")
    assert is_repeated(magnetic.values["mag_b"]).mean() == pytest.approx(0.8, abs=0.02)
    assert main(["fit", str(XIO)]) == 2 and "at rest" in capsys.readouterr().err
    assert main(["fit", str(XIO), "--static", "--to", str(tmp_path / "imu.toml")]) == 0
    assert isinstance(sn.preset(str(tmp_path / "imu.toml"), site="imu"), sn.ImuCfg)


def test_a_constant_delay_of_a_ros_1_bag_is_an_arrival(tmp_path: Path) -> None:
    """Messages that are stamped 0.5 s before they arrive, and those that are stamped at their arrival."""
    store = get_typestore(Stores.ROS1_NOETIC)
    types = store.types
    name = "sensor_msgs/msg/FluidPressure"
    with Writer(tmp_path / "log.bag") as bag:
        topics = {late: bag.add_connection(f"/late_{late}", name, typestore=store) for late in (0, 500_000_000)}
        for k in range(5):
            stamp = types["builtin_interfaces/msg/Time"](sec=100 + k, nanosec=0)
            header = types["std_msgs/msg/Header"](seq=k, stamp=stamp, frame_id="")
            data = store.serialize_ros1(types[name](header=header, fluid_pressure=1e5, variance=0.0), name)
            for late, topic in topics.items():
                bag.write(topic, (100 + k) * 10**9 + late, data)
    samples = read_samples(tmp_path / "log.bag", "barometer", sensor="late_500000000")
    assert samples.time.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert samples.arrival is not None and samples.arrival - samples.time == pytest.approx(0.5)
    assert read_samples(tmp_path / "log.bag", "barometer", sensor="late_0").arrival is None


def test_tables_state_units_or_are_given_them(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time (ms),gyro x,gyro y,gyro z\n0,1,2,3\n5,4,5,6\n", encoding="utf-8")
    samples = read_samples(path, "imu", units={"ang_vel_b": "deg/s"})
    assert samples.time.tolist() == [0.0, 0.005] and samples.units == {"ang_vel_b": "rad/s"}
    assert samples.values["ang_vel_b"][1] == pytest.approx(np.deg2rad([4.0, 5.0, 6.0]))
    with pytest.raises(UnknownNameError, match="unit of ang_vel_b"):
        read_samples(path, "imu", units={"ang_vel_b": "furlong"})
    with pytest.raises(ModelError, match="has no sensor with mag_b"):
        read_samples(path, "magnetometer")


def test_presets_of_fits_are_compared(found: Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1 if a parameter is different. Data sheets have no intervals."""
    paths = [tmp_path / name for name in ("real.toml", "twin.toml", "other.toml", "sheet.toml")]
    for path, fit in zip(paths, (found, sn.fit(log(1), "imu"), sn.fit(log(2, sigma=1.3), "imu")), strict=False):
        path.write_text(fit.to_toml(), encoding="utf-8")
    paths[3].write_text('kind = "imu"\n[fields]\n', encoding="utf-8")
    codes = [main(["compare", str(paths[0]), str(each)]) for each in paths[1:]]
    assert codes == [0, 1, 2]
    captured = capsys.readouterr()
    assert captured.out.count("different") == 3 and "has no intervals" in captured.err


def test_axes_share_a_line_of_parameters_that_are_not_found(found: Fit) -> None:
    missing = dict(found.missing())
    assert len(missing) < len(found.refused) / 2
    (random_walk,) = [name for name in missing if name.startswith("ang_vel_b.K")]
    limits = [f"{axis} below {found.limits[f'ang_vel_b.K.{axis}'].high:.3g} rad/s" for axis in "xyz"]
    assert all(each in random_walk for each in limits)
    both = replace(found, limits={}).merged_with(found)
    assert both.limits == found.limits
