"""Bytes of the formulas held against the storages that ops really touch, over torch's operator database.

Each sample runs forward and backward under the dispatcher, as it is, with its input not contiguous, expanded, and in place. What
an op reads is the storage of its arguments, what it writes that of its results and of what its schema says is changed. Where the
two differ, a table here says which argument is not read and why; there is no other way for a formula to pass.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from pyprof.prof.formulas import evaluate, is_structural, known
from tests.prof.formulas.formula_oracles import Touch, Touched, call, t

# Arguments of which only the shape or the dtype is asked, or which are overwritten without being read: by pattern of names.
UNREAD = {
    r"\w+_like|new_(full|ones|zeros)|fill": {"self"},
    r"(fill|zero|copy|uniform|normal|bernoulli|cauchy|exponential|geometric|log_normal|random)_": {"self"},
    r"\w*pool\dd(_with_indices)?_backward|\w+_pad\dd_backward|nll_loss(2d)?_backward": {"self"},
    r"(native_)?batch_norm_backward": {"running_mean", "running_var"},
    r"native_layer_norm_backward": {"bias"},
    r"rrelu_with_noise_?": {"noise"},
    r"_foreach_copy_": {"self"},
    r"_fused_\w+": {"state_steps"},  # a number a parameter
}
# Ops that read as many elements of this argument as they return, but at most all: a part of it, or what indices ask for.
PARTS = {
    r"(narrow|diagonal|slice|select|as_strided)_copy": "self",
    r"gather|index|index_select|take|_unsafe_masked_index": "self",
    r"embedding": "weight",
}
# Ops whose formula is not about whole arguments; each is held to its definition in test_definitions.py or the table.
OTHERWISE = {
    r"scatter_|scatter_add_|scatter_reduce_|index_add_|index_put_|index_copy_|index_fill_|put_|index_reduce_": "touches the elements that indices name",
    r"(slice|select|diagonal|as_strided)_scatter": "the part of the input that is replaced need not be read",
    r"_?embedding_(bag|dense_backward)\w*|_embedding_bag\w*": "which rows are equal is data; a table's gradient is added to",
    r"nll_loss(2d)?_forward": "reads one element a row; its second result is one number",
    r"trace": "reads the diagonal",
    r"_segment_reduce_backward": "a sum and a mean need neither the data nor the result",
    r"lu_unpack": "reads what it is asked to unpack",
    r"_ctc_loss": "as long as the longest target, which may be data",
    r"log_sigmoid_forward": "keeps a buffer on a CPU alone",
    r"(_?native_batch_norm\w*)": "running statistics are changed while training, whatever its schema says",
}  # fmt: skip


# Arguments that a schema says are changed, and which are only where gradients are scaled; steps are numbers.
UNCHANGED = {"grads", "state_steps"}


def _find(table: dict[str, Any], name: str) -> Any:
    return next((value for pattern, value in table.items() if re.fullmatch(pattern, name)), None)


def _expected(touch: Touch) -> int:
    """Bytes that the op has to move, from the storages of its arguments and results."""
    unread = _find(UNREAD, touch.name) or set()
    part = _find(PARTS, touch.name)
    read = sum(size for name, size in touch.read.items() if name not in unread and name != part)
    return read + sum(touch.changed.values()) + touch.made + (min(touch.made, touch.read[part]) if part else 0)


def _as_expanded(x: Any) -> Any:
    """A tensor of the same shape whose first dimension is stored once."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or not x.shape or x.shape[0] < 2:
        return x
    return x.detach()[:1].expand_as(x).requires_grad_(x.requires_grad)


def _as_strided(x: Any) -> Any:
    """A tensor of the same shape and values whose elements are two apart."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or not x.shape:
        return x
    wide = x.detach().repeat_interleave(2, dim=-1)
    return wide[..., ::2].requires_grad_(x.requires_grad)


def _database() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def _samples(op: Any, count: int) -> Iterator[tuple[Any, Any, Any]]:
    """(function, input, sample) of the op's first samples, of the very first in each form."""
    dtype = torch.float32 if op.supports_dtype(torch.float32, "cpu") else torch.int64
    if not op.supports_dtype(dtype, "cpu"):
        return
    wants = bool(op.supports_autograd) and dtype.is_floating_point
    for place, sample in zip(range(count), op.sample_inputs_func(op, torch.device("cpu"), dtype, wants), strict=False):
        yield op, sample.input, sample
        if place:
            continue
        for change in (_as_expanded, _as_strided):
            yield op, tree_map(change, sample.input), sample
        if op.inplace_variant is not None and isinstance(sample.input, torch.Tensor):
            yield op.inplace_variant, sample.input.detach().clone(), sample


def _touches(count: int) -> list[Touch]:
    recorder = Touched()
    for op in _database():
        for function, given, sample in _samples(op, count):
            try:
                with recorder:
                    out = function(given, *sample.args, **sample.kwargs)
                    sums = [x.abs().sum() for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
                    if sums:
                        torch.stack([s.double() for s in sums]).sum().backward()
            except (AssertionError, RuntimeError, TypeError, NotImplementedError, IndexError, ValueError):
                continue  # a form that this op refuses; what ran before it is looked at all the same
    return recorder.touches


def test_bytes_are_those_of_the_storages_touched() -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        touches = _touches(2)
    wrong: dict[str, str] = {}
    held: set[str] = set()
    for touch in touches:
        name = f"{touch.call.module}::{touch.name}"
        if not known(name) or is_structural(name) or _find(OTHERWISE, touch.name):
            continue
        if touch.changed and touch.made and touch.name.endswith("_"):  # in place on what was too small for it
            continue
        ours = evaluate(touch.call).cost.bytes
        if ours is None:  # sizes that are data
            continue
        held.add(name)
        if ours != _expected(touch):
            wrong.setdefault(name, f"{ours} bytes where {_expected(touch)} were touched: {touch.call}")
    assert wrong == {}
    assert len(held) > 400
    ran = {touch.name for touch in touches} | {"_foreach_copy_", "_fused_adam_"}  # these run in optimizers
    for table in (UNREAD, PARTS, OTHERWISE):
        assert [pattern for pattern in table if not any(re.fullmatch(pattern, name) for name in ran)] == []


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("Adam", {"fused": True}),
    ("Adam", {"fused": True, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"fused": True}),
    ("SGD", {"fused": True, "momentum": 0.9, "nesterov": True}),
    ("Adagrad", {"fused": True}),
    *(
        (name, {"foreach": True})
        for name in ("Adam", "AdamW", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
    ),
    ("SGD", {"foreach": True, "momentum": 0.9, "weight_decay": 0.1}),
    ("Adam", {"foreach": False, "amsgrad": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[f"{i}-{row[0]}" for i, row in enumerate(OPTIMIZERS)])
def test_bytes_of_optimizers_are_parameters_gradients_and_state(name: str, options: dict[str, Any]) -> None:
    parameters = [torch.rand(4, 5, requires_grad=True), torch.rand(7, requires_grad=True)]
    optimizer = getattr(torch.optim, name)(parameters, lr=0.1, **options)
    recorder, held = Touched(), 0
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.rand_like(parameter)
        with recorder:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
    for touch in recorder.touches:
        name = f"{touch.call.module}::{touch.name}"
        if not known(name) or is_structural(name) or _find(OTHERWISE, touch.name):
            continue
        expected = _expected(touch)
        if touch.name.startswith("_fused"):
            expected -= sum(size for argument, size in touch.changed.items() if argument in UNCHANGED)
        assert evaluate(touch.call).cost.bytes == expected, touch.call
        held += 1
    assert held > 3


def test_scaled_gradients_are_written_back() -> None:
    one, number = t(100), t()
    lists = [[one], [one], [one], [one], [], [number]]
    plain = evaluate(call("aten::_fused_adam_", *lists, 0.1, 0.9, 0.999, 0.0, 1e-8, False, False)).cost
    scaled = evaluate(call("aten::_fused_adam_", *lists, 0.1, 0.9, 0.999, 0.0, 1e-8, False, False, number, number)).cost
    assert (plain.bytes, scaled.bytes) == (2800, 3200)
    assert (plain.flops, scaled.flops) == (1200, 1300)
