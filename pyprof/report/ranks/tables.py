"""A table of columns -> plain text, aligned text, CSV, JSON lines or a Parquet file.

Texts are written as prof writes its own; a Parquet file has the columns' keys, whole numbers as they are, fractions as doubles,
and null for what is unknown. Nothing here knows what is in a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from pyprof.errors import ToolError
from pyprof.prof.columns import Column, sort_key
from pyprof.prof.frame import Floats, Frame, Numbers, Texts, Values
from pyprof.prof.writers import write_columnated, write_csv, write_jsonl, write_plain

__all__ = ["FORMATS", "Field", "Table", "micro"]

FORMATS = ("table", "plain", "csv", "jsonl")


@dataclass(frozen=True)
class Field:
    """One column of a table: its key, its header, what it means, its values."""

    key: str
    header: str
    help: str
    values: Values


def micro(nanoseconds: Any) -> Floats:
    """Microseconds with three digits; NaN stays unknown."""
    return Floats(np.asarray(nanoseconds, np.float64) / 1e3, 3)


@dataclass(frozen=True)
class Table:
    """Columns of equal length under a name and a line that says what a row is."""

    name: str
    title: str
    fields: tuple[Field, ...]

    def __len__(self) -> int:
        first = self.fields[0].values
        return len(first.codes if isinstance(first, Texts) else first.values)

    def take(self, rows: npt.NDArray[np.int64]) -> Table:
        """These rows only."""
        fields = tuple(Field(f.key, f.header, f.help, f.values.take(rows)) for f in self.fields)
        return Table(self.name, self.title, fields)

    def largest(self, rows: int, key: str) -> Table:
        """The rows with most of a column, most first where not all are shown, the unknown last; no key: the first rows."""
        order = np.arange(len(self))
        if len(self) > rows and key:
            order = np.argsort(sort_key(next(f.values for f in self.fields if f.key == key)), kind="stable")
        return self.take(order[:rows])

    def cut(self, width: int) -> Table:
        """Texts with no more than their last characters."""

        def short(values: Values) -> Values:
            if not isinstance(values, Texts):
                return values
            return Texts(values.codes, [text if len(text) <= width else f"...{text[3 - width :]}" for text in values.pool])

        return Table(self.name, self.title, tuple(Field(f.key, f.header, f.help, short(f.values)) for f in self.fields))

    def write(self, form: str, stream: TextIO) -> None:
        """As one of FORMATS."""
        columns = [_column(field) for field in self.fields]
        values = [field.values for field in self.fields]
        if form == "table":
            write_columnated(columns, values, stream)
        else:
            {"plain": write_plain, "csv": write_csv, "jsonl": write_jsonl}[form](columns, values, stream)

    def write_parquet(self, path: Path) -> None:
        """Raises OSError where that cannot be, ToolError where pyarrow is not there."""
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise ToolError("Parquet needs pyarrow, which is not there", "pip install 'pyprof[parquet]', or --csv") from error
        arrays = {field.key: _arrow(pyarrow, field.values) for field in self.fields}
        pyarrow.parquet.write_table(pyarrow.table(arrays), path, compression="zstd")


def _column(field: Field) -> Column:
    def given(frame: Frame) -> Values:
        return field.values

    return Column(field.key, field.header, field.help, given, 2)


def _arrow(pa: Any, values: Values) -> Any:
    from pyprof.arrays.arrow import to_arrow, to_arrow_texts

    if isinstance(values, Texts):
        unknown = values.codes < 0
        return pa.DictionaryArray.from_arrays(to_arrow(values.codes.astype(np.int32), unknown), to_arrow_texts(values.pool))
    if isinstance(values, Numbers):
        return to_arrow(values.values, values.values < 0)
    return to_arrow(values.values, np.isnan(values.values))
