"""Collectives of torch.distributed: no arithmetic of the model; bytes: what one rank reads from and writes to its own memory.

The sum of a reduction counts one vector operation for each element received. What goes over the wires depends on the number of
ranks and the algorithm, which an op's arguments do not give; the report derives algorithm and bus bandwidth from these sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, nbytes, need, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, op


def _flat(*values: object) -> Iterator[TensorSpec]:
    for value in values:
        if isinstance(value, TensorSpec):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _flat(*value)


def _recorded(*values: object) -> list[TensorSpec]:
    """All tensors among the values and the lists in them. Raises Missing where there are none."""
    found = list(_flat(*values))
    if not found:
        raise Missing("tensors not recorded")
    return found


def _names(torch: str = "", c10d: str = "", functional: str = "", nccl: str = "") -> list[str]:
    """Full names; nccl: annotations of torch.profiler such as `nccl:all_reduce`, which have only the input tensors."""
    places = {"torch.distributed.": torch, "c10d::": c10d, "_c10d_functional::": functional, "nccl::": nccl}
    return [place + name for place, names in places.items() for name in names.split()]


@op(*_names(
    torch="all_reduce all_reduce_coalesced reduce", c10d="allreduce_ allreduce_coalesced_ reduce_",
    functional="all_reduce all_reduce_ all_reduce_coalesced", nccl="all_reduce reduce all_reduce_coalesced",
))  # fmt: skip
def all_reduce(tensor: list[TensorSpec], *options: object, **more: object) -> Cost:
    """In place: each element read, combined and written."""
    found = _recorded(tensor)
    return vector(sum(t.numel for t in found), found, found)


@op(*_names(
    torch="broadcast send isend recv irecv", c10d="broadcast_ send recv_", functional="broadcast broadcast_",
    nccl="broadcast send recv",
))  # fmt: skip
def broadcast(tensor: list[TensorSpec], *options: object, **more: object) -> Cost:
    """A rank either reads it or writes it."""
    return copy_cost(_recorded(tensor))


@op(*_names(
    torch="all_gather all_gather_into_tensor _all_gather_base all_to_all all_to_all_single",
    c10d="allgather_ _allgather_base_ allgather_into_tensor_coalesced_ alltoall_ alltoall_base_",
))  # fmt: skip
@op(*_names(torch="gather scatter", c10d="gather_ scatter_"), tensor="output", gather_list="input", scatter_list="input")
def all_gather(output: object, input: object = None, *options: object, **more: object) -> Cost:
    """The input read, the output written, whichever comes first."""
    return copy_cost(_recorded(output, input))


@op(*_names(
    torch="reduce_scatter reduce_scatter_tensor _reduce_scatter_base",
    c10d="reduce_scatter_ _reduce_scatter_base_ reduce_scatter_tensor_coalesced_",
))  # fmt: skip
def reduce_scatter(output: object, input: object = None, *options: object, **more: object) -> Cost:
    return vector(sum(t.numel for t in _flat(input)), _recorded(output, input))


@op(*_names(functional="all_to_all_single", nccl="all_to_all all_to_allv"))
def all_to_all(tensor: list[TensorSpec], *options: object, **more: object) -> Cost:
    """As much comes in as goes out."""
    found = _recorded(tensor)
    return copy_cost(found, found)


@op(*_names(functional="all_gather_into_tensor all_gather_into_tensor_out"), order="input group_size ...")
def functional_all_gather(input: TensorSpec, group_size: object) -> Cost:
    found = _recorded(input)
    return copy_cost(found, found * need(group_size, "group_size"))


@op(*_names(functional="reduce_scatter_tensor"), order="input reduce_op group_size ...")
def functional_reduce_scatter(input: TensorSpec, group_size: object) -> Cost:
    return vector(input.numel, input, spec((input.numel // need(group_size, "group_size"),), input.dtype))


@op(*_names(torch="barrier monitored_barrier", c10d="barrier", functional="wait_tensor"), kind="structural")
def barrier(*options: object, **more: object) -> Cost:
    return Cost(0, 0, 0)


@op(*_names(nccl="all_gather _all_gather_base reduce_scatter _reduce_scatter_base gather scatter"), order="tensor[] ...")
def nccl_gather(tensor: list[TensorSpec], input: object = None, output: object = None, **facts: object) -> Cost:
    """What comes in, or goes out, depends on the number of ranks: bytes are known where torch's own record is around it."""
    return Cost(0, 0, None if input is None or output is None else nbytes(input, output))
