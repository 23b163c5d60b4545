"""Fixtures for tests of several directories."""

from __future__ import annotations

import ctypes.util
import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

if ctypes.util.find_library("EGL"):
    os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is imported

from sensorium.compute import program

# A shell's background job ignores Ctrl-C, as do the processes that it starts. Tests of Ctrl-C would then wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Exempt all existing objects from garbage collection, so that it only visits objects of this file's tests.

    Many tests collect garbage explicitly, which otherwise visits all imported modules and collected tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture repeated work in this test on its second run, without waiting until it has run often."""
    monkeypatch.setattr(program, "TIMED_RUNS", 2)
    monkeypatch.setattr(program, "CAPTURE_AFTER", 0)


@pytest.fixture
def mypy_cache(tmp_path: Path) -> Iterator[Path]:
    """A folder for `mypy --cache-dir` with the results of `make type`; no other process writes into it."""
    known, own = Path(__file__).parents[1] / ".mypy_cache", tmp_path / "mypy_cache"
    if known.is_dir():
        shutil.copytree(known, own)
    yield own
    shutil.rmtree(own, ignore_errors=True)
