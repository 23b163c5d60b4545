"""`sensorium serve`: its output, access control, how it ends, and its messages for mistakes."""

from __future__ import annotations

import logging
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nursery import COMMAND, PATIENCE, Nursery, Program, until

import sensorium as sn
from sensorium.cli import main
from sensorium.cli.checks import check_addresses
from sensorium.errors import plain_messages
from sensorium.jobs.control import control_for
from sensorium.stream.security import KeyPair

pytest.importorskip("mujoco.batch")

MODEL = """
<mujoco>
  <option timestep="0.002" gravity="0 0 -9.81"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <body name="torso" pos="0 0 0.11">
      <freejoint/>
      <geom type="box" size=".2 .2 .1" mass="3"/>
      <body name="arm" pos="0 0 .2">
        <joint name="shoulder" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass=".2" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder" ctrlrange="-5 5"/></actuator>
</mujoco>
"""
RIG = """
[[sensor]]
kind = "joint"
name = "encoder"
joints = "shoulder"

[[sensor]]
kind = "ray_caster"
name = "scan"
body = "torso"
pattern = {kind = "grid", size = [1.0, 1.0], resolution = 0.02}
rate_hz = 100.0
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a box with an arm on its back, and beside it `rig.toml`."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "robot.xml").write_text(MODEL)
    (folder / "rig.toml").write_text(RIG)
    return str(folder / "robot.xml")


def rig(model: str) -> str:
    return str(Path(model).with_name("rig.toml"))


@dataclass
class Serving:
    """A server process with its output as it arrives."""

    program: Program
    terminal: int
    said: bytes = b""

    @property
    def out(self) -> list[str]:
        return self.program.out.splitlines(keepends=True)

    @property
    def addresses(self) -> list[str]:
        return [line.removeprefix("listening at ").strip() for line in self.out if line.startswith("listening at ")]

    @property
    def err(self) -> str:
        """Return its terminal output as plain text."""
        while select.select([self.terminal], [], [], 0)[0]:
            try:
                self.said += os.read(self.terminal, 65536)
            except OSError:  # the process has ended
                break
        return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", self.said.decode()).replace("\r", "\n")

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.err, f"{text!r} in {self.err[-400:]!r}", 2 * PATIENCE)

    def end(self, number: int) -> int:
        self.program.send(number)
        return self.program.wait(2 * PATIENCE)


@pytest.fixture
def serving(nursery: Nursery) -> Callable[..., AbstractContextManager[Serving]]:
    """A function that starts `sensorium serve` with stdout in a file and stderr on a terminal, and waits until it
    listens.
    """

    @contextmanager
    def start(*options: str) -> Iterator[Serving]:
        ours, theirs = pty.openpty()
        program = nursery.program(COMMAND, "serve", *options, err=os.ttyname(theirs), TERM="xterm", COLUMNS="100")
        made = Serving(program, ours)
        try:
            until(
                lambda: "listen from another terminal" in program.out or not program.is_running,
                "the address", 4 * PATIENCE,
            )  # fmt: skip
            assert made.addresses, (made.out, made.err)
            yield made
        finally:
            if program.is_running:
                program.kill()
            program.wait()
            os.close(theirs)
            os.close(ours)

    return start


def failed(capsys: pytest.CaptureFixture[str], code: int, *parts: str) -> None:
    """Check the exit code, and that stderr holds a single message with these parts."""
    out, err = capsys.readouterr()
    assert code == 2, (code, out, err)
    assert "Traceback" not in err + out
    assert err.count("error:") == 1, err
    for part in parts:
        assert part in " ".join(err.split()), (part, err)


# Serving --------------------------------------------------------------------------------------------------------------


def test_serve_runs_a_rig_until_terminated(model: str, serving: Any) -> None:
    """The first line is the address; the line on the terminal shows the status; SIGTERM ends the server with 143."""
    with serving(model, "--rig", rig(model), "--envs", "2", "--address", "tcp://127.0.0.1:0") as server:
        assert re.fullmatch(r"listening at tcp://127\.0\.0\.1:\d+\n", server.out[0])
        assert "loading ..." in server.err
        text = " ".join("".join(server.out).split())
        for words in ("2 envs, 2 ms per tick, at 1 x real time", "encoder joint 500 Hz 2 position [env, joint 1] rad",
                      f"sensorium listen {server.addresses[0]} encoder"):  # fmt: skip
            assert words in text, words
        with sn.connect(server.addresses[0], name="the test", timeout=PATIENCE) as client:
            assert {"encoder", "scan", "world"} == set(client.sensors)
            assert client.sensors["encoder"].read(PATIENCE)["position"].shape == (2, 1)
            first, last = client.sensors["world"].read(PATIENCE), client.sensors["world"].read(PATIENCE)
            assert last.time >= first.time
            server.wait_for("client 'the test' (process")
            status = re.compile(r"frame \d+, [\d.]+ s, [\d.]+ x real time \| 1 client, \d subscriptions?, ")
            until(lambda: status.search(server.err), "the status", 2 * PATIENCE)
            # A slow lossless client is named.
            wait = threading.Event()
            with pytest.warns(sn.SensoriumWarning, match="too slow") as warned:
                client.sensors["scan"].listen(lambda data: wait.wait(PATIENCE), policy="lossless", queue=1)
                server.wait_for("warning: Client 'the test'")
                wait.set()
                until(lambda: any("too slow" in str(each.message) for each in warned.list), "the warning")
            assert client.sensors["scan"].why_ended
        server.wait_for("disconnected")
        assert server.end(signal.SIGTERM) == 143
        assert re.search(r"ended after \d+ frames, [\d.]+ s of simulation", server.err)
        assert "Traceback" not in server.err


def test_clients_step_a_lockstep_server(
    model: str, tmp_path: Path, serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It listens at several addresses; time stops between steps; Ctrl-C gives 130, and clients get the reason."""
    path = f"ipc://{tmp_path}/robot"
    options = ("--rig", rig(model), "--lockstep", "--address", "tcp://127.0.0.1:0", "--address", path)
    with serving(model, *options) as server:
        assert server.addresses[1] == path and "clients control the steps" in "".join(server.out)
        with sn.connect(path, timeout=PATIENCE) as client:
            before = client.sensors["encoder"].read(PATIENCE).tick
            frame = client.step(np.zeros(1), substeps=7)
            data = client.sensors["encoder"].read(PATIENCE)
            assert (data.tick, data.frame) == (before + 7, frame)
            assert server.end(signal.SIGINT) == 130
            until(lambda: "it was interrupted" in caplog.text, "the reason")
        assert not Path(path.removeprefix("ipc://")).exists()


@pytest.mark.slow
def test_demo_requires_no_rig_and_accepts_reserved_sensors(serving: Any) -> None:
    """The demo robot trots forward within a second; a collision sensor of a reserved body can be spawned meanwhile."""
    with serving(
        "demo", "--reserve", "contact=FL_calf|FL_foot|trunk", "--speed", "0", "--address", "tcp://127.0.0.1:0"
    ) as server:  # fmt: skip
        assert "demo quadruped, trotting: 1 env" in "".join(server.out) and "lidar" in "".join(server.out)
        with sn.connect(server.addresses[0], timeout=PATIENCE) as client:
            hit = client.spawn("sensor.other.collision", attach_to="trunk")
            assert hit.is_alive
            guard = client.spawn("sensor.other.safe_distance", attach_to="trunk")  # needs no argument
            assert guard.is_alive
            start = client.sensors["world"].read(PATIENCE)
            until(lambda: client.sensors["world"].read(PATIENCE).time > start.time + 1.0, "a second of simulation")
            now = client.sensors["world"].read(PATIENCE)
            trunk = client.bodies["trunk"].id
            assert now["pos_w"][0, trunk, 0] - start["pos_w"][0, trunk, 0] > 0.1
        assert server.end(signal.SIGINT) == 130


def test_secrets_are_created_once_and_required(model: str, tmp_path: Path, serving: Any) -> None:
    """Token and keys are created with mode 0600, and the key is printed. Clients without both are refused, and no
    secret is printed.
    """
    token, keys = tmp_path / "token", tmp_path / "keys"
    options = (model, "--lockstep", "--address", "tcp://127.0.0.1:0", "--token-file", str(token), "--keys", str(keys))
    mine = KeyPair.generate()
    with serving(*options, "--allow-key", mine.public) as server:
        assert token.stat().st_mode & 0o777 == keys.stat().st_mode & 0o777 == 0o600
        public, secret = re.findall(r"'(.{40})'", keys.read_text())
        said = "".join(server.out) + server.err
        assert f"public key {public}" in said and secret not in said and token.read_text().strip() not in said
        assert f"--token-file {token}" in said
        address, pair = server.addresses[0], (mine.public, mine.secret)
        good = {"server_key": public, "keys": pair, "token": token.read_text().strip()}
        with sn.connect(address, **good, timeout=PATIENCE) as client:
            assert client.is_lockstep
        with pytest.raises(sn.StreamError, match="token is wrong"):
            sn.connect(address, server_key=public, keys=pair, timeout=PATIENCE)
        with pytest.raises(sn.StreamError):
            sn.connect(address, **{**good, "keys": None}, timeout=2.0)
    held = keys.read_text()
    assert main(["serve", model, "--seconds", "0.002", "--address", "tcp://127.0.0.1:0", "--keys", str(keys)]) == 0
    assert keys.read_text() == held


def test_log_messages_and_warnings_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings of other packages keep their source line; both lose their control characters."""
    log, standard = logging.getLogger("sensorium.stream"), warnings.formatwarning
    with plain_messages():
        log.warning("Client %s is disconnected", "'far\x1b'")
        log.info("unseen")
        own = warnings.formatwarning("it is \x1bdark", sn.SensoriumWarning, "sensor.py", 7, "warn()")
        other = warnings.formatwarning("it is \x1bdark", UserWarning, "sensor.py", 7, "warn()")
    assert capsys.readouterr().err == "warning: Client 'far' is disconnected\n"
    assert own == "warning: it is dark\n" and other == standard("it is dark", UserWarning, "sensor.py", 7, "warn()")
    assert warnings.formatwarning is standard


# Controls -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["hold", "zero", "random", "client"])
def test_serve_ends_after_its_duration(model: str, control: str, capsys: pytest.CaptureFixture[str]) -> None:
    """After `--seconds` of simulation the server exits with code 0."""
    options = ["--control", control, "--speed", "0", "--seconds", "0.05", "--address", "tcp://127.0.0.1:0"]
    assert main(["serve", model, "--rig", rig(model), *options]) == 0
    assert "as fast as possible" in capsys.readouterr().out


@pytest.mark.parametrize("substeps", [1, 10])
def test_hold_control_keeps_the_pose_in_long_steps(model: str, substeps: int) -> None:
    """A motor holds an arm in place for two seconds, with controls every tick or every ten ticks."""
    engine = sn.MujocoEngine(model, 1)
    scene = sn.Scene(engine, [], discover=False)
    control, every = control_for("hold", scene, substeps)
    assert every == substeps
    for _ in range(1000 // substeps):
        scene.step(control(scene, scene.time), substeps)
        assert abs(float(engine.qpos[0, 7])) < 0.3


# Mistakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--envs", "0"], ["--envs: got 0", ">= 1"]),
        (["--speed", "-1"], ["--speed: got -1", ">= 0"]),
        (["--seconds", "inf"], ["--seconds: got inf"]),
        (["--substeps", "-2"], ["--substeps: got -2"]),
        (["--lockstep", "--control", "zero"], ["--control: got 'zero'", "--lockstep", "clients set the controls"]),
        (["--lockstep", "--substeps", "4"], ["--substeps: got 4", "client.step"]),
        (["--reserve", "contac"], ["--reserve: got 'contac'", "Did you mean 'contact'?"]),
        (["--reserve", "contact=torsoo"], ["torsoo", "Did you mean 'torso'?"]),
        (["--reserve", "nowhere.toml"], ["nowhere.toml", "does not exist"]),
        (["--rig", "nowhere.toml"], ["nowhere.toml", "does not exist"]),
        (["--control", "hol", "--address", "tcp://127.0.0.1:0"], ["--control: got 'hol'", "Did you mean 'hold'?"]),
        (["--allow-key", "k" * 40], ["--allow-key", "Add --keys FILE"]),
        (["--address", "tcp://0.0.0.0:7447"], ["--address: got 'tcp://0.0.0.0:7447'", "--token-file or --keys"]),
        (["--address", "tcp://127.0.0.1"], ["tcp://HOST:PORT", "Port 0 selects a free port"]),
        (
            ["--address", "tcp://127.0.0.1:65536"],
            ["tcp://HOST:PORT", "a port of 0 to 65535", "Port 0 selects"],
        ),
        (["--address", f"tcp://127.0.0.1:{'9' * 5000}"], ["a port of 0 to 65535"]),
        (["--address", "inproc://x"], ["--address: got 'inproc://x'"]),
        (["--token-file", "/nowhere/token"], ["token", "The folder '/nowhere' does not exist"]),
        (["--control", "trott"], ["expected hold, zero, random, client, FILE.npz, FILE.mcap or module:function"]),
        (["--control", "nowhere.npz"], ["--control", "nowhere.npz", "does not exist"]),
        (
            ["--control", "no_such_module:x:y"],
            ["--control: got 'no_such_module:x:y'", "There is no module 'no_such_module'"],
        ),
        (["--allow-key", "abc", "--keys", "KEYS"], ["--allow-key: got 'abc'", "40 characters"]),
        (["--address", "ipc:///nowhere/socket"], ["--address", "'ipc:///nowhere/socket'", "no folder '/nowhere'"]),
        (["--address", f"ipc:///tmp/{'x' * 120}"], ["--address", "longer than 107 bytes"]),
        (["--address", "ipc://MODEL"], ["--address", "is not a socket"]),
        (["--address", "ipc:///tmp/a", "--address", "ipc:///tmp/a"], ["--address", "each address once"]),
        (["--device", "gpu7"], ["--device: got 'gpu7'", "cuda:INDEX"]),
        (["--device", "cuda:99"], ["cuda:99"]),
    ],
)
def test_mistakes_are_explained(
    model: str, options: list[str], parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake gives a single message with the expected input and exit code 2, before anything is served."""
    places = {"KEYS": str(tmp_path / "keys"), "ipc://MODEL": f"ipc://{model}"}
    failed(capsys, main(["serve", model, *(places.get(option, option) for option in options)]), *parts)


def test_argument_errors_are_reported_before_loading(model: str, tmp_path: Path) -> None:
    """Files, words, addresses and ports are checked before torch, Warp or MuJoCo is imported."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        busy = str(other.getsockname()[1])
        wrong = [
            ["serve", "nowhere.xml"],
            ["serve", model, "--rig", "nowhere.toml"],
            ["serve", model, "--reserve", "nowhere.toml"],
            ["serve", model, "--control", "trott"],
            ["serve", model, "--control", "nowhere:control"],
            ["serve", model, "--device", "gpu7"],
            ["serve", model, "--address", f"tcp://127.0.0.1:{busy}"],
            ["serve", model, "--address", "ipc:///nowhere/socket"],
            ["run", "nowhere.xml", "--rig", rig(model), "--out", str(tmp_path / "out")],
            ["run", model, "--rig", "nowhere.toml", "--out", str(tmp_path / "out")],
            ["run", model, "--rig", rig(model), "--control", "trott", "--out", str(tmp_path / "out")],
            ["explain", "nowhere.xml", "--rig", rig(model)],
            ["explain", model, "--rig", "nowhere.toml"],
        ]
        code = (
            f"import sys; from sensorium.cli import main\nfor args in {wrong!r}:\n    assert main(args) == 2, args\n"
            "    heavy = {'torch', 'mujoco', 'warp', 'pydantic'} & set(sys.modules); assert not heavy, (args, heavy)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("error:") == len(wrong) and not (tmp_path / "out").exists()


def test_recently_used_port_can_be_reused(model: str) -> None:
    """Remnants of ended connections do not block the port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = listener.getsockname()
        with socket.create_connection(address) as caller:
            answered, _ = listener.accept()
            answered.close()  # the side that closes first keeps the port for a minute
            assert caller.recv(1) == b""
    check_addresses([f"tcp://127.0.0.1:{address[1]}"])
    with pytest.raises(OSError, match="in use"), socket.socket() as strict:
        strict.bind(address)


def test_missing_model_is_explained() -> None:
    """The installed script passes its arguments and the exit code on."""
    script = Path(sys.executable).with_name("sensorium")
    done = subprocess.run([script, "serve", "nowhere.xml"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(part in done.stderr for part in ("error: ", "nowhere.xml", "does not exist"))


def test_used_address_is_explained(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A port of another program and a socket file in use are refused; the other program is not disturbed."""
    with socket.socket() as other, socket.socket(socket.AF_UNIX) as file:
        other.bind(("127.0.0.1", 0))
        other.listen()
        file.bind(str(tmp_path / "taken"))
        file.listen()
        for address in (f"tcp://127.0.0.1:{other.getsockname()[1]}", f"ipc://{tmp_path}/taken"):
            failed(capsys, main(["serve", model, "--address", address]), f"cannot listen at {address!r}", "in use")
        assert (tmp_path / "taken").exists()


@pytest.mark.parametrize(
    ("text", "mode", "parts"),
    [
        ("secret\n", 0o644, ["only its owner can read", "chmod 600"]),
        ("", 0o600, ["one word, the token"]),
        ("two words", 0o600, ["one word, the token"]),
    ],
)
def test_invalid_token_is_explained(
    model: str, tmp_path: Path, text: str, mode: int, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    failed(capsys, main(["serve", model, "--token-file", str(path)]), str(path), *parts)


def test_invalid_keys_are_explained(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys"
    path.write_text("public = 'abc'\n")
    path.chmod(0o600)
    failed(capsys, main(["serve", model, "--keys", str(path)]), str(path), "40 characters", "To create new keys")


def test_help_explains_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` has examples. It loads nothing heavy, see `test_cli_list.py`."""
    assert main(["serve", "--help"]) == 0
    out = capsys.readouterr().out
    for word in ("sensorium serve demo", "--lockstep", "--reserve", "tcp://127.0.0.1:7447", "--token-file"):
        assert word in out
