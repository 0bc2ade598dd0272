"""`--where` -> the matching rows: `sil>50us,op=*mm,layer=*.attn.*,flops>=1e9,dir!=bprop`.

Texts are compared exactly; `*` and `?` match if no value equals the text itself. A number may have a unit or a prefix (50us,
1.5MB, 2G). Unknown equals `na` and meets no other comparison.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from pyprof.columns.types import Bools, Ints
from pyprof.errors import UsageError
from pyprof.messages import tell
from pyprof.tables.table import SAME, Fractions, Header, Integers, Source, Values, choose, coded
from pyprof.tables.units import PREFIXES

_HINT = "for example --where 'op=linear,sil>50us,layer=*.attn.*'"
_OPERATOR = r"(!=|>=|<=|=|>|<)"
_ORDER: dict[str, Callable[[Any, Any], Any]] = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_LARGEST = Fraction(sys.float_info.max)
_UNIT = re.compile(r"([numkKMGTP]?)(i?)(s|B|FLOPs?|B/s|FLOP/s|%|)")
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*([^\d\s]\S*)?")


class Condition(NamedTuple):
    """A column, an operator (= != > >= < <=) and the value to compare with."""

    header: Header
    operator: str
    value: str


def conditions(text: str, headers: Sequence[Header], aliases: Mapping[str, str]) -> list[Condition]:
    """Parse a comma-separated list. Values may contain commas: one ends a value only if a column and an operator follow.

    Raises UsageError for anything that is no condition, and for an unknown column.
    """
    # Keys of one letter (m, n, k) are case-sensitive, since params contain `M=64,N=8`.
    keys = sorted((*(header.key for header in headers), *aliases, *SAME), key=len, reverse=True)
    long, short = ("|".join(re.escape(key) for key in keys if (len(key) > 1) == wanted) for wanted in (True, False))
    found = []
    for part in re.split(rf",(?=\s*(?:(?i:{long})|{short or '(?!)'})\s*{_OPERATOR.replace('(', '(?:')})", text):
        condition = re.fullmatch(rf"\s*(\w[^=!<>]*?)\s*{_OPERATOR}(.*)", part, re.DOTALL)
        if condition is None:
            raise UsageError(f"--where takes conditions, not {part!r}", _HINT)
        found.append(Condition(choose(condition[1], headers, aliases)[0], condition[2], condition[3].strip()))
    return found


def matching(source: Source, rows: Ints, wanted: Sequence[Condition]) -> Ints:
    """The rows that meet every condition.

    Raises UsageError for a bad number or unit, for < or > on texts, and for a value that no row has and that contains a stray
    comma or comparison.
    """
    for condition in wanted:
        values = source.of(condition.header.key)
        kept = rows[_holds(condition, values)[rows]]
        if condition.operator == "=" and not len(kept) and len(rows):
            _explain(condition, values, source)
        rows = kept
    return rows


def _holds(condition: Condition, values: Values) -> Bools:
    header, sign, value = condition
    if sign in _ORDER:
        if not isinstance(values, (Integers, Fractions)):
            raise UsageError(
                f"--where: {header.key} is text, which {sign} cannot compare",
                f"use {header.key}=... or !=; --where filters rows before grouping, not groups",
            )
        return np.asarray(_ORDER[sign](values.values, _number(value, header)) & ~values.unknown, np.bool_)
    equal = _equal(header, values, value)
    return equal if sign == "=" else ~equal


def _equal(header: Header, values: Values, value: str) -> Bools:
    """Mask of the rows that print this text, match it, or have this number."""
    codes, pool = coded(header.shown(values))
    texts = [*pool, "na"]
    among = np.array([text == value for text in texts], np.bool_)
    if not among.any():
        if isinstance(values, (Integers, Fractions)):
            return np.asarray((values.values == _number(value, header)) & ~values.unknown, np.bool_)
        if "*" in value or "?" in value:
            glob = re.compile(translate(value.replace("[", "[[]")))  # in time that many `*` do not multiply
            among = np.array([glob.match(text) is not None for text in texts], np.bool_)
    return among[codes]


def _number(text: str, header: Header) -> int | float:
    """Parse a number into the unit of the column."""
    found = _NUMBER.fullmatch(text.strip())
    scale = _scale(found[2] or "", header.unit) if found is not None else None
    if found is None or scale is None:
        unit = f" with a unit such as {header.unit}" if header.unit else ""
        raise UsageError(f"--where: {header.key} is compared with a number{unit}, not {text!r}", _HINT)
    number = Fraction(found[1]) * scale
    if abs(number) > _LARGEST:  # beyond every float
        return math.inf if number > 0 else -math.inf
    return number.numerator if number.denominator == 1 else float(number)


def _scale(unit: str, of: str) -> Fraction | None:
    """Factor from this unit to the column's, None if they measure different things."""
    if unit in ("", of):
        return Fraction(1)
    given, own = _UNIT.fullmatch(unit), _UNIT.fullmatch(of)
    if given is None or own is None or given[3].rstrip("s") not in ("", own[3].rstrip("s")) or (given[2] and not given[1]):
        return None
    if "s" in (given[3], own[3]) and given[3] != own[3]:  # `m` alone would be milli, of seconds only
        return None
    return _size(given) / _size(own)


def _size(unit: re.Match[str]) -> Fraction:
    power = PREFIXES[unit[1].replace("K", "k")]
    return Fraction(1024) ** (power // 3) if unit[2] else Fraction(10) ** power


def _explain(condition: Condition, values: Values, source: Source) -> None:
    """No row is left: reject a misspelt condition, else suggest what was meant."""
    header, _, value = condition
    texts = coded(header.shown(values))[1]
    if value in texts:
        return
    for key in re.findall(rf",\s*(\w+)\s*{_OPERATOR}", value):
        choose(key[0], source.headers)
    for character in ",<>=!":
        if character in value and not any(character in text for text in texts):
            raise UsageError(f"--where: no {header.key} holds {character!r}, as {value[:80]!r} does", _HINT)
    near = difflib.get_close_matches(value[:80], [text for text in texts if len(text) <= 80][:1000], 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    tell(f"note: no row has {header.key} {value!r}{meant}")
