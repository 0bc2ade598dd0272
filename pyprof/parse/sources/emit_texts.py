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

__all__ = ["EmitTexts"]

Ints = npt.NDArray[np.int64]
Decode = Callable[[str], tuple[int, int, int]]
_SEQ, _OP_ID, _SIZES, _INPUTS = ", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "
_MOST_DIGITS = 18  # of a number that needs no care


class EmitTexts:
    """Labels of texts; decode: what one text says, as (label, seq, op_id)."""

    def __init__(self, decode: Decode) -> None:
        self.decode = decode
        self.known: dict[Any, tuple[int, bool]] = {}  # what a text says without its numbers -> (label, whether that is sure)

    def codes(self, texts: Any) -> tuple[Ints, Ints, Ints]:
        """Label, seq and op_id of each of a batch's texts, which hold no null."""
        rows = len(texts)
        out = np.full((3, rows), -1, np.int64)
        # Markers are long and repeat: they are not searched, whatever they hold.
        keyed = ~pc.starts_with(texts, "{").to_numpy(zero_copy_only=False)
        other = np.flatnonzero(keyed)
        mine = texts if len(other) == rows else texts.take(pa.array(other))
        keyed[other] = pc.greater_equal(pc.find_substring(mine, _OP_ID), 0).to_numpy(zero_copy_only=False)
        plain = np.flatnonzero(~keyed)
        distinct = texts.take(pa.array(plain)).dictionary_encode()
        said = np.array([self.decode(_python(text)) for text in distinct.dictionary], np.int64).reshape(-1, 3)
        out[:, plain] = said[distinct.indices.to_numpy()].T
        if keyed.any():
            self._keyed(texts, np.flatnonzero(keyed), out)
        return out[0], out[1], out[2]

    def _keyed(self, texts: Any, rows: Ints, out: Ints) -> None:
        """Texts with an op_id: NAME[, seq = N], op_id = N[, sizes = ..][, input_op_ids = ..]."""
        mine = texts.take(pa.array(rows))
        head, tail, once = _cut(mine, _OP_ID)
        name, seq, one_seq = _cut(head, _SEQ)
        before, inputs, one_input = _cut(tail, _INPUTS)
        op_id, sizes, one_size = _cut(before, _SIZES)
        numbers, sure = np.full((2, len(rows)), -1, np.int64), once & one_seq & one_input & one_size
        for index, digits in enumerate((seq, op_id)):
            numbers[index], fine = _numbers(digits)
            sure &= fine
        bracketed = pc.and_(pc.starts_with(inputs, "["), pc.ends_with(inputs, "]"))
        sure &= pc.fill_null(bracketed, True).to_numpy(zero_copy_only=False)
        name, sizes = name.dictionary_encode(), sizes.dictionary_encode(null_encoding="encode")
        has = [part.is_valid().to_numpy(zero_copy_only=False) for part in (seq, inputs)]
        width = len(sizes.dictionary)
        kind = (name.indices.to_numpy().astype(np.int64) * width + sizes.indices.to_numpy()) * 4 + has[0] * 2 + has[1]
        kinds, first, which = np.unique(np.where(sure, kind, -1), return_index=True, return_inverse=True)
        names, shapes = name.dictionary.to_pylist(), sizes.dictionary.to_pylist()
        labels = np.full(len(kinds), -1, np.int64)
        trusted = np.zeros(len(kinds), np.bool_)
        for index, code in enumerate(kinds.tolist()):
            if code >= 0:
                key = (names[code // 4 // width], shapes[code // 4 % width], code & 3)
                if key not in self.known:
                    row = int(first[index])
                    label, said_seq, said_op = self.decode(_python(mine[row]))
                    self.known[key] = label, (said_seq, said_op) == (numbers[0, row], numbers[1, row])
                labels[index], trusted[index] = self.known[key]
        out[0, rows], out[1:, rows] = labels[which], numbers
        for row in np.flatnonzero(~trusted[which]).tolist():
            out[:, rows[row]] = self.decode(_python(mine[row]))


def _python(text: Any) -> str:
    raw: bytes = text.as_buffer().to_pybytes()
    return raw.decode("utf-8", "replace")


def _cut(texts: Any, separator: str) -> tuple[Any, Any, npt.NDArray[np.bool_]]:
    """What stands before a separator, what after it (null where it is not there), and whether it stands there at most once."""
    parts = pc.split_pattern(texts, separator)
    counts = np.diff(parts.offsets.to_numpy())
    pieces = parts.values
    first = parts.offsets.to_numpy()[:-1]
    before = pieces.take(pa.array(first, mask=counts == 0))
    after = pieces.take(pa.array(np.where(counts > 1, first + 1, 0), mask=counts < 2))
    return before, after, counts <= 2


def _numbers(digits: Any) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Numbers as split_ids reads them, -1 where there is none; and whether each is a plain one."""
    plain = pc.and_(pc.match_substring_regex(digits, r"^[0-9]+$"), pc.less_equal(pc.binary_length(digits), _MOST_DIGITS))
    missing = digits.is_null()
    numbers = pc.if_else(plain, digits, None).cast(pa.int64()).fill_null(-1).to_numpy()
    return numbers, pc.or_(pc.fill_null(plain, False), missing).to_numpy(zero_copy_only=False)
