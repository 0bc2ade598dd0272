"""Sections and comparisons -> one HTML file that needs no other, under a policy that lets nothing else run or load.

The text is made here by the template, the charts in the browser by the one script, from JSON. Figures are given, none computed.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pyprof import __version__
from pyprof.help import page as help_page
from pyprof.report.advice.base import Advice, Place
from pyprof.report.page.cells import text_of
from pyprof.report.page.data import Compared, Section
from pyprof.report.summary.model import Device, Figures
from pyprof.report.summary.screen import utilised
from pyprof.tables.units import human

_ASSETS = Path(__file__).with_name("assets")
_SCRIPTS = ("d3.js", "base.js", "cells.js", "icicle.js", "roofline.js", "timeline.js", "tables.js", "main.js")
_LEAST = 0.005  # of the wall time: a part with less is not listed beside the bar
_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
_WIDTH = 1000  # of the bar, in units of its own


def render(sections: Sequence[Section], comparisons: Sequence[Compared] = ()) -> str:
    """The page."""
    script, style = _asset_script(), _asset("page.css")
    names = _names([section.summary.file for section in sections])
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    data = [{**section.charts, "name": name} for section, name in zip(sections, names, strict=True)]
    return environment.get_template("page.html").render(
        policy=policy(script, style), title=", ".join(names[:3]) + ("" if len(names) < 4 else ", ..."),
        style=Markup(style), script=Markup(script), data=Markup(embedded(data)), version=__version__,
        sections=[_section(section, name) for section, name in zip(sections, names, strict=True)],
        compared=[_compared(one) for one in comparisons], beside=_beside(sections), conventions=_conventions(),
    )  # fmt: skip


def policy(script: str, style: str) -> str:
    """The Content-Security-Policy: this script, this style, nothing else from anywhere."""
    return f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(data: object) -> str:
    """JSON that can stand in a script element: no text in it ends that element or begins a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _asset_script() -> str:
    return "".join(_asset(name) for name in _SCRIPTS)


# ---------------------------------------------------------------------------------------------- texts of a section


def _names(files: Sequence[str]) -> list[str]:
    """What sections are called: the names of the files, with as much of their folders as tells them apart."""
    parts = [re.split(r"[/\\]", file.rstrip("/")) for file in files]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return [text_of(name) for name in names]


def _section(section: Section, name: str) -> dict[str, Any]:
    of = section.summary
    saving = [one for one in of.advice if one.saves_ns is not None]
    known = [] if of.known is None else [(of.known.op, "op"), (of.known.shapes, "shapes"), (of.known.flops, "FLOPs"),
                                         (of.known.bytes, "bytes")]  # fmt: skip
    return {
        "name": name, "summary": of, "sentences": section.sentences, "devices": _devices(of.devices),
        "figures": [*_figures(of)], "wall": [*_wall(of)], "advice": [_advice(one, of) for one in of.advice],
        "nothing": text_of(of.notes[0]) if of.notes and not saving else "Nothing to advise.",
        "known": [(name, _known_share(share)) for share, name in known],
        "unknown": [(reason, f"{count:,}", human(ns, "ns")) for reason, count, ns in section.unknown],
        "notes": [text_of(note) for note in (of.notes if of.advice else of.notes[1:])],
    }  # fmt: skip


def _devices(devices: Sequence[Device]) -> list[str]:
    counts: dict[str, int] = {}
    for one in devices:
        text = text_of(_device(one))
        counts[text] = counts.get(text, 0) + 1
    return [text if number == 1 else f"{number} x {text}" for text, number in counts.items()]


def _device(one: Device) -> str:
    """`NVIDIA A100: fp32 19.5 TFLOP/s, tf32 156 TFLOP/s, DRAM 1.56 TB/s`."""
    rates = [f"{name} {human(one.peaks[name], 'FLOP/s')}" for name in _PRECISIONS if name in one.peaks]
    rates += [] if one.dram_bytes_per_s is None else [f"DRAM {human(one.dram_bytes_per_s, 'B/s')}"]
    name = one.name or "a device without a name in the capture (--gpu NAME)"
    return f"{name}: {', '.join(rates)}" if rates else name


def _known_share(share: float) -> str:
    """Never 100 % where something is not known."""
    return f"{int(1000 * share) / 10:.1f} %" if 0.99 <= share < 1 else f"{100 * share:.0f} %"


def _figures(of: Figures) -> Iterator[tuple[str, str, str]]:
    """Name, value and what it is held against."""
    if of.steps is not None:
        several = f"median of {of.steps.count}: {human(of.steps.min_ns, 'ns')} to {human(of.steps.max_ns, 'ns')}"
        yield "Step", human(of.steps.median_ns, "ns"), several if of.steps.count > 1 else "one step"
    yield "Wall time", human(of.wall_ns, "ns"), "of the window" if of.steps else "no steps are marked"
    busy = f"{100 * of.busy_ns / of.wall_ns:.0f} %" if of.busy_ns is not None and of.wall_ns else "na"
    yield f"{'GPU' if of.on_gpu else 'CPU'} busy", busy, human(of.busy_ns, "ns")
    used = of.utilised
    peak = "no products are known" if used.peak_flops_per_s is None else f"of {human(used.peak_flops_per_s, 'FLOP/s')}"
    yield "MFU", utilised(used.mfu, used.mfu_min), peak
    if used.hfu != used.mfu or used.hfu_min != used.mfu_min:
        yield "HFU", utilised(used.hfu, used.hfu_min), "with what is computed again"
    rate = "" if used.flops_per_busy_s is None else f"{human(used.flops_per_busy_s, 'FLOP/s')} while busy"
    yield "FLOPs", human(used.flops, "FLOP"), rate
    yield ("Kernels" if of.on_gpu else "Ops"), f"{of.kernels:,}", human(of.kernel_ns, "ns")


def _wall(of: Figures) -> Iterator[dict[str, object]]:
    """The parts of the bar: busy, then idle by cause, the longest first."""
    if not of.wall_ns:
        return
    parts = [(ns, name, "") for name, ns in of.busy.items() if ns]
    parts += sorted(((ns, name, "idle: ") for name, ns in of.idle_ns.items() if ns), reverse=True)
    at = 0.0
    for ns, name, before in parts:
        share = ns / of.wall_ns
        text = f"{before}{name.replace('_', ' ')} {human(ns, 'ns')}, {100 * share:.0f} %"
        kind = f"cause-{name}" if before else f"busy-{name}"
        place = {"x": f"{at:.2f}", "width": f"{share * _WIDTH:.2f}"}
        yield {"kind": kind, "text": text, "listed": share >= _LEAST or not at, **place}
        at += share * _WIDTH


def _advice(one: Advice, of: Figures) -> dict[str, object]:
    share = f", {100 * one.saves_ns / of.wall_ns:.0f} %" if one.saves_ns is not None and of.wall_ns else ""
    return {
        "kind": one.kind.replace("_", " ").capitalize(), "evidence": text_of(one.evidence), "do": one.do, "share": share,
        "saves": None if one.saves_ns is None else human(one.saves_ns, "ns"), "places": [*map(_place, one.places)],
    }  # fmt: skip


def _place(one: Place) -> str:
    """`3 x linear (M=512) in blocks.0, net.py:12: 1.20 ms`."""
    shape, layer = f" ({one.shape})" if one.shape else "", f" in {one.layer}" if one.layer else ""
    src = f", {one.src}" if one.src else ""
    return text_of(f"{one.number} x {one.op or 'kernels without an op'}{shape}{layer}{src}: {human(one.time_ns, 'ns')}")


def _beside(sections: Sequence[Section]) -> list[tuple[str, list[str]]]:
    """The same figures of all sections in the same rows."""
    rows: dict[str, dict[int, str]] = {}
    for at, of in enumerate(section.summary for section in sections):
        for name, value, _ in _figures(of):
            rows.setdefault(name, {})[at] = value
        for before, parts in (("busy: ", of.busy), ("idle: ", of.idle_ns), ("kernels: ", of.phases)):
            for name, ns in parts.items():
                if ns:
                    rows.setdefault(f"{before}{name.replace('_', ' ')}", {})[at] = human(ns, "ns")
    return [(name, [cells.get(at, "-") for at in range(len(sections))]) for name, cells in rows.items() if len(sections) > 1]


def _compared(one: Compared) -> Mapping[str, object]:
    rows = [
        {"op": op, "shape": shape, "layer": layer, "before": human(before, "ns"), "after": human(after, "ns"),
         "change": _signed(after - before), "what": what}
        for op, shape, layer, before, after, what in one.rows
    ]  # fmt: skip
    left = f"{one.left[0]} more rows, together {_signed(one.left[1])}: pyprof diff shows all" if one.left[0] else ""
    return {"names": [*map(text_of, _names(one.names))], "lines": one.lines, "rows": rows, "left": left}


def _signed(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{human(abs(ns), 'ns')}"


def _conventions() -> Markup:
    """The pages of `pyprof help` that say it."""
    items = re.split(r"\n(?=- )", help_page("conventions").partition("\n")[2].strip())
    texts = Markup("").join(Markup("<li>{}</li>").format(_marked(item.removeprefix("- "))) for item in items)
    terms = help_page("terms").partition("\n")[2].strip()
    return Markup("<ul>{}</ul><details><summary>The words of this page</summary><pre>{}</pre></details>").format(texts, terms)


def _marked(text: str) -> Markup:
    """One paragraph of Markdown with code in it."""
    parts = " ".join(text.split()).split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))
