"""A recording holds every sample of every kind of sensor bit for bit; independent readers decode it."""

from __future__ import annotations

import io
import itertools
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import lz4.frame
import numpy as np
import pytest
import torch
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap.records import Chunk, MessageIndex
from mcap.stream_reader import StreamReader
from mcap_scenes import assert_all_same, assert_same, following, scene
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore
from selection import gate
from two_engines import ENVS, MODEL, sensors, start
from wire_messages import DENSE, RAGGED, make_reading, spec

import sensorium as sn
from sensorium.demo import model_path
from sensorium.errors import ArgumentError, ConfigError, ModelError, SensoriumError, SensoriumWarning, UnknownNameError
from sensorium.readings import Reading
from sensorium.record import NpzRecorder, load, mcap_writer, rows
from sensorium.record.batches import Batch, of_envs, readings_of, stack_of

CONFIGS = [
    *(cfg for cfg in sensors()),
    *(
        cfg.replace(name=f"late {cfg.label}", delay=0.012, loss=0.2)
        for cfg in sensors()
        if cfg.kind() not in ("collision_events", "contact_sensor", "builtin")
    ),
]
SIZES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bool",
)
ODD = (
    *(spec(f"f{number}", ("item",), (number % 4 + 1,), dtype) for number, dtype in enumerate(SIZES)),
    spec("tick", (), (), "int32"), spec("Größe", (), ()), spec("gr_e", (), ()), spec("_Two__Words_", (), (), "uint8"),
    spec("none", ("ray",), (0,)), spec("alone", (), (), "uint8"), spec("last", ("xyz",), (3,), "float64"),
)  # fmt: skip
"""Fields of every type, in an order that needs padding, with names that a message definition cannot have."""
EVENTS = (
    *RAGGED,
    *(spec(f"e{number}", ("event", "item"), (9, number % 3 + 1), dtype) for number, dtype in enumerate(SIZES)),
)


def typed(text: str, name: str) -> Any:
    """Return a typestore of rosbags that knows one more type."""
    from rosbags.typesys import get_types_from_msg

    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(text, name))
    return store


@pytest.mark.parametrize("specs", [DENSE, ODD, RAGGED, EVENTS, ()], ids=["dense", "odd", "ragged", "events", "none"])
@pytest.mark.parametrize("envs", [1, 4])
def test_every_type_is_kept_bit_for_bit_and_rosbags_decodes_it(specs: Any, envs: int) -> None:
    """Random bits, also those of NaN; with rows of events, empty ones too, and no fields at all."""
    for seed in range(4):
        reading = _random(specs, envs, seed)
        batches = [
            Batch("odd/name", "odd", reading.specs, reading.env_ids, each, 2, 0.01) for each in ("measured", "truth")
        ]
        messages = [memoryview(b"".join(batch.encode(reading))) for batch in batches]
        again = [Batch.from_dict(json.loads(json.dumps(batch.to_dict()))) for batch in batches]
        assert again == batches
        for same in readings_of(again[0], messages[:1] * 3, again[1], messages[1:] * 3):
            assert_same(reading, same)
        stack = stack_of(again[0], messages[:1] * 3, again[1], messages[1:] * 3)
        for each, at, row in itertools.product(reading.specs, range(3), range(envs)):
            chosen = stack.rows(np.array([at]), np.array([row]))[0] if each.is_ragged else (at, row)
            own = reading.rows(row) if each.is_ragged else row
            assert stack.measured[each.name][chosen].tobytes() == reading.measured[each.name][own].tobytes()
            assert stack.truth[each.name][chosen].tobytes() == reading.truth[each.name][own].tobytes()
        if stack.offsets is not None and reading.offsets is not None:
            assert (stack.offsets[:, -1] == np.arange(1, 4) * reading.offsets[-1]).all()
        for batch, message, values in zip(batches, messages, (reading.measured, reading.truth), strict=True):
            store = typed(batch.definition, batch.type_name)
            decoded = store.deserialize_cdr(bytes(message), batch.type_name)
            assert bytes(store.serialize_cdr(decoded, batch.type_name)) == bytes(message)
            assert (decoded.tick, decoded.time) == (reading.tick, reading.time)
            members = [line.split()[1] for line in batch.definition.splitlines() if not line.startswith("#")]
            fields = [getattr(decoded, member) for member in members[-len([each for each in specs if each.columns]) :]]
            kept = [each for each in specs if each.columns and not each.is_ragged]
            kept += [each for each in specs if each.columns and each.is_ragged]
            for each, found in zip(kept, fields if kept else [], strict=True):
                assert np.asarray(found).tobytes() == values[each.name].tobytes()


def _random(specs: Any, envs: int, seed: int) -> Reading:
    reading = make_reading(specs, envs, seed)
    generator = np.random.default_rng(seed)
    pose = generator.normal(size=(envs, 2, 7)).astype(np.float32)
    pose.flags.writeable = False
    reading.name, reading.kind, reading._pose, reading._dt = "odd/name", "odd", pose, 0.01
    reading._meta["truth_tick"] = reading._meta.get("truth_tick", reading.capture_tick)
    reading._meta.pop("age", None)
    return reading


def test_some_environments_are_taken_from_a_reading() -> None:
    for specs in (DENSE, RAGGED):
        reading = _random(specs, 6, 3)
        for part in ([0], [5], [0, 3], [1, 2, 4], range(6)):
            chosen = np.array([*part])
            assert_same(reading, of_envs(reading, chosen), chosen)


def test_a_type_that_messages_cannot_hold_is_reported() -> None:
    with pytest.raises(SensoriumError, match=r"sensor 'a'.*wide"):
        Batch("a", "a", (spec("wide", (), (), "complex64"),), [0], "measured", 0, 0.01)


# Scenes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("envs", gate([None, [0, 2], [1]], [[0, 2]]), ids=str)
def test_every_kind_of_sensor_is_recorded_bit_for_bit(envs: list[int] | None, tmp_path: Path) -> None:
    """All kinds, once unchanged and once late and lossy, with a reset in the middle."""
    engine = sn.MujocoEngine(MODEL, ENVS)
    made = sn.Scene(engine, CONFIGS, seed=3)
    start(engine)
    engine.forward()
    generator = np.random.default_rng(5)
    controls = [generator.uniform(-1.0, 1.0, (ENVS, engine.ctrl.shape[1])) for _ in range(6)]
    with following(made) as live, made.record(tmp_path / "run.mcap", envs=envs) as recorder:
        for number, ctrl in enumerate(controls):
            made.step(ctrl, 2)
            if number == 3:
                made.reset([2])
    assert recorder.is_closed
    with sn.replay(tmp_path / "run.mcap") as replay:
        rows = slice(None) if envs is None else envs
        assert_all_same(live, replay, rows)
        assert replay.counts == {cfg.label: sum(each.name == cfg.label for each in live) for cfg in CONFIGS}
        described = made.description().sensors
        assert replay.description.sensors == json.loads(json.dumps({name: described[name] for name in replay.counts}))
        recorded = [reading["value"] for reading in replay.control]
        expected = [np.asarray(ctrl)[rows].astype(recorded[0].dtype) for ctrl in controls]
        assert all(np.array_equal(a, b) for a, b in zip(recorded, expected, strict=True))
        assert [reading.tick for reading in replay.control] == [2 * number for number in range(6)]
        assert [(mark.name, mark.env_ids.tolist(), mark.tick) for mark in replay.marks] == (
            [("episode", [2], 8)] if envs != [1] else []
        )


def test_files_open_with_mcap_and_rosbags(tmp_path: Path) -> None:
    """Both check the checksums, count all messages, and rosbags decodes each with the definition in the file."""
    made = scene()
    with following(made) as live, made.record(tmp_path / "run.mcap") as recorder:
        recorder.attach("notes.txt", "text/plain", b"first\n")
        for _ in range(200):
            made.update()
        recorder.flush()
        for _ in range(200):
            made.update()
    with open(tmp_path / "run.mcap", "rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None and summary.statistics is not None
        with sn.replay(tmp_path / "run.mcap") as replay:
            expected = 2 * len(live) + sum(1 for _ in replay.body_poses())
        assert summary.statistics.message_count == expected == sum(1 for _ in reader.iter_messages())
        assert summary.statistics.chunk_count == len(summary.chunk_indexes) >= 2
        assert reader.get_header().profile == "ros2"
        assert {each.name for each in reader.iter_attachments()} == {"notes.txt", "world.npz"}
        assert [each.name for each in reader.iter_metadata()] == ["sensorium"]
        for log_first, (_, channel, message) in zip(
            live, list(reader.iter_messages(["/batch/imu/truth"])), strict=False
        ):
            assert channel.metadata["sensor"] == "imu" and log_first.time >= 0 and message.sequence > 0
    with AnyReader([tmp_path / "run.mcap"]) as bag:
        count = 0
        for connection, stamp, data in bag.messages():
            message: Any = bag.deserialize(data, connection.msgtype)
            assert round(message.time * 1e9) == stamp
            count += 1
        assert count == expected
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert replay.attachment("notes.txt") == b"first\n" and replay.attachment("other") is None


def test_recorded_parts_are_found_by_time_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks, so that readings and their truth are split between chunks in all ways."""
    monkeypatch.setattr(mcap_writer, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(rows, "MAX_ROWS", 1)
    made = scene()
    with following(made) as live, made.record(tmp_path / "run.mcap"):
        for number in range(100):
            made.update()
            if number == 60:
                made.reset()
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert_all_same(live, replay)
        assert (replay.start, replay.end) == (0.0, pytest.approx(made.time))
        for name in ("imu", "robot/state"):
            assert_all_same([each for each in live if each.name == name], replay.readings(name))
        for begin, end in ((0.0, 0.05), (0.05, 0.1), (0.099, 0.101), (0.19, 9.0), (5.0, 6.0)):
            expected = [each for each in live if begin <= each.time <= end]
            assert_all_same(expected, replay.readings(start=begin, end=end))
            frames = [reading for frame in replay.frames(start=begin, end=end) for reading in frame.values()]
            assert_all_same(expected, frames)
        for when in (0.0, 0.031, 0.1, 0.2, 9.0):
            newest = {each.name: each for each in live if each.time <= when}
            found = replay.at(when)
            assert found.keys() == newest.keys()
            for name, reading in found.items():
                assert_same(newest[name], reading)
        assert replay.at(-1.0) == {}
        with pytest.raises(UnknownNameError, match="Did you mean 'imu'"):
            next(replay.readings("imo"))


def test_only_some_sensors_are_recorded(tmp_path: Path) -> None:
    made = scene()
    for chosen in (["robot/state"], "robot/state"):
        with made.record(tmp_path / "run.mcap", sensors=chosen):
            for _ in range(20):
                made.update()
        with sn.replay(tmp_path / "run.mcap") as replay:
            assert {each.name for each in replay} == {"robot/state"} == {*replay.description.sensors}
    with pytest.raises(UnknownNameError, match="imo"):
        made.record(tmp_path / "other.mcap", sensors=["imo"])
    for envs in ([], [5], [-1], ["a"]):
        with pytest.raises(ConfigError, match=r"Recorder\.envs"):
            made.record(tmp_path / "other.mcap", envs=envs)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Recorder\.path"):
        made.record(tmp_path)


def test_sensors_that_are_added_or_reconfigured_are_recorded(tmp_path: Path) -> None:
    """The recording then has another layout of the same sensor, and both are read."""
    made = scene()
    with following(made) as live, made.record(tmp_path / "run.mcap"):
        for number in range(40):
            made.update()
            if number == 10:
                made.add(sn.BodyStateCfg(name="arm", body="arm"))
            if number == 20:
                made.reconfigure("robot/state", bodies=".*", body=None)
            if number == 30:
                made.remove("arm")
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert_all_same(live, replay)
        assert {each["pos_w"].shape for each in replay.readings("robot/state")} == {(5, 3), (5, 2, 3)}


@pytest.mark.parametrize("envs", [None, [1, 2], [0, 2]], ids=str)
def test_samples_of_a_state_that_is_not_finite_are_recorded_as_invalid(envs: list[int] | None, tmp_path: Path) -> None:
    """Samples of all environments are collected together, but the validity of each is kept; also across a reset."""
    engine = sn.TensorEngine(num_envs=3, dt=0.002, bodies=["base", "arm"])
    made = sn.Scene(engine, [sn.ImuCfg(name="imu", bodies=["base", "arm"], gyro_noise=0.1, fields=("ang_vel_b",))])
    with following(made) as live, made.record(tmp_path / "run.mcap", envs=envs), pytest.warns(SensoriumWarning):
        for tick in range(30):
            engine.body_ang_vel_w[1, 1] = np.nan if 10 <= tick < 14 else 0.5
            made.update()
            if tick == 20:
                made.reset([2])
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert_all_same(live, replay, slice(None) if envs is None else envs)
        valid = np.stack([reading.valid for reading in replay])
    assert (~valid).sum(axis=0).tolist() == {None: [0, 4, 0], (1, 2): [4, 0], (0, 2): [0, 0]}[envs and tuple(envs)]


@dataclass(frozen=True, slots=True)
class ClashingData:
    tick: Annotated[torch.Tensor, sn.Field("1", dtype="int32")]
    valid: Annotated[torch.Tensor, sn.Field("1")]
    truth_tick: Annotated[torch.Tensor, sn.Field("1")]
    pose: Annotated[torch.Tensor, sn.Field("1", (3,), ("pose",))]


class ClashingCfg(sn.MountedSensorCfg[ClashingData]):
    """Fields with the names of other values of a sample; each shows the tick and its place."""


class Clashing(sn.SimpleSensor[ClashingCfg, ClashingData]):
    requires = (sn.engines.BODY_POSE,)

    def update_raw_data(self, raw: Any) -> None:
        for place, name in enumerate(ClashingData.__slots__):
            getattr(raw, name).fill_(self.clock.tick + 100 * place)


@pytest.mark.parametrize("envs", [None, [0, 2]], ids=str)
def test_fields_with_the_names_of_other_values_of_a_sample_are_kept(envs: list[int] | None, tmp_path: Path) -> None:
    engine = sn.TensorEngine(num_envs=3, dt=0.01, bodies=["base"])
    made = sn.Scene(engine, [ClashingCfg(name="a", body="base"), ClashingCfg(name="late", body="base", delay=0.02)])
    with following(made) as live, made.record(tmp_path / "run.mcap", envs=envs):
        for _ in range(5):
            made.update()
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert_all_same(live, replay, slice(None) if envs is None else envs)
        assert [reading["pose"][0, 2] for reading in replay.readings("a")] == [300 + tick for tick in range(6)]


def test_a_declared_sensor_is_recorded_once_it_is_read(tmp_path: Path) -> None:
    made = sn.Scene(sn.MujocoEngine(model_path(), keyframe="home"), [sn.ImuCfg(name="trunk_imu", site="imu")])
    name = next(name for name in made if name != "trunk_imu")
    with made.record(tmp_path / "run.mcap"):
        for tick in range(12):
            made.step()
            if tick == 5:
                made[name].data  # noqa: B018 - the first read
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert [reading.tick for reading in replay.readings("trunk_imu")] == [*range(13)]
        assert [reading.tick for reading in replay.readings(name)] == [*range(7, 13)]


@pytest.mark.parametrize("ros2", [False, True])
def test_the_index_of_a_chunk_has_the_time_and_place_of_each_message(ros2: bool, tmp_path: Path) -> None:
    """Readers that show a part of a recording seek by it."""
    path = tmp_path / "run.mcap"
    made = scene()
    with made.record(path, ros2=ros2) as recorder:
        for _ in range(4):
            for _ in range(50):
                made.update()
            recorder.mark("task", "walk")
            recorder.flush()
    chunks: list[tuple[bytes, list[MessageIndex]]] = []
    with open(path, "rb") as file:
        for record in StreamReader(file, emit_chunks=True).records:
            if isinstance(record, Chunk):
                data = record.data if not record.compression else lz4.frame.decompress(record.data)
                chunks.append((data, []))
            elif isinstance(record, MessageIndex):
                chunks[-1][1].append(record)
    assert len(chunks) >= 4
    for data, indexes in chunks:
        found, indexed, at = [], [], 0
        while at < len(data):
            opcode, length = struct.unpack_from("<BQ", data, at)
            if opcode == Opcode.MESSAGE:
                channel, _, time = struct.unpack_from("<HIQ", data, at + 9)
                found.append((channel, time, at))
            at += 9 + length
        for each in indexes:
            indexed += [(each.channel_id, time, place) for time, place in each.records]
        assert found and sorted(indexed) == sorted(found)


def test_noise_is_not_compressed_and_has_a_checksum(tmp_path: Path) -> None:
    """LZ4 does not shrink it. Readers check its chunk, as the compressed ones."""
    path, random = tmp_path / "run.mcap", np.random.default_rng(0)
    made = scene()
    images = random.integers(0, 256, (3, 5, 90_000), np.uint8)
    with made.record(path) as recorder:
        for image in images:
            made.update()
            recorder.log("image", image)
            recorder.flush()
            recorder.log("flat", np.zeros((5, 90_000), np.uint8))
            recorder.flush()
    with open(path, "rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None and summary.statistics is not None
        assert len([*reader.iter_messages()]) == summary.statistics.message_count
        sizes = [
            (chunk.compression, chunk.compressed_size < chunk.uncompressed_size) for chunk in summary.chunk_indexes
        ]
        assert sizes[:4] == [("", False), ("lz4", True)] * 2
    with sn.replay(path) as replay:
        assert np.array_equal(np.stack([reading["value"] for reading in replay.log("image")]), images)
    data = bytearray(path.read_bytes())
    data[data.index(images[1].tobytes()[1000:1100])] ^= 1
    path.write_bytes(data)
    with sn.replay(path) as replay, pytest.raises(ModelError, match="checksum of the chunk"):
        [*replay.log("image")]


def test_values_of_the_loop_and_marks_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_ROWS", 3)
    made = scene()
    rewards = np.random.default_rng(0).normal(size=(10, 5))
    with made.record(tmp_path / "run.mcap", envs=[1, 4]) as recorder:
        for number in range(10):
            made.update()
            recorder.log("reward", rewards[number])
            recorder.log("action", np.full((5, 2, 3), number, np.float32))
            recorder.log("imu", torch.arange(5))  # the name of a sensor
            recorder.log("swapped", np.arange(5.0).astype(">f8"))
            recorder.mark("task", f"number {number} ü", env_ids=range(number % 3))
        recorder.mark("end")
        for wrong in (np.zeros(4), np.zeros(()), np.zeros((5, 1)), np.zeros(5, np.float32)):
            with pytest.raises(ConfigError, match=r"Recorder\.log\.reward"):
                recorder.log("reward", wrong)
        for wrong in (["a"] * 5, [[1], [1, 2], 3, 4, 5], np.zeros(5, complex), torch.zeros(5, dtype=torch.bfloat16)):
            with pytest.raises(ConfigError, match=r"Recorder\.log\.odd.*of numbers or bools"):
                recorder.log("odd", wrong)
        for wrong in ([5], [-1], [True], 7, torch.ones(5, dtype=torch.bool)):
            with pytest.raises(ConfigError, match=r"Recorder\.mark\.env_ids.*from 0 to 4"):
                recorder.mark("odd", env_ids=wrong)  # type: ignore[arg-type]
    recorder.log("reward", rewards[0])
    recorder.mark("after the end")
    recorder.attach("after the end", "text/plain", b"")
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert replay.logs == ("reward", "action", "imu", "swapped")
        assert [each["value"].tolist() for each in replay.log("swapped")] == [[1.0, 4.0]] * 10
        assert [each["value"].tolist() for each in replay.log("imu")] == [[1, 4]] * 10
        assert [each.tick for each in replay.log("imu", 0.004, 0.008)] == [2, 3, 4]
        assert np.array_equal([each["value"] for each in replay.log("reward")], rewards[:, [1, 4]])
        assert [each["value"].shape for each in replay.log("action")] == [(2, 2, 3)] * 10
        assert [(each.tick, each.captures.tolist()) for each in replay.log("reward")] == [
            (number + 1, [number] * 2) for number in range(10)
        ]
        marks = [(each.tick, each.time, each.env_ids.tolist(), each.name, each.value) for each in replay.marks]
        tasks = [(k + 1, pytest.approx((k + 1) * 0.002), [*range(k % 3)], "task", f"number {k} ü") for k in range(10)]
        assert marks == [*tasks, (10, pytest.approx(0.02), [1, 4], "end", "")]
        with pytest.raises(UnknownNameError, match="rewards"):
            next(replay.log("rewards"))
        with AnyReader([tmp_path / "run.mcap"]) as bag:
            texts = [
                bag.deserialize(data, connection.msgtype).value  # type: ignore[attr-defined]
                for connection, _, data in bag.messages()
                if connection.topic == "/marks"
            ]
        assert texts == [*(f"number {k} ü" for k in range(10)), ""]


def test_controls_are_those_at_the_start_of_a_control_step(tmp_path: Path) -> None:
    """A control that changes within a control step, as by a delay, adds no message."""
    engine = sn.MujocoEngine(model_path(), 2)
    made = sn.Scene(engine, [sn.ImuCfg(name="imu", site="imu")])
    controls = [np.full(engine.ctrl.shape, value) for value in (0.1, 0.2, 0.2, 0.3)]
    with made.record(tmp_path / "run.mcap"), made.watch(lambda: engine.ctrl.add_(0.01), every_tick=True):
        for ctrl in controls:
            made.step(ctrl, 3)
    with sn.replay(tmp_path / "run.mcap") as replay:
        found = [(each.tick, each["value"]) for each in replay.control]
    assert [tick for tick, _ in found] == [0, 3, 9]
    for (_, value), ctrl in zip(found, (controls[0], controls[1], controls[3]), strict=True):
        np.testing.assert_allclose(value, ctrl, rtol=1e-6)


def test_the_world_and_versions_are_recorded_once(tmp_path: Path) -> None:
    """Bodies with their boxes, shapes with their meshes, seed, slice of a run, versions."""
    engine = sn.MujocoEngine(MODEL, 2)
    made = sn.Scene(engine, [sn.ImuCfg(name="imu", site="imu")], seed=7, first_env=64)
    made.bodies()
    with made.record(tmp_path / "run.mcap"):
        made.step()
    with sn.replay(tmp_path / "run.mcap") as replay:
        about = replay.description
        assert (about.engine, about.seed, about.first_env, about.dt) == ("mujoco", 7, 64, engine.dt)
        assert replay.bodies == made.bodies() and replay.versions["numpy"] == np.__version__
        world = np.load(io.BytesIO(replay.attachment("world.npz") or b""))
        described = json.loads(str(world["description"]))
        assert described["bodies"] == list(engine.names("body"))
        assert [each["name"] for each in described["shapes"]] == [each.name for each in engine.shapes()]
        for each, shape in zip(described["shapes"], engine.shapes(), strict=True):
            assert (each["kind"], tuple(each["pos"]), tuple(each["size"])) == (shape.kind, shape.pos, shape.size)
            if shape.mesh is not None:
                assert np.array_equal(world[f"mesh/{each['mesh']}/vertices"], shape.mesh.vertices)
            if shape.hfield is not None:
                assert np.array_equal(world[f"hfield/{each['hfield']}/heights"], shape.hfield.heights)


def test_a_recording_becomes_the_same_npz_as_a_live_run(tmp_path: Path) -> None:
    """So that plots and everything else that reads `Recording` works from an MCAP file."""
    made, recorder = scene(), NpzRecorder()
    with following(made) as live, made.record(tmp_path / "run.mcap"):
        for _ in range(50):
            made.update()
    recorder.add_all(live)
    recorder.save(tmp_path / "live.npz", made.description())
    with sn.replay(tmp_path / "run.mcap") as replay:
        replay.recording().save(tmp_path / "replay.npz")
    first, second = load(tmp_path / "live.npz"), load(tmp_path / "replay.npz")
    assert [*first] == [*second]
    for name in first:
        for what in ("time", "capture_time", "truth_time", "valid", "stamp"):
            assert np.array_equal(getattr(first[name], what), getattr(second[name], what))
        for field in first[name].measured:
            assert np.array_equal(first[name].measured[field], second[name].measured[field])
            assert np.array_equal(first[name].truth[field], second[name].truth[field])


def test_a_closed_replay_gives_one_error(tmp_path: Path) -> None:
    """Its file number may be that of another file by then."""
    with scene().record(tmp_path / "run.mcap") as recorder:
        recorder.flush()
        recorder.mark("end")
    with sn.replay(tmp_path / "run.mcap") as replay:
        readings = replay.readings()
    with open(tmp_path / "run.mcap", "rb"), pytest.raises(ModelError, match="it was closed"):
        next(readings)


def test_an_invalid_path_gives_one_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        sn.replay(tmp_path / "none.mcap")
    with pytest.raises(ModelError, match="a folder"):
        sn.replay(tmp_path)
    (tmp_path / "text.mcap").write_text("hello, this is not a recording")
    with pytest.raises(ModelError, match="not an MCAP file"):
        sn.replay(tmp_path / "text.mcap")
    made = scene()
    with made.record(tmp_path / "run.mcap"), pytest.raises(ConfigError, match=r"Recorder\.path.*another recording"):
        made.record(tmp_path / "folder/../run.mcap")
    with made.record(tmp_path / "run.mcap"):
        with pytest.raises(ModelError, match="another recording writes this file"):
            NpzRecorder().save(tmp_path / "run.mcap", made.description())
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert replay.is_complete
    os.mkfifo(tmp_path / "pipe.mcap")
    for other in (tmp_path / "pipe.mcap", tmp_path):
        with pytest.raises(ConfigError, match=r"Recorder\.path.*expected a regular file"):
            made.record(other)
    made.record(tmp_path / "run.mcap").close()


def test_environments_are_numbers_of_any_kind(tmp_path: Path) -> None:
    made = scene()
    for given in ([0, 3], {3, 0}, np.array([3, 0]), torch.tensor([0, 3])):
        with made.record(tmp_path / "run.mcap", envs=given) as recorder:  # type: ignore[arg-type]
            assert recorder.env_ids.tolist() == [0, 3]
    for wrong in ([], [5], [True], 1.5, ["a", 1], torch.tensor([[0, 1]])):
        with pytest.raises(ConfigError, match=r"Recorder\.envs: got .* from 0 to 4"):
            made.record(tmp_path / "run.mcap", envs=wrong)  # type: ignore[arg-type]
    with sn.replay(tmp_path / "run.mcap") as replay:
        for speed in (0.0, -1.0, float("nan")):
            with pytest.raises(ArgumentError, match="speed"):
                next(replay.play(speed))
        assert len([*replay.play(float("inf"))]) == 1
