"""Topics, frames, time stamps and which samples become messages; files that rosbags opens; mappers of plugins."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ros2_cases import DT, NS, Rig, decoded, spec, stamp, stores, vector, wxyz, xyz

import sensorium as sn
from sensorium import plugins
from sensorium.errors import ArgumentError, ConfigError, RegistrationError, SensoriumWarning, UnknownNameError
from sensorium.readings import Reading, SceneDescription
from sensorium.record.ros2 import Channel, MappedSensor, Ros2Messages, StaticFrame, mapping, message_mapper, type_hash

GYRO = vector("ang_vel_b", "rad/s", "angular_velocity")


@pytest.fixture(scope="module")
def store() -> Any:
    return stores()


def data(rig: Rig, readings: list[Reading], **options: Any) -> dict[str, list[tuple[int, bytes]]]:
    """Return topic -> log time and bytes of each message."""
    messages = rig.messages(**options)
    out: dict[str, list[tuple[int, bytes]]] = {}
    for block in messages.encode(readings):
        for topic, time, message in block:
            out.setdefault(messages.topics[topic].name, []).append((time, bytes(message)))
    return out


# Which samples --------------------------------------------------------------------------------------------------------


def test_a_batch_equals_its_readings_one_by_one(store: Any) -> None:
    """Also with samples that are late, lost, repeated or invalid in some envs."""
    rig = Rig([GYRO], envs=None, n=4)
    readings = []
    captured, frame = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for tick in range(1, 60):
        moves = rig.rng.random(4) < 0.6
        captured = np.where(moves, tick, captured)
        frame = np.where(rig.rng.random(4) < 0.1, 0, frame + moves)
        readings.append(rig.reading(tick, capture_tick=captured, frame=frame, valid=rig.rng.random(4) < 0.9))
    whole = data(rig, readings)
    messages = rig.messages()
    parts: dict[str, list[tuple[int, bytes]]] = {}
    first = 0
    while first < len(readings):
        count = int(rig.rng.integers(1, 4))
        for block in messages.encode(readings[first : first + count]):
            for topic, time, message in block:
                parts.setdefault(messages.topics[topic].name, []).append((time, bytes(message)))
        first += count
    assert parts == whole
    # One message per arrival, by a loop over the samples.
    for env in range(4):
        expected = []
        for before, now in zip([None, *readings], readings, strict=False):
            repeated = (
                before is not None
                and before.valid[env]
                and before.capture_tick[env] == now.capture_tick[env]
                and before.captures[env] <= now.captures[env]
            )
            if now.valid[env] and not repeated:
                expected.append((round(now.time * NS), int(now.capture_tick[env]), now["ang_vel_b"][env].tolist()))
        got = [
            (time, round(stamp(message) / NS / DT), xyz(message.angular_velocity))
            for time, message in decoded(store, rig.messages(), readings)[f"/env_{env:04d}/front/data_raw"]
        ]
        np.testing.assert_equal(got, expected)


def test_invalid_samples_are_no_messages() -> None:
    rig = Rig([GYRO])
    assert data(rig, [rig.reading(1, valid=np.zeros(5, bool))]) == {}
    only = np.arange(5) == 4
    assert [*data(rig, [rig.reading(1, valid=only)])] == ["/env_0004/front/data_raw"]


def test_stamps_are_those_of_the_sensor_and_log_times_those_of_arrival(store: Any) -> None:
    rig = Rig([GYRO])
    late = np.full(5, 3)
    reading = rig.reading(10, capture_tick=late, stamp=late * DT + np.arange(5) * 1e-7)
    for env, found in (
        (env, decoded(store, rig.messages(), [reading])[f"/env_{env:04d}/front/data_raw"]) for env in (0, 4)
    ):
        ((time, message),) = found
        assert (time, stamp(message)) == (10 * 2_000_000, 3 * 2_000_000 + env * 100)


def test_times_before_0_are_stamped_0(store: Any) -> None:
    rig = Rig([GYRO])
    found = decoded(store, rig.messages(), [rig.reading(0, stamp=np.full(5, -1e-6))])
    assert [stamp(message) for messages in found.values() for _, message in messages] == [0, 0, 0]


def test_truth_has_topics_and_stamps_of_its_own(store: Any) -> None:
    rig = Rig([GYRO])
    true = {"ang_vel_b": rig.rng.normal(size=(5, 3)).astype(np.float32)}
    reading = rig.reading(10, capture_tick=np.full(5, 4), truth_tick=np.full(5, 9), truth=true, valid=np.zeros(5, bool))
    found = decoded(store, rig.messages(truth=True), [reading])
    assert [*found] == [f"/env_{env:04d}/front/truth/data_raw" for env in (3, 0, 4)]
    for env in (3, 0, 4):
        ((time, message),) = found[f"/env_{env:04d}/front/truth/data_raw"]
        assert (time, stamp(message)) == (10 * 2_000_000, 9 * 2_000_000)
        assert xyz(message.angular_velocity) == true["ang_vel_b"][env].tolist()


def test_times_are_exact_after_days() -> None:
    rig = Rig([GYRO])
    tick = 300_000_000  # a week at 500 Hz
    reading = rig.reading(tick)
    ((time, _),) = data(rig, [reading])["/env_0003/front/data_raw"]
    assert time == tick * 2_000_000


# Names ----------------------------------------------------------------------------------------------------------------


def test_a_scene_with_one_env_has_no_prefix(store: Any) -> None:
    rig = Rig([GYRO], n=1, envs=None, name="base imu/2nd")
    found = decoded(store, rig.messages(), [rig.reading(1)])
    assert [*found] == ["/base_imu/_2nd/data_raw"]
    assert found["/base_imu/_2nd/data_raw"][0][1].header.frame_id == "base_imu/_2nd"


def test_numbers_are_those_of_the_larger_run() -> None:
    rig = Rig([GYRO], first_env=9998, n=4, envs=None)
    names = [topic.name for topic in rig.messages().topics[1:]]
    assert names == [f"/env_{env:05d}/front/data_raw" for env in range(9998, 10002)]


def test_names_that_are_equal_in_ros_get_numbers() -> None:
    """Sensors, mounts, and a sensor that is named as the mount of another one."""
    about = {"kind": "imu", "fields": [GYRO.to_dict()]}
    mounted = {
        **about,
        "fields": [{**GYRO.to_dict(), "axes": ["env", "mount", "xyz"], "shape": [3, 3]}],
        "mounts": ["c", "d-", "d_"],
    }
    sensors = {"a b": about, "a_b": about, "a-b": about, "m": mounted, "m/c": about}
    messages = Ros2Messages(SceneDescription("test", DT, 1, 0, sensors))
    names = ["a_b", "a_b_2", "a_b_3", "m/c", "m/d_", "m/d_2", "m/c_2"]
    assert [each.name for each in messages.topics[1:]] == [f"/{name}/data_raw" for name in names]
    assert [each.name for each in messages.topics_of("m", 2)] == ["/m/d_2/data_raw"]


def test_wrong_arguments_raise() -> None:
    rig = Rig([GYRO])
    with pytest.raises(ArgumentError, match="expected different numbers from 0 to 4"):
        Ros2Messages(rig.description(), [0, 5])
    with pytest.raises(ArgumentError, match="different numbers"):
        Ros2Messages(rig.description(), [1, 1])
    with pytest.raises(UnknownNameError, match="front"):
        Ros2Messages(rig.description(), sensors=["frond"])
    with pytest.raises(UnknownNameError, match="imu"):
        rig.messages(messages={"front": ["imo"]})
    with pytest.raises(ConfigError, match=r"messages\.front.*livox.*ang_vel_b \['xyz'\] rad/s"):
        rig.messages(messages={"front": ["livox"]})
    other = Rig([GYRO], name="other")
    with pytest.raises(ArgumentError, match="several sensors or envs"):
        list(rig.messages().encode([rig.reading(1), other.reading(1)]))
    with pytest.raises(ArgumentError, match="expected \\[3, 0, 4\\]"):
        list(rig.messages().encode([Rig([GYRO], n=3).reading(1)]))


def test_readings_of_unknown_sensors_are_ignored() -> None:
    assert data(Rig([GYRO]), [Rig([GYRO], name="other").reading(1)]) == {}


def test_fields_without_a_message_are_listed() -> None:
    rig = Rig([GYRO, spec("found", ("contact",), (3,))])
    assert rig.messages().unmapped == {"front": ("found",)}
    assert Rig([GYRO]).messages().unmapped == {}


# Transforms and clock -------------------------------------------------------------------------------------------------


def test_transforms_of_sensors(store: Any) -> None:
    rig = Rig([GYRO], mounts=("left", "right"))
    pose = rig.rng.normal(size=(5, 2, 7)).astype(np.float32)
    unknown = pose.copy()
    unknown[4] = np.nan
    found = decoded(store, rig.messages(poses=True), [rig.reading(2, pose=pose), rig.reading(3, pose=unknown)])
    assert len(found["/tf"]) == 5
    for (time, message), env, tick in zip(found["/tf"], (3, 0, 4, 3, 0), (2, 2, 2, 3, 3), strict=True):
        assert time == tick * 2_000_000
        for mount, (transform, name) in enumerate(zip(message.transforms, rig.mounts, strict=True)):
            assert transform.header.frame_id == f"env_{env:04d}/world"
            assert transform.child_frame_id == f"env_{env:04d}/front/{name}"
            assert stamp(transform) == tick * 2_000_000
            assert xyz(transform.transform.translation) == pose[env, mount, :3].tolist()
            assert wxyz(transform.transform.rotation) == pose[env, mount, 3:].tolist()


def test_static_frames(store: Any) -> None:
    rig = Rig([spec("rgb", ("height", "width", "channel"), (2, 2, 3), dtype="uint8", role="image")])
    frame = StaticFrame("base", "front", (1.0, 2.0, 3.0, 0.5, 0.5, -0.5, 0.5))
    messages = rig.messages(frames=[frame])
    ((topic, time, message),) = messages.static(1.5)
    about = messages.topics[topic]
    assert (about.name, about.is_latched, time) == ("/tf_static", True, 1_500_000_000)
    found = store.deserialize_cdr(message, about.type).transforms
    pairs = [(each.header.frame_id, each.child_frame_id) for each in found]
    assert pairs == [
        pair
        for env in (3, 0, 4)
        for pair in (
            (f"env_{env:04d}/base", f"env_{env:04d}/front"),
            (f"env_{env:04d}/front", f"env_{env:04d}/front_optical"),
        )
    ]
    assert xyz(found[0].transform.translation) == [1.0, 2.0, 3.0]
    w, x, y, z = wxyz(found[1].transform.rotation)
    forward = [2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)]  # the optical z axis
    down = [2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)]  # the optical y axis
    assert forward == [1.0, 0.0, 0.0] and down == [0.0, 0.0, -1.0]


def test_without_static_frames_there_is_no_message() -> None:
    assert len(Rig([GYRO]).messages().static()) == 0


def test_clock(store: Any) -> None:
    messages = Rig([GYRO]).messages()
    found = [
        (time, store.deserialize_cdr(each, messages.topics[topic].type))
        for topic, time, each in messages.clock([0.5, 3.25])
    ]
    assert [(time, each.clock.sec, each.clock.nanosec) for time, each in found] == [
        (500_000_000, 0, 500_000_000), (3_250_000_000, 3, 250_000_000),
    ]  # fmt: skip


# Files ----------------------------------------------------------------------------------------------------------------


def test_rosbags_opens_a_file_of_these_messages(tmp_path: Path) -> None:
    writing = pytest.importorskip("mcap.writer")
    reading = pytest.importorskip("rosbags.rosbag2")
    anyreader = pytest.importorskip("rosbags.highlevel")
    interfaces = pytest.importorskip("rosbags.interfaces")
    rig = Rig(
        [vector("points_b", "m"), spec("rgb", ("height", "width", "channel"), (2, 2, 3), dtype="uint8", role="image")]
    )
    messages = rig.messages()
    path = tmp_path / "run.mcap"
    with path.open("wb") as file:
        writer = writing.Writer(file)
        writer.start("ros2")
        schemas, channels = {}, []
        for topic in messages.topics:
            if topic.type not in schemas:
                schemas[topic.type] = writer.register_schema(topic.type, "ros2msg", topic.schema.encode())
            channels.append(writer.register_channel(topic.name, "cdr", schemas[topic.type], topic.metadata))
        for block in (messages.static(), messages.clock([0.002]), *messages.encode([rig.reading(1)])):
            for index, time, message in block:
                writer.add_message(channels[index], time, bytes(message), time)
        writer.finish()
    with reading.Reader(path) as bag:
        found = {each.topic: each for each in bag.connections}
        assert {*found} == {topic.name for topic in messages.topics}
        for topic in messages.topics:
            (qos,) = found[topic.name].ext.offered_qos_profiles
            latched = topic.name == "/tf_static"
            durability = interfaces.QosDurability
            assert qos.durability == (durability.TRANSIENT_LOCAL if latched else durability.VOLATILE)
            assert qos.reliability == interfaces.QosReliability.RELIABLE
            assert topic.metadata["topic_type_hash"] == type_hash(topic.type)
    with anyreader.AnyReader([path]) as bag:  # takes the types from the schemas in the file
        counts: dict[str, int] = {}
        for connection, _, raw in bag.messages():
            bag.deserialize(raw, connection.msgtype)
            counts[connection.topic] = counts.get(connection.topic, 0) + 1
    assert counts == {
        name: 1 for name in ("/clock", "/tf_static", *(f"/env_{env:04d}/front/color/image_raw" for env in (0, 3, 4)))
    }


# Mappers --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def restored() -> Iterator[None]:
    before, requested = dict(mapping._mappers.registered()), set(mapping._on_request)
    yield
    mapping._mappers.data.clear()
    mapping._mappers.update(before)
    mapping._on_request.clear()
    mapping._on_request.update(requested)


@pytest.mark.usefixtures("restored")
def test_a_mapper_of_a_plugin(store: Any) -> None:
    @message_mapper("gas")
    def gas(sensor: MappedSensor) -> Iterator[Channel]:
        if sensor.field(unit="ppm") is not None:
            columns = lambda samples: {"temperature": samples["gas"]}  # noqa: E731
            yield Channel("sensor_msgs/msg/Temperature", "gas", ("gas",), {"variance": 2.0}, columns)

    rig = Rig([spec("gas", unit="ppm")])
    reading = rig.reading(1)
    for env, found in decoded(store, rig.messages(), [reading]).items():
        assert found[0][1].variance == 2.0
        np.testing.assert_equal(found[0][1].temperature, float(reading["gas"][int(env[5:9])]))


@pytest.mark.usefixtures("restored")
def test_a_mapper_of_a_plugin_replaces_a_topic_of_ours() -> None:
    @message_mapper("own_imu")
    def own(sensor: MappedSensor) -> Iterator[Channel]:
        yield Channel("geometry_msgs/msg/TwistStamped", "data_raw", ("ang_vel_b",), {}, lambda samples: {})

    (topic,) = (topic for topic in Rig([GYRO], envs=[0]).messages().topics if topic.name == "/env_0000/front/data_raw")
    assert topic.type == "geometry_msgs/msg/TwistStamped"


@pytest.mark.usefixtures("restored")
def test_a_mapper_cannot_take_the_name_of_ours() -> None:
    with pytest.raises(RegistrationError, match="'imu'"):

        @message_mapper("imu")
        def imu(sensor: MappedSensor) -> Iterator[Channel]:
            yield from ()


@pytest.mark.usefixtures("restored")
def test_packages_announce_mappers_and_a_broken_one_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smell_ros2.py").write_text(
        "from sensorium.record.ros2 import Channel, message_mapper\n"
        '@message_mapper("smell")\n'
        "def smell(sensor):\n"
        '    if sensor.field("smell"):\n'
        '        yield Channel("sensor_msgs/msg/Temperature", "smell", ("smell",), {}, lambda samples: {})\n'
    )
    (tmp_path / "broken_ros2.py").write_text("import a_missing_package\n")
    group = mapping.ENTRY_POINT_GROUP
    points = [EntryPoint("smell", "smell_ros2", group), EntryPoint("broken", "broken_ros2", group)]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == mapping.ENTRY_POINT_GROUP else [])
    monkeypatch.setattr(mapping._plugins, "is_loaded", False)
    monkeypatch.setattr(mapping._plugins, "broken", [])
    with pytest.warns(SensoriumWarning, match="mapper plugin 'broken'.*a_missing_package"):
        messages = Rig([spec("smell")], envs=[0]).messages()
    assert [topic.name for topic in messages.topics] == ["/clock", "/env_0000/front/smell"]


# A scene --------------------------------------------------------------------------------------------------------------


def test_readings_of_a_scene(store: Any) -> None:
    """The published samples of real sensors arrive, with delay, at their own rates and across resets."""
    xml = """<mujoco><option timestep="0.002"/><worldbody><geom type="plane" size="5 5 .1"/>
      <body name="base" pos="0 0 .5"><freejoint/><geom size=".1"/><site name="imu"/>
      <body name="arm" pos=".2 0 0"><joint name="elbow" axis="0 1 0"/><geom size=".05"/></body></body>
      </worldbody></mujoco>"""
    scene = sn.Scene(
        sn.MujocoEngine(xml, num_envs=3),
        [
            sn.ImuCfg(name="imu", site="imu", delay=0.006, gyro_noise=0.1),
            sn.JointSensorCfg(name="joints", joints=".*elbow", update_period=0.004),
            sn.BodyStateCfg(name="state", body="base"),
            sn.JointTorqueCfg(name="drive", joint="elbow"),
        ],
    )
    names = ["imu", "joints", "state", "drive"]
    messages = Ros2Messages(scene.description(), [2, 0], sensors=names, truth=True, poses=True)
    counts: dict[str, list[Any]] = {}
    readings: dict[str, list[Reading]] = {}
    for step in range(21):
        if step > 0:
            scene.step()
        if step == 12:
            scene.reset([2])
        for name, each in scene.publish(poses=True).items():
            readings.setdefault(name, []).append(each)
    for name in readings:
        for topic, found in decoded(store, messages, readings[name]).items():
            counts.setdefault(topic, []).extend(found)
    assert "/env_0001/imu/data_raw" not in counts
    true = {round(stamp(m) / NS / 0.002): m for _, m in counts["/env_0000/imu/truth/data_raw"]}
    arrived = counts["/env_0000/imu/data_raw"]
    assert len(arrived) == 18 and len(true) == 21
    for time, message in arrived:
        assert time - stamp(message) == 6_000_000
        assert round(stamp(message) / NS / 0.002) in true
    odometry = counts["/env_0000/state/truth/odometry"]
    assert odometry[-1][1].pose.pose.position.z < odometry[0][1].pose.pose.position.z
    assert {m.name[0] for _, m in counts["/env_0002/joints/joint_states"]} == {"elbow"}
    assert len(counts["/env_0000/joints/joint_states"]) == 11
    assert [m.name for _, m in counts["/env_0000/drive/joint_states"]] == [["elbow"]] * 21
    stamps = [stamp(m) for _, m in counts["/env_0002/imu/data_raw"]]
    assert stamps == sorted(stamps) and len(stamps) < 18
