"""A Parquet file -> Records whose columns are read from the file when they are first used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyprof.arrays.arrow import to_numpy
from pyprof.arrays.joining import positions
from pyprof.arrays.spool import is_constant, kept, of_parts, on_disk, taken, touched
from pyprof.arrays.spool import release as release_pages
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.errors import InputError
from pyprof.opcall import OpCall
from pyprof.parse.records.parquet.chosen import Chosen, Piece
from pyprof.parse.records.parquet.schema import SCHEMA, SPELLED, arrow_type
from pyprof.parse.records.parquet.stored import AGAIN, POOL_ERRORS, pool_key, read_facts, read_host, read_pool
from pyprof.parse.records.records import ANYTHING, COLUMNS, NOTHING_KNOWN, POOLED, Limits, Records
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
        try:
            self.steps, self.host = read_host(self.metadata)
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
        self.begins = np.cumsum([0, *sizes])  # of row groups
        self.columns: dict[str, Array] = {}
        self.last: dict[str, tuple[int, list[Array]]] = {}  # of each column the row group read last, for rows that follow
        self.pools: dict[str, Any] = {}
        self._limits: dict[str, list[Limits]] = {}  # of columns that were asked for, by row group

    @property
    def rows(self) -> int:
        """How many records the file has."""
        return int(self.begins[-1])

    def column(self, name: str, chosen: Chosen | None = None, near: bool = False) -> Array:
        """A column, or some rows of it, of which the whole is then not kept; where it would lie on the disk, it is, unless the
        rows lie near each other."""
        if chosen is None or (on_disk() and not near):
            if name not in self.columns:
                self.columns[name] = self._read(name)
            if chosen is None:
                return self.columns[name]
        touched()
        found = _one_after_another(name, [piece.of(self._of_group(name, piece.group)) for piece in chosen])
        return found if chosen.ascending else found[chosen.back]

    def _of_group(self, name: str, group: int) -> Array:
        """A column of one row group."""
        if name in self.columns:
            return self.columns[name][self.begins[group] : self.begins[group + 1]]
        if name not in self.last or self.last[name][0] != group:
            values = self._group([name], group)[0]
            self.last[name] = group, [values]
        return self.last[name][1][0]

    def limits(self, name: str) -> list[Limits]:
        """What the values of a column may be in each row group, as the file tells or as was read."""
        if name not in self._limits:
            paths = [self.file.schema.column(at).path for at in range(len(self.file.schema))]
            place = paths.index(_NAMES[name]) if _NAMES[name] in paths else len(paths)
            self._limits[name] = [self._told(place, group) for group in range(len(self.begins) - 1)]
        return self._limits[name]

    def _told(self, place: int, group: int) -> Limits:
        """What the file's statistics say of a column of one row group."""
        try:
            column = self.file.metadata.row_group(group).column(place)
            if column.physical_type != self.file.schema.column(place).physical_type:
                return ANYTHING  # damaged: asked for statistics, Arrow would end the process
            told = column.statistics
            if told is None or not told.has_null_count:
                return ANYTHING
            if told.null_count == self.begins[group + 1] - self.begins[group]:
                return NOTHING_KNOWN
            found = Limits(told.min, told.max, told.null_count != 0) if told.has_min_max else ANYTHING
        except (*_READ_ERRORS, IndexError):
            return ANYTHING
        return found if isinstance(found.least, int) and isinstance(found.most, int) and found.least <= found.most else ANYTHING

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

    def _read(self, name: str) -> Array:
        """A whole column of Records."""
        chunks, dtype = self._chunks(_NAMES[name], range(len(self.begins) - 1)), COLUMNS[name][0]
        return of_parts(self.rows, dtype, (self._values(name, chunk).astype(dtype, copy=False) for chunk in chunks), -1)

    def pieces(self, names: Sequence[str], chosen: Chosen) -> Iterator[tuple[Piece, list[Array]]]:
        """Some rows of some columns, those of one row group after another, none of which is kept."""
        for piece in chosen:
            here = {name: self._of_group(name, piece.group) for name in names if name in self.columns}
            read = [name for name in names if name not in here]
            if read:
                here |= dict(zip(read, self._group(read, piece.group), strict=True))
            yield piece, [piece.of(here[name]) for name in names]

    def _group(self, names: Sequence[str], group: int) -> list[Array]:
        """Some columns of one row group; one of one value for all rows takes no room."""
        rows = int(self.begins[group + 1] - self.begins[group])
        try:
            table = self.file.read_row_group(group, [_NAMES[name] for name in names], use_threads=False)
            columns = [table.column(_NAMES[name]) for name in names]
        except (*_READ_ERRORS, KeyError) as error:  # KeyError: a damaged schema has two of one name
            raise InputError(f"{self.path}: cannot be read: {_first_line(error)}", _DAMAGED) from error
        found = []
        for name, column in zip(names, columns, strict=True):
            values = _one_after_another(name, [self._values(name, chunk) for chunk in column.chunks])
            if len(values) != rows:
                raise InputError(f"{self.path}: its column {_NAMES[name]!r} has {len(values)} rows of {rows}", _DAMAGED)
            found.append(np.broadcast_to(values[0], rows) if is_constant(values) else values)
            if name in self._limits:
                self._limits[name][group] = Limits.of(values)
        return found

    def _values(self, name: str, chunk: pa.Array) -> Array:
        """A piece of a column as Records has it."""
        column = _NAMES[name]
        if len(chunk) and chunk.null_count == len(chunk):
            return np.broadcast_to(np.int64(-1), len(chunk))
        if _TYPES[column] == "text":
            return self._codes(name, chunk)
        values = to_numpy(chunk, -1)
        if name in POOLED and (values.min(initial=-1) < -1 or values.max(initial=-1) >= len(self.pool(POOLED[name]))):
            raise InputError(f"{self.path}: its column {column!r} has numbers beyond its {POOLED[name]}", _DAMAGED)
        return values

    def _codes(self, name: str, chunk: pa.Array) -> Array:
        """Texts as codes of Records."""
        codes = self._codes_of(name, chunk.dictionary)
        which = to_numpy(chunk.indices, len(codes))
        if which.min(initial=0) < 0 or which.max(initial=0) > len(codes):
            raise InputError(f"{self.path}: its column {name!r} refers to texts beyond its dictionary", _DAMAGED)
        numbers: Array = np.array([*codes, -1], COLUMNS[name][0]).take(which)
        return numbers

    def _codes_of(self, name: str, texts: pa.Array) -> list[int]:
        """The code of each of the distinct texts of a piece of a column."""
        code = self.strings.code if name == "name" else SPELLED[name].index
        try:
            return [code(text) for text in texts.to_pylist()]
        except ValueError as error:
            raise InputError(f"{self.path}: its column {name!r} holds an unknown text", _DAMAGED) from error

    def pool(self, name: str) -> Any:
        """All names of kernels, stacks, calls, devices or steps of engines of the file."""
        if name in self.pools:
            return self.pools[name]
        if name == "strings":
            if on_disk():
                self.column("name")  # which is wanted soon
            elif "name" not in self.columns:
                for chunk in self._chunks("name", range(len(self.begins) - 1)):
                    self._codes_of("name", chunk.dictionary)
            self.pools[name] = self.strings
            return self.strings
        try:
            self.pools[name] = read_pool(name, self.metadata[pool_key(name)])
        except POOL_ERRORS as error:
            raise InputError(f"{self.path}: its {name} cannot be read: {_first_line(error)}", _DAMAGED) from error
        return self.pools[name]

    def sequences(self, chosen: Chosen) -> tuple[Ints, Ints]:
        """As Records has them, of some rows: where each row's numbers begin, and the numbers."""
        lengths, numbers = [np.zeros(1, np.int64)], [np.empty(0, np.int64)]
        for piece in chosen:
            some = Records({}, seq_offsets=(own := self._sequences_of(piece.group))[0], seq_numbers=own[1])
            some = some.select(np.arange(len(own[0]) - 1)[piece.rows])
            lengths.append(np.diff(some.seq_offsets))
            numbers.append(some.seq_numbers)
        found = Records({}, seq_offsets=np.cumsum(np.concatenate(lengths)), seq_numbers=np.concatenate(numbers))
        found = found if chosen.ascending else found.select(chosen.back)
        return found.seq_offsets, found.seq_numbers

    def _sequences_of(self, group: int) -> list[Array]:
        """The same of one row group."""
        if _SEQUENCES not in self.last or self.last[_SEQUENCES][0] != group:
            lists = [*self._chunks(_SEQUENCES, range(group, group + 1))]
            lengths = [np.zeros(1, np.int64), *(np.diff(to_numpy(chunk.offsets)) for chunk in lists)]
            numbers = [np.empty(0, np.int64), *(to_numpy(chunk.flatten()) for chunk in lists)]
            self.last[_SEQUENCES] = group, [np.cumsum(np.concatenate(lengths)), np.concatenate(numbers)]
        return self.last[_SEQUENCES][1]


class _Columns(dict[str, Array]):
    """Columns that are read from the file when they are first used."""

    def __init__(self, store: _Store, chosen: Chosen | None, near: bool) -> None:
        super().__init__()
        self.store, self.chosen, self.near = store, chosen, near
        self.code, self.of_class = np.empty(0, np.int32), dict[str, Array]()

    def __missing__(self, name: str) -> Array:
        if name not in self.of_class or name in self.store.columns:
            self[name] = found = kept(self.store.column(name, self.chosen, self.near))
            return found
        values = self.of_class[name]
        same = len(values) > 0 and bool((values == values[0]).all())
        self[name] = found = np.broadcast_to(values[0], len(self.code)) if same else taken(values, self.code)
        return found


class _Stored(Records):
    """Records whose parts are read from a file when they are first used."""

    def __init__(self, store: _Store, rows: Array | None = None, near: bool = False) -> None:
        facts = store.facts
        self._store, self._rows = store, rows
        self._chosen = Chosen(store.begins, slice(0, store.rows) if rows is None else rows)
        self.columns: _Columns = _Columns(store, None if rows is None else self._chosen, near)
        self._changed: set[str] = set()  # columns that differ from the file's
        self.source, self.counts, self.notes = facts.source, dict(facts.counts), list(facts.notes)
        self.utc_ns = facts.utc_ns
        self.steps, self.host = store.steps, store.host

    def __len__(self) -> int:
        return self._store.rows if self._rows is None else len(self._rows)

    def __getattr__(self, name: str) -> Any:
        if name in ("strings", "stacks", "calls", "gpus", "engine_steps"):
            value = self._store.pool(name)
        elif name in ("seq_offsets", "seq_numbers"):
            self.seq_offsets, self.seq_numbers = self._store.sequences(self._chosen)
            return self.seq_offsets if name == "seq_offsets" else self.seq_numbers
        else:
            raise AttributeError(name)
        setattr(self, name, value)
        return value

    def _some(self, rows: slice | Array) -> Chosen:
        """Some of these records in the file."""
        return Chosen(self._store.begins, rows if self._rows is None else self._rows[rows])

    def of_rows(self, name: str, rows: slice | Array) -> Array:
        if name in self.columns:
            touched()
            return super().of_rows(name, rows)
        if name in self.columns.of_class:
            touched()
            return self.columns.of_class[name].take(self.columns.code[rows])
        return self._store.column(name, self._some(rows), self.columns.near)

    def pieces_of(self, names: Sequence[str], rows: slice) -> Iterator[tuple[slice, list[Array]]]:
        if not self._chosen.ascending:
            yield from super().pieces_of(names, rows)
            return
        here = self.columns
        read = [name for name in names if name not in here]
        for piece, values in self._store.pieces(read, self._some(rows)):
            part = slice(rows.start + piece.part.start, rows.start + piece.part.stop)
            found = dict(zip(read, values, strict=True))
            yield part, [found[name] if name in found else here[name][part] for name in names]
            touched()

    def stretches(self, *names: str) -> Iterator[tuple[slice, list[Limits]]]:
        if not self._chosen.ascending:
            yield from super().stretches(*names)
            return
        known = {name: self._store.limits(name) for name in names if name not in self.columns}
        for piece in self._chosen:
            yield piece.part, [known[name][piece.group] if name in known else ANYTHING for name in names]

    def near(self, rows: Ints) -> Records:
        return self._select(rows, True)

    def select(self, rows: Bools | Ints) -> Records:
        places = positions(np.asarray(rows, np.bool_)) if rows.dtype == np.bool_ else rows
        if rows.dtype == np.bool_ and len(places) == len(rows):
            return self
        return self._select(places, self.columns.near)

    def _select(self, places: Array, near: bool) -> Records:
        selected = _Stored(self._store, places if self._rows is None else self._rows[places], near)
        selected._changed = self._changed
        known = self._changed if self._rows is None and on_disk() else self.columns  # the others are in the store
        if self.columns.of_class:
            selected.are_of(self.columns.code[places], self.columns.of_class)
        return selected._with({name: self.columns[name][places] for name in known}, vars(self).get("calls"))

    def with_ops(self, columns: dict[str, Array], calls: list[OpCall]) -> Records:
        changed = _Stored(self._store, self._rows, self.columns.near)
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


def _one_after_another(name: str, parts: list[Array]) -> Array:
    """A column of some rows from pieces of it; of one value for all rows it takes no room. It is no view of another."""
    dtype, parts = np.dtype(COLUMNS[name][0]), [part for part in parts if len(part)]
    if parts and all(part.strides == (0,) for part in parts) and len({int(part[0]) for part in parts}) == 1:
        return np.broadcast_to(dtype.type(parts[0][0]), sum(map(len, parts)))
    if len(parts) == 1:
        return parts[0].astype(dtype, copy=parts[0].base is not None)
    return np.concatenate([np.empty(0, dtype), *parts], dtype=dtype)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
