"""Write a long nvprof file: the rows of a given one, again and again.

    python scripts/bench/repeat_nvprof.py NET.sql OUT.sql --times N [--shuffled]

Each repetition begins after the previous one has ended and has ids of its own (correlation, markers, grids, sequence numbers in
the names of ranges), so that the file equals that of a program N times as long. Names of devices, streams and contexts are
written once. --shuffled: the rows of each repeated table in a random order, the same every time.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

TIMES = ("start", "end", "timestamp", "completed", "queued", "submitted")
IDS = ("correlationId", "runtimeCorrelationId", "gridId")
OF_MARKERS = ("CUPTI_ACTIVITY_KIND_MARKER", "CUPTI_ACTIVITY_KIND_MARKER_DATA")
# Not 0, which every op of the backward thread shows: until 1.6 each thread of torch counted for itself, and that one had none.
NUMBER = re.compile(r"(, (?:seq|op_id) = )([1-9]\d{0,14})(?!\d)")


def tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Tables that are repeated, with their columns except the row number."""
    found = {}
    for (name,) in db.execute("SELECT name FROM given.sqlite_master WHERE type = 'table' AND name LIKE 'CUPTI%'").fetchall():
        columns = [row[1] for row in db.execute(f'PRAGMA given.table_info("{name}")') if row[1] != "_id_"]
        if name in OF_MARKERS or {"start", "timestamp", "correlationId"} & set(columns):
            found[name] = columns
    return found


def span(db: sqlite3.Connection, among: dict[str, list[str]], wanted: tuple[str, ...]) -> int:
    """The distance from the smallest to the largest value above 0 of some columns, over all tables that have them."""
    values = [
        value
        for table, columns in among.items()
        for column in set(wanted) & set(columns)
        for value in db.execute(f'SELECT min("{column}"), max("{column}") FROM given."{table}" WHERE "{column}" > 0').fetchone()
        if value is not None
    ]
    return max(values, default=0) - min(values, default=0) + 1


def repeat_names(db: sqlite3.Connection, times: int) -> None:
    """Add the names of later repetitions; `numbered` then maps the id of a name with numbers to its rank among those."""
    texts = db.execute("SELECT _id_, value FROM given.StringTable ORDER BY _id_").fetchall()
    numbered = [(name, text) for name, text in texts if NUMBER.search(text)]
    width = 1 + max((int(n) for _, text in numbered for _, n in NUMBER.findall(text)), default=0)
    last = max((name for name, _ in texts), default=0)
    db.execute("CREATE TEMP TABLE numbered (name INTEGER PRIMARY KEY, new INTEGER)")
    db.executemany("INSERT INTO numbered VALUES (?, ?)", [(name, last + 1 + i) for i, (name, _) in enumerate(numbered)])
    later = (
        (last + 1 + (turn - 1) * len(numbered) + i, NUMBER.sub(lambda m: f"{m[1]}{int(m[2]) + turn * width}", text))  # noqa: B023
        for turn in range(1, times)
        for i, (_, text) in enumerate(numbered)
    )
    db.executemany("INSERT INTO main.StringTable (_id_, value) VALUES (?, ?)", later)


def repeat_rows(db: sqlite3.Connection, times: int, order: str) -> int:
    """Write every repeated table; returns the number of rows."""
    found = tables(db)
    names = db.execute("SELECT count(*) FROM numbered").fetchone()[0]
    shift = dict.fromkeys(TIMES, span(db, found, TIMES) + 1_000_000) | {c: span(db, found, (c,)) for c in IDS[2:]}
    shift |= dict.fromkeys(IDS[:2], span(db, found, IDS[:2]))
    markers = span(db, {table: found[table] for table in OF_MARKERS if table in found}, ("id",))
    rows = 0
    for table, columns in found.items():
        moved = shift | ({"id": markers} if table in OF_MARKERS else {})
        values = [f'"{c}" + turn * {moved[c]} * ("{c}" > 0)' if c in moved else f't."{c}"' for c in columns]
        if table == OF_MARKERS[0]:
            new = f"(SELECT new + (turn - 1) * {names} FROM numbered n WHERE turn > 0 AND n.name = t.name)"
            values[columns.index("name")] = f"coalesce({new}, t.name)"
        into = ", ".join(f'"{column}"' for column in columns)
        db.execute(f'DELETE FROM main."{table}"')
        turns = f"WITH RECURSIVE turns(turn) AS (SELECT 0 UNION ALL SELECT turn + 1 FROM turns WHERE turn < {times - 1})"
        source = f'SELECT {", ".join(values)} FROM turns CROSS JOIN given."{table}" t {order}'
        db.execute(f'{turns} INSERT INTO main."{table}" ({into}) {source}')
        rows += db.execute("SELECT changes()").fetchone()[0]
    return rows


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--times", type=int, required=True)
    parser.add_argument("--shuffled", action="store_true")
    options = parser.parse_args()
    shutil.copyfile(options.capture, options.out)
    with closing(sqlite3.connect(options.out, uri=True)) as db:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        db.execute("ATTACH ? AS given", (f"file:{options.capture.absolute()}?mode=ro&immutable=1",))
        db.create_function("chance", 0, random.Random(0).random)
        indexes = db.execute("SELECT name, sql FROM main.sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
        for name, _ in indexes:
            db.execute(f'DROP INDEX main."{name}"')
        repeat_names(db, options.times)
        rows = repeat_rows(db, options.times, "ORDER BY chance()" if options.shuffled else "")
        for _, sql in indexes:
            db.execute(sql)
        db.commit()
    print(f"{options.out}: {options.times} times, {rows} rows, {options.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
