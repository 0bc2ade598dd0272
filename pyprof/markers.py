"""The text of an NVTX range <-> what it means: one `Marker` for each distinct text.

Understood: our own grammar, the original PyProf's three dict kinds and `layer:`, emit_nvtx of every torch release, and any
other text as a range of the user's. Knows text only: no databases, no torch. A text that looks like one of ours and cannot be
read is a user range; nothing here raises for a text.

    ours       op     `linear(fp32[64,1024], fp32[10,1024], None) #pyprof{"mod":"torch.nn.functional","src":"net.py:42"}`
               layer  `encoder.layers.3 #pyprof{"layer":"TransformerEncoderLayer"}`
               step   `step 12 #pyprof{"step":12}`         optimizer  `AdamW.step #pyprof{"optimizer":"AdamW"}`
    PyProf     `{'mod': .., 'op': .., 'args': [..]}`, `{'traceMarker': [..]}`, `{'mod': .., 'strRepr': ..}`, `layer:NAME`
    emit_nvtx  `NAME[, seq = N][, op_id = M][, sizes = [[..], ..]][, input_op_ids = [..]]`
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any

from pyprof.opcall import UNKNOWN, OpCall, TensorSpec, checked_shape, format_call, parse_call, sound_text, sound_value

__all__ = [
    "UNREADABLE",
    "Kind",
    "Marker",
    "decode",
    "encode_layer",
    "encode_op",
    "encode_optimizer",
    "encode_step",
    "is_backward_name",
    "read_literal",
    "same_function",
    "split_ids",
]


# What reading a text that nobody wrote for us can raise: no such literal, unhashable keys, endless numbers, endless nesting.
UNREADABLE = (ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError)


class Kind(IntEnum):
    """What a range says of the kernels inside it."""

    USER = 0  # a range of the user's own, or of a library
    OP = 1  # a Python-level call with its arguments
    TRACE = 2  # source lines only
    REPR = 3  # the printed form of a module
    LAYER = 4  # a named layer
    DISPATCH = 5  # an op of the dispatcher (aten::mm), or a forward autograd function
    BACKWARD = 6  # an autograd function running backward (AddmmBackward0)
    ENGINE = 7  # the engine around a backward function
    OPTIMIZER = 8  # one step of an optimizer
    STEP = 9  # one step of the training loop
    INTERNAL = 10  # bookkeeping of torch's own, which names nothing


@dataclass(frozen=True, slots=True)
class Marker:
    """The meaning of one distinct range text.

    text: the text as recorded, less the ids that change with each call (seq, op_id, input_op_ids); name: what to show;
    call: the op and its arguments (OP, DISPATCH); src: source lines `file:line`, outermost first (OP, TRACE);
    scope: where a layer name comes from, `module` (found by the instrumenter, qualified) or `user`; own: written by this
    instrumenter (so that `text` is in our grammar).
    """

    kind: Kind
    text: str
    name: str
    call: OpCall | None = None
    src: tuple[str, ...] = ()
    scope: str = ""
    own: bool = False
    step: int | None = None


# ---------------------------------------------------------------------------------------------- our own grammar

_TAIL = " #pyprof{"


def _with_tail(head: str, tail: dict[str, Any]) -> str:
    return f"{head} #pyprof{json.dumps(tail, ensure_ascii=False, separators=(',', ':'))}"


def encode_op(call: OpCall, src: str | tuple[str, ...] = "") -> str:
    """The text of an op's range; src: `file:line` of the call, or all lines of its stack, outermost first."""
    tail: dict[str, Any] = {"mod": call.module}
    if src:
        tail["src"] = src if isinstance(src, str) else list(src)
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
    if _TAIL not in text:
        return None
    head, _, rest = text.rpartition(_TAIL)
    tail = json.loads("{" + rest)
    if "mod" in tail:
        call = parse_call(head, _text(tail["mod"]))
        src = tail.get("src", ())
        return Marker(Kind.OP, text, call.op, call, tuple(map(_text, (src,) if isinstance(src, str) else src)), own=True)
    if "layer" in tail:
        return Marker(Kind.LAYER, text, head, scope="module", own=True)
    if "optimizer" in tail:
        return Marker(Kind.OPTIMIZER, text, head, own=True)
    if "step" in tail:
        return Marker(Kind.STEP, text, head, own=True, step=_step(tail["step"]))
    return None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return sound_text(value)


def _step(value: Any) -> int:
    """The number of a training step; what is read from text must be one that a column of 32 bits holds."""
    if not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ValueError("no number of a step")
    return value


# ---------------------------------------------------------------------------------------------- the original PyProf's

_INFINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
_BARE = re.compile(r"(?<![\w'\"])(inf|nan)(?![\w'\"])")


def read_literal(text: str) -> Any:
    """The value of a Python literal, never evaluated. Raises one of UNREADABLE."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an escape that Python does not know, in a text that is the user's
        return ast.literal_eval(text)


def _decode_dict(text: str) -> Marker | None:
    if not text.startswith("{"):
        return None
    try:
        found = read_literal(text)
    except (ValueError, SyntaxError):
        found = read_literal(_BARE.sub("1e999", text))  # bare inf and nan in lists, which the original wrote
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("traceMarker"), (list, tuple)):
        return Marker(Kind.TRACE, text, "trace", src=tuple(map(_text, found["traceMarker"])))
    if "strRepr" in found and "mod" in found:
        return Marker(Kind.REPR, text, _text(found["mod"]))
    if "mod" in found and "op" in found and isinstance(found.get("args"), (list, tuple)):
        call = _legacy_call(_text(found["mod"]), _text(found["op"]), found["args"])
        return Marker(Kind.OP, text, call.op, call)
    return None


def _legacy_call(module: str, op: str, args: list[Any] | tuple[Any, ...]) -> OpCall:
    positional: list[Any] = []
    named: list[tuple[str, Any]] = []
    for arg in args:
        if not isinstance(arg, dict):
            continue
        value, name = _legacy_value(arg), arg.get("name")
        if isinstance(name, str) and name.isidentifier():
            named.append((name, value))
        else:
            positional.append(value)
    return OpCall(module, op, tuple(positional), tuple(named), flat=True)


def _legacy_value(arg: dict[str, Any]) -> Any:
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

# Anchored on the literal keys, since names of C++ functions contain ", " themselves.
_IDS = re.compile(
    r"(?:, seq = (?P<seq>-?\d+))?(?:, op_id = (?P<op_id>\d+))?(?P<sizes>, sizes = \[.*?\])?(?:, input_op_ids = \[.*\])?$",
    re.DOTALL,
)
_MOST_KEYS = 16
_FIRST_KEY = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_BACKWARD = re.compile(
    r"(?:[\w:]+::)?[A-Za-z_]\w*Backward\d*|(?:torch::autograd::)?(?:AccumulateGrad|CopySlices|CopyBackwards|CppNode<.+>)"
)
_ENGINE = "autograd::engine::evaluate_function: "
_OPTIMIZER = re.compile(r"Optimizer\.step#(?P<name>[\w.]+?)\.step$")
_STEP = re.compile(r"ProfilerStep#(?P<step>\d+)$")
_BARE_OPS = frozenset({"detach", "detach_"})  # torch's own, printed without a namespace
_SIZES = re.compile(r"\[([\d, -]*)\]")


def split_ids(text: str) -> tuple[str, int, int, bool]:
    """Take from an emit_nvtx text what changes with each call.

    Returns (text without seq, op_id and input_op_ids, seq or -1, op_id or -1, whether any key was there).
    """
    first = _FIRST_KEY.search(text)
    if first is None:
        return text, -1, -1, False
    match = _IDS.match(text, first.start()) or _match_later(text, first.end())
    if match is None:
        return text, -1, -1, False
    return text[: match.start()] + (match["sizes"] or ""), _number(match["seq"]), _number(match["op_id"]), True


def _match_later(text: str, start: int) -> re.Match[str] | None:
    """Where the first key belongs to the name itself one of the next begins what is sought. Few are tried, for time."""
    tried = (_IDS.match(text, key.start()) for key in islice(_FIRST_KEY.finditer(text, start), _MOST_KEYS))
    return next((match for match in tried if match is not None), None)


def _number(digits: str | None) -> int:
    """A number of emit_nvtx's, -1 where there is none or no real one: AccumulateGrad prints 2**64 - 1."""
    if not digits or len(digits) > 20:
        return -1
    number = int(digits)
    return number if 0 <= number < 1 << 62 else -1


def is_backward_name(name: str) -> bool:
    """Whether a range name is an autograd function run backward: `AddmmBackward0`, not any text with Backward in it."""
    return _BACKWARD.fullmatch(name) is not None


def _decode_emit(text: str, keyed: bool, numbered: bool) -> Marker | None:
    name, _, sizes = text.partition(", sizes = ")
    if name.startswith(_ENGINE):
        return Marker(Kind.ENGINE, text, name[len(_ENGINE) :])
    if (step := _OPTIMIZER.match(name)) is not None:
        return Marker(Kind.OPTIMIZER, text, f"{step['name']}.step")
    if (step := _STEP.match(name)) is not None:
        return Marker(Kind.STEP, text, name, step=_step(int(step["step"])))
    namespaced = re.fullmatch(r"\w+::[\w.]+", name)
    if is_backward_name(name) and (keyed or "::" in name):
        return Marker(Kind.BACKWARD, text, name, _emit_call("autograd", _unqualified(name), sizes))
    if namespaced is not None:
        module, _, op = name.partition("::")
        return Marker(Kind.DISPATCH, text, name, _emit_call(module, op.partition(".")[0], sizes))
    if sizes and (collective := re.fullmatch(r"(nccl|gloo|mpi|ucc):(\w+)", name)) is not None:
        return Marker(Kind.DISPATCH, text, name, _emit_call(collective[1], collective[2], sizes))
    if keyed and name == "record_param_comms":
        return Marker(Kind.INTERNAL, text, name)
    if keyed and (numbered or sizes or name in _BARE_OPS):
        # Older releases print `mul, seq = 66` without a namespace; a class name is an autograd function running forward.
        module = "aten" if name.islower() else "autograd"
        return Marker(Kind.DISPATCH, text, name, _emit_call(module, name, sizes))
    return None


def _unqualified(name: str) -> str:
    """A C++ name without the namespaces before it; those of its template arguments stay."""
    before, bracket, arguments = name.partition("<")
    return before.rpartition("::")[2] + bracket + arguments


def _emit_call(module: str, op: str, sizes: str) -> OpCall:
    if not sizes:
        return OpCall(module, op, dispatcher=True, described=False)
    inner = sizes.strip()[1:-1]
    args = tuple(_emit_value(dims) for dims in _SIZES.findall(inner))
    return OpCall(module, op, args, dispatcher=True, flat=True)


def _emit_value(dims: str) -> Any:
    """`[]` stands for a scalar, None and a 0-dimensional tensor alike; what are no sizes stays unknown."""
    try:
        return TensorSpec(checked_shape(int(d) for d in dims.split(","))) if dims.strip() else UNKNOWN
    except ValueError:
        return UNKNOWN


# ---------------------------------------------------------------------------------------------- all of them


def decode(text: str, *, keyed: bool = False, numbered: bool = False) -> Marker:
    """What one distinct range text means.

    text: as `split_ids` leaves it; keyed: an emit_nvtx key (seq, op_id, sizes) was taken from it; numbered: the key was seq.
    """
    text = sound_text(text)
    for read in (_decode_own, _decode_dict, _decode_layer):
        try:
            found = read(text)
        except UNREADABLE:
            continue  # it only looks like one
        if found is not None:
            return found
    try:
        found = _decode_emit(text, keyed or ", sizes = " in text, numbered)
    except UNREADABLE:
        found = None
    return found if found is not None else Marker(Kind.USER, text, text)


def _decode_layer(text: str) -> Marker | None:
    return Marker(Kind.LAYER, text, text[len("layer:") :], scope="user") if text.startswith("layer:") else None


_BACKWARD_SUFFIX = re.compile(r"Backward\d*$")


def same_function(forward: str, backward: str) -> bool:
    """Whether an autograd function is named after a forward op: `aten::_softmax` and `SoftmaxBackward0`."""
    op = forward.rpartition("::")[2].replace("_", "").lower()
    return op == _BACKWARD_SUFFIX.sub("", backward.rpartition("::")[2]).replace("_", "").lower()
