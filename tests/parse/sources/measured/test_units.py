"""Units and numbers as Nsight Compute spells them."""

from collections.abc import Sequence

import numpy as np
import pytest

from pyprof.errors import InputError
from pyprof.parse.sources.measured.launches import Builder, Launch, Numbers, number, scale

# base unit: power of ten -> how it is spelled
UNITS = {
    "byte": {0: "byte", 3: "Kbyte", 6: "Mbyte MB", 9: "Gbyte"},
    "ns": {0: "nsecond ns", 3: "usecond us \u00b5s", 6: "msecond ms", 9: "second s"},
    "byte/s": {9: "Gbyte/second Gbyte/s byte/nsecond"},
    "cycle/s": {9: "cycle/nsecond"},
    "hz": {9: "Ghz"},
    "byte/block": {3: "Kbyte/block"},
    **{unit: {0: unit} for unit in ("inst/cycle", "register/thread", "%", "furlong")},
}


@pytest.mark.parametrize("base", UNITS)
def test_units(base: str) -> None:
    for power, spelled in UNITS[base].items():
        assert [scale(unit) for unit in spelled.split()] == [(power, base)] * len(spelled.split())
    assert scale("") == (0, "")


def numbers(texts: Sequence[str]) -> list[float | None]:
    """What a file with these numbers, one a launch, holds."""
    builder = Builder()
    reader = Numbers(builder, "net.csv")
    for text in texts:
        reader.put(builder.launch(Launch("k")), "x", text, 0)
    reader.finish()
    return [None if np.isnan(value) else value for value in builder.built("ncu", {}).of("x").tolist()]


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1,275,068,416", "6.75"], [1_275_068_416, 6.75]),
        (["27.595.520", "65,77"], [27_595_520, 65.77]),
        (["1,234"], [1234]),  # could be either
        (["1.234"], [1.234]),
        (["1.234", "5", "5,5"], [1234, 5, 5.5]),
        (["1,234", "5.5"], [1234, 5.5]),
        (["13485.123"], [13485.123]),
        (["0,125"], [0.125]),
        (["1.234.567,5"], [1_234_567.5]),
        (["1 234,5", "1\ufffd234"], [1234.5, 1234]),
        (["12.4.1", "6,5"], [None, 6.5]),  # a version shows nothing
        (["n/a", "", "abc,def"], [None, None, None]),
        (["9707.36 (0; 0; 1,5)", "(0; 1)"], [9707.36, None]),  # --print-metric-instances
    ],
)
def test_the_decimal_mark_is_the_files(texts: list[str], values: list[float | None]) -> None:
    assert numbers(texts) == values


@pytest.mark.parametrize("texts", [["6.75", "6,75"], ["6,75", "6.75"], ["1.5", "27.595.520"]])
def test_two_locales_in_one_file_are_refused(texts: list[str]) -> None:
    with pytest.raises(InputError, match="decimal points and decimal commas"):
        numbers(texts)


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
        ("1e400", ".", 0, None),
    ],
)
def test_numbers(text: str, mark: str, power: int, value: float | None) -> None:
    assert number(text, mark, power) == value
