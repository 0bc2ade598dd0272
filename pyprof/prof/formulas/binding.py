"""Binds a recorded call's arguments to the parameters of a formula, which names only those that it uses.

The order of positional arguments is, in this order: the one written with the formula (`order=`); that of the table
`arguments.txt`, which scripts/make_argument_orders.py writes out of torch's own schemas; that of the formula's own parameters.
This file knows no costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec


class Missing(Exception):
    """Raised by a formula that needs an argument which the capture did not record."""


# Other names of arguments: NumPy's, which torch accepts too, and names that differ among the functions of one formula. Used if
# the formula has no parameter by the keyword's own name.
_ALIASES = {
    "axis": "dim", "keepdims": "keepdim", "self": "input", "x": "input", "x1": "input", "a": "input", "A": "input",
    "x2": "other", "mat_a": "input", "mat_b": "mat2", "output_tensor": "output", "input_tensor": "input",
    "tensor_list": "output", "tensor": "input", "input_list": "input", "output_tensor_list": "output",
    "input_tensor_list": "input", "tensors": "tensor",
}  # fmt: skip
# Keywords that change neither FLOPs nor bytes.
_IGNORED = frozenset(
    "device layout pin_memory requires_grad generator memory_format non_blocking names inplace out_dtype async_op sparse_grad"
    " _stacklevel use_deterministic_mode dtype out copy inferred".split()
)
# Where the arguments of a name that the table lacks are found.
_SAME_ARGUMENTS = {
    "torch.nn.functional.": "aten::", "torch.linalg.": "aten::linalg_", "torch.special.": "aten::special_",
    "torch.fft.": "aten::fft_", "torch._C._nn.": "aten::", "torch.": "aten::", "Tensor.": "aten::",
}  # fmt: skip


class Plan(NamedTuple):
    """How the arguments of one name of an op reach the parameters of its formula.

    order: parameter or argument by position; open: whether more follow that no formula needs (`...`); lists: those of them that
    are lists of tensors; ignored: keywords of the op that the formula does not use; takes: the formula's parameters; required:
    those without a default; tensors: those annotated TensorSpec; rest: the name of *args, any_key: whether it has **kwargs;
    renamed: parameter by the op's argument.
    """

    order: tuple[str, ...]
    open: bool
    lists: frozenset[str]
    ignored: frozenset[str]
    takes: frozenset[str]
    required: tuple[str, ...]
    tensors: tuple[str, ...]
    rest: str | None
    any_key: bool
    renamed: Mapping[str, str]


@cache
def _table() -> dict[str, str]:
    """Line of the table by op."""
    text = Path(__file__).with_name("arguments.txt").read_text(encoding="utf-8")
    return dict(line.split(" ", 1) for line in text.splitlines())


def _recorded_order(name: str) -> str | None:
    """The table's line for an op or for the dispatcher op behind it; None if there is none."""
    table = _table()
    if name in table:
        return table[name]
    for prefix, dispatcher in _SAME_ARGUMENTS.items():
        if name.startswith(prefix):
            return table.get(dispatcher + name.removeprefix(prefix))
    return None


def plan(function: Callable[..., object], name: str, order: str | None, renamed: Mapping[str, str]) -> Plan:
    """How a call of that name is bound; order: argument names as the table writes them, `""` for the function's own.

    A function with *args has its own order too.
    """
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    takes = code.co_varnames[:count]
    rest = code.co_varnames[count] if code.co_flags & 0x04 else None
    annotations = {key: str(text) for key, text in function.__annotations__.items()}
    defaults = {
        *takes[code.co_argcount - len(function.__defaults__ or ()) : code.co_argcount],
        *(function.__kwdefaults__ or ()),
    }
    line = "" if rest else _recorded_order(name) if order is None else order
    own = [f"{p}[]" if "list[TensorSpec]" in annotations.get(p, "") else p for p in takes]
    positional, _, others = (line or " ".join(own[: code.co_argcount] if rest else own)).partition(" |")
    arguments = [
        renamed.get(a.removesuffix("[]"), a.removesuffix("[]")) + a[len(a.removesuffix("[]")) :] for a in positional.split()
    ]
    names = tuple(a.removesuffix("[]") for a in arguments if a != "...")
    return Plan(
        order=names,
        open="..." in arguments,
        lists=frozenset(a.removesuffix("[]") for a in (*arguments, *own) if a.endswith("[]")),
        ignored=frozenset((*names, *others.split())).difference(takes),
        takes=frozenset(takes),
        required=tuple(p for p in takes if p not in defaults),
        tensors=tuple(p for p in takes if annotations.get(p) == "TensorSpec"),
        rest=rest,
        any_key=bool(code.co_flags & 0x08),
        renamed=renamed,
    )


def bind(how: Plan, call: OpCall) -> tuple[dict[str, object], tuple[object, ...]]:
    """The call's arguments by parameter, and those for *args; absent ones are left to the function's defaults.

    Arguments after the last of the order are dropped where they are no tensors (overloads differ in trailing options).
    Raises Missing if the call does not fit.
    """
    values, at = _by_position(how, call)
    extra = call.args[at:]
    if how.rest is None and not how.open and any(isinstance(value, TensorSpec) for value in extra):
        # The `out` overload of a dispatcher op gives its result last.
        if not call.dispatcher or len(extra) > 1:
            raise Missing(f"{len(call.args)} arguments where the formula takes {at}")
        if "out" in how.takes:
            values["out"] = extra[0]
    for key, value in call.kwargs:
        name = _parameter(how, key, values)
        if name is not None:
            values[name] = value
    for name in how.tensors if call.flat else ():
        if isinstance(values.get(name), (int, float)):  # the original PyProf wrote 0-dimensional tensors as their value
            values[name] = TensorSpec(())
    for name in how.required:
        if name not in values:
            raise Missing(f"{name} not recorded")
    used = {name: value for name, value in values.items() if name in how.takes or (how.any_key and name not in how.ignored)}
    return used, () if how.rest is None else extra


def invoke(function: Callable[..., object], how: Plan, values: Mapping[str, object], extra: tuple[object, ...]) -> object:
    """Call the function with arguments bound by `bind`."""
    if not extra:
        return function(**values)
    leading = [values[name] for name in how.order]
    return function(*leading, *extra, **{name: value for name, value in values.items() if name not in how.order})


def _by_position(how: Plan, call: OpCall) -> tuple[dict[str, object], int]:
    """Positional arguments by name, and how many there are of those."""
    args = call.args
    values: dict[str, object] = {}
    at = 0
    for name in how.order:
        if at >= len(args):
            break
        if call.flat and name in how.lists and not isinstance(args[at], (list, tuple)):
            begin = at
            while at < len(args) and isinstance(args[at], TensorSpec):
                at += 1
            values[name] = list(args[begin:at])
        else:
            values[name] = args[at]
            at += 1
    return values, at


def _parameter(how: Plan, key: str, values: Mapping[str, object]) -> str | None:
    """The parameter that a keyword sets; None if the formula does not use it. Raises Missing for an unknown keyword."""
    key = how.renamed.get(key, key)
    if key in how.takes:
        return key
    if key in how.ignored:
        return None
    alias = _ALIASES.get(key, key)
    if alias in how.takes and values.get(alias, UNKNOWN) is UNKNOWN:  # another name does not replace what the caller gave
        return alias
    if key in ("input", "self") and alias not in how.takes and how.order:  # NCCL's annotations give it by position too
        return how.order[0]
    if how.any_key:
        return key
    if key in _IGNORED or alias in how.ignored:
        return None
    raise Missing(f"the formula has no argument {key!r}")
