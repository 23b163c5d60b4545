"""Mutations of the packages around the core: `python -m tests.mutations` prints which of them the tests notice.

Each mutation changes one operator, comparison, constant or condition of a copy of the sources, at a place chosen by the
seed, and runs the tests of the packages on that copy.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SEED = 3838
PACKAGES = ("wire", "stream", "client", "view", "record")
ROOT = Path(__file__).resolve().parent.parent

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip


def _mutable(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (bool, int)
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and type(node.ops[0]) in OPERATORS
    return isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OPERATORS


def places(root: Path) -> list[tuple[Path, int]]:
    """Return all places that can be mutated: a file and the number of the node in it."""
    found = []
    for package in PACKAGES:
        for path in sorted((root / "src/sensorium" / package).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            found += [(path.relative_to(root), i) for i, node in enumerate(nodes) if _mutable(node)]
    return found


def mutate(path: Path, number: int) -> str:
    """Mutate a file at a place; return the mutated line, before and after."""
    tree = ast.parse(path.read_text())
    node = list(ast.walk(tree))[number]
    before = ast.unparse(node)
    if isinstance(node, ast.Constant):
        node.value = (not node.value) if isinstance(node.value, bool) else int(node.value) + 1  # type: ignore[arg-type]
    elif isinstance(node, ast.Compare):
        node.ops = [OPERATORS[type(node.ops[0])]()]  # type: ignore[list-item]
    else:
        node.op = OPERATORS[type(node.op)]()  # type: ignore[attr-defined]
    path.write_text(ast.unparse(tree))
    return f"{path.name}:{node.lineno}: {before} -> {ast.unparse(node)}"  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout with sources and tests")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("tests", nargs="*", default=["tests/wire", "tests/stream", "tests/client", "tests/view"])
    args = parser.parse_args()
    killed = 0
    for path, number in random.Random(args.seed).sample(places(args.root), args.count):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            shutil.copytree(args.root / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
            what = mutate(copy / path, number)
            env = os.environ | {"PYTHONPATH": f"{copy / 'src'}:{args.root}"}
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *args.tests]
            done = subprocess.run(command, cwd=args.root, env=env, capture_output=True, text=True, check=False)
        killed += done.returncode != 0
        print("killed  " if done.returncode else "survived", what, flush=True)
    print(f"{killed} of {args.count} killed")


if __name__ == "__main__":
    main()
