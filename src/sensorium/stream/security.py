"""Access to a server: addresses, tokens and keys.

Without a token or keys, a server only listens to this machine: loopback addresses, ipc files of this user, inproc. A
token excludes unknown clients, but is sent in clear text. Keys (CURVE) encrypt all messages and let clients verify the
server. With `allowed_keys` the server also verifies the clients.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import zmq

from sensorium.errors import ConfigError, SensoriumWarning
from sensorium.wire.address import split
from sensorium.wire.keyfiles import is_key, new_keys


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Keys of one side, as text of 40 characters (Z85).

    Args:
        public: key that is passed to the other side.
        secret: key that must be kept secret.
    """

    public: str
    secret: str = field(repr=False)

    @classmethod
    def generate(cls) -> KeyPair:
        """Return new keys.

        Raises:
            StreamError: the installed libzmq was built without CURVE.
        """
        return cls(*new_keys())


@dataclass(frozen=True, slots=True)
class Credentials:
    """Required credentials of clients.

    Args:
        token: required token; empty for none.
        keys: the server's keys; None for unencrypted messages.
        allowed_keys: public keys of the clients that may connect; empty for all clients that know the server's public
            key.

    Raises:
        ConfigError: a key is invalid, or allowed keys are given without keys.
    """

    token: str = field(default="", repr=False)
    keys: KeyPair | None = None
    allowed_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.token, str):
            raise ConfigError.single("serve", "token", "(not shown)", "text, or an empty string")
        if not isinstance(self.keys, KeyPair | None):
            raise ConfigError.single("serve", "keys", "(not shown)", "a KeyPair", "Create one with KeyPair.generate().")
        if self.allowed_keys and self.keys is None:
            raise ConfigError.single("serve", "allowed_keys", self.allowed_keys, "keys as well", "Set keys=...")
        for key in self.allowed_keys:
            check_key("serve", "allowed_keys", key)
        if self.keys is not None:
            check_key("serve", "keys", self.keys.public)
            check_key("serve", "keys", self.keys.secret)

    def admits(self, token: str) -> bool:
        """Return whether a client's token is right, in a time independent of its content."""
        return not self.token or hmac.compare_digest(self.token.encode(), token.encode("utf-8", "surrogatepass"))

    def check(self, addresses: Sequence[str]) -> None:
        """Reject addresses reachable from other machines without a token or keys; warn about open access.

        Raises:
            ConfigError: an address lacks a token or keys.
        """
        for address in addresses:
            scheme, host = split("stream", address)
            if scheme != "tcp" or is_loopback(host):
                continue
            if not self.token and self.keys is None:
                expected = "a loopback address such as 'tcp://127.0.0.1:7447', or a token or keys"
                fix = "Others could read the sensors and move the robot. Set token=... or keys=KeyPair.generate()."
                raise ConfigError.single("serve", "address", address, expected, fix)
            is_everywhere = reaches_all(host)
            where = "all network interfaces of this machine" if is_everywhere else f"{host}"
            if self.keys is None:
                risk = "Clients with the token can read the sensors and move the robot. Set keys to encrypt the data"
            elif not (self.token or self.allowed_keys):
                risk = (
                    "Any client with the public key can read sensors and move the robot. Set allowed_keys to prevent it"
                )
            else:
                risk = "Only clients with the right keys or token can connect"
            if self.keys is None or is_everywhere or not (self.token or self.allowed_keys):
                warnings.warn(f"The server listens at {where} ({address}). {risk}.", SensoriumWarning, stacklevel=4)

    def prepare(self, context: zmq.Context[Any], router: Any) -> Callable[[], None]:
        """Set the keys of a socket before it is bound; return a function that ends the check of client keys."""
        if self.keys is None:
            return lambda: None
        router.curve_server = True
        router.curve_secretkey = self.keys.secret.encode()
        router.curve_publickey = self.keys.public.encode()
        if not self.allowed_keys:
            return lambda: None
        from zmq.auth.thread import ThreadAuthenticator

        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        allowed = {key.encode() for key in self.allowed_keys}
        provider: Any = SimpleNamespace(callback=lambda domain, key: key in allowed)
        authenticator.configure_curve_callback("*", credentials_provider=provider)
        return authenticator.stop


def check_key(config: str, name: str, key: str) -> None:
    """Raise `ConfigError` if a text is not a key."""
    if not is_key(key):
        expected = "a key of 40 characters from KeyPair.generate()"
        raise ConfigError.single(config, name, "(not shown)", expected)


def is_loopback(host: str) -> bool:
    """Return whether a host name or number is only reachable from this machine."""
    number = _number(host)
    return host == "localhost" or (number is not None and number.is_loopback)


def reaches_all(host: str) -> bool:
    """Return whether a host name or number stands for all network interfaces."""
    number = _number(host)
    if host == "*" or number is not None:
        return number is None or number.is_unspecified
    try:
        return socket.inet_aton(host) == bytes(4)  # "0" and other notations
    except OSError:
        return False


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
