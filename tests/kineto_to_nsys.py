"""A torch.profiler trace -> the nsys export that the same run would have given: kernels, API calls and NVTX ranges.

The ranges are emit_nvtx's texts with sizes and, where asked for, our own markers around the outermost forward ops (types, scalars,
source line) and around modules. Everything is read from the plain events: the reader under test has no part in it.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pyprof.model.dtypes import lookup
from pyprof.model.markers import encode_layer, encode_op
from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec
from tests.tiny import Nsys, tid

Event = dict[str, Any]

_RANGES = ("cpu_op", "user_annotation")
_CALLS = ("cuda_runtime", "cuda_driver")
_ENGINE = "autograd::engine::evaluate_function: "
_MODULE = re.compile(r"nn\.Module: (\w+?)_\d+$")
_FUNCTIONAL = {
    "linear", "layer_norm", "dropout", "scaled_dot_product_attention", "gelu", "conv2d", "binary_cross_entropy_with_logits",
}  # fmt: skip
_METHODS = {"to", "view", "permute", "reshape", "expand", "transpose", "flatten", "contiguous"}


@dataclass
class Node:
    """An event of a thread and those within it."""

    event: Event
    inner: list[Node] = field(default_factory=list)


def convert(path: Path, target: Path, *, markers: bool) -> Path:
    """Write the export; markers: our own as well as emit_nvtx's texts."""
    return _Converter(json.loads(gzip.decompress(path.read_bytes()), strict=False), markers).write(target)


class _Converter:
    def __init__(self, trace: dict[str, Any], markers: bool) -> None:
        self.trace, self.markers = trace, markers
        self.out = Nsys()
        self.clock: dict[int, int] = defaultdict(int)
        self.launched_by: dict[int, int] = {}  # correlation id -> pid
        self.op_id = 0

    def write(self, target: Path) -> Path:
        events = [e for e in self.trace["traceEvents"] if e.get("ph") == "X"]
        self.origin = min(e["ts"] for e in events)
        threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for event in events:
            if event.get("cat") in (*_RANGES, *_CALLS, "python_function") and isinstance(event["tid"], int):
                threads[event["pid"], event["tid"]].append(event)
        for (pid, number), own in threads.items():
            if any(e["cat"] in (*_RANGES, *_CALLS) for e in own):
                for node in _tree(own):
                    self._walk(node, pid, number, (), False)
        for event in events:
            if event.get("cat") == "kernel":
                self._kernel(event)
        for row in self.trace.get("deviceProperties", []):
            self.out.rows["TARGET_INFO_GPU"].append(
                (row["id"], row["name"], row["id"], row["numSms"], row["computeMajor"], row["computeMinor"])
            )
        session = max(self.clock.values()) + 1
        self.out.rows["ANALYSIS_DETAILS"] = [(max(session, *(row[1] for row in self._kernels())),)]  # type: ignore[type-var]
        return self.out.write(target)

    def _kernels(self) -> list[tuple[object, ...]]:
        return self.out.rows["CUPTI_ACTIVITY_KIND_KERNEL"]

    def _ns(self, microseconds: float) -> int:
        return round((microseconds - self.origin) * 1000)

    def _tick(self, thread: int, microseconds: float) -> int:
        """A time after every other of the thread, since nanoseconds tell apart what microseconds do not."""
        self.clock[thread] = max(self.clock[thread] + 1, self._ns(microseconds))
        return self.clock[thread]

    def _walk(self, node: Node, pid: int, thread: int, frames: tuple[str, ...], inside: bool) -> None:
        """inside: within an op, or on the thread of the autograd engine."""
        event, args = node.event, node.event["args"]
        begin = self._tick(thread, event["ts"])
        texts: list[str] = []
        if event["cat"] in _CALLS:
            self.launched_by[args["correlation"]] = pid
        elif event["cat"] == "python_function":
            frames = (*frames, event["name"])
            found = _MODULE.match(event["name"])
            if found and self.markers:
                around = [name.removeprefix("nn.Module: ") for name in frames if _MODULE.match(name)]
                texts.append(encode_layer(".".join(around), found[1]))
        else:
            forward = event["cat"] == "cpu_op" and not inside and not event["name"].startswith(_ENGINE)
            if forward and self.markers and (call := _python_call(event)) is not None:
                texts.append(encode_op(call, _source(frames)))
                inside = True
            inside |= event["name"].startswith(_ENGINE)
            texts.append(self._emitted(event))
        begins = [begin, *(self._tick(thread, 0) for _ in texts[1:])]
        for child in node.inner:
            self._walk(child, pid, thread, frames, inside)
        end = self._tick(thread, event["ts"] + event["dur"])
        if event["cat"] in _CALLS:
            name = self.out.string(event["name"])
            self.out.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((begin, end, tid(pid, thread), args["correlation"], name))
        for start, text in reversed(list(zip(begins, texts, strict=False))):
            self.out.range(text, start, end, pid=pid, thread=thread)
            end = self._tick(thread, 0)

    def _emitted(self, event: Event) -> str:
        """`NAME, seq = N, op_id = M, sizes = [[..], ..]`; the engine's own ranges carry only op_id."""
        args, self.op_id = event["args"], self.op_id + 1
        engine = event["name"].startswith(_ENGINE)
        seq = args.get("Sequence number", -1)
        number = f", seq = {seq}" if 0 <= seq < 1 << 62 and not engine else ""
        dims = args.get("Input Dims")
        sizes = "" if dims is None or engine else f", sizes = {_flattened(dims)}"
        return f"{event['name']}{number}, op_id = {self.op_id}{sizes}"

    def _kernel(self, event: Event) -> None:
        args = event["args"]
        start = self._ns(event["ts"])
        pid = self.launched_by.get(args["correlation"], next(iter(self.launched_by.values())))
        self._kernels().append(
            (
                start, start + round(event["dur"] * 1000), args["device"], args["stream"], args["correlation"],
                tid(pid) & ~0xFFFFFF, self.out.string(event["name"]), *args["grid"], *args["block"],
                args["registers per thread"], args["shared memory"], 0, None,
            )
        )  # fmt: skip


def _tree(events: list[Event]) -> list[Node]:
    """Events of one thread by nesting in time; of equal times the frame first, then the op that was numbered first."""
    rank = {"python_function": 0, "user_annotation": 1, "cpu_op": 1}

    def order(event: Event) -> tuple[float, float, int, int]:
        number = event["args"].get("External id", 0) if event["cat"] in _RANGES else event["args"].get("Python id", 0)
        return event["ts"], -event["dur"], rank.get(event["cat"], 2), number

    roots: list[Node] = []
    stack: list[Node] = []
    for event in sorted(events, key=order):
        end = event["ts"] + event["dur"]
        while stack and (top := stack[-1].event)["ts"] + top["dur"] < end - 1e-6:
            stack.pop()
        node = Node(event)
        (stack[-1].inner if stack else roots).append(node)
        if event["cat"] not in _CALLS:
            stack.append(node)
    return roots


def _source(frames: tuple[str, ...]) -> tuple[str, ...]:
    """`file:line` of the innermost frame that is neither torch's nor Python's."""
    for frame in reversed(frames):
        found = re.fullmatch(r"(.+\.py)\((\d+)\): .*", frame)
        if found and not found[1].startswith(("torch/", "contextlib", "functools", "<")) and "/torch/" not in found[1]:
            return (f"{found[1]}:{found[2]}",)
    return ()


def _flattened(dims: list[Any]) -> str:
    flat: list[Any] = []
    for entry in dims:
        flat += entry if entry and isinstance(entry[0], list) else [entry]
    return json.dumps(flat)


def _python_call(event: Event) -> OpCall | None:
    """The Python-level call that would have made this op; None for what the instrumenter does not tell."""
    module, _, op = event["name"].partition("::")
    args = event["args"]
    if (
        module != "aten"
        or "Input Dims" not in args
        or op in ("as_strided", "detach", "lift_fresh", "resolve_conj", "resolve_neg")
    ):
        return None
    name = "torch.nn.functional" if op in _FUNCTIONAL else "Tensor" if op in _METHODS or op.endswith("_") else "torch"
    columns = (args["Input Dims"], args["Input type"], args.get("Input Strides", []), args.get("Concrete Inputs", []))
    known = "Concrete Inputs" in args
    return OpCall(name, op, tuple(_value(*row, known) for row in zip_longest(*columns)))


def _value(dims: Any, kind: str, strides: Any, concrete: Any, known: bool) -> Any:
    dtype = lookup(kind)
    if dims and isinstance(dims[0], list):
        steps = strides if strides and len(strides) == len(dims) else [None] * len(dims)
        return [TensorSpec(tuple(d), None, s and tuple(s)) for d, s in zip(dims, steps, strict=True)]
    if dtype is not None:
        return TensorSpec(tuple(dims), dtype.name, tuple(strides) if strides else None)
    if not known:
        return UNKNOWN
    if not concrete:
        return [] if kind == "TensorList" else None
    try:
        return ast.literal_eval(concrete)
    except (ValueError, SyntaxError):
        return UNKNOWN
