"""`sensorium new-sensor` writes a package that can be tested, formatted and type-checked without changes.

Its installation is tested in `test_plugins.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nursery import OWN_TESTS, PATIENCE, Nursery
from selection import gate

from sensorium.cli import main
from sensorium.cli.new_sensor import LONGEST, Names, write
from sensorium.errors import UsageError

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*/pyproject.toml"))
LONG = "Abcdefghijklmnopqrstuvwx"


def python(*args: str, cwd: Path) -> None:
    """Run Python."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "camel", "kind"),
    [
        ("wind-speed", "WindSpeed", "wind_speed"),
        ("wind_speed", "WindSpeed", "wind_speed"),
        ("wind speed", "WindSpeed", "wind_speed"),
        ("WindSpeed", "WindSpeed", "wind_speed"),
        ("windSpeed", "WindSpeed", "wind_speed"),
        ("WIND-SPEED", "WindSpeed", "wind_speed"),
        ("wind-speed-sensor", "WindSpeed", "wind_speed"),
        ("WindSpeedSensor", "WindSpeed", "wind_speed"),
        ("WindSpeedCfg", "WindSpeed", "wind_speed"),
        ("sensorium-wind-speed", "WindSpeed", "wind_speed"),
        ("IMUFilter", "IMUFilter", "imu_filter"),
        ("gps2", "Gps2", "gps2"),
        ("w", "W", "w"),
    ],
)
def test_a_name_is_read_in_any_style(text: str, camel: str, kind: str) -> None:
    names = Names.of(text)
    assert (names.camel, names.kind) == (camel, kind)
    assert names.package == f"sensorium_{kind}"
    assert names.distribution == f"sensorium-{kind.replace('_', '-')}"


@pytest.mark.parametrize(
    "text",
    ["", "9-axis", "wind.speed", "wind/../speed", "vent-é", "-wind", "wind-", "none", "True", "sensor", "cfg",
     "Sensorium", "x" * (LONGEST + 1)],
)  # fmt: skip
def test_invalid_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^NAME: got .* letters and digits"):
        Names.of(text)


# The command ----------------------------------------------------------------------------------------------------------


def test_new_sensor_prints_files_and_next_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-sensor", "wind-speed"]) == 0
    out = capsys.readouterr().out
    for part in ('kind "wind_speed"', "src/sensorium_wind_speed/options.py", "WindSpeed.update_raw_data", "next:",
                 "cd sensorium-wind-speed", "pip install -e '.[test]'", "python -m pytest",
                 "sensorium list"):  # fmt: skip
        assert part in out
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    package = "sensorium-wind-speed/src/sensorium_wind_speed"
    assert files == {
        "sensorium-wind-speed/pyproject.toml", "sensorium-wind-speed/README.md", f"{package}/__init__.py",
        f"{package}/options.py", f"{package}/sensor.py", f"{package}/py.typed",
        "sensorium-wind-speed/tests/test_wind_speed.py",
    }  # fmt: skip
    assert not any("$" in (tmp_path / file).read_text(encoding="utf-8") for file in files)


def test_new_sensor_refuses_to_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with any content, or a file of that name, is left unchanged; an empty folder is filled."""
    taken = tmp_path / "taken"
    taken.mkdir()
    assert main(["new-sensor", "wind", "--out", str(taken)]) == 0
    before = {path: path.read_bytes() for path in taken.rglob("*") if path.is_file()}
    capsys.readouterr()
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for place in (taken, tmp_path / "file"):
        assert main(["new-sensor", "wind", "--out", str(place), "--full-control"]) == 2
        assert "nothing was overwritten" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in taken.rglob("*") if path.is_file()}
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_used_kind_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-sensor", "ImuSensor", "--out", str(tmp_path / "new")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "'imu'" in error and "sensorium.sensors.inertial.imu.ImuCfg" in error and "my-imu" in error
    assert not (tmp_path / "new").exists()


def test_help_explains_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-sensor", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in ("options.py", "sensor.py", "entry-point group sensorium.sensors", "sensorium new-sensor wind-speed",
                 "--full-control", "Sensor.compute", "update_raw_data"):  # fmt: skip
        assert part in text


# The package ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package of each kind: a short name, and the longest name with full control."""
    folder = tmp_path_factory.mktemp("new")
    write(Names.of("ohm"), folder / "simple")
    write(Names.of(LONG), folder / "full", full_control=True)
    return folder


@pytest.mark.parametrize("package", ["simple", "full"])
def test_a_new_package_is_clean_for_ruff(folder: Path, package: str) -> None:
    """The new package satisfies the format and style rules of its pyproject.toml."""
    assert len(LONG) == LONGEST
    python("-m", "ruff", "check", "--no-cache", ".", cwd=folder / package)
    python("-m", "ruff", "format", "--no-cache", "--check", ".", cwd=folder / package)


@pytest.mark.slow
def test_new_packages_and_examples_are_typed(folder: Path, mypy_cache: Path) -> None:
    """New packages and the example packages pass mypy --strict, as the library does."""
    mypy = ["mypy", "--no-error-summary", "--cache-dir", str(mypy_cache)]
    packages = [folder / "simple", folder / "full", *(each.parent for each in EXAMPLES)]
    python("-m", *mypy, *(str(package / "src") for package in packages), cwd=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("package", gate(["simple", "full"], {"full"}))
def test_a_new_package_passes_its_own_tests(folder: Path, package: str, nursery: Nursery) -> None:
    """The tests of the new package, including `check_sensor`, pass in its folder at once."""
    program = nursery.program(OWN_TESTS, folder=folder / package)
    assert program.wait(10.0 * PATIENCE) == 0, program.out + program.err
    assert "4 passed" in program.out
