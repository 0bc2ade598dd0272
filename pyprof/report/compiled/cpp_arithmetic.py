"""The body of a C++ kernel that TorchInductor generated, as text -> how many operations it does.

Statements are read in their order, each within the loops around it; main loops and their tails are told apart by the ranges
that their `if` names. No pointers' sizes, no modules, nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyprof.report.compiled.cpp_source import ALIAS, WORD, closing, loop_of
from pyprof.report.compiled.flow import Flow, Lane, Value, weight_of
from pyprof.report.compiled.triton_source import product

__all__ = ["cpp_operations"]

_FOR = re.compile(r"\bfor\s*\(")
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
_HELPER = re.compile(r"&\s*(\w+)")  # what sums up in pieces keeps them there
_TERNARY = re.compile(r"^\s*\(?(?P<condition>[^?]*)\?", re.DOTALL)


@dataclass
class _Scope:
    """What a pair of braces holds: loops of its header, ranges of its `if`, and of a lambda its name and what flows into it."""

    loops: dict[str, int | None] = field(default_factory=dict)
    name: str = ""
    held: list[Value] = field(default_factory=list)


def cpp_operations(body: str, pointers: set[str]) -> int | None:
    """Operations of the body of a kernel with these pointers; None where it cannot be told."""
    return _Reader(pointers | {new for new, old in ALIAS.findall(body) if old in pointers}).read(body)


def _chunks(body: str) -> Iterator[tuple[str, str]]:
    """(text, what ends it) of each statement or header: one of `;`, `{` and `}` outside of parentheses."""
    start = place = 0
    while place < len(body):
        character = body[place]
        if character in "([":
            place = closing(body, place)
        elif character in ";{}":
            yield re.sub(r"(?m)^\s*#.*$", "", body[start:place]).strip(), character
            start = place + 1
        place += 1


def _arguments(text: str) -> list[str]:
    """What commas outside of parentheses part."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


class _Reader:
    """State while one body is read."""

    def __init__(self, pointers: set[str]) -> None:
        self.pointers = pointers
        self.flow = Flow(lambda lanes: product(lane.length for lane in lanes))
        self.scopes: list[_Scope] = []
        self.named: dict[str, Value] = {}

    def read(self, body: str) -> int | None:
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
        return self.flow.operations

    @property
    def _loops(self) -> dict[str, int | None]:
        return {name: length for scope in self.scopes for name, length in scope.loops.items()}

    def _header(self, text: str) -> _Scope:
        scope = _Scope()
        if (found := _LAMBDA.search(text)) is not None:
            scope.name = found["name"]
        elif (begin := _FOR.search(text)) is not None:
            scope.loops = loop_of(text[begin.end() : closing(text, begin.end() - 1)])
        elif _IF.search(text) is not None:
            loops = self._loops
            for found in _RANGE.finditer(text):
                if found["name"] in loops:
                    scope.loops[found["name"]] = max(int(found["high"]) - int(found["low"]), 0)
        return scope

    def _statement(self, text: str) -> None:
        within = next((scope for scope in reversed(self.scopes) if scope.name), None)
        if (found := _ASSIGN.fullmatch(text)) is not None:
            self.named[found["name"]] = self._value(found["value"], found["name"])
            if within is not None:
                within.held.append(self.named[found["name"]])
        elif (found := _STORE.match(text)) is not None:
            self._keep(found["name"], self._value(found["value"]))
        elif (found := _TRANSPOSE.match(text)) is not None:
            places = [WORD.findall(part)[:1] for part in _arguments(found["rest"])[:3:2]]
            if len(places) == 2 and all(places):
                self._keep(places[1][0], self._load(places[0][0], found["rest"].partition(",")[0]))
        elif (found := _ATOMIC.match(text)) is not None:
            added = [part for part in _arguments(found["rest"]) if _TMP.search(part)][-1:]  # after place and index
            self.flow.store(self.flow.apply(1, map(self._value, added)))
        elif (found := _PUT.match(text)) is not None:
            rest = text[closing(text, found.end() - 1) + 1 :].lstrip()
            value = self._value(rest.lstrip("+-*/|&= "))
            self._keep(found["name"], value)
            if within is not None:
                within.held.append(value)
        elif within is not None and text.startswith("return"):
            within.held.append(self._value(text.removeprefix("return")))

    def _keep(self, name: str, value: Value) -> None:
        """Written through a pointer of the kernel it is needed; in memory of its own it waits to be read."""
        if name in self.pointers:
            self.flow.store(value)
        else:
            self.named[name] = Value.of([value, self.named.get(name, Value())])

    def _value(self, text: str, target: str = "") -> Value:
        """What an expression is made of; one step for all its operations."""
        text, loaded = self._without_loads(text)
        text = re.sub(r"\[[^\]]*\]\s*\([^)]*\)\s*\{[^}]*\}", "", text)  # a lambda given to a reduction of a vector
        while (shorter := _TEMPLATE.sub("", text)) != text:
            text = shorter
        used = _TMP.findall(text)
        loops = self._loops
        lanes = frozenset(self._lane(word, loops) for word in WORD.findall(text) if word in loops)
        helpers = _HELPER.findall(text) if "tmp_acc" in target else []
        values = [self.named.get(name, Value()) for name in used]
        values += [*loaded, Value(lanes), *(self.named.get(name, Value()) for name in helpers)]
        within = [self._here(value, loops) for value in values]
        if "tmp_acc" in target:  # what is put together after the loop is less than a value each
            summed = [name for name in used if "tmp_acc" not in name]
            result = self.flow.apply(self._weight(_HELPER.sub("", text)) if summed or loaded else 0, within)
            self.named |= {name: Value.of([result, self.named.get(name, Value())]) for name in helpers}
            return result
        if (found := _TERNARY.match(text)) is not None:
            return self.flow.choose(self._value(found["condition"]), within[len(_TMP.findall(found["condition"])) :])
        if "blendv" in text and used:
            return self.flow.choose(within[len(used) - 1], [*within[: len(used) - 1], *within[len(used) :]])
        return self.flow.apply(self._weight(text), within)

    @staticmethod
    def _weight(text: str) -> int:
        negative = len(re.findall(r"(?:^|[(,=])\s*-(?=[A-Za-z_(])", text))
        names = [name for name in _FUNCTION.findall(text) if not name.startswith("tmp")]
        return negative + len(_OPERATOR.findall(text)) + sum(weight_of(name) for name in names)

    @staticmethod
    def _lane(name: str, loops: dict[str, int | None]) -> Lane:
        return Lane(name, name, loops[name])

    def _here(self, value: Value, loops: dict[str, int | None]) -> Value:
        """A value as it is within the loops around a statement: what loops before have put together depends on them no more."""
        lanes = frozenset(self._lane(lane.name, loops) for lane in value.lanes if lane.name in loops)
        return Value(lanes, value.data, value.steps)

    def _without_loads(self, text: str) -> tuple[str, list[Value]]:
        """The expression with loads cut out, and these."""
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
        """By the loops that its index names; from memory of the kernel's own it may be by all of them."""
        loops = self._loops
        words = {word.removesuffix("_inner").removesuffix("_tail") for word in WORD.findall(index)}
        lanes = {lane.name for word in words for lane in self.named.get(word, Value()).lanes} | words
        held = Value(data=True)
        if name not in self.pointers:
            lanes, held = set(loops), self.named.get(name, held)
        return Value(frozenset(self._lane(lane, loops) for lane in lanes if lane in loops), held.data, held.steps)
