"""A block in which every operation raises that makes the host wait for a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.waits import reported_waits


@contextmanager
def nobody_waits(cuda: bool) -> Iterator[None]:
    """Make every operation raise that makes the host wait for a device or needs a value from it."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} was called in a captured step")

    mode = torch.cuda.get_sync_debug_mode() if cuda else 0
    if cuda:
        torch.cuda.set_sync_debug_mode("error")
    try:
        with reported_waits(refuse):
            yield
    finally:
        if cuda:
            torch.cuda.set_sync_debug_mode(mode)
