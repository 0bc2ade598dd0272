"""`pyprof gaps` on captures whose truth is on the screen, against counting every nanosecond, and on real ones."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.arrays import spool
from pyprof.cli import main
from pyprof.errors import InputError, UsageError
from pyprof.loading import load_with_trace
from pyprof.parse.records.records import COLUMNS, Records
from pyprof.parse.sources.trace import ActivityKind, Strings
from pyprof.prof.frame import Frame
from pyprof.report.activities import Activities
from pyprof.report.calls import Calls
from pyprof.report.gapcolumns import Report
from pyprof.report.gaps import TABLES
from pyprof.report.idle import REASONS, find_gaps
from pyprof.tables.table import AnyTable, printed
from tests.tiny import Nsys, tid

GEMM, NCCL = "ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
PARTS = ["busy", "elsewhere", "copy", "kernel", "queued", "launch", "host", "sync", "unknown"]


def report_of(n: Nsys, path: Path) -> Report:
    records, trace = load_with_trace(str(n.write(path / "net.sqlite")))
    assert trace is not None
    return Report(Frame(records), trace)


def rows_of(table: AnyTable) -> list[dict[str, str]]:
    cells = [printed(header.shown(values)) for header, values in zip(table.headers, table.whole().values, strict=True)]
    return [dict(zip([header.key for header in table.headers], row, strict=True)) for row in zip(*cells, strict=True)]


def wait(n: Nsys, name: str, start: int, end: int, *, thread: int | None = None) -> None:
    n.corr += 1
    n.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((start, end, tid(7, thread), n.corr, n.string(name)))


def reasons(report: Report, stream: int = -1) -> list[tuple[str, int, int]]:
    """(reason, its time, elsewhere) of the gaps of one line, in order of time."""
    gaps = report.gaps
    rows = np.flatnonzero(report.lines.stream[gaps.line] == stream)
    rows = rows[np.argsort(gaps.start[rows])]
    return [(REASONS[gaps.reason[r]], int(gaps.own[r]), int(gaps.elsewhere[r])) for r in rows]


# ---------------------------------------------------------------------------------------------- hand-written


def test_each_reason_on_one_stream(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 100, 1_000, 11_000)
    n.kernel(GEMM, 200, 12_000, 20_000)  # queued: 1000 ns
    n.range("aten::mm, op_id = 1", 30_000, 43_000)
    n.kernel(GEMM, 40_000, 50_000, 60_000)  # host: the launch began 20 us after the device had run dry
    n.range('item(fp32[1]) #pyprof{"mod":"Tensor","src":"train.py:33"}', 44_000, 62_000)
    wait(n, "cudaStreamSynchronize_v3020", 45_000, 61_000)
    n.kernel(GEMM, 70_000, 90_000, 100_000)  # sync: 30 us
    n.kernel(GEMM, 99_996, 110_000, 120_000)  # launch: the call (5 ns) was running at 100000
    n.kernel(GEMM, 105_000, 150_000, 160_000)  # launched before, and nothing is seen that it waited for
    n.kernel(GEMM, None, 165_000, 170_000)
    report = report_of(n, tmp_path)
    truth = [("queued", 1_000), ("host", 30_000), ("sync", 30_000), ("launch", 10_000), ("unknown", 30_000), ("unknown", 5_000)]
    assert [(reason, time) for reason, time, _ in reasons(report)] == truth == [(r, t) for r, t, _ in reasons(report, 7)]
    whole, stream = rows_of(TABLES["streams"](report))
    assert (whole["stream"], stream["stream"]) == ("all", "7")
    assert [int(whole[key]) for key in ("span", *PARTS)] == [169_000, 63_000, 0, 0, 0, 1_000, 10_000, 30_000, 30_000, 35_000]
    host = next(row for row in rows_of(TABLES["ops"](report)) if row["reason"] == "host")
    assert (host["op"], host["gaps"], host["time"], host["call"]) == ("mm", "1", "30000", "-")
    sync = next(row for row in rows_of(TABLES["gaps"](report)) if row["reason"] == "sync")
    assert (sync["call"], sync["start"], sync["launch"]) == ("cudaStreamSynchronize_v3020", "60000", "70000")
    assert (sync["waitop"], sync["waitsrc"]) == ("item", "train.py:33") and (host["waitop"], host["waitsrc"]) == ("-", "-")


def test_waiting_for_a_copy_or_a_kernel_of_another_stream(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 100, 1_000, 10_000)
    n.kernel(GEMM, 300, 10_000, 50_000, stream=20)
    n.kernel(GEMM, 400, 52_000, 60_000)  # begins 2 us after the kernel on stream 20
    n.kernel(GEMM, 500, 90_000, 100_000)  # begins after nothing: 30 us idle
    n.kernel(GEMM, 150_000, 160_000, 170_000, stream=20)  # launched late, 50 us in which stream 7 did nothing either
    n.kernel(GEMM, 155_000, 200_000, 210_000)
    report = report_of(n, tmp_path)
    assert reasons(report, 7) == [("kernel", 42_000, 0), ("unknown", 30_000, 0), ("host", 90_000, 10_000)]
    assert reasons(report, 20) == [("host", 92_000, 18_000)]
    for row in rows_of(TABLES["streams"](report)):
        assert int(row["span"]) == sum(int(row[key]) for key in PARTS)


def test_a_copy_that_another_stream_waited_for(tmp_path: Path) -> None:
    records = records_from([Row(1_000, 9_000, 7, 0), Row(9_500, 30_500, 20, 0, ActivityKind.MEMCPY), Row(41_000, 9_000, 7, 0)])
    gaps = find_gaps(Activities(records), None)
    assert [REASONS[code] for code in gaps.reason] == ["queued", "copy"]
    assert (gaps.end - gaps.start).tolist() == [1_000, 31_000]


@pytest.mark.parametrize(("wait", "reason"), [(900_000, "host"), (1_100_000, "host"), (3_000_000, "unknown")])
def test_a_late_launch_explains_no_long_wait_of_the_device_after_it(wait: int, reason: str, tmp_path: Path) -> None:
    """Launched 2 ms after the device ran dry, begun so long after that: more than 1 ms, and most of the gap, or not."""
    n = Nsys()
    n.kernel(GEMM, 100, 1_000, 2_000)
    n.kernel(GEMM, 2_002_000, 2_002_000 + wait, 2_003_000 + wait)
    assert [one for one, _, _ in reasons(report_of(n, tmp_path))] == [reason]
    assert [one for one, _, _ in reasons(report_of(n, tmp_path), 7)] == ["host"]  # a stream may wait for another


@pytest.mark.parametrize(("idle", "reason"), [(5_000, "queued"), (5_001, "unknown")])
def test_what_a_device_takes_between_kernels_has_a_bound(idle: int, reason: str) -> None:
    gaps = find_gaps(Activities(records_from([Row(1_000, 9_000, 7, 0), Row(10_000 + idle, 1_000, 7, 0)])), None)
    assert {REASONS[code] for code in gaps.reason} == {reason}


@pytest.mark.parametrize(("later", "reason"), [(10_000, "kernel"), (10_001, "unknown")])
def test_what_follows_another_stream_has_a_bound(later: int, reason: str) -> None:
    rows = [Row(1_000, 9_000, 7, 0), Row(9_500, 30_500, 20, 0), Row(40_000 + later, 1_000, 7, 0)]
    gaps = find_gaps(Activities(records_from(rows)), None)
    assert [REASONS[code] for code in gaps.reason[gaps.end - gaps.start == 30_000 + later]] == [reason]


def test_autograds_thread_waits_for_the_main_one(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 100, 1_000, 10_000)
    wait(n, "cudaStreamSynchronize_v3020", 5_000, 11_000)  # loss.item() on the main thread
    n.kernel(GEMM, 20_000, 30_000, 40_000, thread=8)
    n.kernel(GEMM, 35_000, 50_000, 60_000, thread=8)
    wait(n, "cudaStreamSynchronize_v3020", 55_000, 61_000)
    n.kernel(GEMM, 59_000, 70_000, 80_000, thread=8)  # launched while the main thread waited: in time
    wait(n, "cudaDeviceSynchronize_v3020", 75_000, 85_000)
    n.api(77_000, 900, thread=8, name="cudaEventRecord_v3020")
    n.kernel(GEMM, 90_000, 95_000, 99_000, thread=8)  # this thread was at work while the main one waited
    assert [reason for reason, _, _ in reasons(report_of(n, tmp_path))] == ["sync", "unknown", "unknown", "host"]


def test_latency_and_kernels_shorter_than_their_launch(tmp_path: Path) -> None:
    n = Nsys()
    for number in range(100):
        at = 1_000 * number
        n.kernel(GEMM, at, at + 10 + number, at + 10 + number + (3 if number % 4 == 0 else 50))  # the call takes 5 ns
    whole, _ = rows_of(TABLES["latency"](report_of(n, tmp_path)))
    assert [whole[key] for key in ("launches", "least", "p50", "p90", "p99", "most", "took")] == ["100", "10", "59", "99", "108", "109", "5"]  # fmt: skip
    assert (whole["short"], whole["shorttime"]) == ("25", "75")


def test_what_hides_behind_compute(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 0, 1_000, 11_000)
    n.kernel(NCCL, 1, 6_000, 26_000, stream=20)
    n.kernel(GEMM, 2, 24_000, 30_000)
    n.kernel(GEMM, 3, 40_000, 41_000)
    (row,) = rows_of(TABLES["overlap"](report_of(n, tmp_path)))
    assert [int(row[key]) for key in ("span", "compute", "comm", "exposed", "idle")] == [40_000, 17_000, 20_000, 13_000, 10_000]
    assert row["hidden"] == "35.0"


def test_the_queue_over_time(tmp_path: Path) -> None:
    n = Nsys()
    for number in range(4):
        n.kernel(GEMM, number, 100 + 100 * number, 200 + 100 * number)
    report = report_of(n, tmp_path)
    report.bins = 4
    rows = rows_of(TABLES["queue"](report))
    assert [(row["start"], row["depth"], row["most"], row["busy"]) for row in rows] == [
        ("100", "4.00", "4", "100.0"), ("200", "3.00", "3", "100.0"), ("300", "2.00", "2", "100.0"), ("400", "1.00", "1", "100.0"),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- counting every nanosecond


class Row(NamedTuple):
    start: int
    dur: int
    stream: int
    launch: int
    kind: int = ActivityKind.KERNEL
    took: int = 5
    tid: int = 1
    device: int = 0


class Call(NamedTuple):
    start: int
    end: int
    tid: int
    waits: bool


def records_from(rows: list[Row]) -> Records:
    columns = {name: np.full(len(rows), -1, dtype) for name, (dtype, _) in COLUMNS.items()}
    for name, key in (("start_ns", "start"), ("dur_ns", "dur"), ("stream", "stream"), ("launch_ns", "launch"), ("kind", "kind"),
                      ("launch_dur_ns", "took"), ("tid", "tid"), ("device", "device")):  # fmt: skip
        columns[name][:] = [getattr(row, key) for row in rows]
    columns["pid"][:] = 7
    return Records(columns, seq_offsets=np.zeros(len(rows) + 1, np.int64))


def calls_from(calls: list[Call]) -> Calls:
    strings = Strings()
    names = [strings.code(f"call {i}") for i in range(len(calls))]
    pid = np.full(len(calls), 7)
    columns = [np.array([getattr(call, key) for call in calls], np.int64) for key in ("tid", "start", "end")]
    return Calls(
        pid, *columns, np.array(names, np.int64), np.array([call.waits for call in calls], np.bool_), columns[0], strings
    )


def reason_of(row: Row, dry: int, begin: int, calls: list[Call], device: list[Row]) -> str:
    if row.launch < 0:
        return "unknown"
    if row.launch > dry:
        waiting = [call for call in calls if call.waits and call.start <= dry <= call.end]
        if any(call.tid == row.tid for call in waiting):
            return "sync"
        if waiting:
            last = max(waiting, key=lambda call: call.end)
            at_work = any(call.tid == row.tid and last.start <= call.start <= last.end for call in calls)
            return "host" if at_work or last.end > row.launch else "sync"
        return "host"
    if row.launch + row.took > dry:
        return "launch"
    if begin - dry <= 5_000:
        return "queued"
    ended = [other for other in device if dry < other.start + other.dur <= begin]
    if ended:
        nearest = max(ended, key=lambda other: other.start + other.dur)
        if begin - nearest.start - nearest.dur <= 10_000:
            return "copy" if nearest.kind == ActivityKind.MEMCPY else "kernel"
    return "unknown"


# Times in units so large that both limits lie within a capture of 30 of them, and that each differs.
@st.composite
def captures_drawn(draw: st.DrawFn) -> tuple[list[Row], list[Call], int]:
    rows = []
    for number in range(draw(st.integers(1, 8))):
        start, dur = draw(st.integers(0, 24)), draw(st.integers(1, 6))
        launch = draw(st.integers(-1, start))
        kind = draw(st.sampled_from([ActivityKind.KERNEL, ActivityKind.MEMCPY]))
        rows.append(
            Row(start, dur, draw(st.integers(1, 3)), launch, kind, draw(st.integers(0, 6)), draw(st.integers(1, 2)), number % 2)
        )
    ends = draw(st.lists(st.integers(0, 30), max_size=5, unique=True))
    calls = [Call(draw(st.integers(0, end)), end, draw(st.integers(1, 2)), draw(st.booleans())) for end in ends]
    return rows, calls, draw(st.sampled_from([300, 900, 2_600]))


@settings(max_examples=200, deadline=None)
@given(captures_drawn())
def test_gaps_are_those_of_counting(drawn: tuple[list[Row], list[Call], int]) -> None:
    for rows_at_a_time in (spool.PIECE_ROWS, 3):
        with mock.patch.object(spool, "PIECE_ROWS", rows_at_a_time):
            check_against_counting(*drawn)


def check_against_counting(small: list[Row], few: list[Call], unit: int) -> None:
    # Begins that tie on one line leave open which comes next: one a nanosecond after another, far below a unit.
    rows = [row._replace(start=row.start * unit + i, dur=row.dur * unit, launch=row.launch * unit if row.launch >= 0 else -1,
                         took=row.took * unit) for i, row in enumerate(small)]  # fmt: skip
    calls = [call._replace(start=call.start * unit, end=call.end * unit) for call in few]
    activities = Activities(records_from(rows))
    gaps, lines = find_gaps(activities, calls_from(calls)), activities.lines
    for line in range(len(lines)):
        of = [row for row in rows if row.device == lines.device[line] and lines.stream[line] in (-1, row.stream)]
        mine = np.flatnonzero(gaps.line == line)
        found = sorted(
            zip(
                gaps.start[mine].tolist(),
                gaps.end[mine].tolist(),
                [REASONS[c] for c in gaps.reason[mine]],
                gaps.elsewhere[mine].tolist(),
                strict=True,
            )
        )
        assert found == counted(rows, calls, of)
        span = max(r.start + r.dur for r in of) - min(r.start for r in of)
        busy = sum(any(row.start <= t < row.start + row.dur for row in of) * (until - t) for t, until in pairwise(edges_of(of)))
        assert span == busy + (gaps.end - gaps.start)[mine].sum()
        if lines.whole[line]:
            assert activities.busy_ns(lambda part: np.ones(part.stop - part.start, np.bool_))[line] == busy


def edges_of(rows: list[Row]) -> list[int]:
    """The times at which anything changes."""
    return sorted({t for row in rows for t in (row.start, row.start + row.dur)})


def counted(rows: list[Row], calls: list[Call], of: list[Row]) -> list[tuple[int, int, str, int]]:
    """(start, end, reason, elsewhere) of every gap of a line, found by looking at each time at which anything changes."""
    edges = edges_of(rows)
    device = [row for row in rows if row.device == of[0].device]

    def busy(t: int, among: list[Row]) -> bool:
        return any(row.start <= t < row.start + row.dur for row in among)

    first, last = min(row.start for row in of), max(row.start + row.dur for row in of)
    found: list[tuple[int, int, str, int]] = []
    dry, worked = -1, 0
    for t, until in zip(edges, [*edges[1:], edges[-1]], strict=True):
        if not first <= t < last:
            continue
        if not busy(t, of):
            dry = t if dry < 0 else dry
            worked += (until - t) * busy(t, device)
        elif dry >= 0:
            reason = reason_of(next(row for row in of if row.start == t), dry, t, calls, device)
            found.append((dry, t, reason, worked if reason in ("host", "sync") else 0))
            dry, worked = -1, 0
    return found


# ---------------------------------------------------------------------------------------------- the command


def screen(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["gaps", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        "kineto/a100_train_stacks.json.gz", "kineto/h100_vit.json.gz", "kineto/multi_stream_sync.json.gz",
        "kineto/v100_dlrm_8ranks/worker0.pt.trace.json.gz", "nsys/h100_2gpu_train.nsys2026.2.sqlite", "nvprof/v100_lm/net.sql",
        "nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite",
    ],
)  # fmt: skip
def test_real_captures_add_up(captures: Path, name: str) -> None:
    records, trace = load_with_trace(str(captures / name))
    assert trace is not None
    report = Report(Frame(records), trace)
    rows = rows_of(TABLES["streams"](report))
    for row in rows:
        assert int(row["span"]) == sum(int(row[key]) for key in PARTS)
    for row in rows_of(TABLES["overlap"](report)):
        assert int(row["span"]) == sum(int(row[key]) for key in ("compute", "exposed", "copyexposed", "idle"))
    idle = sum(int(row["span"]) - int(row["busy"]) for row in rows if row["stream"] == "all")
    assert sum(int(row["time"]) for row in rows_of(TABLES["ops"](report))) == idle
    assert sum(int(row["idle"]) for row in rows_of(TABLES["gaps"](report))) == idle
    known = sum(int(row["span"]) - int(row["busy"]) - int(row["unknown"]) for row in rows if row["stream"] == "all")
    assert known >= 0.9 * idle


def test_a_peer_finds_the_same_idle_time_and_overlap(captures: Path) -> None:
    """What HolisticTraceAnalysis 0.5.0 prints for these files: idle_time(us) and comp_comm_overlap_pctg of each rank."""
    truth = [(6419, 4.50), (6428, 2.47), (7046, 7.88), (8145, 3.31), (8887, 0.56), (9121, 0.64), (7051, 7.56), (8308, 9.51)]
    for rank, (idle, overlap) in enumerate(truth):
        records, trace = load_with_trace(str(captures / f"kineto/v100_dlrm_8ranks/worker{rank}.pt.trace.json.gz"))
        (row,) = rows_of(TABLES["overlap"](Report(Frame(records), trace)))
        assert int(row["idle"]) == 1000 * idle and abs(float(row["hidden"]) - overlap) <= 0.06


def test_a_peer_finds_the_same_reasons_on_each_stream(captures: Path) -> None:
    """HolisticTraceAnalysis 0.5.0 on rank 0: host_wait, launched after the stream had run dry, and kernel_wait, before."""
    records, trace = load_with_trace(str(captures / "kineto/v100_dlrm_8ranks/worker0.pt.trace.json.gz"))
    rows = {row["stream"]: row for row in rows_of(TABLES["streams"](Report(Frame(records), trace)))}
    for stream, host_wait, kernel_wait in (("7", 11448, 123), ("22", 145, 0), ("24", 5906, 18), ("84", 4740, 3)):
        assert sum(int(rows[stream][key]) for key in ("elsewhere", "host", "sync")) == 1000 * host_wait
        assert sum(int(rows[stream][key]) for key in ("queued", "launch", "copy", "kernel", "unknown")) == 1000 * kernel_wait


def test_a_part_of_the_time_records_and_forms(captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = str(captures / "nsys/h100_2gpu_train.nsys2026.2.sqlite")
    whole = screen(capsys, capture)
    assert [line.split(" (")[0] for line in whole.splitlines() if line and line.split()[0] in TABLES] == list(TABLES)
    full = list(csv.DictReader(io.StringIO(screen(capsys, capture, "--table", "streams", "--csv"))))
    part = list(csv.DictReader(io.StringIO(screen(capsys, capture, "--table", "streams", "--csv", "--time", "100ms:150ms"))))
    assert len(part) == len(full) == 4 and all(40e6 < int(row["Span(ns)"]) < 60e6 for row in part)
    assert len(screen(capsys, capture, "--table", "gaps", "--top", "3").splitlines()) == 4
    assert main(["parse", "--kinds", "kernel,graph,memcpy,memset", capture, "-o", str(tmp_path / "net.dict")]) == 0
    capsys.readouterr()
    assert main(["gaps", str(tmp_path / "net.dict"), "--table", "streams", "--csv"]) == 0
    out = capsys.readouterr()
    again = list(csv.DictReader(io.StringIO(out.out)))
    assert "counts as host" in out.err and {row["Sync(ns)"] for row in again} == {"0"}
    for row, other in zip(full, again, strict=True):
        assert int(other["Host(ns)"]) == int(row["Host(ns)"]) + int(row["Sync(ns)"])
        assert [other[key] for key in ("Busy(ns)", "Queued(ns)", "Launch(ns)")] == [row[key] for key in ("Busy(ns)", "Queued(ns)", "Launch(ns)")]  # fmt: skip


def test_tables_in_every_format_with_chosen_rows_and_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    for at in range(4):
        n.kernel(GEMM, 100 * at, 20_000 * at, 20_000 * at + 1_000 * (at + 1))
    capture = str(n.write(tmp_path / "net.sqlite"))
    whole = json.loads(screen(capsys, capture, "--format", "json"))
    assert whole.pop("schema") == 1 and list(whole) == list(TABLES) and len(whole["gaps"]) == 3
    assert whole["gaps"][0]["src"] is None and whole["gaps"][0]["start"] == 1_000
    chosen = ("--table", "gaps", "-c", "start,idle", "--where", "idle<19us", "--sort", "idle")
    assert screen(capsys, capture, *chosen, "--format", "plain") == "Start(ns) Idle(ns)\n22000 18000\n43000 17000\n"
    screen(capsys, capture, *chosen, "-o", str(tmp_path / "gaps.csv"))
    assert (tmp_path / "gaps.csv").read_bytes() == b"Start(ns),Idle(ns)\r\n22000,18000\r\n43000,17000\r\n"
    assert "| Start(ns) | Idle(ns) |" in screen(capsys, capture, *chosen, "--format", "markdown")
    for wrong in (["--where", "idle>a"], ["-c", "nothing"], ["--sort", "nothing"], ["--top", "-1"]):
        assert main(["gaps", capture, "--table", "gaps", *wrong]) == 2
        assert "hint" in capsys.readouterr().err


def test_a_kernel_name_of_megabytes_does_not_pad_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    n.kernel("k" * 3_000_000, 10, 100, 200)
    n.kernel(GEMM, 20, 300, 400)
    n.kernel(GEMM, 30, 500, 600)
    assert len(screen(capsys, str(n.write(tmp_path / "net.sqlite")))) < 50_000


def test_what_cannot_be_done(tmp_path: Path, data: Path) -> None:
    for arguments, error in (
        (["--csv"], UsageError),
        (["-o", str(tmp_path / "gaps.csv")], UsageError),
        (["--bins", "0"], UsageError),
        ([], InputError),
    ):
        assert main(["gaps", str(data / "kineto_cpu.json.gz"), *arguments]) == error("", "").exit_code


def test_a_stream_that_is_not_known_is_a_line_of_its_own_and_no_device(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 10, 100, 200)
    n.kernel(GEMM, 20, 300, 400, stream=-1)
    report = report_of(n, tmp_path)
    streams = [(row["stream"], row["rows"], row["busy"]) for row in rows_of(TABLES["streams"](report))]
    assert sorted(streams) == [("7", "1", "100"), ("all", "2", "200"), ("na", "1", "100")]
    assert len(rows_of(TABLES["overlap"](report))) == 1 and len(report.devices) == 1


def test_a_program_without_ops_by_step(tmp_path: Path) -> None:
    """Two steps of a program that launches through another library than torch: ranges of steps, kernels, nothing else."""
    events: list[dict[str, object]] = []
    for step, begin in enumerate((1000, 1500)):
        thread = {"pid": 50, "tid": 100, "args": {}}
        events.append({"cat": "user_annotation", "name": f"ProfilerStep#{step + 5}", "ts": begin, "dur": 400, **thread})
        for at, name in enumerate(("sim.py(7): step", "quadrants/lang/kernel.py(650): launch_kernel")):
            events.append({"cat": "python_function", "name": name, "ts": begin + 10 + at, "dur": 380 - 2 * at, **thread})
        for k, late in enumerate((0, 0, 60)):
            launch, correlation = begin + 30 + 100 * k, 3 * step + k + 1
            args: dict[str, object] = {"correlation": correlation, "cbid": 307}
            events.append(
                {"cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 50, "tid": 100, "ts": launch, "dur": 10, "args": args}
            )
            args = {"correlation": correlation, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [128, 1, 1]}
            name = f"saxpy_c60_0_kernel_{k}_range_for"
            events.append(
                {"cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": launch + 15 + late, "dur": 20, "args": args}
            )
    file = tmp_path / "net.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", **event} for event in events]}))
    records, trace = load_with_trace(str(file))
    first, second = rows_of(TABLES["steps"](Report(Frame(records), trace)))
    assert {row["src"] for row in rows_of(TABLES["ops"](Report(Frame(records), trace)))} == {"sim.py:7"}
    # Gaps of 80 and 140 us inside each step, and one of 220 us before the second.
    keys = ("device", "step", "rows", "time", "delay", "idle", "longest", "host")
    assert tuple(first[key] for key in keys) == ("0", "5", "3", "60000", "15000", "220000", "140000", "220000")
    assert tuple(second[key] for key in keys) == ("0", "6", "3", "60000", "15000", "440000", "220000", "440000")
    assert rows_of(TABLES["steps"](report_of(one_kernel(), tmp_path))) == []


def one_kernel() -> Nsys:
    n = Nsys()
    n.kernel(GEMM, 20, 1000, 1100)
    return n
