"""Every row of the contract documents holds, and the checker finds invalid rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .check import faults
from .collect import collect_files, why_skipped
from .render import COMMAND, PAGE, render
from .rows import Alias, Document, NotApplicable, Present, Replaced, Row, With
from .tables import DOCUMENTS, load

ROWS = [pytest.param(row, id=f"{document.name}: {row}") for document in DOCUMENTS for row in document.rows]


@pytest.fixture(scope="session")
def collected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All tests in the files that rows name, with the reason why each may be skipped."""
    statuses = [row.status for document in DOCUMENTS for row in document.rows]
    tests = [ALWAYS, *filter(None, (getattr(status, "test", "") for status in statuses))]
    files = {test.partition("::")[0] for test in tests}
    here = {item.nodeid: item for item in request.session.items if item.nodeid.partition("::")[0] in files}
    if all(any(name.startswith(test.rstrip("*")) for name in here) for test in tests):  # the whole suite runs
        return {name: why_skipped(item) for name, item in here.items()}
    return collect_files(files, tmp_path_factory.mktemp("c") / "c.json")


@pytest.mark.parametrize("row", ROWS)
def test_the_row_holds(row: Row, collected: dict[str, str]) -> None:
    assert faults(row, collected) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_table_has_all_sections_of_its_document_and_unique_rows(document: Document) -> None:
    assert dict(Counter(row.section for row in document.rows)) == dict(document.sections)
    assert document.rows and all(document.sections.values())
    twice = [name for name, count in Counter((row.kind, row.name) for row in document.rows).items() if count > 1]
    assert twice == []


def test_page_matches_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), f"docs/contract.md is not that of the tables: run {COMMAND}"


# The checker itself ---------------------------------------------------------------------------------------------------

ALWAYS = "tests/contract/test_contract.py::test_page_matches_the_tables"


@pytest.mark.parametrize(
    ("kind", "status", "given", "expected"),
    [
        ("class", Present("sn.NoSuch"), {}, "does not exist"),
        ("class", Present("sn.preset"), {}, "is no class"),
        ("class", Present(), {}, "say where"),
        ("cfg field", Present("sn.ImuCfg.update_period"), {"default": "1.0"}, "defaults to 0.0, not 1.0"),
        ("cfg field", Present("sn.ImuCfg.update_period", our_default="0.0"), {"default": "1.0"}, "says why"),
        ("cfg field", Present("sn.ImuCfg.update_period"), {}, "state the default"),
        ("cfg field", Present("sn.ImuCfg.update_period"), {"default": "required"}, "defaults to 0.0, not required"),
        ("cfg field", Present("sn.ImuCfg.debug_vis"), {"default": "0"}, "defaults to False, not 0"),
        ("cfg field", Present("sn.ImuCfg.selected"), {"default": "0"}, "no field of the config"),
        ("cfg field", Present("sn.Scene.allow_gap"), {"default": "False"}, "does not exist"),
        ("data field", Present("sn.ImuData.quat_w", unit="1"), {"shape": ("env", 3)}, "of size 4, not 3"),
        ("data field", Present("sn.ImuData.quat_w", unit="1"), {"shape": ("env", "mount", 4)}, "has axes"),
        ("data field", Present("sn.ImuData.quat_w", unit="rad"), {"shape": ("env", 4)}, "is in '1', not 'rad'"),
        ("data field", Present("sn.ImuData.quat_w", unit="1", dtype="int32"), {"shape": ("env", 4)}, "not int32"),
        (
            "data field",
            Present("sn.compat.genesis.IMUData.lin_acc", unit="m/s^2"),
            {"shape": ("env", 3)},
            "is no field",
        ),
        ("data field", Present("sn.ImuData.no_such", unit="m/s^2"), {"shape": ("env", 3)}, "has no 'no_such'"),
        ("method", Present("sn.Sensor.read", call="envs=None"), {}, "takes no 'envs'"),
        ("method", Present("sn.Sensor.read", call="env_ids=0"), {}, "defaults to None"),
        ("method", Present("sn.Sensor.single"), {}, "cannot be called"),
        ("property", Present("sn.Sensor.read"), {}, "is a method"),
        ("error", Present("sn.ConfigError"), {}, "names the test"),
        ("error", Present("sn.ConfigError", ALWAYS, builtin="KeyError"), {}, "is no KeyError"),
        ("error", Present("sn.Imu", ALWAYS), {}, "is no exception"),
        ("guarantee", Present("sn.Imu"), {}, "names the test"),
        ("guarantee", Present(test="tests/test_cfg.py::test_no_such"), {}, "no such test"),
        ("guarantee", Present(test="tests/no_such.py::test_no_such"), {}, "no such test"),
        ("guarantee", Present(test="tests/contract/test_contract.py::test_the_row_ho"), {}, "no such test"),
        ("class", Alias("sn.Imu", where="sn.ImuCfg"), {}, "is not sn.Imu"),
        ("class", Alias("sn.Imu"), {}, "says why"),
        (
            "data field",
            Alias("sn.ImuData.quat_w", where="sn.compat.genesis.IMUData.mag"),
            {},
            "is not sn.ImuData.quat_w",
        ),
        ("class", Replaced(("sn.NoSuch",), "why", ALWAYS), {}, "does not exist"),
        ("class", Replaced(("sn.Imu",), "why"), {}, "names the test"),
        ("class", Replaced(("sn.Imu",), "why", "tests/test_cfg.py::test_no_such"), {}, "no such test"),
        ("class", Replaced((), "why"), {}, "by what"),
        ("class", NotApplicable("our laziness", "no time"), {}, "only handles and assets"),
        ("class", With("Some day"), {}, "no such issue"),
        ("class", With("Cameras"), {"name": "Imu"}, "exists by now"),
        ("method", With("Cameras", where="sn.Sensor.read"), {}, "exists by now"),
        ("thing", With("Cameras"), {}, "no kind"),
        ("cfg field", Present("sn.ImuCfg.offset"), {"default": "CameraOffsetCfg()"}, "cannot be compared"),
        ("cfg field", Present("sn.ImuCfg.offset"), {"default": "MARKER_CFG"}, "cannot be compared"),
    ],
)
def test_a_false_row_is_found(
    kind: Any, status: Any, given: dict[str, Any], expected: str, collected: dict[str, str]
) -> None:
    row = Row(**{"name": "some thing", "kind": kind, "status": status, **given})
    found = faults(row, collected)
    assert len(found) == 1 and expected in found[0]


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("present = 'sn.Imu'\nwith = 'Cameras'", "exactly one"),
        ("says = 'no status'", "exactly one"),
        ("present = 'sn.Imu'\nbecause = 'no such key'", "because"),
        ("replaced = ['sn.Imu']", "why"),
    ],
    ids=["two statuses", "none", "unknown key", "missing key"],
)
def test_row_with_wrong_keys_is_rejected(keys: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "document.toml"
    path.write_text(
        "name = 'D'\ntitle = 'T'\n[[section]]\nname = 'S'\nrows = 1\n[[section.row]]\n"
        f"name = 'some thing'\nkind = 'class'\n{keys}\n",
        encoding="utf-8",
    )
    with pytest.raises((TypeError, ValueError), match=error):
        load(path)


SKIPPERS = """
import pytest

@pytest.fixture
def absent():
    pytest.skip("not here")

def helper():
    pytest.importorskip("no_such")

def test_runs(): pass

@pytest.mark.skip
def test_mark(): pass

@pytest.mark.skipif(False, reason="never")
def test_condition(): pass

@pytest.mark.xfail
def test_fails(): raise AssertionError

@pytest.mark.parametrize("k", [0, pytest.param(1, marks=pytest.mark.skip)])
def test_one_of_two(k): pass

def test_call(): pytest.skip("no")

def test_fixture(absent): pass

def test_helper(): helper()
"""


def test_all_forms_of_skipping_are_found(tmp_path: Path) -> None:
    """A mark, a condition, an expected failure, and a call in the test, a fixture or a helper are found."""
    (tmp_path / "test_skippers_of_contract.py").write_text(SKIPPERS, encoding="utf-8")
    found = collect_files([str(tmp_path / "test_skippers_of_contract.py")], tmp_path / "out.json")
    reasons = {name.partition("::")[2]: why for name, why in found.items()}
    assert reasons == {
        "test_runs": "",
        "test_mark": "it is marked skip",
        "test_condition": "it is marked skipif",
        "test_fails": "it is marked xfail",
        "test_one_of_two[0]": "",
        "test_one_of_two[1]": "it is marked skip",
        "test_call": "test_call calls pytest.skip",
        "test_fixture": "absent calls pytest.skip",
        "test_helper": "test_helper calls pytest.importorskip",
    }
