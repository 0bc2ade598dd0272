"""Units and numbers as Nsight Compute spells them."""

from __future__ import annotations

import pytest

from pyprof.errors import InputError
from pyprof.parse.sources.measured.launches import decimal_mark, number, scale


@pytest.mark.parametrize(
    ("unit", "power", "base"),
    [
        ("byte", 0, "byte"),
        ("Kbyte", 3, "byte"),
        ("Mbyte", 6, "byte"),
        ("Gbyte", 9, "byte"),
        ("MB", 6, "byte"),
        ("nsecond", 0, "ns"),
        ("usecond", 3, "ns"),
        ("msecond", 6, "ns"),
        ("second", 9, "ns"),
        ("ns", 0, "ns"),
        ("us", 3, "ns"),
        ("ms", 6, "ns"),
        ("s", 9, "ns"),
        ("Gbyte/second", 9, "byte/s"),
        ("Gbyte/s", 9, "byte/s"),
        ("byte/nsecond", 9, "byte/s"),
        ("cycle/nsecond", 9, "cycle/s"),
        ("Ghz", 9, "hz"),
        ("inst/cycle", 0, "inst/cycle"),
        ("Kbyte/block", 3, "byte/block"),
        ("register/thread", 0, "register/thread"),
        ("%", 0, "%"),
        ("", 0, ""),
        ("furlong", 0, "furlong"),
    ],
)
def test_units(unit: str, power: int, base: str) -> None:
    assert scale(unit) == (power, base)


@pytest.mark.parametrize(
    ("texts", "mark"),
    [
        (["1,275,068,416", "6.75"], "."),
        (["27.595.520", "65,77"], ","),
        (["1,234"], "."),  # could be either
        (["1.234", "5,5"], ","),
        (["13485.123"], "."),
        (["0,125"], ","),
        (["1.234.567,5"], ","),
        (["1 234,5"], ","),
        (["12.4.1", "6,5"], ","),  # a version shows nothing
        (["n/a", "", "abc,def"], "."),
    ],
)
def test_the_decimal_mark_is_the_files(texts: list[str], mark: str) -> None:
    assert decimal_mark(texts) == mark


def test_two_locales_in_one_file_are_refused() -> None:
    with pytest.raises(InputError, match="decimal points and decimal commas"):
        decimal_mark(["6.75", "6,75"])


@pytest.mark.parametrize(
    ("text", "mark", "power", "value"),
    [
        ("2.33", ".", 6, 2_330_000.0),  # not 2329999.9999999995
        ("1,275,068,416", ".", 0, 1_275_068_416.0),
        ("27.595.520", ",", 0, 27_595_520.0),
        ("65,77", ",", 0, 65.77),
        ("1'048'576", ".", 0, 1_048_576.0),
        ("1\u202f048\u202f576,5", ",", 0, 1_048_576.5),
        ("-1.5e3", ".", 0, -1500.0),
        ("n/a", ".", 0, None),
        ("", ".", 0, None),
        ("(1, 2)", ".", 0, None),
        ("inf", ".", 0, None),
    ],
)
def test_numbers(text: str, mark: str, power: int, value: float | None) -> None:
    assert number(text, mark, power) == value
