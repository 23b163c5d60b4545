"""What the host learns from a device without ever waiting for it."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from sensorium.compute.devices import pinned
from sensorium.compute.program import Compute


class AsyncCopy:
    """A tensor as the host knows it: on the CPU its memory, on CUDA a copy that arrives some time after it was started.

    Args:
        compute: the device.
        source: the tensor, whose address must not change.
    """

    def __init__(self, compute: Compute, source: torch.Tensor) -> None:
        self._compute, self._source = compute, source
        self._host = source if compute.is_cpu else pinned(source.shape, source.dtype, compute.device)
        self._view: NDArray[Any] = self._host.numpy()
        self._event: Any = None

    def start(self) -> bool:
        """Start a copy of what the work submitted so far will leave, where none is under way or needed.

        Returns:
            Whether one was started.
        """
        if self._compute.is_cpu or self._event is not None:
            return False
        self._host.copy_(self._source, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(self._compute.device))
        return True

    def take(self) -> NDArray[Any] | None:
        """Return the values of the copy that was started, once it is there; None before, or where none was started.

        They stay as they are until the next `start`. On the CPU it is the memory itself, at once.
        """
        if not self._compute.is_cpu:
            if self._event is None or not self._event.query():
                return None
            self._event = None
        return self._view
