"""Frames assembled from streams: order of arrival, time-outs, dropped frames, several threads."""

from __future__ import annotations

import gc
import pickle
import random
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from nursery import PATIENCE

from sensorium.client.frame_sync import FrameBundle, FrameSync, FrameTimeoutError
from sensorium.errors import ConfigError, StaleError, StreamError, UnknownNameError
from sensorium.wire.stream_info import StreamInfo

SOON = 0.02
"""A time-out that is expected to expire, s."""
R = TypeVar("R")


@dataclass(eq=False)
class Data:
    """The part of a stream's data that matters here."""

    name: str
    frame: int
    server: int = field(default=0, kw_only=True)

    def __repr__(self) -> str:
        return f"{self.name}{self.frame}"


@dataclass(eq=False)
class Missing(Data):
    """A placeholder for data that a frame does not have."""

    count: int = 0

    def __repr__(self) -> str:
        return f"{self.count} lost"


@dataclass(frozen=True)
class Done:
    frame: int
    tick: int = 0
    time_ns: int = 0
    messages: tuple[tuple[int, int, int], ...] = ()


@dataclass(eq=False)
class FakeHandle:
    client: FakeClient
    callback: Callable[[Any], None]
    options: dict[str, Any] = field(default_factory=dict)
    number: int = 0

    def is_current(self, data: Data) -> bool:
        return data.server == self.client.restarts

    def lost_events(self, frame: int, tick: int, time_ns: int, count: int) -> Missing:
        return Missing(self.options["name"], frame, count)

    def stop(self) -> None:
        self.client.handles.remove(self)


class FakeClient:
    """The part of a client that `FrameSync` uses, and a way to send frames."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.handles = list[FakeHandle]()
        self.order = list[str]()
        self.restarts = 0

    @property
    def streams(self) -> dict[str, StreamInfo]:
        return {name: StreamInfo(number, name, "test", "test.Data/1") for number, name in enumerate(self.names)}

    def subscribe(self, name: str, callback: Callable[[Any], None], **options: Any) -> FakeHandle:
        if name not in self.names:
            raise UnknownNameError("sensor", name, self.names)
        return self._handle(name, callback, {"name": name, **options})

    def on_frame(self, callback: Callable[[Any], None]) -> FakeHandle:
        return self._handle("", callback, {})

    def _handle(self, name: str, callback: Callable[[Any], None], options: dict[str, Any]) -> FakeHandle:
        self.order.append(name)
        self.handles.append(FakeHandle(self, callback, options, len(self.order)))
        return self.handles[-1]

    def send(self, frame: int, *due: str) -> None:
        for handle in list(self.handles):
            name = handle.options.get("name")
            if name in due:
                handle.callback(Data(name, frame))
            elif name is None:
                messages = tuple((each.number, 1, 0) for each in self.handles if each.options.get("name") in due)
                handle.callback(Done(frame, messages=messages))

    def end(self, reason: str) -> None:
        for handle in self.handles:
            if "on_end" in handle.options:
                handle.options["on_end"](reason)


class Collector(FrameSync):
    """A sync of a client whose data and announcements are added by hand."""

    def __init__(self, names: Any, **options: Any) -> None:
        self.client = FakeClient(*names)
        super().__init__(self.client, names, **options)  # type: ignore[arg-type]

    def announce(self, frame: int, due: Iterable[str] | Mapping[str, int], lost: Mapping[str, int] = {}) -> None:
        """Announce a frame; sensors without a number have one data item each."""
        sent = due if isinstance(due, Mapping) else dict.fromkeys(due, 1)
        numbers = {each.options.get("name", ""): each.number for each in self.client.handles}
        messages = tuple((numbers.get(name, 99), count, lost.get(name, 0)) for name, count in sent.items())
        self.done(Done(frame, messages=messages))  # type: ignore[arg-type]


def collector(*names: str, **options: Any) -> Collector:
    return Collector(names or ("imu", "lidar"), **options)


def fill(sync: Collector, frames: range, lidar_every: int = 1) -> None:
    """Deliver imu data in all frames and lidar data in every n-th frame, and announce them."""
    for k in frames:
        due = ["imu", "lidar"] if k % lidar_every == 0 else ["imu"]
        for name in due:
            sync.add(name, Data(name, k))
        sync.announce(k, due)


def shown(bundle: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(data) for name, data in bundle.items()}


class Call:
    """A call in a separate thread; `result` waits for it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    def is_waiting(self) -> bool:
        self._thread.join(0.05)
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._result


# Complete frames ------------------------------------------------------------------------------------------------------


def test_frame_has_the_data_of_its_number_and_none_for_sensors_not_due() -> None:
    sync = collector()
    fill(sync, range(10, 13), lidar_every=2)
    assert shown(sync.get(10)) == {"imu": "imu10", "lidar": "lidar10"}
    assert shown(sync.get(11)) == {"imu": "imu11", "lidar": "None"}
    assert shown(sync.get(12)) == {"imu": "imu12", "lidar": "lidar12"}
    assert (sync.dropped, sync.late, sync.newest) == (0, 0, 12)


def test_hold_returns_the_newest_earlier_data_for_sensors_not_due() -> None:
    sync = collector(hold=True)
    fill(sync, range(1, 8), lidar_every=3)
    assert shown(sync.get(2)) == {"imu": "imu2", "lidar": "None"}
    assert shown(sync.get(5)) == {"imu": "imu5", "lidar": "lidar3"}
    assert shown(sync.get(7)) == {"imu": "imu7", "lidar": "lidar6"}


def test_hold_includes_data_from_before_the_first_announcement() -> None:
    """An example is the newest data, which a server sends to a new subscriber."""
    sync = collector(hold=True)
    sync.add("lidar", Data("lidar", 3))
    fill(sync, range(5, 6), lidar_every=10)
    sync.add("lidar", Data("lidar", 1))
    assert shown(sync.get(5)) == {"imu": "imu5", "lidar": "lidar3"}
    assert (sync.dropped, sync.late) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_arrival_order_does_not_change_frames(seed: int) -> None:
    """Announcements come in order; data come in order per stream, before or after them, in any interleaving."""
    rng, frames = random.Random(seed), range(5, 30)
    due = {k: [n for n, every in (("imu", 1), ("lidar", 3), ("gnss", 7)) if k % every == 0] for k in frames}
    lines: list[list[Callable[[Collector], None]]] = [[], [], [], []]
    for k in frames:
        lines[0].append(lambda s, k=k: s.announce(k, due[k]))  # type: ignore[misc]
        for line, name in zip(lines[1:], ("imu", "lidar", "gnss"), strict=True):
            if name in due[k]:
                line.append(lambda s, k=k, name=name: s.add(name, Data(name, k)))  # type: ignore[misc]
    sync, left = collector("imu", "lidar", "gnss"), [line[::-1] for line in lines]

    def arrive() -> None:
        while any(left):
            rng.choice([line for line in left if line]).pop()(sync)

    arriving = Call(arrive)
    for k in frames:
        expected = {name: f"{name}{k}" if name in due[k] else "None" for name in ("imu", "lidar", "gnss")}
        assert shown(sync.get(k, PATIENCE)) == expected
    arriving.result()
    assert (sync.dropped, sync.late, sync.pending) == (0, 0, 1)


def test_get_waits_for_the_announcement_and_for_all_data() -> None:
    sync = collector()
    call = Call(lambda: sync.get(3, PATIENCE))
    sync.add("imu", Data("imu", 3))
    sync.add("lidar", Data("lidar", 3))
    assert call.is_waiting()
    sync.announce(3, ["imu", "lidar", "someone else's"])
    assert shown(call.result()) == {"imu": "imu3", "lidar": "lidar3"}
    call = Call(lambda: sync.get(4, PATIENCE))
    sync.announce(4, ["lidar"])
    assert call.is_waiting()
    sync.add("lidar", Data("lidar", 4))
    assert shown(call.result()) == {"imu": "None", "lidar": "lidar4"}


def test_frame_without_due_sensors_returns_immediately_without_data() -> None:
    sync = collector()
    sync.announce(7, ["camera"])
    assert shown(sync.get(7)) == {"imu": "None", "lidar": "None"}


def test_next_returns_each_frame_with_data_once_in_order() -> None:
    sync = collector()
    for k in range(6):
        sync.announce(k, {1: ["imu"], 3: ["lidar"], 5: ["imu"]}.get(k, ["camera"]))
    sync.add("lidar", Data("lidar", 3))
    call = Call(lambda: sync.next(PATIENCE))
    assert call.is_waiting()  # 3 is complete, but 1 comes first
    sync.add("imu", Data("imu", 1))
    assert call.result()[0] == 1
    assert shown(sync.get()) == {"imu": "None", "lidar": "lidar3"}
    sync.add("imu", Data("imu", 5))
    assert sync.next()[0] == 5
    with pytest.raises(FrameTimeoutError, match=r"a frame with data within 0\.02 s.*newest frame is 5"):
        sync.get(timeout=SOON)


def test_later_data_of_a_sensor_imply_none_in_this_frame() -> None:
    """The server announces the data of all listeners: they may precede the subscription, or concern other envs."""
    sync = collector()
    for k in range(4):
        sync.add("imu", Data("imu", k))
        sync.announce(k, ["imu", "lidar"])
    call = Call(lambda: sync.get(1, PATIENCE))
    assert call.is_waiting()
    sync.add("lidar", Data("lidar", 2))
    assert shown(call.result()) == {"imu": "imu1", "lidar": "None"}
    assert shown(sync.get(2)) == {"imu": "imu2", "lidar": "lidar2"}
    with pytest.raises(FrameTimeoutError, match=r"frame 3 .*'lidar' \(.*frame 2\)"):
        sync.get(3, SOON)


# Unavailable frames ---------------------------------------------------------------------------------------------------


def test_timeout_lists_late_received_and_not_due_sensors() -> None:
    sync = collector("imu", "lidar", "gnss", "camera")
    sync.add("lidar", Data("lidar", 4))
    sync.announce(4, ["lidar"])
    sync.add("imu", Data("imu", 5))
    sync.announce(5, ["imu", "lidar", "camera"])
    with pytest.raises(TimeoutError) as caught:
        sync.get(5, SOON)
    text = str(caught.value)
    assert text.startswith("frame 5 ") and "0.02 s" in text
    missing, received, not_due = text.split(". ")[1:]
    assert re.fullmatch(r"Missing: 'lidar' \(.*frame 4\), 'camera' \(no data.*\)", missing)
    assert (received, not_due) == ("Received: imu", "Not due in this frame: gnss.")
    assert isinstance(caught.value, FrameTimeoutError) and isinstance(caught.value, StreamError)
    assert caught.value.frame == 5 and list(caught.value.missing) == ["lidar", "camera"]
    sync.add("lidar", Data("lidar", 5))
    sync.add("camera", Data("camera", 5))
    assert sync.get(5)["lidar"] is not None


def test_timeout_reports_an_unannounced_frame() -> None:
    sync = collector()
    with pytest.raises(FrameTimeoutError, match=r"frame 8 within 0\.02 s.*no frame"):
        sync.get(8, SOON)
    sync.end("lidar", "it was destroyed")
    sync.announce(6, [])
    message = r"frame 8 within 0\.02 s.* 6\. Ended: 'lidar' \(it was destroyed\)"
    with pytest.raises(FrameTimeoutError, match=message):
        sync.get(8, SOON)


def test_frame_with_missing_data_of_an_ended_stream_raises_immediately() -> None:
    sync = collector()
    sync.add("lidar", Data("lidar", 1))
    sync.announce(1, ["imu", "lidar"])
    sync.announce(2, ["imu", "lidar"])
    call = Call(lambda: sync.get(2, PATIENCE))
    sync.add("imu", Data("imu", 1))
    sync.add("imu", Data("imu", 2))
    assert call.is_waiting()
    sync.end("lidar", "overflow")
    assert shown(sync.get(1)) == {"imu": "imu1", "lidar": "lidar1"}  # its data had come before its end
    with pytest.raises(StreamError, match=r"frame 2 cannot become complete.*'lidar' \(overflow\)") as caught:
        call.result()
    assert not isinstance(caught.value, TimeoutError)
    sync.add("imu", Data("imu", 3))
    sync.announce(3, ["imu"])
    assert shown(sync.get(3)) == {"imu": "imu3", "lidar": "None"}
    assert sync.ended == {"lidar": "overflow"}


def test_after_all_streams_ended_received_frames_are_returned_without_waiting() -> None:
    sync = collector("imu")
    sync.add("imu", Data("imu", 1))
    sync.announce(1, ["imu"])
    sync.add("imu", Data("imu", 2))
    sync.end("imu", "the server was closed")
    call = Call(lambda: sync.get(2, None))
    assert call.is_waiting()  # its announcement may still arrive
    sync.announce(2, ["imu"])
    assert shown(call.result()) == {"imu": "imu2"}
    for frame in (3, None):
        with pytest.raises(StreamError, match=r"all streams .*'imu' \(the server was closed\)"):
            sync.get(frame, None)


def test_missing_announcement_does_not_block_forever() -> None:
    sync = collector("imu")
    sync.add("imu", Data("imu", 1))
    sync.end("imu", "connection lost")
    with pytest.raises(StreamError, match="connection lost"):
        sync.next(None)


def test_errors_distinguish_dropped_frames_from_unknown_ones() -> None:
    sync = collector()
    fill(sync, range(10, 13))
    fill(sync, range(15, 18))
    sync.get(12)
    with pytest.raises(StaleError, match=r"frame 9 .*first.* 10\."):
        sync.get(9)
    with pytest.raises(StaleError, match=r"frame 11 was dropped.* 12 "):
        sync.get(11)
    with pytest.raises(StaleError, match="frame 14 does not exist"):
        sync.get(14)
    assert shown(sync.get(12)) == {"imu": "imu12", "lidar": "lidar12"}  # the newest delivered frame is still available
    sync.get(17)
    with pytest.raises(StaleError, match=r"frame 9 .*first.* 10\."):
        sync.get(9)


def test_sync_continues_after_a_restart_of_the_server_without_earlier_data() -> None:
    """The frames of the new server have the numbers of earlier frames, and a listener may have earlier data at work."""
    sync = collector(hold=True)
    fill(sync, range(3))
    waiting = Call(lambda: sync.get(3, PATIENCE))
    assert waiting.is_waiting()
    sync.client.restarts += 1
    sync.add("lidar", Data("lidar", 0, server=0))
    sync.add("imu", Data("imu", 1, server=1))
    with pytest.raises(StaleError, match="frame 3 was dropped, because the server restarted"):
        waiting.result()
    sync.announce(1, ["imu"])
    assert shown(sync.get(1)) == {"imu": "imu1", "lidar": "None"}
    assert (sync.newest, sync.ended) == (1, {})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Collector([]), "FrameSync.names: got (), expected at least one sensor"),
        (lambda: Collector("imu"), "names: got 'imu', expected a list of sensors. Write ['imu']."),
        (lambda: Collector(["imu", "imu"]), "names: got ('imu', 'imu'), expected at least one sensor, each once"),
        (lambda: Collector(["imu"], keep=0), "keep: got 0, expected a whole number from 1"),
        (lambda: Collector(["imu"], max_events=0), "max_events: got 0, expected a whole number from 1"),
        (lambda: Collector(["imu"], keep="many"), "keep: got 'many', expected a whole number"),  # type: ignore[arg-type]
        (lambda: Collector(["imu"]).get(-1), "frame: got -1, expected a whole number from 0"),
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert message in str(caught.value)


# Several messages of a sensor -----------------------------------------------------------------------------------------


def test_bundle_has_all_data_in_order_and_the_newest_by_name() -> None:
    sync = collector("guard", "imu")
    events = [Data("guard", 1) for _ in range(3)]
    for each in events:
        sync.add("guard", each)
    sync.announce(1, {"guard": 3, "someone else's": 7})
    sync.announce(2, {})
    bundle = sync.get(1)
    assert bundle.events["guard"] == tuple(events) and bundle["guard"] is events[-1]
    assert bundle.events["imu"] == () and bundle["imu"] is None
    assert sync.get(2).events == {"guard": (), "imu": ()} and sync.left_out == 0


def test_frame_is_complete_only_with_the_last_of_its_announced_data() -> None:
    """An announcement overtakes data that wait for credit or for a worker thread."""
    sync = collector("guard")
    sync.add("guard", Data("guard", 4))
    sync.announce(4, {"guard": 3})
    with pytest.raises(FrameTimeoutError, match=r"Missing: 'guard' \(1 of 3 received\)\.$"):
        sync.get(4, SOON)
    sync.add("guard", Data("guard", 4))
    call = Call(lambda: sync.get(4, PATIENCE))
    assert call.is_waiting()
    sync.add("guard", Data("guard", 4))
    assert len(call.result().events["guard"]) == 3


def test_data_beyond_the_limit_are_counted_and_the_newest_kept() -> None:
    sync, alive = collector("guard", max_events=4), weakref.WeakSet[Data]()
    for _ in range(100):
        data = Data("guard", 1)
        alive.add(data)
        sync.add("guard", data)
    assert len(alive) == 5 and sync.left_out == 96
    sync.announce(1, {"guard": 100})
    bundle = sync.get(1)
    *kept, last = bundle.events["guard"]
    assert len(kept) == 4 and isinstance(last, Missing)
    assert (last.count, last.frame) == (96, 1) and bundle["guard"] is data


def test_lost_events_are_reported_in_their_frames() -> None:
    """The announcement of a frame has their number; they follow the received events."""
    sync = collector("guard")
    for k in (1, 1):
        sync.add("guard", Data("guard", k))
    for k, sent, lost in ((1, 2, 1), (2, 0, 2), (3, 2, 2), (5, 1, 0)):
        sync.announce(k, {"guard": sent}, lost={"guard": lost})
    assert str(sync.next()[1].events["guard"]) == "(guard1, guard1, 1 lost)"
    number, bundle = sync.next()
    assert (number, str(bundle.events["guard"]), bundle["guard"]) == (2, "(2 lost,)", None)
    sync.add("guard", Data("guard", 3))
    with pytest.raises(FrameTimeoutError, match="1 of 2 received"):
        sync.next(SOON)
    sync.add("guard", Data("guard", 3))
    assert str(sync.next()[1].events["guard"]) == "(guard3, guard3, 2 lost)"
    sync.add("guard", Data("guard", 5))
    assert str(sync.next()[1].events["guard"]) == "(guard5,)"
    assert sync.left_out == 5


@pytest.mark.parametrize("seed", range(20))
def test_losses_are_reported_in_their_frames_for_any_arrival_order(seed: int) -> None:
    """Some events of the stream arrive and runs of others are lost."""
    rng, frames = random.Random(seed), range(5, 40)
    expected = {k: [0, 0] for k in frames}  # arrived, lost
    stream: list[Callable[[Collector], None]] = []
    is_losing = False
    for k in frames:
        for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
            is_losing = rng.random() < (0.8 if is_losing else 0.2)
            expected[k][is_losing] += 1
            if not is_losing:
                stream.append(lambda s, k=k: s.add("guard", Data("guard", k)))  # type: ignore[misc]
    ends = [
        lambda s, k=k, sent=sent, lost=lost: s.announce(  # type: ignore[misc]
            k, {"guard": sent} if sent + lost else {}, lost={"guard": lost}
        )
        for k, (sent, lost) in expected.items()
    ]
    sync, left = collector("guard"), [stream[::-1], ends[::-1]]

    def arrive() -> None:
        while any(left):
            rng.choice([line for line in left if line]).pop()(sync)

    arriving = Call(arrive)
    for k in frames:
        found = sync.get(k, PATIENCE).events["guard"]
        lost = [each.count for each in found if isinstance(each, Missing)]
        assert [len(found) - len(lost), sum(lost)] == expected[k] and lost == [each for each in lost if each]
    arriving.result()
    assert sync.left_out == sum(lost for _, lost in expected.values()) and sync.late == 0


def test_bundle_is_an_immutable_mapping() -> None:
    sync = collector()
    fill(sync, range(1, 2))
    bundle = sync.get(1)
    assert isinstance(bundle, FrameBundle) and bundle == {"imu": bundle["imu"], "lidar": bundle["lidar"]}
    assert (bundle.frame, list(bundle), len(bundle), "gnss" in bundle) == (1, ["imu", "lidar"], 2, False)
    assert repr(bundle) == "FrameBundle(frame=1, {'imu': imu1, 'lidar': lidar1})"
    with pytest.raises(UnknownNameError, match=r"unknown sensor 'imi'\. Did you mean 'imu'"):
        bundle["imi"]
    with pytest.raises(AttributeError, match="frame"):
        bundle.frame = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        bundle.events["imu"] = ()  # type: ignore[index]
    again = pickle.loads(pickle.dumps(bundle))
    assert (again.frame, shown(again), str(again.events["imu"])) == (1, shown(bundle), "(imu1,)")
    assert bundle.of("imu", Data) is bundle["imu"]
    with pytest.raises(TypeError, match=r"'imu' .*Data, not Missing"):
        bundle.of("imu", Missing)


# Dropped frames -------------------------------------------------------------------------------------------------------


def test_getting_a_later_frame_drops_and_counts_earlier_ones() -> None:
    sync = collector("imu")
    alive = list[weakref.ref[Data]]()
    for k in range(10):
        data = Data("imu", k)
        alive.append(weakref.ref(data))
        sync.add("imu", data)
        sync.announce(k, ["imu"])
    del data
    sync.get(6)
    assert [ref() is not None for ref in alive] == [False] * 6 + [True] * 4
    assert (sync.dropped, sync.late, sync.pending) == (6, 0, 4)
    sync.add("imu", Data("imu", 2))
    assert (sync.dropped, sync.late, sync.pending) == (6, 1, 4)


def test_number_of_unread_frames_is_bounded() -> None:
    sync = collector("imu", keep=8)
    alive = weakref.WeakSet[Data]()
    for k in range(1000):
        data = Data("imu", k)
        alive.add(data)
        sync.add("imu", data)
        sync.announce(k, ["imu"] if k % 2 else [])
    assert len(alive) == sync.pending == 8
    assert sync.dropped == 992
    with pytest.raises(StaleError, match=r"frame 500 was dropped.*keep=8"):
        sync.get(500)
    for k in range(1000, 2000):  # data without announcements
        sync.add("imu", Data("imu", k))
    assert sync.pending == 8


def test_frames_without_data_do_not_count_towards_the_limit() -> None:
    """A lidar frame at one frame in a hundred is not dropped because of the frames between."""
    sync = collector("lidar", keep=4)
    for k in range(400):
        if k % 100 == 0:
            sync.add("lidar", Data("lidar", k))
        sync.announce(k, ["lidar"] if k % 100 == 0 else ["imu"])
    assert [sync.next()[0] for _ in range(4)] == [0, 100, 200, 300]
    assert sync.dropped == 0


def test_closing_wakes_waiting_threads_and_releases_all_data() -> None:
    sync = collector("imu", hold=True)
    data = Data("imu", 1)
    alive = weakref.ref(data)
    sync.add("imu", data)
    del data
    calls = [Call(lambda: sync.get(5, None)), Call(lambda: sync.next(None))]
    assert all(call.is_waiting() for call in calls)
    sync.close()
    for call in calls:
        with pytest.raises(StreamError, match="FrameSync is closed"):
            call.result()
    assert alive() is None
    sync.close()
    sync.add("imu", Data("imu", 2))
    sync.announce(2, ["imu"])
    assert sync.pending == 0


# Several threads ------------------------------------------------------------------------------------------------------


def test_several_threads_can_wait_for_the_same_or_different_frames() -> None:
    """Frame 3 becomes complete last and is still available to its waiting thread, although 4 and 5 were handed out."""
    sync = collector("a", "b", "c")
    due = {3: "a", 4: "b", 5: "c"}
    for k, name in due.items():
        sync.announce(k, [name])
    calls = {(k, i): Call(lambda k=k: sync.get(k, PATIENCE)) for k in due for i in range(3)}  # type: ignore[misc]
    assert all(call.is_waiting() for call in calls.values())
    for k in (5, 4, 3):
        sync.add(due[k], Data(due[k], k))
        for i in range(3):
            assert shown(calls[k, i].result()) == {"a": "None", "b": "None", "c": "None", due[k]: f"{due[k]}{k}"}
    assert (sync.dropped, sync.late, sync.pending) == (0, 0, 1)


def test_concurrent_calls_of_next_share_the_frames() -> None:
    sync, count = collector(keep=10_000), 600
    taken: list[list[int]] = [[] for _ in range(4)]

    def take(mine: list[int]) -> None:
        while True:
            try:
                number, bundle = sync.next(PATIENCE)
            except StreamError as error:
                assert "all streams ended" in str(error)
                return
            assert {name: data and data.frame for name, data in bundle.items()} in (
                {"imu": number, "lidar": number},
                {"imu": number, "lidar": None},
            )
            mine.append(number)

    def bring(name: str, every: int) -> None:
        for k in range(0, count, every):
            sync.add(name, Data(name, k))

    def announce() -> None:
        for k in range(count):
            sync.announce(k, ["imu"] + ["lidar"] * (k % 5 == 0))

    takers = [Call(lambda mine=mine: take(mine)) for mine in taken]  # type: ignore[misc]
    bringers = [Call(lambda: bring("imu", 1)), Call(lambda: bring("lidar", 5)), Call(announce)]
    for each in bringers:
        each.result()
    sync.end("imu", "it stopped")
    sync.end("lidar", "it stopped")
    for each in takers:
        each.result()
    assert all(mine == sorted(mine) for mine in taken)
    assert sorted(k for mine in taken for k in mine) == list(range(count))
    assert (sync.dropped, sync.late) == (0, 0)


# With a client --------------------------------------------------------------------------------------------------------


def test_sync_subscribes_losslessly_and_to_frame_ends_last() -> None:
    client = FakeClient("imu", "lidar", "camera")
    with FrameSync(client, ["imu", "lidar"], envs=slice(0, 2), truth=True) as sync:
        assert client.order == ["imu", "lidar", ""]
        for handle in client.handles[:2]:
            options = {key: value for key, value in handle.options.items() if key not in ("name", "on_end")}
            assert options == {"policy": "lossless", "envs": slice(0, 2), "truth": True}
        client.send(1, "imu", "lidar", "camera")
        client.send(2, "imu")
        assert shown(sync.get(1)) == {"imu": "imu1", "lidar": "lidar1"}
        assert shown(sync.get(2)) == {"imu": "imu2", "lidar": "None"}
        assert (sync.names, sync.newest, sync.dropped, sync.late) == (("imu", "lidar"), 2, 0, 0)
        assert "imu, lidar" in repr(sync) and "newest frame 2" in repr(sync)
    assert client.handles == [] and sync.closed
    sync.close()
    with pytest.raises(StreamError, match="closed"):
        sync.get(3)


def test_unknown_sensor_name_leaves_no_subscription() -> None:
    client = FakeClient("imu")
    with pytest.raises(UnknownNameError, match="unknown sensor 'lidar'"):
        FrameSync(client, ["imu", "lidar"])
    assert client.handles == []


@pytest.mark.parametrize("option", ["policy", "every", "max_rate"])
def test_options_that_skip_data_are_refused(option: str) -> None:
    client, options = FakeClient("imu"), dict[str, Any]({option: 2})
    with pytest.raises(ConfigError, match=f"FrameSync.{option}: got 2, expected no such option"):
        FrameSync(client, ["imu"], **options)
    assert client.handles == []


def test_unreferenced_sync_ends_its_subscriptions() -> None:
    client = FakeClient("imu")
    sync = FrameSync(client, ["imu"])
    assert len(client.handles) == 2
    del sync
    gc.collect()
    assert client.handles == []


def test_iteration_yields_frames_in_order_until_closed() -> None:
    client, got = FakeClient("imu"), list[tuple[int, str]]()
    sync = FrameSync(client, ["imu"])
    for k in range(5):
        client.send(k, *(["imu"] if k != 2 else []))
    for frame, bundle in sync:
        got.append((frame, str(bundle["imu"])))
        if frame == 4:
            closing = Call(sync.close)
    closing.result()
    assert got == [(k, f"imu{k}") for k in (0, 1, 3, 4)]


def test_iteration_over_ended_streams_yields_remaining_frames_then_raises_the_reason() -> None:
    client, got = FakeClient("imu"), list[int]()
    with FrameSync(client, ["imu"]) as sync:
        client.send(1, "imu")
        client.end("the server was closed")
        with pytest.raises(StreamError, match="the server was closed"):
            got.extend(frame for frame, _ in sync)
        assert got == [1] and sync.ended == {"imu": "the server was closed"}
