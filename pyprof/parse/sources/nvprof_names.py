"""nvprof's StringTable -> texts by id, one at a time or, of the many names of ranges, label, sequence number and op id of each.

No text becomes a Python object but the distinct ones that are requested. `nvprof` and `nvprof_ranges` know which tables refer
to it.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import Growing, distinct_places
from pyprof.arrays.types import Array, Ints
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.sqlite_pages.reader import Batch, Texts
from pyprof.parse.sources.trace import Labels

_TABLE, _ID, _TEXT = "StringTable", "_id_", "value"
_ROWS_AT_ONCE = 65_536


class _Strings:
    """Collects the rows of the table: id and size of each text, and the bytes of all one after another."""

    def __init__(self) -> None:
        self.ids, self.sizes, self.raw = Growing(np.int64), Growing(np.int64), Growing(np.uint8)

    def add(self, batch: Batch) -> None:
        self.ids.append(batch.columns[0])
        self.sizes.append(batch.texts.size)
        self.raw.append(np.frombuffer(b"".join(batch.texts.to_bytes()), np.uint8))


class Names:
    """The texts of a file by id."""

    def __init__(self, db: Database) -> None:
        rows = db.collect(_TABLE, (_ID,), _TEXT, _Strings)
        ids, size = rows.ids.whole(), rows.sizes.whole()
        order = np.argsort(ids, kind="stable")
        order = order[np.searchsorted(ids[order], 0) :]  # the others have no id
        self._ids, self._size, self._begin = ids[order], size[order], (np.cumsum(size) - size)[order]
        self._raw = rows.raw.whole()

    def get(self, name: int) -> str | None:
        """The text of an id, None where it is unknown."""
        at = int(self._find(np.array([name]))[0])
        return None if at < 0 else self._raw[self._begin[at] :][: self._size[at]].tobytes().decode("utf-8", "replace")

    def _find(self, names: Ints) -> Ints:
        """Where the text of each id is, -1 unknown."""
        at = np.searchsorted(self._ids, names)
        known = at < len(self._ids)
        known[known] = self._ids[at[known]] == names[known]
        return np.where(known, at, -1)

    def split(self, names: Array, labels: Labels) -> tuple[Array, Array, Array]:
        """Label, seq and op_id of the text of each id; an unknown text is empty."""
        rows, place = distinct_places(self._find(names), len(self._ids))
        found = np.full((3, len(rows) + 1), -1, np.int64)
        if place.min(initial=0) < 0:
            found[:, -1] = labels.split("")
        read = labels.reader(len(rows))
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            found[:, first : first + len(some)] = read(self._texts(some))
        label, seq, op_id = found[:, place]
        return label, seq, op_id

    def _texts(self, rows: Ints) -> Texts:
        """The texts at some places, in as few bytes as they need where they lie far apart."""
        begin, size = self._begin[rows], self._size[rows]
        low, high = int(begin.min()), int((begin + size).max())
        texts = Texts(self._raw[low:high], begin - low, size)
        if high - low <= 2 * int(size.sum()):
            return texts
        ends = (begin + size).tolist()
        raw = np.concatenate([self._raw[one:end] for one, end in zip(begin.tolist(), ends, strict=True)])
        return Texts(raw, np.cumsum(size) - size, size)
