"""Warp's precompiled headers, which all processes of a test run share; otherwise each thread precompiles them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any
from zlib import crc32

from warp._src import build
from warp._src.context import Runtime

FOLDER = "SENSORIUM_TESTS_HEADERS"
"""Environment variable with the folder of the headers."""

_build_cpu = build.build_cpu


def _build_in_turn(*args: Any, **options: Any) -> None:
    """Compile kernels; the first ones with these options alone, since they precompile the headers."""
    kind = repr([options[name] for name in ("extra_flags", "optimization_level", "block_dim")])
    known = Path(os.environ[FOLDER], f"{crc32(kind.encode()):08x}.known")
    with Path(os.environ[FOLDER], "lock").open("w") as file:
        if not known.exists():
            fcntl.flock(file, fcntl.LOCK_EX)
        _build_cpu(*args, **options)
    known.touch()


def share() -> None:
    """Use the shared headers in this process and its children."""
    build.build_cpu = _build_in_turn
    Runtime.get_clang_pch_dir = lambda self: os.environ[FOLDER]
