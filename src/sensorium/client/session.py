"""State shared by all threads of a client: the description of the server, pending requests, and listeners.

The session holds no reference to the `Client`, which can therefore be released while its threads run. A `Subscription`
holds a reference.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec.structs import astuple

from sensorium import errors
from sensorium.client.callbacks import LOGGER, Callbacks
from sensorium.client.link import Link, Message, why_silent
from sensorium.errors import SensoriumWarning, StreamError, UnknownNameError
from sensorium.readings import Bodies
from sensorium.wire import messages as msg
from sensorium.wire.data import messages_in
from sensorium.wire.stream_info import StreamInfo
from sensorium.wire.warning_relay import WarningText, relayed_text

if TYPE_CHECKING:
    from sensorium.client.client import LocalServer
    from sensorium.client.client_sensor import ClientSensor
    from sensorium.client.subscription import Subscription

PUMP_S = 0.01
"""Longest wait of a server loop on the calling thread while a request is pending, s."""


class ServerError(StreamError):
    """Error for a request that the server could not fulfil, with the message of the server.

    Args:
        text: message of the server.
        kind: class name of the exception on the server.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass
class _Request:
    """Request that waits for its answer."""

    reply: msg.Reply | None = None
    worked: float = -math.inf
    """Time of the last progress report of the server, if any."""
    is_notified: bool = False
    """Whether the user was already notified of the work of the server."""


class Session:
    """State of one client from the first greeting to the end, across all connections.

    Args:
        address: address of the server.
        hello: see `Link`; so are `keys` and `uses_slots`.
        timeout: longest wait for the server, s.
        callbacks: state shared by the queues of the listeners.
        local: the server in the same process, if any.
    """

    def __init__(
        self,
        address: str,
        hello: msg.Hello,
        *,
        timeout: float,
        callbacks: Callbacks,
        local: LocalServer,
        **options: Any,
    ) -> None:
        self.address, self.timeout, self.callbacks = address, timeout, callbacks
        self.pump, self.server, self._on_close = local.pump, local.server, local.on_close
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.streams: dict[str, StreamInfo] = {}
        self.bodies = Bodies(())
        self.frame = self.restarts = -1
        self.catalogue: msg.Catalogue | None = None
        """Description sent by the server; None without a connection."""
        self.refusal = ""
        """Reason why the server refuses the connection."""
        self._resumed = False
        self.notes: deque[str] = deque(maxlen=100)
        self.requests: dict[int, _Request] = {}
        self._numbers = itertools.count(1)
        self.subscribers: dict[int, Subscription] = {}
        self.listeners: dict[str, Subscription] = {}
        """Current or last listener of each `RemoteSensor`. A new listener replaces the previous one."""
        self.frame_listeners: list[FrameListener] = []
        self.spawned: dict[str, msg.Spawn] = {}
        """Request of each sensor of this client, with which it can be spawned again."""
        self.local_sensors: WeakValueDictionary[str, ClientSensor] = WeakValueDictionary()
        """Sensors that run in this client."""
        self._respawner: threading.Thread | None = None
        """Thread that spawns the sensors of this client on a new server; requests of other threads wait for it."""
        self._waiting: list[Subscription] = []
        """Subscriptions to sensors that are not spawned again yet."""
        self.closed = False
        self.link = Link(address, self, hello, context=getattr(local.server, "context", None), **options)
        self.link.thread.start()

    # Description by the server ----------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether the server answers."""
        return not self.closed and self.catalogue is not None and self.link.is_up

    def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until the server has answered and sent its description; see `Client.wait_connected`."""
        timeout = self.timeout if timeout is None else timeout
        with self.changed:
            self.changed.wait_for(lambda: self._is_ready or self.refusal or self.closed, timeout)
            if self._is_ready:
                return
            if self.catalogue is not None:
                raise StreamError(
                    f"the server at {self.address} is new, and does not have all sensors of this client again after "
                    f"{timeout:g} s. Call wait_connected with a longer timeout."
                )
            if self.refusal:
                raise StreamError(f"the server at {self.address} refused: {self.refusal}")
            raise StreamError(
                f"no server answered at {self.address} within {timeout:g} s: {why_silent(self.address)}. Start one "
                "with `sensorium serve` or sn.serve(scene, address), and connect to the address that it prints."
            )

    @property
    def _is_ready(self) -> bool:
        """Whether the server has sent its description, and has the sensors of this client for the calling thread."""
        return self.catalogue is not None and self._respawner in (None, threading.current_thread())

    def known(self, timeout: float | None = None) -> msg.Catalogue:
        """Return the description sent by the server; wait for it if the connection is new, at most `timeout` s."""
        with self.changed:  # otherwise it could be lost again in between
            self.wait_connected(timeout)
            assert self.catalogue is not None
            return self.catalogue

    def info(self, name: str) -> StreamInfo:
        """Return the description of a sensor.

        Raises:
            UnknownNameError: the server has no sensor of that name.
        """
        info = self.streams.get(name)
        if info is None:
            raise UnknownNameError("sensor", str(name), list(self.streams))
        return info

    def note(self, text: str) -> None:
        """Store a warning of the server and issue it as a warning."""
        try:
            warnings.warn(text, SensoriumWarning, stacklevel=3)
        except SensoriumWarning:  # warnings are errors: they must not end a thread of the client
            LOGGER.warning(text)
        self.notes.append(text)  # last: a thread that waits for the note then also finds the warning

    # Requests ---------------------------------------------------------------------------------------------------------

    def ask(self, kind: Callable[..., msg.Message], *values: Any, timeout: float | None = None) -> Any:
        """Send a request and return the result of the answer; see `reply`."""
        return self.reply(kind, *values, timeout=timeout).result

    def reply(self, kind: Callable[..., msg.Message], *values: Any, timeout: float | None = None) -> msg.Reply:
        """Send a request and return the answer.

        Args:
            kind: class of the request.
            values: its contents.
            timeout: longest wait, s, from the call or from the last progress report of the server; the wait for a
                connection is also limited by the timeout of the client.

        Raises:
            StreamError: no answer arrived, or the connection was lost.
            ServerError: the server refused; the message contains its reason.
        """
        timeout = self.timeout if timeout is None else timeout
        if threading.current_thread() is self.link.thread:
            raise StreamError("a frame listener cannot send a request, because it runs on the thread of the connection")
        end = time.monotonic() + timeout
        with self.changed:
            self.known(min(timeout, self.timeout))
            if self.closed:
                raise StreamError(f"the server at {self.address} is not connected: the client is closed")
            number = next(self._numbers)
            request = self.requests[number] = _Request()

        def is_over() -> bool:
            return request.reply is not None or self.closed

        try:
            self.link.send_control(kind(number, *values))
            while not is_over() and (before := time.monotonic()) < end and self.pump(PUMP_S):
                end += max(time.monotonic() - before - PUMP_S, 0.0)  # the loop on this thread: the server worked here
            with self.changed:
                while not is_over() and (left := max(end, request.worked + timeout) - time.monotonic()) > 0.0:
                    self.changed.wait(left)
        finally:
            with self.lock:
                del self.requests[number]
        if (reply := request.reply) is None:
            raise StreamError(
                f"{kind.__name__.lower()}: the server at {self.address} did not answer within {timeout:g} s. Check "
                "that its loop runs and calls server.poll() between steps."
            )
        if reply.error:
            cls = getattr(errors, reply.kind, None)
            if isinstance(cls, type) and issubclass(cls, StreamError):
                raise cls(reply.error)
            raise ServerError(reply.error, reply.kind)
        return reply

    def _fail(self, reason: str) -> None:
        """Answer all pending requests with an error; requires the lock."""
        for request in self.requests.values():
            request.reply = request.reply or msg.Reply(-1, None, reason, "StreamError")
        self.changed.notify_all()

    def spawn(self, request: msg.Spawn) -> tuple[StreamInfo, Sequence[WarningText]]:
        """Request a sensor from the server; return its description and the warnings of the server."""
        reply = self.reply(msg.Spawn, *astuple(request)[1:])
        info = StreamInfo.from_dict(reply.result)
        self._add(info)
        return info, reply.warnings

    # Listeners --------------------------------------------------------------------------------------------------------

    def begin(self, subscriber: Subscription) -> None:
        """Start a subscription and keep it until `forget`.

        Raises:
            StreamError: the client is closed.
            UnknownNameError: the server does not have the sensor.
        """
        with self.lock:
            if self.closed:
                raise StreamError(f"cannot listen to {subscriber.name!r}: the client is closed")
            if subscriber.ended:
                return  # stopped while it waited for a new connection
            info, number = self.info(subscriber.name), next(self._numbers)
            self.subscribers[number] = subscriber
            try:
                subscriber.begin(info, number)
            except BaseException:
                self.subscribers.pop(number, None)  # it has no stream and must not be restarted
                raise

    def _begin_again(self, subscriber: Subscription) -> None:
        """Restart a subscription, or end it with the reason; a failure affects no other subscription."""
        try:
            self.begin(subscriber)
        except UnknownNameError:
            subscriber.finish("the server no longer has this sensor")
        except Exception as error:
            subscriber.finish(
                "the client was closed" if self.closed else f"listening again failed: {type(error).__name__}: {error}"
            )

    def forget(self, subscriber: Subscription) -> None:
        """Release a subscription and notify the server."""
        with self.lock:
            if self.subscribers.get(subscriber.number) is subscriber:
                del self.subscribers[subscriber.number]
                if not self.closed:
                    self.link.send_control(msg.Unsubscribe(subscriber.number))

    def add_frame_listener(self, callback: Callable[[msg.FrameDone], object], keeps: object = None) -> FrameListener:
        """Register a function that is called at the end of each frame, on the thread of the link.

        Args:
            callback: the function.
            keeps: object kept alive until the listener stops.
        """
        with self.lock:
            listener = FrameListener(self, callback, keeps)
            self.frame_listeners.append(listener)
            self.link.send_control(msg.Frames(True))  # if it is active, the server repeats the last frame
        if self.server is not None:
            self.ask(msg.Ask, "nothing")  # a loop in this thread has then announced the frame
        return listener

    # Incoming messages, on the thread of the link ---------------------------------------------------------------------

    def take(self, number: int, messages: list[Message]) -> None:
        """Pass data messages to their subscription; those of an ended one only return their credits."""
        subscriber = self.subscribers.get(number)
        if subscriber is not None:
            subscriber.take(messages)
        else:
            self.link.send_credit(number, sum(messages_in(head) for _, head, _ in messages))

    def on_welcome(self, welcome: msg.Welcome) -> None:
        """Process the answer to the greeting, which a catalogue follows."""
        with self.lock:
            self._resumed, self.catalogue = welcome.resumed, None

    def on_refused(self, reason: str, final: bool) -> None:
        """Record that the server refuses or ends the connection."""
        first = self.catalogue is not None  # only this thread sets it
        if first:  # before the change of state, so that a thread that waits for the end also finds the warning
            LOGGER.warning("the server at %s ended the connection: %s", self.address, reason)
        with self.changed:
            self.refusal = reason if final or not first else ""
            self._fail(f"the server at {self.address} ended the connection: {reason}")
            if final:
                for subscriber in [*self.subscribers.values(), *self._waiting]:
                    subscriber.finish(reason)
            self._respawner = self.catalogue = None  # last: `is_connected` does not take the lock
            self.changed.notify_all()

    def on_lost(self) -> None:
        """Record that the connection broke."""
        LOGGER.info("the connection to %s was lost; reconnecting", self.address)
        with self.changed:
            self.catalogue = self._respawner = None
            self._fail(f"the connection to the server at {self.address} was lost")

    def note_frame(self, frame: int) -> None:
        """Record that a frame was announced or received."""
        with self.changed:
            self.frame = max(self.frame, frame)

    def on_control(self, message: msg.ToClient) -> None:
        """Process a control message."""
        match message:
            case msg.FrameDone():
                self.note_frame(message.frame)
                for listener in list(self.frame_listeners):
                    try:
                        listener.callback(message)
                    except Exception as error:
                        self.callbacks.report("(frames)", listener.callback, error)
            case msg.Reply():
                with self.changed:
                    if (request := self.requests.get(message.request)) is not None:
                        request.reply = message
                        self.changed.notify_all()
                        if self.server is not None:
                            self.server.wake()
            case msg.Working(requests=numbers, text=text):
                with self.changed:
                    for request in [self.requests[number] for number in numbers if number in self.requests]:
                        request.worked = time.monotonic()
                        if text and not request.is_notified:
                            request.is_notified = True
                            LOGGER.warning("waiting for the server at %s: %s", self.address, text)
            case msg.Catalogue():
                if self.catalogue is None:  # a repeated greeting causes a repeated catalogue
                    self._process_catalogue(message)
            case msg.Added(stream=stream):
                self._add(StreamInfo.from_dict(stream))
            case msg.Removed(stream=number):
                with self.lock:
                    for name in [name for name, info in self.streams.items() if info.id == number]:
                        del self.streams[name]
                        self.spawned.pop(name, None)
            case msg.Eos(subscription=number, reason=reason):
                subscriber = self.subscribers.get(number)
                if subscriber is not None:
                    subscriber.finish(reason)
            case msg.Note(text=text):
                self.note(text)

    def _add(self, info: StreamInfo) -> None:
        with self.changed:
            self.streams[info.name] = info
            self.changed.notify_all()

    # A new connection, or a restarted server --------------------------------------------------------------------------

    def _process_catalogue(self, catalogue: msg.Catalogue) -> None:
        """Process the latched description, and resume all earlier subscriptions and sensors."""
        with self.changed:
            if self.closed:
                return
            self.streams.clear()
            for each in catalogue.streams:
                self._add(StreamInfo.from_dict(each))
            self.bodies = Bodies.from_dict(catalogue.bodies)
            self.refusal, self.frame = "", catalogue.frame
            if self.frame_listeners:
                self.link.send_control(msg.Frames(True))
            subscribers = [*self.subscribers.values(), *self._waiting]
            for number in self.subscribers:  # it may have been requested after the greeting
                self.link.send_control(msg.Unsubscribe(number))
            self.subscribers.clear()
            if not self._resumed:
                for subscriber in subscribers:
                    subscriber.suspend()
                self.restarts += 1
            lost = {name: spawn for name, spawn in self.spawned.items() if not (self._resumed and name in self.streams)}
            self._waiting = [each for each in subscribers if each.name in lost and each.name not in self.streams]
            for subscriber in subscribers:
                if subscriber not in self._waiting:
                    self._begin_again(subscriber)
            if lost:
                self._respawner = threading.Thread(
                    target=self._respawn, args=(lost,), name="sensorium-respawn", daemon=True
                )
                self._respawner.start()
            self.catalogue = catalogue  # last: `is_connected` does not take the lock
            self.changed.notify_all()

    def _respawn(self, lost: Mapping[str, msg.Spawn]) -> None:
        """Spawn again the sensors that a restarted server does not know, unless the connection is lost again."""
        thread = threading.current_thread()
        for name, request in lost.items():
            if self._respawner is not thread:
                return
            try:
                _, warned = self.spawn(request)
                for category, text in warned:
                    self.note(relayed_text(category, text, f"spawning {name!r} again"))
                if (sensor := self.local_sensors.get(name)) is not None:
                    sensor.restart()
            except Exception as error:  # includes errors of custom sensors
                if not self.closed and self._respawner is thread:
                    self.note(f"cannot respawn {name!r}: {error}")
        with self.changed:
            if self._respawner is thread:
                for subscriber in self._waiting:
                    self._begin_again(subscriber)
                self._waiting, self._respawner = [], None
                self.changed.notify_all()

    # End --------------------------------------------------------------------------------------------------------------

    def leave(self) -> bool:
        """Reject further requests and listeners; return whether the session was open before the call."""
        with self.changed:
            first, self.closed = not self.closed, True
            self.changed.notify_all()
        return first

    def end(self) -> None:
        """End the listeners, the connection and the threads; call `leave` first."""
        with self.lock:
            subscribers, respawner = [*self.subscribers.values(), *self._waiting], self._respawner
        for subscriber in subscribers:
            with contextlib.suppress(StreamError):  # at exit no thread may start
                subscriber.finish("the client was closed")
            subscriber.stop()
        self.frame_listeners.clear()
        self.link.stop()
        if respawner is not None:
            respawner.join()
        if self._on_close is not None:
            self._on_close()


class FrameListener:
    """Handle of a listener of frames, created by `Session.add_frame_listener`."""

    def __init__(self, session: Session, callback: Callable[[msg.FrameDone], object], keeps: object) -> None:
        self.callback = callback
        self._session, self._keeps = session, keeps

    def stop(self) -> None:
        """Stop the listener. Repeated calls are allowed."""
        session = self._session
        with session.lock:
            if self in session.frame_listeners:
                session.frame_listeners.remove(self)
                if not session.frame_listeners and not session.closed:
                    session.link.send_control(msg.Frames(False))
        self._keeps = None
