"""`sensorium list`, and the imports of commands: kinds, fields and help import no torch, Warp, simulator or sockets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from nursery import Nursery

from sensorium.cli import listing, main
from sensorium.cli.kinds import FILE, kinds, read, text

HEAVY = ("torch", "warp", "mujoco", "mujoco_warp", "matplotlib", "scipy", "zmq")
COMMANDS = ("demo", "run", "generate", "serve", "listen", "explain", "list", "new-sensor", "warmup")


LIGHT: list[list[str]] = [
    [],
    ["--version"],
    *([command, "--help"] for command in COMMANDS),
    ["list"],
    ["list", "imu", "grid", "low_pass", "bmi088"],
    ["list", "--all"],
    ["new-sensor", "wind-speed", "--out", "new"],
]
RUN_EACH = """
import json, os, sys
import rich.console, rich.panel, rich.table, tyro
from sensorium.cli import main

for number, args in enumerate(json.loads(sys.argv[1])):
    if not os.fork():
        os.dup2(os.open(f"{number}.out", os.O_WRONLY | os.O_CREAT), 1)
        result = [main(args), sorted(set(json.loads(sys.argv[2])) & set(sys.modules)), len(sys.modules)]
        with open(f"{number}.json", "w") as file:
            json.dump(result, file)
        sys.exit()
    os.wait()
"""


def run_each(commands: list[list[str]], folder: Path) -> list[tuple[int, list[str], int, int]]:
    """Return the exit code, the heavy packages, the number of modules and the size of the output of each command.

    Each runs in a fork of a process that has imported what most of them need, which takes most of their time. Its
    modules include those of that process, so they are at least those of a new interpreter.
    """
    program = [sys.executable, "-c", RUN_EACH, json.dumps(commands), json.dumps(HEAVY)]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    results = [folder / f"{number}.json" for number in range(len(commands))]
    assert done.returncode == 0 and all(each.exists() for each in results), done.stderr
    return [(*json.loads(each.read_text()), each.with_suffix(".out").stat().st_size) for each in results]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, list[str], int, int]]:
    return run_each(LIGHT, tmp_path_factory.mktemp("light"))


@pytest.mark.parametrize("number", range(len(LIGHT)), ids=[" ".join(args) for args in LIGHT])
def test_commands_import_quickly_and_lightly(number: int, light: list[tuple[int, list[str], int, int]]) -> None:
    """None of these imports loads a heavy package or many modules, which would take most of the command's time."""
    exit_code, heavy, modules, size = light[number]
    assert exit_code == 0 and heavy == [] and size
    assert modules < 600


INTERRUPTED = """
import atexit, os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "sensorium.cli.messages":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
atexit.register(os.kill, os.getpid(), signal.SIGINT)
from sensorium.cli import main
sys.exit(main())
"""


def test_second_ctrl_c_ends_the_program_at_once(nursery: Nursery) -> None:
    """While the program ends because of the first one, nothing may be printed about the second one."""
    program = nursery.program(INTERRUPTED, "list", bare=True)
    assert (program.wait(), program.out, program.err) == (-signal.SIGINT, "", "")


def test_kinds_file_matches_the_classes(nursery: Nursery) -> None:
    """The static data agree with the classes."""
    code = "from sensorium.cli.kinds import described, text; print(text(described()), end='')"
    program = nursery.program(code, bare=True)  # without the classes of tests
    assert program.wait() == 0, program.err
    is_same = program.out == (Path(listing.__file__).with_name(FILE)).read_text(encoding="utf-8")
    assert is_same, "The classes have changed: run python -m sensorium.cli.kinds."
    assert text(read()) == program.out


def test_the_index_has_every_kind_once_and_fits_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has one line per kind of sensor, the names of the other kinds, and a hint how to see more."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 55
    sensors = [each["kind"] for each in kinds()["sensors"]]
    for kind in sensors:
        assert len([line for line in lines if line.split()[:1] == [kind] and len(line.split()) > 2]) == 1, kind
    words = " ".join(lines).replace(",", " ").replace(";", " ").split()
    for name in [name for part in listing.PARTS for name in kinds()[part]]:
        assert name in words, name
    assert "sensorium list KIND ..." in lines[-1] and "sensorium list --all" in lines[-1]


def test_every_built_in_kind_is_in_one_family() -> None:
    """The index groups all built-in kinds; only kinds of plugins are missing from the table."""
    members = [kind for family in listing.FAMILIES.values() for kind in family]
    assert sorted(members) == [each["kind"] for each in read()["sensors"]]


def test_all_shows_fields_options_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--all"]) == 0
    text = capsys.readouterr().out
    for word in ('kind = "imu"', "gyro_noise_density", "rate_hz", "bmi088", "adis16448", "data sheet"):
        assert word in text
    assert "ray patterns" in text and " risley " in text and " generated " not in text


def test_given_names_show_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    """A kind is listed with its fields and options; a sensor's default pattern is shown by its kind."""
    assert main(["list", "ray_caster", "grid"]) == 0
    text = capsys.readouterr().out
    for word in ('kind = "ray_caster"', '{kind = "grid"}', 'kind = "grid"', "resolution", "ray_alignment"):
        assert word in text, word
    assert 'kind = "imu"' not in text


@pytest.mark.parametrize(
    ("args", "parts"),
    [(["immu"], ["'immu'", "Did you mean 'imu'?"]), (["imu", "--all"], ["--all", "Omit --all"])],
)
def test_a_wrong_name_is_explained(args: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *args]) == 2
    err = capsys.readouterr().err
    assert err.count("error:") == 1 and all(part in err for part in parts)


def test_list_shows_defaults_that_are_configs_as_toml(capsys: pytest.CaptureFixture[str]) -> None:
    """A default that is a config is shown with its contents, and an empty table as an empty table."""
    assert main(["list", "temperature_grid"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in ("{base_temperature = ", "conductivity", " properties {} ", "{pos = (0.0, 0.0, 0.0), rot = "):
        assert word in text, word
    assert "Undefined" not in text and "Cfg()" not in text
