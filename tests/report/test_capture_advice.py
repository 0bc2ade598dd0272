"""Advice about the capture itself, on captures whose truth is on the screen, and on real ones."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.report.time.overview import Overview
from tests.timeline import advice_of, overview_of
from tests.tiny import Nsys, tid

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
MS = 1_000_000
US = 1_000


class Kineto:
    """Events of one trace; times in us."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.corr = 0

    def add(self, cat: str, name: str, begin: float, time: float, tid: int = 1, **args: object) -> None:
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": begin, "dur": time, "args": args})

    def kernel(self, launch: float, begin: float, time: float, name: str = GEMM) -> None:
        self.corr += 1
        self.add("cuda_runtime", "cudaLaunchKernel", launch, 5, correlation=self.corr)
        self.add("kernel", name, begin, time, tid=7, correlation=self.corr, device=0, stream=7)

    def frame(self, name: str, begin: float, time: float) -> None:
        self.add("python_function", name, begin, time)

    def write(self, path: Path) -> Overview:
        file = path / "net.json"
        file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return overview_of(file)


def python_between_launches(k: Kineto, pauses: list[float], functions: int = 3) -> None:
    """Ten launches, 1 ms apart; before each, C functions called in `quick` 1 us apart and in others by these pauses."""
    for step in range(10):
        at = step * 1000.0
        k.frame("net.py(1): quick", at + 100, 50)
        for call in range(20):
            k.frame("<built-in function len>", at + 101 + 2 * call, 1)
        for function in range(functions):
            begin = at + 200 + 200 * function
            k.frame(f"net.py({9 + function}): slow", begin, 180)
            now = begin + 1
            for pause in pauses:
                k.frame("<built-in function len>", now, 1)
                now += 1 + pause
            k.frame("<built-in function len>", now, begin + 179 - now)
        k.kernel(at + 950, at + 960, 5)


def test_the_recorders_own_time(tmp_path: Path) -> None:
    k = Kineto()
    python_between_launches(k, [20.0, 30.0, 40.0])
    overview = k.write(tmp_path)
    assert overview.parts["profiler"] == 9 * 3 * (19 + 29 + 39) * US  # nine gaps; each pause less the usual one
    found = advice_of(overview)
    assert found["profiler_overhead"].saves_ns is None
    assert found["profiler_overhead"].time_ns == overview.parts["profiler"]
    assert found["launch_bound"].saves_ns == overview.parts["launch"]


@pytest.mark.parametrize(("pauses", "functions"), [([1.0, 30.0, 40.0], 3), ([20.0, 30.0, 40.0], 2)])
def test_functions_that_may_work_themselves(tmp_path: Path, pauses: list[float], functions: int) -> None:
    """With short pauses too, or few functions that have long ones."""
    k = Kineto()
    python_between_launches(k, pauses, functions)
    overview = k.write(tmp_path)
    assert overview.parts["profiler"] == 0
    assert "does not show" in advice_of(overview)["profiler_overhead"].evidence


def test_without_frames_nothing_is_the_recorders(tmp_path: Path) -> None:
    k = Kineto()
    for step in range(10):
        k.kernel(step * 1000.0, step * 1000.0 + 10, 5)
    assert list(advice_of(k.write(tmp_path))) == ["launch_bound", "record_shapes"]


def _steps_after(k: Kineto, first: Callable[[float], object]) -> None:
    """Four steps of 10 ms: what the host does first, given their begin in us, then a kernel from 4 ms on."""
    for step in range(4):
        at = step * 10_000.0
        k.add("user_annotation", f"ProfilerStep#{step}", at, 10_000)
        first(at)
        k.kernel(at + 4_020, at + 4_030, 5_960)


@pytest.mark.parametrize(
    ("frame", "cause", "place"),
    [
        ("torch/utils/data/dataloader.py(700): __next__", "data_loading", "__next__ (torch/utils/data/dataloader.py:700)"),
        ("scipy/ndimage.py(7): zoom", "host", "zoom (scipy/ndimage.py:7)"),
    ],
)
def test_only_a_loader_loads_data_and_other_functions_are_named(tmp_path: Path, frame: str, cause: str, place: str) -> None:
    k = Kineto()
    _steps_after(k, lambda at: k.frame(frame, at + 10, 4_000))
    overview = k.write(tmp_path)
    assert overview.parts[cause] >= 4 * 4_000 * US
    kind = {"host": "host_code"}.get(cause, cause)
    assert next(iter(advice_of(overview))) == kind
    assert f"{place}, 4 times" in advice_of(overview)[kind].evidence


@pytest.mark.parametrize(
    ("cat", "name", "place", "do"),
    [
        ("cpu_op", "aten::arange", "4 x aten::arange", "a first call loads its kernels"),
        ("cuda_runtime", "cudaStreamCreate_v3020", "4 x cudaStreamCreate", "once, before the loop"),
        ("python_function", "/tmp/torchinductor_me/ab/cab.py(12): call", "call (ab/cab.py:12)", "size_asserts = False"),
    ],
)
def test_not_everything_can_move_to_another_thread(tmp_path: Path, cat: str, name: str, place: str, do: str) -> None:
    k = Kineto()
    _steps_after(k, lambda at: k.add(cat, name, at + 10, 4_000))
    found = advice_of(k.write(tmp_path))["host_code"]
    assert f"in {place}" in found.evidence and do in found.do


def test_of_a_function_that_only_calls_others_these_are_told(tmp_path: Path) -> None:
    k = Kineto()

    def calls(at: float) -> None:
        k.frame("/home/me/app/model.py(9): forward", at + 10, 4_000)
        k.frame("/home/me/app/hooks.py(3): move", at + 20, 2_400)
        k.frame("/home/me/app/hooks.py(7): check", at + 2_500, 1_400)

    _steps_after(k, calls)
    found = advice_of(k.write(tmp_path))["host_code"]
    assert "in forward (app/model.py:9), 4 times, of it 9.58 ms in move (app/hooks.py:3), 4 times, 5.59 ms" in found.evidence


def test_what_the_recorder_does_between_steps_is_no_place_of_the_program(tmp_path: Path) -> None:
    k = Kineto()
    for step in range(4):
        at = step * 10_000.0
        k.frame("net.py(3): train", at + 5, 9_990)
        k.frame("torch/profiler/profiler.py(700): step", at + 10, 4_000)
        k.frame("<built-in method _disable_profiler>", at + 20, 3_900)
        k.kernel(at + 4_020, at + 4_030, 5_960)
    overview = k.write(tmp_path)
    places = overview.host_places(None)
    assert overview.parts["profiler"] == 3 * 4_000 * US and places is not None  # the window begins with the first kernel
    assert {one.name: one.number for one in places.by_name() if one.own_ns > MS} == {"(recording)": 3}
    assert "host_code" not in advice_of(overview)


def test_pauses_that_grow_within_one_call_are_the_recorders(tmp_path: Path) -> None:
    """The more locals a function has, the longer recording an event in it takes: here from 7 to 84 us."""
    k = Kineto()
    for call in range(4):
        begin = at = call * 2_200.0
        for position in range(40):
            pause = 7 + position * 77 / 39
            at += pause
            k.frame("triton.py(3): run", at, 7)
            k.kernel(at + 1, at + 8, 2)
            at += 7
        k.frame("module.py(9): call", begin, at + 3 - begin)
    overview = k.write(tmp_path)
    assert overview.parts["profiler"] > overview.parts["launch"]  # what pauses have at the begin of a call may be the program's
    assert next(iter(advice_of(overview))) == "profiler_overhead"


def test_on_a_cpu_only_what_names_say_is_known(tmp_path: Path) -> None:
    k = Kineto()
    for step in range(4):
        at = step * 10_000.0
        k.add("cpu_op", "aten::mm", at, 4_000, **{"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]})
        k.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 4_000, 5_000)
    overview = k.write(tmp_path)
    assert (overview.parts["data_loading"], overview.parts["host"]) == (3 * 5 * MS, 3 * MS)
    assert list(advice_of(overview)) == ["data_loading"]


@pytest.mark.parametrize(
    ("op", "kind", "name", "text"),
    [
        ("aten::nonzero", "DtoH", "cudaStreamSynchronize", "torch.where"),
        ("aten::_local_scalar_dense", "DtoH", "cudaStreamSynchronize", ".item()"),
        ("aten::to", "HtoD", "cudaStreamSynchronize", "pin_memory"),
        ("aten::to", "HtoD", "cudaDeviceSynchronize", "torch.cuda.Event"),
    ],
)
def test_what_to_do_depends_on_the_call_that_waits(tmp_path: Path, op: str, kind: str, name: str, text: str) -> None:
    k = Kineto()
    for step in range(10):
        at = step * 2000.0
        k.kernel(at, at + 10, 990)
        k.corr += 1
        k.add("cpu_op", op, at + 20, 1_000, **{"Input Dims": [[64]], "Input type": ["float"]})
        k.add("cuda_runtime", "cudaMemcpyAsync", at + 30, 5, correlation=k.corr)
        copied = {"correlation": k.corr, "device": 0, "stream": 7, "bytes": 8}
        k.add("gpu_memcpy", f"Memcpy {kind} (Device -> Pageable)", at + 1_001, 2, tid=7, **copied)
        k.add("cuda_runtime", name, at + 40, 970, correlation=0)
        k.kernel(at + 1_900, at + 1_910, 80)
    found = advice_of(k.write(tmp_path))["synchronization"]
    assert found.saves_ns == pytest.approx(
        (10 * 907 + 9 * 20) * US, rel=0.01
    )  # the gap behind each wait, and the next one: the host would be ahead
    assert text in found.do


def test_a_cold_iteration_says_that_first(tmp_path: Path) -> None:
    n = Nsys()
    for kernel in range(20):
        at = kernel * 10 * MS
        n.api(at, 1000 + kernel, name="cuLibraryLoadData", took=8 * MS)
        n.kernel(f"{GEMM}_{kernel}", at + 9 * MS, at + 9 * MS + 10 * US, at + 10 * MS)
    assert next(iter(advice_of(overview_of(n, tmp_path)))) == "warmup"


def test_modules_that_load_among_many_steps_are_not_cold(tmp_path: Path) -> None:
    n = Nsys()
    for kernel in range(20):
        at = kernel * 10 * MS
        n.range("step", at, at + 9 * MS)
        n.api(at, 1000 + kernel, name="cuLibraryLoadData", took=8 * MS)
        n.kernel(f"{GEMM}_{kernel}", at + 9 * MS - 10 * US, at + 9 * MS, at + 10 * MS)
    assert "warmup" not in advice_of(overview_of(n, tmp_path))


def test_the_first_of_several_steps_is_cold(tmp_path: Path) -> None:
    n = Nsys()
    n.api(10, 1000, name="cuLibraryLoadData", took=80 * MS)
    for kernel in range(5):
        at = (80 + kernel) * MS if kernel else 0
        n.range("step", at, at + MS // 2)
        n.kernel(GEMM, max(at, 80 * MS) + 30 * US, max(at, 80 * MS) + 40 * US, max(at, 80 * MS) + MS)
    assert next(iter(advice_of(overview_of(n, tmp_path)))) == "warmup"


def test_trials_of_convolutions_are_cold(tmp_path: Path) -> None:
    k = Kineto()
    for layer in range(4):
        at = layer * 1000.0
        dims = [[8, 3, 32, 32], [8, 3, 3, 3], []]
        k.add("cpu_op", "aten::conv2d", at, 900, **{"Input Dims": dims, "Input type": ["float", "float", ""]})
        for trial in range(6):
            k.kernel(at + 10 + 100 * trial, at + 20 + 100 * trial, 90, f"implicit_gemm_{trial}")
    assert next(iter(advice_of(k.write(tmp_path)))) == "warmup"


def test_convolutions_of_several_kernels_that_take_little_are_no_trials(tmp_path: Path) -> None:
    k = Kineto()
    for layer in range(4):
        at = layer * 1000.0
        dims = [[8, 3, 32, 32], [8, 3, 3, 3], []]
        k.add("cpu_op", "aten::conv2d", at, 100, **{"Input Dims": dims, "Input type": ["float", "float", ""]})
        for part in range(6):
            k.kernel(at + 10 * part, at + 100 + 2 * part, 2, f"implicit_gemm_{part}")
        k.kernel(at + 200, at + 210, 700, "void relu_kernel()")
    assert "warmup" not in advice_of(k.write(tmp_path))


def test_modules_that_calls_load_lazily(tmp_path: Path) -> None:
    """nsys has them as overhead of the launch that they lie in."""
    n = Nsys()
    n.kernel(GEMM, 0, 10 * US, 20 * US)
    n.api(40 * US, 2, took=8 * MS)
    n.kernel("other", None, 9 * MS, 9 * MS + 10 * US, corr=2)
    file = n.write(tmp_path / "net.sqlite")
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_OVERHEAD (start, end, globalTid, correlationId, nameId, overheadType)")
        (thread,) = db.execute("SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
        rows = [(50 * US, 3 * MS, thread, 2, 0, 6), (3 * MS, 5 * MS, thread, 2, 0, 3)]  # 3 is the profiler's own
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_OVERHEAD VALUES (?, ?, ?, ?, ?, ?)", rows)
    assert overview_of(file).parts["compilation"] >= 2_950 * US


def test_work_launched_before_the_recording(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 0, 10 * US, 50 * MS)
    n.kernel(GEMM, 20 * US, 60 * MS, 100 * MS)  # launched long before, and nothing that the device did until then is known
    found = advice_of(overview_of(n, tmp_path))
    assert found["lost_records"].time_ns == 10 * MS
    assert found["lost_records"].saves_ns is None
    assert not {"launch_bound", "synchronization"} & found.keys()


def replay(n: Nsys, at: int, sets: int, kernels: int) -> None:
    """One launch of a graph, of whose nodes these are recorded, 100 us apart."""
    n.corr += 1
    n.api(at, n.corr, name="cudaGraphLaunch_v10000")
    corr = n.corr
    for node in range(sets + kernels):
        begin = at + 20 * US + node * 100 * US
        if node < sets:
            n.rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append((begin, begin + US, 0, 7, corr, tid() & ~0xFFFFFF, 4, 8, None, None))
        else:
            n.kernel(GEMM, None, begin, begin + US, corr=corr)


def test_replays_whose_kernels_are_missing(tmp_path: Path) -> None:
    n = Nsys()
    for step in range(5):
        replay(n, step * 3 * MS, 18, 1)
    overview = overview_of(n, tmp_path)
    assert overview.parts["launch"] == overview.parts["synchronization"] == 0
    assert overview.parts["unrecorded"] > 0.95 * overview.division.wall_ns
    found = advice_of(overview)
    assert "lost_records" in found and "graph_nodes" in found
    assert not [one for one in found.values() if one.saves_ns]


def test_graphs_as_wholes(tmp_path: Path) -> None:
    n = Nsys()
    for step in range(5):
        n.corr += 1
        n.api(step * MS, n.corr, name="cudaGraphLaunch_v10000")
        n.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append((step * MS, step * MS + MS, 0, 7, n.corr, tid() & ~0xFFFFFF, 3))
    found = advice_of(overview_of(n, tmp_path))
    assert list(found) == ["graph_nodes"]
    assert found["graph_nodes"].do.startswith("nsys profile --cuda-graph-trace=node")


def test_kernels_of_backward_without_markers(tmp_path: Path) -> None:
    n = Nsys()
    n.range('linear(fp32[64,64], fp32[64,64], None) #pyprof{"mod":"torch.nn.functional"}', 0, 100)
    n.kernel(GEMM, 10, 200, 1200)
    n.kernel(GEMM, 1000, 1300, 3300, thread=8)
    assert list(advice_of(overview_of(n, tmp_path))) == ["backward_markers"]


def test_kernels_outside_of_ops_are_named_by_their_caller(tmp_path: Path) -> None:
    k = Kineto()
    k.add("cpu_op", "aten::empty", 0, 5, **{"Input Dims": [[8, 8]], "Input type": ["float"]})
    k.frame("net.py(18): my_matmul", 5, 2000)
    k.kernel(10, 20, 1000, "matmul_k(float*, int)")
    found = advice_of(k.write(tmp_path))
    assert list(found) == ["name_kernels"] and "net.py:18" in found["name_kernels"].evidence
    assert all(word in found["name_kernels"].do for word in ("record_function", "custom_op", "pyprof.wrap", "formula"))


def test_ops_without_shapes(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, seq = 3, op_id = 5", 0, 100)
    n.kernel(GEMM, 10, 200, 1200)
    found = advice_of(overview_of(n, tmp_path))
    assert list(found) == ["record_shapes"]
    assert "emit_nvtx(record_shapes=True)" in found["record_shapes"].do


def test_graphs_whose_capture_is_not_beside(captures: Path, tmp_path: Path) -> None:
    alone = tmp_path / "net.json.gz"
    alone.symlink_to(captures / "kineto/serving/vllm_decode_full.run.json.gz")
    found = advice_of(overview_of(alone))
    assert "graph_nodes" in found and not {"warmup", "profiler_overhead"} & found.keys()


def test_a_cold_capture_of_norms(captures: Path) -> None:
    assert next(iter(advice_of(overview_of(captures / "kineto/normalization_layers.json.gz")))) == "warmup"
