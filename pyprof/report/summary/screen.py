"""A summary -> the lines of the one screen: what to do before why, units that people read, unknown named as such.

A line is a list of (text, style); the same lines are plain text for a pipe and, with bars and colours, what a terminal shows.
They fit into LINES, and into the width that is given. Computes no figure.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from pyprof.messages import one_line
from pyprof.report.advice.base import Advice
from pyprof.report.summary.blocks import lost_rows, share_rows, step_phase_rows
from pyprof.report.summary.model import Device, Figures, StepTimes
from pyprof.report.summary.styled import Line, Units

LINES = 44  # of a terminal with 45, whose last holds the prompt
_LEAST_SHARE = 0.005  # of the wall time: what is less is summed up as `other`
_ADVICE = 3
_NAMED = 0.05  # of the products' time: a precision with less is not named
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_BUSY = {"compute": ("█", "cyan"), "communication": ("▓", "magenta"), "copy": ("▒", "blue")}
_IDLE = ("░", "yellow")


def lines(summary: Figures, units: Units, command: str | None = None) -> list[Line]:
    """The screen. command: what shows records of the same, None: `pyprof prof` of the file."""
    command = shlex.join(["pyprof", "prof", summary.file]) if command is None else command
    rows = {"lost": 6, "shares": 10, "notes": 4}
    made = _made(summary, units, rows, command)
    while len(made) > LINES and any(rows[name] > least for name, least in _LEAST_ROWS.items()):
        name = max(rows, key=lambda key: rows[key] - _LEAST_ROWS[key])
        rows[name] -= 1
        made = _made(summary, units, rows, command)
    return made


_LEAST_ROWS = {"lost": 3, "shares": 4, "notes": 1}


def _made(summary: Figures, units: Units, rows: Mapping[str, int], command: str) -> list[Line]:
    blocks = [
        [*_head(summary, units)],
        [*_facts(summary, units)],
        step_phase_rows(summary, units),
        [*_wall(summary, units)],
        [*_advice(summary, units)],
        share_rows(summary, units, rows["shares"], command),
        lost_rows(summary, units, rows["lost"], command),
        [*_known(summary, units, rows["notes"])],
    ]
    result: list[Line] = []
    for block in filter(None, blocks):
        result += [[], *block] if result else block
    return [_cut(line, units.width) for line in result]


def _cut(line: Line, width: int) -> Line:
    """A line of at most that many characters, of names without what would steer a terminal."""
    result: Line = []
    for text, style in line:
        text = one_line(f"|{text}|")[1:-1] if text.strip() and not text.isprintable() else text
        result.append((text if len(text) <= width else text[: max(width - 1, 0)] + "…", style))
        width -= len(result[-1][0])
        if width <= 0:
            break
    return result


# ---------------------------------------------------------------------------------------------- what it is and took


def _head(summary: Figures, units: Units) -> Iterator[Line]:
    job = f"  {summary.ranks} ranks: means of wall time, sums of kernels" if summary.ranks else ""
    file, device = summary.file.rpartition("/")[2] + job, _devices(summary.devices, units)
    if len(file) + len(device) + 2 <= units.width:
        yield [(file, "bold"), (" " * (units.width - len(file) - len(device)), ""), (device, "")]
    else:
        yield [(file, "bold")]
        yield [(device, "")]


def _devices(devices: Sequence[Device], units: Units) -> str:
    """`2 x NVIDIA A100  fp32 19.5, tf32 156, bf16 312 TFLOP/s, DRAM 1.56 TB/s`."""
    counts: dict[str, int] = {}
    for one in devices:
        counts[_device(one, units)] = counts.get(_device(one, units), 0) + 1
    return "; ".join(text if number == 1 else f"{number} x {text}" for text, number in counts.items())


def _device(device: Device, units: Units) -> str:
    peaks = {name: device.peaks[name] for name in _PRECISIONS if name in device.peaks}
    if "bf16" in peaks:
        peaks.pop("fp16", None)
    rates = [f"{name} {_tflops(rate)}" for name, rate in peaks.items()]
    text = f"{', '.join(rates)} TFLOP/s" if rates else ""
    dram = "" if device.dram_bytes_per_s is None else f"DRAM {units.of(device.dram_bytes_per_s, 'B/s')}"
    found = ", ".join(filter(None, (text, dram)))
    name = device.name or "a device without a name in the capture: --gpu NAME"
    return f"{name}  {found}" if found else name


def _facts(summary: Figures, units: Units) -> Iterator[Line]:
    """Steps, wall, busy share, utilisation, rates."""
    busy = f"{'GPU' if summary.on_gpu else 'CPU'} busy {_percent(summary.busy_ns, summary.wall_ns)}"
    steps = "no steps are marked" if summary.steps is None else _steps(summary.steps, units)
    yield from _flowed([steps, f"wall {units.ns(summary.wall_ns)}", busy, _utilised(summary)], units.width)
    of = summary.utilised
    if of.flops and of.flops_per_wall_s is None:
        yield [(units.of(of.flops, "FLOP"), "")]
    elif of.flops:
        rates = f"{units.of(of.flops_per_busy_s, 'FLOP/s')} while busy, {units.of(of.flops_per_wall_s, 'FLOP/s')} over wall"
        yield [(f"{units.of(of.flops, 'FLOP')}: {rates}", "")]
    if summary.steps is not None and (slow := _slowest(summary.steps, units)):
        yield [(slow, "")]


def _flowed(pieces: Sequence[str], width: int) -> Iterator[Line]:
    """Pieces one after another, on as few lines as hold them."""
    line = ""
    for piece in filter(None, pieces):
        if line and len(line) + 3 + len(piece) > width:
            yield [(line, "bold")]
            line = ""
        line += ("   " if line else "") + piece
    yield [(line, "bold")]


def _percent(part: float | None, whole: float | None) -> str:
    return "na" if part is None or not whole else f"{100 * part / whole:.0f} %"


def _steps(steps: StepTimes, units: Units) -> str:
    if steps.count == 1:
        return f"1 step of {units.ns(steps.median_ns)}"
    return f"{steps.count} steps, {units.ns(steps.median_ns)} each ({units.ns(steps.min_ns)} to {units.ns(steps.max_ns)})"


def _slowest(steps: StepTimes, units: Units) -> str:
    slow = steps.slowest
    if slow is None:
        return ""
    text = f"slowest: step {slow.index + 1} of {steps.count}, {units.ns(slow.time_ns)}"
    if slow.part is None:
        return f"{text}; no one part of it explains why"
    kind, name = slow.part
    what = f"idle by {_words(name)}" if kind == "idle" else name
    of = f" ({slow.op})" if slow.op else ""
    return f"{text}: {what} {units.ns(slow.more_ns)} longer than in the median step{of}"


def _utilised(summary: Figures) -> str:
    of = summary.utilised
    if of.mfu is None and of.mfu_min is None:
        return "MFU na"
    precisions = " and ".join([name for name, share in of.precisions.items() if share >= _NAMED][:2])
    rate = "" if of.peak_flops_per_s is None else f" {_tflops(of.peak_flops_per_s)} TFLOP/s"
    return f"MFU {utilised(of.mfu, of.mfu_min)} of {precisions}{rate}, HFU {utilised(of.hfu, of.hfu_min)}"


def utilised(share: float | None, least: float | None) -> str:
    """A utilisation, or what it is at least."""
    value = least if share is None else share
    if value is None:
        return "na"
    return ("at least " if share is None else "") + (
        f"{100 * value:.0f} %" if value >= 0.095 or not value else f"{100 * value:.2g} %"
    )


def of_wall(summary: Figures, ns: int | None) -> str:
    """A share of the wall time."""
    return _percent(ns, summary.wall_ns)


def _tflops(rate: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{rate / 1e12:.3g}" if rate < 999.5e12 else f"{rate / 1e12:.0f}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _wall(summary: Figures, units: Units) -> Iterator[Line]:
    """The bar of the wall time, and what it is made of."""
    if summary.wall_ns is None or summary.busy_ns is None:
        return
    if units.bars and summary.wall_ns:
        yield [("wall  ", ""), *_bar_of(summary, summary.wall_ns, units.width - 6)]
    for name, whole, parts in (
        ("busy", summary.busy_ns, summary.busy),
        ("idle", sum(summary.idle_ns.values()), summary.idle_ns),
    ):
        listed = _listed(parts, summary.wall_ns, units)
        share = _percent(whole, summary.wall_ns)
        texts = textwrap.wrap(f"{units.ns(whole):>8} {share:>5}   {listed}", units.width - 6, subsequent_indent=" " * 17)
        for number, text in enumerate(texts):
            yield [(name if not number else " " * 4, "cyan" if name == "busy" else "yellow"), ("  ", ""), (text, "")]
    late = next((one.evidence for one in summary.advice if one.kind == "straggler" and summary.ranks), "")
    for number, text in enumerate(textwrap.wrap(one_line(late), units.width - 6)):  # of a job, however little that alone saves
        yield [("late" if not number else " " * 4, "yellow"), ("  ", ""), (text, "")]


def _bar_of(summary: Figures, wall_ns: int, width: int) -> Line:
    """Busy parts, then idle, each as long as its share."""
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
    texts = [f"{_words(name)} {units.ns(ns)}" for ns, name in shown]
    return ", ".join(texts + [f"other {units.ns(sum(ns for ns, _ in rest))}"] * bool(rest))


# ---------------------------------------------------------------------------------------------- advice, knowledge, notes


def _advice(summary: Figures, units: Units) -> Iterator[Line]:
    """The first three, each with what to do; without any the reason."""
    saving = any(one.saves_ns is not None for one in summary.advice)
    head, right = "What to do first", "saves at most" if saving else ""
    yield [(head, "bold"), (f"{right:>{units.width - len(head)}}", "dim")]
    if not saving and summary.notes and not any(one.kind == "warmup" for one in summary.advice):
        yield from _wrapped(summary.notes[0], units.width, "   ", 2)
    for number, one in enumerate(summary.advice[:_ADVICE], 1):
        yield from _one_advice(number, one, units)
    if len(summary.advice) > _ADVICE:
        kinds = ", ".join(_words(one.kind) for one in summary.advice[_ADVICE:])
        yield [(f"   also: {kinds} (--table advice)", "dim")]


def _one_advice(number: int, one: Advice, units: Units) -> Iterator[Line]:
    saves = "" if one.saves_ns is None else units.ns(one.saves_ns)
    title, indent = f"{_words(one.kind).capitalize()}: ", 3
    room = max(units.width - indent - 10, 20)
    first, *rest = _brief(title + one.evidence, room, 2, units.width - indent - room)
    text = first[len(title) :] if first.startswith(title) else ""
    yield [
        (f"{number:<{indent}}", ""),
        (first[: len(first) - len(text)], "bold"),
        (f"{text:<{room - len(title)}}", ""),
        (f"{saves:>10}", "green"),
    ]
    for text in rest:
        yield [(" " * indent + text, "")]
    for text in _brief(one.do, units.width - indent, 2):
        yield [(" " * indent, ""), (text, "cyan")]


def _brief(text: str, width: int, most: int, more: int = 0) -> list[str]:
    """A text in at most so many lines. more: by so much all but the first are longer."""
    first, *rest = textwrap.wrap(one_line(text), width) or [""]
    left = " ".join(rest)
    return [first, *textwrap.wrap(left, width + more, max_lines=most - 1, placeholder=" …")] if left and most > 1 else [first]


def _wrapped(text: str, width: int, indent: str, most: int, style: str = "") -> Iterator[Line]:
    for at, part in enumerate(_brief(text, width - len(indent), most)):
        yield [(indent if at or not style else "", ""), (part, style)]


def _known(summary: Figures, units: Units, most: int) -> Iterator[Line]:
    """How much is known, what would make more known, and notes."""
    if summary.known is not None:
        of = summary.known
        shares = ((of.op, "op"), (of.shapes, "shapes"), (of.flops, "FLOPs"), (of.bytes, "bytes"))
        texts = [f"{name} {known_share(share)}" for share, name in shares]
        yield [(f"Known of {'kernel' if summary.on_gpu else 'op'} time: {', '.join(texts)}", "")]
    first = not any(one.saves_ns is not None for one in summary.advice) and bool(summary.notes)
    notes = [f"Note: {note}" for note in summary.notes[first:]]
    for note in notes[: most if len(notes) <= most else most - 1]:
        yield from _wrapped(note, units.width, "      ", 2, "dim")
    if len(notes) > most:
        yield [(f"{len(notes) - most + 1} more notes: --format json", "dim")]


def known_share(share: float) -> str:
    """Never 100 % where something is not known."""
    return f"{int(1000 * share) / 10:.1f} %" if 0.99 <= share < 1 else f"{100 * share:.0f} %"
