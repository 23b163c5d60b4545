"""The public names: said three times in `sensorium/__init__.py`, always the same, and loaded only when used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import sensorium

INIT = Path(__file__).parents[1] / "src/sensorium/__init__.py"


def _said() -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return the lazy table, what the TYPE_CHECKING block imports (both name -> module) and `__all__`."""
    table: dict[str, str] = {}
    typed: dict[str, str] = {}
    everything: list[str] = []
    for node in ast.parse(INIT.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If):
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom):
                    for alias in statement.names:
                        assert alias.asname == alias.name, f"re-export {alias.name} as itself"
                        typed[alias.name] = str(statement.module)
        elif isinstance(node, ast.Assign):
            target = getattr(node.targets[0], "id", "")
            if target == "_MODULES":
                table = ast.literal_eval(node.value)
            elif target == "__all__":
                everything = ast.literal_eval(node.value)
    return table, typed, everything


TABLE, TYPED, ALL = _said()


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# One list -------------------------------------------------------------------------------------------------------------


def test_the_table_the_typed_block_and_all_agree() -> None:
    assert TABLE
    assert TYPED == TABLE
    assert sorted(ALL) == sorted(TABLE)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_public_name_is_what_its_module_defines(name: str) -> None:
    module = __import__(TABLE[name], fromlist=[name])
    assert getattr(sensorium, name) is getattr(module, name)


def test_no_public_name_hides_a_submodule() -> None:
    # Python sets a submodule as attribute of its package, so that such a name would depend on what was imported before.
    modules = {path.stem for path in INIT.parent.iterdir()}
    assert modules.isdisjoint(TABLE)


def test_dir_lists_the_public_names() -> None:
    assert set(TABLE) <= set(dir(sensorium))


def test_version_is_that_of_the_installed_distribution() -> None:
    assert sensorium.__version__ == metadata.version("sensorium")


def test_an_unknown_name_is_an_attribute_error_with_the_nearest_names() -> None:
    with pytest.raises(AttributeError, match=r"module 'sensorium' has no attribute 'Scenes'\. Did you mean: Scene, "):
        _ = sensorium.Scenes
    with pytest.raises(AttributeError, match=r"module 'sensorium' has no attribute 'zzz'$"):
        _ = sensorium.zzz
    with pytest.raises(ImportError, match="cannot import name 'Scenes'"):
        from sensorium import Scenes  # noqa: F401


# Light imports --------------------------------------------------------------------------------------------------------


def _loaded(code: str, packages: tuple[str, ...]) -> list[str]:
    return _run(f"{code}\nimport sys\nprint(*[p for p in {packages!r} if p in sys.modules])").split()


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert (
        _loaded("import sensorium", ("torch", "warp", "mujoco", "pydantic", "numpy", "matplotlib", "rich", "tyro"))
        == []
    )


@pytest.mark.parametrize("module", ["errors", "spec", "readings"])
def test_what_a_remote_client_needs_imports_neither_engine_nor_tensors(module: str) -> None:
    assert _loaded(f"import sensorium.{module}", ("torch", "warp", "mujoco", "pydantic")) == []


@pytest.mark.parametrize("module", ["registry", "cli"])
def test_the_command_line_starts_without_engine_and_torch(module: str) -> None:
    assert _loaded(f"import sensorium.{module}", ("torch", "mujoco", "matplotlib")) == []


def test_the_package_imports_in_less_than_0_3_s() -> None:
    code = "import time; t = time.perf_counter(); import sensorium; print(time.perf_counter() - t)"
    assert min(float(_run(code)) for _ in range(5)) < 0.3
