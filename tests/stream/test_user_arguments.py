"""The client itself refuses invalid arguments with a message, and no mistake costs the connection."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from streaming import PATIENCE, Peer, connect, serving, until

import sensorium as sn
from sensorium.client.client_sensor import ClientSensor
from sensorium.compat.actors import make_generic_sensor_definition
from sensorium.engines.envs import env_rows
from sensorium.errors import ConfigError, StreamError
from sensorium.wire import messages as msg
from sensorium.wire.attributes import ActorDescription, Attribute, SensorDefinition
from sensorium.wire.stream_info import StreamInfo


class Pathfinder(ClientSensor):
    """A client-side sensor that takes a path."""

    path: Any

    @classmethod
    def definition(cls) -> SensorDefinition:
        return make_generic_sensor_definition("other", "test_pathfinder", (Attribute("path", {}),))

    def set(self, description: ActorDescription) -> None:
        super().set(description)
        self.path = description["path"]

    def on_tick(self, snapshot: sn.Snapshot) -> None:
        """Do nothing."""


TICKER = "sensor.other.test_ticker"
ENVS = 4
HUGE = 10**30


@pytest.fixture(scope="module")
def server() -> Iterator[sn.Server]:
    """A lock-step server of four environments whose loop runs in another thread, shared by all tests."""
    with serving(lockstep=True, world={"columns": 0, "noise": 0.5, "num_envs": ENVS}) as made:
        yield made


@pytest.fixture(scope="module")
def client(server: sn.Server) -> Iterator[sn.Client]:
    """A client of the server, shared by all tests: no mistake may cost it the connection."""
    with connect(server.address) as made:
        yield made


def listen(client: sn.Client, **options: Any) -> None:
    """Listen to the gauge."""
    client.sensors["gauge"].listen(print, **options)


MISTAKES: dict[str, tuple[Callable[[sn.Client], object], str]] = {
    "env, text": (lambda c: c.spawn(TICKER, env="x"), r"spawn\('.*ticker'\)\.env: got 'x', .*whole number from 0 to 3"),
    "env, fraction": (lambda c: c.spawn(TICKER, env=1.5), r"env: got 1\.5"),
    "env, bool": (lambda c: c.spawn(TICKER, env=True), r"env: got True"),
    "env, several": (lambda c: c.spawn(TICKER, env=[0, 1]), r"env: got \[0, 1\]"),
    "env, the mark of all on the wire": (lambda c: c.spawn(TICKER, env=-1), r"env: got -1, .*None for all"),
    "env, too large": (lambda c: c.spawn(TICKER, env=ENVS), r"env: got 4"),
    "name": (lambda c: c.spawn(TICKER, name=5), r"spawn\('.*ticker'\)\.name: got 5, expected text"),
    "name, no UTF-8": (lambda c: c.spawn(TICKER, name="\ud800"), r"name: got .*UTF-8"),
    "transform": (lambda c: c.spawn(TICKER, transform=(1, 2, 3)), r"transform: got \(1, 2, 3\).*Write Pose\("),
    "attach_to": (lambda c: c.spawn(TICKER, attach_to=1.5), r"attach_to: got 1\.5, expected a body"),
    "attach_to, bool": (lambda c: c.spawn(TICKER, attach_to=True), r"attach_to: got True"),
    "blueprint": (lambda c: c.spawn(3), r"spawn\.blueprint: got 3, expected a blueprint"),
    "find": (lambda c: c.blueprints.find(3), r"blueprints\.find\.id: got 3"),
    "filter": (lambda c: c.blueprints.filter(3), r"blueprints\.filter\.wildcard: got 3"),
    "attribute": (lambda c: c.blueprints.find(TICKER).set_attribute(3, 1), r"attribute: got 3"),
    "substeps, fraction": (lambda c: c.step(None, 2.0), r"step\.substeps: got 2\.0, .*whole number from 1 to 1000000"),
    "substeps, text": (lambda c: c.step(None, "2"), r"step\.substeps: got '2'"),
    "substeps, none": (lambda c: c.step(substeps=0), r"step\.substeps: got 0"),
    "step, timeout": (lambda c: c.step(timeout="1"), r"step\.timeout: got '1'"),
    "ctrl, text": (lambda c: c.step("abc"), r"step\.ctrl: got 'abc', expected numbers of shape"),
    "ctrl, numbers as text": (lambda c: c.control(["1", "2"]), r"control\.ctrl: got \['1', '2'\]"),
    "ctrl, rows": (lambda c: c.control([[1.0], [1.0, 2.0]]), r"control\.ctrl"),
    "ctrl, None within": (lambda c: c.control([None]), r"control\.ctrl"),
    "truth, text": (lambda c: listen(c, truth="yes"), r"listen\('gauge'\)\.truth: got 'yes', expected True or False"),
    "truth, number": (lambda c: listen(c, truth=1), r"truth: got 1"),
    "max_rate, bool": (lambda c: listen(c, max_rate=True), r"max_rate: got True, .*messages per second > 0"),
    "max_rate, text": (lambda c: listen(c, max_rate="5"), r"max_rate: got '5'"),
    "max_rate, huge": (lambda c: listen(c, max_rate=10**400), r"max_rate: got 1000"),
    "every": (lambda c: listen(c, every=HUGE), r"every: got 1000"),
    "queue": (lambda c: listen(c, queue=HUGE), r"queue: got 1000"),
    "envs": (lambda c: listen(c, envs=-1), r"envs: got -1, .*a whole number from 0 to 3, or a slice"),
    "envs, slice": (lambda c: listen(c, envs=slice("a")), r"envs: got slice"),
    "read": (lambda c: c.sensors["gauge"].read("soon"), r"read\.timeout: got 'soon'"),
    "read, negative": (lambda c: c.sensors["gauge"].read(-1.0), r"read\.timeout: got -1\.0, .*seconds >= 0"),
    "read, truth": (lambda c: c.sensors["gauge"].read(truth="yes"), r"truth: got 'yes'"),
    "on_tick": (lambda c: c.on_tick(3), r"on_tick\.callback: got 3"),
    "on_tick, envs": (lambda c: c.on_tick(print, envs=-1), r"listen\('world'\)\.envs: got -1"),
    "reset, fraction": (lambda c: c.reset([0.5]), r"reset\.env_ids: got \[0\.5\].*from 0 to 3.*mask of 4 bools"),
    "reset, text": (lambda c: c.reset("01"), r"reset\.env_ids: got '01'"),
    "reset, negative": (lambda c: c.reset(-1), r"reset\.env_ids: got -1"),
    "reset, twice": (lambda c: c.reset([1, 1]), r"reset\.env_ids: got \[1, 1\].*without repetition"),
    "reset, short mask": (lambda c: c.reset(np.array([False, True])), r"reset\.env_ids: got array"),
    "reset, bools and integers": (lambda c: c.reset([True, 2]), r"reset\.env_ids"),
    "reset, one bool": (lambda c: c.reset(True), r"reset\.env_ids: got True"),
    "reset, huge": (lambda c: c.reset([HUGE]), r"reset\.env_ids"),
    "set, env_ids": (lambda c: c.sensors["gauge"].set("vec_noise", 0.0, [9]), r"^set\('vec_noise'\)\.env_ids: got"),
    "set, knob": (lambda c: c.sensors["gauge"].set(3, 0.0), r"'gauge'\.set\.knob: got 3"),
    "set, value": (lambda c: c.sensors["gauge"].set("vec_noise", object()), r"set\('vec_noise'\)\.value"),
    "destroy": (lambda c: c.destroy(5), r"destroy\.sensor: got 5, expected a sensor of this client, or its name"),
    "wait_for": (lambda c: c.wait_for(5), r"wait_for\.sensor: got 5"),
    "timeout": (lambda c: setattr(c, "timeout", -1), r"timeout: got -1, expected a number of seconds > 0"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_user_error_is_explained_and_the_connection_survives(
    server: sn.Server, client: sn.Client, mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The error names call, argument, value and the expected value; nothing is sent, and the next step works."""
    call, words = MISTAKES[mistake]
    frame = server.frame
    with pytest.raises(ConfigError, match=words):
        call(client)
    assert client.step() == frame + 1 and not caplog.records
    until(lambda: client.is_connected)
    assert server.counts.subscriptions == 0 and client.streams.keys() == {"gauge", "world"}


CONNECTIONS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "address": ((5,), {}, r"connect\.address: got 5, expected 'tcp://HOST:PORT'"),
    "port": (("tcp://127.0.0.1:7²",), {}, r"connect\.address"),
    "negative": ((), {"timeout": -1}, r"connect\.timeout: got -1, expected a number of seconds > 0"),
    "not a number": ((), {"timeout": float("nan")}, r"connect\.timeout: got nan"),
    "text": ((), {"timeout": "5"}, r"connect\.timeout: got '5'"),
    "token": ((), {"token": 12345}, r"connect\.token: got '\(not shown\)', expected text"),
    "name": ((), {"name": 5}, r"connect\.name: got 5, expected text"),
    "max_message": ((), {"max_message": True}, r"connect\.max_message: got True"),
    "shared_memory": ((), {"shared_memory": "no"}, r"connect\.shared_memory: got 'no'"),
    "keys": ((), {"keys": 5}, r"connect\.keys: got '\(not shown\)', expected the public and the secret key"),
    "server_key": ((), {"server_key": 5}, r"connect\.server_key: .*40 characters"),
}


@pytest.mark.parametrize("mistake", CONNECTIONS)
def test_connection_argument_error_is_immediate(mistake: str) -> None:
    given, options, words = CONNECTIONS[mistake]
    with pytest.raises(ConfigError, match=words):
        sn.connect(*given, **options)


def test_numpy_numbers_are_accepted(server: sn.Server, client: sn.Client) -> None:
    """They are accepted wherever Python numbers are: steps, environments, rates, knobs, time-outs."""
    got: list[Any] = []
    before = server.scene.tick
    client.timeout = np.float32(PATIENCE)
    client.sensors["gauge"].listen(
        got.append, every=np.int32(1), max_rate=np.float32(1e6), envs=np.int64(1), truth=np.bool_(True),
        queue=np.int16(8), policy="lossless",
    )  # fmt: skip
    client.sensors["gauge"].set("vec_noise", np.float32(0.0), np.int64(1))
    frame = client.step(substeps=np.int64(2), timeout=np.float64(PATIENCE))
    until(lambda: got and got[-1].frame == frame)
    client.sensors["gauge"].stop()
    x = 1024.0 + server.scene.tick
    assert server.scene.tick == before + 2
    assert got[-1].vec.tolist() == got[-1].truth.vec.tolist() == [[x, 0.25 * x + 1.0, -0.5 * x]]
    ticker = client.spawn(TICKER, env=np.int64(1), attach_to=np.int64(client.bodies["body"].id))
    assert ticker.is_alive
    ticker.destroy()


def test_a_slice_of_environments_counts_from_the_last_as_in_python(server: sn.Server, client: sn.Client) -> None:
    got: list[Any] = []
    client.sensors["gauge"].listen(got.append, envs=slice(-1, None), truth=True, policy="lossless")
    frame = client.step()
    until(lambda: got and got[-1].frame == frame)
    client.sensors["gauge"].stop()
    assert got[-1].truth.vec[:, 0].tolist() == [3.0 * 1024 + server.scene.tick]


FORMS: dict[str, Any] = {
    "a mask of NumPy": np.array([False, True, False, True]),
    "a mask as a list": [False, False, True, False],
    "a mask of torch": torch.tensor([True, True, False, False]),
    "a mask of nothing": np.zeros(ENVS, bool),
    "one": 0,
    "one of NumPy": np.int64(2),
    "several": (3, 1),
    "an array": np.array([2, 0], np.uint8),
    "a tensor": torch.tensor([2, 3]),
    "a range": range(1, 3),
    "a slice": slice(-2, None),
    "none": [],
    "all": None,
}


@pytest.mark.parametrize("form", FORMS)
def test_environments_are_selected_as_in_the_scene(
    server: sn.Server, client: sn.Client, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset and a knob apply to the environments, in the order, that the scene itself would use."""
    given, wanted = FORMS[form], env_rows(FORMS[form], ENVS)
    chosen: list[Any] = []
    reset = server.scene.reset
    monkeypatch.setattr(server.scene, "reset", lambda envs: (chosen.append(envs), reset(envs)))
    client.reset(given)
    assert chosen == ([] if wanted is not None and not len(wanted) else [None if wanted is None else wanted.tolist()])
    client.sensors["gauge"].set("vec_noise", 0.5)
    client.sensors["gauge"].set("vec_noise", 0.0, given)
    client.step()
    exact = (server.scene["gauge"].data.vec == server.scene["gauge"].ground_truth.vec).all(-1)
    assert exact.nonzero()[:, 0].tolist() == sorted(range(ENVS) if wanted is None else wanted.tolist())


def test_iterator_of_environments_is_accepted(server: sn.Server, client: sn.Client) -> None:
    client.sensors["gauge"].set("vec_noise", 0.5)
    client.sensors["gauge"].set("vec_noise", 0.0, (env for env in (0, 3)))
    client.step()
    exact = (server.scene["gauge"].data.vec == server.scene["gauge"].ground_truth.vec).all(-1)
    assert exact.tolist() == [True, False, False, True]


def test_server_refuses_negative_environments_except_minus_one(server: sn.Server) -> None:
    """This holds also for a client that does not check."""
    with Peer(server.address) as peer:
        peer.send(msg.Spawn(1, TICKER, {}, "wrong", (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0), "", -2))
        assert "env: got -2" in peer.answer(msg.Reply).error


def test_server_error_names_the_called_function(client: sn.Client) -> None:
    with pytest.raises(StreamError, match=r"control\.ctrl: got 'NaN or infinity'"):
        client.control([np.nan])
    with pytest.raises(StreamError, match=r"set\('vec_noise'\)\.value: got \[\[1\.0\], \[1\.0, 2\.0\]\]"):
        client.sensors["gauge"].set("vec_noise", [[1.0], [1.0, 2.0]])


def test_refused_destroy_keeps_listening(server: sn.Server, client: sn.Client) -> None:
    """The client gets the refusal in a sentence."""
    guard = client.spawn(TICKER, name="guard")
    with connect(server.address) as other:
        got: list[int] = []
        shared = other.wait_for("guard")
        shared.listen(lambda data: got.append(data.frame))
        words = r"^destroy\.sensor: got 'guard', expected a sensor that this client spawned\. A client can only destroy"
        with pytest.raises(sn.ServerError, match=words):
            shared.destroy()
        frame = client.step()
        until(lambda: got[-1:] == [frame])
        assert shared.is_listening and not shared.why_ended
        with pytest.raises(sn.ServerError, match=r"unknown sensor 'gourd'\. Known: none\. A client can only destroy"):
            other.destroy("gourd")
        shared.stop()
    guard.destroy()


def test_arguments_of_a_client_side_sensor_stay_in_the_client(client: sn.Client) -> None:
    """A path of 80 000 points, more than a message to the server may have, does not concern the server."""
    blueprint = client.blueprints.find("sensor.other.test_pathfinder")
    path = np.linspace(0.0, 1e4, 160_000).reshape(-1, 2).tolist()
    assert len(msg.encode(msg.Ask(1, path))) > msg.MAX_WORDS  # type: ignore[arg-type]
    blueprint["path"] = path
    sensor = client.spawn(blueprint, attach_to="body")
    assert sensor.is_alive and sensor.name in client.streams and sensor.path == path
    sensor.destroy()


def test_removed_sensor_raises_stale_error(client: sn.Client) -> None:
    """Every request names the sensor and states that it no longer exists."""
    ticker = client.spawn(TICKER, name="ticker")
    ticker.destroy()
    until(lambda: not ticker.is_alive)
    asked: list[Callable[[], object]] = [
        lambda: ticker.info, lambda: ticker.kind, lambda: ticker.attributes, lambda: ticker.listen(print),
        lambda: ticker.read(),
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(sn.StaleError, match="no longer has the sensor 'ticker'"):
            ask()
    assert repr(ticker) == "<RemoteSensor 'ticker': gone>" and 5 not in client.sensors


def test_an_error_in_a_function_on_ticks_names_the_function(client: sn.Client) -> None:
    def follow_the_body(snapshot: sn.Snapshot) -> None:
        raise ValueError("lost it")

    listener = client.on_tick(follow_the_body)
    client.step()
    until(lambda: client.callbacks.errors.count)
    listener.stop()
    error = client.errors[0]
    assert error.sensor == "world" and error.where == f"listener {follow_the_body!r}" and "lost it" in str(error)


def test_sensor_information_of_a_reading_is_immutable(client: sn.Client) -> None:
    """It can be pickled, copied and described as usual."""
    got: list[Any] = []
    client.sensors["gauge"].listen(got.append)
    client.step()
    until(lambda: got)
    client.sensors["gauge"].stop()
    info = got[-1].info
    for values in (info.cfg, info.constants, client.sensors["gauge"].attributes):
        with pytest.raises(TypeError, match="does not support item assignment"):
            values["kind"] = "other"
    assert info.cfg["kind"] == "gauge"
    for twin in (pickle.loads(pickle.dumps(info)), copy.deepcopy(info), StreamInfo.from_dict(info.to_dict())):
        assert twin == info
    assert json.loads(json.dumps(info.to_dict()))["cfg"] == dict(info.cfg)
