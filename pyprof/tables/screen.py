"""Options of reports with several tables: choose one with --table, or print all under their titles."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

import numpy as np

from pyprof.errors import UsageError
from pyprof.tables.formats import FORMATS
from pyprof.tables.output import add_output, arranged, choice, conditions_of, matching
from pyprof.tables.table import AnyTable, Header, LazyTable, Table, Texts, Values, texts

Cells = list[tuple[Header, Values]]
_OF_ONE_TABLE = [name for name, form in FORMATS.items() if not form.titled]


def add_tables(parser: argparse.ArgumentParser, names: Iterable[str], file: bool = True) -> None:
    """Declare --table and the table options; file: whether -o names the output file."""
    parser.add_argument("--table", choices=list(names), help="only this table, with all its rows")
    add_output(parser, "table", file=file)


def listed(values: Iterable[str | None]) -> Texts:
    """A column of texts; None is unknown."""
    rows = list(values)
    pool = {text: code for code, text in enumerate(dict.fromkeys(rows))}
    return texts(np.array([pool[text] for text in rows], np.int64), list(pool))


def joined(name: str, cells: Cells, title: str = "") -> Table:
    """A table from headers and values."""
    return Table([header for header, _ in cells], [values for _, values in cells], name, title)


def selected(table: AnyTable, options: argparse.Namespace) -> LazyTable:
    """The rows and columns that the options choose. Raises UsageError for unknown columns and conditions."""
    chosen = choice(options, table.headers)
    source = table.source if isinstance(table, LazyTable) else table
    rows = matching(source, table.rows, conditions_of(options, table.headers))
    return arranged(source, rows, chosen)._replace(name=table.name, title=table.title)


def require_table(options: argparse.Namespace, names: Iterable[str], formats: Sequence[str] = _OF_ONE_TABLE) -> None:
    """Raise UsageError if an option needs a single table and --table names none."""
    if options.table not in names and (option := one_table_option(options, formats)):
        raise UsageError(f"{option} takes one table", f"name it: --table {'|'.join(names)}")


def one_table_option(options: argparse.Namespace, formats: Sequence[str] = _OF_ONE_TABLE) -> str:
    """The first given option that needs a single table, or ""; formats: the formats that need one."""
    given = {"-c": options.columns, "--where": options.where, "--sort": options.sort, "--csv": options.csv and "csv" in formats}
    given["--csv-safe"] = options.csv_safe and "csv" in formats
    given[f"--format {options.format}"] = options.format in formats
    output = getattr(options, "output", None) or ""
    given[f"-o {output}"] = not options.format and output.endswith(tuple(FORMATS[name].suffix for name in formats))
    return next((option for option, value in given.items() if value), "")
