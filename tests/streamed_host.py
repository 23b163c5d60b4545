"""A server without sockets for streamed sensors: it creates them, lets them tick, and keeps their messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from sensorium.pose import Pose
from sensorium.readings import Bodies, Body
from sensorium.stream import streamed
from sensorium.stream.publisher import Moment
from sensorium.stream.streamed import StreamedSensor
from sensorium.stream.subscription_table import LOG
from sensorium.wire.data import Item, RawData, SensorData
from sensorium.wire.failures import Failures
from sensorium.wire.header import Header, begin_message, body_offset, type_id
from sensorium.wire.serializers import registered
from sensorium.wire.stream_info import StreamInfo
from sensorium.wire.world import Owner, Snapshot, owner_of


def bodies(*rows: tuple[str, Sequence[float]], centers: Mapping[str, Sequence[float]] | None = None) -> Bodies:
    """Return bodies from (name, half-extents) pairs; the entity is the part of the name before the first slash."""
    centers = centers or {}
    return Bodies(
        Body(i, name, name.partition("/")[0] if "/" in name else "", (*centers.get(name, (0.0, 0.0, 0.0)),), (*half,))
        for i, (name, half) in enumerate(rows)
    )


class Message(NamedTuple):
    """One message of a sensor."""

    type_id: int
    body: memoryview
    moment: Moment
    first_env: int
    num_envs: int


class Host:
    """The part of a server that streamed sensors use.

    Args:
        world: the bodies.
        num_envs: environments.
        executor: runs asynchronous sends; a pool of threads by default.

    On exit, every sensor failure must have been consumed by the test.
    """

    def __init__(self, world: Bodies, num_envs: int = 1, executor: Executor | None = None) -> None:
        self.bodies, self.num_envs, self.dt = world, num_envs, 0.01
        self.executor = ThreadPoolExecutor(4) if executor is None else executor
        self.failures = Failures(LOG)
        self.sent: deque[Message] = deque()
        self.opened: deque[int] = deque()
        self.done: deque[int] = deque()
        self.listening = True
        self.running: dict[Future[Any], str] = {}
        self.publisher = self
        self.types: dict[str, int] = {}
        self.snapshot = self.at(0)

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.executor.shutdown()
        if kind is None:
            assert [failure.traceback for failure in self.failures.take()] == []

    def at(self, frame: int, pos: Any = None, quat: Any = None) -> Snapshot:
        """Return a snapshot with positions and orientations ``[env, body, ...]``; by default at the origin."""
        shape = (self.num_envs, len(self.bodies))
        still = np.zeros((*shape, 3), np.float32)
        pos = still if pos is None else np.broadcast_to(np.asarray(pos, np.float32), (*shape, 3))
        quat = np.broadcast_to(np.asarray([1, 0, 0, 0] if quat is None else quat, np.float32), (*shape, 4))
        envs = np.arange(self.num_envs)
        return Snapshot(frame, 2 * frame, 2 * frame * self.dt, self.bodies, envs, pos, quat, still, still)

    def spawn(
        self,
        cls: type[StreamedSensor],
        values: Mapping[str, Any] | None = None,
        attach_to: str = "",
        transform: Pose | None = None,
        envs: Iterable[int] | None = None,
        owner: Owner | None = None,
        name: str = "guard",
    ) -> Any:
        """Return a sensor created as the server creates it."""
        definition = cls.definition()
        self.types[name] = type_id(cls.serializer.type_name)
        if attach_to:
            owner = owner_of(self.bodies[attach_to], self.bodies, NoTree().parent_body)
        return streamed.spawn(
            cls,
            name,
            definition.describe(values or {}),
            self,  # type: ignore[arg-type]
            self.bodies,
            envs=range(self.num_envs) if envs is None else envs,  # type: ignore[arg-type]
            transform=transform,
            owner=owner,
        )

    def in_progress(self, name: str) -> tuple[Snapshot, int]:
        return self.snapshot, 1_000_000_000 + self.snapshot.frame

    def has_listeners(self, name: str) -> bool:
        return self.listening

    def capture(self, name: str, frame: int) -> None:
        self.opened.append(frame)

    def resolved(self, name: str, frame: int) -> None:
        self.done.append(frame)

    def send(self, name: str, items: Sequence[Item], moment: Moment, *, is_lasting: bool = True) -> None:
        """Collect the messages of a sensor, one by one."""
        for body, first, count in items:
            body = memoryview(body if is_lasting else bytes(body))
            self.sent.append(Message(self.types[name], body, moment, first, count))

    def submit(self, name: str, function: Callable[..., Any], *args: Any) -> None:
        future = self.executor.submit(function, *args)
        self.running[future] = name
        future.add_done_callback(lambda done: self.running.pop(done, None))

    def frame(self, sensor: StreamedSensor, pos: Any = None, quat: Any = None) -> list[Message]:
        """Run a frame and return all messages since the last call."""
        self.snapshot = self.at(self.snapshot.frame + 1, pos, quat)
        streamed.run_tick(sensor, self.snapshot, self.failures)
        return self.taken()

    def taken(self) -> list[Message]:
        """Return the messages since the last call."""
        out = list(self.sent)
        self.sent.clear()
        return out

    def received(self, message: Message) -> SensorData:
        """Return a message as a listener receives it."""
        moment = message.moment
        header = Header(
            type_id=message.type_id, frame=moment.frame, tick=moment.tick, time_ns=moment.time_ns,
            capture_ns=moment.time_ns, wall_ns=moment.wall_ns, first_env=message.first_env, num_envs=message.num_envs,
            poses=1, body_bytes=len(message.body),
        )  # fmt: skip
        head = bytearray(body_offset(message.num_envs, 1))
        begin_message(head, header, moment.poses[message.first_env - moment.first_env :][: message.num_envs])
        serializer = next(cls for name, cls in registered().items() if type_id(name) == message.type_id)
        info = StreamInfo(0, "guard", "sensor", serializer.type_name, num_envs=self.num_envs)
        return serializer.deserialize(RawData(memoryview(head), info, message.body))


class NoTree:
    """A model without a kinematic tree and contacts."""

    name = "nothing"
    prepared: frozenset[Any] = frozenset()

    def shapes(self) -> tuple[Any, ...]:
        return ()

    def names(self, kind: str) -> tuple[str, ...]:
        return ()

    def parent_body(self, body: int) -> int | None:
        return None

    def supports(self, requirement: Any) -> str | None:
        return "it reports no contacts."
