"""Client view of a sensor of the simulation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from sensorium.client import checks
from sensorium.client.checks import Envs, Policy
from sensorium.client.session import Session
from sensorium.client.subscription import Stats, Subscription
from sensorium.errors import StaleError, StreamError, UnknownNameError
from sensorium.wire import messages as msg
from sensorium.wire.stream_info import StreamInfo

if TYPE_CHECKING:
    from sensorium.client.client import Client


class RemoteSensor:
    """Sensor of the simulation, by its name: `client.sensors["lidar"]`."""

    def __init__(self, client: Client, session: Session, name: str) -> None:
        self._client, self._session = client, session
        self.name = name
        """Name of the sensor."""

    # Description ------------------------------------------------------------------------------------------------------

    @property
    def info(self) -> StreamInfo:
        """Description by the server: kind, fields, rate, mounts, config, constants.

        Raises:
            StaleError: the server no longer has the sensor.
        """
        with self._requires_alive():
            return self._session.info(self.name)

    @property
    def kind(self) -> str:
        """Kind of the sensor, e.g. ``"imu"``."""
        return self.info.kind

    @property
    def is_alive(self) -> bool:
        """Whether the server has the sensor."""
        return self.name in self._session.streams

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Configuration of the sensor."""
        return self.info.cfg

    @contextlib.contextmanager
    def _requires_alive(self) -> Iterator[None]:
        """Convert the error for an unknown name to `StaleError`, because the sensor existed earlier."""
        try:
            yield
        except UnknownNameError:
            raise StaleError(
                f"the server no longer has the sensor {self.name!r}. client.sensors lists the available sensors."
            ) from None

    # Listeners --------------------------------------------------------------------------------------------------------

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
        """Register a function that is called with each sample, on a dedicated thread, one sample at a time.

        The function replaces the previous listener, which is not called again. Exceptions that it raises are logged
        with the name of the sensor and kept in `client.errors`. The next sample follows in any case.

        Args:
            callback: function that takes a `Reading`, or data of the class that a custom serializer makes. The
                object and its arrays may be kept; to keep many, keep ``data.copy()``.
            policy: ``"latest"``: a sample that has waited for the function for more than 10 ms is replaced as soon as a
                newer one has arrived, and counted. A burst of small messages is delivered completely if the function
                processes it within this time. ``"lossless"``: every sample waits for the function, up to `queue`
                messages; `serve` describes the behaviour beyond. Events are always lossless.
            every: use only every n-th sample.
            max_rate: maximum number of samples per second of wall clock.
            envs: an environment, counted from 0, or a range of them (a slice without step, whose ends may be negative);
                None for all.
            truth: whether to include the ground truth, in `data.truth`.
            queue: maximum number of messages that wait on the server for a lossless listener; None: 64 large messages
                (16 kB or more) or 65536 small messages. In addition, up to 4 large messages are in transit to the
                listener, or as many small messages as `queue` (None, and for events: 16384). These include the message
                that the listener processes. The listener is at most the sum of both numbers behind.

        Raises:
            ConfigError: an argument is invalid.
            StaleError: the server no longer has the sensor.
        """
        session, name = self._session, self.name

        def end(reason: str) -> None:
            if not session.closed:
                session.note(f"listening to {name!r} ended: {reason}")

        with session.lock, self._requires_alive():
            new = self._client.subscribe(
                name, callback, on_end=end, policy=policy, every=every, max_rate=max_rate, envs=envs, truth=truth,
                queue=queue,
            )  # fmt: skip
            old, session.listeners[name] = self._subscription, new
        if old is not None:
            old.stop()

    def stop(self) -> None:
        """Stop listening; the function is not called again. Repeated calls, and calls without a listener, are allowed.

        The call waits until a running call of the function has ended, except when a listener makes it.
        """
        if self._subscription is not None:
            self._subscription.stop()

    @property
    def _subscription(self) -> Subscription | None:
        """Current or last listener."""
        return self._session.listeners.get(self.name)

    @property
    def is_listening(self) -> bool:
        """Whether a listener is active."""
        return self._subscription is not None and not self._subscription.ended

    @property
    def stats(self) -> Stats:
        """Statistics of the current listener, or of the previous listener if there is none."""
        return Stats() if self._subscription is None else self._subscription.stats

    @property
    def why_ended(self) -> str:
        """Reason why the server ended the listener; empty if it did not."""
        return "" if self._subscription is None else self._subscription.reason

    def read(self, timeout: float = 5.0, **options: Any) -> Any:
        """Return one sample, the next to arrive; intended for occasional reads.

        Args:
            timeout: longest wait, s.
            options: options of `listen`.

        Raises:
            ConfigError: an argument is invalid.
            TimeoutError: no sample arrived.
            StaleError: the server no longer has the sensor.
            StreamError: the sensor was removed during the call.
        """
        timeout = checks.seconds("read", timeout)
        got: SimpleQueue[Any] = SimpleQueue()

        def end(reason: str) -> None:
            got.put(StreamError(f"reading {self.name!r}: {reason}"))

        with self._requires_alive():
            subscription = self._client.subscribe(self.name, got.put, on_end=end, **options)
        end_time = time.monotonic() + timeout
        try:
            while got.empty() and time.monotonic() < end_time and self._session.pump(0.01):
                pass  # the loop is on this thread: the server sends the sample here
            found = got.get(timeout=max(0.0, end_time - time.monotonic()))
        except Empty:
            text = f"sensor {self.name!r} sent no sample within {timeout:g} s. "
            text += "Does the simulation run?" if self._client.is_connected else "The server does not answer."
            raise TimeoutError(text) from None
        finally:
            subscription.stop()
        if isinstance(found, StreamError):
            raise found
        return found

    # Commands ---------------------------------------------------------------------------------------------------------

    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        """Set a live knob of the sensor, such as its noise, between two steps.

        Args:
            knob: name of the knob, as for the sensor in the simulation, e.g. ``"noise"``.
            value: value of the knob, as for the sensor in the simulation.
            env_ids: the environments, as for `Client.reset`; None for all.

        Raises:
            ConfigError: an argument is invalid.
            StreamError: the server refused; the message contains its reason.
        """
        call = f"set({checks.text(f'{self.name!r}.set', 'knob', knob)!r})"
        envs = checks.env_ids(call, env_ids, self._client.num_envs)
        self._session.ask(msg.Set, self.name, knob, checks.knob_value(call, value), envs)

    def destroy(self) -> None:
        """Remove the sensor from the server and stop its listener; only the spawning client can remove it.

        Repeated calls are allowed.

        Raises:
            StreamError: the server refused, e.g. because the sensor belongs to another client; its listener continues.
        """
        self._client.destroy(self)

    def __repr__(self) -> str:
        try:
            info = self.info
        except StaleError:
            return f"<RemoteSensor {self.name!r}: gone>"
        fields = ", ".join(f"{s.name}[{','.join(('env', *s.axes))}] {s.unit}" for s in info.specs) or info.type_name
        rate = "events" if info.events else f"{info.rate_hz:g} Hz" if info.rate_hz else info.where
        return f"<RemoteSensor {self.name!r} ({info.kind}), {info.num_envs} env(s), {rate}: {fields}>"
