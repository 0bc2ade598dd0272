"""Parquet files of one row group each -> one file with all of them: their bytes one after another, and one footer.

Only places in the file change: those of columns, by how far the bytes of their row group have moved. The format is
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift. What columns hold is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

from pyprof.arrays.types import Bytes
from pyprof.parse.records.parquet.compact import Reader, Struct, field, written

MAGIC = b"PAR1"
_TAIL_BYTES = 8  # after the footer its length and MAGIC

# Ids of fields: of the file, of a row group, of one of its columns, and of what is said of that column.
_ROWS, _GROUPS = 3, 4
_COLUMNS, _GROUP_ROWS, _GROUP_PLACE, _ORDINAL = 1, 3, 5, 7
_FACTS, _COLUMN_PLACES = 3, (2, 4, 6)  # of the column, of its two indexes
_FACT_PLACES = (9, 10, 11, 14)  # of its first page of values, of an index, of the dictionary, of a Bloom filter


def join(target: BinaryIO, empty: Bytes, files: Iterable[Bytes]) -> None:
    """Write a file with the row groups of others. empty: a file without any, which has all that is true of the whole.

    Raises OSError where that fails.
    """
    target.write(MAGIC)
    end, groups, rows = len(MAGIC), list[bytes](), 0
    for file in files:
        footer, size = _footer(file)
        target.write(file[len(MAGIC) : size].data)
        for group in _value(footer, _GROUPS)[1]:
            _move(group, end - len(MAGIC), len(groups))
            groups.append(written(group))  # a tenth of the memory
            rows += _value(group, _GROUP_ROWS)
        end += size - len(MAGIC)
    footer, _ = _footer(empty)
    _put(footer, _ROWS, rows)
    _value(footer, _GROUPS)[1][:] = groups
    raw = written(footer)
    target.write(raw + len(raw).to_bytes(4, "little") + MAGIC)


def _footer(file: Bytes) -> tuple[Struct, int]:
    """The footer of a file, and where that begins."""
    end = len(file) - _TAIL_BYTES
    begin = end - int.from_bytes(file[end : end + 4], "little")
    return Reader(bytes(file[begin:end])).struct(), begin


def _value(struct: Struct, number: int) -> Any:
    found = field(struct, number)
    assert found is not None, "a Parquet file without a field that each must have"
    return found[2]


def _put(struct: Struct, number: int, value: Any) -> None:
    found = field(struct, number)
    if found is not None:
        found[2] = value


def _move(group: Struct, distance: int, ordinal: int) -> None:
    """Say of a row group that it stands so many bytes further on, and its number."""
    _put(group, _ORDINAL, ordinal)
    _shift(group, (_GROUP_PLACE,), distance)
    for column in _value(group, _COLUMNS)[1]:
        _shift(column, _COLUMN_PLACES, distance)
        _shift(_value(column, _FACTS), _FACT_PLACES, distance)


def _shift(struct: Struct, places: tuple[int, ...], distance: int) -> None:
    for found in struct:
        if found[0] in places and found[2]:  # 0: there is none
            found[2] += distance
