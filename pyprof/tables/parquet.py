"""A table -> a Parquet file: integers, floats, texts and lists of texts under the columns' keys, null for unknown.

Each field has its unit in the metadata. Imported only for this format; raises ImportError without pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyprof.columns.arrow import to_arrow, to_arrow_texts
from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Array
from pyprof.tables.table import AnyTable, Fractions, Header, Integers, PerPool, Texts, Values


def write(table: AnyTable, stream: BinaryIO) -> None:
    """Write the table one row group after another; only one is in memory at a time."""
    pools = [PerPool(_pool) for _ in table.headers]
    writer: Any = None
    try:
        for part in table.parts():
            if writer is None:
                schema = pa.schema(
                    pa.field(h.key, _kind(column), metadata={"header": h.text, "unit": h.unit, "help": h.help})
                    for h, column in zip(part.headers, part.values, strict=True)
                )
                writer = pq.ParquetWriter(stream, schema, compression="zstd", **_encodings(part.headers, part.values))
            arrays = [_array(values, pool) for values, pool in zip(part.values, pools, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    finally:
        if writer is not None:
            writer.close()


def _encodings(headers: Sequence[Header], values: Sequence[Values]) -> dict[str, Any]:
    """Encodings, chosen from the first rows: integers that mostly differ as deltas, everything else as dictionary codes.
    Statistics only for numbers."""
    steady = []
    for header, column in zip(headers, values, strict=True):
        if isinstance(column, Integers) and column.values.dtype != np.object_:
            known = column.values[~column.unknown]
            if 2 * len(distinct_values(known)) > len(known):
                steady.append(header.key)
    paths = [
        header.key if _kind(column) != pa.list_(pa.string()) else f"{header.key}.list.element"
        for header, column in zip(headers, values, strict=True)
        if header.key not in steady
    ]
    numbers = [header.key for header, column in zip(headers, values, strict=True) if not isinstance(column, Texts)]
    return {
        "use_dictionary": paths,
        "column_encoding": dict.fromkeys(steady, "DELTA_BINARY_PACKED"),
        "write_statistics": numbers,
    }


def _kind(values: Values) -> Any:
    if isinstance(values, Integers):
        return pa.decimal128(38) if values.values.dtype == np.object_ else pa.int64()
    if isinstance(values, Fractions):
        return pa.float64()
    return pa.dictionary(pa.int32(), pa.string()) if values.lists is None else pa.list_(pa.string())


def _pool(values: Texts) -> tuple[Any, Array]:
    """Distinct texts (or lists of them) as an Arrow array, and the position there of each code; -1 gets any.

    With a text twice in a dictionary, Arrow would write out the text of every row.
    """
    if values.lists is None:
        number: dict[str, int] = {}
        codes = [number.setdefault(text, len(number)) for text in _sound(values.pool)]
        return to_arrow_texts([*number]), np.array([*codes, 0], np.int32)
    parts = to_arrow_texts(_sound([part for parts in values.lists for part in parts]))
    offsets = np.cumsum([0, *map(len, values.lists)]).astype(np.int32)
    return pa.ListArray.from_arrays(to_arrow(offsets), parts), np.append(np.arange(len(offsets) - 1, dtype=np.int32), 0)


def _sound(texts: Sequence[str]) -> Sequence[str]:
    """The texts, with `?` in place of lone surrogates."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return [text.encode(errors="replace").decode() for text in texts]
    return texts


def _array(values: Values, pool: PerPool[tuple[Any, Array]]) -> Any:
    if isinstance(values, Texts):
        texts, number = pool(values)
        codes = to_arrow(number[values.codes], values.unknown)
        return texts.take(codes) if values.lists is not None else pa.DictionaryArray.from_arrays(codes, texts, safe=False)
    if values.values.dtype == np.object_:  # sums beyond 64 bits
        rows = zip(values.values.tolist(), values.unknown.tolist(), strict=True)
        return to_arrow_texts([None if missing else str(n) for n, missing in rows]).cast(pa.decimal128(38))
    kind = np.int64 if isinstance(values, Integers) else np.float64
    return to_arrow(values.values.astype(kind), values.unknown)
