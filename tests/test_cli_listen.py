"""`sensorium listen` and `python -m sensorium.client`: their output for a server, and their messages for mistakes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nursery import COMMAND, Nursery
from rich.console import Console
from selection import gate
from streaming import DT, PATIENCE, connect, serving, until

import sensorium as sn
from sensorium.cli import main, show
from sensorium.cli.listen import catalogue_table
from sensorium.cli.values import milliseconds, values_rows
from sensorium.client.__main__ import main as plain
from sensorium.client.subscription import Stats
from sensorium.readings import Reading
from sensorium.spec import FieldSpec
from sensorium.stream.security import KeyPair
from sensorium.wire.attributes import SensorDefinition
from sensorium.wire.data import RawData, empty
from sensorium.wire.header import TRUTH, Header, begin_message, type_id
from sensorium.wire.serializers import FieldSerializer
from sensorium.wire.stream_info import StreamInfo, plan

HEAVY = ("torch", "warp", "pydantic", "mujoco", "rich", "tyro", "matplotlib")
SECOND = "400"
"""Number of samples that take almost two seconds: at 200 per second, of which at most 0.1 s come at once."""
LISTEN = [sys.executable, "-m", "sensorium.cli", "listen"]


@pytest.fixture(scope="module")
def server() -> Iterator[sn.Server]:
    """A free-running server: 4 envs, a small sensor `gauge`, a large sensor `sheet`, events `ticker`."""
    with serving(step=True, world={"columns": 8192}) as made:
        yield made


def failed(capsys: pytest.CaptureFixture[str], code: int, *parts: str) -> None:
    """Check the exit code, and that stderr holds a single message with these parts."""
    out, err = capsys.readouterr()
    assert code == 2, (code, out, err)
    assert "Traceback" not in err + out
    assert err.count("error:") == 1, err
    for part in parts:
        assert part in " ".join(err.split()), (part, err)


# Catalogue ------------------------------------------------------------------------------------------------------------


def test_without_sensor_argument_the_catalogue_is_printed(
    server: sn.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output has one row per field: sensor, kind, rate, envs, shape with named axes, unit; the exit code is 0."""
    assert main(["listen", server.address]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gauge", "gauge", "64", "Hz", "4", "vec", "[env,", "3]", "m"] in rows
    assert any(row[:6] == ["sheet", "sheet", "64", "Hz", "4", "cells"] and row[-2:] == ["8192]", "m"] for row in rows)
    assert any("4 envs, 15.62 ms per tick, free-running" in " ".join(row) for row in rows)


def test_plain_catalogue_has_the_same_content(server: sn.Server, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m sensorium.client ADDRESS` prints the same rows."""
    assert plain([server.address]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gauge", "gauge", "64", "Hz", "4", "vec", "[env,", "3]", "m"] in rows


def test_the_catalogue_as_json_describes_each_stream(server: sn.Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Each stream is a line of JSON from which its `StreamInfo` can be rebuilt."""
    assert main(["listen", server.address, "--json"]) == 0
    infos = [StreamInfo.from_dict(json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert {info.name: info for info in infos}["gauge"].specs == server.streams["gauge"].specs


def test_blueprints_are_listed_and_described(server: sn.Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name all ids are listed with the required reservations; with a name, attributes with type, default,
    unit and meaning.
    """
    assert main(["listen", server.address, "--blueprints"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"sensor\.other\.collision +scene +RIG\.toml ", out)
    assert re.search(r"sensor\.other\.safe_distance +scene +The bodies", out)
    assert main(["listen", server.address, "--blueprints", "safe_distance"]) == 0
    assert "safe_distance_front: number = 1.0 m" in capsys.readouterr().out


def test_blueprints_describe_the_sensor(server: sn.Server, capsys: pytest.CaptureFixture[str]) -> None:
    """A blueprint shows the description of the sensor, not of its config; the config's attributes follow by name."""
    assert main(["listen", server.address, "--blueprints"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "sensor.other.imu scene Inertial measurement unit at one or several mounts." in out
    assert "Configuration of" not in out


def test_blueprints_as_json_hold_the_definitions(server: sn.Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Each blueprint is a line of JSON from which its `SensorDefinition` can be rebuilt; names restrict the output."""
    with connect(server.address) as client:
        definitions = [blueprint.definition for blueprint in client.blueprints]
    assert main(["listen", server.address, "--blueprints", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [SensorDefinition.from_dict(json.loads(line)) for line in lines] == definitions
    assert main(["listen", server.address, "--blueprints", "imu", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["id"] == "sensor.other.imu"


@pytest.mark.parametrize("width", [24, 40, 80, 140])
def test_names_are_not_truncated_at_any_width(server: sn.Server, width: int) -> None:
    """In a table that is too wide, columns other than the names of sensors and fields are omitted."""
    console = Console(width=width, file=io.StringIO())
    console.print(catalogue_table(server.streams.values(), width))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    words = shown.split()
    assert {"sensor", "field", "gauge", "sheet", "vec", "cells"} <= set(words)
    assert "…" not in shown and max(map(len, shown.splitlines())) <= width
    assert ("unit" in words) == (width >= 40) and ("mounts" in words or "kind" in words) == (width >= 80)


# Samples --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [main, plain])
def test_json_lines_contain_each_sample(server: sn.Server, command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A lossless listener prints 20 samples with successive ticks and the values of the world's motion in that env."""
    args = ["listen"] * (command is main)
    options = ["--json", "--count", "20", "--policy", "lossless", "--env", "2", "--truth"]
    assert command([*args, server.address, "gauge", *options]) == 0
    samples = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(samples) == 20
    ticks = [sample["tick"] for sample in samples]
    assert ticks == list(range(ticks[0], ticks[0] + 20))
    for number, sample in enumerate(samples, 1):
        x = 2048.0 + sample["tick"]
        for branch in ("fields", "truth"):
            assert sample[branch]["vec"]["values"] == [[x, 0.25 * x + 1.0, -0.5 * x]]
            assert sample[branch]["vec"]["unit"] == "m" and sample[branch]["vec"]["shape"] == [1, 3]
        assert (sample["first_env"], sample["num_envs"], sample["sensor"]) == (2, 1, "gauge")
        assert sample["time"] == sample["timestamp"] == pytest.approx(sample["tick"] * DT, abs=1e-9)
        assert (sample["received"], sample["replaced"], sample["lost"]) == (number, 0, 0)
        assert 0.0 <= sample["latency"] < PATIENCE and sample["age"] == 0.0


def test_large_fields_are_summarised_in_json(server: sn.Server, capsys: pytest.CaptureFixture[str]) -> None:
    """For 4 x 8192 cells the output holds shape, minimum, mean and maximum."""
    assert plain([server.address, "sheet", "--json", "--count", "1"]) == 0
    sample = json.loads(capsys.readouterr().out)
    cells, tick = sample["fields"]["cells"], sample["tick"]
    assert cells["shape"] == [4, 8192] and cells["finite"] == 4 * 8192 and "values" not in cells
    assert (cells["min"], cells["max"]) == (tick, tick + 8191 + 3 * 1024)
    assert cells["mean"] == pytest.approx(tick + 8191 / 2 + 1.5 * 1024)


def test_every_and_max_rate_skip_samples(server: sn.Server, capsys: pytest.CaptureFixture[str]) -> None:
    """With --every 3 the ticks of successive samples differ by 3; at --max-rate 1e-9 there is no second one."""
    assert plain([server.address, "gauge", "--json", "--every", "3", "--policy", "lossless", "--count", "6"]) == 0
    ticks = [json.loads(line)["tick"] for line in capsys.readouterr().out.splitlines()]
    assert set(np.diff(ticks[1:])) == {3}  # the first sample is that of the frame in which listening started
    options = ["--json", "--max-rate", "1e-9", "--count", "2", "--seconds", "0.3"]
    failed(capsys, plain([server.address, "gauge", *options]), "of 2 samples of 'gauge'")


def test_events_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The messages of a streamed sensor are printed as items, in order."""
    with serving(step=True, world={"columns": 0}) as server:
        with connect(server.address) as client:
            client.spawn("sensor.other.test_ticker", name="ticks", env=None)
            assert plain([server.address, "ticks", "--json", "--count", "5"]) == 0
    samples = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [sample["items"]["values"][0] for sample in samples] == [sample["frame"] for sample in samples]
    assert len(samples) == 5


def test_plain_lines_show_rates_shapes_and_values(server: sn.Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Where stdout is not a terminal, each sensor prints one line per second, and one at the end."""
    assert main(["listen", server.address, "gauge", "sheet", "--count", SECOND]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 4 and [line.partition(":")[0] for line in lines] == ["gauge", "sheet"] * (len(lines) // 2)
    last = lines[-2]
    for word in ("age 0 ms", "latency", " received, ", " replaced, ", "MB/s", "vec [4, 3] m: ", "count [4]: "):
        assert word in last, (word, last)
    assert all(re.match(r"\w+: ([\d.e+-]+/s|done|no server), age|\w+: (waiting|no server)$", each) for each in lines)
    assert re.search(r"cells \[4, 8192\] m: \+\S+ to \+\S+", lines[-1])


def test_plain_listener_prints_the_newest_sample_each_second(
    server: sn.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plain([server.address, "gauge", "sheet", "--count", SECOND]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 4 and len(lines) % 2 == 0
    first, last = ([json.loads(line) for line in each if line[0] == "{"] for each in (lines[:-2], lines[-2:]))
    assert [sample["sensor"] for sample in last] == ["gauge", "sheet"]
    assert [sample["received"] for sample in last] == [int(SECOND)] * 2
    assert all(sample["tick"] <= last[sample["sensor"] == "sheet"]["tick"] for sample in first)


def test_listen_works_with_only_the_light_packages(server: sn.Server, tmp_path: Path) -> None:
    """The plain listener works without torch, warp, pydantic, mujoco, rich and tyro."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}))\n"
        "import runpy; sys.argv[0] = 'listen'; runpy.run_module('sensorium.client', run_name='__main__')"
    )
    command = [sys.executable, "-W", "error", "-c", code, server.address, "gauge", "--json", "--count", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=4 * PATIENCE)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 3


def test_closed_output_ends_listening(server: sn.Server) -> None:
    """A closed pipe, as with `| head -1`, ends it with exit code 1 and nothing on stderr."""
    read, write = os.pipe()
    process = subprocess.Popen([*LISTEN, server.address, "gauge", "--json"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert os.read(read, 1)
    os.close(read)
    _, err = process.communicate(timeout=2 * PATIENCE)
    assert (process.returncode, err) == (1, b"")


# A terminal -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", gate([40, 80, 140], {40, 80}))
def test_tables_are_live_on_a_terminal(server: sn.Server, columns: int) -> None:
    """Tables follow each other, none is wider than the terminal, and Ctrl-C ends the command with 130."""
    pid, terminal = pty.fork()
    if not pid:
        os.environ.update(TERM="xterm", COLUMNS=str(columns), LINES="40")
        os.execv(sys.executable, [*LISTEN, server.address, "gauge", "sheet"])
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    text = b""

    def pictures() -> bool:
        nonlocal text
        while select.select([terminal], [], [], 0)[0]:
            text += os.read(terminal, 65536)
        return text.partition(b"cells")[2].count(b"newest") >= 4

    until(pictures, "four pictures of both sensors", 2 * PATIENCE)
    os.kill(pid, signal.SIGINT)
    with contextlib.suppress(OSError):  # Linux: the other end is closed
        while True:
            text += os.read(terminal, 65536)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    text = text[text.index(b"cells") :]
    shown = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text.decode(errors="replace")).replace("\r", "\n")
    for word in ("gauge", "sheet", "latency", "vec", "cells", "newest"):
        assert word in shown, word
    for word in ("received", "MB/s", "0..3", "[4, 3]", "[4, 8192]"):
        assert (word in shown) == (columns >= 80), word
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= columns
    ticks = [int(found) for found in re.findall(r"frame (\d+)", shown)]
    assert ticks == sorted(ticks) and ticks[-1] > ticks[0]
    assert "Traceback" not in shown


# The connection -------------------------------------------------------------------------------------------------------


def test_listen_waits_for_a_restarted_server(nursery: Nursery, tmp_path: Path) -> None:
    """The end of the server is reported with its reason, its return as well, and samples arrive again."""
    address = f"ipc://{tmp_path}/server"
    listener = nursery.program(COMMAND, "listen", address, "gauge", "--json", "--timeout", "120")
    try:
        with serving(address, step=True, world={"columns": 0}):
            until(lambda: '"sensor": "gauge"' in listener.out, "samples")
        for text in ("ended the connection: the server was closed", "does not answer; waiting until it is back"):
            until(lambda text=text: text in listener.err, text)  # type: ignore[misc]
        before = len(listener.out)
        with serving(address, step=True, world={"columns": 0}):
            until(lambda: "is back; listening continues" in listener.err, "its return")
            until(lambda: len(listener.out) > before, "samples of the second server")
            listener.send(signal.SIGINT)
            assert listener.wait() == 130
    finally:
        if listener.is_running:
            listener.kill()
            listener.wait()
    assert "Traceback" not in listener.err


def test_removed_sensor_ends_listening(capsys: pytest.CaptureFixture[str]) -> None:
    """The message contains the server's reason, and the exit code is 2."""
    with serving(step=True, world={"columns": 0}) as server, connect(server.address) as client:
        client.spawn("sensor.other.test_ticker", name="ticks")

        def destroy() -> None:
            until(lambda: server.counts.subscriptions, "the listener")
            client.destroy("ticks")

        destroyer = threading.Thread(target=destroy)
        destroyer.start()
        code = main(["listen", server.address, "ticks"])
        destroyer.join()
    failed(capsys, code, "listening to 'ticks' ended", "destroyed")


def test_too_few_samples_in_time_raise(capsys: pytest.CaptureFixture[str]) -> None:
    """A lock-step simulation without steps sends at most one frame."""
    with serving(lockstep=True, world={"columns": 0}) as server:
        code = main(["listen", server.address, "gauge", "--json", "--count", "3", "--seconds", "0.3"])
    failed(capsys, code, "of 3 samples of 'gauge'", "within 0.3 s", "lock-step")


def test_secrets_are_read_from_files_or_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the token or key the message names the option; with them listening works; new keys are printed."""
    token, mine = tmp_path / "token", tmp_path / "mine"
    token.write_text("open-sesame\n")
    token.chmod(0o600)
    keys = KeyPair.generate()
    with serving(token="open-sesame", keys=keys) as server:
        key = f"--server-key={keys.public}"
        failed(capsys, main(["listen", server.address]), "keys", "--server-key")
        failed(capsys, main(["listen", server.address, key]), "the token is missing", "--token-file", "SENSORIUM_TOKEN")
        other = tmp_path / "other"
        other.write_text("sesame\n")
        other.chmod(0o600)
        code = main(["listen", server.address, key, "--token-file", str(other)])
        failed(capsys, code, "the token is wrong", "--token-file FILE")
        assert main(["listen", server.address, key, "--token-file", str(token), "--keys", str(mine)]) == 0
        err = capsys.readouterr().err
        public = mine.read_text().split("'")[1]
        assert public in " ".join(err.split()) and mine.stat().st_mode & 0o777 == 0o600
        monkeypatch.setenv("SENSORIUM_TOKEN", "open-sesame")
        assert plain([server.address, key]) == 0
    capsys.readouterr()
    token.chmod(0o644)
    failed(capsys, main(["listen", server.address, "--token-file", str(token)]), "only its owner can read", "chmod 600")


# Mistakes -------------------------------------------------------------------------------------------------------------


def test_unanswered_connection_lists_possible_causes(capsys: pytest.CaptureFixture[str]) -> None:
    """No listener, a missing socket and a foreign program at the address are each explained."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        code = main(["listen", address, "gauge", "--timeout", "0.3"])
        failed(capsys, code, f"{address} within 0.3 s", "no program listens", "sensorium serve")
        other.listen()
        failed(capsys, main(["listen", address, "--timeout", "0.3"]), "not a sensorium server")
    code = plain(["ipc:///nowhere/server", "--timeout", "0.3"])
    failed(capsys, code, "socket file does not exist", "the address that it prints")


@pytest.mark.parametrize("command", [main, plain])
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["gaug"], ["unknown sensor 'gaug'", "Did you mean 'gauge'?", "sheet"]),
        (["gauge", "gaugee"], ["unknown sensor 'gaugee'", "Did you mean 'gauge'?"]),
        (["gauge", "--env", "7"], ["--env: got 7, expected 0 to 3", "'gauge' has 4 envs"]),
        (["gauge", "--every", "0"], ["--every: got 0", "a whole number from 1"]),
        (["gauge", "--max-rate", "-1"], ["--max-rate: got -1", ">= 0"]),
        (["gauge", "--count", "-1"], ["--count: got -1"]),
        (["gauge", "--seconds", "nan"], ["--seconds: got nan"]),
        (["gauge", "--timeout", "0"], ["--timeout: got 0"]),
        (["gauge", "--token-file", "/nowhere/token"], ["--token-file: got", "/nowhere/token", "folder"]),
        (["gauge", "--server-key", "abc"], ["--server-key: got", "40 characters"]),
        (["gauge", "--keys", "mine"], ["--keys: got 'mine'", "--server-key as well"]),
        (["--count", "3"], ["--count: got 3", "a SENSOR argument as well"]),
        (["--env", "0", "--json"], ["--env: got 0", "a SENSOR argument as well"]),
        (["--policy", "lossless"], ["--policy: got 'lossless'", "a SENSOR argument as well"]),
    ],
)
def test_mistakes_are_explained(
    server: sn.Server, command: Any, options: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake gives a single message with the expected input and exit code 2."""
    failed(capsys, command([*(["listen"] * (command is main)), server.address, *options]), *parts)


@pytest.mark.parametrize("address", ["7447", "http://127.0.0.1:80", "tcp://127.0.0.1", "tcp://127.0.0.1:0"])
def test_invalid_address_is_explained(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    failed(capsys, main(["listen", address]), f"ADDRESS: got {address!r}", "tcp://HOST:PORT", "tcp://127.0.0.1:7447")


@pytest.mark.parametrize("port", ["0", "65536", "9" * 5000])
def test_a_port_out_of_range_is_explained(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    failed(capsys, main(["listen", f"tcp://127.0.0.1:{port}"]), "ADDRESS: got", "a port of 1 to 65535")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--env", "x"], "--env: got 'x', expected a whole number"),
        (["--every", "1.5"], "--every: got '1.5', expected a whole number"),
        (["--max-rate", "fast"], "--max-rate: got 'fast', expected a number"),
    ],
)
def test_non_numeric_arguments_are_explained(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands name the option and the given word; `sensorium listen` also names the expected value."""
    assert main(["listen", "tcp://127.0.0.1:7447", "gauge", *options]) == 2
    err = capsys.readouterr().err
    assert f"Error parsing {text}" in err and "Type" not in err and "literal" not in err
    with pytest.raises(SystemExit, match="2"):
        plain(["tcp://127.0.0.1:7447", "gauge", *options])
    err = capsys.readouterr().err
    assert f"argument {options[0]}: invalid" in err and repr(options[1]) in err


def test_options_of_samples_are_refused_beside_blueprints(
    server: sn.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["listen", server.address, "--blueprints", "imu", "--truth"])
    failed(capsys, code, "--truth: got True, expected no such option with --blueprints")


STOP = """
import runpy, sys
module, where = sys.argv[1:3]
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == where:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
sys.argv[:3] = [module]
runpy.run_module(module, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "where", "args"),
    [
        ("sensorium", "sensorium.cli.messages", ["listen", "tcp://127.0.0.1:7447"]),
        ("sensorium", "tyro", ["listen", "tcp://127.0.0.1:7447"]),
        ("sensorium.cli", "zmq", ["listen", "tcp://127.0.0.1:7447"]),
        ("sensorium.cli", "torch", ["serve", "demo", "--address", "tcp://127.0.0.1:0"]),
        ("sensorium.client", "sensorium.errors", ["tcp://127.0.0.1:7447"]),
        ("sensorium.client", "numpy", ["tcp://127.0.0.1:7447"]),
    ],
)
def test_interrupt_during_loading_is_quiet(module: str, where: str, args: list[str], tmp_path: Path) -> None:
    """Ctrl-C during any import ends it with 130 and without output."""
    command = [sys.executable, "-c", STOP, module, where, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_listen_runs_as_a_module() -> None:
    """`python -m sensorium` is the command line."""
    done = subprocess.run([sys.executable, "-m", "sensorium", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"sensorium {sn.__version__}\n")


def test_help_explains_the_options_quickly() -> None:
    """`--help` has examples and loads nothing heavy, not even sockets."""
    code = (
        "import sys; from sensorium.cli import main; assert main(['listen', '--help']) == 0; "
        "heavy = {'torch', 'mujoco', 'warp', 'matplotlib', 'numpy', 'zmq'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("sensorium listen tcp://127.0.0.1:7447 lidar --env 0", "--token-file", "latest", "--json"):
        assert word in done.stdout


# Text -----------------------------------------------------------------------------------------------------------------


def data_of(values: np.ndarray[Any, Any], spec: FieldSpec, cfg: dict[str, Any], *, truth: bool = False) -> Reading:
    """Return received data with a single field."""
    info = StreamInfo(1, "s", "k", "sensorium.fields/1", (spec,), 10.0, cfg=cfg, num_envs=len(values))
    layout = plan(info.specs, len(values), 0, truth)
    flags = TRUTH if truth else 0
    header = Header(flags, type_id(info.type_name), 1, num_envs=len(values), body_bytes=layout.nbytes)
    memory = empty(header.body_offset + header.body_bytes)
    memory[:] = 0
    begin_message(memory, header)
    for block in [each for each in layout.blocks if each.name == spec.name]:
        start = header.body_offset + block.offset
        memory[start : start + values.nbytes] = np.frombuffer(values.tobytes(), np.uint8)
    return FieldSerializer.deserialize(RawData(memory, info))


def texts(values: Any, axes: tuple[str, ...], dtype: str = "float32", role: Any = "scalar", **cfg: Any) -> list[str]:
    array = np.asarray(values, dtype)
    spec = FieldSpec("f", axes, array.shape[1:], dtype, "m", "", "vector", role)
    return [row[-1] for row in values_rows("s", data_of(array, spec, cfg))]


def test_few_numbers_are_shown_and_many_summarised() -> None:
    assert texts([[1.0, -2.5, 0.0]], ("xyz",)) == [" +1.000  -2.500  +0.000"]
    assert texts([[np.nan, np.inf, 1e-5]], ("xyz",)) == ["   +nan    +inf +1.00e-05"]
    assert texts([list(range(8))], ("n",), "int32") == ["0 1 2 3 4 5 ... (8)"]
    assert texts([[True, False] * 10], ("n",), "bool") == ["10 of 20 are true"]
    assert texts([list(range(40))], ("n",), "uint8") == ["0 to 39, mean 19.5"]
    points = np.arange(60.0).reshape(1, 20, 3)
    points[0, 0] = np.nan
    assert texts(points, ("ray", "xyz"), role="point") == [
        "x  +3.000 to +57.000\ny  +4.000 to +58.000\nz  +5.000 to +59.000\n1 of 20 missed"
    ]
    ranges = [[5.0] * 15 + [30.0] * 5]
    assert texts(ranges, ("ray",), role="range", no_hit_value=30.0) == [" +5.000 to  +5.000\n5 of 20 missed"]
    assert texts([[np.nan] * 20], ("ray",), role="range") == ["all 20 missed"]


def test_json_output_has_no_nan_or_infinity() -> None:
    """NaN and infinity become null; statistics of large fields use the finite values."""
    array = np.asarray([[1.0, np.nan, -np.inf]], np.float32)
    spec = FieldSpec("f", ("xyz",), (3,), "float32", "m", "", "vector", "scalar")
    sample = json.loads(show.as_json(data_of(array, spec, {}, truth=True), Stats()))
    assert sample["fields"]["f"]["values"] == sample["truth"]["f"]["values"] == [[1.0, None, None]]
    wide = np.full((1, 100), np.nan, np.float32)
    wide[0, :2] = 1.0, 4.0
    spec = FieldSpec("f", ("n",), (100,), "float32", "m", "", "vector", "scalar")
    field = json.loads(show.as_json(data_of(wide, spec, {}), Stats()))["fields"]["f"]
    assert (field["min"], field["mean"], field["max"], field["finite"]) == (1.0, 2.5, 4.0, 2)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 ms"), (0.0042, "4.2 ms"), (0.9996, "0.9996 s"), (12.0, "12 s"), (-0.003, "-3 ms")]
)
def test_times_are_formatted_briefly(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text
