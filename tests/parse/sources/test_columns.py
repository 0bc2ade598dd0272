"""nsys exports read by whole columns: the same answer as row by row, for sound files and for odd ones."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyprof.errors import PyprofError
from pyprof.loading.load import load_capture, open_trace
from pyprof.model.markers import split_ids
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.sources import emit_texts, sqlite
from pyprof.parse.sources.sqlite_pages.reader import OddFile, PackedTexts
from tests.given import slow
from tests.tiny import Nsys

pytest.importorskip("pyarrow", reason="splitting texts by columns needs pyarrow")


def refuse(*_: object) -> None:
    raise OddFile("refused by a test")


def all_ways(path: Path) -> list[tuple[list[str], list[str]]]:
    """Lines (or the error) and notes: row by row, by the file's pages, and by pages with texts split by columns."""
    found = []
    for pages, many in ((False, 1 << 60), (True, 1 << 60), (True, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(emit_texts, "_MANY_TEXTS", many)
            if not pages:
                patch.setattr(sqlite, "PageReader", refuse)
            try:
                records = load_capture(path)
                found.append((list(lines(records)), records.notes))
            except PyprofError as error:
                found.append(([str(error)], []))
    return found


NSYS = [
    *slow("h100_2gpu_train.nsys2026.2.sqlite"), "a100_gpt2.7b.nsys2024.6.sqlite", "cpu_emit_nvtx_torch2.13.nsys2023.4.sqlite",
]  # fmt: skip


@pytest.mark.parametrize("name", NSYS)
def test_real_captures_read_the_same(captures: Path, name: str) -> None:
    rows, pages, many = all_ways(captures / "nsys" / name)
    assert rows == pages == many and len(rows[0]) > 10


def a_capture() -> Nsys:
    n = Nsys()
    for i in range(40):
        n.range(
            f"aten::mm, seq = {i}, op_id = {i}, sizes = [[4, {i % 3}], [{i % 3}, 8]], input_op_ids = [(0,-1)]",
            100 * i,
            100 * i + 90,
        )
        n.range("registered", 100 * i + 1, 100 * i + 80, registered=True, domain=i % 3)
        n.kernel("k", 100 * i + 5, 100 * i + 200, 100 * i + 210)
    n.range("mine", 0, 5000, event=75, domain=1)
    n.range("started", 3, 4000, event=60)
    n.range("", 4, 3900)
    n.range("torch::autograd::AccumulateGrad, seq = 18446744073709551615, op_id = 7", 5000, 5050)
    return n


ODD = [
    "SELECT 1",
    "UPDATE NVTX_EVENTS SET start = 'soon' WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET start = 7.5 WHERE rowid = {}",
    "UPDATE OR IGNORE NVTX_EVENTS SET start = NULL WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET end = 'never' WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET globalTid = NULL WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET globalTid = x'0102' WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET text = x'ff41' WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET text = CAST(x'ff41' AS TEXT) WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET text = 0, textId = 3 WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET textId = 'x', text = NULL WHERE rowid = {}",
    "UPDATE NVTX_EVENTS SET textId = 99 WHERE text IS NULL",
    "UPDATE NVTX_EVENTS SET domainId = 'd' WHERE rowid = {}",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'wide', registersPerThread = 1.5, demangledName = x'00' WHERE rowid = {}",
    "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = NULL, globalPid = 9223372036854775807 WHERE rowid = {}",
    "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = 'main', correlationId = 1e30 WHERE rowid = {}",
    "UPDATE StringIds SET value = x'fffe' WHERE id = 1",
    "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "ALTER TABLE NVTX_EVENTS DROP COLUMN textId",
    "ALTER TABLE NVTX_EVENTS RENAME COLUMN text TO words",
]  # fmt: skip


@pytest.mark.parametrize("sql", ODD)
@pytest.mark.parametrize("typed", [True, False], ids=["declared", "undeclared"])
def test_odd_files_read_the_same(tmp_path: Path, sql: str, typed: bool) -> None:
    row = 1 if typed else 37
    path = a_capture().write(tmp_path / "odd.sqlite", shuffle=row)
    with closing(sqlite3.connect(path)) as db:
        if not typed:
            db.executescript("CREATE TABLE n AS SELECT * FROM NVTX_EVENTS; DROP TABLE NVTX_EVENTS;"
                             "CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid, textId, domainId);"
                             "INSERT INTO NVTX_EVENTS SELECT * FROM n; DROP TABLE n")  # fmt: skip
        db.execute(sql.format(row))
        db.commit()
    rows, pages, many = all_ways(path)
    assert rows == pages == many and rows[0]


@pytest.mark.parametrize("many", [0, 1 << 60])
def test_sound_files_are_really_read_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(emit_texts, "_MANY_TEXTS", many)
    monkeypatch.setattr(sqlite.Database, "_row_reader", None)  # any use of it fails
    assert len(open_trace(a_capture().write(tmp_path / "n.sqlite")).ranges["start_ns"]) == 83


PIECES = st.sampled_from([
    "aten::mm", "f<int, seq = 3>", ", seq = 12", ", seq = -1", ", seq = 18446744073709551615", ", op_id = 4", ", op_id = 5",
    ", op_id = ٣", ", op_id = ", ", op_id = 4611686018427387904", ", sizes = [[4, 2], []]", ", sizes = [", ", sizes = []",
    ", input_op_ids = [(1,-1)]", ", input_op_ids = []", ", input_op_ids = x", "", " ", "\n", "é", "]", "{", "=", "0", "7",
    ", input_op_ids = [", ", op_id = 0", ", op_id = 123456789", ", seq = 9007199254740993", ", seq = 000", ", sizes = [[4], 2",
    ", seq = 18446744073709551615, op_id = 8", "x_op_ids = [", ", seq  = 3", ", op_id = 99999999999999999",
    ", seq = 1234567", ", op_id = 12345678", ", seq = 123456789012345", ", op_id = 1234567890123456", ", seq = 12345678x",
])  # fmt: skip


def as_texts(texts: list[str]) -> PackedTexts:
    """Texts in bytes, in reversed order and with others between them."""
    raw, begin = b"?", []
    for text in reversed(texts):
        begin.append(len(raw))
        raw += text.encode() + b", seq = 1"
    sizes = [len(text.encode()) for text in texts]
    return PackedTexts(np.frombuffer(raw, np.uint8), np.array(begin[::-1], np.int64), np.array(sizes, np.int64))


@given(st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=12), st.randoms())
@example(["a, op_id = 4, sizes = [, input_op_ids = [(1,-1)]", "a, op_id = 4, sizes = [, input_op_ids = []"], random.Random(0))
@example(["mm, seq = 000, seq = 18446744073709551615, op_id = 8", "mm, seq = 0, op_id = 12, op_id = 007"], random.Random(0))
@example(["AddmmBackward, seq = 7", "AddmmBackward, seq = 8, sizes = [[4, 2]]", "AddmmBackward, op_id = 8"], random.Random(0))
def test_texts_say_by_columns_what_they_say_alone(texts: list[str], order: random.Random) -> None:
    from pyprof.parse.sources.emit_texts import EmitTexts

    known: dict[tuple[str, bool, bool], int] = {}

    def decode(text: str) -> tuple[int, int, int]:
        bare, seq, op_id, keyed = split_ids(text)
        return known.setdefault((bare, keyed, seq >= 0), len(known)), seq, op_id

    reader = EmitTexts(decode)
    for batch in (texts, order.sample(texts, len(texts))):
        expected = np.array([decode(text) for text in batch], np.int64).reshape(-1, 3).T
        assert (np.stack(reader.codes(as_texts(batch))) == expected).all()


def test_texts_of_old_versions_are_read_once_for_many_calls() -> None:
    """They have a sequence number and no op_id."""
    from pyprof.parse.sources.emit_texts import EmitTexts

    asked: list[str] = []

    def decode(text: str) -> tuple[int, int, int]:
        asked.append(text)
        return len(asked), *split_ids(text)[1:3]

    texts = [f"MulBackward0, seq = {number}{sizes}" for number in range(50) for sizes in ("", ", sizes = [[3], []]")]
    label, seq, op_id = EmitTexts(decode).codes(as_texts(texts))
    assert len(asked) == 2
    assert (label.tolist(), seq.tolist(), set(op_id)) == ([1, 2] * 50, [n for n in range(50) for _ in range(2)], {-1})
