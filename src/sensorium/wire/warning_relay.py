"""Warnings of the server that concern a client, repeated in the client."""

from __future__ import annotations

import builtins
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sensorium import errors

MOST = 32
"""Maximum number of different warnings in one answer."""

WarningText = tuple[str, str]
"""Name of a warning's category, and its text."""


class _WarningRecorder:
    """Replacement for `warnings.showwarning` that records the warnings of one thread and forwards all of them.

    `warnings.catch_warnings` is not thread-safe: it also catches the warnings of other threads. If two of its contexts
    overlap, one restores the state set by the other. This recorder has no effect if it is restored after its end.
    """

    def __init__(self) -> None:
        self.found: list[WarningText] = []
        self.thread = threading.get_ident()
        """Id of the recorded thread; 0 after the end."""
        self.before = _without_ended(warnings.showwarning)

    def __call__(
        self, message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        warned = (category.__name__, str(message))
        if threading.get_ident() == self.thread and warned not in self.found and len(self.found) < MOST:
            self.found.append(warned)
        self.before(message, category, filename, lineno, file, line)


def _without_ended(show: Any) -> Any:
    """Return the function that shows warnings, without ended recorders in front of it."""
    while isinstance(show, _WarningRecorder) and not show.thread:
        show = show.before
    return show


@contextmanager
def recording_warnings() -> Iterator[list[WarningText]]:
    """Record each warning that this thread shows during the context once; warnings are still shown as usual.

    Warnings that filters of this process ignore or turn into errors are not recorded. Warnings that are shown only once
    are recorded even if they were already shown.
    """
    recorder = warnings.showwarning = _WarningRecorder()
    warnings.simplefilter("default", append=True)  # default action anyway; clears the "already shown" registry
    try:
        yield recorder.found
    finally:
        recorder.thread = 0
        warnings.showwarning = _without_ended(warnings.showwarning)


def relay_warnings(warned: Iterable[WarningText], what: str, stacklevel: int = 1) -> None:
    """Repeat the warnings of the server in this process.

    Categories of Python and of `sensorium.errors` are kept. Any other category becomes a `UserWarning`, with its name
    in the text.

    Args:
        warned: the warnings.
        what: action of the server, e.g. ``"spawning 'cam'"``.
        stacklevel: frame that the warning refers to: 1 for the caller.
    """
    for category, text in warned:
        known: object = getattr(errors, category, getattr(builtins, category, None))
        kind = known if isinstance(known, type) and issubclass(known, Warning) else UserWarning
        warnings.warn(relayed_text(category, text, what), kind, stacklevel=stacklevel + 1)


def relayed_text(category: str, text: str, what: str) -> str:
    """Return the text that reports a warning of the server to the user of a client."""
    return f"{what}, the server warned: {category}: {text}"
