"""Devices of a recording -> the lines of its one screen. No figure is computed here."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from pyprof.messages import one_line
from pyprof.report.memory.advice import advice_of, short, why
from pyprof.report.memory.device import DeviceMemory, Group
from pyprof.report.summary.styled import Line
from pyprof.tables.shorten import shortened
from pyprof.tables.units import human, mib

_ROWS, _STEPS, _ADVICE = 8, 6, 4
_LEAST_SHARE = 0.005  # of the peak: less is not named in the first sentence
_WORDS = {"older": "older than the recording", "unknown": "of unknown use"}


def lines(file: str, source: str, devices: Sequence[DeviceMemory], width: int, command: str) -> list[Line]:
    """The screen. The CPU is shown where no GPU is. command: lists every block."""
    shown = [one for one in devices if one.trace.device >= 0] or devices
    made: list[Line] = [[(file.rpartition("/")[2], "bold"), (f"  {_source(source, shown)}", "")]]
    for device in shown:
        made += [[], *_device(device, width)]
    if len(shown) < len(devices):
        made.append([("The CPU's own memory: --format json", "dim")])
    if command:
        made.append([(f"Every block: {command} --table blocks", "dim")])
    return [[(text if text.isprintable() else one_line(text), style) for text, style in line] for line in made]


def _source(source: str, shown: Sequence[DeviceMemory]) -> str:
    what = {"snapshot": "snapshot of torch's allocator", "kineto": "torch.profiler trace"}.get(source, source)
    events = sum(len(one.trace) for one in shown)
    span = max((one.since_ns(len(one.trace) - 1) or 0 for one in shown), default=0)
    return f"{what}, {events:,} events" + (f" in {human(span, 'ns')}" if span else "")


def _device(device: DeviceMemory, width: int) -> Iterator[Line]:
    yield from sentence(device, width)
    for number, oom in enumerate(device.oom):
        because, do = why(oom, device.trace.settings)
        when = "" if (since := device.since_ns(oom.event)) is None else f" at {human(since, 'ns')}"
        at = f" at {short(oom.line)}" if oom.line else ""
        if number < 2:
            yield from _wrapped(f"Out of memory{when}{at}: {because}", width, "red")
            yield [("   ", ""), (do, "cyan")]
    if device.trace.addressed:
        yield []
        yield from _groups(device, width)
    yield []
    yield from _end(device, width)
    yield from _steps(device)
    advice = advice_of(device)
    if advice:
        yield []
        head = "What to do first"
        yield [(head, "bold"), (f"{'frees at most':>{width - len(head)}}", "dim")]
    for number, one in enumerate(advice[:_ADVICE], 1):
        title = f"{one.kind.replace('_', ' ').capitalize()}: "
        first, *rest = textwrap.wrap(title + one.evidence, width - 20)
        yield [(f"{number:<3}", ""), (title, "bold"), (first[len(title) :].ljust(width - 18 - len(title)), ""),
               (f"{mib(one.bytes):>15}", "green")]  # fmt: skip
        for text in rest:
            yield [("   " + text, "")]
        yield [("   ", ""), (one.do, "cyan")]
    for note in device.notes:
        yield from _wrapped(f"Note: {note}", width, "dim")


def sentence(device: DeviceMemory, width: int) -> Iterator[Line]:
    """The peak: how much, when, where, and what is in use then."""
    moment, trace = device.moment, device.trace
    requested, allocated, reserved = device.replay.at(moment)
    peak = moment == device.replay.peak and len(trace) > 0
    parts = [(requested, "requested"), (allocated, "allocated"), (reserved, "reserved")]
    least = {"allocated": "at least "} if device.replay.allocated_is_least(moment) else {}
    known = [f"{least.get(word, '')}{mib(size)} {word}" for size, word in parts if size is not None]
    what = "Peak" if peak else "At the end" if moment == device.replay.end else "In use"
    site, since = device.site(moment), device.since_ns(moment)
    if trace.segments_only:
        what = f"{what} of the memory that cudaMalloc took"
    when = "" if since is None else f" at {human(since, 'ns')}"
    if peak and moment < 0:
        when = " before the first event"
    step = f", step {int(trace.step[moment])}" if moment >= 0 and len(device.steps) > 1 and trace.step[moment] >= 0 else ""
    phase = {"optimizer": ", in the optimizer", None: ""}.get(site.phase, f", in {site.phase}")
    relative = " above its begin" if device.replay.relative else ""
    yield from _wrapped(f"{device.name}  {what} {', '.join(known) or 'na'}{relative}{when}{phase}{step}", width, "bold")
    where = [
        f"{word} {text}"
        for word, text in (("by", site.op), ("at", site.line and short(site.line)), ("in", site.layer and short(site.layer)))
        if text
    ]
    if where and peak:
        yield from _wrapped(f"reached {' '.join(where)}", width, indent="   ")
    total = next((size for size, _ in parts if size is not None), 0)
    groups = [one for one in device.by("kind") if total and one.bytes >= _LEAST_SHARE * total]
    if groups:
        of = [f"{100 * one.bytes / total:.0f} % {_WORDS.get(one.name or '', one.name)}" for one in groups]
        yield from _wrapped(f"of it {', '.join(of)}", width, indent="   ")


def _groups(device: DeviceMemory, width: int) -> Iterator[Line]:
    """Blocks in use by kind, phase, layer, line and op, two lists side by side."""
    half = (width - 3) // 2
    pairs = (("kind", "phase"), ("line", "op"), ("layer", ""))
    for left, right in pairs:
        sides = [[*_list(device.by(what), what, half if right else width)] if what else [] for what in (left, right)]
        if len(sides[0]) <= 1 and len(sides[1]) <= 1:
            continue
        for one, two in zip_longest(*sides, fillvalue=""):
            yield [(f"{one:<{half}}   {two}", "bold" if one.startswith("By ") or two.startswith("By ") else "")]
        if (left, right) != pairs[-1]:
            yield []


def _list(groups: Sequence[Group], what: str, width: int) -> Iterator[str]:
    known = [one for one in groups if one.name is not None]
    if not known:
        return
    yield f"{f'By {what}':<{width - 22}}{'':>13}{'blocks':>9}"
    names = [short(one.name or "") if what == "line" or "/" in (one.name or "") else one.name or "" for one in known[:_ROWS]]
    brief = shortened(names, width - 24)
    for one, name in zip(known[:_ROWS], names, strict=True):
        yield f"{brief[name]:<{width - 23}}{mib(one.bytes):>14}{'na' if one.blocks is None else f'{one.blocks:,}':>9}"
    rest = [one for one in groups if one not in known[:_ROWS]]
    if rest:
        counts = [one.blocks for one in rest]
        count = "na" if None in counts else f"{sum(one or 0 for one in counts):,}"
        word = "unknown" if len(known) <= _ROWS else f"{len(rest)} more, or unknown"
        yield f"{word:<{width - 23}}{mib(sum(one.bytes for one in rest)):>14}{count:>9}"


def _end(device: DeviceMemory, width: int) -> Iterator[Line]:
    end = device.end
    used = [f"{mib(end[key])} {word}" for key, word in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved"))
            if end[key] is not None]  # fmt: skip
    text = f"At the end {', '.join(used) or 'na'}"
    if end["free_bytes"] is not None:
        text += (
            f"; {mib(end['free_bytes'])} cached and free: {mib(end['whole_segments_free_bytes'])} in wholly free segments, "
            f"{mib(end['pinned_free_bytes'])} beside live blocks"
        )
    for key, word in (("awaiting_free_bytes", "awaiting free"), ("private_free_bytes", "free in private pools")):
        if end[key]:
            text += f"; {mib(end[key])} {word}"
    yield from _wrapped(text, width)


def _steps(device: DeviceMemory) -> Iterator[Line]:
    steps = device.steps
    if len(steps) < 2:
        return
    yield []
    yield [(f"{'Step':<8}{'peak':>14}{'stayed':>14}   most of what stayed", "bold")]
    for one in steps[:_STEPS]:
        line = f"{short(one.stayed_line)} ({mib(one.stayed_line_bytes)})" if one.stayed_line else ""
        yield [(f"{one.number:<8}{mib(one.peak_bytes):>14}{mib(one.stayed_bytes):>14}   {line}", "")]
    if len(steps) > _STEPS:
        yield [(f"{len(steps) - _STEPS} more: --table steps", "dim")]


def _wrapped(text: str, width: int, style: str = "", indent: str = "") -> Iterator[Line]:
    for part in textwrap.wrap(one_line(text), width, initial_indent=indent, subsequent_indent="   "):
        yield [(part, style)]
