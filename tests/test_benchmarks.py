"""`python -m benchmarks` finds its functions, and imports only those that it runs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS

NAMES = [name for name, _ in BENCHMARKS]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_names_a_function_that_takes_its_arguments(name: str) -> None:
    call = dict(BENCHMARKS)[name]
    assert isinstance(call, partial)
    module, _, function = call.args[0].partition(".")
    inspect.signature(getattr(import_module(f"benchmarks.{module}"), function)).bind(*call.args[1:], **call.keywords)


def test_names_are_unique_and_listed_without_the_packages_of_benchmarks() -> None:
    """The environment of Newton lacks packages that other benchmarks need."""
    assert len(set(NAMES)) == len(NAMES)
    code = "import sys; sys.modules['lz4'] = None; from benchmarks.__main__ import main; main(['no such benchmark'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "engines/newton" in done.stdout, done.stderr
