"""Rows of the tables: one per item that a contract document names, with its equivalent here.

A row repeats the document's statement (name, kind, default, shape, a short paraphrase) and has one status:
`Present`, `Alias`, `Replaced`, `NotApplicable` or `With` (comes with later work). The fields are the keys of the TOML
files, which `tables.py` reads.

Defaults are Python expressions: ``"0.0"``, ``"'ros'"``, ``"required"`` where there is none, and ``"ImuCfg()"`` for a
config with all its defaults. Names that only another library can resolve, e.g. of a marker config, are never compared.

Items of this package are dotted paths; `sn.` is short for `sensorium.`: ``"sn.ImuCfg.update_period"``,
``"sensorium.testing.check_sensor"``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["class", "cfg field", "data field", "method", "property", "error", "guarantee", "example"]
"""Hooks and functions are methods; behaviours, limitations and conventions are guarantees."""

ISSUES = {
    "Cameras": "what a camera sees without light",
    "Cameras II": "color images, light and image noise",
}
"""Later work that a row may depend on."""

FOREIGN = {
    "Omniverse": "its extensions, its timeline, its carb settings and its USD assets",
    "PhysX": "its tensor views and schemas",
    "Unreal Engine": "its object system, its headers, macros and assets",
    "CARLA's build": "its C++ source tree, make targets and Boost.Python bindings",
    "Genesis": "its solver and entity objects, its modules and paths",
}
"""Engines whose handles and assets cannot exist here; only these are `NotApplicable`."""


@dataclass(frozen=True)
class Present:
    """An item that exists here and has a test.

    Args:
        where: dotted path of the item; may be empty for guarantees and examples.
        test: ``"tests/a/test_b.py::test_c"``, with ``[id]`` for one parameter set (an ending ``*`` takes all ids that
            begin so). Required for errors, guarantees and examples. Must be collected, and never skipped.
        our_default: our default, where the document states none or a different one; a different one needs `why`.
        why: reason for the difference.
        call: parameters a method must take, with defaults, as in a signature: ``"env_ids=None"``.
        our_shape: our shape, where the document's wording differs; sizes and axis words, ``["env", 3]``.
        unit: the field's unit.
        dtype: the field's dtype, where it is not float32.
        builtin: exception of Python that an error must also be, e.g. ``"ValueError"``.
        note: further information for the reader.
    """

    where: str = ""
    test: str = ""
    our_default: str = ""
    why: str = ""
    call: str | None = None
    our_shape: Sequence[str | int] | None = None
    unit: str | None = None
    dtype: str = "float32"
    builtin: str = ""
    note: str = ""


@dataclass(frozen=True)
class Alias:
    """Another name here for the same item: `where` exists and is `of`.

    An empty `where` means that the item has a single name, that of another contract document; `why` then names the
    document.
    """

    of: str
    where: str = ""
    why: str = ""
    test: str = ""


@dataclass(frozen=True)
class Replaced:
    """An item replaced by others: `by` holds existing dotted paths, and `test` shows the equivalence."""

    by: Sequence[str]
    why: str
    test: str = ""


@dataclass(frozen=True)
class NotApplicable:
    """A handle or an asset of another engine, listed in `FOREIGN`."""

    engine: str
    why: str


@dataclass(frozen=True)
class With:
    """An item of later work. `where` is the planned path; once the path exists, the row must become present."""

    issue: str
    where: str = ""
    note: str = ""


Status = Present | Alias | Replaced | NotApplicable | With
STATUSES: Mapping[str, type[Status]] = {
    "present": Present, "alias": Alias, "replaced": Replaced, "not_applicable": NotApplicable, "with": With,
}  # fmt: skip
"""Key of a status in the TOML files, which holds its first field -> the status."""


@dataclass(frozen=True)
class Row:
    """An item that a document names.

    Args:
        name: as in the document: ``"ContactSensorCfg.force_threshold"``; a short title for guarantees and examples.
        kind: kind of the item.
        status: its equivalent here.
        says: short paraphrase of the document's statement.
        default: the document's default of a cfg field.
        shape: the document's shape of a data field: sizes and axis words, ``["env", 3]``.
        section: the document's section.
    """

    name: str
    kind: Kind
    status: Status
    says: str = ""
    default: str = ""
    shape: Sequence[str | int] | None = None
    section: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Document:
    """A contract document.

    Args:
        name: short name, e.g. ``"mjlab"``.
        title: title of the page.
        sections: every section of the document -> its number of rows.
        rows: the table.
    """

    name: str
    title: str
    sections: Mapping[str, int]
    rows: tuple[Row, ...]
