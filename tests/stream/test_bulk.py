"""Large messages to clients that cannot read the server's memory come over a TCP connection of their own."""

from __future__ import annotations

import contextlib
import gc
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zmq
from streaming import PATIENCE, build, held, running, serving, until

import sensorium as sn
from sensorium.client import link
from sensorium.errors import ConfigError, StreamError
from sensorium.stream import bulk
from sensorium.wire import messages as say
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition, make_generic_sensor_definition
from sensorium.wire.packing import BULK, CONTROL, Record, pack, pack_length, unpack

COLUMNS = 2 * bulk.BULK_FROM // 4
"""Of a reading of one env, in float32: twice what is large."""


@contextlib.contextmanager
def far(server: sn.Server, **options: Any) -> Iterator[sn.Client]:
    """Yield a client that does not share memory, as if it were on another machine, with its connection made."""
    with sn.connect(server.address, shared_memory=False, **options) as client:
        until(lambda: server.counts.bulk_lines == 1, "the connection")
        yield client


class Mixed(sn.StreamedSensor):
    """Sends numbers of mixed lengths in each frame, each message with its own number first."""

    lengths = (1, 100_000, 3, 40_000, 200_000, 2, 2, 90_000)
    sent = 0

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_mixed", (Attribute(id="x", type="int", default="1"),))

    class serializer(sn.Serializer):
        type_name = "sensorium.tests.Mixed/1"

        @staticmethod
        def serialize(sensor: Any, data: Any) -> Any:
            return data

        @staticmethod
        def deserialize(raw: sn.RawData) -> Any:
            return Numbers(raw)

    def set(self, description: ActorDescription) -> None:
        super().set(description)
        self.sent = 0

    def tick(self, snapshot: Any) -> None:
        for length in self.lengths:
            numbers = np.full(length, self.sent, np.int64)
            self.sent += 1
            self.stream.send(numbers)


class Numbers(sn.ArrayData):
    dtype = np.dtype("<i8")


def test_large_frames_come_whole_and_in_order_beside_those_of_a_small_sensor_and_the_marks_of_frames() -> None:
    with serving(lockstep=True, world={"columns": COLUMNS}) as server, far(server) as client:
        frames: list[int] = []
        sheets: list[np.ndarray[Any, Any]] = []

        def take(data: Any) -> None:
            frames.append(data.frame)
            sheets.append(np.array(data.cells))

        client.sensors["sheet"].listen(take, policy="lossless")
        with sn.FrameSync(client, ["sheet", "gauge"]) as sync:
            for _ in range(60):
                frame = client.step()
                bundle = sync.get(frame, timeout=PATIENCE)
                x = bundle["gauge"].vec[..., 0]
                assert bundle["sheet"].frame == bundle["gauge"].frame == frame
                np.testing.assert_array_equal(bundle["sheet"].cells[..., 0], x)
                np.testing.assert_array_equal(bundle["sheet"].cells[..., -1], x + COLUMNS - 1)
        until(lambda: frames and frames[-1] == frame)
        assert len(frames) >= 60 and frames == list(range(frames[0], frame + 1))
        steps = np.arange(COLUMNS, dtype=np.float32)
        for sheet in sheets:
            np.testing.assert_array_equal(sheet, sheet[..., :1] + steps)
        assert not client.errors


def test_messages_of_mixed_lengths_of_one_stream_keep_their_order() -> None:
    with serving(lockstep=True) as server, far(server) as client:
        seen: list[tuple[int, int]] = []

        def take(data: Any) -> None:
            assert (data.array == data.array[0]).all()
            seen.append((int(data.array[0]), len(data)))

        mixed = client.spawn("sensor.other.test_mixed")
        mixed.listen(take, policy="lossless")
        for _ in range(25):
            client.step()
        wanted = 25 * len(Mixed.lengths)
        until(lambda: len(seen) >= wanted)
        first = seen[0][0]
        assert [number for number, _ in seen] == list(range(first, first + len(seen)))
        assert all(length == Mixed.lengths[number % len(Mixed.lengths)] for number, length in seen)


def test_data_that_came_this_way_are_read_only_aligned_and_kept_as_long_as_somebody_views_them() -> None:
    with serving(lockstep=True, world={"columns": COLUMNS}) as server, far(server) as client:
        got: list[Any] = []
        client.sensors["sheet"].listen(got.append, policy="lossless")
        client.step()
        until(lambda: got)
        view = got.pop().cells[0]
        before = view.copy()
        for _ in range(100):
            client.step()
            until(lambda: got)
            got.clear()
        np.testing.assert_array_equal(view, before)
        assert not view.flags.writeable and view.ctypes.data % 64 == 0


def test_memory_is_used_again_and_does_not_grow() -> None:
    with serving(lockstep=True, world={"columns": 4 * COLUMNS}) as server, far(server) as client:
        count = 0

        def take(data: Any) -> None:
            nonlocal count
            count += 1

        client.sensors["sheet"].listen(take, policy="lossless")
        for k in range(200):
            client.step()
            until(lambda k=k: count > k)
            if k == 20:
                before = held()["rss"]
        assert held()["rss"] - before < 32 * 2**20  # a leak would be 750 MB


def test_a_client_that_reads_slowly_holds_up_nobody_else() -> None:
    with serving(step=True, world={"columns": 4 * COLUMNS}, shared_memory=False) as server:
        with far(server) as slow, sn.connect(server.address) as quick:
            until(lambda: server.counts.bulk_lines == 2)
            gate = threading.Event()
            seen: list[int] = []
            slow.sensors["sheet"].listen(lambda data: gate.wait(PATIENCE))
            quick.sensors["sheet"].listen(lambda data: seen.append(data.frame))
            until(lambda: len(seen) > 20)
            gate.set()


def test_both_sides_forget_the_connection_when_the_client_leaves_and_when_the_server_ends() -> None:
    gc.collect()
    before = held()
    with sn.serve(build(columns=COLUMNS), "tcp://127.0.0.1:0", lockstep=True) as server:
        for _ in range(3):
            with running(server), far(server) as client:
                client.sensors["sheet"].listen(lambda data: None, policy="lossless")
                client.step()
            until(lambda: server.counts.bulk_lines == 0)
        with far(server) as client:
            with running(server):
                client.sensors["sheet"].listen(lambda data: None, policy="lossless")
                client.step()
            server.close("enough")
            until(lambda: not client.is_connected)
    until(lambda: held()["fds"] <= before["fds"])
    until(lambda: not [each for each in threading.enumerate() if each.name.startswith("sensorium-")], "threads' ends")


def test_the_last_data_and_the_reason_come_before_the_end_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sensorium.client")
    scene = build(columns=16 * COLUMNS)
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server, far(server) as client:
        frames: list[int] = []
        with running(server):
            client.sensors["sheet"].listen(lambda data: frames.append(data.frame), policy="lossless")
            last = [client.step() for _ in range(3)][-1]
        server.close("enough")
        until(lambda: not client.is_connected)
        until(lambda: frames and frames[-1] == last, "the last frame", 2.0)
        assert any("enough" in record.message for record in caplog.records)


@pytest.mark.parametrize(
    "options", [{"bulk_port": None}, {"keys": "new"}], ids=["no port", "keys"],
)  # fmt: skip
def test_without_such_a_port_all_goes_one_way(options: dict[str, Any]) -> None:
    keys = {}
    if "keys" in options:
        pair = sn.KeyPair.generate()
        options, keys = {"keys": pair}, {"server_key": pair.public}
    with serving(lockstep=True, world={"columns": COLUMNS}, **options) as server:
        with sn.connect(server.address, shared_memory=False, **keys) as client:
            frames: list[int] = []
            client.sensors["sheet"].listen(lambda data: frames.append(data.frame), policy="lossless")
            last = [client.step() for _ in range(5)][-1]
            until(lambda: frames and frames[-1] == last)
            assert server.counts.bulk_lines == 0


@contextlib.contextmanager
def forwarded(port: int) -> Iterator[int]:
    """Yield a port whose connections go on to another one of this machine, as through a tunnel."""
    ends: list[socket.socket] = []

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                distant = socket.create_connection(("127.0.0.1", port))
                ends.extend((near, distant))
                for pair in ((near, distant), (distant, near)):
                    threads.append(threading.Thread(target=pump, args=pair))
                    threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        try:
            yield listener.getsockname()[1]
        finally:
            for end in (listener, *ends):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(PATIENCE)
            for end in ends:
                end.close()


def test_through_a_tunnel_of_one_port_all_goes_one_way() -> None:
    with serving(lockstep=True, world={"columns": COLUMNS}) as server:
        with forwarded(int(server.address.rpartition(":")[2])) as port:
            with sn.connect(f"tcp://127.0.0.1:{port}", shared_memory=False) as client:
                frames: list[int] = []
                client.sensors["sheet"].listen(lambda data: frames.append(data.frame), policy="lossless")
                last = [client.step() for _ in range(5)][-1]
                until(lambda: frames and frames[-1] == last)
                assert server.counts.bulk_lines == 0


def test_strangers_at_the_port_are_sent_away_and_disturb_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "KEY_S", 0.3)
    with serving(lockstep=True, world={"columns": COLUMNS}) as server, far(server) as client:
        door = server._sockets._bulk
        assert door is not None
        ((_, port),) = door.ports
        before = held()["fds"]
        frames: list[int] = []
        client.sensors["sheet"].listen(lambda data: frames.append(data.frame), policy="lossless")
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * bulk.MOST_STRANGERS)]
        for length in (1, 31, 32, 33, 10_000):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.settimeout(PATIENCE)
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(secrets.token_bytes(length))
                if length >= 32:
                    with contextlib.suppress(ConnectionError):
                        assert stranger.recv(1) == b""
            last = client.step()
        for each in silent:
            each.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b"", "who is silent is sent away"
            each.close()
        until(lambda: frames and frames[-1] == last)
        until(lambda: held()["fds"] <= before + 2)
        assert server.counts.bulk_lines == 1


def test_a_key_is_good_for_one_connection_and_for_as_long_as_its_session() -> None:
    keys: list[bytes] = []

    class Noting(link.BulkLine):
        def __init__(self, host: str, port: int, key: bytes) -> None:
            keys.append(key)
            super().__init__(host, port, key)

    def is_dismissed(port: int, key: bytes) -> bool:
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.settimeout(PATIENCE)
            stranger.sendall(key)
            try:
                return stranger.recv(1) == b""
            except ConnectionError:
                return True

    with pytest.MonkeyPatch.context() as patched, serving(lockstep=True) as server:
        patched.setattr(link, "BulkLine", Noting)
        door = server._sockets._bulk
        assert door is not None
        ((_, port),) = door.ports
        with far(server):
            assert is_dismissed(port, keys[-1]) and server.counts.bulk_lines == 1
        until(lambda: server.clients == 0)
        assert is_dismissed(port, keys[-1])
        assert len(keys[-1]) == bulk.KEY_BYTES


# A server that does odd things ----------------------------------------------------------------------------------------


class Odd:
    """A server that greets, offers a port, and does with each client who comes there what it is told to."""

    def __init__(self, real: sn.Server, meet: Callable[[socket.socket], None]) -> None:
        self.meet = meet
        self.greeted: list[bytes] = []
        self.met = 0
        self.subscription = 0
        self._catalogue = real._doorkeeper._catalogue()
        self._stop = threading.Event()
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(0.01)
        self.offered = self.listener.getsockname()[1]
        self.announce = Record(BULK, 1, 0, pack_length(bulk.BULK_FROM))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _say(self, route: bytes, *records: Record) -> None:
        self.router.send_multipart([route, *pack(records)])

    def _run(self) -> None:
        route = b""
        connections = []
        while not self._stop.is_set():
            if self.router.poll(5):
                route, *parts = self.router.recv_multipart()
                for record in unpack([memoryview(part) for part in parts]):
                    if record.kind != CONTROL:
                        continue
                    match say.decode_at_server(record.content):
                        case say.Hello() if route not in self.greeted:
                            self.greeted.append(route)
                            welcome = say.Welcome("0", b"server", 1, 5.0, "", b"", False)
                            for each in (welcome, self._catalogue):
                                self._say(route, Record(CONTROL, 0, 0, say.encode(each)))
                            invitation = say.Bulk(((self.port, self.offered),), b"k" * 32)
                            self._say(route, Record(CONTROL, 0, 0, say.encode(invitation)))
                        case say.Ping():
                            self._say(route, Record(CONTROL, 0, 0, say.encode(say.Pong(b"server", 1))))
                        case _:
                            pass
            with contextlib.suppress(TimeoutError):
                connection, _ = self.listener.accept()
                connections.append(connection)
                connection.settimeout(PATIENCE)
                assert connection.recv(64) == b"k" * 32
                self.met += 1
                self._say(route, self.announce)
                self.meet(connection)
        for each in connections:
            each.close()

    def __enter__(self) -> Odd:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        self.router.close()
        self.listener.close()
        self.context.term()


@contextlib.contextmanager
def odd(meet: Callable[[socket.socket], None]) -> Iterator[tuple[Odd, sn.Client]]:
    with serving(lockstep=True) as real, Odd(real, meet) as server:
        with sn.connect(f"tcp://127.0.0.1:{server.port}", timeout=PATIENCE) as client:
            yield server, client


def test_a_connection_that_breaks_in_a_message_is_made_anew_and_after_the_second_time_not_any_more() -> None:
    def half(connection: socket.socket) -> None:
        connection.sendall(bytes(1000))
        connection.close()

    with odd(half) as (server, client):
        until(lambda: len(server.greeted) == 3, "two new sessions")
        until(lambda: client.is_connected)
        until(lambda: server.met == 2)
        assert len(server.greeted) == 3 and client.is_connected


def test_a_connection_on_which_nothing_comes_is_given_up_while_the_server_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "STALL_S", 0.5)
    with odd(lambda connection: connection.sendall(bytes(1000))) as (server, client):
        begin = time.monotonic()
        until(lambda: len(server.greeted) == 2, "a new session")
        assert time.monotonic() - begin < 3.0
        until(lambda: client.is_connected)
        assert server.met == 1


def test_a_length_beyond_what_the_client_takes_ends_the_connection_with_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "sensorium.client")
    with serving(lockstep=True) as real, Odd(real, lambda connection: None) as server:
        server.announce = Record(BULK, 1, 0, pack_length(2**62))
        with sn.connect(f"tcp://127.0.0.1:{server.port}", timeout=PATIENCE) as client:
            with pytest.raises(StreamError, match="not agreed upon"):
                client.step()


def test_an_offer_that_leads_nowhere_changes_nothing() -> None:
    with serving(lockstep=True) as real, Odd(real, lambda connection: None) as server:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            server.offered = closed.getsockname()[1]
        with sn.connect(f"tcp://127.0.0.1:{server.port}", timeout=PATIENCE) as client:
            threading.Event().wait(0.5)
            assert client.is_connected and len(server.greeted) == 1 and server.met == 0


# What the user gives --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [-1, 65536, 1.5, "7448", True])
def test_a_port_that_is_none_is_refused(port: Any) -> None:
    with pytest.raises(ConfigError, match="bulk_port"), serving(bulk_port=port):
        pass


def test_a_port_beside_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bulk_port.*encrypted"), serving(bulk_port=7448, keys=sn.KeyPair.generate()):
        pass


def test_a_port_that_is_taken_is_named_with_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StreamError, match=rf"port {port}.*bulk_port"), serving(bulk_port=port):
            pass
