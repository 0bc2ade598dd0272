"""Records and costs -> everything that columns are read from, each part computed when the first column needs it.

Texts are made once for each distinct value, never for each record. Columns and formats are not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Floats, Ints
from pyprof.dtypes import lookup
from pyprof.hardware import cpus
from pyprof.hardware.gpus import Gpu, find
from pyprof.hardware.kernels import Verdict, verdict
from pyprof.hardware.names import short_name
from pyprof.hardware.occupancy import active_blocks, theoretical_occupancy, waves
from pyprof.opcall import OpCall
from pyprof.parse.records.records import PHASES, GpuInfo, Records
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.cost import Costs, cost_records
from pyprof.prof.infer import infer
from pyprof.prof.roofline import LEAST_KERNEL_NS, Peaks, Roofline, roofline
from pyprof.tables.table import Fractions, Texts, texts

_MOST_SPARSE = 64  # times as many numbers of executions as there are rows before they are numbered anew
_ON_GPU = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.MEMCPY, ActivityKind.MEMSET)


class Frame:
    """All records of one report with what is computed from them."""

    def __init__(self, records: Records, gpu: Gpu | None = None, whole: Records | None = None) -> None:
        """gpu: what the user says that the device is, whatever the capture says. whole: what the records were chosen from, so
        that an op's time holds its memsets where these are not shown."""
        # Nothing can be inferred about calls of which no argument was recorded.
        described = any(map(attrgetter("args"), records.calls)) or any(map(attrgetter("kwargs"), records.calls))
        self.records = infer(records) if described else records
        self.given = gpu
        self._whole = records if whole is None else whole

    @cached_property
    def costs(self) -> Costs:
        return cost_records(self.records)

    def of_call(self, column: str, text: Callable[[OpCall], str | None]) -> Texts:
        """A text made once for each distinct call; None is unknown."""
        return texts(self.records[column], [*map(text, self.records.calls)])

    def of_name(self, text: Callable[[str], str]) -> Texts:
        """A text for each distinct kernel name that these records use."""
        names, _, inverse = distinct_rows(self.records["name"])
        distinct = [self.records.strings[code] for code in names[0].tolist()]
        return texts(inverse.astype(np.int32), [text(name) if name.strip() else None for name in distinct])

    @cached_property
    def short_names(self) -> Texts:
        return self.of_name(short_name)

    @cached_property
    def params(self) -> Texts:
        return self.of_call("call", _params)

    def sequence(self, alternative: bool) -> Texts:
        """The sequence numbers that count, or the others as comma lists; empty where a stack has none."""
        if alternative:
            return self._alternatives()
        numbers, _, inverse = distinct_rows(self.records["seq"])
        return Texts(inverse, [str(number) if number >= 0 else "" for number in numbers[0].tolist()])

    def _alternatives(self) -> Texts:
        """The distinct numbers of each record's stack but the one that counts, and but 0 where there are others."""
        records = self.records
        lengths = np.diff(records.seq_offsets)
        row, number = distinct_rows(np.repeat(np.arange(len(records)), lengths), records.seq_numbers).columns
        several = np.bincount(row, minlength=len(records))[row] > 1
        shown = (number != records["seq"][row]) & ~(several & (number == 0))
        row, number = row[shown], number[shown]
        rows, first = np.unique(row, return_index=True)
        parts = [",".join(map(str, part.tolist())) for part in np.split(number, first[1:])] if len(rows) else []
        pool: dict[str, int] = {"": 0}
        codes = np.zeros(len(records), np.int64)
        codes[rows] = [pool.setdefault(part, len(pool)) for part in parts]
        return Texts(codes, list(pool))

    def shape(self, kind: str) -> Texts:
        """`x,y,z` of grid or block."""
        distinct, _, inverse = distinct_rows(*(self.records[f"{kind}_{axis}"] for axis in "xyz"))
        return texts(inverse, [None if x < 0 else f"{x},{y},{z}" for x, y, z in distinct.T.tolist()])

    # ------------------------------------------------------------------ the device

    @cached_property
    def gpus(self) -> list[tuple[Gpu, list[str]]]:
        """Each device of the capture, its numbers before the table's, with notes on what is guessed."""
        if self.given is not None:
            return [(self.given, [])] * max(len(self.records.gpus), 1)
        return [_described(info) for info in self.records.gpus]

    @cached_property
    def roofline(self) -> Roofline:
        """Least times, limits and lost time of every record."""
        records, costs = self.records, self.costs
        kernels = records["kind"] == ActivityKind.KERNEL
        parts = (costs.matmul_flops, costs.vector_flops, costs.bytes)
        return roofline(self._group, records["dur_ns"], self._instance_sums["ns"], parts, kernels, self._peaks())

    def _peaks(self) -> Peaks:
        """Once for each distinct (verdict, device): the rates that records are held against."""
        codes, verdicts = self.verdicts
        gpu = self.records["gpu"].astype(np.int64)
        if self.given is not None:
            gpu = np.where(np.isin(self.records["kind"], _ON_GPU), 0, gpu)
        elsewhere = np.isin(self.records["kind"], (ActivityKind.MEMCPY,)) & (self.records["copykind"] != 8)
        elsewhere |= self.records["phase"] == PHASES.index("communication")  # over links whose rates are not known
        gpu = np.where(elsewhere, -1, gpu)
        distinct, _, inverse = distinct_rows(codes, gpu)
        rows = [self._peaks_of(verdicts[code], at) for code, at in distinct.T.tolist()]
        table = np.array(rows, np.float64).reshape(-1, 5)[inverse]
        cpu = self.records["kind"] == ActivityKind.CPU
        if cpu.any():
            table[cpu] = self._cpu_peaks()[self.records["call"][cpu]]
        matmul, vector, dram, l2_bytes, least_ns = table.T
        return Peaks(matmul, vector, dram, l2_bytes, least_ns, _launch_ns(self.records))

    def _peaks_of(self, found: Verdict, gpu: int) -> tuple[float, ...]:
        if gpu < 0 or gpu >= len(self.gpus):
            return (np.nan,) * 5
        device = self.gpus[gpu][0]
        wide = "fp64" if found.math == "fp64" else "fp32"
        rates = (device.peak(found.math, found.unit), device.peaks.get(wide), device.dram_bytes_per_s, device.l2_bytes)
        return (*(np.nan if rate is None else float(rate) for rate in rates), LEAST_KERNEL_NS)

    def _cpu_peaks(self) -> Floats:
        """For each call what `pyprof doctor --calibrate` measured on this machine for its type."""
        measured = cpus.peak()
        rows = []
        for call in self.records.calls:
            tag = operand_tag(call) if measured is not None else None
            rate = measured.tflops.get(tag or "fp32", np.nan) * 1e12 if measured is not None else np.nan
            rows.append((rate, rate, measured.dram_gbs * 1e9 if measured is not None else np.nan, np.nan, 0.0))
        return np.array([*rows, (np.nan,) * 5])

    def _gpu_number(self, value: Callable[[int], float]) -> Floats:
        known = np.array([value(i) for i in range(len(self.gpus))] + [np.nan])
        numbers: Floats = known[self.records["gpu"]]
        return numbers

    @cached_property
    def _active(self) -> Floats:
        """Blocks that a multiprocessor holds, NaN unknown."""
        records = self.records
        threads = np.prod([records[f"block_{axis}"].astype(np.float64) for axis in "xyz"], axis=0)
        result = np.full(len(records), np.nan)
        kernel = (records["kind"] == ActivityKind.KERNEL) & (records["block_x"] > 0)
        for code, (gpu, _) in enumerate(self.gpus):
            rows = kernel & (records["gpu"] == code)
            if gpu.limits is not None and rows.any():
                regs, shared = records["regs"][rows], records["smem_bytes"][rows]
                result[rows] = active_blocks(gpu.limits, threads[rows], regs, shared)
        return result

    @cached_property
    def occupancy(self) -> Fractions:
        """Theoretical occupancy, percent of resident warps."""
        records = self.records
        threads = np.prod([records[f"block_{axis}"].astype(np.float64) for axis in "xyz"], axis=0)
        result = np.full(len(records), np.nan)
        for code, (gpu, _) in enumerate(self.gpus):
            rows = (records["gpu"] == code) & ~np.isnan(self._active)
            if rows.any():
                result[rows] = theoretical_occupancy(gpu.limits, threads[rows], self._active[rows])
        return Fractions.not_nan(100 * result, 1)

    @cached_property
    def waves(self) -> Fractions:
        """Blocks of the grid over the blocks that the device holds at once."""
        grid = np.prod([self.records[f"grid_{axis}"].astype(np.float64) for axis in "xyz"], axis=0)
        sms = self._gpu_number(
            lambda i: float(self.records.gpus[i].sms if self.records.gpus[i].sms > 0 else self.gpus[i][0].sms or 0)
        )
        return Fractions.not_nan(waves(grid, self._active, sms), 2)

    # ------------------------------------------------------------------ Tensor Cores

    @cached_property
    def verdicts(self) -> tuple[Ints, list[Verdict]]:
        """Once for each distinct (kernel name, op, device)."""
        records, costs = self.records, self.costs
        distinct, _, inverse = distinct_rows(costs.kernel, records["call"], records["gpu"])
        found = [self._verdict(*key) for key in distinct.T.tolist()]
        return inverse, found

    def _verdict(self, kernel: int, call: int, gpu: int) -> Verdict:
        op = self.records.calls[call] if call >= 0 else None
        cc = (self.records.gpus[gpu].cc or self.gpus[gpu][0].cc) if gpu >= 0 else None
        matmul = None if op is None else formulas.matmul_class(op.name)
        return verdict(self.costs.kernels[kernel], op_dtype=_operand_dtype(op), matmul=matmul, cc=cc)

    def of_verdict(self, text: Callable[[Verdict], str | None], not_applicable: str) -> Texts:
        """A text of each verdict, None unknown; not_applicable: that of copies and of ops on the CPU."""
        codes, found = self.verdicts
        cpu = self.records["kind"] == ActivityKind.CPU
        copy = np.isin(self.records["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET))
        return texts(np.where(cpu | copy, len(found), codes), [*map(text, found), not_applicable])

    # ------------------------------------------------------------------ rates of the instance

    @cached_property
    def _group(self) -> Ints:
        """A number for each record's instance; a record without one is its own."""
        instance = self.records["instance"].astype(np.int64)
        alone = int(instance.max(initial=-1)) + 1 + np.arange(len(instance))
        return distinct_rows(np.where(instance >= 0, instance, alone)).inverse

    @cached_property
    def _instance_sums(self) -> dict[str, npt.NDArray[Any]]:
        """Time, operations and bytes of each record's instance over all its kernels; NaN unknown."""
        records, costs, group = self.records, self.costs, self._group
        instance, of_whole = records["instance"], self._whole["instance"]
        if instance.max(initial=-1) > _MOST_SPARSE * len(of_whole):  # a few rows of a large capture, or a number out of range
            both = np.concatenate([instance, of_whole])
            place = np.where(both >= 0, np.unique(both, return_inverse=True)[1], -1)
            instance, of_whole = place[: len(instance)], place[len(instance) :]
        time = np.bincount(of_whole[of_whole >= 0], self._whole["dur_ns"][of_whole >= 0], int(instance.max(initial=-1)) + 1)
        alone = records["dur_ns"].astype(np.float64)
        sums: dict[str, npt.NDArray[Any]] = {"ns": np.where(instance >= 0, time[instance] if len(time) else alone, alone)}
        for name, values in (("flops", costs.flops), ("matmul", costs.matmul_flops), ("bytes", costs.bytes)):
            sums[name] = np.bincount(group, np.where(values >= 0, values, np.nan))[group]
        return sums

    def rate(self, what: str) -> Fractions:
        """`flops` in TFLOP/s, `bytes` in GB/s, `ai` in FLOP/byte: of the instance over the time of all its kernels."""
        sums = self._instance_sums
        with np.errstate(divide="ignore", invalid="ignore"):
            if what == "ai":
                ratio = sums["flops"] / sums["bytes"]
            else:
                ratio = sums[what] / sums["ns"] / (1e3 if what == "flops" else 1.0)
        return Fractions(ratio, ~np.isfinite(ratio), 3 if what == "flops" else 2)


def _launch_ns(records: Records) -> Floats:
    """How long the call took that launched each record alone; a graph's launches many."""
    alone = (records["launch_dur_ns"] >= 0) & (records["graph_node"] < 0)
    return np.where(alone, records["launch_dur_ns"].astype(np.float64), np.nan)


def _described(info: GpuInfo) -> tuple[Gpu, list[str]]:
    """What the table has of a device, with the numbers that the capture recorded."""
    gpu, notes = find(info.name, info.cc, info.sms if info.sms > 0 else None, info.clock_hz if info.clock_hz > 0 else None)
    recorded = {key: value for key in ("dram_bytes_per_s", "l2_bytes") if (value := getattr(info, key)) > 0}
    return gpu.with_measured(**recorded), notes


def _params(op: OpCall) -> str | None:
    found = formulas.params(op)
    return None if found == "na" else found


def operand_tag(op: OpCall) -> str | None:
    """The tag of the element type that an op multiplies (`bf16`), None unknown."""
    found = lookup(_operand_dtype(op))
    return None if found is None else found.tag


def _operand_dtype(op: OpCall | None) -> str | None:
    """The element type that an op multiplies: that of its first tensor with rows and columns (a bias has none)."""
    if op is None:
        return None
    found = [lookup(t.dtype) for t in op.tensors if len(t.shape) > 1] or [lookup(t.dtype) for t in op.tensors]
    return next((d.name for d in found if d is not None and d.matmul), None)
