"""The page's web server: viser, open to this machine only, or to browsers with the token."""

from __future__ import annotations

import contextlib
import hmac
import io
import ipaddress
import logging
import secrets
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from sensorium.errors import ConfigError, MissingDependencyError

COOKIE = "sensorium-view"


def import_viser() -> Any:
    """Return the package viser.

    Raises:
        MissingDependencyError: the extra `view` is not installed.
    """
    try:
        import viser
    except ImportError as error:
        raise MissingDependencyError(
            f"The live view needs {error.name}, which is not installed: pip install 'sensorium[view]'."
        ) from None
    return viser


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host name."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str) -> None:
    """Raise an error if a page cannot listen at an address.

    Raises:
        ConfigError: the address is not one of this machine.
    """
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        fix = f"The system reports: {error.strerror or error}. 0.0.0.0 stands for all addresses of this machine."
        raise ConfigError.single("view", "host", host, "an address of this machine", fix) from None


def checked_token(host: str, token: str) -> str:
    """Return the token of a page; a page beyond this machine has one, by default a random one.

    Raises:
        ConfigError: the token has characters that a URL must escape.
    """
    if token and not (token.isascii() and token.replace("-", "").replace("_", "").isalnum()):
        raise ConfigError.single("view", "token", "(hidden)", "letters, digits, - and _")
    return token or ("" if is_loopback(host) else secrets.token_urlsafe(16))


def serve(host: str, port: int, token: str, title: str) -> Any:
    """Return a running `viser.ViserServer`; pages of other origins are refused, and all pages without the token.

    Args:
        host: address to bind to.
        port: port; the next free one is taken, 0 for any.
        token: token that the URL must have; empty for none.
        title: title of the page's panel.

    Raises:
        MissingDependencyError: viser is not installed.
    """
    viser = import_viser()
    import websockets.asyncio.server as sockets

    opened = sockets.serve

    def guarded(handler: Any, *place: Any, process_request: Callable[[Any, Any], Any], **options: Any) -> Any:
        def check(connection: Any, request: Any) -> Any:
            if not _is_allowed(request, token):
                return connection.respond(HTTPStatus.FORBIDDEN, "Use the address that contains the token.\n")
            response = process_request(connection, request)
            if token and response is not None:
                response.headers["Set-Cookie"] = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
            return response

        return opened(handler, *place, process_request=check, **options)

    logging.getLogger("websockets.server").setLevel(logging.CRITICAL)  # browsers close connections as they like
    with mock.patch.object(sockets, "serve", guarded), _silent():
        return viser.ViserServer(host=host, port=port, label=title, verbose=False)


def _is_allowed(request: Any, token: str) -> bool:
    """Return whether a request has the token and does not come from a page of another origin."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        return False
    if not token:
        return True
    cookie: SimpleCookie = SimpleCookie()
    with contextlib.suppress(CookieError):
        cookie.load(request.headers.get("Cookie", ""))
    given = [
        *parse_qs(urlsplit(request.path).query).get("token", []),
        *(m.value for m in cookie.values() if m.key == COOKIE),
    ]
    return any(hmac.compare_digest(each.encode(), token.encode()) for each in given)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Suppress viser's own report of its address."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
