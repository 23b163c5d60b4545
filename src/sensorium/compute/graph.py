"""Captured graphs: launches with fixed arguments that are replayed by one call, on the CPU too.

Warp has one capture at a time in a process, and on the CPU every launch of any thread goes into it instead of being
run. So captures are serialised here, and wait until nobody launches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import warp as wp

from sensorium.errors import SensoriumError


class _Turns:
    """Many may launch at a time, or one may capture."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._launching = 0
        self._is_capturing = False

    def __enter__(self) -> None:
        with self._changed:
            while self._is_capturing:
                self._changed.wait()
            self._launching += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._launching -= 1
            if not self._launching:
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for all others, and keep them waiting in this block."""
        with self._changed:
            while self._is_capturing or self._launching:
                self._changed.wait()
            self._is_capturing = True
        try:
            yield
        finally:
            with self._changed:
                self._is_capturing = False
                self._changed.notify_all()


launching = _Turns()
"""``with launching:`` around launches that must not fall into a capture of another thread, on the CPU.

``with launching.alone():`` is for the capture, and may not be inside such a block.
"""


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
