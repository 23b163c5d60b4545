"""Installed packages are imported once; a fault in a package is reported by name and does not affect others."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from sensorium import plugins
from sensorium.errors import SensoriumWarning
from sensorium.plugins import Plugins, Registry

NOTED: Registry[str, type] = Registry("insect", Plugins("no.group", "insect"), "{cls} is no {key}, {other} is")
"""The registry in which the modules of these tests register their classes."""


def insects() -> Plugins:
    """Return installed packages that are not loaded yet."""
    found = Plugins("test.group", "insect")
    found.tables.append(NOTED)
    return found


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Three packages, of which the second registers a class and then fails."""
    good = "from plugin_notes import NOTED\nclass {0}: ...\nNOTED['{0}'] = {0}\n"
    for name in ("ant", "bee", "cow"):
        text = good.format(name.title()) + ("raise RuntimeError('stung')\n" if name == "bee" else "")
        (tmp_path / f"plugin_{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "plugin_notes", SimpleNamespace(NOTED=NOTED))
    NOTED["Own"] = int
    points = [EntryPoint(name, f"plugin_{name}", "test.group") for name in ("cow", "ant", "bee")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == "test.group" else [])
    yield
    NOTED.clear()
    for name in ("ant", "bee", "cow"):
        sys.modules.pop(f"plugin_{name}", None)


def test_failing_module_leaves_nothing_and_others_load(tmp_path: Path) -> None:
    found = insects()
    with pytest.warns(SensoriumWarning) as caught:
        found.load()
    place = f"({tmp_path / 'plugin_bee.py'}:4)"
    (warning,) = caught
    assert str(warning.message) == (
        "the insect plugin 'bee' (plugin_bee) could not be loaded and is ignored: "
        f"RuntimeError: stung {place}. Mend or update it, or uninstall it."
    )
    assert warning.filename == __file__
    assert list(map(str, found.broken)) == [str(warning.message)]
    assert found.suspects() == f"It may be in a plugin that is broken: {warning.message}"
    assert sorted(NOTED) == ["Ant", "Cow", "Own"]


def test_with_warnings_as_errors_all_plugins_load_before_the_first_raises() -> None:
    found = insects()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SensoriumWarning, match="stung"):
            found.load()
    assert {"Ant", "Cow"} <= NOTED.keys()


def test_plugins_are_loaded_once_after_the_built_in_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(plugins, "importlib", SimpleNamespace(import_module=order.append))
    point = SimpleNamespace(name="dog", value="dog", dist=None, load=lambda: order.append("dog"))
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    found = Plugins("test.group", "pet", ("our.first", "our.second"))
    with pytest.warns(
        SensoriumWarning, match=r"'dog' \(dog\) .* defines nothing that belongs to the group test\.group"
    ):
        found.load()
    found.load()
    assert order == ["our.first", "our.second", "dog"] and [each.name for each in found.broken] == ["dog"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class Abort(BaseException): ...\nraise Abort('no display')\n", "Abort: no display ("),
        ("raise SystemExit(3)\n", "SystemExit: 3 ("),
        ("class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute\n", "Mute ("),
    ],
    ids=["base exception", "exit", "no text"],
)
def test_exception_of_a_module_is_reported_by_name(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "plugin_bee.py").write_text(text, encoding="utf-8")
    found = insects()
    with pytest.warns(
        SensoriumWarning, match=re.escape(f"'bee' (plugin_bee) could not be loaded and is ignored: {reason}")
    ):
        found.load()
    assert sorted(NOTED) == ["Ant", "Cow", "Own"]


def test_a_malformed_value_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("ant", "a b c !!", "test.group"), EntryPoint("cow", "plugin_cow", "test.group")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    with pytest.warns(SensoriumWarning, match="'ant' .*'a b c !!' names no module; expected package.module"):
        insects().load()
    assert sorted(NOTED) == ["Cow", "Own"]


def test_ctrl_c_during_loading_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "plugin_bee.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        insects().load()
