"""Client sensors: sensors that run in the client and compute their output from the state of the world in each frame.

An author derives a class from `ClientSensor`; the class definition registers it. The server knows only that such a
sensor exists. The base class passes snapshots to `on_tick` one at a time, in the order of frames. An author therefore
needs no locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from sensorium.client import checks
from sensorium.client.callbacks import CallbackQueue, Callbacks
from sensorium.errors import StaleError
from sensorium.pose import Pose
from sensorium.readings import Bodies
from sensorium.wire.attributes import ActorDescription, SensorDefinition
from sensorium.wire.spawned import SpawnedSensor, registry_of
from sensorium.wire.world import Owner, Snapshot

if TYPE_CHECKING:
    from sensorium.client.client import Client
    from sensorium.client.subscription import Subscription

ENTRY_POINT_GROUP = "sensorium.client_sensors"
"""Entry point group in which installed packages announce modules with client sensors."""

OURS = ("sensorium.client.lane_invasion",)
"""Modules with built-in client sensors."""
REGISTRY = registry_of("client sensor", ENTRY_POINT_GROUP, OURS)

MAX_QUEUED = 1024
"""Maximum number of events of one sensor that wait for its listener; further events are lost and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEvent:
    """Event that a client sensor passes to its listener, with the attributes of all data; derive from it to add fields.

    Attributes:
        frame: number of the frame on the server.
        tick: physics tick of the frame.
        timestamp: simulation time of the frame, s.
        sensor: name of the sensor.
        env: index of the environment of the event.
        transform: pose of the sensor in the world; None if it was not given.
        events_lost: number of events lost before this one because the listener was too slow.
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
            sensor: the sensor that emits the event.
            snapshot: the snapshot that the event refers to.
            env: the environment; the first environment of the sensor by default.
            values: values of the fields that the class adds.
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
        """Simulation time of the frame, s; equal to `timestamp`."""
        return self.timestamp

    @property
    def age(self) -> float:
        """Age of the event at its frame; always 0 s."""
        return 0.0

    def copy(self) -> Self:
        """Return the event itself, because it holds no shared memory."""
        return self


class ClientSensor(SpawnedSensor):
    """Base class of client sensors; subclasses define `definition` and `on_tick`, and optionally `set` and `set_owner`.

    The calls have a fixed order. `__init__` comes first, with the arguments given to `client.spawn`, followed by `set`
    and, if the sensor is attached to a body, `set_owner`. While a listener is registered, `reset` runs once and
    `on_tick` runs in each frame. `close` comes last.

    Calls of `on_tick` never overlap and see frames in increasing order. Snapshots that arrive after a later frame are
    dropped and counted. A class that defines `definition` is registered under its id; a class that inherits
    `definition` is not registered.
    """

    events: ClassVar[bool] = True
    """Whether the messages are events, which are sent only when something happens."""
    is_alive: bool
    """Whether the sensor has not been destroyed."""
    dropped: int
    """Number of snapshots that were dropped because they arrived after a later one."""
    events_lost: int
    """Number of events lost because the listener was too slow."""

    _registry = REGISTRY

    def _prepare(self, host: Client, name: str) -> None:
        self._host = host
        self._queue = CallbackQueue(name, partial(_call, name, host.callbacks), host.callbacks)  # it holds no sensor
        self._lock, self._ticking = threading.RLock(), threading.RLock()
        self._callback: Callable[[Any], object] | None = None
        self._handle: Subscription | None = None
        self._on_destroy: Callable[[], object] | None = None
        self._frame = -1  # newest frame that was seen
        self._lost_since = 0
        self._fresh = False
        self.dropped = self.events_lost = 0
        self.is_alive = True

    # For the author ---------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all previous frames: a listener has been registered, or the server has been restarted.

        The method runs before the next `on_tick`, on the same thread.
        """

    def on_tick(self, snapshot: Snapshot) -> object:
        """Process the state of the world in one frame.

        Returns:
            the object passed to the listener, e.g. a `ClientEvent`; None for nothing. Call `emit` for several objects.
        """
        raise NotImplementedError

    def emit(self, event: object) -> None:
        """Pass an object to the listener on its dedicated thread; has no effect without a listener."""
        with self._lock:
            callback = self._callback
            if callback is None:
                return
            if len(self._queue.items) >= MAX_QUEUED:
                self.events_lost += 1
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
        """Return the pose of the sensor in the world.

        Args:
            snapshot: the state of the world.
            env: the environment; the first environment of the sensor by default.

        Raises:
            IndexError: the snapshot does not contain that environment.
            ConfigError: the state of the owner is not a valid pose, e.g. not finite.
        """
        if self.owner is None:
            return self.transform
        return snapshot.pose(self.owner.body.id, self.envs.start if env is None else env) @ self.transform

    # For the user -----------------------------------------------------------------------------------------------------

    def listen(self, callback: Callable[[Any], object]) -> None:
        """Start the sensor and call the listener with its output, in order, on a dedicated thread.

        The listener replaces the previous listener, which is not called again.

        Raises:
            StaleError: the sensor is destroyed.
            ConfigError: the listener is not callable.
        """
        checks.function(type(self).__name__, "listen", callback)
        with self._lock:
            if not self.is_alive:
                raise StaleError(f"the sensor {self.name!r} was destroyed.")
            self._queue.clear()
            before, self._callback, self._lost_since = self._callback, callback, 0
            if before is None:
                self._fresh = True
                try:
                    self._handle = self._host.on_tick(self._tick, envs=self.envs)
                except BaseException:
                    self._callback = None
                    raise
        if before is not None:
            self._queue.wait()

    def stop(self) -> None:
        """Stop the sensor; the listener is not called again. Repeated calls are allowed.

        The call waits until running calls of the listener and of `on_tick` have ended, except when made from within
        them.
        """
        with self._lock:
            self._callback = None
            self._queue.clear()
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.stop()
        self._queue.wait()

    def destroy(self) -> None:
        """Stop the sensor and release all its resources. Repeated calls are allowed."""
        with self._lock:
            was_alive, self.is_alive = self.is_alive, False
        self.stop()
        if was_alive:
            self._queue.close()
            try:
                self.close()
            finally:
                if self._on_destroy is not None:
                    self._on_destroy()

    @property
    def is_listening(self) -> bool:
        """Whether a listener is registered."""
        return self._callback is not None

    def __repr__(self) -> str:
        on = f" on {self.owner.body.name!r}" if self.owner is not None else ""
        state = "destroyed" if not self.is_alive else "listening" if self.is_listening else "stopped"
        return f"<{type(self).__name__} {self.name!r}{on}: {state}>"

    # Ticks ------------------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Forget all previous frames: a new server counts its frames from the start."""
        with self._lock:
            self._frame, self._fresh = -1, True

    def _tick(self, snapshot: Snapshot) -> None:
        """Process a snapshot, unless a later one was already processed."""
        with self._ticking:  # a sensor that its own on_tick stops and starts again has a second thread
            with self._lock:
                if self._callback is None:
                    return
                if snapshot.frame <= self._frame:
                    self.dropped += 1
                    return
                self._frame = snapshot.frame
                fresh, self._fresh = self._fresh, False
            try:
                if fresh:
                    self.reset()
                if (result := self.on_tick(snapshot)) is not None:
                    self.emit(result)
            except BaseException as error:  # as for listeners
                self._host.callbacks.report(self.name, self.on_tick, error)


def _call(name: str, callbacks: Callbacks, item: tuple[Callable[[Any], object], object]) -> None:
    """Call a listener with an event of a sensor."""
    callback, event = item
    try:
        callback(event)
    except BaseException as error:
        callbacks.report(name, callback, error)


S = TypeVar("S", bound=ClientSensor)


def spawn(
    cls: type[S],
    host: Client,
    name: str,
    description: ActorDescription,
    *,
    envs: range = range(1),
    transform: Pose | None = None,
    owner: Owner | None = None,
    on_destroy: Callable[[], object] | None = None,
    **arguments: Any,
) -> S:
    """Create a client sensor, set its attributes and then its owner; the sensor starts when a listener is registered.

    Args:
        cls: class of the sensor.
        host: client in which the sensor runs.
        name: name of the sensor.
        description: blueprint and chosen attributes.
        envs: contiguous range of environments.
        transform: pose relative to the owner, or in the world without an owner.
        owner: the object to which the sensor is attached.
        on_destroy: function called once, after the sensor has been destroyed.
        arguments: arguments of its `__init__`.

    Raises:
        Exception: any exception of its `__init__`, `set` or `set_owner`; after `set` or `set_owner`, the sensor is
            destroyed.
    """
    sensor = cls(**arguments)
    sensor._prepare(host, name)
    try:
        sensor.begin(name, description, envs=envs, transform=transform, owner=owner)
    except BaseException:
        sensor.destroy()
        raise
    sensor._on_destroy = on_destroy
    return sensor


# Registry -------------------------------------------------------------------------------------------------------------


def definitions() -> dict[str, SensorDefinition]:
    """Return the definitions of all known client sensors by id."""
    return {id: replace(cls.definition(), where="client") for id, cls in REGISTRY.registered().items()}
