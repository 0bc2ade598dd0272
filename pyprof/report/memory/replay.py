"""Allocations of a device -> its blocks from allocation to free, and what is in use after every event.

Requested bytes fall when a free is complete, allocated bytes (torch.cuda.memory_allocated) when it is requested. What was
allocated before the recording shows as a free of an unknown address or as a block at the end:

    in use at the start = in use at the end - (allocations - frees of the recording)

A moment is the index of an event, after which it is; -1 is the start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.allocations import CPU, Action, Allocations

_ROUND = 512  # bytes: torch gives blocks in multiples of it
_KEPT_REST = 1 << 20  # bytes: a larger block may have a rest of up to so much, which only a list of blocks tells
_OF_BLOCKS = (Action.ALLOC, Action.FREE_REQUESTED, Action.FREE_COMPLETED, Action.FREE)
_CLOSING = (Action.FREE_COMPLETED, Action.FREE)


@dataclass(frozen=True, eq=False, repr=False)
class Lifetimes:
    """Blocks from allocation to free, one row each.

    size: bytes as the recording has them; allocated: with what the allocator added, at least; alloc: event that allocated it,
    -1: older than the recording; let_go: event at which the program freed it (-1: before the recording); free: event from which
    on others can have it; both the number of events where that never came; place, stream: of the allocation; unseen: whether
    its free is missing in the recording.
    """

    address: Array
    size: Ints
    allocated: Ints
    alloc: Ints
    let_go: Ints
    free: Ints
    place: Ints
    stream: Ints
    unseen: Bools

    def __len__(self) -> int:
        return len(self.size)

    def alive(self, moment: int) -> Bools:
        """Which blocks are in use."""
        return (self.alloc <= moment) & (self.free > moment)


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """One device: its blocks, and bytes in use after each event.

    requested, allocated, reserved: None where the recording does not tell. starts: the same three before the first event.
    relative: bytes count from the start, whose own are unknown. notes: where the recording contradicts itself.
    """

    trace: Allocations
    lives: Lifetimes
    requested: Ints | None
    allocated: Ints | None
    reserved: Ints | None
    starts: tuple[int | None, int | None, int | None]
    relative: bool
    notes: list[str]

    @property
    def counted(self) -> Ints:
        """The bytes by which the peak is found: requested if they are known, else allocated, else reserved."""
        known = next(one for one in (self.requested, self.allocated, self.reserved) if one is not None)
        return known

    @cached_property
    def peak(self) -> int:
        """Moment of the peak, the first of equals."""
        start = next((one for one in self.starts if one is not None), 0)
        if not len(self.counted) or start > int(self.counted.max()):
            return -1
        return int(self.counted.argmax())

    @property
    def end(self) -> int:
        """The last moment."""
        return len(self.trace) - 1

    def at(self, moment: int) -> tuple[int | None, int | None, int | None]:
        """Requested, allocated and reserved bytes at a moment."""
        if moment < 0:
            return self.starts
        one, two, three = (
            None if each is None else int(each[moment]) for each in (self.requested, self.allocated, self.reserved)
        )
        return one, two, three

    def allocated_is_least(self, moment: int) -> bool:
        """Whether blocks are in use whose size the snapshot no longer holds, so that `allocated` is a lower bound."""
        lives = self.lives
        gone = (lives.alloc <= moment) & (lives.let_go > moment) & (lives.free < len(self.trace))
        return self.trace.segments is not None and bool((lives.size[gone] > _KEPT_REST).any())

    def largest(self, which: int) -> int | None:
        """Most allocated (1) or reserved (2) bytes at any moment."""
        found, start = (self.requested, self.allocated, self.reserved)[which], self.starts[which]
        return None if found is None else max(int(found.max(initial=0)), start or 0)


def replay(trace: Allocations) -> Replay:
    """Replay the events of a device."""
    lives, notes = lifetimes(trace) if trace.addressed else (_none(), list[str]())
    count = len(trace)
    requested = allocated = reserved = None
    starts: list[int | None] = [None, None, None]
    if trace.addressed and not trace.segments_only:
        if trace.exact:
            requested, starts[0] = _running(lives.size, lives.alloc, lives.free, count)
        allocated, starts[1] = _running(lives.allocated, lives.alloc, lives.let_go, count)
    elif trace.addressed:
        reserved, starts[2] = _running(lives.size, lives.alloc, lives.free, count)
    signed = np.where(trace.action == Action.ALLOC, trace.size, np.where(trace.action == Action.FREE, -trace.size, 0))
    if trace.allocated is not None:
        allocated = trace.allocated
        starts[1] = int(allocated[0] - signed[0]) if count else None
    elif not trace.addressed:
        allocated, starts[1] = np.cumsum(signed), 0
    if trace.reserved is not None:
        reserved, starts[2] = trace.reserved, int(trace.reserved[0]) if count else None
    elif trace.segments is not None:
        change = np.where(
            trace.action == Action.SEGMENT_ALLOC, trace.size, np.where(trace.action == Action.SEGMENT_FREE, -trace.size, 0)
        )
        starts[2] = int(trace.segments.size.sum() - change.sum())
        reserved = starts[2] + np.cumsum(change)
    relative = trace.relative or (not trace.addressed and trace.allocated is None)
    if reserved is not None and allocated is not None and (allocated > reserved).any():
        notes.append("more is allocated than the allocator held at times: the recording lacks events")
    first, second, third = starts
    return Replay(trace, lives, requested, allocated, reserved, (first, second, third), relative, notes)


def _running(size: Ints, begin: Ints, end: Ints, count: int) -> tuple[Ints, int]:
    """Bytes after each event, and before the first, of blocks that count from one event up to another."""
    older = (begin < 0) & (end >= 0)
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, begin[begin >= 0], size[begin >= 0])
    ending = (end >= 0) & ((begin >= 0) | older)
    np.subtract.at(change, end[ending], size[ending])
    start = int(size[older].sum())
    return start + np.cumsum(change[:count]), start


def _none() -> Lifetimes:
    empty = np.zeros(0, np.int64)
    return Lifetimes(np.zeros(0, np.uint64), empty, empty, empty, empty, empty, empty, empty, np.zeros(0, np.bool_))


def lifetimes(trace: Allocations) -> tuple[Lifetimes, list[str]]:
    """All blocks of a device: those of events, then those that were there before the first and never freed; and notes on what
    does not agree."""
    seen = _of_events(trace)
    if trace.segments is None:
        return _with_listed(seen, trace), _notes(0, 0, int(seen.unseen.sum()))
    held, count = trace.blocks, len(trace)
    left = np.flatnonzero(seen.free == count)
    left = left[np.argsort(seen.address[left], kind="stable")]
    at = np.searchsorted(seen.address[left], held.address)
    matched = at < len(left)
    matched[matched] = seen.address[left[at[matched]]] == held.address[matched]
    of = left[at[matched]]
    allocated = seen.allocated.copy()
    allocated[of] = held.size[matched]
    differ = int((seen.size[of] != held.requested[matched]).sum())
    rest = np.flatnonzero(~matched)
    awaiting = held.awaiting[rest]
    stream = trace.segments.stream[held.segment[rest]]
    never = np.full(len(rest), count)
    older = Lifetimes(
        held.address[rest], held.requested[rest], held.size[rest], never * 0 - 1, np.where(awaiting, -1, count), never,
        held.place[rest], stream, np.zeros(len(rest), np.bool_),
    )  # fmt: skip
    both = _joined(replace(seen, allocated=allocated), older)
    return both, _notes(len(left) - len(of), differ, int(seen.unseen.sum()))


def _with_listed(seen: Lifetimes, trace: Allocations) -> Lifetimes:
    """Add the blocks and the model's tensors that no event allocated: older than the recording and there at its end."""
    known = {*seen.address[seen.free == len(trace)].tolist()}
    rest = [one for one in trace.listed if one.address not in known]
    size = np.array([one.size for one in rest], np.int64)
    none, never = np.full(len(rest), -1), np.full(len(rest), len(trace))
    address = np.array([one.address for one in rest], np.uint64)
    older = Lifetimes(address, size, size, none, never, never, none, none, np.zeros(len(rest), np.bool_))
    return _joined(seen, older)


def _joined(one: Lifetimes, other: Lifetimes) -> Lifetimes:
    return Lifetimes(
        *(np.concatenate([getattr(each, name) for each in (one, other)]) for name in Lifetimes.__dataclass_fields__)
    )


def _notes(lost: int, differ: int, unseen: int) -> list[str]:
    counts = {
        "blocks that were allocated and not freed are not among those that the snapshot holds": lost,
        "blocks have another size at the end than when they were allocated": differ,
        "blocks were freed unrecorded, before their address was allocated again": unseen,
    }
    return [f"{count:,} {what}: the recording lacks events" for what, count in counts.items() if count]


def _of_events(trace: Allocations) -> Lifetimes:
    """The blocks that events allocate or free."""
    count, action = len(trace), trace.action
    rows = np.flatnonzero(np.isin(action, _OF_BLOCKS))
    order = rows[np.argsort(trace.address[rows], kind="stable")]
    if not len(order):
        return _none()
    address, did = trace.address[order], action[order]
    closing = np.isin(did, _CLOSING)
    same = address[1:] == address[:-1]
    new = np.append(True, ~same | (did[1:] == Action.ALLOC) | closing[:-1])
    first, life = np.flatnonzero(new), np.cumsum(new) - 1
    begun = did[first] == Action.ALLOC
    alloc = np.where(begun, order[first], -1)
    let_go, free = np.full((2, len(first)), count)
    ends = np.flatnonzero(closing)
    free[life[ends]] = order[ends]
    let_go[life[ends]] = np.where(begun[life[ends]] | (did[ends] == Action.FREE), order[ends], -1)
    asked = np.flatnonzero(did == Action.FREE_REQUESTED)[::-1]  # of several the first, which is written last
    let_go[life[asked]] = order[asked]
    unseen = np.zeros(len(first), np.bool_)
    unseen[:-1] = same[first[1:] - 1] & (free[:-1] == count)
    following = order[first[1:]]
    free[:-1] = np.where(unseen[:-1], following, free[:-1])
    let_go[:-1] = np.where(unseen[:-1], np.minimum(let_go[:-1], following), let_go[:-1])
    size = trace.size[order[first]]
    rounded = -(-size // _ROUND) * _ROUND if trace.exact and trace.device != CPU else size
    place = np.where(begun, trace.place[order[first]], -1)
    return Lifetimes(address[first], size, rounded, alloc, let_go, free, place, trace.stream[order[first]], unseen)
