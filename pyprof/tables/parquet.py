"""A table -> a Parquet file: whole numbers, fractions, texts and lists of texts under the columns' keys, null where unknown.

Units stand in the metadata of each field. Imported only for this format; raises ImportError where pyarrow is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyprof.arrays.arrow import to_arrow, to_arrow_texts
from pyprof.tables.table import AnyTable, Fractions, Integers, PerPool, Texts, Values


def write(table: AnyTable, stream: BinaryIO) -> None:
    """Write the rows in groups, so that the arrays of one group only are in memory at once."""
    pools = [PerPool(_pool) for _ in table.headers]
    parts = table.parts()
    first = next(parts)
    schema = pa.schema(
        pa.field(header.key, _kind(values), metadata={"header": header.text, "unit": header.unit, "help": header.help})
        for header, values in zip(table.headers, first.values, strict=True)
    )
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for part in chain([first], parts):
            arrays = [_array(values, pool) for values, pool in zip(part.values, pools, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def _kind(values: Values) -> Any:
    if isinstance(values, Integers):
        return pa.decimal128(38) if values.values.dtype == np.object_ else pa.int64()
    if isinstance(values, Fractions):
        return pa.float64()
    return pa.dictionary(pa.int32(), pa.string()) if values.lists is None else pa.list_(pa.string())


def _pool(values: Texts) -> Any:
    """The distinct texts, or lists of them."""
    if values.lists is None:
        return to_arrow_texts(_sound(values.pool))
    parts = to_arrow_texts(_sound([part for parts in values.lists for part in parts]))
    offsets = np.cumsum([0, *map(len, values.lists)]).astype(np.int32)
    return pa.ListArray.from_arrays(to_arrow(offsets), parts)


def _sound(texts: Sequence[str]) -> Sequence[str]:
    """The texts, `?` in place of what is no Unicode."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return [text.encode(errors="replace").decode() for text in texts]
    return texts


def _array(values: Values, pool: PerPool[Any]) -> Any:
    if isinstance(values, Texts) and values.lists is not None:
        return pool(values).take(to_arrow(values.codes.astype(np.int64), values.unknown))
    if isinstance(values, (Integers, Fractions)):
        if values.values.dtype == np.object_:  # sums beyond 64 bits
            rows = zip(values.values.tolist(), values.unknown.tolist(), strict=True)
            return to_arrow_texts([None if missing else str(n) for n, missing in rows]).cast(pa.decimal128(38))
        kind = np.int64 if isinstance(values, Integers) else np.float64
        return to_arrow(values.values.astype(kind), values.unknown)
    return pa.DictionaryArray.from_arrays(to_arrow(values.codes.astype(np.int32), values.unknown), pool(values))
