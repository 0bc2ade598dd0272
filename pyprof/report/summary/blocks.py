"""The blocks of the screen that are tables: time by phase, family, op and layer, and where most is lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pyprof.messages import one_line
from pyprof.prof.group import LEAST_KNOWN
from pyprof.report.summary.model import Figures, Share, StepPhase
from pyprof.report.summary.styled import Line, Units
from pyprof.tables.shorten import shortened
from pyprof.tables.units import bar

_GAP = 3  # between columns
_LEAST_WIDTH = 28  # of a column
_BAR = 4
_NUMBER = re.compile(r"(?:(?<=[._])|^)\d+$")  # of a layer in a list, or called after its class
_OP = 20  # characters of an op
_SIBLINGS = 3  # of one name but for its number, to be one row


class Row(NamedTuple):
    """A name and its time; title: of the rows that follow; more: how many are not shown."""

    name: str
    time_ns: int | None = None
    share: float = 0.0
    dim: bool = False


def share_rows(summary: Figures, units: Units, most: int, command: str) -> list[Line]:
    """By phase and family, by op, by layer, side by side."""
    total = summary.kernel_ns
    if not total:
        return []
    phases = [Row(name, ns, ns / total, name == "unknown") for name, ns in summary.phases.items() if ns]
    ops = [Row(one.name or "no op known", one.time_ns, one.share, one.name is None) for one in summary.ops]
    families = [Row(one.name or "unknown", one.time_ns, one.share) for one in summary.families]
    left = _titled("By phase", phases, most)
    if families and most - len(left) > 1:
        left += _titled("By kernel family", families, most - len(left))
    columns = [left, _titled("By op", ops, most)]
    if summary.layers:
        title = f"By layer in {summary.around}" if summary.around else "By layer"
        columns.append(_titled(title, _layers(summary, most), most))
    number = min(len(columns), max(units.width // (_LEAST_WIDTH + _GAP), 1))
    result: list[Line] = []
    for at in range(0, len(columns), number):
        result += _beside(columns[at : at + number], units)
    result.append(_more(command, "--group-by op,params" + ", or --tree layer" * bool(summary.layers), units.width))
    return result


def _titled(title: str, rows: Sequence[Row], most: int) -> list[Row]:
    """The first rows under a title; the last line counts the others."""
    if len(rows) <= most:
        return [Row(title), *rows]
    rest = rows[most - 1 :]
    time, share = sum(one.time_ns or 0 for one in rest), sum(one.share for one in rest)
    return [Row(title), *rows[: most - 1], Row(f"{len(rest)} others", time, share, True)]


def _more(command: str, options: str, width: int) -> Line:
    """The command that shows more; with the file's name where there is room for it."""
    text = f"more: {command} {options}"
    return [(text if command and len(text) <= width else f"more: pyprof prof FILE {options}", "dim")]


def _layers(summary: Figures, most: int) -> list[Row]:
    """Layers, and beneath each what is inside as far as there is room."""
    found = _merged(summary.layers, summary.around)
    room = most - len(found)
    rows: list[Row] = []
    for row, members in found:
        rows.append(row)
        below = _merged([each for one in members for each in one.inside], None, [one.name or "" for one in members])
        if 1 < len(below) <= room:
            rows += [each._replace(name=f"  {each.name}") for each, _ in below]
            room -= len(below)
    return rows


def _merged(shares: Sequence[Share], around: str | None, parents: Sequence[str] = ()) -> list[tuple[Row, list[Share]]]:
    """A row for each layer, or for several that differ in a number only, by the end of its name; around, parents: the layers
    around them, None: the one of the parents that each is in."""
    alike: dict[str, list[tuple[str, Share]]] = {}
    for one in shares:
        name = one.name or "(outside of layers)"
        outers = parents if around is None else [around]
        outer = next((outer for outer in outers if outer and name[: len(outer) + 1] in (f"{outer}.", f"{outer}:")), "")
        name = name[len(outer) + 1 :] if outer else name
        alike.setdefault(_NUMBER.sub("", name), []).append((name, one))
    found: list[tuple[Row, list[Share]]] = []
    for pattern, some in alike.items():
        names = list(dict.fromkeys(name for name, _ in some))
        if len(names) >= _SIBLINGS:
            numbers = sorted(int(name[len(pattern) :]) for name in names)
            groups = {f"{pattern}{numbers[0]}..{numbers[-1]}": [one for _, one in some]}
        else:
            groups = {name: [one for other, one in some if other == name] for name in names}
        for name, members in groups.items():
            time, share = sum(one.time_ns for one in members), sum(one.share for one in members)
            found.append((Row(name, time, share, members[0].name is None), members))
    return sorted(found, key=lambda pair: -(pair[0].time_ns or 0))


def _beside(columns: Sequence[Sequence[Row]], units: Units) -> list[Line]:
    width = (units.width - _GAP * (len(columns) - 1)) // len(columns)
    drawn = [_drawn(column, width, units) for column in columns]
    result: list[Line] = []
    for at in range(max(map(len, drawn))):
        line: Line = []
        for number, column in enumerate(drawn):
            cell = column[at] if at < len(column) else [(" " * width, "")]
            line += [*([(" " * _GAP, "")] if number else []), *cell]
        result.append(line)
    return result


def _drawn(rows: Sequence[Row], width: int, units: Units) -> list[Line]:
    """Cells of one column, each as wide as it is."""
    times = {row.time_ns: units.ns(row.time_ns) for row in rows if row.time_ns is not None}
    longest = max(map(len, times.values()), default=0)
    widest = max((len(_percent(row.share)) for row in rows), default=0)
    room = max(width - longest - widest - 2 - (_BAR + 1) * units.bars, 1)  # times of a damaged capture may be longer
    names = shortened([one_line(f"|{row.name}")[1:] for row in rows if row.time_ns is not None], room)
    result: list[Line] = []
    for row in rows:
        if row.time_ns is None:
            title = shortened([one_line(row.name)], width)[one_line(row.name)]
            result.append([(f"{title:<{width}}", "bold")])
            continue
        name = names[one_line(f"|{row.name}")[1:]]
        numbers = f" {times[row.time_ns]:>{longest}} {_percent(row.share):>{widest}}"
        drawn = f" {bar(row.share, _BAR):<{_BAR}}" if units.bars else ""
        result.append([(f"{name:<{room}}", "dim" if row.dim else ""), (numbers, "dim" if row.dim else ""), (drawn, "cyan")])
    return result


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def step_phase_rows(summary: Figures, units: Units) -> list[Line]:
    """The steps of a serving engine, a row a step phase."""
    if not summary.step_phases:
        return []
    head = ("Engine steps", "steps", "batch", "tokens", "time", "tokens/s", "kernels", "FLOPs", "bytes", "roofline")
    rows = [head, *(_step_phase(one, units) for one in summary.step_phases)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    texts = ["  ".join([f"{row[0]:<{widths[0]}}", *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    return [[(text, "" if at else "bold")] for at, text in enumerate(texts)]


def _step_phase(one: StepPhase, units: Units) -> tuple[str, ...]:
    batch = None if one.requests is None or not one.steps else one.requests / one.steps
    of_steps = (
        f"{one.steps:,}",
        units.number(batch),
        units.number(one.tokens),
        units.ns(one.time_ns),
        units.number(one.tokens_per_s),
    )
    work = _known(one.flops, one.known_flops, "FLOP", units), _known(one.bytes, one.known_bytes, "B", units)
    peak = "na" if one.peak is None else _percent(one.peak)
    return one.phase or "phase unknown", *(of_steps if one.steps else ("",) * 5), units.ns(one.kernel_ns), *work, peak


def _known(number: int | None, share: float | None, unit: str, units: Units) -> str:
    """A sum over kernels, or what it is at least where too little is known."""
    least = number is not None and share is not None and share <= LEAST_KNOWN
    return f"{'≥ ' if least else ''}{units.of(number, unit)}"


def lost_rows(summary: Figures, units: Units, most: int, command: str) -> list[Line]:
    """Where most time is lost, and the command for all of them."""
    if not summary.lost:
        return []
    shown = summary.lost[:most]
    cells = [(units.ns(one.time_ns), units.ns(one.lost_ns), _percent(one.peak), one.bound) for one in shown]
    head = ("time", "lost", "peak", "bound")
    widths = [max(len(text), *(len(row[at]) for row in cells)) for at, text in enumerate(head)]
    room = units.width - sum(widths) - 2 * len(widths)
    texts = [[one_line(text) for text in (one.op or "no op known", one.shape or "", one.layer or "")] for one in shown]
    ops, shapes, layers = zip(*texts, strict=True)
    title = "Most time lost against the roofline"
    wide = [min(max(map(len, column)), most) for column, most in ((ops, _OP), (layers, room * 2 // 5))]
    wide.insert(1, room - sum(wide) - 2 * (1 + bool(wide[1])))
    short = [shortened(column, width) for column, width in zip((ops, shapes, layers), wide, strict=True)]

    def line(places: Sequence[str], numbers: Sequence[str]) -> str:
        right = [f"{number:>{width}}" for number, width in zip(numbers[:-1], widths, strict=False)]
        return "  ".join([*places, *right, numbers[-1]])

    left = room - 2 if wide[2] else room
    result: list[Line] = [[(line([f"{title[:left]:<{left}}"], head), "bold")]]
    for place, numbers in zip(texts, cells, strict=True):
        fields = [f"{short[at][text]:<{wide[at]}}" for at, text in enumerate(place) if wide[at] > 0]
        result.append([(line(fields, numbers), "")])
    result.append(_more(command, "--group-by op,params,layer --sort lost", units.width))
    return result
