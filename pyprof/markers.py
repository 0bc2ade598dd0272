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
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pyprof.opcall import UNKNOWN, OpCall, TensorSpec, format_call, parse_call

__all__ = [
    "Kind",
    "Marker",
    "decode",
    "encode_layer",
    "encode_op",
    "encode_optimizer",
    "encode_step",
    "is_backward_name",
    "split_ids",
]


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
    head, found, rest = text.rpartition(_TAIL)
    if not found:
        return None
    try:
        tail = json.loads("{" + rest)
        if "mod" in tail:
            call = parse_call(head, tail["mod"])
            src = tail.get("src", ())
            lines = (src,) if isinstance(src, str) else tuple(map(str, src))
            return Marker(Kind.OP, text, call.op, call, lines, own=True)
        if "layer" in tail:
            return Marker(Kind.LAYER, text, head, scope="module", own=True)
        if "optimizer" in tail:
            return Marker(Kind.OPTIMIZER, text, head, own=True)
        if "step" in tail:
            return Marker(Kind.STEP, text, head, own=True, step=int(tail["step"]))
    except (ValueError, TypeError, RecursionError):
        return None
    return None


# ---------------------------------------------------------------------------------------------- the original PyProf's

_INFINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
_BARE = re.compile(r"(?<![\w'\"])(inf|nan)(?![\w'\"])")


def _literal(text: str) -> Any:
    """A Python literal; bare inf and nan in lists, which the original wrote, are read as such."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return ast.literal_eval(_BARE.sub("1e999", text))


def _decode_dict(text: str) -> Marker | None:
    try:
        found = _literal(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("traceMarker"), (list, tuple)):
        return Marker(Kind.TRACE, text, "trace", src=tuple(str(line) for line in found["traceMarker"]))
    if "strRepr" in found and "mod" in found:
        return Marker(Kind.REPR, text, str(found["mod"]))
    if "mod" in found and "op" in found and isinstance(found.get("args"), (list, tuple)):
        call = _legacy_call(str(found["mod"]), str(found["op"]), found["args"])
        return Marker(Kind.OP, text, call.op, call)
    return None


def _legacy_call(module: str, op: str, args: list[Any] | tuple[Any, ...]) -> OpCall:
    positional: list[Any] = []
    named: list[tuple[str, Any]] = []
    for arg in args:
        if not isinstance(arg, dict):
            continue
        value = _legacy_value(arg)
        if arg.get("name"):
            named.append((str(arg["name"]), value))
        else:
            positional.append(value)
    return OpCall(module, op, tuple(positional), tuple(named), flat=True)


def _legacy_value(arg: dict[str, Any]) -> Any:
    kind = arg.get("type")
    if kind in ("tensor", "ndarray"):
        shape = arg.get("shape", ())
        dims = tuple(int(n) for n in shape) if isinstance(shape, (list, tuple)) else ()
        return TensorSpec(dims, str(arg["dtype"]) if "dtype" in arg else None)
    value = arg.get("value", UNKNOWN)
    if kind == "float" and isinstance(value, str):
        return _INFINITE.get(value, UNKNOWN)
    return value


# ---------------------------------------------------------------------------------------------- emit_nvtx

# Anchored on the literal keys, since names of C++ functions contain ", " themselves.
_IDS = re.compile(
    r"(?:, seq = (?P<seq>-?\d+))?(?:, op_id = (?P<op_id>\d+))?(?P<sizes>, sizes = \[.*?\])?(?:, input_op_ids = \[.*\])?$",
    re.DOTALL,
)
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
    start = first.start()
    match = _IDS.match(text, start)
    while match is None:  # a key that belongs to the name itself
        first = _FIRST_KEY.search(text, first.end())
        if first is None:
            return text, -1, -1, False
        start = first.start()
        match = _IDS.match(text, start)
    seq = -1 if match["seq"] is None else int(match["seq"])
    # AccumulateGrad has no number of its own: 2**64 - 1.
    seq = seq if seq < 1 << 62 else -1
    op_id = -1 if match["op_id"] is None else int(match["op_id"])
    return text[:start] + (match["sizes"] or ""), seq, op_id, True


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
        return Marker(Kind.STEP, text, name, step=int(step["step"]))
    namespaced = re.fullmatch(r"\w+::[\w.]+", name)
    if is_backward_name(name) and (keyed or "::" in name):
        return Marker(Kind.BACKWARD, text, name, _emit_call("autograd", name.rpartition("::")[2], sizes))
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


def _emit_call(module: str, op: str, sizes: str) -> OpCall:
    if not sizes:
        return OpCall(module, op, dispatcher=True, described=False)
    inner = sizes.strip()[1:-1]
    args = tuple(_emit_value(dims) for dims in _SIZES.findall(inner))
    return OpCall(module, op, args, dispatcher=True, flat=True)


def _emit_value(dims: str) -> Any:
    # `[]` stands for a scalar, None and a 0-dimensional tensor alike.
    return TensorSpec(tuple(int(d) for d in dims.split(","))) if dims.strip() else UNKNOWN


# ---------------------------------------------------------------------------------------------- all of them


def decode(text: str, *, keyed: bool = False, numbered: bool = False) -> Marker:
    """What one distinct range text means.

    text: as `split_ids` leaves it; keyed: an emit_nvtx key (seq, op_id, sizes) was taken from it; numbered: the key was seq.
    """
    if _TAIL in text and (own := _decode_own(text)) is not None:
        return own
    if text.startswith("{") and (legacy := _decode_dict(text)) is not None:
        return legacy
    if text.startswith("layer:"):
        return Marker(Kind.LAYER, text, text[len("layer:") :], scope="user")
    emitted = _decode_emit(text, keyed or ", sizes = " in text, numbered)
    return emitted if emitted is not None else Marker(Kind.USER, text, text)
