"""Facts about the host of a capture beside launches: small tables that reports need and records have no rows for.

`attribution.host` makes it from a capture's ranges and API calls; net.parquet keeps it as versioned JSON in its metadata, so
that a report of the records says what a report of the capture says. Times are ns on the capture's clock.
"""

from __future__ import annotations

import string

import msgspec

from pyprof.model.ledger import CompileEvent

VERSION = 1
WORK = ("loading", "compilation", "allocation", "generated", "long_calls", "call_pauses", "op_pauses")
"""Kinds of host time. loading: data is loaded or waited for; compilation: code is compiled, a module loaded, a graph recorded;
allocation: device memory is allocated or freed; generated: on a CPU code of torch.compile runs, whose kernels are in no trace;
long_calls: API calls of at least 1 ms that launch or wait; call_pauses, op_pauses: at least 1 ms in which the launching threads
began and ended no API call (and began no op)."""
PLACE_KINDS = ("range", "function", "op", "call")
"""Kinds of places of the host: the user's ranges and layers, Python and C functions, ops, API calls."""
RECORDING = "(recording)"  # the name of the place that is all functions of the recorder


def without_number(name: str) -> str:
    """`IO` of `IO 3`: the name of a range that is opened again and again. A name that is a number alone stays."""
    stem = name.rstrip("0123456789")  # a regular expression would try each digit of a long row
    return name if stem == name else stem.rstrip(string.whitespace + "#_:") or name


class Spans(msgspec.Struct):
    """Times of one process, or of one thread of it: begin and end, in order."""

    pid: int
    begin_ns: list[int]
    end_ns: list[int]
    tid: int = -1


class Wait(msgspec.Struct):
    """An API call in which the host waited for a device.

    text: place of its (name, op that called it, source line or layers) in `Host.texts`; launching: whether its thread launches
    work; active: other threads of the process that made API calls meanwhile.
    """

    pid: int
    tid: int
    begin_ns: int
    end_ns: int
    text: int
    launching: bool
    active: list[int]


class AllocationCalls(msgspec.Struct):
    """Calls of one process that allocate or free memory of a device, in order of begin. code: place of each one's name in
    `names`."""

    pid: int
    begin_ns: list[int]
    end_ns: list[int]
    code: list[int]
    names: list[str]


class Compilation(msgspec.Struct):
    """One time that torch.compile compiled a frame. frame: its number as torch counts, "" unknown; attempt: how often it had
    been compiled before, -1 unknown."""

    pid: int
    begin_ns: int
    end_ns: int
    frame: str = ""
    attempt: int = -1


class MarkedSteps(msgspec.Struct):
    """Complete steps in order. kind: what marks them, empty where nothing does; name: of the first; number: as `--step` counts
    them; end_ns: begin of the next, of the last its own, as of one after which a cycle of a profiler's schedule ended;
    set_up_end_ns: when the last range named warm-up ended, None without one."""

    kind: str = ""
    name: str = ""
    number: list[int] = []
    begin_ns: list[int] = []
    end_ns: list[int] = []
    set_up_end_ns: int | None = None


class Doing(msgspec.Struct):
    """Names of what one thread did in long pauses before launches: begin of each launch, and the place of its name in
    `names`."""

    pid: int
    tid: int
    launch_ns: list[int]
    code: list[int]
    names: list[str]


class Whereabouts(msgspec.Struct):
    """Where the host was in long times without work for a device, as a tree of places.

    Times: pid, begin_ns, end_ns. Places: node_parent, of the place around (-1 none), node_kind in PLACE_KINDS, node_name in
    `names`: of ranges without a number at the end, of functions `file.py(117): name`. A row for each time and place in it: ns,
    in this place and none inside of it; number, how often it was open.
    """

    names: list[str] = []
    node_parent: list[int] = []
    node_kind: list[int] = []
    node_name: list[int] = []
    pid: list[int] = []
    begin_ns: list[int] = []
    end_ns: list[int] = []
    time: list[int] = []
    node: list[int] = []
    ns: list[int] = []
    number: list[int] = []


class HeldMemory(msgspec.Struct):
    """Equal blocks in use at a peak. op: the outermost that allocated them; number: how many, of `bytes` each; freed: later in
    the recording; of_softmax: a softmax allocated as much at once; None unknown."""

    op: str | None
    phase: str | None
    bytes: int
    number: int
    freed: bool
    of_softmax: bool


class MemoryPeak(msgspec.Struct):
    """Most memory of tensors in use on one device (-1: the CPU) of a process. reserved: what the allocator held then; phase,
    op, layer, src: of the allocation that reached it; None unknown; held: the largest blocks in use then; relative: counted
    from the recording's begin, as torch does on the CPU, where nothing lists what was there before."""

    pid: int
    device: int
    allocated_bytes: int
    reserved_bytes: int | None
    time_ns: int
    phase: str | None
    op: str | None
    layer: str | None
    src: str | None
    held: list[HeldMemory] = []
    relative: bool = False


class StageActions(msgspec.Struct):
    """Actions of a pipeline that one process went through, in order: text of each (`PP:1F0`), its begin and its end."""

    pid: int
    texts: list[str]
    begin_ns: list[int]
    end_ns: list[int]


class Host(msgspec.Struct):
    """Everything the host did beside launching. work: by kind of WORK; recorder: time that recording Python frames took of each
    thread; graph_launch_ns: begin of calls that launch graphs; frames: how many Python calls were recorded, frame_ns: when they
    began (of many, evenly chosen ones, the first and last among them); loader: `single` for a DataLoader without workers,
    `several` with, `none`; optimizers: their names; backward_ranges: whether any range is a backward function's;
    shapes: whether ops were recorded with the shapes of their arguments; compilations: in order of begin; compiled: why, as the
    ledger of the run keeps it; classes: of modules, by their paths, "" where several have one;
    groups: ranks of process groups by name, of the whole job under ""; begin_ns: when a thread that launches did anything
    first, -1 unknown."""

    work: dict[str, list[Spans]] = {}
    recorder: list[Spans] = []
    waits: list[Wait] = []
    texts: list[tuple[str, str, str]] = []
    graph_launch_ns: list[int] = []
    frames: int = 0
    frame_ns: list[int] = []
    loader: str = "none"
    optimizers: list[str] = []
    backward_ranges: bool = False
    shapes: bool = False
    doing: list[Doing] = []
    memory: list[MemoryPeak] = []
    begins: list[tuple[int, int, int]] = []
    actions: list[StageActions] = []
    allocations: list[AllocationCalls] = []
    compilations: list[Compilation] = []
    compiled: list[CompileEvent] = []
    whereabouts: Whereabouts | None = None
    classes: dict[str, str] = {}
    groups: dict[str, int] = {}
    begin_ns: int = -1
