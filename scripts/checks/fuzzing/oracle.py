"""What must hold of a command on any file: a result, or one line and a hint; in time; with its memory; and no kernel lost.

`Case` writes changed files into a folder; `complaint` runs a command of `pyprof` on it in this process and says what is wrong.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from pyprof.cli import main
from pyprof.prof.columns import HEADERS
from scripts.checks.fuzzing import mutations, places
from scripts.checks.fuzzing.corpus import READERS, files_of, size_of
from scripts.checks.fuzzing.databases import of_sqlite, of_texts

ALL = ",".join(header.key for header in HEADERS)
_SEVERAL = (
    "diff",
    "ranks",
    "proton",
    "proton-trace",
)  # of which other files are read as well, or none with kernels of a capture
CPU_SECONDS, CPU_SECONDS_A_MB = 10.0, 2.0
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Hang(BaseException):
    """More processor time than any small file may take."""


class Case(NamedTuple):
    """Files in a folder, the first of which a command is given. kernels: how many there are, where all are as they were."""

    folder: Path
    name: str
    reader: str
    kernels: int | None
    structural: bool  # values were changed, not bytes
    around: AbstractContextManager[object] = contextlib.nullcontext()  # what goes on while the command runs


def make(random: Random, reader: str, folder: Path) -> Case:
    """Changed files of a reader."""
    kind, files = READERS[reader].kind, files_of(reader)
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "places":
        name = random.choice([*files])
        place = places.Place(random, folder, name, files[name])
        return Case(folder, name, reader, None, False, place)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    first, kernels, structural = next(iter(files)), None, False
    if kind == "written":
        return Case(folder, first, reader, None, False, places.Writer(random, folder / first))
    if kind in ("sqlite", "texts"):
        keeps = (of_sqlite if kind == "sqlite" else of_texts)(random, folder / first)
        kernels = _kernels_of(reader) if keeps else None
    else:
        changed = [first] if kind == "python" else random.sample([*files], min(len(files), random.choice((1, 1, 2))))
        structural, kernels = True, _count(files[first])
        for name in changed:
            content, same = _text(random, kind, files[name])
            (folder / name).write_bytes(content)
            if name == first and not same:
                structural, kernels = False, None
    return Case(folder, first, reader, kernels, structural)


def _kernels_of(reader: str) -> int:
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(next(iter(files_of(reader).values())))
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE name LIKE '%KERNEL'")]
        return sum(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)


def _is_kernel(value: Any) -> bool:
    return isinstance(value, dict) and value.get("cat") == "kernel"


def _count(content: bytes) -> int | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError, MemoryError):  # within the limit of memory that the readers have
        return None
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        return None
    return sum(map(_is_kernel, found["traceEvents"]))


def _text(random: Random, kind: str, content: bytes) -> tuple[bytes, bool]:
    """The changed content, and whether it is still a trace with all its kernels as they were."""
    choice = random.random()
    if choice < 0.15:
        return mutations.of_bytes(random, content), False
    if choice < 0.25 and kind in ("json", "lines", "csv"):
        return mutations.in_gzip(random, content), False
    if kind == "json":
        changed = mutations.of_json(random, content, _is_kernel if choice < 0.8 else lambda value: False)
        return changed, choice < 0.8 and _count(changed) == _count(content)
    change = {"lines": mutations.of_lines, "csv": mutations.of_csv, "parquet": mutations.of_parquet,
              "npz": mutations.of_npz, "python": mutations.of_python}[kind]  # fmt: skip
    return change(random, content), False


def _timers(random: Random, case: Case, out: Path) -> list[str]:
    more = (
        [],
        ["--table", "lanes"],
        ["--chrome", str(out / "x.json")],
        ["--format", "json"],
        ["--csv", "--bits", "32"],
        ["--hz", "1e9"],
    )
    return ["timers", str(case.folder / case.name), *random.choice(more)]


def _inductor(random: Random, case: Case, out: Path) -> list[str]:
    more = ([], ["--table", "kernels", "--csv"], ["--format", "json"])
    return ["inductor", str(case.folder / "net.json"), "--module", str(case.folder / case.name), *random.choice(more)]


def _diff(random: Random, case: Case, out: Path) -> list[str]:
    new, old, kept = str(case.folder / "net.json"), str(case.folder / "kept" / "main.json"), str(case.folder / "kept")
    return random.choice((
        ["diff", old, new],
        ["diff", new, old, "--format", "json"],
        ["diff", "--baseline", "main", new, "--baselines", kept, "--fail-over", "5%"],
        ["diff", "--baseline", "main", new, "--baselines", kept, "--table", "where", "--csv"],
        ["diff", "--save", "a", new, "--baselines", str(out / "kept")],
    ))  # fmt: skip


def _ranks(random: Random, case: Case, out: Path) -> list[str]:
    folder = str(case.folder)
    return random.choice((
        ["ranks", folder], ["ranks", folder, "--format", "json"], ["ranks", folder, "--table", "advice"], ["diff", folder, folder],
        ["trace", folder, "-o", str(out / "all.json")], ["report", folder, "-o", str(out / "page.html")],
    ))  # fmt: skip


_OWN: dict[str, Callable[[Random, Case, Path], list[str]]] = {
    "timers": _timers,
    "inductor": _inductor,
    "diff": _diff,
    "ranks": _ranks,
}


def arguments(random: Random, case: Case, out: Path) -> list[str]:
    """A command line on the case; out: a folder for what it writes."""
    path, command = str(case.folder / case.name), random.choice(READERS[case.reader].commands)
    if case.reader in _OWN:
        return _OWN[case.reader](random, case, out)
    if command == "graphs":
        command = random.choice(("prof", "summary"))
        return [command, path, "--graphs", str(case.folder / "capture_traces"), *(["--csv", "-c", ALL] * (command == "prof"))]
    if command == "other":
        return random.choice((
            ["report", path, "-o", str(out / "page.html")],
            ["trace", path, "-o", str(out / "trace.json")],
            ["diff", path, path],
            ["inductor", path],
            ["ranks", path],
            ["prof", path, "--tree", "layer"],
            ["prof", path, "--group-by", "op,layer,shape"],
            ["prof", path, "--format", "parquet", "-c", ALL, "-o", str(out / "table.parquet")],
            ["scrub", path, "-o", str(out / ("scrubbed" + Path(path).suffix))],
        ))  # fmt: skip
    if command == "scrub":
        return [command, path, "-o", str(out / ("scrubbed" + Path(path).suffix))]
    if command == "parse":
        return [command, path, *random.choice(([], [], ["-o", str(out / "out.parquet")], ["-o", str(out / "out.dict")]))]
    if command == "prof":
        return [
            command,
            path,
            *random.choice((["--csv", "-c", ALL, "--kinds", "all"], ["--csv", "-c", ALL], [], ["--format", "json", "-c", ALL])),
        ]
    if command == "counters":
        return [command, path, *random.choice((["--csv"], [], ["--format", "json"]))]
    return [command, path, *random.choice(([], ["--format", "json"]))]


def complaint(case: Case, command: list[str]) -> str | None:
    """What is wrong with how a command ends; None if nothing is."""
    before = _listing(case.folder)
    output, messages = io.StringIO(), io.StringIO()
    limit = CPU_SECONDS + CPU_SECONDS_A_MB * sum(size_of(path.read_bytes()) for path in before) / 1e6
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with case.around, _watched(limit), contextlib.redirect_stdout(output), contextlib.redirect_stderr(messages):
                code = main(command)
        except Hang:
            return f"more than {limit:.0f} s of processor time:\n{traceback.format_exc()[-3000:]}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return "escaped:\n" + traceback.format_exc()[-4000:]
    if warned:
        return f"warning: {warned[0].filename}:{warned[0].lineno}: {warned[0].message}"
    if READERS[case.reader].kind != "written" and _listing(case.folder) != before:
        return "the folder of the file was changed"
    return _ending(code, output.getvalue(), messages.getvalue(), case, command)


def _ending(code: int, output: str, messages: str, case: Case, command: list[str]) -> str | None:
    said = messages.splitlines()
    if "Traceback" in messages:
        return f"a traceback was printed:\n{messages[-3000:]}"
    if code not in (0, 1, 2, 3):
        return f"exit code {code}"
    of_ranks = command[0] in ("ranks", "trace", "diff", "report") and case.reader == "ranks"
    if code == 1 and of_ranks and any(line.startswith("failed: ") for line in said):
        return None  # one of the files; the others are read
    if code in (1, 2) and (len(said) < 2 or not said[-2].startswith("pyprof: error: ") or not said[-1].startswith("hint: ")):
        return f"exit code {code} without one line and a hint:\n{messages[-2000:]}"
    if found := _CONTROL.search(messages.replace("\r\n", "\n")):
        return f"a control character {found[0]!r} in messages:\n{messages[-1500:]!r}"
    if any(len(line) > 10_000 for line in said):
        return f"a message of {max(map(len, said))} characters"
    if command[0] == "summary" and "--format" not in command and (found := _CONTROL.search(output)):
        return f"a control character {found[0]!r} in the summary"
    if code and case.kernels and case.structural and case.reader not in _SEVERAL and "--graphs" not in command:
        return f"refused, though all {case.kernels} kernels are as they were:\n{messages[-1500:]}"
    if code == 0 and (found := kernels_of(command, output)) is not None:
        if READERS[case.reader].kind == "written":
            whole = _kernels_of(case.reader)
            return (
                None
                if found in [whole << doubled for doubled in range(8)]
                else f"{found} kernels of a database in which they double"
            )
        return _lost(found, messages, case)
    return None


def kernels_of(command: list[str], output: str) -> int | None:
    """How many kernels a result has; None where it does not list them."""
    if command[0] == "parse" and "-o" in command:
        out = command[command.index("-o") + 1]
        if out.endswith(".parquet"):
            kinds = pq.read_table(out, columns=["kind"])["kind"].to_pylist()
            return sum(kind == "kernel" for kind in kinds)
        output = Path(out).read_text(encoding="utf-8", errors="surrogatepass")
    if command[0] == "parse":
        return sum(json.loads(line)["kind"] == "kernel" for line in output.split("\n") if line)
    if command[0] == "prof" and ALL in command and "-o" not in command:
        if "--csv" in command:
            csv.field_size_limit(1 << 30)
            return sum(row["Kind"] == "kernel" for row in csv.DictReader(io.StringIO(output)))
        return sum(row["kind"] == "kernel" for row in json.loads(output)["rows"])
    return None


def _lost(found: int, messages: str, case: Case) -> str | None:
    """Whether all kernels are there, or said to be left out."""
    if case.kernels is not None and found != case.kernels:
        said = [int(n) for n in re.findall(r"note: (\d+) kernels?\b.*left out", messages)]
        if found + sum(said) != case.kernels:
            return f"{found} of {case.kernels} kernels:\n{messages[-1500:]}"
    return None


def _listing(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files in a folder with sizes and times; not SQLite's, which a reader of a log may make or let go."""
    found = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and not path.name.endswith(("-wal", "-shm"))
    ]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@contextlib.contextmanager
def _watched(seconds: float) -> Iterator[None]:
    """Raise Hang where more processor time than that is taken."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
