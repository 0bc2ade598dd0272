"""The body of a Triton kernel, as a syntax tree -> what it does with each pointer, how far each index goes, its operations.

`x0 = xindex % 768` takes 768 values, `xindex` as many as `xnumel`. Operations are known only where Inductor named the indices
(`xindex`, `r0_index`) and no matrix product is in the body. Knows no buffers and no modules; nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from pyprof.report.compiled.flow import Accesses, Flow, Lane, Value, product, weight_of

__all__ = ["TritonBody"]

_INDEX = re.compile(r"(?P<prefix>[a-z]\d*_?)index")
_REDUCTIONS = frozenset("sum max2 min2 any prod xor_sum max_with_index min_with_index welford".split())
_SAME = frozenset("to broadcast_to broadcast reshape trans expand_dims".split())
_NOTHING = frozenset("full zeros arange program_id device_assert debug_barrier num_programs".split())
_DEEPEST = 64  # of names that refer to names, and of nested indices


class TritonBody:
    """accesses: of each pointer; flow: the operations, after `block` has read the statements."""

    def __init__(self, pointers: set[str], parameters: list[str]) -> None:
        self.accesses = {name: Accesses() for name in pointers}
        self.flow = Flow(self._runs)
        self._values: dict[str, Value] = {}
        self._expressions: dict[str, ast.expr] = {}
        self._numels = {name for name in parameters if name.endswith("numel")}  # sizes of the launch's dimensions

    def block(self, body: list[ast.stmt]) -> None:
        """Read statements in the order of the text."""
        for statement in body:
            self._follow(statement)
            for part in ast.iter_child_nodes(statement):
                if isinstance(part, ast.expr):
                    self._note_accesses(part)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                self._expressions[name] = statement.value
                if name.endswith("numel") and isinstance(statement.value, ast.Constant):
                    self._numels.add(name)
            elif isinstance(statement, (ast.For, ast.If, ast.While, ast.With)):
                self.block(statement.body)
                self.block(getattr(statement, "orelse", []))

    def _note_accesses(self, expression: ast.expr) -> None:
        accounted: set[int] = set()
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                function = node.func.attr
                if function == "load" or function == "store" or function.startswith("atomic_"):
                    accounted |= self._access(function, node.args[0])
            if isinstance(node, ast.Name) and node.id in self.accesses and id(node) not in accounted:
                self.accesses[node.id].known = False  # passed on, or under another name

    def _access(self, function: str, address: ast.expr) -> set[int]:
        """Record a load or store at `pointer + index`; returns the nodes that this accounts for."""
        if not (isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add) and isinstance(address.left, ast.Name)):
            return set()
        if address.left.id in self.accesses:
            index = address.right
            self.accesses[address.left.id].note(function != "store", function != "load", ast.dump(index), self._span(index))
        return {id(address.left)}

    def _span(self, index: ast.expr) -> int | None:
        """How many values an index takes at most; an index that was loaded takes at most one for each run."""
        leaves: dict[str, int | None] = {}
        indirect = self._leaves(index, leaves, set(), 0)
        prefixes = {n.removesuffix("numel") for n in self._numels} if indirect else {leaf.partition(" ")[0] for leaf in leaves}
        bound = product(self._numel(prefix) for prefix in prefixes)
        return bound if indirect else _least(product(leaves.values()), bound)

    def _numel(self, prefix: str) -> int | None:
        """How many runs `xindex` and the like have; None where that is not a constant."""
        value = self._resolved(ast.Name(f"{prefix}numel"))
        return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None

    def _leaves(self, node: ast.expr, leaves: dict[str, int | None], seen: set[str], depth: int) -> bool:
        """Collect the parts of an index that vary, with how many values each takes; whether any of it was loaded."""
        if depth > _DEEPEST:
            return True
        if (extent := self._extent(node, depth)) is not None:
            leaves[f"{extent[0]} {ast.dump(self._resolved(node))}"] = extent[1]
            return False
        if isinstance(node, ast.Name):
            value = self._expressions.get(node.id) if node.id not in seen else None
            seen.add(node.id)
            return value is not None and self._leaves(value, leaves, seen, depth + 1)
        parts: list[ast.expr] = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        if isinstance(node, ast.Call):
            parts = node.args
            if isinstance(node.func, ast.Attribute):
                if node.func.attr in ("load", "full"):
                    return node.func.attr == "load"
                parts = [*parts, node.func.value]
        loaded = [self._leaves(part, leaves, seen, depth + 1) for part in parts]  # all of them are to be collected
        return any(loaded)

    def _resolved(self, node: ast.expr) -> ast.expr:
        """The expression that a name was assigned, so that two names of one thing are one."""
        for _ in range(_DEEPEST):
            if not isinstance(node, ast.Name) or node.id not in self._expressions or _INDEX.fullmatch(node.id):
                break
            node = self._expressions[node.id]
        return node

    def _extent(self, node: ast.expr, depth: int = 0) -> tuple[str, int | None] | None:
        """(prefix of the index, how many values it takes) of `xindex`, `xindex % 10`, `(xindex // 10) % 4`; else None."""
        node = self._resolved(node)
        if isinstance(node, ast.Name):
            found = _INDEX.fullmatch(node.id)
            return (found["prefix"], self._numel(found["prefix"])) if found else None
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Mod, ast.FloorDiv)) or depth > _DEEPEST:
            return None
        if (inner := self._extent(node.left, depth + 1)) is None:
            return None
        prefix, length = inner
        divisor = node.right.value if isinstance(node.right, ast.Constant) else None
        if not isinstance(divisor, int) or divisor <= 0:
            return prefix, None
        if isinstance(node.op, ast.Mod):
            return prefix, _least(divisor, length)
        return prefix, None if length is None else -(-length // divisor)

    def _follow(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            value = self._value(statement.value)
            names = [node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name)]
            self._values |= dict.fromkeys(names, value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and len(statement.value.args) > 1:
            function = _function(statement.value) if isinstance(statement.value.func, ast.Attribute) else ""
            if function == "store" or function.startswith("atomic_"):
                self.flow.store(self.flow.apply(int(function != "store"), [self._value(statement.value.args[1])]))

    def _runs(self, lanes: frozenset[Lane]) -> int | None:
        """How often something runs: not more often than the kernel has runs, however its indices overlap."""
        lengths: dict[str, list[int | None]] = defaultdict(list)
        for lane in lanes:
            lengths[lane.runs].append(lane.length)
        return product(_least(product(spans), self._numel(runs)) for runs, spans in lengths.items())

    def _value(self, node: ast.expr) -> Value:
        if (extent := self._extent(node)) is not None:
            return Value(frozenset([Lane(ast.dump(self._resolved(node)), *extent)]))
        if isinstance(node, ast.Name):
            return self._values.get(node.id, Value())
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):  # [:, None]
            return self._value(node.value)
        weight = int(isinstance(node, (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp)))
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return self.flow.apply(weight, map(self._value, parts))

    def _call(self, node: ast.Call) -> Value:
        name = _function(node)
        if name == "load" and node.args:
            address = node.args[0].right if isinstance(node.args[0], ast.BinOp) else node.args[0]
            return Value(self._value(address).lanes, True)
        if name in _NOTHING:
            return Value()
        arguments = [*self._object(node.func), *node.args]
        if name in _SAME:
            return self._value(arguments[0]) if arguments else Value()
        self.flow.known &= name not in ("dot", "dot_scaled")
        if name in _REDUCTIONS:
            return self._reduced(name, arguments)
        values = [self._value(argument) for argument in (arguments[:1] if name == "welford_reduce" else arguments)]
        if name == "where" and values:
            return self.flow.choose(values[0], values[1:])
        return self.flow.apply(weight_of(name), values)

    def _object(self, function: ast.expr) -> list[ast.expr]:
        """The value whose method is called (`tmp0.to`), not the module that a function is from (`tl.exp`)."""
        if not isinstance(function, ast.Attribute):
            return []
        of = function.value
        is_value = of.id in self._values if isinstance(of, ast.Name) else not isinstance(of, ast.Attribute)
        return [of] if is_value else []

    def _reduced(self, name: str, arguments: list[ast.expr]) -> Value:
        """Over the elements of the reduction; partial results of a loop are only combined here, which counts nothing."""
        partial = any(isinstance(part, ast.Name) and part.id.startswith("_tmp") for part in arguments) or name == "welford"
        result = self.flow.apply(0 if partial else 1, map(self._value, arguments))
        return Value(frozenset(lane for lane in result.lanes if not lane.runs.startswith("r")), result.data, result.steps)


def _function(call: ast.Call) -> str:
    """`exp` of `tl.exp(...)` and `exp(...)`, empty for other expressions."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _least(one: int | None, other: int | None) -> int | None:
    """The smaller of what is known."""
    return other if one is None else one if other is None else min(one, other)
