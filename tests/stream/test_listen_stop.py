"""Start and end of listening: replacement, stopping twice or from a callback, many threads, exceptions of listeners."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streaming import PATIENCE, build, connect, held, serving, until

import sensorium as sn
from sensorium.errors import ConfigError, StreamError


@pytest.fixture
def server() -> Iterator[sn.Server]:
    """A free-running server in another thread."""
    with serving(step=True, world={"columns": 0}) as made:
        yield made


@pytest.fixture
def client(server: sn.Server) -> Iterator[sn.Client]:
    """A client of the server."""
    with connect(server.address) as made:
        yield made


def test_listening_twice_replaces_the_first_listener(server: sn.Server, client: sn.Client) -> None:
    """The first listener is not called once `listen` has returned; the server has a single subscription."""
    first, second = [], []
    gauge = client.sensors["gauge"]
    gauge.listen(lambda data: first.append(data.frame))
    until(lambda: first)
    gauge.listen(lambda data: second.append(data.frame))
    count = len(first)
    until(lambda: len(second) > 20)
    assert len(first) == count and second[0] >= first[-1]
    assert client.sensors["gauge"] is gauge
    until(lambda: server.counts.subscriptions == 1)


def test_stop_is_idempotent_and_is_listening_is_updated(server: sn.Server, client: sn.Client) -> None:
    """This holds also before the first `listen`, and on both sides."""
    gauge, got = client.sensors["gauge"], []
    assert not gauge.is_listening
    gauge.stop()
    gauge.listen(got.append)
    assert gauge.is_listening
    until(lambda: got)
    for _ in range(3):
        gauge.stop()
        assert not gauge.is_listening
    count, frame = len(got), server.frame
    until(lambda: server.counts.subscriptions == 0 and server.frame > frame + 10)
    assert len(got) == count and gauge.stats.received == count


@pytest.mark.parametrize("policy", ["latest", "lossless"])
def test_listener_can_stop_itself(server: sn.Server, client: sn.Client, policy: Any) -> None:
    """The stopped listener is not called again; the others continue."""
    mine, other = [], []
    gauge = client.sensors["gauge"]

    def take(data: Any) -> None:
        mine.append(data.frame)
        if len(mine) == 5:
            gauge.stop()

    client.subscribe("gauge", other.append)
    gauge.listen(take, policy=policy)
    until(lambda: len(mine) == 5)
    count = len(other)
    until(lambda: len(other) > count + 20 and server.counts.subscriptions == 1)
    assert len(mine) == 5 and not gauge.is_listening


def test_listener_can_replace_itself_and_close_the_client(server: sn.Server) -> None:
    """Neither call, made from within a listener, waits for itself, and all threads end."""
    before = threading.active_count()
    client = connect(server.address)
    calls: list[str] = []

    def second(data: Any) -> None:
        calls.append("second")
        client.close()

    def first(data: Any) -> None:
        calls.append("first")
        client.sensors["gauge"].listen(second)

    client.sensors["gauge"].listen(first)
    until(lambda: "second" in calls)
    until(lambda: threading.active_count() <= before and server.clients == 0)
    assert calls[0] == "first" and calls.count("second") == 1
    client.close()
    assert not client.is_connected
    with pytest.raises(StreamError):
        client.sensors["gauge"].read(timeout=0.1)


def test_listener_exception_is_reported_with_the_sensors_name(
    server: sn.Server, client: sn.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Every exception is logged and counted; the next sample still arrives; `check` raises the first exception."""
    seen: list[int] = []

    def broken(data: Any) -> None:
        seen.append(data.frame)
        raise [ValueError, KeyError, SystemExit, ZeroDivisionError][len(seen) % 4](f"at frame {data.frame}")

    client.sensors["gauge"].listen(broken, policy="lossless")
    with caplog.at_level(logging.ERROR, "sensorium.client"):
        until(lambda: len(seen) >= 40)
    client.sensors["gauge"].stop()
    assert np.diff(seen).tolist() == [1] * (len(seen) - 1)
    assert client.callbacks.errors.count == len(seen)
    assert sum("'gauge'" in record.getMessage() for record in caplog.records) >= 40
    with pytest.raises(StreamError, match=r"'gauge': listener .* raised KeyError: .*at frame \d+.*more\)") as caught:
        client.check()
    assert isinstance(caught.value.__cause__, KeyError) and "at frame" in str(caught.value.__cause__)
    assert client.errors == []


def test_listener_error_is_raised_on_leaving_the_connection(server: sn.Server) -> None:
    """Without a call of `check`, the `with` block raises the exception at its end."""

    def broken(data: Any) -> None:
        raise RuntimeError("nobody looks at this")

    with pytest.raises(StreamError, match=r"'gauge': listener .* raised RuntimeError: nobody looks"):
        with connect(server.address) as client:
            client.sensors["gauge"].listen(broken)
            until(lambda: client.callbacks.errors.count)


def test_wrong_options_are_refused_before_listening_starts(server: sn.Server, client: sn.Client) -> None:
    """The error names the sensor and the option; an existing listener stays."""
    got: list[int] = []
    gauge = client.sensors["gauge"]
    gauge.listen(lambda data: got.append(data.frame))
    wrong: list[dict[str, Any]] = [
        {"policy": "newest"}, {"every": 0}, {"every": 1.5}, {"max_rate": 0.0}, {"max_rate": float("nan")},
        {"envs": 4}, {"envs": slice(2, 2)}, {"envs": slice(0, 4, 2)}, {"envs": True}, {"queue": 0},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ConfigError, match=rf"listen\('gauge'\).*{next(iter(options))}"):
            gauge.listen(print, **options)
    with pytest.raises(ConfigError, match="callback"):
        gauge.listen(None)  # type: ignore[arg-type]
    count = len(got)
    until(lambda: len(got) > count + 5)
    assert gauge.is_listening and server.counts.subscriptions == 1


def test_many_threads_listen_and_stop_concurrently(server: sn.Server, client: sn.Client) -> None:
    """Eight threads listen to two sensors of two clients: no call follows a stop, no error occurs, nothing is left."""
    with connect(server.address) as second:
        sensors = [(each, each.sensors[name]) for each in (client, second) for name in ("gauge", "world")]
        before = held()
        wrong: list[str] = []
        called = [0]

        def work(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(150):
                owner, sensor = sensors[int(random.integers(4))]
                if random.random() < 0.5:
                    sensor.listen(lambda data: called.__setitem__(0, called[0] + 1),
                                  policy=str(random.choice(["latest", "lossless"])))  # fmt: skip
                elif random.random() < 0.3:
                    own, over = seed, threading.Event()

                    def take(data: Any, over: threading.Event = over, own: int = own) -> None:
                        if over.is_set():
                            wrong.append(f"thread {own}: called after stop")

                    subscription = owner.subscribe(sensor.name, take)
                    subscription.stop()
                    over.set()
                else:
                    sensor.stop()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        for _, sensor in sensors:
            sensor.stop()
        assert not wrong
        until(lambda: server.counts.subscriptions == 0, "the end of all subscriptions")
        after = held()
        assert after["fds"] <= before["fds"] + 2 and after["threads"] <= before["threads"] + 8
        for _, sensor in sensors:
            count = called[0]
            sensor.listen(lambda data: called.__setitem__(0, called[0] + 1))
            until(lambda count=count: called[0] > count)
            sensor.stop()


def test_removed_sensor_ends_listening_with_a_reason(server: sn.Server, client: sn.Client) -> None:
    """Listening to a destroyed sensor ends; `why_ended` gives the reason, and listening again is refused."""
    ticker = client.spawn("sensor.other.test_ticker", name="ticker")
    got: list[int] = []
    with connect(server.address) as other:
        shared = other.sensors["ticker"]
        shared.listen(lambda data: got.append(data.frame))
        until(lambda: got)
        with pytest.warns(sn.SensoriumWarning, match="listening to 'ticker' ended: its client .* destroyed it"):
            ticker.destroy()
            until(lambda: shared.why_ended and other.notes)
        assert not shared.is_listening and not shared.is_alive and "ticker" not in other.sensors
        with pytest.raises(sn.StaleError, match="ticker"):
            shared.listen(print)


def test_sensor_removed_by_the_owner_ends_listening_with_a_reason() -> None:
    """The loop continues, and the other sensors still send."""
    with sn.serve(build(columns=0, gauges=2), "tcp://127.0.0.1:0") as server:
        with connect(server.address) as client:
            got: dict[str, list[int]] = {"gauge": [], "gauge_2": []}
            for name, kept in got.items():
                client.sensors[name].listen(lambda data, kept=kept: kept.append(data.frame), policy="lossless")
            until(lambda: (server.poll(), all(got.values()))[1])
            with pytest.warns(sn.SensoriumWarning, match="'gauge_2' ended: it was removed from its scene"):
                server.scene.remove("gauge_2")
                server.scene.step()
                until(lambda: client.sensors["gauge"].stats.frame == 1 and client.notes)
            server.scene.step()
            until(lambda: got["gauge"][-1] == 2)
            assert "gauge_2" not in client.sensors
