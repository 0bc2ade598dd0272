"""Columns -> the text of rows by Arrow, column by column: the same characters as `printed` gives.

Imported only where many rows are written and pyarrow is installed. Quoting and headers are the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.arrays.arrow import to_arrow, to_arrow_texts
from pyprof.arrays.types import Floats
from pyprof.tables.table import Fractions, PerPool, Texts, Values, printed

_LARGEST = float(1 << 36)  # of a number times a power of ten that is rounded here; its last bit is far below _DOUBT
_DOUBT = 1e-4  # how near to half between two whole numbers Python rounds instead
_MOST_DIGITS = 6  # beyond, Arrow writes small decimals with an exponent


class Rows:
    """The text of rows, some at a time.

    around: what stands before the first field, between two, and after the last; unknown: the text of what is unknown.
    """

    def __init__(self, around: Sequence[str], unknown: str) -> None:
        self.unknown = unknown
        first, *between, last = (text.replace("%%", "%") for text in around)
        # One text between all fields is cheaper as a separator than as fields of its own.
        separator = between[0] if len(set(between)) == 1 else ""
        pieces = [first, *("" if separator else text for text in between), last]
        *self.around, self.separator, self.nothing = to_arrow_texts([*pieces, separator, ""])  # scalars
        self.inner = bool(first or (between and not separator))
        self.pools = [PerPool(lambda values: to_arrow_texts(values.pool)) for _ in around[1:]]

    def text(self, values: Sequence[Values]) -> str:
        """The lines of these rows.

        Raises UnicodeEncodeError for a text that is no Unicode, ArrowException where there is more text than Arrow holds.
        """
        columns = [_texts(v, pool) for v, pool in zip(values, self.pools, strict=True)]
        how = {"null_handling": "replace", "null_replacement": self.unknown}
        if self.inner:
            columns = [piece for pair in zip(self.around, columns, strict=False) for piece in pair]
            columns.append(self.around[-1])
        else:
            columns[-1] = pc.binary_join_element_wise(columns[-1], self.around[-1], self.nothing, **how)
        joined = pc.binary_join_element_wise(*columns, self.separator, **how)
        offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset :][: len(joined) + 1]
        text: str = joined.buffers()[2][int(offsets[0]) : int(offsets[-1])].to_pybytes().decode()
        return text


def _texts(values: Values, pool: PerPool[Any]) -> Any:
    """The fields of one column, null where unknown."""
    if isinstance(values, Texts):
        return pool(values).take(to_arrow(values.codes, values.unknown))
    if isinstance(values, Fractions):
        return _fractions(values)
    if values.values.dtype == np.object_:  # sums beyond 64 bits
        known = [
            None if missing else str(n) for n, missing in zip(values.values.tolist(), values.unknown.tolist(), strict=True)
        ]
        return to_arrow_texts(known)
    return to_arrow(values.values, values.unknown).cast(pa.string())


def _fractions(values: Fractions) -> Any:
    """Rounded as Python rounds: where the product with the power of ten leaves a doubt, Python does it."""
    numbers: Floats = np.where(values.unknown, 0.0, values.values)
    if values.digits > _MOST_DIGITS:
        texts = to_arrow_texts(printed(values._replace(values=numbers, unknown=np.zeros(len(numbers), np.bool_))))
    else:
        texts = _decimals(numbers, values.digits)
    return pc.if_else(to_arrow(values.unknown), pa.nulls(1, pa.string())[0], texts) if values.unknown.any() else texts


def _decimals(numbers: Floats, digits: int) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = numbers * 10.0**digits
        whole = np.rint(scaled)
        # Half between two whole numbers, large, no number, or below zero (-0.00 is a text of its own): rare.
        doubt = ~(np.abs(scaled) < _LARGEST) | (np.abs(np.abs(scaled - whole) - 0.5) < _DOUBT) | np.signbit(numbers)
    parts = np.zeros((len(numbers), 2), np.int64)  # of a 128-bit decimal the low part; the high one is 0
    parts[:, 0] = np.where(doubt, 0, whole).astype(np.int64)
    texts = pa.Array.from_buffers(pa.decimal128(38, digits), len(numbers), [None, pa.py_buffer(parts)]).cast(pa.string())
    if doubt.any():
        exact = to_arrow_texts([f"{number:.{digits}f}" for number in numbers[doubt].tolist()])
        texts = pc.replace_with_mask(texts, to_arrow(doubt), exact)
    return texts
