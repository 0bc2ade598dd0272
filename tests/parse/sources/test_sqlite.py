"""What lies beside an SQLite file by SQLite's own names, and is opened with it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.parse.sources.sqlite import Database


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
