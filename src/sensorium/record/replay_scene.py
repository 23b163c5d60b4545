"""A recording that replaces a scene: a server streams it like a scene."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from sensorium.errors import ScheduleError, SensoriumWarning, UnknownNameError, UnsupportedError
from sensorium.readings import Bodies, Reading, SceneDescription, read_only
from sensorium.record.batches import of_envs
from sensorium.record.recorder import WORLD_FILE
from sensorium.record.replay import replay
from sensorium.spec import FieldSpec

WORLD = "world"
"""Name of the sensor with the poses of all bodies, as servers name it."""
FIXED = "a recording has only the sensors that it holds"


@dataclass(slots=True)
class ReplaySensor:
    """A recorded sensor.

    Attributes:
        name: its name.
        newest: its newest reading; None before the first.
        samples: number of its readings so far.
        arrivals: number of them with a new measured value.
        buffers: data of outputs about a sensor: the number of listeners.
        debug_vis: whether viewers draw it, by its config.
    """

    draws_own_shapes: ClassVar[bool] = False

    name: str
    newest: Reading | None = None
    samples: int = 0
    arrivals: int = 0
    buffers: Any = field(default_factory=lambda: SimpleNamespace(listeners=0, poses=None))
    is_retired: bool = False
    debug_vis: bool = False

    def mounts_on_bodies(self, env: int) -> None:
        """Return None: the places of mounts on their bodies are not recorded."""

    def take(self, reading: Reading) -> None:
        """Note a reading."""
        before = self.newest
        self.samples += 1
        if before is None or any(
            not np.array_equal(reading.meta[name], before.meta[name]) for name in ("capture_tick", "valid", "frame")
        ):
            self.arrivals += 1
        self.newest = reading


class ReplayWatch:
    """Callback of `ReplayScene.watch`."""

    sensors: Iterable[Any] = ()

    def __init__(self, callback: Callable[[], object], watches: list[ReplayWatch]) -> None:
        self.callback, self._watches = callback, watches
        watches.append(self)

    def close(self) -> None:
        """Stop calling the callback. Closing twice has no effect."""
        if self in self._watches:
            self._watches.remove(self)


class ReplayCursor:
    """Samples that one output has not taken yet, like `SampleCursor`."""

    def __init__(self, scene: ReplayScene) -> None:
        self._scene = scene
        self._taken: dict[str, tuple[int, int]] = {}

    def pending(self, names: Iterable[str] | None = None, *, truth: bool = True) -> list[str]:
        """Return the names of sensors with new data; see `SampleCursor.pending`."""
        found = []
        for name in self._scene if names is None else names:
            sensor = self._scene[name]
            samples, arrivals = self._taken.get(name, (0, 0))
            if (sensor.samples if truth else sensor.arrivals) > (samples if truth else arrivals):
                found.append(name)
        return found

    def mark_taken(self, sensor: ReplaySensor) -> None:
        """Note that the current sample of a sensor was taken."""
        self._taken[sensor.name] = sensor.samples, sensor.arrivals

    def skip(self, sensor: ReplaySensor, tick: int) -> None:
        """Note that samples up to a tick were taken."""
        if sensor.newest is not None and sensor.newest.tick <= tick:
            self.mark_taken(sensor)


class ReplayScene:
    """A recording with the interface of a scene that `sensorium.serve` uses; `step` advances to the next samples.

    Readings with other fields than described, such as those of a sensor before it was replaced, are omitted with a
    warning.

    Args:
        path: the file.

    Raises:
        ModelError: the file is missing, is not a recording of sensorium, or is damaged.
        MissingDependencyError: the extra `record` is not installed.
    """

    is_within_step = False
    arrangement = 0
    presets: Mapping[str, Any] = {}

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.replay = replay(path)
        about = self.replay.description
        self._description = replace(about, num_envs=len(self.replay.env_ids))
        self._poses = self._world_readings()
        self._next_poses = next(self._poses, None)
        if self._next_poses is not None:
            names, specs = list(self.bodies().names), [spec.to_dict() for spec in self._next_poses.specs]
            world = {"kind": "body_state", "rate_hz": 0.0, "fields": specs, "mounts": names, "cfg": {}}
            about = self._description = replace(self._description, sensors={**about.sensors, WORLD: world})
        self._sensors = {
            name: ReplaySensor(name, debug_vis=bool(sensor["cfg"].get("debug_vis")))
            for name, sensor in about.sensors.items()
        }
        self._specs = {
            name: tuple(FieldSpec.from_dict(each) for each in sensor["fields"])
            for name, sensor in about.sensors.items()
        }
        self._differing: set[str] = set()
        """Sensors with omitted readings."""
        self._frames = self.replay.frames()
        self._next: dict[str, Reading] | None = next(self._frames, None)
        first = next(iter(self._next.values())).tick if self._next else 0
        self.engine = SimpleNamespace(name=about.engine, dt=about.dt, tick=first)
        self.compute = SimpleNamespace(is_loading=None, memory=SimpleNamespace(within=_no_spawning))
        self._watches: list[ReplayWatch] = []
        self._advance(first)

    def __getitem__(self, name: str) -> ReplaySensor:
        if name not in self._sensors:
            raise UnknownNameError("recorded sensor", name, self._sensors)
        return self._sensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._sensors

    def places(self) -> Any:
        """Return a stand-in for `Places`: the places of mounts on their bodies are not recorded."""
        return SimpleNamespace(have_changed=lambda sensors, tick: False)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sensors)

    def __len__(self) -> int:
        return len(self._sensors)

    @property
    def sensors(self) -> Mapping[str, ReplaySensor]:
        """Name -> recorded sensor."""
        return self._sensors

    @property
    def num_envs(self) -> int:
        """Number of recorded environments; they are numbered from 0."""
        return self._description.num_envs

    @property
    def tick(self) -> int:
        """Physics tick."""
        return int(self.engine.tick)

    @property
    def time(self) -> float:
        """Simulation time, s."""
        return self.tick * self._description.dt

    @property
    def is_over(self) -> bool:
        """Whether the recording is at its end."""
        return self._next is None

    def description(self) -> SceneDescription:
        """Return the description of the recorded scene."""
        return self._description

    @property
    def sensors_in_use(self) -> Mapping[str, ReplaySensor]:
        """Name -> recorded sensor."""
        return self._sensors

    @property
    def span(self) -> tuple[float, float]:
        """First and last time, s."""
        return self.replay.start, self.replay.end

    def bodies(self) -> Bodies:
        """Return all bodies of the recorded model."""
        return self.replay.bodies

    def world_file(self) -> bytes:
        """Return the description of the world; see `Scene.world_file`."""
        return self.replay.attachment(WORLD_FILE[0]) or b""

    def _world_readings(self, start: float = -inf) -> Iterator[Reading]:
        """Yield the recorded poses of all bodies as readings of `WORLD`, unless it was recorded itself.

        Velocities are not recorded: NaN.
        """
        if WORLD in self.replay.description.sensors:
            return
        bodies, envs = self.bodies(), len(self.replay.env_ids)
        axes, shape = ("mount", "xyz"), (len(bodies), 3)
        specs = (
            FieldSpec("pos_w", axes, shape, "float32", "m", "world", "vector", "point"),
            FieldSpec("quat_w", ("mount", "wxyz"), (len(bodies), 4), "float32", "1", "world", "rotation", "pose"),
            FieldSpec("lin_vel_w", axes, shape, "float32", "m/s", "world", "vector", "vector_at"),
            FieldSpec("ang_vel_w", axes, shape, "float32", "rad/s", "world", "vector", "angular_velocity"),
        )
        unknown = np.full((envs, len(bodies), 3), np.nan, np.float32)
        for time, poses in self.replay.body_poses(start):
            tick = round(time / self._description.dt)
            values = {"pos_w": poses[..., :3], "quat_w": poses[..., 3:], "lin_vel_w": unknown, "ang_vel_w": unknown}
            meta = {"capture_tick": np.full(envs, tick), "frame": np.full(envs, tick), "valid": np.ones(envs, bool),
                    "is_new": np.ones(envs, bool)}  # fmt: skip
            yield Reading(WORLD, "body_state", specs, self.replay.env_ids, tick, time, values, values, meta,
                          _dt=self._description.dt)  # fmt: skip

    def seek(self, when: float) -> None:
        """Continue at another time, s; the newest readings before it are shown."""
        now = round(min(max(when, self.span[0]), self.span[1]) / self._description.dt)
        self._frames = self.replay.frames(start=now * self._description.dt)
        self._next = next(self._frames, None)
        self._poses = self._world_readings(now * self._description.dt)
        self._next_poses = next(self._poses, None)
        if self._next_poses is not None:
            self._take({WORLD: replace(self._next_poses, tick=now, time=now * self._description.dt)})
        time = now * self._description.dt
        found = self.replay.at(time)  # all are new at this tick, also those of slow sensors
        self._take({name: replace(reading, tick=now, time=time) for name, reading in found.items()})
        self.engine.tick = now
        for watch in self._watches[:]:
            watch.callback()

    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Advance by `substeps` ticks; the callbacks of `watch` run at each recorded frame.

        Raises:
            ScheduleError: controls were given.
        """
        if ctrl is not None:
            raise ScheduleError("a recording cannot be controlled. Call step() without controls.")
        self._advance(self.tick + substeps)

    def _advance(self, tick: int) -> None:
        """Take all frames up to a tick."""
        while self._next is not None or self._next_poses is not None:
            frame, poses = self._next or {}, {} if self._next_poses is None else {WORLD: self._next_poses}
            ticks = [next(iter(each.values())).tick for each in (frame, poses) if each]
            now = min(ticks)
            if now > tick:
                break
            self.engine.tick = now
            if frame and ticks[0] == now:
                self._take(frame)
                self._next = next(self._frames, None)
            if poses and ticks[-1] == now:
                self._take(poses)
                self._next_poses = next(self._poses, None)
            for watch in self._watches[:]:
                watch.callback()
        self.engine.tick = tick

    def _take(self, readings: Mapping[str, Reading]) -> None:
        """Note new readings; those with other fields than described are omitted."""
        for name, reading in readings.items():
            if reading.specs == self._specs[name]:
                numbers = read_only(np.arange(len(reading.env_ids)))
                self._sensors[name].take(replace(reading, env_ids=numbers))
            elif name not in self._differing:
                self._differing.add(name)
                text = f"{name}: some readings are omitted, because their fields differ from the described ones."
                warnings.warn(text, SensoriumWarning, stacklevel=2)

    def watch(self, callback: Callable[[], object], *, every_tick: bool = False) -> ReplayWatch:
        """Call a function at each recorded frame; see `Scene.watch`."""
        return ReplayWatch(callback, self._watches)

    def sample_cursor(self) -> ReplayCursor:
        """Return a record of the samples that one output has taken; see `Scene.sample_cursor`."""
        return ReplayCursor(self)

    def publish(
        self,
        names: Iterable[str] | None = None,
        *,
        since: ReplayCursor | None = None,
        envs: slice | None = None,
        truth: bool = True,
        poses: bool = False,
        copy: bool = True,
    ) -> dict[str, Reading]:
        """Return the newest readings; see `Scene.publish`. They have their own memory."""
        out = {}
        for name in self if names is None else names:
            sensor = self[name]
            if sensor.newest is None:
                continue
            reading = sensor.newest
            if envs is not None:
                reading = of_envs(reading, np.arange(self.num_envs)[envs])
            out[name] = replace(reading, _truth=reading._truth if truth else {}, _pose=reading.pose if poses else None)
            if since is not None:
                since.mark_taken(sensor)
        return out

    def reset(self, env_ids: Any = None, **state: Any) -> None:
        """Raise `ScheduleError`: a recording cannot be reset."""
        raise ScheduleError("a recording cannot be reset. Open it again to start over.")

    def compute_on_demand(self, name: str) -> bool:
        """Return False: recorded sensors cost nothing."""
        return False

    def forget_poses(self, names: Iterable[str] | None = None) -> None:
        """Keep everything: recorded poses cost nothing."""

    def add(self, cfg: Any) -> Any:
        """Raise `UnsupportedError`: a recording has the sensors that were recorded."""
        raise UnsupportedError(cfg.label, "a simulation", "replay", FIXED)


def _no_spawning(*_: Any) -> Any:
    """Raise `UnsupportedError`: clients cannot spawn sensors in a recording."""
    raise UnsupportedError("of a client", "a simulation", "replay", FIXED)
