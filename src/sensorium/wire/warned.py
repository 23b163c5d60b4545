"""Warnings that were raised in the server and concern a client: they are told there as well."""

from __future__ import annotations

import builtins
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sensorium import errors

MOST = 32
"""Different warnings that one answer carries, at most."""

Warned = tuple[str, str]
"""Name of a warning's category, and its text."""


class _WarningRecorder:
    """Stands in for `warnings.showwarning`, notes what one thread shows, and passes everything on.

    `warnings.catch_warnings` is not for several threads: it also takes what others show, and where two of them overlap,
    one puts back what the other had set. This one does no harm when somebody puts it back after its end.
    """

    def __init__(self) -> None:
        self.found: list[Warned] = []
        self.thread = threading.get_ident()
        """The thread; 0 after the end."""
        self.before = _without_ended(warnings.showwarning)

    def __call__(
        self, message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        warned = (category.__name__, str(message))
        if threading.get_ident() == self.thread and warned not in self.found and len(self.found) < MOST:
            self.found.append(warned)
        self.before(message, category, filename, lineno, file, line)


def _without_ended(show: Any) -> Any:
    """Return what shows warnings, without those in front of it that have ended."""
    while isinstance(show, _WarningRecorder) and not show.thread:
        show = show.before
    return show


@contextmanager
def overheard() -> Iterator[list[Warned]]:
    """Note the warnings that this thread shows meanwhile, each once; they are shown as ever.

    What filters of this process leave out, or turn into errors, is not among them. What it shows once only is, also
    where it was shown before.
    """
    recorder = warnings.showwarning = _WarningRecorder()
    warnings.simplefilter("default", append=True)  # what applies anyway; what was shown once is forgotten by it
    try:
        yield recorder.found
    finally:
        recorder.thread = 0
        warnings.showwarning = _without_ended(warnings.showwarning)


def warn_again(warned: Iterable[Warned], what: str, stacklevel: int = 1) -> None:
    """Warn of what was warned of in the server.

    A category of Python or of `sensorium.errors` is the same here; any other is a `UserWarning`. Its name is in the
    text.

    Args:
        warned: the warnings.
        what: what the server did, e.g. ``"spawning 'cam'"``.
        stacklevel: whom to blame: 1 the caller.
    """
    for category, text in warned:
        known: object = getattr(errors, category, getattr(builtins, category, None))
        kind = known if isinstance(known, type) and issubclass(known, Warning) else UserWarning
        warnings.warn(told(category, text, what), kind, stacklevel=stacklevel + 1)


def told(category: str, text: str, what: str) -> str:
    """Return what the user of a client is told of a warning of the server."""
    return f"{what}, the server warned: {category}: {text}"


__all__ = ["Warned", "overheard", "told", "warn_again"]
