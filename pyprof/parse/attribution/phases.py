"""Rule 5: ops, optimizers, user ranges and kernel names -> phase and direction of each row, -1 unknown.

A kernel takes the phase of the autograd function or optimizer that it ran in, else of the innermost user range named after
one (`Forward`, `bwd`, `mlp(W)`), else forward where it has an op. For a kernel without all of these the first known of these
counts: its own name, if that is backward (`split_embedding_backward_...`); the phase of the kernels around it on its thread;
the phase of other kernels of its name. No files and no formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pyprof.columns.sorting import order_by, same_as_before
from pyprof.columns.types import Array, Bools, Ints
from pyprof.hardware.kernels import is_of
from pyprof.model.opcall import OpCall
from pyprof.model.records import DIRECTIONS, PHASES, Stack
from pyprof.model.trace import ActivityKind, Strings
from pyprof.parse.attribution.launches import Launched, take
from pyprof.parse.attribution.ranges import COLLECTIVES, CaptureFacts
from pyprof.parse.attribution.slices import KernelRanges

FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, COPY = map(PHASES.index, PHASES)
_COMMUNICATION = frozenset({"nccl", "symm_mem_collective", "expert_parallel_comm"})
_WORDS = {
    "forward": FORWARD, "fwd": FORWARD, "fprop": FORWARD, "backward": BACKWARD, "bwd": BACKWARD, "bprop": BACKWARD,
    "backprop": BACKWARD, "dgrad": BACKWARD, "wgrad": BACKWARD, "optimizer": OPTIMIZER,
}  # fmt: skip
_OTHERWISE = frozenset("after before compat direction no non not skip state without".split())  # `skip_backward`
_PARTS = {"(F)": FORWARD, "(B)": BACKWARD, "(W)": BACKWARD}  # of a pipeline's schedule: forward, gradient of inputs, of weights
_WORD = r"(?i:feed.?forward)|[A-Z]+(?![a-z])|[A-Z]?[a-z]+"  # also of camelCase; a feed-forward layer runs in any phase
# A kernel that Inductor fused is named after all ops in it: relu's mask, `threshold_backward`, is made in forward.
_BACKWARD_KERNEL = re.compile(r"(?i)^(?!triton_|graph_\d+_).*(?:backward|(?<![a-z])bwd(?![a-z]))")
# Ops that only backward has, whatever called them, and that only optimizers have.
_BACKWARD_OP = r"(?:.*_)?backward(?:_.*)?"
# Modules whose ops call those of backward only in forward-mode differentiation, outside of the engine.
_NOT_BACKWARD = "aten|torch|Tensor"
# Also outside of Optimizer.step: of GradScaler.unscale_ and update, and where the step is the user's own.
_OPTIMIZER_OP = r"_amp_(?:foreach_non_finite_check_and_unscale|update_scale)_?|_fused_(?:sgd|adamw?|adagrad)_?"

# Ranges of torch's own that run as a backward pass ends, outside of all autograd functions: DDP's averaged gradients.
_BACKWARD_RANGES = frozenset({"torch.distributed.ddp.reducer::copy_bucket_to_grad"})


@dataclass(eq=False, repr=False)
class Evidence:
    """All that tells the phase of a row. op: label of its op, -1 none; kernels: the ranges around it; kind, name: of the
    activity; stacks: the distinct ones."""

    op: Array
    kernels: KernelRanges
    is_backward: Bools
    launches: Launched
    step: Array
    kind: Array
    name: Array
    stacks: list[Stack]


@dataclass(eq=False, repr=False)
class Phases:
    """Codes of each row into PHASES and DIRECTIONS, -1 unknown; inferred: whether only the kernel's name tells the phase."""

    phase: Array
    direction: Array
    inferred: Bools


def find_phases(capture: CaptureFacts, says: Evidence) -> Phases:
    """Phase and direction of each row."""
    kind, name, strings = says.kind, says.name, capture.trace.strings
    ends = np.array([*(not _BACKWARD_RANGES.isdisjoint(stack.ranges) for stack in says.stacks), False])
    of_stack = np.full(len(says.stacks) + 1, -1, np.int8)  # the phase that the innermost range named after one says
    for code, stack in enumerate(says.stacks):
        of_stack[code] = next((one for text in reversed(stack.ranges) if (one := phase_of_range(text)) >= 0), -1)
    said = of_stack[says.kernels.stack]
    # An op that runs again inside backward is forward, whatever is around.
    phase = np.where((says.op >= 0) & ((said < 0) | (says.kernels.state == 1)), np.int8(FORWARD), said)
    backward = _in_ops(capture, says, lambda call: re.fullmatch(_BACKWARD_OP, call.op) is not None, _NOT_BACKWARD)
    phase[says.is_backward | ends[says.kernels.stack] | backward] = BACKWARD
    optimizer = _in_ops(capture, says, lambda call: re.fullmatch(_OPTIMIZER_OP, call.op) is not None)
    phase[says.kernels.optimizer | optimizer] = OPTIMIZER
    inferred = np.zeros(len(kind), np.bool_)
    bare = np.flatnonzero(phase < 0)
    if len(bare):
        named = texts_where(strings, name[bare], _BACKWARD_KERNEL.search)
        inferred[bare] = named & (kind[bare] == ActivityKind.KERNEL)
        phase[bare[inferred[bare]]] = BACKWARD
        thread = says.launches.launch_thread
        process, tid = np.where(thread >= 0, capture.process[thread], -1), take(capture.trace.threads["tid"], thread)
        for number in range(int(capture.process.max(initial=-1)) + 1):
            launched = np.flatnonzero(process == number)
            if (phase[launched] < 0).any():
                _fill_between(says, tid[launched], said, launched, phase)
        # A kernel that is still without one gets the phase of the other kernels of its name, if they all agree.
        kernel = kind == ActivityKind.KERNEL
        seen = np.zeros((OPTIMIZER + 1, int(name.max(initial=-1)) + 2), np.bool_)
        known = kernel & (phase >= 0) & ~inferred
        seen[phase[known], name[known]] = True
        alone = np.where(seen.sum(axis=0) == 1, seen.argmax(axis=0), -1).astype(np.int8)
        bare = np.flatnonzero(kernel & (phase < 0))
        phase[bare] = alone[name[bare]]
        inferred[bare] = phase[bare] >= 0
    # The codes of the first two phases are those of directions.
    direction = np.where(phase == OPTIMIZER, np.int8(DIRECTIONS.index("fprop")), phase)
    phase[texts_where(strings, name, lambda text: is_of(text, _COMMUNICATION))] = COMMUNICATION
    # Of gloo there are ops and no kernels.
    phase[(kind == ActivityKind.CPU) & _in_ops(capture, says, lambda call: call.module in COLLECTIVES)] = COMMUNICATION
    phase[np.isin(kind, (ActivityKind.MEMCPY, ActivityKind.MEMSET))] = COPY
    return Phases(phase, direction, inferred)


def phase_of_range(name: str) -> int:
    """The phase that a user range is named after, -1 none: `Backward`, `train/fwd_pass`, `mlp(W)`, not `forward_backward`, nor
    torch's own `Optimizer.zero_grad#SGD.zero_grad`, in which no optimizer runs."""
    if name.startswith("Optimizer.zero_grad#"):
        return -1
    if name.startswith("Torch-Compiled Region: !"):  # so torch writes the graph of compiled autograd
        return BACKWARD
    if not _OTHERWISE.isdisjoint(text.lower() for text in re.findall(_WORD, name)):
        return -1
    found = {_WORDS[word] for text in re.findall(_WORD, name) if (word := text.lower()) in _WORDS}
    found |= {phase for part, phase in _PARTS.items() if part in name}
    return found.pop() if len(found) == 1 else -1


def _in_ops(capture: CaptureFacts, says: Evidence, holds: Callable[[OpCall], bool], alone: str = "$^") -> Bools:
    """Which rows ran in an op for which `holds` is true, or have such an innermost op. alone: modules whose ops speak alone."""
    calls = [marker.call for marker in capture.trace.markers]
    found = np.array([*(call is not None and holds(call) for call in calls), False], np.bool_)
    own = np.array([*(call is not None and re.match(alone, call.module) is not None for call in calls), False], np.bool_)
    return np.asarray(found[says.op] | (found[says.kernels.inner] & ~own[says.op]))


def texts_where(strings: Strings, names: Array, holds: Callable[[str], object]) -> Bools:
    """For each code of a name whether `holds` is true for its text, asked once per distinct one; not for -1."""
    found = np.zeros(len(strings) + 1, np.bool_)
    found[names] = True
    for code in np.flatnonzero(found[:-1]).tolist():
        found[code] = bool(holds(strings[code]))
    found[-1] = False
    return np.asarray(found[names])


def _fill_between(says: Evidence, tid: Ints, said: Array, launched: Ints, phase: Array) -> None:
    """Mark a row of one process without a phase as forward if the rows launched last before it and first after it are forward,
    no other thread launched anything between these, no step ended, and all of them lie in one user range, or side by side in
    ranges of one that name no phase. Next to a CUDA graph nothing is concluded: its kernels share one launch, and it may hold
    a whole step. launched: the rows; tid: thread id of each; said: the phase that the ranges around each row name, -1 none."""
    own, when = phase[launched], says.launches.launch_ns[launched]
    place = order_by(when, lambda at: (tid[at], own[at]))  # by values alone, so that no order of the file shows
    order = launched[place]
    rest = ~same_as_before(tid, place)
    same = same_as_before(when, place) & ~rest
    rest |= ~same_as_before(says.step, order)
    graph = says.launches.in_graph[order] | (says.kind[order] == ActivityKind.GRAPH)
    graph[1:] |= same
    graph[:-1] |= same
    known = (phase[order] >= 0) | graph
    run = np.cumsum(rest)  # one less than rows
    # The longest stretches of unknown ones that have a known one on both sides.
    at = np.flatnonzero(known[1:] != known[:-1]) + 1
    begin, end = at[:-1], at[1:]
    unknown = ~known[begin]
    begin, end = begin[unknown], end[unknown]
    alike = np.where(begin > 1, run[begin - 2], 0) == run[end - 1]
    begin, end = begin[alike], end[alike]
    user, outer = says.kernels.user[order], says.kernels.outer_user[order]
    lone = (user < 0) | (said[order] >= 0)
    ranges = np.append(0, np.cumsum(user[1:] != user[:-1])), np.append(0, np.cumsum((outer[1:] != outer[:-1]) | lone[1:]))
    in_one, side_by_side = (number[begin - 1] == number[end] for number in ranges)
    inside = (phase[order[begin - 1]] == FORWARD) & (phase[order[end]] == FORWARD)
    inside &= in_one | (side_by_side & ~lone[begin - 1])
    edges = np.zeros(len(order) + 1, np.int8)
    edges[begin[inside]] = 1
    edges[end[inside]] = -1
    phase[order[np.cumsum(edges[:-1], dtype=np.int8) > 0]] = FORWARD
