"""Without the extra `jax`; tests_jax has the tests that need it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import sensorium.jax as sj
from sensorium.engines.mjx.arrays import module
from sensorium.errors import MissingDependencyError


@pytest.fixture
def _no_jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module.cache_clear()
    for name in ("jax", "mujoco.mjx"):
        monkeypatch.setitem(sys.modules, name, None)
    yield
    module.cache_clear()


@pytest.mark.usefixtures("_no_jax")
def test_missing_extra_names_the_line_to_install() -> None:
    for call in (lambda: sj.from_mjx(None, None, None), lambda: sj.SensorWrapper(None, (), {})):
        with pytest.raises(MissingDependencyError, match=r"pip install 'sensorium\[jax\]'"):
            call()
