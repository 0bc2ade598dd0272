"""Captures and data sets in stores that fsspec reaches: the memory of this process, and files by URL."""

import sys
from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.errors import InputError, ToolError, UsageError
from pyprof.loading.load import load
from pyprof.parse.records.dataset import expand, named_rank, stored
from pyprof.parse.records.locations import Remote, fetched, is_folder, locate, modified_ns
from pyprof.parse.records.netdict.write import lines
from tests.tiny import Nsys

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
fsspec = pytest.importorskip("fsspec", reason="URLs need fsspec")


def capture(path: Path, kernels: int) -> bytes:
    n = Nsys()
    for i in range(kernels):
        n.kernel("k", 100 * i + 5, 100 * i + 200, 100 * i + 210)
    return n.write(path).read_bytes()


@pytest.fixture
def memory(tmp_path: Path) -> object:
    store = fsspec.filesystem("memory")
    store.store.clear()
    for rank in range(3):
        store.pipe_file(f"/run/rank{rank}.sqlite", capture(tmp_path / "x.sqlite", 2 + rank))
    store.pipe_file("/run/notes.txt", b"x")
    return store


def test_a_data_set_in_a_store(memory: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["parse", "memory://run", "-o", "memory://out/set", "--jobs", "1"]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "memory:///run/rank1.sqlite: done" in said and "3 of 3 captures" in said
    files = stored(Remote("memory://out/set"))
    assert [(file.parent.name, named_rank(file)) for file in files] == [("rank=0", 0), ("rank=1", 1), ("rank=2", 2)]
    for rank, file in enumerate(files):
        with fetched(file) as path:
            there = list(lines(load(str(path))))
        with fetched(Remote(f"memory://run/rank{rank}.sqlite")) as path:
            assert path.name == f"rank{rank}.sqlite" and there == list(lines(load(str(path))))
        assert not path.exists()
    assert main(command) == 0 and capsys.readouterr().err.count("was there") == 3
    memory.pipe_file("/run/rank1.sqlite", capture(tmp_path / "x.sqlite", 7))  # type: ignore[attr-defined]
    assert main(command) == 0 and capsys.readouterr().err.count("was there") == 2
    assert main(["ranks", "memory://out/set"]) == 0 and capsys.readouterr().out.startswith("3 ranks")


def test_from_a_store_to_a_folder_and_to_standard_output(
    memory: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parse", "memory://run/rank[02].sqlite", "-o", str(tmp_path / "set"), "--jobs", "1"]) == 0
    assert [path.parent.name for path in stored(tmp_path / "set")] == ["rank=0", "rank=2"]
    assert main(["parse", "memory://run/rank0.sqlite"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_files_by_url_in_several_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(3):
        capture(tmp_path / f"rank{rank}.sqlite", 1 + rank)
    (tmp_path / "rank3.sqlite").write_bytes(b"no capture")
    assert main(["parse", f"file://{tmp_path}/rank*.sqlite", "-o", f"file://{tmp_path}/set", "--jobs", "2"]) == 1
    said = capsys.readouterr().err
    assert "3 of 4 captures" in said and f"file://{tmp_path}/rank3.sqlite: failed: file://{tmp_path}/rank3.sqlite" in said
    assert len(stored(tmp_path / "set")) == 3


def test_missing_files_and_packages(
    memory: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("memory://run/*.nothing", "memory://nothing/*"):
        with pytest.raises(InputError, match="no capture"):
            expand([name])
    with pytest.raises(InputError, match="no such file"), fetched(Remote("memory://run/nothing.sqlite")):
        pass
    assert modified_ns(Remote("memory://nothing")) is None and is_folder(Remote("memory://run"))
    with pytest.raises(UsageError, match="not known"):
        expand(["nosuchstore://x/y"])
    assert locate("C:\\x") == Path("C:\\x") and locate("a//b") == Path("a/b") and isinstance(locate("s3://a/b"), Remote)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ToolError, match="s3fs"):
        expand(["s3://bucket/x"])
    for module in [name for name in sys.modules if name.partition(".")[0] == "fsspec"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert main(["parse", "memory://run", "-o", "memory://out"]) == 1
    assert "[remote]'" in capsys.readouterr().err


def test_a_stores_own_exceptions_become_one_line(memory: object, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Exception):
        pass

    def isdir(self: object, path: str) -> bool:
        raise Refused("no rights\nto this")

    monkeypatch.setattr(type(memory), "isdir", isdir)
    with pytest.raises(InputError, match="memory://run: no rights to this"):
        expand(["memory://run"])


@pytest.mark.parametrize("way", ["get_file", "put_file"])
def test_a_store_that_fails_half_way_is_one_line_and_the_next_run_completes(
    memory: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    whole, cut = getattr(type(memory), way), [3]

    def failing(self: object, source: str, target: str, **options: object) -> None:
        cut[0] -= 1
        if cut[0]:
            whole(self, source, target, **options)
        elif way == "put_file":
            memory.pipe_file(target, Path(source).read_bytes()[:100])  # type: ignore[attr-defined]
            raise TimeoutError
        else:
            Path(target).write_bytes(b"SQLite format 3")
            raise OSError("connection reset\nby peer")

    monkeypatch.setattr(type(memory), way, failing)
    command = ["parse", "memory://run", "-o", "memory://out/set", "--jobs", "1"]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert said.count("failed: ") == 1 and ("TimeoutError" if way == "put_file" else "connection reset by peer") in said
    assert "2 of 3 captures" in said and len(stored(Remote("memory://out/set"))) == 2
    assert main(command) == 0
    said = capsys.readouterr().err
    assert said.count("was there") == 2 and "3 of 3 captures" in said
    assert [len(load(str(file))) for file in stored(Remote("memory://out/set"))] == [2, 3, 4]
