"""A table as Python objects and as HTML: unknown is None, lists stay lists, every text is escaped."""

from functools import cached_property

import numpy as np
import pytest

from pyprof.tables.rows import Rows
from pyprof.tables.table import Header, Integers, Table, Texts


class Small(Rows):
    """Two rows: all known, and all unknown but the number."""

    @cached_property
    def _table(self) -> Table:
        codes = np.array([0, -1])
        headers = [Header("n", "N", ""), Header("op", "Op", ""), Header("layer", "Layer", "")]
        return Table(headers, [Integers.known(np.array([7, 8])), Texts(codes, ["a<b"]), Texts(codes, ["x/y"], [("x", "y")])])

    def _brief(self) -> Table:
        return self._table

    def __repr__(self) -> str:
        return "two & more"


def test_rows_are_dicts_with_none_for_unknown_and_lists_as_lists() -> None:
    rows = Small()
    assert len(rows) == 2
    assert list(rows) == [{"n": 7, "op": "a<b", "layer": ["x", "y"]}, {"n": 8, "op": None, "layer": None}]


def test_html_escapes_every_text() -> None:
    html = Small()._repr_html_()
    assert html.startswith("<table><caption>two &amp; more</caption><tr>") and html.endswith("</tr></table>")
    assert "a&lt;b" in html and "a<b" not in html
    assert html.count("<th ") == 3 and html.count("<td ") == 6


def test_a_table_must_be_given() -> None:
    with pytest.raises(NotImplementedError):
        len(Rows())
