"""Contractions of several tensors as the matrix products that torch makes of them: einsum, tensordot, chains of matrices.

einsum multiplies its operands two by two from the left (or along the path given). An index of only one of the two that is not
in the result is summed first; indices of both that are not in the result are the depth K, those of both that are in it the
batch, the others rows and columns. Without a depth the step is an elementwise product. An optimised path chosen by opt_einsum
is not recorded, and may cost less for three operands and more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import dims, grad, nbytes, need, product, spec
from pyprof.prof.formulas.gemm import number_backward, product_backward, product_cost
from pyprof.prof.formulas.registry import Cost, Missing, Op, forward, op

Indexed = tuple[str, ...]


def _labels(term: str, hidden: list[str]) -> Indexed:
    """Labels of one operand, or of the result; hidden: those that its ellipsis means."""
    before, dots, after = term.partition("...")
    return (*before, *(hidden if dots else ()), *after)


def _parse(equation: object, operands: list[TensorSpec]) -> tuple[list[Indexed], Indexed, dict[str, int]]:
    """Labels of each operand and of the result, and the size of each label."""
    left, arrow, right = need(equation, "equation").replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise Missing(f"{len(operands)} operands for {equation!r}")
    # Dimensions behind an ellipsis are counted from its end: `.-1` is the last.
    counts = [len(t.shape) - len(term.replace("...", "")) for term, t in zip(terms, operands, strict=True)]
    hidden = [f".{i}" for i in range(-max(counts), 0)]
    inputs = [_labels(term, hidden[len(hidden) - count :]) for term, count in zip(terms, counts, strict=True)]
    sizes: dict[str, int] = {}
    for labels, operand in zip(inputs, operands, strict=True):
        for label, size in zip(labels, operand.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    if arrow:
        return inputs, _labels(right, hidden), sizes
    flat = left.replace("...", "")
    return inputs, (*hidden, *sorted(label for label in sizes if flat.count(label) == 1)), sizes


def _size(labels: Iterable[str], sizes: dict[str, int]) -> int:
    return product(sizes[label] for label in labels)


class ContractionStep(NamedTuple):
    """One product of two operands, or of none (k = 0) where the step only multiplies elementwise or sums."""

    m: int
    n: int
    k: int
    batch: int
    elementwise: int


def _alone(operations: int) -> ContractionStep:
    return ContractionStep(0, 0, 0, 1, operations)


def contraction_steps(
    inputs: list[Indexed], output: Indexed, sizes: dict[str, int], path: object = None
) -> list[ContractionStep]:
    """The products that torch.einsum makes of operands of these labels, in order."""
    if len(inputs) == 1:
        return [_alone(_size(set(inputs[0]), sizes) if set(inputs[0]) - set(output) else 0)]
    order = [int(p) for p in path] if isinstance(path, (list, tuple)) and path else [0, 1] * (len(inputs) - 1)
    steps: list[ContractionStep] = []
    left = list(inputs)
    for first, second in zip(order[::2], order[1::2], strict=False):
        i, j = sorted((first, second))
        b, a = set(left.pop(j)), set(left.pop(i))
        kept = set(output).union(*map(set, left))
        alone = sum(_size(x, sizes) for x, y in ((a, b), (b, a)) if any(s not in kept | y and sizes[s] > 1 for s in x))
        a, b = {s for s in a if s in kept | b}, {s for s in b if s in kept | a}
        depth = {s for s in (a & b) - kept if sizes[s] > 1}  # torch multiplies elementwise where all are 1
        batch, rows, columns = (a & b) & kept, a - b, b - a
        merged = tuple(sorted(rows | columns | batch))
        if depth:
            m, n, k, count = (_size(labels, sizes) for labels in (rows, columns, depth, batch))
            steps.append(ContractionStep(m, n, k, count, alone))
        else:
            steps.append(_alone(alone + _size(merged, sizes)))
        left.append(merged)
    return steps


def _operands(operands: tuple[object, ...]) -> tuple[list[TensorSpec], object]:
    # einsum(equation, [a, b]) and aten::einsum(equation, tensors, path), or einsum(equation, a, b)
    if operands and isinstance(operands[0], (list, tuple)):
        return list(operands[0]), operands[1] if len(operands) > 1 else None
    found = [o for o in operands if isinstance(o, TensorSpec)]
    if not found:
        raise Missing("operands not recorded")
    return found, None


def _total(steps: list[ContractionStep], touched: int | None, dtype: str | None) -> Cost:
    """All steps together, described by the biggest."""
    each = [product_cost(s.m, s.n, s.k, batch=s.batch, dtype=dtype) for s in steps]
    biggest = max(each, key=lambda cost: cost.matmul_flops or 0)
    flops = sum(cost.matmul_flops or 0 for cost in each)
    m, n, k = biggest.mnk or (0, 0, 0)
    mnk, text = ((m, n, k), biggest.params) if k else (None, None)
    return Cost(flops, sum(s.elementwise for s in steps), touched, mnk, biggest.batch, text)


@op("torch.einsum", "aten::einsum", "torch.functional.einsum", kind="matmul", composed=True)
def einsum(equation: object, *operands: object, path: object = None) -> Op:
    found, given = _operands(operands)
    labels, output, sizes = _parse(equation, found)
    made = spec((sizes[label] for label in output), found[0].dtype)
    steps = contraction_steps(labels, output, sizes, given or path)
    yield _total(steps, nbytes(found, made), made.dtype)
    # The gradient of each of two operands is the contraction of the incoming gradient with the other.
    if len(found) == 2:
        (a, b), (step,) = found, steps
        if step.k:
            yield from product_backward(a, b, made.shape, step[:3], step.batch)
        else:
            yield from grad("wgrad", b, step.elementwise, made, a)
            yield from grad("dgrad", a, step.elementwise, made, b)


# ---------------------------------------------------------------------------------------------- tensordot and chains


def _axes_of(x: TensorSpec, axes: int | list[int]) -> list[int]:
    return [int(d) % max(len(x.shape), 1) for d in ([axes] if isinstance(axes, int) else axes)]


@op("torch.tensordot", "torch.functional.tensordot", kind="matmul", order="a b dims out")
def tensordot(a: TensorSpec, b: TensorSpec, dims: object = 2) -> Op:
    axes = need(dims, "dims")
    if isinstance(axes, int):
        first, second = list(range(len(a.shape) - axes, len(a.shape))), list(range(axes))
    else:
        first, second = _axes_of(a, axes[0]), _axes_of(b, axes[1])
    k = product(max(a.shape[i], b.shape[j]) for i, j in zip(first, second, strict=True))
    rows = tuple(size for d, size in enumerate(a.shape) if d not in first)
    columns = tuple(size for d, size in enumerate(b.shape) if d not in second)
    m, n = product(rows), product(columns)
    yield product_cost(m, n, k, a, b, spec(rows + columns, a.dtype), dtype=a.dtype)
    yield from number_backward(a, b) if m == n == 1 else product_backward(a, b, rows + columns, (m, n, k))


@op("aten::tensordot", kind="matmul", composed=True)
def aten_tensordot(input: TensorSpec, other: TensorSpec, dims_self: object, dims_other: object) -> Cost:
    return forward(tensordot(input, other, (need(dims_self, "dims_self"), need(dims_other, "dims_other"))))


def _chain_flops(sizes: list[int]) -> int:
    """Fewest multiply-adds of a product of matrices of sizes[i] x sizes[i+1], times 2 (the usual dynamic programme)."""
    count = len(sizes) - 1
    best = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            best[i][j] = min(best[i][s] + best[s + 1][j] + sizes[i] * sizes[s + 1] * sizes[j + 1] for s in range(i, j))
    return 2 * best[0][count - 1]


@op("torch.chain_matmul", "aten::chain_matmul", "torch.linalg.multi_dot", "aten::linalg_multi_dot", kind="matmul")
def multi_dot(*matrices: object, out: object = None) -> Cost:
    found, _ = _operands(matrices)
    first = (1, *found[0].shape) if len(found[0].shape) == 1 else found[0].shape
    last = (*found[-1].shape, 1) if len(found[-1].shape) == 1 else found[-1].shape
    sizes = [first[0], first[1], *(m.shape[1] for m in found[1:-1]), last[1]]
    return Cost(_chain_flops(sizes), 0, nbytes(found, spec((sizes[0], sizes[-1]), found[0].dtype)))


@op("vecdot", places="lL")
def vecdot(x: TensorSpec, y: TensorSpec, dim: object = -1) -> Cost:
    axis = dims(dim, len(x.shape))[0]
    rows = tuple(n for d, n in enumerate(x.shape) if d != axis)
    return Cost(0, 2 * x.numel, nbytes(x, y, spec(rows, x.dtype)))


@op("matrix_power", places="tTalL", kind="matmul")
def matrix_power(input: TensorSpec, n: object) -> Cost:
    # Binary powering: a squaring for each further bit, a product for each further one.
    exponent = abs(need(n, "n"))
    products = max(exponent.bit_length() - 1, 0) + max(bin(exponent).count("1") - 1, 0)
    size = input.shape[-1]
    batch = product(input.shape[:-2])
    return Cost(2 * products * batch * size**3, 0, nbytes(input, input), (size, size, size), batch)
