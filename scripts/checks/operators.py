"""torch's own operator, module and optimizer databases, run with the instrumenter on and off.

    python -m scripts.checks.operators --dtype bfloat16     the operator database in another dtype

Results must be the same bit by bit, exceptions the same, every range closed, every marker readable, and the marker of an op must
tell the tensors that the op was given.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from pyprof import nvtx as instrumenter
from pyprof.model import markers
from pyprof.model.opcall import TensorSpec
from pyprof.nvtx import patch
from tests.nvtx.nvtx_recording import Recorder

# What these return is memory that nobody wrote.
UNINITIALISED = {
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
}

# Entries that leave no marker, with the reason.
SILENT = {
    "broadcast_shapes": "a Python function that calls no op",
    **dict.fromkeys(("T", "H", "mT", "mH"), "a property, not a call"),
    **dict.fromkeys(
        ("jiterator_unary", "jiterator_binary", "jiterator_4inputs_with_extra_args", "jiterator_binary_return_by_ref"),
        "works on CUDA only",
    ),
    "jiterator_2inputs_2outputs": "works on CUDA only",
    **dict.fromkeys(
        ("_native_batch_norm_legit", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"),
        "the database calls torch.ops.aten",
    ),
}
# At least so many entries, samples and comparisons of arguments, in float32: else the databases are not what they were.
LEAST = {"operators": (600, 15_000, 10_000), "modules": (100, 3_000, 0), "optimizers": (15, 150, 0)}


@dataclass
class Report:
    """Counts of one run, and what was wrong by name."""

    entries: int = 0
    samples: int = 0
    raised: int = 0
    texts: int = 0
    checked: int = 0
    silent: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)

    def unexpected(self) -> list[str]:
        """Entries without a marker for which no reason is known."""
        return [name for name in self.silent if name not in SILENT]

    def good(self, least: tuple[int, int, int]) -> bool:
        """Nothing wrong, and enough was run."""
        few = any(got < wanted for got, wanted in zip((self.entries, self.samples, self.checked), least, strict=True))
        return not (self.wrong or self.unexpected() or few)

    def __str__(self) -> str:
        return (
            f"{self.entries} entries, {self.samples} samples ({self.raised} raise, equally), {self.texts} markers, "
            f"{self.checked} compared with the arguments; {len(self.silent)} entries without a marker; {len(self.wrong)} wrong"
        )


def flat(value: Any) -> Iterator[Any]:
    """Every leaf of nested lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from flat(item)
    else:
        yield value


def bits(value: torch.Tensor) -> bytes:
    """The elements as bytes, in order."""
    value = value.detach()
    if value.layout != torch.strided:
        value = value.to_dense()
    value = torch.empty(value.shape, dtype=value.dtype).copy_(value.resolve_conj().resolve_neg())
    return value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""


def same(one: Any, other: Any) -> bool:
    """Whether two results are equal bit by bit."""
    left, right = list(flat(one)), list(flat(other))
    if len(left) != len(right):
        return False
    for a, b in zip(left, right, strict=True):
        if isinstance(a, torch.Tensor):
            if not isinstance(b, torch.Tensor) or (a.dtype, a.layout) != (b.dtype, b.layout):
                return False
            if a.is_nested or a.is_meta or a.is_quantized:
                continue
            x, y = bits(a), bits(b)
            if a.shape != b.shape or x != y:
                return False
        elif type(a) is not type(b) or (repr(a) != repr(b) and not callable(a) and " object at " not in repr(a)):
            return False
    return True


def attempt(run: Callable[[], Any]) -> tuple[Any, str]:
    """What a call returns, or its exception in words."""
    torch.manual_seed(0)
    try:
        return run(), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def compare(
    recorder: Recorder,
    report: Report,
    name: str,
    run: Callable[..., Any],
    prepare: Callable[[], Any] = tuple,
    exact: bool = True,
) -> list[markers.Marker]:
    """Run once without and once with recording; note what differs. Returns the outermost markers of the second.

    prepare: makes the arguments anew for each run, unrecorded; exact: the results are compared.
    """
    report.samples += 1
    instrumenter.pause()
    given = prepare()
    plain, plain_error = attempt(lambda: run(*given))
    given = prepare()
    recorder.clear()
    instrumenter.resume()
    told, told_error = attempt(lambda: run(*given))
    instrumenter.pause()
    report.raised += bool(plain_error)
    if plain_error != told_error:
        report.wrong[name] = f"raises {told_error!r}, not {plain_error!r}"
    elif recorder.open:
        report.wrong[name] = f"{recorder.open} ranges left open"
        recorder.open = 0
    elif not plain_error and exact and not same(plain, told):
        report.wrong[name] = "another result"
    found = [markers.decode(text) for text in recorder.texts]
    report.texts += len(found)
    for marker in found:
        if not marker.own or (marker.call is not None and markers.encode_op(marker.call, marker.src) != marker.text):
            report.wrong[name] = f"marker not read back: {marker.text}"
    return [marker for marker, around in zip(found, recorder.nested, strict=True) if not around]


def tensors(values: Any) -> list[TensorSpec]:
    """The tensors among a sample's arguments, as a marker should tell them."""
    found = []
    for value in flat(values):
        if isinstance(value, torch.Tensor) and not value.is_nested:
            strided = value.layout == torch.strided and value.numel() > 0
            strides = tuple(value.stride()) if strided and not value.is_contiguous() else None
            shape = tuple(value.shape)
            found.append((shape, str(value.dtype)[len("torch.") :], strides))
    return found  # type: ignore[return-value]


def told_tensors(marker: markers.Marker) -> list[Any]:
    """The tensors that a marker tells, strides only where they are not those of a contiguous one."""
    from pyprof.model.opcall import contiguous_strides

    assert marker.call is not None
    return [
        (t.shape, t.dtype, t.strides if t.numel and t.strides != contiguous_strides(t.shape) else None)
        for t in marker.call.tensors
    ]


def check_arguments(report: Report, name: str, found: list[markers.Marker], args: Any) -> None:
    """The only outermost marker, where it is of the op itself, must tell the tensors that were given."""
    if len(found) != 1 or found[0].call is None or not found[0].call.described:
        return
    call = found[0].call
    if call.op.strip("_") != name.rpartition(".")[2].strip("_"):
        return
    want, got = tensors(args), told_tensors(found[0])
    report.checked += 1
    if sorted(map(repr, want)) != sorted(map(repr, got)):
        report.wrong[name] = f"tells {got}, was given {want}"


def instrumented(function: Any) -> Any:
    """What a program that looks a function up now gets for it: the database holds functions as they were when it was imported."""
    known = patch._stand_ins.get(id(function))
    if known is not None:
        return known
    module = getattr(function, "__module__", None)
    current = getattr(patch.find_owner(module), getattr(function, "__name__", ""), None) if module else None
    return current if patch.is_wrapper(current) and vars(current).get("__wrapped__") is function else function


def run_operators(recorder: Recorder, dtype: torch.dtype, most: int | None = None) -> Report:
    """The operator database in one dtype. most: samples of each op, from the first on; None: all of them."""
    from torch.testing._internal.common_methods_invocations import op_db

    report = Report()
    for op in op_db:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        report.entries += 1
        name = op.formatted_name
        base, function = op.name, instrumented(op.op)
        before = report.texts
        instrumenter.pause()
        try:
            samples = list(islice(op.sample_inputs("cpu", dtype, requires_grad=False), most))
        except Exception:
            continue
        for sample in samples:
            args = (sample.input, *sample.args)

            def call(args: Any, kwargs: Any, function: Any = function) -> Any:
                return function(*args, **kwargs)

            def prepare(args: Any = args, kwargs: Any = sample.kwargs) -> Any:
                return copies(args), copies(kwargs)

            # LAPACK's gelsy is handed pivots that nobody wrote: its solutions differ in the last bits from run to run by themselves.
            gelsy = base == "linalg.lstsq" and sample.kwargs.get("driver") in (None, "gelsy")
            found = compare(recorder, report, base, call, prepare, exact=base not in UNINITIALISED and not gelsy)
            check_arguments(report, base, found, (args, sample.kwargs))
        if report.texts == before and not isinstance(op.op, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            report.silent.append(name)
    return report


def copies(value: Any) -> Any:
    """Arguments of its own for each run, so that an op that writes into them is given the same twice; strides are kept."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if not _plain(value) else _restrided(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(map(copies, value))
    if type(value) is dict:
        return {key: copies(item) for key, item in value.items()}
    return value


def _plain(value: torch.Tensor) -> bool:
    return value.layout == torch.strided and not value.is_nested and not value.is_conj() and not value.is_neg()


def _restrided(value: torch.Tensor) -> torch.Tensor:
    if value.is_contiguous() or value.numel() == 0 or 0 in value.stride():
        return value.detach().clone() if value.is_contiguous() else value.detach()
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value.detach())


def run_modules(recorder: Recorder) -> Report:
    """The module database: forward and backward, training and evaluation."""
    from torch.testing._internal.common_modules import module_db

    report = Report()
    for info in module_db:
        for training in (True, False):
            report.entries += training
            instrumenter.pause()
            torch.manual_seed(1)
            inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
            for sample in inputs:
                if sample.forward_input is None:
                    continue
                made, made_input = sample.constructor_input, sample.forward_input

                def call(
                    made: Any = made, given: Any = made_input, training: bool = training, cls: Any = info.module_cls
                ) -> Any:
                    module = cls(*made.args, **made.kwargs).to(torch.float32)
                    module.train(training)
                    result = module(*grown(given.args), **grown(given.kwargs))
                    outputs = [
                        t for t in flat(result) if isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point()
                    ]
                    if outputs:
                        sum(t.float().sum() for t in outputs).backward()
                    return result, [p.grad for p in module.parameters()]

                compare(recorder, report, info.name, call)
    return report


def grown(value: Any) -> Any:
    """Leaf copies that want a gradient where the original does."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(map(grown, value))
    if type(value) is dict:
        return {key: grown(item) for key, item in value.items()}
    return value


def run_optimizers(recorder: Recorder) -> Report:
    """The optimizer database: three steps of each configuration, plain, foreach and fused."""
    from torch.testing._internal.common_optimizers import optim_db

    report = Report()
    for info in optim_db:
        report.entries += 1
        variants: list[dict[str, Any]] = [{}, *({name: True} for name in info.supported_impls if name in ("foreach", "fused"))]
        for sample in info.optim_inputs_func(device="cpu"):
            for extra in variants:
                settings = {**sample.kwargs, **extra}

                def call(kwargs: Any = settings, cls: Any = info.optim_cls, sparse: bool = info.name == "SparseAdam") -> Any:
                    net = torch.nn.Linear(3, 2)
                    optimizer = cls(net.parameters(), **kwargs)

                    def closure() -> torch.Tensor:
                        optimizer.zero_grad()
                        loss = net(torch.ones(4, 3)).pow(2).sum()
                        if sparse:
                            net.weight.grad, net.bias.grad = torch.ones(2, 3).to_sparse(), torch.ones(2).to_sparse()
                        else:
                            loss.backward()
                        return loss

                    for _ in range(3):
                        closure()
                        optimizer.step(closure)
                    return list(net.parameters())

                compare(recorder, report, info.name, call)
    return report


def main() -> int:
    """Run the operator database in one dtype and print the counts; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    recorder = Recorder()
    instrumenter.init(backend=recorder)
    reports = {"operators": run_operators(recorder, getattr(torch, args.dtype))}
    if args.dtype == "float32":
        reports |= {"modules": run_modules(recorder), "optimizers": run_optimizers(recorder)}
    print(instrumenter.stats())
    instrumenter.shutdown()
    for what, report in reports.items():
        print(f"{what} {args.dtype}: {report}; without a marker and a reason: {report.unexpected()}")
        for name, reason in report.wrong.items():
            print(f"  {name}: {reason[:400]}")
    bad = [what for what, report in reports.items() if not report.good(LEAST[what] if args.dtype == "float32" else (0, 0, 0))]
    print(f"{sum(report.samples for report in reports.values())} samples; wrong: {', '.join(bad) or 'none'}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
