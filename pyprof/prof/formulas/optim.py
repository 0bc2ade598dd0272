"""Optimizer arithmetic: foreach ops over lists of tensors, fused optimizer steps, gradient scaling, apex's multi-tensor ops.

A foreach op is its elementwise op over every tensor of its lists. A fused Adam step costs 12 operations a parameter (3 for
the first moment, 4 for the second, 2 for the bias corrections, square root, epsilon, division and update), 1 or 2 more for
weight decay and a maximum; SGD 2, and 2 more each for momentum and weight decay. Bytes: parameter, gradient and state read,
parameter and state written: 28 bytes a parameter for Adam in single precision.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gradient, opt, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, op


def _tensors(value: object) -> list[TensorSpec]:
    return [t for t in value if isinstance(t, TensorSpec)] if isinstance(value, (list, tuple)) else []


def _count(tensors: list[TensorSpec]) -> int:
    return sum(t.numel for t in tensors)


def _lists(args: tuple[object, ...], minimum: int) -> list[list[TensorSpec]]:
    """The lists of tensors among the arguments. Raises Missing if they were flattened into one."""
    found = [tensors for tensors in map(_tensors, args) if tensors]
    if len(found) < minimum:
        flat = any(isinstance(a, TensorSpec) for a in args)
        raise Missing("lists of tensors were not kept apart" if flat else "tensors not recorded")
    return found


# ---------------------------------------------------------------------------------------------- foreach


def _declare_foreach(*names: str, weight: int = 1, minimum: int = 1, alpha: bool = False) -> None:
    """Ops and their in-place forms; weight: operations an element, minimum: lists of tensors that they take at least."""

    @op(*(f"_foreach_{name}{suffix}" for name in names for suffix in ("", "_")), places="ta")
    def foreach(*args: object, **more: object) -> Cost:
        given = (*args, *more.values())
        lists = _lists(given, minimum)
        scaled = alpha and len(lists) > 1 and _scales(args, more)
        written = [gradient(t) for t in lists[0]]
        return vector((weight + scaled) * _count(lists[0]), lists, [opt(a) for a in given], written)


def _scales(args: tuple[object, ...], more: dict[str, object]) -> bool:
    """Whether there is an alpha, which comes after the second list and is one operation more."""
    alpha = more.get("alpha", next((a for a in reversed(args[2:]) if isinstance(a, (int, float))), 1))
    return isinstance(alpha, (int, float)) and alpha != 1


_declare_foreach(
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log",
    "log10", "log1p", "log2", "neg", "reciprocal", "round", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min", "pow",
)  # fmt: skip
_declare_foreach("add", "sub", alpha=True)
_declare_foreach("rsqrt", weight=2)
_declare_foreach("sigmoid", weight=4)
_declare_foreach("lerp", weight=3, minimum=2)
_declare_foreach("addcdiv", "addcmul", weight=3, minimum=3)


@op("_foreach_zero", "_foreach_zero_", places="ta")
def foreach_zero(input: list[TensorSpec]) -> Cost:
    return copy_cost(input)


@op("_foreach_norm", "_foreach_powsum", places="ta")
def foreach_norm(input: list[TensorSpec]) -> Cost:
    found = _tensors(input)
    return vector(2 * _count(found) + len(found), found, [spec((), t.dtype) for t in found])


@op("_foreach_max", places="ta")
def foreach_max(input: list[TensorSpec]) -> Cost:
    found = _tensors(input)
    return vector(_count(found), found, [spec((), t.dtype) for t in found])


@op("_amp_foreach_non_finite_check_and_unscale", "_amp_foreach_non_finite_check_and_unscale_", places="ta")
def unscale(input: list[TensorSpec]) -> Cost:
    found = _tensors(input)
    return vector(2 * _count(found), found, found)


@op("_amp_update_scale", "_amp_update_scale_", places="ta")
def update_scale(input: object, growth_tracker: object = None, found_inf: object = None) -> Cost:
    return vector(4, input, input, growth_tracker, growth_tracker, found_inf)


# ---------------------------------------------------------------------------------------------- fused steps

_ADAM_OPERATIONS = 12


def _step(operations: int, grads: object, states: list[list[TensorSpec]], grad_scale: object) -> Cost:
    """The parameters and their state, read and written, and the gradients read; where these are scaled, divided and written."""
    found = _tensors(grads)
    scaled = opt(grad_scale) is not None
    return vector((operations + scaled) * _count(states[0]), found, states, states, found if scaled else None)


def _decays(value: object) -> bool:
    return isinstance(value, (int, float)) and value != 0


def _apart(*lists: object) -> list[list[TensorSpec]]:
    """Lists of tensors that a step needs. Raises Missing if one was not recorded as a list of its own."""
    found = [_tensors(one) for one in lists]
    if not all(found[1:]):
        raise Missing("lists of tensors were not kept apart")
    return found


@op("_fused_adam", "_fused_adam_", "_fused_adamw", "_fused_adamw_", places="ta")
def fused_adam(
    input: list[TensorSpec], grads: object, exp_avgs: object = None, exp_avg_sqs: object = None, max_exp_avg_sqs: object = None,
    weight_decay: object = 0, amsgrad: object = False, grad_scale: object = None,
) -> Cost:  # fmt: skip
    states = _apart(input, exp_avgs, exp_avg_sqs)
    operations = _ADAM_OPERATIONS + 2 * _decays(weight_decay)
    if amsgrad is True:
        states.append(_tensors(max_exp_avg_sqs))
        operations += 1
    return _step(operations, grads, states, grad_scale)


@op("_fused_sgd", "_fused_sgd_", places="ta")
def fused_sgd(
    input: list[TensorSpec], grads: object, momentum_buffer_list: object = (), weight_decay: object = 0,
    nesterov: object = False, grad_scale: object = None,
) -> Cost:  # fmt: skip
    params, found = _apart(input, grads)
    buffers = _tensors(momentum_buffer_list)
    operations = 2 + 2 * bool(buffers) + 2 * _decays(weight_decay) + 2 * (nesterov is True)
    return _step(operations, found, [params, buffers], grad_scale)


@op("_fused_adagrad", "_fused_adagrad_", places="ta")
def fused_adagrad(input: list[TensorSpec], grads: object, state_sums: object = None, weight_decay: object = 0) -> Cost:
    return _step(6 + 2 * _decays(weight_decay), grads, _apart(input, state_sums), None)


# ---------------------------------------------------------------------------------------------- apex


@op("fused_adam_cuda.adam", order="p p_copy m v g ...")
def apex_adam(p: TensorSpec, p_copy: object = None, m: object = None, v: object = None, g: object = None) -> Cost:
    """apex's fused Adam of one parameter; p_copy: the parameter in half precision, or an empty tensor."""
    states = _tensors([p, m, v])
    if len(states) < 3 or not isinstance(g, TensorSpec):
        raise Missing("state not recorded")
    return vector(_ADAM_OPERATIONS * p.numel, states, states, g, opt(p_copy))


def _apex_lists(given: object, count: int) -> list[list[TensorSpec]]:
    """The lists of a multi-tensor op; flattened ones are of one length and come one after the other."""
    flat = _tensors(given)
    if flat and len(flat) % count == 0:
        size = len(flat) // count
        return [flat[i : i + size] for i in range(0, len(flat), size)]
    found = [_tensors(one) for one in given] if isinstance(given, (list, tuple)) else []
    if len(found) != count or not found[0]:
        raise Missing("lists of tensors not recorded")
    return found


def _declare_apex(name: str, lists: int, weight: int, read: tuple[int, ...], written: tuple[int, ...]) -> None:
    @op(f"amp_C.{name}", order="chunk_size noop_flag tensor_lists[] ...")
    def multi_tensor(tensor_lists: list[TensorSpec]) -> Cost:
        found = _apex_lists(tensor_lists, lists)
        return vector(weight * _count(found[0]), [found[i] for i in (*read, *written)])


# github.com/NVIDIA/apex, csrc/amp_C_frontend.cpp: lists are (gradients, parameters, first and second moments, ...).
_declare_apex("multi_tensor_adam", 4, _ADAM_OPERATIONS, read=(0, 1, 2, 3), written=(1, 2, 3))
_declare_apex("multi_tensor_scale", 2, 1, read=(0,), written=(1,))
_declare_apex("multi_tensor_axpby", 3, 3, read=(0, 1), written=(2,))
_declare_apex("multi_tensor_sgd", 3, 6, read=(0, 1, 2), written=(1, 2))
_declare_apex("multi_tensor_l2norm", 1, 2, read=(0,), written=())
