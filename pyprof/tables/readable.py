"""A table -> the table with numbers as people read them: 1.24 ms for 1240000 under `Sil(ns)`.

Each number has its own unit; rates keep the unit of their column, so that they compare at a glance.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from pyprof.tables.table import AnyInts, Header, Table, Texts, Values
from pyprof.tables.units import SCALED, parts


def readable(table: Table) -> Table:
    """The table with numbers as texts; moments as time since `table.since`, or unchanged if that is unknown."""
    made = [_column(header, values, table.since) for header, values in zip(table.headers, table.values, strict=True)]
    names = Counter(header.text for header, _ in made)
    headers = [h if names[h.text] == 1 or h.unit != "%" else h._replace(text=f"{h.text} %") for h, _ in made]  # Busy, Busy %
    return table._replace(headers=headers, values=[values for _, values in made])


def _column(header: Header, values: Values, since: int | None) -> tuple[Header, Values]:
    if isinstance(values, Texts) or not (header.unit == "%" or SCALED.fullmatch(header.unit)):
        return header, values
    if header.moment and since is None:
        return header, values
    distinct, codes = np.unique(values.values[~values.unknown], return_inverse=True)
    numbers = distinct.tolist()
    if header.moment:
        pool = [f"{(number - (since or 0)) / 1e6:.3f} ms" for number in numbers]
    elif header.unit.endswith("/s") or header.unit == header.text:
        pool = [parts(number, "")[0] for number in numbers]
        return header, _texts(values, codes, pool, "na")
    else:
        pairs = [parts(number, header.unit) if number else ("0", "") for number in numbers]
        longest = max((len(unit) for _, unit in pairs), default=0)
        pool = [f"{number} {unit:{longest}}" for number, unit in pairs]  # units aligned
    width = max((len(text) - len(text.split(" ")[0]) for text in pool), default=0)
    text = header.text.removesuffix(f"({header.unit})")
    return header._replace(text=text), _texts(values, codes, pool, f"na{' ' * width}")


def _texts(values: Values, codes: AnyInts, pool: list[str], unknown: str) -> Texts:
    """The texts of all rows; codes: of the known values."""
    rows = np.full(len(values.unknown), len(pool), np.int64)
    rows[~values.unknown] = codes.ravel()
    return Texts(rows, [*pool, unknown], right=True)
