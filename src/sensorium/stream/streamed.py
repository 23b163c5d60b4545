"""Streamed sensors: sensors that run in the server, process the bodies of the world in each frame, and send messages.

Authors derive from `StreamedSensor`; the definition of the class registers it. It needs a `definition` (the user's
settings) and, to send messages, a serializer. A frame is a time at which the server evaluates its sensors. Messages
have the frame, time and pose of their measurement, even if a worker thread sends them later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sensorium.drawing import composed
from sensorium.errors import RegistrationError, SensoriumError, shown
from sensorium.readings import Array, Bodies, Reading
from sensorium.stream.publisher import Moment, Publisher
from sensorium.stream.sending import Stream
from sensorium.stream.subscription_table import LOG, Topic
from sensorium.wire.attributes import ActorDescription
from sensorium.wire.data import Item
from sensorium.wire.failures import Failure, Failures
from sensorium.wire.serializers import Serializer
from sensorium.wire.spawned import SpawnedSensor, registry_of
from sensorium.wire.world import Snapshot

if TYPE_CHECKING:
    from sensorium.scene import Scene

ENTRY_POINT_GROUP = "sensorium.streamed"
"""Entry-point group in which installed packages announce modules with streamed sensors."""

WORLD = "world"
"""Name of the stream with the state of all bodies."""
WORKERS = 2
"""Number of worker threads for streamed sensors."""
PATIENCE = 5.0
"""Longest wait for the worker threads at the end, s."""

REGISTRY = registry_of("streamed sensor", ENTRY_POINT_GROUP, ())


class StreamedSensor(SpawnedSensor):
    """Base of streamed sensors: define `definition`, `serializer` and, as needed, `set`, `set_owner` and `tick`.

    The order of calls is `__init__` without arguments, `set`, `set_owner` if it is attached to a body, then `tick` in
    each frame, and `close` at the end. All run on the simulation's thread. Settings and owner are available from `set`
    on. A class that defines `definition` is registered under its id; a class that inherits it is not registered.

    Raises:
        RegistrationError: at the definition of a class without `definition` or `serializer`, own or inherited.
    """

    serializer: ClassVar[type[Serializer]]
    """Serializer that converts the arguments of `stream.send` to bytes, and the bytes to data on the other side."""
    events: ClassVar[bool] = False
    """Whether its messages are events, which are never replaced by newer ones."""

    is_within_step: bool = False
    """Whether further ticks of the same control step follow this frame; updated before each `tick`."""

    _registry = REGISTRY
    bodies: Bodies
    """All bodies, by id or name."""
    stream: Stream
    """Sending interface of the sensor."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if not any("definition" in vars(base) for base in cls.__mro__ if base is not SpawnedSensor):
            cls.definition()  # raises
        serializer = getattr(cls, "serializer", None)
        if not (isinstance(serializer, type) and issubclass(serializer, Serializer)):
            got = "is missing" if serializer is None else f"is {shown(serializer)}"
            raise RegistrationError(f"{cls.__qualname__}.serializer {got}, expected a subclass of Serializer")
        super().__init_subclass__(**kwargs)

    def about_drawing(self) -> dict[str, Any]:
        """Return data that viewers draw with each message; called once, after `set` and `set_owner`.

        ``"box"``: centre and half extents of a box in the frame of the sensor, six numbers, m. It is red, because a
        message reports something inside.
        """
        return {}

    def tick(self, snapshot: Snapshot) -> None:
        """Measure, and send messages; called in every frame. An exception ends the sensor."""

    @property
    def listeners(self) -> bool:
        """Whether the sensor has listeners."""
        return self.stream.has_listeners

    def pose(self, snapshot: Snapshot) -> Array:
        """Return the pose of the sensor in the world, float64 `[env, 7]`: position in m, orientation wxyz."""
        own = self.transform.to_array()
        own[3:] /= np.linalg.norm(own[3:])  # the length may differ slightly from 1
        if self.owner is None:
            return np.tile(own, (len(self.envs), 1))
        rows, body = self.rows(snapshot), snapshot.bodies.row(self.owner.body.id)
        quat = snapshot.quat_w[rows, body].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # states may be invalid
            quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
        return composed(np.concatenate((snapshot.pos_w[rows, body], quat), axis=-1), own)


# Use by the server ----------------------------------------------------------------------------------------------------


def spawn(
    cls: type[StreamedSensor],
    name: str,
    description: ActorDescription,
    host: StreamedSensors,
    bodies: Bodies,
    **place: Any,
) -> StreamedSensor:
    """Create a streamed sensor: construct it, set its attributes, then its owner.

    Args:
        cls: its class.
        name: its name in the server.
        description: blueprint and chosen attributes.
        host: the sensors of the server.
        bodies: all bodies of the world.
        place: further arguments of `SpawnedSensor.begin`.

    Raises:
        Exception: any exception of its `__init__`, `set` and `set_owner`; after a failed `set` or `set_owner` it is
            closed.
    """
    sensor = cls()
    sensor.bodies, sensor.stream = bodies, Stream(sensor, host, name)
    try:
        sensor.begin(name, description, **place)
    except BaseException:
        sensor.stream.close()
        sensor.close()
        raise
    return sensor


def run_tick(sensor: StreamedSensor, snapshot: Snapshot, failures: Failures) -> Failure | None:
    """Run the tick of a sensor; return the failure that ends it, or None.

    Args:
        sensor: the sensor.
        snapshot: the bodies at the frame in progress.
        failures: log that receives its exception with its name.
    """
    try:
        with sensor.stream.ticking():
            sensor.tick(snapshot)
    except Exception as error:
        return failures.add(sensor.name, "tick", error, snapshot.frame)
    return None


def end(sensor: StreamedSensor, failures: Failures) -> None:
    """Close a sensor and its stream; an exception in its `close` is reported."""
    sensor.stream.close()
    try:
        sensor.close()
    except Exception as error:
        failures.add(sensor.name, "close", error)


class StreamedSensors:
    """Streamed sensors of one server. All methods run on the thread of the loop's owner, except sending by workers.

    Args:
        scene: the scene.
        bodies: all bodies of the world.
        topics: name -> stream of the server.
        publisher: publisher of their messages.
    """

    def __init__(self, scene: Scene, bodies: Bodies, topics: Mapping[str, Topic], publisher: Publisher) -> None:
        self._scene, self._bodies, self._topics, self.publisher = scene, bodies, topics, publisher
        self.sensors: dict[str, StreamedSensor] = {}
        """Name -> sensor."""
        self.failures = Failures(LOG)
        """Exceptions of streamed sensors."""
        self.world: Reading | None = None
        """Newest reading of the state of all bodies; None while it is not known."""
        self.running: dict[Future[Any], str] = {}
        """Work of `send_async` that is queued or running, with the name of its sensor."""
        self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="sensorium-streamed")
        self._frame: tuple[Snapshot, int] | None = None

    def remove(self, name: str) -> None:
        """End a sensor; unknown names have no effect."""
        if (sensor := self.sensors.pop(name, None)) is not None:
            end(sensor, self.failures)
        if not self.sensors:
            self.world = None

    # Used by the streams ----------------------------------------------------------------------------------------------

    def in_progress(self, name: str) -> tuple[Snapshot, int]:
        """Return the bodies at the frame in progress, and its wall clock, ns; called on the simulation's thread."""
        if self._frame is None:
            raise SensoriumError(f"Sensor {name!r}: stream.send was called outside tick.")
        return self._frame

    def has_listeners(self, name: str) -> bool:
        """Return whether a stream has listeners."""
        topic = self._topics.get(name)
        return topic is not None and bool(topic.subscriptions)

    def send(self, name: str, items: Sequence[Item], moment: Moment, *, is_lasting: bool = True) -> None:
        """Send messages of a sensor, on the sending thread; those that may change are copied at once."""
        if (topic := self._topics.get(name)) is not None:
            self.publisher.messages(topic, items, moment, is_lasting=is_lasting)

    def submit(self, name: str, function: Callable[..., Any], *args: Any) -> None:
        """Run a function of a sensor on a worker thread.

        Raises:
            RuntimeError: the server is closing.
        """
        future = self._executor.submit(function, *args)
        self.running[future] = name
        future.add_done_callback(lambda done: self.running.pop(done, None))

    # Used by the server -----------------------------------------------------------------------------------------------

    def tick(self, frame: int, wall_ns: int) -> Iterator[tuple[str, Failure]]:
        """Run the ticks of all sensors; yield the name and failure of each sensor that must end.

        Args:
            frame: number of the frame.
            wall_ns: its wall clock, ns since 1970.
        """
        if self.world is None:
            self.world = self._scene.publish([WORLD], truth=False, poses=True)[WORLD]
        state = {name: self.world[name] for name in ("pos_w", "quat_w", "lin_vel_w", "ang_vel_w")}
        scene, envs = self._scene, self.world.env_ids
        snapshot = Snapshot(frame, scene.tick, scene.time, self._bodies, envs, **state)
        self._frame = snapshot, wall_ns
        for name, sensor in list(self.sensors.items()):
            if name not in self.sensors:  # removed by another sensor
                continue
            sensor.is_within_step = scene.is_within_step
            failure = run_tick(sensor, snapshot, self.failures)
            if failure is not None:
                yield name, failure
        self._frame = None

    def close(self) -> None:
        """End all sensors and the threads permanently."""
        for sensor in self.sensors.values():
            end(sensor, self.failures)
        self.sensors.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)
        running = dict(self.running)
        late = wait(running, PATIENCE).not_done
        for name in sorted({running[each] for each in late}):
            text = "Sensor %r: a function of send_async still runs %g s after the end of the server and is abandoned"
            LOG.warning(text, name, PATIENCE)
        if not late:
            self._executor.shutdown(wait=True)
