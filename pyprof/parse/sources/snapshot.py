"""A snapshot of torch's caching allocator -> AllocationTrace: the events of each device, and what it holds at the end.

Frames are C++ and Python mixed, innermost first. `Engine::` and `autograd::Node` are the backward pass, `step` of an optimizer
or torch's annotation around it the optimizer, anything else with frames forward. The op is the innermost `at::_ops::NAME::`,
the layer the innermost `forward` of the user's, the line the innermost of the user's.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import IO, Any, NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Array, Bools, Ints
from pyprof.errors import InputError
from pyprof.model.allocations import Action, Allocations, AllocationSite, AllocationTrace, HeldBlocks, HeldSegments
from pyprof.parse.sources.kineto.python import LIBRARY, USER, rank_of
from pyprof.parse.sources.snapshot_file import read_pickle

_ACTIONS = {
    "alloc": Action.ALLOC, "free_requested": Action.FREE_REQUESTED, "free_completed": Action.FREE_COMPLETED,
    "free": Action.FREE, "segment_alloc": Action.SEGMENT_ALLOC, "segment_map": Action.SEGMENT_ALLOC,
    "segment_free": Action.SEGMENT_FREE, "segment_unmap": Action.SEGMENT_FREE, "oom": Action.OOM,
}  # fmt: skip
_KNOWN = {*_ACTIONS, "snapshot", "append", "workspace_snapshot"}
_AWAITING = {"active_awaiting_free", "active_pending_free"}
_ACTIVE = {"active_allocated", *_AWAITING}
_OP = re.compile(r"at::_ops::(\w+)::")
_ENGINE = re.compile(r"Engine::|autograd::Node")
_WRAPPER = re.compile(r"torch[/\\]optim[/\\]optimizer\.py$")
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_OPTIMIZER_STEP = re.compile(r"Optimizer\.step")
_PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)$")
_MOST_BYTES = 1 << 50
_HINT = "write it again: torch.cuda.memory._dump_snapshot(FILE)"
_Dicts = list[dict[str, Any]]


def read(stream: IO[bytes], name: str) -> AllocationTrace:
    """Read a snapshot. Raises InputError if it is damaged, NotACapture if it is something else."""
    collecting = gc.isenabled()
    gc.disable()  # millions of dicts are made, none of them garbage
    try:
        found, size = read_pickle(stream, name)
        return _trace(found, size, name)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise InputError(f"{name}: not as torch writes a snapshot: {str(error) or type(error).__name__}", _HINT) from error
    finally:
        if collecting:
            gc.enable()


def _trace(found: dict[str, Any], size: int, name: str) -> AllocationTrace:
    traces, segments = found.get("device_traces") or [], found.get("segments") or []
    if sum(map(len, traces)) + sum(len(segment["blocks"]) for segment in segments) > size:
        raise ValueError("more events than the file has bytes")  # one list under many names
    settings = {
        key: value if isinstance(value, str) else str(value)
        for key, value in (found.get("allocator_settings") or {}).items()
        if isinstance(value, (str, int, float)) and isinstance(key, str)
    }
    annotations = found.get("external_annotations") or []
    devices, notes = [], list[str]()
    numbers = {int(segment.get("device", 0)) for segment in segments}
    for device in sorted(numbers | {number for number, events in enumerate(traces) if events}):
        places = _Sites()
        events = traces[device] if 0 <= device < len(traces) else []
        held = _Held.of([segment for segment in segments if segment.get("device", 0) == device], places)
        devices.append(_device(device, events, held, places, annotations))
        devices[-1].settings = settings
    if not devices:
        raise InputError(
            f"{name}: nothing was allocated in it", "torch.cuda.memory._record_memory_history() before the program"
        )
    return AllocationTrace("snapshot", devices, notes)


class _Held(NamedTuple):
    """The end of a recording on one device."""

    segments: HeldSegments
    blocks: HeldBlocks

    @classmethod
    def of(cls, found: _Dicts, places: _Sites) -> _Held:
        found = sorted(found, key=itemgetter("address"))
        rows = list[tuple[int, int, int, int, bool, int]]()
        for number, segment in enumerate(found):
            address = segment["address"]
            for block in segment["blocks"]:
                address, size = block.get("address", address), block["size"]
                if (state := block["state"]) in _ACTIVE:
                    history = block.get("history") or [{}]  # of torch before 2.1
                    requested = block.get("requested_size", history[0].get("real_size", size))
                    place = places.code(block.get("frames"))
                    rows.append((address, size, requested, number, state in _AWAITING, place))
                address += size

        def column(at: int, dtype: type[np.generic] = np.int64) -> Array:
            return np.fromiter(map(itemgetter(at), rows), dtype, len(rows))

        def mask(values: Iterable[object]) -> Bools:
            return np.fromiter(map(bool, values), np.bool_, len(found))

        segments = HeldSegments(
            _column(found, "address", 0, np.uint64),
            _sizes(_column(found, "total_size", 0)),
            _column(found, "stream", 0),
            mask(segment.get("segment_type") == "large" for segment in found),
            mask(segment.get("is_expandable") for segment in found),
            mask(any(segment.get("segment_pool_id", ())) for segment in found),
        )
        sizes, requested = _sizes(column(1)), _sizes(column(2))
        return cls(segments, HeldBlocks(column(0, np.uint64), sizes, requested, column(3), column(4, np.bool_), column(5)))


def _device(device: int, events: _Dicts, held: _Held, places: _Sites, annotations: _Dicts) -> Allocations:
    names = [*map(itemgetter("action"), events)]
    action_of = {name: _ACTIONS.get(name, Action.OTHER) for name in set(names)}
    action = np.fromiter(map(action_of.__getitem__, names), np.int8, len(names))
    time = _column(events, "time_us", -1)
    time_ns = np.where(time >= 0, time * 1000, -1)
    place = places.codes(events)
    mine = [one for one in annotations if one.get("device", device) == device and "time_us" in one]
    step = _steps(mine, time_ns)
    place = _in_optimizer(places, place, time_ns, mine)
    odd = sorted(map(str, action_of.keys() - _KNOWN))
    notes = [f"events of a kind that pyprof does not know are left out: {', '.join(odd)}"] if odd else []
    return Allocations(
        device,
        action,
        _column(events, "addr", 0, np.uint64),
        _sizes(_column(events, "size", 0)),
        _column(events, "stream", 0),
        time_ns,
        place,
        step,
        places.found,
        exact=True,
        blocks=held.blocks,
        segments=held.segments,
        asked_free={at: int(events[at].get("device_free", -1)) for at in np.flatnonzero(action == Action.OOM).tolist()},
        optimizer_ns=_spans(mine, _OPTIMIZER_STEP)[0],
        notes=notes,
    )


def _column(items: _Dicts, key: str, default: int, dtype: type[np.integer[Any]] = np.int64) -> Array:
    """A column of integers; default: of items without the key."""
    try:
        return np.fromiter(map(itemgetter(key), items), dtype, len(items))
    except KeyError:
        return np.fromiter((item.get(key, default) for item in items), dtype, len(items))


def _sizes(found: Ints) -> Ints:
    """The sizes. Raises ValueError for one that no memory has."""
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < _MOST_BYTES:
        raise ValueError(f"a size of {int(found.min() if found.min() < 0 else found.max()):,} bytes")
    return found


def _spans(annotations: _Dicts, named: re.Pattern[str]) -> tuple[Ints, Ints]:
    """Begins and ends, in ns, of the annotations with a name. One without an end is open up to the last event."""
    found: dict[str, list[int]] = {"START": [], "END": []}
    for one in sorted(annotations, key=itemgetter("time_us")):
        if named.match(one["name"]) and one["stage"] in found:
            found[one["stage"]].append(one["time_us"] * 1000)
    begins, ends = found["START"], found["END"]
    return np.array(begins, np.int64), np.array(ends[: len(begins)] + [1 << 62] * (len(begins) - len(ends)), np.int64)


def _steps(annotations: _Dicts, time_ns: Ints) -> Ints:
    """The step of each event: its ProfilerStep, else the number of optimizer steps that had ended; -1 without such marks."""
    begins, ends = _spans(annotations, _PROFILER_STEP)
    if len(begins):
        numbers = [int(found[1]) for one in sorted(annotations, key=itemgetter("time_us"))
                   if one["stage"] == "START" and (found := _PROFILER_STEP.match(one["name"]))]  # fmt: skip
        at = np.searchsorted(begins, time_ns, "right") - 1
        return np.where((at >= 0) & (time_ns <= ends[at]), np.array(numbers, np.int64)[at], -1)
    _, ends = _spans(annotations, _OPTIMIZER_STEP)
    if not len(ends):
        return np.full(len(time_ns), -1, np.int64)
    return np.where(time_ns >= 0, np.searchsorted(np.sort(ends), time_ns), -1)


def _in_optimizer(places: _Sites, place: Ints, time_ns: Ints, annotations: _Dicts) -> Ints:
    """The places of events, where what ran in an annotation of an optimizer and not in backward is the optimizer's."""
    begins, ends = _spans(annotations, _OPTIMIZER_STEP)
    at = np.searchsorted(begins, time_ns, "right") - 1
    inside = np.zeros(len(place), np.bool_)
    if len(begins):
        inside = (at >= 0) & (time_ns <= ends[at])
    for old in distinct_values(place[inside]).tolist():
        if (one := places.found[old] if old >= 0 else AllocationSite()).phase not in ("backward", "optimizer"):
            place = np.where(inside & (place == old), places.add(one._replace(phase="optimizer")), place)
    return place


# ---------------------------------------------------------------------------------------------- frames


class _StackFrame(NamedTuple):
    """One frame of C++ or Python. strange: 0 for the user's own files, 3 for torch's; forward, step: a function of that name
    (of an optimizer); copies: it copies a tensor to a device."""

    op: str | None = None
    engine: bool = False
    copies: bool = False
    python: bool = False
    line: str = ""
    strange: int = 3
    forward: bool = False
    step: bool = False


def _frame(frame: dict[str, Any]) -> _StackFrame:
    name, file = str(frame["name"]), str(frame["filename"])
    if not (file.endswith(".py") or file.startswith("<")):
        op = _OP.search(name)
        found = op[1] if op else None
        return _StackFrame(found, _ENGINE.search(name) is not None, found in ("_to_copy", "to_device"))
    line = f"{file}:{frame['line']}"
    rank = rank_of(f"{file}({frame['line']}): {name}")[0]
    strange = {USER: 1 if _INSTALLED.search(file) else 0, LIBRARY: 2}.get(rank, 3)
    wrapper = name == "wrapper" and _WRAPPER.search(file) is not None
    step = wrapper or (name == "step" and "optim" in file.lower() and "lr_scheduler" not in file)
    return _StackFrame(python=True, line=line, strange=strange, forward=name == "forward", step=step)


class _Sites:
    """Distinct places of a device; stacks are known by the identity of their frames, which the snapshot's texts share."""

    def __init__(self) -> None:
        self.found: list[AllocationSite] = []
        self._codes: dict[AllocationSite, int] = {}
        self._frames: dict[int, _StackFrame] = {}
        self._lists: dict[int, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def add(self, place: AllocationSite) -> int:
        """The code of a place, -1 of nothing."""
        if place == AllocationSite():
            return -1
        if (code := self._codes.get(place)) is None:
            code = self._codes[place] = len(self.found)
            self.found.append(place)
        return code

    def codes(self, events: _Dicts) -> Ints:
        """The codes of events: of their frames, and of what the user said beside them."""
        places = [*map(self.code, [event.get("frames") for event in events])]
        said = {at: text for at, event in enumerate(events) if (text := event.get("user_metadata")) and isinstance(text, str)}
        for at, text in said.items():
            old = self.found[places[at]] if places[at] >= 0 else AllocationSite()
            places[at] = self.add(old._replace(metadata=text))
        return np.array(places, np.int64)

    def code(self, frames: Any) -> int:
        """The code of a stack of frames, -1 without any."""
        if not frames:
            return -1
        if (code := self._lists.get(id(frames))) is None:
            key = (*map(id, frames),)
            if (code := self._stacks.get(key)) is None:
                code = self._stacks[key] = self.add(_place([*map(self._frame_of, frames)]))
            self._lists[id(frames)] = code
        return code

    def _frame_of(self, frame: dict[str, Any]) -> _StackFrame:
        found = self._frames.get(id(frame))
        if found is None:
            found = self._frames[id(frame)] = _frame(frame)
        return found


def _place(frames: list[_StackFrame]) -> AllocationSite:
    def first(key: str) -> int:
        return next((at for at, frame in enumerate(frames) if getattr(frame, key)), len(frames))

    engine, step, forward = first("engine"), first("step"), first("forward")
    phase = "backward" if engine < len(frames) else "forward"
    if step < engine and (step < forward or forward == len(frames)):
        phase = "optimizer"
    layers = [frame for frame in frames if frame.forward]
    layer = min(layers, key=attrgetter("strange"), default=None)
    line = min((frame for frame in frames if frame.python), key=attrgetter("strange"), default=None)
    op = next((frame.op for frame in frames if frame.op), None)
    from_host = phase == "forward" and not layers and any(frame.copies for frame in frames)
    return AllocationSite(phase, layer and f"{layer.line} forward", op, line and line.line, from_host)
