"""Run known ops in layers, threads, a forked process and a failing call, and say what was run.

    python nsys_ops.py TRUTH.json

The truth is written down call by call beside the calls themselves, by hand and without any of pyprof's own descriptions: a list of
{"where": main|thread|child, "layers": [...], "mod", "op", "args", "kwargs"}.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import pyprof.nvtx

TRUTH: list[dict[str, Any]] = []


def said(mod: str, op: str, *args: Any, where: str = "main", layers: tuple[str, ...] = (), **kwargs: Any) -> None:
    """Write down one call."""
    TRUTH.append({"where": where, "layers": layers, "mod": mod, "op": op, "args": args, "kwargs": kwargs})


def t(dtype: str, *shape: int, strides: tuple[int, ...] | None = None, grad: bool = False) -> dict[str, Any]:
    """Write down one tensor."""
    return {"dtype": dtype, "shape": shape, "strides": strides, "grad": grad}


class Net(nn.Module):
    """Two linear layers in a list, so that their names have two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 4, bias=False)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 8) -> (n, 4)."""
        return self.layers[1](torch.relu(self.layers[0](x)))


@contextmanager
def recording() -> Iterator[None]:
    """What a part prepares is not recorded, what it runs in this is."""
    pyprof.nvtx.resume()
    try:
        yield
    finally:
        pyprof.nvtx.pause()


def plain_ops() -> None:
    """Shapes, strides, dtypes, scalars, lists, indices, keyword arguments."""
    a, b = torch.ones(3, 5), torch.ones(5, 2, dtype=torch.float64)
    h, i = torch.ones(2, 6, 4, dtype=torch.bfloat16), torch.tensor([2, 0, 1])
    at, wide = a.t(), a.expand(4, 3, 5)
    with recording():
        torch.mm(a, at)
        torch.add(a, 2.5, alpha=2)
        b.sum(dim=0, keepdim=True)
        torch.cat([h, h], 1)
        a * -3
        a[i]
        a[1:, None]
        F.softmax(a, dim=-1)
        wide.sum()
        torch.full((2, 3), 1.5, dtype=torch.float16)
        torch.einsum("ij,kj->ik", a, a)
    said("torch", "mm", t("float32", 3, 5), t("float32", 5, 3, strides=(1, 5)))
    said("torch", "add", t("float32", 3, 5), 2.5, alpha=2)
    said("Tensor", "sum", t("float64", 5, 2), dim=0, keepdim=True)
    said("torch", "cat", [t("bfloat16", 2, 6, 4), t("bfloat16", 2, 6, 4)], 1)
    said("Tensor", "__mul__", t("float32", 3, 5), -3)
    said("Tensor", "__getitem__", t("float32", 3, 5), t("int64", 3))
    said("Tensor", "__getitem__", t("float32", 3, 5), {"tuple": [{"slice": [1, None]}, None]})
    said("Tensor", "softmax", t("float32", 3, 5), -1)  # what torch.nn.functional.softmax does
    said("Tensor", "sum", t("float32", 4, 3, 5, strides=(0, 5, 1)))
    said("torch", "full", {"tuple": [2, 3]}, 1.5, dtype={"torch": "float16"})
    said("torch", "einsum", "ij,kj->ik", {"tuple": [t("float32", 3, 5), t("float32", 3, 5)]})


def in_layers() -> None:
    """A module's forward and an optimizer step."""
    net, x = Net(), torch.ones(7, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, foreach=False)
    with recording(), pyprof.nvtx.step(3):
        out = net(x)
    out.sum().backward()
    with recording():
        optimizer.step()
    weight, bias = t("float32", 16, 8, grad=True), t("float32", 16, grad=True)
    said("torch.nn.functional", "linear", t("float32", 7, 8), weight, bias, layers=("step 3", "Net", "layers.0"))
    said("torch", "relu", t("float32", 7, 16, grad=True), layers=("step 3", "Net"))
    wide = t("float32", 7, 16, grad=True), t("float32", 4, 16, grad=True)
    said("torch.nn.functional", "linear", *wide, None, layers=("step 3", "Net", "layers.1"))
    for shape in ((16, 8), (16,), (4, 16)):
        said("Tensor", "add_", t("float32", *shape, grad=True), t("float32", *shape), alpha=-0.5, layers=("SGD.step",))


def failing() -> None:
    """An op that raises; the next one stands beside it, not in it."""
    a = torch.ones(2, 3)
    with recording():
        try:
            torch.mm(a, a)
        except RuntimeError:
            torch.neg(a)
    said("torch", "mm", t("float32", 2, 3), t("float32", 2, 3))
    said("torch", "neg", t("float32", 2, 3))


def users_own() -> None:
    """A function of the user's own, and an op inside it."""
    mine = types.ModuleType("mine")
    mine.scale = lambda x, factor: torch.mul(x, factor)  # type: ignore[attr-defined]
    pyprof.nvtx.wrap(mine, "scale")
    x = torch.arange(4.0)
    with recording():
        mine.scale(x, 3)
    said("mine", "scale", t("float32", 4), 3)
    said("torch", "mul", t("float32", 4), 3, layers=("scale",))


def in_thread() -> None:
    """An op on a thread that was not there when the instrumentation began."""
    x = torch.ones(9, dtype=torch.int32)
    thread = threading.Thread(target=lambda: torch.abs(x))
    with recording():
        thread.start()
        thread.join()
    said("torch", "abs", t("int32", 9), where="thread")


def in_child() -> None:
    """An op in a forked process."""
    x = torch.ones(2, 2, 2)
    with recording():
        pid = os.fork()
        if pid == 0:
            torch.exp(x)
            sys.exit(0)  # not os._exit, which would take nsys's last buffer with it
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit("the forked process failed")
    said("torch", "exp", t("float32", 2, 2, 2), where="child")


def main() -> None:
    """All of them, then ops that nobody may record."""
    torch.set_num_threads(1)  # a forked process may not use the pool of its parent
    if not pyprof.nvtx.init():
        sys.exit("pyprof.nvtx.init() did not see that nsys records")
    pyprof.nvtx.pause()
    for part in (plain_ops, in_layers, failing, users_own, in_thread, in_child):
        part()
    pyprof.nvtx.resume()
    pyprof.nvtx.shutdown()
    torch.cos(torch.ones(11))
    Path(sys.argv[1]).write_text(json.dumps(TRUTH))


if __name__ == "__main__":
    main()
