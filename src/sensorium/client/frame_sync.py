"""Synchronised access to the data of several sensors in the same frame."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from sensorium.client import checks
from sensorium.errors import ConfigError, StaleError, StreamError, UnknownNameError, listed
from sensorium.readings import Sample
from sensorium.wire.data import LostEvents
from sensorium.wire.messages import FrameDone

if TYPE_CHECKING:
    from sensorium.client.client import Client
    from sensorium.client.subscription import Subscription

E = TypeVar("E")

KEEP = 64
"""Maximum number of pending frames with data; beyond it the oldest is dropped."""

MAX_EVENTS = 4096
"""Maximum number of data items of one sensor kept per frame; further data are only counted."""

GRACE = 1.0
"""Longest time that the announcement of a frame may arrive after all streams have ended, s."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FrameBundle(Mapping[str, Any]):
    """Read-only data of several sensors in one frame: sensor -> its data, or None if the sensor sent none.

    The class of the data depends on the serializer of the sensor. Most are a `Reading`, whose fields are known only at
    run time. A type checker therefore accepts ``bundle["imu"].lin_acc_b`` as it is, and does not report that the value
    may be None. Write ``bundle.of("imu", Reading)`` for a checked type.

    Attributes:
        frame: number of the frame.
        newest: newest data of each sensor in the frame.
        events: all messages of each sensor in this frame, in order; ``()`` if the sensor sent none. If events were
            lost, or exceed the limit of the `FrameSync`, the last item is a `LostEvents` of this frame. It states their
            number, and iterating over it yields nothing. A sensor that sends its state usually has a single item.
    """

    frame: int
    newest: Mapping[str, Any]
    events: Mapping[str, tuple[Any, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", MappingProxyType(self.events))

    def of(self, name: str, kind: type[E]) -> E | None:
        """Return ``bundle[name]``, typed.

        Raises:
            UnknownNameError: the bundle has no such sensor.
            TypeError: the data are of another class.
        """
        data = self[name]
        if data is not None and not isinstance(data, kind):
            raise TypeError(f"sensor {name!r} sent {type(data).__name__}, not {kind.__name__}")
        return data

    def __getitem__(self, name: str) -> Any:
        """Return the newest data of a sensor in this frame, or its newest received event; None if there are none."""
        try:
            return self.newest[name]
        except KeyError:
            raise UnknownNameError("sensor", name, self.newest) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.newest)

    def __len__(self) -> int:
        return len(self.newest)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameBundle, (self.frame, self.newest, dict(self.events))

    def __repr__(self) -> str:
        return f"FrameBundle(frame={self.frame}, {self.newest!r})"


class FrameTimeoutError(StreamError, TimeoutError):
    """Error for a frame that was not complete in time.

    Args:
        text: error message.
        frame: the requested frame; None for any.
        missing: missing data by sensor, each with the reason.
    """

    def __init__(self, text: str, frame: int | None, missing: Mapping[str, str]) -> None:
        super().__init__(text)
        self.frame = frame
        self.missing = dict(missing)


@dataclass(slots=True, eq=False)
class _Frame:
    data: dict[str, Sample] = field(default_factory=dict)
    """Newest data of each sensor."""
    kept: dict[str, list[Sample]] = field(default_factory=dict)
    """All data of each sensor, up to the limit."""
    got: Counter[str] = field(default_factory=Counter)
    """Number received."""
    done: FrameDone | None = None
    """The announcement."""
    due: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Number sent, and number of events that the server could not send; known after the announcement."""
    taken: bool = False


class FrameSync:
    """Data of several sensors by frame, from separate lossless subscriptions that are independent of other listeners.

    ```python
    with sn.client.FrameSync(client, ["imu", "lidar"]) as sync:
        frame = client.step(ctrl)
        bundle = sync.get(frame)
        bundle["lidar"]  # its data, or None if it was not due in this frame
        bundle.events["guard"]  # all events of this frame, () if there were none
    ```

    Iteration yields ``(frame, bundle)`` for each frame with data, in order, and waits without limit until the
    `FrameSync` is closed. A sensor may send several messages in one frame, e.g. events. `FrameBundle.events` contains
    all of them in order, and ``bundle[name]`` is the newest.

    No event is lost silently. A `LostEvents` replaces events that were lost because the listener was too slow, or that
    exceed `max_events`. A `FrameSync` ends with `close`, with the client, or when no reference to it remains.

    After a restart of the server, a `FrameSync` drops its frames and continues with those of the new server, whose
    numbers start again. Calls that wait for an earlier frame raise a `StaleError`.

    A frame is complete when it has been announced and all announced data have arrived. Announcements arrive in the
    order of frames, and so do the data of each sensor; their mutual order is arbitrary. If later data of a sensor have
    arrived, its missing data will never arrive. A sensor without any data in the frame then counts as not due.

    Args:
        client: the connection.
        names: names of the sensors.
        hold: for a sensor that is not due in a frame, return its newest earlier data instead of None.
        keep: maximum number of pending frames with data, >= 1; beyond it the oldest is dropped and counted.
        max_events: maximum number of messages of one sensor kept per frame, >= 1; further messages are only counted.
        options: further options of the subscriptions, such as `envs` and `truth`.

    Attributes:
        names: names of the sensors.
        dropped: number of frames with data that were dropped without having been requested.
        late: number of data items that arrived after their frame was dropped.
        closed: whether the `FrameSync` is closed.
        ended: sensors whose stream has ended, each with the reason.
        left_out: number of data items missing from all frames: reported as lost by the server, or beyond `max_events`.

    Raises:
        ConfigError: there are no names or a duplicate name, or `keep` or `max_events` is less than 1.
        UnknownNameError: the server has no such sensor.
        StreamError: the server refuses, or the connection is lost.
    """

    def __init__(
        self,
        client: Client,
        names: Iterable[str],
        *,
        hold: bool = False,
        keep: int = KEEP,
        max_events: int = MAX_EVENTS,
        **options: Any,
    ) -> None:
        for option in ("policy", "every", "max_rate"):
            if option in options:
                fix = "Omit it: a FrameSync receives all data of all frames."
                raise ConfigError.single("FrameSync", option, options[option], "no such option", fix)
        if isinstance(names, str):
            raise ConfigError.single("FrameSync", "names", names, "a list of sensors", f"Write [{names!r}].")
        self.names = tuple(names)
        if not self.names or len(set(self.names)) < len(self.names):
            raise ConfigError.single("FrameSync", "names", self.names, "at least one sensor, each once")
        self._hold_newest = hold
        self._keep = checks.whole("FrameSync", "keep", keep)
        self._max_events = checks.whole("FrameSync", "max_events", max_events)
        self._changed = threading.Condition()
        self._client = client
        self._start()
        self.ended: dict[str, str] = {}
        self._ended_at = 0.0  # time when the last stream ended
        self._awaited: list[int] = []  # frames that calls wait for
        self.closed = False
        self.dropped = self.late = self.left_out = 0
        self._subscribed: dict[str, Subscription] = {}
        handles = contextlib.ExitStack()
        self._finalizer = weakref.finalize(self, handles.close)
        self._finalizer.atexit = False  # the client closes at exit
        add, end, done = _weak(self.add), _weak(self.end), _weak(self.done)
        try:
            for name in self.names:
                subscription = client.subscribe(
                    name, partial(add, name), policy="lossless", on_end=partial(end, name), **options
                )
                handles.callback(subscription.stop)
                self._subscribed[name] = subscription
            handles.callback(client.on_frame(done).stop)  # last: all later announcements include all subscriptions
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        """Start without frames."""
        self._restarts = self._client.restarts
        self._frames: dict[int, _Frame] = {}
        self._first: int | None = None  # first announced frame
        self._last = -1  # newest announced frame
        self._skipped: list[range] = []  # frames between the two that the server did not announce
        self._floor = -1  # this frame and all earlier ones are dropped
        self._taken = -1  # newest returned frame
        self._held: dict[str, Sample] = {}  # newest data at or before the floor
        self._newest: dict[str, int] = {}  # frame of the newest data

    def _note_restart(self) -> None:
        """Drop all frames of a server that was restarted, under the lock."""
        if self._restarts != self._client.restarts:
            self._start()

    @property
    def pending(self) -> int:
        """Number of frames with data that are kept now, including the newest returned frame."""
        return len(self._frames)

    @property
    def newest(self) -> int | None:
        """Newest announced frame; None before the first."""
        with self._changed:
            return None if self._first is None else self._last

    def add(self, name: str, data: Sample) -> None:
        """Add data of one sensor in one frame."""
        with self._changed:
            if self.closed or isinstance(data, LostEvents):  # a frame has its own number of lost events
                return
            self._note_restart()
            if (subscription := self._subscribed.get(name)) is not None and not subscription.is_current(data):
                return
            number = data.frame
            self._newest[name] = max(self._newest.get(name, -1), number)
            if number <= self._floor:
                self.late += self._first is not None and number >= self._first
                self._hold(name, data)
                return
            frame = self._frames.setdefault(number, _Frame())
            kept = frame.kept.setdefault(name, [])
            if len(kept) < self._max_events:
                kept.append(data)
            else:
                self.left_out += 1
            frame.data[name] = data
            frame.got[name] += 1
            self._forget()
            self._changed.notify_all()

    def done(self, done: FrameDone) -> None:
        """Record the announcement that a frame has ended; the numbers of frames increase."""
        messages = {number: (count, lost) for number, count, lost in done.messages}
        with self._changed:
            if self.closed:
                return
            self._note_restart()
            frame = done.frame
            if self._first is None:
                self._drop_to(frame - 1)  # earlier frames cannot be requested
                self._first = self._last = frame
            if frame > self._last + 1:
                self._skipped.append(range(self._last + 1, frame))
            self._last = max(self._last, frame)
            due = {name: messages[each.number] for name, each in self._subscribed.items() if each.number in messages}
            self.left_out += sum(lost for _, lost in due.values())
            if due and frame > self._floor:
                announced = self._frames.setdefault(frame, _Frame())
                announced.done, announced.due = done, due
            self._forget()
            self._changed.notify_all()

    def end(self, name: str, reason: str) -> None:
        """Record that the stream of a sensor has ended and all its data have been added."""
        with self._changed:
            self.ended.setdefault(name, reason)
            self._ended_at = time.monotonic()
            self._changed.notify_all()

    def get(self, frame: int | None = None, timeout: float | None = 1.0) -> FrameBundle:
        """Return the data of one frame by sensor as soon as they are complete; None for a sensor that is not due.

        The call drops earlier frames, except those that other threads wait for. The same frame can be requested again
        until a later frame is requested.

        Args:
            frame: number of the frame; None is the next complete frame with data, see `next`.
            timeout: longest wait, s; None waits forever.

        Raises:
            FrameTimeoutError: the frame was not complete in time (a `TimeoutError`); states the missing data and the
                reasons.
            StaleError: the frame was dropped, or was never announced, or the server restarted during the call.
            StreamError: the frame cannot become complete because a stream has ended, or the collector is closed.
        """
        number = None if frame is None else checks.whole("FrameSync", "frame", frame, 0, 2**63)
        awaited = [] if number is None else [number]
        with self._changed:
            self._awaited += awaited
            try:
                return self._hand_out(self._await(number, timeout))
            finally:
                for each in awaited:
                    self._awaited.remove(each)
                self._forget()

    def next(self, timeout: float | None = 1.0) -> tuple[int, FrameBundle]:
        """Return number and data of the next frame that has data of any of the sensors, each frame once.

        The next frame follows the newest frame that was returned to any caller. Frames keep their order: a complete
        frame waits until the earlier frames are complete.

        Raises:
            FrameTimeoutError, StreamError: as `get`.
        """
        bundle = self.get(None, timeout)
        return bundle.frame, bundle

    def __iter__(self) -> Iterator[tuple[int, FrameBundle]]:
        while not self.closed:
            try:
                found = self.next(None)
            except StreamError:
                if self.closed:
                    return
                raise
            yield found

    def close(self) -> None:
        """End the subscriptions and discard all data; pending calls raise a `StreamError`.

        Repeated calls are allowed.
        """
        with self._changed:
            self.closed = True
            self._frames, self._held = {}, {}
            self._changed.notify_all()
        self._finalizer()

    def __enter__(self) -> FrameSync:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"newest frame {self.newest}, {self.pending} kept"
        return f"<FrameSync of {listed(self.names)}: {state}, {self.dropped} dropped>"

    # Under the lock ---------------------------------------------------------------------------------------------------

    def _await(self, number: int | None, timeout: float | None) -> int:
        """Wait until a frame is complete, by default the next one with data; return its number."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        self._note_restart()
        restarts = self._restarts
        while True:
            if self.closed:
                raise StreamError("the FrameSync is closed.")
            if number is not None and restarts != self._client.restarts:
                raise StaleError(f"frame {number} was dropped, because the server restarted. Request a new step.")
            which = self._next() if number is None else number
            if which is not None and self._complete(which):
                return which
            now, last = time.monotonic(), math.inf
            if len(self.ended) == len(self.names):  # the announcement of received data may still arrive
                last = self._ended_at + GRACE if any(each > self._last for each in self._frames) else 0.0
            if now >= last:
                raise StreamError(f"all streams ended: {_reasons(self.ended)}.")
            if now >= end:
                assert timeout is not None
                raise self._too_late(number, timeout)
            self._changed.wait(min(end - now, last - now, threading.TIMEOUT_MAX))

    def _complete(self, number: int) -> bool:
        """Return whether a frame is complete; raise an error if it can never be."""
        if number <= self._floor:
            raise StaleError(self._why_gone(number))
        if not self._announced(number):
            if number < self._last:
                raise StaleError(f"frame {number} does not exist: the server skipped it.")
            return False
        missing = self._missing(number)
        broken = {name: reason for name, reason in self.ended.items() if name in missing}
        if broken:
            raise StreamError(f"frame {number} cannot become complete, because a stream ended: {_reasons(broken)}.")
        return not missing

    def _missing(self, number: int) -> list[str]:
        frame = self._frames.get(number)
        if frame is None:
            return []
        short = [name for name in self.names if frame.got[name] < frame.due.get(name, (0, 0))[0]]
        return [name for name in short if self._newest.get(name, -1) <= number]

    def _next(self) -> int | None:
        """Return the first announced frame with data that is later than all returned frames."""
        later = [number for number, frame in self._frames.items() if number > self._taken and frame.due]
        return min(later, default=None)

    def _announced(self, number: int) -> bool:
        return number <= self._last and not any(number in gap for gap in self._skipped)

    def _hand_out(self, number: int) -> FrameBundle:
        frame = self._frames.get(number, _Frame())
        newest: dict[str, Any] = {name: frame.data.get(name) for name in self.names}
        events: dict[str, tuple[Sample, ...]] = {}
        for name in self.names:
            events[name] = tuple(frame.kept.get(name, ()))
            lost = frame.due.get(name, (0, 0))[1] + frame.got[name] - len(events[name])
            if lost and (done := frame.done) is not None:
                events[name] += (self._subscribed[name].lost_events(done.frame, done.tick, done.time_ns, lost),)
            if newest[name] is None and self._hold_newest:
                earlier = [k for k, each in self._frames.items() if k < number and name in each.data]
                newest[name] = self._frames[max(earlier)].data[name] if earlier else self._held.get(name)
        frame.taken = True
        self._taken = max(self._taken, number)
        return FrameBundle(number, newest, events)

    def _forget(self) -> None:
        """Drop frames before the newest returned frame, except awaited frames, and drop frames beyond the limit."""
        if self._taken > self._floor:
            self._drop_to(min([self._taken, *self._awaited]) - 1)
        while len(self._frames) > self._keep:
            self._drop_to(min(self._frames))

    def _drop_to(self, number: int) -> None:
        if number <= self._floor:
            return
        for gone in sorted(each for each in self._frames if each <= number):
            frame = self._frames.pop(gone)
            self.dropped += self._first is not None and not frame.taken
            for name, data in frame.data.items():
                self._hold(name, data)
        self._floor = number
        self._skipped = [gap for gap in self._skipped if gap.stop > number]

    def _hold(self, name: str, data: Sample) -> None:
        if self._hold_newest and (name not in self._held or self._held[name].frame <= data.frame):
            self._held[name] = data

    # Error messages ---------------------------------------------------------------------------------------------------

    def _why_gone(self, number: int) -> str:
        if self._first is not None and number < self._first:
            return f"frame {number} is older than this FrameSync, whose first frame is {self._first}."
        if number < self._taken:
            return f"frame {number} was dropped, because the later frame {self._taken} was returned."
        return f"frame {number} was dropped, because keep={self._keep} later frames arrived. Increase keep."

    def _too_late(self, number: int | None, timeout: float) -> FrameTimeoutError:
        which = self._next() if number is None else number
        if which is None or not self._announced(which):
            newest = "no frame was announced yet" if self._first is None else f"the newest frame is {self._last}"
            what = "a frame with data" if which is None else f"frame {which}"
            ended = f" Ended: {_reasons(self.ended)}." if self.ended else ""
            text = f"the server did not announce {what} within {timeout:g} s; {newest}.{ended} Does the simulation run?"
            return FrameTimeoutError(text, number, dict(self.ended))
        frame = self._frames[which]
        late: dict[str, str] = {}
        for name in self._missing(which):
            got, newest_of = frame.got[name], self._newest.get(name)
            late[name] = "no data received" if newest_of is None else f"newest data: frame {newest_of}"
            if got:
                late[name] = f"{got} of {frame.due[name][0]} received"
        there = [name for name in self.names if name in frame.data and name not in late]
        not_due = [name for name in self.names if name not in late and name not in there]
        text = f"frame {which} is not complete after {timeout:g} s. Missing: {_reasons(late)}."
        text += f" Received: {listed(there)}." if there else ""
        text += f" Not due in this frame: {listed(not_due)}." if not_due else ""
        return FrameTimeoutError(text, which, late)


def _weak(method: Callable[..., object]) -> Callable[..., None]:
    """Return a function that calls a method while its object exists, without keeping the object alive."""
    found = weakref.WeakMethod(method)

    def call(*arguments: Any) -> None:
        if (bound := found()) is not None:
            bound(*arguments)

    return call


def _reasons(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} ({reason})" for name, reason in reasons.items())
