"""Files of shards, of either format, read back as rows."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import NamedTuple

from sensorium.errors import ModelError
from sensorium.jobs.mcap import rows_of
from sensorium.jobs.parquet import arrow, read_rows
from sensorium.jobs.rows import Block, SensorRows
from sensorium.jobs.store import Store
from sensorium.record.recorder import missing
from sensorium.record.replay import Replay


class FileRows(NamedTuple):
    """Contents of a file."""

    about: SensorRows
    """Fields of the rows."""
    blocks: Iterator[Block]
    """The rows, in order; available until the file is closed."""


def check_installed(file_format: str) -> None:
    """Raise an error if a package for files of a format is not installed.

    Raises:
        MissingDependencyError: a package is not installed.
    """
    arrow()  # also writes the manifest
    if file_format == "mcap":
        try:
            importlib.import_module("sensorium.record.mcap_writer")
        except ImportError as error:
            raise missing(error) from None


@contextmanager
def file_rows(store: Store, index: int, name: str) -> Iterator[FileRows]:
    """Open a file of a shard.

    Args:
        store: the output.
        index: number of the shard.
        name: name of the file in the folder of the shard.

    Raises:
        ModelError: the file is missing or damaged; also while rows are read.
    """
    path, where = store.shard_path(index, name), f"shard {index}: {name}"
    with ExitStack() as stack:
        with _readable(where):
            if name.endswith(".parquet"):
                rows, tables = read_rows(stack.enter_context(store.fs.open(path, "rb")))
                blocks: Iterator[Block] = (Block(columns, columns["env"].values) for columns in tables)
            else:
                rows, blocks = rows_of(stack.enter_context(_replay(store, path)))
        yield FileRows(rows, _guarded(blocks, where))


def _guarded(blocks: Iterator[Block], where: str) -> Iterator[Block]:
    while True:
        with _readable(where):
            block = next(blocks, None)
        if block is None:
            return
        yield block


@contextmanager
def _readable(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # readers raise many kinds for damaged bytes
        fix = "Remove the folder of the shard and generate it again."
        raise ModelError(f"{where} cannot be read ({type(error).__name__}: {error}). {fix}") from error


@contextmanager
def recording(store: Store, index: int, name: str) -> Iterator[Replay]:
    """Open an MCAP file of a shard. Raises as `file_rows` does."""
    with ExitStack() as stack:
        with _readable(f"shard {index}: {name}"):
            replay = stack.enter_context(_replay(store, store.shard_path(index, name)))
        yield replay


@contextmanager
def _replay(store: Store, path: str) -> Iterator[Replay]:
    """Open an MCAP file, or a local copy of it."""
    with TemporaryDirectory() as folder:
        local = path
        if not store.is_local:
            local = os.path.join(folder, "copy.mcap")
            store.fs.get_file(path, local)
        with Replay(local) as replay:
            yield replay
