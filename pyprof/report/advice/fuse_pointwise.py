"""Pointwise and norm kernels that run one after another on the same tensors -> fuse them.

Each of them reads its tensors and writes one; fused into one kernel the run reads what comes from outside and writes what
leaves it. What goes is the time of the reads and writes between them, in proportion to the time that each kernel took. It
keeps quiet of products, of kernels that are fused already and of optimizers, and bounds itself by how far the host is ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.intervals import summed
from pyprof.arrays.joining import rows_where
from pyprof.arrays.spool import computed, joined, piece_rows, pieces, taken
from pyprof.arrays.types import Bools, Floats, Ints
from pyprof.parse.records.records import PHASES
from pyprof.report.advice.base import Advice, Budget, is_worth, named, places
from pyprof.report.advice.pointwise import Kernels, kernels_of
from pyprof.report.time.overview import Overview
from pyprof.tables.units import human

_ALIKE = 2.2  # two kernels go over tensors of one size if these differ by less: halves of a tensor, and what a grid tells
_SMALL = 64  # times smaller than the largest tensor of a run: scalars and statistics of rows
_LEAST = 0.01  # of the wall time: every program has a few of them
_SHOWN = 10  # kernels of a run
_LEFT_OUT = 'let torch.compile have what it left out: TORCH_LOGS="graph_breaks,recompiles" says why'
_LOOKED_AT = 64  # runs in which known ops are looked for
# What a run does, and the op of torch that does it in one kernel.
_OPS = (
    ({"pow", "mean", "rsqrt"}, "torch.nn.functional.rms_norm"),
    ({"max", "exp", "sum", "div"}, "torch.softmax"),
    ({"sigmoid", "mul"}, "torch.nn.functional.silu"),
    ({"pow", "tanh", "mul"}, 'torch.nn.functional.gelu(x, approximate="tanh")'),
    ({"erf", "mul"}, "torch.nn.functional.gelu"),
)


class _Runs(NamedTuple):
    """Rows of `Kernels` that are in a run of several, the run of each, and the share of its time that fusing saves."""

    at: Ints
    run: Ints
    share: Floats


def find(overview: Overview, budget: Budget) -> Advice | None:
    """What fusing saves at most, None where it is not worth it."""
    kernels = kernels_of(overview)
    runs = _runs(kernels, overview)
    rows = taken(kernels.row, runs.at)
    wish = computed(len(rows), np.float64, lambda part: runs.share[part] * budget.left_ns(rows[part]))
    granted = budget.take(rows, wish)
    saves = budget.wall_ns(granted)
    if not is_worth(overview, saves, _LEAST):
        return None
    gains = rows_where(len(rows), lambda part: granted[part] > 0)
    runs, rows, granted = _Runs(*(taken(column, gains) for column in runs)), taken(rows, gains), taken(granted, gains)
    time = budget.wall_ns(taken(overview.division.held_ns, rows))
    gives = summed(runs.run, granted, int(runs.run.max()) + 1)
    words, often = _most_of(kernels, runs, gives)
    where = places(overview, rows, granted)
    ops = f"; most in {named(where)}" if where[0].op else ""
    shown = ", ".join(words[:_SHOWN]) + (", ..." if len(words) > _SHOWN else "")
    evidence = (
        f"{len(rows):,} kernels in {np.count_nonzero(gives):,} runs on the same tensors take {human(time, 'ns')}, "
        f"{human(saves, 'ns')} of it for reads and writes between them: {often} x {shown}{ops}"
    )
    known = _known(kernels, runs, gives)
    whole = _LEFT_OUT if _compiled(overview) else "torch.compile(model)"
    do = whole + (f", or {' and '.join(known)} in place of their parts" if known else "")
    return Advice("fuse_pointwise", saves, time, evidence, do, where)


def _compiled(overview: Overview) -> bool:
    """Whether kernels of the window are TorchInductor's."""
    costs = overview.frame.of_classes.costs
    ours = np.array([kernel.family.startswith("inductor") for kernel in costs.kernels] + [False], np.bool_)[costs.kernel]
    return bool(overview.inside[overview.frame.classes.rows(ours)].any())


def _runs(kernels: Kernels, overview: Overview) -> _Runs:
    """Runs of neighbours on a stream, and what their kernels read and write between them; some runs at a time."""
    phase, listed = overview.frame.classes.records["phase"], _of_a_list(kernels, overview)
    able = kernels.fusable & (phase != PHASES.index("optimizer"))
    at = rows_where(len(kernels.row), lambda part: able.take(kernels.code[part]) & ~listed(part))

    def begins(part: slice) -> Bools:
        mine = at[max(part.start - 1, 0) : part.stop]
        stream, of_phase = kernels.stream[mine], phase.take(kernels.code[mine])
        new = (np.diff(mine) > 1) | (stream[1:] != stream[:-1]) | (of_phase[1:] != of_phase[:-1])
        return new if part.start else np.append(True, new)

    first = np.append(rows_where(len(at), begins), len(at))  # of each run its first place, and the end
    found = [_Runs(at[:0], at[:0], np.empty(0))]
    run = 0
    while run < len(first) - 1:
        until = max(int(np.searchsorted(first, first[run] + piece_rows(), "right")) - 1, run + 1)
        mine, sizes = at[first[run] : first[until]], np.diff(first[run : until + 1])
        found.append(_gains(kernels, overview, mine, np.repeat(np.arange(run, until, dtype=at.dtype), sizes)))
        run = until
    return _Runs(*(joined([one[column] for one in found]) for column in range(3)))


def _gains(kernels: Kernels, overview: Overview, at: Ints, run: Ints) -> _Runs:
    """Of whole runs those that fusing saves time of. at: their rows of `Kernels`; run: the number of each one's run."""
    elements, own = kernels.elements.take(kernels.code[at]), run - run[0]
    largest = np.zeros(int(own[-1]) + 1, np.int64)
    np.maximum.at(largest, own, elements)
    size = _filled(elements, run)
    big = (size < 0) | (size * _SMALL >= largest[own])
    whole, run_of, size_of = at[big], run[big], size[big]
    same = (run_of[1:] == run_of[:-1]) & ((np.minimum(size_of[1:], size_of[:-1]) < 0) | _alike(size_of[1:], size_of[:-1]))
    linked = _joined(kernels, whole, same & ~_of_one_op(kernels, whole, overview))
    share = np.zeros(len(at))
    share[big] = _between(kernels, whole, linked)
    # Scalars and statistics between two kernels of a run are worked out within it.
    small, before = np.flatnonzero(~big), np.searchsorted(np.flatnonzero(big), np.flatnonzero(~big)) - 1
    inside = (before >= 0) & np.append(linked, False)[before]
    share[small[inside]] = 1.0
    gains = share > 0
    return _Runs(at[gains], run[gains], share[gains])


def _filled(elements: Ints, run: Ints) -> Ints:
    """Sizes, where unknown that of the last known before in the same run, else of the first; -1 where none is."""
    places = np.arange(len(elements))
    for step in (1, -1):
        known, group = elements[::step] >= 0, run[::step]
        last = np.maximum.accumulate(np.where(known, places, -1))
        usable = (last >= 0) & (group[last] == group)
        elements = np.where(known | ~usable, elements[::step], elements[::step][last])[::step]
    return elements


def _alike(one: Ints, other: Ints) -> Bools:
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.asarray(high <= _ALIKE * low)


def _of_a_list(kernels: Kernels, overview: Overview) -> Callable[[slice], Bools]:
    """Which of some are one of three or more of the same kernel in a row: tensors of a list one after another, and no chain."""
    name = overview.frame.classes.records["name"]

    def listed(part: slice) -> Bools:
        first = max(part.start - 2, 0)
        near = slice(first, part.stop + 2)
        own, stream = name.take(kernels.code[near]), kernels.stream[near]
        # Whether each is as the one before it, from two before the first to two after the last.
        same = np.zeros(part.stop - part.start + 4, np.bool_)
        begin = first - part.start + 3
        same[begin : begin + len(own) - 1] = (own[1:] == own[:-1]) & (stream[1:] == stream[:-1])
        both = same[1:] & same[:-1]  # the third of three
        return np.asarray(both[1:-2] | both[2:-1] | both[3:])

    return listed


def _joined(kernels: Kernels, at: Ints, linked: Bools) -> Bools:
    """The links without those of a concatenation that is not between two kernels of like size, as in rotary embeddings."""
    cat = np.isin(kernels.word, [code for code, word in enumerate(kernels.words) if word == "cat"]).take(kernels.code[at])
    alone = cat & ~(np.append(False, linked) & np.append(linked, False))
    return np.asarray(linked & ~alone[1:] & ~alone[:-1])


def _of_one_op(kernels: Kernels, at: Ints, overview: Overview) -> Bools:
    """Between which neighbours a norm or a softmax goes on, which its library made of several kernels for a reason."""
    code, inner = kernels.code[at], overview.frame.classes.records["inner"]
    whole, of_inner = kernels.whole.take(code), inner.take(code)
    first = np.flatnonzero(whole[1:] & whole[:-1] & (of_inner[1:] == of_inner[:-1]))
    one, other = (overview.records["instance"][kernels.row[at[places]]] for places in (first, first + 1))
    same = np.zeros(max(len(at) - 1, 0), np.bool_)
    same[first] = (one == other) & (one >= 0)
    return same


def _between(kernels: Kernels, at: Ints, linked: Bools) -> Floats:
    """The share of each kernel's bytes that its neighbours in the run wrote or will read."""
    inputs, reduces, code = kernels.inputs, kernels.reduces, kernels.code[at]
    one = 1.0 / np.maximum(inputs + ~reduces, 1)
    reads: Floats = np.where(inputs > 0, one, 0.0).take(code) * np.append(False, linked)
    reads += np.where(reduces, 0.0, one).take(code) * np.append(linked, False)
    return reads


def _known(kernels: Kernels, runs: _Runs, gives: Ints) -> list[str]:
    """Ops of torch that do what those runs do that give most."""
    fewest = max(len(gives) - _LOOKED_AT, 0)
    enough = np.flatnonzero(gives >= np.partition(gives, fewest)[fewest])
    heaviest = enough[np.argsort(-gives[enough], kind="stable")[:_LOOKED_AT]]
    begins, ends = (np.searchsorted(runs.run, heaviest, side) for side in ("left", "right"))
    rows = [runs.at[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    done = [{kernels.words[word] for word in kernels.word[kernels.code[mine]].tolist()} for mine in rows]
    return [op for parts, op in _OPS if any(parts <= words for words in done)]


def _most_of(kernels: Kernels, runs: _Runs, gives: Ints) -> tuple[list[str], int]:
    """What the runs of one pattern do of which all together give most, and how many these are."""
    first, pattern = np.flatnonzero(np.diff(runs.run, prepend=-1)), np.zeros(len(gives), np.int64)
    begin = np.zeros(len(gives), first.dtype)
    begin[runs.run[first]] = first
    for part in pieces(len(runs.run)):
        run = runs.run[part]
        step = np.arange(part.start, part.stop) - begin[run]
        mixed = (
            (kernels.word.take(kernels.code[runs.at[part]]) + 1) * (2 * step.astype(np.uint64) + 1).astype(np.int64) * 1_000_003
        )
        pattern += np.bincount(run, mixed % 2_147_483_647, len(gives)).astype(np.int64)
    code = distinct_rows(pattern, np.bincount(runs.run, minlength=len(gives))).inverse
    heaviest = np.argmax(summed(code, gives, int(code.max()) + 1))
    mine = np.flatnonzero(code == heaviest)
    best = runs.at[runs.run == mine[np.argmax(gives[mine])]]
    return [kernels.words[word] for word in kernels.word[kernels.code[best]].tolist()], len(mine)
