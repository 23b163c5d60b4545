"""Address of a server, its keys, and the reason why no server answers there."""

from __future__ import annotations

import socket

from sensorium.client import checks
from sensorium.errors import ConfigError
from sensorium.wire.keyfiles import KEY_CHARACTERS, is_key, new_keys


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
        return f"the host {host!r} is unknown"
    except FileNotFoundError:
        return "the socket file does not exist"
    except ConnectionRefusedError:
        return "no program listens there"
    except OSError as error:
        return f"the address is unreachable ({error.strerror or error})"
    return "the program that listens there is not a sensorium server, or does not respond"


def key_options(server_key: str, keys: tuple[str, str] | None) -> dict[str, bytes]:
    """Return the keys as options of a socket.

    Args:
        server_key: public key of the server; empty if the server has none.
        keys: (public, secret) key of the client; None generates a new pair.

    Raises:
        ConfigError: a key is invalid, or the key of the server is missing.
    """
    if server_key != "" and not is_key(server_key):
        expected = f"a key of {KEY_CHARACTERS} characters, as the server prints it"
        raise ConfigError.single("connect", "server_key", checks.HIDDEN, expected)
    if keys is not None:
        if not (isinstance(keys, tuple | list) and len(keys) == 2 and all(map(is_key, keys))):
            expected = f"the public and the secret key of this client, {KEY_CHARACTERS} characters each, or None"
            raise ConfigError.single("connect", "keys", checks.HIDDEN, expected)
        if not server_key:
            fix = "Add server_key=..., with the key that the server prints."
            raise ConfigError.single("connect", "keys", checks.HIDDEN, "the key of the server as well", fix)
    if not server_key:
        return {}
    public, secret = keys or new_keys()
    names = ("curve_serverkey", "curve_publickey", "curve_secretkey")
    return dict(zip(names, map(str.encode, (server_key, public, secret)), strict=True))
