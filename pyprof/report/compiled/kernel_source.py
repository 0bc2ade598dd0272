"""The source of one kernel that TorchInductor generated (C++ or Triton) -> what it does with each of its arguments.

Read as text or as a syntax tree, never run. Knows nothing of buffers and their sizes, of modules and of captures.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyprof.report.compiled.cpp_arithmetic import cpp_operations
from pyprof.report.compiled.cpp_source import cpp_accesses
from pyprof.report.compiled.triton_arithmetic import TritonBody
from pyprof.report.compiled.triton_source import Accesses

__all__ = ["Kernel", "Pointer", "cpp_kernel", "dotted", "literal", "parsed", "triton_kernel"]

_C_BYTES = {
    "float": 4, "double": 8, "int64_t": 8, "long": 8, "int32_t": 4, "int": 4, "int16_t": 2, "int8_t": 1, "uint8_t": 1,
    "uint16_t": 2, "uint32_t": 4, "uint64_t": 8, "unsigned char": 1, "bool": 1, "bfloat16": 2, "half": 2, "short": 2,
    "c10::complex<float>": 8, "c10::complex<double>": 16, "float8_e4m3fn": 1, "float8_e5m2": 1, "at::BFloat16": 2,
    "at::Half": 2, "complex64": 8, "complex128": 16, "signed char": 1,
}  # fmt: skip
_TRITON_BYTES = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1, "u64": 8, "u32": 4, "u16": 2,
    "u8": 1, "fp8e4nv": 1, "fp8e5": 1, "fp8e4b15": 1, "fp8e4b8": 1, "fp8e5b16": 1,
}  # fmt: skip
_HEURISTICS = {
    "pointwise": "pointwise", "reduction": "reduction", "persistent_reduction": "persistent reduction", "template": "template",
    "foreach": "foreach", "split_scan": "split scan", "cooperative_reduction": "reduction", "user_autotune": "user Triton",
}  # fmt: skip


@dataclass(frozen=True)
class Pointer:
    """One tensor argument. itemsize: bytes of an element, None unknown; reads: what the buffer held before is read; most: more
    elements than that are not touched, None: no bound is known."""

    itemsize: int | None
    reads: bool
    writes: bool
    most: int | None = None


@dataclass(frozen=True)
class Kernel:
    """arguments: in the order of a call, None for scalars; category: what its heuristic says, empty unknown; names: under which
    it is recorded; num_gb, flop: what Inductor reckoned, None where it did not."""

    arguments: tuple[Pointer | None, ...]
    category: str = ""
    names: frozenset[str] = field(default_factory=frozenset)
    num_gb: float | None = None
    flop: float | None = None
    operations: int | None = None


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression, empty for others."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def literal(node: ast.expr | None) -> Any:
    """The value of a literal, None for what is none."""
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def parsed(text: str) -> ast.Module:
    """The syntax tree, without the warnings of the compiler. Raises what `ast.parse` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


# ---------------------------------------------------------------------------------------------- C++


_C_FUNCTION = re.compile(r'extern "C"[^(;{]*\bvoid\b[^(;{]*?(\w+)\s*\((?P<list>[^)]*)\)', re.DOTALL)
_RECORDED = re.compile(r'RecordFunctionHandle\s+\w+\("(?P<name>[^"]+)"')


def cpp_kernel(types: Sequence[str], source: str) -> Kernel:
    """A kernel given to `async_compile.cpp_pybinding`: the C types of its arguments, and its source."""
    found = _C_FUNCTION.search(source)
    names = [part.strip().rpartition("*")[2].split()[-1:] for part in found["list"].split(",")] if found else []
    body = source[found.end() :] if found else ""
    accesses = cpp_accesses(body, {name[0] for name in names if name})
    pointers: list[Pointer | None] = []
    for index, text in enumerate(types):
        if not text.rstrip().endswith("*"):
            pointers.append(None)
            continue
        base = text.rstrip(" *").removeprefix("const ").strip()
        constant = text.lstrip().startswith("const")
        name = names[index][0] if index < len(names) and names[index] else ""
        seen = accesses.get(name)
        reads = constant or (seen.first_reads if seen and seen.known else name.startswith("in_out"))
        pointers.append(Pointer(_C_BYTES.get(base), reads, not constant, seen.most if seen else None))
    recorded = _RECORDED.search(source)
    names_ = frozenset([recorded["name"]] if recorded else [])
    operations = cpp_operations(body, {name[0] for name in names if name})
    return Kernel(tuple(pointers), "cpp_fused", names_, operations=operations)


# ---------------------------------------------------------------------------------------------- Triton


def triton_kernel(source: str, name: str = "") -> Kernel | None:
    """A kernel given to `async_compile.triton`, or a kernel's own file; None where the text is not Python or holds none."""
    try:
        return _triton_kernel(parsed(source), name)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _triton_kernel(tree: ast.Module, name: str) -> Kernel | None:
    found = next((f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and _is_kernel(f)), None)
    if found is None:
        return None
    category, facts = "", dict[str, Any]()
    for node in (part for decorator in found.decorator_list for part in ast.walk(decorator)):
        if isinstance(node, ast.Call) and (heuristic := dotted(node.func).rpartition(".")[2]) in _HEURISTICS:
            category = _HEURISTICS[heuristic]
        if isinstance(node, ast.Dict):
            facts |= {key: value for key, value in _entries(node) if value is not None}
    parameters = [argument.arg for argument in found.args.args]
    kinds = facts.get("signature") or {}
    signature = {parameters[k] if isinstance(k, int) and k < len(parameters) else str(k): str(v) for k, v in kinds.items()}
    reader = TritonBody({key for key, kind in signature.items() if kind.startswith("*")}, parameters)
    reader.block(found.body)
    mutated = set(facts.get("mutated_arg_names") or ())
    arguments = tuple(
        _triton_pointer(key, kind, reader.result.get(key), key in mutated)
        for key, kind in signature.items()
        if kind != "constexpr"
    )
    names = frozenset({name, found.name, str(facts.get("kernel_name") or "")} - {"", "triton_"})  # once all went by that one
    flop = _number(facts.get("kernel_flop"))
    operations = reader.flow.operations if category not in ("", "template", "user Triton") else None
    return Kernel(arguments, category, names, _number(facts.get("kernel_num_gb")), flop or None, operations)


def _is_kernel(function: ast.FunctionDef) -> bool:
    calls = (decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call))
    return any(dotted(call.func).rpartition(".")[2] in _HEURISTICS for call in calls)


def _entries(node: ast.Dict) -> Iterable[tuple[str, Any]]:
    wanted = ("signature", "mutated_arg_names", "kernel_name", "kernel_num_gb", "kernel_flop")
    for key, value in zip(node.keys, node.values, strict=True):
        if (name := literal(key)) in wanted:
            yield str(name), literal(value)


def _triton_pointer(name: str, kind: str, seen: Accesses | None, mutated: bool) -> Pointer | None:
    """By what the body does with it; where it is handed on, by its name, which says what Inductor made it for."""
    if not kind.startswith("*"):
        return None
    size = _TRITON_BYTES.get(kind.lstrip("*"))
    if seen is not None and seen.known and seen.expressions:
        return Pointer(size, seen.first_reads, seen.writes, seen.most)
    both = mutated or name.startswith("in_out")
    writes = both or name.startswith("out_ptr")
    return Pointer(size, both or not writes, writes)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value >= 0 else None
