"""Options of a table on the command line: conditions, columns, formats and files, and what is wrong usage."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.tables.formats import FORMATS
from tests.conftest import ROOT
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Three kernels of linear in a layer called na, one begun before its launch; one called na; one without a name."""
    n = Nsys()
    n.range('na #pyprof{"layer":"Block"}', 50, 400)
    for number, took in enumerate((40, 60, 80_000)):
        begin = 100 * (1 + number)
        n.range('linear(fp32[4,8], fp32[2,8]) #pyprof{"mod":"torch.nn.functional"}', begin, begin + 90)
        start = begin if number == 0 else 100_000 * (1 + number)
        n.kernel(GEMM, begin + 10, start, start + took)
    n.kernel("na", 700, 700_000, 700_100)
    n.kernel("", None, 900_000, 900_100)
    return n.write(tmp_path / "net.sqlite")


def _out(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> str:
    assert main(["prof", str(path), *arguments]) == 0
    return capsys.readouterr().out


def _column(capsys: pytest.CaptureFixture[str], path: Path, key: str, *arguments: str) -> list[str]:
    rows = csv.reader(io.StringIO(_out(capsys, path, "--csv", "-c", key, *arguments), newline=""))
    return [row[0] for row in rows][1:]


def test_unknown_is_no_number_and_no_text(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = "delay,layer,kernel,flops"
    rows = [json.loads(line) for line in _out(capsys, capture, "--format", "jsonl", "-c", keys).splitlines()]
    assert rows[0]["delay"] == -10 and rows[-1]["delay"] is None
    assert [row["layer"] for row in rows] == ["na", "na", "na", "", ""]
    assert [row["kernel"] for row in rows[-2:]] == ["na", None]
    assert _column(capsys, capture, "delay")[0] == "-10"
    assert _column(capsys, capture, "layer") == ["na", "na", "na", "-", "-"]  # in plain formats as ever
    groups = [json.loads(x) for x in _out(capsys, capture, "--group-by", "kernel", "--format", "jsonl").splitlines()]
    assert [group["kernel"] for group in groups] == [GEMM, "na", None]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("sil>50", "2,3,4,5"), ("sil>=60ns", "2,3,4,5"), ("sil>50us", "3"), ("sil<0.05us", "1"), ("sil<=0.06us,op=lin*", "1,2"),
        ("op=*ear", "1,2,3"), ("op=l?near", "1,2,3"), ("op!=linear", "4,5"), ("layer=na,sil<1us", "1,2"),
        ("flops>=128", "1,2,3"), ("flops>=0.1k", "1,2,3"), ("flops<1kFLOP", "1,2,3"), ("delay<0", "1"), ("sil=100", "4,5"),
        ("sil=0.1us", "4,5"), ("kernel!=na", "1,2,3"), ("grid=1,1,1,op=linear", "1,2,3"), ("flops=na", "4,5"),
        ("tflops<1e999", "1,2,3"), ("flops>-1e999", "1,2,3"), ("tflops>-1e999", "1,2,3"),
    ],
)  # fmt: skip
def test_conditions(capture: Path, capsys: pytest.CaptureFixture[str], where: str, rows: str) -> None:
    assert ",".join(_column(capsys, capture, "idx", "--where", where)) == rows


@pytest.mark.parametrize(
    "arguments",
    [
        ("--where", "op=linear,"), ("--where", ",op=linear"), ("--where", "op=linear,mm"), ("--where", "op=linear>3"),
        ("--where", "op>linear"), ("--where", "sil>fast"), ("--where", "sil>3B"), ("--where", "bytes>3ns"), ("--where", "sil"),
        ("--where", "silly>3"), ("--where", "op=linear,silly=3"), ("-c", "kernal"), ("--sort", "kernal"), ("--kinds", ""), ("--where", ""),
        ("--kinds", ","), ("--group-by", "kernal"), ("--group-by", "op", "-c", "kernal"), ("--top", "-1"),
        ("--format", "parquet"), ("--csv", "-w", "80"),
    ],
)  # fmt: skip
def test_wrong_usage_ends_with_2(capture: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert main(["prof", str(capture), *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("pyprof: error: ") and err.splitlines()[1].startswith("hint: ")


def test_a_key_stands_once_in_formats_with_keys(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = _out(capsys, capture, "--format", "jsonl", "-c", "op,idx,op").splitlines()[0]
    assert line == '{"op": "linear", "idx": 1}'
    assert _out(capsys, capture, "-c", "op,op", "--top", "1") == "Op Op\nlinear linear\n"


def test_json_is_one_object_with_a_version(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_out(capsys, capture, "--format", "json", "-c", "idx,flops", "--sort", "idx"))
    assert found == {"schema": 1, "rows": [{"idx": i, "flops": 128 if i < 4 else None} for i in (5, 4, 3, 2, 1)]}
    assert json.loads(_out(capsys, capture, "--format", "json", "--top", "0")) == {"schema": 1, "rows": []}


def test_markdown(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _out(capsys, capture, "--format", "markdown", "-c", "op,sil", "--top", "1")
    assert out == "| Op | Sil(ns) |\n| --- | --: |\n| linear | 40 |\n"


@pytest.mark.parametrize("form", [name for name, form in FORMATS.items() if not form.binary])
def test_a_file_holds_what_is_printed(capture: Path, capsys: pytest.CaptureFixture[str], form: str, tmp_path: Path) -> None:
    printed, file = _out(capsys, capture, "--format", form), tmp_path / f"t{FORMATS[form].suffix}"
    assert _out(capsys, capture, "-o", str(file)) == "" and file.read_bytes().decode() == printed
    before = file.read_bytes()
    assert main(["prof", str(capture), "-o", str(file), "-w", "1"]) == 2  # fails when it writes: the old file stays
    assert file.read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def test_the_output_is_no_input(capture: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before, link = capture.read_bytes(), tmp_path / "link.csv"
    link.symlink_to(capture)
    for command in (["prof"], ["prof", "--group-by", "op"], ["summary"], ["gaps"], ["inductor"]):
        for output in (capture, link):
            assert main([*command, str(capture), "--format", "table", "-o", str(output)]) == 2
            assert "the output is the input" in capsys.readouterr().err
    assert capture.read_bytes() == before and link.is_symlink()


def test_many_stars_match_in_little_time(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _column(capsys, capture, "idx", "--where", f"kernel={'*' * 30}{'*m' * 30}z") == []


def test_parquet_is_typed(capture: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    file = tmp_path / "t.parquet"
    assert _out(capsys, capture, "-c", "idx,op,layer,delay,peak,op", "-o", str(file)) == ""
    table = pq.read_table(file)
    types = {field.name: str(field.type) for field in table.schema}
    assert types["idx"] == types["delay"] == "int64" and types["peak"] == "double" and types["layer"].startswith("list<")
    rows = table.to_pylist()
    assert [row["layer"] for row in rows] == [["na"], ["na"], ["na"], [], []]
    assert [row["op"] for row in rows] == ["linear"] * 3 + [None] * 2 and rows[0]["delay"] == -10
    assert table.schema.field("delay").metadata[b"unit"] == b"ns"


def test_groups_say_how_much_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    for number, (kind, took) in enumerate((("a", 9_950), ("a", 50), ("b", 900), ("b", 100))):
        known = number % 2 == 0
        begin, shapes = 100 * (1 + number), "fp32[4,8], fp32[2,8]" if known else ""
        n.range(f'{kind} #pyprof{{"layer":"Block"}}', begin - 5, begin + 50)
        n.range(f'linear({shapes}) #pyprof{{"mod":"torch.nn.functional"}}', begin, begin + 40)
        n.kernel(GEMM, begin + 10, 100_000 * (1 + number), 100_000 * (1 + number) + took)
    keys = "layer,flops,tflops,known,mean,min,max,spread"
    out = _out(capsys, n.write(tmp_path / "net.sqlite"), "--group-by", "layer", "-c", keys, "--csv")
    assert out.splitlines()[1:] == [
        "a,128,0.000,99.5,5000.0,50,9950,4950.0",
        "b,na,na,90.0,500.0,100,900,400.0",
    ]


def test_every_column_can_be_a_key_and_lost_time_adds_up(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = captures / "kineto" / "h100_vit.json.gz"
    lost = [int(text) for text in _column(capsys, path, "lost") if text != "na"]
    for key in ("tflops", "lost", "layer", "grid", "seq", "start"):
        rows = [
            json.loads(x)
            for x in _out(capsys, path, "--group-by", key, "-c", f"{key},kernels", "--format", "jsonl").splitlines()
        ]
        assert sum(row["kernels"] for row in rows) == len(_column(capsys, path, "idx"))
    (row,) = [
        json.loads(x) for x in _out(capsys, path, "--group-by", "dir", "-c", "lost,peak", "--format", "jsonl").splitlines()
    ]
    assert row["lost"] == sum(lost) and 0 < row["peak"] < 100


@pytest.mark.parametrize("by_variable", [False, True])
def test_formulas_of_the_user(tmp_path: Path, by_variable: bool) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import pyprof\nfrom pyprof.prof.formulas import Cost\n\n@pyprof.formula('mymod.mine')\n"
        "def mine(x):\n    return Cost(matmul_flops=0, vector_flops=7 * x.numel)\n"
    )
    n = Nsys()
    n.range('mine(fp32[4,8]) #pyprof{"mod":"mymod"}', 10, 90)
    n.kernel("k", 20, 1000, 1010)
    command = [sys.executable, "-m", "pyprof", "prof", str(n.write(tmp_path / "net.sqlite")), "-c", "flops"]
    env = {**os.environ, **({"PYPROF_FORMULAS": str(file)} if by_variable else {})}
    option = [] if by_variable else ["--formulas", str(file)]
    done = subprocess.run([*command, *option], capture_output=True, text=True, check=False, env=env, cwd=ROOT)
    assert done.stdout == "FLOPs\n224\n", done.stderr
