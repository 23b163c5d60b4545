"""Declaration, compilation and loading of this package's kernels.

Warp compiles a module of kernels as a whole. So each kernel has a separate module, or shares one with kernels that are
always launched with it. A scene compiles the kernels that it launches and no others. A compiled kernel stays in Warp's
cache on disk. While kernels are compiled, a line on the terminal and in the log of `sensorium.compute` counts them.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import warp as wp

from sensorium.errors import RegistrationError

Watcher: TypeAlias = Callable[[int, int, str], object]
"""Callback of `watch_loading`: ``watcher(done, total, name)``."""

COMPILERS = 4
"""Maximum number of parallel compilers: each takes a core and several hundred megabytes."""

LOADS_AFTER_S = 0.05
"""Time after which a launch is assumed to compile or load its kernel, s."""


lock = threading.RLock()
"""Lock for starting Warp and loading kernels, which crash when several threads do so at once.

Use it only with ``with``, so that no interrupt leaves it held.
"""
_held_since = inf
"""Time at which `is_loading` first saw the lock held."""


def is_loading() -> bool:
    """Whether another thread compiles or loads a kernel; detected by a second call `LOADS_AFTER_S` after the first."""
    global _held_since
    if lock.acquire(blocking=False):
        lock.release()
        _held_since = inf
    else:
        _held_since = min(_held_since, time.monotonic())
    return time.monotonic() - _held_since > LOADS_AFTER_S


@contextmanager
def native_silence() -> Iterator[None]:
    """Suppress stderr output of native code temporarily."""
    try:
        sys.stderr.flush()
        saved = os.dup(2)
    except (OSError, ValueError, AttributeError):  # stderr does not exist
        yield
        return
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def start_warp() -> None:
    """Start Warp without its warning about a missing CUDA driver, which is irrelevant on a CPU.

    `resolve_device` reports a missing driver where a CUDA device is requested.
    """
    with native_silence(), lock:
        wp.init()


_log = logging.getLogger("sensorium.compute")
_watchers: list[Watcher] = []


shared_func = partial(wp.func, inline=False) if "inline" in inspect.signature(wp.func).parameters else wp.func
"""Declare a large Warp function with several callers: only one copy is compiled. Warp 1.17 decides this itself."""

DECLARED: list[Any] = []
"""All kernels declared with `kernel`."""

_MASKED_TID = re.compile(r"^( +)((?:k, )?)env((?:, \w+)*) = masked_tid\(rows\)$", re.MULTILINE)
_PROLOGUE = r"""\1\2i\3 = wp.tid()
\1env = rows.start + i
\1if rows.mask[env] == wp.uint8(0):
\1    return"""


def kernel(function: Callable[..., None] | None = None, *, group: str = "") -> Any:
    """Declare a Warp kernel in a separate Warp module, without a backward pass.

    Products are not fused with sums, so that results are identical on every device. A line with `masked_tid` becomes
    the statements that compute the environment and skip it if it is masked out.

    Args:
        function: function that `wp.kernel` accepts; omit it where a group is given.
        group: name of a module shared by kernels of one file that are always launched together, which compiles faster
            than separate modules.

    Raises:
        RegistrationError: `masked_tid` is not alone on its line, or `env` is not at its place there.
    """
    if function is None:
        return partial(kernel, group=group)
    module = wp.get_module(f"{function.__module__}.{group or function.__qualname__}")
    flags = "-march=native" if wp.config.cpu_compiler_flags is None else wp.config.cpu_compiler_flags
    flags += " -DWP_NO_BFLOAT16="  # bfloat16 costs half a second at the first kernel of a process
    module.options |= {"fuse_fp": False, "enable_backward": False, "cpu_compiler_flags": flags}
    source, lines = _MASKED_TID.subn(_PROLOGUE, inspect.getsource(function))
    if "masked_tid" in function.__code__.co_names and lines != 1:
        raise RegistrationError(
            f"kernel {function.__qualname__} must call masked_tid on one separate line without a comment, with the "
            "environment as `env`. Write env, item = masked_tid(rows), or k, env, item = masked_tid(rows) with tasks."
        )
    made = wp.Kernel(function, module=module, source=source)
    DECLARED.append(made)
    return made


@contextmanager
def watch_loading(watcher: Watcher) -> Iterator[None]:
    """Call a function while any thread compiles kernels in this block.

    Args:
        watcher: called as ``watcher(done, total, name)`` before the first kernel is compiled and after each. `total` kernels
            are compiled in one batch, `done` of them are ready, and `name` is one of the others, empty at the end.
            The call runs in the compiling thread.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def load(kernels: Iterable[Any], device: Any) -> None:
    """Compile and load the given kernels that are not in Warp's cache; cached kernels load at their first launch.

    Args:
        kernels: Warp kernels.
        device: the Warp device.
    """
    with lock:
        waiting = [module for module in {kernel.module: None for kernel in kernels} if not _is_ready(module, device)]
        if not waiting:
            return
        total = len(waiting)
        try:
            _report(0, total, waiting[0].name)
            for done, module in enumerate(load_modules(list(waiting), device), start=1):
                waiting.remove(module)
                _report(done, total, waiting[0].name if waiting else "")
        finally:
            _show("")


def load_modules(modules: Iterable[Any], device: Any) -> Iterator[Any]:
    """Compile and load Warp modules, several at once, and yield each one that is ready.

    Args:
        modules: Warp modules.
        device: the Warp device, or its name.
    """
    pool = ThreadPoolExecutor(min(COMPILERS, os.cpu_count() or 1))
    try:
        jobs = {pool.submit(wp.load_module, module, device=device): module for module in modules}
        for job in as_completed(jobs):
            job.result()
            yield jobs[job]
    finally:
        pool.shutdown(cancel_futures=True)


def _is_ready(module: Any, device: Any) -> bool:
    """Whether a module is loaded, or compiled for this kind of device."""
    if any(each.device == device for each in module.execs.values()):
        return True
    block_dim = 1 if device.is_cpu else None
    folder = Path(wp.config.kernel_cache_dir, module.get_module_identifier(block_dim))
    suffixes = {".o"} if device.is_cpu else {".ptx", ".cubin"}
    return bool(wp.config.cache_kernels) and any(path.suffix in suffixes for path in folder.glob("*"))


def _report(done: int, total: int, name: str) -> None:
    """Report the progress of compilation to the watchers, the terminal and the log."""
    for watcher in tuple(_watchers):
        watcher(done, total, name)
    if name:
        line = f"compiling kernels, first run only: {done + 1} of {total}"
        _log.info("%s (%s)", line, name)
        _show(line)


def _show(line: str) -> None:
    """Replace the last line where standard error is a terminal that no other display uses."""
    stream = sys.__stderr__
    if stream is not None and sys.stderr is stream and stream.isatty():
        stream.write(f"\r\x1b[K{line}")
        stream.flush()
