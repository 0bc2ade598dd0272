"""Compiled functions whose kernels touch parts of their buffers, touch them twice, or write to their arguments, on the CPU.

TORCHINDUCTOR_CACHE_DIR=CACHE TORCHINDUCTOR_BENCHMARK_KERNEL=1 python compiled_parts.py

The generated modules are what CACHE then holds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def columns(x: torch.Tensor) -> torch.Tensor:
    """20 of 50 columns."""
    return x[:, :10].exp() + x[:, 20:30].sin()


def rows(x: torch.Tensor) -> torch.Tensor:
    """Every second row."""
    return x[::2].exp()


def joined(x: torch.Tensor) -> torch.Tensor:
    """Two kernels' worth of output in one buffer, from one buffer."""
    return torch.cat([x.exp(), x[:, 2:6].sin()], 1)


def padded(x: torch.Tensor) -> torch.Tensor:
    """More elements come out than went in."""
    return F.pad(x, (1, 2)) * 3


def normalised(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """Running statistics are read and written."""
    return F.batch_norm(x, mean, var, training=True).relu()


def added_to(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Its argument is changed."""
    x.add_(y.exp())
    return x * 2


def summed(x: torch.Tensor) -> torch.Tensor:
    """Three types in one kernel."""
    return x.float().sum(-1).to(torch.bfloat16)


def scattered(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Rows are added to by their indices."""
    return x.index_add(0, index, source).exp()


def together(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Reductions over rows, over columns and over all, by two threads."""
    return (F.gelu(x) * weight).sum(0), x.softmax(-1), x.var(1), x.sum()


def main() -> None:
    """Compile each once."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for function in (columns, rows, joined, padded):
        torch.compile(function)(torch.randn(16, 50))
    torch.compile(normalised)(torch.randn(4, 5, 6, 6), torch.zeros(5), torch.ones(5))
    torch.compile(added_to)(torch.randn(33), torch.randn(33))
    torch.compile(summed)(torch.randn(20, 70).bfloat16())
    torch.compile(scattered)(torch.randn(9, 40), torch.randint(9, (5,)), torch.randn(5, 40))
    torch.set_num_threads(2)
    torch.compile(together)(torch.randn(300, 201), torch.randn(201))


if __name__ == "__main__":
    main()
