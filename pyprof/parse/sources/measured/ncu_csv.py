"""CSV of Nsight Compute (`ncu --csv`, any page and version) -> Measured.

Two forms: `--page raw` has a column a metric and a line of units; the details page has a line a metric, under a name or a
label, with lines of rules between. The program's output, ncu's own `==PROF==` lines and the headers of further runs may stand
anywhere. Numbers come in any locale, values in any unit. Knows nothing of what metrics mean.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

from pyprof.errors import InputError
from pyprof.model.trace import integer
from pyprof.parse.sources.measured.launches import Builder, Dim, Launch, Measured, Numbers, scale

_HEADER = re.compile(r'^\ufeff?("?)ID\1([,;\t])\1Process ID\1\2.*\1Kernel Name\1', re.MULTILINE)

_LAUNCH = frozenset("ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC".split(","))
_GPU = "device__attribute_display_name"


_Rows = Iterator[tuple[list[str], list[str]]]


def is_ncu_csv(head: str) -> bool:
    """Whether a text with this beginning holds a table of ncu."""
    return _HEADER.search(head) is not None


def read(stream: IO[str], name: str) -> Measured:
    """All launches of a file, run after run. Raises InputError if there are none."""
    builder, gpus = Builder(), dict[int, str]()
    numbers = Numbers(builder, name)
    table: _Table | None = None
    try:
        for header, row in _rows(stream):
            if table is None or table.header is not header:
                if "Invocations" in header:
                    raise InputError(f"{name}: sums over launches, not launches", "write it without --print-summary")
                table = (_Details if "Metric Name" in header else _Raw)(builder, numbers, header, gpus)
            table.add(row)
    except csv.Error as error:
        raise InputError(f"{name}: not CSV as ncu writes it: {error}", "write it again: ncu --csv") from error
    numbers.finish()
    found = builder.built("ncu", gpus)
    if not len(found):
        raise InputError(f"{name}: no launch was measured in it", "see what ncu printed, and its --kernel-name filter")
    return found


def _rows(stream: Iterable[str]) -> _Rows:
    """The rows of each table of a file, with the table's header; other lines are skipped."""
    cells: _RowLayout | None = None
    begins, pending, quotes = re.compile(""), list[str](), 0
    for line in stream:
        if found := _HEADER.match(line):
            quote, delimiter = found[1], found[2]
            # ncu quotes every cell, so that what a program prints looks otherwise.
            begins = re.compile(rf"({quote})\d*\1{delimiter}\1\d*\1{delimiter}")
            cells, pending = _RowLayout(line.lstrip("\ufeff"), quote, delimiter), []
        elif cells is not None and ((first := begins.match(line)) or pending):
            if first:
                if pending:  # a name with one quote of its own
                    yield cells.header, cells.of("".join(pending))
                pending, quotes = [], 0
            pending.append(line)
            quotes += line.count('"')
            if quotes % 2 == 0:  # a quoted text may hold line ends
                yield cells.header, cells.of("".join(pending))
                pending = []


class _RowLayout:
    """A table's header, and how a row becomes cells.

    In NVTX cells ncu writes the quotes of a range's name unescaped, so a name can hold what ends a cell: these cells are what
    is left between those before and behind them, which have no quotes.
    """

    def __init__(self, line: str, quote: str, delimiter: str) -> None:
        self.delimiter, self.between = delimiter, f"{quote}{delimiter}{quote}"
        self.header = self._parsed(line)
        nvtx = [at for at, cell in enumerate(self.header) if _is_nvtx(cell)]
        apart = bool(quote) and nvtx == [*range(nvtx[0], nvtx[0] + len(nvtx))] if nvtx else False
        self.before, self.nvtx = (nvtx[0], len(nvtx)) if apart else (0, 0)
        self.behind = len(self.header) - self.before - self.nvtx

    def of(self, text: str) -> list[str]:
        """The cells of a row. Raises csv.Error for one with more cells than the header has."""
        row = self._apart(text) if self.nvtx else self._parsed(text)
        if len(row) > len(self.header):
            raise csv.Error(f"{len(row)} cells in a row of {len(self.header)} columns")
        return row

    def _parsed(self, text: str) -> list[str]:
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))
        return next(csv.reader([text], delimiter=self.delimiter))

    def _apart(self, text: str) -> list[str]:
        text = text.rstrip("\r\n")
        left = text[1:].split(self.between, self.before)
        right = left[-1].removesuffix('"').rsplit(self.between, self.behind) if text.endswith('"') else []
        if len(left) <= self.before or len(right) <= self.behind:
            return self._parsed(text)  # cut off
        return [cell.replace('""', '"') for cell in (*left[:-1], *self._ranges(right[0]), *right[1:])]

    def _ranges(self, text: str) -> list[str]:
        """The NVTX cells, each empty or the id of a thread or a range before the ranges, in doubled quotes."""
        found = list[str]()
        while len(found) < self.nvtx - 1:
            ends = [m.start() for m in re.finditer(re.escape(self.between), text)]
            good = [at for at in ends if not text[:at] or text[:at].endswith(('"" ', '""'))] or ends
            cut = next((at for at in good if re.match(r"\d+ |$|\"", text[at + len(self.between) :])), None)
            if cut is None:
                break
            found.append(text[:cut])
            text = text[cut + len(self.between) :]
        return [*found, text, *[""] * (self.nvtx - 1 - len(found))]


def _is_nvtx(cell: str) -> bool:
    return cell.startswith(("thread Domain:", "Id:Domain:"))


class _Table:
    """One table: its header, and the launches of its rows."""

    def __init__(self, builder: Builder, numbers: Numbers, header: Sequence[str], gpus: dict[int, str]) -> None:
        self.builder, self.numbers, self.header, self.gpus = builder, numbers, header, gpus
        self.at = {cell: at for at, cell in enumerate(header)}
        self.nvtx = [at for at, cell in enumerate(header) if _is_nvtx(cell)]

    def add(self, row: Sequence[str]) -> None:
        raise NotImplementedError

    def is_launch(self, row: Sequence[str]) -> bool:
        """Whether a row is about a launch, unlike the line of units and tables of other things."""
        return (
            self.cell(row, "ID").isdecimal()
            and self.cell(row, "Process ID").isdecimal()
            and bool(self.cell(row, "Kernel Name"))
        )

    def cell(self, row: Sequence[str], column: str) -> str:
        """A cell; empty if the row is too short or has no such column."""
        at = self.at.get(column, len(row))
        return row[at].strip() if at < len(row) else ""

    def _launch(self, row: Sequence[str]) -> Launch:
        pid, device, stream = (self._ordinal(row, column) for column in ("Process ID", "Device", "Stream"))
        grid, block = (_dim(self.cell(row, column)) for column in ("Grid Size", "Block Size"))
        scopes = tuple(scope for at in self.nvtx if at < len(row) for scope in _scopes(row[at]))
        name, cc, number = self.cell(row, "Kernel Name"), self.cell(row, "CC"), self._ordinal(row, "ID")
        return Launch(name, grid, block, pid, device, stream, cc, scopes, number=number)

    def _ordinal(self, row: Sequence[str], column: str) -> int:
        return integer(self.cell(row, column))


class _Raw(_Table):
    """A column a metric, a row a launch; the first row, without an ID, holds the units."""

    def __init__(self, builder: Builder, numbers: Numbers, header: Sequence[str], gpus: dict[int, str]) -> None:
        super().__init__(builder, numbers, header, gpus)
        last = max(at for at, cell in enumerate(header) if cell in _LAUNCH or _is_nvtx(cell))
        self.columns = [(metric, self.at[metric], 0) for metric in header[last + 1 :]]
        self.has_units = False

    def add(self, row: Sequence[str]) -> None:
        if not self.is_launch(row):
            if not self.has_units and len(row) == len(self.header):
                self.columns = [(metric, at, scale(row[at])[0]) for metric, at, _ in self.columns]
                self.has_units = True
            return
        launch = self.builder.launch(self._launch(row))
        if gpu := self.cell(row, _GPU):
            self.gpus[self._ordinal(row, "Device")] = gpu
        for metric, at, power in self.columns:
            self.numbers.put(launch, metric, row[at] if at < len(row) else "", power)


class _Details(_Table):
    """A row a metric, or a rule, which has no metric."""

    def __init__(self, builder: Builder, numbers: Numbers, header: Sequence[str], gpus: dict[int, str]) -> None:
        super().__init__(builder, numbers, header, gpus)
        self.described = self.at.get("Section Name", self.at["Metric Name"])
        self.known: dict[tuple[str, ...], int] = {}

    def add(self, row: Sequence[str]) -> None:
        if not self.is_launch(row):
            return
        identity = tuple(row[: self.described])
        if identity not in self.known:
            self.known[identity] = self.builder.launch(self._launch(row))
        if label := self.cell(row, "Metric Name"):
            power, _ = scale(self.cell(row, "Metric Unit"))
            metric = _named(self.cell(row, "Section Name"), label)
            self.numbers.put(self.known[identity], metric, self.cell(row, "Metric Value"), power)


@lru_cache(maxsize=4096)
def _dim(text: str) -> Dim | None:
    """A grid or block: `(16, 16, 1)`."""
    numbers = [integer(part) for part in re.findall(r"\d+", text)]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 and min(numbers) >= 0 else None


@lru_cache(maxsize=4096)
def _scopes(cell: str) -> list[str]:
    """The names of the ranges in an NVTX cell, outermost first: each is domain, name and six more fields, between colons.

    A name may hold colons and quotes, so it is everything before the six; a range outside the default domain begins with its
    domain.
    """
    found, pending = list[str](), list[str]()
    for piece in re.split(r'"\s+"', cell.partition('"')[2].rstrip().rstrip('"')):
        pending.append(piece)
        begin, *fields = piece.rsplit(":", 6)
        if len(fields) == 6 and '"' not in "".join(fields):  # else a name in which quotes stand apart goes on
            domain, colon, name = '" "'.join([*pending[:-1], begin]).partition(":")
            if colon and '"' not in domain:
                found.append(name if domain == "<default domain>" else f"{domain}:{name}")
            pending = []
    return found


_NAME = re.compile(r"\b(?:\w+:)?[A-Za-z]\w*(?:__\w+)?(?:\.\w+)+|\b[a-z]\w*__\w+")


@lru_cache(maxsize=4096)
def _named(section: str, label: str) -> str:
    """The metric behind a label (`Duration`), or the one that is written there itself; else section and label together."""
    written = _NAME.search(label)
    return written[0] if written is not None else _labels().get((section, label), f"{section}: {label}")


@lru_cache(maxsize=1)
def _labels() -> dict[tuple[str, str], str]:
    """Metrics by section and label."""
    text = Path(__file__).with_name("labels.csv").read_text(encoding="utf-8")
    return {(row["section"], row["label"]): row["metric"] for row in csv.DictReader(text.splitlines())}
