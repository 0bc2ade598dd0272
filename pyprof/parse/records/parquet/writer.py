"""Records -> a Parquet file, written row group by row group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pyprof.columns.arrow import to_arrow, to_arrow_texts, to_numpy
from pyprof.hardware.names import short_name
from pyprof.model.opcall import OpCall, TensorSpec, contiguous_strides, format_call, format_value, sound_text
from pyprof.model.records import POOLED, Records, Stack
from pyprof.parse.records.parquet.schema import SCHEMA, SPELLED, ParquetColumn, Type, arrow_type, leaf_paths
from pyprof.parse.records.parquet.stored import KEY, pool_key, stored_facts, stored_host, stored_pool

_ROWS = 1 << 17  # of a row group, the unit in memory while writing
_NOWHERE = np.iinfo(np.int64).max
_CODED = {**POOLED, "name": "name"}
# Columns that ascend in small steps: stored as differences.
_STEADY = ("start", "launch", "corr", "instance", "fwd_instance", "seq", "seq_numbers.list.element")
# Columns with minimum and maximum, by which readers skip row groups.
_LIMITED = ("start", "rank", "pid", "step", "kind", "instance", "fwd_instance")

Ints = npt.NDArray[np.int32]


def write_file(records: Records, target: Path | BinaryIO) -> None:
    """Write all records to a file. Raises OSError if that fails."""
    tables = _Tables(records)
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in SCHEMA], tables.metadata)
    options = {
        "compression": "zstd",
        "write_page_checksum": True,
        "use_dictionary": [path for c in SCHEMA for path in leaf_paths(c.name, c.type) if path not in _STEADY],
        "dictionary_pagesize_limit": 1 << 26,
        "column_encoding": dict.fromkeys(_STEADY, "DELTA_BINARY_PACKED"),
        "write_statistics": list(_LIMITED),
    }
    with pq.ParquetWriter(target, schema, **options) as stream:
        for begin in range(0, max(len(records), 1), _ROWS):
            columns = tables.columns(begin, min(begin + _ROWS, len(records)))
            stream.write_table(pa.table(columns, schema=schema), row_group_size=_ROWS)


class _Tables:
    """Arrow columns, chunk by chunk. Values that follow from a code (of a call, stack, name, device) are made once per code."""

    def __init__(self, records: Records) -> None:
        self.records, self.types = records, {column.name: column.type for column in SCHEMA}
        self.spelled = {name: to_arrow_texts(texts) for name, texts in SPELLED.items()}
        self.number: dict[str, Ints] = {}
        used = {pool: self._used(getattr(records, pool), pool) for pool in dict.fromkeys(POOLED.values())}
        names = self._used([sound_text(text) for text in records.strings.values], "name")
        self.by_code = self._derived(used["calls"], used["stacks"], [gpu.name for gpu in used["gpus"]], names)
        self.metadata = (
            {KEY: stored_facts(records)}
            | stored_host(records)
            | {pool_key(pool): stored_pool(items) for pool, items in used.items()}
        )

    def _used(self, items: list[Any], pool: str) -> list[Any]:
        """Pool items that rows refer to, in order of first use, so that the pool's own order does not show in the file; sets
        `number`: code -> new number."""
        columns = [name for name, of in _CODED.items() if of == pool]
        first = np.full(len(items) + 1, _NOWHERE)  # first use of each: row * columns + column
        for place, name in enumerate(columns):
            own = np.full(len(first), _NOWHERE)
            own[self.records[name][::-1]] = np.arange(len(self.records))[::-1] * len(columns) + place
            np.minimum(first, own, out=first)
        first[-1] = _NOWHERE
        used = len(items) if pool == "gpus" else int((first < _NOWHERE).sum())  # devices stay even if nothing ran on them
        order = np.argsort(first[: len(items)], kind="stable")[:used]
        self.number[pool] = np.full(len(first), -1, np.int32)
        self.number[pool][order] = np.arange(len(order))
        return [items[code] for code in order.tolist()]

    def _derived(
        self, calls: list[OpCall], stacks: list[Stack], gpus: list[str], names: list[str]
    ) -> dict[str, tuple[str, pa.Array]]:
        """Derived columns: name -> (column of codes, value of each code; the last is the value of -1)."""
        values: dict[str, tuple[str, list[Any]]] = {
            "mod": ("call", [call.module for call in calls]),
            "op": ("call", [call.op for call in calls]),
            "params": ("call", [format_call(call)[len(call.op) + 1 : -1] for call in calls]),
            "args": ("call", [_arguments(call) for call in calls]),
            "inner": ("inner", [call.name for call in calls]),
            "layer": ("scope", [stack.layer for stack in stacks]),
            "trace": ("scope", [stack.trace for stack in stacks]),
            "src": ("scope", [stack.trace[-1] if stack.trace else None for stack in stacks]),
            "name": ("name", names),
            "kernel": ("name", [*map(short_name, names)]),
            "gpu": ("gpu", gpus),
        }
        return {name: (codes, to_column(self.types[name], [*each, None])) for name, (codes, each) in values.items()}

    def columns(self, begin: int, end: int) -> dict[str, pa.Array]:
        """All columns of the rows from `begin` to `end`."""
        codes = {name: self.number[pool][self.records[name][begin:end]] for name, pool in _CODED.items()}
        return {column.name: self._column(column, begin, end, codes) for column in SCHEMA}

    def _column(self, column: ParquetColumn, begin: int, end: int, codes: dict[str, Ints]) -> pa.Array:
        name, records = column.record, self.records
        if name in SPELLED:
            return coded_texts(records[name][begin:end].astype(np.int32), self.spelled[name])
        if name and column.name not in self.by_code:
            values = codes[name] if name in codes else records[name][begin:end]
            return to_arrow(values, values == -1)
        if column.name in self.by_code:
            of, values = self.by_code[column.name]
            if isinstance(values, pa.DictionaryArray):
                return coded_texts(to_numpy(values.indices, -1)[codes[of]], values.dictionary)
            return values.take(to_arrow(np.where(codes[of] < 0, len(values) - 1, codes[of])))
        offsets = records.seq_offsets[begin : end + 1]
        numbers = records.seq_numbers[offsets[0] : offsets[-1]]
        return pa.ListArray.from_arrays(to_arrow((offsets - offsets[0]).astype(np.int32)), to_arrow(numbers))


def _arguments(call: OpCall) -> list[tuple[object, ...]]:
    """name, shape, dtype, strides and value of each argument; each tensor of a list is an argument of its own."""
    found: list[tuple[object, ...]] = []
    for name, value in [*((None, value) for value in call.args), *call.kwargs]:
        of_tensors = isinstance(value, (list, tuple)) and any(isinstance(item, TensorSpec) for item in value)
        for item in value if of_tensors else [value]:
            if isinstance(item, TensorSpec):
                strides = None if item.strides == contiguous_strides(item.shape) else item.strides
                found.append((name, item.shape, item.dtype, strides, None))
            else:
                found.append((name, None, None, None, sound_text(format_value(item))))
    return found


def to_column(kind: Type, values: Sequence[Any]) -> pa.Array:
    """Python values of a declared type as an Arrow array, column by column: Arrow's own conversion imports pandas.

    A list may be any sequence, a struct is a tuple of its fields. None becomes null, except for a struct.
    """
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
    """A dictionary-encoded column: codes (-1: null) into an Arrow array of texts."""
    return pa.DictionaryArray.from_arrays(to_arrow(codes, codes < 0), texts, safe=False)
