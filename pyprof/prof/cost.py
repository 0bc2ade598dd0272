"""Records -> costs: one cost for each op instance, given to its kernels by one rule.

A cost is worked out once for each distinct call. The kernels of an instance that do its main work share it in proportion to
their time, whole numbers summing exactly; auxiliary ones (split-K reduction, layout, memset) carry 0; where none is main the
longest carries it. Unknown is -1 in every column here and stays unknown. No text is made here.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.arrays.columns import among, distinct_rows, distinct_values, is_repeated
from pyprof.arrays.intervals import summed
from pyprof.arrays.joining import rows_where
from pyprof.arrays.spool import computed, kept, pieces, release, taken
from pyprof.arrays.types import Bools, Floats, Ints
from pyprof.dtypes import DTYPES
from pyprof.hardware.kernels import KernelClass, classify
from pyprof.opcall import OpCall
from pyprof.parse.records.records import Records, Stack
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.formulas import Cost
from pyprof.prof.infer import INFERRED as KEYWORD
from pyprof.prof.types import elements, recorded_inside, typed, with_dtype

Codes = npt.NDArray[np.int32]

_PARTS = ("matmul_flops", "vector_flops", "bytes")
BYTES_BOUNDS = ("", "inferred", "lower")
"""How sure the bytes of a record are: by definition; by a rule or a type that was inferred; a lower bound."""
_LARGEST = 1 << 61  # shapes that a damaged capture claims; the sum of two parts still fits


@dataclass(eq=False, repr=False)
class Costs:
    """Per record: matmul_flops, vector_flops, bytes (-1 unknown), at_least (a lower bound of bytes that are unknown, -1 none),
    inferred (whether bytes were), main (does the main work of its op), problem (row of `problems`: the matrix product it is
    part of, -1 none), kernel (code into kernels).

    problems: (m, n, k, batch); kernels: class of each distinct kernel name; reasons: rows and time without FLOPs, by reason.
    """

    matmul_flops: Ints
    vector_flops: Ints
    bytes: Ints
    at_least: Ints
    inferred: Bools
    main: Bools
    problem: Codes
    problems: list[tuple[int, int, int, int]]
    kernel: Codes
    kernels: list[KernelClass]
    reasons: dict[str, tuple[int, int]]

    @property
    def flops(self) -> Ints:
        """Matrix and vector operations together; unknown where either is."""
        return computed(len(self.matmul_flops), np.int64, self.flops_of)

    def flops_of(self, index: slice | Ints) -> Ints:
        """The same of some records."""
        matmul, vector = self.matmul_flops[index], self.vector_flops[index]
        return np.where((matmul >= 0) & (vector >= 0), matmul + vector, -1)

    @property
    def bytes_or_least(self) -> Ints:
        """The bytes, and where they are unknown their lower bound."""
        return np.where(self.bytes >= 0, self.bytes, self.at_least)

    @property
    def bound(self) -> Codes:
        """Which of BYTES_BOUNDS the bytes are, -1 for those of which nothing is known."""
        unknown = np.where(self.at_least >= 0, np.int32(2), np.int32(-1))
        return np.where(self.bytes < 0, unknown, self.inferred.astype(np.int32))


def cost_records(records: Records) -> Costs:
    """The cost of every record."""
    return _Costing(records).run()


_Given = tuple[Ints, Ints, int]
"""Of each kernel of one backward its cost and the number of the group that shares it, and how many numbers are used up."""


class _Known(NamedTuple):
    """What is known of one distinct cost; None is unknown."""

    matmul_flops: int | None
    vector_flops: int | None
    bytes: int | None
    at_least: int | None
    inferred: bool
    reason: str
    mnk: tuple[int, int, int] | None
    batch: int


class _Costing:
    """One run over one set of Records."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.part: dict[str, Ints] = {}
        self.problem: Codes = np.empty(0, np.int32)
        self.inferred: Bools = np.empty(0, np.bool_)
        self.problems: list[tuple[int, int, int, int]] = []
        self.problem_code: dict[tuple[int, int, int, int], int] = {}
        self.table: list[_Known] = []  # distinct costs
        self.code_of: dict[int, int] = {}  # of a piece of a backward, by its identity
        self.pieces_of: dict[int, tuple[formulas.Piece, ...]] = {}  # of the backward of each call
        self.piece_of = [
            *map(_PIECE_OF.get, map(attrgetter("op"), records.calls)),
            None,
        ]  # by call: what its name says it computes

    def run(self) -> Costs:
        records = self.records
        names, _, inverse = distinct_rows(records["name"])
        kernel, kernels = inverse.astype(np.int32), [*map(classify, map(records.strings.__getitem__, names[0].tolist()))]
        del inverse
        does = np.array([*(one.role == "main" for one in kernels), True], np.bool_)
        multiplies = does & np.array([*map(attrgetter("is_product"), kernels), False], np.bool_)
        main, product = taken(does, kernel), taken(multiplies, kernel)
        compute = among(records["kind"], (ActivityKind.KERNEL, ActivityKind.CPU))
        cost = self._forward_and_own(compute)
        instance = records["instance"]
        group = computed(len(records), np.int64, lambda part: np.where(cost[part] >= 0, instance[part], -1))
        self._backward_from_forward(cost, group, compute, product)
        records.release("launch_ns", "stack", "inner", "fwd_instance")
        release()
        self._share(cost, group, main, product)
        del group
        self._copies(compute)
        records.release("bytes", "copykind", "instance")
        reasons = self._reasons(cost, compute)
        records.release("dur_ns", "name")
        least = self.part.pop("at_least", np.broadcast_to(np.int64(-1), len(records)))
        matmul, vector, moved = map(kept, self.part.values())
        rest = kept(least), kept(self.inferred), kept(main), kept(self.problem)
        return Costs(matmul, vector, moved, *rest, self.problems, kept(kernel), kernels, reasons)

    # ------------------------------------------------------------------ which cost

    def _add(self, cost: Cost, reason: str = "", at_least: int | None = None, inferred: bool = False) -> int:
        if max(cost.matmul_flops or 0, cost.vector_flops or 0, cost.bytes or 0, at_least or 0) > _LARGEST:
            cost, reason, at_least = Cost(), "a cost beyond 64 bits", None
        parts = cost.matmul_flops, cost.vector_flops, cost.bytes, None if cost.bytes is not None else at_least
        self.table.append(_Known(*parts, inferred or cost.inferred, reason, cost.mnk, cost.batch))
        return len(self.table) - 1

    def _of_costs(self, part: str) -> Ints:
        """A part of each distinct cost, -1 where unknown, and -1 for a record without a cost (code -1)."""
        return np.array([-1 if (value := getattr(cost, part)) is None else value for cost in self.table] + [-1], np.int64)

    def _piece_code(self, piece: formulas.Piece) -> int:
        code = self.code_of.get(id(piece))
        if code is None:
            code = self.code_of[id(piece)] = self._add(piece.cost)
        return code

    def _forward_and_own(self, compute: Bools) -> Codes:
        """A cost for each record from its instance's own call; a backward op takes missing dtypes from its forward."""
        records = self.records
        forward_call = np.where(records["fwd_instance"] >= 0, records["call"], -1)
        distinct, _, inverse = distinct_rows(records["own"], forward_call, recorded_inside(records), elements(records))
        codes = np.full(distinct.shape[1], -1, np.int32)
        cpu = bool((records["kind"] == ActivityKind.CPU).any())
        for index, (own, forward, inside, element) in enumerate(distinct.T.tolist()):
            if own < 0:
                continue
            call = records.calls[own if inside < 0 else inside]
            if cpu and inside == own:
                codes[index] = self._add(Cost(0, 0, 0))  # a conversion of what was already as it is wanted
                continue
            if cpu and call.module == "autograd" and call.dispatcher:
                codes[index] = self._add(Cost(0, 0, 0))  # on the CPU all work is in ops, and this function called none
                continue
            if forward >= 0 and forward != own:
                if self._forward_says_more(call, forward):
                    continue
                call = with_dtype(call, records.calls[forward])
            if element >= 0:
                call = typed(call, DTYPES[element].name)
            codes[index] = self._evaluate(call, element >= 0 or any(name == KEYWORD for name, _ in call.kwargs))
        return computed(len(records), np.int32, lambda part: np.where(compute[part], codes[inverse[part]], np.int32(-1)))

    def _forward_says_more(self, own: OpCall, forward: int) -> bool:
        """Whether a backward op was recorded without what it computes, and its forward with which inputs want a gradient."""
        wanted = any(tensor.grad for tensor in self.records.calls[forward].tensors)
        return wanted and formulas.lacks(own, "output_mask") and bool(self._backward(forward))

    def _backward(self, call: int) -> tuple[formulas.Piece, ...]:
        """The parts of the backward of a call."""
        if call not in self.pieces_of:
            self.pieces_of[call] = formulas.evaluate_backward(self.records.calls[call])
        return self.pieces_of[call]

    def _evaluate(self, call: OpCall, inferred: bool) -> int:
        cost, reason = formulas.evaluate(call)
        least = formulas.least_bytes(call) if cost.bytes is None else None
        return self._add(cost, reason or _missing_dtype(cost), least, inferred)

    def _backward_from_forward(self, cost: Codes, group: Ints, compute: Bools, product: Bools) -> None:
        """Backward kernels whose own op says too little: the backward of their forward op, part by part.

        Matrix products of one backward are distinguished by the order in which they were launched. Backwards that are alike in
        all that decides about their kernels are settled once.
        """
        records = self.records
        unknown = (self._of_costs("matmul_flops") < 0) & (self._of_costs("vector_flops") < 0)
        other = np.array([*(not formulas.is_copy(call.name) for call in records.calls), True], np.bool_)
        fwd_instance, own = records["fwd_instance"], records["own"]
        rows = rows_where(  # copies stand for themselves
            len(cost), lambda part: compute[part] & (fwd_instance[part] >= 0) & unknown[cost[part]] & other[own[part]]
        )
        forward = taken(fwd_instance, rows)
        order = np.lexsort((taken(records["launch_ns"], rows), forward))
        rows, forward = taken(rows, order), taken(forward, order)
        del order
        first = np.flatnonzero(np.diff(forward, prepend=-1))
        sizes = np.diff(np.append(first, len(rows)))
        free = int(records["instance"].max(initial=-1)) + 1
        pieces = [*dict.fromkeys(_PIECE_OF.values())]
        named = np.array([pieces.index(name) if name in pieces else -1 for name in self.piece_of], np.int64)
        sums = np.array([call.op in _SUMS for call in records.calls] + [False], np.bool_)
        named = 4 * named + 2 * sums
        trait = computed(len(rows), np.int64, lambda part: named[records["inner"][rows[part]]] + product[rows[part]])
        reversed_ = np.array([*map(_weights_first, records.stacks), False], np.bool_)[records["stack"][rows[first]]]
        call, dur_ns = records["call"][rows[first]], taken(records["dur_ns"], rows)
        for size in distinct_values(sizes).tolist():
            mine = np.flatnonzero(sizes == size)
            at = first[mine, None] + np.arange(size)
            traits = trait[at]
            longest = np.where((traits & 1).any(axis=1), 0, dur_ns[at].argmax(axis=1))  # the first of equals
            _, example, kind = distinct_rows(call[mine], reversed_[mine], longest, *traits.T)
            given = [self._given(rows[one], product) for one in at[example]]
            known = np.array([one is not None for one in given], np.bool_)[kind]
            codes, groups = (
                np.array([np.full(size, -1) if one is None else one[part] for one in given], np.int64)[kind[known]]
                for part in (0, 1)
            )
            count = np.array([0 if one is None else one[2] for one in given], np.int64)[kind[known]]
            ends = np.cumsum(count)
            members = rows[at[known]]
            cost[members], group[members] = codes, groups + (free + ends - count)[:, None]
            free += int(ends[-1]) if len(ends) else 0

    def _given(self, members: Ints, product: Bools) -> _Given | None:
        """What the kernels of one backward carry, None where the forward op says nothing of it."""
        pieces = self._backward(int(self.records["call"][members[0]]))
        if not pieces:
            return None
        products = [p for p in pieces if p.cost.matmul_flops]
        if not products:
            return np.full(len(members), self._add(_sum([p.cost for p in pieces]))), np.zeros(len(members), np.int64), 1
        named = self._named_products(members, pieces)
        if named is not None:
            return named
        if _weights_first(self.records.stacks[int(self.records["stack"][members[0]])]):
            products = sorted(products, key=lambda piece: piece.name == "dgrad")
        inner = [self.records.calls[code].op if code >= 0 else "" for code in self.records["inner"][members].tolist()]
        bias = [p for p in pieces if p.name == "bias"] if any(op in _SUMS for op in inner) else []
        codes, groups, count = self._products(members, product[members], products)
        if bias:  # the sum in a convolution's backward
            at = [index for index, op in enumerate(inner) if op in _SUMS]
            codes[at], groups[at], count = self._piece_code(bias[0]), count, count + 1
        return codes, groups, count

    def _named_products(self, members: Ints, pieces: tuple[formulas.Piece, ...]) -> _Given | None:
        """Give each kernel the piece that its inner op is named after; None where one is not."""
        named = [self.piece_of[code] for code in self.records["inner"][members].tolist()]
        place = {piece.name: index for index, piece in enumerate(pieces)}
        if not all(name in place for name in named):
            return None
        index = np.array([place[name] for name in named if name is not None], np.int64)
        codes = np.array([self._piece_code(piece) for piece in pieces], np.int64)
        return codes[index], index, len(pieces)

    def _products(self, members: Ints, product: Bools, pieces: list[formulas.Piece]) -> _Given:
        """Give the i-th matrix product launched the i-th piece; kernels after it, up to the next, belong to it."""
        main = product.copy()
        if not main.any():
            main[np.argmax(self.records["dur_ns"][members])] = True  # the first of equals
        count = int(main.sum())
        pieces = pieces[-count:]  # an input that wants no gradient, as a first layer's, has no dgrad
        codes = np.array([self._piece_code(piece) for piece in pieces], np.int64)
        at = np.maximum(np.cumsum(main) - 1, 0)
        # More products than pieces: the backward ran again (retain_graph), or a piece took several kernels.
        whole = count % len(pieces) == 0
        index = at % len(pieces) if whole else np.minimum(at, len(pieces) - 1)
        return codes[index], at if whole else index, count

    # ------------------------------------------------------------------ who carries it

    def _share(self, cost: Codes, group: Ints, main: Bools, product: Bools) -> None:
        """Divide each group's cost among its main rows by time; a row alone in its group carries all of it.

        In an op of matrix products the main rows are the kernels that multiply, where it has any; else all but auxiliary ones.
        """
        rows = len(cost)
        code = computed(rows, np.int32, lambda part: np.where(group[part] >= 0, cost[part], np.int32(-1)))
        shared = is_repeated(computed(rows, np.int64, lambda part: np.where(code[part] >= 0, group[part], -1)))
        main |= (code >= 0) & ~shared
        several = rows_where(rows, lambda part: shared[part] & (code[part] >= 0))
        least = self._of_costs("at_least")
        for name in (*_PARTS, "at_least") if (least >= 0).any() else _PARTS:
            self.part[name] = taken(self._of_costs(name), code)
        self.problem = taken(self._problem_codes(), code)
        self.inferred = taken(np.array([*map(attrgetter("inferred"), self.table), False], np.bool_), code)
        release()
        of = distinct_rows(group[several]).inverse
        groups = int(of.max(initial=-1)) + 1
        matmul = (self._of_costs("matmul_flops") > 0)[cost[several]]
        multiplied = np.bincount(of, matmul & product[several], groups) > 0
        main[several] = np.where(matmul & multiplied[of], product[several], main[several])
        weight = np.maximum(self.records["dur_ns"][several], 0).astype(np.float64)
        weight[~main[several]] = 0
        idle = np.bincount(of, weight, groups) == 0  # no main row took any time: the longest row carries the cost
        longest = _first_heaviest(of, self.records["dur_ns"][several], groups)[idle]
        main[several[idle[of]]] = False
        main[several[longest]] = True
        weight[longest] = 1
        carrier = _first_heaviest(of, weight, groups)
        self.problem[several[weight == 0]] = -1
        weight /= np.bincount(of, weight, groups)[of]
        release()  # rows of groups are far from each other: each column that they are looked up in is in memory by now
        for part in self.part.values():
            part[several] = _divided(part[several], weight, of, carrier)
            release()

    def _problem_codes(self) -> Codes:
        """For each cost its matrix product's row of `problems`, -1 where it has none; the last is that of no cost."""
        codes = np.full(len(self.table) + 1, -1, np.int32)
        for index, found in enumerate(self.table):
            if found.mnk is not None:
                codes[index] = self.problem_code.setdefault((*found.mnk, found.batch), len(self.problem_code))
        self.problems = list(self.problem_code)
        return codes

    def _copies(self, compute: Bools) -> None:
        """Copies and sets between and within memories: no operations; a copy on the device reads and writes.

        Within an op whose kernels carry its cost they are part of that, and carry nothing.
        """
        kind, instance = self.records["kind"], self.records["instance"]
        rows = rows_where(len(kind), lambda part: among(kind[part], (ActivityKind.MEMCPY, ActivityKind.MEMSET)))
        if not len(rows):
            return
        moved = self.records["bytes"][rows]
        twice = (kind[rows] == ActivityKind.MEMCPY) & (self.records["copykind"][rows] == 8)
        own = np.where(moved >= 0, np.where(twice, 2 * moved, moved), -1)
        inside, moves = distinct_values(instance[rows]), self.part["bytes"]
        inside = inside[inside >= 0]
        carrying = rows_where(len(kind), lambda part: compute[part] & (moves[part] >= 0) & among(instance[part], inside))
        carried = instance[carrying]
        self.part["matmul_flops"][rows] = self.part["vector_flops"][rows] = 0
        self.part["bytes"][rows] = np.where(np.isin(instance[rows], carried), 0, own)

    def _reasons(self, cost: Codes, compute: Bools) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        often, spent = np.zeros((2, len(self.table) + 1), np.int64)  # of no cost first
        matmul, vector, dur_ns = self.part["matmul_flops"], self.part["vector_flops"], self.records["dur_ns"]
        for part in pieces(len(cost)):
            lacking = compute[part] & ((matmul[part] < 0) | (vector[part] < 0))
            code = cost[part][lacking].astype(np.int64) + 1
            often += np.bincount(code, minlength=len(often))
            spent += summed(code, dur_ns[part][lacking], len(spent))
        for at in np.flatnonzero(often).tolist():
            reason = self.table[at - 1].reason if at else "no op is known"
            count, time = found.get(reason, (0, 0))
            found[reason] = count + int(often[at]), time + int(spent[at])
        return found


def _weights_first(stack: Stack) -> bool:
    """Whether a backward gives the gradient of a product's second factor first.

    Autograd takes a function's gradients in the alphabetical order of its arguments: a linear that ran as mm (mat2, self) has
    its wgrad first, one that ran as addmm (mat1, mat2) its dgrad.
    """
    function = stack.seq_names[stack.backward_at] if stack.backward_at >= 0 else ""
    return function.startswith(("MmBackward", "BmmBackward", "MatmulBackward"))


def _divided(whole: Ints, share: Floats, of: Ints, carrier: Ints) -> Ints:
    """A part of the costs of groups by shares in whole numbers, what is left going to each group's carrier; -1 unknown."""
    unknown = whole < 0
    exact = whole * share
    np.floor(exact, out=exact)
    exact[unknown] = 0
    part = exact.astype(np.int64)
    given = np.zeros(len(carrier), np.int64)
    np.add.at(given, of, part)
    part[carrier] += whole[carrier] - given
    part[unknown] = -1
    return part


def _first_heaviest(of: Ints, weight: Ints | Floats, groups: int) -> Ints:
    """For each group its row of most weight, the first of equals."""
    most = np.full(groups, weight.min(initial=0), weight.dtype)
    np.maximum.at(most, of, weight)
    rows = np.flatnonzero(weight == most[of])[::-1]
    result = np.full(groups, -1, np.int64)
    result[of[rows]] = rows  # the last written of a group is its first
    return result


_SUMS = ("sum", "sum_out")  # what a bias's gradient is, inside the backward of a convolution

# Ops that compute one gradient of a convolution each -> the piece of the backward that it is.
_PIECE_OF = {
    f"{library}_convolution_backward_{what}": piece
    for library in ("cudnn", "miopen", "mkldnn")
    for what, piece in (("input", "dgrad"), ("weight", "wgrad"), ("weights", "wgrad"), ("bias", "bias"))
}


def _missing_dtype(cost: Cost) -> str:
    return "dtype not recorded" if cost.bytes is None and cost.flops is not None else ""


def _sum(costs: list[Cost]) -> Cost:
    def total(name: str) -> int | None:
        values = [getattr(cost, name) for cost in costs]
        return None if any(v is None for v in values) else sum(values)

    return Cost(total("matmul_flops"), total("vector_flops"), total("bytes"))
