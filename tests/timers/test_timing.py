"""pyprof.timeit: the calls it makes, the numbers it takes from them, and the device it takes them on."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyprof
from pyprof.errors import ToolError, UsageError
from pyprof.timers import timing
from pyprof.timers.timing import Timing, cache_bytes, quantile, timeit

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    assert quantile(tuple(values), share) == pytest.approx(float(np.quantile(values, share)))


def test_what_a_timing_says() -> None:
    found = Timing("cuda:0", (4e-6, 1e-6, 2e-6, 3e-6, 5e-6), (1e-6,) * 5, {"gemm": 2, "Memset": 1})
    assert (found.median_s, found.best_s, found.launches, found.host_bound) == (3e-6, 1e-6, 3, False)
    assert found.spread == pytest.approx(2 / 3) and found.p99_s == pytest.approx(4.96e-6)
    assert str(found) == "3.0 us median, 5.0 p99, spread 67 %, 5 calls, 3 launches on cuda:0"
    late = Timing("cuda:0", (1e-6,), (9e-6,), {"gemm": 1})
    assert late.host_bound and str(late).endswith("1 launch on cuda:0, host-bound: 9.0 us to launch")
    assert not Timing("cpu", (1e-6,), (1e-6,)).host_bound and Timing("cpu", (1e-6,), (1e-6,)).launches is None


def test_calls_and_ops_on_the_cpu() -> None:
    made: list[tuple[int, ...]] = []

    def work(left: Any, right: Any) -> Any:
        made.append(tuple(left.shape))
        return torch.relu(left @ right) + 1

    found = pyprof.timeit(work, torch.ones(4, 8), torch.ones(8, 2), calls=12, warmup=0)
    assert (found.device, len(found.times_s), len(made)) == ("cpu", 12, 3 + 12 + 1)
    assert found.launched == {"aten::matmul": 1, "aten::relu": 1, "aten::add": 1} and found.launches == 3
    assert min(found.times_s) > 0 and found.host_s == found.times_s


def test_the_number_of_calls_follows_from_the_time() -> None:
    assert len(timeit(lambda: None, seconds=1e-9, warmup=0, launches=False).times_s) == 10
    assert len(timeit(lambda: None, seconds=100, warmup=0, flush=False, launches=False).times_s) == 10_000


def test_the_cache_is_flushed_before_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(torch, "zeros", lambda *a, **k: SimpleNamespace(add_=lambda one: order.append("flush")))
    timeit(order.append, "call", calls=2, warmup=0, launches=False)
    assert order == ["flush", "call"] * 5


def test_nothing_is_counted_while_another_recording_runs() -> None:
    with torch.profiler.profile():
        assert timeit(lambda: None, calls=1, warmup=0, flush=False).launched is None


def test_an_exception_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        timeit(lambda: 1 // 0)


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"calls": 0}, {"warmup": -1}, {"device": "tpu"}])
def test_what_measures_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"pyprof\.timeit"):
        timeit(lambda: None, **wrong)


def test_no_gpu_is_said() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ToolError, match="no GPU here"):
        timeit(lambda: None, device="cuda")


def test_the_last_cache(tmp_path: Path) -> None:
    for index, (level, size) in enumerate([("1", "48K"), ("2", "2048K"), ("3", "33M"), ("x", "1K"), ("4", "huge")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
    assert cache_bytes(str(tmp_path)) == 33 << 20 and cache_bytes(str(tmp_path / "none")) is None


class Gpu:
    """A torch.cuda on which each call takes 3 us; keeps what was asked of it."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.clock_ms = 0.0

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 2

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(L2_cache_size=50 << 20)

    def device(self, index: int) -> Any:
        self.order.append(f"device {index}")
        return nullcontext()

    def synchronize(self) -> None:
        self.order.append("synchronize")

    def _sleep(self, cycles: int) -> None:
        assert 20_000 <= cycles <= 4_000_000  # 10 us for the events at least, 2 ms at most
        self.order.append("sleep")

    def Event(self, enable_timing: bool) -> Any:
        event = SimpleNamespace(at=0.0)

        def record() -> None:
            self.order.append("record")
            event.at = self.clock_ms

        event.record = record
        event.elapsed_time = lambda end: end.at - event.at
        return event


def test_events_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, buffers = Gpu(), []

    def empty(size: int, *, dtype: Any, device: str) -> Any:
        buffers.append((size, device))
        return SimpleNamespace(zero_=lambda: gpu.order.append("flush"))

    def work() -> None:
        gpu.order.append("call")
        gpu.clock_ms += 0.003

    fake = SimpleNamespace(cuda=gpu, device=torch.device, empty=empty, int8=torch.int8, Tensor=torch.Tensor, nn=torch.nn)
    monkeypatch.setattr(timing, "torch_for", lambda _: fake)
    found = timeit(work, device="cuda", calls=2, warmup=0, launches=False)
    assert found.device == "cuda:2" and found.times_s == pytest.approx((3e-6, 3e-6)) and buffers == [(100 << 20, "cuda:2")]
    call = ["record", "call", "record"]
    first, later = ["flush", *call, "synchronize"], ["flush", "sleep", *call]
    assert gpu.order == ["device 2", *first, *[*later, "synchronize"] * 2, *later * 2, "synchronize"]


def test_the_device_is_where_the_arguments_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    cuda = torch.device("cuda", 1)
    there = SimpleNamespace(Tensor=SimpleNamespace, nn=torch.nn, cuda=torch.cuda)
    tensor = SimpleNamespace(device=cuda)
    assert timing._device(there, [1, [(tensor,)]]) == "cuda:1"
    assert timing._device(torch, [torch.ones(1)]) == timing._device(torch, [torch.nn.Linear(1, 1)]) == "cpu"
    assert timing._device(torch, []) == "cuda"
