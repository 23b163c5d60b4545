"""One nursery of processes for all tests of streams."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from streaming import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Makes servers and clients in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:  # its path is short, as that of a socket must be
        made = Nursery(Path(folder))
        yield made
        made.close()
