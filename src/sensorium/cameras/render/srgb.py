"""Transfer curve of a display (sRGB, IEC 61966-2-1)."""

from __future__ import annotations

import warp as wp


@wp.func
def encoded(x: float) -> float:
    """Return the sRGB value of a linear one; both are clamped to [0, 1]."""
    x = wp.clamp(x, 0.0, 1.0)
    if x <= 0.0031308:
        return 12.92 * x
    return float(1.055 * wp.pow(x, 1.0 / 2.4) - 0.055)


@wp.func
def decoded(x: float) -> float:
    """Return the linear value of an sRGB one in [0, 1]."""
    if x <= 0.04045:
        return x / 12.92
    return float(wp.pow((x + 0.055) / 1.055, 2.4))
