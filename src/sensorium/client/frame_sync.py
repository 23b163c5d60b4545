"""Synchronised access to the data of several sensors in the same frame."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Protocol

from sensorium.client.frame_bundle import FrameBundle
from sensorium.client.frame_collector import KEEP, MOST_EVENTS, FrameCollector
from sensorium.errors import ConfigError, StreamError, listed
from sensorium.wire.data import LostEvents, SensorData
from sensorium.wire.header import EVENTS, LOST, Header, type_id
from sensorium.wire.messages import FrameDone
from sensorium.wire.raw_data import RawData
from sensorium.wire.stream_info import StreamInfo


class _Handle(Protocol):
    def stop(self) -> object: ...


class _Subscribed(_Handle, Protocol):
    @property
    def number(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...


class SyncClient(Protocol):
    """Client interface that a `FrameSync` needs."""

    @property
    def streams(self) -> Mapping[str, StreamInfo]:
        """Available streams by name."""
        ...

    def subscribe(self, name: str, callback: Callable[[Any], None], **options: Any) -> _Subscribed: ...
    def on_frame(self, callback: Callable[[Any], None]) -> _Handle: ...


class FrameSync:
    """Data of several sensors by frame, from separate lossless subscriptions that are independent of other listeners.

    ```python
    with sn.FrameSync(client, ["imu", "lidar"]) as sync:
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

    Args:
        client: the connection.
        names: names of the sensors.
        hold: for a sensor that is not due in a frame, return its newest earlier data instead of None.
        keep: maximum number of pending frames with data, >= 1; beyond it the oldest is dropped and counted.
        max_events: maximum number of messages of one sensor kept per frame, >= 1; further messages are only counted.
        options: further options of the subscriptions, such as `envs` and `truth`.

    Raises:
        ConfigError: there are no names or a duplicate name, or `keep` or `max_events` is less than 1.
        UnknownNameError: the server has no such sensor.
        StreamError: the server refuses, or the connection is lost.
    """

    def __init__(
        self,
        client: SyncClient,
        names: Iterable[str],
        *,
        hold: bool = False,
        keep: int = KEEP,
        max_events: int = MOST_EVENTS,
        **options: Any,
    ) -> None:
        for option in ("policy", "every", "max_rate"):
            if option in options:
                raise ConfigError.single("FrameSync", option, options[option], "nothing: it has all data of all frames")
        mine: dict[str, _Subscribed] = {}
        infos: dict[str, StreamInfo] = {}

        def missing(name: str, count: int, done: FrameDone) -> SensorData:
            return _lost(infos[name], mine[name], count, done)

        collector: FrameCollector[SensorData] = FrameCollector(
            names, hold=hold, keep=keep, max_events=max_events, missing=missing
        )
        handles: list[_Handle] = []
        self._collector = collector
        self._finalizer = weakref.finalize(self, _stop, collector, handles)
        self._finalizer.atexit = False  # the client closes at exit
        try:
            for name in collector.names:
                infos[name] = client.streams.get(name, StreamInfo(0, name, "", ""))
                mine[name] = client.subscribe(
                    name, _adder(collector, name), policy="lossless", on_end=_ender(collector, name), **options
                )
                handles.append(mine[name])
            # Last: all frames announced from now on include all subscriptions.
            handles.append(client.on_frame(lambda done: collector.done(done.frame, _due(done, mine), done)))
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sensors."""
        return self._collector.names

    @property
    def dropped(self) -> int:
        """Number of frames with data that were dropped without having been requested."""
        return self._collector.dropped

    @property
    def late(self) -> int:
        """Number of data items that arrived after their frame was dropped."""
        return self._collector.late

    @property
    def left_out(self) -> int:
        """Number of events that a `LostEvents` replaces: lost in transit, or beyond `max_events` in a frame."""
        return self._collector.left_out

    @property
    def ended(self) -> dict[str, str]:
        """Sensors whose stream has ended, each with the reason."""
        return self._collector.ended

    @property
    def newest(self) -> int | None:
        """Newest announced frame; None before the first."""
        return self._collector.newest

    @property
    def closed(self) -> bool:
        """Whether the `FrameSync` is closed."""
        return not self._finalizer.alive

    def get(self, frame: int | None = None, timeout: float | None = 1.0) -> FrameBundle:
        """Return the data of one frame by sensor as soon as they are complete; see `FrameCollector.get`."""
        return self._collector.get(frame, timeout)

    def next(self, timeout: float | None = 1.0) -> tuple[int, FrameBundle]:
        """Return number and data of the next frame with data; see `FrameCollector.next`."""
        return self._collector.next(timeout)

    def __iter__(self) -> Iterator[tuple[int, FrameBundle]]:
        while not self.closed:
            try:
                found = self._collector.next(None)
            except StreamError:
                if self.closed:
                    return
                raise
            yield found

    def close(self) -> None:
        """End the subscriptions and discard all data; pending calls raise a `StreamError`.

        Repeated calls are allowed.
        """
        self._finalizer()

    def __enter__(self) -> FrameSync:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"newest frame {self.newest}, {self._collector.pending} kept"
        return f"<FrameSync of {listed(self.names)}: {state}, {self.dropped} dropped>"


def _adder(collector: FrameCollector[SensorData], name: str) -> Callable[[SensorData], None]:
    def add(data: SensorData) -> None:
        if isinstance(data, LostEvents):
            collector.lose(name, data.events_lost)
        else:
            collector.add(name, data)

    return add


def _ender(collector: FrameCollector[SensorData], name: str) -> Callable[[str], None]:
    return lambda reason: collector.end(name, reason)


def _due(done: FrameDone, subscribed: Mapping[str, _Subscribed]) -> dict[str, int]:
    """Return the sensors that have data in a frame for these subscriptions, each with its number of data items."""
    counts = dict(zip_longest(done.subscriptions, done.counts[: len(done.subscriptions)], fillvalue=1))
    return {name: counts[each.number] for name, each in subscribed.items() if each.number in counts}


def _lost(info: StreamInfo, subscribed: _Subscribed, count: int, done: FrameDone) -> LostEvents:
    """Return the placeholder for a number of events that a frame does not contain."""
    time_ns = done.time_ns
    header = Header(
        LOST | EVENTS, type_id(info.type_name), info.id, frame=done.frame, tick=done.tick, time_ns=time_ns,
        capture_ns=time_ns, first_env=subscribed.first, num_envs=subscribed.count, lost=min(count, 2**32 - 1),
    )  # fmt: skip
    return LostEvents(RawData(header.pack(), info))


def _stop(collector: FrameCollector[SensorData], handles: list[_Handle]) -> None:
    collector.close()
    while handles:
        handles.pop().stop()


__all__ = ["FrameSync"]
