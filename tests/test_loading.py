"""Loading by name: kinds of inputs, how often each is opened, and which modules are imported."""

import gzip
import io
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.errors import InputError, NotACapture
from pyprof.loading.load import load, load_with_trace
from pyprof.parse.sources.inputs import Input
from tests.tiny import Nsys

SHOW = ["-c", "idx,op,kernel,sil"]


def nsys(path: Path) -> Path:
    n = Nsys()
    n.range("aten::mm, seq = 1, op_id = 1, sizes = [[4, 8], [8, 2]]", 10, 50)
    n.kernel("gemm", 20, 100, 200)
    return n.write(path)


def torch_trace(path: Path) -> Path:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5.0, "dur": 2.0, "args": {"correlation": 3}}
    launch = event | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 1}
    text = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [event, launch]}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def records(path: Path) -> Path:
    assert main(["parse", str(nsys(path.with_suffix(".sqlite"))), "-o", str(path)]) == 0
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "c.sqlite": nsys, "t.json": torch_trace, "t.json.gz": torch_trace, "net.dict": records, "net.parquet": records,
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_a_pipe_reads_as_the_file_does(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = MAKERS[name](tmp_path / name)
    capsys.readouterr()
    assert main(["prof", str(path), *SHOW]) == 0
    expected = capsys.readouterr().out
    assert len(expected.splitlines()) == 2
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    assert main(["prof", str(pipe), *SHOW]) == 0
    writer.join()
    assert capsys.readouterr().out == expected


def test_a_pipe_without_a_writer_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, pipe, told = nsys(tmp_path / "net.sqlite"), tmp_path / "pipe", threading.Event()
    os.mkfifo(pipe)

    def tell(text: str) -> None:
        print(text)
        told.set()

    monkeypatch.setattr("pyprof.parse.sources.inputs.tell", tell)
    monkeypatch.setattr("pyprof.parse.sources.inputs._PATIENCE_S", 0.01)
    writer = threading.Thread(target=lambda: (told.wait(60), pipe.write_bytes(path.read_bytes())))
    writer.start()
    assert main(["prof", str(pipe), *SHOW]) == 0
    writer.join()
    first, *table = capsys.readouterr().out.splitlines()
    assert first == f"{pipe}: a pipe; waits for what another process writes to it" and len(table) == 2


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("where", ["-", "/dev/stdin"])
@pytest.mark.parametrize("piped", [True, False])
def test_standard_input_reads_as_the_file_does(
    tmp_path: Path, name: str, where: str, piped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = MAKERS[name](tmp_path / name)
    capsys.readouterr()
    assert main(["prof", str(path), *SHOW]) == 0
    expected = capsys.readouterr().out
    before, given = os.dup(0), os.open(path, os.O_RDONLY)
    if piped:
        os.close(given)
        given, end = os.pipe()
        os.write(end, content := path.read_bytes())  # which a pipe holds at once
        os.close(end)
        assert len(content) < 1 << 16
    os.dup2(given, 0)
    os.close(given)
    try:
        with open(0, closefd=False) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert main(["prof", where, *SHOW]) == 0
            assert capsys.readouterr().out == expected
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_long_first_lines_and_large_pipes_are_whole(tmp_path: Path) -> None:
    path = records(tmp_path / "net.dict")
    line = path.read_text()
    path.write_text(line * 3000)
    assert path.stat().st_size > 1 << 20
    with Input(str(path)) as given:
        whole = given.stream().read()
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(whole)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stream)
        assert len(load("-")) == 3000


def test_a_trace_is_known_by_its_devices_where_the_events_come_late(tmp_path: Path) -> None:
    found = json.loads(torch_trace(tmp_path / "net.json").read_text())
    late = {"deviceProperties": [], "distributedInfo": {"pg_config": "x" * (2 << 20)}, "traceEvents": found["traceEvents"]}
    (tmp_path / "late.json").write_text(json.dumps(late))
    assert len(load(str(tmp_path / "late.json"))) == len(load(str(tmp_path / "net.json")))


@pytest.mark.parametrize("name", ["net.dict", "net.jsonl", "net.nsys-rep", "net.ncu-rep", "net.sqlite", "net.json"])
@pytest.mark.parametrize("command", ["prof", "counters", "timers"])
def test_a_folder_with_a_files_suffix_is_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    (tmp_path / name).mkdir()
    assert main([command, str(tmp_path / name)]) == 1
    assert "directory" in capsys.readouterr().err or command == "counters"


@pytest.mark.parametrize("command", ["prof", "counters", "timers", "scrub"])
@pytest.mark.parametrize("endless", ["/dev/zero", "/proc/self/pagemap"])
def test_endless_devices_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, endless: str) -> None:
    link = tmp_path / "net.dict"
    link.symlink_to(endless)
    assert main([command, str(link), *(["-o", str(tmp_path / "out.dict")] if command == "scrub" else [])]) == 1
    assert "which may have no end" in capsys.readouterr().err


def test_a_name_that_is_too_long_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("x" * 5000, "a/" * 3000):
        for command in ("prof", "parse", "summary"):
            assert main([command, name]) == 1
            error = capsys.readouterr().err.splitlines()
            assert len(error) == 2 and "File name too long" in error[0] and error[1].startswith("hint: ")


@given(st.binary(max_size=50), st.sampled_from([b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00", b"SQLite format 3\x00", b"PAR1"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_text_at_the_beginning_of_anything(tmp_path: Path, raw: bytes, magic: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(magic + raw)
    if not magic + raw:
        with pytest.raises(NotACapture, match="empty"):
            Input(str(path))
        return
    with Input(str(path)) as given:
        assert given.head == magic + raw
        assert (magic + raw).startswith(b"\x1f\x8b") or given.text(20) == given.head[:20]


OPENINGS = """
import sys
opened = []
sys.addaudithook(lambda event, args: event in ("open", "sqlite3.connect") and sys.argv[1] in str(args[0]) and opened.append(event))
from pyprof.cli import main
assert main(["prof", sys.argv[1]]) == 0
print(opened, file=sys.stderr)
assert 1 <= len(opened) <= 2, opened
"""


@pytest.mark.parametrize("name", ["nsys_ops.sqlite", "nsys_checkpoint.sqlite", "kineto_cpu.json.gz"])
def test_a_capture_is_opened_at_most_twice(data: Path, name: str) -> None:
    subprocess.run([sys.executable, "-c", OPENINGS, str(data / name)], check=True, stdout=subprocess.DEVNULL)


# What was imported before belongs to whoever watches the tests: coverage has sqlite3 of its own.
IMPORTED = """
import sys
before = {*sys.modules}
from pyprof.loading.load import load_with_trace
load_with_trace(sys.argv[1])
print(*sys.modules)
print(*{*sys.modules} - before)
"""
ONLY = {
    "c.sqlite": {"pyprof.parse.sources.nsys", "pyprof.parse.sources.sqlite", "sqlite3"},
    "t.json.gz": {"pyprof.parse.sources.kineto.reader", "pyprof.parse.sources.kineto.events", "pyprof.parse.sources.gunzip"},
    "net.dict": {"pyprof.parse.records.netdict.read"},
}
SLOW = {"sqlalchemy", "pyarrow", "pandas", "pyprof.parse.sources.nvprof", "pyprof.parse.sources.rows", "subprocess"}


@pytest.mark.parametrize("name", ONLY)
def test_only_the_matching_reader_is_imported(tmp_path: Path, name: str) -> None:
    path = MAKERS[name](tmp_path / name)
    done = subprocess.run([sys.executable, "-c", IMPORTED, str(path)], check=True, capture_output=True, text=True)
    present, imported = (set(line.split()) for line in done.stdout.splitlines())
    others = SLOW.union(*(modules for other, modules in ONLY.items() if other != name))
    assert ONLY[name] <= present and not others & imported


def test_a_file_url_is_fetched(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    path = nsys(tmp_path / "c.sqlite")
    found, trace = load_with_trace(f"file://{path}")
    assert trace is not None and len(found) == len(load(str(path)))


def test_compressed_records_are_one_readable_line(tmp_path: Path) -> None:
    path = records(tmp_path / "net.dict")
    for name in ("z.dict", "z.gz"):
        (tmp_path / name).write_bytes(gzip.compress(path.read_bytes()))
        with pytest.raises(InputError, match="records are not read compressed") as raised:
            load(str(tmp_path / name))
        assert "gunzip -c" in raised.value.hint


@pytest.mark.parametrize("begins", [b"SQLite format 3\x00", b"PAR1"])
def test_of_compressed_captures_only_traces_are_read(tmp_path: Path, begins: bytes) -> None:
    (tmp_path / "net.sqlite.gz").write_bytes(gzip.compress(begins + bytes(100)))
    with pytest.raises(NotACapture, match="compressed") as raised:
        load(str(tmp_path / "net.sqlite.gz"))
    assert raised.value.hint.startswith("gunzip -k ")


@pytest.mark.parametrize(
    ("begins", "named"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS"),
        (b'<?xml version="1.0"?>', "session of the Visual Profiler"),
        (b"PK\x03\x04....archive/data.pkl", "checkpoint"),
        (b"\x80\x02}q\x00", "a pickle"),
        (b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[', "JAX"),
        (b'"Kind","Agent_Id","Queue_Id","Kernel_Name"\n', "rocprof"),
        (b"Index,KernelName,gpu-id\n", "rocprof"),
    ],
)
@pytest.mark.parametrize("name", ["net.dict", "net.sqlite", "net.nvvp"])
def test_what_is_passed_by_mistake_is_named(tmp_path: Path, begins: bytes, named: str, name: str) -> None:
    (tmp_path / name).write_bytes(begins)
    with pytest.raises(NotACapture, match=named) as caught:
        load(str(tmp_path / name))
    assert caught.value.hint


@pytest.mark.parametrize("name", ["net.dict", "net.parquet"])
def test_records_in_place_of_a_capture_are_named(
    tmp_path: Path, data: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parse", str(data / "nsys_ops.sqlite"), "-o", str(tmp_path / name)]) == 0
    assert main(["parse", str(tmp_path / name)]) == 1
    assert f"not a capture\nhint: pyprof prof {tmp_path / name}" in capsys.readouterr().err


def test_a_protocol_buffer_is_named(tmp_path: Path) -> None:
    (tmp_path / "host.xplane.pb").write_bytes(b"\x0a\x90\x01\x08\x01\x12\x09/host:CPU")
    with pytest.raises(NotACapture, match="xplane"):
        load(str(tmp_path / "host.xplane.pb"))


def test_a_database_of_rocprof_is_named(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        database.execute("create table rocpd_op(id integer)")
    with pytest.raises(NotACapture, match="rocprofv3"):
        load(str(tmp_path / "out.db"))
