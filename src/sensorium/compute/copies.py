"""Asynchronous copies from a device to the host."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from sensorium.compute.devices import pinned
from sensorium.compute.program import Compute


class AsyncCopy:
    """A tensor as seen by the host: on the CPU its memory, on CUDA a copy that completes some time after its start.

    Args:
        compute: device of the tensor.
        source: tensor to copy; its address must not change.
    """

    def __init__(self, compute: Compute, source: torch.Tensor) -> None:
        self._compute, self._source = compute, source
        self._host = source if compute.is_cpu else pinned(source.shape, source.dtype, compute.device)
        self._view: NDArray[Any] = self._host.numpy()
        self._event: Any = None

    def start(self) -> bool:
        """Start a copy that includes all work submitted so far, unless a copy is pending or none is needed.

        Returns:
            Whether a copy was started.
        """
        if self._compute.is_cpu or self._event is not None:
            return False
        self._host.copy_(self._source, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(self._compute.device))
        return True

    def take(self) -> NDArray[Any] | None:
        """Return the values of the started copy once it is complete; None before, or where none was started.

        The values are constant until the next `start`. On the CPU the memory itself is returned at once.
        """
        if not self._compute.is_cpu:
            if self._event is None or not self._event.query():
                return None
            self._event = None
        return self._view
