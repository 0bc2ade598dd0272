"""Records and costs -> the values behind prof's columns, each computed when the first column needs it.

`take` gives a frame of some rows. Costs, sums over op instances and texts are made once for all records, the rest for the rows
taken. Texts are made once per distinct value, never per record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import TypeVar

import numpy as np

from pyprof.columns.distinct import among, distinct_places, distinct_rows, distinct_values, one_of, repeated, row_type
from pyprof.columns.types import Array, Bools, Floats, Ints
from pyprof.hardware import cpus
from pyprof.hardware.devices import Gpu
from pyprof.hardware.gpus import RecordedGpu, find
from pyprof.hardware.kernels import Verdict, verdict
from pyprof.hardware.occupancy import active_blocks, theoretical_occupancy, waves
from pyprof.messages import stage
from pyprof.model.dtypes import lookup
from pyprof.model.opcall import OpCall
from pyprof.model.records import PHASES, Classes, MarkedStep, Records, Stack, classes_of
from pyprof.model.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.cost import Costs, cost_records
from pyprof.prof.infer import infer, pairs_all
from pyprof.prof.roofline import LEAST_KERNEL_NS, Peaks, Roofline, Terms, limits, roofline, terms
from pyprof.tables.table import PART_ROWS, Fractions, Texts, texts

_T = TypeVar("_T")
_ON_GPU = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.MEMCPY, ActivityKind.MEMSET)
_NEVER = np.iinfo(np.int64).min


class Frame:
    """The records of a report and everything computed from them, on demand; or a subset of rows of another frame.

    whole: the frame of all records (itself unless it was taken from another); rows: positions of these records in it.
    """

    def __init__(
        self, records: Records, gpu: Gpu | None = None, ran: Records | None = None, numbers: Array | None = None
    ) -> None:
        """gpu: the device as the user names it, overriding the capture. ran: all records of the capture, so that an op's time
        includes its memsets even if these are not shown. numbers: of the records among all that are shown, from 0."""
        # Nothing can be inferred if no call has recorded arguments.
        described = any(map(attrgetter("args"), records.calls)) or any(map(attrgetter("kwargs"), records.calls))
        self.records, self.given = infer(records) if described else records, gpu
        self.whole, self.rows = self, np.arange(len(records), dtype=row_type(len(records)))
        self.numbers = self.rows if numbers is None else numbers
        self._ran = records if ran is None else ran
        self._texts = dict[tuple[str, object], Texts]()

    def take(self, rows: Array) -> Frame:
        """A frame of some rows; their costs and rates stay what they are among all records."""
        part = Frame.__new__(Frame)
        part.whole, part.rows, part.given = self.whole, self.rows[rows], self.given
        part.records, part.numbers = self.records.select(rows), self.numbers[rows]
        return part

    def forget(self, keep: Collection[str]) -> None:
        """Free columns of the records that can be read again, all but these."""
        for records in (self.records, self._ran):
            records.forget(keep)

    @cached_property
    def classes(self) -> Classes:
        """Records grouped by likeness."""
        return classes_of(self.records)

    @cached_property
    def of_classes(self) -> Frame:
        """A frame of one record per class, for values that are equal within a class."""
        return self.take(self.classes.first)

    @cached_property
    def costs(self) -> Costs:
        if self.whole is not self:
            costs = self.whole.costs
            return replace(costs, code=costs.code[self.rows], alike=costs.alike[self.rows])
        with stage("computing costs"):
            return cost_records(self.records, self.classes)

    def of_call(self, column: str, text: Callable[[OpCall], str | None]) -> Texts:
        """A text for each record's call; None is unknown."""
        return self._coded(column, text, self.records.calls)

    def of_stack(self, text: Callable[[Stack], str | None]) -> Texts:
        """A text for each record's stack, the one with its layers and source lines; None is unknown."""
        return self._coded("scope", text, self.records.stacks)

    def _coded(self, column: str, text: Callable[[_T], str | None], pool: Sequence[_T]) -> Texts:
        """A text made once per entry of the pool and function, then reused."""
        made = self.whole._texts
        if (column, text) not in made:
            made[column, text] = texts(np.append(np.arange(len(pool), dtype=np.int32), np.int32(-1)), [*map(text, pool)])
        return made[column, text].take(self.records[column])

    def of_engine_step(self, text: Callable[[MarkedStep], str | None]) -> Texts:
        """A text for each record's scheduler step; None is unknown."""
        return self._coded("engine_step", text, self.records.engine_steps)

    def of_name(self, text: Callable[[str], str]) -> Texts:
        """A text for each record's kernel name, made once per distinct name in use."""
        made, strings = self.whole._texts, self.records.strings
        if ("name", text) not in made:
            used, _ = distinct_places(self.whole.records["name"], len(strings))
            names = map(strings.__getitem__, used.tolist())
            found = texts(np.arange(len(used)), [text(name) if name.strip() else None for name in names])
            codes = np.full(len(strings) + 1, -1, np.int32)
            codes[used] = found.codes
            made["name", text] = found._replace(codes=codes)
        return made["name", text].take(self.records["name"])

    def sequence(self, alternative: bool) -> Texts:
        """The autograd sequence number of each record, or the others on its stack as a comma list; empty if there is none."""
        if alternative:
            return self._alternatives()
        numbers, _, inverse = distinct_rows(self.records["seq"])
        return Texts(inverse, [str(number) if number >= 0 else "" for number in numbers[0].tolist()])

    def _alternatives(self) -> Texts:
        """Distinct numbers on each record's stack, without the one that counts, and without 0 if there are others."""
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
        """Each device of the capture with notes on guessed numbers; the capture's own numbers win over the table's."""
        if self.whole is not self:
            return self.whole.gpus
        if self.given is not None:
            return [(self.given, [])] * max(len(self.records.gpus), 1)
        found = []
        for info in self.records.gpus:
            numbers = {key: value for key in RecordedGpu._fields[1:] if (value := getattr(info, key)) > 0}
            found.append(find(info.name, RecordedGpu(info.cc, **numbers)))
        return found

    @cached_property
    def roofline(self) -> Roofline:
        """Least time, limit and lost time of every record. Computed per class, except for the few records that differ from
        theirs."""
        if self.whole is not self:
            return self._of_devices(self._own_roofline())
        code, dur_ns = self.classes.code, self.records["dur_ns"]
        of_class = limits(self.of_classes._terms, self.of_classes._peaks.l2_bytes)
        found = roofline(dur_ns, dur_ns.astype(np.float64), None, of_class.take(code))
        others = self._unlike_their_class
        for start in range(0, len(others), PART_ROWS):
            some = others[start : start + PART_ROWS]
            for column, values in zip(found, self.take(some)._own_roofline(), strict=True):
                column[some] = values
        return self._of_devices(found)

    @cached_property
    def host_times(self) -> Bools:
        """Ops whose work a device did unseen: what they took is the host's time, and no rate follows from it."""
        return np.asarray((self.records["kind"] == ActivityKind.CPU) & (self.records["gpu"] >= 0))

    def _of_devices(self, found: Roofline) -> Roofline:
        if self.host_times.any():
            for column, unknown in zip(found, (np.nan, -1, -1), strict=True):
                column[self.host_times] = unknown
        return found

    @cached_property
    def _unlike_their_class(self) -> Ints:
        """Records that cost something else than the first of their class, were waited for, or share their instance."""
        cost, instance = self.costs.code, self.records["instance"]
        usual = cost[self.classes.first].take(self.classes.code)
        return np.flatnonzero((cost != usual) | self._waited | one_of(self._several[1:], len(instance))(instance))

    def _own_roofline(self) -> Roofline:
        instance = self.of_instance
        limit = limits(instance, self._peaks.l2_bytes)
        return roofline(self.records["dur_ns"], instance.time_ns, instance.launch_ns, limit)

    @cached_property
    def _peaks(self) -> Peaks:
        """Peak rates to compare each record with, looked up once per distinct (verdict, device)."""
        codes, verdicts = self.verdicts
        gpu = self.records["gpu"].astype(np.int64)
        if self.given is not None:
            gpu = np.where(np.isin(self.records["kind"], _ON_GPU), 0, gpu)
        over_links = (self.records["kind"] == ActivityKind.MEMCPY) & (self.records["copykind"] != 8)
        over_links |= self.records["phase"] == PHASES.index("communication")
        gpu = np.where(over_links, -1, gpu)  # their rates are not known
        distinct, _, inverse = distinct_rows(codes, gpu)
        known = self.whole._known_peaks
        rows = []
        for code, at in distinct.T.tolist():
            key = verdicts[code], at
            if key not in known:
                known[key] = self._peaks_of(*key)
            rows.append(known[key])
        table = np.array(rows, np.float64).reshape(-1, 5)[inverse]
        cpu = self.records["kind"] == ActivityKind.CPU
        if cpu.any():
            table[cpu] = self.whole._cpu_peaks[self.records["call"][cpu]]
        launch_ns = np.where(self.whole._waited[self.rows], self.records["launch_dur_ns"].astype(np.float64), np.nan)
        matmul, vector, dram, l2_bytes, least_ns = table.T
        return Peaks(matmul, vector, dram, l2_bytes, least_ns, launch_ns)

    @cached_property
    def _known_peaks(self) -> dict[tuple[Verdict, int], tuple[float, ...]]:
        """Results of `_peaks_of` so far."""
        return {}

    @cached_property
    def _waited(self) -> Bools:
        return waited_for_launch(self.records, self._ran)

    def _peaks_of(self, found: Verdict, gpu: int) -> tuple[float, ...]:
        if gpu < 0 or gpu >= len(self.gpus):
            return (np.nan,) * 5
        device = self.gpus[gpu][0]
        wide = "fp64" if found.math == "fp64" else "fp32"
        rates = (device.peak(found.math, found.unit), device.peaks.get(wide), device.dram_bytes_per_s, device.l2_bytes)
        return (*(np.nan if rate is None else float(rate) for rate in rates), LEAST_KERNEL_NS)

    @cached_property
    def _cpu_peaks(self) -> Floats:
        """Peaks of each call's dtype on this CPU, as measured by `pyprof doctor --calibrate`."""
        measured = cpus.peak()
        rows = []
        for call in self.records.calls:
            tag = operand_tag(call) if measured is not None else None
            rate = measured.tflops.get(tag or "fp32", np.nan) * 1e12 if measured is not None else np.nan
            rows.append((rate, rate, measured.dram_gbs * 1e9 if measured is not None else np.nan, np.nan, 0.0))
        return np.array([*rows, (np.nan,) * 5])

    @cached_property
    def _threads(self) -> Floats:
        """Threads per block."""
        axes = [self.records[f"block_{axis}"].astype(np.float64) for axis in "xyz"]
        return axes[0] * axes[1] * axes[2]

    @cached_property
    def _active(self) -> Floats:
        """Blocks resident on a multiprocessor; NaN is unknown."""
        records, result = self.records, np.full(len(self.records), np.nan)
        kernel = (records["kind"] == ActivityKind.KERNEL) & (records["block_x"] > 0)
        for code, (gpu, _) in enumerate(self.gpus):
            rows = kernel & (records["gpu"] == code)
            if gpu.limits is not None and rows.any():
                regs, shared = records["regs"][rows], records["smem_bytes"][rows]
                result[rows] = active_blocks(gpu.limits, self._threads[rows], regs, shared)
        return result

    @cached_property
    def occupancy(self) -> Fractions:
        """Theoretical occupancy, percent of resident warps."""
        result = np.full(len(self.records), np.nan)
        for code, (gpu, _) in enumerate(self.gpus):
            rows = (self.records["gpu"] == code) & ~np.isnan(self._active)
            if rows.any():
                result[rows] = theoretical_occupancy(gpu.limits, self._threads[rows], self._active[rows])
        return Fractions.not_nan(100 * result, 1)

    @cached_property
    def waves(self) -> Fractions:
        """Blocks of the grid over the blocks that fit on the device at once."""
        grid = np.prod([self.records[f"grid_{axis}"].astype(np.float64) for axis in "xyz"], axis=0)
        recorded = [info.sms for info in self.records.gpus]
        sms = [float(recorded[at] if recorded[at] > 0 else gpu.sms or 0) for at, (gpu, _) in enumerate(self.gpus)]
        return Fractions.not_nan(waves(grid, self._active, np.array([*sms, np.nan])[self.records["gpu"]]), 2)

    # ------------------------------------------------------------------ Tensor Cores

    @cached_property
    def verdicts(self) -> tuple[Ints, list[Verdict]]:
        """(code of each record, Tensor Core verdicts), one verdict per distinct (kernel name, op, device)."""
        codes, found = self.whole.class_verdicts
        return codes.take(self.costs.alike), found

    @cached_property
    def class_verdicts(self) -> tuple[Ints, list[Verdict]]:
        """(code of each class, Tensor Core verdicts)."""
        alike, found = self.classes.records, list[Verdict]()
        distinct, _, inverse = distinct_rows(self.costs.class_kernel, alike["call"], alike["gpu"])
        for kernel, call, gpu in distinct.T.tolist():
            op = self.records.calls[call] if call >= 0 else None
            amd = gpu >= 0 and self.gpus[gpu][0].amd
            cc = (self.records.gpus[gpu].cc or self.gpus[gpu][0].cc) if gpu >= 0 and not amd else None
            matmul = None if op is None else formulas.multiplies(op.name)
            found.append(verdict(self.costs.kernels[kernel], op_dtype=_operand_dtype(op), matmul=matmul, cc=cc, amd=amd))
        return inverse, found

    def of_verdict(self, text: Callable[[Verdict], str | None], not_applicable: str) -> Texts:
        """A text for each record's verdict, None unknown; not_applicable: the text for copies and ops on the CPU."""
        codes, found = self.verdicts
        cpu = self.records["kind"] == ActivityKind.CPU
        copy = np.isin(self.records["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET))
        return texts(np.where(cpu | copy, len(found), codes), [*map(text, found), not_applicable])

    # ------------------------------------------------------------------ terms of the instance

    @cached_property
    def _terms(self) -> Terms:
        """Roofline terms of each record by itself."""
        costs = self.costs
        parts = (costs.matmul_flops, costs.vector_flops, costs.bytes)
        streaming = np.array([kernel.kind == "memory" for kernel in costs.kernels] + [False], np.bool_)[costs.kernel]
        return terms(self.records["dur_ns"], parts, self.records["kind"] == ActivityKind.KERNEL, self._peaks, streaming)

    @cached_property
    def of_instance(self) -> Terms:
        """Roofline terms of each record's op instance, summed over its kernels; its time includes hidden rows."""
        place, sums = self.whole._place(self.records["instance"]), self.whole._sums
        return Terms(*(np.where(place > 0, total[place], own) for total, own in zip(sums, self._terms, strict=True)))

    @cached_property
    def _several(self) -> Ints:
        """-1, then the instances that have several records, ascending; the others need no sums."""
        found = repeated(self._ran["instance"])
        return np.append(-1, found[found >= 0])

    def _place(self, instance: Ints) -> Ints:
        """Position of each instance in `_several`; 0 if it has one record only."""
        place = np.searchsorted(self._several, instance, "right") - 1
        return np.where(self._several[place] == instance, place, 0)

    @cached_property
    def _sums(self) -> Terms:
        """The summed terms of each instance in `_several`, added in chunks of records."""
        sums = Terms(*np.zeros((len(Terms._fields), len(self._several))))
        ran, mine = self._ran["instance"], self.records["instance"]
        several = one_of(self._several[1:], len(ran))
        rows = np.flatnonzero(several(ran))
        np.add.at(sums.time_ns, self._place(ran[rows]), self._ran["dur_ns"][rows].astype(np.float64))
        rows = np.flatnonzero(several(mine))
        for start in range(0, len(rows), PART_ROWS):
            part = self.take(rows[start : start + PART_ROWS])
            place = self._place(part.records["instance"])
            for total, own in zip(sums[1:], part._terms[1:], strict=True):
                np.add.at(total, place, own)
        return sums

    def rate(self, what: str) -> Fractions:
        """Rate of each instance over the time of all its kernels: `flops` in TFLOP/s, `bytes` in GB/s; `ai` in FLOP/byte."""
        of = self.of_instance
        with np.errstate(divide="ignore", invalid="ignore"):
            if what == "ai":
                ratio = of.flops / of.bytes
            else:
                ratio = of.flops / of.time_ns / 1e3 if what == "flops" else of.bytes / of.time_ns
                ratio[self.host_times] = np.nan
        return Fractions(ratio, ~np.isfinite(ratio), 3 if what == "flops" else 2)


def frame_around(records: Records, shown: Bools, inside: Ints, gpu: Gpu | None = None) -> tuple[Frame, Ints]:
    """A frame from which everything can be read of some of the shown records, and their rows in it.

    shown: mask of the records; inside: positions of some of these, ascending. Where they are few, the frame holds only their
    ops with forward and backward: a cost is shared among the kernels of an op, a backward takes dtypes from its forward and a
    forward sizes from its backward, so that each value is the same as in a frame of all.
    """
    number = np.cumsum(shown, dtype=row_type(len(shown))) - 1
    if 2 * len(inside) < np.count_nonzero(shown) and not pairs_all(records):
        needed = _of_the_same_ops(records, inside)
        kept = needed[shown[needed]]
        return Frame(records.select(kept), gpu, records, number[kept]), np.searchsorted(kept, inside)
    return Frame(records.select(shown), gpu, records), number[inside]


def _of_the_same_ops(records: Records, inside: Ints) -> Ints:
    """Positions of these records and of all of the same ops, of their forward and of their backward, ascending."""
    needed, known = inside, -1
    while True:
        instances = np.concatenate([records.of_rows("instance", needed), records.of_rows("fwd_instance", needed)])
        instances = distinct_values(instances[instances >= 0])
        if len(instances) in (0, known):
            return needed
        known, near = len(instances), np.zeros(len(records), np.bool_)
        near[inside] = True  # some belong to no op
        for name in "instance", "fwd_instance":
            rows = np.flatnonzero(records.within(name, int(instances[0]), int(instances[-1]) + 1))
            near[rows] |= among(records.of_rows(name, rows), instances)
        needed = np.flatnonzero(near)


def waited_for_launch(records: Records, ran: Records) -> Bools:
    """Whether the device was idle (all streams of the process together) when each record's launch call returned.

    A kernel queued behind others loses nothing by its launch, however long the call took. ran: all records of the capture.
    False if unknown: without a launch of its own (kernels of a CUDA graph share one), or with nothing before it on the device.
    """
    result = np.zeros(len(records), np.bool_)
    known = (records["launch_ns"] >= 0) & (records["launch_dur_ns"] >= 0) & (records["graph_node"] < 0)
    on_device = (ran["kind"] != ActivityKind.CPU) & (ran["start_ns"] >= 0)
    for pid, device in distinct_rows(ran["pid"][on_device], ran["device"][on_device]).columns.T.tolist():
        there = np.flatnonzero(on_device & (ran["pid"] == pid) & (ran["device"] == device))
        begin = ran["start_ns"][there]
        if (begin[1:] < begin[:-1]).any():  # of several captures in one table
            there = there[np.argsort(begin, kind="stable")]
            begin = ran["start_ns"][there]
        # ended[i]: when all activities before the i-th had ended.
        ended = np.maximum.accumulate(np.append(_NEVER, begin + ran["dur_ns"][there]))
        rows = np.flatnonzero(known & (records["pid"] == pid) & (records["device"] == device))
        until = ended[np.searchsorted(begin, records["start_ns"][rows], "left")]
        returned = records["launch_ns"][rows] + records["launch_dur_ns"][rows]
        result[rows] = (until != _NEVER) & (until <= returned)
    return result


def params(op: OpCall) -> str | None:
    """Shapes and dtypes of an op's arguments; None is unknown."""
    found = formulas.params(op)
    return None if found == "na" else found


def operand_tag(op: OpCall) -> str | None:
    """Short name of the dtype that an op multiplies (`bf16`); None is unknown."""
    found = lookup(_operand_dtype(op))
    return None if found is None else found.tag


def _operand_dtype(op: OpCall | None) -> str | None:
    """The dtype that an op multiplies: from its formula, else of its first tensor with two or more dimensions (not a bias)."""
    if op is None:
        return None
    if (told := formulas.evaluate(op).cost.operands) is not None:
        return told
    found = [lookup(t.dtype) for t in op.tensors if len(t.shape) > 1] or [lookup(t.dtype) for t in op.tensors]
    return next((d.name for d in found if d is not None and d.matmul), None)
