"""The body of a Triton kernel, as a syntax tree -> its use of each pointer, the reach of each index, its operations.

`x0 = xindex % 768` takes 768 values, `xindex` as many as `xnumel`. Operations are known only if Inductor named the indices
(`xindex`, `r0_index`) and the body has no matrix product. Knows no buffers and no modules; nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from pyprof.compiled.flow import Accesses, Flow, IndexLane, Value, product, weight_of
from pyprof.compiled.syntax import called, names_in

_INDEX = re.compile(r"(?P<prefix>[a-z]\d*_?)index")
_REDUCTIONS = frozenset("sum max2 min2 any prod xor_sum max_with_index min_with_index welford".split())
_SAME = frozenset("to broadcast_to broadcast reshape trans expand_dims".split())
_NOTHING = frozenset("full zeros arange program_id device_assert debug_barrier num_programs".split())
_DEEPEST = 64  # chain of names, and nesting of indices


class TritonBody:
    """After `block`: accesses of each pointer, and flow with the operations."""

    def __init__(self, pointers: set[str], parameters: list[str]) -> None:
        self.accesses = {name: Accesses() for name in pointers}
        self.flow = Flow(self._runs)
        self._values: dict[str, Value] = {}
        self._expressions: dict[str, ast.expr] = {}
        self._numels = {name for name in parameters if name.endswith("numel")}  # sizes of the launch's dimensions

    def block(self, body: list[ast.stmt]) -> None:
        """Read statements in order."""
        for statement in body:
            values = [self._value(part) for part in ast.iter_child_nodes(statement) if isinstance(part, ast.expr)]
            if isinstance(statement, ast.Assign):
                self._values |= dict.fromkeys(names_in(statement.targets[0]), values[-1])
                if isinstance(statement.targets[0], ast.Name):
                    name = statement.targets[0].id
                    self._expressions[name] = statement.value
                    self._numels |= {name} if name.endswith("numel") and isinstance(statement.value, ast.Constant) else set()
            elif isinstance(statement, (ast.For, ast.If, ast.While, ast.With)):
                self.block(statement.body)
                self.block(getattr(statement, "orelse", []))

    def _numel(self, prefix: str) -> int | None:
        """Number of runs of `xindex` and the like; None if it is not a constant."""
        value = self._resolved(ast.Name(f"{prefix}numel"))
        return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None

    def _resolved(self, node: ast.expr) -> ast.expr:
        """The expression assigned to a name, so two names of one thing count as one."""
        for _ in range(_DEEPEST):
            if not isinstance(node, ast.Name) or node.id not in self._expressions or _INDEX.fullmatch(node.id):
                break
            node = self._expressions[node.id]
        return node

    def _extent(self, node: ast.expr, depth: int = 0) -> tuple[str, int | None] | None:
        """(prefix, number of values) of `xindex`, `xindex % 10`, `(xindex // 10) % 4`; else None."""
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

    def _runs(self, lanes: frozenset[IndexLane]) -> int | None:
        """How often an operation on these indices runs: at most once per run of the kernel, even if indices overlap."""
        lengths: dict[str, list[int | None]] = defaultdict(list)
        for lane in lanes:
            lengths[lane.runs].append(lane.length)
        return product(_least(product(spans), self._numel(runs)) for runs, spans in lengths.items())

    def _value(self, node: ast.expr) -> Value:
        if (extent := self._extent(node)) is not None:
            return Value(frozenset([IndexLane(ast.dump(self._resolved(node)), *extent)]))
        if isinstance(node, ast.Name):
            if node.id in self.accesses:
                self.accesses[node.id].known = False  # passed on, or under another name
            return self._values.get(node.id, Value())
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):  # [:, None]
            return self._value(node.value)
        weight = int(isinstance(node, (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp)))
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return self.flow.apply(weight, map(self._value, parts))

    def _call(self, node: ast.Call) -> Value:
        name = called(node)
        if node.args and (name in ("load", "store") or name.startswith("atomic_")):
            return self._access(name, *node.args)
        if name in _NOTHING:
            return Value()
        arguments = [*self._object(node.func), *node.args]
        if name in _SAME:
            return self._value(arguments[0]) if arguments else Value()
        self.flow.known &= name not in ("dot", "dot_scaled")
        if name in _REDUCTIONS:  # combining partial results of a loop counts nothing
            partial = any(isinstance(part, ast.Name) and part.id.startswith("_tmp") for part in arguments) or name == "welford"
            result = self.flow.apply(0 if partial else 1, map(self._value, arguments))
            return Value(frozenset(lane for lane in result.lanes if not lane.runs.startswith("r")), result.data, result.steps)
        values = [self._value(argument) for argument in (arguments[:1] if name == "welford_reduce" else arguments)]
        if name == "where" and values:
            return self.flow.choose(values[0], values[1:])
        return self.flow.apply(weight_of(name), values)

    def _access(self, function: str, address: ast.expr, *others: ast.expr) -> Value:
        """Record a load or store at `pointer + index`."""
        match address:
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=index) if name in self.accesses:
                place = self._value(index)
                span = _least(
                    product(lane.length for lane in place.lanes),
                    product(self._numel(prefix) for prefix in {lane.runs for lane in place.lanes}),
                )
                if place.data:  # a loaded index takes at most one value per run
                    span = product(self._numel(numel.removesuffix("numel")) for numel in self._numels)
                self.accesses[name].note(function != "store", function != "load", ast.dump(index), span)
            case _:
                place = self._value(address)
        if function != "load" and others:
            self.flow.store(self.flow.apply(int(function != "store"), [self._value(others[0])]))
        return Value(place.lanes, True)

    def _object(self, function: ast.expr) -> list[ast.expr]:
        """The value whose method is called (`tmp0.to`); empty for functions of modules (`tl.exp`)."""
        if not isinstance(function, ast.Attribute):
            return []
        of = function.value
        is_value = of.id in self._values if isinstance(of, ast.Name) else not isinstance(of, ast.Attribute)
        return [of] if is_value else []


def _least(one: int | None, other: int | None) -> int | None:
    """The smaller known number."""
    return other if one is None else one if other is None else min(one, other)
