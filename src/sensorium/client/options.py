"""What to listen to, and how, as it is given on a command line; errors name the options as they are typed there."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from sensorium.client.address import check_address
from sensorium.client.checks import Policy
from sensorium.client.client import Client
from sensorium.errors import StreamError, UsageError
from sensorium.wire.keyfiles import KEY_CHARACTERS, TOKEN_VARIABLE, find_keys, find_token, is_key

OF_SAMPLES = ("env", "every", "max_rate", "policy", "truth", "count", "seconds")
"""Options that say nothing where no sensor is listened to."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to listen to, and how.

    Args:
        address: of the server.
        sensors: names; none for a list of what there is.
        env: the only environment; None for all.
        every: only each n-th sample.
        max_rate: most samples per second of the wall clock; 0 for all.
        policy: see `RemoteSensor.listen`.
        truth: with the ground truth.
        count: samples of each sensor after which it ends; 0 for no end.
        seconds: wall clock after which it ends, s; 0 for no end.
        json: one line of JSON for each sample.
        token_file: file with the server's token; None takes the environment variable.
        server_key: the server's public key.
        key_file: file with this client's keys.
        timeout: longest wait for the server at first, s.
        shared_memory: read large data from shared memory, where the server is on this machine.

    Raises:
        UsageError: an address or key that is none, or a number out of range.
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
    shared_memory: bool = True

    def __post_init__(self) -> None:
        with UsageError.naming(address="ADDRESS"):
            check_address(self.address)
        if self.every < 1:
            raise UsageError.of("--every", self.every, "a whole number >= 1", "1 is for all samples.")
        for name in ("max_rate", "count", "seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError.of(option_of(name), getattr(self, name), "a number >= 0", "0 is for no limit.")
        if not 0.0 < self.timeout < float("inf"):
            raise UsageError.of("--timeout", self.timeout, "a finite number of seconds > 0")
        if self.server_key and not is_key(self.server_key):
            expected = f"a key of {KEY_CHARACTERS} characters, as the server prints it"
            raise UsageError.of("--server-key", self.server_key, expected)
        if self.key_file is not None and not self.server_key:
            fix = "Add --server-key KEY, which the server prints; leave both out where it has none."
            raise UsageError.of("--keys", str(self.key_file), "--server-key beside it", fix)

    def refuse_of_samples(self, expected: str, fix: str) -> None:
        """Refuse options that would be without effect, where no samples are shown.

        Args:
            expected: what would do instead.
            fix: what to change.

        Raises:
            UsageError: naming the first of them.
        """
        defaults = {field.name: field.default for field in fields(self)}
        for name in OF_SAMPLES:
            if (value := getattr(self, name)) != defaults[name]:
                raise UsageError.of(option_of(name), value, expected, fix)

    def keys(self) -> tuple[str, str] | None:
        """Return (public, secret) key of this client, out of its file, which is made where it does not exist.

        Raises:
            UsageError: a file that holds none, or that others can read.
        """
        with UsageError.naming(file="--keys"):
            return None if self.key_file is None else find_keys(self.key_file)

    def connect(self, name: str) -> Client:
        """Return a client that is connected.

        Args:
            name: what the server calls it.

        Raises:
            StreamError: nobody answers, or the server refuses; with what to do.
            UsageError: a file that is none.
        """
        keys = self.keys()
        with UsageError.naming(file="--token-file"):
            token = find_token(self.token_file)
        try:
            return Client(
                self.address,
                name=name,
                token=token,
                server_key=self.server_key,
                keys=keys,
                timeout=self.timeout,
                shared_memory=self.shared_memory,
            )
        except StreamError as error:
            text = str(error)
            if "token" in text:
                where = f"--token-file FILE, or the environment variable {TOKEN_VARIABLE}"
                text = f"the server at {self.address} refused: the token is {'wrong' if token else 'missing'}. "
                text += f"Give the server's: {where}."
            elif "keys" in text:
                text += ". Give --server-key KEY, as the server prints it, where it has keys, else none"
            elif self.server_key:
                text += " A server without keys, or with other ones, does not answer to --server-key."
            raise StreamError(text) from None


def option_of(name: str) -> str:
    """Return how a field is typed."""
    return f"--{name.replace('_', '-')}"


__all__ = ["Options", "option_of"]
