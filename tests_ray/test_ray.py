"""Data sets from workers on a real Ray cluster of two nodes, with token authentication.

Ray is imported in the tests, because it reads its environment variables once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import data_sets
import pytest
from cluster import Cluster
from conftest import HEAD, OTHER

import sensorium as sn
from sensorium.errors import ArgumentError, GenerateError
from sensorium.jobs.ray_workers import RayWorkers
from sensorium.jobs.store import Store
from sensorium.jobs.workers import Event, Task


def task(job: sn.Job, out: Path, threads: int = 1) -> Task:
    store = Store(out)
    store.claim(job)
    return Task(job.to_dict(), job.key, store.url, os.getcwd(), threads)


def next_event(workers: RayWorkers) -> Event:
    while not (events := workers.wait(60.0)):
        pass
    (event,) = events
    return event


def test_lost_node_loses_no_shard_and_changes_no_row(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.chdir(tmp_path)
    job = data_sets.job(Path(), control="blocking:policy")
    stopped = []

    def progress(run: Any) -> None:
        """Kill the node when only its shards are missing; the workers of the other one are idle then."""
        found = list(Path().glob("stopped-*"))
        if found and not stopped and len(found) == len(run.working) == run.total - run.done:
            stopped.extend(found)
            cluster.kill(OTHER)

    run = sn.generate(job, "out", ray=cluster.address, progress=progress)
    assert (run.done, len(stopped) > 0) == (data_sets.SHARDS, True)
    for index in range(data_sets.SHARDS):
        sn.run_shard(job, index, "alone")
    assert data_sets.rows(Path("out")) == data_sets.rows(Path("alone"))
    assert [each.name for each in Path().glob("threads-*")] == ["threads-1"]
    assert not ray.is_initialized()
    cluster.start(OTHER, 2, gpus=1)


@pytest.mark.parametrize(
    ("threads", "gpus", "room"), [(1, 0.0, 19), (2, 0.0, 9), (1, 0.1, 13), (2, 0.5, 3), (4, 1.0, 1)]
)
def test_as_many_workers_as_the_machines_have_room_for(threads: int, gpus: float, room: int) -> None:
    machines = [(16.0, 1.0, True), (3.0, 0.5, True), (64.0, 8.0, False)]
    nodes = [{"Resources": {"CPU": cpus, "GPU": count}, "Alive": alive} for cpus, count, alive in machines]
    workers = object.__new__(RayWorkers)
    workers._ray = SimpleNamespace(nodes=lambda: nodes)
    assert workers._room(threads, gpus) == room


def test_killed_worker_is_lost_and_replaced_where_the_gpu_is(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = data_sets.job(Path(), rig=data_sets.sensors()[:2])
    workers = RayWorkers(cluster.address, task(job, tmp_path / "out"), gpus=0.5)
    try:
        workers.start(0)
        ready = next_event(workers)
        assert ready.kind == "ready" and ready.value["pid"] in cluster.processes(OTHER)
        os.kill(ready.value["pid"], signal.SIGKILL)
        workers.submit(0, 2)
        lost = next_event(workers)
        assert lost[:2] == (0, "lost") and "worker process has died" in lost.value
        workers.start(0)
        assert next_event(workers)[:2] == (0, "ready")
        workers.submit(0, 2)
        done = next_event(workers)
        assert done[:2] == (0, "done") and done.value == Store(tmp_path / "out").receipt(2)
    finally:
        workers.stop()


def test_node_with_other_versions_is_one_error(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old" / "numpy-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "old" / "numpy-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n"
    )
    (tmp_path / "bare" / "sensorium").mkdir(parents=True)
    (tmp_path / "bare" / "sensorium" / "__init__.py").touch()
    monkeypatch.delenv("PYTHONPATH")
    texts = []
    for folder in ("old", "bare"):
        cluster.start("127.0.0.4", 3, {"PYTHONPATH": str(tmp_path / folder)})
        job = data_sets.job(Path(), threads=3, control="zero", begin_episode=None, keep=None)
        with pytest.raises(GenerateError) as caught:
            sn.generate(job, f"out-{folder}", ray=cluster.address, workers=1, progress=lambda run: None)
        texts.append(str(caught.value))
        assert not list(Path(f"out-{folder}").glob("shard-*"))
        cluster.kill("127.0.0.4")
    assert "another versions.numpy" in texts[0]
    assert "No module named 'sensorium.jobs'" in texts[1] and "127.0.0.4" in texts[1]


def test_cluster_that_cannot_be_used_is_one_error(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    job = task(data_sets.job(tmp_path, rig=data_sets.sensors()[:2]), tmp_path / "out")
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ArgumentError, match=r"ray: got '127.0.0.2:1', .*Connection refused"):
        RayWorkers("127.0.0.2:1", job)
    with pytest.raises(ArgumentError, match=r"threads, gpus: got 1 and 1.5, .* of the cluster: 2 and 0"):
        RayWorkers(cluster.address, job, size=1, gpus=1.5)
    assert not ray.is_initialized() and signal.getsignal(signal.SIGTERM) is handler
    with monkeypatch.context() as patch:
        patch.setattr(ray, "__version__", "2.0.0")
        with pytest.raises(ArgumentError, match=r"Ray: 2\.60.*Ray: 2\.0\.0"):
            RayWorkers(cluster.address, job)
    assert not ray.is_initialized()


def test_wrong_token_is_one_error(cluster: Cluster) -> None:
    program = "import sys; from sensorium.jobs.ray_workers import _connected; _connected(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, cluster.address], capture_output=True, text=True,
        env={**os.environ, "RAY_AUTH_TOKEN": "fedcba9876543210" * 4},
    )  # fmt: skip
    error = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "ArgumentError: ray: got" in error and "RAY_AUTH_TOKEN" in error


def test_connection_of_the_program_stays_open(cluster: Cluster, tmp_path: Path) -> None:
    import ray

    job = task(data_sets.job(tmp_path, rig=data_sets.sensors()[:2]), tmp_path / "out")
    ray.init(cluster.address, log_to_driver=False)
    try:
        RayWorkers("auto", job).stop()
        RayWorkers(cluster.address, job).stop()
        with pytest.raises(ArgumentError, match=r"expected 'auto' or '127\.0\.0\.2:"):
            RayWorkers(f"{HEAD}:1", job)
        assert ray.is_initialized()
    finally:
        ray.shutdown()
