"""Shards in either format hold the same rows, and one data set of any format holds the rows of all shards."""

from __future__ import annotations

import errno
import io
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nursery import until

import sensorium as sn
from sensorium.errors import ArgumentError, ConfigError, ModelError
from sensorium.jobs.collect import collect
from sensorium.jobs.mcap import McapRecording, about_of
from sensorium.jobs.report import verify
from sensorium.jobs.store import Store
from sensorium.record.export.lerobot import Vector

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("mcap")
pytest.importorskip("fsspec")

MODEL = """
<mujoco><option timestep="0.005"/>
<worldbody><light pos="0 0 3"/><geom name="floor" type="plane" size="5 5 .1"/>
  <body name="base" pos="0 0 .11"><freejoint/><geom name="box" type="box" size=".1 .1 .1" mass="1"/>
    <site name="imu"/><camera name="eye" pos="0 -.3 .3" xyaxes="1 0 0 0 .7 .7"/>
    <body name="arm" pos="0 0 .1"><joint name="swing" type="hinge" axis="0 1 0"/>
      <geom name="arm" type="capsule" fromto="0 0 0 .2 0 0" size=".03" mass=".3"/></body></body>
</worldbody><actuator><motor name="push" joint="swing" gear="3"/></actuator></mujoco>"""
ENVS, EPISODES, TICKS, DT, CONTROL_TICKS = 4, 2, 30, 0.005, 4
CTRL = np.sin(np.arange(TICKS * ENVS, dtype=np.float64)).reshape(TICKS, ENVS, 1)[::CONTROL_TICKS]
SENSORS = [
    sn.ImuCfg(name="robot/imu", site="imu", rate_hz=100.0, delay=0.01, jitter=0.004, loss=0.1, gyro_noise=0.01),
    sn.CollisionEventsCfg(name="bumps", primary=sn.ContactMatch(mode="body", pattern="base")),
    sn.CameraCfg(name="eye", camera="eye", width=12, height=8, data_types=("rgb", "depth"), rate_hz=40.0),
]
FILES = {"robot%2Fimu": "robot/imu", "bumps": "bumps", "eye": "eye"}


def job(folder: Path, **fields: Any) -> sn.Job:
    (folder / "hopper.xml").write_text(MODEL)
    np.savez(folder / "ctrl.npz", ctrl=CTRL, dt=CONTROL_TICKS * DT)
    given = {
        "model": folder / "hopper.xml", "rig": SENSORS, "control": folder / "ctrl.npz", "envs": ENVS,
        "envs_per_shard": 2, "episodes": EPISODES, "episode_seconds": TICKS * DT, "substeps": CONTROL_TICKS, "seed": 5,
    }  # fmt: skip
    return sn.Job(**{**given, **fields})


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same job in both formats, of which the shards were generated in different orders and blocks."""
    folder = tmp_path_factory.mktemp("data")
    for kind, order, readings in (("parquet", (0, 1), 512), ("mcap", (1, 0), 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sensorium.jobs.rows.BLOCK_READINGS", readings)
            for index in order:
                sn.run_shard(job(folder, format=kind), index, folder / kind)
    return {kind: folder / kind for kind in ("parquet", "mcap")}


def receipts(out: Path) -> list[dict[str, Any]]:
    return [json.loads((out / f"shard-{index:06d}/receipt.json").read_text()) for index in range(2)]


def table(out: Path, name: str) -> Any:
    """The rows of all shards in one table."""
    return pa.concat_tables([pq.read_table(out / f"shard-{index:06d}/{name}.parquet") for index in range(2)])


def column(rows: Any, name: str) -> np.ndarray:
    return rows[name].to_numpy()


def test_shards_of_both_formats_have_equal_checksums(outputs: dict[str, Path]) -> None:
    both = [[each["files"] for each in receipts(outputs[kind])] for kind in ("parquet", "mcap")]
    for parquet, mcap in zip(*both, strict=True):
        stems = [name.rpartition(".")[0] for name in parquet]
        assert stems == [name.rpartition(".")[0] for name in mcap] == [*FILES, "log/control"]
        for first, second in zip(parquet.values(), mcap.values(), strict=True):
            assert {**first, "bytes": 0} == {**second, "bytes": 0} and first["rows"]


def test_floats_are_split_by_bytes_also_in_lists(outputs: dict[str, Path]) -> None:
    """This is what makes noisy values smaller; PyArrow ignores names of columns that do not exist."""
    group = pq.ParquetFile(outputs["parquet"] / "shard-000000/eye.parquet").metadata.row_group(0)
    columns = {each.path_in_schema: each for each in map(group.column, range(group.num_columns))}
    floats = [each for name, each in columns.items() if each.physical_type == "FLOAT"]
    assert "truth.distance_to_image_plane.list.element" in columns
    assert all("BYTE_STREAM_SPLIT" in each.encodings for each in floats)


def samples(readings: Iterator[Any], field: str) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield environment, capture tick and value of each sample when it is first valid, as a reader would find them."""
    last: dict[int, tuple[int, int]] = {}
    for reading in readings:
        for row, env in enumerate(reading.env_ids.tolist()):
            capture = int(reading.capture_tick[row]), int(reading.captures[row])
            before, last[env] = last.get(env, (-1, 0)), capture if reading.valid[row] else (-1, 0)
            if reading.valid[row] and (capture[0] != before[0] or capture[1] < before[1]):
                yield env, capture[0], reading[field][row]


@pytest.mark.parametrize("name", ["robot%2Fimu", "eye"])
def test_replay_of_a_shard_has_the_rows(outputs: dict[str, Path], name: str) -> None:
    rows = pq.read_table(outputs["parquet"] / f"shard-000001/{name}.parquet")
    with sn.replay(outputs["mcap"] / f"shard-000001/{name}.mcap") as replay:
        field = "ang_vel_b" if "imu" in name else "distance_to_image_plane"
        found = [*samples(replay.readings(), field)]
        assert replay.description.first_env == 2 and [mark.name for mark in replay.marks] == ["episode"] * EPISODES
    ticks = column(rows, "tick") + TICKS * column(rows, "episode")
    order = np.lexsort([column(rows, "episode"), column(rows, "env"), ticks])
    assert sorted((tick, env) for env, tick, _ in found) == sorted(zip(ticks, column(rows, "env") - 2, strict=True))
    if "imu" in name:
        names = [f"ang_vel_b.{axis}" for axis in "xyz"]
        values = np.stack([column(rows, each) for each in names], axis=1)[order]
    else:
        values = np.stack(rows[field].to_pylist())[order].reshape(len(rows), 8, 12, 1)
    ours = np.stack([value for _, _, value in sorted(found, key=lambda each: each[:2][::-1])])
    np.testing.assert_array_equal(ours, values.astype(np.float32))


def test_other_readers_find_messages_in_order_of_time(outputs: dict[str, Path]) -> None:
    reader = pytest.importorskip("mcap.reader")
    with open(outputs["mcap"] / "shard-000000/eye.mcap", "rb") as file:
        messages = [*reader.make_reader(file).iter_messages()]
    times = [message.log_time for _, channel, message in messages if channel.topic.endswith("/measured")]
    assert times == sorted(times) and len(times) == EPISODES * (1 + TICKS // 5) and max(times) == 300_000_000
    assert all(message.log_time == message.publish_time for _, _, message in messages)


def test_controls_are_those_of_the_log(outputs: dict[str, Path]) -> None:
    rows = table(outputs["parquet"], "log/control")
    at = column(rows, "tick") // CONTROL_TICKS
    np.testing.assert_array_equal(column(rows, "value.0"), CTRL[at, column(rows, "env"), 0])
    assert len(rows) == ENVS * EPISODES * len(CTRL)
    with sn.replay(outputs["mcap"] / "shard-000001/log/control.mcap") as replay:
        values = np.stack([reading["value"] for reading in replay.control])
    np.testing.assert_array_equal(values, np.concatenate([CTRL[:, 2:]] * EPISODES))


@pytest.mark.parametrize("kind", ["parquet", "mcap"])
def test_tables_hold_the_rows_of_all_shards(outputs: dict[str, Path], kind: str) -> None:
    target = f"memory://tables-{kind}"
    seen: list[tuple[int, int]] = []
    assert collect(outputs[kind], target, "parquet", lambda done, total: seen.append((done, total))) == []
    assert seen == [(done, 8) for done in range(1, 9)]
    store = Store(target)
    for name in (*FILES, "log/control"):
        with store.fs.open(store.path(f"{name}.parquet"), "rb") as file:
            assert pq.read_table(file).equals(table(outputs["parquet"], name))
    store.fs.rm(store.root, recursive=True)


def test_recording_holds_all_shards_one_after_the_other(outputs: dict[str, Path], tmp_path: Path) -> None:
    assert collect(outputs["mcap"], tmp_path / "one", "mcap") == []
    with sn.open(tmp_path / "one") as whole:
        starts = [(mark.tick, json.loads(mark.value)) for mark in whole.marks]
        assert starts == [
            (TICKS * number, {"number": number % EPISODES, "first_env": number // EPISODES * 2}) for number in range(4)
        ]
        ticks = [reading.tick for reading in whole]
        assert ticks == sorted(ticks) and whole.is_complete and whole.env_ids.tolist() == [0, 1]
        for name, sensor in FILES.items():
            expected = []
            for shard in range(2):
                with sn.replay(outputs["mcap"] / f"shard-{shard:06d}/{name}.mcap") as part:
                    expected += [(reading, shard * EPISODES * TICKS) for reading in part.readings()]
            for reading, (first, moved) in zip(whole.readings(sensor), expected, strict=True):
                assert (reading.tick, reading.specs) == (first.tick + moved, first.specs)
                np.testing.assert_array_equal(reading.capture_tick, first.capture_tick + moved)
                np.testing.assert_allclose(reading.stamp, first.stamp + moved * DT, rtol=0, atol=1e-12)
                for spec in first.specs:
                    np.testing.assert_array_equal(reading[spec.name], first[spec.name])
                    np.testing.assert_array_equal(reading.truth[spec.name], first.truth[spec.name])
        assert sum(1 for _ in whole.control) == 2 * EPISODES * len(CTRL)


def newest(rows: Any, env: int, episode: int, time: float) -> int:
    """The row of the newest value that a policy could read; -1 without."""
    arrived = (column(rows, "env") == env) & (column(rows, "episode") == episode)
    arrived &= column(rows, "arrival") <= time + 1e-6
    found = np.flatnonzero(arrived)
    return int(found[column(rows, "arrival")[found].argmax()]) if len(found) else -1


@pytest.mark.parametrize("kind", ["parquet", "mcap"])
def test_lerobot_has_an_episode_per_environment_and_episode(
    outputs: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    pillow = pytest.importorskip("PIL.Image")
    notes = collect(outputs[kind], tmp_path, "lerobot")
    assert all("bumps" in note and "differs in length" in note for note in notes) and notes
    info = json.loads((tmp_path / "meta/info.json").read_text())
    frames = pq.read_table(tmp_path / "data/chunk-000/file-000.parquet")
    assert info["total_episodes"] == ENVS * EPISODES and info["fps"] == 50
    rows = {name: table(outputs["parquet"], name) for name in FILES}
    names = info["features"]["observation.state"]["names"]
    for number in range(ENVS * EPISODES):
        env, episode = divmod(number, EPISODES)
        own = frames.filter(pa.compute.equal(frames["episode_index"], number)).to_pylist()
        at = [
            (k, {name: newest(each, env, episode, k * CONTROL_TICKS * DT) for name, each in rows.items()})
            for k in range(len(CTRL))
        ]
        at = [(k, places) for k, places in at if min(places.values()) >= 0]
        assert len(own) == len(at) > 0 and [each["next.done"] for each in own] == [False] * (len(own) - 1) + [True]
        for frame, (k, places) in zip(own, at, strict=True):
            assert frame["action"] == np.float32(CTRL[k, env, 0])
            state = dict(zip(names, frame["observation.state"], strict=True))
            file = frame["observation.images.eye.distance_to_image_plane"]["bytes"]
            depth = 1e3 * np.array(rows["eye"]["distance_to_image_plane"][places["eye"]].as_py(), float)
            found = np.asarray(pillow.open(io.BytesIO(file))).reshape(-1)
            np.testing.assert_allclose(found, np.where(np.isfinite(depth), depth, 0.0), atol=0.501)
            for name, value in state.items():
                stem = next(stem for stem, sensor in FILES.items() if name.startswith(f"{sensor}."))
                place = name.removeprefix(f"{FILES[stem]}.")
                assert value == np.float32(rows[stem][place][places[stem]].as_py())
            pixels = np.frombuffer(rows["eye"]["rgb"][places["eye"]].as_py(), np.uint8).reshape(8, 12, -1)[..., :3]
            image = np.asarray(pillow.open(io.BytesIO(frame["observation.images.eye"]["bytes"])))
            np.testing.assert_array_equal(image, pixels)


def test_chosen_features_of_lerobot(outputs: dict[str, Path], tmp_path: Path) -> None:
    """The columns of a vector are those that the state of all sensors has."""
    pytest.importorskip("PIL.Image")
    collect(outputs["parquet"], tmp_path / "all", "lerobot")
    chosen = {"gyro": Vector(("robot/imu.ang_vel_b",))}
    collect(outputs["parquet"], tmp_path / "chosen", "lerobot", features=chosen)
    names = json.loads((tmp_path / "all/meta/info.json").read_text())["features"]["observation.state"]["names"]
    places = [names.index(f"robot/imu.ang_vel_b.{axis}") for axis in "xyz"]
    frames, whole = (pq.read_table(tmp_path / name / "data/chunk-000/file-000.parquet") for name in ("chosen", "all"))
    assert frames["observation.gyro"].to_pylist() == [
        [state[place] for place in places] for state in whole["observation.state"].to_pylist()
    ]
    for options, text in (
        ({"features": {"two": Vector(("robot/imu",), 2)}}, "expected one"),
        ({"video": True}, "lerobot"),
    ):
        with pytest.raises(ArgumentError, match=text):
            collect(outputs["parquet"], tmp_path / "no", "parquet" if "video" in options else "lerobot", **options)


def lifted(scene: Any, env_ids: Any) -> Any:
    """Entry point: each environment starts at another height."""
    qpos = scene.engine.qpos.clone()[: len(env_ids)]
    qpos[:, 2] = 0.15 + 0.1 * scene.global_env_ids[env_ids]
    return {"qpos": qpos}


def test_images_of_equal_rows_of_different_shards_differ(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    given = {"envs": 2, "envs_per_shard": 1, "episodes": 1, "episode_seconds": CONTROL_TICKS * DT, "control": "zero"}
    whole = job(tmp_path, rig=SENSORS[2:], begin_episode="test_collect:lifted", **given)
    for index in range(2):
        sn.run_shard(whole, index, tmp_path / "out")
    collect(tmp_path / "out", tmp_path / "lerobot", "lerobot")
    frames = pq.read_table(tmp_path / "lerobot/data/chunk-000/file-000.parquet")["observation.images.eye"].to_pylist()
    assert len(frames) == 2 and frames[0]["bytes"] != frames[1]["bytes"]


def kept(scene: Any) -> Any:
    """Entry point: of environment 1 the first episode, of environment 3 none, of the others all."""
    envs, episode = np.asarray(scene.global_env_ids), np.asarray(scene.clock.episode)
    return (envs % 2 == 0) | ((envs == 1) & (episode == 0))


@pytest.mark.parametrize("kind", ["parquet", "mcap"])
def test_dropped_episodes_are_in_no_file(tmp_path: Path, kind: str) -> None:
    whole = job(tmp_path, format=kind, envs_per_shard=1, keep="test_collect:kept", rig=SENSORS[:1])
    counts = [sn.run_shard(whole, index, tmp_path / "out") for index in range(ENVS)]
    assert [each["episodes"] for each in counts] == [2, 1, 2, 0]
    collect(tmp_path / "out", tmp_path / "tables", "parquet")
    rows = pq.read_table(tmp_path / "tables/robot%2Fimu.parquet")
    assert {*zip(column(rows, "env").tolist(), column(rows, "episode").tolist(), strict=True)} == {
        (0, 0), (0, 1), (1, 0), (2, 0), (2, 1)
    }  # fmt: skip
    collect(tmp_path / "out", tmp_path / "lerobot", "lerobot")
    assert json.loads((tmp_path / "lerobot/meta/info.json").read_text())["total_episodes"] == 5
    if kind == "mcap":
        with sn.replay(tmp_path / "out/shard-000003/robot%2Fimu.mcap") as replay:
            assert not replay.marks and not [*replay]
        collect(tmp_path / "out", tmp_path / "one", "mcap")
        with sn.open(tmp_path / "one") as replay:
            assert [json.loads(mark.value)["first_env"] for mark in replay.marks] == [0, 0, 1, 2, 2]


def test_impossible_data_sets_are_refused(outputs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keep: .*Give format=.parquet. or envs_per_shard=1"):
        job(tmp_path, format="mcap", keep="test_collect:kept")
    for arguments, text in (
        ((tmp_path / "to", "mcap"), 'Generate the job with format="mcap"'),
        (("memory://to", "lerobot"), "expected a folder"),
        ((outputs["parquet"], "parquet"), "got the output itself"),
        ((tmp_path / "to", "zarr"), "expected parquet, mcap, lerobot"),
        ((tmp_path / "to", None), "got one of the two"),
    ):
        with pytest.raises(ArgumentError, match=text):
            collect(outputs["parquet"], *arguments)
    assert not (tmp_path / "to").exists()
    Store(tmp_path / "empty").claim(job(tmp_path))
    assert collect(tmp_path / "empty") == ["missing are the shards 0-1, which are not done"]
    with pytest.raises(ArgumentError, match="no shard that is done"):
        collect(tmp_path / "empty", tmp_path / "to", "parquet")


def test_shards_that_are_missing_are_named_and_damaged_ones_stop(tmp_path: Path) -> None:
    whole = job(tmp_path, rig=SENSORS[:1])
    sn.run_shard(whole, 1, tmp_path / "out")
    notes = collect(tmp_path / "out", tmp_path / "to", "parquet")
    assert notes == ["missing are the shards 0, which are not done"]
    (tmp_path / "out/shard-000001/robot%2Fimu.parquet").write_bytes(b"PAR1")
    with pytest.raises(ModelError, match=r"shard 1: robot%2Fimu\.parquet cannot be read"):
        collect(tmp_path / "out", tmp_path / "to", "parquet")


class Full(io.BytesIO):
    """A file on a disk with some space left."""

    def write(self, data: Any) -> int:
        if self.tell() > 3000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_recordings_on_a_full_disk_fail_and_end_their_threads(outputs: dict[str, Path]) -> None:
    with sn.replay(outputs["mcap"] / "shard-000000/eye.mcap") as replay:
        about, readings = about_of(replay), [*replay]
    before = threading.active_count()
    recording = McapRecording(Full(), about)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        for _ in range(1000):
            recording.add(readings)
    recording.abort()
    until(lambda: threading.active_count() <= before)


def test_outputs_in_memory_hold_the_same_bytes(
    outputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sensorium.record.mcap_writer.CHUNK_SECONDS", 0.001)  # as on a slow machine
    receipt = sn.run_shard(job(outputs["mcap"].parent, format="mcap"), 0, "memory://shards")
    store = Store("memory://shards")
    for name, about in receipt["files"].items():
        data = (outputs["mcap"] / "shard-000000" / name).read_bytes()
        assert store.fs.cat_file(store.shard_path(0, name)) == data and about["bytes"] == len(data)
    assert verify("memory://shards") == []
    collect("memory://shards", tmp_path, "mcap")
    with sn.open(tmp_path) as whole:
        assert len([*whole.marks]) == EPISODES
    store.fs.rm(store.root, recursive=True)
