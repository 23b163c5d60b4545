"""Every example runs, checks its result, and stays short.

The gate runs them in processes that have already imported the libraries; the full form runs them as a reader would.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import warnings
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITH_OPENCV = "21_stereo_calibration"
"""The example that tests_formats runs."""
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != WITH_OPENCV)
IN_THE_GATE = [path for path in EXAMPLES if path.stem != "19_gallery"]
"""All but the one that the tests of the gallery run."""


@pytest.fixture(scope="module")
def ready() -> ForkServerContext:
    """A server of processes with preloaded imports for examples."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["sensorium.scene", "sensorium.sensors.all", "sensorium.engines.mujoco", "sensorium.engines.tensor",
         "sensorium.engines.trajectory", "test_examples"]
    )  # fmt: skip
    return context


def run(example: Path, folder: Path) -> None:
    """Run an example as a script in this process, with its output in files."""
    os.chdir(folder)
    with open("stdout", "w") as out, open("stderr", "w") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
    sys.argv = [str(example)]
    sys.path.insert(0, str(example.parent))
    warnings.simplefilter("error")
    try:
        runpy.run_path(str(example), run_name="__main__")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


@pytest.mark.parametrize("example", IN_THE_GATE, ids=lambda path: path.stem)
def test_example_runs(example: Path, tmp_path: Path, ready: ForkServerContext) -> None:
    process = ready.Process(target=run, args=(example, tmp_path))
    process.start()
    process.join(600)
    said, errors = ((tmp_path / name).read_text() for name in ("stdout", "stderr"))
    assert process.exitcode == 0, said + errors
    assert said


@pytest.mark.full
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_as_documented(example: Path, tmp_path: Path) -> None:
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_examples_were_collected() -> None:
    """Each example is short and checks its result."""
    assert len(EXAMPLES) >= 4
    for example in [*EXAMPLES, ROOT / f"examples/{WITH_OPENCV}.py"]:
        text = example.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 60 and "assert " in text, example
