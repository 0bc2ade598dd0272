"""Random numbers: one operation each, 3 where they are shaped to a distribution other than the uniform one.

Bytes: the tensor, written once, and the parameters of its distribution where these are tensors.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import DEFAULT_FLOAT, broadcast, dtype_from, need, product, promote, spec, vector
from pyprof.prof.formulas.factory import given_out, made_dtype, made_shape
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, formula

__all__: list[str] = []


@formula("torch.randint", "aten::randint")
def randint(*args: Any, **more: Any) -> Cost:
    sizes = next((a for a in args if isinstance(a, (list, tuple))), more.get("size", UNKNOWN))
    made = given_out(more) or spec(made_shape((sizes,), {}), made_dtype(args, more, "int64"))
    return vector(made.numel, made)


@formula("torch.randperm", "aten::randperm")
def randperm(n: Any, *options: Any, **more: Any) -> Cost:
    # A random key an element, and sorting by it.
    count = need(n, "n")
    written = given_out(more) or spec((count,), made_dtype(options, more, "int64"))
    return vector(count * (1 + max(count - 1, 0).bit_length()), written)


@formula(*(f"{place}{op}_" for op in ("uniform", "normal", "random", "bernoulli", "exponential", "geometric", "cauchy",
    "log_normal")
           for place in ("Tensor.", "aten::")), "aten::_no_grad_uniform_", "aten::_no_grad_normal_")  # fmt: skip
def random_(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    return vector(3 * input.numel, input, *(o for o in options if isinstance(o, TensorSpec)))


@formula(*spellings("bernoulli"), *spellings("poisson", "ta"), *spellings("normal_functional", "a"))
def bernoulli(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    return vector(2 * input.numel, input, spec(input.shape, input.dtype))


@formula(*(f"aten::{op}" for op in ("uniform", "random", "exponential", "geometric", "cauchy", "log_normal")))
def random_functional(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    return vector(3 * input.numel, spec(input.shape, input.dtype))


@formula("torch.normal", "aten::normal")
def normal(mean: Any, std: Any = 1.0, size: Any = None, *options: Any, **more: Any) -> Cost:
    tensors = [t for t in (mean, std) if isinstance(t, TensorSpec)]
    shape = broadcast(*(t.shape for t in tensors)) if tensors else made_shape((size,), {})
    made = spec(shape, tensors[0].dtype if tensors else made_dtype(options, more, DEFAULT_FLOAT))
    return vector(3 * product(shape), tensors, made)


@formula(*spellings("multinomial"))
def multinomial(input: TensorSpec, num_samples: Any, replacement: Any = False, *options: Any, **more: Any) -> Cost:
    made = spec((*input.shape[:-1], need(num_samples, "num_samples")), "int64")
    return vector(3 * input.numel, input, made)


@formula(*spellings("binomial", "ta"))
def binomial(count: TensorSpec, prob: TensorSpec, generator: Any = None) -> Cost:
    made = spec(broadcast(count.shape, prob.shape), promote(count, prob))
    return vector(3 * made.numel, count, prob, made)


@formula(*spellings("_standard_gamma", "ta"))
def standard_gamma(input: TensorSpec, generator: Any = None) -> Cost:
    return vector(3 * input.numel, input, spec(input.shape, input.dtype))


@formula(*spellings("_standard_gamma_grad", "ta"))
def standard_gamma_grad(input: TensorSpec, output: TensorSpec) -> Cost:
    # One function of the parameter and the sample.
    return vector(input.numel, input, output, spec(input.shape, input.dtype))


@formula(*spellings("_sample_dirichlet", "ta"))
def sample_dirichlet(input: TensorSpec, generator: Any = None) -> Cost:
    # Samples of a gamma distribution, divided by their sum.
    return vector(5 * input.numel, input, spec(input.shape, input.dtype))


@formula(*spellings("_dirichlet_grad", "ta"))
def dirichlet_grad(x: TensorSpec, alpha: TensorSpec, total: TensorSpec) -> Cost:
    return vector(x.numel, x, alpha, total, spec(x.shape, x.dtype))


# ---------------------------------------------------------------------------------------------- from keys, and quasi-random


@formula(*spellings("_philox_uniform_", "ta"), *spellings("_philox_uniform", "ta"))
def philox_uniform(input: TensorSpec, key: TensorSpec, low: Any = 0.0, high: Any = 1.0) -> Cost:
    # A number, scaled to the range by a product and a sum.
    return vector(3 * input.numel, key, spec(input.shape, input.dtype))


@formula(*spellings("_philox_normal_", "ta"), *spellings("_philox_normal", "ta"))
def philox_normal(input: TensorSpec, key: TensorSpec, mean: Any = 0.0, std: Any = 1.0) -> Cost:
    return vector(3 * input.numel, key, spec(input.shape, input.dtype))


@formula(*spellings("_philox_key_split", "ta"))
def philox_key_split(key: TensorSpec, num_splits: Any) -> Cost:
    made = spec((need(num_splits, "num_splits"), *key.shape), key.dtype)
    return vector(made.numel, key, made)


@formula(*spellings("_philox_key_fold_in", "ta"))
def philox_key_fold_in(key: TensorSpec, data: Any) -> Cost:
    return vector(key.numel, key, spec(key.shape, key.dtype))


@formula(*spellings("_sobol_engine_draw", "ta"))
def sobol_draw(quasi: TensorSpec, n: Any, sobolstate: TensorSpec, dimension: Any, num_generated: Any, dtype: Any) -> Cost:
    # Each point is the one before it, exclusive or one direction a dimension, scaled to [0, 1).
    made = spec((need(n, "n"), need(dimension, "dimension")), dtype_from(dtype) or DEFAULT_FLOAT)
    return vector(2 * made.numel, quasi, sobolstate, quasi, made)


@formula(*spellings("_sobol_engine_ff_", "ta"))
def sobol_forward(input: TensorSpec, n: Any, sobolstate: TensorSpec, dimension: Any, num_generated: Any) -> Cost:
    return vector(need(n, "n") * need(dimension, "dimension"), input, sobolstate, input)


@formula(*spellings("_sobol_engine_scramble_", "ta"))
def sobol_scramble(input: TensorSpec, ltm: TensorSpec, dimension: Any) -> Cost:
    # A product of each direction's bits with a triangular matrix of bits a dimension.
    return vector(2 * ltm.numel * (input.shape[-1] if input.shape else 1), input, ltm, input)


@formula(*spellings("_sobol_engine_initialize_state_", "ta"))
def sobol_initialize(input: TensorSpec, dimension: Any) -> Cost:
    return vector(input.numel, input)
