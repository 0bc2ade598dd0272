"""Tables on a terminal: what is shown, shortened, left out, and what says how to get the rest."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.tables.readable import readable
from pyprof.tables.table import Fractions, Header, Integers, LazyTable, Table, Texts, Values
from pyprof.tables.terminal import Screen, write_on
from tests.conftest import ROOT
from tests.terminals import Screen as Terminal
from tests.terminals import bare, on_terminal
from tests.tiny import Nsys

LAYERS = [f"model.encoder.layers.{n}.attention.{part}" for n in (3, 11) for part in ("query", "value")]
HEADERS = (
    Header("layer", "Layer", "x"),
    Header("time", "Time(ns)", "x", "ns"),
    Header("share", "Share(%)", "x", "%", share=True),
    Header("tc", "TC", "x", good="1", bad="0"),
)
VALUES: list[Values] = [
    Texts(np.arange(4), LAYERS),
    Integers(np.array([1_240_000, 980, 0, -1]), np.array([False, False, False, True])),
    Fractions.not_nan(np.array([75.0, 25.0, 0.04, np.nan]), 1),
    Texts(np.array([0, 1, 2, 2]), ["1", "0", "-"]),
]
TABLE = Table(HEADERS, VALUES)


def _written(table: Table | LazyTable, columns: int = 60, rows: int = 45, *others: Table, **asked: object) -> list[str]:
    stream = io.StringIO()
    write_on(Screen(columns, rows, **asked), [table, *others], stream)  # type: ignore[arg-type]
    return stream.getvalue().splitlines()


def test_a_table_has_units_bars_and_whole_names_where_there_is_room() -> None:
    wide = _written(TABLE, 100)
    assert wide[1].split() == [LAYERS[0], "1.24", "ms", "75.0", "%", "███████▌", "1"]
    assert wide[2].split() == [LAYERS[1], "980", "ns", "25.0", "%", "██▌", "0"]
    assert wide[3].split() == [LAYERS[2], "0", "0.0", "%", "▏", "-"]
    assert wide[4].split() == [LAYERS[3], "na", "na", "-"]
    assert [line.index("%") for line in wide[1:4]] == [wide[1].index("%")] * 3 and wide[0].split() == [
        "Layer",
        "Time",
        "Share",
        "TC",
    ]


@pytest.mark.parametrize("columns", [44, 60, 80, 200])
def test_lines_fit_and_rows_stay_different(columns: int) -> None:
    lines = _written(TABLE, columns)
    assert max(map(len, lines)) <= columns and len({line.split()[0] for line in lines[1:]}) == 4


def test_what_does_not_fit_is_left_out_by_what_it_says() -> None:
    empty, detail = Header("sync", "Sync(ns)", "x", "ns"), Header("pid", "PId", "x", detail=True)
    table = Table(
        (detail, empty, *HEADERS), [Integers.known(np.full(4, 25738)), Integers.known(np.zeros(4, np.int64)), *VALUES], "ops"
    )
    assert _written(table, 100)[0].split()[:2] == ["PId", "Sync"]
    narrow = _written(table, 46, 45, TABLE, command="pyprof gaps f.json")
    assert narrow[0].startswith("── ops ──") and narrow[1].split() == ["Layer", "Time", "Share", "TC"]
    assert narrow[6] == "2 more columns (pid, sync): --table ops"
    assert narrow[-2:] == ["all of one: pyprof gaps f.json --table NAME --units human | less -S", "columns: pyprof help gaps"]
    assert _written(table, 46, chosen=True)[0].split()[:2] == ["PId", "Sync"]
    assert _written(table, 24)[0].split()[0] == "Layer" and max(map(len, _written(table, 24)[:5])) <= 24


def test_a_long_table_ends_with_what_is_left_and_how_to_get_it() -> None:
    table = Table(HEADERS[1:2], [Integers.known(np.arange(5_000))])
    lines = _written(table, rows=24, command="pyprof prof net.sqlite")
    assert len(lines) == 1 + 17 + 1
    assert lines[-1] == "4,983 more rows: --top N, --csv, pyprof prof net.sqlite --units human | less -S"
    assert len(_written(table, rows=24, all_rows=True)) == 5_001
    assert _written(table.take(slice(0)))[-1] == "no rows"
    assert len(_written(table._replace(most=3))) == 1 + 3 + 1


class _Counted:
    """A source of a million rows that counts those that it is asked for."""

    headers = HEADERS[1:2]

    def __init__(self, rows: np.ndarray, asked: list[int]) -> None:
        self.rows, self.asked = rows, asked

    def of(self, key: str) -> Values:
        self.asked.append(len(self.rows))
        return Integers.known(self.rows)

    def take(self, rows: np.ndarray) -> _Counted:
        return _Counted(self.rows[rows], self.asked)


@pytest.mark.parametrize("turned", [False, True])
def test_of_a_million_rows_only_what_is_shown_is_computed(turned: bool) -> None:
    rows = np.arange(1_000_000)
    source = _Counted(rows, [])
    lines = _written(LazyTable(source.headers, source, rows[::-1] if turned else rows), rows=30)  # type: ignore[arg-type]
    assert source.asked == [23] and lines[-1].startswith("999,977 more rows")


def test_names_are_neither_markup_nor_orders_to_the_terminal() -> None:
    names = ["[red]a[/]", "[/nothing]", "\x1b[31mb\x9b", "c\nd", ":smile:", "表" * 30]
    lines = _written(Table(HEADERS[:1], [Texts(np.arange(6), names)]), 20)
    assert lines[1:6] == ["[red]a[/]", "[/nothing]", r"\u001b[31mb\u009b", "c d", ":smile:"] and lines[6].startswith("表")


def test_colours_mean_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    write_on(Screen(100, 45), [TABLE], stream)
    header, used, unused, zero, unknown = stream.getvalue().splitlines()
    assert header.startswith("\x1b[1mLayer") and "\x1b[36m" in used  # bold; a bar
    assert used.endswith("\x1b[32m1\x1b[0m") and unused.endswith("\x1b[31m0\x1b[0m")
    assert "\x1b[2m" in zero and zero.count("\x1b[2m") == 2 and unknown.count("\x1b[2m") == 3  # dim


def test_an_encoding_without_blocks_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1", errors="replace")
    write_on(Screen(62, 45), [TABLE._replace(title="net")], stream)
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert text.startswith("-- net ---") and "####" in text and ".." in text and "?" not in text


def test_moments_count_from_the_first_and_equal_names_of_columns_keep_their_unit() -> None:
    headers = (
        Header("start", "Start(ns)", "x", "ns", moment=True),
        Header("busy", "Busy(ns)", "x", "ns"),
        Header("b", "Busy(%)", "x", "%"),
    )
    values: list[Values] = [
        Integers.known(np.array([10**18 + 1500])),
        Integers.known(np.array([7])),
        Fractions.not_nan(np.array([60.6]), 1),
    ]
    found = readable(Table(headers, values, since=10**18))
    assert [h.text for h in found.headers] == ["Start", "Busy", "Busy %"] and found.values[0].pool[0] == "0.002 ms"  # type: ignore[union-attr]
    exact = readable(Table(headers, values))
    assert exact.headers[0].text == "Start(ns)" and exact.values[0] is values[0]


@given(
    st.lists(st.one_of(st.none(), st.floats(), st.integers(-(10**18), 10**18).map(float)), max_size=6),
    st.sampled_from(["ns", "B", "FLOP", "%", "GB/s", ""]),
)
def test_every_number_can_be_read(numbers: list[float | None], unit: str) -> None:
    values = np.array([np.nan if n is None else n for n in numbers], np.float64)
    table = Table((Header("x", f"X({unit})", "x", unit, share=unit == "%"),), [Fractions.not_nan(values)])
    lines = _written(table, 200)
    if not numbers:
        assert lines == ["no rows"]
    else:
        assert [line.split()[0] == "na" for line in lines[1:]] == np.isnan(values).tolist()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Sixty kernels of linear in two layers."""
    n = Nsys()
    for number in range(60):
        begin = 1_000 * (1 + number)
        n.range(f'model.layers.{number % 2} #pyprof{{"layer":"Block"}}', begin - 5, begin + 100)
        n.range('linear(fp32[4,8], fp32[2,8]) #pyprof{"mod":"torch.nn.functional"}', begin, begin + 90)
        n.kernel("ampere_sgemm_128x64_tn", begin + 10, 100_000 * (1 + number), 100_000 * (1 + number) + 1_240 + number)
    return n.write(tmp_path / "net.sqlite")


def test_a_command_on_a_terminal_and_on_a_pipe(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = on_terminal(["prof", str(capture)], 100, 24)
    assert "\x1b[1mIdx\x1b[0m" in drawn and "[" not in bare(drawn).replace(str(capture), "") and "1.24 us" in drawn
    lines = bare(drawn).splitlines()
    assert len(lines) == 19 and lines[
        -1
    ] == f"43 more rows: --top N, --csv, python -m pyprof prof {capture} --units human | less -S".replace(
        "python -m pyprof", "pyprof"
    )
    assert main(["prof", str(capture)]) == 0
    piped = capsys.readouterr().out
    assert piped.startswith(
        "Idx Direction Sub Module Op Kernel Params Sil(ns)\n1 fprop 0 torch.nn.functional linear ampere_sgemm_128x64_tn M=4,N=2,K=8,fp32 1240\n"
    )
    assert main(["prof", str(capture), "--units", "raw"]) == 0 and capsys.readouterr().out == piped
    assert len(bare(on_terminal(["prof", str(capture), "--top", "50"], 100, 24)).splitlines()) == 51


def test_formats_that_were_asked_for_are_the_same_on_a_terminal(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in (["-w", "90"], ["--csv"], ["--format", "table"]):
        assert main(["prof", str(capture), *form]) == 0
        assert on_terminal(["prof", str(capture), *form]) == capsys.readouterr().out


def test_units_overrule(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = bare(on_terminal(["prof", str(capture), "-c", "idx,sil", "--units", "raw", "--top", "1"]))
    assert raw == "Idx  Sil(ns)\n  1     1240\n"
    for form, expected in (
        ([], "    Idx        Sil\n      1    1.24 us\n"),
        (["-w", "40"], ""),
        (["--format", "markdown"], "| Idx | Sil |\n| --: | --: |\n| 1 | 1.24 us |\n"),
    ):
        assert main(["prof", str(capture), "-c", "idx,sil", "--units", "human", "--top", "1", *form]) == 0
        assert capsys.readouterr().out.endswith(expected)
    assert main(["prof", str(capture), "--csv", "--units", "human"]) == 2
    assert main(["prof", str(capture), "--tree", "layer", "--units", "human"]) == 0
    assert "\n| | | 0 " in capsys.readouterr().out


def test_the_command_that_shows_the_rest_works(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = bare(on_terminal(["gaps", str(capture)], 100)).split("all of one: pyprof ")[1].split(" | less")[0]
    assert main(note.replace("NAME", "gaps").split()) == 0
    assert len(capsys.readouterr().out.splitlines()) > 40


@pytest.mark.parametrize(("variables", "colour"), [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({}, True)])
def test_no_colour_where_it_is_not_wanted(capture: Path, variables: dict[str, str], colour: bool) -> None:
    drawn = on_terminal(["prof", str(capture), "-c", "tc", "--group-by", "tc", "-c", "tc,share"], **variables)
    assert ("\x1b[36m" in drawn) == colour and ("\x1b" in drawn) == (variables.get("TERM") != "dumb")


@pytest.mark.slow
def test_reports_fit_100_columns(captures: Path) -> None:
    for arguments in (
        ["gaps", str(captures / "kineto/v100_resnet50_2021.json.gz")],
        ["ranks", str(captures / "kineto/v100_dlrm_8ranks")],
    ):
        lines = bare(on_terminal(arguments, 100)).splitlines()
        drawn = [line for line in lines if "| less -S" not in line]
        assert len(drawn) > 20 and max(map(len, drawn)) <= 100


def test_a_pipe_does_not_pay_for_terminals(capture: Path) -> None:
    code = "import sys; from pyprof.cli import main; main(['prof', sys.argv[1]]); sys.exit('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(capture)], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith(b"Idx Direction ")


def test_of_standard_input_no_command_shows_more(capture: Path, tmp_path: Path) -> None:
    records = tmp_path / "net.dict"
    assert main(["parse", str(capture), "-o", str(records)]) == 0
    with records.open() as stdin:
        assert bare(on_terminal(["prof", "-"], 100, 24, stdin=stdin)).splitlines()[-1] == "43 more rows: --top N, --csv"
