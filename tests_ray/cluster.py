"""A Ray cluster on loopback addresses of this machine: each address is a node with its own processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nursery import until

NODE = "SENSORIUM_TEST_NODE"
"""Environment variable of all processes of a node: its address."""
OUTSIDE = 3
"""`OMP_NUM_THREADS` where the nodes are started."""
STORE = 80_000_000
"""Size of the object store of a node, which the tests hardly use, bytes."""


class Cluster:
    """Nodes with token authentication. All files are in one temporary folder, which is their home folder too."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ray"))  # short, because Ray adds names of sockets to it
        self.home, self.token, self.temporary = (self.folder / name for name in ("home", "token", "t"))
        self.home.mkdir()
        (self.folder / "store").mkdir()
        self.token.write_text("0123456789abcdef" * 4)
        self.environment = {
            "HOME": str(self.home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip

    @property
    def address(self) -> str:
        return (self.temporary / "ray_current_cluster").read_text()

    def start(
        self, node: str, cpus: int, environment: Mapping[str, str] | None = None, *, gpus: int = 0, head: bool = False
    ) -> None:
        """Start a node and wait until it belongs to the cluster."""
        place = ["--head", "--port=0", "--include-dashboard=false"] if head else [f"--address={self.address}"]
        options = {
            "node-ip-address": node, "num-cpus": cpus, "num-gpus": gpus, "temp-dir": self.temporary,
            "object-store-memory": STORE, "plasma-directory": self.folder / "store",
            "min-worker-port": 0, "max-worker-port": 0,
            "include-log-monitor": "false",
        }  # fmt: skip
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *place]
        marks = {"OMP_NUM_THREADS": str(OUTSIDE), NODE: node}
        with (self.folder / f"{node}.log").open("w+") as log:
            done = subprocess.run(
                [*command, *(f"--{name}={value}" for name, value in options.items())],
                env={**os.environ, **self.environment, **marks, **(environment or {})},
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
            log.seek(0)
            assert done.returncode == 0, log.read()

    def processes(self, node: str = "") -> list[int]:
        """Return the processes of a node, or of all nodes."""
        marks = {f"RAY_AUTH_TOKEN_PATH={self.token}", *([f"{NODE}={node}"] if node else [])}
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if marks <= {os.fsdecode(each) for each in path.read_bytes().split(b"\0")}:
                    found.append(int(path.parent.name))
            except OSError:  # it has ended, or belongs to another user
                pass
        return found

    def kill(self, node: str = "") -> None:
        """Kill all processes of a node, or of all nodes, as a machine that loses its power."""
        while processes := self.processes(node):
            _signal(processes, signal.SIGKILL)

    def stop(self) -> None:
        """End the nodes, then what is left, and remove the folder."""
        _signal(self._raylets(), signal.SIGTERM)
        until(lambda: not self._raylets(), "the end of the nodes")
        self.kill()
        shutil.rmtree(self.folder)

    def _raylets(self) -> list[int]:
        return [each for each in self.processes() if Path(f"/proc/{each}/comm").read_text() == "raylet\n"]


def _signal(processes: list[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
