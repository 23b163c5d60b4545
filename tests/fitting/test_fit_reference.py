"""Fits with a reference find the errors of a simulated sensor, and refuse references that do not show them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.cli import main
from sensorium.demo import hall
from sensorium.errors import ArgumentError
from sensorium.fitting import compare
from sensorium.fitting.logs import read_samples
from sensorium.record import NpzRecorder

UNITS = {"ang_vel_b": "rad/s", "lin_acc_b": "m/s^2"}
DELAY, DRIFT, COUNT = 0.0123, 40e-6, 6000


def motion(time: Any, seed: int) -> dict[str, Any]:
    """Return rates and specific forces of sums of sines of 0.2 to 4 Hz, which are exact at any time."""
    random = np.random.default_rng(seed)
    frequency, phase = random.uniform(0.2, 4.0, (2, 3, 12)), random.uniform(0.0, 6.28, (2, 3, 12))
    size = random.normal(size=(2, 3, 12)) * np.array([0.4, 1.0])[:, None, None]
    waves = [
        (a * np.sin(2.0 * np.pi * f * time[:, None, None] + p)).sum(axis=-1)
        for a, f, p in zip(size, frequency, phase, strict=True)
    ]
    return {"ang_vel_b": waves[0], "lin_acc_b": waves[1] + [0.0, 0.0, 9.8]}


def logs(seed: int) -> tuple[sn.Samples, sn.Samples, dict[str, float]]:
    """Return a sensor at 200 Hz with coloured noise and lost samples, its reference, and the true parameters."""
    random = np.random.default_rng(seed)
    time = (np.arange(COUNT) / 200.0 + 0.0007)[random.random(COUNT) > 0.02]
    true = motion(time - DELAY - DRIFT * (time - 0.5 * (time[0] + time[-1])), seed)
    wanted, values = {"delay": DELAY, "stamp.drift": 1e6 * DRIFT}, {}
    for name, sd in (("ang_vel_b", 0.01), ("lin_acc_b", 0.1)):
        matrix, bias = np.eye(3) + 0.01 * random.normal(size=(3, 3)), 0.05 * random.normal(size=3)
        noise = sd * random.normal(size=(len(time), 3))
        for k in range(1, len(time)):  # first-order autoregressive: correlated over 20 samples
            noise[k] = 0.95 * noise[k - 1] + math.sqrt(1.0 - 0.95**2) * noise[k]
        values[name] = true[name] @ matrix.T + bias + noise + 0.5 * sd * random.normal(size=noise.shape)
        for i, row in enumerate("xyz"):
            wanted |= {f"{name}.bias.{row}": bias[i], f"{name}.scale.{row}": matrix[i, i] - 1.0}
            wanted |= {
                f"{name}.cross_axis.{row}{column}": matrix[i, j] / matrix[j, j]
                for j, column in enumerate("xyz")
                if i != j
            }
    early = np.arange(-500, COUNT * 1.25 + 500) / 250.0
    return sn.Samples(time, values, UNITS, "log"), sn.Samples(early, motion(early, seed), UNITS, "truth"), wanted


def test_intervals_contain_the_true_parameters() -> None:
    """Of 5 times 26 parameters about 124 are inside, and at least 115; each delay is right to 0.2 ms."""
    inside = 0
    for seed in range(5):
        samples, reference, wanted = logs(seed)
        found = sn.fit(samples, "imu", reference=reference).parameters
        assert found.keys() == wanted.keys()
        inside += sum(found[name].low <= value <= found[name].high for name, value in wanted.items())
        assert found["delay"].value == pytest.approx(DELAY, abs=0.0002)
        assert found["delay"].high - found["delay"].low < 0.0002
        assert found["ang_vel_b.scale.x"].high - found["ang_vel_b.scale.x"].low < 0.01
    assert inside >= 115


def test_the_preset_distorts_as_the_sensor_does(tmp_path: Path) -> None:
    """The command writes a preset whose sensor measures M x + b, later by the delay."""
    samples, reference, wanted = logs(0)
    for name, each in (("log.npz", samples), ("truth.npz", reference)):
        np.savez(tmp_path / name, time=each.time, **each.values)
    units = [word for name, unit in UNITS.items() for word in ("--units", f"{name}={unit}")]
    command = ["fit", str(tmp_path / "log.npz"), *units, "--reference", str(tmp_path / "truth.npz")]
    path = tmp_path / "imu.toml"
    assert main([*command, "--to", str(path), "--html", str(tmp_path / "imu.html")]) == 0
    assert (tmp_path / "imu.html").read_text(encoding="utf-8").count("<img") == 2
    cfg = sn.preset(str(path), site="imu")
    assert isinstance(cfg, sn.ImuCfg) and cfg.to_dict()["delay"] == pytest.approx(DELAY, abs=0.0002)
    gyro = cfg.to_dict()["stages"][0]
    assert gyro["kind"] == "scale_error" and gyro["fields"] == ["ang_vel_b"]
    assert gyro["scale"] == pytest.approx([wanted[f"ang_vel_b.scale.{axis}"] for axis in "xyz"], abs=0.003)
    assert gyro["cross_axis"] == pytest.approx([wanted[f"ang_vel_b.cross_axis.{pair}"] for pair in PAIRS], abs=0.003)


PAIRS = ("xy", "xz", "yx", "yz", "zx", "zy")  # the order of ScaleError
ERRORS = {
    "ang_vel_b": ((0.01, -0.02, 0.015), (0.004, -0.006, 0.008, 0.003, -0.002, 0.005)),
    "lin_acc_b": ((-0.01, 0.02, 0.005), (0.002, -0.003, 0.004, -0.005, 0.006, 0.001)),
}
FAULTY = sn.ImuCfg(
    body="body", fields=("ang_vel_b", "lin_acc_b"), rate_hz=200.0, delay=0.015, loss=sn.GilbertElliott(p=0.02, r=0.5),
    noise_density={"ang_vel_b": 0.001, "lin_acc_b": 0.01}, resolution={"ang_vel_b": 0.005, "lin_acc_b": 0.05},
    bias={"ang_vel_b": (0.02, -0.03, 0.01), "lin_acc_b": (0.1, -0.2, 0.05)},
    stages=tuple(sn.stages.ScaleError(fields=(name,), scale=scale, cross_axis=cross)
                 for name, (scale, cross) in ERRORS.items()),
)  # fmt: skip


def simulated(cfg: sn.ImuCfg, seed: int) -> tuple[sn.Samples, sn.Samples]:
    """Return the log of an IMU that rests for 30 s and moves for 30 s, and its reference."""
    scene = sn.Scene(sn.TensorEngine(1, dt=0.005, provides=("pose", "velocity", "acceleration", "gravity")), [cfg],
                     seed=seed)  # fmt: skip
    imu, time = scene["imu"], np.arange(1, 12_001) * 0.005
    still = {"ang_vel_b": [0.0, 0.0, 0.0], "lin_acc_b": [0.0, 0.0, 9.8]}
    true = {name: np.where(time[:, None] < 30.0, still[name], each) for name, each in motion(time, seed).items()}
    rows = []
    for k in range(len(time)):
        scene.engine.body_ang_vel_w[0, 0] = torch.from_numpy(true["ang_vel_b"][k])
        scene.engine.body_lin_acc_w[0, 0] = torch.from_numpy(true["lin_acc_b"][k] - [0.0, 0.0, 9.81])
        scene.update()
        if imu.is_new.item():
            rows.append((scene.time, *imu.data.ang_vel_b[0].tolist(), *imu.data.lin_acc_b[0].tolist()))
    table = np.array(rows)
    values = {"ang_vel_b": table[:, 1:4], "lin_acc_b": table[:, 4:]}
    return sn.Samples(table[:, 0], values, UNITS, "log"), sn.Samples(time, true, UNITS, "truth")


@pytest.mark.slow
def test_noise_and_errors_of_a_simulated_sensor_are_in_one_preset(tmp_path: Path) -> None:
    """Of 33 parameters about 31 are inside their intervals, and at least 29; the twin has the same ones."""
    samples, reference = simulated(FAULTY, 1)
    fit = sn.fit(samples, "imu", reference=reference)
    wanted = {"delay": 0.015, "loss.p": 0.02, "loss.r": 0.5}
    for name, (scale, cross) in ERRORS.items():
        wanted |= {f"{name}.cross_axis.{pair}": value for pair, value in zip(PAIRS, cross, strict=True)}
        for k, axis in enumerate("xyz"):
            wanted |= {f"{name}.bias.{axis}": FAULTY.bias[name][k], f"{name}.scale.{axis}": scale[k]}
            wanted |= {f"{name}.N.{axis}": FAULTY.noise_density[name]}
    inside = [fit.parameters[name].low <= value <= fit.parameters[name].high for name, value in wanted.items()]
    assert len(inside) == 33 and sum(inside) >= 29
    path = tmp_path / "imu.toml"
    path.write_text(fit.to_toml(), encoding="utf-8")
    twin = sn.preset(str(path), body="body")
    samples, reference = simulated(twin, 2)
    verdicts = {name: verdict for name, *_, verdict in compare(fit, sn.fit(samples, "imu", reference=reference)).rows}
    assert "different" not in verdicts.values() and sum(verdicts[name] == "same" for name in wanted) >= 29
    assert verdicts["lin_acc_b.resolution.x"] == verdicts["rate_hz"] == "same"


def tour(seed: int, step: float) -> sn.Trajectory:
    """Return 30 s of poses of a body that turns by up to 0.5 rad and moves by centimetres, at 0.2 to 2 Hz."""
    random, time = np.random.default_rng(seed), np.arange(0.0, 33.0, step)
    frequency, phase = random.uniform(0.2, 2.0, (6, 8)), random.uniform(0.0, 6.28, (6, 8))
    size = random.normal(size=(6, 8)) * np.repeat([0.015, 0.08], 3)[:, None]
    waves = (size * np.sin(2.0 * np.pi * frequency * time[:, None, None] + phase)).sum(axis=-1)
    return sn.Trajectory(time, waves[:, :3], Rotation.from_rotvec(waves[:, 3:]).as_quat(scalar_first=True))


def captured(path: sn.Trajectory, seed: int, pos: float, turn: float) -> sn.Trajectory:
    """Return poses of motion capture with white noise, m and rad."""
    random = np.random.default_rng(seed)
    noise = Rotation.from_rotvec(turn * random.normal(size=(len(path.times), 3)))
    quat = (Rotation.from_quat(path.quat, scalar_first=True) * noise).as_quat(scalar_first=True)
    return sn.Trajectory(path.times, path.pos + pos * random.normal(size=path.pos.shape), quat)


def carried(path: sn.Trajectory, seed: int) -> sn.Samples:
    """Return the log of the faulty IMU on a body that follows a path."""
    scene = sn.Scene(sn.TrajectoryEngine(path, dt=0.005, gravity=(0.0, 0.0, -9.81)), [FAULTY], seed=seed)
    imu, rows = scene["imu"], []
    for _ in range(int(path.duration / 0.005) - 1):
        scene.step()
        if imu.is_new.item():
            rows.append((scene.time, *imu.data.ang_vel_b[0].tolist(), *imu.data.lin_acc_b[0].tolist()))
    table = np.array(rows)
    return sn.Samples(table[:, 0], {"ang_vel_b": table[:, 1:4], "lin_acc_b": table[:, 4:]}, UNITS, "log")


def _inside(fit: Any) -> tuple[int, int]:
    """Return how many errors of the faulty IMU are inside their intervals, and how many were found."""
    wanted = {"delay": 0.015}
    for name, (scale, cross) in ERRORS.items():
        wanted |= {f"{name}.cross_axis.{pair}": value for pair, value in zip(PAIRS, cross, strict=True)}
        for k, axis in enumerate("xyz"):
            wanted |= {f"{name}.bias.{axis}": FAULTY.bias[name][k], f"{name}.scale.{axis}": scale[k]}
    found = {name: fit.parameters[name] for name in wanted if name in fit.parameters}
    return sum(each.low <= wanted[name] <= each.high for name, each in found.items()), len(found)


def test_poses_are_a_reference() -> None:
    """Of 25 parameters about 24 are inside, with noise of the poses whose second derivative exceeds the motion."""
    samples, path = carried(tour(0, 0.005), 0), tour(0, 0.01)
    noisy = captured(path, 1, 1e-4, 5e-4)
    assert noisy.curve.at(path.times).lin_acc.std() > 2.0 * path.curve.at(path.times).lin_acc.std()
    for reference in (path, noisy):
        fit = sn.fit(samples, "imu", reference=reference, gravity=9.81)
        inside, found = _inside(fit)
        assert found == 25 and inside >= 22
        delay = fit.parameters["delay"]
        assert delay.value == pytest.approx(0.015, abs=0.0002) and delay.high - delay.low < 0.0008
    with pytest.raises(ArgumentError, match=r"poses have a noise of 0\.0\d+ m and 0\.000\d+ rad"):
        sn.fit(samples, "imu", reference=captured(path, 1, 1e-2, 5e-4))


def test_the_command_reads_poses(tmp_path: Path) -> None:
    samples, path = carried(tour(0, 0.005), 0), tour(0, 0.01)
    table = np.column_stack((samples.time, samples.values["ang_vel_b"], samples.values["lin_acc_b"]))
    header = "time (s)," + ",".join(f"{name} {axis} ({unit})" for name, unit in (("gyro", "rad/s"), ("acc", "m/s^2"))
                                    for axis in "xyz")  # fmt: skip
    np.savetxt(tmp_path / "log.csv", table, delimiter=",", header=header, comments="")
    np.savetxt(tmp_path / "poses.tum", np.column_stack((path.times, path.pos, np.roll(path.quat, -1, axis=1))))
    command = ["fit", str(tmp_path / "log.csv"), "--gravity", "9.81", "--to", str(tmp_path / "imu.toml")]
    assert main([*command, "--reference", str(tmp_path / "poses.tum")]) == 0
    assert sn.preset(str(tmp_path / "imu.toml"), site="imu").to_dict()["delay"] == pytest.approx(0.015, abs=0.0002)


FLIGHT = Path(os.environ.get("SENSOR_LOGS", "absent"), "trajectories/euroc_V1_02_groundtruth.csv")


@pytest.mark.skipif(not FLIGHT.exists(), reason="the flight is not there: SENSOR_LOGS=folder")
def test_a_real_flight_is_a_reference() -> None:
    """A simulated IMU on the poses of a drone; axes with little motion are absent, the others are inside."""
    path = sn.Trajectory.from_file(FLIGHT)
    fit = sn.fit(carried(path, 0), "imu", reference=captured(path, 1, 1e-4, 5e-4), gravity=9.81)
    inside, found = _inside(fit)
    assert found >= 16 and inside >= found - 3
    assert fit.parameters["delay"].value == pytest.approx(0.015, abs=0.0003)


def test_noise_is_that_at_rest(tmp_path: Path) -> None:
    """Without a span at rest the noise is absent with a reason; another log at rest gives it."""
    samples, reference, _ = logs(0)
    moving = sn.fit(samples, "imu", reference=reference)
    assert "at rest" in moving.refused["noise"] and "noise_density" not in moving.fields
    assert moving.merged_with(moving).fields == moving.fields
    noise = np.random.default_rng(1).normal(size=(4000, 6)) * 0.1
    rest = {"ang_vel_b": noise[:, :3], "lin_acc_b": noise[:, 3:] + [0.0, 0.0, 9.8]}
    np.savez(tmp_path / "rest.npz", time=np.arange(4000) / 200.0, **rest)
    for name, each in (("log.npz", samples), ("truth.npz", reference)):
        np.savez(tmp_path / name, time=each.time, **each.values)
    units = [word for name, unit in UNITS.items() for word in ("--units", f"{name}={unit}")]
    command = ["fit", str(tmp_path / "log.npz"), *units, "--rest", str(tmp_path / "rest.npz")]
    path = tmp_path / "imu.toml"
    assert main([*command, "--to", str(path)]) == 2
    assert main([*command, "--reference", str(tmp_path / "truth.npz"), "--to", str(path)]) == 0
    given = sn.preset(str(path), site="imu").to_dict()
    assert given["noise_density"]["lin_acc_b"] == pytest.approx([0.1 / math.sqrt(200.0)] * 3, rel=0.05)
    assert given["delay"] == pytest.approx(DELAY, abs=0.0002) and len(given["stages"]) == 2


def test_arrival_counts_as_the_end_of_the_delay() -> None:
    samples, reference, _ = logs(1)
    later = sn.Samples(samples.time - 0.1, samples.values, UNITS, "log", samples.time - 0.08, start=0.1)
    found = sn.fit(later, "imu", reference=reference)
    assert found.parameters["delay"].value == pytest.approx(DELAY + 0.02, abs=0.0002)


def test_a_recording_gives_its_true_values(tmp_path: Path) -> None:
    imu = sn.ImuCfg(body="body", rate_hz=200.0, gyro_bias=0.5, delay=0.01)
    scene = sn.Scene(sn.TrajectoryEngine(hall.drone(), dt=0.005, world=hall.shapes()), [imu], seed=0)
    recorder, cursor = NpzRecorder(), scene.sample_cursor()
    for _ in range(20):
        scene.step()
        recorder.add_all(scene.publish(since=cursor))
    recorder.save(tmp_path / "log.npz", scene.description())
    measured = read_samples(tmp_path / "log.npz", "imu")
    true = read_samples(tmp_path / "log.npz", "imu", truth=True)
    times, left, right = np.intersect1d(measured.time.round(6), true.time.round(6), return_indices=True)
    error = measured.values["ang_vel_b"][left] - true.values["ang_vel_b"][right]
    assert len(times) > 10 and error == pytest.approx(0.5, abs=1e-5) and true.arrival is None
    assert measured.arrival is not None and measured.arrival - measured.time == pytest.approx(0.01)


def test_an_axis_without_motion_is_named() -> None:
    time = np.arange(6000) / 200.0
    noise = 0.01 * np.random.default_rng(0).normal(size=(6000, 3))
    true = motion(time, 2)["ang_vel_b"] * [1.0, 0.0, 1.0]
    both = [sn.Samples(time, {"ang_vel_b": each}, UNITS, "log") for each in (true + noise, true)]
    found = sn.fit(both[0], "imu", reference=both[1])
    assert "does not move along this axis" in found.refused["ang_vel_b.scale.y"]
    assert "ang_vel_b.scale.x" in found.parameters and "ang_vel_b.bias.y" in found.parameters


def _with(change: Any) -> sn.Samples:
    time = np.arange(6000) / 200.0
    return sn.Samples(time, {"ang_vel_b": change(time, motion(time, 3)["ang_vel_b"])}, UNITS, "reference")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda time, rate: 0.0 * rate + 0.1, "the reference does not move"),
        (lambda time, rate: 0.01 * np.random.default_rng(1).normal(size=rate.shape), "the reference does not move"),
        (lambda time, rate: rate[:, [1, 2, 0]], "its axes are not those of the reference"),
    ],
)
def test_unsuitable_references_are_refused(change: Any, message: str) -> None:
    samples = _with(lambda time, rate: rate + 0.01 * np.random.default_rng(0).normal(size=rate.shape))
    with pytest.raises(ArgumentError, match=message):
        sn.fit(samples, "imu", reference=_with(change))


def test_motion_that_repeats_is_refused() -> None:
    def waves(time: Any, rate: Any) -> Any:
        turn = 2.0 * np.pi * 2.0 * time[:, None]
        return sum(np.sin(k * turn + np.array([0.0, 1.0, 2.5]) * k * k) for k in (1, 2, 3, 4))

    with pytest.raises(ArgumentError, match=r"repeats after 0\.5 s"):
        sn.fit(_with(waves), "imu", reference=_with(waves))
    with pytest.raises(ArgumentError, match="expected 512"):
        sn.fit(_with(waves), "imu", reference=_with(waves).between(0.0, 3.0))
