"""The roofline: least times from first principles, and lost time that adds up."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.hardware import cpus
from pyprof.loading.load import load, load_capture
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from pyprof.prof.roofline import BOUNDS, Peaks, Terms, ceiling, limits, roofline, terms
from tests.tiny import Nsys

GEMM = "volta_sgemm_128x64_tn"


def column(frame: Frame, key: str) -> list[str]:
    return next(c for c in COLUMNS if c.key == key).texts(frame)


def _one(matmul: int, vector: int, moved: int, ns: int, l2: float = 0, launch: float = np.nan,
         streaming: bool = False) -> tuple[str, float, float, int]:  # fmt: skip
    """One kernel on a device of 10 TFLOP/s in products, 1 TFLOP/s in the rest and 100 GB/s."""
    rates = [np.array([rate], np.float64) for rate in (10e12, 1e12, 100e9, l2, 1500, launch)]
    parts = [np.array([part]) for part in (matmul, vector, moved)]
    peaks = Peaks(*rates)
    own = terms(np.array([ns]), parts, np.array([True]), peaks, np.array([streaming]))
    found = roofline(np.array([ns]), own.time_ns, own.launch_ns, limits(own, peaks.l2_bytes))
    code = int(found.bound[0])
    return (BOUNDS[code] if code >= 0 else "na", float(found.peak[0]), float(ceiling(own)[0]), int(found.lost_ns[0]))


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ((10**9, 0, 10**6, 200_000), ("compute", 50.0, 10e12, 100_000)),  # 100 us of products
        ((10**9, 10**9, 0, 2_000_000), ("compute", 50.0, 2e12, 1_000_000)),  # the CUDA cores take 1 ms
        ((10**6, 0, 10**7, 400_000), ("memory", 25.0, 10e9, 300_000)),  # 100 us of bytes
        ((0, 0, 10**7, 400_000), ("memory", 25.0, 0.0, 300_000)),
        ((10**6, 0, 10**4, 5_000), ("latency", 2.0, 10e12, 4_900)),  # 100 ns: no kernel is that short
        ((10**9, 0, 10**6, 50_000), ("compute!", 200.0, 10e12, 0)),  # faster than possible: shown, not clamped
        ((0, 0, 10**7, 50_000), ("memory!", 200.0, 0.0, 0)),
    ],
)  # fmt: skip
def test_the_largest_of_three_times_is_the_limit(
    work: tuple[int, int, int, int], expected: tuple[str, float, float, int]
) -> None:
    bound, peak, ceiling, lost = _one(*work)
    assert (bound, lost) == (expected[0], expected[3])
    assert [peak, ceiling] == pytest.approx([expected[1], expected[2]])


def test_bytes_alone_set_the_least_time_of_a_kernel_without_products() -> None:
    assert _one(-1, -1, 10**7, 400_000, streaming=True)[:2] == ("memory", 25.0)
    assert np.isnan(_one(-1, -1, 10**7, 400_000)[1])
    assert _one(-1, -1, 10**7, 50_000, l2=9e6)[:2] == ("memory!", 200.0)  # faster than DRAM allows, whatever it computes
    assert np.isnan(_one(-1, -1, 10**7, 50_000, l2=2e7)[1])


def test_what_fits_into_the_cache_may_be_faster_than_memory() -> None:
    assert _one(0, 0, 10**7, 50_000, l2=2e7)[0] == "l2" and _one(0, 0, 10**7, 50_000, l2=9e6)[0] == "memory!"


def test_kernels_shorter_than_their_launch() -> None:
    assert _one(10**9, 0, 10**6, 200_000, launch=200_001)[0] == "launch"
    assert _one(10**9, 0, 10**6, 200_000, launch=200_000)[0] == "compute"
    assert _one(10**6, 0, 10**4, 5_000, launch=6_000)[0] == "launch"
    assert _one(10**9, 0, 10**6, 50_000, launch=60_000)[0] == "compute!"


@pytest.mark.parametrize("unknown", [(-1, 0, 10), (10, -1, 10), (10, 0, -1)])
def test_an_unknown_cost_makes_all_unknown(unknown: tuple[int, int, int]) -> None:
    bound, peak, ceiling, lost = _one(*unknown, 1000)
    assert bound == "na" and np.isnan(peak) and np.isnan(ceiling) and lost == -1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**9), st.integers(0, 10**15), st.integers(0, 10**12)), min_size=1)
)
def test_lost_time_adds_up_and_stays_within_the_time(rows: list[tuple[int, int, int, int]]) -> None:
    group = np.unique([row[0] for row in rows], return_inverse=True)[1]
    ns, matmul, moved = (np.array([row[i] for row in rows]) for i in (1, 2, 3))
    rates = [np.full(len(rows), rate, np.float64) for rate in (1e14, 1e13, 1e12, 0, 1500, np.nan)]
    parts = (matmul, np.zeros_like(matmul), moved)
    own = terms(ns, parts, np.ones(len(rows), np.bool_), Peaks(*rates))
    instance = Terms(*(np.bincount(group, each)[group] for each in own))
    found = roofline(ns, instance.time_ns, instance.launch_ns, limits(instance, np.zeros(len(rows))))
    for number in range(int(group.max()) + 1):
        mine = group == number
        time = int(ns[mine].sum())
        if not time:
            assert (found.lost_ns[mine] == -1).all()
            continue
        least = max(int(matmul[mine].sum()) / 1e14, int(moved[mine].sum()) / 1e12) * 1e9
        assert found.lost_ns[mine].sum() == pytest.approx(max(time - least, 0), abs=int(mine.sum()) + 1e-9 * time)
        assert (found.lost_ns[mine] >= 0).all() and (found.lost_ns[mine] <= ns[mine] + 1).all()


def _gemm(path: Path, name: str = "Tesla V100-SXM2-16GB") -> Path:
    n = Nsys()
    n.range("~?aten::mm(fp32[1024,1024], fp32[1024,1024])", 10, 50)
    n.range("aten::mm, op_id = 1, sizes = [[1024, 1024], [1024, 1024]]", 11, 49)
    n.kernel(GEMM, 20, 1_000, 1_000 + 273_571)  # twice 2*1024^3 / 15.7 TFLOP/s
    n.rows["TARGET_INFO_GPU"].append((0, name, 0, 80, 7, 0))
    return n.write(path / "net.sqlite")


def test_an_unknown_device_has_no_roofline_and_the_user_may_name_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = _gemm(tmp_path, "Imaginary 1")
    own = tmp_path / "mine.json"
    own.write_text(json.dumps({"name": "mine", "arch": "7.0", "peaks": {"fp32": 7.85e12}, "dram_bytes_per_s": 1e12}))
    shown = []
    for extra in ((), ("--gpu", "Tesla V100-SXM2-16GB"), ("--gpu", str(own))):
        assert main(["prof", str(capture), "-c", "bound,math,peak", *extra]) == 0
        shown.append(capsys.readouterr().out.split())
    assert [words[-1] for words in shown] in (["na", "na", "na"], ["na", "50.0", "100.0"])
    assert main(["prof", str(capture), "--gpu", "Tesla V1000"]) == 1
    assert "did you mean" in capsys.readouterr().err


def test_a_cpu_is_held_against_what_was_measured_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1, sizes = [[1024, 1024], [1024, 1024]]", 0, 500_000)
    capture = n.write(tmp_path / "net.sqlite")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert column(Frame(load_capture(capture)), "peak") == ["na"]
    cpus.save(cpus.CpuPeak(cpus.cpu_name(), 1, {"fp32": 8.589934592e-3}, 10.0))  # so 2*1024^3 take 250 ms
    assert column(Frame(load_capture(capture)), "peak") == ["na"]  # the bytes need a type, which this text does not hold


@pytest.mark.parametrize("name", ["h100_bert_small", "h100_vit"])
def test_real_kernels_lie_below_the_roofline(captures: Path, name: str) -> None:
    frame = Frame(load(str(captures / "kineto" / f"{name}.json.gz")))
    kernel = frame.records["kind"] == 0
    time = frame.records["dur_ns"]
    known = kernel & ~np.isnan(frame.roofline.peak)
    assert time[known].sum() >= 0.99 * time[kernel].sum()
    assert frame.roofline.peak[known].max() < 100 and frame.roofline.peak[known].min() >= 0
    assert (frame.roofline.lost_ns[known] <= time[known] + 1).all()


def test_the_linear_of_a_known_capture(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """9,317,840,000 FLOPs at a V100's 15.7 TFLOP/s take 593,493 ns; a memset belongs to the data gradient, shown or not."""
    for kinds in ("kernel", "kernel,memset"):
        command = ["prof", str(captures / "nvprof" / "v100_lm" / "net.sql"), "--kinds", kinds]
        assert main([*command, "-c", "sil,kind,peak,bound,lost", "--where", "instance=44"]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        lost = {(row[0], *row[1:4]): int(row[4]) for row in rows if row[0].isdigit()}
        assert abs(lost["1319380", "kernel", "44.9", "compute"] - 726_591.5) <= 1  # of 1,319,380 + 1,568 - 593,493 in all
        assert len(lost) == 1 or abs(lost["1568", "memset", "44.9", "compute"] - 863.5) <= 1
    assert len(lost) == 2


def test_a_memset_within_an_op_carries_nothing_of_its_own(captures: Path) -> None:
    """cross_entropy's backward clears 93 MB before it scatters into them; the op's bytes hold that once."""
    frame = Frame(load(str(captures / "nvprof" / "v100_lm" / "net.sql")))
    kinds, sums = column(frame, "kind"), {"memset": 0, "kernel": 0}
    for kind, instance, moved in zip(kinds, column(frame, "instance"), column(frame, "bytes"), strict=True):
        if instance == column(frame, "instance")[column(frame, "sil").index("13920")]:
            sums[kind] += int(moved)
    assert sums["memset"] == 0 and sums["kernel"] > 0
