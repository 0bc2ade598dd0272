"""The modules that a recording by torch.profiler met -> their qualified names in the running model, put into its trace.

The trace calls a module after its class and a running number (`Linear_3`). torch.profiler still knows the address of each, and
the model that holds it gives its name (`blocks.0.attn.qkv`). Nothing here changes the program or the events of its trace.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.recording.objects import instances, with_subclasses

if TYPE_CHECKING:
    import torch

KEY = "pyprof_modules"
"""Key at the trace's top level. For each module, as the trace calls it, its names: pairs of the number of the outermost module
that holds it and its qualified name in that (empty: itself)."""

_MAX_NAMES = 16  # of one module; bounds the work where modules hold each other in a ring

Names = dict[str, list[tuple[int, str]]]


def names_of_modules(profiler: torch.profiler.profile, earlier: AliveModules | None = None) -> Names:
    """Names of the modules called while recording that are alive, or were as it began; none without Python frames."""
    import torch

    address: dict[str, set[tuple[int, str]]] = {}
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    call = torch._C._profiler._EventType.PyCall
    while waiting:
        event = waiting.pop()
        if event.tag == call and (module := event.extra_fields.module) is not None:
            address.setdefault(event.name.removeprefix("nn.Module: "), set()).add((module.self_ptr, module.cls_name))
        waiting += event.children
    if not address:
        return {}
    alive = AliveModules()
    result: Names = {}
    for name, found in address.items():
        for known in (alive, earlier):
            if known is not None and name not in result:
                names = [pair for one, cls in sorted(found) if known.cls.get(one) == cls for pair in known.names(one)]
                result |= {name: names} if names else {}
    return result


class AliveModules:
    """All modules that exist now, by their id. cls: the name of the class of each."""

    def __init__(self) -> None:
        from torch.nn import Module

        found = instances(with_subclasses(Module))
        self.cls = {id(one): type(one).__name__ for one in found}
        self._parents: dict[int, list[tuple[int, str]]] = {}
        for one in found:
            for name, child in list(one.__dict__.get("_modules", {}).items()):
                self._parents.setdefault(id(child), []).append((id(one), name))
        self._wholes: dict[int, int] = {}

    def names(self, module: int) -> list[tuple[int, str]]:
        """Its names in the outermost modules that hold it."""
        found: list[tuple[int, str]] = []
        waiting: list[tuple[int, str, tuple[int, ...]]] = [(module, "", ())]
        while waiting and len(found) < _MAX_NAMES:
            one, name, inside = waiting.pop(0)
            parents = [(parent, own) for parent, own in self._parents.get(one, ()) if parent not in inside]
            if not parents:
                found.append((self._wholes.setdefault(one, len(self._wholes)), name))
            waiting += [(parent, f"{own}.{name}" if name else own, (*inside, one)) for parent, own in parents]
        return found


def add_names(trace: Path, names: Names | list[list[object]], key: str = KEY) -> None:
    """Add the names (or another list under its key) to the top level of a trace, plain JSON, that ends as torch ends it."""
    if not names:
        return
    with trace.open("r+b") as stream:
        end = stream.seek(0, 2)
        since = max(end - 64, 0)
        stream.seek(since)
        tail = stream.read().rstrip()
        if tail.endswith(b"}"):
            stream.seek(since + len(tail) - 1)
            stream.truncate()
            stream.write(f', "{key}": {json.dumps(names)}}}\n'.encode())
