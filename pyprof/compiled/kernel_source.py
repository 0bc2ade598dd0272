"""The source of a kernel that TorchInductor generated (C++ or Triton) -> its use of each argument.

Read as text or as a syntax tree, never run. Knows no buffers and their sizes, no modules and no captures.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyprof.compiled.cpp_body import CppBody
from pyprof.compiled.flow import Accesses
from pyprof.compiled.syntax import called, literal, parsed
from pyprof.compiled.triton_body import TritonBody
from pyprof.model.dtypes import lookup

_HEURISTICS = {
    "pointwise": "pointwise", "reduction": "reduction", "persistent_reduction": "persistent reduction", "template": "template",
    "foreach": "foreach", "split_scan": "split scan", "cooperative_reduction": "reduction", "user_autotune": "user Triton",
}  # fmt: skip
_FACTS = ("signature", "mutated_arg_names", "kernel_name", "kernel_num_gb", "kernel_flop")  # in the decorator of a kernel
_NO_AMOUNT = 1e30


@dataclass(frozen=True)
class Pointer:
    """One tensor argument. itemsize: bytes of an element, None unknown; reads: the old content is read; most: upper bound of
    the elements touched, None unknown."""

    itemsize: int | None
    reads: bool
    writes: bool
    most: int | None = None


@dataclass(frozen=True)
class Kernel:
    """arguments: in call order, None for scalars; category: from its heuristic, "" unknown; names: its recorded names; num_gb,
    flop: Inductor's estimates or None; operations: counted here, None unknown."""

    arguments: tuple[Pointer | None, ...]
    category: str = ""
    names: frozenset[str] = field(default_factory=frozenset)
    num_gb: float | None = None
    flop: float | None = None
    operations: int | None = None


def amount(value: object) -> float | None:
    """A number of bytes or operations as an int; None if the value is not a number."""
    try:
        number = float(value if isinstance(value, (int, float)) else str(value))
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < _NO_AMOUNT else None


_C_FUNCTION = re.compile(r'extern "C"[^(;{]*\bvoid\b[^(;{]*?(\w+)\s*\((?P<list>[^)]*)\)', re.DOTALL)
_RECORDED = re.compile(r'RecordFunctionHandle\s+\w+\("(?P<name>[^"]+)"')


def cpp_kernel(types: Sequence[str], source: str) -> Kernel:
    """A kernel passed to `async_compile.cpp_pybinding`. types: the C types of its arguments."""
    found = _C_FUNCTION.search(source)
    declared = [part.strip().rpartition("*")[2].split()[-1:] for part in found["list"].split(",")] if found else []
    names = [name[0] if name else "" for name in declared]
    body = CppBody(set(names) - {""})
    body.read(source[found.end() :] if found else "")
    names += [""] * (len(types) - len(names))
    arguments = [_cpp_pointer(kind, name, body.accesses.get(name)) for kind, name in zip(types, names, strict=False)]
    recorded = _RECORDED.search(source)
    titles = frozenset([recorded["name"]] if recorded else [])
    return Kernel(tuple(arguments), "cpp_fused", titles, operations=body.flow.operations)


def _itemsize(kind: str) -> int | None:
    """Bytes of an element of a C++ or Triton type; None if unknown."""
    if kind == "i1" or kind.startswith("fp8"):
        return 1
    found = lookup(kind.removesuffix("_t"))
    return None if found is None or found.bits % 8 else found.bits // 8


def _cpp_pointer(kind: str, name: str, seen: Accesses | None) -> Pointer | None:
    if not kind.rstrip().endswith("*"):
        return None
    constant = kind.lstrip().startswith("const")
    size = _itemsize(kind.rstrip(" *").removeprefix("const ").strip())
    reads = constant or (seen.first_reads if seen and seen.known else name.startswith("in_out"))
    return Pointer(size, reads, not constant, seen.most if seen else None)


def triton_kernel(source: str, name: str = "") -> Kernel | None:
    """A kernel from `async_compile.triton` or its own file; None if the text is not Python or has no kernel."""
    try:
        return _triton_kernel(parsed(source), name)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _triton_kernel(tree: ast.Module, name: str) -> Kernel | None:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    decorated = ((f, call) for f in functions for call in f.decorator_list if isinstance(call, ast.Call))
    found, heuristic = next(((f, call) for f, call in decorated if called(call) in _HEURISTICS), (None, None))
    if found is None or heuristic is None:
        return None
    category, facts = _HEURISTICS[called(heuristic)], dict[str, object]()
    for node in (part for part in ast.walk(heuristic) if isinstance(part, ast.Dict)):
        named = [(literal(key), literal(value)) for key, value in zip(node.keys, node.values, strict=True)]
        facts |= {str(name): value for name, value in named if name in _FACTS and value is not None}
    parameters = [argument.arg for argument in found.args.args]
    given = facts.get("signature")
    kinds = given if isinstance(given, dict) else {}
    signature = {parameters[k] if isinstance(k, int) and k < len(parameters) else str(k): str(v) for k, v in kinds.items()}
    reader = TritonBody({key for key, kind in signature.items() if kind.startswith("*")}, parameters)
    reader.block(found.body)
    listed = facts.get("mutated_arg_names")
    mutated = listed if isinstance(listed, (list, tuple, set)) else ()
    arguments = tuple(
        _triton_pointer(key, kind, reader.accesses.get(key), key in mutated)
        for key, kind in signature.items()
        if kind != "constexpr"
    )
    names = frozenset({name, found.name, str(facts.get("kernel_name") or "")} - {"", "triton_"})  # once all had that name
    flop = amount(facts.get("kernel_flop")) or None  # 0 if Inductor did not count them
    operations = reader.flow.operations if category not in ("", "template", "user Triton") else None
    return Kernel(arguments, category, names, amount(facts.get("kernel_num_gb")), flop, operations)


def _triton_pointer(name: str, kind: str, seen: Accesses | None, mutated: bool) -> Pointer | None:
    """An argument, by its use in the body; if the body passes it on, by Inductor's naming."""
    if not kind.startswith("*"):
        return None
    size = _itemsize(kind.lstrip("*"))
    if seen is not None and seen.known and seen.spans:
        return Pointer(size, seen.first_reads, seen.writes, seen.most)
    both = mutated or name.startswith("in_out")
    writes = both or name.startswith("out_ptr")
    return Pointer(size, both or not writes, writes)
