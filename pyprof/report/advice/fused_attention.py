"""Attention made of a product, softmax and another product: one fused kernel would never write its matrix of S x S scores.

With shapes: products of a batch of matrices whose largest one is also what a softmax is taken of; all other kernels on it
(scale, mask, softmax, dropout, casts, forward and backward) would go, and of the products what they need above their FLOPs.
Without: what lies between two neighbouring products of one batch where a softmax lies between them; the products do the same
work, so that the slower of them could be as fast as the other. Silent where sequences are short.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_values
from pyprof.columns.intervals import order_of
from pyprof.columns.types import Bools, Ints
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import Advice, cut_ns, is_worth, mean_ns, named, places
from pyprof.report.advice.shared_products import Products
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_SHORTEST = 128  # sequence: below it the scores stay in the caches
_BATCHED = frozenset({"bmm", "baddbmm", "matmul", "__matmul__", "einsum", "baddbmm_", "scaled_dot_product_attention",
                      "_scaled_dot_product_attention_math", "_safe_softmax"})  # fmt: skip
_SOFTMAX = re.compile(r"soft_?max", re.IGNORECASE)
_LOSS = re.compile(r"log_?soft_?max|nll|cross_?entropy|ClassNLL", re.IGNORECASE)
_OTHER = re.compile(rf"{_LOSS.pattern}|distribution_(?!.*bernoulli)", re.IGNORECASE)  # a loss, or numbers drawn for new tensors
_EXP = re.compile(r"exp_kernel|expf?_cuda", re.IGNORECASE)
_REDUCE = re.compile(r"reduce_kernel|MaxOps|sum_functor")
_CALL = "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=..., is_causal=..., dropout_p=...)"
_FELL_BACK = (
    "with torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]): it warns which "
    "argument (type, mask, head size) no fused kernel takes"
)
_SHORT = 0.25  # of the longest kernel between two products: what takes less is not about all of the scores


class _Found(NamedTuple):
    """rows: of kernels on the scores; products: rows of the products around them; wish_ns: of these."""

    rows: Ints
    products: Ints
    wish_ns: Ints


_NOTHING = _Found(*np.zeros((3, 0), np.int64))


def find(overview: Overview) -> Advice | None:
    """Attention that is not one kernel."""
    products = Products(overview)
    parts = [_by_shapes(overview, products), _by_neighbours(overview, products)]
    rows = distinct_values(np.concatenate([part.rows for part in parts]))
    theirs = np.concatenate([part.products for part in parts])
    if not len(rows):
        return None
    held = overview.division.exclusive_ns
    sped = cut_ns(overview, theirs, np.concatenate([part.wish_ns for part in parts]))
    saves = mean_ns(overview, held[rows]) + mean_ns(overview, sped)
    if not is_worth(overview, saves):
        return None
    whole = np.concatenate([rows, theirs])
    time, found = mean_ns(overview, held[whole]), places(overview, whole, held[whole])
    between, multiply = (human(mean_ns(overview, held[some]), "ns") for some in (rows, theirs))
    evidence = (
        f"attention is not fused: {len(rows)} {'kernels' if overview.division.on_gpu else 'ops'} on its scores take {between}"
    ) + (f", its {len(theirs)} products {multiply}" if len(theirs) else "")
    do = _FELL_BACK if found[0].op is not None and "scaled_dot_product" in found[0].op else _CALL
    return Advice(
        "fused_attention", Change(rows=theirs, cut_ns=sped, removed=rows), time, f"{evidence}: {named(found)}", do, found
    )


# ---------------------------------------------------------------------- with shapes


def _by_shapes(overview: Overview, products: Products) -> _Found:
    """Products and other kernels whose largest matrix, with its batch, is one of scores."""
    classes, (calls, problems) = overview.frame.classes, _on_scores(overview)
    if not problems:
        return _NOTHING
    theirs = products.of(_batched(overview))  # none on a CPU, where no peak bounds what they take
    theirs = theirs.take(among(overview.frame.costs.of("problem", theirs.rows), problems))
    alike, on_gpu = classes.records, overview.division.on_gpu
    multiplies = products.there if on_gpu else _batched(overview)
    ran = ActivityKind.KERNEL if on_gpu else ActivityKind.CPU
    rows = classes.rows(among(alike["call"], calls) & (alike["kind"] == ran) & ~multiplies)
    excess = np.nan_to_num(theirs.exclusive_ns - theirs.least_ns(products.own_peak, 0.0))
    return _Found(rows[overview.inside[rows]], theirs.rows, np.maximum(excess, 0).astype(np.int64))


def _batched(overview: Overview) -> Bools:
    """Which classes are of an op that multiplies a batch of matrices."""
    calls = overview.records.calls
    return np.array([call.op in _BATCHED for call in calls] + [False], np.bool_)[overview.frame.classes.records["call"]]


def _on_scores(overview: Overview) -> tuple[list[int], list[int]]:
    """The calls whose largest tensor is a batch of scores, and the problems that multiply or make one; scores are what a
    product makes or takes and a softmax is taken of."""
    problems: dict[tuple[int, int, int], list[int]] = {}  # by the sides of their largest matrix and the batch
    for code, (*sizes, batch) in enumerate(overview.frame.costs.problems):
        large, small, depth = sorted(sizes, reverse=True)
        if small >= _SHORTEST and batch > 1 and depth < large:
            problems.setdefault((large, small, batch), []).append(code)
    by_size = {(math.prod(key), side): key for key in problems for side in key[:2]}
    calls: dict[tuple[int, int, int], list[int]] = {}
    confirmed = set()
    for code, call in enumerate(overview.records.calls):
        # The largest tensor of an op that multiplies nothing.
        shapes = [] if call.op in _BATCHED else [one for one in call.tensors if len(one.shape) >= 3]
        tensor = max(shapes, key=lambda one: one.numel, default=None)
        if tensor is not None and (key := by_size.get((tensor.numel, tensor.shape[-1]))) is not None:
            calls.setdefault(key, []).append(code)
            if _SOFTMAX.search(call.op) and not _LOSS.search(call.op):
                confirmed.add(key)
    return [code for key in confirmed for code in calls[key]], [code for key in confirmed for code in problems[key]]


# ---------------------------------------------------------------------- without shapes


def _by_neighbours(overview: Overview, products: Products) -> _Found:
    """Kernels between two neighbouring products of a batch, a softmax among them, where no problem is known."""
    costs, alike = overview.frame.costs, overview.frame.classes.records
    # Of a batch of matrices by their op, or without one by their grid.
    may = _batched(overview) | ((alike["call"] < 0) & (alike["grid_z"] > 1))
    if (costs.of("problem", products.of(may & (products.of_kernel("kind") == "gemm")).rows) >= 0).all():
        return _NOTHING
    order, is_product = _in_order(overview, products.of(products.there).rows)
    ends = np.flatnonzero(is_product)
    first, last = ends[:-1], ends[1:]
    begin, end = order[first], order[last]
    same = _same_batch(overview, products, begin, end)
    for column in ("pid", "device", "stream"):
        values = overview.records[column]
        same &= values[begin] == values[end]
    softmax, other, exp, reduce = (_between(mark[order], first, last) for mark in _marks(overview))
    chosen = np.flatnonzero(same & ((softmax > 0) | (exp > 0) & (reduce > 1)) & (other == 0))
    if not len(chosen):
        return _NOTHING
    held, rows = overview.division.exclusive_ns, []
    for begin, end in zip(first[chosen].tolist(), last[chosen].tolist(), strict=True):
        between = order[begin + 1 : end]
        rows.append(between[held[between] >= _SHORT * held[between].max(initial=0)])
    ends = np.stack([order[first[chosen]], order[last[chosen]]]).astype(np.int64)
    time = held[ends].astype(np.int64)
    theirs, at = np.unique(ends.ravel(), return_index=True)
    return _Found(distinct_values(np.concatenate(rows)), theirs, (time - time.min(axis=0)).ravel()[at])


def _in_order(overview: Overview, products: Ints) -> tuple[Ints, Bools]:
    """The window's kernels stream by stream, and a mask of the matrix products."""
    records = overview.records
    talks = records["phase"] == PHASES.index("communication")
    rows = np.flatnonzero(overview.inside & (records["kind"] == ActivityKind.KERNEL) & ~talks)
    order = order_of(*(records[name][rows] for name in ("pid", "device", "stream", "start_ns")))
    rows = rows if order is None else rows[order]
    there = np.zeros(len(records), np.bool_)
    there[products] = True
    return rows, there[rows]


def _same_batch(overview: Overview, products: Products, first: Ints, last: Ints) -> Bools:
    """Whether two products are of one batch of matrices: their ops say so, or without ops their grids. first, last: records."""
    classes, costs = overview.frame.classes, overview.frame.costs
    one, other = classes.code[first], classes.code[last]
    call, layers = classes.records["call"], classes.records["grid_z"]
    batched, gemm = _batched(overview), products.of_kernel("kind") == "gemm"
    unknown = (costs.of("problem", first) < 0) & (costs.of("problem", last) < 0) & gemm[one] & gemm[other]
    by_op = batched[one] & batched[other]
    by_grid = (call[one] < 0) & (call[other] < 0) & (layers[one] == layers[other]) & (layers[one] > 1)
    result: Bools = unknown & (by_op | by_grid)
    return result


def _marks(overview: Overview) -> tuple[Bools, Bools, Bools, Bools]:
    """Four masks over records: softmax, what attention has not, exponential, reduction, by name of op or kernel."""
    records = overview.records
    name = overview.frame.of_name(str)

    def of(pattern: re.Pattern[str]) -> Bools:
        by_name = np.array([pattern.search(text) is not None for text in name.pool] + [False])
        by_op = np.array([pattern.search(call.op) is not None for call in records.calls] + [False])
        return np.asarray(by_name[name.codes] | by_op[records["call"]])

    return of(_SOFTMAX), of(_OTHER), of(_EXP), of(_REDUCE)


def _between(mark: Bools, first: Ints, last: Ints) -> Ints:
    """How many are marked between each two places, these left out."""
    upto = np.cumsum(mark)
    return np.asarray(upto[last] - mark[last] - upto[first])
