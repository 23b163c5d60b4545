"""The public names: listed once, in `sensorium/__init__.pyi`, and loaded only when used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import sensorium

STUB = Path(__file__).parents[1] / "src/sensorium/__init__.pyi"


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# A single list --------------------------------------------------------------------------------------------------------


def test_every_name_of_the_stub_is_defined_in_its_module() -> None:
    """The stub is read as type checkers do: `from module import name as name`, a submodule from the package."""
    imports = [node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)
    listed = {alias.name: str(node.module) for node in imports for alias in node.names}
    for name in ("compat", "patterns"):
        assert listed.pop(name) == "sensorium" and getattr(sensorium, name) is import_module(f"sensorium.{name}")
    assert len(listed) > 250
    for name, module in listed.items():
        assert getattr(sensorium, name) is getattr(import_module(module), name)
    assert sorted(sensorium.__all__) == sorted(listed)
    assert dir(sensorium) == sorted([*listed, "__version__"])


def test_no_public_name_hides_a_submodule() -> None:
    # Python sets a submodule as attribute of its package, so such a name would depend on earlier imports.
    modules = {path.stem for path in STUB.parent.iterdir()}
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


def test_the_package_imports_in_less_than_0_3_s() -> None:
    code = "import time; t = time.perf_counter(); import sensorium; print(time.perf_counter() - t)"
    assert min(float(_run(code)) for _ in range(5)) < 0.3
