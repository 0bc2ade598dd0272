"""Tables of numbers put away one after another, under a name that others still use."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.arrays.types import Array


class Shelf:
    """A list of tables."""

    def __init__(self) -> None:
        self._tables: list[list[Array]] = []

    def close(self) -> None:
        """Forget the tables."""
        self._tables.clear()

    def add(self, *columns: Array) -> None:
        """Put a table away."""
        self._tables.append([*columns])

    def __iter__(self) -> Iterator[list[Array]]:
        """The columns of each table, in the order of `add`."""
        return iter(self._tables)
