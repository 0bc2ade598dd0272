"""Whole programs run here under torch.profiler: the sum over our records is FlopCounterMode's total of the same run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from pyprof.loading.load import load_capture
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


class _Contractions(torch.nn.Module):
    """Traces hold neither an einsum's equation nor, before 2.0, the dimensions of a tensordot."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(8, 3, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bij,bkj->bik", x, x)
        mixed = torch.einsum("bik,bkj,jno->bino", scores, x, self.weight)
        return torch.tensordot(mixed, self.weight, dims=([2, 3], [1, 2])) + torch.linalg.multi_dot([x[0], x[1].t(), x[0]])


class _Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(6, 8, num_layers=2, bidirectional=True)
        self.gru = torch.nn.GRU(16, 4)
        self.cell = torch.nn.LSTMCell(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.gru(self.lstm(x)[0])[0]
        return self.cell(found[-1])[0]


class _Decoder(torch.nn.Module):
    """Grouped queries, a causal mask, embeddings tied to the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.project = torch.nn.Linear(16, 16 + 2 * 8)
        self.norm = torch.nn.RMSNorm(16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embed(tokens))
        q, k, v = self.project(x).split([16, 8, 8], -1)
        heads = [t.unflatten(-1, (-1, 4)).transpose(1, 2) for t in (q, k, v)]
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return torch.nn.functional.silu(mixed.transpose(1, 2).flatten(-2)) @ self.embed.weight.t()


def _contractions() -> tuple[torch.nn.Module, torch.Tensor]:
    return _Contractions(), torch.rand(4, 7, 8)


def _recurrent() -> tuple[torch.nn.Module, torch.Tensor]:
    return _Recurrent(), torch.rand(5, 3, 6)


def _decoder() -> tuple[torch.nn.Module, torch.Tensor]:
    return _Decoder(), torch.randint(50, (2, 9))


def _volumes() -> tuple[torch.nn.Module, torch.Tensor]:
    layers = [torch.nn.Conv3d(2, 4, 3, padding="same"), torch.nn.InstanceNorm3d(4), torch.nn.MaxPool3d(2)]
    layers += [torch.nn.ConvTranspose3d(4, 3, 2, stride=2), torch.nn.Flatten(2), torch.nn.Conv1d(3, 5, 4, dilation=2)]
    return torch.nn.Sequential(*layers), torch.rand(2, 2, 6, 6, 6)


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


@pytest.mark.parametrize("make", [_transformer, _attention, _perceptron, _convolutions, _contractions, _volumes])
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


def test_a_causal_mask_is_what_flop_counter_does_not_see(tmp_path: Path) -> None:
    # 2 x 4 heads of 9 x 9 pairs by 4, of which the forward needs 45; the backward's products each run whole.
    with sdpa_kernel(SDPBackend.MATH):
        theirs, ours = _totals(*_decoder(), tmp_path)
    assert theirs - ours == 2 * 2 * 8 * (81 - 45) * 4


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_recurrent_layers_cost_what_their_products_do(tmp_path: Path) -> None:
    with torch.backends.mkldnn.flags(enabled=False):  # flop_counter does not see into oneDNN's layers
        theirs, ours = _totals(*_recurrent(), tmp_path)
        assert ours == theirs > 0
    _, whole = _totals(*_recurrent(), tmp_path)
    # oneDNN gives the first layer's input a gradient too, in both directions, and the states'.
    assert whole >= ours
