"""Compare sensorium with mujoco_warp's own sensors on a GPU, in one run: `python -m benchmarks.gpu --help`."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.gpu_cases import CASES, GOAL_ENVS, Bench, Case, Row, first_line, out_of_memory_is_a_row
from benchmarks.gpu_timing import Device
from benchmarks.pages import check_markers, write_table
from sensorium.compute import resolve_device
from sensorium.errors import DeviceError

ENVS = (1, 256, GOAL_ENVS, 16384)
REHEARSAL_S = 0.001

EPILOG = f"""\
cases (--only):
  scan     height scan of 17 x 11 rays over 79,202 triangles and over a height field, against mujoco_warp's rays
  lidar    16 x 1024 rays, and a VLP-16, against the same
  camera   depth and colours, with and without shadows, of 64 x 64 pixels, against mujoco_warp's renderer
  event    event camera of 64 x 64 pixels
  radar    radar of 1500 rays
  taxel    64 taxels on a sphere and on a mesh
  contact  four feet with history and air time, against mujoco_warp's own contact sensors
  imu      IMU with noise, bias, random walk and delay, against mujoco_warp's accelerometer and gyro
  stages   the measurement chain with 1, 9 and 180 columns, against a copy of the same number of bytes
  share    the time that all sensors of a quadruped add to its physics (goal: 10 % at {GOAL_ENVS} environments)
  generate a shard of a data set with images

examples:
  python -m benchmarks.gpu                                             everything, on the first GPU
  python -m benchmarks.gpu --only share --envs 4096
  python -m benchmarks.gpu --markdown docs/performance.md              also write the table to that file
  python -m benchmarks.gpu --device cpu --envs 1 16 --seconds 0.1      try the command without a GPU

The compared calls take turns, and the device measures their times after all graphs were captured. Compare the ratios
within one run, because clock rates vary. The first run compiles kernels for minutes. Later runs use Warp's cache.
Exit code: 0 all cases ran, 1 a case failed (insufficient memory is not a failure), 2 the command could not start.
"""


@dataclass
class Report:
    """Results of a run.

    Attributes:
        machine: device, versions, date, and the bandwidth of a large copy.
        rows: the lines of the table.
        failures: messages and tracebacks of failed cases.
    """

    machine: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def on_cpu(self) -> bool:
        return "threads" in self.machine

    def json(self) -> str:
        """Return the report as JSON."""
        rows = [{name: value for name, value in asdict(row).items() if value not in (None, "")} for row in self.rows]
        return json.dumps({"machine": self.machine, "rows": rows, "failures": self.failures}, indent=1) + "\n"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description="Measure scans, lidars, cameras, contacts, IMUs and the measurement chain of sensorium\n"
        "and mujoco_warp's own rays, renderer and sensors, on the same states in one run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="cuda:0", metavar="D", help="cuda:0 (default), cuda:INDEX or cpu")
    parser.add_argument("--envs", type=positive, nargs="+", default=list(ENVS), metavar="N",
                        help=f"numbers of environments (default: {' '.join(map(str, ENVS))})")  # fmt: skip
    parser.add_argument(
        "--only", nargs="+", choices=list(CASES), metavar="CASE", help="cases, see below (default: all)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.5, metavar="S", help="time of each measurement (default: 0.5)"
    )
    parser.add_argument("--ours-only", action="store_true", help="omit mujoco_warp's own counterparts")
    parser.add_argument("--markdown", type=Path, metavar="FILE",
                        help="write the table of a GPU between the two markers of this file")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file, case by case")
    return parser


def positive(text: str) -> int:
    """Return a number of environments."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected at least 1")
    return value


def measure(bench: Bench, report: Report, chosen: dict[str, Case], envs: Sequence[int], out: Any) -> None:
    """Run cases and fill the report. A rehearsal of each case in one environment compiles its kernels.

    Args:
        bench: device and settings.
        report: gets rows and failures.
        chosen: cases by title.
        envs: numbers of environments.
        out: called with the rows of a case, as soon as it is done.
    """
    rehearsal = Bench(bench.device, REHEARSAL_S, bench.bandwidth, bench.peer)
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), transient=True,
        console=Console(stderr=True),
    )  # fmt: skip
    gc.freeze()  # makes the garbage collection before each memory measurement fast
    try:
        with progress:
            task = progress.add_task("", total=len(chosen) * len(envs))
            for title, case in chosen.items():
                rows: list[Row] = []
                progress.update(task, description=f"{title}: loading or compiling kernels")
                is_ready = attempt(rehearsal, report, title, case, 1, rows)
                if is_ready:
                    rows.clear()
                for count in envs if is_ready else ():
                    progress.update(task, description=f"{title}: {count} environment(s)")
                    attempt(bench, report, title, case, count, rows)
                    progress.advance(task)
                report.rows += rows
                out(rows)
    finally:
        gc.unfreeze()


def attempt(bench: Bench, report: Report, title: str, case: Case, envs: int, rows: list[Row]) -> bool:
    """Run a case at one number of environments and return whether it ran. A failure does not end the run."""
    try:
        with out_of_memory_is_a_row(title, envs, rows):
            rows += case(bench, envs)
        return True
    except Exception as error:
        report.failures.append(f"{title}, {envs} environment(s):\n{traceback.format_exc()}")
        rows.append(Row(title, envs, "all", note=f"failed: {first_line(error)}"))
        return False
    finally:
        bench.device.tidy()


# Tables ---------------------------------------------------------------------------------------------------------------

HEADINGS = (
    "case", "envs", "what", "ms", "spread", "host ms", "launches", "waits", "Mrays/s", "kB per env", "against", "note",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    """Return the texts of a line."""

    def text(value: float | None, factor: float = 1.0) -> str:
        return "" if value is None else _digits(value * factor)

    memory = None if row.nbytes is None else row.nbytes / row.envs
    spread = "" if row.spread is None else f"{row.spread:.1%}"
    counts = ("" if count is None else f"{count}" for count in (row.launches, row.waits))
    return (
        row.case, f"{row.envs}", row.what, text(row.seconds, 1e3), spread, text(row.host_seconds, 1e3), *counts,
        text(row.rays_per_second, 1e-6), text(memory, 1e-3), row.against, row.note,
    )  # fmt: skip


def _digits(value: float) -> str:
    """Return three digits, without an exponent."""
    if value >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-3 else f"{value:.2g}" if value >= 1e-4 else f"{value:.6f}"


def table(rows: Sequence[Row]) -> Table:
    """Return lines as a table for the terminal, without empty columns."""
    lines = [cells(row) for row in rows]
    kept = [i for i in range(len(HEADINGS)) if any(line[i] for line in lines)]
    shown = Table(title=rows[0].case if rows else None, title_justify="left")
    for i in kept[1:]:
        numeric = HEADINGS[i] not in ("what", "against", "note")
        shown.add_column(HEADINGS[i], justify="right" if numeric else "left")
    for line, row, following in zip(lines, rows, [*rows[1:], None], strict=True):
        shown.add_row(*(escape(line[i]) for i in kept[1:]))
        if following is not None and following.envs != row.envs:
            shown.add_section()
    return shown


def machine_lines(machine: dict[str, str]) -> list[str]:
    """Return the description of the machine, name by name."""
    return [f"{name}: {value}" for name, value in machine.items()]


def markdown(report: Report) -> str:
    """Return the report as Markdown: the machine, then a table for each case."""
    lines = ["; ".join(machine_lines(report.machine)) + "."]
    cases = dict.fromkeys(row.case for row in report.rows)
    for case in cases:
        rows = [cells(row)[1:] for row in report.rows if row.case == case]
        kept = [i for i in range(len(HEADINGS) - 1) if any(line[i] for line in rows)]
        names = [HEADINGS[1:][i] for i in kept]
        lines += ["", f"**{case}**", "", f"| {' | '.join(names)} |", "|" + "---|" * len(kept)]
        lines += [f"| {' | '.join(line[i].replace('|', '/') for i in kept)} |" for line in rows]
    return "\n".join(lines)


# The command ----------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = parser().parse_args(arguments)
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", 200))
    console = Console(width=width, highlight=False)
    try:
        device = resolve_device(options.device, argument="--device")
        if options.markdown is not None:
            if device == "cpu":
                raise ValueError(
                    "the table requires a GPU, but the device is the CPU. Use --json FILE to save figures of a CPU."
                )
            check_markers(options.markdown, "GPU")
    except DeviceError as error:
        print(error, file=sys.stderr)
        print("Try it on the CPU: python -m benchmarks.gpu --device cpu --envs 1 16", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"--markdown: {error}", file=sys.stderr)
        return 2
    measured = Device(device)
    bandwidth = measured.copy_bandwidth(options.seconds)
    report = Report(measured.describe() | {"copy bandwidth": f"{bandwidth / 1e9:.4g} GB/s, measured"})
    for line in machine_lines(report.machine):
        console.print(escape(line))
    if report.on_cpu:
        console.print("A run on the CPU only tests the command. Memory is that of the whole process.")
    bench = Bench(measured, options.seconds, bandwidth, peer=not options.ours_only)
    groups = [name for name in CASES if not options.only or name in options.only]
    chosen = {title: case for group in groups for title, case in CASES[group].items()}

    def out(rows: list[Row]) -> None:
        if rows:
            console.print(table(rows))
        if options.json is not None:
            options.json.write_text(report.json(), encoding="utf-8")

    measure(bench, report, chosen, options.envs, out)
    if options.json is not None:
        options.json.write_text(report.json(), encoding="utf-8")
    if options.markdown is not None:
        write_table(options.markdown, "GPU", markdown(report))
        console.print(f"The table is in {options.markdown}.")
    for failure in report.failures:
        console.print(f"[red]failed[/]: {escape(failure)}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
