"""A block in which every operation raises that makes the host wait for a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import warp as wp
from torch import Tensor


@contextmanager
def nobody_waits(cuda: bool) -> Iterator[None]:
    """Make every operation raise that makes the host wait for a device or needs a value from it."""

    def refuse(name: str) -> Callable[..., Any]:
        def raises(*_: Any, **__: Any) -> Any:
            raise AssertionError(f"{name} was called in a captured step")

        return raises

    def indexed(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Tensor, index: Any, *value: Any) -> Any:
            parts = index if isinstance(index, tuple) else (index,)
            if any(isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) for part in parts):
                raise AssertionError("a boolean index was used in a captured step")
            return plain(self, index, *value)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("synchronize", "synchronize_device", "synchronize_stream", "synchronize_event"):
            patch.setattr(wp, name, refuse(f"wp.{name}"))
        patch.setattr(wp.array, "numpy", refuse("wp.array.numpy"))
        for name in (
            "item", "cpu", "numpy", "tolist", "nonzero", "masked_select", "__bool__", "__int__", "__float__",
            "__index__", "__array__",
        ):  # fmt: skip
            patch.setattr(Tensor, name, refuse(f"Tensor.{name}"))
        for name in ("nonzero", "masked_select", "unique"):
            patch.setattr(torch, name, refuse(f"torch.{name}"))
        for name in ("__getitem__", "__setitem__"):
            patch.setattr(Tensor, name, indexed(getattr(Tensor, name)))
        mode = torch.cuda.get_sync_debug_mode() if cuda else 0
        if cuda:
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            if cuda:
                torch.cuda.set_sync_debug_mode(mode)
