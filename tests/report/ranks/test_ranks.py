"""The report of ranks on jobs whose truth is known, on damaged ones, and on real captures."""

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.model.records import PHASES
from pyprof.report.ranks.results import TABLES, matrix_of
from pyprof.report.ranks.survey import Survey, survey
from pyprof.report.ranks.units import files_of
from pyprof.tables.table import Fractions, Integers, Texts
from tests import examples
from tests.rank_records import ELEMENTS, TRANSFER_NS, Job, write_rank

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")


def columns(whole: Survey, name: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    table = TABLES[name](whole)
    for header, values in zip(table.headers, table.values, strict=True):
        if isinstance(values, Texts):
            found[header.key] = [values.pool[code] for code in values.codes.tolist()]
        else:
            assert isinstance(values, (Integers, Fractions))
            found[header.key] = values.values.tolist()
    return found


def exit_code(arguments: list[str]) -> int | str | None:
    """Of the command; argparse ends it by an exception."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code


def looked_at(folder: Path) -> Survey:
    return survey(files_of([str(folder)]))


@settings(max_examples=examples(24), deadline=None)
@given(
    st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(-(10**9), 10**9), min_size=n, max_size=n))),
    st.integers(0, 8),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from(["0", ""]),
)
def test_offsets_are_recovered_and_the_straggler_and_its_layer_named(
    tmp_path_factory: pytest.TempPathFactory, clocks: tuple[int, list[int]], slow: int, layer: int, steps: bool, group: str
) -> None:
    ranks, offsets = clocks
    slow %= ranks
    job = Job(
        ranks, offsets=tuple(offsets), straggler=(slow, layer, 4_000), jitter=300, steps_recorded=steps, group=group,
        utc_ns=1_700_000_000_123_456_789,
    )  # fmt: skip
    whole = looked_at(job.write(tmp_path_factory.mktemp("job")))
    found = whole.clocks.offset
    assert np.abs((found - found[0]) - (np.array(offsets) - offsets[0])).max() <= 1  # halves of ns are rounded
    assert (whole.clocks.spread < 1).all()

    seen = columns(whole, "ranks")
    divided = job.steps if steps else 1
    assert np.allclose(np.array(seen["wait_us"]) * divided * 1e3, job.wait.sum(axis=1), atol=20)
    caused = np.array(seen["caused_us"])
    assert caused.argmax() == slow and np.isclose(caused.sum() * divided * 1e3, job.wait.sum(), atol=200)
    causes = columns(whole, "stragglers")
    first = causes["rank"].index(slow)
    assert (causes["layer"][first], causes["op"][first]) == (f"layers.{layer}", "mm")
    times = job.compute[:, :, layer].sum(axis=(1, 2)) / divided
    others = np.median(np.delete(times, slow))
    assert causes["time_us"][first] == pytest.approx(times[slow] / 1e3)
    assert causes["more_us"][first] == pytest.approx((times[slow] - others) / 1e3)


def test_overlap_and_exposed_communication_are_those_of_the_job(tmp_path: Path) -> None:
    job = Job(3, steps=2, layers=3, straggler=(1, 2, 20_000), offsets=(5, -5, 0))
    whole = looked_at(job.write(tmp_path))
    begin, arrive, end, meet = job.truth
    long = columns(whole, "matrix")
    for row, (rank, step) in enumerate(zip(long["rank"], long["step"], strict=True)):
        assert isinstance(rank, int) and isinstance(step, int)
        computing = np.zeros(int(end.max() - begin.min()), np.bool_)
        talking = computing.copy()
        first = begin[rank, step] - begin.min()
        for layer in range(job.layers):
            at = first[layer]
            for time in job.compute[rank, step, layer]:
                computing[at : at + time] = True
                at += time + 500
            talking[arrive[rank, step, layer] - begin.min() : end[step, layer] - begin.min()] = True
        assert long["compute_us"][row] == pytest.approx(computing.sum() / 1e3)
        assert long["communication_us"][row] == pytest.approx(talking.sum() / 1e3)
        assert long["overlap_us"][row] == pytest.approx((computing & talking).sum() / 1e3)
        assert long["exposed_us"][row] == pytest.approx((talking & ~computing).sum() / 1e3)
        assert long["wait_us"][row] == pytest.approx(job.wait[rank, step] / 1e3)
    steps = columns(whole, "steps")
    assert steps["slowest"] == [1, 1] and steps["share"] == [100.0, 100.0] and steps["collectives"] == [3, 3]
    assert steps["skew_us"] == [pytest.approx(float((meet - arrive.min(axis=0))[s].max()) / 1e3) for s in range(2)]


def test_bandwidth_is_nccls(tmp_path: Path) -> None:
    whole = looked_at(Job(4).write(tmp_path))
    found = columns(whole, "bandwidth")
    rate = 4 * ELEMENTS / TRANSFER_NS
    assert (found["kind"], found["ranks"], found["bytes"], found["count"]) == (["all_reduce"], [4], [4 * ELEMENTS], [12])
    assert found["algbw_gbs"] == [pytest.approx(rate)] and found["busbw_gbs"] == [pytest.approx(rate * 2 * 3 / 4)]
    assert found["waiting"] == ["without"]


def test_a_rank_without_some_collectives_is_left_out_of_that_step_only(tmp_path: Path) -> None:
    job = Job(4, offsets=(0, 100, 200, 300), utc_ns=0)
    job.write(tmp_path)
    records = job.records(2)
    communicates = np.flatnonzero(records["phase"] == PHASES.index("communication"))
    write_rank(tmp_path, 2, records.select(np.setdiff1d(np.arange(len(records)), communicates[[1]])))
    whole = looked_at(tmp_path)
    found = columns(whole, "ranks")
    assert found["left_out"] == [0, 0, 3, 0] and found["met"] == [12, 12, 8, 12]
    assert (whole.clocks.offset - whole.clocks.offset[0]).tolist() == [0, 100, 200, 300]
    assert any("3 collectives could not be compared, on rank 2" in note for note in whole.notes)


def test_collectives_of_other_process_groups_are_never_the_same(tmp_path: Path) -> None:
    first, second = (
        Job(2, offsets=(0, shift), group=name, utc_ns=0, jitter=300) for name, shift in (("a", 10_000), ("b", -30_000))
    )
    for rank in range(4):
        records = (first, second)[rank // 2].records(rank % 2)
        records.columns["rank"] = np.full(len(records), rank, np.int32)
        write_rank(tmp_path, rank, records)
    whole = looked_at(tmp_path)
    assert np.diff(whole.clocks.offset)[[0, 2]].tolist() == [10_000, -30_000] and whole.clocks.component.tolist() == [
        0,
        0,
        2,
        2,
    ]
    assert whole.arrivals.ranks.tolist() == [2] * 24 and whole.notes == []
    seen = columns(whole, "collectives")
    assert set(zip(seen["group"], seen["slowest"], strict=True)) <= {("a", 0), ("a", 1), ("b", 2), ("b", 3)}
    assert columns(whole, "bandwidth")["ranks"] == [2]


def test_lost_ranks_quiet_ranks_and_one_rank_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job(4)
    for rank in (0, 3):
        write_rank(tmp_path / "lost", rank, job.records(rank))
    assert main(["ranks", str(tmp_path / "lost")]) == 0
    captured = capsys.readouterr()
    assert "no records of rank 1, 2" in captured.err and captured.out.startswith("2 ranks, 3 steps, 12 collectives compared")

    records = job.records(1)
    for rank, rows in ((0, job.records(0)), (1, records.select(records["phase"] == 0))):
        write_rank(tmp_path / "quiet", rank, rows)
    assert main(["ranks", str(tmp_path / "quiet")]) == 0
    captured = capsys.readouterr()
    assert "no communication was recorded on rank 1" in captured.err and "no collectives compared" in captured.out
    assert "stands alone" in captured.err

    assert main(["ranks", str(write_rank(tmp_path / "one", 0, job.records(0)))]) == 0
    captured = capsys.readouterr()
    assert "one rank only" in captured.err and "with" in captured.out and captured.out.startswith("1 rank,")

    write_rank(tmp_path / "empty", 0, records.select(np.empty(0, np.int64)))
    assert main(["ranks", str(tmp_path / "empty")]) == 1
    assert "nothing ran on a GPU" in capsys.readouterr().err
    assert main(["ranks", str(tmp_path / "nowhere")]) == 1


def test_a_file_that_cannot_be_used_is_named_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Job(3).write(tmp_path)
    (tmp_path / "rank=1" / "net.parquet").write_bytes(b"PAR1 and no more")
    assert main(["ranks", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "rank=1/net.parquet" in captured.err and "failed: " in captured.err and captured.out.startswith("2 ranks")


def test_several_files_of_a_rank_are_one_rank(tmp_path: Path) -> None:
    job = Job(2, steps=4, offsets=(0, 5_000), straggler=(1, 0, 1_000))
    for rank in range(2):
        records = job.records(rank)
        for part in range(2):
            write_rank(tmp_path, rank, records.select(np.flatnonzero(records["step"] // 2 == part)), f"part{part}")
    whole = looked_at(tmp_path)
    assert whole.ranks == [0, 1] and columns(whole, "ranks")["steps"] == [4, 4]
    assert columns(whole, "ranks")["met"] == [16, 16] and columns(whole, "steps")["slowest"] == [1] * 4
    assert np.isclose(np.array(columns(whole, "ranks")["wait_us"]) * 4e3, job.wait.sum(axis=1)).all()


def test_tables_as_csv_parquet_and_a_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet

    folder = Job(3, straggler=(2, 1, 3_000)).write(tmp_path / "job")
    assert main(["ranks", str(folder), "--csv", "--table", "collectives"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 12 and {row["Slowest"] for row in rows if row["Turn"] == "1"} == {"2"}
    assert main(["ranks", str(folder), "--matrix", "wait", "--step", "1:3"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["Rank", "1", "2"] and len(lines) == 3 and lines[2].split() == ["2", "0.000", "0.000"]
    assert main(["ranks", str(folder), "-o", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(f"{name}.parquet" for name in TABLES)
    table = pyarrow.parquet.read_table(tmp_path / "out" / "matrix.parquet")
    assert table.num_rows == 9 and {"rank", "step", "span_us", "wait_us"} <= set(table.column_names)
    assert main(["ranks", str(folder), "-o", str(tmp_path / "text"), "--csv"]) == 0
    assert (tmp_path / "text" / "ranks.csv").read_bytes().count(b"\r\n") == 4
    whole = looked_at(folder)
    matrix = matrix_of(whole, "compute")
    assert [len(v.values) for v in matrix.values if isinstance(v, Fractions)] == [3] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        ["--table", "x"], ["--matrix", "x"], ["--table", "ranks", "--matrix", "wait"], ["--top", "-1"], ["-c", "x"],
        ["--where", "rank>a"], ["--sort", "x"], ["--format", "parquet"], ["-o", "out", "-c", "rank"],
    ],
)  # fmt: skip
def test_wrong_usage(tmp_path: Path, wrong: list[str]) -> None:
    assert exit_code(["ranks", str(Job(2, steps=1, layers=1).write(tmp_path)), *wrong]) == 2


def test_rows_and_columns_are_chosen_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(Job(3, straggler=(2, 1, 3_000)).write(tmp_path / "job"))
    of_table = ["ranks", folder, "--table", "collectives", "-c", "step,wait_us", "--sort", "wait_us", "--where", "wait_us>1"]
    assert main([*of_table, "--top", "2", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 2 and list(rows[0]) == ["step", "wait_us"] and rows[0]["wait_us"] >= rows[1]["wait_us"] > 1
    assert main([*of_table, "--format", "markdown"]) == 0 and capsys.readouterr().out.startswith("| Step | Wait(us) |")
    assert main(["ranks", folder, "--format", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole.pop("schema") == 1 and list(whole) == list(TABLES) and len(whole["collectives"]) == 12


def test_a_run_on_the_cpu_is_pointed_to_what_shows_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranks", str(data / "kineto_cpu.json.gz")]) == 1
    err = capsys.readouterr().err
    assert "nothing ran on a GPU" in err and "pyprof summary" in err and "pyprof parse" not in err


def test_eight_real_ranks(captures: Path) -> None:
    """Eight V100s on one machine: their sessions' clocks agree, and so do ends of collectives, within their microseconds."""
    whole = looked_at(captures / "kineto" / "v100_dlrm_8ranks")
    assert whole.ranks == list(range(8)) and (whole.arrivals.ranks == 8).all() and len(whole.calls) == 8
    assert np.abs(whole.clocks.offset).max() < 2_000 and whole.clocks.spread.max() < 2_000
    assert whole.notes == [] and columns(whole, "steps")["slowest"] == [7]
    found = columns(whole, "bandwidth")
    sizes = {(kind, size) for kind, size in zip(found["kind"], found["bytes"], strict=True)}
    assert {("all_reduce", 394241 * 4), ("all_reduce", 112 * 4), ("all_to_all", 24 * 8)} <= sizes
    # No collective says its group: all eight ranks of the job, as each trace counts it, meet in each.
    assert set(found["ranks"]) == {8}
    bus = dict(zip(zip(found["kind"], found["bytes"], strict=True), found["busbw_gbs"], strict=True))
    assert bus["all_reduce", 1_576_964] == pytest.approx(18.337 * 2 * 7 / 8, rel=1e-4)
    assert whole.waits.caused.sum() == whole.waits.wait.sum() and len(set(found["waiting"])) == 1


def test_eight_real_ranks_counted_by_hand(captures: Path) -> None:
    """From the events themselves: NCCL's kernels in order of begin, microseconds of the machine's one clock."""
    folder = captures / "kineto" / "v100_dlrm_8ranks"
    nccl, busy = [], []
    for rank in range(8):
        with gzip.open(folder / f"worker{rank}.pt.trace.json.gz") as stream:
            trace = json.load(stream)["traceEvents"]
        (step,) = [e for e in trace if e.get("name") == "ProfilerStep#10" and e["cat"] == "user_annotation"]
        calls = [e for e in trace if e.get("cat") == "cuda_runtime" and 0 <= e["ts"] - step["ts"] < step["dur"]]
        inside = {e["args"].get("correlation") for e in calls}
        gpu = [e for e in trace if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        begin = min(e["ts"] for e in gpu if e["args"]["correlation"] in inside)
        events = [e for e in gpu if e["cat"] == "kernel"]
        found = sorted((e["ts"], e["dur"]) for e in events if e["name"].startswith("nccl"))
        nccl.append(found)
        own = {t for e in events if not e["name"].startswith("nccl") for t in range(e["ts"], e["ts"] + e["dur"])}
        own = {t for t in own if t >= begin}  # what ran before the step's first activity is of the step before
        talk = {t for ts, dur in found for t in range(ts, ts + dur)}
        busy.append((len(own), len(talk), len(own & talk)))
    start = np.array([[ts for ts, _ in own] for own in nccl])
    whole = looked_at(folder)
    assert np.array(columns(whole, "ranks")["wait_us"]) == pytest.approx((start.max(axis=0) - start).sum(axis=1), abs=30)
    late = np.bincount(start.argmax(axis=0), minlength=8)
    assert columns(whole, "ranks")["late"] == late.tolist()
    seen = zip(*(columns(whole, "ranks")[f"{name}_us"] for name in ("compute", "communication", "overlap")), strict=True)
    assert [tuple(round(float(str(v))) for v in row) for row in seen] == busy


def _without_causes(text: str) -> list[str]:
    """The lines of the screen but for causes: what the host did is in captures alone."""
    return [
        line
        for line in text.partition("\nwhat takes late ranks")[0].splitlines()
        if " after the first rank" not in line and " late, " not in line
    ]


@pytest.mark.slow
def test_a_data_set_gives_what_its_captures_give(captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = str(captures / "kineto/v100_dlrm_8ranks"), str(tmp_path / "out")
    assert main(["ranks", folder]) == 0
    direct = capsys.readouterr().out
    assert main(["parse", folder, "-o", out, "--jobs", "1"]) == 0
    capsys.readouterr()
    assert main(["ranks", out]) == 0
    assert _without_causes(capsys.readouterr().out) == _without_causes(direct)


def test_two_ranks_of_one_capture(captures: Path) -> None:
    whole = survey([captures / "nsys" / "h100_2gpu_train.nsys2026.2.sqlite"])
    assert whole.ranks == [0, 1] and columns(whole, "ranks")["met"] == [32, 32]
    assert columns(whole, "ranks")["left_out"] == [1, 1]  # one kernel of each began before the capture and has no op
    assert (
        set(columns(whole, "bandwidth")["kind"]) == {"all_to_all"} and np.isnan(columns(whole, "bandwidth")["algbw_gbs"]).all()
    )
    assert any("do not record their rank" in note for note in whole.notes)


def test_collectives_of_no_known_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace of kernels alone, without any launch."""
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm)", "pid": 0, "tid": 7, "dur": 5,
              "args": {"device": 0, "stream": 7, "Collective name": "allreduce", "In msg nelems": 9, "dtype": "Float", "Group size": 2}}  # fmt: skip
    for rank in range(2):
        facts = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}}
        (tmp_path / f"rank{rank}.json").write_text(
            json.dumps({**facts, "traceEvents": [kernel | {"ts": 10 + 20 * n} for n in range(3)]})
        )
    assert main(["ranks", str(tmp_path)]) == 0
    assert "2 ranks" in capsys.readouterr().out
