"""Access control and limits on requests; every refusal has a message."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from streaming import PATIENCE, Peer, build, connect, running, serving, until

import sensorium as sn
from sensorium.errors import ConfigError, SensoriumWarning, StreamError
from sensorium.stream.security import KeyPair, reaches_all
from sensorium.wire import messages as msg
from sensorium.wire.packing import CREDIT, Record

QUICK = {"columns": 0}


def test_default_address_is_loopback_and_others_require_a_token_or_keys() -> None:
    """The error states the required option; no socket was bound."""
    scene = build(**QUICK)
    for address in ("tcp://0.0.0.0:0", "tcp://*:0", "tcp://[::]:0", "tcp://192.168.1.7:0", "tcp://example.org:80"):
        with pytest.raises(ConfigError, match=r"token=.*keys="):
            sn.serve(scene, address)
    for address in ("tcp://127.0.0.1", "127.0.0.1:80", "udp://127.0.0.1:80", "tcp://127.0.0.1:99999", ""):
        with pytest.raises(ConfigError, match=r"tcp://HOST:PORT"):
            sn.serve(scene, address)
        with pytest.raises(ConfigError, match=r"tcp://HOST:PORT"):
            sn.connect(address)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for address in ("tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://127.0.0.2:0"):
            sn.serve(scene, address).close()


def has_ipv6() -> bool:
    """Return whether this machine can be reached at its IPv6 address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_server_listens_on_ipv6_if_available() -> None:
    """Without IPv6 an error says so."""
    if not has_ipv6():
        with pytest.raises(StreamError, match="::1"):
            sn.serve(build(), "tcp://[::1]:0")
        return
    with serving("tcp://[::1]:0", lockstep=True, world={"columns": 131072}) as server:
        with connect(server.address, shared_memory=False) as client:
            frames: list[int] = []
            client.sensors["sheet"].listen(lambda data: frames.append(data.frame), policy="lossless")
            last = client.step()
            until(lambda: frames and frames[-1] == last)


def test_non_socket_file_is_not_overwritten(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("all I have")
    for path in (precious, tmp_path):
        with pytest.raises(StreamError, match=r"not a socket.*another path"):
            sn.serve(build(), f"ipc://{path}")
    assert precious.read_text() == "all I have"


def test_message_too_long_for_the_server_is_refused_before_sending(caplog: pytest.LogCaptureFixture) -> None:
    """The client also stays connected."""
    with serving(lockstep=True, max_message=2**20) as server, connect(server.address) as client:
        with pytest.raises(StreamError, match=r"Control has 16\d+ bytes.*max_message"):
            client.control(np.zeros(200_000))
        with pytest.raises(StreamError, match=r"Set has \d+ bytes"):
            client.sensors["gauge"].set("vec_noise", np.zeros(300_000))
        assert client.step() and not caplog.records
        until(lambda: client.is_connected)


def test_many_long_messages_are_sent_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lockstep=True, max_message=2**20) as server, connect(server.address) as client:
        threads = [threading.Thread(target=steps, args=(client,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert client.step() and not caplog.records
        until(lambda: client.is_connected)


def steps(client: sn.Client) -> None:
    """Send controls just below the length limit, which the world does not use."""
    for _ in range(5):
        with pytest.raises(StreamError, match="no controls"):
            client.control(np.zeros(120_000))


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "0", "0x0", "::", "0:0::0"])
def test_all_interfaces_addresses_are_recognised_in_any_form(host: str) -> None:
    assert reaches_all(host)
    assert not reaches_all("127.0.0.1") and not reaches_all("::1") and not reaches_all("robot")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"token": "open sesame"}, "all network interfaces .* Set keys to encrypt"),
        ({"keys": KeyPair.generate()}, "all network interfaces .* Set allowed_keys"),
        ({"keys": KeyPair.generate(), "token": "t"}, "all network interfaces .* Only clients"),
    ],
)
def test_server_on_all_interfaces_warns(options: dict[str, Any], words: str) -> None:
    """The warning names the possible actions of others and the options that prevent them."""
    with pytest.warns(SensoriumWarning, match=words):
        sn.serve(build(**QUICK), "tcp://0.0.0.0:0", **options).close()


def test_client_without_the_token_is_refused() -> None:
    """No token, a wrong token and a prefix are refused with a message that never shows it; the right token works."""
    with serving(token="open sesame", world=QUICK) as server:
        for token in ("", "open", "open sesame ", "x" * 100_000):
            with pytest.raises(StreamError, match="the token is wrong") as caught:
                connect(server.address, token=token)
            assert "sesame" not in str(caught.value)
        assert server.clients == 0
        with pytest.raises(ConfigError, match="token"):
            connect(server.address, token="\udcff")
        with connect(server.address, token="open sesame") as client:
            assert "gauge" in client.sensors
        assert "sesame" not in repr(server)


def test_client_without_session_cannot_send_requests() -> None:
    """Subscribing and spawning without the greeting are answered only with the request to greet."""
    with serving(token="open sesame", lockstep=True, world=QUICK) as server, Peer(server.address, name="") as peer:
        for message in (
            msg.Subscribe(1, 1, False, 1, 0.0, 0, 0, False, 1, 1),
            msg.Reset(1, None),
            msg.Step(1, 1, (), b""),
        ):
            peer.send(message)
            assert isinstance(peer.answer(), msg.Unknown)
        with connect(server.address, token="open sesame") as client:
            assert client.step() == 1 and server.counts.subscriptions == 0


def test_a_new_public_key_is_not_taken_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--allow-key KEY` needs a key that does not start with a dash."""
    pairs = iter([(b"-" + b"a" * 39, b"s" * 40), (b"a" * 40, b"s" * 40)])
    monkeypatch.setattr(zmq, "curve_keypair", lambda: next(pairs))
    assert KeyPair.generate() == KeyPair("a" * 40, "s" * 40)


def test_with_keys_only_clients_with_the_servers_key_connect() -> None:
    """A client without a key or with a wrong key is refused; with `allowed_keys`, so is a client with unknown keys."""
    keys, mine, other = KeyPair.generate(), KeyPair.generate(), KeyPair.generate()
    with serving(keys=keys, world=QUICK) as server:
        with connect(server.address, server_key=keys.public) as client:
            assert "gauge" in client.sensors
        with pytest.raises(StreamError):
            connect(server.address, timeout=1.0)
        with pytest.raises(StreamError):
            connect(server.address, server_key=other.public, timeout=1.0)
    with serving(keys=keys, allowed_keys=[mine.public], world=QUICK) as server:
        with connect(server.address, server_key=keys.public, keys=(mine.public, mine.secret)) as client:
            assert client.sensors["gauge"].kind == "gauge"
        with pytest.raises(StreamError, match="keys"):
            connect(server.address, server_key=keys.public, keys=(other.public, other.secret), timeout=PATIENCE)
        with pytest.raises(StreamError):
            connect(server.address, server_key=keys.public, timeout=3.0)
        assert server.clients == 0


def test_wrong_keys_are_refused_and_never_shown() -> None:
    """Both sides refuse them with the name of the argument."""
    scene, keys = build(**QUICK), KeyPair.generate()
    for options in ({"keys": KeyPair("short", "secret-text")}, {"allowed_keys": [keys.public]},
                    {"keys": keys, "allowed_keys": ["x" * 39]}):  # fmt: skip
        with pytest.raises(ConfigError, match="keys") as caught:
            sn.serve(scene, "tcp://127.0.0.1:0", **options)
        assert "secret-text" not in str(caught.value)
    assert keys.secret not in repr(keys)
    for wrong in ({"server_key": "short"}, {"keys": (keys.public, keys.secret)}, {"server_key": "é" * 40}):
        with pytest.raises(ConfigError, match=r"server_key|keys"):
            sn.connect("tcp://127.0.0.1:9", **wrong)


def test_ipc_socket_is_accessible_only_to_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that other threads create meanwhile keep their mode, because the mask of the process is not changed."""
    monkeypatch.delattr(os, "umask")
    for _ in range(2):  # also where a killed server left its file
        with serving(f"ipc://{tmp_path}/socket", world=QUICK) as server:
            assert server.address == f"ipc://{tmp_path}/socket"
            assert stat.S_IMODE(os.stat(tmp_path / "socket").st_mode) & 0o077 == 0
            assert os.listdir(tmp_path) == ["socket"]
            connect(server.address).close()
        assert os.listdir(tmp_path) == []
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(f"{tmp_path}/socket")


@contextlib.contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    """Let this process open only so many further descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def can_open_files() -> bool:
    with contextlib.ExitStack() as files:
        try:
            for _ in range(10):
                files.enter_context(open(os.devnull))
        except OSError:
            return False
    return True


CONNECTIONS = """
import resource, select, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)
held = [socket.socket() for _ in range(200)]
for each in held:
    each.setblocking(False)
    each.connect_ex(("127.0.0.1", int(sys.argv[1])))
poll = select.poll()
for each in held:
    poll.register(each, select.POLLRDHUP)
if poll.poll(120_000):
    print("the server closed a connection", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("handshake", [0.5, 1000.0])
def test_connections_before_login_leave_descriptors(
    handshake: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program opens more connections than this one has descriptors, and says nothing."""
    monkeypatch.setattr("sensorium.stream.sockets.HANDSHAKE_S", handshake)
    with few_descriptors(120), serving(step=True, token="secret", world=QUICK) as server:
        command = [sys.executable, "-Ic", CONNECTIONS, server.address.rpartition(":")[2]]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None and other.stdout.readline()
            until(can_open_files)
            if handshake < 1.0:
                with connect(server.address, token="secret", timeout=120.0) as client:
                    assert client.sensors["gauge"].read(PATIENCE).frame
            other.communicate()
    assert caplog.text.count("Connections are refused") == 1 or handshake < 1.0


def test_without_descriptors_large_data_are_sent_through_the_socket() -> None:
    with few_descriptors(200), serving(step=True) as server, connect(server.address) as client:
        before, taken = server.frame, list[int]()
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        try:
            cells = client.sensors["sheet"].read(PATIENCE)["cells"]
            assert server.counts.segments == 0
        finally:
            for descriptor in taken:
                os.close(descriptor)
        np.testing.assert_array_equal(cells, np.arange(32768) + 1024 * np.arange(4)[:, None] + cells[0, 0])
        until(lambda: server.frame > before + 10)
        client.sensors["sheet"].read(PATIENCE)
        until(lambda: server.counts.segments == 1)


def test_max_clients_limits_the_number_of_clients() -> None:
    """The next client is refused with a message, and accepted once another client has left."""
    with serving(max_clients=2, world=QUICK) as server:
        with connect(server.address):
            with connect(server.address):
                with pytest.raises(StreamError, match="already has max_clients=2 clients"):
                    connect(server.address)
            until(lambda: server.clients == 1)
            connect(server.address).close()


def test_oversized_message_disconnects_only_that_client() -> None:
    """The others get their data, and the server continues."""
    with serving(step=True, max_message=4096, world=QUICK) as server:
        with connect(server.address) as other:
            got: list[int] = []
            other.sensors["gauge"].listen(lambda data: got.append(data.frame), policy="lossless")
            with connect(server.address) as client:
                with pytest.raises(StreamError):
                    client.control([0.0] * 1000)
            count = len(got)
            until(lambda: len(got) > count + 20)
            assert got[1:] == list(range(got[0] + 1, got[0] + len(got)))
            until(lambda: other.is_connected)


def test_slow_to_decode_long_message_is_refused() -> None:
    """A control message of many small values and a message of many records are refused; controls may be long."""
    with serving(lockstep=True, world=QUICK) as server:
        with connect(server.address) as other:
            with Peer(server.address) as peer:
                peer.send(msg.Set(1, "gauge", "x", [0] * 1_100_000, None))
                assert "control message" in peer.answer(msg.Refused).reason
            with Peer(server.address) as peer:
                peer.answer(msg.Welcome)
                peer.send_records(*[Record(CREDIT, 7, 1)] * 5_000)
                assert "4096 records" in peer.answer(msg.Refused).reason
            until(lambda: server.clients == 1)
            assert other.step() == 1


def test_flood_of_subscriptions_disconnects_only_that_client() -> None:
    """More than 1024 subscriptions of a client are refused; existing subscriptions of others continue."""
    with serving(step=True, world=QUICK) as server, connect(server.address) as other:
        got: list[int] = []
        other.sensors["gauge"].listen(lambda data: got.append(data.frame), policy="lossless")
        with Peer(server.address) as flooder:
            number = other.streams["gauge"].id
            for i in range(1_100):
                flooder.send(msg.Subscribe(i, number, True, 1, 0.0, 0, 0, False, 1, 1))
            assert "1024 subscriptions" in flooder.answer(msg.Refused).reason
        until(lambda: server.counts.subscriptions == 1)
        count = len(got)
        until(lambda: len(got) > count + 20)
        assert got[1:] == list(range(got[0] + 1, got[0] + len(got)))


def test_client_goodbye_leaves_nothing_and_server_close_notifies_others() -> None:
    """`close` may be called again; it ends the threads and releases the descriptors."""
    from streaming import held

    scene = build(**QUICK)
    sn.serve(scene, "tcp://127.0.0.1:0").close()
    before = held(), threading.active_count()
    server = sn.serve(scene, "tcp://127.0.0.1:0")
    with running(server):
        client = connect(server.address)
        client.close()
        client.close()
        until(lambda: server.clients == 0)
        left = connect(server.address)
    server.close("the show is over")
    server.close()
    until(lambda: not left.is_connected)
    with pytest.raises(StreamError, match="closed"):
        server.poll()
    left.close()
    until(lambda: threading.active_count() <= before[1] and held()["fds"] <= before[0]["fds"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"address": 7447}, "address: got 7447"),
        ({"address": [None]}, "address: got None"),
        ({"scene": "x"}, "scene: got 'x'"),
        ({"token": 5}, "token: got"),
        ({"keys": "k" * 40}, "KeyPair.generate"),
        ({"patience": "x"}, "patience: got 'x'"),
        ({"lease": float("nan")}, "lease: got nan"),
        ({"max_clients": 1.5}, "max_clients: got 1.5"),
        ({"max_message": 0}, "max_message: got 0"),
    ],
)
def test_invalid_server_options_are_refused_immediately(options: dict[str, Any], words: str) -> None:
    """The error contains the option, the given value and the expected value."""
    given: dict[str, Any] = {"scene": build(**QUICK), "address": "tcp://127.0.0.1:0", **options}
    with pytest.raises(ConfigError, match=words):
        sn.serve(given.pop("scene"), given.pop("address"), **given)
