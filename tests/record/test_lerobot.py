"""Data sets of LeRobot hold what a policy would have read, with the actions and rewards of the loop."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sensorium as sn
from sensorium.cli import main
from sensorium.errors import ArgumentError, MissingDependencyError, UnknownNameError
from sensorium.readings import Reading
from sensorium.record import Mark
from sensorium.record.export import write_lerobot
from sensorium.record.export.lerobot import Vector, period_of
from sensorium.spec import FieldSpec

parquet = pytest.importorskip("pyarrow.parquet")

DT, SUBSTEPS, STEPS, ENVS = 0.005, 4, 20, 3
RESETS = {7: [1], 12: [0, 1]}
"""Step -> environments that are reset after it."""


def record(path: Path, *, before: bool) -> dict[str, list[np.ndarray]]:
    """Record a loop that logs its action before or after each step, and return what the policy saw."""
    engine = sn.TensorEngine(num_envs=ENVS, dt=DT, bodies=["base"])
    imu = sn.ImuCfg(name="robot/imu", body="base", gyro_noise=0.1, delay=0.01, fields=("ang_vel_b", "lin_acc_b"))
    scene = sn.Scene(engine, [imu, sn.BodyStateCfg(name="state", body="base", rate_hz=50.0)], seed=2)
    rng = np.random.default_rng(0)
    kept: dict[str, list[np.ndarray]] = {name: [] for name in ("state", "action", "reward", "start", "task")}
    starts, task = np.ones(ENVS, bool), "no task"
    with scene.record(path, states=True) as recorder:  # a policy does not see true states
        for step in range(STEPS):
            if step == 10:
                recorder.mark("task", task := "go home")
            seen = scene.publish()
            parts = [seen["robot/imu"][name] for name in ("ang_vel_b", "lin_acc_b")]
            parts += [seen["state"][spec.name] for spec in seen["state"].specs]
            kept["state"].append(np.concatenate([part.reshape(ENVS, -1) for part in parts], axis=1))
            kept["start"].append(starts)
            kept["task"].append(np.array([task] * ENVS))
            action, reward = rng.normal(size=(ENVS, 2)).astype(np.float32), rng.normal(size=ENVS).astype(np.float32)
            kept["action"].append(action)
            kept["reward"].append(reward)
            if before:
                recorder.log("action", action)
            for _ in range(SUBSTEPS):
                scene.update()
            if not before:
                recorder.log("action", action)
            starts = np.isin(np.arange(ENVS), RESETS.get(step, []))
            if starts.any():
                scene.reset(np.flatnonzero(starts).tolist())
            recorder.log("reward", reward)
    return kept


def read(root: Path) -> tuple[dict[str, np.ndarray], list[dict[str, Any]], dict[str, Any]]:
    """Return the frames, the episodes and the info of a data set."""
    info = json.loads((root / "meta/info.json").read_text())
    table = parquet.read_table(root / info["data_path"].format(chunk_index=0, file_index=0))
    frames = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    episodes = parquet.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    return frames, episodes, info


@pytest.mark.parametrize("before", [True, False])
def test_frames_are_what_the_policy_saw(before: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = record(tmp_path / "run.mcap", before=before)
    root = tmp_path / "set"
    assert main(["export", str(tmp_path / "run.mcap"), "--to", str(root), "--format", "lerobot"]) == 0
    out = capsys.readouterr().out
    assert "not exported: the ground truth" in out and "true states and poses of frames: robot/imu.states" in out
    frames, episodes, info = read(root)
    assert info["fps"] == 50 and info["codebase_version"] == "v3.0" and info["total_frames"] == ENVS * STEPS
    names = info["features"]["observation.state"]["names"]
    assert names[0] == "robot/imu.ang_vel_b.x" and len(names) == frames["observation.state"].shape[1]
    starts = np.array(kept["start"])
    expected = [  # in the order in which episodes end
        (env, first, last)
        for last in range(1, STEPS + 1)
        for env in range(ENVS)
        if last == STEPS or starts[last, env]
        for first in [int(np.flatnonzero(starts[:last, env])[-1])]
    ]
    assert len(episodes) == info["total_episodes"] == len(expected) == 6
    at = 0
    for number, (episode, (env, first, last)) in enumerate(zip(episodes, expected, strict=True)):
        assert (episode["episode_index"], episode["length"]) == (number, last - first)
        assert (episode["dataset_from_index"], episode["dataset_to_index"]) == (at, at + last - first)
        rows = slice(at, at + last - first)
        at = rows.stop
        for name, key in (("state", "observation.state"), ("action", "action"), ("reward", "next.reward")):
            values = np.array([each[env] for each in kept[name][first:last]])
            np.testing.assert_allclose(frames[key][rows], values, rtol=1e-6, atol=1e-6, err_msg=f"{name} {number}")
        np.testing.assert_allclose(frames["timestamp"][rows], np.arange(last - first) / 50.0, atol=1e-6)
        assert frames["next.done"][rows].tolist() == [False] * (last - first - 1) + [True]
        assert (frames["episode_index"][rows] == number).all()
        tasks = [str(each[env]) for each in kept["task"][first:last]]
        table = parquet.read_table(root / "meta/tasks.parquet").to_pydict()
        texts = dict(zip(table["task_index"], table["__index_level_0__"], strict=True))
        assert [texts[each] for each in frames["task_index"][rows]] == tasks
        assert episode["tasks"] == list(dict.fromkeys(tasks))
        for key in ("observation.state", "next.reward"):
            values = frames[key][rows].reshape(last - first, -1).astype(np.float64)
            for word, value in (("mean", values.mean(0)), ("std", values.std(0)), ("max", values.max(0))):
                np.testing.assert_allclose(episode[f"stats/{key}/{word}"], value, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(frames["index"], np.arange(at))
    stats = json.loads((root / "meta/stats.json").read_text())["observation.state"]
    values = frames["observation.state"].astype(np.float64)
    assert stats["count"] == [at] and stats["min"] == values.min(0).tolist()
    np.testing.assert_allclose(stats["mean"], values.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(stats["std"], values.std(0), rtol=1e-9, atol=1e-12)


def test_one_environment_from_a_later_time(tmp_path: Path) -> None:
    """The first frame waits for all sensors; a data set in the same folder is replaced."""
    kept = record(tmp_path / "run.mcap", before=False)
    export = ["export", str(tmp_path / "run.mcap"), "--to", str(tmp_path / "set"), "--format", "lerobot"]
    assert main([*export]) == 0
    stale = tmp_path / "set/data/chunk-000/file-001.parquet"
    stale.write_bytes(b"old")
    assert main([*export, "--env", "2", "--start", "0.1"]) == 0
    frames, episodes, info = read(tmp_path / "set")
    assert not stale.exists() and info["total_episodes"] == len(episodes) == 1
    assert len(frames["index"]) == STEPS - 5
    np.testing.assert_allclose(frames["action"], [each[2] for each in kept["action"][5:]])


@pytest.mark.parametrize("acts", [True, False])
def test_a_rate_that_does_not_divide_the_ticks(acts: bool, tmp_path: Path) -> None:
    """30 Hz on a grid of 2 ms: 30 frames per second, one for each sample or action, also after a reset between."""
    engine = sn.TensorEngine(1, 0.002, bodies=["b"], motion=lambda t: {"body_pos_w": (t, 0.0, 0.0)})
    scene = sn.Scene(engine, [sn.BodyStateCfg(name="s", body="b", rate_hz=30.0, fields=("pos_w",))])
    seen: list[float] = []
    with scene.record(tmp_path / "run.mcap") as recorder:
        for step in range(121):
            if step == 20:
                scene.reset([0])
            seen.append(float(scene["s"].read().pos_w[0, 0]))
            if acts:
                recorder.log("action", np.array([step], np.float32))
            for _ in range((17, 17, 16)[step % 3]):
                scene.update()
    assert main(["export", str(tmp_path / "run.mcap"), "--to", str(tmp_path / "set"), "--format", "lerobot"]) == 0
    frames, episodes, info = read(tmp_path / "set")
    assert info["fps"] == 30 and isinstance(info["fps"], int) and [each["length"] for each in episodes] == [20, 101]
    np.testing.assert_allclose(frames["observation.state"][:, 0], seen, atol=1e-6)
    assert not acts or frames["action"].reshape(-1).tolist() == list(range(121))
    times = frames["timestamp"][20:]
    np.testing.assert_allclose(times, np.arange(101) / 30.0, atol=1e-6)


def test_the_period_of_a_loop() -> None:
    """Ticks of a whole rate alternate; pauses do not count; ticks at a constant distance keep it."""
    thirty = np.ceil(np.arange(100) * 50.0 / 3.0 - 1e-9).astype(int)
    assert period_of(thirty.tolist(), 0.002) == pytest.approx(50.0 / 3.0, abs=1e-12)
    assert period_of([*thirty[:40], *(thirty[40:] + 3000)], 0.002) == pytest.approx(50.0 / 3.0, abs=1e-12)
    assert period_of([0, 16, 32, 48], 0.002) == 16.0 and period_of([7], 0.002) == 0.0
    uneven = np.floor(np.arange(4000) * 16.4).astype(int).tolist()
    assert period_of(uneven, 0.002) == pytest.approx(16.4, abs=1e-3)


def readings(specs: tuple[FieldSpec, ...], ticks: range, **values: np.ndarray) -> list[Reading]:
    """Return readings of one environment of a camera at some ticks."""
    return [
        Reading("eye", "camera", specs, np.arange(1), tick, tick * DT, {n: v[k][None] for n, v in values.items()}, {},
                {"capture_tick": np.array([tick]), "frame": np.array([k]), "valid": np.ones(1, bool)}, _dt=DT)
        for k, tick in enumerate(ticks)
    ]  # fmt: skip


def test_images_and_large_fields(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(1)
    specs = (
        FieldSpec("rgb", ("height", "width", "rgba"), (5, 7, 4), "uint8", "1", "", "vector", "image"),
        FieldSpec("depth", ("height", "width", "channel"), (12, 13, 1), "float32", "m", "", "vector", "image"),
        FieldSpec("lla", ("lla",), (3,), "float64", "deg", "", "vector", "scalar"),
        FieldSpec("events", ("event",), (9,), "int32", "1", "", "id", "scalar"),
    )
    rgb = rng.integers(0, 256, (4, 5, 7, 4), dtype=np.uint8)
    depth, lla = rng.uniform(0.5, 4.0, (4, 12, 13, 1)).astype(np.float32), rng.normal(size=(4, 3)) + 47.0
    depth[0, 0, 0] = np.inf
    notes = write_lerobot(
        readings(specs, range(0, 40, 10), rgb=rgb, depth=depth, lla=lla), tmp_path, dt=DT, period=10, sensors=["eye"]
    )
    assert notes == ["eye: events differs in length from frame to frame"]
    frames, _, info = read(tmp_path)
    shapes = {name: (each["dtype"], each["shape"]) for name, each in info["features"].items()}
    assert shapes["observation.images.eye"] == ("image", [5, 7, 3]) and "action" not in shapes
    assert shapes["observation.eye.lla"] == ("float64", [3]) and "observation.state" not in shapes
    assert info["features"]["observation.images.eye.depth"]["info"] == {"is_depth_map": True, "depth_unit": "mm"}
    for k, file in enumerate(frames["observation.images.eye.depth"]):
        pixels = np.asarray(pillow.open(io.BytesIO(file["bytes"])))
        assert pixels.dtype == np.uint16 and (pixels == 0).sum() == (k == 0)
        np.testing.assert_allclose(pixels[depth[k, ..., 0] < 9.0], 1e3 * depth[k][depth[k] < 9.0], atol=0.501)
    np.testing.assert_array_equal(frames["observation.eye.lla"], lla[:3])
    for k, file in enumerate(frames["observation.images.eye"]):
        np.testing.assert_array_equal(np.asarray(pillow.open(io.BytesIO(file["bytes"]))), rgb[k, ..., :3])
    stats = json.loads((tmp_path / "meta/stats.json").read_text())
    expected = rgb[:3, ..., :3].reshape(-1, 3).mean(axis=0) / 255.0
    np.testing.assert_allclose(np.array(stats["observation.images.eye"]["mean"]).reshape(3), expected)
    assert np.shape(stats["observation.images.eye"]["q50"]) == (3, 1, 1)
    far = 1e3 * depth[:3][np.isfinite(depth[:3])].max()
    assert stats["observation.images.eye.depth"]["max"] == [[[pytest.approx(far, abs=0.51)]]]


def test_a_reset_between_two_frames(tmp_path: Path) -> None:
    """Frames of an episode are counted from its start; the task of each frame is the newest one."""
    spec = FieldSpec("x", (), (), "float32", "m", "", "vector", "scalar")
    marks = [Mark(13, 0.065, np.arange(1), "episode", ""), Mark(25, 0.125, np.arange(1), "task", "stop")]
    every = readings((spec,), range(40), x=np.arange(40.0, dtype=np.float32))
    assert write_lerobot(every, tmp_path, dt=DT, period=10, sensors=["eye"], marks=marks) == []
    frames, episodes, _ = read(tmp_path)
    assert frames["observation.state"].reshape(-1).tolist() == [0.0, 10.0, 13.0, 23.0, 33.0]
    assert [episode["tasks"] for episode in episodes] == [["no task"], ["no task", "stop"]]


def test_a_recording_without_frames(tmp_path: Path) -> None:
    spec = FieldSpec("x", (), (), "float32", "m", "", "vector", "scalar")
    with pytest.raises(ArgumentError, match="no complete frame"):
        write_lerobot(readings((spec,), range(1), x=np.zeros(1)), tmp_path, dt=DT, period=1, sensors=["eye"])
    with pytest.raises(ArgumentError, match="env: got 4"):
        write_lerobot(readings((spec,), range(2), x=np.zeros(2)), tmp_path, dt=DT, period=1, sensors=["eye"], env=4)


def test_features_of_chosen_sensors(tmp_path: Path) -> None:
    """Windows hold the newest captures of each environment, none from before its reset; others are a vector each."""
    engine = sn.TensorEngine(2, DT, bodies=["b"], motion=lambda t: {"body_pos_w": (t, 2.0 * t, 0.0)})
    arms = [sn.BodyStateCfg(name=name, body="b", rate_hz=rate, fields=("pos_w",), noise={"pos_w": 0.1})
            for name, rate in (("skin", 100.0), ("hand", 50.0), ("eye", 50.0))]  # fmt: skip
    scene = sn.Scene(engine, arms)
    kept: dict[str, list[np.ndarray]] = {name: [] for name in ("skin", "hand", "eye")}
    window = np.repeat(scene["skin"].read().pos_w[:, None].numpy(), 3, axis=1)
    with scene.record(tmp_path / "run.mcap") as recorder:
        for step in range(12):
            if step == 5:
                scene.reset([1])
                window[1] = scene["skin"].read().pos_w[1]
            kept["skin"].append(window.copy())
            for name in ("hand", "eye"):
                kept[name].append(scene[name].read().pos_w.numpy().copy())
            recorder.log("action", np.zeros((2, 1), np.float32))
            for tick in range(4):
                scene.update()
                if tick % 2:
                    window = np.concatenate([window[:, 1:], scene["skin"].read().pos_w[:, None].numpy()], axis=1)
    export = ["export", str(tmp_path / "run.mcap"), "--to", str(tmp_path / "set"), "--format", "lerobot"]
    assert main([*export, "--feature", "state=hand.pos_w", "--feature", "tactile=skin:3"]) == 0
    frames, episodes, info = read(tmp_path / "set")
    assert [each["length"] for each in episodes] == [5, 12, 7]
    names = info["features"]["observation.tactile"]["names"]
    assert names[0] == "skin[-2].pos_w.x" and names[-1] == "skin[0].pos_w.z" and len(names) == 9
    rows = [(1, step) for step in range(5)] + [(0, step) for step in range(12)] + [(1, step) for step in range(5, 12)]
    for feature, name in (("tactile", "skin"), ("state", "hand"), ("eye", "eye")):
        expected = [kept[name][step][env].reshape(-1) for env, step in rows]
        np.testing.assert_allclose(frames[f"observation.{feature}"], expected, rtol=1e-6)


def test_wrong_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = FieldSpec("x", (), (), "float32", "m", "", "vector", "scalar")
    every = readings((spec,), range(40), x=np.arange(40.0, dtype=np.float32))
    for item in ("hand", "eye.y"):
        with pytest.raises(UnknownNameError, match=f"{item}.*Known: eye"):
            write_lerobot(every, tmp_path, dt=DT, period=10, sensors=["eye"], features={"state": Vector((item,))})
    for text in ("state", "state=", "state=eye:0", "state=eye:x", "=eye", "a b=eye"):
        with pytest.raises(ArgumentError, match="expected NAME=SENSOR"):
            Vector.parse(text)
    assert Vector.parse("state=a/b,c.d:5") == ("state", Vector(("a/b", "c.d"), 5))
    assert main(["export", str(tmp_path / "none.mcap"), "--to", str(tmp_path), "--format", "csv", "--video"]) == 2
    assert "--format lerobot" in capsys.readouterr().err


def test_far_distances_and_missing_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    spec = FieldSpec("depth", ("height", "width", "channel"), (2, 2, 1), "float32", "m", "", "vector", "image")
    far = np.full((3, 2, 2, 1), 70.0, np.float32)
    notes = write_lerobot(readings((spec,), range(3), depth=far), tmp_path, dt=DT, period=1, sensors=["eye"])
    assert notes == ["eye: distances above 65.535 m, which are saved as 65.535 m"]
    monkeypatch.setitem(sys.modules, "av", None)
    rgb = FieldSpec("rgb", ("height", "width", "rgb"), (2, 2, 3), "uint8", "1", "", "vector", "image")
    images = readings((rgb,), range(3), rgb=np.zeros((3, 2, 2, 3), np.uint8))
    with pytest.raises(MissingDependencyError, match="PyAV"):
        write_lerobot(images, tmp_path, dt=DT, period=1, sensors=["eye"], video=True)
