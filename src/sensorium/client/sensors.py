"""A sensor of the simulation as a client sees it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sensorium.client.callbacks import LOGGER
from sensorium.client.session import Session
from sensorium.client.subscription import Envs, Policy, Stats, Subscription
from sensorium.errors import StreamError
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.client.client import Client


class Ear:
    """Who listens to a sensor, and what came of it; one for each name, so that listening twice replaces.

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

    def __init__(self, client: Client, ear: Ear) -> None:
        self._client, self._session, self._ear, self._name = client, ear.session, ear, ear.name

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
        """Have a function called with each sample, on a worker thread, one after the other.

        A listener that was there before is replaced, and not called any more. What the function raises is logged with
        the sensor's name, and kept in `client.errors`; the next sample comes all the same.

        Args:
            callback: takes a `SensorData`, of the class that the sensor's serializer makes. It and its arrays may be
                kept; to keep many, keep ``data.copy()``.
            policy: ``"latest"``: of what arrives while the function works only the newest is kept, and the others are
                counted as dropped. ``"lossless"``: everything waits for it, up to `queue` messages; what happens then
                says `serve`. Events are always lossless.
            every: only each n-th sample.
            max_rate: most samples per second of the wall clock.
            envs: an environment or a range of them (a slice without step); None for all.
            truth: also the ground truth, in `data.truth`.
            queue: messages that may wait on the server; None: 64 large ones, 65536 small ones.

        Raises:
            ConfigError: an argument is none of these.
            StaleError: the server has the sensor no more.
        """
        ear = self._ear
        with ear.lock:
            new = Subscription(
                self._session,
                self._name,
                callback,
                policy=policy,
                every=every,
                max_rate=max_rate,
                envs=envs,
                truth=truth,
                queue=queue,
                on_end=ear.ended,
                keeps=self._client,
            )
            self._session.begin(new)
            old, ear.subscription = ear.subscription, new
            ear.reason = ""
        if old is not None:
            old.stop()

    def stop(self) -> None:
        """Stop listening; from now on the function is not called. May be called again, also where nobody listens.

        It waits until a running call has ended, but not from within that.
        """
        ear = self._ear
        with ear.lock:
            old, ear.subscription = ear.subscription, None
            if old is not None:
                ear.last_stats = old.stats
        if old is not None:
            old.stop()
            ear.last_stats = old.stats

    @property
    def is_listening(self) -> bool:
        """Whether a function is called with what comes."""
        subscription = self._ear.subscription
        return subscription is not None and not subscription.ended

    @property
    def stats(self) -> Stats:
        """What the listener has had so far, or the one before it."""
        subscription = self._ear.subscription
        return self._ear.last_stats if subscription is None else subscription.stats

    @property
    def why_ended(self) -> str:
        """Why the server ended the listening; empty where it did not."""
        return self._ear.reason

    def read(self, timeout: float = 5.0, **options: Any) -> Any:
        """Return one sample, the next that comes; for looking at a sensor now and then.

        Args:
            timeout: longest wait, s.
            options: of `listen`.

        Raises:
            TimeoutError: none came.
            StreamError: the sensor went away.
        """
        got: deque[Any] = deque(maxlen=1)
        event = threading.Event()

        def take(data: Any) -> None:
            if not got:
                got.append(data)
            event.set()

        def end(reason: str) -> None:
            got.append(StreamError(f"reading {self._name!r}: {reason}"))
            event.set()

        subscription = Subscription(self._session, self._name, take, on_end=end, keeps=self._client, **options)
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
        """Set a live knob of the sensor, such as its noise, for some environments (None: all), between two steps.

        Raises:
            StreamError: the server refused; with its words.
        """
        self._client._set(self._name, knob, value, env_ids)

    def destroy(self) -> None:
        """Stop, and have the server remove the sensor; only the client that spawned it can.

        Raises:
            StreamError: the server refused; with its words.
        """
        self.stop()
        self._client.destroy(self)

    def __repr__(self) -> str:
        if not self.is_alive:
            return f"<RemoteSensor {self._name!r}: gone>"
        info = self.info
        fields = ", ".join(f"{s.name}[{','.join(('env', *s.axes))}] {s.unit}" for s in info.specs) or info.type_name
        rate = "events" if info.events else f"{info.rate_hz:g} Hz" if info.rate_hz else info.where
        return f"<RemoteSensor {self._name!r} ({info.kind}), {info.num_envs} env(s), {rate}: {fields}>"


__all__ = ["Ear", "RemoteSensor"]
