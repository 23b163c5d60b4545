"""Foreign bytes: neither side crashes or stalls, and the sender is disconnected with a reason."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zmq
from streaming import PATIENCE, Peer, connect, held, serving, until

import sensorium as sn
from sensorium.client import link
from sensorium.errors import StreamError
from sensorium.wire import messages as msg
from sensorium.wire.packing import CONTROL, CREDIT, DATA, RELEASE, SLOT, Record, pack, unpack

KINDS = (CONTROL, DATA, SLOT, CREDIT, RELEASE, 0, 7, 8, 9, 255)


@contextlib.contextmanager
def witness(server: sn.Server) -> Iterator[list[int]]:
    """A well-behaved client that must not be disturbed; it records its frames."""
    with connect(server.address, name="witness") as client:
        frames: list[int] = []
        client.sensors["gauge"].listen(lambda data: frames.append(data.frame), policy="lossless")
        until(lambda: frames)
        yield frames
        count = len(frames)
        until(lambda: len(frames) > count + 20, "frames after it")
        assert (np.diff(frames) == 1).all()
        until(lambda: client.is_connected)
        assert sum(name.startswith("'witness'") for name in server.client_names) == 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The messages of a real session, as sent by a client."""
    sent: list[list[bytes]] = []

    def note(records: Any) -> list[Any]:
        parts = pack(records)
        sent.append([bytes(part) for part in parts])
        return parts

    with serving(lockstep=True, world={"columns": 1024}) as server, monkeypatch.context() as patched:
        patched.setattr(link, "pack", note)
        with connect(server.address) as client, sn.client.FrameSync(client, ["gauge"]) as sync:
            client.sensors["sheet"].listen(lambda data: None, policy="lossless", envs=slice(0, 2), truth=True)
            ticker = client.spawn("sensor.other.test_ticker", name="tick")
            ticker.listen(lambda data: None)
            for _ in range(5):
                sync.get(client.step(), timeout=PATIENCE)
            client.reset([1])
            with pytest.raises(StreamError):
                client.sensors["gauge"].set("noise", [0.5, 0.25], env_ids=[0])
            with pytest.raises(StreamError):
                client.control([0.5])
            ticker.destroy()
            client.sensors["sheet"].stop()
    return sent


def mutated(random: np.random.Generator, message: list[bytes]) -> list[bytes]:
    """Return a partly changed message: bits, truncation, duplication, lengths, parts."""
    parts = [bytearray(part) for part in message]
    for _ in range(int(random.integers(1, 4))):
        part = parts[int(random.integers(len(parts)))]
        how = int(random.integers(7))
        at = int(random.integers(len(part) + 1))
        if how == 0 and part:
            part[at % len(part)] ^= 1 << int(random.integers(8))
        elif how == 1:
            del part[at:]
        elif how == 2:
            part[at:at] = random.bytes(int(random.integers(1, 40)))
        elif how == 3 and len(part) >= 4:
            at = at % (len(part) - 3) & ~3
            part[at : at + 4] = random.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\1\0\0\0"])
        elif how == 4:
            parts.insert(int(random.integers(len(parts) + 1)), bytearray(random.bytes(int(random.integers(64)))))
        elif how == 5:
            part += part[:at]
        elif part:
            part[at % len(part)] = int(random.integers(256))
    return [bytes(part) for part in parts]


def garbage(random: np.random.Generator) -> list[bytes]:
    """Return random bytes, or a well-formed message with random content."""
    if random.random() < 0.4:
        return [random.bytes(int(random.integers(0, 200))) for _ in range(int(random.integers(1, 4)))]
    numbers = [0, 1, 2, 7, 2**31, 2**32 - 1]
    records = [
        Record(int(random.choice(KINDS)), int(random.choice(numbers)), int(random.choice(numbers)),
               random.bytes(int(random.integers(0, 50))))
        for _ in range(int(random.integers(1, 5)))
    ]  # fmt: skip
    return [bytes(part) for part in pack(records)]


def hello(name: str = "fuzz") -> list[bytes]:
    message = msg.encode(msg.Hello(msg.PROTOCOL, "0", "", name, "nowhere", 2**31, b""))
    return [bytes(part) for part in pack([Record(CONTROL, 0, 0, message)])]


def refusals(dealer: Any) -> list[str]:
    """Read the arrived messages and return the reasons of refusals."""
    out: list[str] = []
    while dealer.poll(0):
        for record in unpack([memoryview(part) for part in dealer.recv_multipart()]):
            if record.kind == CONTROL and isinstance(message := msg.decode(msg.TO_CLIENT, record.content), msg.Refused):
                out.append(message.reason)
    return out


@pytest.mark.parametrize("messages", [200, pytest.param(100_000, marks=pytest.mark.soak)])
def test_random_and_mutated_messages_do_not_break_the_server(
    session: list[list[bytes]], messages: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A client with a session sends them; the session ends at the first bad message with a reason, and is reopened."""
    caplog.set_level(logging.CRITICAL, "sensorium.stream")
    with serving(step=True, world={"columns": 1024}, max_clients=8) as server, witness(server):
        random = np.random.default_rng(5)
        before = held()
        reasons: list[str] = []
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(server.address)
            for i in range(messages):
                if i % 8 == 0:
                    dealer.send_multipart(hello())
                if random.random() < 0.5:
                    dealer.send_multipart(garbage(random))
                else:
                    dealer.send_multipart(mutated(random, session[int(random.integers(len(session)))]))
                if i % 64 == 0:
                    reasons += refusals(dealer)

            def arrived() -> bool:
                reasons.extend(refusals(dealer))
                return len({reason[:70] for reason in reasons}) > 5 and len(reasons) > messages / 20

            dealer.send_multipart([b"the last one"])
            dealer.send_multipart(hello("the very last"))
            until(lambda: arrived() and any("the very last" in name for name in server.client_names), "all reasons")
        assert not [text for text in reasons if "failed to handle" in text], reasons
        until(lambda: server.clients == 1, "the end of what the fuzzing client had")
        until(lambda: held()["threads"] <= before["threads"])
        until(lambda: held()["fds"] - held()["memfds"] <= before["fds"] - before["memfds"] + 1)
        assert set(server.streams) == {"gauge", "sheet", "world"}


@pytest.mark.parametrize("connections", [40, pytest.param(1000, marks=pytest.mark.soak)])
def test_raw_bytes_on_the_port_do_not_break_the_server(connections: int) -> None:
    """Garbage, a web browser, half a ZeroMQ greeting, huge lengths and endless connections disturb no other client."""
    with serving(step=True, world={"columns": 0}) as server, witness(server):
        port = int(server.address.rpartition(":")[2])
        random = np.random.default_rng(6)
        greeting = b"\xff" + bytes(8) + b"\x7f" + b"\3\0" + b"NULL".ljust(20, b"\0") + bytes(32)
        starts = [
            b"", b"GET / HTTP/1.1\r\n\r\n", greeting, greeting[:30],
            greeting + b"\4\x26\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0",
            greeting + b"\2" + b"\xff" * 8, b"\xff" * 64, b"\1\0",
        ]  # fmt: skip
        before = held()["fds"]
        open_ones: list[socket.socket] = []
        for i in range(connections):
            each = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            with contextlib.suppress(OSError):
                each.sendall(starts[i % len(starts)] + random.bytes(int(random.integers(0, 300))))
            if i % 4 == 0 and len(open_ones) < 50:
                open_ones.append(each)
            else:
                each.close()
        for each in open_ones:
            each.close()
        until(lambda: held()["fds"] <= before + 1, "the end of these connections")
        assert server.clients == 1


def test_flood_of_a_non_reading_client_is_bounded() -> None:
    """While a client sends endless pings and reads no answer, the others get their frames."""
    with serving(step=True, world={"columns": 0}) as server, witness(server) as frames:
        stop = threading.Event()

        with Peer(server.address) as peer:
            number = peer.answer(msg.Welcome).server

        def flood() -> None:
            with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
                dealer.linger = 0
                dealer.connect(server.address)
                dealer.send_multipart(hello())
                ping = pack([Record(CONTROL, 0, 0, msg.encode(msg.Ping(number)))] * 16)
                while not stop.is_set():
                    if dealer.poll(100, zmq.POLLOUT):
                        dealer.send_multipart(ping, zmq.NOBLOCK)

        thread = threading.Thread(target=flood)
        thread.start()
        count = len(frames)
        until(lambda: len(frames) > count + 60)
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("times", [8, pytest.param(400, marks=pytest.mark.soak)])
def test_garbage_from_the_server_ends_the_connection_with_a_reason(
    times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's other connections continue; it closes in order; none of its threads has failed."""
    caplog.set_level(logging.ERROR, "sensorium.client")
    random = np.random.default_rng(7)
    with serving(lockstep=True, world={"columns": 0}):
        pass  # threads of libraries that start once per process
    before = held()
    reasons: set[str] = set()
    with serving(lockstep=True, world={"columns": 1024}) as real, sn.connect(real.address) as sane:
        answers: list[list[bytes]] = []
        with Peer(real.address) as peer:
            keep = peer.answer(msg.Catalogue)
        welcome = msg.Welcome(b"server", "", b"", False)
        for message in (
            keep, msg.Eos(1, "why"), msg.Pong(b"server"), msg.Note("text"), msg.Removed(1, "why"),
            msg.Segment(1, "/proc/1/fd/1", b"t" * 16, 4096, 64), msg.Unmap(1), msg.FrameDone(1, 1, 1, (1, 2)),
            msg.Reply(1, None, "x", "nearest"), msg.Added(keep.streams[0]),
        ):  # fmt: skip
            answers.append([bytes(part) for part in pack([Record(CONTROL, 0, 0, msg.encode(message))])])
        for i in range(times):
            with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
                router.linger = 0
                port = router.bind_to_random_port("tcp://127.0.0.1")
                stop = threading.Event()

                def serve(router: Any = router, stop: threading.Event = stop, i: int = i) -> None:
                    greeted = False
                    while not stop.is_set():
                        if not router.poll(20):
                            continue
                        route, *_ = router.recv_multipart()
                        if not greeted:
                            first = [Record(CONTROL, 0, 0, msg.encode(each)) for each in (welcome, keep)]
                            router.send_multipart([route, *pack(first)])
                            greeted = True
                        for _ in range(20):
                            bad = garbage(random) if i % 2 else mutated(random, answers[i // 2 % len(answers)])
                            router.send_multipart([route, *bad])

                thread = threading.Thread(target=serve)
                thread.start()
                try:
                    with sn.connect(f"tcp://127.0.0.1:{port}", timeout=10.0) as client:
                        with contextlib.suppress(StreamError, sn.SensoriumError):
                            client.subscribe("gauge", lambda data: None)
                        until(lambda client=client: not client.is_connected, "the end")
                        client.callbacks.errors.take()
                        client.wait_connected(0.0)
                except StreamError as error:
                    reasons.add(str(error)[:100])
                finally:
                    stop.set()
                    thread.join(PATIENCE)
        assert sane.step() == 1 and not sane.errors
    assert not [text for text in reasons if "client failed" in text], reasons
    assert any("invalid message" in text for text in reasons), reasons
    until(lambda: held()["fds"] <= before["fds"] + 1)
    until(lambda: held()["threads"] <= before["threads"])
