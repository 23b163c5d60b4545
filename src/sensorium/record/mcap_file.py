"""Reader of untrusted MCAP files: every length is checked before memory is allocated.

A file without a valid end, whose writer was killed, is read up to its last complete record.
"""

from __future__ import annotations

import io
import os
import struct
import weakref
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import lz4.frame
import numpy as np
import zstandard
from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode

from sensorium.errors import ModelError
from sensorium.memory import host_available, in_mb
from sensorium.readings import Array
from sensorium.record.archive import check_regular
from sensorium.record.crc import crc32
from sensorium.record.mcap_writer import MAGIC, RECORD

MAX_RECORD = 2**24
"""Maximum size of a record other than chunks, messages and attachments, bytes."""
MAX_RATIO = {"lz4": 256, "zstd": 2**15, "": 1}
"""Compression -> greatest ratio of decompressed to compressed bytes."""
LARGE = 2**28
"""Size of a decompressed chunk above which no ratio above that of LZ4 is accepted, bytes."""
RUN_BYTES = 4_000_000
"""Size of the runs into which messages outside chunks are grouped, bytes."""

PRIVATE = 0x80
"""First opcode of records that programs define for themselves."""
_IN_DATA = (Opcode.HEADER, Opcode.SCHEMA, Opcode.CHANNEL, Opcode.MESSAGE, Opcode.CHUNK)
"""Opcodes before the end of data besides those that are read specially."""
_MESSAGE = struct.Struct("<HIQQ")
_CHUNK = struct.Struct("<QQQII")
_FOOTER = struct.Struct("<BQQQI")
_END = _FOOTER.size + len(MAGIC)

T = TypeVar("T")


class Message(NamedTuple):
    """One message; `data` is a view of the memory of its chunk."""

    channel: int
    sequence: int
    log_time: int
    """Time, ns."""
    publish_time: int
    """Wall-clock time, ns since 1970."""
    data: memoryview


@dataclass(slots=True)
class Block:
    """A chunk, or a run of records outside chunks.

    Attributes:
        offset: its place in the file.
        length: its size in the file, bytes.
        is_chunk: whether it is a chunk.
        start: first log time, ns.
        end: last log time, ns.
        channels: channels of its messages; None if unknown.
    """

    offset: int
    length: int
    is_chunk: bool
    start: int = 0
    end: int = 2**63
    channels: frozenset[int] | None = None


class ChunkHead(NamedTuple):
    """Description of a chunk."""

    size: int
    """Size after decompression, bytes."""
    crc: int
    """Checksum of the decompressed bytes; 0 for none."""
    compression: str
    packed: int
    """Size in the file, bytes."""
    body: int
    """Start of the compressed bytes in the record."""


@dataclass(slots=True)
class _Places:
    """Places of records outside chunks: name -> (offset, length)."""

    attachments: dict[str, tuple[int, int]] = field(default_factory=dict)
    metadata: dict[str, tuple[int, int]] = field(default_factory=dict)


class McapFile:
    """Open MCAP file; close it, or use it as a context manager.

    Args:
        path: the file.
        uses_summary: whether to trust the summary at the end of a completed file. Otherwise everything is read.

    Attributes:
        profile: profile of the file.
        schemas: number -> schema.
        channels: number -> channel.
        blocks: where its messages are, in order of the file.
        is_complete: whether it has an end.
        counts: channel -> number of messages.
        size: size of the file up to the last complete record, bytes; `repair` continues from there.

    Raises:
        ModelError: the file is missing, is not an MCAP file, or is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, uses_summary: bool = True) -> None:
        self.path = os.fspath(path)
        try:
            check_regular(Path(self.path))
            self._file = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise ModelError(f"recording {self.path!r} cannot be read: {error.strerror or error}.") from None
        self._finalizer = weakref.finalize(self, os.close, self._file)
        try:
            self.size = os.fstat(self._file).st_size
            self.schemas: dict[int, records.Schema] = {}
            self.channels: dict[int, records.Channel] = {}
            self.blocks: list[Block] = []
            self.counts: dict[int, int] = {}
            self._places = _Places()
            if self.size < len(MAGIC) or self.read(0, len(MAGIC)) != MAGIC:
                raise self.error(
                    "it is not an MCAP file. Open an npz file with sensorium.record.load or sensorium.open"
                )
            first = next(self.scan(), None)
            if first is None or first[0] != Opcode.HEADER:
                raise self.error("it has no header")
            self.profile = self.record(records.Header, *first[1:]).profile
            self.is_complete = self.read(self.size - len(MAGIC), len(MAGIC)) == MAGIC
            if not (uses_summary and self._read_summary()):
                self._read_all()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> McapFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Closing twice has no effect."""
        self._finalizer()

    def error(self, reason: str) -> ModelError:
        """Return the error of this file."""
        return ModelError(f"{self.path!r} is not a readable recording: {reason}.")

    def damaged(self, reason: str) -> ModelError:
        """Return the error of a file that may be repaired."""
        return self.error(f"{reason}. Run: sensorium repair {self.path}")

    # Contents ---------------------------------------------------------------------------------------------------------

    def messages(self, block: Block) -> Iterator[Message]:
        """Yield the messages of a block, in order of the file.

        Raises:
            ModelError: the block is damaged.
        """
        memory = self._memory(block)
        for opcode, begin, end in self._records(memory, block):
            if opcode == Opcode.MESSAGE:
                yield Message(*self._head(memory, begin, end, block), memory[begin + _MESSAGE.size : end])

    @property
    def span(self) -> tuple[int, int]:
        """Times of the first and of the last message, ns; (0, 0) without messages."""
        used = [each for each in self.blocks if each.channels or each.end]
        return min((each.start for each in used), default=0), max((each.end for each in used), default=0)

    def blocks_of(self, channels: Set[int], first: float, last: float) -> list[int]:
        """Return the numbers of the blocks that may hold messages of some channels and times, ns."""
        return [
            number for number, each in enumerate(self.blocks) if each.start <= last and each.end >= first
            and not channels.isdisjoint(channels if each.channels is None else each.channels)
        ]  # fmt: skip

    def metadata(self, name: str) -> dict[str, str]:
        """Return a record of named texts; empty if there is none."""
        place = self._places.metadata.get(name)
        return {} if place is None else self.record(records.Metadata, *place).metadata

    def attachment(self, name: str) -> bytes | None:
        """Return the contents of an attached file; None if there is none."""
        place = self._places.attachments.get(name)
        if place is None:
            return None
        return self.record(records.Attachment, *place).data

    def scan(self) -> Iterator[tuple[int, int, int]]:
        """Yield opcode, place of the contents and their size of each complete record outside chunks."""
        at = len(MAGIC)
        while at + RECORD.size <= self.size:
            opcode, length = RECORD.unpack(self.read(at, RECORD.size))
            if opcode == 0 or length > self.size - at - RECORD.size:
                return
            yield opcode, at + RECORD.size, length
            at += RECORD.size + length

    # Index ------------------------------------------------------------------------------------------------------------

    def _read_summary(self) -> bool:
        """Read the summary at the end; return False if there is none, so that everything must be read.

        Raises:
            ModelError: the summary is damaged.
        """
        if self.size < _END:
            return False
        tail = self.read(self.size - _END, _END)
        opcode, length, start, offsets, crc = _FOOTER.unpack_from(tail)
        if not tail.endswith(MAGIC) or (opcode, length) != (Opcode.FOOTER, 20) or not start:
            return False
        if not len(MAGIC) < start <= self.size - _END or not (offsets == 0 or start <= offsets <= self.size - _END):
            raise self.damaged("its summary is outside the file")
        if crc:
            self._check_memory(self.size - start)
            found = crc32(self.read(start, self.size - len(MAGIC) - 4 - start))
            if found != crc:
                raise self.damaged("the checksum of its summary differs")
        at, total = start, -1
        while at < self.size - _END:
            opcode, length = RECORD.unpack(self.read(at, RECORD.size))
            place = at + RECORD.size
            if length > self.size - _END - place:
                raise self.damaged("its summary is damaged")
            if opcode == Opcode.SCHEMA:
                self._note_schema(self.record(records.Schema, place, length))
            elif opcode == Opcode.CHANNEL:
                self._note_channel(self.record(records.Channel, place, length))
            elif opcode == Opcode.STATISTICS:
                counts = self.record(records.Statistics, place, length)
                self.counts, total = dict(counts.channel_message_counts), counts.message_count
            elif opcode == Opcode.CHUNK_INDEX:
                each = self.record(records.ChunkIndex, place, length)
                if not len(MAGIC) < each.chunk_start_offset <= each.chunk_start_offset + each.chunk_length <= start:
                    raise self.damaged("its summary names a chunk outside the file")
                known = frozenset(each.message_index_offsets) or None
                times = each.message_start_time, each.message_end_time
                self.blocks.append(Block(each.chunk_start_offset, each.chunk_length, True, *times, known))
            elif opcode in (Opcode.ATTACHMENT_INDEX, Opcode.METADATA_INDEX):
                kind = records.AttachmentIndex if opcode == Opcode.ATTACHMENT_INDEX else records.MetadataIndex
                index: Any = self.record(kind, place, length)
                if not len(MAGIC) < index.offset <= index.offset + index.length <= start or index.length < RECORD.size:
                    raise self.damaged("its summary names a record outside the file")
                named = self._places.attachments if opcode == Opcode.ATTACHMENT_INDEX else self._places.metadata
                named[index.name] = index.offset + RECORD.size, index.length - RECORD.size
            at = place + length
        schemas = {each.schema_id for each in self.channels.values()} - {0}
        is_whole = self.counts.keys() <= self.channels.keys() and schemas <= self.schemas.keys()
        if not is_whole or sum(self.counts.values()) != total or (total and not self.blocks):  # parts are optional
            self.blocks.clear()
            return False
        self.blocks.sort(key=lambda block: block.offset)
        return True

    def _read_all(self) -> None:
        """Read the whole file block by block: its channels, and the times of its blocks."""
        end, run = len(MAGIC), None
        for opcode, place, length in self.scan():
            at = place - RECORD.size
            if opcode in (Opcode.DATA_END, Opcode.FOOTER):
                break
            if opcode == Opcode.METADATA:
                self._places.metadata[self.record(records.Metadata, place, length).name] = place, length
            elif opcode == Opcode.ATTACHMENT:
                self._places.attachments[self._attachment_name(place, length)] = place, length
            elif opcode == Opcode.MESSAGE_INDEX:
                if length < 6 or int.from_bytes(self.read(place + 2, 4), "little") != length - 6:
                    raise self.error(f"the index of messages at byte {at} is damaged")
            elif opcode not in _IN_DATA and opcode < PRIVATE:
                raise self.error(f"there is no valid record at byte {at}")
            if opcode == Opcode.CHUNK:
                self.blocks.append(Block(at, RECORD.size + length, True))
            elif opcode in (Opcode.MESSAGE, Opcode.SCHEMA, Opcode.CHANNEL):
                if run is None or run.offset + run.length != at or run.length > RUN_BYTES:
                    run = Block(at, 0, False)
                    self.blocks.append(run)
                run.length += RECORD.size + length
            end = place + length
        self.size = end
        self.counts = {}
        for number, block in enumerate(self.blocks):
            try:
                self._read_block(block)
            except ModelError:
                if self.is_complete or number + 1 < len(self.blocks):
                    raise
                self.blocks.pop()  # the last bytes that the writer wrote
                self.size = block.offset

    def _read_block(self, block: Block) -> None:
        """Note the channels and times of a block."""
        memory = self._memory(block)
        counts: dict[int, int] = {}
        times = []
        for opcode, begin, end in self._records(memory, block):
            if opcode == Opcode.SCHEMA:
                self._note_schema(self._parsed(records.Schema, memory[begin:end]))
            elif opcode == Opcode.CHANNEL:
                self._note_channel(self._parsed(records.Channel, memory[begin:end]))
            elif opcode == Opcode.MESSAGE:
                channel, _, log_time, _ = self._head(memory, begin, end, block)
                counts[channel] = counts.get(channel, 0) + 1
                times.append(log_time)
        block.start, block.end, block.channels = min(times, default=0), max(times, default=0), frozenset(counts)
        for channel, count in counts.items():
            self.counts[channel] = self.counts.get(channel, 0) + count

    def _note_schema(self, schema: records.Schema) -> None:
        if self.schemas.setdefault(schema.id, schema) != schema:
            raise self.error(f"schema {schema.id} is defined twice")

    def _note_channel(self, channel: records.Channel) -> None:
        if self.channels.setdefault(channel.id, channel) != channel:
            raise self.error(f"channel {channel.id} is defined twice")

    def _attachment_name(self, place: int, length: int) -> str:
        """Return the name of an attachment without reading its contents."""
        head = self.read(place, min(length, 2**16))
        size = struct.unpack_from("<I", head, 16)[0] if len(head) >= 20 else 2**32
        if 20 + size > len(head):
            raise self.error(f"the attachment at byte {place} is damaged")
        return head[20 : 20 + size].decode("utf-8", "replace")

    # Bytes ------------------------------------------------------------------------------------------------------------

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the file, which must be within its size.

        Raises:
            ModelError: the file has become shorter, or was closed.
        """
        if not self._finalizer.alive:
            raise self.error("it was closed")
        parts = []
        while length:
            part = os.pread(self._file, length, offset)
            if not part:
                raise self.error("it became shorter while it was read")
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def record(self, kind: type[T], place: int, length: int) -> T:
        """Return a record outside chunks.

        Raises:
            ModelError: it is damaged, or too large.
        """
        if kind is records.Attachment:
            self._check_memory(2 * length)
        elif length > MAX_RECORD:
            raise self.error(f"a {kind.__name__} record has {in_mb(length)}, expected at most {in_mb(MAX_RECORD)}")
        return self._parsed(kind, memoryview(self.read(place, length)))

    def _parsed(self, kind: type[T], data: memoryview) -> T:
        if len(data) > MAX_RECORD and kind is not records.Attachment:
            raise self.error(f"a {kind.__name__} record has {in_mb(len(data))}, expected at most {in_mb(MAX_RECORD)}")
        reader: Callable[[ReadDataStream], T] = kind.read  # type: ignore[attr-defined]
        return self._guard(f"a {kind.__name__} record", lambda: reader(ReadDataStream(_Exact(data))))

    def _guard(self, what: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except ModelError:
            raise
        except Exception as error:  # struct, lz4, zstandard, mcap and codecs raise many kinds for damaged bytes
            raise self.error(f"{what} is damaged ({type(error).__name__}: {error})") from None

    def _check_memory(self, nbytes: int) -> None:
        available = host_available()
        if available is not None and nbytes > available:
            raise self.error(f"a part of it needs {in_mb(nbytes)} of memory, and {in_mb(available)} are available")

    def _memory(self, block: Block) -> memoryview:
        """Return the records of a block, decompressed."""
        self._check_memory(block.length)
        data = memoryview(self.read(block.offset, block.length))
        if not block.is_chunk:
            return data
        head = self.chunk_head(block)
        body = data[head.body :]
        ratio = MAX_RATIO["lz4" if head.size > LARGE and head.compression else head.compression]
        if head.packed != len(body) or head.size > ratio * (head.packed + 64):
            raise self.error(f"the chunk at byte {block.offset} has {head.packed} bytes that decompress to {head.size}")
        self._check_memory(head.size)
        plain = self._guard(
            f"the chunk at byte {block.offset}", lambda: _decompressed(head.compression, body, head.size)
        )
        if head.crc and crc32(plain) != head.crc:
            raise self.error(f"the checksum of the chunk at byte {block.offset} differs")
        return plain

    def chunk_head(self, block: Block) -> ChunkHead:
        """Return the description of a chunk, without its contents.

        Raises:
            ModelError: there is no chunk, or its compression is unknown.
        """
        data = self.read(block.offset, min(block.length, 128))
        head = RECORD.size + _CHUNK.size
        if len(data) < head or data[0] != Opcode.CHUNK:
            raise self.error(f"there is no chunk at byte {block.offset}")
        _, _, size, crc, named = _CHUNK.unpack_from(data, RECORD.size)
        name = data[head : head + min(named, 16)].decode("utf-8", "replace")
        if named > 16 or name not in MAX_RATIO or len(data) < head + named + 8:
            raise self.error(f"the chunk at byte {block.offset} has the unknown compression {name!r}")
        (packed,) = struct.unpack_from("<Q", data, head + named)
        return ChunkHead(size, crc, name, packed, head + named + 8)

    def places(self, block: Block) -> Array:
        """Return channel, log time (ns) and place in the block of each of its messages, int64 `[message, 3]`."""
        memory, found = self._memory(block), []
        for opcode, begin, end in self._records(memory, block):
            if opcode == Opcode.MESSAGE:
                channel, _, log_time, _ = self._head(memory, begin, end, block)
                found.append((channel, log_time, begin - RECORD.size))
        return np.array(found, np.int64).reshape(-1, 3)

    def _head(self, memory: memoryview, begin: int, end: int, block: Block) -> tuple[int, int, int, int]:
        """Return channel, sequence, log time and publish time of a message."""
        if end - begin < _MESSAGE.size:
            raise self.error(f"a message at byte {block.offset} is too short")
        found: tuple[int, int, int, int] = _MESSAGE.unpack_from(memory, begin)
        if found[0] not in self.channels:
            raise self.error(f"a message at byte {block.offset} is of the unknown channel {found[0]}")
        return found

    def _records(self, memory: memoryview, block: Block) -> Iterator[tuple[int, int, int]]:
        """Yield opcode, start and end of each record in the memory of a block."""
        at, size, unpack = 0, len(memory), RECORD.unpack_from
        while at < size:
            if size - at < RECORD.size:
                raise self.error(f"the records at byte {block.offset} are incomplete")
            opcode, length = unpack(memory, at)
            at += RECORD.size
            if length > size - at:
                raise self.error(f"a record at byte {block.offset} is longer than its chunk")
            yield opcode, at, at + length
            at += length


class _Exact(io.BytesIO):
    """Bytes that raise an error if fewer are there than are read."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size is not None and len(data) < size:
            raise EOFError(f"{size} bytes were expected, and {len(data)} exist")
        return data


def _decompressed(name: str, body: memoryview, size: int) -> memoryview:
    """Return the bytes of a chunk.

    Raises:
        ValueError: it does not decompress to that size.
    """
    if name == "":
        plain: Any = body
    elif name == "lz4":
        context = lz4.frame.LZ4FrameDecompressor()
        plain = context.decompress(body, max_length=size)
        if not context.eof and context.decompress(b"", max_length=1):  # reading to the end verifies the checksum
            raise ValueError("it is longer than stated")
        if not context.eof:
            raise ValueError("it is incomplete")
    else:
        with zstandard.ZstdDecompressor().stream_reader(body) as stream:
            plain = bytearray(size)
            read = 0
            while read < size and (count := stream.readinto(memoryview(plain)[read:])):
                read += count
            if read < size or stream.read(1):
                raise ValueError("its size differs from the stated one")
    if len(plain) != size:
        raise ValueError(f"it decompresses to {len(plain)} bytes, not {size}")
    return memoryview(plain).toreadonly()
