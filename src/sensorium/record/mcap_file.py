"""Reader of untrusted MCAP files: every length is checked before memory is allocated.

A file without a valid end, whose writer was killed, is read up to its last complete record. `sensorium.record.repair`
also reads what follows damaged bytes, from the next chunk.

The package `mcap` reads records, but not chunks: it decompresses them without limits on their size, and makes an object
per message, where one array per block has the heads of all.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import weakref
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import lz4.frame
import numpy as np
import zstandard
from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode

from sensorium.errors import ModelError, file_kind
from sensorium.memory import host_available, in_mb
from sensorium.readings import Array
from sensorium.record.archive import check_regular
from sensorium.record.batches import HEADS
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
_OUTSIDE = (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.MESSAGE)
"""Opcodes of the records of runs outside chunks, which occur in chunks too."""
_CHUNK = struct.Struct("<QQQII")
_CHUNK_START = re.compile(rb"\x06(?=.{36}(?:\0{4}|\x03\0{3}lz4|\x04\0{3}zstd))", re.DOTALL)
_DATA_END = RECORD.pack(Opcode.DATA_END, 4)
WINDOW = 2**24
"""Size of the parts of a file that are searched for a chunk, bytes."""
_FOOTER = struct.Struct("<BQQQI")
_END = _FOOTER.size + len(MAGIC)

T = TypeVar("T")


class Messages(NamedTuple):
    """Messages of a block, in order of the file."""

    memory: memoryview
    """The records of the block."""
    begins: Array
    """Places of the messages in it, int64 `[message]`."""
    heads: Array
    """Heads of their records, `HEADS` `[message]`."""

    def data(self, number: int) -> memoryview:
        """Return the contents of a message, a view of the memory."""
        begin = int(self.begins[number])
        return self.memory[begin + HEADS.itemsize : begin + RECORD.size + int(self.heads["length"][number])]


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
        index: channel, log time (ns) and place in the block of each message, int64 `[message, 3]`, of files without a
            summary.
    """

    offset: int
    length: int
    is_chunk: bool
    start: int = 0
    end: int = 2**63
    channels: frozenset[int] | None = None
    index: Array | None = None


class McapFile:
    """Open MCAP file; close it, or use it as a context manager.

    Args:
        path: the file.
        recovers: whether to read everything, without the summary at the end of a completed file. Damaged parts are
            omitted, up to the next chunk.

    Attributes:
        profile: profile of the file.
        schemas: number -> schema.
        channels: number -> channel.
        blocks: where its messages are, in order of the file.
        is_complete: whether it has an end.
        counts: channel -> number of messages.
        records: opcode, place and size of all records before the end of data, if there is no summary or it is not used.

    Raises:
        ModelError: the file is missing, is not an MCAP file, or is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, recovers: bool = False) -> None:
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
            self.records: list[tuple[int, int, int]] = []
            self._attachments: dict[str, tuple[int, int]] = {}
            self._metadata: dict[str, tuple[int, int]] = {}
            """Name -> place and size of the contents."""
            if self.size < len(MAGIC) or self.read(0, len(MAGIC)) != MAGIC:
                kind = file_kind(Path(self.path)).rstrip(".") or "not an MCAP file. Give a recording, or a bag of ROS 2"
                raise self.error(f"it is {kind}")
            opcode, place, length = self._at(len(MAGIC))
            if opcode != Opcode.HEADER:
                raise self.error("it has no header")
            self.profile = self.record(records.Header, place, length).profile
            self.is_complete = self.read(self.size - len(MAGIC), len(MAGIC)) == MAGIC
            if recovers or not self._read_summary():
                self._read_all(recovers)
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
        return self.error(f"{reason}. Run: sensorium repair {self.path} (with --in-place, to open its folder again)")

    # Contents ---------------------------------------------------------------------------------------------------------

    def messages(self, block: Block) -> Messages:
        """Return the messages of a block.

        Raises:
            ModelError: the block is damaged.
        """
        memory = self._memory(block)
        return self._messages(memory, self._walk(memory, block), block)

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
        place = self._metadata.get(name)
        return {} if place is None else self.record(records.Metadata, *place).metadata

    def attachment(self, name: str) -> bytes | None:
        """Return the contents of an attached file; None if there is none."""
        place = self._attachments.get(name)
        if place is None:
            return None
        return self.record(records.Attachment, *place).data

    def _at(self, offset: int) -> tuple[int, int, int]:
        """Return opcode, place of the contents and their size of a record outside chunks; 0 for an incomplete one."""
        place = offset + RECORD.size
        if place > self.size:
            return 0, place, 0
        opcode, length = RECORD.unpack(self.read(offset, RECORD.size))
        return (opcode, place, length) if length <= self.size - place else (0, place, 0)

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
        self._check_memory(self.size - start)
        data = memoryview(self.read(start, self.size - len(MAGIC) - start))
        if crc and crc32(data[:-4]) != crc:
            raise self.damaged("the checksum of its summary differs")
        total = -1
        for opcode, begin, end in self._walk(data[: self.size - _END - start], Block(start, 0, False)):
            contents = data[begin + RECORD.size : end]
            self._define(opcode, contents)
            if opcode == Opcode.STATISTICS:
                counts = self._parsed(records.Statistics, contents)
                self.counts, total = dict(counts.channel_message_counts), counts.message_count
            elif opcode == Opcode.CHUNK_INDEX:
                each = self._parsed(records.ChunkIndex, contents)
                if not len(MAGIC) < each.chunk_start_offset <= each.chunk_start_offset + each.chunk_length <= start:
                    raise self.damaged("its summary names a chunk outside the file")
                known = frozenset(each.message_index_offsets) or None
                times = each.message_start_time, each.message_end_time
                self.blocks.append(Block(each.chunk_start_offset, each.chunk_length, True, *times, known))
            elif opcode in (Opcode.ATTACHMENT_INDEX, Opcode.METADATA_INDEX):
                kind = records.AttachmentIndex if opcode == Opcode.ATTACHMENT_INDEX else records.MetadataIndex
                index: Any = self._parsed(kind, contents)
                if not len(MAGIC) < index.offset <= index.offset + index.length <= start or index.length < RECORD.size:
                    raise self.damaged("its summary names a record outside the file")
                named = self._attachments if opcode == Opcode.ATTACHMENT_INDEX else self._metadata
                named[index.name] = index.offset + RECORD.size, index.length - RECORD.size
        schemas = {each.schema_id for each in self.channels.values()} - {0}
        is_whole = self.counts.keys() <= self.channels.keys() and schemas <= self.schemas.keys()
        if not is_whole or sum(self.counts.values()) != total or (total and not self.blocks):  # parts are optional
            self.blocks.clear()
            return False
        self.blocks.sort(key=lambda block: block.offset)
        return True

    def _read_all(self, recovers: bool) -> None:
        """Read the whole file: its channels, and the places and times of its blocks.

        Args:
            recovers: whether to continue at the next chunk after damaged bytes.

        Raises:
            ModelError: it is damaged.
        """
        at = certain = len(MAGIC)  # the end of the last chunk: checksums show that it is not damaged
        self.counts = {}
        while True:
            opcode, place, length = self._at(at)
            if not recovers and (opcode in (Opcode.DATA_END, Opcode.FOOTER) or (opcode == 0 and not self.is_complete)):
                break
            try:
                end = self._read_record(opcode, at, place + length)
            except ModelError:
                if not recovers and (self.is_complete or self._at(place + length)[0]):
                    raise
                if not recovers or not (following := self._next_chunk(certain + (at == certain))):
                    break  # the last bytes that the writer wrote
                self.records = [each for each in self.records if each[1] + each[2] <= following]
                self.blocks = [each for each in self.blocks if each.offset + each.length <= following]
                at = certain = following
                continue
            self.records.append((opcode, at, end - at))
            at = end
            if opcode == Opcode.CHUNK:
                certain = end
        self.size = at
        for block in self.blocks:
            for channel, count in zip(*np.unique(block.index[:, 0], return_counts=True), strict=True):  # type: ignore
                self.counts[int(channel)] = self.counts.get(int(channel), 0) + int(count)

    def _read_record(self, opcode: int, at: int, end: int) -> int:
        """Read a record, or a run of records, and return its end.

        Raises:
            ModelError: it is damaged, or does not belong to the data.
        """
        place, length = at + RECORD.size, end - at - RECORD.size
        if opcode in _OUTSIDE:
            while end - at < RUN_BYTES and (following := self._at(end))[0] in _OUTSIDE:
                end = following[1] + following[2]
        if opcode in (Opcode.CHUNK, *_OUTSIDE):
            self._read_block(Block(at, end - at, opcode == Opcode.CHUNK))
        elif opcode == Opcode.METADATA:
            self._metadata[self.record(records.Metadata, place, length).name] = place, length
        elif opcode == Opcode.ATTACHMENT:
            self._attachments[self.record(records.Attachment, place, length).name] = place, length
        elif opcode not in (Opcode.HEADER, Opcode.MESSAGE_INDEX) and opcode < PRIVATE:
            raise self.damaged(f"there is no valid record at byte {at}")
        return end

    def _next_chunk(self, start: int) -> int:
        """Return the place of the next chunk that is not damaged; 0 without one."""
        self._read_spare_channels()
        for begin in range(start, self.size, WINDOW):
            data = self.read(begin, min(WINDOW + 64, self.size - begin))
            for found in _CHUNK_START.finditer(data):
                opcode, _, length = self._at(begin + found.start())
                with contextlib.suppress(ModelError):
                    block = Block(begin + found.start(), RECORD.size + length, True)
                    if opcode:
                        self.messages(block)
                        return block.offset
        return 0

    def _read_spare_channels(self) -> None:
        """Read the channels in the summary, of which the chunk with their first definition may be damaged."""
        begin = max(self.size - WINDOW, 0)
        tail = memoryview(self.read(begin, self.size - begin))
        at = bytes(tail).rfind(_DATA_END) + len(_DATA_END) + 4
        (crc,) = struct.unpack_from("<I", tail, len(tail) - len(MAGIC) - 4)
        if not self.is_complete or at < len(_DATA_END) + 4 or crc not in (0, crc32(tail[at : -len(MAGIC) - 4])):
            return
        with contextlib.suppress(ModelError):
            for opcode, first, end in self._walk(tail[at : -len(MAGIC)], Block(begin + at, 0, False)):
                self._define(opcode, tail[at + first + RECORD.size : at + end])

    def _read_block(self, block: Block) -> None:
        """Note a block, and the schemas, channels and messages in it."""
        memory = self._memory(block)
        places = self._walk(memory, block)
        for opcode, begin, end in places:
            self._define(opcode, memory[begin + RECORD.size : end])
        _, begins, heads = self._messages(memory, places, block)
        times, channels = heads["log_time"], heads["channel"]
        block.index = np.stack((channels, times, begins), axis=1).astype(np.int64)
        block.start, block.end = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        block.channels = frozenset(channels.tolist())
        self.blocks.append(block)

    def _define(self, opcode: int, contents: memoryview) -> None:
        """Note a schema or a channel; other records are ignored."""
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            kind: Any = records.Schema if opcode == Opcode.SCHEMA else records.Channel
            known: dict[int, Any] = self.schemas if opcode == Opcode.SCHEMA else self.channels
            found = self._parsed(kind, contents)
            if known.setdefault(found.id, found) != found:
                raise self.error(f"{kind.__name__.lower()} {found.id} is defined twice")

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
        self._check_memory(2 * length)
        return self._parsed(kind, memoryview(self.read(place, length)))

    def _parsed(self, kind: type[T], data: memoryview) -> T:
        if len(data) > MAX_RECORD and kind is not records.Attachment:
            raise self.error(f"a {kind.__name__} record has {in_mb(len(data))}, expected at most {in_mb(MAX_RECORD)}")
        reader: Callable[[ReadDataStream], T] = kind.read  # type: ignore[attr-defined]
        return self._guard(f"a {kind.__name__} record", lambda: reader(_Stream(data)))

    def _guard(self, what: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except ModelError:
            raise
        except Exception as error:  # struct, lz4, zstandard, mcap and codecs raise many kinds for damaged bytes
            raise self.error(f"{what} is damaged ({type(error).__name__}: {error})") from None

    def _check_memory(self, nbytes: int) -> None:
        if nbytes > MAX_RECORD and nbytes > (available := host_available() or nbytes):
            raise self.error(f"a part of it needs {in_mb(nbytes)} of memory, and {in_mb(available)} are available")

    def _memory(self, block: Block) -> memoryview:
        """Return the records of a block, decompressed."""
        self._check_memory(block.length)
        if not block.is_chunk:
            return memoryview(self.read(block.offset, block.length))
        size, crc, name, packed, start = self.chunk_head(block)
        ratio = MAX_RATIO["lz4" if size > LARGE and name else name]
        if start + packed != block.length or size > ratio * (packed + 64):
            raise self.error(f"the chunk at byte {block.offset} has {packed} bytes that decompress to {size}")
        self._check_memory(size)
        body = self.read(block.offset + start, packed)
        plain = self._guard(f"the chunk at byte {block.offset}", lambda: _decompressed(name, body, size))
        if crc and crc32(plain) != crc:
            raise self.damaged(f"the checksum of the chunk at byte {block.offset} differs")
        return plain

    def chunk_head(self, block: Block) -> tuple[int, int, str, int, int]:
        """Return the description of a chunk, without its contents.

        Returns:
            Size after decompression, checksum (0 for none), compression, size in the file, and start of the contents.

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
        return size, crc, name, packed, head + named + 8

    def _messages(self, memory: memoryview, places: list[tuple[int, int, int]], block: Block) -> Messages:
        """Return the messages among the records of a block."""
        begins = np.array([begin for opcode, begin, _ in places if opcode == Opcode.MESSAGE], np.int64)
        size = HEADS.itemsize
        if len(begins) and begins[-1] + size > len(memory):
            raise self.error(f"a message at byte {block.offset} is too short")
        heads = np.ndarray(max(len(memory) - size + 1, 0), HEADS, memory, strides=(1,))[begins]
        if (heads["length"] < size - RECORD.size).any():
            raise self.error(f"a message at byte {block.offset} is too short")
        if unknown := {*np.unique(heads["channel"]).tolist()} - self.channels.keys():
            raise self.error(f"a message at byte {block.offset} is of the unknown channel {min(unknown)}")
        return Messages(memory, begins, heads)

    def _walk(self, memory: memoryview, block: Block) -> list[tuple[int, int, int]]:
        """Return opcode, start and end of each record in the memory of a block."""
        at, size, unpack, head, found = 0, len(memory), RECORD.unpack_from, RECORD.size, []
        while at + head <= size:
            opcode, length = unpack(memory, at)
            end = at + head + length
            found.append((opcode, at, end))
            at = end
        if at != size:
            raise self.error(f"the last record of the block at byte {block.offset} is incomplete")
        return found


class _Stream(ReadDataStream):
    """Bytes that raise an error if fewer are there than are read."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._count = bytes(data), 0

    def read(self, length: int) -> bytes:
        begin, self._count = self._count, self._count + length
        if self._count > len(self._data):
            raise EOFError(f"{length} bytes were expected, and {len(self._data) - begin} exist")
        return self._data[begin : self._count]


def _decompressed(name: str, body: bytes, size: int) -> memoryview:
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
