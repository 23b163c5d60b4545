"""Sending by streamed sensors: within a frame, or later from another thread for a captured frame."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sensorium.errors import ConfigError, RegistrationError, StreamError, shown
from sensorium.pose import Pose
from sensorium.readings import Array
from sensorium.stream.publisher import Moment
from sensorium.stream.subscription_table import LOG
from sensorium.wire.buffers import Buffer, BufferPool
from sensorium.wire.data import Item
from sensorium.wire.serializers import Serializer

if TYPE_CHECKING:
    from sensorium.stream.streamed import StreamedSensor, StreamedSensors

Serialised: TypeAlias = "Buffer | bytes | bytearray | memoryview | Array"
"""Types that a serializer may return."""
BUNDLED = 1024
"""Largest message that is bundled with others sent in the same `tick`, bytes."""
MAX_IN_BUNDLE = 4096
"""Maximum number of messages in a bundle."""

MAX_PENDING = 8
"""Maximum number of functions of one stream that are queued or running on worker threads."""


class Stream:
    """Sending interface of a streamed sensor: `sensor.stream`.

    `send` and `capture` belong to the simulation's thread, within `tick`. Other threads send through a `Capture` taken
    there.

    Args:
        sensor: sensor of the stream.
        host: the sensors of the server.
        name: name of the sensor.
    """

    def __init__(self, sensor: StreamedSensor, host: StreamedSensors, name: str) -> None:
        self._sensor, self.host, self.name = sensor, host, name
        self.pool = BufferPool()
        """Memory of messages that were sent and have no more views."""
        self.skipped = 0
        """Number of `send_async` calls without effect, because MAX_PENDING functions were already pending."""
        self._last: Moment | None = None
        self._captures: weakref.WeakSet[Capture] = weakref.WeakSet()
        self._thread = threading.get_ident()
        self._closed = False
        self._had_listeners: bool | None = None
        """Whether the stream had listeners at the start of the tick."""
        self._serializer: type[Serializer] = sensor.serializer
        self._bundle: list[Item] = []
        self._bundled: Moment | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"Stream({self.name!r}, {state}, pending={self.pending}, skipped={self.skipped})"

    @property
    def has_listeners(self) -> bool:
        """Whether the stream has listeners. Without listeners nothing is serialised, and `send_async` runs nothing."""
        return not self._closed and self.host.has_listeners(self.name)

    @property
    def pending(self) -> int:
        """Number of functions of `send_async` that are queued or running."""
        return list(self.host.running.values()).count(self.name)

    def pop_buffer(self) -> Buffer:
        """Return a buffer with memory of an earlier message, or an empty one if the pool is empty; from any thread.

        Its memory returns to the pool automatically when the message was sent and has no more views.
        """
        return self.pool.pop()

    def send(self, *data: Any, env: int | None = None) -> None:
        """Serialise `data` and send it as data of the frame in progress.

        Args:
            data: arguments of the sensor's serializer after the sensor.
            env: single environment of the message; None for all environments of the sensor.

        Raises:
            StreamError: called from a thread other than the simulation's, where the frame would be arbitrary.
            ConfigError: the environment is not one of the sensor's.
            RegistrationError: the serializer's result does not consist of bytes.
        """
        if threading.get_ident() != self._thread:
            self._own_thread("send")
        sensor = self._sensor
        envs = sensor.envs if env is None else self._envs(env)
        had = self._had_listeners
        if not (self.has_listeners if had is None else had):
            return
        body = self._serializer.serialize(sensor, *data)
        if had and body.__class__ is bytes and len(body) <= BUNDLED:
            bundle = self._bundle
            if not bundle:
                self._bundled = self._moment()  # taken now, because outside tick there may be no frame
            bundle.append((body, envs.start, len(envs)))
            if len(bundle) >= MAX_IN_BUNDLE:
                self.flush()
            return
        self.flush()
        self._emit(self._moment(), envs, body)

    @contextlib.contextmanager
    def ticking(self) -> Iterator[None]:
        """Store the thread of a tick, and whether the stream has listeners; send the remaining messages at its end."""
        self._thread = threading.get_ident()
        self._had_listeners = self.has_listeners
        try:
            yield
        finally:
            self._had_listeners = None
            self.flush()

    def flush(self) -> None:
        """Send the bundled small messages."""
        bundle, moment = self._bundle, self._bundled
        if not bundle:
            return
        self._bundle, self._bundled = [], None
        assert moment is not None
        if self.has_listeners:
            self.host.send(self.name, bundle, moment)

    def capture(self) -> Capture:
        """Return a capture of the frame in progress, with which any thread may send one message of this frame.

        The frame counts as complete only when all of its captures are resolved: sent, or dropped.

        Raises:
            StreamError: called from a thread other than the simulation's.
        """
        self._own_thread("capture")
        capture = Capture(self, self._moment())
        self._captures.add(capture)
        return capture

    def send_async(self, function: Callable[..., Any], *args: Any, env: int | None = None) -> None:
        """Run `function(*args)` on a worker thread and send its result as data of the frame in progress.

        A tuple is passed to the serializer as several arguments; None sends nothing. An exception is logged and kept
        with the sensor's name, and the sensor continues. Functions of one stream may run concurrently. If MAX_PENDING
        functions are pending, the call only increments `skipped`; the first such call logs a warning.

        Raises:
            StreamError: called from a thread other than the simulation's, or the server is closing.
            ConfigError: the environment is not one of the sensor's.
        """
        self._own_thread("send_async")
        self._envs(env)
        if not self.has_listeners:
            return
        if self.pending >= MAX_PENDING:
            self.skipped += 1
            if self.skipped == 1:
                text = "Sensor %r skips frames: %d functions of send_async are pending and take longer than a frame"
                LOG.warning(text, self.name, MAX_PENDING)
            return
        capture = self.capture()
        try:
            self.host.submit(self.name, self._work, capture, function, args, env)
        except RuntimeError as error:
            capture.drop()
            raise StreamError(f"Sensor {self.name!r}: the server is closing and accepts no more work.") from error

    def _work(self, capture: Capture, function: Callable[..., Any], args: Sequence[Any], env: int | None) -> None:
        try:
            result = function(*args)
            if result is not None:
                capture.send(*(result if isinstance(result, tuple) else (result,)), env=env)
        except BaseException as error:
            if self._closed and isinstance(error, StreamError):  # the capture was dropped at close, not a failure
                return
            name = getattr(function, "__qualname__", function)
            self.host.failures.add(self.name, f"send_async({name})", error, capture.frame)
        finally:
            capture.drop()

    def _own_thread(self, what: str) -> None:
        if threading.get_ident() != self._thread:
            raise StreamError(
                f"Sensor {self.name!r}: stream.{what} was called outside the simulation's thread. Call "
                "capture = stream.capture() in tick, and capture.send(...) in the other thread."
            )

    def _envs(self, env: int | None) -> range:
        envs = self._sensor.envs
        if env is None:
            return envs
        if env not in envs:
            raise ConfigError.single(
                type(self._sensor).__name__, "stream.send(env)", env, f"an environment in {envs.start}..{envs.stop - 1}"
            )
        return range(env, env + 1)

    def _moment(self) -> Moment:
        snapshot, wall_ns = self.host.in_progress(self.name)
        if self._last is not None and self._last.frame == snapshot.frame:
            return self._last
        poses = self._sensor.pose(snapshot).astype(np.float32)[:, None, :]
        poses.setflags(write=False)
        time_ns = round(snapshot.time * 1e9)
        first = self._sensor.envs.start
        self._last = Moment(snapshot.frame, snapshot.tick, time_ns, wall_ns, first, poses)
        return self._last

    def _emit(self, moment: Moment, envs: range, content: Serialised) -> None:
        body, is_lasting = as_bytes(content, self._serializer)
        self.host.send(self.name, [(body, envs.start, len(envs))], moment, is_lasting=is_lasting)

    def close(self) -> None:
        """Stop sending: captures and later messages of worker threads are dropped."""
        self._closed = True
        for capture in list(self._captures):
            capture.drop()


class Capture:
    """Permission to send one message of one frame, from any thread. It may be dropped without sending.

    Attributes:
        moment: the frame, its times and poses at the time of the capture.
    """

    __slots__ = ("__weakref__", "_lock", "_resolved", "_stream", "_used", "moment")

    def __init__(self, stream: Stream, moment: Moment) -> None:
        self._resolved, self._used, self._lock = True, "", threading.Lock()  # resolved until it is counted
        self._stream, self.moment = stream, moment
        stream.host.publisher.capture(stream.name, moment.frame)
        self._resolved = False

    @property
    def frame(self) -> int:
        """Frame of the capture."""
        return self.moment.frame

    @property
    def time(self) -> float:
        """Simulation time of that frame, s."""
        return self.moment.time_ns * 1e-9

    @property
    def transform(self) -> Pose:
        """Pose of the sensor in the world at that frame, in its first environment."""
        return Pose.from_array(self.moment.poses[0, 0])

    def send(self, *data: Any, env: int | None = None) -> None:
        """Serialise `data` and send it; without listeners, or after the sensor's end, nothing is sent.

        Args:
            data: arguments of the sensor's serializer after the sensor.
            env: single environment of the message; None for all environments of the sensor.

        Raises:
            StreamError: the capture was already used.
            ConfigError: the environment is not one of the sensor's.
        """
        with self._lock:
            if self._used:
                what = f"This capture of frame {self.frame} was already {self._used}"
                raise StreamError(
                    f"Sensor {self._stream.name!r}: {what}. A capture is for one message. Create another one in tick."
                )
            self._used = "sent"
        try:
            stream, envs = self._stream, self._stream._envs(env)
            if stream.has_listeners:
                stream._emit(self.moment, envs, stream._serializer.serialize(stream._sensor, *data))
        finally:
            self.drop()

    def drop(self) -> None:
        """Drop the capture if it is unsent, so that the frame does not wait for it; no effect if it was sent."""
        with self._lock:
            self._used = self._used or "dropped"
            if self._resolved:
                return
            self._resolved = True
        self._stream.host.publisher.resolved(self._stream.name, self.moment.frame)

    __del__ = drop


def as_bytes(body: Serialised, serializer: type[Serializer]) -> tuple[memoryview, bool]:
    """Return the result of a serializer as read-only bytes, and whether they can no longer change.

    Raises:
        RegistrationError: the result does not consist of bytes.
    """
    if isinstance(body, bytes):
        return memoryview(body), True
    if isinstance(body, Buffer):
        return body.pop().view.toreadonly(), True  # moved out: later changes to the author's buffer have no effect
    if isinstance(body, np.ndarray) and not body.dtype.hasobject:
        body = np.ascontiguousarray(body, body.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
    elif not isinstance(body, (bytearray, memoryview)):
        what = f"{serializer.__name__}.serialize returned {shown(body)}"
        raise RegistrationError(f"{what}, expected a Buffer, bytes or an array of numbers")
    view = memoryview(body).toreadonly()
    return view if view.format == "B" and view.ndim == 1 else memoryview(view.tobytes()), False
