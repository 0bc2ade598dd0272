"""Tables read from the pages of an SQLite file, against what SQLite itself says of the same file."""

import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.errors import InputError
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.sqlite_pages import reader as pages
from pyprof.parse.sources.sqlite_pages.reader import OddFile, PageReader, Schema
from tests import examples

Rows = list[tuple[Any, ...]]
SCHEMAS = (
    "id INTEGER PRIMARY KEY, a INT, txt TEXT, b INTEGER, other BLOB, c",
    "a INTEGER, b INT, txt TEXT, c NUMERIC, id INTEGER PRIMARY KEY DESC",
    "f REAL, a INTEGER, id INT, txt VARCHAR(9), b INT, c INT",
    "note TEXT, c INT, b INT, a INT, id INT UNIQUE, txt CLOB DEFAULT 'x'",
)
ASKED = ("id", "a", "b", "c", "added")
EDGES = [sign * (1 << bits) + step for bits in (7, 15, 23, 31, 47, 62) for sign in (-1, 1) for step in (-1, 0, 1)]

integers = st.one_of(st.none(), st.sampled_from([0, 1, 2, -1, -(1 << 63), (1 << 63) - 1, *EDGES]), st.integers(0, 300))
texts = st.one_of(
    st.none(),
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.sampled_from([57, 58, 400, 1000, 9000, 70_000]).map(lambda size: "xyz" * (size // 3) + "w" * (size % 3)),
)
others = st.one_of(st.none(), st.floats(allow_nan=False), st.binary(max_size=70), st.just(b"q" * 3000))
row = st.fixed_dictionaries({"id": integers, "a": integers, "b": integers, "c": integers, "txt": texts, "other": others})


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """What to make a file of."""
    return {
        "page": draw(st.sampled_from([512, 1024, 4096, 65_536])),
        "schema": draw(st.sampled_from(SCHEMAS)),
        "rows": draw(st.lists(row, max_size=12)),
        "times": draw(st.sampled_from([1, 1, 3, 20])),
        "delete": draw(st.booleans()),
        "added": draw(st.sampled_from(["", " DEFAULT NULL"])),
        "later": draw(st.lists(row, max_size=2)),
        "block": draw(st.sampled_from([1024, 8192, 1 << 21])),
    }


def make(path: Path, *, page: int, schema: str, rows: Sequence[dict[str, Any]], **more: Any) -> None:
    """A file with a table t, rows of which were deleted and to which a column was added between rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {page}")
        db.execute(f"PRAGMA auto_vacuum = {more.get('auto_vacuum', 0)}")
        db.execute(f"CREATE TABLE t ({schema})")
        insert(db, list(rows) * more.get("times", 1))
        if more.get("delete"):
            db.execute("DELETE FROM t WHERE rowid % 3 = 0")
        db.execute(f"ALTER TABLE t ADD COLUMN added INT{more.get('added', '')}")
        insert(db, more.get("later", []))


def insert(db: sqlite3.Connection, rows: Sequence[dict[str, Any]]) -> None:
    names = [name for _, name, *_ in db.execute("PRAGMA table_info(t)")]
    db.execute("BEGIN")
    for one in rows:
        of_other = one["other"]
        values = {"f": of_other if isinstance(of_other, float) else 2.0, "note": one["txt"], "added": one["a"], **one}
        db.execute(f"INSERT OR IGNORE INTO t VALUES ({', '.join('?' * len(names))})", [values[name] for name in names])
    db.execute("COMMIT")


def by_sqlite(path: Path, columns: Sequence[str]) -> Rows:
    """The rows as SQLite reads them; not by an index, which has its own order."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        db.text_factory = bytes
        present = {row[1].decode("utf-8", "replace") for row in db.execute("PRAGMA table_info(t)")}  # damage may rename some
        parts = [f'coalesce("{column}", -1)' if column in present else "-1" for column in columns]
        text = "coalesce(txt, '')" if "txt" in present else "x''"
        return db.execute(f"SELECT {', '.join(parts)}, {text} FROM t NOT INDEXED").fetchall()


@contextmanager
def opened(path: Path, table: str = "t") -> Iterator[tuple[PageReader, Schema]]:
    """The reader of a file's pages, and what SQLite says of a table; OddFile also where SQLite refuses the file."""
    try:
        with path.open("rb") as stream, closing(Database(stream.fileno(), path, path.name)) as db:
            schema = db.schema(table)
            if schema is None:
                raise OddFile(f"no {table}")
            if db._pages is None:
                raise OddFile("read row by row")
            yield db._pages, schema
    except (InputError, FileNotFoundError) as error:
        raise OddFile(str(error)) from error


def by_pages(path: Path, columns: Sequence[str]) -> Rows:
    """The rows as the reader of pages reads them, both ways, which must agree."""
    with opened(path) as (reader, schema):
        found = reader.integers(schema, columns)
        said: list[bytes] = []
        parts: list[list[np.ndarray[Any, Any]]] = [[np.empty(0, np.int64)] for _ in columns]
        for arrays, texts in reader.batches(schema, columns, "txt"):
            said += texts.to_bytes()
            for part, array in zip(parts, arrays, strict=True):
                part.append(array)
    for part, array in zip(parts, found, strict=True):
        assert array.dtype == np.int64
        np.testing.assert_array_equal(np.concatenate(part), array)
    return list(zip(*(array.tolist() for array in found), said, strict=True))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.sqlite"


def test_every_sound_table_reads_as_sqlite_reads_it() -> None:
    @settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
    @given(tables(), st.sets(st.sampled_from(ASKED), min_size=1).map(sorted))
    def check(table: dict[str, Any], columns: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(pages, "BLOCK_BYTES", table["block"])
            patch.setattr(pages, "TEXT_BLOCK_BYTES", table["block"])
            path = Path(folder) / "t.sqlite"
            make(path, **table)
            assert by_pages(path, columns) == by_sqlite(path, columns)

    check()


def test_a_damaged_file_reads_as_sqlite_reads_it_or_is_odd() -> None:
    outcomes = {"same": 0, "odd": 0}

    @settings(max_examples=examples(180), deadline=None, suppress_health_check=list(HealthCheck))
    @given(tables(), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8))
    def check(table: dict[str, Any], damage: list[tuple[float, int]]) -> None:
        table["page"] = min(table["page"], 4096)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.sqlite"
            make(path, **table)
            raw = bytearray(path.read_bytes())
            for where, value in damage:
                # Half of it into the headers of pages, where it does more.
                at = int(where * len(raw))
                raw[at // table["page"] * table["page"] + at % 16 if value & 1 and at > table["page"] else at] = value
            path.write_bytes(raw)
            columns = ["a", "b", "c"]
            try:
                found = by_pages(path, columns)
            except OddFile:
                outcomes["odd"] += 1
                return
            assert found == by_sqlite(path, columns)
            outcomes["same"] += 1

    check()
    assert min(outcomes.values()) > 0, outcomes  # else nothing was tried


@pytest.mark.parametrize("value", [1.5, "text", b"blob", "x" * 300])
@pytest.mark.parametrize("asked", [True, False])
def test_another_value_is_odd_only_where_it_is_asked_for(path: Path, value: Any, asked: bool) -> None:
    rows = [{"id": None, "a": index, "b": 2, "c": 3, "txt": "t", "other": None} for index in range(200)]
    rows[150]["b"] = value
    make(path, page=1024, schema=SCHEMAS[0], rows=rows)
    if asked:
        with pytest.raises(OddFile):
            by_pages(path, ["a", "b"])
    else:
        assert by_pages(path, ["a", "c"]) == by_sqlite(path, ["a", "c"])


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a INT PRIMARY KEY, txt TEXT) WITHOUT ROWID",
        "CREATE TABLE u (a INT, txt TEXT); CREATE VIEW t AS SELECT * FROM u",
        "CREATE TABLE t (a INT, txt TEXT, g INT AS (a + 1))",
        "CREATE TABLE t (a INT, txt TEXT, g INT AS (a + 1) STORED)",
        "CREATE TABLE t (a REAL, txt TEXT)",
        "CREATE TABLE t (a INT, txt INT)",
        "CREATE TABLE u (a INT, txt TEXT)",
        "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a INT, txt TEXT)",
        "CREATE TABLE t (txt TEXT); INSERT INTO t VALUES ('x'); ALTER TABLE t ADD COLUMN a INT DEFAULT 7",
        "CREATE TABLE t (a INT); INSERT INTO t VALUES (1); ALTER TABLE t ADD COLUMN txt TEXT DEFAULT 'x'",
        "CREATE TABLE t (a INT, txt TEXT); INSERT INTO t VALUES (1, x'00')",
        "PRAGMA auto_vacuum = 1; CREATE TABLE t (a INT, txt TEXT); INSERT INTO t VALUES (1, hex(zeroblob(9999)))",
    ],
)
def test_what_is_refused(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(sql)
    with pytest.raises(OddFile):
        by_pages(path, ["a"])


def test_a_column_that_is_not_there_is_unknown(path: Path) -> None:
    make(path, page=512, schema="b INT, text TEXT", rows=[])
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO t (b, text) VALUES (3, 'x')")
        db.commit()
    assert by_pages(path, ["a", "b"]) == [(-1, 3, b"")]


def test_files_at_work_are_refused(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (a INT, txt TEXT); INSERT INTO t VALUES (1, 'x')")
        with pytest.raises(OddFile):
            by_pages(path, ["a"])
    assert by_pages(path, ["a"]) == [(1, b"x")]  # the last to close has written all into the file
    path.with_name("t.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    with pytest.raises(OddFile):
        by_pages(path, ["a"])


def test_nobody_writes_while_it_is_open(path: Path) -> None:
    make(path, page=4096, schema=SCHEMAS[0], rows=[])
    with opened(path), closing(sqlite3.connect(path, timeout=0)) as db:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            db.execute("DROP TABLE t")


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00", b"SQLite format 3\x00" + bytes(4096), b"text" * 2000])
def test_other_files(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(OddFile):
        by_pages(path, ["a"])


def test_more_columns_than_one_word_of_sums_holds(path: Path) -> None:
    names = [f"c{index}" for index in range(100)]
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE t ({', '.join(f'{name} INT' for name in names)}, txt TEXT)")
        rows = [[1 << (row + column) % 63 for column in range(100)] for row in range(500)]
        db.executemany(f"INSERT INTO t VALUES ({', '.join('?' * 100)}, 'end')", rows)
        db.commit()
    assert by_pages(path, names[::-1]) == by_sqlite(path, names[::-1])


def test_a_page_with_reserved_bytes(path: Path) -> None:
    make(path, page=1024, schema="a INT", rows=[])
    with closing(sqlite3.connect(path)) as db:
        db.executescript("DROP TABLE t; VACUUM")
    raw = bytearray(path.read_bytes())
    assert len(raw) == 1024
    raw[20], raw[105:107] = 32, (1024 - 32).to_bytes(2, "big")  # an empty page whose content ends 32 bytes before its end
    path.write_bytes(raw)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (a INT, txt TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(1 << row, "x" * row * 150) for row in range(60)])
        db.commit()
    assert path.read_bytes()[20] == 32
    assert by_pages(path, ["a"]) == by_sqlite(path, ["a"])


def test_a_tree_that_bites_its_tail_is_odd(path: Path) -> None:
    make(path, page=512, schema="a INT, txt TEXT", rows=[{"a": 1, "txt": "x" * 90, "other": None}] * 3000)
    with closing(sqlite3.connect(path)) as db:
        root = db.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    raw = bytearray(path.read_bytes())
    begin = (root - 1) * 512
    assert raw[begin] == 5
    raw[begin + 8 : begin + 12] = root.to_bytes(4, "big")  # its right-most child
    path.write_bytes(raw)
    with pytest.raises(OddFile):
        by_pages(path, ["a"])


def test_an_overflow_chain_that_bites_its_tail_is_odd_or_what_sqlite_says(path: Path) -> None:
    make(path, page=512, schema="a INT, txt TEXT", rows=[{"a": 1, "txt": "xyz" * 900, "other": None}])
    raw = bytearray(path.read_bytes())
    pages = [
        number
        for number in range(2, len(raw) // 512)
        if raw[number * 512 + 4 : number * 512 + 8] in (b"xyzx", b"yzxy", b"zxyz")
    ]
    raw[pages[1] * 512 : pages[1] * 512 + 4] = (pages[0] + 1).to_bytes(4, "big")
    path.write_bytes(raw)
    assert by_pages(path, ["a"]) == by_sqlite(path, ["a"])


def test_no_pyarrow_is_needed_and_a_column_has_one_type(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path, page=512, schema="a INT, txt TEXT", rows=[{"a": 7, "txt": None, "other": None}] * 40)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert by_pages(path, ["a"]) == [(7, b"")] * 40
    with opened(path) as (reader, schema):
        assert reader.integers(schema, []) == []
        with pytest.raises(OddFile):
            next(reader.batches(schema, ["a", "txt"], "txt"))


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId")),
        ("CUPTI_ACTIVITY_KIND_KERNEL", ("start", "end", "streamId", "correlationId", "gridX", "blockX", "demangledName")),
    ],
)
def test_real_captures(captures: Path, table: str, columns: tuple[str, ...]) -> None:
    read = 0
    for path in sorted(captures.rglob("*.sqlite")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
            names = {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}
            if not set(columns) <= names:
                continue
            rows = db.execute(
                f"SELECT {', '.join(f'coalesce({name}, -1)' for name in columns)} FROM {table} NOT INDEXED"
            ).fetchall()
        with opened(path, table) as (reader, schema):
            assert list(zip(*(column.tolist() for column in reader.integers(schema, columns)), strict=True)) == rows
        read += 1
    if not read:
        pytest.skip("no capture has this table")
