from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import warp as wp
from cluster import Cluster

HEAD, OTHER = "127.0.0.2", "127.0.0.3"
"""Addresses of the nodes. Ray replaces 127.0.0.1 by an address of the network."""
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster of two nodes with two CPUs each, one with a GPU.

    It leaves no process, and no file in the home folder or /dev/shm.
    """
    before = set(os.listdir("/dev/shm"))
    found = Cluster()
    with pytest.MonkeyPatch.context() as patch:
        wp.init()
        patch.setenv("WARP_CACHE_PATH", wp.config.kernel_cache_dir)  # it depends on the home folder
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent / "tests")]))
        patch.delenv("RAY_ADDRESS", raising=False)
        for name, value in found.environment.items():
            patch.setenv(name, value)  # also for the driver, which is this process
        try:
            found.start(HEAD, 2, head=True)
            found.start(OTHER, 2, gpus=1)
            yield found
            left = sorted(map(str, found.home.rglob("*")))
        finally:
            found.stop()
    assert (left, set(os.listdir("/dev/shm")) - before) == ([], set())
