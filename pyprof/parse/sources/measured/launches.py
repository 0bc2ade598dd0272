"""Measured: the result of every source of hardware counters.

One row is one launch that a tool measured (of Proton: all launches of a kernel below one scope, and their number). Metrics are
columns under Nsight Compute's names, in base units: bytes, ns, hz, and counts; NaN if the launch was not measured so. Knows
nothing of what metrics mean.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation, Overflow
from itertools import repeat
from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Floats, Ints
from pyprof.errors import InputError

Dim = tuple[int, int, int]


class Launch(NamedTuple):
    """One measured launch, without its metrics.

    name: of the kernel, as the tool wrote it; grid, block: None unknown; pid, device, stream: -1 unknown; cc: compute
    capability as text; scopes: NVTX ranges or Proton's scopes around it, outermost first; times: launches that it sums up;
    is_scope: whether it is a scope of Proton with the kernels inside, no kernel; number: of the launch in its process, -1
    unknown.
    """

    name: str
    grid: Dim | None = None
    block: Dim | None = None
    pid: int = -1
    device: int = -1
    stream: int = -1
    cc: str = ""
    scopes: tuple[str, ...] = ()
    times: int = 1
    is_scope: bool = False
    number: int = -1


class Measured(NamedTuple):
    """Launches in the order in which they were measured, and their metrics.

    tool: what wrote the file; gpus: names of devices by ordinal.
    """

    tool: str
    launches: Sequence[Launch]
    metrics: Mapping[str, Floats]
    gpus: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.launches)

    def of(self, metric: str) -> Floats:
        """A metric of every launch, NaN if it was not measured."""
        found = self.metrics.get(metric)
        return np.full(len(self), np.nan) if found is None else found

    def take(self, rows: Ints) -> Measured:
        launches = [self.launches[row] for row in rows.tolist()]
        return self._replace(launches=launches, metrics={key: values[rows] for key, values in self.metrics.items()})


def joined(parts: Sequence[Measured]) -> tuple[Measured, list[Ints]]:
    """The launches of several files, one after another, and the rows of each file's.

    A launch that several files of one run hold, with other metrics, is one row.
    """
    launches: list[Launch] = []
    known: dict[Launch, int] = {}
    rows: list[Ints] = []
    for part in parts:
        own = [known.get(launch, -1) for launch in part.launches]
        for at, launch in enumerate(part.launches):
            if own[at] < 0:
                own[at] = len(launches)
                launches.append(launch)
        known.update(
            (launch, row) for launch, row in zip(part.launches, own, strict=True) if min(launch.number, launch.pid) >= 0
        )
        rows.append(np.array(own, np.int64))
    columns: dict[str, Floats] = {}
    for part, own_rows in zip(parts, rows, strict=True):
        for metric, values in part.metrics.items():
            column = columns.setdefault(metric, np.full(len(launches), np.nan))
            column[own_rows] = np.where(np.isnan(column[own_rows]), values, column[own_rows])
    gpus = {device: name for part in parts for device, name in part.gpus.items()}
    return Measured(", ".join(dict.fromkeys(part.tool for part in parts)), launches, columns, gpus), rows


class Builder:
    """Collects launches and single values of their metrics, each metric as one array."""

    def __init__(self) -> None:
        self._launches: list[Launch] = []
        self._columns: dict[str, array[float]] = {}

    def launch(self, launch: Launch) -> int:
        """Add a launch; returns its row."""
        self._launches.append(launch)
        return len(self._launches) - 1

    def put(self, row: int, metric: str, value: float | None) -> None:
        """Add one value, None unknown; the first known one stays."""
        column = self._columns.get(metric)
        if column is None:
            column = self._columns[metric] = array("d")
        if value is None:
            return
        if row >= len(column):
            column.extend(repeat(math.nan, row - len(column)))
            column.append(value)
        elif math.isnan(column[row]):
            column[row] = value

    def built(self, tool: str, gpus: Mapping[int, str]) -> Measured:
        columns = {}
        for metric, known in self._columns.items():
            column = columns[metric] = np.full(len(self._launches), np.nan)
            column[: len(known)] = known
        return Measured(tool, self._launches, columns, gpus)


# ---------------------------------------------------------------------------------------------- units

_PREFIXES = {"n": -9, "u": -6, "\u00b5": -6, "\u03bc": -6, "m": -3, "": 0, "K": 3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_BASES = {
    "byte": "byte", "B": "byte", "bit": "bit", "second": "s", "sec": "s", "s": "s", "hz": "hz", "Hz": "hz", "FLOP": "FLOP",
    **{base: base for base in ("inst", "cycle", "warp", "block", "thread", "register", "sector", "request", "cluster")},
}  # fmt: skip
_ATOM = re.compile(rf"([nu\u00b5\u03bcmkKMGTP]?)({'|'.join(sorted(_BASES, key=len, reverse=True))})s?")


def scale(unit: str) -> tuple[int, str]:
    """(power of ten, base unit) of a unit in any of ncu's spellings: `Mbyte` (6, byte), `usecond` and `us` (3, ns),
    `Gbyte/second` (9, byte/s), `cycle/nsecond` (9, cycle/s); (0, the unit) of an unknown one.

    ncu's prefixes are powers of 1000.
    """
    power, bases = 0, []
    for sign, part in zip((1, -1), unit.strip().split("/"), strict=False):
        atom = _ATOM.fullmatch(part)
        if atom is None:
            return 0, unit.strip()
        power += sign * _PREFIXES[atom[1]]
        bases.append(_BASES[atom[2]])
    if bases == ["s"]:
        return power + 9, "ns"
    return power, "/".join(bases)


# ---------------------------------------------------------------------------------------------- numbers

_PLAIN = re.compile(r"[-+]?\d+(?:\.\d+)?")
# U+FFFD: the space between thousands of a file in another encoding.
_GROUPED = re.compile(r"[-+]?\d+(?:[.,'\u2019 \u00a0\u202f\ufffd]\d+)*(?:[eE][-+]?\d+)?")


class Numbers:
    """Puts printed numbers into a builder; the first number that shows which mark stands before decimals tells it for all.

    `1,275,068,416` has commas between thousands, `27.595.520` points, `65,77` a decimal comma; `1,234` alone could be either:
    it waits for another, and in the end commas stand between thousands.
    """

    def __init__(self, builder: Builder, name: str) -> None:
        """name: of the file."""
        self._builder, self._name, self._mark = builder, name, ""
        self._waiting: list[tuple[int, str, str, int]] = []

    def put(self, row: int, metric: str, text: str, power: int) -> None:
        """Parse a printed number, times a power of ten; unknown if it is not a number.

        Raises InputError if some numbers show one mark and some the other.
        """
        if _PLAIN.fullmatch(text) is None or (self._mark != "." and "." in text):
            text = text.partition(" (")[0].strip()  # the values of its instances follow
            if (shown := shown_mark(text)) is not None:
                if self._mark not in ("", shown):
                    raise InputError(
                        f"{self._name}: numbers with decimal points and decimal commas",
                        "write it again in one locale: LC_ALL=C ncu ...",
                    )
                self._mark = shown
            elif not self._mark and ("," in text or "." in text):
                self._waiting.append((row, metric, text, power))
                return
            self._builder.put(row, metric, number(text, self._mark or ".", power))
        else:
            self._builder.put(row, metric, float(f"{text}e{power}" if power else text))

    def finish(self) -> None:
        for row, metric, text, power in self._waiting:
            self._builder.put(row, metric, number(text, self._mark or ".", power))


def shown_mark(text: str) -> str | None:
    """`.` or `,`: the decimal mark, if the number shows it."""
    marks: list[str] = re.findall(r"[.,]", text)
    if not marks or _GROUPED.fullmatch(text) is None:
        return None
    if len(set(marks)) > 1:
        return marks[-1]
    whole, *groups = re.split(r"[.,]", text.lstrip("+-"))
    are_thousands = all(len(group) == 3 for group in groups) and len(whole) <= 3 and whole != "0"
    if len(groups) > 1:  # a version has two points as well, and shows nothing
        return {".": ",", ",": "."}[marks[0]] if are_thousands else None
    return None if are_thousands else marks[0]


def number(text: str, mark: str, power: int = 0) -> float | None:
    """A printed number times a power of ten, rounded once; None for `n/a`, an empty text and any other."""
    text = text.strip()
    if _GROUPED.fullmatch(text) is None:
        return None
    whole = text.lower().partition("e")[0].partition(mark)[0]
    if not all(len(group) in (2, 3) for group in re.split(r"\D", whole.lstrip("+-"))[1:]):  # a version
        return None
    plain = re.sub(r"[^\d+\-eE" + re.escape(mark) + "]", "", text).replace(mark, ".")
    try:
        value = float(Decimal(plain).scaleb(power))
    except (InvalidOperation, Overflow):
        return None
    return value if math.isfinite(value) else None
