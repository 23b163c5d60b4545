"""Print ratios of the rows that two runs of the benchmarks saved: `python -m benchmarks.compare A.json B.json`.

Figures of two runs differ by the load of the machine. Compare files of one machine, and repeat what has changed.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIME = re.compile(r"(?<![\w.])(\d[\d,]*\.?\d*) (s|ms|us|ns)(?!\w)")


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@dataclass
class Saved:
    """Rows of a run, in a file that is rewritten with every benchmark.

    Attributes:
        path: the file.
        machine: commit, host, processor and date.
        rows: description of a row -> its text with times.
    """

    path: Path
    machine: dict[str, str]
    rows: dict[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, folder: Path) -> Saved:
        """Return an empty file in a folder, named after the commit and the machine; a previous one is extended."""
        commit = _git("rev-parse", "--short=12", "HEAD") or "unknown"
        if _git("status", "--porcelain", "--untracked-files=no"):
            commit += "-changed"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{commit}-{platform.node()}.json"
        machine = {
            "commit": commit,
            "host": platform.node(),
            "processor": platform.processor() or platform.machine(),
            "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        }
        return cls(path, machine, cls.read(path).rows if path.exists() else {})

    @classmethod
    def read(cls, path: Path) -> Saved:
        """Read a file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it was not written by ``python -m benchmarks --save``.
        """
        held = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict) or not {"machine", "rows"} <= set(held):
            raise ValueError(f"{path}: expected a file that python -m benchmarks --save wrote")
        return cls(path, held["machine"], held["rows"])

    def add(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Add the rows of a benchmark and write the file."""
        self.rows |= {what: size for what, size, _ in rows}
        text = json.dumps({"machine": self.machine, "rows": self.rows}, indent=1, ensure_ascii=False)
        self.path.write_text(text + "\n", encoding="utf-8")


def seconds(text: str) -> float | None:
    """Return the first time in a text, s; None for a row without one."""
    found = _TIME.search(text)
    return None if found is None else float(found[1].replace(",", "")) * UNITS[found[2]]


def ratios(before: Saved, after: Saved) -> list[tuple[str, str, str, float | None]]:
    """Return description, both texts and the ratio of the times, after to before, of each row that both runs have."""
    rows = []
    for what, old in before.rows.items():
        if what in after.rows:
            first, second = seconds(old), seconds(after.rows[what])
            rows.append((what, old, after.rows[what], second / first if first and second else None))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.compare", description="Print ratios of two saved runs.")
    parser.add_argument("before", type=Path, metavar="A")
    parser.add_argument("after", type=Path, metavar="B")
    options = parser.parse_args(arguments)
    try:
        before, after = Saved.read(options.before), Saved.read(options.after)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    console = Console(highlight=False)
    for run in (before, after):
        console.print(escape(", ".join(f"{name}: {value}" for name, value in run.machine.items())))
    if before.machine.get("host") != after.machine.get("host"):
        console.print("[yellow]The machines differ.[/]")
    table = Table("what", "A", "B", "B / A")
    for what, old, new, ratio in ratios(before, after):
        table.add_row(escape(what), escape(old), escape(new), "" if ratio is None else f"{ratio:.2f}")
    console.print(table)
    missing = sorted(before.rows.keys() ^ after.rows.keys())
    if missing:
        console.print(f"In one run only: {escape('; '.join(missing))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
