"""Whole programs run here under torch.profiler: the sum over our records is FlopCounterMode's total of the same run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from pyprof.load import load_capture
from pyprof.prof.cost import cost_records
from pyprof.prof.infer import infer


class _Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x)[0] + (x @ x.transpose(1, 2)) @ x


def _transformer() -> tuple[torch.nn.Module, torch.Tensor]:
    return torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), torch.rand(3, 10, 32)


def _attention() -> tuple[torch.nn.Module, torch.Tensor]:
    return _Attention(), torch.rand(2, 6, 16)


def _perceptron() -> tuple[torch.nn.Module, torch.Tensor]:
    layers = torch.nn.Linear(7, 9), torch.nn.LayerNorm(9), torch.nn.Softmax(-1), torch.nn.Linear(9, 3)
    return torch.nn.Sequential(*layers), torch.rand(2, 5, 7)


def _convolutions(groups: int = 1) -> tuple[torch.nn.Module, torch.Tensor]:
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    layers += [torch.nn.Conv2d(8, 12, 3, stride=2, groups=groups, bias=False), torch.nn.GELU()]
    layers += [torch.nn.ConvTranspose2d(12, 4, 2, stride=2), torch.nn.Flatten(), torch.nn.Linear(144, 10)]
    return torch.nn.Sequential(*layers), torch.rand(4, 3, 16, 16)


def _totals(model: torch.nn.Module, x: torch.Tensor, folder: Path) -> tuple[int, int]:
    """FlopCounterMode's total of one training step, and ours of the same."""

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    step()
    with FlopCounterMode(display=False) as counter:
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step()
    path = folder / "trace.json"
    recorded.export_chrome_trace(str(path))
    costs = cost_records(infer(load_capture(path)))
    assert costs.reasons == {}
    return counter.get_total_flops(), int(np.maximum(costs.matmul_flops, 0).sum())


@pytest.mark.parametrize("make", [_transformer, _attention, _perceptron, _convolutions])
def test_totals_are_those_of_flop_counter(make: Callable[[], tuple[torch.nn.Module, torch.Tensor]], tmp_path: Path) -> None:
    with sdpa_kernel(SDPBackend.MATH):  # flop_counter has nothing for the CPU's flash attention
        theirs, ours = _totals(*make(), tmp_path)
    assert ours == theirs > 0


def test_flash_attention_on_the_cpu_is_what_flop_counter_leaves_out(tmp_path: Path) -> None:
    theirs, ours = _totals(*_transformer(), tmp_path)
    # 3 x 4 heads of 10 x 10 by 8: two products forward, five backward.
    assert ours - theirs == 7 * 2 * 3 * 4 * 10 * 10 * 8


def test_a_grouped_weight_gradient_is_what_flop_counter_counts_too_high(tmp_path: Path) -> None:
    # 4 x 12 x 3 x 3 outputs of 4 x 3 x 3 products: it counts the weight gradient of 2 groups twice.
    theirs, ours = _totals(*_convolutions(groups=2), tmp_path)
    assert theirs - ours == 2 * (4 * 12 * 3 * 3) * (4 * 3 * 3)
