"""Output of the command line: results to stdout, everything else to stderr, each message once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from sensorium.errors import printable


class _Console(Console):
    """Console that removes control characters from texts: names come from files and servers of others."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def stdout() -> Console:
    """Return the console for results; without a terminal it is wide enough for tables."""
    console = _Console(highlight=False, emoji=False)
    return console if console.is_terminal else _Console(highlight=False, emoji=False, width=120)


_live: list[Console] = []
"""Console of a live display on this terminal; output through another console would garble it."""


def stderr() -> Console:
    """Return the console for progress, notes, warnings and errors."""
    console = _Console(stderr=True, highlight=False, emoji=False)
    return _live[-1] if _live and console.is_terminal else console


@contextlib.contextmanager
def live(console: Console) -> Iterator[None]:
    """Route all output through this console, which shows a live display."""
    _live.append(console)
    try:
        yield
    finally:
        _live.remove(console)


def note(text: str) -> None:
    """Print a note in addition to the results."""
    stderr().print(escape(text), style="dim", soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning."""
    stderr().print(f"[bold yellow]warning:[/] {escape(text)}", soft_wrap=True)


def error(text: str) -> None:
    """Print why a command failed."""
    stderr().print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)


@contextlib.contextmanager
def busy(doing: str) -> Iterator[None]:
    """Show on a terminal that work is in progress, and how many kernels are being compiled."""
    console = stderr()
    if not console.is_terminal:
        yield
        return
    with console.status(f"{escape(doing)} ...") as status, live(console):
        from sensorium.compute.loading import watch_loading  # slow to import

        def count(done: int, total: int, name: str) -> None:
            left = f", compiling kernels, first run only: {done + 1} of {total}" if name else ""
            status.update(f"{escape(doing)}{left} ...")

        with watch_loading(count):
            yield


@contextlib.contextmanager
def progress(doing: str, total: float | None = None) -> Iterator[Callable[..., None]]:
    """Show on a terminal how much of some work is done.

    Args:
        doing: name of the work.
        total: amount of all work; None until it is known.

    Yields:
        Function of the amount that is done; of the total, if that was unknown; and of a text about the current part.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = stderr()
    columns = (TextColumn(doing), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[text]}"))
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task, shown = bar.add_task("", total=total, text=""), 0.0

        def show(done: float, total: float = total or 0.0, text: str = "") -> None:
            nonlocal shown
            if done - shown >= total / 200 or done >= total:
                shown = done
                bar.update(task, completed=done, total=total, text=text)

        yield show
