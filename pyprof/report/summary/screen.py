"""A summary -> the lines of its one screen: what to do before why, readable units, unknown shown as `na`.

A line is a list of (text, style): plain text for a pipe, with bars and colours for a terminal. The screen fits into LINES and
the given width. No figure is computed here.
"""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pyprof.messages import one_line
from pyprof.report.advice.base import Advice, differs_alone
from pyprof.report.run_steps import sentences
from pyprof.report.summary.blocks import lost_rows, range_rows, share_rows, step_phase_rows
from pyprof.report.summary.model import ALONE, Device, Figures, StepTimes
from pyprof.report.summary.styled import Line, Units, at_least, known_share, percent, plain, utilised
from pyprof.tables.units import mib

LINES = 44  # of a terminal with 45, whose last holds the prompt
_LEAST_SHARE = 0.005  # of the wall time: smaller parts are summed up as `other`
_ADVICE, _ALL_LINES = 3, 99
_LEAST_BYTES = 1 << 20  # a peak of memory that is worth a line
_NAMED = 0.05  # of the products' time: precisions below it are not named
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_BUSY = {"compute": ("█", "cyan"), "communication": ("▓", "magenta"), "copy": ("▒", "blue")}
_IDLE = ("░", "yellow")
_LEAST_ROWS = {"lost": 3, "shares": 4, "notes": 1}
_LEAST_WIDTH = 60  # characters, at Python's prompt


class Summary(Figures):
    """The summary of one capture or job: figures as attributes and JSON; it prints as the screen and shows in a notebook."""

    def __repr__(self) -> str:
        """The screen, as wide as the terminal."""
        import shutil  # imports several libraries, needed on terminals only

        most = Units().width
        return plain(lines(self, Units(width=min(max(shutil.get_terminal_size().columns, _LEAST_WIDTH), most))))

    def __str__(self) -> str:
        return plain(lines(self, Units()))

    def _repr_html_(self) -> str:
        from pyprof.report.summary.words import notebook_html

        return notebook_html(self)


def lines(summary: Figures, units: Units, command: str | None = None) -> list[Line]:
    """The screen. command: lists the records behind it, None: `pyprof prof` with the file."""
    command = shlex.join(["pyprof", "prof", summary.file]) if command is None else command
    rows = {"lost": 6, "shares": 10, "notes": 4}
    made = _made(summary, units, rows, command)
    while len(made) > LINES and any(rows[name] > least for name, least in _LEAST_ROWS.items()):
        name = max(rows, key=lambda key: rows[key] - _LEAST_ROWS[key])
        rows[name] -= 1
        made = _made(summary, units, rows, command)
    return made


def _made(summary: Figures, units: Units, rows: Mapping[str, int], command: str) -> list[Line]:
    blocks = [
        [*_unseen(summary, units)],
        [*_head(summary, units)],
        [*_facts(summary, units)],
        step_phase_rows(summary, units),
        [*_wall(summary, units)],
        [*_advice(summary, units, command)],
        range_rows(summary, units, rows["lost"] + rows["shares"], command)
        if summary.ranges
        else share_rows(summary, units, rows["shares"], command),
        lost_rows(summary, units, rows["lost"], command),
        [*_known(summary, units, rows["notes"])],
    ]
    result: list[Line] = []
    for block in filter(None, blocks):
        result += [[], *block] if result else block
    return [_cut(line, units.width) for line in result]


def _cut(line: Line, width: int) -> Line:
    """The line cut to the width, without characters that control a terminal."""
    result: Line = []
    for text, style in line:
        text = one_line(f"|{text}|")[1:-1] if text.strip() and not text.isprintable() else text
        result.append((text if len(text) <= width else text[: max(width - 1, 0)] + "…", style))
        width -= len(result[-1][0])
        if width <= 0:
            break
    return result


# ---------------------------------------------------------------------------------------------- what it is and took


def _unseen(summary: Figures, units: Units) -> Iterator[Line]:
    """Why the device's work is not known, and how to record it: before all else."""
    if summary.unseen is None:
        return
    those = "of the kernels that were recorded" if summary.on_gpu else "the host's"
    yield from (
        [(text, "bold")] for text in textwrap.wrap(one_line(f"{summary.unseen.what}; times below are {those}"), units.width)
    )
    for text in textwrap.wrap(one_line(summary.unseen.do), units.width - 3):
        yield [("   ", ""), (text, "cyan")]


def _head(summary: Figures, units: Units) -> Iterator[Line]:
    """The file, and its devices: `2 x NVIDIA A100  fp32 19.5, tf32 156, bf16 312 TFLOP/s, DRAM 1.56 TB/s`."""
    job = f"  {summary.ranks} ranks: means of wall time, sums of kernels" if summary.ranks else ""
    counts = Counter(_device(one, units) for one in summary.devices)
    device = "; ".join(text if number == 1 else f"{number} x {text}" for text, number in counts.items())
    file = summary.file.rpartition("/")[2] + job
    if len(file) + len(device) + 2 <= units.width:
        yield [(file, "bold"), (" " * (units.width - len(file) - len(device)), ""), (device, "")]
    else:
        yield [(file, "bold")]
        yield [(device, "")]


def _device(device: Device, units: Units) -> str:
    peaks = {name: device.peaks[name] for name in _PRECISIONS if name in device.peaks}
    if "bf16" in peaks:
        peaks.pop("fp16", None)
    rates = [f"{name} {_tflops(rate)}" for name, rate in peaks.items()]
    text = f"{', '.join(rates)} TFLOP/s" if rates else ""
    dram = "" if device.dram_bytes_per_s is None else f"DRAM {units.of(device.dram_bytes_per_s, 'B/s')}"
    found = ", ".join(filter(None, (text, dram)))
    name = device.name or "unnamed device: --gpu NAME gives its peaks"
    return f"{name}  {found}" if found else name


def _facts(summary: Figures, units: Units) -> Iterator[Line]:
    """Steps, wall, busy share, utilisation, rates."""
    of, times, steps = summary.utilised, summary.steps, "no steps are marked"
    if times is not None and times.count == 1:
        steps = f"1 step of {units.ns(times.median_ns)}"
    elif times is not None:
        median, least, most = map(units.ns, (times.median_ns, times.min_ns, times.max_ns))
        steps = f"{times.count} steps, median {median} ({least} to {most})"
    busy = f"{'GPU' if summary.on_gpu or summary.unseen else 'CPU'} busy {percent(summary.busy_ns, summary.wall_ns)}"
    mfu = f"MFU na ({summary.without_mfu})" if "peak" in summary.without_mfu else "MFU na"
    if of.mfu is not None or of.mfu_min is not None:
        precisions = " and ".join([name for name, share in of.precisions.items() if share >= _NAMED][:2])
        rate = "" if of.peak_flops_per_s is None else f" {_tflops(of.peak_flops_per_s)} TFLOP/s"
        mfu = f"MFU {utilised(of.mfu, of.mfu_min)} of {precisions}{rate}, HFU {utilised(of.hfu, of.hfu_min)}"
    yield from _flowed([steps, f"wall {units.ns(summary.wall_ns)}", busy, mfu], units.width)
    if of.flops or of.flops_min:
        text = at_least(of.flops, of.flops_min, lambda number: units.of(number, "FLOP"))
        rates = (
            (of.flops_per_busy_s, of.flops_per_busy_s_min, "while busy"),
            (of.flops_per_wall_s, of.flops_per_wall_s_min, "over wall"),
        )
        known = [
            f"{at_least(rate, least, lambda number: units.of(number, 'FLOP/s'))} {over}"
            for rate, least, over in rates
            if rate is not None or least is not None
        ]
        yield [(text + (f": {', '.join(known)}" if known else ""), "")]
    if len(summary.devices) > 1 and not summary.ranks:
        what = "devices: wall, busy, idle and savings are their means; kernels, FLOPs, bytes, counts sums"
        yield from _wrapped(f"{len(summary.devices)} {what}", units.width, "", 2)
    if times is not None and (slow := _slowest(times, units)):
        yield [(slow, "")]
    for text in () if summary.run is None else sentences(summary.run):
        yield from _wrapped(text, units.width, "", 2)
    if max((one.allocated_bytes for one in summary.memory), default=0) >= _LEAST_BYTES:
        text, more = _memory(summary), " (pyprof memory)"
        yield [(text + more * (len(text) + len(more) <= units.width), "")]


def _memory(summary: Figures) -> str:
    """`peak memory 220.6 MiB, 234.0 MiB reserved, in forward by gelu at bert/model.py:77`."""
    most = max(summary.memory, key=lambda one: one.allocated_bytes)
    reserved = "" if most.reserved_bytes is None else f", {mib(most.reserved_bytes)} reserved"
    src = most.src and "/".join(most.src.split("/")[-2:])
    where = [f"{word} {text}" for word, text in (("in", most.phase), ("by", most.op), ("at", src)) if text]
    device = f"GPU {most.device}" if most.device >= 0 else "the CPU"
    of = "" if len(summary.memory) == 1 and (most.device >= 0) == summary.on_gpu else f" of {device}"
    above = " above its begin" if most.relative else ""
    reached = f", {' '.join(where)}" if where else ""
    return f"peak memory{of} {mib(most.allocated_bytes)}{above}{reserved}{reached}"


def _flowed(pieces: Sequence[str], width: int) -> Iterator[Line]:
    """The pieces on as few lines as possible."""
    line = ""
    for piece in filter(None, pieces):
        if line and len(line) + 3 + len(piece) > width:
            yield [(line, "bold")]
            line = ""
        line += ("   " if line else "") + piece
    yield [(line, "bold")]


def _slowest(steps: StepTimes, units: Units) -> str:
    slow = steps.slowest
    if slow is None:
        return ""
    text = f"slowest: step {slow.index + 1} of {steps.count}, {units.ns(slow.time_ns)}"
    if slow.part is None:
        return f"{text}; no one part of it explains why"
    kind, name = slow.part
    what = f"idle by {name.replace('_', ' ')}" if kind == "idle" else name
    of = f" ({slow.op})" if slow.op else ""
    return f"{text}: {what} {units.ns(slow.more_ns)} longer than in the median step{of}"


def _tflops(rate: float) -> str:
    """TFLOP/s in three digits, or in all digits before the point."""
    return f"{rate / 1e12:.3g}" if rate < 999.5e12 else f"{rate / 1e12:.0f}"


def _wall(summary: Figures, units: Units) -> Iterator[Line]:
    """The bar of the wall time, and its parts."""
    if summary.wall_ns is None or summary.busy_ns is None:
        return
    if units.bars and summary.wall_ns:
        yield [("wall  ", ""), *_bar_of(summary, summary.wall_ns, units.width - 6)]
    for name, whole, parts in (
        ("busy", summary.busy_ns, summary.busy),
        ("idle", sum(summary.idle_ns.values()), summary.idle_ns),
    ):
        listed = _listed(parts, summary.wall_ns, units)
        share = percent(whole, summary.wall_ns)
        texts = textwrap.wrap(f"{units.ns(whole):>8} {share:>5}   {listed}", units.width - 6, subsequent_indent=" " * 17)
        for number, text in enumerate(texts):
            yield [(name if not number else " " * 4, "cyan" if name == "busy" else "yellow"), ("  ", ""), (text, "")]
    late = next((one.evidence for one in summary.advice if one.kind == "straggler" and summary.ranks), "")
    for number, text in enumerate(textwrap.wrap(one_line(late), units.width - 6)):  # always shown for a job
        yield [("late" if not number else " " * 4, "yellow"), ("  ", ""), (text, "")]


def _bar_of(summary: Figures, wall_ns: int, width: int) -> Line:
    """A bar of the busy parts, then idle, each as long as its share."""
    found: Line = []
    done = at = 0
    marks = [(summary.busy[name], *mark) for name, mark in _BUSY.items()] + [(sum(summary.idle_ns.values()), *_IDLE)]
    for ns, character, style in marks:
        at += ns
        until = round(width * at / wall_ns)
        found.append((character * (until - done), style))
        done = until
    return found


def _listed(parts: Mapping[str, int], wall_ns: int, units: Units) -> str:
    """`data loading 285 ms, launch 95.0 ms, other 13.0 ms`, the longest first."""
    ordered = sorted(((ns, name) for name, ns in parts.items() if ns), reverse=True)
    shown = [(ns, name) for number, (ns, name) in enumerate(ordered) if not number or ns >= _LEAST_SHARE * wall_ns]
    rest = ordered[len(shown) :]
    if len(rest) == 1:
        shown, rest = ordered, []
    texts = [f"{name.replace('_', ' ')} {units.ns(ns)}" for ns, name in shown]
    return ", ".join(texts + [f"other {units.ns(sum(ns for ns, _ in rest))}"] * bool(rest))


# ---------------------------------------------------------------------------------------------- advice, knowledge, notes


def advice_lines(summary: Figures, units: Units) -> list[Line]:
    """Every piece of advice, in full."""
    return [_cut(line, units.width) for line in _advice(summary, units, "", len(summary.advice), _ALL_LINES)]


def _advice(summary: Figures, units: Units, command: str, most: int = _ADVICE, most_lines: int = 2) -> Iterator[Line]:
    """The first pieces of advice with what to do, or why there is none; command as in `lines`."""
    if summary.unseen is not None:  # the first lines say it
        return
    saving = any(one.saves_ns is not None for one in summary.advice)
    head, right = "What to do first", "saves at most" if saving else ""
    yield [(head, "bold"), (f"{right:>{units.width - len(head)}}", "dim")]
    if not saving and summary.notes and not any(one.kind in ALONE for one in summary.advice):
        yield from _wrapped(summary.notes[0], units.width, "   ", 2)
    indent = 3
    room = max(units.width - indent - 10, 20)
    for number, one in enumerate(summary.advice[:most], 1):
        saves = "" if one.saves_ns is None else units.ns(one.saves_ns)
        title = f"{one.kind.replace('_', ' ').capitalize()}{_beside(one, summary, units)}: "
        first, *rest = _brief(title + one.evidence, room, most_lines, units.width - indent - room)
        text = first[len(title) :] if first.startswith(title) else ""
        yield [
            (f"{number:<{indent}}", ""),
            (first[: len(first) - len(text)], "bold"),
            (text.ljust(room - len(title)), ""),
            (f"{saves:>10}", "green"),
        ]
        for text in rest:
            yield [(" " * indent + text, "")]
        for text in _brief(one.do, units.width - indent, most_lines):
            yield [(" " * indent, ""), (text, "cyan")]
    if len(summary.advice) > most:
        kinds = ", ".join(one.kind.replace("_", " ") for one in summary.advice[most:])
        texts = [f"   also: {kinds} ({start}--table advice)" for start in (command.replace(" prof", " summary", 1) + " ", "")]
        yield [(texts[len(texts[0]) > units.width], "dim")]


def _beside(one: Advice, summary: Figures, units: Units) -> str:
    """Behind its kind: the advice that it needs, what it saves in a step and without the advice above it:
    ` (1.2 ms a step; 7.5 ms if done alone)`."""
    kinds = [other.kind for other in summary.advice]
    parts = [f"after {kinds.index(one.after) + 1}"] if one.after in kinds and one.after is not None else []
    if (saves := summary.a_step(one.saves_ns)) is not None:
        parts.append(f"{units.ns(saves)} a step")
    if (alone := differs_alone(one)) is not None:
        parts.append(f"{units.ns(alone)} if done alone")
    if one.peak_bytes:
        parts.append(f"and {mib(one.peak_bytes)} of the peak")
    return f" ({'; '.join(parts)})" if parts else ""


def _brief(text: str, width: int, most: int, more: int = 0) -> list[str]:
    """A text in at most `most` lines. more: how much longer lines after the first may be."""
    first, *rest = textwrap.wrap(one_line(text), width) or [""]
    left = " ".join(rest)
    return [first, *textwrap.wrap(left, width + more, max_lines=most - 1, placeholder=" …")] if left and most > 1 else [first]


def _wrapped(text: str, width: int, indent: str, most: int, style: str = "") -> Iterator[Line]:
    for at, part in enumerate(_brief(text, width - len(indent), most)):
        yield [(indent if at or not style else "", ""), (part, style)]


def _known(summary: Figures, units: Units, most: int) -> Iterator[Line]:
    """How much is known of the time, and notes."""
    if summary.known is not None and not summary.ranges:
        of = summary.known
        shares = ((of.op, "op"), (of.shapes, "shapes"), (of.flops, "FLOPs"), (of.bytes, "bytes"))
        texts = [f"{name} {known_share(share)}" for share, name in shares]
        text, more = f"Known of {'kernel' if summary.on_gpu else 'op'} time: {', '.join(texts)}", "   words: pyprof help terms"
        yield [(text, ""), (more * (len(text) + len(more) <= units.width), "dim")]
    first = summary.unseen is not None or not any(one.saves_ns is not None or one.kind in ALONE for one in summary.advice)
    notes = [f"Note: {note}" for note in summary.notes[first:]]
    for note in notes[: most if len(notes) <= most else most - 1]:
        yield from _wrapped(note, units.width, "      ", 2, "dim")
    if len(notes) > most:
        yield [(f"{len(notes) - most + 1} more notes: --format json", "dim")]
