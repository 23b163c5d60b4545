from __future__ import annotations

import pytest
import world
from mjlab.envs import ManagerBasedRlEnv


@pytest.fixture(scope="session")
def env() -> ManagerBasedRlEnv:
    """The environment of all tests; its clock continues from test to test."""
    return world.make()


@pytest.fixture(scope="session")
def fresh_env() -> ManagerBasedRlEnv:
    """The same environment with `fresh=True`."""
    return world.make(fresh=True)
