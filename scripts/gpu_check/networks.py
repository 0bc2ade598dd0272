"""The networks of the check: a name -> a step to run, small enough for a CPU, with what is known of it beforehand.

Every size is a multiple of 64, so that products in bf16 or TF32 can run on Tensor Cores, and no step waits for the device.
Knows nothing of recording.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

BATCH, WIDTH, TOKENS, HEADS, CHANNELS = 128, 256, 128, 4, 64
REPLAYED_FROM = 3  # runs of a step that is captured as a graph, before it is


class Work(NamedTuple):
    """step: one iteration as it is recorded; eager: the same operations, one by one, for torch's FLOP counter."""

    step: Callable[[], Any]
    eager: Callable[[], Any]


class Network(NamedTuple):
    """A network and what is known of it.

    make: builds it on a device ("cuda" or "cpu"). math: what its products multiply in (fp32, tf32, bf16). training: has a
    backward pass. gpu: needs a GPU; compiled: by torch.compile. runs_before: steps that `make` itself runs; then the whole
    program is recorded, since a graph's kernels are known from its capture. masked_flops: what a causal mask leaves out of a
    step, which FlopCounterMode counts. own_backward: Python code of the user's runs in the backward pass.
    """

    make: Callable[[str], Work]
    math: str
    training: bool
    about: str
    gpu: bool = False
    compiled: bool = False
    runs_before: int = 0
    masked_flops: int = 0
    own_backward: bool = False


class Perceptron(nn.Sequential):
    """(batch, 256) -> (batch, 64)."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64)
        )


class Attention(nn.Module):
    """Self-attention with a residual connection: (batch, tokens, width) -> the same."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention in one op."""
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Convolutions(nn.Sequential):
    """(batch, 64, 16, 16) -> (batch, 64)."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(CHANNELS, 64),
        )  # fmt: skip


class Product(torch.autograd.Function):
    """x·w with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """(n, k), (k, m) -> (n, m)."""
        ctx.save_for_backward(x, w)
        return x.mm(w)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of both."""
        x, w = ctx.saved_tensors
        return gradient.mm(w.t()), x.t().mm(gradient)


class Custom(nn.Module):
    """A linear layer before a product that the user wrote: (batch, 256) -> (batch, 64)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.weight = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH, 64) / 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A tanh between them."""
        return Product.apply(torch.tanh(self.body(x)), self.weight)


def _precision(math: str) -> None:
    torch.set_float32_matmul_precision("high" if math == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = math == "tf32"


def _vectors(device: str) -> torch.Tensor:
    return torch.randn(BATCH, WIDTH, device=device)


def _sequences(device: str) -> torch.Tensor:
    return torch.randn(4, TOKENS, WIDTH, device=device)


def _images(device: str) -> torch.Tensor:
    return torch.randn(8, CHANNELS, 16, 16, device=device)


def _products_on_cpu(device: str) -> AbstractContextManager[Any]:
    """torch's FLOP counter has nothing for the CPU's attention in one kernel: there its products run one by one."""
    return sdpa_kernel(SDPBackend.MATH) if device == "cpu" else nullcontext()


def _training(
    model: Callable[[], nn.Module], inputs: Callable[[str], torch.Tensor], math: str = "fp32", **how: Any
) -> Callable[[str], Work]:
    """Steps of training. how: channels_last, compiled, optimizer (a function of the parameters)."""

    def make(device: str) -> Work:
        _precision(math)
        layout = torch.channels_last if how.get("channels_last") else torch.preserve_format
        net = model().to(device=device, memory_format=layout)
        x = inputs(device).to(memory_format=layout)
        optimizer = how.get("optimizer", _sgd)(net.parameters())

        def step(run: Callable[[torch.Tensor], torch.Tensor]) -> None:
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=math == "bf16"), _products_on_cpu(device):
                loss = run(x).float().square().mean()
            loss.backward()
            optimizer.step()

        run = torch.compile(net) if how.get("compiled") else net
        return Work(lambda: step(run), lambda: step(net))

    return make


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, foreach=True)


def _fused_adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.001, fused=True)


def _inference(
    model: Callable[[], nn.Module], inputs: Callable[[str], torch.Tensor], math: str = "fp32", compiled: bool = False
) -> Callable[[str], Work]:
    """Steps of inference, weights and inputs in the type of the products."""

    def make(device: str) -> Work:
        _precision(math)
        dtype = torch.bfloat16 if math == "bf16" else torch.float32
        net, x = model().eval().to(device, dtype), inputs(device).to(dtype)

        def step(run: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            with torch.inference_mode(), _products_on_cpu(device):
                return run(x)

        run = torch.compile(net) if compiled else net
        return Work(lambda: step(run), lambda: step(net))

    return make


def _graph(device: str) -> Work:
    """Inference captured in a CUDA graph and replayed."""
    eager = _inference(Perceptron, _vectors, "bf16")(device).step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(REPLAYED_FROM):
            eager()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        eager()
    return Work(graph.replay, eager)


def _two_streams(device: str) -> Work:
    """Two networks side by side, each on a stream of its own."""
    works = [_inference(Perceptron, _vectors, "bf16")(device).step for _ in range(2)]
    side = torch.cuda.Stream()

    def step() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            works[0]()
        works[1]()
        torch.cuda.current_stream().wait_stream(side)

    return Work(step, step)


def _self_attention() -> nn.Module:
    return Attention(causal=False)


def _causal_attention() -> nn.Module:
    return Attention(causal=True)


_MASKED = 4 * WIDTH * 4 * (TOKENS * (TOKENS - 1) // 2)  # two products over the pairs above the diagonal, four sequences

NETWORKS = {
    "train_fp32": Network(_training(Perceptron, _vectors), "fp32", True, "linear layers, TF32 off"),
    "train_tf32": Network(_training(Perceptron, _vectors, "tf32"), "tf32", True, "linear layers, TF32 on"),
    "train_bf16": Network(_training(Perceptron, _vectors, "bf16"), "bf16", True, "linear layers under autocast"),
    "train_conv": Network(_training(Convolutions, _images), "fp32", True, "convolutions and batch normalisation"),
    "train_channels_last": Network(
        _training(Convolutions, _images, "bf16", channels_last=True), "bf16", True, "convolutions, channels last, autocast"
    ),
    "train_attention": Network(_training(_self_attention, _sequences, "bf16"), "bf16", True, "attention in one op"),
    "train_fused_adam": Network(_training(Perceptron, _vectors, optimizer=_fused_adam), "fp32", True, "a fused optimizer"),
    "train_custom": Network(_training(Custom, _vectors), "fp32", True, "an autograd function of the user's", own_backward=True),
    "train_compiled": Network(
        _training(Perceptron, _vectors, "tf32", compiled=True), "tf32", True, "torch.compile", compiled=True
    ),
    "infer_fp32": Network(_inference(Perceptron, _vectors), "fp32", False, "linear layers"),
    "infer_causal": Network(
        _inference(_causal_attention, _sequences, "bf16"), "bf16", False, "causal attention in bf16", masked_flops=_MASKED
    ),
    "infer_compiled": Network(
        _inference(Perceptron, _vectors, "bf16", compiled=True), "bf16", False, "torch.compile in bf16", compiled=True
    ),
    "infer_graph": Network(_graph, "bf16", False, "a CUDA graph, replayed", gpu=True, runs_before=REPLAYED_FROM),
    "infer_two_streams": Network(_two_streams, "bf16", False, "two networks on two streams", gpu=True),
}
