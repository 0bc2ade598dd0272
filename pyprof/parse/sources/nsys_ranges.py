"""Rows of nsys's NVTX_EVENTS, one by one or in columns -> the table `ranges`; of the texts only distinct ones are kept.

Which columns of the export hold the rows is the business of `nsys`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.markers import split_ids
from pyprof.parse.distinct import distinct_rows
from pyprof.parse.sources.sqlite import map_distinct, to_integer, to_text
from pyprof.parse.trace import Table, Trace, make_table

__all__ = ["DOMAIN", "RANGES", "RangeRows"]

Ints = npt.NDArray[np.int64]

_PUSH_POP, DOMAIN = (59, 70), 75
RANGES = (59, 60, 70, 71)  # push/pop and start/end; 70 and 71 are the same imported from a text file
_PROCESS = ~((1 << 24) - 1)  # what a globalTid says of its process


class RangeRows:
    """Collects rows batch by batch; names: texts by textId; complete: whether all rows are in."""

    def __init__(self, names: dict[int, str], trace: Trace) -> None:
        self.names, self.trace = names, trace
        # Of start, end, whether it is a start/end range, tid, domain, label, seq and op_id the values of each batch.
        self.parts: list[list[npt.NDArray[Any]]] = [[] for _ in range(8)]
        self.domains: dict[tuple[int, int], int] = {}  # (globalPid, domainId) -> code of its name
        self.of_text: dict[str, int] = {}
        self.of_string: dict[int, tuple[int, int, int]] = {}  # textId -> (label, seq, op_id)
        self.unreadable = 0  # rows without a time or a thread
        self.complete = False

    def add(self, batch: list[tuple[Any, ...]]) -> None:
        """Rows of start, end, eventType, globalTid, domainId, textId, text, whatever stands in them."""
        rows: list[tuple[int, ...]] = []
        for start, end, event, tid, domain, text_id, text in batch:
            if not (type(start) is type(end) is type(tid) is type(domain) is int):
                if type(start) is not int or type(tid) is not int:
                    self.unreadable += 1
                    continue
                end, domain = to_integer(end), to_integer(domain)
            if event == DOMAIN:
                self._domain(tid, domain, to_text(text) or self.names.get(text_id, ""))
                continue
            label, seq, op_id = self.decode(to_text(text)) if text else self._registered(text_id)
            rows.append((start, end, event, tid, domain, label, seq, op_id))
        if rows:
            columns: list[npt.NDArray[Any]] = [np.ascontiguousarray(column) for column in np.array(rows, np.int64).T]
            columns[2] = ~np.isin(columns[2], (*_PUSH_POP, -1))
            columns[5] = columns[5].astype(np.int32)
            self._put(columns)

    def add_columns(self, columns: list[Ints], texts: Any, codes: Callable[[Any], tuple[Ints, Ints, Ints]]) -> None:
        """The same from columns of integers and an Arrow array of texts, of which `codes` tells label, seq and op_id."""
        start, end, event, tid, domain, text_id = columns
        named = event == DOMAIN
        for row in np.flatnonzero(named).tolist():
            text = to_text(texts[row].as_buffer().to_pybytes())
            self._domain(int(tid[row]), int(domain[row]), text or self.names.get(int(text_id[row]), ""))
        label, seq, op_id = codes(texts)
        empty = np.flatnonzero(np.diff(np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]) == 0)
        if len(empty):
            distinct, inverse = np.unique(text_id[empty], return_inverse=True)
            said = np.array([self._registered(i) for i in distinct.tolist()], np.int64)[inverse.ravel()]
            label[empty], seq[empty], op_id[empty] = said.T
        free = ~np.isin(event, (*_PUSH_POP, -1))
        found: list[npt.NDArray[Any]] = [start, end, free, tid, domain, label.astype(np.int32), seq, op_id]
        # Copies: a column of Arrow's batch would keep the whole batch with its texts.
        self._put([column[~named] for column in found] if named.any() else [column.copy() for column in found])

    def _put(self, columns: list[npt.NDArray[Any]]) -> None:
        for part, column in zip(self.parts, columns, strict=True):
            part.append(column)

    def _domain(self, tid: int, domain: int, name: str) -> None:
        key = (tid & _PROCESS, domain)
        strings = self.trace.strings
        if key not in self.domains or name < strings[self.domains[key]]:  # registered twice: the same in any order
            self.domains[key] = strings.code(name)

    def _registered(self, text_id: Any) -> tuple[int, int, int]:
        found = self.of_string.get(text_id)
        if found is None:
            found = self.of_string[text_id] = self.decode(self.names.get(text_id, ""))
        return found

    def decode(self, text: str) -> tuple[int, int, int]:
        """Label, seq and op_id of one text."""
        bare, seq, op_id, keyed = split_ids(text)
        if keyed:
            return self.trace.labels.code(bare, keyed=True, numbered=seq >= 0), seq, op_id
        label = self.of_text.get(text)
        if label is None:
            label = self.of_text[text] = self.trace.labels.code(text)
        return label, -1, -1

    def table(self, thread: Callable[[int], int]) -> Table:
        """All rows; thread: the row of `threads` of a globalTid."""
        if not self.parts[0]:
            return make_table("ranges")
        start, end, free, tid, domain, label, seq, op_id = (_joined(part) for part in self.parts)
        return make_table(
            "ranges",
            {
                "start_ns": start,
                "end_ns": end,
                "thread": map_distinct(tid, thread),
                "label": label,
                "seq": seq,
                "op_id": op_id,
                "domain": self._domain_codes(tid, domain),
                "open": end == -1,
                "free": free,
            },
        )

    def _domain_codes(self, tid: Ints, domain: Ints) -> npt.NDArray[np.int32]:
        codes = np.full(len(domain), -1, np.int32)
        named = np.flatnonzero(domain > 0)
        if len(named):
            keys, _, inverse = distinct_rows(tid[named] & _PROCESS, domain[named])
            unnamed = self.trace.strings.code("(domain without a name)")
            codes[named] = np.array([self.domains.get((int(p), int(d)), unnamed) for p, d in keys.T])[inverse]
        return codes


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One array of several, which are given up."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole
