"""What an output holds, and whether its files are intact and can be generated again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sensorium.errors import ArgumentError, ModelError, listed
from sensorium.jobs.job import Job
from sensorium.jobs.manifest import receipts_of
from sensorium.jobs.rows import Checksum
from sensorium.jobs.shard import run_shard
from sensorium.jobs.shard_files import file_rows
from sensorium.jobs.store import Store

Progress = Callable[[int, int], None]
"""Called with the number of steps that are done, and of all."""


@dataclass
class Status:
    """What an output holds.

    Attributes:
        job: the job.
        total: number of its shards.
        done: number of shards that are done.
        missing: numbers of the others, such as ``"0-3, 7"``.
        sensors: sensor, or ``"log/control"`` for the controls -> number of rows, and size of the files in bytes.
        episodes: number of episodes that were written.
        dropped: number of episodes that `Job.keep` dropped.
        simulated_s: simulated time over all environments, s.
        wall_s: time that workers took for the shards, s.
    """

    job: Job
    total: int
    done: int = 0
    missing: str = ""
    sensors: dict[str, tuple[int, int]] = field(default_factory=dict)
    episodes: int = 0
    dropped: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0


def status(out: Any) -> Status:
    """Return what an output holds.

    Args:
        out: folder or URL of the output.

    Raises:
        ArgumentError: it holds no data of a job.
    """
    store = Store(out)
    job = store.job()
    found, done = Status(job, job.num_shards), set[int]()
    for index, receipt in receipts_of(store, store.key(), range(job.num_shards)):
        done.add(index)
        for name, about in receipt["files"].items():
            name = about.get("sensor", os.path.splitext(name)[0])
            rows, size = found.sensors.get(name, (0, 0))
            found.sensors[name] = rows + about["rows"], size + about["bytes"]
        found.episodes += receipt["episodes"]
        found.dropped += receipt["dropped"]
        found.simulated_s += receipt["simulated_s"]
        found.wall_s += receipt["wall_s"]
    found.done = len(done)
    found.missing = ranges(index for index in range(job.num_shards) if index not in done)
    return found


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as text, such as ``"0-3, 7"``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def verify(out: Any, rerun: int = 0, progress: Progress | None = None) -> list[str]:
    """Compare the rows of all shards that are done with the checksums in their receipts.

    Args:
        out: folder or URL of the output.
        rerun: number of random shards that are also generated again, in a temporary folder, and compared.
        progress: called after each file and each repeated shard.

    Returns:
        A message for everything that differs.

    Raises:
        ArgumentError: the output holds no data of a job; or shards cannot be repeated, since files, sources or versions
            have changed.
    """
    store, progress = Store(out), progress or (lambda done, total: None)
    job, receipts = store.job(), dict[int, Mapping[str, Any]]()
    for index, receipt in receipts_of(store, store.key(), range(job.num_shards)):
        receipts[index] = receipt["files"]
    chosen = np.random.default_rng().permutation(sorted(receipts))[:rerun].tolist()
    if chosen and (different := store.changes(job)):
        raise ArgumentError(
            f"rerun: {store.url!r} was generated with other values of {listed(different)}. Use the same files and "
            "versions, or rerun=0."
        )
    total, done, found = sum(map(len, receipts.values())) + len(chosen), 0, list[str]()
    for index, files in receipts.items():
        for name, about in files.items():
            done += 1
            try:
                with file_rows(store, index, name) as file:
                    checksum = Checksum(file.about.fields)
                    for block in file.blocks:
                        checksum.add(block.columns)
                if (checksum.rows, checksum.hexdigest()) != (about["rows"], about["checksum"]):
                    found.append(f"shard {index}: {name} has other rows than its receipt")
            except ModelError as error:
                found.append(str(error))
            progress(done, total)
    for index in chosen:
        done += 1
        with tempfile.TemporaryDirectory() as folder:
            again = run_shard(job, index, folder)["files"]
        for name, about in receipts[index].items():
            same = again.get(name, {})
            if any(about[key] != same.get(key) for key in ("rows", "checksum")):
                found.append(f"shard {index}: {name} differs from the same shard generated again")
        progress(done, total)
    return found
