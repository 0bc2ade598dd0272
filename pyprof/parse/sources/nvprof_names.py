"""nvprof's StringTable -> texts by id, one at a time or, of the many names of ranges, label, sequence number and op id of each.

No text becomes a Python object but the distinct ones that are requested. `nvprof` and `nvprof_ranges` know which tables refer
to it.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_places
from pyprof.arrays.types import Ints
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.sqlite_pages.reader import Batch, Texts
from pyprof.parse.sources.trace import Labels

_TABLE, _ID, _TEXT = "StringTable", "_id_", "value"
_ROWS_AT_ONCE = 65_536


class _Strings:
    """Collects the rows of the table."""

    def __init__(self) -> None:
        self.ids, self.sizes, self.texts = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [b""]

    def add(self, batch: Batch) -> None:
        self.ids.append(batch.columns[0])
        self.sizes.append(batch.texts.size)
        self.texts.append(b"".join(batch.texts.to_bytes()))


class Names:
    """The texts of a file by id."""

    def __init__(self, db: Database) -> None:
        rows = db.collect(_TABLE, (_ID,), _TEXT, _Strings)
        ids, size = np.concatenate(rows.ids), np.concatenate(rows.sizes)
        order = np.argsort(ids, kind="stable")
        order = order[np.searchsorted(ids[order], 0) :]  # the others have no id
        self._ids, self._size, self._begin = ids[order], size[order], (np.cumsum(size) - size)[order]
        self._raw = np.frombuffer(b"".join(rows.texts), np.uint8)

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

    def split(self, names: Ints, labels: Labels) -> Ints:
        """Label, seq and op_id of the text of each id, as three rows; an unknown text is empty."""
        rows, place = distinct_places(self._find(names), len(self._ids))
        found = np.full((3, len(rows) + 1), -1, np.int64)
        if (place < 0).any():
            found[:, -1] = labels.split("")
        read = labels.reader(len(rows))
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            begin, size = self._begin[some], self._size[some]
            low, high = int(begin.min()), int((begin + size).max())
            found[:, first : first + len(some)] = read(Texts(self._raw[low:high], begin - low, size))
        return found[:, place]
