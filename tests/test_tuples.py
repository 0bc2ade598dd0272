"""Named tuples that are declared as classes behave as those of `typing` do."""

from __future__ import annotations

import pickle
import typing

import pytest

from pyprof.tuples import NamedTuple


class Point(NamedTuple):
    """A place on a plane."""

    x: int
    y: int = 2

    @property
    def sum(self) -> int:
        """Both together."""
        return self.x + self.y

    @classmethod
    def on_axis(cls, x: int) -> Point:
        """One on the axis."""
        return cls(x, 0)

    def __str__(self) -> str:
        return f"<{self.x} {self.y}>"


class Plain(typing.NamedTuple):
    """The same by `typing`."""

    x: int
    y: int = 2


def test_fields_defaults_and_methods() -> None:
    point = Point(1)
    assert point == (1, 2) == (point.x, point.y) and point.sum == 3
    assert Point.on_axis(5) == Point(x=5, y=0)
    assert str(point) == "<1 2>" and repr(point) == "Point(x=1, y=2)"
    assert point._replace(y=7)._asdict() == {"x": 1, "y": 7}
    assert isinstance(point, Point) and isinstance(point, tuple) and {point: "found"}[Point(1, 2)] == "found"


def test_what_can_be_asked_of_the_class_is_what_typing_says() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__", "__bases__"):
        assert getattr(Point, name) == getattr(Plain, name)
    assert typing.get_type_hints(Point) == typing.get_type_hints(Plain) == {"x": int, "y": int}
    assert Point.__doc__ == "A place on a plane." and Point.__qualname__ == "Point" and Point.__module__ == __name__


def test_pickled_ones_come_back() -> None:
    assert pickle.loads(pickle.dumps(Point(3))) == Point(3)


def test_wrong_use_fails_as_with_typing() -> None:
    for made in (Point, Plain):
        with pytest.raises(TypeError):
            made()
        with pytest.raises(AttributeError):
            made(1).x = 2  # type: ignore[misc]


def test_a_default_before_a_field_without_one_is_refused() -> None:
    with pytest.raises(TypeError, match="Wrong: a field without a default"):

        class Wrong(NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]
