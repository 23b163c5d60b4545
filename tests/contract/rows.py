"""One row per thing that a contract document names, and what became of it here.

A row says what the document says (name, category, default, shape, a short paraphrase) and has one status:
`Present`, `Alias`, `Replaced`, `NotApplicable` or `With` (comes with a later issue).

Names of things here are dotted paths; `sn.` is short for `sensorium.`: ``"sn.ImuCfg.update_period"``,
``"sensorium.testing.check_sensor"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Category = Literal["class", "cfg field", "data field", "method", "property", "error", "guarantee", "example"]
"""Hooks and functions are methods; behaviours, limitations and conventions are guarantees."""

CATEGORIES: tuple[Category, ...] = (
    "class", "cfg field", "data field", "method", "property", "error", "guarantee", "example",
)  # fmt: skip

ISSUES = {
    "Cameras": "cameras and rendering",
    "Viewer": "a live view that draws sensors",
}
"""Later work that a row may wait for."""

FOREIGN = {
    "Omniverse": "its extensions, its timeline, its carb settings and its USD assets",
    "PhysX": "its tensor views and schemas",
    "Unreal Engine": "its object system, its headers, macros and assets",
    "CARLA's build": "its C++ source tree, make targets and Boost.Python bindings",
    "Genesis": "its solver and entity objects, its modules and paths",
}
"""Engines whose handles and assets cannot exist here, and nothing else is `NotApplicable`."""


class _Nothing:
    """Marks what a document does not state."""

    def __repr__(self) -> str:
        return "-"


class _Required:
    """Marks a field without a default."""

    def __repr__(self) -> str:
        return "required"


class Code(str):
    """A value that only another library can write, e.g. a marker config: shown as it is, never compared."""

    def __repr__(self) -> str:
        return str(self)


UNSTATED: Any = _Nothing()
REQUIRED: Any = _Required()


@dataclass(frozen=True)
class Present:
    """It is here, and a test shows it.

    Args:
        where: dotted path of it; may be empty for guarantees and examples.
        test: ``"tests/a/test_b.py::test_c"``, with ``[id]`` for one parameter set (an ending ``*`` takes all ids that
            begin so). Required for errors, guarantees and examples. Must be collected, and never skipped.
        default: our default, where the document states none or a different one; a different one needs `why`.
        why: why it is different.
        call: parameters a method must take, with defaults, as in a signature: ``"env_ids=None"``.
        shape: our shape, where the document states it in other words; sizes and axis words, ``("env", 3)``.
        unit: the field's unit.
        dtype: the field's dtype, where it is not float32.
        builtin: exception of Python that an error must also be, e.g. ``"ValueError"``.
        note: anything a reader must know.
    """

    where: str = ""
    test: str = ""
    default: Any = UNSTATED
    why: str = ""
    call: str | None = None
    shape: tuple[str | int, ...] | None = None
    unit: str | None = None
    dtype: str = "float32"
    builtin: str = ""
    note: str = ""


@dataclass(frozen=True)
class Alias:
    """Another name here for the same thing: `where` exists and is `of`.

    With `where` empty the thing has one name only, that of another contract document; `why` then says which.
    """

    of: str
    where: str = ""
    why: str = ""
    test: str = ""


@dataclass(frozen=True)
class Replaced:
    """The need is met by something else: `by` are dotted paths that exist, and `test` shows that it is."""

    by: tuple[str, ...]
    why: str
    test: str = ""


@dataclass(frozen=True)
class NotApplicable:
    """A handle or an asset of another engine, which is one of `FOREIGN`."""

    engine: str
    because: str


@dataclass(frozen=True)
class With:
    """Comes with a later issue. `where`: the planned path; once it exists the row must be turned to present."""

    issue: str
    where: str = ""
    note: str = ""


Status = Present | Alias | Replaced | NotApplicable | With


@dataclass(frozen=True)
class Row:
    """One thing that a document names.

    Args:
        name: as in the document: ``"ContactSensorCfg.force_threshold"``; a short title for guarantees and examples.
        category: what it is.
        status: what became of it.
        says: what the document says, in short and in our own words.
        default: the document's default of a cfg field (`REQUIRED` where there is none).
        shape: the document's shape of a data field: sizes and axis words, ``("env", 3)``.
        section: the document's section; set by `section`.
    """

    name: str
    category: Category
    status: Status
    says: str = ""
    default: Any = UNSTATED
    shape: tuple[str | int, ...] | None = None
    section: str = ""

    def __str__(self) -> str:
        return f"{self.category} {self.name}"


@dataclass(frozen=True)
class Document:
    """One contract document.

    Args:
        name: short name, e.g. ``"mjlab"``.
        title: title of the page.
        sections: every section of the document -> how many rows it has.
        rows: the table.
    """

    name: str
    title: str
    sections: Mapping[str, int]
    rows: tuple[Row, ...]


def section(name: str, *rows: Row) -> tuple[Row, ...]:
    """Return rows as those of one section."""
    return tuple(replace(row, section=name) for row in rows)
