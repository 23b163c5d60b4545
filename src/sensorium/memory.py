"""Memory of the machine: the number of available bytes, and a limit for their use."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file "),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file "),
)
"""Files of a control group: its limit, its use, and the line with the part of that use which the kernel frees on
demand."""


def host_available(groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes of host memory that this process can still allocate; None if the system does not report them.

    The result is the smaller of the free memory of the machine and of the process's control group.

    Args:
        groups: folder with the files of the control group.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        found.append(1024 * _number(Path("/proc/meminfo"), "MemAvailable:"))
    if not found:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    for limit, used, statistics, cached in _GROUPS:
        with contextlib.suppress(OSError, ValueError, IndexError):  # the file is absent, or the limit is "max"
            taken = int((groups / used).read_text()) - _number(groups / statistics, cached)
            found.append(max(int((groups / limit).read_text()) - taken, 0))
    return min(found, default=None)


def _number(file: Path, word: str) -> int:
    """Return the number after a word at the start of a line."""
    found = [line for line in file.read_text(encoding="ascii").splitlines() if line.startswith(word)]
    return int(found[0].split()[1])


@dataclass
class Allowance:
    """Limit of the memory of sensors; `compute.Memory.within` counts their allocations.

    Args:
        nbytes: bytes of memory; infinite for no limit.
        rays: rays of one sample in all environments together.
        expected: what fits, for messages: ``"at most 1 MB for all of them"``.
        fix: how to raise the limit, for messages.
    """

    nbytes: float = inf
    rays: float = inf
    expected: str = "a size that fits"
    fix: str = ""
    taken: int = field(default=0, init=False)
    """Bytes allocated so far."""
    rays_taken: int = field(default=0, init=False)
    """Rays cast per sample."""


def in_mb(nbytes: float) -> str:
    """Return a number of bytes as text in MB."""
    return f"{nbytes / 1e6:.3g} MB" if not 1e8 <= nbytes < 1e12 else f"{nbytes / 1e6:.0f} MB"
