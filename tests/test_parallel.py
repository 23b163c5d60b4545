"""Tests in several processes are reported as those in one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import os, signal, warnings, pytest

@pytest.fixture(scope="module")
def once():
    yield os.getpid()
    with open("torn_down", "a") as file:
        file.write("x")

@pytest.mark.parametrize("x", [1, 2])
def test_values(once, x, tmp_path):
    (tmp_path / "file").touch()
    print("value", x)
    assert (x, once) == (1, os.getpid()), f"in {tmp_path}"

def test_skipped():
    pytest.skip("here")

def test_warns():
    warnings.warn("careful")

def test_end():
    if "END" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in "abcde":
        (tmp_path / f"test_{name}.py").write_text(CODE)
    return tmp_path


def run(files: Path, *args: str, **variables: str) -> tuple[int, str]:
    """Return the exit code and the output of pytest."""
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    variables |= {"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "parallel",
        "-p",
        "no:cacheprovider",
        "--processes",
        *args,
        str(files),
    ]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300, cwd=files
    )
    return done.returncode, done.stdout


def test_results_are_those_of_one_process(files: Path) -> None:
    code, out = run(files, "3", "-rs", "--basetemp", str(files / "temporary"))
    assert code == 1
    assert "5 failed, 15 passed, 5 skipped, 5 warnings" in out.splitlines()[-1]
    assert out.count("AssertionError: in ") == 5 and out.count("\nvalue 2\n") == 5
    assert out.count("UserWarning: careful") == 5 and out.count(": here") == 5
    assert len({path.resolve() for path in files.glob("temporary/worker*/test_values_*/file")}) == 10
    assert (files / "torn_down").read_text() == 5 * "x"


def test_the_end_of_a_process_fails_the_run(files: Path) -> None:
    code, out = run(files, "2", END="yes")
    assert code == 1
    assert "ended with exit code -9 in test_" in out


def test_failures_stop_the_run(files: Path) -> None:
    code, out = run(files, "2", "--maxfail", "2")
    assert code == 1
    assert "2 failed" in out and "stopping after 2 failures" in out
