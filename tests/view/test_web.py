"""Access to the page: its token, and pages of other origins and hosts, on every port that it opens."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import viser

import sensorium as sn
from sensorium.view.live.web import check_host, checked_token, serve

UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}  # fmt: skip


def listening() -> set[int]:
    """Return the TCP ports on which this process listens."""
    inodes = set()
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(file.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


@contextlib.contextmanager
def served(token: str) -> Iterator[set[int]]:
    """Serve a page; yield all ports that are opened for it."""
    before = listening()
    server = serve("127.0.0.1", 0, token, "test")
    ports = listening() - before
    try:
        with socket.create_connection(("127.0.0.1", min(ports))):  # it sends nothing, and is closed at the end
            yield ports
            server.stop()
    finally:
        server.stop()


def answer(port: int, path: str = "/", **headers: str) -> tuple[int, str]:
    """Return the status of a request, and the cookie that it sets."""
    headers = {"Host": f"127.0.0.1:{port}", **headers}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value), "", ""]
    with socket.create_connection(("127.0.0.1", port), timeout=30.0) as connection:
        connection.sendall("\r\n".join(lines).encode())
        received = b""
        while b"\r\n\r\n" not in received and (part := connection.recv(65536)):
            received += part
    head = received.partition(b"\r\n\r\n")[0].decode()
    return int(head.split()[1]), head.partition("Set-Cookie: ")[2].partition(";")[0]


def test_a_page_needs_no_event_loop_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.16 has none. A version of viser that makes its event loop in another way is refused."""
    make = asyncio.new_event_loop
    monkeypatch.setattr(asyncio, "set_event_loop_policy", None)
    with served("secret-1") as ports:
        assert answer(*ports)[0] == 403
    assert asyncio.new_event_loop is make
    monkeypatch.setattr(viser.ViserServer, "get_event_loop", lambda _: None)
    before = listening()
    with pytest.raises(sn.SensoriumError, match="viser"):
        serve("127.0.0.1", 0, "", "test")
    assert listening() == before


def test_only_requests_with_the_token_are_answered() -> None:
    """Each port of the process refuses a missing or wrong token, a foreign origin, and their websockets."""
    with served("secret-1") as ports:
        assert ports
        for port in ports:
            for extra in ({}, UPGRADE):
                assert answer(port, **extra)[0] == 403 == answer(port, "/?token=other", **extra)[0]
                assert answer(port, "/assets/x.js", Cookie=f"sensorium-view-{port}=other", **extra)[0] == 403
                for origin in ("http://evil.example", f"http://127.0.0.1:{port + 1}", "null"):
                    assert answer(port, "/?token=secret-1", Origin=origin, **extra)[0] == 403
            code, cookie = answer(port, "/?token=secret-1", Origin=f"http://127.0.0.1:{port}")
            assert code == 303 and cookie  # the token leaves the address
            assert answer(port, Cookie=cookie)[0] == 200
            assert answer(port, Cookie=cookie, Origin=f"http://127.0.0.1:{port}", **UPGRADE)[0] == 101
            assert answer(port, "/" + 20_000 * "a")[0] == 431


def test_without_a_token_only_names_of_this_machine_are_hosts() -> None:
    """A foreign name that resolves to this machine is refused, also with its own origin (DNS rebinding)."""
    with served("") as ports:
        for port in ports:
            for extra in ({}, UPGRADE):
                for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example", "[::1"):
                    assert answer(port, Host=host, Origin=f"http://{host}", **extra)[0] == 403
                assert answer(port, Origin="http://evil.example", **extra)[0] == 403
            for host in (f"localhost:{port}", f"127.0.0.1:{port}", "[::1]"):
                assert answer(port, Host=host, Origin=f"http://{host}")[0] == 200


def test_a_page_for_other_machines_has_a_token() -> None:
    assert checked_token("127.0.0.1", "") == "" == checked_token("localhost", "")
    assert len(checked_token("0.0.0.0", "")) > 20
    with pytest.raises(sn.ConfigError, match="token"):
        checked_token("127.0.0.1", "a b")


def test_a_page_listens_at_an_address_of_this_machine() -> None:
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        check_host(host)
    for host in ("256.1.1.1", "192.0.2.1"):  # the latter is reserved for documentation
        with pytest.raises(sn.ConfigError, match=f"view.host: got '{host}'"):
            check_host(host)
