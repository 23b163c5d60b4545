"""A pytest plugin that lists all tests and marks those that may be skipped.

`collect_files(paths)` runs pytest with it in a separate process that only collects.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OUT = "CONTRACT_COLLECTED"
SKIPPING_MARKS = ("skip", "skipif", "xfail")
SKIPPING_CALLS = ("skip", "xfail", "importorskip")


def collect_files(paths: Iterable[str], out: Path) -> dict[str, str]:
    """Return test id -> why it may be skipped ("" where it cannot), for all tests in files below the root.

    Args:
        paths: test files, relative to the root; those that do not exist have no tests.
        out: path of the output file.
    """
    files = sorted({path for path in paths if (ROOT / path).is_file()})
    if not files:
        return {}
    env = {**os.environ, OUT: str(out), "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "contract.collect",
        "-p",
        "no:cacheprovider",
        "--assert=plain",  # nothing is run, so no assertion needs to be rewritten
    ]
    done = subprocess.run([*command, *files], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"collecting {', '.join(files)} failed:\n{done.stdout}{done.stderr}")
    collected: dict[str, str] = json.loads(out.read_text(encoding="utf-8"))
    return collected


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write all collected tests to the output file."""
    if OUT in os.environ:
        found = {item.nodeid: why_skipped(item) for item in session.items}
        Path(os.environ[OUT]).write_text(json.dumps(found), encoding="utf-8")


def why_skipped(item: Any) -> str:
    """Return why a test may be skipped: a mark, or a call in it, in its fixtures or in helpers of its module."""
    for mark in SKIPPING_MARKS:
        if item.get_closest_marker(mark) is not None:
            return f"it is marked {mark}"
    fixtures = getattr(item, "_fixtureinfo", None)
    functions = [getattr(item, "function", None)]
    if fixtures is not None:
        functions += [each.func for defs in fixtures.name2fixturedefs.values() for each in defs]
    for function in functions:
        if function is not None and not function.__module__.startswith("_pytest") and (call := skipping_call(function)):
            return f"{function.__name__} calls pytest.{call}"
    return ""


def skipping_call(function: Any, seen: frozenset[str] = frozenset()) -> str:
    """Return the call by which a function, or a function of its module that it names, skips a test."""
    module = inspect.getmodule(function)
    names, calls = _parts(inspect.unwrap(function))
    if calls:
        return calls[0]
    for name in names - seen:
        helper = getattr(module, name, None) if isinstance(module, ModuleType) else None
        if inspect.isfunction(helper) and inspect.getmodule(helper) is module:
            if call := skipping_call(helper, seen | names):
                return call
    return ""


@cache
def _parts(function: Any) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names that a function uses, and its skipping calls."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return frozenset(), ()
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    calls = [
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in SKIPPING_CALLS
        and getattr(node.func.value, "id", "") == "pytest"
    ]
    return frozenset(names), tuple(calls)
