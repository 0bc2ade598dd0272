"""The body of a Triton kernel, as a syntax tree -> which pointers it loads from and stores to, and how far each index goes.

`x0 = xindex % 768` takes 768 values, `xindex` as many as `xnumel`. No buffers, no modules, nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Accesses", "Body", "product"]

_INDEX = re.compile(r"(?P<prefix>[a-z]\d*_?)index")


@dataclass
class Accesses:
    """What a kernel does with one pointer. first_reads: its first use reads what the buffer held before; known: every use was
    understood; expressions: the distinct indices, with how many values each takes at most (None: not known)."""

    first_reads: bool = False
    writes: bool = False
    known: bool = True
    expressions: dict[tuple[str, int | None], int | None] = field(default_factory=dict)

    def note(self, reads: bool, writes: bool, index: str, span: int | None) -> None:
        """One more use."""
        if not self.expressions:
            self.first_reads = reads
        self.writes |= writes
        self.expressions[re.sub(r"\s", "", index), span] = span

    @property
    def most(self) -> int | None:
        """Elements touched at most; None: no bound."""
        spans = [span for span in self.expressions.values() if span is not None]
        return sum(spans) if self.known and spans and len(spans) == len(self.expressions) else None


class Body:
    """State while one body is read: what names stand for so far, and in `result` what is done with each pointer."""

    def __init__(self, pointers: set[str], parameters: list[str]) -> None:
        self.result = {name: Accesses() for name in pointers}
        self.values: dict[str, ast.expr] = {}
        self.numels = {name for name in parameters if name.endswith("numel")}  # a kernel's numbers of runs

    def statement(self, statement: ast.stmt) -> None:
        """For those who want more of each statement, before names stand for what it says."""

    def block(self, body: list[ast.stmt]) -> None:
        """Read statements in the order of the text."""
        for statement in body:
            self.statement(statement)
            for part in ast.iter_child_nodes(statement):
                if isinstance(part, ast.expr):
                    self._expression(part)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                self.values[name] = statement.value
                if name.endswith("numel") and isinstance(statement.value, ast.Constant):
                    self.numels.add(name)
            elif isinstance(statement, (ast.For, ast.If, ast.While, ast.With)):
                self.block(statement.body)
                self.block(getattr(statement, "orelse", []))

    def _expression(self, expression: ast.expr) -> None:
        accounted: set[int] = set()
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                what = node.func.attr
                if what == "load" or what == "store" or what.startswith("atomic_"):
                    accounted |= self._access(what, node.args[0])
            if isinstance(node, ast.Name) and node.id in self.result and id(node) not in accounted:
                self.result[node.id].known = False  # handed on, or under another name

    def _access(self, what: str, place: ast.expr) -> set[int]:
        """Note a load or store; returns the nodes that are so accounted for."""
        if not (isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add) and isinstance(place.left, ast.Name)):
            return set()
        if place.left.id in self.result:
            reads, writes = what != "store", what != "load"
            self.result[place.left.id].note(reads, writes, ast.dump(place.right), self._span(place.right))
        return {id(place.left)}

    def _span(self, index: ast.expr) -> int | None:
        """How many values an index takes at most; one that was itself loaded as many as there are runs."""
        leaves: dict[str, int | None] = {}
        indirect = self._leaves(index, leaves, set(), 0)
        names = (
            {name.removesuffix("numel") for name in self.numels} if indirect else {leaf.partition(" ")[0] for leaf in leaves}
        )
        bound = product(self.numel(name) for name in names)
        if indirect:
            return bound
        span = product(leaves.values())
        return bound if span is None else span if bound is None else min(span, bound)

    def numel(self, prefix: str) -> int | None:
        """How many runs `xindex` and the like have; None where that is not written."""
        value = self.resolved(ast.Name(f"{prefix}numel"))
        return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None

    def _leaves(self, node: ast.expr, leaves: dict[str, int | None], seen: set[str], depth: int) -> bool:
        """Collect the parts of an index that vary, with how many values each takes; whether any of it was loaded."""
        if depth > 64:
            return True
        extent = self.extent(node, depth)
        if extent is not None:
            prefix, length = extent
            leaves[f"{prefix} {ast.dump(self.resolved(node))}"] = length
            return False
        if isinstance(node, ast.Name):
            value = self.values.get(node.id) if node.id not in seen else None
            seen.add(node.id)
            return value is not None and self._leaves(value, leaves, seen, depth + 1)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("load", "full"):
                return node.func.attr == "load"
            parts = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        else:
            parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        found = [self._leaves(part, leaves, seen, depth + 1) for part in parts]
        return any(found)

    def resolved(self, node: ast.expr) -> ast.expr:
        """What a name stands for: two names of one thing are one."""
        for _ in range(64):
            if not isinstance(node, ast.Name) or node.id not in self.values or _INDEX.fullmatch(node.id):
                break
            node = self.values[node.id]
        return node

    def extent(self, node: ast.expr, depth: int = 0) -> tuple[str, int | None] | None:
        """(prefix of the index it comes from, how many values it takes) of `xindex`, `xindex % 10`, `(xindex // 10) % 4`."""
        node = self.resolved(node)
        if isinstance(node, ast.Name):
            found = _INDEX.fullmatch(node.id)
            return (found["prefix"], self.numel(found["prefix"])) if found else None
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mod, ast.FloorDiv)) or depth > 64:
            return None
        inner = self.extent(node.left, depth + 1)
        divisor = node.right.value if isinstance(node.right, ast.Constant) else None
        if inner is None or not isinstance(divisor, int) or divisor <= 0:
            return None if inner is None else (inner[0], None)
        prefix, length = inner
        if isinstance(node.op, ast.Mod):
            return prefix, divisor if length is None else min(length, divisor)
        return prefix, None if length is None else -(-length // divisor)


def product(lengths: Iterable[int | None]) -> int | None:
    """Of all; None where one is not known."""
    count = 1
    for length in lengths:
        if length is None:
            return None
        count *= length
    return count
