"""The autocast region that an op is called in -> what distinguishes the call, and its text in the marker.

Outside of every region this is one question to torch. Inside, the device of an op's first tensor decides: a region of another
device does not concern it. Of what torch answers, the quickest is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

_Tensor = torch.Tensor
_outside = torch._C._dispatch_tls_is_dispatch_key_excluded
_CUDA, _CPU = torch._C.DispatchKey.AutocastCUDA, torch._C.DispatchKey.AutocastCPU


in_autocast: Callable[[], bool] = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: not (_outside(_CUDA) and _outside(_CPU))
)
"""Whether this thread is inside a region of any device."""

_dtype: Callable[[str], torch.dtype] = getattr(  # of a device's regions; torch before 2.4 has a function for each device
    torch,
    "get_autocast_dtype",
    lambda device: torch.get_autocast_cpu_dtype() if device == "cpu" else torch.get_autocast_gpu_dtype(),
)
_devices: frozenset[str] = frozenset(getattr(torch._C, "_autocast_supported_devices", list)())
_cuda_built: bool = torch.backends.cuda.is_built()  # else no tensor of ours is there, and one question less is asked


def add_region(key: object, args: Sequence[Any], kwargs: dict[str, Any]) -> object:
    """`key` with device and dtype of the region that a call is made in; the same key where none concerns it.

    One tuple, since hashing one within another takes longer.
    """
    first: Any = args[0] if args else None
    if type(first) is list and first:
        first = first[0]
    if not isinstance(first, _Tensor):
        first = _first_tensor((*args, *kwargs.values()))
        if first is None:
            return key
    if _cuda_built and first.is_cuda:
        return key if _outside(_CUDA) else (key, "cuda", _dtype("cuda"))
    if first.is_cpu:
        return key if _outside(_CPU) else (key, "cpu", _dtype("cpu"))
    device = first.device.type
    return (key, device, _dtype(device)) if device in _devices and torch.is_autocast_enabled(device) else key


def _first_tensor(values: Iterable[Any]) -> torch.Tensor | None:
    """The first tensor among arguments, or at the head of a list among them."""
    for value in values:
        head = value[0] if (type(value) is list or type(value) is tuple) and value else value
        if isinstance(head, _Tensor):
            return head
    return None


def autocast_text(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The region as markers have it, `cuda:bfloat16`; empty where none concerns the call."""
    match add_region(None, args, kwargs) if in_autocast() else None:
        case (None, str(device), dtype):
            return f"{device}:{str(dtype).removeprefix('torch.')}"
    return ""
