"""A served recording: listeners get what they got from the live scene, bit for bit, and cannot change anything."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streaming import connect, until

import sensorium as sn
from sensorium.errors import ScheduleError, StreamError
from sensorium.readings import Reading
from sensorium.record.replay_scene import ReplayScene

TICKS = 60
META = ("capture_tick", "stamp", "age", "frame", "valid", "is_new")
EVENTS_MODEL = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom name="ground" type="plane" size="2 2 .1"/>
    <body name="ball" pos="0 0 .12"><freejoint/><geom name="ball" size=".1" mass="1"/></body>
  </worldbody>
</mujoco>
"""


def live_scene() -> sn.Scene:
    engine = sn.MujocoEngine(EVENTS_MODEL, 3)
    sensors = [
        sn.ImuCfg(
            name="imu", body="ball", gyro_noise=0.1, delay=0.006, jitter=0.004, fields=("ang_vel_b", "lin_acc_b")
        ),
        sn.BodyStateCfg(name="slow", body="ball", rate_hz=50.0),
        sn.CollisionEventsCfg(name="events", primary=sn.ContactMatch(mode="body", pattern="ball")),
        sn.CollisionCfg(name="bumps", body="ball", phases="all"),
    ]  # fmt: skip
    return sn.Scene(engine, sensors, seed=4)


@contextlib.contextmanager
def listening(scene: Any, envs: Any) -> Iterator[tuple[sn.Server, dict[str, list[Any]]]]:
    """Serve a scene, and collect what a lossless listener gets from each sensor."""
    with sn.serve(scene, "tcp://127.0.0.1:0") as server:
        found: dict[str, list[Any]] = {}
        with connect(server.address) as client:
            names = [name for name in client.streams if name in ("imu", "slow", "events", "bumps")]
            for name in names:
                found[name] = []
                truth = {} if name == "bumps" else {"truth": True}
                client.sensors[name].listen(found[name].append, policy="lossless", envs=envs, **truth)
            until(lambda: server.poll() or server.counts.subscriptions == len(names))
            server.poll()
            yield server, found


def receive_all(server: sn.Server, found: dict[str, list[Any]]) -> None:
    """Wait until each listener has messages of the last tick, and so all messages of earlier ticks."""
    until(lambda: (server.poll(), all(each and each[-1].tick == TICKS for each in found.values()))[1])


def summary(data: Any) -> Any:
    """Return everything that a listener sees of one message, without the server's own counters."""

    def bits(array: Any) -> Any:
        return None if array is None else (array.dtype, array.shape, np.ascontiguousarray(array).tobytes())

    common = (data.sensor, data.tick, data.timestamp, bits(data.transforms), bits(data.env_ids))
    if not isinstance(data, Reading):
        return (*common, bytes(data.raw_data))
    about = [bits(data.meta[name]) for name in META]
    branches = [data.measured, data.truth]
    truth = bits(data.truth_tick) if data.truth else None
    return (*common, about, truth, [[(name, bits(value)) for name, value in each.items()] for each in branches])


@pytest.mark.parametrize("envs", [pytest.param(None, marks=pytest.mark.full), 1], ids=["all", "one"])
def test_listeners_notice_no_difference(envs: int | None, tmp_path: Path) -> None:
    scene = live_scene()
    with scene.record(tmp_path / "run.mcap"), listening(scene, envs) as (server, found):
        for tick in range(TICKS):
            scene.step()
            server.poll()
            if tick == 40:
                scene.reset([2])
        receive_all(server, found)
        live = {name: [summary(each) for each in values if 0 < each.tick < TICKS] for name, values in found.items()}
        described = {name: (info.kind, info.specs, info.rate_hz, info.mounts, info.num_envs, dict(info.cfg))
                     for name, info in server.streams.items() if name in live}  # fmt: skip
    replayed = ReplayScene(tmp_path / "run.mcap")
    with listening(replayed, envs) as (server, found):
        assert described == {
            name: (info.kind, info.specs, info.rate_hz, info.mounts, info.num_envs, dict(info.cfg))
            for name, info in server.streams.items()
            if name in live
        }
        for _ in range(TICKS):
            replayed.step()
            server.poll()
        assert replayed.is_over and replayed.tick == TICKS
        receive_all(server, found)
        again = {name: [summary(each) for each in values if 0 < each.tick < TICKS] for name, values in found.items()}
    assert live.keys() == again.keys() == {"imu", "slow", "events", "bumps"}
    for name in live:
        assert len(live[name]) > 3
        assert live[name] == again[name], name


def test_clients_cannot_change_a_recording(tmp_path: Path) -> None:
    scene = live_scene()
    with scene.record(tmp_path / "run.mcap", envs=[0, 2]):
        for _ in range(10):
            scene.step()
    replayed = ReplayScene(tmp_path / "run.mcap")
    assert replayed.num_envs == 2 and replayed.bodies() == scene.bodies()
    with pytest.raises(ScheduleError):
        replayed.step(np.zeros((2, 1)))
    with pytest.raises(ScheduleError):
        replayed.reset()
    with sn.local_client(replayed, lockstep=False) as client:
        calls: list[Callable[[], Any]] = [
            lambda: client.spawn("sensor.body_state", body="ball"),
            lambda: client.spawn("sensor.other.safe_distance", attach_to="ball"),
            lambda: client.reset(),
        ]
        for call in calls:
            with pytest.raises((StreamError, sn.SensoriumError)):
                call()
        assert {"imu", "slow"} <= {*client.streams}
