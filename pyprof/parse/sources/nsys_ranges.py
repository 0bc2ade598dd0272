"""Rows of nsys's NVTX_EVENTS, batch by batch -> the table `ranges`; only distinct texts are kept.

`nsys` knows which columns of the export hold the rows; this module must not know files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows, map_distinct
from pyprof.arrays.growing import Growing, narrowest
from pyprof.parse.sources.sqlite_pages.reader import NOT_AN_INTEGER, Batch
from pyprof.parse.sources.trace import Table, Trace, make_table

__all__ = ["COLUMNS", "RangeRows"]

Ints = npt.NDArray[np.int64]

COLUMNS = ("start", "end", "eventType", "globalTid", "domainId", "textId")
_PUSH_POP, _DOMAIN = (59, 70), 75
_KINDS = (59, 60, 70, 71, _DOMAIN)  # push/pop and start/end; 70 and 71 are the same imported from a text file
_PROCESS = ~((1 << 24) - 1)  # the bits of a globalTid that identify its process


class RangeRows:
    """Collects the rows of COLUMNS with their texts.

    names: registered texts by textId; thread: the row of `threads` of a globalTid; rows: about how many there will be; kinds:
    whether the export has the column eventType.
    """

    def __init__(self, names: dict[int, str], trace: Trace, thread: Callable[[int], int], rows: int, *, kinds: bool) -> None:
        self.names, self.trace, self.thread = names, trace, thread
        self.kinds = _KINDS if kinds else (-1,)
        self.codes = trace.labels.reader(rows)
        # Start, end, whether it is a start/end range, thread, domain, label, seq and op_id.
        self.columns = tuple(map(partial(Growing, rows=rows), ("i8", "i8", "?", "i4", "i4", "i4", "i4", "i4")))
        self.domains: dict[tuple[int, int], int] = {}  # (globalPid, domainId) -> its number in the column of domains
        self.domain_names: dict[tuple[int, int], str] = {}
        self.unreadable = 0  # rows without a time or a thread

    def add(self, batch: Batch) -> None:
        """More rows, whatever they hold."""
        start, _, event, tid, _, _ = batch.columns
        kept = np.isin(event, self.kinds)
        readable = (start != NOT_AN_INTEGER) & (tid != NOT_AN_INTEGER)
        self.unreadable += int(np.count_nonzero(kept & ~readable))
        kept &= readable
        if (event == _DOMAIN).any():
            self._name_domains(batch.take(kept & (event == _DOMAIN)))
            kept &= event != _DOMAIN
        if kept.any():
            self._put(batch if kept.all() else batch.take(kept))

    def _name_domains(self, batch: Batch) -> None:
        _, _, _, tids, domains, text_ids = map(np.ndarray.tolist, batch.columns)
        for tid, domain, text_id, text in zip(tids, domains, text_ids, batch.texts.to_bytes(), strict=True):
            name = text.decode("utf-8", "replace") or self.names.get(text_id, "")
            key = (tid & _PROCESS, domain)
            self.domain_names[key] = min(name, self.domain_names.get(key, name))  # registered twice: the same in any order

    def _put(self, batch: Batch) -> None:
        (start, end, event, tid, domain, text_id), texts = batch
        label, seq, op_id = self.codes(texts)
        empty = np.flatnonzero(texts.size == 0)
        if len(empty):  # these are registered
            distinct, inverse = np.unique(text_id[empty], return_inverse=True)
            names = map(self.names.get, distinct.tolist(), repeat(""))
            registered = np.array(list(map(self.trace.labels.split, names)), np.int64)
            label[empty], seq[empty], op_id[empty] = registered[inverse.ravel()].T
        end = np.where(end == NOT_AN_INTEGER, -1, end)
        free = ~np.isin(event, (*_PUSH_POP, -1))
        thread = map_distinct(tid, self.thread).astype(np.int32)
        numbers = map(narrowest, (self._number_domains(tid, domain), label, seq, op_id))
        for column, piece in zip(self.columns, (start, end, free, thread, *numbers), strict=True):
            column.append(piece)

    def _number_domains(self, tid: Ints, domain: Ints) -> Ints:
        result = np.full(len(domain), -1, np.int64)
        named = np.flatnonzero(domain > 0)
        if len(named):
            keys, _, inverse = distinct_rows(tid[named] & _PROCESS, domain[named])
            numbers = []
            for process, number in keys.T.tolist():
                numbers.append(self.domains.setdefault((process, number), len(self.domains)))
            result[named] = np.array(numbers)[inverse]
        return result

    def table(self) -> Table:
        """All rows."""
        start, end, free, thread, domain, label, seq, op_id = map(Growing.whole, self.columns)
        return make_table(
            "ranges",
            {
                "start_ns": start,
                "end_ns": end,
                "thread": thread,
                "label": label,
                "seq": seq,
                "op_id": op_id,
                "domain": self._domain_codes(domain),
                "open": end == -1,
                "free": free,
            },
        )

    def _domain_codes(self, domain: Ints) -> npt.NDArray[Any]:
        if not self.domains:
            return np.broadcast_to(np.int32(-1), len(domain))
        codes = np.full(len(self.domains) + 1, -1, np.int32)  # the last is that of number -1
        for key, number in self.domains.items():
            codes[number] = self.trace.strings.code(self.domain_names.get(key, "(domain without a name)"))
        return codes.astype(np.int16 if codes.max() < 1 << 15 else np.int32)[domain]
