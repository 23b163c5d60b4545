"""What an output holds, and whether its files are intact and can be generated again."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sensorium.errors import ArgumentError, listed
from sensorium.jobs.entry_points import reason
from sensorium.jobs.job import Job
from sensorium.jobs.rows import Checksum
from sensorium.jobs.shard import run_shard
from sensorium.jobs.shard_files import file_rows
from sensorium.jobs.store import JOB, Store, changes

Progress = Callable[[int, int], None]
"""Called with the number of steps that are done, and of all."""


@dataclass
class Status:
    """What an output holds.

    Attributes:
        job: the job.
        shards: number of its shards.
        done: number of shards that are done.
        missing: numbers of the others, such as ``"0-3, 7"``.
        rows: sensor, or log such as ``"log/control"`` -> number of rows.
        bytes: the same -> size of its files.
        episodes: number of episodes that were written.
        dropped: number of episodes that `Job.keep` dropped.
        simulated_s: simulated time over all environments, s.
        wall_s: time that workers took for the shards, s.
    """

    job: Job
    shards: int
    done: int = 0
    missing: str = ""
    rows: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
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
    for index, receipt in store.receipts():
        done.add(index)
        for file, about in receipt["files"].items():
            name = about.get("sensor") or file.rpartition(".")[0]
            found.rows[name] += about["rows"]
            found.bytes[name] += about["bytes"]
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
    store = Store(out)
    job, receipts = store.job(), dict[int, Mapping[str, Any]]()
    for index, receipt in store.receipts():
        receipts[index] = receipt["files"]
    chosen = np.random.default_rng().permutation(sorted(receipts))[:rerun].tolist()
    if chosen and (different := changes(store.read_json(store.path(JOB)), job.origin)):
        raise ArgumentError(
            f"rerun: {store.url!r} was generated with other values of {listed(different)}. Use the same files and "
            "versions, or rerun=0."
        )
    total, done, found = sum(map(len, receipts.values())) + len(chosen), 0, list[str]()
    for index, files in receipts.items():
        for name, about in files.items():
            where, done = f"shard {index}: {name}", done + 1
            try:
                rows, checksum = _checksum(store, store.shard_path(index, name))
            except Exception as error:  # readers raise many kinds for damaged bytes
                found.append(f"{where} cannot be read: {reason(error)}")
            else:
                if (rows, checksum) != (about["rows"], about["checksum"]):
                    found.append(f"{where} has {rows} rows of other values than its receipt, which has {about['rows']}")
            if progress is not None:
                progress(done, total)
    for index in chosen:
        done += 1
        with tempfile.TemporaryDirectory() as folder:
            again = run_shard(job, index, folder)["files"]
        for name, about in receipts[index].items():
            same = again.get(name, {})
            if any(about[key] != same.get(key) for key in ("rows", "checksum")):
                found.append(f"shard {index}: {name} differs from the same shard generated again")
        if progress is not None:
            progress(done, total)
    return found


def _checksum(store: Store, path: str) -> tuple[int, str]:
    """Return the number of rows in a file, and their checksum."""
    with file_rows(store, path) as file:
        checksum = Checksum(file.fields)
        for block in file.blocks:
            checksum.add(block.columns)
    return checksum.rows, checksum.hexdigest()
