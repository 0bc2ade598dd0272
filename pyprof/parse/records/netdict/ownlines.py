"""Lines of net.dict as we write them -> rows, without reading again what was read before.

A line of ours is cut where its own numbers stand: times, ids, sequence numbers. What is left between the cuts is the same for
thousands of lines: it is read once, by the reader of any line, and then found by its text. A line that does not have the cuts
is not taken. What a key means is not known here, only which of them stand in a line in which order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.parse.records.netdict.write import OPTIONAL
from pyprof.parse.sources.trace import narrowed

__all__ = ["OwnLines"]

Ints = npt.NDArray[np.int64]

_N = r"(0|[1-8]\d{18}|[1-9]\d{0,17})"  # a number as JSON has it, which fits every column; ns since 1970 have 19 digits
_DURATION = re.compile(rf'{_N}(?=, "layer": )')
_MORE = r"(?:, (?:0|[1-9]\d*))*"
_SEQUENCE = re.compile(rf'(?:{_N}{_MORE})?\], "subSeqId": {_N}, "altSeqId": \[(?:(?:0|[1-9]\d*){_MORE})?(?=\], "dir": )')
# Keys of which every line has numbers of its own, in their order.
_EACH = list(OPTIONAL)[: list(OPTIONAL).index("fwd_instance") + 1]
_OWN = re.compile(f', "{_EACH[0]}": {_N}' + "".join(f'(?:, "{key}": {_N})?' for key in _EACH[1:]))
_MARKED = re.compile(rf', seq = {_N}"')
# What the groups of the three are: column -> key, in their order.
_OF_LINE = {"dur_ns": "kDuration", "seq": "seqId", "sub": "subSeqId", **{OPTIONAL[key]: key for key in _EACH}}
_BATCH = 1 << 12
_MARK = 7 * 10**16  # from here on the numbers that tell whose value each is
_MOST_KINDS = 1 << 16  # of lines that are remembered; a file with more of them is read as any other


class OwnLines:
    """Rows of lines that were cut, some at a time as Python's texts and then as columns."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[str, ...], int] = {}  # the texts between the cuts -> kind of line, -1 where it is not to be cut
        self.constant: list[dict[str, int]] = []  # of each kind the columns
        self.count: list[int] = []  # of each kind how many sequence numbers it has
        self.asked: _Cut | None = None  # the line that was given away last
        self.codes: list[int] = []  # of each line of the batch its kind, -1 where it was not taken
        self.groups: list[str] = []  # of those taken the numbers of _OF_LINE
        self.several: list[tuple[int, list[str]]] = []  # taken lines whose sequence numbers are not all the one that counts
        self.parts: list[tuple[Ints, Ints, Ints]] = []  # of each batch kinds, numbers by column, sequence numbers

    def others(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Take lines like those learned, and give the others away with their numbers, counted from 1.

        Of each of those `learn` or `leave` must be asked, or neither where it is no row.
        """
        kinds, codes, groups = self.kinds, self.codes, self.groups
        duration_at, sequence_at, own_at = _DURATION.match, _SEQUENCE.match, _OWN.match
        self.asked = None
        for number, line in enumerate(lines, 1):
            if not number % _BATCH:
                self._flush()
            a = line.find(', "kDuration": ')
            own = duration_at(line, a + 15)
            if own is None or a < 0:
                yield number, line
                continue
            c = line.find(', "seqMarker": [', own.end())
            d = line.find('], "seqId": [', c)
            sequence = sequence_at(line, d + 13)
            if sequence is None or d < 0:
                yield number, line
                continue
            e = sequence.end()
            f = line.find(', "start": ', e)
            rest = own_at(line, f)
            if rest is None:
                yield number, line
                continue
            g = rest.end()
            marks, counts, several = line[c:d], sequence[1], None
            if counts is not None:
                marks = marks.replace(f', seq = {counts}"', "\n")  # no line holds one before its end
            if ", seq = " in marks:
                several = _MARKED.findall(line, c, d)
                marks = _MARKED.sub("\n", line[c:d]) + "".join(["=" if n == counts else "-" for n in several])
            key = (line[:a], line[own.end() : c], marks, line[e:f], line[g:])
            code = kinds.get(key)
            if code is None or code < 0:
                if code is None:
                    self.asked = _Cut(line, key, (own, sequence, rest), several, (c, d))
                yield number, line
                self.asked = None
                continue
            if several is not None:
                self.several.append((len(codes), several))
            codes.append(code)
            groups += own.groups()
            groups += sequence.groups("-1")
            groups += rest.groups("-1")

    def learn(self, values: dict[str, int], sequence: Sequence[int]) -> bool:
        """Take the line that was given away last, and from now on those like it; False where that cannot be.

        values, sequence: what the line says, its columns and its sequence numbers.
        """
        cut = self.asked
        if cut is None or len(self.kinds) >= _MOST_KINDS:
            return False
        self.kinds[cut.key] = -1
        texts = [text for found in cut.found for text in found.groups("-1")]
        own = dict(zip(_OF_LINE, map(int, texts), strict=True))
        marked = [own["seq"]] * cut.key[2].count("\n") if cut.several is None else [int(n) for n in cut.several]
        if any(values[name] != number for name, number in own.items()) or marked != list(sequence) or not _sound(cut):
            return False
        self.kinds[cut.key] = code = len(self.constant)
        self.constant.append({name: value for name, value in values.items() if name not in own})
        self.count.append(len(marked))
        if cut.several is not None:
            self.several.append((len(self.codes), cut.several))
        self.codes.append(code)
        self.groups += texts
        return True

    def leave(self) -> None:
        """The line that was given away last is a row that was read on its own."""
        self.codes.append(-1)

    def _flush(self) -> None:
        codes = np.array(self.codes, np.int64)
        own = np.flatnonzero(codes >= 0)
        columns = np.fromstring(" ".join(self.groups), np.int64, sep=" ").reshape(len(own), len(_OF_LINE)).T
        lengths = np.array([*self.count, 0], np.int64)[codes]
        sequence = np.repeat(columns[list(_OF_LINE).index("seq")], lengths[own])
        begin = np.cumsum(lengths) - lengths
        for row, numbers in self.several:
            sequence[begin[row] : begin[row] + lengths[row]] = [int(number) for number in numbers]
        self.parts.append((codes, np.ascontiguousarray(columns), sequence))
        self.codes.clear()
        self.groups.clear()
        self.several.clear()

    def finish(self, dtypes: dict[str, str]) -> Taken:
        """All rows that were taken; dtypes: of the columns."""
        self._flush()
        codes, numbers, sequence = (np.concatenate(part, axis=-1) for part in zip(*self.parts, strict=True))
        self.parts.clear()
        own = codes >= 0
        codes = codes[own]
        columns = {name: narrowed(values, dtypes[name]) for name, values in zip(_OF_LINE, numbers, strict=True)}
        for name in self.constant[0] if self.constant else ():
            of_kind = np.array([values[name] for values in self.constant], np.int64)
            columns[name] = narrowed(of_kind, dtypes[name])[codes]
        return Taken(own, columns, np.array(self.count, np.int64)[codes], sequence)


@dataclass(frozen=True)
class Taken:
    """own: of each row whether it was taken; of those that were columns, how many sequence numbers each has, and those."""

    own: npt.NDArray[np.bool_]
    columns: dict[str, npt.NDArray[Any]]
    lengths: Ints
    sequence: Ints


class _Cut(NamedTuple):
    """A line, the texts between its cuts, the numbers there, its sequence numbers where they differ, where its markers are."""

    line: str
    key: tuple[str, ...]
    found: tuple[re.Match[str], ...]
    several: list[str] | None
    marks: tuple[int, int]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key that stands twice")
    return found


def _sound(cut: _Cut) -> bool:
    """Whether the numbers at the cuts are the values of their keys, whatever digits they have.

    Told by numbers that stand nowhere else, put in their place: a number changes nothing in what else a line of JSON says.
    """
    spans = [found.span(group) for found in cut.found for group in range(1, found.re.groups + 1)]
    pieces, at, expected = [], 0, {}
    for number, (key, (first, last)) in enumerate(zip(_OF_LINE.values(), spans, strict=True), _MARK):
        if first >= 0:
            pieces += [cut.line[at:first], str(number)]
            expected[key], at = number, last
    begin, end = cut.marks
    try:
        record = json.loads("".join([*pieces, cut.line[at:]]), object_pairs_hook=_unique)
        whole = record["seqMarker"] == json.loads(cut.line[begin + len(', "seqMarker": ') : end + 1])
        if "seqId" in expected:
            record["seqId"] = record["seqId"][0]
        return whole and all(record.get(key) == number for key, number in expected.items())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
