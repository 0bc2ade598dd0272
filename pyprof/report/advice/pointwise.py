"""Kernels of a window, stream by stream -> which go over every element or every row, over how many elements, and what they do.

What the kinds of advice about pointwise kernels share; it advises nothing itself. Sizes are those of the op where they were
recorded, else what the grid says: torch's pointwise kernels give a fixed number of elements to each block.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows, narrowest
from pyprof.arrays.types import Bools, Ints
from pyprof.opcall import OpCall
from pyprof.parse.records.records import PHASES
from pyprof.parse.sources.trace import ActivityKind
from pyprof.report.overview import Overview

# Families of kernels that compilers fuse; what a library or a compiler has fused already is of other families or names.
_FAMILIES = frozenset({"elementwise", "activation", "dropout", "norm", "batchnorm", "softmax", "reduce", "cat"})
_WHOLE = frozenset({"norm", "batchnorm", "softmax"})
_EAGER = re.compile(
    r"at::(?:native|cuda)::|2at(?:6native|4cuda)|softmax_warp_|cunn_|kernelPointwiseApply|\bbn_[fb]w_|[bB]atch_?[nN]orm"
)
# A vectorized kernel gives each thread 4 elements, or since torch 2.6 up to 8: sizes from it are good to a factor of 2.
_PER_BLOCK = re.compile(r"elementwise_kernel(?:_manual_unroll)?<(?:\(int\))?(\d+), (?:\(int\))?(\d+),")
_PER_THREAD = 4
_POINTERS = re.compile(r"[aA]rray<char ?\*, (?:\(unsigned long\)|\(int\))?(\d+)")
_FUNCTIONS = tuple(
    map(
        re.compile,
        (
            r"binary_internal::(\w+?)Functor",
            r"CUDAFunctor(?:On[A-Z]\w*?)?_(\w+)",
            r"(?:FunctionTraits|func_wrapper_t)<.*?(\w+?)_(?:functor|kernel_impl)",
            r"::(?!gpu_)(\w+?)(?:_tensor_scalar|_scalar|_tensor)?_kernel(?:_cuda|_impl)",
            r"(\w+?)Ops<",
            r"::(\w+?)(?:Scalar)?Functor<",
            r"::launch_(\w+?)_scalar\(",
            r"(layer_norm|[sS]oft_?[mM]ax|dropout|CatArray|[bB]atch_?[nN]orm|\bbn_)",
        ),
    )
)
_WORDS = {"direct_copy": "copy", "bfloat16_copy": "copy", "float16_copy": "copy", "copy_device_to_device": "copy",
          "catarray": "cat", "bn_": "batch_norm", "batchnorm": "batch_norm", "cunn_softmax": "softmax"}  # fmt: skip


class Kernels(NamedTuple):
    """One row an activity of the window, memsets left out, in order of device, stream and begin.

    row: of the records; stream: number of its stream; fusable: whether it goes over elements or rows, one kernel an op;
    elements: of its largest tensor, -1 unknown; inputs: tensors of about this size that it reads; reduces: whether what it
    writes is far smaller; whole: whether it is all or a part of a norm or a softmax, which a library split; word: code into
    `words`: what it computes.
    """

    row: Ints
    stream: Ints
    fusable: Bools
    elements: Ints
    inputs: Ints
    reduces: Bools
    whole: Bools
    word: Ints
    words: list[str]


def kernels_of(overview: Overview) -> Kernels:
    """What is known of the activities of the window."""
    records, costs, division = overview.records, overview.frame.costs, overview.division
    row = division.row[records["kind"][division.row] != ActivityKind.MEMSET]
    number = narrowest(distinct_rows(division.device[row], records["stream"][row]).inverse)
    order = np.lexsort((records["start_ns"][row], number))
    row, number = row[order], number[order]
    del order
    backward = records["phase"][row] == PHASES.index("backward")
    columns = (records["name"][row], records["grid_x"][row], records["block_x"][row], _described(overview, row), backward)
    (name, grid, block, call, late), first, code = distinct_rows(*columns)
    kinds = [costs.kernels[kind] for kind in costs.kernel[row[first]].tolist()]
    words: dict[str, int] = {}
    told = np.zeros((6, len(name)), np.int64)
    for at, (named, blocks, threads, about, behind) in enumerate(np.stack([name, grid, block, call, late], 1).tolist()):
        text, family = records.strings[named] if named >= 0 else "", kinds[at].family
        if family not in _FAMILIES or not _EAGER.search(text):
            continue
        known = _by_shapes(records.calls[about]) if about >= 0 else None
        elements, inputs = known or (_by_grid(text, blocks, threads), _inputs(text, family, bool(behind)))
        word = words.setdefault(function(text) or family, len(words))
        told[:, at] = 1, elements, inputs, family == "reduce", family in _WHOLE, word
    elements, word = told[1][code], told[5].astype(np.int32)[code]
    fusable, reduces, whole = ((told[at] > 0)[code] for at in (0, 3, 4))
    return Kernels(row, number, fusable, elements, told[2].astype(np.int32)[code], reduces, whole, word, list(words))


def function(kernel: str) -> str | None:
    """What a pointwise kernel of torch computes, by its name: `mul`, `exp`, `copy`."""
    found = next((match for pattern in _FUNCTIONS if (match := pattern.search(kernel))), None)
    if found is None:
        return None
    word = found[1].lower()
    return _WORDS.get(word, word)


def _described(overview: Overview, row: Ints) -> Ints:
    """For each row the innermost call that describes what the kernel itself did with tensors, -1 none."""
    records = overview.records
    tensors = np.array([bool(call.tensors) for call in records.calls] + [False], np.bool_)
    inner, own, call = (records[name][row] for name in ("inner", "own", "call"))
    call = np.where(records["phase"][row] == PHASES.index("backward"), -1, call)
    return np.where(tensors[inner], inner, np.where(tensors[own], own, np.where(tensors[call], call, -1)))


def _by_shapes(call: OpCall) -> tuple[int, int] | None:
    sizes = [tensor.numel for tensor in call.tensors]
    if call.op in ("copy_", "_foreach_copy_"):
        sizes = sizes[:1]
    largest = max(sizes)
    return (largest, sum(2 * size >= largest for size in sizes)) if largest > 0 else None


def _by_grid(kernel: str, blocks: int, threads: int) -> int:
    if blocks < 1 or threads < 1:
        return -1
    if found := _PER_BLOCK.search(kernel):
        return blocks * int(found[1]) * int(found[2])
    return blocks * threads * _PER_THREAD if "ized_elementwise_kernel" in kernel or "unrolled_elementwise" in kernel else -1


def _inputs(kernel: str, family: str, backward: bool) -> int:
    """Large tensors that a kernel reads, as far as its name says: pointers of its own, the output's among them."""
    if found := _POINTERS.search(kernel):
        return int(found[1]) - 1
    return 2 if backward and family in _WHOLE else 1
