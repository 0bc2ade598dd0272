"""A command that is struck at a given moment of its writing -> what it left. Also a long run of such faults.

The command runs in a process that stops when it first touches the folder of its output. From there a fork of it goes on for each
fault, so that only the writing is done again: killed, interrupted or terminated at a given call (of Python and of C, their begins
and their ends), stopped by a quota or by a full disk. `scripts/checks/run faults` strikes at thousands of points; the tests at some.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from pyprof.cli import main
from tests.tiny import Nsys

LIMIT_S = 120
# A command with {} for its capture and OUT for its output, and the output's name.
OUTPUTS = {
    "parse .dict": ("parse {} -o OUT", "net.dict"),
    "parse .jsonl": ("parse {} -o OUT", "net.jsonl"),
    "parse .parquet": ("parse {} -o OUT", "net.parquet"),
    "parse FOLDER": ("parse {} -o FOLDER --jobs 1", "rank=unknown/*.parquet"),
    "prof .csv": ("prof {} -o OUT", "net.csv"),
    "prof parquet": ("prof {} -c op,sil --format parquet -o OUT", "table.parquet"),
    "summary json": ("summary {} --format json -o OUT", "summary.json"),
    "report": ("report {} -o OUT", "report.html"),
    "diff --save": ("diff --save main {} --baselines FOLDER", "main.sqlite"),
    "diff -o": ("diff {} {} --format json -o OUT", "diff.json"),
    "scrub nsys": ("scrub {} -o OUT", "shared.sqlite"),
    "scrub kineto": ("scrub {json} -o OUT", "shared.json.gz"),
    "scrub .dict": ("scrub {dict} -o OUT", "shared.dict"),
    "scrub .parquet": ("scrub {parquet} -o OUT", "shared.parquet"),
    "trace": ("trace {} -o OUT", "timeline.json.gz"),
}
STRIKES = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT, "terminated": signal.SIGTERM}
FULL = ("quota", "disk full")


class Left(NamedTuple):
    """status: as os.waitpid gives it; said: on standard error; files: path in the output's folder -> contents; calls: of the writing.

    order: calls of fsync and rename with their paths, and the bytes that the file had then; where that was asked for.
    """

    status: int
    said: str
    files: dict[str, bytes]
    calls: int = 0
    order: tuple[tuple[str, str, bytes], ...] = ()

    @property
    def code(self) -> int:
        return os.waitstatus_to_exitcode(self.status)


def capture(path: Path, kernels: int = 40) -> Path:
    """A small capture."""
    n = Nsys()
    for i in range(kernels):
        n.range(f"aten::mm, seq = {i}, op_id = {i}, sizes = [[4, 2], [2, 8]]", 100 * i, 100 * i + 90)
        n.kernel("k", 100 * i + 5, 100 * i + 200, 100 * i + 210)
    return n.write(path)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _give_back(words: dict[str, Any], answers: int) -> None:
    os.write(answers, (json.dumps(words) + "\n").encode())


def _go_on(fault: dict[str, Any], answers: int) -> None:
    """In the fork that goes on writing: let the fault come."""
    signal.alarm(LIMIT_S)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done, at, number = [0], fault.get("at", -1), fault.get("number", 0)
    sys.dont_write_bytecode = True  # half a compiled file would be found by every later process
    if "size" in fault:
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault["size"], fault["size"]))
    if "user" in fault:
        os.setuid(fault["user"])
    if fault.get("order"):
        _record(answers)

    def profile(_: FrameType, event: str, argument: object) -> None:
        if done[0] == at:
            sys.setprofile(None)
            signal.raise_signal(number)
        done[0] += 1

    if at != -1 or fault.get("count"):
        _counted.append(done)
        sys.setprofile(profile)


_counted: list[list[int]] = []


def _record(answers: int) -> None:
    """Tell each fsync, rename and unlink with what the file holds at that moment."""

    def told(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, *rest: Any, **options: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.fspath(file)
            held = Path(path).read_bytes().hex() if os.path.isfile(path) else ""
            _give_back({"order": [name, path, held]}, answers)
            return function(file, *rest, **options)

        return call

    for name in ("fsync", "replace", "rename"):
        setattr(os, name, told(name, getattr(os, name)))


def _serve(requests: int, answers: int) -> None:
    """In the process that has stopped before the writing: a fork for each fault; returns in the forks only.

    Forks share the offsets of open files, which therefore are set back.
    """
    offsets = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError, ValueError):
            if stat.S_ISREG(os.fstat(int(name)).st_mode):
                offsets[int(name)] = os.lseek(int(name), 0, os.SEEK_CUR)
    with open(requests, encoding="utf-8", closefd=False) as stream:
        for line in iter(stream.readline, ""):
            for number, offset in offsets.items():
                os.lseek(number, offset, os.SEEK_SET)
            if not (child := os.fork()):
                _go_on(json.loads(line), answers)
                return
            _give_back({"status": os.waitpid(child, 0)[1]}, answers)
    os._exit(0)


def _begin(command: list[str], folder: Path, pipes: tuple[int, int, int]) -> NoReturn:
    """Run a command that stops when it first touches the folder, and serves."""
    requests, answers, said = pipes
    waiting = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if waiting and any(isinstance(one, (str, Path)) and str(one).startswith(str(folder)) for one in arguments):
            waiting.clear()
            _serve(requests, answers)

    status = 99
    with suppress(BaseException):
        os.dup2(said, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        sys.addaudithook(hook)
        try:
            status = main(command)
        except SystemExit as ended:
            status = int(ended.code or 0)
        sys.setprofile(None)
        sys.stderr.flush()
        if _counted:
            _give_back({"calls": _counted[0][0]}, answers)
    os._exit(status)


class Case:
    """A command about to write `name` in `folder`, where `old` is its output of an earlier run (None: none), and `new` shall be."""

    def __init__(self, command: list[str], folder: Path, name: str, old: bytes | None) -> None:
        self.command, self.folder, self.old = command, folder, old
        self.given = [path for path in map(Path, command[1:]) if path.is_file() and folder not in path.parents]
        (theirs, self._requests), (answers, mine), (self._said, said) = os.pipe(), os.pipe(), os.pipe()
        os.set_blocking(self._said, False)
        self._server = os.fork()
        if not self._server:
            os.close(self._requests)
            _begin(command, folder, (theirs, mine, said))
        for end in (theirs, mine, said):
            os.close(end)
        self._answers = open(answers, encoding="utf-8")
        self.name = name
        whole = self.run()
        assert whole.code == 0, whole
        (self.name,) = whole.files
        assert Path(self.name).match(name), whole.files
        self.new = whole.files[self.name]
        self.captures = self._captures()

    def _captures(self) -> list[tuple[bytes, int]]:
        return [(path.read_bytes(), path.stat().st_mtime_ns) for path in self.given]

    def close(self) -> None:
        """End the process that waits."""
        os.close(self._requests)
        self._answers.close()
        os.close(self._said)
        os.waitpid(self._server, 0)

    def prepare(self) -> None:
        """Leave nothing in the folder but the output of an earlier run, which is older than its capture."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.old is not None and "*" not in self.name:
            (path := self.folder / self.name).parent.mkdir(exist_ok=True)
            path.write_bytes(self.old)
            os.utime(path, (0, 0))

    def run(self, clean: bool = True, **fault: Any) -> Left:
        """Let a fork go on to the end, with this fault (see `_go_on`)."""
        if clean:
            self.prepare()
        os.write(self._requests, (json.dumps(fault) + "\n").encode())
        calls, order = 0, []
        while "status" not in (answer := json.loads(self._answers.readline())):
            calls = answer.get("calls", calls)
            if "order" in answer:
                what, path, held = answer["order"]
                order.append((what, path, bytes.fromhex(held)))
        said = b""
        with suppress(BlockingIOError):
            said = os.read(self._said, 1 << 20)
        return Left(answer["status"], said.decode(errors="replace"), contents(self.folder), calls, tuple(order))

    def calls(self) -> int:
        """How many calls the writing takes."""
        return self.run(count=True).calls

    def leftovers(self, left: Left) -> set[str]:
        """What is there besides the output, the parts of a hidden folder as one; folders of a data set may stay, empty."""
        there = {*left.files, *(str(path.relative_to(self.folder)) for path in self.folder.rglob(".*"))}
        found = set()
        for path in there - {self.name}:
            parts = Path(path).parts
            hidden = next((number for number, part in enumerate(parts, 1) if part.startswith(".")), len(parts))
            found.add(str(Path(*parts[:hidden])))
        return found

    def strike(self, point: int, how: str) -> None:
        """Strike once; AssertionError where what is left is not as promised."""
        left = self.run(at=point, number=int(STRIKES[how]))
        where = (self.command, point, how, left.code, left.said)
        assert left.files.get(self.name) in (self.old, self.new), (*where, "neither whole nor as before")
        assert left.files.get(self.name) == self.new or left.code != 0, (*where, "said to be done")
        others = self.leftovers(left)
        assert len(others) <= (how == "killed") and all(Path(one).name.startswith(".") for one in others), (*where, others)
        # Python itself drops an interrupt that falls into the end of a generator, and says so; the command then goes on.
        assert "Traceback" not in left.said or "Exception ignored in" in left.said, where
        # When the command is over, SIGTERM ends the process at once, and SIGINT what is around it here (99).
        assert how == "killed" or left.code in (0, 130, 143, 99, -signal.SIGTERM), where
        if others:
            again = self.run(clean=False)
            assert again.code == 0 and again.files == {self.name: self.new} and not self.leftovers(again), (*where, again)
        assert self.captures == self._captures(), where

    def fill(self, size: int, **fault: Any) -> None:
        """Let no file grow beyond so many bytes, as a quota does, or give `fault`; AssertionError where what is left is wrong."""
        left = self.run(**(fault or {"size": size}))
        where = (self.command, size, fault, left.code, left.said)
        if left.code == 0:
            assert left.files == {self.name: self.new} and not self.leftovers(left), where
            assert fault or size >= len(self.new), where
            return
        self.refused(left)

    def refused(self, left: Left) -> None:
        """AssertionError unless the command said in a line that it cannot write, and left what was."""
        where = (self.command, left.code, left.said, sorted(left.files))
        assert left.code == 1 and (left.said.startswith("pyprof: error: ") or "failed: " in left.said), where
        said = "cannot be written" in left.said or "cannot be made" in left.said
        assert said and "Traceback" not in left.said and left.said.count("\n") <= 3, where
        assert left.files == ({} if self.old is None else {self.name: self.old}) and not self.leftovers(left), where

    def fill_disk(self, pages: int) -> None:
        """Leave so many pages free on the folder's disk."""
        self.prepare()
        space = os.statvfs(self.folder)
        with (self.folder.parent / "ballast").open("wb") as ballast:
            ballast.write(b"x" * max(space.f_bavail - pages, 0) * space.f_frsize)
        try:
            left = self.run(clean=False)
            if left.code == 0:
                assert left.files == {self.name: self.new} and not self.leftovers(left), (self.command, pages)
            else:
                self.refused(left)
        finally:
            (self.folder.parent / "ballast").unlink()


@contextlib.contextmanager
def small_disk(folder: Path, size: int = 1 << 20) -> Iterator[Path | None]:
    """A disk of so many bytes mounted at a folder; None where this user may not mount."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "pyprof-faults", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def cases(kind: str, folder: Path, disk: Path | None = None) -> Iterator[Case]:
    """An output that is new, and one that replaces another; `disk`: where it is written, if not in the folder too."""
    words, name = OUTPUTS[kind]
    given = {
        "": folder / "net.sqlite",
        "json": folder / "net.json",
        "dict": folder / "in.dict",
        "parquet": folder / "in.parquet",
    }
    if not given[""].exists():
        capture(given[""])
        for form in ("dict", "parquet", "json"):
            assert main(["trace" if form == "json" else "parse", str(given[""]), "-o", str(given[form])]) == 0
    (out := (disk or folder) / "out").mkdir(exist_ok=True)
    places = {f"{{{form}}}": str(path) for form, path in given.items()} | {"OUT": str(out / name), "FOLDER": str(out)}
    command = [places.get(word, word) for word in words.split()]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        assert main(command) == 0, command  # here, so that forks need not import what it needs
    for old in (None, b"of an earlier run"):
        case = Case(command, out, name, old)
        try:
            yield case
        finally:
            case.close()
    shutil.rmtree(out)


ORDER = ["fsync contents", "replace contents", "fsync folder"]


def order(case: Case) -> list[str]:
    """What happened to a file until it had its name, as words; AssertionError where the disk may hold less than was written."""
    hidden, found = "", []
    for what, path, held in case.run(order=True).order:
        name = str(Path(path).relative_to(case.folder)) if Path(path) != case.folder else "."
        if what == "fsync" and held:
            hidden = name
            assert held == case.new, "something was written after it was brought to the disk"
        assert what == "fsync" or name == hidden
        parent = Path(case.folder, case.name).parent == Path(path)
        found.append(f"{what} {'contents' if held else 'folder' if parent else name}")
    return found


def everything(points: int, kinds: list[str]) -> None:
    """These kinds of output struck at that many moments in each way, and stopped at that many sizes and fillings of the disk."""
    survived: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="pyprof-faults-") as name, small_disk(Path(name) / "disk") as disk:
        for kind in kinds or OUTPUTS:
            done = survived[kind] = Counter[str]()
            for case in cases(kind, Path(name), disk):
                assert order(case) == ORDER, case.command
                count = case.calls()
                for how in STRIKES:
                    for point in range(0, count + 1, max(count // points, 1)):
                        case.strike(point, how)
                        done[how] += 1
                for size in range(0, len(case.new) + 1, max(len(case.new) // points, 1)):
                    case.fill(size)
                    done["quota"] += 1
                for pages in range(len(case.new) // 4096 + 3) if disk is not None else ():
                    case.fill_disk(pages)
                    done["disk full"] += 1
            print(f"{kind:15}" + "".join(f"{done[how]:>7} {how}" for how in (*STRIKES, *FULL)), flush=True)
    total = sum(survived.values(), Counter[str]())
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in usage)
    print(
        f"{sum(total.values())} faults survived in {cpu_s / 60:.1f} minutes of CPU ("
        + ", ".join(f"{number} {how}" for how, number in total.items())
        + "): every output whole, as before, or absent; nothing left; captures untouched"
    )


if __name__ == "__main__":
    everything(int(sys.argv[1]) if len(sys.argv) > 1 else 50, sys.argv[2:])
