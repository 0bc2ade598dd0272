"""Contractions of several tensors: einsum, tensordot, chain_matmul and multi_dot, as the matrix products that torch makes of
them.

einsum multiplies its operands two by two from the left (or along the path given). An index of only one of the two that is not
in the result is summed first; indices of both that are not in the result are the depth K, those of both that are in it the
batch, the others rows and columns. Without a depth the step is an elementwise product. An optimised path chosen by opt_einsum
is not recorded, and may cost less for three operands and more.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import dims, gradient, nbytes, need, product, spec, vector, wants
from pyprof.prof.formulas.gemm import number_backward, product_backward, product_cost
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__ = ["contraction_steps"]

Indexed = tuple[str, ...]


def _split_labels(term: str) -> Indexed:
    """Labels of one operand; the ellipsis is one label of its own here, expanded by `_labels`."""
    found: list[str] = []
    rest = term
    while rest:
        label, rest = ("...", rest[3:]) if rest.startswith("...") else (rest[0], rest[1:])
        found.append(label)
    return tuple(found)


def _labels(term: str, rank: int) -> Indexed:
    split = _split_labels(term)
    hidden = rank - (len(split) - split.count("..."))
    return tuple(name for label in split for name in ([f".{i}" for i in range(-hidden, 0)] if label == "..." else [label]))


def _parse(equation: Any, operands: list[TensorSpec]) -> tuple[list[Indexed], Indexed, dict[str, int]]:
    text = need(equation, "equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise Missing(f"{len(operands)} operands for {equation!r}")
    inputs = [_labels(term, len(t.shape)) for term, t in zip(terms, operands, strict=True)]
    sizes: dict[str, int] = {}
    for labels, operand in zip(inputs, operands, strict=True):
        for label, size in zip(labels, operand.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    hidden = sorted((label for label in sizes if label.startswith(".")), key=lambda label: int(label[1:]))
    if arrow:
        output = tuple(n for label in _split_labels(right) for n in (hidden if label == "..." else [label]))
    else:
        flat = [label for labels in inputs for label in labels]
        output = (*hidden, *sorted(label for label in set(flat) if flat.count(label) == 1 and not label.startswith(".")))
    return inputs, output, sizes


def _size(labels: Any, sizes: dict[str, int]) -> int:
    return product(sizes[label] for label in labels)


def contraction_steps(equation: str, operands: list[TensorSpec], path: Any = None) -> list[tuple[int, int, int, int, int]]:
    """The products that torch.einsum makes: (m, n, k, batch, operations elementwise) each, in order."""
    inputs, output, sizes = _parse(equation, operands)
    steps: list[tuple[int, int, int, int, int]] = []
    order = [int(p) for p in path] if isinstance(path, (list, tuple)) and path else [0, 1] * (len(inputs) - 1)
    if len(inputs) == 1:
        summed = set(inputs[0]) - set(output)
        return [(0, 0, 0, 1, _size(set(inputs[0]), sizes) if summed else 0)]
    left = list(inputs)
    for first, second in zip(order[::2], order[1::2], strict=False):
        i, j = sorted((first, second))
        b, a = set(left.pop(j)), set(left.pop(i))
        kept = set(output).union(*map(set, left))
        alone = sum(_size(x, sizes) for x, y in ((a, b), (b, a)) if any(s not in kept | y and sizes[s] > 1 for s in x))
        a, b = {s for s in a if s in kept | b}, {s for s in b if s in kept | a}
        depth = {s for s in (a & b) - kept if sizes[s] > 1}  # torch multiplies elementwise where all are 1
        batch = (a & b) & kept
        rows, columns = a - b, b - a
        merged = tuple(sorted(rows | columns | batch))
        if depth:
            steps.append((_size(rows, sizes), _size(columns, sizes), _size(depth, sizes), _size(batch, sizes), alone))
        else:
            steps.append((0, 0, 0, 1, alone + _size(merged, sizes)))
        left.append(merged)
    return steps


def _einsum_operands(operands: tuple[Any, ...]) -> tuple[list[TensorSpec], Any]:
    if operands and isinstance(
        operands[0], (list, tuple)
    ):  # einsum(equation, [a, b]) and aten::einsum(equation, tensors, path)
        return list(operands[0]), operands[1] if len(operands) > 1 else None
    found = [o for o in operands if isinstance(o, TensorSpec)]
    if not found:
        raise Missing("operands not recorded")
    return found, None


def _total(steps: list[tuple[int, int, int, int, int]], touched: int | None, dtype: str | None) -> Cost:
    biggest = max(steps, key=lambda s: s[0] * s[1] * s[2] * s[3])
    one = [product_cost(m, n, k, batch=b, dtype=dtype).matmul_flops or 0 for m, n, k, b, _ in steps]
    m, n, k, batch, _ = biggest
    described = product_cost(m, n, k, batch=batch, dtype=dtype)
    mnk = described.mnk if k else None
    return Cost(sum(one), sum(s[4] for s in steps), touched, mnk, batch, described.params if k else None)


@formula("torch.einsum", "aten::einsum", "torch.functional.einsum", kind="matmul", composed=True)
def einsum(equation: Any, *operands: Any, path: Any = None) -> Cost:
    found, given = _einsum_operands(operands)
    _, output, sizes = _parse(equation, found)
    result = spec((sizes[label] for label in output), found[0].dtype)
    return _total(contraction_steps(equation, found, given or path), nbytes(found, result), found[0].dtype)


@backward("torch.einsum", "aten::einsum", "torch.functional.einsum")
def einsum_backward(equation: Any, *operands: Any, path: Any = None) -> tuple[Piece, ...]:
    # The gradient of each of two operands is the contraction of the incoming gradient with the other.
    found, _ = _einsum_operands(operands)
    if len(found) != 2:
        return ()
    _, output, sizes = _parse(equation, found)
    (step,) = contraction_steps(equation, found)
    m, n, k, batch, elementwise = step
    grad = spec((sizes[label] for label in output), found[0].dtype)
    if k:
        return product_backward(found[0], found[1], grad.shape, (m, n, k), batch)
    return tuple(
        Piece(name, vector(elementwise, grad, other, gradient(x)))
        for name, x, other in zip(("wgrad", "dgrad"), found[::-1], found, strict=True)
        if wants(x)
    )


# ---------------------------------------------------------------------------------------------- tensordot and chains


def _axes_of(x: TensorSpec, axes: Any) -> list[int]:
    return [int(d) % max(len(x.shape), 1) for d in ([axes] if isinstance(axes, int) else axes)]


def _tensordot_sizes(a: TensorSpec, b: TensorSpec, axes: Any) -> tuple[int, int, int, tuple[int, ...]]:
    need(axes, "dims")
    if isinstance(axes, int):
        first, second = list(range(len(a.shape) - axes, len(a.shape))), list(range(axes))
    else:
        first, second = _axes_of(a, axes[0]), _axes_of(b, axes[1])
    k = product(max(a.shape[i], b.shape[j]) for i, j in zip(first, second, strict=True))
    rows = tuple(n for d, n in enumerate(a.shape) if d not in first)
    columns = tuple(n for d, n in enumerate(b.shape) if d not in second)
    return product(rows), product(columns), k, rows + columns


@formula("torch.tensordot", "torch.functional.tensordot", kind="matmul")
def tensordot(a: TensorSpec, b: TensorSpec, dims: Any = 2, out: Any = None) -> Cost:
    m, n, k, shape = _tensordot_sizes(a, b, dims)
    return product_cost(m, n, k, a, b, spec(shape, a.dtype), dtype=a.dtype)


@formula("aten::tensordot", kind="matmul", composed=True)
def aten_tensordot(input: TensorSpec, other: TensorSpec, dims_self: Any, dims_other: Any) -> Cost:
    return tensordot(input, other, (need(dims_self, "dims_self"), need(dims_other, "dims_other")))


@backward("torch.tensordot", "torch.functional.tensordot")
def tensordot_backward(a: TensorSpec, b: TensorSpec, dims: Any = 2, out: Any = None) -> tuple[Piece, ...]:
    m, n, k, shape = _tensordot_sizes(a, b, dims)
    return tuple(number_backward(a, b)) if m == n == 1 else product_backward(a, b, shape, (m, n, k))


def _chain_flops(sizes: list[int]) -> int:
    """Fewest multiply-adds of a product of matrices of sizes[i] x sizes[i+1], times 2 (the usual dynamic programme)."""
    count = len(sizes) - 1
    best = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            best[i][j] = min(best[i][s] + best[s + 1][j] + sizes[i] * sizes[s + 1] * sizes[j + 1] for s in range(i, j))
    return 2 * best[0][count - 1]


@formula("torch.chain_matmul", "aten::chain_matmul", "torch.linalg.multi_dot", "aten::linalg_multi_dot", kind="matmul")
def multi_dot(*matrices: Any, out: Any = None) -> Cost:
    found = (
        list(matrices[0]) if matrices and isinstance(matrices[0], (list, tuple)) else [m for m in matrices if m is not UNKNOWN]
    )
    first = (1, *found[0].shape) if len(found[0].shape) == 1 else found[0].shape
    last = (*found[-1].shape, 1) if len(found[-1].shape) == 1 else found[-1].shape
    sizes = [first[0], first[1], *(m.shape[1] for m in found[1:-1]), last[1]]
    return Cost(_chain_flops(sizes), 0, nbytes(found, spec((sizes[0], sizes[-1]), found[0].dtype)))


@formula("torch.linalg.vecdot", "aten::linalg_vecdot")
def vecdot(x: TensorSpec, y: TensorSpec, dim: Any = -1, out: Any = None) -> Cost:
    axis = dims(dim, len(x.shape))[0]
    rows = tuple(n for d, n in enumerate(x.shape) if d != axis)
    return Cost(0, 2 * x.numel, nbytes(x, y, spec(rows, x.dtype)))


@formula("torch.linalg.matrix_power", "aten::linalg_matrix_power", "torch.matrix_power", "Tensor.matrix_power",
    "aten::matrix_power",
         kind="matmul")  # fmt: skip
def matrix_power(input: TensorSpec, n: Any, out: Any = None) -> Cost:
    # Binary powering: a squaring for each further bit, a product for each further one.
    exponent = abs(need(n, "n"))
    products = max(exponent.bit_length() - 1, 0) + max(bin(exponent).count("1") - 1, 0)
    size = input.shape[-1]
    batch = product(input.shape[:-2])
    return Cost(2 * products * batch * size**3, 0, nbytes(input, input), (size, size, size), batch)
