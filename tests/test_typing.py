"""The public types have the same meaning for mypy and pyright."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKED = "tests/typing/check_scene_types.py"
MYPY = ["mypy", "--strict", "--allow-untyped-decorators", "--no-error-summary", "--cache-dir"]
"""Warp's decorators, which the package uses, are untyped; the checked file itself requires typed decorators."""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_scene_is_typed_by_its_configs(checker: str, mypy_cache: Path) -> None:
    options = [*MYPY, str(mypy_cache)] if checker == "mypy" else ["pyright", "--pythonpath", sys.executable]
    run = subprocess.run([sys.executable, "-m", *options, CHECKED], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_stub_of_knobs_with_a_prefix_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests/typing")
    writer = import_module("prefixed_knobs")
    is_same = Path(writer.STUB).read_text(encoding="utf-8") == writer.stub()
    assert is_same, "Run python tests/typing/prefixed_knobs.py."
