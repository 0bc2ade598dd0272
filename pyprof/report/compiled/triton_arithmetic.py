"""The body of a Triton kernel, as a syntax tree -> what it does with its pointers, and how many operations that takes.

Only for kernels whose indices Inductor named (`xindex`, `r0_index`): of others, and of matrix products, operations are unknown.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from pyprof.report.compiled.flow import Flow, Lane, Value, weight_of
from pyprof.report.compiled.triton_source import Body, product

__all__ = ["TritonBody"]

_REDUCTIONS = frozenset("sum max2 min2 any prod xor_sum max_with_index min_with_index".split())
_SAME = frozenset("to broadcast_to broadcast reshape trans expand_dims".split())
_NOTHING = frozenset("full zeros arange program_id device_assert debug_barrier num_programs".split())


class TritonBody(Body):
    """A body with what flows into what."""

    def __init__(self, pointers: set[str], parameters: list[str]) -> None:
        super().__init__(pointers, parameters)
        self.flow = Flow(self._runs)
        self._named: dict[str, Value] = {}

    def statement(self, statement: ast.stmt) -> None:
        """Follow one statement."""
        if isinstance(statement, ast.Assign):
            value = self._value(statement.value)
            for target in ast.walk(statement.targets[0]):
                if isinstance(target, ast.Name):
                    self._named[target.id] = value
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            what = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if what.startswith("atomic_") and len(call.args) > 1:
                self.flow.store(self.flow.apply(1, [self._value(call.args[1])]))
            elif what == "store" and len(call.args) > 1:
                self.flow.store(self._value(call.args[1]))

    def _runs(self, lanes: frozenset[Lane]) -> int | None:
        """Not more than the kernel has runs, however its indices overlap."""
        of: dict[str, list[int | None]] = defaultdict(list)
        for lane in lanes:
            of[lane.runs].append(lane.length)
        counts: list[int | None] = []
        for runs, lengths in of.items():
            span, whole = product(lengths), self.numel(runs)
            counts.append(whole if span is None else span if whole is None else min(span, whole))
        return product(counts)

    def _value(self, node: ast.expr) -> Value:
        if (extent := self.extent(node)) is not None:
            return Value(frozenset([Lane(ast.dump(self.resolved(node)), *extent)]))
        if isinstance(node, ast.Name):
            return self._named.get(node.id, Value())
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):  # [:, None]
            return self._value(node.value)
        weight = int(isinstance(node, (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp)))
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return self.flow.apply(weight, map(self._value, parts))

    def _call(self, node: ast.Call) -> Value:
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        )
        if name == "load" and node.args:
            place = node.args[0].right if isinstance(node.args[0], ast.BinOp) else node.args[0]
            return Value(self._value(place).lanes, True)
        if name in _NOTHING:
            return Value()
        method = isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name | ast.Attribute)
        base = [node.func.value] if isinstance(node.func, ast.Attribute) and (method or self._is_value(node.func.value)) else []
        arguments = [*base, *node.args]
        if name in _SAME:
            return self._value(arguments[0]) if arguments else Value()
        self.flow.known &= name not in ("dot", "dot_scaled")
        if name in _REDUCTIONS or name == "welford":
            return self._reduced(name, arguments)
        if name == "welford_reduce":
            return self.flow.apply(weight_of(name), map(self._value, arguments[:1]))
        values = [self._value(argument) for argument in arguments]
        if name == "where" and values:
            return self.flow.choose(values[0], values[1:])
        return self.flow.apply(weight_of(name), values)

    def _is_value(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._named

    def _reduced(self, name: str, arguments: list[ast.expr]) -> Value:
        """Over the elements of the reduction; what a loop summed up before is only put together."""
        summed = any(isinstance(part, ast.Name) and part.id.startswith("_tmp") for part in arguments) or name == "welford"
        whole = self.flow.apply(0 if summed else 1, map(self._value, arguments))
        return Value(frozenset(lane for lane in whole.lanes if not lane.runs.startswith("r")), whole.data, whole.steps)
