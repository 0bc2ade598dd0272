"""Forward ops that run again in backward: hand-written captures, and torch's own checkpointing recorded here."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from pyprof.loading.load import load_capture
from pyprof.model.records import Records
from pyprof.prof.columns import COLUMNS
from pyprof.prof.frame import Frame
from pyprof.tables.table import choose
from tests.given import records_of
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"


def table(records: Records, keys: str) -> list[tuple[str, ...]]:
    frame = Frame(records)
    return list(zip(*(column.texts(frame) for column in choose(keys, COLUMNS)), strict=True))


def again_of(n: Nsys, path: Path) -> list[str]:
    return [row[0] for row in table(load_capture(n.write(path / "net.sqlite")), "recomputed")]


def test_a_saved_tensor_is_made_again_inside_the_function_that_wants_it(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::gelu, seq = 4, op_id = 1", 1, 9)
    n.kernel(GEMM, 5, 1000, 1010)
    n.range("autograd::engine::evaluate_function: AddmmBackward0, op_id = 2", 20, 99, thread=8)
    n.range("AddmmBackward0, seq = 5, op_id = 3", 21, 89, thread=8)
    n.range("layer:block", 22, 45, thread=8)
    n.range("aten::gelu, seq = 0, op_id = 4", 23, 30, thread=8)
    n.kernel(GEMM, 25, 1010, 1020, thread=8)
    n.range("aten::cos, op_id = 5", 31, 35, thread=8)  # without gradients, in the middle of what runs again
    n.kernel(GEMM, 32, 1020, 1030, thread=8)
    n.range("aten::linear, seq = 1, op_id = 6", 36, 44, thread=8)
    n.range("aten::addmm, seq = 2, op_id = 7", 37, 43, thread=8)
    n.kernel(GEMM, 38, 1030, 1040, thread=8)
    n.range("aten::mm, op_id = 8", 52, 70, thread=8)
    n.kernel(GEMM, 60, 1040, 1050, thread=8)
    n.range("aten::sum, op_id = 9", 91, 95, thread=8)
    n.kernel(GEMM, 92, 1050, 1060, thread=8)
    n.kernel(GEMM, 200, 1060, 1070, thread=9)
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    assert table(records, "recomputed,phase,dir,op,layer,seq") == [
        ("0", "forward", "fprop", "gelu", "-", "4"),
        ("1", "forward", "fprop", "gelu", "block", "0"),
        ("1", "forward", "fprop", "cos", "block", "-"),
        ("1", "forward", "fprop", "linear", "block", "1"),
        ("0", "backward", "bprop", "mm", "-", "5"),
        ("0", "backward", "bprop", "sum", "-", "-"),
        ("na", "na", "na", "na", "-", "-"),  # a thread without ranges
    ]


def test_numbers_that_stand_still_are_no_sign_of_a_forward_op(tmp_path: Path) -> None:
    n = Nsys()  # as torch before 1.6 wrote: numbers in any mode
    n.range("addmm, seq = 5", 1, 9)
    n.range("AddmmBackward, seq = 5", 20, 60, thread=8)
    n.range("mm, seq = 0", 22, 30, thread=8)
    n.kernel(GEMM, 25, 1010, 1020, thread=8)
    n.range("sum, seq = 0", 32, 38, thread=8)
    n.kernel(GEMM, 35, 1020, 1030, thread=8)
    assert again_of(n, tmp_path) == ["0", "0"]


def test_no_op_of_a_capture_without_checkpoints_is_said_to_run_again(captures: Path) -> None:
    for name in ("nvprof/v100_lm/net.sql", "kineto/h100_vit.json.gz", "nsys/h100_2gpu_train.nsys2026.2.sqlite"):
        records = records_of(captures / name)
        assert not (records["recomputed"] == 1).any(), name
        assert (records["recomputed"] == 0).sum() > 0.9 * (records["inner"] >= 0).sum(), name


class Block(torch.nn.Module):
    """Runs gelu(a(x)), then b; counts how often, and tells in which of them a backward was running."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 32), torch.nn.Linear(32, 24)
        self.again = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.again += torch._C._current_graph_task_id() != -1
        with record_function("block"):
            return self.b(torch.nn.functional.gelu(self.a(x))) * 2


def recorded(path: Path, reentrant: bool | None, blocks: int = 2, create_graph: bool = False) -> tuple[Records, list[Block]]:
    nets = [Block() for _ in range(blocks)]
    back = [torch.nn.Linear(24, 16) for _ in range(blocks)]
    x = torch.randn(5, 16, requires_grad=True)

    def step() -> None:
        value: Any = x
        for net, linear in zip(nets, back, strict=True):
            inner = net(value) if reentrant is None else checkpoint(net, value, use_reentrant=reentrant)
            value = linear(inner)
        value.sum().backward(create_graph=create_graph)

    step()
    for net in nets:
        net.again = 0
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
        step()
    p.export_chrome_trace(str(path))
    return load_capture(path), nets


@pytest.mark.parametrize("reentrant", [False, True])
def test_torchs_checkpoints(tmp_path: Path, reentrant: bool) -> None:
    records, nets = recorded(tmp_path / "net.json", reentrant)
    assert [net.again for net in nets] == [1, 1]
    rows = table(records, "recomputed,phase,dir,op,params,flops,layer")
    again = [row for row in rows if row[0] == "1"]
    work = [row[1:6] for row in again if row[3] in ("linear", "gelu")]
    first = ("forward", "fprop", "linear", "M=5,N=32,K=16,fp32", str(2 * 5 * 32 * 16))
    last = ("forward", "fprop", "linear", "M=5,N=24,K=32,fp32", str(2 * 5 * 32 * 24))
    gelu = ("forward", "fprop", "gelu", "[5,32]fp32", str(5 * 5 * 32))
    # The other kind stops as soon as it has made what is asked for: the last product's result is not, but its call is.
    assert work == [first, gelu, last] * 2
    assert {row[6] for row in again} == {"block"} and {row[3] for row in again} <= {"linear", "gelu", "copy_", "mul", "to"}
    plain, _ = recorded(tmp_path / "plain.json", None)
    forward = [row[3:6] for row in rows if row[0] == "0" and row[1] == "forward" and row[3] in ("linear", "gelu")]
    assert forward == [r[3:6] for r in table(plain, "recomputed,phase,dir,op,params,flops") if r[1] == "forward" and r[3] in ("linear", "gelu")]  # fmt: skip
    assert not (plain["recomputed"] == 1).any()
    # Backward does what it does without checkpoints: the same products of the same forward ops.
    assert products(records) == products(plain)


def products(records: Records) -> list[tuple[str, ...]]:
    return sorted(row for row in table(records, "phase,op,inner,params,flops") if row[0] == "backward" and row[2] == "aten::mm")


class Varied(torch.nn.Module):
    """Ops of many kinds, whose backward functions call ops of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.gn = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.GroupNorm(2, 8)
        self.embedding, self.norm, self.fc = torch.nn.Embedding(20, 16), torch.nn.LayerNorm(16), torch.nn.Linear(128, 16)
        self.attention, self.cell = torch.nn.MultiheadAttention(16, 2, batch_first=True), torch.nn.GRUCell(16, 16)
        self.dropout = torch.nn.Dropout(0.2)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        h = F.max_pool2d(F.relu(self.gn(self.bn(self.conv(x)))), 2)
        h = self.fc(F.max_pool2d(F.interpolate(h, scale_factor=2), 2).flatten(1))
        e = self.norm(self.embedding(words))
        z = self.attention(e, e, e)[0].mean(1) + h
        z = self.dropout(F.softplus(self.cell(z, z)) * torch.sigmoid(z))
        z = torch.cumsum(z, 1).clamp(-3, 3) + z.norm(dim=1, keepdim=True) + z.std(1, keepdim=True) + z[:, [0, 2]].sum(1, True)
        z = torch.einsum("ij,kj->ik", z, z) @ z
        z = torch.where(z > 0, torch.cat([z, z.gather(1, torch.zeros(4, 1, dtype=torch.long))], 1)[:, :16], z * 0.1)
        return z.sort(1)[0].prod(1, keepdim=True) + F.gelu(z) + F.log_softmax(z, 1) + z.max(1, keepdim=True)[0]


@pytest.mark.parametrize("how", ["plain", "double", "kept", "reentrant"])
def test_many_kinds_of_ops(tmp_path: Path, how: str) -> None:
    net, x, words = Varied(), torch.randn(4, 3, 8, 8, requires_grad=True), torch.randint(20, (4, 5))

    def step() -> None:
        out = checkpoint(net, x, words, use_reentrant=how == "reentrant") if how in ("kept", "reentrant") else net(x, words)
        if how == "double":
            (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            out = gradient.pow(2)
        out.sum().backward()

    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
        step()
    p.export_chrome_trace(str(tmp_path / "net.json"))
    rows = table(load_capture(tmp_path / "net.json"), "recomputed,phase,op,params,flops")
    again, first = (Counter(row[2:] for row in rows if row[:2] == (mark, "forward") and row[4] != "0") for mark in "10")
    if how in ("plain", "double"):
        assert not again
        assert how == "double" or {row[0] for row in rows} == {"0"}
        return
    # Outside of the checkpoint lies the last sum; one kind stops before the last addition, whose result nothing wants.
    assert not again - first and again.total() > 40
    assert {op for op, _, _ in first - again} == ({"sum"} if how == "reentrant" else {"sum", "add"})


def test_a_compiled_backward_does_not_say_what_it_makes_again(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mul, seq = 1, op_id = 1", 1, 9)
    n.range("CompiledFunctionBackward, seq = 1, op_id = 2", 20, 60)
    n.range("aten::mm, op_id = 3", 22, 38)
    n.kernel(GEMM, 30, 1010, 1020)
    assert again_of(n, tmp_path) == ["na"]


def test_the_summary_tells_its_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pyprof.cli import main

    recorded(tmp_path / "net.json", True)
    assert main(["summary", str(tmp_path / "net.json")]) == 0
    assert "in forward ops that run again in backward (--where recomputed=1)" in capsys.readouterr().out
    assert main(["prof", str(tmp_path / "net.json"), "--where", "recomputed=1,op=gelu", "-c", "op,phase"]) == 0
    assert capsys.readouterr().out.splitlines() == ["Op Phase", "gelu forward", "gelu forward"]


@pytest.mark.parametrize("step", [0, 1])
def test_what_nsys_recorded_of_torchs_checkpoints(data: Path, step: int) -> None:
    """Texts of emit_nvtx with our own markers, as nsys wrote them; see tests/programs/checkpoint_nvtx.py."""
    records = load_capture(data / "nsys_checkpoint.sqlite")
    rows = [row[:-1] for row in table(records, "recomputed,phase,op,layer,params,flops,src,step") if row[-1] == str(step)]
    ran = [row[1:] for row in rows if row[2] in ("linear", "gelu") and row[0] == "1"]
    first = [row[1:] for row in rows if row[2] in ("linear", "gelu") and row[:2] == ("0", "forward")]
    assert [row[1:3] for row in ran] == [("linear", "block.wide"), ("gelu", "block"), ("linear", "block.narrow")]
    # What runs again is what ran: phase, op, layer, shapes and types, FLOPs, source line; the last forward op is the head's.
    assert ran == first[:3] and [row[2] for row in first[3:]] == ["head"] and "checkpoint_nvtx.py:" in ran[0][5]
