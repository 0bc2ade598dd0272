"""Processes that tests start: how a small program begins, and which of this one's children are still there."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from unittest.mock import patch

from pyprof.cli import main
from tests import ROOT

Done = subprocess.CompletedProcess[str]
# torch.profiler and optimizers import torch's compiler, which takes as long as torch itself; a program that begins with this has
# none.
LIGHT = """
import sys, types
class Light(types.ModuleType):
    triton = types.SimpleNamespace(cudagraphs=False)
    graph_break = staticmethod(lambda: None)
    disable = staticmethod(lambda function, *_, **options: function)
for name in ("_dynamo", "_inductor", "_inductor.config"): sys.modules[f"torch.{name}"] = Light(name)
sys.modules["torch._inductor"].config = sys.modules["torch._inductor.config"]
"""


@contextmanager
def _instead(number: int, file: int) -> Iterator[None]:
    kept = os.dup(number)
    os.dup2(file, number)
    yield
    os.dup2(kept, number)
    os.close(kept)


def pyprof_here(folder: Path, *words: str | Path, said: str = "") -> Done:
    """`pyprof WORDS` in a folder by main() of this process, which saves Python's start: what it and programs that it starts wrote."""
    with ExitStack() as stack:
        given, out, err = (stack.enter_context(TemporaryFile("w+")) for _ in range(3))
        given.write(said)
        given.seek(0)
        stack.callback(os.chdir, os.getcwd())
        os.chdir(folder)
        stack.enter_context(patch.dict(os.environ, PYTHONPATH=str(ROOT)))
        with redirect_stdout(out), redirect_stderr(err), _instead(0, given.fileno()), _instead(1, out.fileno()), _instead(2, err.fileno()):  # fmt: skip
            code = main([str(word) for word in words])
            out.flush()
            err.flush()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return Done(words, code, *texts)


def children() -> set[int]:
    """Processes that this one has started and not yet waited for: other tests of one process may have left some at work."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for one in lists for number in one.read_text().split()}
