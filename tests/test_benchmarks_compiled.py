"""`python -m benchmarks.registers` reads compiled code, and saved runs of the benchmarks are compared."""

from __future__ import annotations

import copy
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import compare_devices
import numpy as np
import pytest
import warp as wp

from benchmarks import __main__ as benchmarks
from benchmarks import compare, gpu_hour, pages, registers
from sensorium.compute import Rows, kernel, masked_tid

Stack = wp.types.vector(length=300, dtype=wp.float32)


@kernel
def _light(rows: Rows, out: wp.array[wp.float32]) -> None:
    env = masked_tid(rows)
    out[env] = float(env)


@kernel(variants={"plain": {"HEAVY": False}, "heavy": {"HEAVY": True}})
def _varied(rows: Rows, at: wp.array[wp.int32], out: wp.array[wp.float32]) -> None:
    env = masked_tid(rows)
    if wp.static(HEAVY):  # type: ignore[name-defined]  # noqa: F821
        held = Stack()
        for k in range(300):
            held[at[k]] = float(k)
        out[env] = held[at[env]]


def test_registers_and_stack_are_those_of_the_assembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel with 1,200 B of local memory has a stack of that size; its variant without it has none and less code."""
    wp.init()
    if 90 not in wp.get_cuda_supported_archs():
        pytest.skip("this build of Warp has no compiler for sm_90")
    modules = [_light.module, *(made.module for made in _varied.values())]
    monkeypatch.setattr(registers, "kernel_modules", lambda: (modules, {}))
    page = tmp_path / "page.md"
    page.write_text("\n".join(pages.markers("registers")))
    assert registers.main(["--markdown", str(page), "--json", str(tmp_path / "table.json")]) == 0
    rows = {row.kernel.rpartition("test_benchmarks_compiled.")[2]: row for row in registers.measured([], 90)}
    assert len(rows) == 3
    heavy, plain = (rows[f"_varied.{word}"] for word in ("heavy", "plain"))
    assert 1200 <= heavy.stack < 1300 and plain.stack == 0 and plain.registers <= heavy.registers
    assert 0 < plain.code < heavy.code
    table = page.read_text().splitlines()[1:-1]
    assert len(table) == 2 + 3 and re.search(r"_varied\.heavy` \| \d+ \| 1,2\d\d \| [\d,]+ \|", "\n".join(table))
    assert len(json.loads((tmp_path / "table.json").read_text())["kernels"]) == 3


@pytest.mark.parametrize(("count", "share"), [(32, 1.0), (33, 0.75), (128, 0.25), (255, 0.125)])
def test_occupancy_follows_from_registers(count: int, share: float) -> None:
    """The shares are those of NVIDIA's occupancy calculator for compute capability 9.0 and blocks of 256 threads."""
    assert registers.Usage("kernel", count, 0, 0, 0).occupancy == share


def test_saved_rows_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of two runs give the ratio of their first times; a second run of a commit extends its file."""
    texts = {"a": "1.50 ms", "b": "12 us, CPU 3 us", "c": "5 MB"}
    monkeypatch.setattr(benchmarks, "BENCHMARKS", [(name, lambda n=name: [(n, texts[n], "")]) for name in texts])
    for folder in ("old", "new"):
        for name in texts:
            benchmarks.main([name, "--save", str(tmp_path / folder)])
        texts |= {"a": "3.0 ms", "b": "6 us"}
    (old,), (new,) = ((tmp_path / folder).glob("*.json") for folder in ("old", "new"))
    capsys.readouterr()
    assert compare.main([str(old), str(new)]) == 0
    said = capsys.readouterr().out
    assert "commit: " in said and "The machines differ" not in said
    assert [row[3] for row in compare.ratios(compare.Saved.read(old), compare.Saved.read(new))] == [2.0, 0.5, None]
    (tmp_path / "other.json").write_text("[]")
    assert compare.main([str(old), str(tmp_path / "other.json")]) == 2


def test_the_run_on_a_gpu_keeps_the_results_of_all_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step that fails, one whose program is missing, and one that takes too long: the others still run."""
    assert sum(step.minutes for step in gpu_hour.steps_of("cuda:0")) <= 25.0
    python = (sys.executable, "-c")
    steps = [
        gpu_hour.Step("fails", (*python, "print('broken'); raise SystemExit(3)"), 5.0),
        gpu_hour.Step("absent", ("no-such-program",), 5.0, needs="no-such-program"),
        gpu_hour.Step("slow", (*python, "import time; time.sleep(600)"), 0.5 / 60.0),
        gpu_hour.Step("good", (*python, "import sys; open(sys.argv[1], 'w').write('[1]')", "{out}"), 5.0),
    ]
    monkeypatch.setattr(gpu_hour, "steps_of", lambda device: steps)
    assert gpu_hour.main(["--json", str(tmp_path / "gpu.json")]) == 1
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert list(results) == ["fails", "absent", "slow", "good"]
    assert (results["fails"]["exit_code"], results["slow"]["exit_code"]) == (3, 124)
    assert "not installed" in results["absent"]["omitted"] and results["good"]["figures"] == [1]
    assert "Failed: fails, slow." in capsys.readouterr().out and results["fails"]["output"].strip() == "broken"


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu_fills_the_report(tmp_path: Path) -> None:
    """The quick commands run as given; `test_benchmarks_gpu.py` runs the figures."""
    quick = ("tests", "kinds", "registers")
    assert gpu_hour.main(["--device", "cpu", "--json", str(tmp_path / "gpu.json"), "--only", *quick]) == 0
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert tuple(results) == quick
    assert results["kinds"]["figures"]["imu"]["equal"] == 1.0 and results["registers"]["figures"]["kernels"]


def test_devices_that_disagree_are_found() -> None:
    """Last bits and single rays may differ, a wrong share of the values may not."""
    shots = {("data", "value"): {0: np.array([0.0, 1.0, np.inf, np.nan] * 250, np.float32)}}
    reference = {"sensors": {"imu": {"kind": "imu", "shots": shots}}}
    found = copy.deepcopy(reference)
    values = found["sensors"]["imu"]["shots"]["data", "value"][0]
    values[1] += 1e-6
    assert compare_devices.compared(found, reference)["imu"] == {"values": 1000.0, "equal": 0.999, "agree": 1.0}
    values[:4] = [np.nan, 2.0, -np.inf, 0.0]
    assert compare_devices.compared(found, reference)["imu"]["agree"] == 0.996


def test_the_notebook_runs_the_command_and_has_valid_cells() -> None:
    """Each cell of code compiles without its lines for the shell, whose modules exist."""
    path = Path(gpu_hour.__file__).with_suffix(".ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = [line for cell in cells if cell["cell_type"] == "code" for line in [*cell["source"], "\n"]]
    compile("".join(line for line in lines if line[0] not in "!%"), path.name, "exec")
    modules = re.findall(r"python -m (\S+)", "".join(line for line in lines if line[0] == "!"))
    assert modules == ["sensorium", "benchmarks.gpu_hour"] and all(map(find_spec, modules))
