"""CARLA's tutorial, followed to the end: a new sensor from its definition to the callback of a client.

The names are those of the tutorial's steps. Server and client communicate over the network, also within this process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
import pytest
from streaming import PATIENCE, running, until

import sensorium as sn
from sensorium.compat.carla import FActorVariation
from sensorium.drawing import draw
from sensorium.readings import Body
from sensorium.stream import streamed
from sensorium.view.live.listening import Listening
from sensorium.wire import serializers
from sensorium.wire.buffers import Buffer
from sensorium.wire.data import RawData
from sensorium.wire.world import Owner, Snapshot

ROAD = ("vehicle.ego/chassis", "vehicle.audi.a2/chassis", "vehicle.mercedes-benz.coupe/chassis", "walker/body")
EGO, AUDI, COUPE, WALKER = range(4)
STORY: list[tuple[Any, ...]] = []
"""The calls, in order."""


# 2. The sensor data serializer ----------------------------------------------------------------------------------------


class SafeDistanceSerializer(sn.Serializer):
    type_name = "sensorium.tests.TutorialSafeDistanceEvent/1"

    @staticmethod
    def serialize(sensor: SafeDistanceSensor, episode: Snapshot, detected: list[Body]) -> Buffer:
        STORY.append(("serialize", type(sensor), type(episode), [body.name for body in detected]))
        buffer = sensor.stream.pop_buffer()
        buffer.reset(np.dtype(np.uint32).itemsize * len(detected))
        ids = buffer.array(np.uint32)
        for k, body in enumerate(detected):
            ids[k] = episode.find(body.name).id
        return buffer

    @staticmethod
    def deserialize(raw: RawData) -> SafeDistanceEvent:
        STORY.append(("deserialize", type(raw), bytes(raw.body)))
        return SafeDistanceEvent(raw)


# 3. The sensor data object --------------------------------------------------------------------------------------------


class SafeDistanceEvent(sn.client.ArrayData):
    dtype = np.uint32

    @property
    def nearest_first(self) -> int:
        """Return the first item."""
        return int(self[0])


# 1 and 4. The sensor actor, with its serializer -----------------------------------------------------------------------


class SafeDistanceSensor(sn.StreamedSensor):
    """The tutorial's sensor: it reports the vehicles in a box around the owner."""

    serializer = SafeDistanceSerializer  # the pair of step 4
    events: ClassVar[bool] = True

    @classmethod
    def definition(cls) -> sn.SensorDefinition:
        front, back, lateral = (
            FActorVariation(f"safe_distance_{side}", "float", (value,))
            for side, value in (("front", "1.0"), ("back", "0.5"), ("lateral", "0.5"))
        )
        definition = sn.make_generic_sensor_definition("other", "tutorial_safe_distance")
        return definition.with_attributes(front, back, lateral)

    def set(self, description: sn.client.ActorDescription) -> None:
        super().set(description)
        front = description.get_float("safe_distance_front", 1.0)
        back = description.get_float("safe_distance_back", 0.5)
        lateral = description.get_float("safe_distance_lateral", 0.5)
        self.location = np.array([(front - back) / 2.0, 0.0, 0.0])
        self.extent = np.array([(front + back) / 2.0, lateral, 0.0])
        STORY.append(("set", front, back, lateral))

    def set_owner(self, owner: Owner) -> None:
        super().set_owner(owner)
        self.extent = self.extent + np.array(owner.body.half_extents)
        STORY.append(("set_owner", owner.body.name))

    def about_drawing(self) -> dict[str, Any]:
        return {"box": [*self.location.tolist(), *self.extent.tolist()]}

    def tick(self, snapshot: Snapshot) -> None:
        super().tick(snapshot)
        STORY.append(("tick", snapshot.frame))
        assert self.owner is not None
        for env in self.envs:
            center = snapshot.pos_w[env, self.owner.body.id] + self.location
            detected = [
                body
                for body in self.bodies.find("vehicle.*")
                if body.id != self.owner.body.id
                and (np.abs(snapshot.pos_w[env, body.id] - center) <= self.extent + body.half_extents).all()
            ]
            if detected:
                self.stream.send(snapshot, detected, env=env)

    def close(self) -> None:
        STORY.append(("close",))
        super().close()


# The world: the audi is near from tick 3 to 6, the coupe at 5 and 6, the walker always --------------------------------


def at(tick: int) -> list[list[float]]:
    audi = 2.0 if 3 <= tick <= 6 else 9.0
    coupe = -2.0 if 5 <= tick <= 6 else -9.0
    return [[0, 0, 0], [audi, 0, 0], [coupe, 0, 0], [0, 1, 0]]


def scene(num_envs: int = 1) -> sn.Scene:
    shapes = [sn.engines.Shape("box", body, (0.8, 0.4, 0.3), body=body) for body in ROAD]

    def motion(t: float) -> dict[str, Any]:
        return {"body_pos_w": np.array([at(round(64.0 * t))], np.float32)}

    engine = sn.TensorEngine(num_envs, 1.0 / 64.0, bodies=ROAD, shapes=shapes, motion=motion)
    return sn.Scene(engine, [sn.BodyStateCfg(name="state", bodies=".*")])


@pytest.fixture
def world() -> Iterator[sn.Client]:
    """A client of a lock-step server."""
    STORY.clear()
    with sn.serve(scene(), "tcp://127.0.0.1:0", lockstep=True) as server, running(server):
        with sn.connect(server.address, timeout=120.0) as client:
            yield client


# 5. Usage example -----------------------------------------------------------------------------------------------------


def test_the_tutorial_from_the_definition_to_the_callback(world: sn.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """A client finds, spawns and listens; vehicles that are too close are printed at each update."""
    events: list[SafeDistanceEvent] = []
    blueprint = world.blueprints.find("sensor.other.tutorial_safe_distance")
    blueprint.set_attribute("safe_distance_front", "1.5")
    sensor = world.spawn(blueprint, sn.Pose(), attach_to=ROAD[EGO])

    def callback(event: SafeDistanceEvent) -> None:
        STORY.append(("callback", event.frame))
        for actor_id in event:
            print(f"Vehicle too close: {world.bodies[actor_id].type_id}")
        events.append(event)

    sensor.listen(callback)
    frames = [world.step() for _ in range(9)]
    near = frames[2:6]
    until(lambda: len(events) == 4)
    assert [event.frame for event in events] == near
    assert [[*event] for event in events] == [[AUDI], [AUDI], [AUDI, COUPE], [AUDI, COUPE]]
    assert capsys.readouterr().out.splitlines() == [
        *["Vehicle too close: vehicle.audi.a2"] * 3,
        "Vehicle too close: vehicle.mercedes-benz.coupe",
        "Vehicle too close: vehicle.audi.a2",
        "Vehicle too close: vehicle.mercedes-benz.coupe",
    ]
    world.destroy(sensor)

    calls = [call[0] for call in STORY]
    assert calls[:2] == ["set", "set_owner"] and calls[-1] == "close" and calls.count("close") == 1
    assert STORY[:2] == [("set", 1.5, 0.5, 0.5), ("set_owner", ROAD[EGO])]
    assert [call[1] for call in STORY if call[0] == "tick"] == frames
    assert [call[1] for call in STORY if call[0] == "callback"] == near
    audi, coupe = ROAD[AUDI], ROAD[COUPE]
    assert [call[1:] for call in STORY if call[0] == "serialize"] == [
        (SafeDistanceSensor, Snapshot, names) for names in ([audi], [audi], [audi, coupe], [audi, coupe])
    ]
    sent = [np.array(ids, "<u4").tobytes() for ids in ([AUDI], [AUDI], [AUDI, COUPE], [AUDI, COUPE])]
    assert [call[1:] for call in STORY if call[0] == "deserialize"] == [(RawData, body) for body in sent]
    for name in ("serialize", "deserialize", "callback"):
        assert calls.count(name) == 4  # one of each for one send


def test_event_behaves_as_a_read_only_array(world: sn.Client) -> None:
    """The event has length, iteration and index; an index past the end is an IndexError. It is read-only."""
    kept: list[Any] = []
    world.spawn("sensor.other.tutorial_safe_distance", attach_to=ROAD[EGO]).listen(kept.append)
    for _ in range(40):
        world.step()
    until(lambda: len(kept) == 4)
    event = kept[2]
    assert type(event) is SafeDistanceEvent and len(event) == 2
    assert [*event] == [event[0], event[1]] == [AUDI, COUPE] and event[-1] == COUPE
    assert event.nearest_first == AUDI
    for past in (2, -3):
        with pytest.raises(IndexError):
            event[past]
    with pytest.raises(TypeError):
        event[0] = WALKER
    rebuilt = SafeDistanceEvent(RawData(bytearray(event.raw._own_head() + bytes(event.raw_data)), event.info))
    for each in (event, rebuilt):  # also where the received memory itself is writable
        with pytest.raises(ValueError, match="read-only"):
            each.array[0] = WALKER
        with pytest.raises(TypeError, match="read-only"):
            each.raw_data[0] = 1
    with pytest.raises(AttributeError):
        event.frame = 0
    assert np.shares_memory(event.array, np.frombuffer(event.raw_data, np.uint8))


@pytest.mark.parametrize("kind", ["tutorial_safe_distance", "safe_distance"])
def test_the_box_is_drawn_in_the_view_of_a_client(kind: str, world: sn.Client) -> None:
    """The twelve edges of the box of the formula, for the tutorial's sensor and for the built-in one."""
    world.spawn(f"sensor.other.{kind}", sn.Pose((0.2, 0.0, 0.0)), attach_to=ROAD[EGO], name="guard")
    listening, arrived, info = Listening(world), {}, world.streams["guard"]
    listening.follow(["guard"], 0, (), ())
    for _ in range(5):
        world.step()
    until(lambda: arrived.update(listening.take_all()) or "guard" in arrived)
    (lines,) = draw(arrived["guard"][-1], {"cfg": info.cfg, "constants": info.constants})
    corners = np.unique(lines.items.reshape(-1, 3).round(4), axis=0)
    middle = np.array([0.2 + (1.0 - 0.5) / 2, 0.0, 0.0])
    half = np.array([(1.0 + 0.5) / 2 + 0.8, 0.5 + 0.4, 0.3])
    expected = [middle + half * [x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    assert lines.kind == "lines" and len(lines.items) == 12
    np.testing.assert_allclose(corners, np.unique(np.round(expected, 4), axis=0), atol=1e-4)
    listening.stop()


def test_definition_creates_a_blueprint_in_the_library(world: sn.Client) -> None:
    """The blueprint has its attributes, recommended values and defaults; other valid values are accepted as well."""
    assert streamed.REGISTRY.find("sensor.other.tutorial_safe_distance") is SafeDistanceSensor
    assert "sensor.other.tutorial_safe_distance" in world.blueprints.filter("*safe_distance*").ids
    blueprint = world.blueprints.find("sensor.other.tutorial_safe_distance")
    attributes = {each.id: each for each in blueprint}
    assert [*attributes] == [f"safe_distance_{side}" for side in ("front", "back", "lateral")]
    for side, value in (("front", "1.0"), ("back", "0.5"), ("lateral", "0.5")):
        attribute = attributes[f"safe_distance_{side}"]
        assert (attribute.type, attribute.recommended_values) == ("number", (value,))
        assert attribute.as_str() == value and not attribute.restrict_to_recommended
    blueprint["safe_distance_back"] = 7.25
    sensor = world.spawn(blueprint, attach_to=ROAD[EGO])
    assert STORY[0] == ("set", 1.0, 7.25, 0.5)
    assert sensor.attributes["safe_distance_back"] == 7.25
    with pytest.raises(sn.ConfigError, match=r"safe_distance_back.*'far'.*a number"):
        blueprint.set_attribute("safe_distance_back", "far")


def test_the_serializer_that_belongs_to_the_sensor_is_found_by_its_type() -> None:
    """Both sides identify it by a number derived from its name."""
    assert SafeDistanceSensor.serializer is SafeDistanceSerializer
    assert serializers.by_name("sensorium.tests.TutorialSafeDistanceEvent/1") is SafeDistanceSerializer
    number = serializers.type_id("sensorium.tests.TutorialSafeDistanceEvent/1")
    assert number == int.from_bytes(
        blake2b(b"sensorium.tests.TutorialSafeDistanceEvent/1", digest_size=8).digest(), "little"
    )
    own = [name for name in vars(SafeDistanceSerializer) if not name.startswith("__")]
    assert own == ["type_name", "serialize", "deserialize"]


@pytest.mark.parametrize("engine", ["tensor", "mujoco"])
def test_ids_of_bodies_are_the_same_on_both_sides(engine: str) -> None:
    """The id is the position in the engine's list of bodies; name, kind and box come with it."""
    made = scene()
    if engine == "mujoco":
        worldbody = "".join(
            f"<body name='{name}' pos='{k} 0 0'><freejoint/><geom type='box' size='.3 .2 .1'/></body>"
            for k, name in enumerate(ROAD)
        )
        made = sn.Scene(sn.MujocoEngine(f"<mujoco><worldbody>{worldbody}</worldbody></mujoco>"))
    with sn.serve(made, "tcp://127.0.0.1:0") as server, sn.connect(server.address, timeout=120.0) as client:
        assert [body.name for body in client.bodies.values()] == [*made.engine.names("body")] == [*ROAD]
        for k, name in enumerate(ROAD):
            assert client.bodies[k] == server.bodies[k] == client.bodies[name] and client.bodies[k].id == k
            assert client.bodies[k].type_id == name.partition("/")[0]
            assert max(client.bodies[k].half_extents) == pytest.approx(0.8 if engine == "tensor" else 0.3)
        with pytest.raises(sn.UnknownNameError):
            client.bodies[4]


# Streams and buffers --------------------------------------------------------------------------------------------------


class Text(sn.client.ArrayData):
    dtype = np.dtype("u1")

    def __str__(self) -> str:
        return bytes(self.raw_data).rstrip(b"\0").decode()


class SenderSerializer(sn.Serializer):
    type_name = "sensorium.tests.TutorialText/1"

    @staticmethod
    def serialize(sensor: Sender, frame: int) -> Buffer:
        buffer = sensor.stream.pop_buffer()
        assert buffer.size == 0
        buffer.reset(100_000)
        text = buffer.array(np.uint8)
        Sender.memory.setdefault(sensor.name, set()).add(text.__array_interface__["data"][0])
        words = f"{sensor.name} {frame} {threading.current_thread().name}".encode()
        text[:] = 0
        text[: len(words)] = np.frombuffer(words, np.uint8)
        return buffer

    @staticmethod
    def deserialize(raw: RawData) -> Text:
        return Text(raw)


class Sender(sn.StreamedSensor):
    """Sends its name and the frame, in a buffer of its pool; on request in a separate thread."""

    serializer = SenderSerializer
    events: ClassVar[bool] = True
    memory: ClassVar[dict[str, set[int]]] = {}

    @classmethod
    def definition(cls) -> sn.SensorDefinition:
        aside = sn.Attribute("aside", {"type": "boolean", "default": False})
        return sn.make_generic_sensor_definition("other", "tutorial_sender", (aside,))

    def set(self, description: sn.client.ActorDescription) -> None:
        super().set(description)
        self.aside = description.get_bool("aside", False)
        self.threads: list[threading.Thread] = []

    def tick(self, snapshot: Snapshot) -> None:
        if not self.aside:
            self.stream.send(snapshot.frame)
            return
        capture = self.stream.capture()  # in the simulation's thread

        def compute_and_send() -> None:
            capture.send(snapshot.frame)

        self.threads.append(threading.Thread(target=compute_and_send))
        self.threads[-1].start()

    def close(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE)
        super().close()


def test_every_sensor_has_its_own_stream_and_pool(world: sn.Client) -> None:
    """Only the sensor's listener gets its messages; their memory is reused by the same sensor, and never by another."""
    Sender.memory.clear()
    received: dict[str, list[str]] = {"left": [], "right": []}
    for name, texts in received.items():
        sensor = world.spawn("tutorial_sender", attach_to=ROAD[EGO], name=name)
        sensor.listen(lambda event, texts=texts: texts.append(str(event).rpartition(" ")[0]))
    frames = []
    for _ in range(30):
        frames.append(world.step())
        until(lambda: all(texts[-1:] == [f"{name} {frames[-1]}"] for name, texts in received.items()))
    for name, texts in received.items():
        assert texts == [f"{name} {frame}" for frame in frames]
    left, right = Sender.memory["left"], Sender.memory["right"]
    assert not left & right
    assert len(left) <= 4 and len(right) <= 4  # thirty messages each


def test_tick_sends_asynchronously(world: sn.Client) -> None:
    """The capture is taken in tick and sent by another thread; the message belongs to the frame of the capture."""
    received: list[tuple[int, float, str]] = []
    sensor = world.spawn("tutorial_sender", sn.Pose((0.0, 0.0, 2.0)), attach_to=ROAD[AUDI])
    world.destroy(sensor)
    blueprint = world.blueprints.find("tutorial_sender").set_attributes(aside="true")
    sensor = world.spawn(blueprint, sn.Pose((0.0, 0.0, 2.0)), attach_to=ROAD[AUDI])
    sensor.listen(lambda event: received.append((event.frame, event.transform.pos, str(event))))
    frames = [world.step() for _ in range(9)]
    until(lambda: len(received) == 9)
    for frame, pos, text in received:
        tick = frames.index(frame) + 1
        assert pos == (at(tick)[AUDI][0], 0.0, 2.0)
        name, number, thread = text.split(" ", 2)
        assert (name, number) == (sensor.name, str(frame)) and thread.endswith("(compute_and_send)")
    assert sorted(frame for frame, *_ in received) == frames


# Client-side sensors --------------------------------------------------------------------------------------------------


class Odometer(sn.client.ClientSensor):
    """A client-side sensor that reports the distance of its owner at every update."""

    @classmethod
    def definition(cls) -> sn.SensorDefinition:
        return sn.make_generic_sensor_definition("other", "tutorial_odometer")

    def on_tick(self, snapshot: Snapshot) -> tuple[int, float]:
        assert self.owner is not None
        return snapshot.frame, float(snapshot.pose(self.owner.body.id).pos[0])


def test_a_client_side_sensor_is_a_dummy_on_the_server() -> None:
    """The server and all clients know the sensor; on the server it neither ticks nor sends, and costs nothing."""
    with sn.serve(scene(), "tcp://127.0.0.1:0", lockstep=True) as server, running(server):
        with sn.connect(server.address, timeout=120.0) as client, sn.connect(server.address, timeout=120.0) as other:
            odometer = client.spawn("tutorial_odometer", attach_to=ROAD[AUDI])
            assert isinstance(odometer, Odometer)
            until(lambda: odometer.name in other.streams)
            info = other.streams[odometer.name]
            assert (info.where, info.type_name, info.specs) == ("client", "", ())
            assert info.cfg["attach_to"] == ROAD[AUDI]
            assert odometer.name not in server.scene and not server.streamed.sensors
            with pytest.raises(sn.ConfigError, match="runs in the client that spawned it"):
                other.sensors[odometer.name].listen(print)
            sent = server.sent_bytes
            for _ in range(3):
                client.step()
            assert server.sent_bytes == sent and server.counts.subscriptions == 0
            received: list[tuple[int, float]] = []
            odometer.listen(received.append)
            frames = [client.step() for _ in range(4)]
            until(lambda: received and received[-1][0] == frames[-1])
            assert received[-4:] == [(frame, at(4 + k)[AUDI][0]) for k, frame in enumerate(frames)]
            assert {topic for topic, each in server._catalog.topics.items() if each.subscriptions} == {"world"}
            odometer.destroy()
            until(lambda: odometer.name not in other.streams)
            assert odometer.name not in server.streams
