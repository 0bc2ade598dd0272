"""The occurrences of two captures -> which of them are the same op: by all that names it, then by what is left of that.

First op, layer, shape, direction and number must agree. Of the rest those of the same op, shape and direction are matched in
order (layers were renamed), then those of the same op and layer (another batch size), then those of the same op, if both
captures have as many left of it. What remains was added or removed. Times do not matter here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

import numpy as np

from pyprof.arrays.types import Ints
from pyprof.report.diff.occurrences import Occurrences, OpKey

EXACT, RENAMED, RESHAPED, MOVED = range(4)  # how two occurrences were matched
_Name = Callable[[OpKey, int], Hashable]
_PASSES: tuple[tuple[_Name, bool], ...] = (  # what must agree; whether both captures must have as many of it left
    (lambda key, nth: (key, nth), False),
    (lambda key, _: (key.op, key.shape, key.direction), False),
    (lambda key, _: (key.op, key.layer, key.direction), False),
    (lambda key, _: (key.op, key.direction), True),
)


def match(before: Occurrences, after: Occurrences) -> tuple[Ints, Ints]:
    """For each occurrence before: the row after, -1 removed; and the pass that matched it (EXACT, ...), -1 none."""
    partner, how = np.full(len(before), -1, np.int64), np.full(len(before), -1, np.int64)
    left, right = list(range(len(before))), list(range(len(after)))
    for number, (name, as_many) in enumerate(_PASSES):
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for row in right:
            waiting[name(after.keys[after.key[row]], int(after.nth[row]))].append(row)
        wanted: dict[Hashable, list[int]] = defaultdict(list)
        for row in left:
            wanted[name(before.keys[before.key[row]], int(before.nth[row]))].append(row)
        for key, rows in wanted.items():
            others = waiting.get(key, [])
            if as_many and len(rows) != len(others):
                continue
            for one, other in zip(rows, others, strict=False):
                partner[one], how[one] = other, number
        taken = set(partner.tolist())
        left, right = [row for row in left if partner[row] < 0], [row for row in right if row not in taken]
    return partner, how
