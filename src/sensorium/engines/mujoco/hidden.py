"""Names of elements: generated ones of unnamed elements, and those of elements that were added for sensors.

Elements added for sensors carry a prefix and are hidden from name selection.
"""

from __future__ import annotations

from collections.abc import Sequence

HIDDEN_PREFIX = "sensorium/"
"""Prefix of elements added for sensors; `Engine.names` omits them."""


def hidden(name: str) -> bool:
    """Whether an element was added for sensors and is omitted from name selection."""
    return name.startswith(HIDDEN_PREFIX) or f"/{HIDDEN_PREFIX}" in name


def full_names(own: Sequence[str], word: str, taken: Sequence[str] = ()) -> list[str]:
    """Return a unique name for each element of one kind: its own, or `{word}_{id}` if it has none.

    Args:
        own: names in the model in the order of ids, empty for unnamed elements.
        word: kind of the elements.
        taken: further names that are in use.
    """
    names, used, given = [], {*taken}, {*own}
    for i, name in enumerate(own):
        if not name or name in used:
            name = f"{word}_{i}"
            while name in used or name in given:
                name += "_"
        used.add(name)
        names.append(name)
    return names
