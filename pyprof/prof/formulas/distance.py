"""Distances and similarities between the rows of tensors.

The euclidean distances of all pairs are a matrix product, |x|² + |y|² - 2·x·y; other norms are elementwise. The gradient of a
distance is the difference again, times gradient over distance.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import broadcast, grad, gradient, nbytes, need, product, promote, spec, vector, wants
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.registry import Cost, Op, Piece, op


@op("_euclidean_dist", places="ta", kind="matmul", backward=False)
@op("cdist", "_cdist_forward", places="ta", kind="matmul")
def cdist(x1: TensorSpec, x2: TensorSpec, p: object = 2.0) -> Op:
    (m, k), n = x1.shape[-2:], x2.shape[-2]
    batch = product(x1.shape[:-2])
    written = spec((batch, m, n), x1.dtype)
    if p == 2:
        one = product_cost(m, n, k, x1, x2, written, batch=batch, dtype=x1.dtype)
        yield Cost(one.matmul_flops, 4 * batch * m * n, one.bytes, one.mnk, batch, one.params)
    else:
        yield Cost(0, 3 * batch * m * n * k, nbytes(x1, x2, written))
    distances = spec((*broadcast(x1.shape[:-2], x2.shape[:-2]), m, n), x1.dtype)
    for name, x, other in (("input", x1, x2), ("other", x2, x1)):
        if wants(x):
            yield Piece(name, cdist_backward(distances, x, other, distances))


@op("aten::_cdist_backward")
def cdist_backward(grad: TensorSpec, x1: TensorSpec, x2: TensorSpec, cdist: TensorSpec) -> Cost:
    # The gradient of the first only: difference, product and sum an element of each pair; 1 a pair for gradient over distance.
    return vector((3 * x1.shape[-1] + 1) * cdist.numel, grad, x1, x2, cdist, gradient(x1))


@op("torch._pdist_forward", backward=False)
@op("pdist", "aten::_pdist_forward", places="tFa")
def pdist(input: TensorSpec) -> Op:
    rows, size = input.shape
    distances = spec((rows * (rows - 1) // 2,), input.dtype)
    yield vector(distances.numel * (3 * size + 1), input, distances)
    if wants(input):
        yield Piece("input", pdist_backward(distances, input, distances))


@op("aten::_pdist_backward")
def pdist_backward(grad: TensorSpec, input: TensorSpec, pdist: TensorSpec) -> Cost:
    # The difference of each pair again, times gradient over distance, added to the one row and taken from the other.
    return vector(4 * pdist.numel * input.shape[-1] + pdist.numel, grad, input, pdist, gradient(input))


@op("cosine_similarity", places="taF")
def cosine_similarity(x1: TensorSpec, x2: TensorSpec, dim: object = 1) -> Op:
    # Three products and sums: x·y, x·x, y·y.
    shape = broadcast(x1.shape, x2.shape)
    axis = dim % len(shape) if isinstance(dim, int) and shape else 0
    small = spec([n for d, n in enumerate(shape) if d != axis], promote(x1, x2))
    yield vector(6 * product(shape) + 3 * small.numel, x1, x2, small)
    # g·(y/(|x||y|) - cos·x/|x|²): two products, a difference and the gradient.
    need(dim, "dim")
    for name, x, y in (("input", x1, x2), ("other", x2, x1)):
        yield from grad(name, x, 4 * product(shape), small, small, x, y)


@op("pairwise_distance", places="Fta")
def pairwise_distance(x1: TensorSpec, x2: TensorSpec) -> Op:
    shape = broadcast(x1.shape, x2.shape)
    small = spec(shape[:-1], promote(x1, x2))
    yield vector(4 * product(shape), x1, x2, small)
    for name, x in (("input", x1), ("other", x2)):
        yield from grad(name, x, 3 * product(shape), small, small, x1, x2)
