"""Run a program unchanged, record it, and print the summary: what the time went to and what to do first.

    pyprof run [--tool nsys|torch] [--steps 10:12] [-o NAME] net.py ARGUMENTS      (or: -m MODULE ARGUMENTS; torchrun ...)

The program keeps its arguments, standard streams and signals, and its exit code is that of `pyprof run`, even where no capture
came of it, which a line then says; what pyprof prints goes to standard error. The capture, its records and a ledger of all
steps (NAME.steps.jsonl) stay beside each other as NAME.*, with the rank in the name in a distributed job. Existing files are
never replaced: the new ones are NAME.2.*, NAME.3.*.

If the program makes training steps (optimizer.step() or pyprof.step()), five after warm-up are recorded; else the whole run, up
to --limit and --limit-time.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path

from pyprof.errors import EmptyCapture, InputError, PyprofError, ToolError, UsageError
from pyprof.messages import tell, told_late
from pyprof.parse.records.dataset import named_rank
from pyprof.recording.limits import Bounds, ns_per_byte
from pyprof.recording.metrics import SAMPLED, measuring
from pyprof.recording.programs import PYTHON_SUFFIXES, program_name
from pyprof.recording.results import record_name
from pyprof.recording.run import INDUCTOR, Recording, RunPlan, choose_tool, record
from pyprof.recording.steps import Steps, parse_steps
from pyprof.recording.tools import job_rank
from pyprof.tables.files import terminated_by_exception


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof run`."""
    tools = ("auto", "nsys", "torch")
    text = "auto (default): nsys where both it and an NVIDIA GPU are present, else torch.profiler"
    parser.add_argument("--tool", choices=tools, default="auto", help=text)
    text = (
        "record steps A to B-1, counted from 0 by optimizer steps or pyprof.step(); with torch.profiler also several windows, "
        "A:B,C:D, each in its own file in the folder NAME; all: the whole program (default: five steps after warm-up)"
    )
    parser.add_argument("--steps", metavar="A:B", help=text)
    text = "stop recording when the trace is expected to become larger than N GB; 0: never (default %(default)s)"
    parser.add_argument("--limit", metavar="N", type=float, default=2.0, help=text)
    text = (
        "stop recording when it is expected to cost more than N minutes beyond the program's own time: to write and read the "
        "trace and, with torch.profiler, what recorded steps take longer than others; 0: never (default %(default)s)"
    )
    parser.add_argument("--limit-time", metavar="N", type=float, default=5.0, help=text)
    text = "write NAME.sqlite or NAME.json.gz, and NAME.dict (default: the program's name)"
    parser.add_argument("-o", "--output", metavar="NAME", help=text)
    parser.add_argument("--top", metavar="N", type=int, default=0, help="print the N ops that took most time as well")
    parser.add_argument("--forks", action="store_true", help="nsys: record forked processes too (data-loader workers)")
    text = f"torch.compile names its kernels and records their bytes, those on the CPU too (sets {', '.join(INDUCTOR)})"
    parser.add_argument("--inductor", action="store_true", help=text)
    text = (
        "torch.profiler: record no Python frames: no source lines and layers, but a program in which Python is slow runs faster"
    )
    parser.add_argument("--no-stacks", dest="stacks", action="store_false", help=text)
    parser.add_argument("--memory", action="store_true", help="torch.profiler: record allocations, for `pyprof memory`")
    text = (
        "record hardware metrics for `pyprof counters`: by Nsight Compute's names with torch.profiler; "
        f"{SAMPLED}: nsys samples a set of its own through time"
    )
    parser.add_argument("--metrics", metavar="METRIC,...", help=text)
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as python -m does")
    text = "a Python program, or a command that runs one in its own process or by torchrun"
    parser.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER, help=text)


def run(options: argparse.Namespace) -> int:
    """Record, parse, print. Returns the program's exit code, even if nothing was recorded or could be read."""
    steps = None if options.steps is None else parse_steps(options.steps)
    bounds = _bounds(options)
    command, name = _command(options)
    rank = job_rank()
    metrics = tuple(filter(None, (options.metrics or "").split(",")))
    wanted = "torch" if options.memory and options.tool == "auto" else options.tool
    tool = choose_tool(_tool(wanted, metrics), len(steps or [0]))
    with terminated_by_exception():
        suffix = f".rank{rank}" if rank else ""
        plan = RunPlan(
            command, tool, options.output or name, steps, bounds, suffix, options.forks, options.inductor, metrics,
            options.stacks, options.memory,
        )  # fmt: skip
        if rank in ("", "0"):
            _progress(f"recording {name} with {'nsys' if tool == 'nsys' else 'torch.profiler'}")
        recording = record(plan)
        for note in recording.notes:
            _say(note)
        try:
            _show(recording, steps, options.top if rank in ("", "0") else None)
            if metrics:
                _say(f"counters: pyprof counters {shlex.quote(str(recording.captures[0]))}")
            if options.memory:
                _say(f"what holds the memory: pyprof memory {shlex.quote(str(recording.captures[0]))}")
            if options.inductor:
                _say(f"fused kernels: pyprof inductor {shlex.quote(str(recording.captures[0]))}")
            if rank in ("", "0"):
                print(file=sys.stderr)
                with told_late("making the summary"):
                    _summarise(recording)
        except PyprofError as error:
            _say(f"{error} ({error.hint})" if error.hint else str(error))
        except OSError as error:
            _say(str(error))  # nothing where standard error is closed or full
    return recording.code


def _bounds(options: argparse.Namespace) -> Bounds:
    """The limits of the recording. Raises UsageError for a negative one."""
    if not options.limit >= 0:
        raise UsageError(f"--limit takes a number of GB, not {options.limit}", "for example --limit 5; 0: no limit")
    if not options.limit_time >= 0:
        raise UsageError(f"--limit-time takes minutes, not {options.limit_time}", "for example --limit-time 20; 0: no limit")
    return Bounds(options.limit * 1e9, options.limit_time * 60, ns_per_byte() if options.limit_time else 0)


def _tool(wanted: str, metrics: Sequence[str]) -> str:
    """The tool that records: metrics by name come from torch.profiler. Raises ToolError if this torch has none."""
    if not metrics:
        return wanted
    sampled = SAMPLED in metrics
    if (wanted == "nsys" and not sampled) or (sampled and (wanted == "torch" or len(metrics) > 1)):
        raise UsageError(
            "nsys samples a set of metrics of its own, torch.profiler takes them by name",
            f"--tool nsys --metrics {SAMPLED}; --tool torch --metrics NAME,...; or Nsight Compute: pyprof counters --metrics",
        )
    if sampled:
        return "nsys"
    with suppress(ImportError):  # the program may have another Python
        measuring(metrics, per_kernel=True)
    return "torch"


def _say(text: str) -> None:
    with suppress(OSError):
        tell(f"pyprof: {text}")


def _progress(text: str) -> None:
    """Tell a person at a terminal what is under way."""
    if sys.stderr.isatty():
        _say(f"{text} ...")


def _command(options: argparse.Namespace) -> tuple[list[str], str]:
    """The command line of the program, and the name of its capture."""
    hint = "pyprof run [OPTIONS] net.py ARGUMENTS"
    if options.module is not None:
        if not options.module:
            raise UsageError("-m takes the name of a module", "pyprof run [OPTIONS] -m MODULE ARGUMENTS")
        return [sys.executable, "-m", *options.module], program_name(["python", "-m", *options.module])
    words = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not words:
        raise UsageError("no program was given", hint)
    path = Path(words[0])
    if path.suffix in PYTHON_SUFFIXES or path.is_dir() or (path.is_file() and not os.access(path, os.X_OK)):
        if not path.exists():
            raise UsageError(f"{path}: no such program", hint)
        return [sys.executable, *words], Path(os.path.abspath(path)).stem
    if shutil.which(words[0]) is None:
        raise UsageError(f"{words[0]}: no such program", hint)
    return words, program_name(words)


def _show(recording: Recording, steps: Steps | None, top: int | None) -> None:
    """Write the records of each capture, print the ops that took most time in all of them, and commands that show more.

    top: how many ops, None: another rank prints.
    """
    _check(recording, steps)
    from pyprof.commands import parse as parse
    from pyprof.loading.load import load
    from pyprof.model.records import concatenate

    parser = argparse.ArgumentParser()
    parse.add_arguments(parser)
    names = []
    for capture in list(recording.captures):
        names.append(str(record_name(capture)))
        _progress(f"reading {capture} ({capture.stat().st_size / 1e6:.0f} MB)")
        try:
            with told_late(f"reading {capture}"):
                parse.run(parser.parse_args([str(capture), "-o", names[-1]]))
        except EmptyCapture as error:
            if len(recording.captures) == 1:
                raise ToolError(f"{capture}: the program ran no op of torch while it was recorded") from error
            capture.unlink()  # of a process that did nothing, or of a program that another one replaced
            recording.captures.remove(capture)
            del names[-1]
    if top is not None:
        records = concatenate([load(name) for name in names])
        if recording.window is not None:
            first, end = recording.window
            records = records.select((records["step"] >= first) & (records["step"] < end))
        if top:
            from pyprof.recording.limits import print_top

            print_top(records, sys.stderr, top, max(shutil.get_terminal_size().columns, 120))
    window = [] if recording.window is None else ["--step", "{}:{}".format(*recording.window)]
    _say(f"all kernels: {shlex.join(['pyprof', 'prof', *window, *names])}")
    _say(f"this summary again: {shlex.join(['pyprof', 'summary', *window, *map(str, recording.captures)])}")
    if len(names) > 1 and ".rank" in names[0]:
        _say(f"which rank makes the others wait: {shlex.join(['pyprof', 'ranks', *names])}")


def _check(recording: Recording, steps: Steps | None) -> None:
    """Raise ToolError where there is no capture."""
    if not recording.processes and not recording.unexported:
        raise ToolError(
            "nothing was recorded: no process of the program imported torch",
            "processes that another program starts are not recorded; those of torchrun are",
        )
    if steps and recording.steps < steps[0][0]:
        raise ToolError(
            f"nothing was recorded: the program made {recording.steps} steps, and step {steps[0][0]} was to be the first",
            "steps are counted from 0, one for each step of the optimizer; without an optimizer call pyprof.step()",
        )
    if steps and recording.steps < steps[-1][1]:
        ended = "1 step" if recording.steps == 1 else f"{recording.steps} steps"
        requested = ",".join(f"{first}:{last}" for first, last in steps)
        _say(f"the program ended after {ended}: not all of {requested} are in the capture")
    if recording.unexported:
        report = recording.unexported[0]
        raw = report.suffix == ".qdstrm"
        by_hand = ["QdstrmImporter", "-i"] if raw else ["nsys", "export", "--type", "sqlite"]
        problem = "nsys made no report of it" if raw else "nsys could not export it"
        raise ToolError(f"{report}: {problem}", f"try by hand: {shlex.join([*by_hand, str(report)])}")
    if not recording.captures:
        raise ToolError("the program left no capture", _cause(recording))


def _summarise(recording: Recording) -> None:
    """Print the screen of a program, or the one of a job's ranks."""
    names = [str(one) for one in recording.captures]
    window = None if recording.window is None else "{}:{}".format(*recording.window)
    if len(names) > 1 and len({named_rank(one) for one in recording.captures} - {-1}) == len(names):
        from pyprof.commands import ranks as ranks

        parser = argparse.ArgumentParser()
        ranks.add_arguments(parser)
        with redirect_stdout(sys.stderr), suppress(InputError):  # ranks that have nothing in common to compare
            ranks.run(parser.parse_args([*names, *(["--step", window] if window else [])]))
            return
    from pyprof.commands.summary import show, summary_of

    steps = argparse.Namespace(step=window, range=None, time=None)
    show([summary_of(name, None, steps) for name in names], human=True, stream=sys.stderr)


def _cause(recording: Recording) -> str:
    """Why a program that imported torch left no capture."""
    if recording.cut and recording.code > 128:
        number = recording.code - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        memory = "; dmesg tells whether memory ran out" if number == signal.SIGKILL else ""
        return f"it was ended by {name} before the recording was written: record fewer steps with --steps A:B{memory}"
    if recording.notes:
        return "the reason is above"
    if recording.cut:
        return "a process was killed or could write no more (another user, another root): record fewer steps with --steps A:B"
    return "nothing ran while it was recorded"
