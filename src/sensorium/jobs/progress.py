"""Progress of a job on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from sensorium.jobs.driver import Run


@contextlib.contextmanager
def shown(run: Run) -> Iterator[Callable[[Run], None]]:
    """Yield a function that shows a run: its rate, share and time left, and the shard of each worker."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console, began = Console(file=sys.stderr, highlight=False), time.monotonic()
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[about]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        whole = progress.add_task("shards", total=run.total, completed=run.done, about="starting workers")
        rows: dict[int, object] = {}

        def show(run: Run) -> None:
            rate = run.simulated_s / max(time.monotonic() - began, 1e-9)
            about = f"{run.done} of {run.total}, {rate:.3g} s of simulation per s"
            progress.update(
                whole, completed=run.done, about=about + (f", {len(run.failed)} failed" if run.failed else "")
            )
            for worker in run.working.keys() - rows.keys():
                rows[worker] = progress.add_task(f"worker {worker}", total=None, about="")
            for worker, task in rows.items():
                shard, start = run.working.get(worker, (None, 0.0))
                text = "idle" if shard is None else f"shard {shard}, {time.monotonic() - start:.0f} s"
                progress.update(task, about=text)  # type: ignore[arg-type]

        show(run)
        yield show
