"""A trace of Triton's Proton, written by its instrumented kernels -> readings with corrected times.

Proton writes cycles as if an SM counted one each ns ("Frequency (MHz)": 1000, whatever ran). The times here are the cycles of
each CTA scaled so that its first to its last cycle take from its "Init Time (ns)" to its "Post Final Time (ns)", which includes
that Proton saves its buffer: a time is an upper bound. Traces from before these two were recorded (2025-12) hold cycles only;
in the oldest, kernels stand 10,000,000 cycles apart. Only cycles of one CTA compare; CTAs are placed by their Init Time.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import msgspec
import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.sorting import places_in_runs
from pyprof.columns.types import Floats, Ints
from pyprof.errors import InputError, NotACapture
from pyprof.timers.readings import Lane, Readings, short

_HINT = 'record it: proton.start(name, backend="instrumentation", data="trace"); its counters: pyprof counters FILE'
_GAP_CYCLES = 10_000_000
_PLACE = re.compile(r"(?P<kernel>.*) (?P<cta>Core\d+ CTA\d+)\b")
_FIRST_LINE = " (line 0)"
_Value = TypeVar("_Value", bound=Hashable)
_Ns: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Us: TypeAlias = Annotated[float, msgspec.Meta(ge=-9e15, le=9e15)]


class Arguments(msgspec.Struct):
    """Times of the event's CTA, in ns of globaltimer; -1 is unknown."""

    init_ns: _Ns = msgspec.field(default=-1, name="Init Time (ns)")
    end_ns: _Ns = msgspec.field(default=-1, name="Post Final Time (ns)")


class ProtonEvent(msgspec.Struct):
    """One event; a scope of an instrumented kernel where it has the place of one."""

    name: str = ""
    cat: str = ""
    ph: str = ""
    pid: str | int = ""
    tid: str | int = ""
    ts: _Us = 0.0
    dur: _Us = 0.0
    args: Arguments = msgspec.field(default_factory=Arguments)


class ProtonTrace(msgspec.Struct):
    """The part of the file that is read."""

    events: list[ProtonEvent] = msgspec.field(name="traceEvents")


def read(path: Path, hz: float | None = None) -> Readings:
    """The readings of a trace. hz: cycles a second, where they are known better than by the scale of each CTA.

    Raises InputError for another file.
    """
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        found = msgspec.json.decode(content, type=ProtonTrace).events
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", _HINT) from error
    except (EOFError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotACapture(f"{path}: neither block timers (.npz) nor a trace of Proton: {error}", _HINT) from error
    places = [_PLACE.match(str(event.pid)) if event.ph == "X" and event.cat != "flow" else None for event in found]
    scopes = [(event, place) for event, place in zip(found, places, strict=True) if place]
    if not scopes:
        raise NotACapture(f"{path}: no event of an instrumented kernel", _HINT)
    return _readings([event for event, _ in scopes], [(place["kernel"], place["cta"]) for _, place in scopes], hz)


def _readings(events: list[ProtonEvent], places: list[tuple[str, str]], hz: float | None) -> Readings:
    """The readings of scopes. places: kernel and CTA of each event."""
    names, block = _coded([(kernel, event.name) for event, (kernel, _) in zip(events, places, strict=True)])
    threads = [str(event.tid).removesuffix(_FIRST_LINE) for event in events]
    lanes, lane = _coded([Lane(f"{kernel} {cta}", thread) for (kernel, cta), thread in zip(places, threads, strict=True)])
    begin, ticks = (
        np.rint(np.array([getattr(event, key) for event in events]) * 1000).astype(np.int64) for key in ("ts", "dur")
    )
    init, end = _times(events)
    _, cta = _coded([event.pid for event in events])
    dated = init >= 0
    # One launch on one CTA: the same begin in ns, and in the oldest traces the same gap.
    groups, _, launch = distinct_rows(cta, np.where(dated, init, begin // _GAP_CYCLES), dated)
    count = groups.shape[1]
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, launch, begin)
    np.maximum.at(last, launch, begin + ticks)
    lived_ns = np.zeros(count, np.int64)
    np.maximum.at(lived_ns, launch, end - init)
    cycles = last - first
    known = (cycles > 0) & (lived_ns > 0) & (groups[2] == 1)
    ns_per_cycle = np.where(known, lived_ns / np.maximum(cycles, 1), np.nan) if hz is None else np.full(count, 1e9 / hz)
    ns = ticks * ns_per_cycle[launch]
    start = (
        np.where(dated, init - init[dated].min(initial=np.iinfo(np.int64).max), np.nan)
        + (begin - first[launch]) * ns_per_cycle[launch]
    )
    order = np.lexsort((begin, lane))
    flags: list[list[str]] = [["removed?"] if is_short else [] for is_short in short(block, ticks, len(names), None).tolist()]
    readings = Readings(
        block, _occurrence(block, lane, begin), lane, ticks, ns, start, names, lanes, flags,
        _whole(names, block, launch, threads, cycles), bool(dated.all()), _notes(ns_per_cycle, hz),
    )  # fmt: skip
    return readings._replace(
        **{name: getattr(readings, name)[order] for name in ("block", "iteration", "lane", "ticks", "ns", "start_ns")}
    )


def _coded(values: Sequence[_Value]) -> tuple[list[_Value], Ints]:
    pool = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return list(pool), np.array([pool[value] for value in values], np.int64)


def _times(events: Sequence[ProtonEvent]) -> tuple[Ints, Ints]:
    """Init and Post Final Time of each event, -1 unknown; asynchronous events have those of the scope before them."""
    latest: dict[str | int, Arguments] = {}
    found = []
    for event in events:
        if event.args.init_ns >= 0:
            latest[event.pid] = event.args
        found.append(latest.get(event.pid, event.args))
    return tuple(np.array([getattr(times, key) for times in found], np.int64) for key in ("init_ns", "end_ns"))  # type: ignore[return-value]


def _occurrence(block: Ints, lane: Ints, begin: Ints) -> Ints:
    """How many readings of the same block and lane begin before each."""
    order = np.lexsort((begin, block, lane))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = places_in_runs((np.diff(lane[order], prepend=-1) | np.diff(block[order], prepend=-1)) != 0)
    return occurrence


def _whole(names: Sequence[tuple[str, str]], block: Ints, launch: Ints, threads: Sequence[str], cycles: Ints) -> Floats:
    """For each block the cycles that all warps of its kernel lived, of each launch from its first event to its last."""
    kernels, kernel = _coded([name for name, _ in names])
    _, warp = _coded([thread.partition(" (line")[0] for thread in threads])
    distinct = distinct_rows(kernel[block], launch, warp).columns
    lived: Floats = np.bincount(distinct[0], cycles[distinct[1]], len(kernels)).astype(np.float64)
    return lived[kernel]


def _notes(ns_per_cycle: Floats, hz: float | None) -> list[str]:
    notes = ["share is of the cycles of all warps from the first event of their CTA to its last"]
    known = ns_per_cycle[~np.isnan(ns_per_cycle)]
    if hz is None and len(known):
        least, median, most = (1e3 / np.quantile(known, at) for at in (1, 0.5, 0))
        notes.append(
            f"times are upper bounds: each CTA's cycles are scaled to its lifetime, {median:.0f} MHz in the median "
            f"({least:.0f} to {most:.0f}); --hz sets the clock's rate instead"
        )
    if len(known) < len(ns_per_cycle):
        notes.append(
            f"{len(ns_per_cycle) - len(known)} of {len(ns_per_cycle)} CTAs have cycles only: --hz sets the clock's rate"
        )
    return notes
