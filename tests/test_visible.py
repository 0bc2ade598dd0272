"""What a stranger named reaches nobody as it is: no table, page, message or spreadsheet obeys it, hides it or drowns in it."""

import ast
import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.messages import MOST, one_line, tell, visible
from pyprof.tables.formats import FORMATS, write_csv_safe
from pyprof.tables.names import text_of
from pyprof.tables.table import Header, Table, Texts
from tests.conftest import ROOT
from tests.terminals import Screen, bare, on_terminal
from tests.tiny import Nsys

HOSTILE = "k\x1b]0;title\x07\x1b[31m\u202egnp\u2066\u200b\x9b<img src=x>"
_SHOWN = r"k\u001b]0;title\u0007\u001b[31m\u202egnp\u2066\u200b\u009b<img src=x>"


def test_what_is_not_printable_is_shown_as_its_escape() -> None:
    assert visible(HOSTILE) == _SHOWN and visible("ö 表 😀 \\x") == "ö 表 😀 \\x"
    assert visible("a\nb\U000e0061\udc9b") == r"a\u000ab\udb40\udc61\udc9b"
    assert one_line(" a\n\tb\x00 ") == r"a b\u0000"
    assert len(one_line("ab" * 3_000_000)) == len(one_line("\x1b" * 3_000_000)) == MOST
    assert one_line("abcdefghij", 6) == "abc…ij" and len(text_of("x" * 1000)) == 400


@given(st.text())
def test_any_text_is_printable_and_json_reads_it_back(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable() and visible(shown) == shown
    assert one_line(text).isprintable() and text_of(text).isprintable()
    if "\ud800" > max(text, default="") or min(text, default="\uffff") > "\udfff":
        assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text


def _written(form: str, texts: list[str], terminal: bool) -> str:
    table = Table([Header("op", "Op", "")], [Texts(np.arange(len(texts)), texts)], "t", texts[0])
    stream = Screen() if terminal else io.StringIO()
    FORMATS[form].write(table, stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    "command", ["prof", "prof --group-by kernel", "prof --tree layer", "summary", "gaps", "inductor", "ranks"]
)
def test_every_table_cuts_a_long_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    n = Nsys()
    n.range("layer:" + "y" * 300_000, 5, 80)
    n.range("aten::mm, seq = 1, op_id = 1, sizes = [[4, 8], [8, 2]]", 10, 50)
    n.kernel("k" * 300_000, 20, 1000, 1100)
    n.kernel("b", 60, 500_000, 500_100)
    name, *options = command.split()
    assert main([name, str(n.write(tmp_path / "net.sqlite")), *options]) == 0
    shown = capsys.readouterr()
    assert max(map(len, (shown.out + shown.err).splitlines())) < 5 * MOST


@given(st.lists(st.text(), min_size=1, max_size=4), st.sampled_from(["plain", "table", "csv", "jsonl", "json", "markdown"]))
def test_no_format_passes_to_a_terminal_what_it_would_obey(texts: list[str], form: str) -> None:
    for line in _written(form, texts, terminal=True).replace("\r\n", "\n").split("\n"):
        assert line.isprintable()
    if form in ("plain", "table", "markdown"):  # which people read from files as well
        assert all(line.isprintable() for line in _written(form, texts, terminal=False).split("\n"))
    if form == "jsonl" and all(text.isprintable() or text.isascii() for text in texts):
        rows = [json.loads(line)["op"] for line in _written(form, texts, terminal=True).splitlines()]
        assert rows == texts


def test_programs_get_names_whole_and_people_the_beginning_and_the_end() -> None:
    name = "begin" + "x" * 3_000_000 + "end"
    for form in ("plain", "table", "markdown"):
        longest = max(map(len, _written(form, ["title", name], terminal=False).splitlines()))
        assert MOST <= longest <= MOST + 4
    for form in ("csv", "jsonl", "json"):
        assert name in _written(form, ["title", name], terminal=False)


def _safe(texts: list[str]) -> list[str]:
    stream = io.StringIO()
    write_csv_safe(Table([Header("op", "Op", "")], [Texts(np.arange(len(texts)), texts)]), stream)
    return [row[0] for row in csv.reader(io.StringIO(stream.getvalue(), newline=""))][1:]


def test_what_a_spreadsheet_would_execute_is_a_text_to_it() -> None:
    hostile = ["=1+1", '=HYPERLINK("http://x")', "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", " =1", "＝1", "\r=1"]
    assert _safe(hostile) == [f"'{text}" if text != "\t=1" and text != "\r=1" else _safe([text])[0] for text in hostile]
    assert all(cell.startswith("'") for cell in _safe(hostile))
    assert _safe(["a;=1+1", "a\t@x"]) == ["a;'=1+1", "a\t'@x"]  # where another character divides cells
    assert _safe(["-", "mm", "a = b", "blocks.0", "fp32[4,-1]"]) == ["-", "mm", "a = b", "blocks.0", "fp32[4,-1]"]


@given(st.lists(st.text(alphabet="=+-@\t\r\n ;'\"a1", min_size=1), min_size=1, max_size=4))
def test_no_cell_of_a_safe_table_begins_as_a_formula(texts: list[str]) -> None:
    for text, cell in zip(texts, _safe(texts), strict=True):
        assert not (cell.lstrip()[:1] in set("=+-@") and len(cell.lstrip()) > 1)
        assert cell.replace("'", "") == text.replace("'", "")


def test_csv_safe_is_an_option_of_every_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    n.kernel("=cmd|' /C calc'!A0", 20, 100, 200)
    path = str(n.write(tmp_path / "net.sqlite"))
    for options in (["--csv-safe"], ["--csv", "--csv-safe"], ["--format", "csv", "--csv-safe"]):
        assert main(["prof", path, "-c", "name", *options]) == 0
        assert capsys.readouterr().out == "Name\r\n'=cmd|' /C calc'!A0\r\n"
    assert main(["prof", path, "-c", "name", "--csv-safe", "-o", str(tmp_path / "t.csv")]) == 0
    assert (tmp_path / "t.csv").read_bytes() == b"Name\r\n'=cmd|' /C calc'!A0\r\n"
    capsys.readouterr()
    assert main(["prof", path, "--csv"]) == 0 and ",=cmd" in capsys.readouterr().out  # for programs, as it is
    assert main(["prof", path, "--csv-safe", "--format", "json"]) == 2
    assert "--csv-safe applies to CSV only" in capsys.readouterr().err
    assert main(["inductor", path, "--table", "kernels", "--csv-safe"]) == 0 and "'=cmd" in capsys.readouterr().out


_COMMANDS = (
    ["prof"], ["prof", "--format", "json", "-c", "name,layer"], ["prof", "--tree", "layer"], ["summary"], ["gaps"], ["ranks"], ["inductor"],
    ["prof", "--where", "op=a\x1b\u202eb"],
)  # fmt: skip


def test_no_command_passes_a_hostile_name_to_a_terminal(tmp_path: Path) -> None:
    path = str(_hostile(tmp_path))
    outs = bare(on_terminal([[command[0], path, *command[1:]] for command in _COMMANDS], 120, stderr=True)).split("\f")
    for command, out in zip(_COMMANDS, outs, strict=True):
        assert all(line.isprintable() for line in out.replace("\r", "").split("\n")), (command, ascii(out))
        assert "u202e" in out or command == ["ranks"], command  # which names no kernel


def _hostile(folder: Path) -> Path:
    n = Nsys()
    for step in range(4):
        at = 1000 * step
        n.range(f'aten::mm(fp32[8,8], fp32[8,8]) #pyprof{{"mod":"{HOSTILE[:1]}\u202e"}}', at, at + 90)
        n.range(HOSTILE, at, at + 95)
        n.kernel(HOSTILE, at + 10, at + 200, at + 400)
    return n.write(folder / "net\u202e\x1b]0;title\x07.sqlite")


def test_messages_show_names_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prof", str(tmp_path / "\x1b[31m\u202e.sqlite")]) == 1
    said = capsys.readouterr().err
    assert r"\u001b[31m\u202e.sqlite: no such file" in said and all(line.isprintable() for line in said.split("\n"))
    tell("note: a\x1b\nhint: rm -rf\u2028")
    assert capsys.readouterr().err == "note: a\\u001b\\u000ahint: rm -rf\\u2028\n"
    bad = tmp_path / os.fsdecode(b"\xff\xfe.json")
    bad.write_text("{}")
    assert main(["prof", str(bad)]) == 1 and r"\udcff\udcfe.json" in capsys.readouterr().err


def test_messages_go_through_tell() -> None:
    """A name in one that is printed beside it would reach the terminal as it is. What runs in a user's program says its own."""
    for path in sorted((ROOT / "pyprof").rglob("*.py")):
        room = path.relative_to(ROOT / "pyprof")
        if room.parts[0] in ("messages.py", "nvtx", "recording", "examples") or str(room) == "commands/run.py":
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "sys.stderr" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                to = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "file"]
                assert to != ["sys.stderr"], f"{path}:{node.lineno}: tell(...) of pyprof.messages"
