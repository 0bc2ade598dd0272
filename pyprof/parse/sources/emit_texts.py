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

from pyprof.parse.arrow_arrays import to_arrow, to_numpy
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
        marker = to_numpy(pc.starts_with(texts, "{"))
        if marker.any():
            self._repeated(texts, np.flatnonzero(marker), out)
            rows = np.flatnonzero(~marker)
            self._cut_off(texts.take(to_arrow(rows)), rows, out)
        else:
            self._cut_off(texts, np.arange(len(texts)), out)
        return out[0], out[1], out[2]

    def _repeated(self, texts: Any, rows: Ints, out: Ints) -> None:
        """Texts of which each distinct one is read."""
        distinct = texts.take(to_arrow(rows)).dictionary_encode()
        said = np.array([self.decode(_python(text)) for text in distinct.dictionary], np.int64).reshape(-1, 3)
        out[:, rows] = said[to_numpy(distinct.indices)].T

    def _cut_off(self, texts: Any, rows: Ints, out: Ints) -> None:
        """Texts of which most are NAME[, seq = N][, op_id = N][, sizes = ..][, input_op_ids = [..]]; rows: where they stand."""
        before, inputs, one_input = _count(texts, _INPUTS)
        before, sizes, one_size = _cut(before, _SIZES)
        head, op_id, one_op = _cut(before, _OP_ID)
        name, seq, one_seq = _cut(head, _SEQ)
        numbered, has = to_numpy(op_id.is_valid()), to_numpy(seq.is_valid())
        numbers, sure = np.full((2, len(rows)), -1, np.int64), (numbered | has) & one_op & one_seq & one_input & one_size
        for index, digits in enumerate((seq, op_id)):
            numbers[index], fine = _numbers(digits)
            sure &= fine
        sure &= (~inputs | to_numpy(pc.ends_with(texts, "]"))) & to_numpy(pc.ends_with(sizes, "]"), True)
        name, sizes = name.dictionary_encode(), sizes.dictionary_encode(null_encoding="encode")
        width = len(sizes.dictionary)
        kind = to_numpy(name.indices).astype(np.int64) * width + to_numpy(sizes.indices)
        kinds, first, which = distinct_rows(np.where(sure, kind * 8 + numbered * 4 + has * 2 + inputs, -1))
        labels, trusted = self._labels(kinds[0], first, (name, sizes), texts, numbers)
        out[0, rows], out[1:, rows] = labels[which], numbers
        single = np.flatnonzero(~trusted[which])
        if len(single):
            few = texts.take(to_arrow(single))
            self._repeated(few, np.arange(len(single)), found := np.empty((3, len(single)), np.int64))
            out[:, rows[single]] = found

    def _labels(
        self, kinds: Ints, first: Ints, pieces: tuple[Any, Any], texts: Any, numbers: Ints
    ) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """The label of each kind of text, and whether all texts of that kind have it and the numbers that were cut."""
        names, shapes = (piece.dictionary.cast(pa.binary()).to_pylist() for piece in pieces)
        labels, trusted = np.full(len(kinds), -1, np.int64), np.zeros(len(kinds), np.bool_)
        for index, code in enumerate(kinds.tolist()):
            if code < 0:
                continue
            key = (names[code // 8 // len(shapes)], shapes[code // 8 % len(shapes)], code & 7)
            if key not in self.known:
                row = int(first[index])
                label, said_seq, said_op = self.decode(_python(texts[row]))
                same = (said_seq, said_op) == (numbers[0, row], numbers[1, row])
                self.known[key] = label, same and _INPUTS_KEY.encode() not in (key[1] or key[0])
            labels[index], trusted[index] = self.known[key]
        return labels, trusted


def _python(text: Any) -> str:
    raw: bytes = text.as_buffer().to_pybytes()
    return raw.decode("utf-8", "replace")


def _cut(texts: Any, separator: str) -> tuple[Any, Any, npt.NDArray[np.bool_]]:
    """What stands before a separator, what after it (null where it is not there), and whether it stands there at most once."""
    parts = pc.split_pattern(texts, separator)
    begin = to_numpy(parts.offsets)
    counts = np.diff(begin)
    before = parts.values.take(to_arrow(begin[:-1], counts == 0))
    after = parts.values.take(to_arrow(np.where(counts > 1, begin[:-1] + 1, 0), counts < 2))
    return before, after, counts <= 2


def _count(texts: Any, separator: str) -> tuple[Any, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """What stands before a separator, whether it is there, and whether at most once."""
    parts = pc.split_pattern(texts, separator)
    begin = to_numpy(parts.offsets)
    counts = np.diff(begin)
    return parts.values.take(to_arrow(begin[:-1])), counts > 1, counts <= 2


def _numbers(digits: Any) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Numbers as split_ids reads them, -1 where there is none; and whether each is a plain one."""
    plain = to_numpy(pc.ascii_is_decimal(digits), False) & (to_numpy(pc.binary_length(digits), 0) <= _MOST_DIGITS)
    numbers = to_numpy(pc.if_else(to_arrow(plain), digits, pa.nulls(1, digits.type)[0]).cast(pa.int64()), -1)
    return numbers, plain | to_numpy(digits.is_null())
