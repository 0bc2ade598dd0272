"""nvprof's StringTable: ids of texts -> single texts, or what the texts of many range names say.

Read by whole columns where the file is large and sound; then no text becomes a Python object but the distinct ones that
somebody asks for. Which tables refer to it is the business of `nvprof` and `nvprof_ranges`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.parse.sources.sqlite import Database, to_integer, to_text

__all__ = ["Names"]

Ints = npt.NDArray[np.int64]
Decode = Callable[[str], tuple[int, int, int]]
_TABLE, _ID, _TEXT = "StringTable", "_id_", "value"


class Names:
    """The texts of a file by id."""

    def __init__(self, db: Database) -> None:
        self.ids: Ints = np.empty(0, np.int64)  # ascending
        self.texts: list[Any] = []  # parts that together are as long as ids: Arrow arrays, or one list
        if db.has(_TABLE, _ID, _TEXT) and not self._by_arrow(db):
            self._by_rows(db)

    def _by_rows(self, db: Database) -> None:
        found = [(to_integer(i), to_text(text)) for i, text in db.rows(f"SELECT {_ID}, {_TEXT} FROM {_TABLE}")]
        found = sorted(row for row in found if row[0] >= 0)
        self._put([i for i, _ in found], [[text for _, text in found]])

    def _by_arrow(self, db: Database) -> bool:
        """Whether the file is as it should be; in a column of texts, numbers are texts to SQLite as well."""
        if db.arrow is None or not any(name in db.columns(_TABLE)[_TEXT] for name in ("TEXT", "CHAR", "CLOB")):
            return False
        from pyprof.arrays.arrow import to_numpy
        from pyprof.parse.sources.sqlite_pages.btree import OddFile

        try:
            batches = list(db.arrow.batches(f"SELECT coalesce({_ID}, -1), coalesce({_TEXT}, '') FROM {_TABLE}", 1))
        except OddFile:
            return False
        ids = np.concatenate([np.empty(0, np.int64), *(to_numpy(batch.column(0)) for batch in batches)])
        if len(ids) and (ids[0] < 0 or (ids[1:] <= ids[:-1]).any()):  # it is the key, in whose order the rows are
            return False
        self._put(ids, [batch.column(1) for batch in batches])
        return True

    def _put(self, ids: Any, texts: list[Any]) -> None:
        self.ids, self.texts = np.asarray(ids, np.int64), texts
        self.begin = np.cumsum([0, *map(len, texts)])

    def get(self, name: int) -> str | None:
        """The text of an id, None where there is none."""
        at = int(np.searchsorted(self.ids, name))
        if at == len(self.ids) or self.ids[at] != name:
            return None
        part = int(np.searchsorted(self.begin, at, "right")) - 1
        text = self.texts[part][at - int(self.begin[part])]
        return text if isinstance(text, str) else to_text(text.as_buffer().to_pybytes())

    def say(self, names: Ints, decode: Decode) -> Ints:
        """Label, seq and op_id of the text of each id, as three rows; decode: what one text says."""
        at = np.searchsorted(self.ids, names)
        known = at < len(self.ids)
        known[known] = self.ids[at[known]] == names[known]
        used = np.zeros(len(self.ids), np.bool_)
        used[at[known]] = True
        said = np.full((3, len(self.ids) + 1), -1, np.int64)
        columns = None
        for part, begin in zip(self.texts, self.begin.tolist(), strict=False):
            rows = begin + np.flatnonzero(used[begin : begin + len(part)])
            if isinstance(part, list):
                said[:, rows] = np.array([decode(part[row - begin]) for row in rows.tolist()], np.int64).reshape(-1, 3).T
            elif len(rows):
                from pyprof.arrays.arrow import to_arrow
                from pyprof.parse.sources.emit_texts import EmitTexts

                if columns is None:
                    columns = EmitTexts(decode)
                said[:, rows] = columns.codes(part.take(to_arrow(rows - begin)))
        if not known.all():
            said[:, -1] = decode("")
            at = np.where(known, at, len(self.ids))
        return said[:, at]
