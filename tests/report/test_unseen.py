"""Captures of programs on a GPU that do not show its work, or not most of it: they begin with what is missing, and tell no rates."""

import json
from pathlib import Path

import pytest

import pyprof
from pyprof.cli import main
from pyprof.report.diff.compare import Comparison
from pyprof.report.page.data import section_of
from pyprof.report.summary.job import job_of
from tests.timeline import H100, overview_of
from tests.tiny import Nsys

MS = 1_000_000
GEMM = "ampere_sgemm_128x64_nn"


def replays_unrecorded(graphs: int = 30, kernels: int = 2) -> Nsys:
    """Steps of 10 ms that each launch a graph, of which nothing is recorded; before them two kernels, each of 10 us."""
    n = Nsys()
    n.rows["TARGET_INFO_GPU"].append(H100)
    n.range("aten::mm, seq = 0, op_id = 0, sizes = [[64, 64], [64, 64]]", 500, 2 * MS)
    for kernel in range(kernels):
        n.kernel(GEMM, 1_000 + 20_000 * kernel, 10_000 + 20_000 * kernel, 20_000 + 20_000 * kernel)
    n.api(3 * MS, 900, name="cudaStreamBeginCapture_v10000")
    for captured in range(5):  # launch nothing
        n.api(3 * MS + 10_000 * (captured + 1), 901 + captured)
    n.api(4 * MS, 909, name="cudaStreamEndCapture_v10000")
    for graph in range(graphs):
        begin = 10 * MS * (graph + 1)
        n.range(f"ProfilerStep#{graph}", begin, begin + 10 * MS)
        n.api(begin + MS, 1_000 + graph, name="cudaGraphLaunch_v10000", took=MS)
        n.api(begin + 1_500_000, 2_000 + graph, name="cuGraphLaunch", took=1_000)  # inside of the call before
    return n


def untraced(calls: int, devices: bool = True, watched: bool = False) -> Nsys:
    """Ops on the CPU of a machine with a GPU, as emit_nvtx writes them, and calls that launch."""
    n = Nsys()
    if devices:
        n.rows["TARGET_INFO_GPU"].append(H100)
    for at in range(3):
        n.range(f"aten::mm, seq = {at}, op_id = {at}, sizes = [[64, 64], [64, 64]]", 1_000 * at, 1_000 * at + 800)
    for at in range(calls):
        n.api(1_000 * at + 10, at + 1)
    return n


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("made", "first"),
    [
        (replays_unrecorded(), "30 of 30 launches of CUDA graphs have no kernel in the capture"),
        (untraced(3), "3 kernels were launched and none was recorded"),
        (untraced(1), "1 kernel was launched and none was recorded"),
        (untraced(0), "CUDA was not traced: no call of it is in the capture, although there is a GPU (NVIDIA H100 80GB HBM3)"),
    ],
)
def test_what_is_missing_comes_first_and_no_rates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made: Nsys, first: str
) -> None:
    file = str(made.write(tmp_path / "net.sqlite"))
    screen = printed(capsys, "summary", file)
    assert " ".join(screen.split()).startswith(first)
    assert "FLOP/s while" not in screen and "GPU busy na" in screen and "MFU na" in screen and "Nothing to advise" not in screen
    found = json.loads(printed(capsys, "summary", file, "--format", "json"))
    rates = ("wall_ns", "busy_ns", "mfu", "mfu_min", "flops_per_busy_s", "flops_per_busy_s_min", "flops_per_wall_s_min")
    assert not any(found[key] for key in (*rates, "busy", "idle_ns")) and found["notes"][0].startswith(first)
    assert [one["kind"] for one in found["advice"]] == ["record_cuda"] and found["unseen"]["what"].startswith(first)
    for suffix in ("parquet", "dict"):
        records = str(tmp_path / f"net.{suffix}")
        assert main(["parse", file, "-o", records]) == 0
        rows = printed(capsys, "prof", records, "-c", "kind,tflops,gbs,peak,lost", "--csv").splitlines()[1:]
        assert all(row == "cpu,na,na,na,na" or row.startswith("kernel,") for row in rows)
        capsys.readouterr()
        again = " ".join(printed(capsys, "summary", records).split())
        # Lines of net.dict do not hold how many launches were lost.
        of_records = "" if made.corr else "the work of the device is not in these records"
        assert again.startswith(first if suffix == "parquet" else of_records)
    assert main(["gaps", file]) == 1 and first in capsys.readouterr().err
    overview = overview_of(tmp_path / "net.sqlite")
    comparable, why = Comparison(overview, overview).judgement
    assert comparable and "neither" in why and section_of(overview, "net").charts["timeline"] is None


@pytest.mark.parametrize("made", [replays_unrecorded(graphs=3, kernels=8), untraced(0, devices=False)])
def test_captures_that_show_enough(tmp_path: Path, made: Nsys) -> None:
    made.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] += [
        (10 * MS * at + 2 * MS, 10 * MS * at + 3 * MS, 0, 7, 999 + at, (1 << 48) | (7 << 24), 3) for at in (1, 2) if made.corr
    ]
    summary = pyprof.load(str(made.write(tmp_path / "net.sqlite"))).summary()
    assert summary.unseen is None and summary.busy_ns
    assert ("1 launch without a kernel in the capture" in " ".join(summary.notes)) == bool(made.corr)


@pytest.mark.parametrize(
    ("op", "used"), [("aten::add", False), ("aten::cudnn_convolution", True), ("aten::mkldnn_convolution", None)]
)
def test_ops_of_torch_profiler_beside_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], op: str, used: bool | None
) -> None:
    """A recording of the CPU alone: rates, and a note unless ops say where they ran; an op that only a GPU has: no rates."""
    about = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 100 * at, "dur": 90, "args": about}
        for at, name in enumerate(["aten::mm", op])
    ]
    file, device = tmp_path / "net.json", {"id": 0, "name": "NVIDIA H100 80GB HBM3"}
    file.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    screen = printed(capsys, "summary", str(file))
    assert screen.startswith("CUDA was not traced") == bool(used) and ("FLOP/s while" in screen) == (not used)
    assert ("ops are taken to have run on the CPU" in " ".join(screen.split())) == (used is False)


def ranges_alone(path: Path) -> str:
    """Four frames on a machine with a GPU, of which only ranges were recorded."""
    n = Nsys()
    n.rows["TARGET_INFO_GPU"].append(H100)
    for frame in range(4):
        begin = 100_000 * frame
        n.range("infer", begin, begin + 60_000 + 1_000 * frame)
        n.range("backbone", begin + 10_000, begin + 40_000)
        n.range("write", begin + 70_000, begin + 80_000)
    return str(n.write(path))


def test_ranges_alone_on_a_machine_with_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ranges_alone(tmp_path / "net.sqlite")
    screen = printed(capsys, "summary", file)
    assert screen.startswith("CUDA was not traced") and screen.count("CUDA was not traced") == 1
    table = [" ".join(line.split()) for line in screen.splitlines()]
    assert "infer 4 246 us 61.5 us 60.0 us 63.0 us" in table and "infer:backbone 4 120 us 30.0 us 30.0 us 30.0 us" in table
    assert "write 4 40.0 us 10.0 us 10.0 us 10.0 us" in table
    (first, *_) = json.loads(printed(capsys, "summary", file, "--table", "ranges", "--format", "json"))["ranges"]
    assert (first["range"], first["number"], first["time"]) == ("infer", 4, 246_000)
    capsys.readouterr()
    assert main(["prof", file]) == 0 and "CUDA was not traced" in capsys.readouterr().err


def test_given_captures(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, first in (
        ("cases/kineto/launches_without_kernels.json", "18 kernels were launched and none was recorded"),
        ("cases/nsys/no_kernels.sqlite", "40 kernels were launched and none was recorded"),
        ("more/titanrtx_tensorrt_nvtx_only.nsys2022.4.sqlite", "CUDA was not traced"),
        ("kineto/a100_alexnet_cupti_counters.json.gz", "77 ranges of hardware counters in place of kernels"),
    ):
        if (captures / name).exists():
            assert printed(capsys, "summary", str(captures / name)).startswith(first)


def test_a_job_of_which_one_rank_does_not_show_its_device(tmp_path: Path) -> None:
    whole = untraced(0)
    whole.kernel(GEMM, 10, 2_000, 90_000)
    files = untraced(3).write(tmp_path / "rank0.sqlite"), whole.write(tmp_path / "rank1.sqlite")
    job = job_of("job", [pyprof.load(str(file)).summary() for file in files], None)
    assert job.unseen is not None and [one.kind for one in job.advice] == ["record_cuda"] and job.flops == 4 * 2 * 64**3
    assert (job.wall_ns, job.utilised.flops_per_busy_s, job.utilised.flops_per_busy_s_min) == (None, None, None)
