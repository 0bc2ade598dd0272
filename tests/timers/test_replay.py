"""A recorded call made again: the same op, shapes, types and strides; nothing that a file names is run but ops of torch."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pyprof.errors import ToolError, UsageError
from pyprof.memory import free_bytes
from pyprof.model.markers import decode, encode_op
from pyprof.model.opcall import UNKNOWN, OpCall, parse_call
from pyprof.prof import formulas
from pyprof.timers.alternatives import alternatives
from pyprof.timers.replay import _in_tf32, replay, replay_work, replayable


class Seen(TorchDispatchMode):  # type: ignore[misc]
    """Keeps each op of the dispatcher with its tensors' shapes, types and strides."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, list[tuple[Any, ...]]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [(tuple(a.shape), str(a.dtype), a.stride()) for a in args if isinstance(a, torch.Tensor)]
        self.ops.append((func.overloadpacket.__name__, tensors))
        return func(*args, **(kwargs or {}))


def _call(text: str) -> OpCall:
    head, bracket, rest = text.partition("(")
    if "::" in head:
        module, _, op = head.partition("::")
        return parse_call(op + bracket + rest, module, dispatcher=True)
    module, _, op = head.rpartition(".")
    return parse_call(op + bracket + rest, module)


def _seen(text: str) -> list[tuple[str, list[tuple[Any, ...]]]]:
    made = replay(_call(text), "cpu")
    with Seen() as seen:
        made()
    return seen.ops


def test_shapes_types_and_strides_are_the_recorded_ones() -> None:
    ((name, tensors),) = _seen("aten::addmm(bf16[30], bf16[7,20], bf16[20,30]{1,20}, beta=1, alpha=1)")
    assert name == "addmm"
    assert tensors == [
        ((30,), "torch.bfloat16", (1,)), ((7, 20), "torch.bfloat16", (20, 1)), ((20, 30), "torch.bfloat16", (1, 20)),
    ]  # fmt: skip
    ((name, tensors),) = _seen("torch.add(fp32[4,5]{0,1}, fp64[5])")
    assert (name, tensors) == ("add", [((4, 5), "torch.float32", (0, 1)), ((5,), "torch.float64", (1,))])


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("torch.nn.functional.linear(fp32[2,3], fp32[4,3]^, fp32[4]^)", "addmm"),
        ("Tensor.mul_(fp32[4,4], 0.5)", "mul_"),
        ("Tensor.__getitem__(fp32[8,4], (0:4, ..))", "slice"),
        ("torch.cat([fp32[2,3], fp32[4,3]], dim=0)", "cat"),
        ("torch.ones(32, 64, dtype=bf16)", "ones"),
        ("torch.ones_like(fp32[2], memory_format=\"torch.preserve_format\")", "ones_like"),
        ("torch.nn.functional.embedding(int64[35,20], fp32[100,8], None, None, 2.0, False, False)", "embedding"),
        ("torch.nn.functional.cross_entropy(fp32[16,10], int64[16])", "nll_loss_forward"),
        ("torch.gather(fp32[9,7], 1, int64[9,3])", "gather"),
        ("torch.index_select(fp32[9,7], 0, int64[4])", "index_select"),
        ("aten::where(bool[3,3], fp32[3,3], fp32[3,3])", "where"),
        ("aten::embedding(fp32[100,8], int64[5], -1, False, False)", "embedding"),
        ("aten::gelu(fp32[8,8], ?)", "gelu"),  # by name only in the schema
        ("aten::sum(fp32[8,8], [0], False, None)", "sum"),
        ("aten::sum(fp32[8,8], dim=[0])", "sum"),
        ("aten::fill_(fp32[8,8], ?)", "fill_"),
        ("aten::to(fp32[8,8], 15, False, False, None)", "_to_copy"),
        ("aten::conv2d(fp32[1,3,8,8], fp32[4,3,3,3], None, [1, 1], [1, 1], [1, 1], 1)", "convolution"),
        ("aten::native_layer_norm(fp32[4,8], [8], fp32[8], fp32[8], 1e-05)", "native_layer_norm"),
    ],
)  # fmt: skip
def test_ops_of_every_kind(text: str, op: str) -> None:
    assert op in [name for name, _ in _seen(text)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch.load(\"file\")", "pyprof knows no such op of torch"),
        ("torch.hub.load(\"repo\", \"model\")", "pyprof knows no such op of torch"),
        ("aten::from_file(\"file\", True, 10)", "pyprof knows no such op of torch"),
        ("os.system(\"true\")", "pyprof knows no such op of torch"),
        ("torch.__builtins__.open(\"file\")", "pyprof knows no such op of torch"),
        ("torch.add(...)", "arguments were not recorded"),
        ("torch.add(any[2], fp32[2])", "types of its tensors were not recorded"),
        ("torch.add(fp32[2], ?)", "1 of its arguments were not recorded"),
        ("aten::mm(fp32[2,3], ?)", "arguments on which its work depends were not recorded"),
        ("aten::conv2d(fp32[1,3,8,8], fp32[4,3,3,3], ?, ?, ?, ?, ?)", "arguments on which its work depends were not recorded"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_said(text: str, said: str) -> None:
    assert said in replayable(_call(text))
    with pytest.raises(UsageError, match=r"cannot be run alone"):
        replay(_call(text), "cpu")


def test_no_function_that_touches_files_or_runs_code_has_a_formula() -> None:
    words = set("load save from_file tofile hub eval exec compile open system import load_library".split())
    assert not [name for name in formulas.names() if words & set(name.replace("::", ".").split("."))]


@formulas.formula("replaytest.fused")
def fused(x: Any) -> formulas.Cost:
    """A user's own formula."""
    return formulas.Cost(0, 0, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aten::mm(fp32[2,3], fp32[4,5])", "cannot be run here: "),
        ("aten::add(qint8[2], qint8[2])", "its tensors cannot be made here: "),
        ("aten::add(fp32[1000000,10000000], fp32[1])", r"needs about \d+\.\d GB"),
        ("aten::mm(fp32[2,3], fp32[3,2], 1, 2)", "fit none of its forms"),
        ("aten::add_(fp32[4]{0}, 1)", "cannot be run here: unsupported operation"),
    ],
)
def test_what_torch_refuses_is_said(text: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        replay(_call(text), "cpu")


def test_a_users_own_op_is_not_looked_up() -> None:
    assert replayable(_call("replaytest.fused(fp32[2])")) == "it does not belong to torch"


def test_memory_is_asked_of_the_system(tmp_path: Any) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\n")
    assert free_bytes(str(tmp_path / "meminfo")) == 7 * 1024
    assert free_bytes(str(tmp_path / "none")) is None


def _names(text: str) -> dict[str, str]:
    return {entry.name: str(entry.work[0]) for entry in alternatives(_call(text))}


def test_alternatives_of_a_product() -> None:
    assert _names("aten::addmm(bf16[30], bf16[7,20], bf16[20,30]{1,20}, beta=1, alpha=2)") == {
        "padded to 8": "addmm(bf16[32], bf16[8,24], bf16[24,32]{1,24}, beta=1, alpha=2)",
        "fp16": "addmm(fp16[30], fp16[7,20], fp16[20,30]{1,20}, beta=1, alpha=2)",
    }
    assert _names("torch.nn.functional.linear(fp16[3,5,17], fp16[10,17]^, None)") == {
        "padded to 8": "linear(fp16[3,5,24], fp16[16,24]^, None)",
        "bf16": "linear(bf16[3,5,17], bf16[10,17]^, None)",
    }
    assert list(_names("aten::mm(fp32[8,4], fp32[4,16])")) == ["bf16", "fp16"]
    assert _names("torch.bmm(fp64[5,3,1], fp64[5,1,7])")["padded to 2"] == "bmm(fp64[5,4,1], fp64[5,1,8])"


def test_alternatives_of_a_convolution() -> None:
    text = "torch.nn.functional.conv2d(fp16[2,3,9,9], fp16[10,3,3,3], fp16[10], padding=1)"
    assert _names(text) == {
        "padded to 8": "conv2d(fp16[2,8,9,9], fp16[16,8,3,3], fp16[16], padding=1)",
        "bf16": text.replace("fp16", "bf16").rpartition(".")[2],
        "channels-last": "conv2d(fp16[2,3,9,9]{243,1,27,3}, fp16[10,3,3,3]{27,1,9,3}, fp16[10], padding=1)",
    }
    last = torch.empty(2, 3, 9, 9).to(memory_format=torch.channels_last)
    assert last.stride() == (243, 1, 27, 3)
    back = _names("torch.nn.functional.conv2d(fp16[2,8,9,9]{648,1,72,8}, fp16[16,8,3,3]{72,1,24,8})")
    assert back["channels-first"] == "conv2d(fp16[2,8,9,9], fp16[16,8,3,3])"
    assert "padded to 8" not in _names("torch.nn.functional.conv2d(fp16[2,6,9,9], fp16[6,1,3,3], None, 1, 1, 1, 6)")


def test_attention_in_parts() -> None:
    text = "torch.nn.functional.scaled_dot_product_attention(fp16[2,4,9,16], fp16[2,4,7,16]{448,16,64,1}, fp16[2,4,7,8])"
    found = {entry.name: [*map(str, entry.work)] for entry in alternatives(_call(text)) if isinstance(entry.work, tuple)}
    assert found["its parts"] == [
        "matmul(fp16[2,4,9,16], fp16[2,4,16,7]{448,16,1,64})", "softmax(fp16[2,4,9,7], -1)",
        "matmul(fp16[2,4,9,7], fp16[2,4,7,8])",
    ]  # fmt: skip
    grouped = text.replace("fp16[2,4,7,8]", "fp16[2,2,7,8]").replace("fp16[2,4,7,16]{448,16,64,1}", "fp16[2,2,7,16]")
    assert "its parts" not in _names(grouped)


@pytest.mark.parametrize("text", ["torch.add(int64[3], int64[3])", "torch.mm(fp32[3,3], fp16[3,3])", "torch.ones(3, 3)"])
def test_without_an_alternative(text: str) -> None:
    assert _names(text) == {}


RUNNABLE = [
    "torch.nn.functional.linear(fp32[3,5,17], fp32[10,17], fp32[10])",
    "aten::baddbmm(fp32[3,5,7], fp32[3,5,9], fp32[3,9,7], beta=1, alpha=1)",
    "torch.nn.functional.conv2d(fp32[2,3,9,9], fp32[10,3,3,3], fp32[10], padding=1)",
    "aten::conv3d(fp32[2,3,4,9,9], fp32[10,3,3,3,3], None, [1, 1, 1], [1, 1, 1], [1, 1, 1], 1)",
]


@pytest.mark.parametrize("text", RUNNABLE)
def test_alternatives_can_be_run(text: str) -> None:
    found = alternatives(_call(text))
    assert len(found) >= 3
    for entry in found:
        replay_work(entry.work, "cpu")()


def test_unknown_says_nothing_of_other_ops() -> None:
    assert alternatives(OpCall("torch", "mm", (UNKNOWN, UNKNOWN))) == []


def test_tf32_is_tried_on_a_gpu_only_and_left_as_it_was() -> None:
    call = _call("aten::mm(fp32[8,8], fp32[8,8])")
    assert [entry.name for entry in alternatives(call, gpu=True)] == ["tf32", "bf16", "fp16"]
    assert not any(entry.tf32 for entry in alternatives(_call("torch.add(fp32[8], fp32[8])"), gpu=True))
    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [flag.allow_tf32 for flag in flags]
    seen: list[list[bool]] = []
    with torch.backends.__allow_nonbracketed_mutation():  # torch.testing forbids it for the whole process
        _in_tf32(torch, lambda: seen.append([flag.allow_tf32 for flag in flags]))
    with torch.backends.__allow_nonbracketed_mutation(), pytest.raises(ZeroDivisionError):
        _in_tf32(torch, lambda: 1 // 0)
    assert seen == [[True, True]] and [flag.allow_tf32 for flag in flags] == before


@pytest.mark.parametrize(
    "text", ["linear(bf16[4,8], fp32[16,8]^, fp32[16]^)", "cross_entropy(bf16[4,8], int64[4])", "linear(fp32[4,8], bf16[16,8])"]
)
def test_an_op_that_autocast_gave_one_type_is_made_again_in_that(text: str) -> None:
    marker = decode(encode_op(parse_call(text, "torch.nn.functional"), (), "cpu:bfloat16"))
    assert marker.call is not None
    with Seen() as seen:
        replay(marker.call, "cpu")()
    wanted = "torch.float32" if "entropy" in text else "torch.bfloat16"
    floats = {dtype for _, tensors in seen.ops for _, dtype, _ in tensors if dtype != "torch.int64"}
    assert wanted in floats
    assert not floats - {wanted, "torch.float32"}, "random values are made in fp32"
