"""Selection of parametrised cases: `make test` runs a covering selection, `make test-full` runs all cases."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def gate(values: Iterable[Any], chosen: Container[Any]) -> list[Any]:
    """Return values for `parametrize`; cases outside the selection run in `make test-full` only."""
    return [value if value in chosen else pytest.param(value, marks=pytest.mark.full) for value in values]


__all__ = ["gate"]
