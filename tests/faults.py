"""A command in a process of its own that is struck at a given moment of its writing -> what it left. Also a long run of them.

The moment is a number of calls (of Python and of C, their begins and their ends) since the first output was opened, so that each
write, fsync, rename and unlink is struck before and after. `scripts/faults` strikes at every one; the tests at some.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from pyprof.cli import main
from pyprof.tables import files
from tests.tiny import Nsys

LIMIT_S = 120
OUTPUTS = {
    "parse .dict": (["parse", "{}"], "net.dict"),
    "parse .jsonl": (["parse", "{}"], "net.jsonl"),
    "parse .parquet": (["parse", "{}"], "net.parquet"),
    "prof .csv": (["prof", "{}"], "net.csv"),
    "prof .parquet": (["prof", "{}", "-c", "op,sil"], "table.parquet"),
    "scrub": (["scrub", "{}"], "shared.sqlite"),
    "trace": (["trace", "{}"], "timeline.json.gz"),
}  # fmt: skip
STRIKES = {"killed": signal.SIGKILL, "interrupted": signal.SIGINT, "terminated": signal.SIGTERM}


class Left(NamedTuple):
    """status: as os.waitpid gives it; said: on standard error; files: name -> contents, of the folder of the output."""

    status: int
    said: str
    files: dict[str, bytes]


def capture(path: Path, kernels: int = 40) -> Path:
    """A small capture."""
    n = Nsys()
    for i in range(kernels):
        n.range(f"aten::mm, seq = {i}, op_id = {i}, sizes = [[4, 2], [2, 8]]", 100 * i, 100 * i + 90)
        n.kernel("k", 100 * i + 5, 100 * i + 200, 100 * i + 210)
    return n.write(path)


def run(command: list[str], folder: Path, before: Callable[[], object] = lambda: None) -> Left:
    """Run a command in a fork of this process; before: called there first."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        status = 99
        with suppress(BaseException):
            signal.alarm(LIMIT_S)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(writing, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
            before()
            try:
                status = main(command)
            except SystemExit as ended:
                status = int(ended.code or 0)
            sys.setprofile(None)
            sys.stderr.flush()
        os._exit(status)
    os.close(writing)
    with open(reading, encoding="utf-8", errors="replace") as stream:
        said = stream.read()
    status = os.waitpid(child, 0)[1]
    return Left(status, said, {path.name: path.read_bytes() for path in sorted(folder.iterdir())})


def struck_at(point: int, number: int, counted: Callable[[int], object] = lambda _: None) -> Callable[[], object]:
    """What sends this process a signal at that call since the first output was opened; counted: gets each number."""
    done, begin = [0], files._remove_leftovers

    def profile(_: FrameType, event: str, argument: object) -> None:
        counted(done[0])
        if done[0] == point:
            sys.setprofile(None)
            signal.raise_signal(number)
        done[0] += 1

    def watched(target: Path) -> None:
        sys.setprofile(profile)
        begin(target)

    return lambda: setattr(files, "_remove_leftovers", watched)


def calls(command: list[str], folder: Path) -> int:
    """How many calls the writing of a command takes."""
    with tempfile.TemporaryFile() as count:
        left = run(command, folder, struck_at(-2, 0, lambda number: os.pwrite(count.fileno(), b"%012d" % number, 0)))
        assert left.status == 0, left
        return int(os.pread(count.fileno(), 12, 0) or b"0")


def cases(kind: str, folder: Path) -> Iterator[tuple[str, bytes | None, list[str], Path, bytes]]:
    """An output that is new, and one that replaces another: (file name, its bytes before, command, folder, bytes it should have)."""
    words, name = OUTPUTS[kind]
    source = capture(folder / "net.sqlite")
    (out := folder / "out").mkdir()
    command = [*[word.format(source) for word in words], "-o", str(out / name)]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main(command)  # here, so that forks need not import what it needs
    (out / name).unlink()
    whole = run(command, out)
    assert whole.status == 0 and set(whole.files) == {name}, whole
    (out / name).unlink()
    yield name, None, command, out, whole.files[name]
    yield name, b"of an earlier run", command, out, whole.files[name]


def strike(case: tuple[str, bytes | None, list[str], Path, bytes], point: int, how: str) -> None:
    """Strike once; AssertionError where what is left is not as promised."""
    name, old, command, out, new = case
    for path in out.iterdir():
        path.unlink()
    if old is not None:
        (out / name).write_bytes(old)
    given = Path(command[1])
    before = given.read_bytes(), given.stat().st_mtime_ns
    left = run(command, out, struck_at(point, STRIKES[how]))
    assert left.files.get(name) in (old, new), (point, how, "neither whole nor as before")
    assert left.files.get(name) == new or os.waitstatus_to_exitcode(left.status) != 0, (point, how, "said to be done")
    hidden = [left for left in left.files if left != name]
    assert len(hidden) <= (how == "killed") and all(one.startswith(".") for one in hidden), (point, how, hidden)
    # Python itself drops an interrupt that falls into the end of a generator, and says so; the command then goes on.
    assert "Traceback" not in left.said or "Exception ignored in" in left.said, (point, how, left.said)
    if how != "killed":
        # When the command is over, SIGTERM ends the process at once, and SIGINT what is around it here (99). sqlite3 makes an error
        # (1) of an interrupt inside a function that SQL calls.
        code = os.waitstatus_to_exitcode(left.status)
        assert code in (0, 1, 130, 143, 99, -signal.SIGTERM), (point, how, code, left.said)
        assert code != 1 or left.said.startswith("pyprof: error: "), (point, how, left.said)
    if hidden:
        again = run(command, out)
        assert again.files == {name: new}, (point, how, "what was left is still there")
    assert before == (given.read_bytes(), given.stat().st_mtime_ns)


def fill(case: tuple[str, bytes | None, list[str], Path, bytes], size: int) -> None:
    """Let no file grow beyond so many bytes, as a quota does; AssertionError where what is left is not as promised."""
    name, old, command, out, new = case
    for path in out.iterdir():
        path.unlink()
    if old is not None:
        (out / name).write_bytes(old)
    left = run(command, out, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    if size >= len(new) and left.status == 0:
        assert left.files == {name: new}
        return
    assert os.waitstatus_to_exitcode(left.status) == 1, (size, left.status, left.said)
    assert left.said.startswith(f"pyprof: error: {out / name}: cannot be written: ") and left.said.count("\n") <= 2, (
        size,
        left.said,
    )
    assert left.files == ({} if old is None else {name: old}), (size, sorted(left.files))


def everything(step: int) -> None:
    """Strike every kind of output at each `step`-th call in each way, and stop its growth at each `step`-th byte."""
    total = 0
    for kind in OUTPUTS:
        with tempfile.TemporaryDirectory(prefix="pyprof-faults-") as folder:
            done = 0
            for case in cases(kind, Path(folder)):
                for how in STRIKES:
                    for point in range(0, calls(case[2], case[3]) + step, step):
                        strike(case, point, how)
                        done += 1
                for size in range(0, len(case[4]), max(step * len(case[4]) // 400, 1)):
                    fill(case, size)
                    done += 1
            total += done
            print(f"{kind}: {done} faults survived", flush=True)
    print(f"{total} faults survived: every output whole, as before, or absent; captures untouched")


if __name__ == "__main__":
    everything(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
