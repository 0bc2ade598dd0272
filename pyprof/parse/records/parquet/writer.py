"""Records -> a Parquet file, a row group at a time."""

from __future__ import annotations

from collections.abc import Sequence
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
from pyprof.parse.records.parquet.nested import coded_texts, to_column
from pyprof.parse.records.parquet.schema import SCHEMA, SPELLED, ParquetColumn, arrow_type, leaf_paths
from pyprof.parse.records.parquet.stored import KEY, pool_key, stored_facts, stored_host, stored_pool

_ROWS = 1 << 17  # of a row group: so many rows are in memory at once while writing
_NOWHERE = np.iinfo(np.int64).max
_CODED = {**POOLED, "name": "name"}
# Columns that grow steadily: their differences are small.
_STEADY = ("start", "launch", "corr", "instance", "fwd_instance", "seq", "seq_numbers.list.element")
# With least and largest values, by which readers skip row groups.
_LIMITED = ("start", "rank", "pid", "step", "kind", "instance", "fwd_instance")

Ints = npt.NDArray[np.int32]


def write_file(records: Records, target: Path | BinaryIO) -> None:
    """Write all records to a file. Raises OSError where that fails."""
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
    """Arrow columns, chunk by chunk of rows; values shared by many rows are converted once and gathered by code."""

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
        """The items of a pool that rows reference, in order of first reference; stores their new numbers, by old code, in
        `number`."""
        columns = [name for name, of in _CODED.items() if of == pool]
        first = np.full(len(items) + 1, _NOWHERE)  # the first place that refers to each: row by row, and there column by column
        for place, name in enumerate(columns):
            own = np.full(len(first), _NOWHERE)
            own[self.records[name][::-1]] = np.arange(len(self.records))[::-1] * len(columns) + place
            np.minimum(first, own, out=first)
        first[-1] = _NOWHERE
        used = len(items) if pool == "gpus" else int((first < _NOWHERE).sum())  # a device on which nothing ran is told of too
        order = np.argsort(first[: len(items)], kind="stable")[:used]
        self.number[pool] = np.full(len(first), -1, np.int32)
        self.number[pool][order] = np.arange(len(order))
        return [items[code] for code in order.tolist()]

    def _derived(
        self, calls: list[OpCall], stacks: list[Stack], gpus: list[str], names: list[str]
    ) -> dict[str, tuple[str, pa.Array]]:
        """Columns for people: the column of records whose codes they follow, and their value of each code, of -1 the last."""
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
        """All columns of some rows."""
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
            return _taken(values, codes[of])
        offsets = records.seq_offsets[begin : end + 1]
        numbers = records.seq_numbers[offsets[0] : offsets[-1]]
        return pa.ListArray.from_arrays(to_arrow((offsets - offsets[0]).astype(np.int32)), to_arrow(numbers))


def _taken(values: pa.Array, codes: Ints) -> pa.Array:
    """The value of each code; -1 is the last."""
    if isinstance(values, pa.DictionaryArray):
        return coded_texts(to_numpy(values.indices, -1)[codes], values.dictionary)
    return values.take(to_arrow(np.where(codes < 0, len(values) - 1, codes)))


def _arguments(call: OpCall) -> list[tuple[object, ...]]:
    """name, shape, dtype, strides and value of each argument, for people; tensors of a list one by one."""
    return [
        (name, *_described(item))
        for name, value in [*((None, value) for value in call.args), *call.kwargs]
        for item in (value if isinstance(value, (list, tuple)) and _has_tensor(value) else [value])
    ]


def _described(value: object) -> tuple[object, ...]:
    if isinstance(value, TensorSpec):
        strides = None if value.strides == contiguous_strides(value.shape) else value.strides
        return value.shape, value.dtype, strides, None
    return None, None, None, sound_text(format_value(value))


def _has_tensor(values: Sequence[object]) -> bool:
    return any(isinstance(value, TensorSpec) for value in values)
