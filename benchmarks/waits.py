"""Detection of operations that make the host wait for a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import warp as wp
from torch import Tensor

WAITING: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (wp, ("synchronize", "synchronize_device", "synchronize_stream", "synchronize_event")),
    (wp.array, ("numpy",)),
    (torch, ("nonzero", "masked_select", "unique")),
    (
        Tensor,
        (
            "item", "cpu", "numpy", "tolist", "nonzero", "masked_select", "__bool__", "__int__", "__float__",
            "__index__", "__array__",
        ),
    ),
)  # fmt: skip
"""Functions that wait, or need a value from the device, on every device."""


@contextmanager
def reported_waits(report: Callable[[str], object]) -> Iterator[None]:
    """Call a function with the name of each operation of this block that makes the host wait, before it runs.

    These are `WAITING` and tensors indexed with a mask. The device need not be a GPU.
    """

    def reported(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            report(name)
            return plain(*args, **options)

        return call

    def indexed(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Tensor, index: Any, *value: Any) -> Any:
            parts = index if isinstance(index, tuple) else (index,)
            if any(isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) for part in parts):
                report("a boolean index")
            return plain(self, index, *value)

        return call

    with ExitStack() as stack:
        for place, names in WAITING:
            for name in names:
                plain = getattr(place, name)
                stack.enter_context(mock.patch.object(place, name, reported(f"{place.__name__}.{name}", plain)))
        for name in ("__getitem__", "__setitem__"):
            stack.enter_context(mock.patch.object(Tensor, name, indexed(getattr(Tensor, name))))
        yield
