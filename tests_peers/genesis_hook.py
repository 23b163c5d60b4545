"""Plugin of pytest that runs Genesis' own tests with sensorium's sensors: ``pytest -p tests_peers.genesis_hook``.

Only the classes of sensors, of their options and of ray patterns are replaced. Scenes, entities and physics are those
of Genesis.
"""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Replace the sensors once Genesis' `conftest.py`, which prepares the import of Genesis, has run."""
    from tests_peers import genesis_bridge

    genesis_bridge.install()
