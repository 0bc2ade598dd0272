"""Two folders with a capture for each rank -> one comparison a rank, made one after another, and the mean over the ranks.

Files of a rank are matched by the rank that they recorded, or by the number in their names; without either by their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyprof.errors import InputError
from pyprof.parse.records.dataset import named_rank
from pyprof.report.diff.compare import Comparison
from pyprof.report.ranks.units import files_of
from pyprof.report.time.overview import Overview


class RankComparison(NamedTuple):
    """What changed on one rank. rank: -1 where files have none and were matched by their order; names: of both files."""

    rank: int
    names: tuple[str, str]
    found: Comparison


def rank_files(folder: str) -> dict[int, str]:
    """The files of a folder by rank; files without one by -1 less their place. Raises InputError where two have one rank."""
    found: dict[int, str] = {}
    for place, file in enumerate(files_of([folder])):
        rank = named_rank(file)
        key = rank if rank >= 0 else -1 - place
        if key in found:
            raise InputError(f"{folder}: {found[key]} and {file} are both of rank {rank}", "give folders with one file a rank")
        found[key] = str(file)
    return found


def compare_ranks(before: str, after: str, read: Callable[[str], Overview]) -> Iterator[RankComparison]:
    """One comparison for each rank of both folders, in order. Raises InputError where they have no rank in common."""
    files = rank_files(before), rank_files(after)
    common = sorted(set(files[0]) & set(files[1]), key=lambda rank: (rank < 0, abs(rank)))
    if not common:
        raise InputError(f"{before} and {after} have no rank in common", "name the files after their ranks: rank0.json.gz")
    for rank in common:
        names = files[0][rank], files[1][rank]
        yield RankComparison(max(rank, -1), names, Comparison(read(names[0]), read(names[1])))


def lone_ranks(before: str, after: str) -> tuple[list[int], list[int]]:
    """The ranks that only one of the folders has."""
    files = rank_files(before), rank_files(after)
    return sorted(set(files[0]) - set(files[1])), sorted(set(files[1]) - set(files[0]))
