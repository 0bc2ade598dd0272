"""CUDA graphs: each replay is an execution of its own, in the step that launched it, under the ranges that recorded its nodes."""

from pathlib import Path

from pyprof.loading.load import load_capture
from pyprof.model.records import Records
from tests.tiny import Nsys, tid

GEMM, ADD = "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4>(int)"


def load(capture: Nsys, path: Path, shuffle: int | None = None) -> Records:
    return load_capture(capture.write(path / "net.sqlite", shuffle=shuffle))


def node(capture: Nsys, start: int, number: int, origin: int | None = None, pid: int = 7, thread: int | None = None) -> None:
    capture.rows["CUDA_GRAPH_NODE_EVENTS"].append((start, start + 1, tid(pid, thread), number, origin))


def replay(capture: Nsys, launch: int, corr: int, *kernels: tuple[str, int, int], pid: int = 7) -> None:
    """A launch of a graph and its kernels: (name, begin, node)."""
    capture.api(launch, corr, pid=pid, name="cudaGraphLaunch_v10000")
    for name, start, number in kernels:
        capture.kernel(name, None, start, start + 10, corr=corr, node=number, pid=pid)


def op(records: Records, row: int) -> str:
    code = int(records["call"][row])
    return records.calls[code].op if code >= 0 else ""


def ops(records: Records) -> list[str]:
    return [op(records, row) for row in range(len(records))]


def test_of_a_node_told_twice_the_first_recording_counts_and_clones_of_clones_lead_back(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1", 10, 50)
    n.range("aten::add, op_id = 2", 60, 90)
    node(n, 70, 500)
    node(n, 20, 500)
    node(n, 80, 501, 500)
    node(n, 85, 502, 501)
    node(n, 86, 503, 504)  # a circle
    node(n, 87, 504, 503)
    replay(n, 1000, 40, (GEMM, 1100, 502), (ADD, 1200, 503))
    for shuffle in (None, 1, 2):
        found = load(n, tmp_path, shuffle)
        assert ops(found)[0] == "mm" and ops(found)[1] == "add"
