"""The time of a tick."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import sensorium as sn


@pytest.mark.parametrize("dt", [0.001, 0.002, 0.1, 1 / 3, 0.0041, 1e-6])
def test_a_time_is_the_exact_product_rounded_once(dt: float) -> None:
    """It is the nearest number to tick times the decimal number dt, for small and large ticks."""
    clock = sn.Scene(sn.TensorEngine(dt=dt)).clock
    for tick in [0, 1, 3, *np.random.default_rng(0).integers(0, 2**31, 50).tolist()]:
        assert clock.time_at(tick) == float(tick * Fraction(repr(dt)))
