"""Parts of columns -> columns, in as little memory as their numbers allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["joined", "narrowest"]

Array = npt.NDArray[Any]


def narrowest(values: Array) -> Array:
    """A copy in 32 bits where all numbers fit, else the same array."""
    limits = np.iinfo(np.int32)
    if not len(values) or (values.min() >= limits.min and values.max() <= limits.max):
        return values.astype(np.int32)
    return values


def joined(parts: list[Array]) -> Array:
    """One array of several, which are given up one after another; as wide as the widest."""
    whole = np.empty(sum(map(len, parts)), np.result_type(*parts) if parts else np.int64)
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole
