"""Streams between two processes of one host, against its memory, plain sockets and raw ZeroMQ in the same run.

Each figure is measured between two separate processes, which do not import torch or warp. They are
children that run `python -m benchmarks.stream ROLE ADDRESS`: a line on their standard input starts a round, a line on
their standard output is its figures. All pairs stay up, and their rounds take turns.
"""

from __future__ import annotations

import json
import os
import platform
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from types import FrameType
from typing import Any, Self

import numpy as np
import zmq

from benchmarks.timing import repeats_of

Row = tuple[str, str, str]
Role = Iterator[dict[str, Any]]
"""Yield the `address` for the other side first, then the figures of each round."""

FRAME = 6_220_800
"""Bytes of an RGB image of 1920 x 1080."""
SMALL = 64
ROUNDS = 7
COLD = 48
"""Buffers of FRAME bytes used in turn: 300 MB, so that none of them is still in a cache."""
FRAMES, SMALLS, PACED = 10 * repeats_of(30), 100 * repeats_of(3000), 6 * repeats_of(10)
PER_TICK = 30
"""Frames that the sensor sends per tick, so that transport dominates and not the simulation."""
SLOTS = 4
"""Buffers a stream of frames writes to in turn."""
LENGTH = struct.Struct("<I")
PATIENCE = 60_000
"""Milliseconds after which a silent socket is an error, so that no child can outlive its other side."""


def copying(_: str = "") -> Role:
    """Copy frames within one thread: between two buffers in the cache, as a stream does, and from or to cold memory."""
    warm = [np.full(FRAME, k, np.uint8) for k in range(2)]
    cold = [np.full(FRAME, k, np.uint8) for k in range(COLD)]
    yield {}
    while True:
        figures = {}
        for name, sources, targets in (
            ("warm", warm[:1], warm[1:]),
            ("in turns", warm, cold[:SLOTS]),
            ("cold", cold[: COLD // 2], cold[COLD // 2 :]),
            ("warm to cold", warm[:1], cold),
        ):
            start = time.perf_counter()
            for k in range(COLD):
                np.copyto(targets[k % len(targets)], sources[k % len(sources)])
            figures[name] = FRAME * COLD / (time.perf_counter() - start)
        yield figures


def pulling(_: str = "") -> Role:
    """Receive small messages one by one with PULL, all settings being the default."""
    with zmq.Context() as context, context.socket(zmq.PULL) as receiver:
        port = receiver.bind_to_random_port("tcp://127.0.0.1")
        receiver.rcvtimeo = PATIENCE
        yield {"address": f"tcp://127.0.0.1:{port}"}
        while True:
            receiver.recv()
            start = time.perf_counter()
            for _ in range(SMALLS):
                receiver.recv()
            yield {"rate": SMALLS / (time.perf_counter() - start)}


def pushing(address: str) -> Role:
    """Send small messages one by one with PUSH."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as sender:
        sender.sndtimeo = sender.linger = PATIENCE
        sender.connect(address)
        payload = bytes(SMALL)
        yield {}
        while True:
            for _ in range(SMALLS + 1):
                sender.send(payload)
            yield {}


def socket_receiving(_: str = "") -> Role:
    """Receive frames from a plain TCP socket into buffers used in turn: a length, then the frame."""
    pool = [bytearray(FRAME) for _ in range(4)]
    length = bytearray(LENGTH.size)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE / 1e3)
        yield {"address": f"127.0.0.1:{server.getsockname()[1]}"}
        connection, _peer = server.accept()
    with connection:
        connection.settimeout(None)
        while True:
            for k in range(FRAMES + 1):
                _receive_into(connection, memoryview(length))
                (size,) = LENGTH.unpack(length)
                _receive_into(connection, memoryview(pool[k % len(pool)])[:size])
                if k == 0:
                    start = time.perf_counter()
            yield {"rate": FRAME * FRAMES / (time.perf_counter() - start)}


def _receive_into(connection: socket.socket, view: memoryview) -> None:
    while len(view):
        count = connection.recv_into(view)
        if not count:
            raise EOFError("the other side is gone")
        view = view[count:]


def socket_sending(address: str) -> Role:
    """Send frames over a plain TCP socket, length and frame gathered."""
    host, port = address.split(":")
    frame = memoryview(np.arange(FRAME, dtype=np.uint8).data)
    length = LENGTH.pack(FRAME)
    with socket.create_connection((host, int(port)), PATIENCE / 1e3) as connection:
        connection.settimeout(None)
        yield {}
        while True:
            for _ in range(FRAMES + 1):
                sent = connection.sendmsg([length, frame])
                head = LENGTH.size
                if sent < head:
                    connection.sendall(length[sent:])
                    sent = head
                connection.sendall(frame[sent - head :])
            yield {}


# Our side: a client in the place of the receiver, a server with one streamed sensor in that of the sender ------------


class Asked:
    """Data that a sensor of the benchmark sends in the next tick."""

    content: Any = b""
    times = 0


def serving(shared_memory: bool, content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the scene and the server of a sensor that sends `content`, `Asked.times` times in a tick."""
    import sensorium as sn

    class Content(sn.Serializer):
        type_name = "benchmarks.Content/1"

        @staticmethod
        def serialize(sensor: Any, data: Any) -> Any:
            return data

        @staticmethod
        def deserialize(raw: sn.client.RawData) -> sn.client.ArrayData:
            return sn.client.ArrayData(raw)

    class Sending(sn.StreamedSensor):
        serializer = Content

        @classmethod
        def definition(cls) -> sn.SensorDefinition:
            return sn.make_generic_sensor_definition("benchmark", "content")

        def tick(self, snapshot: Any) -> None:
            send = self.stream.send
            for _ in range(Asked.times):
                send(content)

    scene = sn.Scene(sn.TensorEngine(1, 0.01, bodies=["body"]))
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True, shared_memory=shared_memory, patience=60.0) as server:
        server.spawn("sensor.benchmark.content", name="content")
        yield scene, server


def _our_sending(shared_memory: bool, content: Any, times: int, per_tick: int = 1, period: float = 0.0) -> Role:
    for scene, server in serving(shared_memory, content):
        yield {"address": server.address}
        while True:
            Asked.times = 0
            while not server.counts.subscriptions:
                server.poll(0.1)
            Asked.times = per_tick
            due = time.perf_counter()
            for _ in range(times // per_tick + 1):
                scene.update()
                server.poll()
                due += period
                if period:
                    time.sleep(max(0.0, due - time.perf_counter()))
            Asked.times = 0
            while server.counts.subscriptions:
                server.poll(0.1)
            yield {}


def our_frames(_: str = "") -> Role:
    """Send frames from a sensor; local readers read them in shared memory."""
    return _our_sending(True, np.arange(FRAME, dtype=np.uint8), FRAMES, PER_TICK)


def our_paced(_: str = "") -> Role:
    """The same, 60 times per second."""
    return _our_sending(True, np.arange(FRAME, dtype=np.uint8), PACED, period=1.0 / 60.0)


def our_frames_tcp(_: str = "") -> Role:
    """The same over TCP."""
    return _our_sending(False, bytes(range(256)) * (FRAME // 256), FRAMES, PER_TICK)


def our_smalls(_: str = "") -> Role:
    """Send small messages one by one from a sensor, many in each tick."""
    return _our_sending(True, bytes(SMALL), SMALLS, 4000)


def _our_listening(address: str, wanted: int) -> Role:
    from sensorium import Serializer, connect
    from sensorium.client import ArrayData, RawData

    class Content(Serializer):
        type_name = "benchmarks.Content/1"

        @staticmethod
        def serialize(sensor: Any, data: Any) -> Any:
            raise NotImplementedError

        @staticmethod
        def deserialize(raw: RawData) -> ArrayData:
            return ArrayData(raw)

    with connect(address, timeout=60.0) as client:
        sensor = client.wait_for("content", PATIENCE / 1e3)
        yield {}
        while True:
            yield _listened(sensor, wanted)


def _listened(sensor: Any, wanted: int) -> dict[str, float]:
    """Listen to a number of messages after the first, and return how fast they came and how late."""
    enough = threading.Event()
    seen, begin, end = 0, 0.0, 0.0
    delays: list[float] = []
    is_large = wanted != SMALLS

    def take(data: Any) -> None:
        nonlocal seen, begin, end
        if not seen:
            begin = time.perf_counter()
        elif is_large:
            delays.append(data.latency())
        seen += 1
        if seen > wanted:
            end = time.perf_counter()
            enough.set()

    sensor.listen(take, policy="lossless", queue=2 if is_large else None)
    if not enough.wait(PATIENCE / 1e3):
        raise RuntimeError(f"only {seen} of {wanted} messages came")
    sensor.stop()
    figures = {"rate": wanted * (FRAME if is_large else 1) / (end - begin)}
    return figures | ({"latency": median(delays)} if delays else {})


def frames_listening(address: str) -> Role:
    """Listen to frames, looking at them where they were received."""
    return _our_listening(address, FRAMES)


def paced_listening(address: str) -> Role:
    """Listen to frames that come 60 times per second."""
    return _our_listening(address, PACED)


def smalls_listening(address: str) -> Role:
    """Listen to small messages."""
    return _our_listening(address, SMALLS)


ROLES: dict[str, Callable[[str], Role]] = {
    "copying": copying,
    "pulling": pulling,
    "pushing": pushing,
    "socket_receiving": socket_receiving,
    "socket_sending": socket_sending,
    "our_frames": our_frames,
    "our_frames_tcp": our_frames_tcp,
    "our_smalls": our_smalls,
    "our_paced": our_paced,
    "frames_listening": frames_listening,
    "paced_listening": paced_listening,
    "smalls_listening": smalls_listening,
}


class Peer:
    """A child process in a role: runs rounds on request and returns their figures. Closing its input ends it."""

    def __init__(self, role: str, address: str = "") -> None:
        command = [sys.executable, "-m", "benchmarks.stream", role, address]
        self.role = role
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address: str = self.figures().get("address", "")

    def start(self) -> None:
        """Begin a round."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def figures(self) -> dict[str, Any]:
        """Return the figures of the round after its end."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.role} ended with {self.process.wait()}")
        figures: dict[str, Any] = json.loads(line)
        return figures

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Pair:
    """A receiver that gives the address and takes the times, and a sender that connects to it; or one process alone."""

    def __init__(self, receiver: str, sender: str | None = None) -> None:
        self.peers = [Peer(receiver)]
        if sender is not None:
            try:
                self.peers.append(Peer(sender, self.peers[0].address))
            except BaseException:
                self.close()
                raise

    def round(self) -> dict[str, Any]:
        """Run one round and return the figures of both."""
        for peer in self.peers:
            peer.start()
        figures = [peer.figures() for peer in self.peers]
        return {name: value for figure in figures for name, value in figure.items()}

    def close(self) -> None:
        """End both processes."""
        for peer in reversed(self.peers):
            peer.__exit__()


BASELINES = {
    "copy": ("copying", None),
    "PUSH/PULL": ("pulling", "pushing"),
    "socket": ("socket_receiving", "socket_sending"),
}
OURS: dict[str, tuple[str, str | None]] = {
    "our copy": ("our_frames", "frames_listening"),
    "our paced": ("our_paced", "paced_listening"),
    "our PUSH/PULL": ("our_smalls", "smalls_listening"),
    "our socket": ("our_frames_tcp", "frames_listening"),
}
"""Our side of each: a server with a sensor, and a client that listens to it."""


def measure(pairs: dict[str, tuple[str, str | None]], rounds: int = ROUNDS) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of all rounds of each pair; rounds take turns, and a first one of each is thrown away."""
    running: dict[str, Pair] = {}
    figures: dict[str, list[dict[str, Any]]] = {name: [] for name in pairs}
    try:
        for name, (receiver, sender) in pairs.items():
            running[name] = Pair(receiver, sender)
        for k in range(repeats_of(rounds) + 1):
            for name, pair in running.items():
                figure = pair.round()
                if k:
                    figures[name].append(figure)
    finally:
        for pair in running.values():
            pair.close()
    return figures


def _rate(figures: list[dict[str, Any]], key: str = "rate") -> tuple[float, float]:
    """Return the median and the fastest of a rate."""
    values = [figure[key] for figure in figures]
    return median(values), max(values)


COURT = """<mujoco><option timestep="0.1"/><worldbody>
  <body name="robot/base" pos="0 0 1"><freejoint/><geom size="0.1"/></body>
  <geom type="box" pos="5 0 1" size="1 3 3"/>
</worldbody></mujoco>"""


def calls_per_frame(frames: int = 20) -> dict[str, float]:
    """Return the number of Python calls in sensorium for one lidar frame over TCP, by thread.

    They are those of all threads, from `scene.step` of one tick to the callback of a lossless listener in this process.
    """
    import sensorium as sn

    counts: Counter[str] = Counter()
    is_counting = False

    def count(frame: FrameType, event: str, _: object) -> None:
        if is_counting and event == "call" and frame.f_globals.get("__name__", "").startswith("sensorium"):
            counts[threading.current_thread().name] += 1

    got: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.setprofile(count)  # for threads started from here on
    try:
        scene = sn.Scene(sn.MujocoEngine(COURT), [sn.preset("vlp16", name="lidar", body="robot/base")])
        with (
            sn.serve(scene, "tcp://127.0.0.1:0", shared_memory=False) as server,
            sn.connect(server.address, shared_memory=False) as client,
        ):
            client.sensors["lidar"].listen(lambda data: got.put(data.frame), policy="lossless")
            while not server.counts.subscriptions:
                server.poll(0.01)
            for _ in range(5):
                scene.step()
                server.poll()
            while got.get(timeout=30.0) < server.frame:
                pass
            sys.setprofile(count)
            is_counting = True
            for _ in range(frames):
                scene.step()
                got.get(timeout=30.0)
            is_counting = False
            sys.setprofile(None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {name: calls / frames for name, calls in counts.items()}


def run() -> list[Row]:
    """Between two processes: frames over shared memory and TCP, and small messages, against plain transport."""
    figures = measure(BASELINES | OURS)
    calls = calls_per_frame()
    rows = [
        (
            "Python calls per lidar frame over TCP, from scene.step to the callback",
            f"{sum(calls.values()):.0f}",
            ", ".join(f"{name} {number:.0f}" for name, number in calls.items()),
        )
    ]
    for what in ("warm", "in turns", "warm to cold", "cold"):
        typical, best = _rate(figures["copy"], what)
        rows.append(
            (f"memory copy of 6.2 MB, one thread, {what}", f"{typical / 1e9:.1f} GB/s", f"{best / 1e9:.1f} best")
        )
    typical, best = _rate(figures["PUSH/PULL"])
    rows.append(("64 B over raw PUSH/PULL", f"{typical / 1e3:.0f} k/s", f"{best / 1e3:.0f} best"))
    typical, best = _rate(figures["socket"])
    rows.append(("6.2 MB over a plain TCP socket", f"{typical / 1e9:.2f} GB/s", f"{best / 1e9:.2f} best"))
    for ours, baseline, what, key, unit, scale in (
        ("our copy", "copy", "6.2 MB frames to a listener, shared memory", "in turns", "GB/s", 1e9),
        ("our copy", "copy", "  the same against the copy that stays in the cache", "warm", "GB/s", 1e9),
        ("our PUSH/PULL", "PUSH/PULL", "64 B messages to a listener", "rate", "k/s", 1e3),
        ("our socket", "socket", "6.2 MB frames to a listener, TCP", "rate", "GB/s", 1e9),
    ):
        ratios = [mine["rate"] / theirs[key] for mine, theirs in zip(figures[ours], figures[baseline], strict=True)]
        typical, best = _rate(figures[ours])
        rows.append(
            (what, f"{typical / scale:.2f} {unit}", f"{median(ratios):.2f} x baseline, {best / scale:.2f} best")
        )
    for name, what in (("our paced", "60 times per second"), ("our copy", "as fast as it goes")):
        latency = median(figure["latency"] for figure in figures[name])
        rows.append(
            (f"6.2 MB, from before it is written until the listener has it, {what}", f"{latency * 1e3:.2f} ms", "")
        )
    return rows


def _child(role: str, address: str) -> None:
    """Run rounds of a role on requests from standard input."""
    rounds = ROLES[role](address)
    print(json.dumps(next(rounds)), flush=True)
    for _ in sys.stdin:
        print(json.dumps(next(rounds)), flush=True)
    rounds.close()  # type: ignore[attr-defined]


if __name__ == "__main__":
    if sys.argv[1:]:
        _child(*sys.argv[1:])
    else:
        print(f"{platform.machine()}, {os.cpu_count()} cores")
        for row in run():
            print("  ".join(row))
