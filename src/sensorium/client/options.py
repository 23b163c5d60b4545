"""Command line options for listening to sensors; errors name each option as the user types it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from sensorium.client.checks import Policy
from sensorium.client.client import Client
from sensorium.errors import StreamError, UsageError
from sensorium.wire.keyfiles import TOKEN_VARIABLE, find_keys, find_token

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


__all__ = ["Options", "option_of"]
