"""`method="mode"`: ops told without a function of torch replaced."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from nvtx_recording import Recorder
from torch.overrides import TorchFunctionMode, _len_torch_function_stack

from pyprof import nvtx as instrumenter
from pyprof.errors import UsageError


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    found = Recorder()
    instrumenter.init(backend=found, method="mode")
    yield found
    instrumenter.shutdown()
    assert found.open == 0
    assert _len_torch_function_stack() == 0


def test_no_function_of_torch_is_replaced() -> None:
    functions = (torch.add, torch.Tensor.add, F.linear, torch.Tensor.__getitem__, torch._C._nn.gelu)
    before = [*functions]
    instrumenter.init(backend=Recorder(), method="mode")
    now = (torch.add, torch.Tensor.add, F.linear, torch.Tensor.__getitem__, torch._C._nn.gelu)
    assert all(a is b for a, b in zip(before, now, strict=True))


def test_ops_layers_and_lines_are_told(recorder: Recorder) -> None:
    x, net = torch.ones(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2))
    recorder.clear()
    torch.add(x, 1)
    F.relu(x)
    net(x)
    assert recorder.ops() == ["torch.add", "torch.nn.functional.relu", "torch.nn.functional.linear"]
    assert recorder.calls()[0] == "add(fp32[2,2], 1)"
    assert recorder.layers() == ["Sequential", "0"]
    assert "test_mode.py" in recorder.markers[0].src[0]


def test_threads_that_begin_later_are_told(recorder: Recorder) -> None:
    x = torch.ones(3)
    recorder.clear()
    threads = [threading.Thread(target=lambda: [x.mul(2) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.ops() == ["Tensor.mul"] * 200


def test_modes_of_the_program_come_and_go_around_ours() -> None:
    log: list[str] = []

    class Theirs(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append(func.__name__)
            return func(*args, **(kwargs or {}))

    found = Recorder()
    with Theirs():
        instrumenter.init(backend=found, method="mode")
        torch.ones(1)
    torch.ones(2)
    with Theirs():
        instrumenter.shutdown()
        torch.ones(3)
    assert log == ["ones", "ones"]
    assert found.calls() == ["ones(1)", "ones(2)"]
    assert _len_torch_function_stack() == 0


def test_the_default_device_is_heeded(recorder: Recorder) -> None:
    torch.set_default_device("meta")
    try:
        assert torch.empty(2).is_meta
        # Up to torch 2.4 a default device that is set later is seen before the mode, as an argument.
        assert {"empty(2)", 'empty(2, device="meta")'} & {*recorder.calls()}
    finally:
        torch.set_default_device(None)


def test_compile_is_one_graph(recorder: Recorder) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net, x = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU()), torch.ones(1, 2)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    results = [compiled(x)]
    instrumenter.pause()
    results.append(compiled(x))
    instrumenter.resume()
    assert all(torch.equal(net(x), result) for result in [*results, compiled(x)])
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_the_method_can_be_changed() -> None:
    found, orig = Recorder(), torch.add
    instrumenter.init(backend=found)
    assert torch.add is not orig
    instrumenter.init(backend=found, method="mode")
    assert torch.add is orig
    with instrumenter.instrument(backend=found):
        assert torch.add is orig
        torch.ones(1)
    assert found.calls() == ["ones(1)"]
    with pytest.raises(UsageError, match="magic"):
        instrumenter.init(method="magic")
