"""Process of a local worker; see `LocalWorkers`, which starts it."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any


def main() -> None:
    """Read a task and then numbers of shards from stdin, until it ends; write events to stdout."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what user code prints

    from sensorium.jobs.workers import Actor, Task

    tasks, worker = iter(sys.stdin), Actor()
    kind, value = worker.start(Task(*json.loads(next(tasks))))
    _send(out, kind, value)
    for line in tasks if kind == "ready" else ():
        _send(out, *worker.run(json.loads(line)))


def _send(out: IO[str], kind: str, value: Any) -> None:
    try:
        print(json.dumps([kind, value]), file=out, flush=True)
    except BrokenPipeError:  # the driver is gone
        os._exit(1)


if __name__ == "__main__":
    main()
