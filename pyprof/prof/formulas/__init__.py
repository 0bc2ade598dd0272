"""FLOPs and minimum bytes of one op call, forward and backward: the registry, and one file a family of ops.

Conventions
    Matrix FLOPs: a multiply-add is 2. A GEMM is 2·M·N·K (complex 4 times that), the bias added in it is not counted. A
    convolution is 2·N·K·P·Q·(C/g)·R·S whatever algorithm ran. Attention is 2·B·H·(pairs)·(Dqk+Dv), pairs being the
    (query, key) pairs that the mask leaves; the softmax inside is not counted. Backward: each product of it on its own.
    Vector FLOPs: the operations of the op's definition, where + - * / comparison, exp, log, sqrt, sin and the like are
    1 each:

        add, mul, compare, where, relu, abs, exp, log, pow 1
        clamp 2; addcmul, addcdiv, lerp 3; sigmoid 4; silu, mish, hardswish 5; gelu 5 (tanh form 9); softplus, elu 3; dropout 5
        softmax and log_softmax 5 (maximum, subtract, exp, sum, divide); cross entropy: that and 2 a row
        layer, group and instance norm 8 (6 without affine); rms norm 4 (3); batch norm 8 in training, 4 in evaluation
        sum, max, any, cumsum 1 an input element; mean 1, and 1 an output; var 4; norm 2
        pooling one an element of each window; sort log2(n) an element; topk 1
        Adam 12 a parameter (weight decay 2 more), SGD 2 (momentum 2 more)
        casts, copies, cat, indexing, views 0

    Bytes are the algorithm's minimum: each input read once at its stored size (an expanded dimension is stored once), each
    output written once, each in its own dtype; what is gathered of an input is read as if it were all distinct, but at most the
    whole input. What only a composite of several kernels keeps in memory between them is not counted.

To add an op, write one function in its family's file, declared with `registry.op`; `algebra` has the parts that formulas are
made of (sizes, bytes, gradients, vector costs). To add a family, add one file: every module of this package is imported.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from pyprof.prof.formulas.registry import (
    Cost,
    Missing,
    Op,
    Piece,
    Result,
    asks,
    evaluate,
    evaluate_backward,
    formula,
    gives_way,
    is_copy,
    is_structural,
    known,
    lacks,
    least_bytes,
    matmul_class,
    moves,
    multiplies,
    named,
    names,
    namespaces,
    op,
    params,
)
from pyprof.prof.formulas.user import load_user_formulas

__all__ = [
    "Cost",
    "Missing",
    "Op",
    "Piece",
    "Result",
    "asks",
    "evaluate",
    "evaluate_backward",
    "formula",
    "gives_way",
    "is_copy",
    "is_structural",
    "known",
    "lacks",
    "least_bytes",
    "load_user_formulas",
    "matmul_class",
    "moves",
    "multiplies",
    "named",
    "names",
    "namespaces",
    "op",
    "params",
]

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")
