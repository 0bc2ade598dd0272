"""What a capture without options still tells: ResNet-50's known cost from sizes alone."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.load import load_capture
from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec
from pyprof.model.trace import ActivityKind
from pyprof.parse.attribution.derived import _broadcast_dims, summed
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from pyprof.prof.infer import infer
from tests.given import records_of
from tests.tiny import Nsys

CONV = "implicit_convolve_sgemm"


def column(frame: Frame, key: str) -> list[str]:
    return next(c for c in COLUMNS if c.key == key).texts(frame)


def _training(n: Nsys) -> None:
    """Two convolutions with the same sizes and different strides, which nothing but their gradients tells."""
    for number, (at, sizes) in enumerate(((10, "[4, 16, 8, 8]"), (40, "[4, 16, 4, 4]"))):
        n.range(f"aten::conv2d, seq = {number}, op_id = 1, sizes = [[4, 8, 8, 8], [16, 8, 3, 3], []]", at, at + 20)
        n.kernel(CONV, at + 5, 1000 + at, 1010 + at)
        name = f"ConvolutionBackward0, seq = {number}, op_id = 5"
        n.range(name, 1000 - 100 * number, 1080 - 100 * number, thread=8)
        n.range(
            f"aten::cudnn_convolution_backward, op_id = 6, sizes = [[4, 8, 8, 8], {sizes}, [16, 8, 3, 3]]",
            1001 - 100 * number, 1079 - 100 * number, thread=8,
        )  # fmt: skip
        for turn, part in enumerate(("input", "weight")):
            begin = 1010 - 100 * number + 30 * turn
            n.range(f"aten::cudnn_convolution_backward_{part}, op_id = 7", begin, begin + 20, thread=8)
            n.kernel(CONV, begin + 5, 3000 + begin, 3010 + begin, thread=8)


def test_the_output_of_each_convolution_is_that_of_its_own_gradient(tmp_path: Path) -> None:
    n = Nsys()
    _training(n)
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    frame = Frame(records)
    large, small = 2 * 4 * 16 * 8 * 8 * 8 * 9, 2 * 4 * 16 * 4 * 4 * 8 * 9
    assert column(frame, "flops") == [str(f) for f in (large, small, small, small, large, large)]
    assert column(frame, "dir") == ["fprop"] * 2 + ["bprop"] * 4
    params = column(frame, "params")
    assert "P=8,Q=8" in params[0] and "P=4,Q=4" in params[1] and all(text.endswith(",inferred") for text in params)
    assert records.calls == load_capture(n.write(tmp_path / "net.sqlite")).calls  # what was read stays what it was


def test_nothing_is_inferred_where_nothing_lacks(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, seq = 1, op_id = 1, sizes = [[4, 8], [8, 2]]", 10, 20)
    n.kernel("gemm", 15, 100, 110)
    n.range("MmBackward0, seq = 1, op_id = 2", 30, 40, thread=8)
    n.kernel("gemm", 35, 200, 210, thread=8)
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    assert infer(records) is records


def test_resnet50_costs_what_it_is_known_to_cost(captures: Path) -> None:
    """4.09 GMACs an image forward (He et al. 2015: 3.8 without the strides in the 3x3; torchvision moved them: 4.09); the backward
    twice that less the first layer's data gradient, which nothing asks for."""
    records = records_of(captures / "kineto" / "v100_resnet50_2021.json.gz")
    frame = Frame(records)
    kernels = np.isin(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH))
    duration = records["dur_ns"]
    known = (frame.costs.flops >= 0) & (frame.costs.bytes >= 0)
    assert duration[kernels & known].sum() >= 0.99 * duration[kernels].sum()
    matmul = np.maximum(frame.costs.matmul_flops, 0)
    calls = frame.records.calls
    forward = records["fwd_instance"] < 0
    linears = {int(i) for i, c in zip(records["instance"], frame.records["call"], strict=True) if calls[c].op == "linear"}
    instances = len({i for i in linears if i in set(records["instance"][forward].tolist())})
    images = 32 * instances  # one linear layer a pass
    first = 2 * 64 * 112 * 112 * 3 * 7 * 7
    passed = int(matmul[forward].sum()) / images
    back = int(matmul[~forward].sum()) / images
    assert abs(passed / (2 * 4.09e9) - 1) < 0.01
    assert abs(back / (2 * passed - first) - 1) < 0.001
    main = frame.costs.of("main", slice(None)) & kernels & known
    structural = np.array([c.op in ("to", "zero_", "ones_like") for c in calls] + [False])[frame.records["call"]]
    assert (frame.costs.bytes[main & ~structural] > 0).all()


def test_what_a_backward_sums_joins_and_fills_has_the_sizes_of_its_forward(tmp_path: Path) -> None:
    """A bias gradient is summed by the engine after the function has returned; dimensions and sizes were not recorded."""
    n = Nsys()
    n.range("aten::addmm, seq = 1, op_id = 1, sizes = [[7], [5, 3], [3, 7], [], []]", 10, 20)
    n.kernel("gemm", 15, 100, 110)
    n.range("aten::split, seq = 2, op_id = 2, sizes = [[5, 8], [], []]", 30, 40)
    n.range("autograd::engine::evaluate_function: SplitBackward0, op_id = 3", 50, 80, thread=8)
    n.range("SplitBackward0, seq = 2, op_id = 4, sizes = [[5, 4], [5, 4]]", 52, 70, thread=8)
    n.range("aten::cat, op_id = 5, sizes = [[], []]", 54, 60, thread=8)
    n.kernel("cat", 55, 200, 210, thread=8)
    n.range("autograd::engine::evaluate_function: AddmmBackward0, op_id = 6", 90, 150, thread=8)
    n.range("AddmmBackward0, seq = 1, op_id = 7, sizes = [[5, 7]]", 92, 120, thread=8)
    n.range("aten::mm, op_id = 8, sizes = [[3, 5], [5, 7]]", 94, 110, thread=8)
    n.kernel("gemm", 100, 300, 310, thread=8)
    n.range("aten::sum, op_id = 9, sizes = [[5, 7], [], [], []]", 130, 140, thread=8)
    n.kernel("reduce_kernel", 135, 400, 410, thread=8)
    frame = Frame(load_capture(n.write(tmp_path / "net.sqlite")))
    assert column(frame, "op") == ["addmm", "split", "addmm", "sum"]
    assert column(frame, "inner") == ["aten::addmm", "aten::cat", "aten::mm", "aten::sum"]
    assert column(frame, "dir") == ["fprop", "bprop", "bprop", "bprop"]
    assert column(frame, "flops") == [str(2 * 5 * 3 * 7), "0", str(2 * 3 * 5 * 7), "35"]
    inferred = {c.op: (c.args, dict(c.kwargs)) for c in infer(frame.records).calls if dict(c.kwargs).get("inferred")}
    assert inferred["sum"][0][1] == [0] and inferred["sum"][1] == {"inferred": "dim"}
    assert inferred["cat"][0][0] == [TensorSpec((5, 8))] and inferred["cat"][1] == {"inferred": "sizes"}


@pytest.mark.parametrize(
    ("small", "large", "dims"),
    [
        ((7,), (5, 7), (0,)), ((5, 1), (5, 7), (1,)), ((1, 7), (5, 7), (0,)), ((), (5, 7), (0, 1)), ((5, 7), (5, 7), ()),
        ((3,), (5, 7), ()), ((5, 7), (7,), ()), ((1, 1), (1, 7), (1,)),
    ],
)  # fmt: skip
def test_dimensions_that_were_broadcast(small: tuple[int, ...], large: tuple[int, ...], dims: tuple[int, ...]) -> None:
    assert _broadcast_dims(small, large) == dims


def test_a_sum_that_two_inputs_could_want_is_left_alone() -> None:
    gradient = OpCall("aten", "sum", (TensorSpec((5, 7)), UNKNOWN, UNKNOWN, UNKNOWN), dispatcher=True)
    one = OpCall("aten", "add", (TensorSpec((7,)), TensorSpec((5, 7))), dispatcher=True)
    two = OpCall("aten", "add", (TensorSpec((7,)), TensorSpec((5, 1))), dispatcher=True)
    filled = summed(gradient, one)
    assert filled is not None and filled.args[1] == [0]
    assert summed(gradient, two) is None


def test_what_is_faster_than_the_peaks_is_winograd(captures: Path) -> None:
    frame = Frame(records_of(captures / "kineto/v100_resnet50_2021.json.gz"))
    fast = np.array(column(frame, "bound")) == "compute!"
    winograd = np.array(["winograd" in name.lower() for name in column(frame, "name")])
    instance = frame.records["instance"]
    assert fast.any() and np.isin(instance[fast], instance[winograd]).all()
