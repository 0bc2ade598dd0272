"""The body of a C++ kernel that TorchInductor generated, as text -> its use of each pointer, and its operations.

Statements are rewritten as Python, for which there is a parser, and read in order, each within the loops around it; main loops
and their tails differ in the range that their `if` tests. Knows no buffer sizes and no modules; nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyprof.compiled.flow import Accesses, Flow, IndexLane, Value, product, weight_of
from pyprof.compiled.syntax import called, names_in, parsed

Loops = dict[str, int | None]  # variable of each loop -> number of its values (None: unknown)
_TEMPLATE = re.compile(r"(?<=\w)\s*<(?:[^<>()]|\(\w*\))*>(?=\s*(?:[(.,>]|::|$|\w+\s*=))")
_TO_PYTHON = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (r"\[[^\]]*\]\s*\([^)]*\)\s*\{[^}]*\}", "None"),  # a lambda passed to a reduction of a vector
        (r"\bstatic_cast\b|\btemplate\b", ""),
        (r"::", "."),
        (r"\bfrom\b", "from_"),
        (r"\b(\d[\d.]*(?:e[-+]?\d+)?)[LlUuFf]+\b", r"\1"),
        (r"&&", "and"),
        (r"\|\|", "or"),
        (r"!(?!=)", "~"),
        (r"(?<=[(,])\s*&\s*(?=\w)", "*"),  # an address
        (r"^atomic_\w+\s*\(\*(\w+\[.*\])\s*,(.*)\)$", r"\1 += (\2)"),
        (r"^(?:\*|(?:[\w.]+\s+)+(?=\w+\s*=[^=]))", ""),  # the type of a declaration
        (r"^((?:\w+\s*=(?!=))?)([^?]*)\?(.*):(.*)$", r"\1 (\3) if (\2) else (\4)"),
    )
)
_ALIAS = re.compile(r"\bauto\s+(\w+)\s*=\s*(\w+)\s*;")
_FOR = re.compile(r"\bfor\s*\([^=;]*?(?P<name>\w+)\s*=(?P<low>[^;]*);[^;<]*<(?P<high>[^;]*);[^;]*?\)(?=\s*(?:$|\w))")
_HEADER = re.compile(rf"{_FOR.pattern}|^(?:else\s*)?if\b")
_RANGE = re.compile(r"(\w+) >= (\(?\d+\)?) and \1 < (\(?\d+\)?)")
_LAMBDA = re.compile(r"(?:auto\s)?\s*(?P<name>\w+)\s*=\s*\[[^\]]*\]\s*(?:\(\s*\))?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_LOADS = ("loadu", "from_")


@dataclass
class _Scope:
    """A pair of braces. loops: of its header; ranges: loops limited by its `if`; name: of a lambda; held: values that flow into
    the lambda."""

    loops: Loops = field(default_factory=dict)
    ranges: Loops = field(default_factory=dict)
    name: str = ""
    held: list[Value] = field(default_factory=list)


class CppBody:
    """After `read`: accesses of each pointer, and flow with the operations."""

    def __init__(self, pointers: set[str]) -> None:
        self.accesses = {name: Accesses() for name in pointers}
        self.flow = Flow(lambda lanes: product(lane.length for lane in lanes))
        self._pointers = dict(self.accesses)  # by all their names in the body
        self._scopes: list[_Scope] = []
        self._named: dict[str, Value] = {}  # values of variables and of named memory

    def read(self, body: str) -> None:
        """Follow all statements."""
        self._pointers |= {new: self.accesses[old] for new, old in _ALIAS.findall(body) if old in self.accesses}
        for text, end in _chunks(body):
            self._follow(_HEADER.sub("", text).strip())
            if end == "{":
                self._scopes.append(self._scope(text))
            elif end == "}" and self._scopes and (closed := self._scopes.pop()).name:
                self._named[closed.name] = Value.of(closed.held)

    def _follow(self, text: str) -> None:
        """Follow one statement. If it is not understood, its pointers and operations become unknown."""
        try:
            for statement in parsed(text).body:
                self._statement(statement)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._pass_on(_WORD.findall(text))
            self.flow.known &= not ("tmp" in text and "=" in text) or _LAMBDA.fullmatch(text) is not None

    def _pass_on(self, names: Iterable[str]) -> None:
        """Give up on the pointers among these names: they go where nothing follows them."""
        for name in self._pointers.keys() & set(names):
            self._pointers[name].known = False

    @property
    def _loops(self) -> Loops:
        """The loops around a statement, limited by `if`."""
        return {name: length for scope in self._scopes for name, length in (scope.loops | scope.ranges).items()}

    def _scope(self, header: str) -> _Scope:
        if (found := _LAMBDA.fullmatch(header)) is not None:
            return _Scope(name=found["name"])
        if (found := _FOR.search(header)) is None:
            loops = self._loops
            return _Scope(ranges={name: _length(*ends) for name, *ends in _RANGE.findall(header) if name in loops})
        lanes = found["name"].endswith(("_inner", "_tail"))  # lanes of a vector add nothing
        return _Scope({} if lanes else {found["name"]: _length(found["low"], found["high"])})

    def _statement(self, statement: ast.stmt) -> None:
        within = next((scope.held for scope in reversed(self._scopes) if scope.name), list[Value]())
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=node) if "tmp" in name:
                self._named[name] = self._value(node, name)
                within.append(self._named[name])
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=index)], value=node):
                within.append(self._value(node))
                self._write(name, index, within[-1])
            case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name), slice=index), value=node):
                self._write(name, index, self.flow.apply(1, [self._value(node)]), reads=True)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=node, attr="store"), args=[address, *_])):
                self._write(_base(address), address, self._value(node))
            case ast.Expr(value=ast.Call(args=[source, _, address, *_]) as node) if called(node) == "transpose_mxn":
                self._write(_base(address), address, self._load(_base(source), [source]))  # others: leading dimensions
            case ast.Expr(value=ast.Call(args=[address, *others]) as node) if called(node).startswith("atomic_"):
                added = [part for part in others if any("tmp" in name for name in names_in(part))][-1:]  # after the index
                self._write(_base(address), address, self.flow.apply(1, map(self._value, added)), reads=True)
            case ast.Return(value=ast.expr() as node):
                within.append(self._value(node))
            case ast.Expr(value=node) | ast.Assign(value=ast.BinOp() | ast.Call() as node):
                self._value(node)

    def _access(self, name: str, index: ast.expr, reads: bool, writes: bool) -> bool:
        """Record the use of a pointer of the kernel; False for other names.

        Whole loops count: tails touch what main loops leave. A loaded index takes at most one value per run.
        """
        if name not in self._pointers:
            return False
        words = _index_words([index])
        indirect = any(word.startswith("tmp") for word in words)
        loops = {loop: length for scope in self._scopes for loop, length in scope.loops.items()}
        span = product(length for loop, length in loops.items() if indirect or loop in words)
        self._pointers[name].note(reads, writes, ast.unparse(index).replace(name, ""), span)
        return True

    def _write(self, name: str, index: ast.expr, value: Value, *, reads: bool = False) -> None:
        """Write a value: through a pointer of the kernel it is needed; in the kernel's own memory it waits to be read."""
        if self._access(name, index, reads, True):
            self.flow.store(value)
        else:
            self._merge(name, value)

    def _merge(self, name: str, value: Value) -> None:
        self._named[name] = Value.of([value, self._named.get(name, Value())])

    def _load(self, name: str, index: list[ast.expr]) -> Value:
        """A loaded value depends on the loops in its index; from the kernel's own memory it may depend on all loops."""
        if not self._access(name, index[0], True, False):
            stored = self._named.get(name, Value(data=True))
            return Value(self._lanes(self._loops), stored.data, stored.steps)
        words = _index_words(index)
        derived = {lane.name for word in words for lane in self._named.get(word, Value()).lanes}
        return Value(self._lanes(words | derived), True)

    def _value(self, node: ast.expr, target: str = "") -> Value:
        """The value of an expression; its operations are one step. target: the variable assigned."""
        match node:
            case ast.IfExp():
                return self.flow.choose(self._value(node.test), map(self._value, (node.body, node.orelse)))
            case ast.Call(func=ast.Attribute(attr="blendv"), args=[*options, condition]):
                return self.flow.choose(self._value(condition), map(self._value, options))
        nodes = list(_outside_addresses(node))
        names = [part.id for part in nodes if isinstance(part, ast.Name)]
        loads = [(_base(part.value), [part.slice]) for part in nodes if isinstance(part, ast.Subscript)]
        loads += [(_base(part.args[0]), part.args) for part in nodes if isinstance(part, ast.Call) and _is_load(part)]
        self._pass_on(names)
        used = [name for name in names if "tmp" in name]
        helpers = [_base(part) for part in nodes if isinstance(part, ast.Starred)] if "tmp_acc" in target else []
        # Combining partial results after the loop takes less than one operation per value.
        partial = "tmp_acc" in target and all("tmp_acc" in name for name in (*used, *(name for name, _ in loads)))
        stored = [self._named.get(name, Value()) for name in (*used, *helpers)]
        values = [*stored, *(self._load(*load) for load in loads), Value(self._lanes(names))]
        # On loops that have ended a value no longer depends.
        here = [Value(self._lanes(lane.name for lane in value.lanes), value.data, value.steps) for value in values]
        result = self.flow.apply(0 if partial else sum(map(_weight, nodes)), here)
        for name in helpers:
            self._merge(name, result)
        return result

    def _lanes(self, words: Iterable[str]) -> frozenset[IndexLane]:
        """The words that are loops here."""
        loops = self._loops
        return frozenset(IndexLane(word, word, loops[word]) for word in words if word in loops)


def _chunks(body: str) -> Iterator[tuple[str, str]]:
    """(text as Python, the `;`, `{` or `}` that ends it) of each statement or header."""
    start = depth = 0
    for found in re.finditer(r"[][(){};]", body):
        if found[0] in "([":
            depth += 1
        elif found[0] in ")]":
            depth = max(depth - 1, 0)
        elif not depth:
            yield _as_python(body[start : found.start()]), found[0]
            start = found.end()


def _as_python(text: str) -> str:
    """A C++ statement or header as Python without types; not every result parses."""
    text = " ".join(re.sub(r"(?m)^\s*#.*$", "", text).split())
    while (shorter := _TEMPLATE.sub("", text)) != text:
        text = shorter
    for pattern, new in _TO_PYTHON:
        text = pattern.sub(new, text)
    return text.strip()


def _weight(node: ast.AST) -> int:
    """Operations in one node of an expression."""
    match node:
        case ast.Call():
            function = called(node).rstrip("_")
            return weight_of(function) if function and not function.startswith("tmp") else 0
        case ast.Compare(ops=operators):
            return len(operators)
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return int(not isinstance(operand, ast.Constant))
    return int(isinstance(node, ast.BinOp))


def _is_load(call: ast.Call) -> bool:
    return called(call) in _LOADS and bool(call.args) and _base(call.args[0]) != ""


def _outside_addresses(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression, without addresses and masks of its loads."""
    yield node
    if not (isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and _is_load(node))):
        for part in ast.iter_child_nodes(node):
            yield from _outside_addresses(part)


def _base(node: ast.expr) -> str:
    """The name that an expression begins with, such as the pointer of an address; "" for none."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=part) | ast.Starred(value=part) | ast.Attribute(value=part) | ast.Call(func=part):
            return _base(part)
    return ""


def _length(low: str, high: str) -> int | None:
    """Number of values from `low` up to `high`; None if these are not numbers."""
    ends = [text.strip(" ()") for text in (low, high)]
    return max(int(ends[1]) - int(ends[0]), 0) if all(map(str.isdecimal, ends)) else None


def _index_words(index: list[ast.expr]) -> set[str]:
    """The names in an index; lanes of a vector count as the loop over vectors."""
    return {word.removesuffix("_inner").removesuffix("_tail") for part in index for word in names_in(part)}
