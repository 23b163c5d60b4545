"""Progress of a job on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from sensorium.jobs.driver import Run

REFRESH_HZ = 5.0
"""Pictures per second."""
WIDEST_BAR = 30
"""Width of the bar on a terminal with enough columns."""


@contextlib.contextmanager
def shown(run: Run) -> Iterator[Callable[[Run], None]]:
    """Yield a function that shows a run on a terminal: its share, rate and time left, and the shard of each worker."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        yield lambda run: None
        return
    began, before = time.monotonic(), run.done
    with Live(picture(run, 0.0, before), console=console, transient=True, refresh_per_second=REFRESH_HZ) as live:
        yield lambda run: live.update(picture(run, time.monotonic() - began, before))


def picture(run: Run, elapsed: float, before: int) -> Any:
    """Return the lines for a terminal.

    Args:
        run: the run.
        elapsed: time since its start, s.
        before: number of shards that were done at its start.
    """
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    new = run.done - before
    whole, workers = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
    left = f"{timedelta(seconds=round(elapsed * (run.total - run.done) / new))} left" if new else ""
    rate = f"{run.simulated_s / elapsed:.3g} x real time" if run.simulated_s else "starting"
    failed = f"[red]{len(run.failed)} failed[/]" if run.failed else ""
    texts = f"{run.done / run.total:.0%}", f"{run.done} of {run.total} shards", rate, left, failed
    whole.add_column(max_width=WIDEST_BAR)
    for _ in texts:
        whole.add_column(no_wrap=True)
    whole.add_row(ProgressBar(run.total, run.done), *texts)
    now = time.monotonic()
    for worker, (shard, start) in sorted(run.working.items()):
        workers.add_row(f"[dim]worker {worker}[/]", f"[dim]shard {shard}[/]", f"[dim]{now - start:.0f} s[/]")
    return Group(whole, workers)
