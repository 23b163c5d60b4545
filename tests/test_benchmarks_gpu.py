"""`python -m benchmarks.gpu` runs on the CPU, states its requirements, and loses no row of a run."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import warp as wp

from benchmarks import gpu, gpu_cases, pages
from benchmarks.gpu_cases import CASES, Bench, Row, Sides, is_out_of_memory
from benchmarks.gpu_timing import Device, Times, launches_and_waits, peak_bandwidth
from sensorium import Scene, TensorEngine
from sensorium.compute import DeviceInventory

ROOT = Path(__file__).parents[1]
ALL = {title: case for group in CASES.values() for title, case in group.items()}
BEGIN, END = pages.markers("GPU")
CPU = {"date": "2026-01-02", "device": "a GPU", "copy bandwidth": "1 GB/s, measured"}


def run(tmp_path: Path, *arguments: str) -> dict[str, list[dict[str, float | str]]]:
    """Run the command for two sizes on the CPU and return its figures."""
    out = tmp_path / "figures.json"
    code = gpu.main(["--device", "cpu", "--envs", "1", "2", "--seconds", "0.002", "--json", str(out), *arguments])
    gc.freeze()  # the command has undone the freeze of `frozen_heap`; each measurement of memory collects garbage
    report: dict[str, list[dict[str, float | str]]] = json.loads(out.read_text())
    assert (code, report["failures"]) == (0, [])
    return report


def test_the_command_measures_the_chain_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three widths, two sizes and both sides are measured; nothing of mujoco_warp runs here."""
    report = run(tmp_path, "--only", "stages")
    rows = report["rows"]
    assert [row["envs"] for row in rows] == [1, 1, 2, 2] * 3
    assert len({row["case"] for row in rows}) == 3
    assert all(row["seconds"] > 0.0 and row["spread"] >= 0.0 for row in rows)  # type: ignore[operator]
    assert [row.get("against") == "baseline" for row in rows] == [True, False] * 6
    assert all("of a large copy's" in str(row["note"]) for row in rows)
    shown = capsys.readouterr().out
    for word in ("date: 20", "copy bandwidth: ", "standard chain, 180 column(s)", "baseline", "x its time"):
        assert word in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "rays"),
    [(gpu_cases.scan, 187), pytest.param(gpu_cases.vlp16, 28928, marks=pytest.mark.full)],
)
def test_rays_agree_with_mujoco_warp(case: Callable[..., list[Row]], rays: int) -> None:
    """Both sides see the same state, so nearly all of their distances are equal, also for a device that turns."""
    ours, theirs = case(Bench(Device("cpu"), 0.001, 1e9), 2, kind="hfield")
    assert (theirs.against, ours.against.endswith("x its time")) == ("baseline", True)
    assert float(ours.note.removesuffix("% agree within 1 mm")) > 99.0
    assert ours.seconds is not None and ours.rays_per_second == pytest.approx(2 * rays / ours.seconds)


@pytest.mark.slow
@pytest.mark.parametrize("title", list(ALL))
def test_every_case_runs_and_its_step_does_not_wait_for_the_device(title: str) -> None:
    """Steps launch kernels and contain no operation that waits. A data set waits, because its files are on the host."""
    rows = ALL[title](Bench(Device("cpu"), 0.001, 1e9, peer=False), 1)
    assert rows and all(row.seconds is not None for row in rows)
    ours = [row for row in rows if row.launches]
    assert ours and all((row.waits == 0) == (title != "data set") for row in ours), ours


def test_launches_and_waits_are_counted() -> None:
    """Each operation that needs a value on the host counts once; launches of sensors count in steps alone."""
    values = torch.arange(3.0)
    assert launches_and_waits(lambda: values.item if len(values) else None) == (0, 0)
    assert launches_and_waits(lambda: (values.tolist(), values[values > 1.0], wp.from_torch(values).numpy())) == (0, 3)
    scene = Scene(TensorEngine(2, 0.002, provides=()), [gpu_cases.ColumnsCfg(columns=2, noise=0.1, evaluate="always")])
    scene.update()
    launches, waits = launches_and_waits(scene.update)
    assert launches > 1 and waits == 0


# Output ---------------------------------------------------------------------------------------------------------------


def test_missing_cuda_error_names_findings_and_the_cpu_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = DeviceInventory("2.13.0", "", 0, 0, "1.19.0", "CUDA 13.4", (), "", None)
    monkeypatch.setattr(DeviceInventory, "detect", classmethod(lambda cls: nothing))
    assert gpu.main([]) == 2
    found, hint = capsys.readouterr().err.strip().split("\n")
    assert "--device: got 'cuda:0'" in found and "no NVIDIA driver" in found and "torch 2.13.0" in found
    assert hint.endswith("python -m benchmarks.gpu --device cpu --envs 1 16")


def test_help_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        gpu.main(["--help"])
    shown = capsys.readouterr().out
    assert exit_.value.code == 0
    assert all(f"\n  {name} " in shown for name in CASES)


@pytest.mark.parametrize("arguments", [("--envs", "0"), ("--only", "nothing"), ("--device", "gpu")])
def test_wrong_arguments_are_refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = gpu.main(arguments)
    except SystemExit as exit_:
        code = exit_.code  # type: ignore[assignment]
    assert code == 2
    assert arguments[1] in capsys.readouterr().err


def test_cpu_figures_are_not_written_to_the_gpu_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"{BEGIN}\n{END}\n")
    assert gpu.main(["--device", "cpu", "--markdown", str(path)]) == 2
    assert "--markdown: the table requires a GPU" in capsys.readouterr().err
    assert path.read_text() == f"{BEGIN}\n{END}\n"


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{END}{END}"])
def test_file_without_table_markers_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"page\.md: the markers of the table are missing"):
        pages.write_table(path, "GPU", gpu.markdown(fake()))


# Faults ---------------------------------------------------------------------------------------------------------------


def test_out_of_memory_of_one_side_is_a_row_and_the_other_is_measured() -> None:
    sides = Sides(Bench(Device("cpu"), 0.001, 1e9), "case", 4)

    def too_much() -> object:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 90 GiB.\nmore")

    sides.add("theirs", too_much)  # type: ignore[arg-type]
    sides.add("ours", lambda: lambda: None, rays=100)
    assert (sides.has("theirs"), sides.has("ours")) == (False, True)
    theirs, ours = sides.rows("theirs")
    assert theirs.seconds is None and theirs.note == "out of memory: CUDA out of memory. Tried to allocate 90 GiB."
    assert ours.seconds is not None and ours.rays_per_second is not None and ours.against == ""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("x"), True),
        (RuntimeError("Failed to allocate 12 bytes on device 'cuda:0'"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("an illegal instruction"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_errors_are_recognised(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_run_continues_after_a_fault() -> None:
    """A lack of memory for shared data becomes a row; another fault becomes a row and a failure; the run continues."""

    def case(bench: Bench, envs: int, fault: Exception | None = None) -> list[Row]:
        if fault is not None and envs > 1:
            raise fault
        return [Row("fine", envs, "ours", seconds=1.0)]

    chosen = {
        "large": lambda bench, envs: case(bench, envs, MemoryError("no room")),
        "broken": lambda bench, envs: case(bench, envs, ValueError("wrong")),
        "fine": case,
    }
    report, shown = gpu.Report(dict(CPU)), []
    gpu.measure(Bench(Device("cpu"), 0.001, 1e9), report, chosen, [1, 2], shown.append)
    notes = [(row.case, row.envs, row.note) for row in report.rows if row.note]
    assert notes == [("large", 2, "out of memory: no room"), ("broken", 2, "failed: wrong")]
    assert len(report.failures) == 1 and "ValueError: wrong" in report.failures[0]
    assert [[row.envs for row in rows] for rows in shown] == [[1, 2], [1, 2], [1, 2]]


def test_a_case_that_fails_in_its_rehearsal_is_not_run_further() -> None:
    calls = []

    def broken(bench: Bench, envs: int) -> list[Row]:
        calls.append(envs)
        raise ValueError("wrong")

    report, shown = gpu.Report(dict(CPU)), []
    gpu.measure(Bench(Device("cpu"), 0.001, 1e9), report, {"broken": broken}, [256, 4096], shown.append)
    assert calls == [1]
    assert shown == [report.rows]
    assert [row.note for row in report.rows] == ["failed: wrong"]


# Figures and tables ---------------------------------------------------------------------------------------------------


def test_ratios_are_taken_round_by_round() -> None:
    """A clock that halves during a run changes times but not ratios."""
    ours, theirs = Times((1.0, 1.0, 2.0, 2.0), 0.0), Times((4.0, 4.0, 8.0, 8.0), 0.0)
    assert ours.over(theirs) == 0.25
    assert ours.median == 1.5
    assert Times((1.0, 2.0, 3.0, 4.0, 5.0), 0.0).spread == pytest.approx(1.0 / 3.0)


def test_peak_bandwidth_is_two_transfers_a_cycle_over_the_bus() -> None:
    """An A100 of 40 GB has 1215 MHz, 5120 bit and 1555 GB/s according to its data sheet."""

    class A100:
        memory_clock_rate, memory_bus_width = 1215000, 5120

    assert peak_bandwidth(A100()) == pytest.approx(1555e9, rel=1e-3)
    assert peak_bandwidth(object()) == 0.0


def fake(what: str = "ours") -> gpu.Report:
    rows = [
        Row("scan", 4096, what, 1.25e-3, 0.02, 1e-5, 7, 0, 6.128e8, 4096 * 2000, "0.5 x its time", 0.5, "100% | agree"),
        Row("scan", 16384, what, note="out of memory: 90 GiB"),
        Row("chain", 1, what, 4e-6, against="baseline"),
    ]
    return gpu.Report(dict(CPU), rows)


def test_markdown_replaces_the_text_between_the_markers(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    pages.write_table(path, "GPU", gpu.markdown(fake("first")))
    pages.write_table(path, "GPU", gpu.markdown(fake("second")))
    text = path.read_text()
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"\n{END}\nafter\n")
    assert "old" not in text and "first" not in text
    assert "date: 2026-01-02; device: a GPU" in text
    lines = text.split("\n")
    heading = lines.index(f"| {' | '.join(gpu.HEADINGS[1:])} |")
    assert lines[heading + 2].startswith("| 4096 | second | 1.25 | 2.0% | 0.01 | 7 | 0 | 613 | 2 | 0.5 x its time | ")
    assert lines[heading + 2].endswith("| 100% / agree |")
    assert lines[heading + 3].startswith("| 16384 | second |  |") and "90 GiB" in lines[heading + 3]
    assert "| 1 | second | 0.004 | baseline |" in lines  # columns without a figure are omitted
    counts = {line.count("|") for line in lines[heading : heading + 4]}
    assert counts == {12}


@pytest.mark.parametrize("name", ["GPU", "registers"])
def test_documentation_page_has_the_table_markers(name: str) -> None:
    pages.check_markers(ROOT / "docs/performance.md", name)


def test_json_contains_all_figures() -> None:
    report = json.loads(fake().json())
    assert report["machine"]["device"] == "a GPU"
    assert report["rows"][0]["ratio"] == 0.5
    assert "seconds" not in report["rows"][1]
