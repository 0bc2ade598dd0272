"""Queries of an SQLite file -> columns, without a Python object for each value: by ADBC where it is installed.

It reads only files whose columns hold what they are declared to hold: at the first value of another type it gives up, and the
caller reads row by row. What the values mean is not known here. Imported only where a file is large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import adbc_driver_manager as adbc  # not its dbapi, which imports pyarrow.dataset and pandas
import adbc_driver_sqlite
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyprof.arrays.arrow import to_numpy
from pyprof.arrays.growing import Growing, narrowest
from pyprof.parse.sources.sqlite_pages.btree import OddFile

__all__ = ["ArrowReader", "OddFile"]

_BATCH_ROWS = "65536"
_FAULTS = (adbc.Error, pa.ArrowException, OSError)


class ArrowReader:
    """A second connection to the file of a `Database`, read-only as that is."""

    def __init__(self, uri: str) -> None:
        try:
            self._database = adbc_driver_sqlite.connect(uri)
            self._connection = adbc.AdbcConnection(self._database)
        except _FAULTS as error:
            raise OddFile(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._database.close()

    def batches(self, sql: str, numbers: int, *, blobs: bool = False) -> Iterator[Any]:
        """The rows in Arrow batches: that many integer columns, and then texts or blobs.

        Raises OddFile, perhaps after some batches.
        """
        statement = adbc.AdbcStatement(self._connection)
        rest = pa.binary() if blobs else pa.string()
        try:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            for batch in pa.RecordBatchReader.from_stream(stream):
                types = batch.schema.types
                if types[:numbers] != [pa.int64()] * numbers or any(kind != rest for kind in types[numbers:]):
                    raise OddFile(f"types {types}")
                if any(column.null_count for column in batch.columns):
                    raise OddFile("a value that is missing")
                yield batch
        except _FAULTS as error:
            raise OddFile(str(error)) from error
        finally:
            statement.close()

    def integers(self, sql: str, columns: int, *, narrow: bool = False) -> list[npt.NDArray[Any]]:
        """The integer columns of a query; narrow: those in 32 bits that fit. Raises OddFile."""
        found = [Growing(np.int32 if narrow else np.int64) for _ in range(columns)]
        for batch in self.batches(sql, columns):
            for part, column in zip(found, batch.columns, strict=True):
                values = to_numpy(column)
                part.append(narrowest(values) if narrow else values)
        return [part.whole() for part in found]

    def integers_and_bytes(
        self, sql: str, columns: int, width: int
    ) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """The integer columns of a query, and of its last, of blobs of `width` bytes or none, the bytes and which have any.

        Raises OddFile.
        """
        numbers: list[list[Any]] = [[np.empty(0, np.int64)] for _ in range(columns)]
        packed, whole = [np.empty((0, width), np.uint8)], [np.empty(0, np.bool_)]
        for batch in self.batches(sql, columns, blobs=True):
            # Copies: a column of the batch would keep the whole batch with its blobs.
            for part, column in zip(numbers, batch.columns[:-1], strict=True):
                part.append(to_numpy(column).copy())
            has, rows = _rows_of_bytes(batch.column(columns), width)
            packed.append(rows)
            whole.append(has)
        return [np.concatenate(part) for part in numbers], np.concatenate(packed), np.concatenate(whole)


def _rows_of_bytes(blobs: Any, width: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
    """Which blobs of an array hold bytes, and those, rows x width; zeros where none."""
    _, offsets, data = blobs.buffers()
    bounds = np.frombuffer(offsets, np.int32)[blobs.offset : blobs.offset + len(blobs) + 1]
    has = np.diff(bounds) > 0
    rows = np.zeros((len(blobs), width), np.uint8)
    if has.any():
        rows[has] = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]].reshape(-1, width)
    return has, rows
