"""Random numbers: one operation each, 3 where they are shaped to a distribution other than the uniform one.

Bytes: the tensor, written once, and the parameters of its distribution where these are tensors.
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import DEFAULT_FLOAT, broadcast, dtype_from, gradient, need, product, promote, spec, vector
from pyprof.prof.formulas.factory import given_out, made_dtype, made_shape
from pyprof.prof.formulas.registry import Cost, op


@op("randint", places="ta")
def randint(*args: object, **more: object) -> Cost:
    sizes = next((a for a in args if isinstance(a, (list, tuple))), more.get("size", UNKNOWN))
    made = given_out(more) or spec(made_shape((sizes,), {}), made_dtype(args, more, "int64"))
    return vector(made.numel, made)


@op("randperm", places="ta")
def randperm(n: object, *options: object, **more: object) -> Cost:
    # A random key an element, and sorting by it.
    count = need(n, "n")
    written = given_out(more) or spec((count,), made_dtype(options, more, "int64"))
    return vector(count * (1 + max(count - 1, 0).bit_length()), written)


@op("torch.normal", "aten::normal")
def normal(mean: object, std: object = 1.0, size: object = None, *options: object, **more: object) -> Cost:
    tensors = [t for t in (mean, std) if isinstance(t, TensorSpec)]
    shape = broadcast(*(t.shape for t in tensors)) if tensors else made_shape((size,), {})
    made = spec(shape, tensors[0].dtype if tensors else made_dtype(options, more, DEFAULT_FLOAT))
    return vector(3 * product(shape), tensors, made)


@op("uniform_", "normal_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_", places="Ta")
@op("aten::_no_grad_uniform_", "aten::_no_grad_normal_")
def random_(input: TensorSpec, *options: object, **more: object) -> Cost:
    return vector(3 * input.numel, input, *(o for o in options if isinstance(o, TensorSpec)))


@op("uniform", "random", "exponential", "geometric", "cauchy", "log_normal", places="a", order="input ...")
def random_functional(input: TensorSpec, **more: object) -> Cost:
    return vector(3 * input.numel, gradient(input))


def _sampled(*names: str, weight: int, places: str = "ta") -> None:
    """Declare ops that give one sample for each element of a tensor of parameters."""

    @op(*names, places=places, order="input ...")
    def sampled(input: TensorSpec, **more: object) -> Cost:
        return vector(weight * input.numel, input, gradient(input))


_sampled("bernoulli", weight=2, places="tTa")
_sampled("poisson", "aten::normal_functional", weight=2)
_sampled("_standard_gamma", weight=3)
_sampled("_sample_dirichlet", weight=5)  # samples of a gamma distribution, divided by their sum


@op("multinomial")
def multinomial(input: TensorSpec, num_samples: object) -> Cost:
    return vector(3 * input.numel, input, spec((*input.shape[:-1], need(num_samples, "num_samples")), "int64"))


@op("binomial", places="ta")
def binomial(count: TensorSpec, prob: TensorSpec) -> Cost:
    made = spec(broadcast(count.shape, prob.shape), promote(count, prob))
    return vector(3 * made.numel, count, prob, made)


@op("_standard_gamma_grad", places="ta")
def standard_gamma_grad(input: TensorSpec, output: TensorSpec) -> Cost:
    # One function of the parameter and the sample.
    return vector(input.numel, input, output, gradient(input))


@op("_dirichlet_grad", places="ta")
def dirichlet_grad(x: TensorSpec, alpha: TensorSpec, total: TensorSpec) -> Cost:
    return vector(x.numel, x, alpha, total, gradient(x))


# ---------------------------------------------------------------------------------------------- from keys, and quasi-random


@op("_philox_uniform_", "_philox_uniform", "_philox_normal_", "_philox_normal", places="ta")
def philox(input: TensorSpec, key: TensorSpec) -> Cost:
    # A number, scaled to the range or the deviation by a product and a sum.
    return vector(3 * input.numel, key, gradient(input))


@op("_philox_key_split", places="ta")
def philox_key_split(key: TensorSpec, num_splits: object) -> Cost:
    made = spec((need(num_splits, "num_splits"), *key.shape), key.dtype)
    return vector(made.numel, key, made)


@op("_philox_key_fold_in", places="ta")
def philox_key_fold_in(key: TensorSpec) -> Cost:
    return vector(key.numel, key, gradient(key))


@op("_sobol_engine_draw", places="ta")
def sobol_draw(quasi: TensorSpec, n: object, sobolstate: TensorSpec, dimension: object, dtype: object) -> Cost:
    # Each point is the one before it, exclusive or one direction a dimension, scaled to [0, 1).
    made = spec((need(n, "n"), need(dimension, "dimension")), dtype_from(dtype) or DEFAULT_FLOAT)
    return vector(2 * made.numel, quasi, sobolstate, quasi, made)


@op("_sobol_engine_ff_", places="ta")
def sobol_forward(input: TensorSpec, n: object, sobolstate: TensorSpec, dimension: object) -> Cost:
    return vector(need(n, "n") * need(dimension, "dimension"), input, sobolstate, input)


@op("_sobol_engine_scramble_", places="ta")
def sobol_scramble(input: TensorSpec, ltm: TensorSpec) -> Cost:
    # A product of each direction's bits with a triangular matrix of bits a dimension.
    return vector(2 * ltm.numel * (input.shape[-1] if input.shape else 1), input, ltm, input)


@op("_sobol_engine_initialize_state_", places="ta")
def sobol_initialize(input: TensorSpec) -> Cost:
    return vector(input.numel, input)
