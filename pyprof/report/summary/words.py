"""A summary -> the words that pages show of it, its HTML in a notebook and its Markdown: figures, the wall time, advice.

Names of captures are one printable line; whoever writes them into a page escapes them.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pyprof.report.advice.base import Advice, differs_alone
from pyprof.report.page.colours import colours
from pyprof.report.run_steps import RunSteps, sentences
from pyprof.report.summary.model import Figures
from pyprof.report.summary.notes import NOTHING
from pyprof.report.summary.styled import at_least, known_share, percent, utilised
from pyprof.report.summary.tables import TABLES
from pyprof.report.time.causes import MEANINGS
from pyprof.tables.formats import markdown_text, write_markdown
from pyprof.tables.names import text_of
from pyprof.tables.readable import readable
from pyprof.tables.rows import html
from pyprof.tables.units import human, mib

_HEIGHT = 80  # of the drawing of a run, in its units
_WIDTH = 1000  # of the bar of the wall time, in units of the drawing
_LEAST = 0.005  # of the wall time: smaller parts are not listed beside the bar
_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
_NOTEBOOK = Path(__file__).with_name("notebook.html")
_TABLES, _ROWS = ("ops", "layers", "lost"), 10  # of a notebook, and the rows that it shows of each


def notebook_html(of: Figures) -> str:
    """One HTML element without script and style sheet. All names of the capture are escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(_NOTEBOOK.read_text(encoding="utf-8"))
    tables = []
    for table in (TABLES[name](of) for name in _TABLES):
        count = len(table.rows)
        left = f" (the first {_ROWS} of {count})" if count > _ROWS else ""
        if count:
            tables.append({"title": f"{table.title}{left}", "rows": Markup(html(table.first(_ROWS), ""))})
    return template.render(name=name_of(of), on_gpu=of.on_gpu, tables=tables, colours=colours(), **described(of))


def markdown(of: Figures, human_units: bool = True, rows: int = 20) -> str:
    """GitHub's Markdown for a pull request: figures, where the time goes and the first advice; first rows of tables, folded."""
    found = described(of)
    devices = (device.partition(": ")[0] for device in found["devices"])
    lines = [f"### {markdown_text(' on '.join(filter(None, (name_of(of), ', '.join(devices)))))}", ""]
    if of.unseen is not None:
        lines += [f"**{markdown_text(of.unseen.what)}**: {markdown_text(of.unseen.do)}", ""]
    lines += [", ".join(f"{what} **{value}**" for what, value, _ in found["figures"]), ""]
    if found["wall"]:
        parts = [part["parts"] for part in found["wall"] if part["listed"]]
        cells = [("wall time", "", ""), ("---", "--:", "--:"), *parts, ("together", human(of.wall_ns, "ns"), "100 %")]
        lines += [*(f"| {' | '.join(row)} |" for row in cells), ""]
    for one in found["advice"][: of.unseen is None]:
        saves = f", saves at most {one['saves']}{one['share']}" if one["saves"] else ""
        lines += [f"**First: {one['kind'].lower()}**{saves}. {markdown_text(one['evidence'])}", ""]
        lines += [f"> {markdown_text(one['do'])}", ""]
    lines += [markdown_text(found["nothing"]), ""] if found["nothing"] else []
    for table in (make(of) for name, make in TABLES.items() if name not in ("figures", "time", "steps")):
        if count := len(table.rows):
            left = f"the first {rows} of {count}" if count > rows else str(count)
            text = io.StringIO()
            shown = table.first(rows)._replace(title="")
            write_markdown(readable(shown) if human_units else shown, text)
            lines += [f"<details><summary>{table.title} ({left})</summary>", "", text.getvalue(), "</details>"]
    known = ", ".join(f"{what} {share}" for what, share in found["known"])
    return "\n".join([*lines, "", f"Known of {'kernel' if of.on_gpu else 'op'} time: {known}" if known else ""])


def name_of(of: Figures) -> str:
    """The file's name without its folder."""
    return text_of(of.file.rstrip("/").rpartition("/")[2])


def described(of: Figures) -> dict[str, Any]:
    """The values of a template: devices, figures, the bar of the wall time, advice or why there is none, causes of idle time
    with their meanings, known shares, notes."""
    nothing = next((note for note in of.notes if note.startswith(NOTHING)), "")
    known = [] if of.known is None else [(of.known.op, "op"), (of.known.shapes, "shapes"), (of.known.flops, "FLOPs"),
                                         (of.known.bytes, "bytes")]  # fmt: skip
    devices = Counter[str]()
    for one in of.devices:  # `NVIDIA A100: fp32 19.5 TFLOP/s, tf32 156 TFLOP/s, DRAM 1.56 TB/s`
        rates = [f"{name} {human(one.peaks[name], 'FLOP/s')}" for name in _PRECISIONS if name in one.peaks]
        rates += [] if one.dram_bytes_per_s is None else [f"DRAM {human(one.dram_bytes_per_s, 'B/s')}"]
        name = one.name or "unnamed device (--gpu NAME gives its peaks)"
        devices[text_of(f"{name}: {', '.join(rates)}" if rates else name)] += 1
    return {
        "devices": [text if number == 1 else f"{number} x {text}" for text, number in devices.items()],
        "figures": [*figures(of)], "wall": [*_wall(of)], "run": None if of.run is None else _run(of.run),
        "advice": [_advice(one, of) for one in of.advice],
        "nothing": text_of(nothing), "causes": [(name, MEANINGS[name]) for name, ns in of.idle_ns.items() if ns],
        "known": [(name, known_share(share)) for share, name in known],
        "notes": [text_of(note) for note in of.notes if note != nothing],
    }  # fmt: skip


def figures(of: Figures) -> Iterator[tuple[str, str, str]]:
    """(name, value, explanation) of each figure."""
    if of.steps is not None:
        several = f"median of {of.steps.count}: {human(of.steps.min_ns, 'ns')} to {human(of.steps.max_ns, 'ns')}"
        yield "Step", human(of.steps.median_ns, "ns"), several if of.steps.count > 1 else "one step"
    if of.steps is None or of.steps.count > 1 or of.steps.median_ns != of.wall_ns:
        yield "Wall time", human(of.wall_ns, "ns"), "of the window" if of.steps else "no steps are marked"
    count = len(of.devices)
    mean = f", mean of {count} devices" if count > 1 else ""
    yield (
        f"{'GPU' if of.on_gpu or of.unseen else 'CPU'} busy",
        percent(of.busy_ns, of.wall_ns),
        f"{human(of.busy_ns, 'ns')}{mean}",
    )
    for one in of.step_phases:
        if one.tokens_per_s is not None:
            steps = f"{one.steps} step" + "s" * (one.steps != 1)
            share = "" if one.peak is None else f", {percent(one.peak)} of the roofline"
            yield (
                f"Tokens/s, {one.phase or 'phase unknown'}",
                f"{one.tokens_per_s:,.0f}",
                f"{steps} in {human(one.time_ns, 'ns')}{share}",
            )
    used = of.utilised
    known = used.peak_flops_per_s is not None
    peak = f"model FLOPs over {human(used.peak_flops_per_s, 'FLOP/s')} of peak" if known else of.without_mfu
    if (used.mfu, used.mfu_min) != (None, None) or used.flops or used.flops_min:
        yield "MFU", utilised(used.mfu, used.mfu_min), peak
    if used.hfu != used.mfu or used.hfu_min != used.mfu_min:
        yield "HFU", utilised(used.hfu, used.hfu_min), "including recomputation"
    rate = at_least(used.flops_per_busy_s, used.flops_per_busy_s_min, lambda number: human(number, "FLOP/s"))
    known = used.flops is not None or used.flops_min is not None
    text = at_least(used.flops, used.flops_min, lambda number: human(number, "FLOP"))
    yield "FLOPs", text, f"{rate} while busy" if known else "none are known"
    yield (
        ("Kernels" if of.on_gpu else "Ops"),
        f"{of.kernels:,}",
        f"{human(of.kernel_ns // of.kernels, 'ns')} each on average" if of.kernels else "",
    )


def _wall(of: Figures) -> Iterator[dict[str, object]]:
    """The parts of the bar: busy, then idle by cause, the longest cause first."""
    if not of.wall_ns:
        return
    found = [(ns, name, "") for name, ns in of.busy.items() if ns]
    found += sorted(((ns, name, "idle: ") for name, ns in of.idle_ns.items() if ns), reverse=True)
    at = 0.0
    for ns, name, before in found:
        share = ns / of.wall_ns
        parts = f"{before}{name.replace('_', ' ')}", human(ns, "ns"), percent(share)
        text = f"{parts[0]} {parts[1]}, {parts[2]}"
        kind = f"cause-{name}" if before else f"busy-{name}"
        place = {"x": f"{at:.2f}", "width": f"{share * _WIDTH:.2f}"}
        yield {"kind": kind, "text": text, "parts": parts, "listed": share >= _LEAST or not at, **place}
        at += share * _WIDTH


def _run(run: RunSteps) -> dict[str, object]:
    """The drawing of a run: parts as wide as they have steps, up to three medians high."""
    top = 3 * (run.p50_ns or max((part.p50_ns for part in run.over), default=1)) or 1
    width, parts = 1000 / max(len(run.over), 1), []
    for at, part in enumerate(run.over):
        median, most = (f"{_HEIGHT * min(ns / top, 1):.1f}" for ns in (part.p50_ns, part.max_ns))
        text = f"from step {part.step} on: median {human(part.p50_ns, 'ns')}, longest {human(part.max_ns, 'ns')}"
        place = {"x": f"{at * width:.2f}", "width": f"{width:.2f}", "median": float(median), "most": float(most)}
        parts.append({"text": text + ", recorded" * part.recorded, "recorded": part.recorded, **place})
    return {"lines": [*sentences(run)], "parts": parts, "top": human(top, "ns")}


def _advice(one: Advice, of: Figures) -> dict[str, object]:
    share = f", {percent(one.saves_ns, of.wall_ns)}" if one.saves_ns is not None and of.wall_ns else ""
    share += f", {human(alone, 'ns')} if done alone" if (alone := differs_alone(one)) is not None else ""
    share += f", and {mib(one.peak_bytes)} of the peak of memory" if one.peak_bytes else ""
    places = []
    for place in one.places:  # `3 x linear (M=512) in blocks.0, net.py:12: 1.20 ms`
        where = f" ({place.shape})" if place.shape else ""
        where += f" in {place.layer}" if place.layer else ""
        where += f", {place.src}" if place.src else ""
        text = f"{place.number} x {place.op or 'kernels without an op'}{where}: {human(place.time_ns, 'ns')}"
        places.append(text_of(text))
    return {
        "kind": one.kind.replace("_", " ").capitalize().replace("Gemm", "GEMM"), "evidence": text_of(one.evidence),
        "do": one.do, "share": share, "saves": None if one.saves_ns is None else human(one.saves_ns, "ns"), "places": places,
    }  # fmt: skip
