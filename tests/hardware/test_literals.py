"""What is looked for before a regex is compiled is in every text that it matches."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.hardware.devices import load
from pyprof.hardware.kernels import rules
from pyprof.hardware.names import may_match

REGEXES = [*(rule.regex for rule in rules()), *(names for _, names in load())]


@given(st.data())
def test_a_text_that_a_regex_matches_may_match(data: st.DataObject) -> None:
    regex = data.draw(st.sampled_from(REGEXES))
    assert may_match(regex, data.draw(st.from_regex(regex)))


def test_no_regex_of_the_tables_has_a_flag_that_its_literals_ignore() -> None:
    assert not [regex for regex in REGEXES if re.search(r"\(\?[aiLmsux]", regex)]


@pytest.mark.parametrize(
    ("regex", "text", "may"),
    [
        ("^Memcpy|^CopyHost", "Memset", False),
        ("^Memcpy|^CopyHost", "CopyHostToDevice", True),
        (r"V100-(?:SXM[23]|DGXS)-\d+GB.*", "Tesla V100-PCIE-16GB", True),  # what groups hold is not looked at
        (r"V100-(?:SXM[23]|DGXS)-\d+GB.*", "A100", False),
        (r"x?\d+", "nothing", True),  # no literal
    ],
)
def test_literals_of_alternatives(regex: str, text: str, may: bool) -> None:
    assert may_match(regex, text) == may
