"""The public types mean the same to mypy and to pyright."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKED = "tests/typing/check_scene_types.py"
MYPY = ["mypy", "--strict", "--allow-untyped-decorators", "--no-error-summary", "--cache-dir"]
"""Warp's decorators, which our code has, are untyped; the checked file itself asks for typed ones."""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_scene_is_typed_by_its_configs(checker: str, mypy_cache: Path) -> None:
    options = [*MYPY, str(mypy_cache)] if checker == "mypy" else ["pyright", "--pythonpath", sys.executable]
    run = subprocess.run([sys.executable, "-m", *options, CHECKED], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
