"""Measured launches, their counters and the records that they match -> one table.

Each row takes its op, layer and times from the matching record; if several match, only the values on which they agree. Reads
no file and prints nothing.

Samples of a device's counters over time, and the records that ran meanwhile -> a table by step, layer and op. A sample is
the mean since the previous one of all that ran on the device: it counts for an op whose kernels filled at least half of that
time, weighted by how much of it. An op of short kernels may have none; a figure says nothing about a single kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.sorting import rows_of_spans
from pyprof.columns.types import Floats, Ints
from pyprof.counters.counted import Counted, counted, known_sum
from pyprof.counters.match import HOW, Match, base
from pyprof.errors import InputError
from pyprof.hardware import gpus
from pyprof.hardware.devices import Gpu
from pyprof.hardware.kernels import Verdict, classify, verdict
from pyprof.model.opcall import OpCall
from pyprof.model.trace import ActivityKind, Samples, integer
from pyprof.parse.sources.measured.launches import Measured
from pyprof.prof import formulas
from pyprof.prof.columns import RecordTable
from pyprof.prof.frame import operand_tag
from pyprof.tables.screen import listed
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, Values, coded


class LaunchOps(NamedTuple):
    """The ops around each launch, outermost first, and its record.

    match, records: None if there is no timeline; stacks: None if no ops were recorded; has_times: whether the times of
    the records are real.
    """

    stacks: Sequence[tuple[str, ...] | None] | None = None
    match: Match | None = None
    records: RecordTable | None = None
    has_times: bool = True


class CounterTable:
    """The columns, each computed when it is asked for."""

    def __init__(self, measured: Measured, ops: LaunchOps, gpu: Gpu | None = None) -> None:
        """gpu: what the user says that the device is."""
        self.measured, self.ops, self.given = measured, ops, gpu
        self.headers = headers_of(measured)
        self._shown: Ints | slice = slice(None)

    def of(self, key: str) -> Values:
        """The values of one column."""
        return self._whole(key).take(self._shown)

    def take(self, rows: Ints) -> CounterTable:
        """These rows only; their columns are computed with all others'."""
        taken = copy(self)
        taken._shown = rows
        return taken

    def _whole(self, key: str) -> Values:
        column = _COLUMNS.get(key)
        if column is not None:
            return column[0](self)
        metric = next(metric for metric in self.measured.metrics if metric.lower() == key)
        return Fractions.not_nan(self.measured.of(metric), 6)

    @property
    def rows(self) -> Ints:
        """The numbers of all rows."""
        return np.arange(len(self.measured))

    @cached_property
    def counted(self) -> Counted:
        """FLOPs, bytes and time by the metrics."""
        return counted(self.measured)

    # ------------------------------------------------------------------ of the timeline

    def of_record(self, key: str) -> Values:
        """A column of `prof` for the record matched to each launch; unknown where several records match and differ."""
        if self.ops.records is None or self.ops.match is None or (key == "sil" and not self.ops.has_times):
            return Texts(np.full(len(self.measured), -1), [])
        values = self.ops.records.of(key)
        if isinstance(values, Texts):
            return values._replace(codes=self.ops.match.agreed(values.codes))
        distinct, codes = np.unique(values.values, return_inverse=True)
        found = self.ops.match.agreed(np.where(values.unknown, -1, codes.ravel()))
        taken = np.append(distinct, distinct.dtype.type(0))[found]
        return Integers(taken, found < 0) if isinstance(values, Integers) else Fractions(taken, found < 0, values.digits)

    def needed(self, key: str) -> Values:
        """FLOPs or bytes of the algorithm: by its record, or given by a launch hook."""
        hooks = [values for metric, values in self.measured.metrics.items() if re.fullmatch(rf"{key}\d*", metric)]
        return self.of_record(key) if self.ops.records is not None or not hooks else _whole(known_sum(hooks))

    def number(self, key: str) -> Floats:
        """FLOPs or bytes of the algorithm as numbers; NaN is unknown."""
        return _floats(self.needed(key))

    @cached_property
    def time_ns(self) -> Floats:
        """Time of each launch in the timeline; without one, as ncu measured it."""
        return self.counted.time_ns if self.ops.records is None or not self.ops.has_times else _floats(self.of_record("sil"))

    # ------------------------------------------------------------------ of the device

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The device of each launch: as given by the user, else by the timeline, else by the file of counters."""
        known: dict[object, Gpu] = {}
        found = []
        for launch in self.measured.launches:
            key = launch.device, launch.cc
            if key not in known:
                name = self.measured.gpus.get(launch.device, "")
                gpu = self.given
                if gpu is None and not name and self.ops.records is not None:
                    frame = self.ops.records.frame
                    codes = frame.records["gpu"][frame.records["device"] == launch.device]
                    gpu = frame.gpus[int(codes[0])][0] if len(codes) and codes[0] >= 0 else None
                major, _, minor = launch.cc.partition(".")
                capability = (integer(major), integer(minor))
                known[key] = gpu or gpus.find(name, gpus.RecordedGpu(capability if min(capability) >= 0 else None))[0]
            found.append(known[key])
        return found

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Whether each used Tensor Cores, by its name, its op and its device."""
        ops: list[OpCall | None] = [None] * len(self.measured)
        if self.ops.records is not None and self.ops.match is not None:
            records = self.ops.records.frame.records
            ops = [None if code < 0 else records.calls[code] for code in self.ops.match.agreed(records["call"]).tolist()]
        found = []
        for launch, gpu, op in zip(self.measured.launches, self.gpus, ops, strict=True):
            dtype, matmul = (None, None) if op is None else (operand_tag(op), formulas.multiplies(op.name))
            found.append(verdict(classify(launch.name), op_dtype=dtype, matmul=matmul, cc=gpu.cc))
        return found

    # ------------------------------------------------------------------ columns

    def ratio(self, part: Floats, whole: Floats, digits: int = 3) -> Values:
        """`part` over `whole`; unknown if either is."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = part / whole
        return Fractions(found, ~np.isfinite(found), digits)

    def flags(self) -> Values:
        """Why a count is not what the op computed."""
        uses = np.array([one.tc == "1" for one in self.verdicts])
        halves = np.array([one.math in ("fp16", "bf16") for one in self.verdicts]) | (
            self.counted.vector["fp16"] > self.counted.hfma_only
        )
        masks = {
            "tensor_uncounted": uses & ~(self.counted.tensor > 0),
            "uncalibrated": (self.counted.tensor > 0) & ~self.counted.is_tensor_exact,
            "hfma": (self.counted.hfma_only > 0) & ~halves,
        }
        return listed(",".join(name for name, mask in masks.items() if mask[row]) for row in range(len(self.measured)))

    def bound(self) -> Values:
        """Which roof is lower at the measured intensity."""
        peaks, slope = self.arithmetic[1], self.bandwidth * self.counted.flops / self.counted.dram_bytes
        known = np.isfinite(slope) & np.isfinite(peaks)
        return Texts(np.where(known, slope >= peaks, -1), ["memory", "math"])

    @cached_property
    def bandwidth(self) -> Floats:
        """Bytes/s of each launch's device memory, NaN unknown."""
        of_gpu = np.array([gpu.dram_bytes_per_s or np.nan for gpu in self.gpus])
        return self._preferred(of_gpu, self._sustained("dram__bytes.sum", "dram__cycles_elapsed"))

    @cached_property
    def arithmetic(self) -> tuple[list[str], Floats]:
        """The type and unit that executed most of each launch's FLOPs, and its FLOP/s, NaN unknown."""
        vector = {precision: np.nan_to_num(values) for precision, values in self.counted.vector.items()}
        vector["fp16"] = vector["fp16"] - self.counted.hfma_only
        names, rates, of_file = [], [], np.full(len(self.measured), np.nan)
        sustained = {
            precision: 2 * self._sustained(f"sm__sass_thread_inst_executed_op_{letter}fma_pred_on.sum", "sm__cycles_elapsed")
            for precision, letter in (("fp32", "f"), ("fp64", "d"))
        }
        for row, (gpu, one) in enumerate(zip(self.gpus, self.verdicts, strict=True)):
            if self.counted.tensor[row] > 0 or one.tc == "1":
                names.append(f"{one.math} {one.unit}")
                rates.append(gpu.peak(one.math, one.unit) if one.tc == "1" else None)
                continue
            precision = max(("fp32", "fp64", "fp16"), key=lambda of: float(vector[of][row]))
            names.append(precision)
            rates.append(gpu.peak(precision, "hfma2" if precision == "fp16" else "ffma"))
            of_file[row] = sustained.get(precision, of_file)[row]
        return names, self._preferred(np.array([np.nan if rate is None else rate for rate in rates]), of_file)

    def _sustained(self, metric: str, cycles: str) -> Floats:
        """The peak rate of a metric, per second, from ncu's roofline sections; NaN unknown."""
        return self.measured.of(f"{metric}.peak_sustained") * self.measured.of(f"{cycles}.avg.per_second")

    def _preferred(self, of_gpu: Floats, of_file: Floats) -> Floats:
        """Choose between two limits: the file's, at the clocks of its times; beside a timeline, or if given, the device's."""
        of_device = self.ops.records is not None or self.given is not None
        return np.where(np.isnan(of_file) | (of_device & ~np.isnan(of_gpu)), of_gpu, of_file)

    def roof(self) -> Floats:
        """FLOP/s that the device allows at the measured intensity."""
        return np.minimum(self.arithmetic[1], self.bandwidth * self.counted.flops / self.counted.dram_bytes)

    def op_at(self, place: int) -> Values:
        """The outermost (0) or the innermost (-1) op around each launch."""
        return listed((stack[place] if stack else None) for stack in self.stacks)

    def op_stack(self) -> Values:
        """All ops around each launch, outermost first."""
        pool = {stack: code for code, stack in enumerate(dict.fromkeys(stack for stack in self.stacks if stack is not None))}
        codes = np.array([-1 if stack is None else pool[stack] for stack in self.stacks], np.int64)
        return Texts(codes, [" > ".join(stack) for stack in pool], [list(stack) for stack in pool])

    def matched(self) -> Values:
        """How the record of each launch was found, by HOW."""
        match = self.ops.match
        return Texts(np.full(len(self.measured), -1) if match is None else match.how, HOW)

    @property
    def stacks(self) -> Sequence[tuple[str, ...] | None]:
        """The ops around each launch."""
        return self.ops.stacks if self.ops.stacks is not None else [None] * len(self.measured)


def headers_of(measured: Measured | None = None) -> list[Header]:
    """The columns of a table, and every metric of a file under its own name."""
    own = [header for _, header in _COLUMNS.values()]
    metrics = measured.metrics if measured is not None else {}
    others = [metric for metric in metrics if metric.lower() not in _COLUMNS]
    return own + [Header(metric.lower(), metric, "as it was measured, in base units") for metric in others]


def _launch(attribute: str) -> Callable[[CounterTable], Values]:
    return lambda table: Integers.from_zero(np.array([getattr(one, attribute) for one in table.measured.launches], np.int64))


def _dim(attribute: str) -> Callable[[CounterTable], Values]:
    def compute(table: CounterTable) -> Values:
        dims = (getattr(one, attribute) for one in table.measured.launches)
        return listed(None if dim is None else ",".join(map(str, dim)) for dim in dims)

    return compute


def _floats(values: Values) -> Floats:
    """A column as numbers, NaN unknown."""
    if isinstance(values, Texts):
        return np.full(len(values.codes), np.nan)
    return np.where(values.unknown, np.nan, values.values.astype(np.float64))


def _whole(values: Floats) -> Values:
    """Counts, which are whole."""
    unknown = ~(np.abs(values) < 2**63)
    return Integers(np.where(unknown, 0, np.rint(values)).astype(np.int64), unknown)


def _record(key: str) -> Callable[[CounterTable], Values]:
    return lambda table: table.of_record(key)


_FLAGS = (
    "tensor_uncounted: Tensor Cores ran and were not counted; uncalibrated: what they count was never held against a known "
    "product on this device; hfma: FMAs of halves without other half arithmetic, likely copies of registers"
)
_Compute = Callable[[CounterTable], Values]
_COLUMNS: dict[str, tuple[_Compute, Header]] = {
    header.key: (compute, header)
    for compute, header in (
        (lambda t: Integers.known(t.rows + 1), Header("idx", "Idx", "number of the measured launch, from 1", width=4)),
        (lambda t: listed(base(one.name) or None for one in t.measured.launches),
         Header("kernel", "Kernel", "short name of the kernel", width=0, grow=True)),
        (lambda t: listed(one.name or None for one in t.measured.launches),
         Header("name", "Name", "its name as the tool wrote it", width=20)),
        (CounterTable.op_stack, Header("op_stack", "OpStack", "ops around the launch, outermost first", width=20, detail=True)),
        (lambda t: t.op_at(0), Header("top_op", "TopOp", "the outermost of them", width=15)),
        (lambda t: t.op_at(-1), Header("bottom_op", "BottomOp", "the innermost of them", width=15)),
        (_record("op"), Header("op", "Op", "the op that `prof` names; of a backward kernel the forward op", width=15)),
        (_record("layer"), Header("layer", "Layer", "layers around the op", width=10)),
        (_record("phase"), Header("phase", "Phase", "forward, backward, ...", width=8)),
        (_record("params"), Header("params", "Params", "shapes and types of the op's arguments", width=0, grow=True)),
        (_record("step"), Header("step", "Step", "training step", width=4)),
        (lambda t: _whole(t.counted.flops),
         Header("flops_meas", "FLOPsMeasured", "FLOPs that were counted: FMA 2, Tensor Cores where counted", "FLOP", 12)),
        (lambda t: t.needed("flops"),
         Header("flops_model", "FLOPs", "FLOPs that the algorithm needs (of Proton: that its launch hook gave)", "FLOP", 12)),
        (lambda t: t.ratio(t.counted.flops, t.number("flops")), Header("ratio", "Ratio", "counted over needed FLOPs")),
        (lambda t: _whole(t.counted.dram_bytes),
         Header("bytes_meas", "BytesMeasured", "bytes to and from device memory that were counted", "B", 12)),
        (lambda t: t.needed("bytes"), Header("bytes_model", "Bytes", "least bytes of the algorithm", "B", 12)),
        (lambda t: t.ratio(t.counted.dram_bytes, t.number("bytes")),
         Header("bytes_ratio", "BytesRatio", "counted over least bytes")),
        (lambda t: t.ratio(t.counted.flops, t.counted.dram_bytes, 2),
         Header("ai", "AI", "measured intensity: FLOPs over bytes of device memory", "FLOP/B")),
        (lambda t: t.ratio(t.counted.flops, t.counted.l2_bytes, 2),
         Header("ai_l2", "AI(L2)", "FLOPs over bytes of L2", "FLOP/B")),
        (lambda t: t.ratio(t.counted.flops, t.counted.l1_bytes, 2),
         Header("ai_l1", "AI(L1)", "FLOPs over bytes of L1", "FLOP/B")),
        (lambda t: t.ratio(t.number("flops"), t.number("bytes"), 2),
         Header("ai_model", "AI(model)", "the algorithm's intensity", "FLOP/B")),
        (lambda t: t.ratio(t.counted.flops, t.time_ns * 1e3),
         Header("tflops", "TFLOP/s", "counted FLOPs over time", "TFLOP/s")),
        (lambda t: t.ratio(t.counted.dram_bytes, t.time_ns, 2), Header("gbs", "GB/s", "counted bytes over time", "GB/s")),
        (lambda t: t.ratio(1e11 * t.counted.flops / t.time_ns, t.roof(), 1),
         Header("roof", "Roof(%)", "of what device memory and the unit allow at the measured intensity", "%")),
        (CounterTable.bound, Header("bound", "Bound", "memory or math: which of them is the lower roof", width=6)),
        (lambda t: listed(one.tc for one in t.verdicts),
         Header("tc", "TC", "Tensor Cores: 1 used, 0 not, - not applicable", width=2, good="1", bad="0")),
        (lambda t: listed(one.unit or None for one in t.verdicts), Header("unit", "Unit", "unit that multiplied", width=6)),
        (CounterTable.matched,
         Header("match", "Match", "how its record was found: exact, nvtx, order, ambiguous, none", width=9)),
        (CounterTable.flags,
         Header("flags", "Flags", _FLAGS, width=10, empty="-")),
        (lambda t: listed(what or None for what in t.counted.what),
         Header("counted", "Counted", "which FLOPs were counted", width=10)),
        (lambda t: _whole(t.counted.tensor), Header("flops_tensor", "FLOPs(TC)", "counted on Tensor Cores", "FLOP", 12)),
        *((lambda t, of=of: _whole(t.counted.vector[of]),
           Header(f"flops_{of}", f"FLOPs({of})", f"counted on CUDA cores in {of}", "FLOP", 12))
          for of in ("fp16", "fp32", "fp64")),
        (lambda t: _whole(t.counted.l2_bytes), Header("l2_bytes", "L2Bytes", "bytes through L2", "B", 12)),
        (lambda t: _whole(t.counted.l1_bytes), Header("l1_bytes", "L1Bytes", "bytes through L1", "B", 12)),
        (_record("sil"), Header("sil", "Sil(ns)", "time in the capture", "ns", 10)),
        (lambda t: _whole(t.counted.time_ns),
         Header("tool_ns", "ToolTime(ns)", "time as the tool measured it; ncu runs kernels alone with clocks fixed", "ns", 10)),
        (_dim("grid"), Header("grid", "Grid", "blocks: x,y,z", width=12)),
        (_dim("block"), Header("block", "Block", "threads of a block: x,y,z", width=12)),
        (_launch("device"), Header("device", "Device", "device ordinal", width=3)),
        (_launch("stream"), Header("stream", "Stream", "stream", width=3)),
        (_launch("pid"), Header("pid", "PId", "process")),
        (lambda t: listed("scope" if one.is_scope else "kernel" for one in t.measured.launches),
         Header("kind", "Kind", "kernel, or a scope of Proton with the kernels inside", width=6)),
        (_launch("times"), Header("launches", "Launches", "launches that the row sums up", width=4)),
        (lambda t: listed(" > ".join(one.scopes) for one in t.measured.launches),
         Header("ranges", "Ranges", "NVTX ranges or scopes around the launch, outermost first", width=20, empty="-")),
    )
}  # fmt: skip
HEADERS = headers_of()


_GROUPED = ("step", "layer", "op")


def sample_table(samples: Samples, records: RecordTable) -> Table:
    """One row a step, layer and op: its kernels, their time, and the mean of each metric meanwhile; most time first.
    Raises InputError if nothing ran on a device.
    """
    of = records.frame.records
    rows = np.flatnonzero(np.isin(of["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH)))
    if not len(rows):
        raise InputError(
            "nothing ran on a GPU in it, so its samples belong to no op",
            "record CUDA as well (ProfilerActivity.CUDA; nsys -t cuda,nvtx)",
        )
    keys = [records.of(key).take(rows) for key in _GROUPED]
    groups = distinct_rows(
        *(coded(k)[0] if isinstance(k, Texts) else np.where(k.unknown, -1, k.values.astype(np.int64)) for k in keys)
    )
    count = len(groups.first)
    start, end = of["start_ns"][rows], of["start_ns"][rows] + of["dur_ns"][rows]
    time = np.bincount(groups.inverse, end - start, count)
    values: list[Values] = [key.take(groups.first) for key in keys]
    values += [Integers.known(np.bincount(groups.inverse, minlength=count)), Integers.known(time.astype(np.int64))]
    headers = [header for header in records.headers if header.key in _GROUPED]
    headers.sort(key=lambda header: _GROUPED.index(header.key))
    headers += [
        Header("kernels", "Kernels", "kernels of the op"),
        Header("time", "Time(ns)", "sum of their times", "ns", 10),
        Header("samples", "Samples", "samples in whose time its kernels ran at least half; 0: unsampled, its metrics are na"),
    ]
    most, means = np.zeros(count, np.int64), list[Values]()
    for metric, name in enumerate(samples.metrics):
        weighted, covered, number = np.zeros(count), np.zeros(count), np.zeros(count, np.int64)
        for device in np.unique(samples.device).tolist():
            mine = np.flatnonzero((of["device"][rows] == device) | (device < 0))
            chosen = (samples.metric == metric) & (samples.device == device)
            moments = samples.time_ns[chosen]
            group, at, part = _shares(moments, start[mine], end[mine], groups.inverse[mine])
            weighted += np.bincount(group, part * samples.value[chosen][at], count)
            covered += np.bincount(group, part, count)
            number += np.bincount(group, minlength=count)
        with np.errstate(invalid="ignore"):
            means.append(Fractions.not_nan(weighted / covered, 2))
        most = np.maximum(most, number)
        key, text = (re.sub(r"[^\w.]+", "_", name.lower()).strip("_"), name.replace(" ", "_"))
        headers.append(Header(key, text, "mean of these samples"))
    return Table(headers, [*values, Integers.known(most), *means], "samples").take(np.argsort(-time, kind="stable"))


def _shares(times: Ints, start: Ints, end: Ints, group: Ints) -> tuple[Ints, Ints, Ints]:
    """(group, sample, ns) where the intervals of a group fill at least half of the time since the sample before."""
    first = np.maximum(np.searchsorted(times, start, "right"), 1)
    last = np.minimum(np.searchsorted(times, end, "left"), len(times) - 1) + 1
    row, at = rows_of_spans(first, np.maximum(first, last))
    part = np.minimum(end[row], times[at]) - np.maximum(start[row], times[at - 1])
    keys, inverse = np.unique(group[row] * len(times) + at, return_inverse=True)
    of, at = np.divmod(keys, max(len(times), 1))
    since = times[at] - times[at - 1] if len(at) else at
    filled = np.minimum(np.bincount(inverse, part, len(keys)).astype(np.int64), since)  # kernels may run beside each other
    kept = (2 * filled >= since) & (filled > 0)
    return of[kept], at[kept], filled[kept]
