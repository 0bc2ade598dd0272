"""Causes of idle time and the advice on it, on captures whose truth is on the screen, and on real ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyprof.prof.frame import Frame
from pyprof.report.advice.base import Advice
from pyprof.report.advice.kinds import advise
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from tests.timeline import overview_of
from tests.tiny import Nsys

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
MS = 1_000_000
US = 1_000
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def alone(overview: Overview) -> Overview:
    """The same records without what their capture says of its host, as of a .jsonl."""
    return Overview(Frame(replace(overview.records, host=None, steps=None)))


def idle(overview: Overview) -> dict[str, int]:
    return {cause: time for cause in CAUSES if (time := overview.parts[cause])}


def advice(overview: Overview) -> dict[str, Advice]:
    return {one.kind: one for one in advise(overview) if one.saves_ns is not None}


def loads(n: Nsys, range_name: str | None, steps: int = 4, wait: int = 6 * MS) -> None:
    """Steps of 10 ms: the host prepares a batch, then copies it and launches a kernel of 4 ms."""
    for step in range(steps):
        at = step * 10 * MS
        n.range("step", at, at + 9 * MS)
        if range_name is not None:
            n.range(range_name, at, at + wait)
        n.copy(1, at + wait, at + wait + 10 * US, at + wait + 20 * US, bytes=1 << 20)
        n.kernel(GEMM, at + wait + 5 * US, at + wait + 20 * US, at + wait + 4 * MS)


def test_idle_while_a_loader_loads(tmp_path: Path) -> None:
    n = Nsys()
    loads(n, LOADER)
    overview = overview_of(n, tmp_path)
    assert idle(overview) == {"data_loading": 4 * 6 * MS, "launch": 3 * 10 * US, "host": 10 * US}  # before the first of all
    found = advice(overview)
    assert list(found) == ["data_loading"]
    assert found["data_loading"].saves_ns == 24 * MS
    assert found["data_loading"].evidence.startswith("4 gaps of 6.00 ms in which the host is in a DataLoader without workers")
    assert "num_workers=3," in found["data_loading"].do  # 1.5 times as long as all else, and one more


def test_of_two_kinds_of_loaders_the_one_that_takes_longer_is_named(tmp_path: Path) -> None:
    n = Nsys()
    loads(n, LOADER.replace("_SingleProcess", "_MultiProcessing"))
    n.range(LOADER, 30 * MS + 100, 30 * MS + 200)
    assert "waits for the workers of a DataLoader" in advice(overview_of(n, tmp_path))["data_loading"].evidence


def test_a_pause_before_a_copy_is_the_hosts_where_no_loader_is_seen(tmp_path: Path) -> None:
    n = Nsys()
    loads(n, None)
    overview = overview_of(n, tmp_path)
    assert idle(overview)["host"] > 23 * MS and "data_loading" not in idle(overview)
    assert list(advice(overview)) == ["host_code"]


@pytest.mark.parametrize("name", ["IO", "stream_weights_"])
def test_a_users_range_is_the_place(tmp_path: Path, name: str) -> None:
    n = Nsys()
    for step in range(4):
        at = step * 10 * MS
        n.range(f"step {step}", at, at + 9 * MS)
        n.range(f"{name}{step}", at + MS, at + 6 * MS)
        n.copy(1, at + 6 * MS, at + 6 * MS + 10 * US, at + 6 * MS + 20 * US, bytes=1 << 20)
        n.kernel(GEMM, at + 6 * MS + 5 * US, at + 6 * MS + 20 * US, at + 10 * MS)
    overview = overview_of(n, tmp_path)
    found, places = advice(overview)["host_code"], overview.host_places("host")
    assert places is not None and (place := places.deepest()) is not None
    assert (place.kind, place.name, place.number) == ("range", name.rstrip("_"), 4)
    assert place.own_ns == pytest.approx(4 * 5 * MS, rel=0.01)
    assert places.total_ns == overview.parts["host"] * overview.division.count
    assert f"20.0 ms in 4 x {name.rstrip('_')} (in step)" in found.evidence
    assert ("another stream" in found.do) == ("weights" in name)


def test_what_follows_a_loaders_call_is_no_longer_its(tmp_path: Path) -> None:
    n = Nsys()
    for step in range(4):
        at = step * 10 * MS
        n.range(LOADER, at, at + 4 * MS)  # more than half of the pause
        n.copy(1, at + 7 * MS, at + 7 * MS + 10 * US, at + 7 * MS + 20 * US, bytes=1 << 20)
        n.kernel(GEMM, at + 7 * MS + 5 * US, at + 7 * MS + 20 * US, at + 10 * MS)
    found = idle(overview_of(n, tmp_path))
    assert found["data_loading"] == 3 * 4 * MS  # the window begins with the first copy
    assert found["host"] > 8 * MS and found.get("launch", 0) < MS


def test_loading_behind_work_of_the_device_goes_too(tmp_path: Path) -> None:
    """Of 6 ms of loading the device computes in 4: a faster device gains nothing, but where loading is gone all that it saves."""
    n = Nsys()
    n.kernel(GEMM, 0, 10 * US, 10 * US + 4 * MS)
    for step in range(1, 9):
        at = step * 6 * MS
        n.range(LOADER, at - 6 * MS + 20 * US, at)
        n.kernel(GEMM, at, at + 10 * US, at + 10 * US + 4 * MS)
    overview = overview_of(n, tmp_path)
    loading, faster = advice(overview)["data_loading"], Change(rows=np.arange(9), cut_ns=np.full(9, 2 * MS))
    assert loading.saves_ns == pytest.approx(8 * 2 * MS, rel=0.02) and loading.change is not None
    both = overview.replay.saves_ns(loading.change, faster)
    assert overview.replay.saves_ns(faster) == 2 * MS  # of the last one
    assert both - (loading.saves_ns or 0) == pytest.approx(9 * 2 * MS, rel=0.02)


def test_calls_of_threads_that_launch_nothing_do_not_break_a_pause(tmp_path: Path) -> None:
    n = Nsys()
    loads(n, None)
    for at in range(0, 40 * MS, 300 * US):
        n.api(at, 90_000 + at, thread=99, name="cudaHostAlloc_v3020", took=100 * US)
    assert idle(overview_of(n, tmp_path))["host"] > 23 * MS


def test_a_pause_before_a_kernel_is_no_loading(tmp_path: Path) -> None:
    n = Nsys()
    for step in range(4):
        at = step * 10 * MS
        n.range("step", at, at + 9 * MS)
        n.kernel(GEMM, at + 6 * MS, at + 6 * MS + 20 * US, at + 10 * MS)
    overview = overview_of(n, tmp_path)
    assert idle(overview)["host"] > 23 * MS
    assert list(advice(overview)) == ["host_code"]


def test_a_loader_beside_a_busy_device_costs_nothing(tmp_path: Path) -> None:
    n = Nsys()
    for step in range(4):
        at = step * 10 * MS
        n.range("step", at, at + 9 * MS)
        n.range(LOADER, at, at + 6 * MS)
        n.kernel(GEMM, at + 6 * MS, at + 10 * MS if step else 6 * MS + 10 * US, at + 20 * MS)
    overview = overview_of(n, tmp_path)
    assert idle(overview) == {"data_loading": 6 * MS, "host": 10 * US}  # before the first kernel


@pytest.mark.parametrize(("pause", "cause"), [(3 * MS, "compilation"), (MS, "launch")])
def test_a_pause_before_a_module_is_loaded_made_it(tmp_path: Path, pause: int, cause: str) -> None:
    n = Nsys()
    n.kernel(GEMM, 0, 10 * US, 20 * US)
    n.api(20 * US + pause, 90, name="cuModuleLoadData", took=500 * US)
    at = 530 * US + pause
    n.kernel("triton_poi_fused_add_0", at, at + 10 * US, at + 20 * US)
    assert idle(overview_of(n, tmp_path))[cause] >= pause


def test_a_thread_that_loads_ahead_holds_nobody_up(tmp_path: Path) -> None:
    n = Nsys()
    launches(n, 100, 50 * US, 5 * US)
    n.range(LOADER, 0, 5 * MS, thread=99)
    assert idle(overview_of(n, tmp_path)) == {"launch": 99 * 45 * US}


def reads_back(n: Nsys, times: int, pause: int, loader: int = 0) -> None:
    """A kernel of 1 ms, then .item(), then the host needs a while for the next launch."""
    at = 0
    for _ in range(times):
        n.kernel(GEMM, at, at + 10 * US, at + MS)
        n.copy(2, at + 20 * US, at + MS, at + MS + 2 * US)
        n.corr += 1
        n.api(at + 30 * US, n.corr, name="cudaStreamSynchronize_v3020", took=MS)  # returns 28 us after the copy
        if loader:
            n.range(LOADER, at + MS + 40 * US, at + MS + 40 * US + loader)
        at += MS + 30 * US + pause + loader
    n.kernel(GEMM, at, at + 10 * US, at + MS)


def test_a_call_that_waits_drains_the_device(tmp_path: Path) -> None:
    n = Nsys()
    reads_back(n, 10, 200 * US)
    overview = overview_of(n, tmp_path)
    assert idle(overview) == {"synchronization": 10 * (28 + 200 + 10) * US}
    found = advice(overview)
    assert list(found) == ["synchronization"]
    assert "10 calls" in found["synchronization"].evidence
    assert "for a copy of 4 bytes" in found["synchronization"].evidence
    assert ".item()" in found["synchronization"].do


def test_a_pause_after_a_wait_is_no_longer_its(tmp_path: Path) -> None:
    """A millisecond without a call is more than the next launch takes: a range of the user says where it goes."""
    n = Nsys()
    reads_back(n, 10, 1_200 * US)
    for step in range(10):
        begin = step * (MS + 1_230 * US) + MS + 40 * US
        n.range(f"load layer_{step}_weights", begin, begin + 1_150 * US)
    overview = overview_of(n, tmp_path)
    assert idle(overview) == {"synchronization": 10 * 28 * US, "host": 10 * 1_200 * US, "launch": 10 * 10 * US}
    assert "in 10 x load layer_*_weights" in advice(overview)["host_code"].evidence


def test_two_causes_of_one_gap_save_both(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 0, 10 * US, 20 * US)
    n.range(LOADER, 30 * US, 30 * US + 6 * MS)
    n.kernel(GEMM, 10 * MS, 10 * MS + 10 * US, 10 * MS + 20 * US)
    found = advice(overview_of(n, tmp_path))
    assert [found[kind].saves_ns // MS for kind in ("data_loading", "host_code")] == [6, 3]  # type: ignore[operator]
    assert found["data_loading"].saves_ns + found["host_code"].saves_ns <= 10 * MS  # type: ignore[operator]


def test_records_alone_know_a_small_copy_to_the_host(tmp_path: Path) -> None:
    n = Nsys()
    reads_back(n, 10, 200 * US)
    overview = alone(overview_of(n, tmp_path))
    assert idle(overview) == {"synchronization": 10 * (28 + 200 + 10) * US}
    assert "small copy to the host" in advice(overview)["synchronization"].evidence


def test_what_a_loader_takes_after_a_wait_is_the_loaders(tmp_path: Path) -> None:
    n = Nsys()
    reads_back(n, 10, 200 * US, loader=3 * MS)
    overview = overview_of(n, tmp_path)
    assert idle(overview) == {"data_loading": 30 * MS, "synchronization": 10 * (28 + 200 + 10) * US}
    assert list(advice(overview)) == ["data_loading", "synchronization"]


def test_waiting_for_a_busy_device_costs_nothing(tmp_path: Path) -> None:
    """torch.cuda.synchronize() behind 50 ms of work, whose launches were all in time."""
    n = Nsys()
    for step in range(4):
        at = step * 50 * MS
        for kernel in range(50):
            n.kernel(GEMM, at + kernel * 10 * US, at + 20 * US + kernel * MS, at + 20 * US + (kernel + 1) * MS - US)
        n.corr += 1
        n.api(at + 500 * US, n.corr, name="cudaDeviceSynchronize_v3020", took=50 * MS - 490 * US)
    overview = overview_of(n, tmp_path)
    assert not advice(overview)


def test_waits_of_a_thread_that_launches_nothing_hold_nobody_up(tmp_path: Path) -> None:
    n = Nsys()
    launches(n, 100, 50 * US, 5 * US)
    n.corr += 1
    n.api(0, n.corr, thread=99, name="cudaEventSynchronize_v3020", took=2 * MS)
    assert idle(overview_of(n, tmp_path)) == {"launch": 99 * 45 * US}


def test_later_gaps_are_the_waits_as_far_as_the_host_would_have_been_ahead(tmp_path: Path) -> None:
    """After 10 ms of waiting nine short kernels are launched too late; with 10 ms more they would all have been in time."""
    n = Nsys()
    at = 0
    for _ in range(3):
        n.kernel(GEMM, at, at + 10 * US, at + 10 * MS)
        n.corr += 1
        n.api(at + 20 * US, n.corr, name="cudaStreamSynchronize_v3020", took=10 * MS)
        at += 10 * MS + 20 * US
        for _ in range(9):
            at += 100 * US
            n.kernel("small", at, at + 10 * US, at + 20 * US)
        at += 100 * US
    overview = overview_of(n, tmp_path)
    assert idle(overview)["synchronization"] >= 0.99 * overview.idle_ns
    assert list(advice(overview)) == ["synchronization"]


def test_records_alone_do_not_show_what_the_host_did_while_it_launched_nothing(tmp_path: Path) -> None:
    n = Nsys()
    at = 0
    for _ in range(5):
        n.kernel(GEMM, at, at + 10 * US, at + 3 * MS)
        at += 3 * MS + 200 * US  # a wait, or anything else
        for _ in range(5):
            n.kernel("small", at, at + 10 * US, at + 20 * US)
            at += 100 * US
    overview = alone(overview_of(n, tmp_path))
    assert idle(overview)["unknown"] > 0.95 * overview.idle_ns
    assert not advice(overview)


def launches(n: Nsys, number: int, every: int, time: int) -> None:
    for kernel in range(number):
        n.kernel(GEMM, kernel * every, kernel * every + 10 * US, kernel * every + 10 * US + time)


def test_launching_one_after_another(tmp_path: Path) -> None:
    n = Nsys()
    launches(n, 100, 50 * US, 5 * US)
    found = advice(overview_of(n, tmp_path))
    assert list(found) == ["launch_bound"]
    assert found["launch_bound"].saves_ns == pytest.approx(99 * 45 * US, rel=0.01)


def test_few_late_launches_are_no_advice(tmp_path: Path) -> None:
    n = Nsys()
    launches(n, 100, 50 * US, 49 * US)
    assert not advice(overview_of(n, tmp_path))


def test_memory_and_modules(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 0, 10 * US, 20 * US)
    n.api(30 * US, 90, name="cudaMalloc_v3020", took=5 * MS)
    n.kernel(GEMM, 6 * MS, 6 * MS + 10 * US, 6 * MS + 20 * US)
    n.api(6 * MS + 30 * US, 91, name="cuModuleLoadData", took=4 * MS)
    n.kernel(GEMM, 11 * MS, 11 * MS + 10 * US, 11 * MS + 20 * US)
    found = idle(overview_of(n, tmp_path))
    assert (found["allocation"], found["compilation"]) == (5 * MS, 4 * MS)


def test_the_first_launch_of_a_kernel_loads_its_module(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 0, 10 * US, 20 * US)
    for at in (1 * MS, 8 * MS):  # the second such call is not the first of its kernel
        n.corr += 1
        n.api(at, n.corr, took=5 * MS)
        n.kernel("other", None, at + 5 * MS + 10 * US, at + 5 * MS + 20 * US, corr=n.corr)
    found = idle(overview_of(n, tmp_path))
    assert 4.9 * MS < found["compilation"] <= 5 * MS


def frees(n: Nsys, times: int) -> None:
    """Kernels of 1 ms, each behind 3 ms in which the host frees and allocates."""
    for step in range(times):
        at = step * 4 * MS
        n.api(at, 10_000 + step, name="cudaFree_v3020", took=3 * MS - 20 * US)
        n.kernel(GEMM, at + 3 * MS - 10 * US, at + 3 * MS, at + 4 * MS)


def test_memory_freed_again_and_again_drains_the_device(tmp_path: Path) -> None:
    n = Nsys()
    frees(n, 12)
    found = advice(overview_of(n, tmp_path))
    assert list(found) == ["allocation"] and "11 x cudaFree, " in found["allocation"].evidence
    assert 32 * MS < (found["allocation"].saves_ns or 0) <= 33 * MS
    assert found["allocation"].do.startswith("keep memory in PyTorch's cache")  # kernels of libraries alone say no other


def test_freeing_waits_for_the_device_and_takes_time_itself(tmp_path: Path) -> None:
    """After each kernel of 1 ms three calls that free: with a cache neither the wait nor the freeing is left."""
    n, at = Nsys(), 0
    for _ in range(10):
        n.kernel(GEMM, at, at + 10 * US, at + MS)
        for begin, end in ((20 * US, 2 * MS), (2 * MS + 5 * US, 3 * MS), (3 * MS + 5 * US, 4 * MS)):
            n.corr += 1
            n.api(at + begin, n.corr, name="cudaFree_v3020", took=end - begin)
        at += 4 * MS + 10 * US
    n.kernel(GEMM, at, at + 10 * US, at + MS)
    overview = overview_of(n, tmp_path)
    assert advice(overview)["allocation"].saves_ns == pytest.approx(10 * 3 * MS, rel=0.02)


def test_preparing_the_step_of_an_engine_is_no_data_loading(tmp_path: Path) -> None:
    n = Nsys()
    n.rows["ANALYSIS_DETAILS"] = [(100 * MS,)]  # the end of the recording: these ranges were closed
    for step in range(4):
        at = step * 10 * MS
        n.range("execute_context_1(8)_generation_0(0)", at, at + 9 * MS)
        n.copy(1, at + 6 * MS, at + 6 * MS + 10 * US, at + 6 * MS + 20 * US, bytes=1 << 20)
        n.kernel(GEMM, at + 6 * MS + 5 * US, at + 6 * MS + 20 * US, at + 10 * MS)
    overview = overview_of(n, tmp_path)
    assert idle(overview)["host"] > 23 * MS and "data_loading" not in idle(overview)


@pytest.mark.parametrize(("ops", "cause"), [(True, "launch"), (False, "host")])
def test_ops_that_launch_nothing_are_no_pause(tmp_path: Path, ops: bool, cause: str) -> None:
    n = Nsys()
    for step in range(4):
        at = step * 10 * MS
        for view in range(60 * ops):
            n.range("aten::view", at + view * 100 * US, at + view * 100 * US + 50 * US)
        n.kernel(GEMM, at + 6 * MS, at + 6 * MS + 20 * US, at + 10 * MS)
    assert idle(overview_of(n, tmp_path))[cause] > 17 * MS
