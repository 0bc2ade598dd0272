"""The body of a C++ kernel that TorchInductor generated, as text -> what it reads and writes through each pointer, and how far.

No buffers, no modules, nothing is run.
"""

from __future__ import annotations

import re

from pyprof.report.compiled.triton_source import Accesses

__all__ = ["ALIAS", "WORD", "closing", "cpp_accesses", "loop_of"]

ALIAS = re.compile(r"\bauto\s+(\w+)\s*=\s*(\w+)\s*;")
_FOR = re.compile(r"\bfor\s*\(")
_LENGTH = re.compile(r"(?:static_cast<\w+>\()?\s*(\d+)L*\s*\)?")
WORD = re.compile(r"[A-Za-z_]\w*")
_SECOND_WRITTEN = re.compile(r"transpose_mxn")  # (source, ld, destination, ld)


def cpp_accesses(body: str, names: set[str]) -> dict[str, Accesses]:
    """What the body does with each pointer, in the order of the text, which is that of execution."""
    same = {name: name for name in names}
    same |= {new: old for new, old in ALIAS.findall(body) if old in names}
    if not same:
        return {}
    result: dict[str, Accesses] = {name: Accesses() for name in names}
    token = re.compile(rf"{_FOR.pattern}|[{{}}]|\b(?:{'|'.join(map(re.escape, same))})\b")
    scopes: list[dict[str, int | None]] = []
    waiting: dict[str, int | None] = {}
    position = 0
    while (found := token.search(body, position)) is not None:
        position, text = found.end(), found[0]
        if text == "{":
            scopes.append(waiting)
            waiting = {}
        elif text == "}":
            scopes = scopes[:-1]
        elif text in same:
            loops = {name: length for scope in scopes for name, length in scope.items()}
            _cpp_access(body, found.start(), found.end(), result[same[text]], loops)
        else:
            position = closing(body, found.end() - 1) + 1
            waiting |= loop_of(body[found.end() : position - 1])
    return result


def closing(text: str, at: int) -> int:
    """Where the bracket at this place is closed; the end of the text where it is not."""
    opening, closing = text[at], {"(": ")", "[": "]"}[text[at]]
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if not depth:
            return place
    return len(text)


def loop_of(header: str) -> dict[str, int | None]:
    """The variable of a loop and how many values it takes; loops over the lanes of a vector say nothing new."""
    parts = header.split(";")
    begin = re.search(r"(\w+)\s*=\s*(.+)", parts[0])
    if len(parts) != 3 or begin is None or begin[1].endswith(("_inner", "_tail")):
        return {}
    lower, upper = _LENGTH.fullmatch(begin[2].strip()), re.fullmatch(r"\s*\w+\s*<\s*(.+?)\s*", parts[1])
    until = _LENGTH.fullmatch(upper[1]) if upper else None
    return {begin[1]: max(int(until[1]) - int(lower[1]), 0) if lower and until else None}


def _cpp_access(body: str, start: int, end: int, result: Accesses, loops: dict[str, int | None]) -> None:
    """Note the use of a pointer's name at body[start:end]."""
    rest = body[end : end + 1]
    before = body[max(start - 400, 0) : start].rstrip()
    if rest == "[":
        close = closing(body, end)
        index, after = body[end + 1 : close], body[close + 1 : close + 4].lstrip()
        if re.search(r"atomic_\w+\s*\(\s*&$", before):
            reads, writes = True, True
        else:
            writes = bool(re.match(r"[-+*/|&^]?=(?!=)", after))
            reads = not writes or after[:1] != "="
    elif (call := _enclosing_call(before)) is not None:
        function, number = call
        index = _argument(body, end)
        if "atomic" in function:
            reads, writes = True, True
        elif _SECOND_WRITTEN.search(function):
            reads, writes = number == 0, number > 0
        else:
            writes = function.endswith(".store") or "store" in function.rpartition("::")[2]
            reads = not writes
            result.known &= writes or "load" in function
    else:
        return  # the definition of another name for it
    result.note(reads, writes, index, _span(index, loops))


def _enclosing_call(before: str) -> tuple[str, int] | None:
    """Of the call whose argument begins where a text ends: its function and how many arguments stand before."""
    depth = number = 0
    for place in range(len(before) - 1, -1, -1):
        character = before[place]
        if character in ")]}":
            depth += 1
        elif character in "([{":
            if not depth:
                function = re.search(r"[\w:.<>, ()]*$", before[:place])
                return (function[0].strip() if function else ""), number
            depth -= 1
        elif character == "," and not depth:
            number += 1
        elif character in ";=" and not depth:
            return None
    return None


def _argument(body: str, at: int) -> str:
    """The text from here to the end of the argument."""
    depth = 0
    for place in range(at, len(body)):
        character = body[place]
        if character in "([":
            depth += 1
        elif character in ")]":
            if not depth:
                return body[at:place]
            depth -= 1
        elif character in ",;" and not depth:
            return body[at:place]
    return body[at:]


def _span(index: str, loops: dict[str, int | None]) -> int | None:
    """How many values an index takes at most over the loops around it; one that was itself loaded as many as there are runs."""
    words = {word.removesuffix("_inner").removesuffix("_tail") for word in WORD.findall(index)}
    indirect = any(word.startswith("tmp") for word in words)
    count = 1
    for name, length in loops.items():
        if indirect or name in words:
            if length is None:
                return None
            count *= length
    return count
