"""Rows as Arrow makes them are the rows that Python makes, character by character."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.columns import HEADERS
from pyprof.tables import formats
from pyprof.tables.formats import write_csv, write_jsonl, write_plain
from pyprof.tables.table import Fractions, Integers, Table, Texts, Values, printed

rowtext = pytest.importorskip("pyprof.tables.rowtext", reason="pyarrow is not installed")

# Near half of the last digit, where rounding the product would go another way than rounding the number.
_HALVES = st.integers(-(10**9), 10**9).map(lambda n: math.nextafter(n / 2000, n % 7 - 3))
_FLOATS = st.lists(st.one_of(st.floats(), _HALVES, st.integers(0, 10**7).map(lambda n: n / 1000)), min_size=1, max_size=40)


def _made(values: list[Values], separator: str = ",", end: str = "\r\n") -> str:
    around = ["", *[separator] * (len(values) - 1), end]
    return str(rowtext.Rows(around, "na").text(values))


def _joined(values: list[Values], separator: str = ",", end: str = "\r\n") -> str:
    return "".join(separator.join(row) + end for row in zip(*map(printed, values), strict=True))


@given(_FLOATS, st.integers(0, 9))
def test_fractions_have_the_digits_that_python_prints(numbers: list[float], digits: int) -> None:
    values: list[Values] = [Fractions.not_nan(np.array(numbers, np.float64), digits)]
    assert _made(values) == _joined(values)


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-1, 2), st.integers(-1, 127)), min_size=1, max_size=12),
    st.lists(_TEXTS, min_size=3, max_size=3),
    st.sampled_from([",", " ", "--"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_numbers_and_texts_of_any_kind(rows: list[tuple[int, int, int]], pool: list[str], separator: str, end: str) -> None:
    wide, codes, narrow = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    sums = np.array([int(number) * 10**9 for number in wide.tolist()], np.object_)
    values: list[Values] = [
        Texts(codes, pool), Integers.from_zero(wide), Integers.from_zero(narrow.astype(np.int8)), Integers.from_zero(sums), Texts(codes.astype(np.int32), pool),
    ]  # fmt: skip
    for chosen in (values, values[:1], values[1:2]):
        assert _made(chosen, separator, end) == _joined(chosen, separator, end)


@pytest.mark.parametrize("pool", [['a, "b"', "c\nd", "é\u2028🚀"], ["lone \ud800", "x", "y"]])
def test_files_of_many_rows_are_those_of_few(pool: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.arange(40) % 4 - 1
    headers = [header for header in HEADERS if header.key in ("idx", "op", "occ")]
    values: list[Values] = [Integers.from_zero(codes), Texts(codes, pool), Fractions.not_nan(codes / 3, 1)]
    for write in (write_csv, write_plain, write_jsonl):
        found = []
        for least in (10, 1000):
            monkeypatch.setattr(formats, "_ARROW_FROM_ROWS", least)
            monkeypatch.setattr(formats, "_BATCH_ROWS", 7)
            stream = io.StringIO()
            write(Table(headers, values), stream)
            found.append(stream.getvalue())
        assert found[0] == found[1]
