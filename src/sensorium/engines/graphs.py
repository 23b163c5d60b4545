"""Functions of a simulator as graphs: each has many small launches, which cost the host more than the device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from typing import Any

import warp as wp

from sensorium.compute import Compute, graph, keeps_current


class WorkGraphs:
    """Functions that are run directly once, which loads their kernels, then captured, then replayed.

    Scalars, sizes and addresses are frozen in a graph: it is captured again after one of its parts was replaced.

    Args:
        compute: device of the launches; `capture` selects whether graphs are replayed.
        parts: returns all arrays and options that a graph may have frozen.
    """

    def __init__(self, compute: Compute, parts: Callable[[], Sequence[Any]]) -> None:
        self._compute, self._parts = compute, parts
        self._graphs: dict[Hashable, Any] = {}
        self._frozen: Sequence[Any] = ()

    @keeps_current
    def run(self, key: Hashable, work: Callable[[], None]) -> None:
        """Run a function, which always has the same arrays for the same key."""
        compute, stream = self._compute, None if self._compute.is_cpu else self._compute.stream
        parts = self._parts() if compute.capture else ()
        if len(parts) != len(self._frozen) or not all(map(operator.is_, parts, self._frozen)):
            self._graphs.clear()
        with graph.launching:
            if key not in self._graphs:
                with wp.ScopedDevice(compute.wp_device), nullcontext() if stream is None else wp.ScopedStream(stream):
                    work()
                if compute.capture:
                    self._graphs[key], self._frozen = None, self._parts()
                return
            if self._graphs[key] is None:
                self._graphs[key] = graph.capture_work(work, compute.wp_device)
            wp.capture_launch(self._graphs[key], stream)
