"""A file -> what people hold in Python: its records, tables, ops and summary.

Importing pyprof costs nothing: functions and methods import what they need. Errors are those of the command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from pyprof.errors import InputError, UsageError

if TYPE_CHECKING:
    import pandas

    from pyprof.parse.records.records import Records
    from pyprof.parse.sources.measured.launches import Measured
    from pyprof.parse.sources.trace import Trace
    from pyprof.prof.frame import Frame
    from pyprof.report.summary.summary import Summary
    from pyprof.tables.table import Source, Table, Values

_KINDS = "kernel,graph,cpu"
_HTML_ROWS = 10


def load(file: str | os.PathLike[str]) -> Loaded:
    """Read a capture (nsys, nvprof, torch.profiler), or records that `pyprof parse` wrote.

    The content of the file decides what it is; `-` is standard input. Raises PyprofError with a hint, as the command line
    prints it: InputError if the file cannot be read, ToolError if a tool or a package is missing.

        capture = pyprof.load("net.sqlite")
        capture.to_pandas(columns="op,kernel,sil,flops")    # one row a kernel
        capture.ops().to_pandas()                           # one row an op and its input shapes
        print(capture.summary())                            # what to fix first
    """
    from pyprof.loading import load_everything

    return Loaded(os.fspath(file), *load_everything(os.fspath(file)))


def table(file: str | os.PathLike[str], columns: str = "", kinds: str = _KINDS) -> pandas.DataFrame:
    """The records of a file as a DataFrame, one row each.

    columns: keys of `pyprof prof`, separated by commas, all if empty; kinds: as `--kinds`. Types and errors are those of
    `Loaded.to_pandas`.
    """
    return load(file).to_pandas(columns=columns, kinds=kinds)


def summary(file: str | os.PathLike[str], gpu: str | None = None) -> Summary:
    """What `pyprof summary FILE` shows, as an object: printed it is the screen, attributes are figures, `.json()` is all.

    gpu: hold rates against this device (a name or a JSON file). Errors: as `load`.
    """
    return load(file).summary(gpu)


class Rows:
    """A table that can be counted, iterated (each row a dict by column key, unknown is None) and shown in a notebook."""

    @cached_property
    def _table(self) -> Table:
        raise NotImplementedError

    def _brief(self) -> Table:
        """The rows and columns that a notebook shows."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._table.rows)

    def __iter__(self) -> Iterator[dict[str, object]]:
        rows = self._table
        keys = [header.key for header in rows.headers]
        return (dict(zip(keys, row, strict=True)) for row in zip(*map(_python, rows.values), strict=True))

    def _repr_html_(self) -> str:
        from html import escape

        from pyprof.tables.table import printed

        brief = self._brief()
        cells = [printed(header.shown(values)) for header, values in zip(brief.headers, brief.values, strict=True)]
        head = "".join(f"<th>{escape(header.text)}</th>" for header in brief.headers)
        body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in zip(*cells, strict=True))
        lines = "".join(f"<tr>{line}</tr>" for line in (head, *body))
        return f"<table><caption>{escape(repr(self))}</caption>{lines}</table>"


class Loaded(Rows):
    """The content of a file, as `load` returns it.

    file: its name; records: one row a GPU activity (or an op on the CPU), as columns; trace: the tables of a capture, None if
    the file holds records; measured: its hardware counters, None without. Counting and iteration cover the rows and the columns
    that `pyprof prof` shows by default.
    """

    def __init__(self, file: str, records: Records, trace: Trace | None, measured: Measured | None = None) -> None:
        self.file, self.records, self.trace, self.measured = file, records, trace, measured

    def __repr__(self) -> str:
        time_ns = int(self._shown["dur_ns"].clip(min=0).sum())
        return f"<pyprof: {self.file} ({self.records.source}), {len(self)} rows, {time_ns / 1e6:.3f} ms>"

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

    def _brief(self) -> Table:
        """The ops that took most time."""
        import numpy as np

        from pyprof.prof.columns import HEADERS
        from pyprof.prof.group import group_by
        from pyprof.tables.table import choose

        groups = group_by(self._frame, np.arange(len(self)), choose("op", HEADERS))
        return _chosen(groups, "op,calls,time,share,flops,known,lost").take(groups.order[:_HTML_ROWS])

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
        return _to_pandas(_chosen(RecordTable(frame), columns))

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
        from pyprof.counters.command import counter_table
        from pyprof.counters.samples import sample_table
        from pyprof.prof.columns import RecordTable
        from pyprof.prof.frame import Frame
        from pyprof.tables.table import Table

        if self.measured is None and self.trace is not None and self.trace.samples is not None:
            return _to_pandas(sample_table(self.trace.samples, RecordTable(Frame(self.records))))
        if self.measured is None:
            raise InputError(
                f"{self.file}: there are no counters in it", "`pyprof counters --metrics` prints how to record them"
            )
        table = counter_table([(self.measured, self.trace)], trace)
        frame = _to_pandas(Table(table.headers, [table.of(header.key) for header in table.headers]))
        return frame.rename(columns={"top_op": "top_level_op", "bottom_op": "bottom_level_op"})

    def summary(self, gpu: str | None = None) -> Summary:
        """As `pyprof.summary`, of this file."""
        from pyprof.hardware import gpus
        from pyprof.prof.frame import Frame
        from pyprof.report.overview import Overview
        from pyprof.report.summary.make import summarise

        frame = Frame(self.records, gpus.named(gpu) if gpu is not None else None)
        return summarise(Overview(frame, self.trace), self.file)


class Ops(Rows):
    """The ops of a capture, one row for each op (and its input shapes), those with most time first."""

    def __init__(self, trace: Trace, shapes: bool = True) -> None:
        self.trace, self.shapes = trace, shapes

    def __repr__(self) -> str:
        return f"<pyprof: ops{' by input shapes' if self.shapes else ''}, {len(self)} rows>"

    @cached_property
    def _table(self) -> Table:
        from pyprof.loading import op_rules
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
        return _to_pandas(_chosen(self._table, columns))


def _chosen(source: Source, columns: str) -> Table:
    """The columns of a comma-separated list, or all."""
    from pyprof.prof.columns import ALIASES
    from pyprof.tables.table import Table, choose

    headers = choose(columns, source.headers, ALIASES) if columns else source.headers
    return Table(headers, [source.of(header.key) for header in headers])


def _python(values: Values) -> list[object]:
    """A column as Python objects, None for unknown; a list for each value of a column of lists."""
    from pyprof.tables.table import Texts

    if isinstance(values, Texts):
        pool: list[object] = [*(values.pool if values.lists is None else map(list, values.lists)), None]
        return [pool[code] for code in values.codes.tolist()]
    return [None if unknown else value for value, unknown in zip(values.values.tolist(), values.unknown.tolist(), strict=True)]


def _to_pandas(rows: Table) -> pandas.DataFrame:
    import numpy as np
    import pandas as pd

    from pyprof.tables.table import Fractions, Integers

    series: dict[str, object] = {}
    for header, values in zip(rows.headers, rows.values, strict=True):
        if isinstance(values, Fractions):
            series[header.key] = np.where(values.unknown, np.nan, values.values)
        elif isinstance(values, Integers):
            if values.values.dtype == np.object_:  # sums beyond 64 bits are Python's own integers
                series[header.key] = [pd.NA if value is None else value for value in _python(values)]
                continue
            numbers = pd.array(values.values, dtype="Int64")
            numbers[values.unknown] = pd.NA
            series[header.key] = numbers
        else:
            pool = pd.Index(values.pool)
            codes = np.append(pd.factorize(pool)[0], -1)
            series[header.key] = pd.Categorical.from_codes(codes[values.codes], categories=pool.unique())
    return pd.DataFrame(series)
