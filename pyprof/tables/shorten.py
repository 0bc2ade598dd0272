"""Texts of a column -> texts of limited width; different texts stay different.

The part that many share is left out: `model.encoder.layers.3.attn.qkv` and `model.encoder.layers.11.attn.qkv` become
`mode…ayers.3.attn.qkv` and `mode…yers.11.attn.qkv`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

_LEAST = 4  # characters of a text that is cut: below, nothing is recognised
_HEADS = (2, 4, 3, 1)  # sixths of a cut text that are its beginning, the best first: ends say more than beginnings
_MANY = 2_000  # distinct texts, above which only the ends of texts are looked at


def shortened(texts: Iterable[str], width: int, gap: str = "…") -> dict[str, str]:
    """Map each text to a text of at most `width` characters; gap: marks an omission.

    Distinct texts stay distinct if the width allows it, if need be by a number after `~`.
    """
    distinct = list(dict.fromkeys(texts))
    found = {text: text for text in distinct if len(text) <= width}
    long = [text for text in distinct if len(text) > width]
    if not long:
        return found
    if width < _LEAST:
        return found | {text: text[:width] for text in long}
    return _told_apart(found, found | _cut(long, width, gap), width, gap)


def enough(texts: Iterable[str], least: int, gap: str = "…") -> int:
    """Smallest width, at least `least`, at which distinct texts stay distinct without appended numbers."""
    distinct = list(dict.fromkeys(texts))
    low, high = least, max(map(len, distinct), default=least)
    if len(distinct) > _MANY or high <= low:
        return max(low, min(high, 40))
    while low < high:  # nearly monotone, and where it is not, a little more room is no loss
        middle = (low + high) // 2
        cut = _cut([text for text in distinct if len(text) > middle], middle, gap)
        apart = len({*cut.values(), *(text for text in distinct if len(text) <= middle)}) == len(distinct)
        low, high = (low, middle) if apart and middle >= _LEAST else (middle + 1, high)
    return low


def _cut(texts: Sequence[str], width: int, gap: str) -> dict[str, str]:
    """Cut out what all share, else the middle; texts that are then equal are cut around their differences."""
    if len(texts) == 1:
        return {texts[0]: _middle(texts[0], width, 3, gap)}
    if (shared := _around(texts, width, gap)) is not None:
        return shared
    best: dict[str, str] = {}
    for sixths in _HEADS:
        made = {text: _middle(text, width, sixths, gap) for text in texts}
        if len(set(made.values())) > len(set(best.values())):
            best = made
    alike = defaultdict(list)
    for text, short in best.items():
        alike[short].append(text)
    for group in alike.values():
        if 1 < len(group) <= _MANY:
            best |= _around(group, width, gap) or _around(group, width, gap, cut=True) or {}
    return best


def _middle(text: str, width: int, sixths: int, gap: str) -> str:
    """A text without its middle; sixths: how much of the kept part is the beginning."""
    if len(text) <= width:
        return text
    kept = width - len(gap)
    head = kept * sixths // 6
    return text[:head] + gap + text[len(text) - (kept - head) :]


def _around(texts: Sequence[str], width: int, gap: str, cut: bool = False) -> dict[str, str] | None:
    """Texts with as much of their common beginning and end as fits; None if their differing parts are too long.

    cut: shorten the differing parts too.
    """
    before = _shared(texts)
    rests = [text[before:] for text in texts]
    after = _shared([rest[::-1] for rest in rests])
    cores = {text: rest[: len(rest) - after] for text, rest in zip(texts, rests, strict=True)}
    end = texts[0][len(texts[0]) - after :] if after else ""
    room = width - 2 * len(gap)
    if max(map(len, cores.values())) > room:
        room -= min(before, _LEAST) if room > 3 * _LEAST else 0
        if not cut or room < _LEAST or not before + after:
            return None
        cores = dict(zip(cores, map(_cut([*cores.values()], room, gap).__getitem__, cores.values()), strict=True))
    return {text: _wrapped(texts[0][:before], core, end, width, gap) for text, core in cores.items()}


def _shared(texts: Sequence[str]) -> int:
    """Length of the common beginning; numbers are not split (124 and 128 do not become 4 and 8)."""
    first, last = min(texts), max(texts)
    alike = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    end = alike
    while end and first[end - 1].isdigit():
        end -= 1
    return end or alike


def _wrapped(begin: str, core: str, end: str, width: int, gap: str) -> str:
    """A core with as much around it as fits: first the whole end if possible, then the beginning."""
    room = width - len(core)
    if len(begin) + len(end) <= room:
        return begin + core + end
    if len(end) > room - len(gap) - min(len(begin), _LEAST):
        kept = max((room - 2 * len(gap)) // 2, 0) if begin else room - len(gap)
        end = gap + end[len(end) - kept :] if kept < len(end) else end
    kept = room - len(end)
    head = _middle(begin, kept, 3 if kept > 2 * _LEAST else 6, gap) if kept > len(gap) else gap[:kept] if begin else ""
    return head + core + end


def _told_apart(whole: dict[str, str], made: dict[str, str], width: int, gap: str) -> dict[str, str]:
    """Append numbers to texts that are still equal to another; whole: texts that were not cut."""
    used = set(whole.values())
    for text, short in made.items():
        if text in whole:
            continue
        number, new = 1, short
        while new in used and number < 10 ** (width - len(gap) - 1):
            number += 1
            mark = f"~{number}"
            new = text[: width - len(mark) - len(gap)] + gap + mark
        used.add(new)
        made[text] = new
    return made
