"""The comparison of commits: two runs of one tree are equal, and every difference is reported."""

from __future__ import annotations

import copy
from typing import Any

import compare_commits
import dump_readings
import numpy as np
import pytest
from compare_commits import allowance, compare, report, ulps


@pytest.fixture(scope="module")
def dumps() -> tuple[Any, Any]:
    first, second = (dump_readings.dump(("barometer",), ("tensor",), 16) for _ in range(2))
    return first, second


def test_two_equal_runs_have_no_difference(dumps: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A kind, clean and noisy, shows equal values, copies, history and flags, including late and lost samples."""
    result = compare(*dumps)
    assert not result.differences and not result.one_sided
    shots = dumps[0]["engines"]["tensor"]["sensors"]["barometer noisy"]["shots"]
    assert {what for what, _ in shots} >= {"data", "ground_truth", "read", "history", "age", "valid", "frame", "is_new"}
    last = max(shots["data", "pressure"])
    assert not np.array_equal(shots["data", "pressure"][last], shots["ground_truth", "pressure"][last])
    assert any((age > 0.0).any() for age in shots["age", ""].values())
    assert report(result) == 0 and "bit for bit" in capsys.readouterr().out


def test_one_bit_is_reported(dumps: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A difference is reported with sensor, field, tick, number of values and ulp; it may be allowed for an engine."""
    old, new = dumps[0], copy.deepcopy(dumps[1])
    shots = new["engines"]["tensor"]["sensors"]["barometer"]["shots"]["data", "pressure"]
    step = sorted(shots)[2]
    shots[step][1] = np.nextafter(shots[step][1], np.float32(np.inf))
    (found,) = compare(old, new).differences
    assert (found.engine, found.kind, found.sensor, found.field) == (
        "tensor",
        "barometer",
        "barometer",
        "data.pressure",
    )
    assert (found.values, found.ulp, found.ticks) == (1, 1.0, [old["engines"]["tensor"]["ticks"][step]])
    assert report(compare(old, new)) == 1 and "Kinds that differ: barometer" in capsys.readouterr().out
    assert compare(old, new, {"tensor": 1}).differences == []
    assert len(compare(old, new, {"mujoco": 1}).differences) == 1


def test_one_sided_entries_are_reported(dumps: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """New kinds and sensors are listed; a removed sensor is a difference."""
    old, new = dumps[0], copy.deepcopy(dumps[1])
    new["kinds"].append("nose")
    del old["engines"]["tensor"]["sensors"]["barometer noisy"], old["kinds"][0]
    assert report(compare(old, new)) == 0
    assert "only in new: nose" in capsys.readouterr().out
    assert report(compare(new, old)) == 1
    assert "only in old: barometer noisy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (np.float32([0.0, 1.0]), np.float32([-0.0, 1.0]), [1.0, 0.0]),
        (np.float32([np.nan, 1.0, np.inf]), np.float32([np.nan, np.nan, 1.0]), [0.0, np.inf, np.inf]),
        (np.float64([-1.0]), np.nextafter(np.float64([-1.0]), 0.0), [1.0]),
        (np.float32([1e-45]), np.float32([-1e-45]), [2.0]),
        (np.int32([3, 4]), np.int32([3, 5]), [0.0, np.inf]),
        (np.bool_([True]), np.bool_([False]), [np.inf]),
        (np.float32([1.0]), np.float64([1.0]), [np.inf]),
        (np.zeros((0, 3), np.float32), np.zeros((1, 3), np.float32), [np.inf] * 3),
    ],
)
def test_ulps(old: Any, new: Any, expected: list[float]) -> None:
    assert ulps(old, new).tolist() == expected


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, dumps: tuple[Any, Any]) -> None:
    """The new commit is the working tree by default; wrong arguments are reported with the expected ones."""
    asked = []
    monkeypatch.setattr(compare_commits, "dumped", lambda commit, args: asked.append(commit) or dumps[0])
    assert compare_commits.main(["main", "--ulp-engines", "mujoco=1"]) == 0
    assert asked == ["main", None] and allowance("mujoco=1,tensor=2") == {"mujoco": 1, "tensor": 2}
    for wrong in (["main", "--ulp-engines", "mujoco"], ["main", "--engines", "bullet"]):
        with pytest.raises(SystemExit):
            compare_commits.main(wrong)
