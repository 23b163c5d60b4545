"""`python -m benchmarks` runs each of its functions, and imports only those that it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from selection import gate

from benchmarks.__main__ import BENCHMARKS
from benchmarks.timing import ONCE

NAMES = [name for name, _ in BENCHMARKS]
FULL = {
    # Other sizes or scenes of a function that runs in the gate.
    "capture/many/1024", "engines/1024", "engines/control/1024", "contact_physics/1024", "rays/mesh/1024",
    "rays/hfield/1024", "rays/lidar/hfield", "cameras/terrain/16", "cameras/terrain/256", "cameras/room/16",
    "cameras/tabletop/256", "cameras/terrain/large", "cameras/annotators/room", "cameras/annotators/tabletop",
    "cameras/colors/terrain", "cameras/colors/tabletop",
    # Many processes with imports of several seconds, or compilations into an empty cache.
    "start", "commands", "stream", "view", "generate",
}  # fmt: skip
"""Those that run in `make test-full` only."""


@pytest.mark.filterwarnings("ignore:compile_aot_module")  # for this machine only, as a first reading compiles
@pytest.mark.parametrize("name", gate(NAMES, set(NAMES) - FULL))
def test_a_benchmark_runs_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ONCE, "1")
    rows = dict(BENCHMARKS)[name]()
    assert rows and all(len(row) == 3 and all(isinstance(text, str) for text in row) and row[0] for row in rows)


def test_names_are_unique_and_listed_without_the_packages_of_benchmarks() -> None:
    """The environment of Newton lacks packages that other benchmarks need."""
    assert len(set(NAMES)) == len(NAMES) and set(NAMES) > FULL
    code = "import sys; sys.modules['lz4'] = None; from benchmarks.__main__ import main; main(['no such benchmark'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "engines/newton" in done.stdout, done.stderr
