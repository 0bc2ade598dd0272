"""Pointwise and norm kernels that run one after another on the same tensors -> fuse them.

Each kernel reads its tensors and writes one; a fused kernel reads and writes only at both ends of the run. It saves the time of
the reads and writes in between, in proportion to each kernel's time, but not more than the host is ahead. Products, fused
kernels and optimizers are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.types import Bools, Floats, Integers, Ints
from pyprof.model.records import PHASES
from pyprof.report.advice.base import Advice, cut_ns, is_worth, mean_ns, named, places
from pyprof.report.advice.shared_pointwise import WindowKernels, kernels_of
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
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


class _Fusable(NamedTuple):
    """Rows of `WindowKernels` that are in a run of several, the run of each, and the share of its time that fusing saves."""

    at: Ints
    run: Ints
    share: Floats


def find(overview: Overview) -> Advice | None:
    """Advice on chains worth fusing, None if they save too little."""
    kernels = kernels_of(overview)
    runs = _runs(kernels, overview)
    rows = kernels.row[runs.at]
    granted = cut_ns(overview, rows, runs.share * overview.division.exclusive_ns[rows])
    saves = mean_ns(overview, granted)
    if not is_worth(overview, saves, _LEAST):
        return None
    gains = granted > 0
    runs = _Fusable(runs.at[gains], runs.run[gains], runs.share[gains])
    rows, granted = rows[gains], granted[gains]
    time = mean_ns(overview, overview.division.exclusive_ns[rows])
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
    frame, costs = overview.frame, overview.frame.of_classes.costs
    inductor = np.array([kernel.family.startswith("inductor") for kernel in costs.kernels] + [False], np.bool_)[costs.kernel]
    whole = _LEFT_OUT if overview.inside[frame.classes.rows(inductor)].any() else "torch.compile(model)"
    do = whole + (f", or {' and '.join(known)} in place of their parts" if known else "")
    # One kernel of each run is launched, the others run in it.
    change = Change(rows=rows, cut_ns=granted, merged=rows[1:][runs.run[1:] == runs.run[:-1]])
    return Advice("fuse_pointwise", change, time, evidence, do, where)


def _runs(kernels: WindowKernels, overview: Overview) -> _Fusable:
    """Runs of neighbours on a stream that fusing saves time of, and the share of its time that each kernel's reads and writes
    between them take."""
    alike = overview.frame.classes.records
    able = (kernels.fusable & (alike["phase"] != PHASES.index("optimizer")))[kernels.code]
    able &= ~_of_a_list(alike["name"][kernels.code], kernels.stream)
    at = np.flatnonzero(able)
    if not len(at):
        return _Fusable(at, at, np.empty(0))
    stream, phase = kernels.stream[at], alike["phase"][kernels.code[at]]
    begins = (np.diff(at) > 1) | (stream[1:] != stream[:-1]) | (phase[1:] != phase[:-1])
    run = np.cumsum(np.append(False, begins))
    elements = kernels.elements[kernels.code[at]]
    largest = np.zeros(int(run[-1]) + 1, np.int64)
    np.maximum.at(largest, run, elements)
    size = _filled(elements, run)
    big = (size < 0) | (size * _SMALL >= largest[run])
    whole, run_of, size_of = at[big], run[big], size[big]
    low, high = np.minimum(size_of[1:], size_of[:-1]), np.maximum(size_of[1:], size_of[:-1])
    linked = (run_of[1:] == run_of[:-1]) & ((low < 0) | (high <= _ALIKE * low)) & ~_of_one_op(kernels, whole, overview)
    # A concatenation that is not between two kernels of like size, as in rotary embeddings, is in no chain.
    cat = np.isin(kernels.word, [code for code, word in enumerate(kernels.words) if word == "cat"])[kernels.code[whole]]
    alone = cat & ~(np.append(False, linked) & np.append(linked, False))
    linked &= ~alone[1:] & ~alone[:-1]
    # The share of each kernel's bytes that its neighbours in the run wrote or will read.
    reduces, code = kernels.reduces, kernels.code[whole]
    one = 1.0 / np.maximum(kernels.inputs + ~reduces, 1)
    reads: Floats = np.where(kernels.inputs > 0, one, 0.0)[code] * np.append(False, linked)
    reads += np.where(reduces, 0.0, one)[code] * np.append(linked, False)
    share = np.zeros(len(at))
    share[big] = reads
    # Scalars and statistics between two kernels of a run are worked out within it.
    small, before = np.flatnonzero(~big), np.searchsorted(np.flatnonzero(big), np.flatnonzero(~big)) - 1
    inside = (before >= 0) & np.append(linked, False)[before]
    share[small[inside]] = 1.0
    gains = share > 0
    return _Fusable(at[gains], run[gains], share[gains])


def _of_a_list(name: Integers, stream: Integers) -> Bools:
    """Which are one of three or more of the same kernel in a row: they go over the tensors of a list and are no chain."""
    same = (name[1:] == name[:-1]) & (stream[1:] == stream[:-1])
    third, result = same[1:] & same[:-1], np.zeros(len(name), np.bool_)
    for first in range(3):
        result[first : first + len(third)] |= third
    return result


def _filled(elements: Ints, run: Ints) -> Ints:
    """Sizes with unknown ones filled from the last known one before in the same run, else from the first known; else -1."""
    places = np.arange(len(elements))
    for step in (1, -1):
        known, group = elements[::step] >= 0, run[::step]
        last = np.maximum.accumulate(np.where(known, places, -1))
        usable = (last >= 0) & (group[last] == group)
        elements = np.where(known | ~usable, elements[::step], elements[::step][last])[::step]
    return elements


def _of_one_op(kernels: WindowKernels, at: Ints, overview: Overview) -> Bools:
    """Between which neighbours a norm or a softmax goes on, which its library made of several kernels for a reason."""
    code, inner = kernels.code[at], overview.frame.classes.records["inner"]
    whole, of_inner = kernels.whole[code], inner[code]
    first = np.flatnonzero(whole[1:] & whole[:-1] & (of_inner[1:] == of_inner[:-1]))
    one, other = (overview.records["instance"][kernels.row[at[places]]] for places in (first, first + 1))
    same = np.zeros(max(len(at) - 1, 0), np.bool_)
    same[first] = (one == other) & (one >= 0)
    return same


def _known(kernels: WindowKernels, runs: _Fusable, gives: Ints) -> list[str]:
    """Ops of torch that do what those runs do that give most."""
    fewest = max(len(gives) - _LOOKED_AT, 0)
    enough = np.flatnonzero(gives >= np.partition(gives, fewest)[fewest])
    heaviest = enough[np.argsort(-gives[enough], kind="stable")[:_LOOKED_AT]]
    begins, ends = (np.searchsorted(runs.run, heaviest, side) for side in ("left", "right"))
    rows = [runs.at[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    done = [{kernels.words[word] for word in kernels.word[kernels.code[mine]].tolist()} for mine in rows]
    return [op for parts, op in _OPS if any(parts <= words for words in done)]


def _most_of(kernels: WindowKernels, runs: _Fusable, gives: Ints) -> tuple[list[str], int]:
    """The pattern (a list of words) whose chains save most together, and how many chains have it."""
    first, begin = np.flatnonzero(np.diff(runs.run, prepend=-1)), np.zeros(len(gives), np.int64)
    begin[runs.run[first]] = first
    step = np.arange(len(runs.run)) - begin[runs.run]
    mixed = (kernels.word[kernels.code[runs.at]] + 1) * (2 * step.astype(np.uint64) + 1).astype(np.int64) * 1_000_003
    pattern = np.bincount(runs.run, mixed % 2_147_483_647, len(gives)).astype(np.int64)
    code = distinct_rows(pattern, np.bincount(runs.run, minlength=len(gives))).inverse
    heaviest = np.argmax(summed(code, gives, int(code.max()) + 1))
    mine = np.flatnonzero(code == heaviest)
    best = runs.at[runs.run == mine[np.argmax(gives[mine])]]
    return [kernels.words[word] for word in kernels.word[kernels.code[best]].tolist()], len(mine)
