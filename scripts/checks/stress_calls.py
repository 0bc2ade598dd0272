"""Calls for a stress of the instrumenter: each with what it gives without it. Ops of torch's database, a training step, calls that
raise, and calls near the limit of recursion."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

import torch

from pyprof import nvtx as instrumenter
from scripts.checks.operators import UNINITIALISED, bits, copies, flat, instrumented

RAISING = 0.01  # share of calls that are made to raise
# What draws numbers from the generator that all threads share, by name: others are found by their results at two seeds.
RANDOM = {"rand_like", "randn_like", "randint_like", "rand", "randn", "randint", "uniform", "normal"}


class Injected(Exception):
    """What a call is made to raise from inside torch's own dispatch."""


class Raising(torch.Tensor):
    """A tensor of a program whose ops fail."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__repr__:
            return "Raising()"
        raise Injected(getattr(func, "__name__", ""))


class Case(NamedTuple):
    """One call of an op: its function, arguments, what it gave without the instrumenter, and whether that is always the same."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: str
    steady: bool


def digest(result: Any) -> str:
    """The bits of a result, in short."""
    found = hashlib.blake2b(digest_size=12)
    for leaf in flat(result):
        if isinstance(leaf, torch.Tensor) and not (leaf.is_nested or leaf.is_meta or leaf.is_quantized):
            found.update(repr((tuple(leaf.shape), leaf.dtype, leaf.layout)).encode() + bits(leaf))
        elif isinstance(leaf, (int, float, complex, str)):
            found.update(repr(leaf).encode())
    return found.hexdigest()


def outcome(run: Callable[[], Any]) -> str:
    """The bits of what a call returns, or its exception in words."""
    try:
        result = run()
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
    return digest(result)


def read_cases(most: int = 2) -> list[Case]:
    """Calls of every op in float32, at most so many of each, without the instrumenter."""
    from torch.testing._internal.common_methods_invocations import op_db

    found = []
    for op in op_db:
        if torch.float32 not in op.supported_dtypes("cpu") or op.name.startswith("jiterator"):
            continue
        try:
            samples = list(islice(op.sample_inputs("cpu", torch.float32, requires_grad=False), most))
        except Exception:
            continue
        for sample in samples:
            args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
            results = []
            for seed in (0, 0, 1, 2, 3, 4):
                torch.manual_seed(seed)
                results.append(outcome(lambda a=args, k=kwargs, f=op.op: f(*copies(a), **copies(k))))
            if results[0] == results[1] and op.name not in UNINITIALISED:
                # torch 2.13 may wait for ever where one thread seeds while another one saves the generator's state.
                seeds = "wrapper_set_seed" in getattr(getattr(op.op, "__code__", None), "co_names", ())
                steady = len({*results}) == 1 and op.name not in RANDOM and not seeds
                found.append(Case(op.formatted_name, op.op, args, kwargs, results[0], steady))
    return found


def a_case(case: Case) -> str:
    function = instrumented(case.function)
    return outcome(lambda: function(*copies(case.args), **copies(case.kwargs)))


def a_failing_call(number: int) -> tuple[str, str]:
    """What a call raises, and what it should."""
    x = torch.ones(2, 3)
    way = number % 4
    if way == 0:
        return outcome(lambda: torch.mm(x, x)), "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"
    if way == 1:
        return outcome(lambda: x.as_subclass(Raising).add(1)), "Injected: add"
    if way == 2:
        return outcome(lambda: torch.nn.Linear(3, 2)(x.as_subclass(Raising))), "Injected: linear"
    return outcome(lambda: x.view(5)), "RuntimeError: shape '[5]' is invalid for input of size 6"


class Net(torch.nn.Module):
    """A part that is called twice, and one that raises when told so."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.again = self.first
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.again(self.first(x)).relu()
        if self.fails:
            raise Injected("forward")
        return x


def a_training_step(fails: bool = False) -> str:
    """Forward, backward and an optimizer's step, with nothing drawn at random."""
    net = torch.nn.Sequential(Net(), torch.nn.LayerNorm(4))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.25)
    net[0].fails = fails
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)

    def run() -> Any:
        for number in range(2):
            with instrumenter.step(number):
                x = torch.arange(8.0).reshape(2, 4).requires_grad_()
                with torch.autocast("cpu", torch.bfloat16, enabled=number == 1):
                    loss = net(x).float().pow(2).sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        return [*net.parameters()]

    return outcome(run)


def a_deep_call(left: int) -> str:
    """An op at so many frames before the limit of recursion."""
    x = torch.arange(3.0)

    def down(frames: int) -> Any:
        return down(frames - 1) if frames > 0 else torch.add(x, 1)

    depth, frame = 0, sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return outcome(lambda: down(sys.getrecursionlimit() - depth - 3 - left))


class Expected(NamedTuple):
    """What the calls that belong to no op give without the instrumenter."""

    training: str
    failing_training: str
    deep: str


def read_expected() -> Expected:
    return Expected(a_training_step(), a_training_step(fails=True), a_deep_call(200))


def work(cases: list[Case], expected: Expected, chance: random.Random, alone: bool) -> tuple[str, str, str]:
    """One call of some kind: (what it was, what came, what should have). alone: no other thread draws random numbers."""
    kind = chance.random()
    if kind < RAISING:
        if chance.random() < 0.1:
            return "raising", a_training_step(fails=True), expected.failing_training
        return ("raising", *a_failing_call(chance.randrange(4)))
    if kind < RAISING + 0.01:
        return "training step", a_training_step(), expected.training
    if kind < RAISING + 0.015:
        got = a_deep_call(left := chance.randrange(120))
        # Our frames need some of the depth that is left: there a program may be told so, by the exception that it gets anyway.
        return "deep", expected.deep if left < 40 and got.startswith("RecursionError") else got, expected.deep
    case = chance.choice(cases)
    if alone:
        torch.manual_seed(0)
    got = a_case(case)
    return case.name, got, case.expected if alone or case.steady else got
