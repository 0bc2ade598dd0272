"""Fused ops of inference libraries that pass over their tensors once: activations, norms, quantisation, sampling, by one table.

`streamed.txt` has one line a signature. Bytes: every tensor among the arguments once, those that the op updates in place twice
(read and written), and what it makes anew once. Operations are counted an element of one of the arguments, by the op's
definition, as for torch's own: silu 5, gelu 5 (tanh form 9), a product 1; rms norm 4 (3 without weight), 1 more for a residual
added before it; quantisation with a given scale 3 (multiply, clamp 2), 1 more where it rounds to integers and 2 more where the
scale comes from the tensor's range. Signatures: the registrations in vllm-project/vllm (csrc/torch_bindings.cpp and
csrc/libtorch_stable, vllm/_aiter_ops.py), sgl-project/sglang (sgl-kernel/csrc/common_extension.cc) and ROCm/aiter (aiter/ops).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, spec
from pyprof.prof.formulas.registry import Cost, Missing, op


class StreamedOp(NamedTuple):
    """One signature: weight operations an element of the argument `of`; order: arguments by position; updated: those that are
    read and written; made: the argument that each new tensor is like, and its dtype where that is another."""

    names: tuple[str, ...]
    weight: int
    of: str
    order: tuple[str, ...]
    updated: frozenset[str]
    made: tuple[tuple[str, str], ...]


def rows() -> Iterator[StreamedOp]:
    """The lines of the table: `weight of | *updated other ... > made:dtype | name name ...`."""
    for line in Path(__file__).with_name("streamed.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        counted, signature, names = (part.strip() for part in line.split("|"))
        weight, of = counted.split()
        given, _, made = signature.partition(">")
        arguments = given.split()
        new = tuple((name, dtype) for name, _, dtype in (item.partition(":") for item in made.split()))
        updated = frozenset(a[1:] for a in arguments if a.startswith("*"))
        yield StreamedOp(tuple(names.split()), int(weight), of, tuple(a.removeprefix("*") for a in arguments), updated, new)


def _declare(row: StreamedOp) -> None:
    @op(*row.names, places="=", order="")
    def streamed(*args: object, **named: object) -> Cost:
        given = dict(zip(row.order, args, strict=False)) | named
        rest = args[len(row.order) :]
        counted = given.get(row.of)
        if not isinstance(counted, TensorSpec):
            raise Missing(f"{row.of} not recorded")
        updated = [given.get(name) for name in row.updated]
        return Cost(0, row.weight * counted.numel, nbytes(*given.values(), rest, updated, [*_made(row, given)]))


def _made(row: StreamedOp, given: dict[str, object]) -> Iterator[TensorSpec]:
    for name, dtype in row.made:
        like = given.get(name)
        if not isinstance(like, TensorSpec):
            raise Missing(f"{name} not recorded")
        yield spec(like.shape, dtype) if dtype else gradient(like)


for _row in rows():
    _declare(_row)
