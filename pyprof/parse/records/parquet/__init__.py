"""Records <-> a Parquet file that DuckDB, pandas and polars can group as it lies. pyarrow is needed (the extra `parquet`)."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from pyprof.errors import install_extra, unusable
from pyprof.model.records import Records

__all__ = ["need_pyarrow", "read", "rows_of", "write"]


def need_pyarrow() -> None:
    """Raise ToolError if pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise unusable("Parquet", "pyarrow", error, f"{install_extra('parquet')}, or use .dict") from error


def read(path: Path) -> Records:
    """The records of a file that `write` wrote; columns are read when first used.

    Raises NotACapture for a Parquet file that pyprof did not write, InputError for another version or damage, ToolError without
    pyarrow.
    """
    need_pyarrow()
    from pyprof.parse.records.parquet.reader import read_file

    return read_file(path)


def rows_of(path: Path) -> int:
    """Number of records in a file, from its footer; 0 if it cannot be read."""
    need_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return 0


def write(records: Records, target: Path | BinaryIO) -> None:
    """Write all records to a file. Raises OSError if that fails, ToolError without pyarrow."""
    need_pyarrow()
    from pyprof.parse.records.parquet.writer import write_file

    write_file(records, target)
