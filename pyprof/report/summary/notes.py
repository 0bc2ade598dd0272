"""An overview and its advice -> notes on the capture itself, the most important first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from pyprof.columns.distinct import among, distinct_rows, one_of
from pyprof.columns.intervals import summed
from pyprof.columns.types import Ints
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.prof.roofline import BOUNDS, COMPUTE, L2, OVER
from pyprof.prof.sums import is_enough
from pyprof.report.advice.base import LEAST_SHARE, Advice
from pyprof.report.advice.base import kernels as kernels_of
from pyprof.report.advice.host_code import described
from pyprof.report.advice.host_copy import uploaded
from pyprof.report.summary.breakdown import Kernels
from pyprof.report.summary.model import ALONE, Known
from pyprof.report.summary.styled import percent
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.tables.units import human

_LEAST_NS = 1_000_000  # time outside of the window that deserves a line
_MUCH, _LITTLE = 0.5, 0.5  # shares of the time: in CUDA graphs; of kernels with a known op
NOTHING = "Nothing to advise"  # the first words of the note that says why
_CLOCKLESS, _CLOCKLESS_NOTE = ("reduced_precision",), "the records do not say when they ran"  # kinds that need no clock
_COLD = 0.1  # of the wall time, in which memory is allocated or a module loaded: more than a running program has of it
_ONCE = 0.2  # of the names of kernels that ran: where so many ran once, no iteration was repeated
_LEAST_FAST, _MOST = 0.03, 110.0  # share of the kernel time worth a note; percent of the peak above which a rate is none
_FEWER = re.compile(r"winograd|conv_fft|fft_conv")  # families of kernels
_DISTRIBUTED = re.compile(r"c10d_functional|_c10d|dtensor", re.IGNORECASE)  # ops of programs with DTensor
_IN_CACHE = 4  # bytes over those that fit the L2 cache: with less, much of them may lie in it
_ONE_WAY = (
    "no backward pass is recorded (nsys records none on a CPU), so that its time counts as idle: "
    "pyprof run --tool torch records it"
)


def notes_of(overview: Overview, advice: Sequence[Advice], kernels: Kernels, known: Known | None) -> tuple[str, ...]:
    """The notes, one line each."""
    saves = any(one.saves_ns is not None or one.kind in ALONE for one in advice)
    clockless = any(one.kind in _CLOCKLESS for one in advice)
    why = [f"{_CLOCKLESS_NOTE}, so that no saving is known"] if clockless and not overview.division.count else []
    why = why if saves or why else [_nothing(overview, kernels, known)]
    devices = [note for _, notes in overview.frame.gpus for note in notes]
    missing = [_ONE_WAY] if saves and _is_one_way(overview) else []
    missing += [overview.missing] if overview.missing is not None else []
    again_ns = int(kernels.class_ns[kernels.classes.records["recomputed"] == 1].sum())
    share = percent(again_ns, kernels.total_ns)
    again = f"{human(again_ns, 'ns')} ({share}) in forward ops that run again in backward (--where recomputed=1)"
    recomputed = [again] * (again_ns > 0) + [fast for fast in [_above_peak(kernels)] if fast]
    unseen = [] if overview.records.unseen is None else [str(overview.records.unseen)]
    window = [] if unseen else [*_window(overview)]
    if not any(one.kind == "warmup" for one in advice):  # which says it first of all
        window += _cold(overview)
    return tuple(dict.fromkeys([*unseen, *missing, *why, *window, *recomputed, *devices, *overview.records.messages()]))


def _is_one_way(overview: Overview) -> bool:
    """Whether the program trained on a CPU but no backward pass was recorded."""
    if overview.division.on_gpu:
        return False
    phases = set(overview.records["phase"][overview.inside].tolist())
    return PHASES.index("optimizer") in phases and PHASES.index("backward") not in phases


def notes_of_job(advice: Sequence[Advice], own: Sequence[str], ranks: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Notes of a job and its ranks. Why nothing is advised comes first and once, and only if the job has no advice either."""
    saves = any(one.saves_ns is not None or one.kind in ALONE for one in advice)
    each = [note for notes in ranks for note in notes]
    why = [note for note in each if note.startswith(NOTHING)]
    return tuple(dict.fromkeys([*why[: not saves], *own, *(note for note in each if note not in why)]))


def _nothing(overview: Overview, kernels: Kernels, known: Known | None) -> str:
    """Why no advice would save time."""
    if known is None:
        copies = f"only copies and sets ran in the window ({human(overview.parts['copy'], 'ns')})"
        return f"{NOTHING}: {copies if overview.parts['copy'] else 'nothing ran in the window'}"
    if not overview.division.count:
        return f"{NOTHING}: {_CLOCKLESS_NOTE}{_most_lost(overview, kernels)}"
    if _is_one_way(overview):
        return f"{NOTHING}: {_ONE_WAY}"
    busy = percent(overview.busy_ns, overview.division.wall_ns)
    graphs = int(kernels.class_ns[kernels.classes.records["kind"] == ActivityKind.GRAPH].sum())
    if graphs > _MUCH * kernels.total_ns:
        graphs_share = percent(graphs, kernels.total_ns)
        return f"{NOTHING}: the device is busy {busy}, {graphs_share} of it in CUDA graphs that were recorded as a whole"
    if known.op < _LITTLE:
        some = f"ops are known of {percent(known.op, 1)} of the time"
        return f"{NOTHING}: too little is recorded, {some}{_most_lost(overview, kernels)}"
    bounded = kernels.lost_ns >= 0
    time, lost = int(kernels.time_ns[bounded].sum()), int(kernels.lost_ns[bounded].sum())
    what, rows = ("GPU", "kernels") if overview.division.on_gpu else ("CPU", "ops")
    whole = is_enough(time, kernels.total_ns, int(bounded.sum()), len(bounded))
    part = "" if whole else f" of which it is known ({percent(time, kernels.total_ns)} of their time)"
    reached = f", its {rows}{part} at {percent(time - lost, time)} of the roofline" if time else ""
    least = f"{100 * LEAST_SHARE:.1f} % of the time"
    most = _most_lost(overview, kernels)
    return f"{NOTHING}: the {what} is busy {busy}{reached}; none of the checks found more than {least}{most}"


def _most_lost(overview: Overview, kernels: Kernels) -> str:
    """The largest loss: an op above the roofline, a cause of idle time, or where no roofline is known the op of most time."""
    devices = max(overview.division.count, 1)
    cause = max(CAUSES, key=lambda name: overview.parts[name])
    idle, bounded = overview.parts[cause], int(kernels.time_ns[kernels.lost_ns >= 0].sum())
    worst = next(iter(kernels.most_lost()), None) if bounded > _LITTLE * kernels.total_ns else None
    first = next(iter(kernels.by("op")), None) if worst is None else None
    if first is not None and first.name is None:
        first = kernels.by("kernel")[0]
        first = first._replace(name=f"the kernel {first.name}")
    spent = max(worst.lost_ns if worst is not None else first.time_ns if first is not None else 0, idle * devices) // devices
    if (copying := overview.parts["copy"]) > spent:  # while nothing computes
        rows = np.flatnonzero(overview.inside & among(overview.records["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET)))
        moved = int(np.maximum(overview.records["bytes"][rows], 0).sum(dtype=np.int64))
        return f". Most is spent copying, {human(copying, 'ns')}: {len(rows):,} copies and sets of {human(moved, 'B')}"
    if worst is not None and worst.lost_ns // devices >= idle:
        lost = f"{human(worst.lost_ns // devices, 'ns')} above the roofline ({percent(worst.peak)} of it, {worst.bound})"
        return f". Most is lost in {_place(worst.op, worst.shape, worst.layer)}: {lost}"
    if first is not None and first.time_ns // devices >= idle:
        time = f"{human(first.time_ns // devices, 'ns')}, {percent(first.share)}"
        return f". Most time is in {first.name} ({time}), whose roofline is not known"
    if idle <= LEAST_SHARE * overview.division.wall_ns:
        return ""
    places = overview.host_places(cause)
    place = None if places is None else places.deepest()
    where = "" if place is None else f", most in {described(place)}"
    return f". Most is lost idle, {human(idle, 'ns')} for cause {cause}{where}"


def _place(op: str | None, shape: str | None, layer: str | None) -> str:
    """`linear (M=8,N=64,K=64) in blocks.0`."""
    where = f" in {'.'.join(layer.split('.')[-2:])}" if layer else ""
    return f"{op or 'kernels without an op'}{f' ({shape[:60]})' if shape else ''}{where}"


def _cold(overview: Overview) -> Iterator[str]:
    """A window of one iteration that does what only a first one does. Without marks of steps it is one if many kernels ran
    once; memory that is freed as well may be allocated again in each."""
    steps, wall = overview.steps, overview.division.wall_ns
    first_ns, allocated_ns = overview.parts["compilation"], overview.parts["allocation"]
    if overview.host is None or first_ns + allocated_ns <= _COLD * wall:
        return
    begin, end = overview.division.begin_ns, overview.division.end_ns
    for calls in overview.host.allocations:
        named = zip(calls.begin_ns, calls.code, strict=True)
        if any(begin <= at < end and "Free" in calls.names[code] for at, code in named):
            return
    if steps is None:
        often = np.bincount(distinct_rows(overview.records["name"][kernels_of(overview)]).inverse)
        single = len(often) > 1 and int(np.count_nonzero(often == 1)) > _ONCE * len(often)
    else:
        single = len(steps) == 1 and (steps.kind != "ProfilerStep" or int(steps.number[0]) == 0)
    if single:
        parts = (first_ns, "modules are loaded or code is compiled"), (allocated_ns, "its memory is allocated")
        idle = " and ".join(f"{human(ns, 'ns')} while {what}" for ns, what in parts if ns)
        yield (
            f"this is a single cold iteration: of {human(wall, 'ns')} the device idles {idle}, which only a first one "
            "does; its times are not those of a running program"
        )


def _window(overview: Overview) -> Iterator[str]:
    """Time outside of the window, and time whose work was not recorded."""
    window, wall = overview.window, overview.division.wall_ns
    if not overview.division.count:
        return
    if window.unrecorded_ns:
        first = human(window.unrecorded_ns, "ns")
        yield f"the first {first} are left out: kernels waited there for work that is not in the capture"
    before = window.set_up_ns - window.unrecorded_ns
    if before > _LEAST_NS:
        spans = [] if overview.host is None else overview.host.work.get("loading", [])
        times = ((begin, end) for one in spans for begin, end in zip(one.begin_ns, one.end_ns, strict=True))
        loading = sum(max(min(end, window.begin_ns) - begin, 0) for begin, end in times)
        what = f", {human(loading, 'ns')} of it in loading data" if loading > _MUCH * before else ""
        yield f"set-up of {human(before, 'ns')} before the window is left out{what} (--window all)"
    if window.after_ns > _LEAST_NS:
        yield f"{human(window.after_ns, 'ns')} after the window are left out (--window all)"
    copies = uploaded(overview)
    time, size = (int(overview.records[name][copies].sum(dtype=np.int64)) for name in ("dur_ns", "bytes"))
    if time // overview.division.count > _COLD * wall:
        yield (
            f"before the first kernel {len(copies):,} copies bring {human(size, 'B')} to the device in {human(time, 'ns')}, "
            "as of a model's weights: no advice counts them, since they come once"
        )
    missing = overview.parts["unrecorded"]
    if missing > LEAST_SHARE * wall and not overview.division.on_gpu:
        ran = f"for {human(missing, 'ns')} code of torch.compile ran, whose kernels on a CPU are not recorded"
        yield f"{ran}: pyprof run --inductor shows them"
    elif missing > LEAST_SHARE * wall:
        yield f"for {human(missing, 'ns')} the device idled before work that was launched long before: some was not recorded"


def _above_peak(kernels: Kernels) -> str:
    """A note on kernels that run faster than their device can: the op, how fast, what is known of why; "" without them.

    Left out are ops that the L2 cache explains, and convolutions by Winograd's algorithm or by FFT, which need fewer operations
    than their definition: every kernel of such a convolution, for its products have the names of plain ones.
    """
    frame, rows = kernels.frame, kernels.rows
    records, roof = frame.records, frame.roofline
    fast = (roof.peak[rows] > _MOST) & (roof.bound[rows] != L2) & among(records["kind"][rows], (ActivityKind.KERNEL,))
    at = np.flatnonzero(fast)
    if not len(at) or int(kernels.time_ns[at].sum()) < _LEAST_FAST * kernels.total_ns:
        return ""
    fewer = np.array([_FEWER.search(one.family) is not None for one in frame.costs.kernels], np.bool_)
    of_fewer = records["instance"][rows[fewer[frame.costs.kernel[rows]]]]
    at = at[~one_of(np.unique(of_fewer[of_fewer >= 0]), len(at))(records["instance"][rows[at]])]
    at = at[~fewer[frame.costs.kernel[rows[at]]]]
    time = int(kernels.time_ns[at].sum())
    if not len(at) or time <= _LEAST_FAST * kernels.total_ns:
        return ""
    names: dict[str, int] = {}
    code = np.array([*(names.setdefault(call.op, len(names)) for call in records.calls), len(names)], np.int64)
    of = code[records["call"][rows[at]]]
    most = int(summed(of, kernels.time_ns[at], len(names) + 1).argmax())
    name, own = ([*names, "kernels without an op"][most], rows[at[of == most]])
    fastest = float(roof.peak[own].max())
    share = percent(time, kernels.total_ns)
    return (
        f"{len(at):,} kernels ({share} of the kernel time) run above {_MOST:.0f} % of the peak, most of that in {name}, up to "
        f"{fastest:.0f} %: {_why_fast(kernels, own, fastest)}"
    )


def _why_fast(kernels: Kernels, rows: Ints, fastest: float) -> str:
    """Why the rows of one op are as fast, as far as that is known."""
    frame = kernels.frame
    records, code = frame.records, int(frame.records["gpu"][rows[0]])
    gpu = frame.gpus[code][0] if 0 <= code < len(frame.gpus) else None
    clock = records.gpus[code].clock_hz if 0 <= code < len(records.gpus) else -1
    by_compute = BOUNDS[frame.roofline.bound[rows[0]]] == BOUNDS[COMPUTE + OVER]
    if gpu is not None and gpu.boost_hz and by_compute and fastest <= _MOST * clock / gpu.boost_hz:
        return f"the device may clock at {clock / 1e6:.0f} MHz, its peak is that of {gpu.boost_hz / 1e6:.0f} MHz"
    calls = [records.calls[at] if at >= 0 else None for at in (records[name][rows[0]] for name in ("call", "inner"))]
    outer, inner = (sum(one.numel for one in call.tensors) if call is not None else 0 for call in calls)
    if 0 < inner < outer or any(_DISTRIBUTED.search(call.name) for call in records.calls):
        return "sizes may be those of a whole DTensor, of which this rank computed a part"
    moved = int(frame.costs.of("bytes", rows).max())
    if gpu is not None and gpu.l2_bytes and not by_compute and moved <= _IN_CACHE * gpu.l2_bytes:
        cache = human(gpu.l2_bytes, "B")
        return f"of its {human(moved, 'B')} as much as {cache} may lie in the L2 cache"
    if not by_compute:
        return "the kernel may touch only a part of a buffer that is counted whole"
    return "reason unknown"
