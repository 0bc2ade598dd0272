"""Rows of nsys's NVTX_EVENTS, one by one or in columns -> the table `ranges`; of the texts only distinct ones are kept.

Which columns of the export hold the rows is the business of `nsys`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.arrays.growing import Growing, narrowest
from pyprof.markers import split_ids
from pyprof.parse.sources.sqlite import map_distinct, to_integer, to_text
from pyprof.parse.sources.trace import Table, Trace, make_table

__all__ = ["DOMAIN", "RANGES", "RangeRows"]

Ints = npt.NDArray[np.int64]

_PUSH_POP, DOMAIN = (59, 70), 75
RANGES = (59, 60, 70, 71)  # push/pop and start/end; 70 and 71 are the same imported from a text file
_PROCESS = ~((1 << 24) - 1)  # what a globalTid says of its process


class RangeRows:
    """Collects rows batch by batch; names: texts by textId; thread: the row of `threads` of a globalTid; rows: about how many
    there will be."""

    def __init__(self, names: dict[int, str], trace: Trace, thread: Callable[[int], int], rows: int) -> None:
        self.names, self.trace, self.thread = names, trace, thread
        self.tid_of: dict[int, int] = {}  # row of `threads` -> globalTid
        # Start, end, whether it is a start/end range, thread, domain, label, seq and op_id.
        self.columns = [Growing(dtype, rows) for dtype in ("i8", "i8", "?", "i4", "i4", "i4", "i4", "i4")]
        self.domains: dict[tuple[int, int], int] = {}  # (globalPid, domainId) -> code of its name
        self.of_text: dict[str, int] = {}
        self.of_string: dict[int, tuple[int, int, int]] = {}  # textId -> (label, seq, op_id)
        self.unreadable = 0  # rows without a time or a thread

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
            columns: list[Ints] = [np.ascontiguousarray(column) for column in np.array(rows, np.int64).T]
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
        found: list[Ints] = [start, end, event, tid, domain, label, seq, op_id]
        self._put([column[~named] for column in found] if named.any() else found)

    def _put(self, columns: list[Ints]) -> None:
        """Start, end, eventType, globalTid, domainId, label, seq and op_id of some rows."""
        start, end, event, tid, domain, label, seq, op_id = columns
        free = ~np.isin(event, (*_PUSH_POP, -1))
        thread = map_distinct(tid, self._row).astype(np.int32)
        numbers = [narrowest(column) for column in (domain, label, seq, op_id)]
        for column, piece in zip(self.columns, (start, end, free, thread, *numbers), strict=True):
            column.append(piece)

    def _row(self, tid: int) -> int:
        row = self.thread(tid)
        self.tid_of[row] = tid
        return row

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

    def table(self) -> Table:
        """All rows."""
        start, end, free, thread, domain, label, seq, op_id = (column.whole() for column in self.columns)
        return make_table(
            "ranges",
            {
                "start_ns": start,
                "end_ns": end,
                "thread": thread,
                "label": label,
                "seq": seq,
                "op_id": op_id,
                "domain": self._domain_codes(thread, domain),
                "open": end == -1,
                "free": free,
            },
        )

    def _domain_codes(self, thread: npt.NDArray[Any], domain: npt.NDArray[Any]) -> npt.NDArray[Any]:
        named = np.flatnonzero(domain > 0)
        if not len(named):
            return np.broadcast_to(np.int32(-1), len(domain))
        codes = np.full(len(domain), -1, np.int16)
        keys, _, inverse = distinct_rows(thread[named], domain[named])
        unnamed = self.trace.strings.code("(domain without a name)")
        found = [self.domains.get((self.tid_of[row] & _PROCESS, number), unnamed) for row, number in keys.T.tolist()]
        if max(found) > np.iinfo(np.int16).max:
            codes = codes.astype(np.int32)
        codes[named] = np.array(found)[inverse]
        return codes
