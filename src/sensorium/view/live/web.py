"""The page's web server: viser, open to this machine only, or to browsers with the token."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import io
import logging
import secrets
import socket
from collections.abc import Callable
from email.message import Message
from email.parser import BytesParser
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sensorium.errors import ConfigError, MissingDependencyError, SensoriumError
from sensorium.stream.security import is_loopback

COOKIE = "sensorium-view"
MAX_HEAD = 16 * 1024
"""Maximum size of the head of a request, bytes."""
HEAD_S = 10.0
"""Longest wait for it, s."""


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

    Viser has no setting for this. It asks asyncio for a new event loop, so a loop that checks the head of each request
    before viser sees the connection guards its only port.

    Args:
        host: address to bind to.
        port: port; the next free one is taken, 0 for any.
        token: token that the URL must have; empty for none.
        title: title of the page's panel.

    Raises:
        MissingDependencyError: viser is not installed.
        SensoriumError: this version of viser uses another event loop.
    """
    viser = import_viser()
    logging.getLogger("websockets.server").setLevel(logging.CRITICAL)  # browsers close connections as they like
    before = asyncio.new_event_loop
    asyncio.new_event_loop = lambda: _GuardedLoop(token)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # viser reports an address without the token
            server = viser.ViserServer(host=host, port=port, label=title, verbose=False)
    finally:
        asyncio.new_event_loop = before
    if not isinstance(server.get_event_loop(), _GuardedLoop):
        server.stop()
        raise SensoriumError(f"the page cannot be protected with viser {viser.__version__}. Install viser 1.1.")
    return server


class _GuardedLoop(asyncio.SelectorEventLoop):
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token
        self._waiting: set[asyncio.Transport] = set()
        """Connections without a complete request."""

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        return await super().create_server(
            lambda: _Guard(protocol_factory, self._token, self._waiting), *args, **options
        )

    def close(self) -> None:
        for transport in list(self._waiting):
            transport.abort()
        self.call_soon(self.stop)
        self.run_forever()  # the connections are closed in its next iteration
        super().close()


class _Guard(asyncio.Protocol):
    """Reader of the head of a request; it refuses the connection or hands it over.

    Viser answers one request per connection, so that no later request of a connection needs a check.

    Args:
        inner: returns the protocol that takes the connection.
        token: token that a request must have; empty for none.
        waiting: connections without a complete request.
    """

    def __init__(self, inner: Callable[[], asyncio.Protocol], token: str, waiting: set[asyncio.Transport]) -> None:
        self._inner, self._token, self._waiting, self._received = inner, token, waiting, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._waiting.add(transport)
        self._timer = asyncio.get_running_loop().call_later(HEAD_S, transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._waiting.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._received += data
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD:
            self._answer("431 Request Header Fields Too Large", "")
            return
        if not end:
            return
        self._timer.cancel()
        line, _, rest = head.partition(b"\r\n")
        path = line.decode("latin-1").split(" ")[1:2]
        port = self._transport.get_extra_info("sockname")[1]
        refusal, cookie = _judged("".join(path), BytesParser().parsebytes(rest), self._token, port)
        if refusal:
            self._answer("403 Forbidden", "", refusal)
        elif cookie:  # the page continues with the cookie alone, so that the token leaves the address
            self._answer("303 See Other", f"Location: /\r\nSet-Cookie: {cookie}\r\n")
        else:
            self._waiting.discard(self._transport)
            inner = self._inner()
            self._transport.set_protocol(inner)
            inner.connection_made(self._transport)
            inner.data_received(self._received)

    def _answer(self, status: str, headers: str, text: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        self._transport.write(f"{head}{text}".encode())
        self._transport.close()


def _judged(path: str, headers: Message, token: str, port: int) -> tuple[str, str]:
    """Return the reason to refuse a request, and the cookie to set for one whose address has the token.

    Without a token, the host must be a name of this machine: a foreign name that resolves to this machine is an attack
    by a page of that name.
    """
    host, origin = headers.get("Host", ""), headers.get("Origin")
    try:
        name, query = urlsplit(f"//{host}").hostname or "", parse_qs(urlsplit(path).query)
        if origin is not None and urlsplit(origin).netloc != host:
            return "A page of another origin cannot connect.\n", ""
    except ValueError:
        return "The request is invalid.\n", ""
    if not token:
        return ("" if is_loopback(name) else "Use localhost or 127.0.0.1 as the host of the address.\n"), ""
    key = f"{COOKIE}-{port}"  # cookies are shared by all ports of a host
    cookie: SimpleCookie = SimpleCookie()
    with contextlib.suppress(CookieError):
        cookie.load(headers.get("Cookie", ""))
    if key in cookie and _is_same(cookie[key].value, token):
        return "", ""
    if any(_is_same(each, token) for each in query.get("token", [])):
        return "", "" if headers.get("Upgrade") else f"{key}={token}; HttpOnly; SameSite=Strict; Path=/"
    return "Use the address that contains the token.\n", ""


def _is_same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
