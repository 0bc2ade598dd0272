"""Turns one op call into what the algorithm needs: FLOPs, bytes and the text of its shapes, forward and backward.

A formula is a function whose parameters are the op's own signature, registered under every name of the op. It receives what was
recorded (`TensorSpec`, scalars, lists, None, UNKNOWN) and returns a `Cost`. Here: the two registries, binding arguments to
parameters, and evaluation, which never raises. This file knows no op, no kernel, no file format and no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

from pyprof.dtypes import lookup
from pyprof.opcall import UNKNOWN, OpCall, TensorSpec

__all__ = [
    "Cost",
    "Missing",
    "Piece",
    "Result",
    "backward",
    "bind",
    "evaluate",
    "evaluate_backward",
    "formula",
    "gives_way",
    "is_copy",
    "is_structural",
    "known",
    "matmul_class",
    "moves",
    "names",
    "namespace_formula",
    "params",
]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one execution of an op needs; None is unknown, 0 is zero.

    matmul_flops: operations of matrix products, convolutions and attention (FMA = 2); vector_flops: all others;
    bytes: each input read once at its stored size and each output written once; mnk: rows, columns and depth of the matrix
    product (of one group or batch entry), batch: how many of those; params: text of the `params` column where the formula
    has a better one than the shapes.
    """

    matmul_flops: int | None = None
    vector_flops: int | None = None
    bytes: int | None = None
    mnk: tuple[int, int, int] | None = None
    batch: int = 1
    params: str | None = None

    @property
    def flops(self) -> int | None:
        """Matrix and vector operations together, None where either is unknown."""
        if self.matmul_flops is None or self.vector_flops is None:
            return None
        return self.matmul_flops + self.vector_flops


class Piece(NamedTuple):
    """One kernel-sized part of an op's backward: `dgrad`, `wgrad`, `bias`, or the name of the input it is the gradient of."""

    name: str
    cost: Cost


class Result(NamedTuple):
    """A cost, and one line saying why where something in it is unknown."""

    cost: Cost
    reason: str = ""


class Missing(Exception):
    """Raised by a formula that needs an argument which the capture did not record."""


Forward = Callable[..., Cost]
Backward = Callable[..., tuple[Piece, ...]]
F = TypeVar("F", bound=Callable[..., Any])


class _Entry(NamedTuple):
    function: Forward
    kind: str
    composed: bool


_FORWARD: dict[str, _Entry] = {}
_NAMESPACES: dict[str, _Entry] = {}  # of ops whose names are made by a compiler
_BACKWARD: dict[str, Backward] = {}
_KINDS = ("", "matmul", "copy", "structural")


def formula(*op_names: str, kind: str = "", composed: bool = False) -> Callable[[F], F]:
    """Register the function below as the forward formula of these ops, each named as `OpCall.name` names it.

    Its parameters are the op's own: names, order and defaults as in torch; one annotated `list[TensorSpec]` takes a list of
    tensors. It returns a `Cost`, or raises `Missing`. kind: `matmul` (a matrix product, convolution or attention), `copy`
    (copies and casts), `structural` (no work on data) or nothing. composed: the op only calls others that have formulas of
    their own, and gives way to them where its own arguments were not recorded. Raises ValueError for a name that has a formula
    already.

        from pyprof.prof.formulas import Cost

        @pyprof.formula("mymod.fused_mlp")
        def fused_mlp(x, w1, w2):
            return Cost(matmul_flops=4 * x.numel * w1.shape[0], vector_flops=0)

    It counts for captures that this process reads afterwards (`pyprof.load`, `pyprof.table`).
    """
    if kind not in _KINDS:
        raise ValueError(f"no kind {kind!r} of formulas; there are {', '.join(map(repr, _KINDS))}")

    def register(function: F) -> F:
        for name in op_names:
            if name in _FORWARD:
                raise ValueError(f"{name} has a formula already: {_FORWARD[name].function.__qualname__}")
            _FORWARD[name] = _Entry(function, kind, composed)
        return function

    return register


def namespace_formula(namespace: str) -> Callable[[F], F]:
    """Register the function below as the formula of every op of a namespace of the dispatcher that has none of its own."""

    def register(function: F) -> F:
        _NAMESPACES[namespace] = _Entry(function, "", composed=False)
        return function

    return register


def _find(name: str) -> _Entry | None:
    namespace, joint, _ = name.partition("::")
    return _FORWARD.get(name) or (_NAMESPACES.get(namespace) if joint else None)


def backward(*op_names: str) -> Callable[[F], F]:
    """Register the function below as the backward of these ops; it has the signature of the forward.

    It returns the `Piece`s in the order in which autograd launches them, without those of inputs whose `grad` is False.
    Raises ValueError for a name that has one already.
    """

    def register(function: F) -> F:
        for name in op_names:
            if name in _BACKWARD:
                raise ValueError(f"{name} has a backward formula already: {_BACKWARD[name].__qualname__}")
            _BACKWARD[name] = function
        return function

    return register


def known(name: str) -> bool:
    """Whether an op of this full name (`aten::mm`, `Tensor.__mul__`) has a forward formula."""
    return _find(name) is not None


def names() -> tuple[str, ...]:
    """Every name that has a forward formula, sorted."""
    return tuple(sorted(_FORWARD))


def _kind(name: str) -> str:
    entry = _find(name)
    return "" if entry is None else entry.kind


def is_copy(name: str) -> bool:
    """Whether the op copies or casts and does nothing else."""
    return _kind(name) == "copy"


def is_structural(name: str) -> bool:
    """Whether the op does no work on data: views, allocation, questions about sizes."""
    return _kind(name) == "structural"


def gives_way(call: OpCall) -> bool:
    """Whether the ops that this one calls tell its cost, and its own arguments do not (einsum without its equation)."""
    entry = _find(call.name)
    return entry is not None and entry.composed and evaluate(call).cost.flops is None


def moves(call: OpCall) -> bool:
    """Whether the call only copies or fills: it computes nothing."""
    return is_copy(call.name) or evaluate(call).cost.flops == 0


def matmul_class(name: str) -> bool:
    """Whether the op's main work is a matrix product, a convolution or attention."""
    return _kind(name) == "matmul"


# ---------------------------------------------------------------------------------------------- binding


class _Parameter(NamedTuple):
    name: str
    required: bool
    tensor: bool
    many: bool  # a list of tensors
    rest: bool  # *args
    any_key: bool  # **kwargs


@cache
def _parameters(function: Callable[..., Any]) -> tuple[_Parameter, ...]:
    found = inspect.signature(function).parameters.values()
    return tuple(
        _Parameter(
            name=p.name,
            required=p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD),
            tensor=str(p.annotation) == "TensorSpec",
            many="list[TensorSpec]" in str(p.annotation),
            rest=p.kind is p.VAR_POSITIONAL,
            any_key=p.kind is p.VAR_KEYWORD,
        )
        for p in found
    )


# Other spellings of a keyword, used where a formula has no parameter of its own by that name; and keywords that change
# neither FLOPs nor bytes.
_ALIASES = {
    "axis": "dim", "keepdims": "keepdim", "train": "training", "self": "input", "x": "input", "x1": "input", "a": "input",
    "A": "input",
    "mat_a": "input", "mat_b": "mat2", "x2": "other", "weight": "other", "exponent": "other", "values": "other", "min": "other",
    "max": "other", "padding": "pad", "output_tensor": "output", "input_tensor": "input", "tensor_list": "output",
    "tensor": "input",
    "input_list": "input", "output_tensor_list": "output", "input_tensor_list": "input", "gather_list": "others",
    "scatter_list": "others", "tensors": "tensor",
}  # fmt: skip
_IGNORED = frozenset(
    "device layout pin_memory requires_grad generator memory_format non_blocking names inplace out_dtype async_op sparse_grad"
    " _stacklevel use_deterministic_mode dtype out copy inferred".split()
)


def _positional(call: OpCall, parameters: Sequence[_Parameter]) -> dict[str, Any]:
    args = call.args
    values: dict[str, Any] = {}
    at = 0
    for parameter in parameters:
        if at >= len(args) or parameter.any_key:
            break
        if parameter.rest:
            values[parameter.name] = args[at:]
            at = len(args)
        elif parameter.many and not isinstance(args[at], (list, tuple)) and call.flat:
            begin = at
            while at < len(args) and isinstance(args[at], TensorSpec):
                at += 1
            values[parameter.name] = list(args[begin:at])
        else:
            values[parameter.name] = args[at]
            at += 1
    if any(isinstance(extra, TensorSpec) for extra in args[at:]):
        # The `out` overload of a dispatcher op gives its result last.
        names = {p.name for p in parameters}
        if not call.dispatcher or len(args) - at > 1:
            raise Missing(f"{len(args)} arguments where the formula takes {at}")
        if "out" in names:
            values["out"] = args[-1]
    return values


def bind(function: Callable[..., Any], call: OpCall) -> dict[str, Any]:
    """The call's arguments by the function's parameter names; absent optional ones are left to the function's defaults.

    Arguments after the last parameter are dropped where they are no tensors (overloads differ in trailing options).
    Raises Missing where the call does not fit.
    """
    parameters = _parameters(function)
    by_name = {p.name for p in parameters if not (p.rest or p.any_key)}
    any_key = any(p.any_key for p in parameters)
    values = _positional(call, parameters)
    for key, value in call.kwargs:
        name = key if key in by_name else _ALIASES.get(key, key)
        if name not in by_name and key in ("input", "self") and parameters:
            name = parameters[0].name
        if name in by_name:
            values[name] = value
        elif any_key:
            values[key] = value
        elif name not in _IGNORED:
            raise Missing(f"the formula has no argument {key!r}")
    if call.flat:
        for parameter in parameters:
            if parameter.tensor and isinstance(values.get(parameter.name), (int, float)):
                # The original PyProf wrote 0-dimensional tensors as their value.
                values[parameter.name] = TensorSpec(())
    for parameter in parameters:
        if parameter.required and parameter.name not in values:
            raise Missing(f"{parameter.name} not recorded")
    return values


def _invoke(function: Callable[..., Any], values: dict[str, Any]) -> Any:
    rest = next((p.name for p in _parameters(function) if p.rest), None)
    if rest is None:
        return function(**values)
    extra = values.get(rest, ())
    if not extra:
        return function(**{name: value for name, value in values.items() if name != rest})
    order = [p.name for p in _parameters(function)]
    leading = order[: order.index(rest)]
    keyword = {name: value for name, value in values.items() if name != rest and name not in leading}
    return function(*(values[name] for name in leading), *extra, **keyword)


# ---------------------------------------------------------------------------------------------- evaluation


def evaluate(call: OpCall) -> Result:
    """The cost of a call; where the formula is missing or cannot be used, a cost of Nones and the reason. Never raises."""
    entry = _find(call.name)
    if entry is None:
        return Result(Cost(), f"no formula for {call.name}")
    if entry.kind == "structural":
        return Result(Cost(0, 0, 0))
    cost, reason = _evaluate(entry.function, call, call)
    if cost is None:
        return Result(Cost(), reason)
    return Result(cost, _gap(call, cost))


def _gap(call: OpCall, cost: Cost) -> str:
    """Why a cost is not whole; empty where it is."""
    if cost.bytes is None:
        sized = all(t.itemsize is not None for t in call.tensors)
        return f"{call.op}: size of the result not recorded" if sized else f"{call.op}: dtype not recorded"
    return f"{call.op}: FLOPs not known" if cost.flops is None else ""


def evaluate_backward(call: OpCall) -> tuple[Piece, ...]:
    """The pieces of the call's backward in launch order; empty where no formula applies. Never raises."""
    function = _BACKWARD.get(call.name)
    if function is None:
        return ()
    pieces, _ = _evaluate(function, call, _settle_grads(call))
    return () if pieces is None else tuple(pieces)


def _evaluate(function: Callable[..., Any], call: OpCall, bound: OpCall) -> tuple[Any, str]:
    if not call.described:
        return None, f"{call.op}: arguments not recorded"
    values: dict[str, Any] = {}
    try:
        values = bind(function, bound)
        return _invoke(function, values), ""
    except Missing as missing:
        return None, f"{call.op}: {missing}"
    except Exception as error:  # a formula, perhaps a user's, that does not fit this call must not stop the report
        unknown = [name for name, value in values.items() if value is UNKNOWN]
        if unknown:
            return None, f"{call.op}: {', '.join(unknown)} not recorded"
        return None, f"{call.op}: formula failed, {type(error).__name__}: {error}"


def _settle_grads(call: OpCall) -> OpCall:
    """The call with grad None made False where another tensor is known to have wanted a gradient (then all were asked)."""
    if not any(t.grad for t in call.tensors):
        return call
    return call.map_tensors(lambda tensor: tensor if tensor.grad is not None else replace(tensor, grad=False))


# ---------------------------------------------------------------------------------------------- the params column


def params(call: OpCall) -> str:
    """Text of the `params` column, no blanks: `M=700,N=33278,K=200,fp32`, else shapes `[35,20]fp32;[200]fp32`, else `na`."""
    if known(call.name):
        text = evaluate(call).cost.params
        if text:  # what the capture did not hold is said to be inferred
            return f"{text},inferred" if any(key == "inferred" for key, _ in call.kwargs) else text
    return describe(call.tensors)


def describe(tensors: Iterable[TensorSpec]) -> str:
    """Shapes and dtype tags: `[35,20,200]fp32;[200]fp32`; `na` for no tensors."""
    parts = []
    for t in tensors:
        found = lookup(t.dtype)
        parts.append(f"[{','.join(map(str, t.shape))}]{found.tag if found else ''}")
    return ";".join(parts) or "na"
