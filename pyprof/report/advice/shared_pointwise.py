"""Kernels of a window, stream by stream -> which go over every element or every row, over how many elements, and what they do.

Shared by the kinds of advice about pointwise kernels; it gives no advice itself. Sizes are those of the op where they were
recorded, else what the grid says: torch's pointwise kernels give a fixed number of elements to each block.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import order_of
from pyprof.columns.types import Bools, Ints
from pyprof.model.opcall import OpCall
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.report.time.overview import Overview

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


class WindowKernels(NamedTuple):
    """row: records of the activities of the window, memsets left out, in order of device, stream and begin; stream: number of
    the stream of each; code: its class. The others are of classes.

    fusable: whether they go over elements or rows, one kernel an op; elements: of the largest tensor, -1 unknown; inputs:
    tensors of about this size that they read; reduces: whether what they write is far smaller; whole: whether they are all or a
    part of a norm or a softmax, which a library split; word: code into `words`: what they compute.
    """

    row: Ints
    stream: Ints
    code: Ints
    fusable: Bools
    elements: Ints
    inputs: Ints
    reduces: Bools
    whole: Bools
    word: Ints
    words: list[str]


def kernels_of(overview: Overview) -> WindowKernels:
    """The window's kernels in order of device and stream, with what they compute."""
    classes, costs, division = overview.frame.classes, overview.frame.of_classes.costs, overview.division
    alike = classes.records
    row = division.row[(alike["kind"] != ActivityKind.MEMSET)[classes.code[division.row]]]
    number = distinct_rows(alike["pid"], alike["device"], alike["stream"]).inverse.astype(np.min_scalar_type(len(classes)))
    stream = number[classes.code[row]]
    if (order := order_of(stream, overview.records["start_ns"][row])) is not None:
        row, stream = row[order], stream[order]
    code, there = classes.code[row], np.zeros(len(classes), np.bool_)
    there[code] = True
    backward = alike["phase"] == PHASES.index("backward")
    words: dict[str, int] = {}
    told = np.zeros((6, len(classes)), np.int64)
    columns = (alike["name"], alike["grid_x"], alike["block_x"], _described(overview), backward, costs.kernel)
    alike_too = distinct_rows(*(column[there] for column in columns))
    for at, (named, blocks, threads, about, behind, kind) in enumerate(alike_too.columns.T.tolist()):
        text, family = overview.records.strings[named] if named >= 0 else "", costs.kernels[kind].family
        if family not in _FAMILIES or not _EAGER.search(text):
            continue
        call = overview.records.calls[about] if about >= 0 else None
        size = _size(call, text, family, blocks, threads, bool(behind))
        said = words.setdefault(function(text) or family, len(words))
        told[:, at] = 1, *size, family == "reduce", family in _WHOLE, said
    of_class = np.zeros((6, len(classes)), np.int64)
    of_class[:, there] = told[:, alike_too.inverse]
    fusable, reduces, whole = (of_class[at] > 0 for at in (0, 3, 4))
    return WindowKernels(row, stream, code, fusable, of_class[1], of_class[2], reduces, whole, of_class[5], list(words))


@lru_cache(1 << 12)
def function(kernel: str) -> str | None:
    """Word for the operation of one of torch's pointwise kernels, by its name: `mul`, `exp`, `copy`."""
    found = next((match for pattern in _FUNCTIONS if (match := pattern.search(kernel))), None)
    if found is None:
        return None
    word = found[1].lower()
    return _WORDS.get(word, word)


def _described(overview: Overview) -> Ints:
    """For each class the innermost call that describes what its kernels themselves did with tensors, -1 none."""
    records = overview.frame.classes.records
    tensors = np.array([bool(call.tensors) for call in records.calls] + [False], np.bool_)
    inner, own, call = (records[name] for name in ("inner", "own", "call"))
    call = np.where(records["phase"] == PHASES.index("backward"), -1, call)
    return np.where(tensors[inner], inner, np.where(tensors[own], own, np.where(tensors[call], call, -1)))


def _size(call: OpCall | None, kernel: str, family: str, blocks: int, threads: int, backward: bool) -> tuple[int, int]:
    """Elements of the largest tensor (-1 unknown), and how many tensors of about that size are read: by the shapes of its call,
    else guessed from the kernel's name and grid."""
    sizes = [] if call is None else [tensor.numel for tensor in call.tensors]
    if call is not None and call.op in ("copy_", "_foreach_copy_"):
        sizes = sizes[:1]
    if (largest := max(sizes, default=0)) > 0:
        return largest, sum(2 * size >= largest for size in sizes)
    elements = -1
    if blocks >= 1 and threads >= 1:
        if found := _PER_BLOCK.search(kernel):
            elements = blocks * int(found[1]) * int(found[2])
        elif "ized_elementwise_kernel" in kernel or "unrolled_elementwise" in kernel:
            elements = blocks * threads * _PER_THREAD
    if found := _POINTERS.search(kernel):  # of its own, the output's among them
        return elements, int(found[1]) - 1
    return elements, 2 if backward and family in _WHOLE else 1
