"""Records <-> a Parquet file: one row a record, texts as dictionary columns, all kinds of rows.

The columns are those of `records.COLUMNS`; names, calls, stacks and devices stand as texts of which each distinct one is stored
once, sequence numbers as a list. What is unknown is null. Notes, counts and the version of the schema are the file's metadata.
A column is read from the file when it is first asked for. pyarrow is needed (the extra `parquet`). No net.dict here.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError, ToolError
from pyprof.opcall import OpCall, sound_text
from pyprof.parse.records.calltext import call_text, parse_call_text
from pyprof.parse.records.records import COLUMNS, DIRECTIONS, PHASES, Records
from pyprof.parse.records.stored_facts import KEY, StoredFacts, check_types, read_facts, stored_gpu, stored_stack
from pyprof.parse.sources.trace import ActivityKind, Strings

__all__ = ["MAGIC", "is_parquet", "need_pyarrow", "read", "write"]

MAGIC = b"PAR1"
_ROWS = 1 << 18  # of a row group: what is in memory at once while writing
_SPELLED = {"kind": ActivityKind.NAMES, "dir": DIRECTIONS, "phase": PHASES}
_CODED = {
    "name": "strings",
    "stack": "stacks",
    "scope": "stacks",
    "call": "calls",
    "inner": "calls",
    "own": "calls",
    "gpu": "gpus",
}
_NUMBERS = "seq_numbers"
_TEXTS = "dictionary<values=string, indices=int32, ordered=0>"
_DAMAGED = "the file is damaged: copy it or parse the capture again"
# Columns that grow steadily: their differences are small.
_STEADY = ("start_ns", "launch_ns", "corr", "instance", "fwd_instance", "seq")


Array = npt.NDArray[Any]


def is_parquet(path: Path) -> bool:
    """Whether a file begins as every Parquet file does."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def need_pyarrow() -> Any:
    """The package; raises ToolError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ToolError("Parquet needs pyarrow, which is not there", "pip install 'pyprof[parquet]', or use .dict") from error
    return pyarrow


# ---------------------------------------------------------------------------------------------- writing


def _texts(records: Records, pool: str) -> list[str]:
    """The texts of a pool, by code."""
    if pool == "strings":
        return [sound_text(text) for text in records.strings.values]
    if pool == "calls":
        return [call_text(call) for call in records.calls]
    items: list[Any] = records.stacks if pool == "stacks" else records.gpus
    names = [field.name for field in fields(items[0])] if items else []
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return [sound_text(encode({name: getattr(item, name) for name in names})) for item in items]


def _shared(texts: list[str]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Distinct texts and, for each code (and for -1 at the end), which of them it is."""
    code_of: dict[str, int] = {}
    codes = [code_of.setdefault(text, len(code_of)) for text in texts]
    return list(code_of), np.array([*codes, 0], np.int32)


class _Writer:
    """Arrow tables of some rows after others."""

    def __init__(self, records: Records) -> None:
        self.pa = need_pyarrow()
        from pyprof.arrays.arrow import to_arrow, to_arrow_texts

        self.to_arrow, self.to_texts = to_arrow, to_arrow_texts
        self.records = records
        self.pools: dict[str, tuple[Any, npt.NDArray[np.int32]]] = {}
        for pool in dict.fromkeys(_CODED.values()):
            texts, codes = _shared(_texts(records, pool))
            self.pools[pool] = self.to_texts(texts), codes
        self.spelled = {name: self.to_texts(texts) for name, texts in _SPELLED.items()}

    def table(self, begin: int, end: int) -> Any:
        pa, records, to_arrow = self.pa, self.records, self.to_arrow
        arrays = {}
        for name in COLUMNS:
            values = records[name][begin:end]
            unknown = values == -1
            if name in _CODED:
                texts, codes = self.pools[_CODED[name]]
                arrays[name] = pa.DictionaryArray.from_arrays(to_arrow(codes[values], unknown), texts)
            elif name in self.spelled:
                arrays[name] = pa.DictionaryArray.from_arrays(to_arrow(values.astype(np.int32), unknown), self.spelled[name])
            else:
                arrays[name] = to_arrow(values, unknown)
        offsets = records.seq_offsets[begin : end + 1]
        numbers = records.seq_numbers[offsets[0] : offsets[-1]]
        arrays[_NUMBERS] = pa.LargeListArray.from_arrays(to_arrow(offsets - offsets[0]), to_arrow(numbers))
        table = pa.table(arrays)
        facts = StoredFacts(records.source, records.counts, records.notes, records.utc_ns)
        return table.replace_schema_metadata({KEY: facts.text()})


def write(records: Records, path: Path | BinaryIO) -> None:
    """Write all records to a file; raises OSError where that cannot be, ToolError where pyarrow is not there."""
    writer = _Writer(records)
    first = writer.table(0, min(_ROWS, len(records)))
    plain = [n for n in COLUMNS if n not in _CODED and n not in _SPELLED and n not in _STEADY]
    options = {
        "compression": "zstd",
        "write_page_checksum": True,
        "use_dictionary": [*_CODED, *_SPELLED, *plain],
        "dictionary_pagesize_limit": 1 << 26,
        "column_encoding": dict.fromkeys(_STEADY, "DELTA_BINARY_PACKED"),
        "write_statistics": ["start_ns", "rank", "pid", "step", "kind"],
    }
    with writer.pa.parquet.ParquetWriter(path, first.schema, **options) as stream:
        stream.write_table(first)
        for begin in range(_ROWS, len(records), _ROWS):
            stream.write_table(writer.table(begin, min(begin + _ROWS, len(records))))


# ---------------------------------------------------------------------------------------------- reading


def read(path: Path) -> Records:
    """The records of a file that `write` wrote; columns come from the file when they are asked for.

    Raises NotACapture for a Parquet file of another's, InputError for one of another version or a damaged one.
    """
    return _Stored(_Store(path))


@lru_cache(maxsize=1 << 14)  # files of one job's ranks hold the same texts
def _text_value(pool: str, text: str) -> Any:
    if pool == "calls":
        return parse_call_text(text)
    return stored_stack(json.loads(text)) if pool == "stacks" else stored_gpu(json.loads(text))


def _arrow_types() -> dict[str, str]:
    """What `write` makes of each column, as `_type_name` says it."""
    return {**dict.fromkeys(COLUMNS, "int"), **dict.fromkeys((*_CODED, *_SPELLED), _TEXTS), _NUMBERS: "large_list<int64>"}


def _type_name(kind: Any) -> str:
    text = str(kind)
    if text in ("int8", "int16", "int32", "int64"):
        return "int"
    return f"large_list<{kind.value_type}>" if text.startswith("large_list<") else text  # whatever its elements are called


class _Store:
    """One open file: whole columns, and pools that grow with the texts that they meet."""

    def __init__(self, path: Path) -> None:
        self.path, self.pa = path, need_pyarrow()
        try:
            self.file = self.pa.parquet.ParquetFile(path, page_checksum_verification=True)
            schema = self.file.schema_arrow
            types = {field.name: _type_name(field.type) for field in schema}
        except (self.pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read: {_first_line(error)}", "copy it or parse the capture again") from error
        self.facts = read_facts(path, schema.metadata)
        check_types(path, _arrow_types(), types)
        self.rows: int = self.file.metadata.num_rows
        self.strings = Strings()
        self.pools: dict[str, list[Any]] = {"stacks": [], "calls": [], "gpus": []}
        self.codes: dict[str, dict[str, int]] = {name: {} for name in self.pools}
        self.columns: dict[str, Array] = {}

    def column(self, name: str, rows: Array | None = None) -> Array:
        """A column, or these rows of it, of which the whole is then not kept."""
        whole = self.columns.get(name)
        if whole is None:
            whole = self._read(name)
            if rows is None:
                self.columns[name] = whole
        return whole if rows is None else whole[rows]

    def _chunks(self, name: str) -> list[Any]:
        try:
            chunks: list[Any] = self.file.read([name]).column(0).chunks
        except (self.pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path}: cannot be read: {_first_line(error)}", _DAMAGED) from error
        if (found := sum(map(len, chunks))) != self.rows:  # a damaged page can be passed over without a word
            raise InputError(f"{self.path}: its column {name!r} has {found} rows of {self.rows}", _DAMAGED)
        return chunks

    def _read(self, name: str) -> Array:
        from pyprof.arrays.arrow import to_numpy

        dtype = COLUMNS[name][0]
        parts = [np.empty(0, dtype)]
        for chunk in self._chunks(name):
            if name in _CODED or name in _SPELLED:
                try:
                    codes = [self._code(name, text) for text in chunk.dictionary.to_pylist()]
                except (ValueError, TypeError, AttributeError, RecursionError) as error:
                    raise InputError(f"{self.path}: a text of its column {name!r} cannot be read", _DAMAGED) from error
                which = to_numpy(chunk.indices, len(codes))
                if which.min(initial=0) < 0 or which.max(initial=0) > len(codes):
                    raise InputError(f"{self.path}: its column {name!r} names texts that are not there", _DAMAGED)
                parts.append(np.array([*codes, -1], dtype)[which])
            else:
                values = to_numpy(chunk, -1)
                parts.append(values.astype(dtype, copy=False))
                if not np.can_cast(values.dtype, dtype) and (parts[-1] != values).any():
                    raise InputError(f"{self.path}: its column {name!r} holds what is too large for it", _DAMAGED)
        return np.concatenate(parts)

    def _code(self, name: str, text: str) -> int:
        if name in _SPELLED:
            return _SPELLED[name].index(text)
        pool = _CODED[name]
        if pool == "strings":
            return self.strings.code(text)
        code = self.codes[pool].get(text)
        if code is None:
            code = self.codes[pool][text] = len(self.pools[pool])
            self.pools[pool].append(_text_value(pool, text))
        return code

    def pool(self, name: str) -> Any:
        """A pool with every text that the file has of it."""
        for column, pool in _CODED.items():
            if pool == name:
                self.column(column)
        return self.strings if name == "strings" else self.pools[name]

    def sequences(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        from pyprof.arrays.arrow import to_numpy

        chunks = self._chunks(_NUMBERS)
        lengths = [np.diff(to_numpy(chunk.offsets)) for chunk in chunks]
        numbers = [to_numpy(chunk.flatten()) for chunk in chunks]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate([np.empty(0, np.int64), *lengths]))])
        return offsets.astype(np.int64), np.concatenate([np.empty(0, np.int64), *numbers])


class _Columns(dict[str, Array]):
    """Columns that come from the file when first asked for."""

    def __init__(self, store: _Store, rows: Array | None) -> None:
        super().__init__()
        self.store, self.rows = store, rows

    def __missing__(self, name: str) -> Array:
        self[name] = found = self.store.column(name, self.rows)
        return found

    def loaded(self) -> dict[str, Array]:
        """Those that came from the file so far."""
        return dict(super().items())

    def items(self) -> Any:
        for name in COLUMNS:
            _ = self[name]
        return super().items()


class _Stored(Records):
    """Records whose parts come from a file when first asked for."""

    def __init__(self, store: _Store, rows: Array | None = None) -> None:
        facts = store.facts
        self._store, self._rows = store, rows
        self.columns: _Columns = _Columns(store, rows)
        self._changed: dict[str, Array] = {}  # what `with_ops` put in place of the file's
        self._changed_calls: list[OpCall] | None = None
        self.source, self.counts, self.notes = facts.source, dict(facts.counts), list(facts.notes)
        self.utc_ns = facts.utc_ns

    def __getattr__(self, name: str) -> Any:
        if name in ("strings", "stacks", "calls", "gpus"):
            value = self._store.pool(name)
        elif name in ("seq_offsets", "seq_numbers"):
            offsets, numbers = self._store.sequences()
            if self._rows is not None:
                whole = Records({}, seq_offsets=offsets, seq_numbers=numbers).select(self._rows)
                offsets, numbers = whole.seq_offsets, whole.seq_numbers
            self.seq_offsets, self.seq_numbers = offsets, numbers
            return offsets if name == "seq_offsets" else numbers
        else:
            raise AttributeError(name)
        setattr(self, name, value)
        return value

    def select(self, rows: Array) -> Records:
        positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        if rows.dtype == np.bool_ and len(positions) == len(rows):
            return self
        selected = _Stored(self._store, positions if self._rows is None else self._rows[positions])
        selected._put({name: values[positions] for name, values in self._changed.items()}, self._changed_calls)
        return selected

    def with_ops(self, columns: dict[str, Array], calls: list[OpCall]) -> Records:
        changed = _Stored(self._store, self._rows)
        changed.columns.update(self.columns.loaded())
        changed._put(self._changed | columns, calls)
        return changed

    def _put(self, columns: dict[str, Array], calls: list[OpCall] | None) -> None:
        self._changed, self._changed_calls = columns, calls
        self.columns.update(columns)
        if calls is not None:
            self.calls = calls


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
