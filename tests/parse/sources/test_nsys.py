"""nsys exports of odd and old shapes."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.errors import EmptyCapture, InputError
from pyprof.loading.load import open_trace
from pyprof.parse.attribution.ranges import leaked
from tests import tiny
from tests.tiny import Nsys

PID = (1 << 48) | (7 << 24)


def _database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


def test_the_oldest_columns_are_enough(tmp_path: Path) -> None:
    path = _database(
        tmp_path / "old.sqlite",
        "CREATE TABLE StringIds (id INTEGER, value TEXT)",
        "INSERT INTO StringIds VALUES (1, 'k'), (2, 'cudaLaunchKernel')",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, shortName INTEGER)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 200, 0, 7, 5, 1)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, {PID + 7}, 5, 2)",
    )
    trace = open_trace(path)
    assert trace.strings[int(trace.activities["name"][0])] == "k"
    # No process on the kernel: the only one that the file knows.
    assert trace.activities["process"].tolist() == [0] and trace.processes["pid"].tolist() == [7]
    assert trace.activities["grid_x"].tolist() == [-1] and trace.session_end_ns == -1


def test_text_where_numbers_should_be_and_nulls(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1", 10, 50)
    n.kernel("k", 20, 100, 200)
    path = n.write(tmp_path / "odd.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 'seven', gridX = NULL, registersPerThread = 3.7, blockX = x'00'"
        )
        db.execute("INSERT INTO NVTX_EVENTS VALUES ('soon', 5, 59, 'a text for a time', NULL, NULL, 0)")
        db.execute(f"INSERT INTO NVTX_EVENTS VALUES (5, 'never', 59, CAST(x'ff61' AS TEXT), {PID + 7}, NULL, 0)")
        db.commit()
    trace = open_trace(path)
    values = {name: trace.activities[name].tolist() for name in ("stream", "grid_x", "regs", "block_x", "start_ns")}
    assert values == {"stream": [-1], "grid_x": [-1], "regs": [3], "block_x": [-1], "start_ns": [100]}
    assert len(trace.ranges["start_ns"]) == 2 and trace.ranges["open"].tolist() == [0, 1]
    assert trace.markers[trace.ranges["label"][1]].text == "\ufffda"


@pytest.mark.parametrize("mapped", [True, False])
def test_devices_by_cuda_ordinal_and_by_process(tmp_path: Path, mapped: bool) -> None:
    n = Nsys()
    n.kernel("k", 20, 100, 200, device=0)
    n.rows["TARGET_INFO_GPU"] += [(0, "NVIDIA A100-SXM4-40GB", 1, 108, 8, 0), (3, "Tesla T4", 0, 40, 7, 5)]
    path = n.write(tmp_path / "d.sqlite")
    if mapped:
        _database(
            path,
            "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER)",
            "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 7), (3, 0, 99)",
        )
    devices = open_trace(path).devices
    found = list(
        zip(
            devices["process"].tolist(),
            devices["device"].tolist(),
            devices["sms"].tolist(),
            devices["cc_minor"].tolist(),
            strict=True,
        )
    )
    assert found == ([(0, 0, 108, 0)] if mapped else [(-1, 1, 108, 0), (-1, 0, 40, 5)])


@pytest.mark.parametrize(
    ("kind", "memory", "name"),
    [
        (1, (0, 2), "Memcpy HtoD (Pageable -> Device)"),
        (2, (2, 1), "Memcpy DtoH (Device -> Pinned)"),
        (8, (2, 2), "Memcpy DtoD (Device -> Device)"),
        (1, (None, None), "Memcpy"),
        (1, (7, 2), "Memcpy"),
    ],
)
def test_copies_are_called_as_torch_calls_them(
    tmp_path: Path, kind: int, memory: tuple[int | None, int | None], name: str
) -> None:
    n = Nsys()
    n.copy(kind, 1, 10, 20, 4096, memory)
    trace = open_trace(n.write(tmp_path / "copies.sqlite"))
    assert [trace.strings.values[code] for code in trace.activities["name"].tolist()] == [name]
    shown = {column: trace.activities[column].tolist() for column in ("kind", "bytes", "copykind")}
    assert shown == {"kind": [2], "bytes": [4096], "copykind": [kind]}


def test_ranges_clipped_at_an_end_that_is_not_told(tmp_path: Path) -> None:
    n = Nsys()
    n.range("one", 10, 900)
    n.range("two", 20, 900)
    n.range("three", 30, 50)
    n.rows["ANALYSIS_DETAILS"].clear()
    trace = open_trace(n.write(tmp_path / "c.sqlite"))
    names = [trace.markers[label].name for label in trace.ranges["label"].tolist()]
    assert {name for name, flag in zip(names, leaked(trace).tolist(), strict=True) if flag} == {"one", "two"}


def test_nothing_in_it_names_what_nsys_said(tmp_path: Path) -> None:
    path = Nsys().write(tmp_path / "e.sqlite")
    _database(
        path,
        "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT)",
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 3, 'CUPTI failed to start'), (2, 1, 'hello')",
    )
    with pytest.raises(EmptyCapture, match="nsys reports: CUPTI failed to start") as caught:
        open_trace(path)
    assert "nsys profile -t cuda,nvtx" in caught.value.hint


def test_a_read_only_folder_is_enough(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    n = Nsys()
    n.kernel("k", 20, 100, 200)
    n.write(folder / "r.sqlite")
    folder.chmod(0o555)
    try:
        assert len(open_trace(folder / "r.sqlite").activities["kind"]) == 1
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize("missing", [1, 5000])
def test_a_file_cut_short_is_refused_even_where_what_is_read_is_there(tmp_path: Path, missing: int) -> None:
    n = Nsys()
    n.kernel("k", 20, 100, 200)
    path = n.write(tmp_path / "x.sqlite")
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(InputError, match="cut short"):
        open_trace(path)


def test_damage_in_the_middle_is_an_error_of_ours(tmp_path: Path) -> None:
    n = Nsys()
    for start in range(0, 40_000, 10):
        n.range(f"aten::mm, op_id = {start}", start, start + 9)
        n.kernel("k", start + 1, start, start + 5)
    path = n.write(tmp_path / "x.sqlite")
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3 : len(whole) // 3 + 20_000] = b"\xff" * 20_000
    path.write_bytes(bytes(whole))
    with pytest.raises(InputError, match="cannot be read"):
        open_trace(path)


KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def _two_kernels(path: Path) -> Path:
    n = Nsys()
    n.range("mine", 10, 900)
    n.kernel("k", 20, 100, 200)
    n.kernel("k", 30, 200, 260)
    return n.write(path)


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
def test_generated_columns_are_read_as_sqlite_computes_them(tmp_path: Path, kind: str) -> None:
    path = _database(
        _two_kernels(tmp_path / "g.sqlite"),
        f"ALTER TABLE {KERNEL} RENAME TO old",
        f"CREATE TABLE {KERNEL} (start INTEGER, length INTEGER, end INTEGER AS (start + length) {kind}, globalPid INTEGER, demangledName INTEGER)",
        f"INSERT INTO {KERNEL} (start, length, globalPid, demangledName) SELECT start, end - start, globalPid, demangledName FROM old",
        "DROP TABLE old",
    )
    activities = open_trace(path).activities
    assert (activities["end_ns"] - activities["start_ns"]).tolist() == [100, 60]


def test_a_view_in_place_of_a_table_is_read(tmp_path: Path) -> None:
    path = _database(
        _two_kernels(tmp_path / "v.sqlite"), f"ALTER TABLE {KERNEL} RENAME TO t", f"CREATE VIEW {KERNEL} AS SELECT * FROM t"
    )
    activities = open_trace(path).activities
    assert (activities["end_ns"] - activities["start_ns"]).tolist() == [100, 60]


def test_a_virtual_table_is_an_error(tmp_path: Path) -> None:
    path = _two_kernels(tmp_path / "r.sqlite")
    _database(path, f"DROP TABLE {KERNEL}", f"CREATE VIRTUAL TABLE {KERNEL} USING rtree(id, start, end)")
    with pytest.raises(InputError, match="is a virtual table") as caught:
        open_trace(path)
    assert "export it again" in caught.value.hint


@pytest.mark.parametrize("other", ["CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds", "NVTX_EVENTS"])
def test_a_table_whose_root_page_is_anothers_is_an_error(tmp_path: Path, other: str) -> None:
    path = _two_kernels(tmp_path / "w.sqlite")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")
        root = f"(SELECT rootpage FROM sqlite_master WHERE name = '{other}')"
        db.execute(f"UPDATE sqlite_master SET rootpage = {root} WHERE name = '{KERNEL}'")
        db.commit()
    with pytest.raises(InputError, match="same root page"):
        open_trace(path)


def test_a_table_whose_root_page_is_within_another_is_an_error(tmp_path: Path) -> None:
    n = Nsys()
    for start in range(0, 4000, 10):
        n.range(f"mine {start}", start, start + 9)
    n.kernel("k", 20, 100, 200)
    path = n.write(tmp_path / "w.sqlite")
    with closing(sqlite3.connect(path)) as db:
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'").fetchone()[0]
        raw = path.read_bytes()
        leaf = int.from_bytes(raw[(root - 1) * 4096 + 8 : (root - 1) * 4096 + 12], "big")  # its right-most child
        db.execute("PRAGMA writable_schema = ON")
        db.execute(f"UPDATE sqlite_master SET rootpage = {leaf} WHERE name = '{KERNEL}'")
        db.commit()
    with pytest.raises(InputError, match="share pages"):
        open_trace(path)


def test_a_capture_that_somebody_is_writing_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _two_kernels(tmp_path / "l.sqlite")
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, **options, timeout=0))
    with closing(real(path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="another program is writing") as caught:
            open_trace(path)
    assert "wait for it" in caught.value.hint and "damaged" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    ("change", "kernels", "note"),
    [
        ("UPDATE {} SET start = NULL WHERE rowid = 1", 2, "1 of the kernels, copies and fills"),
        ("UPDATE {} SET end = start - 1 WHERE rowid < 3", 1, "2 of the kernels, copies and fills"),
        ("UPDATE {} SET start = 0, end = 0 WHERE rowid = 1", 2, "1 of the kernels, copies and fills"),
        ("UPDATE {} SET start = 'soon' WHERE rowid = 1", 2, "1 of the kernels, copies and fills"),
        ("UPDATE {} SET start = -4, end = 9223372036854775807 WHERE rowid = 1", 2, "1 of the kernels, copies and fills"),
        ("ALTER TABLE {} RENAME COLUMN start TO Start", 3, None),
        ("ALTER TABLE {} RENAME TO Cupti_Activity_Kind_Kernel_V3", 3, None),
        ("ALTER TABLE {} DROP COLUMN gridX", 3, None),
        ("ALTER TABLE {} DROP COLUMN globalPid", 3, None),
        ("ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN end", 3, None),
        ("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = NULL WHERE rowid = 2", 3, "1 of the ranges, ops and calls"),
        ("UPDATE NVTX_EVENTS SET end = 1", 3, "1 of the ranges, ops and calls"),
        ("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME", 3, None),
    ],
)
def test_rows_without_a_time_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, kernels: int, note: str | None
) -> None:
    monkeypatch.setattr(tiny, "SCHEMA", {name: columns.replace(" NOT NULL", "") for name, columns in tiny.SCHEMA.items()})
    n = Nsys()
    n.range("aten::mm, op_id = 1", 10, 50)
    for at in range(3):
        n.kernel("k", 20 + at, 100 + 100 * at, 150 + 100 * at)
    trace = open_trace(_database(n.write(tmp_path / "t.sqlite"), change.format("CUPTI_ACTIVITY_KIND_KERNEL")))
    assert trace.activities["end_ns"].tolist() == [150, 250, 350][3 - kernels :]
    assert (len(trace.activities["kind"]), len(trace.notes)) == (kernels, int(note is not None))
    assert note is None or note in trace.notes[0]


@pytest.mark.parametrize("lost", ["start", "end"])
def test_kernels_without_a_column_of_times_are_an_error_that_names_it(tmp_path: Path, lost: str) -> None:
    n = Nsys()
    n.kernel("k", 20, 100, 200)
    path = _database(n.write(tmp_path / "t.sqlite"), f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {lost}")
    with pytest.raises(InputError, match=f"CUPTI_ACTIVITY_KIND_KERNEL has no column {lost}") as caught:
        open_trace(path)
    assert caught.value.hint


def test_one_of_two_gpus_is_named_with_a_note_where_their_order_is_unknown(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel("k", 20, 100, 200)
    n.rows["TARGET_INFO_GPU"] += [(1, "Tesla T4", None, 40, 7, 5), (0, "NVIDIA A10", None, 72, 8, 6)]
    trace = open_trace(n.write(tmp_path / "d.sqlite"))
    assert sorted(zip(trace.devices["device"].tolist(), trace.devices["sms"].tolist(), strict=True)) == [(0, 72), (1, 40)]
    assert trace.notes == [
        "which GPU ran is uncertain, since their order for CUDA was not recorded: one of NVIDIA A10, Tesla T4"
    ]
