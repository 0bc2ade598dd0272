"""Rule 5: ops, optimizers, ranges of the user and names of kernels -> phase and direction of each row; -1 where nothing says.

What an op or an autograd function ran is known from these. The phase of a kernel without an op is what its own name says, if
that is backward (`split_embedding_backward_…`), that of the innermost range of the user that is named after one (`Forward`,
`bwd`), that of the kernels around it on its thread, or that of its name on other rows, the first that is known. No files and no
formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from pyprof.arrays.columns import Columns
from pyprof.arrays.sorting import Groups, order_by, same_as_before
from pyprof.arrays.spool import computed, full, pieces, release, running_count, taken
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.hardware.kernels import is_of
from pyprof.opcall import OpCall
from pyprof.parse.attribution.ops import OpTable
from pyprof.parse.attribution.ranges import CaptureFacts
from pyprof.parse.records.records import DIRECTIONS, PHASES, Stack
from pyprof.parse.sources.trace import ActivityKind, Strings

FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, COPY = map(PHASES.index, PHASES)
_COMMUNICATION = frozenset({"nccl", "symm_mem_collective", "expert_parallel_comm"})
_WORDS = {
    "forward": FORWARD, "fwd": FORWARD, "fprop": FORWARD, "backward": BACKWARD, "bwd": BACKWARD, "bprop": BACKWARD,
    "backprop": BACKWARD, "optimizer": OPTIMIZER,
}  # fmt: skip
_WORD = r"(?i:feed.?forward)|[A-Z]+(?![a-z])|[A-Z]?[a-z]+"  # also of camelCase; a feed-forward layer runs in any phase
# A kernel that Inductor fused is named after all ops in it: relu's mask, `threshold_backward`, is made in forward.
_BACKWARD_KERNEL = r"(?i)^(?!triton_|graph_\d+_).*(?:backward|(?<![a-z])bwd(?![a-z]))"
_BACKWARD_OP = r"(?:.*_)?backward(?:_.*)?"
# Also outside of Optimizer.step: of GradScaler.unscale_ and update, and where the step is the user's own.
_OPTIMIZER_OP = r"_amp_(?:foreach_non_finite_check_and_unscale|update_scale)_?|_fused_(?:sgd|adamw?|adagrad)_?"

# Ranges of torch's own that run as a backward pass ends, outside of all autograd functions: DDP's averaged gradients.
_BACKWARD_RANGES = frozenset({"torch.distributed.ddp.reducer::copy_bucket_to_grad"})


def find_phases(capture: CaptureFacts, rows: Columns, columns: Columns, ops: OpTable, stacks: list[Stack]) -> dict[str, int]:
    """Put phase, dir and phase_inferred into columns; returns how many rows' phase is known from the name of their kernel
    alone. Takes optimizer."""
    kind, name, count = columns["kind"], columns["name"], len(columns["kind"])
    said, optimizer = _said(capture, rows, ops, stacks), rows.take("optimizer")
    phase = computed(count, np.int8, lambda part: np.where(optimizer[part], np.int8(OPTIMIZER), said(part)))
    inferred = full(count, False, np.bool_)
    bare = np.flatnonzero(computed(count, np.bool_, lambda part: phase[part] < 0))
    if len(bare):
        phase[bare] = np.array([*map(_phase_of_stack, stacks), -1], np.int8)[rows["stack"][bare]]
        named = _names_where(capture, name[bare], lambda text: re.search(_BACKWARD_KERNEL, text) is not None)
        inferred[bare] = named & (kind[bare] == ActivityKind.KERNEL) & (phase[bare] != BACKWARD)
        phase[bare[inferred[bare]]] = BACKWARD
        _fill_between(capture, rows, columns, phase)
        _fill_by_name(columns, phase, inferred)
    forward = np.int8(DIRECTIONS.index("fprop"))  # of the first two phases the codes are those of directions
    columns["dir"] = computed(count, np.int8, lambda part: np.where(phase[part] == OPTIMIZER, forward, phase[part]))
    communicates = texts_where(capture.trace.strings, columns["name"], lambda text: is_of(text, _COMMUNICATION))
    collective = _in_ops(capture, rows, ops, lambda call: call.module == "c10d")  # of gloo: ops and no kernels
    for part in pieces(count):
        own, of_kind = phase[part], kind[part]
        own[communicates[name[part]]] = COMMUNICATION
        own[(of_kind == ActivityKind.CPU) & collective(part)] = COMMUNICATION
        own[np.isin(of_kind, (ActivityKind.MEMCPY, ActivityKind.MEMSET))] = COPY
    columns["phase"] = phase
    columns["phase_inferred"] = computed(count, np.int8, lambda part: np.where(inferred[part], 1, -1))
    return {"kernels whose phase is inferred from their name": int(inferred.sum())}


def _said(capture: CaptureFacts, rows: Columns, ops: OpTable, stacks: list[Stack]) -> Callable[[slice], Array]:
    """What the ops, functions and ranges of torch's own around each row say, but for optimizers' ranges."""
    ends = np.array([*(not _BACKWARD_RANGES.isdisjoint(stack.ranges) for stack in stacks), False])
    backward, optimizer = (_in_ops(capture, rows, ops, holds) for holds in (_is_backward, _is_optimizer))
    op, stack, is_backward = rows["op"], rows["stack"], rows["is_backward"]

    def of_part(part: slice) -> Array:
        phase = np.where(op[part] >= 0, np.int8(FORWARD), np.int8(-1))
        phase[is_backward[part] | ends[stack[part]] | backward(part)] = BACKWARD
        phase[optimizer(part)] = OPTIMIZER
        return phase

    return of_part


def phase_of_range(name: str) -> int:
    """The phase that a range of the user is named after, -1 none: `Backward`, `train/fwd_pass`, but not `forward_backward`."""
    found = {_WORDS[word] for text in re.findall(_WORD, name) if (word := text.lower()) in _WORDS}
    return found.pop() if len(found) == 1 else -1


def _phase_of_stack(stack: Stack) -> int:
    """That of the innermost range named after one."""
    return next((phase for text in reversed(stack.ranges) if (phase := phase_of_range(text)) >= 0), -1)


def _in_ops(capture: CaptureFacts, rows: Columns, ops: OpTable, holds: Callable[[OpCall], bool]) -> Callable[[slice], Bools]:
    """Which rows ran in an op of which something holds, or whose innermost op is one."""
    calls = (marker.call for marker in capture.trace.markers)
    found = np.array([*(call is not None and holds(call) for call in calls), False], np.bool_)
    op, inner, label = rows["op"], rows["inner"], ops.label
    return lambda part: np.asarray(found[label[op[part]]] | found[inner[part]])


def _is_backward(call: OpCall) -> bool:
    """Whether only backward has the op (`aten::convolution_backward`), whatever called it."""
    return re.fullmatch(_BACKWARD_OP, call.op) is not None


def _is_optimizer(call: OpCall) -> bool:
    """Whether only optimizers have the op, and what scales their gradients."""
    return re.fullmatch(_OPTIMIZER_OP, call.op) is not None


def _names_where(capture: CaptureFacts, names: Array, holds: Callable[[str], bool]) -> Bools:
    """Which of these codes into strings are texts of which something holds; each text is looked at once."""
    return np.asarray(texts_where(capture.trace.strings, names, holds)[names])


def texts_where(strings: Strings, names: Array, holds: Callable[[str], bool]) -> Bools:
    """Of each string whether it is the name of a row and something holds of it; one more, for code -1."""
    found = np.zeros(len(strings) + 1, np.bool_)
    for part in pieces(len(names)):
        found[names[part]] = True
    for code in np.flatnonzero(found[:-1]).tolist():
        found[code] = holds(strings[code])
    found[-1] = False
    return found


def _fill_between(capture: CaptureFacts, rows: Columns, columns: Columns, phase: Array) -> None:
    """A row whose phase is unknown is forward where those launched last before it and first after it in its process are, and
    no other thread launched anything between these, nor did a step end. A CUDA graph, whose kernels have one launch in common,
    may hold a whole step: nothing next to it says what that is, nor does it of what is next to it."""
    thread, process = rows["launch_thread"], capture.process
    count = int(process.max(initial=-1)) + 1
    of_process = Groups(  # the last: nothing launched it
        computed(len(thread), np.int32, lambda part: np.where(thread[part] >= 0, process[thread[part]], count)), count + 1
    )
    for number in range(count):
        _fill_between_of(rows, columns, of_process.long(number), phase)
        release()


def _fill_between_of(rows: Columns, columns: Columns, launched: Array, phase: Array) -> None:
    """The same for the rows of one process."""
    own = computed(len(launched), np.int8, lambda part: phase[launched[part]])
    if not (own < 0).any():
        return
    when, tid = (taken(columns[name], launched) for name in ("launch_ns", "tid"))
    place = order_by(when, lambda at: (tid[at], own[at]))  # by values alone, so that no order of the file shows
    order = computed(len(place), place.dtype, lambda part: launched[place[part]])
    rest = np.logical_not(same_as_before(tid, place))
    same = same_as_before(when, place)
    same &= ~rest
    rest |= np.logical_not(same_as_before(columns["step"], order))
    graph = computed(
        len(order), np.bool_, lambda part: rows["in_graph"][order[part]] | (columns["kind"][order[part]] == ActivityKind.GRAPH)
    )
    graph[1:] |= same
    graph[:-1] |= same
    known = computed(len(order), np.bool_, lambda part: (phase[order[part]] >= 0) | graph[part])
    run = running_count(rest)  # one less than rows
    begin, end = _stretches_without(known)
    alike = np.where(begin > 1, run[begin - 2], 0) == run[end - 1]
    begin, end = begin[alike], end[alike]
    inside = (phase[order[begin - 1]] == FORWARD) & (phase[order[end]] == FORWARD)
    begin, end = begin[inside], end[inside]
    for part in pieces(len(order)):
        some = slice(np.searchsorted(end, part.start, "right"), np.searchsorted(begin, part.stop))
        edges = np.zeros(part.stop - part.start + 1, np.int8)
        edges[np.maximum(begin[some] - part.start, 0)] = 1
        edges[np.minimum(end[some], part.stop) - part.start] = -1
        phase[order[part][np.cumsum(edges[:-1], dtype=np.int8) > 0]] = FORWARD


def _stretches_without(mask: Bools) -> tuple[Ints, Ints]:
    """The longest stretches of false ones that have a true one on both sides: where each begins, and where it has ended."""
    changes = [np.flatnonzero(np.diff(mask[part.start : part.stop + 1])) + part.start + 1 for part in pieces(len(mask))]
    at = np.concatenate([*changes, np.empty(0, np.int64)])
    begin, end = at[:-1], at[1:]
    false = ~mask[begin]
    return begin[false], end[false]


def _fill_by_name(columns: Columns, phase: Array, inferred: Bools) -> None:
    """A kernel whose phase is unknown has that of the other kernels of its name, where these have one."""
    kind, name = columns["kind"], columns["name"]
    seen = np.zeros((OPTIMIZER + 1, int(name.max(initial=-1)) + 2), np.bool_)
    for part in pieces(len(phase)):
        own = phase[part]
        known = (kind[part] == ActivityKind.KERNEL) & (own >= 0) & ~inferred[part]
        seen[own[known], name[part][known]] = True
    alone = np.where(seen.sum(axis=0) == 1, seen.argmax(axis=0), -1).astype(np.int8)
    for part in pieces(len(phase)):
        bare = np.flatnonzero((kind[part] == ActivityKind.KERNEL) & (phase[part] < 0)) + part.start
        phase[bare] = alone[name[bare]]
        inferred[bare] = phase[bare] >= 0
