"""Records and costs -> everything that columns are read from, each thing computed when the first column needs it.

A frame can be taken apart by rows: costs, sums over the instances of ops, and texts are made once for all its records, the rest
for the rows taken. Texts are made once for each distinct value, never for each record. Columns and formats are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TypeVar

import numpy as np

from pyprof.arrays.columns import distinct_places, distinct_rows, one_of, repeated
from pyprof.arrays.joining import rows_where
from pyprof.arrays.spool import empty, pieces, taken, touched
from pyprof.arrays.types import Bools, Floats, Ints
from pyprof.dtypes import lookup
from pyprof.hardware import cpus
from pyprof.hardware.devices import Gpu
from pyprof.hardware.gpus import RecordedGpu, find
from pyprof.hardware.kernels import Verdict, verdict
from pyprof.hardware.occupancy import active_blocks, theoretical_occupancy, waves
from pyprof.messages import stage
from pyprof.opcall import OpCall
from pyprof.parse.records.classes import Classes, classes_of
from pyprof.parse.records.records import COLUMNS, PHASES, POOLED, GpuInfo, MarkedStep, Records, Stack
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.cost import cost_records
from pyprof.prof.costs import Costs
from pyprof.prof.infer import infer
from pyprof.prof.roofline import LEAST_KERNEL_NS, Peaks, Roofline, Terms, limits, roofline, terms
from pyprof.prof.waiting import waited_for_launch
from pyprof.tables.table import PART_ROWS, Fractions, Texts, texts

_T = TypeVar("_T")
_ON_GPU = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.MEMCPY, ActivityKind.MEMSET)


class Frame:
    """All records of one report with what is computed from them."""

    def __init__(self, records: Records, gpu: Gpu | None = None, whole: Records | None = None) -> None:
        """gpu: what the user says that the device is, whatever the capture says. whole: what the records were chosen from, so
        that an op's time holds its memsets where these are not shown."""
        # Nothing can be inferred about calls of which no argument was recorded.
        described = any(map(attrgetter("args"), records.calls)) or any(map(attrgetter("kwargs"), records.calls))
        self.records = infer(records) if described else records
        for each in (records, self.records):
            each.release(*COLUMNS)  # most of what was looked at here is not needed soon
        self.given = gpu
        self._whole = self._ran = records if whole is None else whole
        self._all: Frame | None = None  # what this is a part of
        self._texts = dict[tuple[str, object], Texts]()

    @property
    def rows(self) -> Ints:
        """The numbers of these records, from 0."""
        return np.arange(len(self.records))

    @property
    def numbers(self) -> Ints:
        """The numbers of these records in the whole capture, from 0."""
        return (self._all or self).numbers_of(self.rows)

    def numbers_of(self, rows: Ints) -> Ints:
        """The same of some of them."""
        return rows

    def within(self) -> tuple[Records, Bools | None]:
        """The records of the whole capture and which of them these are; None: all."""
        return self.records, None

    @cached_property
    def classes(self) -> Classes:
        """The classes of the records."""
        found = classes_of(self.records)
        columns = found.records.columns
        self.records.are_of(found.code, columns)
        if len(self._ran) == len(self.records):  # as the capture has them, with the calls that it holds
            self._ran.are_of(found.code, {name: columns[name] for name in columns if POOLED.get(name) != "calls"})
        return found

    @cached_property
    def of_classes(self) -> Frame:
        """A frame of one record of each class, for what depends on that alone."""
        return Part(self, self.classes.first, self.classes.records)

    @cached_property
    def costs(self) -> Costs:
        with stage("computing costs"):
            found = cost_records(self.records, self.classes)
        self.records.release(*COLUMNS)
        return found

    def of_call(self, column: str, text: Callable[[OpCall], str | None]) -> Texts:
        """A text of each call; None is unknown."""
        return self._coded(column, text, self.records.calls)

    def of_stack(self, text: Callable[[Stack], str | None]) -> Texts:
        """A text of each stack whose layers and source lines hold; None is unknown."""
        return self._coded("scope", text, self.records.stacks)

    def _coded(self, column: str, text: Callable[[_T], str | None], pool: Sequence[_T]) -> Texts:
        """A text made once for each of the pool, and for the same function again never."""
        made = (self._all or self)._texts
        if (column, text) not in made:
            made[column, text] = texts(np.append(np.arange(len(pool), dtype=np.int32), np.int32(-1)), [*map(text, pool)])
        return made[column, text].take(self.records[column])

    def of_engine_step(self, text: Callable[[MarkedStep], str | None]) -> Texts:
        """A text of each step of a serving engine; None is unknown."""
        return self._coded("engine_step", text, self.records.engine_steps)

    def of_name(self, text: Callable[[str], str]) -> Texts:
        """A text for each distinct kernel name that the records use, made once."""
        made, strings = (self._all or self)._texts, self.records.strings
        if ("name", text) not in made:
            used, _ = distinct_places((self._all or self).records["name"], len(strings))
            names = map(strings.__getitem__, used.tolist())
            found = texts(np.arange(len(used)), [text(name) if name.strip() else None for name in names])
            codes = np.full(len(strings) + 1, -1, np.int32)
            codes[used] = found.codes
            made["name", text] = found._replace(codes=codes)
        return made["name", text].take(self.records["name"])

    def sequence(self, alternative: bool) -> Texts:
        """The sequence numbers that count, or the others as comma lists; empty where a stack has none."""
        if alternative:
            return self._alternatives()
        numbers, _, inverse = distinct_rows(self.records["seq"])
        return Texts(inverse, [str(number) if number >= 0 else "" for number in numbers[0].tolist()])

    def _alternatives(self) -> Texts:
        """The distinct numbers of each record's stack but the one that counts, and but 0 where there are others."""
        records = self.records
        row, number = np.repeat(np.arange(len(records)), np.diff(records.seq_offsets)), records.seq_numbers
        others = np.zeros(len(records), np.bool_)
        others[row[number != records["seq"][row]]] = True
        row, number = distinct_rows(row[others[row]], number[others[row]]).columns
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
        """Least times, limits and lost time of every record. Limits are those of its class but for a few, which are looked at
        by themselves."""
        rows, code, dur_ns = len(self.records), self.classes.code, self.records["dur_ns"]
        of_class = limits(self.of_classes._terms, self.of_classes._peaks.l2_bytes)
        whole = Roofline(*(empty(rows, dtype) for dtype in (np.float64, np.int8, np.int64)))

        def put(at: slice | Ints, found: Roofline) -> None:
            for column, values in zip(whole, found, strict=True):
                column[at] = values

        for part in pieces(rows):
            took, own = dur_ns[part], code[part]
            put(part, roofline(took, took.astype(np.float64), None, of_class.take(own)))
        others = self._unlike_their_class
        for start in range(0, len(others), PART_ROWS):
            some = others[start : start + PART_ROWS]
            put(some, Part(self, some)._roofline())
            touched()
        return whole

    @cached_property
    def _unlike_their_class(self) -> Ints:
        """The records that carry something else than the first of their class, were waited for, or have others in their
        instance."""
        cost, code, waited, instance = self.costs.code, self.classes.code, self._waited, self.records["instance"]
        usual, several = cost[self.classes.first], one_of(self._several[1:], len(instance))
        return rows_where(
            len(code), lambda part: (cost[part] != usual.take(code[part])) | waited[part] | several(instance[part])
        )

    def _roofline(self) -> Roofline:
        instance = self.of_instance
        limit = limits(instance, self._peaks.l2_bytes)
        return roofline(self.records["dur_ns"], instance.time_ns, instance.launch_ns, limit)

    @cached_property
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
            table[cpu] = (self._all or self)._cpu_peaks[self.records["call"][cpu]]
        launch_ns = np.where((self._all or self)._waited[self.rows], self.records["launch_dur_ns"].astype(np.float64), np.nan)
        matmul, vector, dram, l2_bytes, least_ns = table.T
        return Peaks(matmul, vector, dram, l2_bytes, least_ns, launch_ns)

    @cached_property
    def _waited(self) -> Bools:
        found = waited_for_launch(self.records, self._ran)
        for records in (self.records, self._ran):
            records.release("start_ns")
        return found

    def _peaks_of(self, found: Verdict, gpu: int) -> tuple[float, ...]:
        if gpu < 0 or gpu >= len(self.gpus):
            return (np.nan,) * 5
        device = self.gpus[gpu][0]
        wide = "fp64" if found.math == "fp64" else "fp32"
        rates = (device.peak(found.math, found.unit), device.peaks.get(wide), device.dram_bytes_per_s, device.l2_bytes)
        return (*(np.nan if rate is None else float(rate) for rate in rates), LEAST_KERNEL_NS)

    @cached_property
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
        codes, found = self.class_verdicts
        return taken(codes, self.classes.code), found

    @cached_property
    def class_verdicts(self) -> tuple[Ints, list[Verdict]]:
        """The same, with a code of each class."""
        alike = self.classes.records
        distinct, _, inverse = distinct_rows(self.costs.class_kernel, alike["call"], alike["gpu"])
        return inverse, [self._verdict(*key) for key in distinct.T.tolist()]

    @cached_property
    def distinct_verdicts(self) -> tuple[Ints, list[Verdict]]:
        """The same, equal ones once, since texts and peaks are made of each for every part."""
        codes, found = self.class_verdicts
        pool = dict[Verdict, int]()
        number = np.array([pool.setdefault(one, len(pool)) for one in found], np.int64)
        return number[codes], list(pool)

    def _verdict(self, kernel: int, call: int, gpu: int) -> Verdict:
        op = self.records.calls[call] if call >= 0 else None
        amd = gpu >= 0 and self.gpus[gpu][0].amd
        cc = (self.records.gpus[gpu].cc or self.gpus[gpu][0].cc) if gpu >= 0 and not amd else None
        matmul = None if op is None else formulas.matmul_class(op.name)
        return verdict(self.costs.kernels[kernel], op_dtype=_operand_dtype(op), matmul=matmul, cc=cc, amd=amd)

    def of_verdict(self, text: Callable[[Verdict], str | None], not_applicable: str) -> Texts:
        """A text of each verdict, None unknown; not_applicable: that of copies and of ops on the CPU."""
        codes, found = self.verdicts
        cpu = self.records["kind"] == ActivityKind.CPU
        copy = np.isin(self.records["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET))
        return texts(np.where(cpu | copy, len(found), codes), [*map(text, found), not_applicable])

    # ------------------------------------------------------------------ terms of the instance

    @cached_property
    def _terms(self) -> Terms:
        """Those of each record by itself."""
        costs = self.costs
        parts = (costs.matmul_flops, costs.vector_flops, costs.bytes)
        return terms(self.records["dur_ns"], parts, self.records["kind"] == ActivityKind.KERNEL, self._peaks)

    @cached_property
    def of_instance(self) -> Terms:
        """Those of each record's instance, over all its kernels and, for its time, those that are not among the records."""
        place, sums = self._place(self.records["instance"]), (self._all or self)._sums
        return Terms(*(np.where(place > 0, total[place], own) for total, own in zip(sums, self._terms, strict=True)))

    @cached_property
    def _several(self) -> Ints:
        """The numbers of the instances of several records, ascending, behind -1. The others need no sums."""
        found = repeated(self._whole["instance"])
        return np.append(-1, found[found >= 0])

    def _place(self, instance: Ints) -> Ints:
        """Where each instance stands among those of several records; 0: it is none of them."""
        several = (self._all or self)._several
        place = np.searchsorted(several, instance, "right") - 1
        return np.where(several[place] == instance, place, 0)

    @cached_property
    def _sums(self) -> Terms:
        """The terms of each instance of several records, some records at a time."""
        sums = Terms(*np.zeros((len(Terms._fields), len(self._several))))
        instance, dur_ns = self._whole["instance"], self._whole["dur_ns"]
        several = one_of(self._several[1:], len(instance))
        rows = rows_where(len(instance), lambda part: several(instance[part]))
        for start in range(0, len(rows), PART_ROWS):
            some = rows[start : start + PART_ROWS]
            np.add.at(sums.time_ns, self._place(instance[some]), dur_ns[some].astype(np.float64))
            touched()
        mine = self.records["instance"]
        rows = rows_where(len(mine), lambda part: several(mine[part]))
        self._whole.release("instance", "dur_ns")
        for start in range(0, len(rows), PART_ROWS):
            part = Part(self, rows[start : start + PART_ROWS])
            place = part._place(part.records["instance"])
            for total, own in zip(sums[1:], part._terms[1:], strict=True):
                np.add.at(total, place, own)
            touched()
        return sums

    def rate(self, what: str) -> Fractions:
        """`flops` in TFLOP/s, `bytes` in GB/s, `ai` in FLOP/byte: of the instance over the time of all its kernels."""
        of = self.of_instance
        with np.errstate(divide="ignore", invalid="ignore"):
            if what == "ai":
                ratio = of.flops / of.bytes
            else:
                ratio = of.flops / of.time_ns / 1e3 if what == "flops" else of.bytes / of.time_ns
        return Fractions(ratio, ~np.isfinite(ratio), 3 if what == "flops" else 2)


class Part(Frame):
    """Some rows of a whole frame, with all that is known of them there, which may depend on others."""

    rows: Ints = np.empty(0, np.int64)

    def __init__(self, frame: Frame, rows: Ints, records: Records | None = None) -> None:
        """records: those at these rows, where they are made already."""
        self._all, self.rows = frame, rows
        self.records, self.given = frame.records.select(rows) if records is None else records, frame.given

    def within(self) -> tuple[Records, Bools | None]:
        whole = (self._all or self).records
        return whole, np.isin(np.arange(len(whole)), self.rows)

    @cached_property
    def costs(self) -> Costs:
        return (self._all or self).costs.at(self.rows)

    @cached_property
    def roofline(self) -> Roofline:
        return self._roofline()

    @cached_property
    def verdicts(self) -> tuple[Ints, list[Verdict]]:
        codes, found = (self._all or self).distinct_verdicts
        return codes.take(self.costs.alike), found

    @cached_property
    def gpus(self) -> list[tuple[Gpu, list[str]]]:
        return (self._all or self).gpus


def _described(info: GpuInfo) -> tuple[Gpu, list[str]]:
    """What the table has of a device, with the numbers that the capture recorded."""
    numbers = {key: value for key in RecordedGpu._fields[1:] if (value := getattr(info, key)) > 0}
    return find(info.name, RecordedGpu(info.cc, **numbers))


def params(op: OpCall) -> str | None:
    """Shapes and types of an op's arguments, None unknown."""
    found = formulas.params(op)
    return None if found == "na" else found


def operand_tag(op: OpCall) -> str | None:
    """The tag of the element type that an op multiplies (`bf16`), None unknown."""
    found = lookup(_operand_dtype(op))
    return None if found is None else found.tag


def _operand_dtype(op: OpCall | None) -> str | None:
    """The element type that an op multiplies, as its formula has it, else that of its first tensor with rows and columns (a
    bias has none)."""
    if op is None:
        return None
    if (told := formulas.evaluate(op).cost.operands) is not None:
        return told
    found = [lookup(t.dtype) for t in op.tensors if len(t.shape) > 1] or [lookup(t.dtype) for t in op.tensors]
    return next((d.name for d in found if d is not None and d.matmul), None)
