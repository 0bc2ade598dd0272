"""Two captures, or two folders of ranks -> what changed: ops of both, added and removed ones, and whether that says much.

Occurrences are matched in passes: first those with equal op, layer, shape, direction and number; then in order those with equal
op, shape and direction (renamed layers), with equal op, layer and sizes in other types (another precision, which is the same
work), with equal op and layer (another batch size), and with equal op if both captures have equally many left. The remaining
ones were added or removed.

Times are sums of kernel time of whole captures: changes plus additions less removals are exactly their difference. It takes
repeated steps to tell a change from noise.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.types import Floats, Ints
from pyprof.errors import InputError
from pyprof.model.dtypes import DTYPES
from pyprof.model.trace import ActivityKind
from pyprof.parse.records.dataset import named_rank
from pyprof.report.diff.noise import LEAST_RUN, Differences, differences, run_difference
from pyprof.report.diff.occurrences import Occurrences, OpKey, occurrences
from pyprof.report.ranks.units import files_of
from pyprof.report.run_steps import free
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview

_ALIKE = 0.5  # of each capture's time: if less is in common ops, these are two programs
_LONGEST = 40  # characters of a kernel's name in a sentence
_AMOUNT = 0.1  # how much executions of the same ops may differ before one capture counts as cut off
_IN_ORDER = 0.9  # of the ops in both, for one to be the other with a part rewritten
EXACT, RENAMED, RETYPED, RESHAPED, MOVED = range(5)  # how two occurrences were matched
_TYPE = re.compile(rf"\b(?:{'|'.join(dtype.tag for dtype in DTYPES)})\b")
_Name = Callable[[OpKey, int], Hashable]
_PASSES: tuple[tuple[_Name, bool], ...] = (  # what must agree; whether both must have equally many left
    (lambda key, nth: (key, nth), False),
    (lambda key, _: (key.op, key.shape, key.direction), False),
    (lambda key, _: (key.op, key.layer, _without_types(key.shape), key.direction), False),
    (lambda key, _: (key.op, key.layer, key.direction), False),
    (lambda key, _: (key.op, key.direction), True),
)


@dataclass(frozen=True)
class Side:
    """All executions of an op in one capture. flops, bytes: None unknown, flops_min and bytes_min are lower bounds then;
    kernel, math, tc: "" unknown."""

    key: OpKey
    time_ns: int
    instances: int
    kernels: int
    flops: int | None
    flops_min: int | None
    bytes: int | None
    bytes_min: int | None
    kernel: str
    math: str
    tc: str


@dataclass(frozen=True)
class OpChange:
    """An op of both captures. verdict: same, noise, faster, slower, None without enough steps; what: other changes."""

    before: Side
    after: Side
    verdict: str | None
    what: tuple[str, ...]

    @property
    def change_ns(self) -> int:
        """Extra time of the second capture."""
        return self.after.time_ns - self.before.time_ns


@dataclass(frozen=True)
class StepChange:
    """Median step times in ns and the interval of their difference; low and high are None without enough steps."""

    before_ns: float
    after_ns: float
    low_ns: float | None
    high_ns: float | None
    beyond_noise: bool

    @property
    def share(self) -> float:
        """The difference as a share of the time before."""
        return (self.after_ns - self.before_ns) / self.before_ns if self.before_ns else 0.0


@dataclass(frozen=True)
class RunChange(StepChange):
    """The change of a step's time in whole runs, without recorded steps. steps: how many on each side; level: the quantile that
    is compared, 0.5 the median."""

    steps: tuple[int, int]
    level: float


class Comparison:
    """The changes from one capture to another."""

    def __init__(self, before: Overview, after: Overview) -> None:
        self.overviews = before, after
        self.sides = occurrences(before), occurrences(after)
        self._partner, self._how = _match(*self.sides)

    @property
    def before_ns(self) -> int:
        """The kernel time of the first capture."""
        return int(self.sides[0].time_ns.sum())

    @property
    def after_ns(self) -> int:
        """The kernel time of the second capture."""
        return int(self.sides[1].time_ns.sum())

    @property
    def matched(self) -> int:
        """Number of matched executions of ops."""
        before, after = self.sides
        has_op = np.array([key.op is not None for key in before.keys], np.bool_)
        rows = self._rows[has_op[before.key[self._rows]]]
        return int(np.minimum(before.instances[rows], after.instances[self._partner[rows]]).sum())

    @cached_property
    def _rows(self) -> Ints:
        """Matched occurrences of the first capture."""
        return np.flatnonzero(self._partner >= 0)

    @cached_property
    def changes(self) -> list[OpChange]:
        """Every op of both captures, the largest change first."""
        before, after = self.sides
        rows = self._rows
        (keys, other_keys), _, group = distinct_rows(before.key[rows], after.key[self._partner[rows]])
        count = len(keys)
        groups = np.full(len(before), -1, np.int64), np.full(len(after), -1, np.int64)
        groups[0][rows], groups[1][self._partner[rows]] = group, group
        judged = differences(before.step_times(groups[0], count), after.step_times(groups[1], count))
        sides = [_sides(found, of, key) for found, of, key in zip(self.sides, groups, (keys, other_keys), strict=True)]
        found = []
        for at, (one, other) in enumerate(zip(*sides, strict=True)):
            found.append(OpChange(one, other, _verdict(judged, at, other.time_ns - one.time_ns), _what(one, other)))
        return sorted(found, key=lambda change: (-abs(change.change_ns), change.before.key.op or ""))

    @cached_property
    def added(self) -> list[Side]:
        """Ops of the second capture alone, most time first."""
        mine = np.ones(len(self.sides[1]), np.bool_)
        mine[self._partner[self._rows]] = False
        return self._alone(1, np.flatnonzero(mine))

    @cached_property
    def removed(self) -> list[Side]:
        """Ops of the first capture alone, most time first."""
        return self._alone(0, np.flatnonzero(self._partner < 0))

    def _alone(self, side: int, rows: Ints) -> list[Side]:
        found = self.sides[side]
        keys, group = np.unique(found.key[rows], return_inverse=True)
        groups = np.full(len(found), -1, np.int64)
        groups[rows] = group.ravel()
        return sorted(_sides(found, groups, keys), key=lambda one: (-one.time_ns, one.key.op or ""))

    @cached_property
    def step(self) -> StepChange | None:
        """The change of a step's time; None unless both captures have steps."""
        steps = [overview.steps for overview in self.overviews]
        if steps[0] is None or steps[1] is None:
            return None
        times: list[Floats] = [one.time_ns[None, :].astype(np.float64) for one in steps if one is not None]
        found = differences(*times)
        known = not np.isnan(found.low[0])
        low, high = (float(found.low[0]), float(found.high[0])) if known else (None, None)
        return StepChange(float(found.before[0]), float(found.after[0]), low, high, known and bool(found.beyond_noise[0]))

    @cached_property
    def run(self) -> RunChange | None:
        """The change of a step's time by the ledgers of both runs; None without them or with too few steps."""
        ledgers = [overview.records.ledger for overview in self.overviews]
        times = [one.wall_ns[free(one)].astype(np.float64) for one in ledgers if one is not None]
        if len(times) < 2 or min(map(len, times)) < LEAST_RUN:
            return None
        found = run_difference(*times)
        ends = found.low, found.high
        return RunChange(found.before, found.after, *ends, found.beyond_noise, (len(times[0]), len(times[1])), found.level)

    @property
    def time_name(self) -> str:
        """Name of the time that the sums are of."""
        on_gpu = any((one.records["kind"] != ActivityKind.CPU).any() for one in self.overviews)
        return "kernel time" if on_gpu else "op time"

    @cached_property
    def judgement(self) -> tuple[bool, str]:
        """(whether the captures are comparable, the reason)."""
        unseen = [overview.records.unseen for overview in self.overviews]
        if (one := unseen[0] or unseen[1]) is not None and None in unseen:
            return False, f"one does not show the device's work: {one.what}"
        shares = [self._share_of_matched(side, range(len(_PASSES))) for side in range(2)]
        rewritten = min(shares) < _ALIKE and self._is_rewritten
        if min(shares) < _ALIKE and not rewritten:
            return False, f"other programs: ops that both have take {shares[0]:.0%} and {shares[1]:.0%} of the {self.time_name}"
        same = [self._share_of_matched(side, (EXACT, RENAMED, RETYPED)) for side in range(2)]
        if min(same) < _ALIKE * (min(shares) if rewritten else 1):
            return False, f"other shapes: ops with equal ones take {same[0]:.0%} and {same[1]:.0%} of the {self.time_name}"
        steps = [found.steps for found in self.sides]
        if min(steps) and steps[0] != steps[1]:
            amounts = f"{steps[0]} and {steps[1]} steps; compare the time of a step, or cut with --step"
            return False, f"unlike amounts of work: {amounts}"
        ran = [int(found.instances[rows].sum()) for found, rows in zip(self.sides, self._pairs, strict=True)]
        if not min(steps) and abs(ran[0] - ran[1]) > _AMOUNT * max(ran):
            return False, f"unlike amounts of work: the same ops ran {ran[0]} and {ran[1]} times; is one capture cut off?"
        count, added, removed = (sum(side.key.op is not None for side in sides) for sides in (
            [change.before for change in self.changes], self.added, self.removed
        ))  # fmt: skip
        others = self._other_shapes()
        texts = [f"the same {count} ops{others or ', the same shapes'}"]
        if added or removed:
            texts = [f"{count} ops are in both{others}, {added} added and {removed} removed"]
        if rewritten:
            texts.append("a part was rewritten, what runs before and after it is equal")
        names = [sorted({gpu.name for gpu in overview.records.gpus if gpu.name}) for overview in self.overviews]
        if one is not None:
            texts.append(f"the device's work is in neither, times are the host's ({one.what})")
        if names[0] != names[1] and all(names):
            texts.append(f"another GPU ({', '.join(names[0])} and {', '.join(names[1])})")
        if len({overview.missing is None for overview in self.overviews}) == 2:
            texts.append("one has records without begin and end of steps (.dict, .jsonl): its steps may be shorter")
        return True, "; ".join(texts)

    def _other_shapes(self) -> str:
        """How many ops of both captures are in other shapes, or in the same shapes of other types, as words."""
        shapes = [(change.before.key.shape, change.after.key.shape) for change in self.changes]
        differing = [(one, other) for one, other in shapes if one != other]
        retyped = [(one, other) for one, other in differing if _without_types(one) == _without_types(other)]
        found = [f"{len(differing) - len(retyped)} of them in other shapes"] if len(differing) > len(retyped) else []
        if retyped:
            pairs = (pair for texts in retyped for pair in zip(*map(_TYPE.findall, texts), strict=True))
            (most, _), *rest = Counter(pair for pair in pairs if pair[0] != pair[1]).most_common()
            found.append(f"{len(retyped)} of them in other types ({' -> '.join(most)}{' and others' if rest else ''})")
        return "".join(f", {text}" for text in found)

    @property
    def _is_rewritten(self) -> bool:
        """Whether some ops took the place of others, and at least one capture has mostly ops of the other, in order."""
        rows, counts = self._rows[self._how[self._rows] == EXACT], [len(side) for side in self.sides]
        if not len(rows) or min(counts) <= len(self._rows) or not self.added or not self.removed:
            return False
        order = np.diff(self._partner[rows]) > 0
        return len(rows) / min(counts) >= _ALIKE and bool(order.mean() >= _IN_ORDER if len(order) else True)

    @cached_property
    def idle(self) -> dict[str, tuple[int, int]]:
        """Idle time of both windows by cause, most of either first; empty unless both captures have times."""
        parts = [one.parts for one in self.overviews]
        if any(one.records.unseen is not None or not one.division.count for one in self.overviews):
            return {}
        found = {cause: (parts[0][cause], parts[1][cause]) for cause in CAUSES if parts[0][cause] or parts[1][cause]}
        return dict(sorted(found.items(), key=lambda item: -max(item[1])))

    @property
    def _pairs(self) -> tuple[Ints, Ints]:
        return self._rows, self._partner[self._rows]

    def _share_of_matched(self, side: int, passes: Sequence[int]) -> float:
        rows = self._pairs[side][np.isin(self._how[self._rows], list(passes))]
        total = int(self.sides[side].time_ns.sum())
        return float(self.sides[side].time_ns[rows].sum() / total) if total else 1.0


def _without_types(shape: str) -> str:
    """The shape in any type: `M=64,N=512,K=512,type` of `M=64,N=512,K=512,bf16`."""
    return _TYPE.sub("type", shape)


def _match(before: Occurrences, after: Occurrences) -> tuple[Ints, Ints]:
    """For each occurrence before: its row after, -1 if removed; the pass that matched it (EXACT, ...), -1 none."""
    partner, how = np.full(len(before), -1, np.int64), np.full(len(before), -1, np.int64)
    left, right = list(range(len(before))), list(range(len(after)))
    for number, (name, as_many) in enumerate(_PASSES):
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for row in right:
            waiting[name(after.keys[after.key[row]], int(after.nth[row]))].append(row)
        wanted: dict[Hashable, list[int]] = defaultdict(list)
        for row in left:
            wanted[name(before.keys[before.key[row]], int(before.nth[row]))].append(row)
        for key, rows in wanted.items():
            others = waiting.get(key, [])
            if as_many and len(rows) != len(others):
                continue
            for one, other in zip(rows, others, strict=False):
                partner[one], how[one] = other, number
        taken = set(partner.tolist())
        left, right = [row for row in left if partner[row] < 0], [row for row in right if row not in taken]
    return partner, how


def _verdict(judged: Differences, at: int, change_ns: int) -> str | None:
    if change_ns == 0:
        return "same"
    if np.isnan(judged.low[at]):
        return None
    if not judged.beyond_noise[at]:
        return "noise"
    return "slower" if judged.after[at] > judged.before[at] else "faster"


def _sides(found: Occurrences, group: Ints, keys: Ints) -> list[Side]:
    """Sums over the occurrences of each group. keys: the key of each group."""
    rows = np.flatnonzero(group >= 0)
    rows = rows[np.argsort(-found.time_ns[rows], kind="stable")]
    of, count = group[rows], len(keys)
    time, instances, kernels = (
        summed(of, column[rows], count).tolist() for column in (found.time_ns, found.instances, found.kernels)
    )
    flops, moved = (column.take(rows).by(of, count).amounts() for column in (found.flops, found.bytes))
    leader = rows[distinct_rows(of).first] if len(rows) else rows  # every group has a row
    texts = [[found.shown[name][row] for row in leader.tolist()] for name in ("kernel", "math", "tc")]
    columns = zip(keys.tolist(), time, instances, kernels, flops, moved, *texts, strict=True)
    return [
        Side(found.keys[key], ns, ran, number, *of_flops, *of_bytes, *rest)
        for key, ns, ran, number, of_flops, of_bytes, *rest in columns
    ]


def _what(before: Side, after: Side) -> tuple[str, ...]:
    """Other changes of an op, most likely explanation first."""
    found = []
    if before.tc != after.tc and {before.tc, after.tc} == {"0", "1"}:
        found.append("uses Tensor Cores" if after.tc == "1" else "lost Tensor Cores")
    if before.math != after.math and before.math and after.math:
        found.append(f"{before.math} -> {after.math}")
    if before.key.shape != after.key.shape:
        found.append(f"shape -> {after.key.shape or 'unknown'}")
    if before.key.layer != after.key.layer:
        found.append(f"layer -> {after.key.layer or 'none'}")
    for name, one, other in (("FLOPs", before.flops, after.flops), ("bytes", before.bytes, after.bytes)):
        if one != other and one and other is not None and before.instances == after.instances:
            found.append(f"{name} {(other - one) / one:+.1%}")
    if before.instances != after.instances:
        found.append(f"{before.instances} -> {after.instances} executions")
    elif before.kernels != after.kernels:
        found.append(f"{before.kernels} -> {after.kernels} kernels")
    if before.kernel != after.kernel and before.kernel and after.kernel:
        found.append(f"{_cut(before.kernel)} -> {_cut(after.kernel)}")
    return tuple(found)


def _cut(kernel: str) -> str:
    """The begin of a kernel name: generated ones have hundreds of characters."""
    return kernel if len(kernel) <= _LONGEST else f"{kernel[: _LONGEST - 1]}…"


class RankComparison(NamedTuple):
    """The comparison of one rank. rank: -1 if the files were matched by their order; names: both files."""

    rank: int
    names: tuple[str, str]
    found: Comparison


def rank_files(folder: str) -> dict[int, str]:
    """The files of a folder by rank; without a rank the key is -1 - place. Raises InputError if two files share a rank."""
    found: dict[int, str] = {}
    for place, file in enumerate(files_of([folder])):
        rank = named_rank(file)
        key = rank if rank >= 0 else -1 - place
        if key in found:
            raise InputError(f"{folder}: {found[key]} and {file} are both of rank {rank}", "give folders with one file a rank")
        found[key] = str(file)
    return found


def compare_ranks(before: str, after: str, read: Callable[[str], Overview]) -> Iterator[RankComparison]:
    """One comparison per common rank, in order. Ranks come from the captures' names, else from the order of files.

    Raises InputError without a common rank.
    """
    files = rank_files(before), rank_files(after)
    common = sorted(set(files[0]) & set(files[1]), key=lambda rank: (rank < 0, abs(rank)))
    if not common:
        raise InputError(f"{before} and {after} have no rank in common", "name the files after their ranks: rank0.json.gz")
    for rank in common:
        names = files[0][rank], files[1][rank]
        yield RankComparison(max(rank, -1), names, Comparison(read(names[0]), read(names[1])))


def lone_ranks(before: str, after: str) -> tuple[list[int], list[int]]:
    """(ranks only in the first folder, ranks only in the second)."""
    files = rank_files(before), rank_files(after)
    return sorted(set(files[0]) - set(files[1])), sorted(set(files[1]) - set(files[0]))
