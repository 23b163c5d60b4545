"""Client sensors: sensors that run in the client, on what it is told of the world in each frame.

An author derives from `ClientSensor`; defining the class registers it. The server only knows that such a sensor exists.
The base class gives snapshots to `on_tick` one at a time and in the order of frames, so that an author needs no locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, Self, TypeVar

from sensorium.client.callbacks import CallbackQueue, Callbacks
from sensorium.errors import ConfigError, StaleError
from sensorium.readings import Bodies
from sensorium.wire.attributes import ActorDescription, SensorDefinition
from sensorium.wire.owner import Owner, owner_of
from sensorium.wire.pose import Pose
from sensorium.wire.spawned import SpawnedSensor, check_envs, place, registry_of
from sensorium.wire.world import Snapshot

ENTRY_POINT_GROUP = "sensorium.client_sensors"
"""Where installed packages announce modules with client sensors."""

OURS = ("sensorium.client.lane_invasion",)
"""Modules with our own client sensors."""
REGISTRY = registry_of("client sensor", ENTRY_POINT_GROUP, OURS)

MAX_QUEUED = 1024
"""Events of one sensor that wait for its listener; more are lost, and counted."""


class Handle(Protocol):
    """Something that goes on until it is stopped."""

    def stop(self) -> object:
        """End it."""
        ...


class SensorHost(Protocol):
    """What a client sensor needs of its client."""

    @property
    def callbacks(self) -> Callbacks:
        """What the queues of its listeners share."""
        ...

    @property
    def bodies(self) -> Bodies:
        """The bodies of the world."""
        ...

    def on_tick(self, callback: Callable[[Snapshot], None], *, envs: range) -> Handle:
        """Have a snapshot of these environments in each frame, in order, on one thread, until it is stopped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEvent:
    """What a client sensor tells its listener; it has what all data have. Derive from it and add fields.

    Attributes:
        frame: number of the frame on the server.
        tick: physics tick of the frame.
        timestamp: simulation time of the frame, s.
        sensor: name of the sensor.
        env: number of the environment it is about.
        transform: pose of the sensor in the world; None if it was not given.
        events_lost: events that were lost before this one, since the listener was too slow.
    """

    frame: int
    tick: int
    timestamp: float
    sensor: str
    env: int = 0
    transform: Pose | None = None
    events_lost: int = 0

    @classmethod
    def at(cls, sensor: ClientSensor, snapshot: Snapshot, env: int | None = None, **values: Any) -> Self:
        """Return an event of a sensor at a snapshot.

        Args:
            sensor: who tells it.
            snapshot: what it saw.
            env: the environment; by default the first one of the sensor.
            values: the fields that the class adds.
        """
        env = sensor.envs.start if env is None else env
        return cls(
            frame=snapshot.frame,
            tick=snapshot.tick,
            timestamp=snapshot.time,
            sensor=sensor.name,
            env=env,
            transform=sensor.pose(snapshot, env),
            **values,
        )

    @property
    def time(self) -> float:
        """Simulation time of the frame, s: the timestamp."""
        return self.timestamp

    @property
    def age(self) -> float:
        """How old it was at its frame: 0 s."""
        return 0.0

    def copy(self) -> Self:
        """Return itself: it holds no memory of others."""
        return self


class ClientSensor(SpawnedSensor):
    """Base of client sensors: define `definition` and `on_tick`, and what else is needed of `set` and `set_owner`.

    The order of calls is: `__init__`, with the arguments that `client.spawn` was given for it, `set`, `set_owner`,
    then, for as long as somebody listens, `reset` once and `on_tick` in each frame; `close` at the end. `on_tick` is
    never run twice at the same time and sees frames in increasing order; those that arrive after a later one was seen
    are dropped and counted. A class that defines `definition` is registered under its id; one that inherits it
    registers nothing.
    """

    events: ClassVar[bool] = True
    """Whether its messages are events: it tells something only when something happens."""

    _registry = REGISTRY
    _host: SensorHost
    _queue: CallbackQueue[tuple[Callable[[Any], object], object]]
    _on_destroy: Callable[[], object] | None
    _lock: threading.RLock
    _ticking: threading.RLock
    _callback: Callable[[Any], object] | None
    _handle: Handle | None
    _frame: int
    _ticker: int
    _starts: int
    _late: int
    _lost: int
    _lost_since: int
    _fresh: bool
    _destroyed: bool

    # For the author ---------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget what was seen: somebody begins to listen, or the server was started anew.

        Called before the next `on_tick`, on its thread.
        """

    def on_tick(self, snapshot: Snapshot) -> object:
        """Look at the world in one frame.

        Returns:
            what the listener gets, e.g. a `ClientEvent`; None for nothing. For several things call `emit`.
        """
        raise NotImplementedError

    def emit(self, event: object) -> None:
        """Give something to the listener, on a thread of its own; without effect where nobody listens."""
        with self._lock:
            callback = self._callback
            if callback is None:
                return
            if len(self._queue.items) >= MAX_QUEUED:
                self._lost += 1
                self._lost_since += 1
                return
            if self._lost_since and isinstance(event, ClientEvent):
                event, self._lost_since = replace(event, events_lost=self._lost_since), 0
            self._queue.put([(callback, event)])

    @property
    def bodies(self) -> Bodies:
        """All bodies, by id or name."""
        return self._host.bodies

    def pose(self, snapshot: Snapshot, env: int | None = None) -> Pose:
        """Return where the sensor is in the world.

        Args:
            snapshot: the world.
            env: the environment; by default the first one of the sensor.

        Raises:
            IndexError: the snapshot does not hold that environment.
            ConfigError: the owner's state is no pose, e.g. not finite.
        """
        if self._owner is None:
            return self._transform
        return snapshot.pose(self._owner.body.id, self._envs.start if env is None else env) @ self._transform

    # For the user -----------------------------------------------------------------------------------------------------

    def listen(self, callback: Callable[[Any], object]) -> None:
        """Begin to work, and call the listener with what there is to tell, in order, on a thread of its own.

        A listener that was there before is replaced, and not called any more.

        Raises:
            StaleError: the sensor is destroyed.
            ConfigError: the listener cannot be called.
        """
        if not callable(callback):
            raise ConfigError.single(type(self).__name__, "listen", callback, "a function of one argument")
        with self._lock:
            self._check_alive()
            begins = self._callback is None
            self._queue.clear()
            self._callback, self._lost_since = callback, 0
            if begins:
                self._starts += 1
                self._fresh = True
            start = self._starts
        if begins:
            self._begin(start)
        elif self._ticker != threading.get_ident():
            self._queue.wait()

    def _begin(self, start: int) -> None:
        """Ask for snapshots, unless somebody has stopped it meanwhile."""
        try:
            handle = self._host.on_tick(self._tick, envs=self._envs)
        except BaseException:
            with self._lock:
                if self._starts == start:
                    self._callback = None
            raise
        with self._lock:
            wanted = self._callback is not None and self._starts == start
            if wanted:
                self._handle = handle
        if not wanted:
            handle.stop()

    def stop(self) -> None:
        """Stop listening and working; from now on the listener is not called. May be called again.

        It waits until a running call of the listener, and of `on_tick`, has ended, but not from within.
        """
        with self._lock:
            self._callback = None
            self._queue.clear()
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.stop()
        if self._ticker == threading.get_ident():
            return
        if self._ticking.acquire(timeout=self._host.callbacks.patience):
            self._ticking.release()
        self._queue.wait()

    def destroy(self) -> None:
        """Stop, and let go of everything. May be called again."""
        with self._lock:
            destroyed, self._destroyed = self._destroyed, True
        self.stop()
        if not destroyed:
            self._queue.close()
            try:
                self.close()
            finally:
                if self._on_destroy is not None:
                    self._on_destroy()

    @property
    def is_listening(self) -> bool:
        """Whether somebody listens."""
        return self._callback is not None

    @property
    def is_alive(self) -> bool:
        """Whether it is not destroyed."""
        return not self._destroyed

    @property
    def dropped(self) -> int:
        """Snapshots that arrived after a later one had been seen, and were therefore left out."""
        return self._late

    @property
    def events_lost(self) -> int:
        """Events that were lost since the listener was too slow."""
        return self._lost

    def __repr__(self) -> str:
        on = f" on {self._owner.body.name!r}" if self._owner is not None else ""
        state = "destroyed" if self._destroyed else "listening" if self.is_listening else "stopped"
        return f"<{type(self).__name__} {self._name!r}{on}: {state}>"

    # Ticks ------------------------------------------------------------------------------------------------------------

    def _prepare(self, host: SensorHost, name: str) -> None:
        self._host = host
        self._queue = CallbackQueue(name, partial(_call, name, host.callbacks), host.callbacks)  # it holds no sensor
        self._lock, self._ticking = threading.RLock(), threading.RLock()
        self._callback = self._handle = self._on_destroy = None
        self._frame = -1  # the newest that was seen
        self._ticker = 0  # the thread that is in on_tick
        self._starts = self._late = self._lost = self._lost_since = 0
        self._fresh = self._destroyed = False

    def restart(self) -> None:
        """Forget what was seen: the server is a new one, which counts its frames from the start."""
        with self._lock:
            self._frame, self._fresh = -1, True

    def _check_alive(self) -> None:
        if self._destroyed:
            raise StaleError(f"sensor {self._name!r} is destroyed.")

    def _tick(self, snapshot: Snapshot) -> None:
        """Look at a snapshot, unless a later one was seen."""
        with self._ticking:
            with self._lock:
                if self._callback is None:
                    return
                if snapshot.frame <= self._frame:
                    self._late += 1
                    return
                self._frame = snapshot.frame
                fresh, self._fresh = self._fresh, False
            before, self._ticker = self._ticker, threading.get_ident()
            try:
                if fresh:
                    self.reset()
                told = self.on_tick(snapshot)
                if told is not None:
                    self.emit(told)
            except BaseException as error:  # as of listeners
                self._host.callbacks.errors.report(self._name, self.on_tick, error)
            finally:
                self._ticker = before


def _call(name: str, callbacks: Callbacks, item: tuple[Callable[[Any], object], object]) -> None:
    """Call a listener with an event of a sensor."""
    callback, event = item
    try:
        callback(event)
    except BaseException as error:
        callbacks.errors.report(name, callback, error)


S = TypeVar("S", bound=ClientSensor)


def spawn(
    cls: type[S],
    host: SensorHost,
    name: str,
    description: ActorDescription,
    *,
    envs: range = range(1),
    transform: Pose | None = None,
    owner: Owner | None = None,
    on_destroy: Callable[[], object] | None = None,
    **arguments: Any,
) -> S:
    """Make a client sensor: build it, give it its attributes, then its owner. It begins to work with its listener.

    Args:
        cls: its class.
        host: the client it runs in.
        name: its name.
        description: blueprint and chosen attributes.
        envs: the environments it is for, one after the other.
        transform: its pose relative to the owner, else in the world.
        owner: what it is attached to.
        on_destroy: called once, when it has been destroyed.
        arguments: for its `__init__`.

    Raises:
        ConfigError: environments that do not follow each other.
        Exception: what its own `__init__`, `set` and `set_owner` raise; it then was closed.
    """
    check_envs(cls, envs)
    sensor = cls(**arguments)
    sensor._prepare(host, name)
    place(sensor, name, description, envs, transform, owner)
    try:
        sensor.set(description)
        sensor.set_owner(owner)
    except BaseException:
        sensor.destroy()
        raise
    sensor._on_destroy = on_destroy
    return sensor


# Registry -------------------------------------------------------------------------------------------------------------


def registered() -> dict[str, type[ClientSensor]]:
    """Return all client sensors that are known, by id: ours, those of plugins, and those defined so far.

    A plugin that cannot be loaded is reported by name, once, and takes nothing down.
    """
    return REGISTRY.registered()


def definitions() -> dict[str, SensorDefinition]:
    """Return the definitions of all client sensors that are known, by id."""
    return {id: replace(cls.definition(), where="client") for id, cls in registered().items()}


def find(id: str) -> type[ClientSensor]:
    """Return the client sensor with an id.

    Raises:
        UnknownNameError: there is none; the message has the nearest, and the plugins that could not be loaded.
    """
    return REGISTRY.find(id)


__all__ = [
    "ClientEvent", "ClientSensor", "Owner", "SensorHost", "definitions", "find", "owner_of", "registered", "spawn",
]  # fmt: skip
