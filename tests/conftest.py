"""Fixtures for tests of several directories."""

from __future__ import annotations

import ctypes.util
import fcntl
import functools
import gc
import os
import shutil
import signal
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch.testing
import warp as wp
from warp._src.context import Module

if TYPE_CHECKING:
    from streaming import Nursery

if ctypes.util.find_library("EGL"):
    os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is imported

import headers
from parallel import pytest_addoption, pytest_runtestloop  # noqa: F401 - hooks

from sensorium.compute import program

_compile = Module._compile


@functools.cache
def _locks() -> int:
    """Return the descriptor of a file with a byte to lock per kernel; closing it would release all locks."""
    return os.open(os.path.join(wp.config.kernel_cache_dir, "tests.lock"), os.O_RDWR | os.O_CREAT)


def _compiled_once(self: Any, device: Any, folder: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile a kernel in one of the processes that need it at the same time; the others use its result."""
    byte = zlib.crc32(str(folder or self.name).encode())
    fcntl.lockf(_locks(), fcntl.LOCK_EX, 1, byte)
    try:
        return _compile(self, device, folder, *args, **kwargs)
    finally:
        fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, byte)


Module._compile = _compiled_once

_register_kernel = Module.register_kernel


def _unoptimised(self: Any, kernel: Any) -> None:
    """Register a kernel, which compiles three times as fast without optimisation if it is one of MuJoCo Warp's."""
    if kernel.func.__module__.startswith("mujoco_warp."):
        self.options["optimization_level"] = 0
    _register_kernel(self, kernel)


Module.register_kernel = _unoptimised

# The first comparison would import torch.distributed.tensor and with it SymPy, which takes 2.7 s in each process.
setattr(torch.testing._comparison, "_HAS_DTENSOR", False)  # noqa: B010

# A shell's background job ignores Ctrl-C, as do the processes that it starts. Tests of Ctrl-C would then wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Create the folder of Warp's precompiled headers, and remove it at the end."""
    os.environ[headers.FOLDER] = folder = tempfile.mkdtemp()
    config.add_cleanup(lambda: shutil.rmtree(folder))
    headers.share()


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Suspend the collection of garbage: almost everything that the import of the tests creates stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, which the import of the tests suspended."""
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Exempt all existing objects from garbage collection, so that it only visits objects of this file's tests.

    Many tests collect garbage explicitly, which otherwise visits all imported modules and collected tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A process that starts servers, clients and other programs as separate processes."""
    from streaming import Nursery

    with tempfile.TemporaryDirectory() as folder:  # its path is short, as required for a socket
        made = Nursery(Path(folder))
        made.program("").wait()  # its imports take long beside other work, and tests with servers would wait for them
        yield made
        made.close()


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
