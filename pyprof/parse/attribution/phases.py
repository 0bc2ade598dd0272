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
from pyprof.arrays.types import Bools, Ints
from pyprof.hardware.kernels import classify
from pyprof.opcall import OpCall
from pyprof.parse.attribution.ops import OpTable
from pyprof.parse.attribution.ranges import CaptureFacts
from pyprof.parse.records.records import DIRECTIONS, PHASES, Stack
from pyprof.parse.sources.trace import ActivityKind

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
    kernel = columns["kind"] == ActivityKind.KERNEL
    phase = np.where(rows["op"] >= 0, FORWARD, -1)
    ends = np.array([*(not _BACKWARD_RANGES.isdisjoint(stack.ranges) for stack in stacks), False])[rows["stack"]]
    phase[rows["is_backward"] | ends | _in_ops(capture, rows, ops, _is_backward)] = BACKWARD
    phase[rows.take("optimizer") | _in_ops(capture, rows, ops, _is_optimizer)] = OPTIMIZER
    inferred = np.zeros(len(phase), np.bool_)
    of_name = columns["name"].astype(np.int64)
    bare = np.flatnonzero(phase < 0)
    if len(bare):
        phase[bare] = np.array([*map(_phase_of_stack, stacks), -1])[rows["stack"][bare]]
        named = _names_where(capture, of_name[bare], lambda name: re.search(_BACKWARD_KERNEL, name) is not None)
        inferred[bare] = named & kernel[bare] & (phase[bare] != BACKWARD)
        phase[inferred] = BACKWARD
        _fill_between(capture, rows, columns, phase)
        _fill_by_name(of_name, kernel, phase, inferred)
    columns["dir"] = np.where(phase == OPTIMIZER, DIRECTIONS.index("fprop"), phase)  # of the first two the codes are the same
    phase[_names_where(capture, of_name, lambda name: classify(name).family in _COMMUNICATION)] = COMMUNICATION
    cpu = columns["kind"] == ActivityKind.CPU
    if cpu.any():  # collectives of gloo are ops and no kernels
        phase[cpu & _in_ops(capture, rows, ops, lambda call: call.module == "c10d")] = COMMUNICATION
    phase[np.isin(columns["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET))] = COPY
    columns["phase"], columns["phase_inferred"] = phase, np.where(inferred, 1, -1)
    return {"kernels whose phase is inferred from their name": int(inferred.sum())}


def phase_of_range(name: str) -> int:
    """The phase that a range of the user is named after, -1 none: `Backward`, `train/fwd_pass`, but not `forward_backward`."""
    found = {_WORDS[word] for text in re.findall(_WORD, name) if (word := text.lower()) in _WORDS}
    return found.pop() if len(found) == 1 else -1


def _phase_of_stack(stack: Stack) -> int:
    """That of the innermost range named after one."""
    return next((phase for text in reversed(stack.ranges) if (phase := phase_of_range(text)) >= 0), -1)


def _in_ops(capture: CaptureFacts, rows: Columns, ops: OpTable, holds: Callable[[OpCall], bool]) -> Bools:
    """Which rows ran in an op of which something holds, or whose innermost op is one."""
    calls = (marker.call for marker in capture.trace.markers)
    found = np.array([*(call is not None and holds(call) for call in calls), False], np.bool_)
    return np.asarray(found[ops.label[rows["op"]]] | found[rows["inner"]])


def _is_backward(call: OpCall) -> bool:
    """Whether only backward has the op (`aten::convolution_backward`), whatever called it."""
    return re.fullmatch(_BACKWARD_OP, call.op) is not None


def _is_optimizer(call: OpCall) -> bool:
    """Whether only optimizers have the op, and what scales their gradients."""
    return re.fullmatch(_OPTIMIZER_OP, call.op) is not None


def _names_where(capture: CaptureFacts, names: Ints, holds: Callable[[str], bool]) -> Bools:
    """Which of these codes into strings are texts of which something holds; each text is looked at once."""
    strings = capture.trace.strings
    found = np.zeros(len(strings) + 1, np.bool_)
    found[names] = True
    for code in np.flatnonzero(found[:-1]).tolist():
        found[code] = holds(strings[code])
    found[-1] = False
    holds_of: Bools = found[names]
    return holds_of


def _fill_between(capture: CaptureFacts, rows: Columns, columns: Columns, phase: Ints) -> None:
    """A row whose phase is unknown is forward where those launched last before it and first after it in its process are, and
    no other thread launched anything between these, nor did a step end. A CUDA graph, whose kernels have one launch in common,
    may hold a whole step: nothing next to it says what that is, nor does it of what is next to it."""
    launched = np.flatnonzero(rows["launch_thread"] >= 0)
    thread = rows["launch_thread"][launched]
    where = (capture.process[thread], columns["launch_ns"][launched], columns["tid"][launched], phase[launched])
    order = launched[turn := np.lexsort(where[::-1])]  # by values alone, so that no order of the file shows
    same = np.logical_and.reduce([np.diff(column[turn]) == 0 for column in where[:3]])
    graph = (rows["in_graph"] | (columns["kind"] == ActivityKind.GRAPH))[order]
    graph |= np.append(same, False) | np.insert(same, 0, False)
    known, place = (phase[order] >= 0) | graph, np.arange(len(order))
    ends = [np.diff(column, prepend=-1) != 0 for column in (where[0][turn], where[2][turn], columns["step"][order])]
    run = np.cumsum(np.logical_or.reduce(ends))  # a number for each stretch on one thread and in one step
    before = np.maximum.accumulate(np.where(known, place, -1))
    after = np.minimum.accumulate(np.where(known, place, len(order))[::-1])[::-1]
    at = np.flatnonzero(~known & (before >= 0) & (after < len(order)))
    at = at[(run[before[at]] == run[at]) & (run[after[at]] == run[at])]
    inside = (phase[order[before[at]]] == FORWARD) & (phase[order[after[at]]] == FORWARD)
    phase[order[at[inside]]] = FORWARD


def _fill_by_name(name: Ints, kernel: Bools, phase: Ints, inferred: Bools) -> None:
    """A kernel whose phase is unknown has that of the other kernels of its name, where these have one."""
    seen = np.zeros((OPTIMIZER + 1, int(name.max(initial=-1)) + 2), np.bool_)
    known = kernel & (phase >= 0) & ~inferred
    seen[phase[known], name[known]] = True
    alone = np.where(seen.sum(axis=0) == 1, seen.argmax(axis=0), -1)
    bare = np.flatnonzero(kernel & (phase < 0))
    phase[bare] = alone[name[bare]]
    inferred[bare] = phase[bare] >= 0
