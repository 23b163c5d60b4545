"""Streamed sensors of one server: their input in each frame, their sending, and their threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from sensorium.errors import SensoriumError
from sensorium.readings import Bodies
from sensorium.stream import streamed
from sensorium.stream.catalog import StreamCatalog
from sensorium.stream.frame_counter import FrameCounter
from sensorium.stream.outgoing import Outgoing
from sensorium.stream.publisher import Publisher
from sensorium.stream.streamed import StreamedSensor
from sensorium.stream.subscriptions import LOG
from sensorium.wire.failures import Failure, Failures
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
            streamed.end(sensor, self.failures)
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
        topic = self._stream_catalog.topics.get(name)
        return topic is not None and bool(topic.subscriptions)

    def send(self, name: str, message: Outgoing) -> None:
        """Send messages of a sensor, on the sending thread; those that may change are copied at once."""
        if (topic := self._stream_catalog.topics.get(name)) is not None:
            self._publisher.messages(topic, message)

    def capture(self, name: str, frame: int) -> None:
        """Register a capture of a frame."""
        self._frame_counter.capture(name, frame)

    def resolved(self, name: str, frame: int) -> None:
        """Register that a capture was sent, failed, or was dropped; from any thread, also in a garbage collection."""
        self._frame_counter.resolved(name, frame)
        self._wake()

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
        if not self.sensors:
            return
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
            failure = streamed.run_tick(sensor, snapshot, self.failures)
            if failure is not None:
                yield name, failure
        self._frame = None

    def close(self) -> None:
        """End all sensors and the threads permanently."""
        for sensor in self.sensors.values():
            streamed.end(sensor, self.failures)
        self.sensors.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)
        running = dict(self.running)
        late = wait(running, PATIENCE).not_done
        for name in sorted({running[each] for each in late}):
            text = "Sensor %r: a function of send_async still runs %g s after the end of the server and is abandoned"
            LOG.warning(text, name, PATIENCE)
        if not late:
            self._executor.shutdown(wait=True)
