"""pyprof.model.host: names of ranges that are opened again and again."""

import pytest

from pyprof.model.host import without_number


@pytest.mark.parametrize(
    ("name", "stem"),
    [("IO 3", "IO"), ("iter_12", "iter"), ("step#7", "step"), ("42", "42"), ("fc2.weight", "fc2.weight"), ("_ 1", "_ 1")],
)
def test_a_number_at_the_end(name: str, stem: str) -> None:
    assert without_number(name) == stem


def test_long_rows_of_digits_and_blanks_take_linear_time() -> None:
    for name in ("1" * 3_000_000 + "x", " " * 3_000_000 + "x", "x" + " " * 3_000_000 + "1"):
        assert without_number(name) == ("x" if name.endswith("1") else name)
