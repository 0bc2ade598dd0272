"""State space models: Mamba's selective scan, Mamba 2's scan by chunks, and the short causal convolution before them.

A selective scan of N states a channel is, a channel and a step: exp(dt·A) 2, dt·B·u 2, the state 2, its product with C 2: 8·N.
By chunks of Q steps (state space duality) the same is products of matrices; a step of a head of size P, with N states shared by
a group of heads: the products of C and B with what the causal mask leaves of a chunk, (Q + 1)/2 steps, 2·N a group; theirs with
the inputs 2·P a head; the chunk's states and what comes from the states before it 2·N·P each. A causal convolution of width W
is 2·W a value. Backward: two products for each of the forward's, what is computed again not counted. Signatures:
state-spaces/mamba (mamba_ssm/ops), Dao-AILab/causal-conv1d, vllm-project/vllm (csrc).
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, need, opt, product, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op

_A_STATE, _SILU = 8, 5  # operations


def _twice(cost: Cost, *moved: object) -> Cost:
    return Cost(2 * (cost.matmul_flops or 0), 2 * (cost.vector_flops or 0), nbytes(*moved))


# ---------------------------------------------------------------------------------------------- selective scan


@op("autograd::SelectiveScanFn", order="u delta A B C D z delta_bias ...")
def selective_scan(
    u: TensorSpec, delta: TensorSpec, A: TensorSpec, B: TensorSpec, C: TensorSpec, D: object = None, z: object = None,
    delta_bias: object = None,
) -> Op:  # fmt: skip
    tensors = (u, delta, A, B, C, opt(D), opt(z), opt(delta_bias))
    cost = _selective(u, A, opt(D), opt(z), *tensors, gradient(u))
    yield cost
    if wants(u):
        written = [gradient(t) for t in tensors if t is not None]
        yield Piece("scan", _twice(cost, tensors, gradient(u), written))


@op("_C::selective_scan_fwd", order="u delta A B C D z delta_bias delta_softplus query_start_loc cache_indices "
    "has_initial_state ssm_states ...")  # fmt: skip
def selective_scan_in_place(
    u: TensorSpec, delta: TensorSpec, A: TensorSpec, B: TensorSpec, C: TensorSpec, ssm_states: TensorSpec, D: object = None,
    z: object = None, query_start_loc: object = None,
) -> Cost:  # fmt: skip
    """The result replaces delta's values; the state of each sequence is read and written."""
    offsets = opt(query_start_loc)
    sequences = offsets.numel - 1 if offsets is not None else u.shape[0]
    states = spec((min(sequences, ssm_states.shape[0]), *ssm_states.shape[1:]), ssm_states.dtype)
    return _selective(u, A, opt(D), opt(z), u, delta, gradient(delta), A, B, C, opt(D), opt(z), states, states)


def _selective(u: TensorSpec, A: TensorSpec, D: object, z: object, *moved: object) -> Cost:
    """Selective scan; beside the states, per value: dt·u (shared by them), the skip D·u (2), the gate silu(z) and a product."""
    more = 2 * (D is not None) + (_SILU + 1) * (z is not None)
    return vector((_A_STATE * A.shape[-1] + more) * u.numel, *moved)


# ---------------------------------------------------------------------------------------------- scan by chunks


def _chunked(steps: int, chunk: int, heads: int, size: int, groups: int, states: int) -> int:
    """Operations of so many steps of all sequences."""
    seen = chunk + 1  # twice the steps that one sees of its chunk, itself included
    return steps * (groups * seen * states + heads * seen * size + 4 * heads * states * size)


@op("autograd::MambaChunkScanCombinedFn", order="x dt A B C chunk_size D z dt_bias ...", kind="matmul")
def chunk_scan(
    x: TensorSpec, dt: TensorSpec, A: TensorSpec, B: TensorSpec, C: TensorSpec, chunk_size: object, D: object = None,
    z: object = None,
) -> Op:  # fmt: skip
    """x: (batch, length, heads, size); B, C: (batch, length, groups, states)."""
    heads, size, (groups, states) = x.shape[-2], x.shape[-1], B.shape[-2:]
    flops = _chunked(product(x.shape[:-2]), need(chunk_size, "chunk_size"), heads, size, groups, states)
    tensors = [t for t in (x, dt, A, B, C, opt(D), opt(z)) if t is not None]
    text = f"H={heads},P={size},G={groups},N={states},Q={chunk_size}"
    yield Cost(flops, 0, nbytes(tensors, gradient(x)), None, 1, text, x.dtype)
    if wants(x):
        yield Piece("scan", Cost(2 * flops, 0, nbytes(tensors, gradient(x), [gradient(t) for t in tensors]), operands=x.dtype))


@op("autograd::MambaSplitConv1dScanCombinedFn", kind="matmul",
    order="zxbcdt conv1d_weight conv1d_bias dt_bias A D chunk_size initial_states seq_idx dt_limit return_final_states "
    "activation rmsnorm_weight rmsnorm_eps outproj_weight outproj_bias headdim ngroups norm_before_gate")  # fmt: skip
def mamba_2(
    zxbcdt: TensorSpec, conv1d_weight: TensorSpec, dt_bias: TensorSpec, chunk_size: object, conv1d_bias: object = None,
    rmsnorm_weight: object = None, outproj_weight: object = None, ngroups: object = UNKNOWN,
) -> Op:  # fmt: skip
    """Convolution, scan, gate with norm, and projection of (batch, length, 2·inner + 2·groups·states + heads)."""
    steps, width = product(zxbcdt.shape[:-1]), zxbcdt.shape[-1]
    heads, channels = dt_bias.numel, conv1d_weight.shape[0]
    inner, groups = width - heads - channels, need(ngroups, "ngroups")
    if inner <= 0 or (channels - inner) % (2 * groups) or inner % heads:
        raise Missing(f"sizes of {list(zxbcdt.shape)} and {list(conv1d_weight.shape)} do not fit")
    states = (channels - inner) // (2 * groups)
    norm, projection = opt(rmsnorm_weight), opt(outproj_weight)
    flops = _chunked(steps, need(chunk_size, "chunk_size"), heads, inner // heads, groups, states)
    columns = projection.shape[0] if projection is not None else inner
    flops += 2 * steps * inner * columns if projection is not None else 0
    operations = steps * (channels * (2 * conv1d_weight.shape[-1] + _SILU) + inner * (_SILU + 1 + 4 * (norm is not None)))
    tensors = [t for t in (zxbcdt, conv1d_weight, opt(conv1d_bias), dt_bias, norm, projection) if t is not None]
    made = spec((steps, columns), zxbcdt.dtype)
    text = f"H={heads},P={inner // heads},G={groups},N={states},Q={chunk_size}"
    yield Cost(flops, operations, nbytes(tensors, made), None, 1, text, zxbcdt.dtype)
    if wants(zxbcdt):
        moved = nbytes(tensors, made, [gradient(t) for t in tensors])
        yield Piece("scan", Cost(2 * flops, 2 * operations, moved, operands=zxbcdt.dtype))


# ---------------------------------------------------------------------------------------------- causal convolution


def _causal_conv(x: TensorSpec, weight: TensorSpec, bias: object, silu: object, *more: object) -> Cost:
    """One filter a channel, on the CUDA cores."""
    operations = 2 * weight.shape[-1] + (_SILU if need(silu, "activation") else 0)
    return vector(operations * x.numel, x, weight, opt(bias), more)


@op("DaoAILab::_causal_conv1d_fwd_cpp", order="x weight bias seq_idx initial_states out final_states_out silu_activation")
def causal_conv1d(
    x: TensorSpec, weight: TensorSpec, out: TensorSpec, bias: object = None, seq_idx: object = None,
    initial_states: object = None, final_states_out: object = None, silu_activation: object = False,
) -> Cost:  # fmt: skip
    return _causal_conv(x, weight, bias, silu_activation, out, opt(seq_idx), opt(initial_states), opt(final_states_out))


@op("DaoAILab::_causal_conv1d_bwd_cpp",
    order="x weight bias dout seq_idx initial_states dfinal_states dx dweight dbias dinitial_states "
    "silu_activation")  # fmt: skip
def causal_conv1d_backward(
    x: TensorSpec, weight: TensorSpec, dout: TensorSpec, dx: TensorSpec, dweight: TensorSpec, bias: object = None,
    dbias: object = None, silu_activation: object = False,
) -> Cost:  # fmt: skip
    one = _causal_conv(x, weight, bias, silu_activation)
    return _twice(one, x, weight, opt(bias), dout, dx, dweight, opt(dbias))


@op("autograd::CausalConv1dFn", order="x weight bias ...", composed=True)
def causal_conv1d_function(x: TensorSpec, weight: TensorSpec, bias: object = None) -> Cost:
    raise Missing("the activation is not recorded")
