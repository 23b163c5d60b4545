"""A single nursery of processes for all tests of streams."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from streaming import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A nursery that starts servers and clients as separate processes."""
    with tempfile.TemporaryDirectory() as folder:  # its path is short, as required for a socket
        made = Nursery(Path(folder))
        yield made
        made.close()
