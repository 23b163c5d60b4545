"""The loop's side of the live view: it publishes readings, and runs the page's commands between two steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from sensorium.errors import ConfigError, SensoriumError
from sensorium.readings import DebugShape, Reading
from sensorium.view.live.frames import Frame

RATE = 20.0
"""Maximum number of updates per second."""
SHARE = 0.02
"""Maximum part of the time of a loop without pauses that publishing may take; slow sensors are shown less often."""
SLOWEST = 1.0
"""Longest time between two updates for this reason, s."""
LOOK_EVERY, IDLE_EVERY = 0.02, 0.1
"""Seconds between two checks for commands of the page: while a browser shows it, and otherwise."""
BEHIND = 0.2
"""Delay that a loop may catch up, s."""
LOOP = frozenset({"pause", "step", "speed"})
"""Commands that act on the loop."""


class Channel(Protocol):
    """Connection between loop and page, such as one end of `multiprocessing.Pipe`."""

    def poll(self, timeout: float = 0.0) -> bool:
        """Return whether a message arrived within some seconds."""

    def recv(self) -> Any:
        """Return the next message."""

    def send(self, obj: Any) -> None:
        """Send a message."""

    def close(self) -> None:
        """Close the connection."""


class SceneFeed:
    """Feed of one page from a scene, or from an object with the same interface, such as a recording.

    It acts on the thread of the loop's owner: whenever the scene advances, and in `wait`. While no browser is
    connected, it only checks for commands. The pace of a served simulation is that of its server.

    Args:
        scene: the scene.
        channel: connection to the page.
        speed: simulated seconds per second of wall-clock time; 0 for no limit.
    """

    def __init__(self, scene: Any, channel: Channel, *, speed: float = 0.0) -> None:
        self._scene, self._channel = scene, channel
        self.is_paused, self.speed = False, speed
        self._is_served = hasattr(scene, "act")
        self.is_watched = False
        """Whether a browser shows the page."""
        self.is_closed = False
        self.updates = 0
        """Number of frames sent to the page."""
        self._steps = 0
        self._is_busy = False
        self._wanted: tuple[int, tuple[str, ...]] | None = None
        """Request of the page: an environment, and the sensors to publish with ground truth, even if not in use."""
        self._env, self._names = -1, frozenset[str]()
        self._arrangement = -1
        self._notes: list[str] = []
        self._look_at = self._send_at = 0.0
        self._has_time = True
        """Whether the loop waits or has waited since its last step, so that publishing does not slow it down."""
        self._restart_clock()
        scene.bodies()  # prepares the engine for shapes and poses, where it still can
        self._world: bytes | None = scene.world_file()
        self._watch = scene.watch(self._on_frame)
        self._send(0, ())

    def close(self) -> None:
        """End the feed; the loop continues without limit. Closing twice has no effect."""
        if not self.is_closed:
            with contextlib.suppress(SensoriumError):  # of another thread, or without a connection
                self._leave()
        self.is_closed, self.is_paused = True, False
        self._watch.close()
        self._channel.close()

    def wait(self, seconds: float = float("inf")) -> None:
        """Serve the page without stepping, until it is closed or the time has passed."""
        end = time.monotonic() + seconds
        self._is_busy = self._has_time = True
        try:
            while not self.is_closed and (left := end - time.monotonic()) > 0.0:
                self._look(min(left, 0.05))
        finally:
            self._is_busy = False

    # The loop ---------------------------------------------------------------------------------------------------------

    def _on_frame(self) -> None:
        """Serve the page; called on the loop's thread after each advance of the scene."""
        if self._is_busy or self._scene.is_within_step or (not self.speed and time.monotonic() < self._look_at):
            return
        self._is_busy = True
        try:
            self._has_time = self._is_served
            self._pace()
            self._look(0.0)
            while self.is_paused and not self._steps:
                self._has_time = True
                self._look(0.05)
            self._steps = max(0, self._steps - 1)
        finally:
            self._is_busy = False

    def _restart_clock(self) -> None:
        self._start = time.monotonic(), self._scene.time

    def _pace(self) -> None:
        """Wait until the wall clock has reached the simulation's time."""
        while self.speed and not self.is_paused:
            wall, simulated = self._start
            left = wall + (self._scene.time - simulated) / self.speed - time.monotonic()
            if left < -BEHIND or self._scene.time < simulated:
                self._restart_clock()
            if left < 1e-4:
                return
            self._has_time = True
            self._look(left)

    def _look(self, seconds: float) -> None:
        """Run the commands that arrive within some seconds, and send the requested frames."""
        self._look_at = time.monotonic() + (LOOK_EVERY if self.is_watched else IDLE_EVERY)
        try:
            if self._wanted is not None:
                seconds = min(seconds, max(self._send_at - time.monotonic(), 0.0))
            while not self.is_closed and self._channel.poll(seconds):
                self._do(*self._channel.recv())
                seconds = 0.0
            if self._wanted is not None and time.monotonic() >= self._send_at and not self.is_closed:
                self._send(*self._wanted)
        except (EOFError, OSError):  # the page has ended
            self.close()

    # Commands ---------------------------------------------------------------------------------------------------------

    def _do(self, command: str, *args: Any) -> None:
        """Run one command of the page; errors are shown there."""
        try:
            match command, *args:
                case "want", env, names:
                    self.is_watched = True
                    self._wanted = int(env), tuple(names)
                    if env != self._env:
                        self._send_at = 0.0
                case ("leave",):
                    self._leave()
                case (("pause" | "step" | "speed"), *_) if self._is_served:
                    self._scene.act(command, *args)
                case "pause", on:
                    if not on and getattr(self._scene, "is_over", False):
                        self._scene.seek(self._scene.span[0])
                    self.is_paused = bool(on)
                    self._restart_clock()
                case ("step",):
                    self.is_paused, self._steps = True, self._steps + 1
                case "speed", speed:
                    self.speed = float(speed)
                    self._restart_clock()
                case "reset", env:
                    self._scene.reset(None if env is None else [env])
                case "seek", when:
                    self._scene.seek(when)
                    self._restart_clock()
                case "set", name, knob, value, env:
                    self._set(name, knob, value, env)
                case ("close",):
                    self.close()
        except SensoriumError as error:
            self._notes.append(str(error))

    def _leave(self) -> None:
        """End the pause and the computations for the page, because no browser shows it."""
        self._wanted, self.is_watched, self.is_paused = None, False, False
        self._restart_clock()
        if self._is_served:
            self._scene.leave()
        else:
            self._scene.forget_poses()

    def _set(self, name: str, knob: str, value: Any, env: int | None) -> None:
        """Set a knob; a sensor without this knob is configured with it."""
        try:
            self._scene[name].set(knob, value, None if env is None else [env])
        except ConfigError:
            if not hasattr(self._scene, "reconfigure"):  # served by another process
                raise
            self._scene.reconfigure(name, **{knob: value})

    # Frames -----------------------------------------------------------------------------------------------------------

    def _send(self, env: int, names: tuple[str, ...]) -> None:
        """Publish the current state of one environment; without a browser only the description."""
        begin, scene = time.monotonic(), self._scene
        self._wanted = None
        env = min(env, scene.num_envs - 1)
        if env != self._env or scene.arrangement != self._arrangement or not self._names.issuperset(names):
            self._env, self._cursor = env, scene.sample_cursor()  # also samples sent before, now with ground truth
        self._names = frozenset(names)
        description = None
        if scene.arrangement != self._arrangement:
            self._arrangement, description = scene.arrangement, scene.description()
            self._drawn = {name: _is_drawn(info) for name, info in description.sensors.items()}
            if (self._is_served or hasattr(scene, "seek")) and not any(self._drawn.values()):
                self._drawn = dict.fromkeys(self._drawn, True)
        if self._is_served and self.is_watched:
            scene.listen(env)
            self._notes += scene.take_notes()
        readings, costs = self._readings(env, names) if self.is_watched else ({}, {})
        bodies = scene.body_poses(slice(env, env + 1))
        sensors = scene.sensors_in_use
        drawn = {name for name, sensor in sensors.items() if getattr(sensor, "debug_vis", self._drawn.get(name))}
        pace = scene if self._is_served else self
        frame = Frame(
            env, scene.time, readings, None if bodies is None else bodies[0],
            self._shapes(env, sensors) if self.is_watched else {},
            frozenset(drawn), costs, pace.is_paused, pace.speed, getattr(scene, "span", None), *_commands(scene),
            description, self._world, self._notes,
        )  # fmt: skip
        self._channel.send(frame)
        self.updates += 1
        self._world, self._notes = None, []
        is_free = self._has_time or description is not None
        took = 0.0 if is_free else time.monotonic() - begin
        self._send_at = begin + max(1.0 / RATE, min(took / SHARE, SLOWEST))

    def _readings(self, env: int, names: tuple[str, ...]) -> tuple[dict[str, Reading], dict[str, float]]:
        """Return the new readings of one environment, and the time that each took."""
        scene, readings, costs = self._scene, {}, {}
        known = [name for name in names if name in scene]
        for name in self._cursor.pending(dict.fromkeys([*scene.sensors_in_use, *known])):
            begin = time.perf_counter()
            found = scene.publish([name], since=self._cursor, envs=slice(env, env + 1), truth=name in names, poses=True)
            for reading in found.values():
                reading.measured  # noqa: B018 - waits for the copy
                readings[name] = replace(reading, specs=())  # the page has them from the description
            costs[name] = time.perf_counter() - begin
        return readings, costs

    def _shapes(self, env: int, sensors: Mapping[str, Any]) -> dict[str, list[DebugShape]]:
        """Return the drawings by `debug_draw` of the sensors, for one environment."""
        found, count = {}, self._scene.num_envs
        for name, sensor in sensors.items():
            if getattr(sensor, "draws_own_shapes", False) and sensor.debug_vis:
                try:
                    found[name] = [shape.only(env, count) for shape in sensor.drawings()]
                except Exception as error:  # of a plugin; the loop continues
                    self._notes.append(f"debug_draw of {name!r}: {type(error).__name__}: {error}")
        return found


def _is_drawn(info: Mapping[str, Any]) -> bool:
    return bool(info.get("cfg", {}).get("debug_vis"))


def _commands(scene: Any) -> tuple[frozenset[str], str]:
    """Return the commands that a source accepts, and the reason why it refuses those of the loop."""
    if hasattr(scene, "seek"):
        return LOOP - {"step"} | {"seek"}, ""
    refusal = str(getattr(scene, "refusal", ""))
    return frozenset({"reset", "set"}) | (frozenset() if refusal else LOOP), refusal
