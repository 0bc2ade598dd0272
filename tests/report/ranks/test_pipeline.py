"""The bubble of pipelines whose whole truth is written down, us: two stages on GPUs that NCCL connects."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pyprof.cli import main
from pyprof.report.ranks.pipeline import Pipeline, lasts, lines
from pyprof.report.ranks.survey import survey
from pyprof.report.ranks.units import files_of

SEND_RECV, GEMM = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "ampere_sgemm_128x64_nn"


class Ran(NamedTuple):
    """A kernel: the range in which the host launched it, its begin and end, and its op."""

    label: str
    begin: int
    end: int
    op: str = "aten::mm"


Rank = list[Ran]


def write(folder: Path, ranks: list[Rank], steps: int = 2, every: int = 2_000) -> Path:
    """A trace of each rank, in which every step is the same. Backward is launched by autograd's own thread."""
    folder.mkdir(parents=True, exist_ok=True)
    events: list[dict[str, Any]] = []

    def x(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: object) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args})

    for rank, kernels in enumerate(ranks):
        events.clear()
        for step in range(steps):
            begin = 10_000 + step * every
            x("user_annotation", f"ProfilerStep#{step}", begin - 100, every - 1)
            for number, one in enumerate(kernels):
                at, corr, thread = (
                    begin - 90 + 4 * number,
                    100 * step + number + 1,
                    2 if "B" in one.label and "aten" in one.op else 1,
                )
                if one.label:
                    x("user_annotation", one.label, at, 4)
                x("cpu_op", one.op, at + 1, 2, thread)
                x("cuda_runtime", "cudaLaunchKernel", at + 1.5, 1, thread, correlation=corr)
                name, stream = (GEMM, 7) if "aten" in one.op else (SEND_RECV, 20)
                place = {"correlation": corr, "device": 0, "stream": stream}
                x("kernel", name, begin + one.begin, one.end - one.begin, stream, **place)
        known = {"backend": "nccl", "rank": rank, "world_size": len(ranks)}
        document = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "distributedInfo": known}
        (folder / f"rank{rank}.json").write_text(json.dumps(document | {"traceEvents": events}))
    return folder


def found(folder: Path) -> Pipeline | None:
    return survey(files_of([str(folder)])).pipeline


def told(folder: Path) -> Pipeline:
    one = found(folder)
    assert one is not None
    return one


def gpipe(name: str = "PP:{stage}{kind}{microbatch}", longer: int = 0) -> list[Rank]:
    """2 microbatches: a forward takes 100, a backward 200, a transfer 10; of stage 1 both `longer` more.

    stage 0  F0 0-100  F1 100-200  waits          B0 520-720  B1 720-920            idle 320 of 920
    stage 1  waits     F0 110-210  F1 210-310     B0 310-510  B1 510-710            idle 110 of 710
    """
    f, b = 100 + longer, 200 + longer
    ends = [110 + f, 110 + 2 * f, 110 + 2 * f + b, 110 + 2 * f + 2 * b]

    def at(stage: int, kind: str, microbatch: int) -> str:
        words = {"F": "Forward", "B": "Backward"}
        return name.format(stage=stage, kind=kind, word=words[kind], microbatch=microbatch)

    first = ends[2] + 10
    return [
        [
            Ran(at(0, "F", 0), 0, 100), Ran(at(0, "F", 0), 100, 110, "c10d::send"), Ran(at(0, "F", 1), 100, 200),
            Ran(at(0, "F", 1), 200, 210, "c10d::send"), Ran(at(0, "B", 0), 200, first, "c10d::recv_"),
            Ran(at(0, "B", 0), first, first + 200), Ran(at(0, "B", 1), first, ends[3] + 10, "c10d::recv_"),
            Ran(at(0, "B", 1), max(first + 200, ends[3] + 10), max(first + 200, ends[3] + 10) + 200),
        ],
        [
            Ran(at(1, "F", 0), 0, 110, "c10d::recv_"), Ran(at(1, "F", 0), 110, ends[0]),
            Ran(at(1, "F", 1), 110, 210, "c10d::recv_"), Ran(at(1, "F", 1), ends[0], ends[1]),
            Ran(at(1, "B", 0), ends[1], ends[2]), Ran(at(1, "B", 0), ends[2], ends[2] + 10, "c10d::send"),
            Ran(at(1, "B", 1), ends[2], ends[3]), Ran(at(1, "B", 1), ends[3], ends[3] + 10, "c10d::send"),
        ],
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["PP:{stage}{kind}{microbatch}", "{word} {microbatch}"])
def test_gpipe_of_two_even_stages(tmp_path: Path, name: str) -> None:
    """Span of rank 0: 2,000 of the first step, 920 of the last; of rank 1 2,000 and 720, with a send to wait for at the end."""
    one = told(write(tmp_path, gpipe(name)))
    assert one.bubble.tolist() == [320_000, 120_000] and one.span.tolist() == [1_460_000, 1_360_000]
    assert one.parts[:, :2].tolist() == [[200_000, 400_000]] * 2 and one.microbatch.tolist() == [300_000, 300_000]
    assert one.stages == ([[0], [1]] if "stage" in name else [[], []])
    assert (one.depth, one.microbatches, one.schedule, one.ideal) == (2, 2, "GPipe", 1 / 3)
    assert one.longest is None and one.saves is None


def test_a_longer_stage_is_named_and_what_even_stages_save(tmp_path: Path) -> None:
    """Stage 1 takes 100 more for a forward and for a backward: with 2 microbatches, 50 less in each of the two passes."""
    one = told(write(tmp_path, gpipe(longer=100)))
    assert one.longest == 1 and one.microbatch.tolist() == [300_000, 500_000] and one.saves == 100_000
    assert lines(one)[-1] == (
        "    rank 1 computes 0.500 ms a microbatch, the others 0.300 (mean): even stages save 0.100 ms a step"
    )


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # Stage 1 takes 2 and 4, stage 0 takes 1 and 2. GPipe: forwards 1 + 3 x 2, then backwards 3 x 4 + 2.
        ("GPipe", 21),
        # 1F1B: stage 1 begins at 1 and never stops for 3 x (2 + 4), then stage 0 has one backward to do.
        ("1F1B", 21),
    ],
)
def test_how_long_a_schedule_lasts(schedule: str, expected: int) -> None:
    assert lasts(schedule, np.array([[1.0, 2.0], [2.0, 4.0]]), 3) == expected
    even = np.full((4, 2), 1.0)
    assert lasts(schedule, even, 8) == 2 * (8 + 3)


def test_what_is_still_open_when_the_next_kernel_begins_held_nothing_up(tmp_path: Path) -> None:
    """Rank 0 has its receive of 0 to 900 posted early. Its host is late with F1, whose kernel begins at 500."""
    late = [
        Ran("PP:0F0", 0, 100), Ran("PP:0F0", 0, 10, "c10d::send"), Ran("PP:0RECV_B0", 20, 900, "c10d::recv_"),
        Ran("PP:0F1", 500, 600), Ran("PP:0B0", 910, 1_000),
    ]  # fmt: skip
    other = [Ran("PP:1RECV_F0", 0, 110, "c10d::recv_"), Ran("PP:1F0", 120, 800), Ran("PP:1B0", 800, 890)]
    one = told(write(tmp_path, [late, other], steps=1))
    assert one.bubble.tolist() == [300_000, 110_000]
    assert (one.microbatches, one.schedule, one.ideal) == (None, None, None)


def test_sends_and_receives_tell_a_pipeline_where_no_range_does(tmp_path: Path) -> None:
    """In each step rank 0 begins with a send, rank 1 with a receive; how many microbatches is unknown then."""
    plain = [[one._replace(label="") for one in rank] for rank in gpipe()]
    one = told(write(tmp_path / "plain", plain))
    assert one.bubble.tolist() == [320_000, 120_000]
    assert one.microbatches is None and one.schedule is None and one.longest is None
    ring = [plain[0], plain[0]]  # as of a ring, each begins with a send
    assert found(write(tmp_path / "ring", ring)) is None
    nameless = [[one._replace(op="c10d::coalesced") if "c10d" in one.op else one for one in rank] for rank in plain]
    assert found(write(tmp_path / "nameless", nameless)) is None
    assert found(write(tmp_path / "alone", [[Ran("PP:0F0", 0, 100), Ran("PP:0B0", 100, 300)]] * 2)) is None


ONE_F_ONE_B = ["F0 F1 F2 B0 B1 B2", "F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"]


@pytest.mark.parametrize(
    ("orders", "schedule"),
    [
        (ONE_F_ONE_B, "1F1B"),
        (["F0 F1 F2 B0 B1 B2"] * 3, "GPipe"),
        (["F0 F1 F2 B2 B1 B0"] * 3, "GPipe"),
        ([*ONE_F_ONE_B[:2], "F0 B0 F1 F2 B1 B2"], None),
        (["F0 F1 F2 I0 W0 I1 W1 I2 W2"] * 3, None),
    ],
)
def test_a_schedule_is_named_if_every_rank_s_order_proves_it(tmp_path: Path, orders: list[str], schedule: str | None) -> None:
    ranks = []
    for stage, order in enumerate(orders):
        labels = [f"PP:{stage}{action}" for action in order.split()]
        kernels = [Ran(label, 10 + 10 * at, 19 + 10 * at) for at, label in enumerate(labels)]
        ranks.append([Ran("", 0, 5, "c10d::recv_"), *kernels])
    one = told(write(tmp_path, ranks))
    assert (one.schedule, one.depth, one.microbatches) == (schedule, 3, 3)
    assert one.ideal == (2 / 5 if schedule else None)


def test_the_screen_the_table_and_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(write(tmp_path / "run", gpipe()))
    assert main(["parse", run, "-o", str(tmp_path / "set"), "--jobs", "1"]) == 0
    capsys.readouterr()
    said = []
    for name in (run, str(tmp_path / "set")):
        assert main(["ranks", name]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "pipeline: ranks wait for other stages 16 % of their steps, 0.220 of 1.410 ms a step (rank 0 most, 22 %)" in said[0]
    assert "GPipe, 2 stages, 2 microbatches: 33 % with even stages" in said[0]
    assert main(["ranks", run, "--table", "pipeline", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "0,0,2,200.000,400.000,0.000,300.000,320.000,21.9,33.3,GPipe",
        "1,1,2,200.000,400.000,0.000,300.000,120.000,8.8,33.3,GPipe",
    ]


def test_a_job_is_advised_to_even_its_stages_and_not_to_hide_the_same_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.1 ms in each of 2 steps. What ranks wait for other stages is no exposed communication that could be hidden."""
    assert main(["summary", str(write(tmp_path, gpipe(longer=100))), "--format", "json"]) == 0
    job = json.loads(capsys.readouterr().out)
    (one,) = [advice for advice in job["advice"] if advice["kind"] in ("pipeline_bubble", "exposed_communication")]
    assert (one["kind"], one["saves_ns"], one["do"]) == (
        "pipeline_bubble",
        200_000,
        "give rank 1 fewer layers, the others more",
    )
    assert any(note.startswith("pipeline: ranks wait for other stages ") for note in job["notes"])


def test_below_five_percent_there_is_no_line(tmp_path: Path) -> None:
    one = told(write(tmp_path, gpipe(), every=10_000))
    assert one.bubble.sum() > 0 and lines(one) == []


def test_a_recorded_pipeline_counted_again_from_its_traces() -> None:
    """Two stages a rank, backward of inputs and of weights apart. Of each send and receive the time after the last op that began
    before its end, all together within 0.1 ms, since ops end a little before the ranges of autograd around them."""
    folder = Path(__file__).parents[2] / "data/pipeline"
    one = told(folder)
    assert (one.rank, one.stages, one.microbatches, one.depth, one.schedule) == ([0, 1], [[0, 2], [1, 3]], 2, 4, None)
    assert (one.parts[:, :3] > 0).all()
    for rank, bubble in enumerate(one.bubble.tolist()):
        events = [x for x in json.loads(gzip.open(folder / f"rank{rank}.json.gz").read())["traceEvents"] if x.get("ph") == "X"]
        ops = [x for x in events if x["cat"] == "cpu_op" and not x["name"].startswith("c10d::")]
        waiting: list[tuple[float, float]] = []
        for x in events:
            if x["name"] in ("gloo:send", "gloo:recv"):
                end = x["ts"] + x["dur"]
                waiting.append((max(x["ts"], *(op["ts"] + op["dur"] for op in ops if op["ts"] < end), 0.0), end))
        at = total = 0.0
        for begin, end in sorted(waiting):
            total, at = total + max(end - max(begin, at), 0), max(at, end) if begin < end else at
        assert bubble == pytest.approx(1000 * total, abs=100_000)
