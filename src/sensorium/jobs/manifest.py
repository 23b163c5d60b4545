"""Manifest of a data set: a Parquet file with a row per file of each shard."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from sensorium.errors import ArgumentError
from sensorium.jobs.job import Job, shard_key
from sensorium.jobs.parquet import arrow
from sensorium.jobs.store import MANIFEST, Store

COLUMNS = ("shard", "first_env", "num_envs", "episodes", "dropped", "simulated_s", "wall_s", "started", "host", "key")
"""Values of a receipt in each row."""


def receipts_of(store: Store, key: str, indices: Iterable[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the receipt of the shards that are done.

    Args:
        store: the output.
        key: key of its job.
        indices: numbers of shards.

    Raises:
        ArgumentError: a shard belongs to another job.
    """
    for index, receipt in store.receipts(indices):
        if receipt.get("key") != shard_key(key, index):
            raise ArgumentError(
                f"out: {store.url!r} holds shard {index} of another job. Give another folder, or remove that shard."
            )
        yield index, receipt


def write_manifest(job: Job, store: Store) -> None:
    """Write the manifest if all shards are done.

    A row has the values of a receipt in `COLUMNS`, and of one file: ``sensor`` (None for the controls), ``file``,
    ``rows``, ``bytes``, and ``checksum``. The metadata ``"job"`` has the job as JSON.
    """
    pa, columns = arrow(), (*COLUMNS, "sensor", "file", "rows", "bytes", "checksum")
    if len(store.names()[0]) < job.num_shards:
        return
    count, rows = 0, list[dict[str, Any]]()
    for index, receipt in receipts_of(store, store.key(), range(job.num_shards)):
        count += 1
        for file, about in receipt["files"].items():
            row = {**receipt, **about, "file": f"shard-{index:06d}/{file}"}
            rows.append({name: row.get(name) for name in columns})
    if count == job.num_shards:
        table = pa.Table.from_pylist(rows).replace_schema_metadata({"job": json.dumps(job.to_dict())})
        with store.create(store.path(MANIFEST)) as opened:
            pa.parquet.write_table(table, opened, compression="zstd")
