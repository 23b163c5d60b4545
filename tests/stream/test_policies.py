"""Policies for a slow listener: the newest with counted drops, everything, or everything except reported losses."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streaming import DT, PATIENCE, Child, Gauge, Nursery, build, connect, held, serving, until

import sensorium as sn
from sensorium.client import subscription as subscriptions
from sensorium.wire.data import LostEvents


@pytest.fixture(scope="module")
def server(nursery: Nursery) -> Iterator[Child]:
    """A server in another process that runs freely at 200 steps per second; a large frame has 0.5 MiB."""
    with nursery.start("server", address="tcp://127.0.0.1:0", world={"columns": 32768}, hz=200.0) as child:
        yield child


def test_slow_latest_listener_gets_the_newest_frame_and_the_drop_count(server: Child) -> None:
    """Tens of frames pass during each of its calls; its next frame is the newest then, and memory does not grow."""
    with connect(server.address) as client:
        frames: list[int] = []
        seqs: list[int] = []
        turn = threading.Semaphore(0)

        def read(data: Any) -> None:
            frames.append(data.frame)
            seqs.append(data.seq)
            assert turn.acquire(timeout=PATIENCE)

        sensor = client.sensors["sheet"]
        sensor.listen(read)
        for k in range(10):
            until(lambda k=k: len(frames) == k + 1)  # type: ignore[misc]
            if k == 1:
                before = server.ask("held")["rss"], held()["rss"]
            until(lambda: server.ask("held")["frame"] > frames[-1] + 20)
            newest = server.ask("held")["frame"]
            turn.release()
            until(lambda: frames[-1] >= newest)  # noqa: B023
            assert len(frames) == k + 2
        after = server.ask("held")["rss"], held()["rss"]
        turn.release(10_000)
        sensor.stop()
        stats = sensor.stats
    gaps = np.diff(seqs) - 1
    assert gaps.min() >= 0 and gaps.sum() > 150
    assert stats.received == len(seqs) and stats.replaced == gaps.sum()
    grown = np.subtract(after, before) / 2**20
    assert (grown < 24.0).all(), f"150 frames are 75 MiB; grown by {grown} MiB"


class Clock:
    """The module `time` with a monotonic clock that a test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def test_max_rate_limits_frames_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 64 frames per second `max_rate=10` gives the first frame after each 0.1 s, and one frame after a pause."""
    clock = Clock()
    for module in ("server", "subscription_table"):
        monkeypatch.setattr(f"sensorium.stream.{module}.time", clock)
    with build(columns=0).local_client(timeout=PATIENCE) as client:
        got: list[int] = []
        client.subscribe("gauge", lambda data: got.append(data.frame), policy="lossless", max_rate=10.0)
        until(lambda: (client.server.poll(), got)[1], "the greeting")
        for _ in range(60):
            clock.now += 1.0 / 64.0
            client.step()
        clock.now += 10.0
        for _ in range(8):
            client.step()
            clock.now += 1.0 / 64.0
        expected = [0, *(math.ceil(6.4 * k) for k in range(1, 10)), 61, 68]
        until(lambda: len(got) >= len(expected))
        assert got == expected


def test_slow_lossless_listener_of_a_free_simulation_ends_with_a_reason() -> None:
    """It got the first frames in order. The simulation was not delayed, and another listener had everything."""
    with sn.serve(build(columns=8192), "tcp://127.0.0.1:0") as server, connect(server.address) as client:
        gate, slow, quick = threading.Event(), list[int](), list[int]()
        client.subscribe("gauge", lambda data: quick.append(data.frame), policy="lossless")

        def take(data: Any) -> None:
            slow.append(data.frame)
            gate.wait(PATIENCE)

        client.sensors["sheet"].listen(take, policy="lossless", queue=8)
        until(lambda: (server.poll(), slow and quick)[1], "the greetings")
        for _ in range(100):
            server.scene.step()
        with pytest.warns(sn.SensoriumWarning, match="too slow: 8 messages waited for the listener"):
            gate.set()
            until(lambda: client.sensors["sheet"].why_ended)
            until(lambda: client.notes)
        assert not client.sensors["sheet"].is_listening
        assert "policy='latest'" in client.sensors["sheet"].why_ended
        until(lambda: quick[-1] == 100)
        assert quick == [*range(101)] and slow == [*range(len(slow))]


def test_listener_restarted_after_being_too_slow_receives_data() -> None:
    """The ended subscription has no further effect."""
    notes: list[str] = []
    with serving(step=True, world={"columns": 8192}) as server, connect(server.address) as client:
        for _ in range(3):
            gate, got = threading.Event(), []

            def take(data: Any, gate: threading.Event = gate, got: list[int] = got) -> None:
                got.append(data.frame)
                gate.wait(PATIENCE)

            with pytest.warns(sn.SensoriumWarning, match="too slow"):
                client.sensors["sheet"].listen(take, policy="lossless", queue=1)
                until(lambda got=got: got or client.sensors["sheet"].why_ended)  # it may be too slow for the first
                until(lambda: server.counts.subscriptions == 0)
                gate.set()
                until(lambda: client.sensors["sheet"].why_ended)
                until(lambda notes=notes: len(client.notes) > len(notes))
            notes = client.notes
        got = []
        client.sensors["sheet"].listen(lambda data: got.append(data.frame))
        until(lambda got=got: len(got) > 20)


def test_lost_events_are_counted_in_a_record_at_their_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """Received and lost events add up to all sent events, in order; the record precedes the next event."""
    with serving(lockstep=True, world={"columns": 0}) as server, connect(server.address) as client:
        ticker = client.spawn("sensor.other.test_ticker", name="ticker")
        client.spawn("sensor.other.test_ticker", name="crowd")
        ticker.destroy()
        bp = client.blueprints.find("sensor.other.test_ticker")
        bp.set_attribute("burst", 50)
        client.spawn(bp, name="ticker")
        gate = threading.Event()
        got: list[tuple[str, int]] = []
        last_lost: list[int] = []

        def take(data: Any) -> None:
            if isinstance(data, LostEvents):
                got.append(("lost", data.events_lost))
                last_lost.append(data.frame)
                assert data.tick == data.frame and abs(data.timestamp - data.tick * DT) < 1e-9
            else:
                got.append(("event", int(data[0]) * 50 + int(data[1])))
            gate.wait(PATIENCE)

        monkeypatch.setattr(subscriptions, "WINDOW_SMALL", 4)
        subscription = client.subscribe("ticker", take, queue=10)
        first = client.step() * 50
        for _ in range(12):
            gate.clear()
            for _ in range(3):
                client.step()
            known = len(got)
            gate.set()
            until(lambda known=known: len(got) > known + 10)
        until(lambda: ("event", client.step() * 50) in got, "an event after the last lost ones")
        subscription.stop()
        assert subscription.stats.lost == sum(n for what, n in got if what == "lost") > 100
        expected = first
        for what, n in got:
            if what == "event":
                assert n == expected
                expected += 1
            else:
                expected += n
                assert last_lost.pop(0) == expected // 50
        gate.set()


def test_subscription_started_within_a_frame_gets_only_its_environments() -> None:
    """While listeners with other environments start and stop constantly, each gets its rows, and the loop continues."""
    with serving(step=True, world={"num_envs": 8, "columns": 0}) as server, connect(server.address) as client:
        wrong: list[Any] = []
        ended: list[int] = []

        def check(first: int, count: int, seen: list[int]) -> Any:
            def take(data: Any) -> None:
                seen.append(data.frame)
                rows = data["vec"][:, 0] - data.tick
                if data.env_ids.tolist() != list(range(first, first + count)) or (
                    rows.tolist() != [1024.0 * env for env in range(first, first + count)]
                ):
                    wrong.append((first, count, data.env_ids, rows))

            return take

        def churn(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(12):
                first = int(random.integers(0, 8))
                count = int(random.integers(1, 9 - first))
                options = {"envs": slice(first, first + count), "policy": str(random.choice(["latest", "lossless"]))}
                seen: list[int] = []
                subscription = client.subscribe("gauge", check(first, count, seen), **options)
                until(lambda seen=seen: len(seen) > 2)  # type: ignore[misc]
                subscription.stop()
                ended.append(seed)

        threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not wrong and len(ended) == 48
        until(lambda: server.counts.subscriptions == 0)


def test_first_sample_counts_towards_max_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """At one sample per thousand seconds no sample follows the greeting, and none is computed for the listener."""
    computed, update = [], Gauge.update_raw_data
    monkeypatch.setattr(Gauge, "update_raw_data", lambda sensor, raw: computed.append(update(sensor, raw)))
    with build(columns=0).local_client(timeout=PATIENCE) as client:
        server = client.server
        client.step()
        before = server.sent_bytes
        client.sensors["gauge"].listen(lambda data: None, max_rate=1e-3)
        until(lambda: server.poll() or server.sent_bytes > before, "the greeting")
        greeted, count = server.sent_bytes, len(computed)
        for _ in range(5):
            client.step()
        assert server.sent_bytes == greeted and len(computed) == count
