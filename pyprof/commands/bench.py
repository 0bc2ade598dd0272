"""Run one recorded op alone on this machine's device, with its recorded shapes, dtypes and strides, and time it.

    pyprof bench FILE --idx N                              the row N of `pyprof prof FILE`
    pyprof bench FILE --op linear                          the call of this op that took most time
    pyprof bench --op aten::mm --shape 64,100 100,256      without a capture
    pyprof bench --op 'aten::add(fp32[64,100], fp32[100])'
    pyprof bench FILE --advice                             what the kinds of advice that can be tried here would gain

Alternatives are timed as well: sizes padded to whole aligned loads, other dtypes, channels last, attention in parts. --advice
takes for each kind the op of most time that it applies to: a product, softmax and product as recorded against one op, an
optimizer's step as it ran against the fused one. Each call starts with a cold cache.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NamedTuple

from pyprof.errors import ToolError, UsageError
from pyprof.messages import tell
from pyprof.model.dtypes import lookup
from pyprof.model.opcall import OpCall, TensorSpec, parse_call
from pyprof.parse.records.selection import add_graphs
from pyprof.timers.alternatives import KINDS, Alternative, alternatives
from pyprof.timers.replay import OptimizerStep, Work, choose_device, replayable

if TYPE_CHECKING:
    from pyprof.model.records import Records
    from pyprof.timers.isolated import Isolated
    from pyprof.timers.timing import Timing

_MOST_TRIALS = 3  # per kind of advice, if an op cannot run here
_HEADER = ("Call", "Time(us)", "best(us)", "p99(us)", "Spread", "Launches", "TFLOP/s", "GB/s", "Speedup")
_SHAPE_HINT = "for example --op aten::mm --shape 64,100 100,256 --dtype bf16"


class BenchWork(NamedTuple):
    """Work to run; recorded_s: seconds of one execution in the capture (None without one); where: the device it ran on."""

    work: Work
    recorded_s: float | None = None
    where: str = ""

    @property
    def name(self) -> str:
        """The calls or the step in one line."""
        if isinstance(self.work, OptimizerStep):
            return str(self.work)
        return f"{self.work[0].name}: {' + '.join(map(str, self.work))}"


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
        "--advice", metavar="KIND", nargs="*", help=f"try what advice proposes: {', '.join(KINDS)} (default: all of these)"
    )
    parser.add_argument(
        "--seconds", metavar="S", type=float, default=0.5, help="how long to measure each call (default %(default)s)"
    )
    parser.add_argument("--warm", action="store_true", help="do not clear the caches between calls")
    add_graphs(parser)


def run(options: argparse.Namespace) -> int:
    """Choose, run, print. Returns the exit code."""
    if options.seconds <= 0:
        raise UsageError("--seconds must be positive", "for example --seconds 0.5")
    if options.advice is not None:
        return _try_advice(options)
    from pyprof.timers.isolated import Isolated

    chosen = _from_file(options) if options.file else _from_words(options)
    device = options.device = choose_device(options.device)
    found = alternatives(chosen.work[0], gpu=device != "cpu") if isinstance(chosen.work, tuple) else []
    with Isolated() as isolated:
        _compare(chosen.name, chosen, found, isolated, options)
    return 0


def _compare(title: str, chosen: BenchWork, others: list[Alternative], isolated: Isolated, options: argparse.Namespace) -> None:
    """Measure and print one table: the chosen work and the alternatives to it."""
    from pyprof.timers.isolated import TimingJob

    def measure(work: Work, tf32: bool = False) -> Timing:
        return isolated.time(TimingJob(work, options.device, options.seconds, not options.warm, tf32))

    base = measure(chosen.work)
    rows = [_row("as recorded" if options.file else "as given", chosen.work, base, base)]
    for other in others:
        try:
            rows.append(_row(other.name, other.work, measure(other.work, other.tf32), base))
        except (ToolError, UsageError) as error:
            tell(f"note: {other.name}: {error}")
            rows.append([other.name, *["na"] * (len(_HEADER) - 1)])
    print(title)
    print(f"on {base.device}, {'warm' if options.warm else 'cold'} caches, median of {len(base.times_s)} calls", end="")
    print(f"; recorded: {chosen.recorded_s * 1e6:.1f} us on {chosen.where}" if chosen.recorded_s is not None else "")
    _print_table(rows)
    if base.host_bound:
        tell("note: host-bound: launching takes longer than the work")


def _try_advice(options: argparse.Namespace) -> int:
    """Print one table for each kind of advice, or why it has none."""
    from pyprof.loading.load import load
    from pyprof.parse.records.selection import SHOWN, choose_kinds
    from pyprof.timers.isolated import Isolated
    from pyprof.timers.trials import NO_OP, find_trials

    if not options.file or options.idx is not None or options.op is not None or options.shape:
        raise UsageError("--advice chooses the ops of FILE itself", "pyprof bench FILE --advice")
    if wrong := sorted(set(options.advice) - set(KINDS)):
        raise UsageError(f"--advice: {wrong[0]!r} cannot be tried", f"kinds: {', '.join(KINDS)}")
    records, measured, shown, without = choose_kinds(load(options.file), SHOWN), 0, "", list[str]()
    device = options.device = choose_device(options.device)
    with Isolated() as isolated:
        for kind in options.advice or KINDS:
            tried = 0
            for trial in find_trials(kind, records, gpu=device != "cpu"):
                if trial == NO_OP:
                    without.append(kind)
                    break
                if shown not in ("", kind):
                    print(flush=True)
                shown = kind
                failed = trial if isinstance(trial, str) else None
                if not isinstance(trial, str):
                    spent = trial.spent
                    chosen = BenchWork(trial.work, spent.ns / spent.times / 1e9, _where(records, spent.row))
                    try:
                        _compare(f"{kind}: {spent.times} x {chosen.name}", chosen, trial.others, isolated, options)
                    except (ToolError, UsageError) as error:
                        failed = f"{chosen.name}: {error}"
                if failed is not None:
                    print(f"{kind}: not tried: {failed}")
                measured += failed is None
                tried += not isinstance(trial, str)
                if failed is None or tried == _MOST_TRIALS:
                    break
    if without:
        print("\n" * bool(shown) + f"not tried, since no op was recorded that they apply to: {', '.join(without)}")
    return 0 if measured else 1


def _from_words(options: argparse.Namespace) -> BenchWork:
    if options.idx is not None or not options.op:
        raise UsageError("without FILE, --op must name an op", _SHAPE_HINT)
    head, bracket, _ = options.op.partition("(")
    name = options.op[len(head) :]
    module, dispatcher, op = _split(head)
    if bracket:
        try:
            return BenchWork((parse_call(op + name, module, dispatcher=dispatcher),))
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
    return BenchWork((OpCall(module, op, tuple(TensorSpec(shape, dtype.name) for shape in shapes), dispatcher=dispatcher),))


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


def _from_file(options: argparse.Namespace) -> BenchWork:
    from pyprof.loading.load import load
    from pyprof.parse.records.selection import SHOWN, choose_kinds

    if (options.idx is None) == (options.op is None):
        raise UsageError(
            "use either --idx or --op to choose what to run", f"python -m pyprof.prof {options.file} lists the rows"
        )
    records = choose_kinds(load(options.file), SHOWN)
    if options.idx is None:
        return _op_of(records, options)
    if not 1 <= options.idx <= len(records):
        raise UsageError(f"there is no row {options.idx}", f"rows are numbered from 1 to {len(records)}")
    row = options.idx - 1
    # The whole op first; in the backward pass the backward op, not its forward op.
    columns = ("own", "inner") if records["dir"][row] == 1 else ("call", "own", "inner")
    codes = [code for name in columns if (code := int(records[name][row])) >= 0]
    if not codes:
        raise UsageError(f"row {options.idx} has no op", f"python -m pyprof.prof {options.file} lists the rows")
    code = next((code for code in codes if not replayable(records.calls[code])), codes[0])
    instance = int(records["instance"][row])
    together = records["instance"] == instance if instance >= 0 and code != int(records["inner"][row]) else slice(row, row + 1)
    return BenchWork((records.calls[code],), float(records["dur_ns"][together].sum()) / 1e9, _where(records, row))


def _where(records: Records, row: int) -> str:
    if int(records["device"][row]) < 0:
        return "the CPU"
    gpu = int(records["gpu"][row])
    return (records.gpus[gpu].name if gpu >= 0 else "") or "a GPU"


def _op_of(records: Records, options: argparse.Namespace) -> BenchWork:
    """The call with this name (and these shapes) whose executions took most time."""
    from pyprof.timers.trials import calls_that_ran

    shapes = _shapes(options.shape)
    ran = {
        code: spent
        for code, spent in calls_that_ran(records).items()
        if options.op in ((call := records.calls[code]).name, call.op)
        and (not shapes or [tensor.shape for tensor in call.tensors] == shapes)
    }
    if not ran:
        raise UsageError(
            f"no call of {options.op!r} with these shapes was recorded", f"python -m pyprof.prof {options.file} -c op,params"
        )
    able = [code for code in ran if not replayable(records.calls[code])]
    code = max(able or ran, key=lambda code: (ran[code].ns, -code))
    return BenchWork((records.calls[code],), ran[code].ns / ran[code].times / 1e9, _where(records, ran[code].row))


def _row(name: str, work: Work, timing: Timing, base: Timing) -> list[str]:
    from pyprof.prof import formulas

    costs = [formulas.evaluate(call).cost for call in work] if isinstance(work, tuple) else []
    seconds = timing.median_s

    def rate(amounts: list[int | None], unit: float) -> str:
        known = [amount for amount in amounts if amount is not None]
        return f"{sum(known) / seconds / unit:.3g}" if seconds and costs and len(known) == len(costs) else "na"

    gain = base.median_s / seconds if seconds else float("nan")
    # A faster median may be chance if the best calls do not confirm it or the gain is within the spread.
    noise = abs(gain - 1) <= (timing.spread + base.spread) / 2 or (gain - 1) * (base.best_s - timing.best_s) <= 0
    speedup = "" if timing is base else f"{gain:.2f}x" + (" (noise)" if noise else "")
    launches = "na" if timing.launches is None else str(timing.launches)
    rates = rate([cost.flops for cost in costs], 1e12), rate([cost.bytes for cost in costs], 1e9)
    times = [f"{value * 1e6:.1f}" for value in (seconds, timing.best_s, timing.p99_s)]
    return [name, *times, f"{100 * timing.spread:.0f}%", launches, *rates, speedup]


def _print_table(rows: list[list[str]]) -> None:
    if not sys.stdout.isatty():
        table = [_HEADER, *rows]
        first, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for name, *cells in table:
            print(" ".join([name.ljust(first), *map(str.rjust, cells, widths)]).rstrip())
        return
    import numpy as np

    from pyprof.tables.output import show
    from pyprof.tables.screen import joined, listed
    from pyprof.tables.table import Fractions, Header, Values

    headers, columns = [], list[Values]()
    for text, *cells in zip(_HEADER, *rows, strict=True):
        time = text.endswith("(us)")
        headers.append(Header(text.lower(), text, "", "us" if time else ""))
        numbers = np.array([float(cell.replace("na", "nan")) for cell in cells]) if time else np.empty(0)
        columns.append(Fractions.not_nan(numbers, 1) if time else listed(cells)._replace(right=text != "Call"))
    show(joined("calls", list(zip(headers, columns, strict=True))))
