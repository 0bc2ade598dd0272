"""Many texts of NVTX ranges -> label codes, sequence numbers and op ids: what split_ids finds in each, by columns.

In the bytes of a batch everything that changes with each call is taken away: the digits of emit_nvtx's numbers are read and
overwritten with zeros, and input ids are cut off. Each distinct remainder is then read once, by split_ids itself. A text that
deviates in any way is kept whole. This saves 3 of 4 seconds per million kernels; it is imported only where texts are many.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyprof.arrays.arrow import to_arrow, to_numpy
from pyprof.parse.sources.sqlite_pages.reader import Texts

__all__ = ["EmitTexts"]

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Decode = Callable[[str], tuple[int, int, int]]

_MOST_KNOWN = 100_000  # distinct remainders whose bytes are kept
_WHOLE, _SEQ_ZEROS, _OP_ID_ZEROS, _CUT, _UNSURE = 0, 1, 2, 4, 8  # bits of what was done to a text
_DIGITS = re.compile(rb"(, (?:seq|op_id) = )0+")


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
        zeros = np.where(done[:, None] & [_SEQ_ZEROS, _OP_ID_ZEROS], 0, -1)
        sure = (done == _WHOLE) | (split[:, 1:] == zeros).all(axis=1)
        for row in np.flatnonzero(batch.done != np.where(sure, done, _UNSURE)[which]).tolist():
            text = texts.raw[texts.begin[row] :][: texts.size[row]].tobytes()
            label[row], seq[row], op_id[row] = self.decode(_python(text))
        return label, seq, op_id

    def _split(self, remainder: bytes, done: int) -> tuple[int, int, int]:
        found = self.known.get((remainder, done))
        if found is None:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            # The label does not depend on how many digits the numbers had.
            whole = _DIGITS.sub(rb"\g<1>0", remainder) if done else remainder
            found = self.known.get((whole, done))
            if found is None:
                ended = whole + b"]" if done and whole.endswith(_INPUTS_KEY) else whole
                found = self.known[whole, done] = self.decode(_python(ended))
            self.known[remainder, done] = found
        return found


def _python(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# ---------------------------------------------------------------------------------------------- bytes


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_SLACK = 32  # padding bytes around the texts: words may begin before a text or end after it
_EQUALS, _SPACE, _OPEN, _CLOSE, _BRACE = b"= []{"
_NO_KEY, _SEQ, _OP_ID, _SIZES, _INPUTS = range(5)
_INPUTS_KEY = b", input_op_ids = ["
# The text before the "=" of a key.
_BEFORE = {_SEQ: b", seq ", _OP_ID: b", op_id ", _SIZES: b", sizes ", _INPUTS: b", input_op_ids "}
_BEFORE_WORD = {key: _word(text[-8:]) for key, text in _BEFORE.items()}
_BEFORE_OTHER_WORD = _word(_BEFORE[_INPUTS][:8])
_ALL = (1 << 64) - 1
_FIRST = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)  # masks of a word's first bytes
_LAST = np.array([_ALL - (_ALL >> 8 * count) for count in range(9)], np.uint64)
_ZEROS, _HIGH, _SIX = map(np.uint64, (0x3030303030303030, 0xF0F0F0F0F0F0F0F0, 0x0606060606060606))
_UNSIGNED = b"18446744073709551615"  # what AccumulateGrad prints as its seq


def _shapes() -> Bytes:
    """Of the keys of a text in their order, 3 bits each: which keys it has, one bit each; 0 if not in emit_nvtx's order."""
    shapes = np.zeros(1 << 12, np.uint8)
    for given in range(1 << 4):
        keys = [key for key in (_SEQ, _OP_ID, _SIZES, _INPUTS) if given & _bit(key)]
        if _SEQ in keys or _OP_ID in keys:
            shapes[sum(key << 3 * place for place, key in enumerate(keys))] = given
    return shapes


def _bit(key: int) -> int:
    return 1 << (key - 1)


_SHAPES = _shapes()
_KEYS_IN = np.array([shape.bit_count() for shape in range(16)], np.int64)


class _Batch:
    """A copy of the bytes of a batch, changed in place.

    done: what was done to each text; numbers: its seq and op_id, -1 where it is whole.
    """

    def __init__(self, texts: Texts) -> None:
        raw, begin, size = texts
        self.order = np.argsort(begin, kind="stable")
        if (np.diff(begin[self.order]) < size[self.order][:-1]).any():  # in a damaged file texts can overlap
            raw, begin = np.frombuffer(b"".join(texts.to_bytes()), np.uint8), np.cumsum(size) - size
            self.order = np.arange(len(size))
        self.data = np.concatenate([padding := np.zeros(_SLACK, np.uint8), raw, padding])
        self.words = np.ndarray((len(self.data) - 7,), "V8", self.data.data, strides=(1,))
        self.begin = begin + _SLACK
        self.end = self.begin + size
        self.done = np.zeros(len(size), np.uint8)
        self.numbers = np.full((2, len(size)), -1, np.int64)
        self._find_keys()

    def distinct(self) -> tuple[list[bytes], Ints]:
        """The distinct remainders, and the number of each text's own."""
        rows = len(self.begin)
        if not rows:
            return [], np.empty(0, np.int64)
        # Arrow copies every other piece of those into which the texts cut the bytes.
        cuts = np.empty(2 * rows, np.int32)
        cuts[0::2], cuts[1::2] = self.begin[self.order], self.end[self.order]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(cuts), pa.py_buffer(self.data)])
        which = np.empty(rows, np.int32)
        which[self.order] = np.arange(0, 2 * rows, 2, dtype=np.int32)
        found = pieces.take(to_arrow(which)).dictionary_encode()
        return found.dictionary.to_pylist(), to_numpy(found.indices).astype(np.int64)

    def _word(self, at: Ints) -> Words:
        return self.words[at].view("<u8")

    def _find_keys(self) -> None:
        """Cut the texts that hold the keys of emit_nvtx in their order; markers may hold anything."""
        equals = np.flatnonzero(self.data == _EQUALS)
        before = self._word(equals - 8)
        keys = np.zeros(len(equals) + 4, np.uint8)
        for key, word in _BEFORE_WORD.items():
            same = (before if key != _SEQ else before >> np.uint64(16)) == word
            keys[:-4] |= same.view(np.uint8) * np.uint8(key)
        at = np.searchsorted(equals, self.begin)
        count = np.searchsorted(equals, self.end) - at
        four = np.ndarray((len(equals) + 1,), "V4", keys.data, strides=(1,))[at].view("<u4")
        four &= _FIRST[np.minimum(count, 4)].astype(np.uint32)
        packed = (four & 7) | (four >> 5 & 0o70) | (four >> 10 & 0o700) | (four >> 15 & 0o7000)
        shape = _SHAPES[packed]
        shape[(count > 4) | (self.data[self.begin] == _BRACE)] = 0
        rows = np.flatnonzero(shape)
        if len(rows):
            self._cut(rows, shape[rows], equals, at[rows])

    def _cut(self, rows: Ints, shape: Bytes, equals: Ints, at: Ints) -> None:
        """Read and overwrite the numbers of texts, from the last key to the first; at: where the first "=" of each is."""
        data, kept = self.data, self.end[rows]
        end = kept.copy()  # of the part not looked at yet
        fine = np.ones(len(rows), np.bool_)
        done = np.full(len(rows), _CUT, np.uint8)
        at = at + _KEYS_IN[shape]
        some = np.flatnonzero(shape & _bit(_INPUTS))
        if len(some):
            at[some] -= 1
            key = equals[at[some]]
            fine[some] = (self._word(key - 15) == _BEFORE_OTHER_WORD) & (data[end[some] - 1] == _CLOSE)
            fine[some] &= (data[key + 1] == _SPACE) & (data[key + 2] == _OPEN)
            end[some], kept[some] = key - 15, key + 3
        some = np.flatnonzero(shape & _bit(_SIZES))
        if len(some):
            # They must be closed before the next key: otherwise they would continue in the input ids.
            at[some] -= 1
            key = equals[at[some]]
            fine[some] &= (data[key + 1] == _SPACE) & (data[key + 2] == _OPEN) & (data[end[some] - 1] == _CLOSE)
            end[some] = key - 8
        parts = []
        for column, name, bit in ((1, _OP_ID, _OP_ID_ZEROS), (0, _SEQ, _SEQ_ZEROS)):
            some = np.flatnonzero(shape & _bit(name))
            at[some] -= 1
            key, until = equals[at[some]], end[some]
            found, plain = self._read(key, until)
            self.numbers[column, rows[some]] = np.where(plain, found, -1)
            fine[some] &= plain | (self._unsigned(key, until) if name == _SEQ else False)
            done[some[plain]] |= bit
            parts.append((some[plain], key[plain], until[plain]))
            end[some] = key - len(_BEFORE[name])
        for some, key, until in parts:
            self._overwrite(key[fine[some]], until[fine[some]])
        self.end[rows[fine]] = kept[fine]
        self.done[rows[fine]] = done[fine]

    def _unsigned(self, equals: Ints, end: Ints) -> Bools:
        """Whether the number is the one that means no number."""
        same: Bools = (end - equals == len(_UNSIGNED) + 2) & (self.data[equals + 1] == _SPACE)
        for place in (0, 8, 12):
            same &= self._word(equals + 2 + place) == _word(_UNSIGNED[place : place + 8])
        return same

    def _read(self, equals: Ints, end: Ints) -> tuple[Ints, Bools]:
        """The numbers from behind "= " up to the ends, and which of them are 1 to 16 digits and nothing else."""
        size = end - equals - 2
        fine = (self.data[equals + 1] == _SPACE) & (size >= 1) & (size <= 16)
        value, plain = _eight_digits(self._word(end - 8), np.clip(size, 0, 8))
        fine &= plain
        if len(long := np.flatnonzero(fine & (size > 8))):
            high, plain = _eight_digits(self._word(end[long] - 16), size[long] - 8)
            value[long] += high * 100_000_000
            fine[long] = plain
        return value, fine

    def _overwrite(self, equals: Ints, end: Ints) -> None:
        """Overwrite the digits from behind "= " up to the ends with zeros; at most 16."""
        size = end - equals - 2
        for start in (0, 8):
            some = slice(None) if not start else np.flatnonzero(size > start)
            at = equals[some] + 2 + start
            mask = _FIRST[np.minimum(size[some] - start, 8)]
            self.words[at] = ((self._word(at) & ~mask) | (_ZEROS & mask)).view("V8")


def _eight_digits(words: Words, size: Ints) -> tuple[Ints, Bools]:
    """The numbers that the last bytes of words spell, and whether those bytes are all digits.

    Two digits become one number by a product and a sum in all bytes of the words at once, then four, then eight.
    """
    mask = _LAST[size]
    words = (words & mask) | (_ZEROS & ~mask)
    fine = ((words & _HIGH) == _ZEROS) & (((words + _SIX) & _HIGH) == _ZEROS)
    words = words - _ZEROS
    words = words * np.uint64(10) + (words >> np.uint64(8))
    pairs = np.uint64(0x000000FF000000FF)
    low = (words & pairs) * np.uint64(100 + (1_000_000 << 32))
    high = (words >> np.uint64(16) & pairs) * np.uint64(1 + (10_000 << 32))
    return ((low + high) >> np.uint64(32)).astype(np.int64), fine
