"""Selection of parametrised cases: `make test` runs a covering selection, `make test-full` runs all cases."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def gate(values: Iterable[Any], chosen: Container[Any]) -> list[Any]:
    """Return values for `parametrize`; cases outside the selection run in `make test-full` only."""
    return [value if value in chosen else pytest.param(value, marks=pytest.mark.full) for value in values]


def pairs(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """Return all pairs for `parametrize`; in the gate, values take turns, so that each one occurs."""
    rows, columns = list(first), list(second)
    turns = min(len(rows), len(columns))
    return [
        pytest.param(row, column, marks=[] if (i - j) % turns == 0 else pytest.mark.full)
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]


__all__ = ["gate", "pairs"]
