"""A served simulation with the interface of a scene, for the live view."""

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
STEP = 0.01
"""Duration of a step that the page takes in lock-step, s."""
ASK_EVERY = 1.0
"""Interval of the requests for the pace of the server, s."""
REFUSAL = "The program that serves the simulation takes the steps, so it cannot be paused here."


@dataclass(slots=True)
class RemoteCursor:
    """Readings that one output has not taken yet, like `SampleCursor`."""

    scene: RemoteScene
    taken: dict[str, int]

    def pending(self, names: Iterable[str] | None = None) -> list[str]:
        """Return the names of sensors with a new reading."""
        counts, newest = self.scene.counts, self.scene.newest
        wanted = newest if names is None else names
        return [name for name in wanted if name in newest and counts[name] > self.taken.get(name, 0)]


class RemoteScene:
    """The sensors of a server, for one environment at a time.

    A simulation that its server runs can be paused. In lock-step the page takes steps, once it plays.

    Args:
        client: a `sensorium.Client`.
        speed: simulated seconds per second of wall-clock time in lock-step; 0 for no limit.

    Attributes:
        is_paused: whether the simulation waits, or in lock-step whether the page takes no steps.
        speed: its simulated seconds per second of wall-clock time.
        refusal: reason why it cannot be paused; empty if it can.
    """

    is_within_step = False

    def __init__(self, client: Any, *, speed: float = 1.0) -> None:
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
        self._is_lockstep = client.is_lockstep
        self.is_paused, self.speed, self.refusal = self._is_lockstep, speed, ""
        self._has_paused = False
        self._substeps = max(1, round(STEP / client.dt))
        self._steps = 0
        self._ask_at = 0.0
        self._notes: list[str] = []
        self._is_listening = False
        self._follow()
        self._ask_pace()

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
        sensors = {name: info for name, info in found.sensors.items() if name != WORLD}
        for name, info in self._streams.items():
            about = {"kind": info.kind, "fields": [], "cfg": {"debug_vis": True}, "constants": dict(info.constants)}
            sensors.setdefault(name, about)
        return replace(found, sensors=sensors)

    def bodies(self) -> Bodies:
        """Return all bodies of the served model."""
        found: Bodies = self._client.bodies
        return found

    def world_file(self) -> bytes:
        """Return the description of the world; see `Scene.world_file`."""
        found: bytes = self._client.world_file()
        return found

    def body_poses(self, envs: slice | None = None) -> Array | None:
        """Return the newest poses of all bodies, `[1, body, 7]`; None before the first of the shown environment."""
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
        with self._lock:
            found = {name: self.newest[name] for name in names if name in self.newest}
            since.taken.update({name: self.counts[name] for name in found})
        return found

    def run(self, until: Callable[[], bool]) -> None:
        """Call the functions of `watch` while readings arrive, until a condition is true."""
        due = time.monotonic()
        while not until() and not self._client.is_closed:
            self._follow()
            period = self._advance()
            for callback in self._callbacks[:]:
                callback()
            due = max(due + period, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    # Pace -------------------------------------------------------------------------------------------------------------

    def act(self, command: str, value: Any = None) -> None:
        """Pause or continue (``"pause"``), take one step (``"step"``), or set the speed (``"speed"``).

        Raises:
            StreamError: the server refused.
        """
        if not self._is_lockstep:
            if command != "speed":
                self._has_paused = command == "step" or bool(value)
            changes = {"pause": {"paused": value}, "step": {"steps": 1}, "speed": {"speed": value}}
            self._note_pace(self._client.pace(**changes[command]))
        elif command == "pause":
            self.is_paused = bool(value)
        elif command == "step":
            self.is_paused, self._steps = True, self._steps + 1
        else:
            self.speed = float(value)

    def _ask_pace(self) -> None:
        self._ask_at = time.monotonic() + ASK_EVERY
        if not self._is_lockstep:
            self._note_pace(self._client.pace())

    def _note_pace(self, pace: Mapping[str, Any] | None) -> None:
        self.refusal = REFUSAL if pace is None else ""
        if pace is not None:
            self.is_paused, self.speed = pace["paused"], pace["speed"]

    def _advance(self) -> float:
        """Take a step if the page plays in lock-step; return the time until the next step or check of the pace, s."""
        try:
            if self._is_lockstep and (self._steps or not self.is_paused):
                self._steps = max(0, self._steps - 1)
                self._client.step(substeps=self._substeps)
                return self._substeps * self._client.dt / self.speed if self.speed else 0.0
            if self._is_listening and not self.refusal and time.monotonic() > self._ask_at:
                self._ask_pace()
        except SensoriumError as error:
            self._notes.append(str(error))
            self.is_paused = self._is_lockstep
        return 0.5 / RATE

    def take_notes(self) -> list[str]:
        """Return the messages for the user since the last call."""
        notes, self._notes = self._notes, []
        return notes

    # Listening --------------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Listen to added streams, and forget removed ones."""
        known = self._client.streams.items()
        shown = {name: info for name, info in known if info.where == "scene" or "drawing" in info.constants}
        streams = {name: info for name, info in shown.items() if name != WORLD}
        if streams.keys() == self._streams.keys() and all(streams[name] is self._streams[name] for name in streams):
            return
        self._streams, self.arrangement = streams, self.arrangement + 1
        self._subscribe_again()

    def listen(self, env: int) -> None:
        """Listen to an environment, until `leave`."""
        if env != self._env or not self._is_listening:
            self._env, self._is_listening = env, True
            self._subscribe_again()

    def leave(self) -> None:
        """Stop listening, and end the pause of this page."""
        self._is_listening = False
        self._subscribe_again()
        if self._has_paused:
            self.act("pause", False)

    def _subscribe_again(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.stop()
        self._subscriptions = {}
        with self._lock:
            self.newest.clear()
            self._bodies = None
        if not self._is_listening:
            return
        options = {"envs": slice(self._env, self._env + 1), "policy": "latest", "max_rate": RATE}
        for name in self._streams:
            self._subscriptions[name] = self._client.subscribe(name, self._take, truth=True, **options)
        if WORLD in self._client.streams:
            self._subscriptions[WORLD] = self._client.subscribe(WORLD, self._take_bodies, **options)

    def _take(self, data: Any) -> None:
        """Keep a reading; called on a thread of the client."""
        try:
            reading = reading_of(data.copy())
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


def reading_of(data: Any) -> Reading:
    """Return the data of one message as a reading; data of a custom type have no fields."""
    if isinstance(data, Reading):
        return data
    return Reading(data.name, data.info.kind, (), data.env_ids, data.tick, data.time, {}, {}, {}, _pose=data.pose)
