"""Columns on the disk hold what columns in memory hold, leave no file, and say when there is no room."""

from __future__ import annotations

import errno
import gc
import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from pyprof.arrays import spool
from pyprof.arrays.columns import Columns, Growing
from pyprof.errors import InputError

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system has no such files")
ROWS = 1_000_000


def resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssFile"))


def test_long_columns_lie_on_the_disk_and_short_ones_do_not(tmp_path):
    with spool.columns_on_disk(tmp_path):
        long, short = spool.full(ROWS, 7, np.int64), spool.full(10, 7, np.int64)
    assert isinstance(long.base, memoryview) and short.base is None
    assert (long == 7).all() and (short == 7).all()
    assert spool.full(ROWS, 7, np.int64).base is None, "outside of the block all columns are in memory"


def test_no_file_has_a_name_and_room_is_given_back(tmp_path):
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    with spool.columns_on_disk(tmp_path):
        column = spool.full(ROWS, 1, np.int64)
        assert os.listdir(tmp_path) == []
    assert open_files() > before
    del column
    gc.collect()
    assert open_files() == before


def test_pages_leave_memory_and_come_again(tmp_path):
    with spool.columns_on_disk(tmp_path):
        column = spool.computed(8 * ROWS, np.int64, lambda part: np.arange(part.start, part.stop))
    column.sum()
    held = resident_bytes()
    spool.release()
    assert held - resident_bytes() > 6 * ROWS * 8
    assert (column == np.arange(8 * ROWS)).all()


def test_a_column_that_is_there_already_is_not_copied(tmp_path):
    with spool.columns_on_disk(tmp_path):
        column = spool.full(ROWS, 1, np.int64)
        assert spool.kept(column[10:]) is not None and np.shares_memory(spool.kept(column[10:]), column)
        in_memory = np.arange(ROWS)
        table = Columns()
        table["a"] = in_memory
        assert not np.shares_memory(table["a"], in_memory) and (table["a"] == in_memory).all()
        constant = np.broadcast_to(np.int64(3), ROWS)
        table["b"] = constant
        assert table["b"] is constant


def test_a_growing_column_moves_where_it_becomes_wider_or_longer(tmp_path):
    with spool.columns_on_disk(tmp_path):
        column = Growing(np.int32, ROWS)
        column.append(np.arange(ROWS, dtype=np.int32))
        column.append(np.array([1 << 40]))
        column.append(np.arange(2 * ROWS))
        whole = column.whole()
    assert whole.dtype == np.int64
    assert (whole == np.concatenate([np.arange(ROWS), [1 << 40], np.arange(2 * ROWS)])).all()


def test_columns_are_joined_in_their_order(tmp_path):
    parts = [np.arange(ROWS, dtype=np.int32), np.array([1 << 40]), np.arange(5, dtype=np.int8)]
    expected = np.concatenate(parts)
    with spool.columns_on_disk(tmp_path):
        whole = spool.joined(parts)
    assert whole.dtype == np.int64 and (whole == expected).all() and parts == []


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("edges", [[ROWS], [3, 0, ROWS - 3], [ROWS // 2, ROWS // 2]])
@pytest.mark.parametrize("changes", [None, 0, 2, ROWS // 2, ROWS - 1])
def test_a_column_of_parts_takes_no_room_where_all_is_one_value(tmp_path, on_disk, edges, changes):
    expected = np.full(ROWS, 5)
    if changes is not None:
        expected[changes] = 6
    ends = np.cumsum(edges)
    with spool.columns_on_disk(tmp_path, piece_rows=1 << 10) if on_disk else nullcontext():
        parts = (expected[end - size : end] for size, end in zip(edges, ends, strict=True))
        column = spool.of_parts(ROWS, np.int64, parts, -1)
    assert (column == expected).all() and len(column) == ROWS
    assert (column.strides == (0,)) == (changes is None)


def test_a_column_without_parts_has_the_default():
    assert spool.of_parts(3, np.int32, iter([]), -1).tolist() == [-1, -1, -1]


def test_no_room_is_an_error_of_ours(tmp_path, monkeypatch):
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with spool.columns_on_disk(tmp_path), pytest.raises(InputError, match=r"no room for 8,000,000 bytes.*No space left"):
        spool.full(ROWS, 1, np.int64)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_not_taken(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    assert spool._usable(tmp_path / "absent") == temporary
    assert spool._usable(tmp_path) == tmp_path
