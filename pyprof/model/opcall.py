"""One call of an op <-> its one-line text: `linear(fp32[64,1024], fp32[10,1024], None)`.

The same `OpCall` is made from an NVTX marker (pyprof's or the original PyProf's), an emit_nvtx range and a Kineto event, so one
formula serves all. People read the text in a timeline, `parse_call` reads it back. Must not know torch or any file format.

    call    = name "(" [value {", " value}] ")"          "..." as the only argument: the arguments were not described
    value   = tensor | scalar | list | name "=" value    keyword arguments last
    tensor  = tag "[" [int {"," int}] "]" ["{" strides "}"] ["^"]     strides only where not contiguous; ^ = wants a gradient
    scalar  = None | True | False | int | float | complex | nan | inf | -inf | JSON string | dtype tag
            | int? ":" int? [":" int?]                   a slice of an index
            | ".."                                       an Ellipsis of an index
            | "?"                                        an argument of a kind that is not described
    list    = "[" values "]" | "(" values ")"            a Python list | tuple
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from pyprof.model.dtypes import lookup

# Limits for hostile text: no real call exceeds them, and beyond them reading would cost time, memory or the stack.
_MAX_DEPTH = 64  # lists within lists
_MAX_INTEGER = 10**40  # torch's have 64 bits
_MAX_DIMENSIONS = 256


class Unknown:
    """The value of an argument that was not recorded. There is one instance, `UNKNOWN`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNKNOWN"  # there is one in another process too


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor argument: shape in elements, dtype by torch's name (None: not recorded), strides in elements.

    strides None means contiguous in pyprof's own markers and not recorded in other sources; grad: it requires one.
    """

    shape: tuple[int, ...]
    dtype: str | None = None
    strides: tuple[int, ...] | None = None
    grad: bool | None = None

    @property
    def numel(self) -> int:
        """Number of elements by shape; a broadcast element counts once for each index."""
        return math.prod(self.shape)

    @property
    def stored(self) -> int:
        """Number of elements in memory: a dimension of stride 0 is stored once."""
        if self.strides is None:
            return self.numel
        return math.prod(n if step or not n else 1 for n, step in zip(self.shape, self.strides, strict=True))

    @property
    def itemsize(self) -> float | None:
        """Bytes of one element; None if the dtype is unknown."""
        found = lookup(self.dtype)
        return None if found is None else found.bytes

    @property
    def nbytes(self) -> int | None:
        """Bytes in memory; None if the dtype is unknown."""
        size = self.itemsize
        return None if size is None else math.ceil(self.stored * size)


@dataclass(frozen=True, slots=True)
class DTypeArg:
    """A dtype passed as an argument (`x.to(torch.float16)`), by torch's name."""

    dtype: str


class OpCall(NamedTuple):
    """One call of an op.

    module: `torch`, `Tensor`, `torch.nn.functional`, a class name, or with dispatcher=True a namespace (`aten`); op: its name;
    args: positional arguments (TensorSpec, DTypeArg, scalar, str, None, slice, Ellipsis, UNKNOWN, or a list or tuple of those);
    kwargs: named arguments in their order. flat: lists of tensors were flattened into their elements and some arguments may be
    missing or UNKNOWN (the original PyProf's markers, emit_nvtx). described: False if the arguments were left out.
    """

    module: str
    op: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    dispatcher: bool = False
    flat: bool = False
    described: bool = True

    @property
    def name(self) -> str:
        """The full name by which formulas are registered: `torch.nn.functional.linear`, `Tensor.mm`, `aten::mm`."""
        return f"{self.module}::{self.op}" if self.dispatcher else f"{self.module}.{self.op}"

    @property
    def tensors(self) -> list[TensorSpec]:
        """Every tensor among the arguments in order, including those within lists."""
        found: list[TensorSpec] = []
        pending = [*self.args, *map(itemgetter(1), self.kwargs)][::-1]
        while pending:
            value = pending.pop()
            if isinstance(value, TensorSpec):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                pending.extend(reversed(value))
        return found

    def map_tensors(self, change: Callable[[TensorSpec], TensorSpec]) -> OpCall:
        """This call with `change` applied to every tensor, including those within lists."""

        def walk(value: Any) -> Any:
            if isinstance(value, TensorSpec):
                return change(value)
            return type(value)(map(walk, value)) if isinstance(value, (list, tuple)) else value

        return self._replace(args=walk(self.args), kwargs=tuple((name, walk(value)) for name, value in self.kwargs))

    def __str__(self) -> str:
        return format_call(self)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a contiguous tensor of a shape, as torch computes them (sizes of 0 count as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def dense_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a copy that keeps the order of dimensions in memory and has neither holes nor repeated elements."""
    order = sorted(range(len(shape)), key=lambda at: (-strides[at] if strides[at] else -math.inf, at))
    made = dict(zip(order, contiguous_strides(tuple(shape[at] for at in order)), strict=True))
    return tuple(made[at] for at in range(len(shape)))


# ---------------------------------------------------------------------------------------------- writing


def format_value(value: object, all_strides: bool = False) -> str:
    """The text of one argument, `?` if it has none. all_strides: write strides of contiguous tensors too."""
    if isinstance(value, TensorSpec):
        return _format_tensor(value, all_strides)
    if value is None or value is True or value is False:
        return str(value)
    if isinstance(value, DTypeArg):
        found = lookup(value.dtype)
        return found.tag if found else "?"
    if isinstance(value, (int, float, complex)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(format_value(v, all_strides) for v in value) + "]"
    if isinstance(value, tuple):
        inner = ", ".join(format_value(v, all_strides) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, slice):
        parts = [value.start, value.stop] if value.step is None else [value.start, value.stop, value.step]
        if all(part is None or isinstance(part, int) for part in parts):
            return ":".join("" if part is None else str(int(part)) for part in parts)
    return ".." if value is Ellipsis else "?"


def _format_tensor(spec: TensorSpec, all_strides: bool) -> str:
    found = lookup(spec.dtype)
    tag = found.tag if found else "any"
    text = f"{tag}[{','.join(map(str, spec.shape))}]"
    if spec.strides is not None and (all_strides or spec.strides != contiguous_strides(spec.shape)):
        text += "{" + ",".join(map(str, spec.strides)) + "}"
    return text + "^" if spec.grad else text


def format_call(call: OpCall, all_strides: bool = False) -> str:
    """`op(arguments)`: the readable half of a marker, without the module."""
    if not call.described:
        return f"{call.op}(...)"
    parts = [format_value(v, all_strides) for v in call.args]
    parts += [f"{k}={format_value(v, all_strides)}" for k, v in call.kwargs]
    return f"{call.op}({', '.join(parts)})"


# ---------------------------------------------------------------------------------------------- reading

# No part of an alternative matches the same text in two ways, so that scanning takes time proportional to the length.
_FLOAT = r"(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|inf|nan)"
_TOKEN = rf"""\s*(?:
      (?P<tensor>(?P<tag>[A-Za-z_]\w*)\[(?P<shape>[-\d,\s]*)\](?:\{{(?P<strides>[-\d,\s]*)\}})?(?P<grad>\^)?)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<key>[A-Za-z_]\w*)=
    | (?P<slice>-?\d*:-?\d*(?::-?\d*)?)
    | (?P<complex>\([-+]?{_FLOAT}[-+]{_FLOAT}j\)|[-+]?{_FLOAT}j)
    | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|-?inf\b|nan\b)
    | (?P<dots>\.\.)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>[\[\](),?])
    )"""
_WORDS = {"None": None, "True": True, "False": False}
_CLOSERS = {"[": "]", "(": ")"}


class _Reader:
    """Reads values from text. Every fault is a ValueError, which callers take to mean that the text is not a marker."""

    def __init__(self, text: str, pos: int, all_strides: bool) -> None:
        self.text = text
        self.pos = pos
        self.all_strides = all_strides
        self.depth = 0
        self.match = re.compile(_TOKEN, re.VERBOSE).match

    def next(self) -> re.Match[str]:
        match = self.match(self.text, self.pos)
        if match is None:
            raise ValueError(f"unreadable at character {self.pos}")
        self.pos = match.end()
        return match

    def values(self, closer: str) -> tuple[list[object], list[tuple[str, object]]]:
        args: list[object] = []
        kwargs: list[tuple[str, object]] = []
        while True:
            token = self.next()
            if token["mark"] == closer:
                return args, kwargs
            if token["mark"] == "," and (args or kwargs):
                continue
            if token["key"]:
                kwargs.append((token["key"], self.value(self.next())))
            else:
                args.append(self.value(token))

    def value(self, token: re.Match[str]) -> object:
        kind = token.lastgroup if token.lastgroup not in ("tag", "shape", "strides", "grad") else "tensor"
        if token["tensor"]:
            return _read_tensor(token, self.all_strides)
        text = token[kind] if kind else ""
        if kind == "string":
            return sound_text(json.loads(text))
        if kind == "slice":
            return slice(*(_int(p) if p else None for p in text.split(":")))
        if kind == "complex":
            return complex(text)
        if kind == "number":
            return _int(text) if text.lstrip("-+").isdecimal() else float(text)
        if kind == "dots":
            return Ellipsis
        if kind == "word":
            return _read_word(text)
        if text in _CLOSERS:
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise ValueError("lists are nested too deeply")
            inner = self.values(_CLOSERS[text])[0]
            self.depth -= 1
            return tuple(inner) if text == "(" else inner
        if text == "?":
            return UNKNOWN
        raise ValueError(f"unexpected {text!r}")


def sound_text(text: str) -> str:
    """The text with `?` for characters that UTF-8 cannot encode (lone surrogates, which an escape can produce)."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def sound_value(value: object, depth: int = 0) -> object:
    """A Python literal as the value of an argument; UNKNOWN if a call cannot hold it (sets, bytes, huge integers)."""
    if isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
        return type(value)(sound_value(item, depth + 1) for item in value)
    if isinstance(value, str):
        return sound_text(value)
    if value is None or isinstance(value, (float, complex)) or (isinstance(value, int) and abs(value) < _MAX_INTEGER):
        return value
    return UNKNOWN


def checked_shape(sizes: Iterable[int]) -> tuple[int, ...]:
    """Sizes or strides of a tensor, unchanged. Raises ValueError if no tensor can have them."""
    found = tuple(sizes)
    if len(found) > _MAX_DIMENSIONS or not all(isinstance(n, int) and 0 <= n < 1 << 62 for n in found):
        raise ValueError("not the sizes of a tensor")
    return found


def _int(text: str) -> int:
    """Raises ValueError for text that is not an integer, and for integers too large to be real."""
    if len(text) > 41 or abs(number := int(text)) >= _MAX_INTEGER:
        raise ValueError("an integer is too large")
    return number


def _ints(text: str) -> tuple[int, ...]:
    return checked_shape(_int(p) for p in text.split(",") if p.strip())


def _read_tensor(token: re.Match[str], all_strides: bool) -> TensorSpec:
    found = lookup(token["tag"])
    if found is None and token["tag"] != "any":
        raise ValueError(f"unknown dtype {token['tag']!r}")
    shape = _ints(token["shape"])
    default = None if all_strides else contiguous_strides(shape)
    strides = default if token["strides"] is None else _ints(token["strides"])
    if strides is not None and len(strides) != len(shape):
        raise ValueError("strides and shape differ in length")
    return TensorSpec(shape, found.name if found else None, strides, True if token["grad"] else None)


def _read_word(text: str) -> bool | DTypeArg | None:
    if text in _WORDS:
        return _WORDS[text]
    found = lookup(text)
    if found is None:
        raise ValueError(f"unknown word {text!r}")
    return DTypeArg(found.name)


def parse_call(text: str, module: str, *, dispatcher: bool = False, all_strides: bool = False) -> OpCall:
    """Read `op(arguments)` as `format_call` writes it. all_strides: strides that are not written are unknown.

    Raises ValueError if the text does not follow the grammar.
    """
    op, opener, rest = text.partition("(")
    if not opener or not op or op[0].isspace() or ")" in op:
        raise ValueError("an op name and ( are missing")
    if rest == "...)":
        return OpCall(module, op, dispatcher=dispatcher, described=False)
    reader = _Reader(text, len(op) + 1, all_strides)
    args, kwargs = reader.values(")")
    if text[reader.pos :].strip():
        raise ValueError("text after the call")
    return OpCall(module, op, tuple(args), tuple(kwargs), dispatcher=dispatcher)


CONVERSIONS = frozenset(
    "aten::" + name
    for name in (
        "to", "contiguous", "type_as", "cpu", "cuda", "pin_memory", "to_dense", "_autocast_to_reduced_precision",
        "_autocast_to_full_precision",
    )
)  # fmt: skip
"""Ops of the dispatcher that call a copy where the tensor has not yet the type, the device or the layout, and else nothing."""


class OpRules(NamedTuple):
    """Rules about ops that attribution needs. The first three and asks take a full name: `aten::mm`, `torch.nn.Linear`.

    known: has a formula; is_copy: a copy or cast, an instance of its own where it is no step of another op; is_structural: a
    view or an allocation; asks: which arguments beyond its own the formula takes (`inside`, `engine_step`). The others take a
    call. gives_way: the ops inside it describe it better than its own arguments; moves: it only copies or fills. namespaces:
    those of the dispatcher that some formula has.
    """

    known: Callable[[str], bool]
    is_copy: Callable[[str], bool]
    is_structural: Callable[[str], bool]
    gives_way: Callable[[OpCall], bool]
    moves: Callable[[OpCall], bool]
    asks: Callable[[str], frozenset[str]] = lambda _: frozenset()
    namespaces: frozenset[str] = frozenset({"aten"})
