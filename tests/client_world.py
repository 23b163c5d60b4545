"""Helpers for tests of client sensors: a client that sends scripted data, and snapshots of a small world."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sensorium.client import client_sensor
from sensorium.client.callbacks import Callbacks
from sensorium.client.client_sensor import ClientSensor
from sensorium.readings import Bodies, Body
from sensorium.wire.world import Snapshot

CAR = Body(1, "car/chassis", "car", (0.5, 0.0, 0.4), (2.0, 1.0, 0.5))
BODIES = Bodies([Body(0, "post"), CAR, Body(2, "car/wheel", "car"), Body(3, "tree", "", (0, 0, 1), (0.2, 0.2, 1.0))])
"""A car whose box spans x = -1.5 to 2.5 and y = -1 to 1, and several bodies beside it."""


@dataclass(eq=False)
class FakeHandle:
    host: FakeHost
    callback: Callable[[Snapshot], None]
    envs: range

    def stop(self) -> None:
        self.host.handles.remove(self)


@dataclass(eq=False)
class FakeHost:
    """The part of a client that client sensors use."""

    callbacks: Callbacks
    bodies: Bodies = BODIES
    handles: list[FakeHandle] = field(default_factory=list)
    subscriptions: int = 0
    error: Exception | None = None
    sensors: list[ClientSensor] = field(default_factory=list)

    def close(self) -> None:
        """Destroy all sensors, which ends the threads of their listeners."""
        while self.sensors:
            self.sensors.pop().destroy()

    def on_tick(self, callback: Callable[[Snapshot], None], *, envs: range) -> FakeHandle:
        if self.error is not None:
            raise self.error
        self.subscriptions += 1
        self.handles.append(FakeHandle(self, callback, envs))
        return self.handles[-1]

    def send(self, snapshot: Snapshot) -> None:
        for handle in list(self.handles):
            handle.callback(snapshot)


def spawn(cls: type[Any], host: FakeHost, *args: Any, **options: Any) -> Any:
    """Spawn a sensor that `host.close` destroys."""
    sensor = client_sensor.spawn(cls, host, *args, **options)  # type: ignore[arg-type]
    host.sensors.append(sensor)
    return sensor


def listen(sensor: ClientSensor, callback: Callable[[Any], object]) -> None:
    """Listen to a sensor so that `drain` can wait for the listener."""

    def listener(event: Any) -> None:
        if isinstance(event, threading.Event):
            event.set()
        else:
            callback(event)

    sensor.listen(listener)


def drain(sensor: ClientSensor) -> None:
    """Wait until a sensor's listener, registered with `listen`, has received everything reported so far."""
    done = threading.Event()
    sensor.emit(done)
    assert done.wait(120.0)


def snapshot(
    frame: int,
    xy: npt.ArrayLike = (0.0, 0.0),
    yaw: npt.ArrayLike = 0.0,
    *,
    quat: npt.ArrayLike | None = None,
    first_env: int = 0,
    captures: Sequence[int] | None = None,
    **changes: Any,
) -> Snapshot:
    """Return a snapshot of the world with the car at a given pose.

    Args:
        frame: frame number; the tick is ten times that.
        xy: origin of the chassis, `[2]` or `[env, 2]`, m.
        yaw: heading of the chassis, rad, for all envs or per env.
        quat: orientation instead of the heading, wxyz.
        first_env: index of the first env.
        captures: capture count of each env.
        changes: other fields of the snapshot.
    """
    places = np.atleast_2d(np.asarray(xy, np.float64))
    envs = len(places)
    pos = np.zeros((envs, len(BODIES), 3), np.float32)
    turn = np.tile(np.array([1, 0, 0, 0], np.float32), (envs, len(BODIES), 1))
    pos[:, 1, :2] = places
    half = np.broadcast_to(np.asarray(yaw, np.float64), (envs,)) / 2
    turn[:, 1] = np.stack((np.cos(half), 0 * half, 0 * half, np.sin(half)), -1) if quat is None else quat
    still = np.zeros_like(pos)
    values: dict[str, Any] = {
        "frame": frame,
        "tick": 10 * frame,
        "time": 0.01 * frame,
        "bodies": BODIES,
        "env_ids": np.arange(first_env, first_env + envs),
        "pos_w": pos,
        "quat_w": turn,
        "lin_vel_w": still,
        "ang_vel_w": still,
        "captures": None if captures is None else np.array(captures),
    }
    return Snapshot(**{**values, **changes})
