"""Many texts of NVTX ranges -> label codes, sequence numbers and op ids: the results of split_ids, column by column.

In the bytes of a batch everything that changes with each call is removed: the digits of emit_nvtx's numbers are read and
overwritten with zeros, and input ids are cut off. Each distinct remainder is then read once, by split_ids itself; if that does
not find the zeros, or finds what was cut off, the text is read whole. This saves 3 of 4 seconds per million kernels; it is
imported only for many texts.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pyprof.columns.types import Array, Bools, Bytes, Ints
from pyprof.model.trace import Labels
from pyprof.parse.sources.sqlite_pages.reader import PackedTexts

Decode = Callable[[str], tuple[int, int, int]]
Words = npt.NDArray[np.uint64]

_MANY_TEXTS = 40_000  # from here on importing pyarrow costs less than it saves
_MOST_KNOWN = 100_000  # distinct remainders whose bytes are kept
_SLACK = 32  # padding bytes around the texts: a key or a number may be looked for before a text or behind it
_INPUTS = b", input_op_ids = ["
_WHOLE, _SEQ_ZEROS, _OP_ID_ZEROS, _CUT = 0, 1, 2, 4  # bits of what was done to a text
_NUMBERS = {_SEQ_ZEROS: b", seq = ", _OP_ID_ZEROS: b", op_id = "}  # in the order of the results
_UNSURE = (-2, -2, -2)


def texts_reader(labels: Labels, texts: int) -> Callable[[PackedTexts], tuple[Ints, Ints, Ints]]:
    """A function that splits many texts as `labels.split` does one; texts: their expected number."""
    if texts >= _MANY_TEXTS and importlib.util.find_spec("pyarrow") is not None:
        return EmitTexts(labels.split).codes

    def split_each(packed: PackedTexts) -> tuple[Ints, Ints, Ints]:
        found = [labels.split(text.decode("utf-8", "replace")) for text in packed.to_bytes()]
        label, seq, op_id = np.array(found, np.int64).reshape(-1, 3).T
        return label, seq, op_id

    return split_each


class EmitTexts:
    """Splits texts; decode: (label, seq, op_id) of one text."""

    def __init__(self, decode: Decode) -> None:
        self.decode, self._room = decode, _Room()
        self.known: dict[tuple[bytes, int], tuple[int, int, int]] = {}

    def codes(self, texts: PackedTexts) -> tuple[Ints, Ints, Ints]:
        """Label, seq and op_id of each text of a batch."""
        batch = _Batch(texts, self._room)
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
            label[row], seq[row], op_id[row] = self.decode(text.decode("utf-8", "replace"))
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
                text = whole.decode("utf-8", "replace")
                found = self.decode(text + "]" if done & _CUT else text)
                if done & _CUT and found != self.decode(text + "0]"):  # what was cut off is part of the label
                    found = _UNSURE
                self.known[whole, done] = found
            self.known[remainder, done] = found
        return found


# ---------------------------------------------------------------------------------------------- bytes


class _Room:
    """Memory that is used again for each batch: new memory would cost more than the copy."""

    def __init__(self) -> None:
        self._data, self._equal = np.empty(0, np.uint8), np.empty(0, np.bool_)

    def copied(self, raw: Bytes) -> Bytes:
        """A copy with padding before and behind, valid until the next one."""
        size = len(raw) + 2 * _SLACK
        if len(self._data) < size:
            self._data, self._equal = np.empty(size, np.uint8), np.empty(size, np.bool_)
        data = self._data[:size]
        data[:_SLACK] = data[-_SLACK:] = 0
        data[_SLACK:-_SLACK] = raw
        return data

    def places(self, data: Bytes, byte: int) -> Ints:
        return np.flatnonzero(np.equal(data, byte, out=self._equal[: len(data)]))


class _Batch:
    """A copy of the bytes of a batch, changed in place.

    done: bits of the changes to each text; numbers: its seq and op_id, -1 if they were not read.
    """

    def __init__(self, texts: PackedTexts, room: _Room) -> None:
        raw, begin, size = texts
        self.order = np.argsort(begin, kind="stable")
        if (np.diff(begin[self.order]) < size[self.order][:-1]).any():  # in a damaged file texts can overlap
            raw, begin = np.frombuffer(b"".join(texts.to_bytes()), np.uint8), np.cumsum(size) - size
            self.order = np.arange(len(size))
        self.data = room.copied(raw)
        self._words = np.ndarray((len(self.data) - 7,), "V8", self.data.data, strides=(1,))
        self.begin = (begin + _SLACK)[self.order]  # in ascending order, as all that follows
        self.end = self.begin + size[self.order]
        done = np.zeros(len(size), np.uint8)
        numbers = np.full((2, len(size)), -1, np.int64)
        equals = room.places(self.data, ord("="))
        first = np.searchsorted(equals, self.begin)
        equals = equals[first[0] :] if len(first) else equals[:0]
        row = np.repeat(np.arange(len(first)), np.diff(first, append=first[:1] + len(equals)))
        before = self._words[equals - 8].view("<u8")
        rows, at = self._only(equals, row, before, _INPUTS)
        cut = (self.data[at - 1] == ord("[")) & (self.data[self.end[rows] - 1] == ord("]")) & (at < self.end[rows])
        self.end[rows[cut]] = at[cut]
        done[rows[cut]] |= _CUT
        for column, (bit, key) in enumerate(_NUMBERS.items()):
            rows, at = self._only(equals, row, before, key)
            value, read = self._take_numbers(at, self.end[rows])
            numbers[column, rows[read]] = value[read]
            done[rows[read]] |= bit
        self.done, self.numbers = np.empty_like(done), np.empty_like(numbers)
        self.done[self.order], self.numbers[:, self.order] = done, numbers

    def _only(self, equals: Ints, row: Ints, before: Ints, key: bytes) -> tuple[Ints, Ints]:
        """The texts that hold a key once, and where in the bytes it ends. equals: positions of each `=` in a text or behind it;
        row: that text; before: the 8 bytes before each."""
        head, _, tail = key.partition(b"=")
        word = np.uint64(int.from_bytes(head[-8:].rjust(8, b"\0"), "little"))
        mask = np.uint64((1 << 64) - (1 << 8 * max(8 - len(head), 0)))
        which = np.flatnonzero(before & mask == word)
        found, row = equals[which], row[which]
        inside = (found - len(head) >= self.begin[row]) & (found < self.end[row])
        if not inside.all():
            found, row = found[inside], row[inside]
        differ = row[1:] != row[:-1]
        if not differ.all():
            once = np.append(True, differ) & np.append(differ, True)
            found, row = found[once], row[once]
        return row, found + 1 + len(tail)

    def _take_numbers(self, at: Ints, end: Ints) -> tuple[Ints, Bools]:
        """The numbers at these positions, and which could be read; those are overwritten with zeros."""
        words = self._words[at].view("<u8")
        size = np.minimum(_digits(words), end - at)
        value = _value(words, size)
        long, read = np.flatnonzero(size == _WORD), size > 0
        if len(long):
            behind = at[long] + _WORD
            rest = self._words[behind].view("<u8")
            more = np.minimum(_digits(rest), end[long] - behind)
            value[long] = value[long] * _POWERS[more] + _value(rest, more)
            last = behind + _WORD  # of a longer number the next digit
            read[long] = (more < _WORD) | (last >= end[long]) | (self.data[last] - np.uint8(ord("0")) >= 10)
            behind, rest, more = (values[read[long] & (more > 0)] for values in (behind, rest, more))
            self._words[behind] = _with_zeros(rest, more)
        all_read = read.all()
        self._words[at if all_read else at[read]] = _with_zeros(*((words, size) if all_read else (words[read], size[read])))
        return value, read

    def distinct(self) -> tuple[list[bytes], Ints]:
        """The distinct remainders, and the number of each text's own."""
        rows = len(self.begin)
        if not rows:
            return [], np.empty(0, np.int64)
        # Arrow copies every other piece of those into which the texts cut the bytes.
        cuts = np.empty((rows, 2), np.int32)
        cuts[:, 0], cuts[:, 1] = self.begin, self.end
        import pyarrow as pa

        from pyprof.columns.arrow import to_arrow, to_numpy

        pieces = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(cuts), pa.py_buffer(self.data)])
        which = np.empty(rows, np.int32)
        which[self.order] = np.arange(0, 2 * rows, 2, dtype=np.int32)
        found = pieces.take(to_arrow(which)).dictionary_encode()
        return found.dictionary.to_pylist(), to_numpy(found.indices).astype(np.int64)


# ---------------------------------------------------------------------------------------------- digits in words of 8 bytes

_WORD = 8  # bytes, the first the lowest
_POWERS = 10 ** np.arange(_WORD + 1)
_ONES, _LOW, _HIGH, _SIX, _ZEROS = (np.uint64(int.from_bytes([byte] * _WORD, "big")) for byte in (1, 0x0F, 0xF0, 6, ord("0")))
_FIRST = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)  # all bits of so many bytes


def _digits(words: Words) -> Ints:
    """Number of digits at the beginning of each word."""
    # A digit is a byte from 0x30 on that stays below 0x40 with 6 added to it.
    odd = (words & _HIGH) ^ _ZEROS
    odd |= ((words + _SIX) & _HIGH) ^ _ZEROS
    odd >>= np.uint64(4)
    odd += _LOW
    odd >>= np.uint64(4)
    odd &= _ONES  # of each other byte, at least up to the first, the lowest bit
    below = ~odd & (odd - np.uint64(1)) & _ONES
    return (below * _ONES >> np.uint64(56)).view(np.int64)


def _value(words: Words, size: Ints) -> Ints:
    """The number that the first digits of each word form."""
    value = (words & _LOW) << (64 - 8 * size).view(np.uint64)  # the others lead as zeros
    for factor, bits, mask in (10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0x00000000FFFFFFFF):
        value *= np.uint64((factor << bits) + 1)
        value >>= np.uint64(bits)
        value &= np.uint64(mask)
    return value.view(np.int64)


def _with_zeros(words: Words, size: Ints) -> Array:
    """The words with zeros in place of their first digits."""
    first = _FIRST[size]
    return ((words & ~first) | (_ZEROS & first)).view(f"V{_WORD}")
