"""The text of an NVTX range <-> its meaning: one `Marker` for each distinct text.

Decoded are pyprof's own markers, the three kinds of dict and `layer:` of the original PyProf, and emit_nvtx of every torch
release; any other text is a range of the user. Must not know databases or torch. Nothing here raises for a text: one that looks
like a marker and cannot be read is a user range.

    pyprof     op     `linear(fp32[64,1024], fp32[10,1024], None) #pyprof{"mod":"torch.nn.functional","src":"net.py:42"}`,
                      under autocast with `"autocast":"cuda:bf16"` too
               layer  `encoder.layers.3 #pyprof{"layer":"TransformerEncoderLayer"}`
               step   `step 12 #pyprof{"step":12}`         optimizer  `AdamW.step #pyprof{"optimizer":"AdamW"}`
    original   `{'mod': .., 'op': .., 'args': [..]}`, `{'traceMarker': [..]}`, `{'mod': .., 'strRepr': ..}`, `layer:NAME`
    engines    `{'Module': 'model.layers.0.mlp', 'Inputs': [[32, 4096]], ..}`, `NAME in=[[32, 4096]]`: layerwise ranges of vLLM,
               SGLang and TensorRT-LLM: a module and the shapes it was called with, never an op
    emit_nvtx  `NAME[, seq = N][, op_id = M][, sizes = [[..], ..]][, input_op_ids = [..]]`
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import NamedTuple

from pyprof.model.autocast import Cast, run_call
from pyprof.model.dtypes import lookup
from pyprof.model.opcall import (
    UNKNOWN,
    OpCall,
    TensorSpec,
    Unknown,
    checked_shape,
    format_call,
    parse_call,
    sound_text,
    sound_value,
)

# What reading hostile text as a literal can raise: syntax, unhashable keys, huge integers, deep nesting.
UNREADABLE = (ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError)


class Kind(IntEnum):
    """Kinds of ranges."""

    USER = 0  # written by the user or by a library
    OP = 1  # a Python-level call with its arguments
    TRACE = 2  # source lines only
    REPR = 3  # the printed form of a module
    LAYER = 4  # a named layer
    DISPATCH = 5  # an op of the dispatcher (aten::mm), or a forward autograd function
    BACKWARD = 6  # an autograd function running backward (AddmmBackward0)
    ENGINE = 7  # the engine around a backward function
    OPTIMIZER = 8  # one step of an optimizer
    STEP = 9  # one step of the training loop
    INTERNAL = 10  # torch's own bookkeeping


class Marker(NamedTuple):
    """The meaning of one distinct range text.

    text: as recorded, without the ids that change with each call (seq, op_id, input_op_ids); name: what to show;
    call: the op and its arguments (OP, DISPATCH, BACKWARD), under autocast with the types in which it ran; casts: those that
    autocast made for it; src: source lines `file:line`, outermost first (OP, TRACE);
    scope: the origin of a layer's name, `module` (qualified, from the instrumenter), `layerwise` (qualified, from an engine
    whose text has its shapes too) or `user`; own: written by pyprof's
    instrumenter, so that `text` follows its grammar; step: the number of a training step; cls: a module's class, "" unknown.
    """

    kind: Kind
    text: str
    name: str
    call: OpCall | None = None
    src: tuple[str, ...] = ()
    scope: str = ""
    own: bool = False
    step: int | None = None
    casts: tuple[Cast, ...] = ()
    cls: str = ""


# ---------------------------------------------------------------------------------------------- pyprof's own markers

_TAIL = " #pyprof{"


def _with_tail(head: str, tail: dict[str, object]) -> str:
    return f"{head} #pyprof{json.dumps(tail, ensure_ascii=False, separators=(',', ':'))}"


def encode_op(call: OpCall, src: tuple[str, ...] = (), autocast: str = "") -> str:
    """The text of an op's range; src: `file:line` of the call, or of all calls of its stack, outermost first.

    call: as it was made; autocast: device and dtype of the region where it was made inside one (`cuda:bfloat16`).
    """
    tail: dict[str, object] = {"mod": call.module}
    if autocast:
        tail["autocast"] = autocast
    if src:
        tail["src"] = src if len(src) > 1 else src[0]
    return _with_tail(format_call(call), tail)


def encode_layer(path: str, cls: str) -> str:
    """The text of a module's range; path: its qualified name from the root, cls: its class."""
    return _with_tail(path, {"layer": cls})


def encode_optimizer(name: str) -> str:
    """The text of an optimizer step's range; name: the optimizer's class."""
    return _with_tail(f"{name}.step", {"optimizer": name})


def encode_step(number: int) -> str:
    """The text of a training step's range."""
    return _with_tail(f"step {number}", {"step": number})


def _decode_own(text: str) -> Marker | None:
    head, _, rest = text.rpartition(_TAIL)
    tail = json.loads("{" + rest)
    if "mod" in tail:
        call = parse_call(head, _text(tail["mod"]))
        casts: tuple[Cast, ...] = ()
        src = tail.get("src", ())
        if "autocast" in tail:
            device, _, tag = _text(tail["autocast"]).partition(":")
            if (dtype := lookup(tag)) is None:
                raise ValueError(f"unknown dtype {tag!r}")
            call, casts = run_call(call, device, dtype.name)
        lines = tuple(map(_text, (src,) if isinstance(src, str) else src))
        return Marker(Kind.OP, text, call.op, call, lines, own=True, casts=casts)
    if "layer" in tail:
        cls = tail["layer"] if isinstance(tail["layer"], str) else ""
        return Marker(Kind.LAYER, text, head, scope="module", own=True, cls=sound_text(cls))
    if "optimizer" in tail:
        return Marker(Kind.OPTIMIZER, text, head, own=True)
    if "step" in tail:
        return Marker(Kind.STEP, text, head, own=True, step=_step(tail["step"]))
    return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return sound_text(value)


def _step(value: object) -> int:
    """The number of a training step. Raises ValueError if a column of 32 bits cannot hold it."""
    if not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ValueError("not the number of a step")
    return value


# ---------------------------------------------------------------------------------------------- the original PyProf

_INFINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def read_literal(text: str) -> object:
    """The value of a Python literal; nothing is evaluated. Raises one of UNREADABLE."""
    import ast

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the user's own text
        return ast.literal_eval(text)


def _decode_dict(text: str) -> Marker | None:
    try:
        found = read_literal(text)
    except (ValueError, SyntaxError):  # the original wrote bare inf and nan in lists
        found = read_literal(re.sub(r"(?<![\w'\"])(inf|nan)(?![\w'\"])", "1e999", text))
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("traceMarker"), (list, tuple)):
        return Marker(Kind.TRACE, text, "trace", src=tuple(map(_text, found["traceMarker"])))
    if isinstance(found.get("Module"), str) and found["Module"]:
        return Marker(Kind.LAYER, text, sound_text(found["Module"]), scope="layerwise")
    if "strRepr" in found and "mod" in found:
        return Marker(Kind.REPR, text, _text(found["mod"]))
    if "mod" in found and "op" in found and isinstance(found.get("args"), (list, tuple)):
        call = _legacy_call(_text(found["mod"]), _text(found["op"]), found["args"])
        return Marker(Kind.OP, text, call.op, call)
    return None


_LAYERWISE = re.compile(r"(?P<name>[A-Za-z_][\w.]*) in=\[[\[\]()\dx, ]*\]")


def _legacy_call(module: str, op: str, args: Sequence[object]) -> OpCall:
    positional: list[object] = []
    named: list[tuple[str, object]] = []
    for arg in args:
        if not isinstance(arg, dict):
            continue
        value, name = _legacy_value(arg), arg.get("name")
        if isinstance(name, str) and name.isidentifier():
            named.append((name, value))
        else:
            positional.append(value)
    return OpCall(module, op, tuple(positional), tuple(named), flat=True)


def _legacy_value(arg: dict[str, object]) -> object:
    kind = arg.get("type")
    if kind in ("tensor", "ndarray"):
        shape = arg.get("shape", ())
        try:
            dims = checked_shape(shape) if isinstance(shape, (list, tuple)) else ()
        except ValueError:
            return UNKNOWN
        return TensorSpec(dims, sound_text(str(arg["dtype"])) if "dtype" in arg else None)
    value = arg.get("value", UNKNOWN)
    if kind == "float" and isinstance(value, str):
        return _INFINITE.get(value, UNKNOWN)
    return sound_value(value)


# ---------------------------------------------------------------------------------------------- emit_nvtx

# Anchored on the keys, since names of C++ functions contain ", " as well.
_IDS = re.compile(
    r"(?:, seq = (?P<seq>-?\d+))?(?:, op_id = (?P<op_id>\d+))?"
    # The end of the sizes is decided where it is first possible: trying every later one takes time of the square of the text.
    r"(?:(?=(?P<sizes>, sizes = \[.*?\])(?:, input_op_ids = \[|$))(?P=sizes))?(?:, input_op_ids = \[.*\])?$",
    re.DOTALL,
)
_MAX_KEYS = 16
_FIRST_KEY = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_BACKWARD = re.compile(
    r"(?:[\w:]+::)?[A-Za-z_]\w*Backward\d*|(?:torch::autograd::)?(?:AccumulateGrad|CopySlices|CopyBackwards|CppNode<.+>)"
)
_ENGINE = "autograd::engine::evaluate_function: "
_NAMED = re.compile(
    r"Optimizer\.step#(?P<optimizer>[\w.]+?)\.step|ProfilerStep#(?P<step>\d+)|(?P<namespace>\w+)::(?P<op>[\w.]+)"
)
# Ranges that torch puts around the ops of a tensor subclass and of a custom op: the ops around and inside did the work.
TAKEN_OVER = "PythonDispatchMode"  # a mode of Python's decides what an op does: it may call it, or do nothing of it
_CAPTURE = re.compile(r"capture_(\d{1,9})_(\w+)")
_WRAPPERS = re.compile(rf"PythonSubclass|{TAKEN_OVER}|GeneratedBackwardFor_\w+(?<!Backward)")
_BARE_OPS = frozenset({"detach", "detach_"})  # torch prints these two without a namespace


def split_ids(text: str) -> tuple[str, int, int, bool]:
    """Remove from an emit_nvtx text the ids that change with each call.

    Returns (text without seq, op_id and input_op_ids, seq or -1, op_id or -1, whether it had any key).
    """
    first = _FIRST_KEY.search(text)
    if first is None:
        return text, -1, -1, False
    # Where the name itself contains the first key, the ids begin at a later key. A few are tried, to bound time.
    later = islice(_FIRST_KEY.finditer(text, first.end()), _MAX_KEYS)
    match = next((match for key in (first, *later) if (match := _IDS.match(text, key.start())) is not None), None)
    if match is None:
        return text, -1, -1, False
    return text[: match.start()] + (match["sizes"] or ""), _number(match["seq"]), _number(match["op_id"]), True


def _number(digits: str | None) -> int:
    """A number in an emit_nvtx text; -1 if it is missing or not valid: AccumulateGrad prints 2**64 - 1."""
    if not digits or len(digits) > 20:
        return -1
    number = int(digits)
    return number if 0 <= number < 1 << 62 else -1


def is_backward_name(name: str) -> bool:
    """Whether a range name is an autograd function running backward: `AddmmBackward0`, not any text with Backward in it."""
    return _BACKWARD.fullmatch(name) is not None


def is_wrapper(name: str) -> bool:
    """Whether a range of torch's only passes a call on, and is no op: `PythonSubclass`, `GeneratedBackwardFor_mylib_foo`."""
    return _WRAPPERS.fullmatch(name) is not None


def graph_capture(text: str) -> re.Match[str] | None:
    """Batch size and mode in a serving engine's annotation around the capture of a graph; None for any other text."""
    return _CAPTURE.fullmatch(text)


def is_compiler(name: str) -> bool:
    """Whether torch.compile opens a range of this name around work of its own."""
    return name.endswith(" (dynamo_timed)") or name == "entire_frame_compile"


def _decode_emit(text: str, keyed: bool, numbered: bool) -> Marker | None:
    name, _, sizes = text.partition(", sizes = ")
    if name.startswith(_ENGINE):
        return Marker(Kind.ENGINE, text, name[len(_ENGINE) :])
    if is_backward_name(name) and (keyed or "::" in name):
        before, bracket, arguments = name.partition("<")  # the namespaces of template arguments stay
        unqualified = before.rpartition("::")[2] + bracket + arguments
        return Marker(Kind.BACKWARD, text, name, _emit_call("autograd", unqualified, sizes))
    if (named := _NAMED.fullmatch(name)) is not None:
        if named["optimizer"]:
            return Marker(Kind.OPTIMIZER, text, f"{named['optimizer']}.step")
        if named["step"]:
            return Marker(Kind.STEP, text, name, step=_step(int(named["step"])))
        return Marker(Kind.DISPATCH, text, name, _emit_call(named["namespace"], named["op"].partition(".")[0], sizes))
    if sizes and (collective := re.fullmatch(r"(nccl|gloo|mpi|ucc):(\w+)", name)) is not None:
        return Marker(Kind.DISPATCH, text, name, _emit_call(collective[1], collective[2], sizes))
    if keyed and (name == "record_param_comms" or is_wrapper(name)):
        return Marker(Kind.INTERNAL, text, name)
    if keyed and (numbered or sizes or name in _BARE_OPS):
        # Older releases print `mul, seq = 66` without a namespace; a class name is an autograd function running forward.
        module = "aten" if name.islower() else "autograd"
        return Marker(Kind.DISPATCH, text, name, _emit_call(module, name, sizes))
    return None


def _emit_call(module: str, op: str, sizes: str) -> OpCall:
    if not sizes:
        return OpCall(module, op, dispatcher=True, described=False)
    args: list[TensorSpec | Unknown] = []
    for dims in re.findall(r"\[([\d, -]*)\]", sizes.strip()[1:-1]):
        try:
            args.append(TensorSpec(checked_shape(int(d) for d in dims.split(","))))
        except ValueError:  # invalid sizes, or `[]`, printed for scalars, None and 0-dimensional tensors alike
            args.append(UNKNOWN)
    return OpCall(module, op, tuple(args), dispatcher=True, flat=True)


# ---------------------------------------------------------------------------------------------- all of them


def decode(text: str, *, keyed: bool = False, numbered: bool = False) -> Marker:
    """The meaning of one distinct range text.

    text: as `split_ids` returns it; keyed: an emit_nvtx key (seq, op_id, sizes) was removed from it; numbered: seq was.
    """
    text = sound_text(text)
    layerwise = _LAYERWISE.match(text) if " in=[" in text else None
    readers = (
        (_TAIL in text, _decode_own),
        (text.startswith("{"), _decode_dict),
        (layerwise is not None, lambda text: layerwise and Marker(Kind.LAYER, text, layerwise["name"], scope="layerwise")),
        (text.startswith("layer:"), lambda text: Marker(Kind.LAYER, text, text[len("layer:") :], scope="user")),
        (True, partial(_decode_emit, keyed=keyed or ", sizes = " in text, numbered=numbered)),
    )
    for applies, read in readers:
        with suppress(*UNREADABLE):  # it only looks like a marker
            if applies and (marker := read(text)) is not None:
                return marker
    return Marker(Kind.USER, text, text)


def same_function(forward: str, backward: str) -> bool:
    """Whether an autograd function is named after a forward op: `aten::_softmax` and `SoftmaxBackward0`."""
    op = forward.rpartition("::")[2].replace("_", "").lower()
    return op == re.sub(r"Backward\d*$", "", backward.rpartition("::")[2]).replace("_", "").lower()
