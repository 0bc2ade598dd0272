"""`--cache`: a capture is parsed once; no other capture or version is ever taken for it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="--cache needs pyarrow")

from pyprof.cli import main
from pyprof.model.records import Records
from pyprof.parse.attribution import attribute as attribution
from pyprof.parse.records import cache
from tests.test_loading import nsys, torch_trace

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A capture; the cache is in the same temporary folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return nsys(tmp_path / "net.sqlite")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's standard output and error; it must succeed."""

    def call(*arguments: object) -> tuple[str, str]:
        capsys.readouterr()
        assert main([str(word) for word in arguments]) == 0
        return tuple(capsys.readouterr())  # type: ignore[return-value]

    return call


def _entries() -> list[Path]:
    return sorted(cache.folder().glob("*")) if cache.folder().exists() else []


def _no_attribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("attributed again")

    monkeypatch.setattr(attribution, "attribute", never)


def test_a_capture_is_parsed_once(capture: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [("prof", capture, "--csv"), ("summary", capture), ("gaps", capture), ("diff", capture, capture)]
    expected = [run(*command) for command in commands]
    assert not _entries()
    assert run("prof", "--cache", capture, "--csv") == expected[0]
    (entry,) = _entries()
    assert cache.folder().stat().st_mode & 0o777 == 0o700
    _no_attribution(monkeypatch)
    assert [run(*command, "--cache") for command in commands] == expected
    assert _entries() == [entry]
    with pytest.raises(AssertionError, match="attributed again"):
        main(["prof", str(capture)])


def test_another_capture_or_another_code_finds_nothing(capture: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("prof", "--cache", capture)
    other = nsys(capture.with_name("other.sqlite"))
    other.write_bytes(other.read_bytes() + bytes(4096))  # SQLite reads the same; the bytes are others
    before = run("prof", other)
    assert run("prof", "--cache", other) == before
    monkeypatch.setattr(cache, "_code", lambda: "0" * 16)
    run("prof", "--cache", capture)
    assert len(_entries()) == 3


def test_a_rank_that_only_the_name_tells_is_that_of_each_copy(capture: Path, run: Run) -> None:
    for rank in (0, 1):
        copy = torch_trace(capture.with_name(f"rank{rank}.json"))
        expected = run("prof", copy, "-c", "idx,rank,kernel")
        assert expected[0].splitlines()[1].split() == ["1", str(rank), "k"]
        assert [run("prof", copy, "-c", "idx,rank,kernel", "--cache") for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[: len(raw) // 2], lambda raw: raw[:400] + b"\xff" + raw[401:], lambda _: b""]
)
def test_a_damaged_entry_is_made_again(capture: Path, run: Run, damage: Callable[[bytes], bytes]) -> None:
    expected = run("prof", "--cache", capture)
    (entry,) = _entries()
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert run("prof", "--cache", capture) == expected
    assert [path.read_bytes() for path in _entries()] == [whole]


def test_results_that_depend_on_other_files_are_not_cached(capture: Path, run: Run, tmp_path: Path) -> None:
    capture.with_name("net.sqlite-journal").write_bytes(b"")
    run("prof", "--cache", capture)
    capture.with_name("net.sqlite-journal").unlink()
    records = tmp_path / "net.dict"
    records.write_text(run("parse", capture)[0])
    run("prof", "--cache", records)
    formulas = tmp_path / "mine.py"
    formulas.write_text("import pyprof\n@pyprof.formula('cached_test::op')\ndef op(x):\n    return pyprof.Cost(1, 1)\n")
    assert subprocess.run(
        [sys.executable, "-m", "pyprof", "prof", str(capture), "--cache", "--formulas", str(formulas)],
        capture_output=True, check=True,
    ).returncode == 0  # fmt: skip
    assert not _entries()


def test_a_capture_that_changes_meanwhile_is_not_cached(capture: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    attribute = attribution.attribute

    def slow(*given: Any, **options: Any) -> Records:
        os.utime(capture, ns=(1, 1))
        return attribute(*given, **options)

    monkeypatch.setattr(attribution, "attribute", slow)
    assert "changed meanwhile" in run("prof", "--cache", capture)[1]
    assert not _entries()


def test_the_least_recently_used_goes_first(capture: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    captures = []
    for number in range(3):
        captures.append(capture.with_name(f"{number}.sqlite"))
        captures[-1].write_bytes(capture.read_bytes() + bytes(4096 * number))
    keys = [cache.Entry(path).key for path in captures]
    for number in (0, 1):
        run("prof", "--cache", captures[number])
        (made,) = cache.folder().glob(f"{keys[number]}.*")
        os.utime(made, ns=(number + 1, number + 1))
    run("prof", "--cache", captures[0])  # used again
    monkeypatch.setattr(cache, "limit_bytes", lambda: int(made.stat().st_size * 2.5))
    run("prof", "--cache", captures[2])
    assert {path.name.split(".")[0] for path in _entries()} == {keys[0], keys[2]}


def test_a_limit_must_be_a_size(capture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PYPROF_CACHE_SIZE", "much")
    assert main(["prof", "--cache", str(capture)]) == 2
    assert capsys.readouterr().err.startswith("pyprof: error: PYPROF_CACHE_SIZE much: not a size of at least 64M\n")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions are those of POSIX")
@pytest.mark.parametrize("link", [False, True])
def test_a_folder_in_which_others_may_write_is_refused(capture: Path, link: bool, capsys: pytest.CaptureFixture[str]) -> None:
    cache.folder().parent.mkdir(parents=True)
    if link:
        cache.folder().symlink_to(capture.parent)
    else:
        cache.folder().mkdir()
        cache.folder().chmod(0o777)
    assert main(["prof", "--cache", str(capture)]) == 1
    assert "others may write there" in capsys.readouterr().err


def test_without_a_writable_cache_the_command_goes_on(capture: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("prof", capture)
    monkeypatch.setenv("XDG_CACHE_HOME", str(capture))  # a file
    out, err = run("prof", "--cache", capture)
    assert out == expected[0] and err.startswith("note: not kept by --cache: ")


def test_two_processes_at_once(capture: Path, run: Run) -> None:
    expected = run("prof", capture, "--csv")[0].splitlines()
    command = [sys.executable, "-m", "pyprof", "prof", "--cache", str(capture), "--csv"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].splitlines() for process in both] == [expected] * 2
    assert len(_entries()) == 1
