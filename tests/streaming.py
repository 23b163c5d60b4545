"""A world to stream, and servers and clients in separate processes, for tests of streams."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import zmq
from nursery import PATIENCE, Asked, Child, Nursery, Program, until
from torch import Tensor

import sensorium as sn
from sensorium import Field, SimpleSensor, SimpleSensorCfg
from sensorium.client.client_sensor import ClientSensor
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.stream import blueprints, streamed
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire import messages as msg
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition
from sensorium.wire.data import ArrayData, RawData
from sensorium.wire.packing import CONTROL, Record, pack, unpack
from sensorium.wire.serializers import Serializer
from sensorium.wire.world import Snapshot

DT = 1.0 / 64.0
"""Physics time step of the world, s."""


# The world ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GaugeData:
    vec: Annotated[Tensor, Field("m", (3,), frame="world", role="point")]
    count: Annotated[Tensor, Field("1", dtype="int32", kind="id")]


class GaugeCfg(SimpleSensorCfg[GaugeData]):
    """A small reading: position of the body, noise as configured, and the tick."""

    prefixed_knobs: ClassVar[Mapping[str, tuple[str, str]]] = {"vec": ("vec", "m")}


class Gauge(SimpleSensor[GaugeCfg, GaugeData]):
    requires = (sn.engines.BODY_POSE,)

    def update_raw_data(self, raw: Any) -> None:
        pos = self.engine.array("body_pos_w")[:, 0]
        raw.vec.copy_(pos)
        raw.count.copy_(pos[:, 0].int())


@dataclass(frozen=True, slots=True)
class SheetData:
    cells: Annotated[Tensor, Field("m", (1,))]


class SheetCfg(SimpleSensorCfg[SheetData]):
    """A large reading, whose cells are the position of the body along x plus their column index."""

    columns: int = 32768
    """Number of cells."""


class Sheet(SimpleSensor[SheetCfg, SheetData]):
    requires = (sn.engines.BODY_POSE,)
    computed = 0
    """Number of computations by all instances."""

    def fields(self) -> Mapping[str, Field]:
        return {"cells": Field("m", (self.cfg.columns,))}

    def update_raw_data(self, raw: Any) -> None:
        import torch

        type(self).computed += 1
        cells = torch.arange(self.cfg.columns, dtype=torch.float32)
        raw.cells.copy_(cells + self.engine.array("body_pos_w")[:, 0, :1])


class TickerData(ArrayData):
    dtype = np.dtype("<i8")


class TickerDataSerializer(Serializer):
    type_name = "sensorium.tests.TickerData/1"

    @staticmethod
    def serialize(sensor: Any, /, *args: Any, **kwargs: Any) -> Any:
        return args[0]

    @staticmethod
    def deserialize(raw: RawData, /) -> TickerData:
        return TickerData(raw)


class Ticker(StreamedSensor):
    """Sends `burst` events in every frame: each holds the frame's number and its own index, `size` numbers in total."""

    serializer = TickerDataSerializer
    events: ClassVar[bool] = True

    @classmethod
    def definition(cls) -> SensorDefinition:
        burst = Attribute("burst", {"type": "integer", "default": 1})
        size = Attribute("size", {"type": "integer", "default": 2})
        return make_generic_sensor_definition("other", "test_ticker", (burst, size))

    def set(self, description: ActorDescription) -> None:
        super().set(description)
        self.burst, self.size = description.get_int("burst", 1), description.get_int("size", 2)

    def tick(self, snapshot: Snapshot) -> None:
        for k in range(self.burst):
            numbers = np.zeros(self.size, np.int64)
            numbers[:2] = snapshot.frame, k
            self.stream.send(numbers)


class Pedometer(ClientSensor):
    """A client-side sensor that reports the frames it saw."""

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_pedometer")

    def on_tick(self, snapshot: Snapshot) -> int:
        return snapshot.frame


def build(num_envs: int = 4, columns: int = 32768, gauges: int = 1, noise: float = 0.0) -> sn.Scene:
    """Return a scene with one moving body: x is the tick plus 1024 times the env, y and z are fractions of it."""
    base = 1024.0 * np.arange(num_envs)

    def motion(t: float) -> dict[str, Any]:
        x = base + round(t / DT)
        return {"body_pos_w": np.stack([x, 0.25 * x + 1.0, -0.5 * x], -1)[:, None].astype(np.float32)}

    engine = sn.TensorEngine(num_envs, DT, motion=motion)
    names = ["gauge", *(f"gauge_{i}" for i in range(2, gauges + 1))]
    cfgs: list[Any] = [GaugeCfg(name=name, vec_noise=noise or None) for name in names]
    if columns:
        cfgs.append(SheetCfg(name="sheet", columns=columns))
    return sn.Scene(engine, cfgs, seed=7)


# Helpers in the test's process ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(server: sn.Server, *, step: bool = False, hz: float = 200.0) -> Iterator[threading.Thread]:
    """Run a thread that owns the loop of a server: it polls, or with `step` takes `hz` steps per second."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def loop() -> None:
        try:
            if step:
                return server.run(speed=hz * server.scene.engine.dt, until=stop.is_set)
            while not stop.is_set():
                server.poll(0.005)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=loop, name="loop")
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def connect(address: str, **options: Any) -> sn.Client:
    """Connect a client that waits long for the server, which may share its core with other work."""
    return sn.connect(address, **{"timeout": PATIENCE, **options})


@contextlib.contextmanager
def serving(
    address: str = "tcp://127.0.0.1:0", *, step: bool = False, world: Mapping[str, Any] | None = None, **options: Any
) -> Iterator[sn.Server]:
    """Serve a world in this process, with the loop in a separate thread."""
    with sn.serve(build(**(world or {})), address, **options) as server, running(server, step=step):
        yield server


class Peer:
    """A client that sends single messages, whatever they contain.

    Args:
        address: address of a server.
        name: name with which it greets; empty if it does not greet.
        **hello: other fields of the greeting.
    """

    def __init__(self, address: str, name: str = "peer", **hello: Any) -> None:
        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.connect(address)
        self._arrived: deque[Any] = deque()
        if name:
            greeting = {"protocol": msg.PROTOCOL, "version": "", "token": "", "host": "", "pid": 0, "resume": b""}
            self.send(msg.Hello(name=name, **greeting | hello))  # type: ignore[arg-type]

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    def send(self, *messages: msg.Message) -> None:
        """Send control messages."""
        self.send_records(*(Record(CONTROL, 0, 0, msg.encode(each)) for each in messages))

    def send_records(self, *records: Record) -> None:
        self._dealer.send_multipart(pack(records))

    def answer(self, kind: type[Any] = msg.Message) -> Any:
        """Return the next control message of a kind; earlier ones are dropped."""
        while True:
            while not self._arrived:
                assert self._dealer.poll(round(1e3 * PATIENCE)), f"no {kind.__name__}"
                records = unpack([memoryview(part) for part in self._dealer.recv_multipart()])
                self._arrived += [msg.decode(msg.TO_CLIENT, each.content) for each in records if each.kind == CONTROL]
            if isinstance(message := self._arrived.popleft(), kind):
                return message


class Relay:
    """Carries the messages between one client and a server, and notes them.

    Args:
        address: address of the server.
        may_answer: function that returns whether the next message of the server may pass; None for always.
    """

    def __init__(self, address: str, may_answer: Callable[[Relay], bool] | None = None) -> None:
        self._context = zmq.Context()
        self._front, self._back = self._context.socket(zmq.ROUTER), self._context.socket(zmq.DEALER)
        self.address = f"tcp://127.0.0.1:{self._front.bind_to_random_port('tcp://127.0.0.1')}"
        self._back.connect(address)
        self._may_answer = may_answer or (lambda relay: True)
        self.asked: list[msg.ToServer] = []
        """Control messages of the client."""
        self.received: list[msg.ToClient] = []
        """Control messages of the server."""
        self.answered: list[msg.ToClient] = []
        """Those that the client was sent."""
        self.held: deque[list[bytes]] = deque()
        """Messages of the server that wait."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)
        self._context.destroy(linger=0)

    def _run(self) -> None:
        route = b""
        while not self._ended.is_set():
            if self._front.poll(1):
                route, *parts = self._front.recv_multipart()
                self.asked += self._control(parts, msg.TO_SERVER)
                self._back.send_multipart(parts)
            while self._back.poll(0):
                self.held.append(self._back.recv_multipart())
                self.received += self._control(self.held[-1], msg.TO_CLIENT)
            while self.held and self._may_answer(self):
                parts = self.held.popleft()
                self.answered += self._control(parts, msg.TO_CLIENT)
                self._front.send_multipart([route, *parts])

    @staticmethod
    def _control(parts: list[bytes], decoder: Any) -> list[Any]:
        records = unpack([memoryview(part) for part in parts])
        return [msg.decode(decoder, each.content) for each in records if each.kind == CONTROL]


def digest(array: Any) -> str:
    """Return a hash of the bits of an array as text."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


def held(pid: int | None = None) -> dict[str, int]:
    """Return the resources of a process: descriptors, threads, shared memory segments, resident bytes."""
    proc = Path("/proc") / str(pid or "self")
    links = []
    for each in (proc / "fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(each))
    maps = (proc / "maps").read_text()
    pages = int((proc / "statm").read_text().split()[1])
    return {
        "fds": len(links),
        "threads": len(list((proc / "task").iterdir())),
        "memfds": sum("memfd:sensorium" in link for link in links),
        "mapped": maps.count("memfd:sensorium"),
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
    }


# In the nursery -------------------------------------------------------------------------------------------------------


def prepare() -> None:
    """Import everything, for the children of the nursery, which also inherit blueprints and loaded kernels."""
    build(columns=8).step()
    blueprints.definitions(streamed.REGISTRY.registered().values())
    assert sn.serve and sn.connect and sn.MujocoEngine
    for name in ("commands", "explain", "listen", "listing", "serve", "simulation"):
        import_module(f"sensorium.cli.{name}")


class _Record:
    """The readings of the scene's sensors in each frame, as seen in the server's process."""

    def __init__(self, server: sn.Server) -> None:
        self.server = server
        self.frames: dict[int, dict[str, Any]] = {}
        self.watch = server.scene.watch(self._on_frame)

    def _on_frame(self) -> None:
        out: dict[str, Any] = {}
        for name, sensor in self.server.scene.sensors.items():
            if isinstance(sensor, Gauge):
                out[name] = sensor.data.vec.numpy().copy()
                out[f"{name}/truth"] = sensor.ground_truth.vec.numpy().copy()
        self.frames[self.server.frame] = out

    def save(self, path: str) -> None:
        np.savez(path, frames=[*self.frames], **{
            key: np.stack([each[key] for each in self.frames.values()]) for key in next(iter(self.frames.values()))
        })  # fmt: skip


def _be_server(asked: Asked, address: str, world: Mapping[str, Any], hz: float = 0.0, **options: Any) -> None:
    """Serve a world in lock-step, or freely with `hz` steps per second (0: as fast as possible)."""
    scene = build(**world)
    record: _Record | None = None
    with sn.serve(scene, address, **options) as server:
        asked.wake = server.wake
        asked.say(pid=os.getpid(), address=server.address)

        def until() -> bool:
            nonlocal record
            while (command := asked.next(0.0)) is not None:
                match command["op"]:
                    case "held":
                        asked.say(**held(), **server.counts._asdict(), frame=server.frame, sensors=len(scene.sensors))
                    case "record":
                        record = _Record(server)
                        asked.say()
                    case "save":
                        assert record is not None
                        record.save(command["path"])
                        asked.say()
                    case "computed":
                        asked.say(computed=Sheet.computed)
            return asked.ended

        server.run(until=until, speed=hz * DT if hz else 0.0)


def _be_client(asked: Asked, address: str, listen: Mapping[str, Mapping[str, Any]], spawn: bool, hold: int) -> None:
    """Listen to some sensors, spawn a sensor, and keep the newest `hold` data of each."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(sn.connect(address, timeout=PATIENCE))
        first = threading.Event()
        kept: dict[str, deque[Any]] = {name: deque(maxlen=hold or None) for name in listen}

        def taker(name: str) -> Callable[[Any], None]:
            def take(data: Any) -> None:
                if hold:
                    kept[name].append(data)
                first.set()

            return take

        for name, options in listen.items():
            client.sensors[name].listen(taker(name), **options)
        if spawn:
            client.spawn("sensor.other.test_ticker").listen(lambda data: None)
        first.wait(PATIENCE)
        asked.say(pid=os.getpid())
        while not asked.ended:
            command = asked.next()
            if command is not None:
                asked.say(**held(), received={name: client.sensors[name].stats.received for name in listen})


ROLES: dict[str, Callable[..., None]] = {"server": _be_server, "client": _be_client}
"""What a child of the nursery does, by the first argument of `Nursery.start`."""

__all__ = [
    "DT", "PATIENCE", "Child", "Nursery", "Peer", "Program", "Relay", "build", "connect", "digest", "held", "running",
    "serving", "until",
]  # fmt: skip
