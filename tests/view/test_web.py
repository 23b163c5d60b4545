"""Access to the page: its token, and pages of other origins."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import sensorium as sn
from sensorium.view.live.web import check_host, checked_token, serve


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    found = serve("127.0.0.1", 0, "secret-1", "test")
    yield found
    found.stop()


def status(server: Any, path: str, **headers: str) -> tuple[int, str]:
    """Return the status of a request, and the cookie that it sets."""
    request = urllib.request.Request(f"http://127.0.0.1:{server.get_port()}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers.get("Set-Cookie", "").partition(";")[0]
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_only_requests_with_the_token_are_answered(server: Any) -> None:
    assert status(server, "/")[0] == 403 == status(server, "/?token=other")[0]
    assert status(server, "/", Cookie="sensorium-view=other")[0] == 403
    code, cookie = status(server, "/?token=secret-1")
    assert code == 200 and status(server, "/", Cookie=cookie)[0] == 200


def test_pages_of_other_origins_are_refused(server: Any) -> None:
    own = f"http://127.0.0.1:{server.get_port()}"
    assert status(server, "/?token=secret-1", Origin="http://example.com")[0] == 403
    assert status(server, "/?token=secret-1", Origin=own)[0] == 200


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
