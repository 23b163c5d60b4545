"""CDR (XCDR1, little endian, with its encapsulation header): single messages, and many messages from a template.

Lengths of strings and sequences rarely change from message to message, so a template holds the bytes of a whole message
and the places of its numbers. All rows of a batch are copies of the template, into which each field is written as one
column. One sequence per message may vary in length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from sensorium.errors import SensoriumError
from sensorium.readings import Array
from sensorium.record.ros2.message_types import MessageField, message_type

ENCAPSULATION = b"\0\1\0\0"
_COUNT = "<u4"


@dataclass(slots=True)
class _Writer:
    """Bytes of one message, and the place of each of its numbers: path -> (offset, element type, count or None)."""

    out: bytearray = field(default_factory=lambda: bytearray(ENCAPSULATION))
    places: dict[str, tuple[int, str, int | None]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Path of a sequence -> offset of the number of its elements."""
    aligned_to: list[tuple[int, int]] = field(default_factory=list)
    """Offset and alignment of each number, in order."""

    def put(self, dtype: str, value: Any, path: str = "", count: int | None = None) -> None:
        size = np.dtype(dtype).itemsize
        self.out += bytes(-(len(self.out) - len(ENCAPSULATION)) % size)
        self.aligned_to.append((len(self.out), size))
        if path:
            self.places[path] = (len(self.out), dtype, count)
        self.out += np.asarray(value, dtype).tobytes()

    def message(self, name: str, values: Mapping[str, Any], path: str) -> None:
        fields = message_type(name).fields
        unknown = values.keys() - {each.name for each in fields}
        if unknown:
            raise SensoriumError(f"message {name}: it has no field {', '.join(sorted(unknown))}")
        start = path and f"{path}."
        for each in fields:
            self.field(each, values.get(each.name), f"{start}{each.name}")
        dtypes = {each.dtype for each in fields}
        if (
            len(dtypes) == 1
            and "" not in dtypes
            and all(each.length is None and not each.is_sequence for each in fields)
        ):
            offset, dtype, _ = self.places[f"{start}{fields[0].name}"]
            self.places[path] = (offset, dtype, len(fields))

    def field(self, spec: MessageField, value: Any, path: str) -> None:
        if spec.length is None and not spec.is_sequence:
            self.single(spec, value, path)
            return
        items = [None] * (spec.length or 0) if value is None else value
        if spec.is_sequence:
            self.put(_COUNT, len(items))
            self.counts[path] = len(self.out) - 4
        elif len(items) != spec.length:
            raise SensoriumError(f"field {path}: got {len(items)} elements, expected {spec.length}")
        if not spec.dtype:
            for index, item in enumerate(items):
                self.single(spec, item, f"{path}[{index}]")
        elif len(items):
            self.put(spec.dtype, 0 if value is None else value, path, len(items))
            if value is None:
                self.out += bytes((len(items) - 1) * np.dtype(spec.dtype).itemsize)

    def single(self, spec: MessageField, value: Any, path: str) -> None:
        if spec.is_nested:
            self.message(spec.base, value or {}, path)
        elif spec.base == "string":
            text = str(value or "").encode() + b"\0"
            self.put(_COUNT, len(text))
            self.out += text
        else:
            self.put(spec.dtype, 0 if value is None else value, path)


def serialize(name: str, values: Mapping[str, Any]) -> bytes:
    """Return a message as CDR.

    Args:
        name: the message type.
        values: value of each field; nested messages are mappings too. A missing field is 0 or empty.

    Raises:
        SensoriumError: a field is unknown, or an array has another length.
        UnknownNameError: the type is unknown.
    """
    writer = _Writer()
    writer.message(name, values, "")
    return bytes(writer.out)


@cache
def element_dtype(name: str) -> np.dtype[Any]:
    """Return a message type as the element type of a NumPy array that has the bytes of a CDR sequence.

    The last element of a sequence has no padding at its end. See `trailing_bytes`.

    Raises:
        SensoriumError: a field is not a number, or the first field is not the widest.
    """
    fields = message_type(name).fields
    formats = [(each.name, each.dtype) for each in fields]
    if not all(dtype for _, dtype in formats) or any(each.is_sequence or each.length for each in fields):
        raise SensoriumError(
            f"message type {name} is not a struct of numbers, so sequences of it cannot vary in length"
        )
    dtype = np.dtype(formats, align=True)
    if np.dtype(formats[0][1]).itemsize != dtype.alignment or dtype.alignment > 4:
        raise SensoriumError(f"message type {name}: sequences of it need a first field of 4 bytes, the widest")
    return dtype


def trailing_bytes(dtype: np.dtype[Any]) -> int:
    """Return the number of padding bytes at the end of an element."""
    if dtype.names is None or dtype.fields is None:
        return 0
    part, offset = dtype.fields[dtype.names[-1]][:2]
    return int(dtype.itemsize - offset - part.itemsize)


class Template:
    """Messages of one type that differ in numbers, and at most in the length of one sequence.

    Args:
        name: the message type.
        values: value of each field, one mapping per kind of row (one per environment). All must have strings and
            sequences of the same lengths.
        varying: path of the sequence whose length differs from row to row; empty for none. Its `values` are empty.

    Raises:
        SensoriumError: the values differ in length between rows, or a number after `varying` needs alignment.
    """

    def __init__(self, name: str, values: Sequence[Mapping[str, Any]], varying: str = "") -> None:
        writers = [_Writer() for _ in values]
        for writer, each in zip(writers, values, strict=True):
            writer.message(name, each, "")
        first = writers[0]
        if any(writer.places != first.places or len(writer.out) != len(first.out) for writer in writers):
            raise SensoriumError(f"message {name}: strings and sequences of the rows differ in length")
        self.name, self.varying = name, varying
        self.size = self.head = len(first.out)
        self._places = first.places
        self.has_header = "header.stamp.sec" in first.places
        if varying:
            self._places[varying] = (first.counts[varying], _COUNT, None)
            self.head = first.counts[varying] + 4
            if any(offset >= self.head and size > 1 for offset, size in first.aligned_to):
                raise SensoriumError(f"message {name}: numbers after {varying} would move with its length")
        self._rows = np.frombuffer(b"".join(writer.out for writer in writers), f"V{self.size}")
        self._dtypes: dict[tuple[str, ...], np.dtype[Any]] = {}

    def _dtype(self, paths: tuple[str, ...]) -> np.dtype[Any]:
        """Return a message as a record of the numbers at some paths."""
        if paths not in self._dtypes:
            missing = [path for path in paths if path not in self._places]
            if missing:
                raise SensoriumError(f"message {self.name}: no number at {', '.join(missing)}")
            places = [self._places[path] for path in paths]
            self._dtypes[paths] = np.dtype({
                "names": list(paths),
                "formats": [dtype if count is None else (dtype, (count,)) for _, dtype, count in places],
                "offsets": [offset for offset, _, _ in places],
                "itemsize": self.size,
            })  # fmt: skip
        return self._dtypes[paths]

    def fill(self, kinds: Array, columns: Mapping[str, Any]) -> Array:
        """Return messages, uint8 `[row, size]`.

        Args:
            kinds: integers `[row]`, which of the template's `values` each row starts from.
            columns: path -> `[row]`, `[row, element]` or one value for all rows. The path of a message of equal
                numbers, such as a vector, is one column of several elements.

        Raises:
            SensoriumError: a path is not that of a number.
        """
        out = self._rows[kinds].view(self._dtype(tuple(columns)))
        for path, column in columns.items():
            out[path] = column
        return out.view(np.uint8).reshape(len(out), self.size)

    def fill_varying(
        self, kinds: Array, columns: Mapping[str, Any], elements: Array, counts: Array
    ) -> tuple[Array, Array]:
        """Return messages one after the other; the length of their varying sequence differs between them.

        Args:
            kinds: integers `[row]`, which of the template's `values` each row starts from.
            columns: path -> `[row]`, `[row, element]` or one value for all rows.
            elements: elements of all sequences, one row after the other.
            counts: number of elements of each row, `[row]`.

        Returns:
            The bytes, uint8, and the start of each message, int64 `[row + 1]`.
        """
        fixed = self.fill(kinds, {**columns, self.varying: counts})
        dtype = elements.dtype
        step, trim, tail = dtype.itemsize, trailing_bytes(dtype), self.size - self.head
        payload = np.ascontiguousarray(elements).view(np.uint8).reshape(-1)
        sizes = counts * step - trim * (counts > 0)
        starts = np.concatenate(([0], np.cumsum(self.size + sizes, dtype=np.int64)))
        out = np.empty(int(starts[-1]), np.uint8)
        begins = np.cumsum(counts, dtype=np.int64) - counts
        spans = zip(starts[:-1].tolist(), sizes.tolist(), (begins * step).tolist(), strict=True)
        for row, (start, size, begin) in enumerate(spans):
            middle = start + self.head
            out[start:middle] = fixed[row, : self.head]
            out[middle : middle + size] = payload[begin : begin + size]
            if tail:
                out[middle + size : middle + size + tail] = fixed[row, self.head :]
        return out, starts


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """Encoded messages, in order of their log time.

    Iteration yields ``(topic, log_time, data)`` of each message: the index of its topic, the time in ns, and a
    read-only memoryview of its CDR bytes.

    Attributes:
        topics: int64 `[message]`, index of the topic.
        log_times: int64 `[message]`, ns.
        data: uint8, all messages one after the other.
        starts: int64 `[message + 1]`, start of each message in `data`.
    """

    topics: Array
    log_times: Array
    data: Array
    starts: Array

    @classmethod
    def of_rows(cls, topics: Array, log_times: Array, rows: Array) -> MessageBlock:
        """Return a block of messages of one length, uint8 `[message, size]`."""
        return cls(topics, log_times, rows.reshape(-1), np.arange(len(rows) + 1) * rows.shape[1])

    def __len__(self) -> int:
        return len(self.topics)

    def __iter__(self) -> Iterator[tuple[int, int, memoryview]]:
        memory = self.data.data.toreadonly()
        starts = self.starts.tolist()
        for index, (topic, time) in enumerate(zip(self.topics.tolist(), self.log_times.tolist(), strict=True)):
            yield topic, time, memory[starts[index] : starts[index + 1]]
