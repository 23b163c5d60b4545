"""Run the test files of other libraries, unmodified, with this package's sensors in the place of theirs.

    python -m tests_peers.run FOLDER                          the files below
    python -m tests_peers.run FOLDER mjlab/tests/test_x.py    further files, by their path in FOLDER

FOLDER contains checkouts of mjlab, Genesis and Isaac Lab. A plugin for pytest replaces the classes and configs of
sensors in each library; simulators, scenes and the tests themselves are those of the library.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = 0.9
"""Smallest part of the tests that run which must pass."""


@dataclass(frozen=True)
class Peer:
    """A library whose tests run here."""

    folders: tuple[str, ...]
    """Possible names of its checkout, in lower case."""
    environment: str
    """Virtual environment of the tests."""
    plugin: str
    """Plugin of pytest that replaces the sensors."""
    files: tuple[str, ...]
    """Test files in the checkout."""
    options: tuple[str, ...] = ()
    """Further arguments of pytest."""


ISAACLAB = "source/isaaclab/test/sensors"
PEERS = (
    Peer(
        ("mjlab",),
        ".venv-mjlab",
        "tests_peers.mjlab_hook",
        (
            "tests/test_builtin_sensor.py",
            "tests/test_contact_sensor.py",
            "tests/test_raycast_sensor.py",
            "tests/test_camera_sensor.py",
            "tests/test_sensor_caching.py",
        ),
    ),
    Peer(
        ("genesis", "genesis-world"),
        ".venv-genesis",
        "tests_peers.genesis_hook",
        ("tests/test_sensors.py", "tests/test_sensor_camera.py"),
        ("--numprocesses=0", "--backend=cpu"),
    ),
    Peer(
        ("isaaclab",),
        ".venv",
        "tests_peers.isaaclab_hook",
        (
            f"{ISAACLAB}/test_ray_caster_patterns.py",
            f"{ISAACLAB}/test_sensor_base.py",
            f"{ISAACLAB}/test_sensor_update_schedule.py",
            f"{ISAACLAB}/test_contact_sensor_first_transition.py",
            f"{ISAACLAB}/test_frame_transformer.py",
        ),
    ),
)


@dataclass(frozen=True)
class Outcome:
    """What the tests of one file said."""

    file: str
    passed: int
    skipped: int
    failed: tuple[str, ...]
    """Name of each failed test, and the first line of its message."""


def run(peer: Peer, checkout: Path, file: str) -> Outcome:
    """Run one test file of a checkout.

    Raises:
        RuntimeError: pytest did not report any test.
    """
    shown = f"{checkout.name}/{file}"
    if not (checkout / file).is_file():
        return Outcome(shown, 0, 0, ())
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [str(ROOT / peer.environment / "bin/python"), "-m", "pytest", "-p", peer.plugin, file]
        command += ["--quiet", "-p", "no:cacheprovider", f"--junitxml={report}", "--rootdir=.", *peer.options]
        paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=checkout, env=environment, check=False)
        if not report.is_file():
            raise RuntimeError(f"pytest ended with {done.returncode} and without a report: {' '.join(command)}")
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    passed, skipped, failed = 0, 0, []
    for case in cases:
        fault = next((found for kind in ("failure", "error") if (found := case.find(kind)) is not None), None)
        if fault is not None:
            failed.append(f"{case.get('name')}: {(fault.get('message') or '').splitlines()[0][:160]}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return Outcome(shown, passed, skipped, tuple(failed))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, and print a table; return 1 if too many of them fail, or none runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with checkouts of the libraries")
    parser.add_argument("files", nargs="*", help="test files, by their path in the folder; default: the known ones")
    given = parser.parse_args(arguments)
    if not given.folder.is_dir():
        parser.error(f"{given.folder} is no folder: make test-peers PEERS=folder")
    found = {path.name.lower(): path.resolve() for path in given.folder.iterdir() if path.is_dir()}
    outcomes, known = [], set()
    for peer in PEERS:
        checkout = next((found[name] for name in peer.folders if name in found), None)
        if checkout is None:
            print(f"{given.folder} has no checkout of {' or '.join(peer.folders)}.", file=sys.stderr)
            continue
        own = [each.partition("/")[2] for each in given.files if each.partition("/")[0] == checkout.name]
        known.update(f"{checkout.name}/{file}" for file in own)
        outcomes += [run(peer, checkout, file) for file in (own if given.files else peer.files)]
    if unknown := [file for file in given.files if file not in known]:
        parser.error(f"{', '.join(unknown)}: the first part of the path must be a checkout of a known library")
    print("\n| file | passed | failed | skipped |\n|---|---|---|---|")
    for each in outcomes:
        numbers = f"{each.passed} | {len(each.failed)} | {each.skipped}"
        print(f"| {each.file} | {numbers} |" if each.passed or each.failed else f"| {each.file} | not run | | |")
    for each in outcomes:
        for line in each.failed:
            print(f"failed: {each.file}: {line}")
    passed, failed = sum(each.passed for each in outcomes), sum(len(each.failed) for each in outcomes)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and passed >= REQUIRED * (passed + failed) else 1


if __name__ == "__main__":
    sys.exit(main())
