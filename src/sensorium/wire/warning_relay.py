"""Warnings of the server that concern a client, repeated in the client."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sensorium import errors

MAX_WARNINGS = 32
"""Maximum number of different warnings in one answer."""

WarningText = tuple[str, str]
"""Name of a warning's category, and its text."""


@contextmanager
def recording_warnings() -> Iterator[list[WarningText]]:
    """Record each warning of the context once, and show all of them at its end, even if they were already shown.

    Warnings that filters of this process ignore or turn into errors are not recorded. Warnings that other threads issue
    in the meantime are recorded too.
    """
    found: list[WarningText] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield found
    finally:
        found += list(dict.fromkeys((each.category.__name__, str(each.message)) for each in caught))[:MAX_WARNINGS]
        for each in caught:
            warnings.showwarning(each.message, each.category, each.filename, each.lineno)


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
