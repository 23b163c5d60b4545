"""Fixtures for tests of pictures."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def no_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Omit the ticks of all axes, which take most of the time; tests/test_pictures.py draws them."""
    monkeypatch.setattr("matplotlib.ticker.MaxNLocator.tick_values", lambda *_: np.array([]))
