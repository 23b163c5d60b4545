"""Policies for a slow listener: the newest with counted drops, everything, or everything except reported losses."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streaming import DT, PATIENCE, Child, Gauge, Nursery, build, held, serving, until

import sensorium as sn
from sensorium.client import subscription as subscriptions
from sensorium.wire.data import LostEvents

HZ = 60.0


@pytest.fixture(scope="module")
def server(nursery: Nursery) -> Iterator[Child]:
    """A server in another process that runs freely at 60 steps per second; a large frame has 0.5 MiB."""
    with nursery.start("server", address="tcp://127.0.0.1:0", world={"columns": 32768}, hz=HZ) as child:
        yield child


def test_slow_latest_listener_gets_new_frames_and_the_drop_count(server: Child) -> None:
    """A listener that takes 100 ms per frame at 60 frames per second gets recent frames, and memory does not grow."""
    with sn.connect(server.address) as client:
        ages: list[float] = []
        seqs: list[int] = []

        def read(data: Any) -> None:
            ages.append(data.latency())
            seqs.append(data.seq)
            time.sleep(0.1)  # the work of this reader, not a synchronisation

        sensor = client.sensors["sheet"]
        sensor.listen(read)
        until(lambda: len(ages) == 5)
        before = server.ask("held")["rss"], held()["rss"]
        until(lambda: len(ages) >= 35)
        sensor.stop()
        after = server.ask("held")["rss"], held()["rss"]
        stats = sensor.stats
    assert statistics.median(ages[5:]) < 0.030
    gaps = np.diff(seqs) - 1
    assert gaps.min() >= 0 and gaps.sum() > 100
    assert stats.received == len(seqs) and stats.replaced == gaps.sum()
    grown = np.subtract(after, before) / 2**20
    assert (grown < 24.0).all(), f"3 s of frames are 90 MiB; grown by {grown} MiB"


def test_max_rate_limits_frames_evenly(server: Child) -> None:
    """At 60 frames per second `max_rate=10` gives 10 per second, each the newest; `every=4` gives each fourth frame."""
    with sn.connect(server.address) as client:
        bounded: list[tuple[float, float]] = []
        fourth: list[int] = []
        client.subscribe("gauge", lambda data: bounded.append((time.monotonic(), data.latency())), max_rate=10.0)
        client.subscribe("gauge", lambda data: fourth.append(data.seq), policy="lossless", every=4)
        until(lambda: len(bounded) >= 16)
        span = bounded[-1][0] - bounded[0][0]
        assert span >= 0.9 * (len(bounded) - 1) / 10.0
        assert statistics.median(latency for _, latency in bounded) < 0.030
        until(lambda: len(fourth) > 5)
        assert np.diff(fourth).tolist() == [4] * (len(fourth) - 1)


def test_slow_lossless_listener_of_a_free_simulation_ends_with_a_reason() -> None:
    """It got all frames up to its end in order. The simulation was not delayed, and another listener had everything."""
    with serving(step=True, world={"columns": 8192}) as server, sn.connect(server.address) as client:
        gate, slow, quick = threading.Event(), [], []
        client.subscribe("gauge", lambda data: quick.append(data.frame), policy="lossless")

        def take(data: Any) -> None:
            slow.append(data.frame)
            gate.wait(PATIENCE)

        client.sensors["sheet"].listen(take, policy="lossless", queue=8)
        until(lambda: slow)
        frame = server.frame
        until(lambda: server.frame > frame + 100)
        with pytest.warns(sn.SensoriumWarning, match="too slow: 8 messages waited for the listener"):
            gate.set()
            until(lambda: client.sensors["sheet"].why_ended)
            until(lambda: client.notes)
        assert not client.sensors["sheet"].is_listening
        assert "policy='latest'" in client.sensors["sheet"].why_ended
        until(lambda: quick and quick[-1] > frame + 100)
        assert np.diff(quick).tolist() == [1] * (len(quick) - 1)


def test_listener_restarted_after_being_too_slow_receives_data() -> None:
    """The ended subscription has no further effect."""
    notes: list[str] = []
    with serving(step=True, world={"columns": 8192}) as server, sn.connect(server.address) as client:
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
    with serving(lockstep=True, world={"columns": 0}) as server, sn.connect(server.address) as client:
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
    with serving(step=True, world={"num_envs": 8, "columns": 0}) as server, sn.connect(server.address) as client:
        wrong: list[Any] = []
        seen = [0]

        def check(first: int, count: int) -> Any:
            def take(data: Any) -> None:
                seen[0] += 1
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
                subscription = client.subscribe("gauge", check(first, count), **options)
                frame = server.frame
                until(lambda frame=frame: server.frame > frame + 2)
                subscription.stop()

        threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not wrong and seen[0] > 48
        until(lambda: server.counts.subscriptions == 0)


def test_first_sample_counts_towards_max_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """At one sample per thousand seconds no sample follows the greeting, and none is computed for the listener."""
    computed, update = [], Gauge.update_raw_data
    monkeypatch.setattr(Gauge, "update_raw_data", lambda sensor, raw: computed.append(update(sensor, raw)))
    with build(columns=0).local_client() as client:
        server = client.server
        client.step()
        before = server.sent_bytes
        client.sensors["gauge"].listen(lambda data: None, max_rate=1e-3)
        until(lambda: server.poll() or server.sent_bytes > before, "the greeting")
        greeted, count = server.sent_bytes, len(computed)
        for _ in range(5):
            client.step()
        assert server.sent_bytes == greeted and len(computed) == count
