"""Kernel names of two tools -> which of them may be the same kernel.

Nsight Compute writes names without namespaces, and newer versions lose parts of them (`unnamed>::silu_kernel`); the other tools
write them whole. Names are compared as they are, then by the words that every tool keeps, then, where a tool wrote the bare
function only, by that. Must not know launches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from pyprof.hardware.names import demangle, normalise

_INSTANCE = re.compile(r"\(instance (\d+)\)")
_PARENTHESES = re.compile(r"\([^()]*\)")
_QUALIFIER = re.compile(r"\b[A-Za-z_]\w*::")
_WORD = re.compile(r"[A-Za-z_]\w*|\d+")
_SPELLED = {"true": "1", "false": "0"}
# Words that only some of the tools write, or write elsewhere.
_DROPPED = frozenset({"const", "void", "unnamed", "lambda", "std", "operator"})
_FUNCTION = re.compile(r"(?:[\w:!, ]+(?:<[^<>]*>)?(?:::\w+)* )?((?:\w+::)*\w+)")


@lru_cache(maxsize=8192)
def words(name: str) -> tuple[str, ...]:
    """The words of a name, without namespaces, lists of parameters and what tools spell in their own way."""
    text = _QUALIFIER.sub("", _INSTANCE.sub(r"#\1", _unnamed(name)))
    while (less := _PARENTHESES.sub("", text)) != text:
        text = less
    found = [_SPELLED.get(word, word.lower()) for word in _WORD.findall(text)]
    return tuple(word for word in found if word not in _DROPPED)


@lru_cache(maxsize=8192)
def base(name: str) -> str:
    """The function's own name: `vectorized_elementwise_kernel`."""
    found = _FUNCTION.match(_unnamed(name))
    return found[1].rpartition("::")[2] if found is not None else name


def same_kernels(one: Sequence[str], other: Sequence[str]) -> tuple[list[int], list[int]]:
    """A class for each name of two lists: two names that may be the same kernel have the same; -1 has no partner.

    A name is paired with those of the other list that it equals at the first level at which it equals any.
    """
    parent = list(range(len(one) + len(other)))

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = at = parent[parent[at]]
        return at

    paired = set[int]()
    for level in (_whole, words, base):
        by_key: dict[object, list[int]] = {}
        for at, name in enumerate(other):
            by_key.setdefault(level(name), []).append(len(one) + at)
        for at, name in enumerate(one):
            partners = by_key.get(level(name), []) if at not in paired and (level is not base or _is_bare(name)) else []
            for partner in partners:
                parent[root(partner)] = root(at)
            paired.update([at, *partners] if partners else ())
    classes = [root(at) if at in paired else -1 for at in range(len(parent))]
    return classes[: len(one)], classes[len(one) :]


def _unnamed(name: str) -> str:
    return normalise(demangle(name)).replace("(anonymous namespace)::", "")


def _is_bare(name: str) -> bool:
    return "<" not in name and "(" not in name


def _whole(name: str) -> object:
    return normalise(demangle(name))
