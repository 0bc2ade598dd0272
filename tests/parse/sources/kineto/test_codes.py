"""pyprof.parse.sources.kineto.codes: the same numbers, whichever process met a thing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.sources.kineto.codes import Codes, Numbering

BLOCKS = st.lists(st.tuples(st.integers(0, 2), st.lists(st.sampled_from("abcdefgh"), max_size=6)), max_size=8)


@given(BLOCKS, st.sampled_from([1, 2]))
def test_things_are_numbered_as_blocks_refer_to_them(blocks: list[tuple[int, list[str]]], variants: int) -> None:
    """Of each block which of three processes read it, and what it has."""
    known: dict[tuple[str, int], int] = {}

    def number(key: str, variant: int) -> int:
        return known.setdefault((key, variant), len(known))

    codes = [Codes[str]() for _ in range(3)]
    numberings = [Numbering(number, variants) for _ in range(3)]
    found = []
    for process, keys in blocks:
        own = codes[process].of(keys, len(keys)) * variants + np.arange(len(keys)) % variants
        numberings[process].met(codes[process].new())
        found += numberings[process].of(own.astype(np.int32)).tolist()
    expected: dict[tuple[str, int], int] = {}
    for _, keys in blocks:
        for at, key in enumerate(keys):
            expected.setdefault((key, at % variants), len(expected))
    assert found == [expected[key, at % variants] for _, keys in blocks for at, key in enumerate(keys)]


def test_none_stays_none() -> None:
    numbering = Numbering[str](lambda key, _: ord(key))
    assert numbering.of(np.array([-1, -1])).tolist() == [-1, -1]
    numbering.met(["a", "b"])
    assert numbering.of(np.array([1, -1, 0, 1])).tolist() == [98, -1, 97, 98]
