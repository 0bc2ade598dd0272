"""The three formats: what is printed for a small table, exactly."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyprof.prof.writers import write_columnated, write_csv, write_plain

from pyprof.errors import InputError, UsageError
from pyprof.prof.columns import COLUMNS, DEFAULT, choose
from pyprof.prof.frame import Floats, Numbers, Texts, Values

KEYS = "idx,op,kernel,occ"


def _values(texts: list[str]) -> list[Values]:
    codes = np.arange(len(texts))
    return [
        Numbers(np.arange(1, len(texts) + 1)),
        Texts(codes, texts),
        Texts(codes % 2, ["short", "a kernel with a long name"]),
        Floats(np.where(codes % 2, np.nan, 12.345), 1),
    ]


def _written(write: object, *arguments: object) -> str:
    stream = io.StringIO()
    write(choose(KEYS), _values(["linear", 'odd "op", of two\nlines']), stream, *arguments)  # type: ignore[operator]
    return stream.getvalue()


def test_plain_has_one_blank_between_fields_and_none_inside() -> None:
    assert _written(write_plain) == (
        'Idx Op Kernel Occ(%)\n1 linear short 12.3\n2 odd_"op",_of_two_lines a_kernel_with_a_long_name na\n'
    )


def test_csv_is_rfc_4180() -> None:
    text = _written(write_csv)
    assert text.startswith("Idx,Op,Kernel,Occ(%)\r\n1,linear,short,12.3\r\n")
    assert list(csv.reader(io.StringIO(text, newline="")))[2] == [
        "2",
        'odd "op", of two\nlines',
        "a kernel with a long name",
        "na",
    ]


def test_columnated_cuts_texts_and_keeps_the_width() -> None:
    assert _written(write_columnated, 48) == (
        "    Idx Op              Kernel            Occ(%)\n"
        "      1 linear          short               12.3\n"
        '      2 odd "op", of tw a kernel with a l     na\n'
    )


def test_what_would_steer_a_terminal_is_not_passed_on() -> None:
    columns, values = choose("op"), [Texts(np.array([0]), ["\x1b[31m red \x00\x9b"])]
    plain, table, cells = io.StringIO(), io.StringIO(), io.StringIO()
    write_plain(columns, values, plain)
    write_columnated(columns, list(values), table, 40)
    write_csv(columns, list(values), cells)
    assert plain.getvalue() == "Op\n?[31m_red_??\n" and table.getvalue().splitlines()[1].strip() == "?[31m red ??"
    assert cells.getvalue() == "Op\r\n\x1b[31m red \x00\x9b\r\n"  # a file for programs


def test_too_narrow_a_line_is_refused_with_the_least_that_works() -> None:
    with pytest.raises(UsageError, match="at least 32 characters"):
        _written(write_columnated, 20)
    assert all(len(line) <= 32 for line in _written(write_columnated, 32).splitlines())


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5), st.integers(40, 120))
def test_any_text_stays_in_its_field(texts: list[str], width: int) -> None:
    columns, values = choose(KEYS), _values(texts)
    plain, table, cells = io.StringIO(), io.StringIO(), io.StringIO()
    write_plain(columns, values, plain)
    write_columnated(columns, values, table, width)
    write_csv(columns, values, cells)
    assert [len(line.split(" ")) for line in plain.getvalue().split("\n")[:-1]] == [4] * (len(texts) + 1)
    assert all(len(line) <= width for line in table.getvalue().split("\n"))
    rows = list(csv.reader(io.StringIO(cells.getvalue(), newline="")))
    assert [row[1] for row in rows[1:]] == texts


def test_columns_are_unique_and_the_original_twenty_come_first() -> None:
    keys = [column.key for column in COLUMNS]
    assert len(set(keys)) == len(keys) and len({c.header for c in COLUMNS}) == len(keys)
    assert (
        ",".join(keys[:20])
        == "idx,seq,altseq,tid,layer,trace,dir,sub,mod,op,kernel,params,sil,tc,device,stream,grid,block,flops,bytes"
    )
    headers = "Idx SeqId AltSeqId TId Layer Trace Direction Sub Module Op Kernel Params Sil(ns) TC Device Stream Grid Block FLOPs Bytes"
    assert [c.header for c in COLUMNS[:20]] == headers.split()
    assert [c.key for c in choose(DEFAULT)] == DEFAULT.split(",") and all(c.help for c in COLUMNS)


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        choose("idx,kernal")
    assert "'kernal'" in str(caught.value) and "did you mean kernel?" in caught.value.hint
