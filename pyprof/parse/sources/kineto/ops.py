"""An op of a torch.profiler trace with its recorded inputs -> a Marker with its OpCall, once for each distinct op.

Knows the names of ops and the spelling of recorded inputs: `Input Dims`, `Input type`, `Input Strides`, `Concrete Inputs`.
Kineto records no strings and no lists of optional tensors: both look like None. Elements of a tensor list carry no dtype.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeGuard

import msgspec

from pyprof.dtypes import lookup
from pyprof.markers import Kind, Marker, decode, is_backward_name
from pyprof.opcall import UNKNOWN, OpCall, TensorSpec, Unknown
from pyprof.parse.sources.kineto.events import Event, Int
from pyprof.parse.sources.kineto.exported import RangeCodes
from pyprof.parse.sources.trace import Labels

_EMPTY = msgspec.Raw(b"")
_Number = int | float | str | None


class OpArgs(msgspec.Struct, gc=False):
    """The args of a cpu_op or user_annotation that pyprof reads."""

    external: Int = msgspec.field(default=-1, name="External id")
    external_2021: Int = msgspec.field(default=-1, name="external id")
    seq: int = msgspec.field(default=-1, name="Sequence number")
    fwd: Int = msgspec.field(default=0, name="Fwd thread id")
    dims: msgspec.Raw = msgspec.field(default=_EMPTY, name="Input Dims")
    dims_2021: msgspec.Raw = msgspec.field(default=_EMPTY, name="Input dims")
    types: msgspec.Raw = msgspec.field(default=_EMPTY, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=_EMPTY, name="Input Strides")
    concrete: msgspec.Raw = msgspec.field(default=_EMPTY, name="Concrete Inputs")
    stack: str = msgspec.field(default="", name="Call stack")
    codes: RangeCodes | None = msgspec.field(default=None, name="pyprof")
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


_FIELDS = OpArgs.__struct_fields__
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


class OpLabels:
    """Codes into a trace's markers for ops, each distinct one decoded once; shapes: whether inputs were recorded."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._codes: dict[tuple[object, ...], int] = {}
        self.shapes = False

    def codes(self, events: Sequence[Event], args: Sequence[OpArgs]) -> list[int]:
        """The codes of the markers of ops and annotations, each with its args."""
        codes, found = self._codes, []
        for event, one in zip(events, args, strict=True):
            inputs = b"\0".join((one.dims or one.dims_2021, one.types, one.strides, one.concrete))
            # An annotation is a range of the user's or a library's, which is an op only as a collective.
            annotation = event.cat == "user_annotation"
            key: tuple[object, ...] = (event.name, inputs, one.seq >= 0, one.fwd > 0, annotation)
            if one.kernel_backend or one.collective:
                key += (one.collective, one.dtype, one.in_elements, one.out_elements, one.group, one.group_name)
                key += tuple(getattr(one, fact) for fact in _KERNEL_FACTS)
            code = codes.get(key)
            if code is None:
                code = codes[key] = self._add(event.name, one, annotation)
            found.append(code)
        return found

    def _add(self, name: str, args: OpArgs, annotation: bool) -> int:
        dims = bytes(args.dims or args.dims_2021)
        self.shapes |= bool(dims)
        inputs = _inputs(name, dims, args)
        marker = _annotation(name, args, inputs) if annotation else _marker(name, args, inputs)
        # Two spellings of the same inputs are one marker: the key is the decoded call.
        return self._labels.add((marker.kind, name, repr(marker.call)), marker)


def _marker(name: str, args: OpArgs, inputs: tuple[object, ...] | None) -> Marker:
    """The meaning of an op's range; without a call where it is a range as in NVTX (the user's, a step, an optimizer)."""
    if name.startswith(_ENGINE):
        return decode(name)
    if is_backward_name(name) or (args.fwd > 0 and _NAMESPACED.fullmatch(name) is None):
        return Marker(Kind.BACKWARD, name, name, _call("autograd", name.removeprefix("torch::autograd::"), inputs))
    module = _module(name, args, inputs)
    if module is None:
        return decode(name)
    op = name[len(module) + 2 :].partition(".")[0] if name.startswith(f"{module}::") else name.removeprefix("nccl:")
    if module == "aoti" and (found := _AOTI.fullmatch(name)) is not None:
        op = found["op"]
    facts: list[tuple[str, object]] = []
    if args.collective:
        facts = _collective(args)
    elif args.kernel_backend:
        facts = [(fact, value) for fact in _KERNEL_FACTS if (value := getattr(args, fact)) not in (None, "")]
    return Marker(Kind.DISPATCH, name, name, _call(module, op, inputs, tuple(facts)))


def _annotation(name: str, args: OpArgs, inputs: tuple[object, ...] | None) -> Marker:
    """The meaning of an annotation: `execute_32_context_0` and `MyModel::step` are no ops, whatever numbers they carry."""
    if args.collective or name.startswith(("nccl:", "record_param_comms")):
        return _marker(name, args, inputs)
    found = decode(name)
    return found if found.kind not in (Kind.DISPATCH, Kind.BACKWARD, Kind.ENGINE) else Marker(Kind.USER, name, name)


def _module(name: str, args: OpArgs, inputs: tuple[object, ...] | None) -> str | None:
    """The namespace of an op; None where the range is not an op."""
    if (found := _NAMESPACED.fullmatch(name)) is not None:
        return found["module"]
    if args.kernel_backend or _CPP_FUSED.fullmatch(name):
        return args.kernel_backend if args.kernel_backend not in ("", "triton") else "inductor"
    if _AOTI.fullmatch(name):
        return "aoti"
    if name == "record_param_comms":
        return "c10d"
    if name.startswith("nccl:") and inputs is not None:
        return "nccl"
    if name in ("detach", "detach_"):  # the two that torch records without their namespace
        return "aten"
    # A torch.autograd.Function running forward goes by its class's name; without gradients it has tensors and no number.
    function = args.seq >= 0 or any(isinstance(value, TensorSpec) and value.dtype for value in inputs or ())
    return "autograd" if function and _IDENTIFIER.fullmatch(name) else None


def _call(module: str, op: str, inputs: tuple[object, ...] | None, facts: tuple[tuple[str, object], ...] = ()) -> OpCall:
    return OpCall(module, op, inputs or (), facts, dispatcher=True, described=inputs is not None)


def _collective(args: OpArgs) -> list[tuple[str, object]]:
    """The data that a communication op moved: `input` and `output` as tensors of one dimension."""
    found = lookup(args.dtype) or lookup(args.dtype.lower())
    dtype = found.name if found else None
    extra: list[tuple[str, object]] = [("collective", args.collective)]
    for name, elements in (("input", args.in_elements), ("output", args.out_elements)):
        if elements >= 0:
            extra.append((name, TensorSpec((elements,), dtype)))
    extra += [("group_size", args.group)] if args.group >= 0 else []
    return extra + ([("group", str(args.group_name))] if args.group_name not in (None, "", -1) else [])


# ---------------------------------------------------------------------------------------------- recorded inputs


def _inputs(name: str, dims: bytes, args: OpArgs) -> tuple[object, ...] | None:
    """The arguments of a call in the order of its schema; None where they were not recorded."""
    if not dims:
        return None
    lists = [_list(dims), *(_list(bytes(raw)) for raw in (args.types, args.strides, args.concrete))]
    recorded = bool(bytes(args.concrete))
    values = [_value(d, k if isinstance(k, str) else "", s, c, recorded) for d, k, s, c in zip_longest(*lists)]
    hidden = _UNRECORDED.get(name)
    if hidden is not None and hidden < len(values) and values[hidden] is None:
        values[hidden] = UNKNOWN
    return tuple(values)


def _list(text: bytes) -> list[object]:
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError):
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
    steps = tuple(strides) if _integers(strides) and len(strides) == len(dims) else None
    return TensorSpec(tuple(dims), dtype, steps)


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
