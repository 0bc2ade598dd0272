"""Numbers in units that people read, and bars."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.tables.table import Header
from pyprof.tables.units import bar, human
from pyprof.tables.where import _number


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_240_000, "ns", "1.24 ms"), (999_950, "ns", "1.00 ms"), (999_499, "ns", "999 us"), (7, "ns", "7 ns"), (7.0, "ns", "7 ns"),
        (1000, "ns", "1.00 us"), (-12_345, "ns", "-12.3 us"), (0, "ns", "0 ns"), (0.0, "ns", "0 ns"), (0.5, "ns", "0.500 ns"),
        (13_009.0, "us", "13.0 ms"), (123_456_000_000_000, "ns", "123456 s"), (9.3e9, "FLOP", "9.30 GFLOP"), (640, "FLOP", "640 FLOP"),
        (1_234_567, "B", "1.23 MB"), (512, "B", "512 B"), (2**70, "FLOP", "1180592 PFLOP"), (412.3, "GB/s", "412 GB/s"),
        (0.022, "GB/s", "22.0 MB/s"), (1234.5, "GB/s", "1.23 TB/s"), (0.00045, "TFLOP/s", "450 MFLOP/s"),
        (44.44, "%", "44.4 %"), (0.0, "%", "0.0 %"), (99.97, "%", "100 %"), (131.6, "%", "132 %"), (3, "%", "3 %"),
        (12.34, "FLOP/B", "12.3 FLOP/B"), (1_234_567, "ticks", "1234567 ticks"), (1_234_567, "", "1234567"), (0.1234, "", "0.123"), (0.00012, "", "<0.001"),
        (None, "ns", "na"), (float("nan"), "%", "na"), (float("inf"), "GB/s", "inf GB/s"),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(value: float | None, unit: str, text: str) -> None:
    assert human(value, unit) == text


@given(st.integers(-(10**17), 10**17), st.sampled_from(["ns", "us", "B", "FLOP"]))
def test_where_reads_the_text_back_as_nearly_the_number(value: int, unit: str) -> None:
    back = Fraction(_number(human(value, unit), Header("x", "X", "x", unit)))
    assert abs(back - value) <= abs(Fraction(value)) / 200


def test_bars() -> None:
    assert [bar(share, 8) for share in (0, 0.001, 0.1, 0.5, 1, 2, float("nan"))] == [
        "",
        "▏",
        "▊",
        "████",
        *["████████"] * 2,
        "",
    ]
    assert [bar(share, 8, ascii_only=True) for share in (0, 0.001, 0.1, 0.5, 1)] == ["", "#", "#", "####", "########"]
