"""Repair of an MCAP file whose writer was killed, or that lost bytes: all undamaged parts, with a new index."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sensorium.errors import ModelError
from sensorium.record.recorder import missing

if TYPE_CHECKING:
    from sensorium.record.mcap_file import McapFile


@dataclass(frozen=True, slots=True)
class Repaired:
    """Result of `repair`.

    Attributes:
        path: the complete file.
        was_complete: whether the file was complete, so that it was left unchanged.
        messages: number of its messages.
        cut: number of bytes of damaged and incomplete parts, which are omitted.
    """

    path: Path
    was_complete: bool
    messages: int
    cut: int


def repair(path: str | os.PathLike[str], *, in_place: bool = False) -> Repaired:
    """Write a complete copy of an MCAP file, which every reader opens, beside it: ``run.repaired.mcap``.

    The copy has all undamaged parts. After damaged bytes, it continues with the next chunk. A complete file without
    damage is left unchanged, and nothing is written.

    Args:
        path: the file.
        in_place: whether the copy replaces the file.

    Raises:
        ModelError: the file is missing, is not an MCAP file, or is still written, or the copy cannot be written.
        MissingDependencyError: the extra `record` is not installed.
    """
    try:
        from sensorium.record.mcap_file import McapFile
        from sensorium.record.mcap_writer import MAGIC
        from sensorium.record.staging import lock, staged
    except ImportError as error:
        raise missing(error) from None
    try:
        with McapFile(path) as file:
            if file.is_complete:
                for block in file.blocks:
                    file.messages(block)
                return Repaired(Path(path), True, sum(file.counts.values()), 0)
    except ModelError:  # which the second attempt reports, if nothing can be read
        pass
    with McapFile(path, recovers=True) as file:
        source = Path(path).resolve()
        target = source if in_place else source.with_name(f"{source.stem}.repaired{source.suffix}")
        try:
            with staged(target.parent) as folder, open(folder / target.name, "wb") as out:
                with open(source, "rb") as written:
                    lock(written)
                _write(file, out)
        except OSError as error:
            raise ModelError(f"recording {file.path!r} cannot be repaired: {error.strerror or error}.") from None
        kept = sum(size for _, _, size in file.records)
        return Repaired(target, False, sum(file.counts.values()), file.size - len(MAGIC) - kept)


def _write(file: McapFile, out: IO[bytes]) -> None:
    """Write the records of a file with new indexes."""
    from mcap import records
    from mcap.opcode import Opcode

    from sensorium.record.mcap_file import WINDOW
    from sensorium.record.mcap_writer import MAGIC, RECORD, Summary, message_indexes, packed

    summary = Summary(file.schemas, file.channels, counts=file.counts)
    summary.start, summary.end = file.span
    blocks = {block.offset: block for block in file.blocks}
    out.write(MAGIC)
    for opcode, at, size in file.records:
        start = out.tell()
        if opcode == Opcode.MESSAGE_INDEX:
            continue
        for begin in range(at, at + size, WINDOW):
            out.write(file.read(begin, min(WINDOW, at + size - begin)))
        if opcode == Opcode.HEADER:  # the chunk with the first definition may be damaged
            out.writelines(packed(each) for each in (*file.schemas.values(), *file.channels.values()))
        elif opcode == Opcode.CHUNK:
            block, (plain, _, name, packed_size, _) = blocks[at], file.chunk_head(blocks[at])
            assert block.index is not None  # of a file that was read without its summary
            index, places, _ = message_indexes(block.index, start + size)
            out.write(index)
            about: Any = start, name, packed_size, block.end, len(index), places, block.start, plain
            summary.chunks.append(records.ChunkIndex(size, *about))
        elif opcode == Opcode.ATTACHMENT:
            each = file.record(records.Attachment, at + RECORD.size, size - RECORD.size)
            about = each.log_time, each.create_time, len(each.data), each.name, each.media_type
            summary.attachments.append(records.AttachmentIndex(start, size, *about))
        elif opcode == Opcode.METADATA:
            name = file.record(records.Metadata, at + RECORD.size, size - RECORD.size).name
            summary.metadata.append(records.MetadataIndex(start, size, name))
    out.write(summary.ending(out.tell()))
