"""A report's JSON -> what a tool answers: at most so many rows and characters, cut at whole rows, and every text that can come
out of a capture marked. What was left out is counted, and numbers are never changed.

Whoever wrote the program that was recorded chose its names, and a name can look like an instruction. So a language model is
shown them in one line, without invisible characters, shortened, between ⟦ and ⟧, which the text inside cannot hold.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from typing import Any

from pyprof.model.records import PHASES
from pyprof.prof.roofline import BOUNDS
from pyprof.report.advice.kinds import KINDS
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.division import BUSY

OPEN, CLOSE = "⟦", "⟧"
MOST, MOST_OF_SENTENCES = 160, 600  # characters
_INSIDE = str.maketrans({OPEN: "[", CLOSE: "]"})
# Invisible marks after a letter; a row of them can carry hidden text.
_SELECTORS = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), 0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800}
# Words of pyprof itself, which say the same wherever they stand: no name made of one of them is an instruction.
_OURS = {
    *PHASES, *BOUNDS, *BUSY, *CAUSES, *(kind.__module__.rpartition(".")[2] for kind in KINDS),
    "all", "busy", "idle", "fprop", "bprop", "na", "slower", "faster", "noise", "same", "",
}  # fmt: skip
_SENTENCES = ("evidence", "do", "notes", "why")
_WEIGHT = {"advice": 0.3}  # of a list's characters, where one is chosen to be shortened: what matters most loses rows last


def document(found: dict[str, Any], rows: int, characters: int, left_out: dict[str, int] | None = None) -> dict[str, Any]:
    """The answer. left_out: rows that are not in `found` at all, by the list that they were of.

    Lists keep their first rows; where all is too long, the list that takes most room loses its last row, again and again.
    """
    cut = Counter({name: number for name, number in (left_out or {}).items() if number})
    shown: dict[str, Any] = _shown(found, rows, cut)
    shown["left_out"] = dict(cut)
    sizes = {name: [len(text_of(row)) + 2 for row in rows] for name, rows in shown.items() if isinstance(rows, list) and rows}
    while (surplus := len(text_of(shown)) - characters) > 0 and any(sizes.values()):
        while surplus > 0 and any(sizes.values()):
            name = max(sizes, key=lambda one: sum(sizes[one]) * _WEIGHT.get(one, 1))
            surplus -= sizes[name].pop()
            shown[name].pop()
            shown["left_out"][name] = shown["left_out"].get(name, 0) + 1
    return shown


def text_of(found: dict[str, Any]) -> str:
    """The text of an answer."""
    return json.dumps(found, ensure_ascii=False, allow_nan=False)


def _shown(value: Any, rows: int, cut: Counter[str], path: str = "") -> Any:
    """A value with its texts marked and its lists cut; cut: counts what was left out, by path."""
    key = path.rpartition(".")[2]
    if isinstance(value, dict):
        return {visible(name)[:MOST]: _shown(one, rows, cut, f"{path}.{name}".lstrip(".")) for name, one in value.items()}
    if isinstance(value, list):
        if len(value) > rows:
            cut[path] += len(value) - rows
        return [_shown(one, rows, cut, path) for one in value[:rows]]
    if not isinstance(value, str) or value in _OURS:
        return value
    return marked(value, MOST_OF_SENTENCES if key in _SENTENCES else MOST)


def visible(text: str) -> str:
    """One line without control, bidirectional, zero-width and other invisible characters."""
    spaced = "".join(" " if character.isspace() else character for character in text)
    shown = (c for c in spaced if unicodedata.category(c)[0] != "C" and ord(c) not in _SELECTORS)
    return " ".join("".join(shown).split())


def marked(text: str, most: int = MOST) -> str:
    """The text as it is shown: between the marks, at most `most` characters of it."""
    shown = visible(text[: 8 * most]).translate(_INSIDE)
    return f"{OPEN}{shown if len(shown) <= most else shown[: most - 1] + '…'}{CLOSE}"


def bare(text: str) -> str:
    """The text without its marks: a client sends it back as it was shown."""
    return text.removeprefix(OPEN).removesuffix(CLOSE)


def is_plain(text: str) -> bool:
    """Whether `marked` shows the text unchanged, so that a client can ask for it by this name."""
    return bare(marked(text)) == text
