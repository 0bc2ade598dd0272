"""An op of your own with a formula of its own: FLOPs and bytes of a function that pyprof cannot know.

    pyprof run -o custom_op -m pyprof.examples.custom_op
    pyprof prof custom_op.json.gz --formulas FILE --group-by op        FILE: this file

What to look for: without the formula the op is what it is made of, 24 rows of `mul` and `add`, each with bytes of its own. With
it: one op of 2 * degree FLOPs an element and the bytes of one input and one output, and GB/s says how far its kernels are from
what one fused kernel could do. A kernel of your own that torch does not look into has no FLOPs at all without a formula
(`na`: unknown, not 0), and the summary says for how much of the time they are known.
"""

from __future__ import annotations

import torch

import pyprof
from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas import Cost


@pyprof.formula("demo::polynomial")
def polynomial_cost(x: TensorSpec, coefficients: list[float]) -> Cost:
    """A multiplication and an addition an element and degree. Parameters are the op's own; a tensor is its shape and type."""
    degree = len(coefficients) - 1
    moved = None if x.nbytes is None else 2 * x.nbytes  # x is read once, the result written once; None: type unknown
    return Cost(matmul_flops=0, vector_flops=2 * degree * x.numel, bytes=moved)


@torch.library.custom_op("demo::polynomial", mutates_args=())
def polynomial(x: torch.Tensor, coefficients: list[float]) -> torch.Tensor:
    """coefficients[0] + coefficients[1] * x + ..., by Horner's rule."""
    result = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result


def main() -> None:
    """Call the op three times."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.linspace(-1, 1, 1_000_000, device=device)
    for _ in range(3):
        y = polynomial(x, [1.0, 1.0, 1 / 2, 1 / 6, 1 / 24])
    print(f"largest error against exp: {(y - x.exp()).abs().max().item():.4f}")


if __name__ == "__main__":
    main()
