"""Monitor of sensor data: options, counts and status messages; `python -m sensorium.client` prints it as plain text.

The table of `sensorium listen` is built on this module.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TextIO

from sensorium.cli import show
from sensorium.client.checks import Policy
from sensorium.client.client import Client
from sensorium.client.subscription import Stats
from sensorium.errors import StreamError, UsageError, printable
from sensorium.readings import Sample
from sensorium.wire.keyfiles import TOKEN_VARIABLE, find_keys, find_token

LINES_EVERY = 1.0
"""Seconds between two lines of a sensor if there is no live table."""
NO_SENSOR = ("a SENSOR argument as well", "Name a sensor after ADDRESS, or omit the option.")
"""Error texts for options that apply to samples if no sensor is given."""


OF_SAMPLES = ("env", "every", "max_rate", "policy", "truth", "count", "seconds")
"""Options that have no effect if no sensor is given."""


@dataclass(frozen=True, slots=True)
class Options:
    """Sensors to listen to, and how.

    Args:
        address: address of the server.
        sensors: names of the sensors; empty for a list of the available sensors.
        env: the only environment; None for all.
        every: use only every n-th sample.
        max_rate: maximum number of samples per second of wall clock; 0 for no limit.
        policy: see `RemoteSensor.listen`.
        truth: whether to include the ground truth.
        count: number of samples of each sensor before the end; 0 for no limit.
        seconds: wall clock time before the end, s; 0 for no limit.
        json: whether to print one line of JSON per sample.
        token_file: file with the token of the server; None uses the environment variable.
        server_key: public key of the server.
        key_file: file with the keys of this client.
        timeout: longest wait for the connection to the server, s.

    Raises:
        UsageError: a number is negative or not finite, or the key of the server is missing.
    """

    address: str
    sensors: tuple[str, ...] = ()
    env: int | None = None
    every: int = 1
    max_rate: float = 0.0
    policy: Policy = "latest"
    truth: bool = False
    count: int = 0
    seconds: float = 0.0
    json: bool = False
    token_file: Path | None = None
    server_key: str = ""
    key_file: Path | None = None
    timeout: float = 5.0

    def __post_init__(self) -> None:
        for name in ("max_rate", "count", "seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError.of(option_of(name), getattr(self, name), "a number >= 0", "0 means no limit.")
        if self.key_file is not None and not self.server_key:
            fix = "Add --server-key KEY, which the server prints. Omit both if the server has no keys."
            raise UsageError.of("--keys", str(self.key_file), "--server-key as well", fix)

    def refuse_of_samples(self, expected: str, fix: str) -> None:
        """Reject options that have no effect because no samples are shown.

        Args:
            expected: accepted alternative.
            fix: suggested correction.

        Raises:
            UsageError: names the first such option.
        """
        defaults = {field.name: field.default for field in fields(self)}
        for name in OF_SAMPLES:
            if (value := getattr(self, name)) != defaults[name]:
                raise UsageError.of(option_of(name), value, expected, fix)

    def keys(self) -> tuple[str, str] | None:
        """Return the (public, secret) key of this client from its file, which is created if it does not exist.

        Raises:
            UsageError: the file contains no keys, or other users can read it.
        """
        with UsageError.naming(file="--keys"):
            return None if self.key_file is None else find_keys(self.key_file)

    def connect(self, name: str) -> Client:
        """Return a connected client.

        Args:
            name: name of the client in messages of the server.

        Raises:
            StreamError: no server answers, or the server refuses; the message suggests a correction.
            UsageError: the address, a key, the time-out or a file is invalid.
        """
        options = {"address": "ADDRESS", "file": "--token-file", "timeout": "--timeout", "server_key": "--server-key"}
        with UsageError.naming(**options):
            token = find_token(self.token_file)
            try:
                return Client(
                    self.address, name=name, token=token, server_key=self.server_key, keys=self.keys(),
                    timeout=self.timeout,
                )  # fmt: skip
            except StreamError as error:
                text = str(error)
                if "token" in text:
                    text = f"the server at {self.address} refused: the token is {'wrong' if token else 'missing'}. "
                    text += f"Use --token-file FILE or the environment variable {TOKEN_VARIABLE}."
                elif "key" in text or self.server_key:
                    text += " If the server has keys, pass the key that it prints as --server-key KEY. Else omit it."
                raise StreamError(text) from None


def option_of(name: str) -> str:
    """Return the command line option of a field."""
    return f"--{name.replace('_', '-')}"


class Monitor:
    """Listener of several sensors that keeps the newest sample of each.

    Args:
        client: the client.
        options: sensors to listen to, and how.
        on_sample: function called with each sample and the statistics of its subscription. Calls are made on the
            threads of the listeners, one at a time. An `OSError` that it raises, e.g. for a broken pipe, ends the
            monitor.

    Raises:
        UnknownNameError: the server has no such sensor; the message suggests the nearest name.
        UsageError: the sensor does not support an option.
    """

    def __init__(
        self, client: Client, options: Options, on_sample: Callable[[Sample, Stats], None] = lambda *_: None
    ) -> None:
        self.client, self.options = client, options
        self.newest: dict[str, Sample] = {}
        """Newest sample of each sensor, by name."""
        self._on_sample = on_sample
        self._failure: OSError | None = None
        self._changed = threading.Condition()
        self._connected = True
        self.names = list(dict.fromkeys(options.sensors))
        """Names of the sensors."""
        self.sensors = {name: client.sensors[name] for name in self.names}  # find all before listening to the first
        """The sensors by name."""
        for name, sensor in self.sensors.items():
            envs = sensor.info.num_envs
            if options.env is not None and not -envs <= options.env < envs:
                fix = f"{name!r} has {envs} env{'s' if envs > 1 else ''}. Omit the option for all."
                raise UsageError.of("--env", options.env, f"0 to {envs - 1}", fix)
        for sensor in self.sensors.values():
            with UsageError.naming(name="SENSOR", every="--every"):
                sensor.listen(
                    self._take, policy=options.policy, every=options.every, max_rate=options.max_rate or None,
                    envs=options.env, truth=options.truth,
                )  # fmt: skip

    def _take(self, data: Sample) -> None:
        sensor, stats = self.sensors[data.sensor], self.sensors[data.sensor].stats
        with self._changed:
            if self._failure is not None:
                return
            self.newest[data.sensor] = data
            try:
                self._on_sample(data, stats)
            except OSError as error:
                self._failure = error
            if stats.received == self.options.count:
                sensor.stop()
            self._changed.notify_all()

    def state(self, name: str) -> str:
        """Return the reason why no data of a sensor arrive; empty if they do."""
        sensor = self.sensors[name]
        if sensor.is_listening:
            return "" if self._connected else "no server"
        return f"ended: {sensor.why_ended}" if sensor.why_ended else "done"

    def watch(self, refresh: Callable[[], None], say: Callable[[str], None], every: float) -> None:
        """Wait until all listening has ended or the time limit is reached.

        Args:
            refresh: function that shows the current state.
            say: function that takes messages about the connection.
            every: seconds between two refreshes.

        Raises:
            StreamError: the server ended a sensor, or fewer than `count` samples arrived in time.
            OSError: raised by `on_sample`.
        """
        address, seconds = self.client.address, self.options.seconds
        end = time.monotonic() + seconds if seconds else float("inf")

        def is_over() -> bool:
            return self._failure is not None or not any(sensor.is_listening for sensor in self.sensors.values())

        while True:
            with self._changed:
                self._changed.wait_for(is_over, max(0.0, min(every, end - time.monotonic())))
            if self._failure is not None:
                raise self._failure
            before, self._connected = self._connected, self.client.is_connected
            if self._connected and not before:
                say(f"the server at {address} is back; listening continues")
            elif before and not self._connected:
                say(f"the server at {address} does not answer; waiting until it is back (Ctrl-C to stop)")
            refresh()
            if is_over() or time.monotonic() >= end:
                break
        for name in self.names:
            sensor, taken, count = self.sensors[name], self.sensors[name].stats.received, self.options.count
            if sensor.why_ended:
                raise StreamError(f"listening to {name!r} ended: {sensor.why_ended}")
            if taken < count:
                text = f"{taken} of {count} samples of {name!r} arrived within {self.options.seconds:g} s."
                raise StreamError(f"{text} Does the simulation run? In lock-step it runs when a client steps it.")


def newest_json(monitor: Monitor, name: str) -> str:
    """Return the newest sample of a sensor as one line of JSON."""
    data, stats = monitor.newest.get(name), monitor.sensors[name].stats
    return f"{name}: {monitor.state(name) or 'waiting'}" if data is None else show.as_json(data, stats)


def listen(
    options: Options, out: TextIO, say: Callable[[str], None], name: str, line: Callable[[Monitor, str], str]
) -> None:
    """Listen as `options` specify, and print plain lines: a table of the available sensors, a line per second, or JSON.

    Args:
        options: sensors to listen to, and how.
        out: stream for the lines.
        say: function that takes messages about the connection.
        name: name of this client in messages of the server.
        line: function that returns the line of a sensor for each second.

    Raises:
        SensoriumError: see the messages.
        OSError: the lines cannot be written.
    """

    def write(text: str) -> None:
        out.write(f"{printable(text)}\n")
        out.flush()

    if not options.sensors:
        options.refuse_of_samples(*NO_SENSOR)
    with options.connect(name) as client:
        if not options.sensors:
            streams = client.streams.values()
            if options.json:
                for info in streams:
                    write(show.description_json(info))
            else:
                write(about(client))
                write(show.table(show.CATALOGUE_HEADINGS, list(show.catalogue(streams))))
            return
        if options.json:
            monitor = Monitor(client, options, lambda *sample: write(show.as_json(*sample)))
            monitor.watch(lambda: None, say, 0.2)
        else:
            monitor = Monitor(client, options)

            def refresh() -> None:
                for name in monitor.names:
                    write(line(monitor, name))

            monitor.watch(refresh, say, LINES_EVERY)


def about(client: Client) -> str:
    """Return a one-line description of the simulation that a server serves."""
    description = client.description
    mode = "lock-step" if client.is_lockstep else "free-running"
    envs = f"{description.num_envs} env{'s' if description.num_envs > 1 else ''}"
    return f"{client.address}: {description.engine}, {envs}, {description.dt * 1e3:.4g} ms per tick, {mode}"


def to_stderr(text: str) -> None:
    """Print a message to stderr, separate from the results."""
    print(printable(text), file=sys.stderr, flush=True)
