"""Threads that share launches, and captured graphs: launches with fixed arguments that are replayed by one call.

Warp captures graphs on the CPU too, one at a time in a process. On the CPU, launches of any thread are added to it
instead of being run. Captures are therefore serialised here, and wait until no thread launches kernels or builds
launches. Code that calls Warp directly, in a thread other than the one that steps a scene, must ensure that no scene
captures at the same time.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ContextDecorator, contextmanager, nullcontext
from typing import Any

import warp as wp

from sensorium.errors import SensoriumError


class _LaunchLock(ContextDecorator):
    """Lock that many launching threads share, or one capturing thread holds exclusively."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # used directly: an interrupt while entering a Condition would leave it locked
        self._changed = threading.Condition(self._lock)
        self._launching: dict[int, int] = {}  # thread -> nesting depth
        self._capturing: int | None = None

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._lock:
            while self._capturing not in (None, me):
                self._changed.wait()
            self._launching[me] = self._launching.get(me, 0) + 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self._lock:
            depth = self._launching.pop(me, 1) - 1
            if depth:
                self._launching[me] = depth
            elif not self._launching:
                self._changed.notify_all()

    def recover(self) -> None:
        """Clear this thread's launches after an exception: an interrupt may skip `__exit__`."""
        with self._lock:
            self._launching.pop(threading.get_ident(), None)
            self._changed.notify_all()

    @contextmanager
    def capturing_alone(self) -> Iterator[None]:
        """Wait for all other threads, and block them while inside this block."""
        me = threading.get_ident()
        with self._lock:
            mine = self._launching.pop(me, 0)  # avoids a deadlock of two launching threads that both want to capture
            self._changed.notify_all()
        try:
            with self._lock:
                while self._capturing is not None or self._launching:
                    self._changed.wait()
                self._capturing = me
            cpu = wp.get_device("cpu")
            was_open = cpu.is_capturing
            try:
                yield
            finally:
                if cpu.is_capturing and not was_open:  # interrupted: all later launches would be added to this capture
                    wp.capture_end(cpu)
        finally:
            with self._lock:
                if self._capturing == me:
                    self._capturing = None
                if mine:
                    self._launching[me] = mine
                self._changed.notify_all()


launching = _LaunchLock()
"""Guard, ``with launching:`` or ``@launching``, for code that must not overlap a capture of another thread.

On the CPU its launches would be added to that capture, where Warp also registers new arrays and recorded launches. Such
blocks may be nested, and a capture may be made inside them.
"""


def capture(commands: Sequence[Any], device: Any) -> Any:
    """Return a graph of recorded launches without running them.

    Args:
        commands: recorded launches (`wp.launch(..., record_cmd=True)`) that have run before, so that their modules are
            loaded.
        device: Warp device.

    Raises:
        SensoriumError: a kernel could not be captured, or the graph could not be created; the message names the kernel,
            or all.
    """
    at = ", ".join(dict.fromkeys(repr(command.kernel.key) for command in commands))
    stream = None if device.is_cpu else wp.Stream(device)  # CUDA cannot capture on the default stream
    with launching.capturing_alone():
        try:  # relaxed: objects that Python frees in the meantime may call the driver
            with wp.ScopedCapture(
                device=device, stream=stream, force_module_load=False, capture_mode=wp.CaptureMode.RELAXED
            ) as captured:
                for command in commands:
                    at = repr(command.kernel.key)
                    command.launch(stream)
                at = ", ".join(dict.fromkeys(repr(command.kernel.key) for command in commands))
            if captured.graph is None:
                raise RuntimeError("the device returned no graph")
        except Exception as error:
            raise SensoriumError(
                f"kernel {at} could not be captured on {device}: {error}. Run without capture: "
                "Scene(..., capture=False) or scene.capture(False)."
            ) from error
    return captured.graph


def capture_work(work: Callable[[], None], device: Any) -> Any:
    """Return a graph of all launches of a function on a Warp device, which must not allocate or load kernels."""
    stream = None if device.is_cpu else wp.Stream(device)
    collects = gc.isenabled()
    gc.disable()  # memory freed during a capture would invalidate it
    try:
        with (
            launching.capturing_alone(),
            wp.ScopedDevice(device),
            nullcontext() if stream is None else wp.ScopedStream(stream),
            wp.ScopedCapture(device=device, force_module_load=False) as captured,
        ):
            work()
    finally:
        if collects:
            gc.enable()
    return captured.graph


class LaunchWorkers:
    """Threads that share the work of the thread that owns the loop; they start on first use and end with this object.

    Args:
        count: number of threads.
    """

    def __init__(self, count: int) -> None:
        self._count, self._process = count, 0

    def run(self, pieces: Sequence[Callable[[], object]]) -> None:
        """Run all pieces here and on the threads, each of which takes the next one; raise the first error."""
        if self._process != os.getpid():  # a fork has no other threads
            self._pool, self._process = ThreadPoolExecutor(self._count, "sensorium"), os.getpid()
        queue = iter(pieces)  # advanced by several threads: a step of a sequence's iterator is atomic

        def work() -> None:
            for piece in queue:
                piece()

        try:
            futures = [self._pool.submit(work) for _ in range(min(self._count, len(pieces) - 1))]
            work()
            wait(futures)
        except BaseException:  # also an interrupt: the memory of the pieces may be freed next
            self._process = 0
            self._pool.shutdown()
            raise
        for future in futures:
            future.result()
