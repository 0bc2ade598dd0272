"""Utilisation: FLOPs as FlopCounterMode counts them on programs run here, peaks and bounds on captures that fit on a screen."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from pyprof.hardware.gpus import named
from pyprof.loading.load import load_capture
from pyprof.prof.frame import Frame
from pyprof.report.utilisation import Utilisation, _Alike, _mean_peaks, _Rated, utilisation
from tests.tiny import Nsys

WALL = 1_000_000
SIZE, HEADS, LENGTH = 64, 4, 96


def _whole(path: Path, wall_ns: int = WALL) -> Utilisation:
    frame = Frame(load_capture(path))
    return utilisation(frame, np.ones(len(frame.records), np.bool_), wall_ns)


class _Block(nn.Module):
    """A transformer's block: attention with a causal mask, two linears of a feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.norm, self.up, self.down = nn.LayerNorm(SIZE), nn.Linear(SIZE, 4 * SIZE), nn.Linear(4 * SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(x)))


class _Checkpointed(nn.Module):
    """Blocks that run again in backward; nested: the first is checkpointed within that as well."""

    def __init__(self, nested: bool) -> None:
        super().__init__()
        self.first, self.second, self.nested = _Block(), _Block(), nested

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.both, x, use_reentrant=False) if self.again else self.both(x)

    def both(self, x: torch.Tensor) -> torch.Tensor:
        first = checkpoint(self.first, x, use_reentrant=False) if self.again and self.nested else self.first(x)
        return self.second(first)

    again = True


def _perceptron() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 10)), torch.rand(32, 48)


def _convolutions() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(12 * 7 * 7, 10)), torch.rand(4, 3, 16, 16)


def _block() -> tuple[nn.Module, torch.Tensor]:
    return _Block(), torch.rand(2, LENGTH, SIZE)


def _checkpointed() -> tuple[nn.Module, torch.Tensor]:
    return _Checkpointed(nested=False), torch.rand(2, LENGTH, SIZE)


def _nested() -> tuple[nn.Module, torch.Tensor]:
    return _Checkpointed(nested=True), torch.rand(2, LENGTH, SIZE)


# Of the products of one attention's forward: what the mask leaves out of 2 x HEADS x LENGTH x LENGTH pairs. The CPU's composite
# multiplies whole matrices in its backward.
MASKED = 2 * 2 * (2 * HEADS) * (LENGTH * (LENGTH - 1) // 2) * (SIZE // HEADS)


def _counted(step: Callable[[], None]) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def _recorded(step: Callable[[], None], folder: Path) -> Utilisation:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step()
    recorded.export_chrome_trace(str(folder / "trace.json"))
    return _whole(folder / "trace.json")


def _step(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()

    step()
    return step


@pytest.mark.parametrize(
    ("make", "masked", "again", "low"),
    [
        (_perceptron, 0, 0, False), (_convolutions, 0, 0, True), (_block, 1, 0, False), (_checkpointed, 2, 2, True),
        (_nested, 2, 3, False),
    ],
)  # fmt: skip
def test_flops_are_those_of_flop_counter(
    make: Callable[[], tuple[nn.Module, torch.Tensor]], masked: int, again: int, low: bool, tmp_path: Path
) -> None:
    """masked, again: how often attention runs forward for the first time, and again; low: under autocast.

    No checkpoint stops early: the op at which it stops begins and does nothing, which a trace of the CPU does not show.
    """
    model, x = make()
    low_type = torch.autocast("cpu", torch.bfloat16, enabled=low)
    with sdpa_kernel(SDPBackend.MATH), low_type, set_checkpoint_early_stop(False):
        step = _step(model, x)
        everything, found = _counted(step), _recorded(step, tmp_path)
        model.again = False  # type: ignore[assignment]
        once = _counted(step)
    assert found.complete and found.matmul_flops is not None and found.recomputed_flops is not None
    assert found.matmul_flops == pytest.approx(once - masked * MASKED, rel=1e-9)
    assert found.recomputed_flops == pytest.approx(everything - once - again * MASKED, rel=1e-9)
    assert (found.recomputed_flops > 0) == (again > 0)
    assert set(found.peaks) == ({"bf16"} if low else {"fp32"}) and sum(found.peaks.values()) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_flops_of_a_compiled_program_are_those_of_flop_counter(tmp_path: Path) -> None:
    model, x = _block()
    with sdpa_kernel(SDPBackend.MATH):
        eager = _counted(_step(model, x))
        found = _recorded(_step(torch.compile(model), x), tmp_path)
    assert found.matmul_flops == pytest.approx(eager, rel=0.01) and found.recomputed_flops == 0 and found.complete


def test_flash_attention_counts_what_flop_counter_leaves_out_on_the_cpu(tmp_path: Path) -> None:
    """Forward and backward: 7 products of the pairs that the mask leaves."""
    step = _step(*_block())
    once, found = _counted(step), _recorded(step, tmp_path)
    pairs = 2 * HEADS * (LENGTH * (LENGTH + 1) // 2)
    assert found.matmul_flops == once + 7 * 2 * pairs * (SIZE // HEADS)


A100 = ("NVIDIA A100-SXM4-80GB", 108, 8, 0)  # bf16 312, TF32 156, fp32 19.5 TFLOP/s
BF16, FP32, POINTWISE = (
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn",
    "ampere_sgemm_128x64_nn",
    "vectorized_elementwise_kernel",
)
PRODUCT = 2 * 256**3


class _Capture:
    """An A100 and products of 256 x 256 matrices on it."""

    def __init__(self, devices: int = 1) -> None:
        self.nsys, self.at = Nsys(), 1_000
        self.nsys.rows["TARGET_INFO_GPU"] += [(number, A100[0], number, *A100[1:]) for number in range(devices)]

    def run(
        self, kernel: str, ns: int, op: str | None = "mm", tag: str = "bf16", launched: bool = True, device: int = 0
    ) -> None:
        begin = self.at
        if op:
            call = f'{op}({tag}[256,256], {tag}[256,256]) #pyprof{{"mod":"torch"}}'
            self.nsys.range(call, begin, begin + 50)
        self.nsys.kernel(kernel, begin + 10 if launched else None, begin + 100, begin + 100 + ns, device=device)
        self.at = begin + 200 + ns

    def found(self, tmp_path: Path) -> Utilisation:
        return _whole(self.nsys.write(tmp_path / "net.sqlite"))


def test_the_peak_is_that_of_each_products_precision(tmp_path: Path) -> None:
    capture = _Capture()
    capture.run(BF16, 30_000)
    capture.run(FP32, 10_000, tag="fp32")
    capture.run(POINTWISE, 5_000, op="add")
    found = capture.found(tmp_path)
    assert found.complete and (found.matmul_flops, found.recomputed_flops) == (2 * PRODUCT, 0)
    assert found.peaks == {"bf16": 0.75, "fp32": 0.25} and found.devices == 1 and found.busy_ns == 45_000
    assert found.peak_flops_per_s == pytest.approx(0.75 * 312e12 + 0.25 * 19.5e12)
    assert found.mfu == found.hfu == pytest.approx(2 * PRODUCT / (WALL * 1e-9) / found.peak_flops_per_s)
    assert found.mfu_min is None and found.hfu_min is None
    assert found.flops == 2 * PRODUCT + 256**2
    assert found.flops_per_wall_s == pytest.approx(found.flops / 1e-3)
    assert found.flops_per_busy_s == pytest.approx(found.flops / 45e-6)


def test_a_mean_peak_does_not_depend_on_the_order_of_products() -> None:
    peaks = [19.5e12, 156e12, 312e12, 9.7e12, 38.7e12]
    products = [_Rated(_Alike((1, 0), at, 0, -1, True), "", peaks[at % 5], 7**at % 999_983) for at in range(50)]
    found = {_mean_peaks([products[at] for at in np.random.default_rng(seed).permutation(50)], 1) for seed in range(20)}
    assert len(found) == 1


def test_a_device_without_products_counts_with_the_others(tmp_path: Path) -> None:
    capture = _Capture(devices=2)
    capture.run(BF16, 30_000)
    capture.run(POINTWISE, 10_000, op="add", device=1)
    found = capture.found(tmp_path)
    assert (found.devices, found.peak_flops_per_s, found.busy_ns) == (2, 2 * 312e12, 20_000)


@pytest.mark.parametrize(
    ("kernel", "op", "launched"), [(BF16, None, True), (POINTWISE, None, False), ("a_kernel_of_ones_own", None, True)]
)
def test_what_is_lacking_makes_a_lower_bound(kernel: str, op: str | None, launched: bool, tmp_path: Path) -> None:
    """A product without FLOPs, a kernel without a launch, and a kernel that may be anything."""
    capture = _Capture()
    capture.run(BF16, 900_000)
    capture.run(kernel, 8_000, op, launched=launched)
    assert capture.found(tmp_path).complete, "under 1 % of the time"
    capture.run(kernel, 8_000, op, launched=launched)
    found = capture.found(tmp_path)
    assert not found.complete and found.mfu is None and found.hfu is None
    assert found.mfu_min == found.hfu_min == pytest.approx(PRODUCT / 1e-3 / 312e12)


def test_a_precision_that_no_name_says_is_held_against_the_fastest_of_its_type(tmp_path: Path) -> None:
    """Triton multiplies fp32 in TF32, or as it is."""
    capture = _Capture()
    capture.run("triton_tem_fused_mm_0", 10_000, tag="fp32")
    found = capture.found(tmp_path)
    assert not found.complete and found.matmul_flops == PRODUCT and found.peaks == {}
    assert found.mfu is None and found.mfu_min == pytest.approx(PRODUCT / 1e-3 / 156e12)


def test_nothing_is_known_without_flops_or_without_a_peak(tmp_path: Path) -> None:
    capture = _Capture()
    capture.run(BF16, 10_000, op=None)
    found = capture.found(tmp_path)
    assert (found.matmul_flops, found.flops, found.mfu, found.mfu_min, found.peaks) == (None, None, None, None, {"bf16": 1.0})
    capture = _Capture(devices=0)
    capture.run(BF16, 10_000)
    found = capture.found(tmp_path)
    assert found.complete and found.matmul_flops == PRODUCT
    assert (found.peak_flops_per_s, found.mfu, found.hfu, found.mfu_min) == (None,) * 4


def test_a_program_without_products_has_no_flops_of_them(tmp_path: Path) -> None:
    capture = _Capture()
    capture.run(POINTWISE, 10_000, op="add")
    found = capture.found(tmp_path)
    assert (found.matmul_flops, found.flops, found.mfu, found.mfu_min) == (0, 256**2, None, None)


def test_products_of_an_optimizer_are_none_of_the_model(tmp_path: Path) -> None:
    capture = _Capture()
    capture.run(BF16, 10_000)
    begin = capture.at
    capture.run(BF16, 10_000)
    capture.nsys.range("Optimizer.step#Muon.step", begin - 20, capture.at)
    found = capture.found(tmp_path)
    assert found.matmul_flops == PRODUCT and found.flops == 2 * PRODUCT


def test_a_training_step_on_the_cpu_without_its_backward_is_a_lower_bound(tmp_path: Path) -> None:
    n = Nsys()
    n.range('mm(fp32[4,8], fp32[8,2]) #pyprof{"mod":"torch"}', 0, 300)
    assert _whole(n.write(tmp_path / "net.sqlite")).complete
    other = copy.deepcopy(n)
    other.range('attend(fp32[4,8]) #pyprof{"mod":"mine"}', 400, 900)  # may be a product, since nothing is known of it
    found = _whole(other.write(tmp_path / "other.sqlite"))
    assert not found.complete and (found.flops, found.flops_min) == (None, 2 * 4 * 8 * 2)
    n.range("Optimizer.step#SGD.step", 400, 900)
    n.range('add_(fp32[4,2], fp32[4,2]) #pyprof{"mod":"torch"}', 500, 600)
    found = _whole(n.write(tmp_path / "net.sqlite"))
    assert not found.complete and found.matmul_flops == 2 * 4 * 8 * 2 and found.devices == 1


def test_the_device_that_the_user_names(tmp_path: Path) -> None:
    capture = _Capture(devices=0)
    capture.run(BF16, 10_000)
    frame = Frame(load_capture(capture.nsys.write(tmp_path / "net.sqlite")), named("NVIDIA A100-SXM4-80GB"))
    assert utilisation(frame, np.array([0]), WALL).peak_flops_per_s == 312e12


def test_some_rows_of_a_capture(tmp_path: Path) -> None:
    capture = _Capture()
    capture.run(BF16, 10_000)
    capture.run(FP32, 10_000, tag="fp32")
    frame = Frame(load_capture(capture.nsys.write(tmp_path / "net.sqlite")))
    by_mask = utilisation(frame, np.array([True, False]), 10_000)
    assert by_mask == utilisation(frame, np.array([0]), 10_000) and by_mask.peaks == {"bf16": 1.0}
    assert by_mask.busy_ns == 10_000 and utilisation(frame, np.array([0]), 10_000, 7_000).busy_ns == 7_000
