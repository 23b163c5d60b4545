"""The generator of `docs/contract.md` from the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .rows import ISSUES, STATUSES, Alias, Document, NotApplicable, Present, Replaced, Row, With
from .tables import DOCUMENTS

PAGE = Path(__file__).parents[2] / "docs/contract.md"
COMMAND = "python -m tests.contract"

INTRO = f"""# The contract

The documents of five other libraries define the features of a sensor library. This page lists every feature that they
name, with its status in sensorium. `{COMMAND}` generates the page from the tables in `tests/contract/`. The tests
there check every row.

- **present**: available under the given path (`sn.` is `sensorium.`). Defaults, shapes, units and signatures are
  checked. An error, a guarantee or an example names the test that demonstrates it. That test is never skipped.
- **alias**: one object has two names here, or two documents have two names for it.
- **replaced**: another feature serves the same purpose.
- **not applicable**: only a handle or an asset of another engine.
- **with**: planned with the named later work.
"""


def render(documents: Iterable[Document] = DOCUMENTS) -> str:
    """Return the text of the page."""
    documents = list(documents)
    lines = [
        INTRO,
        "| document | rows | present | alias | replaced | not applicable | later |",
        "|---|---|---|---|---|---|---|",
    ]
    for document in documents:
        count = Counter(status_word(row) for row in document.rows)
        numbers = [count[name] for name in ("present", "alias", "replaced", "not applicable", "with")]
        lines.append(
            f"| [{document.name}](#{anchor(document.name)}) | {len(document.rows)} | "
            + " | ".join(str(number) for number in numbers)
            + " |"
        )
    waiting = Counter(row.status.issue for d in documents for row in d.rows if isinstance(row.status, With))
    if waiting:
        lines += ["", "Later work:", ""]
    lines += [f"- **{issue}** ({count} rows): {ISSUES[issue]}" for issue, count in waiting.most_common()]
    for document in documents:
        lines += ["", f"## {document.name}", "", f"*{document.title}*. {summary(document)}"]
        for name in document.sections:
            lines += [
                "",
                f"### {document.name}: {name}",
                "",
                "| name | kind | document | sensorium |",
                "|---|---|---|---|",
            ]
            lines += [_line(row) for row in document.rows if row.section == name]
    return "\n".join(lines) + "\n"


def summary(document: Document) -> str:
    """Return a sentence with the statistics of a document."""
    count = Counter(status_word(row) for row in document.rows)
    parts = [f"{count[name]} {name}" for name in ("present", "alias", "replaced", "not applicable") if count[name]]
    waiting = Counter(row.status.issue for row in document.rows if isinstance(row.status, With))
    parts += [f"{number} with {issue}" for issue, number in waiting.most_common()]
    return f"{len(document.rows)} rows: {', '.join(parts)}."


def status_word(row: Row) -> str:
    """Return the word for a row's status."""
    return next(word.replace("_", " ") for word, status in STATUSES.items() if isinstance(row.status, status))


def anchor(title: str) -> str:
    """Return the link target of a heading."""
    return title.lower().replace(" ", "-")


def _line(row: Row) -> str:
    said = [row.says] if row.says else []
    if row.default:
        said.append(f"default {_value(row.default)}")
    if row.shape is not None:
        said.append(_shape(row.shape))
    name = row.name if row.kind in ("guarantee", "example") or " " in row.name else f"`{row.name}`"
    return f"| {_cell(name)} | {row.kind} | {_cell('; '.join(said))} | {_cell(_status(row.status))} |"


def _status(status: Any) -> str:
    if isinstance(status, Present):
        parts = [f"`{status.where}`" if status.where else ""]
        if status.call is not None:
            parts.append(f"takes `({status.call})`")
        if status.our_default:
            parts.append(f"default {_value(status.our_default)}")
        if status.our_shape is not None:
            parts.append(_shape(status.our_shape))
        if status.unit is not None:
            parts.append(f"unit {status.unit}")
        if status.dtype != "float32":
            parts.append(status.dtype)
        if status.builtin:
            parts.append(f"a `{status.builtin}`")
        if status.test:
            parts.append(f"shown by {_test(status.test)}")
        text = ", ".join(part for part in parts if part)
        return f"**present** {text}" + "".join(f". {each}" for each in (status.why, status.note) if each)
    if isinstance(status, Alias):
        path = f"`{status.where}` " if status.where else ""
        return f"**alias** {path}of `{status.of}`" + (f". {status.why}" if status.why else "")
    if isinstance(status, Replaced):
        by = ", ".join(f"`{path}`" for path in status.by)
        test = f" Shown by {_test(status.test)}." if status.test else ""
        return f"**replaced** by {by}. {status.why}.{test}"
    if isinstance(status, NotApplicable):
        return f"**not applicable** ({status.engine}): {status.why}"
    return f"**with {status.issue}**" + (f". {status.note}" if status.note else "")


def _test(test: str) -> str:
    return f"`{test.removeprefix('tests/')}`"


def _value(default: str) -> str:
    return "none, required" if default == "required" else f"`{default}`"


def _shape(shape: Sequence[str | int]) -> str:
    return f"`[{', '.join(str(part) for part in shape)}]`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
