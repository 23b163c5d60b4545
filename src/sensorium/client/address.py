"""Address of a server, its keys, and the reason why no server answers there."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from sensorium.client import checks
from sensorium.errors import ConfigError
from sensorium.wire.keyfiles import is_key


def check_address(address: str) -> str:
    """Return a valid address.

    Raises:
        ConfigError: the address is invalid.
    """
    expected = "'tcp://HOST:PORT' or 'ipc:///path/of/a/socket', as the server prints it"
    scheme, separator, rest = checks.text("connect", "address", address, expected).partition("://")
    host, _, port = rest.rpartition(":")
    right = bool(separator and rest) and scheme in ("tcp", "ipc", "inproc")
    if scheme == "tcp":
        is_number = bool(host) and port.isascii() and port.isdigit()
        if is_number and (len(port) > 5 or not 0 < int(port) < 65536):
            right, expected = False, "'tcp://HOST:PORT' with a port of 1 to 65535"
        right = right and is_number
    if not right:
        raise ConfigError.single("connect", "address", address, expected, "For example 'tcp://127.0.0.1:7447'.")
    return address


def why_silent(address: str) -> str:
    """Return the reason why no server answers at an address."""
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


def key_giver(server_key: str, keys: tuple[str, str] | None) -> Callable[[Any], None]:
    """Return a function that sets the keys of a socket.

    Args:
        server_key: public key of the server; empty if the server has none.
        keys: (public, secret) key of the client; None generates a new pair.

    Raises:
        ConfigError: a key is invalid, or the key of the server is missing.
    """

    def prepare(socket: Any) -> None:
        if not server_key:
            return
        import zmq

        public, secret = keys if keys is not None else zmq.curve_keypair()
        socket.curve_serverkey = server_key.encode()
        socket.curve_publickey = public.encode() if isinstance(public, str) else public
        socket.curve_secretkey = secret.encode() if isinstance(secret, str) else secret

    if keys is not None and not (isinstance(keys, tuple | list) and len(keys) == 2):
        expected = "a pair of the public and the secret key of this client, or None"
        raise ConfigError.single("connect", "keys", checks.HIDDEN, expected)
    for text in (server_key, *(keys or ())):
        if text != "" and not is_key(text):
            raise ConfigError.single("connect", "keys", checks.HIDDEN, "keys of 40 characters")
    if keys is not None and not server_key:
        raise ConfigError.single("connect", "keys", "keys of this client", "the server's key as well: server_key=...")
    return prepare
