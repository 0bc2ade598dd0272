"""Rule 2: the ranges around each kernel -> a code, and one `Stack` object for each distinct code; its sequence numbers.

Real captures have thousands of distinct chains of ranges for a million kernels: each is described once.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pyprof.columns.distinct import distinct_rows, distinct_values, extent
from pyprof.columns.nesting import by_thread
from pyprof.columns.sorting import places_in_runs
from pyprof.columns.types import Bools, Integers, Ints, Positions
from pyprof.model.markers import Kind, Marker, is_backward_name, is_compiler
from pyprof.model.records import Records, Stack
from pyprof.model.scheduler_steps import read
from pyprof.model.trace import ActivityKind, Trace
from pyprof.parse.attribution.launches import gather
from pyprof.parse.attribution.ranges import CONTEXT, NEVER, Nested, SetAside

_Number = TypeVar("_Number", int, Ints)

# A stack has bounds, for ranges pile up where a program leaks them or recurses.
_MOST_ASIDE = 32  # ranges that were never closed, and start/end ranges that cross others: of each the first
_QUALIFIED = ("module", "layerwise")  # whose layers' names are paths from the root
_ENDS = 64  # nested ranges: so many of the outermost and of the innermost
_DEEP = f"kernels inside more than {2 * _ENDS} nested ranges; the {_ENDS} outermost and the {_ENDS} innermost are kept"
_CROWDED = f"kernels inside more than {_MOST_ASIDE} ranges that overlap or were never closed; the first are kept"
# Domains of libraries, and what their ranges begin with: they are not layers of the user's.
_LIBRARY_DOMAINS = frozenset("NCCL cuBLAS cuBLASLt cuDNN cuSPARSE cuSOLVER cuFFT CCCL libcudf NVSHMEM".split())
_LIBRARY_RANGES = (
    "nccl", "gloo", "hccl:", "xccl:", "mccl:", "cncl:", "ucc:", "mpi:", "cublas", "cudnn", "FSDP::", "torch.distributed.",
    "torch::distributed::", "enumerate(DataLoader)", "Optimizer.zero_grad#", "Torch-Compiled Region", "## Call CompiledFxGraph",
    "DistributedDataParallel.forward", "DataParallel.forward", "FullyShardedDataParallel._", "dynamo", "TorchDynamo",
    "TORCHDYNAMO", "Pregraph bytecode",
)  # fmt: skip
# Modules that torch puts around the user's, and the names under which these lie in them.
_PARALLEL = frozenset({"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"})
_WRAPPERS = _PARALLEL | {"OptimizedModule", "CheckpointWrapper", "GraphModule"}
_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
# Files of torch through which a call passes on its way to the op; they are not the user's program. The first line is the
# original's list, so that `trace` stays what it was.
_LIBRARY_FILE = (
    r"[/\\]torch[/\\](nn/modules/|nn/functional\.py|tensor\.py|autograd/__init__\.py|_jit_internal\.py|_utils\.py|optim/"
    r"|_tensor\.py|autograd/graph\.py|utils/_contextlib\.py|_ops\.py|_dynamo/|_functorch/|_inductor/)"
    r"|[/\\]apex[/\\]optimizers[/\\]|[/\\]pyprof[/\\](nvtx|recording|capture)[/\\]"
)


class Placed(NamedTuple):
    """Where kernels were launched. at: position of the innermost range; by_time: whether that is the main thread's; when:
    ns."""

    at: Positions
    by_time: Bools
    thread: Integers
    when: Ints


class Stacks:
    """Gives codes to stacks; `stacks` are the distinct ones so far. Ranges may come nested in slices, one after another.

    cut: number of kernels with an incomplete stack, by reason.
    """

    def __init__(self, trace: Trace, aside: SetAside) -> None:
        self.trace, self.aside = trace, aside
        self.stacks: list[Stack] = []
        self._classes: dict[str, set[str]] = {}
        self.cut = {_DEEP: 0, _CROWDED: 0}
        self._aside_of = by_thread(aside.thread, np.arange(len(aside.thread)))
        self._chains = _Chains()
        self._units: dict[int, _Unit] = {}  # by their packed number
        self._domains = extent(trace.ranges["domain"])[1] + 2
        self._sources = extent(trace.ranges["src"])[1] + 2
        self._code_of: dict[Hashable, int] = {}
        self._known: dict[tuple[int, int, int], int] = {}  # chain, by time, set of ranges aside -> code
        self._sets: list[tuple[int, ...]] = [()]  # distinct sets of ranges aside, by code
        self._set_of: dict[tuple[int, ...], int] = {(): 0}

    def chains(self, nested: Nested, seq: Ints, *wanted: Positions) -> Ints:
        """An id for the chain of (label, domain, source line, whether it has a number) of each wanted range, equal ones alike.

        seq: sequence number of each position. The result is by position, -1 at position -1; ranges that are neither wanted nor
        around a wanted one have no valid id.
        """
        used = np.zeros(len(nested.row) + 1, np.bool_)
        for at in wanted:
            used[at] = True
        for level, above in reversed(nested.levels):
            used[above[used.take(level)]] = True
        ids = np.full(len(nested.row) + 1, -1, np.int32)
        for level, above in nested.levels:
            there = used.take(level)
            here = level[there]
            if not len(here):
                break
            label, domain, src = gather(self.trace.ranges, nested.row[here], "label", "domain", "src")
            unit = self._pack(label.astype(np.int64), domain, src, (seq[here] >= 0).astype(np.int64))
            distinct = distinct_rows(ids.take(above[there]), unit)  # parent -1 reads the last element, which stays -1
            ids[here] = np.array(list(map(self._chains.id, *distinct.columns.tolist())))[distinct.inverse]
        return ids.astype(np.int64)

    def codes(self, placed: Placed, chains: Ints, *, count_cut: bool = True) -> Ints:
        """Code of each kernel's stack: innermost range, whether taken by time, the ranges aside open at that time on its
        thread. count_cut: count the incomplete stacks (not for ranges, which are no kernels)."""
        chain = chains[placed.at]
        aside, crowded = self._open_sets(placed.thread, placed.when)
        if count_cut:
            self.cut[_DEEP] += int((np.array([*self._chains.depth, -1])[chain] >= 2 * _ENDS).sum())
            self.cut[_CROWDED] += crowded
        distinct, codes = distinct_rows(chain, placed.by_time, aside), []
        for key in zip(*distinct.columns.tolist(), strict=True):
            if key not in self._known:
                self._known[key] = self._new(key[0], bool(key[1]), self._sets[key[2]])
            codes.append(self._known[key])
        return np.array(codes, np.int64)[distinct.inverse]

    def _open_sets(self, thread: Integers, when: Ints) -> tuple[Ints, int]:
        """A code for the set of ranges aside that are open on each thread at each time, 0 the empty set; and how many sets are
        cut."""
        result, cut = np.zeros(len(thread), np.int64), 0
        if not self._aside_of:
            return result, cut
        for number, mine in by_thread(thread, np.arange(len(thread))).items():
            if number in self._aside_of:
                mine = mine[np.argsort(when[mine], kind="stable")]
                result[mine], more = self._sets_at(self._aside_of[number], when[mine])
                cut += more
        return result, cut

    def _sets_at(self, rows: Ints, times: Ints) -> tuple[Ints, int]:
        """`_open_sets` for one thread at ascending times: one sweep over begins and ends, in which a set has a bounded size."""
        ends = self.aside.end[rows]
        never = ends == NEVER
        # In numbers of `times`: a range is open at times[begin:end].
        begin = np.searchsorted(times, self.aside.start[rows], "left")
        end = np.where(never, len(times), np.searchsorted(times, ends, "left"))
        shown = begin < end
        changes = distinct_values(np.concatenate([begin[shown], end[shown], [0, len(times)]]))
        events: dict[int, list[int]] = {}
        for index in np.flatnonzero(shown).tolist():
            events.setdefault(int(begin[index]), []).append(index)
            events.setdefault(int(end[index]), []).append(~index)
        opened: list[int] = []  # open ranges, ascending: in order of begin
        leaks: list[int] = []
        leaked = cut = 0
        result = np.zeros(len(times), np.int64)
        for since, until in pairwise(changes.tolist()):
            for event in sorted(events.get(since, ())):  # ends first
                if event < 0:
                    opened.pop(bisect_left(opened, ~event))
                elif not never[event]:
                    insort(opened, event)
                else:
                    leaked += 1
                    leaks += [event] * (leaked <= _MOST_ASIDE)
            cut += (until - since) * (max(leaked, len(opened)) > _MOST_ASIDE)
            members = tuple(rows[sorted([*leaks, *opened[:_MOST_ASIDE]])].tolist())
            code = self._set_of.setdefault(members, len(self._sets))
            self._sets += [members] * (code == len(self._sets))
            result[since:until] = code
        return result, cut

    def _new(self, chain: int, by_time: bool, members: tuple[int, ...]) -> int:
        units, opened = [], False
        for index in members:  # what nests with nothing is outermost, wherever it began
            label, domain, src = (int(column[index]) for column in (self.aside.label, self.aside.domain, self.aside.src))
            units.append(self._pack(label, domain, src, 0))
            opened |= bool(self.aside.end[index] == NEVER)
        inside = self._chains.units(chain)
        units += [packed for packed in inside if self._unit(packed).marker.kind in CONTEXT] if by_time else inside
        key = (by_time, opened, *units)
        code = self._code_of.get(key)
        if code is None:
            code = self._code_of[key] = len(self.stacks)
            modules = [one.marker for one in map(self._unit, units) if one.marker.scope in _QUALIFIED]
            for at, one in enumerate(modules):
                path = one.name if one.cls in _WRAPPERS else _module_path(modules[: at + 1])
                self._classes.setdefault(path, set()).add(one.cls)
            described = [*map(self._unit, units)]
            inside_of = next((at for at, one in enumerate(described) if is_compiler(one.marker.name)), len(described))
            described[inside_of:] = [one._replace(layer=None) for one in described[inside_of:]]  # torch.compile's own
            self.stacks.append(_describe(described, opened=opened))
        return code

    @property
    def classes(self) -> dict[str, str]:
        """Classes of the modules around kernels by their paths, "" where several have one; torch's wrappers by their own."""
        own = {path: (found - _WRAPPERS or found) - {""} for path, found in self._classes.items()}
        return {path: min(found) if len(found) == 1 else "" for path, found in own.items() if found}

    def _pack(self, label: _Number, domain: _Number, src: _Number, numbered: _Number) -> _Number:
        """Everything that a stack holds of a range, in one number."""
        return ((label * self._domains + domain + 1) * 2 + numbered) * self._sources + src + 1

    def _unit(self, packed: int) -> _Unit:
        unit = self._units.get(packed)
        if unit is None:
            rest, src = divmod(packed, self._sources)
            rest, numbered = divmod(rest, 2)
            label, domain = divmod(rest, self._domains)
            marker, named, source = self.trace.markers[label], self.trace.strings[domain - 1], self.trace.strings[src - 1]
            shown = layer = None
            if marker.kind == Kind.USER:
                shown = f"{named}:{marker.name}" if named else marker.name
                of_library = named in _LIBRARY_DOMAINS or marker.name.startswith(_LIBRARY_RANGES)
                # Steps of serving engines have columns of their own.
                of_library |= is_compiler(marker.name)
                layer = None if of_library or read(marker.name) is not None else marker.name
            unit = self._units[packed] = _Unit(marker, source, bool(numbered), shown, layer)
        return unit


@dataclass(eq=False, repr=False)
class _Chains:
    """Chains of ranges as a tree of units, each known by its unit and the chain around it. Long ones are kept at both ends.

    depth: number of ranges around each; _outer: the last one around it that still counts among the outermost; -1: it does
    itself.
    """

    _id_of: dict[tuple[int, int], int] = field(default_factory=dict)
    _above: list[int] = field(default_factory=list)
    _unit: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    _outer: list[int] = field(default_factory=list)

    def id(self, above: int, unit: int) -> int:
        """Id of a unit inside a chain, -1 for none around it."""
        found = self._id_of.get((above, unit))
        if found is None:
            found = self._id_of[above, unit] = len(self._unit)
            depth = self.depth[above] + 1 if above >= 0 else 0
            self._above.append(above)
            self._unit.append(unit)
            self.depth.append(depth)
            self._outer.append(-1 if depth < _ENDS else above if depth == _ENDS else self._outer[above])
        return found

    def units(self, chain: int) -> list[int]:
        """The units that are kept, outermost first."""
        found: list[int] = []
        while chain >= 0:
            found.append(self._unit[chain])
            outer = self._outer[chain] if len(found) == _ENDS else -1
            chain = outer if outer >= 0 else self._above[chain]
        return found[::-1]


# ---------------------------------------------------------------------------------------------- sequence numbers


def sequence_numbers(nested: Nested, at: Positions, seq: Ints) -> tuple[Ints, Ints]:
    """Sequence numbers of each stack, outermost first, as (offsets, numbers); of a long stack only both ends."""
    # For each range the last one around it that still counts among the outermost; -1: it does itself.
    outer = np.full(len(nested.row) + 1 if len(nested.levels) > _ENDS else 0, -1, np.int32)
    for depth, (level_at, above) in enumerate(nested.levels[_ENDS:], _ENDS):
        outer[level_at] = above if depth == _ENDS else outer[above]
    found: list[tuple[Ints, Ints]] = []  # rows and numbers, from the innermost ranges outwards
    counts = np.zeros(len(at) + 1, np.int64)
    rows, level = np.arange(len(at)), 0
    current: Integers = at
    while len(rows):
        alive = current >= 0
        current, rows = current[alive], rows[alive]
        has = seq[current] >= 0
        found.append((rows[has], seq[current[has]]))
        counts[rows[has] + 1] += 1
        outwards = nested.parent[current]
        if level == _ENDS - 1 and len(outer):
            outwards = np.where(outer[current] >= 0, outer[current], outwards)
        current = outwards
        level += 1
    offsets = np.cumsum(counts)
    numbers, end = np.empty(int(offsets[-1]), np.int64), offsets[1:].copy()
    for rows, values in found:
        end[rows] -= 1
        numbers[end[rows]] = values
    return offsets, numbers


def main_numbers(records: Records, on_engine: Bools) -> Ints:
    """The sequence number that counts for each record: of its autograd function, else the lowest that is not 0; 0 if it has no
    other, -1 if none."""
    backward_at, behind = np.empty((2, len(records.stacks)), np.int64)
    for code, stack in enumerate(records.stacks):
        backward_at[code], behind[code] = stack.backward_at, 0
        for place, name in enumerate(stack.seq_names):
            if is_backward_name(name):
                behind[code] = place + 1
    offsets, of, again = records.seq_offsets, records["stack"], records["recomputed"] == 1
    # Of an op that runs again none of the numbers of the function around it counts.
    least = np.where(again, behind[of], 0)
    rows, lengths, numbers = len(records), np.diff(offsets), records.seq_numbers
    owner = np.repeat(np.arange(rows), lengths)
    positive = (numbers > 0) & (np.arange(len(numbers)) - offsets[owner] >= least[owner])
    low = np.full(rows, np.iinfo(np.int64).max)
    np.minimum.at(low, owner[positive], numbers[positive])
    main = np.where(low < np.iinfo(np.int64).max, low, np.where(lengths > least, 0, -1))
    main[on_engine] = -1  # the engine's own counter means nothing
    has = (backward_at[of] >= 0) & ~again
    main[has] = records.seq_numbers[offsets[:-1][has] + backward_at[of[has]]]
    return main


def running_numbers(records: Records, thread: Integers) -> npt.NDArray[np.int32]:
    """Running number of kernels with one op and one sequence number on one thread."""
    ops: dict[tuple[tuple[str, ...], ...], int] = {}
    codes, cells = [], []
    for s in records.stacks:
        codes.append(ops.setdefault((s.op, s.mod, s.seq_names), len(ops)))
        cells.append(s.op[:1] == ("forward",) and s.mod[0] in ("LSTMCell", "GRUCell", "RNNCell"))
    op_of, cell_of = np.array(codes, np.int32), np.array(cells, np.bool_)
    sub = np.zeros(len(records), np.int32)
    shown = np.isin(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU))
    rows = np.flatnonzero(shown & (np.diff(records.seq_offsets) > 0) & (records["launch_ns"] >= 0))  # in order of begin
    for own in by_thread(thread[rows] + 1, rows).values():
        stack = records["stack"][own]
        op, seq = op_of[stack], records["seq"][own]
        new = np.ones(len(own), np.bool_)
        # A cell without cuDNN runs several ops, each with a number of its own.
        new[1:] = (op[1:] != op[:-1]) | ((seq[1:] != seq[:-1]) & ~cell_of[stack[1:]])
        sub[own] = places_in_runs(new)
    return sub


# ---------------------------------------------------------------------------------------------- the description of one stack


class _Unit(NamedTuple):
    """One range of a stack: its marker, the source line beside it, whether it has a sequence number; for a user range also its
    name with the domain, and its name as a layer."""

    marker: Marker
    src: str
    numbered: bool
    shown: str | None
    layer: str | None


def _describe(units: list[_Unit], *, opened: bool) -> Stack:
    """The stack of these units, outermost first."""
    mods, calls, texts, reprs, shown = [], [], [], [], []
    named: list[str] = []
    backward_at = -1
    for unit in units:
        marker = unit.marker
        if marker.kind == Kind.OP and marker.call is not None:
            calls.append(marker.call.op)
            mods.append(marker.call.module)
            texts.append(marker.text)
        elif marker.kind == Kind.REPR or marker.scope == "layerwise":  # the latter's text has the shapes of its inputs
            reprs.append(marker.text)
        if unit.shown is not None:
            shown.append(unit.shown)
        if unit.numbered:
            if marker.kind == Kind.BACKWARD and "CheckpointFunctionBackward" not in marker.name:
                backward_at = len(named)
            named.append(marker.name)
    layers = [unit.marker for unit in units if unit.marker.kind == Kind.LAYER]
    # Source lines of the innermost range that has them, without torch's own files.
    trace: tuple[str, ...] = ()
    for unit in reversed(units):
        if unit.marker.src or unit.src:
            own = tuple(line for line in unit.marker.src if not re.search(_LIBRARY_FILE, line))
            trace = own if unit.marker.src else (unit.src,)
            break
    return Stack(
        mod=tuple(mods),
        op=tuple(calls),
        marker=tuple(texts),
        layer=tuple(layers_of(layers) if layers else [unit.layer for unit in units if unit.layer is not None]),
        trace=trace,
        reprs=tuple(reprs),
        seq_names=tuple(named),
        backward_at=backward_at,
        ranges=tuple(shown),
        open=opened,
    )


def layers_of(layers: Sequence[Marker]) -> list[str]:
    """Names of layers, outermost first; of modules, whose paths are qualified, only the innermost's."""
    last = max((at for at, one in enumerate(layers) if one.scope in _QUALIFIED), default=-1)
    path = _module_path([one for one in layers if one.scope in _QUALIFIED])
    found = [path if at == last else one.name for at, one in enumerate(layers) if one.scope not in _QUALIFIED or at == last]
    return [name for name in found if name]


def _module_path(modules: Sequence[Marker]) -> str:
    """Path of the innermost of these modules, without those that torch puts around the user's; "" if it is one of them."""
    if not modules:
        return ""
    parts = modules[-1].name.split(".")
    kept = [part for part in parts if part not in _WRAPPED and re.sub(r"_\d+$", "", part) not in _WRAPPERS]
    if kept[:1] == ["module"] and any(one.cls in _PARALLEL for one in modules):
        kept = kept[1:]
    return ".".join(kept) or ("" if modules[-1].cls in _WRAPPERS else modules[-1].cls)
