"""The Python interface: a file -> its records, tables, ops, summary and comparisons.

Importing pyprof is cheap: functions and methods import what they need. Errors are those of the command line.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from pyprof.errors import InputError, UsageError
from pyprof.tables.rows import Rows, chosen, to_pandas

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from pyprof.model.allocations import AllocationTrace
    from pyprof.model.records import Records
    from pyprof.model.trace import Trace
    from pyprof.parse.sources.measured.launches import Measured
    from pyprof.prof.frame import Frame
    from pyprof.report.diff.result import Diff
    from pyprof.report.memory.report import MemoryReport
    from pyprof.report.page.data import Section
    from pyprof.report.summary.screen import Summary
    from pyprof.report.time.overview import Overview
    from pyprof.tables.table import Source, Table

_KINDS = "kernel,graph,cpu"
_HTML_ROWS = 10


def load(file: str | os.PathLike[str], graphs: str | os.PathLike[str] | None = None) -> Loaded:
    """Read a capture (nsys, nvprof, torch.profiler), or records that `pyprof parse` wrote.

    The content of the file decides what it is; `-` is standard input. Raises PyprofError with a hint, as the command line
    prints it: InputError if the file cannot be read, ToolError if a tool or a package is missing.

        capture = pyprof.load("net.sqlite")                 # shows what to fix first: the summary
        capture.to_pandas(columns="op,kernel,sil,flops")    # one row a kernel
        capture.ops().to_pandas()                           # one row an op and its input shapes
        capture.summary().mfu                               # every figure of the summary
        capture.compare("after.sqlite")                     # what changed
    """
    from pyprof.loading.load import load_everything

    return Loaded(os.fspath(file), *load_everything(os.fspath(file), None if graphs is None else os.fspath(graphs)))


def table(file: str | os.PathLike[str], columns: str = "", kinds: str = _KINDS) -> pandas.DataFrame:
    """The records of a file as a DataFrame, one row each.

    columns: keys of `pyprof prof`, separated by commas, all if empty; kinds: as `--kinds`. Types and errors as in
    `Loaded.to_pandas`.
    """
    return load(file).to_pandas(columns=columns, kinds=kinds)


def summary(file: str | os.PathLike[str], gpu: str | None = None) -> Summary:
    """The summary of a file, as an object: printed, it is the screen; attributes are figures; `.json()` is all.

    gpu: compare with this device's peaks (a name or a JSON file). Errors: as `load`.
    """
    return load(file).summary(gpu)


class Loaded(Rows):
    """The content of a file, as `load` returns it.

    file: its name; records: one row a GPU activity (or an op on the CPU), as columns; trace: the tables of a capture, None if
    the file holds records; measured: its hardware counters, allocations: its snapshot of memory, None without. At the prompt
    and in a notebook it shows its summary;
    counting and iteration cover the rows and the columns that `pyprof prof` shows by default.
    """

    def __init__(
        self, file: str, records: Records, trace: Trace | None, measured: Measured | None = None,
        allocations: AllocationTrace | None = None,
    ) -> None:  # fmt: skip
        self.file, self.records, self.trace, self.measured, self.allocations = file, records, trace, measured, allocations

    def __repr__(self) -> str:
        return repr(self.summary()) if self.allocations is None else str(self.memory())

    def _repr_html_(self) -> str:
        if self.allocations is None:
            return self.summary()._repr_html_()
        from html import escape

        return f"<pre>{escape(str(self.memory()))}</pre>"

    def __len__(self) -> int:
        return len(self._shown)

    @cached_property
    def _shown(self) -> Records:
        from pyprof.parse.records.selection import choose_kinds

        return choose_kinds(self.records, _KINDS)

    @cached_property
    def _frame(self) -> Frame:
        from pyprof.prof.frame import Frame

        return Frame(self._shown, None, self.records)

    @cached_property
    def _table(self) -> Table:
        from pyprof.prof.columns import DEFAULT, RecordTable

        return _chosen(RecordTable(self._frame), DEFAULT)

    def to_pandas(self, what: str = "records", columns: str = "", kinds: str = _KINDS) -> pandas.DataFrame:
        """A DataFrame. Integers are Int64, texts categories, unknown values NA. Times are in ns.

        what: `records`, one row a kernel (without a GPU, an op on the CPU) with the columns of `pyprof prof`; or `ops`, as
        `ops().to_pandas(columns)`. columns: keys separated by commas as for `-c`, all if empty; kinds: as `--kinds`.
        Raises UsageError for an unknown column, kind or `what`, InputError for the ops of a file that holds records only.
        """
        from pyprof.parse.records.selection import choose_kinds
        from pyprof.prof.columns import RecordTable
        from pyprof.prof.frame import Frame

        if what == "ops":
            return self.ops().to_pandas(columns)
        if what != "records":
            raise UsageError(f"there is no table {what!r}", "use 'records' or 'ops'")
        frame = self._frame if kinds == _KINDS else Frame(choose_kinds(self.records, kinds), None, self.records)
        return to_pandas(_chosen(RecordTable(frame), columns))

    def ops(self, shapes: bool = True) -> Ops:
        """The ops of a capture, including those nested in others, summed as torch's key_averages does.

        shapes: one row for each op and its input shapes, else one for each op. Raises InputError for a file that holds records.
        """
        if self.trace is None:
            raise InputError(f"{self.file}: records hold no ops inside others", "load the capture itself")
        return Ops(self.trace, shapes)

    def counters(self, trace: str | None = None) -> pandas.DataFrame:
        """Measured launches, one row each, with the columns of `pyprof counters` and every metric; unknown is NA.

        op_stack, top_level_op, bottom_level_op are named as HolisticTraceAnalysis names them. trace: a capture of the same
        program, which adds ops, times and needed FLOPs to what ncu measured. Of a trace with samples only the rows are steps,
        layers and ops, with the mean of each metric meanwhile. Raises InputError for a file without counters.
        """
        from pyprof.counters.joined import counter_table
        from pyprof.counters.table import sample_table
        from pyprof.prof.columns import RecordTable
        from pyprof.prof.frame import Frame
        from pyprof.tables.table import Table

        if self.measured is None and self.trace is not None and self.trace.samples is not None:
            return to_pandas(sample_table(self.trace.samples, RecordTable(Frame(self.records))))
        if self.measured is None:
            raise InputError(
                f"{self.file}: there are no counters in it", "`pyprof counters --metrics` prints how to record them"
            )
        table = counter_table([(self.measured, self.trace)], trace)
        frame = to_pandas(Table(table.headers, [table.of(header.key) for header in table.headers]))
        return frame.rename(columns={"top_op": "top_level_op", "bottom_op": "bottom_level_op"})

    def memory(self, at: str = "peak") -> MemoryReport:
        """Report what holds the memory, as `pyprof memory` does: printed it is the screen, `.to_dict()` is everything.

        at: `peak`, `end` or a time such as `105.2ms`. Raises InputError for a file without allocations, UsageError for `at`.
        """
        from pyprof.report.memory.make import reported

        return reported(self.trace if self.allocations is None else self.allocations, self.file, at)

    def summary(self, gpu: str | None = None) -> Summary:
        """The summary of this file, as `pyprof.summary` gives it. Raises InputError for a snapshot of memory."""
        from pyprof.report.summary.make import summarise

        if self.allocations is not None:
            raise InputError(f"{self.file}: a snapshot of torch's memory, not a capture", "call memory()")
        return self._summary if gpu is None else summarise(self._seen(gpu), self.file)

    @cached_property
    def _summary(self) -> Summary:
        from pyprof.report.summary.make import summarise

        return summarise(self.overview, self.file)

    @cached_property
    def overview(self) -> Overview:
        """Window, steps, time by kind of work and causes of idle time, from which all reports are made."""
        return self._seen(None)

    def _seen(self, gpu: str | None) -> Overview:
        """The overview of the whole file, compared with the peaks of a device (gpu)."""
        from pyprof.hardware import gpus
        from pyprof.prof.frame import Frame
        from pyprof.report.time.overview import Overview

        return Overview(Frame(self.records, None if gpu is None else gpus.named(gpu)))

    @cached_property
    def _section(self) -> Section:
        """The data of `pyprof report`, from which figures are drawn."""
        from pyprof.report.page.data import charted

        return charted(self.overview, self._summary)

    def plot_roofline(self, gpu: str | None = None) -> Figure:
        """A plotly figure of the window's ops: FLOP/s over FLOP per byte on logarithmic axes, below what the device allows.

        A point is an op with its shapes in one phase, its area is time; lines are the peak of each precision that multiplied,
        DRAM and L2. Ops whose FLOPs or bytes are unknown or zero have no point; how many, and how long they take, stands above.
        gpu: compare with this device's peaks. Raises ToolError if plotly is not installed, InputError for an unknown device.
        """
        from pyprof.report.figures.roofline import roofline
        from pyprof.report.page.data import section_of

        return roofline(self._section if gpu is None else section_of(self._seen(gpu), self.file))

    def plot_layers(self) -> Figure:
        """A plotly figure of the window's kernel time (without a GPU, of ops): layer > op > kernel as an icicle that zooms.

        Raises ToolError if plotly is not installed.
        """
        from pyprof.report.figures.layers import layers

        return layers(self._section)

    def plot_timeline(self) -> Figure:
        """A plotly figure of the window: busy time of each stream by phase, idle time of each device by cause.

        The longest gaps have lines of their own, which say what ran before and after. Raises ToolError if plotly is not
        installed.
        """
        from pyprof.report.figures.timeline import timeline

        return timeline(self._section)

    def compare(self, other: Loaded | str | os.PathLike[str]) -> Diff:
        """Compare with a later capture, as `pyprof diff` does. other: a result of `load`, or a file.

        Raises PyprofError as `load` does.
        """
        from pyprof.report.diff.compare import Comparison
        from pyprof.report.diff.result import Diff

        after = other if isinstance(other, Loaded) else load(other)
        return Diff((self.file, after.file), Comparison(self.overview, after.overview))


class Ops(Rows):
    """The ops of a capture, one row for each op (and its input shapes), those with most time first."""

    def __init__(self, trace: Trace, shapes: bool = True) -> None:
        self.trace, self.shapes = trace, shapes

    def __repr__(self) -> str:
        return f"<pyprof: ops{' by input shapes' if self.shapes else ''}, {len(self)} rows>"

    @cached_property
    def _table(self) -> Table:
        from pyprof.loading.formats import op_rules
        from pyprof.parse.attribution.op_executions import executions
        from pyprof.prof.averages import averages

        return averages(executions(self.trace, op_rules()), ["op", "shape"] if self.shapes else ["op"])

    def _brief(self) -> Table:
        keys = ("op,shape," if self.shapes else "op,") + "self_cpu,cpu_total,self_device,device_total,calls,flops"
        return _chosen(self._table, keys).take(self._table.rows[:_HTML_ROWS])

    def to_pandas(self, columns: str = "") -> pandas.DataFrame:
        """op, shape; self_cpu, self_cpu_pct, cpu_total, cpu_avg, self_device, self_device_pct, device_total, device_avg (ns and
        percent); cpu_mem, self_cpu_mem, device_mem, self_device_mem (bytes); calls, kernels, flops, bytes.

        self: without the ops inside an op; total: with them. columns: keys separated by commas, all if empty; torch's own names
        (self_cpu_time_total, cuda_time_total, count, ...) are accepted for them, in ns as well. Raises UsageError for others.
        """
        return to_pandas(_chosen(self._table, columns))


def _chosen(source: Source, columns: str) -> Table:
    """The columns of a comma-separated list, by prof's or torch's names, or all."""
    from pyprof.prof.columns import ALIASES

    return chosen(source, columns, ALIASES)
