"""Memory of the machine: the number of available bytes, and a limit for their use."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from math import inf

_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file "),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file "),
)
"""Files of a control group: its limit, its use, and the line with the part of that use which the kernel frees on
demand."""


def host_available(groups: str | os.PathLike[str] = "/sys/fs/cgroup") -> int | None:
    """Return the bytes of host memory that this process can still allocate; None if the system does not report them.

    The result is the smaller of the free memory of the machine and of the process's control group.

    Args:
        groups: folder with the files of the control group.
    """
    found, whole = [], inf
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = _text("/proc/meminfo")
        whole, available = (1024 * _number(lines, word) for word in ("MemTotal:", "MemAvailable:"))
        found.append(available)
    if not found:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    for limit, used, statistics, cached in _GROUPS:
        with contextlib.suppress(OSError, ValueError, IndexError):  # the file is absent, or the limit is "max"
            most = int(_text(f"{groups}/{limit}"))
            if most < whole:  # a higher limit restricts nothing
                taken = int(_text(f"{groups}/{used}")) - _number(_text(f"{groups}/{statistics}"), cached)
                found.append(max(most - taken, 0))
    return min(found, default=None)


def _text(file: str) -> str:
    with open(file, "rb", buffering=0) as stream:
        return stream.read().decode("ascii")


def _number(text: str, word: str) -> int:
    """Return the number after a word at the start of a line."""
    return int(f"\n{text}".split(f"\n{word}", 1)[1].split(None, 1)[0])


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
