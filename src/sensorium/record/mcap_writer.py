"""Writer of MCAP files: the caller adds messages, and two threads compress and write them chunk by chunk.

A chunk is closed after 4 MB or 0.8 s, so that a killed process loses at most the last second. It has a checksum, and is
compressed with LZ4 unless that saves little, as with noisy images. Chunks wait in a bounded queue; when
it is full, the caller waits. If the file cannot be written, the rest is dropped, and the file is cut after its last
complete chunk.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import IO, Any
from weakref import WeakSet

import lz4.block
import lz4.frame
import numpy as np
from mcap import records
from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode

from sensorium.readings import Array
from sensorium.record.batches import HEADS, OPCODE
from sensorium.record.crc import crc32
from sensorium.record.staging import lock

CHUNK_BYTES = 4_000_000
"""Size at which a chunk is closed, bytes before compression."""
CHUNK_SECONDS = 0.8
"""Age at which a chunk is closed, s."""
QUEUE_BYTES = 64_000_000
"""Total size of the closed chunks at which the caller waits, bytes."""
JOINED = 65536
"""Size up to which the buffers of a message are joined at once, bytes."""
SAMPLE, SHRINKS = 65536, 0.8
"""Size of the part that shows whether a chunk shrinks, bytes, and the ratio up to which it is compressed.

LZ4 is slowest where it saves little. For an image with one bit of noise, it takes ten times as long as the file system
and saves 14 % of the size.
"""
LEVEL = -2
"""Level of LZ4: depth images take two thirds of the time of level 0, and recordings of robots 3 % more space."""
MAGIC = b"\x89MCAP0\r\n"

RECORD = struct.Struct("<BQ")
"""Head of a record: opcode and size of the contents."""

_MESSAGE = struct.Struct("<BQHIQQ")
_CHUNK, _SIZE = struct.Struct("<BQQQQI"), struct.Struct("<Q")

Index = Array | Callable[[], Array]
"""Channel, log time (ns) and relative place of each message, int64 `[message, 3]`, or a function that returns it."""

_open: WeakSet[McapWriter] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Complete the files that a program left open."""
    for writer in list(_open):
        with contextlib.suppress(Exception):
            writer.close()


@dataclass(slots=True)
class _Chunk:
    """Messages that are not written yet."""

    opened: float = field(default_factory=time.monotonic)
    """Time at which it was opened, s."""
    parts: list[Any] = field(default_factory=list)
    nbytes: int = 0
    added: list[tuple[int, Index]] = field(default_factory=list)
    """Place and index of the messages that were added together."""
    index: Array = field(default_factory=lambda: np.empty((0, 3), np.int64))
    """Channel, log time (ns) and place of each message, int64 `[message, 3]`, once it is packed."""
    compression: str = ""
    crc: int = 0
    """Checksum of the parts before compression."""
    error: Exception | None = None
    """Reason why it cannot be written."""

    def pack(self) -> None:
        """Complete the messages, make the index and the checksum, and compress the parts if that is worth the time."""
        found = [self.index]
        for start, index in self.added:
            index = index() if callable(index) else index
            index[:, 2] += start
            found.append(index)
        self.index, self.parts = np.concatenate(found), _joined(self.parts)
        for part in self.parts:
            self.crc = crc32(part, self.crc)
        if _shrinks(self.parts):
            self.compression, self.parts = "lz4", _compressed(self.parts)


@dataclass(slots=True)
class Summary:
    """Contents of the summary at the end of a file, which grows with the file."""

    schemas: dict[int, records.Schema] = field(default_factory=dict)
    channels: dict[int, records.Channel] = field(default_factory=dict)
    chunks: list[records.ChunkIndex] = field(default_factory=list)
    attachments: list[records.AttachmentIndex] = field(default_factory=list)
    metadata: list[records.MetadataIndex] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    """Channel -> number of messages."""
    start: int = 0
    """First log time, ns."""
    end: int = 0
    """Last log time, ns."""

    def add(self, index: records.ChunkIndex, counts: Mapping[int, int]) -> None:
        """Add a chunk with its number of messages per channel."""
        if counts:
            is_first = not self.counts
            self.start = index.message_start_time if is_first else min(self.start, index.message_start_time)
            self.end = max(self.end, index.message_end_time)
        self.chunks.append(index)
        for channel, count in counts.items():
            self.counts[channel] = self.counts.get(channel, 0) + count

    def ending(self, start: int) -> bytes:
        """Return the end of the file: end of data, summary, footer and magic.

        Args:
            start: place of the result in the file.
        """
        out = RecordBuilder()
        data_end = packed(records.DataEnd(0))
        start += len(data_end)
        statistics = records.Statistics(
            len(self.attachments), len(self.channels), self.counts, len(self.chunks), sum(self.counts.values()),
            self.end, self.start, len(self.metadata), len(self.schemas),
        )  # fmt: skip
        groups: list[tuple[Opcode, Sequence[Any]]] = [
            (Opcode.SCHEMA, [*self.schemas.values()]),
            (Opcode.CHANNEL, [*self.channels.values()]),
            (Opcode.STATISTICS, [statistics]),
            (Opcode.CHUNK_INDEX, self.chunks),
            (Opcode.ATTACHMENT_INDEX, self.attachments),
            (Opcode.METADATA_INDEX, self.metadata),
        ]
        offsets = []
        for opcode, group in groups:
            first = out.count
            for record in group:
                record.write(out)
            if group:
                offsets.append(records.SummaryOffset(opcode, start + first, out.count - first))
        offset_start = start + out.count
        for offset in offsets:
            offset.write(out)
        summary = _bytes_of(out)
        crc = crc32(struct.pack("<BQQQ", Opcode.FOOTER, 20, start, offset_start), crc32(summary))
        return data_end + summary + packed(records.Footer(start, offset_start, crc)) + MAGIC


def packed(record: records.McapRecord) -> bytes:
    """Return a record as bytes."""
    out = RecordBuilder()
    record.write(out)
    return _bytes_of(out)


def _bytes_of(out: RecordBuilder) -> bytes:
    data: bytes = out.end()  # type: ignore[no-untyped-call]
    return data


def message_indexes(index: Array, start: int) -> tuple[bytes, dict[int, int], dict[int, int]]:
    """Return the message indexes that follow a chunk.

    Args:
        index: channel, log time (ns) and place in the chunk of each message, int64 `[message, 3]`.
        start: place of the result in the file.

    Returns:
        The records, the place of each channel's record in the file, and the number of messages per channel.
    """
    order = np.argsort(index[:, 0].astype(np.uint16), kind="stable")  # of 16 bits, the fast sort by digits
    entries = np.ascontiguousarray(index[order, 1:], "<i8")
    counts = np.bincount(index[:, 0])
    ends = np.cumsum(counts)
    parts, places = [], {}
    for channel in np.flatnonzero(counts).tolist():
        own = entries[ends[channel] - counts[channel] : ends[channel]].tobytes()
        places[channel] = start
        parts += [struct.pack("<BQHI", Opcode.MESSAGE_INDEX, 6 + len(own), channel, len(own)), own]
        start += 15 + len(own)
    return b"".join(parts), places, {channel: int(counts[channel]) for channel in places}


class McapWriter:
    """Open MCAP file. `add` is called by one thread at a time.

    Args:
        path: the file; an existing one is replaced. Or an open file, which is written from its start and stays open;
            its chunks have no maximum age, so that its bytes depend on the messages alone.
        profile: profile of the file, e.g. ``"ros2"``.
        library: name and version of the writing program.

    Attributes:
        error: reason why the file could not be written; None without an error.
        summary: contents of the file; complete after `close`.

    Raises:
        OSError: the file cannot be created, or another writer has it open.
    """

    def __init__(self, path: str | os.PathLike[str] | IO[bytes], profile: str, library: str) -> None:
        self._owns = isinstance(path, str | os.PathLike)
        self.path = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        self.collect: Callable[[], None] = lambda: None
        """Function that adds the collected data of its owner; called by the thread, which holds `lock`."""
        self.error: Exception | None = None
        file: Any = open(self.path, "ab", buffering=0) if self._owns else path
        self._file = file
        self._end = 0
        """Size of the file up to its last complete record, bytes."""
        self.summary = Summary()
        self.lock = threading.RLock()
        """Lock of the contents; held while the data that `collect` adds is changed."""
        self.changed = threading.Condition(self.lock)
        self._chunk = _Chunk()
        self._queue: deque[_Chunk] = deque()
        self._queued = 0
        self._is_closing = False
        try:
            if self._owns:
                lock(self._file)
                self._file.truncate(0)
            self._append([MAGIC, packed(records.Header(profile, library))])
        except BaseException:
            self._close_file()
            raise
        self._taken = self._written = 0
        """Numbers of chunks that threads have taken, and that are written or dropped."""
        self._packed: dict[int, _Chunk] = {}
        """Number -> chunk that is packed and waits to be written."""
        self._threads = [threading.Thread(target=self._run, name="sensorium-record", daemon=True) for _ in range(2)]
        for thread in self._threads:
            thread.start()
        _open.add(self)

    # Called by the owner ----------------------------------------------------------------------------------------------

    def add_channel(
        self, topic: str, schema: str, definition: str, metadata: Mapping[str, str], encoding: str = "ros2msg"
    ) -> int:
        """Add a channel of CDR messages and return its number.

        Args:
            topic: its topic; topics may repeat.
            schema: name of the message type. If it is used by a different definition, a number is added.
            definition: definition of the message type.
            metadata: further information about the channel.
            encoding: language of the definition.
        """
        with self.changed:
            schemas, data = self.summary.schemas, definition.encode()
            known, name, count = {each.name: each for each in schemas.values()}, schema, 1
            while name in known and known[name].data != data:
                count += 1
                name = f"{schema}{count}"
            number = known[name].id if name in known else len(schemas) + 1
            if number not in schemas:
                schemas[number] = records.Schema(number, data, encoding, name)
                self._put(schemas[number])
            channel = records.Channel(len(self.summary.channels) + 1, topic, "cdr", dict(metadata), number)
            self._put(channel)
            self.summary.channels[channel.id] = channel
            return channel.id

    def _put(self, record: records.McapRecord) -> None:
        data = packed(record)
        self._chunk.parts.append(data)
        self._chunk.nbytes += len(data)

    def add(self, *messages: tuple[int, int, int, int, Sequence[Any]]) -> None:
        """Add messages one after the other; wait while too many are queued.

        Args:
            messages: of each the number of its channel, its time (ns), the wall clock (ns since 1970), the number of
                its frame, and its consecutive buffers, which must not change afterwards.
        """
        places, parts, at = [], [], 0
        for channel, log_time, publish_time, sequence, contents in messages:
            size = sum(map(_size, contents))
            head = _MESSAGE.pack(OPCODE, size + 22, channel, sequence & 0xFFFFFFFF, log_time, publish_time)
            parts += [b"".join((head, *contents))] if size <= JOINED else [head, *contents]
            places.append((channel, log_time, at))
            at += len(head) + size
        self.add_records(parts, np.array(places, np.int64))

    def add_rows(self, channels: Array, log_times: Array, publish_time: int, sequence: int, rows: Array) -> None:
        """Add messages of one size; wait while too many are queued.

        Args:
            channels: numbers of their channels, `[message]`.
            log_times: their times, ns, `[message]`.
            publish_time: wall-clock time, ns since 1970.
            sequence: number of their frame.
            rows: the messages, uint8 `[message, byte]`.
        """
        count, size = rows.shape
        heads = np.empty(count, HEADS)
        heads["opcode"], heads["length"], heads["channel"] = OPCODE, size + 22, channels
        heads["sequence"], heads["log_time"], heads["publish_time"] = sequence & 0xFFFFFFFF, log_times, publish_time
        data = np.concatenate((heads.view(np.uint8).reshape(count, -1), rows), axis=1)
        self.add_records([data], np.stack((channels, log_times, np.arange(0, data.nbytes, data.shape[1])), axis=1))

    def add_records(self, parts: Sequence[Any], index: Index) -> None:
        """Add records; wait while too many are queued.

        Args:
            parts: consecutive buffers, which must not change afterwards.
            index: channel, log time (ns) and relative place of each message, int64 `[message, 3]`. A function completes
                the contents of the buffers first; a thread calls it before it writes them.
        """
        size = sum(map(_size, parts))
        with self.changed:
            if self.error is not None:
                return
            chunk = self._chunk
            chunk.added.append((chunk.nbytes, index))
            chunk.parts += parts
            chunk.nbytes += size
            if chunk.nbytes >= CHUNK_BYTES:
                self._close_chunk()
            while self._queued > QUEUE_BYTES and self.error is None and threading.current_thread() not in self._threads:
                self.changed.wait()

    def add_metadata(self, name: str, values: Mapping[str, str]) -> None:
        """Add a record of named texts to the file."""

        def note(at: int, size: int) -> None:
            self.summary.metadata.append(records.MetadataIndex(at, size, name))

        self._add_record(packed(records.Metadata(name, dict(values))), note)

    def attach(self, name: str, media_type: str, data: bytes) -> None:
        """Attach a file.

        Args:
            name: its name, e.g. ``"rig.toml"``.
            media_type: its media type, e.g. ``"text/plain"``.
            data: its contents.
        """
        now = time.time_ns()

        def note(at: int, size: int) -> None:
            index = records.AttachmentIndex(at, size, now, now, len(data), name, media_type)
            self.summary.attachments.append(index)

        self._add_record(packed(records.Attachment(now, now, name, media_type, data)), note)

    def _add_record(self, data: bytes, note: Any) -> None:
        """Write a record outside chunks, after all messages added so far."""
        self.flush()
        with self.changed:
            if self.error is None:
                try:
                    at = self._end
                    self._append([data])
                    note(at, len(data))
                except OSError as error:
                    self._fail(error)

    def flush(self) -> None:
        """Write all messages added so far to the file, and wait for it."""
        with self.changed:
            self.collect()
            self._close_chunk()
            while self._queued and self.error is None:
                self.changed.wait()

    def close(self) -> None:
        """Complete the file: write the rest and the summary. Closing twice has no effect."""
        with self.changed:
            if self._is_closing:
                return
            self.collect()
            self._close_chunk()
            self._is_closing = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()
        _open.discard(self)
        try:
            self._append([self.summary.ending(self._end)])
        except OSError as error:  # without space for the summary, the file ends after its last chunk
            self.error = self.error or error
        self._close_file()

    def _close_file(self) -> None:
        if self._owns:
            lock(self._file, is_open=False)  # a forked process may have the file open
            self._file.close()

    def _close_chunk(self) -> None:
        """Pass the open chunk to the thread; the caller holds the lock."""
        chunk = self._chunk
        if chunk.nbytes and self.error is None:
            self._chunk = _Chunk()
            self._queue.append(chunk)
            self._queued += chunk.nbytes
            self.changed.notify_all()

    # The threads ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Close old chunks, pack closed chunks, and write them in their order."""
        while (taken := self._next()) is not None:
            number, chunk = taken
            try:
                chunk.pack()
            except Exception as error:  # otherwise the caller would wait for a thread that has ended
                chunk.error = error
            with self.changed:
                self._packed[number] = chunk
                del taken, chunk  # so that its memory is free once it is written
                self._write_packed()

    def _write_packed(self) -> None:
        """Write the packed chunks that are next in the file; the caller holds the lock.

        If the previous chunk is still being written, its thread writes them afterwards. No thread therefore waits for
        the other, because waking a thread takes about as long as writing a chunk.
        """
        while (chunk := self._packed.pop(self._written, None)) is not None:
            self.changed.release()
            try:
                if chunk.error is None and self.error is None:
                    self._append_chunk(chunk)
            except Exception as error:
                chunk.error = error
            finally:
                self.changed.acquire()
            self._written += 1
            self._queued -= chunk.nbytes
            if chunk.error is not None:
                self._fail(chunk.error)
            self.changed.notify_all()

    def _next(self) -> tuple[int, _Chunk] | None:
        """Return the number of the next chunk to write, and the chunk; None at the end."""
        with self.changed:
            while not self._queue:
                if self._is_closing:
                    return None
                left = self._chunk.opened + CHUNK_SECONDS - time.monotonic()
                if not self._owns:
                    self.changed.wait()
                elif left > 0.0:
                    self.changed.wait(left)
                else:
                    self._close_old()
            self._taken += 1
            return self._taken - 1, self._queue.popleft()

    def _close_old(self) -> None:
        """Close the open chunk because of its age; the thread holds the lock."""
        try:
            self.collect()
        except Exception as error:  # of the owner, which reports it
            self._fail(error)
        self._close_chunk()
        self._chunk.opened = time.monotonic()

    def _fail(self, error: Exception) -> None:
        """Drop everything that is not written; the caller holds the lock."""
        self.error = error
        self._chunk = _Chunk()
        self._queued -= sum(chunk.nbytes for chunk in self._queue)
        self._queue.clear()
        self.changed.notify_all()

    def _append_chunk(self, chunk: _Chunk) -> None:
        name, size = chunk.compression.encode(), sum(map(len, chunk.parts))
        times = chunk.index[:, 1]
        first, last = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        rest = struct.pack("<I", len(name)) + name + _SIZE.pack(size)
        length = _CHUNK.size + len(rest) + size
        record = _CHUNK.pack(Opcode.CHUNK, length - RECORD.size, first, last, chunk.nbytes, chunk.crc) + rest
        at = self._end
        indexes, places, counts = message_indexes(chunk.index, at + length)
        self._append([record, *chunk.parts, indexes])
        self.summary.add(
            records.ChunkIndex(length, at, chunk.compression, size, last, len(indexes), places, first, chunk.nbytes),
            counts,
        )

    def _append(self, parts: Sequence[bytes | memoryview]) -> None:
        """Write to the end of the file; if that fails, cut the file after its last complete record.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            for part in parts:
                view = memoryview(part)
                while len(view):
                    view = view[self._file.write(view) or 0 :]
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
                self._file.seek(self._end)
            raise
        self._end += sum(map(len, parts))


def _joined(parts: Sequence[Any]) -> list[memoryview]:
    """Return buffers as bytes, small ones joined."""
    joined: list[memoryview] = []
    for is_small, group in groupby(parts, lambda part: _size(part) <= JOINED):  # LZ4 makes a block of each buffer
        several = list(group)
        several = [b"".join(several)] if is_small else several
        joined += [memoryview(part).cast("B") for part in several]
    return joined


def _shrinks(parts: Sequence[memoryview]) -> bool:
    """Return whether LZ4 makes the middle of the largest buffer smaller."""
    largest = max(parts, key=len, default=memoryview(b""))
    start = max((len(largest) - SAMPLE) // 2, 0)
    sample = largest[start : start + SAMPLE]
    return len(lz4.block.compress(sample, store_size=False)) < SHRINKS * len(sample)


def _compressed(parts: Sequence[memoryview]) -> list[bytes]:
    """Return buffers as one LZ4 frame, in pieces; its own checksum would take four times as long as the compression."""
    context = lz4.frame.LZ4FrameCompressor(
        block_size=lz4.frame.BLOCKSIZE_MAX4MB, auto_flush=True, compression_level=LEVEL
    )
    out = [context.begin(sum(map(len, parts)))]
    out += [context.compress(part) for part in parts]
    out.append(context.flush())
    return out


def _size(part: Any) -> int:
    return len(part) if isinstance(part, bytes) else int(part.nbytes)
