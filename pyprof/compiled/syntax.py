"""Syntax trees of generated sources -> the names and values in them. Nothing is run."""

from __future__ import annotations

import ast
import warnings


def parsed(text: str) -> ast.Module:
    """The syntax tree, without the compiler's warnings. Raises what `ast.parse` raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def dotted(node: ast.expr) -> str:
    """`a.b.c` of such an expression, "" for others."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def called(call: ast.Call) -> str:
    """`exp` of `tl.exp(...)` and `exp(...)`, "" for other expressions."""
    return dotted(call.func).rpartition(".")[2]


def names_in(node: ast.AST) -> set[str]:
    """All names in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def literal(node: ast.expr | None) -> object:
    """The value of a literal, None for other expressions."""
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
