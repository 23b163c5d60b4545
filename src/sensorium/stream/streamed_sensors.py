"""Streamed sensors of one server: their input in each frame, their sending, and their threads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from sensorium.errors import SensoriumError
from sensorium.readings import Bodies
from sensorium.stream import streamed
from sensorium.stream.catalog import StreamCatalog
from sensorium.stream.failures import LOG, FailureLog, SensorFailure
from sensorium.stream.frame_counter import FrameCounter
from sensorium.stream.outgoing import Bundle, Context, Outgoing
from sensorium.stream.publisher import Publisher
from sensorium.stream.sending import Stream
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire.attributes import ActorDescription
from sensorium.wire.world import Snapshot

if TYPE_CHECKING:
    from sensorium.readings import Reading
    from sensorium.scene import Scene

WORLD = "world"
"""Name of the stream with the state of all bodies."""
WORKERS = 2
"""Number of worker threads for streamed sensors."""
PATIENCE = 5.0
"""Longest wait for the worker threads at the end, s."""


class _SensorExecutor(Executor):
    """Executor that passes work of one sensor to the shared threads.

    Args:
        workers: the threads.
        name: name of the sensor.
        running: the work in progress, with the name of its sensor.
    """

    def __init__(self, workers: Executor, name: str, running: dict[Future[Any], str]) -> None:
        self._workers, self._name, self._running = workers, name, running

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on a thread."""
        future = self._workers.submit(fn, *args, **kwargs)
        self._running[future] = self._name
        future.add_done_callback(lambda done: self._running.pop(done, None))
        return future


class StreamedSensors:
    """Streamed sensors of one server. All methods run on the thread of the loop's owner, except sending by workers.

    Args:
        scene: the scene.
        bodies: all bodies of the world.
        catalog: the streams of the server.
        publisher: publisher of their messages.
        frame_counter: counter of the captures of a frame.
        wake: function that wakes the thread of the server's socket.
    """

    def __init__(
        self,
        scene: Scene,
        bodies: Bodies,
        catalog: StreamCatalog,
        publisher: Publisher,
        frame_counter: FrameCounter,
        wake: Callable[[], None],
    ) -> None:
        self._scene, self._bodies, self._stream_catalog = scene, bodies, catalog
        self._publisher, self._frame_counter, self._wake = publisher, frame_counter, wake
        self.sensors: dict[str, StreamedSensor] = {}
        """Name -> sensor."""
        self.failures = FailureLog()
        """Exceptions of streamed sensors."""
        self.world: Reading | None = None
        """Newest reading of the state of all bodies; None while it is not known."""
        self._context: Context | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._running: dict[Future[Any], str] = {}

    def add(self, cls: type[StreamedSensor], name: str, description: ActorDescription, **place: Any) -> None:
        """Create a sensor; `place` are the arguments `envs`, `transform` and `owner` of `streamed.spawn`."""
        self.sensors[name] = streamed.spawn(cls, name, description, stream=self._stream, bodies=self._bodies, **place)

    def remove(self, name: str) -> None:
        """End a sensor; unknown names have no effect."""
        if (sensor := self.sensors.pop(name, None)) is not None:
            streamed.end(sensor, self.failures)
        if not self.sensors:
            self.world = None

    def _stream(self, sensor: StreamedSensor) -> Stream:
        name = sensor.name
        if self._executor is None:
            self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="sensorium-streamed")

        def context() -> Context:
            if self._context is None:
                raise SensoriumError(f"Sensor {name!r}: stream.send was called outside tick.")
            return self._context

        def has_listeners() -> bool:
            topic = self._stream_catalog.topics.get(name)
            return topic is not None and bool(topic.subscriptions)

        return Stream(
            sensor,
            sink=functools.partial(self._send, name),
            context=context,
            executor=_SensorExecutor(self._executor, name, self._running),
            has_listeners=has_listeners,
            on_capture=functools.partial(self._frame_counter.capture, name),
            on_done=functools.partial(self._resolved, name),
            failures=self.failures,
        )

    def _send(self, name: str, message: Outgoing | Bundle) -> None:
        """Send a message of a sensor; called on the sending thread."""
        topic = self._stream_catalog.topics.get(name)
        if topic is None:
            return
        if isinstance(message, Bundle):
            self._publisher.bundle(topic, message)
        else:
            self._publisher.message(topic, message)

    def _resolved(self, name: str, frame: int) -> None:
        self._frame_counter.resolved(name, frame)
        self._wake()

    def tick(self, frame: int, wall_ns: int) -> Iterator[tuple[str, SensorFailure]]:
        """Run the ticks of all sensors; yield the name and failure of each sensor that must end.

        Args:
            frame: number of the frame.
            wall_ns: its wall clock, ns since 1970.
        """
        if not self.sensors:
            return
        if self.world is None:
            self.world = self._scene.publish([WORLD], truth=False, poses=True)[WORLD]
        snapshot = self._snapshot(frame, self.world)
        self._context = Context(snapshot, wall_ns)
        for name, sensor in list(self.sensors.items()):
            if name not in self.sensors:  # removed by another sensor
                continue
            sensor.is_within_step = self._scene.is_within_step
            failure = streamed.run_tick(sensor, snapshot, self.failures)
            if failure is not None:
                yield name, failure
        self._context = None

    def _snapshot(self, frame: int, reading: Reading) -> Snapshot:
        """Return the state of the bodies at this frame."""
        return Snapshot(
            frame=frame,
            tick=self._scene.tick,
            time=self._scene.time,
            bodies=self._bodies,
            env_ids=reading.env_ids,
            pos_w=reading["pos_w"],
            quat_w=reading["quat_w"],
            lin_vel_w=reading["lin_vel_w"],
            ang_vel_w=reading["ang_vel_w"],
        )

    def close(self) -> None:
        """End all sensors and the threads permanently."""
        for sensor in self.sensors.values():
            streamed.end(sensor, self.failures)
        self.sensors.clear()
        if self._executor is None:
            return
        self._executor.shutdown(wait=False, cancel_futures=True)
        late = wait([*self._running], PATIENCE).not_done
        for name in sorted({self._running[each] for each in late if each in self._running}):
            text = "Sensor %r: a function of send_async still runs %g s after the end of the server and is abandoned"
            LOG.warning(text, name, PATIENCE)
        if not late:
            self._executor.shutdown(wait=True)
