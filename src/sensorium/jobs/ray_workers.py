"""Workers on a Ray cluster: each is an actor, which returns receipts. Readings go from the actors to the output."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from typing import Any

from sensorium.errors import ArgumentError, MissingDependencyError, listed
from sensorium.jobs.workers import THREADS, Actor, Event, Task


class RayWorkers:
    """Workers as actors of a Ray cluster. A connection that the program has opened before stays open.

    Ray gives an actor the working directory of the program and the folder of its script in `sys.path`.

    Args:
        address: ``"host:port"`` of the cluster, or ``"auto"`` for the one that this machine belongs to.
        task: arguments of the workers.
        size: number of workers; None for as many as the CPUs and GPUs of the cluster have room for.
        gpus: share of a GPU that each worker reserves.

    Raises:
        ArgumentError: the cluster cannot be used, or no machine of it has enough CPUs or GPUs for a worker.
        MissingDependencyError: Ray is not installed.
    """

    def __init__(self, address: str, task: Task, *, size: int | None = None, gpus: float = 0.0) -> None:
        self._ray, self._is_ours = _connected(address)
        try:
            room = self._room(task.threads, gpus)
        except ArgumentError:
            self._disconnect()
            raise
        self.size = size or room
        environment = dict.fromkeys(THREADS, str(task.threads))
        if paths := os.environ.get("PYTHONPATH"):
            environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in paths.split(os.pathsep))
        self._actor_class = self._ray.remote(Actor).options(
            num_cpus=task.threads, num_gpus=gpus, max_restarts=0, runtime_env={"env_vars": environment}
        )
        self._task = self._ray.put(task)
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, int] = {}

    def _room(self, threads: int, gpus: float) -> int:
        """Return the number of workers that the machines of the cluster have room for."""
        resources = [each["Resources"] for each in self._ray.nodes() if each["Alive"]]
        machines = [(each.get("CPU", 0.0), each.get("GPU", 0.0)) for each in resources]
        room = sum(int(min(cpu // threads, gpu / gpus + 1e-9 if gpus else cpu)) for cpu, gpu in machines)
        if not room:
            found = listed(f"{cpu:g} and {gpu:g}" for cpu, gpu in sorted(set(machines)))
            raise ArgumentError(
                f"threads, gpus: got {threads} and {gpus:g}, expected at most the CPUs and GPUs of a machine of the "
                f"cluster: {found}. Give the job fewer threads, or the workers a smaller share of a GPU."
            )
        return room

    def start(self, worker: int) -> None:
        """Start an actor. It waits until a machine has room for it."""
        self._actors[worker] = actor = self._actor_class.remote()
        self._calls[actor.start.remote(self._task)] = worker

    def submit(self, worker: int, shard: int) -> None:
        """Give a shard to an actor."""
        self._calls[self._actors[worker].run.remote(shard)] = worker

    def wait(self, seconds: float) -> list[Event]:
        """Return events; wait for the first one, at most this long."""
        done, _ = self._ray.wait(list(self._calls), timeout=seconds) if self._calls else ([], [])
        return [self._event(call) for call in done]

    def _event(self, call: Any) -> Event:
        worker = self._calls.pop(call)
        try:
            return Event(worker, *self._ray.get(call))
        except self._ray.exceptions.RayError as error:
            self._ray.kill(self._actors.pop(worker))  # it may only be unreachable
            cause = (str(error).strip() or type(error).__name__).splitlines()[-1].strip()[:300]
            if isinstance(error, self._ray.exceptions.RayTaskError) or getattr(error, "actor_init_failed", False):
                where = re.search(r"ip=([^,)]+)", str(error))
                machine = where[1] if where else "a machine of the cluster"
                return Event(worker, "failed", f"{machine}: {cause}. Install the same packages on all machines.")
            return Event(worker, "lost", cause)

    def stop(self) -> None:
        """Kill all actors: receipts are written last, so nothing incomplete counts as done."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._disconnect()

    def _disconnect(self) -> None:
        if self._is_ours:
            self._ray.shutdown()


def _connected(address: str) -> tuple[Any, bool]:
    """Return the package Ray, connected to a cluster, and whether this call has connected it."""
    try:
        import ray
    except ModuleNotFoundError as error:
        text = "workers on a Ray cluster need the package ray: pip install 'sensorium[ray]'"
        raise MissingDependencyError(text) from error
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in ("auto", connected):
            raise ArgumentError(f"ray: got {address!r}, expected 'auto' or {connected!r}, to which Ray is connected.")
        return ray, False
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _probe(address)
        ray.init(address, namespace="sensorium", log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise ArgumentError(
            f"ray: got {address!r}, expected the address of a running Ray cluster: {' '.join(str(error).split())}. "
            "Check the address, and the token in RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN if the cluster has one."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray replaces it
    return ray, True


def _probe(address: str) -> None:
    """Raise OSError at once if there is no server, for which Ray waits for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), 10.0).close()
