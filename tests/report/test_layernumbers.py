"""Numbers of layers are left out as one search over the whole path leaves them out."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pyprof.report.advice.base import IN_NAME, IN_PART, without_numbers

PATHS = st.text("ab12._:", max_size=20)


def test_lists_and_classes() -> None:
    assert without_numbers("blocks.3.attn", IN_NAME) == "blocks.*.attn"
    assert without_numbers("ViT_0.Linear_12:mm", IN_PART) == "ViT_*.Linear_*:mm"
    assert without_numbers("conv2d.x4", IN_NAME) == "conv2d.x4"


@given(PATHS)
def test_parts_are_as_the_whole(path: str) -> None:
    assert without_numbers(path, IN_PART) == re.sub(r"(?<=[._])\d+(?=[.:]|$)|^\d+(?=[.:]|$)", "*", path)
    assert without_numbers(path, IN_NAME) == re.sub(r"(?:(?<=[._])|^)\d+(?=[._]|$)", "*", path)
