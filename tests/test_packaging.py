"""The non-code contents of the sensorium package: the licence, the authors, the project URL."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of https://www.apache.org/licenses/LICENSE-2.0.txt."""


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_licence_is_the_standard_text_and_is_packaged(pyproject: dict[str, Any]) -> None:
    """Wheels include the files named in `license-files`, source distributions also their include list."""
    project = pyproject["project"]
    assert project["license"] == "Apache-2.0" and project["license-files"] == ["LICENSE"]
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    included = pyproject["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert "/LICENSE" in included
    assert all(list(ROOT.glob(pattern.removeprefix("/"))) for pattern in included)


def test_authors_and_addresses_are_given(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    assert project["authors"]
    urls = project["urls"]
    assert {"Homepage", "Documentation", "Issues", "Source", "Changelog"} <= set(urls)
    owner, name = urls["Homepage"].split("/")[-2:]
    places = urls["Homepage"], f"https://{owner}.github.io/{name}/"
    assert all(address.startswith(places) for address in urls.values())


def test_the_extra_all_has_every_extra_that_fits_beside_the_core(pyproject: dict[str, Any]) -> None:
    """Other simulators pin their own MuJoCo, and Ray is for clusters."""
    extras = pyproject["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"sensorium[{','.join(sorted(extras.keys() - {'all', 'jax', 'newton', 'ray', 'warp'}))}]"


def test_every_fragment_has_a_changelog_type(pyproject: dict[str, Any]) -> None:
    """`towncrier` ignores files with other names."""
    types = {each["directory"] for each in pyproject["tool"]["towncrier"]["type"]}
    assert types
    for fragment in sorted((ROOT / "changelog").glob("*.md")):
        assert fragment.stem.rpartition(".")[2] in types, fragment.name


def test_the_changelog_describes_the_version_of_the_package(pyproject: dict[str, Any]) -> None:
    heading = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("release notes start -->")[2].split()[:2]
    assert heading == ["##", pyproject["project"]["version"]]


def test_the_citation_has_the_version_of_the_package(pyproject: dict[str, Any]) -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {pyproject['project']['version']}" in citation


def test_lowest_versions_match_the_declared_ones(pyproject: dict[str, Any]) -> None:
    """Each dependency of the core and of streams has a lower bound, and `make test-lowest` installs it."""
    pins = dict(
        line.split("==") for line in (ROOT / "requirements-lowest.txt").read_text().splitlines() if "==" in line
    )
    project = pyproject["project"]
    for needed in (*project["dependencies"], *project["optional-dependencies"]["stream"]):
        name, _, lowest = needed.partition(",")[0].partition(">=")
        assert name == "torch" or f"{pins[name]}.".startswith(f"{lowest}."), needed


def test_the_page_of_versions_states_the_pins() -> None:
    """Each row names its packages with the versions that its `make` target installs."""
    lines = (ROOT / "docs/versions.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|") and "`make" in line]
    assert len(rows) > 5
    for _, simulators, mujoco, mujoco_warp, warp, target in rows:
        suffix = target.strip("`").removeprefix("make test").removeprefix("-")
        pins = (ROOT / (f"requirements-{suffix}.txt" if suffix else "constraints.txt")).read_text(encoding="utf-8")
        named = [each.rsplit(" ", 1) for each in simulators.split(", ") if each != "-"]
        named += [["mujoco", mujoco], ["mujoco-warp", mujoco_warp], ["warp-lang", warp]]
        for name, version in named:
            package = {"rsl_rl": "rsl-rl-lib"}.get(name, name.lower())
            number = version.partition(",")[0]
            assert number == "-" or f"\n{package}=={number}." in pins, (target, name, version)
