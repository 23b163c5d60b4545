"""Parquet files of a shard: a column per number of small fields, a list per row of large ones, bytes for images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np

from sensorium.errors import MissingDependencyError
from sensorium.jobs.rows import HEAD, Block, Column, SensorRows, width_of
from sensorium.readings import Array
from sensorium.record.export.table_files import TableField

WIDEST = 64
"""Maximum number of values per row with a column each."""
GROUP_BYTES, GROUP_BLOCKS = 64_000_000, 1000
"""Size of the values of a row group in bytes, and number of its blocks."""
ABOUT = "sensorium"
"""Name of the metadata of a file: `SensorRows.about` as JSON."""


def arrow() -> Any:
    """Return pyarrow.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError(
            "Parquet files need pyarrow, which is not installed: pip install 'sensorium[generate]'."
        ) from None
    return pyarrow


class ParquetRows:
    """Open Parquet file for the rows of one sensor.

    A field with up to 64 values has a column ``FIELD.AXIS`` per value. A larger one has one column: a list with all
    values of a row in C order, or, for bytes such as those of colour images, binary. The metadata of a column has unit,
    frame, and the shape of a value. A ragged field has a list of its items.

    Args:
        file: the file, which stays open.
        rows: the fields of the rows.
    """

    def __init__(self, file: IO[bytes], rows: SensorRows) -> None:
        self._arrow = pa = arrow()
        fields, ragged = self._fields, self._ragged = rows.fields, rows.ragged
        columns = [each for field in fields for each in _columns(pa, field, field.name in ragged)]
        schema = pa.schema(columns, metadata={ABOUT: json.dumps(rows.about)})
        floats = [field for field in fields if np.dtype(field.dtype).kind == "f" and field not in HEAD]
        split = [path for field in floats for path in _paths(field, field.name in ragged)]
        whole = [path for field in fields if field not in floats for path in _paths(field, field.name in ragged)]
        self._schema = schema
        self._writer = pa.parquet.ParquetWriter(
            file,
            schema,
            compression="zstd",
            compression_level=-1,
            use_dictionary=whole,
            use_byte_stream_split=split,
            write_statistics=[field.name for field in HEAD],
        )
        self._blocks: list[Block] = []
        self._size = 0

    def write(self, block: Block) -> None:
        """Add rows."""
        self._blocks.append(block)
        self._size += block.nbytes
        if self._size >= GROUP_BYTES or len(self._blocks) >= GROUP_BLOCKS:
            self._write_group()

    def _write_group(self) -> None:
        blocks, self._blocks, self._size = self._blocks, [], 0
        if not blocks:
            return
        tables = [
            self._arrow.Table.from_arrays(
                [
                    each
                    for field in self._fields
                    for each in _arrays(self._arrow, field, block.columns[field.name], field.name in self._ragged)
                ],
                schema=self._schema,
            )
            for block in blocks
        ]
        whole = self._arrow.concat_tables(tables)
        self._writer.write_table(whole, row_group_size=max(1, len(whole)))

    def close(self) -> None:
        """Complete the file."""
        self._write_group()
        self._writer.close()

    def abort(self) -> None:
        """Write nothing more: after an error the file is closed."""
        self._writer.is_open = False


def read_rows(file: IO[bytes]) -> tuple[SensorRows, Iterator[Mapping[str, Column]]]:
    """Return the fields and the rows of a file that `ParquetRows` wrote, a row group at a time."""
    opened = arrow().parquet.ParquetFile(file)
    rows = SensorRows.described(json.loads(opened.schema_arrow.metadata[ABOUT.encode()]))

    def tables() -> Iterator[Mapping[str, Column]]:
        for number in range(opened.num_row_groups):
            table = opened.read_row_group(number)
            yield {field.name: _values(table, field, field.name in rows.ragged) for field in rows.fields}

    return rows, tables()


def _columns(pa: Any, field: TableField, ragged: bool) -> list[Any]:
    about = {"unit": field.unit, "frame": field.frame, "shape": ",".join(map(str, field.shape))}
    kind = pa.from_numpy_dtype(np.dtype(field.dtype))
    if ragged:
        item = kind if not field.shape else pa.list_(pa.field("item", kind, nullable=False), width_of(field))
        return [pa.field(field.name, pa.list_(pa.field("item", item, nullable=False)), nullable=False, metadata=about)]
    if width_of(field) <= WIDEST:
        return [pa.field(name, kind, nullable=False, metadata=about) for name in field.columns]
    whole = pa.list_(pa.field("item", kind, nullable=False), width_of(field))
    if field.dtype == "uint8":
        whole = pa.binary(width_of(field))
    return [pa.field(field.name, whole, nullable=False, metadata=about)]


def _paths(field: TableField, ragged: bool) -> list[str]:
    """Return the paths of the leaf columns of a field."""
    if ragged:
        return [f"{field.name}.list.element" + (".list.element" if field.shape else "")]
    if width_of(field) <= WIDEST:
        return field.columns
    return [field.name if field.dtype == "uint8" else f"{field.name}.list.element"]


def _arrays(pa: Any, field: TableField, column: Column, ragged: bool) -> list[Any]:
    flat = column.values.reshape(-1)
    width = width_of(field)
    if ragged:
        assert column.counts is not None
        items = pa.array(flat)
        if field.shape:
            items = _listed(pa, items, width)
        offsets = np.concatenate(([0], np.cumsum(column.counts))).astype(np.int32)
        kind = pa.list_(pa.field("item", items.type, nullable=False))
        return [pa.ListArray.from_arrays(pa.array(offsets), items, type=kind)]
    if width <= WIDEST:
        return [pa.array(np.ascontiguousarray(each)) for each in column.values.reshape(len(column.values), width).T]
    if field.dtype == "uint8":
        data = pa.py_buffer(np.ascontiguousarray(flat))
        return [pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(column.values), [None, data])]
    return [_listed(pa, pa.array(flat), width)]


def _listed(pa: Any, items: Any, width: int) -> Any:
    kind = pa.list_(pa.field("item", items.type, nullable=False), width)
    return pa.FixedSizeListArray.from_arrays(items, type=kind)


def _values(table: Any, field: TableField, ragged: bool) -> Column:
    rows, width = len(table), width_of(field)
    if ragged:
        lists = table[field.name].combine_chunks()
        items = lists.flatten()
        flat: Array = (items.flatten() if field.shape else items).to_numpy(zero_copy_only=False)
        return Column(flat.reshape(-1, *field.shape), lists.value_lengths().to_numpy())
    if width <= WIDEST:
        columns: Array = np.stack([table[name].to_numpy() for name in field.columns], axis=-1)
        return Column(columns.reshape(rows, *field.shape))
    whole = table[field.name].combine_chunks()
    if field.dtype == "uint8":
        flat = np.frombuffer(b"".join(whole.to_pylist()), np.uint8)
    else:
        flat = whole.flatten().to_numpy(zero_copy_only=False)
    return Column(flat.reshape(rows, *field.shape))
