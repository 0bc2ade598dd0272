"""Optimizer arithmetic: foreach ops over lists of tensors, fused optimizer steps, gradient scaling, and apex's multi-tensor
ops.

A foreach op is its elementwise op over every tensor of its lists. A fused Adam step costs 12 operations a parameter (3 for
the first moment, 4 for the second, 2 for the bias corrections, square root, epsilon, division and update), 1 or 2 more for
weight decay and a maximum; SGD 2, and 2 more each for momentum and weight decay. Bytes: parameter, gradient and state read,
parameter and state written: 28 bytes a parameter for Adam in single precision.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, opt, spec
from pyprof.prof.formulas.registry import Cost, Missing, formula

__all__: list[str] = []


def _tensors(value: Any) -> list[TensorSpec]:
    return [t for t in value if isinstance(t, TensorSpec)] if isinstance(value, (list, tuple)) else []


def _count(tensors: list[TensorSpec]) -> int:
    return sum(t.numel for t in tensors)


def _lists(args: tuple[Any, ...], minimum: int = 1) -> list[list[TensorSpec]]:
    """The lists of tensors among the arguments. Raises Missing where they were flattened into one."""
    found = [_tensors(a) for a in args if isinstance(a, (list, tuple)) and _tensors(a)]
    if len(found) < minimum:
        raise Missing(
            "lists of tensors were not kept apart" if any(isinstance(a, TensorSpec) for a in args) else "tensors not recorded"
        )
    return found


# ---------------------------------------------------------------------------------------------- foreach

# op: (operations an element, lists of tensors that it takes at least, whether it has an in-place form)
_FOREACH: dict[str, tuple[int, int]] = {
    "abs": (1, 1), "acos": (1, 1), "asin": (1, 1), "atan": (1, 1), "ceil": (1, 1), "cos": (1, 1), "cosh": (1, 1), "erf": (1, 1),
    "erfc": (1, 1), "exp": (1, 1), "expm1": (1, 1), "floor": (1, 1), "frac": (1, 1), "lgamma": (1, 1), "log": (1, 1),
    "log10": (1, 1),
    "log1p": (1, 1), "log2": (1, 1), "neg": (1, 1), "reciprocal": (1, 1), "round": (1, 1), "rsqrt": (2, 1), "sigmoid": (4, 1),
    "sign": (1, 1), "sin": (1, 1), "sinh": (1, 1), "sqrt": (1, 1), "tan": (1, 1), "tanh": (1, 1), "trunc": (1, 1),

    "add": (1, 1), "sub": (1, 1), "mul": (1, 1), "div": (1, 1), "maximum": (1, 1), "minimum": (1, 1), "clamp_max": (1, 1),
    "clamp_min": (1, 1), "pow": (1, 1), "addcdiv": (3, 3), "addcmul": (3, 3), "lerp": (3, 2),
}  # fmt: skip


def _foreach(weight: int, lists: list[list[TensorSpec]], out: list[TensorSpec], *scalars: Any) -> Cost:
    return Cost(0, weight * _count(lists[0]), nbytes(lists, [opt(s) for s in scalars], out))


def _scales(more: dict[str, Any], scalars: list[Any]) -> bool:
    alpha = more.get("alpha", scalars[-1] if scalars else 1)
    return isinstance(alpha, (int, float)) and alpha != 1


def _register_foreach(op: str, weight: int, minimum: int) -> None:
    def foreach(*args: Any, **more: Any) -> Cost:
        args = (*args, *more.values())
        lists = _lists(args, minimum)
        # alpha of add and sub comes after the second list, and is one operation more.
        scaled = op in ("add", "sub") and len(lists) > 1 and _scales(more, [a for a in args[2:] if isinstance(a, (int, float))])
        return _foreach(weight + scaled, lists, [gradient(t) for t in lists[0]], *args)

    foreach.__qualname__ = f"_foreach_{op}"
    formula(*(f"{place}_foreach_{op}{suffix}" for place in ("torch.", "aten::") for suffix in ("", "_")))(foreach)


for _op, _row in _FOREACH.items():
    _register_foreach(_op, *_row)


@formula("torch._foreach_zero_", "aten::_foreach_zero_", "torch._foreach_zero", "aten::_foreach_zero")
def foreach_zero(input: list[TensorSpec]) -> Cost:
    return Cost(0, 0, nbytes(_tensors(input)))


@formula("torch._foreach_norm", "aten::_foreach_norm", "torch._foreach_powsum", "aten::_foreach_powsum")
def foreach_norm(input: list[TensorSpec], ord: Any = 2, dtype: Any = None) -> Cost:
    found = _tensors(input)
    return Cost(0, 2 * _count(found) + len(found), nbytes(found, [spec((), t.dtype) for t in found]))


@formula("torch._foreach_max", "aten::_foreach_max")
def foreach_max(input: list[TensorSpec]) -> Cost:
    found = _tensors(input)
    return Cost(0, _count(found), nbytes(found, [spec((), t.dtype) for t in found]))


@formula(
    *(f"{place}_amp_foreach_non_finite_check_and_unscale{suffix}" for place in ("torch.", "aten::") for suffix in ("_", ""))
)
def unscale(input: list[TensorSpec], found_inf: Any = None, inv_scale: Any = None) -> Cost:
    found = _tensors(input)
    return Cost(0, 2 * _count(found), nbytes(found, found))


@formula("torch._amp_update_scale_", "aten::_amp_update_scale_", "torch._amp_update_scale", "aten::_amp_update_scale")
def update_scale(input: Any, *state: Any, **more: Any) -> Cost:
    return Cost(0, 4, nbytes(input, input, *state[:2], state[0] if state else None))


# ---------------------------------------------------------------------------------------------- fused steps


def _step(operations: int, grads: list[TensorSpec], states: list[list[TensorSpec]], grad_scale: Any = None) -> Cost:
    """The parameters and their state, read and written, and the gradients read; where these are scaled, divided and written."""
    scaled = opt(grad_scale) is not None
    return Cost(0, (operations + scaled) * _count(states[0]), nbytes(grads, states, states, grads if scaled else None))


def _flag(value: Any) -> bool:
    return value is True


def _decays(value: Any) -> bool:
    return isinstance(value, (int, float)) and value != 0


_ADAM_OPERATIONS = 12


def _register_adam(op: str, decay: int) -> None:
    def adam(
        input: list[TensorSpec], grads: Any, exp_avgs: Any = None, exp_avg_sqs: Any = None, max_exp_avg_sqs: Any = None,
        state_steps: Any = None, lr: Any = None, beta1: Any = None, beta2: Any = None, weight_decay: Any = 0, eps: Any = None,
        amsgrad: Any = False, maximize: Any = False, grad_scale: Any = None, found_inf: Any = None,
    ) -> Cost:  # fmt: skip
        params, gradients, first, second = (_tensors(v) for v in (input, grads, exp_avgs, exp_avg_sqs))
        if not first or not second:
            raise Missing("lists of tensors were not kept apart")
        states = [params, first, second] + ([_tensors(max_exp_avg_sqs)] if _flag(amsgrad) else [])
        operations = _ADAM_OPERATIONS + (decay if _decays(weight_decay) else 0) + _flag(amsgrad)
        return _step(operations, gradients, states, grad_scale)

    adam.__qualname__ = op
    formula(f"torch.{op}_", f"aten::{op}_", f"torch.{op}", f"aten::{op}")(adam)


_register_adam("_fused_adam", 2)
_register_adam("_fused_adamw", 2)


@formula("torch._fused_sgd_", "aten::_fused_sgd_", "torch._fused_sgd", "aten::_fused_sgd")
def fused_sgd(
    input: list[TensorSpec], grads: Any, momentum_buffer_list: Any = (), weight_decay: Any = 0, momentum: Any = 0,
    lr: Any = None,
    dampening: Any = 0, nesterov: Any = False, maximize: Any = False, is_first_step: Any = False, grad_scale: Any = None,
    found_inf: Any = None,
) -> Cost:  # fmt: skip
    params, gradients, buffers = _tensors(input), _tensors(grads), _tensors(momentum_buffer_list)
    if not gradients:
        raise Missing("lists of tensors were not kept apart")
    operations = 2 + 2 * bool(buffers) + 2 * _decays(weight_decay) + 2 * _flag(nesterov)
    return _step(operations, gradients, [params] + ([buffers] if buffers else []), grad_scale)


@formula("torch._fused_adagrad_", "aten::_fused_adagrad_", "torch._fused_adagrad", "aten::_fused_adagrad")
def fused_adagrad(
    input: list[TensorSpec], grads: Any, state_sums: Any = None, state_steps: Any = None, lr: Any = None, lr_decay: Any = 0,
    weight_decay: Any = 0, *more: Any, **options: Any,
) -> Cost:  # fmt: skip
    params, gradients, sums = _tensors(input), _tensors(grads), _tensors(state_sums)
    if not sums:
        raise Missing("lists of tensors were not kept apart")
    return _step(6 + 2 * _decays(weight_decay), gradients, [params, sums])


@formula("fused_adam_cuda.adam")
def apex_adam(p: TensorSpec, p_copy: Any = None, m: Any = None, v: Any = None, g: Any = None, *options: Any) -> Cost:
    """apex's fused Adam of one parameter: (p, copy in half precision or an empty tensor, m, v, g, ...)."""
    states = [t for t in (p, m, v) if isinstance(t, TensorSpec)]
    if len(states) < 3 or not isinstance(g, TensorSpec):
        raise Missing("state not recorded")
    return Cost(0, _ADAM_OPERATIONS * p.numel, nbytes(states, states, g, opt(p_copy)))


def _apex_lists(tensor_lists: Any, count: int) -> list[list[TensorSpec]]:
    found = [_tensors(one) for one in tensor_lists] if isinstance(tensor_lists, (list, tuple)) else []
    flat = [t for t in tensor_lists if isinstance(t, TensorSpec)] if isinstance(tensor_lists, (list, tuple)) else []
    if flat and len(flat) % count == 0:  # the lists are of one length and come one after the other
        size = len(flat) // count
        return [flat[i : i + size] for i in range(0, len(flat), size)]
    if len(found) != count or not found[0]:
        raise Missing("lists of tensors not recorded")
    return found


def _register_apex(op: str, lists: int, operations: int, written: tuple[int, ...], read: tuple[int, ...]) -> None:
    def multi_tensor(chunk_size: Any, noop_flag: Any, tensor_lists: list[TensorSpec], *options: Any) -> Cost:
        found = _apex_lists(tensor_lists, lists)
        return Cost(0, operations * _count(found[0]), nbytes([found[i] for i in read], [found[i] for i in written]))

    multi_tensor.__qualname__ = op
    formula(f"amp_C.{op}")(multi_tensor)


# apex's amp_C (github.com/NVIDIA/apex csrc/amp_C_frontend.cpp): lists are (gradients, parameters, first and second moments,
# ...).
_register_apex("multi_tensor_adam", 4, _ADAM_OPERATIONS, (1, 2, 3), (0, 1, 2, 3))
_register_apex("multi_tensor_scale", 2, 1, (1,), (0,))
_register_apex("multi_tensor_axpby", 3, 3, (2,), (0, 1))
_register_apex("multi_tensor_sgd", 3, 6, (1, 2), (0, 1, 2))
_register_apex("multi_tensor_l2norm", 1, 2, (), (0,))
