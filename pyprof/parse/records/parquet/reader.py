"""A Parquet file -> Records whose columns, pools and sequence numbers are read when first used."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyprof.columns.arrow import to_numpy
from pyprof.columns.distinct import is_constant
from pyprof.columns.types import Array, Bools, Ints
from pyprof.errors import InputError
from pyprof.model.opcall import OpCall
from pyprof.model.records import COLUMNS, POOLED, Records, chosen_numbers
from pyprof.model.trace import Strings
from pyprof.parse.records.parquet.schema import SCHEMA, SPELLED, arrow_type
from pyprof.parse.records.parquet.stored import AGAIN, POOL_ERRORS, pool_key, read_facts, read_host, read_pool

_MOST_INSTANCES = (1 << 63) - (1 << 40)  # others are numbered on from the highest
_DAMAGED = "the file is damaged: copy it or parse the capture again"
_MOST_BYTES = (1 << 31) - 1  # of the metadata, which hold the pools
_READ_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)
_TYPES = {column.name: column.type for column in SCHEMA}
_NAMES = {column.record: column.name for column in SCHEMA if column.record}


def read_file(path: Path) -> Records:
    """The records of a file that `write_file` wrote.

    Raises NotACapture for a Parquet file that pyprof did not write, InputError for another version or damage.
    """
    return _Stored(_File(path))


class _File:
    """An open file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = pq.ParquetFile(path, page_checksum_verification=True, thrift_string_size_limit=_MOST_BYTES)
            schema = self.file.schema_arrow
            types = {field.name: field.type for field in schema}
        except _READ_ERRORS as error:
            raise InputError(f"{path}: cannot be read: {_first_line(error)}", "copy it or parse the capture again") from error
        self.metadata: dict[bytes, bytes] = schema.metadata or {}
        self.facts = read_facts(path, self.metadata)
        try:
            self.steps, self.host, self.unseen = read_host(self.metadata)
        except POOL_ERRORS as error:
            raise InputError(f"{self.path}: its steps and host cannot be read: {_first_line(error)}", _DAMAGED) from error
        for column in SCHEMA:
            expected = arrow_type(column.type)
            if column.name not in types:
                raise InputError(f"{path}: it has no column {column.name!r}", AGAIN)
            if types[column.name] != expected:
                raise InputError(f"{path}: its column {column.name!r} is {types[column.name]}, not {expected}", AGAIN)
        self.strings = Strings()
        sizes = [self.file.metadata.row_group(group).num_rows for group in range(self.file.num_row_groups)]
        self.begins = np.cumsum([0, *sizes])  # first row of each row group, then the number of rows
        self.pools: dict[str, Any] = {}
        # The last rows that were asked for, and where they are.
        self._asked: tuple[Array | None, tuple[Ints, Array | slice]] = None, (self.begins, self.begins)

    def __len__(self) -> int:
        return int(self.begins[-1])

    def column(self, name: str, rows: Array | None = None) -> Array:
        """A column of Records at these rows (None: all). Reads only row groups that hold some of them."""
        groups, places = self._groups(rows)
        dtype = np.dtype(COLUMNS[name][0])
        parts = [self._values(name, chunk).astype(dtype, copy=False) for chunk in self._chunks(_NAMES[name], groups)]
        values = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])
        if places is not None:
            values = values[places] if isinstance(places, slice) else values.take(places)
        return np.broadcast_to(values[0], len(values)) if is_constant(values) else values

    def _groups(self, rows: Array | None) -> tuple[Ints, Array | slice | None]:
        """The row groups that hold these rows, and the position of each row in the concatenation of these row groups."""
        if rows is None:
            return np.arange(len(self.begins) - 1), None
        if rows is not self._asked[0]:  # column after column is read at the same rows
            self._asked = rows, self._find_groups(rows)
        return self._asked[1]

    def _find_groups(self, rows: Array) -> tuple[Ints, Array | slice]:
        if len(rows) and (np.diff(rows) == 1).all():
            first, last = (int(np.searchsorted(self.begins, row, "right")) - 1 for row in (rows[0], rows[-1]))
            begin = int(rows[0] - self.begins[first])
            return np.arange(first, last + 1), slice(begin, begin + len(rows))
        used = np.unique(np.searchsorted(self.begins, rows, "right") - 1)
        held = np.cumsum([0, *np.diff(self.begins)[used]])
        at = np.searchsorted(self.begins[used], rows, "right") - 1
        return used, rows - (self.begins[used] - held[:-1])[at]

    def _chunks(self, column: str, groups: Ints) -> Iterator[pa.Array]:
        """Chunks of a column of some row groups. Raises InputError if they are damaged."""
        rows, expected = 0, int(np.diff(self.begins)[groups].sum())
        try:
            for group in groups.tolist():
                for chunk in self.file.read_row_group(group, [column], use_threads=False).column(column).chunks:
                    rows += len(chunk)
                    yield chunk
        except (*_READ_ERRORS, KeyError) as error:  # KeyError: a damaged schema has two of one name
            raise InputError(f"{self.path}: cannot be read: {_first_line(error)}", _DAMAGED) from error
        if rows != expected:  # pyarrow may skip a damaged page without an error
            raise InputError(f"{self.path}: its column {column!r} has {rows} rows of {expected}", _DAMAGED)
        pa.default_memory_pool().release_unused()

    def may_hold(self, name: str, group: int, least: int, beyond: int) -> bool:
        """False if the statistics of a row group rule out all values v with least <= v < beyond."""
        paths = [self.file.schema.column(at).path for at in range(len(self.file.schema))]
        try:
            column = self.file.metadata.row_group(group).column(paths.index(_NAMES[name]))
            if column.physical_type != self.file.schema.column(paths.index(_NAMES[name])).physical_type:
                return True  # damaged: reading the statistics would crash Arrow
            told = column.statistics
            if told is None or not told.has_null_count or (told.null_count and least <= -1 < beyond):
                return True
            if told.null_count == self.begins[group + 1] - self.begins[group]:
                return False
            known = told.has_min_max and isinstance(told.min, int) and isinstance(told.max, int)
            return not known or (told.min < beyond and least <= told.max)
        except (*_READ_ERRORS, ValueError, IndexError):
            return True

    def _values(self, name: str, chunk: pa.Array) -> Array:
        """A chunk as values of a column of Records."""
        column = _NAMES[name]
        if len(chunk) and chunk.null_count == len(chunk):
            return np.broadcast_to(np.int64(-1), len(chunk))
        if _TYPES[column] == "text":
            codes = self._codes(name, chunk.dictionary)
            which = to_numpy(chunk.indices, len(codes))
            if which.min(initial=0) < 0 or which.max(initial=0) > len(codes):
                raise InputError(f"{self.path}: its column {name!r} refers to texts beyond its dictionary", _DAMAGED)
            return np.array([*codes, -1], COLUMNS[name][0]).take(which)
        values = to_numpy(chunk, -1)
        if name in POOLED and (values.min(initial=-1) < -1 or values.max(initial=-1) >= len(self.pool(POOLED[name]))):
            raise InputError(f"{self.path}: its column {column!r} has numbers beyond its {POOLED[name]}", _DAMAGED)
        if name in ("instance", "fwd_instance") and values.max(initial=-1) > _MOST_INSTANCES:
            raise InputError(f"{self.path}: its column {column!r} has numbers beyond any count of calls", _DAMAGED)
        return values

    def _codes(self, name: str, texts: pa.Array) -> list[int]:
        """The code in Records of each text in a chunk's dictionary."""
        code = self.strings.code if name == "name" else SPELLED[name].index
        try:
            return [code(text) for text in texts.to_pylist()]
        except ValueError as error:
            raise InputError(f"{self.path}: its column {name!r} holds an unknown text", _DAMAGED) from error

    def pool(self, name: str) -> Any:
        """All kernel names, stacks, calls, devices or scheduler steps of the file."""
        if name == "strings" and name not in self.pools:
            for chunk in self._chunks("name", self._groups(None)[0]):
                self._codes("name", chunk.dictionary)
            self.pools[name] = self.strings
        if name not in self.pools:
            try:
                self.pools[name] = read_pool(name, self.metadata[pool_key(name)])
            except POOL_ERRORS as error:
                raise InputError(f"{self.path}: its {name} cannot be read: {_first_line(error)}", _DAMAGED) from error
        return self.pools[name]

    def sequences(self, rows: Array | None) -> tuple[Ints, Ints]:
        """seq_offsets and seq_numbers of these rows (None: all)."""
        groups, places = self._groups(rows)
        lists = [*self._chunks("seq_numbers", groups)]
        lengths = [np.zeros(1, np.int64), *(np.diff(to_numpy(chunk.offsets)) for chunk in lists)]
        numbers = np.concatenate([np.empty(0, np.int64), *(to_numpy(chunk.flatten()) for chunk in lists)])
        offsets = np.cumsum(np.concatenate(lengths))
        if places is None:
            return offsets, numbers
        return chosen_numbers(offsets, numbers, np.arange(len(offsets) - 1)[places] if isinstance(places, slice) else places)


class _Columns(dict[str, Array]):
    """Columns of some rows of a file, read when first used."""

    def __init__(self, file: _File, rows: Array | None) -> None:
        super().__init__()
        self.file, self.rows = file, rows

    def __missing__(self, name: str) -> Array:
        if name not in _NAMES:
            raise KeyError(name)
        self[name] = found = self.file.column(name, self.rows)
        return found


class _Stored(Records):
    """Records read from a file when first used. rows: positions in the file, None: all."""

    def __init__(self, file: _File, rows: Array | None = None) -> None:
        self._file, self._rows = file, rows
        self.columns: _Columns = _Columns(file, rows)
        self._given: frozenset[str] = frozenset()  # columns that are not the file's
        self.source, self.counts, self.notes = file.facts.source, dict(file.facts.counts), list(file.facts.notes)
        self.utc_ns, self.steps, self.host, self.unseen = file.facts.utc_ns, file.steps, file.host, file.unseen

    def __len__(self) -> int:
        return len(self._file) if self._rows is None else len(self._rows)

    def __getattr__(self, name: str) -> Any:
        if name in ("strings", "stacks", "calls", "gpus", "engine_steps"):
            setattr(self, name, self._file.pool(name))
        elif name in ("seq_offsets", "seq_numbers"):
            self.seq_offsets, self.seq_numbers = self._file.sequences(self._rows)
        else:
            raise AttributeError(name)
        return vars(self)[name]

    def of_rows(self, name: str, rows: slice | Array) -> Array:
        if name in self.columns:
            return self.columns[name][rows]
        if isinstance(rows, slice) and rows == slice(None):
            return self._file.column(name, self._rows)
        rows = np.arange(len(self))[rows] if isinstance(rows, slice) else rows
        return self._file.column(name, rows if self._rows is None else self._rows[rows])

    def within(self, name: str, least: int, beyond: int) -> Bools:
        if self._rows is not None or name in self.columns:
            return super().within(name, least, beyond)
        inside, begins = np.zeros(len(self), np.bool_), self._file.begins.tolist()
        for group, (begin, end) in enumerate(pairwise(begins)):
            if self._file.may_hold(name, group, least, beyond):
                values = self._file.column(name, np.arange(begin, end))
                inside[begin:end] = (values >= least) & (values < beyond)
        return inside

    def select(self, rows: Array) -> Records:
        if rows.dtype == np.bool_ and rows.all():
            return self
        positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        selected = _Stored(self._file, positions if self._rows is None else self._rows[positions])
        selected.columns.update({name: values[positions] for name, values in self.columns.items()})
        selected._given = self._given
        if "calls" in vars(self):
            selected.calls = self.calls
        return selected

    def forget(self, keep: Collection[str]) -> None:
        for name in self.columns.keys() - self._given - set(keep):
            del self.columns[name]

    def with_ops(self, columns: dict[str, Array], calls: list[OpCall]) -> Records:
        changed = _Stored(self._file, self._rows)
        changed.columns.update(self.columns | columns)
        changed.calls, changed._given = calls, self._given | columns.keys()
        return changed


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
