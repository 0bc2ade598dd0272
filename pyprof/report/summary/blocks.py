"""The blocks of the screen that are tables: time by phase, family, op and layer, and where most is lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pyprof.messages import one_line
from pyprof.report.summary.model import Figures, Share, StepPhase
from pyprof.report.summary.styled import Line, Units, percent
from pyprof.tables.shorten import shortened
from pyprof.tables.units import bar

_GAP = 3  # between columns
_LEAST_WIDTH = 28  # characters of a column
_BAR = 4
_OP = 20  # characters of an op


class BlockRow(NamedTuple):
    """A name with its time. time_ns: None for a title; dim: drawn in grey; cls: shown behind the name where there is room."""

    name: str
    time_ns: int | None = None
    share: float = 0.0
    dim: bool = False
    cls: str | None = None


def share_rows(summary: Figures, units: Units, most: int, command: str) -> list[Line]:
    """Time by phase and family, by op and by layer, side by side."""
    total = summary.kernel_ns
    if not total:
        return []
    phases = [BlockRow(name, ns, ns / total, name == "unknown") for name, ns in summary.phases.items() if ns]
    ops = [
        BlockRow(one.name or "no op known", one.time_ns, one.share, one.name is None)
        for one in summary.by_kernel or summary.ops
    ]
    families = [BlockRow(one.name or "unknown", one.time_ns, one.share) for one in summary.families]
    left = _titled("By phase", phases, most)
    if families and most - len(left) > 1:
        left += _titled("By kernel family", families, most - len(left))
    columns = [left, _titled("By kernel" if summary.by_kernel else "By op", ops, most)]
    if summary.layers:
        title = f"By layer in {summary.around}" if summary.around else "By layer"
        title += f" ({summary.around_cls})" if summary.around_cls else ""
        columns.append(_titled(title, _layers(summary, most), most))
    number = min(len(columns), max(units.width // (_LEAST_WIDTH + _GAP), 1))
    result: list[Line] = []
    for begin in range(0, len(columns), number):
        some = columns[begin : begin + number]
        width = (units.width - _GAP * (len(some) - 1)) // len(some)
        drawn = [_drawn(column, width, units) for column in some]
        for at in range(max(map(len, drawn))):
            line: Line = []
            for column in drawn:
                line += [(" " * _GAP, "")] if line else []
                line += column[at] if at < len(column) else [(" " * width, "")]
            result.append(line)
    by = "op,params" if summary.ops and summary.ops[0].name is not None else "kernel"
    result.append(_more(command, f"--group-by {by}" + ", or --tree layer" * bool(summary.layers), units.width))
    return result


def _titled(title: str, rows: Sequence[BlockRow], most: int) -> list[BlockRow]:
    """The first rows under a title; the last one sums up the others."""
    if len(rows) <= most:
        return [BlockRow(title), *rows]
    rest = rows[most - 1 :]
    time, share = sum(one.time_ns or 0 for one in rest), sum(one.share for one in rest)
    return [BlockRow(title), *rows[: most - 1], BlockRow(f"{len(rest)} others", time, share, True)]


def _more(command: str, options: str, width: int) -> Line:
    """The command that shows more, with the file's name if it fits."""
    text = f"more: {command} {options}"
    return [(text if command and len(text) <= width else f"more: pyprof prof FILE {options}", "dim")]


def _layers(summary: Figures, most: int) -> list[BlockRow]:
    """Layers, each with its inner layers below it while there is room."""
    room, rows = most - len(summary.layers), list[BlockRow]()
    for one in summary.layers:
        rows.append(_layer(one, summary.around))
        below = one.inside
        if 1 < len(below) <= room:
            rows += [(row := _layer(each, one.name or ""))._replace(name=f"  {row.name}") for each in below]
            room -= len(below)
    return rows


def _layer(one: Share, around: str) -> BlockRow:
    """A layer's row; around: a layer of whose name this one's goes without what both begin with."""
    name = one.name or "(outside of layers)"
    for end in sorted((len(around), *(at for at, one in enumerate(around) if one in ".:")), reverse=True):
        if around and name == around[:end]:
            name = "(directly in it)" if name == around else f"(directly in {re.split('[.:]', name)[-1]})"
        elif around and name.startswith(around[:end]) and name[end : end + 1] in (".", ":"):
            name = name[end + 1 :]
        else:
            continue
        break
    return BlockRow(name, one.time_ns, one.share, one.name is None, one.cls)


def _drawn(rows: Sequence[BlockRow], width: int, units: Units) -> list[Line]:
    """The cells of one column, all of its width."""
    times = {row.time_ns: units.ns(row.time_ns) for row in rows if row.time_ns is not None}
    longest = max(map(len, times.values()), default=0)
    widest = max((len(percent(row.share)) for row in rows), default=0)
    room = max(width - longest - widest - 2 - (_BAR + 1) * units.bars, 1)  # times of a damaged capture may be longer
    rows = [_with_class(row, room) for row in rows]
    names = shortened([one_line(f"|{row.name}")[1:] for row in rows if row.time_ns is not None], room)
    result: list[Line] = []
    for row in rows:
        if row.time_ns is None:
            title = shortened([one_line(row.name)], width)[one_line(row.name)]
            result.append([(f"{title:<{width}}", "bold")])
            continue
        name = names[one_line(f"|{row.name}")[1:]]
        numbers = f" {times[row.time_ns]:>{longest}} {percent(row.share):>{widest}}"
        drawn = f" {bar(row.share, _BAR):<{_BAR}}" if units.bars else ""
        result.append([(f"{name:<{room}}", "dim" if row.dim else ""), (numbers, "dim" if row.dim else ""), (drawn, "cyan")])
    return result


def _with_class(row: BlockRow, room: int) -> BlockRow:
    whole = f"{row.name} ({row.cls})"
    return row._replace(name=whole) if row.cls is not None and len(whole) <= room else row


def step_phase_rows(summary: Figures, units: Units) -> list[Line]:
    """The steps of a serving engine, one row per step phase."""
    if not summary.step_phases:
        return []
    head = ("Engine steps", "steps", "batch", "tokens", "time", "tokens/s", "kernels", "FLOPs", "bytes", "roofline")
    rows = [head, *(_step_phase(one, units) for one in summary.step_phases)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    texts = ["  ".join([f"{row[0]:<{widths[0]}}", *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    return [[(text, "" if at else "bold")] for at, text in enumerate(texts)]


def range_rows(summary: Figures, units: Units, most: int, command: str) -> list[Line]:
    """The ranges of a capture that holds nothing else."""
    head = ("Ranges", "number", "time", "mean", "min", "max")
    shown = summary.ranges[:most]
    rows = [
        (
            f"{one.number:,}", units.ns(one.time_ns), units.ns(one.time_ns / max(one.number, 1)), units.ns(one.min_ns),
            units.ns(one.max_ns),
        )
        for one in shown
    ]  # fmt: skip
    widths = [max(len(head[at + 1]), *(len(row[at]) for row in rows)) for at in range(len(head) - 1)]
    room = max(units.width - sum(widths) - 2 * len(widths), 1)
    names = [one_line(f"|{one.name or 'na'}")[1:] for one in shown]
    short = shortened(names, min(room, max(map(len, [head[0], *names]))))
    left = max(map(len, [head[0], *short.values()]))
    lines = [(head[0], head[1:]), *((short[name], row) for name, row in zip(names, rows, strict=True))]
    texts = ["  ".join([f"{name:<{left}}", *map(str.rjust, cells, widths)]) for name, cells in lines]
    result: list[Line] = [[(text, "" if at else "bold")] for at, text in enumerate(texts)]
    if len(summary.ranges) > most:
        result.append(_more(command.replace("pyprof prof", "pyprof summary"), "--table ranges", units.width))
    return result


def _step_phase(one: StepPhase, units: Units) -> tuple[str, ...]:
    batch = None if one.requests is None or not one.steps else one.requests / one.steps
    of_steps = (
        f"{one.steps:,}",
        units.number(batch),
        units.number(one.tokens),
        units.ns(one.time_ns),
        units.number(one.tokens_per_s),
    )
    work = _bounded(one.flops, one.flops_min, "FLOP", units), _bounded(one.bytes, one.bytes_min, "B", units)
    peak = "na" if one.peak is None else percent(one.peak)
    return one.phase or "phase unknown", *(of_steps if one.steps else ("",) * 5), units.ns(one.kernel_ns), *work, peak


def _bounded(number: int | None, least: int | None, unit: str, units: Units) -> str:
    """A sum over kernels; where it is unknown its lower bound, marked as one."""
    return units.of(number, unit) if least is None else f"≥ {units.of(least, unit)}"


def lost_rows(summary: Figures, units: Units, most: int, command: str) -> list[Line]:
    """The places where most time is lost, and the command that lists all of them."""
    if not summary.lost:
        return []
    shown = summary.lost[:most]
    cells = [(units.ns(one.time_ns), units.ns(one.lost_ns), percent(one.peak), one.bound) for one in shown]
    head = ("time", "lost", "peak", "bound")
    widths = [max(len(text), *(len(row[at]) for row in cells)) for at, text in enumerate(head)]
    room = units.width - sum(widths) - 2 * len(widths)
    texts = [[one_line(text) for text in (one.op or "no op known", one.shape or "", one.layer or "")] for one in shown]
    ops, shapes, layers = zip(*texts, strict=True)
    title = "Most time lost against the roofline"
    wide = [min(max(map(len, column)), most) for column, most in ((ops, _OP), (layers, room * 2 // 5))]
    wide.insert(1, room - sum(wide) - 2 * (1 + bool(wide[1])))
    short = [shortened(column, width) for column, width in zip((ops, shapes, layers), wide, strict=True)]
    left = room - 2 if wide[2] else room
    places = [[f"{title[:left]:<{left}}"]]
    places += [[f"{short[at][text]:<{wide[at]}}" for at, text in enumerate(one) if wide[at] > 0] for one in texts]
    result: list[Line] = []
    for fields, numbers in zip(places, (head, *cells), strict=True):
        right = [f"{number:>{width}}" for number, width in zip(numbers[:-1], widths, strict=False)]
        result.append([("  ".join([*fields, *right, numbers[-1]]), "" if result else "bold")])
    result.append(_more(command, "--group-by op,params,layer --sort lost", units.width))
    return result
