"""Compare what sensors show on two commits, bit for bit, on this machine.

    python -m tests.compare_commits main            # main against the working tree
    python -m tests.compare_commits main HEAD~2     # two commits
    python -m tests.compare_commits main --kinds imu,joint --engines tensor --steps 40   # quick

Each commit is checked out into a temporary git worktree and runs `dump_readings.py` of the working tree in a process of
its own: every registered kind, clean, with every imperfection and at several rates, each stage, lazy sensors, resets of
some environments and of all, and saved states, on both MuJoCo engines and TensorEngine. Configs come from the tests of
the commit (`two_engines.sensors` and tables beside it), so an option may be renamed as long as these tests follow.
A kernel that is not in Warp's cache is compiled first, which takes minutes; otherwise a commit takes two.
The exit code is 1 where something differs or is in the old commit only; entries only in the new one are printed.
"""

from __future__ import annotations

import argparse
import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DUMP = Path(__file__).with_name("dump_readings.py")
PACKAGES = {"mujoco": "mujoco", "mujoco_warp": "mujoco_warp", "tensor": "torch", "newton": "newton", "mjx": "jax"}
ENGINES = tuple(name for name, package in PACKAGES.items() if find_spec(package))
"""Engines whose packages are installed. `make env-newton` and `make env-jax` install those of Newton and MJX."""
BITS = {2: np.int16, 4: np.int32, 8: np.int64}


@dataclass
class Difference:
    """The difference of one field of one sensor between two dumps."""

    engine: str
    kind: str
    sensor: str
    field: str
    ticks: list[int] = field(default_factory=list)
    values: int = 0
    total: int = 0
    ulp: float = 0.0
    """Greatest difference; infinite for values that are not floats, and where only one value is a number or exists."""

    def __str__(self) -> str:
        size = f"at most {self.ulp:.0f} ulp" if math.isfinite(self.ulp) else "by more than ulps"
        return (
            f"{self.engine}: {self.kind} ({self.sensor!r}) {self.field}: {self.values} of {self.total} values differ, "
            f"{size}, in {len(self.ticks)} of the looks at it, first at tick {self.ticks[0]}"
        )


@dataclass
class Result:
    """Result of `compare`.

    Attributes:
        differences: differing values; none are allowed.
        one_sided: kinds, sensors and fields in one dump only, and configs that the two sides refused differently.
        counts: number of compared (sensors, arrays, values) per engine.
    """

    differences: list[Difference] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    counts: dict[str, tuple[int, int, int]] = field(default_factory=dict)


def ulps(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return for each value the distance of two arrays in steps of their float type: 0 for equal bits, otherwise at
    least 1.

    The distance is infinite for values that are not floats, and where only one value is NaN or infinite.
    """
    if old.shape != new.shape or old.dtype != new.dtype:
        return np.full(max(old.size, new.size, 1), math.inf)
    size = old.dtype.itemsize
    if old.dtype.kind != "f":
        return np.where(old != new, math.inf, 0.0).reshape(-1)
    first, second = (np.ascontiguousarray(each).view(BITS[size]).reshape(-1) for each in (old, new))
    least = np.iinfo(BITS[size]).min
    places = [np.where(bits < 0, least - bits, bits).astype(np.float64) for bits in (first, second)]
    apart = np.where(first == second, 0.0, np.maximum(np.abs(places[0] - places[1]), 1.0))
    is_number = np.isfinite(old) & np.isfinite(new)
    return np.where((apart > 0.0) & ~is_number.reshape(-1), math.inf, apart)


def compare(old: Mapping[str, Any], new: Mapping[str, Any], allowed: Mapping[str, int] | None = None) -> Result:
    """Compare two dumps; `allowed` gives the permitted difference per engine, in ulp of float32."""
    result, allowed = Result(), allowed or {}
    one_sided(result, "kind", old["kinds"], new["kinds"])
    one_sided(result, "refused config", old["refused"], new["refused"])
    for engine in old["engines"]:
        a, b = old["engines"][engine], new["engines"][engine]
        one_sided(result, f"{engine}: refused config", a["refused"], b["refused"])
        both = one_sided(result, f"{engine}: sensor", a["sensors"], b["sensors"])
        arrays = values = 0
        for sensor in both:
            first, second = a["sensors"][sensor]["shots"], b["sensors"][sensor]["shots"]
            for key in one_sided(result, f"{engine}: {sensor!r} shows", first, second):
                found = Difference(engine, b["sensors"][sensor]["kind"], sensor, ".".join(filter(None, key)))
                for step in one_sided(result, f"{engine}: {sensor!r} shows {key} at step", first[key], second[key]):
                    array = first[key][step]
                    apart = ulps(array, second[key][step])
                    wrong = apart > (allowed.get(engine, 0) if array.dtype == np.float32 else 0)
                    found.total += apart.size
                    if wrong.any():
                        found.ticks.append(a["ticks"][step])
                        found.values += int(wrong.sum())
                        found.ulp = max(found.ulp, float(apart.max()))
                arrays, values = arrays + len(first[key]), values + found.total
                if found.ticks:
                    result.differences.append(found)
        result.counts[engine] = len(both), arrays, values
    return result


def one_sided(result: Result, what: str, old: Any, new: Any) -> list[Any]:
    """Return the items in both dumps, in order, and record the items in only one."""
    for side, here, there in (("old", old, new), ("new", new, old)):
        result.one_sided += [f"{what}, only in {side}: {each}" for each in here if each not in there]
    return [each for each in old if each in new]


@contextmanager
def checked_out(commit: str | None) -> Iterator[Path]:
    """Yield a folder that contains a commit, or the working tree for None."""
    if commit is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory(prefix="sensorium-compare-") as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        tree = Path(folder, "tree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def dumped(commit: str | None, args: argparse.Namespace) -> Any:
    """Return the dump of a commit, made in a separate process."""
    with checked_out(commit) as tree, tempfile.TemporaryDirectory() as folder:
        print(f"{commit or 'working tree'}:", flush=True)
        paths = os.pathsep.join(str(tree / each) for each in ("src", "tests", "tests_newton"))
        out = Path(folder, "dump")
        command = [sys.executable, str(DUMP), str(out), str(args.steps), args.engines, args.kinds]
        subprocess.run(command, check=True, cwd=tree, env={**os.environ, "PYTHONPATH": paths})
        return pickle.loads(out.read_bytes())


def allowance(text: str) -> dict[str, int]:
    """Parse the permitted ulp per engine from text such as ``mujoco=1``."""
    pairs = [part.split("=") for part in text.split(",") if part]
    if any(len(pair) != 2 or pair[0] not in ENGINES or not pair[1].isdigit() for pair in pairs):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected ENGINE=ULP such as mujoco=1, engines: {ENGINES}")
    return {engine: int(ulp) for engine, ulp in pairs}


def report(result: Result) -> int:
    """Print a result and return the exit code."""
    for line in (*result.one_sided, *map(str, result.differences)):
        print(line)
    print(f"\n{'engine':<12} {'sensors':>8} {'arrays':>8} {'values':>10} {'fields that differ':>19}")
    for engine, counts in result.counts.items():
        bad = sum(each.engine == engine for each in result.differences)
        print(f"{engine:<12} {counts[0]:>8} {counts[1]:>8} {counts[2]:>10} {bad:>19}")
    kinds = sorted({each.kind for each in result.differences})
    print(f"\nKinds that differ: {', '.join(kinds)}" if kinds else "\nAll that both have is equal, bit for bit"
          " or as allowed." + (" But see above what only one has." if result.one_sided else ""))  # fmt: skip
    return 1 if result.differences or any("only in old" in line for line in result.one_sided) else 0


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.compare_commits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", help="commit to compare with")
    parser.add_argument("new", nargs="?", help="commit that is compared (default: the working tree)")
    parser.add_argument("--kinds", default="", help="kinds of sensors, separated by commas (default: all)")
    parser.add_argument("--engines", default=",".join(ENGINES), help="engines, separated by commas (default: all)")
    parser.add_argument("--steps", type=int, default=150, help="control steps, of two ticks in the mean (default: 150)")
    ulp = "float32 of an engine may differ by so many ulp, e.g. mujoco=1 (default: none)"
    parser.add_argument("--ulp-engines", type=allowance, default={}, metavar="ENGINE=ULP", help=ulp)
    args = parser.parse_args(argv)
    if unknown := set(args.engines.split(",")) - set(ENGINES):
        parser.error(f"--engines: unknown {', '.join(sorted(unknown))}; known: {', '.join(ENGINES)}")
    return report(compare(dumped(args.old, args), dumped(args.new, args), args.ulp_engines))


if __name__ == "__main__":
    sys.exit(main())
