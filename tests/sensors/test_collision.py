"""Collision: a row, and a message, at the start of a contact, with the other body and the impulse."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.readings import Reading
from sensorium.sensors.contact.collision import WORLD_ID as WORLD
from sensorium.sensors.contact.collision import reserve_contact
from sensorium.spec import contact_array
from sensorium.stream.events import CollisionEvent, CollisionSerializer
from sensorium.testing import check_sensor
from sensorium.wire.data import RawData
from sensorium.wire.header import Header, begin_message, body_offset
from sensorium.wire.serializers import OURS
from sensorium.wire.stream_info import StreamInfo

DT = 0.01
BODIES = ("car", "wall", "post")


def received(reading: Reading, item: tuple[bytes, int, int]) -> CollisionEvent:
    """Return a message as a listener receives it."""
    body, first, count = item
    head = bytearray(body_offset(count, 0))
    begin_message(head, Header(tick=reading.tick, first_env=first, num_envs=count, body_bytes=len(body)))
    info = StreamInfo(0, "guard", "collision", CollisionSerializer.type_name, num_envs=len(reading.env_ids))
    return CollisionSerializer.deserialize(RawData(memoryview(head), info, body))


class World:
    """A scene with collision sensors, and the messages of their readings."""

    def __init__(self, scene: sn.Scene) -> None:
        self.scene, self.bodies = scene, scene.bodies()
        self.sent: dict[str, int] = {}

    def collision(self, body: str, name: str = "guard", **values: Any) -> str:
        """Add a collision sensor to a body and return its name."""
        self.scene.add(sn.CollisionCfg(name=name, body=body, **values))
        return name

    def events(self, name: str) -> list[CollisionEvent]:
        """Return the messages of a frame in the current state of the scene."""
        reading = self.scene.publish([name])[name]
        items = CollisionSerializer.serialize(reading, self.sent.get(name, -1))
        self.sent[name] = reading.tick
        return [received(reading, item) for item in items]

    def step(self, name: str, substeps: int = 1) -> list[CollisionEvent]:
        self.scene.step(substeps=substeps)
        return self.events(name)


Touches = Mapping[tuple[int, str], tuple[int, int, float]]
"""(env, other) -> first tick, tick after the last, upward force on the car, N."""


def scripted_scene(touches: Touches, num_envs: int = 2) -> sn.Scene:
    """Return a scene in which the car touches scripted bodies at scripted times."""
    engine = sn.TensorEngine(num_envs, DT, bodies=BODIES, provides=("pose", "contact"))
    (report,) = reserve_contact(engine, "car")
    others = list(report.args[0][1])

    def motion(time: float) -> dict[Any, torch.Tensor]:
        tick, values = round(time / DT), torch.zeros(num_envs, len(others), 1, 7)
        for (env, other), (start, stop, force) in touches.items():
            if env < num_envs and start <= tick < stop:
                values[env, others.index(other), 0] = torch.tensor([1.0, 0.0, 0.0, -force, 0.1, 0.2, 0.3])
        return {contact_array(report): values}

    engine.contacts[report]
    engine.motion = motion
    engine.forward()
    return sn.Scene(engine, [], reserve=[report])


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """Return a world of two environments in which the car touches scripted bodies at scripted times."""
    return World(scripted_scene(request.param))


def told(events: list[CollisionEvent]) -> list[tuple[int, int, str]]:
    """Return environment, other body and phase of some events."""
    return [(event.first_env, event.other_actor, event.phase) for event in events]


def scripted(touches: Touches) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("world", [touches], indirect=True)


# Scripted contacts ----------------------------------------------------------------------------------------------------


@scripted({(1, "wall"): (7, 12, 20.0)})
def test_a_collision_has_the_fields_of_the_contract(world: World) -> None:
    """For a contact in ticks 7 to 11 and steps of 5, the second step reports environment 1 with 4 ticks of impulse."""
    sensor = world.collision("car")
    assert world.step(sensor, 5) == []
    (event,) = world.step(sensor, 5)
    assert (event.actor, event.other_actor, event.first_env, event.num_envs) == (0, 1, 1, 1)
    assert event.normal_impulse.tolist() == pytest.approx([0.0, 0.0, 20.0 * 4 * DT])
    assert (event.phase, event.event_tick, event.tick) == ("begin", 7, 10)
    assert event.duration == pytest.approx(4 * DT) and event.peak_force == pytest.approx(20.0)
    assert event.pos_w.tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert world.bodies[event.other_actor].name == "wall"
    assert world.step(sensor, 5) == [] == world.step(sensor, 5)


@scripted({(0, "world"): (3, 8, 5.0), (0, "post"): (4, 6, 1.0)})
def test_several_collisions_of_one_frame_are_several_messages_and_the_world_has_no_body(world: World) -> None:
    sensor = world.collision("car")
    assert sorted(told(world.step(sensor, 5))) == [(0, WORLD, "begin"), (0, 2, "begin")]


@scripted({(0, "wall"): (2, 12, 10.0)})
def test_all_phases_are_reported_once_per_control_step(world: World) -> None:
    """The phases are begin in step 1, persist in 2 and end in 3, with the impulse of the whole contact: 10 ticks."""
    sensor = world.collision("car", phases="all")
    assert told(world.step(sensor, 5)) == [(0, 1, "begin")]
    assert told(world.step(sensor, 5)) == [(0, 1, "persist")]
    events = world.step(sensor, 5)
    assert told(events) == [(0, 1, "persist"), (0, 1, "end")]
    assert events[1].normal_impulse[2] == pytest.approx(10 * 10.0 * DT) and events[1].duration == pytest.approx(10 * DT)


@scripted({(0, "wall"): (2, 99, 10.0)})
def test_reported_rows_are_not_repeated(world: World) -> None:
    """Several frames may see one control step: at each tick, or at an edit of the state."""
    sensor = world.collision("car", phases="all")
    world.scene.begin_control_step()
    seen = []
    for _ in range(6):
        world.scene.update()
        seen += told(world.events(sensor))
        seen += told(world.events(sensor))
    assert seen == [(0, 1, "begin")]


@scripted({(0, "wall"): (1, 99, 8.0), (0, "post"): (1, 99, 2.0)})
def test_weak_collisions_are_omitted(world: World) -> None:
    """The impulses of the step are those of 5 ticks of 8 N and of 2 N."""
    sensor = world.collision("car", min_impulse=0.2)
    assert told(world.step(sensor, 5)) == [(0, 1, "begin")]


@pytest.mark.parametrize(
    ("interval", "expected", "start"),
    [(0.0, [1, 2, 3, 4, 5], 0), (0.05, [1, 3, 5], 0), (0.06, [1, 3, 5], 0), (0.07, [1, 4], 0), (0.07, [1, 4], 65529)],
)
def test_pair_is_reported_at_most_once_per_interval(interval: float, expected: list[int], start: int) -> None:
    """A contact chatters, 2 of every 3 ticks, in frames of 3 ticks (0.03 s); each pair has a separate interval.

    Ticks are stored as two numbers, of which the second is less than 65536.
    """
    engine = sn.TensorEngine(1, DT, bodies=BODIES, provides=("pose", "contact"))
    (report,) = reserve_contact(engine, "car")
    engine.contacts[report]

    def motion(time: float) -> dict[Any, torch.Tensor]:
        tick, values = round(time / DT) - start, torch.zeros(1, 3, 1, 7)
        values[0, 0, 0, 0] = float(tick % 3 != 0)
        values[0, 1, 0, 0] = float(tick == 8)
        return {contact_array(report): values}

    engine.motion = motion
    engine.forward()
    world = World(sn.Scene(engine, [], reserve=[report]))
    world.scene.update(ticks=start)
    sensor = world.collision("car", min_interval=interval)
    found = [told(world.step(sensor, 3)) for _ in range(5)]
    assert [k + 1 for k, events in enumerate(found) if (0, 1, "begin") in events] == expected
    assert [k + 1 for k, events in enumerate(found) if (0, 2, "begin") in events] == [3]


@scripted({(0, "wall"): (2, 4, 1.0), (1, "wall"): (2, 4, 1.0)})
def test_reset_clears_report_intervals_of_its_env(world: World) -> None:
    """The script repeats after a reset to the start; only the environment that was reset reports the wall again."""
    sensor = world.collision("car", min_interval=10.0)
    assert told(world.step(sensor, 5)) == [(0, 1, "begin"), (1, 1, "begin")]
    engine: Any = world.scene.engine
    before = engine.motion
    engine.motion = lambda time: before(time - 5 * DT)
    world.scene.reset([1])
    assert world.events(sensor) == []
    assert told(world.step(sensor, 5)) == [(1, 1, "begin")]


@scripted({(0, "wall"): (0, 99, 1.0), (1, "wall"): (3, 99, 1.0)})
def test_contact_at_the_start_is_no_begin_event(world: World) -> None:
    sensor = world.collision("car")
    assert told(world.step(sensor, 5)) == [(1, 1, "begin")]


@scripted({(0, "wall"): (2, 12, 10.0), (1, "post"): (1, 4, 3.0)})
def test_the_rows_are_ragged_and_name_the_bodies(world: World) -> None:
    """A reading has the rows of both environments one after the other; the data of the sensor are padded with -1."""
    sensor = world.scene.add(sn.CollisionCfg(name="guard", body="car", phases="all"))
    world.scene.step(substeps=5)
    assert sensor.data.count.tolist() == [1, 2] and sensor.data.lost.tolist() == [0, 0]
    assert sensor.data.pairs == [["car", "wall"], ["car", "post"], ["car", "world"]]
    assert sensor.data.body_ids[0].tolist() == [[0, 1], *[[-1, -1]] * 8]
    reading = world.scene.publish()["guard"]
    assert reading.offsets.tolist() == [0, 1, 3]
    assert reading["body_ids"].tolist() == [[0, 1], [0, 2], [0, 2]] and reading["phase"].tolist() == [1, 1, 3]
    assert reading["impulse_w"][:, 2].tolist() == pytest.approx([0.4, 0.09, 0.09])


def test_each_interval_is_of_one_pair_phase_and_environment() -> None:
    """Two environments touch two bodies a tick apart; each reports each body once in 0.1 s."""
    touches = {(0, "wall"): (1, 3, 1.0), (1, "wall"): (2, 4, 1.0), (0, "post"): (2, 5, 1.0), (1, "post"): (4, 5, 1.0)}
    world = World(scripted_scene(touches))
    sensor = world.collision("car", phases="all", min_interval=0.1)
    seen = [told(world.step(sensor)) for _ in range(6)]
    assert seen == [
        [(0, 1, "begin")],
        [(0, 1, "persist"), (0, 2, "begin"), (1, 1, "begin")],
        [(0, 1, "end"), (0, 2, "persist"), (1, 1, "persist")],
        [(1, 1, "end"), (1, 2, "begin")],
        [(0, 2, "end"), (1, 2, "end")],
        [],
    ]


# Streamed -------------------------------------------------------------------------------------------------------------


def streamed(scene: sn.Scene, steps: int, substeps: int, env: int | None = None, **values: Any) -> list[Any]:
    """Return the messages of some steps to a listener of a spawned sensor."""
    found: list[Any] = []
    with scene.local_client(timeout=120.0) as client:
        blueprint = client.blueprints.find("sensor.other.collision")
        for name, value in values.items():
            blueprint.set_attribute(name, value)
        guard = client.spawn(blueprint, attach_to="car", env=env)
        with sn.client.FrameSync(client, [guard.name]) as sync:
            for _ in range(steps):
                found += sync.get(client.step(substeps=substeps), timeout=120.0).events[guard.name]
    return found


def test_a_listener_gets_each_row_once_and_at_the_end_of_its_step() -> None:
    """Several sensors are due at each tick, so a control step of five ticks has five frames."""
    events = streamed(scripted_scene({(0, "wall"): (2, 12, 10.0)}), 4, 5, phases="all")
    assert told(events) == [(0, 1, "begin"), (0, 1, "persist"), (0, 1, "persist"), (0, 1, "end")]
    assert [event.tick for event in events] == [5, 10, 15, 15]
    assert [event.normal_impulse[2] for event in events] == pytest.approx([0.4, 0.5, 0.1, 1.0])
    assert all(event.transform is not None and event.num_envs == 1 for event in events)


def test_sensor_for_one_environment_reports_only_its_collisions() -> None:
    touches = {(0, "wall"): (1, 9, 1.0), (1, "post"): (1, 9, 1.0)}
    assert told(streamed(scripted_scene(touches), 1, 5, env=1)) == [(1, 2, "begin")]
    assert told(streamed(scripted_scene(touches), 1, 5)) == [(0, 1, "begin"), (1, 2, "begin")]


def test_a_listener_that_starts_later_gets_no_earlier_collision() -> None:
    scene = scripted_scene({(0, "wall"): (1, 9, 1.0)})
    with scene.local_client(timeout=120.0) as client:
        guard = client.spawn("sensor.other.collision", attach_to="car")
        client.step(substeps=5)
        with sn.client.FrameSync(client, [guard.name]) as sync:
            bundle = sync.get(client.step(substeps=5), timeout=120.0)
    assert not bundle.events[guard.name]


def test_collisions_without_a_free_row_are_reported_lost(caplog: pytest.LogCaptureFixture) -> None:
    """A contact that starts every other tick fills 9 rows of 3 pairs in a control step of 60 ticks."""
    scene = scripted_scene({}, 1)
    engine: Any = scene.engine
    (report,) = engine.contacts
    engine.motion = lambda time: {contact_array(report): torch.full((1, 3, 1, 7), float(round(time / DT) % 2))}
    engine.forward()
    with caplog.at_level(logging.WARNING, "sensorium.stream"):
        assert len(streamed(scene, 2, 60, phases="all")) == 18
    assert caplog.text.count("'collision'") == 1 and "are lost" in caplog.text


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"min_impulse": -1}, "min_impulse"),
        ({"min_interval": float("inf")}, "min_interval"),
        ({"phases": "start"}, "phases.*begin.*all"),
        ({"rate_hz": 100.0}, "evaluates every tick"),
        ({"whole_tree": True, "own_links": True}, "own_links"),
    ],
)
@scripted({})
def test_bad_values_are_refused_by_name(world: World, values: dict[str, Any], names: str) -> None:
    with pytest.raises(sn.ConfigError, match=names):
        world.collision("car", **values)


def test_collision_sensor_must_be_attached() -> None:
    with pytest.raises(sn.ConfigError, match="a body"):
        sn.CollisionCfg(body="world")
    with (
        scripted_scene({}).local_client(timeout=120.0) as client,
        pytest.raises(sn.ServerError, match=r"attach_to.*a body"),
    ):
        client.spawn("sensor.other.collision")


def test_unreserved_contacts_are_refused_with_the_call_to_reserve() -> None:
    engine = sn.TensorEngine(bodies=BODIES, provides=("pose", "contact"))
    with pytest.raises(sn.UnsupportedError, match=r"Scene\(\.\.\., reserve=\[CollisionCfg"):
        World(sn.Scene(engine, [])).collision("car", whole_tree=True)


def test_an_engine_without_contacts_is_refused_with_its_reason() -> None:
    engine = sn.TensorEngine(bodies=BODIES)
    with pytest.raises(sn.UnsupportedError, match=r"provides=.*contact"):
        sn.Scene(engine, [sn.CollisionCfg(body="car")])
    with pytest.raises(sn.UnsupportedError, match=r"provides=.*contact"):
        reserve_contact(engine)


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    engine = sn.TensorEngine(bodies=BODIES, provides=("contact",))
    with pytest.raises(sn.SelectionError, match="Did you mean 'wall'"):
        reserve_contact(engine, "walls")
    with pytest.raises(sn.SelectionError, match="regular expression"):
        reserve_contact(engine, "(")
    with pytest.raises(sn.ConfigError, match="an engine"):
        reserve_contact("robot.xml")


# MuJoCo ---------------------------------------------------------------------------------------------------------------

DROP = """
<mujoco><option timestep="0.001"/><worldbody>
  <geom name="floor" type="plane" size="5 5 .1"/>
  <body name="table" pos="3 0 .5"><geom type="box" size=".5 .5 .5"/></body>
  <body name="ghost" pos="0 0 .1"><geom type="sphere" size=".3" contype="0" conaffinity="0"/></body>
  <body name="frame"/>
  <body name="low" pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>
  <body name="high" pos="0 0 .6"><freejoint/><geom type="box" size=".1 .1 .1" mass="2"/></body>
  <body name="arm" pos="3 0 1.4"><joint axis="0 1 0"/><geom type="capsule" size=".05" fromto="0 0 0 .4 0 0"/>
    <body name="hand" pos=".5 0 0"><joint axis="0 1 0"/><geom type="sphere" size=".1"/></body>
  </body>
</worldbody></mujoco>"""


def drop(*bodies: str, **reserved: bool) -> World:
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(DROP))
    return World(sn.Scene(engine, [], reserve=reserve_contact(engine, bodies, **reserved)))


def test_dropped_box_reports_its_lost_momentum() -> None:
    """A box of 2 kg falls 0.3 m onto another box: J = m v + m g d, because it rests at the end of the control step.

    v = sqrt(2 g h) is the speed of impact, known to g dt, and d is the duration of contact by then, known to dt.
    """
    world = drop("high")
    sensor = world.collision("high")
    (event,) = world.step(sensor, 1000)
    assert world.bodies[event.actor].name == "high" and world.bodies[event.other_actor].name == "low"
    mass, g, dt = 2.0, 9.81, 0.001
    assert event.event_tick * dt == pytest.approx(np.sqrt(2 * 0.3 / g), abs=2 * dt)
    expected = mass * np.sqrt(2 * g * 0.3) + mass * g * event.duration
    assert event.normal_impulse[2] == pytest.approx(expected, abs=2 * mass * g * dt + mass * 1e-3)
    assert np.abs(event.normal_impulse[:2]).max() < 1e-6
    assert world.step(sensor, 100) == []  # it rests on the other box: no further messages


def test_the_world_and_static_bodies_are_named() -> None:
    """The low box touches the floor and, from below, the high box; the hand falls onto the static table."""
    world = drop("low", "hand")
    low = world.collision("low")
    others = {event.other_actor: event for event in world.step(low, 1000)}
    ids = {name: world.bodies[name].id for name in ("high",)}
    assert set(others) == {ids["high"]}  # it stood on the floor from the start
    assert others[ids["high"]].normal_impulse[2] < -3.0  # pushed down
    world = drop("hand")
    hand = world.collision("hand")
    (event,) = [event for _ in range(10) for event in world.step(hand, 100)][:1]
    assert world.bodies[event.other_actor].name == "table" and event.normal_impulse[2] > 0.0


def test_a_box_thrown_at_the_floor_hits_the_world() -> None:
    world = drop("high")
    qpos = world.scene.engine.qpos.clone()
    qpos[0, 7:10] = torch.tensor([-2.0, 0.0, 0.4], dtype=qpos.dtype)
    world.scene.reset(qpos=qpos)
    sensor = world.collision("high")
    assert told(world.step(sensor, 1000)) == [(0, WORLD, "begin")]


def test_tree_collides_if_any_of_its_links_does() -> None:
    """The sensor is attached to the arm, which touches nothing; the owner is the actor, and its hand does not count."""
    world = drop("arm", whole_tree=True)
    sensor = world.collision("arm", whole_tree=True)
    events = [event for _ in range(10) for event in world.step(sensor, 100)]
    assert {world.bodies[event.other_actor].name for event in events} == {"table"}
    assert {world.bodies[event.actor].name for event in events} == {"arm"}


def test_reservation_covers_every_touchable_body() -> None:
    """Each colliding body gets a report; bodies without colliding shapes and the owner's tree are omitted."""
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(DROP))
    reports = reserve_contact(engine)
    found = {report.args[1][1]: report.args[0][1] for report in reports}
    assert set(found) == {"table", "low", "high", "arm", "hand"}
    assert found["hand"] == ("table", "low", "high", "world")
    assert found["table"] == ("low", "high", "arm", "hand")  # static bodies never touch each other
    (own,) = reserve_contact(engine, "hand", own_links=True)
    assert own.args[0][1] == ("table", "low", "high", "arm", "world")
    assert len(reserve_contact(engine, ["arm", "hand"], whole_tree=True)) == 1
    world = World(sn.Scene(engine, [], reserve=reports))
    for name in found:
        world.collision(name, name)
        assert world.step(name) is not None


def test_names_suffice_to_reserve_for_an_external_model() -> None:
    """After `sn.prepare` before the user's compilation, Collision works on the wrapped objects."""
    spec = mujoco.MjSpec.from_string(DROP)
    names = ["table", "low", "high", "arm", "hand", "world"]
    sn.prepare(spec, reserve_contact(names, "high"))
    model = spec.compile()
    data = mujoco.MjData(model)
    engine = sn.MujocoEngine.from_mj(model, data)
    world = World(sn.Scene(engine, [], reserve=reserve_contact(engine, "high")))
    sensor = world.collision("high")
    world.scene.begin_control_step()
    for _ in range(400):
        mujoco.mj_step(model, data)
        world.scene.update()
    assert told(world.events(sensor)) == [(0, world.bodies["low"].id, "begin")]


def test_sleeping_worlds_have_their_static_bodies_as_secondaries() -> None:
    """Where bodies sleep, MuJoCo drops the contacts of static bodies, so the owner is the primary."""
    xml = DROP.replace('timestep="0.001"/>', 'timestep="0.001"><flag sleep="enable"/></option>')
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(xml))
    reports = reserve_contact(engine, "high")
    assert [(report.args[0][1], report.args[1][1]) for report in reports] == [
        (("low", "arm", "hand"), "high"),
        (("high",), "table"),
        (("high",), "world"),
    ]
    assert {report.args[1][1] for report in reserve_contact(engine, "table")} == {"table"}
    world = World(sn.Scene(engine, [], reserve=reports))
    qpos = engine.qpos.clone()
    qpos[0, 7:10] = torch.tensor([-2.0, 0.0, 0.4], dtype=qpos.dtype)
    world.scene.reset(qpos=qpos)
    sensor = world.collision("high")
    (event,) = world.step(sensor, 400)
    assert event.other_actor == WORLD and event.normal_impulse[2] > 2.0 * np.sqrt(2 * 9.81 * 0.3)


def test_smallest_covering_reports_are_used() -> None:
    """Reports reserved elsewhere for the same owner, with fewer or more bodies, change nothing."""
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(DROP))

    def events(*others: str) -> sn.CollisionEventsCfg:
        own = sn.ContactMatch(mode="body", pattern="hand")
        return sn.CollisionEventsCfg(
            name="_".join(others), primary=sn.ContactMatch(mode="body", pattern=others), secondary=own
        )

    everything = [*reserve_contact(engine, "hand"), *reserve_contact(engine, "hand", own_links=True)]
    scene = sn.Scene(engine, [], reserve=[events("low", "table"), *everything])

    def primaries(**values: bool) -> set[tuple[str, ...]]:
        cfg = sn.CollisionCfg(name="guard", body="hand", **values)
        return {report.args[0][1] for report in sn.Collision.needs(cfg, scene.engine, scene.engine.supports)}

    assert primaries() == {("table", "low", "high", "world")}
    assert primaries(own_links=True) == {("table", "low", "high", "arm", "world")}
    scene.add(sn.CollisionCfg(name="guard", body="hand"))


def test_partial_report_is_insufficient() -> None:
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(DROP))
    some = sn.CollisionEventsCfg(
        name="some",
        primary=sn.ContactMatch(mode="body", pattern=("low", "table")),
        secondary=sn.ContactMatch(mode="body", pattern="high"),
    )
    with pytest.raises(sn.UnsupportedError, match=r"reserve=\[CollisionCfg"):
        World(sn.Scene(engine, [], reserve=[some])).collision("high")


def test_own_links_are_reported_only_if_configured() -> None:
    """A hand falls onto the base on which it slides. The same reservation serves both sensors."""
    xml = """
    <mujoco><option timestep="0.001"/><worldbody>
      <geom type="plane" size="1 1 .1" pos="0 0 -1"/>
      <body name="base"><geom type="box" size=".3 .3 .1"/>
        <body name="hand" pos="0 0 .3"><joint type="slide" axis="0 0 1"/><geom type="sphere" size=".1"/></body>
      </body>
    </worldbody></mujoco>"""
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(xml))
    world = World(sn.Scene(engine, [], reserve=reserve_contact(engine, "hand", own_links=True)))
    quiet = world.collision("hand")
    loud = world.collision("hand", own_links=True, name="loud")
    (event,) = world.step(loud, 300)
    assert world.bodies[event.other_actor].name == "base"
    assert world.events(quiet) == []


def test_streamed_sensor_modules_import_nothing_heavy() -> None:
    """A listener reads their data without torch, warp, pydantic and a simulator installed."""
    assert "sensorium.stream.events" in OURS
    code = (
        "import sys\nfrom sensorium.wire.serializers import by_name\n"
        "print(by_name('sensorium.CollisionEvent/1').__name__)\n"
        "print([name for name in ('torch', 'warp', 'pydantic', 'mujoco') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert out.stdout.split("\n")[:2] == ["CollisionSerializer", "[]"]


def test_impulse_covers_the_control_step_even_with_per_tick_sensors() -> None:
    """The reported impulse of a box that falls and stays is its momentum plus its weight until the end of that step."""
    engine = sn.MujocoEngine(
        mujoco.MjSpec.from_string(
            "<mujoco><option timestep='0.002'/><worldbody><geom type='plane' size='1 1 .1'/>"
            "<body name='box' pos='0 0 .3'><freejoint/><geom type='box' size='.1 .1 .1' mass='2' solref='.005 1'/>"
            "</body></worldbody></mujoco>"
        )
    )
    scene = sn.Scene(engine, reserve=reserve_contact(engine, "box"))
    with scene.local_client(timeout=120.0) as client:
        client.spawn("sensor.other.collision", attach_to="box", name="bumper")
        velocity, event = 0.0, None
        with sn.client.FrameSync(client, ["bumper", "world"]) as sync:
            for _ in range(20):
                before = velocity
                frame = client.step(substeps=20)
                bundle = sync.get(frame, timeout=120.0)
                velocity = float(bundle["world"]["lin_vel_w"][0, 0, 2])
                if bundle["bumper"] is not None:
                    event = bundle["bumper"]
                    break
        assert frame > 5 * 20 and event is not None and event.tick == scene.tick  # a frame each tick; sent at the end
        expected = 2.0 * (velocity - before + 9.81 * 20 * 0.002)
        one_tick = 2.0 * 9.81 * 0.002  # forces are of the state after a tick, so the sum may be off by one tick of rest
        assert event.normal_impulse[2] == pytest.approx(expected, abs=one_tick) and expected > 3.0


# As a sensor ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, marks=pytest.mark.full),
        {"phases": "all", "min_impulse": 0.02, "min_interval": 0.03},
        {"history_length": 3, "delay": 0.02},
    ],
)
def test_it_passes_the_checks_of_every_sensor(values: dict[str, Any]) -> None:
    """The car touches three bodies, at other times in each environment."""

    def engine(num_envs: int) -> sn.TensorEngine:
        made = sn.TensorEngine(num_envs, DT, bodies=BODIES, provides=("pose", "contact"))
        (report,) = reserve_contact(made, "car")
        made.contacts[report]

        def motion(time: float) -> dict[str, torch.Tensor]:
            tick = round(time / DT) + torch.arange(num_envs)[:, None] + 2 * torch.arange(3)
            touches = (tick % 5 < 3).float()
            columns = [touches, touches, 0.0 * touches, 2.0 * touches, touches, touches, touches]
            return {contact_array(report): torch.stack(columns, dim=-1)[:, :, None]}

        made.motion = motion
        return made

    check_sensor(sn.CollisionCfg(body="car", **values), engine=engine)


def test_it_passes_the_checks_on_mujoco() -> None:
    def engine(num_envs: int) -> sn.MujocoEngine:
        made = sn.MujocoEngine(mujoco.MjSpec.from_string(DROP), num_envs)
        made.prepare(dict.fromkeys(reserve_contact(made, "high"), "guard"))
        made.qpos[:, 9] = 0.31 + 0.0002 * torch.arange(num_envs)
        made.forward()
        return made

    check_sensor(sn.CollisionCfg(body="high", phases="all"), engine=engine)
