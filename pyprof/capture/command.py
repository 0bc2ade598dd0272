"""Run a program unchanged, record it, and print the ops that took most time.

    pyprof run [--tool nsys|torch] [--steps 10:12] [-o NAME] net.py ARGUMENTS      (or: -m MODULE ARGUMENTS)

The program keeps its arguments, standard streams and exit code. The capture and its records stay beside each other as NAME.*.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from pyprof.capture.steps import parse_steps
from pyprof.errors import PyprofError, ToolError, UsageError

__all__ = ["add_arguments", "run"]

_COLUMNS = "idx,dir,layer,op,kernel,params,sil,flops,tc"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof run`."""
    tools = ("auto", "nsys", "torch")
    text = "auto: nsys where it is on PATH and an NVIDIA driver is there, else torch.profiler (default)"
    parser.add_argument("--tool", choices=tools, default="auto", help=text)
    parser.add_argument("--steps", metavar="A:B", help="record the steps from A up to and without B, counted from 0")
    parser.add_argument("-o", "--output", metavar="NAME", help="write NAME.sqlite or NAME.json.gz, and NAME.dict")
    parser.add_argument("--top", metavar="N", type=int, default=10, help="rows to print (default %(default)s)")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", metavar="PROGRAM", help="the Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="its arguments")


def run(options: argparse.Namespace) -> int:
    """Record, parse, print. Returns the program's exit code, or 1 where it ended well and nothing could be read."""
    steps = "all" if options.steps is None else ":".join(map(str, parse_steps(options.steps)))
    if not options.module and not Path(options.program).is_file():
        raise UsageError(f"{options.program}: no such program", "pyprof run [OPTIONS] net.py ARGUMENTS")
    tool = _choose(options.tool)
    name = _name(options)
    program = (["-m"] if options.module else []) + [options.program, *options.arguments]
    child = [sys.executable, "-m", "pyprof.capture.bootstrap", tool, steps, f"{name}.json.gz", *program]
    _forget(name)
    if tool == "torch":
        code, capture = _call(child), Path(f"{name}.json.gz")
    else:
        code = _call([*_nsys_command(name, steps), *child])
        capture = _export(name)
    try:
        _show(capture, name, options.top)
    except PyprofError:
        if code:  # the program's own failure is the news
            return code
        raise
    return code


def _choose(tool: str) -> str:
    driver = Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None
    if tool == "auto":
        return "nsys" if shutil.which("nsys") and driver else "torch"
    if tool == "nsys" and shutil.which("nsys") is None:
        raise ToolError("nsys is not on PATH", "install Nsight Systems (scripts/install_nsys on Debian), or use --tool torch")
    return tool


def _name(options: argparse.Namespace) -> str:
    name = options.output or Path(options.program.replace(".", "/") if options.module else options.program).stem
    rank = os.environ.get("RANK")
    return f"{name}.rank{rank}" if rank is not None and rank.isdigit() else str(name)


def _forget(name: str) -> None:
    """An older capture of the same name must not pass for this one."""
    for suffix in (".json.gz", ".nsys-rep", ".sqlite", ".dict"):
        Path(name + suffix).unlink(missing_ok=True)


def _nsys_command(name: str, steps: str) -> list[str]:
    command = ["nsys", "profile", "-t", "cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none"]
    if steps != "all" and Path("/dev/nvidiactl").exists():
        # Without a GPU nobody calls cudaProfilerStart; our ranges are made in the chosen steps only.
        command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    return [*command, "-f", "true", "-o", name]


def _call(command: list[str]) -> int:
    """Run a command in the foreground with our standard streams; a signal reaches it from the terminal as it reaches us."""
    process = subprocess.Popen(command)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    forward = signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, forward)
    return 128 - code if code < 0 else code


def _export(name: str) -> Path:
    report, target = Path(f"{name}.nsys-rep"), Path(f"{name}.sqlite")
    if not report.exists():
        raise ToolError(f"nsys left no {report}", "see its messages above; a program that records nothing leaves none")
    command = ["nsys", "export", "--type", "sqlite", "--quiet", "true", "-f", "true", "-o", str(target), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ToolError(f"{report}: nsys could not export it", f"try by hand: {' '.join(command)}")
    return target


def _show(capture: Path, name: str, top: int) -> None:
    """Write the records and print the rows that took most time."""
    if not capture.exists():
        raise ToolError(f"the program left no {capture}", "it may have ended before the chosen steps, or by os._exit")
    from pyprof.parse import command as parse
    from pyprof.prof import command as prof

    parser = argparse.ArgumentParser()
    parse.add_arguments(parser)
    records = f"{name}.dict"
    parse.run(parser.parse_args([str(capture), "-o", records]))
    parser = argparse.ArgumentParser()
    prof.add_arguments(parser)
    width = str(max(shutil.get_terminal_size().columns, 120))
    prof.run(parser.parse_args([records, "-c", _COLUMNS, "-w", width, "--sort", "sil", "--top", str(top)]))
    print(f"all of it: python -m pyprof.prof -w {width} {records}", file=sys.stderr)
