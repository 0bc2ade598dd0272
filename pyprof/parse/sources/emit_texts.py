"""Texts of NVTX ranges in Arrow batches -> label codes, sequence numbers and op ids: what split_ids says of each, by columns.

Of emit_nvtx's texts everything that changes with each call is cut off by column; each distinct remainder is read once, by
split_ids itself on one whole text that has it. A text in which anything stands otherwise is read on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.parse.distinct import distinct_rows

__all__ = ["EmitTexts"]

Ints = npt.NDArray[np.int64]
Decode = Callable[[str], tuple[int, int, int]]
_SEQ, _OP_ID, _SIZES, _INPUTS_KEY = ", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "
_INPUTS = _INPUTS_KEY + "["
_MOST_DIGITS = 18  # of a number that needs no care


class EmitTexts:
    """Labels of texts; decode: what one text says, as (label, seq, op_id)."""

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.known: dict[Any, tuple[int, bool]] = {}  # what a text says without its numbers -> (label, whether that is sure)

    def codes(self, texts: Any) -> tuple[Ints, Ints, Ints]:
        """Label, seq and op_id of each of a batch's texts, which hold no null."""
        out = np.full((3, len(texts)), -1, np.int64)
        # Markers are long and repeat: they are not searched, whatever they hold.
        marker = pc.starts_with(texts, "{").to_numpy(zero_copy_only=False)
        if marker.any():
            for rows, read in ((np.flatnonzero(marker), self._repeated), (np.flatnonzero(~marker), self._cut_off)):
                read(texts.take(pa.array(rows)), rows, out)
        else:
            self._cut_off(texts, np.arange(len(texts)), out)
        return out[0], out[1], out[2]

    def _repeated(self, texts: Any, rows: Ints, out: Ints) -> None:
        """Texts of which each distinct one is read; rows: where they stand."""
        distinct = texts.dictionary_encode()
        said = np.array([self.decode(_python(text)) for text in distinct.dictionary], np.int64).reshape(-1, 3)
        out[:, rows] = said[distinct.indices.to_numpy()].T

    def _cut_off(self, texts: Any, rows: Ints, out: Ints) -> None:
        """Texts of which most are NAME[, seq = N], op_id = N[, sizes = ..][, input_op_ids = [..]]; rows: where they stand."""
        before, inputs, one_input = _count(texts, _INPUTS)
        head, tail, once = _cut(before, _OP_ID)
        name, seq, one_seq = _cut(head, _SEQ)
        op_id, sizes, one_size = _cut(tail, _SIZES)
        keyed = tail.is_valid().to_numpy(zero_copy_only=False)
        numbers, sure = np.full((2, len(rows)), -1, np.int64), keyed & once & one_seq & one_input & one_size
        for index, digits in enumerate((seq, op_id)):
            numbers[index], fine = _numbers(digits)
            sure &= fine
        sure &= ~inputs | pc.ends_with(texts, "]").to_numpy(zero_copy_only=False)
        has = seq.is_valid().to_numpy(zero_copy_only=False)
        unknown = self._by_kind(texts, rows, (name, sizes, has * 2 + inputs), numbers, sure, out)
        older = (has & ~keyed)[unknown]
        if older.any():
            self._without_op_id(texts.take(pa.array(unknown[older])), rows[unknown[older]], out)
            unknown = unknown[~older]
        self._repeated(texts.take(pa.array(unknown)), rows[unknown], out)

    def _without_op_id(self, texts: Any, rows: Ints, out: Ints) -> None:
        """The same of texts of which most are NAME, seq = N[, sizes = ..], as torch wrote them before it had op ids."""
        name, tail, once = _cut(texts, _SEQ)
        seq, sizes, one_size = _cut(tail, _SIZES)
        numbers = np.full((2, len(rows)), -1, np.int64)
        numbers[0], fine = _numbers(seq)
        unknown = self._by_kind(texts, rows, (name, sizes, np.full(len(rows), 4)), numbers, fine & once & one_size, out)
        self._repeated(texts.take(pa.array(unknown)), rows[unknown], out)

    def _by_kind(self, texts: Any, rows: Ints, kind: tuple[Any, Any, Ints], numbers: Ints, sure: Any, out: Ints) -> Ints:
        """Texts that are the same but for their numbers, by one of each; returns which are to be read on their own.

        kind: what each has for name and sizes, and which keys; numbers: its seq and op_id; sure: whether nothing else varies.
        """
        name, sizes = kind[0].dictionary_encode(), kind[1].dictionary_encode(null_encoding="encode")
        width = len(sizes.dictionary)
        code = (name.indices.to_numpy().astype(np.int64) * width + sizes.indices.to_numpy()) * 8 + kind[2]
        kinds, first, which = distinct_rows(np.where(sure, code, -1))
        names, shapes = (part.dictionary.cast(pa.binary()).to_pylist() for part in (name, sizes))
        labels = np.full(kinds.shape[1], -1, np.int64)
        trusted = np.zeros(kinds.shape[1], np.bool_)
        for index, number in enumerate(kinds[0].tolist()):
            if number >= 0:
                key = (names[number // 8 // width], shapes[number // 8 % width], number & 7)
                if key not in self.known:
                    row = int(first[index])
                    label, said_seq, said_op = self.decode(_python(texts[row]))
                    same = (said_seq, said_op) == (numbers[0, row], numbers[1, row])
                    self.known[key] = label, same and _INPUTS_KEY.encode() not in (key[1] or b"")
                labels[index], trusted[index] = self.known[key]
        out[0, rows], out[1:, rows] = labels[which], numbers
        return np.flatnonzero(~trusted[which])


def _python(text: Any) -> str:
    raw: bytes = text.as_buffer().to_pybytes()
    return raw.decode("utf-8", "replace")


def _cut(texts: Any, separator: str) -> tuple[Any, Any, npt.NDArray[np.bool_]]:
    """What stands before a separator, what after it (null where it is not there), and whether it stands there at most once."""
    parts = pc.split_pattern(texts, separator)
    begin = parts.offsets.to_numpy()
    counts = np.diff(begin)
    before = parts.values.take(pa.array(begin[:-1], mask=counts == 0))
    after = parts.values.take(pa.array(np.where(counts > 1, begin[:-1] + 1, 0), mask=counts < 2))
    return before, after, counts <= 2


def _count(texts: Any, separator: str) -> tuple[Any, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """What stands before a separator, whether it is there, and whether at most once."""
    parts = pc.split_pattern(texts, separator)
    begin = parts.offsets.to_numpy()
    counts = np.diff(begin)
    return parts.values.take(pa.array(begin[:-1])), counts > 1, counts <= 2


def _numbers(digits: Any) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Numbers as split_ids reads them, -1 where there is none; and whether each is a plain one."""
    plain = pc.and_(pc.ascii_is_decimal(digits), pc.less_equal(pc.binary_length(digits), _MOST_DIGITS))
    missing = digits.is_null()
    numbers = pc.if_else(plain, digits, None).cast(pa.int64()).fill_null(-1).to_numpy()
    return numbers, pc.or_(pc.fill_null(plain, False), missing).to_numpy(zero_copy_only=False)
