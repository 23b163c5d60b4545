"""Events frame by frame, through real servers: all of them, in order, and none of another frame."""

from __future__ import annotations

import threading
from typing import Any

import mujoco
import numpy as np
import pytest
from streaming import PATIENCE, connect, serving, until

import sensorium as sn
from sensorium.client.subscription import WINDOW_SMALL
from sensorium.wire.data import LostEvents

YARD = """
<mujoco><option timestep="0.01"/><worldbody>
  <geom type="plane" size="5 5 0.1"/>
  <body name="car/base" pos="0 0 0.5"><freejoint/><geom type="box" size="0.2 0.2 0.2"/></body>
  <body name="crate/base" pos="9 0 0.5"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
</worldbody></mujoco>
"""


def test_events_of_all_environments_are_in_their_frame() -> None:
    """A crate is near the car in three of four environments; a listener of two of them gets their events."""
    scene = sn.Scene(sn.MujocoEngine(YARD, num_envs=4), [sn.BodyStateCfg(name="state", body="car/base")])
    qpos = np.tile([0.0, 0.0, 0.5, 1, 0, 0, 0, 9.0, 0.0, 0.5, 1, 0, 0, 0], (4, 1))
    qpos[[0, 1, 3], 7] = 0.8
    scene.reset(qpos=qpos)
    with scene.local_client(timeout=PATIENCE) as client:
        guard = client.spawn("sensor.other.safe_distance", attach_to="car/base", name="guard")
        crate = client.bodies["crate/base"].id
        with (
            sn.client.FrameSync(client, ["guard", "state"]) as sync,
            sn.client.FrameSync(client, ["guard", "state"], envs=slice(1, 3)) as middle,
        ):
            for _ in range(20):
                frame = client.step()
                bundle, part = sync.get(frame, PATIENCE), middle.get(frame, PATIENCE)
                events = bundle.events["guard"]
                assert [(each.frame, each.first_env, [*each]) for each in events] == [
                    (frame, env, [crate]) for env in (0, 1, 3)
                ]
                assert bundle["guard"] is events[-1] and bundle.events["state"] == (bundle["state"],)
                assert [each.first_env for each in part.events["guard"]] == [1] and part["state"].num_envs == 2
            client.reset()
            frame = client.step()
            assert sync.get(frame, PATIENCE)["guard"] is None and sync.get(frame).events["guard"] == ()
            assert (sync.left_out, sync.late, guard.is_alive) == (0, 0, True)


def test_collisions_of_one_tick_in_several_environments_are_all_in_its_frame() -> None:
    """The boxes fall from heights such that two of four touch the ground first, and the others later, together."""
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(YARD), num_envs=4)
    scene = sn.Scene(engine, reserve=sn.reserve_contact(engine, "car/base"))
    qpos = np.tile([0.0, 0.0, 0.3, 1, 0, 0, 0, 9.0, 0.0, 0.5, 1, 0, 0, 0], (4, 1))
    qpos[[1, 2], 2] = 0.25
    scene.reset(qpos=qpos)
    with scene.local_client(timeout=PATIENCE) as client:
        client.spawn("sensor.other.collision", attach_to="car/base", name="bumper")
        seen: list[tuple[int, list[int]]] = []
        with sn.client.FrameSync(client, ["bumper", "world"]) as sync:
            last = 0
            for _ in range(20):
                last = client.step()
            number = -1
            while number < last:
                number, bundle = sync.next(PATIENCE)
                if bundle.events["bumper"]:
                    seen.append((number, [event.first_env for event in bundle.events["bumper"]]))
                    assert all(event.frame == number for event in bundle.events["bumper"])
        assert [envs for _, envs in seen][:2] == [[1, 2], [0, 3]] and seen[0][0] < seen[1][0]


class HeldSync(sn.client.FrameSync):
    """A `FrameSync` whose subscriptions wait at a gate, as slow threads do."""

    gate: threading.Event

    def __init__(self, *args: Any, **options: Any) -> None:
        self.gate = threading.Event()
        self.gate.set()
        super().__init__(*args, **options)

    def add(self, name: str, data: Any) -> None:
        assert self.gate.wait(PATIENCE)
        super().add(name, data)


def test_frame_waits_for_all_events_after_its_announcement() -> None:
    """Over a socket, the thread of the subscription is slow and the announcements arrive first."""
    with serving(lockstep=True, world={"columns": 0}) as server, connect(server.address) as client:
        bp = client.blueprints.find("sensor.other.test_ticker").set_attributes(burst=50)
        client.spawn(bp, name="ticker")
        with HeldSync(client, ["ticker"]) as sync:
            for k in range(6):
                if k == 2:
                    sync.gate.clear()
                frame = client.step()
                if k == 2:
                    with pytest.raises(TimeoutError, match="'ticker'"):
                        until(lambda: sync.newest is not None and sync.newest >= frame)  # noqa: B023
                        sync.get(frame, 0.05)
                    sync.gate.set()
                events = sync.get(frame, PATIENCE).events["ticker"]
                assert [each.array.tolist() for each in events] == [[frame, i] for i in range(50)]
            assert sync.left_out == 0


def test_events_lost_by_a_slow_listener_are_counted_in_their_frames() -> None:
    """While the client reads nothing, the server keeps the permitted number and reports how many it dropped."""
    burst, steps = 1000, 20
    with serving(lockstep=True, world={"columns": 0}) as server, connect(server.address) as client:
        bp = client.blueprints.find("sensor.other.test_ticker").set_attributes(burst=burst)
        client.spawn(bp, name="ticker")
        with HeldSync(client, ["ticker"], queue=100, max_events=burst) as sync:
            client.step()
            sync.next(PATIENCE)
            sync.gate.clear()
            frames = [client.step() for _ in range(steps)]
            sync.gate.set()
            total = 0
            for frame in frames:
                bundle = sync.get(frame, PATIENCE)
                *events, last = bundle.events["ticker"]
                lost = 0
                if isinstance(last, LostEvents):
                    lost = last.events_lost
                    assert last.frame == frame and len(last) == 0 and last.sensor == "ticker"
                else:
                    events.append(last)
                assert all(each[0] == frame for each in events) and len(events) + lost == burst
                assert bundle["ticker"] is (events[-1] if events else None)
                total += lost
            assert total == sync.left_out >= burst * steps - WINDOW_SMALL - 100 - 2 * burst


def test_events_beyond_the_limit_of_a_frame_are_counted() -> None:
    with serving(lockstep=True, world={"columns": 0}) as server, connect(server.address) as client:
        bp = client.blueprints.find("sensor.other.test_ticker").set_attributes(burst=50)
        client.spawn(bp, name="ticker")
        with sn.client.FrameSync(client, ["ticker"], max_events=20) as sync:
            frame = client.step()
            bundle = sync.get(frame, PATIENCE)
            *events, last = bundle.events["ticker"]
            assert [int(each[1]) for each in events] == list(range(20)) and int(bundle["ticker"][1]) == 49
            assert isinstance(last, LostEvents) and (last.frame, last.events_lost) == (frame, 30)
            assert last.num_envs == 4 and last.time == pytest.approx(last.tick * client.dt)
            assert "30 lost" in repr(last) and sync.left_out == 30


def test_bundle_fields_are_typed() -> None:
    """The result of `of` is typed; another class is an error."""
    scene = sn.Scene(sn.MujocoEngine(YARD, num_envs=2), [sn.BodyStateCfg(name="state", body="car/base")])
    with scene.local_client(timeout=PATIENCE) as client, sn.client.FrameSync(client, ["state"]) as sync:
        bundle = sync.get(client.step(), PATIENCE)
        plain: Any = bundle["state"].pos_w
        data = bundle.of("state", sn.Reading)
        assert data is not None and data.pos_w is plain
        with pytest.raises(TypeError, match="sensor 'state' sent Reading, not LostEvents"):
            bundle.of("state", LostEvents)
