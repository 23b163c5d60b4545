"""Signals that end a program between two steps of a simulation."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def ending(*numbers: int) -> Iterator[list[int]]:
    """Collect signals in a list instead of interrupting a step; a second signal interrupts it.

    Args:
        numbers: the signals that end the program.
    """
    got: list[int] = []

    def take(number: int, _: object) -> None:
        if got:
            raise KeyboardInterrupt
        got.append(number)

    before = {number: signal.signal(number, take) for number in numbers}
    try:
        yield got
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
