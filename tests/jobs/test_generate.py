"""The rows of a job do not depend on its workers: their number, order, threads, deaths, and interruptions.

A data set is compared with the one that this process wrote shard by shard, as pyarrow reads the rows of both.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from data_sets import KILLS, SHARDS, driver, job, rows, sensors
from nursery import Nursery, Program, until

import sensorium as sn

pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Hashes of the rows, which one process wrote in any order."""
    folder = tmp_path_factory.mktemp("truth")
    given, order = job(folder), list(range(SHARDS))
    random.Random(1).shuffle(order)
    for index in order:
        sn.run_shard(given, index, folder / "out")
    return rows(folder / "out")


def receipts(folder: Path) -> set[Path]:
    return set(folder.glob("out/*/receipt.json"))


def ended(program: Program) -> str:
    assert program.wait(120.0) == 0, program.err
    return program.out


@pytest.mark.parametrize("workers", [3, 7])
def test_rows_are_equal_for_any_number_of_workers(
    nursery: Nursery, tmp_path: Path, truth: dict[str, str], workers: int
) -> None:
    assert ended(driver(nursery, job(tmp_path), tmp_path, workers=workers)) == f"[{SHARDS}, 0]\n"
    assert rows(tmp_path / "out") == truth


def test_rows_are_equal_after_workers_were_killed(nursery: Nursery, tmp_path: Path, truth: dict[str, str]) -> None:
    (tmp_path / "graves").mkdir()
    given = job(tmp_path, control="data_sets:fatal_policy")
    assert ended(driver(nursery, given, tmp_path, workers=3)) == f"[{SHARDS}, 0]\n"
    assert len(list((tmp_path / "graves").iterdir())) == KILLS
    assert rows(tmp_path / "out") == truth
    assert not list(tmp_path.glob("out/**/*.part"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_run_is_resumed(nursery: Nursery, tmp_path: Path, truth: dict[str, str], number: int) -> None:
    given = job(tmp_path, control="data_sets:spawning_policy")
    first = driver(nursery, given, tmp_path, workers=2)
    until(lambda: len(receipts(tmp_path)) >= 2, "two shards")
    left = children(first)
    first.send(number)
    assert first.wait() == -signal.SIGKILL if number == signal.SIGKILL else first.wait() != 0
    (tmp_path / "interrupted").touch()
    for spawned in tmp_path.glob("spawned-*"):
        pid = int(spawned.name.partition("-")[2])
        if number == signal.SIGKILL:  # which leaves the programs of workers
            os.kill(pid, signal.SIGKILL)
        left.append(pid)
    until(lambda: not any(Path(f"/proc/{each}").exists() for each in left), "the end of the workers and their programs")
    done = len(receipts(tmp_path))
    assert 2 <= done < SHARDS and not (tmp_path / "out" / "manifest.parquet").exists()
    assert ended(driver(nursery, given, tmp_path, workers=2)) == f"[{SHARDS}, {done}]\n"
    assert rows(tmp_path / "out") == truth


def children(program: Program) -> list[int]:
    """Return the worker processes of a driver."""
    pid = program._child.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_two_drivers_share_a_folder(nursery: Nursery, tmp_path: Path, truth: dict[str, str]) -> None:
    ranges = [list(range(5)), list(range(2, SHARDS))]
    both = [driver(nursery, job(tmp_path), tmp_path, workers=1, shards=each) for each in ranges]
    assert [ended(each).partition(",")[0] for each in both] == ["[5", "[5"]
    assert rows(tmp_path / "out") == truth
    assert len(pq.read_table(tmp_path / "out" / "manifest.parquet")) == len(truth)


def test_shards_that_fail_are_reported_and_the_others_done(nursery: Nursery, tmp_path: Path) -> None:
    """Shard 1 raises, 2 raises once, 3 and 4 end the worker; each of 1, 3 and 4 is given up after two attempts."""
    given = job(tmp_path, rig=sensors()[:1], control="data_sets:faulty", keep=None, episodes=1)
    tmp_path = tmp_path / "a folder"
    tmp_path.mkdir()
    program = driver(nursery, given, tmp_path, workers=2)
    assert program.wait(120.0) == 1
    lines = program.err.partition("GenerateError: ")[2].splitlines()
    assert lines[0] == f"3 of {SHARDS} shards failed; the other ones are done."
    failures = dict(zip(lines[1::2], lines[2::2], strict=True))
    for shard, text in ((1, "OSError: a fault (/"), (3, "the worker ended: SIGSEGV"), (4, "worker ended: exit code 3")):
        (line,) = [each for each in failures if each.startswith(f"shard {shard}: ")]
        assert text in line and failures[line].endswith(f"out/job.json' --out '{tmp_path}/out' --shards {shard}")
    assert {each.parent.name for each in receipts(tmp_path)} == {f"shard-00000{each}" for each in (0, 2, 5, 6)}
    assert not (tmp_path / "out" / "manifest.parquet").exists()
    assert not [each for each in tmp_path.glob("out/shard-000001/**/*") if each.is_file()]


def test_job_that_ends_its_workers_at_the_start_is_given_up(nursery: Nursery, tmp_path: Path) -> None:
    program = driver(nursery, job(tmp_path, control="data_sets:ended"), tmp_path, workers=1)
    assert program.wait(120.0) == 1 and "Workers end before they are ready: exit code 3." in program.err
    assert len(list(tmp_path.glob("start-*"))) == 2 and not list(tmp_path.glob("out/shard*"))


def test_threads_are_those_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that was started with another number of threads, as in one that has more."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    given = job(
        tmp_path,
        rig=sensors()[1:2],
        control="data_sets:threads",
        keep=None,
        randomise={},
        episodes=1,
        envs=4,
        threads=2,
    )
    for index in range(2):
        sn.run_shard(given, index, tmp_path / "one")
    seen = list[int]()
    sn.generate(given, tmp_path / "two", workers=1, progress=lambda run: seen.append(run.done))
    assert rows(tmp_path / "two") == rows(tmp_path / "one") and seen[-1] == 2
