"""Changes to SQLite captures, drawn from a random number generator: rows, cells, columns, and what stands in the place of tables."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

from scripts.checks.fuzzing.mutations import NUMBERS, TEXTS, of_bytes
from scripts.checks.fuzzing.texts import changed_text

_WHOLE = ("StringIds", "StringTable")  # kernels are counted as they are named


def opened(content: bytes) -> sqlite3.Connection:
    """A database in memory: one on a disk would wait for it at every change."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.deserialize(content)
    return db


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(random: Random) -> object:
    """A value that SQLite can hold."""
    kind = random.randrange(8)
    if kind < 4:
        number = random.choice(NUMBERS)
        return number if isinstance(number, float) or -(2**63) <= number < 2**63 else None
    if kind < 6:
        return random.choice([text for text in TEXTS if text != "\ud800"]) + ("" if random.random() < 0.98 else "x" * (1 << 21))
    return random.choice((None, b"\xff\xfe", b"", b"7", random.randbytes(8)))


class Databases:
    """One database under change. keeps: whether rows of kernels are all as they were."""

    def __init__(self, random: Random, content: bytes) -> None:
        self.random, self.keeps = random, True
        self.db = opened(content)
        self.tables = [row[0] for row in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]

    def change(self) -> None:
        """A few changes."""
        actions: list[Callable[[str], None]] = [
            self._cells, self._cells, self._cells, self._column, self._rows, self._doubled, self._without, self._retyped, self._view, self._trigger,
            self._generated, self._virtual, self._gone, self._times, self._text, self._times,
        ]  # fmt: skip
        for _ in range(self.random.choice((1, 1, 2, 4))):
            name = self.random.choice(self.tables)
            with contextlib.suppress(sqlite3.Error, IndexError):  # what cannot be done to this table
                self.random.choice(actions)(name)
                if "KERNEL" in name or name in _WHOLE:
                    self.keeps = False

    def _columns(self, table: str) -> list[str]:
        return [row[1] for row in self.db.execute(f"PRAGMA table_info({_quoted(table)})")]

    def _one(self, table: str) -> str:
        return _quoted(self.random.choice(self._columns(table)))

    def _update(self, table: str, column: str, value: object, *, all_rows: bool = False) -> None:
        """Whatever the column says of its values."""
        self.db.execute("PRAGMA writable_schema = ON")
        self.db.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE name = ?", (table,))
        self.db.execute("PRAGMA writable_schema = RESET")
        rows = ""
        if not all_rows:
            count = self.db.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0]
            rows = f"WHERE rowid = (SELECT rowid FROM {_quoted(table)} LIMIT 1 OFFSET {self.random.randrange(max(count, 1))})"
        self.db.execute(f"UPDATE {_quoted(table)} SET {column} = ? {rows}", (value,))

    def _cells(self, table: str) -> None:
        self._update(table, self._one(table), _cell(self.random), all_rows=self.random.random() < 0.2)

    def _times(self, table: str) -> None:
        columns = [c for c in self._columns(table) if c in ("start", "end", "timestamp")]
        if not columns:
            return
        column = self.random.choice(columns)
        value = self.random.choice((0, -1, -(2**40), 2**62, 2**63 - 1, -(2**63), self.random.randrange(2000)))
        self._update(table, column, value, all_rows=self.random.random() < 0.2)
        if self.random.random() < 0.2 and len(columns) == 2:
            self.db.execute(f"UPDATE {_quoted(table)} SET start = end, end = start")

    def _text(self, table: str) -> None:
        self.db.execute("PRAGMA writable_schema = ON")
        value = self.random.choice(("ff", "61ff62", "eda080", "00", "1b5b33316d", "e280ae78"))
        column = self._one(table)
        self.db.execute(f"UPDATE {_quoted(table)} SET {column} = CAST(x'{value}' AS TEXT)")

    def _column(self, table: str) -> None:
        self.db.execute(f"ALTER TABLE {_quoted(table)} DROP COLUMN {self._one(table)}")

    def _rows(self, table: str) -> None:
        self.db.execute(f"DELETE FROM {_quoted(table)} WHERE rowid % {self.random.choice((1, 2, 3))} = 0")

    def _doubled(self, table: str) -> None:
        self.db.execute(f"INSERT INTO {_quoted(table)} SELECT * FROM {_quoted(table)}")

    def _copied(self, table: str, sql: str) -> None:
        self.db.execute(f"ALTER TABLE {_quoted(table)} RENAME TO before")
        self.db.execute(sql)
        self.db.execute("DROP TABLE IF EXISTS before")

    def _retyped(self, table: str) -> None:
        kind = self.random.choice(("TEXT", "REAL", "BLOB", "INTEGER", "NUMERIC"))
        column = self._one(table)
        others = ", ".join(_quoted(c) for c in self._columns(table) if _quoted(c) != column)
        self._copied(
            table, f"CREATE TABLE {_quoted(table)} AS SELECT {others}, CAST({column} AS {kind}) AS {column} FROM before"
        )

    def _view(self, table: str) -> None:
        self.db.execute(f"ALTER TABLE {_quoted(table)} RENAME TO before")
        self.db.execute(f"CREATE VIEW {_quoted(table)} AS SELECT * FROM before")

    def _without(self, table: str) -> None:
        columns = self._columns(table)
        declared = ", ".join(_quoted(c) for c in columns)
        key = _quoted(columns[0])
        self.db.execute(f"ALTER TABLE {_quoted(table)} RENAME TO before")
        self.db.execute(f"CREATE TABLE {_quoted(table)} ({declared}, PRIMARY KEY ({key})) WITHOUT ROWID")
        self.db.execute(f"INSERT OR IGNORE INTO {_quoted(table)} SELECT * FROM before")

    def _trigger(self, table: str) -> None:
        self.db.execute(f"CREATE TRIGGER t AFTER INSERT ON {_quoted(table)} BEGIN DELETE FROM {_quoted(table)}; END")
        self.db.execute(f"CREATE INDEX i ON {_quoted(table)} ({self._one(table)})")

    def _generated(self, table: str) -> None:
        column = self._one(table)
        others = [_quoted(c) for c in self._columns(table) if _quoted(c) != column]
        self.db.execute(f"ALTER TABLE {_quoted(table)} RENAME TO before")
        stored = self.random.choice(("STORED", "VIRTUAL"))
        self.db.execute(f"CREATE TABLE {_quoted(table)} ({', '.join(others)}, {column} AS ({others[0]} + 1) {stored})")
        self.db.execute(f"INSERT INTO {_quoted(table)} SELECT {', '.join(others)} FROM before")

    def _virtual(self, table: str) -> None:
        columns = ", ".join(_quoted(c) for c in self._columns(table))
        self.db.execute(f"ALTER TABLE {_quoted(table)} RENAME TO before")
        self.db.execute(f"CREATE VIRTUAL TABLE {_quoted(table)} USING fts5({columns})")
        self.db.execute(f"INSERT INTO {_quoted(table)} SELECT * FROM before")

    def _gone(self, table: str) -> None:
        self.db.execute(f"DROP TABLE {_quoted(table)}")


def of_sqlite(random: Random, path: Path) -> bool:
    """Change a database in its place; whether all kernels in it are as they were."""
    if random.random() < 0.25:
        path.write_bytes(of_bytes(random, path.read_bytes()))
        return False
    changed = Databases(random, path.read_bytes())
    changed.change()
    with contextlib.closing(changed.db):
        path.write_bytes(changed.db.serialize())
    if random.random() < 0.1:
        _with_log(random, path)
    return changed.keeps


def _with_log(random: Random, path: Path) -> None:
    """A write-ahead log beside it, perhaps one that was cut, as of a writer that is at work or was killed."""
    db = sqlite3.connect(path, isolation_level=None)
    with contextlib.suppress(sqlite3.Error):
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE other (a)")
        db.execute("INSERT INTO other VALUES (zeroblob(5000))")
    beside = {name: path.with_name(path.name + name) for name in ("-wal", "-shm")}
    kept = {name: log.read_bytes() for name, log in beside.items() if log.exists()}
    main = path.read_bytes()
    db.close()
    path.write_bytes(main)
    for name, content in kept.items():
        beside[name].write_bytes(of_bytes(random, content) if random.random() < 0.3 else content)


def of_texts(random: Random, path: Path) -> bool:
    """Other texts of ranges: pieces of several, changed letters, megabytes."""
    with contextlib.closing(opened(path.read_bytes())) as db:
        for table, column in (("NVTX_EVENTS", "text"), ("StringIds", "value")):
            rows = db.execute(
                f"SELECT rowid, {column} FROM {table} WHERE {column} NOT NULL AND {column} NOT GLOB 'k[0-9]*'"
            ).fetchall()
            texts = [text for _, text in rows]
            for row, text in random.sample(rows, min(len(rows), 20)):
                db.execute(
                    f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed_text(random, text, random.choice(texts)), row)
                )
        path.write_bytes(db.serialize())
    return True
