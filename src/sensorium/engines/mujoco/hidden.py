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
    """Return a unique name for each element of one kind: its own, or `{word}_{n}` if it has none.

    n counts the elements in order. Elements added for sensors do not count, so that sensors do not change the names.

    Args:
        own: names in the model, empty for unnamed elements.
        word: kind of the elements.
        taken: further names that are in use.
    """
    used, names, n = {*taken}, [], 0
    own_names = {*own}
    for each in own:
        name = each
        if not each or each in used:
            name = f"{word}_{n}"
            while name in used or name in own_names:
                name += "_"
        used.add(name)
        names.append(name)
        n += not hidden(each)
    return names
