"""The client: the sensors of a simulation that runs in another process, or in this one."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import socket
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from sensorium import errors
from sensorium.client import client_sensor
from sensorium.client.blueprints import Blueprint, BlueprintLibrary
from sensorium.client.callbacks import LOGGER, ListenerError, Workers
from sensorium.client.client_sensor import ClientSensor
from sensorium.client.link import Link, Message, greeting
from sensorium.client.sensors import RemoteSensor, Subscription
from sensorium.errors import ConfigError, SensoriumError, SensoriumWarning, StreamError, UnknownNameError
from sensorium.readings import SceneDescription
from sensorium.wire import messages as say
from sensorium.wire.attributes import SensorDefinition
from sensorium.wire.data import FieldData, StreamInfo
from sensorium.wire.pose import Pose
from sensorium.wire.world import Bodies, Body, Snapshot

if TYPE_CHECKING:
    import zmq

WORLD = "world"
"""Name of the stream with the state of all bodies."""
WORKERS = 4
"""Threads that call listeners."""

_open: WeakSet[Client] = WeakSet()
"""Clients that are not closed."""


@atexit.register
def _close_all() -> None:
    """End what a program has left open, while its threads still run: a socket that is cut off could hold up its end."""
    for client in list(_open):
        client.workers.patience = 1.0  # a listener that blocks, e.g. at a queue that is full, does not hold up the end
        client.close()


class Client:
    """A connection to a server; `connect` makes one. It is a context manager, which closes it.

    Everything may be called from any thread. Listeners are called on worker threads. Where the connection breaks, or
    the server is started anew, the client connects again by itself: listeners go on, and sensors that it spawned are
    spawned again.

    Args:
        address: of the server.
        token: that of the server, where it wants one.
        name: what the server calls this client in its messages; empty takes the program's name.
        server_key: the server's public key, where it has keys.
        keys: (public, secret) key of this client, where the server knows whom it lets in; None makes some.
        timeout: longest wait for the server, at first and for answers, s.
        shared_memory: read large data from shared memory, where the server is on this machine.
        max_message: most bytes of one message; listening to a sensor whose messages are longer ends with that reason.
        workers: most threads that call listeners.

    Raises:
        StreamError: nobody answers there, or the server refuses; with its words.
        ConfigError: an address or key that is none.
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
        workers: int = WORKERS,
        _context: zmq.Context[Any] | None = None,
        _pump: Callable[[float], bool] = lambda seconds: False,
        _on_close: Callable[[], None] | None = None,
    ) -> None:
        self.address, self.timeout = check_address(address), timeout
        for field, text in (("token", token), ("name", name)):
            if text != text.encode("utf-8", "replace").decode():
                raise ConfigError.single("connect", field, "(not shown)", "text that can be written as UTF-8")
        self.workers = Workers(workers, "sensorium-listener")
        self._pump, self._on_close = _pump, _on_close
        self.server: Any = None
        """The server, where it is in this process; else None."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._streams: dict[str, StreamInfo] = {}
        self._names: dict[int, str] = {}
        self._sensors: dict[str, RemoteSensor] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._spawned: dict[str, _Spawned] = {}
        self._answers: dict[int, say.Reply | None] = {}
        self._numbers = itertools.count(1)
        self._frame_listeners: dict[int, Callable[[Any], None]] = {}
        self._catalogue: say.Catalogue | None = None
        self._bodies = Bodies(())
        self._library: BlueprintLibrary | None = None
        self._last_frame = -1
        self._resumed = False
        self._refusal = ""
        self._closed = False
        self._notes: deque[str] = deque(maxlen=100)
        self._respawner: threading.Thread | None = None
        hello = greeting(name or _program(), token, _version(), max_message)
        self._link = Link(
            self.address, self, hello, prepare=_keys(server_key, keys), context=_context, uses_slots=shared_memory,
            max_message=max_message,
        )  # fmt: skip
        _open.add(self)
        try:
            self.wait_connected(timeout)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self.is_connected else "not connected"
        return f"<Client of {self.address}: {state}, {len(self._streams)} streams, frame {self.frame}>"

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
        return not self._closed and self._catalogue is not None and self._link.is_up

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until the server has answered and said what there is.

        Raises:
            StreamError: it does not within `timeout` seconds, or it refuses; with its words.
        """
        timeout = self.timeout if timeout is None else timeout
        with self._changed:
            self._changed.wait_for(lambda: self._catalogue is not None or self._refusal or self._closed, timeout)
            if self._catalogue is not None:
                return
            if self._refusal:
                raise StreamError(f"the server at {self.address} refused: {self._refusal}")
            raise StreamError(
                f"nobody answered at {self.address} within {timeout:g} s: {why_silent(self.address)}. Is the server "
                "running (sensorium serve, or sn.serve(scene, address)), and is the address the one that it prints?"
            )

    def wait_for(self, sensor: str, timeout: float | None = None) -> RemoteSensor:
        """Wait until the server has a sensor, and return it.

        Raises:
            TimeoutError: it has none of that name within `timeout` seconds.
        """
        timeout = self.timeout if timeout is None else timeout
        with self._changed:
            if not self._changed.wait_for(lambda: sensor in self._streams or self._closed, timeout):
                text = (
                    f"the server has no sensor {sensor!r} within {timeout:g} s; it has {errors.listed(self._streams)}"
                )
                raise TimeoutError(text)
        return self.sensors[sensor]

    @property
    def description(self) -> SceneDescription:
        """What there is to know of the scene: engine, time step, environments, and each sensor."""
        about = self._known().description
        sensors = {
            info.name: {
                "kind": info.kind,
                "rate_hz": info.rate_hz,
                "fields": [spec.to_dict() for spec in info.specs],
                **({"mounts": list(info.mounts)} if info.mounts else {}),
                **({"constants": dict(info.constants)} if info.constants else {}),
                "cfg": dict(info.cfg),
            }
            for info in self.streams.values()
            if info.where == "scene"
        }
        return SceneDescription(about["engine"], about["dt"], about["num_envs"], about["seed"], sensors)

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return int(self._known().description["num_envs"])

    @property
    def dt(self) -> float:
        """Physics time step, s."""
        return float(self._known().description["dt"])

    @property
    def is_lockstep(self) -> bool:
        """Whether clients take the steps."""
        return self._known().lockstep

    @property
    def frame(self) -> int:
        """Number of the newest frame that this client has heard of; -1 before that."""
        return self._last_frame

    @property
    def streams(self) -> Mapping[str, StreamInfo]:
        """Name -> what there is to listen to."""
        with self._lock:
            return dict(self._streams)

    @property
    def sensors(self) -> Mapping[str, RemoteSensor]:
        """Name -> sensor; a new one appears here by itself."""
        return _Sensors(self)

    @property
    def bodies(self) -> Bodies:
        """All bodies, by id or by name: ``client.bodies[3].name``."""
        self._known()
        return self._bodies

    @property
    def blueprints(self) -> BlueprintLibrary:
        """The blueprints of all sensors that can be spawned, those that run in the client included."""
        if self._library is None:
            offered = [SensorDefinition.from_dict(each) for each in self._ask(say.Ask, "blueprints")]
            theirs = {definition.id for definition in offered}
            mine = [each for each in client_sensor.definitions().values() if each.id not in theirs]
            self._library = BlueprintLibrary([*offered, *mine])
        return self._library

    @property
    def errors(self) -> list[ListenerError]:
        """What listeners raised since somebody asked the last time, oldest first."""
        return self.workers.errors.take()

    def check(self) -> None:
        """Raise the first of the errors of listeners that nobody has asked for, where there are any.

        Raises:
            StreamError: caused by what the listener raised.
        """
        kept = self.errors
        if kept:
            more = f" (and {len(kept) - 1} more)" if len(kept) > 1 else ""
            raise StreamError(f"{kept[0]}{more}") from kept[0].error

    # Steps and controls -----------------------------------------------------------------------------------------------

    def step(self, ctrl: Any = None, substeps: int = 1, *, timeout: float | None = None) -> int:
        """Have the server take one control step, in lock-step; what listeners must not lose has then been sent.

        Args:
            ctrl: `[env, nu]` or `[nu]`; None keeps the controls.
            substeps: physics ticks of the step.
            timeout: longest wait for the answer, s; None is that of the client, and what the server waits for others.

        Returns:
            Number of the step's last frame.

        Raises:
            StreamError: the simulation runs freely, or the server refused or did not answer; with its words.
        """
        patience = 2.0 * self.timeout + 30.0 if timeout is None else timeout
        result = self._ask(say.Step, substeps, *_numbers(ctrl), timeout=patience)
        for text in result["notes"]:
            self._notes.append(text)
            warnings.warn(text, SensoriumWarning, stacklevel=2)
        self._last_frame = max(self._last_frame, int(result["frame"]))
        return int(result["frame"])

    def control(self, ctrl: Any) -> None:
        """Set the controls `[env, nu]` or `[nu]`, for the steps to come.

        Raises:
            StreamError: the server refused; with its words.
        """
        self._ask(say.Control, *_numbers(ctrl))

    def reset(self, env_ids: Iterable[int] | None = None) -> int:
        """Reset some environments (None: all) between two steps, and return the frame in which that shows.

        Raises:
            StreamError: the server refused; with its words.
        """
        return int(self._ask(say.Reset, None if env_ids is None else tuple(int(env) for env in env_ids)))

    def _set(self, name: str, knob: str, value: Any, env_ids: Any) -> None:
        envs = None if env_ids is None else tuple(int(env) for env in np.atleast_1d(env_ids))
        plain = value.tolist() if hasattr(value, "tolist") else value
        self._ask(say.Set, name, knob, plain, envs)

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
        """Make a sensor. It belongs to this client: it goes away with it.

        Args:
            blueprint: of ``client.blueprints.find(...)``, or an id.
            transform: its pose relative to what it is attached to, else in the world.
            attach_to: a body, its name or id; None for the world.
            env: the only environment it is for (sensors of the scene are for all); None for all.
            name: its name; empty takes a free one.
            arguments: for the class of a sensor that runs in the client, e.g. ``lanes=[...]``.

        Returns:
            A `RemoteSensor`, or the `ClientSensor` that runs here.

        Raises:
            StreamError: the server refused; with its words.
            ConfigError: an attribute is not what it should be.
        """
        if isinstance(blueprint, str):
            blueprint = self.blueprints.find(blueprint)
        blueprint.check()
        body = None if attach_to is None else attach_to if isinstance(attach_to, Body) else self.bodies[attach_to]
        wish = _Spawned(blueprint.copy(), transform or Pose(), body.name if body is not None else "", env, arguments)
        local = client_sensor.registered().get(blueprint.id)
        if local is None and arguments:
            raise TypeError(f"spawn({blueprint.id!r}): unknown arguments {', '.join(arguments)}")
        info = self._spawn(wish, name, local)
        if local is None:
            with self._lock:
                self._spawned[info.name] = wish
            return self.sensors[info.name]
        envs = range(self.num_envs) if env is None else range(env, env + 1)
        owner = None if body is None else client_sensor.owner_of(body, self._bodies)

        def forget() -> None:
            self._discard(info.name)

        try:
            wish.local = client_sensor.spawn(
                local, self, info.name, blueprint.definition.describe(blueprint.chosen), envs=envs,
                transform=wish.transform, owner=owner, on_destroy=forget, **arguments,
            )  # fmt: skip
        except BaseException:
            forget()
            raise
        with self._lock:
            self._spawned[info.name] = wish
        return wish.local

    def _spawn(self, wish: _Spawned, name: str, local: type[ClientSensor] | None) -> StreamInfo:
        values = dict(wish.blueprint.chosen)
        if local is not None:
            values["__client_side__"] = local.definition().to_dict()
        pose = tuple(float(part) for part in wish.transform.to_array())
        env = -1 if wish.env is None else wish.env
        info = StreamInfo.from_dict(self._ask(say.Spawn, wish.blueprint.id, values, name, pose, wish.attach_to, env))
        self._add(info)
        return info

    def destroy(self, sensor: RemoteSensor | ClientSensor | str) -> None:
        """Remove a sensor that this client spawned.

        Raises:
            StreamError: the server refused; with its words.
        """
        if isinstance(sensor, ClientSensor):
            sensor.destroy()
            return
        name = sensor if isinstance(sensor, str) else sensor.name
        wish = self._spawned.get(name)
        if wish is not None and wish.local is not None:
            wish.local.destroy()
            return
        if wish is not None:
            self.sensors[name].stop()
        self._ask(say.Destroy, name)
        with self._lock:
            self._spawned.pop(name, None)

    def _discard(self, name: str) -> None:
        """Tell the server that a sensor of ours is gone; it does not matter where that fails."""
        with self._lock:
            self._spawned.pop(name, None)
        try:
            if not self._closed:
                self._ask(say.Destroy, name)
        except StreamError as error:
            LOGGER.info("destroying %r: %s", name, error)

    # Frames -----------------------------------------------------------------------------------------------------------

    def on_tick(
        self, callback: Callable[[Snapshot], object], *, envs: Any = None, policy: Any = "lossless"
    ) -> Subscription:
        """Have a function called with the state of all bodies in each frame, on a worker thread; returns the listener.

        Args:
            callback: takes a `Snapshot`.
            envs: as for `RemoteSensor.listen`.
            policy: likewise.

        Raises:
            StreamError: the server has no stream of the bodies' states.
        """
        if WORLD not in self.streams:
            raise StreamError(
                "the server has no stream of the bodies' states: its engine was prepared without them. Reserve it: "
                "Scene(..., reserve=[BodyStateCfg(bodies='.*')])."
            )

        def call(data: FieldData) -> None:
            callback(Snapshot.of(data, self._bodies))

        return self._subscribe(WORLD, call, policy=policy, envs=envs)

    def _on_tick(self, callback: Callable[[Snapshot], None], *, envs: range) -> Subscription:
        return self.on_tick(callback, envs=envs)

    def _subscribe(self, name: str, callback: Callable[[Any], object], **options: Any) -> Subscription:
        subscription = Subscription(self, name, callback, **options)
        self._begin(subscription)
        return subscription

    def _begin(self, subscription: Subscription) -> None:
        with self._lock:
            if self._closed:
                raise StreamError(f"listening to {subscription.name!r}: this client is closed")
            if subscription.ended:
                return  # it was stopped while it waited for a new connection
            number = next(self._numbers)
            self._subscriptions[number] = subscription
            subscription.begin(self._info(subscription.name), number)

    def _forget(self, subscription: Subscription, *, tell: bool = True) -> None:
        with self._lock:
            if self._subscriptions.get(subscription.number) is subscription:
                del self._subscriptions[subscription.number]
                if tell and not self._closed:
                    self._link.tell(say.Unsubscribe(subscription.number))

    def _on_frame(self, callback: Callable[[Any], None]) -> _FrameListener:
        with self._lock:
            number = next(self._numbers)
            self._frame_listeners[number] = callback
            self._link.tell(say.Frames(True))  # also where it hears of them already: the last one is told again
        if self.server is not None:
            self._ask(say.Ask, "nothing")  # so that a loop in this thread has told of it
        return _FrameListener(self, number)

    # Requests ---------------------------------------------------------------------------------------------------------

    def _known(self) -> say.Catalogue:
        catalogue = self._catalogue
        if catalogue is None:
            with self._changed:  # else it could be lost again in between
                self.wait_connected()
                catalogue = self._catalogue
                assert catalogue is not None
        return catalogue

    def _info(self, name: str) -> StreamInfo:
        with self._lock:
            info = self._streams.get(name)
            known = list(self._streams)
        if info is None:
            raise UnknownNameError("sensor", name, known)
        return info

    def _ask(self, kind: Callable[..., say.Message], *values: Any, timeout: float | None = None) -> Any:
        """Send a request and return the answer's result."""
        if threading.current_thread() is self._link._thread:
            raise StreamError("a request from the thread of the connection could never be answered")
        timeout = self.timeout if timeout is None else timeout
        self._known()
        with self._changed:
            if self._closed or self._catalogue is None:
                why = "this client is closed" if self._closed else "it broke just now"
                raise StreamError(f"no connection to the server at {self.address}: {why}")
            number = next(self._numbers)
            self._answers[number] = None
            try:
                self._link.tell(kind(number, *values))
            except BaseException:
                self._answers.pop(number, None)
                raise
        end = time.monotonic() + timeout

        def is_answered() -> bool:
            return self._answers.get(number, _GONE) is not None or self._closed

        while not is_answered() and time.monotonic() < end and self._pump(0.01):
            pass  # on the thread of a loop in this process: the server does it here
        with self._changed:
            self._changed.wait_for(is_answered, max(0.0, end - time.monotonic()))
            answer = self._answers.pop(number, _GONE)
        what = kind.__name__.lower()
        if answer is None:
            raise StreamError(
                f"{what}: the server at {self.address} did not answer within {timeout:g} s. It answers between two "
                "steps: does its loop run, and call server.poll()?"
            )
        if answer.error:
            cls = getattr(errors, answer.kind, None)
            if isinstance(cls, type) and issubclass(cls, StreamError):
                raise cls(answer.error)
            raise ServerError(answer.error, answer.kind)
        return answer.result

    # What comes in, on the link's thread ------------------------------------------------------------------------------

    def on_welcome(self, welcome: say.Welcome) -> None:
        """Take the answer to the greeting."""
        with self._lock:
            self._resumed = welcome.resumed

    def on_refused(self, reason: str, final: bool) -> None:
        """Take that the server does not talk to us, or no longer."""
        with self._changed:
            first, self._catalogue = self._catalogue is not None, None
            self._refusal = reason if final or not first else ""
            self._fail_requests(f"the server at {self.address} ended the connection: {reason}")
            if final:
                for subscription in list(self._subscriptions.values()):
                    subscription.finish(reason)
            self._changed.notify_all()
        if first:
            LOGGER.warning("the server at %s ended the connection: %s", self.address, reason)

    def on_lost(self) -> None:
        """Take that the connection broke."""
        with self._changed:
            self._catalogue = None
            self._fail_requests(f"the connection to the server at {self.address} broke")
        LOGGER.info("the connection to %s broke; connecting again", self.address)

    def on_data(self, subscription: int, messages: list[Message]) -> None:
        """Take data messages of one subscription."""
        listener = self._subscriptions.get(subscription)
        if listener is not None:
            listener.take(messages)

    def on_control(self, message: say.ToClient) -> None:
        """Take a control message."""
        match message:
            case say.FrameDone():
                self._last_frame = max(self._last_frame, message.frame)
                named = _Done(message, tuple(self._names.get(number, "") for number in message.streams))
                for callback in list(self._frame_listeners.values()):
                    try:
                        callback(named)
                    except Exception as error:
                        self.workers.errors.report("(frames)", callback, error)
            case say.Reply(request=request):
                with self._changed:
                    if request in self._answers:
                        self._answers[request] = message
                        self._changed.notify_all()
                        if self.server is not None:
                            self.server.wake()
            case say.Catalogue():
                self._learn(message)
            case say.Added(stream=stream):
                self._add(StreamInfo.from_dict(stream))
            case say.Removed(stream=number, reason=reason):
                with self._lock:
                    name = self._names.pop(number, "")
                    if self._streams.get(name, _NOTHING).id == number:
                        del self._streams[name]
                        self._spawned.pop(name, None)
            case say.Eos(subscription=number, reason=reason):
                ended = self._subscriptions.get(number)
                if ended is not None:
                    ended.finish(reason)
            case say.Note(text=text):
                try:
                    self._note(text)
                except SensoriumWarning as warning:  # where warnings are errors, it is no error of the connection
                    self.workers.errors.report("(server)", self._note, warning)
            case _:
                pass

    def _learn(self, catalogue: say.Catalogue) -> None:
        """Take the latched description, and take up again what was under way."""
        with self._changed:
            if self._closed:
                return
            self._streams.clear()
            self._names.clear()
            for each in catalogue.streams:
                self._add(StreamInfo.from_dict(each))
            self._bodies = Bodies.from_dict(catalogue.bodies)
            self._catalogue, self._refusal = catalogue, ""
            self._last_frame = catalogue.frame
            if self._frame_listeners:
                self._link.tell(say.Frames(True))
            waiting = []
            for number, subscription in list(self._subscriptions.items()):
                del self._subscriptions[number]
                self._link.tell(say.Unsubscribe(number))  # where it was asked for after the greeting was answered
                waiting.append(subscription)
            lost = {} if self._resumed else dict(self._spawned)
            for subscription in waiting:
                if subscription.name in self._streams:
                    self._begin(subscription)
                elif subscription.name not in lost:
                    subscription.finish("the server has this sensor no more")
            self._changed.notify_all()
        if lost:
            again = [each for each in waiting if each.name in lost and each.name not in self._streams]
            self._respawner = threading.Thread(
                target=self._respawn, args=(lost, again), name="sensorium-respawn", daemon=True
            )
            self._respawner.start()

    def _respawn(self, lost: Mapping[str, _Spawned], waiting: Iterable[Subscription]) -> None:
        """Spawn anew what a server that was started anew does not know."""
        for name, wish in lost.items():
            try:
                self._spawn(wish, name, type(wish.local) if wish.local is not None else None)
                if wish.local is not None:
                    wish.local._begin_anew()
            except (SensoriumError, ServerError) as error:
                if not self._closed:
                    self._note(f"{name!r} could not be spawned again: {error}")
        for subscription in waiting:
            if subscription.name in self.streams:
                with contextlib.suppress(StreamError):  # this client is closed
                    self._begin(subscription)
            else:
                subscription.finish("the server has this sensor no more")

    def _add(self, info: StreamInfo) -> None:
        with self._changed:
            self._streams[info.name] = info
            self._names[info.id] = info.name
            self._changed.notify_all()

    def _fail_requests(self, reason: str) -> None:
        for number, answer in self._answers.items():
            if answer is None:
                self._answers[number] = say.Reply(number, None, reason, "StreamError")
        self._changed.notify_all()

    def _note(self, text: str) -> None:
        self._notes.append(text)
        try:
            warnings.warn(text, SensoriumWarning, stacklevel=3)
        except SensoriumWarning:  # where warnings are errors: no thread of ours may end by one
            LOGGER.warning(text)

    @property
    def notes(self) -> list[str]:
        """What the server warned of, the newest 100."""
        return list(self._notes)

    # End --------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End everything: listeners, threads, the connection. May be called again, and from a listener."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            _open.discard(self)
            self._changed.notify_all()
            subscriptions = list(self._subscriptions.values())
            local = [each.local for each in self._spawned.values() if each.local is not None]
        for sensor in local:
            sensor.destroy()
        for subscription in subscriptions:
            subscription.stop(reason="the client was closed")
        self._link.stop()
        if self._respawner is not None:
            self._respawner.join()
        self.workers.close()
        if self._on_close is not None:
            self._on_close()


class ServerError(StreamError):
    """The server could not do what was asked; the message is its own.

    Args:
        text: the server's message.
        kind: name of the exception's class there.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Spawned:
    """What was spawned, so that it can be again."""

    def __init__(
        self, blueprint: Blueprint, transform: Pose, attach_to: str, env: int | None, arguments: Mapping[str, Any]
    ) -> None:
        self.blueprint, self.transform, self.attach_to, self.env = blueprint, transform, attach_to, env
        self.arguments = arguments
        self.local: ClientSensor | None = None


class _Done:
    """The end of a frame."""

    def __init__(self, message: say.FrameDone, streams: tuple[str, ...]) -> None:
        self.frame, self.tick, self.time, self.streams = message.frame, message.tick, message.time_ns * 1e-9, streams
        self.subscriptions = message.subscriptions


class _FrameListener:
    """Handle of somebody who hears of frames."""

    def __init__(self, client: Client, number: int) -> None:
        self._client, self._number = client, number

    def stop(self) -> None:
        """Hear no more of them."""
        client = self._client
        with client._lock:
            if client._frame_listeners.pop(self._number, None) is not None and not client._frame_listeners:
                if not client._closed:
                    client._link.tell(say.Frames(False))


class _Sensors(Mapping[str, RemoteSensor]):
    """Name -> sensor, as the server has them now. One object per name, so that listening twice replaces."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getitem__(self, name: str) -> RemoteSensor:
        client = self._client
        client._known()
        with client._lock:
            if name not in client._streams:
                raise UnknownNameError("sensor", name, client._streams)
            return client._sensors.setdefault(name, RemoteSensor(client, name))

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, info in self._client.streams.items() if info.where != "client"])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"sensors: {errors.listed(self)}"


_GONE = say.Reply(-1, None, "the request was forgotten", "StreamError")
_NOTHING = StreamInfo(2**32 - 1, "", "", "")


def connect(address: str = "tcp://127.0.0.1:7447", **options: Any) -> Client:
    """Connect to the server of a simulation.

    ``client = sn.connect("tcp://127.0.0.1:7447"); client.sensors["lidar"].listen(print)``

    Args:
        address: what the server prints.
        options: see `Client`.

    Raises:
        StreamError: nobody answers there, or the server refuses; with its words.
    """
    return Client(address, **options)


def check_address(address: str) -> str:
    """Return an address.

    Raises:
        ConfigError: it is none.
    """
    scheme, separator, rest = address.partition("://")
    port = rest.rpartition(":")[2]
    right = bool(separator and rest) and scheme in ("tcp", "ipc", "inproc")
    if scheme == "tcp":
        right = right and ":" in rest and port.isdigit() and 0 < int(port) < 65536
    if not right:
        expected = "'tcp://HOST:PORT' or 'ipc:///path/of/a/socket', as the server prints it"
        raise ConfigError.single("connect", "address", address, expected, "For example 'tcp://127.0.0.1:7447'.")
    return address


def why_silent(address: str) -> str:
    """Return what is at an address where no server answers, in words."""
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    try:
        if scheme == "tcp":
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
        elif scheme == "ipc":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(rest)
    except socket.gaierror:
        return f"there is no host {host!r}"
    except FileNotFoundError:
        return "there is no such file"
    except ConnectionRefusedError:
        return "nothing listens there"
    except OSError as error:
        return f"it cannot be reached ({error.strerror or error})"
    return "what listens there is no server of sensorium, or it hangs"


def _keys(server_key: str, keys: tuple[str, str] | None) -> Callable[[Any], None]:
    """Return what gives a socket its keys."""

    def prepare(socket: Any) -> None:
        if not server_key:
            return
        import zmq

        public, secret = keys if keys is not None else zmq.curve_keypair()
        socket.curve_serverkey = server_key.encode()
        socket.curve_publickey = public.encode() if isinstance(public, str) else public
        socket.curve_secretkey = secret.encode() if isinstance(secret, str) else secret

    for text in (server_key, *(keys or ())):
        if text and not _is_key(text):
            raise ConfigError.single("connect", "keys", "(not shown)", "keys of 40 characters")
    if keys is not None and not server_key:
        raise ConfigError.single("connect", "keys", "keys of this client", "the server's key as well: server_key=...")
    return prepare


def _is_key(text: str) -> bool:
    from zmq.utils import z85

    try:
        return len(text) == 40 and len(z85.decode(text.encode())) == 32
    except (ValueError, KeyError, UnicodeEncodeError):
        return False


def _numbers(ctrl: Any) -> tuple[tuple[int, ...], bytes]:
    """Return shape and bytes of controls."""
    if ctrl is None:
        return (), b""
    if hasattr(ctrl, "detach"):
        ctrl = ctrl.detach().cpu().numpy()
    array = np.ascontiguousarray(ctrl, "<f8")
    if array.ndim not in (1, 2):
        raise ConfigError.single("step", "ctrl", array.shape, "numbers of shape [nu] or [env, nu]")
    return array.shape, array.tobytes()


def _program() -> str:
    import sys
    from pathlib import Path

    return Path(sys.argv[0] or "python").name


def _version() -> str:
    from sensorium import __version__

    return str(__version__)


__all__ = ["Client", "ServerError", "connect"]
