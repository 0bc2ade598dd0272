"""Records of a compiled program -> the kernel of each: category, graph, fused ops, bytes and FLOPs.

Bytes of a fused kernel come from the compiled module if it is known, else from the arguments recorded with its launch (read and
written as the kernel's own file says, if it exists), else from Inductor's estimate `kernel_num_gb`. All other kernels have the
bytes of their op. There is one `LaunchedKernel` per distinct kernel, and a code for each record.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Ints
from pyprof.compiled.kernel_source import Kernel, amount, triton_kernel
from pyprof.compiled.module import CompiledModule, Fused, Site
from pyprof.hardware.names import short_name
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.model.records import PHASES, Records
from pyprof.model.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.frame import Frame

CATEGORIES = (
    "pointwise", "reduction", "persistent reduction", "template", "foreach", "split scan", "user Triton", "cpp_fused", "gemm",
    "conv", "attention", "norm", "communication", "memcpy", "other",
)  # fmt: skip
_FUSED = re.compile(r"(?:inductor::)?(?P<event>(?:graph_\d+_)?(?P<name>(?:cpp_fused|triton_)\w*))")
_BY_PREFIX = {
    "poi": "pointwise", "red": "reduction", "per": "persistent reduction", "tem": "template", "for": "foreach",
    "spl": "split scan", "mix": "reduction",
}  # fmt: skip
_NORM = re.compile(r"norm(?:_|$)")
_PRODUCT = re.compile(r"attention|(?:^|_)(?:(?:add|badd)?b?mm|conv(?:olution)?|linear|matmul)(?:_|$)")
_NUMBER = re.compile(r"_\d+$")
_GENERATED = re.compile(r"(?P<file>(?:.*[/\\])?(?P<two>\w\w)[/\\]c(?P=two)\w{40,}\.py):\d+")
_STEM = re.compile(r"(?:.*[/\\])?(?P<stem>[^/\\]+)\.py:\d+")
_GRAPH = re.compile(r"## Call CompiledFxGraph (\w+) ##")
_LARGEST_FILE = 4 << 20


@dataclass(frozen=True)
class LaunchedKernel:
    """The kernel of some records. sites: its calls in a compiled module, in order of execution; bytes, flops: of one launch
    without a module, None unknown; source: of the bytes (`module`, `arguments`, `recorded`, "" unknown); file: definition of a
    fused kernel; library: not fused, so bytes and FLOPs are those of the records."""

    kernel: str
    category: str
    graph: str
    sites: tuple[Site, ...] = ()
    bytes: int | None = None
    flops: int | None = None
    source: str = ""
    nodes: tuple[str, ...] = ()
    file: str = ""
    library: bool = False

    def bytes_of(self, launches: int) -> int | None:
        """Bytes of this many launches; None if unknown, or if call sites differ and a run of the module is incomplete."""
        each = {site.bytes for site in self.sites} or {self.bytes}
        if None in each:
            return None
        if len(each) == 1:
            return launches * (each.pop() or 0)
        runs, rest = divmod(launches, len(self.sites))
        return None if rest else runs * sum(site.bytes or 0 for site in self.sites)


@dataclass(frozen=True)
class _Run:
    """A launch of a fused kernel. event: its recorded name; stem: of the module's file, from a Python frame; graph: the key in
    `CompiledFxGraph KEY`; both "" if unknown."""

    event: str
    direction: str
    stem: str
    graph: str


def recorded_files(records: Records) -> list[Path]:
    """The compiled modules that records ran in, if their files exist here."""
    return [path for name in _generated_files(records) if (path := Path(name)).is_file()]


def _generated_files(records: Records) -> list[str]:
    """Distinct generated files in the source lines of records."""
    found = (_GENERATED.fullmatch(text) for stack in records.stacks for text in stack.trace)
    return list(dict.fromkeys(match["file"] for match in found if match is not None))


def describe(frame: Frame, modules: Sequence[CompiledModule]) -> tuple[list[LaunchedKernel], Ints]:
    """The distinct kernels, and for each record its index into them."""
    records, describing = frame.records, _Describing(frame, modules)
    columns = [records[name] for name in ("name", "inner", "own", "dir", "phase", "kind", "stack")]
    distinct, first, inverse = distinct_rows(*columns)
    runs = [describing.run(row) for row in first.tolist()]
    describing.match([run for run in runs if run is not None])
    launches: dict[LaunchedKernel, int] = {}
    codes = [
        launches.setdefault(describing.launch(row, run), len(launches)) for row, run in zip(first.tolist(), runs, strict=True)
    ]
    return list(launches), np.array(codes, np.int64)[inverse] if distinct.size else np.zeros(0, np.int64)


class _Describing:
    """Look-ups that describe records. chosen: module and kernel of each run; files: kernels read from their own files."""

    def __init__(self, frame: Frame, modules: Sequence[CompiledModule]) -> None:
        self.frame, self.records = frame, frame.records
        self.modules, self.named = modules, {module.path.stem: module for module in modules}
        recorded = {Path(name).stem for name in _generated_files(frame.records)}
        # If some given modules have recorded names, other recorded modules were not given.
        self.generated = set(self.named) | (recorded if recorded & set(self.named) else set())
        self.chosen: dict[_Run, tuple[CompiledModule, Fused] | None] = {}
        self.files: dict[str, Kernel | None] = {}

    def _call(self, row: int, columns: tuple[str, str] = ("inner", "own")) -> OpCall | None:
        """The op of a record, from the first of these columns that has one; autograd functions are no ops."""
        for column in columns:
            code = int(self.records[column][row])
            if code >= 0 and self.records.calls[code].module != "autograd":
                return self.records.calls[code]
        return None

    def _direction(self, row: int) -> str:
        """forward, backward, or "" if unknown."""
        return ("forward", "backward", "")[int(self.records["dir"][row])]

    def _part(self, row: int) -> str:
        """`optimizer` for a kernel of an optimizer, else as `_direction`."""
        return "optimizer" if self.records["phase"][row] == PHASES.index("optimizer") else self._direction(row)

    def run(self, row: int) -> _Run | None:
        """The launch of a record's fused kernel; None for other kernels."""
        name = self.records.strings[int(self.records["name"][row])]
        call = self._call(row)
        found = _FUSED.fullmatch(name)
        if found is None and (call is None or call.module != "inductor"):
            return None
        code = int(self.records["stack"][row])
        ranges = self.records.stacks[code].ranges if code >= 0 else ()
        graphs = [match[1] for text in ranges if (match := _GRAPH.search(text)) is not None]
        return _Run(found["event"] if found else name, self._direction(row), self._stem(row), graphs[-1] if graphs else "")

    def _stem(self, row: int) -> str:
        """Stem of the generated module that launched a record, or ""."""
        code = int(self.records["stack"][row])
        lines = (_STEM.fullmatch(text) for text in reversed(self.records.stacks[code].trace)) if code >= 0 else ()
        return next((found["stem"] for found in lines if found is not None and found["stem"] in self.generated), "")

    def match(self, runs: list[_Run]) -> None:
        """Find the module of each run: the file in a Python frame, else a module with all kernels of the graph."""
        of_graph: dict[tuple[str, str], set[str]] = defaultdict(set)
        for run in runs:
            of_graph[run.graph, run.direction].add(run.event)
        for run in runs:
            has = [m for m in self.modules if run.event in m.kernels]
            same = [m for m in has if (m.path.stem == run.stem if run.stem else m.fits(run.direction))]
            if run.graph and len(same) > 1:
                events = of_graph[run.graph, run.direction]
                same = [m for m in same if events <= set(m.kernels)] or same
            alike = {tuple(m.kernels[run.event].sites) for m in same}
            self.chosen[run] = (same[0], same[0].kernels[run.event]) if len(alike) == 1 else None

    def launch(self, row: int, run: _Run | None) -> LaunchedKernel:
        """The kernel of a record."""
        call = self._call(row)
        if run is None:
            return self._library(row)
        call = call if call is not None and call.module == "inductor" else None
        module, fused = self.chosen[run] or (None, None)
        facts = dict(call.kwargs) if call else {}
        path = str(facts.get("kernel_file", ""))
        kernel = fused.kernel if fused else self._own_file(path)
        moved, source = _from_arguments(call, kernel)
        estimate = amount(facts.get("kernel_num_gb"))
        if estimate is None and kernel is not None:
            estimate = kernel.num_gb
        if moved is None and estimate is not None:
            moved, source = round(estimate * 1e9), "recorded"
        calls = tuple(fused.sites) if fused else ()
        sites = calls if all(site.bytes is not None for site in calls) else ()
        flop = amount(facts.get("kernel_flop")) or None  # 0 if Inductor did not count them
        if flop is None and kernel is not None:
            flop = kernel.operations if kernel.flop is None else kernel.flop
        nodes = tuple(dict.fromkeys(node for site in calls for node in site.nodes or site.atens))
        plain = run.event[run.event.index(found["name"]) :] if (found := _FUSED.fullmatch(run.event)) else run.event
        graph = _graph(module, self._part(row))
        return LaunchedKernel(
            plain, _category(plain, kernel), graph, sites, moved, None if flop is None else round(flop),
            "module" if sites else source, nodes or _nodes_of_name(plain), str(module.path) if module else path,
        )  # fmt: skip

    def _own_file(self, path: str) -> Kernel | None:
        """The kernel in its own file, if that exists here."""
        if path and path not in self.files:
            file = Path(path)
            here = file.suffix == ".py" and file.is_file() and file.stat().st_size <= _LARGEST_FILE
            self.files[path] = triton_kernel(file.read_text(encoding="utf-8", errors="replace")) if here else None
        return self.files.get(path)

    def _library(self, row: int) -> LaunchedKernel:
        """A kernel that is not fused, under its short name; on a CPU under the name of its op."""
        call = self._call(row, ("own", "inner"))
        name = self.records.strings[int(self.records["name"][row])]
        on_cpu = self.records["kind"][row] == ActivityKind.CPU
        shown = call.name if on_cpu and call is not None else short_name(name).strip()
        graph = _graph(self.named.get(self._stem(row)), self._part(row))
        return LaunchedKernel(shown, self._library_category(row, call), graph, library=True)

    def _library_category(self, row: int, call: OpCall | None) -> str:
        """The category by the kind of kernel, on a CPU by the op."""
        records, costs = self.records, self.frame.costs
        if records["kind"][row] in (ActivityKind.MEMCPY, ActivityKind.MEMSET):
            return "memcpy"
        if records["phase"][row] == PHASES.index("communication"):
            return "communication"
        if records["kind"][row] != ActivityKind.CPU:
            found = costs.kernels[int(costs.class_kernel[costs.alike[row]])]
            if found.kind in ("gemm", "conv", "attention"):
                return found.kind
            if "norm" in found.family:
                return "norm"
        name = call.op if call else ""
        if call is not None and (formulas.matmul_class(call.name) or _PRODUCT.search(name)):
            return "attention" if "attention" in name else "conv" if "conv" in name else "gemm"
        if call is not None and formulas.is_copy(call.name):
            return "memcpy"
        return "norm" if _NORM.search(name) else "other"


def _graph(module: CompiledModule | None, direction: str) -> str:
    """The name of a compiled graph; outside of one the direction or `optimizer`, `na` if unknown."""
    return f"{module.graph}_{module.direction}" if module is not None and module.direction else direction or "na"


def _from_arguments(call: OpCall | None, kernel: Kernel | None) -> tuple[int | None, str]:
    """Bytes by recorded arguments: each buffer once, or read and written as the kernel's source does."""
    if call is None or not call.described or not call.tensors:
        return None, ""
    total = 0
    known = kernel is not None and len(kernel.arguments) >= len(call.args)
    for at, value in enumerate(call.args):
        if not isinstance(value, TensorSpec):
            continue
        if (size := value.nbytes) is None:
            return None, ""
        pointer = kernel.arguments[at] if kernel is not None and known else None
        if pointer is not None:
            most = None if pointer.most is None or pointer.itemsize is None else pointer.most * pointer.itemsize
            size = (int(pointer.reads) + int(pointer.writes)) * (size if most is None else min(size, most))
        total += size
    return total, "arguments"


def _category(kernel: str, source: Kernel | None) -> str:
    if source is not None and source.category:
        return source.category
    if kernel.startswith("cpp_fused"):
        return "cpp_fused"
    found = re.match(r"triton_([a-z]{3})_", kernel)
    if found is None or found[1] not in _BY_PREFIX:
        return "other" if kernel.startswith(("triton_unk_", "triton__")) else "user Triton"
    return _BY_PREFIX[found[1]]


_ATEN = frozenset(name.partition("::")[2] for name in formulas.names() if name.startswith("aten::"))


def _nodes_of_name(kernel: str) -> tuple[str, ...]:
    """The ops in a kernel's name, joined there by `_`: the longest known op at each place."""
    if "_fused" not in kernel:
        return ()
    words = _NUMBER.sub("", re.sub(r"^(?:cpp|triton_[a-z]{3})_fused", "", kernel)).removeprefix("_").split("_")
    found: list[str] = []
    at = 0
    while at < len(words):
        end = next((e for e in range(len(words), at, -1) if "_".join(words[at:e]) in _ATEN), at + 1)
        if text := "_".join(words[at:end]):
            found.append(text)
        at = end
    return tuple(found)
