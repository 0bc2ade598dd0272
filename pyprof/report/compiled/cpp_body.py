"""The body of a C++ kernel that TorchInductor generated, as text -> what it does with each pointer, and how many operations.

Statements are read in their order, each within the loops around it; main loops and their tails differ in the range that their
`if` tests. Knows no sizes of buffers and no modules; nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from pyprof.report.compiled.flow import Accesses, Flow, Lane, Value, product, weight_of

__all__ = ["CppBody"]

Loops = dict[str, int | None]  # the variable of each loop, and how many values it takes (None: unknown)
_ALIAS = re.compile(r"\bauto\s+(\w+)\s*=\s*(\w+)\s*;")
_FOR = re.compile(r"\bfor\s*\(")
_WORD = re.compile(r"[A-Za-z_]\w*")
_LENGTH = re.compile(r"(?:static_cast<\w+>\()?\s*(\d+)L*\s*\)?")
_IF = re.compile(r"\bif\s*\(")
_RANGE = re.compile(
    r"(?P<name>\w+) >= (?:static_cast<\w+>\()?(?P<low>\d+)L?\)? && (?P=name) < (?:static_cast<\w+>\()?(?P<high>\d+)L?\)?"
)
_ASSIGN = re.compile(r"(?:(?:auto|const|[\w:]+(?:<[^;=]*>)?)\s+)?(?P<name>\w*tmp\w*)\s*=(?!=)\s*(?P<value>.*)", re.DOTALL)
_LAMBDA = re.compile(r"auto\s+(?P<name>\w+)\s*=\s*\[[^\]]*\]\s*(?:\(\s*\))?\s*$")
_STORE = re.compile(r"(?P<value>.*)\.store\s*\(\s*(?P<name>\w+)", re.DOTALL)
_TRANSPOSE = re.compile(r"transpose_mxn\s*<.*?>\s*\((?P<rest>.*)\)\s*$", re.DOTALL)  # (source, ld, destination, ld)
_PUT = re.compile(r"\*?(?P<name>[A-Za-z_]\w*)\s*\[", re.DOTALL)
_ATOMIC = re.compile(r"atomic_\w+(?:<[^;]*?>)?\s*\((?P<rest>.*)\)\s*$", re.DOTALL)
_LOAD = re.compile(
    r"(?:(?:\w+\.template cast<[^()]*>\(\)\s*)?\.template loadu<[^()]*>|\bloadu|\bfrom)\s*(?:<[^()]*>)?"
    r"\((?=[A-Za-z_]\w*\s*(?:\+|\)|\.|,))"
)
_INDEXED = re.compile(r"\b(?P<name>[A-Za-z_]\w*)\[")
_TEMPLATE = re.compile(r"(?<=\w)\s*<[^<>()]*>(?=\s*(?:\(|::|$))")
_FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\(")
_OPERATOR = re.compile(r"(?<=[\w)\]])\s+(?:[-+*/%]|[<>!=]=|<<|>>|[<>&|^]|&&|\|\|)\s+(?=[\w(~!-])")
_TMP = re.compile(r"\b\w*tmp\w*")
_HELPER = re.compile(r"&\s*(\w+)")  # where cascaded sums keep partial results
_TERNARY = re.compile(r"^\s*\(?(?P<condition>[^?]*)\?", re.DOTALL)


@dataclass
class _Scope:
    """A pair of braces. loops: of its header; ranges: of these and loops around, by its `if`; name, held: of a lambda, and what
    flows into it."""

    loops: Loops = field(default_factory=dict)
    ranges: Loops = field(default_factory=dict)
    name: str = ""
    held: list[Value] = field(default_factory=list)


class CppBody:
    """accesses: of each pointer; flow: the operations, after `read` has read the body."""

    def __init__(self, pointers: set[str]) -> None:
        self.accesses = {name: Accesses() for name in pointers}
        self.flow = Flow(lambda lanes: product(lane.length for lane in lanes))
        self._pointer_of = {name: name for name in pointers}  # by all names that the body has for it
        self._scopes: list[_Scope] = []
        self._named: dict[str, Value] = {}  # the values of variables, and of memory by its name

    def read(self, body: str) -> None:
        """Follow all statements."""
        self._pointer_of |= {new: old for new, old in _ALIAS.findall(body) if old in self.accesses}
        for text, end in _chunks(body):
            self._note_accesses(text)
            if end == "{":
                self._scopes.append(self._header(text))
            elif end == ";":
                self._statement(text)
            else:
                if text:
                    self._statement(text)
                if self._scopes and (closed := self._scopes.pop()).name:
                    self._named[closed.name] = Value.of(closed.held)

    @property
    def _loops(self) -> Loops:
        """The loops around a statement, within the ranges that `if` leaves."""
        return {name: length for scope in self._scopes for name, length in (scope.loops | scope.ranges).items()}

    def _note_accesses(self, text: str) -> None:
        """Record the use of each pointer in a statement, by whole loops: their tails touch what main loops leave."""
        loops = {name: length for scope in self._scopes for name, length in scope.loops.items()}
        header = _FOR.search(text)
        start = 0 if header is None else _closing(text, header.end() - 1)
        for found in _WORD.finditer(text, start):
            if found[0] in self._pointer_of:
                _note_access(text, found.span(), self.accesses[self._pointer_of[found[0]]], loops)

    def _header(self, text: str) -> _Scope:
        scope = _Scope()
        if (found := _LAMBDA.search(text)) is not None:
            scope.name = found["name"]
        elif (begin := _FOR.search(text)) is not None:
            scope.loops = _loop_of(text[begin.end() : _closing(text, begin.end() - 1)])
        elif _IF.search(text) is not None:
            loops = self._loops
            for found in _RANGE.finditer(text):
                if found["name"] in loops:
                    scope.ranges[found["name"]] = max(int(found["high"]) - int(found["low"]), 0)
        return scope

    def _statement(self, text: str) -> None:
        within = next((scope.held for scope in reversed(self._scopes) if scope.name), list[Value]())
        if (found := _ASSIGN.fullmatch(text)) is not None:
            self._named[found["name"]] = self._value(found["value"], found["name"])
            within.append(self._named[found["name"]])
        elif (found := _STORE.match(text)) is not None:
            self._write(found["name"], self._value(found["value"]))
        elif (found := _TRANSPOSE.match(text)) is not None:
            ends = [_WORD.findall(part)[:1] for part in _arguments(found["rest"])[:3:2]]
            if len(ends) == 2 and all(ends):
                self._write(ends[1][0], self._load(ends[0][0], found["rest"].partition(",")[0]))
        elif (found := _ATOMIC.match(text)) is not None:
            added = [part for part in _arguments(found["rest"]) if _TMP.search(part)][-1:]  # after address and index
            self.flow.store(self.flow.apply(1, map(self._value, added)))
        elif (found := _PUT.match(text)) is not None:
            value = self._value(text[_closing(text, found.end() - 1) + 1 :].lstrip().lstrip("+-*/|&= "))
            self._write(found["name"], value)
            within.append(value)
        elif text.startswith("return"):
            within.append(self._value(text.removeprefix("return")))

    def _write(self, name: str, value: Value) -> None:
        """Through a pointer of the kernel it is needed; in memory of the kernel's own it waits to be read."""
        if name in self._pointer_of:
            self.flow.store(value)
        else:
            self._merge(name, value)

    def _merge(self, name: str, value: Value) -> None:
        self._named[name] = Value.of([value, self._named.get(name, Value())])

    def _value(self, text: str, target: str = "") -> Value:
        """The value of an expression; all its operations are one step. target: the variable that it is assigned to."""
        text, loaded = self._without_loads(text)
        text = re.sub(r"\[[^\]]*\]\s*\([^)]*\)\s*\{[^}]*\}", "", text)  # a lambda passed to a reduction of a vector
        while (shorter := _TEMPLATE.sub("", text)) != text:
            text = shorter
        used = _TMP.findall(text)
        sums = "tmp_acc" in target
        helpers = _HELPER.findall(text) if sums else []
        indices = Value(self._lanes(_WORD.findall(text)))
        stored = [[self._named.get(name, Value()) for name in names] for names in (used, helpers)]
        values = [self._here(value) for value in (*stored[0], *loaded, indices, *stored[1])]
        if sums:  # combining partial results after the loop is less than one operation a value
            counted = loaded or any("tmp_acc" not in name for name in used)
            result = self.flow.apply(_weight(_HELPER.sub("", text)) if counted else 0, values)
            for name in helpers:
                self._merge(name, result)
            return result
        if (found := _TERNARY.match(text)) is not None:
            return self.flow.choose(self._value(found["condition"]), values[len(_TMP.findall(found["condition"])) :])
        if "blendv" in text and used:
            condition = values.pop(len(used) - 1)
            return self.flow.choose(condition, values)
        return self.flow.apply(_weight(text), values)

    def _lanes(self, words: Iterable[str]) -> frozenset[Lane]:
        """Those of the words that are loops here."""
        loops = self._loops
        return frozenset(Lane(word, word, loops[word]) for word in words if word in loops)

    def _here(self, value: Value) -> Value:
        """A value within the loops around a statement: on loops that have ended it no longer depends."""
        return Value(self._lanes(lane.name for lane in value.lanes), value.data, value.steps)

    def _without_loads(self, text: str) -> tuple[str, list[Value]]:
        """The expression with loads cut out, and their values."""
        loads: list[Value] = []
        for pattern in (_LOAD, _INDEXED):
            while (found := pattern.search(text)) is not None:
                end = _closing(text, found.end() - 1)
                inside = text[found.end() : end]
                name = found["name"] if pattern is _INDEXED else _WORD.findall(inside)[0]
                loads.append(self._load(name, inside))
                text = f"{text[: found.start()]} {text[end + 1 :]}"
        return text, loads

    def _load(self, name: str, index: str) -> Value:
        """It depends on the loops that its index names; from memory of the kernel's own it may depend on all of them."""
        if name not in self._pointer_of:
            stored = self._named.get(name, Value(data=True))
            return Value(self._lanes(self._loops), stored.data, stored.steps)
        words = _index_words(index)
        derived = {lane.name for word in words for lane in self._named.get(word, Value()).lanes}
        return Value(self._lanes(words | derived), True)


def _chunks(body: str) -> Iterator[tuple[str, str]]:
    """(text, what ends it) of each statement or header: one of `;`, `{` and `}` outside of brackets."""
    start = at = 0
    while at < len(body):
        character = body[at]
        if character in "([":
            at = _closing(body, at)
        elif character in ";{}":
            yield re.sub(r"(?m)^\s*#.*$", "", body[start:at]).strip(), character
            start = at + 1
        at += 1


def _weight(text: str) -> int:
    """Operations in an expression without loads."""
    negative = len(re.findall(r"(?:^|[(,=])\s*-(?=[A-Za-z_(])", text))
    names = [name for name in _FUNCTION.findall(text) if not name.startswith("tmp")]
    return negative + len(_OPERATOR.findall(text)) + sum(weight_of(name) for name in names)


def _note_access(body: str, span: tuple[int, int], result: Accesses, loops: Loops) -> None:
    """Record the use of a pointer whose name is at body[slice(*span)]."""
    start, end = span
    before = body[max(start - 400, 0) : start].rstrip()
    if body[end : end + 1] == "[":
        close = _closing(body, end)
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
        elif "transpose_mxn" in function:
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
    words = _index_words(index)
    indirect = any(word.startswith("tmp") for word in words)
    return product(length for name, length in loops.items() if indirect or name in words)


def _closing(text: str, at: int) -> int:
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


def _arguments(text: str) -> list[str]:
    """What commas outside of brackets separate."""
    cuts = [-1, *(at for at, character in _outside_brackets(text) if character == ","), len(text)]
    return [text[begin + 1 : end] for begin, end in pairwise(cuts)]


def _loop_of(header: str) -> Loops:
    """The variable of a loop and how many values it takes; loops over the lanes of a vector add nothing."""
    parts = header.split(";")
    begin = re.search(r"(\w+)\s*=\s*(.+)", parts[0])
    if len(parts) != 3 or begin is None or begin[1].endswith(("_inner", "_tail")):
        return {}
    lower, upper = _LENGTH.fullmatch(begin[2].strip()), re.fullmatch(r"\s*\w+\s*<\s*(.+?)\s*", parts[1])
    until = _LENGTH.fullmatch(upper[1]) if upper else None
    return {begin[1]: max(int(until[1]) - int(lower[1]), 0) if lower and until else None}


def _index_words(index: str) -> set[str]:
    """The names in an index; the lanes of a vector count as the loop over vectors."""
    return {word.removesuffix("_inner").removesuffix("_tail") for word in _WORD.findall(index)}
