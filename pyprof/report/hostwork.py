"""Ranges and API calls of a capture -> when the host loaded data, compiled, or allocated memory of a device.

By names alone: those of PyTorch's DataLoader and of users who say that they load data; of torch.compile; of the calls of CUDA
and HIP. What a device did meanwhile is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

import numpy as np

from pyprof.arrays.columns import distinct_values
from pyprof.arrays.intervals import Segments, union
from pyprof.arrays.types import Bools, Ints
from pyprof.markers import Kind
from pyprof.parse.sources.trace import Trace
from pyprof.report.calls import Calls
from pyprof.report.tracer import tracer_time

_BATCH = r"(?:data|batch(?:es)?|inputs?|samples?|images?)"
_LOADING = re.compile(
    r"enumerate\(DataLoader\)|data[ _.:-]?load"
    rf"|\b(?:load|fetch|read|get|prepar|prefetch|next|wait[ _]for)(?:e|ing)?[ _](?:the[ _]|next[ _])?{_BATCH}\b"
    rf"|\b{_BATCH}[ _](?:load|fetch|read|prepar|augment)(?:e|ing|ation)?\b|\bcollate\b",
    re.IGNORECASE,
)
_LOADED = ("load", "collate", "data", "batch", "input", "sample", "image")  # one of which is in all that this finds
_LIBRARIES = (
    r"numpy|PIL|cv2|torchvision[/\\](?:transforms|io|datasets)|datasets|albumentations|librosa|torchaudio|soundfile|decord|h5py"
    r"|pandas|pyarrow|imageio|skimage|scipy|tokenizers|webdataset|transformers[/\\](?:tokenization|image_proc|feature_ex)\w*"
)
_PREPARING = (
    rf"(?:^|[/\\]|-packages[/\\])(?:{_LIBRARIES})\b[^:]*\(\d+\): | of (?:{_LIBRARIES})\.|^torch[/\\]utils[/\\]data[/\\]"
)
_COMPILING = re.compile(
    r"\(dynamo_timed\)|compile_inner|compile_fx|inductor_compile|async_compile|CachingAutotuner\.(?:benchmark|precompile)",
)
_COMPILES = re.compile(r"(?:cu|hip)(?:Module|Library)Load|(?:cu|hip)Link|(?:nv|hip)rtc|(?:cuda|hip)GraphInstantiate")
_ALLOCATES = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister|ExtMalloc)(?!.*Async)"
    r"|(?:cu|hip)Mem(?:Alloc|Free|HostAlloc|Create|Map|Unmap|Release|SetAccess|AddressReserve)"
)
_BEGIN_RECORDING, _END_RECORDING = (re.compile(rf"(?:cuda|hip|cu)Stream{what}Capture(?!Info)") for what in ("Begin", "End"))
_ASKS = re.compile(r"Query|Get|IsCapturing|Peek")
_LONG_CALL_NS = 1_000_000
_OPS = (Kind.OP, Kind.DISPATCH, Kind.BACKWARD)


def says_loading(name: str) -> bool:
    """Whether a range of that name says that data is loaded. Most names have none of its words, which is found much sooner."""
    words = name.casefold()
    return any(word in words for word in _LOADED) and _LOADING.search(name) is not None


class HostWork:
    """What the threads of each process did, groups being rows of the trace's processes."""

    def __init__(self, trace: Trace, calls: Calls) -> None:
        self._trace, self._calls = trace, calls
        self._process = trace.threads["process"].astype(np.int64)

    @cached_property
    def loading(self) -> Segments:
        """Data is loaded, or waited for."""
        return union(*self._ranges(says_loading))

    @cached_property
    def compilation(self) -> Segments:
        """Something is compiled, a module is loaded, a graph recorded."""
        parts = (self._ranges(_COMPILING.search), self._calls_named(_COMPILES), self._recordings())
        return union(*map(np.concatenate, zip(*parts, strict=True)))

    @cached_property
    def preparation(self) -> Segments:
        """Python is in libraries that read, decode or make arrays, as far as its frames were recorded."""
        frames, texts = self._trace.frames, self._trace.strings.values
        if not len(frames["name"]):
            return union(*np.zeros((3, 0), np.int64))
        used = distinct_values(frames["name"])
        good = used[np.array([re.search(_PREPARING, texts[name]) is not None for name in used.tolist()], np.bool_)]
        rows = np.flatnonzero(np.isin(frames["name"], good) & self._leading[frames["thread"]])
        return union(self._process[frames["thread"][rows]], frames["start_ns"][rows], frames["end_ns"][rows])

    @cached_property
    def recording(self) -> Segments:
        """What recording Python's frames is known to have taken, by thread."""
        return tracer_time(self._trace)

    @cached_property
    def allocation(self) -> Segments:
        """Memory is allocated or freed."""
        return union(*self._calls_named(_ALLOCATES))

    @cached_property
    def long_calls(self) -> Segments:
        """Calls of at least 1 ms, whatever they do."""
        calls = self._calls
        rows = np.flatnonzero(calls.end_ns - calls.start_ns >= _LONG_CALL_NS)
        return union(self._process[calls.thread[rows]], calls.start_ns[rows], calls.end_ns[rows])

    def moments(self, process: int, begin_ns: int, end_ns: int, ops: bool) -> Ints:
        """The times at which threads of a process that launch made or left a call that is more than a question, in order; ops:
        and those at which they began one of PyTorch's ops."""
        calls, found = self._calls, []
        if ops:
            group, start = self._ops
            found.append(start[(start > begin_ns) & (start < end_ns) & (group == process)])
        for time in (calls.start_ns, calls.end_ns):
            rows = np.flatnonzero((time > begin_ns) & (time < end_ns) & self._acts)
            found.append(time[rows[self._process[calls.thread[rows]] == process]])
        return np.sort(np.concatenate(found))

    @cached_property
    def _ops(self) -> tuple[Ints, Ints]:
        """(process, begin) of each op of a thread that launches."""
        ranges, markers = self._trace.ranges, self._trace.markers
        is_op = np.array([marker.kind in _OPS for marker in markers], np.bool_)
        rows = np.flatnonzero(is_op[ranges["label"]]) if len(is_op) else np.empty(0, np.int64)
        rows = rows[self._leading[ranges["thread"][rows]]]
        return self._process[ranges["thread"][rows]], ranges["start_ns"][rows].astype(np.int64)

    @cached_property
    def _acts(self) -> Bools:
        return ~self._calls.of_names(_ASKS.search) & self._launching

    @cached_property
    def _launching(self) -> Bools:
        return self._calls.by_launching_threads()

    @cached_property
    def _leading(self) -> Bools:
        """Which threads launch; without any, as on a CPU, all: what others do beside them holds nobody up."""
        threads = np.zeros(len(self._process), np.bool_)
        threads[self._calls.thread[self._launching]] = True
        return threads if threads.any() else ~threads

    def _ranges(self, named: Callable[[str], object]) -> tuple[Ints, Ints, Ints]:
        ranges = self._trace.ranges
        good = np.array([bool(named(marker.name)) for marker in self._trace.markers], np.bool_)
        rows = np.flatnonzero(good[ranges["label"]] & (ranges["open"] == 0)) if len(good) else np.empty(0, np.int64)
        rows = rows[self._leading[ranges["thread"][rows]]]
        process = self._process[ranges["thread"][rows]]
        return process, ranges["start_ns"][rows].astype(np.int64), ranges["end_ns"][rows].astype(np.int64)

    def _calls_named(self, pattern: re.Pattern[str]) -> tuple[Ints, Ints, Ints]:
        calls, rows = self._calls, self._rows(pattern.match)
        return self._process[calls.thread[rows]], calls.start_ns[rows], calls.end_ns[rows]

    def _rows(self, named: Callable[[str], object]) -> Ints:
        return np.flatnonzero(self._calls.of_names(named) & self._launching)

    def _recordings(self) -> tuple[Ints, Ints, Ints]:
        """From the begin of recording a graph to its end: what is called meanwhile runs nothing."""
        calls = self._calls
        first, last = self._rows(_BEGIN_RECORDING.match), self._rows(_END_RECORDING.match)
        process, begin = self._process[calls.thread[first]], calls.start_ns[first]
        ends = np.append(np.sort(calls.end_ns[last]), np.iinfo(np.int64).max)
        end = ends[np.searchsorted(ends, begin)]
        known = end < ends[-1]
        return process[known], begin[known], end[known]
