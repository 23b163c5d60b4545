"""Synchronised access to the data of several sensors in the same frame."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from sensorium.client.frame_collector import KEEP, MOST_EVENTS, FrameBundle, FrameCollector
from sensorium.errors import ConfigError, StreamError, listed
from sensorium.wire.data import LostEvents, SensorData
from sensorium.wire.header import EVENTS, LOST, Header, type_id
from sensorium.wire.messages import FrameDone
from sensorium.wire.raw_data import RawData
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.client.client import Client
    from sensorium.client.session import FrameListener
    from sensorium.client.subscription import Subscription


class FrameSync(FrameCollector[SensorData]):
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
        client: Client,
        names: Iterable[str],
        *,
        hold: bool = False,
        keep: int = KEEP,
        max_events: int = MOST_EVENTS,
        **options: Any,
    ) -> None:
        for option in ("policy", "every", "max_rate"):
            if option in options:
                fix = "Omit it: a FrameSync receives all data of all frames."
                raise ConfigError.single("FrameSync", option, options[option], "no such option", fix)
        mine: dict[str, Subscription] = {}
        infos: dict[str, StreamInfo] = {}

        def missing(name: str, count: int, done: FrameDone) -> SensorData:
            return _lost(infos[name], mine[name], count, done)

        super().__init__(names, hold=hold, keep=keep, max_events=max_events, missing=missing)
        handles: list[Subscription | FrameListener] = []
        self._finalizer = weakref.finalize(self, _stop, handles)
        self._finalizer.atexit = False  # the client closes at exit
        ref = weakref.ref(self)
        try:
            for name in self.names:
                infos[name] = client.streams.get(name, StreamInfo(0, name, "", ""))
                mine[name] = client.subscribe(
                    name, partial(_receive, ref, name), policy="lossless", on_end=partial(_end, ref, name), **options
                )
                handles.append(mine[name])
            # Last: all later announcements include all subscriptions.
            handles.append(client.on_frame(partial(_finish, ref, mine)))
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether the `FrameSync` is closed."""
        return self._closed  # set before pending calls fail, so that an iteration ends without their error

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
        super().close()
        self._finalizer()

    def __enter__(self) -> FrameSync:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"newest frame {self.newest}, {self.pending} kept"
        return f"<FrameSync of {listed(self.names)}: {state}, {self.dropped} dropped>"


def _receive(ref: weakref.ref[FrameSync], name: str, data: SensorData) -> None:
    if (sync := ref()) is not None:
        if isinstance(data, LostEvents):
            sync.lose(name, data.events_lost)
        else:
            sync.add(name, data)


def _end(ref: weakref.ref[FrameSync], name: str, reason: str) -> None:
    if (sync := ref()) is not None:
        sync.end(name, reason)


def _finish(ref: weakref.ref[FrameSync], mine: Mapping[str, Subscription], done: FrameDone) -> None:
    if (sync := ref()) is not None:
        sync.done(done.frame, _due(done, mine), done)


def _due(done: FrameDone, subscribed: Mapping[str, Subscription]) -> dict[str, int]:
    """Return the sensors that have data in a frame for these subscriptions, each with its number of data items."""
    counts = dict(zip_longest(done.subscriptions, done.counts[: len(done.subscriptions)], fillvalue=1))
    return {name: counts[each.number] for name, each in subscribed.items() if each.number in counts}


def _lost(info: StreamInfo, subscribed: Subscription, count: int, done: FrameDone) -> LostEvents:
    """Return the placeholder for a number of events that a frame does not contain."""
    time_ns = done.time_ns
    header = Header(
        LOST | EVENTS, type_id(info.type_name), info.id, frame=done.frame, tick=done.tick, time_ns=time_ns,
        capture_ns=time_ns, first_env=subscribed.first, num_envs=subscribed.count, lost=min(count, 2**32 - 1),
    )  # fmt: skip
    return LostEvents(RawData(header.pack(), info))


def _stop(handles: list[Subscription | FrameListener]) -> None:
    while handles:
        handles.pop().stop()
