"""Turns one op call into what the algorithm needs: FLOPs, bytes and the text of its shapes, forward and backward.

A formula is declared once with `op`, under every name of the op. It receives what was recorded (`TensorSpec`, scalars, lists,
None, UNKNOWN) in the parameters that it names, yields the forward's `Cost`, and then the `Piece`s of the backward in the order
in which autograd launches them; one without a backward returns its `Cost`. Nothing after the first `yield` runs unless a
backward is requested. Evaluation never raises. This file knows no op, no kernel, no file format and no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec
from pyprof.prof.formulas.binding import Missing as Missing  # formulas raise it
from pyprof.prof.formulas.binding import Plan, bind, invoke, plan


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one execution of an op; None is unknown, 0 is zero.

    matmul_flops: operations of matrix products, convolutions and attention (FMA = 2); vector_flops: all others;
    bytes: each input read once at its stored size and each output written once; mnk: rows, columns and depth of the matrix
    product (of one group or batch entry), batch: how many of those; params: text of the `params` column where the formula
    has a better one than the shapes; operands: type of what is multiplied, by torch's name, where the formula knows it;
    inferred: bytes follow from sizes by a rule that need not hold, as which experts' weights are read; at_least: a lower bound
    of the bytes where they are unknown; bound: `lower` or `upper` where the FLOPs are only a bound, as of attention whose
    window is not recorded.
    """

    matmul_flops: int | None = None
    vector_flops: int | None = None
    bytes: int | None = None
    mnk: tuple[int, int, int] | None = None
    batch: int = 1
    params: str | None = None
    operands: str | None = None
    inferred: bool = False
    at_least: int | None = None
    bound: Literal["", "lower", "upper"] = ""

    @property
    def flops(self) -> int | None:
        """Matrix and vector operations together, None if either is unknown."""
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


Op = Iterator[Cost | Piece | Missing]
"""A formula with a backward yields one Cost (or Missing, if only the backward is known), then its pieces in launch order."""

F = TypeVar("F", bound=Callable[..., object])


class _Declaration(NamedTuple):
    """One formula under some of its names."""

    function: Callable[..., object]
    kind: str
    composed: bool
    order: str | None  # "": the function's own
    has_backward: bool
    renamed: Mapping[str, str]


_FORWARD: dict[str, _Declaration] = {}
_PLANS: dict[tuple[str, Callable[..., object]], Plan] = {}
_KINDS = ("", "matmul", "copy", "structural")

# Where an op is found: t torch, T Tensor, a aten, F torch.nn.functional, s torch.special, l torch.linalg, f torch.fft;
# A, L, X: the dispatcher's names of the last three; =: nowhere else than where its name says.
_PLACES = {
    "t": "torch.", "T": "Tensor.", "a": "aten::", "F": "torch.nn.functional.", "s": "torch.special.", "A": "aten::special_",
    "l": "torch.linalg.", "L": "aten::linalg_", "f": "torch.fft.", "X": "aten::fft_", "=": "",
}  # fmt: skip


def spellings(op: str, places: str = "tTa") -> tuple[str, ...]:
    """The full names of an op: `spellings("mm")` is torch.mm, Tensor.mm, aten::mm."""
    return tuple(_PLACES[p] + op for p in places)


def op(
    *names: str, places: str = "tTa", kind: str = "", composed: bool = False, order: str | None = None, backward: bool = True,
    **renamed: str,
) -> Callable[[F], F]:  # fmt: skip
    """Declare the function below as the formula of these ops.

    names: full ones (`aten::embedding`), or bare ones (`mm`), which are found in all of `places` (see _PLACES); `inductor::*`
    are all ops of a namespace of the dispatcher that have no formula of their own (`op_name` says which). The function names
    the arguments that it uses as torch's schemas do, in any order; renamed: an op's argument -> the parameter that it is here
    (`input="indices"`).
    order: the arguments of these names, where torch's table has another order or none; `""`: the function's own parameters.
    backward: whether these names have one (in-place ops often do not). kind, composed: as for `formula`. Decorate twice where
    names of one op differ in any of these. Ops in place (`add_`) write their input: it is their `out`.
    """
    if kind not in _KINDS:
        raise ValueError(f"no kind {kind!r} of formulas; there are {', '.join(map(repr, _KINDS))}")
    full = [name for given in names for name in ((given,) if "." in given or "::" in given else spellings(given, places))]

    def register(function: F) -> F:
        _register(full, _Declaration(function, kind, composed, order, backward, renamed))
        return function

    return register


def formula(*op_names: str, kind: str = "", composed: bool = False) -> Callable[[F], F]:
    """Register the function below as the formula of these ops, each named as `OpCall.name` names it.

    Its parameters are the op's own: names, order and defaults as in torch; one annotated `list[TensorSpec]` takes a list of
    tensors. It returns a `Cost`, or raises `Missing`; to give the backward too, it yields the Cost and then a `Piece` for each
    part of the backward. kind: `matmul` (a matrix product, convolution or attention), `copy` (copies and casts), `structural`
    (no work on data) or nothing. composed: the op only calls others that have formulas of their own, and gives way to them
    where its own arguments were not recorded. Raises ValueError for a name that has a formula already.

        from pyprof.prof.formulas import Cost

        @pyprof.formula("mymod.fused_mlp")
        def fused_mlp(x, w1, w2):
            return Cost(matmul_flops=4 * x.numel * w1.shape[0], vector_flops=0)

    It counts for captures that this process reads afterwards (`pyprof.load`, `pyprof.table`).
    """
    return op(*op_names, places="=", kind=kind, composed=composed, order="")


def _register(names: Iterable[str], declared: _Declaration) -> None:
    for name in names:
        if name in _FORWARD:
            raise ValueError(f"{name} has a formula already: {_FORWARD[name].function.__qualname__}")
        _FORWARD[name] = declared


def _is_in_place(name: str) -> bool:
    """Whether an op writes its result to its first tensor: `add_`, `__iadd__`."""
    return (name.endswith("_") and not name.endswith("__")) or re.search(r"\b__i(?!nvert)\w+__$", name) is not None


# SGLang's profiler wraps functions as ops of its own, named after file, function and line.
_WRAPPED = re.compile(r"(sglang_profiler::\w+?)_\d+")


def _find(name: str) -> _Declaration | None:
    if (found := _FORWARD.get(name)) is not None or "::" not in name:
        return found
    wrapped = _WRAPPED.fullmatch(name)
    return _FORWARD.get(wrapped[1] if wrapped else f"{name.partition('::')[0]}::*")


def known(name: str) -> bool:
    """Whether an op of this full name (`aten::mm`, `Tensor.__mul__`) has a forward formula."""
    return _find(name) is not None


def namespaces() -> frozenset[str]:
    """Namespaces of the dispatcher's ops that have a formula: `aten`, `c10d`, `vllm`."""
    return frozenset(name.partition("::")[0] for name in _FORWARD if "::" in name) | _TORCH


def named(name: str) -> bool:
    """Whether a formula was declared for an op of just this full name, not for all of a namespace."""
    return name in _FORWARD and not name.endswith("*")


def has_backward(name: str) -> bool:
    """Whether an op of this full name has a formula of its backward: one that is annotated `-> Op`."""
    declared = _find(name)
    return declared is not None and declared.has_backward and declared.function.__annotations__.get("return") == "Op"


def names() -> tuple[str, ...]:
    """Every name that has a forward formula, sorted."""
    return tuple(sorted(name for name in _FORWARD if not name.endswith("*")))


def is_copy(name: str) -> bool:
    """Whether the op copies or casts and does nothing else."""
    declared = _find(name)
    return declared is not None and declared.kind == "copy"


def is_structural(name: str) -> bool:
    """Whether the op does no work on data: views, allocation, questions about sizes."""
    declared = _find(name)
    return declared is not None and declared.kind == "structural"


def matmul_class(name: str) -> bool:
    """Whether the op's main work is a matrix product, a convolution or attention."""
    declared = _find(name)
    return declared is not None and declared.kind == "matmul"


def multiplies(name: str) -> bool | None:
    """Whether the op multiplies matrices; None where no formula of its own says so, or it only calls others."""
    declared = _find(name) if name in _FORWARD or _WRAPPED.fullmatch(name) else None  # none of a whole namespace
    if declared is None or (declared.composed and declared.kind != "matmul"):
        return None
    return declared.kind == "matmul"


def asks(name: str) -> frozenset[str]:
    """The keyword-only parameters of an op's formula: facts that it needs beside the op's arguments."""
    declared = _find(name)
    if declared is None:
        return frozenset()
    code = declared.function.__code__
    return frozenset(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])


def lacks(call: OpCall, parameter: str) -> bool:
    """Whether an op's formula asks for an argument that the call does not have."""
    declared = _find(call.name)
    if declared is None:
        return False
    code = declared.function.__code__
    if parameter not in code.co_varnames[: code.co_argcount]:
        return False
    try:
        values, _ = bind(_plan(call.name, declared), call)
    except Missing:
        return False
    return values.get(parameter, UNKNOWN) is UNKNOWN


def gives_way(call: OpCall) -> bool:
    """Whether the cost follows from the ops that this one calls, not from its own arguments (einsum without its equation)."""
    declared = _find(call.name)
    return declared is not None and declared.composed and evaluate(call).cost.flops is None


def moves(call: OpCall) -> bool:
    """Whether the call only copies or fills: it computes nothing."""
    return is_copy(call.name) or evaluate(call).cost.flops == 0


# ---------------------------------------------------------------------------------------------- evaluation


def forward(made: object) -> Cost:
    """The forward cost in a formula's result, for formulas that call other formulas."""
    cost = next(made, None) if isinstance(made, Iterator) else made
    if isinstance(cost, Missing):
        raise cost
    if not isinstance(cost, Cost):
        raise TypeError(f"a formula gave {type(cost).__name__} where a Cost is expected")
    return cost


def as_run(call: OpCall) -> list[OpCall]:
    """The calls that did the work of this one, if they are known (DTensor: the same op with local sizes), else the call; none
    where nothing says that it computed."""
    listed = next((value for key, value in call.kwargs if key == "ran"), None)
    if listed is None:
        return [call]
    found = []
    for name, *args in listed:
        module, _, op_ = name.partition("::")
        found.append(OpCall(module, op_, tuple(args), dispatcher=True, flat=True))
    return found


def evaluate(call: OpCall) -> Result:
    """The cost of a call; where the formula is missing or cannot be used, a cost of Nones and the reason. Never raises."""
    ran = as_run(call)
    if ran == [call]:
        return _evaluate_one(call)
    if not ran and not is_structural(call.name):
        return Result(Cost(), f"{call.op}: traced by torch.compile, or left to a mode of Python's")
    results = [*map(_evaluate_one, ran)]
    if len(results) == 1:
        return results[0]

    def total(name: str) -> int | None:
        values = [getattr(one.cost, name) for one in results]
        return None if any(value is None for value in values) else sum(values)

    products = [one.cost for one in results if one.cost.mnk is not None]
    mnk, batch = (products[0].mnk, products[0].batch) if len(products) == 1 else (None, 1)
    whole = Cost(total("matmul_flops"), total("vector_flops"), total("bytes"), mnk, batch)
    whole = replace(whole, bound=next((one.cost.bound for one in results if one.cost.bound), ""))
    return Result(whole, next((one.reason for one in results if one.reason), ""))


def _evaluate_one(call: OpCall) -> Result:
    declared = _find(call.name)
    if declared is None:
        return Result(Cost(), f"no formula for {call.name}")
    if declared.kind == "structural":
        return Result(Cost(0, 0, 0))
    if not call.described:
        return Result(Cost(), f"{call.op}: arguments not recorded")
    made, reason = _evaluate(declared, call, forward)
    return Result(Cost(), reason) if made is None else Result(made, _gap(call, made))


def least_bytes(call: OpCall) -> int | None:
    """A lower bound of the bytes of an op outside torch that has no formula: each tensor with as many rows as the first one,
    once. Weights, tables and caches are left out, since the op may touch only a part of them. None without such tensors."""
    if not call.dispatcher or call.module in _TORCH or not call.described:
        return None
    tensors = [t for arg in call.args for t in (arg if isinstance(arg, (list, tuple)) else [arg]) if isinstance(t, TensorSpec)]
    tensors = [t for t in tensors if t.shape]
    sizes = [t.nbytes for t in tensors if t.shape[0] == tensors[0].shape[0]]
    known = [size for size in sizes if size is not None]
    return sum(known) or None


# Namespaces of torch's own ops, whose formulas say all that can be known, and of ranges that launch nothing themselves.
_TORCH = frozenset({"aten", "prim", "autograd", "c10d", "nccl", "inductor", "quantized", "aoti", "higher_order"})


def _gap(call: OpCall, cost: Cost) -> str:
    """Why a part of a cost is unknown; empty where all is known."""
    if cost.bytes is None and cost.at_least is None:
        sized = all(t.itemsize is not None for t in call.tensors)
        return f"{call.op}: size of the result not recorded" if sized else f"{call.op}: dtype not recorded"
    return f"{call.op}: FLOPs not known" if cost.flops is None else ""


def evaluate_backward(call: OpCall) -> tuple[Piece, ...]:
    """The pieces of the call's backward in launch order; empty where no formula applies. Never raises."""
    ran = as_run(call)
    if len(ran) != 1:
        return ()
    call = ran[0]
    declared = _find(call.name)
    if declared is None or not declared.has_backward or not call.described:
        return ()
    pieces, _ = _evaluate(declared, _settle_grads(call), _pieces)
    return pieces or ()


def _pieces(made: object) -> tuple[Piece, ...]:
    return tuple(piece for piece in made if isinstance(piece, Piece)) if isinstance(made, Iterator) else ()


_T = TypeVar("_T")


def _evaluate(declared: _Declaration, call: OpCall, finish: Callable[[object], _T]) -> tuple[_T | None, str]:
    """Evaluate a formula for a call: the result, or None and the reason."""
    values: dict[str, object] = {}
    try:
        how = _plan(call.name, declared)
        values, extra = bind(how, call)
        if "out" in how.takes and _is_in_place(call.name):
            values["out"] = values.get("input")
        if "op_name" in how.takes:  # of the ops of a namespace
            values["op_name"] = call.op
        return finish(invoke(declared.function, how, values, extra)), ""
    except Missing as missing:
        return None, f"{call.op}: {missing}"
    except Exception as error:  # a formula, perhaps a user's, that does not fit this call must not stop the report
        unknown = [name for name, value in values.items() if value is UNKNOWN]
        if unknown:
            return None, f"{call.op}: {', '.join(unknown)} not recorded"
        return None, f"{call.op}: formula failed, {type(error).__name__}: {error}"


def _plan(name: str, declared: _Declaration) -> Plan:
    key = (name, declared.function)
    found = _PLANS.get(key)
    if found is None:
        found = _PLANS[key] = plan(declared.function, name, declared.order, declared.renamed)
    return found


def _settle_grads(call: OpCall) -> OpCall:
    """The call with grad None made False where another tensor wanted a gradient (then all were queried)."""
    if not any(t.grad for t in call.tensors):
        return call
    return call.map_tensors(lambda tensor: tensor if tensor.grad is not None else replace(tensor, grad=False))


# ---------------------------------------------------------------------------------------------- the params column


def params(call: OpCall) -> str:
    """Text of the `params` column, no blanks: `M=700,N=33278,K=200,fp32`, else shapes `[35,20]fp32;[200]fp32`, else `na`."""
    if known(call.name):
        text = evaluate(call).cost.params
        if text:
            return f"{text},inferred" if any(key == "inferred" for key, _ in call.kwargs) else text
    calls = [one._replace(kwargs=tuple(item for item in one.kwargs if item[0] != "inside")) for one in as_run(call) or [call]]
    return describe(tensor for one in calls for tensor in one.tensors)


def describe(tensors: Iterable[TensorSpec]) -> str:
    """Shapes and dtype tags: `[35,20,200]fp32;[200]fp32`; `na` for no tensors."""
    parts = []
    for t in tensors:
        found = lookup(t.dtype)
        parts.append(f"[{','.join(map(str, t.shape))}]{found.tag if found else ''}")
    return ";".join(parts) or "na"
