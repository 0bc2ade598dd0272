"""numpy arrays and texts <-> Arrow arrays, by their buffers.

`pyarrow.array`, `Array.to_numpy` and Python scalars passed to Arrow's functions import pandas if it is installed: a quarter of
a second that buffers save. Import this module only if pyarrow is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MOST_BYTES = 2**31 - 1


def to_arrow(values: npt.NDArray[Any], unknown: npt.NDArray[np.bool_] | None = None) -> Any:
    """An Arrow array of numbers or bools, null where `unknown`. Numbers are not copied: do not change them afterwards."""
    validity, nulls = None, 0
    if unknown is not None and (nulls := int(np.count_nonzero(unknown))):
        validity = _bits(~unknown)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [validity, _bits(values)], nulls)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, data], nulls)


def to_arrow_texts(texts: Sequence[str | None]) -> Any:
    """An Arrow array of texts; None becomes null.

    Raises UnicodeEncodeError for lone surrogates, ArrowException for 2 GiB or more of text.
    """
    known = ["" if text is None else text for text in texts] if None in texts else texts
    joined = "".join(known)  # type: ignore[arg-type]
    lengths = map(len, known if joined.isascii() else (text.encode() for text in known))  # type: ignore[arg-type,union-attr]
    offsets = np.zeros(len(known) + 1, np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, len(known)), out=offsets[1:])
    if offsets[-1] > _MOST_BYTES:
        raise pa.ArrowCapacityError(f"{offsets[-1]} bytes of text are more than an array holds")
    unknown = np.array([text is None for text in texts] if known is not texts else [], np.bool_)
    nulls = int(np.count_nonzero(unknown))
    buffers = [_bits(~unknown) if nulls else None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(joined.encode())]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers, nulls)


def to_numpy(array: Any, missing: int | float | bool | None = None) -> npt.NDArray[Any]:
    """An Arrow array of numbers or bools as numpy, `missing` in place of null; a view of Arrow's memory if possible.

    Raises ValueError for nulls if `missing` is None.
    """
    validity, data = array.buffers()
    begin, end = array.offset, array.offset + len(array)
    if pa.types.is_boolean(array.type):
        values = _truth(data, begin, end)
    else:
        dtype = array.type.to_pandas_dtype()
        values = np.frombuffer(data, dtype)[begin:end] if len(array) else np.empty(0, dtype)
    if not array.null_count:
        return values
    if missing is None:
        raise ValueError(f"{array.null_count} values are missing")
    return np.where(_truth(validity, begin, end), values, np.asarray(missing, values.dtype))


def _bits(values: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _truth(bits: Any, begin: int, end: int) -> npt.NDArray[np.bool_]:
    if begin == end:
        return np.empty(0, np.bool_)
    packed = np.frombuffer(bits, np.uint8)[begin // 8 : (end + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[begin % 8 : begin % 8 + end - begin].view(np.bool_)
