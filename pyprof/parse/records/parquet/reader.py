"""A Parquet file -> Records whose columns are read from the file when they are first used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyprof.arrays.arrow import to_numpy
from pyprof.arrays.spool import kept, of_parts, on_disk, taken, touched
from pyprof.arrays.spool import release as release_pages
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.errors import InputError
from pyprof.opcall import OpCall
from pyprof.parse.records.parquet.schema import SCHEMA, SPELLED, arrow_type
from pyprof.parse.records.parquet.stored import AGAIN, POOL_ERRORS, pool_key, read_facts, read_pool
from pyprof.parse.records.records import COLUMNS, POOLED, Records
from pyprof.parse.sources.trace import Strings

_DAMAGED = "the file is damaged: copy it or parse the capture again"
_SEQUENCES = "seq_numbers"
_MOST_BYTES = (1 << 31) - 1  # of the pools in the metadata
_READ_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)
_TYPES = {column.name: column.type for column in SCHEMA}
_NAMES = {column.record: column.name for column in SCHEMA if column.record}


def read_file(path: Path) -> Records:
    """The records of a file that `write_file` wrote.

    Raises NotACapture for a Parquet file that pyprof did not write, InputError for one of another version or a damaged one.
    """
    return _Stored(_Store(path))


class _Store:
    """One open file: columns, and pools."""

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
        for column in SCHEMA:
            expected = arrow_type(column.type)
            if column.name not in types:
                raise InputError(f"{path}: it has no column {column.name!r}", AGAIN)
            if types[column.name] != expected:
                raise InputError(f"{path}: its column {column.name!r} is {types[column.name]}, not {expected}", AGAIN)
        self.strings = Strings()
        sizes = [self.file.metadata.row_group(group).num_rows for group in range(self.file.num_row_groups)]
        self.begins = np.cumsum([0, *sizes])  # of row groups
        self.columns: dict[str, Array] = {}
        self.last: dict[str, tuple[int, list[Array]]] = {}  # of each column the row group read last, for rows that follow
        self.pools: dict[str, Any] = {}

    def column(self, name: str, rows: Array | None = None) -> Array:
        """A column, or these rows of it, of which the whole is then not kept."""
        if rows is None or on_disk():
            if name not in self.columns:
                self.columns[name] = self._read(name, range(len(self.begins) - 1))[0]
            if rows is None:
                return self.columns[name]
        touched()
        first, (values,) = (0, [self.columns[name]]) if name in self.columns else self._around(name, rows)
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (rows[1:] > rows[:-1]).all():
            return values[rows[0] - first : rows[-1] - first + 1].copy()  # a view would keep the whole
        chosen: Array = values[rows - first]
        return chosen

    def _around(self, name: str, rows: Array) -> tuple[int, list[Array]]:
        """The first row of the row groups that hold these rows, and what `_read` gives of them."""
        ends = (rows.min(), rows.max()) if len(rows) else (0, -1)
        first, last = np.searchsorted(self.begins, ends, "right").tolist()
        pieces = []
        for group in range(first - 1, last):
            if name not in self.last or self.last[name][0] != group:
                self.last[name] = group, self._read(name, range(group, group + 1))
            pieces.append(self.last[name][1])
        if len(pieces) == 1:
            return int(self.begins[first - 1]), pieces[0]
        pieces.append(self._read(name, range(0)))
        return int(self.begins[first - 1]), [*map(np.concatenate, zip(*pieces, strict=True))]

    def _chunks(self, name: str, groups: range) -> Iterator[pa.Array]:
        """A column in some row groups piece by piece: one of them at a time takes memory beside what is made of it."""
        rows, expected = 0, int(self.begins[groups.stop] - self.begins[groups.start])
        try:
            for group in groups:
                for chunk in self.file.read_row_group(group, [name], use_threads=False).column(0).chunks:
                    rows += len(chunk)
                    yield chunk
        except _READ_ERRORS as error:
            raise InputError(f"{self.path}: cannot be read: {_first_line(error)}", _DAMAGED) from error
        if rows != expected:  # a damaged page can be passed over without an error
            raise InputError(f"{self.path}: its column {name!r} has {rows} rows of {expected}", _DAMAGED)
        pa.default_memory_pool().release_unused()

    def _read(self, name: str, groups: range) -> list[Array]:
        """A column of Records in some row groups; of the sequence numbers how many each row has, and the numbers."""
        if name == _SEQUENCES:
            lists = [*self._chunks(name, groups)]
            lengths = [np.diff(to_numpy(chunk.offsets)) for chunk in lists]
            numbers = [to_numpy(chunk.flatten()) for chunk in lists]
            return [np.concatenate([np.empty(0, np.int64), *parts]) for parts in (lengths, numbers)]
        dtype, size = np.dtype(COLUMNS[name][0]), int(self.begins[groups.stop] - self.begins[groups.start])
        parts = (self._values(name, chunk).astype(dtype, copy=False) for chunk in self._chunks(_NAMES[name], groups))
        return [of_parts(size, dtype, parts, -1)]

    def pieces(self, names: Sequence[str], rows: slice) -> Iterator[tuple[slice, list[Array]]]:
        """These rows of some columns, those of one row group after another, none of which is kept."""
        for group in range(len(self.begins) - 1):
            first, stop = self.begins[group : group + 2].tolist()
            part = slice(max(first, rows.start), min(stop, rows.stop))
            if part.start < part.stop:
                own = slice(part.start - first, part.stop - first)
                yield part, [values[own] for values in self._group(names, group)]

    def _group(self, names: Sequence[str], group: int) -> list[Array]:
        """Some columns of one row group."""
        rows = int(self.begins[group + 1] - self.begins[group])
        try:
            table = self.file.read_row_group(group, [_NAMES[name] for name in names], use_threads=False)
            columns = [table.column(_NAMES[name]) for name in names]
        except (*_READ_ERRORS, KeyError) as error:  # KeyError: a damaged schema has two of one name
            raise InputError(f"{self.path}: cannot be read: {_first_line(error)}", _DAMAGED) from error
        found = []
        for name, column in zip(names, columns, strict=True):
            parts = [self._values(name, chunk) for chunk in column.chunks]
            values = parts[0] if len(parts) == 1 else np.concatenate(parts)
            if len(values) != rows:
                raise InputError(f"{self.path}: its column {_NAMES[name]!r} has {len(values)} rows of {rows}", _DAMAGED)
            found.append(values.astype(COLUMNS[name][0], copy=False))
        return found

    def _values(self, name: str, chunk: pa.Array) -> Array:
        """A piece of a column as Records has it."""
        column = _NAMES[name]
        if _TYPES[column] == "text":
            return self._codes(name, chunk)
        values = to_numpy(chunk, -1)
        if name in POOLED and ((values < -1) | (values >= len(self.pool(POOLED[name])))).any():
            raise InputError(f"{self.path}: its column {column!r} has numbers beyond its {POOLED[name]}", _DAMAGED)
        return values

    def _codes(self, name: str, chunk: pa.Array) -> Array:
        """Texts as codes of Records."""
        code = self.strings.code if name == "name" else SPELLED[name].index
        try:
            codes = [code(text) for text in chunk.dictionary.to_pylist()]
        except ValueError as error:
            raise InputError(f"{self.path}: its column {name!r} holds an unknown text", _DAMAGED) from error
        which = to_numpy(chunk.indices, len(codes))
        if which.min(initial=0) < 0 or which.max(initial=0) > len(codes):
            raise InputError(f"{self.path}: its column {name!r} refers to texts beyond its dictionary", _DAMAGED)
        numbers: Array = np.array([*codes, -1], np.int64)[which]
        return numbers

    def pool(self, name: str) -> Any:
        """All names of kernels, stacks, calls, devices or steps of engines of the file."""
        if name in self.pools:
            return self.pools[name]
        if name == "strings":
            self.column("name")
            self.pools[name] = self.strings
            return self.strings
        try:
            self.pools[name] = read_pool(name, self.metadata[pool_key(name)])
        except POOL_ERRORS as error:
            raise InputError(f"{self.path}: its {name} cannot be read: {_first_line(error)}", _DAMAGED) from error
        return self.pools[name]

    def sequences(self, rows: Array | None) -> tuple[Ints, Ints]:
        """As Records has them, of these rows or all: where each row's numbers begin, and the numbers."""
        if rows is None:
            rows = np.arange(self.begins[-1])
        first, (lengths, numbers) = self._around(_SEQUENCES, rows)
        chosen = Records({}, seq_offsets=np.append(0, np.cumsum(lengths)), seq_numbers=numbers).select(rows - first)
        return chosen.seq_offsets, chosen.seq_numbers


class _Columns(dict[str, Array]):
    """Columns that are read from the file when they are first used."""

    def __init__(self, store: _Store, rows: Array | None) -> None:
        super().__init__()
        self.store, self.rows = store, rows
        self.code, self.of_class = np.empty(0, np.int32), dict[str, Array]()

    def __missing__(self, name: str) -> Array:
        if name not in self.of_class or name in self.store.columns:
            self[name] = found = kept(self.store.column(name, self.rows))
            return found
        values = self.of_class[name]
        same = len(values) > 0 and bool((values == values[0]).all())
        self[name] = found = np.broadcast_to(values[0], len(self.code)) if same else taken(values, self.code)
        return found


class _Stored(Records):
    """Records whose parts are read from a file when they are first used."""

    def __init__(self, store: _Store, rows: Array | None = None) -> None:
        facts = store.facts
        self._store, self._rows = store, rows
        self.columns: _Columns = _Columns(store, rows)
        self._changed: set[str] = set()  # columns that differ from the file's
        self.source, self.counts, self.notes = facts.source, dict(facts.counts), list(facts.notes)
        self.utc_ns = facts.utc_ns

    def __getattr__(self, name: str) -> Any:
        if name in ("strings", "stacks", "calls", "gpus", "engine_steps"):
            value = self._store.pool(name)
        elif name in ("seq_offsets", "seq_numbers"):
            self.seq_offsets, self.seq_numbers = self._store.sequences(self._rows)
            return self.seq_offsets if name == "seq_offsets" else self.seq_numbers
        else:
            raise AttributeError(name)
        setattr(self, name, value)
        return value

    def of_rows(self, name: str, rows: slice | Array) -> Array:
        if name in self.columns:
            touched()
            return super().of_rows(name, rows)
        if name in self.columns.of_class:
            touched()
            return self.columns.of_class[name].take(self.columns.code[rows])
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        return self._store.column(name, rows if self._rows is None else self._rows[rows])

    def pieces_of(self, names: Sequence[str], rows: slice) -> Iterator[tuple[slice, list[Array]]]:
        if self._rows is not None:
            yield from super().pieces_of(names, rows)
            return
        here = {**self._store.columns, **self.columns}
        read = [name for name in names if name not in here]
        for part, values in self._store.pieces(read, rows):
            found = dict(zip(read, values, strict=True))
            yield part, [found[name] if name in found else here[name][part] for name in names]
            touched()

    def select(self, rows: Bools | Ints) -> Records:
        positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        if rows.dtype == np.bool_ and len(positions) == len(rows):
            return self
        selected = _Stored(self._store, positions if self._rows is None else self._rows[positions])
        selected._changed = self._changed
        known = self._changed if self._rows is None and on_disk() else self.columns  # the others are in the store
        return selected._with({name: self.columns[name][positions] for name in known}, vars(self).get("calls"))

    def only(self, *names: str) -> Records:
        return self  # whose columns are read when they are used

    def with_ops(self, columns: dict[str, Array], calls: list[OpCall]) -> Records:
        changed = _Stored(self._store, self._rows)
        changed._changed = self._changed | columns.keys()
        return changed._with({name: self.columns[name] for name in self.columns} | columns, calls)

    def are_of(self, code: Array, columns: dict[str, Array]) -> None:
        self.columns.code, self.columns.of_class = code, columns

    def release(self, *names: str) -> None:
        if on_disk():  # where they take no memory; reading them from the file again would take time
            release_pages()
            return
        for name in set(names) - self._changed:
            self.columns.pop(name, None)
            self._store.columns.pop(name, None)
            self._store.last.pop(name, None)

    def _with(self, columns: dict[str, Array], calls: list[OpCall] | None) -> Records:
        """Itself, with columns and calls that need not be read any more or differ from the file's."""
        self.columns.update(columns)
        if calls is not None:
            self.calls = calls
        return self


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
