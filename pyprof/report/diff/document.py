"""A comparison -> JSON for programs and tables for people, with the same figures."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from pyprof.report.diff.compare import Comparison, RankComparison, RunChange, Side
from pyprof.report.diff.noise import LEAST_STEPS, LEVELS
from pyprof.tables.screen import Cells, joined, listed
from pyprof.tables.table import Header, Integers, Table
from pyprof.tables.units import human

_SCHEMA = 1
_NUMBER = re.compile(r"\d+")
_CAUSES = 3  # of idle time, in a line
_SHOWN = 10  # rows of the table that says where the difference is


def to_json(found: Comparison, files: Sequence[str]) -> str:
    """The JSON of a comparison. changes + added - removed is the difference of the totals.

    `pyprof help schema diff` describes it. files: the names of both captures.
    """
    return _text({"schema": _SCHEMA, "files": list(files), **_document(found)})


def job_json(ranks: Iterable[RankComparison], files: Sequence[str]) -> str:
    """The JSON of two jobs: the comparison of each rank, and means. files: the names of both jobs."""
    documents = [
        {"rank": one.rank if one.rank >= 0 else None, "files": list(one.names), **_document(one.found)} for one in ranks
    ]
    means = {name: round(sum(int(str(one[name])) for one in documents) / len(documents)) for name in ("before_ns", "after_ns")}
    comparable = all(one["comparable"] for one in documents)
    return _text({"schema": _SCHEMA, "files": list(files), "comparable": comparable, **means, "ranks": documents})


def _text(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _document(found: Comparison) -> dict[str, object]:
    comparable, why = found.judgement
    step = found.step
    changes = []
    for change in found.changes:
        before, after = _side(change.before), _side(change.after)
        times = {"before_ns": change.before.time_ns, "after_ns": change.after.time_ns, "verdict": change.verdict}
        differing = {f"after_{name}": after[name] for name in after if after[name] != before[name]}
        changes.append({**before, **times, "what": list(change.what), **differing})
    return {
        "comparable": comparable,
        "why": why,
        "before_ns": found.before_ns,
        "after_ns": found.after_ns,
        "matched": found.matched,
        "step": None if step is None else {**step.__dict__, "share": step.share},
        "idle": {cause: {"before_ns": before, "after_ns": after} for cause, (before, after) in found.idle.items()},
        "run": None if found.run is None else {**asdict(found.run), "share": found.run.share},
        "changes": changes,
        "added": [{**_side(one), "after_ns": one.time_ns} for one in found.added],
        "removed": [{**_side(one), "before_ns": one.time_ns} for one in found.removed],
    }


def _side(side: Side) -> dict[str, object]:
    return {
        "op": side.key.op,
        "layer": side.key.layer or None,
        "shape": side.key.shape or None,
        "dir": side.key.direction or None,
        "instances": side.instances,
        "kernels": side.kernels,
        "flops": side.flops,
        "flops_min": side.flops_min,
        "bytes": side.bytes,
        "bytes_min": side.bytes_min,
        "kernel": side.kernel or None,
        "math": side.math or None,
        "tc": side.tc or None,
    }


class DiffRow(NamedTuple):
    """A row of the table of differences: an op in one layer, or in all layers of one kind."""

    op: str | None
    layer: str
    shape: str
    what: str
    before_ns: int
    after_ns: int

    @property
    def change_ns(self) -> int:
        """Extra time of the second capture."""
        return self.after_ns - self.before_ns


def rows(found: Comparison) -> list[DiffRow]:
    """All changes, additions and removals, the largest first; they add up to the difference.

    Equal changes of an op in layers whose names differ only in numbers share a row: `blocks.*.attn`.
    """
    single = []
    for change in found.changes:
        texts = [change.verdict] if change.verdict not in (None, "same") else []
        single.append(_row(change.before, change.before.time_ns, change.after.time_ns, ", ".join([*texts, *change.what])))
    single += [_row(side, 0, side.time_ns, f"added: {side.kernel}") for side in found.added]
    single += [_row(side, side.time_ns, 0, f"removed: {side.kernel}") for side in found.removed]
    alike: dict[tuple[object, ...], list[DiffRow]] = defaultdict(list)
    for row in single:
        alike[(row.op, _NUMBER.sub("*", row.layer), row.shape, row.what)].append(row)
    result = []
    for (_, layers, *_), group in alike.items():
        layer = group[0].layer if len({row.layer for row in group}) == 1 else str(layers)
        before, after = sum(row.before_ns for row in group), sum(row.after_ns for row in group)
        result.append(group[0]._replace(layer=layer, before_ns=before, after_ns=after))
    return sorted(result, key=lambda row: -abs(row.change_ns))


def _row(side: Side, before_ns: int, after_ns: int, what: str) -> DiffRow:
    return DiffRow(side.key.op, side.key.layer, side.key.shape, what, before_ns, after_ns)


def where_table(found: Comparison, limit: int | None = None) -> Table:
    """The table of differences and their sum. limit: rows to show; the others share one."""
    all_rows = rows(found)
    shown = all_rows[:limit]
    if rest := all_rows[len(shown) :]:
        before, after = sum(row.before_ns for row in rest), sum(row.after_ns for row in rest)
        shown.append(DiffRow(f"the other {len(rest)} together", "", "", "", before, after))
    return _where([*shown, DiffRow("sum", "", "", "", found.before_ns, found.after_ns)])


def rows_table(found: Comparison) -> Table:
    """All rows of `where_table` but their sum."""
    return _where(rows(found))


def _where(shown: Sequence[DiffRow]) -> Table:
    times = np.array([(row.before_ns, row.after_ns) for row in shown], np.int64).reshape(-1, 2)
    ops = listed(row.op or "kernels without an op" for row in shown)
    layers = listed(row.layer for row in shown)
    innermost = [".".join(layer.split(".")[-2:]) for layer in layers.pool]  # the two innermost layers tell rows apart
    cells: Cells = [
        (Header("op", "Op", "the op; kernels without one are a row together", width=12), ops),
        (_text_header("shape", "Params", "shapes and types of its arguments"), listed(row.shape for row in shown)),
        (
            _text_header("layer", "Layer", "its layers; * stands for several numbers"),
            layers._replace(brief=innermost),
        ),
        (Header("before", "Before(ns)", "kernel time of the first capture", "ns", 10), Integers.known(times[:, 0])),
        (Header("after", "After(ns)", "kernel time of the second capture", "ns", 10), Integers.known(times[:, 1])),
        (Header("change", "Change(ns)", "the difference", "ns", 10), Integers.known(times[:, 1] - times[:, 0])),
        (_text_header("what", "What", "verdict, and what else changed"), listed(row.what for row in shown)),
    ]
    return joined("where", cells, "Where the difference is")


def _text_header(key: str, text: str, meaning: str) -> Header:
    return Header(key, text, meaning, grow=True, empty="-")


def head(found: Comparison, names: Sequence[str]) -> Iterator[str]:
    """The lines above the table."""
    comparable, why = found.judgement
    yield f"{names[0]} -> {names[1]}"
    yield f"{'comparable' if comparable else 'NOT comparable'}: {why}"
    before, after = found.before_ns, found.after_ns
    share = f"  {(after - before) / before:+.1%}" if before else ""
    yield f"{found.time_name}  {human(before, 'ns')} -> {human(after, 'ns')}{share}"
    if found.run is not None:
        yield _run_line(found.run)
    yield _step_line(found)
    if text := _idle(found):
        yield text
    verdicts = [change.verdict for change in found.changes]
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in ("slower", "faster", "noise", "same") if name in verdicts)
    extent = f"{len(found.added)} added, {len(found.removed)} removed"
    yield f"{len(found.changes)} ops in both{f': {counts}' if counts else ''}; {extent}"


def _idle(found: Comparison) -> str:
    """Idle time of both windows, and the causes that changed most; empty where neither idles."""
    if not found.idle:
        return ""
    before, after = (sum(times[side] for times in found.idle.values()) for side in range(2))
    changed = sorted(found.idle.items(), key=lambda item: -abs(item[1][1] - item[1][0]))[:_CAUSES]
    causes = ", ".join(f"{cause} {human(one, 'ns')} -> {human(other, 'ns')}" for cause, (one, other) in changed if one != other)
    return f"idle         {human(before, 'ns')} -> {human(after, 'ns')}{f': {causes}' if causes else ''}"


def _run_line(run: RunChange) -> str:
    """The verdict on whole runs."""
    what = "median" if run.level == LEVELS[0] else f"fastest {100 * run.level:.0f} %"
    why = "" if run.level == LEVELS[0] else ", as the median varies too much"
    verdict = "the same within noise" if not run.beyond_noise else "slower" if run.share > 0 else "faster"
    low, high = (human(value, "ns") for value in (run.low_ns, run.high_ns))
    counts = "{:,} and {:,} steps".format(*run.steps)
    times = f"{human(run.before_ns, 'ns')} -> {human(run.after_ns, 'ns')}  {run.share:+.1%}"
    return f"whole run    {times}: {verdict} (95 %: {low} to {high}; {what} of {counts} that were not recorded{why})"


def _step_line(found: Comparison) -> str:
    step, name = found.step, "step     " if found.run is None else "recorded "
    if step is None:
        return "step         not marked in both captures: noise cannot be told apart (call pyprof.step() or profiler.step())"
    times = f"{name}    {human(step.before_ns, 'ns')} -> {human(step.after_ns, 'ns')}  {step.share:+.1%} (median)"
    if step.low_ns is None or step.high_ns is None:
        counts = " and ".join(str(side.steps) for side in found.sides)
        return f"{times}: too few steps to judge ({counts}; {LEAST_STEPS} of each are needed): record again with --steps 2:8"
    low, high = (human(value, "ns") for value in (step.low_ns, step.high_ns))
    return f"{times}: {'more than noise' if step.beyond_noise else 'within noise'} (95 %: {low} to {high})"


def short_table(found: Comparison) -> Table:
    """The first rows of `where_table`."""
    return where_table(found, _SHOWN)


class RankSums(NamedTuple):
    """The row of one rank. step: medians before and after, as text; most: the op whose time changed most."""

    rank: str
    before_ns: int
    after_ns: int
    step: str
    most: str


def ranks_table(ranks: Sequence[RankSums]) -> Table:
    """One row per rank, and the mean."""
    before, after = round(sum(r.before_ns for r in ranks) / len(ranks)), round(sum(r.after_ns for r in ranks) / len(ranks))
    rows = [*ranks, RankSums("mean", before, after, "", "")]
    times = np.array([(row.before_ns, row.after_ns) for row in rows], np.int64)
    cells: Cells = [
        (Header("rank", "Rank", "rank in the job", width=4), listed(row.rank for row in rows)),
        (Header("before", "Before(ns)", "kernel time of the first capture", "ns", 10), Integers.known(times[:, 0])),
        (Header("after", "After(ns)", "kernel time of the second capture", "ns", 10), Integers.known(times[:, 1])),
        (Header("change", "Change(ns)", "the difference", "ns", 10), Integers.known(times[:, 1] - times[:, 0])),
        (_text_header("step", "Step", "median time of a step"), listed(row.step for row in rows)),
        (_text_header("most", "Most", "where most of the difference is"), listed(row.most for row in rows)),
    ]
    return joined("ranks", cells)


def rank_sums(one: RankComparison) -> RankSums:
    """The row of a rank."""
    step, found = one.found.step, one.found
    medians = "" if step is None else f"{human(step.before_ns, 'ns')} -> {human(step.after_ns, 'ns')} {step.share:+.1%}"
    first = next(iter(rows(found)), None)
    most = (
        "" if first is None or not first.change_ns else f"{first.op or 'kernels without an op'} {human(first.change_ns, 'ns')}"
    )
    return RankSums(str(one.rank) if one.rank >= 0 else one.names[1], found.before_ns, found.after_ns, medians, most)
