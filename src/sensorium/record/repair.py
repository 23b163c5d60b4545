"""Completion of an MCAP file whose writer was killed: its index is rebuilt, and incomplete bytes are cut off."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sensorium.errors import ModelError
from sensorium.record.recorder import missing

if TYPE_CHECKING:
    from sensorium.record.mcap_file import McapFile


@dataclass(frozen=True, slots=True)
class Repaired:
    """Result of `repair`.

    Attributes:
        was_complete: whether the file was complete, so that it was left unchanged.
        messages: number of its messages.
        cut: number of bytes that were cut off, because they belong to an incomplete part.
    """

    was_complete: bool
    messages: int
    cut: int


def repair(path: str | os.PathLike[str]) -> Repaired:
    """Complete an MCAP file in place, so that every reader opens it. A complete file is left unchanged.

    Raises:
        ModelError: the file is missing, is not an MCAP file, is damaged within, is still written, or cannot be written.
        MissingDependencyError: the extra `record` is not installed.
    """
    try:
        from sensorium.record.mcap_file import McapFile
        from sensorium.record.staging import lock
    except ImportError as error:
        raise missing(error) from None
    try:
        with McapFile(path) as file:
            if file.is_complete:
                return Repaired(True, sum(file.counts.values()), 0)
    except ModelError:  # its summary is damaged, or it is damaged within, which the second attempt reports
        pass
    with McapFile(path, uses_summary=False) as file:
        end, ending = _ending(file)
        size = os.path.getsize(file.path)
        try:
            with open(file.path, "r+b") as out:
                lock(out)
                out.truncate(end)
                out.seek(end)
                out.write(ending)
        except OSError as error:
            raise ModelError(f"recording {file.path!r} cannot be completed: {error.strerror or error}.") from None
        return Repaired(False, sum(file.counts.values()), size - end)


def _ending(file: McapFile) -> tuple[int, bytes]:
    """Return where the complete part of a file ends, and the bytes that complete it."""
    from mcap import records
    from mcap.opcode import Opcode

    from sensorium.record.mcap_writer import RECORD, Summary, message_indexes

    summary = Summary(dict(file.schemas), dict(file.channels), counts=dict(file.counts))
    end, added, last, is_last = file.size, b"", -1, False
    places: dict[int, dict[int, int]] = {}
    """Chunk -> channel -> place of its message index."""
    sizes: dict[int, int] = {}
    for opcode, place, length in file.scan():
        at, size = place - RECORD.size, RECORD.size + length
        if opcode == Opcode.CHUNK:
            last, is_last = at, True
            places[at], sizes[at] = {}, 0
        elif opcode == Opcode.MESSAGE_INDEX and last in places:
            (channel,) = struct.unpack("<H", file.read(place, 2))
            places[last][channel] = at
            sizes[last] += size
        else:
            is_last = False
        if opcode == Opcode.ATTACHMENT:
            each = file.record(records.Attachment, place, length)
            index = at, size, each.log_time, each.create_time, len(each.data), each.name, each.media_type
            summary.attachments.append(records.AttachmentIndex(*index))
        elif opcode == Opcode.METADATA:
            summary.metadata.append(records.MetadataIndex(at, size, file.record(records.Metadata, place, length).name))
    for block in file.blocks:
        if block.is_chunk:
            if block.offset == last and is_last:  # some of its indexes may be missing
                end = block.offset + block.length
                added, places[last], _ = message_indexes(file.places(block), end)
                sizes[last] = len(added)
            head = file.chunk_head(block)
            summary.chunks.append(
                records.ChunkIndex(
                    block.length,
                    block.offset,
                    head.compression,
                    head.packed,
                    block.end,
                    sizes[block.offset],
                    places[block.offset],
                    block.start,
                    head.size,
                )
            )
    summary.start, summary.end = file.span
    return end, added + summary.ending(end + len(added))
