"""Records <-> a Parquet file that DuckDB, pandas and polars can group as it lies. pyarrow is needed (the extra `parquet`)."""

from __future__ import annotations

from pyprof.parse.records.parquet.reader import read
from pyprof.parse.records.parquet.schema import need_pyarrow
from pyprof.parse.records.parquet.writer import write

__all__ = ["need_pyarrow", "read", "write"]
