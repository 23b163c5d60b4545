"""A served simulation in the place of a scene, for the live view."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sensorium.errors import SensoriumError, UnknownNameError
from sensorium.readings import Array, Bodies, Reading, SceneDescription
from sensorium.view.live.feed import RATE

WORLD = "world"
"""Name of the stream with the state of all bodies."""


@dataclass(slots=True)
class RemoteCursor:
    """Readings that one output has not taken yet, as `SampleCursor`."""

    scene: RemoteScene
    taken: dict[str, int]

    def pending(self, names: Iterable[str] | None = None) -> list[str]:
        """Return the names of sensors with a new reading."""
        counts, newest = self.scene.counts, self.scene.newest
        wanted = newest if names is None else names
        return [name for name in wanted if name in newest and counts[name] > self.taken.get(name, 0)]


class RemoteScene:
    """The sensors of a server, for one environment at a time.

    Args:
        client: a `sensorium.Client`.
    """

    is_within_step = False

    def __init__(self, client: Any) -> None:
        self._client, self._lock = client, threading.Lock()
        self.newest: dict[str, Reading] = {}
        """Newest reading of each sensor, of the shown environment."""
        self._bodies: Array | None = None
        self.counts: dict[str, int] = {}
        """Sensor -> number of its readings."""
        self._callbacks: list[Callable[[], object]] = []
        self._subscriptions: dict[str, Any] = {}
        self._env = 0
        self._streams: dict[str, Any] = {}
        self.arrangement = 0
        self.time = 0.0
        self.num_envs = client.num_envs
        self._follow()

    def __contains__(self, name: object) -> bool:
        return name in self._streams

    def __getitem__(self, name: str) -> Any:
        if name not in self._streams:
            raise UnknownNameError("sensor", name, self._streams)
        return self._client.sensors[name]

    @property
    def sensors_in_use(self) -> Mapping[str, Any]:
        """Name -> description of the stream."""
        return self._streams

    def description(self) -> SceneDescription:
        """Return the description of the served scene."""
        found: SceneDescription = self._client.description
        return replace(found, sensors={name: info for name, info in found.sensors.items() if name != WORLD})

    def bodies(self) -> Bodies:
        """Return all bodies of the served model."""
        found: Bodies = self._client.bodies
        return found

    def world_file(self) -> bytes:
        """Return the description of the world; see `Scene.world_file`."""
        found: bytes = self._client.world_file()
        return found

    def body_poses(self, envs: slice | None = None) -> Array | None:
        """Return the newest poses of all bodies, `[1, body, 7]`; None before the first of this environment."""
        if envs is not None:
            self._switch(envs.start)
        return self._bodies

    def reset(self, env_ids: Any = None) -> None:
        """Reset environments of the served simulation."""
        self._client.reset(env_ids)

    def watch(self, callback: Callable[[], object]) -> RemoteScene:
        """Call a function in `run` when readings have arrived; `close` of the result ends all calls."""
        self._callbacks.append(callback)
        return self

    def close(self) -> None:
        """End the calls of `watch`."""
        self._callbacks.clear()

    def sample_cursor(self) -> RemoteCursor:
        """Return a record of the readings that one output has taken."""
        return RemoteCursor(self, {})

    def publish(
        self, names: Iterable[str], *, since: RemoteCursor, envs: slice, truth: bool = True, poses: bool = True
    ) -> dict[str, Reading]:
        """Return the newest readings; see `Scene.publish`."""
        self._switch(envs.start)
        with self._lock:
            found = {name: self.newest[name] for name in names if name in self.newest}
            since.taken.update({name: self.counts[name] for name in found})
        return found

    def run(self, until: Callable[[], bool]) -> None:
        """Call the functions of `watch` while readings arrive, until a condition is true."""
        while not until() and not self._client.is_closed:
            self._follow()
            for callback in self._callbacks[:]:
                callback()
            time.sleep(0.5 / RATE)

    # Listening --------------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Listen to added streams, and forget removed ones."""
        known = self._client.streams.items()
        streams = {name: info for name, info in known if info.where == "scene" and name != WORLD}
        if streams.keys() == self._streams.keys() and all(streams[name] is self._streams[name] for name in streams):
            return
        self._streams, self.arrangement = streams, self.arrangement + 1
        self._subscribe_again()

    def _switch(self, env: int) -> None:
        """Listen to another environment."""
        if env != self._env:
            self._env = env
            self._subscribe_again()

    def _subscribe_again(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.stop()
        with self._lock:
            self.newest.clear()
            self._bodies = None
        options = {"envs": slice(self._env, self._env + 1), "policy": "latest", "max_rate": RATE}
        self._subscriptions = {}
        for name in self._streams:
            self._subscriptions[name] = self._client.subscribe(name, self._take, truth=True, **options)
        if WORLD in self._client.streams:
            self._subscriptions[WORLD] = self._client.subscribe(WORLD, self._take_bodies, **options)

    def _take(self, data: Any) -> None:
        """Keep a reading; called on a thread of the client."""
        try:
            reading = reading_of(data.copy(), self._client.dt)
        except SensoriumError:  # of a stream that was just replaced
            return
        if data.first_env != self._env:  # sent before the switch
            return
        with self._lock:
            self.newest[reading.name] = reading
            self.counts[reading.name] = self.counts.get(reading.name, 0) + 1
            self.time = reading.time

    def _take_bodies(self, data: Any) -> None:
        if data.first_env == self._env:
            self._bodies = np.concatenate([data["pos_w"], data["quat_w"]], axis=-1)


def reading_of(data: Any, dt: float) -> Reading:
    """Return the data of one message as a reading."""
    meta = {"capture_tick": data.capture_tick, "valid": data.valid, "is_new": data.is_new, "frame": data.captures,
            "age": data.ages, "stamp": data.stamps}  # fmt: skip
    truth = dict(data.truth.fields) if data.truth is not None else {}
    if truth:
        meta["truth_tick"] = data.truth.capture_tick
    return Reading(
        data.sensor, data.info.kind, data.info.specs, data.env_ids, data.tick, data.time, dict(data.fields), truth,
        meta, _offsets=data.offsets, _pose=data.transforms, _dt=dt,
    )  # fmt: skip
