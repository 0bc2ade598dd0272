"""The body of a C++ kernel that TorchInductor generated, as text -> how many operations it does.

Statements are read in their order, each within the loops around it; main loops and their tails differ in the range that their
`if` tests. Knows no sizes of buffers and no modules; nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyprof.report.compiled.cpp_source import ALIAS, FOR, WORD, Loops, arguments, closing, index_words, loop_of
from pyprof.report.compiled.flow import Flow, Lane, Value, product, weight_of

__all__ = ["cpp_operations"]

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
    """A pair of braces. loops: of its header, or narrowed by its `if`; name, held: of a lambda, and what flows into it."""

    loops: Loops = field(default_factory=dict)
    name: str = ""
    held: list[Value] = field(default_factory=list)


def cpp_operations(body: str, pointers: set[str]) -> int | None:
    """Operations in the body of a kernel with these pointers; None where that is unknown."""
    reader = _BodyReader(pointers | {new for new, old in ALIAS.findall(body) if old in pointers})
    reader.read(body)
    return reader.flow.operations


def _chunks(body: str) -> Iterator[tuple[str, str]]:
    """(text, what ends it) of each statement or header: one of `;`, `{` and `}` outside of brackets."""
    start = at = 0
    while at < len(body):
        character = body[at]
        if character in "([":
            at = closing(body, at)
        elif character in ";{}":
            yield re.sub(r"(?m)^\s*#.*$", "", body[start:at]).strip(), character
            start = at + 1
        at += 1


class _BodyReader:
    """State while one body is read. flow: the operations so far; named: the values of variables and of memory by name."""

    def __init__(self, pointers: set[str]) -> None:
        self.pointers = pointers
        self.flow = Flow(lambda lanes: product(lane.length for lane in lanes))
        self.scopes: list[_Scope] = []
        self.named: dict[str, Value] = {}

    def read(self, body: str) -> None:
        """Follow all statements."""
        for text, end in _chunks(body):
            if end == "{":
                self.scopes.append(self._header(text))
            elif end == ";":
                self._statement(text)
            else:
                if text:
                    self._statement(text)
                if self.scopes and (closed := self.scopes.pop()).name:
                    self.named[closed.name] = Value.of(closed.held)

    @property
    def _loops(self) -> Loops:
        return {name: length for scope in self.scopes for name, length in scope.loops.items()}

    def _header(self, text: str) -> _Scope:
        scope = _Scope()
        if (found := _LAMBDA.search(text)) is not None:
            scope.name = found["name"]
        elif (begin := FOR.search(text)) is not None:
            scope.loops = loop_of(text[begin.end() : closing(text, begin.end() - 1)])
        elif _IF.search(text) is not None:
            loops = self._loops
            for found in _RANGE.finditer(text):
                if found["name"] in loops:
                    scope.loops[found["name"]] = max(int(found["high"]) - int(found["low"]), 0)
        return scope

    # ------------------------------------------------------------------ statements

    def _statement(self, text: str) -> None:
        within = next((scope.held for scope in reversed(self.scopes) if scope.name), list[Value]())
        if (found := _ASSIGN.fullmatch(text)) is not None:
            self.named[found["name"]] = self._value(found["value"], found["name"])
            within.append(self.named[found["name"]])
        elif (found := _STORE.match(text)) is not None:
            self._write(found["name"], self._value(found["value"]))
        elif (found := _TRANSPOSE.match(text)) is not None:
            ends = [WORD.findall(part)[:1] for part in arguments(found["rest"])[:3:2]]
            if len(ends) == 2 and all(ends):
                self._write(ends[1][0], self._load(ends[0][0], found["rest"].partition(",")[0]))
        elif (found := _ATOMIC.match(text)) is not None:
            added = [part for part in arguments(found["rest"]) if _TMP.search(part)][-1:]  # after address and index
            self.flow.store(self.flow.apply(1, map(self._value, added)))
        elif (found := _PUT.match(text)) is not None:
            value = self._value(text[closing(text, found.end() - 1) + 1 :].lstrip().lstrip("+-*/|&= "))
            self._write(found["name"], value)
            within.append(value)
        elif text.startswith("return"):
            within.append(self._value(text.removeprefix("return")))

    def _write(self, name: str, value: Value) -> None:
        """Through a pointer of the kernel it is needed; in memory of the kernel's own it waits to be read."""
        if name in self.pointers:
            self.flow.store(value)
        else:
            self._merge(name, value)

    def _merge(self, name: str, value: Value) -> None:
        self.named[name] = Value.of([value, self.named.get(name, Value())])

    # ------------------------------------------------------------------ expressions

    def _value(self, text: str, target: str = "") -> Value:
        """The value of an expression; all its operations are one step. target: the variable that it is assigned to."""
        text, loaded = self._without_loads(text)
        text = re.sub(r"\[[^\]]*\]\s*\([^)]*\)\s*\{[^}]*\}", "", text)  # a lambda passed to a reduction of a vector
        while (shorter := _TEMPLATE.sub("", text)) != text:
            text = shorter
        used = _TMP.findall(text)
        sums = "tmp_acc" in target
        helpers = _HELPER.findall(text) if sums else []
        indices = Value(self._lanes(WORD.findall(text)))
        stored = [[self.named.get(name, Value()) for name in names] for names in (used, helpers)]
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
                end = closing(text, found.end() - 1)
                inside = text[found.end() : end]
                name = found["name"] if pattern is _INDEXED else WORD.findall(inside)[0]
                loads.append(self._load(name, inside))
                text = f"{text[: found.start()]} {text[end + 1 :]}"
        return text, loads

    def _load(self, name: str, index: str) -> Value:
        """It depends on the loops that its index names; from memory of the kernel's own it may depend on all of them."""
        if name not in self.pointers:
            stored = self.named.get(name, Value(data=True))
            return Value(self._lanes(self._loops), stored.data, stored.steps)
        words = index_words(index)
        derived = {lane.name for word in words for lane in self.named.get(word, Value()).lanes}
        return Value(self._lanes(words | derived), True)


def _weight(text: str) -> int:
    """Operations in an expression without loads."""
    negative = len(re.findall(r"(?:^|[(,=])\s*-(?=[A-Za-z_(])", text))
    names = [name for name in _FUNCTION.findall(text) if not name.startswith("tmp")]
    return negative + len(_OPERATOR.findall(text)) + sum(weight_of(name) for name in names)
