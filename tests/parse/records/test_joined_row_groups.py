"""Files of one row group each are joined to the file that one writer would have written."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.arrays.processes import several
from pyprof.cli import main
from pyprof.loading import load_capture
from pyprof.parse.records import parquet
from pyprof.parse.records.parquet.compact import Reader, field, written
from tests.conftest import ROOT

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
pq = importlib.import_module("pyarrow.parquet")
footer = importlib.import_module("pyprof.parse.records.parquet.footer")
writer = importlib.import_module("pyprof.parse.records.parquet.writer")

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.dictionary(pa.int32(), pa.string())), ("many", pa.list_(pa.int32()))])


def table(begin: int, rows: int) -> Any:
    """Rows with nulls, repeated texts and lists."""
    numbers = range(begin, begin + rows)
    columns = [
        pa.array([None if n % 7 == 3 else n for n in numbers], pa.int64()),
        pa.array([f"text {n % 5}" for n in numbers]).dictionary_encode(),
        pa.array([[n] * (n % 3) for n in numbers], pa.list_(pa.int32())),
    ]
    return pa.table(columns, schema=SCHEMA)


def file_of(tables: list[Any], schema: Any = SCHEMA, **options: object) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, **options) as stream:
        for one in tables:
            stream.write_table(one)
    return sink.getvalue()


def joined(empty: bytes, files: list[bytes]) -> bytes:
    sink = io.BytesIO()
    footer.join(sink, np.frombuffer(empty, np.uint8), [np.frombuffer(file, np.uint8) for file in files])
    return sink.getvalue()


@pytest.mark.parametrize(
    "options", [{}, {"compression": "zstd", "write_page_checksum": True, "write_statistics": ["n"]}, {"use_dictionary": False}]
)
@pytest.mark.parametrize("groups", [0, 1, 3, 40])
def test_the_bytes_are_those_of_one_writer(options: dict[str, Any], groups: int) -> None:
    tables = [table(begin, 50 + begin % 3) for begin in range(0, 100 * groups, 100)]
    schema = SCHEMA.with_metadata({"of": "the whole"})
    found = joined(file_of([], schema, **options), [file_of([one], **options) for one in tables])
    assert found == file_of(tables, schema, **options)
    if groups:
        assert pq.read_table(io.BytesIO(found)).equals(pa.concat_tables(tables))


def test_indexes_of_pages_move_with_their_row_group() -> None:
    tables = [table(begin, 100) for begin in (0, 100, 200)]
    found = joined(file_of([], write_page_index=True), [file_of([one], write_page_index=True) for one in tables])
    metadata = pq.read_metadata(io.BytesIO(found))
    assert metadata.row_group(2).column(0).has_offset_index and metadata.row_group(2).column(0).has_column_index
    assert pq.read_table(io.BytesIO(found)).equals(pa.concat_tables(tables))
    raw = footer._footer(np.frombuffer(found, np.uint8))[0]
    last = field(field(raw, 4)[2][1][2], 1)[2][1][0]  # the first column of the last row group
    assert all(0 < field(last, number)[2] < len(found) for number in (4, 6))


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=300), st.integers(0, 40), st.integers(1, 1000))
def test_what_is_read_is_written_again(number: int, text: bytes, items: int, place: int) -> None:
    inner = [[1, 1, None], [2, 2, None], [20, 6, number], [20 + place, 8, text]]
    struct = [
        [1, 5, -1], [3, 4, 3], [4, 7, b"12345678"], [5, 3, b"\x07"], [6, 9, [12, [inner] * items]],
        [7, 10, [1, [b"\x01", b"\x02"]]], [7 + place, 12, []],
    ]  # fmt: skip
    raw = written(struct)
    assert Reader(raw).struct() == struct
    assert written(Reader(raw).struct()) == raw


@pytest.mark.parametrize(("raw", "error"), [(b"", IndexError), (b"\x18\x05abc", IndexError), (b"\x1b\x00", ValueError)])
def test_what_is_no_footer_is_refused(raw: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        Reader(raw).struct()


@pytest.mark.parametrize("rows", [3, 100])
def test_any_number_of_processes_writes_the_same_bytes(
    captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    records = load_capture(captures / "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite")
    monkeypatch.setattr(writer, "_ROWS", rows)
    found = []
    for jobs in (1, 2, 5):
        path = tmp_path / f"{jobs}.parquet"
        with several(jobs):
            parquet.write(records, path)
        found.append(path.read_bytes())
    assert found[0] == found[1] == found[2]
    assert pq.read_metadata(tmp_path / "2.parquet").num_row_groups == -(-len(records) // rows)


def test_what_a_row_group_raises_is_raised(captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = load_capture(captures / "nsys/cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite")
    monkeypatch.setattr(writer, "_ROWS", 10)

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer._Tables, "columns", no_room)
    with several(2), pytest.raises(OSError, match="No space"):
        parquet.write(records, tmp_path / "net.parquet")


def test_two_columns_of_one_name_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.parquet"
    parquet.write(load_capture(ROOT / "tests/data/nsys_ops.sqlite"), file)
    whole = pq.read_table(file)
    pq.write_table(whole.append_column(whole.schema.field("rank"), whole.column("rank")), file)
    assert main(["prof", str(file), "--csv"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "rank" in lines[0] and lines[0].startswith("pyprof: error: ") and lines[1].startswith("hint: ")
