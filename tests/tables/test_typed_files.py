"""A table as Parquet: the values that it has, the same bytes each time, and each distinct text stored once."""

import io
from pathlib import Path

import numpy as np
import pytest

from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, Values

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

_ROWS = 3_000


def _table(seed: int) -> Table:
    """Numbers under nulls are others with each seed: they mean nothing."""
    hidden, rows = np.random.default_rng(seed).integers(1, 1 << 40, _ROWS), np.arange(_ROWS)
    unknown = rows % 7 == 3
    pool = ["mm", "add", "mm", "lone \ud800"]
    columns: dict[str, Values] = {
        "often": Integers(np.where(unknown, hidden, rows % 5), unknown),
        "steady": Integers(np.where(unknown, hidden, 10_000 + 3 * rows), unknown),
        "fraction": Fractions(np.where(unknown, hidden / 3, rows / 8), unknown),
        "text": Texts(rows % 5 - 1, pool),
        "list": Texts(rows % 5 - 1, pool, lists=[[text, "é"] for text in pool]),
        "nothing": Integers(hidden, np.ones(_ROWS, np.bool_)),
        "sum": Integers(np.array([1 << 70] * _ROWS, np.object_), unknown),
    }
    return Table([Header(key, key, "") for key in columns], [*columns.values()])


def _stored(seed: int, path: Path) -> Path:
    from pyprof.tables.parquet import write

    stream = io.BytesIO()
    write(_table(seed), stream)
    path.write_bytes(stream.getvalue())
    return path


def test_values_are_those_of_the_table(tmp_path: Path) -> None:
    found = pq.read_table(_stored(1, tmp_path / "a.parquet")).to_pydict()
    rows = range(_ROWS)
    texts = [None, "mm", "add", "mm", "lone ?"]
    assert found["often"] == [None if row % 7 == 3 else row % 5 for row in rows]
    assert found["steady"] == [None if row % 7 == 3 else 10_000 + 3 * row for row in rows]
    assert found["fraction"] == [None if row % 7 == 3 else row / 8 for row in rows]
    assert found["text"] == [texts[row % 5] for row in rows]
    assert found["list"] == [None if row % 5 == 0 else [texts[row % 5], "é"] for row in rows]
    assert set(found["nothing"]) == {None}
    assert [None if value is None else int(value) for value in found["sum"]] == [
        None if row % 7 == 3 else 1 << 70 for row in rows
    ]


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (_stored(seed, tmp_path / f"{seed}.parquet").read_bytes() for seed in (1, 2))
    assert first == second


def test_texts_are_stored_once_and_steady_numbers_as_differences(tmp_path: Path) -> None:
    group = pq.ParquetFile(_stored(1, tmp_path / "a.parquet")).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    for path in ("text", "list.list.element", "often", "fraction"):
        assert "RLE_DICTIONARY" in columns[path].encodings
    assert "DELTA_BINARY_PACKED" in columns["steady"].encodings
    assert columns["steady"].statistics.min == 10_000
    assert columns["text"].statistics is None
