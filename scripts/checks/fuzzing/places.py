"""What stands where a file is looked for, or beside it: links, pipes, sockets, devices, folders, logs of a database; and a database
that another process writes meanwhile.

`Place` makes one around whole files; what it started has ended when its `with` ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from random import Random
from types import TracebackType

# Beside a file: SQLite's logs, and what is looked for beside a run that replays graphs.
COMPANIONS = ("{}-wal", "{}-shm", "{}-journal", "capture_traces", "capture_traces/net.json", "execution_details.json",
              "capture_traces/execution_details.json", "{stem}.capture.json", "graph_capture_profile")  # fmt: skip
DEVICES = ("/dev/null", "/dev/full", "/dev/zero", "/dev/tty", "/proc/self/mem", "/proc/self/maps", "/proc/self/pagemap", "/")
_WRITER = """
import sqlite3, sys
for line in sys.stdin:
    path, mode = line.rstrip("\\n").rsplit(" ", 1)
    db = sqlite3.connect(path, timeout=0.01)
    for _ in range(6):
        try:
            db.execute(f"PRAGMA journal_mode = {mode}")
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
            db.commit()
        except sqlite3.Error:
            pass
    db.close()
    print("done", flush=True)
"""


class Place(contextlib.ExitStack):
    """A file of the content at a path in the folder, with something odd at it or beside it. as_is: whether all its bytes are there."""

    def __init__(self, random: Random, folder: Path, name: str, content: bytes) -> None:
        super().__init__()
        self.random, self.folder, self.path, self.content = random, folder, folder / name, content
        self.as_is = False
        if random.random() < 0.5:
            self.path.write_bytes(content)
            self.as_is = True
            for _ in range(random.choice((1, 1, 3))):
                beside = folder / random.choice(COMPANIONS).format(name, stem=self.path.stem)
                with contextlib.suppress(FileExistsError):  # one before it may have made a file or a link there
                    beside.parent.mkdir()
                if not beside.exists() and not beside.is_symlink() and beside.parent.is_dir():
                    self._odd(beside)
                if beside.name.startswith(f"{name}-"):
                    self.as_is = False  # a log is part of the database
        else:
            self._odd(self.path)

    def _odd(self, path: Path) -> None:
        """Something at the path."""
        other = self.folder / "other"
        random = self.random
        random.choice((
            lambda: path.symlink_to("nothing"),
            lambda: path.symlink_to(path.name),
            lambda: path.symlink_to(self.folder),
            lambda: path.symlink_to(random.choice(DEVICES)),
            lambda: (other.write_bytes(self.content), path.symlink_to(other)),
            lambda: path.mkdir(),
            lambda: path.write_bytes(b""),
            lambda: path.write_bytes(random.randbytes(5000)),
            lambda: path.write_bytes(self.content),
            lambda: self._pipe(path),
            lambda: self._socket(path),
        ))()  # fmt: skip

    def _pipe(self, path: Path) -> None:
        """A named pipe; where it stands for the file someone writes to it, beside one nobody does."""
        os.mkfifo(path)
        if path == self.path:
            source = self.folder / "source"
            source.write_bytes(self.content[: self.random.choice((0, 100, len(self.content), len(self.content)))])
            writer = subprocess.Popen(["cp", str(source), str(path)], stderr=subprocess.DEVNULL)
            self.callback(writer.wait)
            self.callback(writer.kill)

    def _socket(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))


class Writer:
    """A process that doubles the kernels of a database again and again, with either kind of log, while it is read."""

    def __init__(self, random: Random, path: Path) -> None:
        global _process
        if _process is None:
            _process = subprocess.Popen(
                [sys.executable, "-c", _WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.path, self.mode = path, random.choice(("WAL", "DELETE", "TRUNCATE"))

    def __enter__(self) -> None:
        assert _process is not None and _process.stdin is not None
        _process.stdin.write(f"{self.path} {self.mode}\n")
        _process.stdin.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert _process is not None and _process.stdout is not None
        _process.stdout.readline()


_process: subprocess.Popen[str] | None = None  # a new one each time would take longer than the rest


def close() -> None:
    """End the process that writes, if there is one."""
    global _process
    if _process is not None:
        with _process:
            assert _process.stdin is not None
            _process.stdin.close()
        _process = None
