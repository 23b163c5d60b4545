"""Kernels: how those of this package are declared, compiled and loaded.

Warp compiles a module of kernels as a whole, so each kernel of ours is a module of its own: a scene compiles what it
launches, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import warp as wp


def kernel(function: Callable[..., None]) -> Any:
    """Declare a Warp kernel in a Warp module of its own, without a backward pass.

    Products are not fused with sums, so that the same numbers come out on every device.
    """
    module = wp.get_module(f"{function.__module__}.{function.__qualname__}")
    module.options |= {"fuse_fp": False, "enable_backward": False, "cpu_compiler_flags": _cpu_flags()}
    return wp.kernel(function, module=module)


def _cpu_flags() -> str:
    """Return Warp's flags for the CPU without bfloat16: that halves what the first module of a process waits for."""
    flags = wp.config.cpu_compiler_flags
    return f"{'-march=native' if flags is None else flags} -DWP_NO_BFLOAT16="
