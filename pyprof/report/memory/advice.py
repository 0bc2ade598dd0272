"""Advice that lowers the peak or gives memory back, with the bytes of each; and why a request did not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Bools
from pyprof.model.allocations import AllocationSite
from pyprof.report.advice.kinds import SCORES
from pyprof.report.memory.device import DeviceMemory
from pyprof.report.memory.kinds import KINDS
from pyprof.report.memory.pieces import OutOfMemory
from pyprof.tables.units import human, mib

_LEAST = 0.01  # of the peak, or of what the allocator holds: less is not worth a line
_OVERLOAD = re.compile(r"_(?:[A-Z]\w*|self|int|out|dim)$")
_LOSSES = frozenset("log_softmax cross_entropy cross_entropy_loss log_softmax_backward_data".split())
_EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_GROWING_STEPS = 3


class MemoryAdvice(NamedTuple):
    """One piece of advice. bytes: what it can free at most; evidence: what was seen; do: what to write."""

    kind: str
    bytes: int
    evidence: str
    do: str


def advice_of(device: DeviceMemory) -> list[MemoryAdvice]:
    """Advice on one device, what frees most first."""
    peak = device.replay.peak
    total = next((one for one in device.replay.at(peak) if one is not None), 0) if len(device.trace) else 0
    found = [*_at_peak(device), *_growth(device)] if total and device.trace.addressed else []
    found = [one for one in found if one.bytes >= _LEAST * total]
    return sorted([*found, *_cached(device)], key=lambda one: -one.bytes)


def why(oom: OutOfMemory, settings: dict[str, str]) -> tuple[str, str]:
    """Why a request did not fit, and what to do."""
    asked = mib(oom.asked_bytes)
    if oom.usable_free_bytes is None or oom.largest_free_bytes is None:
        return f"{asked} were asked for", "record a snapshot, which lists what was free"
    largest = mib(oom.largest_free_bytes)
    held = f"{mib(oom.usable_free_bytes)} were cached and free for it in {oom.pieces} pieces, the largest {largest}"
    if oom.usable_free_bytes >= oom.asked_bytes > oom.largest_free_bytes:
        expandable = str(settings.get("expandable_segments", "")).lower() in ("true", "1")
        do = "allocate the large tensors first, or in one size" if expandable else _EXPANDABLE
        return f"{asked} were asked for; {held}: fragmented", do
    if (oom.private_free_bytes or 0) >= oom.asked_bytes:
        return f"{asked} were asked for; {mib(oom.private_free_bytes)} are free in private pools", "share a pool between graphs"
    if (oom.free_bytes or 0) - oom.usable_free_bytes >= oom.asked_bytes:
        other = (oom.free_bytes or 0) - oom.usable_free_bytes
        return (
            f"{asked} were asked for; {mib(other)} are cached for other streams or sizes",
            "torch.cuda.empty_cache() before it",
        )
    return f"{asked} were asked for; {held}: what is in use is too much", "lower the peak: pyprof memory FILE --at peak"


def _at_peak(device: DeviceMemory) -> Iterator[MemoryAdvice]:
    """Blocks in use at the peak that need not be there."""
    lives, trace, peak = device.replay.lives, device.trace, device.replay.peak
    alive = lives.alive(peak)

    def of_kind(name: str) -> Bools:
        return np.asarray(alive & (device.kind == KINDS.index(name)))

    def made_by(ops: frozenset[str]) -> Bools:
        names = (_OVERLOAD.sub("", one.op or "").strip("_") for one in trace.places)  # `mul` of `mul_Tensor`
        known = np.array([*(name in ops for name in names), False], np.bool_)
        return known[lives.place]

    def size(which: Bools) -> int:
        return int(lives.size[which].sum())

    phase = device.site(peak).phase
    activations = of_kind("activations")
    if phase != "optimizer" and activations.any():
        names, what = _most(device, activations)
        do = "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False): their forward runs twice"
        evidence = f"{int(activations.sum()):,} activations wait for backward; most are of {what} {names}"
        layers = {trace.places[place].layer for place in lives.place[activations].tolist()} & trace.forward_ns.keys()
        if layers:
            again = sum(trace.forward_ns[layer] for layer in layers if layer is not None)
            evidence += f"; to compute them again takes {human(again, 'ns')} a step"
        yield MemoryAdvice("checkpoint", size(activations), evidence, do)
    scores = _sized_as(device, made_by(frozenset(["softmax"]))) & alive & made_by(SCORES)
    if scores.any():
        names, what = _most(device, scores)
        do = "torch.nn.functional.scaled_dot_product_attention, which never stores them"
        yield MemoryAdvice("fused_attention", size(scores), f"scores of attention, at {what} {names}", do)
    logits = _sized_as(device, made_by(_LOSSES)) & alive & (activations | made_by(_LOSSES))
    if logits.any():
        names, what = _most(device, logits)
        do = "compute the loss in chunks of tokens, or fused with the last linear (cut cross entropy)"
        yield MemoryAdvice("chunked_loss", size(logits), f"logits and what the loss makes of them, at {what} {names}", do)
    gradients = of_kind("gradients")
    if phase == "forward" and gradients.any():
        do = "optimizer.zero_grad(set_to_none=True) before the forward pass"
        yield MemoryAdvice("set_to_none", size(gradients), "gradients of the step before are kept during forward", do)
    state = of_kind("optimizer state")
    if state.any():
        evidence = f"optimizer state, {int(state.sum()):,} blocks"
        yield MemoryAdvice("optimizer_state", size(state) // 2, evidence, "an 8-bit or sharded optimizer halves it at least")
    born = np.array([*(one.phase == "optimizer" for one in trace.places), False], np.bool_)
    temporaries = of_kind("temporaries") & born[lives.place]
    if phase == "optimizer" and temporaries.any():
        names, what = _most(device, temporaries)
        evidence = f"temporaries of the optimizer's step make the peak, at {what} {names}"
        do = "fused=True of torch's optimizers; in one of your own update in place (addcdiv_, lerp_)"
        yield MemoryAdvice("fused_optimizer", size(temporaries), evidence, do)


def _sized_as(device: DeviceMemory, some: Bools) -> Bools:
    """Blocks of a size that some of these have as well."""
    sizes = distinct_values(device.replay.lives.size[some])
    return np.isin(device.replay.lives.size, sizes[sizes > 0])


def _most(device: DeviceMemory, some: Bools) -> tuple[str, str]:
    """Names of up to two layers, else lines, else ops with most bytes of some blocks; and which of these they are."""
    lives, rows = device.replay.lives, np.flatnonzero(some)
    ways: tuple[tuple[str, Callable[[AllocationSite], str | None]], ...] = (
        ("layer", lambda site: site.layer), ("line", lambda site: site.line), ("op", lambda site: site.op),
    )  # fmt: skip
    for what, name_of in ways:
        sums: dict[str, int] = {}
        for place, size in zip(lives.place[rows].tolist(), lives.size[rows].tolist(), strict=True):
            name = name_of(device.trace.places[place]) if place >= 0 else None
            if name is not None:
                sums[name] = sums.get(name, 0) + size
        if sums:
            first = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:2]
            more = f" and {len(sums) - 2} more" if len(sums) > 2 else ""
            return ", ".join(f"{short(name)} ({mib(size)})" for name, size in first) + more, what
    return "", "unknown places"


def short(name: str) -> str:
    """A file with its folder, and the line; the last two parts of a module's path."""
    return "/".join(name.split("/")[-2:]) if "/" in name else ".".join(name.split(".")[-2:]) if ":" not in name else name


def _growth(device: DeviceMemory) -> Iterator[MemoryAdvice]:
    """Memory that every step but the first leaves behind."""
    steps = device.steps[1:]
    if len(steps) >= _GROWING_STEPS and all(one.stayed_bytes > 0 for one in steps):
        last = steps[-1]
        where = f", most from {short(last.stayed_line)}" if last.stayed_line else ""
        mean = sum(one.stayed_bytes for one in steps) // len(steps)
        evidence = f"every step leaves {mib(mean)} behind{where}"
        yield MemoryAdvice("leak", sum(one.stayed_bytes for one in steps), evidence, "drop it, or keep loss.item(), not loss")


def _cached(device: DeviceMemory) -> Iterator[MemoryAdvice]:
    """Memory that the allocator holds and nothing uses at the end."""
    end = device.end
    reserved, whole, pinned = (end[key] or 0 for key in ("reserved_bytes", "whole_segments_free_bytes", "pinned_free_bytes"))
    if whole >= _LEAST * reserved and whole:
        yield MemoryAdvice(
            "empty_cache", whole, "wholly free segments are kept at the end", "torch.cuda.empty_cache() gives them back"
        )
    if pinned >= _LEAST * reserved and pinned and str(device.trace.settings.get("expandable_segments")) not in ("True", "1"):
        evidence = "free pieces lie beside live blocks at the end (fragmentation)"
        yield MemoryAdvice("expandable_segments", pinned, evidence, _EXPANDABLE)
