"""Several summaries -> one screen with a column for each. Nothing is added up across columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from pyprof.messages import one_line
from pyprof.report.summary.model import Figures
from pyprof.report.summary.styled import Line, Units, at_least, percent, utilised
from pyprof.tables.shorten import shortened

_LABEL = 24
_LEAST_WIDTH = 15
_OPS = 8
_ADVICE = 3
Row = tuple[str, Sequence[str]]


def beside(found: Sequence[Figures], units: Units) -> list[Line]:
    """The lines of the screen: as many columns side by side as fit."""
    number = max((units.width - _LABEL) // _LEAST_WIDTH, 1)
    result: list[Line] = []
    for one in found:
        if one.unseen is not None:
            text = one_line(f"{one.file.rstrip('/').rpartition('/')[2]}: {one.unseen.what}")
            result += [[(part, "bold")] for part in textwrap.wrap(text, units.width)]
    for at in range(0, len(found), number):
        some = found[at : at + number]
        result += [[]] if result else []
        result += _columns([*_rows(some, units)], units, len(some))
    return result


def _columns(rows: Sequence[Row], units: Units, number: int) -> list[Line]:
    width = min((units.width - _LABEL) // number, 36) - 1
    result: list[Line] = []
    for at, (label, cells) in enumerate(rows):
        short = shortened([*map(one_line, cells)], width)
        style = "bold" if not at or not any(cells) else ""
        result.append(
            [(f"{label:<{_LABEL}}"[:_LABEL], style), *((f" {short[one_line(cell)]:>{width}}", style) for cell in cells)]
        )
    return result


def _rows(found: Sequence[Figures], units: Units) -> Iterator[Row]:
    def row(label: str, text: Callable[[Figures], str]) -> Row:
        return label, [text(one) for one in found]

    names = [one.file.rstrip("/").rpartition("/")[2] for one in found]
    yield "", names if len(set(names)) == len(names) else [one.file for one in found]
    yield row("device", lambda one: ", ".join(dict.fromkeys(device.name or "na" for device in one.devices)))
    yield row("devices", lambda one: str(len(one.devices)))
    yield row("steps", lambda one: "na" if one.steps is None else str(one.steps.count))
    yield row("a step", lambda one: "na" if one.steps is None else units.ns(one.steps.median_ns))
    for phase in dict.fromkeys(each.phase for one in found for each in one.step_phases if each.tokens_per_s is not None):
        rates = [next((each.tokens_per_s for each in one.step_phases if each.phase == phase), None) for one in found]
        yield f"tokens/s, {phase or 'unknown'}", [*map(units.number, rates)]
    yield row("wall", lambda one: units.ns(one.wall_ns))
    yield row("busy", lambda one: percent(one.busy_ns, one.wall_ns))
    yield row("MFU", lambda one: utilised(one.utilised.mfu, one.utilised.mfu_min))
    yield row("HFU", lambda one: utilised(one.utilised.hfu, one.utilised.hfu_min))
    yield row("rate over wall", lambda one: _rate(one, units))
    for title, parts in (("busy by", [one.busy for one in found]), ("idle by", [one.idle_ns for one in found])):
        yield title, [""] * len(found)
        for name in _largest(parts):
            yield f"  {name.replace('_', ' ')}", [units.ns(part.get(name, 0) if part else None) for part in parts]
    phases = [one.phases for one in found]
    yield "kernels by phase", [""] * len(found)
    for name in _largest(phases):
        yield f"  {name}", [units.ns(part.get(name, 0)) for part in phases]
    ops = [{share.name or "no op known": share.time_ns for share in one.ops} for one in found]
    yield "kernels by op", [""] * len(found)
    for name in _largest(ops)[:_OPS]:
        yield f"  {name}", [units.ns(part.get(name, 0)) for part in ops]
    yield "what to do first", [""] * len(found)
    for at in range(min(max((len(one.advice) for one in found), default=0), _ADVICE)):
        yield f"  {at + 1}", [one.advice[at].kind if at < len(one.advice) else "" for one in found]
        yield "    saves at most", [units.ns(one.advice[at].saves_ns) if at < len(one.advice) else "" for one in found]


def _rate(one: Figures, units: Units) -> str:
    used = one.utilised
    return at_least(used.flops_per_wall_s, used.flops_per_wall_s_min, lambda rate: units.of(rate, "FLOP/s"))


def _largest(parts: Sequence[Mapping[str, int]]) -> list[str]:
    """All names that have a share in any column, the largest first."""
    shares: Counter[str] = Counter()
    for part in parts:
        total = sum(part.values()) or 1
        for name, ns in part.items():
            shares[name] = max(shares[name], ns * 10**9 // total)
    return [name for name, share in shares.most_common() if share]
