"""A Python module that TorchInductor generated -> bytes that each call of a fused kernel in it reads and writes.

The module is read as a syntax tree and never run. Sizes come from the allocations, views and checks in its `call`; type,
direction and reach of each pointer from the kernel's own source. Symbolic sizes (dynamic shapes) leave bytes unknown. Knows no
captures and no records.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from pyprof.compiled.flow import product
from pyprof.compiled.kernel_source import Kernel, Pointer, cpp_kernel, triton_kernel
from pyprof.compiled.syntax import dotted, literal, parsed
from pyprof.errors import InputError

_AOT_ID = re.compile(r"^# AOT ID: \['(?P<graph>\w+?)_(?P<direction>forward|backward|inference)'\]", re.MULTILINE)
_NODES = re.compile(r"Source Nodes: \[(?P<nodes>[^\]]*)\](?:, Original ATen: \[(?P<atens>[^\]]*)\])?")
_ZERO = ast.dump(ast.Constant(0))
_GENERATED = "async_compile"
_NO_KERNEL = ("empty", "reinterpret_tensor", "as_strided", "alloc_from_pool", "assert_", "copy_if_misaligned")
_BETWEEN = re.compile(r"\s*(?:#.*|\w+ = get_\w*stream\(.*|\w+numel = .*)?")


@dataclass(frozen=True)
class Site:
    """One call of a fused kernel: bytes read and written (None unknown), its source nodes and ATen ops."""

    read_bytes: int | None
    written_bytes: int | None
    nodes: tuple[str, ...] = ()
    atens: tuple[str, ...] = ()

    @property
    def bytes(self) -> int | None:
        """Read and written together."""
        return None if self.read_bytes is None or self.written_bytes is None else self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class Fused:
    """A kernel of a module and its calls, in order of execution."""

    name: str
    kernel: Kernel
    sites: list[Site] = field(default_factory=list)


@dataclass(frozen=True)
class CompiledModule:
    """One module. graph: its number from AOTAutograd; direction: forward, backward, inference, "" unknown; kernels: under each
    of their recorded names."""

    path: Path
    graph: str
    direction: str
    kernels: dict[str, Fused]

    def fits(self, direction: str) -> bool:
        """Whether a kernel that ran in this direction ("" unknown) can be the module's: an inference graph runs forward."""
        return not direction or self.direction in ("", direction) or (self.direction, direction) == ("inference", "forward")

    @property
    def fused(self) -> list[Fused]:
        """Its distinct kernels in order of definition."""
        return list({id(fused): fused for fused in self.kernels.values()}.values())


@dataclass(eq=False)
class _Storage:
    """Memory. ready: it may already hold data; elements: capacity, None unknown."""

    ready: bool
    elements: int | None = None


@dataclass(frozen=True)
class _View:
    storage: _Storage
    elements: int | None = None
    offset: object = 0


def _moved(views: list[tuple[_View, Pointer]]) -> int | None:
    """Bytes that one kernel reads, or writes; None if a size is unknown.

    Every part of a storage counts once, up to the reach of the kernel's indices; all parts together at most the storage's size.
    """
    parts: dict[_Storage, dict[object, int]] = defaultdict(dict)
    capacity: dict[_Storage, int | None] = {}
    for view, pointer in views:
        if view.elements is None or pointer.itemsize is None:
            return None
        size = pointer.itemsize * (view.elements if pointer.most is None else min(view.elements, pointer.most))
        parts[view.storage][view.offset] = max(size, parts[view.storage].get(view.offset, 0))
        capacity[view.storage] = product((view.storage.elements, pointer.itemsize))
    total = 0
    for storage, sizes in parts.items():
        whole, held = sum(sizes.values()), capacity[storage]
        total += whole if held is None else min(whole, max(held, *sizes.values()))
    return total


def find_modules(paths: list[Path]) -> list[Path]:
    """The generated modules among files and in folders such as Inductor's cache. Raises InputError if there is none."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        found += [p for p in inside if p.is_file() and (not path.is_dir() or _GENERATED in p.read_text(errors="replace"))]
    if not found:
        raise InputError(
            f"no compiled module in {', '.join(map(str, paths))}",
            "give the .py file that TORCH_LOGS=output_code names, or the folder TORCHINDUCTOR_CACHE_DIR",
        )
    return found


def read_module(path: Path) -> CompiledModule:
    """Read one module. Raises InputError if the file is not Python."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        reader = _ModuleReader(text)
        reader.read(parsed(text))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: not a Python module: {error}", "give a module that TorchInductor generated") from error
    found = _AOT_ID.search(text)
    graph, direction = found.group("graph", "direction") if found else ("", "")
    names = {name: fused for fused in reader.kernels.values() for name in fused.kernel.names}
    return CompiledModule(path, graph, direction, {**names, **reader.kernels})


class _ModuleReader:
    """State while one module is read."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.kernels: dict[str, Fused] = {}
        self.defined: dict[str, int] = {}  # line of a kernel's definition
        self.inputs: dict[str, int | None] = {}  # elements of the inputs that the module makes for itself
        self.views: dict[str, _View] = {}

    def read(self, tree: ast.Module) -> None:
        """Read all definitions, then the bodies that use them."""
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name), *_], value=ast.Call(args=[first, second, *_]) as call):
                    self._definition(name, call, first, second)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and re.fullmatch(r"call|partition_\d+", node.name):
                self._block(node.body)

    def _definition(self, name: str, call: ast.Call, *arguments: ast.expr) -> None:
        kernel: Kernel | None = None
        match dotted(call.func).rpartition("async_compile.")[2], *map(literal, arguments):
            case "cpp_pybinding", list() as types, str() as source:
                kernel = cpp_kernel([str(kind) for kind in types], source)
            case "triton", first, str() as source:
                kernel = triton_kernel(source, str(first or ""))
            case "rand_strided", _, _:
                self.inputs[name] = _elements(*arguments)
        if kernel is not None:
            self.kernels[name] = Fused(name, kernel)
            self.defined[name] = call.lineno

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, (ast.With, ast.If, ast.Try, ast.For)):
                self._block(statement.body)
            match statement:
                case ast.Assign(targets=[ast.Tuple(elts=inputs) | ast.List(elts=inputs), *_]):  # of the graph or a part
                    for name in (element.id for element in inputs if isinstance(element, ast.Name)):
                        self.views.setdefault(name, _View(_Storage(True), self.inputs.get(name)))
                case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
                    if isinstance(value, ast.Call):
                        self._call(value)
                    self.views[name] = self._value(value) or _View(_Storage(True))
                case ast.Expr(value=ast.Call() as call):
                    self._call(call)

    def _value(self, node: ast.expr) -> _View | None:
        """The view that an expression makes; None if it is not a known tensor."""
        if isinstance(node, ast.Name):
            return self.views.get(node.id)
        if not isinstance(node, ast.Call):
            return None
        function = dotted(node.func)
        if function.rpartition(".")[2].startswith("empty") and node.args:
            elements = _elements(node.args[0], node.args[1] if len(node.args) > 1 else None)
            return _View(_Storage(False, elements), elements)
        if function.endswith(("reinterpret_tensor", "as_strided")) and len(node.args) >= 3:
            base = self._value(node.args[0])
            elements, offset = _elements(node.args[1], node.args[2]), ast.dump(node.args[3]) if len(node.args) > 3 else 0
            return _View(base.storage if base else _Storage(True), elements, 0 if offset == _ZERO else offset)
        if function.endswith("copy_if_misaligned") and node.args:
            return self._value(node.args[0])
        if function.endswith("alloc_from_pool") and len(node.args) >= 5:
            return _View(_Storage(False), _elements(node.args[3], node.args[4]))
        return None

    def _call(self, node: ast.Call) -> None:
        function = dotted(node.func)
        if function.endswith("assert_size_stride") and len(node.args) >= 3 and isinstance(node.args[0], ast.Name):
            name = node.args[0].id
            storage = self.views[name].storage if name in self.views else _Storage(True)
            self.views[name] = _View(storage, _elements(node.args[1], node.args[2]))
            return
        kernel = function.removesuffix(".run")
        if kernel in self.kernels:
            self.kernels[kernel].sites.append(self._site(kernel, node))
            return
        if function.startswith(_NO_KERNEL):
            return
        for argument in [*node.args, *(k.value for k in node.keywords if k.arg == "out")]:
            if (view := self._value(argument)) is not None:  # a library function may write to its arguments
                view.storage.ready = True

    def _site(self, kernel: str, node: ast.Call) -> Site:
        pairs = zip(self.kernels[kernel].kernel.arguments, node.args, strict=False)
        views = [(self._value(value) or _View(_Storage(True)), pointer) for pointer, value in pairs if pointer is not None]
        read = [(view, pointer) for view, pointer in views if pointer.reads and view.storage.ready]
        written = [(view, pointer) for view, pointer in views if pointer.writes]
        for view, _ in written:
            view.storage.ready = True
        names = self._comment(node.lineno)
        return Site(_moved(read), _moved(written), *(names if any(names) else self._comment(self.defined[kernel])))

    def _comment(self, line: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The source nodes and ATen ops named in the comment above a line."""
        at = line - 2
        while at >= 0 and _BETWEEN.fullmatch(self.lines[at]):
            if (found := _NODES.search(self.lines[at])) is not None:
                return _names(found["nodes"]), _names(found["atens"] or "")
            at -= 1
        return (), ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def _elements(size: ast.expr, stride: ast.expr | None) -> int | None:
    """Elements stored by a tensor of this size and stride (None: dense); None if either has a symbol."""
    sizes, strides = _ints(size), _ints(stride)
    if sizes is None or stride is None:
        return None if sizes is None else math.prod(sizes)
    if strides is None or len(sizes) != len(strides):
        return None
    return math.prod(length if step or not length else 1 for length, step in zip(sizes, strides, strict=True))


def _ints(node: ast.expr | None) -> tuple[int, ...] | None:
    """A tuple of whole numbers; None for other expressions."""
    values = literal(node)
    return values if isinstance(values, tuple) and all(isinstance(value, int) for value in values) else None
