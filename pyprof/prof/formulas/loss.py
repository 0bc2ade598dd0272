"""Losses: a table for those that compare two tensors element by element, a formula each for the others.

Bytes: prediction, target and weight once, and the result: one number, or an element each where reduction is 'none'. The
backward reads them again and writes the prediction's gradient. reduction is a word in torch.nn.functional and 0, 1, 2 (none,
mean, sum) in the dispatcher.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import broadcast, grad, gradient, need, opt, product, promote, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Op, Piece, op
from pyprof.prof.formulas.softmax import LOG_SOFTMAX_BACKWARD_OPERATIONS, SOFTMAX_OPERATIONS


def _is_each(reduction: object, reduce: object = None) -> bool:
    """Whether the result is an element each, not their sum or mean."""
    return reduction == "none" or (reduction == 0 and reduction is not False) or reduce is False


def _elementwise(forward: int, back: int, each: bool, input: object, target: object, *weights: object) -> Op:
    """A loss of so many operations an element, forward without the sum and backward."""
    found = [t for t in (input, target, *weights) if isinstance(t, TensorSpec)]
    shape = broadcast(*(t.shape for t in found))
    made = spec(shape if each else (), promote(*found[:2]))
    # A weight is a multiplication, and the sum one addition, of each element.
    weighted = sum(isinstance(w, TensorSpec) for w in weights)
    yield vector((forward + weighted + (not each)) * product(shape), found, made)
    for name, x in (("input", input), ("target", target)):
        yield from grad(name, x, back * product(shape), made, found)


# op: (operations forward without the sum, operations backward)
_LOSSES = {
    "mse_loss": (2, 3),  # subtract, square; 2·(x - y)·g
    "l1_loss": (2, 3),
    "smooth_l1_loss": (5, 5),
    "huber_loss": (5, 5),
    "soft_margin_loss": (5, 6),  # log(1 + exp(-y·x))
    "kl_div": (4, 2),  # y·(log y - x)
    "poisson_nll_loss": (3, 3),  # exp(x) - y·x
    "hinge_embedding_loss": (4, 3),
}
_WITH_BACKWARD = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"})  # as an op of the dispatcher


def _declare(name: str, weight: int, back: int) -> None:
    @op(name, places="tFa")
    def loss(input: object, target: object, reduction: object = "mean", reduce: object = None) -> Op:
        return _elementwise(weight, back, _is_each(reduction, reduce), input, target)

    @op(*(f"aten::{name}_backward" for name in _WITH_BACKWARD.intersection([name])))
    def loss_backward(grad_output: TensorSpec, input: TensorSpec, target: TensorSpec) -> Cost:
        return vector(back * input.numel, grad_output, input, target, gradient(input))


for _name, _row in _LOSSES.items():
    _declare(_name, *_row)


# ---------------------------------------------------------------------------------------------- binary cross entropy

_CROSS_ENTROPY_BACKWARD = 4


@op("binary_cross_entropy", places="Fa")
def binary_cross_entropy(
    input: TensorSpec, target: TensorSpec, weight: object = None, reduction: object = "mean", reduce: object = None
) -> Op:
    # y·log x + (1 - y)·log(1 - x)
    return _elementwise(7, _CROSS_ENTROPY_BACKWARD, _is_each(reduction, reduce), input, target, weight)


@op("aten::binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    grad_output: TensorSpec, input: TensorSpec, target: TensorSpec, weight: object = None
) -> Cost:
    operations = _CROSS_ENTROPY_BACKWARD * input.numel
    return vector(operations, grad_output, input, target, opt(weight), gradient(input))


@op("binary_cross_entropy_with_logits", places="tFa")
def binary_cross_entropy_with_logits(
    input: TensorSpec, target: TensorSpec, weight: object = None, pos_weight: object = None, reduction: object = "mean",
    reduce: object = None,
) -> Op:  # fmt: skip
    # The stable form on logits.
    return _elementwise(9, 6, _is_each(reduction, reduce), input, target, weight, pos_weight)


# ---------------------------------------------------------------------------------------------- classification


@op("nll_loss", "nll_loss2d", "nll_loss_nd", "aten::nll_loss_forward", "aten::nll_loss2d_forward", places="Fa")
def nll_loss(
    input: TensorSpec, target: TensorSpec, weight: object = None, reduction: object = "mean", reduce: object = None
) -> Op:
    # The element of each row that the target names: one multiplication and one addition a row.
    rows = target.numel
    made = spec(target.shape if _is_each(reduction, reduce) else (), input.dtype)
    yield vector(2 * rows, spec((rows,), input.dtype), target, opt(weight), made)
    yield from grad("input", input, rows, target, opt(weight))


@op("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(
    grad_output: object, input: TensorSpec, target: TensorSpec, weight: object = None, total_weight: object = None
) -> Cost:
    return vector(target.numel, opt(grad_output), target, opt(weight), opt(total_weight), gradient(input))


@op("cross_entropy", "cross_entropy_loss", "aten::cross_entropy_loss", places="F")
def cross_entropy(
    input: TensorSpec, target: TensorSpec, weight: object = None, reduction: object = "mean", label_smoothing: object = 0.0,
    reduce: object = None,
) -> Op:  # fmt: skip
    # log_softmax of each element, then the target's element of each row; with classes as probabilities, or smoothed, a product
    # with each element and its sum. The log-probabilities stay within the op, though autograd keeps them.
    spread = target.shape == input.shape or (isinstance(label_smoothing, float) and label_smoothing > 0)
    rows = input.numel // max(input.shape[1 if len(input.shape) > 1 else 0], 1)
    operations = SOFTMAX_OPERATIONS * input.numel + (2 * input.numel if spread else 2 * rows)
    made = spec((rows,) if _is_each(reduction, reduce) else (), input.dtype)
    yield vector(operations, input, target, opt(weight), made)
    # nll_loss_backward writes the gradient of the log-probabilities, _log_softmax_backward_data makes the input's of it.
    yield from grad("nll_loss", input, target.numel, target, opt(weight))
    same = gradient(input)
    yield from grad("log_softmax", input, LOG_SOFTMAX_BACKWARD_OPERATIONS * input.numel, same, same)


@op("multi_margin_loss", places="Fa")
def multi_margin_loss(input: TensorSpec, target: TensorSpec) -> Op:
    number = spec((), input.dtype)
    yield vector(5 * input.numel, input, target, number)
    if wants(input):
        yield Piece("input", multi_margin_loss_backward(number, input, target))


@op("aten::multi_margin_loss_backward")
def multi_margin_loss_backward(grad_output: TensorSpec, input: TensorSpec, target: TensorSpec, weight: object = None) -> Cost:
    return vector(5 * input.numel, grad_output, input, target, opt(weight), gradient(input))


def _label_comparisons(input: TensorSpec) -> int:
    """Operations of the multilabel margin loss: each label is compared with each class."""
    return 4 * input.numel * (input.shape[-1] if input.shape else 1)


@op("multilabel_margin_loss", places="tFa")
def multilabel_margin_loss(input: TensorSpec, target: TensorSpec) -> Cost:
    return vector(_label_comparisons(input), input, target, spec((), input.dtype))


@op("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(input: TensorSpec, target: TensorSpec, reduction: object = "mean") -> Cost:
    # It returns which classes are labels, too.
    each = len(input.shape) > 1 and _is_each(reduction)
    written = (spec(input.shape[:1] if each else (), input.dtype), spec(target.shape, input.dtype))
    return vector(_label_comparisons(input), input, target, written)


@op("aten::multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    grad_output: TensorSpec, input: TensorSpec, target: TensorSpec, is_target: TensorSpec
) -> Cost:
    return vector(_label_comparisons(input), grad_output, input, target, is_target, gradient(input))


# ---------------------------------------------------------------------------------------------- pairs and triplets


@op("margin_ranking_loss", places="tFa")
def margin_ranking_loss(input1: TensorSpec, input2: TensorSpec, target: TensorSpec) -> Cost:
    shape = broadcast(input1.shape, input2.shape, target.shape)
    return vector(6 * product(shape), input1, input2, target, spec((), input1.dtype))


@op("cosine_embedding_loss", places="tFa")
def cosine_embedding_loss(input1: TensorSpec, input2: TensorSpec, target: TensorSpec) -> Cost:
    return vector(6 * input1.numel, input1, input2, target, spec((), input1.dtype))


@op("triplet_margin_loss", places="tFa")
def triplet_margin_loss(anchor: TensorSpec, positive: TensorSpec, negative: TensorSpec) -> Cost:
    return vector(8 * anchor.numel, anchor, positive, negative, spec((), anchor.dtype))


# ---------------------------------------------------------------------------------------------- sequences


@op("_cudnn_ctc_loss", "miopen_ctc_loss", places="ta", backward=False)
@op("ctc_loss", "torch._ctc_loss", "aten::_ctc_loss", places="tFa")
def ctc_loss(log_probs: TensorSpec, targets: TensorSpec, input_lengths: object = None, target_lengths: object = None) -> Op:
    # Forward variables over time and the target with blanks between: 3 additions and logs each of (T, N, 2·L + 1), L being the
    # longest target where the lengths are numbers, else as long as targets are stored.
    time, count = log_probs.shape[0], log_probs.shape[1] if len(log_probs.shape) > 2 else 1
    longest = targets.shape[-1] if len(targets.shape) > 1 else targets.numel // max(count, 1)
    if isinstance(target_lengths, (list, tuple)) and target_lengths:
        longest = max(need(n, "target_lengths") for n in target_lengths)
    states = time * count * (2 * longest + 1)
    read = (log_probs, targets, opt(input_lengths), opt(target_lengths))
    yield vector(6 * states, read, spec((states + count,), log_probs.dtype))
    if wants(log_probs):
        losses, alphas = spec((count,), log_probs.dtype), spec((states,), log_probs.dtype)
        back = ctc_loss_backward(losses, log_probs, targets, input_lengths, target_lengths, losses, alphas)
        yield Piece("input", back)


@op("aten::_ctc_loss_backward")
def ctc_loss_backward(
    grad: TensorSpec, log_probs: TensorSpec, targets: TensorSpec, input_lengths: object, target_lengths: object,
    neg_log_likelihood: TensorSpec, log_alpha: TensorSpec,
) -> Cost:  # fmt: skip
    # Backward variables as the forward ones, 6 a state; alpha·beta added into its symbol 3; exp, subtract and scale 4 an
    # element.
    read = (grad, log_probs, targets, opt(input_lengths), opt(target_lengths), neg_log_likelihood, log_alpha)
    return vector(9 * log_alpha.numel + 4 * log_probs.numel, read, gradient(log_probs))
