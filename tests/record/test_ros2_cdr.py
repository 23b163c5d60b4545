"""Types, hashes and bytes of ROS 2 messages equal those of rosbags, an independent implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sensorium.errors import RegistrationError, SensoriumError, UnknownNameError
from sensorium.record.ros2 import MessageBlock, add_definitions, schema_text, serialize, type_hash
from sensorium.record.ros2.cdr import Template, element_dtype, trailing_bytes
from sensorium.record.ros2.message_types import MessageField, _types, message_type

typesys = pytest.importorskip("rosbags.typesys")

message_type("std_msgs/msg/Header")
BUILTIN = sorted(_types)
TEST_TYPES = """\
MSG: test_msgs/Inner
uint8 a
float64 b
string c
================================================================================
MSG: test_msgs/All
bool LIMIT=1
string SHORT = "a=b"
bool a
byte b
int32 c 7
int8 d
uint16 e
int64 f
string g "x = y"
string<=12 h
float32[3] i
float64[<=4] j
uint16[] k
string[2] l
string[] m
string<=3[<=2] n
Inner o
Inner[2] p
test_msgs/msg/Inner[] q  # a comment
bool[] r
Header s
float64 t
================================================================================
MSG: std_msgs/Char
char data
"""
add_definitions(TEST_TYPES)
ALL = "test_msgs/msg/All"


@pytest.fixture(scope="module")
def store() -> Any:
    """Return rosbags' own definitions of Jazzy, and ours where it has none."""
    store = typesys.get_typestore(typesys.Stores.ROS2_JAZZY)
    for name in (*BUILTIN, ALL):
        if name not in store.types:
            types = typesys.get_types_from_msg(schema_text(name), name)
            store.register({key: value for key, value in types.items() if key not in store.types})
    return store


def random_value(field: MessageField, rng: np.random.Generator) -> Any:
    """Return a random value of a field, with NaN, infinities and empty sequences among them."""
    if field.is_sequence:
        count = int(rng.integers(0, (field.most or 4) + 1))
    elif field.length is not None:
        count = field.length
    else:
        return random_single(field, rng)
    if not field.dtype:
        return [random_single(field, rng) for _ in range(count)]
    return random_numbers(field.dtype, count, rng)


def random_numbers(dtype: str, count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype == "?":
        return rng.integers(0, 2, count).astype(bool)
    values = np.frombuffer(rng.bytes(count * np.dtype(dtype).itemsize), dtype).copy()
    if values.dtype.kind == "f" and count:
        values[rng.random(count) < 0.3] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    return values


def random_single(field: MessageField, rng: np.random.Generator) -> Any:
    if field.is_nested:
        return {each.name: random_value(each, rng) for each in message_type(field.base).fields}
    if field.base == "string":
        return "aß中 /"[: int(rng.integers(0, min(field.most_characters or 6, 6)))]
    return random_numbers(field.dtype, 1, rng)[0]


def assert_equal(message: Any, values: Any, where: str = "") -> None:
    """Compare a message of rosbags with the given values, bit by bit."""
    if isinstance(values, dict):
        for name, value in values.items():
            assert_equal(getattr(message, name), value, f"{where}.{name}")
    elif isinstance(values, list):
        assert len(message) == len(values), where
        for index, (one, other) in enumerate(zip(message, values, strict=True)):
            assert_equal(one, other, f"{where}[{index}]")
    elif isinstance(values, str):
        assert message == values, where
    else:
        own = np.asarray(values)
        assert np.asarray(message).astype(own.dtype).tobytes() == own.tobytes(), where


@pytest.mark.parametrize("name", [*BUILTIN, ALL])
def test_the_type_hash_is_that_of_rosbags(name: str, store: Any) -> None:
    assert type_hash(name) == store.hash_rihs01(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("std_msgs/msg/Header", "f49fb3ae2cf070f793645ff749683ac6b06203e41c891e17701b1cb597ce6a01"),
        ("builtin_interfaces/msg/Time", "b106235e25a4c5ed35098aa0a61a3ee9c9b18d197f398b0e4206cea9acf9c197"),
        ("std_msgs/msg/Char", "3ad2d04dd29ba19d04b16659afa3ccaedd691914b02a64e82e252f2fa6a586a9"),
        ("livox_ros_driver2/msg/CustomPoint", "3289ac5e30c215e055e9b48fe0df5c2fb916abbb0c3a75315071bb7d735067f5"),
        ("livox_ros_driver2/msg/CustomMsg", "2eb17e5e35bf5a2d6cd079f3c57f33abf95e5bf7d71b42cddc05daace73d815a"),
    ],
)
def test_the_type_hash_is_that_of_code_generated_by_ros(name: str, expected: str) -> None:
    assert type_hash(name) == f"RIHS01_{expected}"


@pytest.mark.parametrize("name", [name for name in BUILTIN if not name.startswith(("livox", "radar", "event", "tact"))])
def test_definitions_equal_those_of_jazzy(name: str, store: Any) -> None:
    """The published definitions that rosbags ships have the same fields and constants as ours."""
    generated = store.types[name]
    _, _, text = name.rpartition("/")
    parsed = typesys.get_types_from_msg(schema_text(name), name)[name]
    assert parsed[1] == store.fielddefs[name][1], text
    assert {key: value for key, _, value in parsed[0]} == {key: value for key, _, value in store.fielddefs[name][0]}
    assert generated.__msgtype__ == name


@pytest.mark.parametrize("name", [*BUILTIN, ALL])
def test_bytes_are_those_of_rosbags(name: str, store: Any) -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        values = {each.name: random_value(each, rng) for each in message_type(name).fields}
        data = serialize(name, values)
        message = store.deserialize_cdr(data, name)
        assert_equal(message, values)
        assert bytes(store.serialize_cdr(message, name)) == data


def test_missing_fields_are_zero_or_empty(store: Any) -> None:
    message = store.deserialize_cdr(serialize(ALL, {"p": [{"b": 2.0}, {}]}), ALL)
    assert (message.a, message.c, message.g, message.p[0].b, message.p[1].b) == (False, 0, "", 2.0, 0.0)
    assert message.i.tolist() == [0.0, 0.0, 0.0] and len(message.j) == len(message.m) == 0


def test_wrong_values_raise() -> None:
    with pytest.raises(SensoriumError, match="no field colour"):
        serialize("sensor_msgs/msg/Imu", {"colour": 1})
    with pytest.raises(SensoriumError, match="got 2 elements, expected 9"):
        serialize("sensor_msgs/msg/Imu", {"orientation_covariance": [0.0, 1.0]})
    with pytest.raises(UnknownNameError, match="sensor_msgs/msg/Imu"):
        serialize("sensor_msgs/msg/Inu", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MSG: my_msgs/A\nfloat32\n", "got 'float32', expected 'type name'"),
        ("A\nfloat32 x\n", "expected a line 'MSG: package/Type'"),
        ("MSG: sensor_msgs/Imu\nfloat32 x\n", "already defined with other fields"),
    ],
)
def test_malformed_definitions_raise(text: str, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        add_definitions(text)


# Templates ------------------------------------------------------------------------------------------------------------


def test_rows_of_a_template_are_messages(store: Any) -> None:
    rng = np.random.default_rng(1)
    names = ["env_0003/imu", "env_0012/imu"]
    template = Template("sensor_msgs/msg/Imu", [{"header": {"frame_id": name}} for name in names])
    kinds = rng.integers(0, 2, 50)
    rate, covariance = rng.normal(size=(50, 3)), rng.normal(size=(50, 9))
    rate[3] = np.nan, np.inf, -np.inf
    seconds = rng.integers(-(2**31), 2**31, 50)
    rows = template.fill(
        kinds,
        {"header.stamp.sec": seconds, "angular_velocity": rate, "linear_acceleration.y": 2.5,
         "orientation_covariance": covariance},
    )  # fmt: skip
    for row in range(50):
        values = {
            "header": {"stamp": {"sec": seconds[row]}, "frame_id": names[kinds[row]]},
            "angular_velocity": dict(zip("xyz", rate[row], strict=True)),
            "linear_acceleration": {"y": 2.5},
            "orientation_covariance": covariance[row],
        }
        assert rows[row].tobytes() == serialize("sensor_msgs/msg/Imu", values)
        assert_equal(store.deserialize_cdr(rows[row].tobytes(), "sensor_msgs/msg/Imu"), values)


@pytest.mark.parametrize("counts", [[0], [1], [3, 0, 7, 1], [0, 0], [5, 5]])
@pytest.mark.parametrize(
    ("name", "path", "element"),
    [
        ("livox_ros_driver2/msg/CustomMsg", "points", "livox_ros_driver2/msg/CustomPoint"),
        ("radar_msgs/msg/RadarScan", "returns", "radar_msgs/msg/RadarReturn"),
        ("sensor_msgs/msg/PointCloud2", "data", ""),
        ("sensor_msgs/msg/CompressedImage", "data", ""),
        ("event_camera_msgs/msg/EventPacket", "events", ""),
    ],
)
def test_sequences_of_a_template_may_differ_in_length(
    name: str, path: str, element: str, counts: list[int], store: Any
) -> None:
    rng = np.random.default_rng(len(counts))
    dtype = element_dtype(element) if element else np.dtype("u1")
    total = sum(counts)
    elements = np.zeros(total, dtype)
    for field in dtype.names or ():
        elements[field] = random_numbers(dtype[field].str, total, rng)
    if not element:
        elements[:] = rng.integers(0, 256, total)
    for frame in ("f", "frame"):
        template = Template(name, [{"header": {"frame_id": frame}}], path)
        kinds = np.zeros(len(counts), np.int64)
        columns = {"header.stamp.nanosec": np.arange(len(counts))}
        data, starts = template.fill_varying(kinds, columns, elements, np.array(counts))
        block = MessageBlock(kinds, kinds + 5, data, starts)
        assert len(block) == len(counts)
        first = 0
        for row, (topic, time, message) in enumerate(block):
            own = elements[first : first + counts[row]]
            first += counts[row]
            assert (topic, time) == (0, 5)
            single = [dict(zip(dtype.names, each, strict=True)) for each in own.tolist()] if dtype.names else own
            values = {"header": {"stamp": {"nanosec": row}, "frame_id": frame}, path: single}
            assert bytes(message) == serialize(name, values)
            assert bytes(store.serialize_cdr(store.deserialize_cdr(message, name), name)) == bytes(message)


def test_the_last_element_of_a_sequence_has_no_padding() -> None:
    assert trailing_bytes(element_dtype("livox_ros_driver2/msg/CustomPoint")) == 1
    assert trailing_bytes(element_dtype("radar_msgs/msg/RadarReturn")) == trailing_bytes(np.dtype("u1")) == 0


def test_unsuited_templates_raise() -> None:
    with pytest.raises(SensoriumError, match="differ in length"):
        Template("sensor_msgs/msg/Imu", [{"header": {"frame_id": "a"}}, {"header": {"frame_id": "a longer name"}}])
    with pytest.raises(SensoriumError, match="no number at header"):
        Template("sensor_msgs/msg/Imu", [{}]).fill(np.zeros(1, int), {"header.frame_id": 1})
    with pytest.raises(SensoriumError, match="numbers after ranges would move"):
        Template("sensor_msgs/msg/LaserScan", [{}], "ranges")
    with pytest.raises(SensoriumError, match="first field of 4 bytes"):
        element_dtype("geometry_msgs/msg/Point")
    with pytest.raises(SensoriumError, match="not a struct of numbers"):
        element_dtype("sensor_msgs/msg/PointField")
