"""Programs alone and under `pyprof run`: CPU and wall time, memory of all their processes, exit code, output, files left.

    python scripts/bench/programs.py FOLDER|FILE.py ... [--times 3] [--only WORD,...] [-- OPTIONS OF pyprof run]

Each program of the folders and each module of pyprof.examples runs in an empty folder, where its temporary files go too. Prints
a Markdown table of medians; memory is the most that all processes had together (proportional shares, sampled every 0.1 s). The
last column says what missed its bounds: wall at most 1.5 times as long and 15 s, memory 1.5 GB more, exit code and about the
size of output as alone, no file left but those named after the capture. Exit code 1 where something missed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
WALL, WALL_S, MEMORY_MB = 1.5, 15.0, 1500.0
_SUBREAPER = 36  # prctl(PR_SET_CHILD_SUBREAPER): processes that lose their parent become ours
_SAMPLE_S, _LIMIT_S = 0.1, 900
TORCHRUN = ("torchrun", "--nproc-per-node", "2")
# Words that a program needs: before it, and after it, one run for each.
BEFORE = {"ddp_late_rank": TORCHRUN, "ddp": (*TORCHRUN, "-m")}
AFTER: dict[str, tuple[tuple[str, ...], ...]] = {
    "compile_of_torch_functions": (("plain",),),
    "signal_swallowed": (("plain", "5"),),
    "signal_leaks_range": (("patch",),),
    "gpt_naive_attention": ((), ("--naive",)),
}


class Ran(NamedTuple):
    """One run: seconds of CPU and of clock, the most memory in MB, exit code, bytes of standard output and error, and files."""

    cpu_s: float
    wall_s: float
    memory_mb: float
    code: int
    out: int
    err: int
    files: frozenset[str]


def programs(given: list[Path], words: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(name, command line without an interpreter) of each program."""
    paths = [path for one in given for path in (sorted(one.glob("*.py")) if one.is_dir() else [one])]
    examples = [path for path in sorted((ROOT / "pyprof/examples").glob("*.py")) if path.stem not in ("__init__", "slow")]
    for path in [*paths, *examples]:
        module = ["-m", f"pyprof.examples.{path.stem}"] if path in examples else [str(path.absolute())]
        before = list(BEFORE.get(path.stem, ()))
        for after in AFTER.get(path.stem, ((),)):
            name = " ".join((path.stem, *after))
            if not words or any(word in name for word in words):
                yield name, [*before, *(module[-1:] if before else module), *after]


def shares_mb(root: int) -> float:
    """Proportional shares of the memory of all processes below a process, in MB."""
    parents, found = dict[int, int](), 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    below, grown = {root}, 0
    while grown != len(below):
        grown = len(below)
        below |= {one for one, parent in parents.items() if parent in below}
    for one in below - {root}:
        with suppress(OSError, ValueError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            found += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return found / 1000


def ran(command: list[str]) -> Ran:
    """Run a command in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="programs-") as name, tempfile.TemporaryDirectory(prefix="programs-") as logs:
        folder = Path(name)
        (folder / "tmp").mkdir()
        home = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": home}
        out, err = Path(logs, "out"), Path(logs, "err")
        before, begin, most = os.times(), time.monotonic(), 0.0
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
            while process.poll() is None:
                most = max(most, shares_mb(os.getpid()))
                time.sleep(_SAMPLE_S)
                if time.monotonic() - begin > _LIMIT_S:
                    process.kill()
        wall = time.monotonic() - begin
        with suppress(ChildProcessError):  # what it left behind and ended with it
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        left = [path for path in folder.rglob("*") if path.is_file() and "torchinductor" not in str(path)]
        files = frozenset(str(path.relative_to(folder)) for path in left if "__pycache__" not in path.parts)
        return Ran(cpu, wall, most, process.returncode, out.stat().st_size, err.stat().st_size, files)


def missed(alone: list[Ran], under: list[Ran]) -> list[str]:
    """What is beyond its bounds."""
    before_s, after_s, before_mb, after_mb = (
        median(getattr(one, name) for one in runs) for name in ("wall_s", "memory_mb") for runs in (alone, under)
    )
    found = []
    if after_s > WALL * before_s + WALL_S:
        found.append(f"{after_s:.1f} s for {before_s:.1f} s alone")
    if after_mb > before_mb + MEMORY_MB:
        found.append(f"{after_mb:.0f} MB for {before_mb:.0f} MB alone")
    if {one.code for one in under} != {one.code for one in alone}:
        found.append(f"exit codes {sorted({one.code for one in under})} for {sorted({one.code for one in alone})}")
    if abs(median(one.out for one in under) - (out := median(one.out for one in alone))) > 100 + out / 10:
        found.append("another size of output")
    known = frozenset().union(*(one.files for one in alone))
    other = {name for one in under for name in one.files - known if not name.startswith("cap.")}
    if other:
        found.append(f"leaves {', '.join(sorted(other)[:3])}")
    return found


def main() -> int:
    """Run all and print; exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", type=Path, help="programs, and folders of such")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", default="", help="words, separated by commas, of which a program's name has one")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:cut])
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    print("| program | CPU s, alone / run | wall s | memory MB | exit code | output, errors B | files | beyond its bounds |")
    print("|---" * 8 + "|")
    good = True
    for name, command in programs(options.programs, [word for word in options.only.split(",") if word]):
        plain = command if command[0] == TORCHRUN[0] else [sys.executable, *command]
        recorded = [sys.executable, "-m", "pyprof", "run", "-o", "cap", *words[cut + 1 :], *command]
        runs = [(ran(plain), ran(recorded)) for _ in range(options.times)]
        alone, under = ([pair[which] for pair in runs] for which in (0, 1))
        middles = [[median(column) for column in list(zip(*some, strict=True))[:3]] for some in (alone, under)]
        cells = [f"{one:.{digits}f} / {other:.{digits}f}" for digits, one, other in zip((1, 1, 0), *middles, strict=True)]
        cells += [" / ".join(" ".join(map(str, sorted({one.code for one in some}))) for some in (alone, under))]
        cells += [" / ".join(f"{some[-1].out}, {some[-1].err}" for some in (alone, under))]
        cells += [" / ".join(str(len(some[-1].files)) for some in (alone, under))]
        beyond = missed(alone, under)
        good &= not beyond
        print(f"| {name} | {' | '.join(cells)} | {'; '.join(beyond) or '-'} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
