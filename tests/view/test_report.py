"""The report finds the rate, delay, loss, resolution, error and noise that a simulated sensor was configured with."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.engines import Shape
from sensorium.patterns import SpinningPatternCfg
from sensorium.record import NpzRecorder, Recording, SensorRecording
from sensorium.view.figures import errors_of, labels_of, latency_of, rotation_between, step_of, timing_of
from sensorium.view.report import report_of, write_report

pytest.importorskip("matplotlib")

DT, RATE, SECONDS = 0.005, 200.0, 20.0
N, K, STEP, DELAY, LOSS = 0.01, 0.05, 0.02, 0.015, 0.1


def motion(time: float) -> dict[str, Any]:
    return {
        "body_ang_vel_w": [[[math.sin(5.0 * time), math.cos(3.0 * time), 0.3]]],
        "body_lin_vel_w": [[[0.0, 0.0, 0.0]]],
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two environments with a noisy gyroscope, and a clean one whose axes turn differently in each environment."""
    sensors = [
        sn.ImuCfg(
            name="noisy", body="body", fields=("ang_vel_b",), rate_hz=RATE, gyro_noise_density=N,
            gyro_random_walk_density=K, delay=DELAY, loss=LOSS,
        ),
        sn.ImuCfg(name="steps", body="body", fields=("ang_vel_b",), rate_hz=80.0, gyro_resolution=STEP, gyro_bias=0.1),
    ]  # fmt: skip
    engine = sn.TensorEngine(2, DT, motion=motion)
    scene, path = sn.Scene(engine, sensors, seed=4), tmp_path_factory.mktemp("report") / "run.mcap"
    with scene.record(path):
        for _ in range(round(SECONDS / DT)):
            scene.update()
    return path


@pytest.fixture(scope="module")
def recording(run: Path) -> Recording:
    with sn.replay(run) as replay:
        return replay.recording()


@pytest.mark.parametrize("env", [0, 1])
def test_configured_imperfections_are_found(recording: Recording, env: int) -> None:
    report = report_of(recording, env)
    noisy, steps = report.timing["noisy"], report.timing["steps"]
    assert noisy.samples == RATE * SECONDS + 1 and steps.samples == 80 * SECONDS + 1
    assert noisy.rate_hz == pytest.approx(RATE, rel=1e-9) and steps.rate_hz == pytest.approx(80.0, rel=1e-3)
    assert noisy.gaps == steps.gaps == 0 and steps.lost == 0.0
    assert noisy.lost == pytest.approx(LOSS, abs=5 * math.sqrt(LOSS * (1 - LOSS) / noisy.samples))
    assert noisy.delay == pytest.approx(DELAY, abs=1e-9) and noisy.delay_sd < 1e-9 and steps.delay == 0.0
    assert noisy.latency == pytest.approx(DELAY, abs=5 * noisy.latency_sd) and 0.0 < noisy.latency_sd < 1e-3
    assert steps.latency == pytest.approx(0.0, abs=5 * steps.latency_sd) and steps.latency_sd < 1e-4
    allan = report.allan["noisy", "ang_vel_b"]
    assert [term.symbol for term in allan.terms] == ["N", "K"]
    assert allan.configured == pytest.approx(np.array([[N] * 3, [K] * 3]))
    assert (np.abs(allan.fitted - allan.configured) < 5 * allan.fitted_sd).all()
    assert (allan.fitted_sd[0] < 0.03 * N).all() and (allan.fitted_sd[1] < 0.5 * K).all()
    found = errors_of(recording["steps"], GYRO, env)
    assert [each.label for each in found] == ["x", "y", "z"]
    assert [each.step for each in found[:2]] == pytest.approx([STEP] * 2, rel=1e-5) and found[0].configured_step == STEP
    for each in found[:2]:  # the sine and the cosine: rounding is uniform, with the bias before it
        assert each.mean == pytest.approx(0.1, abs=0.1 * STEP) and each.missed == 0.0
        assert each.sd == pytest.approx(STEP / math.sqrt(12.0), rel=0.1) and each.largest <= 0.1 + 0.51 * STEP


GYRO = {"name": "ang_vel_b", "axes": ["env", "xyz"], "shape": [3], "dtype": "float32", "unit": "rad/s",
        "kind": "vector", "role": "angular_velocity"}  # fmt: skip


def test_errors_are_those_of_pairs(recording: Recording) -> None:
    """Mean and deviation of the error, recomputed from the rows of equal captures."""
    sensor = recording["noisy"]
    truth = dict(zip(sensor.truth_time[:, 1].tolist(), sensor.truth["ang_vel_b"][:, 1], strict=True))
    seen = {float(time): row for time, row, valid in zip(sensor.capture_time[:, 1], sensor.measured["ang_vel_b"][:, 1],
                                                          sensor.valid[:, 1], strict=True) if valid}  # fmt: skip
    errors = np.stack([row.astype(float) - truth[time] for time, row in seen.items()])
    found = errors_of(sensor, GYRO, 1)
    assert [each.mean for each in found] == pytest.approx(errors.mean(axis=0), rel=1e-9)
    assert [each.sd for each in found] == pytest.approx(errors.std(axis=0), rel=1e-9)
    assert [each.largest for each in found] == pytest.approx(np.abs(errors).max(axis=0), rel=1e-9)


def test_a_part_of_the_time_and_gaps(recording: Recording) -> None:
    """A span keeps its rows, and rows taken out of it are a gap."""
    sensor = recording["steps"]
    part = sensor.between(5.0, 10.0)
    assert part.time[0] == pytest.approx(5.0) and part.time[-1] == pytest.approx(10.0)
    timing = timing_of(part, 0, DT)
    assert timing.samples == 401 and timing.gaps == 0
    keep = (part.time < 6.0) | (part.time > 7.5)
    keep &= np.abs(part.time - 8.0) > 1e-6  # a single sample
    cut = replace(
        part, time=part.time[keep], capture_time=part.capture_time[keep], truth_time=part.truth_time[keep],
        valid=part.valid[keep], measured={name: each[keep] for name, each in part.measured.items()},
        truth={name: each[keep] for name, each in part.truth.items()},
    )  # fmt: skip
    timing = timing_of(cut, 0, DT)
    assert timing.gaps == 2 and timing.longest_gap == pytest.approx(1.525, abs=2 * DT)
    assert timing.rate_hz == pytest.approx(80.0, rel=1e-3)


def captured(ticks: np.ndarray, dt: float, rate: float) -> SensorRecording:
    """Return a recording without fields, of captures at some ticks."""
    times, info = (ticks * dt)[:, None], {"kind": "x", "rate_hz": rate, "fields": [], "cfg": {}}
    valid = np.ones((len(ticks), 1), bool)
    return SensorRecording("s", info, np.array([0]), times[:, 0], times, times, valid, {}, {}, times)


@pytest.mark.parametrize("dt", [0.002, 1e-9])
def test_a_rate_that_does_not_divide_the_ticks_has_no_gaps(dt: float) -> None:
    """200 Hz on a grid of 2 ms, of a scene or a bag: captures 4 and 6 ms apart; a lost capture and a pause are gaps."""
    ticks = np.ceil(np.arange(2000) * 2.5).astype(np.int64) * round(0.002 / dt)
    timing = timing_of(captured(ticks, dt, 200.0), 0, dt)
    assert timing.rate_hz == pytest.approx(200.0, rel=1e-3) and timing.gaps == 0
    shifted = np.where(np.arange(2000) < 1200, ticks, ticks + round(1.0 / dt))
    cut = np.delete(shifted, 500)
    timing = timing_of(captured(cut, dt, len(cut) / (cut[-1] * dt)), 0, dt)  # a bag knows the mean rate alone
    assert timing.rate_hz == pytest.approx(200.0, rel=1e-3)
    assert timing.gaps == 2 and timing.longest_gap == pytest.approx(1.005, abs=0.002)


def test_resets_split_the_noise(recording: Recording) -> None:
    """Noise is that of the longest span between resets, and the report says so."""
    whole, split = report_of(recording), report_of(recording, resets=[2.0, 15.0])
    ends = [report.allan["noisy", "ang_vel_b"].times[-1] for report in (whole, split)]
    assert ends[1] == pytest.approx(ends[0] * 13.0 / 20.0, rel=0.3)
    assert any("reset 2 times" in note for note in split.notes)


# Latency of signals ---------------------------------------------------------------------------------------------------


def delayed(lag: float, noise: float, rate: float = 100.0, count: int = 2000) -> SensorRecording:
    """Return a recording whose measured signal is the true one `lag` seconds ago, as that of a filter, on the grid."""
    random, time = np.random.default_rng(0), np.arange(count) / rate

    def signal(at: np.ndarray) -> np.ndarray:
        return np.stack([np.sin(2.0 * at) + 0.3 * np.sin(7.1 * at), 0.05 * at, np.ones_like(at)], axis=-1)[:, None]

    truth, measured = signal(time), signal(time - lag) + noise * random.normal(size=(count, 1, 3))
    both, fields = time[:, None], [{**GYRO, "name": "value"}]
    info = {"kind": "x", "rate_hz": rate, "fields": fields, "cfg": {}}
    return SensorRecording("s", info, np.array([0]), time, both, both, np.ones((count, 1), bool), {"value": measured},
                           {"value": truth}, both)  # fmt: skip


@pytest.mark.parametrize("lag", [0.0, 0.004, 0.0137, 0.1, 0.463])
def test_a_lag_between_samples_is_found(lag: float) -> None:
    """Lags that are no multiple of the period, within the stated deviation; an axis that drifts does not matter."""
    clean, _ = latency_of(delayed(lag, 0.0), 0, 0.01)
    assert clean == pytest.approx(lag, abs=2e-4)
    noisy, sd = latency_of(delayed(lag, 0.05), 0, 0.01)
    slope = math.sqrt(0.5 * 2.0**2 + 0.5 * (0.3 * 7.1) ** 2)
    assert sd == pytest.approx(0.05 / slope / math.sqrt(2000), rel=0.3)  # the Cramer-Rao bound
    assert noisy == pytest.approx(lag, abs=5 * sd + 2e-4)


def drifts(random: np.random.Generator, count: int, tau: float) -> np.ndarray:
    """Return white noise with a Gauss-Markov bias of 0.04 and a correlation time, s; a random walk for 0."""
    drive, phi = random.normal(size=(count, 1, 3)), math.exp(-0.01 / tau) if tau else 1.0
    bias = lfilter([1.0], [1.0, -phi], drive * (0.04 * math.sqrt(1.0 - phi**2) if tau else 0.005), axis=0)
    return 0.02 * random.normal(size=(count, 1, 3)) + bias


@pytest.mark.parametrize("tau", [1.0, 0.0])
def test_intervals_of_the_latency_hold_under_coloured_errors(tau: float) -> None:
    """Intervals of 95 % contain the latency in 90 to 99 of 100 runs."""
    clean, covered = delayed(0.0137, 0.0, count=1000), 0
    for seed in range(100):
        measured = clean.measured["value"] + drifts(np.random.default_rng(seed), 1000, tau)
        latency, sd = latency_of(replace(clean, measured={"value": measured}), 0, 0.01)
        assert 0.0 < sd < 0.005
        covered += abs(latency - 0.0137) < 1.96 * sd
    assert 90 <= covered <= 99


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_latency_of_a_scan_is_the_mean_of_its_rays(noise: float) -> None:
    """Ray k of 40 is measured k / 39 of a period before the scan arrives; 12 of the rays are compared."""
    period, rays, time = 0.1, 40, np.arange(400) * 0.1
    random, phase = np.random.default_rng(0), np.arange(rays)

    def signal(at: np.ndarray) -> np.ndarray:
        return (3.0 + np.sin(1.1 * at + phase) + 0.5 * np.sin(0.47 * at + 2.0 * phase))[:, None]

    truth = signal(time[:, None])
    lags = period * phase / (rays - 1)
    measured = signal(time[:, None] - lags) + noise * random.normal(size=truth.shape)
    both, fields = time[:, None], [{**GYRO, "name": "value", "axes": ["mount", "ray"], "shape": [rays]}]
    info = {"kind": "x", "rate_hz": 10.0, "fields": fields, "cfg": {}}
    scan = SensorRecording("s", info, np.array([0]), time, both, both, np.ones((400, 1), bool), {"value": measured},
                           {"value": truth}, both)  # fmt: skip
    latency, sd = latency_of(scan, 0, 0.002)
    compared = lags[np.unique(np.linspace(0, rays - 1, 12).astype(int))]
    assert latency == pytest.approx(compared.mean(), abs=0.002) and sd == pytest.approx(compared.std(), abs=0.002)


def test_a_lidar_on_a_moving_drone_shows_its_range_noise() -> None:
    """Both scans are swept, so that 3 cm of range noise remain, and no latency. A crate has edges."""
    room = [Shape("box", f"wall {k}", (0.1, 15.0, 15.0), pos=(x, y, 0.0), quat=(1.0, 0.0, 0.0, float(y != 0.0)))
            for k, (x, y) in enumerate(((9.0, 0.0), (-11.0, 0.0), (0.0, 8.0), (0.0, -12.0)))]  # fmt: skip
    room.append(Shape("box", "crate", (0.5, 0.5, 0.5), pos=(-5.0, 4.0, 0.0)))

    def flight(time: float) -> dict[str, Any]:
        turn = 0.6 * math.sin(0.9 * time)
        place = (3.0 * math.sin(0.8 * time), 2.0 * math.cos(0.5 * time), 0.5 * math.sin(1.3 * time))
        return {"body_pos_w": place, "body_quat_w": (math.cos(turn), 0.0, 0.0, math.sin(turn))}

    pattern = SpinningPatternCfg(elevations=(-5.0, 0.0, 5.0), cycle_interval=1e-3, firing_interval=1e-4, rate_hz=10.0)
    cfg = sn.LidarCfg(
        name="lidar",
        body="drone",
        pattern=pattern,
        rate_hz=10.0,
        range_noise=0.03,
        beam_divergence=3e-3,
        sub_rays=7,
        fields=("distances",),
    )
    scene = sn.Scene(sn.TensorEngine(1, 0.005, bodies=("drone",), shapes=room, motion=flight), [cfg], seed=0)
    recorder = NpzRecorder()
    for _ in range(1000):
        scene.update()
        recorder.add_all(scene.publish())
    recording = recorder.recording(scene.description())
    (figures,) = errors_of(recording["lidar"], recording["lidar"].info["fields"][0], 0)
    assert figures.sd == pytest.approx(0.03, rel=0.02) and abs(figures.mean) < 1e-3
    latency, sd = latency_of(recording["lidar"], 0, 0.005)
    assert abs(latency) < max(3.0 * sd, 1e-4) and sd < 1e-3


def test_a_field_without_errors_has_one_row() -> None:
    clean, noisy = delayed(0.0, 0.0), delayed(0.0, 0.01)
    clean.measured["value"][:] = clean.truth["value"][:] = clean.truth["value"][..., :1]  # a ramp has a step
    spec = clean.info["fields"][0]
    (row,) = errors_of(clean, spec, 0)
    assert (row.label, row.mean, row.sd, row.largest, row.missed) == ("", 0.0, 0.0, 0.0, 0.0)
    assert len(errors_of(noisy, spec, 0)) == 3


def test_an_unknown_latency() -> None:
    """A signal that does not change or that is a ramp, noise alone and a short recording tell no latency."""
    still = delayed(0.1, 0.01)
    still.truth["value"][:] = 1.0
    assert math.isnan(latency_of(still, 0, 0.01)[0])
    assert math.isnan(latency_of(delayed(0.0, 0.0, count=6), 0, 0.01)[0])
    ramp = delayed(0.1, 0.0)
    for branch in (ramp.truth, ramp.measured):
        branch["value"][:, :, 0] = branch["value"][:, :, 1]
    assert math.isnan(latency_of(ramp, 0, 0.01)[0])
    assert math.isnan(latency_of(delayed(0.1, 1e3), 0, 0.01)[0])


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0.01, 2 * math.pi / 2**14, 1.0653e-3, 0.5])
@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_steps_are_found(step: float, offset: float) -> None:
    values = step * np.rint(np.random.default_rng(0).normal(0.0, 3.0, 2000) / step) + offset
    for dtype in (np.float32, np.float64):  # the latter as in messages
        assert step_of(values.astype(np.float32).astype(dtype)) == pytest.approx(step, rel=1e-4)
    assert step_of(np.float32(7.0) * values[values == values[0]].astype(np.float32)) == 0.0


def test_values_without_a_step() -> None:
    random = np.random.default_rng(0)
    for count in (4, 6, 8, 12, 20, 100, 5000):
        assert step_of(random.normal(size=count).astype(np.float32)) == 0.0
        assert step_of(random.normal(size=count).astype(np.float32) + np.float32(1000.0)) == 0.0
    assert step_of(np.cumsum(random.normal(0, 1e-3, 500)).astype(np.float32)) == 0.0


def test_errors_of_rotations_are_rotation_vectors() -> None:
    """Those of SciPy, also where a quaternion changed its sign, and for equal quaternions."""
    random = np.random.default_rng(0)
    first, turn = Rotation.random(50, rng=random), Rotation.from_rotvec(random.normal(0, 0.3, (50, 3)))
    quats = [np.roll(each.as_quat(), 1, axis=-1) for each in (first, first * turn)]
    quats[1][::2] *= -1.0
    assert rotation_between(*quats) == pytest.approx(turn.as_rotvec(), abs=1e-9)
    assert rotation_between(quats[0], quats[0]) == pytest.approx(0.0, abs=1e-12)


def test_labels_of_mounts_joints_and_axes() -> None:
    info = {"mounts": ["left", "right"], "constants": {"joint_names": ["hip", "knee", "foot"]}}
    cases = {
        (("mount", "xyz"), (2, 3)): ["left x", "left y", "left z", "right x", "right y", "right z"],
        (("joint",), (3,)): ["hip", "knee", "foot"],
        (("ray",), (2,)): ["ray 0", "ray 1"],
        (("lla",), (3,)): ["latitude", "longitude", "altitude"],
        (("body",), (3,)): ["body 0", "body 1", "body 2"],
        ((), ()): [""],
    }
    for (axes, shape), expected in cases.items():
        assert labels_of(info, {"axes": ["env", *axes], "shape": list(shape)}) == expected


def test_units_of_elements_and_levels_of_images() -> None:
    """Positions of receivers have degrees and metres, and images of integers an error in levels."""
    place = sn.FieldSpec("lla", ("mount", "lla"), (5, 3), "float64", "deg, deg, m", "WGS84", "derived", "scalar")
    image = sn.FieldSpec("rgb", ("row", "column", "rgb"), (8, 9, 3), "uint8", "1", "", "derived", "image")
    ids = replace(image, name="ids", kind="id")
    recorder, rng = NpzRecorder(), np.random.default_rng(0)
    truth = rng.integers(3, 250, (6, 1, 8, 9, 3)).astype(np.uint8)
    seen = (truth + rng.integers(-3, 6, truth.shape)).astype(np.uint8)
    for tick in range(6):
        meta = {"capture_tick": np.array([tick]), "valid": np.array([True]), "is_new": np.array([True]),
                "frame": np.array([tick])}  # fmt: skip
        true = {"lla": np.zeros((1, 5, 3)), "rgb": truth[tick], "ids": truth[tick]}
        measured = {"lla": np.full((1, 5, 3), [[1.0, 2.0, 3.0]]), "rgb": seen[tick], "ids": seen[tick]}
        recorder.add(sn.Reading("e", "gnss", (place, image, ids), np.arange(1), tick, float(tick), measured, true,
                                meta, _dt=1.0))  # fmt: skip
    fields = [each.to_dict() for each in (place, image, ids)]
    made = recorder.recording({"dt": 1.0, "sensors": {"e": {"fields": fields}}})["e"]
    found = errors_of(made, fields[0], 0)
    assert [each.unit for each in found] == ["deg", "deg", "m"] * 5 and [each.mean for each in found[:3]] == [1, 2, 3]
    exact = replace(made, measured=made.truth)
    assert [(each.label, each.unit) for each in errors_of(exact, fields[0], 0)] == [("", "deg, deg, m")]
    (levels,), (differ,) = (errors_of(made, each, 0) for each in fields[1:])
    errors = seen.astype(float) - truth
    assert levels.unit == "levels" and levels.largest == 5.0 and differ.unit == "differ"
    assert (levels.mean, levels.sd) == (pytest.approx(errors.mean()), pytest.approx(errors.std()))


# Pages ----------------------------------------------------------------------------------------------------------------


def test_a_page_needs_no_other_file(recording: Recording, tmp_path: Path) -> None:
    """It holds the tables and pictures, and refers to nothing outside."""
    analysed, drawn = list[int](), list[int]()
    report = report_of(recording, shown=analysed.append)
    path = write_report(report, tmp_path / "new/report.html", "Report of <run>", shown=drawn.append)
    text = path.read_text(encoding="utf-8")
    assert analysed == drawn == [*range(len(recording))]  # the progress bar follows them
    assert "<title>Report of &lt;run&gt;</title>" in text and "200" in text
    assert [alt for alt in re.findall(r'<img alt="([^"]*)"', text)] == ["", "noisy.ang_vel_b", "steps.ang_vel_b"]
    assert not re.search(r'(?:src|href)="(?!data:image/png;base64,)', text) and "http" not in re.sub(
        'base64,[^"]*', "", text
    )
    assert text.count("<table>") == 3 and "Allan deviation" in text
    assert all(len(set(table.headings)) == len(table.headings) for table in report.tables)
    assert text.count("<section>") == text.count("</section>") == 3 and "section { break-before: page }" in text


def test_sensors_that_never_arrived_or_have_few_samples(recording: Recording, tmp_path: Path) -> None:
    """A sensor without a sample, with one, and one whose samples all were lost are reported without figures."""
    sensor = recording["noisy"]
    empty, one = sensor.between(1.0, 0.5), sensor.between(0.0, 0.0)
    lost = replace(sensor.between(0.0, 0.1), valid=np.zeros((21, 2), bool))
    parts = {"empty": empty, "one": one, "lost": lost}
    made = Recording(recording.description, {name: replace(each, name=name) for name, each in parts.items()})
    report = report_of(made)
    assert [report.timing[name].samples for name in parts] == [0, 1, 21]
    assert all(math.isnan(report.timing[name].latency) for name in parts) and not report.allan
    write_report(report, tmp_path / "report.html", "few")


def test_ragged_fields_keep_their_events_in_a_span() -> None:
    spec = sn.FieldSpec("time", ("event",), (9,), "float64", "s", "", "derived", "scalar")
    recorder = NpzRecorder()
    for tick in range(6):
        ends = np.array([0, tick % 3, tick % 3 + 1])
        meta = {"capture_tick": np.full(2, tick), "valid": np.ones(2, bool), "is_new": np.ones(2, bool),
                "frame": np.full(2, tick)}  # fmt: skip
        values = {"time": np.arange(ends[-1]) + 10.0 * tick}
        recorder.add(sn.Reading("e", "event", (spec,), np.arange(2), tick, float(tick), values, values, meta,
                                _offsets=ends, _dt=1.0))  # fmt: skip
    fields = [spec.to_dict()]
    whole = recorder.recording({"dt": 1.0, "sensors": {"e": {"fields": fields}}})["e"]
    part = whole.between(2.0, 4.0)
    assert part.time.tolist() == [2.0, 3.0, 4.0] and part.offsets is not None
    for row in range(3):
        for env in range(2):
            assert np.array_equal(
                part.measured["time"][part.events(row, env)], whole.measured["time"][whole.events(row + 2, env)]
            )
