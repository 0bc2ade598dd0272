"""Devices that idle while the host works on something else, a CPU without ops -> what it is, and to do that beside the ops."""

from __future__ import annotations

import re

import numpy as np

from pyprof.model.host import RECORDING
from pyprof.parse.sources.kineto.python import NEVER, USER, rank_of
from pyprof.report.advice.base import BETWEEN_OPS_NS, Advice, counted, idle_time, told
from pyprof.report.time.overview import Overview
from pyprof.report.time.places import FUNCTION, HostPlace
from pyprof.report.time.replay import Change

_LEAST = 0.03  # of the wall time
_SCRIPT = re.compile(r"[^/\\]*\.py\(|/|[A-Za-z]:")  # a file without a folder, or with its whole path
_SAVED = re.compile(r"torch/serialization\.py\(")  # which is torch's, but no part of the way from one op to the next
_LONG_NS = 50_000  # a call: with less a function is part of the way from one op to the next, such as a hook
_DO = "move it off the critical path: into another thread or process, or ahead of time while the device computes"
_ON_CPU = (
    "numpy or torch on whole arrays in place of a loop in Python; or in another process, ahead of time while ops run: where it "
    "prepares data, in a DataLoader with workers"
)
_INSIDE = {
    "op": "the host itself takes so long in it: where its tensors are on the CPU keep them on the device; a first call loads "
    "its kernels, so record later ones",
    "call": "make the call once, before the loop",
}
_RECORD = (
    "name what the host does there: torch.profiler.record_function or NVTX ranges in the program, or frames of Python "
    "(pyprof run, torch.profiler.profile(with_stack=True)); then move it beside the launches"
)
_RANGES = "name what the host does there with NVTX ranges in the program; then move it beside the launches"
_OWN = 0.25  # of the time in a place: with less of its own the ones inside are told
_NAMED, _MOST = 0.05, 3  # of the time, and places: those that are told where none has most of it
_MPI = "exchange while the device computes: MPI_Isend and MPI_Irecv before the work, MPI_Wait after it"
_WEIGHTS = re.compile(r"weights?(?![a-z])|param|offload", re.IGNORECASE)
_WRAPPER = (
    'the code that Inductor wrote calls kernels and checks sizes from Python: torch.compile(mode="reduce-overhead"), or '
    "torch._inductor.config.cpp_wrapper = True, size_asserts = False"
)
_STREAM = (
    "copy the next layer's weights from pinned memory on another stream while this layer computes, or keep them on the device"
)


def find(overview: Overview) -> Advice | None:
    """Where the host did something else than launch."""
    if not overview.division.on_gpu:
        return _on_cpu(overview)
    idle, division = idle_time(overview, "host"), overview.division
    places = overview.host_places("host")
    if places is None or idle.saves_ns <= _LEAST * division.wall_ns:
        return None
    devices, evidence = max(division.count, 1), f"the device idles {told(idle.time_ns)} while the host does something else"
    if (place := places.deepest()) is not None and place.name == RECORDING:
        return None
    if place is not None:
        evidence += f": {told(place.whole_ns / devices)} in {described(place)}"
        if place.inside_of and place.kind == "range":
            evidence += f" (in {place.inside_of[-1]})"
        if place.kind == "function" and place.own_ns < _OWN * place.whole_ns:  # of a function that only calls others
            inside = [one for one in places.by_name() if place.name in one.inside_of and one.own_ns >= _NAMED * places.total_ns]
            texts = [f"{told(one.own_ns / devices)} in {described(one)}" for one in inside[:_MOST]]
            evidence += f", of it {', '.join(texts)}" if texts else ""
        do = _MPI if place.name.startswith("MPI_") else _STREAM if _streams(place) else _INSIDE.get(place.kind, _DO)
        do = _WRAPPER if place.kind == "function" and "torchinductor" in place.name else do
    else:
        some = [one for one in places.by_name() if one.own_ns >= _NAMED * places.total_ns][:_MOST]
        texts = [f"{told(one.own_ns / devices)} in {counted_name(one)}" for one in some]
        rest = places.total_ns - sum(one.own_ns for one in some)
        evidence += f": {', '.join([*texts, f'{told(rest / devices)} in code that no range or frame names'])}"
        do = _RECORD if overview.uses_torch else _RANGES
    return Advice("host_code", idle.change, idle.time_ns, evidence, do)


def _on_cpu(overview: Overview) -> Advice | None:
    """Where the program's own code, not torch's from one op to the next, takes most of the time between ops."""
    idle, division, places = idle_time(overview, "host"), overview.division, overview.host_places("host")
    if places is None:
        return None
    if (one := own_function(overview)) is not None:
        spent, where = one.own_ns, described(one)
    else:  # in several functions together, where pauses are longer than from one op to the next
        own = [found for found in map(places.place, np.flatnonzero(places.own_ns).tolist()) if _is_the_programs(found)]
        spent, long_ns = sum(found.own_ns for found in own), int(idle.own_ns[idle.own_ns >= BETWEEN_OPS_NS].sum())
        below: dict[str, int] = {}
        for found in own:
            below[_own(found)] = below.get(_own(found), 0) + found.own_ns
        if 2 * min(spent, long_ns) <= places.total_ns:
            return None
        name = max(below, key=lambda name: below[name])
        worst = max((found for found in own if _own(found) == name), key=lambda found: found.own_ns)
        inside = counted_name(worst) if name in ("", worst.name) else f"{_function(name)}, most in {counted_name(worst)}"
        where = f"the program's own code, {told(below[name] // max(division.count, 1))} of it in {inside}"
    part = spent / places.total_ns
    if idle.saves_ns * part <= _LEAST * division.wall_ns:
        return None
    spent //= max(division.count, 1)
    change = Change(gaps=idle.rows, gap_ns=(idle.usual_ns * part).astype(np.int64), cause=idle.cause)
    return Advice(
        "host_code", change, spent, f"between ops {told(spent)} of {told(division.wall_ns)} are spent in {where}", _ON_CPU
    )


def own_function(overview: Overview) -> HostPlace | None:
    """On a CPU the function of the program's in which most of the time between ops is spent, by itself; None without one."""
    places = overview.host_places("host")
    most = None if places is None else next((one for one in places.by_name() if one.name != RECORDING), None)
    if places is None or most is None or 2 * most.own_ns <= places.total_ns or most.own_ns < _LONG_NS * most.number:
        return None
    return most if _is_the_programs(most) else None


def _is_the_programs(place: HostPlace) -> bool:
    """Whether time in a place itself is that of the program's code, or of what it calls in C, and not of torch's."""
    around = (place.name, *reversed(place.inside_of))
    files = (name for name in around if FUNCTION.fullmatch(name) and name[0] != "<")
    return place.kind == "function" and (rank_of(next(files, ""))[0] != NEVER or any(map(_SAVED.match, around)))


def _streams(place: HostPlace) -> bool:
    """Whether a range says that weights are brought to the device."""
    return place.kind == "range" and _WEIGHTS.search(place.name) is not None


def described(place: HostPlace) -> str:
    """A place in words; after a library's function the program's function that calls it."""
    return f"{counted_name(place)}{_own_caller(place)}"


def counted_name(place: HostPlace) -> str:
    """`44 x IO`, `resize (image.py:301)`."""
    if place.kind != "function" or FUNCTION.fullmatch(place.name) is None:
        return f"{place.number:,} x {place.name}"
    return _function(place.name) + (f", {counted(place.number, 'time')}" if place.number > 1 else "")


def _own_caller(place: HostPlace) -> str:
    """The program's own function around a library's."""
    if place.kind != "function" or place.name == (own := _own(place)) or not own:
        return ""
    return f", called by {_function(own)}"


def _own(place: HostPlace) -> str:
    """The innermost function of the program's own around a place, or itself: of a script rather than of a package, which may be
    installed; '' for none."""
    names = [name for name in (place.name, *reversed(place.inside_of)) if rank_of(name)[0] == USER]
    return next((name for name in names if _SCRIPT.match(name)), next(iter(names), ""))


def _function(name: str) -> str:
    """`decode (net.py:3)`; of a whole path the folder and the file."""
    if (found := FUNCTION.fullmatch(name)) is None:
        return name
    file = "/".join(found["file"].split("/")[-2:]) if found["file"].startswith("/") else found["file"]
    return f"{found['name']} ({file}:{found['line']})"
