"""An op of a torch.profiler trace with its recorded inputs -> a Marker with its OpCall, once for each distinct op.

Knows the names of ops and the spelling of recorded inputs: `Input Dims`, `Input type`, `Input Strides`, `Concrete Inputs`.
Kineto records no strings and no lists of optional tensors: both look like None. Elements of a tensor list have no dtype.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import repeat, zip_longest
from operator import attrgetter
from typing import NamedTuple, TypeGuard

import msgspec

from pyprof.columns.types import Array, Bools
from pyprof.model.dtypes import lookup
from pyprof.model.markers import Kind, Marker, decode, is_backward_name, is_wrapper
from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec, Unknown, checked_shape
from pyprof.model.trace import Labels
from pyprof.parse.sources.kineto.events import Codes, Event, Int, decode_args
from pyprof.parse.sources.kineto.exported import RangeCodes

_EMPTY = msgspec.Raw(b"")
_Number = int | float | str | None
_Inputs = tuple[object, ...] | None  # None: they were not recorded


class OpArgs(msgspec.Struct, gc=False):
    """The args of a cpu_op or user_annotation that pyprof reads, in about their order in the file."""

    external: Int = msgspec.field(default=-1, name="External id")
    external_2021: Int = msgspec.field(default=-1, name="external id")
    concrete: msgspec.Raw = msgspec.field(default=_EMPTY, name="Concrete Inputs")
    types: msgspec.Raw = msgspec.field(default=_EMPTY, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=_EMPTY, name="Input Strides")
    dims: msgspec.Raw = msgspec.field(default=_EMPTY, name="Input Dims")
    dims_2021: msgspec.Raw = msgspec.field(default=_EMPTY, name="Input dims")
    seq: int = msgspec.field(default=-1, name="Sequence number")
    fwd: Int = msgspec.field(default=0, name="Fwd thread id")
    stack: str = msgspec.field(default="", name="Call stack")
    collective: str = msgspec.field(default="", name="Collective name")
    kernel_backend: str = ""
    codes: RangeCodes | None = msgspec.field(default=None, name="pyprof")


class OpFacts(msgspec.Struct, frozen=True, gc=False):
    """Args that only collectives and kernels of Inductor have."""

    collective: str = msgspec.field(default="", name="Collective name")
    dtype: str = ""
    in_elements: Int = msgspec.field(default=-1, name="In msg nelems")
    out_elements: Int = msgspec.field(default=-1, name="Out msg nelems")
    group: Int = msgspec.field(default=-1, name="Group size")
    group_name: str | Int | None = msgspec.field(default=None, name="Process Group Name")
    kernel_backend: str = ""
    kernel_file: str = ""
    kernel_hash: str = ""
    kernel_kwargs: str = ""
    grid: _Number = None
    num_warps: _Number = None
    num_stages: _Number = None
    kernel_num_gb: _Number = None
    kernel_flop: _Number = None


class RecordedOp(NamedTuple):
    """Everything that makes an op distinct. inputs: their spellings, see `_INPUTS`; annotation: a range of the user or of a
    library, which is an op only as a collective; numbered: it has a sequence number; backward: it has a forward thread."""

    name: str
    inputs: bytes
    annotation: bool
    facts: OpFacts | None
    numbered: bool
    backward: bool


_INPUTS = attrgetter("dims", "dims_2021", "types", "strides", "concrete")
_BETWEEN = b"\0"  # which no JSON contains
_NAME, _COLLECTIVE, _BACKEND = attrgetter("name"), attrgetter("collective"), attrgetter("kernel_backend")
_NO_FACTS = OpFacts()
_FIELDS = OpFacts.__struct_fields__
_KERNEL_FACTS = _FIELDS[_FIELDS.index("kernel_file") :]
# Inputs that exist although nothing of them is recorded: strings, and lists of optional tensors.
_UNRECORDED = {
    "aten::einsum": 0, "aten::gelu": 1, "aten::gelu_": 1, "aten::gelu_backward": 2, "aten::div": 2, "aten::div_": 2,
    "aten::conv1d": 4, "aten::conv2d": 4, "aten::conv3d": 4, "aten::_convolution_mode": 4,
    "aten::index": 1, "aten::index_put": 1, "aten::index_put_": 1, "aten::_index_put_impl_": 1, "aten::_unsafe_index": 1,
}  # fmt: skip
_SIZES = re.compile(r"\d{1,18}(?:,\d{1,18})*")
_ENGINE = "autograd::engine::evaluate_function: "
_NAMESPACED = re.compile(r"(?P<module>\w+)::(?P<op>[\w.]+)")
_CPP_FUSED = re.compile(r"(?:graph_\d+_)?(?:cpp_fused|triton)_\w+")
_AOTI = re.compile(r"aoti_torch_[a-z]+_(?P<op>\w+)")  # called by modules that Inductor wrote in C++ (cpp_wrapper)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def op_codes(
    events: list[Event], args: list[OpArgs], annotation: bool, numbered: Bools, backward: Bools, codes: Codes[RecordedOp]
) -> Array:
    """The codes of ops, or of annotations, each with its args."""
    facts: Iterable[OpFacts | None] = repeat(None)
    if any(map(_COLLECTIVE, args)) or any(map(_BACKEND, args)):
        every = decode_args(OpFacts, events)
        facts = [one if one.collective or one.kernel_backend else None for one in every]
    inputs = map(_BETWEEN.join, map(_INPUTS, args))
    keys = zip(map(_NAME, events), inputs, repeat(annotation), facts, numbered.tolist(), backward.tolist())
    return codes.of(keys, len(args))  # type: ignore[arg-type]


class OpLabels:
    """Codes into a trace's markers for ops, each distinct one decoded once; shapes: whether inputs were recorded."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self.shapes = False

    def code(self, op: RecordedOp) -> int:
        """The code of an op's marker."""
        op = RecordedOp(*op)  # `op_codes` makes plain tuples
        dims, dims_2021, *others = op.inputs.split(_BETWEEN)
        dims = dims or dims_2021
        self.shapes |= bool(dims)
        inputs = _inputs(op.name, dims, *others)
        marker = _annotation(op, inputs) if op.annotation else _marker(op, inputs)
        # Two spellings of the same inputs are one marker: the key is the decoded call.
        return self._labels.add((marker.kind, op.name, repr(marker.call)), marker)


def _marker(one: RecordedOp, inputs: _Inputs) -> Marker:
    """The marker of an op's range; without a call for a range as in NVTX (the user's, a step, an optimizer)."""
    name, told = one.name, one.facts or _NO_FACTS
    if name.startswith(_ENGINE):
        return decode(name)
    if is_backward_name(name) or (one.backward and _NAMESPACED.fullmatch(name) is None):
        return Marker(Kind.BACKWARD, name, name, _call("autograd", name.removeprefix("torch::autograd::"), inputs))
    if is_wrapper(name):
        return Marker(Kind.INTERNAL, name, name)
    module = _module(one, inputs)
    if module is None:
        return decode(name)
    op = name[len(module) + 2 :].partition(".")[0] if name.startswith(f"{module}::") else name.removeprefix("nccl:")
    if module == "aoti" and (found := _AOTI.fullmatch(name)) is not None:
        op = found["op"]
    facts: list[tuple[str, object]] = []
    if told.collective:
        facts = _collective(told)
    elif told.kernel_backend:
        facts = [(fact, value) for fact in _KERNEL_FACTS if (value := getattr(told, fact)) not in (None, "")]
    return Marker(Kind.DISPATCH, name, name, _call(module, op, inputs, tuple(facts)))


def _annotation(one: RecordedOp, inputs: _Inputs) -> Marker:
    """The marker of an annotation: `execute_32_context_0` and `MyModel::step` are no ops, whatever numbers they have."""
    name = one.name
    if (one.facts is not None and one.facts.collective) or name.startswith(("nccl:", "record_param_comms")):
        return _marker(one, inputs)
    found = decode(name)
    return found if found.kind not in (Kind.DISPATCH, Kind.BACKWARD, Kind.ENGINE) else Marker(Kind.USER, name, name)


def _module(one: RecordedOp, inputs: _Inputs) -> str | None:
    """The namespace of an op; None if the range is not an op."""
    name, backend = one.name, (one.facts or _NO_FACTS).kernel_backend
    if (found := _NAMESPACED.fullmatch(name)) is not None:
        return found["module"]
    if backend or _CPP_FUSED.fullmatch(name):
        return backend if backend not in ("", "triton") else "inductor"
    if _AOTI.fullmatch(name):
        return "aoti"
    if name == "record_param_comms":
        return "c10d"
    if name.startswith("nccl:") and inputs is not None:
        return "nccl"
    if name in ("detach", "detach_"):  # the two that torch records without their namespace
        return "aten"
    # A torch.autograd.Function running forward goes by its class's name; without gradients it has tensors and no number.
    function = one.numbered or any(isinstance(value, TensorSpec) and value.dtype for value in inputs or ())
    return "autograd" if function and _IDENTIFIER.fullmatch(name) else None


def _call(module: str, op: str, inputs: _Inputs, facts: tuple[tuple[str, object], ...] = ()) -> OpCall:
    return OpCall(module, op, inputs or (), facts, dispatcher=True, described=inputs is not None)


def _collective(facts: OpFacts) -> list[tuple[str, object]]:
    """The data that a communication op moved: `input` and `output` as tensors of one dimension."""
    found = lookup(facts.dtype) or lookup(facts.dtype.lower())
    dtype = found.name if found else None
    extra: list[tuple[str, object]] = [("collective", facts.collective)]
    for name, elements in (("input", facts.in_elements), ("output", facts.out_elements)):
        if elements >= 0:
            extra.append((name, TensorSpec((elements,), dtype)))
    extra += [("group_size", facts.group)] if facts.group >= 0 else []
    return extra + ([("group", str(facts.group_name))] if facts.group_name not in (None, "", -1) else [])


# ---------------------------------------------------------------------------------------------- recorded inputs


class _NoTensor(Exception):
    """Sizes that no tensor can have."""


def _inputs(name: str, dims: bytes, types: bytes, strides: bytes, concrete: bytes) -> _Inputs:
    """The arguments of a call in the order of its schema; None if they were not recorded, or with sizes that no tensor has."""
    if not dims:
        return None
    lists = [*map(_list, (dims, types, strides, concrete))]
    recorded = bool(concrete)
    try:
        values = [_value(d, k if isinstance(k, str) else "", s, c, recorded) for d, k, s, c in zip_longest(*lists)]
    except _NoTensor:  # what the others say would be taken for all
        return None
    hidden = _UNRECORDED.get(name)
    if hidden is not None and hidden < len(values) and values[hidden] is None:
        values[hidden] = UNKNOWN
    return tuple(values)


def _list(text: bytes) -> list[object]:
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    if isinstance(found, str) and found:  # torch_npu joins sizes and types: `64,128;128,256`
        return [[*map(int, part.split(","))] if _SIZES.fullmatch(part) else part or [] for part in re.split(r";\s*", found)]
    return found if isinstance(found, list) else []


def _value(dims: object, kind: str, strides: object, concrete: object, recorded: bool) -> object:
    found = lookup(kind)
    dtype = found.name if found else None
    if isinstance(dims, list) and dims and isinstance(dims[0], list):
        steps = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
        return [_tensor(d, dtype, s) for d, s in zip(dims, steps, strict=True)]
    if kind == "TensorList":
        return [] if recorded else UNKNOWN  # old releases write [] for every list
    if dtype is not None or dims:
        return _tensor(dims, dtype, strides)
    if not recorded or not isinstance(concrete, str):
        return UNKNOWN
    return parse_concrete(concrete) if concrete else None


def _tensor(dims: object, dtype: str | None, strides: object) -> TensorSpec | Unknown:
    if not _integers(dims):
        return UNKNOWN
    if not _real(dims):
        raise _NoTensor
    steps = tuple(strides) if _integers(strides) and len(strides) == len(dims) and _real(strides) else None
    return TensorSpec(tuple(dims), dtype, steps)


def _real(sizes: list[int]) -> bool:
    """Whether a tensor can have these sizes or strides."""
    try:
        checked_shape(sizes)
    except ValueError:
        return False
    return True


def _integers(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(v) is int for v in values)


_INTEGER = re.compile(r"-?\d+")
_MOST_DIGITS = 41  # beyond those of 128 bits; Python itself refuses to read some thousands
_FLOAT = re.compile(r"-?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|inf|nan)", re.IGNORECASE)
_COMPLEX = rf"(?i)\(?({_FLOAT.pattern})([-+,]-?{_FLOAT.pattern})\*?[ij]?\)?"
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False}


def parse_concrete(text: str) -> object:
    """The value printed in Concrete Inputs: int, float, complex, bool, None, a list of those, or else the text itself."""
    text = text.strip()
    if text.startswith("["):
        try:
            return _parsed(json.loads(re.sub(r"[^\s,\[\]]+", lambda m: json.dumps(m[0]), text)))
        except (ValueError, RecursionError):
            return UNKNOWN
    return _parsed(text)


def _parsed(text: str | list[str]) -> object:
    if isinstance(text, list):
        return [_parsed(inner) for inner in text]
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= _MOST_DIGITS else UNKNOWN
    if _FLOAT.fullmatch(text):
        return float(text)
    if (found := re.fullmatch(_COMPLEX, text)) is not None:
        return complex(float(found[1]), float(found[2].lstrip(",")))
    return text
