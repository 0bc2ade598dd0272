"""A table -> Python objects, a DataFrame, or HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from pyprof.tables.names import text_of
from pyprof.tables.readable import readable
from pyprof.tables.table import Fractions, Integers, Source, Table, Texts, Values, choose, printed

if TYPE_CHECKING:
    import pandas


class Rows:
    """A table with a length, iteration (each row a dict by column key, None for unknown) and a view in notebooks."""

    @cached_property
    def _table(self) -> Table:
        raise NotImplementedError

    def _brief(self) -> Table:
        """The rows and columns to show in a notebook."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._table.rows)

    def __iter__(self) -> Iterator[dict[str, object]]:
        rows = self._table
        keys = [header.key for header in rows.headers]
        return (dict(zip(keys, row, strict=True)) for row in zip(*map(_python, rows.values), strict=True))

    def _repr_html_(self) -> str:
        return html(self._brief(), repr(self))


def html(table: Table, caption: str) -> str:
    """An HTML table with human units, every text escaped."""
    from html import escape

    brief = readable(table)
    sides = ["right" if not isinstance(values, Texts) or values.right else "left" for values in brief.values]
    cells = [printed(header.shown(values)) for header, values in zip(brief.headers, brief.values, strict=True)]

    def line(tag: str, row: Iterable[str]) -> str:
        made = zip(sides, map(escape, map(text_of, row)), strict=True)
        return "".join(["<tr>", *(f'<{tag} style="text-align: {side}">{text}</{tag}>' for side, text in made), "</tr>"])

    lines = [line("th", (header.text for header in brief.headers)), *(line("td", row) for row in zip(*cells, strict=True))]
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{above}{''.join(lines)}</table>"


def chosen(source: Source, columns: str, aliases: Mapping[str, str] | None = None) -> Table:
    """The columns of a comma-separated list, or all. Raises UsageError for an unknown column."""
    headers = choose(columns, source.headers, aliases) if columns and columns != "all" else source.headers
    return Table(headers, [source.of(header.key) for header in headers])


def _python(values: Values) -> list[object]:
    """A column as Python objects: None for unknown, lists in a column of lists."""
    if isinstance(values, Texts):
        pool: list[object] = [*(values.pool if values.lists is None else map(list, values.lists)), None]
        return [pool[code] for code in values.codes.tolist()]
    return [None if unknown else value for value, unknown in zip(values.values.tolist(), values.unknown.tolist(), strict=True)]


def to_pandas(rows: Table) -> pandas.DataFrame:
    """A DataFrame. Integers are Int64, fractions floats, texts categories, unknown values NA."""
    import numpy as np
    import pandas as pd

    series: dict[str, object] = {}
    for header, values in zip(rows.headers, rows.values, strict=True):
        if isinstance(values, Fractions):
            series[header.key] = np.where(values.unknown, np.nan, values.values)
        elif isinstance(values, Integers):
            if values.values.dtype == np.object_:  # sums beyond 64 bits are Python's own integers
                series[header.key] = [pd.NA if value is None else value for value in _python(values)]
                continue
            numbers = pd.array(values.values, dtype="Int64")
            numbers[values.unknown] = pd.NA
            series[header.key] = numbers
        else:
            pool = pd.Index(values.pool)
            codes = np.append(pd.factorize(pool)[0], -1)
            series[header.key] = pd.Categorical.from_codes(codes[values.codes], categories=pool.unique())
    return pd.DataFrame(series)
