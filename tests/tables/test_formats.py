"""The formats: what is printed for a small table, exactly."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import UsageError
from pyprof.prof.columns import DEFAULT, HEADERS
from pyprof.tables.formats import FORMATS, write_aligned, write_csv, write_plain
from pyprof.tables.rows import to_pandas
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, Values, choose

KEYS = "idx,op,kernel,occ"


def _values(texts: list[str]) -> list[Values]:
    codes = np.arange(len(texts))
    return [
        Integers.known(np.arange(1, len(texts) + 1)),
        Texts(codes, texts),
        Texts(codes % 2, ["short", "a kernel with a long name"]),
        Fractions.not_nan(np.where(codes % 2, np.nan, 12.345), 1),
    ]


def _written(write: object, *arguments: object) -> str:
    stream = io.StringIO()
    table = Table(choose(KEYS, HEADERS), _values(["linear", 'odd "op", of two\nlines']))
    write(table, stream, *arguments)  # type: ignore[operator]
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
    assert _written(write_aligned, 48) == (
        "    Idx Op              Kernel            Occ(%)\n"
        "      1 linear          short               12.3\n"
        '      2 odd "op", of tw a kernel with a l     na\n'
    )


def test_what_would_steer_a_terminal_is_not_passed_on() -> None:
    table = Table(choose("op", HEADERS), [Texts(np.array([0]), ["\x1b[31m red \x00\x9b"])])
    plain, aligned, cells = io.StringIO(), io.StringIO(), io.StringIO()
    write_plain(table, plain)
    write_aligned(table, aligned)
    write_csv(table, cells)
    assert plain.getvalue() == "Op\n\\u001b[31m_red_\\u0000\\u009b\n"
    assert aligned.getvalue().splitlines()[1].strip() == r"\u001b[31m red \u0000\u009b"
    assert cells.getvalue() == "Op\r\n\x1b[31m red \x00\x9b\r\n"  # a file for programs


def test_too_narrow_a_line_is_refused_with_the_least_that_works() -> None:
    with pytest.raises(UsageError, match="at least 32 characters"):
        _written(write_aligned, 20)
    assert all(len(line) <= 32 for line in _written(write_aligned, 32).splitlines())


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5), st.integers(40, 120))
def test_any_text_stays_in_its_field(texts: list[str], width: int) -> None:
    table = Table(choose(KEYS, HEADERS), _values(texts))
    plain, aligned, cells = io.StringIO(), io.StringIO(), io.StringIO()
    write_plain(table, plain)
    write_aligned(table, aligned, width)
    write_csv(table, cells)
    assert [len(line.split(" ")) for line in plain.getvalue().split("\n")[:-1]] == [4] * (len(texts) + 1)
    assert all(len(line) <= width for line in aligned.getvalue().split("\n"))
    rows = list(csv.reader(io.StringIO(cells.getvalue(), newline="")))
    assert [row[1] for row in rows[1:]] == texts


def test_columns_are_unique_and_the_original_twenty_come_first() -> None:
    keys = [header.key for header in HEADERS]
    assert len(set(keys)) == len(keys) and len({header.text for header in HEADERS}) == len(keys)
    found = ",".join(keys[:20])
    assert found == "idx,seq,altseq,tid,layer,trace,dir,sub,mod,op,kernel,params,sil,tc,device,stream,grid,block,flops,bytes"
    headers = "Idx SeqId AltSeqId TId Layer Trace Direction Sub Module Op Kernel Params Sil(ns) TC Device Stream Grid Block FLOPs Bytes"
    assert [header.text for header in HEADERS[:20]] == headers.split()
    assert [h.key for h in choose(DEFAULT, HEADERS)] == DEFAULT.split(",") and all(h.help for h in HEADERS)


def test_markdown_shows_templates_and_stars_as_they_are() -> None:
    table, stream = Table([Header("name", "Name", "")], [Texts(np.array([0]), ["f<float>(int*)|`a\\b"])]), io.StringIO()
    FORMATS["markdown"].write(table, stream)
    assert stream.getvalue().splitlines()[2] == r"| f\<float>(int\*)\|\`a\\b |"


def test_sums_beyond_64_bits_become_a_data_frame() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    numbers = Integers(np.array([2**64, 5], object), np.array([False, True]))
    frame = to_pandas(Table([Header("flops", "FLOPs", "")], [numbers]))
    assert frame["flops"][0] == 2**64 and frame["flops"].isna().tolist() == [False, True]
