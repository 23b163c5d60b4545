"""The recorder keeps each sample once, with ticks that align truth and measurement; its file is read back equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sensorium as sn
from sensorium.errors import ModelError, SensoriumWarning, UnknownNameError
from sensorium.readings import Array, Reading
from sensorium.record import NpzRecorder, load
from sensorium.spec import FieldSpec

DT = 0.01
SPEC = FieldSpec("rate", ("xyz",), (3,), "float32", "rad/s", "sensor", "vector", "scalar")


def value(tick: int, envs: int) -> Array:
    return (100.0 * np.arange(envs)[:, None] + tick + np.array([0.1, 0.2, 0.3])).astype(np.float32)


def meta(tick: int, delay: int = 0, period: int = 1, envs: int = 2) -> dict[str, Array]:
    """Return ticks, times and validity of a reading with period and delay in ticks."""
    newest, arrived = tick // period * period, max((tick - delay) // period * period, 0)
    ones = np.ones(envs, dtype=np.int64)
    return {
        "capture_tick": arrived * ones,
        "truth_tick": newest * ones,
        "stamp": arrived * DT * ones + 0.25,
        "age": (tick - arrived) * DT * ones,
        "valid": np.full(envs, tick >= delay),
        "is_new": np.full(envs, False),
        "frame": (newest // period + 1) * ones,
    }


def reading(tick: int, *, delay: int = 0, period: int = 1, envs: int = 2, name: str = "gyro") -> Reading:
    """Return the reading of a sensor with period and delay in ticks; its measured value is its truth plus 0.5."""
    newest, arrived = tick // period * period, max((tick - delay) // period * period, 0)
    measured, truth = {"rate": value(arrived, envs) + 0.5}, {"rate": value(newest, envs)}
    about = meta(tick, delay, period, envs)
    return Reading(name, "gyro", (SPEC,), np.arange(envs), tick, tick * DT, measured, truth, about)


def described(delay: float | None, name: str = "gyro") -> dict[str, object]:
    info = {
        "kind": "gyro",
        "rate_hz": 25.0,
        "fields": [SPEC.to_dict()],
        "cfg": {} if delay is None else {"delay": delay},
    }
    return {"engine": "none", "dt": DT, "num_envs": 2, "seed": 0, "sensors": {name: info}}


def test_every_capture_and_arrival_is_one_row() -> None:
    """Readings at every tick give a row for each change, with the ticks of truth and measurement."""
    recorder = NpzRecorder()
    for tick in range(13):
        recorder.add(reading(tick, delay=3, period=4))
    sensor = recorder.recording(described(0.03))["gyro"]
    assert np.allclose(sensor.time / DT, [0, 3, 4, 7, 8, 11, 12])
    assert np.allclose(sensor.truth_time[:, 1] / DT, [0, 0, 4, 4, 8, 8, 12])
    assert np.allclose(sensor.capture_time[:, 1] / DT, [0, 0, 0, 4, 4, 8, 8])
    assert sensor.valid[:, 0].tolist() == [False] + [True] * 6
    assert np.allclose(sensor.age, sensor.time[:, None] - sensor.capture_time)
    assert sensor.captures().tolist() == [0, 2, 4, 6]
    assert sensor.arrivals().tolist() == [1, 3, 5]


def test_paired_compares_equal_captures() -> None:
    """After removal of the latency, measured minus true equals the injected error."""
    recorder = NpzRecorder()
    for tick in range(20):
        recorder.add(reading(tick, delay=3, period=4))
    for env in (0, 1):
        captured, measured, truth = recorder.recording(described(0.03))["gyro"].paired("rate", env)
        assert np.allclose(captured / DT, [0, 4, 8, 12, 16])
        assert np.allclose(measured - truth, 0.5)


@pytest.mark.parametrize("delay", [None, 0.02])
def test_a_reset_at_a_capture_replaces_it(delay: float | None, tmp_path: Path) -> None:
    """The sample of that tick belongs to the new episode, in both branches."""
    engine = sn.TensorEngine(1, DT, bodies=["body"])
    cfg = sn.BodyStateCfg(name="state", body="body", fields=("pos_w",), update_period=4 * DT, delay=delay)
    scene = sn.Scene(engine, [cfg])
    with scene.record(tmp_path / "run.mcap"):
        for tick in range(1, 21):
            engine.body_pos_w[:] = tick
            scene.update()
            if tick == 8:
                engine.body_pos_w[:] = 100.0
                scene.reset()
    with sn.replay(tmp_path / "run.mcap") as replay:
        captured, measured, truth = replay.recording()["state"].paired("pos_w")
    assert {8, 12}.issubset(np.rint(captured / DT).astype(int).tolist()) and 100.0 in truth
    np.testing.assert_array_equal(measured, truth)


def test_a_sensor_without_delay_has_one_row_per_capture() -> None:
    """Truth and measured value of a row then belong to the same capture."""
    recorder = NpzRecorder()
    for tick in range(9):
        count = 5 if tick % 3 else 4
        spec, values = replace(SPEC, axes=("ray",), shape=(count,)), np.full((2, count), tick, np.float32)
        scan = Reading("gyro", "gyro", (spec,), np.arange(2), tick, tick * DT, {"rate": values}, {}, meta(tick))
        recorder.add(scan if tick % 3 or tick == 3 else reading(tick))
    assert len(recorder) == 9
    with pytest.warns(SensoriumWarning, match="gyro: 7 of 9 readings are omitted"):
        sensor = recorder.recording(described(None))["gyro"]
    assert np.allclose(sensor.time / DT, [0, 6]) and sensor.truth["rate"].shape == (2, 2, 3)
    with pytest.warns(SensoriumWarning, match="gyro: 3 of 9 readings"):
        assert recorder.recording({**described(None), "sensors": {}})["gyro"].measured["rate"].shape == (6, 2, 5)


def test_recording_round_trips_through_a_file(tmp_path: Path) -> None:
    """Save and load keep every array, the description and names with slashes; plain NumPy reads the file."""
    recorder = NpzRecorder()
    for tick in range(200):
        recorder.add(reading(tick, name="robot/gyro"))
    path = recorder.save(tmp_path / "new/folder/run.npz", described(None, "robot/gyro"))
    recording, before = load(path), recorder.recording(described(None, "robot/gyro"))
    assert recording.description == described(None, "robot/gyro")
    sensor, expected = recording["robot/gyro"], before["robot/gyro"]
    assert sensor.info == expected.info
    for part in ("env_ids", "time", "capture_time", "truth_time", "valid", "stamp"):
        assert np.array_equal(getattr(sensor, part), getattr(expected, part))
    assert np.array_equal(sensor.measured["rate"], expected.measured["rate"])
    assert np.allclose(sensor.stamp, sensor.capture_time + 0.25)
    with np.load(path) as file:
        assert file["robot/gyro/measured/rate"].shape == (200, 2, 3)
        assert np.allclose(file["robot/gyro/truth/rate"][:, 0, 0], np.arange(200) + 0.1)
    assert [each.name for each in path.parent.iterdir()] == ["run.npz"]
    with pytest.raises(UnknownNameError, match="robot/gyro"):
        recording["gyro"]


def test_memory_is_bounded() -> None:
    """Only the first envs are kept, and a full recorder reports this once and stops."""
    recorder = NpzRecorder(max_envs=2)
    recorder.add(reading(0, envs=5))
    sensor = recorder.recording(described(None))["gyro"]
    assert sensor.env_ids.tolist() == [0, 1] and sensor.measured["rate"].shape == (1, 2, 3)
    small = NpzRecorder(max_bytes=1000)
    with pytest.warns(SensoriumWarning, match="nothing later is recorded") as caught:
        for tick in range(100):
            small.add(reading(tick))
    assert len(caught) == 1 and small.is_full and small.nbytes <= 1000
    assert 0 < len(small) < 100


def test_failed_save_keeps_the_previous_file(tmp_path: Path) -> None:
    """A description that is not JSON leaves the old file and no partial file."""
    recorder = NpzRecorder()
    recorder.add(reading(0))
    path = recorder.save(tmp_path / "run.npz", described(None))
    old = path.read_bytes()
    with pytest.raises(TypeError):
        recorder.save(path, {**described(None), "engine": object()})
    assert path.read_bytes() == old
    assert [each.name for each in tmp_path.iterdir()] == ["run.npz"]


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_non_recording_file_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    """A missing, empty or foreign file is a ModelError that names it."""
    path = tmp_path / "run.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=r"run\.npz"):
        load(path)
    np.savez(path, other=np.zeros(3))
    with pytest.raises(ModelError, match="is not a recording"):
        load(path)
