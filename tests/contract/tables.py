"""The reader of the documents: one TOML file each, whose first lines explain the keys."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from .rows import STATUSES, Document, Row


def load(path: Path) -> Document:
    """Return the document of a TOML file.

    Raises:
        TypeError: a row has a key that its status does not define, or lacks a required key.
        ValueError: a row does not have exactly one status.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    sections = {section["name"]: section["rows"] for section in table["section"]}
    rows = tuple(_row(section["name"], row) for section in table["section"] for row in section["row"])
    return Document(table["name"], table["title"], sections, rows)


def _row(section: str, keys: dict[str, Any]) -> Row:
    given = STATUSES.keys() & keys.keys()
    if len(given) != 1:
        raise ValueError(f"the row {keys} needs exactly one of the keys {', '.join(STATUSES)}")
    word = given.pop()
    said = {key: keys.pop(key) for key in ("name", "kind", "says", "default", "shape") if key in keys}
    return Row(section=section, status=STATUSES[word](keys.pop(word), **keys), **said)


DOCUMENTS: tuple[Document, ...] = tuple(
    load(Path(__file__).with_name(f"{name}.toml")) for name in ("isaaclab", "mjlab", "genesis", "genelab", "carla")
)
"""All documents, in the order of the page."""
