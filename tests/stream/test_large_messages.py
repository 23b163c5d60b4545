"""Large messages to clients without access to the server's memory arrive over TCP, among small messages."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streaming import PATIENCE, build, connect, held, running, serving, until

import sensorium as sn
from sensorium.client.subscription import WINDOW_LARGE
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition

COLUMNS = 2**17
"""Float32 columns of a reading of an env: 512 kB."""


@contextlib.contextmanager
def far(server: sn.Server, **options: Any) -> Iterator[sn.Client]:
    """Yield a client without shared memory, as on another machine."""
    with connect(server.address, shared_memory=False, **options) as client:
        yield client


class Mixed(sn.StreamedSensor):
    """Sends messages of varying lengths in each frame; each message starts with its number."""

    lengths = (1, 100_000, 3, 40_000, 200_000, 2, 2, 90_000)
    sent = 0

    @classmethod
    def definition(cls) -> SensorDefinition:
        x = Attribute("x", {"type": "integer", "default": 1})
        return make_generic_sensor_definition("other", "test_mixed", (x,))

    class serializer(sn.Serializer):
        type_name = "sensorium.tests.Mixed/1"

        @staticmethod
        def serialize(sensor: Any, data: Any) -> Any:
            return data

        @staticmethod
        def deserialize(raw: sn.client.RawData) -> Any:
            return Numbers(raw)

    def set(self, description: ActorDescription) -> None:
        super().set(description)
        self.sent = 0

    def tick(self, snapshot: Any) -> None:
        for length in self.lengths:
            numbers = np.full(length, self.sent, np.int64)
            self.sent += 1
            self.stream.send(numbers)


class Numbers(sn.client.ArrayData):
    dtype = np.dtype("<i8")


def test_large_frames_arrive_whole_and_in_order_with_small_ones_and_frame_ends() -> None:
    with serving(lockstep=True, world={"columns": COLUMNS}) as server, far(server) as client:
        frames: list[int] = []
        sheets: list[np.ndarray[Any, Any]] = []

        def take(data: Any) -> None:
            frames.append(data.frame)
            sheets.append(np.array(data.cells))

        client.sensors["sheet"].listen(take, policy="lossless")
        with sn.client.FrameSync(client, ["sheet", "gauge"]) as sync:
            for _ in range(16):
                frame = client.step()
                bundle = sync.get(frame, timeout=PATIENCE)
                x = bundle["gauge"].vec[..., 0]
                assert bundle["sheet"].frame == bundle["gauge"].frame == frame
                np.testing.assert_array_equal(bundle["sheet"].cells[..., 0], x)
                np.testing.assert_array_equal(bundle["sheet"].cells[..., -1], x + COLUMNS - 1)
        until(lambda: frames and frames[-1] == frame)
        assert len(frames) >= 16 and frames == list(range(frames[0], frame + 1))
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
        for _ in range(5):
            client.step()
        wanted = 5 * len(Mixed.lengths)
        until(lambda: len(seen) >= wanted)
        first = seen[0][0]
        assert [number for number, _ in seen] == list(range(first, first + len(seen)))
        assert all(length == Mixed.lengths[number % len(Mixed.lengths)] for number, length in seen)


def test_tcp_data_are_read_only_and_live_as_long_as_their_views() -> None:
    with serving(lockstep=True, world={"columns": COLUMNS}) as server, far(server) as client:
        got: list[Any] = []
        client.sensors["sheet"].listen(got.append, policy="lossless")
        client.step()
        until(lambda: got)
        view = got.pop().cells[0]
        before = view.copy()
        for _ in range(20):
            client.step()
            until(lambda: got)
            got.clear()
        np.testing.assert_array_equal(view, before)
        assert not view.flags.writeable


def test_memory_is_reused_and_does_not_grow() -> None:
    with serving(lockstep=True, world={"columns": COLUMNS}) as server, far(server) as client:
        count = nbytes = 0

        def take(data: Any) -> None:
            nonlocal count, nbytes
            count, nbytes = count + 1, sum(array.nbytes for array in data.measured.values())

        client.sensors["sheet"].listen(take, policy="lossless")
        for k in range(60):
            client.step()
            until(lambda k=k: count > k)
            if k == 20:
                before = held()["rss"]
        # Up to WINDOW_LARGE messages are in transit, each in server and client. A leak would be 40 messages.
        assert held()["rss"] - before <= 2 * WINDOW_LARGE * nbytes


def test_slow_client_does_not_block_others() -> None:
    with serving(step=True, world={"columns": 4 * COLUMNS}, shared_memory=False) as server:
        with far(server) as slow, connect(server.address) as quick:
            gate = threading.Event()
            seen: list[int] = []
            slow.sensors["sheet"].listen(lambda data: gate.wait(PATIENCE))
            quick.sensors["sheet"].listen(lambda data: seen.append(data.frame))
            until(lambda: len(seen) > 20)
            gate.set()


def test_descriptors_and_threads_end_with_client_and_server() -> None:
    gc.collect()
    before, others = held(), set(threading.enumerate())
    with sn.serve(build(columns=COLUMNS), "tcp://127.0.0.1:0", lockstep=True) as server:
        for _ in range(3):
            with running(server), far(server) as client:
                client.sensors["sheet"].listen(lambda data: None, policy="lossless")
                client.step()
            until(lambda: server.clients == 0)
        with far(server) as client:
            with running(server):
                client.sensors["sheet"].listen(lambda data: None, policy="lossless")
                client.step()
            server.close("enough")
            until(lambda: not client.is_connected)
    until(lambda: held()["fds"] <= before["fds"])
    until(lambda: not [each for each in set(threading.enumerate()) - others if each.name.startswith("sensorium-")])


def test_last_data_and_reason_arrive_before_the_server_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sensorium.client")
    scene = build(columns=4 * COLUMNS)
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server, far(server) as client:
        frames: list[int] = []
        with running(server):
            client.sensors["sheet"].listen(lambda data: frames.append(data.frame), policy="lossless")
            last = [client.step() for _ in range(3)][-1]
        server.close("enough")
        until(lambda: not client.is_connected)
        until(lambda: frames and frames[-1] == last, "the last frame")
        assert any("enough" in record.message for record in caplog.records)
