"""Options --kinds, --step, --range, --time -> a mask over Records: the rows that a command shows.

Selecting changes no number: costs and rates of the remaining rows are those of the whole capture.
"""

from __future__ import annotations

import argparse
import re

import numpy as np

from pyprof.columns.distinct import among
from pyprof.columns.types import Bools
from pyprof.errors import InputError, UsageError
from pyprof.messages import tell
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind

SHOWN = "kernel,graph,cpu"  # default of net.dict and prof
_WINDOW = ("step", "range", "time")
_ALL = "all"  # of --window
_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_LARGEST = np.iinfo(np.int64).max


def add_kinds(parser: argparse.ArgumentParser, default: str | None = SHOWN, shown: str = SHOWN) -> None:
    """The option `--kinds`."""
    names = ", ".join(ActivityKind.NAMES)
    parser.add_argument("--kinds", default=default, metavar="LIST", help=f"rows to show, or all: {names} (default {shown})")


def kind_codes(kinds: str) -> list[int]:
    """The kinds in a comma-separated list, or `all`. Raises UsageError for an unknown kind or an empty list."""
    names = ActivityKind.NAMES if kinds.strip() == "all" else list(map(str.strip, kinds.split(",")))
    for name in names:
        if name not in ActivityKind.NAMES:
            raise UsageError(f"unknown kind {name!r} in --kinds {kinds!r}", f"kinds: {', '.join(ActivityKind.NAMES)}, all")
    return list(map(ActivityKind.NAMES.index, names))


def choose_kinds(records: Records, kinds: str) -> Records:
    """The records of these kinds. Raises as `kind_codes`."""
    return records.select(among(records["kind"], kind_codes(kinds)))


def add_window(parser: argparse.ArgumentParser) -> None:
    """The options `--step`, `--range` and `--time`."""
    parser.add_argument(
        "--step",
        metavar="A:B",
        help="only steps A to B - 1, of training or of a serving engine; either may be left out; A alone is one",
    )
    parser.add_argument(
        "--range", metavar="NAME", help="only inside this NVTX range or layer; NAME@DOMAIN in a domain, NAME@* in any"
    )
    parser.add_argument(
        "--time", metavar="A:B", help="only what begins from A until before B: ns as in column start, "
        "or with ns, us, ms, s after the number: since the first record"
    )  # fmt: skip


def add_whole(parser: argparse.ArgumentParser) -> None:
    """The option `--window`, of reports."""
    parser.add_argument(
        "--window", choices=[_ALL], help="all: everything that was recorded, set-up and what follows the last step included"
    )  # fmt: skip


def add_graphs(parser: argparse.ArgumentParser) -> None:
    """The option `--graphs`."""
    parser.add_argument(
        "--graphs", metavar="FILE|DIR", help="the trace of the capture of the graphs that the run replays, or the folder of "
        "those: ops, layers and shapes of their kernels; capture_traces/ beside the run is found without it"
    )  # fmt: skip


def window_given(options: argparse.Namespace) -> bool:
    """Whether the user chose a part of the capture, or all of it by --window all."""
    return any(getattr(options, name, None) is not None for name in (*_WINDOW, "window"))


def in_window(records: Records, options: argparse.Namespace, shown: Bools | None = None) -> Bools:
    """Whether each record lies in every requested part.

    shown: mask of the records that the command shows at all, None: all; only these count for steps, ranges and the first time.
    Raises UsageError for a malformed option, InputError if the capture has no steps or no such range. Steps outside the capture
    select nothing, with a note on standard error.
    """
    inside = np.ones(len(records), np.bool_) if shown is None else shown.copy()
    for name, select in zip(_WINDOW, (_in_steps, _in_range, _in_time), strict=True):
        if (text := getattr(options, name, None)) is not None:
            inside &= select(records, text, shown)
    return inside


def _any(inside: Bools, shown: Bools | None) -> bool:
    return bool((inside if shown is None else inside & shown).any())


def _in_steps(records: Records, text: str, shown: Bools | None) -> Bools:
    match = re.fullmatch(r"(\d{0,9}):(\d{0,9})|(\d{1,9})", text.strip())
    if match is None:
        raise UsageError(f"--step takes A:B, not {text!r}", "for example --step 10:12")
    first = int(match[1] or match[3] or 0)
    last = first + 1 if match[3] else int(match[2]) if match[2] else _LARGEST
    inside = records.within("step", first, last)
    if not _any(inside, shown):
        steps = records["step"] if shown is None else records["step"][shown]
        if not (steps >= 0).any():
            raise InputError("no steps are marked in this capture", "call pyprof.step() at the end of each step")
    if first >= last:
        raise UsageError(f"--step takes A:B with A before B, not {text!r}", "for example --step 10:12")
    if not _any(inside, shown):
        recorded = f"{steps[steps >= 0].min()} to {steps.max()}"
        tell(f"note: nothing of step {text} is in this capture, whose steps are {recorded}")
    return inside


def _in_range(records: Records, name: str, shown: Bools | None) -> Bools:
    in_ranges = np.array([_names_range(name, stack.ranges) for stack in records.stacks] + [False], np.bool_)
    # A layer matches by its whole name or by the first parts of its path.
    of_layer = [any(f"{layer}.".startswith(f"{name}.") for layer in stack.layer) for stack in records.stacks]
    in_layers = np.array([*of_layer, False], np.bool_)
    inside = np.zeros(len(records), np.bool_)
    for column, named in ("stack", in_ranges), ("scope", in_layers):
        if named.any():
            inside |= named[records[column]]
    if not _any(inside, shown):
        import difflib

        known = sorted({text for stack in records.stacks for text in (*stack.ranges, *stack.layer)})
        near = difflib.get_close_matches(name, known, 1, 0.4)
        hint = f"did you mean {near[0]!r}?" if near else "python -m pyprof.prof -c layer FILE shows the names"
        raise InputError(f"nothing ran inside a range called {name!r}", hint)
    return inside


def _names_range(name: str, ranges: tuple[str, ...]) -> bool:
    """Whether one of the ranges (`name` or `domain:name`) matches NAME, NAME@DOMAIN or NAME@*."""
    bare, at, domain = name.rpartition("@")
    if at and domain == "*":
        return any(text == bare or text.endswith(f":{bare}") for text in ranges)
    return name in ranges or (bool(at) and f"{domain}:{bare}" in ranges)


def first_ns(records: Records, shown: Bools | None = None) -> int:
    """Begin of the first record (of those shown), ns: the zero of --time values with a unit."""
    start_ns = records["start_ns"] if shown is None else records["start_ns"][shown]
    return int(start_ns[start_ns >= 0].min(initial=_LARGEST))


def _in_time(records: Records, text: str, shown: Bools | None) -> Bools:
    first = first_ns(records, shown) if re.search("[a-z]", text) else 0
    parts = text.replace(" ", "").split(":")
    try:
        begin, end = (_time_ns(part, first, default) for part, default in zip(parts, (0, _LARGEST), strict=True))
    except ValueError as error:
        raise UsageError(f"--time takes A:B, not {text!r}", "for example --time 1.5s:2s, or ns as in column start") from error
    return records.within("start_ns", begin, end)


def _time_ns(text: str, first_ns: int, default: int) -> int:
    """A --time value in ns: a plain number as in column start, one with a unit since the first record. Raises ValueError."""
    if not text:
        return default
    match = re.fullmatch(r"(\d+(?:\.\d*)?)(ns|us|ms|s)?", text)
    if match is None or len(text) > 30:
        raise ValueError(text)
    time_ns = first_ns + round(float(match[1]) * _NS[match[2]]) if match[2] else int(match[1].partition(".")[0])
    return min(time_ns, _LARGEST)
