"""Rows as Arrow makes them are the rows that Python makes, character by character."""

import io
import math
from random import Random

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
    return b"".join(rowtext.RowTexts(around, "na").text(values)).decode()


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
            monkeypatch.setattr(rowtext, "BATCH_ROWS", 7)
            stream = io.StringIO()
            write(Table(headers, values), stream)
            found.append(stream.getvalue())
        assert found[0] == found[1]


_COLUMNS = st.lists(st.sampled_from(["text", "whole", "fraction", "sum"]), min_size=1, max_size=7)


@given(_COLUMNS, st.integers(1, 60), st.integers(1, 5), st.sampled_from([1, 7, 1000]), st.randoms(use_true_random=False))
def test_columns_that_say_the_same_in_many_rows(kinds: list[str], rows: int, few: int, batch: int, random: Random) -> None:
    def column(kind: str) -> Values:
        numbers = np.array([random.randrange(-1, random.choice([few, rows])) for _ in range(rows)], np.int64)
        if kind == "text":
            return Texts(numbers, [f"<{number}>" for number in range(max(few, rows))])
        if kind == "fraction":
            return Fractions(numbers / 3, numbers < 0)
        hidden = np.where(numbers < 0, np.arange(rows), numbers)  # what an unknown number is says nothing
        return Integers(hidden.astype(np.object_) if kind == "sum" else hidden, numbers < 0)

    values = [*map(column, kinds)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowtext, "BATCH_ROWS", batch)
        assert _made(values) == _joined(values)


def test_rows_that_are_mixed_to_one_number_stay_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowtext, "_FACTOR", np.int64(1))  # 1 and 2 are as 2 and 1
    first = np.arange(400) % 2
    values: list[Values] = [Integers.known(first), Integers.known(1 - first), Integers.known(first * 0 + 5)]
    assert _made(values) == _joined(values)


def test_kinds_are_of_fewer_columns_where_later_rows_differ_more() -> None:
    chosen = rowtext.KindColumns()
    steady, later = np.zeros(400, np.int64), np.arange(400)
    assert chosen.kinds([Integers.known(steady), Integers.known(steady)]).columns == [0, 1]
    assert chosen.kinds([Integers.known(steady), Integers.known(later)]).columns == [0]
    assert chosen.kinds([Integers.known(later), Integers.known(steady)]).columns == []
