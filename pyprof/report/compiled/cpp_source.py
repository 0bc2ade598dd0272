"""The body of a C++ kernel that TorchInductor generated, as text -> what it does with each pointer and how far indices go.

Knows no buffers and no modules; nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from pyprof.report.compiled.flow import Accesses, product

__all__ = ["ALIAS", "FOR", "WORD", "Loops", "arguments", "closing", "cpp_accesses", "index_words", "loop_of"]

Loops = dict[str, int | None]  # the variable of each loop, and how many values it takes (None: unknown)
ALIAS = re.compile(r"\bauto\s+(\w+)\s*=\s*(\w+)\s*;")
FOR = re.compile(r"\bfor\s*\(")
WORD = re.compile(r"[A-Za-z_]\w*")
_LENGTH = re.compile(r"(?:static_cast<\w+>\()?\s*(\d+)L*\s*\)?")
_TRANSPOSE = re.compile(r"transpose_mxn")  # (source, ld, destination, ld)


def cpp_accesses(body: str, names: set[str]) -> dict[str, Accesses]:
    """What the body does with each pointer, in the order of the text, which is that of execution."""
    pointer_of = {name: name for name in names}
    pointer_of |= {new: old for new, old in ALIAS.findall(body) if old in names}
    if not pointer_of:
        return {}
    result: dict[str, Accesses] = {name: Accesses() for name in names}
    token = re.compile(rf"{FOR.pattern}|[{{}}]|\b(?:{'|'.join(map(re.escape, pointer_of))})\b")
    scopes: list[Loops] = []
    header: Loops = {}
    position = 0
    while (found := token.search(body, position)) is not None:
        position, text = found.end(), found[0]
        if text == "{":
            scopes.append(header)
            header = {}
        elif text == "}":
            scopes = scopes[:-1]
        elif text in pointer_of:
            loops = {name: length for scope in scopes for name, length in scope.items()}
            _note_access(body, found.span(), result[pointer_of[text]], loops)
        else:
            position = closing(body, found.end() - 1) + 1
            header |= loop_of(body[found.end() : position - 1])
    return result


def closing(text: str, at: int) -> int:
    """Where the bracket at this position is closed; the end of the text where it is not."""
    opening, closing = text[at], {"(": ")", "[": "]"}[text[at]]
    depth = 0
    for position in range(at, len(text)):
        depth += (text[position] == opening) - (text[position] == closing)
        if not depth:
            return position
    return len(text)


def _outside_brackets(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """(position, character) of what no bracket encloses, up to the bracket that encloses the start, which comes last."""
    depth = 0
    for position in range(start, len(text)):
        character = text[position]
        depth += character in "(["
        if not depth:
            yield position, character
        depth -= character in ")]"
        if depth < 0:
            return


def arguments(text: str) -> list[str]:
    """What commas outside of brackets separate."""
    cuts = [-1, *(at for at, character in _outside_brackets(text) if character == ","), len(text)]
    return [text[begin + 1 : end] for begin, end in pairwise(cuts)]


def loop_of(header: str) -> Loops:
    """The variable of a loop and how many values it takes; loops over the lanes of a vector add nothing."""
    parts = header.split(";")
    begin = re.search(r"(\w+)\s*=\s*(.+)", parts[0])
    if len(parts) != 3 or begin is None or begin[1].endswith(("_inner", "_tail")):
        return {}
    lower, upper = _LENGTH.fullmatch(begin[2].strip()), re.fullmatch(r"\s*\w+\s*<\s*(.+?)\s*", parts[1])
    until = _LENGTH.fullmatch(upper[1]) if upper else None
    return {begin[1]: max(int(until[1]) - int(lower[1]), 0) if lower and until else None}


def index_words(index: str) -> set[str]:
    """The names in an index; the lanes of a vector count as the loop over vectors."""
    return {word.removesuffix("_inner").removesuffix("_tail") for word in WORD.findall(index)}


def _note_access(body: str, span: tuple[int, int], result: Accesses, loops: Loops) -> None:
    """Record the use of a pointer whose name is at body[slice(*span)]."""
    start, end = span
    before = body[max(start - 400, 0) : start].rstrip()
    if body[end : end + 1] == "[":
        close = closing(body, end)
        index, after = body[end + 1 : close], body[close + 1 : close + 4].lstrip()
        reads = writes = True
        if not re.search(r"atomic_\w+\s*\(\s*&$", before):
            writes = bool(re.match(r"[-+*/|&^]?=(?!=)", after))
            reads = not writes or after[:1] != "="
    elif (call := _enclosing_call(before)) is not None:
        function, number = call
        index = body[end : next((at for at, character in _outside_brackets(body, end) if character in ",;)]"), len(body))]
        if "atomic" in function:
            reads = writes = True
        elif _TRANSPOSE.search(function):
            reads, writes = number == 0, number > 0
        else:
            writes = function.endswith(".store") or "store" in function.rpartition("::")[2]
            reads = not writes
            result.known &= writes or "load" in function
    else:
        return  # the definition of another name for it
    result.note(reads, writes, index, _span(index, loops))


def _enclosing_call(before: str) -> tuple[str, int] | None:
    """Of the call whose argument begins where a text ends: its function and the number of arguments before."""
    depth = number = 0
    for position in range(len(before) - 1, -1, -1):
        character = before[position]
        if character in ")]}":
            depth += 1
        elif character in "([{":
            if not depth:
                function = re.search(r"[\w:.<>, ()]*$", before[:position])
                return (function[0].strip() if function else ""), number
            depth -= 1
        elif character == "," and not depth:
            number += 1
        elif character in ";=" and not depth:
            return None
    return None


def _span(index: str, loops: Loops) -> int | None:
    """How many values an index takes at most over the loops around it; an index that was loaded takes at most one a run."""
    words = index_words(index)
    indirect = any(word.startswith("tmp") for word in words)
    return product(length for name, length in loops.items() if indirect or name in words)
