"""Server: a scene's sensors for listeners in this process, in other processes on this machine, and on the network.

The owner of the loop steps the scene as usual; new samples are sent automatically. Between steps, `poll` runs the
requests of clients: controls, spawned sensors, resets, and, in lock-step, the steps themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import zmq.utils.garbage  # noqa: F401 - its handler at exit must be registered before ours, so that it runs later

from sensorium.errors import ConfigError, StreamError, UnknownNameError
from sensorium.pose import Pose
from sensorium.stream.access import AccessControl
from sensorium.stream.catalog import StreamCatalog
from sensorium.stream.commands import Commands
from sensorium.stream.options import ServerOptions
from sensorium.stream.pace import Pace
from sensorium.stream.publisher import Publisher
from sensorium.stream.security import Credentials, KeyPair
from sensorium.stream.sockets import Sockets
from sensorium.stream.streamed import WORLD, StreamedSensors
from sensorium.stream.subscription_table import Counts, Session, Subscription, SubscriptionTable
from sensorium.wire import messages as msg
from sensorium.wire.address import split
from sensorium.wire.slots import PROBE, SlotWriter, slots_available
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.scene import Scene


COMPILING = "it compiles kernels, on the first run only"
"""Text for clients whose requests wait for kernel compilation."""

_open: WeakSet[Server] = WeakSet()
"""Servers that are not closed."""


@atexit.register
def _close_all() -> None:
    """Close all servers that a program left open, while its threads still run."""
    for server in list(_open):
        with contextlib.suppress(Exception):
            server.close("the server's program ended")


class Server:
    """Server for the sensors of a scene, created by `serve`.

    Args:
        scene: the scene; its owner continues to step it.
        addresses: listening addresses in addition to that of this process; port 0 uses a free port.
        token: token required from clients; addresses reachable from other machines require it or keys.
        keys: the server's keys; with keys, all messages are encrypted.
        allowed_keys: public keys of the clients that may connect; empty for all clients that know the server's public
            key.
        lockstep: whether clients take the steps (`client.step`), and each step waits for lossless listeners.
        options: options of sending, and limits for clients.

    Raises:
        ConfigError: an address is reachable from other machines without token or keys, or a value is invalid.
        StreamError: an address cannot be bound.
    """

    def __init__(
        self,
        scene: Scene,
        addresses: Iterable[str] = (),
        *,
        token: str = "",
        keys: KeyPair | None = None,
        allowed_keys: Iterable[str] = (),
        lockstep: bool = False,
        options: ServerOptions | None = None,
    ) -> None:
        if not hasattr(scene, "publish"):
            raise ConfigError.single("serve", "scene", scene, "a Scene", "Create one: sn.Scene(engine, sensors).")
        options = options or ServerOptions()
        addresses = list(addresses)
        for address in addresses:
            split("stream", address)
        door = Credentials(token, keys, tuple(allowed_keys))
        door.check(addresses)
        self.scene = scene
        self.lockstep = lockstep
        self.token = token
        self.local_clients: WeakSet[Any] = WeakSet()
        """Clients in this process; they are closed with the server."""
        self.pace: Pace | None = None
        """Pace that clients may change; None while `run` does not step the scene."""
        self.owner: threading.Thread | None = None
        """Thread that owns the loop: the last one that polled or stepped."""
        self._maker = threading.current_thread()
        self._busy = threading.RLock()
        """Held while the server works on the loop's thread, so that other threads close it before or after."""
        self._leaves = False
        """Whether another thread closed it, so that its sensors must still be removed from the scene."""
        self._id = secrets.token_bytes(8)
        self._arrangement = -1
        self._places = scene.places()
        self._tick_before = scene.tick - 1
        """Tick of the frame before the last one."""
        self._tick = scene.tick
        """Tick of the last frame."""
        self._closed = False
        self._sockets = Sockets(
            [f"inproc://sensorium-{self._id.hex()}", *addresses], max_message=options.max_message, prepare=door.prepare
        )
        self.context = self._sockets.context
        """ZeroMQ context, for clients in this process."""
        self.local_address, *self.addresses = self._sockets.addresses
        """Address for this process, and the other listening addresses with the actual ports."""
        self.address = (self.addresses or [self.local_address])[0]
        """First listening address; the address for this process if there is no other."""
        uses_slots = options.shared_memory and slots_available()
        self._probe = SlotWriter(*PROBE) if uses_slots else None
        self._table = SubscriptionTable(
            self._sockets, uses_slots=uses_slots, max_held=int(1e6 * options.max_queued_mb),
            patience=options.patience if lockstep else 0.0,
        )  # fmt: skip
        self._publisher = Publisher(self._table)
        self._access = AccessControl(
            self._table, self._sockets, door, options, server=self._id, probe=self._probe, catalogue=self._catalogue,
        )  # fmt: skip
        self.bodies = scene.bodies()
        """All bodies, with their names and bounding boxes."""
        self._bodies_text = self.bodies.to_dict()
        description = scene.description()
        self._about = {name: value for name, value in description.to_dict().items() if name != "sensors"}
        self.streamed = StreamedSensors(scene, self.bodies, self._table.topics, self._publisher)
        """Sensors that run in the server."""
        self.failures = self.streamed.failures
        """Exceptions of streamed sensors."""
        self._catalog = StreamCatalog(scene, self.bodies, self._table, self.streamed, options)
        self._commands = Commands(self, self._table, self._catalog, self._publisher)
        self._watch = scene.watch(self._on_frame)
        for name, described in description.sensors.items():
            self._catalog.offer_sensor(name, described)
        self._catalog.offer_world()
        self._arrangement = scene.arrangement
        self._places.have_changed(scene.sensors_in_use, scene.tick)
        self._sockets.start(self._access.receive, self._run_periodic, self._publisher.flush)
        _open.add(self)

    def __repr__(self) -> str:
        if self._closed:
            return "<Server: closed>"
        mode = "lock-step" if self.lockstep else "free-running"
        where = ", ".join(self.addresses) or "this process"
        there = f"{len(self._catalog.topics)} streams, {self.clients} client(s)"
        return f"<Server at {where}: {mode}, frame {self.frame}, {there}>"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Public properties and methods ------------------------------------------------------------------------------------

    @property
    def streams(self) -> Mapping[str, StreamInfo]:
        """Name -> information about the stream."""
        return {name: topic.info for name, topic in self._catalog.topics.items()}

    @property
    def frame(self) -> int:
        """Number of the last frame."""
        return self._publisher.frame

    @property
    def clients(self) -> int:
        """Number of clients."""
        with self._table.lock:
            return len(self._table.sessions)

    @property
    def client_names(self) -> list[str]:
        """Names of the clients, with their processes."""
        with self._table.lock:
            return [str(session) for session in self._table.sessions.values()]

    @property
    def sent_bytes(self) -> int:
        """Total size of the data sent to clients so far, bytes."""
        return self._table.sent_bytes

    def slow_client_reports(self) -> list[str]:
        """Return reports of slow clients since the last call, oldest first; at most the newest 100."""
        with self._table.lock:
            found = list(self._table.slow)
            self._table.slow.clear()
        return found

    @property
    def counts(self) -> Counts:
        """Current numbers of sessions, subscriptions, topics, shared-memory segments and lent slots."""
        return self._table.counts

    def poll(self, timeout: float = 0.0) -> int:
        """Run the requests of clients; call it between steps. In lock-step it also takes the steps.

        Args:
            timeout: longest wait for the first request, s.

        Returns:
            Number of completed requests.

        Raises:
            StreamError: the server is closed, or its socket's thread has failed.
        """
        self._check_open()
        self.owner = threading.current_thread()
        commands = self._access.commands
        if not commands and timeout > 0.0:
            self._access.arrived.wait(timeout)
        self._access.arrived.clear()
        with self._busy:
            return 0 if self._closed else self._do_commands()

    def _do_commands(self) -> int:
        commands = self._access.commands
        self._remove_orphans()
        self._note_listeners(self.scene.tick)
        self._greet_new()
        self._publisher.flush()
        waiting = len(commands)
        for _ in range(waiting):
            session, command = commands.popleft()
            if self._table.fresh:  # listeners from before the request receive this frame before the next one
                self._note_listeners(self.scene.tick)
                self._greet_new()
            self._commands.do(session, command)
        return waiting

    def _run_periodic(self) -> None:
        """Run periodic maintenance on the socket's thread.

        Clients with waiting requests are notified if the loop is busy with a request or with compiling kernels. If the
        loop has stopped, they receive no notification, and their requests time out.
        """
        self._access.run_periodic()
        self._publisher.run_periodic()
        current, is_loading = self._commands.current, self.scene.compute.is_loading
        if current is None and not is_loading:
            return
        waiting: dict[Session, list[int]] = {}
        for session, command in [*([] if current is None else [current]), *self._access.commands.copy()]:
            waiting.setdefault(session, []).append(command.request)
        for session, numbers in waiting.items():
            if self._table.sessions.get(session.route) is session:
                self._table.send(session, msg.Working(tuple(numbers), COMPILING if is_loading else ""))

    def wake(self) -> None:
        """Wake a waiting `poll`; from any thread."""
        self._access.arrived.set()

    def run(
        self,
        control: Callable[[], Any] | None = None,
        *,
        substeps: int = 1,
        speed: float = 1.0,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Serve until `until` returns True: in lock-step wait for clients' steps, else step the scene in real time.

        Args:
            control: called before each step, returns the controls; None keeps those set by clients.
            substeps: number of physics ticks per step.
            speed: simulated seconds per second of the wall clock; 0 for maximum speed. Clients may change it and
                pause the loop, see `Client.pace`.
            until: checked before each step and at least ten times a second.

        Raises:
            ConfigError: the speed is negative or not a finite number.
        """
        if not 0.0 <= speed < float("inf"):
            raise ConfigError.single("Server.run", "speed", speed, "a finite number >= 0", "0 means maximum speed.")
        if self.lockstep:
            while not until():
                self.poll(0.1)
            return
        pace = self.pace = Pace(speed)
        duration, due = substeps * self.scene.engine.dt, time.monotonic()
        try:
            while not until():
                if not pace.take_step():
                    self.poll(0.1)
                    due = time.monotonic()
                    continue
                self.scene.step(control() if control is not None else None, substeps)
                self.poll()
                due += duration / pace.speed if pace.speed else 0.0
                due = max(due, time.monotonic() - 0.1)  # not all of a delay is made up
                while (left := due - time.monotonic()) > 0.0 and not until():
                    self.poll(min(left, 0.1))
        finally:
            self.pace = None

    def close(self, reason: str = "the server was closed") -> None:
        """End all subscriptions with a reason, the threads and the sockets; remove sensors that clients spawned.

        It may be called repeatedly, and from any thread. Only the loop's thread may modify the scene. If another thread
        closes the server, the scene removes the spawned sensors and the server at its next step.
        """
        self._table.stop_waiting()
        with self._busy:
            if self._closed:
                return
            self._closed = True
            _open.discard(self)
        for client in list(self.local_clients):
            client.close()
        self.streamed.close()
        self._access.close(reason)
        self._sockets.stop()
        for session in list(self._table.sessions.values()):
            self._access.end(session)
        loop = self.owner or self._maker
        if loop is threading.current_thread() or not loop.is_alive():
            self._leave_scene()
        else:
            self._leaves = True
        self._table.close()
        if self._probe is not None:
            self._probe.close()

    def _leave_scene(self) -> None:
        """Remove everything that the server added to the scene; called on the loop's thread."""
        self._leaves = False
        self._watch.close()
        for name in list(self._catalog.listened):
            self._catalog.no_longer_listened(name)
        self._catalog.remove_all()

    def _check_open(self) -> None:
        if self._closed:
            raise StreamError("The server is closed.")
        if not self._sockets.is_running:
            raise StreamError("The thread of the server's socket has failed. See the log of 'sensorium.stream'.")

    # Topics -----------------------------------------------------------------------------------------------------------

    def _catalogue(self) -> msg.Catalogue:
        """Return the latched description; called by the socket's thread."""
        with self._table.lock:
            streams = [topic.info.to_dict() for topic in self._table.topics.values()]
        return msg.Catalogue(self._about, streams, self._bodies_text, self.lockstep, self.frame)

    def _note_listeners(self, since: int) -> None:
        """Follow changes of the scene, and pass to sensors whether they have listeners; some are computed only then.

        Args:
            since: tick up to which samples do not count as new for new listeners.
        """
        is_moved = self._places.have_changed(self.scene.sensors_in_use, self.scene.tick)
        if (self.scene.arrangement != self._arrangement or is_moved) and not self._closed:
            described = self.scene.description().sensors
            self._catalog.forget_removed(described)
            self._catalog.follow(described)
            self._arrangement = self.scene.arrangement
        self._watch.sensors = self._catalog.note_listeners(since)

    # Frames -----------------------------------------------------------------------------------------------------------

    def _on_frame(self) -> None:
        """Send new samples; called on the owner's thread after each step or reset of the scene."""
        if self._closed:
            if self._leaves:
                self._leave_scene()
            return
        self.owner = threading.current_thread()
        with self._busy:
            self._send_frame()

    def _send_frame(self) -> None:
        if self._table.gone:
            self._remove_orphans()
        scene, table, wall_ns = self.scene, self._table, time.time_ns()
        self._publisher.frame = frame = self._publisher.frame + 1
        tick = scene.tick
        self._tick_before, self._tick = min(self._tick, tick - 1), tick
        self._note_listeners(self._tick_before)
        topics, now = self._catalog.topics, time.monotonic()
        due: dict[str, list[Subscription]] = {}
        with table.lock:
            for name in self._catalog.listened:
                receivers = topics[name].subscriptions
                if any([not each.interval or now >= each.next_time for each in receivers]):  # by their max_rate
                    due[name] = receivers
            if table.fresh:
                late = [each for each in table.fresh if each.topic.info.name not in due]  # served by `_greet_new`
                table.fresh.clear()
                table.fresh.extend(late)
        with_truth: list[str] = []
        others = [WORLD] if self.streamed.sensors and WORLD not in due else []
        for name, receivers in due.items():
            if not (topics[name].serializer.at_step_end and scene.is_within_step):
                (with_truth if any([each.key[2] for each in receivers]) else others).append(name)
        for truth, names in ((False, others), (True, with_truth)):
            if names:
                self._publish(names, due, wall_ns, truth=truth)
        for name, failure in self.streamed.tick(frame, wall_ns) if self.streamed.sensors else ():
            self.remove(name, f"it failed: {failure}")
        self._publisher.done(frame, tick, round(scene.time * 1e9))

    def _publish(self, names: list[str], due: Mapping[str, list[Subscription]], wall_ns: int, *, truth: bool) -> None:
        """Send the new samples of some sensors to their subscriptions."""
        scene, cursor, topics = self.scene, self._catalog.cursor, self._catalog.topics
        if not (pending := cursor.pending(names, truth=truth)):
            return
        arrived = cursor.pending(pending, truth=False) if truth else pending
        is_fed = bool(self.streamed.sensors) and WORLD in pending
        first, end = (0, scene.num_envs) if is_fed else (scene.num_envs, 0)
        for name in pending:  # the range that covers all their environments
            for each in due.get(name, ()):
                first, end = min(first, each.key[0]), max(end, each.key[0] + each.key[1])
        readings = scene.publish(pending, envs=slice(first, end), truth=truth, poses=True, copy=is_fed)
        for name, reading in readings.items():
            cursor.mark_taken(scene[name])
            if is_fed and name == WORLD:
                self.streamed.world = reading
            receivers = due.get(name, [])
            if name not in arrived:  # only the ground truth is new
                receivers = [each for each in receivers if each.key[2]]
            if receivers:
                self._publisher.reading(topics[name], reading, wall_ns, scene.engine.dt, receivers)

    def _greet_new(self) -> None:
        """Send the data of the last frame to subscriptions that started since, and notify new listeners of frames."""
        scene, fresh, waiting = self.scene, self._table.fresh, self._access.new_frame_listeners
        while fresh and scene.engine.tick == scene.tick:  # otherwise the scene lags behind its stepped engine
            subscription = fresh.popleft()
            info = subscription.topic.info
            is_offered = self._catalog.topics.get(info.name) is subscription.topic
            if subscription.ended or info.where != "scene" or not is_offered:
                continue
            (first, count, truth), cursor = subscription.key, scene.sample_cursor()
            cursor.skip(scene[info.name], self._tick_before)
            if not cursor.pending([info.name], truth=truth):
                continue
            envs, now = slice(first, first + count), time.time_ns()
            reading = scene.publish([info.name], envs=envs, truth=truth, poses=True, copy=False)[info.name]
            topic, dt = subscription.topic, scene.engine.dt
            self._publisher.reading(topic, reading, now, dt, [subscription], is_new=False)
        while waiting:
            session, _ = waiting.popitem()
            if session in self._table.frame_listeners and self.frame and not self._publisher.waiting:
                self._publisher.announce([session], self.frame, self.scene.tick, round(self.scene.time * 1e9))

    # Sensors at run time ----------------------------------------------------------------------------------------------

    def spawn(
        self,
        blueprint: str,
        values: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        transform: Pose | None = None,
        attach_to: str | None = None,
        env: int | None = None,
    ) -> StreamInfo:
        """Create a sensor, as `Client.spawn` does. Sensors created here belong to the server, and are kept.

        Args:
            blueprint: id or kind, e.g. ``"sensor.other.safe_distance"``.
            values: attributes that differ from the defaults; numbers or text.
            name: its name; empty for a free name.
            transform: its pose relative to the body it is attached to.
            attach_to: name of a body; None for the world.
            env: the only environment of a streamed sensor; None for all.

        Raises:
            SensoriumError: the sensor cannot be created; the message names the reason.
        """
        self._check_open()
        pose = tuple((transform or Pose()).to_array().tolist())
        request = msg.Spawn(0, blueprint, {**(values or {})}, name, pose, attach_to or "", -1 if env is None else env)
        return self._catalog.spawn(request)

    def remove(self, name: str, reason: str = "it was removed") -> None:
        """Remove a spawned sensor.

        Raises:
            UnknownNameError: no spawned sensor has that name.
        """
        self._catalog.remove(name, reason)

    def _remove_orphans(self) -> None:
        """Remove the sensors of clients that are gone."""
        while self._table.gone:
            session = self._table.gone.popleft()
            if self.pace is not None:
                self.pace.forget(session)
            for name in list(session.sensors):
                with contextlib.suppress(UnknownNameError):  # removed in the meantime
                    self._catalog.remove(name, f"its client {session} is gone")


def serve(
    scene: Scene,
    address: str | Iterable[str] = "tcp://127.0.0.1:7447",
    *,
    token: str = "",
    keys: KeyPair | None = None,
    allowed_keys: Iterable[str] = (),
    lockstep: bool = False,
    **options: Any,
) -> Server:
    """Serve the sensors of a scene to listeners in other processes.

    ``server = sn.serve(scene)``, then step the scene as before, with ``server.poll()`` between the steps.

    Args:
        scene: the scene.
        address: one or several of ``tcp://HOST:PORT`` (port 0 for a free port) and ``ipc:///path``.
        token: see `Server`.
        keys: see `Server`.
        allowed_keys: see `Server`.
        lockstep: see `Server`.
        options: fields of `ServerOptions`.

    Raises:
        ConfigError: an address is reachable from other machines without token or keys, or an option is not accepted.
        StreamError: an address cannot be bound.
        MissingDependencyError: pyzmq or msgspec is not installed.
    """
    addresses: Any = [address] if isinstance(address, str) or not isinstance(address, Iterable) else address
    own = ServerOptions(**options)
    return Server(scene, addresses, token=token, keys=keys, allowed_keys=allowed_keys, lockstep=lockstep, options=own)
