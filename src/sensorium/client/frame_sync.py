"""Synchronised access to the data of several sensors in the same frame."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sensorium.client.frame_collector import KEEP, MAX_EVENTS, FrameBundle, FrameCollector
from sensorium.errors import ConfigError, StreamError, listed
from sensorium.readings import Sample
from sensorium.wire.data import LostEvents
from sensorium.wire.messages import FrameDone

if TYPE_CHECKING:
    from sensorium.client.client import Client
    from sensorium.client.session import FrameListener
    from sensorium.client.subscription import Subscription


class FrameSync(FrameCollector[Sample]):
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
        max_events: int = MAX_EVENTS,
        **options: Any,
    ) -> None:
        for option in ("policy", "every", "max_rate"):
            if option in options:
                fix = "Omit it: a FrameSync receives all data of all frames."
                raise ConfigError.single("FrameSync", option, options[option], "no such option", fix)
        subscribed: dict[str, Subscription] = {}

        def missing(name: str, count: int, done: FrameDone) -> Sample:
            return subscribed[name].lost_events(done.frame, done.tick, done.time_ns, count)

        super().__init__(names, hold=hold, keep=keep, max_events=max_events, missing=missing)
        handles: list[Subscription | FrameListener] = []
        self._finalizer = weakref.finalize(self, _stop, handles)
        self._finalizer.atexit = False  # the client closes at exit
        sync = weakref.ref(self)
        try:
            for name in self.names:
                subscribed[name] = client.subscribe(
                    name, partial(_receive, sync, name), policy="lossless", on_end=partial(_end, sync, name), **options
                )
                handles.append(subscribed[name])
            # Last: all later announcements include all subscriptions.
            handles.append(client.on_frame(partial(_finish, sync, subscribed)))
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


def _receive(sync: weakref.ref[FrameSync], name: str, data: Sample) -> None:
    if (found := sync()) is not None and not isinstance(data, LostEvents):  # a frame has its own number of lost events
        found.add(name, data)


def _end(sync: weakref.ref[FrameSync], name: str, reason: str) -> None:
    if (found := sync()) is not None:
        found.end(name, reason)


def _finish(sync: weakref.ref[FrameSync], subscribed: Mapping[str, Subscription], done: FrameDone) -> None:
    if (found := sync()) is None:
        return
    messages = {number: (count, lost) for number, count, lost in done.messages}
    due = {name: messages[each.number] for name, each in subscribed.items() if each.number in messages}
    sent = {name: count for name, (count, _) in due.items()}
    found.done(done.frame, sent, done, {name: lost for name, (_, lost) in due.items() if lost})


def _stop(handles: list[Subscription | FrameListener]) -> None:
    while handles:
        handles.pop().stop()
