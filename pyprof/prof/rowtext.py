"""Columns -> the text of rows with a separator, by Arrow column by column: the same characters as `unknown_as` and join give.

Imported only where many rows are written and pyarrow is there. Quoting and headers are the caller's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.arrays.arrow import to_arrow, to_arrow_texts
from pyprof.prof.columns import unknown_as
from pyprof.prof.frame import Floats, Texts, Values

__all__ = ["Rows"]

_LARGEST = float(1 << 36)  # of a number times a power of ten that is rounded here; its last bit is far below _DOUBT
_DOUBT = 1e-4  # how near to half between two whole numbers Python is asked
_MOST_DIGITS = 6  # beyond, Arrow writes small decimals with an exponent


class Rows:
    """The rows of some columns, some at a time.

    Raises UnicodeEncodeError for a text that is no Unicode, ArrowException where there is more text at once than Arrow holds.
    """

    def __init__(self, values: list[Values], separator: str, end: str) -> None:
        self.values = values
        self.separator, self.end, self.nothing = to_arrow_texts((separator, end, ""))  # scalars
        self.pools = [to_arrow_texts(v.pool) if isinstance(v, Texts) else None for v in values]

    def text(self, rows: slice) -> str:
        """The lines of these rows, each with its end."""
        columns = [_texts(v.take(rows), pool) for v, pool in zip(self.values, self.pools, strict=True)]
        fields = {"null_handling": "replace", "null_replacement": "na"}
        columns[-1] = pc.binary_join_element_wise(columns[-1], self.end, self.nothing, **fields)
        joined = pc.binary_join_element_wise(*columns, self.separator, **fields)
        offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset :][: len(joined) + 1]
        text: str = joined.buffers()[2][int(offsets[0]) : int(offsets[-1])].to_pybytes().decode()
        return text


def _texts(values: Values, pool: Any) -> Any:
    """The fields of one column, null where unknown."""
    if isinstance(values, Texts):
        codes = values.codes
        return pool.take(to_arrow(codes, codes < 0))
    if isinstance(values, Floats):
        return _fractions(values)
    numbers = values.values
    if numbers.dtype == np.object_:  # sums beyond 64 bits
        return to_arrow_texts(unknown_as(values))
    return to_arrow(numbers, numbers < 0).cast(pa.string())


def _fractions(values: Floats) -> Any:
    """Rounded as Python rounds: where the product with the power of ten leaves a doubt, Python is asked."""
    if values.digits > _MOST_DIGITS:
        return to_arrow_texts(unknown_as(values))
    numbers: npt.NDArray[np.float64] = np.ascontiguousarray(values.values, np.float64)
    unknown = np.isnan(numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.where(unknown, 0.0, numbers) * 10.0**values.digits
        whole = np.rint(scaled)
        # Half between two whole numbers, large, or below zero (-0.00 is a text of its own): rare.
        doubt = ~(np.abs(scaled) < _LARGEST) | (np.abs(np.abs(scaled - whole) - 0.5) < _DOUBT)
        doubt |= np.signbit(numbers) & ~unknown
    digits = np.where(doubt, 0, whole).astype(np.int64)
    parts = np.zeros((len(digits), 2), np.int64)  # of a 128-bit decimal the low part; the high one is 0
    parts[:, 0] = digits
    kind = pa.decimal128(38, values.digits)
    texts = pa.Array.from_buffers(kind, len(digits), [None, pa.py_buffer(parts)]).cast(pa.string())
    if doubt.any():
        asked = np.flatnonzero(doubt)
        told = to_arrow_texts([f"{number:.{values.digits}f}" for number in numbers[asked].tolist()])
        texts = pc.replace_with_mask(texts, to_arrow(doubt), told)
    return pc.if_else(to_arrow(unknown), pa.nulls(1, pa.string())[0], texts) if unknown.any() else texts
