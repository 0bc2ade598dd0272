"""Many captures: a data set by rank that goes on where it stopped and names what failed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.errors import InputError
from pyprof.loading.load import load, load_capture
from pyprof.model.records import Records, concatenate
from pyprof.parse.records.dataset import expand, parse_many, stored
from pyprof.parse.records.netdict.write import lines
from tests import ROOT
from tests.tiny import Nsys

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")


def capture(path: Path, kernels: int) -> Path:
    n = Nsys()
    for i in range(kernels):
        n.range(f"aten::mm, seq = {i}, op_id = {i}, sizes = [[4, 2], [2, 8]]", 100 * i, 100 * i + 90)
        n.kernel("k", 100 * i + 5, 100 * i + 200, 100 * i + 210)
    return n.write(path)


def test_without_pyarrow_one_line_says_so_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(capture(tmp_path / f"rank{r}.sqlite", 1)) for r in range(2)]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["parse", *files, "-o", str(tmp_path / "out")]) == 1
    first, *hint = capsys.readouterr().err.splitlines()
    assert "needs pyarrow" in first and [line[:6] for line in hint] == ["hint: "] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_data_set_by_rank_goes_on_and_names_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs: str
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    (source / "deep").mkdir(parents=True)
    files = [capture(source / f"deep/rank{r}.sqlite", 3 + r) for r in (10, 2, 0)]
    other = capture(source / "no_number.sqlite", 2)
    (source / "rank3.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    command = ["parse", str(source), "-o", str(out), "--jobs", jobs]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "rank3.sqlite: failed: " in said and "cut short" in said and "4 of 5 captures" in said
    assert [p.parent.name for p in stored(out)] == ["rank=0", "rank=2", "rank=10", "rank=unknown"]
    whole = concatenate([load_capture(path) for path in (*files[::-1], other)])
    assert list(lines(load(str(out)))) == list(lines(whole))
    assert not [p for p in out.rglob("*") if p.is_file() and p.suffix != ".parquet"]

    times = {path: path.stat().st_mtime_ns for path in stored(out)}
    capture(source / "rank3.sqlite", 1)
    newer = stored(out)[0].stat().st_mtime_ns + 1_000_000_000
    os.utime(files[2], ns=(newer, newer))  # recorded again: parsed again
    assert main([*command[:-1], "1"]) == 0
    said = capsys.readouterr().err
    assert said.count("was there") == 3 and said.count(": done") == 2 and "5 of 5 captures" in said
    assert {p for p in stored(out) if times.get(p) == p.stat().st_mtime_ns} == set(list(times)[1:])


def test_a_run_that_was_killed_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    files = [capture(source / f"rank{r}.sqlite", 40 + r) for r in range(24)]
    command = ["parse", str(source), "-o", str(out), "--jobs", "2"]
    with subprocess.Popen([sys.executable, "-m", "pyprof", *command], cwd=ROOT, stderr=subprocess.DEVNULL) as run:
        for _ in range(6000):
            if len(before := stored(out)) >= 3 or run.poll() is not None:
                break
            time.sleep(0.01)
        run.kill()
    assert before
    key = before[0].name.removesuffix(".parquet")
    (before[0].parent / f".{key}.parquet.half.part").write_bytes(b"PAR1 and no more")
    before[0].unlink()  # as if that one had been being written
    assert main(command) == 0
    said = capsys.readouterr().err
    assert 2 <= said.count("was there") < 24 and "24 of 24 captures" in said
    assert [p.parent.name for p in stored(out)] == [f"rank={r}" for r in range(24)]
    assert [len(load(str(path))) for path in stored(out)] == [40 + r for r in range(24)] and len(files) == 24
    assert not list(before[0].parent.glob(".*"))


def _dying_at_one(path: Path) -> Records:
    if path.name == "rank1.sqlite":
        os.kill(os.getpid(), signal.SIGKILL)
    return load_capture(path)


@pytest.mark.slow
def test_a_capture_that_ends_its_process_is_named_and_done_by_the_next_run(tmp_path: Path) -> None:
    files, out = [capture(tmp_path / f"rank{rank}.sqlite", 2) for rank in range(2)], tmp_path / "out"
    first = {outcome.source: outcome for outcome in parse_many(files, out, _dying_at_one, 2)}
    assert [path.name for path in files if first[path].target is None] == ["rank1.sqlite"]
    assert "its process died" in first[files[1]].error
    assert [file.parent.name for file in stored(out)] == ["rank=0"]
    again = {outcome.source: outcome for outcome in parse_many(files, out, load_capture, 1)}
    assert [path.name for path in files if not again[path].before] == ["rank1.sqlite"]
    assert [file.parent.name for file in stored(out)] == ["rank=0", "rank=1"]


def test_prof_reads_the_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path / "rank0.sqlite", 2), capture(tmp_path / "rank1.sqlite", 3)
    assert main(["parse", str(tmp_path / "rank*.sqlite"), "-o", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert main(["prof", str(tmp_path / "out"), "-c", "op,sil"]) == 0
    assert capsys.readouterr().out.splitlines() == ["Op Sil(ns)"] + ["mm 10"] * 5


def test_names_stand_for_files(tmp_path: Path) -> None:
    for name in ("b.sqlite", "a.json.gz", "notes.txt", "sub/c.nvprof"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    names = [
        p.relative_to(tmp_path).as_posix() for p in expand([str(tmp_path), str(tmp_path / "*.txt"), str(tmp_path / "b.sqlite")])
    ]
    assert names == ["a.json.gz", "b.sqlite", "sub/c.nvprof", "notes.txt"]
    for nothing in ("*.nothing", "sub/[x]"):
        with pytest.raises(InputError, match="no capture"):
            expand([str(tmp_path / nothing)])


def test_several_captures_need_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(capture(tmp_path / "n.sqlite", 1))
    assert main(["parse", path, path]) == 2 and main(["parse", path, path, "-o", str(tmp_path / "x.dict")]) == 2
    assert "folder" in capsys.readouterr().err


def test_an_output_is_never_the_input_and_follows_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = capture(tmp_path / "n.sqlite", 2)
    before = path.read_bytes()
    (tmp_path / "n.dict").symlink_to(path)
    os.link(path, tmp_path / "n.parquet")
    for name in ("n.dict", "n.parquet"):
        assert main(["parse", str(path), "-o", str(tmp_path / name)]) == 2
        assert "the output is the input" in capsys.readouterr().err and path.read_bytes() == before
    (tmp_path / "link.dict").symlink_to("there.dict")
    assert main(["parse", str(path), "-o", str(tmp_path / "link.dict")]) == 0
    assert (tmp_path / "link.dict").is_symlink() and len(load(str(tmp_path / "there.dict"))) == 2


def test_standard_output_and_a_full_disk_by_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = str(capture(tmp_path / "n.sqlite", 2))
    assert main(["parse", path]) == 0
    lines_out = capfd.readouterr().out
    assert main(["parse", path, "-o", "/dev/stdout"]) == 0 and capfd.readouterr().out == lines_out
    assert main(["parse", path, "-o", "/dev/full"]) == 1
    assert capfd.readouterr().err.startswith("pyprof: error: /dev/full: cannot be written: No space left on device\nhint: ")
    assert os.listdir(tmp_path) == ["n.sqlite"]


def test_links_that_lead_out_of_a_data_set_are_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out, other = str(capture(tmp_path / "rank0.sqlite", 2)), tmp_path / "out", tmp_path / "other"
    other.mkdir()
    out.mkdir()
    (out / "rank=0").symlink_to(other)
    assert main(["parse", path, "-o", str(out)]) == 1
    assert "a link leads out of the data set" in capsys.readouterr().err and not os.listdir(other)
    (out / "rank=0").unlink()
    assert main(["parse", path, "-o", str(out)]) == 0
    made = stored(out)[0]
    made.rename(other / "a.parquet")
    made.symlink_to(other / "a.parquet")
    assert stored(out) == []
    assert main(["parse", path, "-o", str(out)]) == 1 and "leads out" in capsys.readouterr().err
