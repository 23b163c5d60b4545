"""The data of several sensors that belong to one frame, together."""

from __future__ import annotations

import operator
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sensorium.errors import ConfigError, StaleError, StreamError, UnknownNameError, listed

if TYPE_CHECKING:
    from sensorium.wire.data import SensorData

KEEP = 64
"""Frames with data that wait to be asked for; more, and the oldest goes."""

GRACE = 1.0
"""How long the announcement of a frame may come after all streams have ended, s."""


class FrameTimeoutError(StreamError, TimeoutError):
    """A frame was not complete in time.

    Args:
        text: what the error says.
        frame: the frame that was waited for; None for any.
        missing: what had not come, by sensor, each with the reason.
    """

    def __init__(self, text: str, frame: int | None, missing: Mapping[str, str]) -> None:
        super().__init__(text)
        self.frame = frame
        self.missing = dict(missing)


class _Framed(Protocol):
    @property
    def frame(self) -> int: ...


D = TypeVar("D", bound=_Framed)


class _Frame(Generic[D]):
    __slots__ = ("data", "due", "taken")

    def __init__(self) -> None:
        self.data: dict[str, D] = {}
        self.due: frozenset[str] = frozenset()
        self.taken = False


class FrameCollector(Generic[D]):
    """Collects data by frame until the frame is complete. It knows no client and may be used by any threads at once.

    A frame is complete when it has been announced, with the sensors that are due in it, and the data of all of those
    have come. Announcements, and the data of each sensor, come in the order of frames, but among each other in any.
    Where later data of a sensor have come, those of the frame never will: it was subscribed to later, or had nothing
    for the environments asked for. It then counts as not due.

    Args:
        names: the sensors.
        hold: for a sensor that is not due in a frame give its newest earlier data instead of None.
        keep: most frames with data that are kept, >= 1; more, and the oldest is dropped.

    Raises:
        ConfigError: no names, one of them twice, or `keep` is less than 1.
    """

    def __init__(self, names: Iterable[str], *, hold: bool = False, keep: int = KEEP) -> None:
        self.names = _checked(names)
        self.hold = hold
        if keep < 1:
            raise ConfigError.single("FrameSync", "keep", keep, "a number of frames >= 1")
        self.keep = keep
        self._frames: dict[int, _Frame[D]] = {}
        self._runs: list[list[int]] = []  # first and last of each unbroken run of announced frames, ascending
        self._first: int | None = None  # the first that was announced
        self._floor = -1  # this and all before are gone
        self._taken = -1  # the newest that was handed out
        self._held: dict[str, D] = {}  # newest data at or before the floor
        self._newest: dict[str, int] = {}  # frame of the newest data
        self._ended: dict[str, str] = {}
        self._ended_at = 0.0  # when the last of them did
        self._gone_data: list[object] = []  # let go without the lock, for that may call others
        self._awaited: dict[int, int] = {}
        self._closed = False
        self._dropped = self._late = self._replaced = 0
        self._changed = threading.Condition()

    @property
    def dropped(self) -> int:
        """Frames with data that went without having been asked for."""
        return self._dropped

    @property
    def late(self) -> int:
        """Data that came when their frame was gone."""
        return self._late

    @property
    def replaced(self) -> int:
        """Data in whose place later ones of the same sensor and frame came; only streams of events have such."""
        return self._replaced

    @property
    def pending(self) -> int:
        """Frames with data that are kept now, the newest that was handed out included."""
        return len(self._frames)

    @property
    def ended(self) -> dict[str, str]:
        """Sensors whose stream has ended, each with the reason."""
        with self._changed:
            return dict(self._ended)

    @property
    def newest(self) -> int | None:
        """The newest frame that was announced; None before the first."""
        with self._changed:
            return self._runs[-1][1] if self._runs else None

    def add(self, name: str, data: D) -> None:
        """Take the data of one sensor in one frame.

        Raises:
            UnknownNameError: this sensor is not collected.
        """
        if name not in self.names:
            raise UnknownNameError("sensor", name, self.names)
        with self._changed:
            if self._closed:
                return
            number = data.frame
            self._newest[name] = max(self._newest.get(name, -1), number)
            if number <= self._floor:
                self._late += self._first is not None and number >= self._first
                self._hold(name, data)
                return
            frame = self._frames.setdefault(number, _Frame())
            self._replaced += name in frame.data
            frame.data[name] = data
            self._forget()
            self._changed.notify_all()
        self._let_go()

    def done(self, frame: int, due: Iterable[str]) -> None:
        """Take the announcement that a frame is over.

        Args:
            frame: its number; later ones follow.
            due: sensors that have data in it; those that are not collected do not matter.
        """
        wanted = frozenset(due).intersection(self.names)
        with self._changed:
            if self._closed:
                return
            newest = self._runs[-1][1] if self._runs else None
            if newest is None:
                self._drop_to(frame - 1)  # nobody can ask for what was before
                self._first = frame
            if newest is not None and frame == newest + 1:
                self._runs[-1][1] = frame
            elif newest is None or frame > newest:
                self._runs.append([frame, frame])
            elif frame < newest:
                self._end(self.names, f"the server began anew: frame {frame} came after {newest}")
            if wanted and frame > self._floor:
                self._frames.setdefault(frame, _Frame()).due |= wanted
            self._forget()
            self._changed.notify_all()
        self._let_go()

    def end(self, name: str, reason: str = "it was stopped") -> None:
        """Take the news that a sensor's stream has ended: all its data have been added.

        Raises:
            UnknownNameError: this sensor is not collected.
        """
        if name not in self.names:
            raise UnknownNameError("sensor", name, self.names)
        with self._changed:
            self._end([name], reason)

    def get(self, frame: int | None = None, timeout: float | None = 1.0) -> dict[str, D | None]:
        """Return the data of one frame by sensor, as soon as they are complete; a sensor that is not due gives None.

        Earlier frames are dropped then, but for those that other threads wait for. The frame itself can be asked for
        again, until a later one is.

        Args:
            frame: its number; None is the next complete frame with data, see `next`.
            timeout: longest wait, s; None is without end.

        Raises:
            FrameTimeoutError: it was not complete in time (a `TimeoutError`); names what is missing, and why.
            StaleError: the frame is gone, or was never announced.
            StreamError: it cannot become complete, for a stream has ended; or this is closed.
        """
        if frame is None:
            return self.next(timeout)[1]
        number = operator.index(frame)
        if number < 0:
            raise ConfigError.single("FrameSync", "frame", number, "the number of a frame, >= 0")
        with self._changed:
            self._awaited[number] = self._awaited.get(number, 0) + 1
            try:
                self._await(lambda: self._complete(number), timeout, number)
                return self._hand_out(number)
            finally:
                self._awaited[number] -= 1
                if not self._awaited[number]:
                    del self._awaited[number]
                self._forget()
                self._let_go()

    def next(self, timeout: float | None = 1.0) -> tuple[int, dict[str, D | None]]:
        """Return number and data of the next frame that has data of any of the sensors, each frame once.

        "Next" is after the newest frame that was handed out to anybody. Frames keep their order: a later one that is
        complete waits until the earlier one is.

        Raises:
            FrameTimeoutError, StreamError: as `get`.
        """
        with self._changed:
            self._await(lambda: self._next() is not None and self._complete(self._next()), timeout, None)
            number = self._next()
            assert number is not None
            bundle = self._hand_out(number)
            self._forget()
        self._let_go()
        return number, bundle

    def close(self) -> None:
        """Forget everything; who waits gets a StreamError. May be called again."""
        with self._changed:
            self._closed = True
            frames, self._frames = self._frames, {}
            held, self._held = self._held, {}
            self._changed.notify_all()
        frames.clear()
        held.clear()
        self._let_go()

    def _let_go(self) -> None:
        if self._gone_data:
            self._gone_data = []

    # Under the lock --------------------------------------------------------------------------------------------------

    def _await(self, condition: Callable[[], bool], timeout: float | None, number: int | None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._closed:
                raise StreamError("this FrameSync is closed.")
            if condition():
                return
            now = time.monotonic()
            left = None if end is None else end - now
            if len(self._ended) == len(self.names):
                grace = self._ended_at + GRACE - now if self._unannounced() else 0.0
                if grace <= 0:
                    raise StreamError(f"all streams have ended: {_reasons(self._ended)}.")
                left = grace if left is None else min(left, grace)
            if end is not None and now >= end:
                assert timeout is not None
                raise self._too_late(number, timeout)
            self._changed.wait(left)

    def _unannounced(self) -> bool:
        """Whether there are data whose frame's announcement may be on its way."""
        newest = self._runs[-1][1] if self._runs else -1
        return any(number > newest for number in self._frames)

    def _end(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            self._ended.setdefault(name, reason)
        self._ended_at = time.monotonic()
        self._changed.notify_all()

    def _complete(self, number: int | None) -> bool:
        """Whether a frame is complete; raises where it can never be."""
        assert number is not None
        if number <= self._floor:
            raise StaleError(self._gone(number))
        if not self._announced(number):
            if self._runs and self._runs[-1][1] > number:
                raise StaleError(f"frame {number} was never announced: there was none between {self._around(number)}.")
            return False
        missing = self._missing(number)
        broken = {name: reason for name, reason in self._ended.items() if name in missing}
        if broken:
            raise StreamError(f"frame {number} cannot become complete, for a stream has ended: {_reasons(broken)}.")
        return not missing

    def _missing(self, number: int) -> list[str]:
        frame = self._frames.get(number)
        if frame is None:
            return []
        due = [each for each in self.names if each in frame.due and each not in frame.data]
        return [each for each in due if self._newest.get(each, -1) < number]

    def _next(self) -> int | None:
        """The first announced frame with data that is later than all that were handed out."""
        later = [number for number, frame in self._frames.items() if number > self._taken and frame.due]
        return min(later, default=None)

    def _announced(self, number: int) -> bool:
        i = bisect_right(self._runs, number, key=lambda run: run[0]) - 1
        return i >= 0 and number <= self._runs[i][1]

    def _around(self, number: int) -> str:
        i = bisect_right(self._runs, number, key=lambda run: run[0])
        return f"{self._runs[i - 1][1]} and {self._runs[i][0]}"

    def _hand_out(self, number: int) -> dict[str, D | None]:
        frame = self._frames.get(number)
        data = {} if frame is None else frame.data
        bundle: dict[str, D | None] = {name: data.get(name) for name in self.names}
        if self.hold:
            for name in [name for name, value in bundle.items() if value is None]:
                earlier = [k for k, each in self._frames.items() if k < number and name in each.data]
                bundle[name] = self._frames[max(earlier)].data[name] if earlier else self._held.get(name)
        if frame is not None:
            frame.taken = True
        self._taken = max(self._taken, number)
        return bundle

    def _forget(self) -> None:
        """Drop what is before the newest that was handed out, or too much; not what somebody waits for."""
        if self._taken > self._floor:
            self._drop_to(min([self._taken, *self._awaited]) - 1)
        while len(self._frames) > self.keep:
            self._drop_to(min(self._frames))

    def _drop_to(self, number: int) -> None:
        if number <= self._floor:
            return
        for gone in sorted(each for each in self._frames if each <= number):
            frame = self._frames.pop(gone)
            self._dropped += bool(self._runs and not frame.taken)
            self._gone_data.append(frame)
            for name, data in frame.data.items():
                self._hold(name, data)
        self._floor = number
        while len(self._runs) > 1 and self._runs[0][1] <= number:
            self._runs.pop(0)

    def _hold(self, name: str, data: D) -> None:
        if self.hold and (name not in self._held or self._held[name].frame <= data.frame):
            self._gone_data.append(self._held.get(name))
            self._held[name] = data

    # What errors say -------------------------------------------------------------------------------------------------

    def _gone(self, number: int) -> str:
        if self._first is not None and number < self._first:
            return f"frame {number} was before this FrameSync began: the first it was told of is {self._first}."
        if number < self._taken:
            return f"frame {number} is gone: frame {self._taken} has been handed out."
        return f"frame {number} is gone: {self.keep} later ones have come, and no more are kept (`keep`)."

    def _too_late(self, number: int | None, timeout: float) -> FrameTimeoutError:
        newest = f"the newest is {self._runs[-1][1]}" if self._runs else "none was yet"
        which = self._next() if number is None else number
        if which is None or not self._announced(which):
            what = "no frame with data was announced" if which is None else f"frame {which} was not announced"
            ended = f" Ended: {_reasons(self._ended)}." if self._ended else ""
            text = f"{what} within {timeout:g} s ({newest}).{ended} Is the simulation being stepped?"
            return FrameTimeoutError(text, number, dict(self._ended))
        frame = self._frames[which]
        late = {name: self._why_late(name) for name in self._missing(which)}
        there = [name for name in self.names if name in frame.data]
        not_due = [name for name in self.names if name not in late and name not in there]
        text = f"frame {which} is not complete after {timeout:g} s. Missing: {_reasons(late)}."
        text += f" There: {listed(there)}." if there else ""
        text += f" Not due in this frame: {listed(not_due)}." if not_due else ""
        return FrameTimeoutError(text, which, late)

    def _why_late(self, name: str) -> str:
        newest = self._newest.get(name)
        return "late, nothing of it has come" if newest is None else f"late, its newest data are of frame {newest}"


class _Handle(Protocol):
    def stop(self) -> object: ...


class _Subscribed(_Handle, Protocol):
    @property
    def number(self) -> int: ...


class _Done(Protocol):
    """The end of a frame, as the server announces it."""

    @property
    def frame(self) -> int: ...
    @property
    def subscriptions(self) -> tuple[int, ...]: ...


class SyncClient(Protocol):
    """What a `FrameSync` asks of a client."""

    def _subscribe(self, name: str, callback: Callable[[Any], None], **options: Any) -> _Subscribed: ...
    def _on_frame(self, callback: Callable[[Any], None]) -> _Handle: ...


class FrameSync:
    """The data of several sensors frame by frame: subscriptions of its own, lossless, beside those of other listeners.

    ```python
    with sn.FrameSync(client, ["imu", "lidar"]) as sync:
        frame = client.step(ctrl)
        bundle = sync.get(frame)  # {"imu": data, "lidar": data, or None where it was not due in this frame}
    ```

    Iterating gives ``(frame, bundle)`` for each frame with data, in order, waiting without end, until it is closed.
    Several messages of one sensor in one frame (events) are not for this: the last one is given. It ends with `close`,
    with the client, or when nobody holds it any more.

    Args:
        client: the connection.
        names: the sensors.
        hold: for a sensor that is not due in a frame give its newest earlier data instead of None.
        keep: most frames with data that wait to be asked for, >= 1; more, and the oldest is dropped and counted.
        options: further options of the subscriptions, as `envs` and `truth`.

    Raises:
        ConfigError: no names, one of them twice, or `keep` is less than 1.
        UnknownNameError: the server has no such sensor.
        StreamError: the server refuses, or the connection is gone.
    """

    def __init__(
        self, client: SyncClient, names: Iterable[str], *, hold: bool = False, keep: int = KEEP, **options: Any
    ) -> None:
        for option in ("policy", "every", "max_rate"):
            if option in options:
                raise ConfigError.single("FrameSync", option, options[option], "nothing: it has all data of all frames")
        collector: FrameCollector[SensorData] = FrameCollector(names, hold=hold, keep=keep)
        handles: list[_Handle] = []
        self._collector = collector
        self._finalizer = weakref.finalize(self, _stop, collector, handles)
        self._finalizer.atexit = False  # the client ends then
        try:
            mine: dict[str, _Subscribed] = {}
            for name in collector.names:
                mine[name] = client._subscribe(
                    name, _adder(collector, name), policy="lossless", on_end=_ender(collector, name), **options
                )
                handles.append(mine[name])
            # The last: frames that are announced from now on have all subscriptions.
            handles.append(client._on_frame(lambda done: collector.done(done.frame, _due(done, mine))))
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The sensors."""
        return self._collector.names

    @property
    def dropped(self) -> int:
        """Frames with data that went without having been asked for."""
        return self._collector.dropped

    @property
    def late(self) -> int:
        """Data that came when their frame was gone."""
        return self._collector.late

    @property
    def replaced(self) -> int:
        """Messages in whose place a later one of the same sensor and frame is given: only events have such."""
        return self._collector.replaced

    @property
    def ended(self) -> dict[str, str]:
        """Sensors whose stream has ended, each with the reason."""
        return self._collector.ended

    @property
    def newest(self) -> int | None:
        """The newest frame that was announced; None before the first."""
        return self._collector.newest

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return not self._finalizer.alive

    def get(self, frame: int | None = None, timeout: float | None = 1.0) -> dict[str, SensorData | None]:
        """Return the data of one frame by sensor, as soon as they are complete; see `FrameCollector.get`."""
        return self._collector.get(frame, timeout)

    def next(self, timeout: float | None = 1.0) -> tuple[int, dict[str, SensorData | None]]:
        """Return number and data of the next frame with data; see `FrameCollector.next`."""
        return self._collector.next(timeout)

    def __iter__(self) -> Iterator[tuple[int, dict[str, SensorData | None]]]:
        while not self.closed:
            try:
                found = self._collector.next(None)
            except StreamError:
                if self.closed:
                    return
                raise
            yield found

    def close(self) -> None:
        """End the subscriptions and forget all data; who waits gets a StreamError. May be called again."""
        self._finalizer()

    def __enter__(self) -> FrameSync:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"newest frame {self.newest}, {self._collector.pending} kept"
        return f"<FrameSync of {listed(self.names)}: {state}, {self.dropped} dropped>"


def _adder(collector: FrameCollector[SensorData], name: str) -> Callable[[SensorData], None]:
    return lambda data: collector.add(name, data)


def _ender(collector: FrameCollector[SensorData], name: str) -> Callable[[str], None]:
    return lambda reason: collector.end(name, reason)


def _due(done: _Done, subscribed: Mapping[str, _Subscribed]) -> list[str]:
    """Return the sensors of which a frame has data for these subscriptions."""
    return [name for name, each in subscribed.items() if each.number in done.subscriptions]


def _stop(collector: FrameCollector[SensorData], handles: list[_Handle]) -> None:
    collector.close()
    while handles:
        handles.pop().stop()


def _checked(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ConfigError.single("FrameSync", "names", names, "a list of sensors", f"Write [{names!r}].")
    found = tuple(names)
    if not found:
        raise ConfigError.single("FrameSync", "names", found, "at least one sensor")
    if len(set(found)) < len(found):
        raise ConfigError.single("FrameSync", "names", found, "each sensor once")
    return found


def _reasons(of: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} ({reason})" for name, reason in of.items())
