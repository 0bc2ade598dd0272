"""One run through both readers: a torch.profiler trace, and the nsys export which that run would have given."""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pyprof.model.opcall import UNKNOWN, OpCall
from pyprof.model.trace import ActivityKind
from pyprof.prof.formulas import evaluate
from pyprof.prof.frame import Frame
from tests.given import records_of, slow
from tests.kineto_to_nsys import convert

# file: kernels; of those, at least so many whose bytes are known in both, with our markers
CAPTURES = {"h100_vit": (154, 153), "a100_train_stacks": (8568, 5000)}


class Row(NamedTuple):
    """The facts of one kernel that both readers must give."""

    op: str
    phase: int
    direction: int
    shapes: list[tuple[int, ...]]
    source: tuple[str, ...]
    layer: tuple[str, ...]
    flops: int
    matmul_flops: int
    bytes: int
    call: OpCall | None
    own: OpCall | None


@lru_cache(maxsize=4)
def rows_of(path: Path) -> dict[int, Row]:
    """Correlation id -> kernel, for kernels with a launch."""
    records = records_of(path)
    records = records.select((records["kind"] == ActivityKind.KERNEL) & (records["launch_ns"] >= 0))
    costs = Frame(records).costs
    found = {}
    for row in range(len(records)):
        call, own = (records.calls[code] if (code := int(records[name][row])) >= 0 else None for name in ("call", "own"))
        scope = records.stacks[records["scope"][row]]
        found[int(records["corr"][row])] = Row(
            call.op if call else "", int(records["phase"][row]), int(records["dir"][row]), _shapes(call),
            scope.trace[-1:], scope.layer, int(costs.flops[row]), int(costs.matmul_flops[row]), int(costs.bytes[row]), call, own,
        )  # fmt: skip
    return found


def _shapes(call: OpCall | None) -> list[tuple[int, ...]]:
    # emit_nvtx prints a 0-dimensional tensor as it prints a number.
    return [t.shape for t in call.tensors if t.shape] if call else []


def _by_types(row: Row) -> bool:
    """Whether only types tell the forward op: FBGEMM's show no number, casts of integers before them do, and no type in a text."""
    return row.phase == 1 and row.call is not None and row.call.module == "fbgemm"


def _typed(call: OpCall | None) -> bool:
    return call is not None and all(t.dtype is not None for t in call.tensors)


@pytest.mark.parametrize("name", ["h100_vit", *slow("a100_train_stacks")])
def test_with_our_markers_both_readers_say_the_same_of_every_kernel(captures: Path, tmp_path: Path, name: str) -> None:
    source = captures / "kineto" / f"{name}.json.gz"
    theirs, ours = rows_of(source), rows_of(convert(source, tmp_path / "net.sqlite", markers=True))
    assert len(ours) == CAPTURES[name][0] and theirs.keys() == ours.keys()
    equal_bytes = 0
    for corr, row in theirs.items():
        other = ours[corr]
        if _by_types(row):
            continue
        # All but the bytes, and the calls, whose module is aten in one and torch in the other.
        assert row[:8] == other[:8], corr
        equal_bytes += row.bytes == other.bytes >= 0
        if (
            row.bytes != other.bytes
            and row.own is not None
            and UNKNOWN in row.own.args
            and evaluate(row.own).cost.bytes is None
        ):
            continue  # an old trace: only the copy inside tells the type, which emit_nvtx does not; a marker has dtypes, not "?"
        if row.bytes != other.bytes:
            # Ops that C++ starts (gradients summed by the engine, copies within an op) carry no types under nsys: then unknown.
            assert other.bytes == -1 and not (_typed(other.own) and other.own is not None and other.own.tensors), (row, other)
    assert equal_bytes >= CAPTURES[name][1]


def _known_by_scalars(call: OpCall | None) -> bool:
    """Whether FLOPs depend on arguments that emit_nvtx does not print: strides of a convolution, causal attention."""
    return call is not None and ("conv" in call.op or "attention" in call.op)


@pytest.mark.parametrize("name", ["h100_vit", *slow("a100_train_stacks")])
def test_from_the_text_of_emit_nvtx_alone_ops_shapes_and_products_are_the_same(
    captures: Path, tmp_path: Path, name: str
) -> None:
    source = captures / "kineto" / f"{name}.json.gz"
    theirs, ours = rows_of(source), rows_of(convert(source, tmp_path / "net.sqlite", markers=False))
    assert theirs.keys() == ours.keys()
    products = 0
    for corr, row in theirs.items():
        other: Any = ours[corr]
        if _by_types(row):
            continue
        assert row[:4] == other[:4], corr
        if other.matmul_flops != row.matmul_flops:
            assert other.matmul_flops == -1 and (row.matmul_flops == 0 or _known_by_scalars(row.call)), (row, other)
        products += other.matmul_flops == row.matmul_flops > 0
        assert other.bytes in (-1, row.bytes)
    assert products >= {"h100_vit": 73, "a100_train_stacks": 1000}[name]
