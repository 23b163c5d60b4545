"""The example of the blind twin runs on a small budget, and its twin is the hidden IMU."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/blind_twin/blind_twin.py"


@pytest.mark.slow
def test_the_twin_has_the_hidden_parameters_and_policies_are_trained() -> None:
    example = runpy.run_path(str(EXAMPLE))
    hidden, twin = example["HIDDEN"], example["twin_of_hidden"](seconds=40)
    assert abs(twin.delay - hidden.delay) < 1e-3
    assert abs(twin.loss.p / hidden.loss.p - 1.0) < 0.5 and abs(twin.loss.r / hidden.loss.r - 1.0) < 0.5
    for name, density in hidden.noise_density.items():
        assert np.allclose(twin.noise_density[name], density, rtol=0.1)
        assert np.allclose(twin.resolution[name], hidden.resolution[name], rtol=1e-4)
    falls = example["main"](twin, seeds=(1,), rounds=1, judged=50)
    assert [*falls] == ["clean", "twin", "true"] and all(0 <= count <= 50 for (count,) in falls.values())
