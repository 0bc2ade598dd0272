"""Which records lie in a part of a capture: training steps, an NVTX range or layer, a time. For every table and report.

Gives a mask over Records and never drops rows itself: numbers, costs and rates of what remains stay those of the whole.
Steps that are not there leave no row, which a note on standard error says.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys

import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError, UsageError
from pyprof.parse.records.records import Records, Stack

__all__ = ["add_window", "in_window", "window_given"]

Bools = npt.NDArray[np.bool_]

_TIME = re.compile(r"(\d+(?:\.\d*)?)(ns|us|ms|s)?")
_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def add_window(parser: argparse.ArgumentParser) -> None:
    """The options `--step`, `--range` and `--time`."""
    parser.add_argument(
        "--step", metavar="A:B", help="only training steps A to B - 1; either may be left out; A alone is one step"
    )
    parser.add_argument(
        "--range", metavar="NAME", help="only inside this NVTX range or layer; NAME@DOMAIN in a domain, NAME@* in any"
    )
    parser.add_argument(
        "--time", metavar="A:B", help="only what begins from A until before B: ns as column start has them, "
        "or with ns, us, ms, s after the number since the first record"
    )  # fmt: skip


def window_given(options: argparse.Namespace) -> bool:
    """Whether the user asked for a part only."""
    return any(getattr(options, name, None) is not None for name in ("step", "range", "time"))


def in_window(records: Records, options: argparse.Namespace) -> Bools:
    """Whether each record lies in all the parts asked for.

    Raises UsageError for a text that is none, InputError where the capture has no steps or no such range.
    """
    inside = np.ones(len(records), np.bool_)
    if getattr(options, "step", None) is not None:
        inside &= _in_steps(records, options.step)
    if getattr(options, "range", None) is not None:
        inside &= _in_range(records, options.range)
    if getattr(options, "time", None) is not None:
        inside &= _in_time(records, options.time)
    return inside


def _in_steps(records: Records, text: str) -> Bools:
    found = re.fullmatch(r"(\d{0,9}):(\d{0,9})|(\d{1,9})", text.strip())
    if found is None:
        raise UsageError(f"--step takes A:B, not {text!r}", "for example --step 10:12")
    steps = records["step"]
    if not (steps >= 0).any():
        raise InputError("no training steps are marked in this capture", "call pyprof.step() at the end of each step")
    first = int(found[1] or found[3] or 0)
    last = first + 1 if found[3] else int(found[2]) if found[2] else np.iinfo(np.int64).max
    if first >= last:
        raise UsageError(f"--step takes A:B with A before B, not {text!r}", "for example --step 10:12")
    inside: Bools = (steps >= first) & (steps < last)
    if not inside.any():
        there = f"{steps[steps >= 0].min()} to {steps.max()}"
        print(f"note: nothing of step {text} is in this capture, whose steps are {there}", file=sys.stderr)
    return inside


def _in_range(records: Records, name: str) -> Bools:
    wanted = [_names(name, stack) for stack in records.stacks]
    own = np.array([bool(_matches(name, stack.ranges)) for stack in records.stacks] + [False], np.bool_)
    layers = np.array([*wanted, False], np.bool_)
    inside: Bools = own[records["stack"]] | layers[records["scope"]]
    if not inside.any():
        known = sorted({text for stack in records.stacks for text in (*stack.ranges, *stack.layer)})
        near = difflib.get_close_matches(name, known, 1, 0.4)
        hint = f"did you mean {near[0]!r}?" if near else "python -m pyprof.prof -c layer FILE shows what is named"
        raise InputError(f"nothing ran inside a range called {name!r}", hint)
    return inside


def _matches(name: str, texts: tuple[str, ...]) -> bool:
    """Ranges are told as `name`, or `domain:name`."""
    bare, at, domain = name.rpartition("@")
    if at and domain == "*":
        return any(text == bare or text.endswith(f":{bare}") for text in texts)
    return name in texts or (bool(at) and f"{domain}:{bare}" in texts)


def _names(name: str, stack: Stack) -> bool:
    """Whether a layer of the stack has that name, or a qualified path that begins with it."""
    return any(layer == name or layer.startswith(f"{name}.") for layer in stack.layer)


def _in_time(records: Records, text: str) -> Bools:
    start = records["start_ns"]
    begin = int(start[start >= 0].min(initial=np.iinfo(np.int64).max))

    def moment(part: str, default: int) -> int:
        found = _TIME.fullmatch(part)
        if not part:
            return default
        if found is None or len(part) > 30:
            raise UsageError(f"--time takes A:B, not {text!r}", "for example --time 1.5s:2s, or ns as in column start")
        return begin + round(float(found[1]) * _NS[found[2]]) if found[2] else int(found[1].partition(".")[0])

    parts = text.replace(" ", "").split(":")
    if len(parts) != 2:
        raise UsageError(f"--time takes A:B, not {text!r}", "for example --time 1.5s:2s, or ns as in column start")
    largest = np.iinfo(np.int64).max
    first, last = min(moment(parts[0], 0), largest), min(moment(parts[1], largest), largest)
    inside: Bools = (start >= first) & (start < last)
    return inside
