"""Tables that benchmarks write between two markers of a page."""

from __future__ import annotations

from pathlib import Path


def markers(name: str) -> tuple[str, str]:
    """Return the lines before and after a table."""
    return f"<!-- {name} table: begin -->", f"<!-- {name} table: end -->"


def check_markers(path: Path, name: str) -> str:
    """Return the text of a page.

    Raises:
        OSError: the page cannot be read.
        ValueError: the page does not have both markers, once and in order.
    """
    text = path.read_text(encoding="utf-8")
    begin, end = markers(name)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(
            f"{path}: the markers of the table are missing. Add a line {begin} and below it a line {end}, each once."
        )
    return text


def write_table(path: Path, name: str, table: str) -> None:
    """Replace the text between the two markers of a page; raise as `check_markers` does."""
    text = check_markers(path, name)
    begin, end = markers(name)
    before, rest = text.split(begin)
    path.write_text(f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}", encoding="utf-8")
