"""`pyprof gaps`: rows and sums on captures whose truth is on the screen, against counting every nanosecond, and on real ones."""

import csv
import io
import json
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.errors import InputError, UsageError
from pyprof.model.host import Host, Wait
from pyprof.model.records import COLUMNS, PHASES, Records
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.report.gaps import TABLES, Report
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.report.time.waits import Waits
from pyprof.tables.table import AnyTable, printed
from tests import examples
from tests.given import slow
from tests.timeline import overview_of
from tests.tiny import Nsys, tid

GEMM, NCCL = "ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
PARTS = ["busy", "elsewhere", *CAUSES]


def report_of(made: Nsys | Path, folder: Path = Path(), *, by_stream: bool = False) -> Report:
    return Report(overview_of(made, folder), by_stream)


def rows_of(table: AnyTable) -> list[dict[str, str]]:
    cells = [printed(header.shown(values)) for header, values in zip(table.headers, table.whole().values, strict=True)]
    return [dict(zip([header.key for header in table.headers], row, strict=True)) for row in zip(*cells, strict=True)]


def wait(n: Nsys, name: str, start: int, end: int, *, thread: int | None = None) -> None:
    n.corr += 1
    n.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((start, end, tid(7, thread), n.corr, n.string(name)))


def causes_of(row: dict[str, str]) -> dict[str, int]:
    """Causes of a printed gap that have time."""
    return {cause: int(row[cause]) for cause in CAUSES if row[cause] != "0"}


def test_each_cause_on_one_stream(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 100, 1_000, 11_000)
    n.kernel(GEMM, 200, 12_000, 20_000)  # queued: 1000 ns
    n.range("aten::mm, op_id = 1", 30_000, 43_000)
    n.kernel(GEMM, 40_000, 50_000, 60_000)  # launch: it began 20 us after the device had run dry
    n.kernel(GEMM, 50_005, 110_000, 120_000)  # launched before, and nothing is seen that it waited for
    n.kernel(GEMM, None, 125_000, 130_000)  # queued: of 5 us, whatever launched it
    report = report_of(n, tmp_path)
    found = sorted(rows_of(TABLES["gaps"](report)), key=lambda row: int(row["start"]))
    truth = [{"queued": 1_000}, {"launch": 30_000}, {"unknown": 50_000}, {"queued": 5_000}]
    assert [*map(causes_of, found)] == truth
    assert [(row["idle"], row["cause"], row["stream"]) for row in found] == [
        ("1000", "queued", "7"), ("30000", "launch", "7"), ("50000", "unknown", "7"), ("5000", "queued", "7"),
    ]  # fmt: skip
    assert (found[1]["beforeop"], found[1]["op"], found[2]["beforeop"], found[2]["launched"]) == ("na", "mm", "mm", "50005")
    whole, stream = rows_of(TABLES["streams"](report))
    assert (whole["stream"], stream["stream"]) == ("all", "7")
    assert [int(whole[key]) for key in ("span", "busy", "elsewhere")] == [129_000, 43_000, 0]
    assert {key: whole[key] for key in PARTS} == {key: stream[key] for key in PARTS}
    launch = next(row for row in rows_of(TABLES["ops"](report)) if row["cause"] == "launch")
    assert (launch["op"], launch["gaps"], launch["time"], launch["call"]) == ("mm", "1", "30000", "-")


def test_a_wait_is_named_with_its_call_and_place(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 100, 1_000, 60_000)
    n.range('item(fp32[1]) #pyprof{"mod":"Tensor","src":"train.py:33"}', 500, 62_000)
    wait(n, "cudaStreamSynchronize_v3020", 600, 61_000)
    n.kernel(GEMM, 70_000, 90_000, 100_000)
    report = report_of(n, tmp_path)
    (row,) = rows_of(TABLES["gaps"](report))
    assert causes_of(row) == {"synchronization": 30_000}
    assert (row["call"], row["waitop"], row["waitsrc"]) == ("cudaStreamSynchronize_v3020", "item", "train.py:33")
    assert rows_of(TABLES["ops"](report))[0]["waitsrc"] == "train.py:33"


@pytest.mark.parametrize("unit", [1, 7])
def test_a_gap_is_divided_by_what_the_host_did_at_each_moment(tmp_path: Path, unit: int) -> None:
    """A copy that waits, 5 ms of something else, a launch: three causes of one gap, and none of the short one before."""
    n = Nsys()
    n.kernel(GEMM, 50_000, 100_000, 200_000)
    n.copy(2, 70_000, 202_000, 210_000)
    api = n.rows["CUPTI_ACTIVITY_KIND_RUNTIME"]
    api[-1] = (70_000, 215_000, *api[-1][2:4], n.string("cudaMemcpy_v3020"))
    begin = 215_000 + unit * 5_000_000
    n.kernel(GEMM, begin, begin + 20_000, begin + 120_000)
    truth = {"synchronization": 5_000, "host": unit * 5_000_000, "launch": 20_000}
    report = report_of(n, tmp_path)
    first, second = rows_of(TABLES["gaps"](report))
    assert causes_of(first) == truth and causes_of(second) == {"queued": 2_000}
    assert {cause: ns for cause, ns in report.overview.parts.items() if ns and cause in CAUSES} == {**truth, "queued": 2_000}


def test_a_stream_idles_elsewhere_while_its_device_works(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 100, 1_000, 10_000)
    n.kernel(GEMM, 300, 10_000, 50_000, stream=20)
    n.kernel(GEMM, 400, 52_000, 60_000)
    n.kernel(GEMM, 150_000, 160_000, 170_000, stream=20)  # launched 90 us after the device had run dry
    report = report_of(n, tmp_path, by_stream=True)
    whole, seven, twenty = rows_of(TABLES["streams"](report))
    assert [seven[key] for key in ("busy", "elsewhere", "queued", "launch")] == ["17000", "50000", "2000", "100000"]
    assert [twenty[key] for key in ("busy", "elsewhere", "queued", "launch")] == ["50000", "17000", "2000", "100000"]
    assert [whole[key] for key in ("busy", "elsewhere", "queued", "launch")] == ["67000", "0", "2000", "100000"]
    rows = sorted(rows_of(TABLES["gaps"](report)), key=lambda row: (row["stream"], int(row["start"])))
    assert [(row["stream"], row["start"], row["idle"]) for row in rows] == [
        ("20", "1000", "0"), ("20", "50000", "102000"), ("7", "10000", "2000"), ("7", "60000", "100000"),
    ]  # fmt: skip
    assert [causes_of(row) for row in rows[1:]] == [
        {"launch": 100_000, "queued": 2_000},
        {"queued": 2_000},
        {"launch": 100_000},
    ]
    assert [row["cause"] for row in rows] == ["-", "launch, queued", "queued", "launch"]


def test_autograds_thread_waits_for_the_main_one() -> None:
    """Its launch is late since the main thread waited, unless it launched then, or was at work itself."""
    waits = Waits.of(Host(waits=[
        Wait(7, 1, 5_000, 11_000, 0, True, []), Wait(7, 1, 55_000, 61_000, 0, True, []), Wait(7, 1, 75_000, 85_000, 0, True, [8]),
    ], texts=[("cudaStreamSynchronize", "-", "-")]))  # fmt: skip
    dry, launch = np.array([10_000, 60_000, 80_000]), np.array([20_000, 59_000, 90_000])
    assert waits.open_at(np.full(3, 7), np.full(3, 8), dry, launch).tolist() == [0, -1, -1]
    assert waits.open_at(np.full(3, 7), np.full(3, 1), dry, launch).tolist() == [0, 1, 2]
    assert waits.open_at(np.full(3, 9), np.full(3, 1), dry, launch).tolist() == [-1, -1, -1]


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


class Row(NamedTuple):
    start: int
    dur: int
    stream: int
    launch: int
    kind: int = ActivityKind.KERNEL
    took: int = 5
    tid: int = 1
    device: int = 0
    pid: int = 7
    communicates: bool = False


def records_from(rows: list[Row], host: Host | None) -> Records:
    columns = {name: np.full(len(rows), -1, dtype) for name, (dtype, _) in COLUMNS.items()}
    keys = (("start_ns", "start"), ("dur_ns", "dur"), ("stream", "stream"), ("launch_ns", "launch"), ("kind", "kind"),
            ("launch_dur_ns", "took"), ("tid", "tid"), ("device", "device"), ("pid", "pid"))  # fmt: skip
    for name, key in keys:
        columns[name][:] = [getattr(row, key) for row in rows]
    columns["phase"][:] = [PHASES.index("communication") if row.communicates else -1 for row in rows]
    return Records(columns, seq_offsets=np.zeros(len(rows) + 1, np.int64), host=host)


@st.composite
def captures_drawn(draw: st.DrawFn) -> tuple[list[Row], Host | None, int]:
    """Activities of up to two devices in two processes, or ops on a CPU; waits of their hosts; a unit of time in ns."""
    on_cpu, rows = draw(st.integers(0, 4)) == 0, []
    for _ in range(draw(st.integers(1, 8))):
        start = draw(st.integers(0, 24))
        kind = ActivityKind.CPU if on_cpu else draw(st.sampled_from([ActivityKind.KERNEL, ActivityKind.MEMCPY]))
        rows.append(Row(
            start, draw(st.integers(1, 6)), -1 if on_cpu else draw(st.integers(1, 3)), draw(st.integers(-1, start)), kind,
            draw(st.integers(0, 6)), draw(st.integers(1, 2)), -1 if on_cpu else draw(st.integers(0, 1)), draw(st.sampled_from([7, 9])),
            draw(st.booleans()) and kind == ActivityKind.KERNEL,
        ))  # fmt: skip
    unit = draw(st.sampled_from([300, 9_000, 700_000]))
    ends = draw(st.lists(st.integers(0, 30), max_size=5, unique=True))
    waits = [Wait(7, draw(st.integers(1, 2)), draw(st.integers(0, end)) * unit, end * unit, 0, True, []) for end in ends]
    return rows, draw(st.sampled_from([None, Host(waits=waits, texts=[("call", "-", "-")])])), unit


@settings(max_examples=examples(80), deadline=None)
@given(captures_drawn(), st.integers(0, 1 << 16))
def test_wall_is_busy_and_causes_to_the_nanosecond(drawn: tuple[list[Row], Host | None, int], seed: int) -> None:
    small, host, unit = drawn
    rows = [row._replace(start=row.start * unit + i, dur=row.dur * unit, launch=row.launch * unit if row.launch >= 0 else -1,
                         took=row.took * unit) for i, row in enumerate(small)]  # fmt: skip
    rows.sort(key=lambda row: row.start)  # as records always are
    overview = Overview(Frame(records_from(rows, host)))
    division, idle, wall = overview.division, overview.idle, overview.division.wall_ns
    assert sum(overview.parts.values()) == wall
    divided = idle.causes.of(np.arange(len(division.gaps)))
    assert (divided.sum(axis=1) == division.gaps.time_ns).all() and (divided >= 0).all()
    assert (division.busy_ns.sum(axis=0) + idle.by_device.sum(axis=0) == wall).all()
    for at, (pid, device) in enumerate(zip(division.pids.tolist(), division.devices.tolist(), strict=True)):
        mine = [(row.start, row.start + row.dur) for row in rows if (row.pid, row.device) == (pid, device)]
        assert division.busy_ns[:, at].sum() == covered(mine, division.begin_ns, division.end_ns)
    for by_stream in (False, True):
        report = Report(overview, by_stream)
        for row in rows_of(TABLES["streams"](report)):
            assert int(row["span"]) == wall == sum(int(row[key]) for key in PARTS)
        gaps = report.shown
        total = gaps.causes.of(np.arange(len(gaps))).sum(axis=0)
        times = 1 if not by_stream else np.bincount(report.lines.of[~report.lines.whole], minlength=division.count)
        assert (total == (idle.by_device * times).sum(axis=1)).all() and (gaps.idle_ns <= gaps.end_ns - gaps.start_ns).all()
    shuffled = [*rows]
    random.Random(seed).shuffle(shuffled)
    assert Overview(Frame(records_from(sorted(shuffled, key=lambda row: row.start), host))).parts == overview.parts


def covered(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """Time in which at least one of these runs."""
    total, reached = 0, begin
    for first, last in sorted(spans):
        total += max(min(last, end) - max(first, reached), 0)
        reached = max(reached, min(last, end))
    return total


def screen(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["gaps", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        *slow("kineto/mi300_resnet_checkpoint.json.gz"), "kineto/multi_stream_sync.json.gz", "nvprof/v100_lm/net.sql",
        "kineto/v100_dlrm_8ranks/worker0.pt.trace.json.gz", "nsys/h100_2gpu_train.nsys2026.2.sqlite",
    ],
)  # fmt: skip
def test_real_captures_say_what_their_summary_says(captures: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(screen(capsys, str(captures / name), "--format", "json"))
    assert main(["summary", str(captures / name), "--format", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert found["idle_ns"] == summary["idle_ns"] and found["wall_ns"] == summary["wall_ns"]
    assert summary["wall_ns"] == summary["busy_ns"] + sum(summary["idle_ns"].values())
    for device in summary["devices"]:
        mine = [row for row in found["gaps"] if (row["pid"], row["device"]) == (device["pid"], device["number"])]
        assert {cause: sum(row[cause] for row in mine) for cause in CAUSES} == device["idle_ns"]
        assert device["busy_ns"] + sum(device["idle_ns"].values()) == summary["wall_ns"]
    for row in found["streams"]:
        assert row["span"] == sum(row[key] for key in PARTS)
    for row in found["overlap"]:
        assert row["span"] == sum(row[key] for key in ("compute", "exposed", "copyexposed", "idle"))
    assert sum(row["time"] for row in found["ops"]) == sum(row["idle"] for row in found["gaps"])


def test_a_peer_finds_the_same_idle_time_and_overlap(captures: Path) -> None:
    """HolisticTraceAnalysis 0.5.0 prints for these files idle_time(us), between activities, and comp_comm_overlap_pctg."""
    truth = [(6419, 4.50), (6428, 2.47), (7046, 7.88), (8145, 3.31)]
    for rank, (idle, overlap) in enumerate(truth):
        report = report_of(captures / f"kineto/v100_dlrm_8ranks/worker{rank}.pt.trace.json.gz")
        (row,) = rows_of(TABLES["overlap"](report))
        gaps = report.division.gaps
        between = gaps.time_ns[(gaps.before >= 0) & (gaps.after >= 0)].sum()
        assert between == 1000 * idle and abs(float(row["hidden"]) - overlap) <= 0.06


def test_a_part_of_the_time_records_and_forms(captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = str(captures / "nsys/h100_2gpu_train.nsys2026.2.sqlite")
    whole = screen(capsys, capture)
    assert [line.split(" (")[0] for line in whole.splitlines() if line.split(" (")[0] in TABLES] == list(TABLES)
    full = list(csv.DictReader(io.StringIO(screen(capsys, capture, "--table", "streams", "--csv"))))
    part = list(csv.DictReader(io.StringIO(screen(capsys, capture, "--table", "streams", "--csv", "--time", "100ms:150ms"))))
    assert len(part) == len(full) == 4 and all(40e6 < int(row["Span(ns)"]) < 80e6 for row in part)
    assert len(screen(capsys, capture, "--table", "gaps", "--top", "3").splitlines()) == 4
    assert main(["parse", "--kinds", "kernel,graph,memcpy,memset", capture, "-o", str(tmp_path / "net.dict")]) == 0
    capsys.readouterr()
    assert main(["gaps", str(tmp_path / "net.dict"), "--table", "streams", "--csv"]) == 0
    out = capsys.readouterr()
    again = list(csv.DictReader(io.StringIO(out.out)))
    assert out.err.startswith("note: records hold no ") and {row["Unrecorded(ns)"] for row in again} == {"0"}
    assert [(row["Stream"], row["Busy(ns)"]) for row in again] == [(row["Stream"], row["Busy(ns)"]) for row in full]


def test_tables_in_every_format_with_chosen_rows_and_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    for at in range(4):
        n.kernel(GEMM, 100 * at, 20_000 * at, 20_000 * at + 1_000 * (at + 1))
    capture = str(n.write(tmp_path / "net.sqlite"))
    whole = json.loads(screen(capsys, capture, "--format", "json"))
    assert whole.pop("schema") == 2 and list(whole) == ["wall_ns", "idle_ns", *TABLES] and len(whole["gaps"]) == 3
    assert list(whole["idle_ns"]) == list(CAUSES) and sum(whole["idle_ns"].values()) == sum(
        row["idle"] for row in whole["gaps"]
    )
    assert whole["gaps"][0]["src"] is None and whole["gaps"][0]["start"] == 1_000
    chosen = ("--table", "gaps", "-c", "start,idle", "--where", "idle<19us", "--sort", "idle")
    assert screen(capsys, capture, *chosen, "--format", "plain") == "Start(ns) Idle(ns)\n22000 18000\n43000 17000\n"
    screen(capsys, capture, *chosen, "-o", str(tmp_path / "gaps.csv"))
    assert (tmp_path / "gaps.csv").read_bytes() == b"Start(ns),Idle(ns)\r\n22000,18000\r\n43000,17000\r\n"
    assert "| Start(ns) | Idle(ns) |" in screen(capsys, capture, *chosen, "--format", "markdown")
    for wrong in (["--where", "idle>a"], ["-c", "nothing"], ["--sort", "nothing"], ["--top", "-1"]):
        assert main(["gaps", capture, "--table", "gaps", *wrong]) == 2
        assert "hint" in capsys.readouterr().err


def test_what_cannot_be_done(tmp_path: Path, data: Path) -> None:
    for arguments, error in (
        (["--csv"], UsageError),
        (["-o", str(tmp_path / "gaps.csv")], UsageError),
        (["--bins", "0"], UsageError),
        (["--time", "9000s:"], InputError),
    ):
        assert main(["gaps", str(data / "kineto_cpu.json.gz"), *arguments]) == error("", "").exit_code


def test_a_capture_of_a_cpu_has_gaps_too(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(screen(capsys, str(data / "kineto_cpu.json.gz"), "--format", "json"))
    assert found["idle_ns"]["host"] == sum(row["idle"] for row in found["gaps"]) > 0
    assert [row["stream"] for row in found["streams"]] == ["all"] and found["latency"] == []


def test_a_stream_that_is_not_known_is_a_line_of_its_own_and_no_device(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 10, 100, 200)
    n.kernel(GEMM, 20, 300, 400, stream=-1)
    report = report_of(n, tmp_path)
    streams = [(row["stream"], row["rows"], row["busy"]) for row in rows_of(TABLES["streams"](report))]
    assert sorted(streams) == [("7", "1", "100"), ("all", "2", "200"), ("na", "1", "100")]
    assert len(rows_of(TABLES["overlap"](report))) == report.division.count == 1


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
    first, second = rows_of(TABLES["steps"](report_of(file)))
    assert {row["src"] for row in rows_of(TABLES["ops"](report_of(file)))} == {"sim.py:7", "na"}  # na: at the end
    # 45 us from the step's begin, gaps of 80 and 140 us inside each step, and one of 220 us before the second; the second ends
    # with its own range, 75 us after its last kernel.
    keys = ("device", "step", "rows", "time", "delay", "idle", "longest")
    assert tuple(first[key] for key in keys) == ("0", "5", "3", "60000", "15000", "265000", "140000")
    assert tuple(second[key] for key in keys)[:5] == ("0", "6", "3", "60000", "15000")
    assert (second["idle"], second["longest"]) == ("515000", "220000")
    assert rows_of(TABLES["steps"](report_of(one_kernel(), tmp_path))) == []


def test_places_of_the_host_add_up_to_each_cause(captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, records = str(captures / "kineto/h100_vit.json.gz"), str(tmp_path / "net.parquet")
    assert main(["parse", file, "-o", records]) == 0
    found = []
    for one in (file, records):
        capsys.readouterr()
        assert main(["gaps", one, "--table", "host", "--format", "json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["host"] == found[1]["host"]
    for cause, time in found[0]["idle_ns"].items():
        assert sum(row["self"] for row in found[0]["host"] if row["cause"] == cause) == time
    assert found[0]["host"][1]["src"] == "transformers/models/vit/modeling_vit.py:252"


def one_kernel() -> Nsys:
    n = Nsys()
    n.kernel(GEMM, 20, 1000, 1100)
    return n
