"""Many texts of NVTX ranges -> label codes, sequence numbers and op ids: what split_ids finds in each, by columns.

In the bytes of a batch everything that changes with each call is taken away: the digits of emit_nvtx's numbers are read and
overwritten with zeros, and input ids are cut off. Each distinct remainder is then read once, by split_ids itself; where that
does not find the zeros, or finds what was cut off, the text is read whole. This saves 3 of 4 seconds per million kernels; it is
imported only where texts are many.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from pyprof.arrays.arrow import to_arrow, to_numpy
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.sources.sqlite_pages.reader import Texts

Decode = Callable[[str], tuple[int, int, int]]

_MOST_KNOWN = 100_000  # distinct remainders whose bytes are kept
_MOST_DIGITS = 16
_SLACK = 32  # padding bytes around the texts: a key or a number may be looked for before a text or behind it
_INPUTS = b", input_op_ids = ["
_WHOLE, _SEQ_ZEROS, _OP_ID_ZEROS, _CUT = 0, 1, 2, 4  # bits of what was done to a text
_NUMBERS = {_SEQ_ZEROS: b", seq = ", _OP_ID_ZEROS: b", op_id = "}  # in the order of the results
_UNSURE = (-2, -2, -2)


class EmitTexts:
    """Splits texts; decode: (label, seq, op_id) of one text."""

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.known: dict[tuple[bytes, int], tuple[int, int, int]] = {}

    def codes(self, texts: Texts) -> tuple[Ints, Ints, Ints]:
        """Label, seq and op_id of each text of a batch."""
        batch = _Batch(texts)
        remainders, which = batch.distinct()
        done = np.zeros(len(remainders), np.uint8)
        done[which] = batch.done
        split = np.array(list(map(self._split, remainders, done.tolist())), np.int64).reshape(-1, 3)
        label, (seq, op_id) = split[:, 0][which], batch.numbers
        whole = np.flatnonzero(batch.done == _WHOLE)
        seq[whole], op_id[whole] = split[which[whole], 1:].T
        # A whole text can equal the remainder of another; and the numbers of one that was misread are not zeros.
        zeros = np.where(done[:, None] & [*_NUMBERS], 0, -1)
        sure = (done == _WHOLE) | (split[:, 1:] == zeros).all(axis=1)
        for row in np.flatnonzero((batch.done != done[which]) | ~sure[which]).tolist():
            text = texts.raw[texts.begin[row] :][: texts.size[row]].tobytes()
            label[row], seq[row], op_id[row] = self.decode(_python(text))
        return label, seq, op_id

    def _split(self, remainder: bytes, done: int) -> tuple[int, int, int]:
        found = self.known.get((remainder, done))
        if found is None:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            # The label does not depend on how many digits the numbers had.
            whole = remainder
            for bit, key in _NUMBERS.items():
                whole = re.sub(key + b"0+", key + b"0", whole) if done & bit else whole
            found = self.known.get((whole, done))
            if found is None:
                found = self.decode(_python(whole + b"]" if done & _CUT else whole))
                if done & _CUT and found != self.decode(_python(whole + b"0]")):  # what was cut off is part of the label
                    found = _UNSURE
                self.known[whole, done] = found
            self.known[remainder, done] = found
        return found


def _python(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# ---------------------------------------------------------------------------------------------- bytes


class _Batch:
    """A copy of the bytes of a batch, changed in place.

    done: what was done to each text; numbers: its seq and op_id, -1 where they were not read.
    """

    def __init__(self, texts: Texts) -> None:
        raw, begin, size = texts
        self.order = np.argsort(begin, kind="stable")
        if (np.diff(begin[self.order]) < size[self.order][:-1]).any():  # in a damaged file texts can overlap
            raw, begin = np.frombuffer(b"".join(texts.to_bytes()), np.uint8), np.cumsum(size) - size
            self.order = np.arange(len(size))
        self.data = np.concatenate([padding := np.zeros(_SLACK, np.uint8), raw, padding])
        self.begin = (begin + _SLACK)[self.order]  # in ascending order, as all that follows
        self.end = self.begin + size[self.order]
        done = np.zeros(len(size), np.uint8)
        numbers = np.full((2, len(size)), -1, np.int64)
        equals = np.flatnonzero(self.data == ord("="))
        before = np.ndarray((len(self.data) - 7,), "V8", self.data.data, strides=(1,))[equals - 8].view("<u8")
        rows, at = self._only(equals, before, _INPUTS)
        cut = (self.data[at - 1] == ord("[")) & (self.data[self.end[rows] - 1] == ord("]")) & (at < self.end[rows])
        self.end[rows[cut]] = at[cut]
        done[rows[cut]] |= _CUT
        for column, (bit, key) in enumerate(_NUMBERS.items()):
            rows, at = self._only(equals, before, key)
            value, read = self._take_numbers(at, self.end[rows])
            numbers[column, rows[read]] = value[read]
            done[rows[read]] |= bit
        self.done, self.numbers = np.empty_like(done), np.empty_like(numbers)
        self.done[self.order], self.numbers[:, self.order] = done, numbers

    def _only(self, equals: Ints, before: Ints, key: bytes) -> tuple[Ints, Ints]:
        """The texts that hold a key once, and where in the bytes it ends; before: the 8 bytes before each `=`."""
        head, _, tail = key.partition(b"=")
        word = np.uint64(int.from_bytes(head[-8:].rjust(8, b"\0"), "little"))
        mask = np.uint64((1 << 64) - (1 << 8 * max(8 - len(head), 0)))
        found = equals[before & mask == word]
        row = np.searchsorted(self.begin, found, "right") - 1
        inside = (row >= 0) & (found - len(head) >= self.begin[row]) & (found < self.end[row])
        found, row = found[inside], row[inside]
        differ = np.diff(row, prepend=-1, append=-1) != 0
        once = differ[:-1] & differ[1:]
        return row[once], found[once] + 1 + len(tail)

    def _take_numbers(self, at: Ints, end: Ints) -> tuple[Ints, Bools]:
        """The numbers that begin somewhere, and which of them could be read; of those zeros are left in the bytes."""
        value, size = np.zeros((2, len(at)), np.int64)
        longest = int(np.minimum(end - at, _MOST_DIGITS + 1).max(initial=0))
        going = np.ones(len(at), np.bool_)
        for place in range(longest):
            digit = self.data[at + place] - np.uint8(ord("0"))
            going &= (digit < 10) & (at + place < end)
            if not going.any():
                break
            value = np.where(going, value * 10 + digit, value)
            size += going
        read = (size > 0) & (size <= _MOST_DIGITS)
        for place in range(int(size.max(initial=0))):
            self.data[at[read & (size > place)] + place] = ord("0")
        return value, read

    def distinct(self) -> tuple[list[bytes], Ints]:
        """The distinct remainders, and the number of each text's own."""
        rows = len(self.begin)
        if not rows:
            return [], np.empty(0, np.int64)
        # Arrow copies every other piece of those into which the texts cut the bytes.
        cuts = np.stack([self.begin, self.end], axis=1).astype(np.int32)
        pieces = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(cuts), pa.py_buffer(self.data)])
        which = np.empty(rows, np.int32)
        which[self.order] = np.arange(0, 2 * rows, 2, dtype=np.int32)
        found = pieces.take(to_arrow(which)).dictionary_encode()
        return found.dictionary.to_pylist(), to_numpy(found.indices).astype(np.int64)
