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

from pyprof.tables import table as tables
from pyprof.tables.formats import FORMATS as _FORMATS
from pyprof.tables.table import Fractions, Header, Texts, Values, sort_key

__all__ = ["FORMATS", "Field", "Table", "micro"]

FORMATS = ("table", "plain", "csv", "jsonl")


@dataclass(frozen=True)
class Field:
    """One column of a table: its key, its header, what it means, its values."""

    key: str
    header: str
    help: str
    values: Values


def micro(nanoseconds: Any) -> Fractions:
    """Microseconds with three digits; NaN stays unknown."""
    return Fractions.not_nan(np.asarray(nanoseconds, np.float64) / 1e3, 3)


@dataclass(frozen=True)
class Table:
    """Columns of equal length under a name and a line that says what a row is."""

    name: str
    title: str
    fields: tuple[Field, ...]

    def __len__(self) -> int:
        first = self.fields[0].values
        return len(first.unknown)

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
        _FORMATS[form].write(self._plain(), stream)

    def write_parquet(self, path: Path) -> None:
        """Raises OSError where that cannot be, ToolError where pyarrow is not there."""
        with path.open("w", encoding="utf-8") as stream:
            _FORMATS["parquet"].write(self._plain(), stream)

    def _plain(self) -> tables.Table:
        headers = [Header(field.key, field.header, field.help, width=2) for field in self.fields]
        return tables.Table(headers, [field.values for field in self.fields], self.name)
