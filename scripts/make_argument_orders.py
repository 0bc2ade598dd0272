"""Writes pyprof/prof/formulas/arguments.txt: the arguments of torch's ops in their order, out of torch's own schemas.

    python scripts/make_argument_orders.py

One op a line, sorted: `aten::addmm input mat1 mat2 beta alpha`. `self` is written `input`; a list of tensors has `[]` behind
its name. Of several overloads the longest gives the order (the first of equals), and the arguments that only others have follow
after `|`; a formula whose op needs another order writes it itself. Overloads with a new argument before old ones do not count.
Functions of torch that are written in Python have a line where their order is another than that of the dispatcher's op of the
same name. Ops without tensors are left out.
"""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.overrides import get_testing_overrides, resolve_name

FILE = Path(__file__).resolve().parents[1] / "pyprof" / "prof" / "formulas" / "arguments.txt"
NAMESPACES = ("aten", "quantized", "prims", "_quantized")
INSERTED = {"out_dtype", "q_descale"}


def argument(name: str, kind: str) -> str:
    """An argument as the table has it."""
    return ("input" if name == "self" else name) + (
        "[]" if kind.startswith(("List[Tensor", "List[Optional[Tensor", "Tensor?[]")) else ""
    )


def dispatcher_orders() -> dict[str, str]:
    """Line of each op of the dispatcher."""
    overloads: dict[str, list[list[str]]] = {}
    for schema in torch._C._jit_get_all_schemas():
        kinds = [str(a.type) for a in schema.arguments]
        if schema.name.partition("::")[0] not in NAMESPACES or not any("Tensor" in kind for kind in kinds):
            continue
        if any("Dimname" in kind for kind in kinds) or any(a.is_out for a in schema.arguments):
            continue
        order = [argument(a.name, kind) for a, kind in zip(schema.arguments, kinds, strict=True)]
        overloads.setdefault(schema.name, []).append(order)
    return {name: line(orders) for name, orders in overloads.items()}


def line(orders: list[list[str]]) -> str:
    """The longest order, and the names that only others have."""
    longest = max([order for order in orders if not INSERTED.intersection(order)] or orders, key=len)
    names = {name.removesuffix("[]") for name in longest}
    others = dict.fromkeys(name.removesuffix("[]") for order in orders for name in order)
    rest = [name for name in others if name not in names]
    return " ".join([*longest, *(["|", *rest] if rest else [])])


def python_orders(dispatcher: dict[str, str]) -> dict[str, str]:
    """Line of each function written in Python whose order is its own."""
    found: dict[str, str] = {}
    functions: dict[Any, Any] = get_testing_overrides()
    for function in functions:
        name = resolve_name(function) or ""
        if not inspect.isfunction(function) or not name.startswith("torch.") or name.startswith("torch.Tensor.__"):
            continue
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            continue
        order = " ".join("input" if p.name == "self" else p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
        name = name.removeprefix("torch.") if name.startswith("torch.Tensor.") else name
        base = dispatcher.get("aten::" + name.rpartition(".")[2], "")
        if order and base.replace("[]", "").split(" |")[0] != order:
            found[name] = order
    return found


def main() -> None:
    """Write the table."""
    warnings.simplefilter("ignore")
    dispatcher = dispatcher_orders()
    lines = {**dispatcher, **python_orders(dispatcher)}
    FILE.write_text("".join(f"{name} {order}\n" for name, order in sorted(lines.items())), encoding="utf-8")
    print(f"{len(lines)} ops, {FILE.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
