"""`sensorium list`, and the imports of commands: kinds, fields and help load neither torch, Warp nor a simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from nursery import Nursery

from sensorium.cli import listing, main
from sensorium.cli.kinds import FILE, kinds, read, text

HEAVY = ("torch", "warp", "mujoco", "mujoco_warp", "matplotlib", "scipy")
COMMANDS = ("demo", "run", "serve", "listen", "explain", "list", "new-sensor", "warmup")


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--version"],
        *([command, "--help"] for command in COMMANDS),
        ["list"],
        ["list", "imu", "grid", "low_pass", "bmi088"],
        ["list", "--all"],
        ["new-sensor", "wind-speed", "--out", "OUT"],
    ],
    ids=" ".join,
)
def test_commands_import_quickly_and_lightly(args: list[str], tmp_path: Path) -> None:
    """None of these imports loads a heavy package, and each takes less than a second of CPU time."""
    args = [str(tmp_path / "out") if arg == "OUT" else arg for arg in args]
    code = f"""
import json, resource, sys
from sensorium.cli import main
code = main({args!r})
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([code, sorted(set({HEAVY!r}) & set(sys.modules)), used.ru_utime + used.ru_stime]), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    exit_code, heavy, seconds = json.loads(done.stderr.splitlines()[-1])
    assert exit_code == 0 and heavy == [] and done.stdout
    assert seconds < 1.0


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
