"""Workers of an executor: the interface that the driver uses, and workers as processes of this machine."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables with the number of threads of PyTorch and NumPy."""


Kind = Literal["ready", "done", "failed", "lost"]


class Event(NamedTuple):
    """Something that a worker reports."""

    worker: int
    """Number of the worker."""
    kind: Kind
    """What happened: it is ready for shards, ended one, could not start, or is gone."""
    value: Any
    """The result of `ShardWorker.about` or `ShardWorker.run`, the error, or the reason."""


class Workers(Protocol):
    """Workers, each with at most one shard at a time."""

    size: int
    """Number of workers to run at once."""

    def start(self, worker: int) -> None:
        """Start a worker; an event ``"ready"``, ``"failed"`` or ``"lost"`` follows."""

    def submit(self, worker: int, shard: int) -> None:
        """Give a shard to an idle worker; an event ``"done"`` or ``"lost"`` follows."""

    def wait(self, seconds: float) -> list[Event]:
        """Return events; wait for the first one, at most this long."""

    def stop(self) -> None:
        """End all workers now."""


@dataclass(frozen=True, slots=True)
class Task:
    """Arguments of `ShardWorker`.

    Args:
        job: the result of `Job.to_dict`.
        key: key of the job.
        out: folder or URL of the output.
        folder: working directory of the user.
        threads: threads of each worker.
    """

    job: Mapping[str, Any]
    key: str
    out: str
    folder: str
    threads: int

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a worker."""
        paths = os.pathsep.join(dict.fromkeys(os.path.abspath(each) for each in sys.path))
        return {**dict.fromkeys(THREADS, str(self.threads)), "PYTHONPATH": paths}


class Actor:
    """A worker in its process."""

    def start(self, task: Task) -> tuple[Kind, Any]:
        """Return the kind and the value of the event."""
        from sensorium.jobs.entry_points import message
        from sensorium.jobs.shard import ShardWorker

        try:
            self._worker = ShardWorker(task.job, task.key, task.out, task.folder)
        except Exception as error:
            return "failed", message(error)
        return "ready", self._worker.about()

    def run(self, shard: int) -> tuple[Kind, Any]:
        """Return the kind and the value of the event."""
        return "done", self._worker.run(shard)


class InProcess:
    """One worker in the driver's own process, for outputs in memory.

    Args:
        task: arguments of the worker.
    """

    size = 1

    def __init__(self, task: Task) -> None:
        self._task, self._events = task, list[Event]()
        self._actor = Actor()

    def start(self, worker: int) -> None:
        """Build the worker."""
        self._events.append(Event(worker, *self._actor.start(self._task)))

    def submit(self, worker: int, shard: int) -> None:
        """Generate a shard."""
        self._events.append(Event(worker, *self._actor.run(shard)))

    def wait(self, seconds: float) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def stop(self) -> None:
        """End the worker."""
        self._actor = Actor()


@dataclass(slots=True)
class _Process:
    process: subprocess.Popen[bytes]
    text: bytes = b""


@dataclass
class LocalWorkers:
    """Workers as processes of this machine, which speak JSON lines: task and shards in, events out.

    Args:
        task: arguments of the workers.
        size: number of workers.
    """

    task: Task
    size: int
    _running: dict[int, _Process] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def start(self, worker: int) -> None:
        """Start a process, which Ctrl-C in the terminal does not reach."""
        process = subprocess.Popen(
            [sys.executable, "-m", "sensorium.jobs.local_worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **self.task.environment}, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._running[worker] = _Process(process)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        self._send(worker, astuple(self.task))

    def submit(self, worker: int, shard: int) -> None:
        """Give a shard to a worker."""
        self._send(worker, shard)

    def _send(self, worker: int, value: Any) -> None:
        if worker in self._running and (pipe := self._running[worker].process.stdin) is not None:
            with suppress(BrokenPipeError):  # it is gone, as `wait` reports
                pipe.write(json.dumps(value).encode() + b"\n")
                pipe.flush()

    def wait(self, seconds: float) -> list[Event]:
        """Return events; wait for the first one, at most this long."""
        events = []
        for key, _ in self._selector.select(seconds):
            worker, running = key.data, self._running[key.data]
            data = os.read(key.fd, 2**16)
            *lines, running.text = (running.text + data).split(b"\n")
            events += [Event(worker, *json.loads(line)) for line in lines]
            if not data:
                events.append(Event(worker, "lost", self._reap(worker)))
        return events

    def _reap(self, worker: int) -> str:
        """Remove a process that has ended, and return why."""
        process = self._running.pop(worker).process
        assert process.stdin is not None and process.stdout is not None
        self._selector.unregister(process.stdout)
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        """Kill all processes: receipts are written last, so nothing incomplete counts as done."""
        for running in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)  # and the processes that it started
        for worker in list(self._running):
            self._reap(worker)
        self._selector.close()
