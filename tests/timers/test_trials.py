"""What `pyprof bench --advice` runs: the work of most time that each kind of advice applies to, and what it is held against."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
from torch.profiler import ProfilerActivity, profile

from pyprof.cli import main
from pyprof.loading.load import load_capture
from pyprof.model.records import Records
from pyprof.timers.alternatives import KINDS
from pyprof.timers.replay import OptimizerStep
from pyprof.timers.trials import Trial, calls_that_ran, find_trials
from tests.given import records_of, slow
from tests.tiny import Nsys

GEMM, POINTWISE = "ampere_sgemm_128x64_tn", "vectorized_elementwise_kernel"
Q, S = "fp32[2,4,96,16]", "fp32[2,4,96,96]"
ATTENTION = [
    (f"__matmul__({Q}, fp32[2,4,16,96])", "Tensor", GEMM, 30),
    (f"__mul__({S}, 0.25)", "Tensor", POINTWISE, 10),
    (f"softmax({S}, dim=-1)", "torch", POINTWISE, 20),
    (f"__matmul__({S}, {Q})", "Tensor", GEMM, 40),
]


def _capture(path: Path, calls: list[tuple[str, str, str, int]], around: str = "") -> Records:
    """Calls one after another: (text, module, kernel, its time in ns)."""
    n, at = Nsys(), 1_000
    for text, module, kernel, ns in calls:
        n.range(f'{text} #pyprof{{"mod":"{module}"}}', at, at + 50)
        n.kernel(kernel, at + 10, at + 100, at + 100 + ns)
        at += 200 + ns
    if around:
        n.range(around, 900, at)
    n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100-SXM4-40GB", 0, 108, 8, 0))
    return load_capture(n.write(path / "net.sqlite"))


def find_trial(kind: str, records: Records, *, gpu: bool) -> Trial | str:
    return next(find_trials(kind, records, gpu=gpu))


def _works(kind: str, records: Records, gpu: bool = False) -> tuple[list[str], list[tuple[str, list[str]]]]:
    found = find_trial(kind, records, gpu=gpu)
    assert isinstance(found, Trial), found
    assert isinstance(found.work, tuple) and all(other.kind == kind for other in found.others)
    others = [(other.name, [str(call) for call in other.work]) for other in found.others if isinstance(other.work, tuple)]
    return [str(call) for call in found.work], others


def test_the_call_of_most_time_that_a_kind_applies_to(tmp_path: Path) -> None:
    functional = "torch.nn.functional"
    conv = "conv2d(fp16[2,8,9,9], fp16[16,8,3,3])"
    records = _capture(
        tmp_path,
        [
            ("linear(fp32[6,20], fp32[10,20])", functional, GEMM, 100),
            ("linear(fp32[6,20], fp32[10,20])", functional, GEMM, 100),
            ("linear(fp32[8,64], fp32[32,64])", functional, GEMM, 150),
            ("linear(fp16[8,65], fp16[32,65])", functional, GEMM, 90),
            (conv, functional, "implicit_convolve_sgemm", 900),
        ],
    )
    assert _works("reduced_precision", records) == (
        ["linear(fp32[6,20], fp32[10,20])"],
        [("bf16", ["linear(bf16[6,20], bf16[10,20])"]), ("fp16", ["linear(fp16[6,20], fp16[10,20])"])],
    )
    assert [name for name, _ in _works("reduced_precision", records, gpu=True)[1]] == ["tf32", "bf16", "fp16"]
    assert _works("gemm_alignment", records) == (
        ["linear(fp32[6,20], fp32[10,20])"], [("padded to 4", ["linear(fp32[6,20], fp32[12,20])"])]
    )  # fmt: skip
    assert _works("channels_last", records)[0] == [conv]
    spent = {str(records.calls[code]): (spent.ns, spent.times, spent.row) for code, spent in calls_that_ran(records).items()}
    assert spent["linear(fp32[6,20], fp32[10,20])"] == (200, 2, 0) and spent[conv] == (900, 1, 4)


def test_attention_in_parts_against_one_op(tmp_path: Path) -> None:
    calls = [*ATTENTION[:2], (f"masked_fill({S}, bool[96,96], -1000000000.0)", "Tensor", POINTWISE, 10), ATTENTION[2]]
    calls += [(f"dropout({S}, p=0.1, training=True)", "torch.nn.functional", POINTWISE, 10), ATTENTION[3]]
    relu = (f"relu({S})", "torch", POINTWISE, 5)
    found = find_trial("fused_attention", _capture(tmp_path, [relu, *ATTENTION, relu]), gpu=False)
    assert isinstance(found, Trial) and (found.spent.ns, found.spent.times) == (100, 1)
    views = [(f"select({S}, 0, 0)", "Tensor", POINTWISE, 1)] * 8  # a mask is made of them
    assert isinstance(find_trial("fused_attention", _capture(tmp_path, [*calls[:2], *views, *calls[2:]]), gpu=False), Trial)
    records = _capture(tmp_path, calls)
    before, [(name, after)] = _works("fused_attention", records)
    assert before == [text for text, *_ in calls] and name == "one op"
    assert after == [f"scaled_dot_product_attention({Q}, {Q}, {Q}, fp32[1,1,96,96], dropout_p=0.1)"]


def test_products_over_one_dimension_of_heads_are_given_four(tmp_path: Path) -> None:
    batched = [
        ("bmm(fp16[8,96,16], fp16[8,16,40])", "torch", GEMM, 10),
        ("softmax(fp16[2,4,96,40], -1)", "torch", POINTWISE, 10),
        ("bmm(fp16[8,96,40], fp16[8,40,24])", "torch", GEMM, 10),
    ]
    _, [(_, after)] = _works("fused_attention", _capture(tmp_path, batched))
    assert after == ["scaled_dot_product_attention(fp16[1,8,96,16], fp16[1,8,40,16], fp16[1,8,40,24])"]


@pytest.mark.parametrize(
    "calls",
    [
        ATTENTION[:3],
        [ATTENTION[2], ATTENTION[3]],
        [(f"__matmul__({S}, {S})", "Tensor", GEMM, 30), *ATTENTION[2:3], (f"__matmul__({Q}, {Q})", "Tensor", GEMM, 30)],
        [("softmax(fp32[32,10], -1)", "torch", POINTWISE, 10)],
    ],
)
def test_what_is_no_attention(calls: list[tuple[str, str, str, int]], tmp_path: Path) -> None:
    found = find_trial("fused_attention", _capture(tmp_path, calls), gpu=False)
    assert found == "no product, softmax and product over one batch of heads was recorded with its shapes"


@pytest.mark.parametrize(
    ("calls", "step"),
    [
        ([f"{op}(fp32[4,5], {rest})" for op, rest in (("mul_", "0.9"), ("add_", "fp32[4,5]"))] * 2, ("SGD", "for-loop", 2, 0.9)),
        (["add_(fp32[4,5], fp32[4,5])"], ("SGD", "for-loop", 1, 0.0)),
        (["mul_(fp32[4,5], 0.9)", "lerp_(fp32[4,5], fp32[4,5], 0.1)", "addcdiv_(fp32[4,5], fp32[4,5], fp32[4,5])"],
         ("AdamW", "for-loop", 1, 0.0)),
        (["_foreach_add_([fp32[], fp32[]], 1)", "_foreach_addcdiv_([fp32[4,5], fp32[5]], [fp32[4,5], fp32[5]], [fp32[4,5], fp32[5]])"],
         ("AdamW", "foreach", 2, 0.0)),
    ],
)  # fmt: skip
def test_an_optimizer_as_it_ran_against_the_fused_one(calls: list[str], step: tuple[object, ...], tmp_path: Path) -> None:
    rows = [(text, "torch", POINTWISE, 10) for text in calls]
    found = find_trial("fused_optimizer", _capture(tmp_path, rows, "Optimizer.step#Mine.step"), gpu=False)
    assert isinstance(found, Trial) and isinstance(found.work, OptimizerStep)
    work, (fused,) = found.work, found.others
    assert (work.name, work.how, len(work.parameters), work.momentum) == step and found.spent.ns == 10 * len(calls)
    assert isinstance(fused.work, OptimizerStep) and fused.work.how == "fused" and fused.work.parameters == work.parameters


def test_a_fused_optimizer_needs_no_trial(tmp_path: Path) -> None:
    rows = [("_fused_adamw_([fp32[4,5]], [fp32[4,5]])", "torch", POINTWISE, 10)]
    records = _capture(tmp_path, rows, "Optimizer.step#AdamW.step")
    assert find_trial("fused_optimizer", records, gpu=False) == "the optimizer is fused already"


def test_every_kind_has_a_reason_where_nothing_is_known(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 7", 500, 600)
    n.kernel(GEMM, 510, 4000, 4100)
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    for kind in KINDS:
        assert isinstance(find_trial(kind, records, gpu=True), str)


@pytest.mark.parametrize("name", [*slow("kineto/v100_resnet50_2021.json.gz"), "kineto/h100_vit.json.gz",
                                  "nvprof/v100_lm/net.sql", "nsys/a100_gpt2.7b.nsys2024.6.sqlite"])  # fmt: skip
def test_real_captures_have_a_trial_or_a_reason(captures: Path, name: str) -> None:
    records = records_of(captures / name)
    found = {kind: find_trial(kind, records, gpu=True) for kind in KINDS}
    assert all(isinstance(one, (Trial, str)) for one in found.values())
    if "resnet50" in name:  # 161 parameters; of its convolutions the strides were not recorded
        step = found["fused_optimizer"]
        assert isinstance(step, Trial) and isinstance(step.work, OptimizerStep) and len(step.work.parameters) == 161
        assert sum(tensor.numel for tensor in step.work.parameters) == 25_557_032
        assert "aten::conv2d cannot be run alone: arguments on which" in str(found["channels_last"])
    if "gpt2" in name:
        assert all(isinstance(one, str) for one in found.values())


class _Net(torch.nn.Module):
    """A convolution of 3 channels, attention written out, linears of odd sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 24, 3, padding=1)
        self.qkv, self.head = torch.nn.Linear(24, 3 * 32), torch.nn.Linear(32, 33)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).flatten(2).transpose(1, 2)
        q, k, v = (t.unflatten(-1, (2, 16)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) * 0.25).softmax(-1)
        return self.head((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.slow
def test_all_kinds_are_tried_on_a_program_recorded_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, x = _Net(), torch.rand(2, 3, 8, 8)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        x.double().square()

    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step()
    recorded.export_chrome_trace(str(tmp_path / "net.json"))
    assert main(["bench", str(tmp_path / "net.json"), "--advice", "--seconds", "0.001", "--device", "cpu"]) == 0
    tables = [text.splitlines() for text in capsys.readouterr().out.split("\n\n")]
    assert [lines[0].partition(":")[0] for lines in tables] == list(KINDS)
    assert not [lines for lines in tables if "not tried" in lines[0]]
    assert tables[1][0].startswith("double_precision: 1 x aten::square: square(fp64[2,3,8,8])") and "fp32" in tables[1][-1]
    assert tables[4][0].startswith("fused_attention: 1 x aten::matmul: matmul(fp32[2,2,64,16]")
    assert tables[5][0] == "fused_optimizer: 1 x torch.optim.AdamW for-loop, 6 parameters of 4161 elements"
    for lines in tables:  # each was measured, and so was what it is held against
        assert lines[3].startswith("as recorded ") and float(lines[3].split()[2]) > 0
        assert len(lines) > 4 and all("na" not in line.split()[:4] for line in lines[4:])
