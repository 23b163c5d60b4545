"""Files of shards, of either format, read back as rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

from sensorium.jobs.mcap import rows_of
from sensorium.jobs.parquet import read_rows
from sensorium.jobs.rows import Block
from sensorium.jobs.store import Store
from sensorium.record.export.table_files import TableField
from sensorium.record.replay import Replay


class FileRows(NamedTuple):
    """Contents of a file."""

    fields: Sequence[TableField]
    """Fields of the rows."""
    ragged: set[str]
    """Names of the fields with any number of items per row."""
    blocks: Iterator[Block]
    """The rows, in order."""


@contextmanager
def file_rows(store: Store, path: str) -> Iterator[FileRows]:
    """Open a file of a shard; its rows are available until it is closed.

    Args:
        store: the output.
        path: path of the file in the file system of the output.

    Raises:
        Exception: the file is missing or damaged; of many kinds, also while the rows are read.
    """
    if path.endswith(".parquet"):
        with store.fs.open(path, "rb") as file:
            fields, ragged, tables = read_rows(file)
            blocks = (Block(columns, columns["env"].values) for columns in tables)
            yield FileRows(fields, ragged, blocks)
    else:
        with recording(store, path) as replay:
            rows, blocks = rows_of(replay)
            yield FileRows(rows.fields, rows.ragged, blocks)


@contextmanager
def recording(store: Store, path: str) -> Iterator[Replay]:
    """Open an MCAP file of a shard, or a local copy of it."""
    with TemporaryDirectory() as folder:
        local = path
        if not store.is_local:
            local = os.path.join(folder, "copy.mcap")
            store.fs.get_file(path, local)
        with Replay(local) as replay:
            yield replay
