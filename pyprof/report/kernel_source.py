"""The source of one kernel that TorchInductor generated (C++ or Triton) -> what it does with each of its arguments.

Read as text or as a syntax tree, never run. Knows nothing of buffers and their sizes, of modules and of captures.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyprof.report.triton_source import Accesses, triton_accesses

__all__ = ["Kernel", "Pointer", "cpp_kernel", "dotted", "literal", "triton_kernel"]

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


# ---------------------------------------------------------------------------------------------- C++


_C_FUNCTION = re.compile(r'extern "C"[^(;{]*\bvoid\b[^(;{]*?(\w+)\s*\((?P<list>[^)]*)\)', re.DOTALL)
_RECORDED = re.compile(r'RecordFunctionHandle\s+\w+\("(?P<name>[^"]+)"')
_ALIAS = re.compile(r"\bauto\s+(\w+)\s*=\s*(\w+)\s*;")
_FOR = re.compile(r"\bfor\s*\(")
_LENGTH = re.compile(r"(?:static_cast<\w+>\()?\s*(\d+)L*\s*\)?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SECOND_WRITTEN = re.compile(r"transpose_mxn")  # (source, ld, destination, ld)


def cpp_kernel(types: Sequence[str], source: str) -> Kernel:
    """A kernel given to `async_compile.cpp_pybinding`: the C types of its arguments, and its source."""
    found = _C_FUNCTION.search(source)
    names = [part.strip().rpartition("*")[2].split()[-1:] for part in found["list"].split(",")] if found else []
    body = source[found.end() :] if found else ""
    accesses = _cpp_accesses(body, {name[0] for name in names if name})
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
    return Kernel(tuple(pointers), "cpp_fused", frozenset([recorded["name"]] if recorded else []))


def _cpp_accesses(body: str, names: set[str]) -> dict[str, Accesses]:
    """What the body does with each pointer, in the order of the text, which is that of execution."""
    same = {name: name for name in names}
    same |= {new: old for new, old in _ALIAS.findall(body) if old in names}
    if not same:
        return {}
    result: dict[str, Accesses] = {name: Accesses() for name in names}
    token = re.compile(rf"{_FOR.pattern}|[{{}}]|\b(?:{'|'.join(map(re.escape, same))})\b")
    scopes: list[dict[str, int | None]] = []
    waiting: dict[str, int | None] = {}
    position = 0
    while (found := token.search(body, position)) is not None:
        position, text = found.end(), found[0]
        if text == "{":
            scopes.append(waiting)
            waiting = {}
        elif text == "}":
            scopes = scopes[:-1]
        elif text in same:
            loops = {name: length for scope in scopes for name, length in scope.items()}
            _cpp_access(body, found.start(), found.end(), result[same[text]], loops)
        else:
            position = _closing(body, found.end() - 1) + 1
            waiting |= _loop(body[found.end() : position - 1])
    return result


def _closing(text: str, at: int) -> int:
    """Where the bracket at this place is closed; the end of the text where it is not."""
    opening, closing = text[at], {"(": ")", "[": "]"}[text[at]]
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if not depth:
            return place
    return len(text)


def _loop(header: str) -> dict[str, int | None]:
    """The variable of a loop and how many values it takes; loops over the lanes of a vector say nothing new."""
    parts = header.split(";")
    begin = re.search(r"(\w+)\s*=\s*(.+)", parts[0])
    if len(parts) != 3 or begin is None or begin[1].endswith(("_inner", "_tail")):
        return {}
    lower, upper = _LENGTH.fullmatch(begin[2].strip()), re.fullmatch(r"\s*\w+\s*<\s*(.+?)\s*", parts[1])
    until = _LENGTH.fullmatch(upper[1]) if upper else None
    return {begin[1]: max(int(until[1]) - int(lower[1]), 0) if lower and until else None}


def _cpp_access(body: str, start: int, end: int, result: Accesses, loops: dict[str, int | None]) -> None:
    """Note the use of a pointer's name at body[start:end]."""
    rest = body[end : end + 1]
    before = body[max(start - 400, 0) : start].rstrip()
    if rest == "[":
        close = _closing(body, end)
        index, after = body[end + 1 : close], body[close + 1 : close + 4].lstrip()
        if re.search(r"atomic_\w+\s*\(\s*&$", before):
            reads, writes = True, True
        else:
            writes = bool(re.match(r"[-+*/|&^]?=(?!=)", after))
            reads = not writes or after[:1] != "="
    elif (call := _enclosing_call(before)) is not None:
        function, number = call
        index = _argument(body, end)
        if "atomic" in function:
            reads, writes = True, True
        elif _SECOND_WRITTEN.search(function):
            reads, writes = number == 0, number > 0
        else:
            writes = function.endswith(".store") or "store" in function.rpartition("::")[2]
            reads = not writes
            result.known &= writes or "load" in function
    else:
        return  # the definition of another name for it
    result.note(reads, writes, index, _span(index, loops))


def _enclosing_call(before: str) -> tuple[str, int] | None:
    """Of the call whose argument begins where a text ends: its function and how many arguments stand before."""
    depth = number = 0
    for place in range(len(before) - 1, -1, -1):
        character = before[place]
        if character in ")]}":
            depth += 1
        elif character in "([{":
            if not depth:
                function = re.search(r"[\w:.<>, ()]*$", before[:place])
                return (function[0].strip() if function else ""), number
            depth -= 1
        elif character == "," and not depth:
            number += 1
        elif character in ";=" and not depth:
            return None
    return None


def _argument(body: str, at: int) -> str:
    """The text from here to the end of the argument."""
    depth = 0
    for place in range(at, len(body)):
        character = body[place]
        if character in "([":
            depth += 1
        elif character in ")]":
            if not depth:
                return body[at:place]
            depth -= 1
        elif character in ",;" and not depth:
            return body[at:place]
    return body[at:]


def _span(index: str, loops: dict[str, int | None]) -> int | None:
    """How many values an index takes at most over the loops around it; one that was itself loaded as many as there are runs."""
    words = {word.removesuffix("_inner").removesuffix("_tail") for word in _WORD.findall(index)}
    indirect = any(word.startswith("tmp") for word in words)
    count = 1
    for name, length in loops.items():
        if indirect or name in words:
            if length is None:
                return None
            count *= length
    return count


# ---------------------------------------------------------------------------------------------- Triton


def triton_kernel(source: str, name: str = "") -> Kernel | None:
    """A kernel given to `async_compile.triton`, or a kernel's own file; None where the text is not Python or holds none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
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
    accesses = triton_accesses(found, {key for key, kind in signature.items() if kind.startswith("*")})
    mutated = set(facts.get("mutated_arg_names") or ())
    arguments = tuple(
        _triton_pointer(key, kind, accesses.get(key), key in mutated) for key, kind in signature.items() if kind != "constexpr"
    )
    names = frozenset({name, found.name, str(facts.get("kernel_name") or "")} - {"", "triton_"})  # once all went by that one
    return Kernel(arguments, category, names, _number(facts.get("kernel_num_gb")), _number(facts.get("kernel_flop")))


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
