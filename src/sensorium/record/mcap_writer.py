"""Writer of MCAP files: the caller adds messages, and two threads compress and write them chunk by chunk.

A chunk is closed after 4 MB or 0.8 s, so that a killed process loses at most the last second. It has a checksum, and is
compressed with LZ4 unless that saves little, as with noisy images. Chunks wait in a bounded queue; when
it is full, the caller waits. If the file cannot be written, the rest is dropped, and the file is cut after its last
complete chunk.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
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
from sensorium.record.chunks import Chunk, Part, State
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

_open: WeakSet[McapWriter] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Complete the files that a program left open."""
    for writer in list(_open):
        with contextlib.suppress(Exception):
            writer.close()


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
        self.collect: Callable[[Sequence[Part]], None] = lambda parts: None
        """Function that adds messages to a closed chunk with these parts; called by a thread, which holds `lock`."""
        self.writes_collected = False
        """Whether parts with `about` are not written: they are input of `collect` only."""
        self.error: Exception | None = None
        file: Any = open(self.path, "ab", buffering=0) if self._owns else path
        self._file = file
        self._end = 0
        """Size of the file up to its last complete record, bytes."""
        self.summary = Summary()
        self.lock = threading.RLock()
        """Lock of the contents; held while they are changed."""
        self.changed = threading.Condition(self.lock)
        self._chunks: deque[Chunk] = deque()
        """Chunks that are not written yet, in the order of the file; only the last one may be open."""
        self._collecting: Chunk | None = None
        """Closed chunk to which `collect` adds messages."""
        self._numbers = itertools.count(1), itertools.count(1)
        """Numbers of further schemas and channels."""
        self._is_closing = False
        try:
            if self._owns:
                lock(self._file)
                self._file.truncate(0)
            self._append([MAGIC, packed(records.Header(profile, library))])
        except BaseException:
            self._close_file()
            raise
        self._threads = [threading.Thread(target=self._run, name="sensorium-record", daemon=True) for _ in range(2)]
        self._running = len(self._threads)
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
        with self.lock:
            schemas, data = self.summary.schemas, definition.encode()
            known, name, repeated = {each.name: each for each in schemas.values()}, schema, 1
            while name in known and known[name].data != data:
                repeated += 1
                name = f"{schema}{repeated}"
            if name not in known:  # written before it is used, also if the caller is interrupted in between
                new = records.Schema(next(self._numbers[0]), data, encoding, name)
                self._put(new)
                known[name] = schemas[new.id] = new
            channel = records.Channel(next(self._numbers[1]), topic, "cdr", dict(metadata), known[name].id)
            self._put(channel)
            self.summary.channels[channel.id] = channel
            return channel.id

    def _put(self, record: records.McapRecord) -> None:
        data = packed(record)
        self.add_part(Part(-1, [data]), len(data))

    def add(self, *messages: tuple[int, int, int, int, Sequence[Any]], order: int = 0, about: Any = None) -> None:
        """Add messages one after the other; wait while too many are queued.

        Args:
            messages: of each the number of its channel, its time (ns), the wall clock (ns since 1970), the number of
                its frame, and its consecutive buffers, which must not change afterwards.
            order: place among the parts of the chunk, see `Part`.
            about: data of the owner.
        """
        places, parts, at = [], [], 0
        for channel, log_time, publish_time, sequence, contents in messages:
            size = sum(map(_size, contents))
            head = _MESSAGE.pack(OPCODE, size + 22, channel, sequence & 0xFFFFFFFF, log_time, publish_time)
            parts += [b"".join((head, *contents))] if size <= JOINED else [head, *contents]
            places.append((channel, log_time, at))
            at += len(head) + size
        self.add_part(Part(order, parts, np.array(places, np.int64), about), at)

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
        index = np.stack((channels, log_times, np.arange(0, data.nbytes, data.shape[1])), axis=1)
        self.add_part(Part(0, [data], index), data.nbytes)

    def add_part(self, part: Part, nbytes: int = 0) -> Chunk:
        """Add records, and return their chunk; wait while too many are queued.

        Args:
            part: the records.
            nbytes: their size, bytes. Records may be added to the part later, see `grow`.
        """
        with self.lock:
            chunk = self._open_chunk()
            self.grow(chunk.add_part(part), nbytes)
            return chunk

    def _open_chunk(self) -> Chunk:
        """Return the chunk to which messages are added; the caller holds the lock."""
        if self._collecting is not None:
            return self._collecting
        if self.error is not None:
            return Chunk()  # it is dropped
        if not self._chunks or not self._chunks[-1].is_open:
            self._chunks.append(Chunk())
        return self._chunks[-1]

    def grow(self, chunk: Chunk, nbytes: int) -> None:
        """Note that a part of an open chunk has grown; wait while too much is queued. The caller holds the lock."""
        chunk.nbytes += nbytes
        if chunk.nbytes >= CHUNK_BYTES and chunk.is_open:
            self._close_chunk()
            while self._queued() > QUEUE_BYTES and self.error is None:
                self.changed.wait()

    def _queued(self) -> int:
        return sum(chunk.nbytes for chunk in self._chunks if not chunk.is_open)

    def add_metadata(self, name: str, values: Mapping[str, str]) -> None:
        """Add a record of named texts to the file."""
        data = packed(records.Metadata(name, dict(values)))
        for at in self._add_record(data):
            self.summary.metadata.append(records.MetadataIndex(at, len(data), name))

    def attach(self, name: str, media_type: str, data: bytes) -> None:
        """Attach a file.

        Args:
            name: its name, e.g. ``"rig.toml"``.
            media_type: its media type, e.g. ``"text/plain"``.
            data: its contents.
        """
        now = time.time_ns()
        record = packed(records.Attachment(now, now, name, media_type, data))
        for at in self._add_record(record):
            index = records.AttachmentIndex(at, len(record), now, now, len(data), name, media_type)
            self.summary.attachments.append(index)

    def _add_record(self, data: bytes) -> list[int]:
        """Write a record outside chunks, after all messages added so far; return its place, or none after an error."""
        self.flush()
        with self.lock:
            at = self._end
            if self.error is None:
                try:
                    self._append([data])
                except OSError as error:
                    self._fail(error)
            return [at] if self.error is None else []

    def flush(self) -> None:
        """Write all messages added so far to the file, and wait for it."""
        with self.lock:
            self._close_chunk()
            while self._chunks and self.error is None:
                self.changed.wait()

    def close(self) -> None:
        """Complete the file: write the rest and the summary. Closing twice has no effect.

        The threads complete the file also if the caller is interrupted while it waits for them.
        """
        with self.lock:
            self._close_chunk()
            self._is_closing = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()
        _open.discard(self)

    def _close_file(self) -> None:
        if self._owns:
            lock(self._file, is_open=False)  # a forked process may have the file open
            self._file.close()

    def _close_chunk(self) -> None:
        """Pass the open chunk to the threads; the caller holds the lock."""
        if self._chunks and self._chunks[-1].is_open:
            self._chunks[-1].is_open = False
            self.changed.notify_all()

    # The threads ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Close old chunks, pack closed chunks, and write them in their order; the last thread completes the file."""
        while (chunk := self._next()) is not None:
            try:
                _pack(chunk)
            except Exception as error:  # otherwise the caller would wait for a thread that has ended
                chunk.error = error
            with self.lock:
                chunk.state = State.PACKED
                del chunk  # so that its memory is free once it is written
                self._write_packed()
        with self.lock:
            self._running -= 1
            if not self._running:
                self._complete()

    def _complete(self) -> None:
        """Write the summary, and close the file."""
        try:
            self._append([self.summary.ending(self._end)])
        except Exception as error:  # without space for the summary, the file ends after its last chunk
            self.error = self.error or error
        self._close_file()

    def _write_packed(self) -> None:
        """Write the packed chunks that are next in the file; the caller holds the lock.

        If the previous chunk is still being written, its thread writes them afterwards. No thread therefore waits for
        the other, because waking a thread takes about as long as writing a chunk.
        """
        while self._chunks and self._chunks[0].state == State.PACKED:
            chunk = self._chunks[0]
            chunk.state = State.WRITING
            self.lock.release()
            try:
                if chunk.error is None:
                    self._append_chunk(chunk)
            except Exception as error:
                chunk.error = error
            finally:
                self.lock.acquire()
            if chunk.error is not None:
                self._fail(chunk.error)
            elif self._chunks:  # unless another thread failed
                self._chunks.popleft()
            self.changed.notify_all()

    def _next(self) -> Chunk | None:
        """Return the next chunk to pack; None at the end."""
        with self.lock:
            while True:
                chunk = next((each for each in self._chunks if each.state == State.WAITS), None)
                if chunk is not None and not chunk.is_open:
                    self._take(chunk)
                    return chunk
                if self._is_closing:
                    return None
                left = CHUNK_SECONDS if chunk is None else chunk.opened + CHUNK_SECONDS - time.monotonic()
                if chunk is not None and left <= 0.0 and self._owns:
                    self._close_chunk()
                else:
                    self.changed.wait(left if self._owns else None)

    def _take(self, chunk: Chunk) -> None:
        """Take a closed chunk, and let the owner add messages to it; the thread holds the lock."""
        chunk.state, self._collecting = State.TAKEN, chunk
        try:
            self.collect(tuple(chunk.parts))
        except Exception as error:  # of the owner, which reports it
            chunk.error = error
        if self.writes_collected:
            chunk.parts = [part for part in chunk.parts if part.about is None]
        self._collecting = None

    def _fail(self, error: Exception) -> None:
        """Drop everything that is not written; the caller holds the lock."""
        self.error = error
        self._chunks.clear()
        self.changed.notify_all()

    def _append_chunk(self, chunk: Chunk) -> None:
        if not chunk.buffers:
            return
        name, size = chunk.compression.encode(), sum(map(len, chunk.buffers))
        times = chunk.index[:, 1]
        first, last = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        rest = struct.pack("<I", len(name)) + name + _SIZE.pack(size)
        length = _CHUNK.size + len(rest) + size
        record = _CHUNK.pack(Opcode.CHUNK, length - RECORD.size, first, last, chunk.nbytes, chunk.crc) + rest
        at = self._end
        indexes, places, counts = message_indexes(chunk.index, at + length)
        self._append([record, *chunk.buffers, indexes])
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
        except BaseException:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
                self._file.seek(self._end)
            raise
        self._end += sum(map(len, parts))


def _pack(chunk: Chunk) -> None:
    """Complete the parts, make the index and the checksum, and compress the buffers if that is worth the time."""
    buffers: list[Any] = []
    found, chunk.nbytes = [chunk.index], 0
    for part in sorted(chunk.parts, key=attrgetter("order")):
        part.complete()
        part.index[:, 2] += chunk.nbytes
        found.append(part.index)
        buffers += part.buffers
        chunk.nbytes += sum(map(_size, part.buffers))
    chunk.parts = []
    chunk.index, chunk.buffers = np.concatenate(found), _joined(buffers)
    for each in chunk.buffers:
        chunk.crc = crc32(each, chunk.crc)
    if _shrinks(chunk.buffers):
        chunk.compression, chunk.buffers = "lz4", _compressed(chunk.buffers)


def _joined(parts: Sequence[Any]) -> list[memoryview]:
    """Return buffers as bytes, small ones joined."""
    joined: list[memoryview] = []
    for is_small, group in itertools.groupby(
        parts, lambda part: _size(part) <= JOINED
    ):  # LZ4 makes a block of each buffer
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
