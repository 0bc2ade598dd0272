"""Text that is not quite JSON, as torch and Kineto wrote it at times -> the intended values.

Control characters, bare nan and inf, stray backslashes and commas, quotes in names, bytes that are not UTF-8. Knows nothing of
what an event means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal

# Kineto wrote names without escaping the quotes in them until July 2026: a record_function with JSON in its name, a frame of
# generated code. A name has a line of its own (today), or ends before `, "pid":` (until 2025), perhaps some lines later.
_NAME_LINE = rb'(?m)^[ \t\r]*"name": "(?P<text>[^\n]*)(?=",?[ \r]*$)'
_NAME_BEGIN, _NAME_END = b'"name": "', re.compile(rb'",\s*"pid": ')
_BARE_QUOTE = rb'(?<!\\)"'
_OTHER_KEY = re.compile(rb'"(?:ph|cat|ts|dur|tid|args)"\s*:')  # in a text that ran past a name that was well written


def requoted(text: bytes) -> bytes:
    """The text with the quotes in names escaped, in one pass over it."""
    for of_lines in (True, False):
        parts, done = [], 0
        spans = (match.span("text") for match in re.finditer(_NAME_LINE, text)) if of_lines else _names_before_pid(text)
        for begin, end in spans:
            name = text[begin:end]
            if b'"' in name and _OTHER_KEY.search(name) is None:
                parts += [text[done:begin], re.sub(_BARE_QUOTE, rb'\\"', name)]
                done = end
        text = b"".join([*parts, text[done:]])
    return text


def _names_before_pid(text: bytes) -> Iterator[tuple[int, int]]:
    """Positions of the names that end before a process's number and before the next name."""
    at, end = 0, 0
    found = text.find(_NAME_BEGIN)
    while found >= 0:
        at = found + len(_NAME_BEGIN)
        # Each end is looked for once, however many names begin before it.
        if end < at:
            match = _NAME_END.search(text, at)
            if match is None:
                return
            end = match.start()
        found = text.find(_NAME_BEGIN, at)
        if found < 0 or end < found:
            yield at, end


# A string is passed over whole, so that what follows is never inside one; one that never ends is the rest of the text.
_ODD = (
    r'(?s)"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
    r"|(?P<number>-?\b(?:nan|NaN|inf|Infinity|INF|NAN)\b)"
    r"|(?P<comma>,)(?=\s*[\]}])"
)
_BAD_ESCAPE = r'\\(?:(?P<good>["\\/bfnrt]|u[0-9a-fA-F]{4})|)'


def _repaired(text: str) -> str:
    """The text without what JSON does not allow; only changes are kept in memory during the pass."""
    parts, done = [], 0
    for match in re.finditer(_ODD, text):
        new = _repair(match)
        if new is not None:
            parts += [text[done : match.start()], new]
            done = match.end()
    return "".join([*parts, text[done:]])


def _repair(match: re.Match[str]) -> str | None:
    """Replacement of something odd; None: it stays."""
    if match["number"]:
        return "null"
    if match["comma"]:
        return ""
    text = match[0]
    return re.sub(_BAD_ESCAPE, lambda m: m[0] if m["good"] else r"\\", text) if "\\" in text else None


def tolerant(text: bytes) -> object:
    """The value of the text, read leniently; None if it cannot be read at all."""
    decoded = text.decode("utf-8", "replace")
    for repair in (False, True):
        try:
            candidate = _repaired(decoded) if repair else decoded
            return json.loads(candidate, strict=False, parse_float=Decimal, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
    return None
