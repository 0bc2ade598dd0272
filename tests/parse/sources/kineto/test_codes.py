"""pyprof.parse.sources.kineto.codes: numbers in the order in which blocks refer to things."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.sources.kineto.codes import Codes, Numbering

BLOCKS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6), max_size=8)


@given(BLOCKS, st.sampled_from([1, 2]))
def test_things_are_numbered_as_blocks_refer_to_them(blocks: list[list[str]], variants: int) -> None:
    known: dict[tuple[str, int], int] = {}

    def number(key: str, variant: int) -> int:
        return known.setdefault((key, variant), len(known))

    codes, numbering, found = Codes[str](), Numbering(number, variants), []
    for keys in blocks:
        own = codes.of(keys, len(keys)) * variants + np.arange(len(keys)) % variants
        numbering.met(codes.new())
        found += numbering.of(own.astype(np.int32)).tolist()
    expected: dict[tuple[str, int], int] = {}
    for keys in blocks:
        for at, key in enumerate(keys):
            expected.setdefault((key, at % variants), len(expected))
    assert found == [expected[key, at % variants] for keys in blocks for at, key in enumerate(keys)]


def test_none_stays_none() -> None:
    numbering = Numbering[str](lambda key, _: ord(key))
    assert numbering.of(np.array([-1, -1])).tolist() == [-1, -1]
    numbering.met(["a", "b"])
    assert numbering.of(np.array([1, -1, 0, 1])).tolist() == [98, -1, 97, 98]
