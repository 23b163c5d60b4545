"""The driver of a job on executors other than local processes."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

import pytest
from data_sets import ENVS, job, sensors

import sensorium as sn
from sensorium.errors import ArgumentError, ConfigError, MissingDependencyError
from sensorium.jobs import driver
from sensorium.jobs.shard import ShardWorker
from sensorium.jobs.workers import Event

pytest.importorskip("pyarrow.parquet")


def small(folder: Path) -> sn.Job:
    """A job with two shards of one short episode, and one sensor."""
    return job(
        folder, rig=sensors()[1:2], envs=2 * ENVS, episodes=1, episode_seconds=0.02, control="zero", keep=None,
        begin_episode=None, randomise={},
    )  # fmt: skip


class LosingWorkers:
    """Two workers, of which the second one is lost with its shard after the first one has nothing to do.

    A replacement is never ready, as on a cluster that has lost a machine.
    """

    size = 2

    def __init__(self, job: sn.Job, out: Path) -> None:
        self.job, self.out = job, out
        self.events = deque[Event]()
        self.started: list[int] = []

    def start(self, worker: int) -> None:
        if worker not in self.started:
            self.events.append(Event(worker, "ready", {}))
        self.started.append(worker)

    def submit(self, worker: int, shard: int) -> None:
        if worker == 0:
            self.events.append(Event(worker, "done", sn.run_shard(self.job, shard, self.out)))
        else:
            self.events.append(Event(worker, "lost", "SIGKILL"))

    def wait(self, seconds: float) -> list[Event]:
        assert self.events, "the driver waits for a worker that is never ready"
        return [self.events.popleft()]

    def stop(self) -> None:
        pass


def test_shard_of_a_lost_worker_goes_to_an_idle_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = small(tmp_path)
    workers = LosingWorkers(given, tmp_path / "out")
    monkeypatch.setattr(driver, "_workers", lambda *args: workers)
    assert sn.generate(given, tmp_path / "out").done == 2
    assert workers.started == [0, 1]


def test_missing_ray_is_an_error_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"need the package ray: pip install 'sensorium\[ray\]'"):
        sn.generate(small(tmp_path), tmp_path / "out", ray="auto")


def test_outputs_that_workers_do_not_share_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = small(tmp_path)
    with pytest.raises(
        ArgumentError, match="out: got 'memory:///out', expected a folder or URL that all machines of Ray"
    ):
        sn.generate(given, "memory://out", ray="auto")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"generate\.out: got .*, expected the output of the driver, with job\.json\."
    ):
        ShardWorker(given.to_dict(), given.key, str(tmp_path / "elsewhere"), str(tmp_path))
