"""Files with a token or keys. They keep secrets off command lines, which every user of the machine can read."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Callable
from pathlib import Path

from sensorium.errors import ConfigError, SensoriumError, StreamError

TOKEN_VARIABLE = "SENSORIUM_TOKEN"
"""Environment variable with the token, used if no file is given."""
KEY_CHARACTERS = 40
"""Length of a key as text (Z85)."""


def find_token(path: Path | None, *, make: bool = False) -> str:
    """Return the token from a file, else from the environment variable ``SENSORIUM_TOKEN``; empty if there is none.

    Args:
        path: file that contains only the token.
        make: create a missing file with a new token, readable only by its owner.

    Raises:
        ConfigError: the file cannot be read, contains no token, or is readable by other users.
    """
    if path is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip()
    token = _read("token", path, (lambda: f"{secrets.token_urlsafe(32)}\n") if make else None).strip()
    if not token or any(character.isspace() for character in token):
        raise ConfigError.single("token", "file", str(path), "a file with one word, the token")
    return token


def find_keys(path: Path) -> tuple[str, str]:
    """Return (public, secret) key from a file; create a missing file, readable only by its owner.

    Raises:
        ConfigError: the file cannot be read, contains no keys, or is readable by other users.
        StreamError: the installed libzmq was built without CURVE.
    """
    text = _read("keys", path, _new_file)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        values = {}
    public, secret = values.get("public"), values.get("secret")
    if not (isinstance(public, str) and isinstance(secret, str) and len(public) == len(secret) == KEY_CHARACTERS):
        expected = f'lines public = "..." and secret = "...", keys of {KEY_CHARACTERS} characters'
        raise ConfigError.single("keys", "file", str(path), expected, "To create new keys, name a new file.")
    return public, secret


def new_keys() -> tuple[str, str]:
    """Return new keys: public and secret.

    Raises:
        StreamError: the installed libzmq was built without CURVE.
    """
    import zmq

    if not zmq.has("curve"):
        raise StreamError("the installed libzmq does not support CURVE keys. Install the wheel of pyzmq.")
    while True:
        public, secret = zmq.curve_keypair()
        if not public.startswith(b"-"):  # a shell command would read the key as an option
            return public.decode(), secret.decode()


def is_key(text: object) -> bool:
    """Return whether a text is a key."""
    from zmq.utils import z85

    try:
        return isinstance(text, str) and len(text) == KEY_CHARACTERS and len(z85.decode(text.encode())) == 32
    except (ValueError, KeyError, UnicodeEncodeError):
        return False


def _new_file() -> str:
    public, secret = new_keys()
    return f"public = '{public}'  # for the other side\nsecret = '{secret}'  # never share it\n"


def _read(what: str, path: Path, make: Callable[[], str] | None) -> str:
    """Return the contents of a file, after checking that only its owner can read it."""

    def wrong(expected: str, fix: str = "") -> SensoriumError:
        return ConfigError.single(what, "file", str(path), expected, fix)

    try:
        if make is not None and not path.exists():
            text = make()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(text)
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise wrong("a file that only its owner can read", f"Run chmod 600 {path}.")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        place = "It does not exist." if path.parent.is_dir() else f"The folder {str(path.parent)!r} does not exist."
        raise wrong("a readable file", place) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise wrong("a readable file", f"{reason}.") from error
