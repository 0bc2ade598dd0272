"""Backward kernels whose own op was recorded without sizes -> their parts of the forward op's backward.

The formula of the forward op lists the parts of its backward (dgrad, wgrad, bias). Which kernel computes which part is decided
here: by the op that the kernel ran in, else by launch order. Sharing a cost among kernels is the business of `cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.opcall import OpCall
from pyprof.model.records import Classes, Records, Stack
from pyprof.prof import formulas
from pyprof.prof.formulas import Cost

_Given = tuple[Ints, Ints, int]
"""For each kernel of one backward its cost and the group that shares it (numbers from 0); and the number of groups."""

_MASK = ("dgrad", "wgrad", "bias")  # the parts of the backward of a product, as an output_mask has them
_SUMS = ("sum", "sum_out")  # what a bias's gradient is, inside the backward of a convolution
# Ops that compute one gradient of a convolution each -> the piece of the backward that it is.
_PIECE_OF = {
    f"{library}_convolution_backward_{what}": piece
    for library in ("cudnn", "miopen", "mkldnn")
    for what, piece in (("input", "dgrad"), ("weight", "wgrad"), ("weights", "wgrad"), ("bias", "bias"))
}


class Backwards:
    """Assigns parts of backwards to kernels.

    product: per class, whether its kernels multiply matrices; on_cpu: each row is a whole op, so its own op counts, not the
    inner one; add: stores a cost and returns its number.
    """

    def __init__(self, records: Records, classes: Classes, product: Bools, on_cpu: bool, add: Callable[[Cost], int]) -> None:
        self._records, self._classes, self._product, self._on_cpu, self._add = records, classes, product, on_cpu, add
        self._code_of: dict[int, int] = {}  # of a piece of a backward, by its identity
        self._pieces: dict[int, tuple[formulas.Piece, ...]] = {}  # of the backward of each call
        self._op = "own" if on_cpu else "inner"
        self._named = [*map(_PIECE_OF.get, map(attrgetter("op"), records.calls)), None]  # per call: the part in its name
        self._settled: dict[tuple[int, ...], _Given | None] = {}
        number = {name: at for at, name in enumerate(dict.fromkeys(_PIECE_OF.values()))}
        named = np.array([-1 if name is None else number[name] for name in self._named], np.int64)
        sums = np.array([call.op in _SUMS for call in records.calls] + [False], np.bool_)
        whole = np.array([on_cpu and _is_backward(call) for call in records.calls] + [False], np.bool_)
        # Everything that `_given` looks at in a kernel.
        self._trait = (8 * named + 4 * whole + 2 * sums)[classes.records[self._op]] + product

    def pieces(self, call: int) -> tuple[formulas.Piece, ...]:
        """The parts of the backward of a call."""
        if call not in self._pieces:
            self._pieces[call] = formulas.evaluate_backward(self._records.calls[call])
        return self._pieces[call]

    def with_mask(self, own: OpCall, forward: int) -> OpCall | None:
        """A backward op with the output_mask (which inputs want a gradient) taken from its forward; None unless the forward
        multiplies matrices."""
        pieces = self.pieces(forward)
        names = {piece.name for piece in pieces}
        if not names <= {*_MASK} or not any(piece.cost.matmul_flops for piece in pieces):
            return None
        return own._replace(kwargs=(*own.kwargs, ("output_mask", tuple(name in names for name in _MASK))))

    def settled(self, rows: Ints, forward: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """Yield the rows of whole backwards, shape (backwards, kernels of each), with what `_given` tells; one batch per number
        of kernels. forward: instance of each row's forward op.

        Matrix products of one backward are told apart by launch order. Backwards that agree in everything that matters here
        are decided once.
        """
        records, classes = self._records, self._classes
        order = np.lexsort((records["launch_ns"][rows], forward))
        rows, forward = rows[order], forward[order]
        first = np.flatnonzero(np.diff(forward, prepend=-1))
        sizes = np.diff(np.append(first, len(rows)))
        reversed_ = np.array([*map(_weights_first, records.stacks), False], np.bool_)[records["stack"][rows[first]]]
        call, dur_ns, trait = self._of("call", rows[first]), records["dur_ns"][rows], self._trait[classes.code[rows]]
        for size in distinct_values(sizes).tolist():
            mine = np.flatnonzero(sizes == size)
            at = first[mine, None] + np.arange(size)
            traits = trait[at]
            longest = np.where((traits & 1).any(axis=1), 0, dur_ns[at].argmax(axis=1))  # the first of equals
            alike, example, kind = distinct_rows(call[mine], reversed_[mine], longest, *traits.T)
            keys = [*map(tuple, alike.T.tolist())]
            for key, members in zip(keys, rows[at[example]], strict=True):
                if key not in self._settled:
                    self._settled[key] = self._given(members)
            given = [self._settled[key] for key in keys]
            there = np.array([one is not None for one in given], np.bool_)
            if there.any():
                own, place = np.flatnonzero(there[kind]), np.cumsum(there) - 1
                told = (np.array(part, np.int64)[place[kind[own]]] for part in zip(*filter(None, given), strict=True))
                yield rows[at[own]], *told

    def _of(self, name: str, rows: Array) -> Array:
        """A column that is constant within each class, for some records."""
        return self._classes.records[name].take(self._classes.code[rows])

    def _given(self, members: Ints) -> _Given | None:
        """Costs of the kernels of one backward, None if the forward op tells nothing about it."""
        forward = int(self._of("call", members[:1])[0])
        pieces = self.pieces(forward)
        if not pieces:
            return None
        products = [p for p in pieces if p.cost.matmul_flops]
        if not products:
            return np.full(len(members), self._add(_sum(pieces))), np.zeros(len(members), np.int64), 1
        named = self._named_products(members, pieces)
        if named is not None:
            return named
        product = self._product.take(self._classes.code[members])
        calls = [self._records.calls[code] if code >= 0 else None for code in self._of(self._op, members).tolist()]
        working = [call for call, multiplies in zip(calls, product.tolist(), strict=True) if multiplies or _is_backward(call)]
        if self._on_cpu and working and all(map(_is_backward, working)):  # each is the backward as a whole
            if not any(tensor.grad for tensor in self._records.calls[forward].tensors):  # nor is any product counted here
                return None
            return self._products(members, product, [self._add(_sum(pieces))])
        if _weights_first(self._records.stacks[int(self._records["stack"][members[0]])]):
            products = sorted(products, key=lambda piece: piece.name == "dgrad")
        summing = [index for index, call in enumerate(calls) if call is not None and call.op in _SUMS]
        bias = [p for p in pieces if p.name == "bias"] if summing else []
        codes, groups, count = self._products(members, product, [*map(self._piece_code, products)])
        if bias:  # the sum in a convolution's backward
            codes[summing], groups[summing], count = self._piece_code(bias[0]), count, count + 1
        return codes, groups, count

    def _named_products(self, members: Ints, pieces: tuple[formulas.Piece, ...]) -> _Given | None:
        """Give each kernel the piece that its inner op names; None unless all of them name one."""
        named = [self._named[code] for code in self._of(self._op, members).tolist()]
        place = {piece.name: index for index, piece in enumerate(pieces)}
        if not all(name in place for name in named):
            return None
        index = np.array([place[name] for name in named if name is not None], np.int64)
        codes = np.array([self._piece_code(piece) for piece in pieces], np.int64)
        return codes[index], index, len(pieces)

    def _products(self, members: Ints, product: Bools, costs: list[int]) -> _Given:
        """Give the i-th matrix product launched the i-th cost; kernels after it, up to the next, belong to it."""
        main = product.copy()
        if not main.any():
            main[np.argmax(self._records["dur_ns"][members])] = True  # the first of equals
        count = int(main.sum())
        codes = np.array(costs[-count:], np.int64)  # an input that wants no gradient, as a first layer's, has no dgrad
        at = np.maximum(np.cumsum(main) - 1, 0)
        # More products than pieces: the backward ran again (retain_graph), or a piece took several kernels.
        whole = count % len(codes) == 0
        index = at % len(codes) if whole else np.minimum(at, len(codes) - 1)
        return codes[index], at if whole else index, count

    def _piece_code(self, piece: formulas.Piece) -> int:
        code = self._code_of.get(id(piece))
        if code is None:
            code = self._code_of[id(piece)] = self._add(piece.cost)
        return code


def _weights_first(stack: Stack) -> bool:
    """Whether a backward gives the gradient of a product's second factor first.

    Autograd takes a function's gradients in the alphabetical order of its arguments: a linear that ran as mm (mat2, self) has
    its wgrad first, one that ran as addmm (mat1, mat2) its dgrad.
    """
    function = stack.seq_names[stack.backward_at] if stack.backward_at >= 0 else ""
    return function.startswith(("MmBackward", "BmmBackward", "MatmulBackward"))


def _is_backward(call: OpCall | None) -> bool:
    return call is not None and call.op.endswith("_backward")


def _sum(pieces: Sequence[formulas.Piece]) -> Cost:
    def total(name: str) -> int | None:
        values = [getattr(piece.cost, name) for piece in pieces]
        return None if any(v is None for v in values) else sum(values)

    return Cost(total("matmul_flops"), total("vector_flops"), total("bytes"))
