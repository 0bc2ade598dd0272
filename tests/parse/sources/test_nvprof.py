"""nvprof's file, written row by row: mangled names, ranges in two rows, the thread in a C union."""

import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.errors import EmptyCapture, NotACapture, PyprofError
from pyprof.loading.load import load_capture, load_counters, open_trace
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.records.netdict.write import lines
from tests import examples
from tests.tiny import rules

MAIN, ENGINE = 0xEADC3740, 0x1B000000
NAMES = {
    1: "mm, seq = 5",
    2: "MmBackward, seq = 5",
    3: "layer:fc",
    4: "_Z6kernelIfEvPT_i",
    5: "Tesla V100-SXM2-16GB",
    6: "mm, seq = 0",
}


def _signed(tid: int) -> int:
    return tid - (1 << 32) if tid >= 1 << 31 else tid


def _object(tid: int) -> bytes:
    return struct.pack("<II", 77, tid) + b"TIVI"  # the rest of the union is not initialised


def write(path: Path, kernel_table: str) -> Path:
    ranges = [
        (1, 10, 50, MAIN, 3),
        (2, 12, 48, MAIN, 1),
        (3, 60, 90, ENGINE, 2),
        (4, 62, 88, ENGINE, 6),
        (5, 95, None, MAIN, 3),
    ]
    kernels = [(100, 200, 1, 20, MAIN), (200, 300, 2, 70, ENGINE)]
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)")
        db.executemany("INSERT INTO StringTable VALUES (?, ?)", NAMES.items())
        db.execute(
            f"CREATE TABLE {kernel_table} (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, correlationId INTEGER, name INTEGER)"
        )
        for table, cbid, rows in (("RUNTIME", 211, kernels[:1]), ("DRIVER", 307, kernels[1:])):
            db.execute(
                f"CREATE TABLE CUPTI_ACTIVITY_KIND_{table} (cbid INTEGER, start INTEGER, end INTEGER, processId INTEGER, threadId INTEGER, correlationId INTEGER)"
            )
            db.executemany(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (?, ?, ?, 77, ?, ?)",
                [(cbid, at, at + 5, _signed(tid), corr) for _, _, corr, at, tid in rows],
            )
        for start, end, corr, _, _ in kernels:
            db.execute(
                f"INSERT INTO {kernel_table} VALUES (?, ?, 0, 7, 2, 1, 1, 128, 1, 1, 32, 1024, 512, ?, 4)", (start, end, corr)
            )
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER (flags INTEGER, timestamp INTEGER, id INTEGER, objectKind INTEGER, objectId BLOB, name INTEGER, domain INTEGER)"
        )
        for marker, start, end, tid, name in ranges:
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (2, ?, ?, 2, ?, ?, 0)", (start, marker, _object(tid), name)
            )
            if end is not None:
                db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (4, ?, ?, 2, ?, 0, 0)", (end, marker, _object(tid)))
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE (id INTEGER, name INTEGER, numMultiprocessors INTEGER, coreClockRate INTEGER, globalMemoryBandwidth INTEGER, computeCapabilityMajor INTEGER, computeCapabilityMinor INTEGER)"
        )
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE VALUES (0, 5, 80, 1530000, 898048000, 7, 0)")
        db.commit()
    return path


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL"])
def test_forward_and_backward(tmp_path: Path, table: str) -> None:
    trace = open_trace(write(tmp_path / "net.sql", table))
    first, second = (json.loads(line) for line in lines(attribute(trace, rules(["aten::mm"]))))
    assert (first["kShortName"], first["kLongName"]) == ("kernel", "void kernel<float>(float*, int)")
    assert (first["tid"], second["tid"], first["pid"]) == (MAIN, ENGINE, 77)
    assert (first["layer"], first["call"], first["seqId"], first["dir"]) == (["fc"], "aten::mm(...)", [5], "fprop")
    assert (second["call"], second["dir"], second["fwd_instance"], second["op"]) == (
        "aten::mm(...)",
        "bprop",
        first["instance"],
        ["Mm"],
    )
    assert second["opLayer"] == ["fc"] and second["seqMarker"] == ["mm, seq = 0", "MmBackward, seq = 5"]
    assert first["gpu"] == {
        "name": "Tesla V100-SXM2-16GB",
        "cc": "7.0",
        "sms": 80,
        "clock_hz": 1_530_000_000,
        "dram_bytes_per_s": 898_048_000_000,
    }
    assert first["smem"] == 1536
    names = {trace.strings[code] for code in trace.launches["name"].tolist()}
    assert names == {"cudaLaunchKernel", "cuLaunchKernel"}


def test_nothing_recorded(tmp_path: Path) -> None:
    path = tmp_path / "net.sql"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)")
        db.commit()
    with pytest.raises(EmptyCapture, match="nothing was captured"):
        open_trace(path)


CELLS = {
    "StringTable": "value",
    "CUPTI_ACTIVITY_KIND_MARKER": "flags timestamp id objectKind objectId name domain",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "cbid start end processId threadId correlationId",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId gridX blockX registersPerThread staticSharedMemory correlationId name",
    "CUPTI_ACTIVITY_KIND_DEVICE": "id name numMultiprocessors coreClockRate globalMemoryBandwidth computeCapabilityMajor",
}
ODD = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary(max_size=12), st.sampled_from(["", "abc", "12", "9" * 5000, 2**40])
)  # fmt: skip


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from([(table, column) for table, columns in CELLS.items() for column in columns.split()]), ODD, st.integers(1, 4)
)
def test_any_cell_may_hold_anything(tmp_path: Path, cell: tuple[str, str], value: object, row: int) -> None:
    path = tmp_path / "net.sql"
    path.unlink(missing_ok=True)
    write(path, "CUPTI_ACTIVITY_KIND_KERNEL")
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE {cell[0]} SET {cell[1]} = ? WHERE rowid = {row}", (value,))
        db.commit()
    try:
        timeless = cell[0].endswith("KERNEL") and cell[1] in ("start", "end")
        assert len(list(lines(load_capture(path)))) in ((1, 2) if timeless else (2,))
    except PyprofError as error:
        assert error.hint


def test_a_range_without_a_readable_time_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "net.sql", "CUPTI_ACTIVITY_KIND_KERNEL")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_MARKER SET timestamp = 'soon' WHERE id = 2")
        db.commit()
    trace = open_trace(path)
    assert (
        any("no time" in note and note.endswith(": 1 of the ranges, ops and calls") for note in trace.notes)
        and len(trace.ranges["start_ns"]) == 4
    )


def test_metrics_that_are_stored_by_number_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "net.sql", "CUPTI_ACTIVITY_KIND_KERNEL")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_METRIC (_id_ INTEGER PRIMARY KEY, id INT, value BLOB, correlationId INT)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_METRIC VALUES (1, 1193, x'00', 5), (2, 1194, x'00', 5)")
        db.commit()
    assert any(note.startswith("2 values of metrics and events are in the file by number") for note in open_trace(path).notes)
    with pytest.raises(NotACapture, match="2 values of metrics and events") as caught:
        load_counters(str(path))
    assert "nvprof -i FILE" in caught.value.hint
