"""Streamed sensors of one server: their input in each frame, their sending, and their threads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
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
from sensorium.wire.owner import Owner
from sensorium.wire.pose import Pose
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
        self.readings: dict[str, Reading] = {}
        """Newest reading of each of `sources`."""
        self._feeds: dict[str, Mapping[str, str]] = {}
        """Name -> the names of the scene sensors that it reads, by its keys."""
        self._context: Context | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._running: dict[Future[Any], str] = {}

    @property
    def feeds(self) -> set[str]:
        """Names of the scene's sensors that only serve streamed sensors."""
        return {source for feeds in self._feeds.values() for source in feeds.values()}

    @property
    def sources(self) -> set[str]:
        """Names of the scene's sensors that streamed sensors read."""
        return self.feeds | ({WORLD} if self.sensors else set())

    def add(
        self,
        cls: type[StreamedSensor],
        name: str,
        description: ActorDescription,
        *,
        envs: range,
        transform: Pose,
        owner: Owner | None,
    ) -> list[str]:
        """Create a sensor, and add the sensors that it reads to the scene; see `streamed.spawn`.

        Returns:
            Names of the sensors added to the scene.
        """
        sensor = streamed.spawn(
            cls,
            name,
            description,
            stream=self._stream,
            bodies=self._bodies,
            envs=envs,
            transform=transform,
            owner=owner,
        )
        feeds: dict[str, str] = {}
        try:
            for key, cfg in streamed.scene_cfgs(sensor, self._scene.engine).items():
                self._scene.add(cfg)
                feeds[key] = cfg.name
                self._scene[cfg.name].buffers.listeners += 1
        except BaseException:
            self._end(sensor, feeds)
            raise
        self.sensors[name], self._feeds[name] = sensor, feeds
        return list(feeds.values())

    def _end(self, sensor: StreamedSensor, feeds: Mapping[str, str]) -> None:
        streamed.end(sensor, self.failures)
        for source in feeds.values():
            self.readings.pop(source, None)
            if source in self._scene.sensors:
                self._scene.remove(source)

    def remove(self, name: str) -> None:
        """End a sensor, and remove the sensors that it read from the scene; unknown names have no effect."""
        if (sensor := self.sensors.pop(name, None)) is not None:
            self._end(sensor, self._feeds.pop(name))
        if not self.sensors:
            self.readings.clear()

    def _stream(self, sensor: StreamedSensor) -> Stream:
        name = sensor.name
        if self._executor is None:
            self._executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="sensorium-streamed")

        def context() -> Context:
            if self._context is None:
                raise SensoriumError(f"sensor {name!r}: stream.send was called outside tick")
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
        publisher = self._publisher
        sent = publisher.bundle(topic, message) if isinstance(message, Bundle) else publisher.message(topic, message)
        if sent:
            self._frame_counter.sent(message.moment.frame, sent)

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
        for source in self.sources - self.readings.keys():
            self.readings[source] = self._scene.publish([source], truth=False, poses=True)[source]
        snapshot = self._snapshot(frame)
        self._context = Context(snapshot, wall_ns)
        for name, sensor in list(self.sensors.items()):
            if name not in self.sensors:  # removed by another sensor
                continue
            sensor.readings = {key: self.readings[source] for key, source in self._feeds[name].items()}
            sensor.is_within_step = self._scene.is_within_step
            failure = streamed.run_tick(sensor, snapshot, self.failures)
            if failure is not None:
                yield name, failure
        self._context = None

    def _snapshot(self, frame: int) -> Snapshot:
        """Return the state of the bodies at this frame."""
        reading = self.readings[WORLD]
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
        """End all sensors and the threads permanently; the sensors that they read stay in the scene."""
        for sensor in self.sensors.values():
            streamed.end(sensor, self.failures)
        self.sensors.clear()
        self._feeds.clear()
        if self._executor is None:
            return
        self._executor.shutdown(wait=False, cancel_futures=True)
        late = wait([*self._running], PATIENCE).not_done
        for name in sorted({self._running[each] for each in late if each in self._running}):
            text = "sensor %r: its work given to send_async still runs %g s after the end and is abandoned"
            LOG.warning(text, name, PATIENCE)
        if not late:
            self._executor.shutdown(wait=True)


__all__ = ["WORLD", "StreamedSensors"]
