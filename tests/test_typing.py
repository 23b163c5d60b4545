"""The public types mean the same to mypy and to pyright."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKED = "tests/typing/check_scene_types.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "checker",
    [
        pytest.param(["mypy", "--strict", "--no-error-summary"], id="mypy"),
        pytest.param(["pyright", "--pythonpath", sys.executable], id="pyright"),
    ],
)
def test_a_scene_is_typed_by_its_configs(checker: list[str]) -> None:
    run = subprocess.run([sys.executable, "-m", *checker, CHECKED], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
