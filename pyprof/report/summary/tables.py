"""A summary -> its tables, for --table, Markdown and the other formats. No figure is computed here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pyprof.report.summary.model import Figures, Share
from pyprof.tables.screen import Cells, joined, listed
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, Values


def _numbers(values: Iterable[int | None]) -> Integers:
    found = list(values)
    return Integers(np.array([one or 0 for one in found], np.int64), np.array([one is None for one in found], np.bool_))


def _fractions(values: Iterable[float | None], digits: int = 1) -> Fractions:
    return Fractions.not_nan(np.array([np.nan if one is None else one for one in values], np.float64), digits)


def _percent(values: Iterable[float | None]) -> Fractions:
    return _fractions(None if one is None else 100 * one for one in values)


def figures(of: Figures) -> Table:
    """One row per figure of the whole window."""
    used = of.utilised
    idle_ns = sum(of.idle_ns.values()) if of.idle_ns else None
    rows: list[tuple[str, int | float | None, str]] = [
        ("wall_ns", of.wall_ns, "ns"), ("busy_ns", of.busy_ns, "ns"), ("idle_ns", idle_ns, "ns"),
        ("kernel_ns", of.kernel_ns, "ns"), ("kernels", of.kernels, ""), ("devices", len(of.devices), ""),
        ("set_up_ns", of.window.set_up_ns, "ns"), ("after_ns", of.window.after_ns, "ns"), ("flops", used.flops, "FLOP"),
        ("flops_min", used.flops_min, "FLOP"),
        ("flops_per_busy_s", used.flops_per_busy_s, "FLOP/s"), ("flops_per_busy_s_min", used.flops_per_busy_s_min, "FLOP/s"),
        ("flops_per_wall_s", used.flops_per_wall_s, "FLOP/s"), ("flops_per_wall_s_min", used.flops_per_wall_s_min, "FLOP/s"),
        ("peak_flops_per_s", used.peak_flops_per_s, "FLOP/s"),
    ]  # fmt: skip
    shares: list[tuple[str, float | None]] = [
        ("mfu", used.mfu), ("hfu", used.hfu), ("mfu_min", used.mfu_min), ("hfu_min", used.hfu_min)
    ]  # fmt: skip
    if of.known is not None:
        shares += [(f"known_{name}", getattr(of.known, name)) for name in ("op", "shapes", "flops", "bytes")]
    rows += [(name, None if share is None else 100 * share, "%") for name, share in shares]
    cells: Cells = [
        (Header("figure", "Figure", "its name in the JSON", grow=True), listed(name for name, _, _ in rows)),
        (Header("value", "Value", "in its unit", width=12), _fractions((value for _, value, _ in rows), 3)),
        (Header("unit", "Unit", "ns, FLOP, FLOP/s, percent", empty="-"), listed(unit for _, _, unit in rows)),
    ]
    return joined("figures", cells, f"{of.file}: the window")


def time(of: Figures) -> Table:
    """The parts of the wall time, and kernel time by phase, op and family."""
    wall = of.wall_ns or 0
    rows: list[tuple[str, str | None, int, int]] = [("busy", name, ns, wall) for name, ns in of.busy.items() if ns]
    rows += [("idle", name, ns, wall) for name, ns in of.idle_ns.items() if ns]
    rows += [("phase", name, ns, of.kernel_ns) for name, ns in of.phases.items() if ns]
    for by, shares in (("op", of.ops), ("family", of.families)):
        rows += [(by, one.name, one.time_ns, of.kernel_ns) for one in shares]
    cells: Cells = [
        (Header("by", "By", "busy and idle: of the wall time; else of the kernels' time", width=6), listed(r[0] for r in rows)),
        (Header("name", "Name", "its text", width=0, grow=True), listed(row[1] for row in rows)),
        (Header("time", "Time(ns)", "mean over the devices, of kernels the sum", "ns", 10), _numbers(row[2] for row in rows)),
        (
            _share("of the wall time, or of all kernels' time"),
            _percent(ns / whole if whole else None for _, _, ns, whole in rows),
        ),
    ]
    return joined("time", cells, "Time")


def _share(text: str) -> Header:
    return Header("share", "Share(%)", text, "%", 8, share=True)


def _shares(name: str, title: str, key: str, rows: Sequence[tuple[Share, str | None]]) -> Table:
    shares = [share for share, _ in rows]
    cells: Cells = [
        (Header(key, key.capitalize(), "its name", grow=True), listed(share.name for share in shares)),
        (Header("calls", "Calls", "executions of ops"), _numbers(share.calls for share in shares)),
        (Header("kernels", "Kernels", "kernels, or ops on a CPU"), _numbers(share.kernels for share in shares)),
        (Header("time", "Time(ns)", "of all of them", "ns", 12), _numbers(share.time_ns for share in shares)),
        (_share("of all kernels' time"), _percent(share.share for share in shares)),
        (Header("flops", "FLOPs", "operations that the algorithm needs", "FLOP", 12), _numbers(s.flops for s in shares)),
        (Header("known", "Known(%)", "share of the time whose FLOPs are known", "%", 8), _percent(s.known for s in shares)),
        (Header("lost", "Lost(ns)", "time above the roofline", "ns", 10), _numbers(share.lost_ns for share in shares)),
    ]
    if key == "layer":
        cells.insert(1, (Header("inside", "Inside", "the layer around it", grow=True, empty="-"), listed(r[1] for r in rows)))
    return joined(name, cells, title)


def ops(of: Figures) -> Table:
    """Time by op."""
    return _shares("ops", "By op", "op", [(one, None) for one in of.ops])


def families(of: Figures) -> Table:
    """Time by family of kernels."""
    return _shares("families", "By kernel family", "family", [(one, None) for one in of.families])


def layers(of: Figures) -> Table:
    """Time by layer, each before those inside it."""
    rows = []
    for one in of.layers:
        rows += [(one, ""), *((each, one.name) for each in one.inside)]
    return _shares("layers", "By layer", "layer", rows)


def lost(of: Figures) -> Table:
    """The places where most time is lost against the roofline."""
    found = of.lost
    cells: Cells = [
        (Header("op", "Op", "the op", grow=True), listed(one.op for one in found)),
        (Header("params", "Params", "its shapes and types", grow=True), listed(one.shape for one in found)),
        (Header("layer", "Layer", "where; * stands for numbers that differ", grow=True), listed(one.layer for one in found)),
        (Header("bound", "Bound", "what limits it", width=8), listed(one.bound for one in found)),
        (Header("kernels", "Kernels", "how many"), _numbers(one.kernels for one in found)),
        (Header("time", "Time(ns)", "of its kernels", "ns", 12), _numbers(one.time_ns for one in found)),
        (Header("lost", "Lost(ns)", "of that, above the roofline", "ns", 12), _numbers(one.lost_ns for one in found)),
        (Header("peak", "Peak(%)", "least time over time", "%"), _percent(one.peak for one in found)),
    ]
    return joined("lost", cells, "Most time lost against the roofline")


def advice(of: Figures) -> Table:
    """All advice, what can save most first."""
    found = of.advice
    cells: Cells = [
        (Header("kind", "Kind", "what was found", width=10), listed(one.kind for one in found)),
        (
            Header("saves", "Saves(ns)", "wall time that goes when it is added to those above", "ns", 10),
            _numbers(o.saves_ns for o in found),
        ),
        (
            Header("alone", "Alone(ns)", "wall time that goes when nothing else is done", "ns", 10),
            _numbers(o.alone_ns for o in found),
        ),
        (Header("step", "Step(ns)", "saves, a step", "ns", 10), _numbers(of.a_step(o.saves_ns) for o in found)),
        (
            Header("after", "After", "the kind that it needs: alone it saves next to nothing", width=8, empty="-"),
            listed(o.after for o in found),
        ),
        (Header("time", "Time(ns)", "of what it is about", "ns", 10), _numbers(one.time_ns for one in found)),
        (Header("evidence", "Evidence", "where, how often, how long", grow=True), listed(one.evidence for one in found)),
        (Header("do", "Do", "what to change", grow=True), listed(one.do for one in found)),
    ]
    return joined("advice", cells, "Advice")


def steps(of: Figures) -> Table:
    """One row per step."""
    times = () if of.steps is None else of.steps.times_ns
    cells: Cells = [
        (Header("step", "Step", "from 1, of the window"), _numbers(range(1, len(times) + 1))),
        (Header("time", "Time(ns)", "from its begin to that of the next", "ns", 12), _numbers(times)),
    ]
    return joined("steps", cells, "Steps" if of.steps is None else f"Steps, marked by {of.steps.kind}")


def step_phases(of: Figures) -> Table:
    """One row per step phase of a serving engine."""
    found = of.step_phases
    cells: Cells = [
        (
            Header("phase", "StepPhase", "prefill, decode, mixed, idle; outside: in no step", grow=True),
            listed(o.phase for o in found),
        ),
        (Header("steps", "Steps", "how many"), _numbers(one.steps for one in found)),
        (Header("requests", "Requests", "of all these steps"), _numbers(one.requests for one in found)),
        (Header("tokens", "Tokens", "that they computed"), _numbers(one.tokens for one in found)),
        (
            Header("generated", "Generated", "tokens of these that requests got as answers"),
            _numbers(o.generated for o in found),
        ),
        (
            Header("time", "Time(ns)", "of the steps, each to the begin of the next", "ns", 12),
            _numbers(o.time_ns for o in found),
        ),
        (
            Header("rate", "Tokens/s", "in decode the generated ones, else those computed, over the time"),
            _fractions(o.tokens_per_s for o in found),
        ),
        (Header("kernels", "Kernels", "that they launched"), _numbers(one.kernels for one in found)),
        (Header("kernel_ns", "KernelTime(ns)", "of these", "ns", 12), _numbers(one.kernel_ns for one in found)),
        (Header("flops", "FLOPs", "of these", "FLOP", 12), _numbers(one.flops for one in found)),
        (Header("flops_min", "MinFLOPs", "at least, where unknown", "FLOP"), _numbers(o.flops_min for o in found)),
        (Header("known_flops", "KnownFLOPs(%)", "share of the kernels' time", "%"), _percent(one.known_flops for one in found)),
        (Header("bytes", "Bytes", "least bytes of these", "B", 12), _numbers(one.bytes for one in found)),
        (Header("bytes_min", "MinBytes", "at least, where unknown", "B"), _numbers(o.bytes_min for o in found)),
        (Header("known_bytes", "KnownBytes(%)", "share of the kernels' time", "%"), _percent(one.known_bytes for one in found)),
        (Header("peak", "Peak(%)", "share of the roofline: least time over time", "%"), _percent(one.peak for one in found)),
    ]
    return joined("step_phases", cells, "Steps of a serving engine")


def ranges(of: Figures) -> Table:
    """The ranges of a capture that holds nothing else."""
    found = of.ranges
    mean = (one.time_ns / max(one.number, 1) for one in found)
    cells: Cells = [
        (Header("range", "Range", "its name, behind those around it", grow=True), listed(one.name for one in found)),
        (Header("number", "Number", "how many"), _numbers(one.number for one in found)),
        (Header("time", "Time(ns)", "of all of them", "ns", 12), _numbers(one.time_ns for one in found)),
        (Header("mean", "Mean(ns)", "of one", "ns", 10), _fractions(mean)),
        (Header("min", "Min(ns)", "the shortest", "ns", 10), _numbers(one.min_ns for one in found)),
        (Header("max", "Max(ns)", "the longest", "ns", 10), _numbers(one.max_ns for one in found)),
    ]
    return joined("ranges", cells, "Ranges")


def notes(of: Figures) -> Table:
    """Notes on the capture."""
    values: Values = listed(of.notes)
    return joined("notes", [(Header("note", "Note", "about the capture", grow=True), values)], "Notes")


TABLES: dict[str, Callable[[Figures], Table]] = {
    "figures": figures, "steps": steps, "time": time, "step_phases": step_phases, "advice": advice, "ops": ops,
    "layers": layers, "families": families, "lost": lost, "ranges": ranges, "notes": notes,
}  # fmt: skip


def tables_of(of: Figures) -> list[Table]:
    """All tables; step_phases only for a serving engine, ranges only where there is nothing else."""
    seldom: dict[Callable[[Figures], Table], object] = {step_phases: of.step_phases, ranges: of.ranges}
    return [make(of) for make in TABLES.values() if seldom.get(make, True)]


def of_all(name: str, found: Sequence[Figures]) -> Table:
    """One table. Several summaries share it, with the file in a first column."""
    tables = [TABLES[name](one) for one in found]
    if len(tables) == 1:
        return tables[0]
    columns = [_stacked([table.of(header.key) for table in tables]) for header in tables[0].headers]
    file = listed(one.file for one, table in zip(found, tables, strict=True) for _ in table.rows)
    cells: Cells = [(Header("file", "File", "the capture", grow=True), file), *zip(tables[0].headers, columns, strict=True)]
    return joined(name, cells, tables[0].title)


def _stacked(values: Sequence[Values]) -> Values:
    """Columns of one type, one below the other."""
    first = values[0]
    if isinstance(first, Texts):
        pools = [([*one.pool, None], one.codes.tolist()) for one in values if isinstance(one, Texts)]
        return listed(pool[code] for pool, codes in pools for code in codes)
    numbers, unknown = (np.concatenate([getattr(one, name) for one in values]) for name in ("values", "unknown"))
    return first._replace(values=numbers, unknown=unknown)
