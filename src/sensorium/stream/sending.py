"""How streamed sensors send: in a frame, or later from another thread as of the frame that it captured."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np

from sensorium.errors import ConfigError, RegistrationError, StreamError
from sensorium.stream.failures import LOG, FailureLog
from sensorium.stream.outgoing import Bundle, Context, Moment, Outgoing, Serialised, as_bytes
from sensorium.wire.buffers import Buffer, BufferPool
from sensorium.wire.pose import Pose
from sensorium.wire.serializers import Serializer, type_id

if TYPE_CHECKING:
    from sensorium.stream.streamed import StreamedSensor

BUNDLED = 1024
"""Bytes up to which messages that are sent in one `tick` go together."""
MOST_IN_BUNDLE = 4096
"""Messages that go together at most."""

MAX_PENDING = 8
"""Functions of one stream that wait for a worker thread or run on one, at most."""


class Stream:
    """What a streamed sensor sends with: `sensor.stream`.

    `send` and `capture` belong to the simulation's thread, within `tick`. Other threads send through a `Capture` that
    was taken there.

    Args:
        sensor: whose stream it is.
        sink: takes each message, from the thread that sends; it copies at once what does not last.
        context: returns the frame in progress; called on the simulation's thread.
        executor: runs the functions given to `send_async`.
        has_listeners: whether anyone listens.
        on_capture: told the frame of each capture that is made.
        on_done: told the frame of each capture that is resolved (sent, failed, or dropped): once for each. It is called
            from any thread, also while garbage is collected, so it must take no lock (`deque.append` needs none).
        failures: where exceptions of worker functions go.
        pool: memory for messages; one of its own if None.
    """

    def __init__(
        self,
        sensor: StreamedSensor,
        *,
        sink: Callable[[Outgoing | Bundle], None],
        context: Callable[[], Context],
        executor: Executor,
        has_listeners: Callable[[], bool] = lambda: True,
        on_capture: Callable[[int], None] = lambda frame: None,
        on_done: Callable[[int], None] = lambda frame: None,
        failures: FailureLog | None = None,
        pool: BufferPool | None = None,
    ) -> None:
        self._sensor = sensor
        self._sink, self._context, self._executor = sink, context, executor
        self._listened, self.on_capture, self.on_done = has_listeners, on_capture, on_done
        self._failures = FailureLog() if failures is None else failures
        self.pool = BufferPool() if pool is None else pool
        """Memory of messages that were sent and are no longer looked at."""
        self.skipped = 0
        """Calls of `send_async` without effect, since MAX_PENDING functions were pending already."""
        self._last: Moment | None = None
        self._pending = 0
        self._captures: weakref.WeakSet[Capture] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._closed = False
        self._is_heard: bool | None = None
        """Whether anyone listened when the tick began."""
        self._serializer: type[Serializer] | None = None
        self._bundle: list[tuple[bytes, int, int]] = []
        self._bundled: Moment | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"Stream({self._sensor.name!r}, {state}, pending={self._pending}, skipped={self.skipped})"

    @property
    def name(self) -> str:
        """Name of the sensor."""
        return self._sensor.name

    @property
    def has_listeners(self) -> bool:
        """Whether anyone listens. Without listeners nothing is serialised, and `send_async` runs nothing."""
        return not self._closed and self._listened()

    def pop_buffer(self) -> Buffer:
        """Return a buffer with memory of an earlier message, or an empty one where the pool is empty; from any thread.

        Its memory comes back by itself when the message was sent and nobody looks at it any more.
        """
        return self.pool.pop()

    def send(self, *data: Any, env: int | None = None) -> None:
        """Serialise `data` and send it as of the frame in progress.

        Args:
            data: what the sensor's serializer takes after the sensor.
            env: the one environment that the message is about; None: all that the sensor is for.

        Raises:
            StreamError: from another thread than the simulation's: which frame it belongs to would be chance.
            ConfigError: the sensor is not for this environment.
            RegistrationError: the sensor has no serializer, or that one returned what are no bytes.
        """
        if threading.get_ident() != self._thread:
            self._own_thread("send")
        sensor = self._sensor
        envs = sensor.envs if env is None else self._envs(env)
        heard = self._is_heard
        if not (self.has_listeners if heard is None else heard):
            return
        if self._serializer is None:
            self._serializer = self._its_serializer()
        body = self._serializer.serialize(sensor, *data)
        if heard and body.__class__ is bytes and len(body) <= BUNDLED:
            bundle = self._bundle
            if not bundle:
                self._bundled = self._moment()  # now: outside of tick there may be none
            bundle.append((body, envs.start, len(envs)))
            if len(bundle) >= MOST_IN_BUNDLE:
                self.flush()
            return
        self.flush()
        self._emit(self._moment(), envs, body)

    def send_as_of(self, moment: Moment, data: Sequence[Any], env: int | None) -> None:
        """Serialise `data` and send it as of a frame that was captured, from any thread."""
        envs = self._envs(env)
        if self.has_listeners:
            self._emit(moment, envs, self._its_serializer().serialize(self._sensor, *data))

    def begin_tick(self) -> None:
        """Note that the sensor measures now, on this thread, and whether anyone listens."""
        self._thread = threading.get_ident()
        self._is_heard = self.has_listeners

    def end_tick(self) -> None:
        """Note that it has measured, and send what is left."""
        self._is_heard = None
        self.flush()

    def flush(self) -> None:
        """Send the small messages that were put together; the server does it at the end of `tick`."""
        bundle = self._bundle
        if not bundle:
            return
        self._bundle = []
        moment, self._bundled = self._bundled, None
        assert moment is not None
        if len(bundle) == 1:
            body, first, count = bundle[0]
            self._emit(moment, range(first, first + count), body)
            return
        assert self._serializer is not None
        if self._listened() and not self._closed:
            self._sink(Bundle(type_id(self._serializer.type_name), bundle, moment))

    def capture(self) -> Capture:
        """Return a capture of the frame in progress, with which any thread may send one message of this frame.

        The frame counts as complete only when all of its captures are resolved: sent, or dropped.

        Raises:
            StreamError: from another thread than the simulation's.
        """
        self._own_thread("capture")
        capture = Capture(self, self._moment())
        self._captures.add(capture)
        return capture

    def send_async(self, function: Callable[..., Any], *args: Any, env: int | None = None) -> None:
        """Run `function(*args)` on a worker thread and send what it returns, as of the frame in progress.

        A tuple counts as several arguments for the serializer; None sends nothing. An exception is logged and kept with
        the sensor's name, and the sensor goes on. Functions of one stream may run at the same time. Where MAX_PENDING
        of them are pending, the call has no effect but in `skipped`, and the first time a warning is logged.

        Raises:
            StreamError: from another thread than the simulation's, or the server is closing.
            ConfigError: the sensor is not for this environment.
        """
        self._own_thread("send_async")
        self._envs(env)
        if not self.has_listeners:
            return
        with self._lock:
            if full := self._pending >= MAX_PENDING:
                self.skipped += 1
            else:
                self._pending += 1
        if full:
            if self.skipped == 1:
                text = "sensor %r: %d functions are pending, so frames are skipped: they take longer than a frame"
                LOG.warning(text, self._sensor.name, MAX_PENDING)
            return
        capture = self.capture()
        try:
            self._executor.submit(self._work, capture, function, args, env).add_done_callback(self._worked)
        except RuntimeError as error:
            self._worked(None)
            capture.drop()
            raise StreamError(f"sensor {self._sensor.name!r}: its server is closing, no work is taken") from error

    def _work(self, capture: Capture, function: Callable[..., Any], args: Sequence[Any], env: int | None) -> None:
        try:
            result = function(*args)
            if result is not None:
                capture.send(*(result if isinstance(result, tuple) else (result,)), env=env)
        except BaseException as error:
            if self._closed and isinstance(error, StreamError):  # its capture was dropped, by no fault of the function
                return
            self._failures.add(self._sensor.name, f"send_async({_name(function)})", capture.frame, error)
        finally:
            capture.drop()

    def _worked(self, _future: Any) -> None:
        with self._lock:
            self._pending -= 1

    def _own_thread(self, what: str) -> None:
        if threading.get_ident() != self._thread:
            raise StreamError(
                f"sensor {self._sensor.name!r}: stream.{what} was called on another thread than the simulation's. Take "
                "capture = stream.capture() in tick, and call capture.send(...) there."
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
        context = self._context()
        snapshot = context.snapshot
        if self._last is not None and self._last.frame == snapshot.frame:
            return self._last
        poses = self._sensor.pose(snapshot).astype(np.float32)[:, None, :]
        poses.setflags(write=False)
        time_ns = round(snapshot.time * 1e9)
        first = self._sensor.envs.start
        self._last = Moment(snapshot.frame, snapshot.tick, time_ns, context.wall_ns, first, poses)
        return self._last

    def _its_serializer(self) -> type[Serializer]:
        serializer: type[Serializer] | None = getattr(self._sensor, "serializer", None)
        if serializer is None:
            name = type(self._sensor).__name__
            raise RegistrationError(
                f"{name} has no serializer, so it can send nothing: class attribute serializer = ..."
            )
        return serializer

    def _emit(self, moment: Moment, envs: range, content: Serialised) -> None:
        serializer = self._its_serializer()
        body, is_lasting = as_bytes(content, serializer)
        first = envs.start - moment.first_env
        part = moment
        if len(envs) != len(moment.poses):
            poses = moment.poses[first : first + len(envs)]
            part = Moment(moment.frame, moment.tick, moment.time_ns, moment.wall_ns, envs.start, poses)
        self._sink(Outgoing(type_id(serializer.type_name), body, part, envs.start, len(envs), is_lasting))

    def close(self) -> None:
        """Send nothing from now on: captures are dropped, and what worker threads still send."""
        self._closed = True
        for capture in list(self._captures):
            capture.drop()


class Capture:
    """The right to send one message of one frame, from any thread. Dropping it unsent is fine.

    Attributes:
        moment: the frame, its times and poses, as of when the capture was taken.
    """

    __slots__ = ("__weakref__", "_lock", "_resolved", "_stream", "_used", "moment")

    def __init__(self, stream: Stream, moment: Moment) -> None:
        self._resolved, self._used = True, ""  # resolved until it counts, for __del__
        self._stream, self.moment = stream, moment
        self._lock = threading.Lock()
        stream.on_capture(moment.frame)
        self._resolved = False

    @property
    def frame(self) -> int:
        """The frame it is of."""
        return self.moment.frame

    @property
    def time(self) -> float:
        """Simulation time of that frame, s."""
        return self.moment.time_ns * 1e-9

    @property
    def transform(self) -> Pose:
        """Where the sensor was then, in the world, in its first environment."""
        return Pose.from_array(self.moment.poses[0, 0])

    def send(self, *data: Any, env: int | None = None) -> None:
        """Serialise `data` and send it; without listeners, or after the sensor's end, nothing is sent.

        Args:
            data: what the sensor's serializer takes after the sensor.
            env: the one environment that the message is about; None: all that the sensor is for.

        Raises:
            StreamError: it was used already.
            ConfigError: the sensor is not for this environment.
        """
        with self._lock:
            if self._used:
                what = f"this capture of frame {self.frame} was {self._used} already"
                raise StreamError(
                    f"sensor {self._stream.name!r}: {what}. A capture is for one message: take another in tick."
                )
            self._used = "sent"
        try:
            self._stream.send_as_of(self.moment, data, env)
        finally:
            self.drop()

    def drop(self) -> None:
        """Give up what was not sent, so that the frame does not wait for it. Harmless where it was sent."""
        with self._lock:
            self._used = self._used or "dropped"
            if self._resolved:
                return
            self._resolved = True
        self._stream.on_done(self.moment.frame)

    def __del__(self) -> None:
        if not self._resolved:
            self._resolved = True  # nobody else holds it any more, so no lock is needed
            self._stream.on_done(self.moment.frame)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function))
