"""Captured graphs: launches with fixed arguments that are replayed by one call, on the CPU too.

Warp has one capture at a time in a process, and on the CPU every launch of any thread goes into it instead of being
run. So captures are serialised here, and wait until nobody launches or builds what is launched. Only who calls Warp by
himself, in another thread than the one that steps a scene, must see to it that no scene captures then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ContextDecorator, contextmanager
from typing import Any

import warp as wp

from sensorium.errors import SensoriumError


class _Turns(ContextDecorator):
    """Many threads may launch at a time, or one may capture."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # taken as it is: an interrupt on the way into a Condition leaves it locked
        self._changed = threading.Condition(self._lock)
        self._launching: dict[int, int] = {}  # thread -> how deep
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
        """Forget what this thread launched, after an exception ended it: an interrupt may come before `__exit__`."""
        with self._lock:
            self._launching.pop(threading.get_ident(), None)
            self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for all other threads, and keep them waiting in this block."""
        me = threading.get_ident()
        with self._lock:
            mine = self._launching.pop(me, 0)  # else two that launch and want to capture would wait for each other
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
                if cpu.is_capturing and not was_open:  # interrupted: all later launches would fall into it
                    wp.capture_end(cpu)
        finally:
            with self._lock:
                if self._capturing == me:
                    self._capturing = None
                if mine:
                    self._launching[me] = mine
                self._changed.notify_all()


launching = _Turns()
"""``with launching:`` or ``@launching`` around what may not meet a capture of another thread, on the CPU: launches
would fall into it, and Warp notes new arrays and recorded launches in it. Such blocks may be nested, and a capture may
be made in them."""


def capture(commands: Sequence[Any], device: Any) -> Any:
    """Return a graph of recorded launches; nothing is run.

    Args:
        commands: recorded launches (`wp.launch(..., record_cmd=True)`) that have run before, so that their modules are
            loaded.
        device: the Warp device.

    Raises:
        SensoriumError: naming the kernel that could not be captured, or all of them where the graph could not be made.
    """
    at = ", ".join(dict.fromkeys(repr(command.kernel.key) for command in commands))
    stream = None if device.is_cpu else wp.Stream(device)  # CUDA captures nothing on the default stream
    with launching.alone():
        try:  # relaxed: what Python happens to free in the meantime may call the driver
            with wp.ScopedCapture(
                device=device, stream=stream, force_module_load=False, capture_mode=wp.CaptureMode.RELAXED
            ) as captured:
                for command in commands:
                    at = repr(command.kernel.key)
                    command.launch(stream)
                at = ", ".join(dict.fromkeys(repr(command.kernel.key) for command in commands))
            if captured.graph is None:
                raise RuntimeError("the device gave no graph")
        except Exception as error:
            raise SensoriumError(
                f"kernel {at} could not be captured on {device}: {error}. Run without: Scene(..., capture=False) or "
                "scene.capture(False)."
            ) from error
    return captured.graph
