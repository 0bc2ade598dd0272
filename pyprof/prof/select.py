"""Which rows of a table, and in which order: `--where`, `--sort`, `--top`. Knows columns, not what they mean."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pyprof.errors import UsageError
from pyprof.prof.columns import ALIASES, COLUMNS, Column, choose, sort_key, unknown_as
from pyprof.prof.frame import Frame, Values

__all__ = ["add_selection", "conditions", "first_rows", "matching", "ordered"]

Ints = npt.NDArray[np.int64]

# A comma ends a value where the key of a column and `=` follow; of keys with one letter (m, n, k) only as they are written,
# for params hold `M=64,N=8`.
_LONG = "|".join(sorted((key for key in (*(c.key for c in COLUMNS), *ALIASES) if len(key) > 1), key=len, reverse=True))
_NEXT = re.compile(rf",(?=\s*(?:(?i:{_LONG})|[mnk])\s*=)")


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The options `--where`, `--sort` and `--top`."""
    parser.add_argument("--where", metavar="COL=VALUE,...", help="only rows with these values, e.g. op=linear,dir=bprop")
    parser.add_argument(
        "--sort", metavar="COL,...", help="by these columns, numbers largest first, texts by alphabet, unknown last"
    )
    parser.add_argument("--top", metavar="N", type=int, help="only the first N rows")


def conditions(text: str | None) -> list[tuple[Column, str]]:
    """Columns with the text that each must have.

    Raises UsageError for what is no condition, InputError for a column that there is not.
    """
    found = []
    for part in filter(None, _NEXT.split(text or "")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"--where takes COL=VALUE, not {part!r}", "for example --where op=linear,dir=bprop")
        chosen = choose(key)
        if len(chosen) > 1:
            raise UsageError(f"--where takes COL=VALUE, not {part!r}", "for example --where op=linear,dir=bprop")
        found.append((chosen[0], value.strip()))
    return found


def matching(frame: Frame, rows: Ints, wanted: Sequence[tuple[Column, str]]) -> Ints:
    """Those of the rows in which every column prints the text asked for.

    Raises InputError where a value that no row has holds `,name=` of a column that there is not: a misspelt condition.
    """
    for column, value in wanted:
        texts = unknown_as(column.compute(frame))
        kept = rows[[texts[row] == value for row in rows.tolist()]] if len(rows) else rows
        if not len(kept) and len(rows) and value not in texts:
            for key in re.findall(r",\s*(\w+)\s*=", value):
                choose(key)
            near = difflib.get_close_matches(value[:80], sorted(t for t in set(texts) if len(t) <= 80)[:1000], 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            print(f"note: no row has {column.key} {value!r}{meant}", file=sys.stderr)
        rows = kept
    return rows


def ordered(values: Sequence[Values], rows: Ints) -> Ints:
    """The rows sorted by the first of the columns, equal ones by the next, else as they were."""
    keys = [sort_key(column.take(rows)) for column in values]
    return rows[np.lexsort(keys[::-1])] if keys and len(rows) else rows


def first_rows(rows: Ints, top: int | None) -> Ints:
    """The first `top` rows, all where None. Raises UsageError for a number below 0."""
    if top is not None and top < 0:
        raise UsageError(f"--top takes a number of rows, not {top}", "for example --top 10")
    return rows if top is None else rows[:top]
