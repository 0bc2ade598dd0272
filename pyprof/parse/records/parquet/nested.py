"""Python values of a declared type -> Arrow arrays: texts, numbers, lists and structs inside each other.

Column by column, over buffers: Arrow's own conversion of Python values imports pandas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.columns.arrow import to_arrow, to_arrow_texts
from pyprof.columns.types import Ints
from pyprof.parse.records.parquet.schema import Type


def to_column(kind: Type, values: Sequence[Any]) -> pa.Array:
    """The values as an Arrow array. A list is any sequence, a struct a tuple of its fields; None is null, but for a struct."""
    if isinstance(kind, Mapping):
        columns = zip(*values, strict=True) if values else [()] * len(kind)
        fields = [to_column(inner, column) for inner, column in zip(kind.values(), columns, strict=True)]
        return pa.StructArray.from_arrays(fields, list(kind))
    unknown = np.fromiter((value is None for value in values), np.bool_, len(values))
    if isinstance(kind, list):
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
        child = to_column(kind[0], list(chain.from_iterable(value for value in values if value is not None)))
        mask = to_arrow(unknown) if unknown.any() else None
        return pa.ListArray.from_arrays(to_arrow(offsets), child, mask=mask)
    if kind == "text":
        codes: dict[str, int] = {}
        numbers = [-1 if value is None else codes.setdefault(value, len(codes)) for value in values]
        return coded_texts(np.array(numbers, np.int32), to_arrow_texts(list(codes)))
    return to_arrow(np.array([0 if value is None else value for value in values], kind), unknown)


def coded_texts(codes: Ints, texts: pa.Array) -> pa.Array:
    """Codes (-1: null) into an Arrow array of texts."""
    return pa.DictionaryArray.from_arrays(to_arrow(codes, codes < 0), texts, safe=False)
