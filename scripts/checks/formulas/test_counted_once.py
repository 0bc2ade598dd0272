"""What an op and the ops that it calls count together, over torch's operator database as torch.profiler records it on a CPU.

The formula of an op is held against the storages that it touches in test_bytes.py. Here the rows of a capture are: all
rows inside an op together carry what its formula says, and beyond that only what was copied for it into another type or layout.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from pyprof.loading.formats import op_rules
from pyprof.loading.load import load, open_trace
from pyprof.model.opcall import CONVERSIONS, OpCall
from pyprof.model.records import Records
from pyprof.parse.attribution.attribute import ops_around
from pyprof.parse.attribution.ranges import CaptureFacts
from pyprof.prof.cost import cost_records
from pyprof.prof.formulas import evaluate, gives_way, is_copy, is_structural

# Copies that a view makes where the data does not lie as it would have to.
VIEWS = re.compile(r"aten::(clone|_to_copy|_reshape_copy)$")


def _run_database(count: int) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        dtype = torch.float32 if op.supports_dtype(torch.float32, "cpu") else torch.int64
        if not op.supports_dtype(dtype, "cpu"):
            continue
        wants = bool(op.supports_autograd) and dtype.is_floating_point
        samples = op.sample_inputs_func(op, torch.device("cpu"), dtype, wants)
        for _, sample in zip(range(count), samples, strict=False):
            try:
                made = op(sample.input, *sample.args, **sample.kwargs)
                sums = [x.abs().sum() for x in tree_leaves(made) if isinstance(x, torch.Tensor) and x.requires_grad]
                if sums:
                    torch.stack([x.double() for x in sums]).sum().backward()
            except (AssertionError, RuntimeError, TypeError, NotImplementedError, IndexError, ValueError):
                continue  # a form that this op refuses


def _outermost(path: Path) -> Iterator[tuple[OpCall, int, int, int]]:
    """Calls of the dispatcher with no other around them, or only a backward function: thread, begin and end in ns."""
    trace = open_trace(path)
    capture = CaptureFacts(trace, op_rules())
    around = ops_around(capture)
    nested, ends = around.nested, capture.ranges["end_ns"]
    tids = trace.threads["tid"][around.thread[:-1]]
    for p in range(len(nested.parent)):
        call = trace.markers[around.label[p]].call
        above = around.last_op[nested.parent[p]] if nested.parent[p] >= 0 else -1
        if call is not None and call.dispatcher and (above < 0 or trace.markers[around.label[above]].call is None):
            yield call, int(tids[p]), int(nested.start[p]), int(ends[nested.row[p]])


def _inside(records: Records, tid: int, begin: int, end: int) -> list[int]:
    first, last = np.searchsorted(records["start_ns"], [begin, end])
    return [row for row in range(int(first), int(last)) if records["tid"][row] == tid]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("op_db") / "trace.json"
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
            _run_database(1)
        recorded.export_chrome_trace(str(path))
    return path


def test_rows_inside_an_op_carry_its_bytes_once(database: Path) -> None:
    records = load(str(database))
    moved = cost_records(records).bytes
    twice: dict[str, str] = {}
    held: dict[str, int] = defaultdict(int)
    for call, tid, begin, end in _outermost(database):
        formula = evaluate(call).cost.bytes
        if formula is None or is_structural(call.name) or is_copy(call.name) or gives_way(call):
            continue
        rows = _inside(records, tid, begin, end)
        own = [row for row in rows if records.calls[records["own"][row]] == call and records["start_ns"][row] == begin]
        assert len(own) == 1, call
        beside = [(records.calls[records["own"][row]].name, int(moved[row])) for row in rows if row not in own]
        beyond = [(name, size) for name, size in beside if size and name not in CONVERSIONS and not VIEWS.match(name)]
        if beyond or moved[own[0]] != formula:
            twice.setdefault(call.name, f"{moved[own[0]]} bytes of {formula}, and inside {beyond}: {call}")
        held[call.name] += 1
    assert twice == {}
    assert len(held) > 400


def test_what_an_op_makes_with_copies_is_counted_once(database: Path) -> None:
    """Ops whose result is a copy that is then changed: no row beside theirs."""
    records = load(str(database))
    names = (
        "constant_pad_nd masked_fill index_add scatter scatter_add slice_scatter select_scatter repeat tile repeat_interleave pad"
        " sort diag_embed index_fill put unfold_copy"
    )
    found = set()
    for call, tid, begin, end in _outermost(database):
        if call.op in names.split() and evaluate(call).cost.bytes:
            beside = [records.calls[records["own"][row]].name for row in _inside(records, tid, begin, end)[1:]]
            assert not set(beside) - CONVERSIONS, (call, beside)
            found.add(call.op)
    assert found == set(names.split())
