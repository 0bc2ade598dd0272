"""Which API calls make the host wait for the device."""

from pathlib import Path

import pytest

from pyprof.loading.load import open_trace
from pyprof.parse.attribution.host import calls_of
from pyprof.parse.attribution.launches import launch_of_activity
from tests.tiny import Nsys, tid


def waits(path: Path, *calls: tuple[str, int, int]) -> list[bool]:
    n = Nsys()
    for number, (name, start, end) in enumerate(calls):
        row = (start, end, tid(), 100 + number, n.string(name))
        n.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(row)
    n.range("x", 0, 5)
    n.kernel("k", 1, 2, 3)
    trace = open_trace(n.write(path / "net.sqlite"))
    found = calls_of(trace, launch_of_activity(trace))
    by_name = {trace.strings[name]: wait for name, wait in zip(found.name.tolist(), found.waits.tolist(), strict=True)}
    return [by_name[name] for name, _, _ in calls]


@pytest.mark.parametrize(
    "name",
    [
        "cudaDeviceSynchronize", "cudaStreamSynchronize_v3020", "cudaStreamSynchronize_ptsz_v7000", "cudaEventSynchronize_v3020",
        "cuCtxSynchronize", "cuStreamSynchronize", "cudaMemcpy_v3020", "cudaMemcpy2D", "cuMemcpyDtoH_v2", "cudaFree_v3020",
        "cuMemFree_v2", "hipDeviceSynchronize", "hipStreamSynchronize", "hipMemcpy", "cudaThreadSynchronize_v3020",
    ],
)  # fmt: skip
def test_calls_that_wait(tmp_path: Path, name: str) -> None:
    assert waits(tmp_path, (name, 10, 20)) == [True]


@pytest.mark.parametrize(
    "name",
    [
        "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cuMemcpyDtoHAsync_v2", "cudaMemcpy2DAsync", "cudaMemcpyBatchAsync",
        "cudaFreeAsync", "cudaFreeHost", "cudaStreamWaitEvent", "cudaEventQuery", "cudaEventRecord_v3020", "cudaMemsetAsync",
        "hipMemcpyAsync", "cudaStreamIsCapturing_v10000", "cuMemFreeAsync", "cudaMalloc",
    ],
)  # fmt: skip
def test_calls_that_do_not(tmp_path: Path, name: str) -> None:
    assert waits(tmp_path, (name, 10, 20)) == [False]


@pytest.mark.parametrize(("end", "waited"), [(60, True), (40, False)])
def test_an_asynchronous_copy_that_had_run_when_the_call_returned(tmp_path: Path, end: int, waited: bool) -> None:
    n = Nsys()
    n.copy(2, 10, 30, 50)
    api = n.rows["CUPTI_ACTIVITY_KIND_RUNTIME"]
    api[-1] = (10, end, *api[-1][2:])
    trace = open_trace(n.write(tmp_path / "net.sqlite"))
    assert calls_of(trace, launch_of_activity(trace)).waits.tolist() == [waited]
