"""A module call -> a range with the module's qualified path (`encoder.layers.3.self_attn`), found without help of the program.

The outermost module called on a thread is a root. Paths are those of its `named_modules()`, where a shared module has several;
the one nearest to the open range is taken. A root that is part of a module seen before has its path there. Tables hold modules
weakly.
"""

from __future__ import annotations

import weakref

import torch
from torch.nn import Module as _Module

from pyprof.model.markers import encode_layer
from pyprof.nvtx.callsite import ANCHOR, note
from pyprof.nvtx.compiling import hide_from_compiler, pass_through_compiler
from pyprof.nvtx.patch import Patches
from pyprof.nvtx.state import STATE, State
from pyprof.nvtx.traceback import Function, close_again, closing, hide, interrupted

_MAX_NAMES = 16
"""Names of one shared module that are looked at; bounds the work where modules hold each other in a ring."""


class _Open:
    """A module whose range is open: its path from the root of `paths`, and the range."""

    __slots__ = ("generation", "path", "paths", "range")

    def __init__(self, paths: Paths, path: str, cls: str) -> None:
        self.paths = paths
        self.path = path
        self.generation = STATE.generation
        self.range = STATE.find(encode_layer(path or cls, cls), reserve=True)


class _Entry:
    """One module below a root: its names there, and the range of each name, made at its first use."""

    __slots__ = ("names", "opened", "ref")

    def __init__(self, module: _Module) -> None:
        self.ref = weakref.ref(module)
        self.names: list[str] = []
        self.opened: dict[str, _Open] = {}

    def open(self, paths: Paths, path: str, module: _Module) -> _Open:
        """The range of the module, called inside the range of that path."""
        names = self.names
        name = names[0] if len(names) == 1 else _nearest(names, path)
        found = self.opened.get(name)
        if found is None or found.generation != STATE.generation:
            found = self.opened[name] = _Open(paths, name, type(module).__name__)
        return found


def _nearest(names: list[str], path: str) -> str:
    """The name of a shared module nearest to the open path: longest common beginning, then fewest parts."""
    here = path.split(".") if path else []

    def common(name: str) -> int:
        count = 0
        for one, other in zip(name.split("."), here, strict=False):
            if one != other:
                break
            count += 1
        return count

    return max(names, key=lambda name: (common(name), -name.count(".")))


class Paths:
    """The names of all modules below one root.

    Modules are looked up by id, with a weak reference that shows whether the id still belongs to the same module: a module need
    not be hashable, and none is kept alive.
    """

    def __init__(self, root: _Module) -> None:
        self.root = weakref.ref(root)
        self.entries: dict[int, _Entry] = {}
        self.strangers: dict[int, weakref.ref[_Module]] = {}
        self.read(root)

    def read(self, root: _Module) -> None:
        """Read the current names."""
        entries: dict[int, _Entry] = {}
        left: list[tuple[str, _Module]] = [("", root)]
        while left:
            path, module = left.pop()
            entry = entries.get(id(module))
            if entry is None:
                entry = entries[id(module)] = _Entry(module)
            if len(entry.names) >= _MAX_NAMES:
                continue
            entry.names.append(path)
            for name, child in reversed(list(module._modules.items())):
                if child is not None:
                    left.append((f"{path}.{name}" if path else name, child))
                    if id(child) not in _parents:  # made before the patching; a checkpoint calls it without its parent
                        _note_parent(module, name, child)
        self.entries = entries

    def find(self, module: _Module) -> _Entry | None:
        """The entry of a module; for an unknown one the names are read again, since it may have been added since."""
        entry = self.entries.get(id(module))
        if entry is not None and entry.ref() is module:
            return entry
        stranger = self.strangers.get(id(module))
        root = self.root()
        if root is None or (stranger is not None and stranger() is module):
            return None
        self.read(root)
        entry = self.entries.get(id(module))
        if entry is None:
            self.strangers[id(module)] = weakref.ref(module)
        return entry


# By id of the module; an entry goes with its module.
_known: dict[int, Paths] = {}
_parents: dict[int, tuple[weakref.ref[_Module], weakref.ref[_Module]]] = {}
_outermost: dict[int, tuple[weakref.ref[_Module], _Open]] = {}


def _drop(key: int) -> None:
    _known.pop(key, None)
    _parents.pop(key, None)
    _outermost.pop(key, None)


def _note_parent(parent: _Module, name: str, child: object) -> None:
    """torch calls this for each submodule: so a part that is called on its own is found in the whole."""
    if isinstance(child, _Module):
        key = id(child)
        _parents[key] = (weakref.ref(child, lambda _: _drop(key)), weakref.ref(parent))
        _outermost.clear()  # a whole may have become a part


def _whole_of(module: _Module) -> _Module:
    """The outermost module known to contain this one; itself where none does."""
    for _ in range(100):
        found = _parents.get(id(module))
        parent = found[1]() if found is not None and found[0]() is module else None
        if parent is None or not any(child is module for child in parent._modules.values()):
            return module
        module = parent
    return module


def _paths_of(root: _Module) -> Paths:
    key = id(root)
    found = _known.get(key)
    if found is None or found.root() is not root:
        found = _known[key] = Paths(root)
        weakref.finalize(root, _drop, key).atexit = False
    return found


def _open_outermost(module: _Module) -> _Open:
    """Open a root module, with its path inside the model that it is known to be part of."""
    key = id(module)
    known = _outermost.get(key)
    if known is not None and known[0]() is module and known[1].generation == STATE.generation:
        return known[1]
    paths = _paths_of(_whole_of(module))
    entry = paths.find(module)
    if entry is None:
        paths = _paths_of(module)
        entry = paths.entries[key]
    opened = entry.open(paths, "", module)
    _outermost[key] = (weakref.ref(module, lambda _: _drop(key)), opened)
    return opened


def _open(module: _Module, outer: _Open | None) -> _Open | None:
    """Open a module that is called inside the range of `outer`; None if that fails."""
    try:
        entry = None if outer is None else outer.paths.find(module)
        if outer is None or entry is None:
            return _open_outermost(module)
        return entry.open(outer.paths, outer.path, module)
    except Exception as error:  # a module whose children cannot be listed
        if interrupted(error):
            raise
        STATE.trouble(error, f"module {type(module).__name__}")
        return None


def make_call(orig: Function) -> Function:
    """`torch.nn.Module.__call__` with a range around it."""
    state: State = STATE
    local = state.local

    def __call__(self: _Module, *args: object, **kwargs: object) -> object:
        outer = getattr(local, "module", None)
        opened = _open(self, outer) if state.on else None
        around = None if opened is None else opened.range
        pop = None if around is None else around.pop
        try:
            if around is not None:
                around.push(around.handle)
                local.module = opened
            return orig(self, *args, **kwargs)
        except BaseException as error:
            if around is not None:
                pop = closing(error, around.push, around.pop)
            hide(error, 1)
            raise
        finally:
            if pop is not None:
                local.module = outer
                local.anchor = None  # see `ANCHOR`
                try:
                    pop()
                except BaseException as error:
                    close_again(error, pop)
                    raise

    pass_through_compiler(__call__)
    note(__call__.__code__, ANCHOR)
    return __call__


def patch_layers(patches: Patches) -> None:
    """Replace `torch.nn.Module.__call__`, and register with torch for new submodules."""
    call = make_call(_Module.__call__)
    patches.wrap(_Module, "__call__", call)
    call.__qualname__ = "Module.__call__"  # torch's own name for it is another
    handle = torch.nn.modules.module.register_module_module_registration_hook(_note_parent)
    patches.at_undo(handle.remove)


hide_from_compiler(_open, _note_parent)
