"""Every call of torch's operator database, in both languages, has a cost, or a reason that sizes are data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pyprof.prof.formulas import evaluate, evaluate_backward, known
from tests.prof.formulas.formula_oracles import Called, Dispatched


def _samples(count: int) -> Iterator[tuple[Any, Any]]:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        for dtype in (torch.float32, torch.int64):
            if op.supports_dtype(dtype, "cpu"):
                taken = zip(range(count), op.sample_inputs_func(op, torch.device("cpu"), dtype, False), strict=False)
                yield from ((op, sample) for _, sample in taken)
                break


# The only reasons for which a call of the database may be without a cost: sizes that are data.
ALLOWED = (
    "size of the result not recorded", "is data, not recorded", "are data, not recorded", "output_size not recorded",
    "which convolutions it calls depends on the gradients given",
)  # fmt: skip


@pytest.mark.parametrize("mode", [Dispatched, Called])
def test_every_call_of_the_database_has_its_cost(mode: Callable[[], Dispatched | Called]) -> None:
    torch.manual_seed(0)
    problems: dict[str, str] = {}
    costed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op, sample in _samples(2):
            recorder = mode()
            try:
                with recorder:
                    op(sample.input, *sample.args, **sample.kwargs)
            except (AssertionError, RuntimeError, TypeError, NotImplementedError, IndexError, ValueError):
                pass  # samples that need what this build lacks; what ran before is still looked at
            for subject in recorder.calls:
                if not known(subject.name):
                    continue
                result = evaluate(subject)
                evaluate_backward(subject)
                costed += 1
                if result.reason and not any(reason in result.reason for reason in ALLOWED):
                    problems.setdefault(subject.name, f"{result.reason} | {subject}")
    assert problems == {}
    assert costed > 1000
