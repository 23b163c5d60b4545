"""What the host learns from a device without ever waiting for it."""

from __future__ import annotations

from typing import Any

import numpy as np
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
        self._host: torch.Tensor | None = None
        self._event: Any = None
        self._view: NDArray[Any] | None = source.numpy() if compute.is_cpu else None

    def start(self) -> bool:
        """Start a copy of what the work submitted so far will leave, where none is under way or needed.

        Returns:
            Whether one was started.
        """
        if self._view is not None or self._event is not None:
            return False
        if self._host is None:
            self._host = pinned(self._source.shape, self._source.dtype, self._compute.device)
        self._host.copy_(self._source, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(self._compute.device))
        return True

    def take(self) -> NDArray[Any] | None:
        """Return the values of the copy that was started, once it is there; None before, or where none was started.

        They stay as they are until the next `start`. On the CPU it is the memory itself, at once.
        """
        if self._view is not None:
            return self._view
        if self._event is None or not self._event.query():
            return None
        self._event = None
        assert self._host is not None
        return np.asarray(self._host.numpy())
