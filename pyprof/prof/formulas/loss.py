"""Losses. One line of the table for those that compare two tensors element by element; the others have a formula each.

Bytes: prediction, target and weight once, and the result: one number, or an element each where reduction is 'none'. The
backward reads them again and writes the prediction's gradient. reduction is a word in torch.nn.functional and 0, 1, 2 (none,
mean, sum) in the dispatcher.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import broadcast, gradient, nbytes, need, opt, product, promote, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Piece, backward, formula
from pyprof.prof.formulas.softmax import LOG_SOFTMAX_BACKWARD_OPERATIONS, SOFTMAX_OPERATIONS

__all__: list[str] = []


def _is_none(reduction: Any, reduce: Any = None) -> bool:
    return reduction == "none" or (reduction == 0 and reduction is not UNKNOWN and reduction is not False) or reduce is False


def _final(shape: tuple[int, ...], each: bool) -> tuple[int, ...]:
    return shape if each else ()


def _pointwise_loss(weight: int, each: bool, *tensors: Any) -> Cost:
    found = [t for t in tensors if isinstance(t, TensorSpec)]
    shape = broadcast(*(t.shape for t in found))
    count = product(shape)
    # The sum over the elements is one operation more of each.
    return vector((weight + (not each)) * count, found, spec(_final(shape, each), promote(*found[:2])))


def _pointwise_backward(weight: int, each: bool, input: Any, target: Any, *more: Any) -> tuple[Piece, ...]:
    shape = broadcast(*(t.shape for t in (input, target) if isinstance(t, TensorSpec)))
    incoming = spec(_final(shape, each), promote(input, target))
    return tuple(
        Piece(name, vector(weight * product(shape), incoming, input, target, *map(opt, more), gradient(x)))
        for name, x in (("input", input), ("target", target))
        if wants(x)
    )


# op: (operations forward without the sum, operations backward)
_LOSSES = {
    "mse_loss": (2, 3),  # subtract, square; 2·(x - y)·g
    "l1_loss": (2, 3),
    "smooth_l1_loss": (5, 5),
    "soft_margin_loss": (5, 6),  # log(1 + exp(-y·x))
    "kl_div": (4, 2),  # y·(log y - x)
}


def _register(op: str, weight: int, back: int) -> None:
    def functional(
        input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: Any = "mean", **more: Any
    ) -> Cost:
        return _pointwise_loss(weight, _is_none(reduction, reduce), input, target)

    def functional_back(
        input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: Any = "mean", **more: Any
    ) -> tuple[Piece, ...]:
        return _pointwise_backward(back, _is_none(reduction, reduce), input, target)

    def aten(input: Any, target: Any, reduction: Any = 1, *more: Any, **options: Any) -> Cost:
        return _pointwise_loss(weight, _is_none(reduction), input, target)

    def aten_back(input: Any, target: Any, reduction: Any = 1, *more: Any, **options: Any) -> tuple[Piece, ...]:
        return _pointwise_backward(back, _is_none(reduction), input, target)

    functional.__qualname__ = aten.__qualname__ = op
    formula(f"torch.nn.functional.{op}")(functional)
    backward(f"torch.nn.functional.{op}")(functional_back)
    formula(f"aten::{op}", f"torch.{op}")(aten)
    backward(f"aten::{op}", f"torch.{op}")(aten_back)


for _op, _row in _LOSSES.items():
    _register(_op, *_row)


# op: (operations forward, backward, place of `reduction` among the options in torch.nn.functional and in the dispatcher)
_WITH_OPTIONS = {
    "huber_loss": (5, 5, 0, 0),
    "poisson_nll_loss": (3, 3, 5, 3),  # exp(x) - y·x
    "hinge_embedding_loss": (4, 3, 3, 1),
}


def _register_with_options(op: str, weight: int, back: int, functional_place: int, aten_place: int) -> None:
    def _reduction(options: tuple[Any, ...], more: dict[str, Any], place: int, default: Any) -> Any:
        return more.get("reduction", options[place] if len(options) > place else default)

    def functional(input: Any, target: Any, *options: Any, **more: Any) -> Cost:
        return _pointwise_loss(weight, _is_none(_reduction(options, more, functional_place, "mean")), input, target)

    def functional_back(input: Any, target: Any, *options: Any, **more: Any) -> tuple[Piece, ...]:
        return _pointwise_backward(back, _is_none(_reduction(options, more, functional_place, "mean")), input, target)

    def aten(input: Any, target: Any, *options: Any, **more: Any) -> Cost:
        return _pointwise_loss(weight, _is_none(_reduction(options, more, aten_place, 1)), input, target)

    def aten_back(input: Any, target: Any, *options: Any, **more: Any) -> tuple[Piece, ...]:
        return _pointwise_backward(back, _is_none(_reduction(options, more, aten_place, 1)), input, target)

    functional.__qualname__ = aten.__qualname__ = op
    formula(f"torch.nn.functional.{op}")(functional)
    backward(f"torch.nn.functional.{op}")(functional_back)
    formula(f"aten::{op}", f"torch.{op}")(aten)
    backward(f"aten::{op}", f"torch.{op}")(aten_back)


for _op, _options_row in _WITH_OPTIONS.items():
    _register_with_options(_op, *_options_row)


def _register_backward(op: str, operations: int) -> None:
    def loss_backward(grad_output: TensorSpec, input: TensorSpec, target: TensorSpec, *options: Any) -> Cost:
        return vector(operations * input.numel, grad_output, input, target, gradient(input))

    loss_backward.__qualname__ = f"{op}_backward"
    formula(f"aten::{op}_backward")(loss_backward)


for _op, _operations in {"mse_loss": 3, "smooth_l1_loss": 5, "huber_loss": 5, "soft_margin_loss": 6}.items():
    _register_backward(_op, _operations)


# ---------------------------------------------------------------------------------------------- binary cross entropy

_BCE, _BCE_LOGITS = (7, 4), (9, 6)  # y·log x + (1 - y)·log(1 - x); the stable form on logits


def _weighted(weight: int, input: Any, target: Any, weights: tuple[Any, ...], each: bool) -> Cost:
    found = [w for w in weights if isinstance(w, TensorSpec)]
    return _pointwise_loss(weight + len(found), each, input, target, *found)


@formula("torch.nn.functional.binary_cross_entropy")
def functional_bce(
    input: TensorSpec,
    target: TensorSpec,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Cost:
    return _weighted(_BCE[0], input, target, (weight,), _is_none(reduction, reduce))


@backward("torch.nn.functional.binary_cross_entropy")
def functional_bce_backward(
    input: TensorSpec,
    target: TensorSpec,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> tuple[Piece, ...]:
    return _pointwise_backward(_BCE[1], _is_none(reduction, reduce), input, target, weight)


@formula("aten::binary_cross_entropy")
def aten_bce(input: TensorSpec, target: TensorSpec, weight: Any = None, reduction: Any = 1, out: Any = None) -> Cost:
    return _weighted(_BCE[0], input, target, (weight,), _is_none(reduction))


@backward("aten::binary_cross_entropy")
def aten_bce_back(
    input: TensorSpec, target: TensorSpec, weight: Any = None, reduction: Any = 1, out: Any = None
) -> tuple[Piece, ...]:
    return _pointwise_backward(_BCE[1], _is_none(reduction), input, target, weight)


@formula("aten::binary_cross_entropy_backward")
def aten_bce_backward(
    grad_output: TensorSpec, input: TensorSpec, target: TensorSpec, weight: Any = None, reduction: Any = 1
) -> Cost:
    return vector(_BCE[1] * input.numel, grad_output, input, target, opt(weight), gradient(input))


@formula("torch.nn.functional.binary_cross_entropy_with_logits")
def functional_bce_logits(
    input: TensorSpec, target: TensorSpec, weight: Any = None, size_average: Any = None, reduce: Any = None,
    reduction: Any = "mean", pos_weight: Any = None,
) -> Cost:  # fmt: skip
    return _weighted(_BCE_LOGITS[0], input, target, (weight, pos_weight), _is_none(reduction, reduce))


@backward("torch.nn.functional.binary_cross_entropy_with_logits")
def functional_bce_logits_backward(
    input: TensorSpec, target: TensorSpec, weight: Any = None, size_average: Any = None, reduce: Any = None,
    reduction: Any = "mean", pos_weight: Any = None,
) -> tuple[Piece, ...]:  # fmt: skip
    return _pointwise_backward(_BCE_LOGITS[1], _is_none(reduction, reduce), input, target, weight, pos_weight)


@formula("aten::binary_cross_entropy_with_logits", "torch.binary_cross_entropy_with_logits")
def aten_bce_logits(
    input: TensorSpec, target: TensorSpec, weight: Any = None, pos_weight: Any = None, reduction: Any = 1
) -> Cost:
    return _weighted(_BCE_LOGITS[0], input, target, (weight, pos_weight), _is_none(reduction))


@backward("aten::binary_cross_entropy_with_logits", "torch.binary_cross_entropy_with_logits")
def aten_bce_logits_back(
    input: TensorSpec, target: TensorSpec, weight: Any = None, pos_weight: Any = None, reduction: Any = 1
) -> tuple[Piece, ...]:
    return _pointwise_backward(_BCE_LOGITS[1], _is_none(reduction), input, target, weight, pos_weight)


# ---------------------------------------------------------------------------------------------- classification


def _by_class(input: TensorSpec, target: TensorSpec, weight: Any, each: bool) -> Cost:
    """The element of each row that the target names: one multiplication and one addition a row."""
    rows = target.numel
    picked = spec((rows,), input.dtype)
    shape = target.shape if each else ()
    return vector(2 * rows, picked, target, opt(weight), spec(shape, input.dtype))


_NLL_ATEN = ("aten::nll_loss", "aten::nll_loss2d", "aten::nll_loss_nd", "aten::nll_loss_forward", "aten::nll_loss2d_forward",
             "torch.nn.functional.nll_loss2d", "torch.nn.functional.nll_loss_nd")  # fmt: skip


@formula("torch.nn.functional.nll_loss")
def functional_nll_loss(
    input: TensorSpec, target: TensorSpec, weight: Any = None, size_average: Any = None, ignore_index: Any = -100,
    reduce: Any = None, reduction: Any = "mean",
) -> Cost:  # fmt: skip
    return _by_class(input, target, weight, _is_none(reduction, reduce))


@backward("torch.nn.functional.nll_loss")
def functional_nll_loss_backward(
    input: TensorSpec, target: TensorSpec, weight: Any = None, size_average: Any = None, ignore_index: Any = -100,
    reduce: Any = None, reduction: Any = "mean",
) -> tuple[Piece, ...]:  # fmt: skip
    return _nll_backward(input, target, weight)


def _nll_backward(input: TensorSpec, target: TensorSpec, weight: Any) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    return (Piece("input", vector(target.numel, target, opt(weight), gradient(input))),)


@formula(*_NLL_ATEN)
def aten_nll_loss(
    input: TensorSpec, target: TensorSpec, weight: Any = None, reduction: Any = 1, ignore_index: Any = -100
) -> Cost:
    return _by_class(input, target, weight, _is_none(reduction))


@backward(*_NLL_ATEN)
def aten_nll_loss_back(
    input: TensorSpec, target: TensorSpec, weight: Any = None, reduction: Any = 1, ignore_index: Any = -100
) -> tuple[Piece, ...]:
    return _nll_backward(input, target, weight)


@formula("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def aten_nll_loss_backward(grad_output: Any, input: TensorSpec, target: TensorSpec, weight: Any = None, *more: Any) -> Cost:
    total = [m for m in more if isinstance(m, TensorSpec)]
    return vector(target.numel, opt(grad_output), target, opt(weight), total, gradient(input))


def _cross_entropy(input: TensorSpec, target: TensorSpec, weight: Any, each: bool, smoothing: Any) -> Cost:
    # log_softmax of each element, then the target's element of each row; with classes as probabilities, or smoothed, a product
    # with each element and its sum. The log-probabilities stay for the backward: they are written once and read once.
    spread = target.shape == input.shape or (isinstance(smoothing, float) and smoothing > 0)
    rows = product(input.shape) // max(input.shape[1 if len(input.shape) > 1 else 0], 1)
    operations = SOFTMAX_OPERATIONS * input.numel + (2 * input.numel if spread else 2 * rows)
    shape = (rows,) if each else ()
    return vector(operations, input, target, opt(weight), gradient(input), spec(shape, input.dtype))


def _cross_entropy_backward(input: TensorSpec, target: TensorSpec, weight: Any) -> tuple[Piece, ...]:
    # nll_loss_backward writes the gradient of the log-probabilities, _log_softmax_backward_data makes the input's of it.
    if not wants(input):
        return ()
    first = Piece("nll_loss", vector(target.numel, target, opt(weight), gradient(input)))
    grad = gradient(input)
    return (first, Piece("log_softmax", vector(LOG_SOFTMAX_BACKWARD_OPERATIONS * input.numel, grad, grad, grad)))


@formula("torch.nn.functional.cross_entropy")
def functional_cross_entropy(
    input: TensorSpec, target: TensorSpec, weight: Any = None, size_average: Any = None, ignore_index: Any = -100,
    reduce: Any = None, reduction: Any = "mean", label_smoothing: Any = 0.0,
) -> Cost:  # fmt: skip
    return _cross_entropy(input, target, weight, _is_none(reduction, reduce), label_smoothing)


@backward("torch.nn.functional.cross_entropy")
def functional_cross_entropy_backward(
    input: TensorSpec, target: TensorSpec, weight: Any = None, size_average: Any = None, ignore_index: Any = -100,
    reduce: Any = None, reduction: Any = "mean", label_smoothing: Any = 0.0,
) -> tuple[Piece, ...]:  # fmt: skip
    return _cross_entropy_backward(input, target, weight)


@formula("aten::cross_entropy_loss", "torch.nn.functional.cross_entropy_loss")
def cross_entropy_loss(
    input: TensorSpec, target: TensorSpec, weight: Any = None, reduction: Any = 1, ignore_index: Any = -100,
    label_smoothing: Any = 0.0,
) -> Cost:  # fmt: skip
    return _cross_entropy(input, target, weight, _is_none(reduction), label_smoothing)


@backward("aten::cross_entropy_loss", "torch.nn.functional.cross_entropy_loss")
def cross_entropy_loss_backward(
    input: TensorSpec, target: TensorSpec, weight: Any = None, reduction: Any = 1, ignore_index: Any = -100,
    label_smoothing: Any = 0.0,
) -> tuple[Piece, ...]:  # fmt: skip
    return _cross_entropy_backward(input, target, weight)


# ---------------------------------------------------------------------------------------------- others


@formula("torch.nn.functional.multi_margin_loss", "aten::multi_margin_loss")
def multi_margin_loss(input: TensorSpec, target: TensorSpec, *options: Any, **more: Any) -> Cost:
    return vector(5 * input.numel, input, target, spec((), input.dtype))


@formula("torch.nn.functional.multilabel_margin_loss", "aten::multilabel_margin_loss", "torch.multilabel_margin_loss")
def multilabel_margin_loss(input: TensorSpec, target: TensorSpec, *options: Any, **more: Any) -> Cost:
    # Each label is compared with each class.
    return vector(4 * input.numel * (input.shape[-1] if input.shape else 1), input, target, spec((), input.dtype))


@formula("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(input: TensorSpec, target: TensorSpec, reduction: Any = 1, out: Any = None) -> Cost:
    # It returns which classes are labels, too.
    each = len(input.shape) > 1 and _is_none(reduction)
    classes = input.shape[-1] if input.shape else 1
    written = (spec(input.shape[:1] if each else (), input.dtype), spec(target.shape, input.dtype))
    return vector(4 * input.numel * classes, input, target, written)


@formula("torch.margin_ranking_loss", "aten::margin_ranking_loss", "torch.nn.functional.margin_ranking_loss")
def margin_ranking_loss(input1: TensorSpec, input2: TensorSpec, target: TensorSpec, *options: Any, **more: Any) -> Cost:
    shape = broadcast(input1.shape, input2.shape, target.shape)
    return vector(6 * product(shape), input1, input2, target, spec((), input1.dtype))


@formula("torch.triplet_margin_loss", "aten::triplet_margin_loss", "torch.nn.functional.triplet_margin_loss")
def triplet_margin_loss(anchor: TensorSpec, positive: TensorSpec, negative: TensorSpec, *options: Any, **more: Any) -> Cost:
    return vector(8 * anchor.numel, anchor, positive, negative, spec((), anchor.dtype))


@formula("torch.cosine_embedding_loss", "aten::cosine_embedding_loss", "torch.nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(input1: TensorSpec, input2: TensorSpec, target: TensorSpec, *options: Any, **more: Any) -> Cost:
    return vector(6 * input1.numel, input1, input2, target, spec((), input1.dtype))


@formula("torch.nn.functional.ctc_loss", "torch.ctc_loss", "aten::ctc_loss", "torch._ctc_loss", "aten::_ctc_loss",
         "aten::_cudnn_ctc_loss", "torch._cudnn_ctc_loss", "aten::miopen_ctc_loss", "torch.miopen_ctc_loss")  # fmt: skip
def ctc_loss(
    log_probs: TensorSpec,
    targets: TensorSpec,
    input_lengths: Any = None,
    target_lengths: Any = None,
    *options: Any,
    **more: Any,
) -> Cost:  # fmt: skip
    # Forward variables over time and the target with blanks between: 3 additions and logs each of (T, N, 2·L + 1), L being the
    # longest target where the lengths are numbers, else as long as targets are stored.
    time, count = log_probs.shape[0], log_probs.shape[1] if len(log_probs.shape) > 2 else 1
    longest = targets.shape[-1] if len(targets.shape) > 1 else targets.numel // max(count, 1)
    if isinstance(target_lengths, (list, tuple)) and target_lengths:
        longest = max(need(n, "target_lengths") for n in target_lengths)
    states = time * count * (2 * longest + 1)
    read = (log_probs, targets, opt(input_lengths), opt(target_lengths))
    return Cost(0, 6 * states, nbytes(read, spec((states + count,), log_probs.dtype)))


# ---------------------------------------------------------------------------------------------- backward ops of the dispatcher


@formula("aten::_ctc_loss_backward")
def ctc_loss_backward(
    grad: TensorSpec, log_probs: TensorSpec, targets: TensorSpec, input_lengths: Any, target_lengths: Any,
    neg_log_likelihood: TensorSpec, log_alpha: TensorSpec, *options: Any,
) -> Cost:  # fmt: skip
    # Backward variables as the forward ones, 6 a state; alpha·beta added into its symbol 3; exp, subtract and scale 4 an
    # element.
    read = (grad, log_probs, targets, opt(input_lengths), opt(target_lengths), neg_log_likelihood, log_alpha)
    return vector(9 * log_alpha.numel + 4 * log_probs.numel, read, gradient(log_probs))


@formula("aten::multi_margin_loss_backward")
def multi_margin_loss_backward(grad_output: TensorSpec, input: TensorSpec, target: TensorSpec, *options: Any) -> Cost:
    return vector(5 * input.numel, grad_output, input, target, [o for o in options if opt(o)], gradient(input))


@formula("aten::multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    grad_output: TensorSpec, input: TensorSpec, target: TensorSpec, reduction: Any, is_target: TensorSpec
) -> Cost:
    # Each label with each class again.
    classes = input.shape[-1] if input.shape else 1
    return vector(4 * input.numel * classes, grad_output, input, target, is_target, gradient(input))


# ---------------------------------------------------------------------------------------------- backward


@backward("torch.nn.functional.multi_margin_loss", "aten::multi_margin_loss")
def multi_margin_back(input: TensorSpec, target: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    number = spec((), input.dtype)
    return (Piece("input", multi_margin_loss_backward(number, input, target)),) if wants(input) else ()


@backward("torch.nn.functional.ctc_loss", "torch.ctc_loss", "aten::ctc_loss", "torch._ctc_loss", "aten::_ctc_loss")
def ctc_back(
    log_probs: TensorSpec,
    targets: TensorSpec,
    input_lengths: Any = None,
    target_lengths: Any = None,
    *options: Any,
    **more: Any,
) -> tuple[Piece, ...]:
    if not wants(log_probs):
        return ()
    once = ctc_loss(log_probs, targets, input_lengths, target_lengths).vector_flops or 0
    count = log_probs.shape[1] if len(log_probs.shape) > 2 else 1
    states, losses = spec((once // 6,), log_probs.dtype), spec((count,), log_probs.dtype)
    return (Piece("input", ctc_loss_backward(losses, log_probs, targets, input_lengths, target_lengths, losses, states)),)
