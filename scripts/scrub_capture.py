"""An Nsight Systems export -> a smaller one that can be published: the measurements, without data that identifies the machine.

    python scripts/scrub_capture.py IN.sqlite OUT.sqlite

nsys writes the environment, the command lines and all processes and threads of the machine into each export. Only the tables on
the list below are kept: of META_DATA_EXPORT the versions, of ThreadNames the threads that recorded something, of StringIds the
texts still referred to. Folders are removed from absolute paths in texts. The input is not changed.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

# A list of tables to keep rather than to remove, since newer exporters add tables whose contents are unknown here.
KEPT = re.compile(
    r"StringIds|NVTX_\w+|ThreadNames|ANALYSIS_DETAILS|META_DATA_EXPORT|CUDA_GRAPH\w*_EVENTS|CUPTI_ACTIVITY_KIND_\w+"
    r"|CUDNN_EVENTS|CUBLAS_EVENTS|TARGET_INFO_(GPU|CUDA_DEVICE|CUDA_STREAM|SESSION_START_TIME)"
)
# Columns that identify an individual GPU.
IDENTIFYING = ("uuid", "busLocation")
# Columns by which rows refer to StringIds.
REFERENCES = ("textId", "jsonTextId", "nameId", "demangledName", "shortName", "mangledName")
FOLDER = re.compile(r"(?<![\w.:])/(?:[\w.+@-]+/)+(?=[\w.+-])")


def scrub(database: sqlite3.Connection) -> None:
    """Take out of an open export what does not belong into one that is given away."""
    names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = {}
    for name in names:
        if KEPT.fullmatch(name):
            tables[name] = [row[1] for row in database.execute(f"PRAGMA table_info({name})")]
        else:
            database.execute(f'DROP TABLE "{name}"')
    if "META_DATA_EXPORT" in tables:
        database.execute("DELETE FROM META_DATA_EXPORT WHERE name NOT LIKE 'EXPORT_%VERSION%'")
    for name, columns in tables.items():
        for column in set(IDENTIFYING) & set(columns):
            database.execute(f"UPDATE {name} SET {column} = NULL")
    keep_only_own_threads(database, tables)
    keep_only_used_strings(database, tables)
    database.commit()
    database.execute("VACUUM")


def keep_only_own_threads(database: sqlite3.Connection, tables: dict[str, list[str]]) -> None:
    """Drop names of threads on which nothing was recorded."""
    if "ThreadNames" in tables:
        busy = [n for n, columns in tables.items() if "globalTid" in columns and n != "ThreadNames"]
        used = union(f"SELECT globalTid FROM {name}" for name in busy)
        database.execute(f"DELETE FROM ThreadNames WHERE globalTid NOT IN ({used})")


def keep_only_used_strings(database: sqlite3.Connection, tables: dict[str, list[str]]) -> None:
    """Drop strings that no kept row refers to, and folders from the others and from NVTX texts."""
    database.create_function("cut_folders", 1, lambda text: FOLDER.sub("", text) if isinstance(text, str) else text)
    if "StringIds" in tables:
        pairs = [(n, c) for n, columns in tables.items() for c in REFERENCES if c in columns]
        used = union(f"SELECT {column} FROM {name} WHERE {column} IS NOT NULL" for name, column in pairs)
        database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used})")
        database.execute("UPDATE StringIds SET value = cut_folders(value)")
    if "text" in tables.get("NVTX_EVENTS", ()):
        database.execute("UPDATE NVTX_EVENTS SET text = cut_folders(text)")


def union(queries: Iterable[str]) -> str:
    """One query for the rows of all; of none, a query without rows."""
    return " UNION ".join(queries) or "SELECT NULL WHERE 0"


def main() -> None:
    """Copy, scrub, and leave nothing behind where that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="IN.sqlite")
    parser.add_argument("target", type=Path, metavar="OUT.sqlite")
    args = parser.parse_args()
    if not args.source.is_file() or (args.target.exists() and args.target.samefile(args.source)):
        sys.exit(f"scrub_capture: {args.source} is not a file, or is OUT itself")
    part = args.target.with_name(args.target.name + ".part")
    try:
        part.write_bytes(args.source.read_bytes())
        database = sqlite3.connect(part)
        scrub(database)
        database.close()
        part.replace(args.target)
    except sqlite3.Error as error:
        sys.exit(f"scrub_capture: {args.source}: {error}")
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
