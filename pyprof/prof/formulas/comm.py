"""Collectives of torch.distributed: no arithmetic of the model; bytes: what one rank reads from and writes to its own memory.

The sum of a reduction counts one vector operation for each element received. What goes over the wires depends on the number of
ranks and the algorithm, which an op's arguments do not give; the report derives algorithm and bus bandwidth from these sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, nbytes, need, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, op


def _flat(*values: object) -> Iterator[TensorSpec]:
    for value in values:
        if isinstance(value, TensorSpec):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _flat(*value)


def _recorded(*values: object) -> list[TensorSpec]:
    """All tensors among the values and the lists in them. Raises Missing if there are none."""
    found = list(_flat(*values))
    if not found:
        raise Missing("tensors not recorded")
    return found


def _names(torch: str = "", c10d: str = "", functional: str = "", nccl: str = "", **spaces: str) -> list[str]:
    """Full names; nccl: annotations of torch.profiler such as `nccl:all_reduce`, which have only the input tensors; spaces: ops
    of other namespaces of the dispatcher."""
    places = {"torch.distributed.": torch, "c10d::": c10d, "nccl::": nccl}
    places |= dict.fromkeys(("_c10d_functional::", "_c10d_functional_autograd::"), functional)
    places |= {f"{space}::": names for space, names in spaces.items()}
    return [place + name for place, names in places.items() for name in names.split()]


@op(*_names(
    torch="all_reduce all_reduce_coalesced reduce", c10d="allreduce_ allreduce_coalesced_ reduce_",
    functional="all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_",
    nccl="all_reduce reduce all_reduce_coalesced", c10d_functional="all_reduce all_reduce_coalesced",
    symm_mem="multimem_all_reduce_ one_shot_all_reduce multimem_one_shot_all_reduce two_shot_all_reduce_",
    vllm="all_reduce inplace_all_reduce outplace_all_reduce", sglang="inplace_all_reduce outplace_all_reduce",
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


@op(*_names(_C_custom_ar="all_reduce qr_all_reduce", sgl_kernel="all_reduce all_reduce_reg qr_all_reduce mscclpp_allreduce",
            aiter="all_reduce"), order="context input ...")  # fmt: skip
@op(*_names(symm_mem="one_shot_all_reduce_out two_shot_all_reduce_out"), order="input reduce_op group out")
@op(*_names(sgl_kernel="all_reduce_unreg", aiter="all_reduce_unreg"), order="context input ...")
def all_reduce_into(input: TensorSpec) -> Cost:
    """Into another tensor: each element read, combined and written."""
    return vector(input.numel, input, input)


@op(*_names(symm_mem="one_shot_all_reduce_copy one_shot_all_reduce_copy_out"), order="buffer input ...")
def all_reduce_copy(input: TensorSpec) -> Cost:
    """Copied into the buffer that all ranks see, and combined from there: both and the result."""
    return vector(input.numel, input, input, input)


@op(*_names(symm_mem="all_to_all_vdev all_to_all_vdev_2d all_to_all_vdev_2d_offset"), order="input out in_splits ...")
def all_to_all_by_splits(input: TensorSpec, out: TensorSpec, in_splits: TensorSpec) -> Cost:
    """How much is sent lies in a tensor of the device."""
    return Cost(0, 0, None, at_least=nbytes(in_splits))


@op(*_names(symm_mem="nvshmem_all_to_all"), order="input out ...")
def all_to_all_into(input: TensorSpec, out: TensorSpec) -> Cost:
    return copy_cost(input, out)


@op("aiter::fused_allreduce_rmsnorm", order="context input residual_in residual_out out weight ...")
def all_reduce_norm(
    input: TensorSpec, residual_in: TensorSpec, residual_out: TensorSpec, out: TensorSpec, weight: TensorSpec
) -> Cost:
    """Combined (1), added to the residual (1) and normalised by its root mean square (4)."""
    return vector(6 * input.numel, input, residual_in, residual_out, out, weight)


@op(*_names(aiter="all_gather_reg"), order="context input output ...")
@op(*_names(aiter="all_gather_unreg"), order="context input buffer output ...")
@op(*_names(symm_mem="multimem_all_gather_out"), order="input group output")
@op(*_names(sglang="reg_all_gather_into_tensor"), order="output input ...")
def all_gather_into(input: TensorSpec, output: TensorSpec) -> Cost:
    return copy_cost(input, output)


@op(*_names(aiter="reduce_scatter"), order="context input output ...")
@op(*_names(symm_mem="reduce_scatter_out"), order="input group split_last_dim output")
@op(*_names(functional="reduce_scatter_tensor_out"), order="input reduce_op group_size group output")
def reduce_scatter_into(input: TensorSpec, output: TensorSpec) -> Cost:
    return vector(input.numel, input, output)


@op(*_names(functional="all_to_all_single", nccl="all_to_all all_to_allv", c10d_functional="all_to_all_single"))
def all_to_all(tensor: list[TensorSpec], *options: object, **more: object) -> Cost:
    """As much comes in as goes out."""
    found = _recorded(tensor)
    return copy_cost(found, found)


@op(*_names(functional="all_gather_into_tensor all_gather_into_tensor_out all_gather_into_tensor_coalesced"),
    order="input group_size ...")  # fmt: skip
@op(*_names(c10d_functional="all_gather_into_tensor all_gather_into_tensor_coalesced"), order="input tag ranks group_size")
@op(*_names(vllm="all_gather"), order="input dim group_size ...")
def functional_all_gather(input: object, group_size: object) -> Cost:
    """The input is a tensor or a list of them."""
    found = _recorded(input)
    return copy_cost(found, found * need(group_size, "group_size"))


@op(*_names(functional="reduce_scatter_tensor reduce_scatter_tensor_coalesced"), order="input reduce_op group_size ...")
@op(
    *_names(c10d_functional="reduce_scatter_tensor reduce_scatter_tensor_coalesced"),
    order="input reduce_op tag ranks group_size",
)
@op(*_names(vllm="reduce_scatter"), order="input dim group_size ...")
def functional_reduce_scatter(input: object, group_size: object) -> Cost:
    found, ranks = _recorded(input), need(group_size, "group_size")
    return vector(sum(t.numel for t in found), found, [spec((t.numel // ranks,), t.dtype) for t in found])


@op(
    *_names(torch="barrier monitored_barrier", c10d="barrier", functional="wait_tensor", c10d_functional="wait_tensor"),
    kind="structural",
)
def barrier(*options: object, **more: object) -> Cost:
    return Cost(0, 0, 0)


@op(*_names(nccl="all_gather _all_gather_base reduce_scatter _reduce_scatter_base gather scatter"), order="tensor[] ...")
def nccl_gather(tensor: list[TensorSpec], input: object = None, output: object = None, **facts: object) -> Cost:
    """Bytes in or out depend on the number of ranks: known only where torch's own record is around it."""
    return Cost(0, 0, None if input is None or output is None else nbytes(input, output))
