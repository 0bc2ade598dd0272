"""Allocations: what an allocator did on one device, and what it holds at the end; the same for every kind of recording.

Columns are numpy arrays. Sizes are bytes, times integer ns; an unknown integer is -1. Where an event happened is a code into
`places`, one object for each distinct one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Array, Bools, Ints

PHASES = ("forward", "backward", "optimizer")
FORWARD, BACKWARD, OPTIMIZER = range(len(PHASES))
CPU = -1


class Action:
    """Codes of `Allocations.action`. FREE_REQUESTED: the program let go of a block; FREE_COMPLETED: its stream did as well;
    FREE: both at once. SEGMENT_ALLOC, SEGMENT_FREE: the allocator took memory from the device, or gave it back."""

    ALLOC, FREE_REQUESTED, FREE_COMPLETED, FREE, SEGMENT_ALLOC, SEGMENT_FREE, OOM, OTHER = range(8)


class AllocationSite(NamedTuple):
    """Where something was allocated or freed; None is unknown. phase: of PHASES; from_host: it copies its input to a device;
    metadata: what the user set with torch.cuda.memory._set_memory_metadata."""

    phase: str | None = None
    layer: str | None = None
    op: str | None = None
    line: str | None = None
    from_host: bool = False
    metadata: str | None = None


class HeldBlocks(NamedTuple):
    """Blocks that are not free at the end. requested: their size as the program asked for it; segment: index into HeldSegments;
    awaiting: freed by the program, still used by a stream; place: code into places."""

    address: Array
    size: Ints
    requested: Ints
    segment: Ints
    awaiting: Bools
    place: Ints

    @classmethod
    def none(cls) -> HeldBlocks:
        """No blocks."""
        empty = np.zeros(0, np.int64)
        return cls(np.zeros(0, np.uint64), empty, empty, empty, np.zeros(0, np.bool_), empty)


class HeldSegments(NamedTuple):
    """Pieces of memory that the allocator holds at the end. large: for blocks of more than 1 MiB; private: of a pool that
    others cannot use, as of a CUDA graph."""

    address: Array
    size: Ints
    stream: Ints
    large: Bools
    expandable: Bools
    private: Bools


class Listed(NamedTuple):
    """A tensor of the model by the list that the recording wrote at its end. kind: parameters, gradients or optimizer state;
    device: ordinal, CPU for the host."""

    kind: str
    name: str
    address: int
    size: int
    device: int


@dataclass(eq=False, repr=False)
class Allocations:
    """One device of a recording.

    device: ordinal, CPU for the host; pid: its process, -1 if there is one only; action, address, size, stream, time_ns,
    place, step: one value an event, in order; allocated, reserved: totals after each event as recorded (-1 unknown), None
    where the replay tells them; exact: sizes are those that the program asked for, else those that the allocator gave;
    addressed: events have addresses, so that frees find their allocation; segments: None where the recording does not list
    them; segments_only: what is known is the memory that the allocator took from the device (nsys); asked_free: free memory
    of the device at each out-of-memory event by the event's index; relative: totals count from the recording's begin;
    optimizer_ns: begins of the optimizer's steps; forward_ns:
    time of the forward pass by layer, a step, where ops were recorded as well.
    """

    device: int
    action: Array
    address: Array
    size: Ints
    stream: Ints
    time_ns: Ints
    place: Ints
    step: Ints
    places: list[AllocationSite]
    pid: int = -1
    allocated: Ints | None = None
    reserved: Ints | None = None
    exact: bool = False
    addressed: bool = True
    blocks: HeldBlocks = field(default_factory=HeldBlocks.none)
    segments: HeldSegments | None = None
    segments_only: bool = False
    relative: bool = False
    asked_free: dict[int, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    listed: list[Listed] = field(default_factory=list)
    optimizer_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    forward_ns: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.action)


@dataclass(eq=False, repr=False)
class AllocationTrace:
    """All devices of one recording, those that allocated nothing left out. source: as of a Trace, or `snapshot`."""

    source: str
    devices: list[Allocations]
    notes: list[str] = field(default_factory=list)
