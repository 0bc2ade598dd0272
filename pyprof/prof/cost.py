"""Records -> costs: one cost for each op instance, shared among its kernels by one rule.

A cost is computed once for each distinct call. The main kernels of an instance share its cost in proportion to their time, in
whole numbers that sum exactly; auxiliary kernels (split-K reduction, layout, memset) get 0; if none is main, the longest gets
all. Each record stores a code into pools of costs, since millions of records share a few. Unknown is -1 everywhere here.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.columns.distinct import among, distinct_rows, distinct_values, extent, is_repeated, one_of, row_type
from pyprof.columns.intervals import summed
from pyprof.columns.types import Array, Bools, Floats, Ints
from pyprof.hardware.kernels import KernelClass, classify
from pyprof.model.dtypes import DTYPES
from pyprof.model.records import Classes, Records, classes_of
from pyprof.model.trace import ActivityKind
from pyprof.parse.attribution.derived import INFERRED
from pyprof.prof import formulas
from pyprof.prof.backward import Backwards
from pyprof.prof.formulas import Cost
from pyprof.prof.missing_dtypes import elements, recorded_inside, typed, with_dtype

Codes = npt.NDArray[np.int32]

_PARTS = ("matmul_flops", "vector_flops", "bytes")
_LARGEST = 1 << 61  # shapes that a damaged capture claims; the sum of two parts still fits


BYTES_BOUNDS = ("", "inferred", "lower")
"""How sure the bytes of a record are: exact by definition; from an inferred rule or type; only a lower bound."""

FLOPS_BOUNDS = ("", "lower", "upper")
"""How sure the FLOPs of a record are: exact by definition; at least these; at most these, as where a window is unknown."""


class Pools(NamedTuple):
    """Distinct costs that records can have; the last row is for records without a cost. matmul_flops, vector_flops, bytes (-1
    unknown); at_least (lower bound where bytes are unknown, -1 none); inferred (bytes were inferred); main (does the main work
    of its op); problem (its matrix product as row of `problems`, -1 none); flops_bound (index into FLOPS_BOUNDS)."""

    matmul_flops: Ints
    vector_flops: Ints
    bytes: Ints
    at_least: Ints
    inferred: Bools
    main: Bools
    problem: Codes
    flops_bound: Codes


@dataclass(eq=False, repr=False)
class Costs:
    """The costs of records. code: row of `pools` for each record; most records of one class have the same.

    problems: (m, n, k, batch); alike: class of each record; class_kernel: code into kernels for each class; kernels: what each
    distinct kernel name says; reasons: rows and time without FLOPs, by reason.
    """

    code: Codes
    pools: Pools
    problems: list[tuple[int, int, int, int]]
    alike: Codes
    class_kernel: Codes
    kernels: list[KernelClass]
    reasons: dict[str, tuple[int, int]]

    def of(self, name: str, rows: Any) -> Array:
        """A column of `pools` for some records."""
        found: Array = getattr(self.pools, name).take(self.code[rows])
        return found

    @property
    def matmul_flops(self) -> Ints:
        """Matrix FLOPs of each record; -1 is unknown."""
        return self.pools.matmul_flops.take(self.code)

    @property
    def vector_flops(self) -> Ints:
        """Vector FLOPs of each record; -1 is unknown."""
        return self.pools.vector_flops.take(self.code)

    @property
    def bytes(self) -> Ints:
        """Least bytes that each record moves; -1 is unknown."""
        return self.pools.bytes.take(self.code)

    @property
    def problem(self) -> Codes:
        """Row of `problems` for each record, -1 none."""
        return self.pools.problem.take(self.code)

    @property
    def kernel(self) -> Codes:
        """Code into `kernels` for each record."""
        return self.class_kernel.take(self.alike)

    @property
    def flops(self) -> Ints:
        """Matrix plus vector FLOPs of each record; unknown if either is."""
        return self.pool_flops.take(self.code)

    def sure_flops_of(self, rows: Any) -> Ints:
        """FLOPs of some records, to add up: -1 where they are unknown or only a bound is known."""
        sure = np.where(self.pools.flops_bound > 0, -1, self.pool_flops)
        found: Ints = sure.take(self.code[rows])
        return found

    @property
    def pool_flops(self) -> Ints:
        """FLOPs of each row of `pools`."""
        matmul, vector = self.pools.matmul_flops, self.pools.vector_flops
        return np.where((matmul >= 0) & (vector >= 0), matmul + vector, -1)

    @property
    def bytes_or_least(self) -> Ints:
        """Bytes of each record, or their lower bound where unknown."""
        return np.where(self.pools.bytes >= 0, self.pools.bytes, self.pools.at_least).take(self.code)

    @property
    def bound(self) -> Codes:
        """Index into BYTES_BOUNDS for each record, -1 if nothing is known about its bytes."""
        unknown = np.where(self.pools.at_least >= 0, np.int32(2), np.int32(-1))
        return np.where(self.pools.bytes < 0, unknown, self.pools.inferred.astype(np.int32)).take(self.code)

    @property
    def flops_bound(self) -> Codes:
        """Index into FLOPS_BOUNDS for each record."""
        return self.pools.flops_bound.take(self.code)


def cost_records(records: Records, classes: Classes | None = None) -> Costs:
    """Compute the cost of every record. classes: of these records, if already known."""
    costing = _Costing(records, classes_of(records) if classes is None else classes)
    code = costing.forward_and_own()
    # Records of one group share one cost. There are at most as many groups as instances plus rows.
    narrow = row_type(len(records) + extent(records["instance"])[1] + 2)
    group = np.where(code >= 0, records["instance"], -1).astype(narrow)
    costing.backward_from_forward(code, group)
    pools, reason = costing.shared(code, group)
    pools, reason = costing.copies(code, pools, reason)
    reasons = costing.reasons(code, pools, reason)
    return Costs(code, pools, [*costing.problems], costing.classes.code, costing.kernel, costing.kernels, reasons)


class _Known(NamedTuple):
    """One distinct cost; None is unknown."""

    matmul_flops: int | None
    vector_flops: int | None
    bytes: int | None
    at_least: int | None
    inferred: bool
    reason: str
    mnk: tuple[int, int, int] | None
    batch: int
    flops_bound: int


class _Costing:
    """The costing of one set of records: tables that the steps of `cost_records` share."""

    def __init__(self, records: Records, classes: Classes) -> None:
        self.records, self.classes, self.alike = records, classes, classes.records
        self.problems: dict[tuple[int, int, int, int], int] = {}  # and the code of each
        self.table: list[_Known] = []  # distinct costs
        names, _, kernel = distinct_rows(self.alike["name"])
        self.kernels = [*map(classify, map(records.strings.__getitem__, names[0].tolist()))]
        self.kernel = kernel.astype(np.int32)
        # Per class: whether its kernels do main work, multiply matrices, compute at all.
        self.main = np.array([*(one.role == "main" for one in self.kernels), True], np.bool_)[kernel]
        self.product = self.main & np.array([*map(attrgetter("is_product"), self.kernels), False], np.bool_)[kernel]
        self.compute = among(self.alike["kind"], (ActivityKind.KERNEL, ActivityKind.CPU))
        self.cpu = bool((self.alike["kind"] == ActivityKind.CPU).any())  # then all are ops on a CPU
        if self.cpu:  # named like ops
            multiplies = [formulas.matmul_class(call.name) for call in records.calls]
            self.product = np.array([*multiplies, False], np.bool_)[self.alike["own"]]
        self.backwards = Backwards(records, classes, self.product, self.cpu, self._add)

    # ------------------------------------------------------------------ which cost

    def _add(self, cost: Cost, reason: str = "", at_least: int | None = None, inferred: bool = False) -> int:
        amounts = (cost.matmul_flops or 0, cost.vector_flops or 0, cost.bytes or 0, at_least or 0)
        if min(amounts) < 0:
            cost, reason, at_least = Cost(), "a size below zero", None
        elif max(amounts) > _LARGEST:
            cost, reason, at_least = Cost(), "a cost beyond 64 bits", None
        parts = cost.matmul_flops, cost.vector_flops, cost.bytes, None if cost.bytes is not None else at_least
        self.table.append(
            _Known(*parts, inferred or cost.inferred, reason, cost.mnk, cost.batch, FLOPS_BOUNDS.index(cost.bound))
        )
        return len(self.table) - 1

    def _of_costs(self, part: str) -> Ints:
        """One field of each distinct cost, -1 if unknown; a last -1 for records without a cost (code -1)."""
        return np.array([-1 if (value := getattr(cost, part)) is None else value for cost in self.table] + [-1], np.int64)

    def forward_and_own(self) -> Codes:
        """Cost of each record from its instance's own call; a backward op takes missing dtypes from its forward op."""
        records, alike = self.records, self.alike
        # One row per class and distinct answer of `recorded_inside` and `elements`.
        recorded, typed_by_name = recorded_inside(records, alike), elements(records, alike)
        if recorded.strides == typed_by_name.strides == (0,):  # nothing for any record, as is usual
            nothing = np.full(len(alike), -1, np.int64)
            told, of_record = np.stack([np.arange(len(alike)), nothing, nothing]), self.classes.code
        else:
            told, _, of_record = distinct_rows(self.classes.code, recorded, typed_by_name)
        of_class = told[0]
        forward_call = np.where(self.classes.linked, alike["call"], -1)[of_class]
        distinct, _, inverse = distinct_rows(alike["own"][of_class], forward_call, told[1], told[2])
        codes = np.full(distinct.shape[1], -1, np.int32)
        for index, (own, forward, inside, element) in enumerate(distinct.T.tolist()):
            if own < 0:
                continue
            call = records.calls[own if inside < 0 else inside]
            if self.cpu and inside == own:
                codes[index] = self._add(Cost(0, 0, 0))  # a conversion of what was already as it is wanted
                continue
            if self.cpu and call.module == "autograd" and call.dispatcher:
                codes[index] = self._add(Cost(0, 0, 0))  # on the CPU all work is in ops, and this function called none
                continue
            if forward >= 0 and forward != own:
                # A backward op may not tell which gradients it computes; its forward has the inputs that want one.
                wanted = any(tensor.grad for tensor in records.calls[forward].tensors)
                if wanted and formulas.lacks(call, "output_mask") and self.backwards.pieces(forward):
                    masked = self.backwards.with_mask(call, forward) if self.cpu else None  # there a row is a whole op
                    if masked is None:
                        continue
                    call = masked
                call = with_dtype(call, records.calls[forward])
            if element >= 0:
                call = typed(call, DTYPES[element].name)
            cost, reason = formulas.evaluate(call)
            least = (cost.at_least or formulas.least_bytes(call)) if cost.bytes is None else None
            if not reason and cost.bytes is None and cost.flops is not None:
                reason = "dtype not recorded"
            codes[index] = self._add(cost, reason, least, element >= 0 or any(name == INFERRED for name, _ in call.kwargs))
        own_codes = np.where(self.compute[of_class], codes[inverse], np.int32(-1))
        return own_codes.take(of_record)

    def backward_from_forward(self, cost: Codes, group: Ints) -> None:
        """Cost backward kernels whose own op lacks sizes from the backward of their forward op, part by part."""
        records = self.records
        unknown = (self._of_costs("matmul_flops") < 0) & (self._of_costs("vector_flops") < 0)
        other = np.array([*(not formulas.is_copy(call.name) for call in records.calls), True], np.bool_)
        may = self.compute & self.classes.linked & other[self.alike["own"]]  # copies stand for themselves
        rows = np.flatnonzero(may.take(self.classes.code) & unknown.take(cost))
        free = int(records["instance"].max(initial=-1)) + 1
        for own, codes, groups, count in self.backwards.settled(rows, records["fwd_instance"][rows]):
            ends = np.cumsum(count)
            cost[own], group[own] = codes, groups + (free + ends - count)[:, None]
            free += int(ends[-1])

    # ------------------------------------------------------------------ who carries it

    def shared(self, code: Codes, group: Ints) -> tuple[Pools, Ints]:
        """Divide each group's cost among its main rows by time; a row alone in its group gets all of it.

        In an op that multiplies matrices the main rows are the kernels that multiply, if any; else all but auxiliary ones.
        Changes `code` to rows of the returned pools; also returns, for each row of the pools, its row of the table.
        """
        count = len(self.table)
        several = np.flatnonzero(is_repeated(group) & (group >= 0))
        base = code[several].astype(np.int64)
        code[(code >= 0) & (group < 0)] += np.int32(count)  # of no instance: nothing, for the reason that their cost has
        of = distinct_rows(group[several]).inverse
        groups = int(of.max(initial=-1)) + 1
        product = self.product.take(self.classes.code[several])
        main = self.main.take(self.classes.code[several])
        matmul = (self._of_costs("matmul_flops") > 0)[base]
        multiplied = np.bincount(of, matmul & product, groups) > 0
        main = np.where(matmul & multiplied[of], product, main)
        dur_ns = self.records["dur_ns"][several]
        weight = np.maximum(dur_ns, 0).astype(np.float64)
        weight[~main] = 0
        idle = np.bincount(of, weight, groups) == 0  # no main row took any time: the longest row carries the cost
        longest = _first_heaviest(of, dur_ns, groups)[idle]
        main[idle[of]] = False
        main[longest] = True
        weight[longest] = 1
        carrier = _first_heaviest(of, weight, groups)
        alone = weight == 0
        weight /= np.bincount(of, weight, groups)[of]
        code[several] = np.arange(2 * count, 2 * count + len(several), dtype=np.int32)
        numbers = [self._of_costs(name) for name in (*_PARTS, "at_least")]
        own = [_divided(values[base], weight, of, carrier) for values in numbers]
        inferred = np.array([*map(attrgetter("inferred"), self.table), False], np.bool_)
        problem = np.full(count + 1, -1, np.int32)  # of each cost the row of its matrix product among `problems`
        for index, found in enumerate(self.table):
            if found.mnk is not None:
                problem[index] = self.problems.setdefault((*found.mnk, found.batch), len(self.problems))
        bound = np.array([*map(attrgetter("flops_bound"), self.table), 0], np.int32)
        of_table = [*numbers, inferred, np.append(np.ones(count, np.bool_), False), problem, bound]
        of_single = [*own, inferred[base], main, np.where(alone, np.int32(-1), problem[base]), bound[base]]
        # Rows: costs of the table; for each of them an empty cost; costs of single records; one empty cost.
        nothing = [np.full(count, 0 if values.dtype == np.bool_ else -1).astype(values.dtype) for values in of_table[:-1]]
        nothing.append(np.zeros(count, np.int32))
        pools = zip(of_table, nothing, of_single, strict=True)
        reason = np.concatenate([np.arange(count), np.arange(count), base, [-1]])
        return Pools(*(np.concatenate([known[:-1], none, own, known[-1:]]) for known, none, own in pools)), reason

    def copies(self, code: Codes, pools: Pools, reason: Ints) -> tuple[Pools, Ints]:
        """Add costs of copies and memsets: no FLOPs; a copy within a device reads and writes.

        Inside an op whose kernels have its cost they are part of it and get 0.
        """
        rows = self.classes.rows(among(self.alike["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET)))
        if not len(rows):
            return pools, reason
        moved, instance = self.records["bytes"][rows], self.records["instance"]
        twice = ((self.alike["kind"] == ActivityKind.MEMCPY) & (self.alike["copykind"] == 8)).take(self.classes.code[rows])
        own = np.where(moved >= 0, np.where(twice, 2 * moved, moved), -1)
        carried = instance[self._carrying(distinct_values(instance[rows]), code, pools)]
        own = np.where(among(instance[rows], carried), 0, own)
        main = self.main.take(self.classes.code[rows])
        nothing = np.zeros(len(rows), np.int64)
        further = nothing, nothing, own, nothing - 1, np.zeros(len(rows), np.bool_), main, nothing - 1, nothing
        code[rows] = np.arange(len(reason) - 1, len(reason) - 1 + len(rows), dtype=np.int32)
        columns = [_before_last(getattr(pools, name), each) for name, each in zip(Pools._fields, further, strict=True)]
        return Pools(*columns), _before_last(reason, nothing - 1)

    def _carrying(self, instances: Ints, code: Codes, pools: Pools) -> Array:
        """Records of these instances that compute and have known bytes."""
        instances = instances[instances >= 0]
        if not len(instances):
            return np.empty(0, np.int64)
        instance, inside = self.records["instance"], one_of(instances, len(code))
        rows = np.flatnonzero(inside(instance))
        return rows[self.compute.take(self.classes.code[rows]) & (pools.bytes.take(code[rows]) >= 0)]

    def reasons(self, code: Codes, pools: Pools, reason: Ints) -> dict[str, tuple[int, int]]:
        """Number and time of records without FLOPs, by reason. reason: row of the table for each row of the pools, -1 none."""
        found: dict[str, tuple[int, int]] = {}
        lacks = (pools.matmul_flops < 0) | (pools.vector_flops < 0)
        lacking = np.flatnonzero(self.compute.take(self.classes.code) & lacks.take(code))
        own = (reason + 1).take(code[lacking])  # 0: of no cost
        often = np.bincount(own, minlength=len(self.table) + 1)
        spent = summed(own, self.records["dur_ns"][lacking], len(often))
        for at in np.flatnonzero(often).tolist():
            why = self.table[at - 1].reason if at else "no op is known"
            count, time = found.get(why, (0, 0))
            found[why] = count + int(often[at]), time + int(spent[at])
        return found


def _before_last(pool: Array, further: Array) -> Array:
    return np.concatenate([pool[:-1], further.astype(pool.dtype), pool[-1:]])


def _divided(whole: Ints, share: Floats, of: Ints, carrier: Ints) -> Ints:
    """Divide costs of groups into whole numbers by shares; the remainder goes to each group's carrier. -1 is unknown."""
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
    """For each group its heaviest row, the first of equals."""
    most = np.full(groups, weight.min(initial=0), weight.dtype)
    np.maximum.at(most, of, weight)
    rows = np.flatnonzero(weight == most[of])[::-1]
    result = np.full(groups, -1, np.int64)
    result[of[rows]] = rows  # the last written of a group is its first
    return result
