"""Ops under autocast in captures of a GPU that fit on a screen: types of the op, bytes of its casts, backward."""

import json
from pathlib import Path

import pytest

from pyprof.loading.load import load_capture
from pyprof.model.markers import encode_op
from pyprof.model.opcall import parse_call
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from tests.tiny import Nsys

GEMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn"
CAST = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda>"
M, N, K = 512, 384, 128
BF16 = 2 * (M * K + N * K + N + M * N)


def columns(path: Path, *keys: str) -> list[tuple[str, ...]]:
    frame = Frame(load_capture(path))
    by_key = {column.key: column for column in COLUMNS}
    return list(zip(*(by_key[key].texts(frame) for key in keys), strict=True))


def linear(n: Nsys, at: int, region: str, bias: int = N) -> None:
    """F.linear under autocast as pyprof and emit_nvtx write it: 100 ns, a cast of the weight, then the product."""
    call = parse_call(f"linear(fp32[{M},{K}], fp32[{N},{K}]^, fp32[{bias}]^)", "torch.nn.functional")
    sizes = f"sizes = [[{M}, {K}], [{N}, {K}], [{bias}]]"
    n.range(encode_op(call, (), region), at, at + 100)
    n.range(f"aten::linear, seq = {at}, op_id = 1, {sizes}", at + 1, at + 99)
    n.range(f"aten::to, seq = {at}, op_id = 2, sizes = [[{N}, {K}], [], [], [], []]", at + 2, at + 30)
    n.range(f"aten::_to_copy, seq = {at}, op_id = 3, sizes = [[{N}, {K}], [], [], [], [], [], []]", at + 3, at + 29)
    n.kernel(CAST, at + 10, 1000 + at, 1010 + at)
    n.range(f"aten::linear, seq = {at + 1}, op_id = 4, {sizes}", at + 40, at + 98)
    n.range(f"aten::to, seq = {at + 1}, op_id = 5, sizes = [[{N}, {K}], [], [], [], []]", at + 41, at + 45)
    n.range(f"aten::_to_copy, op_id = 7, sizes = [[{N}, {K}], [], [], [], [], [], []]", at + 42, at + 44)
    n.kernel(CAST, at + 43, 1015 + at, 1018 + at)  # a copy of the op's own: not one of autocast's
    n.range(f"aten::addmm, seq = {at + 2}, op_id = 6, sizes = [[{N}], [{M}, {K}], [{K}, {N}], [], []]", at + 50, at + 90)
    n.kernel(GEMM, at + 60, 1020 + at, 1060 + at)


def test_a_product_its_casts_and_their_backward(tmp_path: Path) -> None:
    n = Nsys()
    linear(n, 10, "cuda:bfloat16")
    linear(n, 200, "")
    n.range("ToCopyBackward0, seq = 10, op_id = 9, sizes = [[384, 128]]", 400, 450, thread=8)
    n.range("aten::to, op_id = 10, sizes = [[384, 128], [], [], [], [], [], [], []]", 401, 449, thread=8)
    n.range("aten::_to_copy, op_id = 10, sizes = [[384, 128], [], [], [], [], [], []]", 402, 448, thread=8)
    n.kernel(CAST, 410, 2000, 2010, thread=8)
    n.range("AddmmBackward0, seq = 12, op_id = 11, sizes = [[512, 384]]", 460, 490, thread=8)
    n.range("aten::mm, op_id = 12, sizes = [[384, 512], [512, 128]]", 461, 489, thread=8)
    n.kernel(GEMM, 470, 2020, 2030, thread=8)
    rows = columns(n.write(tmp_path / "net.sqlite"), "dir", "op", "params", "bytes")
    cast = str(6 * N * K)
    assert rows == [
        ("fprop", "to", f"[{N},{K}]fp32", cast),
        ("fprop", "to", f"[{N},{K}]", "na"),
        ("fprop", "linear", f"M={M},N={N},K={K},bf16", str(BF16)),
        ("fprop", "to", f"[{N},{K}]", "na"),
        ("fprop", "to", f"[{N},{K}]", "na"),
        ("fprop", "linear", f"M={M},N={N},K={K},fp32", str(2 * BF16)),
        ("bprop", "to", f"[{N},{K}]fp32", cast),
        ("bprop", "linear", f"M={M},N={N},K={K},bf16", str(2 * (N * M + M * K + N * K))),
    ]


def test_without_emit_nvtx_the_marker_is_enough(tmp_path: Path) -> None:
    n = Nsys()
    call = parse_call(f"linear(fp32[{M},{K}], fp32[{N},{K}], fp32[{N}])", "torch.nn.functional")
    n.range(encode_op(call, (), "cuda:bfloat16"), 10, 90)
    n.kernel(CAST, 20, 1000, 1010)
    n.kernel(GEMM, 60, 1020, 1060)
    rows = columns(n.write(tmp_path / "net.sqlite"), "op", "params", "bytes", "tc")
    assert rows[-1] == ("linear", f"M={M},N={N},K={K},bf16", str(BF16), "1")


def original(dtype: str) -> str:
    """A marker of the original PyProf, which knew no autocast."""
    args = [{"name": "", "type": "tensor", "shape": shape, "dtype": dtype} for shape in ((M, K), (N, K), (N,))]
    return str({"mod": "torch.nn.functional", "op": "linear", "args": args})


@pytest.mark.parametrize(
    ("dtype", "kernel", "params"),
    [
        ("float32", GEMM, f"M={M},N={N},K={K},bf16,inferred"),
        ("float32", "ampere_sgemm_128x64_tn", f"M={M},N={N},K={K},fp32"),
        ("bfloat16", GEMM, f"M={M},N={N},K={K},bf16"),
    ],
)
def test_the_kernel_tells_the_types_of_the_originals_markers(tmp_path: Path, dtype: str, kernel: str, params: str) -> None:
    n = Nsys()
    n.range(original(dtype), 10, 90)
    n.kernel(kernel, 60, 1020, 1060)
    size = 4 if "fp32" in params else 2
    assert columns(n.write(tmp_path / "net.sqlite"), "params", "bytes") == [(params, str(BF16 * size // 2))]


class Kineto:
    """Ops of one thread of a torch.profiler trace, with the kernels that they launch."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def op(self, name: str, begin: int, end: int, *inputs: tuple[tuple[int, ...] | str, str]) -> None:
        args = {
            "Input Dims": [list(dims) if kind not in ("Scalar", "ScalarList", "") else [] for dims, kind in inputs],
            "Input type": [kind for _, kind in inputs],
            "Concrete Inputs": [str(dims) if kind in ("Scalar", "ScalarList", "") else "" for dims, kind in inputs],
            "Sequence number": 1,
            "Fwd thread id": 0,
        }
        self._add(name, "cpu_op", begin, end, 1, args)

    def kernel(self, name: str, launch: int, begin: int, end: int) -> None:
        args = {"correlation": len(self.events), "device": 0, "stream": 7}
        self._add("cudaLaunchKernel", "cuda_runtime", launch, launch + 1, 1, args)
        self._add(name, "kernel", begin, end, 7, args)

    def _add(self, name: str, category: str, begin: int, end: int, tid: int, args: dict[str, object]) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": 0 if category == "kernel" else 5, "tid": tid}
        self.events.append({**event, "ts": begin, "dur": end - begin, "args": args})

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": self.events}))
        return path


def test_an_op_that_called_itself_with_other_types_ran_in_those(tmp_path: Path) -> None:
    k, x, w = Kineto(), (M, K), (N, K)
    k.op("aten::linear", 0, 100, (x, "float"), (w, "float"), ("", ""))
    k.op("aten::to", 2, 20, (w, "float"), ("15", "Scalar"), ("False", "Scalar"), ("False", "Scalar"), ("", ""))
    k.op("aten::_to_copy", 3, 19, (w, "float"), ("15", "Scalar"), ("", ""), ("", ""), ("", ""), ("False", "Scalar"), ("", ""))
    k.kernel(CAST, 10, 1000, 1010)
    k.op("aten::linear", 30, 99, (x, "c10::BFloat16"), (w, "c10::BFloat16"), ("", ""))
    k.kernel(GEMM, 50, 1020, 1060)
    rows = columns(k.write(tmp_path / "net.json"), "op", "params", "bytes")
    assert rows == [
        ("to", f"[{N},{K}]fp32", str(6 * N * K)),
        ("linear", f"M={M},N={N},K={K},bf16", str(BF16 - 2 * N)),
    ]


def test_an_op_of_which_parts_alone_are_cast_has_no_types(tmp_path: Path) -> None:
    """A whole encoder layer: products in bf16, norms and residual sums in fp32."""
    k, x, w = Kineto(), (M, K), (K, K)
    weights = [(w, "float"), ((K,), "float")] * 6
    k.op("aten::_transformer_encoder_layer_fwd", 0, 100, ((1, M, K), "float"), *weights)
    k.op("aten::linear", 20, 99, (x, "float"), (w, "float"), ("", ""))
    k.op("aten::linear", 30, 98, (x, "c10::BFloat16"), (w, "c10::BFloat16"), ("", ""))
    k.kernel(GEMM, 50, 1020, 1060)
    rows = columns(k.write(tmp_path / "net.json"), "op", "params", "bytes")
    assert rows == [("_transformer_encoder_layer_fwd", ";".join([f"[1,{M},{K}]", *[f"[{K},{K}];[{K}]"] * 6]), "na")]


def test_an_op_that_was_asked_for_another_dtype_writes_that(tmp_path: Path) -> None:
    k, x = Kineto(), (M, K)
    k.op("aten::sum", 0, 100, (x, "c10::Half"), ("[1]", "ScalarList"), ("False", "Scalar"), ("", ""))
    k.op("aten::sum", 30, 99, (x, "c10::Half"), ("[1]", "ScalarList"), ("False", "Scalar"), ("6", "Scalar"))
    k.kernel("reduce_kernel", 50, 1020, 1060)
    k.op("aten::sum", 100, 200, (x, "float"), ("", ""))
    k.op("aten::sum", 130, 199, (x, "float"), ("[]", "ScalarList"), ("False", "Scalar"), ("", ""))
    k.kernel("reduce_kernel", 150, 1120, 1160)
    rows = columns(k.write(tmp_path / "net.json"), "op", "bytes")
    assert rows == [("sum", str(2 * M * K + 4 * M)), ("sum", str(4 * M * K + 4))]


@pytest.mark.parametrize(("given", "ran"), [((M, K), "float"), ((M, 1), "c10::BFloat16")])
def test_an_op_that_passes_its_tensors_on_ran_as_the_one_inside(tmp_path: Path, given: tuple[int, ...], ran: str) -> None:
    """nll_loss_nd has no cast of its own; another tensor's, made within it, says nothing of what it was given."""
    k, x, labels = Kineto(), (M, K), (M,)
    k.op("aten::nll_loss_nd", 0, 100, (given, "c10::BFloat16"), (labels, "long int"))
    k.op("aten::nll_loss", 1, 99, (x, "c10::BFloat16"), (labels, "long int"))
    k.op("aten::nll_loss", 30, 98, (x, "float"), (labels, "long int"))
    k.kernel("nll_loss_forward_reduce_cuda_kernel_2d", 50, 1020, 1060)
    (params,) = columns(k.write(tmp_path / "net.json"), "params")[0]
    assert params == f"[{given[0]},{given[1]}]{'fp32' if ran == 'float' else 'bf16'};[{M}]int64"
