"""A listener's data: read-only views of the received memory that keep it alive by themselves."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from wire_messages import (
    DENSE,
    FIELDS,
    RAGGED,
    field_message,
    make_info,
    make_message,
    make_reading,
    random_poses,
    spec,
)

from sensorium.errors import RegistrationError, UnknownNameError, WireError
from sensorium.pose import Pose
from sensorium.readings import Reading
from sensorium.wire.data import ArrayData, LostEvents, RawData, SensorData, empty
from sensorium.wire.header import HEADER_BYTES, Header, begin_message
from sensorium.wire.serializers import FieldSerializer
from sensorium.wire.stream_info import StreamInfo

Array = np.ndarray[Any, np.dtype[Any]]


class Ids(ArrayData):
    dtype = np.uint32


class Hits(ArrayData):
    dtype = np.dtype([("body", ">u4"), ("depth", "f4")])


class Corners(ArrayData):
    dtype = np.dtype((np.float32, (2,)))


IDS = make_info((), 4, "test.ids/1")


def ids(*numbers: int, **header: int) -> Ids:
    return Ids(RawData(make_message(IDS, np.array(numbers, "<u4"), **header), IDS))


def received(memory: Any, info: StreamInfo, body: Any = None) -> Reading:
    return FieldSerializer.deserialize(RawData(memory, info, body))


def fields(truth: bool = False) -> Reading:
    return received(field_message(make_reading(), truth=truth, poses=random_poses(4, 2)), make_info())


def ragged(envs: int = 4) -> Reading:
    return received(field_message(make_reading(RAGGED, envs), truth=True), make_info(RAGGED, envs))


# As an array ----------------------------------------------------------------------------------------------------------


def test_an_array_of_ids_is_used_like_a_list() -> None:
    event = ids(5, 3, 9)
    assert len(event) == 3
    assert list(event) == [5, 3, 9]
    assert [type(each) for each in event] == [int] * 3
    assert (event[0], event[2], event[-1], event[-3]) == (5, 9, 9, 5)
    assert type(event[1]) is int
    assert event[1:].tolist() == [3, 9]
    assert 3 in event
    assert 4 not in event
    assert list(reversed(event)) == [9, 3, 5]
    assert event[np.uint8(1)] == 3
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of bounds"):
            event[index]


def test_index_past_the_end_raises_index_error() -> None:
    event = ids(5, 3, 9)
    for index in (3, -4, 2**40):
        with pytest.raises(IndexError, match="out of bounds"):
            event[index]
    with pytest.raises(IndexError):
        ids()[0]
    assert event[3:].tolist() == []


@pytest.mark.parametrize("index", [1.0, "0", None, [0, 1], np.array([True, False, True])])
def test_other_indices_raise_type_error(index: Any) -> None:
    with pytest.raises(TypeError, match="is an integer or a slice"):
        ids(5, 3, 9)[index]


def test_an_array_without_items_is_empty() -> None:
    assert (len(ids()), list(ids()), bool(ids())) == (0, [], False)


def test_iteration_over_a_long_array_gives_python_numbers() -> None:
    numbers = np.arange(10_000, dtype="<u4")
    event = Ids(RawData(make_message(IDS, numbers), IDS))
    assert list(event) == numbers.tolist()


def test_records_and_rows_can_be_items() -> None:
    hits = Hits(RawData(make_message(IDS, np.array([(7, 0.5), (8, 0.25)], "<u4,<f4")), IDS))
    assert [(each["body"], each["depth"]) for each in hits] == [(7, 0.5), (8, 0.25)]
    assert hits[1]["depth"] == 0.25
    assert hits.array["body"].tolist() == [7, 8]
    corners = Corners(RawData(make_message(IDS, np.arange(6, dtype="<f4")), IDS))
    assert corners.array.shape == (3, 2)
    assert [each.tolist() for each in corners] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError, match="read-only"):
        corners[0][0] = 1


def test_items_are_always_little_endian() -> None:
    assert Hits.dtype == np.dtype([("body", "<u4"), ("depth", "<f4")])


def test_body_with_a_partial_item_raises_wire_error() -> None:
    with pytest.raises(WireError, match=r"'unit' has a body of 7 bytes.* 4 bytes"):
        Ids(RawData(make_message(IDS, b"1234567"), IDS))


@pytest.mark.parametrize("dtype", [object, "nonsense", "S0", [("a", "O")]])
def test_item_must_consist_of_plain_numbers(dtype: Any) -> None:
    with pytest.raises(RegistrationError, match=r"\.dtype: got "):
        type("Bad", (ArrayData,), {"dtype": dtype})


def test_numpy_uses_the_data_without_copy() -> None:
    event = ids(5, 3, 9)
    assert np.shares_memory(np.asarray(event), event.array)
    assert np.asarray(event, np.float64).tolist() == [5.0, 3.0, 9.0]
    assert not np.shares_memory(np.array(event, copy=True), event.array)
    with pytest.raises(ValueError, match="float64 without a copy"):
        event.__array__(np.float64, copy=False)  # called by NumPy >= 2


# Message metadata -----------------------------------------------------------------------------------------------------


def test_data_have_frame_times_envs_and_transforms() -> None:
    poses = random_poses(2, 3)
    info = replace(IDS, num_envs=9)
    memory = make_message(
        info, b"", poses, seq=11, frame=12, tick=120, time_ns=600_000_000, capture_ns=595_000_000, first_env=4,
        wall_ns=1_700_000_000_500_000_000,
    )  # fmt: skip
    data = SensorData(RawData(memory, info))
    assert (data.sensor, data.seq, data.frame, data.tick, data.events_lost) == ("unit", 11, 12, 120, 0)
    assert (data.time, data.timestamp) == pytest.approx((0.6, 0.595), abs=1e-12)
    assert data.age == pytest.approx(0.005, abs=1e-12)
    assert data.capture_time_wall == 1_700_000_000.5
    assert data.latency() > 0
    assert (data.first_env, data.num_envs, data.env_ids.tolist()) == (4, 2, [4, 5])
    assert data.transforms is not None
    assert data.transforms.tobytes() == poses.tobytes()
    assert data.transform == Pose.from_array(poses[0, 0])
    assert bytes(data.raw_data) == b""
    assert data.raw_data.readonly
    assert data.info is info


def test_sensor_without_pose_has_no_transform() -> None:
    assert ids(1).transform is None
    assert ids(1).transforms is None


def test_a_message_of_no_envs_has_no_first_transform() -> None:
    data = SensorData(RawData(make_message(IDS, b"", random_poses(0, 2)), IDS))
    assert data.transforms is not None
    assert data.transforms.shape == (0, 2, 7)
    assert data.transform is None
    assert data.env_ids.tolist() == []


def test_invalid_transform_raises_wire_error_on_access() -> None:
    poses = random_poses(1, 1)
    poses[0, 0, 3:] = 2.0
    data = SensorData(RawData(make_message(IDS, b"", poses), IDS))
    assert data.transforms is not None
    with pytest.raises(WireError, match="first pose of 'unit'"):
        _ = data.transform


def test_unknown_transform_is_none() -> None:
    poses = random_poses(1, 1)
    poses[0, 0, 2] = np.nan
    data = SensorData(RawData(make_message(IDS, b"", poses), IDS))
    assert data.transforms is not None
    assert data.transform is None


def test_repr_describes_the_data() -> None:
    assert repr(ids(5, 3, frame=4, time_ns=250_000_000)) == (
        "Ids('unit', frame=4, time=0.25 s, age=0.25 s, envs 0..3, 2 items of uint32)"
    )
    text = repr(fields(truth=True))
    age = f"age={make_reading().age[0]:.6g} s"
    assert text.startswith(f"Reading('unit', frame=41, time=0.6 s, {age}, envs 0..3, force float32 [4, 2, 3], ")
    assert text.endswith("precise float64 [4, 3], with truth)")
    assert repr(SensorData(ids(5).raw)).endswith("4 bytes)")
    assert "no envs" in repr(ids(num_envs=0))
    assert "env 2, " in repr(ids(num_envs=1, first_env=2))


def test_lost_events_are_a_record_without_items() -> None:
    record = LostEvents("unit", IDS, 3, 30, 0.3, np.arange(2), 17)
    assert (record.events_lost, record.frame, record.timestamp, record.num_envs) == (17, 3, 0.3, 2)
    assert (len(record), list(record)) == (0, [])
    assert repr(record).endswith("17 lost)")


# Views ----------------------------------------------------------------------------------------------------------------


def arrays_of(data: Any) -> dict[str, Array]:
    """Return every array that the data expose."""
    found: dict[str, Array] = {} if data.pose is None else {"pose": data.pose}
    if isinstance(data, ArrayData):
        found["array"] = data.array
    if isinstance(data, Reading):
        found |= data.measured
        for name in ("capture_tick", "truth_tick", "stamp", "age", "captures", "valid", "is_new", "offsets"):
            if getattr(data, name) is not None:
                found[f"about {name}"] = getattr(data, name)
        found |= {f"true {name}": value for name, value in data.truth.items()}
    return found


CASES: dict[str, tuple[Callable[[], Array], StreamInfo, Callable[[Any, StreamInfo], Any]]] = {
    "ids": (
        lambda: make_message(IDS, np.arange(3, dtype="<u4"), random_poses(4, 1)),
        IDS,
        lambda memory, info: Ids(RawData(memory, info)),
    ),
    "fields": (
        lambda: field_message(make_reading(), truth=True, poses=random_poses(4, 2)), make_info(), received
    ),
    "ragged": (lambda: field_message(make_reading(RAGGED, 4), truth=True), make_info(RAGGED, 4), received),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_arrays_are_views_of_the_received_memory(case: str) -> None:
    make, info, read = CASES[case]
    memory = make()
    for name, array in arrays_of(read(memory, info)).items():
        assert not array.size or np.shares_memory(array, memory), name


@pytest.mark.parametrize("case", CASES)
def test_received_arrays_are_read_only(case: str) -> None:
    """This holds even where the underlying memory is writable."""
    make, info, read = CASES[case]
    data = read(np.array(make()), info)
    for array in arrays_of(data).values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            array.flags.writeable = True
    with pytest.raises(TypeError, match="item assignment"):
        data[0] = 1
    with pytest.raises(TypeError, match="item deletion"):
        del data[0]
    for name in ("array", "transform", "num_envs"):
        with pytest.raises(AttributeError):
            setattr(data, name, 1)
    with pytest.raises(TypeError, match="read-only"):
        ids(1).raw_data[0] = 0


@pytest.mark.parametrize("case", CASES)
def test_memory_lives_as_long_as_its_last_view(case: str) -> None:
    """The release is immediate, without the garbage collector: a slot or pooled buffer then becomes free."""
    make, info, read = CASES[case]
    gc.disable()
    try:
        for name in arrays_of(read(make(), info)):
            memory = np.array(make())
            gone = weakref.ref(memory)
            data = read(memory, info)
            del memory
            kept: Array | None = arrays_of(data)[name]
            assert kept is not None
            before = kept.tobytes()
            data = None
            assert gone() is not None, name
            assert kept.tobytes() == before
            part: Array | None = kept[:1] if kept.ndim else None
            kept = None
            assert (gone() is None) == (part is None), name
            part = None
            assert gone() is None, name
    finally:
        gc.enable()


def test_memoryview_and_two_pieces_are_received_equally() -> None:
    whole = field_message(make_reading(), truth=True, poses=random_poses(4, 2))
    start = Header.read(whole.data).body_offset
    one = received(memoryview(whole), make_info())
    two = received(bytes(whole[:start]), make_info(), whole[start:])
    for name, array in arrays_of(one).items():
        assert array.tobytes() == arrays_of(two)[name].tobytes()
    assert np.shares_memory(two.force, whole)


# Copies ---------------------------------------------------------------------------------------------------------------

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy()": lambda data: data.copy(),
    "pickle": lambda data: pickle.loads(pickle.dumps(data)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("how", COPIES)
def test_copy_is_equal_and_has_its_own_memory(case: str, how: str) -> None:
    make, info, read = CASES[case]
    writable = np.array(make())
    data = read(writable, info)
    copied = COPIES[how](data)
    assert type(copied) is type(data)
    assert copied.info == data.info
    for name in ("name", "frame", "seq", "tick", "time", "timestamp", "capture_time_wall"):
        assert getattr(copied, name) == getattr(data, name)
    before = {name: array.copy() for name, array in arrays_of(data).items()}
    writable[HEADER_BYTES:] ^= 0xFF
    for name, array in arrays_of(copied).items():
        assert array.tobytes() == before[name].tobytes(), name
        assert not array.flags.writeable or how != "copy()"


def test_a_copy_of_a_message_in_two_pieces_is_whole() -> None:
    whole = make_message(IDS, np.arange(3, dtype="<u4"), random_poses(4, 1))
    start = Header.read(whole.data).body_offset
    data = Ids(RawData(whole[:start], IDS, whole[start:]))
    assert bytes(data.copy().raw.head) == whole.tobytes()
    assert pickle.loads(pickle.dumps(data)).array.tobytes() == data.array.tobytes()


# Fields ---------------------------------------------------------------------------------------------------------------


def test_fields_are_accessible_by_attribute_and_name() -> None:
    data = fields()
    assert data.force.shape == (4, 2, 3)
    assert data["force"] is data.force
    assert list(data.measured) == [each.name for each in DENSE]
    assert "force" in data
    assert "forces" not in data
    assert data.specs == DENSE
    assert "force" in dir(data)


def test_unknown_field_error_suggests_the_nearest() -> None:
    with pytest.raises(
        AttributeError, match=r"reading of 'unit' has no 'forces'\. Did you mean 'force'\? Fields: force, height"
    ):
        _ = fields().forces
    with pytest.raises(UnknownNameError, match=r"unknown field of 'unit' 'forces'\. Did you mean 'force'\?"):
        _ = fields()["forces"]


def test_data_of_several_fields_have_env_length_and_are_not_iterable() -> None:
    data = fields()
    assert len(data) == 4
    for use in (lambda: data[0], lambda: iter(data), lambda: data[1:], lambda: data.array, lambda: np.asarray(data)):
        with pytest.raises(TypeError, match=r"reading of 'unit' has several fields: force, .*reading\['force'\]"):
            use()


def test_data_of_one_field_behave_as_its_array() -> None:
    reading = make_reading((spec("distance"),))
    data = received(field_message(reading), make_info((spec("distance"),)))
    expected = reading.measured["distance"]
    assert len(data) == 4
    assert np.array_equal(list(data), expected.tolist(), equal_nan=True)
    assert type(data[0]) is float
    assert data[-1] == pytest.approx(float(expected[-1]), nan_ok=True)
    assert data[1:3].tobytes() == expected[1:3].tobytes()
    assert np.asarray(data).tobytes() == expected.tobytes()
    with pytest.raises(IndexError):
        data[4]


def test_rows_of_ragged_fields_belong_to_their_env() -> None:
    reading, data = make_reading(RAGGED), ragged()
    counts = reading.measured["count"]
    assert len(set(counts.tolist())) > 1
    assert data.offsets is not None
    assert data.offsets.tolist() == [0, *np.cumsum(counts).tolist()]
    for env in range(4):
        assert data.rows(env) == reading.rows(env)
        assert data.point[data.rows(env)].tobytes() == reading["point"][reading.rows(env)].tobytes()
    assert data.rows(-1) == data.rows(3)
    for env in (4, -5):
        with pytest.raises(IndexError, match="has 4 envs, got index"):
            data.rows(env)
    assert fields().offsets is None
    with pytest.raises(TypeError, match="no ragged fields"):
        fields().rows(0)


def test_unordered_rows_raise_wire_error() -> None:
    memory = field_message(make_reading(RAGGED)).copy()
    data = received(memory, make_info(RAGGED))
    assert data.offsets is not None
    offsets = data.offsets.tobytes()
    at = memory.tobytes().index(offsets)
    good = np.frombuffer(offsets, "<i8")
    last = int(good[-1])
    for wrong in ([1, *good[1:]], [*good[:-1], last - 1], [0, last, 0, last, last], [0, -1, 0, last, last]):
        memory[at : at + len(offsets)] = np.array(wrong, "<i8").view(np.uint8)
        with pytest.raises(WireError, match="row offsets that do not ascend"):
            received(memory, make_info(RAGGED))


def test_truth_is_a_separate_branch_if_requested() -> None:
    reading = make_reading()
    assert not fields().truth
    data = fields(truth=True)
    truth = data.truth
    assert truth.force.tobytes() == reading.truth["force"].tobytes() != reading.measured["force"].tobytes()
    assert truth["force"] is truth.force
    assert data.truth_tick.tolist() == reading.truth_tick.tolist()
    assert repr(truth).startswith("Fields(force float32 [4, 2, 3]")
    with pytest.raises(AttributeError, match="no field 'ages'"):
        _ = truth.ages
    with pytest.raises(AttributeError):
        truth.force = 1  # type: ignore[assignment]


def test_body_of_wrong_length_raises_wire_error() -> None:
    memory = field_message(make_reading())
    with pytest.raises(
        WireError, match=r"'unit' has a body of \d+ bytes, expected 400 for 4 envs with 0 rows of force"
    ):
        received(memory, make_info((spec("force"),)))


def test_unknown_envs_raise_wire_error() -> None:
    with pytest.raises(WireError, match="stream 'unit' contains 4 envs from 0 on, of 3"):
        RawData(field_message(make_reading()), make_info(envs=3))


def test_field_with_an_attributes_name_is_accessible_by_name() -> None:
    specs = (spec("tick", dtype="int32"), spec("height"))
    data = received(field_message(make_reading(specs)), make_info(specs))
    assert data.tick == 120
    assert data["tick"].dtype == np.int32


# Streams --------------------------------------------------------------------------------------------------------------

INFO = StreamInfo(
    9, "arm", "force", FIELDS,
    (replace(spec("force", ("mount", "xyz"), (2, 3)), low=-5.0), *RAGGED), 200.0, ("a", "b"), False, "scene",
    {"body": "arm"}, {"names": ["x"]}, 16,
)  # fmt: skip


def test_stream_description_round_trips() -> None:
    assert StreamInfo.from_dict(INFO.to_dict()) == INFO
    assert pickle.loads(pickle.dumps(INFO)) == INFO


def test_stream_description_is_plain_data() -> None:
    import json

    import msgspec

    assert StreamInfo.from_dict(json.loads(json.dumps(INFO.to_dict(), allow_nan=False))) == INFO
    assert StreamInfo.from_dict(msgspec.msgpack.decode(msgspec.msgpack.encode(INFO.to_dict()))) == INFO


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": -1}, {"id": 2**32}, {"id": True}, {"name": 3}, {"specs": 3}, {"specs": [{}]}, {"specs": None},
        {"num_envs": -1}, {"num_envs": 1.5}, {"where": "elsewhere"}, {"mounts": [1]}, {"mounts": 5}, {"cfg": []},
        {"events": 1}, {"rate_hz": "fast"}, {"type_name": None},
    ],
)  # fmt: skip
def test_invalid_stream_description_raises_wire_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="invalid description of a stream"):
        StreamInfo.from_dict({**INFO.to_dict(), **wrong})


@pytest.mark.parametrize("name", ["id", "name", "kind", "type_name", "specs"])
def test_incomplete_stream_description_raises_wire_error(name: str) -> None:
    lacking = INFO.to_dict()
    del lacking[name]
    with pytest.raises(WireError, match=f"invalid description of a stream.*{name}"):
        StreamInfo.from_dict(lacking)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "object"}, {"dtype": "nonsense"}, {"dtype": "i4,(2"}, {"dtype": 3}, {"dtype": "U5"}, {"shape": [2]},
        {"shape": [-2, 3]}, {"shape": [2.0, 3]}, {"axes": ["mount", "xyz"]}, {"axes": [1, 2, 3]}, {"name": None},
        {"low": "x"}, {"shape": None},
    ],
)  # fmt: skip
def test_invalid_field_description_raises_wire_error(wrong: dict[str, Any]) -> None:
    values = INFO.to_dict()
    values["specs"][0].update(wrong)
    with pytest.raises(WireError, match="invalid description of a stream"):
        StreamInfo.from_dict(values)


def test_duplicate_field_name_raises_wire_error() -> None:
    values = INFO.to_dict()
    values["specs"].append(values["specs"][0])
    with pytest.raises(WireError, match="wrong value of specs"):
        StreamInfo.from_dict(values)


# Writing --------------------------------------------------------------------------------------------------------------


def test_begin_message_writes_header_and_poses_and_returns_the_body() -> None:
    header = Header(num_envs=2, poses=1, body_bytes=10)
    memory = empty(header.body_offset + header.body_bytes)
    memory[:] = 0xFF
    body = begin_message(memory.data, header, np.ones((2, 1, 7), np.float32))
    assert len(body) == 10
    body[:] = bytes(10)
    assert memory.ctypes.data % 64 == 0
    assert memory[128:184].view("<f4").tolist() == [1.0] * 14
    assert memory[184:192].tolist() == [0] * 8
    assert Header.read(memory.data) == header
    with pytest.raises(WireError, match="192 bytes of memory, got 150"):
        begin_message(memory.data[:150], header)


# Arbitrary input ------------------------------------------------------------------------------------------------------


def look_at(data: Any) -> None:
    """Access everything that the data offer."""
    assert repr(data)
    assert pickle.loads(pickle.dumps(data)).tick == data.tick
    data.copy()
    for array in arrays_of(data).values():
        array.sum() if array.dtype.names is None else len(array)
    if isinstance(data, Reading) and data.offsets is not None:
        for env in range(data.num_envs):
            assert len(data["point"][data.rows(env)]) == data.rows(env).stop - data.rows(env).start
    _ = (data.time, data.age, data.latency(), data.env_ids, data.transform)


@pytest.mark.parametrize("case", ["dense", "ragged", "ids"])
def test_random_and_mutated_messages_raise_only_wire_errors(case: str) -> None:
    generator = random.Random(1)
    specs = {"dense": DENSE, "ragged": RAGGED, "ids": ()}[case]
    info = replace(IDS, type_name=FIELDS if specs else "test.wire.Ids/1", specs=specs)
    poses = random_poses(4, 2)
    whole = (
        field_message(make_reading(specs), truth=True, poses=poses) if specs else make_message(info, b"12345678", poses)
    ).tobytes()
    accepted = 0
    with np.errstate(all="ignore"):
        for _ in range(400):
            if generator.random() < 0.1:
                data = bytearray(b"SNSR\1\0" + generator.randbytes(generator.randrange(400)))
            else:
                data = bytearray(whole)
                if generator.random() < 0.1:
                    del data[generator.randrange(len(data)) :]
            for _ in range(generator.randrange(5)):
                area = HEADER_BYTES if generator.random() < 0.5 else len(data)
                if data:
                    data[generator.randrange(min(area, len(data)))] = generator.choice((0, 1, 2, 128, 255))
            try:
                look_at(received(bytes(data), info) if specs else Ids(RawData(bytes(data), info)))
            except WireError:
                continue
            accepted += 1
    assert 200 < accepted < 1400


# Light imports --------------------------------------------------------------------------------------------------------

LISTEN = """
import importlib.abc, pickle, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"torch", "warp", "pydantic", "mujoco", "rich", "tyro", "matplotlib", "zmq"}:
            raise ImportError(f"{name} is not for listeners")

sys.meta_path.insert(0, Refuse())
import sensorium as sn
import sensorium.wire.data, sensorium.wire.world, sensorium.wire.serializers
data = pickle.loads(sys.stdin.buffer.read())
assert sn.Reading is type(data) and sn.Pose and sn.Serializer and sensorium.wire.data.ArrayData
print(data.force.shape, data.truth.force.sum() == data.truth["force"].sum(), data.transform is not None)
"""


def test_listener_requires_only_numpy() -> None:
    memory = field_message(make_reading(), truth=True, poses=random_poses(4, 1))
    data = received(memory, make_info())
    done = subprocess.run([sys.executable, "-c", LISTEN], input=pickle.dumps(data), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == ["(4,", "2,", "3)", str(truth_is_finite(data)), "True"]


def truth_is_finite(data: Reading) -> bool:
    return bool(data.truth.force.sum() == data.truth.force.sum())
