"""Rows of the arrays of bodies that are read: engines convert no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch


class ReadRows:
    """Flags of the bodies whose rows are read, one bit for each group of arrays.

    A row is read from the first request for it (`Engine.array`, `Engine.array_of`), and forever after, since the
    caller may keep the tensor.

    Args:
        count: number of bodies.
        bits: bit of each array; arrays of one group have the same.
        device: torch device of the kernels.

    Attributes:
        flags: uint8 `[body]` at a fixed address, for kernels: they skip a group where its bit is 0.
    """

    def __init__(self, count: int, bits: Mapping[str, int], device: str) -> None:
        self.flags = torch.zeros(count, dtype=torch.uint8, device=device)
        self._bits = bits
        self._all = torch.full_like(self.flags, sum(set(bits.values())))
        self._whole: set[str] = set()
        self._held: torch.Tensor | None = None

    def add(self, name: str, bodies: torch.Tensor | None) -> torch.Tensor | None:
        """Add rows of an array (None: all) that are read from now on; return the flags that are new, if any are.

        Args:
            name: name of the array; others than those of bodies are ignored.
            bodies: rows, -1 for none.
        """
        if name in self._whole or name not in self._bits:
            return None
        new = torch.zeros_like(self.flags)
        if bodies is None:
            self._whole.add(name)
            new[:] = self._bits[name]
        else:
            new[bodies[bodies >= 0].to(new.device, torch.int64)] = self._bits[name]
        flags = self.flags if self._held is None else self._held
        new &= ~flags
        if not bool(new.any()):
            return None
        flags |= new
        return new if self._held is None else None

    def hold(self) -> None:
        """Convert all rows until `release`, because those not read cannot be converted later."""
        if self._held is None:
            self._held = self.flags.clone()
            self.flags |= self._all

    def release(self) -> None:
        """End `hold`, because all environments will be converted now."""
        if self._held is not None:
            self.flags.copy_(self._held)
            self._held = None

    def unread(self) -> torch.Tensor:
        """Return the flags of all rows that are not read."""
        return self._all & ~self.flags

    def run_for(self, flags: torch.Tensor, convert: Callable[[], object]) -> None:
        """Convert the rows of some flags only."""
        kept = self.flags.clone()
        self.flags.copy_(flags)
        try:
            convert()
        finally:
            self.flags.copy_(kept)
