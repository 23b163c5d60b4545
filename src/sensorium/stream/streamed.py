"""Streamed sensors: sensors that live in the server, look at the bodies of the world in each frame, and send messages.

An author derives from `StreamedSensor`; defining the class registers it. It needs a `definition` (what a user can set),
and, in order to send, a serializer. A frame is a moment at which the server looks at its sensors. What is sent carries
the frame, the time and the pose of the moment at which it was measured, also where a worker thread sends it later.
"""

from __future__ import annotations

import logging
import threading
import time as clock
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from sensorium.errors import (
    ConfigError,
    RegistrationError,
    SensoriumWarning,
    StreamError,
    UnknownNameError,
    shown,
)
from sensorium.readings import Reading
from sensorium.spec import Requirement
from sensorium.wire.attributes import ActorDescription, SensorDefinition
from sensorium.wire.buffers import Buffer, BufferPool
from sensorium.wire.pose import Pose
from sensorium.wire.serializers import Serializer, type_id
from sensorium.wire.world import Bodies, Body, Snapshot

ENTRY_POINT_GROUP = "sensorium.streamed"
"""Where installed packages announce modules with streamed sensors."""

OURS = ("sensorium.stream.safe_distance", "sensorium.stream.collision")
"""Modules with our own streamed sensors."""

BUNDLED = 1024
"""Bytes up to which messages that are sent in one `tick` go together."""
MOST_IN_BUNDLE = 4096
"""Messages that go together at most."""

MAX_PENDING = 8
"""Functions of one stream that wait for a worker thread or run on one, at most."""

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Serialised: TypeAlias = "Buffer | bytes | bytearray | memoryview | Array"

_log = logging.getLogger("sensorium.stream")


# Errors of authors' code ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SensorFailure:
    """An exception in the code of a streamed sensor.

    Attributes:
        sensor: name of the sensor.
        where: what failed, e.g. ``"tick"``.
        frame: frame it was at; -1 outside frames.
        error: the exception, without the traceback, which would keep what the code held alive.
        trace: the traceback as text.
        wall_time: seconds since 1970.
    """

    sensor: str
    where: str
    frame: int
    error: BaseException
    trace: str
    wall_time: float

    def __str__(self) -> str:
        return f"sensor {self.sensor!r}: {self.where} raised {type(self.error).__name__}: {self.error}"


class FailureLog:
    """The failures of all streamed sensors of a server: logged, counted, and the newest of them kept. Thread-safe.

    Args:
        limit: how many are kept.
    """

    def __init__(self, limit: int = 100) -> None:
        self._kept: deque[SensorFailure] = deque(maxlen=limit)
        self._lock = threading.Lock()
        self.count = 0
        """Failures so far, also those that are kept no more."""

    def add(self, sensor: str, where: str, frame: int, error: BaseException) -> SensorFailure:
        """Keep an exception, and log it with the sensor's name and the traceback."""
        trace = "".join(traceback.format_exception(error))
        failure = SensorFailure(sensor, where, frame, error.with_traceback(None), trace, clock.time())
        with self._lock:
            self._kept.append(failure)
            self.count += 1
        _log.error("%s\n%s", failure, trace)
        return failure

    def take(self) -> list[SensorFailure]:
        """Return the failures that are kept, the oldest first, and forget them."""
        with self._lock:
            kept = list(self._kept)
            self._kept.clear()
        return kept


# What is sent ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Context:
    """The frame in progress: the state of the bodies, and when it was taken.

    Attributes:
        snapshot: the bodies at this frame.
        wall_ns: wall clock of the frame, ns since 1970.
    """

    snapshot: Snapshot
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Moment:
    """When, and from where, something was measured.

    Attributes:
        frame: the frame.
        tick: its physics tick.
        time_ns: its simulation time, ns.
        wall_ns: its wall clock, ns since 1970.
        first_env: the first of the environments that `poses` has.
        poses: float32 ``[env, 1, 7]``, where the sensor was in the world: position in m and orientation wxyz.
    """

    frame: int
    tick: int
    time_ns: int
    wall_ns: int
    first_env: int
    poses: Array


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message of a streamed sensor, ready for the wire.

    Attributes:
        type_id: which serializer reads it.
        body: its bytes, read-only.
        is_lasting: whether these bytes stay as they are as long as somebody looks at them: they need no copy then.
            Those of a buffer go back to the pool with the last view.
        moment: the frame it belongs to; `poses` has the environments of this message.
        first_env: the first environment it is about.
        num_envs: how many.
    """

    type_id: int
    body: memoryview
    moment: Moment
    first_env: int
    num_envs: int
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class Bundle:
    """Many small messages of a streamed sensor, of one frame.

    Attributes:
        type_id: which serializer reads them.
        items: body, first environment and number of environments of each.
        moment: the frame they belong to; `poses` has all environments of the sensor.
    """

    type_id: int
    items: list[tuple[bytes, int, int]]
    moment: Moment


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
        self._listened, self._on_capture, self._on_done = has_listeners, on_capture, on_done
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
        envs = sensor._envs if env is None else self._envs(env)
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
                _log.warning(text, self._sensor.name, MAX_PENDING)
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
        body, is_lasting = self._bytes(content, serializer)
        first = envs.start - moment.first_env
        part = moment
        if len(envs) != len(moment.poses):
            poses = moment.poses[first : first + len(envs)]
            part = Moment(moment.frame, moment.tick, moment.time_ns, moment.wall_ns, envs.start, poses)
        self._sink(Outgoing(type_id(serializer.type_name), body, part, envs.start, len(envs), is_lasting))

    @staticmethod
    def _bytes(body: Serialised, serializer: type[Serializer]) -> tuple[memoryview, bool]:
        """Return what a serializer made as read-only bytes, and whether nobody writes to them any more."""
        if isinstance(body, bytes):
            return memoryview(body), True
        if isinstance(body, Buffer):
            return body.pop().view.toreadonly(), True  # moved out: what the author does to the buffer next is his own
        if isinstance(body, np.ndarray) and not body.dtype.hasobject:
            body = np.ascontiguousarray(body, body.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
        elif not isinstance(body, (bytearray, memoryview)):
            what = f"{serializer.__name__}.serialize returned {shown(body)}"
            raise RegistrationError(f"{what}, expected a Buffer, bytes or an array of numbers")
        return _flat(memoryview(body).toreadonly()), False

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
        stream._on_capture(moment.frame)
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
                    f"sensor {self._stream._sensor.name!r}: {what}. A capture is for one message: take another in tick."
                )
            self._used = "sent"
        try:
            envs = self._stream._envs(env)
            if self._stream.has_listeners:
                stream = self._stream
                stream._emit(self.moment, envs, stream._its_serializer().serialize(stream._sensor, *data))
        finally:
            self.drop()

    def drop(self) -> None:
        """Give up what was not sent, so that the frame does not wait for it. Harmless where it was sent."""
        with self._lock:
            self._used = self._used or "dropped"
            if self._resolved:
                return
            self._resolved = True
        self._stream._on_done(self.moment.frame)

    def __del__(self) -> None:
        if not self._resolved:
            self._resolved = True  # nobody else holds it any more, so no lock is needed
            self._stream._on_done(self.moment.frame)


def _flat(view: memoryview) -> memoryview:
    """Return the same bytes, as bytes."""
    return view if view.format == "B" and view.ndim == 1 else memoryview(view.tobytes())


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function))


# What a sensor is attached to -----------------------------------------------------------------------------------------


class Model(Protocol):
    """What streamed sensors see of the engine."""

    name: str
    prepared: frozenset[Requirement]
    """What sensors of the scene can require now."""

    def names(self, kind: Literal["body"]) -> Sequence[str]:
        """Return the names of all bodies, without the world; a body's id is its place among them."""
        ...

    def parent_body(self, body: int) -> int | None:
        """Return the body above one, -1 for the world; None where the engine knows no kinematic tree."""
        ...

    def shapes(self) -> Sequence[Any]:
        """Return all shapes of one environment; none where the engine does not know them."""
        ...

    def supports(self, requirement: Requirement) -> str | None:
        """Return why the engine cannot give what a sensor of the scene would require, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Owner:
    """The body that a sensor is attached to.

    Attributes:
        body: its id, name, entity and bounding box.
        links: ids of all bodies of its kinematic tree, itself among them. Where the engine knows no tree, those of its
            entity.
        root: the body of its tree that hangs on the world; itself where the tree is not known.
    """

    body: Body
    links: frozenset[int]
    root: Body


def owner_of(body: Body, bodies: Bodies, model: Model) -> Owner:
    """Return a body with the others of its kinematic tree.

    Args:
        body: what the sensor is attached to.
        bodies: all bodies.
        model: the engine, which may know the tree.
    """
    root = _root(body.id, model)
    if root is None:
        mine = [other.id for other in bodies.values() if body.entity and other.entity == body.entity]
        return Owner(body, frozenset({body.id, *mine}), body)
    return Owner(body, frozenset(other for other in bodies if _root(other, model) == root), bodies[root])


def _root(body: int, model: Model) -> int | None:
    """Return the body above it that hangs on the world; None where the tree is not known."""
    above = model.parent_body(body)
    while above is not None and above >= 0:
        body, above = above, model.parent_body(above)
    return None if above is None else body


# The sensor -----------------------------------------------------------------------------------------------------------


class StreamedSensor:
    """Base of streamed sensors: define `definition`, and what else is needed of `set`, `set_owner` and `tick`.

    The order of calls is: `__init__` without arguments, `set`, `set_owner`, `scene_sensors`, then `tick` in each frame,
    and `close` at the end; all on the simulation's thread. What is set and attached is known from `set` on. A class
    that defines `definition` is registered under its id; one that inherits it registers nothing.
    """

    serializer: ClassVar[type[Serializer]]
    """Makes bytes out of what is given to `stream.send`, and data of them on the other side."""
    events: ClassVar[bool] = False
    """Whether its messages are events: none is left out for a newer one."""

    readings: Mapping[str, Reading]
    """The newest readings of the scene's sensors that `scene_sensors` asked for, by their keys; before each `tick`."""
    is_within_step: bool = False
    """Whether the frame is in the midst of a control step, of which further ticks follow; before each `tick`."""

    _name: str
    _envs: range
    _transform: Pose
    _description: ActorDescription
    _owner: Owner | None
    _bodies: Bodies
    _stream: Stream

    @classmethod
    def definition(cls) -> SensorDefinition:
        """Return the id, the attributes and their defaults. The one method that a sensor must have."""
        raise RegistrationError(f"{cls.__qualname__} has no definition: @classmethod def definition(cls)")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "definition" in vars(cls):
            _register(cls)

    def set(self, description: ActorDescription) -> None:
        """Take the attributes; called once, right after creation. Call `super().set(description)` first."""

    def set_owner(self, owner: Owner | None) -> None:
        """Take what the sensor is attached to; None: nothing, it stands in the world. Call `super()`'s first."""

    def scene_sensors(self, model: Model) -> Mapping[str, Mapping[str, Any]]:
        """Return sensors that the scene must have for this one: by a key of its own the config, with its `kind`.

        They are added once, after `set_owner`, and removed with this sensor; see `readings`.

        Args:
            model: what the engine has and can give.
        """
        return {}

    def tick(self, snapshot: Snapshot) -> None:
        """Measure, and send what there is to send; called in every frame. An exception ends the sensor."""

    def close(self) -> None:
        """Let go of what it holds; called once, when it is destroyed. Call `super().close()` as well."""

    @property
    def name(self) -> str:
        """Its name in the server."""
        return self._name

    @property
    def envs(self) -> range:
        """The environments that it is for, one after the other."""
        return self._envs

    @property
    def transform(self) -> Pose:
        """Its pose in the frame of the body that it is attached to, else in the world."""
        return self._transform

    @property
    def description(self) -> ActorDescription:
        """Its blueprint's id and the attributes that were chosen."""
        return self._description

    @property
    def owner(self) -> Owner | None:
        """What it is attached to."""
        return self._owner

    @property
    def bodies(self) -> Bodies:
        """All bodies, by id or name."""
        return self._bodies

    @property
    def stream(self) -> Stream:
        """What it sends with."""
        return self._stream

    @property
    def listeners(self) -> bool:
        """Whether anyone listens."""
        return self._stream.has_listeners

    def rows(self, snapshot: Snapshot) -> slice:
        """Return where the sensor's environments are on the first axis of a snapshot's arrays.

        Raises:
            StreamError: the snapshot does not have all of them.
        """
        return _rows(snapshot.env_ids, self._envs, self._name, "the snapshot")

    def reading_rows(self, key: str) -> slice:
        """Return where the sensor's environments are on the first axis of `readings[key]`.

        Raises:
            StreamError: the reading does not have all of them.
        """
        return _rows(self.readings[key].env_ids, self._envs, self._name, f"the reading {key!r}")

    def pose(self, snapshot: Snapshot) -> Array:
        """Return where the sensor is in the world, float64 `[env, 7]`: position in m, orientation wxyz."""
        own = self._transform.to_array()
        own[3:] /= np.linalg.norm(own[3:])  # a pose may be a little off
        if self._owner is None:
            return np.tile(own, (len(self._envs), 1))
        rows, body = self.rows(snapshot), snapshot.bodies.row(self._owner.body.id)
        quat = snapshot.quat_w[rows, body].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # a state may be anything
            quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
        out = np.empty((len(quat), 7))
        out[:, :3] = snapshot.pos_w[rows, body] + rotated(quat, own[:3])
        out[:, 3:] = quat_product(quat, own[3:])
        return out


def _rows(env_ids: Array, envs: range, name: str, what: str) -> slice:
    first = int(np.searchsorted(env_ids, envs.start))
    if not np.array_equal(env_ids[first : first + len(envs)], envs):
        raise StreamError(
            f"sensor {name!r}: {what} does not have all of the environments {envs.start}..{envs.stop - 1}"
        )
    return slice(first, first + len(envs))


_NEXT, _AFTER = np.array([1, 2, 0]), np.array([2, 0, 1])


def _cross(a: Array, b: Array) -> Array:
    """Return cross products `[..., 3]`; NumPy's own takes five times as long for few."""
    product: Array = a[..., _NEXT] * b[..., _AFTER] - a[..., _AFTER] * b[..., _NEXT]
    return product


def rotated(quat: Array, vector: Array) -> Array:
    """Return vectors `[..., 3]` turned by unit quaternions `[..., 4]` (wxyz)."""
    w, axis = quat[..., :1], quat[..., 1:]
    twice = 2.0 * _cross(axis, vector)
    return vector + w * twice + _cross(axis, twice)


def quat_product(a: Array, b: Array) -> Array:
    """Return the products of quaternions `[..., 4]` (wxyz): first b, then a."""
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    w = aw * bw - np.sum(av * bv, axis=-1, keepdims=True)
    return np.concatenate((w, aw * bv + bw * av + _cross(av, bv)), axis=-1)


def spawn(
    cls: type[StreamedSensor],
    name: str,
    description: ActorDescription,
    *,
    stream: Callable[[StreamedSensor], Stream],
    bodies: Bodies,
    envs: range,
    transform: Pose | None = None,
    owner: Owner | None = None,
) -> StreamedSensor:
    """Make a streamed sensor: build it, give it its attributes, then its owner.

    Args:
        cls: its class.
        name: its name in the server.
        description: blueprint and chosen attributes.
        stream: makes its stream.
        bodies: all bodies of the world.
        envs: the environments it is for, one after the other.
        transform: its pose relative to the owner, else in the world.
        owner: what it is attached to.

    Raises:
        ConfigError: environments that do not follow each other.
        Exception: what its own `__init__`, `set` and `set_owner` raise; it then was closed.
    """
    if envs.step != 1 or not envs or envs.start < 0:
        raise ConfigError.single(cls.__name__, "envs", envs, "environments that follow each other, at least one")
    sensor = cls()
    sensor._name, sensor._envs, sensor._description = name, envs, description
    sensor._transform, sensor._owner = Pose() if transform is None else transform, owner
    sensor._bodies, sensor.readings = bodies, {}
    sensor._stream = stream(sensor)
    try:
        sensor.set(description)
        sensor.set_owner(owner)
    except BaseException:
        sensor._stream.close()
        sensor.close()
        raise
    return sensor


def scene_cfgs(sensor: StreamedSensor, model: Model) -> dict[str, Any]:
    """Return the configs of the sensors that the scene must have for a sensor, by its own keys.

    Their names are ``NAME/KEY``, with the sensor's name, where it gives none.

    Raises:
        ConfigError, UnknownNameError, UnsupportedError: there are no such sensors.
    """
    from sensorium import registry

    cfgs = {}
    for key, values in sensor.scene_sensors(model).items():
        cfg_class = registry.cfg_for_kind(values["kind"])
        cfgs[key] = cfg_class.from_dict({"name": f"{sensor.name}/{key}", **values})
    return cfgs


def run_tick(sensor: StreamedSensor, snapshot: Snapshot, failures: FailureLog) -> SensorFailure | None:
    """Let a sensor measure; return why it must end, None where it goes on.

    Args:
        sensor: the sensor; `readings` are set already.
        snapshot: the bodies at the frame in progress.
        failures: where its exception goes, with its name.
    """
    sensor._stream._thread = threading.get_ident()
    stream = sensor._stream
    try:
        stream._is_heard = stream.has_listeners
        try:
            sensor.tick(snapshot)
        finally:
            stream._is_heard = None
            stream.flush()
    except Exception as error:
        return failures.add(sensor.name, "tick", snapshot.frame, error)
    return None


def end(sensor: StreamedSensor, failures: FailureLog) -> None:
    """Close a sensor and its stream; an exception in its `close` is reported."""
    sensor._stream.close()
    try:
        sensor.close()
    except Exception as error:
        failures.add(sensor.name, "close", -1, error)


# Registry -------------------------------------------------------------------------------------------------------------

_classes: dict[str, type[StreamedSensor]] = {}
_loaded = False
_broken: dict[str, str] = {}


def _register(cls: type[StreamedSensor]) -> None:
    definition = cls.definition()
    if not isinstance(definition, SensorDefinition):
        raise RegistrationError(
            f"{cls.__qualname__}.definition() returned {shown(definition)}, expected a SensorDefinition"
        )
    serializer = getattr(cls, "serializer", None)
    if serializer is not None and not (isinstance(serializer, type) and issubclass(serializer, Serializer)):
        raise RegistrationError(
            f"{cls.__qualname__}.serializer is {shown(serializer)}, expected a subclass of Serializer"
        )
    other = _classes.get(definition.id)
    if other is not None and _path(other) != _path(cls):
        raise RegistrationError(
            f"{_path(cls)} defines {definition.id!r}, which {_path(other)} defines already: give it another id."
        )
    _classes[definition.id] = cls


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def registered() -> dict[str, type[StreamedSensor]]:
    """Return all streamed sensors that are known, by id: ours, those of plugins, and those defined so far.

    A plugin that cannot be loaded is reported by name, once, and takes nothing down.
    """
    _load_all()
    return dict(_classes)


def find(id: str) -> type[StreamedSensor]:
    """Return the streamed sensor with an id.

    Raises:
        UnknownNameError: there is none; the message has the nearest, and the plugins that could not be loaded.
    """
    known = registered()
    if id not in known:
        fix = "".join(
            f"It may be in the plugin {name!r}, which could not be loaded: {why} " for name, why in _broken.items()
        )
        raise UnknownNameError("streamed sensor", id, known, fix.strip())
    return known[id]


def _load_all() -> None:
    global _loaded
    if _loaded:
        return
    _loaded = True
    import importlib

    for module in OURS:
        importlib.import_module(module)
    for point in _sorted(entry_points(group=ENTRY_POINT_GROUP)):
        try:
            point.load()
        except (Exception, SystemExit) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})."
            _broken[point.name] = why
            package = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
            fix = f"Mend it, or remove it: pip uninstall {point.dist.name}." if point.dist is not None else "Mend it."
            text = (
                f"the plugin {point.name!r}{package} ({point.value}) of streamed sensors cannot be loaded: {why} {fix}"
            )
            warnings.warn(text, SensoriumWarning, stacklevel=4)


def _sorted(points: Iterable[EntryPoint]) -> list[EntryPoint]:
    return sorted(points, key=lambda point: (point.name, point.value))
