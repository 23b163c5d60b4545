"""Files of ROS 2 bags: connections and encoded messages of MCAP files, SQLite files, and folders of them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Set
from contextlib import ExitStack, closing
from heapq import merge
from operator import itemgetter
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import zstandard
from mcap.records import Schema
from ruamel.yaml import YAML

from sensorium.errors import ModelError, file_kind
from sensorium.record.archive import check_regular
from sensorium.record.mcap_file import McapFile


class Connection(NamedTuple):
    """Publishers of one type of messages on a topic."""

    topic: str
    type: str
    encoding: str
    """Encoding of the messages: ``"cdr"`` of ROS 2."""
    language: str
    """Language of the definition of the type; empty without one."""
    definition: str


Raw = tuple[Connection, int, Any]
"""Connection, time of arrival (ns) and bytes of a message."""


class McapBag:
    """Open MCAP file.

    Args:
        path: the file.
        stack: closes the file.

    Attributes:
        connections: number -> connection.
        counts: number of a connection -> number of its messages.
        span: times of the first and of the last message, ns.

    Raises:
        ModelError: the file is missing, damaged or not completed.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file = file = stack.enter_context(McapFile(path))
        if not file.is_complete:
            raise file.damaged("it was not completed")
        none = Schema(0, data=b"", encoding="", name="no schema")
        self.connections: dict[int, Connection] = {}
        for number, each in file.channels.items():
            schema = file.schemas.get(each.schema_id, none)
            about = schema.encoding, schema.data.decode(errors="replace")
            self.connections[number] = Connection(each.topic, schema.name, each.message_encoding, *about)
        self.counts, self.span = file.counts, file.span

    def messages(self, numbers: Set[int], first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        """Yield number of the connection, time and bytes of messages, in order of time.

        Args:
            numbers: numbers of connections.
            first: first time, ns.
            last: last time, ns.
        """

        def of_block(number: int) -> Iterator[tuple[int, int, Any]]:
            block = self._file.blocks[number]
            yield block.start, 0, None  # so that chunks are not read before their time
            messages = self._file.messages(block)
            times, channels = messages.heads["log_time"], messages.heads["channel"]
            own = np.flatnonzero(np.isin(channels, [*numbers]) & (times >= first) & (times <= last))
            for each in own[np.argsort(times[own], kind="stable")].tolist():
                yield int(times[each]), int(channels[each]), messages.data(each)

        blocks = map(of_block, self._file.blocks_of(numbers, first, last))
        for time, channel, data in merge(*blocks, key=itemgetter(0)):
            if data is not None:
                yield channel, time, data


class SqliteBag:
    """Open SQLite file; see `McapBag`."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        check_regular(path)
        kind = file_kind(path)
        if "SQLite" not in kind:
            raise ModelError(f"{str(path)!r} is {kind or 'not a SQLite file, as its name says'}")
        # a writer that was killed leaves its last messages in a second file, which SQLite creates unless told not to
        mode = "ro" if path.with_name(f"{path.name}-wal").exists() else "ro&immutable=1"
        uri = f"{path.resolve().as_uri()}?mode={mode}"
        self._file = stack.enter_context(closing(sqlite3.connect(uri, uri=True, check_same_thread=False)))
        select, known = self._file.execute, {}
        if select("SELECT 1 FROM sqlite_master WHERE name = 'message_definitions'").fetchone():  # since ROS 2 Iron
            found = select("SELECT topic_type, encoding, encoded_message_definition FROM message_definitions")
            known = {kind: about for kind, *about in found}
        self.connections = {
            number: Connection(topic, kind, encoding, *known.get(kind, ("", "")))
            for number, topic, kind, encoding in select("SELECT id, name, type, serialization_format FROM topics")
        }
        self.counts = dict(select("SELECT topic_id, COUNT(*) FROM messages GROUP BY topic_id"))
        self.span: tuple[int, int] = select("SELECT MIN(timestamp), MAX(timestamp) FROM messages").fetchone()

    def messages(self, numbers: Set[int], first: int, last: int) -> Iterator[tuple[int, int, Any]]:
        """Yield number of the connection, time and bytes of messages, in order of time; see `McapBag.messages`."""
        found: Iterator[tuple[int, int, Any]] = self._file.execute(
            f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({','.join('?' * len(numbers))}) "
            "AND timestamp BETWEEN ? AND ? ORDER BY timestamp, id",
            (*numbers, first, last),
        )
        return found


class Bag:
    """Open bag.

    Args:
        path: a file, or a folder with `metadata.yaml`.
        stack: closes the files.

    Attributes:
        counts: connection -> number of its messages.
        start: time of the first message, ns; 0 without messages.
        end: time of the last message, ns; 0 without messages.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        files, mode = [path], ""
        if path.is_dir():
            try:
                about = YAML(typ="safe").load(path / "metadata.yaml")["rosbag2_bagfile_information"]
                files = [path / PurePath(each).name for each in about["relative_file_paths"]]
            except (KeyError, TypeError):
                raise ValueError("its metadata.yaml has no list of files") from None
            mode, packing = ((about.get(f"compression_{each}") or "").lower() for each in ("mode", "format"))
            if mode not in ("", "none") and packing != "zstd":
                raise ValueError(f"its compression is {packing!r}, expected 'zstd'")
        decompressor = zstandard.ZstdDecompressor()
        self._unpack = decompressor.decompress if mode == "message" else bytes
        if mode == "file":
            folder = Path(stack.enter_context(TemporaryDirectory()))
            for packed in files:
                check_regular(packed)
                with packed.open("rb") as source, (folder / packed.stem).open("wb") as target:
                    decompressor.copy_stream(source, target)
            files = [folder / each.stem for each in files]
        self._files = [(SqliteBag if each.suffix.lower() == ".db3" else McapBag)(each, stack) for each in files]
        used = [each for each in self._files if each.counts]
        self._files.sort(key=lambda each: each.span[0] if each in used else 0)
        self.start = min((each.span[0] for each in used), default=0)
        self.end = max((each.span[1] for each in used), default=0)
        self.counts: Counter[Connection] = Counter()
        for file in self._files:
            for number, connection in file.connections.items():
                self.counts[connection] += file.counts.get(number, 0)

    def messages(self, wanted: Collection[Connection], first: int, last: int) -> Iterator[Raw]:
        """Yield the messages of some connections, in order of time within each file.

        Args:
            wanted: the connections.
            first: first time, ns.
            last: last time, ns.
        """
        for file in self._files:
            numbers = {number for number, each in file.connections.items() if each in wanted}
            for number, time, data in file.messages(numbers, first, last):
                yield file.connections[number], time, self._unpack(data)
