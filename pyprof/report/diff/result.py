"""A comparison -> an object for Python: rows, verdict and JSON; it prints what `pyprof diff` prints."""

from __future__ import annotations

import io
import json
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from pyprof.messages import one_line
from pyprof.report.diff.compare import Comparison, StepChange
from pyprof.report.diff.document import head, rows_table, short_table, to_json
from pyprof.tables.rows import Rows, chosen, html, to_pandas
from pyprof.tables.table import Table

if TYPE_CHECKING:
    import pandas

_WIDTH = 100  # of the lines of text


class Diff(Rows):
    """The comparison of two captures. Iteration and len() cover the rows of its table, the largest change first.

    files: before and after; comparison: every op by itself, under `changes`, `added` and `removed`.
    """

    def __init__(self, files: tuple[str, str], comparison: Comparison) -> None:
        self.files, self.comparison = files, comparison

    @property
    def comparable(self) -> bool:
        """Whether both captures show the same program and amount of work."""
        return self.comparison.judgement[0]

    @property
    def why(self) -> str:
        """The reason for `comparable`."""
        return self.comparison.judgement[1]

    @property
    def before_ns(self) -> int:
        """Kernel time of the first capture; without a GPU the time of its ops."""
        return self.comparison.before_ns

    @property
    def after_ns(self) -> int:
        """Kernel time of the second capture."""
        return self.comparison.after_ns

    @property
    def step(self) -> StepChange | None:
        """Median step times and whether they differ beyond noise; None unless both captures have steps."""
        return self.comparison.step

    def __str__(self) -> str:
        from pyprof.tables.terminal import Screen, write_on

        text, table = io.StringIO(), short_table(self.comparison)
        write_on(Screen(_WIDTH, len(table.rows), all_rows=True), [table], text)
        return "\n".join([*self._head(), "", text.getvalue().rstrip()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = "<br>".join(map(escape, self._head()))
        table = short_table(self.comparison)
        return f"<p>{lines}</p>{html(table, table.title)}"

    def _head(self) -> list[str]:
        return [*map(one_line, head(self.comparison, self.files))]

    @cached_property
    def _table(self) -> Table:
        return rows_table(self.comparison)

    def to_pandas(self, columns: str = "") -> pandas.DataFrame:
        """A DataFrame with one row per op and layer (or layers that differ only in their number), the largest change first.

        Columns: op, shape, layer ("" for none), before, after, change (ns of all its kernels, which add up to the totals), what
        (verdict and other changes). columns: keys separated by commas, all if empty. Raises UsageError for unknown keys.
        """
        return to_pandas(chosen(self._table, columns))

    def json(self) -> str:
        """The JSON of `pyprof diff --format json`."""
        return to_json(self.comparison, self.files)

    def to_dict(self) -> dict[str, Any]:
        """The JSON as dicts and lists, every op by itself."""
        found: dict[str, Any] = json.loads(self.json())
        return found
