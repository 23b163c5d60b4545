"""Files of ROS 2 bags: connections and encoded messages of MCAP files, SQLite files, and folders of them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from heapq import merge
from operator import itemgetter
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import zstandard
from ruamel.yaml import YAML

from sensorium.record.archive import check_regular
from sensorium.record.mcap_file import McapFile, Message


class Connection(NamedTuple):
    """Publishers of one type of messages on a topic."""

    topic: str
    type: str
    encoding: str
    """Encoding of the messages: ``"cdr"`` of ROS 2."""
    language: str = ""
    """Language of the definition of the type; empty without one."""
    definition: str = ""


Raw = tuple[Connection, int, Any]
"""Connection, time of arrival (ns) and bytes of a message."""


class McapBag:
    """Open MCAP file.

    Args:
        path: the file.
        stack: closes the file.

    Attributes:
        counts: connection -> number of its messages.
        start: time of the first message, ns.
        end: time of the last message, ns.

    Raises:
        ModelError: the file is missing, damaged or not completed.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file = file = stack.enter_context(McapFile(path))
        if not file.is_complete:
            raise file.damaged("it was not completed")
        self._connections: dict[int, Connection] = {}
        self.counts: Counter[Connection] = Counter()
        for number, each in file.channels.items():
            schema = file.schemas.get(each.schema_id)
            connection = Connection(each.topic, "no schema", each.message_encoding)
            if schema is not None:
                text = schema.data.decode(errors="replace")
                connection = Connection(each.topic, schema.name, each.message_encoding, schema.encoding, text)
            self._connections[number] = connection
            self.counts[connection] += file.counts.get(number, 0)
        self.start, self.end = file.span

    def messages(self, wanted: Collection[Connection], first: int, last: int) -> Iterator[Raw]:
        """Yield the messages of some connections, in order of time.

        Args:
            wanted: the connections.
            first: first time, ns.
            last: last time, ns.
        """
        numbers = {number for number, each in self._connections.items() if each in wanted}

        def of_block(number: int) -> Iterator[tuple[int, Message | None]]:
            block = self._file.blocks[number]
            yield block.start, None  # so that chunks are not read before their time
            found = ((each.log_time, each) for each in self._file.messages(block) if each.channel in numbers)
            yield from sorted(found, key=itemgetter(0))

        blocks = map(of_block, self._file.blocks_of(numbers, first, last))
        for time, each in merge(*blocks, key=itemgetter(0)):
            if each is not None and first <= time <= last:
                yield self._connections[each.channel], time, each.data


class SqliteBag:
    """Open SQLite file; see `McapBag`."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        check_regular(path)
        # a writer that was killed leaves its last messages in a second file, which SQLite creates unless told not to
        mode = "ro" if path.with_name(f"{path.name}-wal").exists() else "ro&immutable=1"
        uri = f"{path.resolve().as_uri()}?mode={mode}"
        self._file = stack.enter_context(closing(sqlite3.connect(uri, uri=True, check_same_thread=False)))
        select = self._file.execute
        definitions: dict[str, list[str]] = {}
        if select("SELECT 1 FROM sqlite_master WHERE name = 'message_definitions'").fetchone():  # since ROS 2 Iron
            found = select("SELECT topic_type, encoding, encoded_message_definition FROM message_definitions")
            definitions = {name: about for name, *about in found}
        self._connections = {
            number: Connection(name, kind, encoding, *definitions.get(kind, ()))
            for number, name, kind, encoding in select("SELECT id, name, type, serialization_format FROM topics")
        }
        self.counts: Counter[Connection] = Counter({each: 0 for each in self._connections.values()})
        for number, count in select("SELECT topic_id, COUNT(*) FROM messages GROUP BY topic_id"):
            self.counts[self._connections[number]] += count
        self.start, self.end = select(
            "SELECT IFNULL(MIN(timestamp), 0), IFNULL(MAX(timestamp), 0) FROM messages"
        ).fetchone()

    def messages(self, wanted: Collection[Connection], first: int, last: int) -> Iterator[Raw]:
        """Yield the messages of some connections, in order of time; see `McapBag.messages`."""
        numbers = [number for number, each in self._connections.items() if each in wanted]
        found = self._file.execute(
            f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({','.join('?' * len(numbers))}) "
            "AND timestamp BETWEEN ? AND ? ORDER BY timestamp, id",
            (*numbers, first, last),
        )
        return ((self._connections[number], int(time), data) for number, time, data in found)


class Bag:
    """Open bag; see `McapBag`.

    Args:
        path: a file, or a folder with `metadata.yaml`.
        stack: closes the files.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        files, mode = [path], ""
        if path.is_dir():
            about = YAML(typ="safe").load(path / "metadata.yaml")["rosbag2_bagfile_information"]
            files = [path / PurePath(each).name for each in about["relative_file_paths"]]
            mode, packing = ((about.get(f"compression_{each}") or "").lower() for each in ("mode", "format"))
            if mode not in ("", "none") and packing != "zstd":
                raise ValueError(f"its compression is {packing!r}, expected 'zstd'")
        if mode == "file":
            folder = Path(stack.enter_context(TemporaryDirectory()))
            files = [_unpacked(each, folder / each.stem) for each in files]
        self._unpack = zstandard.ZstdDecompressor().decompress if mode == "message" else bytes
        opened = [(SqliteBag if each.suffix.lower() == ".db3" else McapBag)(each, stack) for each in files]
        self._files = sorted(opened, key=lambda each: each.start)
        self.counts: Counter[Connection] = Counter()
        for each in opened:
            self.counts.update(each.counts)
        used = [each for each in opened if each.counts.total()]
        self.start = min((each.start for each in used), default=0)
        self.end = max((each.end for each in used), default=0)

    def messages(self, wanted: Collection[Connection], first: int, last: int) -> Iterator[Raw]:
        """Yield the messages of some connections, in order of time; see `McapBag.messages`."""
        for file in self._files:
            for connection, time, data in file.messages(wanted, first, last):
                yield connection, time, self._unpack(data)


def _unpacked(packed: Path, path: Path) -> Path:
    """Decompress a file, and return its new path."""
    check_regular(packed)
    with packed.open("rb") as source, path.open("wb") as target:
        zstandard.ZstdDecompressor().copy_stream(source, target)
    return path
