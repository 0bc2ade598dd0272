"""Where files of a recording end up: never in the place of another, whoever wrote that, and when."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyprof.errors import InputError, UsageError
from pyprof.recording import results
from pyprof.recording.results import Staging, record_name
from tests.conftest import ROOT


def files(folder: Path) -> dict[str, str]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def keep(name: Path, *suffixes: str, text: str = "new", ranked: bool = False) -> set[str]:
    """Record files with these suffixes; the names that they have then."""
    with Staging(name, ranked) as staging:
        made = [staging.folder / f"{name.name}{suffix}" for suffix in suffixes]
        for path in made:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        kept = list(map(staging.keep(), made))
    assert all(path.read_text() == text for path in kept)
    return {path.relative_to(name.parent).parts[0] for path in kept}


def test_records_are_beside_their_capture() -> None:
    for capture, records in (("a/net.json.gz", "a/net.dict"), ("n.v2.sqlite", "n.v2.dict"), ("odd", "odd.dict")):
        assert record_name(Path(capture)) == Path(records)


@pytest.mark.parametrize(
    "there", ["net.json.gz", "net.json", "net.sqlite", "net.nsys-rep", "net.dict", "net.rank1.json.gz", "net.rank1.dict"]
)
def test_the_first_number_without_any_file_of_a_recording_is_taken(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    (tmp_path / "net.3.dict").symlink_to("nowhere")
    suffixes = (".rank0.json.gz", ".rank1.json.gz") if "rank" in there else (".sqlite", ".nsys-rep")
    for number in (2, 4) if "rank" not in there else (2, 3):
        assert keep(tmp_path / "net", *suffixes) == {f"net.{number}{suffix}" for suffix in suffixes}
    assert (tmp_path / there).read_text() == "mine" and (tmp_path / "net.3.dict").is_symlink()


def test_folders_of_several_windows_are_numbered_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()  # even an empty one, which a rename would replace
    for number in (2, 3):
        assert keep(tmp_path / "net", "/rank0_step1.json.gz", "/rank0_step4.json.gz") == {f"net.{number}"}
    assert not any((tmp_path / "net").iterdir()) and len(files(tmp_path)) == 4


def test_a_name_taken_at_the_last_moment_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by another run that ends at the same time: all files move on to the next number, none stays behind."""
    (tmp_path / "net.sqlite").write_text("mine")
    (tmp_path / "net.2.dict").mkdir()
    monkeypatch.setattr("pyprof.recording.results.os.path.lexists", lambda place: False)
    assert keep(tmp_path / "net", ".nsys-rep", ".sqlite", ".dict/part") == {
        f"net.3.{end}" for end in ("nsys-rep", "sqlite", "dict")
    }
    assert {path.name for path in tmp_path.iterdir() if "3" not in path.name} == {"net.sqlite", "net.2.dict"}
    assert (tmp_path / "net.sqlite").read_text() == "mine"


def test_ranks_of_one_job_agree_on_a_number(tmp_path: Path) -> None:
    """Each is a process of its own. A job with more ranks than the one before must not mix its files with the old ones."""
    for ranks, number in ((2, ""), (4, ".2"), (1, ".3")):
        with ExitStack() as stack:
            job = [stack.enter_context(Staging(tmp_path / "net", ranked=True)) for _ in range(ranks)]
            for rank, staging in enumerate(job):
                made = staging.folder / f"net.rank{rank}.json.gz"
                made.write_text("new")
                assert staging.keep()(made) == tmp_path / f"net{number}.rank{rank}.json.gz"
    assert len(files(tmp_path)) == 7


@pytest.mark.parametrize("name", [".net", "a b", "[net]", "n*?t", "net%p", "née", "a\nb", "x" * 200])
def test_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / ".net.run-of-another").mkdir()
    assert keep(tmp_path / name, ".json.gz") == {f"{name}.json.gz"}
    assert keep(tmp_path / name, ".json.gz") == {f"{name}.2.json.gz"}
    assert keep(tmp_path / name) == set()


def test_parts_of_a_trace_that_was_never_complete_are_not_kept(tmp_path: Path) -> None:
    with Staging(tmp_path / "net") as staging:
        (staging.folder / ".net.json.gz.12.part.json.gz").write_text("half")
        staging.keep()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["/", ".."])
def test_what_is_not_a_name(name: str) -> None:
    with pytest.raises(UsageError, match="not the name of a file"):
        Staging(Path(name))


def test_runs_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    with Staging(tmp_path / "net") as one, Staging(tmp_path / "net") as other:
        for staging, text in ((one, "one"), (other, "other")):
            (staging.folder / "net.dict").write_text(text)
        other.keep()
        one.keep()
    assert files(tmp_path) == {"net.dict": "other", "net.2.dict": "one"}


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    code = f"""if True:
        import os, signal
        from pathlib import Path
        from pyprof.recording.results import Staging
        staging = Staging(Path({str(tmp_path / "net")!r}))
        (staging.folder / "net.json.gz").write_text("of a run that was killed")
        os.kill(os.getpid(), signal.SIGKILL)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 1
    (tmp_path / ".net.run-empty").mkdir()  # killed in its first moment
    (tmp_path / ".net.2.run-x").mkdir()  # of another output
    (tmp_path / ".net.run-mine").write_text("not a folder")
    with Staging(tmp_path / "net"):
        assert len(list(tmp_path.iterdir())) == 3
    assert {path.name for path in tmp_path.iterdir()} == {".net.2.run-x", ".net.run-mine"}


def test_a_folder_that_another_run_removed_too_early_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its lock it looks like a leftover."""
    orig, seen = fcntl.flock, []

    def flock(lock: object, how: int) -> None:
        seen.append(lock)
        if len(seen) == 1:
            raise BlockingIOError(errno.EWOULDBLOCK, "the other run holds it")
        if len(seen) == 2:
            (path,) = [path for path in tmp_path.iterdir() if path.name == os.path.basename(os.path.dirname(lock.name))]  # type: ignore[attr-defined]
            (path / "lock").unlink()
        orig(lock, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", flock)
    with Staging(tmp_path / "net") as staging:
        assert len(seen) == 3 and staging.folder.is_dir()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody can know whether a folder is in use: none is removed."""

    def flock(lock: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with Staging(tmp_path / "net") as one, Staging(tmp_path / "net"):
        assert one.folder.is_dir()


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="none: cannot be written to: No such file") as caught:
        Staging(tmp_path / "none" / "net")
    assert caught.value.hint == "choose another place with -o"
    with pytest.raises(InputError, match="cannot be written to: File name too long"):
        Staging(tmp_path / ("x" * 250))

    def mkdtemp(prefix: str, dir: Path) -> str:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(results.tempfile, "mkdtemp", mkdtemp)
    with pytest.raises(InputError, match="cannot be written to: Read-only file system"):
        Staging(tmp_path / "net")


def test_what_cannot_be_moved_stays_where_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of hours must not be lost, to this run or to the next one, since its folder filled up meanwhile."""

    def replace(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match="No space left on device") as caught:
        with Staging(tmp_path / "net") as staging, monkeypatch.context() as patch:
            (staging.folder / "net.json.gz").write_text("hours of work")
            patch.setattr(os, "replace", replace)
            staging.keep()
    assert caught.value.hint == f"what was recorded is in {staging.folder}"
    assert keep(tmp_path / "net", ".sqlite") == {"net.sqlite"}
    assert (staging.folder / "net.json.gz").read_text() == "hours of work"
    assert not (tmp_path / "net.json.gz").exists()
