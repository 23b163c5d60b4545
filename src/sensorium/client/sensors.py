"""A sensor of the simulation as a client sees it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sensorium.client import checks
from sensorium.client.callbacks import LOGGER
from sensorium.client.checks import Envs, Policy
from sensorium.client.session import Session
from sensorium.client.subscription import Stats, Subscription
from sensorium.errors import StaleError, StreamError, UnknownNameError
from sensorium.wire import messages as say
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.client.client import Client


class ListenerSlot:
    """The listener of a sensor, if any, and what came of it; one for each name, so that listening twice replaces.

    It outlives the `RemoteSensor`s of that name and knows no client.
    """

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self.lock = threading.RLock()
        self.subscription: Subscription | None = None
        self.last_stats = Stats()
        self.reason = ""
        """Why the server ended the listening."""

    def ended(self, reason: str) -> None:
        """Take that listening has ended without having been stopped."""
        with self.lock:
            ended = self.subscription
            if ended is not None and ended.ended:  # else another listens by now
                self.last_stats, self.subscription = ended.stats, None
                self.reason = reason
        if self.session.closed:
            return
        text = f"listening to {self.name!r} ended: {reason}"
        LOGGER.warning(text)
        self.session.note(text)


class RemoteSensor:
    """A sensor of the simulation, by its name: `client.sensors["lidar"]`."""

    def __init__(self, client: Client, slot: ListenerSlot) -> None:
        self._client, self._session, self._slot, self._name = client, slot.session, slot, slot.name

    # What it is -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def info(self) -> StreamInfo:
        """What the server says of it: kind, fields, rate, mounts, config, constants.

        Raises:
            StaleError: the server has it no more.
        """
        with self._while_there():
            return self._session.info(self._name)

    @property
    def kind(self) -> str:
        """Its kind, e.g. ``"imu"``."""
        return self.info.kind

    @property
    def is_alive(self) -> bool:
        """Whether the server has it."""
        return self._name in self._session.streams

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What it was configured with."""
        return self.info.cfg

    @contextlib.contextmanager
    def _while_there(self) -> Iterator[None]:
        """Turn it into `StaleError` that there is no sensor of this name: there was one."""
        try:
            yield
        except UnknownNameError:
            raise StaleError(
                f"sensor {self._name!r} is gone: the server has it no more. client.sensors lists what there is."
            ) from None

    # Listening --------------------------------------------------------------------------------------------------------

    def listen(
        self,
        callback: Callable[[Any], object],
        *,
        policy: Policy = "latest",
        every: int = 1,
        max_rate: float | None = None,
        envs: Envs = None,
        truth: bool = False,
        queue: int | None = None,
    ) -> None:
        """Have a function called with each sample, on a thread of its own, one after the other.

        A listener that was there before is replaced, and not called any more. What the function raises is logged with
        the sensor's name, and kept in `client.errors`; the next sample comes all the same.

        Args:
            callback: takes a `SensorData`, of the class that the sensor's serializer makes. It and its arrays may be
                kept; to keep many, keep ``data.copy()``.
            policy: ``"latest"``: of what arrives while the function works only the newest is kept, and the others are
                counted as dropped; but a burst of small messages is given whole, as far as the function gets within
                10 ms. ``"lossless"``: everything waits for it, up to `queue` messages; what happens then
                says `serve`. Events are always lossless.
            every: only each n-th sample.
            max_rate: most samples per second of the wall clock.
            envs: an environment, from 0 on, or a range of them (a slice without step, whose ends may count from the
                last); None for all.
            truth: also the ground truth, in `data.truth`.
            queue: messages that may wait on the server where nothing may be left out; None: 64 large ones (from 16 kB
                on), 65536 small ones. Besides, up to 4 large messages are under way to the listener, or as many small
                ones as `queue` says (None, and for events: 16384), that which it works on included. So it is at most
                that many and `queue` messages behind.

        Raises:
            ConfigError: an argument is none of these.
            StaleError: the server has the sensor no more.
        """
        slot = self._slot
        with slot.lock, self._while_there():
            options = checks.listening(
                self._name, self.info.num_envs, policy=policy, every=every, max_rate=max_rate, envs=envs, truth=truth,
                queue=queue,
            )  # fmt: skip
            new = Subscription(self._session, self._name, callback, options, on_end=slot.ended, keeps=self._client)
            self._session.begin(new)
            old, slot.subscription = slot.subscription, new
            slot.reason = ""
        if old is not None:
            old.stop()

    def stop(self) -> None:
        """Stop listening; from now on the function is not called. May be called again, also where nobody listens.

        It waits until a running call has ended, but not from within that.
        """
        slot = self._slot
        with slot.lock:
            old, slot.subscription = slot.subscription, None
            if old is not None:
                slot.last_stats = old.stats
        if old is not None:
            old.stop()
            slot.last_stats = old.stats

    @property
    def is_listening(self) -> bool:
        """Whether a function is called with what comes."""
        subscription = self._slot.subscription
        return subscription is not None and not subscription.ended

    @property
    def stats(self) -> Stats:
        """What the listener has had so far, or the one before it."""
        subscription = self._slot.subscription
        return self._slot.last_stats if subscription is None else subscription.stats

    @property
    def why_ended(self) -> str:
        """Why the server ended the listening; empty where it did not."""
        subscription = self._slot.subscription
        return self._slot.reason if subscription is None else subscription.reason

    def read(self, timeout: float = 5.0, **options: Any) -> Any:
        """Return one sample, the next that comes; for looking at a sensor now and then.

        Args:
            timeout: longest wait, s.
            options: of `listen`.

        Raises:
            ConfigError: an argument is none of these.
            TimeoutError: none came.
            StaleError: the server has the sensor no more.
            StreamError: the sensor went away meanwhile.
        """
        timeout = checks.seconds("read", timeout)
        got: deque[Any] = deque(maxlen=1)
        event = threading.Event()

        def take(data: Any) -> None:
            if not got:
                got.append(data)
            event.set()

        def end(reason: str) -> None:
            got.append(StreamError(f"reading {self._name!r}: {reason}"))
            event.set()

        with self._while_there():
            asked = checks.listening(self._name, self.info.num_envs, **options)
            subscription = Subscription(self._session, self._name, take, asked, on_end=end, keeps=self._client)
            self._session.begin(subscription)
        end_time = time.monotonic() + timeout
        try:
            while not event.is_set() and time.monotonic() < end_time and self._session.pump(0.01):
                pass  # on the thread of a loop in this process: the server sends it here
            if not event.wait(max(0.0, end_time - time.monotonic())):
                raise TimeoutError(
                    f"sensor {self._name!r}: no sample came within {timeout:g} s. Does the simulation run?"
                )
        finally:
            subscription.stop()
        if isinstance(got[0], StreamError):
            raise got[0]
        return got[0]

    # Commands ---------------------------------------------------------------------------------------------------------

    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        """Set a live knob of the sensor, such as its noise, between two steps.

        Args:
            knob: as for the sensor in the simulation, e.g. ``"noise"``.
            value: likewise.
            env_ids: the environments it is for, as for `Client.reset`; None for all.

        Raises:
            ConfigError: an argument is none of these.
            StreamError: the server refused; with its words.
        """
        call = f"set({checks.text(f'{self._name!r}.set', 'knob', knob)!r})"
        envs = checks.env_ids(call, env_ids, self._client.num_envs)
        self._session.ask(say.Set, self._name, knob, checks.knob_value(call, value), envs)

    def destroy(self) -> None:
        """Have the server remove the sensor, which stops listening; only the client that spawned it can.

        Raises:
            StreamError: the server refused, as for a sensor of another client; listening to that goes on.
        """
        self._client.destroy(self)

    def __repr__(self) -> str:
        try:
            info = self.info
        except StaleError:
            return f"<RemoteSensor {self._name!r}: gone>"
        fields = ", ".join(f"{s.name}[{','.join(('env', *s.axes))}] {s.unit}" for s in info.specs) or info.type_name
        rate = "events" if info.events else f"{info.rate_hz:g} Hz" if info.rate_hz else info.where
        return f"<RemoteSensor {self._name!r} ({info.kind}), {info.num_envs} env(s), {rate}: {fields}>"


__all__ = ["ListenerSlot", "RemoteSensor"]
