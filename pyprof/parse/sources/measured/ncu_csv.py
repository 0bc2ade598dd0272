"""CSV of Nsight Compute (`ncu --csv`, any page and version) -> Measured.

Two forms: `--page raw` has a column a metric and a line of units; the details page has a line a metric, under a name or a
label, and lines of rules between. What the program printed, ncu's own `==PROF==` lines and the headers of further runs may
stand anywhere. Numbers come in any locale, values in any unit. Must not know what metrics mean.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

from pyprof.errors import InputError
from pyprof.parse.sources.measured.launches import Builder, Dim, Launch, Measured, decimal_mark, number, scale

_HEADER = re.compile(r'^\ufeff?"?ID"?([,;])"?Process ID"?\1.*"?Kernel Name"?', re.MULTILINE)
_ROW = re.compile(r'"?\d*"?[,;]')

_LAUNCH = frozenset(
    {
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
    }
)
_GPU = "device__attribute_display_name"


def is_ncu_csv(head: str) -> bool:
    """Whether a text, by its beginning, holds a table of ncu."""
    return _HEADER.search(head) is not None


def read(stream: IO[str], name: str) -> Measured:
    """All launches of a file, of one run after another. Raises InputError where it holds none."""
    builder, gpus = Builder(), dict[int, str]()
    tables = list(_tables(stream))
    mark = decimal_mark(cell for header, rows in tables for row in rows for cell in _values(header, row))
    for header, rows in tables:
        if "Invocations" in header:
            raise InputError(f"{name}: sums over launches, not launches", "write it without --print-summary")
        (_Details if "Metric Name" in header else _Raw)(builder, header, mark, gpus).read(rows)
    found = builder.built("ncu", gpus)
    if not len(found):
        raise InputError(f"{name}: no launch was measured in it", "see what ncu printed, and its --kernel-name filter")
    return found


def _tables(stream: Iterable[str]) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The header of each table of a file, and its rows; lines that are neither are passed over."""
    header: list[str] | None = None
    rows: list[list[str]] = []
    delimiter, pending = ",", ""
    for line in stream:
        if not pending and (found := _HEADER.match(line)):
            if header is not None:
                yield header, rows
            delimiter, rows = found[1], []
            header = next(csv.reader([line.lstrip("\ufeff")], delimiter=delimiter))
        elif header is not None and (pending or _ROW.match(line)):
            pending += line
            if pending.count('"') % 2 == 0:  # a quoted text may hold line ends
                rows.append(next(csv.reader([pending], delimiter=delimiter)))
                pending = ""
    if header is not None:
        yield header, rows


def _values(header: Sequence[str], row: Sequence[str]) -> Sequence[str]:
    """The cells that hold values of metrics."""
    if "Metric Value" in header:
        at = header.index("Metric Value")
        return row[at : at + 1]
    return row[len(header) - len(_metrics(header)) :]


def _metrics(header: Sequence[str]) -> Sequence[str]:
    """The columns of a raw page that are metrics: those behind the description of the launch."""
    last = max(at for at, cell in enumerate(header) if cell in _LAUNCH or _is_nvtx(cell))
    return header[last + 1 :]


def _is_nvtx(cell: str) -> bool:
    return cell.startswith(("thread Domain:", "Id:Domain:"))


class _Table:
    """One table: its header, and the launches that its rows belong to."""

    def __init__(self, builder: Builder, header: Sequence[str], mark: str, gpus: dict[int, str]) -> None:
        self.builder, self.header, self.mark, self.gpus = builder, header, mark, gpus
        self.at = {cell: at for at, cell in enumerate(header)}
        self.nvtx = [at for at, cell in enumerate(header) if _is_nvtx(cell)]
        self.known: dict[tuple[str, str], int] = {}

    def row_of(self, row: Sequence[str]) -> int | None:
        """The launch that a row is about, new or known; None where it is about none."""
        identity = self.cell(row, "ID"), self.cell(row, "Process ID")
        if not identity[0].isdecimal():
            return None
        if identity not in self.known:
            self.known[identity] = self.builder.launch(self._launch(row))
        return self.known[identity]

    def cell(self, row: Sequence[str], column: str) -> str:
        """A cell; empty where the row is too short or has no such column."""
        at = self.at.get(column, len(row))
        return row[at].strip() if at < len(row) else ""

    def _launch(self, row: Sequence[str]) -> Launch:
        pid, device, stream = (self._ordinal(row, column) for column in ("Process ID", "Device", "Stream"))
        grid, block = (_dim(self.cell(row, column)) for column in ("Grid Size", "Block Size"))
        scopes = tuple(scope for at in self.nvtx if at < len(row) for scope in _scopes(row[at]))
        return Launch(self.cell(row, "Kernel Name"), grid, block, pid, device, stream, self.cell(row, "CC"), scopes)

    def _ordinal(self, row: Sequence[str], column: str) -> int:
        text = self.cell(row, column)
        return int(text) if text.isdecimal() else -1


class _Raw(_Table):
    """A column a metric; the first row, without an ID, holds the units."""

    def read(self, rows: Iterable[Sequence[str]]) -> None:
        metrics = [(metric, self.at[metric]) for metric in _metrics(self.header)]
        powers = [0] * len(metrics)
        for row in rows:
            launch = self.row_of(row)
            if launch is None:
                powers = [scale(row[at])[0] if at < len(row) else 0 for _, at in metrics]
                continue
            if gpu := self.cell(row, _GPU):
                self.gpus[self._ordinal(row, "Device")] = gpu
            for (metric, at), power in zip(metrics, powers, strict=True):
                self.builder.put(launch, metric, number(row[at], self.mark, power) if at < len(row) else None)


class _Details(_Table):
    """A row a metric, or a rule, which has no metric."""

    def read(self, rows: Iterable[Sequence[str]]) -> None:
        for row in rows:
            launch, label = self.row_of(row), self.cell(row, "Metric Name")
            if launch is not None and label:
                power, _ = scale(self.cell(row, "Metric Unit"))
                metric = _named(self.cell(row, "Section Name"), label)
                self.builder.put(launch, metric, number(self.cell(row, "Metric Value"), self.mark, power))


def _dim(text: str) -> Dim | None:
    """`(16, 16, 1)`."""
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _scopes(cell: str) -> list[str]:
    """The names of the ranges in an NVTX cell, outermost first: each is domain, name and six more fields, between colons.

    A name may hold colons, so it is what is left of the six; a range of another domain than the default one begins with it.
    """
    found = []
    for text in re.findall(r'"((?:[^"]|"(?!\s|$))*)"', cell):
        domain, _, rest = text.partition(":")
        name = rest.rsplit(":", 6)[0]
        found.append(name if domain == "<default domain>" else f"{domain}:{name}")
    return found


_NAME = re.compile(r"\b[A-Za-z]\w*(?:__\w+)?(?:\.\w+)+|\b[a-z]\w*__\w+")


def _named(section: str, label: str) -> str:
    """The metric behind a label (`Duration`), or the one that is written there itself; else section and label together."""
    written = _NAME.search(label)
    return written[0] if written is not None else _labels().get((section, label), f"{section}: {label}")


@lru_cache(maxsize=1)
def _labels() -> dict[tuple[str, str], str]:
    """Metrics by section and label."""
    text = Path(__file__).with_name("labels.csv").read_text(encoding="utf-8")
    return {(row["section"], row["label"]): row["metric"] for row in csv.DictReader(text.splitlines())}
