"""Client for the sensors of a simulation that runs in another process or in the same process."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from sensorium import errors
from sensorium.client import checks, client_sensor
from sensorium.client.blueprints import Blueprint, BlueprintLibrary
from sensorium.client.callbacks import LOGGER, Callbacks
from sensorium.client.client_sensor import ClientSensor
from sensorium.client.link import key_options
from sensorium.client.sensors import RemoteSensor
from sensorium.client.session import FrameListener, Session
from sensorium.client.subscription import Subscription
from sensorium.errors import ConfigError, SensoriumWarning, StreamError, UnknownNameError
from sensorium.pose import Pose
from sensorium.readings import Array, Bodies, Body, DebugShape, Reading, SceneDescription
from sensorium.wire import messages as msg
from sensorium.wire.address import split
from sensorium.wire.attributes import SensorDefinition
from sensorium.wire.failures import Failure
from sensorium.wire.stream_info import StreamInfo
from sensorium.wire.warning_relay import relay_warnings, relayed_text
from sensorium.wire.world import Snapshot, owner_of

WORLD = "world"
"""Name of the stream with the state of all bodies."""
MAX_SUBSTEPS = 1_000_000
"""Maximum number of physics ticks per step; the server rejects more."""

_open: WeakSet[Client] = WeakSet()
"""Clients that are not closed."""
_closers: WeakSet[threading.Thread] = WeakSet()
"""Threads that close clients without remaining references."""


@atexit.register
def _close_all() -> None:
    """Close all open clients at exit while their threads still run: an open socket could delay the exit."""
    for client in list(_open):
        client.callbacks.patience = 1.0  # a listener that blocks, e.g. on a full queue, does not delay the exit
        client.close()
    for closer in list(_closers):
        closer.join(1.0)


@dataclass(frozen=True, slots=True)
class Drawings:
    """What viewers need of the sensors of a scene beside their readings.

    Attributes:
        drawn: names of the sensors that viewers should draw.
        shapes: shapes of the drawn sensors that draw themselves. Others are drawn from their readings.
        mounts: place of each mount, float32 `[mount, 8]`: row of its body (-1 for the world), and position (m) and
            orientation (wxyz) on this body.
    """

    drawn: frozenset[str] = frozenset()
    shapes: Mapping[str, list[DebugShape]] = field(default_factory=dict)
    mounts: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """Server in the same process.

    Attributes:
        server: the server; None for a server in another process.
        pump: runs the server loop for some seconds if the loop belongs to the calling thread; otherwise returns False.
        on_close: function called after the client has closed.
    """

    server: Any = None
    pump: Callable[[float], bool] = lambda seconds: False
    on_close: Callable[[], object] | None = None


class Client:
    """Connection to a server, created by `connect`; a context manager that closes the connection at its end.

    All methods may be called from any thread. Each listener is called on a dedicated thread. The client reconnects
    automatically after the connection breaks or the server restarts. Listeners then continue, and sensors that the
    client spawned are spawned again.

    A client without remaining references is closed with a `ResourceWarning`. Its sensors hold a reference, and so does
    every active listener: see `connect`.

    Args:
        address: address of the server.
        token: token of the server, if the server requires a token.
        name: name of this client in messages of the server; empty uses the program name.
        server_key: public key of the server, if the server has keys.
        keys: (public, secret) key of this client, if the server accepts only known clients; None generates a new pair.
        timeout: longest wait for the connection and for answers, s. The wait restarts while the server reports that it
            processes the request or compiles kernels.
        shared_memory: read large data from shared memory if the server runs on the same machine.
        max_message: maximum size of one message, bytes; longer messages end the listener of their sensor with that
            reason.
        local: the server, if it runs in the same process; `Scene.local_client` provides it.

    Raises:
        StreamError: no server answers, or the server refuses; the message contains the reason of the server.
        ConfigError: the address or a key is invalid.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        name: str = "",
        server_key: str = "",
        keys: tuple[str, str] | None = None,
        timeout: float = 5.0,
        shared_memory: bool = True,
        max_message: int = 2**30,
        local: LocalServer = LocalServer(),
    ) -> None:
        split("connect", address, low=1)
        self.address = address
        checks.text("connect", "token", token, secret=True)
        checks.text("connect", "name", name)
        timeout = checks.seconds("connect", timeout, may_be_zero=False)
        shared_memory = checks.flag("connect", "shared_memory", shared_memory)
        max_message = checks.whole("connect", "max_message", max_message, 1, 2**62)
        key_pairs = key_options(server_key, keys)
        self.callbacks = Callbacks()
        self._sensors: WeakValueDictionary[str, RemoteSensor] = WeakValueDictionary()
        self._local: dict[str, ClientSensor] = {}
        self._library: BlueprintLibrary | None = None
        from sensorium import __version__ as version

        name = name or Path(sys.argv[0] or "python").name
        hello = msg.Hello(msg.PROTOCOL, str(version), token, name, socket.gethostname(), os.getpid(), b"", max_message)
        self._session = Session(
            self.address, hello, timeout=timeout, callbacks=self.callbacks, local=local, keys=key_pairs,
            uses_slots=shared_memory,
        )  # fmt: skip
        _open.add(self)
        try:
            self.wait_connected(timeout)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "connected" if self.is_connected else "not connected"
        return f"<Client of {self.address}: {state}, {len(self._session.streams)} streams, frame {self.frame}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            self.check()

    # State ------------------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether the server answers."""
        return self._session.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._session.closed

    @property
    def timeout(self) -> float:
        """Longest wait for the server, s; the property can be set."""
        return self._session.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._session.timeout = checks.seconds("Client", seconds, may_be_zero=False)

    @property
    def server(self) -> Any:
        """The server, if it runs in the same process; otherwise None."""
        return self._session.server

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until the server has answered and sent its description, and has the sensors that this client spawned.

        Raises:
            StreamError: this takes longer than `timeout` seconds, or the server refuses; the message contains its
                reason.
        """
        self._session.wait_connected(None if timeout is None else checks.seconds("wait_connected", timeout))

    def wait_for(self, sensor: str, timeout: float | None = None) -> RemoteSensor:
        """Wait until the server has a sensor, and return the sensor.

        Raises:
            TimeoutError: the server has no sensor of that name within `timeout` seconds.
        """
        checks.text("wait_for", "sensor", sensor)
        timeout = self.timeout if timeout is None else checks.seconds("wait_for", timeout)
        session = self._session
        with session.changed:
            if not session.changed.wait_for(lambda: sensor in session.streams or session.closed, timeout):
                known = errors.listed(session.streams)
                raise TimeoutError(f"the server has no sensor {sensor!r} after {timeout:g} s. Available: {known}")
        return self.sensors[sensor]

    @property
    def description(self) -> SceneDescription:
        """Description of the scene: engine, time step, environments, and each sensor."""
        about = self._session.known().description
        sensors = {info.name: info.described() for info in self.streams.values() if info.where == "scene"}
        return SceneDescription(
            about["engine"], about["dt"], about["num_envs"], about["seed"], sensors, about.get("first_env", 0)
        )

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return int(self._session.known().description["num_envs"])

    @property
    def dt(self) -> float:
        """Physics time step, s."""
        return float(self._session.known().description["dt"])

    @property
    def is_lockstep(self) -> bool:
        """Whether the clients step the simulation."""
        return self._session.known().lockstep

    @property
    def frame(self) -> int:
        """Number of the newest frame known to this client; -1 before the first."""
        return self._session.frame

    @property
    def restarts(self) -> int:
        """Number of restarts of the server since the connection; each starts the frames and the time again."""
        return self._session.restarts

    @property
    def streams(self) -> Mapping[str, StreamInfo]:
        """Available streams by name."""
        return dict(self._session.streams)

    @property
    def sensors(self) -> Mapping[str, RemoteSensor]:
        """Sensors by name; new sensors appear automatically."""
        return _Sensors(self)

    @property
    def bodies(self) -> Bodies:
        """All bodies, by id or by name: ``client.bodies[3].name``."""
        self._session.known()
        return self._session.bodies

    def world_file(self) -> bytes:
        """Return the shapes of all bodies with their meshes and height fields, as the contents of an `.npz` file.

        Raises:
            StreamError: the server did not answer, or its world exceeds the maximum size of a message.
        """
        return bytes(self._session.ask(msg.Ask, "world"))

    def drawings(self, env: int = 0) -> Drawings:
        """Return what viewers need of the sensors beside their readings.

        Args:
            env: the environment.

        Raises:
            StreamError: the server did not answer, or a sensor cannot draw itself; the message contains the reason.
        """
        found = self._session.ask(msg.Ask, "drawings", env)
        return Drawings(
            frozenset(found["drawn"]),
            {name: [DebugShape.from_dict(each) for each in shapes] for name, shapes in found["shapes"].items()},
            {name: np.frombuffer(rows, "<f4").reshape(-1, 8) for name, rows in found["mounts"].items()},
        )

    @property
    def blueprints(self) -> BlueprintLibrary:
        """Blueprints of all sensors that can be spawned, including sensors that run in the client."""
        if self._library is None:
            offered = [SensorDefinition.from_dict(each) for each in self._session.ask(msg.Ask, "blueprints")]
            offered_ids = {definition.id for definition in offered}
            mine = [each for each in client_sensor.definitions().values() if each.id not in offered_ids]
            self._library = BlueprintLibrary([*offered, *mine])
        return self._library

    @property
    def errors(self) -> list[Failure]:
        """Exceptions raised by listeners since the last read, oldest first."""
        return self.callbacks.errors.take()

    @property
    def notes(self) -> list[str]:
        """The newest 100 warnings of the server."""
        return list(self._session.notes)

    def check(self) -> None:
        """Raise the first exception of a listener that was not read from `errors`, if any.

        Raises:
            StreamError: caused by the exception of the listener.
        """
        self.callbacks.errors.check()

    # Steps and controls -----------------------------------------------------------------------------------------------

    def step(self, ctrl: Any = None, substeps: int = 1, *, timeout: float | None = None) -> int:
        """Request one control step in lock-step mode; on return, all data of lossless listeners have been sent.

        Args:
            ctrl: `[env, nu]` or `[nu]`; None keeps the controls.
            substeps: physics ticks of the step.
            timeout: longest wait for the answer, s; None uses twice the timeout of the client plus 30 s. The wait for a
                lost connection is also limited by the timeout of the client.

        Returns:
            Number of the last frame of the step.

        Raises:
            ConfigError: an argument is invalid; the server has received nothing.
            StreamError: the simulation is free-running, or the server refused or did not answer; includes its reason.
        """
        patience = 2.0 * self.timeout + 30.0 if timeout is None else checks.seconds("step", timeout)
        substeps = checks.whole("step", "substeps", substeps, 1, MAX_SUBSTEPS)
        result = self._session.ask(msg.Step, substeps, *checks.controls("step", ctrl), timeout=patience)
        for text in result["notes"]:
            self._session.notes.append(text)
            warnings.warn(text, SensoriumWarning, stacklevel=2)
        self._session.note_frame(int(result["frame"]))
        return int(result["frame"])

    def control(self, ctrl: Any) -> None:
        """Set the controls `[env, nu]` or `[nu]` of the following steps.

        Raises:
            ConfigError: the controls are not numbers of such a shape.
            StreamError: the server refused; the message contains its reason.
        """
        self._session.ask(msg.Control, *checks.controls("control", ctrl))

    def pace(
        self,
        *,
        paused: bool | None = None,
        speed: float | None = None,
        steps: int | None = None,
        time: float | None = None,
    ) -> dict[str, Any] | None:
        """Pause a simulation that its server runs, take single steps, or change its speed; without arguments only ask.

        `sensorium serve` and `Server.run` accept this for a free-running simulation.

        Args:
            paused: whether the simulation waits. A pause ends with the client that requested it.
            speed: simulated seconds per second of the wall clock; 0 for maximum speed.
            steps: number of steps to take in a pause, which it starts if needed.
            time: time at which a recording that a live view shows continues, s.

        Returns:
            ``"paused"`` and ``"speed"``; ``"span"`` of a recording that a live view shows, its first and last time, s;
            None if the server's program or the clients take the steps.

        Raises:
            ServerError: an argument is invalid.
            StreamError: the server did not answer, or its program or the clients take the steps.
        """
        changes = {"paused": paused, "speed": speed, "steps": steps, "time": time}
        result = self._session.ask(msg.Ask, "pace")
        for what, value in changes.items():
            if value is not None:
                result = self._session.ask(msg.Set, "", what, checks.knob_value("pace", value), None)
        return None if result is None else dict(result)

    def reset(self, env_ids: Any = None) -> int:
        """Reset some environments between two steps, and return the first frame that shows the reset.

        Args:
            env_ids: one or several environments, a bool mask `[env]`, or None for all; an empty selection has no
                effect. Sequences, NumPy arrays and torch tensors are accepted.

        Raises:
            ConfigError: the environments are invalid; the server has received nothing.
            StreamError: the server refused; the message contains its reason.
        """
        return int(self._session.ask(msg.Reset, checks.env_ids("reset", env_ids, self.num_envs)))

    # Sensors at run time ----------------------------------------------------------------------------------------------

    def spawn(
        self,
        blueprint: Blueprint | str,
        transform: Pose | None = None,
        attach_to: str | int | Body | None = None,
        env: int | None = None,
        *,
        name: str = "",
        **arguments: Any,
    ) -> Any:
        """Spawn a sensor. The sensor belongs to this client and is removed with it.

        Args:
            blueprint: a blueprint from ``client.blueprints.find(...)``, or an id.
            transform: pose relative to the body that the sensor is attached to, or in the world.
            attach_to: a body, its name or id; None for the world.
            env: the only environment of the sensor (sensors of the scene cover all); None for all.
            name: name of the sensor; empty selects a free name.
            arguments: arguments for the class of a sensor that runs in the client, e.g. ``lanes=[...]``.

        Returns:
            A `RemoteSensor`, or the `ClientSensor` that runs in this process.

        Warnings that the server issues during the call are also issued here and added to `notes`.

        Raises:
            StreamError: the server refused; the message contains its reason.
            ConfigError: an argument or an attribute is invalid.
            UnknownNameError: the blueprint or the body does not exist; the message suggests the nearest name.
        """
        if isinstance(blueprint, str):
            blueprint = self.blueprints.find(blueprint)
        if not isinstance(blueprint, Blueprint):
            expected = "a blueprint of client.blueprints, or the id of one"
            raise ConfigError.single("spawn", "blueprint", blueprint, expected, "For example 'sensor.other.imu'.")
        blueprint.check()
        call = f"spawn({blueprint.id!r})"
        checks.text(call, "name", name)
        env = checks.env(call, env, self.num_envs)
        transform = checks.pose(call, "transform", transform)
        if isinstance(attach_to, bool | np.bool_) or not isinstance(attach_to, str | int | np.integer | Body | None):
            expected = "a body of client.bodies, its name or number, or None for the world"
            raise ConfigError.single(call, "attach_to", attach_to, expected)
        body = self.bodies[attach_to] if isinstance(attach_to, str | int | np.integer) else attach_to
        local = client_sensor.REGISTRY.registered().get(blueprint.id)
        if local is None and arguments:
            raise TypeError(f"spawn({blueprint.id!r}): unknown arguments {', '.join(arguments)}")
        request = msg.Spawn(
            0, blueprint.id, blueprint.chosen if local is None else {}, name, tuple(transform.to_array().tolist()),
            "" if body is None else body.name, -1 if env is None else env,
            None if local is None else local.definition().to_dict(),
        )  # fmt: skip
        info, warned = self._session.spawn(request)
        request.name = info.name
        sensor: Any
        if local is None:
            sensor = self.sensors[info.name]
        else:
            forget = partial(self._discard, info.name)
            try:
                sensor = client_sensor.spawn(
                    local, self, info.name, blueprint.definition.describe(blueprint.chosen),
                    envs=range(self.num_envs) if env is None else range(env, env + 1), transform=transform,
                    owner=None if body is None else owner_of(body, self.bodies), on_destroy=forget, **arguments,
                )  # fmt: skip
            except BaseException:
                forget()
                raise
            self._session.local_sensors[info.name] = self._local[info.name] = sensor
        with self._session.lock:
            self._session.spawned[info.name] = request
        what = f"spawning {info.name!r}"
        self._session.notes.extend(relayed_text(category, text, what) for category, text in warned)
        try:
            relay_warnings(warned, what, stacklevel=2)
        except Warning:  # warnings are errors
            self.destroy(info.name)
            raise
        return sensor

    def destroy(self, sensor: RemoteSensor | ClientSensor | str) -> None:
        """Remove a sensor that this client spawned, and stop its listener. Repeated calls with a sensor are allowed.

        Raises:
            ConfigError: the argument is neither a sensor nor the name of a sensor.
            StreamError: the server refused, e.g. because the sensor belongs to another client; its listener continues.
        """
        if isinstance(sensor, ClientSensor):
            sensor.destroy()
            return
        name = sensor.name if isinstance(sensor, RemoteSensor) else sensor
        checks.text("destroy", "sensor", name, "a sensor of this client, or its name")
        if (local := self._local.get(name)) is not None:
            local.destroy()
            return
        if name in self._session.spawned:
            with contextlib.suppress(UnknownNameError):  # already gone: the server reports it below
                self.sensors[name].stop()
        elif isinstance(sensor, RemoteSensor) and not sensor.is_alive:
            return
        self._session.ask(msg.Destroy, name)
        with self._session.lock:
            self._session.spawned.pop(name, None)

    def _discard(self, name: str) -> None:
        """Notify the server that a client sensor is gone; failures are only logged."""
        with self._session.lock:
            self._local.pop(name, None)
            self._session.spawned.pop(name, None)
        try:
            if not self.is_closed:
                self._session.ask(msg.Destroy, name)
        except StreamError as error:
            LOGGER.info("destroying %r: %s", name, error)

    # Frames -----------------------------------------------------------------------------------------------------------

    def on_tick(
        self, callback: Callable[[Snapshot], object], *, envs: Any = None, policy: Any = "lossless"
    ) -> Subscription:
        """Register a function that is called with the state of all bodies in each frame, on a dedicated thread.

        Args:
            callback: function that takes a `Snapshot`.
            envs: as for `RemoteSensor.listen`.
            policy: as for `RemoteSensor.listen`.

        Returns:
            The subscription, whose `stop` ends the calls.

        Raises:
            ConfigError: an argument is invalid.
            StreamError: the server has no stream of the body states.
        """
        checks.function("on_tick", "callback", callback)
        session = self._session
        if WORLD not in self.streams:
            raise StreamError(
                "the server cannot send the states of the bodies, because its engine was prepared without them. Create "
                "the scene with Scene(..., reserve=[BodyStateCfg(bodies='.*')])."
            )

        @wraps(callback)  # errors show the wrapped function
        def listener(data: Reading) -> None:
            callback(Snapshot.of(data, session.bodies))

        return self.subscribe(WORLD, listener, policy=policy, envs=envs)

    def subscribe(
        self,
        name: str,
        callback: Callable[[Any], object],
        *,
        on_end: Callable[[str], object] | None = None,
        **options: Any,
    ) -> Subscription:
        """Add a listener of a sensor, independent of ``sensors[name].listen``; the returned subscription stops it.

        Args:
            name: name of the sensor.
            callback: function that takes the data, as for `RemoteSensor.listen`.
            on_end: function called once with the reason if the subscription ends without `stop`.
            options: options of `RemoteSensor.listen`.
        """
        asked = checks.listening(name, **options)
        subscription = Subscription(self._session, name, callback, asked, on_end=on_end, keeps=self)
        self._session.begin(subscription)
        return subscription

    def on_frame(self, callback: Callable[[msg.FrameDone], object]) -> FrameListener:
        """Register a function that is called at the end of each frame, on the thread of the connection."""
        return self._session.add_frame_listener(callback, keeps=self)

    # End --------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the listeners, the threads and the connection.

        Repeated calls, and calls from a listener, are allowed.
        """
        if not self._session.leave():
            return
        _open.discard(self)
        with contextlib.ExitStack() as rest:
            rest.callback(self._session.end)
            for sensor in list(self._local.values()):
                rest.callback(sensor.destroy)

    def __del__(self) -> None:
        if "_session" not in vars(self) or self.is_closed:
            return
        text = f"unclosed {self!r}: call its close(), or use it as a context manager"
        try:
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self._session)
        finally:  # a warning may be an error
            # On a separate thread: the current thread may be inside a step of the scene or a call of a listener.
            closer = threading.Thread(target=self.close, name="sensorium-close", daemon=True)
            _closers.add(closer)
            closer.start()


class _Sensors(Mapping[str, RemoteSensor]):
    """Current sensors of the server by name. Each name has a single object while a reference to it exists."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getitem__(self, name: str) -> RemoteSensor:
        client, session = self._client, self._client._session
        session.known()
        with session.lock:
            session.info(name)
            sensor = client._sensors.get(name)
            if sensor is None:
                sensor = client._sensors[name] = RemoteSensor(client, session, name)
            return sensor

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, info in self._client.streams.items() if info.where != "client"])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"sensors: {errors.listed(self)}"


def connect(address: str = "tcp://127.0.0.1:7447", **options: Any) -> Client:
    """Connect to the server of a simulation.

    ``client = sn.connect("tcp://127.0.0.1:7447"); client.sensors["lidar"].listen(print)``

    The connection ends with `close`, or at the end of a ``with`` block. A client without remaining references is also
    closed, by a separate thread, with a `ResourceWarning`. Its sensors and `FrameSync` objects hold a reference.

    An active listener also keeps the client alive, even if the program holds no reference. For example,
    ``sn.connect(address).sensors["lidar"].listen(print)`` continues until the server ends it or the program exits.

    Args:
        address: address that the server prints.
        options: see `Client`.

    Raises:
        StreamError: no server answers, or the server refuses; the message contains its reason.
    """
    return Client(address, **options)
