"""Data that come one by one, collected by frame until that is complete. It knows no client."""

from __future__ import annotations

import operator
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from sensorium.client.frame_bundle import FrameBundle
from sensorium.errors import ConfigError, StaleError, StreamError, UnknownNameError, listed

KEEP = 64
"""Frames with data that wait to be asked for; more, and the oldest goes."""

MOST_EVENTS = 4096
"""Data of one sensor that are kept of one frame; what comes after them is counted only."""

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
    __slots__ = ("counts", "data", "got", "kept", "mark", "taken")

    def __init__(self) -> None:
        self.data: dict[str, D] = {}  # the newest of each sensor
        self.kept: dict[str, list[D]] = {}  # all of each, up to the bound
        self.got: Counter[str] = Counter()  # how many came, lost ones included
        self.counts: dict[str, int] = {}  # how many there are; known when it is announced
        self.mark: Any = None  # the announcement
        self.taken = False


class _Lost:
    """Events of one sensor of which only the number came, and that have not been found missing in a frame yet."""

    __slots__ = ("before", "since")

    def __init__(self) -> None:
        self.before = 0  # before its newest data: of the frame of those, or of an earlier one
        self.since = 0  # after them: of their frame, or of a later one


class FrameCollector(Generic[D]):
    """Collects data by frame until the frame is complete. It knows no client and may be used by any threads at once.

    A frame is complete when it has been announced, with how many data each sensor has in it, and all of those have
    come: an announcement overtakes data, since these wait for credit and for their thread, so that the order in
    which they arrive says nothing. Announcements, and the data of each sensor, come in the order of frames, but among
    each other in any. Where later data of a sensor have come, those that are missing never will. A sensor that has
    none at all then counts as not due.

    Args:
        names: the sensors.
        hold: for a sensor that is not due in a frame give its newest earlier data instead of None.
        keep: most frames with data that are kept, >= 1; more, and the oldest is dropped.
        max_events: most data of one sensor that are kept of one frame, >= 1; more are counted, and their number given.
        missing: makes what stands for data of a sensor that a frame does not give, out of the sensor's name, how many
            they are, and the announcement of the frame; None leaves it out.

    Raises:
        ConfigError: no names, one of them twice, or `keep` or `max_events` is less than 1.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        hold: bool = False,
        keep: int = KEEP,
        max_events: int = MOST_EVENTS,
        missing: Callable[[str, int, Any], D] | None = None,
    ) -> None:
        self.names = _checked(names)
        self.hold = hold
        self.keep = _at_least_one("keep", keep, "frames")
        self.max_events = _at_least_one("max_events", max_events, "events")
        self._make_missing = missing
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
        self._lost: dict[str, _Lost] = {}
        self._dropped = self._late = self._left_out = 0
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
    def left_out(self) -> int:
        """Data that no frame gives: lost on the way, as the server said, or more than `max_events`."""
        return self._left_out

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
            if (lost := self._lost.get(name)) is not None:
                lost.before, lost.since = lost.before + lost.since, 0
            if number <= self._floor:
                self._late += self._first is not None and number >= self._first
                self._hold(name, data)
                return
            frame = self._frames.setdefault(number, _Frame())
            kept = frame.kept.setdefault(name, [])
            if len(kept) < self.max_events:
                kept.append(data)
            else:
                self._left_out += 1
                self._gone_data.append(frame.data[name])
            frame.data[name] = data
            frame.got[name] += 1
            self._find_lost(name)
            self._forget()
            self._changed.notify_all()
        self._let_go()

    def lose(self, name: str, count: int) -> None:
        """Take the word that some data of a sensor were lost, which came after the last that were added.

        Raises:
            UnknownNameError: this sensor is not collected.
        """
        if name not in self.names:
            raise UnknownNameError("sensor", name, self.names)
        with self._changed:
            if self._closed:
                return
            self._lost.setdefault(name, _Lost()).since += count
            self._left_out += count
            self._find_lost(name)
            self._changed.notify_all()

    def done(self, frame: int, due: Iterable[str] | Mapping[str, int], mark: Any = None) -> None:
        """Take the announcement that a frame is over.

        Args:
            frame: its number; later ones follow.
            due: sensors that have data in it, each with how many where that is known, else one; those that are not
                collected do not matter.
            mark: the announcement, for who makes what stands for missing data.
        """
        counts = dict(due) if isinstance(due, Mapping) else dict.fromkeys(due, 1)
        wanted = {name: count for name, count in counts.items() if name in self.names}
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
                announced = self._frames.setdefault(frame, _Frame())
                announced.counts.update(wanted)
                announced.mark = mark
            for name in list(self._lost):
                self._find_lost(name)
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

    def get(self, frame: int | None = None, timeout: float | None = 1.0) -> FrameBundle:
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

    def next(self, timeout: float | None = 1.0) -> tuple[int, FrameBundle]:
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
        short = [name for name in self.names if frame.got[name] < frame.counts.get(name, 0)]
        return [name for name in short if self._newest.get(name, -1) <= number]

    def _find_lost(self, name: str) -> None:
        """Find the frames that lack what was lost of a sensor: the earliest first, for it comes in order."""
        lost = self._lost.get(name)
        if lost is None:
            return
        newest = self._newest.get(name, -1)
        for number in sorted(self._frames):
            frame = self._frames[number]
            short = frame.counts.get(name, 0) - frame.got[name]
            if short <= 0 or not self._announced(number):
                continue
            if number <= newest:
                found = min(short, lost.before)
                lost.before -= found
                frame.got[name] += found
                short -= found
            if number >= newest:
                found = min(short, lost.since)
                lost.since -= found
                frame.got[name] += found
        if self._runs and self._runs[-1][1] >= newest:
            lost.before = 0  # what is left of it was of frames that are gone
        if not lost.before and not lost.since:
            del self._lost[name]

    def _next(self) -> int | None:
        """The first announced frame with data that is later than all that were handed out."""
        later = [number for number, frame in self._frames.items() if number > self._taken and frame.counts]
        return min(later, default=None)

    def _announced(self, number: int) -> bool:
        i = bisect_right(self._runs, number, key=lambda run: run[0]) - 1
        return i >= 0 and number <= self._runs[i][1]

    def _around(self, number: int) -> str:
        i = bisect_right(self._runs, number, key=lambda run: run[0])
        return f"{self._runs[i - 1][1]} and {self._runs[i][0]}"

    def _hand_out(self, number: int) -> FrameBundle:
        frame = self._frames.get(number, _Frame[D]())
        newest: dict[str, D | None] = {name: frame.data.get(name) for name in self.names}
        events = {name: self._events(frame, name) for name in self.names}
        if self.hold:
            for name in [name for name, value in newest.items() if value is None]:
                earlier = [k for k, each in self._frames.items() if k < number and name in each.data]
                newest[name] = self._frames[max(earlier)].data[name] if earlier else self._held.get(name)
        frame.taken = True
        self._taken = max(self._taken, number)
        return FrameBundle(number, newest, events)

    def _events(self, frame: _Frame[D], name: str) -> tuple[D, ...]:
        """Return all data of a sensor in a frame, and what stands for those that it does not give."""
        kept = frame.kept.get(name, [])
        short = max(frame.counts.get(name, 0), frame.got[name]) - len(kept)
        if short <= 0 or self._make_missing is None:
            return tuple(kept)
        return (*kept, self._make_missing(name, short, frame.mark))

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
        late = {name: self._why_late(name, frame) for name in self._missing(which)}
        there = [name for name in self.names if name in frame.data and name not in late]
        not_due = [name for name in self.names if name not in late and name not in there]
        text = f"frame {which} is not complete after {timeout:g} s. Missing: {_reasons(late)}."
        text += f" There: {listed(there)}." if there else ""
        text += f" Not due in this frame: {listed(not_due)}." if not_due else ""
        return FrameTimeoutError(text, which, late)

    def _why_late(self, name: str, frame: _Frame[D]) -> str:
        newest, got = self._newest.get(name), frame.got[name]
        if got:
            return f"late, {got} of {frame.counts[name]} have come"
        return "late, nothing of it has come" if newest is None else f"late, its newest data are of frame {newest}"


def _at_least_one(field: str, value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError.single("FrameSync", field, value, f"a number of {what} >= 1")
    return value


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


__all__ = ["GRACE", "KEEP", "MOST_EVENTS", "FrameCollector", "FrameTimeoutError"]
