"""A file -> pandas DataFrames, for people who go on in Python: of records, and of ops as torch's key_averages has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyprof.errors import InputError, UsageError

if TYPE_CHECKING:
    import pandas

    from pyprof.parse.records.records import Records
    from pyprof.parse.sources.trace import Trace
    from pyprof.tables.table import Header, Table, Values

__all__ = ["Loaded", "Ops", "load", "table"]


def table(file: str, columns: str = "", kinds: str = "kernel,graph,cpu") -> pandas.DataFrame:
    """One row a record of a capture or of the records that parse wrote: `load(file).to_pandas(columns=..., kinds=...)`."""
    return load(file).to_pandas(columns=columns, kinds=kinds)


def load(file: str) -> Loaded:
    """A capture, or records that parse wrote. Raises PyprofError as the command line does."""
    from pyprof.loading import load_with_trace

    return Loaded(file, *load_with_trace(file))


@dataclass(frozen=True)
class Loaded:
    """What a file holds. records: one row an activity, as columns; trace: the capture's own tables, None of records."""

    file: str
    records: Records
    trace: Trace | None

    def to_pandas(self, what: str = "records", columns: str = "", kinds: str = "kernel,graph,cpu") -> pandas.DataFrame:
        """A DataFrame. Whole numbers are Int64, texts categories; what is unknown is NA. Times are in ns.

        what: `records`, one row a kernel (without a GPU, an op on the CPU) with the columns of `pyprof prof`; or `ops`, one row
        an op and its input shapes with the columns of torch's key_averages, as `ops().to_pandas()`.
        columns: keys by comma as for `-c`, all where empty; kinds: of records, as for `--kinds`.
        Raises UsageError for an unknown column, InputError for ops of a file that holds records only.
        """
        from pyprof.parse.records.selection import choose_kinds
        from pyprof.prof.columns import ALIASES, COLUMNS
        from pyprof.prof.frame import Frame
        from pyprof.tables.table import choose

        if what == "ops":
            return self.ops().to_pandas(columns)
        if what != "records":
            raise UsageError(f"there is no table {what!r}", "records or ops")
        frame = Frame(choose_kinds(self.records, kinds))
        chosen = choose(columns, COLUMNS, ALIASES) if columns else list(COLUMNS)
        return _frame([column.header for column in chosen], [column.compute(frame) for column in chosen])

    def ops(self, shapes: bool = True) -> Ops:
        """The ops of a capture, nested ones too, as torch's key_averages adds them up; shapes: apart by input shapes."""
        if self.trace is None:
            raise InputError(f"{self.file}: records hold no ops inside others", "give the capture itself")
        return Ops(self.trace, shapes)


@dataclass(frozen=True)
class Ops:
    """Ops of a capture: `to_pandas()`."""

    trace: Trace
    shapes: bool = True

    @cached_property
    def _table(self) -> Table:
        from pyprof.loading import op_rules
        from pyprof.parse.attribution.op_executions import executions
        from pyprof.prof.averages import averages

        return averages(executions(self.trace, op_rules()), ["op", "shape"] if self.shapes else ["op"])

    def to_pandas(self, columns: str = "") -> pandas.DataFrame:
        """op, shape; self_cpu, self_cpu_pct, cpu_total, cpu_avg, self_device, self_device_pct, device_total, device_avg (ns and
        percent); cpu_mem, self_cpu_mem, device_mem, self_device_mem (bytes); calls, kernels, flops, bytes.

        self: without the ops inside an op; total: with them. columns: keys by comma, all where empty; torch's own names
        (self_cpu_time_total, cuda_time_total, count, ...) stand for them, in ns here too.
        """
        from pyprof.prof.columns import ALIASES
        from pyprof.tables.table import choose

        found = self._table
        chosen = choose(columns, found.headers, ALIASES) if columns else found.headers
        return _frame(chosen, [found.of(header.key) for header in chosen])


def _frame(headers: Sequence[Header], values: Sequence[Values]) -> pandas.DataFrame:
    import numpy as np
    import pandas as pd

    from pyprof.tables.table import Fractions, Integers

    series: dict[str, Any] = {}
    for header, cells in zip(headers, values, strict=True):
        if isinstance(cells, Fractions):
            series[header.key] = np.where(cells.unknown, np.nan, cells.values)
        elif isinstance(cells, Integers):
            series[header.key] = pd.array(cells.values, dtype="Int64")
            series[header.key][cells.unknown] = pd.NA
        else:
            pool = pd.Index(cells.texts)
            codes = np.append(pd.factorize(pool)[0], -1)
            series[header.key] = pd.Categorical.from_codes(codes[cells.codes], categories=pool.unique())
    return pd.DataFrame(series)
