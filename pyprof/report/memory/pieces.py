"""Free pieces of memory that an allocator held at a moment, and why a request did not fit when memory ran out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.allocations import Action
from pyprof.report.memory.replay import Replay

_SMALL = 1 << 20  # requests up to it come from segments of their own


class FreePieces(NamedTuple):
    """Free pieces, one row each. whole: it is a whole segment; usable: for the stream and the size that were asked about."""

    size: Ints
    whole: Bools
    usable: Bools
    private: Bools


class OutOfMemory(NamedTuple):
    """Memory ran out. event, time_ns: when; asked_bytes: what was asked for; device_free_bytes: free on the device, outside of
    the allocator; the other sizes are of what the allocator held, usable: for this stream and size; None is unknown."""

    event: int
    time_ns: int | None
    asked_bytes: int
    device_free_bytes: int | None
    requested_bytes: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    free_bytes: int | None
    usable_free_bytes: int | None
    largest_free_bytes: int | None
    pieces: int | None
    whole_segments_free_bytes: int | None
    private_free_bytes: int | None
    line: str | None
    op: str | None


def out_of_memory(found: Replay, event: int) -> OutOfMemory:
    """Describe what was free in which pieces when memory ran out."""
    trace = found.trace
    asked = int(trace.size[event])
    requested, allocated, reserved = found.at(event)
    pieces = free_pieces(found, event, int(trace.stream[event]), asked)
    device_free = trace.asked_free.get(event, -1)
    time, code = int(trace.time_ns[event]), int(trace.place[event])
    site = trace.places[code] if code >= 0 else None
    result = OutOfMemory(
        event, time if time >= 0 else None, asked, device_free if device_free >= 0 else None, requested, allocated, reserved,
        None, None, None, None, None, None, site and site.line, site and site.op,
    )  # fmt: skip
    if pieces is None:
        return result
    usable, shared = pieces.size[pieces.usable], ~pieces.private
    return result._replace(
        free_bytes=int(pieces.size[shared].sum()),
        usable_free_bytes=int(usable.sum()),
        largest_free_bytes=int(usable.max(initial=0)),
        pieces=len(usable),
        whole_segments_free_bytes=int(pieces.size[shared & pieces.whole].sum()),
        private_free_bytes=int(pieces.size[pieces.private].sum()),
    )


def free_pieces(found: Replay, moment: int, stream: int, asked: int) -> FreePieces | None:
    """The free pieces at a moment; None where the recording does not list segments.

    Segments at a moment are those at the end without those that came later, and those that went later.
    """
    trace, lives = found.trace, found.lives
    if trace.segments is None:
        return None
    later = np.flatnonzero(np.isin(trace.action, (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE)))
    later = later[later > moment]
    _, first = np.unique(trace.address[later], return_index=True)
    later = later[first]  # at each address the first change after the moment tells whether there was a segment
    came, went = (later[trace.action[later] == what] for what in (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE))
    held = trace.segments
    begin = np.concatenate([held.address, trace.address[went]])
    size = np.concatenate([held.size, trace.size[went]])
    streams = np.concatenate([held.stream, trace.stream[went]])
    large = np.concatenate([held.large, trace.size[went] > 2 * _SMALL])
    private = np.concatenate([held.private, np.zeros(len(went), np.bool_)])
    begin, rows = np.unique(begin, return_index=True)
    size, streams, large, private = size[rows], streams[rows], large[rows], private[rows]
    alive = lives.alive(moment)
    taken = np.concatenate([lives.address[alive], trace.address[came]])
    taken_size = np.concatenate([lives.allocated[alive], trace.size[came]])
    start, length, of = gaps(begin, size, taken, taken_size)
    whole = (start == begin[of]) & (length == size[of])
    usable = (streams[of] == stream) & ~private[of] & (large[of] == (asked > _SMALL))
    return FreePieces(length, whole, usable, private[of])


def gaps(begin: Array, size: Ints, taken: Array, taken_size: Ints) -> tuple[Array, Ints, Ints]:
    """Pieces of intervals that nothing takes: begins, lengths, and the interval of each."""
    order = np.argsort(taken, kind="stable")
    taken, end = taken[order], taken[order] + taken_size[order].astype(np.uint64)
    inside = np.searchsorted(begin, taken, "right") - 1
    keep = inside >= 0
    taken, end, inside = taken[keep], end[keep], inside[keep]
    of = np.concatenate([np.arange(len(begin)), inside])
    starts = np.concatenate([begin, end])  # a piece begins with its interval, or behind what is taken
    order = np.lexsort((starts, of))
    starts, of = starts[order], of[order]
    at = np.searchsorted(taken, starts)
    following = np.append(taken, np.uint64(1 << 63))[at]
    stop = np.minimum(following, begin[of] + size[of].astype(np.uint64))
    length = stop.astype(np.int64) - starts.astype(np.int64)
    free = length > 0
    return starts[free], length[free], of[free]
