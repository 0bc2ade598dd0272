"""A summary -> the words that pages show of it: devices, figures and what they are held against, the wall time, advice.

Names of captures are one printable line; escaping is the work of whoever writes them into a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyprof.report.advice.base import Advice, Place
from pyprof.report.summary.model import Device, Figures
from pyprof.report.summary.notes import NOTHING
from pyprof.report.summary.screen import known_share, utilised
from pyprof.report.time.causes import MEANINGS
from pyprof.tables.names import text_of
from pyprof.tables.units import human

_WIDTH = 1000  # of the bar of the wall time, in units of its own
_LEAST = 0.005  # of the wall time: a part with less is not listed beside the bar
_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")


def described(of: Figures) -> dict[str, Any]:
    """What a template shows: devices, figures, the bar of the wall time, advice, why none saves time, causes of idle time and
    what they mean, what is known, notes."""
    nothing = next((note for note in of.notes if note.startswith(NOTHING)), "")
    known = [] if of.known is None else [(of.known.op, "op"), (of.known.shapes, "shapes"), (of.known.flops, "FLOPs"),
                                         (of.known.bytes, "bytes")]  # fmt: skip
    return {
        "devices": _devices(of.devices), "figures": [*figures(of)], "wall": [*_wall(of)],
        "advice": [_advice(one, of) for one in of.advice],
        "nothing": text_of(nothing), "causes": [(name, MEANINGS[name]) for name, ns in of.idle_ns.items() if ns],
        "known": [(name, known_share(share)) for share, name in known],
        "notes": [text_of(note) for note in of.notes if note != nothing],
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
    name = one.name or "a device whose name the capture does not hold (--gpu NAME gives its peaks)"
    return f"{name}: {', '.join(rates)}" if rates else name


def figures(of: Figures) -> Iterator[tuple[str, str, str]]:
    """Of each figure its name, its value and what it is held against."""
    if of.steps is not None:
        several = f"median of {of.steps.count}: {human(of.steps.min_ns, 'ns')} to {human(of.steps.max_ns, 'ns')}"
        yield "Step", human(of.steps.median_ns, "ns"), several if of.steps.count > 1 else "one step"
    yield "Wall time", human(of.wall_ns, "ns"), "of the window" if of.steps else "no steps are marked"
    busy = f"{100 * of.busy_ns / of.wall_ns:.0f} %" if of.busy_ns is not None and of.wall_ns else "na"
    count = len(of.devices)
    mean = f", mean of {count} devices" if count > 1 else ""
    yield f"{'GPU' if of.on_gpu else 'CPU'} busy", busy, f"{human(of.busy_ns, 'ns')}{mean}"
    for one in of.step_phases:
        if one.tokens_per_s is not None:
            steps = f"{one.steps} step" + "s" * (one.steps != 1)
            share = "" if one.peak is None else f", {100 * one.peak:.0f} % of the roofline"
            yield (
                f"Tokens/s, {one.phase or 'phase unknown'}",
                f"{one.tokens_per_s:,.0f}",
                f"{steps} in {human(one.time_ns, 'ns')}{share}",
            )
    used = of.utilised
    known = used.peak_flops_per_s is not None
    peak = f"model FLOPs over {human(used.peak_flops_per_s, 'FLOP/s')} of peak" if known else "no matrix product is known"
    yield "MFU", utilised(used.mfu, used.mfu_min), peak
    if used.hfu != used.mfu or used.hfu_min != used.mfu_min:
        yield "HFU", utilised(used.hfu, used.hfu_min), "with what is computed again"
    rate = "none are known" if used.flops_per_busy_s is None else f"{human(used.flops_per_busy_s, 'FLOP/s')} while busy"
    yield "FLOPs", human(used.flops, "FLOP"), rate
    yield (
        ("Kernels" if of.on_gpu else "Ops"),
        f"{of.kernels:,}",
        f"{human(of.kernel_ns, 'ns')} of all devices" if count > 1 else human(of.kernel_ns, "ns"),
    )


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
        "kind": one.kind.replace("_", " ").capitalize().replace("Gemm", "GEMM"), "evidence": text_of(one.evidence),
        "do": one.do, "share": share,
        "saves": None if one.saves_ns is None else human(one.saves_ns, "ns"), "places": [*map(_place, one.places)],
    }  # fmt: skip


def _place(one: Place) -> str:
    """`3 x linear (M=512) in blocks.0, net.py:12: 1.20 ms`."""
    shape, layer = f" ({one.shape})" if one.shape else "", f" in {one.layer}" if one.layer else ""
    src = f", {one.src}" if one.src else ""
    return text_of(f"{one.number} x {one.op or 'kernels without an op'}{shape}{layer}{src}: {human(one.time_ns, 'ns')}")
