"""Allocations of a device -> what holds its memory: at the peak, at a moment, at the end, step by step."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Bools, Ints
from pyprof.errors import UsageError
from pyprof.model.allocations import CPU, Action, Allocations, AllocationSite
from pyprof.report.memory.kinds import KINDS, kinds_of
from pyprof.report.memory.pieces import OutOfMemory, out_of_memory
from pyprof.report.memory.replay import replay

BY = ("kind", "layer", "op", "line", "phase")
_TIME = re.compile(r"(\d+(?:\.\d*)?)(ns|us|ms|s)?")
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_OLDER = KINDS.index("older")


class Group(NamedTuple):
    """Blocks that have something in common. name: None if it is unknown; blocks: how many, None if that is unknown."""

    name: str | None
    bytes: int
    blocks: int | None


class StepMemory(NamedTuple):
    """One step. number: as the recording numbers it; peak_bytes: the most in use; stayed_bytes: more in use at its end than at
    its begin; stayed_line: where most of what it allocated and never freed comes from, with its bytes."""

    number: int
    peak_bytes: int
    allocated_bytes: int | None
    reserved_bytes: int | None
    end_bytes: int
    stayed_bytes: int
    stayed_line: str | None
    stayed_line_bytes: int


class DeviceMemory:
    """One device. moment: the event after which blocks are listed, -1 for the start."""

    def __init__(self, trace: Allocations, at: str = "peak") -> None:
        self.trace, self.replay = trace, replay(trace)
        self.moment = self._moment(at)
        self.notes = [*trace.notes, *self.replay.notes]
        if not len(trace):
            self.notes.append("no history was recorded, so the end is all that is known: "
                              "call torch.cuda.memory._record_memory_history() first")  # fmt: skip
        elif self.replay.relative and trace.addressed:
            self.notes.append("bytes of the CPU count from the recording's begin: what was in use before is not known, unless "
                              "pyprof run --memory lists the model's tensors")  # fmt: skip
        elif self.replay.relative:
            self.notes.append("the recording has changes without totals and addresses: bytes count from its start, and what "
                              "they consist of is not known")  # fmt: skip

    @property
    def name(self) -> str:
        """`GPU 0`, `CPU`."""
        name = "CPU" if self.trace.device == CPU else f"GPU {self.trace.device}"
        return name if self.trace.pid < 0 else f"{name} of process {self.trace.pid}"

    @cached_property
    def kind(self) -> Ints:
        """Index into KINDS of each block."""
        return kinds_of(self.replay)

    def _moment(self, at: str) -> int:
        """The moment of `peak`, `end`, or a time. Raises UsageError for anything else."""
        if at in ("peak", "end"):
            return self.replay.peak if at == "peak" and len(self.trace) else self.replay.end
        found, time_ns = _TIME.fullmatch(at.strip()), self.trace.time_ns
        if found is None or len(at) > 30:
            raise UsageError(f"--at takes peak, end or a time, not {at!r}", "for example --at 105.2ms")
        if not len(time_ns) or (time_ns < 0).any():
            raise UsageError(f"--at {at}: the events of this recording have no times", "--at peak, or --at end")
        wanted = int(time_ns[0]) + round(float(found[1]) * _NS[found[2]]) if found[2] else int(float(found[1]))
        return int(np.searchsorted(time_ns, wanted, "right")) - 1

    def site(self, event: int) -> AllocationSite:
        """Where an event happened."""
        code = int(self.trace.place[event]) if event >= 0 else -1
        return self.trace.places[code] if code >= 0 else AllocationSite()

    def time_ns(self, event: int) -> int | None:
        """Time of an event as the recording has it; None if unknown."""
        known = 0 <= event < len(self.trace) and self.trace.time_ns[event] >= 0
        return int(self.trace.time_ns[event]) if known else None

    def since_ns(self, event: int) -> int | None:
        """Time since the first event; None where the clock went back before it."""
        begin, time = self.time_ns(0), self.time_ns(event)
        return None if begin is None or time is None or time < begin else time - begin

    def state(self, moment: int) -> dict[str, object]:
        """Memory in use at a moment."""
        requested, allocated, reserved = self.replay.at(moment)
        step = int(self.trace.step[moment]) if moment >= 0 and self.trace.step[moment] >= 0 else None
        known = len(self.trace) > 0
        return {
            "requested_bytes": requested if known else None,
            "allocated_bytes": allocated if known else None,
            "reserved_bytes": reserved if known else None,
            "older_bytes": self.older_bytes(moment) if known else None,
            "event": moment if moment >= 0 else None,
            "time_ns": self.time_ns(moment),
            "phase": self.site(moment).phase,
            "step": step,
        }

    def older_bytes(self, moment: int) -> int | None:
        """Bytes in use that were allocated before the recording began."""
        lives, total = self.replay.lives, self._total(moment)
        if not self.trace.addressed or total is None:
            return None
        own = lives.alive(moment) & (lives.alloc >= 0)
        return total - int(lives.size[own].sum())

    @property
    def total(self) -> int | None:
        """Bytes in use at the moment."""
        return self._total(self.moment)

    def _total(self, moment: int) -> int | None:
        return next((one for one in self.replay.at(moment) if one is not None), None)

    @cached_property
    def alive(self) -> Bools:
        """Mask of the blocks in use at the moment."""
        return self.replay.lives.alive(self.moment)

    def by(self, what: str) -> list[Group]:
        """Bytes and blocks in use at the moment by kind, layer, op, line, phase; the largest first, unknown last."""
        if not self.trace.addressed:
            return []
        lives, rows = self.replay.lives, np.flatnonzero(self.alive)
        if what == "kind":
            code, names = self.kind[rows], [*KINDS]
        else:
            names = list(dict.fromkeys(getattr(one, what) for one in self.trace.places))
            names = [*(name for name in names if name is not None)]
            number = {name: at for at, name in enumerate(names)}
            of_place = np.array([*(number.get(getattr(one, what), -1) for one in self.trace.places), -1], np.int64)
            code = of_place[lives.place[rows]]
        sums = np.zeros(len(names) + 1, np.int64)
        np.add.at(sums, code, lives.size[rows])
        counts: list[int | None] = np.bincount(code % (len(names) + 1), minlength=len(names) + 1).tolist()
        missing = (self.total or 0) - int(sums.sum()) if len(self.trace) else 0
        if missing > 0:  # what is older and neither freed nor listed
            at = _OLDER if what == "kind" else -1
            sums[at] += missing
            counts[at] = None
        groups = [Group(name, size, count) for name, size, count in zip([*names, None], sums.tolist(), counts, strict=True)]
        return sorted((one for one in groups if one.bytes or one.blocks), key=lambda one: (one.name is None, -one.bytes))

    @cached_property
    def end(self) -> dict[str, int | None]:
        """Memory that the allocator holds at the end of the recording."""
        requested, allocated, reserved = self.replay.at(self.replay.end)
        found: dict[str, int | None] = {
            "requested_bytes": requested, "allocated_bytes": allocated, "reserved_bytes": reserved, "free_bytes": None,
            "whole_segments_free_bytes": None, "pinned_free_bytes": None, "awaiting_free_bytes": None,
            "private_free_bytes": None,
        }  # fmt: skip
        held, segments = self.trace.blocks, self.trace.segments
        if segments is not None:
            used = np.zeros(len(segments.size), np.int64)
            np.add.at(used, held.segment, held.size)
            free, private = segments.size - used, segments.private
            whole = (used == 0) & ~private
            found |= {
                "requested_bytes": int(held.requested.sum()),
                "allocated_bytes": int(held.size[~held.awaiting].sum()),
                "reserved_bytes": int(segments.size.sum()),
                "free_bytes": int(free[~private].sum()),
                "whole_segments_free_bytes": int(free[whole].sum()),
                "pinned_free_bytes": int(free[~private & ~whole].sum()),
                "awaiting_free_bytes": int(held.size[held.awaiting].sum()),
                "private_free_bytes": int(free[private].sum()),
            }
        return found

    @cached_property
    def oom(self) -> list[OutOfMemory]:
        """Each time that memory ran out."""
        return [out_of_memory(self.replay, at) for at in np.flatnonzero(self.trace.action == Action.OOM).tolist()]

    @cached_property
    def steps(self) -> list[StepMemory]:
        """Each step that the recording marks."""
        step, counted = self.trace.step, self.replay.counted
        found = []
        for number in distinct_values(step[step >= 0]).tolist():
            rows = np.flatnonzero(step == number)
            first, last = int(rows[0]), int(rows[-1])
            peak = int(rows[int(counted[rows].argmax())])
            before = self._total(first - 1) or 0
            _, allocated, reserved = self.replay.at(peak)
            line, size = self._stayed(first, last)
            end = int(counted[last])
            found.append(StepMemory(number, int(counted[peak]), allocated, reserved, end, end - before, line, size))
        return found

    def _stayed(self, first: int, last: int) -> tuple[str | None, int]:
        """Line of most bytes that were allocated from one event to another and never freed, with these bytes."""
        lives = self.replay.lives
        rows = np.flatnonzero((lives.alloc >= first) & (lives.alloc <= last) & (lives.free >= len(self.trace)))
        sums: dict[str | None, int] = {}
        for place, size in zip(lives.place[rows].tolist(), lives.size[rows].tolist(), strict=True):
            line = self.trace.places[place].line if place >= 0 else None
            sums[line] = sums.get(line, 0) + size
        return max(sums.items(), key=lambda item: item[1], default=(None, 0))
