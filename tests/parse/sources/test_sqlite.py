"""What lies beside an SQLite file by SQLite's own names, and is opened with it."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.parse.sources.sqlite import Database, check_no_log


def _read(path: Path) -> list[str]:
    with open(path, "rb") as file, closing(Database(file.fileno(), path, path.name)) as database:
        return list(database.tables)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with one table."""
    with closing(sqlite3.connect(tmp_path / "net.sqlite")) as db:
        db.execute("CREATE TABLE t (a INT)")
    return tmp_path / "net.sqlite"


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda beside: os.symlink("/dev/zero", beside)])
def test_companions_that_are_no_files_are_refused(path: Path, suffix: str, put: Callable[[str], None]) -> None:
    assert _read(path) == ["t"]
    put(f"{path}{suffix}")
    with pytest.raises(InputError, match=rf"net.sqlite{suffix} beside it is not a file"):
        _read(path)


def test_companions_are_those_of_the_file_that_a_link_names(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)
    os.mkfifo(f"{link}-journal")
    assert _read(link) == ["t"]
    os.mkfifo(f"{path}-journal")
    with pytest.raises(InputError, match=r"link.sqlite: net.sqlite-journal beside it is not a file"):
        _read(link)


@pytest.fixture
def logged(path: Path, tmp_path: Path) -> Path:
    """A database of a writer that was killed: what it wrote last, another table, is in the log alone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE later (a INT)")
        (tmp_path / "left").mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", tmp_path / "left" / f"net.sqlite{suffix}")
    return tmp_path / "left" / "net.sqlite"


def test_a_log_is_part_of_the_capture(logged: Path) -> None:
    assert _read(logged) == ["t", "later"]
    with pytest.raises(InputError, match=r"net.sqlite-wal beside it holds changes that are not in the file"):
        check_no_log(logged)


def test_a_log_in_a_folder_without_write_permission_is_read_or_said(logged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert _read(logged) == ["t", "later"]  # here SQLite may write
    os.unlink(f"{logged}-wal")
    check_no_log(logged)
    assert _read(logged) == ["t"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder is needed")
def test_a_log_that_cannot_be_opened_is_named(logged: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # others may not enter pytest's own
        shutil.copytree(logged.parent, folder, dirs_exist_ok=True)
        os.chmod(folder, 0o555)
        os.seteuid(65534)
        try:
            with pytest.raises(InputError, match=r"net.sqlite: net.sqlite-wal beside it cannot be used here"):
                _read(Path(folder, logged.name))
        finally:
            os.seteuid(0)
