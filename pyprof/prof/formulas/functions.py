"""torch.autograd.Functions of training libraries, by their classes' names: Liger, apex, Transformer Engine, DeepSpeed.

torch.profiler records the arguments of `Function.apply` in the order of `forward`, without its context; the kernels inside are
launched from no op of the dispatcher. Costs are those of torch's own ops of the same meaning, backward included; where a
release has copies of a weight among its arguments, sizes tell what is what. Signatures: linkedin/Liger-Kernel
(src/liger_kernel/ops), NVIDIA/apex (apex/normalization, apex/transformer, apex/contrib), NVIDIA/TransformerEngine
(transformer_engine/pytorch/module).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, need, opt, product, spec, vector, wants
from pyprof.prof.formulas.attention import Heads
from pyprof.prof.formulas.gemm import linear, product_cost
from pyprof.prof.formulas.loss import cross_entropy
from pyprof.prof.formulas.norm import group_norm, layer_norm, rms_norm
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, forward, op
from pyprof.prof.formulas.softmax import softmax

_ROTATION = 3  # 4 multiplications and 2 additions a pair


def _names(*classes: str) -> list[str]:
    return [f"autograd::{name}" for name in classes]


# ---------------------------------------------------------------------------------------------- norms


@op(*_names("LigerRMSNormFunction", "FastRMSNormFunction"), order="input weight ...")
@op(*_names("FusedRMSNormAffineFunction", "FusedRMSNormAffineMixedDtypesFunction"), order="input weight normalized_shape ...")
def rms(input: TensorSpec, weight: TensorSpec) -> Op:
    return rms_norm(input, list(weight.shape), weight)


@op(*_names("FusedRMSNormFunction"), order="input normalized_shape ...")
def rms_without_weight(input: TensorSpec, normalized_shape: object) -> Op:
    return rms_norm(input, need(normalized_shape, "normalized_shape"))


@op(*_names("LigerLayerNormFunction", "FastLayerNormFN"), order="input weight bias ...")
@op(*_names("FusedLayerNormAffineFunction", "FusedLayerNormAffineMixedDtypesFunction"),
    order="input weight bias normalized_shape ...")  # fmt: skip
def layer(input: TensorSpec, weight: TensorSpec, bias: object = None) -> Op:
    return layer_norm(input, list(weight.shape), weight, bias)


@op(*_names("FusedLayerNormFunction"), order="input normalized_shape ...")
def layer_without_weight(input: TensorSpec, normalized_shape: object) -> Op:
    return layer_norm(input, need(normalized_shape, "normalized_shape"))


@op(*_names("LigerGroupNormFunction"), order="input weight bias channels groups ...")
def groups(input: TensorSpec, weight: TensorSpec, bias: object, groups: object) -> Op:
    return group_norm(input, need(groups, "groups"), weight, bias)


@op(*_names("LigerFusedAddRMSNormFunction"), order="input residual weight ...")
def add_rms(input: TensorSpec, residual: TensorSpec, weight: TensorSpec) -> Op:
    """The sum is kept beside its norm, and has a gradient of its own, which is added to the norm's."""
    made = rms_norm(input, list(weight.shape), weight)
    own = forward(made)
    yield _added(own, input.numel, residual, gradient(residual))
    for piece in made:
        if isinstance(piece, Piece):
            yield piece._replace(cost=_added(piece.cost, input.numel, residual))


def _added(cost: Cost, operations: int, *tensors: object) -> Cost:
    moved = nbytes(*tensors)
    known = cost.bytes is not None and moved is not None
    return Cost(0, (cost.vector_flops or 0) + operations, (cost.bytes or 0) + (moved or 0) if known else None)


# ---------------------------------------------------------------------------------------------- activations, softmax, positions


def _declare_gate(name: str, weight: int, back: int) -> None:
    @op(*_names(name), order="a b ...")
    def gate(a: TensorSpec, b: TensorSpec) -> Op:
        """activation(a)·b; backward makes both gradients, the activation again."""
        yield vector((weight + 1) * a.numel, a, b, gradient(a))
        if wants(a) or wants(b):
            yield Piece("gate", vector((back + weight + 2) * a.numel, gradient(a), a, b, gradient(a), gradient(b)))


_declare_gate("LigerSiLUMulFunction", 5, 9)
_declare_gate("LigerGELUMulFunction", 9, 20)


@op(*_names("ScaledUpperTriangMaskedSoftmax", "ScaledSoftmax"), order="input scale ...")
@op(*_names("ScaledMaskedSoftmax", "GenericScaledMaskedSoftmax"), order="input mask scale ...")
def scaled_softmax(input: TensorSpec, mask: object = None) -> Op:
    """Each score is scaled, and with a mask selected, first."""
    given = opt(mask)
    made = softmax(input)
    own = forward(made)
    yield _added(own, (1 + (given is not None)) * input.numel, given)
    for piece in made:
        if isinstance(piece, Piece):
            yield piece._replace(cost=_added(piece.cost, input.numel))


@op(*_names("LigerSoftmaxFunction"), order="input ...")
def liger_softmax(input: TensorSpec) -> Op:
    return softmax(input)


@op(*_names("FusedRoPEFunc"), order="input freqs ...")
def rope(input: TensorSpec, freqs: TensorSpec) -> Op:
    return _rope([input], freqs)


@op(*_names("FusedRoPECachedFunc"), order="input cos sin ...")
def rope_cached(input: TensorSpec, cos: TensorSpec, sin: TensorSpec) -> Op:
    return _rope([input], cos, sin)


@op(*_names("LigerRopeFunction"), order="q k cos sin ...")
def rope_of_both(q: TensorSpec, k: TensorSpec, cos: TensorSpec, sin: TensorSpec) -> Op:
    return _rope([q, k], cos, sin)


def _rope(tensors: list[TensorSpec], *tables: TensorSpec) -> Op:
    cost = vector(_ROTATION * sum(t.numel for t in tensors), tensors, [gradient(t) for t in tensors], tables)
    yield cost
    if any(map(wants, tensors)):
        yield Piece("rope", cost)


@op(*_names("LigerCrossEntropyFunction"), order="input target ...")
@op(*_names("SoftmaxCrossEntropyLoss", "CrossEntropyFunction"), order="input target ...")
def fused_cross_entropy(input: TensorSpec, target: TensorSpec) -> Op:
    return cross_entropy(_rows(input), spec((target.numel,), target.dtype))


def _rows(t: TensorSpec) -> TensorSpec:
    """As a matrix of its last dimension."""
    return spec((product(t.shape[:-1]), t.shape[-1]), t.dtype)


# ---------------------------------------------------------------------------------------------- matrix products


def _tensors(args: tuple[object, ...], count: int) -> list[TensorSpec]:
    """Tensors with at least two dimensions among the first arguments."""
    return [arg for arg in args[:count] if isinstance(arg, TensorSpec) and len(arg.shape) > 1]


def _without_bias(input: TensorSpec, weight: TensorSpec, bias: object = None) -> Op:
    """A linear layer whose gradients are computed input's first, as these libraries do with a bias and without."""
    made = linear(input, weight, bias)
    yield forward(made)
    pieces = [piece for piece in made if isinstance(piece, Piece)]
    yield from sorted(pieces, key=lambda piece: ("dgrad", "wgrad", "bias").index(piece.name))


@op(*_names("_Linear"), order="", kind="matmul")
def te_linear(*args: object) -> Op:
    """(weight, its copies in fp8 or none, input, bias, ...): the input is the last of the first four of the weight's depth."""
    found = _tensors(args, 4)
    fits = [t for t in found[1:] if t.shape[-1] == found[0].shape[-1]]
    if not fits:
        raise Missing("input and weight not recorded")
    return _without_bias(fits[-1], found[0], _bias(args, found[0].shape[0]))


def _bias(args: tuple[object, ...], size: int) -> TensorSpec | None:
    return next((arg for arg in args[1:8] if isinstance(arg, TensorSpec) and arg.shape == (size,)), None)


@op(*_names("_LayerNormLinear"), order="input ln_weight ln_bias weight ...", kind="matmul")
def te_norm_linear(input: TensorSpec, ln_weight: TensorSpec, weight: TensorSpec, ln_bias: object = None) -> Op:
    """A norm, of layers where it has a bias, else by the root mean square; then a linear layer."""
    normalise = layer(input, ln_weight, ln_bias) if opt(ln_bias) is not None else rms(input, ln_weight)
    made = _without_bias(input, weight)
    yield _together(forward(made), forward(normalise))
    yield from _pieces(made, normalise)


@op(*_names("_LayerNormMLP"), order="", kind="matmul")
def te_norm_mlp(*args: object) -> Op:
    """(input, ln_weight, ln_bias, fc1_weight, ..., fc2_weight, ...): the second weight is the next that has the first one's
    depth as its rows, and its rows or, with a gate, half of them as its depth. The activation between them is not counted."""
    input, ln_weight, ln_bias, first = (opt(arg) for arg in args[:4])
    if input is None or ln_weight is None or first is None or len(first.shape) != 2:
        raise Missing("input and weights not recorded")
    rows, depth = first.shape
    second = next((t for t in _tensors(args[4:], 16) if t.shape in ((depth, rows), (depth, rows // 2))), None)
    if second is None:
        raise Missing("the weight of the second layer is not recorded")
    normalise = layer(input, ln_weight, ln_bias) if ln_bias is not None else rms(input, ln_weight)
    inner = spec((*input.shape[:-1], second.shape[1]), input.dtype)
    up, down = _without_bias(input, first), _without_bias(inner, second)
    both = [forward(up), forward(down)]
    moved = nbytes(input, first, second, ln_weight, ln_bias, gradient(input))
    flops = sum(cost.matmul_flops or 0 for cost in both)
    yield Cost(flops, forward(normalise).vector_flops, moved, None, 1, None, both[0].operands)
    yield from _pieces(down, up, normalise)


def _together(main: Cost, beside: Cost) -> Cost:
    known = main.bytes is not None and beside.bytes is not None
    return Cost(main.matmul_flops, beside.vector_flops, (main.bytes or 0) + (beside.bytes or 0) if known else None, main.mnk,
                main.batch, main.params, main.operands)  # fmt: skip


def _pieces(*made: Op) -> Iterator[Piece]:
    for each in made:
        yield from (piece for piece in each if isinstance(piece, Piece))


@op(*_names("FusedDenseFunc"), order="input weight bias ...", kind="matmul")
@op(*_names("DenseNoBiasFunc", "LinearFunctionForZeroStage3"), order="input weight bias ...", kind="matmul", composed=True)
def dense(input: TensorSpec, weight: TensorSpec, bias: object = None) -> Op:
    return _without_bias(input, weight, opt(bias))


@op(*_names("_GroupedLinear"), order="", kind="matmul")
def te_grouped_linear(*args: object) -> Op:
    """(input, ..., a weight (N, K) and perhaps a bias an expert): each row is multiplied with one expert's weight."""
    input = opt(args[0]) if args else None
    weights = [arg for arg in _tensors(args[1:], len(args)) if input is not None and arg.shape[-1] == input.shape[-1]]
    if input is None or not weights or len({weight.shape for weight in weights}) != 1 or len(weights[0].shape) != 2:
        raise Missing("input and weights not recorded")
    (columns, depth), rows = weights[0].shape, product(input.shape[:-1])
    biases = [arg for arg in args[1:] if isinstance(arg, TensorSpec) and arg.shape == (columns,)]
    made = spec((*input.shape[:-1], columns), input.dtype)
    yield product_cost(rows, columns, depth, input, weights, biases, made, dtype=input.dtype)
    yield Piece("dgrad", product_cost(rows, depth, columns, made, weights, gradient(input), dtype=input.dtype))
    yield Piece("wgrad", product_cost(columns, depth, rows, made, input, [*map(gradient, weights)], dtype=input.dtype))


@op(*_names("FusedAttnFunc"), kind="matmul",
    order="training max_q max_k cu_q cu_k cu_q_padded cu_k_padded page_table_k page_table_v q k v ...")  # fmt: skip
def te_attention(q: TensorSpec, k: TensorSpec, v: TensorSpec, max_k: object = None) -> Op:
    """Layout and mask are texts, which are not recorded: at most all pairs with the longest sequence."""
    longest = max_k if isinstance(max_k, int) else max(k.shape[:2]) if len(k.shape) == 4 else None
    if longest is None:
        raise Missing("the longest sequence is not recorded")
    rows = product(q.shape[:-1])
    heads = Heads(q, k, v, longest, (rows, 1, longest))
    text = f"rows={rows},Sk={longest},D={q.shape[-1]},at-most"
    yield replace(heads.forward(), params=text, batch=1, bound="upper")
    for piece in heads.piece():
        yield piece._replace(cost=replace(piece.cost, params=text, batch=1, bound="upper"))


@op(*_names("EvoformerFusedAttention"), order="q k v bias_1 bias_2 ...", kind="matmul")
def evoformer(q: TensorSpec, k: TensorSpec, v: TensorSpec, bias_1: object = None, bias_2: object = None) -> Op:
    """DeepSpeed's, of (B, N, L, H, D): every query sees all keys of its row."""
    queries, keys, heads = q.shape[-3], k.shape[-3], product(q.shape[:-3]) * q.shape[-2]
    made = Heads(q, k, v, queries * keys, (heads, queries, keys))
    yield made.forward(opt(bias_1), opt(bias_2))
    yield from made.piece(opt(bias_1), opt(bias_2))
