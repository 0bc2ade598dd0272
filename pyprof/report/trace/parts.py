"""Columns of events -> their text, some rows at a time: shared by all kinds of events of a timeline.

Text is made once for each distinct value, only times and numbers for each event.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Integers, Ints
from pyprof.model.opcall import sound_text
from pyprof.tables.table import Texts, Values, printed

_LONGEST = 400  # characters of a text among the args: nobody reads a call on hundreds of tensors in a timeline


class Part(NamedTuple):
    """Events of one kind. lines: returns the text of the events at given indices; start_ns: begin of each event, empty if a
    time selection keeps all of them."""

    number: int
    lines: Callable[[Ints], Iterable[str]]
    start_ns: Ints = np.empty(0, np.int64)


def text(value: object) -> str:
    """A text as JSON."""
    return json.dumps(sound_text(value) if isinstance(value, str) else value)


def shortened(value: str) -> str:
    """A text of args as JSON, cut if it is long."""
    return text(value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…")


def micros(times_ns: Ints) -> list[str]:
    """Nanoseconds as microseconds with three digits, exactly."""
    whole, rest = np.divmod(times_ns, 1000)
    return [f"{a}.{b:03d}" for a, b in zip(whole.tolist(), rest.tolist(), strict=True)]


def each(make: Callable[..., str], *columns: Integers) -> list[str]:
    """The text of each row, made once for each distinct row of the columns."""
    distinct, _, inverse = distinct_rows(*columns)
    made = [make(*one) for one in distinct.T.tolist()]
    return [made[code] for code in inverse.tolist()]


def known(key: str, values: Integers) -> Iterable[str]:
    """`,"key":number` of each row; empty if unknown."""
    if not len(values) or int(values.max()) < 0:
        return repeat("", len(values))
    return [f',"{key}":{value}' if value >= 0 else "" for value in values.tolist()]


def members(columns: Mapping[str, Values]) -> list[str]:
    """`,"key":value` of all columns of each row, without unknown and empty ones."""
    texts = {key: values for key, values in columns.items() if isinstance(values, Texts)}
    pools = {key: [f',"{key}":{shortened(one)}' if one else "" for one in values.pool] + [""] for key, values in texts.items()}

    def joined(*codes: int) -> str:
        return "".join([pool[code] for pool, code in zip(pools.values(), codes, strict=True)])

    rows = [each(joined, *(values.codes for values in texts.values()))] if texts else []
    for key, values in columns.items():
        if key not in texts:
            rows.append([f',"{key}":{one}' if one else "" for one in printed(values, "")])
    return list(map("".join, zip(*rows, strict=True)))
