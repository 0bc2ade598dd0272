"""Python values of a declared type <-> Arrow arrays: texts, numbers, lists and structs inside each other.

Column by column, over buffers: Arrow's own conversion of Python values imports pandas.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pyprof.arrays.arrow import to_arrow, to_arrow_texts, to_numpy
from pyprof.parse.records.parquet.pools import POOLS
from pyprof.parse.records.parquet.schema import Type, arrow_type

__all__ = ["coded_texts", "from_arrow", "read_pool", "stored_pool", "to_column"]


def stored_pool(pool: str, items: Sequence[Any]) -> bytes:
    """A pool as a table of one column in Arrow's stream format, in base64 with a checksum in front."""
    array = to_column(POOLS[pool].type, [POOLS[pool].to_tuple(item) for item in items])
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays([array], [pool])
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    data = sink.getvalue().to_pybytes()
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "little") + data)


def read_pool(pool: str, stored: bytes) -> list[Any]:
    """The items of a pool. Raises ValueError, TypeError, LookupError or ArrowException where it is damaged."""
    data = base64.b64decode(stored, validate=True)
    if zlib.crc32(data[4:]).to_bytes(4, "little") != data[:4]:
        raise ValueError("its checksum does not fit")
    table = pa.ipc.open_stream(data[4:]).read_all()
    if table.schema.types != [arrow_type(POOLS[pool].type)]:
        raise ValueError("another type")
    return [_item(pool, fields) for chunk in table.column(0).chunks for fields in from_arrow(POOLS[pool].type, chunk)]


@lru_cache(maxsize=1 << 14)  # files of one job's ranks hold the same
def _item(pool: str, fields: tuple[Any, ...]) -> Any:
    return POOLS[pool].from_tuple(fields)


def to_column(kind: Type, values: Sequence[Any]) -> Any:
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


def coded_texts(codes: Any, texts: Any) -> Any:
    """Codes (-1: null) into an Arrow array of texts."""
    return pa.DictionaryArray.from_arrays(to_arrow(codes, codes < 0), texts, safe=False)


def from_arrow(kind: Type, array: Any) -> list[Any]:
    """The values of an array as `to_column` takes them, lists as tuples.

    Raises ValueError for a code that its dictionary does not have, or a list beyond its elements.
    """
    if isinstance(kind, Mapping):
        fields = [from_arrow(inner, array.field(name)) for name, inner in kind.items()]
        return list(zip(*fields, strict=True))
    if isinstance(kind, list):
        offsets = to_numpy(array.offsets)
        if len(offsets) and (offsets[0] < 0 or offsets[-1] > len(array.values) or (np.diff(offsets) < 0).any()):
            raise ValueError("a list beyond its elements")
        items, bounds = from_arrow(kind[0], array.values), offsets.tolist()
        lists = [tuple(items[begin:end]) for begin, end in pairwise(bounds)]
        return _with_nulls(lists, array)
    if kind == "text":
        texts = [*array.dictionary.to_pylist(), None]
        codes = to_numpy(array.indices, len(texts) - 1)
        if codes.min(initial=0) < 0 or codes.max(initial=0) >= len(texts):
            raise ValueError("a text beyond the dictionary")
        return [texts[code] for code in codes.tolist()]
    return _with_nulls(to_numpy(array, 0).tolist(), array)


def _with_nulls(values: list[Any], array: Any) -> list[Any]:
    """The values, None where the array is null."""
    if not array.null_count:
        return values
    known = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")[array.offset :]
    return [value if known[at] else None for at, value in enumerate(values)]
