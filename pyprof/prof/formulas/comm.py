"""Collectives of torch.distributed: no arithmetic of the model; bytes are what one rank reads from and writes to its own
memory.

The sum of a reduction counts one vector operation for each element received. What goes over the wires depends on the number of
ranks and the algorithm, which an op's arguments do not tell; the report works algorithm and bus bandwidth out of these sizes.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import nbytes
from pyprof.prof.formulas.registry import Cost, Missing, formula

__all__: list[str] = []


def _tensors(*values: Any) -> list[TensorSpec]:
    found: list[TensorSpec] = []
    for value in values:
        if isinstance(value, TensorSpec):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(*value)
    return found


def _moved(reduces: bool, *tensors: Any) -> Cost:
    found = _tensors(*tensors)
    if not found:
        raise Missing("tensors not recorded")
    return Cost(0, sum(t.numel for t in found) if reduces else 0, nbytes(*found))


def _names(op: str, *spaces: str) -> tuple[str, ...]:
    places = {"d": "torch.distributed.", "c": "c10d::", "f": "_c10d_functional::"}
    return tuple(places[s] + op for s in spaces)


@formula(*_names("all_reduce", "d"), *_names("all_reduce_coalesced", "d"), *_names("allreduce_", "c"),
    *_names("allreduce_coalesced_", "c"),
         *_names("all_reduce", "f"), *_names("all_reduce_", "f"), *_names("all_reduce_coalesced", "f"))  # fmt: skip
def all_reduce(tensor: list[TensorSpec], *options: Any, **more: Any) -> Cost:
    # In place: each element read, combined and written.
    found = _tensors(tensor)
    moved = _moved(True, found)
    return Cost(0, moved.vector_flops, nbytes(found, found))


@formula(*_names("reduce", "d"), *_names("reduce_", "c"))
def reduce(tensor: list[TensorSpec], *options: Any, **more: Any) -> Cost:
    return all_reduce(tensor)


@formula(*_names("broadcast", "d"), *_names("broadcast_", "c"), *_names("broadcast", "f"), *_names("broadcast_", "f"),
    *_names("send", "d"),
         *_names("isend", "d"), *_names("recv", "d"), *_names("irecv", "d"), *_names("send", "c"), *_names("recv_",
             "c"))  # fmt: skip
def broadcast(tensor: list[TensorSpec], *options: Any, **more: Any) -> Cost:
    # A rank either reads it or writes it.
    return _moved(False, tensor)


@formula(*_names("all_gather", "d"), *_names("all_gather_into_tensor", "d"), *_names("_all_gather_base", "d"),
    *_names("allgather_", "c"),
         *_names("_allgather_base_", "c"), *_names("allgather_into_tensor_coalesced_", "c"), *_names("all_to_all", "d"),
         *_names("all_to_all_single", "d"), *_names("alltoall_", "c"), *_names("alltoall_base_", "c"))  # fmt: skip
def all_gather(output: Any, input: Any = None, *options: Any, **more: Any) -> Cost:
    # Output first, input second: the input read, the output written.
    return _moved(False, output, input)


@formula(*_names("reduce_scatter", "d"), *_names("reduce_scatter_tensor", "d"), *_names("_reduce_scatter_base", "d"),
         *_names("reduce_scatter_", "c"), *_names("_reduce_scatter_base_", "c"),
         *_names("reduce_scatter_tensor_coalesced_", "c"))  # fmt: skip
def reduce_scatter(output: Any, input: Any = None, *options: Any, **more: Any) -> Cost:
    moved = _moved(False, output, input)
    return Cost(0, sum(t.numel for t in _tensors(input)), moved.bytes)


@formula(*_names("all_gather_into_tensor", "f"), *_names("all_gather_into_tensor_out", "f"))
def functional_all_gather(input: TensorSpec, group_size: Any, *options: Any) -> Cost:
    if not isinstance(group_size, int):
        raise Missing("group_size not recorded")
    one = _moved(False, input)
    return Cost(0, 0, None if one.bytes is None else one.bytes * (1 + group_size))


@formula(*_names("reduce_scatter_tensor", "f"))
def functional_reduce_scatter(input: TensorSpec, reduce_op: Any, group_size: Any = None, *options: Any) -> Cost:
    if not isinstance(group_size, int):
        raise Missing("group_size not recorded")
    one = _moved(True, input)
    return Cost(0, one.vector_flops, None if one.bytes is None else one.bytes + one.bytes // group_size)


@formula(*_names("all_to_all_single", "f"))
def functional_all_to_all(input: TensorSpec, output_split_sizes: Any = None, *options: Any) -> Cost:
    return _moved(False, input, input)


@formula(*_names("gather", "d"), *_names("gather_", "c"), *_names("scatter", "d"), *_names("scatter_", "c"))
def gather(tensor: Any, others: Any = None, *options: Any, **more: Any) -> Cost:
    return _moved(False, tensor, others)


@formula(
    *_names("barrier", "d"),
    *_names("barrier", "c"),
    *_names("monitored_barrier", "d"),
    *_names("wait_tensor", "f"),
    kind="structural",
)
def barrier(*options: Any, **more: Any) -> Cost:
    return Cost(0, 0, 0)


# ---------------------------------------------------------------------------------------------- as torch.profiler names them

# Annotations such as `nccl:all_reduce` have the input tensors as their arguments, and neither outputs nor the number of ranks.


@formula("nccl::all_reduce", "nccl::reduce", "nccl::all_reduce_coalesced")
def nccl_all_reduce(tensor: list[TensorSpec], *options: Any, **facts: Any) -> Cost:
    return all_reduce(tensor)


@formula("nccl::broadcast", "nccl::send", "nccl::recv")
def nccl_broadcast(tensor: list[TensorSpec], *options: Any, **facts: Any) -> Cost:
    return _moved(False, tensor)


@formula("nccl::all_to_all", "nccl::all_to_allv")
def nccl_all_to_all(tensor: list[TensorSpec], *options: Any, **facts: Any) -> Cost:
    # As much comes in as goes out.
    return _moved(False, tensor, tensor)


@formula(
    "nccl::all_gather",
    "nccl::_all_gather_base",
    "nccl::reduce_scatter",
    "nccl::_reduce_scatter_base",
    "nccl::gather",
    "nccl::scatter",
)
def nccl_gather(tensor: list[TensorSpec], *options: Any, input: Any = None, output: Any = None, **facts: Any) -> Cost:
    """What comes in, or goes out, depends on the number of ranks: bytes are known where torch's own record is around it."""
    return Cost(0, 0, None if input is None or output is None else nbytes(*_tensors(input, output)))
