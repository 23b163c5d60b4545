"""Files of tables: CSV, NPZ and Parquet, written block by block."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from sensorium.errors import MissingDependencyError
from sensorium.readings import Array
from sensorium.spec import VECTOR_AXES, unit_of


@dataclass(frozen=True, slots=True)
class TableField:
    """One value of each row of a table.

    Args:
        name: its name.
        dtype: NumPy name of the element type.
        axes: name of each axis of a value.
        shape: size of each axis of a value.
        unit: SI unit; empty for none.
        frame: frame of the coordinates; empty for none.
    """

    name: str
    dtype: str
    axes: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    unit: str = ""
    frame: str = ""

    @property
    def columns(self) -> list[str]:
        """Names of its elements: ``field.x``, ``field.0.x``; the components of vectors are letters."""
        labels = [
            tuple(axis) if axis in VECTOR_AXES and len(axis) == size else tuple(map(str, range(size)))
            for axis, size in zip(self.axes, self.shape, strict=True)
        ]
        return [".".join((self.name, *each)) for each in product(*labels)]


class TableFile(Protocol):
    """Open file of one table."""

    def write(self, values: Sequence[Array]) -> None:
        """Add rows: one array `[row, ...]` per field."""

    def close(self) -> None:
        """Complete the file."""


class CsvFile:
    """Table as CSV: a header, then a line per row, with numbers that give the same value when read.

    Args:
        path: the file.
        fields: the fields of the table.
    """

    def __init__(self, path: Path, fields: Sequence[TableField]) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._write([[_quoted(name) for field in fields for name in field.columns]])

    def _write(self, rows: Sequence[Sequence[str]]) -> None:
        self._file.writelines(",".join(row) + "\n" for row in rows)

    def write(self, values: Sequence[Array]) -> None:
        """Add rows."""
        flat = [each.astype(np.uint8) if each.dtype == bool else each for each in map(_flat, values)]
        texts = [each.astype(np.str_).astype(object) for each in flat]  # the shortest number that gives the value
        self._write(np.concatenate(texts, axis=1).tolist())

    def close(self) -> None:
        """Complete the file."""
        self._file.close()


class NpzFile:
    """Table as NPZ: one array `[row, ...]` per field.

    Args:
        path: the file.
        fields: the fields of the table.
    """

    def __init__(self, path: Path, fields: Sequence[TableField]) -> None:
        self._path, self._fields, self._count = path, fields, 0
        path.write_bytes(b"")
        self._columns: list[IO[bytes]] = [tempfile.TemporaryFile(dir=path.parent) for _ in fields]

    def write(self, values: Sequence[Array]) -> None:
        """Add rows."""
        for column, array in zip(self._columns, values, strict=True):
            column.write(np.ascontiguousarray(array).data)
        self._count += len(values[0])

    def close(self) -> None:
        """Complete the file."""
        with zipfile.ZipFile(self._path, "w") as archive:
            for field, column in zip(self._fields, self._columns, strict=True):
                with column, archive.open(f"{field.name}.npy", "w", force_zip64=True) as out:
                    dtype: Any = np.dtype(field.dtype)
                    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
                    np.lib.format.write_array_header_1_0(out, {**about, "shape": (self._count, *field.shape)})
                    column.seek(0)
                    shutil.copyfileobj(column, out)


class ParquetFile:
    """Table as Parquet, with the unit and the frame of each column in its metadata.

    Args:
        path: the file.
        fields: the fields of the table.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """

    def __init__(self, path: Path, fields: Sequence[TableField]) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise MissingDependencyError(
                "Parquet files need pyarrow, which is not installed: pip install 'sensorium[parquet]'."
            ) from None
        self._arrow: Any = pyarrow
        self._schema: Any = pyarrow.schema([
            pyarrow.field(
                name, pyarrow.from_numpy_dtype(np.dtype(field.dtype)), nullable=False,
                metadata={"unit": unit_of(field.unit, field.shape, element), "frame": field.frame},
            )
            for field in fields for element, name in enumerate(field.columns)
        ])  # fmt: skip
        whole = [name for field in fields if np.dtype(field.dtype).kind != "f" for name in field.columns]
        self._writer: Any = parquet.ParquetWriter(path, self._schema, use_dictionary=whole)  # measured values differ

    def write(self, values: Sequence[Array]) -> None:
        """Add rows."""
        columns = [self._arrow.array(np.ascontiguousarray(each)) for array in values for each in _flat(array).T]
        self._writer.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()


FILES: dict[str, type[CsvFile] | type[NpzFile] | type[ParquetFile]] = {
    "csv": CsvFile,
    "npz": NpzFile,
    "parquet": ParquetFile,
}
"""Format, and end of the names of its files -> class."""


def _flat(array: Array) -> Array:
    """Return an array `[row, ...]` as `[row, column]`."""
    return array.reshape(len(array), prod(array.shape[1:]))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(each in name for each in ',"\r\n') else name
