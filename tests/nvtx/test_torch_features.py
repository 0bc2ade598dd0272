"""Every corner of torch works as without the instrumenter, with the same results."""

import operator
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from nvtx_recording import Recorder
from torch import nn

from pyprof import nvtx as instrumenter


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.n = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.n(self.b(self.a(x)) + x)
        return torch.cat([y, y], 0)[1:].softmax(-1) * 2.0


@pytest.fixture
def fresh_compiler() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_is_one_graph_without_recompiling_when_toggled(recorder: Recorder, backend: str) -> None:
    net, x = Net(), torch.randn(4, 8)
    expected = net(x)
    compiled = torch.compile(net, fullgraph=True, backend=backend)
    assert torch.equal(compiled(x), expected)
    instrumenter.pause()
    assert torch.equal(compiled(x), expected)
    instrumenter.resume()
    assert torch.equal(compiled(x), expected)
    stats = torch._dynamo.utils.counters["stats"]
    assert stats["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.usefixtures("fresh_compiler")
def test_compile_a_function_with_ops_that_dynamo_treats_specially(recorder: Recorder) -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, w) + torch.full((8,), 2.0) - 1**x
        y = torch.addcdiv(y, x, x * x + 3) @ w.t()
        return y + F.one_hot(torch.arange(8), 8) + torch.numel(y) + x.shape[0]

    x = torch.randn(8, 8)
    assert torch.equal(torch.compile(run, fullgraph=True, backend="eager")(x, x), run(x, x))
    torch._dynamo.reset()
    instrumenter.shutdown()
    assert torch.equal(torch.compile(run, fullgraph=True, backend="eager")(x, x), run(x, x))


@pytest.mark.usefixtures("fresh_compiler")
def test_compile_with_a_graph_break_and_of_a_single_op(recorder: Recorder) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return torch.mul(x, 2).relu()

    x = torch.randn(3)
    assert torch.equal(torch.compile(run, backend="eager")(x), run(x))
    assert torch.equal(torch.compile(torch.add, backend="eager")(x, x), x + x)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("patched_before", [True, False])
def test_compile_sees_functions_passed_kept_and_compared(patched_before: bool) -> None:
    from functools import partial, reduce

    from torch.overrides import TorchFunctionMode

    if patched_before:
        instrumenter.init(backend=Recorder())

    class Holder:
        function = torch.sin
        static = staticmethod(torch.tanh)

    table, holder = {"mul": torch.mul}, Holder()

    class Swap(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return torch.mul(*args) if func is torch.sub else func(*args, **(kwargs or {}))

    def run(x: torch.Tensor, op: Any, several: list[Any]) -> torch.Tensor:
        y = reduce(torch.add, map(torch.neg, [op(x, x), x]))
        y = table["mul"](y, 2) + partial(torch.sum, dim=0)(y)
        y = holder.static(y) + holder.function(y)
        y = y + 1 if op is torch.add and op == torch.add else y
        for function in several:
            y = function(y)
        y = torch.Tensor.add(y, 1) + torch.func.vmap(torch.sin)(x) + torch.func.grad(lambda z: torch.sum(z * z))(x)
        with Swap():
            return torch.sub(y, x)

    x = torch.randn(3, 3)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    if not patched_before:
        compiled(x, torch.add, [torch.relu, F.gelu, torch.Tensor.exp])
        instrumenter.init(backend=Recorder())
    several = [torch.relu, F.gelu, torch.Tensor.exp]
    assert torch.equal(compiled(x, torch.add, several), run(x, torch.add, several))


@pytest.mark.filterwarnings("ignore:Dynamo does not know:UserWarning")
@pytest.mark.usefixtures("fresh_compiler")
def test_what_the_user_forbids_in_a_graph_is_not_in_it(recorder: Recorder) -> None:
    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        torch.compile(lambda x: torch.sub(torch.add(x, 1), 2), backend="eager")(torch.ones(2))
        assert torch._dynamo.utils.counters["graph_break"]
    finally:
        torch._dynamo.allow_in_graph(torch.sub)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_training_and_compiled_optimizer(recorder: Recorder) -> None:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        optimizer.zero_grad()
        compiled(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    step = torch.compile(optimizer.step, backend="eager")
    step()


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_script_and_trace(recorder: Recorder) -> None:
    net, x = Net(), torch.randn(4, 8)
    expected = net(x)
    assert torch.equal(torch.jit.script(net)(x), expected)
    assert torch.equal(torch.jit.trace(net, x)(x), expected)

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.LSTM(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)[0]

    recurrent = Recurrent()
    assert torch.equal(torch.jit.script(recurrent)(x[None]), recurrent(x[None]))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_trace_records_no_look_at_a_shape(recorder: Recorder) -> None:
    def nodes() -> list[str]:
        return [n.kind() for n in torch.jit.trace(lambda x: torch.add(x, x) * 2, torch.ones(2)).graph.nodes()]

    told = nodes()
    instrumenter.shutdown()
    assert told == nodes()


def test_export_and_make_fx(recorder: Recorder) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    net, x = Net(), torch.randn(4, 8)
    for strict in (False, True):
        exported = torch.export.export(net, (x,), strict=strict)
        assert torch.allclose(exported.module()(x), net(x))
    dynamic = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert dynamic.module()(torch.randn(7, 8)).shape == (13, 8)
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(lambda x: torch.add(x, 1)[0] @ x.t(), tracing_mode=mode)(x)
        assert torch.equal(graph(x), (x + 1)[0] @ x.t())


def test_symbolic_trace_names_torchs_own_functions(recorder: Recorder) -> None:
    import torch.fx

    graph = torch.fx.symbolic_trace(lambda x: F.gelu(torch.add(x, 1)) + torch.cat([x, x])[:2])
    targets = [n.target for n in graph.graph.nodes if n.op == "call_function"]
    assert targets[0] is torch.add
    assert targets[1] is F.gelu
    assert torch.cat in targets
    assert "torch.add" in graph.code and "torch._C._nn.gelu" in graph.code
    copied = pickle.loads(pickle.dumps(graph))
    instrumenter.shutdown()
    assert targets[0] == torch.add
    assert torch.equal(copied(torch.ones(2)), graph(torch.ones(2)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.slow
def test_fx_quantization_is_the_same(recorder: Recorder) -> None:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    class Quantized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([torch.add(x, x), x], 0).relu()

    def code() -> str:
        prepared = prepare_fx(Quantized().eval(), get_default_qconfig_mapping(), (torch.ones(2),))
        prepared(torch.ones(2))
        return str(convert_fx(prepared).code)

    told = code()
    assert "quantized.add" in told
    instrumenter.shutdown()
    assert told == code()


def test_fake_and_meta_tensors(recorder: Recorder) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        Net()(torch.randn(4, 8)).sum().backward()
    recorder.clear()
    with torch.device("meta"):
        net, x = Net(), torch.randn(4, 8)
        assert x.is_meta and torch.tensor(1.0).is_meta and torch.full((2,), 1.0).is_meta
    assert net(x).shape == (7, 8)
    assert torch.ones(2).device.type == "cpu"


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_function_transforms(recorder: Recorder) -> None:
    from torch.func import functional_call, functionalize, grad, hessian, jacrev, jvp, vmap

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).sum()

    x, net = torch.randn(3), Net()

    def everything() -> list[torch.Tensor]:
        return [
            *(grad(loss)(x), hessian(loss)(x), jacrev(loss)(x), functionalize(loss)(x), *jvp(loss, (x,), (x,))),
            *(vmap(lambda a: torch.matmul(a, a))(x.expand(2, 3, 3)), vmap(grad(loss))(x.expand(2, 3))),
            functional_call(net, dict(net.named_parameters()), (torch.ones(4, 8),)),
        ]

    told = everything()
    instrumenter.shutdown()
    assert all(map(torch.equal, told, everything()))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(recorder: Recorder, layout: torch.layout) -> None:
    nested = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=layout)
    assert (nn.Linear(4, 4)(nested) * 2).is_nested
    if layout is torch.jagged:
        query = nested.unsqueeze(-2).transpose(1, 2)
        assert F.scaled_dot_product_attention(query, query, query).is_nested


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_sparse_and_masked_tensors(recorder: Recorder) -> None:
    from torch.masked import masked_tensor

    sparse = torch.eye(3).to_sparse()
    dense = torch.randn(3, 3)
    assert torch.equal(sparse @ dense, dense)
    assert torch.equal(torch.sparse.mm(sparse, dense), dense)
    assert torch.equal((sparse + sparse).to_dense(), 2 * torch.eye(3))
    assert torch.equal(torch.eye(3).to_sparse_csr() @ dense, dense)
    masked = masked_tensor(torch.arange(4.0), torch.tensor([True, False, True, True]))
    assert float(masked.sum().get_data()) == 5.0
    (masked + masked, masked.sin())


def _logged(log: list[Any]) -> type[torch.Tensor]:
    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    return Logged


def _use(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.add(x, x), x + x, x.relu(), F.linear(x, x), x[0], torch.cat([x, x]), F.relu(x), torch.linalg.det(x)]


def test_subclasses_see_the_same_calls_and_no_others(recorder: Recorder) -> None:
    log: list[Any] = []
    cls = _logged(log)
    x = torch.randn(3, 3)
    told = _use(x.as_subclass(cls))
    assert all(type(t) is cls for t in told)
    names = [f.__name__ for f in log]
    log.clear()
    instrumenter.shutdown()
    _use(x.as_subclass(cls))
    assert names == [f.__name__ for f in log]


def test_tables_and_comparisons_of_functions_hold_across_patching() -> None:
    def functions() -> list[Any]:
        return [torch.add, torch.Tensor.add, torch.Tensor.__getitem__, F.linear, torch.linalg.det, torch.cat]

    log: list[Any] = []
    x = torch.randn(3, 3).as_subclass(_logged(log))
    before = {f: f.__name__ for f in functions()}
    recorder = Recorder()
    with instrumenter.instrument(backend=recorder):
        during = {f: f.__name__ for f in functions()}
        results = [torch.add(x, x), x.add(x), x[0], F.linear(x, x), torch.linalg.det(x), torch.cat([x, x])]
        assert len(results) == len(log)
        assert [f in before and f in during for f in log] == [True] * len(log)
        assert all(map(operator.is_, log, functions()))
    assert before == during
    assert all(f in before and f in during for f in functions())


def test_function_and_dispatch_modes_see_the_same_calls(recorder: Recorder) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    log: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append(func.__name__)
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append(str(func))
            return func(*args, **(kwargs or {}))

    def both() -> list[str]:
        log.clear()
        x = torch.ones(3, 3)
        with Functions():
            _use(x)
        with Dispatches():
            _use(x)
        return list(log)

    told = both()
    instrumenter.shutdown()
    assert told == both()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(recorder: Recorder, reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(4, 8, requires_grad=True)
    checkpoint(Net(), x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None


def test_autocast_and_inference_mode(recorder: Recorder) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        Net()(torch.randn(4, 8))
    with torch.inference_mode():
        Net()(torch.randn(4, 8))


def test_double_backward(recorder: Recorder) -> None:
    x = torch.randn(3, dtype=torch.double, requires_grad=True)
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    grad.sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, 6 * x)


def test_transformer_takes_its_fast_path(recorder: Recorder) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    recorder.clear()
    with torch.no_grad():
        layer(torch.randn(1, 4, 8))
    assert "torch._transformer_encoder_layer_fwd" in recorder.ops()


def test_lstm_is_told(recorder: Recorder) -> None:
    lstm = nn.LSTM(4, 5)
    recorder.clear()
    lstm(torch.randn(2, 3, 4))
    (marker,) = recorder.of("torch.lstm")
    assert marker.call is not None
    assert [t.shape for t in marker.call.tensors] == [(2, 3, 4), (1, 3, 5), (1, 3, 5), (20, 4), (20, 5), (20,), (20,)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_data_loader_workers_that_are_spawned(recorder: Recorder) -> None:
    """Forked ones: tests of loaders."""
    given = torch.utils.data.TensorDataset(torch.arange(8).reshape(4, 2))
    loader = torch.utils.data.DataLoader(given, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for (batch,) in loader] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@pytest.mark.filterwarnings("ignore")
def test_dtensor_and_fsdp(recorder: Recorder, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts one of its own there
    if not dist.is_available():
        pytest.skip("this torch has no torch.distributed")
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(str(tmp_path / "store"), 1))
    try:
        mesh = init_device_mesh("cpu", (1,))
        whole = torch.randn(4, 4)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        assert torch.equal(torch.add(sharded @ sharded, 1).full_tensor(), whole @ whole + 1)
        net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        fully_shard(net, mesh=mesh)
        net(torch.randn(2, 8)).sum().backward()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("name", ["add", "mm"])
def test_user_code_may_patch_over_ours(recorder: Recorder, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    ours: Callable[..., Any] = getattr(torch, name)

    def theirs(*args: Any) -> Any:
        return ours(*args)

    with monkeypatch.context() as patched:
        patched.setattr(torch, name, theirs)
        instrumenter.shutdown()
        assert getattr(torch, name) is theirs
        assert torch.equal(getattr(torch, name)(torch.eye(2), torch.eye(2)), ours(torch.eye(2), torch.eye(2)))
        patched.undo()
        setattr(torch, name, ours._pyprof_original)  # type: ignore[attr-defined]


def test_warnings_of_an_op_are_still_given(recorder: Recorder) -> None:
    with pytest.warns(UserWarning, match="torch.range"):
        torch.range(0, 2)


def test_threads_run_on_while_it_comes_and_goes() -> None:
    import threading

    errors: list[BaseException] = []
    stop = threading.Event()
    x, net = torch.ones(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def work() -> None:
        try:
            while not stop.is_set():
                (net(torch.add(x, x)) @ x)[0].sum()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    recorder = Recorder()
    for number in range(6):
        instrumenter.init(backend=recorder, stack=bool(number % 2))
        instrumenter.pause()
        instrumenter.resume()
        instrumenter.shutdown()
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == [] and recorder.open == 0


def test_under_the_default_device_calls_are_remembered(recorder: Recorder) -> None:
    from pyprof.nvtx.state import STATE

    torch.set_default_device("cpu")
    try:
        x = torch.ones(3)
        seen = []
        for _ in range(3):
            x.mul(2)
            seen.append(STATE.calls)
        assert len(set(seen)) == 1
    finally:
        torch.set_default_device(None)


def test_custom_ops_are_told(recorder: Recorder) -> None:
    @torch.library.custom_op("pyproftest::twice", mutates_args=())
    def twice(x: torch.Tensor, times: int) -> torch.Tensor:
        return x * times

    @twice.register_fake
    def _(x: torch.Tensor, times: int) -> torch.Tensor:
        return torch.empty_like(x)

    x = torch.ones(3)
    for call in (twice, torch.ops.pyproftest.twice, torch.ops.pyproftest.twice.default):
        recorder.clear()
        assert call(x, 2).tolist() == [2, 2, 2]
        assert recorder.calls()[0] == "twice(fp32[3], 2)"
        assert recorder.ops()[0] == "torch.ops.pyproftest.twice"
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.ops.pyproftest.twice(x, 3) + 1, fullgraph=True, backend="aot_eager")
    assert compiled(x).tolist() == [4, 4, 4]
    recorder.clear()
    torch.ops.aten.add(x, x)
    assert recorder.texts == []
