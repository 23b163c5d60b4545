"""The public names: listed once, in stubs, and loaded only when used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import sensorium

SRC = Path(__file__).parents[1] / "src"
MOST = 200
"""Names that `sensorium` itself may have: more than that is no list that a newcomer reads."""
PARTS = {"client", "engines", "lenses", "math", "patterns", "pictures", "readings", "stages", "targets"}
"""Parts whose names are public."""


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# A single list --------------------------------------------------------------------------------------------------------


def _stub(path: str) -> dict[str, str]:
    """Return name -> module as type checkers read a stub: `from module import name as name`."""
    tree = ast.parse((SRC / "sensorium" / path).read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_every_name_of_the_stub_is_defined_in_its_module() -> None:
    listed = _stub("__init__.pyi")
    assert dir(sensorium) == sorted(listed)
    parts = {name for name, module in listed.items() if module == "sensorium"}
    assert parts == {*PARTS, "compat"}
    for name in parts:
        assert getattr(sensorium, name) is import_module(f"sensorium.{name}")
    assert sorted(sensorium.__all__) == sorted(listed.keys() - parts)
    assert len(sensorium.__all__) <= MOST
    for name in sensorium.__all__:
        assert getattr(sensorium, name) is getattr(import_module(listed[name]), name)


@pytest.mark.parametrize(
    ("part", "stub"),
    [
        ("client", "client/__init__.pyi"),
        ("engines", "engines/__init__.pyi"),
        *((part, f"{part}.pyi") for part in ("lenses", "math", "stages")),
    ],
)
def test_every_name_of_a_part_is_defined_in_its_module(part: str, stub: str) -> None:
    module = getattr(sensorium, part)
    assert dir(module) == sorted(module.__all__)
    for name, source in _stub(stub).items():
        assert getattr(module, name) is getattr(import_module(source), name)


def test_a_name_of_a_part_is_public_there_alone() -> None:
    shared = {"Client", "Reading", "ServerError", "connect"}
    names = [name for part in PARTS for name in getattr(sensorium, part).__all__]
    assert len({*names}) == len(names)
    for name in names:
        if name not in shared:
            with pytest.warns(
                DeprecationWarning, match=rf"^sensorium\.{name} has moved: use sensorium\.\w+\.{name}\.$"
            ):
                found = getattr(sensorium, name)
            assert any(getattr(getattr(sensorium, part), name, None) is found for part in PARTS)
    with pytest.raises(AttributeError, match=r"'sensorium\.engines' has no attribute 'Scene'\. Use sensorium\.Scene$"):
        _ = sensorium.engines.Scene  # type: ignore[attr-defined]


def test_no_public_name_hides_a_submodule() -> None:
    # Python sets a submodule as attribute of its package, so such a name would depend on earlier imports.
    modules = {path.stem for path in (SRC / "sensorium").iterdir()}
    assert modules.isdisjoint(sensorium.__all__)


def test_version_is_that_of_the_installed_distribution() -> None:
    assert sensorium.__version__ == metadata.version("sensorium")


def test_unknown_name_raises_attribute_error_with_nearest_names() -> None:
    with pytest.raises(AttributeError, match=r"module 'sensorium' has no attribute 'Scenes'\. Did you mean: Scene, "):
        _ = sensorium.Scenes
    with pytest.raises(AttributeError, match=r"module 'sensorium' has no attribute 'zzz'$"):
        _ = sensorium.zzz
    with pytest.raises(ImportError, match="cannot import name 'Scenes'"):
        from sensorium import Scenes  # noqa: F401


# Light imports --------------------------------------------------------------------------------------------------------


def _loaded(code: str, packages: tuple[str, ...]) -> list[str]:
    return _run(f"{code}\nimport sys\nprint(*[p for p in {packages!r} if p in sys.modules])").split()


def test_importing_the_package_imports_no_other_package() -> None:
    code = "import sys; before = {*sys.modules}; import sensorium; print(*{*sys.modules} - before)"
    packages = {module.partition(".")[0] for module in _run(code).split()}
    assert packages - sys.stdlib_module_names == {"sensorium"}


@pytest.mark.parametrize("module", ["errors", "spec", "readings"])
def test_client_imports_neither_engine_nor_torch(module: str) -> None:
    assert _loaded(f"import sensorium.{module}", ("torch", "warp", "mujoco", "pydantic")) == []


@pytest.mark.parametrize("module", ["registry", "cli"])
def test_the_command_line_starts_without_engine_and_torch(module: str) -> None:
    assert _loaded(f"import sensorium.{module}", ("torch", "mujoco", "matplotlib")) == []
