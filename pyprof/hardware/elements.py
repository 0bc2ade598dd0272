"""The element type of the tensors in a list that one kernel joined or updated, from its template arguments."""

from __future__ import annotations

import re
from functools import cache

from pyprof.dtypes import DType, lookup
from pyprof.hardware.names import demangle, normalise

_ELEMENT = re.compile(r"\b(?:CatArrayBatchedCopy\w*|\w*(?:Op|Op\w*List\w*|OpScalar\w*|Math)Functor)<([\w:() ]+(?:<[\w:]+>)?)")
_OPAQUE = re.compile(r"OpaqueType<(\d)u?>$")
# Of elements that are only moved the name has the width alone.
_BY_WIDTH = {"1": "bits8", "2": "bits16", "4": "int32", "8": "int64"}


@cache
def element_type(name: str) -> DType | None:
    """The type of `CatArrayBatchedCopy<float, ...>` and of the functors of `multi_tensor_apply_kernel`; None for other kernels.

    `OpaqueType<2>` stands for any type of two bytes: the type that is returned has that width, and may be another.
    """
    found = _ELEMENT.search(normalise(demangle(name)))
    if found is None:
        return None
    opaque = _OPAQUE.search(found[1])
    return lookup(_BY_WIDTH.get(opaque[1]) if opaque else found[1])
