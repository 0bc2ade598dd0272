"""Run one recorded op alone on this machine's device, with its recorded shapes, dtypes and strides, and time it.

    pyprof bench FILE --idx N                              the row N of `pyprof prof FILE`
    pyprof bench FILE --op linear                          the call of this op that took most time
    pyprof bench --op aten::mm --shape 64,100 100,256      without a capture
    pyprof bench --op 'aten::add(fp32[64,100], fp32[100])'

Alternatives are timed as well: sizes padded to whole aligned loads, other dtypes, channels last. Each call starts with a cold
cache.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pyprof.dtypes import lookup
from pyprof.errors import ToolError, UsageError
from pyprof.opcall import OpCall, TensorSpec, parse_call
from pyprof.timers.alternatives import Alternative, alternatives
from pyprof.timers.replay import choose_device, replay, replayable
from pyprof.timers.timing import Timing, timeit

if TYPE_CHECKING:
    from pyprof.parse.records.records import Records

_HEADER = ("Call", "Time(us)", "best(us)", "p99(us)", "Spread", "Launches", "TFLOP/s", "GB/s", "Speedup")
_SHAPE_HINT = "for example --op aten::mm --shape 64,100 100,256 --dtype bf16"


class Chosen(NamedTuple):
    """call: what to run; recorded_s: seconds of one execution in the capture (None without one), where: on which device."""

    call: OpCall
    recorded_s: float | None = None
    where: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof bench`."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="a capture or records")
    parser.add_argument("--idx", metavar="N", type=int, help="the row of this number")
    parser.add_argument(
        "--op", metavar="NAME", help="an op (`aten::mm`, `torch.nn.functional.linear`, `linear`), or a whole call"
    )
    parser.add_argument(
        "--shape", metavar="M,N", nargs="+", help="shapes of its tensors; with FILE, of the calls to choose from"
    )
    parser.add_argument(
        "--dtype", metavar="TYPE", default="fp32", help="dtype of all its tensors, without FILE (default %(default)s)"
    )
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: a GPU where there is one)")
    parser.add_argument(
        "--seconds", metavar="S", type=float, default=0.5, help="how long to measure each call (default %(default)s)"
    )
    parser.add_argument("--warm", action="store_true", help="do not clear the caches between calls")


def run(options: argparse.Namespace) -> int:
    """Choose, run, print. Returns the exit code."""
    if options.seconds <= 0:
        raise UsageError("--seconds must be positive", "for example --seconds 0.5")
    chosen = _from_file(options) if options.file else _from_words(options)
    device = choose_device(options.device)
    base = _time(chosen.call, device, options)
    rows = [_row("as recorded" if options.file else "as given", chosen.call, base, base)]
    rows += [_try(alternative, device, options, base) for alternative in alternatives(chosen.call, gpu=device != "cpu")]
    print(f"{chosen.call.name}: {chosen.call}")
    print(f"on {base.device}, {'warm' if options.warm else 'cold'} caches, median of {len(base.times_s)} calls", end="")
    print(f"; recorded: {chosen.recorded_s * 1e6:.1f} us on {chosen.where}" if chosen.recorded_s is not None else "")
    _print_table(rows)
    if base.host_bound:
        print("note: host-bound: launching takes longer than the work", file=sys.stderr)
    return 0


def _from_words(options: argparse.Namespace) -> Chosen:
    if options.idx is not None or not options.op:
        raise UsageError("without FILE, --op must name an op", _SHAPE_HINT)
    head, bracket, _ = options.op.partition("(")
    name = options.op[len(head) :]
    module, dispatcher, op = _split(head)
    if bracket:
        try:
            return Chosen(parse_call(op + name, module, dispatcher=dispatcher))
        except ValueError as error:
            raise UsageError(
                f"--op {options.op!r} is not a call: {error}", "for example --op 'aten::mm(fp32[8,16], fp32[16,8])'"
            ) from error
    dtype = lookup(options.dtype)
    if dtype is None:
        raise UsageError(f"unknown dtype {options.dtype!r}", "for example --dtype bf16")
    shapes = _shapes(options.shape)
    if not shapes:
        raise UsageError("without FILE, --shape must give the shapes", _SHAPE_HINT)
    return Chosen(OpCall(module, op, tuple(TensorSpec(shape, dtype.name) for shape in shapes), dispatcher=dispatcher))


def _split(name: str) -> tuple[str, bool, str]:
    """`aten::mm` or `mm` -> (aten, True, mm); `torch.nn.functional.linear` -> (torch.nn.functional, False, linear)."""
    namespace, colons, op = name.partition("::")
    if colons:
        return namespace, True, op
    module, dot, op = name.rpartition(".")
    return (module, False, op) if dot else ("aten", True, op)


def _shapes(words: list[str] | None) -> list[tuple[int, ...]]:
    found = []
    for word in words or []:
        try:
            sizes = tuple(int(part) for part in word.strip("[]").split(",") if part.strip())
        except ValueError:
            sizes = (-1,)
        if min(sizes, default=0) < 0:
            raise UsageError(f"--shape: {word!r} is not a shape", _SHAPE_HINT)
        found.append(sizes)
    return found


def _from_file(options: argparse.Namespace) -> Chosen:
    from pyprof.loading import load
    from pyprof.parse.records.selection import SHOWN, choose_kinds

    if (options.idx is None) == (options.op is None):
        raise UsageError(
            "use either --idx or --op to choose what to run", f"python -m pyprof.prof {options.file} lists the rows"
        )
    records = choose_kinds(load(options.file), SHOWN)
    return _row_of(records, options) if options.idx is not None else _op_of(records, options)


def _row_of(records: Records, options: argparse.Namespace) -> Chosen:
    if not 1 <= options.idx <= len(records):
        raise UsageError(f"there is no row {options.idx}", f"rows are numbered from 1 to {len(records)}")
    row = options.idx - 1
    codes = _codes(records, row)
    if not codes:
        raise UsageError(f"row {options.idx} has no op", f"python -m pyprof.prof {options.file} lists the rows")
    code = next((code for code in codes if not replayable(records.calls[code])), codes[0])
    instance = int(records["instance"][row])
    together = records["instance"] == instance if instance >= 0 and code != int(records["inner"][row]) else slice(row, row + 1)
    return Chosen(records.calls[code], float(records["dur_ns"][together].sum()) / 1e9, _where(records, row))


def _codes(records: Records, row: int) -> list[int]:
    """The calls of a row that can be run, the whole op first; in the backward pass its own, not the forward's."""
    columns = ("own", "inner") if records["dir"][row] == 1 else ("call", "own", "inner")
    return [code for name in columns if (code := int(records[name][row])) >= 0]


def _where(records: Records, row: int) -> str:
    if int(records["device"][row]) < 0:
        return "the CPU"
    gpu = int(records["gpu"][row])
    return (records.gpus[gpu].name if gpu >= 0 else "") or "a GPU"


def _op_of(records: Records, options: argparse.Namespace) -> Chosen:
    """The call with this name (and these shapes) whose executions took most time."""
    shapes = _shapes(options.shape)

    @cache
    def chosen(code: int) -> bool:
        call = records.calls[code]
        return options.op in (call.name, call.op) and (not shapes or [t.shape for t in call.tensors] == shapes)

    rows: dict[int, list[int]] = defaultdict(list)
    for row in range(len(records)):
        code = int(records["call"][row])
        if records["dir"][row] == 1:
            code = next((c for c in _codes(records, row) if not replayable(records.calls[c])), -1)
        if code >= 0 and chosen(code):
            rows[code].append(row)
    if not rows:
        raise UsageError(
            f"no call of {options.op!r} with these shapes was recorded", f"python -m pyprof.prof {options.file} -c op,params"
        )
    spent = {code: int(records["dur_ns"][at].sum()) for code, at in rows.items()}
    able = [code for code in spent if not replayable(records.calls[code])]
    code = max(able or spent, key=lambda code: (spent[code], -code))
    executions = len(set(records["instance"][rows[code]].tolist()))
    return Chosen(records.calls[code], spent[code] / executions / 1e9, _where(records, rows[code][0]))


def _time(call: OpCall, device: str, options: argparse.Namespace, *, tf32: bool = False) -> Timing:
    return timeit(replay(call, device, tf32=tf32), seconds=options.seconds, flush=not options.warm, device=device)


def _try(alternative: Alternative, device: str, options: argparse.Namespace, base: Timing) -> list[str]:
    try:
        return _row(alternative.name, alternative.call, _time(alternative.call, device, options, tf32=alternative.tf32), base)
    except (ToolError, UsageError) as error:
        print(f"note: {alternative.name}: {error}", file=sys.stderr)
        return [alternative.name, *["na"] * (len(_HEADER) - 1)]


def _row(name: str, call: OpCall, timing: Timing, base: Timing) -> list[str]:
    from pyprof.prof import formulas

    cost = formulas.evaluate(call).cost
    seconds = timing.median_s

    def rate(amount: int | None, unit: float) -> str:
        return "na" if amount is None or not seconds else f"{amount / seconds / unit:.3g}"

    gain = base.median_s / seconds if seconds else float("nan")
    # A gain of the median that the best calls do not show, or that is smaller than their spread, may be chance.
    noise = abs(gain - 1) <= (timing.spread + base.spread) / 2 or (gain - 1) * (base.best_s - timing.best_s) <= 0
    speedup = "" if timing is base else f"{gain:.2f}x" + (" (noise)" if noise else "")
    launches = "na" if timing.launches is None else str(timing.launches)
    times = [f"{value * 1e6:.1f}" for value in (seconds, timing.best_s, timing.p99_s)]
    return [name, *times, f"{100 * timing.spread:.0f}%", launches, rate(cost.flops, 1e12), rate(cost.bytes, 1e9), speedup]


def _print_table(rows: list[list[str]]) -> None:
    table = [_HEADER, *rows]
    first, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *cells in table:
        print(" ".join([name.ljust(first), *map(str.rjust, cells, widths)]).rstrip())
