"""Classes -> the objects of these that exist, as the garbage collector knows them.

`gc.get_objects()` would hold every object there is. A tuple that another thread is making must be held by nobody else, or it
cannot grow, and Python raises SystemError there; so only what refers to the classes is held while other threads may run.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from itertools import chain, starmap
from typing import Any


def instances(classes: Iterable[type]) -> list[Any]:
    """All objects that are of exactly these classes."""
    # In one step of the interpreter, in which no other thread runs.
    used = {*map(id, map(type, chain.from_iterable(starmap(gc.get_objects, [()]))))}
    wanted = {id(one): one for one in classes if id(one) in used}
    return [one for one in gc.get_referrers(*wanted.values()) if id(type(one)) in wanted]


def with_subclasses(base: type) -> set[type]:
    """A class and all that derive from it."""
    found, left = {base}, [base]
    while left:
        new: set[type] = {*type.__subclasses__(left.pop())} - found
        found |= new
        left += new
    return found
