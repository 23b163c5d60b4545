"""Fixtures that tests of several directories use."""

from __future__ import annotations

import pytest

from sensorium.compute import program


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scenes that are built in this test capture what has run twice, instead of what has run often."""
    monkeypatch.setattr(program, "TIMED_RUNS", 2)
    monkeypatch.setattr(program, "CAPTURE_AFTER", 0)
