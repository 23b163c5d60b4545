"""The driver of a job: it gives shards to workers, repeats what was lost, and writes the manifest."""

from __future__ import annotations

import os
import shlex
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field

from sensorium.errors import ArgumentError, GenerateError, SensoriumWarning, listed
from sensorium.jobs.job import Job
from sensorium.jobs.manifest import receipts_of, write_manifest
from sensorium.jobs.shard_files import check_installed
from sensorium.jobs.store import Store
from sensorium.jobs.workers import Event, InProcess, LocalWorkers, Task, Workers

MAX_FAILURES, MAX_LOSSES = 2, 20
"""Number of errors after which a shard is given up, and of lost workers."""
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "exit")
"""Starts of the reasons for the end of a worker that its shard caused."""


@dataclass
class Run:
    """One call of `generate`.

    Attributes:
        out: folder or URL of the output.
        total: number of shards of this call.
        done: number of shards that are done, including `skipped`.
        skipped: number of shards that were done before, or by another driver.
        failed: number of a shard that was given up -> its error.
        simulated_s: simulated time of the shards of this call, over all environments, s.
        working: worker -> the shard it works on and the time at which it began, see `time.monotonic`.
    """

    out: str
    total: int
    done: int = 0
    skipped: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    simulated_s: float = 0.0
    working: dict[int, tuple[int, float]] = field(default_factory=dict)

    def __repr__(self) -> str:
        text = f"{self.done} of {self.total} shards are done ({self.skipped} before)"
        return f"<Run {self.out}: {text}{f', {len(self.failed)} failed' if self.failed else ''}>"


def generate(
    job: Job,
    out: str | os.PathLike[str],
    *,
    workers: int | None = None,
    ray: str | None = None,
    gpus: float = 0.0,
    shards: Iterable[int] | None = None,
    progress: Callable[[Run], None] | None = None,
) -> Run:
    """Generate a data set: all shards of a job that are not done.

    The rows do not depend on the workers: their number, order, restarts and machines. Shards that are done are kept.
    Workers on one machine are processes. An output ``"memory://..."`` exists in one process, where it is generated.

    Args:
        job: the job.
        out: folder or URL of fsspec for the output.
        workers: number of workers; None for one per `threads` of the job and core.
        ray: address of a Ray cluster whose workers are used, such as ``"auto"``; None for this machine.
        gpus: share of a GPU that each worker on Ray reserves.
        shards: numbers of the shards to generate, e.g. ``range(100)``; None for all.
        progress: called whenever something has changed, and at least every second; None shows a bar on a terminal.

    Returns:
        What was done.

    Raises:
        GenerateError: shards failed twice, and the others are done; or the output could no longer be written; or
            workers cannot start, because a function of the job fails or workers cannot be used.
        ConfigError: a part of the job is invalid; nothing was generated.
        ArgumentError: the output cannot be written, or holds the data of another job.
        MissingDependencyError: a package is not installed.
    """
    try:
        numbers = range(job.num_shards) if shards is None else sorted(set(shards))
    except TypeError:
        raise ArgumentError(f"shards: got {shards!r}, expected whole numbers, such as range(100).") from None
    wanted = [job.shard(number).index for number in numbers]
    check_installed(job.format)
    store = Store(out)
    store.claim(job)
    if foreign := store.names()[1]:
        text = f"{store.url} has foreign files, which stay as they are: {listed(foreign)}."
        warnings.warn(text, SensoriumWarning, stacklevel=2)
    done = {index for index, _ in receipts_of(store, job.key, wanted)}
    run = Run(store.url, len(wanted), len(done), len(done))
    todo = deque(index for index in wanted if index not in done)
    if todo:
        pool = _workers(job, store, workers, ray, gpus, len(todo))
        from sensorium.jobs.progress import shown

        with shown(run) if progress is None else nullcontext(progress) as show:
            _Driver(job, store, pool, todo, run, show).loop()
    if run.failed:
        raise GenerateError(_failures(job, run), run)
    write_manifest(job, store)
    return run


def _workers(job: Job, store: Store, size: int | None, ray: str | None, gpus: float, todo: int) -> Workers:
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise ArgumentError(f"workers: got {size!r}, expected a whole number >= 1, or None for one per core.")
    task = Task(job.to_dict(), job.key, store.url, os.getcwd(), job.threads)
    if ray is not None:
        from sensorium.jobs.ray_workers import RayWorkers

        if store.is_in_memory:
            raise ArgumentError(f"out: got {store.url!r}, expected a folder or URL that all machines of Ray can write.")
        return RayWorkers(ray, task, size=size, gpus=gpus)
    if store.is_in_memory:
        return InProcess(task)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return LocalWorkers(task, min(size or max(1, cores // job.threads), todo))


class _Driver:
    """Gives shards to workers until all are done or given up."""

    def __init__(
        self, job: Job, store: Store, pool: Workers, todo: deque[int], run: Run, progress: Callable[[Run], None]
    ) -> None:
        self._job, self._store, self._pool, self._todo, self._run = job, store, pool, todo, run
        self._progress = progress
        self._failures: Counter[int] = Counter()
        self._losses: Counter[int | None] = Counter()
        self._idle: set[int] = set()

    def loop(self) -> None:
        """Work until all shards are done or given up."""
        pool, run = self._pool, self._run
        try:
            for worker in range(min(pool.size, len(self._todo))):
                pool.start(worker)
            while self._todo or run.working:
                for event in pool.wait(1.0):
                    self._take(event)
                self._progress(run)
        finally:
            run.working.clear()
            pool.stop()

    def _take(self, event: Event) -> None:
        run, worker = self._run, event.worker
        shard = run.working.pop(worker, (None, 0.0))[0]
        if event.kind == "failed":
            raise GenerateError(f"A worker cannot start: {event.value}", run)
        if event.kind == "done" and "error" in event.value:
            assert shard is not None
            if event.value["fatal"]:
                raise GenerateError(f"Shard {shard}: {event.value['error']}", run)
            self._fail(shard, event.value["error"], MAX_FAILURES)
        elif event.kind == "done":
            run.done += 1
            run.simulated_s += event.value["simulated_s"]
        if event.kind == "lost":
            self._idle.discard(worker)
            self._lost(shard, event.value)
        else:
            self._idle.add(worker)
        while self._todo and self._idle:
            self._submit(self._idle.pop())
        if self._todo and event.kind == "lost":  # on a cluster that has lost a machine, it may never be ready
            self._pool.start(worker)

    def _lost(self, shard: int | None, reason: str) -> None:
        """Repeat the shard of a worker that is gone."""
        is_crash = reason.startswith(CRASHES)
        if shard is not None and self._is_done(shard):  # it was lost after the receipt
            self._run.done += 1
        elif shard is not None:
            text = f"the worker ended: {reason}{', perhaps for lack of memory' if reason == 'SIGKILL' else ''}"
            self._losses[shard] += 1
            if is_crash or self._losses[shard] > MAX_LOSSES:
                self._fail(shard, text, MAX_FAILURES if is_crash else 1)
            else:
                self._todo.append(shard)
        else:
            self._losses[None] += 1
            if self._losses[None] >= MAX_FAILURES if is_crash else self._losses[None] > MAX_LOSSES:
                raise GenerateError(f"Workers end before they are ready: {reason}.", self._run)

    def _fail(self, shard: int, error: str, most: int) -> None:
        self._failures[shard] += 1
        if self._failures[shard] >= most:
            self._run.failed[shard] = error
        else:
            self._todo.append(shard)

    def _is_done(self, shard: int) -> bool:
        receipt = self._store.receipt(shard)
        return receipt is not None and bool(receipt["key"] == self._job.shard(shard).key)

    def _submit(self, worker: int) -> None:
        """Give the next shard that no other driver has done in the meantime to a worker, which else stays idle."""
        while self._todo:
            shard = self._todo.popleft()
            if not self._is_done(shard):
                self._run.working[worker] = shard, time.monotonic()
                self._pool.submit(worker, shard)
                return
            self._run.done += 1
            self._run.skipped += 1
        self._idle.add(worker)


def _failures(job: Job, run: Run) -> str:
    """Return the text about shards that were given up."""
    lines = [f"{len(run.failed)} of {run.total} shards failed; the other ones are done."]
    for index, error in list(run.failed.items())[:10]:
        command = f"sensorium generate {shlex.quote(f'{run.out}/job.json')}"
        lines.append(f"shard {index}: {error}")
        lines.append(f"  repeat it alone: {command} --out {shlex.quote(run.out)} --shards {index}")
    return "\n".join(lines)
