"""What is known of one call of an op, and its one-line text: `linear(fp32[64,1024], fp32[10,1024], None)`.

The same `OpCall` comes from an NVTX marker of ours, from the original PyProf's, from emit_nvtx and from a Kineto event, so one
formula serves all. The text is read by people in a timeline and by `parse_call` here. No torch in this file, no file formats.

    call    = name "(" [value {", " value}] ")"          "..." as the only argument: the arguments were not described
    value   = tensor | scalar | list | name "=" value    keyword arguments last
    tensor  = tag "[" [int {"," int}] "]" ["{" strides "}"] ["^"]     strides only where not contiguous; ^ = wants a gradient
    scalar  = None | True | False | int | float | complex | nan | inf | -inf | JSON string | dtype tag
            | int? ":" int? [":" int?]                   a slice of an index
            | ".."                                       an Ellipsis of an index
            | "?"                                        something that was there and is not described
    list    = "[" values "]" | "(" values ")"            a Python list | tuple
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyprof.dtypes import lookup

__all__ = [
    "UNKNOWN",
    "DTypeArg",
    "OpCall",
    "OpRules",
    "TensorSpec",
    "Unknown",
    "checked_shape",
    "contiguous_strides",
    "format_call",
    "parse_call",
    "sound_text",
    "sound_value",
]

# What a text may hold that nobody wrote for a real call, and that would cost time, memory or the program's stack.
_DEEPEST = 64  # lists within lists
_LARGEST = 10**40  # whole numbers; torch's have 64 bits
_MOST_DIMENSIONS = 256


class Unknown:
    """The value of an argument of which nothing was recorded; there is one instance, `UNKNOWN`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor argument: shape in elements, dtype by torch's name (None: not recorded), strides in elements.

    strides None means contiguous where the text is ours, and not recorded elsewhere; grad: whether it wanted a gradient.
    """

    shape: tuple[int, ...]
    dtype: str | None = None
    strides: tuple[int, ...] | None = None
    grad: bool | None = None

    @property
    def numel(self) -> int:
        """Elements of the tensor as indexed, broadcast ones counted as often as they are seen."""
        return math.prod(self.shape)

    @property
    def stored(self) -> int:
        """Elements really stored: a dimension of stride 0 is stored once."""
        if self.strides is None:
            return self.numel
        return math.prod(n if step or not n else 1 for n, step in zip(self.shape, self.strides, strict=True))

    @property
    def itemsize(self) -> float | None:
        """Bytes of one element, None where the dtype is not known."""
        found = lookup(self.dtype)
        return None if found is None else found.bytes

    @property
    def nbytes(self) -> int | None:
        """Bytes really stored, None where the dtype is not known."""
        size = self.itemsize
        return None if size is None else math.ceil(self.stored * size)


@dataclass(frozen=True, slots=True)
class DTypeArg:
    """A dtype given as an argument (`x.to(torch.float16)`): torch's name of it."""

    dtype: str


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an op.

    module: `torch`, `Tensor`, `torch.nn.functional`, a class name, or with dispatcher=True a namespace (`aten`); op: its name;
    args: positional arguments (TensorSpec, DTypeArg, scalar, str, None, slice, Ellipsis, UNKNOWN, or a list or tuple of those);
    kwargs: by name, in the order given. flat: lists of tensors were flattened into their elements and some arguments may be
    missing or UNKNOWN (the original PyProf's markers, emit_nvtx). described: False where the arguments were left out.
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
        """Every tensor among the arguments, those within lists too, in order."""
        return list(_tensors([*self.args, *(v for _, v in self.kwargs)]))

    def __str__(self) -> str:
        return format_call(self)


def _tensors(values: Iterable[Any]) -> Iterable[TensorSpec]:
    for value in values:
        if isinstance(value, TensorSpec):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a contiguous tensor of that shape, as torch gives them (sizes of 0 count as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


# ---------------------------------------------------------------------------------------------- writing


def format_value(value: Any, all_strides: bool = False) -> str:
    """The text of one argument; what cannot be written is `?`. all_strides: give those of contiguous tensors too."""
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
        return _format_slice(value)
    return ".." if value is Ellipsis else "?"


def _format_tensor(spec: TensorSpec, all_strides: bool) -> str:
    found = lookup(spec.dtype)
    tag = found.tag if found else "any"
    text = f"{tag}[{','.join(map(str, spec.shape))}]"
    if spec.strides is not None and (all_strides or spec.strides != contiguous_strides(spec.shape)):
        text += "{" + ",".join(map(str, spec.strides)) + "}"
    return text + "^" if spec.grad else text


def _format_slice(value: slice) -> str:
    parts = [value.start, value.stop] if value.step is None else [value.start, value.stop, value.step]
    if any(not (p is None or isinstance(p, int)) for p in parts):
        return "?"
    return ":".join("" if p is None else str(int(p)) for p in parts)


def format_call(call: OpCall, all_strides: bool = False) -> str:
    """`op(arguments)`: the readable half of a marker, without the module."""
    if not call.described:
        return f"{call.op}(...)"
    parts = [format_value(v, all_strides) for v in call.args]
    parts += [f"{k}={format_value(v, all_strides)}" for k, v in call.kwargs]
    return f"{call.op}({', '.join(parts)})"


# ---------------------------------------------------------------------------------------------- reading

# Each alternative is scanned in a time that grows with its length only: no part of it can match the same text in two ways.
_FLOAT = r"(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|inf|nan)"
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<tensor>(?P<tag>[A-Za-z_]\w*)\[(?P<shape>[-\d,\s]*)\](?:\{{(?P<strides>[-\d,\s]*)\}})?(?P<grad>\^)?)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<key>[A-Za-z_]\w*)=
    | (?P<slice>-?\d*:-?\d*(?::-?\d*)?)
    | (?P<complex>\([-+]?{_FLOAT}[-+]{_FLOAT}j\)|[-+]?{_FLOAT}j)
    | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|-?inf\b|nan\b)
    | (?P<dots>\.\.)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>[\[\](),?])
    )""",
    re.VERBOSE,
)
_WORDS: dict[str, Any] = {"None": None, "True": True, "False": False}
_CLOSERS = {"[": "]", "(": ")"}


class _Reader:
    """Reads values from text; every fault is a ValueError, which the caller takes to mean 'not our text'."""

    def __init__(self, text: str, pos: int, all_strides: bool) -> None:
        self.text = text
        self.pos = pos
        self.all_strides = all_strides
        self.depth = 0

    def next(self) -> re.Match[str]:
        match = _TOKEN.match(self.text, self.pos)
        if match is None:
            raise ValueError(f"unreadable at {self.pos}")
        self.pos = match.end()
        return match

    def values(self, closer: str) -> tuple[list[Any], list[tuple[str, Any]]]:
        args: list[Any] = []
        kwargs: list[tuple[str, Any]] = []
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

    def value(self, token: re.Match[str]) -> Any:
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
            if self.depth > _DEEPEST:
                raise ValueError("lists too deep")
            inner = self.values(_CLOSERS[text])[0]
            self.depth -= 1
            return tuple(inner) if text == "(" else inner
        if text == "?":
            return UNKNOWN
        raise ValueError(f"unexpected {text!r}")


def sound_text(text: str) -> str:
    """The text with `?` for what UTF-8 cannot write (lone surrogates, which an escape can bring in)."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def sound_value(value: Any, depth: int = 0) -> Any:
    """A Python literal as the value of an argument; UNKNOWN where a call cannot hold it (sets, bytes, endless numbers)."""
    if isinstance(value, (list, tuple)) and depth < _DEEPEST:
        return type(value)(sound_value(item, depth + 1) for item in value)
    if isinstance(value, str):
        return sound_text(value)
    if value is None or isinstance(value, (float, complex)) or (isinstance(value, int) and abs(value) < _LARGEST):
        return value
    return UNKNOWN


def checked_shape(sizes: Iterable[int]) -> tuple[int, ...]:
    """Sizes or strides of a tensor as they are. Raises ValueError where no tensor has such."""
    found = tuple(sizes)
    if len(found) > _MOST_DIMENSIONS or not all(isinstance(n, int) and 0 <= n < 1 << 62 for n in found):
        raise ValueError("no sizes of a tensor")
    return found


def _int(text: str) -> int:
    """Raises ValueError for one that is too large as for one that is none."""
    if len(text) > 41 or abs(number := int(text)) >= _LARGEST:
        raise ValueError("a whole number beyond all sizes")
    return number


def _ints(text: str) -> tuple[int, ...]:
    return checked_shape(_int(p) for p in text.split(",") if p.strip())


def _read_tensor(token: re.Match[str], all_strides: bool) -> TensorSpec:
    found = lookup(token["tag"])
    if found is None and token["tag"] != "any":
        raise ValueError(f"no dtype {token['tag']!r}")
    shape = _ints(token["shape"])
    unwritten = None if all_strides else contiguous_strides(shape)
    strides = unwritten if token["strides"] is None else _ints(token["strides"])
    if strides is not None and len(strides) != len(shape):
        raise ValueError("strides do not fit the shape")
    return TensorSpec(shape, found.name if found else None, strides, True if token["grad"] else None)


def _read_word(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    found = lookup(text)
    if found is None:
        raise ValueError(f"no such word {text!r}")
    return DTypeArg(found.name)


_HEAD = re.compile(r"[^\s()][^()]*\(")


def parse_call(text: str, module: str, *, dispatcher: bool = False, all_strides: bool = False) -> OpCall:
    """Read `op(arguments)` as `format_call` writes it; with all_strides those that are not written are not known.

    Raises ValueError where the text is not of that grammar.
    """
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("no op name")
    op = head[0][:-1]
    if text[head.end() :] == "...)":
        return OpCall(module, op, dispatcher=dispatcher, described=False)
    reader = _Reader(text, head.end(), all_strides)
    args, kwargs = reader.values(")")
    if text[reader.pos :].strip():
        raise ValueError("text after the call")
    return OpCall(module, op, tuple(args), tuple(kwargs), dispatcher=dispatcher)


@dataclass(frozen=True)
class OpRules:
    """What attribution must know of ops, asked by full name (`aten::mm`, `torch.nn.functional.linear`).

    known: has a formula; is_copy: a copy or cast, an instance of its own wherever nested; is_structural: views and allocations.
    gives_way, asked with a whole call: what it calls tells more of it than its own arguments; moves: it copies or fills only.
    """

    known: Callable[[str], bool]
    is_copy: Callable[[str], bool]
    is_structural: Callable[[str], bool]
    gives_way: Callable[[OpCall], bool]
    moves: Callable[[OpCall], bool]
