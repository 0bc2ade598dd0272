"""Tables of an SQLite file -> columns, row by row through SQLAlchemy: for everything that the page reader refuses.

Views, generated columns, cells of another type than declared, files with a journal beside them. Columns are found by
reflection, rows read by Core selects. The only module that imports SQLAlchemy.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from pyprof.columns.types import Ints
from pyprof.errors import InputError
from pyprof.parse.sources.sqlite_pages.btree import SLACK
from pyprof.parse.sources.sqlite_pages.reader import NOT_AN_INTEGER, Batch, Cell, PackedTexts

Rows = Sequence[Sequence[Cell]]
_BATCH_ROWS = 65_536


class RowReader:
    """Reads tables over the caller's connection; fault: turns an error of SQLite into one of ours."""

    def __init__(self, driver: sqlite3.Connection, fault: Callable[[Exception], InputError]) -> None:
        engine = sa.create_engine("sqlite://", creator=lambda: driver, poolclass=sa.StaticPool, pool_reset_on_return=None)
        # One connection for good: giving it back would end the caller's read transaction.
        self._connection = engine.connect()
        if not driver.in_transaction:  # SQLAlchemy rolls back what it finds when it first sees a connection
            driver.execute("BEGIN")
        self._fault = fault

    def integers(self, table: str, columns: Sequence[str]) -> list[Ints]:
        """Integer columns; -1 for NULL and anything that cannot be made an integer."""
        parts = []
        for rows in self._rows(table, columns, None):
            try:
                flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(columns))
            except (TypeError, ValueError, OverflowError):
                flat = np.fromiter((_integer(value) for row in rows for value in row), np.int64, len(rows) * len(columns))
            parts.append(flat.reshape(len(rows), len(columns)))
        stacked = np.concatenate([np.empty((0, len(columns)), np.int64), *parts])
        return [np.ascontiguousarray(column) for column in stacked.T]

    def batches(self, table: str, columns: Sequence[str], wide: str | None, *, blobs: bool = False) -> Iterator[Batch]:
        """Integer columns with the texts (or blobs) of one more, in batches; NULL is -1 or empty, a cell that is no integer
        NOT_AN_INTEGER, one that is no blob empty."""
        for rows in self._rows(table, columns, wide):
            numbers = [
                np.fromiter((v if type(v) is int else NOT_AN_INTEGER for v in column), np.int64, len(rows))
                for column in zip(*(row[: len(columns)] for row in rows), strict=True)
            ]
            yield Batch(numbers, _texts([row[-1] for row in rows] if wide is not None else [None] * len(rows), blobs))

    def _rows(self, table: str, columns: Sequence[str], wide: str | None) -> Iterator[Rows]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about declared types that SQLAlchemy does not know
                reflected = {found["name"] for found in sa.inspect(self._connection).get_columns(table)}
            # Columns without a type: values come as SQLite holds them.
            source = sa.table(table, *(sa.column(name) for name in reflected))
            chosen: list[sa.ColumnElement[Any]] = [
                sa.func.coalesce(source.c[name], -1) if name in reflected else sa.literal(-1) for name in columns
            ]
            chosen += [source.c[wide] if wide in reflected else sa.null()] if wide is not None else []
            result = self._connection.execute(sa.select(*chosen).select_from(source))
            yield from result.partitions(_BATCH_ROWS)
        except SQLAlchemyError as error:
            raise self._fault(getattr(error, "orig", None) or error) from error
        except UnicodeDecodeError as error:  # of a message that quotes the damaged file
            raise self._fault(error) from error


def _integer(value: Cell) -> int:
    try:
        number = int(value)  # type: ignore[arg-type]  # None is a TypeError
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(1 << 63) <= number < 1 << 63 else -1


def _texts(values: Sequence[Cell], blobs: bool) -> PackedTexts:
    """Cells of a column of texts (a number other than 0 as its digits) or of blobs."""
    if blobs:
        encoded = [value if isinstance(value, bytes) else b"" for value in values]
    else:
        encoded = [value if isinstance(value, bytes) else str(value).encode() if value else b"" for value in values]
    size = np.fromiter(map(len, encoded), np.int64, len(encoded))
    raw = np.frombuffer(b"".join([*encoded, bytes(SLACK)]), np.uint8)
    return PackedTexts(raw, np.cumsum(size) - size, size)
