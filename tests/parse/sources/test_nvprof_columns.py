"""nvprof's files read by whole columns: the same answer as row by row, for sound files and for odd ones, in any order of rows."""

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.loading.load import load_capture, open_trace
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.sources import sqlite
from tests import examples
from tests.conftest import ROOT
from tests.parse.sources.test_columns import all_ways, refuse
from tests.parse.sources.test_nvprof import CELLS, NAMES, ODD, write


@pytest.fixture(params=[False, True], ids=["pages", "rows"])
def by_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(sqlite, "PageReader", refuse)


MARKER = "CUPTI_ACTIVITY_KIND_MARKER"


def test_a_real_capture_repeated_and_shuffled_reads_the_same(captures: Path, tmp_path: Path) -> None:
    once, script = captures / "nvprof/v100_lm/net.sql", ROOT / "scripts/bench/repeat_nvprof.py"
    rows, pages, many = all_ways(once)
    assert rows == pages == many and len(rows[0]) == 189
    found = []
    for options in ([], ["--shuffled"]):
        path = tmp_path / f"long{len(options)}.sql"
        done = subprocess.run(
            [sys.executable, str(script), str(once), str(path), "--times", "4", *options], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found += all_ways(path)
    assert all(each == found[0] for each in found) and len(found[0][0]) == 4 * 189


def untyped(db: sqlite3.Connection, table: str) -> None:
    """The same table, of whose columns none says what it holds."""
    columns = ", ".join(row[1] for row in db.execute(f"PRAGMA table_info({table})"))
    db.executescript(
        f"ALTER TABLE {table} RENAME TO old; CREATE TABLE {table} ({columns}); INSERT INTO {table} SELECT * FROM old; DROP TABLE old"
    )


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from([(table, column) for table, columns in CELLS.items() for column in columns.split()]),
    ODD,
    st.sampled_from(["rowid = 1", "rowid = 2", "rowid = 7", "rowid > 0"]),
    st.booleans(),
)
@pytest.mark.slow
def test_odd_files_read_the_same(tmp_path: Path, cell: tuple[str, str], value: object, where: str, typed: bool) -> None:
    path = tmp_path / "net.sql"
    path.unlink(missing_ok=True)
    write(path, "CUPTI_ACTIVITY_KIND_KERNEL")
    with closing(sqlite3.connect(path)) as db:
        if not typed:
            untyped(db, cell[0])
        db.execute(f"UPDATE OR IGNORE {cell[0]} SET {cell[1]} = ? WHERE {where}", (value,))
        db.commit()
    rows, pages, many = all_ways(path)
    assert rows == pages == many and rows[0]


def test_sound_files_are_really_read_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite.Database, "_row_reader", None)  # any use of it fails
    assert len(open_trace(write(tmp_path / "net.sql", "CUPTI_ACTIVITY_KIND_KERNEL")).ranges["start_ns"]) == 5


@pytest.mark.usefixtures("by_rows")
def test_blobs_of_another_size_name_no_thread(tmp_path: Path) -> None:
    path = write(tmp_path / "net.sql", "CUPTI_ACTIVITY_KIND_KERNEL")
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE {MARKER} SET objectId = x'4d' WHERE id = 1")
        db.execute(f"UPDATE {MARKER} SET objectId = 'a text' WHERE id = 3")
        db.execute(f"UPDATE {MARKER} SET objectId = x'4d0000004037dcea0102030405060708' WHERE id = 2")
        db.commit()
    trace = open_trace(path)
    by_begin = dict(zip(trace.ranges["start_ns"].tolist(), trace.ranges["thread"].tolist(), strict=True))
    assert by_begin[10] == by_begin[60] == -1 and by_begin[12] == by_begin[95] >= 0


@pytest.mark.usefixtures("by_rows")
def test_a_name_that_is_not_there_is_an_empty_one(tmp_path: Path) -> None:
    path = write(tmp_path / "net.sql", "CUPTI_ACTIVITY_KIND_KERNEL")
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM StringTable WHERE _id_ = 1")
        db.commit()
    trace = open_trace(path)
    texts = sorted(trace.markers[label].text for label in trace.ranges["label"].tolist())
    assert texts == ["", "MmBackward", NAMES[3], NAMES[3], "mm"] and sorted(trace.ranges["seq"].tolist()) == [
        -1,
        -1,
        -1,
        0,
        5,
    ]
    assert len(list(lines(load_capture(path)))) == 2


def with_many_ranges(path: Path) -> Path:
    """Ranges in any order of rows, whose ids are used again, some without an end and some ends without a begin."""
    write(path, "CUPTI_ACTIVITY_KIND_KERNEL")
    some = random.Random(7)
    threads = [bytes([77, 0, 0, 0, number, 0, 0, 0]) for number in range(3)]
    rows = []
    for number in range(90):
        begin, marker = some.randrange(1000), some.randrange(1, 30)
        rows.append((2, begin, marker, 2, some.choice(threads), some.choice(list(NAMES)), some.choice([0, 5])))
        if number % 9:
            rows.append((4, begin + some.randrange(100), marker, 2, threads[0], 0, 0))
    rows += [(4, 17, 500, 2, threads[0], 0, 0), (2, -5, 501, 2, threads[0], 1, 0), (2, 40, 600, 2, threads[0], 1, 0)]
    some.shuffle(rows)
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO StringTable VALUES (40, ?)", ("never used " * 50,))
        db.execute("INSERT INTO StringTable VALUES (41, 'relu, seq = 9')")
        db.executemany(f"INSERT INTO {MARKER} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        db.execute(f"UPDATE {MARKER} SET name = 41 WHERE id = 7 AND flags = 2")
        db.commit()
    return path


@pytest.mark.usefixtures("by_rows")
def test_each_range_ends_as_looking_for_its_end_alone_says(tmp_path: Path) -> None:
    path = with_many_ranges(tmp_path / "net.sql")
    with closing(sqlite3.connect(path)) as db:
        given = db.execute(f"SELECT flags, timestamp, id FROM {MARKER}").fetchall()
    expected = []
    for flags, begin, marker in given:
        if flags == 2 and begin is not None and begin >= 0:
            ends = sorted(end for other, end, of in given if other == 4 and of == marker and end is not None)
            after = [end for end in ends if end >= begin]
            if after or not ends:  # else it ends before it begins: left out
                expected.append((begin, after[0] if after else -1))
    ranges = open_trace(path).ranges
    assert sorted(zip(ranges["start_ns"].tolist(), ranges["end_ns"].tolist(), strict=True)) == sorted(expected)
    assert np.array_equal(ranges["open"], ranges["end_ns"] < 0) and ranges["open"].any()
